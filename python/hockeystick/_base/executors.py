"""Blocks of a Monte Carlo run on any executor: processes, threads, a Dask cluster, MPI.

Block i of a seed holds the same samples whoever draws it, and tallies are exact: who draws which block, in which
order, and how often one must be drawn anew, leaves no trace in the result.
"""

from __future__ import annotations

import functools
import hashlib
import pickle
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple, TypeAlias

from .. import _core
from .arithmetic import standard
from .validation import ParameterTypeError, shown

Draw: TypeAlias = Callable[[int, int], "tuple[Any, ...]"]
"""draw(first_block, blocks): what `Totals.add` takes of those blocks. It must pickle for other processes."""

Drawn: TypeAlias = "tuple[int, int, tuple[Any, ...]]"
"""The first block, how many, and what was drawn."""

SECONDS = 1.0
"""*Speed*: about how much work is done at a time."""

# Tasks handed out and not back yet: few until it is known how long they take, and until workers have the
# description; then enough for as many workers, few enough to cancel.
_FIRST_IN_FLIGHT, _IN_FLIGHT = 8, 256  # *speed*
_ATTEMPTS = 3  # *speed*
_SMALL = 2**14  # *speed*: bytes of a description that may travel with each task
_KEPT = 4  # *speed*: descriptions that a worker remembers

_descriptions: dict[str, Draw] = {}


def checked(executor: Any) -> Executor | None:
    """The executor, if it is one."""
    if executor is not None and not isinstance(executor, Executor):
        hint = " (of a Dask client: client.get_executor())" if hasattr(executor, "get_executor") else ""
        raise ParameterTypeError(
            f"executor = {shown(executor)}: must be a concurrent.futures.Executor, not {type(executor).__name__}{hint}"
        )
    return executor


def here(draw: Draw, gaps: Sequence[tuple[int, int]]) -> Generator[Drawn, None, None]:
    """Draw the blocks of these ranges in this process, in order, about a second's work at a time."""
    chunk = 1
    for start, end in gaps:
        while start < end:
            count = min(chunk, end - start)
            began = time.monotonic()
            drawn = draw(start, count)
            chunk = _next_chunk(count, time.monotonic() - began)
            yield start, count, drawn
            start += count


def elsewhere(
    draw: Draw, gaps: Sequence[tuple[int, int]], executor: Executor
) -> Generator[Drawn, None, None]:
    """Draw the blocks of these ranges on an executor, in any order; all of them, or an error.

    What fails is tried three times, and then its error is raised. Closing the iterator cancels what has not begun.
    """
    send = _sender(draw, executor)
    left, again = list(gaps), list[_Task]()
    chunk, allowed, pending = 1, _FIRST_IN_FLIGHT, dict[Future[Any], _Task]()
    try:
        while True:
            while len(pending) < allowed and (again or left):
                task = again.pop() if again else _cut(left, chunk)
                pending[send(task)] = task
            if not pending:
                return
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                task = pending.pop(future)
                try:
                    answer = future.result()
                except BrokenExecutor as error:
                    raise RuntimeError(
                        f"the executor broke down while drawing blocks [{task.first}, {task.first + task.blocks}); "
                        "what was drawn before is in the checkpoint, if there is one"
                    ) from error
                except Exception as error:
                    if task.attempt == _ATTEMPTS:
                        raise RuntimeError(
                            f"blocks [{task.first}, {task.first + task.blocks}) failed {_ATTEMPTS} times: {error!r}"
                        ) from error
                    again.append(task._replace(attempt=task.attempt + 1))
                    continue
                version, drawn, seconds = answer
                if version != _core.__version__:
                    raise RuntimeError(
                        f"a worker runs hockeystick {version}, this process {_core.__version__}: their blocks may differ"
                    )
                if drawn is None:
                    again.append(task._replace(described=True))
                    continue
                chunk, allowed = _next_chunk(task.blocks, seconds), min(allowed + 1, _IN_FLIGHT)
                yield task.first, task.blocks, drawn
    finally:
        for future in pending:
            future.cancel()


class _Task(NamedTuple):
    first: int
    blocks: int
    attempt: int
    described: bool
    """Whether the description goes with it, however large."""


def _cut(left: list[tuple[int, int]], most: int) -> _Task:
    """The first blocks of these ranges, which lose them."""
    first, end = left.pop(0)
    blocks = min(most, end - first)
    if first + blocks < end:
        left.insert(0, (first + blocks, end))
    return _Task(first, blocks, 1, False)


def _next_chunk(blocks: int, seconds: float) -> int:
    # Blocks are the same however they are grouped, so the clock may decide.
    return max(1, min(4 * blocks, int(blocks * SECONDS / max(seconds, 1e-6))))


def _sender(draw: Draw, executor: Executor) -> Callable[[_Task], Future[Any]]:
    if isinstance(executor, ThreadPoolExecutor):
        timed = functools.partial(_timed, draw)
        return lambda task: executor.submit(timed, task.first, task.blocks)
    try:
        description = pickle.dumps(draw, protocol=pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ParameterTypeError(
            f"executor = {executor!r}: what is to be drawn cannot be sent to it: {error}"
        ) from error
    name = hashlib.sha256(description).hexdigest()
    small = len(description) <= _SMALL

    def send(task: _Task) -> Future[Any]:
        content = description if small or task.described else None
        # The attempt makes it another task for executors that remember results by their arguments.
        return executor.submit(work, name, content, task.first, task.blocks, task.attempt)

    return send


def work(name: str, description: bytes | None, first: int, blocks: int, attempt: int) -> Any:
    """What a worker does: draw blocks of what it was told about now or before; None where it was not told."""
    global _descriptions
    draw = _descriptions.get(name)
    if draw is None:
        if description is None:
            return _core.__version__, None, 0.0
        draw = pickle.loads(description)
        # A new dictionary, and no lock: a forked worker could inherit one that nobody is left to release. If two threads come
        # at once, one description is forgotten, and sent again.
        _descriptions = dict([*_descriptions.items()][-_KEPT + 1 :], **{name: draw})
    return _timed(draw, first, blocks)


@standard
def _timed(draw: Draw, first: int, blocks: int) -> tuple[str, tuple[Any, ...], float]:
    began = time.monotonic()
    drawn = draw(first, blocks)
    return _core.__version__, drawn, time.monotonic() - began
