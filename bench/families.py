"""Noise with atoms: the inversion beside this library's FFT engine and dp_accounting, in one run.

    python -m bench.families [--repeats 30]

For each workload at δ = 1e-6: the certified interval and its width, the least time of a call that builds the
description anew (processor time of first calls, one thread), the same with `engine="fft"`, and dp_accounting at its defaults where it knows the mechanism.
Before that, how many references of tests/references/families.json each engine answers, and how exactly.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path

import hockeystick as hs

from bench.timing import least

DELTA = 1e-6
REFERENCES = Path(__file__).parent.parent / "tests" / "references" / "families.json"

# name: description, adjacency, dp_accounting's event
WORKLOADS: dict[str, tuple[Callable[[], hs.mechanisms.Process], str, Callable[..., object] | None]] = {
    "W7: Laplace, scale 20, T=500": (
        lambda: hs.Laplace(20.0) * 500,
        "add_or_remove",
        lambda d: d.SelfComposedDpEvent(d.LaplaceDpEvent(20.0), 500),
    ),
    "Laplace, scale 20, T=5000": (
        lambda: hs.Laplace(20.0) * 5000,
        "add_or_remove",
        lambda d: d.SelfComposedDpEvent(d.LaplaceDpEvent(20.0), 5000),
    ),
    "sampled Laplace, scale 1, q=.01, T=1000": (
        lambda: hs.PoissonSampled(hs.Laplace(1.0), 0.01) * 1000,
        "add_or_remove",
        lambda d: d.SelfComposedDpEvent(d.PoissonSampledDpEvent(0.01, d.LaplaceDpEvent(1.0)), 1000),
    ),
    "sampled Laplace, replace_one": (
        lambda: hs.PoissonSampled(hs.Laplace(1.0), 0.01) * 1000,
        "replace_one",
        None,
    ),
    "discrete Laplace, scale 20, T=500": (
        lambda: hs.DiscreteLaplace(20.0) * 500,
        "add_or_remove",
        None,
    ),
    "discrete Gaussian, sigma 20, T=500": (
        lambda: hs.DiscreteGaussian(20.0) * 500,
        "add_or_remove",
        None,
    ),
    "randomized response, eps .1, T=1000": (
        lambda: hs.RandomizedResponse(0.1) * 1000,
        "replace_one",
        None,
    ),
    "sampled discrete Gaussian, sigma 1.337, q=.09686, T=1186": (
        lambda: hs.PoissonSampled(hs.DiscreteGaussian(1.337), 0.09686) * 1186,
        "add_or_remove",
        None,
    ),
    "sampled discrete Gaussian, sigma .5671, shift 2, q=.00001084, T=440": (
        lambda: hs.PoissonSampled(hs.DiscreteGaussian(0.5671, 2), 1.084e-5) * 440,
        "remove",
        None,
    ),
    "sampled pair of four outcomes, q=.0002, T=979": (
        lambda: (
            hs.PoissonSampled(hs.FinitePair([0.3, 0.3, 0.2, 0.2], [0.001, 0.299, 0.35, 0.35]), 0.0002) * 979
        ),
        "remove",
        None,
    ),
    "without replacement, Gaussian 2, 50 of 1000, T=1000": (
        lambda: hs.WithoutReplacement(hs.Gaussian(2.0), 50, 1000) * 1000,
        "replace_one",
        None,
    ),
    "with replacement, Gaussian 4, 50 of 1000, T=1000": (
        lambda: hs.WithReplacement(hs.Gaussian(4.0), 50, 1000) * 1000,
        "replace_one",
        None,
    ),
    "Laplace x 100 + Gaussian x 10 + responses x 20": (
        lambda: hs.Laplace(10.0) * 100 + hs.Gaussian(5.0) * 10 + hs.RandomizedResponse(0.2) * 20,
        "add_or_remove",
        None,
    ),
}


def epsilon(build: Callable[[], hs.mechanisms.Process], adjacency: str, **options: str) -> float:
    return hs.account(build(), adjacency=adjacency, **options).epsilon(DELTA)


def references() -> None:
    # Those of truncated batches are of pairs, not of processes: tests/accounting/test_reference_families.py.
    entries = [
        entry
        for entry in json.loads(REFERENCES.read_text())["entries"]
        if entry["steps"][0]["kind"] != "truncated"
    ]
    answered, missed, exact = Counter[str](), Counter[str](), Counter[str]()
    worst = Decimal(0)
    for entry in entries:
        answer = hs.account(process(entry["steps"]), adjacency=entry["adjacency"]).report(
            epsilon=float(entry["epsilon"]), risks=False
        )
        assert answer.delta is not None  # it was asked for
        lower, upper, truth = (
            Decimal(answer.delta.lower),
            Decimal(answer.delta.upper),
            Decimal(entry["delta"]),
        )
        error = abs((lower + upper) / 2 / truth - 1)
        answered[answer.delta.engine] += 1
        missed[answer.delta.engine] += not lower <= truth <= upper
        exact[answer.delta.engine] += error < Decimal("1e-10")
        worst = max(worst, error)
    for engine, count in answered.items():
        print(f"{engine}: {count} answered, {missed[engine]} missed, {exact[engine]} within 1e-10")
    print(f"largest relative error of delta {float(worst):.1e}\n")


def process(steps: list[dict]) -> hs.mechanisms.Process:
    """The process that an entry of the references describes."""
    total = hs.mechanisms.Process()
    for step in steps:
        mechanism = {
            "laplace": lambda s: hs.Laplace(float(s["scale"])),
            "gaussian": lambda s: hs.Gaussian(float(s["sigma"])),
            "randomized_response": lambda s: hs.RandomizedResponse(float(s["epsilon"]), s["categories"]),
            "discrete_laplace": lambda s: hs.DiscreteLaplace(float(s["scale"]), s.get("sensitivity", 1)),
            "discrete_gaussian": lambda s: hs.DiscreteGaussian(float(s["sigma"])),
        }[step["kind"]](step)
        if "q" in step:
            mechanism = hs.PoissonSampled(mechanism, float(step["q"]))
        if "batch" in step:
            mechanism = hs.WithoutReplacement(mechanism, step["batch"], step["dataset"])
        total = total + mechanism * step["count"]
    return total


def peer(event: Callable[..., object] | None) -> str:
    """dp_accounting's epsilon and seconds."""
    if event is None:
        return ""
    try:
        import dp_accounting
        from dp_accounting.pld import PLDAccountant
    except ImportError:
        return "not installed"

    def call() -> float:
        return PLDAccountant().compose(event(dp_accounting)).get_epsilon(DELTA)

    seconds = least(call, 5)
    return f"{call():.7f} {1e3 * seconds:9.2f}"


def width(answer: hs.accounting.Answer) -> float:
    return answer.upper / answer.lower - 1 if answer.lower > 0 else math.inf


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=30)
    arguments = parser.parse_args()
    hs.set_threads(1)
    references()
    print(
        f"{'':<52} {'epsilon':>13} {'width':>8} {'engine':<10} {'ms':>8} {'fft width':>9} {'fft ms':>8}  dp_accounting, ms"
    )
    for name, (build, adjacency, event) in WORKLOADS.items():
        answer = hs.account(build(), adjacency=adjacency).report(delta=DELTA, risks=False).epsilon
        coarse = (
            hs.account(build(), adjacency=adjacency, engine="fft").report(delta=DELTA, risks=False).epsilon
        )
        assert answer is not None
        assert coarse is not None
        quick = least(partial(epsilon, build, adjacency), arguments.repeats)
        slow = least(partial(epsilon, build, adjacency, engine="fft"), arguments.repeats)
        print(
            f"{name:<52} {answer.upper:>13.9f} {width(answer):>8.0e} {answer.engine:<10} "
            f"{1e3 * quick:>8.3f} {width(coarse):>9.0e} {1e3 * slow:>8.2f}  {peer(event)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
