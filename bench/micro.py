"""Each hot loop of the core beside the same computation in NumPy/SciPy (bench/baselines).

    python -m bench.micro                     # one table
    python -m bench.micro --step 1e-5         # a finer lattice

The workload is W1's step (Poisson-sampled Gaussian, sigma=1, q=.01), composed 1000 times.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import hockeystick as hs
import numpy as np
from hockeystick import _core
from scipy.fft import irfft, next_fast_len, rfft

from bench.baselines import accountant, compose, discretise, pairs, profile

SIGMA, Q, COUNT, DELTA = 1.0, 0.01, 1000, 1e-5


def seconds(call: Callable[[], Any], repeats: int) -> float:
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return median(times)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--step", type=float, default=1e-4, help="distance of lattice points")
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    step = arguments.step

    base = pairs.Sampled(pairs.Gaussian(1 / SIGMA), Q)
    core = _core.sampled_pair(_core.gaussian_pair(1 / SIGMA), Q, "remove")
    first, last = discretise.window(base, step)
    x = np.arange(first, last + 1) * step
    lattice = discretise.upper(base, step, first, last)
    tilt = compose.saddle([(lattice, COUNT)], DELTA)
    composed = compose.compose([(lattice, COUNT)], tilt)
    size, start = composed.masses.size, round(composed.losses[0] / step)
    transform = np.random.default_rng(1).random(size)
    points = range(first, last + 1)
    sparse = _core.choose_points(core, step, tilt)  # what the engine would take
    tilted = _core.discretise(core, points, step, tilt, "upper")
    ours = _core.compose([(tilted, COUNT)], start, size)

    # name, points, the core's call, the baseline's call; None where the core has no such entry.
    rows: list[tuple[str, int, Callable[[], Any] | None, Callable[[], Any]]] = [
        ("hockey-stick curve", x.size, lambda: core.above(x), lambda: base.above(x)),
        (
            "discretise, upper",
            x.size,
            lambda: _core.discretise(core, points, step, tilt, "upper"),
            lambda: discretise.upper(base, step, first, last),
        ),
        (
            "discretise, lower",
            x.size,
            lambda: _core.discretise(core, points, step, tilt, "lower"),
            lambda: discretise.lower(base, step, first, last),
        ),
        (
            "discretise, upper, sparse",
            len(sparse),
            lambda: _core.discretise(core, sparse, step, tilt, "upper"),
            lambda: discretise.upper(base, step, first, last),
        ),
        (
            "transform, there and back",
            next_fast_len(size, real=True),
            (lambda: _core.transform(transform)) if hasattr(_core, "transform") else None,
            lambda: irfft(rfft(transform), size),
        ),
        (
            "composition",
            size,
            lambda: _core.compose([(tilted, COUNT)], start, size),
            lambda: compose.compose([(lattice, COUNT)], tilt),
        ),
        (
            "profile: delta(eps)",
            size,
            (lambda: ours.delta(1.0)) if hasattr(ours, "delta") else None,
            lambda: profile.delta(composed, 1.0),
        ),
        (
            "profile: eps(delta)",
            size,
            (lambda: ours.epsilon(DELTA)) if hasattr(ours, "epsilon") else None,
            lambda: profile.epsilon(composed, DELTA),
        ),
    ]
    print(f"{'loop':<28}{'points':>9}{'core ms':>11}{'NumPy ms':>11}{'ratio':>8}")
    for name, nodes, fast, slow in rows:
        there = seconds(slow, arguments.repeats)
        here = seconds(fast, arguments.repeats) if fast else None
        cells = (
            f"{1e3 * here:>11.3f}{1e3 * there:>11.3f}{there / here:>7.1f}x"
            if here
            else f"{'-':>11}{1e3 * there:>11.3f}"
        )
        print(f"{name:<28}{nodes:>9}{cells}")

    # From the description to the answer, at equal quality: both sides to a relative 1e-4.
    process = hs.PoissonSampled(hs.Gaussian(SIGMA), Q) * COUNT
    here = seconds(
        lambda: hs.account(process, "remove", accuracy=1e-4).epsilon_bounds(delta=DELTA), arguments.repeats
    )
    there = seconds(
        lambda: [
            accountant.epsilon([(base, COUNT)], DELTA, 2.5e-4, method)
            for method in (discretise.lower, discretise.upper)
        ],
        arguments.repeats,
    )
    print(f"{'epsilon, both bounds':<28}{'':>9}{1e3 * here:>11.3f}{1e3 * there:>11.3f}{there / here:>7.1f}x")


if __name__ == "__main__":
    main()
