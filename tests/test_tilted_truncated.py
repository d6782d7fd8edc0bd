"""Importance sampling of truncated batches: every density by enumeration, every value within its bound."""

import itertools
import math
from collections import defaultdict

import hockeystick as hs
import numpy as np
import pytest
from hockeystick import _core
from hockeystick.sampling import TruncatedBMinSep

from tests import enumeration
from tests.test_tilted import log_sums, strategy

MIXTURE = ((0.4, 2, 1.0, 0.0), (0.25, 0, 3.0, 0.4), (0.25, 0, 1.0, 1.2), (0.1, 0, 1.0, 0.0))

CASES = [
    # steps, separation, bands, p, warm, |D|, most, sigma
    (5, 3, 3, 0.3, True, 8, 2, 0.9),
    (6, 2, 2, 0.3, False, 6, 2, 1.5),
    (4, 6, 3, 0.4, True, 9, 1, 0.8),
    (5, 1, 1, 0.25, True, 8, 2, 1.0),
    (6, 3, 2, 0.2, True, 5, 4, 0.6),  # hardly ever truncated
]


def sampler(
    case: tuple[int, int, int, float, bool, int, int, float], swapped: bool
) -> tuple[hs.BandMF, _core.TiltedSampler, enumeration.Law]:
    steps, b, bands, p, warm, size, most, sigma = case
    scheme = TruncatedBMinSep(steps, b, p, size, most, warm)
    mechanism = hs.BandMF(strategy(steps, bands, toeplitz=steps > 4), scheme, sigma)
    columns, _, core = mechanism._described()
    made = _core.TiltedSampler(columns, steps, core, sigma, np.array(MIXTURE), size - 1, swapped)
    return mechanism, made, enumeration.min_sep(steps, b, p, warm)


def envelope(mechanism: hs.BandMF, swapped: bool) -> dict[int, float]:
    """Weights of the multiplicities by the formulas of docs/tilted.md, for counts up to |D| - 1."""
    scheme = mechanism.scheme
    assert isinstance(scheme, TruncatedBMinSep)
    most = scheme.max_batch_size
    kept = most / (most + 1)
    if swapped:
        return {0: 1.0, -1: kept}
    half = float(np.max(mechanism.strategy.column_norms())) ** 2 / mechanism.noise_multiplier**2 / 2.0
    never = max(1.0 - most / max(scheme.dataset_size, most + 1), kept * math.exp(-2.0 * half))
    return {0: never, 1: max(0.0, 1.0 - 2.0 * math.sqrt(never * kept) * math.exp(-half)), 2: kept}


def summed(law: enumeration.Law, weights: dict[int, float]) -> list[tuple[float, tuple[float, ...]]]:
    """The envelope's patterns: each participation counted so many times, with these weights."""
    found: defaultdict[tuple[float, ...], float] = defaultdict(float)
    for probability, pattern in law:
        for chosen in itertools.product(*(weights if x else (None,) for x in pattern)):
            weight = math.prod(weights[m] for m in chosen if m is not None)
            found[tuple(float(m or 0) for m in chosen)] += probability * weight
    return [(w, x) for x, w in found.items() if w > 0.0]


def given(
    law: enumeration.Law, r: tuple[int, ...], most: int, swapped: bool
) -> tuple[enumeration.Law, enumeration.Law]:
    """What is sampled and what it is compared with: P_r and Q_r, or swapped."""
    pair = [enumeration.truncated(law, r, most, *v) for v in ((1.0, 2.0), (0.0, -1.0))]
    return (pair[1], pair[0]) if swapped else (pair[0], pair[1])


def least_reference(law: enumeration.Law, most: int, swapped: bool) -> float:
    """A lower bound on Q_r/R, or P_r/R, for all r."""
    return math.fsum(w * (0.0 if swapped else 1.0 / (most + 1)) ** sum(x) for w, x in law)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_densities_and_draws_against_enumeration(
    case: tuple[int, int, int, float, bool, int, int, float], swapped: bool
) -> None:
    steps, _, _, _, _, size, most, sigma = case
    mechanism, core, law = sampler(case, swapped)
    matrix = mechanism.strategy.matrix()
    upper = summed(law, envelope(mechanism, swapped))
    values, weights = np.array([x for _, x in upper]), np.array([w for w, _ in upper])
    pairs = weights[:, None] * weights * np.exp((values @ matrix.T) @ (matrix @ values.T) / sigma**2)
    moment = math.log(pairs.sum())
    assert core.log_normaliser(0) == pytest.approx(moment, abs=1e-9)

    # Densities of the very outputs that were drawn, given their public counts.
    means, outputs, components, counts = core.draws(steps, 11, 3)
    assert counts is not None
    rows = core.samples(11, 3, 1)
    assert counts.max() <= size - 1
    assert (counts >= most).any()
    chosen = slice(0, 600)
    groups: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    for k, r in enumerate(counts[chosen].astype(int).tolist()):
        groups[tuple(r)].append(k)
    none = math.log(least_reference(law, most, swapped))
    for r, members in groups.items():
        y = outputs[members] * sigma
        above, below = given(law, r, most, swapped)
        over = enumeration.log_ratio(above, matrix, sigma, y)
        under = enumeration.log_ratio(below, matrix, sigma, y)
        bound = enumeration.log_ratio(upper, matrix, sigma, y)
        assert (over <= bound + 1e-10).all()
        assert (under >= none - 1e-10).all()
        expected = [2.0 * bound - moment - under]
        for _, _, theta, shift in MIXTURE[1:]:
            tilted: enumeration.Law = []
            for w, x in law:
                one, _ = given([(1.0, x)], r, most, swapped)
                tilted += [
                    (w * theta ** sum(x) * share, tuple((1.0 + shift) * v for v in values))
                    for share, values in one
                ]
            total = math.fsum(w for w, _ in tilted)
            scaled = [(w / total, x) for w, x in tilted]
            expected.append(enumeration.log_ratio(scaled, matrix, sigma, y) - under)
        mixture = log_sums([math.log(w) for w, *_ in MIXTURE], expected)
        assert np.abs(rows[members, 0] - (over - under)).max() < 1e-9
        assert np.abs(rows[members, 1] - mixture).max() < 1e-9
        for k, density in enumerate(expected):
            assert np.abs(rows[members, 2 + k] - density).max() < 1e-9

    # The coefficients of the means: of pairs of the envelope's patterns, whatever the counts; of T given them.
    seen: defaultdict[tuple[float, ...], int] = defaultdict(int)
    wrong, drawn = 0.0, 0
    for block in range(-(-12_000 // core.block_size)):
        means, _, components, counts = core.draws(steps, 12, block)
        assert counts is not None
        for mean in means[components == 0]:
            seen[tuple(np.round(mean, 9))] += 1
        plain = means[components == 3]
        cut = counts[components == 3] >= most
        assert set(np.unique(plain[cut])) <= {0.0, -1.0 if swapped else 2.0}
        assert set(np.unique(plain[~cut])) <= {0.0, 0.0 if swapped else 1.0}
        # P given the counts: sampled and surviving, round by round.
        rho = math.fsum(w * x[-1] for w, x in law)
        survival = np.where(
            cut[:, -1], most / (counts[components == 3][:, -1] + 1.0), 0.0 if swapped else 1.0
        )
        wrong += float(((plain[:, -1] != 0.0) - rho * survival).sum())
        drawn += len(plain)
    assert abs(wrong) < 4.5 * math.sqrt(drawn * 0.25)
    law_of_means: defaultdict[tuple[float, ...], float] = defaultdict(float)
    for (a, left), (b, right) in itertools.product(enumerate(values), enumerate(values)):
        law_of_means[tuple(np.round(left + right, 9))] += pairs[a, b] / pairs.sum()
    assert set(seen) <= set(law_of_means)
    count = sum(seen.values())
    statistic, degrees = 0.0, 0
    for mean, mass in law_of_means.items():
        if count * mass >= 5.0:
            statistic += (seen[mean] - count * mass) ** 2 / (count * mass)
            degrees += 1
    assert degrees > 1
    assert statistic < degrees + 5.0 * math.sqrt(2.0 * degrees) + 5.0


def test_every_value_is_below_its_bound_for_every_count() -> None:
    # Not only what is drawn: outputs along every pattern, for every r, against the claim itself.
    for case, swapped in itertools.product(CASES, (False, True)):
        steps, _, _, _, _, size, most, sigma = case
        mechanism, core, law = sampler(case, swapped)
        matrix = mechanism.strategy.matrix()
        upper = summed(law, envelope(mechanism, swapped))
        moment = core.log_normaliser(0)
        rng = np.random.default_rng(1)
        means = np.array([x for _, x in upper]) @ matrix.T
        y = np.repeat(means, 3, axis=0) * rng.uniform(0.5, 2.0, (3 * len(means), 1))
        y += sigma * rng.standard_normal(y.shape)
        bound = enumeration.log_ratio(upper, matrix, sigma, y)
        # log_bound is that of S with its weight, unless P's is lower.
        scale = {epsilon: core.log_bound(epsilon) for epsilon in (0.0, 1.0, 4.0)}
        levels = sorted({0, most, min(most + 1, size - 1), size - 1})
        for r in itertools.islice(itertools.product(levels, repeat=steps), 0, None, 7):
            above, below = given(law, r, most, swapped)
            over = enumeration.log_ratio(above, matrix, sigma, y)
            under = enumeration.log_ratio(below, matrix, sigma, y)
            assert (over <= bound + 1e-9).all()
            for epsilon, log_bound in scale.items():
                with np.errstate(over="ignore"):
                    part = np.maximum(0.0, np.exp(over) - np.exp(epsilon + under))
                    alone = part / (MIXTURE[0][0] * np.exp(2.0 * bound - moment))
                    both = part / (
                        MIXTURE[0][0] * np.exp(2.0 * bound - moment) + MIXTURE[3][0] * np.exp(over)
                    )
                assert both.max() <= math.exp(log_bound) * (1.0 + 1e-9)
                assert alone.max() <= math.exp(
                    moment - epsilon - math.log(4.0 * MIXTURE[0][0])
                ) / least_reference(law, most, swapped) * (1.0 + 1e-9)
