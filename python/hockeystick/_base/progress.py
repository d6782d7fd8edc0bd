"""Long runs: a bar where somebody looks, a terminal or a notebook, and elsewhere a message from whatever takes long."""

from __future__ import annotations

import logging
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .types import Progress

_AFTER = 1.0  # seconds after which there is a bar; speed: any value will do
_NOTICED = 2.0  # seconds after which a call that will be long says so; speed
_LONG = 10.0  # seconds of work that nobody should have to wait for without a word; speed


@contextmanager
def shown(label: str, unit: str, told: Progress | None = None) -> Iterator[Progress]:
    """What to call with the ``unit``s done and all of them: ``told`` if there is one, else a `Bar` or a `Patience`."""
    if told is not None or not _watched():
        yield told or Patience(label, unit).show
        return
    bar = Bar(label, unit)
    try:
        yield bar.show
    finally:
        bar.close()


def _watched() -> bool:
    """Is standard error a terminal, or this process the kernel of a notebook?"""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel") or (sys.stderr is not None and sys.stderr.isatty())


class Bar:
    """A bar of tqdm once the work has taken more than a second; it leaves no trace. TQDM_DISABLE=1 turns it off."""

    def __init__(self, label: str, unit: str) -> None:
        self._label, self._unit = label, unit
        self._start = self._began = time.monotonic()
        self._first = self._last = self._total = -1
        self._bar: Any = None

    def show(self, done: int, total: int) -> None:
        """Draw how far the work is. A smaller ``done`` or another ``total`` starts a new phase, with a rate of its own."""
        now = time.monotonic()
        if done < self._last or total != self._total:
            self.close()
            # What was done before, in an earlier process or for another candidate, says nothing about the rate.
            self._first, self._total, self._began = done, total, now
        self._last = done
        if self._bar is None and now - self._start > _AFTER:
            names = {"desc": self._label, "unit": f" {self._unit}", "unit_scale": True}
            self._bar = _tqdm()(**names, initial=self._first, total=total, leave=False, dynamic_ncols=True)
            if not self._bar.disable:
                self._bar.start_t -= now - self._began
                self._bar.last_print_t -= now - self._began
        if self._bar is not None:
            self._bar.update(done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _tqdm() -> Any:
    """The bar that fits, without a thread of its own or a lock between processes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a notebook without widgets gets a bar of text
        from tqdm.auto import tqdm

    class Quiet(tqdm):  # type: ignore[misc]
        monitor_interval = 0

    Quiet.set_lock(_lock)
    return Quiet


_lock = threading.RLock()


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
            said = self._what, done, most, self._unit, duration(seconds), duration(ahead)
            text = "%s: %d of at most %d %s after %s; at most about %s to go"
            logging.getLogger("hockeystick").warning(text, *said)
            self._next = 2.0 * seconds


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
