"""One way to draw: the missing blocks of a run, here or on an executor, into a tally that a file keeps.

Every sampler (`Samples`) says what a block of a seed holds; `RunOptions` is what travels with a run from the call
that asks for it down to the blocks. Neither who draws nor any interruption leaves a trace in the result
(docs/montecarlo/executors.md).
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import secrets
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypedDict, TypeVar

from .._base import storage
from .._base.bounds import Bounds
from .._base.executors import SECONDS, Draw, checked, elsewhere, here
from .._base.files import refusing
from .._base.progress import shown
from .._base.types import AnyPath, Progress, Self
from .._base.validation import MAX_COUNT, ParameterError, ParameterTypeError, integer
from ..mechanisms.descriptions import Composable, Process, composition
from .tally import Tally, Totals, difference

MAX_SEED = 2**63 - 1  # *limit*

_T = TypeVar("_T", bound=Totals)


class RunSettings(TypedDict, total=False):
    """What the callers of long runs may add; see `estimate_delta`."""

    composed_with: Composable | None
    checkpoint: AnyPath | None
    progress: Progress | None
    executor: Executor | None


@dataclass(frozen=True)
class RunOptions:
    """What travels with a run: which delta is asked for, where the run is kept, who is told and who draws.

    ``others`` is released as well. ``checkpoint`` is a directory, or the file of one tally; ``progress`` is called
    with what is done and with all there is to do; the workers of ``executor`` draw the blocks.
    """

    adjacency: str = "zero_out"
    others: Process | None = None
    checkpoint: AnyPath | None = None
    progress: Progress | None = None
    executor: Executor | None = None

    @classmethod
    def of(cls, adjacency: str = "zero_out", /, composed_with: Composable | None = None, **kept: Any) -> Self:
        """The options of a public call, whose `RunSettings` have these names."""
        for name in kept:
            if name not in RunSettings.__annotations__:
                raise ParameterTypeError(
                    f"{name}: is no option of a run, which are {', '.join(RunSettings.__annotations__)}"
                )
        checked(kept.get("executor"))
        others = None if composed_with is None else composition(composed_with, "composed_with")
        return cls(adjacency, others, **kept)

    def file(self, name: str) -> Self:
        """The same run, kept in this file of the directory."""
        return (
            self if self.checkpoint is None else replace(self, checkpoint=os.path.join(self.checkpoint, name))
        )

    def folder(self, name: str) -> Self:
        """The same run, kept in this directory of the directory."""
        found = self.file(name)
        if found.checkpoint is not None:
            os.makedirs(found.checkpoint, exist_ok=True)
        return found

    def unrecorded(self) -> Self:
        """For pilots that are fast to repeat: nothing is kept, nobody is told."""
        return replace(self, checkpoint=None, progress=None)

    def in_samples(self, size: int, before: int = 0, total: int | None = None) -> Self:
        """For a run of blocks of this size: ``progress`` hears of samples, ``before`` of them done already."""
        show = self.progress
        if show is None:
            return self

        def counted(done: int, blocks: int) -> object:
            return show(before + done * size, blocks * size if total is None else total)

        return replace(self, progress=counted)


ALONE = RunOptions()
"""No checkpoint, nobody is told, and this process draws."""


class Samples(Generic[_T]):
    """Samples of one quantity, in blocks that depend on nothing but a seed and their number."""

    block_size: int
    identity: Mapping[str, Any]
    """What is sampled, in JSON values."""
    kind: type[_T]

    def draw(self, seed: int, first: int, count: int) -> tuple[Any, ...]:
        """What ``kind.add`` takes of ``count`` blocks from ``first`` on, drawn wherever this was sent to."""
        raise NotImplementedError

    def tally(
        self,
        seed: int,
        first: int,
        last: int,
        options: RunOptions = ALONE,
        stop: Callable[[_T], bool] | None = None,
    ) -> _T:
        """The tally of the blocks [first, last) of this seed; see `run`."""
        draw = functools.partial(self.draw, seed)
        return run(draw, self.key(seed), 2, first, last, options, stop, self.kind)

    def key(self, seed: int) -> dict[str, Any]:
        """The key of the tallies of this seed."""
        return {**self.identity, "seed": seed}

    def interval(self, tally: _T, confidence: float) -> tuple[float, Bounds]:
        """An estimate, and bounds that hold with this ``confidence`` if the number of blocks was fixed before."""
        raise NotImplementedError

    def evidence(self, tally: _T, confidence: float) -> dict[str, Any]:
        """What proves the upper of these bounds, in JSON values: see `hockeystick.verify.samples`."""
        raise NotImplementedError


def run(
    draw: Draw,
    key: Mapping[str, Any],
    rows: int,
    first: int,
    last: int,
    options: RunOptions = ALONE,
    stop: Callable[[_T], bool] | None = None,
    kind: type[_T] = Tally,  # type: ignore[assignment]
) -> _T:
    """Draw the blocks of [first, last) that are not in the ``checkpoint`` file yet; return the tally of all of them.

    The file, if any, is replaced after every second or so of work, so that whatever ends the process, at most the
    blocks just running are lost. ``progress`` is called with the blocks done and all; without it somebody who
    looks sees a bar (`shown`). ``stop`` is asked after each chunk whether what is known suffices.
    """
    if last > MAX_COUNT:
        raise ParameterError(f"blocks up to {last}: must be at most {MAX_COUNT}")
    checkpoint, executor = options.checkpoint, options.executor
    # The key as the file would give it back.
    tally = _resumed(kind(json.loads(json.dumps(dict(key))), rows), checkpoint, first, last)
    with shown("Monte Carlo", "blocks", options.progress) as show:

        def suffices() -> bool:
            left = sum(end - start for start, end in tally.missing(first, last))
            show(last - first - left, last - first)
            return stop is not None and stop(tally)

        if suffices():
            return tally
        gaps = tally.missing(first, last)
        drawn = here(draw, gaps) if executor is None else elsewhere(draw, gaps, executor)
        saved, unsaved = -math.inf, False
        try:
            for start, count, parts in drawn:
                tally.add(start, count, *parts)
                unsaved = checkpoint is not None
                # Many workers come back many times a second.
                if checkpoint is not None and time.monotonic() - saved > (
                    0.0 if executor is None else SECONDS
                ):
                    tally.save(checkpoint)
                    saved, unsaved = time.monotonic(), False
                if suffices():
                    return tally
        finally:
            drawn.close()
            if unsaved and checkpoint is not None:
                tally.save(checkpoint)
    if tally.missing(first, last):
        raise RuntimeError(f"blocks {tally.missing(first, last)} were not drawn")
    return tally


def _resumed(fresh: _T, checkpoint: AnyPath | None, first: int, last: int) -> _T:
    """What the file holds of the run that ``fresh`` begins; a file of another run, or of other blocks too, is refused."""
    if checkpoint is None or not Path(checkpoint).exists():
        return fresh
    found = type(fresh).load(checkpoint)
    if found.key != fresh.key:
        raise ParameterError(
            f"checkpoint {os.fspath(checkpoint)!r}: belongs to another run: {difference(found.key, fresh.key)}"
        )
    # The sums of a file cannot be taken apart: what is outside would be counted.
    if found.ranges and not first <= found.ranges[0][0] < found.ranges[-1][1] <= last:
        raise ParameterError(
            f"checkpoint {os.fspath(checkpoint)!r}: holds blocks {found.ranges}, not only of the [{first}, {last}) "
            "asked for; ask for as many, or name another checkpoint"
        )
    return found


def resolve_seed(seed: int | None, directory: AnyPath | None) -> int:
    """The seed given, that of the run in ``directory``, or a new one, remembered there."""
    path, recorded = None, None
    if directory is not None:
        os.makedirs(directory, exist_ok=True)
        path = Path(directory) / "seed"
    if path is not None and path.exists():
        content, _ = storage.read(path, "seed")
        with refusing(path):
            recorded = int(content["seed"])
    if seed is None:
        seed = secrets.randbelow(MAX_SEED) if recorded is None else recorded
    seed = integer("seed", seed, 0, MAX_SEED)
    if recorded is not None and recorded != seed:
        raise ParameterError(f"seed = {seed}: the run in {os.fspath(path or '')!r} has seed {recorded}")
    if path is not None and recorded is None:
        storage.write(path, "seed", {"seed": seed}, {})
    return seed


def derived(seed: int, *label: object) -> int:
    """A seed for one part of a procedure, as good as independent of those of the other parts."""
    text = repr((integer("seed", seed, 0, MAX_SEED), *label)).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 1
