"""What each of many examples has spent, in memory, or on disk so that a killed process cannot break it.

On disk it is a directory: ``state`` is a file of the store (storage.py) whose array is mapped into memory and changed in place,
``journal``, a file of the store too, says what the last step wrote, ``active`` holds the number of active examples of each step, and
``lock`` keeps a second process out. A step first writes its new values to a new journal, which then takes
the name (this is the moment at which the step has happened), then copies the values to where they belong. Opening the
directory copies them again: the journal holds values, not increments, so doing it twice changes nothing. A process
that is killed at any point has either made the step or not.

The journal also holds what the checksums of all values and of all counts are once its step is made. These checksums are
sums over places, so that a step only computes what its own values change in them. Opening compares
them: whatever is damaged in the meantime is either written again from the journal, or found (docs/individual/individual.md, "State").

All space that a step needs is taken before it happens: if there is none left, an OSError says so, and nothing has changed.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .._base import storage
from .._base.exclusive import undivided
from .._base.files import StorageError, part, refusing, replacing
from .._base.storage import Array, Made
from .._base.validation import boolean, integer, narrowed
from .kept import Live

_STEP_KIND = "step of ledger"

Charge: TypeAlias = Callable[[Array, Array, Array], int]
"""charge(before, after, active) is given the old values, fills in the new ones and who is active, and returns how many are."""


class Ledger:
    """What each example has spent, ``values`` >= 0, which change by whole steps; this one is kept in memory.

    ``last``: which examples the last step was about (None: all), and which of these were active.
    """

    def __init__(self, values: Array, counts: Sequence[int] = ()) -> None:
        self.values = values
        self.last: tuple[Array | None, Array] | None = None
        self._active = list(counts)

    @property
    def num_examples(self) -> int:
        return int(self.values.size)

    @property
    def steps(self) -> int:
        return len(self._active)

    def active_counts(self) -> NDArray[np.int64]:
        return np.array(self._active, np.int64)

    @undivided
    def step(self, indices: Array | None, charge: Charge) -> Array:
        """Make one step, of all values or those at ``indices``; returns who is active.

        Ctrl-C may leave examples charged for a step that ``steps`` does not count, and that nobody took part in: too much, never too little.
        """
        active = np.empty(self.values.size if indices is None else indices.size, np.uint8)
        # Without indices the core works in place: nothing can fail from here on.
        before = self.values if indices is None else self.values[indices]
        after = before if indices is None else np.empty(indices.size)
        count = charge(before, after, active)
        if indices is not None:
            self.values[indices] = after
        self._active.append(count)
        self.last = None if indices is None else _kept(indices), _kept(active)
        return active

    @staticmethod
    def snapshot(shards: Sequence[Ledger]) -> tuple[dict[str, Any], dict[str, Array | Made]]:
        """(content, arrays) for a file: the examples of all shards, which have made the same steps."""

        def join(out: Array) -> None:
            start = 0
            for shard in shards:
                out[start : start + shard.num_examples] = shard.values
                start += shard.num_examples

        spent = Made(np.dtype(np.float64), (sum(shard.num_examples for shard in shards),), join)
        counts = np.array([shard.active_counts() for shard in shards], np.int64).sum(axis=0)
        return {}, {"spent": spent, "active": counts}

    def loaded(self, content: Mapping[str, Any], arrays: Mapping[str, Array]) -> Ledger:
        """What `snapshot` said; StorageError if it does not fit."""
        spent, counts = arrays["spent"], arrays["active"]
        if spent.dtype != np.float64 or spent.ndim != 1 or not bool((spent >= 0).all()):
            raise StorageError("its ledger is not one of numbers >= 0")
        return Ledger(spent, [integer("active", count, 0, spent.size) for count in counts.tolist()])

    def check_open(self) -> None:
        """Nothing to say of one in memory."""

    def close(self) -> None:
        """Let go of files, if any."""


class LiveLedger(Live, Ledger):
    """A ledger in a directory; see the module's text."""

    steps = 0  # changes with each step; a ledger in memory counts them

    @staticmethod
    def _fill(
        directory: Path, kind: str, settings: Mapping[str, Any], durable: bool, parts: Sequence[Any]
    ) -> None:
        _, arrays = Ledger.snapshot(parts)
        counts, name = narrowed(arrays.pop("active"), np.ndarray), secrets.token_hex(16)
        with replacing(directory / "active") as file:
            file.write(counts.tobytes())
        content = {**settings, "durable": durable, "ledger": name}
        written = storage.write(directory / "state", kind, content, arrays)
        journal = _journal(name, counts.size, 0, written["spent"], _core.checksum(counts))
        storage.write(directory / "journal", _STEP_KIND, journal, {})

    @undivided
    def step(self, indices: Array | None, charge: Charge) -> Array:
        """As in memory. An exception before the journal has its name leaves all as it was; after
        it (Ctrl-C, say), only opening the ledger again finds out how far the step has come, and finishes it.
        """
        self._check()
        size = self.values.size if indices is None else indices.size
        active = np.empty(size, np.uint8)
        count, change = 0, 0

        def make(after: Array) -> None:
            nonlocal count, change
            before = self.values if indices is None else self.values[indices]
            count = charge(before, after, active)
            if indices is not None:
                change = _core.checksum_at(indices, after) - _core.checksum_at(indices, before)

        def content(written: Mapping[str, int]) -> dict[str, Any]:
            checksum = written["values"] if indices is None else self._checksum + change
            counts = self._counts_checksum + _core.checksum(np.array([count], np.int64), self.steps)
            return _journal(self._name, self.steps + 1, count, checksum, counts)

        values = Made(np.dtype(np.float64), (size,), make)
        arrays: dict[str, Array | Made] = {"values": values, "active": active}
        if indices is not None:
            arrays["indices"] = indices
        self._write_count(0)
        if self.durable and isinstance(self.values, np.memmap):
            self.values.flush()
        journal = self._path / "journal"
        old = os.stat(journal)
        self._interrupted = True
        try:
            storage.write(journal, _STEP_KIND, content, arrays, durable=self.durable)
        except BaseException:
            self._interrupted = not os.path.samestat(os.stat(journal), old)
            raise
        self._apply(*storage.read(journal, _STEP_KIND, mapped=True, verify=False))
        self._interrupted = False
        return active

    def active_counts(self) -> NDArray[np.int64]:
        self._check()
        return self._counts()

    @undivided
    def close(self) -> None:
        self.values = np.array([], np.float64)
        self.last = None
        self._lock.close()

    def _load(self) -> None:
        self.last = None
        state, journal, active = (part(self._path, name) for name in ("state", "journal", "active"))
        self.settings, arrays = storage.read(state, self._kind, mapped=True, writable=True, verify=False)
        with refusing(state):
            self.durable = boolean("durable", self.settings.pop("durable"))
            self._name = self.settings.pop("ledger")
            self.values = arrays["spent"]
            if self.values.dtype != np.float64 or self.values.ndim != 1:
                raise StorageError("it does not hold one number for each example")
        content, arrays = storage.read(journal, _STEP_KIND, mapped=True)
        with refusing(journal):
            if content["ledger"] != self._name:
                raise StorageError("it belongs to another ledger")
            self._lock.check(integer("steps", content["steps"]))
            self._check_step(content, arrays)
            self._apply(content, arrays)
        with refusing(state):
            if _core.checksum(self.values) != self._checksum:
                raise StorageError("it is damaged: its checksum does not match")
            if _core.first_invalid(self.values) < self.values.size:
                raise StorageError("it holds values that are not numbers >= 0")
        with refusing(active):
            if _core.checksum(self._counts()) != self._counts_checksum:
                raise StorageError("it is damaged: its checksum does not match")

    def _check_step(self, content: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """What no journal of a step of this ledger can hold, whatever its checksums say."""
        count = integer("active", content["active"], 0, self.values.size)
        if not arrays:
            return
        values, active, size = arrays["values"], arrays["active"], self.values.size
        if "indices" in arrays:
            indices = arrays["indices"]
            size = indices.size
            if indices.dtype != np.int64 or (
                size and not 0 <= indices.min() <= indices.max() < self.values.size
            ):
                raise StorageError("its indices are not those of examples")
        fit = values.shape == active.shape == (size,)
        if not fit or values.dtype != np.float64 or active.dtype != np.uint8:
            raise StorageError("it does not fit the number of examples")
        if (size and active.max() > 1) or int(active.sum(dtype=np.int64)) != count:
            raise StorageError("it does not say who was active")

    def _apply(self, content: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Put what a journal says to its place."""
        if arrays:
            values, indices = arrays["values"], arrays.get("indices")
            if indices is None:
                self.values[...] = values
            else:
                indices = _kept(indices)
                self.values[indices] = values
            self.last = indices, _kept(arrays["active"])
            self.steps = integer("steps", content["steps"]) - 1
            self._write_count(content["active"])
        self.steps = integer("steps", content["steps"])
        self._checksum, self._counts_checksum = content["checksum"], content["counts_checksum"]
        self._lock.note(self.steps)

    def _counts(self) -> Array:
        counts = np.fromfile(self._path / "active", np.int64)
        # A step that has not happened may have taken its place already.
        if not self.steps <= counts.size <= self.steps + 1:
            raise StorageError(
                f"{os.fspath(self._path / 'active')!r}: has another size than {self.steps} steps"
            )
        return counts[: self.steps]

    def _write_count(self, count: int) -> None:
        """Number of active examples of the step that is being made."""
        with open(self._path / "active", "r+b") as file:
            file.seek(8 * self.steps)
            file.write(np.int64(count).tobytes())
            if self.durable:
                file.flush()
                os.fsync(file.fileno())


def _kept(array: Array) -> Array:
    """A copy that stays as it is, whatever the caller does with the array."""
    copy = np.array(array)
    copy.flags.writeable = False
    return copy


def _journal(name: str, steps: int, count: int, checksum: int, counts_checksum: int) -> dict[str, Any]:
    """``checksum``, ``counts_checksum``: of all values, and of the counts of all steps, after the last step."""
    made = {"ledger": name, "steps": steps, "active": count}
    return {**made, "checksum": checksum % 2**64, "counts_checksum": counts_checksum % 2**64}
