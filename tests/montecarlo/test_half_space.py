"""Direction "add": half spaces against full enumeration, delta against plain sampling and exact accounting."""

import itertools
import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import hockeystick as hs
import numpy as np
import pytest
from hockeystick import _core
from hockeystick.montecarlo.direction import Direction, loss_error
from hockeystick.montecarlo.estimate import estimate_delta
from hockeystick.montecarlo.half_space import (
    HalfSpaceProposal,
    HalfSpaceValues,
    certain_bound,
    half_space,
    log_cap,
    sampler,
    tune_half_space,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tests import enumeration
from tests.montecarlo.test_tilted import answers_alike, strategy


def small_cases() -> list[tuple[str, hs.BandMF, enumeration.Law]]:
    found = []
    for steps, b, bands, p, warm in [
        (6, 3, 3, 0.3, False),
        (6, 3, 3, 0.3, True),
        (5, 4, 3, 0.4, True),  # n < 2b
        (3, 7, 2, 0.2, True),  # n < b
        (7, 2, 2, 0.5, True),
        (6, 4, 2, 1.0, True),
    ]:
        law = enumeration.min_sep(steps, b, p, warm)
        for sigma, toeplitz in ((0.6, True), (1.5, False)):
            mechanism = hs.BandMF(strategy(steps, bands, toeplitz), hs.BMinSep(steps, b, p, warm), sigma)
            found.append((f"min-sep-{steps}-{b}-{bands}-{p}-{warm}-{sigma}", mechanism, law))
    for kind, maker in (
        ("dominating", enumeration.multi_attribution),
        ("exact", enumeration.isolated_user),
    ):
        for steps, b in ((5, 2), (5, 3), (3, 4)):
            scheme = hs.matrix.MultiAttributionBMinSep(steps, b, 0.2, 2, kind)
            found.append(
                (
                    f"multi-{kind}-{steps}-{b}",
                    hs.BandMF(strategy(steps, 2), scheme, 1.5),
                    maker(steps, b, 0.2, 2),
                )
            )
    for bins in (3, 9):
        mechanism = hs.BandMF(strategy(7, 4), hs.BallsInBins(7, bins), 1.2)
        found.append((f"bins-{bins}", mechanism, enumeration.balls_in_bins(7, bins)))
    found.append(("poisson", hs.BandMF(hs.Identity(5), hs.Poisson(5, 0.3), 0.8), enumeration.poisson(5, 0.3)))
    return found


CASES = small_cases()
each_case = pytest.mark.parametrize("case", range(len(CASES)), ids=[name for name, _, _ in CASES])


def with_participations(law: enumeration.Law) -> tuple[float, enumeration.Law]:
    """Pr[x = 0], and the rest of the law, not normalised."""
    rest = [(p, x) for p, x in law if any(x)]
    return math.fsum(p for p, x in law if not any(x)), rest


def middle(mechanism: hs.BandMF, law: enumeration.Law, share: float) -> float:
    """An epsilon between that of P/Q at 0, where half spaces begin to be of use, and that of Pr[x = 0]."""
    matrix, sigma = mechanism.strategy.matrix(), mechanism.noise_multiplier
    low = -float(enumeration.log_ratio(law, matrix, sigma, np.zeros((1, len(matrix))))[0])
    none = mechanism.no_participation_log_probability
    return low + share * (-none - low) if none > -math.inf else low + 2.0 * share


@each_case
def test_tangent_against_enumeration(case: int) -> None:
    _, mechanism, law = CASES[case]
    matrix, sigma = mechanism.strategy.matrix(), mechanism.noise_multiplier
    core, steps = mechanism._described(), mechanism.scheme.seen_as(mechanism.strategy)[1]
    _, rest = with_participations(law)
    patterns = np.array([x for _, x in rest])
    rng = np.random.default_rng(case)
    for scale in (0.0, 1.0, 3.0, 40.0):
        y = scale * rng.standard_normal(steps)
        found, means = _core.tangent(core, y)
        expected = enumeration.log_ratio(rest, matrix, sigma, sigma * y[np.newaxis])[0]
        assert found == pytest.approx(expected, abs=1e-11, rel=1e-11)
        logs = np.array(
            [enumeration.log_ratio([term], matrix, sigma, sigma * y[np.newaxis])[0] for term in rest]
        )
        weights = np.exp(logs - expected)
        assert means == pytest.approx(weights @ patterns, rel=1e-10, abs=1e-300)


@pytest.mark.sweep
@each_case
def test_nothing_counts_outside_the_half_space(case: int) -> None:
    # Outputs that try to be outside and have P/Q < e^-epsilon: from P/Q = e^-epsilon in every direction, as far as
    # minimisation gets along the half space's border, and millions of samples of Q.
    _, mechanism, law = CASES[case]
    matrix, sigma = mechanism.strategy.matrix(), mechanism.noise_multiplier
    rng = np.random.default_rng(case)
    for share in (0.1, 0.5, 0.9):
        epsilon = middle(mechanism, law, share)
        found = half_space(mechanism, epsilon, loss_error(mechanism))
        assert found is not None
        normal, threshold = found.direction, found.threshold
        assert threshold < 0.0
        assert math.fsum(normal**2) == pytest.approx(1.0, abs=1e-13)
        border = threshold + 1e-9
        y = rng.standard_normal((4000, len(matrix))) * rng.choice([0.1, 1.0, 3.0, 10.0], (4000, 1))
        y += (border - y @ normal)[:, np.newaxis] * normal
        for _ in range(60):
            # The gradient of ln P/Q along the border, downhill.
            ratio, step = enumeration.log_ratio(law, matrix, sigma, sigma * y), 1e-5
            assert (ratio > -epsilon).all()
            if len(y) > 40:
                y = y[np.argsort(ratio)[:40]]
                ratio = np.sort(ratio)[:40]
            moves = np.array(
                [
                    (enumeration.log_ratio(law, matrix, sigma, sigma * (y + step * e)) - ratio) / step
                    for e in np.eye(len(matrix))
                ]
            ).T
            moves -= (moves @ normal)[:, np.newaxis] * normal
            y -= 0.5 * moves
            y += (border - y @ normal)[:, np.newaxis] * normal
        # The border is as close as it can be: inside, nearby, P/Q is below e^-epsilon somewhere.
        nearest = threshold * (1.0 + 1e-3) * normal
        assert enumeration.log_ratio(law, matrix, sigma, sigma * nearest[np.newaxis])[0] < -epsilon
        samples = rng.standard_normal((100_000, len(matrix)))
        counting = enumeration.log_ratio(law, matrix, sigma, sigma * samples) < -epsilon
        assert (samples[counting] @ normal <= threshold).all()
        assert counting.mean() <= math.exp(found.log_probability) + 4e-3


@pytest.mark.sweep
@each_case
def test_samples_against_their_definition(case: int) -> None:
    _, mechanism, law = CASES[case]
    matrix, sigma = mechanism.strategy.matrix(), mechanism.noise_multiplier
    epsilon = middle(mechanism, law, 0.5)
    found = half_space(mechanism, epsilon, 1e-9)
    assert found is not None
    shifts = ((0.5, 0.0), (0.3, 1.0), (0.2, 3.5))
    core = sampler(mechanism, found, shifts)
    rows, outputs = core.samples(5, 2, 1), core.draws(5, 2, 1)[1]
    v = outputs @ found.direction
    assert np.abs(rows[:, 0] - v).max() < 1e-11
    assert rows[:, 0].max() <= found.threshold
    assert np.abs(rows[:, 1] - enumeration.log_ratio(law, matrix, sigma, sigma * outputs)).max() < 1e-10
    inside = [math.erfc(-(found.threshold + d) / math.sqrt(2.0)) / 2.0 for _, d in shifts]
    densities = np.array(
        [np.exp(-d * v - d * d / 2.0) * inside[0] / f for (_, d), f in zip(shifts, inside, strict=True)]
    )
    assert pytest.approx(densities, rel=1e-9) == np.exp(rows[:, 3:]).T
    assert np.exp(-rows[:, 2]) == pytest.approx(np.array([w for w, _ in shifts]) @ densities, rel=1e-9)
    # (Q/R) / F has expectation 1 under R; along the direction the law is the mixture's, across it is that of Q.
    rows = np.concatenate([core.samples(6, block, 1) for block in range(-(-40_000 // core.block_size))])
    weights = np.exp(rows[:, 2])
    assert weights.max() <= 2.0 * (1.0 + 1e-12)
    assert abs(weights.mean() - 1.0) < 4.5 * weights.std() / math.sqrt(len(weights))
    for place in (found.threshold - 2.0, found.threshold - 0.5, found.threshold - 0.1):
        expected = sum(
            w * math.erfc(-(place + d) / math.sqrt(2.0)) / 2.0 / f
            for (w, d), f in zip(shifts, inside, strict=True)
        )
        seen = float((rows[:, 0] <= place).mean())
        assert abs(seen - expected) < 4.5 * math.sqrt(expected / len(rows)) + 1e-12
    across = outputs - np.outer(v, found.direction)
    free = len(found.direction) - 1
    assert (
        abs((across**2).sum() / len(across) - free)
        < 5.0 * math.sqrt(2.0 * max(free, 1e-9) / len(across)) + 1e-12
    )


@pytest.mark.sweep
@each_case
def test_delta_against_enumeration(case: int) -> None:
    # With the probability of outputs as weights: Q's samples from enumeration's own generator.
    _, mechanism, law = CASES[case]
    matrix, sigma = mechanism.strategy.matrix(), mechanism.noise_multiplier
    epsilon = middle(mechanism, law, 0.25)
    rng = np.random.default_rng(case)
    ratio = enumeration.log_ratio(law, matrix, sigma, sigma * rng.standard_normal((200_000, len(matrix))))
    y = np.maximum(0.0, -np.expm1(np.minimum(0.0, epsilon + ratio)))
    error = loss_error(mechanism)
    found = half_space(mechanism, epsilon, error)
    assert found is not None
    values = HalfSpaceValues(mechanism, epsilon, tune_half_space(mechanism, epsilon, error, found, 1), error)
    drawn = values.tally(3, 0, -(-20_000 // values.block_size)).law()
    scale = math.exp(values.log_upper)
    deviation = math.hypot(
        math.sqrt(max(y.var(), y.mean() * 1e-5) / len(y)), scale * math.sqrt(drawn.variance / drawn.count)
    )
    assert abs(scale * drawn.mean - y.mean()) < 4.5 * deviation
    assert y.mean() <= certain_bound(mechanism, epsilon, error, found) + 5.0 * math.sqrt(y.var() / len(y))


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("steps", "p", "sigma"), [(1, 0.5, 1.0), (3, 0.3, 1.0), (10, 0.3, 0.6), (100, 0.05, 1.0)]
)
def test_interval_contains_exact_delta(steps: int, p: float, sigma: float) -> None:
    mechanism = hs.BandMF(hs.Identity(steps), hs.Poisson(steps, p), sigma)
    profile = hs.account(mechanism, "add")
    law = enumeration.poisson(1, p)
    one = hs.BandMF(hs.Identity(1), hs.Poisson(1, p), sigma)
    for share in (-0.5, 0.2, 0.6, 0.9, 0.999):
        epsilon = steps * middle(one, law, share)
        if epsilon < 0.0:
            continue
        exact = profile.delta_bounds(epsilon)
        found = estimate_delta(mechanism, epsilon, 40_000, 3, "tilted", adjacency="add", confidence=0.999)
        assert found.lower <= exact.upper
        assert exact.lower <= found.upper
        error = loss_error(mechanism)
        bounded = half_space(mechanism, epsilon, error)
        assert bounded is not None
        assert exact.lower <= certain_bound(mechanism, epsilon, error, bounded)
        assert found.upper <= certain_bound(mechanism, epsilon, error, bounded)
        if steps <= 10 and exact.upper > 1e-9:
            assert found.method == "tilted"
            assert found.upper <= 1.5 * exact.upper
            assert found.lower >= 0.5 * exact.lower


@given(
    steps=st.integers(1, 5),
    p=st.floats(0.01, 0.99),
    sigma=st.floats(0.2, 4.0),
    share=st.floats(0.0, 1.0, exclude_max=True),
)
@settings(max_examples=30, deadline=None)
def test_certain_bound_is_one(steps: int, p: float, sigma: float, share: float) -> None:
    mechanism = hs.BandMF(hs.Identity(steps), hs.Poisson(steps, p), sigma)
    epsilon = -share * mechanism.no_participation_log_probability
    error = loss_error(mechanism)
    found = half_space(mechanism, epsilon, error)
    exact = hs.account(mechanism, "add").delta_bounds(epsilon)
    if found is not None:
        assert exact.lower <= certain_bound(mechanism, epsilon, error, found)
        # All rounds alike: the nearest output with P/Q = e^-epsilon has equal entries, in closed form.
        room = math.expm1(-epsilon / steps) / p + 1.0
        if room > 1e-6:
            nearest = math.sqrt(steps) * (sigma * math.log(room) + 0.5 / sigma)
            assert nearest - 1e-6 <= found.threshold
            assert found.threshold <= max(nearest, 0.0) + 1e-3 * (1.0 + abs(nearest)) or nearest > 0.0


def test_intervals_fail_as_rarely_as_they_say() -> None:
    mechanism = hs.BandMF(hs.Identity(4), hs.Poisson(4, 0.3), 1.0)
    exact = hs.account(mechanism, "add").delta_bounds(1.0)
    error = loss_error(mechanism)
    found = half_space(mechanism, 1.0, error)
    assert found is not None
    values = HalfSpaceValues(mechanism, 1.0, tune_half_space(mechanism, 1.0, error, found, 1), error)
    runs, missed = 40, 0
    for seed in range(runs):
        _, (lower, upper) = values.interval(values.tally(100 + seed, 0, 1), 0.8)
        missed += exact.upper < lower or upper < exact.lower
        assert upper - lower < 0.2 * exact.upper
    assert missed <= 0.2 * runs + 4.0 * math.sqrt(0.2 * runs)


def sampled_cases() -> list[tuple[hs.BandMF, float]]:
    found: list[tuple[hs.BandMF, float]] = []
    for steps, b, bands in [(1, 1, 1), (8, 3, 3), (12, 5, 2), (40, 8, 8), (9, 20, 4), (64, 32, 32)]:
        for p, sigma, warm in [(0.05, 0.8, True), (0.3, 1.5, False)]:
            mechanism = hs.BandMF(strategy(steps, bands, steps < 40), hs.BMinSep(steps, b, p, warm), sigma)
            none = mechanism.no_participation_log_probability
            rest, _ = _core.tangent(mechanism._described(), np.zeros(steps))
            low = -float(np.logaddexp(rest, none))
            found += [(mechanism, 0.5 * low), (mechanism, low + 0.1 * (-none - low))]
    for bins in (5, 40):
        found += [
            (hs.BandMF(strategy(20, 6), hs.BallsInBins(20, bins), 1.5), epsilon) for epsilon in (0.2, 0.35)
        ]
    for kind in ("dominating", "exact"):
        for k in (1, 3):
            scheme = hs.matrix.MultiAttributionBMinSep(20, 3, 0.05, k, kind)
            found.append((hs.BandMF(strategy(20, 3), scheme, 1.0 * k), 0.5))
    for steps, sigma in ((6, 1.0), (30, 2.0)):
        found.append((hs.BandMF(strategy(steps, 5), hs.matrix.RMinSep(steps, 3, 0.1), sigma), 0.3))
        found.append((hs.BandMF(strategy(steps, 3), hs.CyclicPoisson(steps, 3, 0.2), sigma), 0.3))
    return found


def compare(mechanism: hs.BandMF, epsilon: float, plain: int, weighted: int, seed: int) -> float:
    """The difference of the means of plain and of weighted samples, in standard errors."""
    blocks = mechanism._blocks("add")
    count = -(-plain // blocks.block_size)
    sums, squares = blocks.delta_sums(seed, np.array([epsilon]), 0, count)
    n = count * blocks.block_size
    mean = sums.sum() / n
    found = half_space(mechanism, epsilon, 1e-9)
    assert found is not None
    shifts = ((0.7, 0.0), (0.3, max(0.0, -found.threshold) + 1.0))
    core = sampler(mechanism, found, shifts)
    floor, scale = (
        mechanism.no_participation_log_probability,
        log_cap(mechanism, epsilon) + found.log_probability,
    )
    scale -= math.log(0.7)
    values = core.values(
        10_000 + seed, np.array([epsilon]), floor, scale, 0, -(-weighted // core.block_size)
    )[0]
    assert values.min() >= 0.0
    assert values.max() <= 1.0
    here, other = math.exp(scale) * values.mean(), math.exp(2.0 * scale) * values.var() / len(values)
    # Values are below 1, so where plain sampling sees none their variance is at most delta.
    variance = (squares.sum() / n - mean**2 if mean > 0.0 else here) / n
    return float((here - mean) / math.sqrt(variance + other))


def test_agrees_with_plain_sampling() -> None:
    cases = sampled_cases()
    assert len(cases) >= 20
    scores = [compare(*case, 100_000, 30_000, seed) for seed, case in enumerate(cases)]
    assert max(map(abs, scores)) < 4.0
    assert abs(sum(scores)) < 4.0 * math.sqrt(len(scores))


def test_same_whatever_the_threads_and_after_an_interruption(tmp_path: Path) -> None:
    mechanism = hs.BandMF(strategy(32, 8), hs.BMinSep(32, 8, 0.05), 0.7)

    def go(**settings: object) -> hs.montecarlo.DeltaEstimate:
        return estimate_delta(mechanism, 0.9, 30_000, 7, "tilted", adjacency="add", **settings)  # type: ignore[arg-type]

    whole = answers_alike(go, tmp_path)
    assert whole.directions[0].method == "tilted"
    with ThreadPoolExecutor(2) as pool:
        assert go(executor=pool) == whole


def test_draws_pickle() -> None:
    mechanism = hs.BandMF(strategy(12, 3), hs.BMinSep(12, 3, 0.1), 0.7)
    found = half_space(mechanism, 0.8, 1e-9)
    assert found is not None
    values = HalfSpaceValues(mechanism, 0.8, HalfSpaceProposal(found, ((1.0, 0.0),)), 1e-9)
    again = pickle.loads(pickle.dumps(values.draw))
    assert (again(5, 3, 2)[0] == values.draw(5, 3, 2)[0]).all()


def test_only_the_same_proposal_continues_a_run() -> None:
    mechanism = hs.BandMF(strategy(12, 3), hs.BMinSep(12, 3, 0.1), 0.7)
    found = half_space(mechanism, 0.8, 1e-9)
    assert found is not None
    turned = replace(found, direction=found.direction[::-1].copy())
    proposals = [
        HalfSpaceProposal(found, ((1.0, 0.0),)),
        HalfSpaceProposal(found, ((0.5, 0.0), (0.5, 1.0))),
        HalfSpaceProposal(found, ((0.5, 0.0), (0.5, 2.0))),
        HalfSpaceProposal(replace(found, threshold=found.threshold + 0.1), ((1.0, 0.0),)),
        HalfSpaceProposal(replace(found, log_probability=0.5 * found.log_probability), ((1.0, 0.0),)),
        HalfSpaceProposal(turned, ((1.0, 0.0),)),
    ]
    keys = [HalfSpaceValues(mechanism, 0.8, proposal, 1e-9).key(5) for proposal in proposals]
    for one, other in itertools.combinations(keys, 2):
        assert one != other
    assert HalfSpaceValues(mechanism, 0.8, proposals[0], 1e-9).key(5) == keys[0]


def test_a_wrong_bound_is_refused() -> None:
    mechanism = hs.BandMF(hs.Identity(3), hs.Poisson(3, 0.3), 1.0)
    found = half_space(mechanism, 0.8, 1e-9)
    assert found is not None
    values = HalfSpaceValues(mechanism, 0.8, HalfSpaceProposal(found, ((1.0, 0.0),)), 1e-9)
    values.tally(1, 0, 2)
    values.log_scale -= 1.0
    with pytest.raises(ArithmeticError, match="between 0 and their bound"):
        values.tally(1, 0, 2)


def test_auto_chooses() -> None:
    few = hs.BandMF(hs.Identity(5), hs.Poisson(5, 0.3), 1.0)
    many = hs.BandMF(hs.Identity(1000), hs.Poisson(1000, 0.01), 1.0)
    assert estimate_delta(few, 1.4, 20_000, 1, adjacency="add").method == "tilted"
    # Of both directions, one that is certainly small is not drawn.
    entries = estimate_delta(many, 6.0, 4096, 1).directions
    assert [entry.samples > 0 for entry in entries] == [True, False]
    assert entries[1].lower == 0.0
    assert hs.account(many, "add").delta_bounds(6.0).lower <= entries[1].upper < 1e-12


def test_extremes() -> None:
    # None of these may crash, or say less than the truth.
    for mechanism, epsilon in [
        (hs.BandMF(hs.Identity(3), hs.Poisson(3, 0.5), 1e-3), 1.0),
        (hs.BandMF(hs.Identity(3), hs.Poisson(3, 0.5), 1e3), 1e-4),
        (hs.BandMF(hs.Identity(3), hs.Poisson(3, 1e-9), 0.5), 1e-9),
        (hs.BandMF(hs.Identity(3), hs.Poisson(3, 1.0), 1.0), 50.0),
        (hs.BandMF(hs.Identity(2), hs.Poisson(2, 0.3), 1.0), -2.0 * math.log(0.7) * (1.0 - 1e-12)),
        (hs.BandMF(hs.Identity(200), hs.Poisson(200, 0.3), 0.1), 71.0),
    ]:
        exact = hs.account(mechanism, "add").delta_bounds(epsilon)
        for method in ("tilted", "auto"):
            found = estimate_delta(mechanism, epsilon, 4096, 3, method, adjacency="add", confidence=0.9999)
            assert 0.0 <= found.lower <= found.estimate <= found.upper <= 1.0
            assert found.lower <= exact.upper
            assert exact.lower <= found.upper


def test_calibrates_both_directions() -> None:
    # Few participations, so that epsilon is below -ln Pr[x = 0] and "add" must be verified too.
    coefficients, scheme = hs.BandedToeplitz.square_root(8, 4), hs.BMinSep(8, 4, 0.6)
    for adjacency, candidates in (("add", (2.6, 2.4)), ("add_or_remove", (3.0, 2.3))):
        found = hs.calibrate_bandmf(
            coefficients,
            scheme,
            2.0,
            1e-6,
            adjacency=adjacency,
            seed=3,
            method="tilted",
            fallback="unamplified",
            candidates=candidates,
        )
        assert not found.fell_back
        assert found.noise_multiplier == candidates[0]
        accepted = [entry for entry in found.verifications if entry.accepted]
        assert "add" in {direction for direction, _, _ in accepted[-1].means}
        check = estimate_delta(found.mechanism, 2.0, 40_000, 99, adjacency=adjacency)
        assert check.lower <= 1e-6
        assert check.upper >= 1e-8


def test_errors() -> None:
    mechanism = hs.BandMF(strategy(12, 3), hs.BMinSep(12, 3, 0.1), 0.7)
    found = half_space(mechanism, 0.8, 1e-9)
    assert found is not None
    for shifts in (
        ((0.5, 0.0),),
        ((1.0, 1.0),),
        ((0.0, 0.0), (1.0, 1.0)),
        ((math.nan, 0.0),),
        ((0.5, 0.0), (0.5, -1.0)),
    ):
        with pytest.raises(hs.ParameterError, match="weights"):
            sampler(mechanism, found, shifts)
    with pytest.raises(ValueError, match="length 1"):
        _core.HalfSpaceSampler(mechanism._described(), 2.0 * found.direction, -1.0, np.array([[1.0, 0.0]]))
    truncated = hs.BandMF(strategy(12, 3), hs.matrix.TruncatedBMinSep(12, 3, 0.1, 100, 5), 0.7)
    assert half_space(truncated, 0.8, 1e-9) is None


def test_more_noise_than_half_spaces_reach() -> None:
    # The half space ends a million standard deviations away, and so do the shifted laws.
    mechanism = hs.BandMF(hs.Identity(3), hs.BMinSep(3, 1, 0.5), 1e12)
    for method in ("tilted", "auto"):
        found = estimate_delta(mechanism, 0.5, 1024, 3, method, adjacency="add")
        assert 0.0 == found.lower <= found.estimate <= found.upper < 0.01


def test_bounded_losses_bound_from_above_only() -> None:
    # Two participations whose columns overlap: delta by integration over three outputs.
    matrix, sigma, epsilon = np.array([[1.0, 0.0, 0.0], [0.9, 1.0, 0.0], [0.8, 0.9, 1.0]]), 1.0, 0.2
    mechanism = hs.BandMF(
        hs.matrix.LowerTriangular(matrix), hs.matrix.RMinSep(3, 1, 0.4, warm_start=False), sigma
    )
    law = enumeration.min_sep(3, 1, 0.4)
    axis = np.linspace(-6.0, 9.0, 61)
    outputs = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3)
    ratio = np.exp(enumeration.log_ratio(law, matrix, sigma, outputs))
    cell = np.exp(-0.5 * np.square(outputs).sum(axis=1)) * ((axis[1] - axis[0]) ** 3 / (2.0 * math.pi) ** 1.5)
    exact = {
        "remove": float(cell @ np.maximum(ratio - math.exp(epsilon), 0.0)),
        "add": float(cell @ np.maximum(1.0 - math.exp(epsilon) * ratio, 0.0)),
    }
    for method in ("plain", "tilted"):
        found = estimate_delta(mechanism, epsilon, 20_000, 3, method)
        for entry in found.directions:
            assert entry.lower <= exact[entry.direction] <= entry.upper
        assert any(entry.method == method for entry in found.directions)
    # Where columns do not meet, or not twice, losses are exact.
    for steps, bands, min_sep in [(6, 2, 2), (3, 3, 3)]:
        apart = hs.BandMF(strategy(steps, bands), hs.matrix.RMinSep(steps, min_sep, 0.4), sigma)
        assert estimate_delta(apart, epsilon, 10_000, 3).lower > 0.0


@pytest.mark.parametrize("epsilon", [0.0, 0.2])
def test_what_is_certain_is_not_taken_for_less(epsilon: float) -> None:
    """One step of little noise, where delta is nearly all that the half space allows.

    Q/P falls in y, so that outputs below one threshold count: normal distribution functions say how much.
    """
    sigma, p = 0.2, 0.5
    threshold = 0.5 + sigma**2 * math.log((math.exp(-epsilon) - (1.0 - p)) / p)
    without, with_it = stats.norm.cdf(threshold / sigma), stats.norm.cdf((threshold - 1.0) / sigma)
    exact = without - math.exp(epsilon) * ((1.0 - p) * without + p * with_it)
    mechanism = hs.BandMF(hs.Identity(1), hs.Poisson(1, p), sigma)
    for samples, method in ((600, "auto"), (600, "tilted"), (5000, "auto")):
        found = estimate_delta(mechanism, epsilon, samples, 1, method, adjacency="add")
        assert 0.98 * exact < found.lower <= exact <= found.upper < 1.02 * exact


def test_pilots_draw_from_streams_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proposal chosen by the very samples that it is to weigh would make no interval."""
    seeds = []
    tune = Direction.tune

    def watched(self: Direction, seed: int, **settings: Any) -> Any:
        seeds.append(seed)
        return tune(self, seed, **settings)

    monkeypatch.setattr(Direction, "tune", watched)
    mechanism = hs.BandMF(hs.Identity(5), hs.Poisson(5, 0.3), 0.8)
    found = estimate_delta(mechanism, 0.5, 2000, 7, "tilted")
    assert found.seed == 7
    assert len(found.directions) == len(seeds) == len({*seeds})
    assert found.seed not in seeds
