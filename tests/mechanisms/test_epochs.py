"""Epochs of random allocation of many steps, where one large likelihood ratio rules, or nearly: truths that share nothing with the core.

They are the law of one epoch on a fine lattice by NumPy's FFT, taken twice; the estimator of Asmussen and Kroese (2006), which integrates the
largest ratio of all epochs in closed form given all others; and the bounds' own order.
"""

import math

import hockeystick as hs
import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm


def epoch(sigma: float, steps: int, spacing: float, size: int, length: int) -> np.ndarray:
    """The law of V on a lattice of spacing/steps, each W spread over its two neighbours so that its mean stays."""
    mu = 1 / sigma
    with np.errstate(divide="ignore"):
        g = np.log(spacing * np.arange(size + 1)) / mu + mu / 2
    mass, mean = (np.where(x[:-1] > 0, -np.diff(ndtr(-x)), np.diff(ndtr(x))) for x in (g, g - mu))
    up = np.clip(mean / spacing - np.arange(size) * mass, 0, mass)
    law = np.append(mass - up, 0.0)
    law[1:] += up
    return np.fft.irfft(np.fft.rfft(law.astype(np.longdouble), length) ** steps, length)


def twice(sigma: float, steps: int, epsilon: float, spacing: float, size: int, length: int) -> float:
    """E(V V' - e^eps)_+: convex in either, so no less than the truth."""
    law = epoch(sigma, steps, spacing, size, length)
    v = spacing * np.arange(length) / steps
    mass, mean = np.cumsum(law[::-1])[::-1], np.cumsum((law * v)[::-1])[::-1]
    used = v > math.exp(epsilon) / v[-1]
    strike = math.exp(epsilon) / v[used]
    first = np.ceil(strike * steps / spacing).astype(int)
    return float(law[used] @ (v[used] * (mean[first] - strike * mass[first])))


@pytest.mark.parametrize(
    ("sigma", "steps", "delta", "spacing", "length"),
    [(1.0, 2000, 1e-8, 0.02, 2**19), (1.5, 1000, 1e-9, 0.005, 2**19)],
)
def test_lattices_agree(sigma, steps, delta, spacing, length):
    """The error of spreading falls as the square of the spacing, so that two lattices tell what it is."""
    profile = hs.account(hs.RandomAllocation(sigma, steps) * 2, adjacency="remove")
    epsilon = profile.epsilon(delta)
    found = profile.delta_bounds(epsilon)
    assert found.upper - found.lower <= 1e-8 * found.upper
    coarse = twice(sigma, steps, epsilon, 2 * spacing, length // 4, length // 2)
    fine = twice(sigma, steps, epsilon, spacing, length // 2, length)
    assert found.lower <= fine * (1 + 1e-9)
    truth = fine - (coarse - fine) / 3
    assert found.lower * (1 - 3e-7) <= truth <= found.upper * (1 + 3e-7)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("sigma", "steps", "epochs", "delta", "samples", "gap"),
    [
        (0.7, 20000, 2, 1e-10, 60, 1e-9),
        (1.0, 10**4, 5, 1e-14, 100, 1e-9),
        (0.6, 3000, 1, 1e-6, 100, 1e-9),
        (0.7, 10**5, 10, 1e-18, 20, 1e-8),
        (0.7, 10**5, 10, 1e-30, 20, 1e-6),
        (0.5, 10**6, 2, 1e-20, 20, 1e-7),
        (0.5, 10**5, 2, 1e-12, 60, 2e-6),
        (0.35, 10**5, 2, 1e-9, 300, 1e-9),
        (0.3, 10**6, 2, 1e-6, 40, 1e-9),
    ],
)
def test_rare_jumps_agree_with_conditional_samples(sigma, steps, epochs, delta, samples, gap):
    """Given all other ratios, E(V_1 ... V_E - e^eps)_+ over a last and largest W is a price in closed form."""
    mu, rng = 1 / sigma, np.random.default_rng(7)
    profile = hs.account(hs.RandomAllocation(sigma, steps) * epochs, adjacency="remove")
    bounds = profile.epsilon_bounds(delta)
    assert bounds.upper - bounds.lower <= gap * bounds.upper
    values = np.empty(samples)
    for i in range(samples):
        total, largest, others = 0.0, 0.0, 1.0
        for j in range(epochs):
            w = np.exp(mu * rng.standard_normal(steps - (j == 0)) - 0.5 * mu * mu)
            largest = max(largest, w.max())
            if j == 0:
                total = w.sum()
            else:
                others *= w.sum() / steps
        strike = steps * math.exp(bounds.upper) / others - total
        g = math.log(max(largest, strike)) / mu + mu / 2
        values[i] = epochs * others * (norm.sf(g - mu) - strike * norm.sf(g))
    error = values.std() / math.sqrt(samples)
    assert error < 0.3 * values.mean()
    found = profile.delta_bounds(bounds.upper)
    assert found.lower - 5 * error <= values.mean() <= found.upper + 5 * error


@pytest.mark.parametrize(
    ("sigma", "steps", "epochs", "delta"), [(0.625, 20000, 5, 1e-40), (0.55, 40000, 4, 1e-24)]
)
def test_ratios_in_several_epochs_agree_with_the_whole_transform(sigma, steps, epochs, delta):
    """The transform of all outcomes answers for epsilon, and large ratios one by one for delta: two share much of what they come to."""
    profile = hs.account(hs.RandomAllocation(sigma, steps) * epochs, adjacency="remove")
    bounds = profile.epsilon_bounds(delta)
    assert bounds.upper - bounds.lower <= 1e-9 * bounds.upper
    before, beyond = (
        profile.delta_bounds(bounds.lower * (1 - 1e-9)),
        profile.delta_bounds(bounds.upper * (1 + 1e-9)),
    )
    assert before.upper >= delta >= beyond.lower
    assert before.upper - before.lower <= 5e-3 * before.upper


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("sigma", "steps", "epochs", "delta"),
    [
        (6.0, 6, 1, 1e-20),
        (7.0, 7, 1, 1e-30),
        (8.0, 8, 1, 1e-30),
        (9.0, 9, 2, 1e-30),
        (10.0, 10, 2, 1e-30),
        (8.57, 12, 2, 1e-20),
        (7.5, 15, 2, 1e-30),
        (9.0, 18, 2, 1e-30),
    ],
)
def test_few_steps_agree_with_conditional_samples(sigma, steps, epochs, delta):
    """The means of all normal variables make a lognormal, priced in closed form given the rest: that is drawn as wide as a large tilt makes it."""
    samples, mu, rng = 400_000, 1 / sigma, np.random.default_rng(11)
    profile = hs.account(hs.RandomAllocation(sigma, steps) * epochs, adjacency="remove")
    bounds = profile.epsilon_bounds(delta)
    assert bounds.upper - bounds.lower <= 1e-9 * bounds.upper
    variance = epochs * mu**2 / steps
    wide = 1 / (1 - min(0.7, bounds.upper / variance * mu**2 / steps))
    rest, log_weight = np.zeros(samples), np.zeros(samples)
    for _ in range(epochs):
        h = math.sqrt(wide) * rng.standard_normal((samples, steps))
        h -= h.mean(axis=1, keepdims=True)
        rest += np.log(np.exp(mu * h).mean(axis=1)) - mu**2 / 2
        log_weight += 0.5 * (steps - 1) * math.log(wide) - 0.5 * (h**2).sum(axis=1) * (1 - 1 / wide)
    beyond = (rest + variance - bounds.upper) / math.sqrt(variance)
    price = np.exp(rest + variance / 2) * ndtr(beyond) - math.exp(bounds.upper) * ndtr(
        beyond - math.sqrt(variance)
    )
    values = np.exp(log_weight) * price
    error = values.std() / math.sqrt(samples)
    assert error < 0.01 * values.mean()
    found = profile.delta_bounds(bounds.upper)
    assert found.upper - found.lower <= 1e-6 * found.upper
    assert found.lower - 5 * error <= values.mean() <= found.upper + 5 * error


def test_with_gaussian_steps():
    """A noisy step adds loss, and by Gaussian dominance no more than one of the joint noise does."""
    law, delta = hs.RandomAllocation(0.8, 10**4), 1e-10
    alone = hs.account(law, adjacency="remove").epsilon_bounds(delta)
    weak = hs.account(law + hs.Gaussian(1e4), adjacency="remove").epsilon_bounds(delta)
    strong = hs.account(law + hs.Gaussian(50.0), adjacency="remove").epsilon_bounds(delta)
    for bounds in (alone, weak, strong):
        assert bounds.upper - bounds.lower <= 1e-9 * bounds.upper
    assert alone.lower <= weak.upper
    assert weak.lower <= strong.upper
    assert weak.upper <= alone.upper * (1 + 1e-3)


def test_bounds_of_epsilon_and_delta_meet():
    """And epochs add up, but to no more than the sum of what each spends at its share of delta."""
    law, delta = hs.RandomAllocation(0.9, 20000), 1e-10
    two = hs.account(law * 2, adjacency="remove")
    bounds = two.epsilon_bounds(delta)
    assert bounds.upper - bounds.lower <= 1e-9 * bounds.upper
    assert two.delta_bounds(bounds.lower * (1 - 1e-9)).upper >= delta
    assert two.delta_bounds(bounds.upper * (1 + 1e-9)).lower <= delta
    one = hs.account(law, adjacency="remove")
    assert one.epsilon_bounds(delta).lower <= bounds.upper
    assert bounds.lower <= 2 * one.epsilon_bounds(delta / 2).upper


def in_company(sigma, steps, epsilon, spacing, length, companion) -> float:
    """E(V Y - e^eps)_+, Y at the nodes of a rule: ratios and their Q-masses."""
    law = epoch(sigma, steps, spacing, length // 2, length)
    v = spacing * np.arange(length) / steps
    mass, mean = np.cumsum(law[::-1])[::-1], np.cumsum((law * v)[::-1])[::-1]
    y, weight = companion
    strike = math.exp(epsilon) / y
    first = np.minimum(np.ceil(strike * steps / spacing), length - 1).astype(int)
    return float(np.sum(weight * y * (mean[first] - strike * mass[first])))


def laplace_nodes(scale: float):
    """One Laplace step: atoms at both ends, and Gauss-Legendre nodes between."""
    x, w = np.polynomial.legendre.leggauss(60)
    t, b = (x + 1) / 2, 1 / scale
    density = np.exp(-t * b) * b / 2
    return (
        np.concatenate([np.exp(b * (2 * t - 1)), [math.exp(-b), math.exp(b)]]),
        np.concatenate([w / 2 * density, [0.5, 0.5 * math.exp(-b)]]),
    )


def sampled_nodes(sigma: float, q: float):
    x, w = np.polynomial.legendre.leggauss(400)
    g, mu = 3 + 13 * x, 1 / sigma
    return 1 - q + q * np.exp(mu * g - mu * mu / 2), 13 * w * np.exp(-g * g / 2) / math.sqrt(2 * math.pi)


def allocation_nodes(sigma: float, steps: int, spacing: float, length: int):
    law = epoch(sigma, steps, spacing, length // 2, length)
    kept = (law > 1e-22) & (np.arange(length) > 0)
    return (spacing * np.arange(length) / steps)[kept], law[kept]


@pytest.mark.parametrize(
    ("other", "company"),
    [
        (hs.Laplace(60.0), lambda _: laplace_nodes(60.0)),
        (hs.PoissonSampled(hs.Gaussian(0.9), 2e-4), lambda _: sampled_nodes(0.9, 2e-4)),
        (hs.RandomAllocation(1.3, 400), lambda fine: allocation_nodes(1.3, 400, fine, 2**17)),
    ],
)
def test_lattices_agree_in_company(other, company):
    """The only step of another kind is integrated by a rule of its own."""
    sigma, steps, delta, spacing, length = 1.0, 2000, 1e-9, 0.01, 2**20
    profile = hs.account(hs.RandomAllocation(sigma, steps) + other, adjacency="remove")
    epsilon = profile.epsilon(delta)
    found = profile.delta_bounds(epsilon)
    assert found.upper - found.lower <= 1e-8 * found.upper
    coarse = in_company(sigma, steps, epsilon, 2 * spacing, length // 2, company(2 * spacing))
    fine = in_company(sigma, steps, epsilon, spacing, length, company(spacing))
    assert found.lower <= fine * (1 + 1e-7)
    truth = fine - (coarse - fine) / 3
    assert found.lower * (1 - 1e-6) <= truth <= found.upper * (1 + 1e-6)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("allocations", "sampled", "laplace", "delta", "samples"),
    [
        ([(0.7, 20000, 2), (1.0, 5000, 3)], [], [], 1e-11, 100),
        ([(7.268, 163, 3)], [(1.009, 0.00012, 54), (2.816, 0.00012, 11)], [], 2.2e-21, 2000),
        ([(0.8, 10**4, 2), (2.239, 1951, 3)], [], [(48.52, 3)], 1e-12, 100),
        ([(0.704, 38640, 1)], [(3.47, 0.00011, 1026), (3.458, 0.02342, 37)], [], 1.8e-15, 100),
    ],
)
def test_company_agrees_with_conditional_samples(allocations, sampled, laplace, delta, samples):
    """Of all jumps a W/T or q W one is the largest; given all others, the price over it has a closed form."""
    rng = np.random.default_rng(11)
    mechanisms = (
        [hs.RandomAllocation(s, t) * n for s, t, n in allocations]
        + [hs.PoissonSampled(hs.Gaussian(s), q) * n for s, q, n in sampled]
        + [hs.Laplace(b) * n for b, n in laplace]
    )
    profile = hs.account(sum(mechanisms[1:], mechanisms[0]), adjacency="remove")
    bounds = profile.epsilon_bounds(delta)
    assert bounds.upper - bounds.lower <= 1e-9 * bounds.upper
    # sigma, a jump by W = 1, jumps in one factor, factors
    kinds = [(s, 1 / t, t, n) for s, t, n in allocations] + [(s, q, 1, n) for s, q, n in sampled]
    values = np.empty(samples)
    for i in range(samples):
        jumps = [jump * np.exp(rng.standard_normal((n, t)) / s - 0.5 / s**2) for s, jump, t, n in kinds]
        rest = 1.0
        for b, n in laplace:
            x = rng.laplace(size=n)
            rest *= math.exp(float(np.sum(np.abs(x) - np.abs(x - 1 / b))))
        values[i] = 0
        for k, (s, jump, t, n) in enumerate(kinds):
            # The first jump of this kind's first factor is to be the largest: the one that was drawn does not count.
            own = jumps[k][0, 0]
            jumps[k][0, 0] = 0
            sums = [w.sum(1) + (1 - a * m) for w, (_, a, m, _) in zip(jumps, kinds, strict=True)]
            largest = max(w.max() for w in jumps)
            base = sums[k][0]
            sums[k][0] = 1
            others = rest * math.prod(float(np.prod(x)) for x in sums)
            jumps[k][0, 0] = own
            strike = (math.exp(bounds.upper) / others - base) / jump
            g = math.log(max(largest / jump, strike)) * s + 0.5 / s
            values[i] += n * t * others * jump * (norm.sf(g - 1 / s) - strike * norm.sf(g))
    error = values.std() / math.sqrt(samples)
    assert error < 0.2 * values.mean()
    found = profile.delta_bounds(bounds.upper)
    assert found.lower - 5 * error <= values.mean() <= found.upper + 5 * error


@pytest.mark.parametrize("sigma", [0.05, 0.004, 1e-3, 1e-5])
def test_gaussian_steps_that_settle_all(sigma):
    """No series of what they do is tried: it would have as many terms as the variance of their loss."""
    step = hs.Gaussian(sigma)
    found = hs.account(hs.RandomAllocation(1.0, 1000) + step, adjacency="remove").delta_bounds(2.0)
    assert found.upper >= hs.account(step, adjacency="remove").delta_bounds(2.0).lower > 0.999
