"""Bounds against truths that do not come from this package: closed forms, Laplace inversion, brute force."""

from __future__ import annotations

import functools
import math
from decimal import Decimal
from itertools import pairwise

import hockeystick as hs
import numpy as np
import pytest
from hockeystick import _core
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.baselines import accountant, compose, discretise, exact, profile
from bench.baselines import pairs as oracle

ROUND = 1 + 1e-12  # slack for the oracles' own double-precision rounding


def sampled(sigma: float, q: float) -> hs.PoissonSampled:
    return hs.PoissonSampled(hs.Gaussian(sigma), q)


def digits(truth: str) -> tuple[float, float]:
    """The interval of all numbers that round to `truth`."""
    number = Decimal(truth)
    half = Decimal((0, (5,), number.as_tuple().exponent - 1))
    return float(number - half), float(number + half)


def assert_brackets(bounds, low, high=None) -> None:
    """`bounds` must hold for some truth in [low, high]."""
    high = low if high is None else high
    assert bounds.lower <= bounds.upper
    assert bounds.lower <= high
    assert low <= bounds.upper


def gap(bounds) -> float:
    return bounds.upper / bounds.lower - 1


@pytest.fixture(autouse=True, params=["auto", "fft"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test here runs with either engine, so that each is held against the same truths."""
    monkeypatch.setattr(hs, "account", functools.partial(hs.account, engine=request.param))
    return str(request.param)


# The workloads of BASELINES.md. More digits than there: exact.sampled_gaussian_delta_mp, by Newton.
EPSILON = {
    "W1": (sampled(1.0, 0.01) * 1000, 1e-5, "1.82823666652"),
    "W2": (sampled(0.8, 0.001) * 100_000, 1e-7, "3.2262289703"),
    "W3": (sampled(1.0, 256 / 60000) * 14_000, 1e-5, "2.81572314827"),
    "W4": (hs.Gaussian(100.0) * 420, 1e-5, "0.74513823552117"),
    "W5": (sum(sampled(0.8 + 0.05 * i, 0.01) * 500 for i in range(20)), 1e-6, "5.808317997"),
    "W11": (sampled(20.0, 0.001) * 10_000_000, 1e-5, "0.561683953"),
}
W6 = sampled(2.0, 0.01) * 1000
# exact.sampled_gaussian_delta_mp with 100 digits; with 30 it aliases at 1e-7.
W6_EPSILON = {
    1e-10: "1.04326796188",
    1e-15: "1.361270618856",
    1e-20: "1.63102188549",
    1e-30: "2.092629265",
}


@pytest.mark.parametrize("engine", ["auto"], indirect=True)  # no engine of this package is asked
def test_inversion_oracle_agrees_with_published_digits() -> None:
    # Koskela et al. 2020, Table 1: 0.0496014103163 (an FFT; good to 1e-10).
    step = exact.Step(1.5, 0.01, 10_000)
    anchor = exact.sampled_gaussian_delta_mp(step, 1.0, digits=16)
    assert float(anchor) == pytest.approx(0.0496014103163, rel=1e-10)
    assert exact.sampled_gaussian_delta([step], 1.0) == pytest.approx(float(anchor), rel=1e-11)
    tail = exact.Step(2.0, 0.01, 1000)
    assert exact.sampled_gaussian_delta([tail], 10.0) == pytest.approx(
        float(exact.sampled_gaussian_delta_mp(tail, 10.0, digits=16)), rel=1e-11
    )


@pytest.mark.parametrize("engine", ["auto"], indirect=True)  # no engine of this package is asked
def test_inversion_oracle_agrees_with_the_truths_used_here() -> None:
    w5 = [exact.Step(0.8 + 0.05 * i, 0.01, 500) for i in range(20)]
    for name, steps in {"W1": [exact.Step(1.0, 0.01, 1000)], "W5": w5}.items():
        _, delta, truth = EPSILON[name]
        found = exact.sampled_gaussian_epsilon(steps, delta, 1.0, 8.0)
        assert found == pytest.approx(float(truth), rel=1e-9)


@pytest.mark.sweep
@pytest.mark.parametrize("name", EPSILON)
@pytest.mark.parametrize("accuracy", [1e-3, 1e-5])
def test_workloads(name: str, accuracy: float) -> None:
    process, delta, truth = EPSILON[name]
    account = hs.account(process, accuracy=accuracy) if accuracy != 1e-3 else hs.account(process)
    bounds = account.epsilon_bounds(delta=delta)
    assert_brackets(bounds, *digits(truth))
    # At T = 1e7 the accuracy of 1e-5 is an aim, not a promise.
    assert gap(bounds) <= (accuracy if name != "W11" else max(accuracy, 1e-4))
    assert account.epsilon(delta=delta) == bounds.upper


def test_w4_delta() -> None:
    bounds = hs.account(EPSILON["W4"][0]).delta_bounds(epsilon=0.8)
    assert_brackets(bounds, *digits("3.3190545946028844e-6"))
    assert gap(bounds) <= 1e-3


@pytest.mark.parametrize("accuracy", [1e-3, 1e-5])
def test_w6_deep_tail(accuracy: float) -> None:
    account = hs.account(W6, accuracy=accuracy)
    for delta, truth in W6_EPSILON.items():
        bounds = account.epsilon_bounds(delta=delta)
        assert_brackets(bounds, *digits(truth))
        assert gap(bounds) <= accuracy
        if accuracy == 1e-5:
            assert bounds.upper == pytest.approx(float(truth), rel=1e-4)


def test_w6_delta_of_1e_148() -> None:
    bounds = hs.account(W6).delta_bounds(epsilon=10.0)
    assert_brackets(bounds, *digits("1.6838597071e-148"))  # exact.sampled_gaussian_delta_mp
    assert gap(bounds) <= 1e-3


@pytest.mark.parametrize("accuracy", [1e-3, 1e-5])
def test_w7_laplace(accuracy: float) -> None:
    parts = [(oracle.Laplace(1 / 20), 500)]
    low = accountant.epsilon(parts, 1e-6, 1 / 20 / 400, discretise.lower)
    high = accountant.epsilon(parts, 1e-6, 1 / 20 / 400, discretise.upper)
    assert high / low - 1 < 1e-6  # the oracle is sharp, and agrees with the peers
    assert low == pytest.approx(5.4739, rel=1e-5)
    bounds = hs.account(hs.Laplace(20.0) * 500, accuracy=accuracy).epsilon_bounds(delta=1e-6)
    assert_brackets(bounds, low, high)
    # The atom at the largest loss lies off the lattice, which costs the lower bound.
    assert gap(bounds) <= 1e-3


@pytest.mark.parametrize("accuracy", [1e-3, 1e-5])
def test_w8_delta(accuracy: float) -> None:
    profile_ = hs.account(sampled(1.5, 0.01) * 10_000, adjacency="remove", accuracy=accuracy)
    bounds = profile_.delta_bounds(epsilon=1.0)
    assert_brackets(bounds, *digits("0.049601410314826"))  # exact.sampled_gaussian_delta_mp
    assert gap(bounds) <= accuracy


@pytest.mark.sweep
@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1.5])
@pytest.mark.parametrize("steps", [[(1.0, 0.02, 300)], [(0.7, 0.01, 200), (3.0, 0.2, 400)]])
def test_sampled_gaussian_against_inversion(direction: str, epsilon: float, steps: list) -> None:
    truth = exact.sampled_gaussian_delta([exact.Step(*step, direction) for step in steps], epsilon)
    process = sum(sampled(sigma, q) * count for sigma, q, count in steps)
    bounds = hs.account(process, adjacency=direction, accuracy=1e-4).delta_bounds(epsilon=epsilon)
    assert_brackets(bounds, truth / (1 + 1e-10), truth * (1 + 1e-10))
    assert gap(bounds) <= 1e-4


# The peers fail these: FFT round-off is absolute unless the losses are tilted.
GAUSSIAN = [(100.0, 1e-8), (100.0, 1e-10), (100.0, 1e-12), (300.0, 1e-11), (300.0, 1e-30)]


@pytest.mark.parametrize(("sigma", "delta"), GAUSSIAN)
@pytest.mark.parametrize("count", [100_000])
def test_gaussian_composition_never_below_the_closed_form(sigma: float, delta: float, count: int) -> None:
    # count = 1e5 and sigma are such that mu is the correctly rounded square root in mp below.
    with exact.mp.workdps(exact.DIGITS):
        mu = exact.mp.sqrt(count) / sigma
        truth = exact.gaussian_epsilon(mu, delta)
        at_eight = exact.gaussian_delta(mu, 8.0)
    merged = hs.account(hs.Gaussian(sigma) * count)
    assert_brackets(merged.epsilon_bounds(delta=delta), truth)
    assert_brackets(merged.delta_bounds(epsilon=8.0), at_eight)
    assert gap(merged.epsilon_bounds(delta=delta)) <= 1e-10

    # Not merged: the same through the grid. The step's mu is a rounded 1/sigma, hence the oracle's.
    with exact.mp.workdps(exact.DIGITS):
        mu = exact.mp.sqrt(count) * exact.mp.mpf(1 / sigma)
        truth, at_eight = exact.gaussian_epsilon(mu, delta), exact.gaussian_delta(mu, 8.0)
    forced = _core.Profile([[(_core.gaussian_pair(1 / sigma), count)]])
    assert_brackets(forced.epsilon_bounds(delta), truth)
    assert gap(forced.epsilon_bounds(delta)) <= 1e-3
    assert_brackets(forced.delta_bounds(8.0), at_eight)
    assert gap(forced.delta_bounds(8.0)) <= 1e-3


@pytest.mark.sweep
@pytest.mark.parametrize(("epsilon", "count", "delta"), [(5.0, 50, 1e-6), (0.1, 400, 1e-8), (1.0, 3, 1e-3)])
@pytest.mark.parametrize("mechanism", [hs.PureDP, hs.RandomizedResponse])
def test_pure_dp_against_the_binomial(mechanism: type, epsilon: float, count: int, delta: float) -> None:
    truth = exact.pure_dp_epsilon(epsilon, count, delta)
    account = hs.account(mechanism(epsilon) * count)
    bounds = account.epsilon_bounds(delta=delta)
    assert_brackets(bounds, truth)
    assert gap(bounds) <= 1e-3
    for target in (0.0, 0.3 * count * epsilon, 0.9 * count * epsilon):
        assert_brackets(account.delta_bounds(epsilon=target), exact.pure_dp_delta(epsilon, count, target))


def powers(pair: oracle.Discrete, unit: float, count: int) -> compose.Composed:
    """`count`-fold composition of a pair whose losses are multiples of `unit`: exact but for rounding."""
    index = np.rint(pair.losses / unit).astype(int)
    assert pair.losses == pytest.approx(index * unit, rel=1e-9)
    masses = np.zeros(index[-1] - index[0] + 1)
    masses[index - index[0]] = pair.masses
    lattice = discretise.Lattice(unit, int(index[0]), masses, pair.infinity_mass)
    return compose.convolve([lattice] * count)


@pytest.mark.parametrize(
    ("mechanism", "pair", "unit"),
    [
        (hs.DiscreteGaussian(2.0), oracle.discrete_gaussian(2.0), 1 / 8),
        (hs.DiscreteGaussian(5.0, sensitivity=3), oracle.discrete_gaussian(5.0, 3), 3 / 50),
        (hs.DiscreteLaplace(4.0), oracle.discrete_laplace(4.0), 1 / 4),
        (hs.DiscreteLaplace(7.0, sensitivity=3), oracle.discrete_laplace(7.0, 3), 1 / 7),
        (hs.RandomizedResponse(0.7, num_categories=5), oracle.randomized_response(0.7, 5), 0.7),
        (hs.ApproximateDP(0.3, 1e-4), oracle.approximate_dp(0.3, 1e-4), 0.3),
    ],
    ids=str,
)
@pytest.mark.parametrize("count", [1, 20])
def test_discrete_mechanisms(
    mechanism: hs.mechanisms.Process, pair: oracle.Discrete, unit: float, count: int
) -> None:
    truth = powers(pair, unit, count)
    account = hs.account(mechanism * count)
    for epsilon in (0.0, 0.37, 1.9, 3.0):
        value = profile.delta(truth, epsilon)
        bounds = account.delta_bounds(epsilon=epsilon)
        assert_brackets(bounds, value / (1 + 1e-9), value * (1 + 1e-9) + 1e-290)
        assert bounds.lower >= value * (1 - 1e-2)
    for delta in (1e-2, 1e-4):
        value = profile.epsilon(truth, delta)
        assert_brackets(account.epsilon_bounds(delta=delta), value / (1 + 1e-9), value * (1 + 1e-9))


MIXED = (
    hs.Gaussian(3.0) * 2 + hs.Laplace(2.0) * 2 + hs.RandomizedResponse(0.5, 3) + hs.ApproximateDP(0.3, 1e-4)
)
MIXED_PAIRS = [
    oracle.Gaussian(1 / 3),
    oracle.Gaussian(1 / 3),
    oracle.Laplace(0.5),
    oracle.Laplace(0.5),
    oracle.randomized_response(0.5, 3),
    oracle.approximate_dp(0.3, 1e-4),
]


@functools.cache
def convolved() -> list[compose.Composed]:
    """The mixed composition rounded down and up, and bounded from below and above: the same for every engine."""
    step = 1 / 1500

    def brute(method) -> compose.Composed:
        return compose.convolve([method(p, step, *discretise.window(p, step, 1e-14)) for p in MIXED_PAIRS])

    floor = brute(lambda *grid: discretise.rounded(*grid, "down"))
    ceiling = brute(lambda *grid: discretise.rounded(*grid, "up"))
    return [floor, ceiling, brute(discretise.lower), brute(discretise.upper)]


def test_mixed_composition_against_direct_convolution() -> None:
    floor, ceiling, low, high = convolved()
    account = hs.account(MIXED, accuracy=1e-4)
    for epsilon in (0.0, 0.5, 1.0, 2.0, 2.8):
        bounds = account.delta_bounds(epsilon=epsilon)
        assert_brackets(bounds, profile.delta(floor, epsilon), profile.delta(ceiling, epsilon))
        assert_brackets(
            bounds, profile.delta(low, epsilon) / (1 + 1e-9), profile.delta(high, epsilon) * (1 + 1e-9)
        )
        assert gap(bounds) <= 1e-4
    assert account.delta_bounds(epsilon=50.0).lower <= 1e-4 * ROUND
    assert account.delta_bounds(epsilon=50.0).upper >= 1e-4
    assert account.epsilon_bounds(delta=0.99e-4) == (math.inf, math.inf)


def test_without_replacement_against_the_baseline() -> None:
    # Advanced joint convexity with m/n, and twice the sensitivity when a record is replaced.
    parts = [(oracle.Sampled(oracle.Gaussian(2 / 4.0), 0.05, "replace_one"), 200)]
    low = accountant.epsilon(parts, 1e-6, 2e-4, discretise.lower)
    high = accountant.epsilon(parts, 1e-6, 2e-4, discretise.upper)
    assert high / low - 1 < 1e-3
    process = hs.WithoutReplacement(hs.Gaussian(4.0), batch_size=50, dataset_size=1000) * 200
    bounds = hs.account(process, adjacency="replace_one").epsilon_bounds(delta=1e-6)
    assert_brackets(bounds, low / (1 + 1e-9), high * (1 + 1e-9))
    assert gap(bounds) <= 1e-3


@given(
    sigma=st.floats(0.5, 5.0),
    q=st.floats(0.02, 0.9),
    count=st.integers(1, 300),
    delta=st.sampled_from([1e-3, 1e-6, 1e-9]),
    direction=st.sampled_from(["remove", "add"]),
)
@settings(max_examples=20, deadline=None, derandomize=True)
def test_sampled_gaussian_overlaps_the_baseline(
    sigma: float, q: float, count: int, delta: float, direction: str
) -> None:
    pair = oracle.Sampled(oracle.Gaussian(1 / sigma), q, direction)
    # Fine enough for the bounded loss of "add"; the baseline's own rounding is 1e-16 / step per step.
    step = min(2e-3 / sigma, q / 50)
    low = accountant.epsilon([(pair, count)], delta, step, discretise.lower)
    high = accountant.epsilon([(pair, count)], delta, step, discretise.upper)
    bounds = hs.account(sampled(sigma, q) * count, adjacency=direction).epsilon_bounds(delta=delta)
    assert_brackets(bounds, low / (1 + 1e-6), high * (1 + 1e-6))


# Identities.


def test_sampling_everything_is_not_sampling() -> None:
    plain = hs.account(hs.Gaussian(1.3) * 7 + hs.Laplace(3.0))
    everything = hs.account(sampled(1.3, 1.0) * 7 + hs.PoissonSampled(hs.Laplace(3.0), 1.0))
    assert plain.epsilon_bounds(delta=1e-5) == everything.epsilon_bounds(delta=1e-5)
    truth = exact.gaussian_epsilon(exact.mp.sqrt(7) / exact.mp.mpf(1.3), 1e-5)
    for mode in ("remove", "add", "replace_one"):  # the same without the shortcut in Python
        pair = _core.sampled_pair(_core.gaussian_pair(1 / 1.3), 1.0, mode)
        bounds = _core.Profile([[(pair, 7)]]).epsilon_bounds(1e-5)
        assert_brackets(bounds, truth * (1 - 1e-14), truth * (1 + 1e-14))
        assert gap(bounds) <= 1e-3


def test_order_and_grouping_of_steps_do_not_matter() -> None:
    a, b = sampled(1.0, 0.02), hs.Laplace(4.0)
    assert a * 5 + b * 3 == b + a * 2 + b * 2 + a * 3
    one = hs.account(a * 5 + b * 3).epsilon_bounds(delta=1e-6)
    other = hs.account(b * 3 + a * 5).epsilon_bounds(delta=1e-6)
    assert one == pytest.approx(other, rel=1e-9)
    assert hs.account(a * 2 + a * 3).epsilon_bounds(delta=1e-6) == hs.account(a * 5).epsilon_bounds(
        delta=1e-6
    )
    pairs = [_core.sampled_pair(_core.gaussian_pair(1.0), 0.02, "remove") for _ in range(2)]
    split = _core.Profile([[(pairs[0], 200), (pairs[1], 300)]]).epsilon_bounds(1e-6)
    whole = _core.Profile([[(pairs[0], 500)]]).epsilon_bounds(1e-6)
    assert split.lower <= whole.upper
    assert whole.lower <= split.upper


def test_add_or_remove_is_the_worse_of_both() -> None:
    process = sampled(0.8, 0.1) * 50
    both, add, remove = (
        hs.account(process, adjacency=a).delta_bounds(0.9) for a in ("add_or_remove", "add", "remove")
    )
    assert both.upper == pytest.approx(max(add.upper, remove.upper), rel=1e-3)
    assert_brackets(both, max(add.lower, remove.lower), max(add.upper, remove.upper))


@pytest.mark.parametrize(
    "process",
    [sampled(1.0, 0.01) * 1000, hs.Laplace(5.0) * 20, hs.PureDP(0.5) * 9, MIXED, sampled(0.3, 0.001)],
    ids=str,
)
def test_epsilon_and_delta_are_inverse(process: hs.mechanisms.Process) -> None:
    account = hs.account(process)
    for delta in (0.3, 1e-3, 3e-4):
        bounds = account.epsilon_bounds(delta=delta)
        assert account.delta_bounds(epsilon=bounds.upper).lower <= delta * ROUND
        if bounds.lower > 0:
            assert account.delta_bounds(epsilon=bounds.lower).upper >= delta / ROUND


@pytest.mark.parametrize("process", [sampled(1.0, 0.05) * 100, hs.Laplace(5.0) * 20, MIXED], ids=str)
def test_bounds_are_monotone_within_their_gap(process: hs.mechanisms.Process) -> None:
    account = hs.account(process)
    deltas = [account.delta_bounds(epsilon=e) for e in np.linspace(-1.0, 3.0, 17)]
    assert all(a.upper >= b.lower for a, b in pairwise(deltas))
    epsilons = [account.epsilon_bounds(delta=d) for d in np.geomspace(2e-4, 0.9, 17)]
    assert all(a.upper >= b.lower for a, b in pairwise(epsilons))
    for e in (-1.0, -0.3):  # delta(-inf..0) >= 1 - e^eps always
        assert account.delta_bounds(epsilon=e).upper >= -math.expm1(e)


# Attempts to push a bound over the truth.


@pytest.mark.sweep
@pytest.mark.parametrize("delta", [1e-5, 1e-12, 1e-50, 1e-300])
@pytest.mark.parametrize(("sigma", "q"), [(1.0, 0.01), (0.3, 1e-6), (10.0, 0.5), (2.0, 1e-3)])
def test_a_single_step_at_any_delta(sigma: float, q: float, delta: float) -> None:
    truth = exact.sampled_once_epsilon(exact.mp.mpf(1) / exact.mp.mpf(sigma), q, delta)
    bounds = hs.account(sampled(sigma, q), adjacency="remove").epsilon_bounds(delta=delta)
    assert_brackets(bounds, truth * (1 - 1e-13), truth * (1 + 1e-13))
    assert truth == 0 or gap(bounds) <= 1e-3


def test_round_off_after_1e9_steps() -> None:
    step = exact.Step(50.0, 0.001, 10**9)
    truth = exact.sampled_gaussian_delta_mp(step, 1.5, 20)
    bounds = hs.account(sampled(50.0, 0.001) * 10**9, adjacency="remove").delta_bounds(epsilon=1.5)
    assert_brackets(bounds, truth)
    assert gap(bounds) <= 0.1


@pytest.mark.parametrize(("epsilon", "target"), [(1e-5, 0.9), (2e-5, 3.0)])
def test_pure_dp_after_1e9_steps(epsilon: float, target: float) -> None:
    truth = exact.pure_dp_delta_of_many(epsilon, 10**9, target)
    bounds = hs.account(hs.PureDP(epsilon) * 10**9).delta_bounds(epsilon=target)
    assert_brackets(bounds, truth * (1 - 1e-5), truth * (1 + 1e-5))


@pytest.mark.parametrize(
    ("epsilon", "count", "delta"), [(30.0, 20, 1e-40), (100.0, 8, 1e-9), (700.0, 3, 1e-100)]
)
def test_loss_at_the_edge_of_the_window_does_not_wrap(epsilon: float, count: int, delta: float) -> None:
    truth = exact.pure_dp_epsilon(epsilon, count, delta)
    assert_brackets(hs.account(hs.PureDP(epsilon) * count).epsilon_bounds(delta=delta), truth)


def test_mass_at_infinity_adds_up() -> None:
    account = hs.account(hs.ApproximateDP(0.1, 1e-9) * 1000 + sampled(1.0, 0.01) * 100)
    lost = -math.expm1(1000 * math.log1p(-1e-9))
    bounds = account.delta_bounds(epsilon=math.inf)
    assert_brackets(bounds, lost / ROUND, lost * ROUND)
    assert gap(bounds) <= 1e-9
    assert account.epsilon_bounds(delta=lost * (1 - 1e-6)).upper == math.inf
    assert account.epsilon(delta=lost * 1.01) < math.inf


def test_incommensurable_atoms() -> None:
    # No lattice holds both kinds of loss; the truth is a double sum.
    first, second = math.sqrt(2) / 7, 1 / math.pi
    a = powers(oracle.randomized_response(first, 3), first, 37)
    b = powers(oracle.randomized_response(second), second, 11)
    loss = np.add.outer(a.losses, b.losses)
    mass = np.multiply.outer(a.masses, b.masses)
    account = hs.account(hs.RandomizedResponse(first, 3) * 37 + hs.PureDP(second) * 11)
    for epsilon in (-2.0, 0.0, 0.5, 2.0, 5.0, 8.0):
        truth = float(np.sum(mass * np.maximum(0.0, -np.expm1(np.minimum(epsilon - loss, 0.0)))))
        bounds = account.delta_bounds(epsilon=epsilon)
        assert_brackets(bounds, truth / (1 + 1e-9), truth * (1 + 1e-9))
        assert bounds.lower >= truth * (1 - 1e-2)


@given(
    masses=st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=7),
    units=st.lists(st.integers(-40, 40), min_size=7, max_size=7, unique=True),
    scale=st.floats(1e-3, 0.5),
    count=st.integers(1, 6),
    quantile=st.floats(-0.2, 0.95),
)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_random_atoms_against_direct_convolution(
    masses: list[float], units: list[int], scale: float, count: int, quantile: float
) -> None:
    """Any discrete pair: P-masses p at losses l need sum p e^-l <= 1, which scaling p and adding +inf ensures."""
    losses = np.sort(np.array(units[: len(masses)])) * scale
    p = np.array(masses)
    p /= max(p.sum(), (p * np.exp(-losses)).sum()) * (1 + 1e-12)
    rest = max(0.0, 1 - p.sum())
    pair = _core.discrete_pair(losses, p, p * np.exp(-losses), p_infinity=rest)
    truth = powers(oracle.Discrete(losses, p, rest), scale, count)
    epsilon = quantile * max(truth.losses[-1], scale)
    value = profile.delta(truth, epsilon)
    bounds = _core.Profile([[(pair, count)]]).delta_bounds(epsilon)
    assert_brackets(bounds, value / (1 + 1e-9), value * (1 + 1e-9))
