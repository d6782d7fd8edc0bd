"""Bounds on means: how wide, how many samples, how often wrong.

    python -m bench.means

Values in [0, 1], as Monte Carlo verification sees them: delta of a sample over its bound.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import hockeystick as hs
import numpy as np
from hockeystick.montecarlo.empirical import Empirical
from hockeystick.montecarlo.evidence import evidence_against

Draw = Callable[[np.random.Generator, int], "np.ndarray[tuple[int, ...], np.dtype[np.float64]]"]

LAWS: dict[str, tuple[float, Draw]] = {
    "0 or 1, mean 0.01": (0.01, lambda rng, n: (rng.random(n) < 0.01) * 1.0),
    "plain sampling: 0, or uniform": (
        0.01,
        lambda rng, n: np.where(rng.random(n) < 0.02, rng.random(n), 0.0),
    ),
    "beta(1, 99)": (0.01, lambda rng, n: rng.beta(1.0, 99.0, n)),
    "beta(10, 990)": (0.01, lambda rng, n: rng.beta(10.0, 990.0, n)),
    "rare: 1 with probability 0.001": (
        0.001 + 0.999 * 1e-4,
        lambda rng, n: np.where(rng.random(n) < 0.001, 1.0, 1e-4),
    ),
}


def widths(samples: int = 100_000, failure: float = 1e-6) -> None:
    print(f"\nTwo-sided bounds from {samples} values, failure probability {failure}: width / mean")
    print(f"{'':32}" + "".join(f"{name:>12}" for name in ("betting", "planned", "Chernoff", "normal")))
    for name, (mean, draw) in LAWS.items():
        pilot = Empirical.of(draw(np.random.default_rng(2), 10_000))
        seen = Empirical.of(draw(np.random.default_rng(1), samples))
        intervals = (
            hs.montecarlo.mean_bounds(seen, failure),
            hs.montecarlo.mean_bounds(seen, failure, pilot=pilot),
            hs.montecarlo.mean_interval(seen.mean, samples, 1.0 - failure),
        )
        row = [(upper - lower) / mean for lower, upper in intervals]
        # What holds in the limit only: 4.89 standard errors on each side.
        row.append(2.0 * 4.892 * math.sqrt(seen.variance / samples) / mean)
        print(f"{name:32}" + "".join(f"{value:12.4f}" for value in row))


def sizes(failure: float = 1e-10) -> None:
    print(f"\nValues that a planned test needs, failure probability {failure}, pilot of 10000")
    print(f"{'':32}{'tested / mean':>14}{'betting':>12}")
    for name, (mean, draw) in LAWS.items():
        pilot = Empirical.of(draw(np.random.default_rng(2), 10_000))
        for ratio in (1.5, 2.0, 4.0):
            try:
                needed = str(hs.montecarlo.plan_test(ratio * mean, failure, pilot=pilot).samples)
            except hs.ParameterError:
                needed = "-"
            print(f"{name:32}{ratio:14}{needed:>12}")


def alarms(repetitions: int = 20_000, samples: int = 300, rate: float = 0.05) -> None:
    print(f"\nFalse alarms in {repetitions} repetitions of {samples} values, stated rate {rate}")
    print(f"{'':32}" + f"{'betting':>12}{'normal':>12}")
    for name, (mean, draw) in LAWS.items():
        rng = np.random.default_rng(3)
        counts = {"betting": 0, "normal": 0}
        for _ in range(repetitions):
            values = draw(rng, samples)
            seen = Empirical.of(values)
            counts["betting"] += evidence_against(seen, mean) >= math.log(1.0 / rate)
            counts["normal"] += values.mean() + 1.645 * values.std(ddof=1) / math.sqrt(samples) < mean
        print(f"{name:32}" + "".join(f"{count / repetitions:12.4f}" for count in counts.values()))


def speed() -> None:
    values = np.random.default_rng(4).beta(1.0, 99.0, 1 << 20)
    best = math.inf
    for _ in range(20):
        began = time.perf_counter()
        hs._core.spread_values(values)
        best = min(best, time.perf_counter() - began)
    print(f"\nspreading a value: {best / len(values) * 1e9:.2f} ns")
    seen = Empirical.of(values)
    began = time.perf_counter()
    hs.montecarlo.mean_bounds(seen, 1e-9)
    print(f"two-sided bounds of a law: {(time.perf_counter() - began) * 1e3:.0f} ms")


if __name__ == "__main__":
    widths()
    sizes()
    alarms()
    speed()
