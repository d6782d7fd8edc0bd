"""Modules of the package are compiled and begun in IEEE arithmetic, whatever the host has set for its thread.

Python reads a literal as the thread's mode has it: where subnormal numbers are flushed, ``5e-324`` is 0, and the
file of compiled code that it leaves behind says so to every later process. What a module computes when it begins is no better.
Classes run in IEEE arithmetic (`arithmetic`) from then on, also those that no face was asked for, because they were
unpickled; and all that a module of `interop` shows, which has no face.
"""

from __future__ import annotations

import contextlib
import struct
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, FunctionType, ModuleType
from typing import Any

from .lazy import shown

_PACKAGE = __name__.partition(".")[0]
_INTEROP = f"{_PACKAGE}.interop."
# From their bits: no literal is what it says where the mode is another one. The least subnormal and the least normal number.
_SUBNORMAL, _NORMAL = struct.unpack("<2d", (1).to_bytes(8, "little") + (1 << 52).to_bytes(8, "little"))


def is_standard() -> bool:
    """Whether this thread rounds to nearest and knows subnormal numbers."""
    one, little = 1.0, 2.0**-60
    nearest = one + little == one and one - little == one and -one - little == -one
    return nearest and _SUBNORMAL > 0.0 and _NORMAL * 0.5 > 0.0


@contextlib.contextmanager
def _standard_arithmetic() -> Iterator[None]:
    if is_standard():
        yield
        return
    try:
        from .. import _core
    except ImportError:  # certificates are verified without it
        yield
        return
    before = _core.begin_standard_arithmetic()
    try:
        yield
    finally:
        if before is not None:
            _core.set_arithmetic_mode(before)


def _protect(module: ModuleType) -> None:
    """Classes; functions of other rooms when a face hands them out, as those of the package call each other bare."""
    name, loaded = module.__name__, vars(module)
    if name.startswith(_INTEROP):
        found = [
            (key, value)
            for key, value in loaded.items()
            if not key.startswith("_")
            and isinstance(value, (type, FunctionType))
            and value.__module__ == name
        ]
    else:
        found = [
            (key, loaded[key])
            for key in shown(name)
            if isinstance(loaded.get(key), type) and not issubclass(loaded[key], BaseException)
        ]
    if found:
        from .arithmetic import protect

        protect(found)


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType | None:
        with _standard_arithmetic():
            return super().get_code(fullname)

    def exec_module(self, module: ModuleType) -> None:
        with _standard_arithmetic():
            super().exec_module(module)
        _protect(module)


class _Finder:
    package = _PACKAGE

    @classmethod
    def find_spec(cls, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        if not name.startswith(f"{_PACKAGE}."):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or type(spec.loader) is not SourceFileLoader:
            return None
        spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def install() -> None:
    """Load the package's modules this way from now on."""
    others = [finder for finder in sys.meta_path if getattr(finder, "package", None) != _PACKAGE]
    sys.meta_path[:] = [_Finder, *others]
