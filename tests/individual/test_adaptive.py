"""What has been spent so far, under attack: norms that drop to zero when the loss is large, or when it suits the attacker best.

The attacks are evaluated by recursion over the steps with quadrature over the losses, which shares nothing with the library: the
largest E (1 - e^{epsilon - L})_+ over all rules that look at the outputs and choose the norms from then on, 0 or not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import hockeystick as hs
import mpmath
import numpy as np
import pytest
from hockeystick import _core
from hockeystick.individual import adaptive
from hockeystick.individual.adaptive import Moments, gaussian_moments, gaussian_spent, spent_epsilons
from hypothesis import example, given, settings
from hypothesis import strategies as st

DELTA = 1e-5
Reader = Callable[[int], float]


def normal_nodes(count: int = 121, end: float = 9.0) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and masses of a standard normal by the trapezoidal rule, whose error is far below 1e-12."""
    nodes = np.linspace(-end, end, count)
    masses = np.exp(-0.5 * nodes * nodes)
    return nodes, masses / masses.sum()


def gaussian_losses(mu: float) -> tuple[np.ndarray, np.ndarray]:
    """The loss of N(mu, 1) against N(0, 1)."""
    nodes, masses = normal_nodes()
    return mu * nodes + 0.5 * mu * mu, masses


def sampled_losses(mu: float, q: float, direction: str) -> tuple[np.ndarray, np.ndarray]:
    """The loss of a Poisson-sampled Gaussian, and its law under the distribution of the outputs."""
    nodes, masses = normal_nodes()

    def loss(t: np.ndarray) -> np.ndarray:
        return np.log1p(q * np.expm1(mu * t - 0.5 * mu * mu))

    if direction == "add":
        return -loss(nodes), masses
    return np.append(loss(nodes), loss(nodes + mu)), np.append((1.0 - q) * masses, q * masses)


def best_attack(readings: np.ndarray, losses: np.ndarray, masses: np.ndarray) -> float:
    """The largest E (1 - e^{reading - L})_+ over rules when to stop; ``readings[t]`` is that after t steps."""
    steps = len(readings) - 1
    spread = 9.0 * math.sqrt(steps * float(masses @ losses**2 - (masses @ losses) ** 2)) + 1.0
    grid = np.linspace(-spread, spread + max(0.0, steps * float(masses @ losses)), 4001)

    def pays(t: int) -> np.ndarray:
        return np.maximum(0.0, -np.expm1(np.minimum(0.0, readings[t] - grid)))

    value = pays(steps)
    # Beyond the grid the value is 1 above, nearly, and 0 below: both ends are worth less than the truth.
    for t in range(steps - 1, -1, -1):
        on = np.zeros(grid.size)
        for loss, mass in zip(losses.tolist(), masses.tolist(), strict=True):
            on += mass * np.interp(grid + loss, grid, value, left=0.0)
        # Before the first step the loss is 0, and so is what the attacker gets.
        value = np.maximum(pays(t), on) if t else on
    return float(np.interp(0.0, grid, value))


def readings_of(step: Callable[[], Any], read: Callable[[], float], steps: int) -> np.ndarray:
    out = [read()]
    for _ in range(steps):
        step()
        out.append(read())
    return np.array(out)


STEPS, MU = 60, 0.15


def test_the_quadrature_knows_the_gaussian() -> None:
    """Without a choice the value is the Gaussian profile, which is known to 40 digits."""
    epsilon = 3.0
    never = np.full(STEPS + 1, math.inf)
    never[-1] = epsilon
    found = best_attack(never, *gaussian_losses(MU))
    mu = mpmath.mpf(MU) * mpmath.sqrt(STEPS)
    exact = mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)
    # Linear interpolation of a convex function is above it, a little.
    assert float(exact) * (1 - 1e-6) <= found <= float(exact) * 1.01


def test_filters_under_attack() -> None:
    """Fixed norms' epsilon is exceeded several times delta; the filters' own readings are not."""
    gdp = hs.IndividualGDPFilter(1, mu=MU * math.sqrt(STEPS) * (1 + 1e-12))
    losses = gaussian_losses(MU)
    fixed, own = [0.0], [0.0]
    for _ in range(STEPS):
        assert gdp.step([MU])[0]
        fixed.append(gdp.nonadaptive_epsilon(DELTA)[0])
        own.append(gdp.epsilon(DELTA)[0])
    before = own[-1], fixed[-1]
    gdp.step([0.0])  # what the attacker does after it has stopped
    assert (gdp.epsilon(DELTA)[0], gdp.nonadaptive_epsilon(DELTA)[0]) == before
    assert best_attack(np.array(fixed), *losses) > 3.0 * DELTA
    assert best_attack(np.array(own), *losses) <= DELTA
    # The old reading as the example of the whole claim: it is right for norms that are fixed.
    only_last = np.append(np.full(STEPS, math.inf), fixed[-1])
    assert best_attack(only_last, *losses) <= DELTA * 1.01

    rdp = hs.individual.IndividualRDPFilter(1, epsilon=gdp.epsilon(DELTA)[0] * 1.2, delta=DELTA)
    readings = readings_of(lambda: rdp.step([MU]), lambda: float(rdp.epsilon(DELTA)[0]), STEPS)
    assert rdp.active_counts().sum() == STEPS
    assert best_attack(readings, *losses) <= DELTA


@pytest.mark.parametrize("increment", [MU, 4 * MU, 20 * MU])
def test_odometers_under_attack(increment: float) -> None:
    """The level that is read depends on the outputs, and its epsilon is exceeded; the odometer's own is not."""
    losses = gaussian_losses(MU)
    odometer = hs.individual.GDPOdometer(increment=increment)
    own = readings_of(lambda: odometer.step(MU), lambda: odometer.epsilon(DELTA), STEPS)
    assert best_attack(own, *losses) <= DELTA
    levels = hs.individual.GDPOdometer(increment=increment)
    read = readings_of(
        lambda: levels.step(MU),
        lambda: float(_core.gaussian_epsilons(np.array([levels.mu]), DELTA)[0]),
        STEPS,
    )
    if increment == MU:
        assert best_attack(read, *losses) > 3.0 * DELTA


@pytest.mark.sweep
@pytest.mark.parametrize("adjacency", ["remove", "add"])
@pytest.mark.parametrize(("q", "noise", "steps"), [(1.0, 6.0, 40), (0.3, 2.0, 40), (0.05, 0.8, 40)])
def test_individual_accountants_under_attack(adjacency: str, q: float, noise: float, steps: int) -> None:
    """The same for sampled Gaussians: by loss distributions the bound fails, by moments it holds."""
    losses = gaussian_losses(1 / noise) if q == 1.0 else sampled_losses(1 / noise, q, adjacency)
    accountant = hs.IndividualAccountant(
        1, noise_multiplier=noise, sampling_probability=q, clipping_norm=1.0, adjacency=adjacency
    )
    own, fixed = [0.0], [0.0]
    for _ in range(steps):
        accountant.step([1.0])
        own.append(accountant.epsilon(DELTA)[0])
        fixed.append(accountant.nonadaptive_epsilon(DELTA)[0])
    assert best_attack(np.array(own), *losses) <= DELTA
    assert best_attack(np.array(fixed), *losses) > 3.0 * DELTA
    assert all(a >= b for a, b in zip(own, fixed, strict=True))
    assert own[-1] <= 1.6 * fixed[-1]


# --- The supremum --------------------------------------------------------------------------------------------


@settings(max_examples=12, deadline=None)
@given(
    spent=st.floats(1e-6, 1e3),
    log_delta=st.floats(-60.0, -0.5),
    scale=st.floats(1e-4, 1e2),
    growing=st.booleans(),
)
@example(spent=0.16, log_delta=-1.0, scale=11.0, growing=False)
def test_the_supremum_is_one(spent: float, log_delta: float, scale: float, growing: bool) -> None:
    """Against 50 digits: (1 - e^{epsilon - x})_+ <= delta M(x) for all x, and hardly any epsilon below does."""
    delta = math.exp(log_delta)
    moments = gaussian_moments(scale, delta, growing)
    (epsilon,) = gaussian_spent(np.array([spent]), scale, delta, growing=growing)
    with mpmath.workdps(50):
        at = [mpmath.mpf(x) for x in moments.at]
        weights = [mpmath.mpf(w) for w in moments.weights]
        assert sum(weights) <= 1

        def supremum(spent: Any) -> Any:
            def needed(x: Any) -> Any:
                total = delta * sum(
                    w * mpmath.exp(a * x - a * (a + 1) * spent / 2) for a, w in zip(at, weights, strict=True)
                )
                return x + mpmath.log(1 - total) if total < 1 else -mpmath.inf

            low, high = mpmath.mpf(0), mpmath.mpf(epsilon) * 4 + 50
            golden = (mpmath.sqrt(5) - 1) / 2
            for _ in range(110):
                one, other = high - golden * (high - low), low + golden * (high - low)
                if needed(other) > needed(one):
                    low = one
                else:
                    high = other
            return max(mpmath.mpf(0), needed((low + high) / 2))

        exact = mpmath.mpf(spent)
        assert supremum(exact) <= epsilon
        # What has been spent was rounded up by at most 2^-11, which may be much beside a small epsilon.
        assert epsilon <= supremum(exact * (1 + mpmath.mpf(2) ** -10)) + mpmath.mpf("1e-9")


def test_one_order_is_the_known_conversion() -> None:
    rng = np.random.default_rng(4)
    for order, rho, delta in zip(
        1.0 + rng.exponential(10.0, 50),
        rng.exponential(1.0, 50),
        10.0 ** -rng.uniform(1, 30, 50),
        strict=True,
    ):
        moments = Moments(np.array([order - 1.0]), np.array([1.0]))
        (found,) = spent_epsilons(np.array([[(order - 1.0) * rho]]), moments, float(delta))
        expected = hs.accounting.rdp_epsilon(float(order), float(rho), float(delta))
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_limits_of_readings() -> None:
    spent = np.array([0.0, 5e-324, 1e-300, 1e-3, 1.0, 1e100, 1e130, 1e260, math.inf])
    for growing in (True, False):
        for delta in (1e-300, 1e-5, 0.5, 1 - 2.0**-53):
            found = gaussian_spent(spent, 1.0, delta, growing=growing)
            assert found[0] == 0.0
            assert found[-1] == math.inf
            assert not np.isnan(found).any()
            assert (np.diff(found[:-1]) >= 0.0).all()
            assert found[-2] < math.inf
    assert gaussian_spent(spent, 1.0, 0.0, growing=True).tolist() == [0.0] + [math.inf] * 8
    assert not gaussian_spent(spent, 1.0, 1.0, growing=True).any()
    assert gaussian_spent(np.zeros(0), 1.0, 0.1, growing=True).size == 0
    with pytest.raises(hs.ParameterError, match="delta"):
        hs.IndividualGDPFilter(2, mu=1.0).epsilon(-0.1)
    assert not hs.IndividualGDPFilter(2, mu=0.0).epsilon(1e-5).any()


def test_readings_are_tight_where_the_budget_is_used_up() -> None:
    for budget, delta in ((0.125, 1e-5), (1.0, 1e-5), (3.0, 1e-6), (1.0, 1e-12)):
        filt = hs.IndividualGDPFilter(1, mu=budget)
        filt.step([budget])
        assert (
            filt.nonadaptive_epsilon(delta)[0]
            < filt.epsilon(delta)[0]
            <= 1.2 * filt.nonadaptive_epsilon(delta)[0]
        )


def test_accountants_without_anything_to_tell() -> None:
    def accountant(q: float, norm: float) -> hs.IndividualAccountant:
        found = hs.IndividualAccountant(2, noise_multiplier=1.0, sampling_probability=q, clipping_norm=1.0)
        found.step([norm, 0.0], steps=3)
        return found

    for delta in (0.0, 1e-300, 1e-5, 1.0):
        assert not accountant(0.0, 1.0).epsilon(delta).any()
        assert not accountant(0.5, 0.0).epsilon(delta).any()
        assert accountant(0.5, 1.0).epsilon(delta)[1] == 0.0
        assert (
            not hs.IndividualAccountant(3, noise_multiplier=1.0, sampling_probability=0.5, clipping_norm=1.0)
            .epsilon(delta)
            .any()
        )
    assert accountant(0.5, 1.0).epsilon(0.0)[0] == math.inf
    assert accountant(0.5, 1.0).epsilon(1.0)[0] == 0.0
    assert 0.0 < accountant(0.5, 1.0).epsilon(1e-300)[0] < math.inf


@pytest.mark.parametrize("name", ["epsilon_bounds", "delta", "gdp_mu"])
def test_old_names_say_what_they_are(name: str) -> None:
    accountant = hs.IndividualAccountant(2, noise_multiplier=1.0, sampling_probability=0.5, clipping_norm=1.0)
    accountant.step([1.0, 0.5])
    arguments = {"epsilon_bounds": (1e-5,), "delta": (1.0,), "gdp_mu": (0, 1e-3)}[name]
    with pytest.warns(DeprecationWarning, match="fixed in advance") as caught:
        found = getattr(accountant, name)(*arguments)
    assert caught[0].filename == __file__
    assert np.array_equal(found, getattr(accountant, f"nonadaptive_{name}")(*arguments))


@pytest.mark.parametrize("rounds", [0, 1, 2, 4])
def test_epsilon_is_an_upper_bound_after_any_number_of_rounds(
    rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent = np.geomspace(1e-6, 30.0, 40)
    found = gaussian_spent(spent, 1.0, 1e-5, growing=True)
    monkeypatch.setattr(adaptive, "_ROUNDS", rounds)
    assert (gaussian_spent(spent, 1.0, 1e-5, growing=True) >= found * (1.0 - 1e-9)).all()
