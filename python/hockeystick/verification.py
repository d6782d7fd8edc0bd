"""Verify by as few samples as a pilot says it takes: one candidate of Estimate-Verify-Release.

The verifier of Dong and Ganesh 2026, Appendix A, for values with any bound: plain Monte Carlo, importance
sampling. Accepting a candidate whose delta exceeds what is tested has at most the stated probability; rejecting
is always safe.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from .empirical import Empirical
from .mean_test import MeanTest, plan_test
from .tally import EmpiricalTally, Progress
from .validation import ParameterError, integer

PILOT_SAMPLES = 8192
MOST_SAMPLES = 2**31


class Values(Protocol):
    """Values in [0, 1] whose expectation, times a known bound, is an upper bound on delta."""

    @property
    def block_size(self) -> int:
        """Samples per block."""

    def threshold(self, tested: float) -> float:
        """What the expectation of row 0 must be below, so that delta is below ``tested``; 1 or more: it always is."""

    def tally(
        self,
        seed: int,
        first: int,
        last: int,
        key: Mapping[str, Any],
        checkpoint: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
        stop: Callable[[EmpiricalTally], bool] | None = None,
        executor: Executor | None = None,
    ) -> EmpiricalTally:
        """The law of the values of blocks [first, last) of this seed, in row 0."""


@dataclass(frozen=True)
class Verdict:
    """The verdict on one pair of distributions.

    ``test`` is what was planned (None: nothing to test, or the pilot saw no hope), ``samples`` how many were
    drawn, ``mean`` their mean, ``evidence`` against a delta above what is tested, ln 1/p: accepted if at least
    ln(1/q), q the failure probability.
    """

    accepted: bool
    test: MeanTest | None
    samples: int
    mean: float
    evidence: float


def verify_values(
    values: Values,
    tested: float,
    failure_probability: float,
    seed: int,
    pilot_seed: int,
    *,
    key: Mapping[str, Any],
    method: str = "auto",
    pilot: Empirical | None = None,
    pilot_samples: int = PILOT_SAMPLES,
    most_samples: int = MOST_SAMPLES,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Verdict:
    """Accept only if the samples of ``seed`` prove that delta is at most ``tested``.

    Guarantee: if delta exceeds ``tested``, it accepts with probability at most ``failure_probability`` over the
    random numbers of ``seed``, whatever ``pilot_seed`` (another one!) made it plan. ``pilot``: a law to plan
    from, if there is one; else ``pilot_samples`` are drawn. A test by betting ends as soon as the first blocks
    suffice, looked at after numbers of blocks that are fixed in advance.

    Where the plan needs more than ``most_samples``, or none would do, the verdict is a rejection without
    samples. ``key`` names the run; ``checkpoint`` is a directory, in which the same call resumes with the same
    verdict. ``progress`` is called with samples done and planned.
    """
    pilot_samples = integer("pilot_samples", pilot_samples, 1)
    most_samples = integer("most_samples", most_samples, 1)
    if seed == pilot_seed:
        raise ParameterError(f"pilot_seed = {pilot_seed}: must not be the seed of the samples that decide")
    threshold = values.threshold(tested)
    if threshold >= 1.0:
        return Verdict(True, None, 0, 0.0, 0.0)
    rejected = Verdict(False, None, 0, 0.0, 0.0)
    if not threshold > 0.0:
        return rejected
    size = values.block_size
    if pilot is None:
        blocks = -(-pilot_samples // size)
        pilot = values.tally(pilot_seed, 0, blocks, key, _file(checkpoint, "pilot"), executor=executor).law()
    try:
        test = plan_test(threshold, failure_probability, pilot=pilot, method=method)
    except ParameterError:
        return rejected
    if test.samples > most_samples:
        return rejected
    looks = test.looks(size)
    seen, accepted = Empirical.of([]), False
    for seen in _prefixes(values, looks, seed, key, _file(checkpoint, "verify"), progress, executor):
        last = seen.count >= looks[-1] * size
        accepted = test.accepts(seen) if last else test.accepts_early(seen)
        if accepted:
            break
    return Verdict(accepted, test, seen.count, seen.mean, test.evidence(seen))


def _prefixes(
    values: Values,
    looks: Sequence[int],
    seed: int,
    key: Mapping[str, Any],
    checkpoint: Path | None,
    progress: Progress | None,
    executor: Executor | None,
) -> Iterator[Empirical]:
    """The laws of the first blocks, at each of the ``looks``; at the last at the latest all of them."""
    size, total = values.block_size, looks[-1] * values.block_size
    tally: EmpiricalTally | None = None
    for look in looks:
        # What the file holds beyond a look was drawn because that look did not suffice.
        if tally is not None and tally.blocks > look:
            continue
        done = 0 if tally is None or checkpoint is not None else tally.blocks
        show = None if progress is None else _shown(progress, done * size, size, total)
        found = values.tally(seed, done, look, key, checkpoint, show, executor=executor)
        tally = found if tally is None or done == 0 else tally.merged(found)
        if tally.ranges != [(0, tally.blocks)]:
            raise ParameterError(f"checkpoint: holds blocks {tally.ranges}, which is no beginning of a run")
        if tally.blocks == look:
            yield tally.law()


def _shown(progress: Progress, before: int, size: int, total: int) -> Progress:
    return lambda done, _: progress(before + done * size, total)


def _file(directory: str | os.PathLike[str] | None, name: str) -> Path | None:
    if directory is None:
        return None
    os.makedirs(directory, exist_ok=True)
    return Path(directory) / f"{name}.law"


__all__ = ["Verdict", "verify_values"]
