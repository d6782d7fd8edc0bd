"""Files for the state of many examples: snapshots, and a ledger on disk that a killed process cannot break.

A snapshot is one file: a header of JSON, padded to 4096 bytes, and raw arrays. It is written beside its
place and then takes the name, so a crash leaves the old one or the new one.

A live ledger is a directory: ``state`` is a snapshot whose array is mapped into memory and changed in place,
``journal`` says what the last step wrote, and ``active`` holds the number of active examples of each step. A step
first writes its new values to a new journal, then gives it the name (this is the moment at which the step
has happened), then copies the values to where they belong. Opening the directory copies them again: the
journal holds values, not increments, so doing it twice changes nothing. A process that is killed at any
point has either made the step or not.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from . import _core
from .storage import StorageError, refusing
from .validation import ParameterError, boolean, integer

FORMAT = "hockeystick-state"
VERSION = 1

_HEADER = 4096
_CHUNK = 2**22

Array: TypeAlias = NDArray[Any]
_Path: TypeAlias = "str | os.PathLike[str]"


class Stream(NamedTuple):
    """An array that is written in parts: ``chunks()`` yields them in order; together they have this shape."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    chunks: Callable[[], Iterable[Array]]


def write(
    path: _Path,
    kind: str,
    content: Mapping[str, Any],
    arrays: Mapping[str, Array | Stream],
    *,
    durable: bool = True,
) -> None:
    """Write a snapshot; all of it or nothing. ``durable`` waits until it has reached the disk."""
    target = Path(path)
    layout, offset = [], _HEADER
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            for name, array in arrays.items():
                file.seek(offset)
                size, checksum = 0, 0
                for chunk in array.chunks() if isinstance(array, Stream) else _chunks(array):
                    data = np.ascontiguousarray(chunk).reshape(-1)
                    data.tofile(file)
                    size, checksum = size + data.nbytes, zlib.crc32(data.data.cast("B"), checksum)
                layout.append(
                    {
                        "name": name,
                        "dtype": array.dtype.str,
                        "shape": array.shape,
                        "offset": offset,
                        "checksum": checksum,
                    }
                )
                offset = _aligned(offset + size)
            file.seek(0)
            file.write(_header(kind, content, layout))
            file.truncate(offset)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    if durable:
        sync_directory(target.parent)


def read(
    path: _Path, kind: str, *, mapped: bool = False, verify: bool = True
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read back (content, arrays); StorageError for whatever `write` did not write.

    ``mapped``: arrays are mapped into memory, read-only, instead of read. ``verify`` compares checksums.
    """
    with refusing(path), open(path, "rb") as file:
        header = _read_header(file, kind)
        arrays = {}
        for entry in header["arrays"]:
            dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
            if dtype.kind not in "fui":
                raise StorageError(f"array {entry['name']} is not of numbers")
            size = int(np.prod(shape, dtype=np.int64))
            array: Array
            if mapped and size > 0:
                array = np.memmap(path, dtype, "r", offset=entry["offset"], shape=shape)
            else:
                file.seek(entry["offset"])
                array = np.fromfile(file, dtype, size).reshape(shape)
            if verify and _checksum(array) != entry["checksum"]:
                raise StorageError(f"array {entry['name']} is damaged: its checksum does not match")
            arrays[str(entry["name"])] = array
        return header["content"], arrays


class LiveLedger:
    """A mapped array of doubles that changes by whole steps; see the module's text. Close it when done.

    Only one process may have it open. ``durable`` also survives a power failure, at the price of waiting
    for the disk in each step.
    """

    def __init__(self, path: _Path, kind: str) -> None:
        self.path = Path(path)
        state = self.path / "state"
        with refusing(state), open(state, "rb") as file:
            header = _read_header(file, kind)
            (entry,) = header["arrays"]
            self.content: dict[str, Any] = header["content"]
            self.durable = boolean("durable", self.content["durable"])
            self.steps = integer("steps", self.content["steps"], 0)
        self._lock = locked(state)
        try:
            self.values: Array = np.memmap(
                state, np.float64, "r+", offset=entry["offset"], shape=tuple(entry["shape"])
            )
            self._interrupted = False
            self.last: tuple[Array | None, Array] | None = None
            if (self.path / "journal").exists():
                with refusing(self.path / "journal"):
                    self._apply(*self._read_journal())
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

        def chunks() -> Iterator[Array]:
            for part in parts:
                if isinstance(part, int):
                    for start in range(0, part, _CHUNK):
                        yield np.zeros(min(_CHUNK, part - start))
                else:
                    yield from _chunks(part)

        size = sum(part if isinstance(part, int) else part.size for part in parts)
        spent = Stream(np.dtype(np.float64), (size,), chunks)
        with new_directory(path) as directory:
            with open(directory / "active", "wb") as file:
                file.write(np.asarray(counts, np.int64).tobytes())
                file.flush()
                os.fsync(file.fileno())
            write(directory / "state", kind, {**content, "steps": int(counts.size)}, {"spent": spent})
        return cls(path, kind)

    def begin(self, indices: Array | None) -> tuple[Array, Array]:
        """(new values, active): arrays to be filled, of the length of ``indices`` or of all values."""
        self._check()
        if self._interrupted:
            raise StorageError(
                f"{os.fspath(self.path)!r}: a step was interrupted; close the ledger and open it again"
            )
        size = self.values.size if indices is None else indices.size
        total = _HEADER + (0 if indices is None else _aligned(8 * size)) + _aligned(8 * size) + size
        self._temporary = self.path / ".journal"
        with open(self._temporary, "wb") as file:
            file.truncate(total)
        if indices is not None:
            self._map(np.int64, _HEADER, size, "r+")[...] = indices
        return self._fields(size, indices is not None, "r+")

    def commit(self, indices: Array | None, new: Array, active: Array, count: int) -> None:
        """Make the step that was begun with these arrays."""
        header = {"step": self.steps + 1, "size": int(new.size), "all": indices is None, "active": count}
        text = json.dumps({**header, "checksum": zlib.crc32(json.dumps(header).encode())}).encode()
        if self.durable:
            for mapped in (self.values, new, active):
                if isinstance(mapped, np.memmap):
                    mapped.flush()
        with open(self._temporary, "r+b") as file:
            file.write(text.ljust(_HEADER))
            if self.durable:
                file.flush()
                os.fsync(file.fileno())
        # From here to the end: after an exception (Ctrl-C, say) only opening the ledger again finds out
        # whether the step has happened, and finishes it.
        self._interrupted = True
        os.replace(self._temporary, self.path / "journal")
        if self.durable:
            sync_directory(self.path)
        self._apply(self.steps + 1, indices, new, active, count)
        self._interrupted = False

    def active_counts(self) -> Array:
        """Number of active examples in each step so far."""
        self._check()
        path = self.path / "active"
        return np.fromfile(path, np.int64, self.steps) if self.steps else np.empty(0, np.int64)

    def close(self) -> None:
        """Let another process open it."""
        self.values = np.array([], np.float64)
        self.last = None
        self._lock.close()

    def _check(self) -> None:
        # Without the lock, another process may have it open by now.
        if self._lock.closed:
            raise StorageError(f"{os.fspath(self.path)!r}: is closed; open it again")

    def _apply(self, step: int, indices: Array | None, new: Array, active: Array, count: int) -> None:
        if indices is None:
            for start in range(0, new.size, _CHUNK):
                self.values[start : start + _CHUNK] = new[start : start + _CHUNK]
        else:
            self.values[indices] = new
        with open(self.path / "active", "r+b") as file:
            file.seek(8 * (step - 1))
            file.write(np.int64(count).tobytes())
            if self.durable:
                file.flush()
                os.fsync(file.fileno())
        self.steps = step
        self.last = (indices, active)

    def _read_journal(self) -> tuple[int, Array | None, Array, Array, int]:
        with open(self.path / "journal", "rb") as file:
            header = json.loads(file.read(_HEADER))
        checksum = header.pop("checksum")
        if zlib.crc32(json.dumps(header).encode()) != checksum:
            raise StorageError("its checksum does not match: the journal is damaged")
        self._temporary = self.path / "journal"
        size, partial = header["size"], not header["all"]
        indices = np.array(self._map(np.int64, _HEADER, size, "r")) if partial else None
        new, active = self._fields(size, partial, "r")
        return header["step"], indices, new, active, header["active"]

    def _fields(self, size: int, partial: bool, mode: Any) -> tuple[Array, Array]:
        start = _HEADER + (_aligned(8 * size) if partial else 0)
        return self._map(np.float64, start, size, mode), self._map(
            np.uint8, start + _aligned(8 * size), size, mode
        )

    def _map(self, dtype: Any, offset: int, size: int, mode: Any) -> Array:
        # An empty file cannot be mapped, nor can an empty part of one.
        if size == 0:
            return np.empty(0, dtype)
        return np.memmap(self._temporary, dtype, mode, offset=offset, shape=(size,))


@contextmanager
def new_directory(path: _Path) -> Iterator[Path]:
    """A directory to be filled, which takes the name ``path`` at the end: all of it or nothing."""
    target = Path(path)
    taken = f"path = {os.fspath(path)!r}: exists already; open() resumes a ledger"
    if target.exists():
        raise ParameterError(taken)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield temporary
        temporary.chmod(0o777 & ~_umask())
        try:
            os.rename(temporary, target)
        except OSError:
            if target.exists():
                raise ParameterError(taken) from None
            raise
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync_directory(target.parent)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def sync_directory(directory: Path) -> None:
    """Make a new name itself durable, where the system can do that."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def locked(path: Path) -> BinaryIO:
    """The open file, which nobody else can open this way until it is closed or the process ends."""
    import fcntl

    file = open(path, "rb")  # noqa: SIM115 (held open as long as the ledger)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise StorageError(f"cannot load {os.fspath(path.parent)!r}: another process has it open") from None
    return file


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
    if not isinstance(header.get("version"), int) or header["version"] > VERSION:
        raise StorageError(
            f"its format version {header.get('version')} is newer than this library's {VERSION} "
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


def _checksum(array: Array) -> int:
    checksum = 0
    for chunk in _chunks(array):
        checksum = zlib.crc32(chunk.data.cast("B"), checksum)
    return checksum


def _aligned(offset: int) -> int:
    return -(-offset // 4096) * 4096
