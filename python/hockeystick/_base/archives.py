"""Reads the zip files that versions before 0.2 wrote for everything but the state of many examples; nothing writes them now.

Members: ``header.json`` {format, version, kind, library, content}, one ``NAME.npy`` per array, and ``sha256``, the digest over
the names and bytes of all of them.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from .files import StorageError
from .types import Array

FORMAT, VERSION = "hockeystick", 1

_HEADER, _CHECKSUM = "header.json", "sha256"
_LIMIT = 2**28  # *speed*: most bytes that are read


def read_archive(file: BinaryIO) -> tuple[dict[str, Any], dict[str, Array]]:
    """Its header and arrays; StorageError for what no version wrote."""
    members = _members(file)
    header = json.loads(members[_HEADER])
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise StorageError("it was not written by hockeystick")
    if digest(members) != members[_CHECKSUM].decode():
        raise StorageError("its checksum does not match: the file is damaged")
    if header.get("version") != VERSION:
        raise StorageError(f"its format version is not {VERSION}, that of all archives")
    arrays = {}
    for name, data in members.items():
        if name.endswith(".npy"):
            array = np.load(io.BytesIO(data), allow_pickle=False)
            if array.dtype != np.float64:
                raise StorageError(f"array {name} is not of type float64")
            arrays[name.removesuffix(".npy")] = array
    return header, arrays


def _members(file: BinaryIO) -> dict[str, bytes]:
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


def digest(members: Mapping[str, bytes]) -> str:
    """What an archive with these members has as its checksum."""
    digest = hashlib.sha256()
    for name in sorted(members):
        if name != _CHECKSUM:
            # Lengths make the encoding unambiguous.
            digest.update(f"{len(name)} {name} {len(members[name])} ".encode())
            digest.update(members[name])
    return digest.hexdigest()
