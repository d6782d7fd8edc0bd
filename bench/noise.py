"""Throughput of correlated noise: rows of C^{-1} Z per coordinate, against NumPy in the same run.

    python -m bench.noise                       # 2^20 coordinates, one thread
    python -m bench.noise --threads 0 --dimension 10000000
    HOCKEYSTICK_LANES=avx2 python -m bench.noise    # a narrower instruction set

Per row: nanoseconds per coordinate (the minimum of several runs), the ratio to NumPy's standard_normal of the
same dtype, and to the plain NumPy way: draw the row, subtract the bands - 1 kept rows by a matrix product, keep the
result. GB/s is the memory that has to move, a row's share: kept rows read (once a call), one written, the output written. "rows" is how many are asked for per call.
The last lines check the rows against a dense solve.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import hockeystick as hs
import numpy as np


def best(call: Callable[[], Any], repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


class Plain:
    """The same recurrence in NumPy: kept rows as a ring, one matrix-vector product a step."""

    def __init__(self, strategy: hs.BandedToeplitz, dimension: int, dtype: np.dtype[Any]) -> None:
        self.coefficients = np.array(strategy.coefficients, dtype=dtype)
        self.kept = np.zeros((strategy.bands - 1, dimension), dtype=dtype)
        self.generator = np.random.default_rng(1)
        self.dtype, self.dimension, self.step = dtype, dimension, 0

    def next(self) -> np.ndarray:
        row = self.generator.standard_normal(self.dimension, dtype=self.dtype.type)
        slots = len(self.kept)
        if slots:
            # Slot s holds the row of lag (step - 1 - s) mod slots + 1.
            lags = (self.step - 1 - np.arange(slots)) % slots + 1
            row -= self.coefficients[lags] @ self.kept
            row /= self.coefficients[0]
            self.kept[self.step % slots] = row
        self.step += 1
        return row


def eight(noise: hs.CorrelatedNoise, rows: int, out: np.ndarray) -> None:
    for _ in range(8 // rows):
        noise.rows(rows, out)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dimension", type=int, default=2**20)
    parser.add_argument("--bands", type=int, nargs="*", default=[1, 4, 16, 32])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    hs.set_threads(arguments.threads)
    dimension, steps = arguments.dimension, 4096
    print(f"{dimension} coordinates, {hs.max_threads()} threads")
    generator = np.random.default_rng(1)
    normal: dict[str, float] = {}
    for name in ("float32", "float64"):
        out = np.zeros(dimension, dtype=name)
        normal[name] = best(
            partial(generator.standard_normal, out=out, dtype=out.dtype.type), arguments.repeats
        )
        print(f"NumPy standard_normal, {name}: {normal[name] / dimension * 1e9:.2f} ns per number")
    header = (
        f"{'bands':>5} {'dtype':>8} {'state':>8} {'rows':>4} {'ns':>7} {'GB/s':>6} {'normal':>7} {'NumPy':>7}"
    )
    print(header + "   (columns normal, NumPy: how many times faster than these)")
    for bands in arguments.bands:
        strategy = hs.BandedToeplitz.square_root(steps, bands)
        for dtype, state in (("float32", "float32"), ("float32", "float64"), ("float64", "float64")):
            plain = Plain(strategy, dimension, np.dtype(dtype))
            for _ in range(bands):
                plain.next()
            reference = best(plain.next, arguments.repeats)
            for rows in (1, 8):
                noise = hs.CorrelatedNoise(
                    strategy, dimension, 1.0, clipping_norm=1.0, seed=1, dtype=dtype, state_dtype=state
                )
                noise.seek(bands)
                # Eight rows either way: single rows are not all equally expensive.
                out = np.zeros((rows, dimension), dtype=dtype)
                seconds = best(partial(eight, noise, rows, out), arguments.repeats) / 8
                moved = np.dtype(dtype).itemsize
                if bands > 1:
                    moved += ((bands - 1) / rows + 1) * np.dtype(state).itemsize
                print(
                    f"{bands:>5} {dtype:>8} {state:>8} {rows:>4} {seconds / dimension * 1e9:>7.2f} "
                    f"{moved * dimension / seconds / 1e9:>6.1f} {normal[dtype] / seconds:>7.2f} {reference / seconds:>7.2f}"
                )
    strategy = hs.BandedToeplitz.square_root(512, 32)
    z = hs.CorrelatedNoise(hs.Identity(512), 4096, 1.0, clipping_norm=1.0, seed=1, dtype="float64").rows(512)
    solved = np.linalg.solve(strategy.matrix(), z)
    for state in ("float64", "float32"):
        made = hs.CorrelatedNoise(
            strategy, 4096, 1.0, clipping_norm=1.0, seed=1, dtype="float64", state_dtype=state
        ).rows(512)
        error = np.abs(made - solved).max() / np.abs(solved).max()
        print(
            f"512 steps, 32 bands, {state} state: largest error {error:.1e} of the largest entry, dense solve"
        )


if __name__ == "__main__":
    main()
