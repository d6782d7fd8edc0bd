"""Ten thousand configurations in one call: seconds, cells per second, engines, and dp_accounting beside it.

    python -m bench.grid                              # all three grids
    python -m bench.grid epochs --cells 20 --threads 1

Each grid is 100 noise multipliers in [0.5, 5] by 100 sampling probabilities, at delta = 1e-5. dp_accounting
(if installed, at its defaults) answers a few of the cells, taken evenly; the ratio compares its time for
them with that of one grid call for the same ones.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

import hockeystick as hs
import numpy as np

from bench.workloads import Workload

DELTA = 1e-5
NOISE = np.linspace(0.5, 5.0, 100)[:, None]
WIDE, USUAL = np.geomspace(1e-4, 1e-1, 100), np.geomspace(1e-3, 1e-1, 100)
GRIDS = {
    "epochs": ("60 epochs: steps = 60/q, q in [1e-4, .1]", WIDE, np.ceil(60 / WIDE).astype(int)),
    "long": ("10000 steps, q in [1e-3, .1]", USUAL, np.array(10_000)),
    # Few steps of small probabilities, where the inversion is slowest and the FFT often needed.
    "short": ("1000 steps, q in [1e-4, .1]", WIDE, np.array(1000)),
}


def dp_accounting_seconds(cells: list[tuple[float, float, int]]) -> float | None:
    try:
        from bench.peers import dp_accounting

        dp_accounting(Workload(1e-3, ((3.0, 0.5, 2),)))  # imports and first-use costs
    except ImportError:
        return None
    start = time.perf_counter()
    for cell in cells:
        dp_accounting(Workload(DELTA, (cell,)))
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("grids", nargs="*", choices=[[], *GRIDS])
    parser.add_argument("--accuracy", type=float, default=1e-3)
    parser.add_argument("--cells", type=int, default=10, help="for dp_accounting")
    parser.add_argument("--threads", type=int, default=0)
    arguments = parser.parse_args()
    hs.set_threads(arguments.threads)
    for name in arguments.grids or GRIDS:
        title, q, steps = GRIDS[name]
        start, busy = time.perf_counter(), time.process_time()
        grid = hs.grid_epsilon(NOISE, q, steps, DELTA, accuracy=arguments.accuracy)
        seconds, busy = time.perf_counter() - start, time.process_time() - busy
        engines = ", ".join(f"{how} {count}" for how, count in Counter(grid.engine.flat).most_common())
        gap = float((grid.upper / np.maximum(grid.lower, 1e-300) - 1).max())
        print(f"{name}: {title}; {hs.max_threads()} threads")
        print(
            f"  {grid.upper.size} cells in {seconds:.2f} s, {grid.upper.size / seconds:,.0f} cells/s; {busy:.2f} s of processor time"
        )
        print(f"  engines: {engines}; widest gap upper/lower - 1: {gap:.1e}", flush=True)

        few = np.linspace(0, grid.upper.size - 1, arguments.cells).astype(int)
        noise, probability, counts = (column.ravel()[few] for column in list(grid.inputs.values())[:3])
        start = time.perf_counter()
        hs.grid_epsilon(noise, probability, counts, DELTA, accuracy=arguments.accuracy)
        here = time.perf_counter() - start
        there = dp_accounting_seconds(
            list(zip(noise.tolist(), probability.tolist(), counts.tolist(), strict=True))
        )
        if there is None:
            print("  dp_accounting: not installed")
        else:
            print(
                f"  dp_accounting: {there:.2f} s for {len(few)} of them, here {here:.4f} s: {there / here:.0f}x"
            )


if __name__ == "__main__":
    main()
