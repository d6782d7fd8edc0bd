"""What the samplers draw, against the enumeration of every run they could draw.

Each chi-square test has a false-alarm rate of 1e-6, and seeds are fixed: what passes once passes always. `test_the_tests_see`
shows that wrong laws are seen.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import hockeystick as hs
import mpmath
import numpy as np
import pytest
from hockeystick import _core
from scipy import stats

from tests import batch_laws as laws

ALARM = 1e-6
RUNS = 6000
USERS = [{0, 1}, {0, 1}, {2}]
GRAPH = hs.AttributionGraph.from_lists([sorted(users) for users in USERS])

MULTI = hs.matrix.MultiAttributionBMinSep(3, 2, 0.4, examples_per_user=2)
GAUSSIAN = hs.Gaussian(1.0)
CASES: dict[str, tuple[Callable[[int], hs.sampling.BatchSampler], laws.Law]] = {
    "poisson": (hs.Poisson(3, 0.3).batches, laws.poisson(2, 3, 0.3)),
    "poisson, ten examples": (hs.Poisson(1, 0.4).batches, laws.poisson(10, 1, 0.4)),
    "poisson, likely": (hs.Poisson(2, 0.9).batches, laws.poisson(3, 2, 0.9)),
    "poisson, mechanism": ((hs.PoissonSampled(GAUSSIAN, 0.3) * 3).batches, laws.poisson(2, 3, 0.3)),
    "dp_sgd": (hs.dp_sgd(1.0, 3, 1, steps=2).batches, laws.poisson(3, 2, 1 / 3)),
    "truncated poisson": (
        (hs.TruncatedPoissonSampled(1.0, 6, 0.6, 2) * 1).batches,
        laws.poisson(6, 1, 0.6, most=2),
    ),
    "truncated poisson, two steps": (
        (hs.TruncatedPoissonSampled(1.0, 3, 0.7, 1) * 2).batches,
        laws.poisson(3, 2, 0.7, most=1),
    ),
    "without replacement": (
        (hs.WithoutReplacement(GAUSSIAN, 3, 7) * 1).batches,
        laws.without_replacement(7, 1, 3),
    ),
    "without replacement, most": (
        (hs.WithoutReplacement(GAUSSIAN, 4, 5) * 2).batches,
        laws.without_replacement(5, 2, 4),
    ),
    "with replacement": (
        (hs.WithReplacement(GAUSSIAN, 3, 3) * 2).batches,
        laws.with_replacement(3, 2, 3),
    ),
    "cyclic poisson": (hs.CyclicPoisson(4, 3, 0.4).batches, laws.cyclic(5, 4, 3, 0.4)),
    "cyclic poisson, cut": (
        hs.CyclicPoisson(3, 2, 0.6, dataset_size=5, max_batch_size=1).batches,
        laws.cyclic(5, 3, 2, 0.6, most=1),
    ),
    "balls in bins": (hs.BallsInBins(5, 3).batches, laws.balls_in_bins(4, 5, 3)),
    "balls in bins, few steps": (hs.BallsInBins(2, 5).batches, laws.balls_in_bins(3, 2, 5)),
    "cold": (hs.BMinSep(4, 2, 0.3, False).batches, laws.min_sep(2, 4, 2, 0.3, False)),
    "warm": (hs.BMinSep(4, 3, 0.3).batches, laws.min_sep(2, 4, 3, 0.3, True)),
    "warm, listed": (hs.BMinSep(4, 3, 0.7).batches, laws.min_sep(2, 4, 3, 0.7, True)),
    "cold, listed": (hs.BMinSep(5, 3, 0.8, False).batches, laws.min_sep(2, 5, 3, 0.8, False)),
    "warm, long separation": (hs.BMinSep(3, 6, 0.15).batches, laws.min_sep(2, 3, 6, 0.15, True)),
    "warm, certain": (hs.BMinSep(4, 3, 1.0).batches, laws.balls_in_bins(3, 4, 3)),
    "r-min-sep": (hs.matrix.RMinSep(3, 2, 0.4).batches, laws.min_sep(3, 3, 2, 0.4, True)),
    "truncated, cold": (
        hs.matrix.TruncatedBMinSep(3, 2, 0.6, 3, 1, False).batches,
        laws.min_sep(3, 3, 2, 0.6, False, most=1),
    ),
    "truncated, warm": (
        hs.matrix.TruncatedBMinSep(2, 3, 0.4, 4, 2).batches,
        laws.min_sep(4, 2, 3, 0.4, True, most=2),
    ),
    "multi-attribution": (
        lambda size, seed: MULTI.batches(seed=seed, graph=GRAPH),
        laws.multi_attribution(USERS, 3, 2, 0.4),
    ),
    "multi-attribution, ahead": (
        lambda size, seed: MULTI.batches(seed=seed, graph=GRAPH, run_ahead=1),
        laws.multi_attribution(USERS, 3, 2, 0.4, ahead=1),
    ),
    "multi-attribution, conjectured": (
        lambda size, seed: MULTI.conjectured_batches(seed=seed, graph=GRAPH),
        laws.multi_attribution(USERS, 3, 2, 0.4, by_participation=True),
    ),
}


def size_of(law: laws.Law) -> int:
    return 1 + max(max(batch, default=0) for run in law for batch in run)


def runs(make: Callable[..., hs.sampling.BatchSampler], size: int, count: int = RUNS) -> list[laws.Run]:
    return [tuple(tuple(batch.tolist()) for batch in make(size, seed=seed)) for seed in range(count)]


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_against_enumeration(name: str) -> None:
    make, law = CASES[name]
    assert laws.p_value(law, runs(make, size_of(law))) > ALARM


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("poisson", laws.poisson(2, 3, 0.27)),
        ("cold", laws.min_sep(2, 4, 2, 0.3, True)),
        ("warm", laws.min_sep(2, 4, 3, 0.3, False)),
        ("warm, listed", laws.min_sep(2, 4, 3, 0.65, True)),
        ("truncated, cold", laws.min_sep(3, 3, 2, 0.55, False, most=1)),
        ("multi-attribution", laws.multi_attribution(USERS, 3, 2, 0.4, by_participation=True)),
        ("multi-attribution, ahead", laws.multi_attribution(USERS, 3, 2, 0.4)),
    ],
)
def test_the_tests_see(name: str, other: laws.Law) -> None:
    make, law = CASES[name]
    assert laws.p_value({**dict.fromkeys(law, 0.0), **other}, runs(make, size_of(law))) < ALARM


# --- The law of the coins, exactly ----------------------------------------------------------------------


def integer(threshold: bytes) -> int:
    return int.from_bytes(threshold, "big")


@pytest.mark.parametrize("p", [1e-9, 1.2548e-4, 0.01, 1 / 3, 0.5, 0.9, 1 - 2.0**-53])
@pytest.mark.parametrize("most", [1, 1000, 2**40])
def test_a_block_has_the_binomial_law_to_256_bits(p: float, most: int) -> None:
    size, thresholds = _core.coin_thresholds(p, 0, most)
    with mpmath.workdps(400):
        tail = mpmath.mpf(1)
        q = 1 - mpmath.mpf(p)
        mass = q**size
        for j, threshold in enumerate(thresholds):
            tail -= mass  # Pr[more than j heads]
            mass *= (size - j) * mpmath.mpf(p) / ((j + 1) * q)
            missing = tail * mpmath.mpf(2) ** 256 - integer(threshold)
            assert -(mpmath.mpf(2) ** -20) < missing < 2
        assert tail - mass < mpmath.mpf(2) ** -256  # what no threshold is for


@pytest.mark.parametrize("p", [1e-300, 1e-80, 1e-9, 1.2548e-4, 0.3, 0.75, 1.0])
@pytest.mark.parametrize("most", [1, 10**9, 2**53])
def test_nobody_is_sampled_more_often_than_accounted(p: float, most: int) -> None:
    # The places of a block are alike, so each has E[heads] / size, and E[heads] is the sum of the tails.
    size, thresholds = _core.coin_thresholds(p, 0, most)
    real = Fraction(sum(map(integer, thresholds)), 2**256 * size) if p < 1.0 else Fraction(1)
    assert real <= Fraction(p)
    assert Fraction(p) - real < Fraction(1, 2**248)


@pytest.mark.parametrize("p", [1e-7, 0.002, 0.3, 1.0])
@pytest.mark.parametrize("weight", [1, 255, 10**6])
def test_stationary_coins(p: float, weight: int) -> None:
    size, thresholds = _core.coin_thresholds(p, weight, 10**7)
    real = Fraction(sum(map(integer, thresholds)), 2**256 * size)
    exact = weight * Fraction(p) / (1 + weight * Fraction(p))
    assert 0 <= exact - real < Fraction(1, 2**248)


def test_many_examples() -> None:
    """Counts and places: every hundredth of the indices is alike, gaps are geometric."""
    n, p, steps = 10**9, 2e-6, 60
    batches = list(hs.Poisson(steps, p).batches(n, seed=4))
    indices = np.concatenate(batches)
    count = len(indices)
    assert abs(count - n * p * steps) < 5.0 * np.sqrt(n * p * steps)
    cells = np.bincount(indices // (n // 100), minlength=100)
    assert stats.chisquare(cells).pvalue > ALARM
    low = np.bincount(indices % 64, minlength=64)
    assert stats.chisquare(low).pvalue > ALARM
    gaps = np.concatenate([np.diff(batch) for batch in batches])
    assert stats.kstest(gaps, stats.geom(p).cdf).pvalue > ALARM
    sizes = [len(batch) for batch in batches]
    assert stats.kstest(sizes, stats.poisson(n * p).cdf).pvalue > ALARM


@pytest.mark.parametrize(("b", "p"), [(8, 0.05), (8, 0.5), (5, 1.0), (40, 0.01)])
def test_warm_start_is_stationary(b: int, p: float) -> None:
    """At every step the same share p_0 takes part, from the first on; and b steps apart, as a renewal chain does."""
    n, steps = 40_000, 60
    scheme = hs.BMinSep(steps, b, p)
    taken = np.zeros((steps, n), dtype=bool)
    for i, batch in enumerate(scheme.batches(n, seed=9)):
        taken[i, batch] = True
    p0 = 1.0 / (1.0 / p + b - 1)
    assert scheme.participation_rate == pytest.approx(p0, rel=1e-12)
    z = (taken.sum(axis=1) - n * p0) / np.sqrt(n * p0 * (1.0 - p0))
    assert np.abs(z).max() < stats.norm.isf(ALARM / 2 / steps)
    # Who takes part in step i is free again in step i + b, and takes part in it with probability p.
    early = taken[: min(b, steps - b)]
    again, before = (taken[b : b + len(early)] & early).sum(), early.sum()
    assert abs(again - before * p) <= 5.0 * np.sqrt(before * p * (1.0 - p))


@pytest.mark.parametrize(("b", "p"), [(2, 0.3), (7, 0.05), (7, 0.6), (30, 1.0), (500, 0.01)])
@pytest.mark.parametrize("warm", [False, True])
def test_separation_is_never_violated(b: int, p: float, warm: bool) -> None:
    n, steps = 2000, 200
    last = np.full(n, -b)
    sampler = hs.matrix.TruncatedBMinSep(steps, b, p, n, 150, warm).batches(seed=3)
    for i, batch in enumerate(sampler):
        assert len(batch) <= 150
        sampled = sampler._core.sampled()
        assert set(batch) <= set(sampled)
        assert (i - last[sampled] >= b).all()
        last[sampled] = i


def couples(examples: int, most: int) -> hs.AttributionGraph:
    """Up to so many examples for each of a number of couples: closed neighbourhoods."""
    rng = np.random.default_rng(5)
    groups = np.sort(np.repeat(np.arange(examples), rng.integers(1, most + 1, examples))[:examples])
    return hs.AttributionGraph.from_lists([[2 * g, 2 * g + 1] for g in rng.permutation(groups).tolist()])


@pytest.mark.parametrize("conjectured", [False, True])
@pytest.mark.parametrize("b", [2, 9])
def test_separation_by_user(b: int, conjectured: bool) -> None:
    graph = couples(800, 4)
    scheme = hs.matrix.MultiAttributionBMinSep(400, b, 0.02, int(graph.user_degrees().max()))
    make = scheme.conjectured_batches if conjectured else scheme.batches
    last = np.full(graph.num_users, -b)
    seen = 0
    for i, batch in enumerate(make(graph=graph, seed=8)):
        users = np.concatenate([graph.users_of(e) for e in batch]) if len(batch) else np.array([], int)
        assert (i - last[users] >= b).all()
        last[users] = i
        seen += len(batch)
    assert seen > 100


def test_the_couplings_behind_the_accounting() -> None:
    """Coins depend on seed and step alone, so the proofs' couplings can be watched.

    Nobody else's examples change anything for a user, and steps before the first only remove participations: Algorithm 3 on
    closed neighbourhoods. There it takes part in no step in which the user of Theorem 6.1, whose law is that of Algorithm 4,
    does not. Nor does anybody in one in which the same coins do not let independent examples take part.
    """
    graph = couples(60, 4)
    most = int(graph.user_degrees().max())
    scheme = hs.matrix.MultiAttributionBMinSep(300, 3, 0.05, most)

    def taken(sampler: hs.sampling.BatchSampler) -> Any:
        present = np.zeros((300, 60), dtype=bool)
        for i, batch in enumerate(sampler):
            present[i, batch] = True
        return present

    crowd = taken(scheme.batches(graph=graph, seed=2))
    late = taken(scheme.batches(graph=graph, seed=2, run_ahead=2))
    participation = taken(scheme.conjectured_batches(graph=graph, seed=2))
    independent = taken(hs.BMinSep(300, 3, 0.05, False, examples_per_user=most).batches(graph=graph, seed=2))
    assert (late <= crowd).all()
    assert (late != crowd).any()
    assert (crowd <= participation).all()
    assert (participation != crowd).any()
    assert (crowd <= independent).all()
    for user in range(0, graph.num_users, 2):
        mine = [user in graph.users_of(e) for e in range(60)]
        alone = hs.AttributionGraph.from_edges(
            np.flatnonzero(mine), np.full(sum(mine), user), 60, graph.num_users
        )
        assert (taken(scheme.batches(graph=alone, seed=2))[:, mine] == crowd[:, mine]).all()
        assert (
            taken(scheme.conjectured_batches(graph=alone, seed=2))[:, mine] == participation[:, mine]
        ).all()


def test_expected_batch_of_multi_attribution() -> None:
    graph = couples(800, 4)
    scheme = hs.matrix.MultiAttributionBMinSep(3000, 5, 0.02, int(graph.user_degrees().max()))
    sizes = [len(batch) for batch in scheme.batches(graph=graph, seed=8, run_ahead=4)]
    expected = hs.sampling.expected_batch_size(graph, 0.02, 5)
    # Batches within b steps depend on each other.
    assert abs(np.mean(sizes) - expected) < 6.0 * np.std(sizes) * np.sqrt(5 / len(sizes))


def test_extremes() -> None:
    def batches(scheme: Any, size: int) -> list[list[int]]:
        return [batch.tolist() for batch in scheme.batches(size, seed=1)]

    assert batches(hs.Poisson(2, 0.0), 5) == [[], []]
    assert batches(hs.Poisson(2, 1.0), 3) == [[0, 1, 2]] * 2
    assert batches(hs.Poisson(2, 5e-324), 2**53) == [[], []]
    assert batches(hs.BMinSep(3, 4, 0.0), 3) == [[], [], []]
    assert batches(hs.BMinSep(3, 2, 1.0, False), 3) == [[0, 1, 2], [], [0, 1, 2]]
    assert batches(hs.BMinSep(3, 2**40, 1.0, False), 1) == [[0], [], []]
    assert batches(hs.BMinSep(2, 2**53, 1e-3), 50) == [[], []]  # stationary: barred for a very long time
    assert batches(hs.CyclicPoisson(4, 3, 1.0), 2) == [[0], [1], [], [0]]
    assert batches(hs.CyclicPoisson(2, 2**53, 1.0), 2) == [[0], [1]]
    assert batches(hs.BallsInBins(2, 2**53), 4) == [[], []]
    assert batches(hs.WithoutReplacement(GAUSSIAN, 4, 4) * 2, 4) == [[0, 1, 2, 3]] * 2
    assert batches(hs.WithReplacement(GAUSSIAN, 3, 1) * 1, 1) == [[0, 0, 0]]
