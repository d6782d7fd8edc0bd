"""Modules of the package are compiled and begun in IEEE arithmetic, whatever the host has set for its thread.

Python reads a literal as the thread's mode has it: where subnormal numbers are flushed, ``5e-324`` is 0, and the
file of compiled code that it leaves behind says so to every later process. What a module computes when it begins is no better.
Classes that a face shows run in IEEE arithmetic (`arithmetic`) from then on, also those that no face was asked for, because they were
unpickled; and all that a module of `interop` shows, which has no face. Other functions do when a face hands them out, as those of
the package call each other bare. So do classes of an installation whose modules another finder loads.
"""

from __future__ import annotations

import contextlib
import struct
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, FunctionType, ModuleType
from typing import Any

from . import PACKAGE

shown: dict[str, set[str]] = {}
"""By module, the names that faces show of it."""
_protected: set[str] = set()  # modules of which all that is shown is
_INTEROP = f"{PACKAGE}.interop."
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


def _protect(module: ModuleType, kinds: tuple[type, ...]) -> None:
    """Let what is shown of a module run in IEEE arithmetic, if it is of these kinds."""
    loaded = vars(module)
    found = [(name, loaded.get(name)) for name in shown.get(module.__name__, ())]
    if module.__name__.startswith(_INTEROP):
        kinds = type, FunctionType
        found = [
            (name, value)
            for name, value in loaded.items()
            if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
        ]
    # What has nothing to protect does without the core.
    exported = [
        (name, value)
        for name, value in found
        if isinstance(value, kinds) and not (isinstance(value, type) and issubclass(value, BaseException))
    ]
    if exported:
        from .arithmetic import protect

        protect(exported)


def protect_loaded() -> None:
    """Let all that is shown of the modules loaded so far run in IEEE arithmetic: answers lead from one to another."""
    for name in [name for name in shown if name in sys.modules and name not in _protected]:
        module = sys.modules[name]
        if getattr(module.__spec__, "_initializing", False):
            continue  # by another thread, or by a circle of imports: its time comes
        _protect(module, (type, FunctionType))
        _protected.add(name)


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType | None:
        with _standard_arithmetic():
            return super().get_code(fullname)

    def exec_module(self, module: ModuleType) -> None:
        with _standard_arithmetic():
            super().exec_module(module)
        _protect(module, (type,))


class _Finder:
    package = PACKAGE

    @classmethod
    def find_spec(cls, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        if not name.startswith(f"{PACKAGE}."):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or type(spec.loader) is not SourceFileLoader:
            return None
        spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def install() -> None:
    """Load the package's modules this way from now on."""
    others = [finder for finder in sys.meta_path if getattr(finder, "package", None) != PACKAGE]
    sys.meta_path[:] = [_Finder, *others]
