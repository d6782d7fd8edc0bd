"""How every hot loop scales, beside the same computation in NumPy: steps, kinds of step, grid, n, b, N, threads.

    python -m bench.scaling                      # two minutes; table and picture into docs/images
    python -m bench.scaling --threads            # prints wall clock on one thread and on all: on an idle machine
    python -m bench.scaling --quick --out folder

Least processor time of a few first calls, one thread on both sides (bench/timing.py). The NumPy sides are bench/baselines,
which the tests use as oracles, and the plain recurrences of bench.noise and bench.batches. NumPy's FFT gives one bound on a
fixed lattice, without a stated error; the core's refines its lattice until both of its bounds agree to 1e-4.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hockeystick as hs
import numpy as np
from hockeystick import _core

from bench.baselines import accountant, bandmf, discretise, exact, pairs
from bench.noise import Plain
from bench.papers.results import save, write
from bench.peers import ONE_THREAD
from bench.timing import least

IMAGES = Path(__file__).parent.parent / "docs" / "images"
Q, DELTA, RATE = 0.01, 1e-5, 1 / 512


Calls = tuple[float, dict[str, Callable[[], Any]]]
Row = tuple[str, str, int, str, float]


@dataclass(frozen=True)
class Sweep:
    """One panel: a loop, what grows, and for each value of it the calls to be timed, by name, and how many units they do."""

    loop: str
    grows: str
    values: Sequence[int]
    calls: Callable[[int], Calls]
    unit: str = "s"


def pair(sigma: float) -> pairs.Pair:
    return pairs.Sampled(pairs.Gaussian(1 / sigma), Q)


def sigma_for(steps: int) -> float:
    """A sensible run: the noise multiplier grows like the root of the steps beyond 1000."""
    return max(1.0, (steps / 1000) ** 0.5)


# ---- accounting -------------------------------------------------------------------------------------


def accounts(parts: list[tuple[float, int]]) -> Calls:
    """One certified epsilon of (sigma, steps)."""
    process = sum(hs.PoissonSampled(hs.Gaussian(sigma), Q) * steps for sigma, steps in parts)
    plain = [(pair(sigma), steps) for sigma, steps in parts]
    inverted = [exact.Step(sigma, Q, steps) for sigma, steps in parts]
    epsilon = hs.account(process, "remove").epsilon(DELTA)
    return 1.0, {
        "inversion": lambda: hs.account(process, "remove").delta_bounds(epsilon),
        "NumPy inversion": lambda: exact.sampled_gaussian_delta(inverted, epsilon),
        "FFT, both bounds": lambda: hs.account(process, "remove", 1e-4, engine="fft").epsilon_bounds(DELTA),
        "NumPy FFT, upper": lambda: accountant.epsilon(plain, DELTA, 2.5e-4, discretise.upper),
    }


def grids(points: int) -> Calls:
    """Mean-preserving rounding of a step to a lattice of so many points, and 1000-fold composition."""
    base, core = pair(1.0), _core.sampled_pair(_core.gaussian_pair(1.0), Q, "remove")
    first, last = discretise.window(base, 1e-3)
    step = (last - first) * 1e-3 / points
    x = np.linspace(first * 1e-3, last * 1e-3, points)
    return 1.0, {
        "round and compose": lambda: _core.Coupling([(core, 1000)], step, 1e-8).epsilon_bounds(DELTA),
        "NumPy": lambda: accountant.epsilon([(base, 1000)], DELTA, step, discretise.mean_preserving),
        "curve alone": lambda: core.above(x),
        "NumPy curve": lambda: base.above(x),
    }


# ---- samples, batches, noise, ledger ---------------------------------------------------------------------


def kernel(steps: int, bands: int) -> Calls:
    """A block of losses of BandMF with b-min-sep sampling."""
    strategy = hs.BandedToeplitz.square_root(steps, bands)
    scheme = hs.BMinSep.of_rate(steps, bands, RATE)
    core = hs.BandMF(strategy, scheme, 1.0)._blocks("remove")
    law = bandmf.MinSep(steps, bands, scheme.sampling_probability, True)
    plain = bandmf.Mechanism(strategy._columns(), law, 1.0, 256)._blocks("remove")
    return core.block_size, {
        "core": lambda: core.losses(1, 0, 1),
        "NumPy": lambda: [plain.losses(1, block, 1) for block in range(core.block_size // 256)],
    }


def batches(size: int) -> Calls:
    """Eight batches of 500 expected examples of ``size``."""
    rate = 500 / size
    drawn = {
        "Poisson": hs.Poisson(1 << 20, rate).batches(size, seed=1),
        "b-min-sep": hs.BMinSep.of_rate(1 << 20, 16, rate).batches(size, seed=1),
    }
    generator = np.random.default_rng(1)

    def take(sampler: Iterator[Any]) -> None:
        for _ in itertools.islice(sampler, 8):
            pass

    found: dict[str, Callable[[], Any]] = {
        name: lambda sampler=sampler: take(sampler) for name, sampler in drawn.items()
    }
    found["NumPy, a coin each"] = lambda: [np.flatnonzero(generator.random(size) < rate) for _ in range(8)]
    return 8.0, found


def noise(bands: int, dimension: int = 1 << 18) -> Calls:
    """Eight rows of correlated noise."""
    strategy = hs.BandedToeplitz.square_root(1 << 16, bands)
    made = hs.CorrelatedNoise(strategy, dimension, 1.0, clipping_norm=1.0, seed=1, state_dtype="float32")
    out = np.zeros((8, dimension), np.float32)
    plain = Plain(strategy, dimension, np.dtype("float32"))
    calls = {"core": lambda: made.rows(8, out), "NumPy": lambda: [plain.next() for _ in range(8)]}
    return 8.0 * dimension, calls


def ledger(examples: int) -> Calls:
    """One step of a filter of all examples."""
    filt = hs.IndividualGDPFilter(examples, mu=1e3)
    mu = np.random.default_rng(1).random(examples) * 1e-3
    spent = np.zeros(examples)

    def plain() -> None:
        total = spent + mu * mu
        active = total <= 1e6
        spent[active] = total[active]

    return examples, {"filter, never overspent": lambda: filt.step(mu), "NumPy, rounding as it comes": plain}


SWEEPS = (
    Sweep("Accounting", "steps", [10**i for i in range(7)], lambda t: accounts([(sigma_for(t), t)])),
    Sweep(
        *("Accounting", "kinds of step, 100 of each", [1, 2, 4, 8, 16]),
        lambda k: accounts([(1.0 + i / k, 100) for i in range(k)]),
    ),
    Sweep("Lattice", "points", [1 << i for i in range(10, 19, 2)], grids),
    Sweep("Monte Carlo, b = 16", "n", [128, 512, 2048], lambda n: kernel(n, 16), "s a sample"),
    Sweep("Monte Carlo, n = 1024", "b", [1, 4, 16, 64], lambda b: kernel(1024, b), "s a sample"),
    Sweep("Batches of 500", "N", [10**4, 10**5, 10**6, 10**7], batches, "s a step"),
    Sweep("Noise, 2^18 coordinates", "b", [1, 4, 16, 64], noise, "s a number"),
    Sweep("Ledger", "N", [10**4, 10**5, 10**6, 10**7], ledger, "s an example"),
)


def measured(sweep: Sweep, quick: bool) -> list[Row]:
    rows = []
    for value in sweep.values[: 1 if quick else None]:
        units, calls = sweep.calls(value)
        for name, call in calls.items():
            try:
                seconds = least(call, 1 if quick else 3, 1e-9 if quick else 0.5) / units
            except ValueError as error:  # the inversion in NumPy is for many steps
                print(f"{sweep.loop}, {sweep.grows} {value}, {name}: {error}")
                continue
            rows.append((sweep.loop, sweep.grows, value, name, seconds))
    return rows


def threads() -> None:
    """Wall clock on one thread and on all, of what runs in parallel."""
    strategy = hs.BandedToeplitz.square_root(1024, 16)
    core = hs.BandMF(strategy, hs.BMinSep.of_rate(1024, 16, RATE), 1.0)._blocks("remove")
    made = hs.CorrelatedNoise(strategy, 1 << 20, 1.0, clipping_norm=1.0, seed=1)
    filt = hs.IndividualGDPFilter(10**6, mu=1e3)
    mu, out = np.full(10**6, 1e-3), np.zeros((8, 1 << 20), np.float32)
    sigmas = np.linspace(1.0, 3.0, 1000)
    calls: dict[str, Callable[[], Any]] = {
        "Monte Carlo": lambda: core.delta_sums(1, [1.0], 0, 256),
        "noise": lambda: made.seek(0) or made.rows(8, out),
        "ledger": lambda: filt.step(mu),
        "grid of accounts": lambda: hs.grid_epsilon(sigmas, Q, 1000, DELTA),
    }
    hs.set_threads(0)
    for name, call in calls.items():
        least_seconds = []
        for count in (1, hs.max_threads()):
            hs.set_threads(count)
            found = []
            for _ in range(5):
                start = time.perf_counter()
                call()
                found.append(time.perf_counter() - start)
            least_seconds.append(min(found))
            hs.set_threads(0)
        one, all_of_them = least_seconds
        print(f"{name}: {one:.4f} s on one thread, {one / all_of_them:.2f}x on {hs.max_threads()}")


def plot(rows: list[Row], path: Path) -> None:
    from matplotlib.figure import Figure

    panels = list(dict.fromkeys(row[:2] for row in rows))
    units = {(sweep.loop, sweep.grows): sweep.unit for sweep in SWEEPS}
    figure = Figure(figsize=(14.0, 6.8), layout="constrained")
    for axes, panel in zip(figure.subplots(2, 4).ravel(), panels, strict=False):
        part = [row for row in rows if row[:2] == panel]
        colours: dict[str, str] = {}
        for name in dict.fromkeys(row[3] for row in part):
            x, y = zip(*((row[2], row[4]) for row in part if row[3] == name), strict=True)
            # The two sides of a loop have one colour: "FFT, both bounds" and "NumPy FFT, upper".
            what = name.removeprefix("NumPy").strip().split(" ")[0].strip(",") or next(iter(colours))
            colour = colours.setdefault(what, f"C{len(colours)}")
            axes.loglog(x, y, "--" if "NumPy" in name else "-", color=colour, marker=".", label=name)
        axes.set_ylim(top=8.0 * max(row[4] for row in part))
        axes.set(xlabel=panel[1], ylabel=units[panel], title=panel[0])
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7, loc="upper left")
        ticks = sorted({row[2] for row in part})
        if ticks[-1] < 100 * ticks[0]:
            axes.set_xticks(ticks, [str(tick) for tick in ticks])
            axes.set_xticks([], minor=True)
    save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the least value of each, once")
    parser.add_argument("--out", type=Path, default=IMAGES, help="folder for scaling.csv and scaling.png")
    parser.add_argument("--threads", action="store_true", help="one thread against all, by wall clock")
    options = parser.parse_args()
    if options.threads:
        threads()
        return
    if not ONE_THREAD.items() <= os.environ.items():  # NumPy's matrix products read it when they are loaded
        os.execve(
            sys.executable,
            [sys.executable, "-m", "bench.scaling", *sys.argv[1:]],
            {**os.environ, **ONE_THREAD},
        )
    hs.set_threads(1)
    rows = [row for sweep in SWEEPS for row in measured(sweep, options.quick)]
    write(options.out / "scaling.csv", ("loop", "grows", "value", "side", "seconds"), rows)
    plot(rows, options.out / "scaling.png")


if __name__ == "__main__":
    main()
