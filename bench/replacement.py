"""Batches drawn with replacement and other requests that used to have wide intervals: gap and time of each.

    python -m bench.replacement [--count 292] [--seed 1] [--worst 10] [--kind with_replacement]
    python -m bench.replacement --kind finite
    python -m bench.replacement --kind company
    python -m bench.replacement --kind few
    python -m bench.replacement --aligned

Seeded draws that a deep-learning user may make: batches of fixed size drawn with replacement from 1e4 to 1e7
records (a tenth of them at most), 1 to 100 passes over the data, noise multipliers from 0.5 to 20, δ from
1e-12 to 1/n; beside them Poisson sampling with a record replaced, sums of two unlike Poisson-sampled
Gaussians at δ down to 1e-30, and sampled randomised response. Each is asked for ε(δ) under every adjacency that
its mechanism supports. `finite`, only where asked for, are sampled pairs of two to six outcomes whose losses are on no lattice, at
δ from 1e-12 to 1e-3; `company` are batches with replacement composed with up to 30 releases of another kind, and `few`
are 1 to 20,000 of them whatever the number of passes, most of which hit nobody twice. Printed: the percentiles of the relative gap and of the time by kind, and the worst of both.

--aligned compares the pair of with-replacement batches with what one data set attains, in which all other records
are the replaced record's opposite: then a record drawn l times moves the sum by 2 l, and nothing says what l was.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Iterator
from typing import NamedTuple

import hockeystick as hs

KINDS = ("with_replacement", "replaced", "sum", "response")
FINITE, COMPANY, FEW = "finite", "company", "few"
SHARES = (60, 15, 15, 10)
OTHERS = ("RandomizedResponse", "DiscreteLaplace", "Laplace", "PureDP")
NAMES = ("FinitePair", "Gaussian", "PoissonSampled", "WithReplacement", *OTHERS)


class Request(NamedTuple):
    kind: str
    text: str
    process: hs.mechanisms.Process
    adjacency: str
    delta: float


def log_uniform(rng: random.Random, low: float, high: float) -> float:
    return float(f"{math.exp(rng.uniform(math.log(low), math.log(high))):.4g}")


def request(kind: str, text: str, adjacency: str, delta: float) -> Request:
    return Request(kind, text, eval(text, {name: getattr(hs, name) for name in NAMES}), adjacency, delta)


def draw(rng: random.Random) -> Request:
    kind = rng.choices(KINDS, SHARES)[0]
    adjacency = rng.choice(("add", "remove", "add_or_remove"))
    records = int(log_uniform(rng, 1e4, 1e7))
    delta = float(f"{log_uniform(rng, 1e-12, 1 / records):.2g}")
    if kind in ("with_replacement", "replaced"):
        batch = int(log_uniform(rng, 16, 0.1 * records))
        steps = min(100_000, max(1, int(log_uniform(rng, 1, 100) * records / batch)))
        sigma = log_uniform(rng, 0.5, 20)
        if kind == "replaced":
            text = f"PoissonSampled(Gaussian({sigma}), {batch / records:.4g}) * {steps}"
        else:
            text = f"WithReplacement(Gaussian({sigma}), {batch}, {records}) * {steps}"
        adjacency = "replace_one"
    elif kind == "sum":
        parts = []
        for _ in range(2):
            sigma, q = log_uniform(rng, 0.5, 20), log_uniform(rng, 1e-4, 0.1)
            parts.append(f"PoissonSampled(Gaussian({sigma}), {q}) * {int(log_uniform(rng, 1, 1e5))}")
        text = " + ".join(parts)
        delta = float(f"{log_uniform(rng, 1e-30, 1e-5):.2g}")
    else:
        epsilon, q = log_uniform(rng, 0.1, 5), log_uniform(rng, 1e-3, 0.5)
        text = f"PoissonSampled(RandomizedResponse({epsilon}), {q}) * {int(log_uniform(rng, 1, 1e4))}"
    return request(kind, text, adjacency, delta)


def draw_finite(rng: random.Random) -> Request:
    outcomes = rng.randint(2, 6)
    p, q = ([rng.expovariate(1.0) for _ in range(outcomes)] for _ in range(2))
    pair = ", ".join(str([x / math.fsum(side) for x in side]) for side in (p, q))
    rate, steps = log_uniform(rng, 1e-4, 0.5), int(log_uniform(rng, 1, 1e5))
    text = f"PoissonSampled(FinitePair({pair}), {rate}) * {steps}"
    return request(FINITE, text, rng.choice(("add", "remove")), log_uniform(rng, 1e-12, 1e-3))


def draw_company(rng: random.Random) -> Request:
    records = int(log_uniform(rng, 30, 1e6))
    batch = max(1, int(log_uniform(rng, 1e-4, 0.2) * records))
    steps, sigma = int(log_uniform(rng, 3, 1e4)), log_uniform(rng, 0.6, 10)
    name = rng.choice(OTHERS)
    size = log_uniform(rng, 0.05, 2)
    other = f"{name}({size if name in ('RandomizedResponse', 'PureDP') else 1 / size:.4g})"
    if rng.random() < 0.5:
        other = f"PoissonSampled({other}, {log_uniform(rng, 1e-3, 0.3)})"
    text = (
        f"WithReplacement(Gaussian({sigma}), {batch}, {records}) * {steps} + {other} * {rng.randint(1, 30)}"
    )
    return request(COMPANY, text, "replace_one", log_uniform(rng, 1e-10, 1e-5))


def draw_few(rng: random.Random) -> Request:
    records = int(log_uniform(rng, 1e4, 3e6))
    batch = min(int(log_uniform(rng, 8, 4096)), records // 4)
    text = f"WithReplacement(Gaussian({log_uniform(rng, 0.5, 5)}), {batch}, {records}) * {int(log_uniform(rng, 1, 20_000))}"
    return request(FEW, text, "replace_one", 10.0 ** -rng.randint(4, 12))


ALONE = {FINITE: draw_finite, COMPANY: draw_company, FEW: draw_few}
"""Kinds that are drawn only where they are asked for."""


def named() -> Iterator[Request]:
    """The requests by which the weak spot was found."""
    for text, delta in (
        ("WithReplacement(Gaussian(1.857), 22634, 567368) * 1149", 2.1e-9),
        ("WithReplacement(Gaussian(1.4646), 1197, 19882) * 27385", 5.8e-10),
        ("WithReplacement(Gaussian(10.0195), 10228, 1464150) * 234", 3.7e-9),
        ("WithReplacement(Gaussian(1.0), 256, 60000) * 1000", 1e-5),
    ):
        yield request("with_replacement", text, "replace_one", delta)
    for steps in (1, 10, 100, 1000, 10_000, 100_000):
        text = f"PoissonSampled(Gaussian(1.97), .0029) * {steps} + PoissonSampled(Gaussian(14.9), .00068) * {steps}"
        for adjacency in ("add", "remove"):
            yield request("sum", text, adjacency, 7e-24)


class Outcome(NamedTuple):
    asked: Request
    lower: float
    upper: float
    engine: str
    seconds: float

    @property
    def gap(self) -> float:
        return 0.0 if self.lower == self.upper else (self.upper - self.lower) / self.upper

    def line(self) -> str:
        return (
            f"  {self.gap:8.1e} {self.seconds:7.3f} s  ({self.lower:.7g}, {self.upper:.7g}) {self.engine:10} "
            f"{self.asked.adjacency} {self.asked.text} at {self.asked.delta:g}"
        )


def ask(asked: Request) -> Outcome:
    start = time.perf_counter()
    answer = (
        hs.account(asked.process, adjacency=asked.adjacency).report(delta=asked.delta, risks=False).epsilon
    )
    seconds = time.perf_counter() - start
    assert answer is not None  # it was asked for
    return Outcome(asked, answer.lower, answer.upper, answer.engine, seconds)


def percentiles(values: list[float]) -> str:
    ordered = sorted(values)
    return " ".join(f"{ordered[round(p * (len(ordered) - 1))]:8.1e}" for p in (0.5, 0.9, 0.99, 1.0))


def show(outcomes: list[Outcome], worst: int) -> None:
    print(
        "kind              count  > 1e-3  > 1e-9  no lower  > 1 s   gap: 50 %, 90 %, 99 %, most; seconds: the same"
    )
    for kind in (*KINDS, *ALONE, "all"):
        some = [each for each in outcomes if kind in (each.asked.kind, "all")]
        if some:
            counts = [
                sum(each.gap > 1e-3 for each in some),
                sum(each.gap > 1e-9 for each in some),
                sum(each.lower <= 0 < each.upper for each in some),
                sum(each.seconds > 1 for each in some),
            ]
            gaps, seconds = [each.gap for each in some], [each.seconds for each in some]
            print(
                f"{kind:16} {len(some):6} {counts[0]:7} {counts[1]:7} {counts[2]:9} {counts[3]:6}   "
                f"{percentiles(gaps)}; {percentiles(seconds)}"
            )
    print("widest:")
    for each in sorted(outcomes, key=lambda each: -each.gap)[:worst]:
        print(each.line())
    print("slowest:")
    for each in sorted(outcomes, key=lambda each: -each.seconds)[:worst]:
        print(each.line())


def compare_aligned(batch: int = 10, records: int = 50, epsilon: float = 1.0) -> None:
    """delta of the pair and of the aligned data set, for one step."""
    chance = 1 / records
    weights = [math.comb(batch, k) * chance**k * (1 - chance) ** (batch - k) for k in range(batch + 1)]
    shifts = [2.0 * k for k in range(batch + 1)]
    print(f"delta({epsilon}) of one step, {batch} of {records} records: sigma, pair, attained")
    for sigma in (1.0, 1.5, 2.0, 3.0, 4.0):
        pair = hs.account(hs.WithReplacement(hs.Gaussian(sigma), batch, records), adjacency="replace_one")
        attained = hs.account(hs.MixtureOfGaussians(sigma, shifts, weights), adjacency="remove")
        print(f"{sigma:4} {pair.delta(epsilon):.4g} {attained.delta(epsilon):.4g}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=292)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--worst", type=int, default=10, help="how many of the widest and slowest are printed"
    )
    parser.add_argument("--kind", choices=(*KINDS, *ALONE), help="these only")
    parser.add_argument("--aligned", action="store_true")
    options = parser.parse_args()
    if options.aligned:
        compare_aligned()
        return
    rng = random.Random(options.seed)
    if options.kind in ALONE:
        drawn = [ALONE[options.kind](rng) for _ in range(options.count)]
    else:
        drawn = [*named(), *(draw(rng) for _ in range(options.count))]
    asked = [each for each in drawn if options.kind in (None, each.kind)]
    show([ask(each) for each in asked], options.worst)


if __name__ == "__main__":
    main()
