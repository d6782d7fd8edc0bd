"""Mean-preserving rounding and its coupling bound, against closed forms, brute force and the other engine."""

from __future__ import annotations

import itertools
import math

import hockeystick as hs
import numpy as np
import pytest
from hockeystick import _core
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.baselines import discretise, exact

ROUND = 1 + 1e-12  # slack for the oracles' own double-precision rounding


def assert_brackets(bounds: tuple[float, float], low: float, high: float | None = None) -> None:
    """`bounds` must hold for some truth in [low, high]."""
    lower, upper = bounds
    assert lower <= upper
    assert lower <= (low if high is None else high) * ROUND
    assert upper >= low / ROUND


def sampled(sigma: float, q: float, direction: str) -> _core.Pair:
    return _core.sampled_pair(_core.gaussian_pair(1 / sigma), q, direction)


@pytest.mark.parametrize("count", [1, 30, 1000])
@pytest.mark.parametrize("step", [0.3, 0.01, 1e-3])
def test_gaussian_against_the_closed_form(count: int, step: float) -> None:
    mu = exact.mp.mpf(1.2) / exact.mp.sqrt(count)
    coupling = _core.Coupling([(_core.gaussian_pair(float(mu)), count)], step, 1e-8)
    composed = float(exact.mp.sqrt(count) * exact.mp.mpf(float(mu)))
    for epsilon in (0.0, 0.5, 1.0, 2.5, 5.0):
        assert_brackets(coupling.delta_bounds(epsilon), float(exact.gaussian_delta(composed, epsilon)))
    for delta in (0.1, 1e-5):
        assert_brackets(coupling.epsilon_bounds(delta), float(exact.gaussian_epsilon(composed, delta)))


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("step", [1e-2, 1e-3, 1e-4])
def test_w1_against_the_other_engine(direction: str, step: float) -> None:
    account = hs.account(hs.PoissonSampled(hs.Gaussian(1.0), 0.01) * 1000, adjacency=direction, accuracy=1e-5)
    coupling = _core.Coupling([(sampled(1.0, 0.01, direction), 1000)], step, 1e-8)
    truth = account.epsilon_bounds(delta=1e-5)
    assert_brackets(coupling.epsilon_bounds(1e-5), truth.lower, truth.upper)
    for epsilon in (0.0, 0.5, 1.5, 2.0):
        truth = account.delta_bounds(epsilon=epsilon)
        assert_brackets(coupling.delta_bounds(epsilon), truth.lower, truth.upper)
    if step == 1e-4:  # and the bound says something: err = h sqrt(k/2 ln(1/eta)) = 0.0096
        lower, upper = coupling.epsilon_bounds(1e-5)
        assert upper - lower < 2.1 * coupling.radius


def test_radius_is_that_of_the_theorem() -> None:
    coupling = _core.Coupling([(sampled(1.0, 0.01, "remove"), 1000)], 1e-3, 1e-8)
    hoeffding = 1e-3 * math.sqrt(1000 / 2 * math.log(1e8))
    assert hoeffding <= coupling.radius <= hoeffding + 1000 * 1e-3**2 / 8
    assert coupling.radius <= discretise.coupling(1e-3, 1000, 1e-8)  # the paper's, for both sides at once


@pytest.mark.sweep
@pytest.mark.parametrize("step", [1.0, 0.3, 0.1, 0.0625, 0.2])  # 0.2: the atoms lie on the edges of bins
@pytest.mark.parametrize("count", [1, 7, 400])
def test_pure_dp_against_the_binomial(step: float, count: int) -> None:
    p = 1 / (1 + math.exp(-0.1))
    pair = _core.discrete_pair([-0.1, 0.1], [1 - p, p], [p, 1 - p])
    coupling = _core.Coupling([(pair, count)], step, 1e-9)
    for epsilon in (0.0, 0.05, 1.0, 0.07 * count):
        assert_brackets(coupling.delta_bounds(epsilon), float(exact.pure_dp_delta(0.1, count, epsilon)))
    assert_brackets(coupling.epsilon_bounds(1e-6), float(exact.pure_dp_epsilon(0.1, count, 1e-6)))


def brute(losses: list[float], p: list[float], p_infinity: float, count: int, epsilon: float) -> float:
    delta = 1 - (1 - p_infinity) ** count
    for chosen in itertools.product(range(len(losses)), repeat=count):
        loss = math.fsum(losses[i] for i in chosen)
        if loss > epsilon:
            delta += math.prod(p[i] for i in chosen) * -math.expm1(epsilon - loss)
    return delta


@given(
    gaps=st.lists(st.integers(1, 40), min_size=2, max_size=5),
    weights=st.lists(st.floats(1e-6, 1.0), min_size=5, max_size=5),
    at=st.integers(-30, 5),
    p_infinity=st.sampled_from([0.0, 1e-7, 0.2]),
    count=st.integers(1, 4),
    step=st.sampled_from([0.125, 0.0625, 0.25, 0.05, 0.7, 3.0]),
    failure=st.sampled_from([0.3, 1e-3, 1e-9]),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_atoms_against_brute_force(
    gaps: list[int],
    weights: list[float],
    at: int,
    p_infinity: float,
    count: int,
    step: float,
    failure: float,
) -> None:
    # Multiples of 1/16: on the edges of bins where step = 1/8, and far apart: heavy tails.
    losses = [(at + gap) / 16 for gap in itertools.accumulate(gaps)]
    p = np.array(weights[: len(losses)])
    p *= (1 - p_infinity) / p.sum()
    q = p * np.exp(-np.array(losses))
    if q.sum() > 1:  # not a pair
        scale = 0.999 / q.sum()
        p, q = p * scale, q * scale
        p_infinity = 1 - p.sum()
    pair = _core.discrete_pair(losses, p, q, p_infinity)
    coupling = _core.Coupling([(pair, count)], step, failure)
    for epsilon in (-1.0, 0.0, 0.1, 0.5, 2.0, 5.0):
        truth = brute(losses, list(p), p_infinity, count, epsilon)
        least = max(0.0, -math.expm1(epsilon))  # what Q has at -inf is not in `brute`, nor in P
        assert_brackets(coupling.delta_bounds(epsilon), max(truth, least) if epsilon >= 0 else truth, 1.0)
        assert coupling.delta_bounds(epsilon)[0] <= max(truth, least) * ROUND + 1e-15


def test_different_mechanisms_share_one_bound() -> None:
    process = hs.Gaussian(3.0) * 20 + hs.Laplace(5.0) * 10 + hs.RandomizedResponse(0.2) * 5
    account = hs.account(process, accuracy=1e-5)
    p = 1 / (1 + math.exp(-0.2))
    parts = [
        (_core.gaussian_pair(1 / 3), 20),
        (_core.laplace_pair(0.2), 10),
        (_core.discrete_pair([-0.2, 0.2], [1 - p, p], [p, 1 - p]), 5),
    ]
    for step in (0.4, 0.05, 0.003):
        coupling = _core.Coupling(parts, step, 1e-8)
        for epsilon in (0.0, 1.0, 4.0):
            truth = account.delta_bounds(epsilon=epsilon)
            assert_brackets(coupling.delta_bounds(epsilon), truth.lower, truth.upper)


def test_sampling_nearly_everybody() -> None:
    # Under "add" the loss ends at -ln(1-q) = 20.7, where inverting it is ill-conditioned.
    for q in (1 - 1e-9, 0.999):
        account = hs.account(hs.PoissonSampled(hs.Gaussian(0.5), q) * 3, adjacency="add", accuracy=1e-4)
        for step in (0.5, 0.01):
            coupling = _core.Coupling([(sampled(0.5, q, "add"), 3)], step, 1e-10)
            for epsilon in (0.0, 5.0, 12.0):
                truth = account.delta_bounds(epsilon=epsilon)
                assert_brackets(coupling.delta_bounds(epsilon), truth.lower, truth.upper)


def test_invalid_input() -> None:
    pair = _core.gaussian_pair(1.0)
    for parts, step, failure, message in [
        ([], 0.1, 1e-3, "at least one"),
        ([(pair, 0)], 0.1, 1e-3, "counts"),
        ([(pair, 1)], 0.0, 1e-3, "step"),
        ([(pair, 1)], math.nan, 1e-3, "step"),
        ([(pair, 1)], 1e-12, 1e-3, "too small"),
        ([(pair, 1)], 0.1, 0.0, "failure"),
        ([(pair, 1)], 0.1, 1.0, "failure"),
        ([(pair, 1)], 0.1, math.nan, "failure"),
    ]:
        with pytest.raises(ValueError, match=message):
            _core.Coupling(parts, step, failure)
    coupling = _core.Coupling([(pair, 1)], 0.1, 1e-3)
    with pytest.raises(ValueError, match="delta"):
        coupling.epsilon_bounds(1.5)
    with pytest.raises(ValueError, match="number"):
        coupling.delta_bounds(math.nan)
    assert coupling.delta_bounds(math.inf)[1] >= 0
    assert coupling.epsilon_bounds(1e-4)[1] == math.inf  # less than the coupling's own failure
    assert coupling.epsilon_bounds(0.0)[1] == math.inf
    assert coupling.epsilon_bounds(1.0) == (0.0, 0.0)
