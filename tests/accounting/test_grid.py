"""A grid answers each cell as `account` does, bit for bit; the rest is how it is asked and shown."""

import copy
import csv
import io
import json
import math
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import hockeystick as hs
import numpy as np
import pytest
from hockeystick import _core
from hockeystick.accounting.grid import MAX_CELLS
from hockeystick.cli.commands import main


@pytest.fixture(params=[1, 4])
def _threads(request: pytest.FixtureRequest) -> Iterator[None]:
    _core.set_threads(request.param)
    yield
    _core.set_threads(0)


def profiles(
    grid: hs.accounting.Grid, **settings: Any
) -> Iterator[tuple[tuple[int, ...], hs.PrivacyProfile, float]]:
    noise, probability, steps, points = grid.inputs.values()
    for index in np.ndindex(grid.shape):
        step = hs.PoissonSampled(hs.Gaussian(noise[index]), probability[index])
        yield index, hs.account(step * steps[index], **settings), points[index]


def assert_same(grid: hs.accounting.Grid, **settings: Any) -> None:
    for index, profile, point in profiles(grid, **settings):
        alone = profile.epsilon_bounds(point) if grid.quantity == "epsilon" else profile.delta_bounds(point)
        assert (grid.lower[index], grid.upper[index]) == alone, (index, profile)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("adjacency", hs.mechanisms.ADJACENCIES)
def test_epsilon_is_account_s_bit_for_bit(adjacency: str) -> None:
    noise, q = np.array([0.6, 1.0, 4.0])[:, None, None], np.array([1e-3, 0.02, 1.0])[:, None]
    grid = hs.grid_epsilon(noise, q, 800, [1e-5, 1e-3], adjacency)
    assert grid.shape == (3, 3, 2)
    assert_same(grid, adjacency=adjacency)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("adjacency", ["add", "add_or_remove", "replace_one"])
def test_delta_is_account_s_bit_for_bit(adjacency: str) -> None:
    grid = hs.grid_delta([[0.8], [2.0]], 0.01, [2, 900, 30_000], 0.7, adjacency)
    assert_same(grid, adjacency=adjacency)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize(
    "settings",
    [
        {"accuracy": 1e-6},
        {"engine": "fft"},
        {"memory_limit": 2**20},
        {"memory_limit": 2**20, "engine": "fft"},
    ],
)
def test_settings_are_account_s(settings: dict[str, Any]) -> None:
    # Few steps of a small probability: the FFT is needed, and 2^20 bytes bind.
    assert_same(hs.grid_epsilon([0.5, 1.5], [[1e-3], [0.01]], [[[3]], [[300]]], 1e-5, **settings), **settings)


def test_extremes() -> None:
    grid = hs.grid_epsilon(
        np.array([0.0, 0.01, 1.0, 1e6]).reshape(-1, 1, 1, 1),
        np.array([0.0, 1e-6, 1.0]).reshape(-1, 1, 1),
        np.array([0, 1, 10**9]).reshape(-1, 1),
        [0.0, -0.0, 1e-300, 1e-5, 1.0],
    )
    assert_same(grid)
    assert (grid.upper[:, 0] == 0.0).all()  # nobody is sampled
    assert (grid.upper[:, :, 0] == 0.0).all()  # no steps
    assert (grid.upper[..., 4] == 0.0).all()
    assert (grid.upper[0, 2, 1:, :4] == math.inf).all()  # no noise
    assert (grid.lower <= grid.upper).all()
    assert set(grid.engine[:, 0].ravel()) == {"exact"}


def test_extremes_of_delta() -> None:
    grid = hs.grid_delta(
        [[[0.0]], [[1.0]]], [[0.0], [0.01], [1.0]], 4, [-math.inf, -1.0, 0.0, 1.0, 1e3, math.inf]
    )
    assert_same(grid)
    assert (grid.upper <= 1.0).all()


def test_shapes_and_types() -> None:
    scalar = hs.grid_epsilon(1.0, 0.01, 100, 1e-5)
    assert scalar.shape == ()
    assert float(scalar.upper) == hs.account(hs.PoissonSampled(hs.Gaussian(1.0), 0.01) * 100).epsilon(1e-5)
    assert hs.grid_epsilon([], 0.01, 100, 1e-5).shape == (0,)
    assert hs.grid_epsilon(1.0, 0.01, [], 1e-5).shape == (0,)
    same = [
        hs.grid_epsilon([1, 2], 0.5, np.array([10, 20], dtype=np.uint8), 1e-5),
        hs.grid_epsilon(np.array([1, 2], dtype=np.float32), Fraction(1, 2), [10, 20], [1e-5]),
        hs.grid_epsilon([Fraction(1), 2.0], 0.5, np.array([10, 20], dtype=object), 1e-5),
    ]
    for grid in same:
        np.testing.assert_array_equal(grid.upper, same[0].upper)
    assert repr(same[0]) == "Grid(epsilon, shape=(2,), adjacency='add_or_remove', accuracy=0.001)"


@pytest.mark.parametrize(
    "way",
    [
        lambda grid: grid,
        copy.copy,
        copy.deepcopy,
        lambda grid: pickle.loads(pickle.dumps(grid)),  # workers return grids
    ],
)
def test_results_are_frozen_and_detached(way: Callable[[hs.accounting.Grid], hs.accounting.Grid]) -> None:
    noise = np.array([1.0, 2.0])
    original = hs.grid_epsilon(noise, 0.01, 100, 1e-5)
    noise[:] = 7.0
    grid = way(original)
    assert repr(grid) == repr(original)
    assert grid.upper.tolist() == original.upper.tolist()
    assert grid.inputs["noise_multiplier"].tolist() == [1.0, 2.0]
    for array in (grid.lower, grid.upper, grid.engine, *grid.inputs.values()):
        assert array.shape == (2,)
        with pytest.raises(ValueError, match="read-only"):
            array[...] = array[0]
    with pytest.raises(AttributeError):
        grid.upper = grid.lower  # type: ignore[misc]
    with pytest.raises(TypeError):
        grid.inputs["delta"] = grid.lower  # type: ignore[index]


GOOD: dict[str, Any] = {
    "noise_multiplier": 1.0,
    "sampling_probability": 0.01,
    "steps": 10,
    "delta": 1e-5,
}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("noise_multiplier", [[1.0, 2.0], [-0.5, -1.0]], r"noise_multiplier\[1, 0\] = -0\.5: .*\[0, inf\)"),
        ("noise_multiplier", [1.0, math.nan], r"noise_multiplier\[1\] = nan"),
        ("noise_multiplier", math.inf, r"noise_multiplier = inf"),
        ("noise_multiplier", 10**400, r"noise_multiplier = 1000"),
        ("sampling_probability", [0.5, 1.5, 2.0], r"sampling_probability\[1\] = 1\.5: .*\[0, 1\]"),
        ("steps", [1, -3], r"steps\[1\] = -3: must be an integer in \[0, 9007199254740992\]"),
        ("steps", [10**30], r"steps = 1000000"),
        ("steps", np.array([2**63, 1], dtype=np.uint64), r"steps\[0\] = 9223372036854775808"),
        ("delta", [1e-5, math.nan, 2.0], r"delta\[1\] = nan: .*\[0, 1\]"),
        ("accuracy", 2.0, "accuracy = 2.0"),
        ("memory_limit", 7, "memory_limit = 7"),
        ("engine", "pld", "engine = 'pld'"),
        ("adjacency", "swap", "adjacency = 'swap'"),
    ],
)
def test_bad_values_are_refused_before_any_work(name: str, value: Any, message: str) -> None:
    with pytest.raises(hs.ParameterError, match=message):
        hs.grid_epsilon(**{**GOOD, name: value})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("noise_multiplier", "1", "noise_multiplier = .*must be a number"),
        ("noise_multiplier", [1.0, None], r"noise_multiplier\[1\] = None"),
        ("noise_multiplier", [[1.0], [1.0, 2.0]], "noise_multiplier: must be an array of numbers"),
        ("sampling_probability", True, "sampling_probability = "),
        ("sampling_probability", 0.1j, "sampling_probability = "),
        ("steps", [10.0, 20.0], r"steps\[0\] = .*must be an integer"),
        ("delta", [True, False], r"delta\[0\] = "),
    ],
)
def test_bad_types_are_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(hs.ParameterTypeError, match=message):
        hs.grid_epsilon(**{**GOOD, name: value})


def test_bad_epsilon() -> None:
    with pytest.raises(hs.ParameterError, match=r"epsilon\[1\] = nan"):
        hs.grid_delta(1.0, 0.01, 10, [1.0, math.nan])


def test_bad_shapes() -> None:
    with pytest.raises(hs.ParameterError, match=r"noise_multiplier \(2,\), .*steps \(3,\)"):
        hs.grid_epsilon([1.0, 2.0], 0.01, [1, 2, 3], 1e-5)
    side = np.ones(math.isqrt(MAX_CELLS) + 1)
    with pytest.raises(hs.ParameterError, match=f"more than {MAX_CELLS}"):
        hs.grid_epsilon(side[:, None], side, 1, 1e-5)


def test_progress_runs_on_the_caller_s_thread_and_may_stop_the_work() -> None:
    seen: list[tuple[int, int]] = []

    def progress(done: int, total: int) -> None:
        assert threading.current_thread() is threading.main_thread()
        seen.append((done, total))
        if len(seen) == 3:
            raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        hs.grid_epsilon(
            np.linspace(0.5, 1.0, 2000), 1e-3, 50, 1e-5, accuracy=1e-6, engine="fft", progress=progress
        )
    assert len(seen) == 3
    assert all(0 <= done <= total == 2000 for done, total in seen)
    assert seen == sorted(seen)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs POSIX timers")
def test_ctrl_c_ends_the_work() -> None:
    program = """
import os, signal, sys, threading, time
import numpy as np, hockeystick as hs
signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.5)
try:
    hs.grid_epsilon(np.linspace(0.5, 1.0, 5000), 1e-3, 50, 1e-5, accuracy=1e-6, engine="fft")
except KeyboardInterrupt:
    sys.exit(7)
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 7


def cli(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["grid", *arguments]) == 0
    return capsys.readouterr().out


RANGES = [
    *("--noise-multiplier", "0.5:2:4", "--sampling-probability", "1e-3:1e-1:log3"),
    *("--steps", "1000", "--delta", "1e-5"),
]


def test_command_line_csv_and_json_are_the_library_s(capsys: pytest.CaptureFixture[str]) -> None:
    grid = hs.grid_epsilon(np.linspace(0.5, 2, 4)[:, None], np.geomspace(1e-3, 1e-1, 3), 1000, 1e-5)
    rows = list(csv.reader(io.StringIO(cli(capsys, *RANGES))))
    assert rows[0] == [*grid.inputs, "epsilon_lower", "epsilon_upper"]
    numbers = np.array(rows[1:], dtype=float)
    np.testing.assert_array_equal(numbers[:, -2], grid.lower.ravel())
    np.testing.assert_array_equal(numbers[:, -1], grid.upper.ravel())
    np.testing.assert_array_equal(numbers[:, 0], grid.inputs["noise_multiplier"].ravel())
    table = json.loads(cli(capsys, *RANGES, "--json"))
    assert table["shape"] == [4, 3, 1, 1]
    assert table["noise_multiplier"] == np.linspace(0.5, 2, 4).tolist()
    assert len(table["sampling_probability"]) == 3
    assert table["steps"] == [1000]
    assert table["delta"] == [1e-5]
    np.testing.assert_array_equal(np.squeeze(table["upper"]), grid.upper)


def test_command_line_asks_for_delta_and_spells_infinity(capsys: pytest.CaptureFixture[str]) -> None:
    fixed = ["--noise-multiplier", "0,1", "--steps", "1:100:log3", "--adjacency", "remove"]
    table = json.loads(cli(capsys, *fixed, "--epsilon", "0.5", "--json"))
    assert table["quantity"] == "delta"
    assert table["steps"] == [1, 10, 100]
    assert np.squeeze(table["upper"])[1, 0] == hs.account(hs.Gaussian(1.0), "remove").delta(0.5)
    table = json.loads(cli(capsys, *fixed, "--delta", "1e-5", "--json"))
    assert np.squeeze(table["upper"])[0].tolist() == ["inf"] * 3


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "--noise-multiplier"),
        ([*RANGES[:6]], "--delta"),
        ([*RANGES, "--epsilon", "1"], "--epsilon"),
        ([*RANGES, "--delta", "2"], "delta = 2.0"),
        ([*RANGES, "--delta", "1e-5,nan"], "nan"),
        ([*RANGES, "--steps", "1.5"], "--steps 1.5"),
        ([*RANGES, "--steps", "10:20"], "--steps 10:20"),
        ([*RANGES, "--steps", "0:20:log5"], "--steps 0:20:log5"),
        ([*RANGES, "--noise-multiplier", "1:2:999999999999"], "--noise-multiplier 1:2:9"),
        ([*RANGES, "--noise-multiplier", "1:inf:3"], "--noise-multiplier 1:inf:3"),
        ([*RANGES, "--noise-multiplier", "-1e308:1e308:3"], "--noise-multiplier -1e308:1e308:3"),
        ([*RANGES, "--steps", "-1e308:1e308:3"], "--steps -1e308:1e308:3"),
        ([*RANGES, "--sampling-probability", "a,b"], "--sampling-probability a,b"),
        ([*RANGES, "--adjacency", "swap"], "adjacency = 'swap'"),
        ([*RANGES[:2], "--steps", "5", "--delta", "1e-5", "--plot", "x.png"], "two axes"),
        ([*RANGES, "--plot", "/nowhere/at/all.png"], "/nowhere/at/all.png"),
    ],
)
def test_command_line_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], named: str
) -> None:
    pytest.importorskip("matplotlib")
    assert main(["grid", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("hockeystick: error: ")
    assert error.count("\n") == 1
    assert named in error


def test_command_line_plot(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "out.png"
    cli(capsys, *RANGES, "--plot", os.fspath(path))
    assert path.read_bytes().startswith(b"\x89PNG")


def test_plot_names_what_varies_and_what_does_not() -> None:
    pytest.importorskip("matplotlib")
    q = np.geomspace(1e-3, 1e-1, 6)
    # The number of steps depends on q, so the second axis is q's.
    grid = hs.grid_epsilon(np.linspace(0.0, 2.0, 5)[:, None], q, np.round(10 / q).astype(int), 1e-5)
    plot = hs.plots.plot_grid(grid).axes[0]
    assert (plot.get_xlabel(), plot.get_ylabel()) == ("sampling probability", "noise multiplier")
    assert (plot.get_xscale(), plot.get_yscale()) == ("log", "linear")
    assert "delta = 1e-05" in plot.get_title()
    assert "steps" not in plot.get_title()


@pytest.mark.parametrize("noise", [0.0, 1e6])
def test_plot_of_what_has_no_contours(noise: float) -> None:
    pytest.importorskip("matplotlib")
    hs.plots.plot_grid(hs.grid_epsilon(noise, [[0.5], [0.6]], [1, 2, 3], 1e-5)).canvas.draw()


def test_plot_needs_an_argument_for_each_axis() -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(hs.ParameterError, match="no argument varies along it"):
        hs.plots.plot_grid(hs.grid_epsilon([[1.0, 2.0], [3.0, 4.0]], 0.5, 3, 1e-5))
