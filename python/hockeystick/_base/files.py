"""The library's files and directories: complete or not at all, readable by their owner only, one process at a time.

Every one of them is made by `replacing` and `new_directory`. `StoreLock` keeps a second process out of a directory that changes
step by step.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from .exclusive import Guard
from .types import AnyPath
from .validation import ParameterError

_UNFINISHED = ".part"
_RANDOM = 8  # *format*: characters that tempfile puts into a name
_LONGEST = 255  # *limit*: bytes of a name, in most file systems
_LOCK = "lock"
_NOTE = struct.Struct("<QQ")  # steps, and the same with _MARK
_MARK = 0x6B636974735F7368  # *format*: any number but 0: then zeros are no note


class StorageError(ValueError):
    """A file is not what it should be: damaged, foreign, of another kind or from the future."""


def check_target(name: str, path: AnyPath) -> None:
    """Raise, before anything is computed for it, if no file can be written to ``path``, given as ``name``.

    FileNotFoundError for a folder that is not there, ParameterError for what is a folder itself.
    """
    target = os.fspath(path)
    folder = os.path.dirname(target) or os.curdir
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"{name} {target}: there is no folder {folder}")
    if not target or os.path.isdir(target):
        raise ParameterError(f"{name} {target!r}: must be a file, not a folder")


@contextlib.contextmanager
def refusing(path: AnyPath) -> Iterator[None]:
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


@contextlib.contextmanager
def replacing(
    path: AnyPath, *, durable: bool = True, check: Callable[[BinaryIO], None] | None = None
) -> Iterator[BinaryIO]:
    """A new file to be written, which takes the name ``path`` at the end: all of it or nothing.

    It is written beside its place, under a temporary name, so that a crash leaves either the old file or the new one.
    Only its owner can read it, whatever the umask. Where ``path`` is a symbolic link, its target is replaced. What
    killed writers of the same name left behind is removed. ``durable`` waits until the file has reached the disk.
    ``check`` may raise, so that all stays as it is, when it has looked at the file that would be replaced, if there is one;
    nobody else who checks replaces it in between.
    """
    check_target("path", path)  # its errors name what was asked for, not the temporary name
    target = Path(os.path.realpath(path))
    file, temporary = _new_file(target)
    try:
        with file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
            # While the file is open, its lock tells others that it is no leftover.
            with _held(target) if check else contextlib.nullcontext() as old:
                if check and old:
                    check(old)
                os.replace(temporary, target)
            # A forked child may have it open for longer.
            _unlock(file.fileno())
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    if durable:
        _sync_directory(target.parent)


@contextlib.contextmanager
def new_directory(path: AnyPath, resume: str) -> Iterator[Path]:
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


@contextlib.contextmanager
def _held(target: Path) -> Iterator[BinaryIO | None]:
    """The file at ``target``, open and locked; None if there is none."""
    while True:
        try:
            file = open(target, "rb")  # noqa: SIM115
        except FileNotFoundError:
            yield None
            return
        with file:
            _lock(file.fileno(), wait=True)
            try:
                # Whoever held it before may have replaced it.
                if _named(file.fileno(), target):
                    yield file
                    return
            finally:
                _unlock(file.fileno())


def _new_file(target: Path) -> tuple[BinaryIO, Path]:
    """A temporary file for this target, open for writing and locked."""
    _remove_leftovers(target)
    while True:
        descriptor, name = tempfile.mkstemp(_UNFINISHED, _prefix(target), target.parent)
        os.fchmod(descriptor, 0o600)
        if _claimed(descriptor, name):
            return os.fdopen(descriptor, "wb"), Path(name)
        os.close(descriptor)


def _new_folder(target: Path) -> tuple[Path, int]:
    """A temporary directory for this target, and a descriptor that locks it."""
    _remove_leftovers(target)
    while True:
        name = tempfile.mkdtemp(_UNFINISHED, _prefix(target), target.parent)
        # Somebody may take it for a leftover before it is locked.
        with contextlib.suppress(FileNotFoundError):
            os.chmod(name, 0o700)
            descriptor = os.open(name, os.O_RDONLY)
            if _claimed(descriptor, name):
                return Path(name), descriptor
            os.close(descriptor)


def _prefix(target: Path) -> str:
    """With what the names of temporary files for this target begin: its name, or a digest where that would make them too long."""
    name = os.fsencode(target.name)
    short = len(name) + 2 + _RANDOM + len(_UNFINISHED) <= _LONGEST
    return f".{target.name if short else hashlib.sha256(name).hexdigest()}."


def _claimed(descriptor: int, name: str) -> bool:
    """Lock what was just made; False if somebody took it for a leftover before it was locked."""
    return _lock(descriptor) is not False and _named(descriptor, name)


def _named(descriptor: int, name: AnyPath) -> bool:
    """Whether the open file still has this name."""
    try:
        return os.path.samestat(os.stat(name), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _remove_leftovers(target: Path) -> None:
    """Remove temporary files and directories for this target that nobody is writing to any more."""
    prefix = _prefix(target)
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


def _lock(descriptor: int, wait: bool = False) -> bool | None:
    """Whether the file is locked now, until it is closed or the process ends; None where files cannot be locked."""
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _unlock(descriptor: int) -> None:
    """Give up the lock, which forked children share as long as they have the file open."""
    import fcntl

    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)


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
        self._directory, self._owner = directory, Guard()
        # Held open as long as the store.
        self._file = open(part(directory, _LOCK), "r+b", buffering=0)  # noqa: SIM115
        try:
            if not _lock(self._file.fileno()):
                raise StorageError(
                    f"cannot load {os.fspath(directory)!r}: it is open here already, or another process has it open"
                )
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
        # A forked child shares the lock: it would take its parent's away, and must not keep it for longer than its parent does.
        if not self._file.closed and not self._owner.forked:
            _unlock(self._file.fileno())
        self._file.close()


def _sync_directory(directory: Path) -> None:
    """Make the new name itself durable, where the system can do that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
