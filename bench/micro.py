"""Each hot loop of the core beside the same computation in NumPy/SciPy (bench/baselines).

    python -m bench.micro                     # one table
    python -m bench.micro --step 1e-5         # a finer lattice

The workload is W1's step (Poisson-sampled Gaussian, sigma=1, q=.01), composed 1000 times. Median processor time
of first calls, one thread on both sides.

A curve on *every* point is slower here than in NumPy, and no engine asks for it: each value of the core comes with a
stated error, and the engine takes a tenth of the points.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import hockeystick as hs
import numpy as np
from hockeystick import _core

from bench.baselines import accountant, discretise, pairs
from bench.timing import middle

SIGMA, Q, COUNT, DELTA = 1.0, 0.01, 1000, 1e-5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--step", type=float, default=1e-4, help="distance of lattice points")
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    step = arguments.step
    hs.set_threads(1)

    base = pairs.Sampled(pairs.Gaussian(1 / SIGMA), Q)
    core = _core.sampled_pair(_core.gaussian_pair(1 / SIGMA), Q, "remove")
    first, last = discretise.window(base, step)
    x = np.arange(first, last + 1) * step
    # name, points, the core's call, the baseline's call.
    rows: list[tuple[str, int, Callable[[], Any], Callable[[], Any]]] = [
        ("hockey-stick curve", x.size, lambda: core.above(x), lambda: base.above(x)),
    ]
    # From the description to both bounds, each to a relative 1e-4: the same method, then the one that is used.
    process = hs.PoissonSampled(hs.Gaussian(SIGMA), Q) * COUNT

    def both_bounds() -> list[float]:
        methods = (discretise.lower, discretise.upper)
        return [accountant.epsilon([(base, COUNT)], DELTA, 2.5e-4, method) for method in methods]

    def account(engine: str) -> Callable[[], Any]:
        return lambda: hs.account(process, "remove", 1e-4, engine=engine).epsilon_bounds(DELTA)

    rows.append(("epsilon by FFT, both bounds", 0, account("fft"), both_bounds))
    rows.append(("the same by inversion", 0, account("auto"), both_bounds))
    print(f"{'loop':<28}{'points':>9}{'core ms':>11}{'NumPy ms':>11}{'ratio':>8}")
    for name, nodes, fast, slow in rows:
        here, there = middle(fast, arguments.repeats), middle(slow, arguments.repeats)
        print(
            f"{name:<28}{nodes or '':>9}{1e3 * here:>11.3f}{1e3 * there:>11.3f}{there / here:>7.1f}x",
            flush=True,
        )


if __name__ == "__main__":
    main()
