"""Objects with state: one thread at a time, and only in the process that made them.

Two threads that change one ledger at once lose what one of them records: a bound below the truth, or a budget that is overspent.
A forked child has a copy of everything, of a ledger that its parent goes on writing and of noise that its parent will use, too.
So whatever changes after it was made is `Exclusive`; what never changes (descriptions, profiles, plans) need not be.
"""

from __future__ import annotations

import copy
import functools
import inspect
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar, TypeVar, cast

from .tracing import refuse_tracing
from .types import Self

_Method = TypeVar("_Method", bound=Callable[..., Any])

# The special methods that ask for state, or change it; copying and pickling begin with __getstate__.
_SPECIAL = frozenset({"__call__", "__getstate__", "__iter__", "__len__", "__next__"})
_READ = frozenset({"__getstate__", "__len__"})


_forks = 0  # of which this process is the last child


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class ForkedError(RuntimeError):
    """An object with state was used in a forked child of the process that made it. Make it, or load it, in the child."""


class ReentryError(RuntimeError):
    """An object with state was changed by a signal handler, or a finaliser, that came while its own thread was changing it."""


_changing: set[int] = set()
"""Of objects that are being changed, their ids."""


def undivided(method: _Method) -> _Method:
    """Mark a method that changes its object in several steps: between them, nothing on the same thread may change it."""

    @functools.wraps(method)
    def whole(self: object, *args: Any, **options: Any) -> Any:
        key = id(self)
        if key in _changing:
            raise ReentryError(
                f"this {type(self).__name__} is being changed by its own thread already: a signal handler, or a finaliser, must leave a "
                "note instead, to be looked at between two calls"
            )
        try:
            _changing.add(key)
            return method(self, *args, **options)
        finally:
            _changing.discard(key)

    return cast("_Method", whole)


class Guard:
    """A lock, which the thread that holds it may take again, and the process that it belongs to."""

    __slots__ = ("forks", "lock", "process")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.process, self.forks = os.getpid(), _forks

    @property
    def forked(self) -> bool:
        """Whether this is another process: then the lock means nothing, a thread that held it is not here."""
        # A child in a container of its own may have its parent's number, and one that C code forked is not counted.
        return _forks != self.forks or os.getpid() != self.process


def unlocked(method: _Method) -> _Method:
    """Mark a method of an `Exclusive` class that takes the locks it needs itself, by `holding`, or needs none."""
    method.__dict__["_locks"] = True
    return method


class Exclusive:
    """The base of what has state: every public method and property runs alone, and only in the process that made the object.

    A thread that comes while another one is in waits; a forked child gets `ForkedError`, and a signal handler that comes while its
    own thread is changing the object, and would change it too, `ReentryError`. Copies (`copy`, `pickle`, where
    a class has them) share nothing with the original, are of one moment between two calls, and belong to whoever makes them.
    Inside a function that JAX, TensorFlow or PyTorch is tracing or mapping, methods raise `ParameterError`; properties may be read there, but for a batch.
    Objects that share their state share their guard: they override ``_guard``.
    """

    _FORKED: ClassVar[type[Exception]] = ForkedError

    def __new__(cls, *_: Any, **__: Any) -> Self:
        self = super().__new__(cls)
        self.__dict__["_guard"] = Guard()
        return self

    @property
    def _guard(self) -> Guard:
        own: Guard = self.__dict__["_guard"]
        return own

    def __init_subclass__(cls, **options: Any) -> None:
        """Lock all public methods, also those of bases that know nothing of locks, so that none can be forgotten."""
        super().__init_subclass__(**options)
        for name in dir(cls):
            if name.startswith("_") and name not in _SPECIAL:
                continue
            found = inspect.getattr_static(cls, name)
            if inspect.isfunction(found):
                locked: Any = _locked(found, traceable=name in _READ)
            elif type(found) is property:
                fget, fset, fdel = (
                    each and _locked(each, traceable=True) for each in (found.fget, found.fset, found.fdel)
                )
                locked = property(fget, fset, fdel, found.__doc__)
            else:
                continue
            setattr(cls, name, locked)

    def __getstate__(self) -> dict[str, Any]:
        return copy.deepcopy(self._kept())

    def _kept(self) -> dict[str, Any]:
        """What a copy gets. Classes leave out what can be computed again."""
        return {name: value for name, value in vars(self).items() if name != "_guard"}

    def _check_process(self) -> None:
        if self._guard.forked:
            raise self._FORKED(
                f"this {type(self).__name__} belongs to process {self._guard.process}, of which this one ({os.getpid()}) is a fork: "
                "both would use the same noise or batches twice, or each forget what the other one spends"
            )


def _locked(method: Callable[..., Any], traceable: bool) -> Callable[..., Any]:
    if "_locks" in method.__dict__:
        return method
    if inspect.isgeneratorfunction(method):
        raise TypeError(f"{method.__qualname__}: a generator holds no lock between its values")

    @functools.wraps(method)
    def alone(self: Exclusive, *args: Any, **options: Any) -> Any:
        # Before the lock: in a forked child nobody may be left to release it.
        self._check_process()
        if not traceable:
            refuse_tracing(f"{type(self).__name__}.{method.__name__}")
        # Nothing can come between a lock of the interpreter's own and this block, Ctrl-C neither.
        with self._guard.lock:
            return method(self, *args, **options)

    return unlocked(alone)


@contextmanager
def holding(*objects: Exclusive) -> Iterator[None]:
    """Hold the locks of all these objects, which everybody takes in one order: no two threads wait for each other."""
    guards = {}
    for each in objects:
        each._check_process()
        guards[id(each._guard)] = each._guard
    with ExitStack() as stack:
        for _, guard in sorted(guards.items()):
            stack.enter_context(guard.lock)
        yield
