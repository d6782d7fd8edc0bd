"""One file, one result: a zip with a JSON header, NumPy arrays and a checksum. No pickle anywhere.

Layout: ``header.json`` {format, version, kind, library, content}, one ``NAME.npy`` per array, and
``sha256``, the digest over the names and bytes of all of them. The checksum finds damage, not
forgery: load files from people you trust.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from . import _core
from .atoms import Array

FORMAT = "hockeystick"
VERSION = 1

_HEADER, _CHECKSUM = "header.json", "sha256"
_LIMIT = 2**28
_EPOCH = (1980, 1, 1, 0, 0, 0)  # a fixed time makes equal content equal bytes

_Path: TypeAlias = "str | os.PathLike[str]"


class StorageError(ValueError):
    """A file is not what it should be: damaged, foreign, of another kind or from the future."""


def write(path: _Path, kind: str, content: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Write ``content`` (JSON values) and ``arrays`` to ``path``; all of it or nothing.

    A temporary file in the same directory is flushed to disk and then takes the name, so that a
    crash leaves either the old file or the new one.
    """
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
    target = Path(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, data in members.items():
                    entry = zipfile.ZipInfo(name, _EPOCH)
                    entry.compress_type = zipfile.ZIP_DEFLATED
                    archive.writestr(entry, data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _sync_directory(target.parent)


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


def _sync_directory(directory: Path) -> None:
    """Make the new name itself durable, where the system can do that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
