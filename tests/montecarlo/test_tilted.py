"""Importance sampling: weights against full enumeration, delta against plain sampling and exact accounting."""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import hockeystick as hs
import numpy as np
import pytest
from hockeystick import _core
from hockeystick.mechanisms.descriptions import Composable
from hockeystick.montecarlo import tilted
from hockeystick.montecarlo.beside import curve_beside
from hockeystick.montecarlo.direction import loss_error
from hockeystick.montecarlo.empirical import Empirical
from hockeystick.montecarlo.estimate import estimate_delta
from hockeystick.montecarlo.tilted import Component, Proposal, TiltedValues, log_moment, tune_proposal

from tests import enumeration

MIXTURE = ((0.4, 2, 1.0, 0.0), (0.25, 0, 3.0, 0.4), (0.25, 0, 1.0, 1.2), (0.1, 0, 1.0, 0.0))


def strategy(steps: int, bands: int, toeplitz: bool = True) -> hs.matrix.Strategy:
    coefficients = 1.0 / (1.0 + 0.6 * np.arange(bands))
    if toeplitz:
        return hs.BandedToeplitz(tuple(coefficients.tolist()), steps)
    columns = np.array([coefficients * (1.0 + 0.2 * math.cos(i)) for i in range(steps)])
    for i in range(steps):
        columns[i, steps - i :] = 0.0
    return hs.matrix.Banded(columns)


def small_cases() -> list[tuple[str, hs.BandMF, enumeration.Law]]:
    found = []
    for steps, b, bands, p, warm in [
        (6, 3, 3, 0.3, False),
        (6, 3, 3, 0.3, True),
        (5, 4, 3, 0.4, True),  # n < 2b
        (5, 5, 3, 0.3, False),
        (7, 2, 2, 0.5, True),
        (6, 4, 2, 1.0, True),
        (3, 7, 2, 0.4, True),
        (1, 3, 1, 0.5, True),  # one iteration: the other copy is there or never
    ]:
        scheme = hs.BMinSep(steps, b, p, warm)
        law = enumeration.min_sep(steps, b, p, warm)
        for sigma, toeplitz in ((0.7, True), (1.5, False)):
            mechanism = hs.BandMF(strategy(steps, bands, toeplitz), scheme, sigma)
            found.append((f"min-sep-{steps}-{b}-{bands}-{p}-{warm}-{sigma}", mechanism, law))
    scheme = hs.matrix.MultiAttributionBMinSep(5, 2, 0.2, 2)
    law = enumeration.multi_attribution(5, 2, 0.2, 2)
    found.append(("multi", hs.BandMF(strategy(5, 2), scheme, 1.5), law))
    bins = hs.BallsInBins(7, 3)
    found.append(("bins", hs.BandMF(strategy(7, 4), bins, 1.2), enumeration.balls_in_bins(7, 3)))
    poisson = hs.Poisson(5, 0.3)
    found.append(("poisson", hs.BandMF(hs.Identity(5), poisson, 0.8), enumeration.poisson(5, 0.3)))
    return found


CASES = small_cases()


def log_sums(logs: list[float], terms: list[np.ndarray]) -> np.ndarray:
    stacked = np.array([a + b for a, b in zip(logs, terms, strict=True)])
    return np.asarray(np.logaddexp.reduce(stacked, axis=0))


@pytest.mark.sweep
@pytest.mark.parametrize("case", range(len(CASES)), ids=[name for name, _, _ in CASES])
def test_weights_and_draws_against_enumeration(case: int) -> None:
    _, mechanism, law = CASES[case]
    sigma, matrix = mechanism.noise_multiplier, mechanism.strategy.matrix()
    core = mechanism._tilted(MIXTURE)
    values = np.array([pattern for _, pattern in law])
    weights = np.array([probability for probability, _ in law])
    gram = np.exp((values @ matrix.T) @ (matrix @ values.T) / sigma**2)
    pairs = weights[:, None] * weights * gram
    moment = math.log(pairs.sum())
    assert core.log_normaliser(0) == pytest.approx(moment, abs=1e-12, rel=1e-12)
    assert log_moment(mechanism, 2) == core.log_normaliser(0)

    # Densities of the very outputs that were drawn, from the definitions.
    block = 3
    means, outputs, _, components = core.draws(11, block, 1)
    rows = core.samples(11, block, 1)
    y = outputs * sigma
    ratio = enumeration.log_ratio(law, matrix, sigma, y)
    expected = [2.0 * ratio - moment]
    for _, _, theta, shift in MIXTURE[1:]:
        free = isinstance(mechanism.scheme, hs.BallsInBins)  # theta changes nothing there
        tilts = weights * (1.0 if free else theta) ** values.sum(axis=1)
        total = tilts.sum()
        # N((1 + s) Cx) is the law of the multiples (1 + s) x.
        tilted_law = [(w / total, tuple((1.0 + shift) * v)) for w, v in zip(tilts, values, strict=True)]
        expected.append(enumeration.log_ratio(tilted_law, matrix, sigma, y))
    mixture = log_sums([math.log(w) for w, *_ in MIXTURE], expected)
    assert np.abs(rows[:, 0] - ratio).max() < 1e-10
    assert np.abs(rows[:, 1] - mixture).max() < 1e-10
    for k, density in enumerate(expected):
        assert np.abs(rows[:, 2 + k] - density).max() < 1e-10

    # The coefficients of the means: chi-square against the weights of the pairs (S) and of the patterns (T).
    seen: list[defaultdict[tuple[float, ...], int]] = [defaultdict(int) for _ in MIXTURE]
    counts = np.zeros(len(MIXTURE))
    for block in range(-(-12_000 // core.block_size)):
        means, _, _, components = core.draws(12, block, 1)
        for mean, k in zip(means, components, strict=True):
            seen[k][tuple(np.round(mean, 9))] += 1
            counts[k] += 1
    share = counts / counts.sum()
    for k, (weight, order, theta, shift) in enumerate(MIXTURE):
        assert abs(share[k] - weight) < 4.5 * math.sqrt(weight / counts.sum())
        law_of_means: defaultdict[tuple[float, ...], float] = defaultdict(float)
        if order:
            for (a, left), (b, right) in itertools.product(enumerate(values), enumerate(values)):
                law_of_means[tuple(np.round(left + right, 9))] += pairs[a, b]
        else:
            free = isinstance(mechanism.scheme, hs.BallsInBins)
            for w, v in zip(weights, values, strict=True):
                law_of_means[tuple(np.round((1.0 + shift) * v, 9))] += w * (1.0 if free else theta) ** v.sum()
        total = sum(law_of_means.values())
        assert set(seen[k]) <= set(law_of_means)
        statistic, degrees, rest, expected_rest = 0.0, 0, 0, 0.0
        for mean, mass in law_of_means.items():
            expectation = counts[k] * mass / total
            if expectation >= 5.0:
                statistic += (seen[k][mean] - expectation) ** 2 / expectation
                degrees += 1
            else:
                rest, expected_rest = rest + seen[k][mean], expected_rest + expectation
        assert statistic < degrees + 5.0 * math.sqrt(2.0 * degrees) + 5.0
        assert abs(rest - expected_rest) < 5.0 * math.sqrt(expected_rest) + 5.0


def sampled_cases() -> list[tuple[hs.BandMF, float]]:
    found: list[tuple[hs.BandMF, float]] = []
    for steps, b, bands in [(1, 1, 1), (8, 3, 3), (12, 5, 2), (40, 8, 8), (9, 20, 4), (64, 32, 32)]:
        for p, sigma, warm in [(0.05, 0.8, True), (0.3, 1.5, False), (0.02, 0.5, True)]:
            scheme = hs.BMinSep(steps, b, p, warm)
            mechanism = hs.BandMF(strategy(steps, bands, toeplitz=steps < 40), scheme, sigma)
            found += [(mechanism, epsilon) for epsilon in (0.2, 1.0)]
    for steps, q, sigma in [(10, 0.2, 1.0), (50, 0.02, 0.7)]:
        for epsilon in (0.1, 1.0, 2.0):
            found.append((hs.BandMF(hs.Identity(steps), hs.Poisson(steps, q), sigma), epsilon))
            cyclic = hs.CyclicPoisson(steps, 2, q)
            found.append((hs.BandMF(strategy(steps, 2), cyclic, 1.2 * sigma), epsilon))
    for bins in (5, 40):
        for epsilon in (0.3, 1.0):
            found.append((hs.BandMF(strategy(20, 6), hs.BallsInBins(20, bins), 1.5), epsilon))
    for law in (1, 3):
        for epsilon in (0.3, 1.0):
            scheme = hs.matrix.MultiAttributionBMinSep(20, 3, 0.05, law)
            found.append((hs.BandMF(strategy(20, 3), scheme, 1.0 * law), epsilon))
    return found


def compare(
    blocks: _core.LossSampler, core: _core.TiltedSampler, epsilon: float, plain: int, weighted: int, seed: int
) -> float:
    """The difference of plain and tilted means of delta, in standard errors."""
    count = -(-plain // blocks.block_size)
    sums, squares = blocks.delta_sums(seed, np.array([epsilon]), 0, count)
    n = count * blocks.block_size
    mean = sums.sum() / n
    variance = max(squares.sum() / n - mean**2, mean / n) / n
    bound = core.log_bound(epsilon)
    values = core.values(10_000 + seed, np.array([epsilon]), bound, 0, -(-weighted // core.block_size))[0]
    assert values.min() >= 0.0
    assert values.max() <= 1.0
    found = math.exp(bound) * values.mean()
    other = math.exp(2.0 * bound) * values.var() / len(values)
    return float((found - mean) / math.sqrt(variance + other))


def test_agrees_with_plain_sampling() -> None:
    cases = sampled_cases()
    assert len(cases) >= 50
    scores = [
        compare(mechanism._blocks("remove"), mechanism._tilted(MIXTURE), epsilon, 60_000, 15_000, seed)
        for seed, (mechanism, epsilon) in enumerate(cases)
    ]
    assert max(map(abs, scores)) < 4.0
    assert abs(sum(scores)) < 4.0 * math.sqrt(len(scores))


@pytest.mark.sweep
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0, 8.0, 20.0])
def test_interval_contains_exact_delta(epsilon: float) -> None:
    mechanism = hs.BandMF(hs.Identity(500), hs.Poisson(500, 0.01), 0.8)
    exact = hs.account(mechanism, "remove").delta_bounds(epsilon)
    found = estimate_delta(mechanism, epsilon, 40_000, 3, "tilted", adjacency="remove", confidence=0.999)
    assert found.method == "tilted"
    assert found.lower <= exact.upper
    assert exact.lower <= found.upper
    # Plain sampling would see nothing of delta(8) = 1.15e-16; here 40,000 samples give its size.
    assert found.upper <= (1.5 if epsilon <= 3.0 else 10.0 if epsilon == 8.0 else math.inf) * exact.upper
    assert found.lower >= (0.5 if epsilon <= 3.0 else 0.1 if epsilon == 8.0 else 0.0) * exact.lower


def test_unbiased() -> None:
    # One tuned proposal, many samples: the mean is delta, to less than a hundredth.
    mechanism = hs.BandMF(hs.Identity(20), hs.Poisson(20, 0.05), 0.7)
    for epsilon in (1.0, 3.0):
        exact = hs.account(mechanism, "remove").delta_bounds(epsilon)
        proposal = tune_proposal(mechanism, epsilon, 1)
        values = TiltedValues(mechanism, epsilon, proposal, 1e-9)
        law = values.tally(2, 0, -(-200_000 // values.block_size)).law()
        scale = math.exp(values.log_upper)
        deviation = math.sqrt(law.variance / law.count) * scale
        assert abs(law.mean * scale - exact.upper) < 4.0 * deviation
        assert deviation < 0.01 * exact.upper


def test_planned_bets_cover_and_are_shorter() -> None:
    # The pilot's law fixes the bets; the interval still fails as rarely as it says, for a good and for a bad pilot.
    mechanism = hs.BandMF(hs.Identity(20), hs.Poisson(20, 0.05), 0.7)
    exact = hs.account(mechanism, "remove").delta_bounds(2.0)
    good = tune_proposal(mechanism, 2.0, 1)
    assert good.law is not None
    bad = Empirical.of(np.full(1000, 1e-9))
    proposals = [replace(good, law=law) for law in (good.law, None, bad)]
    values = [TiltedValues(mechanism, 2.0, proposal, 1e-9) for proposal in proposals]
    runs, confidence = 30, 0.8
    missed, widths = np.zeros(3), np.zeros(3)
    for seed in range(runs):
        tally = values[0].tally(100 + seed, 0, 1)
        for k, value in enumerate(values):
            _, (lower, upper) = value.interval(tally, confidence)
            missed[k] += exact.upper < lower or upper < exact.lower
            widths[k] += upper - lower
    expected = runs * (1.0 - confidence)
    assert (missed <= expected + 4.0 * math.sqrt(expected)).all()
    assert widths[0] < 0.95 * widths[1]
    # What a bad plan costs is bounded: a quarter of the capital is on the default bets.
    assert widths[2] < 1.6 * widths[1]
    law, drawn = good.law, values[0].tally(7, 0, 20).law()
    assert law.mean == pytest.approx(drawn.mean, rel=0.1)
    assert law.variance == pytest.approx(drawn.variance, rel=0.3)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("others", "epsilons"),
    [
        (hs.Gaussian(2.0), (0.5, 3.0, 5.0)),
        (hs.Gaussian(0.5), (2.0, 10.0)),
        (hs.Laplace(3.0) * 2, (1.0, 4.0)),
        (hs.ApproximateDP(0.3, 1e-6), (1.0, 20.0)),
    ],
    ids=["gaussian", "loud", "laplace", "infinite"],
)
def test_composed_with_others_against_exact_delta(others: Composable, epsilons: tuple[float, ...]) -> None:
    mechanism = hs.BandMF(hs.Identity(20), hs.Poisson(20, 0.05), 0.7)
    profile = hs.account(mechanism + others, "remove")
    for epsilon in epsilons:
        exact = profile.delta_bounds(epsilon)
        settings: dict[str, Any] = {"adjacency": "remove", "confidence": 0.999, "composed_with": others}
        found = estimate_delta(mechanism, epsilon, 40_000, 3, "tilted", **settings)
        assert found.method == "tilted"
        assert found.lower <= exact.upper
        assert exact.lower <= found.upper
        # The curve of the others is only bounded, to 3e-3 of itself, and to a factor of 2 where it becomes flat.
        assert found.upper <= (1.3 if exact.upper > 2e-6 else 2.1) * exact.upper + 1e-12
        assert found.lower >= (0.7 * exact.lower - 1e-12 if exact.upper > 2e-6 else 0.0)
        if exact.upper < 1e-4:
            plain = estimate_delta(mechanism, epsilon, 40_000, 3, "plain", **settings)
            assert found.upper - found.lower < 0.3 * (plain.upper - plain.lower)


def test_composed_values_are_bounded_with_any_proposal() -> None:
    for sigma, epsilon, others in [
        (0.05, 0.0, hs.Gaussian(0.3)),
        (0.3, 5.0, hs.Gaussian(5.0)),
        (3.0, 0.5, hs.RandomizedResponse(0.2) * 3),
        (1.0, 300.0, hs.Laplace(0.01)),
    ]:
        mechanism = hs.BandMF(strategy(30, 4), hs.BMinSep(30, 4, 0.2), sigma)
        curve = curve_beside(hs.mechanisms.Process() + others, "remove", "remove")
        error = loss_error(mechanism)
        parts = (
            Component(0.001, 2),
            Component(0.498, 0, 50.0, 3.0),
            Component(0.5, 0, 0.01, -0.5),
            Component(0.001, 0),
        )
        values = TiltedValues(mechanism, epsilon, Proposal(parts), error, curve=curve)
        law = values.tally(1, 0, 8)  # refuses what exceeds its bound
        estimate, (lower, upper) = values.interval(law, 0.99)
        assert 0.0 <= lower <= estimate <= 1.0
        assert 0.0 < upper <= 1.0


def test_other_direction_composed_is_known_to_be_small() -> None:
    # No loss of direction "add" exceeds -ln Pr[no participation].
    mechanism = hs.BandMF(hs.Identity(20), hs.Poisson(20, 0.01), 0.7)
    others = hs.Gaussian(1.0)
    entries = estimate_delta(mechanism, 7.0, 20_000, 1, composed_with=others).directions
    assert [entry.samples > 0 for entry in entries] == [True, False]
    exact = hs.account(mechanism + others, "add").delta_bounds(7.0)
    assert exact.lower <= entries[1].upper < 1e-8


def test_moments_are_those_of_renyi_divergence() -> None:
    # Independent rounds: M_a = prod_i sum_k C(a, k) p^k (1-p)^{a-k} e^{k (k-1)/(2 sigma^2)}.
    p, sigma, steps = 0.1, 1.3, 7
    mechanism = hs.BandMF(hs.Identity(steps), hs.Poisson(steps, p), sigma)
    for order in (2, 3, 8, 64):
        terms = [
            math.log(math.comb(order, k))
            + k * math.log(p)
            + (order - k) * math.log1p(-p)
            + 0.5 * k * (k - 1) / sigma**2
            for k in range(order + 1)
        ]
        expected = steps * float(np.logaddexp.reduce(terms))
        assert log_moment(mechanism, order) == pytest.approx(expected, rel=1e-12)
    with pytest.raises(hs.ParameterError, match="order = 4"):
        log_moment(hs.BandMF(strategy(9, 3), hs.BMinSep(9, 3, 0.1), 1.0), 4)


def test_proposal_is_tuned_and_bounded() -> None:
    mechanism = hs.BandMF(strategy(200, 8), hs.BMinSep.of_rate(200, 8, 0.01), 0.6)
    proposal = tune_proposal(mechanism, 6.0, 5)
    assert proposal == tune_proposal(mechanism, 6.0, 5)
    assert math.fsum(c.weight for c in proposal.components) == 1.0
    assert proposal.components[0].order == 2
    assert proposal.components[0].weight >= 0.05
    # It beats S alone by much, and plain sampling by more.
    core = mechanism._tilted(((1.0, 2, 1.0, 0.0),))
    values = core.values(1, np.array([6.0]), core.log_bound(6.0), 0, 20)[0]
    alone = values.var() / max(values.mean(), 1e-300) ** 2
    assert proposal.relative_variance < 0.5 * alone
    assert proposal.is_better(10_000, 5.0)
    # Close to a similar mechanism's.
    near = hs.BandMF(mechanism.strategy, mechanism.scheme, 0.63)
    again = tune_proposal(near, 6.0, 6, start=proposal, pilot=(2048, 4096))
    assert again.relative_variance < 3.0 * proposal.relative_variance


def test_bound_holds_with_any_proposal() -> None:
    # Adversarial components: weights close to nothing, far off, and no noise to speak of.
    for sigma, epsilon in [(0.05, 0.0), (0.3, 5.0), (3.0, 0.5), (1.0, 700.0)]:
        mechanism = hs.BandMF(strategy(30, 4), hs.BMinSep(30, 4, 0.2), sigma)
        parts = (
            Component(0.001, 2),
            Component(0.499, 0, 50.0, 3.0),
            Component(0.5, 0, 0.01, -0.5),
        )
        values = TiltedValues(mechanism, epsilon, Proposal(parts), loss_error(mechanism))
        law = values.tally(1, 0, 8)  # refuses what exceeds its bound
        estimate, (lower, upper) = values.interval(law, 0.99)
        assert 0.0 <= lower <= estimate <= 1.0
        assert 0.0 < upper <= 1.0


def answers_alike(go: Callable[..., hs.montecarlo.DeltaEstimate], path: Path) -> hs.montecarlo.DeltaEstimate:
    """What ``go`` finds, on any number of threads and after an interruption."""
    whole = go()
    _core.set_threads(1)
    try:
        assert go() == whole
    finally:
        _core.set_threads(0)

    class Stop(Exception):
        pass

    def interrupt(done: int, total: int) -> None:
        if done:
            raise Stop

    with pytest.raises(Stop):
        go(checkpoint=path, progress=interrupt)
    assert go(checkpoint=path) == whole
    return whole


def test_same_whatever_the_threads_and_after_an_interruption(tmp_path: Path) -> None:
    mechanism = hs.BandMF(strategy(64, 4), hs.BMinSep(64, 4, 0.05), 0.8)

    def go(**settings: object) -> hs.montecarlo.DeltaEstimate:
        return estimate_delta(mechanism, 3.0, 30_000, 7, "tilted", adjacency="remove", **settings)  # type: ignore[arg-type]

    assert answers_alike(go, tmp_path).directions[0].method == "tilted"


def test_auto_chooses() -> None:
    rare = hs.BandMF(hs.Identity(100), hs.Poisson(100, 0.01), 0.6)
    assert estimate_delta(rare, 6.0, 4096, 1, adjacency="remove").method == "tilted"
    assert estimate_delta(rare, 6.0, 100, 1, adjacency="remove").method == "plain"
    # The other direction has samplers of its own (test_half_space.py); what has no table is sampled plainly.
    assert estimate_delta(rare, 0.1, 4096, 1).directions[0].method == "tilted"
    exact = hs.BandMF(strategy(20, 3), hs.matrix.MultiAttributionBMinSep(20, 3, 0.1, 2, "exact"), 1.0)
    assert estimate_delta(exact, 1.0, 4096, 1).directions[0].method == "plain"
    assert tilted.orders(exact) == ()


def test_errors() -> None:
    bounded = hs.BandMF(strategy(20, 5), hs.matrix.RMinSep(20, 3, 0.1), 1.0)
    with pytest.raises(hs.ParameterError, match="method = 'tilted'"):
        estimate_delta(bounded, 1.0, 1000, 1, "tilted", adjacency="remove")
    good = hs.BandMF(strategy(20, 3), hs.BMinSep(20, 3, 0.1), 1.0)
    truncated = hs.BandMF(strategy(20, 3), hs.matrix.TruncatedBMinSep(20, 3, 0.1, 1000, 10), 1.0)
    with pytest.raises(hs.ParameterError, match="method = 'tilted'"):
        estimate_delta(truncated, 1.0, 1000, 1, "tilted", composed_with=hs.Gaussian(1.0))
    with pytest.raises(hs.ParameterError, match="method = 'tilted'"):
        estimate_delta(good, 1.0, 1000, 1, "tilted", adjacency="add", composed_with=hs.Gaussian(1.0))
    with pytest.raises(hs.ParameterError, match="weights"):
        good._tilted(((0.5, 2, 1.0, 0.0),))
    with pytest.raises(hs.ParameterError, match="weight"):
        Component(1.5, 2)
    with pytest.raises(hs.ParameterError, match="epsilon"):
        tune_proposal(good, math.nan, 1)
    with pytest.raises(hs.ParameterError, match="table"):
        tune_proposal(bounded, 1.0, 1)


@pytest.mark.parametrize("min_sep", [2, 5])
def test_one_iteration_against_exact_delta(min_sep: int) -> None:
    # A warm start bars the example from the only iteration, or does not: a sampled Gaussian.
    p, sigma = 0.8, 1.2
    mechanism = hs.BandMF(hs.Identity(1), hs.BMinSep(1, min_sep, p), sigma)
    sampled = hs.PoissonSampled(hs.Gaussian(sigma), p / (1.0 + (min_sep - 1) * p))
    for epsilon in (0.0, 0.5):
        exact = hs.account(sampled, "remove").delta_bounds(epsilon)
        found = hs.estimate_delta(mechanism, epsilon, 100_000, 3, "tilted", adjacency="remove")
        assert found.lower <= exact.upper
        assert exact.lower <= found.upper
        assert found.method == "tilted"


@pytest.mark.parametrize("method", ["plain", "tilted"])
def test_each_end_of_an_interval_takes_half_of_what_may_fail(method: str) -> None:
    """What the certificate of an estimate claims, from its tallies and half of the failure probability, is the upper end of the interval."""
    mechanism = hs.BandMF(hs.BandedToeplitz.square_root(12, 2), hs.BMinSep(12, 2, 0.1), 1.0)
    found = hs.estimate_delta(
        mechanism, 0.5, 20_000, seed=5, method=method, adjacency="remove", confidence=0.9
    )
    (direction,) = found.directions
    assert direction.method == method
    assert direction.evidence is not None
    assert direction.evidence["failure_probability"] == pytest.approx(0.05, rel=1e-12)
    assert direction.evidence["delta"] <= direction.upper == found.upper
