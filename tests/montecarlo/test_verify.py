"""Estimate, verify, release: the verifier's error rate, Algorithm 5's choice, and what calibration promises."""

import contextlib
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hockeystick as hs
import numpy as np
import pytest
from hockeystick.montecarlo import verify as module
from hockeystick.montecarlo.confidence import VerificationPlan, plan_verification
from hockeystick.montecarlo.direction import Direction, Sampled
from hockeystick.montecarlo.runs import RunOptions, derived
from hockeystick.montecarlo.verify import TiltedPlan, Verification, choose, propose, verify
from mpmath import mp

from bench.baselines import bandmf as baseline


def dp_sgd(sigma: float, steps: int = 10, q: float = 0.2, block_size: int = 256) -> baseline.Mechanism:
    return baseline.Mechanism(hs.Identity(steps)._columns(), baseline.MinSep(steps, 1, q), sigma, block_size)


def exact_noise(delta: float, epsilon: float, steps: int = 10, q: float = 0.2) -> float:
    """The noise multiplier at which delta is just reached."""
    return float(
        hs.calibrate_noise_multiplier(
            lambda s: hs.PoissonSampled(hs.Gaussian(s), q) * steps, epsilon, delta, tolerance=1e-6
        )
    )


def test_verifier_rarely_accepts_a_violation() -> None:
    # The least noise that must be rejected, 1000 times: accepted no more often than the plan says.
    plan = plan_verification(target_delta=0.1, threshold=0.07)
    bad = exact_noise(plan.tested_delta, 0.3, steps=2, q=0.4) * (1.0 - 1e-4)
    mechanism = dp_sgd(bad, steps=2, q=0.4, block_size=plan.samples)
    step = hs.PoissonSampled(hs.Gaussian(bad), 0.4)
    assert hs.account(step * 2).delta_bounds(0.3).lower > plan.tested_delta
    accepted = sum(verify(mechanism, bad, 0.3, plan, seed).accepted for seed in range(1000))
    assert 1e-4 < plan.failure_probability < 0.05
    expected = 1000 * plan.failure_probability
    assert accepted <= expected + 4.0 * math.sqrt(expected) + 1
    # And it accepts what it should.
    good = dp_sgd(2.0 * bad, steps=2, q=0.4, block_size=plan.samples)
    assert verify(good, 2.0 * bad, 0.3, plan, seed=1).accepted


class Scripted:
    """A mechanism whose blocks hold known values of delta, in both directions."""

    def __init__(self, values: dict[str, float], floor: float = -math.inf) -> None:
        self.values, self.floor, self.drawn = values, floor, 0
        self.block_size = 10

    @property
    def no_participation_log_probability(self) -> float:
        return self.floor

    def _blocks(self, direction: str) -> "Scripted":
        self.direction = direction
        return self

    def losses(self, seed: int, first_block: int, blocks: int) -> baseline.Array:
        raise NotImplementedError

    def delta_sums(
        self, seed: int, epsilons: baseline.Array, first_block: int, blocks: int
    ) -> tuple[baseline.Array, baseline.Array]:
        self.drawn += blocks
        sums = np.full((len(epsilons), blocks), 10.0 * self.values[self.direction])
        return sums, sums


PLAN = VerificationPlan(0.1, 0.05, 100, 0.09, 0.01)


def test_both_directions_must_pass() -> None:
    for remove, add, expected in [(0.05, 0.05, True), (0.05, 0.06, False), (0.06, 0.0, False)]:
        mechanism = Scripted({"remove": remove, "add": add})
        assert verify(mechanism, 1.0, 1.0, PLAN, seed=1).accepted == expected
    # One direction, if that is what the adjacency asks for.
    mechanism = Scripted({"remove": 0.06, "add": 0.0})
    assert verify(mechanism, 1.0, 1.0, PLAN, seed=1, options=RunOptions("add")).accepted
    # Where delta is 0 for certain, nothing is drawn.
    mechanism = Scripted({"remove": 0.0, "add": 1.0}, floor=-0.5)
    verdict = verify(mechanism, 1.0, 1.0, PLAN, seed=1)
    assert verdict.accepted
    assert verdict.means == (("remove", 0.0, 100), ("add", 0.0, 0))


def test_nan_never_passes() -> None:
    with pytest.raises(ArithmeticError, match="not finite"):
        verify(Scripted({"remove": math.nan, "add": 0.0}), 1.0, 1.0, PLAN, seed=1)


def test_hopeless_candidates_are_rejected_early() -> None:
    mechanism = Scripted({"remove": 1.0, "add": 0.0})
    verdict = verify(mechanism, 1.0, 1.0, PLAN, seed=1)
    assert not verdict.accepted
    assert mechanism.drawn < 10
    assert verdict.means[0][1] > PLAN.threshold


def test_algorithm_5_stops_at_the_first_rejection() -> None:
    # Candidate 2 would pass, but a noisier one fails: the choice lies above both.
    verdict = {1.0: 0.0, 2.0: 0.01, 3.0: 0.5, 4.0: 0.02, 5.0: 0.01}
    asked = []

    def make(noise_multiplier: float) -> Sampled:
        asked.append(noise_multiplier)
        return Scripted({"remove": verdict[noise_multiplier], "add": 0.0})

    found = choose(make, [1.0, 2.0, 3.0, 4.0, 5.0], 1.0, PLAN, seed=1)
    assert asked == [5.0, 4.0, 3.0]
    assert [(entry.noise_multiplier, entry.accepted) for entry in found] == [
        (5.0, True),
        (4.0, True),
        (3.0, False),
    ]


def test_candidates_have_their_own_samples() -> None:
    seeds = {derived(7, "verify", index) for index in range(100)} | {
        derived(8, "verify", index) for index in range(100)
    }
    assert len(seeds) == 200
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize("start", [0.3, 1.6, 20.0])
def test_pilot_brackets_where_the_verdict_turns(start: float) -> None:
    plan = plan_verification(target_delta=1e-2)
    turn = exact_noise(plan.threshold, 1.0)
    candidates = propose(dp_sgd, 1.0, plan, start, seed=3)
    assert min(candidates) < turn < max(candidates)
    assert max(candidates) < 1.5 * turn


def test_whole_procedure_survives_interruptions(tmp_path: Path) -> None:
    plan = plan_verification(target_delta=0.05)

    def procedure(checkpoint: Path | None, progress: object = None) -> tuple[Verification, ...]:
        show = progress if callable(progress) else None
        options = RunOptions(checkpoint=checkpoint, progress=show)
        candidates = propose(dp_sgd, 0.5, plan, 2.0, 5, options)
        return choose(dp_sgd, candidates, 0.5, plan, 5, options)

    whole = procedure(None)

    class Enough(Exception):
        pass

    calls = 0

    for patience in range(3, 300, 2):
        calls = 0

        def interrupt(done: int, total: int, patience: int = patience) -> None:
            nonlocal calls
            calls += 1
            if calls == patience:
                raise Enough

        with contextlib.suppress(Enough):
            found = procedure(tmp_path, interrupt)
            break
    assert patience > 11
    assert found == whole
    assert whole[0].accepted
    chosen = [entry.noise_multiplier for entry in whole if entry.accepted][-1]
    assert hs.account(hs.PoissonSampled(hs.Gaussian(chosen), 0.2) * 10).delta(0.5) <= plan.target_delta


def test_every_candidate_is_verified_with_a_seed_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = []

    def record(
        mechanism: Any, noise_multiplier: float, epsilon: float, plan: Any, seed: int, *rest: Any
    ) -> Any:
        seeds.append(seed)
        return module.Verification(noise_multiplier, True, ())

    monkeypatch.setattr(module, "verify", record)
    module.choose(lambda sigma: None, [1.0, 2.0, 3.0], 1.0, plan_verification(1e-2), 7)
    assert len(set(seeds)) == 3


@pytest.mark.parametrize("target", [1e-300, 1e-9, 1e-3, 0.3])
def test_plain_samples_of_a_tilted_plan_are_enough(target: float) -> None:
    """Hoeffding's form of Chernoff's bound, for a mean of half of what is tested."""
    plan = TiltedPlan.of(target, 5)
    with mp.workdps(40):
        p = mp.mpf(plan.tested_delta)
        q = p / 2
        divergence = q * mp.log(q / p) + (1 - q) * (mp.log1p(-q) - mp.log1p(-p))
        assert mp.exp(-plan.plain_samples * divergence) <= mp.mpf(plan.failure_probability)
        assert p + mp.mpf(plan.failure_probability) * (1 - p) <= mp.mpf(target)


def test_add_alone_is_verified_by_as_many_samples_as_planned() -> None:
    """One step of a sampled Gaussian; what the half space alone shows counts up to what is tested, not up to the target."""
    sigma, epsilon, only = 1.0, 0.05, RunOptions("add")
    mechanism = hs.BandMF(hs.Identity(1), hs.Poisson(1, 0.2), sigma)
    truth = hs.account(hs.PoissonSampled(hs.Gaussian(sigma), 0.2), "add").delta_bounds(epsilon)
    known = Direction(mechanism, "add", epsilon, only).known
    assert truth.upper < known
    for target, accepted in (
        (0.5 * truth.lower, False),
        (known, None),
        (1.2 * known, True),
        (4.0 * known, True),
    ):
        plan = plan_verification(target)
        verdict = verify(mechanism, sigma, epsilon, plan, 3, only)
        ((direction, _, samples),) = verdict.means
        assert direction == "add"
        assert accepted in (None, verdict.accepted)
        drawn = known > plan.tested_delta
        assert (samples > 0) == drawn
    tilted = TiltedPlan.of(1.001 * known, 2**14)
    assert tilted.tested_delta < known < tilted.target_delta
    verdict = verify(mechanism, sigma, epsilon, tilted, 3, only)
    assert verdict.means[0][2] > 0 or not verdict.accepted
    assert verify(mechanism, sigma, epsilon, TiltedPlan.of(1.1 * known, 5), 3, only).means == (
        ("add", known, 0),
    )


def test_no_fewer_samples_are_drawn_than_planned() -> None:
    class Blocks:
        block_size = 4096

        def delta_sums(self, seed: int, epsilons: Any, first: int, count: int) -> Any:
            return np.zeros((2, count)), np.zeros((2, count))

    mechanism = SimpleNamespace(
        no_participation_log_probability=-math.inf, _blocks=lambda direction: Blocks()
    )
    for plan in (plan_verification(1e-3), plan_verification(0.5)):
        verdict = verify(mechanism, 1.0, 0.5, plan, 3)
        assert verdict.accepted
        assert plan.samples % 4096
        assert [samples for _, _, samples in verdict.means] == [-(-plan.samples // 4096) * 4096] * 2
