"""Estimate, verify, release by importance sampling."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hockeystick as hs
import numpy as np
import pytest
from hockeystick.montecarlo import verify as module
from hockeystick.montecarlo.empirical import Empirical
from hockeystick.montecarlo.runs import RunOptions, Samples
from hockeystick.montecarlo.verify import Look, TiltedPlan, verify

STRATEGY = hs.BandedToeplitz.square_root(40, 4)
SCHEME = hs.BMinSep(40, 4, 0.02)


def test_calibrates_to_a_small_delta(tmp_path: Path) -> None:
    epsilon, delta = 4.0, 1e-7
    found = hs.calibrate_bandmf(
        STRATEGY, SCHEME, epsilon, delta, seed=3, method="tilted", samples=2**17, fallback="cyclic"
    )
    assert isinstance(found.plan, TiltedPlan)
    assert not found.fell_back
    assert found.verifications[-1].accepted or len(found.verifications) > 1
    plan = found.plan
    assert plan.tested_delta + plan.failure_probability * (1.0 - plan.tested_delta) <= delta
    # Not by luck, and not by much too much noise.
    check = hs.estimate_delta(
        found.mechanism, epsilon, 60_000, 99, "tilted", adjacency="remove", confidence=0.999
    )
    assert check.lower <= delta
    assert check.upper > 0.3 * delta
    assert check.estimate < delta
    assert found.noise_multiplier < 0.98 * found.fallback.noise_multiplier  # type: ignore[union-attr]
    assert all(samples < 10**6 for entry in found.verifications for _, _, samples in entry.means)
    assert "importance sampling" in found.statement()
    assert found.to_dict()["plan"]["tested_delta"] == plan.tested_delta
    # The same again from a checkpoint, and with the candidates given.
    candidates = [entry.noise_multiplier for entry in found.verifications[:2]]
    again = hs.calibrate_bandmf(
        STRATEGY,
        SCHEME,
        epsilon,
        delta,
        seed=3,
        method="tilted",
        samples=2**17,
        candidates=candidates,
        checkpoint=tmp_path,
    )
    assert isinstance(again.plan, TiltedPlan)
    resumed = hs.calibrate_bandmf(
        STRATEGY,
        SCHEME,
        epsilon,
        delta,
        method="tilted",
        samples=2**17,
        candidates=candidates,
        checkpoint=tmp_path,
    )
    assert resumed.verifications == again.verifications
    assert resumed.seed == 3


def test_exact_threshold_of_poisson() -> None:
    # delta of this one is known: what exceeds the tested delta must be rejected, what is half of it accepted.
    def make(sigma: float) -> hs.BandMF:
        return hs.BandMF(hs.Identity(50), hs.Poisson(50, 0.02), sigma)

    mechanism = make(0.7)
    known = hs.account(mechanism, "remove").delta_bounds(5.0)
    # Just too large, by a part in a thousand, with much room for failure: at most a tenth.
    tight = TiltedPlan(known.lower, 2**20, known.lower * 0.999, 0.1)
    wrong = sum(verify(mechanism, 0.7, 5.0, tight, seed, RunOptions("remove")).accepted for seed in range(10))
    assert wrong <= 4  # Pr[Binomial(10, 0.1) > 4] < 2e-3
    # The pilot expects no acceptance, so hardly anything is drawn.
    good = TiltedPlan.of(2.2 * known.upper, 2**20)
    verdict = verify(mechanism, 0.7, 5.0, good, 5, RunOptions("remove"))
    assert verdict.accepted
    assert 0.5 * known.lower < verdict.means[0][1] < 2.0 * known.upper
    # Too few samples allowed: rejected, not accepted on less evidence.
    assert not verify(mechanism, 0.7, 5.0, TiltedPlan.of(2.2 * known.upper, 10), 5).accepted


def test_other_direction_is_verified_too() -> None:
    # epsilon below -ln p_0: "add" is not exactly 0, and needs samples unless its half space proves enough.
    mechanism = hs.BandMF(hs.Identity(10), hs.Poisson(10, 0.1), 1.0)
    epsilon = 0.5
    known = hs.account(mechanism).delta_bounds(epsilon)
    verdict = verify(mechanism, 1.0, epsilon, TiltedPlan.of(4.0 * known.upper, 2**20), 1)
    assert verdict.accepted
    assert [entry[0] for entry in verdict.means] == ["remove", "add"]
    other = hs.account(mechanism, "add").delta_bounds(epsilon)
    for share, accepted in ((0.9, False), (1.5, True)):
        plan = TiltedPlan.of(share * other.upper, 2**20)
        again = verify(mechanism, 1.0, epsilon, plan, 1, RunOptions("add"))
        assert again.accepted == accepted
        assert again.means[0][0] == "add"
        assert (again.means[0][2] > 0) == accepted


def test_composed_with_others() -> None:
    # Alone, a noise multiplier of 0.80 is enough.
    others = hs.Gaussian(2.0)
    found = hs.calibrate_bandmf(
        STRATEGY,
        SCHEME,
        5.0,
        1e-6,
        seed=1,
        samples=2**17,
        method="tilted",
        composed_with=others,
        candidates=(0.85, 0.80),
    )
    assert isinstance(found.plan, TiltedPlan)
    assert [verdict.accepted for verdict in found.verifications] == [True, False]
    means = {direction: (mean, samples) for direction, mean, samples in found.verifications[0].means}
    assert means["remove"][1] > 0
    # No loss of "add" exceeds -ln Pr[no participation]: the others' curve there is proof enough.
    assert means["add"][1] == 0
    assert 0.0 < means["add"][0] < 1e-6
    check = hs.estimate_delta(found.mechanism, 5.0, 50_000, 9, composed_with=others)
    assert check.lower <= 1e-6
    assert check.upper >= 1e-7
    worse = hs.BandMF(STRATEGY, SCHEME, 0.80)
    assert hs.estimate_delta(worse, 5.0, 50_000, 9, composed_with=others).lower > 1e-6


def test_methods() -> None:
    assert isinstance(
        hs.calibrate_bandmf(STRATEGY, SCHEME, 4.0, 1e-7, seed=1, candidates=[]).plan, TiltedPlan
    )
    # Where plain verification is cheap, it is what "auto" takes.
    cheap = hs.calibrate_bandmf(STRATEGY, SCHEME, 1.0, 0.05, seed=1, candidates=[3.0])
    assert not isinstance(cheap.plan, TiltedPlan)
    with pytest.raises(hs.ParameterError, match="threshold"):
        hs.calibrate_bandmf(STRATEGY, SCHEME, 1.0, 1e-7, method="tilted", threshold=1e-8)
    truncated = hs.matrix.TruncatedBMinSep(SCHEME.steps, SCHEME.min_sep, 0.001, 1000, 100)
    with pytest.raises(hs.ParameterError, match="composed_with"):
        hs.calibrate_bandmf(STRATEGY, truncated, 1.0, 1e-7, method="tilted", composed_with=hs.Gaussian(1.0))
    with pytest.raises(hs.ParameterError, match="method"):
        hs.calibrate_bandmf(STRATEGY, SCHEME, 1.0, 1e-7, method="guess")
    bounded = hs.matrix.RMinSep(40, 2, 0.02)
    with pytest.raises(hs.ParameterError, match="table"):
        hs.calibrate_bandmf(STRATEGY, bounded, 1.0, 1e-7, method="tilted")
    assert math.isfinite(TiltedPlan.of(1e-300, 5).tested_delta)


def test_plain_samples_are_compared_with_half_of_what_is_tested() -> None:
    """As many as `TiltedPlan.plain_samples` prove what is tested by a mean of half of it, and by no larger one."""

    class Blocks:
        block_size = 4096

        def __init__(self, mean: float) -> None:
            self.mean = mean

        def delta_sums(self, seed, epsilons, first, count):
            sums = np.full((len(epsilons), count), self.mean * self.block_size)
            return sums, self.mean * sums

    plan = TiltedPlan.of(0.02, 2**15)
    for share, accepted in ((0.45, True), (0.75, False), (0.99, False)):
        mean = share * plan.tested_delta
        mechanism = SimpleNamespace(
            no_participation_log_probability=-np.inf, _blocks=lambda direction, mean=mean: Blocks(mean)
        )
        assert verify(mechanism, 1.0, 0.5, plan, 3).accepted == accepted


def test_the_verifier_draws_what_its_pilot_has_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test is fixed by the pilot's samples, and says nothing of those."""
    seen: set[int] = set()
    decided: list[int] = []
    tally, decide = Samples.tally, module.decide

    def noting(values: Any, seed: int, *rest: Any) -> Any:
        seen.add(seed)
        return tally(values, seed, *rest)

    def deciding(test: Any, values: Any, seed: int, *rest: Any) -> Any:
        assert seen
        assert seed not in seen
        decided.append(seed)
        return decide(test, values, seed, *rest)

    monkeypatch.setattr(Samples, "tally", noting)
    monkeypatch.setattr(module, "decide", deciding)
    mechanism = hs.BandMF(hs.BandedToeplitz.square_root(8, 2), hs.BMinSep(8, 2, 0.05), 4.0)
    assert verify(mechanism, 4.0, 0.5, TiltedPlan.of(1e-2, 2**16), 3).accepted
    assert decided


@pytest.mark.parametrize("threshold", [-1e-12, 0.0, 1e-9, 0.3, 1.0])
def test_a_look_plans_the_test_of_its_plan(threshold: float) -> None:
    """Nothing is accepted where no mean would do, and no test fails more often than the plan says."""
    plan, asked = TiltedPlan.of(1e-3, 2**20), []

    def threshold_of(tested: float) -> float:
        asked.append(tested)
        return threshold

    law = Empirical.of(np.full(4096, 0.25 * max(threshold, 0.0)))
    values: Any = SimpleNamespace(threshold=threshold_of)
    proposal: Any = None
    test = Look(-9.0, proposal, values, law).test(plan, 2**62)
    assert asked == [plan.tested_delta]
    assert (test is None) == (threshold <= 0.0)
    if test is not None:
        assert 0.0 < test.tested <= threshold
        assert test.failure_probability <= plan.failure_probability
        assert Look(-9.0, proposal, values, law).test(plan, test.samples) == test
        assert test.samples == 1 or Look(-9.0, proposal, values, law).test(plan, test.samples - 1) is None
