"""Files for the state of many examples: snapshots, and a ledger on disk that a killed process cannot break.

A snapshot is one file: a header of JSON, padded to 4096 bytes, and raw arrays, with a checksum for each. It is
written beside its place and then takes the name, so a crash leaves the old one or the new one.

A live ledger is a directory: ``state`` is a snapshot whose array is mapped into memory and changed in place,
``journal``, a snapshot too, says what the last step wrote, ``active`` holds the number of active examples of each step, and
``lock`` (storage.py) keeps a second process out. A step first writes its new values to a new journal, which then takes
the name (this is the moment at which the step has happened), then copies the values to where they belong. Opening the
directory copies them again: the journal holds values, not increments, so doing it twice changes nothing. A process
that is killed at any point has either made the step or not.

The journal also holds what the checksums of all values and of all counts are once its step is made. These checksums are
sums over places (cpp/src/individual/ledger.cpp), so that a step only computes what its own values change in them. Opening compares
them: whatever is damaged in the meantime is either written again from the journal, or found.

All space that a step needs is taken before it happens: if there is none left, an OSError says so, and nothing has changed.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .._base.storage import StorageError, StoreLock, new_directory, part, refusing, replacing
from .._base.validation import boolean, integer

FORMAT = "hockeystick-state"
VERSION = 2  # 1 had other checksums of arrays

RESUME = "open() resumes a ledger"

_HEADER = 4096
_CHUNK = 2**22  # values that are copied at a time (speed)
_STEP_KIND = "step of ledger"

Array: TypeAlias = NDArray[Any]
_Path: TypeAlias = "str | os.PathLike[str]"


class Stream(NamedTuple):
    """An array that is written in parts: ``chunks()`` yields them in order; together they have this shape."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    chunks: Callable[[], Iterable[Array]]


class Made(NamedTuple):
    """An array that ``make`` writes to its place in the file, through a map of it."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    make: Callable[[Array], None]


def write(
    path: _Path,
    kind: str,
    content: Mapping[str, Any] | Callable[[Mapping[str, int]], Mapping[str, Any]],
    arrays: Mapping[str, Array | Stream | Made],
    *,
    durable: bool = True,
) -> dict[str, int]:
    """Write a snapshot, all of it or nothing, and return the checksums of its arrays.

    ``content``: JSON values, or what makes them of the checksums after all arrays are written. ``durable`` waits until
    the file has reached the disk.
    """
    layout, checksums, offset = [], {}, _HEADER
    with replacing(path, durable=durable) as file:
        # No holes: a map of the file can be written to without asking for space.
        file.write(bytes(_HEADER))
        for name, array in arrays.items():
            checksum = _Checksum()
            if isinstance(array, Made):
                _reserve(file, math.prod(array.shape) * array.dtype.itemsize)
                made = _mapped(file, array.dtype, array.shape, offset, "r+")
                array.make(made)
                if durable and isinstance(made, np.memmap):
                    made.flush()
                checksum.add(_bytes(made))
                file.seek(0, os.SEEK_END)
            else:
                for chunk in array.chunks() if isinstance(array, Stream) else [array]:
                    data = _bytes(chunk)
                    file.write(data.data)
                    checksum.add(data)
            checksums[name] = checksum.value()
            layout.append(
                {
                    "name": name,
                    "dtype": array.dtype.str,
                    "shape": array.shape,
                    "offset": offset,
                    "checksum": checksums[name],
                }
            )
            end = file.tell()
            offset = _aligned(end)
            file.write(bytes(offset - end))
        file.seek(0)
        file.write(_header(kind, content(checksums) if callable(content) else content, layout))
    return checksums


class _Checksum:
    """The core's checksum of memory that comes in parts of any length."""

    def __init__(self) -> None:
        self._sum = self._words = 0
        self._rest = np.empty(0, np.uint8)

    def add(self, data: NDArray[np.uint8]) -> None:
        if self._rest.size:
            data = np.concatenate([self._rest, data])
        whole = data.size // 8 * 8
        self._sum += _core.checksum(data[:whole], self._words)
        self._words += whole // 8
        self._rest = data[whole:].copy()

    def value(self) -> int:
        return (self._sum + _core.checksum(self._rest, self._words)) % 2**64


def read(
    path: _Path, kind: str, *, mapped: bool = False, writable: bool = False, verify: bool = True
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read back (content, arrays); StorageError for whatever `write` did not write.

    ``mapped``: arrays are mapped into memory instead of read, and changing them changes the file if it is ``writable``.
    ``verify`` compares checksums.
    """
    with refusing(path), open(path, "r+b" if writable else "rb") as file:
        header = _read_header(file, kind)
        arrays, end = {}, _HEADER
        for entry in header["arrays"]:
            dtype, shape = np.dtype(entry["dtype"]), tuple(integer("shape", n) for n in entry["shape"])
            if dtype.kind not in "fui":
                raise StorageError(f"array {entry['name']} is not of numbers")
            if entry["offset"] != end:
                raise StorageError(f"array {entry['name']} is not in its place")
            end = _aligned(end + math.prod(shape) * dtype.itemsize)
        # Mapping more than there is would make up zeros, or end the process.
        if os.fstat(file.fileno()).st_size != end:
            raise StorageError(f"its size is not the {end} bytes that its header says")
        for entry in header["arrays"]:
            dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
            array: Array
            if mapped:
                array = _mapped(file, dtype, shape, entry["offset"], "r+" if writable else "r")
            else:
                file.seek(entry["offset"])
                array = np.fromfile(file, dtype, math.prod(shape)).reshape(shape)
            if verify and _CHECKSUMS[header["version"]](array) != entry["checksum"]:
                raise StorageError(f"array {entry['name']} is damaged: its checksum does not match")
            arrays[str(entry["name"])] = array
        return header["content"], arrays


class LiveLedger:
    """A mapped array of doubles >= 0 that changes by whole steps; see the module's text. Close it when done.

    Only one process may have it open. ``durable`` also survives a power failure, at the price of waiting
    for the disk in each step.
    """

    def __init__(self, path: _Path, kind: str) -> None:
        self.path = Path(path)
        self.values: Array
        self.last: tuple[Array | None, Array] | None = None
        self._interrupted = False
        self._lock = StoreLock(self.path)
        try:
            self._load(kind)
        except BaseException:
            self._lock.close()
            raise

    @classmethod
    def create(
        cls, path: _Path, kind: str, content: Mapping[str, Any], parts: Sequence[Array | int], counts: Array
    ) -> LiveLedger:
        """A new directory at ``path``, which must not exist, after steps of so many active examples.

        ``parts``: values, one array after the other; a number stands for so many zeros.
        """
        size = sum(values if isinstance(values, int) else values.size for values in parts)
        spent = Stream(np.dtype(np.float64), (size,), lambda: _pieces(parts))
        counts = np.ascontiguousarray(counts, np.int64)
        name = secrets.token_hex(16)
        with new_directory(path, RESUME) as directory:
            with replacing(directory / "active") as file:
                file.write(counts.tobytes())
            written = write(directory / "state", kind, {**content, "ledger": name}, {"spent": spent})
            journal = _journal(name, counts.size, 0, written["spent"], _core.checksum(counts))
            write(directory / "journal", _STEP_KIND, journal, {})
            StoreLock.create(directory, counts.size)
        return cls(path, kind)

    def step(self, indices: Array | None, charge: Callable[[Array, Array, Array], int]) -> NDArray[np.uint8]:
        """Make one step, of all values or those at ``indices``; returns who is active.

        ``charge(before, after, active)`` is given the old values, fills in the new ones and who is active, and returns how
        many are. An exception before the journal has its name leaves all as it was; after
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
            counts = self._counts_checksum + _count_checksum(self.steps, count)
            return _journal(self.content["ledger"], self.steps + 1, count, checksum, counts)

        arrays: dict[str, Array | Made] = {
            "values": Made(np.dtype(np.float64), (size,), make),
            "active": active,
        }
        if indices is not None:
            arrays["indices"] = indices
        self._write_count(0)
        if self.durable and isinstance(self.values, np.memmap):
            self.values.flush()
        journal = self.path / "journal"
        old = os.stat(journal)
        self._interrupted = True
        try:
            write(journal, _STEP_KIND, content, arrays, durable=self.durable)
        except BaseException:
            self._interrupted = not os.path.samestat(os.stat(journal), old)
            raise
        self._apply(*read(journal, _STEP_KIND, mapped=True, verify=False))
        self._interrupted = False
        return active

    def active_counts(self) -> Array:
        """Number of active examples in each step so far."""
        self._check()
        return self._counts()

    def close(self) -> None:
        """Let another process open it."""
        self.values = np.array([], np.float64)
        self.last = None
        self._lock.close()

    def _check(self) -> None:
        # Without the lock, another process may have it open by now.
        if self._lock.closed:
            raise StorageError(f"{os.fspath(self.path)!r}: is closed; open it again")
        if self._interrupted:
            raise StorageError(
                f"{os.fspath(self.path)!r}: a step was interrupted; close the ledger and open it again"
            )

    def _load(self, kind: str) -> None:
        state, journal, active = (part(self.path, name) for name in ("state", "journal", "active"))
        self.content, arrays = read(state, kind, mapped=True, writable=True, verify=False)
        with refusing(state):
            self.durable = boolean("durable", self.content["durable"])
            self.values = arrays["spent"]
            if self.values.dtype != np.float64 or self.values.ndim != 1:
                raise StorageError("it does not hold one number for each example")
        content, arrays = read(journal, _STEP_KIND, mapped=True)
        with refusing(journal):
            if content["ledger"] != self.content["ledger"]:
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
        if (
            values.dtype != np.float64
            or active.dtype != np.uint8
            or not values.shape == active.shape == (size,)
        ):
            raise StorageError("it does not fit the number of examples")
        if (size and active.max() > 1) or int(active.sum(dtype=np.int64)) != count:
            raise StorageError("it does not say who was active")

    def _apply(self, content: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Put what a journal says to its place."""
        if arrays:
            values, indices = arrays["values"], arrays.get("indices")
            if indices is None:
                for start in range(0, values.size, _CHUNK):
                    self.values[start : start + _CHUNK] = values[start : start + _CHUNK]
            else:
                indices = np.array(indices)
                self.values[indices] = values
            self.last = (indices, np.array(arrays["active"]))
            self.steps = integer("steps", content["steps"]) - 1
            self._write_count(content["active"])
        self.steps = integer("steps", content["steps"])
        self._checksum, self._counts_checksum = content["checksum"], content["counts_checksum"]
        self._lock.note(self.steps)

    def _counts(self) -> Array:
        counts = np.fromfile(self.path / "active", np.int64)
        # A step that has not happened may have taken its place already.
        if not self.steps <= counts.size <= self.steps + 1:
            raise StorageError(
                f"{os.fspath(self.path / 'active')!r}: has another size than {self.steps} steps"
            )
        return counts[: self.steps]

    def _write_count(self, count: int) -> None:
        """Number of active examples of the step that is being made."""
        with open(self.path / "active", "r+b") as file:
            file.seek(8 * self.steps)
            file.write(np.int64(count).tobytes())
            if self.durable:
                file.flush()
                os.fsync(file.fileno())


def _journal(name: str, steps: int, count: int, checksum: int, counts_checksum: int) -> dict[str, Any]:
    """``checksum``, ``counts_checksum``: of all values, and of the counts of all steps, after the last step."""
    return {
        "ledger": name,
        "steps": steps,
        "active": count,
        "checksum": checksum % 2**64,
        "counts_checksum": counts_checksum % 2**64,
    }


def _count_checksum(step: int, count: int) -> int:
    return _core.checksum(np.array([count], np.int64), step)


def _pieces(parts: Sequence[Array | int]) -> Iterator[Array]:
    for values in parts:
        if isinstance(values, int):
            for start in range(0, values, _CHUNK):
                yield np.zeros(min(_CHUNK, values - start))
        else:
            yield from _chunks(values)


def _header(kind: str, content: Mapping[str, Any], layout: list[dict[str, Any]]) -> bytes:
    header = {
        "format": FORMAT,
        "version": VERSION,
        "kind": kind,
        "library": _core.__version__,
        "content": content,
        "arrays": layout,
    }
    checksum = zlib.crc32(json.dumps(header, allow_nan=False).encode())
    text = json.dumps({**header, "checksum": checksum}, allow_nan=False).encode()
    if len(text) > _HEADER:
        raise StorageError("too much to describe in one header")
    return text.ljust(_HEADER)


def _read_header(file: BinaryIO, kind: str) -> dict[str, Any]:
    header: Any = json.loads(file.read(_HEADER))
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise StorageError("it was not written by hockeystick")
    if header.get("version") not in _CHECKSUMS:
        raise StorageError(
            f"its format version {header.get('version')} is not one of 1 to {VERSION} that this library reads "
            f"(written by hockeystick {header.get('library')}): upgrade to read it"
        )
    checksum = header.pop("checksum")
    if zlib.crc32(json.dumps(header, allow_nan=False).encode()) != checksum:
        raise StorageError("its checksum does not match: the header is damaged")
    if header["kind"] != kind:
        raise StorageError(f"it holds a {header['kind']!r}, not a {kind!r}")
    return header


def _chunks(array: Array) -> Iterator[Array]:
    flat = np.ascontiguousarray(array).reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        yield flat[start : start + _CHUNK]


def _mapped(
    file: BinaryIO, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int, mode: Any = "r"
) -> Array:
    # Nothing cannot be mapped.
    if math.prod(shape) == 0:
        return np.empty(shape, dtype)
    return np.memmap(file, dtype, mode, offset=offset, shape=shape)


def _reserve(file: BinaryIO, size: int) -> None:
    """Append so many bytes for which there is room on the disk: writing to a map where there is none ends the process."""
    file.flush()
    if size and hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), file.tell(), size)
    else:
        file.writelines(bytes(min(_CHUNK, size - start)) for start in range(0, size, _CHUNK))
        file.flush()


def _bytes(array: Array) -> NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _crc(array: Array) -> int:
    checksum = 0
    for chunk in _chunks(array):
        checksum = zlib.crc32(chunk.data.cast("B"), checksum)
    return checksum


_CHECKSUMS: dict[Any, Callable[[Array], int]] = {1: _crc, VERSION: _core.checksum}


def _aligned(offset: int) -> int:
    return -(-offset // 4096) * 4096
