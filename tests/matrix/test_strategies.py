"""Strategy matrices against their dense definitions, and sensitivities against all participation patterns."""

import itertools
import math
import subprocess
import sys
from fractions import Fraction

import hockeystick as hs
import mpmath
import numpy as np
import pytest
from hockeystick.matrix.buffered import BufferedToeplitz
from hockeystick.matrix.strategies import Banded, BandedToeplitz, Identity, InverseBanded, LowerTriangular
from hockeystick.matrix.strategy import Strategy, row_sums


def random_banded(steps: int, bands: int, seed: int) -> Banded:
    rng = np.random.default_rng(seed)
    columns = rng.uniform(0.0, 1.0, (steps, bands))
    columns[:, 0] += 0.5
    for offset in range(1, bands):
        columns[steps - offset :, offset] = 0.0
    return Banded(columns)


def random_dense(steps: int, seed: int) -> LowerTriangular:
    rng = np.random.default_rng(seed)
    return LowerTriangular(np.tril(rng.uniform(0.0, 1.0, (steps, steps))) + 0.5 * np.eye(steps))


STRATEGIES: list[Strategy] = [
    Identity(7),
    BandedToeplitz((1.0, 0.7, 0.2), 9),
    BandedToeplitz((1.0, 0.2, 0.9), 9),
    BandedToeplitz((2.0,), 1),
    BandedToeplitz(tuple(np.linspace(1.0, 0.1, 8)), 8),
    random_banded(10, 3, seed=1),
    random_banded(6, 6, seed=2),
    random_dense(9, seed=3),
    InverseBanded([1.0, -0.6, -0.1], 8),
    InverseBanded([[1.0, -0.5], [2.0, -0.25], [1.5, -1.0], [1.0, 0.0]]),
    BandedToeplitz.square_root(12, 5),
    BandedToeplitz.optimized(12, 4),
    BufferedToeplitz(((0.3, 0.9), (0.2, 0.5), (0.1, 0.0)), 9),
]
NAMES = [f"{index}-{type(strategy).__name__}" for index, strategy in enumerate(STRATEGIES)]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=NAMES)
def test_errors_and_noise_are_those_of_the_dense_matrix(strategy: Strategy) -> None:
    c = strategy.matrix()
    n = strategy.steps
    assert c.shape == (n, n)
    assert (c >= 0.0).all()
    assert not np.triu(c, 1).any()
    assert strategy.column_norms() == pytest.approx(np.linalg.norm(c, axis=0), rel=1e-14)
    sums = np.tril(np.ones((n, n))) @ np.linalg.inv(c)
    errors = 1.7**2 * (sums**2).sum(axis=1)
    assert strategy.per_step_error(1.7) == pytest.approx(errors, rel=1e-11)
    assert strategy.mean_squared_error(1.7) == pytest.approx(errors.mean(), rel=1e-11)
    assert strategy.max_error(1.7) == pytest.approx(errors.max(), rel=1e-11)
    noise = np.random.default_rng(5).standard_normal((n, 2, 3))
    correlated = strategy.correlated_noise(noise)
    assert np.tensordot(c, correlated, axes=1) == pytest.approx(noise, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=NAMES)
def test_columns_hold_the_matrix(strategy: Strategy) -> None:
    columns, c = strategy._columns(), strategy.matrix()
    assert columns.dtype == np.float64
    assert columns.shape in ((1, strategy.bands), (strategy.steps, strategy.bands))
    for j in range(strategy.steps):
        column = columns[0 if len(columns) == 1 else j]
        kept = min(strategy.bands, strategy.steps - j)
        assert c[j : j + kept, j].tolist() == column[:kept].tolist()
        assert not c[j + kept :, j].any()
        assert len(columns) == 1 or not column[kept:].any()
    sums = row_sums(columns, strategy.steps)
    assert sums == pytest.approx(c.sum(axis=1) if len(columns) > 1 else c[-1:].sum(axis=1), rel=1e-14)
    assert float(np.max(sums)) == pytest.approx(c.sum(axis=1).max(), rel=1e-14)


def patterns(steps: int, min_sep: int, most: int) -> list[tuple[int, ...]]:
    return [
        chosen
        for count in range(most + 1)
        for chosen in itertools.combinations(range(steps), count)
        if all(later - earlier >= min_sep for earlier, later in itertools.pairwise(chosen))
    ]


@pytest.mark.sweep
@pytest.mark.parametrize("strategy", STRATEGIES, ids=NAMES)
@pytest.mark.parametrize("apart", [None, 1, 2, 3, 5])
@pytest.mark.parametrize("most", [0, 1, 2, 3, None])
def test_sensitivity_holds_for_every_pattern(strategy: Strategy, apart: int | None, most: int | None) -> None:
    c, n = strategy.matrix(), strategy.steps
    min_sep = strategy.bands if apart is None else apart
    truth = max(
        float(np.linalg.norm(c[:, list(chosen)].sum(axis=1)))
        for chosen in patterns(n, min_sep, n if most is None else most)
    )
    lower, upper = strategy.sensitivity_bounds(apart, most)
    assert lower <= truth <= upper
    assert upper == strategy.sensitivity(apart, most)
    columns = strategy._columns()
    decreasing = len(columns) == 1 and np.all(np.diff(columns[0]) <= 0.0)
    if min_sep >= strategy.bands or most in (0, 1) or decreasing:
        assert upper - lower <= 1e-12 * upper  # stated to be exact
    else:
        assert upper <= 1.6 * truth


def test_sensitivity_without_the_table_is_an_upper_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = random_banded(10, 4, seed=9)
    for min_sep, most in [(2, 3), (4, 2), (1, 5)]:
        exact = strategy.sensitivity_bounds(min_sep, most)
        with monkeypatch.context() as patch:
            patch.setattr("hockeystick.matrix.strategy._MAX_TABLE", 8)
            rough = strategy.sensitivity_bounds(min_sep, most)
        assert exact.lower <= rough.upper
        assert rough.lower <= exact.upper <= rough.upper * (1.0 + 1e-12)


@pytest.mark.parametrize(
    ("steps", "bands", "peer", "root"),
    [
        (1024, 2, 259.4805, 285.28),
        (1024, 8, 71.3065, 90.94),
        (1024, 32, 24.5585, 30.679),
        (7200, 256, 28.8305, 37.388),
    ],
)
def test_optimized_reaches_the_known_values(steps: int, bands: int, peer: float, root: float) -> None:
    found = BandedToeplitz.optimized(steps, bands)
    assert found.mean_squared_error() * found.sensitivity() ** 2 <= peer
    start = BandedToeplitz.square_root(steps, bands)
    assert start.mean_squared_error() * start.sensitivity() ** 2 == pytest.approx(root, rel=6e-5)


@pytest.mark.parametrize(("min_sep", "most"), [(4, 1), (4, None), (9, 3)])
def test_optimized_is_a_minimum(min_sep: int, most: int | None) -> None:
    best = BandedToeplitz.optimized(40, 4, min_sep, most)

    def loss(strategy: BandedToeplitz) -> float:
        return strategy.mean_squared_error() * strategy.sensitivity(min_sep, most) ** 2

    rng = np.random.default_rng(0)
    for scale in (1e-1, 1e-2, 1e-3):
        for _ in range(20):
            moved = np.abs(np.array(best.coefficients) * (1.0 + scale * rng.standard_normal(4)))
            assert loss(BandedToeplitz(tuple(moved), 40)) >= loss(best) * (1.0 - 1e-12)


def test_equal_content_is_equal() -> None:
    one, two = random_banded(6, 2, seed=4), random_banded(6, 2, seed=4)
    assert one == two
    assert hash(one) == hash(two)
    assert one != random_banded(6, 2, seed=5)
    assert one != LowerTriangular(one.matrix())
    assert BandedToeplitz((1, 0.5), 4) == BandedToeplitz(np.array([1.0, 0.5]), 4)
    assert len({Identity(3), Identity(3), Identity(4)}) == 2
    with pytest.raises(ValueError, match="read-only"):
        one.columns[0, 0] = 7.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Identity(0), "steps = 0"),
        (lambda: BandedToeplitz((1.0, -0.1), 4), r"coefficients\[1\] = .*-0.1"),
        (lambda: BandedToeplitz((1.0, -1e-12), 4), r"coefficients\[1\] = .*-1e-12"),
        (lambda: BandedToeplitz((1.0, math.nan), 4), r"coefficients\[1\] = nan"),
        (lambda: BandedToeplitz((1.0, math.inf), 4), r"coefficients\[1\] = inf"),
        (lambda: BandedToeplitz((0.0, 1.0), 4), "diagonal"),
        (lambda: BandedToeplitz((1.0, 1.0), 1), "at most steps = 1"),
        (lambda: BandedToeplitz.optimized(4, 5), "bands = 5"),
        (lambda: BandedToeplitz.optimized(8, 4, min_sep=3), "min_sep = 3"),
        (lambda: Banded([[1.0, 0.1], [1.0, 0.1]]), r"columns\[1, 1\]: lies past row 2"),
        (lambda: Banded([[1.0, -0.1], [1.0, 0.0]]), r"columns\[0, 1\]"),
        (lambda: Banded([[1.0, 0.1], [0.0, 0.0]]), "diagonal"),
        (lambda: LowerTriangular([[1.0, 0.5], [0.0, 1.0]]), r"entries\[0, 1\] = .*lower-triangular"),
        (lambda: LowerTriangular([[1.0, 0.0]]), "square"),
        (lambda: LowerTriangular([[1.0, 0.0], [-1.0, 1.0]]), r"entries\[1, 0\]"),
        # Their squares are no doubles: norms were 0, inf, or wrong in all digits.
        (lambda: BandedToeplitz((1e-151, 0.0), 4), "diagonal is .*1e-151.* at least 2.-500"),
        (lambda: Banded([[1.0, 0.1], [1e-162, 0.0]]), "entry 1 of the diagonal"),
        (lambda: LowerTriangular([[1e-200]]), "diagonal"),
        (lambda: LowerTriangular([[1.0, 0.0], [1e200, 1.0]]), r"entries\[1, 0\] = .*at most 2.500"),
        (lambda: InverseBanded([1e160, 0.0], 4), "diagonal"),
        (lambda: InverseBanded([1e-160, 0.0], 4), "diagonal"),
        (lambda: InverseBanded([1.0, -3.0], 400), "at most 2.500"),
        (lambda: InverseBanded([1.0, 0.5], 4), "no negative entry"),
        (lambda: InverseBanded([1.0, -3.0], 2000), "overflows"),
        (lambda: InverseBanded([1.0, -2.0], 100), "ill-conditioned"),
        (lambda: InverseBanded([1.0]), "steps = 0"),
        (lambda: Identity(4).per_step_error(-1.0), "noise_multiplier"),
        (lambda: Identity(4).sensitivity(min_sep=0), "min_sep = 0"),
        (lambda: Identity(4).correlated_noise(np.ones(3)), "noise"),
        (lambda: Identity(20_000).matrix(), "16384"),
    ],
)
def test_refusals(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(hs.ParameterError, match=message):
        make()


def exact_inverse(columns: list[list[Fraction]]) -> list[list[Fraction]]:
    """Column j of the inverse of a banded lower-triangular matrix, from its diagonal down."""
    steps = len(columns)
    out = []
    for j in range(steps):
        column: list[Fraction] = []
        for i in range(j, steps):
            known = sum(
                (columns[k][i - k] * column[k - j] for k in range(j, i) if i - k < len(columns[k])),
                Fraction(0),
            )
            column.append(((1 if i == j else 0) - known) / columns[i][0])
        out.append(column)
    return out


@pytest.mark.parametrize("toeplitz", [True, False])
def test_norms_are_those_of_the_inverse_itself(toeplitz: bool) -> None:
    """C was what doubles make of the inverse: 3.58 for a norm of 49.4, and 6e-8 too little where a training plan was accepted."""
    rng, refused = np.random.default_rng(5), 0
    for _ in range(150):
        steps = int(rng.integers(3, 25))
        series = np.concatenate([[1.0], rng.uniform(0.0, 10.0 ** rng.uniform(-1.0, 1.0), steps - 1)])
        shape = [Fraction(x) for x in series.tolist()]
        rounded = [float(x) for x in exact_inverse([shape[: steps - j] for j in range(steps)])[0]]
        kept = [[Fraction(x) for x in rounded[: steps - j]] for j in range(steps)]
        columns = np.array([[float(x) for x in column] + [0.0] * j for j, column in enumerate(kept)])
        try:
            strategy = InverseBanded(rounded, steps) if toeplitz else InverseBanded(columns)
        except hs.ParameterError:
            refused += 1
            continue
        for done in (steps, steps - 1):
            truth = max(
                sum(x * x for x in column[: done - j]) for j, column in enumerate(exact_inverse(kept))
            )
            lower, upper = strategy.first_steps(done).sensitivity_bounds(done, 1)
            assert Fraction(lower) ** 2 <= truth <= Fraction(upper) ** 2
            assert upper <= lower * (1.0 + 2.0**-5)
    assert 0 < refused < 140


def test_an_inverse_that_is_known_well_is_hardly_moved() -> None:
    for bands, most in ((4, 1.2e-13), (32, 1e-12), (256, 1.5e-11)):
        assert 0.0 < InverseBanded.square_root(10**5, bands).excess < most
    assert InverseBanded([1.0, -0.5], 3).matrix() == pytest.approx(
        np.array([[1.0, 0.0, 0.0], [0.5, 1.0, 0.0], [0.25, 0.5, 1.0]]), rel=1e-13
    )


@pytest.mark.sweep
@pytest.mark.parametrize("scale", [2.0**-500, 2.0**-300, 1.0, 2.0**499])
def test_the_smallest_and_the_largest_entries(scale: float) -> None:
    """What is released does not change with the scale of C and the noise: not a bit, where that is a power of two."""
    scaled, plain = (LowerTriangular([[v, 0.0], [v, v]]) for v in (scale, 1.0))
    assert (scaled.column_norms() == scale * plain.column_norms()).all()
    assert scaled.sensitivity(1, None) == scale * plain.sensitivity(1, None)
    for scheme in (hs.CyclicPoisson(2, 2, 0.5), hs.matrix.FixedOrder(2, 1)):
        small, large = (
            hs.account(hs.BandMF(*each)) for each in ((scaled, scheme, scale), (plain, scheme, 1.0))
        )
        assert small.delta_bounds(0.5) == large.delta_bounds(0.5)
    for scheme in (hs.BMinSep(2, 2, 0.5), hs.BallsInBins(2, 2)):
        for method in ("plain", "tilted"):
            found = [
                hs.estimate_delta(hs.BandMF(*each), 0.5, 20_000, seed=1, method=method)
                for each in ((scaled, scheme, scale), (plain, scheme, 1.0))
            ]
            assert (found[0].lower, found[0].upper) == (found[1].lower, found[1].upper)
    # A column that is small beside the noise: p erf(mu / sqrt(8)), mu its norm over the noise's.
    tiny = hs.account(hs.BandMF(LowerTriangular([[scale]]), hs.CyclicPoisson(1, 1, 0.5), scale * 2.0**20))
    with mpmath.workdps(40):
        truth = mpmath.erf(mpmath.mpf(2) ** -20 / mpmath.sqrt(8)) / 2
        assert truth <= tiny.delta(0.0) <= truth * (1 + mpmath.mpf(10) ** -7)


def test_wrong_types_are_refused() -> None:
    for values in ("1", None, [[1.0]], [], [True]):
        with pytest.raises(hs.ParameterTypeError):
            BandedToeplitz(values, 4)  # type: ignore[arg-type]
    with pytest.raises(hs.ParameterTypeError):
        Identity(2.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "rebuild"),
    [
        (hs.matrix.Scheme, "Scheme.from_dict({'type': '?'})"),
        (Strategy, "Strategy.from_parts({'type': '?', 'steps': 1}, {})"),
    ],
)
def test_a_fresh_process_knows_all_kinds(kind: type, rebuild: str) -> None:
    """What a file names is rebuilt whatever else has been imported: a wrong name is answered with all there are."""
    program = f"from hockeystick.matrix import Scheme, Strategy; {rebuild}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    public = [getattr(hs.matrix, name) for name in dir(hs.matrix)]
    shown = {each.__name__ for each in public if isinstance(each, type) and issubclass(each, kind)}
    known = done.stderr.rpartition("must be one of ")[2].strip().split(", ")
    assert set(known) == shown - {kind.__name__}, done.stderr
