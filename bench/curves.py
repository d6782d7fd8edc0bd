"""delta at 1000 values of epsilon: one pass, one question at a time, and dp_accounting, in one run.

    python -m bench.curves

From the description on: every tool builds its own first. The widest relative gap is that of the certified
bounds; ratios are of the median processor time of first calls, one thread each.
"""

from __future__ import annotations

from functools import partial

import hockeystick as hs
import numpy as np

from bench.timing import middle
from bench.workloads import WORKLOADS, Workload

POINTS = 1000


def process(work: Workload) -> hs.mechanisms.Process:
    return sum(hs.PoissonSampled(hs.Gaussian(sigma), q) * count for sigma, q, count in work.steps)


def one_pass(work: Workload, epsilon: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return hs.account(process(work)).delta_curve(epsilon)


def point_by_point(work: Workload, epsilon: np.ndarray) -> list[hs.Bounds]:
    profile = hs.account(process(work))
    return [profile.delta_bounds(value) for value in epsilon.tolist()]


def dp_accounting_curve(work: Workload, epsilon: np.ndarray) -> np.ndarray:
    from dp_accounting.pld import privacy_loss_distribution as pld

    whole = pld.identity()
    for sigma, q, count in work.steps:
        whole = whole.compose(pld.from_gaussian_mechanism(sigma, sampling_prob=q).self_compose(count))
    return np.asarray(whole.get_delta_for_epsilon(epsilon))


def main() -> None:
    hs.set_threads(1)
    for name in ("W1", "W2", "W3", "W5"):
        work = WORKLOADS[name]
        epsilon = np.linspace(0.0, hs.account(process(work)).epsilon(delta=1e-12), POINTS)
        lower, upper = one_pass(work, epsilon)
        whole = middle(partial(one_pass, work, epsilon), 9)
        single = middle(partial(point_by_point, work, epsilon), 3)
        print(f"{name}: {POINTS} points in {1e3 * whole:.2f} ms, widest gap {(upper / lower - 1).max():.0e}")
        print(f"  point by point: {1e3 * single:.1f} ms, {single / whole:.0f}x")
        try:
            theirs = middle(partial(dp_accounting_curve, work, epsilon), 1)
            print(f"  dp_accounting: {1e3 * theirs:.0f} ms, {theirs / whole:.0f}x", flush=True)
        except ImportError:
            print("  dp_accounting: not installed")


if __name__ == "__main__":
    main()
