"""One epoch of random allocation where one large likelihood ratio rules, or nearly: truths that share nothing with the core.

They are two: the law of the sum on a fine lattice by NumPy's FFT, and the estimator of Asmussen and Kroese (2006), which
integrates the largest ratio in closed form given all others.
"""

import math

import hockeystick as hs
import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm


def convolved(sigma: float, steps: int, epsilon: float, spacing: float, size: int) -> float:
    """E(V - e^eps)_+, W spread over its two neighbours on a lattice so that its mean stays: no less than the truth."""
    mu = 1 / sigma
    ends = spacing * np.arange(size + 1)
    with np.errstate(divide="ignore"):
        g = np.log(ends) / mu + mu / 2
    mass, mean = np.diff(ndtr(g)), np.diff(ndtr(g - mu))
    up = np.clip(mean / spacing - np.arange(size) * mass, 0, mass)
    law = np.append(mass - up, 0.0)
    law[1:] += up
    sums = np.fft.irfft(np.fft.rfft(law.astype(np.longdouble), 2 * size) ** steps, 2 * size)
    v = spacing * np.arange(2 * size) / steps
    return float(np.maximum(v - math.exp(epsilon), 0) @ sums)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("sigma", "steps", "delta", "spacing"),
    [(1.5, 1000, 1e-6, 0.01), (1.5, 300, 1e-8, 0.004), (3.0, 100, 1e-9, 0.0005), (1.0, 1000, 1e-7, 0.01)],
)
def test_lattices_agree(sigma, steps, delta, spacing):
    """The error of spreading falls as the square of the spacing, so that two lattices tell what it is."""
    profile = hs.account(hs.RandomAllocation(sigma, steps), adjacency="remove")
    epsilon = profile.epsilon(delta)
    found = profile.delta_bounds(epsilon)
    coarse, fine = (
        convolved(sigma, steps, epsilon, h, n) for h, n in ((2 * spacing, 2**18), (spacing, 2**19))
    )
    assert found.lower <= fine * (1 + 1e-6)
    truth = fine - (coarse - fine) / 3
    assert found.lower * (1 - 1e-5) <= truth <= found.upper * (1 + 1e-5)
    assert found.upper - found.lower <= 1e-7 * found.upper


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("sigma", "steps", "delta", "samples"),
    [
        (1.5, 1000, 1e-15, 3000),
        (1.5, 1000, 1e-30, 3000),
        (1.0, 1000, 1e-9, 3000),
        (0.7, 10**5, 1e-9, 60),
        (0.7, 10**5, 1e-12, 60),
        # One ratio alone, many times as large as all others together.
        (0.7, 10**5, 1e-20, 60),
        (0.5, 10**5, 1e-10, 60),
        (0.3, 10**5, 1e-5, 60),
        (0.3, 10**5, 1e-30, 60),
        (0.5, 1000, 1e-10, 3000),
        (1.0, 30, 1e-20, 3000),
    ],
)
def test_rare_jumps_agree_with_conditional_samples(sigma, steps, delta, samples):
    """Given the T - 1 others, of sum S and largest M, E(V - e^eps)_+ over a last and largest W is a price in closed form."""
    mu, rng = 1 / sigma, np.random.default_rng(3)
    profile = hs.account(hs.RandomAllocation(sigma, steps), adjacency="remove")
    bounds = profile.epsilon_bounds(delta)
    assert bounds.upper - bounds.lower <= 1e-7 * bounds.upper
    total, largest = np.empty(samples), np.empty(samples)
    for i in range(samples):
        w = np.exp(mu * rng.standard_normal(steps - 1) - 0.5 * mu * mu)
        total[i], largest[i] = w.sum(), w.max()
    strike = steps * math.exp(bounds.upper) - total
    g = np.log(np.maximum(largest, strike)) / mu + mu / 2
    values = norm.sf(g - mu) - strike * norm.sf(g)
    error = values.std() / math.sqrt(samples)
    assert error < 0.3 * values.mean()
    found = profile.delta_bounds(bounds.upper)
    assert found.lower - 5 * error <= values.mean() <= found.upper + 5 * error


@pytest.mark.parametrize("sigma", [2.0, 40.0])
def test_bounds_of_epsilon_and_delta_meet(sigma):
    """Where no epsilon is spent, too; and whichever way answers."""
    profile = hs.account(hs.RandomAllocation(sigma, 2000), adjacency="remove")
    before = math.inf
    for delta in (0.9, 1e-2, 1e-5, 1e-8, 1e-18):
        bounds = profile.epsilon_bounds(delta)
        assert 0 <= bounds.lower <= bounds.upper
        assert bounds.lower >= 0 if before == math.inf else bounds.upper >= before
        before = bounds.lower
        assert profile.delta_bounds(bounds.upper).lower <= delta
        if bounds.lower > 0:
            assert profile.delta_bounds(bounds.lower).upper >= delta * (1 - 1e-12)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("sigma", "steps", "delta", "adjacency", "samples"),
    [
        # Largest losses near those of the Gaussian, and ratios that overflow in high powers.
        (0.2, 5000, 1e-12, "remove", 3000),
        (0.2, 49999, 4e-12, "remove", 300),
        # So wide a law that the transform of its logarithm hardly falls.
        (0.2, 5000, 1e-3, "add", 20000),
        (0.25, 10**5, 1e-2, "add", 2000),
    ],
)
def test_little_noise_agrees_with_samples(sigma, steps, delta, adjacency, samples):
    """A last and largest ratio in closed form given all others; or all sampled, under a law that makes them smaller (add)."""
    mu, rng = 1 / sigma, np.random.default_rng(5)
    profile = hs.account(hs.RandomAllocation(sigma, steps), adjacency=adjacency)
    bounds = profile.epsilon_bounds(delta)
    assert bounds.upper - bounds.lower <= 1e-7 * bounds.upper
    values, epsilon = np.empty(samples), bounds.upper
    for i in range(samples):
        if adjacency == "add":
            w = np.exp(mu * rng.standard_normal(steps) - 0.5 * mu * mu)
            values[i] = max(0.0, 1 - math.exp(epsilon) * w.mean())
            continue
        w = np.exp(mu * rng.standard_normal(steps - 1) - 0.5 * mu * mu)
        strike = steps * math.exp(epsilon) - w.sum()
        g = math.log(max(w.max(), strike)) / mu + mu / 2
        values[i] = norm.sf(g - mu) - strike * norm.sf(g)
    error = values.std() / math.sqrt(samples)
    assert error < 0.3 * values.mean()
    found = profile.delta_bounds(epsilon)
    assert found.upper - found.lower <= 1e-6 * found.upper
    assert found.lower - 5 * error <= values.mean() <= found.upper + 5 * error


@pytest.mark.parametrize(("sigma", "steps"), [(0.27, 10**8), (0.35, 10**6), (0.5, 10**5)])
def test_any_epsilon_of_little_noise_is_known(sigma, steps):
    """Losses that all have and those of one ratio alone, and by duality: delta_add(eps) = 1 - e^eps + e^eps delta_remove(-eps)."""
    remove, add = (hs.account(hs.RandomAllocation(sigma, steps), adjacency=a) for a in ("remove", "add"))
    for epsilon in (-0.7, 0.0, 0.2, 2.0, 12.0):
        found = remove.delta_bounds(epsilon)
        assert found.upper - found.lower <= 1e-3 * found.upper
        mirrored = add.delta_bounds(-epsilon)
        low, high = (1 - math.exp(-epsilon) + math.exp(-epsilon) * d for d in (found.lower, found.upper))
        assert mirrored.lower <= high + 1e-14
        assert low <= mirrored.upper + 1e-14
