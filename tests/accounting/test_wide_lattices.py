"""Losses far above 1: sampling with replacement of many records with little noise, against sums over the hits.

Replacing one of n records, m of them drawn with replacement: with probability γ w_l a step's loss is ln γ + x, x normal of mean
μ²/2 and variance μ², μ = 2l/σ, but for e^{-100}; otherwise it is 0.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter

import hockeystick as hs
import pytest
from mpmath import mp


def truth(epsilon: float, sigma: float, m: int, n: int, steps: int) -> mp.mpf:
    """δ(ε), by which group is hit how often."""
    gamma = -mp.expm1(m * mp.log1p(-mp.mpf(1) / n)) if n > 1 else mp.mpf(1)
    sizes = [0, *range(1, m + 1)]
    chance = [mp.binomial(m, size) * mp.mpf(n - 1) ** (m - size) / mp.mpf(n) ** m for size in sizes]
    total = mp.mpf(0)
    for hits in itertools.combinations_with_replacement([s for s in sizes if chance[s] > 1e-40], steps):
        groups = Counter(hits)
        ways = mp.factorial(steps)
        for size, count in groups.items():
            ways *= chance[size] ** count / mp.factorial(count)
        seen = steps - groups.get(0, 0)
        if seen == 0:
            continue
        mean = sum(count * (size / mp.mpf(sigma)) ** 2 * 2 for size, count in groups.items()) + seen * mp.log(
            gamma
        )
        deviation = mp.sqrt(sum(count * (2 * size / mp.mpf(sigma)) ** 2 for size, count in groups.items()))
        z = (mean - epsilon) / deviation
        total += ways * (mp.ncdf(z) - mp.exp(epsilon - mean + deviation**2 / 2) * mp.ncdf(z - deviation))
    return total


@pytest.mark.sweep
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-10])
@pytest.mark.parametrize(
    ("sigma", "m", "n", "steps"),
    [
        (0.02, 30, 30, 2),
        (0.1, 30, 30, 2),
        (0.02, 30, 2, 2),
        (0.05, 20, 1000, 2),
        (0.02, 2, 2, 30),
        (0.1, 2, 30, 30),
    ],
)
def test_epsilon_brackets_the_sum_over_hits(sigma: float, m: int, n: int, steps: int, delta: float) -> None:
    step = hs.WithReplacement(hs.Gaussian(sigma), m, n)
    lower, upper = hs.account(step * steps, adjacency="replace_one").epsilon_bounds(delta=delta)
    with mp.workdps(30):
        assert truth(upper, sigma, m, n, steps) <= delta * (1 + mp.mpf(10) ** -12)
        assert truth(lower, sigma, m, n, steps) >= delta * (1 - mp.mpf(10) ** -12)
    # Between clusters of losses delta hardly falls, and what round-off leaves open widens epsilon by more.
    assert upper <= lower * (1.0011 if delta > 1e-6 else 1.01)


@pytest.mark.sweep
@pytest.mark.parametrize("steps", [2, 100, 1_000_000])
@pytest.mark.parametrize(("m", "n"), [(30, 30), (1000, 1000), (1000, 30), (100_000, 2), (30, 100_000)])
@pytest.mark.parametrize("sigma", [0.02, 0.3])
def test_an_answer_from_both_sides(sigma: float, m: int, n: int, steps: int) -> None:
    """These took minutes, or had no lower bound; the lattices now have as many points as the accuracy asks for."""
    step = hs.WithReplacement(hs.Gaussian(sigma), m, n)
    account = hs.account(step * steps, adjacency="replace_one", memory_limit=2**26)
    lower, upper = account.epsilon_bounds(delta=1e-5)
    assert 0.0 <= lower <= upper < math.inf
    # A step at least costs what the same record drawn once does, at most what m copies of it in every batch do.
    rate = -math.expm1(m * math.log1p(-1.0 / n))
    once = hs.account(hs.PoissonSampled(hs.Gaussian(sigma), rate), adjacency="remove").epsilon_bounds(
        delta=1e-5
    )
    all_copies = hs.account(hs.Gaussian(sigma / (2.0 * m)) * steps).epsilon(delta=1e-5)
    assert once.lower <= upper
    assert lower <= all_copies
