"""The progress bar of long runs."""

import io
import sys

import pytest
from hockeystick._base import progress
from hockeystick._base.progress import Bar, Patience


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


def test_each_phase_has_its_own_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates that begin where the first one began, one after the other, and a phase of another length."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(sys, "stderr", Terminal())
    bar = Bar("samples", "samples")
    for total, seconds in ((100, 10.0), (100, 2.0), (300, 5.0)):
        bar.show(10, total)
        now[0] += seconds
        bar.show(60, total)
        assert sys.stderr.getvalue().split("] ")[-1].startswith(f"60/{total} {50 / seconds:.3g} samples/s")  # type: ignore[attr-defined]


def test_nothing_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    bar = Bar("samples")
    now[0] = 50.0
    bar.show(1, 2)
    bar.clear()
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]


def test_whatever_takes_long_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    patience = Patience("calibration", "looks")
    for done in range(60):
        patience.show(done, 60)
        now += 0.4
    # After 2 seconds that 22 more are ahead, then each time after twice as long.
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == "calibration: 5 of at most 60 looks after 2 s; at most about 22 s to go"
    assert len(said) == 4
    caplog.clear()
    quick = Patience("samples", "blocks")
    for done in range(60):
        quick.show(done, 60)
        now += 0.1
    assert not caplog.records
