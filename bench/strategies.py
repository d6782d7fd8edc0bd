"""Strategies for other workloads than prefix sums, under a sampling scheme, and with fast noise: like for like.

python -m bench.strategies                # all of it
python -m bench.strategies workloads      # momentum, schedules, decay: optimised for prefix sums against for the workload
python -m bench.strategies scheme         # optimised under cyclic Poisson and b-min-sep sampling, noise as it is proven; ten minutes
python -m bench.strategies buffered       # buffered and inverse-banded matrices against banded ones
python -m bench.strategies noise          # rows of noise with buffers, with bands, and with buffers in NumPy
python -m bench.strategies order          # fixed order against cyclic Poisson sampling, noise as it is certified
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

import hockeystick as hs
import numpy as np
from hockeystick.matrix import BandedToeplitz, BufferedToeplitz, FixedOrder, InverseBanded, Strategy, Workload
from hockeystick.montecarlo import optimize_strategy

STEPS = 1024


def workloads() -> None:
    """sensitivity^2 * mean squared error of the iterates, one participation."""
    cosine = tuple((0.5 * (1.0 + np.cos(np.pi * np.arange(STEPS) / STEPS))).tolist())
    cases = {
        "prefix sums": Workload(),
        "momentum .9": Workload(momentum=0.9),
        "momentum .9, weight decay .001": Workload(momentum=0.9, weight_decay=0.001),
        "cosine schedule": Workload(cosine),
        "cosine schedule, momentum .9": Workload(cosine, momentum=0.9),
    }
    for name, workload in cases.items():
        for bands in (8, 32):
            strategies = {
                "DP-SGD": hs.Identity(STEPS),
                "square root of A": BandedToeplitz.square_root(STEPS, bands, workload)
                if workload.is_toeplitz
                else None,
                "optimised for prefix sums": BandedToeplitz.optimized(STEPS, bands),
                "optimised for the workload": BandedToeplitz.optimized(STEPS, bands, workload=workload),
            }
            cells = [
                "" if c is None else f"{c.sensitivity() ** 2 * c.mean_squared_error(1.0, workload):.5g}"
                for c in strategies.values()
            ]
            print(f"| {name} | {bands} | {' | '.join(cells)} |", flush=True)


def scheme() -> None:
    """noise_multiplier^2 * mean squared error of prefix sums, every noise multiplier certified, columns of norm 1."""
    for bands, epoch, epsilon, delta in (
        (8, 128, 1.0, 1e-3),
        (32, 512, 4.0, 1e-3),
        (32, 128, 8.0, 1e-5),
    ):
        root = BandedToeplitz.square_root(STEPS, bands)
        unit = BandedToeplitz(tuple((np.array(root.coefficients) / root.sensitivity()).tolist()), STEPS)
        for sampling in (
            hs.CyclicPoisson.of_rate(STEPS, bands, 1 / epoch),
            hs.BMinSep.of_rate(STEPS, bands, 1 / epoch),
        ):
            strategies = {
                "square root": unit,
                "optimised": BandedToeplitz.optimized(STEPS, bands),
                "optimised under the scheme": optimize_strategy(sampling, epsilon, delta),
            }
            cells = []
            for strategy in strategies.values():
                found = hs.calibrate_bandmf(
                    strategy, sampling, epsilon, delta, seed=1, fallback="unamplified"
                )
                cells.append(f"{found.mean_squared_error:.4g} ({found.noise_multiplier:.4g})")
            name = type(sampling).__name__
            print(
                f"| {bands} | {epoch} | {epsilon:g}, {delta:g} | {name} | {' | '.join(cells)} |", flush=True
            )


def buffered() -> None:
    """sensitivity^2 * mean squared error of full matrices, beside the best banded ones."""
    for steps, passes in ((1024, 1), (2048, 4), (2048, 16)):
        apart = steps // passes

        def loss(strategy: Strategy, apart: int = apart) -> float:
            return strategy.sensitivity(apart, None) ** 2 * strategy.mean_squared_error()

        cells = [loss(hs.Identity(steps))]
        cells += [loss(BufferedToeplitz.optimized(steps, buffers, apart, None)) for buffers in (1, 2, 3, 4)]
        cells.append(loss(BandedToeplitz.optimized(steps, apart, apart, None)))
        inverses = [loss(InverseBanded.square_root(steps, bands)) for bands in (4, 32)]
        numbers = [*(f"{x:.4g}" for x in cells), str(apart), *(f"{x:.4g}" for x in inverses)]
        print(f"| {steps} | {passes} | {' | '.join(numbers)} |", flush=True)


def order() -> None:
    """Certified noise_multiplier^2 * mean squared error of batches in a fixed order, and of cyclic Poisson sampling at the same rate."""
    steps, apart, delta = 2048, 512, 1e-6
    fixed = FixedOrder(steps, apart)
    full = BufferedToeplitz.optimized(steps, 3, apart, None)
    banded = BandedToeplitz.optimized(steps, apart, apart, None)
    some = {bands: BandedToeplitz.optimized(steps, bands) for bands in (4, 8, 16, 32, 64, 128, 256, 512)}
    for epsilon in (0.5, 2.0, 8.0):
        cells = [
            f"{hs.calibrate_bandmf(c, fixed, epsilon, delta).mean_squared_error:.4g}" for c in (full, banded)
        ]
        errors = {
            bands: hs.calibrate_bandmf(
                c, hs.CyclicPoisson.of_rate(steps, bands, 1 / apart), epsilon, delta
            ).mean_squared_error
            for bands, c in some.items()
        }
        best = min(errors, key=errors.__getitem__)
        print(f"| {epsilon:g} | {' | '.join(cells)} | {errors[best]:.4g} ({best} bands) |", flush=True)


class Plain:
    """Buffers in NumPy: draw a row, subtract the weighted buffers, let them decay and take the row up."""

    def __init__(self, strategy: BufferedToeplitz, dimension: int) -> None:
        self.weights, self.decays = np.array(strategy.buffers).T[:, :, None]
        self.kept, self.generator = np.zeros((len(self.weights), dimension)), np.random.default_rng(1)

    def next(self) -> None:
        row = self.generator.standard_normal(self.kept.shape[1]) - (self.weights * self.kept).sum(axis=0)
        self.kept *= self.decays
        self.kept += row


def noise(dimension: int = 2**18, rows: int = 16) -> None:
    """Rows of noise, one at a time, one thread: processor time for each coordinate, and bytes kept."""
    hs.set_threads(1)
    buffers = BufferedToeplitz.optimized(1024, 3)
    calls: dict[str, Callable[[], object]] = {"3 buffers in NumPy": Plain(buffers, dimension).next}
    kept = {"3 buffers in NumPy": 24}
    strategies: dict[str, Strategy] = {"3 buffers": buffers}
    strategies |= {f"{bands} bands": BandedToeplitz.square_root(1024, bands) for bands in (4, 32, 256)}
    for name, strategy in strategies.items():
        made = hs.CorrelatedNoise(strategy, dimension, 1.0, clipping_norm=1.0, seed=1, dtype="float64")
        made.seek(min(300, strategy.bands))
        calls[name], kept[name] = partial(made.next, np.empty(dimension)), made.state_bytes // dimension
    for name, call in calls.items():
        start = time.process_time()
        for _ in range(rows):
            call()
        each = (time.process_time() - start) / rows / dimension * 1e9
        print(f"| {name} | {each:.1f} | {kept[name]} |", flush=True)


PARTS = {"workloads": workloads, "scheme": scheme, "buffered": buffered, "order": order, "noise": noise}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
