"""Estimate, verify, release by importance sampling: the verifier that takes as many samples for any delta.

The candidates and the order in which they are looked at are those of `evr`; only the verifier is another one. For each
candidate it draws from a proposal and decides by a test that pilot samples of other random streams have
planned (`plan_test`): method, bets and number of samples are fixed before the first sample is drawn. A
mechanism whose delta exceeds ``tested`` is accepted with probability at most ``failure_probability``, which
is all that Theorem A.1 of Dong and Ganesh 2026 asks of a verifier.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from .._base.validation import MAX_COUNT, ParameterError
from ..matrix.bandmf import BandMF
from ..mechanisms.descriptions import Process
from .bounded import BoundedValues
from .confidence import kl
from .estimate import _Direction, cases, derived, tally_path
from .evr import Verification
from .half_space import HalfSpaceProposal
from .mean_test import MeanTest, divide_target, plan_test
from .tally import EmpiricalTally, Progress, Tally, in_samples
from .tilted import Proposal
from .verification import decide

Make: TypeAlias = Callable[[float], BandMF]

MOST_SAMPLES = 2**21
"""Samples per verification and direction, at most, unless the caller says otherwise."""

_SEARCH_SAMPLES, _PILOT_SAMPLES = 32_768, 131_072
"""Pilot samples at the noise multipliers of the search, and before a verification."""

_RATIOS = (0.1, 0.3, 0.5, 0.63, 0.73, 0.8, 0.85, 0.89)
"""delta at the candidates over the delta that is tested, as the pilot sees it."""


_SLOPE = -30.0
"""d ln delta / d ln noise, where the pilot has not seen any."""


@dataclass(frozen=True)
class TiltedPlan:
    """What every verdict rests on; see `CalibratedBandMF.statement`.

    A candidate whose delta exceeds ``tested_delta`` is accepted with probability at most
    ``failure_probability``; with both, what is released has delta at most ``target_delta`` >= tested_delta +
    failure_probability * (1 - tested_delta). ``samples`` is the most that a verification of direction "remove" may take;
    `verify` says what "add" may.
    """

    target_delta: float
    samples: int
    tested_delta: float
    failure_probability: float

    @classmethod
    def of(cls, target_delta: float, samples: int) -> TiltedPlan:
        """The plan for a target: one part in 32 of it is left to failure."""
        tested, failure = divide_target(target_delta)
        return cls(target_delta, samples, tested, failure)


@dataclass(frozen=True)
class _Look:
    """What pilot samples say about one noise multiplier."""

    log_delta: float
    proposal: Proposal | HalfSpaceProposal
    values: BoundedValues
    law: EmpiricalTally

    def test(self, plan: TiltedPlan, most: int) -> MeanTest | None:
        """The test to decide by; None if the pilot expects no acceptance, or more than ``most`` samples."""
        threshold = self.values.threshold(plan.tested_delta)
        if not threshold > 0.0:
            return None
        if threshold >= 1.0:
            # The bound on the values is below what is tested: nothing to be drawn.
            return MeanTest("kl", 1.0, plan.failure_probability, 1)
        try:
            test = plan_test(threshold, plan.failure_probability, pilot=self.law.law())
        except ParameterError:
            return None
        return test if test.samples <= most else None


def _look(
    values: _Direction,
    seed: int,
    samples: int,
    start: Proposal | HalfSpaceProposal | None,
    checkpoint: Path | None,
    progress: Progress | None,
    executor: Executor | None,
) -> _Look:
    """Tune a proposal and see what it gives, on random streams of their own."""
    # A verification's pilot starts from the grid again: what it overlooks costs more samples than it takes.
    pilot = (
        (4096, 8192, 16_384) if samples >= 65_536 else (1024, 2048, 4096) if start is None else (2048, 4096)
    )
    proposal = values.tune(derived(seed, "tune"), gap=0.25, start=start, pilot=pilot)
    drawn = values.tilted_values(proposal)
    blocks = -(-samples // drawn.block_size)
    path = None if checkpoint is None else checkpoint.with_suffix(".pilot")
    law = drawn.tally(
        derived(seed, "pilot"),
        0,
        blocks,
        values.identity,
        path,
        in_samples(progress, drawn.block_size),
        executor=executor,
    )
    mean = law.law().mean
    delta = math.exp(min(0.0, drawn.log_upper + math.log(mean))) if mean > 0.0 else 0.0
    delta += drawn.extra
    return _Look(math.log(delta) if delta > 0.0 else -math.inf, proposal, drawn, law)


def verify(
    mechanism: BandMF,
    noise_multiplier: float,
    epsilon: float,
    plan: TiltedPlan,
    seed: int,
    *,
    adjacency: str = "zero_out",
    others: Process | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Verification:
    """Accept if the samples of every direction prove its delta to be below plan.tested_delta.

    A direction without importance sampling is tested with plain samples against half of it; so is "add" where its half
    space is of no use. For that direction more than plan.samples may be drawn, but never more than plain ones.
    """
    means: list[tuple[str, float, int]] = []
    pilot = max(4096, min(_PILOT_SAMPLES, plan.samples // 8))
    for case, direction, values in cases(mechanism, epsilon, adjacency, others, only_above=True):
        if values.bound == 0.0:
            means.append((direction, 0.0, 0))
            continue
        if values.known <= plan.tested_delta:
            means.append((direction, values.known, 0))
            continue
        path = tally_path(checkpoint, direction, case)
        own = derived(seed, direction, case)
        if not values.can_tilt:
            accepted, mean, samples = _plainly(values, plan, own, path, progress, executor)
        else:
            look = _look(values, own, pilot, None, path, progress, executor)
            most = plan.samples if direction == "remove" else max(plan.samples, _plain_samples(plan))
            test = look.test(plan, most)
            if test is None and direction == "add" and look.log_delta < math.log(plan.tested_delta):
                accepted, mean, samples = _plainly(values, plan, own, path, progress, executor)
            else:
                accepted, mean, samples = _decide(look, test, values, plan, own, path, progress, executor)
        means.append((direction, mean, samples))
        if not accepted:
            return Verification(noise_multiplier, False, tuple(means))
    return Verification(noise_multiplier, True, tuple(means))


def is_hopeful(
    mechanism: BandMF,
    epsilon: float,
    plan: TiltedPlan,
    seed: int,
    *,
    adjacency: str = "zero_out",
    others: Process | None = None,
    executor: Executor | None = None,
) -> bool:
    """Whether pilot samples expect every direction to be accepted within plan.samples."""
    for case, direction, values in cases(mechanism, epsilon, adjacency, others, only_above=True):
        if values.bound == 0.0 or values.known <= plan.tested_delta:
            continue
        if not values.can_tilt:
            return False
        own = derived(seed, direction, case)
        if _look(values, own, _SEARCH_SAMPLES, None, None, None, executor).test(plan, plan.samples) is None:
            return False
    return True


def _decide(
    look: _Look,
    test: MeanTest | None,
    values: _Direction,
    plan: TiltedPlan,
    seed: int,
    path: Path | None,
    progress: Progress | None,
    executor: Executor | None,
) -> tuple[bool, float, int]:
    if test is None:
        # As the pilot sees it, and not drawn.
        return False, math.exp(min(0.0, look.log_delta)), 0
    file = None if path is None else path.with_suffix(".law")
    key = values.identity
    accepted, law = decide(test, look.values, derived(seed, "verify"), key, file, progress, executor)
    mean = law.mean if law.count else 0.0
    delta = math.exp(min(0.0, look.values.log_upper + math.log(mean))) if mean > 0.0 else 0.0
    return accepted, delta, law.count


def _plain_samples(plan: TiltedPlan) -> int:
    """How many plain samples of a mean of half of what is tested prove it."""
    needed = math.log(1.0 / plan.failure_probability) * (1.0 + 1e-12)
    return math.ceil(needed / kl(0.5 * plan.tested_delta, plan.tested_delta))


def _plainly(
    values: _Direction,
    plan: TiltedPlan,
    seed: int,
    path: Path | None,
    progress: Progress | None,
    executor: Executor | None,
) -> tuple[bool, float, int]:
    threshold, samples = 0.5 * plan.tested_delta, _plain_samples(plan)
    if not samples <= MAX_COUNT:
        raise ParameterError(f"delta = {plan.target_delta!r}: needs more than 2^53 plain samples")
    size = values.blocks.block_size
    blocks = -(-samples // size)
    most = threshold * blocks * size

    def hopeless(tally: Tally) -> bool:
        return not tally.sum() <= most

    show = in_samples(progress, size)
    tally = values.tally(derived(seed, "plain"), 0, blocks, path, show, hopeless, executor)
    mean = tally.mean(blocks * size)
    return tally.blocks == blocks and bool(mean <= threshold), mean, tally.blocks * size


def propose(
    make: Make,
    epsilon: float,
    plan: TiltedPlan,
    noisy: float,
    seed: int,
    *,
    adjacency: str = "zero_out",
    others: Process | None = None,
    executor: Executor | None = None,
) -> tuple[float, ...]:
    """Candidates around the noise multiplier where delta is what is tested.

    From pilot samples only; directions that cannot be tilted, or are known to be below the target, are left out. ``noisy``
    is a noise multiplier that is certainly enough. Pilots of one noise multiplier start from the proposals of
    the last one.
    """
    aim = math.log(plan.tested_delta)
    proposals: dict[tuple[int, str], Proposal | HalfSpaceProposal] = {}
    seen: list[tuple[float, float]] = []

    def height(place: float) -> float:
        worst = -math.inf
        for case, direction, values in cases(
            make(math.exp(place)), epsilon, adjacency, others, only_above=True
        ):
            if values.bound > 0.0 and values.known > plan.tested_delta and values.can_tilt:
                label = derived(seed, "search", len(seen), direction, case)
                start = proposals.get((case, direction))
                look = _look(values, label, _SEARCH_SAMPLES, start, None, None, executor)
                if look.proposal.relative_variance < math.inf:
                    proposals[case, direction] = look.proposal
                worst = max(worst, look.log_delta)
        seen.append((place, worst))
        return worst - aim

    high = math.log(noisy)
    low, step = high, 0.1
    while True:
        low -= step
        here = height(low)
        if here > 0.0:
            break
        high, step = low, min(0.4, 1.5 * step)
        if low < math.log(noisy) - 14.0:
            # Hardly any noise is enough: the example hardly ever takes part.
            return (math.exp(low),)
    for _ in range(3):
        if high - low < 0.02:
            break
        middle = 0.5 * (low + high)
        low, high = (middle, high) if height(middle) > 0.0 else (low, middle)
    # A line through what was seen nearby gives the place of every ratio: single looks are off by tens of percent.
    place = 0.5 * (low + high)
    slope = _SLOPE
    for offset in (-0.03, 0.03, 0.0):
        height(place + offset)
        near = [(x, y - aim) for x, y in seen if math.isfinite(y) and abs(x - place) <= 0.12]
        if len(near) >= 3 and max(near)[0] - min(near)[0] >= 0.04:
            middle = math.fsum(x for x, _ in near) / len(near)
            level = math.fsum(y for _, y in near) / len(near)
            spread = math.fsum((x - middle) ** 2 for x, _ in near)
            slope = math.fsum((x - middle) * y for x, y in near) / spread
            slope = min(-4.0, max(-200.0, slope))
            place = middle - max(-3.0, min(3.0, level)) / slope
    return tuple(math.exp(place + math.log(ratio) / slope) for ratio in _RATIOS)


__all__ = ["TiltedPlan", "propose", "verify"]
