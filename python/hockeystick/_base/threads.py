"""How many threads the core uses; no result depends on it."""

from __future__ import annotations

from .. import _core
from .validation import integer

MAX_THREADS = 1024
"""*Speed*: the core refuses more."""


def set_threads(threads: int) -> None:
    """Limit the number of threads that the core uses to ``threads``, in [0, 1024]; 0 restores the default.

    Results do not depend on it; times do: where other programs use the cores, OpenMP's threads get into each other's way, and 1 may be many times as
    fast as the default (or OMP_WAIT_POLICY=passive in the environment, before Python starts). Raises ParameterError or ParameterTypeError for anything else.
    """
    _core.set_threads(integer("threads", threads, 0, MAX_THREADS))
