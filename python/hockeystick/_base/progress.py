"""Long runs: how far, how fast, how long yet; a bar on a terminal, and a message from whatever else takes long."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_NOTICED = 2.0  # seconds after which a call that will be long says so; speed: any value will do
_LONG = 10.0  # seconds of work that nobody should have to wait for without a word; speed


class Bar:
    """A bar on a terminal, once the work has taken more than a second; nothing elsewhere.

    ``unit`` (None: no rate) names what is counted, e.g. "samples".
    """

    def __init__(self, label: str, unit: str | None = None) -> None:
        self._label, self._unit = label, unit
        self._start = time.monotonic()
        self._first: tuple[float, int] | None = None
        self._last = (0, 0)
        self._width = 0

    def show(self, done: int, total: int) -> None:
        """Draw how far the work is. A smaller ``done`` or another ``total`` starts a new run."""
        now = time.monotonic()
        if self._first is None or done < self._last[0] or total != self._last[1]:
            # What was done before, in an earlier process or for another candidate, says nothing about the rate.
            self._first = (now, done)
        self._last = (done, total)
        if not sys.stderr.isatty() or now - self._start <= 1.0:
            return
        text = bar(self._label, done, total) + self._rate(now, done, total)
        print("\r" + text.ljust(self._width), end="", file=sys.stderr, flush=True)
        self._width = len(text)

    def _rate(self, now: float, done: int, total: int) -> str:
        if self._unit is None or self._first is None:
            return ""
        seconds, count = now - self._first[0], done - self._first[1]
        if not (seconds > 0.5 and count > 0):
            return ""
        rate = count / seconds
        return f" {rate:.3g} {self._unit}/s, {duration((total - done) / rate)} left"

    def clear(self) -> None:
        """Leave no trace."""
        if self._width:
            print("\r" + " " * self._width + "\r", end="", file=sys.stderr, flush=True)
            self._width = 0


@contextmanager
def shown(label: str, unit: str | None = None) -> Iterator[Callable[[int, int], None]]:
    """The ``show`` of a `Bar` that leaves no trace."""
    bar = Bar(label, unit)
    try:
        yield bar.show
    finally:
        bar.clear()


class Patience:
    """Says what a call that takes more than 10 seconds will cost, and how far it is.

    Warnings of the logger "hockeystick", which Python prints unless told otherwise: the first after about
    2 seconds of work if more than 10 are ahead, the next ones after twice the time each.
    """

    def __init__(self, what: str, unit: str) -> None:
        self._what, self._unit = what, unit
        self._start = time.monotonic()
        self._next = _NOTICED
        self._first: int | None = None

    def show(self, done: int, most: int) -> None:
        """``done`` of at most ``most`` units are done."""
        if self._first is None:
            self._first = done
        seconds, count = time.monotonic() - self._start, done - self._first
        if seconds < self._next or count <= 0:
            return
        ahead = (most - done) * seconds / count
        if seconds + ahead > _LONG:
            logging.getLogger("hockeystick").warning(
                "%s: %d of at most %d %s after %s; at most about %s to go",
                self._what,
                done,
                most,
                self._unit,
                duration(seconds),
                duration(ahead),
            )
            self._next = 2.0 * seconds


def bar(label: str, done: int, total: int) -> str:
    """The bar as text.

    >>> bar("samples", 5, 20)
    'samples [#######.......................] 5/20'
    """
    filled = 30 * done // max(1, total)
    return f"{label} [{'#' * filled}{'.' * (30 - filled)}] {done}/{total}"


def duration(seconds: float) -> str:
    """A time in one or two units.

    >>> duration(42.4), duration(3700.0), duration(400_000.0)
    ('42 s', '1 h 1 min', '4 d 15 h')
    """
    if seconds < 100.0:
        return f"{seconds:.0f} s"
    if seconds < 3600.0:
        return f"{seconds / 60.0:.0f} min"
    hours, days = int(seconds // 3600.0), int(seconds // 86400.0)
    if days:
        return f"{days} d {hours - 24 * days} h"
    return f"{hours} h {int(seconds % 3600.0 // 60.0)} min"
