"""Ctrl-C ends whatever runs, soon, and what goes on afterwards has the same bits."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import hockeystick as hs
import numpy as np
import pytest

GUARD = 60.0
"""Seconds; so that a test ends. None of these calls ends by itself in that time."""

LONG = {
    "seek": """
noise = hs.CorrelatedNoise(hs.BandedToeplitz.square_root(4096, 64), 100_000, 1.0, clipping_norm=1.0, seed=1)
begin()
noise.seek(4096)
""",
    "one row after the other": """
noise = hs.CorrelatedNoise(hs.BandedToeplitz.square_root(100_000, 64), 200_000, 1.0, clipping_norm=1.0, seed=1)
begin()
for row in noise:
    pass
""",
    "batches": """
sampler = hs.BMinSep(10_000, 4, 0.1).batches(50_000_000, seed=b"1" * 32)
begin()
for batch in sampler:
    pass
""",
    "individual accountant": """
accountant = hs.IndividualAccountant(200_000, noise_multiplier=1.0, sampling_probability=0.1, clipping_norm=1.0)
rng = np.random.default_rng(1)
begin()
while True:
    accountant.step(rng.random(200_000))
    accountant.epsilon(1e-5)
""",
    "slope bounds": """
profile = hs.account(hs.DiscreteGaussian(50.0) * 10_000 + hs.DiscreteLaplace(70.0) * 9_999)
begin()
for x in np.linspace(0.1, 20, 10_000):
    profile.slope_bounds(x)
""",
    "curve": """
begin()
profile = hs.account(hs.PoissonSampled(hs.Laplace(1.0), 0.1) * 1000 + hs.PoissonSampled(hs.Gaussian(0.5), 0.3) * 77)
for x in np.linspace(0.1, 50, 100_000):
    profile.delta_bounds(x)
""",
    "estimate": """
mechanism = hs.BandMF(hs.BandedToeplitz.square_root(2048, 64), hs.BMinSep(2048, 64, 0.01), 0.5)
begin()
hs.estimate_delta(mechanism, 1.0, 10**9, seed=1)
""",
    "tables of pairs": """
mechanism = hs.BandMF(hs.BandedToeplitz.square_root(16_000, 128), hs.BMinSep(16_000, 128, 0.001), 0.5)
begin()
for seed in range(10_000):
    hs.estimate_delta(mechanism, 1.0, 10**6, seed=seed, method="auto", adjacency="remove")
""",
    "grid": """
begin()
hs.grid_epsilon(np.linspace(0.3, 9, 4000), 0.2, 7, 1e-5, accuracy=1e-9, engine="fft")
""",
}

PROGRAM = """
import signal, sys, time
# Whoever starts tests in the background may have them ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)
import numpy as np
import hockeystick as hs

def begin():
    print("begun", flush=True)

try:
{body}
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(7)
"""


@pytest.mark.sweep
@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent to the process alone")
@pytest.mark.parametrize("name", LONG)
def test_ctrl_c_ends_it(name: str) -> None:
    source = PROGRAM.format(body="".join(f"    {line}\n" for line in LONG[name].strip().splitlines()))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", source]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as run:
        assert run.stdout is not None
        try:
            assert run.stdout.readline() == "begun\n"
            time.sleep(0.3)
            assert run.poll() is None
            run.send_signal(signal.SIGINT)
            assert run.wait(GUARD) == 7
        finally:
            run.kill()
        assert run.stdout.read() == "interrupted\n"


ASKED = {
    "noise": """
noise = hs.CorrelatedNoise(hs.BandedToeplitz.square_root(64, 32), 400_000, 1.0, clipping_norm=1.0, seed=1)
work, ask = lambda: noise.seek(60 - noise.step), noise.state
""",
    "batches": """
batches = hs.BMinSep(1000, 4, 0.05).batches(1_000_000, seed=1)
work, ask = lambda: batches.seek(60 - batches.step), lambda: batches.state_bytes
""",
    "profile": """
made = [None]
def work():
    made[0] = hs.account(hs.DiscreteGaussian(50.0) * 10_000 + hs.DiscreteLaplace(70.0) * 9_999, engine="fft")
    made[0].epsilon(1e-5)
def ask():
    if made[0] is not None:
        made[0].epsilon(1e-6)
""",
    "individual accountant": """
accountant = hs.IndividualAccountant(20_000, noise_multiplier=1.0, sampling_probability=0.1, clipping_norm=1.0)
accountant.step(np.linspace(0, 1, 20_000), steps=100)
work, ask = lambda: accountant.nonadaptive_epsilon(rng.random()), lambda: accountant.nonadaptive_epsilon(1e-6)
""",
}

ASKING = """
import os, signal
import numpy as np
import hockeystick as hs

rng = np.random.default_rng(1)
{body}
def handler(*_):
    try:
        ask()
    except RuntimeError as error:
        print(error, flush=True)
        os._exit(7)
    signal.setitimer(signal.ITIMER_REAL, 0.02)

signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.02)
while True:
    work()
"""


@pytest.mark.sweep
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs an alarm clock")
@pytest.mark.parametrize("name", ASKED)
def test_a_handler_cannot_ask_for_what_is_being_worked_on(name: str) -> None:
    """It waited for its own thread, for ever."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", ASKING.format(body=ASKED[name])]
    done = subprocess.run(
        command, check=False, env=environment, capture_output=True, text=True, timeout=GUARD
    )
    assert (done.returncode, done.stderr) == (7, "")
    assert "its own thread" in done.stdout


class Bell(Exception):
    """Rung by a signal."""


def ring(number: int, frame: object) -> None:
    raise Bell


@pytest.fixture
def bell() -> Iterator[Callable[[float], None]]:
    """Rings so many seconds later, once.

    No garbage is collected meanwhile: a callback of somebody else's (hypothesis times collections) would lose
    what rings within it, and the interpreter's complaint would fail the test.
    """
    before = signal.signal(signal.SIGALRM, ring)
    gc.disable()
    try:
        yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()


def silence(bell: Callable[[float], None]) -> None:
    """It rings no more: once only, and perhaps just now."""
    with contextlib.suppress(Bell):
        bell(0.0)


needs_alarm = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs an alarm clock")


@pytest.mark.sweep
@needs_alarm
@pytest.mark.parametrize("form", ["strategy", "inverse", "buffers"])
@pytest.mark.parametrize("threads", [1, 2])
def test_noise_goes_on_with_the_same_bits(form: str, threads: int, bell: Callable[[float], None]) -> None:
    steps, width = 300, 20_000
    # (1 - x)^{1/2}, cut off.
    k = np.arange(1.0, 48.0)
    coefficients = np.concatenate([[1.0], np.cumprod((k - 1.5) / k)])
    strategies: dict[str, hs.matrix.Strategy] = {
        "strategy": hs.BandedToeplitz.square_root(steps, 48),
        "inverse": hs.matrix.InverseBanded(coefficients, steps),
        "buffers": hs.matrix.BufferedToeplitz(((0.01, 0.99),) * 47, steps),
    }
    strategy = strategies[form]
    noise, whole = (hs.CorrelatedNoise(strategy, width, 1.0, clipping_norm=1.0, seed=1) for _ in range(2))
    rang = 0
    seconds = 0.1
    hs.set_threads(threads)
    try:
        rng = np.random.default_rng(threads)
        for count in (1, 1, 40, 3, 70, 1, 100) * 5:
            if rang > 3:
                break
            try:
                bell(float(rng.uniform(0.0, seconds)))
                while noise.step < steps - 200:
                    noise.rows(count)
                bell(0.0)
                seconds /= 2.0  # On this machine the bell rings too late.
            except Bell:
                rang += 1
            silence(bell)
            whole.seek(noise.step)
            assert np.array_equal(noise.state()["history"], whole.state()["history"])
            assert np.array_equal(noise.rows(2), whole.rows(2))
            if noise.step > 150:
                noise.seek(20)
    finally:
        silence(bell)
        hs.set_threads(0)
    assert rang > 0


@needs_alarm
def test_a_seek_that_is_interrupted_gives_no_wrong_rows(bell: Callable[[float], None]) -> None:
    """Rows before the few that an inverse needs were taken to be 0, and what came next was made with those."""
    steps, width = 2000, 20_000
    strategy = hs.matrix.InverseBanded.square_root(steps, 300)
    noise, whole = (hs.CorrelatedNoise(strategy, width, 1.0, clipping_norm=1.0, seed=1) for _ in range(2))
    whole.seek(1500)
    expected = whole.next()
    rang = 0
    for seconds in (0.2, 0.1, 0.05, 0.025, 0.0125, 0.006):
        noise.seek(0)
        try:
            bell(seconds)
            noise.seek(1500)
            bell(0.0)
        except Bell:
            rang += 1
            assert noise.step == steps
            with pytest.raises(hs.ParameterError, match="all 2000 steps"):
                noise.next()
            noise.seek(1500)
        assert np.array_equal(noise.next(), expected)
    assert rang > 0


@needs_alarm
def test_batches_go_on_with_the_same_bits(bell: Callable[[float], None]) -> None:
    make = hs.BMinSep(60, 4, 0.05).batches
    whole = [batch.tolist() for batch in make(300_000, seed=1)]
    batches = make(300_000, seed=1)
    rang = 0
    found: dict[int, list[int]] = {}
    while batches.step < 60:
        at = batches.step
        try:
            bell(0.004)
            for batch in batches:
                found[at], at = batch.tolist(), at + 1
        except Bell:
            rang += 1
        silence(bell)
    assert rang > 0
    assert all(whole[at] == batch for at, batch in found.items())


@needs_alarm
def test_answers_are_the_same_after_an_interruption(bell: Callable[[float], None]) -> None:
    # What an interrupted question has worked out in part must not be taken for the whole by the next one.
    def processes() -> list[Any]:
        laplace, gaussian = hs.PoissonSampled(hs.Laplace(1.0), 0.1), hs.PoissonSampled(hs.Gaussian(0.8), 0.2)
        return [laplace * 50 + gaussian * 77, hs.DiscreteGaussian(9.0) * 1000, gaussian * 3, laplace * 12]

    engines = ("auto", "fft")
    whole = [
        hs.account(process, engine=engine).delta_bounds(2.5) for process in processes() for engine in engines
    ]
    rang = 0
    rng = np.random.default_rng(1)
    for process, expected in zip(
        [(process, engine) for process in processes() for engine in engines], whole, strict=True
    ):
        # Whatever the machine's speed, the bell rings during some of the first questions.
        seconds = 0.1
        for _ in range(12):
            profile = hs.account(process[0], engine=process[1])
            try:
                bell(float(rng.uniform(1e-5, seconds)))
                profile.delta_bounds(2.5)
                bell(0.0)
                seconds /= 2.0
            except Bell:
                rang += 1
            assert profile.delta_bounds(2.5) == expected
    assert rang > 3


def test_a_lock_held_by_an_interruptible_call_does_not_wait_for_the_interpreter() -> None:
    # One thread makes rows, and looks for signals meanwhile; another one asks for its state.
    noise = hs.CorrelatedNoise(
        hs.BandedToeplitz.square_root(10**6, 32), 100_000, 1.0, clipping_norm=1.0, seed=1
    )
    noise.seek(40)
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            noise.state()

    thread = threading.Thread(target=ask)
    thread.start()
    for _ in range(10):
        noise.seek(noise.step + 20)
    done.set()
    thread.join(GUARD)
    assert not thread.is_alive()
