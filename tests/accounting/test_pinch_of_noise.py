"""Losses with atoms on no lattice, beside sums over all outcomes (docs/accounting/bounds.md, "A pinch of noise")."""

from __future__ import annotations

import itertools
import math

import hockeystick as hs
import numpy as np
import numpy.typing as npt
import pytest
from mpmath import mp

Masses = npt.NDArray[np.float64]


def delta(p: Masses, q: Masses, epsilon: float) -> float:
    """Exact but for rounding: the sum over outcomes of max(0, P - e^epsilon Q)."""
    return math.fsum(np.maximum(0.0, p - math.exp(epsilon) * q))


def sampled(p: Masses, q: Masses, probability: float) -> tuple[Masses, Masses]:
    """The pair of Poisson sampling under "remove"."""
    return probability * p + (1 - probability) * q, q


def powers(p: Masses, q: Masses, steps: int) -> tuple[Masses, Masses]:
    """All outcomes of several steps."""
    out = np.ones(1), np.ones(1)
    for _ in range(steps):
        out = np.multiply.outer(out[0], p).ravel(), np.multiply.outer(out[1], q).ravel()
    return out


def multinomial(p: Masses, q: Masses, steps: int) -> tuple[Masses, Masses]:
    """The same of many steps, by how often each of three outcomes occurs."""
    i, j = np.meshgrid(np.arange(steps + 1), np.arange(steps + 1), indexing="ij")
    keep = i + j <= steps
    counts = np.stack([i[keep], j[keep], steps - i[keep] - j[keep]])
    log_factorial = np.array([math.lgamma(n + 1) for n in range(steps + 1)])
    ways = log_factorial[steps] - log_factorial[counts].sum(axis=0)
    return np.exp(ways + np.log(p) @ counts), np.exp(ways + np.log(q) @ counts)


def holds(bounds: hs.Bounds, truth: float, rounding: float = 1e-11) -> None:
    assert bounds.lower <= truth * (1 + rounding) + 1e-300
    assert bounds.upper >= truth * (1 - rounding) - 1e-300


def random_pair(random: np.random.Generator, outcomes: int) -> tuple[Masses, Masses]:
    p, q = random.dirichlet(np.ones(outcomes)), random.dirichlet(np.ones(outcomes))
    return (p / p.sum(), q / q.sum())


@pytest.mark.parametrize("seed", range(6))
def test_a_few_steps_by_enumeration(seed: int) -> None:
    random = np.random.default_rng(seed)
    outcomes, steps = int(random.integers(3, 6)), int(random.integers(2, 6))
    p, q = random_pair(random, outcomes)
    probability = float(random.choice([1.0, 0.3, 1e-2, 1e-4]))
    pair = hs.FinitePair(list(p), list(q))
    one = hs.PoissonSampled(pair, probability) if probability < 1 else pair
    profile = hs.account(one * steps, adjacency="remove")
    # So little memory takes much noise.
    rough = hs.account(one * steps, adjacency="remove", memory_limit=2**20)
    one_p, one_q = sampled(p, q, probability)
    all_p, all_q = powers(one_p, one_q, steps)
    losses = np.log(all_p / all_q)
    spread = losses.max() - losses.min()
    for epsilon in random.uniform(0, losses.max(), 4):
        bounds = profile.delta_bounds(epsilon)
        holds(bounds, delta(all_p, all_q, epsilon))
        holds(rough.delta_bounds(epsilon), delta(all_p, all_q, epsilon))
        if np.abs(losses - epsilon).min() > 1e-2 * spread:
            assert bounds.upper - bounds.lower <= 1e-6 * bounds.upper
    # At a sum, and beside it by less and more than the noise.
    for loss in random.choice(losses[losses > 0], 2):
        for beside in (0, 1e-9, -1e-7, 1e-5 * spread, -1e-4 * spread):
            epsilon = float(max(0.0, loss + beside))
            bounds = profile.delta_bounds(epsilon)
            holds(bounds, delta(all_p, all_q, epsilon))
            holds(rough.delta_bounds(epsilon), delta(all_p, all_q, epsilon))
            assert bounds.upper - bounds.lower <= 0.05 * bounds.upper


@pytest.mark.parametrize(("probability", "steps"), [(1e-5, 520), (1e-4, 520), (3e-3, 30)])
def test_rare_records_by_enumeration(probability: float, steps: int) -> None:
    p, q = np.array([0.02, 0.38, 0.6]), np.array([1e-6, 0.4, 0.6 - 1e-6])
    one = hs.PoissonSampled(hs.FinitePair(list(p), list(q)), probability)
    profile = hs.account(one * steps, adjacency="remove")
    all_p, all_q = multinomial(*sampled(p, q, probability), steps)
    for epsilon in (1e-4, 0.05, 0.3, 1.1):
        truth = delta(all_p, all_q, epsilon)
        if not truth > 1e-20:
            continue
        bounds = profile.delta_bounds(epsilon)
        holds(bounds, truth, 1e-10)
        assert bounds.upper - bounds.lower <= 2e-3 * bounds.upper
        spent = profile.epsilon_bounds(truth)
        assert spent.lower <= epsilon * (1 + 1e-9)
        assert spent.upper >= epsilon * (1 - 1e-9)
        assert spent.upper - spent.lower <= 1e-5 * spent.upper  # although delta hardly falls


def test_many_outcomes_take_much_noise() -> None:
    random = np.random.default_rng(7)
    p, q = random_pair(random, 2500)
    profile = hs.account(hs.FinitePair(list(p), list(q)) * 2, adjacency="remove")
    all_p, all_q = powers(p, q, 2)
    for epsilon in (0.2, 1.0, 2.5, 4.0):
        bounds = profile.delta_bounds(epsilon)
        holds(bounds, delta(all_p, all_q, epsilon))
        assert bounds.upper - bounds.lower <= 1e-3 * bounds.upper


def rounded(p: Masses, q: Masses, steps: int, spacing: float, up: bool, epsilon: float) -> float:
    """A bound on delta, but for the transform's rounding, from losses rounded to a lattice one or the other way."""
    loss = np.log(p / q) / spacing
    index = (np.ceil(loss) if up else np.floor(loss)).astype(int)
    mass = np.zeros(index.max() - index.min() + 1)
    np.add.at(mass, index - index.min(), p)
    size = steps * (len(mass) - 1) + 1
    law = np.fft.irfft(np.fft.rfft(mass, size) ** steps, size)
    losses = spacing * (steps * index.min() + np.arange(size))
    above = losses > epsilon
    return math.fsum(law[above] * -np.expm1(epsilon - losses[above]))


@pytest.mark.parametrize(
    ("sigma", "shift", "probability", "steps", "epsilon"),
    [(0.5671, 2, 1.084e-5, 44, 3.0), (0.5058, 1, 2.016e-4, 97, 1.0), (1.337, 1, 0.09686, 30, 2.0)],
)
def test_sampled_discrete_gaussian(
    sigma: float, shift: int, probability: float, steps: int, epsilon: float
) -> None:
    k = np.arange(-12 - shift, 13 + 2 * shift)
    p, q = np.exp(-((k - shift) ** 2) / (2 * sigma**2)), np.exp(-(k**2) / (2 * sigma**2))
    p, q = sampled(p / p.sum(), q / q.sum(), probability)
    # The largest losses have a P-mass of no more than this.
    rare = (p < 1e-17) & (k > 0)
    dropped = steps * p[rare].sum()
    p, q = p[~rare], q[~rare]
    profile = hs.account(
        hs.PoissonSampled(hs.DiscreteGaussian(sigma, shift), probability) * steps, adjacency="remove"
    )
    bounds = profile.delta_bounds(epsilon)
    spacing = 2e-3
    assert bounds.upper >= rounded(p, q, steps, spacing, False, epsilon) - 1e-13
    assert bounds.lower <= rounded(p, q, steps, spacing, True, epsilon) + dropped + 1e-13
    assert bounds.upper - bounds.lower <= 1e-5 * bounds.upper


def test_a_common_request_is_answered_closely() -> None:
    # With support lines alone the lower bound of this was 0.
    profile = hs.account(
        hs.PoissonSampled(hs.DiscreteGaussian(0.5671, 2), 1.084e-5) * 440, adjacency="remove"
    )
    spent = profile.epsilon_bounds(1e-8)
    assert spent.upper - spent.lower <= 1e-4 * spent.upper
    assert all(
        a.upper >= b.upper for a, b in itertools.pairwise(map(profile.delta_bounds, (0.5, 1, 3, 5, 7)))
    )


@pytest.mark.parametrize(("probability", "steps"), [(1.0, 12), (0.1, 40), (1e-3, 60)])
def test_one_noise_serves_a_curve(probability: float, steps: int) -> None:
    """Many points of both signs, some of them sums of losses, and beyond the largest one."""
    p, q = np.array([0.2, 0.3, 0.5]), np.array([0.25, 0.43, 0.32])
    one_p, one_q = sampled(p, q, probability)
    all_p, all_q = multinomial(one_p, one_q, steps)
    losses = np.unique(np.log(all_p / all_q))
    pair = hs.FinitePair(list(p), list(q))
    one = hs.PoissonSampled(pair, probability) if probability < 1 else pair
    epsilons = np.sort(
        np.concatenate([np.linspace(losses[0], losses[-1] + 0.1, 150), losses[:: len(losses) // 40]])
    )
    lower, upper = hs.account(one * steps, adjacency="remove").delta_curve(epsilons)
    truth = np.array([delta(all_p, all_q, epsilon) for epsilon in epsilons])
    # Differences of nearly equal masses round.
    slack = 1e-11 * truth + 1e-15
    assert (lower <= truth + slack).all()
    assert (truth <= upper + slack).all()
    common = (truth > 1e-10) & (epsilons < 0.9 * losses[-1])
    assert np.median((upper - lower)[common] / truth[common]) < 1e-4
    assert (upper[common] <= 1.01 * lower[common]).all()


@pytest.mark.sweep
@pytest.mark.parametrize("adjacency", ["remove", "replace_one"])
@pytest.mark.parametrize("epsilon", [0.01, 0.05, 0.1, 0.5, 1.0, 2.0])
def test_unbounded_losses_that_are_rare_leave_a_bound(adjacency: str, epsilon: float) -> None:
    """Each tilt is ruled by losses that hardly occur; without them Chernoff's bound says enough (it was 3e-5 at .01, of 1e-71)."""
    sigma, q, steps = mp.mpf("2.63"), mp.mpf("1.42e-5"), 14
    process = hs.PoissonSampled(hs.DiscreteGaussian(2.63), 1.42e-5) * steps
    bounds = hs.account(process, adjacency=adjacency).delta_bounds(epsilon)
    with mp.workdps(50):
        noise = {x: mp.exp(-(mp.mpf(x) ** 2) / (2 * sigma**2)) for x in range(-201, 202)}
        total = mp.fsum(noise.values())

        def drawn(x: int, shift: int) -> mp.mpf:
            return ((1 - q) * noise[x] + q * noise[x - shift]) / total

        def other(x: int) -> mp.mpf:
            return drawn(x, -1) if adjacency == "replace_one" else noise[x] / total

        one = mp.fsum(max(mp.mpf(0), drawn(x, 1) - mp.exp(epsilon) * other(x)) for x in range(-200, 201))
    # Leaving steps out is post-processing, and what one step of many does, another may do as well.
    assert bounds.lower <= bounds.upper
    assert one <= bounds.upper <= 1e5 * one


def chords(p: Masses, q: Masses, steps: int, spacing: float, epsilon: float) -> float:
    """An upper bound, but for the transform's rounding: each outcome between two on a lattice that have its P- and Q-mass.

    It is above delta by order spacing^2.
    """
    loss, size = np.log(p / q), 1 << 20
    low = np.floor(loss / spacing)
    share = np.clip((1 - np.exp(spacing * low - loss)) / (1 - math.exp(-spacing)), 0, 1)
    mass = np.zeros(size)
    index = low.astype(int)
    np.add.at(mass, index % size, p * (1 - share))
    np.add.at(mass, (index + 1) % size, p * share)
    law = np.fft.irfft(np.fft.rfft(mass) ** steps, size)
    losses = spacing * np.arange(size)
    above = (losses > epsilon) & (losses < spacing * size / 2)
    return math.fsum(law[above] * -np.expm1(epsilon - losses[above]))


@pytest.mark.parametrize(("batch", "steps", "width"), [(4, 40, 1e-3), (43, 1000, 3e-4)])
def test_of_batches_with_replacement_most_losses_are_next_to_impossible(
    batch: int, steps: int, width: float
) -> None:
    """Each number of hits has losses of its own, of which few are worth a term (the intervals were 1e-3 wide, after seconds)."""
    sigma, size = 5.388, 1000
    hits, x = np.arange(1, min(batch, 16) + 1)[:, None], np.arange(-40, 73)
    ways = [
        float(mp.binomial(batch, n) * mp.mpf(size - 1) ** (batch - n) / mp.mpf(size) ** batch)
        for n in hits[:, 0]
    ]
    seen = -math.expm1(batch * math.log1p(-1 / size))
    noise = np.exp(-(np.arange(-300, 301) ** 2) / (2 * sigma**2)).sum()
    weight = np.array(ways)[:, None] / seen / noise
    near, far = (
        weight * np.exp(-((x - 2 * hits) ** 2) / (2 * sigma**2)),
        weight * np.exp(-(x**2) / (2 * sigma**2)),
    )
    # Advanced joint convexity: "remove" above 0, "add" below, the rest at 0.
    p = np.where(near > far, seen * near + (1 - seen) * far, near)[near != far]
    q = np.where(near > far, far, (1 - seen) * near + seen * far)[near != far]
    kept = p > 1e-20
    rest, rounding = 1 - math.fsum(p), steps * 1e-15
    p, q = np.append(p[kept], rest), np.append(q[kept], rest)
    process = hs.WithReplacement(hs.DiscreteGaussian(sigma), batch, size) * steps
    profile = hs.account(process, adjacency="replace_one")
    epsilons = [0.2, 0.5, 1.0, 1.5]
    for epsilon, *bounds in zip(epsilons, *profile.delta_curve(epsilons), strict=True):
        above, further = (chords(p, q, steps, spacing, epsilon) for spacing in (2e-4, 4e-4))
        for lower, upper in (bounds, profile.delta_bounds(epsilon)):
            assert lower <= above + rounding
            assert upper >= above - (further - above) - rounding
            assert upper - lower <= width * upper


def test_a_first_guess_that_is_far_too_large_is_made_better() -> None:
    """As long as it falls: losses that are nothing beside 1e-3 are all of a delta of 1e-35, and were all that was known of it."""
    profile = hs.account(
        hs.WithReplacement(hs.DiscreteGaussian(2.0), 256, 60_000) * 1000, adjacency="replace_one"
    )
    bounds = profile.delta_bounds(98.0)
    assert 0.0 < bounds.upper <= 1.001 * bounds.lower
    assert profile.epsilon_bounds(bounds.upper).lower <= 98.0 <= profile.epsilon_bounds(bounds.lower).upper
