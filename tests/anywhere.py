"""Where a signal's handler may come: before any line of the package; and when kill -9 may."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import numpy as np


class Visit:
    """One call of something at one line, if the work had so many."""

    reached = False
    error: Exception | None = None

    def __init__(self, files: tuple[str, ...], line: int, act: Callable[[], Any]) -> None:
        self._files, self._left, self._act = files, line, act

    def trace(self, frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.endswith(self._files):
            return None
        if event == "line":
            self._left -= 1
            if self._left == 0:
                self.reached = True
                sys.settrace(None)
                try:
                    self._act()
                except Exception as error:  # noqa: BLE001 (as in a handler that fails; KeyboardInterrupt goes on)
                    self.error = error
        return self.trace


@contextmanager
def visiting(files: tuple[str, ...], line: int, act: Callable[[], Any]) -> Iterator[Visit]:
    """While the body runs, ``act`` is called before the ``line``-th line that runs in files whose names end so."""
    visit, before = Visit(files, line, act), sys.gettrace()
    sys.settrace(visit.trace)
    try:
        yield visit
    finally:
        sys.settrace(before)


def interrupt() -> None:
    raise KeyboardInterrupt


def interrupted_everywhere(
    files: tuple[str, ...], make: Callable[[], Any], work: Callable[[Any], Any]
) -> Iterator[Any]:
    """What Ctrl-C leaves of ``work`` on something new, for each line at which it may come."""
    line = 1
    while True:
        thing = make()
        with visiting(files, line, interrupt) as visit, suppress(KeyboardInterrupt):
            work(thing)
        if not visit.reached:
            assert line > 1
            return
        yield thing
        line += 1


def killed_again_and_again(command: Sequence[str], kills: int, longest: float, shortest: float = 0.0) -> None:
    """Run ``command`` to its end; it is killed so many times before, or until it ends, some seconds after it has printed a line."""
    rng = np.random.default_rng(0)
    for done in range(kills):
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(shortest + longest * rng.random())
        process.send_signal(signal.SIGKILL)
        process.stdout.close()
        if process.wait() == 0:
            assert done
            return
    subprocess.run(command, check=True, timeout=120)
