"""What each of many examples went through: counts over a grid of cells, in memory or on disk.

With a filter's histories go its decisions: who was active in the last step, and what it knows about the next.

On disk it is a directory: ``state`` is a file of the store (storage.py) with the counts, mapped into memory, and each step
since then is a file of its own, two bytes for an example, which takes its name when it is complete: this is
the moment at which the step has happened. Every so many steps they are folded into a new snapshot, which takes
the name of the old one; files of steps that it contains already are ignored, and removed. A process that is
killed at any point has made a step or not, and each step counts once. ``lock`` knows how many steps there
were, so that none can be lost at the end, and every file names the directory it belongs to (docs/individual/individual.md, "State").
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .._base import storage
from .._base.exclusive import undivided
from .._base.files import StorageError, part, refusing
from .._base.storage import Made
from .._base.validation import ParameterError, boolean, integer, real
from .kept import MAX_EXAMPLES, Kept, Live

Counts = NDArray[Any]

MAX_STEPS = 2**32 - 1  # *proof*: counters have 32 bits
_ROWS = 2**16  # *speed*: examples that are copied at a time
_PREFIX = "step-"
_STEP_KIND = "step of histories"


def counter(steps: int) -> np.dtype[Any]:
    """The type of counters that so many steps do not overflow."""
    return np.dtype(np.uint16 if steps < 2**16 else np.uint32)


class Decision(NamedTuple):
    """What a filter decided in a step, for each example.

    ``active``: who took part. ``reserve``: so many further steps fit, however large they are (uint16).
    """

    active: NDArray[np.bool_]
    reserve: NDArray[np.uint16]

    @classmethod
    def none(cls, size: int) -> Decision:
        """Before the first step."""
        return cls(np.zeros(size, np.bool_), np.zeros(size, np.uint16))

    def arrays(self) -> dict[str, Counts]:
        return {"active": self.active.view(np.uint8), "reserve": self.reserve}

    @classmethod
    def read(cls, arrays: Mapping[str, Counts], size: int) -> Decision:
        """From a file, copied; StorageError if it does not fit."""
        active, reserve = arrays["active"], arrays["reserve"]
        fit = active.shape == reserve.shape == (size,)
        if not fit or active.dtype != np.uint8 or reserve.dtype != np.uint16:
            raise StorageError("the decisions do not fit the number of examples")
        return cls(np.asarray(active != 0), np.array(reserve))


class Histories:
    """For each sampling probability q, how often each example's step fell into each cell.

    ``counts`` maps q to an array of shape (num_examples, columns); ``record`` adds steps to it. A filter's have
    its last ``decision``, and ``active_counts``: how many were active in each step.
    """

    def __init__(self, num_examples: int, columns: int) -> None:
        self.num_examples, self.columns = num_examples, columns
        self.counts: dict[float, Counts] = {}
        self.steps = 0
        self.decision: Decision | None = None
        self.active_counts: list[int] = []

    @property
    def probabilities(self) -> list[float]:
        """The sampling probabilities that occurred, in the order in which they first did."""
        return list(self.counts)

    @undivided
    def record(
        self, q: float, cells: NDArray[np.uint16], times: int, decision: Decision | None = None
    ) -> None:
        """Add ``times`` steps: for each example the number of its cell from 1 on, or 0 for none.

        A filter's need its ``decision``, for one step at a time.
        """
        self._check_decision(decision, times)
        counts = self._room(q, times)  # without it, nothing has happened yet
        # Decisions, steps, counts: if an exception (Ctrl-C) comes between, the filter must not know too little, nor may counters
        # hold more than the number of steps has room for.
        self._decide(decision)
        self.steps += times
        if counts is not None:
            _core.count_cells(cells, times, counts)
            self.counts[q] = counts

    def _room(self, q: float, times: int) -> Counts | None:
        """The counters of this q, wide enough for so many steps more; None if nothing is to be counted."""
        if not (q > 0.0 and times > 0 and self.num_examples > 0):
            return None
        dtype = counter(self.steps + times)
        counts = self.counts.get(q)
        if counts is None:
            return np.zeros((self.num_examples, self.columns), dtype)
        return counts if counts.dtype == dtype else counts.astype(dtype)

    def _check_decision(self, decision: Decision | None, times: int) -> None:
        if (decision is None) != (self.decision is None) or (decision is not None and times != 1):
            # The filter would not know of it, and let more steps through than fit.
            raise ParameterError("these histories are a filter's: only its own step may add to them")

    def _decide(self, decision: Decision | None) -> None:
        """Take the next step's decision; what is known of a step that was interrupted here is written over."""
        if decision is not None:
            self.decision = decision
            self.active_counts[self.steps :] = [int(np.count_nonzero(decision.active))]

    def rows(self, q: float, chosen: slice | NDArray[np.int64]) -> Counts:
        """The counts of some examples; all zeros for a q that did not occur."""
        counts = self.counts.get(q)
        if counts is None:
            size = np.empty(self.num_examples, np.bool_)[chosen].size
            return np.zeros((size, self.columns), counter(self.steps))
        return counts[chosen]

    @staticmethod
    def snapshot(shards: Sequence[Histories]) -> tuple[dict[str, Any], dict[str, Counts | Made]]:
        """(content, arrays) for a file: the examples of all shards, which have made the same steps."""
        probabilities = list(dict.fromkeys(q for shard in shards for q in shard.probabilities))
        decisions = [shard.decision for shard in shards if shard.decision is not None]
        decided = len(decisions) == len(shards)
        size, steps = sum(shard.num_examples for shard in shards), shards[0].steps
        content = {"num_examples": size, "steps": steps, "q": probabilities, "decided": decided}
        arrays: dict[str, Counts | Made] = {
            f"counts{i}": _joined(shards, q) for i, q in enumerate(probabilities)
        }
        if decided:
            together = Decision(*(np.concatenate(part) for part in zip(*decisions, strict=True)))
            active = np.array([shard.active_counts[:steps] for shard in shards], np.int64).sum(axis=0)
            arrays.update({**together.arrays(), "active_counts": active})
        return content, arrays

    def loaded(self, content: Mapping[str, Any], arrays: Mapping[str, Counts]) -> Histories:
        """What `snapshot` said, on this grid; StorageError if it does not fit."""
        found = Histories(integer("num_examples", content["num_examples"], 0, MAX_EXAMPLES), self.columns)
        found._restore(content, arrays)
        return found

    def _restore(self, content: Mapping[str, Any], arrays: Mapping[str, Counts]) -> None:
        self.steps = integer("steps", content["steps"], 0, MAX_STEPS)
        for i, q in enumerate(content["q"]):
            counts = arrays[f"counts{i}"]
            fits = counts.shape == (self.num_examples, self.columns)
            if not fits or counts.dtype not in (np.uint16, np.uint32):
                raise StorageError("its counts do not fit its grid")
            self.counts[real("sampling_probability", q, 0.0, 1.0)] = counts
        if content["decided"]:
            self.decision = Decision.read(arrays, self.num_examples)
            self.active_counts = arrays["active_counts"].tolist()
            if len(self.active_counts) != self.steps:
                raise StorageError("its numbers of active examples do not fit its steps")

    def check_open(self) -> None:
        """Nothing to say of what is in memory."""

    def close(self) -> None:
        """Let go of files, if any."""


class LiveHistories(Live, Histories):
    """Histories in a directory; see the module's text."""

    # As many steps take half as much room as the counts of the default grid.
    FOLD = 256

    def _load(self) -> None:
        self._pending: list[tuple[Path, float, int]] = []
        content = self._map(verify=True)
        self._about = {name: content[name] for name in ("settings", "durable", "columns", "histories")}
        self.settings, self._name = content["settings"], str(content["histories"])
        self.durable = boolean("durable", content["durable"])
        self._find_pending()

    @staticmethod
    def _fill(
        directory: Path, kind: str, settings: Mapping[str, Any], durable: bool, parts: Sequence[Any]
    ) -> None:
        about = {"settings": dict(settings), "durable": durable, "columns": parts[0].columns}
        content, arrays = Histories.snapshot(parts)
        content = {**about, "histories": secrets.token_hex(16), **content}
        storage.write(directory / "state", kind, content, arrays)

    @property
    def probabilities(self) -> list[float]:
        self._check()
        return list(dict.fromkeys([*self.counts, *(q for _, q, _ in self._pending if q > 0.0)]))

    @undivided
    def record(
        self, q: float, cells: NDArray[np.uint16], times: int, decision: Decision | None = None
    ) -> None:
        self._check()
        self._check_decision(decision, times)
        if times == 0:
            return
        # Folding comes first: if it fails, this step has not happened.
        if len(self._pending) >= self.FOLD:
            self.fold()
        path = self._path / f"{_PREFIX}{self.steps + times:012}"
        content = {"histories": self._name, "before": self.steps, "times": times, "q": q}
        arrays = {"cells": cells if q > 0.0 else cells[:0], **({} if decision is None else decision.arrays())}
        self._interrupted = True
        try:
            storage.write(path, _STEP_KIND, content, arrays, durable=self.durable)
        except BaseException:
            self._interrupted = path.exists()
            raise
        self._pending.append((path, q, times))
        self._decide(decision)
        self.steps += times
        self._lock.note(self.steps)
        self._interrupted = False

    def rows(self, q: float, chosen: slice | NDArray[np.int64]) -> Counts:
        self._check()
        out = np.array(super().rows(q, chosen), counter(self.steps), order="C")
        for path, step_q, times in self._pending:
            if step_q == q:
                cells = storage.read(path, _STEP_KIND, mapped=True, verify=False)[1]["cells"][chosen]
                _core.count_cells(np.ascontiguousarray(cells), times, out)
        return out

    def fold(self) -> None:
        """Put all steps into the snapshot. Needs the disk space of a second one meanwhile."""
        content, arrays = self.snapshot([self])
        storage.write(self._path / "state", self._kind, {**self._about, **content}, arrays)
        self._interrupted = True
        done, self._pending = self._pending, []
        self._map(verify=False)
        self._interrupted = False
        for path, _, _ in done:
            path.unlink()

    @undivided
    def close(self) -> None:
        self.counts, self._pending = {}, []
        self._lock.close()

    def _map(self, verify: bool) -> dict[str, Any]:
        path = part(self._path, "state")
        content, arrays = storage.read(path, self._kind, mapped=True, verify=verify)
        with refusing(path):
            Histories.__init__(self, content["num_examples"], integer("columns", content["columns"], 1))
            self._restore(content, arrays)
        return content

    def _find_pending(self) -> None:
        """The steps since the snapshot; those before it are left over from folding."""
        for path in sorted(self._path.glob(f"{_PREFIX}*")):
            with refusing(path):
                number = int(path.name.removeprefix(_PREFIX))
            if number <= self.steps:
                path.unlink()
                continue
            content, arrays = storage.read(path, _STEP_KIND, mapped=True)
            with refusing(path):
                q = real("sampling_probability", content["q"], 0.0, 1.0)
                times = integer("times", content["times"], 1, MAX_STEPS - self.steps)
                if content["histories"] != self._name:
                    raise StorageError("it belongs to other histories")
                if content["before"] != self.steps:
                    raise StorageError(f"a step before it is missing: it follows {content['before']} steps")
                cells = arrays["cells"]
                if cells.dtype != np.uint16 or cells.shape != (self.num_examples if q > 0.0 else 0,):
                    raise StorageError("it does not fit the number of examples")
                if cells.size and int(cells.max()) > self.columns:
                    raise StorageError("a cell lies past the last column")
                decision = None if self.decision is None else Decision.read(arrays, self.num_examples)
                self._check_decision(decision, times)
            self._pending.append((path, q, times))
            self._decide(decision)
            self.steps += times
        self._lock.check(self.steps)
        # Left over from a process that was killed while it wrote.
        for path in self._path.glob(".*"):
            with suppress(OSError):
                path.unlink()


class Recorded(Kept):
    """What is built upon histories. Threads and forks: see `Exclusive`."""

    _LIVE: ClassVar[Any] = LiveHistories
    _state: Histories
    _tables: dict[Any, Any]
    """What can be computed again."""

    def _take(self, found: Histories) -> None:
        if found.columns != self._state.columns:
            raise StorageError("its counts do not fit its grid")
        if found.decision is None and self._state.decision is not None:
            raise StorageError("it does not say what the filter decided")
        self._state = found

    def _kept(self) -> dict[str, Any]:
        return {**super()._kept(), "_tables": {}}


def _joined(shards: Sequence[Histories], q: float) -> Made:
    """The counts of all shards, a few rows at a time."""

    def make(out: Counts) -> None:
        at = 0
        for shard in shards:
            for start in range(0, shard.num_examples, _ROWS):
                rows = shard.rows(q, slice(start, min(start + _ROWS, shard.num_examples)))
                out[at : at + len(rows)] = rows
                at += len(rows)

    rows = sum(shard.num_examples for shard in shards)
    return Made(counter(shards[0].steps), (rows, shards[0].columns), make)
