"""Strategies for other workloads than prefix sums, under a sampling scheme, and with fast noise: like for like.

python -m bench.strategies                # all of it
python -m bench.strategies workloads      # momentum, schedules, decay: optimised for prefix sums against for the workload
"""

from __future__ import annotations

import sys

import hockeystick as hs
import numpy as np
from hockeystick.matrix import BandedToeplitz, Workload

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


PARTS = {"workloads": workloads}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
