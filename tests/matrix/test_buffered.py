"""Buffered Toeplitz strategies, banded inverse square roots, and batches in a fixed order, against dense algebra and enumeration."""

import json
import math
from typing import Any

import hockeystick as hs
import numpy as np
import pytest
from hockeystick.matrix import (
    Banded,
    BandedToeplitz,
    BufferedToeplitz,
    FixedOrder,
    InverseBanded,
    LowerTriangular,
    Strategy,
    Workload,
)
from hockeystick.matrix.noise import CorrelatedNoise
from scipy.stats import norm

THREE = ((0.07, 0.997), (0.14, 0.96), (0.28, 0.66))


def dense(buffers: tuple[tuple[float, float], ...], steps: int) -> np.ndarray:
    """Entry by entry from the definition."""
    lags = np.subtract.outer(np.arange(steps), np.arange(steps))
    below = sum(weight * decay ** np.maximum(lags - 1.0, 0.0) for weight, decay in buffers)
    return np.where(lags > 0, below, np.eye(steps))


@pytest.mark.sweep
@pytest.mark.parametrize("steps", [1, 2, 255, 256, 257, 400])
@pytest.mark.parametrize("buffers", [THREE, ((1.0, 0.5),), ((0.0, 0.0), (0.5, 0.0))])
def test_matrix_noise_and_errors_are_those_of_the_definition(buffers, steps: int) -> None:
    strategy, c = BufferedToeplitz(buffers, steps), dense(buffers, steps)
    np.testing.assert_allclose(strategy.matrix(), c, rtol=1e-12, atol=1e-300)
    z = np.random.default_rng(1).standard_normal((steps, 2))
    assert c @ strategy.correlated_noise(z) == pytest.approx(z, abs=1e-12)
    for workload in (Workload(), Workload(momentum=0.9, weight_decay=0.1)):
        rows = workload.matrix(steps) @ np.linalg.inv(c)
        assert strategy.per_step_error(2.0, workload) == pytest.approx(4.0 * (rows**2).sum(axis=1), rel=1e-10)
    assert strategy.first_steps(1) == BufferedToeplitz(buffers, 1)


@pytest.mark.parametrize(("state", "unit"), [("float64", 2.0**-52), ("float32", 2.0**-24 + 2.0**-52)])
def test_streamed_rows_solve_their_equations_up_to_the_stated_error(state: str, unit: float) -> None:
    """|C w - z|_i <= unit * (sum of weight / (1 - decay) max |buffer|, and the magnitudes of the row's own terms)."""
    steps, width = 500, 40
    strategy = BufferedToeplitz(THREE, steps)
    options = {"clipping_norm": 1.0, "seed": 5, "dtype": "float64"}
    rows = CorrelatedNoise(strategy, width, 1.0, state_dtype=state, **options).rows(steps)
    z = CorrelatedNoise(hs.Identity(steps), width, 1.0, **options).rows(steps)
    kept = np.zeros((3, width))
    largest = np.zeros((3, width))
    for row in rows:
        kept = np.array(THREE)[:, 1:] * kept + row
        largest = np.maximum(largest, np.abs(kept))
    weights, decays = np.array(THREE).T
    allowed = unit * (
        (weights / (1.0 - decays)) @ largest + 8.0 * np.abs(z).max(axis=0) + 8.0 * weights @ largest
    )
    residual = np.abs(dense(THREE, steps) @ rows - z).max(axis=0)
    assert (residual <= allowed).all()
    assert residual.max() > (1e-9 if state == "float32" else 0.0)


def test_streamed_rows_have_the_covariance_that_is_accounted() -> None:
    steps, width = 6, 100_000
    strategy = BufferedToeplitz(THREE, steps)
    rows = CorrelatedNoise(strategy, width, 1.5, clipping_norm=2.0, seed=3, dtype="float64").rows(steps)
    inverse = 3.0 * np.linalg.inv(dense(THREE, steps))
    covariance = inverse @ inverse.T
    spread = np.sqrt((np.outer(covariance.diagonal(), covariance.diagonal()) + covariance**2) / width)
    assert (np.abs(rows @ rows.T / width - covariance) <= 6.0 * spread).all()


def test_memory_is_that_of_the_buffers() -> None:
    noise = CorrelatedNoise(BufferedToeplitz(THREE, 2**20), 512, 1.0, clipping_norm=1.0, seed=1)
    assert noise.state()["history"].shape == (3, 512)
    noise.rows(2)
    assert noise.state()["history"].shape == (3, 512)
    assert (
        noise.state_bytes
        == CorrelatedNoise(BandedToeplitz.square_root(50, 4), 512, 1.0, clipping_norm=1.0, seed=1).state_bytes
    )


def test_sensitivity_of_long_runs_is_exact_and_loops_over_no_participations() -> None:
    steps = 2**16
    strategy = BufferedToeplitz(((0.5, 0.999),), steps)
    for min_sep, most in [(1, None), (1, steps // 2), (7, 1000), (512, None), (steps, 1)]:
        bounds = strategy.sensitivity_bounds(min_sep, most)
        count = -(-steps // min_sep) if most is None else most
        image = np.zeros(steps)
        c = np.concatenate([[1.0], 0.5 * 0.999 ** np.arange(steps - 1)])
        if min_sep == 1:
            sums = np.cumsum(c)
            image = sums - np.concatenate([np.zeros(count), sums[: steps - count]])
        else:
            for first in range(0, count * min_sep, min_sep):
                image[first:] += c[: steps - first]
        assert bounds.lower <= np.linalg.norm(image) * (1.0 + 1e-9)
        assert bounds.upper >= np.linalg.norm(image) * (1.0 - 1e-9)
        assert bounds.upper <= bounds.lower * (1.0 + 1e-7)


def test_coefficients_that_rise_by_round_off_count_as_level() -> None:
    lifted = np.ones(40) + 1e-15 * np.arange(40)
    bounds = BandedToeplitz(tuple(lifted), 40).sensitivity_bounds(3, None)
    assert bounds.upper <= bounds.lower * (1.0 + 1e-12)
    truth = max(
        np.linalg.norm(BandedToeplitz(tuple(lifted), 40).matrix()[:, first::3].sum(axis=1))
        for first in range(3)
    )
    assert bounds.lower <= truth <= bounds.upper


@pytest.mark.parametrize(("min_sep", "most"), [(None, 1), (64, None), (40, 3)])
def test_few_buffers_come_close_to_the_best_toeplitz_matrix(min_sep: int | None, most: int | None) -> None:
    steps = 256

    def loss(strategy: Strategy) -> float:
        return strategy.mean_squared_error() * strategy.sensitivity(min_sep or steps, most) ** 2

    found = BufferedToeplitz.optimized(steps, 3, min_sep, most)
    assert (
        loss(found)
        < BandedToeplitz.square_root(steps, steps).mean_squared_error()
        * BandedToeplitz.square_root(steps, steps).sensitivity(min_sep or steps, most) ** 2
    )
    if most == 1:
        assert loss(found) < 1.01 * loss(BandedToeplitz.optimized(steps, steps))
    rng = np.random.default_rng(2)
    for _ in range(20):
        moved = np.array(found.buffers) * np.exp(rng.normal(0.0, [0.02, 0.0005], (3, 2)))
        if moved[:, 0].sum() <= 1.0 and moved[:, 1].max() < 1.0:
            assert loss(BufferedToeplitz(tuple(map(tuple, moved)), steps)) > loss(found) * (1.0 - 1e-4)


def test_buffers_are_optimised_for_a_workload() -> None:
    workload = Workload(tuple(np.linspace(1.0, 0.0, 100)), momentum=0.9)
    loss = lambda s: s.mean_squared_error(1.0, workload) * s.sensitivity(100, 1) ** 2
    assert loss(BufferedToeplitz.optimized(100, 2, workload=workload)) < 0.95 * loss(
        BufferedToeplitz.optimized(100, 2)
    )


@pytest.mark.parametrize("workload", [Workload(), Workload(momentum=0.5), Workload(0.2, 0.9, 0.1)])
def test_banded_inverse_square_roots(workload: Workload) -> None:
    full = InverseBanded.square_root(10, 10, workload).matrix()
    assert workload.rates(1)[0] * full @ full == pytest.approx(workload.matrix(10), rel=1e-10, abs=1e-12)
    cut = InverseBanded.square_root(10, 3, workload)
    inverse = np.linalg.inv(cut.matrix())
    assert np.diagonal(inverse, -2) == pytest.approx(np.diagonal(np.linalg.inv(full), -2), abs=1e-12)
    assert np.abs(np.tril(inverse, -3)).max() < 1e-12


# --- A fixed order ------------------------------------------------------------------------------------


def gaussian_delta(distance: float, epsilon: float) -> float:
    """Of two normals of deviation 1 so far apart."""
    return float(
        norm.cdf(distance / 2 - epsilon / distance)
        - math.exp(epsilon) * norm.cdf(-distance / 2 - epsilon / distance)
    )


def test_a_fixed_order_is_the_worst_of_its_groups() -> None:
    rng = np.random.default_rng(4)
    some = LowerTriangular(np.tril(rng.uniform(0.0, 1.0, (13, 13))) + 0.5 * np.eye(13))
    for strategy in (BufferedToeplitz(THREE, 13), InverseBanded.square_root(13, 3), some):
        for min_sep in (1, 3, 5, 13):
            mechanism = hs.BandMF(strategy, FixedOrder(13, min_sep), 2.5)
            groups = [
                np.linalg.norm(strategy.matrix()[:, first::min_sep].sum(axis=1)) for first in range(min_sep)
            ]
            for adjacency in ("zero_out", "add_or_remove"):
                bounds = hs.account(mechanism, adjacency).delta_bounds(1.0)
                truth = max(gaussian_delta(float(size) / 2.5, 1.0) for size in groups)
                assert bounds.upper >= truth * (1.0 - 1e-12)
                if strategy is not some:  # then group 0 is the worst, by the theorem
                    assert bounds.upper <= truth * (1.0 + 1e-8)
            losses = mechanism.sample_losses(4000, seed=1)
            distance = strategy.sensitivity(min_sep, None) / 2.5
            assert abs(losses.mean() - distance**2 / 2) < 6.0 * distance / math.sqrt(4000)


def test_what_a_fixed_order_draws_is_of_no_less_than_any_group() -> None:
    """Whether one group has all of the sensitivity decides on lower ends: short of it by 5e-4 is not that."""
    rng, exact = np.random.default_rng(8), []
    for bands, min_sep in [(1, 2), (1, 3), (3, 1), (4, 2), (5, 3), (9, 2)] * 5:
        columns = rng.uniform(0.0, 1.0, (9, bands)) + (1.0 if bands == 1 else 0.0)
        for offset in range(1, bands):
            columns[9 - offset :, offset] = 0.0
        columns[:, 0] += 0.5
        strategy, scheme = Banded(columns), FixedOrder(9, min_sep)
        groups = [np.linalg.norm(strategy.matrix()[:, g::min_sep].sum(axis=1)) for g in range(min_sep)]
        drawn, steps = scheme.seen_as(strategy)
        assert (drawn.shape, steps) == ((1, 1), 1)
        assert float(drawn[0, 0]) == strategy.sensitivity(min_sep, None) >= max(groups) * (1.0 - 1e-14)
        attained = max(groups) >= strategy.sensitivity(min_sep, None) * (1.0 - 1e-12)
        assert scheme.losses_are_exact(strategy) == attained
        exact.append(attained)
    assert 0 < sum(exact) < len(exact)
    for short in (1e-3, 1e-6, 1e-9):
        # One group has the first column, the other the last.
        sides = Banded([[1.0 + short], [1.0], [1.0], [1.0 + short]])
        assert not FixedOrder(4, 2).losses_are_exact(sides)
    assert FixedOrder(4, 2).losses_are_exact(Banded([[1.0 + short], [1.0], [1.0], [1.0]]))


@pytest.mark.parametrize("scheme", [FixedOrder, lambda steps, apart: hs.CyclicPoisson(steps, apart, 0.5)])
def test_groups_by_places_change_where_an_example_leaves(scheme: Any) -> None:
    for adjacency in ("add_or_remove", "add", "remove"):
        scheme(6, 1).check_groups(adjacency)
        for apart in (2, 3):
            with pytest.raises(hs.ParameterError, match="are by places"):
                scheme(6, apart).check_groups(adjacency)
    for adjacency in ("zero_out", "replace_one"):
        scheme(6, 2).check_groups(adjacency)
    assert [scheme(6, apart).unamplified() for apart in (1, 2, 5)] == [(1, 1), (2, 1), (5, 1)]


def test_a_fixed_order_draws_each_group_in_its_turn_and_calibrates() -> None:
    scheme = FixedOrder(7, 3)
    batches = [batch.tolist() for batch in scheme.batches(dataset_size=9, seed=1)]
    assert [len(batch) for batch in batches] == [3] * 7
    assert sorted(np.concatenate(batches[:3]).tolist()) == list(range(9))
    assert batches[:3] == batches[3:6]
    strategy = BufferedToeplitz(THREE, 7)
    found = hs.calibrate_bandmf(strategy, scheme, 1.0, 1e-5)
    assert found.plan is None
    sigma = hs.calibrate_noise_multiplier(hs.Gaussian, 1.0, 1e-5)
    assert found.noise_multiplier == pytest.approx(float(sigma) * strategy.sensitivity(3, 3), rel=1e-4)
    assert type(scheme).from_dict(json.loads(json.dumps(scheme.to_dict()))) == scheme
    with pytest.raises(hs.ParameterError, match="needs an example's group"):
        found.mechanism.privacy_loss(np.zeros((1, 7)))


def test_amplification_by_sampling_is_refused_for_full_matrices() -> None:
    strategy = BufferedToeplitz(THREE, 20)
    for scheme in (hs.Poisson(20, 0.1), hs.CyclicPoisson(20, 5, 0.1), hs.BMinSep(20, 5, 0.1)):
        with pytest.raises(hs.ParameterError, match=r"strategy\.bands = 20: .* participations would overlap"):
            hs.BandMF(strategy, scheme, 1.0)


def test_balls_in_bins_of_a_buffered_strategy_is_the_mixture_over_places() -> None:
    strategy = BufferedToeplitz(THREE, 12)
    mechanism = hs.BandMF(strategy, hs.BallsInBins(12, 4), 1.2)
    images = [dense(THREE, 12)[:, first::4].sum(axis=1) for first in range(4)]
    y = np.random.default_rng(0).standard_normal((5, 12)) + images[2]
    ratios = [np.exp((y @ image - image @ image / 2) / 1.2**2) for image in images]
    assert mechanism.privacy_loss(y) == pytest.approx(np.log(np.mean(ratios, axis=0)), abs=1e-10)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: BufferedToeplitz(((0.5, 1.0),), 4), hs.ParameterError, r"buffers\[0, 1\] = 1.0"),
        (lambda: BufferedToeplitz(((-0.5, 0.1),), 4), hs.ParameterError, r"buffers\[0, 0\] = -0.5"),
        (lambda: BufferedToeplitz(((0.6, 0.1), (0.6, 0.1)), 4), hs.ParameterError, "sum of the weights"),
        (lambda: BufferedToeplitz(((math.nan, 0.1),), 4), hs.ParameterError, "nan"),
        (lambda: BufferedToeplitz((0.5, 0.1), 4), hs.ParameterTypeError, "pairs"),
        (lambda: BufferedToeplitz((), 4), hs.ParameterTypeError, "buffers"),
        (lambda: BufferedToeplitz(THREE, 0), hs.ParameterError, "steps = 0"),
        (lambda: BufferedToeplitz.optimized(2**20, 3), hs.ParameterError, "steps = 1048576"),
        (lambda: BufferedToeplitz.optimized(20, 0), hs.ParameterError, "buffers = 0"),
        (lambda: FixedOrder(4, 0), hs.ParameterError, "min_sep = 0"),
        (
            lambda: InverseBanded.square_root(4, 2, Workload((1.0, 0.5, 0.2, 0.1))),
            hs.ParameterError,
            "one number",
        ),
    ],
)
def test_refusals(make, error, message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_it_survives_files() -> None:
    strategy = BufferedToeplitz(((1 / 3, 0.9), (1e-300, 0.1)), 9)
    plain, arrays = strategy.to_parts()
    assert Strategy.from_parts(json.loads(json.dumps(plain)), arrays) == strategy
    assert hash(strategy) == hash(BufferedToeplitz(np.array(strategy.buffers), 9))
