"""One file, one result: a zip with a JSON header, NumPy arrays and a checksum. No pickle anywhere.

Layout: ``header.json`` {format, version, kind, library, content}, one ``NAME.npy`` per array, and
``sha256``, the digest over the names and bytes of all of them. The checksum finds damage, not
forgery: load files from people you trust.

Every file and directory of the library is made here, by `replacing` and `new_directory`: complete or not at all, and
readable by its owner only. `StoreLock` keeps a second process out of a directory that changes step by step.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from .. import _core
from .arrays import Array
from .validation import ParameterError

FORMAT = "hockeystick"
VERSION = 1

_HEADER, _CHECKSUM = "header.json", "sha256"
_LIMIT = 2**28
_EPOCH = (1980, 1, 1, 0, 0, 0)  # a fixed time makes equal content equal bytes
_UNFINISHED = ".part"
_RANDOM = 8  # characters that tempfile puts into a name
_LOCK = "lock"
_NOTE = struct.Struct("<QQ")  # steps, and the same with _MARK
_MARK = 0x6B636974735F7368  # any number but 0: then zeros are no note

_Path: TypeAlias = "str | os.PathLike[str]"


class StorageError(ValueError):
    """A file is not what it should be: damaged, foreign, of another kind or from the future."""


def write(path: _Path, kind: str, content: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Write ``content`` (JSON values) and ``arrays`` to ``path``; all of it or nothing (see `replacing`)."""
    header = {
        "format": FORMAT,
        "version": VERSION,
        "kind": kind,
        "library": _core.__version__,
        "content": content,
    }
    members = {_HEADER: json.dumps(header, allow_nan=False).encode()}
    for name, array in arrays.items():
        buffer = io.BytesIO()
        np.save(buffer, array, allow_pickle=False)
        members[f"{name}.npy"] = buffer.getvalue()
    members[_CHECKSUM] = _digest(members).encode()
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)


def read(path: _Path, kind: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read back (content, arrays) of a file of this ``kind``.

    Raises StorageError for anything that `write` did not write, OSError if there is no such file.
    """
    with refusing(path):
        members = _members(path)
        header = json.loads(members[_HEADER])
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise StorageError("it was not written by hockeystick")
        version = header.get("version")
        if not isinstance(version, int) or version < 1:
            raise StorageError("its format version is missing")
        if version > VERSION:
            raise StorageError(
                f"its format version {version} is newer than this library's {VERSION} "
                f"(written by hockeystick {header.get('library')}): upgrade to read it"
            )
        if _digest(members) != members[_CHECKSUM].decode():
            raise StorageError("its checksum does not match: the file is damaged")
        if header.get("kind") != kind:
            raise StorageError(f"it holds a {header.get('kind')!r}, not a {kind!r}")
        arrays = {}
        for name, data in members.items():
            if name.endswith(".npy"):
                array = np.load(io.BytesIO(data), allow_pickle=False)
                if array.dtype != np.float64:
                    raise StorageError(f"array {name} is not of type float64")
                arrays[name.removesuffix(".npy")] = array
        content = header["content"]
        if not isinstance(content, dict):
            raise StorageError("its header has no content")
        return content, arrays


@contextlib.contextmanager
def refusing(path: _Path) -> Iterator[None]:
    """Turn whatever goes wrong while a file is interpreted into a StorageError that says so."""
    try:
        yield
    except StorageError as error:
        if str(error).startswith("cannot load"):
            raise
        raise StorageError(f"cannot load {os.fspath(path)!r}: {error}") from None
    except OSError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise StorageError(f"cannot load {os.fspath(path)!r}: {error!r}") from error


def _members(path: _Path) -> dict[str, bytes]:
    with open(path, "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                entries = archive.infolist()
                if sum(entry.file_size for entry in entries) > _LIMIT:
                    raise StorageError("it is too large to be a hockeystick file")
                members = {entry.filename: archive.read(entry) for entry in entries}
        # A damaged central directory can also make zipfile seek outside the file: an OSError.
        except (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError) as bad:
            raise StorageError(f"it is damaged or not a hockeystick file ({bad})") from bad
    if _HEADER not in members or _CHECKSUM not in members:
        raise StorageError("it was not written by hockeystick")
    return members


def _digest(members: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name in sorted(members):
        if name != _CHECKSUM:
            # Lengths make the encoding unambiguous.
            digest.update(f"{len(name)} {name} {len(members[name])} ".encode())
            digest.update(members[name])
    return digest.hexdigest()


@contextlib.contextmanager
def replacing(path: _Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """A new file to be written, which takes the name ``path`` at the end: all of it or nothing.

    It is written beside its place, under a temporary name, so that a crash leaves either the old file or the new one.
    Only its owner can read it, whatever the umask. Where ``path`` is a symbolic link, its target is replaced. What
    killed writers of the same name left behind is removed. ``durable`` waits until the file has reached the disk.
    """
    target = Path(os.path.realpath(path))
    file, temporary = _new_file(target)
    try:
        with file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
            # While the file is open, its lock tells others that it is no leftover.
            os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    if durable:
        _sync_directory(target.parent)


@contextlib.contextmanager
def new_directory(path: _Path, resume: str) -> Iterator[Path]:
    """A directory to be filled, which takes the name ``path`` at the end: all of it or nothing.

    Only its owner can enter it, whatever the umask. Raises ParameterError where something has that name already;
    ``resume`` says what to do then. What killed makers of the same name left behind is removed.
    """
    target = Path(os.path.realpath(path))
    taken = f"path = {os.fspath(path)!r}: exists already; {resume}"
    if target.exists():
        raise ParameterError(taken)
    temporary, descriptor = _new_folder(target)
    try:
        yield temporary
        _sync_directory(temporary)
        try:
            os.rename(temporary, target)
        except OSError:
            if target.exists():
                raise ParameterError(taken) from None
            raise
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    finally:
        os.close(descriptor)
    _sync_directory(target.parent)


def _new_file(target: Path) -> tuple[BinaryIO, Path]:
    """A temporary file for this target, open for writing and locked."""
    _remove_leftovers(target)
    while True:
        descriptor, name = tempfile.mkstemp(_UNFINISHED, f".{target.name}.", target.parent)
        os.fchmod(descriptor, 0o600)
        if _claimed(descriptor, name):
            return os.fdopen(descriptor, "wb"), Path(name)
        os.close(descriptor)


def _new_folder(target: Path) -> tuple[Path, int]:
    """A temporary directory for this target, and a descriptor that locks it."""
    _remove_leftovers(target)
    while True:
        name = tempfile.mkdtemp(_UNFINISHED, f".{target.name}.", target.parent)
        os.chmod(name, 0o700)
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(name, os.O_RDONLY)
            if _claimed(descriptor, name):
                return Path(name), descriptor
            os.close(descriptor)


def _claimed(descriptor: int, name: str) -> bool:
    """Lock what was just made; False if somebody took it for a leftover before it was locked."""
    if _lock(descriptor) is False:
        return False
    try:
        return os.path.samestat(os.stat(name), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _remove_leftovers(target: Path) -> None:
    """Remove temporary files and directories for this target that nobody is writing to any more."""
    prefix = f".{target.name}."
    length = len(prefix) + _RANDOM + len(_UNFINISHED)
    # Not being able to clean up is no reason not to save.
    with contextlib.suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            name = entry.name
            if len(name) != length or not name.startswith(prefix) or not name.endswith(_UNFINISHED):
                continue
            with contextlib.suppress(OSError):
                descriptor = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW)
                try:
                    if _lock(descriptor):
                        if entry.is_dir(follow_symlinks=False):
                            shutil.rmtree(entry.path)
                        else:
                            os.unlink(entry.path)
                finally:
                    os.close(descriptor)


def _lock(descriptor: int) -> bool | None:
    """Whether the file is locked now, until it is closed or the process ends; None where files cannot be locked."""
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def part(directory: Path, name: str) -> Path:
    """A file of a store; StorageError if the store has lost it."""
    path = directory / name
    if not path.exists() and directory.is_dir():
        raise StorageError(
            f"cannot load {os.fspath(directory)!r}: its file {name!r} is missing, "
            "or it is older than this format of stores"
        )
    return path


class StoreLock:
    """The file ``lock`` of a store that grows step by step: who holds it is the only one to use the store.

    It notes how many steps have been made at least, so that a store whose last steps were removed is not taken for one
    in which they never happened. The note may be behind by the step in which a process was killed, never ahead.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        # Held open as long as the store.
        self._file = open(part(directory, _LOCK), "r+b", buffering=0)  # noqa: SIM115
        try:
            if not _lock(self._file.fileno()):
                raise StorageError(f"cannot load {os.fspath(directory)!r}: another process has it open")
            with refusing(directory / _LOCK):
                note = self._file.read(_NOTE.size + 1)
                if len(note) != _NOTE.size:
                    raise StorageError(
                        "its size is wrong: it is damaged, or older than this format of stores"
                    )
                steps, marked = _NOTE.unpack(note)
                if steps ^ marked != _MARK:
                    raise StorageError("it is damaged: its checksum does not match")
            self._steps = int(steps)
        except BaseException:
            self._file.close()
            raise

    @staticmethod
    def create(directory: Path, steps: int) -> None:
        """Put the file into a new directory, whose store has made so many steps."""
        with replacing(directory / _LOCK) as file:
            file.write(_NOTE.pack(steps, steps ^ _MARK))

    def check(self, steps: int) -> None:
        """Raise StorageError if the store, which knows of so many steps, had more."""
        if steps < self._steps:
            raise StorageError(
                f"cannot load {os.fspath(self._directory)!r}: its last steps are missing: there were {self._steps}, "
                f"and {steps} are left"
            )

    def note(self, steps: int) -> None:
        """Note that so many steps have been made."""
        data = _NOTE.pack(steps, steps ^ _MARK)
        if os.pwrite(self._file.fileno(), data, 0) != len(data):
            raise OSError(f"{os.fspath(self._directory / _LOCK)!r} could not be written")
        self._steps = steps

    @property
    def closed(self) -> bool:
        """Whether another process may have the store by now."""
        return self._file.closed

    def close(self) -> None:
        """Let another process open the store."""
        self._file.close()


def _sync_directory(directory: Path) -> None:
    """Make the new name itself durable, where the system can do that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
