"""Estimate, verify, release: the least noise that Monte Carlo samples can prove to be enough, whatever the sampler.

Algorithm 5 of Dong and Ganesh 2026 (docs/matrix/bandmf.md, "What is guaranteed"), with one of two verifiers. By plain samples
(`VerificationPlan`): a fixed number of them, whose mean is compared with a threshold. By importance sampling (`TiltedPlan`), which takes as
many for any delta: a test that pilot samples of other random streams have planned (docs/montecarlo/tilted.md, section 7).

Candidates are proposed around the noise at which the verdict turns. Nothing rests on that but how close the result is to the least noise:
verifiers never see the samples of pilots.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

from .._base.bounds import round_up
from .._base.validation import MAX_COUNT, ParameterError, real
from .bounded import BoundedValues
from .confidence import VerificationPlan, kl
from .direction import Direction, Sampled, cases
from .empirical import Empirical
from .evidence import MeanTest, divide_target, plan_test
from .half_space import HalfSpaceProposal
from .runs import ALONE, RunOptions, Samples, derived
from .tally import EmpiricalTally
from .tilted import Proposal

Make: TypeAlias = Callable[[float], Sampled]
Proposals: TypeAlias = dict[str, Proposal | HalfSpaceProposal]

MOST_SAMPLES = 2**21
"""Samples per verification and direction by importance sampling, at most, unless the caller says otherwise (*speed*)."""
_PILOT_SAMPLES = 65_536
"""Pilot samples before a verification (*speed*)."""


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

    @property
    def plain_samples(self) -> int:
        """How many plain samples of a mean of half of what is tested prove it."""
        needed = math.log(1.0 / self.failure_probability) * (1.0 + 1e-12)
        return math.ceil(needed / kl(0.5 * self.tested_delta, self.tested_delta))

    def explained(self) -> str:
        """What the verifier does, and how rarely it is wrong."""
        return (
            "The verifier draws outputs where the privacy loss is large, with weights below a known bound "
            "(importance sampling), and accepts a candidate if they prove delta "
            f"to be at most {round_up(self.tested_delta)} in each direction, by a test fixed before; if delta "
            f"exceeds that it does so with probability at most {round_up(self.failure_probability)}. Both "
            "together are at most the stated delta."
        )


Plan: TypeAlias = VerificationPlan | TiltedPlan


@dataclass(frozen=True)
class Verification:
    """The verdict on one candidate.

    ``means`` are (direction, mean of the verifier's values, samples), for each of the mechanism's worst
    cases; no samples where delta is 0 for certain. A candidate is rejected as soon as the sum so far
    exceeds what all samples together may have, and the mean is then that of all samples if the rest were
    0.
    """

    noise_multiplier: float
    accepted: bool
    means: tuple[tuple[str, float, int], ...]


class Verdict(NamedTuple):
    """That on one direction: the mean of its values, and how many were drawn."""

    accepted: bool
    mean: float
    samples: int


def choose(
    make: Make,
    candidates: Sequence[float],
    epsilon: float,
    plan: Plan,
    seed: int,
    options: RunOptions = ALONE,
) -> tuple[Verification, ...]:
    """Algorithm 5 from the noisiest of the ``candidates`` (noise multipliers) down to the first rejection.

    The verdicts below that one would not matter, so they are not asked for. Every candidate is verified
    with samples of its own. The choice is the last accepted one, if there is any.
    """
    order = sorted({real("candidates", value, 0.0, open_low=True) for value in candidates}, reverse=True)
    verdicts: list[Verification] = []
    proposals: Proposals = {}
    for index, noise_multiplier in enumerate(order):
        own, kept = derived(seed, "verify", index), options.folder(f"verify-{index}")
        verdicts.append(verify(make(noise_multiplier), noise_multiplier, epsilon, plan, own, kept, proposals))
        if not verdicts[-1].accepted:
            break
    return tuple(verdicts)


def verify(
    mechanism: Sampled,
    noise_multiplier: float,
    epsilon: float,
    plan: Plan,
    seed: int,
    options: RunOptions = ALONE,
    proposals: Proposals | None = None,
) -> Verification:
    """Accept if the samples of every direction prove its delta to be below plan.tested_delta.

    If the mechanism violates (``epsilon``, plan.tested_delta)-DP in either direction, or in any of its worst
    cases, it is accepted with probability at most plan.failure_probability: the samples of the violated
    one alone see to that. A `VerificationPlan` draws its number of samples in each direction. With a `TiltedPlan`
    a direction without importance sampling is tested with plain samples against half of what is tested; so is "add"
    where its half space is of no use: more than plan.samples may be drawn there, but never more than plain ones.
    Pilots start from the ``proposals`` that those of a similar mechanism ended with, and leave their own there.
    """
    proposals = {} if proposals is None else proposals
    means: list[tuple[str, float, int]] = []
    for values in cases(mechanism, epsilon, options, only_above=True):
        if values.bound == 0.0:
            verdict = Verdict(True, 0.0, 0)
        elif isinstance(plan, TiltedPlan):
            verdict = _by_tilted_samples(plan, values, seed, options, proposals)
        elif values.half_space is not None and values.known <= plan.tested_delta:
            verdict = Verdict(True, values.known, 0)
        else:
            verdict = _compare(values, plan.threshold, plan.samples, seed, options)
        means.append((values.direction, verdict.mean, verdict.samples))
        if not verdict.accepted:
            return Verification(noise_multiplier, False, tuple(means))
    return Verification(noise_multiplier, True, tuple(means))


def _compare(values: Direction, threshold: float, samples: int, seed: int, options: RunOptions) -> Verdict:
    """Whether the mean of so many plain samples is at most the threshold."""
    size = values.block_size
    blocks = -(-samples // size)
    most = threshold * blocks * size
    kept = options.file(f"{values.label}.tally").in_samples(size)
    tally = values.tally(seed, 0, blocks, kept, stop=lambda seen: not seen.sum() <= most)
    mean = tally.mean(blocks * size)
    return Verdict(tally.blocks == blocks and mean <= threshold, mean, tally.blocks * size)


def _by_tilted_samples(
    plan: TiltedPlan, values: Direction, seed: int, options: RunOptions, proposals: Proposals
) -> Verdict:
    tested = plan.tested_delta
    if values.known <= tested:
        return Verdict(True, values.known, 0)
    seed = derived(seed, values.direction, values.case)
    plainly = not values.can_tilt
    if not plainly:
        pilot = max(4096, min(_PILOT_SAMPLES, plan.samples // 8))
        look = Look.of(values, seed, pilot, proposals, options)
        most = plan.samples if values.direction == "remove" else max(plan.samples, plan.plain_samples)
        test = look.test(plan, most)
        plainly = test is None and values.direction == "add" and look.log_delta < math.log(tested)
    if plainly:
        if not plan.plain_samples <= MAX_COUNT:
            raise ParameterError(f"delta = {plan.target_delta!r}: needs more than 2^53 plain samples")
        return _compare(values, 0.5 * tested, plan.plain_samples, derived(seed, "plain"), options)
    if test is None:
        # As the pilot sees it, and not drawn.
        return Verdict(False, math.exp(min(0.0, look.log_delta)), 0)
    kept = options.file(f"{values.label}.law")
    accepted, law = decide(test, look.values, derived(seed, "verify"), kept)
    return Verdict(accepted, look.values.delta_at(law.mean) if law.count else 0.0, law.count)


@dataclass(frozen=True)
class Look:
    """What pilot samples say about one noise multiplier."""

    log_delta: float
    proposal: Proposal | HalfSpaceProposal
    values: BoundedValues
    law: Empirical

    @classmethod
    def of(
        cls, values: Direction, seed: int, samples: int, proposals: Proposals, options: RunOptions
    ) -> Look:
        """Tune a proposal and see what it gives, on random streams of their own.

        It starts from that of the ``proposals``, by `Direction.label`, or from a grid, and takes its place, if it has seen something.
        """
        start = proposals.pop(values.label, None)
        # What a verification's pilot overlooks costs more samples than it takes.
        rounds = [512, 1024, 2048] if samples < _PILOT_SAMPLES else [1024, 2048, 4096]
        pilot = [2 * count for count in (rounds if start is None else rounds[1:])]
        proposal = values.tune(derived(seed, "tune"), gap=0.25, start=start, pilot=pilot)
        if proposal.relative_variance < math.inf:
            proposals[values.label] = proposal
        else:
            samples = -(-samples // 8)
        drawn = values.tilted_values(proposal)
        kept = options.file(f"{values.label}.pilot").in_samples(drawn.block_size)
        blocks = -(-samples // drawn.block_size)
        law = drawn.tally(derived(seed, "pilot"), 0, blocks, kept).law()
        delta = drawn.delta_at(law.mean) + drawn.extra
        return cls(math.log(delta) if delta > 0.0 else -math.inf, proposal, drawn, law)

    def test(self, plan: TiltedPlan, most: int) -> MeanTest | None:
        """The test to decide by; None if the pilot expects no acceptance, or more than ``most`` samples."""
        threshold = self.values.threshold(plan.tested_delta)
        if not threshold > 0.0:
            return None
        if threshold >= 1.0:
            # The bound on the values is below what is tested: nothing to be drawn.
            return MeanTest(1.0, plan.failure_probability, 1)
        try:
            test = plan_test(threshold, plan.failure_probability, pilot=self.law)
        except ParameterError:
            return None
        return test if test.samples <= most else None


def decide(
    test: MeanTest, values: Samples[EmpiricalTally], seed: int, options: RunOptions = ALONE
) -> tuple[bool, Empirical]:
    """Whether the samples of ``seed`` are evidence enough, and the law of those that were drawn.

    Guarantee: `MeanTest`'s, whatever the pilot that planned it, which must not have seen this ``seed``. It ends
    as soon as the first blocks suffice (`MeanTest.looks`). The same call resumes from the
    checkpoint file of the ``options``, with the same verdict; their progress is called with the samples done and planned.
    """
    seen = Empirical.of([])
    if test.tested == 1.0:
        return True, seen
    size, looks, path = values.block_size, test.looks(values.block_size), options.checkpoint
    held = EmpiricalTally.load(path).ranges if path is not None and Path(path).exists() else []
    # Blocks beyond a look, in whatever order workers brought them, were drawn because that look did not suffice.
    reached = held[-1][1] if held else 0
    if reached > looks[-1]:
        raise ParameterError(
            f"checkpoint {Path(path or '')}: holds blocks {held}, not the first of {looks[-1]}"
        )
    tally: EmpiricalTally | None = None
    for look in looks:
        if look < reached:
            continue
        # A file is read again, from its beginning.
        done = 0 if tally is None or path is not None else tally.blocks
        found = values.tally(seed, done, look, options.in_samples(size, done * size, looks[-1] * size))
        tally = found if tally is None or done == 0 else tally.merged(found)
        seen = tally.law()
        if test.accepts(seen) if look == looks[-1] else test.accepts_early(seen):
            return True, seen
    return False, seen


_SPREAD = (4.0, 2.75, 2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0, -1.5, -2.0)
"""Where the candidates of plain samples lie around the pilot's guess, in standard deviations of where the verifier's
verdict turns: the first is hardly ever rejected, the last hardly ever accepted (*speed*)."""
_APART = 5e-3
"""Logarithms of noise multipliers that these are apart at least (*speed*: the search is no finer)."""
_QUIETEST = 14.0
"""Below the noise where it begins by so many logarithms a search ends: the example hardly ever takes part, and hardly any noise is enough (*speed*)."""
_NEAR = 0.12
"""Logarithms of noise multipliers that are near each other (*speed*)."""
_SEARCH_SAMPLES, _LINE_SAMPLES = 8192, 49_152
"""Weighted pilot samples at the noise multipliers of the search, and at those near its end (*speed*)."""
_COARSE, _FINE, _SAVED = 0.4, (0.5, 0.87), 0.007
"""delta over the delta that is tested, as the pilot sees it, at the candidates of weighted samples: the noisiest, and between what
that of least noise is; the share of the noise that no other could save beyond that (*speed*)."""
_SLOPE, _SLOPES = -30.0, (-200.0, -1.0)
"""d ln delta / d ln noise, where the pilot has not seen any, and between what it must be (*speed*)."""


def propose(
    make: Make, epsilon: float, plan: Plan, noisy: float, seed: int, options: RunOptions = ALONE
) -> tuple[float, ...]:
    """Candidates around the noise multiplier at which the verdict of the ``plan`` turns; none where no noise is enough.

    ``noisy`` is where the search begins.
    """
    if isinstance(plan, TiltedPlan):
        return _with_tilted_pilots(make, epsilon, plan, noisy, seed, options.unrecorded())
    return _with_plain_pilots(make, epsilon, plan, noisy, seed, options)


def _with_plain_pilots(
    make: Make, epsilon: float, plan: VerificationPlan, noisy: float, seed: int, options: RunOptions
) -> tuple[float, ...]:
    if plan.threshold == 0.0:
        return ()
    few = max(1, plan.samples // 16)
    target = math.log(plan.threshold)
    looks, relative_error = 0, 1.0

    def height(place: float, samples: int, label: str) -> float:
        """ln of the larger direction's mean over the threshold, with the same random numbers for every noise."""
        nonlocal looks, relative_error
        kept, largest = options.folder(f"pilot-{looks}"), 0.0
        looks += 1
        for values in cases(make(math.exp(place)), epsilon, options):
            if values.bound == 0.0:
                continue
            size = values.block_size
            blocks = -(-samples // size)
            here = kept.file(f"{values.label}.tally").in_samples(size)
            tally, count = values.tally(derived(seed, label), 0, blocks, here), blocks * size
            mean, square = tally.mean(count), tally.sum_of_squares() / count
            if mean > largest:
                largest = mean
                relative_error = min(1.0, math.sqrt(max(0.0, square - mean**2) / count) / mean)
        # Nothing seen: below what this many samples can show.
        return math.log(max(largest, 0.1 / samples)) - target

    place = _near_root(lambda there: height(there, few, "coarse"), math.log(noisy), near=0.0)
    if place < math.log(noisy) - _QUIETEST:
        return (math.exp(place),)
    # With as many samples as the verifier takes.
    place, slope = _on_a_line(lambda near: height(near, plan.samples, "fine"), place)
    # Both the pilot's and the verifier's mean vary around the truth; a verdict may also turn at once, somewhere near.
    deviation = max(_APART, math.sqrt(2.0) * relative_error / -slope)
    return tuple(math.exp(place + spread * deviation) for spread in _SPREAD)


def _with_tilted_pilots(
    make: Make, epsilon: float, plan: TiltedPlan, noisy: float, seed: int, options: RunOptions
) -> tuple[float, ...]:
    """Directions that cannot be tilted, or are known to be below what is tested, are left out.

    Pilots of one noise multiplier start from the proposals of the last one, unless that was far away.
    """
    proposals: Proposals = {}
    places: list[float] = []

    def height(place: float, samples: int = _SEARCH_SAMPLES) -> float:
        """ln of the largest delta over the one that is tested."""
        worst = -math.inf
        if places and abs(place - places[-1]) > _NEAR:
            proposals.clear()
        for values in cases(make(math.exp(place)), epsilon, options, only_above=True):
            if values.bound > 0.0 and values.known > plan.tested_delta and values.can_tilt:
                own = derived(seed, "search", len(places), values.direction, values.case)
                worst = max(worst, Look.of(values, own, samples, proposals, options).log_delta)
        places.append(place)
        return worst - math.log(plan.tested_delta)

    try:
        place = _near_root(height, math.log(noisy) - 0.1)
    except ParameterError:
        # Pilots see nothing of delta, down to noise with which no losses can be drawn.
        return ()
    if place < math.log(noisy) - _QUIETEST:
        return (math.exp(place),)
    place, slope = _on_a_line(lambda near: height(near, _LINE_SAMPLES), place)
    fine = min(_FINE[1], max(_FINE[0], math.exp(_SAVED * slope)))
    ratios = (_COARSE, max(_COARSE, 1.5 * fine - 0.5), fine)
    return tuple(math.exp(place + math.log(ratio) / slope) for ratio in ratios)


def _near_root(height: Callable[[float], float], place: float, near: float = 1.0) -> float:
    """About where a height that falls, and may be far off or infinite away from its root, is 0; below ``near`` its slope is known."""
    ends: list[tuple[float, float]] = []  # the nearest ones above and below the root
    lowest, highest, step = place - _QUIETEST, place + 1.5, 0.1
    while lowest <= place <= highest:
        here = height(place)
        if abs(here) < near:
            return place - here / _SLOPE
        ends = [*(end for end in ends if (end[1] > 0.0) != (here > 0.0)), (place, here)]
        if len(ends) == 2:
            (low, above), (high, below) = sorted(ends)
            if high - low < 0.02:
                break
            share = above / (above - below) if below > -math.inf else 0.5
            place = low + (high - low) * min(0.8, max(0.2, share))
        else:
            # So far all were on one side.
            place += math.copysign(min(0.4, max(step, abs(here / _SLOPE))), here)
            step *= 1.5
    return place


def _on_a_line(height: Callable[[float], float], place: float) -> tuple[float, float]:
    """Where a line through looks nearby has height 0, and its slope: single looks are off by ten percent."""
    slope, near = _SLOPE, {}
    for offset in (-0.03, 0.03, 0.0):
        here = height(place + offset)
        if math.isfinite(here):
            near[place + offset] = here
        if len(near) > 1:
            found = statistics.linear_regression(list(near), list(near.values())).slope
            slope = min(_SLOPES[1], max(_SLOPES[0], found))
            level = statistics.fmean(near.values())
            place = statistics.fmean(near) - max(-3.0, min(3.0, level)) / slope
    return place, slope


def is_hopeful(mechanism: Sampled, epsilon: float, plan: TiltedPlan, seed: int, options: RunOptions) -> bool:
    """Whether pilot samples expect every direction to be accepted within plan.samples."""
    for values in cases(mechanism, epsilon, options, only_above=True):
        if values.bound == 0.0 or values.known <= plan.tested_delta:
            continue
        own = derived(seed, values.direction, values.case)
        if not values.can_tilt:
            return False
        look = Look.of(values, own, _LINE_SAMPLES, {}, options.unrecorded())
        if look.test(plan, plan.samples) is None:
            return False
    return True
