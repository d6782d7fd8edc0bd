"""W9, the noise multiplier for a budget: hockeystick beside dp_accounting, in one run.

    python -m bench.calibration

The smallest noise multiplier with epsilon <= 1 at delta = 1e-6 for 10,000 steps with sampling probability
.005. hockeystick's is certified on both sides to one part in a million; dp_accounting searches to the
same tolerance with its default discretisation. Median processor time of first calls, one thread each.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from hockeystick import set_threads

from bench.timing import middle

EPSILON, DELTA, Q, STEPS = 1.0, 1e-6, 0.005, 10_000


def hockeystick() -> float:
    import hockeystick as hs

    found = hs.calibrate_noise_multiplier(
        lambda sigma: hs.PoissonSampled(hs.Gaussian(sigma), Q) * STEPS, epsilon=EPSILON, delta=DELTA
    )
    if not found.certificate.tight:
        raise RuntimeError("the calibration is not certified on both sides")
    return float(found)


def dp_accounting() -> float:
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    def event(sigma: float) -> dp_accounting.DpEvent:
        step = dp_accounting.PoissonSampledDpEvent(Q, dp_accounting.GaussianDpEvent(sigma))
        return dp_accounting.SelfComposedDpEvent(step, STEPS)

    bracket = dp_accounting.LowerEndpointAndGuess(0.5, 2.0)
    return dp_accounting.calibrate_dp_mechanism(PLDAccountant, event, EPSILON, DELTA, bracket, tol=1e-6)


def measure(name: str, call: Callable[[], float], repeats: int) -> float:
    seconds = middle(call, repeats)
    print(f"{name:<14} sigma = {call():.8f}  {1e3 * seconds:9.2f} ms", flush=True)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    set_threads(1)
    ours = measure("hockeystick", hockeystick, 10 * repeats)
    try:
        theirs = measure("dp_accounting", dp_accounting, repeats)
    except ImportError:
        print("dp_accounting is not installed")
        return
    print(f"hockeystick is {theirs / ours:.0f} times as fast")


if __name__ == "__main__":
    main()
