"""One file, one result: a header of JSON, and raw arrays that can be mapped into memory. No pickle anywhere.

Layout: the header {header, format, version, kind, library, content, arrays, checksum}, padded to ``header`` bytes, then each array at
the next multiple of 4096 bytes. The header has a checksum, and each array has one. They find damage, not forgery: load files from
people you trust. A file is written beside its place and then takes the name (`replacing`): a crash leaves the old one or the new one.

The checksums of arrays are sums over places (cpp/src/individual/ledger.cpp): who changes some values of a mapped array knows what that
changes in its checksum. Versions before 0.2 wrote zip files for everything but the state of many examples, which are still read: members
``header.json`` {format, version, kind, library, content}, one ``NAME.npy`` for each array, and ``sha256``, the digest over the names and bytes of all.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .files import StorageError, refusing, replacing
from .types import AnyPath
from .validation import integer

FORMAT = "hockeystick-state"
# *Format*: 1 had other checksums of arrays; 1 and 2 had headers of 4096 bytes, which did not say so.
VERSION = 3

_BLOCK = 4096  # *format*: headers end at a multiple of it
_CHUNK = 2**25  # bytes that are written at a time (speed)
_GROWTH = 64  # *format*: bytes by which a number, its place and its checksum lengthen what describes an array

Array: TypeAlias = NDArray[Any]


class Made(NamedTuple):
    """An array that ``make`` writes to its place in the file, where it finds zeros, through a map of it."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    make: Callable[[Array], None]


def whole(array: Array | Made) -> Array:
    """The array itself, in memory."""
    if isinstance(array, Made):
        out = np.zeros(array.shape, array.dtype)
        array.make(out)
        return out
    return array


def write(
    path: AnyPath,
    kind: str,
    content: Mapping[str, Any] | Callable[[Mapping[str, int]], Mapping[str, Any]],
    arrays: Mapping[str, Array | Made],
    *,
    durable: bool = True,
    seen: Seen | None = None,
) -> dict[str, int]:
    """Write ``content`` and ``arrays`` to ``path``, all of it or nothing, and return the checksums of the arrays.

    ``content``: JSON values, or what makes a few of them of the checksums after all arrays are written. ``durable`` waits until
    the file has reached the disk. StorageError if ``seen`` knows of another file there than it finds.
    """
    layout = [
        {"name": name, "dtype": array.dtype.str, "shape": array.shape, "offset": 0, "checksum": 0}
        for name, array in arrays.items()
    ]
    # Room for the header; what is made of checksums is small.
    described = _header(kind, {} if callable(content) else content, layout, 0)
    offset = size = _aligned(len(described) + _GROWTH * (1 + len(layout)))
    with replacing(path, durable=durable, check=seen.check(path) if seen else None) as file:
        _reserve(file, 0, size)
        for entry, array in zip(layout, arrays.values(), strict=True):
            end = _aligned(offset + math.prod(array.shape) * array.dtype.itemsize)
            _reserve(file, offset, end - offset)
            if isinstance(array, Made):
                out = _mapped(file, array.dtype, array.shape, offset, "r+")
                array.make(out)
                if durable and isinstance(out, np.memmap):
                    out.flush()
            else:
                out = np.ascontiguousarray(array)
                file.seek(offset)
                file.write(out.reshape(-1).view(np.uint8).data)
            entry.update(offset=offset, checksum=_core.checksum(out))
            offset = end
        checksums = {entry["name"]: entry["checksum"] for entry in layout}
        file.seek(0)
        head = _header(kind, content(checksums) if callable(content) else content, layout, size)
        file.write(head)
    if seen is not None:
        seen.note(path, head)
    return checksums


def read(
    path: AnyPath,
    kind: str,
    *,
    mapped: bool = False,
    writable: bool = False,
    verify: bool = True,
    seen: Seen | None = None,
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read back (content, arrays) of a file of this ``kind``; StorageError for whatever no version wrote.

    ``mapped``: arrays are mapped into memory instead of read, and changing them changes the file if it is ``writable``.
    ``verify`` compares checksums, and ``seen`` notes what was read. Raises OSError if there is no such file.
    """
    with refusing(path), open(path, "r+b" if writable else "rb") as file:
        text = file.read(_BLOCK)
        arrays: dict[str, Array]
        if text.startswith(b"PK"):
            header, arrays = read_archive(file)
        else:
            header = _read_header(file, text)
            arrays = _read_arrays(file, header, mapped, "r+" if writable else "r")
        if header["kind"] != kind:
            raise StorageError(f"it holds: {header['kind']}; wanted: {kind}")
        for entry in header.get("arrays", []) if verify else []:
            if _CHECKSUMS[header["version"]](arrays[entry["name"]]) != entry["checksum"]:
                raise StorageError(f"array {entry['name']} is damaged: its checksum does not match")
        content = header["content"]
        if not isinstance(content, dict):
            raise StorageError("its header has no content")
        if seen is not None:
            seen.note(path, _head(file))
        return content, arrays


RECORD = "load it and record there what is new, or remove it first"
"""What to do where somebody else has saved to the same file since."""


RELEASED = (
    "what was released on the answers of this filter is not in that file, and must be counted beside it: a filter that is loaded from there may refuse "
    "it, and then records nothing; save before each release, or keep the filter with path=, which one process has open at a time"
)
"""The same where answers were used, which cannot be asked for once more."""


class Seen:
    """The files that an object was read from or has written, so that it does not overwrite what somebody else has saved since."""

    def __init__(self, advice: str = RECORD) -> None:
        self._digests: dict[str, bytes] = {}
        self._advice = advice

    def note(self, path: AnyPath, head: bytes) -> None:
        """What is at ``path`` begins with ``head``, which has the checksums of all; also where a link of this name leads elsewhere later."""
        for name in _names(path):
            self._digests[name] = hashlib.sha256(head).digest()

    def check(self, path: AnyPath) -> Callable[[BinaryIO], None]:
        """What raises StorageError if a file is not the one that was seen at ``path``, if any was."""
        known = [self._digests[name] for name in _names(path) if name in self._digests]

        def compare(file: BinaryIO) -> None:
            if known and hashlib.sha256(_head(file)).digest() != known[0]:
                raise StorageError(
                    f"cannot save {os.fspath(path)!r}: the file there is not the one that was loaded or saved last, so "
                    f"what somebody else has saved would be lost; {self._advice}"
                )

        return compare


def _names(path: AnyPath) -> tuple[str, str]:
    """Where the file is, and what it was called."""
    return os.path.realpath(path), os.fsdecode(path)


def _head(file: BinaryIO) -> bytes:
    """All of a file but its arrays; of an archive, all."""
    file.seek(0)
    text = file.read(_BLOCK)
    return text + file.read(_LIMIT if text.startswith(b"PK") else _rest(file, text))


def kind_of(path: AnyPath) -> str | None:
    """The kind of a file that `write` wrote; None for other files. Raises StorageError if its header is damaged."""
    with refusing(path), open(path, "rb") as file:
        text = file.read(_BLOCK)
        if text.startswith(b"PK"):
            return str(read_archive(file)[0]["kind"])
        return str(_read_header(file, text)["kind"]) if text.startswith(b'{"header": ') else None


def _header(kind: str, content: Mapping[str, Any], layout: list[dict[str, Any]], size: int) -> bytes:
    header = {
        "header": size,
        "format": FORMAT,
        "version": VERSION,
        "kind": kind,
        "library": _core.__version__,
        "content": content,
        "arrays": layout,
    }
    checksum = zlib.crc32(json.dumps(header, allow_nan=False).encode())
    return json.dumps({**header, "checksum": checksum}, allow_nan=False).encode().ljust(size)


def _read_header(file: BinaryIO, text: bytes) -> dict[str, Any]:
    """The header of a file that begins with this text."""
    try:
        header: Any = json.loads(text + file.read(_rest(file, text)))
    except ValueError as error:
        raise StorageError(f"it is damaged or not a hockeystick file ({error})") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise StorageError("it was not written by hockeystick")
    version = header.get("version")
    if version not in _CHECKSUMS:
        newer = isinstance(version, int) and version > VERSION
        known = f"newer than this library's {VERSION}" if newer else "unknown"
        raise StorageError(
            f"its format version {version} is {known} (written by hockeystick {header.get('library')})"
            + (": upgrade to read it" if newer else "")
        )
    checksum = header.pop("checksum")
    if zlib.crc32(json.dumps(header, allow_nan=False).encode()) != checksum:
        raise StorageError("its checksum does not match: the header is damaged")
    return header


def _rest(file: BinaryIO, text: bytes) -> int:
    """How many bytes a header that begins with this text goes on for."""
    size = re.match(rb'\{"header": (\d+),', text)
    # Not more than there is: the number may be damaged.
    return max(0, min(int(size[1]), os.fstat(file.fileno()).st_size) - len(text)) if size else 0


def _read_arrays(file: BinaryIO, header: Mapping[str, Any], mapped: bool, mode: str) -> dict[str, Array]:
    places, end = {}, header.get("header", _BLOCK)
    for entry in header["arrays"]:
        dtype, shape = np.dtype(entry["dtype"]), tuple(integer("shape", n) for n in entry["shape"])
        if dtype.kind not in "fui":
            raise StorageError(f"array {entry['name']} is not of numbers")
        if entry["offset"] != end:
            raise StorageError(f"array {entry['name']} is not in its place")
        places[str(entry["name"])] = dtype, shape, end
        end = _aligned(end + math.prod(shape) * dtype.itemsize)
    # Mapping more than there is would make up zeros, or end the process.
    if os.fstat(file.fileno()).st_size != end:
        raise StorageError(f"its size is not the {end} bytes that its header says")
    if mapped:
        return {name: _mapped(file, *place, mode) for name, place in places.items()}
    arrays = {}
    for name, (dtype, shape, start) in places.items():
        file.seek(start)
        arrays[name] = np.fromfile(file, dtype, math.prod(shape)).reshape(shape)
    return arrays


def _mapped(file: BinaryIO, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int, mode: Any) -> Array:
    # Nothing cannot be mapped.
    if math.prod(shape) == 0:
        return np.empty(shape, dtype)
    return np.memmap(file, dtype, mode, offset=offset, shape=shape)


def _reserve(file: BinaryIO, start: int, size: int) -> None:
    """Append zeros for which there is room on the disk: writing to a map where there is none ends the process."""
    if size and hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), start, size)
    else:
        file.seek(start)
        file.writelines(bytes(min(_CHUNK, size - at)) for at in range(0, size, _CHUNK))
        file.flush()


_CHECKSUMS: dict[Any, Callable[[Array], int]] = {
    1: lambda array: zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data),
    **dict.fromkeys((2, VERSION), _core.checksum),
}


def _aligned(offset: int) -> int:
    return -(-offset // _BLOCK) * _BLOCK


_ARCHIVED, _ONLY = "hockeystick", 1  # *format* and version of archives
_HEADER, _CHECKSUM = "header.json", "sha256"
_LIMIT = 2**28  # *speed*: most bytes that are read


def read_archive(file: BinaryIO) -> tuple[dict[str, Any], dict[str, Array]]:
    """Its header and arrays; StorageError for what no version wrote."""
    members = _members(file)
    header = json.loads(members[_HEADER])
    if not isinstance(header, dict) or header.get("format") != _ARCHIVED:
        raise StorageError("it was not written by hockeystick")
    if digest(members) != members[_CHECKSUM].decode():
        raise StorageError("its checksum does not match: the file is damaged")
    if header.get("version") != _ONLY:
        raise StorageError(f"its format version is not {_ONLY}, that of all archives")
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
