"""Which strategies have noise: what rounding adds to Z, bounded beforehand, and refused where it is too much (docs/matrix/noise.md)."""

import hockeystick as hs
import numpy as np
import pytest
from hockeystick.matrix import rounding
from hockeystick.matrix.noise import CorrelatedNoise

MANY = 100_000
DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])
GROWING = hs.BandedToeplitz([0.3, 2.0, 0.5], 100)


def made(strategy, dimension=3, state="float64", **changes):
    how = {"noise_multiplier": 1.0, "clipping_norm": 1.0, "seed": 5, "state_dtype": state}
    return CorrelatedNoise(strategy, dimension, **{**how, **changes})


def growing_columns(steps, bands, entry):
    columns = np.full((steps, bands), entry)
    columns[:, 0] = 1.0
    for offset in range(1, bands):
        columns[steps - offset :, offset] = 0.0
    return columns


def measured(strategy, state, dimension=400, dtype="float64"):
    """Root mean square of the entries of C W - Z, by row, for the rows W that are released."""
    rows = made(strategy, dimension, state, dtype=dtype).rows(strategy.steps)
    z = made(hs.Identity(strategy.steps), dimension, dtype="float64").rows(strategy.steps)
    error = strategy.matrix().astype(np.longdouble) @ rows.astype(np.longdouble) - z
    return float(np.sqrt(np.mean(np.square(error), axis=1)).max())


def bound(strategy, state):
    sizes = rounding._sizes(strategy, np.dtype(state))
    return sizes.added / (1.0 - sizes.fed)


def accepted(make, state, most=400):
    """The largest number of steps whose noise is made."""
    good = 0
    for steps in range(3, most):
        try:
            made(make(steps), 1, state)
        except hs.ParameterError:
            break
        good = steps
    assert 0 < good < most - 1
    return make(good)


@pytest.mark.sweep
@DTYPES
@pytest.mark.parametrize(
    "make",
    [
        lambda: hs.Identity(MANY),
        lambda: hs.BandedToeplitz.square_root(MANY, 32),
        lambda: hs.BandedToeplitz.square_root(8192, 8192),
        lambda: hs.BandedToeplitz.optimized(MANY, 16),
        lambda: hs.BandedToeplitz.optimized(4096, 16, workload=hs.matrix.Workload(momentum=0.9)),
        lambda: hs.BandedToeplitz(np.ones(4096), 4096),
        lambda: hs.BandedToeplitz([1.0, 1.0], MANY),
        lambda: hs.matrix.Banded(np.tile(hs.BandedToeplitz.square_root(9, 1).coefficients, (MANY, 1))),
        lambda: hs.matrix.LowerTriangular(np.tril(np.ones((512, 512)))),
        lambda: hs.matrix.BufferedToeplitz.optimized(2**15, 3),
        lambda: hs.matrix.InverseBanded.square_root(MANY, 32),
        lambda: hs.matrix.InverseBanded([1.0, -1.0], MANY),
    ],
)
def test_strategies_in_use_are_accepted(make, dtype):
    strategy = make()
    assert made(strategy, state=dtype).step == 0
    assert bound(strategy, dtype) < {"float32": 1e-4, "float64": 1e-8}[dtype]


@pytest.mark.parametrize(
    ("strategy", "name"),
    [
        (GROWING, r"BandedToeplitz\(steps=100, bands=3\).*add up to .*e\+80"),
        (hs.matrix.Banded(growing_columns(100, 2, 2.0)), r"Banded\(steps=100"),
        (
            hs.matrix.LowerTriangular(hs.matrix.Banded(growing_columns(100, 3, 2.0)).matrix()),
            r"LowerTriangular\(steps=100",
        ),
        (hs.BandedToeplitz([0.3, 2.0], 5000), r".*steps=5000"),
    ],
)
@DTYPES
def test_strategies_whose_inverse_grows_are_refused(strategy, name, dtype):
    with pytest.raises(hs.ParameterError, match=rf"strategy = {name}"):
        made(strategy, state=dtype)


def test_only_the_kept_type_may_be_too_coarse():
    steps = 30
    strategy = hs.BandedToeplitz([1.0, 1.8], steps)
    assert made(strategy).step == 0
    with pytest.raises(hs.ParameterError, match="state_dtype = float64"):
        made(strategy, state="float32")
    slow = hs.matrix.BufferedToeplitz(((0.3, 0.99999), (0.1, 0.5)), MANY)
    assert made(slow).step == 0
    with pytest.raises(hs.ParameterError, match="kept as float32"):
        made(slow, state="float32")
    # In single precision these rows are 0, or infinite.
    for scale in (1e-42, 1e44):
        tiny = hs.BandedToeplitz([scale, 0.5 * scale], steps)
        assert made(tiny).step == 0
        with pytest.raises(hs.ParameterError, match="kept as float32"):
            made(tiny, state="float32")


def test_plans_are_refused_before_anything_is_done(monkeypatch):
    monkeypatch.setattr(
        "hockeystick.training.plan.guarantee", lambda *_, **__: pytest.fail("budget was spent")
    )
    with pytest.raises(hs.ParameterError, match=r"strategy = BandedToeplitz\(steps=100"):
        hs.plan_training(
            hs.matrix.FixedOrder(100, 50), 100, strategy=GROWING, noise_multiplier=50.0, delta=1e-5
        )


def test_a_run_with_coarse_rows_is_refused_before_it_exists(tmp_path):
    strategy = hs.BandedToeplitz([1.0, 1.8], 30)
    plan = hs.plan_training(
        hs.matrix.FixedOrder(30, 15), 60, strategy=strategy, noise_multiplier=50.0, delta=1e-5
    )
    with pytest.raises(hs.ParameterError, match="kept as float32"):
        plan.start(3, clipping_norm=1.0, path=tmp_path / "run", seed=1, state_dtype="float32")
    assert not (tmp_path / "run").exists()
    assert plan.start(3, clipping_norm=1.0, seed=1).step == 0


# --- What is said of Z ---------------------------------------------------------------------------------


@DTYPES
@pytest.mark.parametrize(
    "make",
    [
        lambda steps: hs.BandedToeplitz([1.0, 1.3, 0.2], steps),
        lambda steps: hs.BandedToeplitz([0.3, 2.0, 0.5], steps),
        lambda steps: hs.matrix.Banded(growing_columns(steps, 3, 1.3)),
    ],
)
def test_the_worst_accepted_rows_are_those_of_nearly_the_same_z(make, dtype):
    strategy = accepted(make, dtype)
    found, allowed = measured(strategy, dtype), bound(strategy, dtype)
    assert found <= allowed <= 2.0**-10
    # Near the limit: some digits of the bound are those of worst cases, and none of it is idle.
    assert allowed > 2.0**-10 / 20
    assert found > allowed / 2000


@pytest.mark.sweep
@pytest.mark.parametrize(
    "strategy",
    [
        hs.BandedToeplitz.square_root(500, 16),
        hs.BandedToeplitz.optimized(500, 16),
        hs.matrix.BufferedToeplitz(((0.3, 0.999), (0.2, 0.9)), 500),
        hs.matrix.InverseBanded.square_root(500, 8),
        hs.matrix.LowerTriangular(np.tril(np.ones((500, 500)))),
    ],
    ids=lambda strategy: type(strategy).__name__,
)
@DTYPES
def test_bounds_hold(strategy, dtype):
    assert measured(strategy, dtype, 100) <= bound(strategy, dtype)
    # Of single-precision rows as well, wherever they are returned.
    allowed = rounding.check_rounding(strategy, np.dtype(dtype)).returned_single
    assert measured(strategy, dtype, 100, dtype="float32") <= allowed <= 2.0**-10


GROWING_SLOWLY = [
    hs.BandedToeplitz([1.0, 1.2], 130),
    hs.BandedToeplitz([1.0, 1.05], 500),
    hs.BandedToeplitz([0.5, 1.0], 36),
    hs.matrix.Banded(growing_columns(70, 2, 1.3)),
    hs.matrix.InverseBanded([1.0, -1.2], 120),
    hs.matrix.BufferedToeplitz(((0.3, 0.99999), (0.1, 0.5)), MANY),
]


@pytest.mark.parametrize("strategy", GROWING_SLOWLY, ids=repr)
def test_rows_are_not_returned_in_a_type_between_whose_numbers_a_gradient_fits(strategy):
    """Kept as doubles they are exact enough; single precision alone moved Z by up to 5000 standard deviations."""
    noise = made(strategy, 5, dtype="float32")
    single, double = np.full((2, 5), 7.0, np.float32), np.zeros((2, 5))
    for write in (noise.next, lambda: next(noise), lambda: noise.rows(2), lambda: noise.rows(2, single)):
        with pytest.raises(hs.ParameterError, match="dtype = float32: rows rounded to it change Z by up to"):
            write()
    assert noise.step == 0
    assert (single == 7.0).all()
    # The sum with a gradient is post-processing of the exact one.
    noise.add_to(np.zeros(5, np.float32))
    assert noise.step == 1
    noise.seek(0)
    assert noise.rows(2, double).all()


def test_rows_of_single_precision_are_returned_up_to_the_limit():
    """What they do to Z is measured next to the last number of steps that has them."""

    def returned(steps):
        strategy = hs.BandedToeplitz([1.0, 1.05], steps)
        return rounding.check_rounding(strategy, np.dtype(np.float64)).returned_single

    steps = next(steps for steps in range(2, 500) if not returned(steps + 1) <= 2.0**-10)
    found = measured(hs.BandedToeplitz([1.0, 1.05], steps), "float64", dtype="float32")
    assert returned(steps) / 200 < found <= returned(steps)


@pytest.mark.parametrize("entry", [0.4, 1.0, 1.2])
def test_norms_of_rows_are_bounded(entry):
    """By probes, against the inverse; and no row exceeds what is said of it."""
    columns = growing_columns(60, 3, entry)
    columns[:, 1] *= np.linspace(0.5, 1.0, 60)
    strategy = hs.matrix.Banded(columns)
    inverse = np.linalg.inv(strategy.matrix())
    sizes = rounding._sizes(strategy, np.dtype(np.float64))
    assert sizes.row >= np.abs(inverse).sum(axis=1).max()
    largest = np.linalg.norm(inverse, axis=1).max()
    terms = 12 * 2.0**-53 * strategy.matrix().sum(axis=1).max()
    assert terms * largest <= sizes.added <= 20 * terms * largest
    if entry <= 1.0:
        noise = made(strategy, 2000, dtype="float64")
        assert np.abs(noise.rows(60)).max() <= noise._largest


@DTYPES
@pytest.mark.parametrize(
    "strategy",
    [
        hs.BandedToeplitz([1.0, 0.7, 0.2], 60),
        hs.BandedToeplitz([4.0, 2.0, 0.5], 60),
        hs.BandedToeplitz.square_root(300, 8),
    ],
)
def test_rows_of_equal_columns_are_known_exactly(strategy, dtype):
    """From the inverse: their norm and sum, and what rounding of every term of an equation, and of its solution if that is single, adds."""
    inverse, matrix = np.linalg.inv(strategy.matrix()), strategy.matrix()
    sizes = rounding._sizes(strategy, np.dtype(dtype))
    norm, row = np.linalg.norm(inverse, axis=1).max(), np.abs(inverse).sum(axis=1).max()
    assert sizes.norm == pytest.approx(norm, rel=1e-9)
    assert sizes.row == pytest.approx(row, rel=1e-9)
    terms = 2.0**-53 * strategy.bands * matrix.sum(axis=1).max()
    own = 2.0**-24 * matrix[0, 0] if dtype == "float32" else 0.0
    assert (terms + own) * norm <= sizes.added
    assert (terms + own) * row <= sizes.fed


@DTYPES
@pytest.mark.parametrize(
    "strategy",
    [
        hs.BandedToeplitz([1.0, 1.3, 0.2], 20),
        hs.matrix.Banded(growing_columns(20, 3, 1.3)),
        hs.matrix.BufferedToeplitz(((0.3, 0.99), (0.1, 0.5)), 300),
        hs.matrix.BufferedToeplitz(((0.3, 0.99999),), 3000),
    ],
    ids=repr,
)
def test_rows_of_any_z_of_ones_are_rounded_no_less_than_those_of_random_signs(strategy, dtype):
    """Signs are a Z with entries of at most 1, and have the second moments of normals."""
    sizes = rounding._sizes(strategy, np.dtype(dtype))
    assert sizes.fed >= sizes.added > 0.0


def test_rounding_that_feeds_on_itself_is_not_returned():
    """Rows of 2^23 entries of 1 and -1: E <= 2^-11 + E alone bounds nothing, however little the first part is."""
    steps = 2**23
    strategy = hs.BandedToeplitz([1.0, 1.0], steps)
    noise = made(strategy, 1, dtype="float32")
    with pytest.raises(hs.ParameterError, match="rows rounded to it change Z by up to inf"):
        noise.next()


def test_probes_leave_room_for_their_luck_and_for_rows_of_equal_entries():
    """Row i of the inverse has i + 1 entries of 1 and -1."""
    sizes = rounding._sizes(hs.matrix.Banded(growing_columns(400, 2, 1.0)), np.dtype(np.float64))
    assert 4.0 * 20.0 <= sizes.norm <= 16.0 * 20.0
    assert sizes.row >= 400.0


# --- Overflow ------------------------------------------------------------------------------------------


def test_rows_that_would_overflow_are_refused_before_they_are_made():
    noise = made(hs.Identity(4), noise_multiplier=1e38)
    with pytest.raises(hs.ParameterError, match="do not fit into float32"):
        noise.next()
    assert noise.step == 0
    assert np.isfinite(noise.next(np.empty(3))).all()


@pytest.mark.parametrize(
    ("strategy", "share"),
    [
        (hs.Identity(4), 1.0),
        (hs.BandedToeplitz([64.0, 1.0], 4), 64.0),
        (hs.matrix.InverseBanded([0.25, -0.125], 4), 4.0),
    ],
)
def test_rows_that_would_underflow_are_refused_before_they_are_made(strategy, share):
    least = share * 2.0**-102
    noise = made(strategy, noise_multiplier=least)
    row = noise.next(np.empty(3, np.float32)).astype(np.float64)
    noise.seek(0)
    assert row == pytest.approx(noise.next(np.empty(3)), rel=1e-6)
    noise = made(strategy, noise_multiplier=0.99 * least)
    with pytest.raises(hs.ParameterError, match="underflow"):
        noise.next(np.empty(3, np.float32))
    assert noise.step == 0
    noise.next(np.empty(3))
    # There is no type for these.
    with pytest.raises(hs.ParameterError, match=r"noise_multiplier \* clipping_norm = 1e-305: must"):
        made(strategy, noise_multiplier=1e-205, clipping_norm=1e-100)
    with pytest.raises(hs.ParameterError, match="clipping_norm = 0"):
        made(strategy, noise_multiplier=0.4, clipping_norm=5e-324)
    assert not made(strategy, noise_multiplier=0.0, clipping_norm=5e-324).next().any()


def test_a_sum_that_would_overflow_is_not_released():
    plan = hs.plan_training(hs.matrix.FixedOrder(4, 2), 10, noise_multiplier=1.0, delta=1e-5)
    run = plan.start(3, clipping_norm=6e37, seed=1)
    step = run.next()
    assert len(step.indices) == 5
    total = np.zeros(3, np.float32)
    with pytest.raises(hs.ParameterError, match="do not fit into float32"):
        step.add_noise(total)
    assert run.released == 0
    assert not total.any()
    assert np.isfinite(step.add_noise(total.astype(np.float64))).all()
    assert run.released == 1
