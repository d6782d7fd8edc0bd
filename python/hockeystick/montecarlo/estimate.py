"""Monte Carlo estimates of delta, with a confidence interval.

delta(epsilon) is the mean of max(0, 1 - e^{epsilon - L}), L the privacy loss of a sample (Wang et al.
2023). A finite sample gives an estimate and an interval that holds with a stated confidence, never a
guarantee: the functions here say so in their names. What turns samples into a guarantee is
`calibrate_bandmf`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from .._base.bounds import Stated, round_down, round_up
from .._base.types import Unpack
from .._base.validation import ParameterError, choice, integer, real
from ..matrix.bandmf import DIRECTIONS
from ..mechanisms.descriptions import Composable, Process
from .confidence import checked_confidence, shared_confidence
from .direction import Direction, Sampled, cases, directions, sampled_cases, unit_of, worst_cases
from .runs import MAX_SEED, RunOptions, RunSettings, Samples, derived, resolve_seed
from .tally import Tally

METHODS = ("auto", "plain", "tilted")

MOST_SAMPLES = 10**13
"""Most samples of one estimate: at a million a second a quarter of a year. Longer runs are made of `sample_blocks` (*speed*)."""


class BlockSettings(RunSettings, total=False):
    """What `sample_blocks` may be told besides."""

    adjacency: str | None
    case: int | None


@dataclass(frozen=True)
class DirectionEstimate:
    """One of the two directions of one of the mechanism's ``worst_cases``, which ``case`` counts from 0.

    ``samples`` is 0 where delta is known to be 0. ``method`` is "plain" or "tilted".
    """

    direction: str
    estimate: float
    lower: float
    upper: float
    samples: int
    case: int = 0
    method: str = "plain"
    evidence: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
    """What a certificate says of it; None where nothing was drawn, or what was says no more than is known without."""


@dataclass(frozen=True)
class DeltaEstimate(Stated):
    """An estimate of delta at ``epsilon``, not a guarantee; made by `estimate_delta`.

    ``lower`` <= delta <= ``upper`` with probability at least ``confidence`` over the samples. The numbers are
    the largest over the ``directions``; ``samples`` is that of each direction. ``unit`` says whose data they are about.
    """

    epsilon: float
    estimate: float
    lower: float
    upper: float
    confidence: float
    samples: int
    seed: int
    adjacency: str
    method: str
    directions: tuple[DirectionEstimate, ...]
    unit: str
    composed_with: Process | None = None

    def certificate(self) -> str:
        """A JSON text with the tallies, the seed and the test that they pass, for `hockeystick verify FILE`.

        It claims delta <= ``upper``, wrong with probability (1 - ``confidence``)/2 at most (half of that of both sides), and is verified before it is
        returned: what follows from the tallies is recomputed in ball arithmetic; that they are those of the seed is not. Where delta of
        one direction is known without samples, ``adjacency`` is the other one; ParameterError where nothing was drawn.
        (docs/accounting/certificates.md, "Monte Carlo estimates"). Needs python-flint (``hockeystick[verify]``).
        """
        from .certificate import certificate

        facts = {"adjacency": self.adjacency, "epsilon": self.epsilon, "seed": self.seed}
        return certificate(facts, self.directions)

    def statement(self) -> str:
        """One sentence that says what was found, and that it is an estimate."""
        also = "" if self.composed_with is None else f", released together with {self.composed_with}"
        return (
            f"Monte Carlo estimate from {self.samples} samples per direction (seed {self.seed}): "
            f"delta({self.epsilon!r}) is about {self.estimate:.4g}, and within "
            f"[{round_down(self.lower)}, {round_up(self.upper)}] with confidence {self.confidence!r}. "
            f'Adjacency: "{self.adjacency}" ({self.unit}){also}. This is an estimate, not a guarantee.'
        )


def estimate_delta(
    mechanism: Sampled,
    epsilon: float,
    samples: int,
    seed: int | None = None,
    method: str = "auto",
    *,
    adjacency: str = "zero_out",
    confidence: float = 0.99,
    **run: Unpack[RunSettings],
) -> DeltaEstimate:
    """Estimate delta at ``epsilon`` >= 0 from ``samples`` privacy losses of a `BandMF` mechanism.

    The number of samples (in each direction, rounded up to whole blocks) is fixed before the first one is drawn, and the interval
    holds with the stated ``confidence`` for that number only: do not ask again with another ``seed`` until the answer pleases. Each
    direction gets its share of the failure probability; "add" is not sampled where epsilon is at least minus the logarithm of the
    probability that the example never takes part, since delta is exactly 0 there. The round-off of the losses is included. Some losses
    are bounds: those of `RMinSep` with more bands than ``min_sep``, of `BMinSep` with more ``examples_per_user`` than it is exact for, of
    `MultiAttributionBMinSep` with ``law="dominating"``, of `TruncatedBMinSep`, and of `CyclicPoisson` and `FixedOrder` for all groups where none
    of them is the worst in every turn (`Scheme.losses_are_exact`). There the estimate is that of something larger than delta, and ``lower``
    is 0. ``seed`` None draws one; the result records it.

    The default ``adjacency`` "zero_out" is the one that BandMF is analysed under; where the presence of an example does not change
    what happens to others (all schemes but the truncated one and those that protect users), "add_or_remove" is the same, and "add"
    and "remove" are its directions. "replace_one": another example in the place of the first, for every scheme that does not protect
    users (docs/montecarlo/replacement.md).

    ``run`` may have: ``composed_with``, anything `account` takes, which is released as well: the loss L of a sample leaves epsilon - L
    to it, whose certified delta there is averaged (upper bounds for the estimate and ``upper``; lower bounds, of the pairs that dominate it, for ``lower``),
    and where users are protected ``unit`` says of how many examples that is (`UserLevel` counts several);
    ``checkpoint``, a directory for what is done so far: the same call resumes there, with bit-identical results; ``progress``, called
    with the number of samples done and that of all; ``executor``, any `concurrent.futures.Executor`, whose workers draw the blocks:
    the same result, bit for bit (docs/montecarlo/executors.md).

    ``method`` "plain" averages over outputs of the mechanism itself: the number of samples it takes grows like 1/delta. "tilted" is
    importance sampling (docs/montecarlo/tilted.md): outputs are drawn where the loss is large, with weights below a known bound, and
    the number of samples hardly depends on delta. Pilot samples, from random streams of their own (some ten thousand), choose how. For
    direction "remove" it needs an exact density and a table (`BMinSep` with one example per user, `Poisson`, `CyclicPoisson`,
    `BallsInBins`, `MultiAttributionBMinSep` with the default law). For "add" outputs come from a half space that contains all that
    count, for every scheme but `TruncatedBMinSep` and `BMinSep` with ``examples_per_user`` > 1, and without ``composed_with``: of much
    use for few independent participations, and where the half space alone proves delta to be small, nothing is drawn.
    `TruncatedBMinSep`, without ``composed_with``: where truncation is rare the scheme without it is sampled, and what truncation adds
    is added to ``upper``; otherwise both directions are sampled given the public counts. ParameterError where no direction can be
    tilted. "auto" (default) takes, for each direction, what the pilot expects to give the shorter interval, and "plain" for fewer than
    512 samples.
    """
    epsilon = real("epsilon", epsilon, 0.0)
    samples = integer("samples", samples, 1, MOST_SAMPLES)
    method = choice("method", method, METHODS)
    confidence = checked_confidence(confidence)
    options = RunOptions.of(adjacency, **run)
    plans = cases(mechanism, epsilon, options)
    begun = list(islice(plans, 2))  # what does not fit raises before a seed is remembered
    every = chain(begun, cases(mechanism, epsilon, options))
    if method == "tilted" and not any(plan.can_tilt for plan in every):
        raise ParameterError(
            f"method = {method!r}: needs direction 'remove' and a scheme with a table, or direction 'add' and no "
            "composed_with; use 'auto' or 'plain'"
        )
    sampled = sampled_cases(mechanism, epsilon, options)
    share = shared_confidence(confidence, max(1, sampled))
    asked = _Asked(samples, method, resolve_seed(seed, options.checkpoint), sampled, share)
    found: list[DirectionEstimate] = []
    for plan in chain(begun, plans):
        found.append(_estimate(plan, asked, options, sum(entry.samples for entry in found)))
    return DeltaEstimate(
        epsilon=epsilon,
        estimate=max(entry.estimate for entry in found),
        lower=max(entry.lower for entry in found),
        upper=max(entry.upper for entry in found),
        confidence=confidence,
        samples=max(entry.samples for entry in found),
        seed=asked.seed,
        adjacency=adjacency,
        method="tilted" if any(entry.method == "tilted" for entry in found) else "plain",
        directions=tuple(found),
        unit=unit_of(mechanism, adjacency, options.others),
        composed_with=options.others,
    )


@dataclass(frozen=True)
class _Asked:
    """What one estimate asks of every direction: ``share`` is the confidence of each of those ``sampled``."""

    samples: int
    method: str
    seed: int
    sampled: int
    share: float


def _is_known(plan: Direction, asked: _Asked, options: RunOptions) -> bool:
    """Whether delta is less than as many plain samples could show; of "plain" ones nothing else is asked, as that takes tables."""
    if asked.method == "plain":
        return False
    if plan.can_tilt and (asked.method == "tilted" or options.adjacency == plan.direction):
        return False
    return plan.known < min(1.0, math.log(1.0 / (1.0 - asked.share)) / asked.samples)


def _estimate(plan: Direction, asked: _Asked, options: RunOptions, before: int) -> DirectionEstimate:
    """The estimate of one direction; ``before`` samples were drawn for the others."""
    samples, method, share = asked.samples, asked.method, asked.share
    if plan.bound == 0.0:
        return DirectionEstimate(plan.direction, 0.0, 0.0, 0.0, 0, plan.case)
    if _is_known(plan, asked, options):
        return DirectionEstimate(plan.direction, 0.0, 0.0, plan.known, 0, plan.case)
    source: Samples[Any] = plan
    if method != "plain" and plan.can_tilt:
        own = derived(asked.seed, "tune", plan.direction, plan.case)
        source = plan.tilted(samples, share, own, method == "auto") or plan
    size = source.block_size
    blocks = -(-samples // size)
    kept = options.file(f"{plan.label}.{'tally' if source is plan else 'law'}")
    run = kept.in_samples(size, before, asked.sampled * blocks * size)
    tally = source.tally(asked.seed, 0, blocks, run)
    middle, (lower, upper) = source.interval(tally, share)
    drawn = {"failure_probability": 0.5 * (1.0 - share), "blocks": blocks, "key": dict(tally.key)}
    shows_more = upper < plan.bound or plan.bound == 1.0
    evidence = {**source.evidence(tally, share), **drawn} if shows_more else None
    if method != "plain":
        upper = min(upper, plan.known)
        middle, lower = min(middle, upper), min(lower, upper)
    kind = "plain" if source is plan else "tilted"
    return DirectionEstimate(plan.direction, middle, lower, upper, blocks * size, plan.case, kind, evidence)


def sample_blocks(
    mechanism: Sampled,
    epsilon: float,
    direction: str,
    seed: int,
    first_block: int,
    last_block: int,
    **run: Unpack[BlockSettings],
) -> Tally:
    """Sample the blocks [first_block, last_block) of one direction: a share of a long run.

    Several processes or machines may take disjoint ranges of the same ``seed``; the tallies' ``merged``
    is what one process would have found, bit for bit, and `estimate_from_tally` reads it. A block has
    ``mechanism._blocks(direction).block_size`` samples.

    ``run`` may have: ``adjacency``, of which ``direction`` must be one, is that of what is
    composed with it (default: "replace_one" for that direction, else "zero_out"). ``case``: which of ``mechanism.worst_cases()``, to be
    given where there are several; the guarantee is the largest delta of all of them, in both directions; and what that of
    `estimate_delta` may have, but that ``checkpoint`` is a file, and ``progress`` counts blocks.
    """
    adjacency, case = run.pop("adjacency", None), run.pop("case", None)
    options = RunOptions.of(_adjacency(direction, adjacency), **run)
    values = _direction(mechanism, direction, epsilon, case, options)
    first_block = integer("first_block", first_block)
    last_block = integer("last_block", last_block, first_block)
    return values.tally(integer("seed", seed, 0, MAX_SEED), first_block, last_block, options)


def estimate_from_tally(
    mechanism: Sampled,
    epsilon: float,
    direction: str,
    tally: Tally,
    confidence: float = 0.99,
    *,
    adjacency: str | None = None,
    case: int | None = None,
    composed_with: Composable | None = None,
) -> DirectionEstimate:
    """The estimate that a tally of `sample_blocks` stands for, with the arguments it was made with.

    Its interval has the stated ``confidence`` if the number of blocks was fixed before any was seen. It is that of one direction of one
    case alone.
    """
    confidence = checked_confidence(confidence)
    options = RunOptions.of(_adjacency(direction, adjacency), composed_with=composed_with)
    values = _direction(mechanism, direction, epsilon, case, options)
    values.check(tally)
    if values.bound == 0.0:
        return DirectionEstimate(direction, 0.0, 0.0, 0.0, 0, values.case)
    middle, (lower, upper) = values.interval(tally, confidence)
    return DirectionEstimate(direction, middle, lower, upper, tally.blocks * values.block_size, values.case)


def _adjacency(direction: str, adjacency: str | None) -> str:
    """The one that a ``direction`` belongs to."""
    direction = choice("direction", direction, DIRECTIONS)
    if adjacency is None:
        return "replace_one" if direction == "replace_one" else "zero_out"
    return adjacency


def _direction(
    mechanism: Sampled, direction: str, epsilon: float, case: int | None, options: RunOptions
) -> Direction:
    """One direction of one case; ParameterError unless both are of what is accounted for."""
    choice("direction", direction, directions(mechanism, options.adjacency))
    epsilon, every = real("epsilon", epsilon, 0.0), worst_cases(mechanism)
    if case is None and len(every) > 1:
        raise ParameterError(
            f"case = None: must be in [0, {len(every) - 1}], as the guarantee is the largest delta of so many worst cases"
        )
    number = 0 if case is None else integer("case", case, 0, len(every) - 1)
    return Direction(every[number], direction, epsilon, options, number)
