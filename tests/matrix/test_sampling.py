"""Sampling schemes: validation, probabilities, and that what is drawn has the law that was described."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import hockeystick as hs
import mpmath
import numpy as np
import pytest
from hockeystick import matrix as sampling
from scipy import stats

from tests import enumeration


def mechanism(scheme, bands=1, sigma=1.0):
    coefficients = (1.0, 0.6, 0.3)[:bands]
    return hs.BandMF(hs.BandedToeplitz(coefficients, scheme.steps), scheme, sigma)


def drawn(scheme, blocks=4, seed=11, direction="remove"):
    core = mechanism(scheme)._blocks(direction)
    participations, _, counts, _ = core.draws(seed, 0, blocks)
    return participations, counts


def fits(patterns, law, significance=1e-4):
    """Chi-square of observed rows against [(probability, row)]; rare rows are pooled."""
    seen = Counter(map(tuple, patterns.tolist()))
    assert set(seen) <= {values for _, values in law}
    total = len(patterns)
    common = [(total * p, seen[values]) for p, values in law if total * p >= 8]
    rest = (total - sum(e for e, _ in common), total - sum(o for _, o in common))
    if rest[0] >= 8:
        common.append(rest)
    expected, observed = np.array(common).T
    statistic = ((observed - expected) ** 2 / expected).sum()
    return len(common) == 1 or stats.chi2.sf(statistic, len(common) - 1) > significance


LAWS = {
    "poisson": (hs.Poisson(6, 0.3), enumeration.poisson(6, 0.3)),
    "cold": (hs.BMinSep(9, 3, 0.4, warm_start=False), enumeration.min_sep(9, 3, 0.4)),
    "warm": (hs.BMinSep(9, 3, 0.4), enumeration.min_sep(9, 3, 0.4, True)),
    "longer separation than run": (hs.BMinSep(3, 5, 0.4), enumeration.min_sep(3, 5, 0.4, True)),
    "certain": (hs.BMinSep(7, 3, 1.0), enumeration.min_sep(7, 3, 1.0, True)),
    "never": (hs.BMinSep(4, 2, 0.0), enumeration.min_sep(4, 2, 0.0, True)),
    "bins": (hs.BallsInBins(7, 3), enumeration.balls_in_bins(7, 3)),
    "half an epoch": (hs.BallsInBins(3, 6), enumeration.balls_in_bins(3, 6)),
    "multi": (
        hs.matrix.MultiAttributionBMinSep(6, 3, 0.3, 3),
        enumeration.multi_attribution(6, 3, 0.3, 3),
    ),
    "multi, exact": (
        hs.matrix.MultiAttributionBMinSep(6, 3, 0.3, 2, law="exact"),
        enumeration.isolated_user(6, 3, 0.3, 2),
    ),
    "multi, certain": (
        hs.matrix.MultiAttributionBMinSep(5, 2, 1.0, 3),
        enumeration.multi_attribution(5, 2, 1.0, 3),
    ),
}


@pytest.mark.parametrize("name", LAWS)
def test_participations_follow_the_law(name):
    scheme, law = LAWS[name]
    patterns, counts = drawn(scheme)
    assert counts is None
    assert fits(patterns, law)


def test_the_test_of_laws_can_fail():
    patterns, _ = drawn(hs.BMinSep(9, 3, 0.4))
    assert not fits(patterns, enumeration.min_sep(9, 3, 0.43, True))


def joint_law(scheme, direction):
    """(probability, x + r): every other example has the law of one example, whatever the protected one does."""
    one = enumeration.min_sep(scheme.steps, scheme.min_sep, scheme.sampling_probability, scheme.warm_start)
    counts = Counter()
    for combination in itertools.product(one, repeat=scheme.dataset_size - 1):
        r = tuple(map(sum, zip(*(v for _, v in combination), strict=True))) or (0.0,) * scheme.steps
        counts[r] += math.prod(p for p, _ in combination)
    full, cut = (1.0, 2.0) if direction == "remove" else (0.0, -1.0)
    law = Counter()
    for r, weight in counts.items():
        for p, values in enumeration.truncated(one, r, scheme.max_batch_size, full, cut):
            law[values + r] += weight * p
    return [(p, values) for values, p in law.items()]


@pytest.mark.sweep
@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(
    "scheme",
    [
        # Truncation is common, and rare: below one candidate in two samples the counts are drawn given which
        # rounds may be truncated.
        hs.matrix.TruncatedBMinSep(4, 2, 0.5, dataset_size=4, max_batch_size=1),
        hs.matrix.TruncatedBMinSep(4, 2, 0.25, dataset_size=5, max_batch_size=3),
        hs.matrix.TruncatedBMinSep(4, 3, 0.25, dataset_size=5, max_batch_size=3, warm_start=False),
        hs.matrix.TruncatedBMinSep(3, 1, 0.3, dataset_size=4, max_batch_size=3),
        hs.matrix.TruncatedBMinSep(3, 2, 0.3, dataset_size=3, max_batch_size=9),
        hs.matrix.TruncatedBMinSep(3, 6, 0.3, dataset_size=4, max_batch_size=1),
    ],
)
def test_truncated_participations_and_counts(scheme, direction):
    patterns, counts = drawn(scheme, direction=direction)
    assert fits(np.hstack([patterns, counts]), joint_law(scheme, direction))


@pytest.mark.parametrize("limit", [1852, 2160])
def test_counts_of_a_large_dataset(limit):
    # Mean and variance of stationary counts, from tables; every count is needed, or few are.
    scheme = hs.matrix.TruncatedBMinSep(50, 5, 0.02, dataset_size=100_001, max_batch_size=limit)
    _, counts = drawn(scheme, blocks=1)
    rate = 100_000 * sampling.BMinSep(50, 5, 0.02).participation_rate
    mean, n = counts.mean(axis=0), len(counts)
    spread = math.sqrt(rate * (1 - rate / 100_000))
    assert np.all(np.abs(mean - rate) < 5 * spread / math.sqrt(n))
    assert np.all(np.abs(counts.var(axis=0) / spread**2 - 1) < 5 * math.sqrt(2 / n))
    # Two counts less than min_sep apart are negatively correlated: -rate^2 / dataset size.
    covariance = np.mean((counts[:, 10] - rate) * (counts[:, 12] - rate))
    assert abs(covariance + rate**2 / 100_000) < 5 * spread**2 / math.sqrt(n)


def test_probability_from_rate():
    for b, p in ((1, 0.3), (8, 0.05), (256, 1e-4), (32, 1.0)):
        scheme = hs.BMinSep(100, b, p)
        assert hs.matrix.b_min_sep_probability(scheme.participation_rate, b) == pytest.approx(p, rel=1e-13)
    assert hs.matrix.b_min_sep_probability(0.0, 5) == 0.0
    for b in (3, 7, 10, 49, 1000):
        assert hs.matrix.b_min_sep_probability(1 / b, b) == pytest.approx(1.0, rel=1e-12)
    for rate in (0.25 + 1e-12, 0.26):
        with pytest.raises(hs.ParameterError, match=r"participation_rate = 0.2\d+.*\[0, 1/4\]"):
            hs.matrix.b_min_sep_probability(rate, 4)


@pytest.mark.parametrize("name", LAWS)
def test_probability_of_no_participation(name):
    scheme, law = LAWS[name]
    log = scheme.no_participation_log_probability()
    nothing = math.fsum(p for p, values in law if not any(values))
    assert math.exp(log) == pytest.approx(nothing, rel=1e-12)
    assert log <= (math.log(nothing) if nothing else -math.inf) or log == pytest.approx(math.log(nothing))


@pytest.mark.parametrize("p", [1e-17, 1e-12, 1e-6, 0.01, 0.3, 0.9])
@pytest.mark.parametrize(("steps", "b"), [(1, 2), (3, 2), (7, 10), (100, 3), (10**4, 50)])
def test_the_probability_of_no_participation_is_rounded_down(steps, b, p):
    """ln of a sum near 1 had no digits below 1e-16: too large for almost half of what was tried."""
    with mpmath.workdps(60):
        q = 1 - mpmath.mpf(p)
        first = [q**steps] + [p * q ** (steps - i) for i in range(1, min(b, steps))]
        warm = mpmath.log(
            (mpmath.fsum(first) + mpmath.mpf(p) * max(0, b - steps)) / (1 + (b - 1) * mpmath.mpf(p))
        )
        bins = min(2**53, int(steps / p) + 2)
        for scheme, truth in (
            (hs.BMinSep(steps, b, p), warm),
            (hs.BMinSep(steps, b, p, warm_start=False), steps * mpmath.log(q)),
            (hs.BallsInBins(steps, bins), mpmath.log(mpmath.mpf(bins - steps) / bins)),
        ):
            found = scheme.no_participation_log_probability()
            assert truth * (1 + mpmath.mpf(1e-12)) <= found <= truth or (found == -math.inf and truth < -700)


def test_no_participation_of_the_others():
    assert hs.CyclicPoisson(10, 4, 0.1).no_participation_log_probability() == pytest.approx(3 * math.log(0.9))
    assert hs.CyclicPoisson(10, 4, 0.1, group=3).turns == 2
    assert hs.CyclicPoisson(3, 5, 0.1, group=4).no_participation_log_probability() == 0.0
    # Q is a mixture as well, and ln P/Q has no lower bound.
    truncated = hs.matrix.TruncatedBMinSep(5, 2, 0.1, dataset_size=10, max_batch_size=3)
    assert truncated.no_participation_log_probability() == -math.inf


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: hs.Poisson(0, 0.1), r"steps = 0: .*\[1, "),
        (lambda: hs.Poisson(5, 1.1), r"sampling_probability = 1.1: .*\[0, 1\]"),
        (lambda: hs.BMinSep(5, 0, 0.1), r"min_sep = 0"),
        (lambda: hs.BMinSep(5, 2, math.nan), r"sampling_probability = nan"),
        (lambda: hs.BallsInBins(5, 0), r"bins = 0"),
        (lambda: hs.CyclicPoisson(5, 2, 0.1, group=2), r"group = 2: .*\[0, 1\]"),
        (lambda: hs.matrix.MultiAttributionBMinSep(5, 2, 0.1, 0), r"examples_per_user = 0"),
        (lambda: hs.matrix.MultiAttributionBMinSep(5, 2, 0.1, 2, law="best"), r"law = 'best'.*'exact'"),
        (lambda: hs.matrix.TruncatedBMinSep(5, 2, 0.1, 0, 3), r"dataset_size = 0"),
        (lambda: hs.matrix.TruncatedBMinSep(5, 2, 0.1, 9, 0), r"max_batch_size = 0"),
        (lambda: hs.matrix.RMinSep(5, 2, -0.1), r"sampling_probability = -0.1"),
    ],
)
def test_invalid_values(make, message):
    with pytest.raises(hs.ParameterError, match=message):
        make()


def test_invalid_types():
    for make in (
        lambda: hs.BMinSep(5.0, 2, 0.1),
        lambda: hs.BMinSep(5, True, 0.1),
        lambda: hs.BMinSep(5, 2, "0.1"),
        lambda: hs.BMinSep(5, 2, 0.1, warm_start=1),
    ):
        with pytest.raises(hs.ParameterTypeError):
            make()


def test_frozen_and_hashable():
    scheme = hs.BMinSep(10, 2, 0.5)
    assert hash(scheme) == hash(hs.BMinSep(10, 2, 0.5))
    assert scheme == hs.BMinSep(10, 2, 0.5) != hs.BMinSep(10, 2, 0.5, warm_start=False)
    with pytest.raises(AttributeError):
        scheme.steps = 11


def test_worst_cases():
    exact = hs.matrix.MultiAttributionBMinSep(10, 2, 0.5, 3, law="exact")
    assert [case.examples_per_user for case in exact.worst_cases()] == [1, 2, 3]
    other = hs.matrix.MultiAttributionBMinSep(10, 2, 0.5, 3)
    assert other.worst_cases()[-1] == other
    assert [case.examples_per_user for case in other.worst_cases()] == [1, 2, 3]
    assert hs.BMinSep(10, 2, 0.5, examples_per_user=3).worst_cases() == (
        hs.BMinSep(10, 2, 0.5, examples_per_user=3),
    )


@pytest.mark.parametrize(
    "scheme",
    [
        hs.Poisson(8, 0.1),
        hs.CyclicPoisson(8, 3, 0.1),
        hs.BMinSep(8, 3, 0.1),
        sampling.MultiAttributionBMinSep(8, 3, 0.1, 2),
        sampling.TruncatedBMinSep(8, 3, 0.1, 20, 5),
    ],
)
def test_no_strategy_has_one_band_more_than_participations_are_apart(scheme):
    most = 1 if isinstance(scheme, hs.Poisson) else 3
    assert mechanism(scheme, most).strategy.bands == most
    with pytest.raises(hs.ParameterError, match="participations would overlap"):
        hs.BandMF(hs.BandedToeplitz.square_root(8, most + 1), scheme, 1.0)


@pytest.mark.parametrize(("examples", "groups"), [(10, 3), (11, 3), (12, 3), (7, 5), (5, 7)])
def test_a_group_has_the_examples_at_its_places(examples, groups):
    """Each is as large as the first of a dataset that it divides; a group without examples releases nothing."""
    strategy = hs.matrix.Identity(2 * groups)
    for group in range(groups):
        scheme = hs.CyclicPoisson(2 * groups, groups, 0.5, group, examples, 1)
        size = len(range(group, examples, groups))
        process = hs.BandMF(strategy, scheme, 1.0).as_process()
        if not size:
            assert not list(process)
            continue
        same = hs.CyclicPoisson(2 * groups, groups, 0.5, 0, size * groups, 1)
        assert process == hs.BandMF(strategy, same, 1.0).as_process()
        assert f"dataset_size={size}, " in repr(process.items)


@pytest.mark.parametrize(
    ("strategy", "bins", "composed"),
    [
        (hs.matrix.Identity(12), 4, True),
        (hs.BandedToeplitz((2.0,), 12), 12, True),
        # Some places have a turn more than others; later columns are longer; columns overlap.
        (hs.matrix.Identity(12), 5, False),
        (hs.matrix.Identity(12), 24, False),
        (hs.matrix.Banded([[1.0]] * 11 + [[3.0]]), 4, False),
        (hs.BandedToeplitz((1.0, 0.1), 12), 4, False),
    ],
)
def test_one_allocation_stands_for_equal_columns_and_whole_epochs(strategy, bins, composed):
    mechanism = hs.BandMF(strategy, hs.BallsInBins(12, bins), 1.5)
    assert mechanism.is_analytic == composed
    if not composed:
        with pytest.raises(hs.ParameterError, match="no composition"):
            hs.account(mechanism)
        return
    ((allocation, _),) = mechanism.as_process()
    squared = 12 // bins * Fraction(float(strategy.column_norms()[0])) ** 2
    assert (
        Fraction(allocation.noise_multiplier) ** 2 * squared < Fraction(1.5) ** 2
    )  # rounded towards less noise
    # ln sum_j e^{<c_j, y>/s^2 - |c|^2/(2 s^2)}/bins, c_j what place j releases, by sampling.
    norm = math.sqrt(12 // bins) * float(strategy.column_norms()[0]) / 1.5
    y = np.random.default_rng(2).standard_normal((400_000, bins))
    y[:, 0] += norm
    losses = np.log(np.mean(np.exp(norm * y - norm**2 / 2), axis=1))
    values = np.maximum(0.0, 1.0 - np.exp(0.5 - losses))
    error = 6.0 * values.std() / math.sqrt(len(values))
    assert abs(hs.account(mechanism, "remove").delta(0.5) - values.mean()) < error


def test_cut_batches_keep_the_places_of_examples():
    cut = hs.CyclicPoisson(12, 3, 0.5, None, 30, 8)
    assert cut.adjacencies() == ("zero_out", "replace_one")
    assert "add_or_remove" in hs.CyclicPoisson(12, 3, 0.5).adjacencies()


@pytest.mark.parametrize(
    ("scheme", "each"),
    [
        (hs.BMinSep(9, 3, 0.9), 1),
        (hs.BMinSep(9, 3, 0.9, examples_per_user=2), 2),
        (hs.matrix.RMinSep(9, 2, 0.9), 1),
        (hs.BallsInBins(9, 4), 1),
        (hs.matrix.TruncatedBMinSep(9, 3, 0.9, 20, 5), 1),
        (hs.matrix.MultiAttributionBMinSep(9, 3, 0.5, 2), 2),
    ],
)
def test_what_needs_no_amplification_covers_all_that_is_drawn(scheme, each):
    """The least distance of two participations of an example, and how many examples move one step: both are met in samples."""
    apart, most = scheme.unamplified()
    participations = np.asarray(drawn(scheme, blocks=2)[0]) != 0
    steps = [np.flatnonzero(row) for row in participations.reshape(-1, 9)]
    gaps = [int(np.diff(row).min()) for row in steps if len(row) > 1]
    assert most == each
    assert gaps
    if scheme.examples_of_users() is None:
        assert min(gaps) == apart
    assert apart == (scheme.bins if isinstance(scheme, hs.BallsInBins) else scheme.min_sep)


@pytest.mark.parametrize(("apart", "exact"), [(1, True), (2, False), (4, False), (5, False), (6, True)])
def test_a_bar_until_the_end_is_no_longer_than_it_is(apart, exact):
    """Six steps: a bar of five leaves one after the first in which samples extend it and the dominating law does not."""
    scheme = hs.matrix.MultiAttributionBMinSep(6, apart, 0.3, 2)
    assert scheme.losses_are_exact(hs.matrix.Identity(6)) == exact
