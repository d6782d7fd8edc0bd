"""What is read off a whole curve: 300 deltas, 30 trade-off values, all risks and mu, beside the same deltas one by one.

    python -m bench.derived

Releases of which one point takes long. Processor time of first calls, one thread; "one by one" asks every tenth of the 300 deltas by
itself, and counts ten times that. The widest relative gap is that of the curve's certified bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from time import process_time

import hockeystick as hs
import numpy as np

POINTS, EVERY = 300, 10
RELEASES: dict[str, tuple[hs.mechanisms.Process, str]] = {
    "Poisson, sigma 1, q .01, 1000 steps": (hs.PoissonSampled(hs.Gaussian(1.0), 0.01) * 1000, "remove"),
    "Poisson, sigma .5, q 1e-4, 10 steps": (hs.PoissonSampled(hs.Gaussian(0.5), 1e-4) * 10, "remove"),
    "with replacement, sigma 1, 256 of 60000, 1000 steps": (
        hs.WithReplacement(hs.Gaussian(1.0), 256, 60_000) * 1000,
        "replace_one",
    ),
    "sampled discrete Gaussian, sigma 1.3, q .05, 300 steps": (
        hs.PoissonSampled(hs.DiscreteGaussian(1.3), 0.05) * 300,
        "remove",
    ),
    "truncated batches, sigma 5.3, 20 of 6388, at most 30, 4 steps": (
        hs.TruncatedPoissonSampled(5.317, 6388, 0.003131, 30) * 4,
        "zero_out",
    ),
    "truncated batches, sigma .78, 2 of 17720, at most 4, 2 steps": (
        hs.TruncatedPoissonSampled(0.7769, 17720, 0.0001129, 4) * 2,
        "add_or_remove",
    ),
    "random allocation, sigma 1, 1 of 100, 10 epochs": (hs.RandomAllocation(1.0, 100) * 10, "remove"),
    "random allocation, sigma .7, 1 of 1000": (hs.RandomAllocation(0.7, 1000) * 1, "remove"),
}


def timed(ask: Callable[[], object]) -> float:
    begin = process_time()
    ask()
    return process_time() - begin


def measure(process: hs.mechanisms.Process, adjacency: str) -> None:
    def profile() -> hs.PrivacyProfile:
        return hs.account(process, adjacency)

    points = np.linspace(0.0, 2.0 * profile().epsilon(1e-6), POINTS)
    lower, upper = profile().delta_curve(points)
    gap = float(np.max(upper / np.maximum(lower, 5e-324) - 1.0))
    curve = timed(lambda: profile().delta_curve(points))
    alone = profile()
    single = EVERY * timed(lambda: [alone.delta_bounds(at) for at in points[::EVERY].tolist()])
    tradeoff = timed(lambda: profile().tradeoff(np.linspace(0.01, 0.99, 30)))
    risks, mu = timed(lambda: profile().risk.table()), timed(lambda: profile().gdp())
    print(f"  curve {curve:.2f} s, one by one {single:.2f} s, {single / curve:.0f}x, widest gap {gap:.0e}")
    print(f"  trade-off {tradeoff:.2f} s, risks {risks:.2f} s, gdp {mu:.2f} s", flush=True)


def main() -> None:
    hs.set_threads(1)
    for name, (process, adjacency) in RELEASES.items():
        print(name)
        measure(process, adjacency)


if __name__ == "__main__":
    main()
