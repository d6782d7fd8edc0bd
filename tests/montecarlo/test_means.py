"""Bounds on means: never wrong more often than they say, for laws made to break them, and how tight they are."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import hockeystick as hs
import mpmath as mp
import numpy as np
import pytest
from hockeystick.montecarlo import evidence
from hockeystick.montecarlo.confidence import kl, mean_interval
from hockeystick.montecarlo.empirical import UNIT, Empirical
from hockeystick.montecarlo.evidence import (
    MeanTest,
    default_bets,
    divide_target,
    evidence_against,
    lower_bound,
    plan_test,
    scaled_threshold,
    upper_bound,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import binom, multinomial

Rng = np.random.Generator
Array = np.ndarray


def bernoulli(mean: float) -> tuple[float, Callable[[Rng, int], Array]]:
    return mean, lambda rng, n: np.where(rng.random(n) < mean, 1.0, 0.0)


def beta(a: float, b: float) -> tuple[float, Callable[[Rng, int], Array]]:
    return a / (a + b), lambda rng, n: rng.beta(a, b, n)


def rare(low: float, high: float, p: float) -> tuple[float, Callable[[Rng, int], Array]]:
    """Nearly always ``low``: the sample mean and variance say nothing about the rest."""
    return low + p * (high - low), lambda rng, n: np.where(rng.random(n) < p, high, low)


LAWS = {
    "bernoulli, half": bernoulli(0.5),
    "bernoulli, few": bernoulli(0.01),
    "bernoulli, many": bernoulli(0.97),
    "beta, wide": beta(0.3, 0.7),
    "beta, narrow": beta(40.0, 60.0),
    "beta, small": beta(0.5, 50.0),
    "rare large values": rare(1e-4, 1.0, 0.01),
    "very rare large values": rare(1e-3, 1.0, 1e-3),
    "rare values of some size": rare(0.0, 0.2, 0.02),
    "rare small values": rare(1.0, 1e-3, 0.01),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", LAWS)
def test_false_alarms(name: str) -> None:
    """1000 samples of 300 values, each asked whether they prove the true mean to be wrong."""
    rate, size = 0.05, 300
    mean, draw = LAWS[name]
    rng = np.random.default_rng(list(LAWS).index(name))
    alarms = {"below": 0, "above": 0, "planned": 0}
    planned = plan_test(min(1.0 - 1e-9, 1.05 * mean), rate, mean=0.5 * mean, variance=0.1 * mean**2)
    normal = 0
    for _ in range(1000):
        values = draw(rng, size)
        seen = Empirical.of(values)
        alarms["below"] += evidence_against(seen, mean) >= math.log(1.0 / rate)
        alarms["above"] += evidence_against(seen, mean, side="above") >= math.log(1.0 / rate)
        alarms["planned"] += evidence_against(seen, mean, planned.bets) >= math.log(1.0 / rate)
        deviation = values.std(ddof=1)
        normal += values.mean() + 1.645 * deviation / math.sqrt(size) < mean
    # Pr[Binomial(1000, .05) > 72] < 1e-3.
    assert max(alarms.values()) <= 72, alarms
    if name.startswith(("rare large", "very rare", "rare values")):
        # What such laws do to bounds that hold in the limit only.
        assert normal > 72


@pytest.mark.sweep
@pytest.mark.parametrize(("samples", "rate"), [(3, 0.3), (20, 0.1), (100, 0.05), (100, 1e-3), (400, 1e-9)])
def test_false_alarms_of_every_bernoulli_law(samples: int, rate: float) -> None:
    # Exact: the probability of the counts that raise a false alarm.
    counts = np.arange(samples + 1)
    laws = [Empirical.of(np.repeat([1.0, 0.0], [count, samples - count])) for count in counts]
    needed = math.log(1.0 / rate)
    for mean in [1e-6, 1e-3, 0.02, 0.2, 0.5, 0.8, 0.99, 1.0 - 1e-5]:
        weights = binom.pmf(counts, samples, mean)
        below = sum(w for w, law in zip(weights, laws, strict=True) if evidence_against(law, mean) >= needed)
        above = sum(
            w
            for w, law in zip(weights, laws, strict=True)
            if evidence_against(law, mean, side="above") >= needed
        )
        assert max(below, above) <= rate


@pytest.mark.parametrize("atoms", [(0.0, 0.3, 1.0), (1e-5, 0.01, 0.5), (0.2, 0.25, 0.3), (0.0, 1e-14, 1.0)])
def test_capital_is_fair(atoms: tuple[float, float, float]) -> None:
    # The expected capital is at most 1, by enumeration: Markov's inequality does the rest.
    samples = 10
    outcomes = [c for c in itertools.product(range(samples + 1), repeat=3) if sum(c) == samples]
    laws = [Empirical.of(np.repeat(atoms, counts)) for counts in outcomes]
    bets = default_bets(samples, 1e-3)
    for weights in [(0.9, 0.05, 0.05), (0.2, 0.2, 0.6), (0.5, 0.499, 0.001)]:
        mean = float(np.dot(atoms, weights))
        chances = multinomial.pmf(outcomes, samples, weights)
        for side in ("below", "above"):
            capital = [evidence_against(law, mean, bets, side) for law in laws]
            assert sum(p * math.exp(w) for p, w in zip(chances, capital, strict=True) if w > 0.0) <= 1.0


def exact_capital(values: list[float], mean: float, bets: evidence.Bets, below: bool) -> mp.mpf:
    total = mp.mpf(0)
    for share, weight in bets:
        product = mp.mpf(weight)
        for value in values:
            z, m, s = mp.mpf(value), mp.mpf(mean), mp.mpf(share)
            product *= 1 + s * ((m - z) / (1 - m) if below else (z - m) / m)
        total += product
    return total


@given(
    values=st.lists(st.floats(0.0, 1.0) | st.floats(0.0, 1e-9), min_size=1, max_size=40),
    mean=st.floats(1e-9, 1.0 - 1e-9),
)
@settings(max_examples=100, deadline=None)
def test_evidence_never_exceeds_the_capital(values: list[float], mean: float) -> None:
    bets = ((1.0, 0.25), (0.999, 0.25), (0.3, 0.25), (1e-6, 0.25))
    seen = Empirical.of(values)
    with mp.workdps(40):
        for below, side in [(True, "below"), (False, "above")]:
            truth = exact_capital(values, mean, bets, below)
            found = evidence_against(seen, mean, bets, side)
            assert mp.exp(mp.mpf(found)) <= max(mp.mpf(1), truth)
            # On the grid nothing is lost but round-off.
            atoms, counts = seen.atoms()
            spread = sum(
                weight
                * math.prod(
                    mp.mpf(
                        1
                        + mp.mpf(share)
                        * ((mean - z) / (1 - mp.mpf(mean)) if below else (z - mean) / mp.mpf(mean))
                    )
                    ** mp.mpf(c)
                    for z, c in zip(map(mp.mpf, atoms.tolist()), counts.tolist(), strict=True)
                )
                for share, weight in bets
            )
            # Moving the mean by 2^-36 of it costs up to that over the mean (or 1 - mean) per value.
            moved = 2.0**-36 * mean + 2.0**-72
            loss = 1e-8 + 1.01 * len(values) * moved / (1.0 - mean if below else mean)
            if spread > 1:
                assert found >= float(mp.log(spread)) - loss


def test_betting_beats_chernoff_at_its_own_bet() -> None:
    # The bet that Chernoff's bound stands for, 1 - q/m, makes at least as much on any law with the same mean.
    rng = np.random.default_rng(3)
    for law in (rng.beta(1.0, 30.0, 2000), rng.random(500), (rng.random(3000) < 0.05) * 1.0):
        seen = Empirical.of(law)
        m = min(0.9, 1.3 * seen.mean)
        chernoff = seen.count * kl(seen.mean, m)
        assert evidence_against(seen, m, ((1.0 - seen.mean / m, 1.0),)) >= chernoff * (1.0 - 1e-6)


@given(
    values=st.lists(st.floats(0.0, 1.0), max_size=30),
    failure=st.floats(1e-300, 0.5),
    scale=st.sampled_from([1.0, 1e-3, 1e-10]),
)
@settings(max_examples=30, deadline=None)
def test_bounds_are_where_the_evidence_says(values: list[float], failure: float, scale: float) -> None:
    seen = Empirical.of(scale * np.array(values))
    lower, upper = hs.montecarlo.mean_bounds(seen, failure)
    mean = seen.mean if values else 0.5
    assert 0.0 <= lower <= mean <= upper <= 1.0
    needed = math.log(2.0 / failure)
    bets = default_bets(max(1, seen.count), failure / 2.0)
    if upper < 1.0:
        assert evidence_against(seen, upper, bets) >= needed * (1.0 - 1e-12)
        assert evidence_against(seen, mean + 0.999 * (upper - mean), bets) < needed
    if lower > 0.0:
        assert evidence_against(seen, lower, bets, "above") >= needed * (1.0 - 1e-12)
        assert evidence_against(seen, lower + 0.001 * (mean - lower), bets, "above") < needed


def test_widths() -> None:
    # Low variance is what bets see and Chernoff's bound does not.
    rng = np.random.default_rng(5)
    values = rng.beta(1.0, 99.0, 100_000)
    lower, upper = hs.montecarlo.mean_bounds(Empirical.of(values), 1e-6)
    assert lower < 0.01 < upper
    assert upper - lower < 0.05 * 0.01
    # And where there is nothing to see, bets lose little.
    coins = (rng.random(100_000) < 0.01) * 1.0
    lower, upper = hs.montecarlo.mean_bounds(Empirical.of(coins), 1e-6)
    least, most = mean_interval(float(coins.mean()), len(coins), 1.0 - 1e-6)
    assert upper - lower < 1.25 * (most - least)


@given(values=st.lists(st.floats(0.0, 1.0) | st.floats(0.0, 1e-11), min_size=2, max_size=50))
@settings(max_examples=100, deadline=None)
def test_spreading_keeps_the_mean(values: list[float]) -> None:
    seen = Empirical.of(values)
    assert seen.count == len(values)
    mean = math.fsum(values) / len(values)
    assert abs(seen.mean - mean) <= 2.0**-36 * mean + 2.0**-72
    variance = np.var(values, ddof=1)
    assert seen.variance >= variance * (1.0 - 1e-9) - 2.0**-35 * mean
    assert (
        seen.variance
        <= variance * (1.0 + 1e-9) + 2.0 * np.mean(np.square(values)) / 1024 + 2.0**-40 * mean + 2.0**-72
    )
    half = len(values) // 2
    assert Empirical.of(values[:half]) + Empirical.of(values[half:]) == seen
    assert Empirical.total([Empirical.of([value]) for value in reversed(values)]) == seen


def test_values_out_of_range_are_errors() -> None:
    for bad in (math.nan, -1e-300, 1.0 + 2.0**-52, math.inf):
        with pytest.raises(ArithmeticError, match="1 values are not numbers between 0 and their bound"):
            Empirical.of([0.5, bad])
    nothing = Empirical.of([])
    assert hs.montecarlo.mean_bounds(nothing, 0.1) == (0.0, 1.0)
    assert evidence_against(nothing, 0.5) == 0.0
    for masses in [(0,) * 641, (1,) + (0,) * 641, (-UNIT, 2 * UNIT) + (0,) * 640]:
        with pytest.raises(hs.ParameterError, match="masses"):
            Empirical(masses)
    with pytest.raises(hs.ParameterTypeError, match="mean of no values"):
        _ = nothing.mean
    with pytest.raises(hs.ParameterError, match="needs at least 2"):
        _ = Empirical.of([0.5]).variance


PILOTS: dict[str, Callable[[Rng, int], Array]] = {
    "beta": lambda rng, n: rng.beta(1.0, 99.0, n),
    "bernoulli": lambda rng, n: (rng.random(n) < 0.01) * 1.0,
    "two scales": lambda rng, n: np.where(rng.random(n) < 0.02, 0.3, 0.004) * rng.random(n) * 2.0,
}


@pytest.mark.parametrize("name", PILOTS)
def test_planned_tests_accept_what_they_should(name: str) -> None:
    draw, rng = PILOTS[name], np.random.default_rng(7)
    test = plan_test(0.02, 1e-9, pilot=Empirical.of(draw(rng, 4000)))
    accepted = sum(test.accepts(Empirical.of(draw(rng, test.samples))) for _ in range(100))
    assert accepted >= 98
    # Too few values prove nothing, however good they are; nor do other values.
    assert not test.accepts(Empirical.of(draw(rng, test.samples - 1)))
    larger = sum(draw(rng, test.samples) for _ in range(3))
    assert not test.accepts(Empirical.of(np.minimum(1.0, larger)))


def test_planned_tests_reject_what_the_pilot_missed() -> None:
    # The pilot's law, but with a probability of 1 % of a large value that it does not have.
    rate, tested = 0.02, 0.012
    rng = np.random.default_rng(11)
    test = plan_test(tested, rate, pilot=Empirical.of(rng.beta(1.0, 499.0, 1000)))
    accepted = 0
    for _ in range(1000):
        values = rng.beta(1.0, 499.0, test.samples)
        values[rng.random(test.samples) < 0.0101] = 1.0
        accepted += test.accepts(Empirical.of(values))
    # Pr[Binomial(1000, .02) > 34] < 1e-3.
    assert accepted <= 34


def test_one_failure_probability_for_all_candidates() -> None:
    # Algorithm 5 over six candidates, of which the first three violate what is tested, the nearest by a hair.
    tested, rate = divide_target(0.1, share=0.3)
    means = [0.3, 0.2, tested * (1.0 + 1e-6), 0.05, 0.03, 0.01]
    test = plan_test(tested, rate, mean=0.04, variance=0.04 * 0.96)
    released: list[int] = []
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        chosen = len(means)
        for index in reversed(range(len(means))):
            if not test.accepts(Empirical.of((rng.random(test.samples) < means[index]) * 1.0)):
                break
            chosen = index
        released.append(chosen)
    # q = .03, once: Pr[Binomial(1000, .03) > 47] < 1e-3.
    assert sum(index <= 2 for index in released) <= 47
    assert sum(index == 3 for index in released) > 400


@pytest.mark.parametrize("name", ["bernoulli, few", "rare values of some size"])
def test_looking_early_is_paid_for(name: str) -> None:
    # Asked after six of 80 blocks of 10 values, 1000 times.
    rate = 0.05
    mean, draw = LAWS[name]
    tested = mean * (1.0 - 1e-9)
    rng = np.random.default_rng(17)
    test = MeanTest(tested, rate, 800, default_bets(800, rate))
    assert test.looks(10)[-1] == 80
    accepted = early = 0
    for _ in range(1000):
        drawn = draw(rng, 800)
        verdicts = [test.accepts_early(Empirical.of(drawn[: 10 * blocks])) for blocks in range(5, 81, 15)]
        early += any(verdicts[:-1])
        accepted += any(verdicts) or test.accepts(Empirical.of(drawn))
    assert early <= accepted <= 72


def test_good_candidates_are_accepted_early() -> None:
    rng = np.random.default_rng(19)
    pilot = Empirical.of(rng.beta(1.0, 99.0, 4000))
    test = plan_test(0.012, 1e-9, pilot=pilot)
    looks = test.looks(16)
    assert looks[-1] == -(-test.samples // 16)
    assert list(looks) == sorted(set(looks))
    needed = []
    for _ in range(20):
        values = rng.beta(1.0, 99.0, looks[-1] * 16)
        needed.append(
            next(n for n in looks if test.accepts_early(Empirical.of(values[: n * 16]))) / looks[-1]
        )
    assert np.mean(needed) < 0.8


def test_sample_sizes() -> None:
    sizes = [
        plan_test(tested, 1e-9, mean=1e-3, variance=1e-6).samples for tested in (1.5e-3, 2e-3, 4e-3, 0.1)
    ]
    assert sizes == sorted(sizes, reverse=True)
    # Betting needs about ln(1/q) / (tested - mean) values where the variance is no obstacle.
    least = math.log(1e9) / 1e-3
    assert least < plan_test(2e-3, 1e-9, mean=1e-3, variance=1e-6).samples < 1.2 * least
    # A mean of 1e-3 with values 0 and 1 needs what Chernoff's bound says where the mean is three deviations unlucky.
    variance = 1e-3 * (1.0 - 1e-3)
    found = plan_test(2e-3, 1e-9, mean=1e-3, variance=variance).samples
    unlucky = 1e-3 + 3.0 * math.sqrt(variance / found)
    assert math.log(1e9) < found * kl(unlucky, 2e-3) < 1.05 * math.log(1e9)
    with pytest.raises(hs.ParameterError, match="as the pilot suggests"):
        plan_test(1e-3, 1e-9, mean=1.1e-3, variance=1e-6)
    with pytest.raises(hs.ParameterTypeError, match="must be given"):
        plan_test(1e-3, 1e-9, mean=1.1e-3)
    with pytest.raises(hs.ParameterTypeError, match="left out"):
        plan_test(1e-3, 1e-9, mean=1e-4, pilot=Empirical.of([0.0]))
    with pytest.raises(hs.ParameterError, match="variance"):
        plan_test(1e-3, 1e-9, mean=1e-4, variance=0.5)


@pytest.mark.parametrize(
    "change",
    [
        {"tested": 0.0},
        {"samples": 0},
        {"failure_probability": 0.0},
        {"failure_probability": 1.1},
        {"bets": ((1.5, 1.0),)},
        {"bets": ((0.5, 1.5), (0.25, -0.6))},
        {"bets": ((0.5, math.nan),)},
    ],
)
def test_tests_that_prove_nothing_are_refused(change: dict[str, Any]) -> None:
    arguments = {
        "tested": 0.1,
        "failure_probability": 0.1,
        "samples": 10,
        "bets": ((0.5, 1.0),),
    }
    MeanTest(**arguments)  # type: ignore[arg-type]
    with pytest.raises(hs.ParameterError):
        MeanTest(**{**arguments, **change})
    staked_twice = ((0.5, 0.6), (0.4, 0.6))
    for ask in (
        lambda: evidence.checked_bets(staked_twice),
        lambda: evidence_against(Empirical.of([0.0]), 0.5, staked_twice),
        lambda: upper_bound(Empirical.of([0.0]), 0.1, staked_twice),
    ):
        with pytest.raises(hs.ParameterError, match="sum to at most 1"):
            ask()


@example(log_bound=33.0, target=1e-300)
@given(log_bound=st.floats(-745.0, 50.0), target=st.floats(1e-300, 1.0))
@settings(max_examples=200, deadline=None)
def test_scaled_threshold_is_never_above(log_bound: float, target: float) -> None:
    found = scaled_threshold(target, log_bound)
    with mp.workdps(40):
        truth = min(mp.mpf(1), mp.mpf(target) / mp.exp(mp.mpf(log_bound)))
        assert found <= truth
        assert found >= truth * (1 - mp.mpf(10) ** -10) - mp.mpf(10) ** -299
    if found == 0.0:
        with pytest.raises(hs.ParameterError, match="tested"):
            plan_test(found, 0.1, mean=0.0, variance=0.0)
    if found == 1.0:
        # The bound itself is small enough.
        assert MeanTest(1.0, 0.1, 1).accepts(Empirical.of([1.0]))


@given(target=st.floats(1e-300, 1.0 - 1e-9), share=st.floats(1e-6, 1.0 - 1e-6), probes=st.integers(1, 1000))
@settings(max_examples=200, deadline=None)
def test_parts_of_the_target_add_up(target: float, share: float, probes: int) -> None:
    tested, failure = divide_target(target, share, probes)
    with mp.workdps(60):
        t, q = mp.mpf(tested), mp.mpf(failure)
        assert t + probes * q * (1 - t) <= target
        assert t + probes * q >= target * (1 - 1e-12) - 1e-318


def test_planned_bets_are_as_sound_and_narrower() -> None:
    rng = np.random.default_rng(13)
    pilot = Empirical.of(rng.beta(1.0, 99.0, 5000))
    for draw in PILOTS.values():
        # Also where the pilot was of another law: all have about the mean 0.01.
        mean = 0.01 if draw is not PILOTS["two scales"] else 0.02 * 0.3 + 0.98 * 0.004
        wrong = {"below": 0, "above": 0}
        bets = {side: evidence.plan_bets(pilot, 400, 0.05, side) for side in wrong}
        for _ in range(1000):
            seen = Empirical.of(draw(rng, 400))
            wrong["below"] += evidence_against(seen, mean, bets["below"]) >= math.log(20.0)
            wrong["above"] += evidence_against(seen, mean, bets["above"], "above") >= math.log(20.0)
        assert max(wrong.values()) <= 72
    seen = Empirical.of(rng.beta(1.0, 99.0, 50_000))
    planned, default = (
        hs.montecarlo.mean_bounds(seen, 1e-6, pilot=pilot),
        hs.montecarlo.mean_bounds(seen, 1e-6),
    )
    assert default.lower < planned.lower < 0.01 < planned.upper < default.upper
    assert planned.upper - planned.lower < 0.95 * (default.upper - default.lower)
    # A pilot of nothing, or of nothing but zeros or ones, says little and does no harm.
    for poor in ([], [0.0], [1.0], [0.0, 1.0]):
        lower, upper = hs.montecarlo.mean_bounds(seen, 1e-6, pilot=Empirical.of(poor))
        assert 0.8 * default.lower < lower < 0.01 < upper < 1.2 * default.upper


@pytest.mark.parametrize("above", [True, False])
def test_what_spreading_moves_a_mean_by_is_within_the_bounds(above: bool) -> None:
    """So many values that nothing else is left: all are the same, and no bound is on the wrong side of it."""
    bound, wrong = (upper_bound, 0) if above else (lower_bound, 0)
    for value in np.random.default_rng(0).uniform(0.01, 0.9, 200).tolist():
        one = Empirical.of([value])
        many = Empirical(tuple(mass * 10**30 for mass in one.masses))
        found = bound(many, 0.5, ((1e-10, 1.0),))
        wrong += found < value if above else found > value
    assert not wrong
