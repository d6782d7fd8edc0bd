"""Whole curves and slopes of delta(epsilon), against single questions and closed forms."""

from __future__ import annotations

import bisect
import math

import hockeystick as hs
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.baselines import exact

SAMPLED = hs.PoissonSampled(hs.Gaussian(1.0), 0.01) * 1000
PROCESSES = [
    SAMPLED,
    hs.Gaussian(2.0) * 4,
    hs.Laplace(2.0) * 20,
    hs.RandomizedResponse(0.7) * 40,
    hs.DiscreteGaussian(3.0) * 30,
    hs.PoissonSampled(hs.Laplace(1.0), 0.01) * 500,
    SAMPLED + hs.Gaussian(20.0) * 50 + hs.ApproximateDP(0.1, 1e-9),
    hs.PoissonSampled(hs.Gaussian(0.5), 1e-3),
    hs.Gaussian(1.0) * 0,
    hs.Gaussian(0.0),
]


@pytest.mark.parametrize("adjacency", ["remove", "add_or_remove", "replace_one"])
@pytest.mark.parametrize("process", PROCESSES, ids=str)
def test_a_curve_is_as_good_as_single_questions(process: hs.mechanisms.Process, adjacency: str) -> None:
    epsilon = np.concatenate([[-math.inf, math.inf, 1e3, -1.5], np.linspace(0.0, 5.0, 21), [0.25, 0.25]])
    lower, upper = hs.account(process, adjacency).delta_curve(epsilon)
    profile = hs.account(process, adjacency)
    for value, low, high in zip(epsilon, lower, upper, strict=True):
        single = profile.delta_bounds(float(value))
        assert 0.0 <= low <= high <= 1.0
        assert low <= single.upper
        assert single.lower <= high
        assert high - low <= max(1e-3 * high, single.upper - single.lower)
    assert lower[-1] == lower[-2]


FAR = [
    hs.Gaussian(2.0),
    hs.Gaussian(2.0) * 10,
    hs.UserLevel(hs.PoissonSampled(hs.Gaussian(1.5), 0.25), 2),
    hs.MixtureOfGaussians(1.0, (0.0, 1.0, 2.0), (0.9, 0.08, 0.02)),
    hs.TruncatedPoissonSampled(1.0, 100, 0.01, 3),
    hs.PoissonSampled(hs.Laplace(2.0), 0.1) * 3,
    hs.RandomAllocation(1.0, 10),
]
ENGINES = [(process, "auto") for process in FAR] + [(process, "fft") for process in FAR[:-1]]


@pytest.mark.parametrize("adjacency", ["remove", "add", "add_or_remove", "zero_out"])
@pytest.mark.parametrize(("process", "engine"), ENGINES, ids=str)
def test_points_far_out_say_nothing_of_others(
    process: hs.mechanisms.Process, adjacency: str, engine: str
) -> None:
    """They were no numbers, and so was every other one of the curve."""
    near = np.array([-2.0, 0.0, 0.5, 3.0])
    far = [1e20, 1e36, 1e38, 1e77, 1e154, 1e155, 1e200, 2.4e307, 1e308]
    profile = hs.account(process, adjacency, engine=engine)
    alone = np.array(profile.delta_curve(near))
    together = np.array(profile.delta_curve(np.concatenate([near, far, [-value for value in far]])))
    assert (together[:, :4] == alone).all()
    assert (together[0, 4:13] == 0.0).all()
    assert (together[1, 4:13] <= alone[1, 3]).all()
    assert (together[:, 13:] >= 1.0 - 1e-12).all()
    assert (together[:, 13:] <= 1.0).all()


ASYMMETRIC = [
    hs.PoissonSampled(hs.Gaussian(0.5), 1e-4) * 10,
    hs.PoissonSampled(hs.Laplace(1.0), 0.2) * 3,
    hs.RandomAllocation(3.0, 2),
    hs.FinitePair([0.5, 0.25, 0.25, 0.0], [0.1, 0.2, 0.3, 0.4]) * 2,
    SAMPLED + hs.ApproximateDP(0.1, 1e-3),
]


@pytest.mark.sweep
@pytest.mark.parametrize("adjacency", ["remove", "add", "add_or_remove"])
@pytest.mark.parametrize("process", ASYMMETRIC, ids=str)
def test_negative_epsilons_are_seen_from_the_other_side(
    process: hs.mechanisms.Process, adjacency: str
) -> None:
    """A curve mirrors the other direction's; single questions ask their own pair."""
    epsilon = -np.array([1e-9, 1e-4, 0.01, 0.3, 1.0, 4.0, 30.0])
    profile = hs.account(process, adjacency)
    for curve in (profile.delta_curve, profile.rough_curve):
        for value, low, high in zip(epsilon, *curve(epsilon), strict=True):
            single = profile.delta_bounds(float(value))
            assert low <= single.upper * (1 + 1e-15)
            assert single.lower <= high * (1 + 1e-15)
            assert high >= -math.expm1(value) * (1 - 1e-15)


def test_neighbours_share_the_layers_of_joined_pairs() -> None:
    process = hs.WithReplacement(hs.Gaussian(2.0), batch_size=50, dataset_size=1000) * 100
    epsilon = np.linspace(0.0, 25.0, 60)
    lower, upper = hs.account(process, "replace_one").delta_curve(epsilon)
    assert (upper[1:] <= lower[1:] * (1 + 1e-3)).all()
    alone = hs.account(process, "replace_one")
    for i in range(1, 60, 13):
        single = alone.delta_bounds(float(epsilon[i]))
        assert max(lower[i], single.lower) <= min(upper[i], single.upper)


def test_beside_the_largest_loss_nothing_is_looked_for() -> None:
    """No engine has an answer there but that a double does not hold delta, whose level of Gaussian privacy once took minutes."""
    process = hs.PoissonSampled(hs.Laplace(1.0), 0.01) * 1000
    profile = hs.account(process, "remove")
    end = profile.epsilon(0.0)
    last = np.linspace(0.999 * end, end * (1 - 1e-9), 200)
    lower, upper = profile.delta_curve(last)
    assert (upper == 5e-324).all()
    assert (lower == 0.0).all()
    assert profile.delta_bounds(float(last[0])) == (0.0, 5e-324)
    mu = profile.gdp_mu()
    points = np.linspace(0.0, 3.0, 30)
    least = hs.account(process).delta_curve(points)[0]
    assert (least <= hs.account(hs.Gaussian(1 / mu)).delta_curve(points)[1]).all()


def test_a_truncated_batch_has_a_curve() -> None:
    step = hs.TruncatedPoissonSampled(1.0, dataset_size=1000, sampling_probability=0.05, max_batch_size=60)
    profile = hs.account(step * 10, "zero_out")
    lower, upper = profile.delta_curve([1.0, 0.0])
    alone = profile.delta_bounds(1.0)
    assert alone.lower <= upper[0] <= alone.lower * (1 + 1e-6)
    assert alone.upper * (1 - 1e-6) <= lower[0] <= alone.upper
    assert upper[1] > upper[0]


FEW_TRUNCATED = [
    (hs.TruncatedPoissonSampled(5.317, 6388, 0.003131, 30) * 4, "zero_out", 0.01),
    (hs.TruncatedPoissonSampled(0.7769, 17720, 0.0001129, 4) * 2, "add_or_remove", 0.001),
    (hs.TruncatedPoissonSampled(0.7769, 17720, 0.0001129, 4) * 2, "replace_one", 0.001),
]


@pytest.mark.parametrize(("process", "adjacency", "last"), FEW_TRUNCATED, ids=str)
def test_few_truncated_steps_have_a_curve(
    process: hs.mechanisms.Process, adjacency: str, last: float
) -> None:
    """Twenty points of their trade-off took minutes: each asked for layers in vain, and both directions for a lattice of its own."""
    points = np.linspace(0.0, last, 7)
    lower, upper = hs.account(process, adjacency).delta_curve(points)
    assert (lower <= upper).all()
    profile = hs.account(process, adjacency)
    for i in range(0, 7, 3):
        alone = profile.delta_bounds(float(points[i]))
        assert lower[i] <= alone.upper
        assert alone.lower <= upper[i]
        assert upper[i] - lower[i] <= max(1e-3 * upper[i], 2.5 * (alone.upper - alone.lower))


@pytest.mark.sweep
@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("q", "count"), [(0.01, 200), (0.05, 60)])
def test_neighbours_share_lattices(direction: str, q: float, count: int) -> None:
    """Each point of the curve, most of which are read off a lattice that another one was laid for, against quadrature and alone."""
    step = exact.Step(1.0, q, count, direction)
    process = hs.PoissonSampled(hs.Gaussian(1.0), q) * count
    points = np.linspace(0.0, hs.account(process, direction).epsilon(1e-9), 40)
    lower, upper = hs.account(process, direction, engine="fft").delta_curve(points)
    truth = np.array([exact.sampled_gaussian_delta([step], float(point), 12.0) for point in points])
    assert (lower <= truth * (1 + 1e-9)).all()
    assert (truth * (1 - 1e-9) <= upper).all()
    profile = hs.account(process, direction, engine="fft")
    for i in range(1, 40, 6):
        alone = profile.delta_bounds(float(points[i]))
        assert upper[i] - lower[i] <= max(1e-3 * upper[i], 2.5 * (alone.upper - alone.lower))


@pytest.mark.parametrize(("epsilon", "count"), [(0.3, 30), (1.0, 7)])
def test_a_curve_against_the_binomial(epsilon: float, count: int) -> None:
    points = np.linspace(0.0, epsilon * count * 0.99, 50)
    lower, upper = hs.account(hs.RandomizedResponse(epsilon) * count).delta_curve(points)
    truth = [exact.pure_dp_delta(epsilon, count, float(point)) for point in points]
    assert (lower <= np.array(truth) * (1 + 1e-12)).all()
    assert (np.array(truth) * (1 - 1e-12) <= upper).all()


def test_the_shape_of_what_was_asked() -> None:
    profile = hs.account(SAMPLED)
    lower, upper = profile.delta_curve([[0.5, 1.0, 1.5], [1.5, 1.0, 0.5]])
    assert lower.shape == upper.shape == (2, 3)
    assert (lower == lower[::-1, ::-1]).all()
    lower, upper = profile.delta_curve(2)
    assert lower.shape == ()
    lower, upper = profile.delta_curve([])
    assert lower.shape == upper.shape == (0,)


@pytest.mark.parametrize("engine", ["auto", "fft"])
def test_order_does_not_matter(engine: str) -> None:
    points = np.linspace(0.0, 4.0, 12)
    ahead = hs.account(SAMPLED, engine=engine).delta_curve(points)
    back = hs.account(SAMPLED, engine=engine).delta_curve(points[::-1])
    assert (np.array(ahead) == np.array(back)[:, ::-1]).all()


@pytest.mark.parametrize("wrong", [math.nan, [0.0, math.nan]])
def test_nan_is_refused(wrong: object) -> None:
    with pytest.raises(hs.ParameterError, match="epsilon"):
        hs.account(SAMPLED).delta_curve(wrong)


def test_text_is_refused() -> None:
    with pytest.raises(hs.ParameterTypeError, match="epsilon"):
        hs.account(SAMPLED).delta_curve(["1"])
    with pytest.raises(hs.ParameterError, match="epsilon"):
        hs.account(SAMPLED).slope_bounds(math.inf)


@settings(max_examples=60, deadline=None)
@given(
    sigma=st.floats(0.3, 50.0),
    count=st.integers(1, 10_000),
    epsilon=st.floats(-3.0, 30.0),
    engine=st.sampled_from(["auto", "fft"]),
)
def test_slope_of_gaussians(sigma: float, count: int, epsilon: float, engine: str) -> None:
    mu = math.sqrt(count) / sigma
    bounds = hs.account(hs.Gaussian(sigma) * count, engine=engine).slope_bounds(epsilon)
    with mpmath.workdps(30):
        m = mpmath.sqrt(count) / mpmath.mpf(sigma)
        truth = float(-mpmath.exp(epsilon) * mpmath.ncdf(-epsilon / m - m / 2))
    assert bounds.lower <= truth * (1 - 1e-14)
    assert truth * (1 + 1e-14) <= bounds.upper
    if engine == "auto" and mu < 4.0 and truth < -1e-200:
        # A chord of relative width w is off by about w (1 + epsilon / mu^2).
        assert bounds.upper - bounds.lower <= 1e-5 * (1.0 + abs(epsilon) / mu**2 + 1.0 / mu) * -truth


@pytest.mark.sweep
@pytest.mark.parametrize("epsilon", [0.05, 1.0])
@pytest.mark.parametrize("direction", ["remove", "add"])
def test_slope_of_a_sampled_composition(direction: str, epsilon: float) -> None:
    """The difference quotient of 30 digits, against the certified slope."""
    step = exact.Step(1.0, 0.01, 1000, direction)
    h = 2.0**-18
    with mpmath.workdps(30):
        high, low = (exact.sampled_gaussian_delta_mp(step, epsilon + side * h) for side in (1, -1))
        truth = float((high - low) / (2 * h))
    bounds = hs.account(SAMPLED, direction).slope_bounds(epsilon)
    assert bounds.lower <= truth * (1 - 1e-9)
    assert truth * (1 + 1e-9) <= bounds.upper
    assert bounds.upper - bounds.lower <= -1e-3 * truth


@pytest.mark.parametrize("engine", ["auto", "fft"])
def test_slope_at_a_kink_encloses_both_sides(engine: str) -> None:
    epsilon, count = 0.5, 6
    profile = hs.account(hs.RandomizedResponse(epsilon) * count, engine=engine)
    keep = 1.0 / (1.0 + math.exp(-epsilon))
    # Q(L >= j epsilon) for the losses j epsilon, j = -6, -4, ..., 6.
    beyond = {
        j: sum(
            math.comb(count, i) * keep ** (count - i) * (1 - keep) ** i
            for i in range(count + 1)
            if 2 * i - count >= j
        )
        for j in range(-count, count + 3, 2)
    }
    for j in (-2, 0, 2, 4):
        bounds = profile.slope_bounds(j * epsilon)
        assert bounds.lower <= -math.exp(j * epsilon) * beyond[j] * (1 - 1e-12)
        assert -math.exp(j * epsilon) * beyond[j + 2] * (1 + 1e-12) <= bounds.upper


def test_slope_where_nothing_or_everything_is_released() -> None:
    assert hs.account(hs.Gaussian(1.0) * 0).slope_bounds(0.5) == (0.0, 0.0)
    lower, upper = hs.account(hs.Gaussian(0.0)).slope_bounds(0.5)
    assert lower <= 0.0 == upper
    lower, upper = hs.account(hs.Gaussian(1.0) * 0).slope_bounds(-1.0)
    assert lower <= -math.exp(-1.0) <= upper
    assert upper - lower <= 1e-5


def test_points_of_next_to_no_delta_are_bounded_and_quickly() -> None:
    """They are not asked about one by one: this curve took a minute. Against all outcomes of two steps beside all of two others, exactly."""
    sigma, q = 2.66, 0.00316
    profile = hs.account(hs.PoissonSampled(hs.DiscreteGaussian(sigma), q) * 4, "remove")
    points = [0.1, 0.2, 0.3, 0.5, 0.8, 1.2]
    lower, upper = profile.delta_curve(points)
    mpf = mpmath.mpf
    with mpmath.workdps(60):
        mass = {k: mpmath.exp(-mpf(k * k) / (2 * mpf(sigma) ** 2)) for k in range(-71, 71)}
        total = mpmath.fsum(mass.values())
        single = [
            ((1 - mpf(q)) * mass[k] / total + mpf(q) * mass[k - 1] / total, mass[k] / total)
            for k in range(-70, 71)
        ]
        two = [(x * v, y * w) for x, y in single for v, w in single]
        ordered = sorted((mpmath.log(x / y), x, y) for x, y in two)
        loss = [each[0] for each in ordered]
        one, other = [mpf(0)], [mpf(0)]  # tails, from the largest loss on
        for _, x, y in reversed(ordered):
            one.append(one[-1] + x)
            other.append(other[-1] + y)
        for low, high, epsilon in zip(lower.tolist(), upper.tolist(), points, strict=True):
            factor, truth = mpmath.exp(mpf(epsilon)), mpf(0)
            for known, x, y in ordered:
                beyond = len(loss) - bisect.bisect_right(loss, epsilon - known)
                truth += x * one[beyond] - factor * y * other[beyond]
            assert low <= truth + mpf(10) ** -140
            assert truth <= high + mpf(10) ** -140
            assert high <= 1e-40 or high - low <= 0.05 * high
