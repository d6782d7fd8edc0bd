"""Time of one certified epsilon against the number of steps, 1 to 1e9: it should be nearly flat.

    python -m bench.steps

A step is a Poisson-sampled Gaussian, q = .01, whose noise multiplier grows like the square root of the number
of steps beyond 1000, so that every row is a sensible training run; delta = 1e-5. Least processor time of 51 first calls, one thread;
the last column: of direction "add" alone, which both directions hardly ever ask.
"""

from __future__ import annotations

import hockeystick as hs

from bench.timing import least


def main() -> None:
    hs.set_threads(1)
    print(f"{'steps':>11} {'sigma':>8} {'epsilon':>18} {'gap':>8} {'CPU us':>8}  {'engine':<12} add us")
    for steps in (1, 2, 3, 10, 30, 100, 300, *(10**exponent for exponent in range(3, 10))):
        sigma = max(1.0, (steps / 1000) ** 0.5)
        process = hs.PoissonSampled(hs.Gaussian(sigma), 0.01) * steps
        seconds = least(lambda process=process: hs.account(process).epsilon_bounds(delta=1e-5), 51)
        add = least(lambda process=process: hs.account(process, "add").epsilon_bounds(delta=1e-5), 51, 1.0)
        profile = hs.account(process)
        lower, upper = profile.epsilon_bounds(delta=1e-5)
        answer = profile.report(delta=1e-5, risks=False).epsilon
        gap = upper / lower - 1 if lower > 0 else 0.0
        engine = answer.engine if answer else ""
        print(
            f"{steps:>11} {sigma:>8.1f} {upper:>18.13f} {gap:>8.0e} {1e6 * seconds:>8.0f}  {engine:<12} {1e6 * add:>6.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
