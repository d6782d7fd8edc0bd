"""What each of many examples went through: counts over a grid of cells, in memory or on disk.

On disk it is a directory: ``state`` is a snapshot of the counts (ledger.py), mapped into memory, and each step
since then is a file of its own, two bytes for an example, which takes its name when it is complete: this is
the moment at which the step has happened. Every so many steps they are folded into a new snapshot, which takes
the name of the old one; files of steps that it contains already are ignored, and removed. A process that is
killed at any point has made a step or not, and each step counts once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _core, ledger
from .storage import StorageError, refusing
from .validation import boolean, integer, real

Counts = NDArray[Any]

MAX_STEPS = 2**32 - 1
_ROWS = 2**16
_PREFIX = "step-"
_STEP_KIND = "step of histories"


def counter(steps: int) -> np.dtype[Any]:
    """The type of counters that so many steps do not overflow."""
    return np.dtype(np.uint16 if steps < 2**16 else np.uint32)


class Histories:
    """For each sampling probability q, how often each example's step fell into each cell.

    ``counts`` maps q to an array of shape (num_examples, columns); ``record`` adds steps to it.
    """

    def __init__(self, num_examples: int, columns: int) -> None:
        self.num_examples, self.columns = num_examples, columns
        self.counts: dict[float, Counts] = {}
        self.steps = 0

    @property
    def probabilities(self) -> list[float]:
        """The sampling probabilities that occurred, in the order in which they first did."""
        return list(self.counts)

    def record(self, q: float, cells: NDArray[np.uint16], times: int) -> None:
        """Add ``times`` steps: for each example the number of its cell from 1 on, or 0 for none."""
        if q > 0.0 and times > 0 and self.num_examples > 0:
            dtype = counter(self.steps + times)
            counts = self.counts.get(q)
            if counts is None:
                counts = np.zeros((self.num_examples, self.columns), dtype)
            elif counts.dtype != dtype:
                counts = counts.astype(dtype)
            _core.count_cells(cells, times, counts)
            self.counts[q] = counts
        self.steps += times

    def rows(self, q: float, chosen: slice | NDArray[np.int64]) -> Counts:
        """The counts of some examples; all zeros for a q that did not occur."""
        counts = self.counts.get(q)
        if counts is None:
            size = np.empty(self.num_examples, np.bool_)[chosen].size
            return np.zeros((size, self.columns), counter(self.steps))
        return counts[chosen]

    def streams(self) -> dict[str, ledger.Stream]:
        """All counts, a few rows at a time, as `ledger.write` wants them."""
        return {f"counts{i}": _stream([self], q) for i, q in enumerate(self.probabilities)}

    def describe(self) -> dict[str, Any]:
        """What `restore` needs beside the arrays."""
        return {"num_examples": self.num_examples, "steps": self.steps, "q": self.probabilities}

    def restore(self, content: Mapping[str, Any], arrays: Mapping[str, Counts]) -> None:
        """Take over what `describe` and `streams` said; StorageError if it does not fit."""
        self.steps = integer("steps", content["steps"], 0, MAX_STEPS)
        for i, q in enumerate(content["q"]):
            counts = arrays[f"counts{i}"]
            if counts.shape != (self.num_examples, self.columns) or counts.dtype not in (
                np.uint16,
                np.uint32,
            ):
                raise StorageError("its counts do not fit its grid")
            self.counts[real("sampling_probability", q, 0.0, 1.0)] = counts

    @staticmethod
    def merge(shards: list[Histories]) -> Histories:
        """The examples of all shards, which have made the same steps, in memory."""
        out = Histories(sum(shard.num_examples for shard in shards), shards[0].columns)
        out.steps = shards[0].steps
        for q in dict.fromkeys(q for shard in shards for q in shard.probabilities):
            stream = _stream(shards, q)
            out.counts[q] = np.empty(stream.shape, stream.dtype)
            start = 0
            for chunk in stream.chunks():
                out.counts[q][start : start + len(chunk)] = chunk
                start += len(chunk)
        return out

    def close(self) -> None:
        """Let go of files, if any."""


class LiveHistories(Histories):
    """Histories in a directory; see the module's text. Only one process may have it open.

    ``settings`` are the values that whoever made it wants to find again. ``durable`` also survives a power
    failure, at the price of waiting for the disk in each step.
    """

    # As many steps take half as much room as the counts of the default grid.
    FOLD = 256

    def __init__(self, path: str | os.PathLike[str], kind: str) -> None:
        self._path, self._kind = Path(path), kind
        self._lock = ledger.locked(self._path / "lock")
        self._interrupted = False
        try:
            self._pending: list[tuple[Path, float, int]] = []
            content = self._map(verify=True)
            self.settings: dict[str, Any] = content["settings"]
            self.durable = boolean("durable", content["durable"])
            self._find_pending()
        except BaseException:
            self._lock.close()
            raise

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        kind: str,
        settings: Mapping[str, Any],
        columns: int,
        durable: bool,
        parts: Iterable[Histories],
    ) -> LiveHistories:
        """A new directory at ``path`` with the examples of all ``parts``, which have made the same steps."""
        shards = list(parts)
        probabilities = list(dict.fromkeys(q for shard in shards for q in shard.probabilities))
        content = {
            "settings": dict(settings),
            "durable": boolean("durable", durable),
            "columns": columns,
            "num_examples": sum(shard.num_examples for shard in shards),
            "steps": shards[0].steps,
            "q": probabilities,
        }
        streams = {f"counts{i}": _stream(shards, q) for i, q in enumerate(probabilities)}
        with ledger.new_directory(path) as directory:
            (directory / "lock").touch()
            ledger.write(directory / "state", kind, content, streams)
        return cls(path, kind)

    @property
    def probabilities(self) -> list[float]:
        self._check()
        return list(dict.fromkeys([*self.counts, *(q for _, q, _ in self._pending if q > 0.0)]))

    def record(self, q: float, cells: NDArray[np.uint16], times: int) -> None:
        if times == 0:
            return
        self._check()
        # Folding comes first: if it fails, this step has not happened.
        if len(self._pending) >= self.FOLD:
            self.fold()
        path = self._path / f"{_PREFIX}{self.steps + times:012}"
        content = {"before": self.steps, "times": times, "q": q}
        arrays = {"cells": cells if q > 0.0 else cells[:0]}
        # An exception in here (Ctrl-C, say) leaves open whether the step has happened: opening finds out.
        self._interrupted = True
        ledger.write(path, _STEP_KIND, content, arrays, durable=self.durable)
        self._pending.append((path, q, times))
        self.steps += times
        self._interrupted = False

    def rows(self, q: float, chosen: slice | NDArray[np.int64]) -> Counts:
        self._check()
        out = np.array(super().rows(q, chosen), counter(self.steps), order="C")
        for path, step_q, times in self._pending:
            if step_q == q:
                cells = ledger.read(path, _STEP_KIND, mapped=True, verify=False)[1]["cells"][chosen]
                _core.count_cells(np.ascontiguousarray(cells), times, out)
        return out

    def fold(self) -> None:
        """Put all steps into the snapshot. Needs the disk space of a second one meanwhile."""
        content = {
            "settings": self.settings,
            "durable": self.durable,
            "columns": self.columns,
            **self.describe(),
        }
        ledger.write(self._path / "state", self._kind, content, self.streams())
        self._interrupted = True
        done, self._pending = self._pending, []
        self._map(verify=False)
        self._interrupted = False
        for path, _, _ in done:
            path.unlink()

    def close(self) -> None:
        self.counts, self._pending = {}, []
        self._lock.close()

    def _check(self) -> None:
        if self._interrupted:
            raise StorageError(
                f"{os.fspath(self._path)!r}: a step was interrupted; close the histories and open them again"
            )

    def _map(self, verify: bool) -> dict[str, Any]:
        path = self._path / "state"
        content, arrays = ledger.read(path, self._kind, mapped=True, verify=verify)
        with refusing(path):
            super().__init__(content["num_examples"], integer("columns", content["columns"], 1))
            self.restore(content, arrays)
        return content

    def _find_pending(self) -> None:
        """The steps since the snapshot; those before it are left over from folding."""
        for path in sorted(self._path.glob(f"{_PREFIX}*")):
            if int(path.name.removeprefix(_PREFIX)) <= self.steps:
                path.unlink()
                continue
            content, arrays = ledger.read(path, _STEP_KIND, mapped=True)
            with refusing(path):
                q = real("sampling_probability", content["q"], 0.0, 1.0)
                times = integer("times", content["times"], 1, MAX_STEPS - self.steps)
                if content["before"] != self.steps:
                    raise StorageError(f"a step before it is missing: it follows {content['before']} steps")
                cells = arrays["cells"]
                if cells.dtype != np.uint16 or cells.shape != (self.num_examples if q > 0.0 else 0,):
                    raise StorageError("it does not fit the number of examples")
                if cells.size and int(cells.max()) > self.columns:
                    raise StorageError("a cell lies past the last column")
            self._pending.append((path, q, times))
            self.steps += times
        # Left over from a process that was killed while it wrote.
        for path in self._path.glob(".*"):
            with suppress(OSError):
                path.unlink()


def _stream(shards: list[Histories], q: float) -> ledger.Stream:
    dtype = counter(shards[0].steps)

    def chunks() -> Iterator[Counts]:
        for shard in shards:
            for start in range(0, shard.num_examples, _ROWS):
                yield shard.rows(q, slice(start, min(start + _ROWS, shard.num_examples))).astype(dtype)

    rows = sum(shard.num_examples for shard in shards)
    return ledger.Stream(dtype, (rows, shards[0].columns), chunks)
