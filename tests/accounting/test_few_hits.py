"""Few steps of sampled noise on integers, far down: every sequence of outcomes is the oracle, in long double.

Their losses lie on no lattice, and what a tilt makes of the frequent ones is up to 1e12 times delta: transforms lose delta in their
rounding there, with or without noise.
"""

from __future__ import annotations

import itertools
import math
from functools import cache

import hockeystick as hs
import numpy as np
import pytest

LONG = np.longdouble


def of_multisets(counts: np.ndarray, p: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Losses and P-masses, a row of counts of the outcomes each."""
    steps = int(counts[0].sum())
    log_factorial = np.concatenate([[0], np.cumsum(np.log(np.arange(1, steps + 1).astype(LONG)))])
    ways = log_factorial[steps] - log_factorial[counts].sum(axis=1)
    return counts @ (np.log(p) - np.log(other)), np.exp(ways + counts @ np.log(p))


@cache
def truth(sigma: float, q: float, steps: int, adjacency: str) -> tuple[np.ndarray, np.ndarray, float]:
    """Losses and P-masses of all multisets of outcomes, and a bound on the mass of all others."""
    reach = 10
    x = np.arange(-reach, reach + 2).astype(LONG)
    total = np.exp(-(np.arange(-60, 61).astype(LONG) ** 2) / (2 * LONG(sigma) ** 2)).sum()
    without, shifted = (np.exp(-((x - shift) ** 2) / (2 * LONG(sigma) ** 2)) / total for shift in (0, 1))
    hit = (1 - LONG(q)) * without + LONG(q) * shifted
    p, other = (hit, without) if adjacency == "remove" else (without, hit)
    chosen = np.array(list(itertools.combinations_with_replacement(range(len(x)), steps)))
    counts = np.stack([(chosen == i).sum(axis=1) for i in range(len(x))], axis=1)
    beyond = steps * math.exp(-((reach) ** 2) / (2 * sigma**2)) * 2
    return *of_multisets(counts, p, other), beyond


def delta_of(law: tuple[np.ndarray, np.ndarray, float], epsilon: float) -> tuple[float, float]:
    loss, mass, beyond = law
    over = loss > LONG(epsilon)
    least = float((mass[over] * -np.expm1(LONG(epsilon) - loss[over])).sum())
    return least * (1 - 1e-14), least * (1 + 1e-14) + beyond


CASES = [(0.7, 1e-4, 4), (0.9, 2e-3, 4), (0.95, 3e-5, 5), (1.1, 0.02, 4)]


@pytest.mark.sweep
@pytest.mark.parametrize("adjacency", ["remove", "add"])
@pytest.mark.parametrize(("sigma", "q", "steps"), CASES)
def test_epsilon(sigma: float, q: float, steps: int, adjacency: str) -> None:
    law = truth(sigma, q, steps, adjacency)
    profile = hs.account(hs.PoissonSampled(hs.DiscreteGaussian(sigma), q) * steps, adjacency=adjacency)
    for delta in (1e-5, 1e-10, 1e-15, 3e-19):
        if law[2] > 1e-3 * delta:
            continue
        lower, upper = profile.epsilon_bounds(delta)
        assert delta_of(law, upper * (1 - 1e-12))[0] <= delta * (1 + 1e-6) or upper == 0
        assert delta_of(law, upper)[0] <= delta
        assert lower == 0 or delta_of(law, lower)[1] >= delta
        assert upper <= lower * (1 + 1e-4) + 1e-15


@pytest.mark.sweep
@pytest.mark.parametrize("adjacency", ["remove", "add"])
@pytest.mark.parametrize(("sigma", "q", "steps"), CASES)
def test_delta_and_curves(sigma: float, q: float, steps: int, adjacency: str) -> None:
    law = truth(sigma, q, steps, adjacency)
    profile = hs.account(hs.PoissonSampled(hs.DiscreteGaussian(sigma), q) * steps, adjacency=adjacency)
    epsilons = np.array([1e-5, 1e-3, 0.02, 0.1, 0.5, 1.0])
    curve = np.transpose(profile.delta_curve(epsilons))
    for epsilon, at_curve in zip(epsilons.tolist(), curve, strict=True):
        least, most = delta_of(law, epsilon)
        for lower, upper in (profile.delta_bounds(epsilon), at_curve):
            assert lower <= most
            assert least <= upper
            assert most < 1e3 * law[2] or upper - lower <= 2e-3 * upper


@pytest.mark.parametrize("steps", [8, 12, 40])
def test_many_more_sequences_are_known_as_closely(steps: int) -> None:
    """Which used to leave a tenth of epsilon, or no lower bound at all."""
    process = hs.PoissonSampled(hs.DiscreteGaussian(0.9948), 1.138e-4) * steps
    for delta in (1e-14, 5.9e-19, 1e-24):
        lower, upper = hs.account(process, adjacency="remove").epsilon_bounds(delta)
        assert 0 < lower <= upper <= lower * (1 + 1e-4)


@pytest.mark.parametrize("adjacency", ["remove", "add"])
def test_more_than_a_hundred_steps(adjacency: str) -> None:
    """Of four outcomes each, by all multisets of these: too many to be added up, and hits too few for noise."""
    steps, q = 130, 1e-4
    without, with_record = np.array([0.5, 0.31, 0.187, 0.003]), np.array([0.001, 0.199, 0.3, 0.5])
    hit = (1 - LONG(q)) * without.astype(LONG) + LONG(q) * with_record.astype(LONG)
    p, other = (hit, without.astype(LONG)) if adjacency == "remove" else (without.astype(LONG), hit)
    three = np.indices((steps + 1,) * 3).reshape(3, -1).T
    three = three[three.sum(axis=1) <= steps]
    counts = np.column_stack([three, steps - three.sum(axis=1)])
    law = *of_multisets(counts, p, other), 0.0
    process = hs.PoissonSampled(hs.FinitePair(with_record, without), q) * steps
    profile = hs.account(process, adjacency=adjacency)
    for delta in (1e-6, 1e-10, 1e-15):
        lower, upper = profile.epsilon_bounds(delta)
        assert upper <= lower * (1 + 1e-4) + 1e-15
        assert delta_of(law, upper)[0] <= delta * (1 + 1e-12)
        assert lower == 0 or delta_of(law, lower)[1] >= delta * (1 - 1e-12)


def test_more_steps_spend_more() -> None:
    """Bounds of ever more steps, whoever answers them, keep their order."""
    before = 0.0
    for steps in (1, 2, 3, 4, 8, 30, 101, 160):
        lower, upper = hs.account(
            hs.PoissonSampled(hs.DiscreteGaussian(1.05), 2e-4) * steps, adjacency="remove"
        ).epsilon_bounds(1e-15)
        assert before <= upper
        before = lower


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("noise_multiplier", "slots", "sigma", "q", "delta", "widest"),
    [
        (13.05, 5049, 0.924, 2.296e-4, 1.2e-16, 1e-3),
        (5.188, 40680, 1.0, 6.508e-4, 7e-13, 1e-3),
        (22.2, 13, 0.9, 1.138e-4, 2.6e-15, 1e-3),
        # Lattices of the rest, and few points of the allocation's losses, left 6e-6 of it open.
        (1.859, 18, 1.0, 3e-4, 3.9e-6, 2e-6),
    ],
)
def test_beside_an_allocation(
    noise_multiplier: float, slots: int, sigma: float, q: float, delta: float, widest: float
) -> None:
    """Given each sequence of outcomes the allocation alone is left."""
    steps = 4
    allocation = hs.RandomAllocation(noise_multiplier, slots)
    lower, upper = hs.account(
        allocation + hs.PoissonSampled(hs.DiscreteGaussian(sigma), q) * steps, adjacency="remove"
    ).epsilon_bounds(delta)
    assert upper <= lower * (1 + widest)
    loss, mass, beyond = truth(sigma, q, steps, "remove")
    assert beyond < 1e-3 * delta
    alone = hs.account(allocation, adjacency="remove", accuracy=1e-6)
    counted = mass > 1e-9 * delta / len(loss)
    rest = (float(mass[~counted].sum()) + beyond) * (1 + 1e-9) + 1e-9 * delta
    order = np.flatnonzero(counted)[np.argsort(-loss[counted])]
    for epsilon, above in ((lower, True), (upper, False)):
        bounds = alone.delta_curve(np.asarray(LONG(epsilon) - loss[order], dtype=float))
        total = float((mass[order] * bounds[1 if above else 0].astype(LONG)).sum())
        assert total + rest >= delta * (1 - 1e-6) if above else total <= delta * (1 + 1e-6)
