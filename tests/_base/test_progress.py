"""Long runs: a bar where somebody looks, and messages elsewhere."""

import functools
import io
import re
import sys
import threading
from types import SimpleNamespace
from typing import Any

import hockeystick as hs
import pytest
from hockeystick._base import progress
from hockeystick._base.progress import Bar, Patience, shown


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """Of this module and of tqdm."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)
        monkeypatch.setattr("tqdm.std.time", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def watched(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "120")
    return terminal


def last(terminal: Terminal) -> str:
    return terminal.getvalue().split("\r")[-1]


def test_rate_and_time_left(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watched(monkeypatch)
    bar = Bar("Monte Carlo", "blocks")
    bar.show(1000, 5000)  # what an earlier process did counts for nothing
    clock.now += 0.5
    bar.show(1001, 5000)
    assert terminal.getvalue() == ""
    clock.now += 9.5
    bar.show(2000, 5000)
    assert last(terminal).startswith("Monte Carlo:  40%")
    assert re.search(r"2\.00k/5\.00k \[00:10<00:\d\d, .* blocks/s\]", last(terminal))
    bar.close()
    assert last(terminal).strip() == ""


def test_it_can_be_turned_off(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watched(monkeypatch)
    disabled = functools.partial(progress._tqdm(), disable=True)  # what TQDM_DISABLE=1 does
    monkeypatch.setattr(progress, "_tqdm", lambda: disabled)
    bar = Bar("Monte Carlo", "blocks")
    for done in range(10):
        bar.show(done, 10)
        clock.now += 1.0
    bar.close()
    assert terminal.getvalue() == ""


def test_each_phase_has_its_own_rate(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates that begin where the first one began, one after the other, and a phase of another length."""
    terminal = watched(monkeypatch)
    bar = Bar("Monte Carlo", "blocks")
    for total, seconds in ((100, 10.0), (100, 2.0), (300, 5.0)):
        bar.show(10, total)
        clock.now += seconds
        bar.show(60, total)
        assert f" 60.0/{total}" in last(terminal)
        assert f", {50 / seconds:#.3g} blocks/s]" in last(terminal)
    bar.close()


def test_library_calls_and_the_command_line_show_it(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a grid, of samples and of a search, which call `shown`; no thread is left behind."""
    terminal = watched(monkeypatch)
    before = threading.active_count()

    def slow(c: float) -> Any:
        clock.now += 1.0
        return hs.Gaussian(c)

    hs.calibrate_noise_multiplier(slow, 1.0, 1e-5)
    assert "calibration:" in terminal.getvalue()
    assert last(terminal).strip() == ""
    assert threading.active_count() == before
    told: list[tuple[int, int]] = []
    with shown("grid", "cells", lambda done, total: told.append((done, total))) as show:
        show(1, 2)
    assert told == [(1, 2)]


def test_notebooks_have_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert not progress._watched()
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert progress._watched()


def test_nothing_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with shown("Monte Carlo", "blocks") as show:
        assert isinstance(show.__self__, Patience)  # type: ignore[attr-defined]
        show(1, 2)
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
