"""Accounting closes the loop: privacy losses of real batches with real noise have the law that is accounted.

On the worst-case data of each scheme: gradients along one axis, as long as the clipping norm. Real batches come from
`batches`, real noise from `CorrelatedNoise`, the accountant's law from `BandMF.sample_losses` or in closed form. Examples
that do not see each other get a coordinate each, so that one run is many trials. Kolmogorov-Smirnov tests with a
false-alarm rate of 1e-6 and fixed seeds; `test_a_wrong_sampler_is_seen` is the control.
"""

from __future__ import annotations

from typing import Any

import hockeystick as hs
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]

ALARM = 1e-6
TRIALS, REFERENCE = 20_000, 100_000
STEPS, BANDS = 24, 4
SIGMA = 0.8
STRATEGY = hs.BandedToeplitz.square_root(STEPS, BANDS)


def participations(sampler: hs.sampling.BatchSampler, owners: NDArray[np.int64] | None = None) -> Array:
    """How many of its examples each owner has in each batch, shape (steps, owners)."""
    owners = np.arange(sampler.dataset_size) if owners is None else owners
    count = int(owners.max()) + 1
    return np.array([np.bincount(owners[batch], minlength=count) for batch in sampler], dtype=np.float64)


def outputs(x: Array, strategy: hs.matrix.Strategy = STRATEGY, sigma: float = SIGMA, seed: int = 11) -> Array:
    """C (sums of gradients + rows of sigma C^-1 Z), shape (trials, steps): what the accountant looks at."""
    noise = hs.CorrelatedNoise(strategy, x.shape[1], sigma, clipping_norm=1.0, seed=seed, dtype="float64")
    return (strategy.matrix() @ (x + np.array(list(noise)))).T


def distance(losses: Array, reference: Array) -> float:
    """The two-sample Kolmogorov-Smirnov statistic over its critical value."""
    critical = np.sqrt(-np.log(ALARM / 2) / 2 * (1 / len(losses) + 1 / len(reference)))
    return float(stats.ks_2samp(losses, reference, method="asymp").statistic / critical)


def agree(mechanism: hs.BandMF, x: Array, **counts: Array) -> float:
    """The larger distance of both directions."""
    removed = mechanism.privacy_loss(outputs(x), **counts)
    added = -mechanism.privacy_loss(outputs(np.zeros_like(x), seed=12), **counts)
    return max(
        distance(removed, mechanism.sample_losses(REFERENCE, 1, "remove")),
        distance(added, mechanism.sample_losses(REFERENCE, 2, "add")),
    )


SCHEMES: dict[str, Any] = {
    "balls in bins": hs.BallsInBins(STEPS, 7),
    "cold": hs.BMinSep(STEPS, 5, 0.15, False),
    "warm": hs.BMinSep(STEPS, 5, 0.15),
    "warm, listed": hs.BMinSep(STEPS, 5, 0.6),
    "warm, certain": hs.BMinSep(STEPS, 5, 1.0),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", SCHEMES)
def test_schemes(name: str) -> None:
    mechanism = hs.BandMF(STRATEGY, SCHEMES[name], SIGMA)
    assert agree(mechanism, participations(mechanism.batches(TRIALS, seed=3))) < 1.0


def test_poisson() -> None:
    scheme = hs.Poisson(STEPS, 0.1)
    mechanism = hs.BandMF(hs.Identity(STEPS), scheme, SIGMA)
    x = participations(mechanism.batches(TRIALS, seed=3))
    losses = mechanism.privacy_loss(outputs(x, hs.Identity(STEPS)))
    assert distance(losses, mechanism.sample_losses(REFERENCE, 1)) < 1.0
    # And the certified bounds hold for what was really drawn.
    bounds_hold(losses, hs.PoissonSampled(hs.Gaussian(SIGMA), 0.1) * STEPS, "remove")


def test_cyclic_poisson() -> None:
    scheme = hs.CyclicPoisson(STEPS, 5, 0.4)
    x = participations(scheme.batches(5 * TRIALS, seed=3))
    for group in (0, 4):  # four groups have five turns, the last one has four
        part = hs.BandMF(STRATEGY, hs.CyclicPoisson(STEPS, 5, 0.4, group=group), SIGMA)
        mine = np.ascontiguousarray(x[:, group::5])
        assert agree(part, mine) < 1.0
        losses = part.privacy_loss(outputs(mine))
        bounds_hold(losses, part, "remove")
        # One account for all of them.
        bounds_hold(losses, hs.BandMF(STRATEGY, scheme, SIGMA), "remove", exact=group == 0)


@pytest.mark.parametrize("ahead", [0, 3])
def test_multi_attribution(ahead: int) -> None:
    """Users with three examples each and nobody else around: the exact law without running ahead, safer with it."""
    k, n = 3, TRIALS // 2
    scheme = hs.matrix.MultiAttributionBMinSep(STEPS, 5, 0.06, k, "exact")
    owners = np.repeat(np.arange(n), k)
    graph = hs.AttributionGraph.from_edges(np.arange(n * k), owners, n * k, n)
    x = participations(scheme.batches(graph=graph, seed=3, run_ahead=ahead), owners)
    mechanism = hs.BandMF(STRATEGY, scheme, SIGMA)
    if ahead == 0:
        assert agree(mechanism, x) < 1.0
    dominating = hs.BandMF(STRATEGY, hs.matrix.MultiAttributionBMinSep(STEPS, 5, 0.06, k), SIGMA)
    for mine in (mechanism, dominating):
        losses = mine.privacy_loss(outputs(x))
        reference = mine.sample_losses(REFERENCE, 1)
        for epsilon in (0.0, 0.5, 1.0, 2.0):
            assert divergence(losses, epsilon)[0] <= divergence(reference, epsilon)[1]


@pytest.mark.parametrize(("k", "warm"), [(2, True), (3, False)])
def test_independent_examples_of_users(k: int, warm: bool) -> None:
    """Users with k examples, every one of which they share with the next user."""
    n = TRIALS
    scheme = hs.BMinSep(STEPS, 5, 0.06, warm, examples_per_user=k)
    owners = np.repeat(np.arange(n), k)
    lists = [[u, (u + 1) % n] if i == k - 1 else [u] for u in range(n) for i in range(k)]
    graph = hs.AttributionGraph.from_lists(lists)
    bounded = hs.BMinSep(STEPS, 5, 0.06, warm, examples_per_user=k + 1)
    x = participations(bounded.batches(graph=graph, seed=3), owners)
    assert agree(hs.BandMF(STRATEGY, scheme, SIGMA), x) < 1.0
    assert agree(hs.BandMF(STRATEGY, bounded, SIGMA), x) > 1.0  # the control


def test_algorithm_4_of_one_user_has_the_law_of_the_conjecture() -> None:
    k, n = 3, TRIALS // 2
    scheme = hs.matrix.MultiAttributionBMinSep(STEPS, 5, 0.06, k)
    owners = np.repeat(np.arange(n), k)
    graph = hs.AttributionGraph.from_edges(np.arange(n * k), owners, n * k, n)
    x = participations(scheme.conjectured_batches(graph=graph, seed=3), owners)
    assert agree(hs.BandMF(STRATEGY, scheme, SIGMA), x) < 1.0


def test_a_wrong_sampler_is_seen() -> None:
    """The control: batches of another scheme than the one accounted. (Cold starts have nearly the same losses here:
    `test_batches_law` sees them.)"""
    mechanism = hs.BandMF(STRATEGY, SCHEMES["warm"], SIGMA)
    for other in (
        hs.BMinSep(STEPS, 5, 0.18),
        hs.BMinSep(STEPS, 6, 0.15),
        hs.Poisson(STEPS, 0.15),
    ):
        assert agree(mechanism, participations(other.batches(TRIALS, seed=3))) > 1.0


# --- Truncated b-min-sep: public counts, one example per run ------------------------------------------------


@pytest.mark.parametrize("warm", [False, True])
def test_truncated_min_sep(warm: bool) -> None:
    """Corollary D.2: 2 where example 0 is in a truncated batch, as it then displaces another."""
    steps, runs, most = 12, 6000, 3
    strategy = hs.BandedToeplitz.square_root(steps, 3)
    scheme = hs.matrix.TruncatedBMinSep(steps, 3, 0.3, dataset_size=10, max_batch_size=most, warm_start=warm)
    mechanism = hs.BandMF(strategy, scheme, SIGMA)
    p, q = np.zeros((steps, runs)), np.zeros((steps, runs))
    others = np.zeros((steps, runs))
    for run in range(runs):
        sampler = scheme.batches(seed=run)
        for i, batch in enumerate(sampler):
            sampled = sampler._core.sampled()
            assert len(batch) == min(len(sampled), most)
            others[i, run] = np.count_nonzero(sampled != 0)
            if 0 in batch:
                cut = len(sampled) > most
                p[i, run], q[i, run] = (2.0, -1.0) if cut else (1.0, 0.0)
    assert np.mean(others >= most) > 0.05
    removed = mechanism.privacy_loss(outputs(p, strategy), others.T)
    added = -mechanism.privacy_loss(outputs(q, strategy, seed=12), others.T)
    assert distance(removed, mechanism.sample_losses(REFERENCE, 1, "remove")) < 1.0
    assert distance(added, mechanism.sample_losses(REFERENCE, 2, "add")) < 1.0


# --- One step in closed form --------------------------------------------------------------------------------


def mixture_loss(y: Array, q: float, shift: float) -> Array:
    """ln of (1 - q) N(0) + q N(shift) over N(0), standard deviation SIGMA."""
    return np.log1p(q * np.expm1((2.0 * shift * y - shift**2) / (2.0 * SIGMA**2)))


def ks_against_mixture(losses: Array, q: float, shift: float) -> float:
    """One-sample statistic over its critical value: the loss grows with y, whose law is a mixture."""

    def cdf(loss: Array) -> Array:
        inside = np.expm1(np.minimum(loss, 600.0)) / q + 1.0
        safe = np.where(inside > 0.0, inside, 1.0)
        y = (2.0 * SIGMA**2 * np.log(safe) + shift**2) / (2.0 * shift)
        law = (1.0 - q) * stats.norm.cdf(y / SIGMA) + q * stats.norm.cdf((y - shift) / SIGMA)
        return np.where(inside > 0.0, law, 0.0)

    return float(stats.kstest(losses, cdf).statistic / np.sqrt(-np.log(ALARM / 2) / 2 / len(losses)))


def divergence(losses: Array, epsilon: float) -> tuple[float, float]:
    """Hoeffding's interval for E (1 - e^(epsilon - loss))_+."""
    value = np.mean(-np.expm1(np.minimum(epsilon - losses, 0.0)))
    width = np.sqrt(np.log(2 / ALARM) / 2 / len(losses))
    return float(value - width), float(value + width)


def bounds_hold(losses: Array, process: Any, adjacency: str, exact: bool = True) -> None:
    profile = hs.account(process, adjacency=adjacency)
    for epsilon in (0.0, 0.3, 1.0, 2.0):
        low, high = divergence(losses, epsilon)
        bounds = profile.delta_bounds(epsilon)
        assert low <= bounds.upper
        if exact:
            assert bounds.lower <= high


def noise(steps: int) -> Array:
    return np.array(
        [
            row[0]
            for row in hs.CorrelatedNoise(
                hs.Identity(steps), 1, SIGMA, clipping_norm=1.0, seed=11, dtype="float64"
            )
        ]
    )


def test_truncated_poisson() -> None:
    """Given the order of the others and whether they fill the batch, a mixture of two: docs/mechanisms/truncated.md, section 3."""
    n, p, most, steps = 9, 0.3, 3, 60_000
    step = hs.TruncatedPoissonSampled(SIGMA, n, p, most)
    sampler = (step * steps).batches(seed=3)
    mine, full = np.zeros(steps, bool), np.zeros(steps, bool)
    for i, batch in enumerate(sampler):
        mine[i] = 0 in batch
        full[i] = np.count_nonzero(sampler._core.sampled()) >= most
    law = step.truncation
    # Example 0 has +1, all others have -1: in a full batch it displaces one of these. In others it is the only change.
    q = law.sampled_if_full
    y = noise(steps)
    losses = np.where(full, mixture_loss(2.0 * mine + y, q, 2.0), mixture_loss(mine + y, p, 1.0))
    assert abs(full.mean() - law.full_high) < 5.0 * np.sqrt(law.full_high / steps)
    assert ks_against_mixture(losses[full], q, 2.0) < 1.0
    assert ks_against_mixture(losses[~full], p, 1.0) < 1.0
    assert ks_against_mixture(losses[full], 1.1 * q, 2.0) > 1.0  # the control
    bounds_hold(losses, step * 1, "remove")


def test_without_replacement() -> None:
    """The mechanism of docs/mechanisms/replacement.md, section 2, which lies on the pair that is accounted."""
    n, m, steps = 10, 3, 60_000
    process = hs.WithoutReplacement(hs.Gaussian(SIGMA), m, n) * steps
    sums = np.array([np.where(batch == 0, 1.0, -1.0).sum() for batch in process.batches(seed=3)])
    losses = mixture_loss(sums + m + noise(steps), m / n, 2.0)
    assert ks_against_mixture(losses, m / n, 2.0) < 1.0
    assert ks_against_mixture(losses, 1.1 * m / n, 2.0) > 1.0  # the control
    bounds_hold(losses, hs.WithoutReplacement(hs.Gaussian(SIGMA), m, n), "replace_one")


def test_with_replacement() -> None:
    n, m, steps = 10, 3, 60_000
    process = hs.WithReplacement(hs.Gaussian(SIGMA), m, n) * steps
    sums = np.array([np.where(batch == 0, 1.0, -1.0).sum() for batch in process.batches(seed=3)])
    y = sums + m + noise(steps)
    weights = stats.binom(m, 1 / n).pmf(np.arange(m + 1))
    shifts = 2.0 * np.arange(m + 1)
    densities = stats.norm.pdf((y[:, None] - shifts) / SIGMA)
    assert np.abs(
        stats.kstest(y, lambda v: stats.norm.cdf((v[:, None] - shifts) / SIGMA) @ weights).statistic
    ) < (np.sqrt(-np.log(ALARM / 2) / 2 / steps))
    losses = np.log(densities @ weights / densities[:, 0])
    bounds_hold(losses, hs.WithReplacement(hs.Gaussian(SIGMA), m, n), "replace_one", exact=False)
