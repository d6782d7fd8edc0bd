"""Declared Renyi divergences: against enumeration of finite mechanisms, adaptive compositions, and a peer's conversion."""

from __future__ import annotations

import itertools
import math

import hockeystick as hs
import mpmath
import numpy as np
import pytest
from hockeystick._base.types import Array
from hockeystick.mechanisms.renyi import renyi_curve

ORDERS = (1.05, 1.2, 1.5, 2.0, 3.0, 5.0, 9.0, 20.0, 60.0)
EPSILONS = (-1.0, -0.1, 0.0, 0.1, 0.4, 1.0, 2.0, 5.0)


def divergence(p: Array, q: Array, alpha: float) -> float:
    return float(np.log((p * (p / q) ** (alpha - 1.0)).sum()) / (alpha - 1.0))


def both_ways(p: Array, q: Array, alpha: float) -> float:
    return max(0.0, divergence(p, q, alpha), divergence(q, p, alpha)) * (1.0 + 1e-12) + 1e-15


def hockey_stick(p: Array, q: Array, epsilon: float) -> float:
    """The largest of all events, one by one."""
    difference = p - math.exp(epsilon) * q
    if len(p) <= 10:
        return float(max(np.dot(event, difference) for event in itertools.product([0.0, 1.0], repeat=len(p))))
    return float(np.maximum(difference, 0.0).sum())


def test_no_finite_mechanism_does_worse_than_its_divergences_allow() -> None:
    rng, closest = np.random.default_rng(1), 0.0
    for trial in range(24):
        size = (2, 3, 6)[trial % 3]
        p = rng.dirichlet(np.ones(size) * (0.3 if trial % 2 else 3.0)) + 1e-12
        q = p * np.exp(rng.normal(size=size) * (0.1 if trial % 5 else 1.5))
        p, q = p / p.sum(), q / q.sum()
        curve = hs.RenyiCurve(ORDERS, tuple(both_ways(p, q, alpha) for alpha in ORDERS))
        profile = hs.account(curve)
        for epsilon in EPSILONS:
            truth = max(hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon))
            bound = profile.delta(epsilon)
            assert truth <= bound * (1.0 + 1e-12)
            closest = max(closest, truth / bound if epsilon > 0.0 and truth > 1e-9 else 0.0)
    assert closest > 0.5


def test_declared_steps_among_others_chosen_adaptively() -> None:
    """(R1, S, R2): the law of S depends on R1, that of R2 on both; all 8 outputs, all 256 events."""
    rng, closest = np.random.default_rng(2), 0.0

    def coin(size: tuple[int, ...], reach: float) -> tuple[Array, Array]:
        """Coins of the two worlds, the log odds of which differ by at most ``reach``."""
        middle, moved = rng.normal(size=size) * 0.5, reach * rng.choice([-0.5, 0.5], size)
        first, second = (1.0 / (1.0 + np.exp(-(middle + sign * moved))) for sign in (1.0, -1.0))
        return np.stack([first, 1.0 - first], -1), np.stack([second, 1.0 - second], -1)

    for _ in range(12):
        r1, s, r2 = coin((), 1.2), coin((2,), 0.7), coin((2, 2), 0.9)
        p, q = (
            np.einsum("a,ab,abc->abc", *(part[world] for part in (r1, s, r2))).ravel() for world in (0, 1)
        )
        declared = []
        for first, second in (r1, r2):
            rows = list(zip(first.reshape(-1, 2), second.reshape(-1, 2), strict=True))
            declared.append(
                hs.RenyiCurve(ORDERS, tuple(max(both_ways(a, b, o) for a, b in rows) for o in ORDERS))
            )
        profile = hs.account(declared[0] + hs.PureDP(0.7) + declared[1])
        for epsilon in EPSILONS:
            truth, bound = hockey_stick(p, q, epsilon), profile.delta(epsilon)
            assert truth <= bound * (1.0 + 1e-9)
            closest = max(closest, truth / bound if epsilon > 0.0 and truth > 1e-9 else 0.0)
    assert closest > 0.5


@pytest.mark.parametrize("sigma", [0.5, 2.0, 20.0])
def test_zcdp_lies_between_the_gaussian_and_the_published_conversion(sigma: float) -> None:
    rdp = pytest.importorskip("dp_accounting.rdp.rdp_privacy_accountant")
    rho = 0.5 / sigma**2
    declared, exact = hs.account(hs.ZCDP(rho)), hs.account(hs.Gaussian(sigma))
    orders = 1.0 + np.logspace(-2.0, 4.0, 2000)
    for delta in (1e-3, 1e-6, 1e-12):
        peer = rdp.compute_epsilon(orders, orders * rho, delta)[0]
        assert exact.epsilon(delta) <= declared.epsilon(delta) <= peer * 1.001
    for epsilon in (0.0, 0.01, 0.1, 1.0):
        assert exact.delta(epsilon) <= declared.delta(epsilon)


def test_divergences_add_and_compose_with_everything() -> None:
    assert hs.account(hs.ZCDP(0.01) * 50).epsilon(1e-5) == pytest.approx(
        hs.account(hs.ZCDP(0.5)).epsilon(1e-5)
    )
    orders = (1.5, 2.0, 4.0, 16.0, 100.0)
    curve = hs.RenyiCurve(orders, tuple(0.1 * a for a in orders))
    mixed = hs.account(hs.ZCDP(0.1) + curve + hs.PoissonSampled(hs.Gaussian(1.0), 0.01) * 100)
    exact = hs.account(hs.Gaussian(0.2**-0.5) * 2 + hs.PoissonSampled(hs.Gaussian(1.0), 0.01) * 100)
    assert exact.epsilon(1e-6) <= mixed.epsilon(1e-6) <= 1.25 * exact.epsilon(1e-6)
    for process in (hs.ZCDP(0.1, xi=0.2), curve * 3, hs.Mixture([hs.ZCDP(0.1), curve], [0.5, 0.5]) * 2):
        for adjacency in hs.mechanisms.ADJACENCIES:
            lower, upper = hs.account(process, adjacency).epsilon_bounds(1e-6)
            assert 0.0 == lower < upper < 20.0  # a curve tells nothing from below
        assert hs.mechanisms.steps.from_dict(hs.mechanisms.steps.to_dict(process)) == process
    # A chord of the log-moment between two orders.
    assert curve.moments(np.array([3.0]))[0] == pytest.approx(0.5 * (0.2 + 3.0 * 0.4))
    assert curve.moments(np.array([101.0]))[0] == math.inf


@pytest.mark.parametrize("rho", [1e-300, 1e-12, 1e-4, 10.0, 1e3, 1e12])
def test_extremes_are_sound(rho: float) -> None:
    profile = hs.account(hs.ZCDP(rho) * 1000)
    mu = math.sqrt(2000.0 * rho)
    exact = hs.account(hs.Gaussian(1.0 / mu))
    for epsilon in (0.0, 1.0, 500.0):
        assert exact.delta_bounds(epsilon).lower <= profile.delta(epsilon) <= 1.0
    assert profile.epsilon(1e-9) >= exact.epsilon_bounds(1e-9).lower
    assert not math.isnan(profile.epsilon(0.0))


def test_what_is_refused() -> None:
    with pytest.raises(hs.ParameterError, match="orders"):
        hs.RenyiCurve((2.0, 1.5), (0.1, 0.2))
    with pytest.raises(hs.ParameterError, match="epsilons"):
        hs.RenyiCurve((2.0, 3.0), (0.1,))
    with pytest.raises(hs.ParameterError, match="rho"):
        hs.ZCDP(-1.0)
    with pytest.raises(hs.ParameterTypeError, match="unsampled mechanism"):
        hs.PoissonSampled(hs.ZCDP(1.0), 0.1)
    assert renyi_curve([(hs.ZCDP(0.5), 1)])(np.array(0.0)) <= 0.5 + 1e-6


@pytest.mark.parametrize("rho", [5e-324, 1.5e-323, 1e-320, 1e-300])
def test_divergences_as_small_as_can_be_are_something(rho: float) -> None:
    """A Gaussian mechanism has this rho, and delta(0) = erf(sqrt(rho) / 2)."""
    truth = mpmath.erf(mpmath.sqrt(mpmath.mpf(rho)) / 2)
    for step in (hs.mechanisms.ZCDP(rho), hs.mechanisms.RenyiCurve((2.0,), (2.0 * rho,))):
        assert hs.account(step).delta(0.0) >= truth


@pytest.mark.parametrize(("order", "epsilon"), [(1e60, 1e-60), (1e300, 1e-300), (1e300, 1e300), (1.5, 1e308)])
def test_no_divergence_of_finite_order_is_pure_dp(order: float, epsilon: float) -> None:
    """delta underflowed to 0, and where no moment is a double the curve had no points."""
    profile = hs.account(hs.RenyiCurve((order,), (epsilon,)))
    assert profile.epsilon(0.0) == math.inf
    assert profile.delta(math.inf) > 0.0
    assert profile.delta_bounds(1.0).upper <= 1.0
