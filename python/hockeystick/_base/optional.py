"""Libraries that only some of the package needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needing(what: str, extra: str) -> Iterator[None]:
    """Where an import fails, say what it was for, and which extra brings it."""
    try:
        yield
    except ImportError as error:
        raise ImportError(f"{what}: pip install 'hockeystick[{extra}]'") from error
