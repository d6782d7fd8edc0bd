"""Importance sampling of truncated batches: every density by enumeration, every value within its bound."""

import itertools
import math
import pickle
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hockeystick as hs
import numpy as np
import pytest
from hockeystick import _core
from hockeystick.matrix.min_sep import TruncatedBMinSep
from hockeystick.montecarlo.direction import Direction
from hockeystick.montecarlo.public_counts import largest_count
from hockeystick.montecarlo.runs import ALONE
from hockeystick.montecarlo.truncation import TwoMixtures, reduction
from hockeystick.montecarlo.verify import TiltedPlan, is_hopeful

from tests import enumeration
from tests.montecarlo.test_tilted import compare, log_sums, strategy

MIXTURE = ((0.4, 2, 1.0, 0.0), (0.25, 0, 3.0, 0.4), (0.25, 0, 1.0, 1.2), (0.1, 0, 1.0, 0.0))

CASES = [
    # steps, separation, bands, p, warm, |D|, most, sigma
    (5, 3, 3, 0.3, True, 8, 2, 0.9),
    (6, 2, 2, 0.3, False, 6, 2, 1.5),
    (4, 6, 3, 0.4, True, 9, 1, 0.8),
    (5, 1, 1, 0.25, True, 8, 2, 1.0),
    (6, 3, 2, 0.2, True, 5, 4, 0.6),  # hardly ever truncated
    (1, 4, 1, 0.6, True, 5, 1, 1.0),
]


def sampler(
    case: tuple[int, int, int, float, bool, int, int, float], direction: str
) -> tuple[hs.BandMF, _core.TiltedSampler, enumeration.Law]:
    steps, b, bands, p, warm, size, most, sigma = case
    scheme = TruncatedBMinSep(steps, b, p, size, most, warm)
    mechanism = hs.BandMF(strategy(steps, bands, toeplitz=steps > 4), scheme, sigma)
    made = _core.TiltedSampler(mechanism._described(), np.array(MIXTURE), size - 1, direction)
    return mechanism, made, enumeration.min_sep(steps, b, p, warm)


def envelope(mechanism: hs.BandMF, direction: str) -> dict[int, float]:
    """Weights of the multiplicities by the formulas of docs/montecarlo/tilted.md, for counts up to |D| - 1."""
    scheme = mechanism.scheme
    assert isinstance(scheme, TruncatedBMinSep)
    most = scheme.max_batch_size
    kept = most / (most + 1)
    if direction == "add":
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
    law: enumeration.Law, r: tuple[int, ...], most: int, direction: str
) -> tuple[enumeration.Law, enumeration.Law]:
    """What is sampled and what it is compared with: P_r and Q_r, direction for "add"."""
    absent = (-1.0, -2.0) if direction == "replace_one" else (0.0, -1.0)
    pair = [enumeration.truncated(law, r, most, *v) for v in ((1.0, 2.0), absent)]
    return (pair[1], pair[0]) if direction == "add" else (pair[0], pair[1])


def least_reference(law: enumeration.Law, most: int, direction: str) -> float:
    """A lower bound on Q_r/R, or P_r/R, for all r."""
    return math.fsum(w * (1.0 / (most + 1) if direction == "remove" else 0.0) ** sum(x) for w, x in law)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("case", "direction"),
    [*itertools.product(CASES, ("remove", "add")), *((case, "replace_one") for case in CASES[:2])],
)
def test_densities_and_draws_against_enumeration(
    case: tuple[int, int, int, float, bool, int, int, float], direction: str
) -> None:
    _, _, _, _, _, size, most, sigma = case
    mechanism, core, law = sampler(case, direction)
    matrix = mechanism.strategy.matrix()
    upper = summed(law, envelope(mechanism, direction))
    values, weights = np.array([x for _, x in upper]), np.array([w for w, _ in upper])
    pairs = weights[:, None] * weights * np.exp((values @ matrix.T) @ (matrix @ values.T) / sigma**2)
    moment = math.log(pairs.sum())
    assert core.log_normaliser(0) == pytest.approx(
        moment - math.log(least_reference(law, most, direction)), abs=1e-9
    )

    # Densities of the very outputs that were drawn, given their public counts.
    means, outputs, counts, components = core.draws(11, 3, 1)
    rows = core.samples(11, 3, 1)
    assert counts.max() <= size - 1
    assert (counts >= most).any()
    chosen = slice(0, 300)
    groups: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    for k, r in enumerate(counts[chosen].astype(int).tolist()):
        groups[tuple(r)].append(k)
    none = math.log(least_reference(law, most, direction))
    for r, members in groups.items():
        y = outputs[members] * sigma
        above, below = given(law, r, most, direction)
        over = enumeration.log_ratio(above, matrix, sigma, y)
        under = enumeration.log_ratio(below, matrix, sigma, y)
        bound = enumeration.log_ratio(upper, matrix, sigma, y)
        assert (over <= bound + 1e-10).all()
        assert (under >= none - 1e-10).all()
        expected = [2.0 * bound - moment - under]
        kept = [(w, sum(x), given([(1.0, x)], r, most, direction)[0]) for w, x in law]
        for _, _, theta, shift in MIXTURE[1:]:
            tilted: enumeration.Law = []
            for w, hits, one in kept:
                tilted += [
                    (w * theta**hits * share, tuple((1.0 + shift) * v for v in values))
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
    for block in range(-(-8000 // core.block_size)):
        means, _, counts, components = core.draws(12, block, 1)
        for mean in means[components == 0]:
            seen[tuple(np.round(mean, 9))] += 1
        plain = means[components == 3]
        cut = counts[components == 3] >= most
        assert set(np.unique(plain[cut])) <= {0.0, -1.0 if direction == "add" else 2.0}
        assert set(np.unique(plain[~cut])) <= {0.0, 0.0 if direction == "add" else 1.0}
        # P given the counts: sampled and surviving, round by round.
        rho = math.fsum(w * x[-1] for w, x in law)
        survival = np.where(
            cut[:, -1], most / (counts[components == 3][:, -1] + 1.0), 0.0 if direction == "add" else 1.0
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
    for case, direction in itertools.product(CASES, ("remove", "add", "replace_one")):
        steps, _, _, _, _, size, most, sigma = case
        mechanism, core, law = sampler(case, direction)
        matrix = mechanism.strategy.matrix()
        upper = summed(law, envelope(mechanism, direction))
        moment = core.log_normaliser(0) + math.log(least_reference(law, most, direction))
        rng = np.random.default_rng(1)
        means = np.array([x for _, x in upper]) @ matrix.T
        y = np.repeat(means, 3, axis=0) * rng.uniform(0.5, 2.0, (3 * len(means), 1))
        y += sigma * rng.standard_normal(y.shape)
        bound = enumeration.log_ratio(upper, matrix, sigma, y)
        # log_bound is that of S with its weight, unless P's is lower.
        scale = {epsilon: core.log_bound(epsilon) for epsilon in (0.0, 1.0, 4.0)}
        levels = sorted({0, most, min(most + 1, size - 1), size - 1})
        for r in itertools.islice(itertools.product(levels, repeat=steps), 0, None, 7):
            above, below = given(law, r, most, direction)
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
                ) / least_reference(law, most, direction) * (1.0 + 1e-9)


def sampled_cases() -> list[tuple[hs.BandMF, float, str]]:
    """Truncation in a tenth to nine tenths of the rounds; (mechanism, epsilon, direction)."""
    found = []
    for steps, b, bands, p, size, most, sigma, warm in [
        (6, 2, 2, 0.1, 41, 3, 1.0, True),
        (10, 3, 3, 0.08, 101, 7, 1.5, False),
        (12, 1, 1, 0.05, 201, 10, 1.0, True),
        (9, 20, 4, 0.05, 400, 12, 1.2, True),
        (40, 8, 8, 0.02, 1000, 18, 1.0, True),
        (40, 4, 2, 0.03, 500, 12, 0.9, False),
        (64, 16, 16, 0.02, 3000, 45, 1.5, True),
        (30, 5, 5, 0.05, 200, 7, 2.0, True),
    ]:
        scheme = TruncatedBMinSep(steps, b, p, size, most, warm)
        mechanism = hs.BandMF(strategy(steps, bands, toeplitz=steps < 40), scheme, sigma)
        found += [(mechanism, 0.3, "remove"), (mechanism, 1.5, "remove"), (mechanism, 0.3, "add")]
        found.append((mechanism, 1.5, "replace_one"))
    return found


def test_agrees_with_plain_sampling() -> None:
    cases = sampled_cases()
    assert len(cases) >= 20
    for mechanism, _, _ in cases[::4]:
        counts = mechanism._blocks("remove").draws(1, 0, 1)[2]
        assert counts is not None
        assert 0.1 < (counts >= mechanism.scheme.max_batch_size).mean() < 0.9  # type: ignore[union-attr]
    scores = [
        compare(
            mechanism._blocks(direction),
            TwoMixtures(mechanism, direction)._tilted(MIXTURE),
            epsilon,
            40_000,
            15_000,
            seed,
        )
        for seed, (mechanism, epsilon, direction) in enumerate(cases)
    ]
    assert max(map(abs, scores)) < 4.0
    assert abs(sum(scores)) < 4.0 * math.sqrt(len(scores))


def test_a_value_above_its_bound_is_refused() -> None:
    mechanism = sampled_cases()[0][0]
    core = TwoMixtures(mechanism, "remove")._tilted(MIXTURE)
    # A bound that is too small by three powers of e: values above 1 stay visible, and are counted.
    values = core.values(1, np.array([0.3]), core.log_bound(0.3) - 3.0, 0, 4)[0]
    assert values.max() > 1.0
    _, refused = _core.spread_values(values)
    assert refused == (values > 1.0).sum() > 0


def test_counts_beyond_the_limit_have_value_zero() -> None:
    # The envelope is made for counts up to a limit; whatever lies beyond is left to the added probability.
    case = CASES[0]
    mechanism, _, _ = sampler(case, "remove")
    most = 3
    core = _core.TiltedSampler(mechanism._described(), np.array(MIXTURE), most)
    counts = core.draws(2, 0, 1)[2]
    beyond = (counts > most).any(axis=1)
    losses = core.samples(2, 0, 1)[:, 0]
    assert beyond.any()
    assert (losses[beyond] == -math.inf).all()
    assert np.isfinite(losses[~beyond]).all()
    assert (core.values(2, np.array([0.0]), core.log_bound(0.0), 0, 1)[0][beyond] == 0.0).all()
    scheme_ = mechanism.scheme
    assert isinstance(scheme_, TruncatedBMinSep)
    limit = largest_count(TruncatedBMinSep(7200, 256, 1.2549e-4, 14_745_600, 1793))
    assert 2100 < limit < 2400
    assert largest_count(scheme_) == scheme_.dataset_size - 1


def test_estimates_with_intervals_and_whatever_the_threads(tmp_path: Path) -> None:
    mechanism = hs.BandMF(strategy(40, 4), TruncatedBMinSep(40, 4, 0.02, 1000, 18), 1.2)

    def go(seed: int, samples: int, method: str, **settings: object) -> hs.montecarlo.DeltaEstimate:
        return hs.estimate_delta(mechanism, 1.0, samples, seed, method, confidence=0.999, **settings)  # type: ignore[arg-type]

    whole, plain = go(3, 30_000, "tilted"), go(4, 200_000, "plain")
    assert [d.method for d in whole.directions] == ["tilted", "tilted"]
    for one, other in zip(whole.directions, plain.directions, strict=True):
        assert one.lower <= other.upper
        assert other.lower <= one.upper
    _core.set_threads(1)
    try:
        assert go(3, 30_000, "tilted") == whole
    finally:
        _core.set_threads(0)
    go(3, 30_000, "tilted", checkpoint=tmp_path)
    assert go(3, 30_000, "tilted", checkpoint=tmp_path) == whole
    with ThreadPoolExecutor(2) as executor:
        assert go(3, 30_000, "tilted", executor=executor) == whole
    # Where as many plain samples see next to nothing.
    rare = hs.estimate_delta(mechanism, 9.0, 30_000, 5, adjacency="zero_out").directions[0]
    seen = hs.estimate_delta(mechanism, 9.0, 30_000, 6, "plain").directions[0]
    assert rare.method == "tilted"
    assert seen.lower <= rare.upper
    assert rare.upper - rare.lower < 0.1 * (seen.upper - seen.lower)
    assert pickle.loads(pickle.dumps(TwoMixtures(mechanism, "add"))) == TwoMixtures(mechanism, "add")


def test_calibration_with_frequent_truncation() -> None:
    columns = hs.BandedToeplitz.square_root(32, 4)
    scheme = TruncatedBMinSep(32, 4, 0.01, 2000, 19)
    epsilon, delta = 3.0, 1e-5
    # delta is about 1e-6, 6e-6 and 5e-5 there.
    found = hs.calibrate_bandmf(
        columns, scheme, epsilon, delta, seed=5, candidates=[1.55, 1.44, 1.3], fallback="unamplified"
    )
    assert isinstance(found.plan, TiltedPlan)
    assert [entry.accepted for entry in found.verifications] == [True, True, False]
    check = hs.estimate_delta(found.mechanism, epsilon, 40_000, 99, "tilted", confidence=0.999)
    assert check.lower <= delta
    assert 0.3 * delta < check.estimate < delta
    # Many participations: no useful bound on the weights, and plain samples do better.
    often = hs.BandMF(columns, TruncatedBMinSep(32, 4, 0.3, 40, 6), 8.0)
    plan = TiltedPlan.of(1e-5, 2**21)
    assert not is_hopeful(often, 1.0, plan, 1, ALONE)
    assert is_hopeful(hs.BandMF(columns, scheme, 3.0), epsilon, plan, 1, ALONE)


def test_what_truncation_adds_is_in_every_bound() -> None:
    mechanism = hs.BandMF(hs.BandedToeplitz.square_root(8, 2), TruncatedBMinSep(8, 2, 0.05, 400, 45), 1.0)
    values = Direction(mechanism, "remove", 2.0)
    extra = values.tilting.extra
    assert values.tilting.mechanism == reduction(mechanism, 2.0).base
    assert 1e-12 < extra < 1e-4
    drawn = values.tilted_values(values.tune(3))
    tally = drawn.tally(7, 0, 4)
    assert drawn.interval(tally, 0.99)[1].upper >= extra
    assert drawn._upper(0.0) >= extra
    for tested in (0.5 * extra, extra, 1.5 * extra, 1e-3):
        allowed = drawn.threshold(tested)
        assert allowed <= 0.0 or math.exp(drawn.log_upper) * (allowed + drawn.resolution) + extra <= tested
