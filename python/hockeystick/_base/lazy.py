"""Faces of the package and its rooms: names that are imported when they are first asked for, and those that have moved."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from . import PACKAGE
from .loading import protect_loaded, shown

Face = tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]


def attach(face: str, file: str, *, moved: Mapping[str, str] | None = None) -> Face:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package, whose ``__init__.py`` is ``file``.

    The stub beside it says what the package shows: one line ``from .module import name as name`` for each name, ``from . import room
    as room`` for each subpackage, and ``def name`` for what it defines itself. ``moved`` maps names that it used to show to the room
    that shows them now: these still work, with a warning. What is shown runs in IEEE arithmetic: see `arithmetic`.
    """
    home: dict[str, str] = {}
    rooms: list[str] = []
    own: list[str] = []
    with open(f"{file.rpartition('.')[0]}.pyi", encoding="utf-8") as stub:
        for words in map(str.split, stub):
            if words[:3] == ["from", ".", "import"]:
                rooms.append(words[3])
            elif words[:1] == ["from"]:
                home[words[3]] = face + words[1]
            elif words[:1] == ["def"]:
                own.append(words[1].partition("(")[0])
    for name, module in home.items():
        shown.setdefault(module, set()).add(name)
    public = sorted([*home, *rooms, *own])

    def __getattr__(name: str) -> Any:
        if name in home:
            importlib.import_module(home[name])
            protect_loaded()
            value = getattr(sys.modules[home[name]], name)
            setattr(sys.modules[face], name, value)
            return value
        if name in rooms:
            return importlib.import_module(f"{face}.{name}")
        if moved is not None and name in moved:
            room = f"{face}.{moved[name]}"
            warn_deprecated(f"{face}.{name} has moved to {room}.{name}; the old name works until version 0.3")
            return getattr(importlib.import_module(room), name)
        from pathlib import Path  # here, as it takes a third of what importing the package does

        # What a room alone shows is looked for at the top.
        stubs = (
            stub
            for stub in Path(file).parent.glob("*/__init__.pyi")
            if f" as {name}\n" in stub.read_text("utf-8")
        )
        hint = "".join(f"; there is {face}.{stub.parent.name}.{name}" for stub in stubs)
        raise AttributeError(f"module {face!r} has no attribute {name!r}{hint}")

    return __getattr__, lambda: public, public


def warn_deprecated(message: str) -> None:
    """Warn, as of the first line of the call stack that is not the package's own."""
    # Level 1 is this function; locks and the arithmetic guard lie between the caller and the user.
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == PACKAGE:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, DeprecationWarning, stacklevel=level)


@contextmanager
def needing(what: str, extra: str) -> Iterator[None]:
    """Where an import fails, say what it was for, and which extra brings it."""
    try:
        yield
    except ImportError as error:
        raise ImportError(f"{what}: pip install 'hockeystick[{extra}]'") from error
