"""Public functions and methods run in IEEE arithmetic, whatever the host has set for its thread.

A library that was linked with -ffast-math sets flush-to-zero for the thread that loads it, and
frameworks set it for speed. A comparison of Python's then takes 5e-310 for 0, as NumPy does, and a bound would
be lost after the core has found it. So what the package exports sets IEEE arithmetic when it is called and
restores what was there when it returns; the core does the same for its own functions and threads. So it is with what NumPy does
about an underflow or a division by zero (``np.seterr``): inside, what NumPy does unless it is told otherwise.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any

from .. import _core
from . import PACKAGE

_OPERATORS = frozenset(
    f"__{name}__"
    for name in ["init", "call", "add", "radd", "mul", "rmul", "next", "contains", "eq", "repr", "str"]
)

_inside: ContextVar[bool] = ContextVar(
    "_inside", default=False
)  # some call has set all this for those that it makes


@functools.cache
def _numpys_own() -> Callable[[], Any]:
    """What makes the context, for a ``with``, in which NumPy does about errors what it does by default."""
    import numpy as np  # the version can be asked for without it

    return functools.partial(np.errstate, divide="warn", over="warn", under="ignore", invalid="warn")


def standard(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, in IEEE arithmetic."""
    if getattr(function, "in_standard_arithmetic", False):
        return function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        before = _core.begin_standard_arithmetic()
        if before is None and _inside.get():
            return function(*args, **kwargs)
        outer = _inside.set(True)
        try:
            with _numpys_own()():
                return function(*args, **kwargs)
        finally:
            _inside.reset(outer)
            if before is not None:
                _core.set_arithmetic_mode(before)

    call.in_standard_arithmetic = True  # type: ignore[attr-defined]
    return call


def protect(exported: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """`standard` for functions, returned by name, and for the package's classes, in place, with their bases."""
    functions: dict[str, Any] = {}
    for name, value in exported:
        if inspect.isfunction(value):
            functions[name] = standard(value)
            # Where it is defined as well: there it is looked up when it is unpickled.
            setattr(sys.modules[value.__module__], value.__name__, functions[name])
        elif inspect.isclass(value):
            for base in value.__mro__:
                if base.__module__.startswith(f"{PACKAGE}.") and not issubclass(base, BaseException):
                    _protect_class(base)
    return functions


def _protect_class(kind: type) -> None:
    for name, member in list(vars(kind).items()):
        if name.startswith("_") and name not in _OPERATORS:
            continue
        if inspect.isfunction(member):
            setattr(kind, name, standard(member))
        elif isinstance(member, (classmethod, staticmethod)):
            setattr(kind, name, type(member)(standard(member.__func__)))
        elif isinstance(member, property) and inspect.isfunction(member.fget):
            setattr(kind, name, property(standard(member.fget), member.fset, member.fdel, member.__doc__))
        elif isinstance(member, functools.cached_property):
            member.func = standard(member.func)
