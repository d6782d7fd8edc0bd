"""Decide by a planned test, with as few samples as luck allows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, Protocol

from .._base.validation import ParameterError
from .empirical import Empirical
from .mean_test import MeanTest
from .tally import EmpiricalTally, Progress


class Values(Protocol):
    """Values in [0, 1] of which a test is about the mean: blocks that depend on a seed and their number."""

    block_size: int

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


def decide(
    test: MeanTest,
    values: Values,
    seed: int,
    key: Mapping[str, Any],
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> tuple[bool, Empirical]:
    """Whether the samples of ``seed`` are evidence enough, and the law of those that were drawn.

    Guarantee: `MeanTest`'s, whatever the pilot that planned it, which must not have seen this ``seed``. A test by
    betting ends as soon as the first blocks suffice (`MeanTest.looks`). The same call resumes from the
    ``checkpoint`` file, with the same verdict. ``progress`` is called with the samples done and planned.
    """
    accepted, seen = test.tested == 1.0, Empirical.of([])
    if accepted:
        return accepted, seen
    looks = test.looks(values.block_size)
    for tally in _prefixes(values, looks, seed, key, checkpoint, progress, executor):
        seen = tally.law()
        accepted = test.accepts(seen) if tally.blocks == looks[-1] else test.accepts_early(seen)
        if accepted:
            break
    return accepted, seen


def _prefixes(
    values: Values,
    looks: tuple[int, ...],
    seed: int,
    key: Mapping[str, Any],
    checkpoint: str | os.PathLike[str] | None,
    progress: Progress | None,
    executor: Executor | None,
) -> Iterator[EmpiricalTally]:
    """The first blocks, at each of the ``looks`` that the file does not lie beyond."""
    size, total = values.block_size, looks[-1] * values.block_size
    held = (
        [] if checkpoint is None or not Path(checkpoint).exists() else EmpiricalTally.load(checkpoint).ranges
    )
    # Blocks beyond a look, in whatever order workers brought them, were drawn because that look did not suffice.
    reached = held[-1][1] if held else 0
    if reached > looks[-1]:
        raise ParameterError(
            f"checkpoint {Path(checkpoint or '')}: holds blocks {held}, not the first of {looks[-1]}"
        )
    tally: EmpiricalTally | None = None
    for look in looks:
        if look < reached:
            continue
        # A file is read again, from its beginning.
        done = 0 if tally is None or checkpoint is not None else tally.blocks
        show = None if progress is None else _shown(progress, done * size, size, total)
        found = values.tally(seed, done, look, key, checkpoint, show, executor=executor)
        tally = found if tally is None or done == 0 else tally.merged(found)
        yield tally


def _shown(progress: Progress, before: int, size: int, total: int) -> Progress:
    return lambda done, _: progress(before + done * size, total)


__all__ = ["Values", "decide"]
