"""How the benchmarks measure: processor time, which other work on the machine does not change, of first calls."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any


def forget() -> None:
    """Empty what hockeystick's functions remember, so that the next call is a first one."""
    for name, module in list(sys.modules.items()):
        if name.startswith("hockeystick"):
            for value in list(vars(module).values()):
                if callable(clear := getattr(value, "cache_clear", None)):
                    clear()


def times(call: Callable[[], Any], repeats: int, limit: float = 5.0) -> list[float]:
    """Processor seconds, of all threads, of each of ``repeats`` first calls; fewer where ``limit`` is used up."""
    found: list[float] = []
    gc.disable()
    try:
        while len(found) < repeats and sum(found) < limit:
            forget()
            start = time.process_time()
            call()
            found.append(time.process_time() - start)
    finally:
        gc.enable()
    return found


def least(call: Callable[[], Any], repeats: int, limit: float = 5.0) -> float:
    """Seconds of the fastest of `times`, after one call that loads what is loaded once."""
    call()
    return min(times(call, repeats, limit))


def middle(call: Callable[[], Any], repeats: int, limit: float = 5.0) -> float:
    """Median seconds of `times`, after one call that loads what is loaded once."""
    call()
    return median(times(call, repeats, limit))
