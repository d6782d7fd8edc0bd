"""The progress bar of long runs."""

import io
import sys

import pytest
from hockeystick import progress
from hockeystick.progress import Bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(sys, "stderr", Terminal())
    bar = Bar("samples", "samples")
    bar.show(1000, 5000)  # what an earlier process did counts for nothing
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]
    now[0] += 10.0
    bar.show(2000, 5000)
    assert sys.stderr.getvalue().endswith("] 2000/5000 100 samples/s, 30 s left")  # type: ignore[attr-defined]
    now[0] += 10.0
    bar.show(0, 200)  # the next run
    now[0] += 4.0
    bar.show(100, 200)
    assert "] 100/200 25 samples/s, 4 s left" in sys.stderr.getvalue()  # type: ignore[attr-defined]
    bar.clear()
    assert sys.stderr.getvalue().endswith(" \r")  # type: ignore[attr-defined]


def test_nothing_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    bar = Bar("samples")
    now[0] = 50.0
    bar.show(1, 2)
    bar.clear()
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]
