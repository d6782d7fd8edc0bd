"""What the public API answers, bit for bit: to show that a change of structure changed nothing else.

    python -m bench.frozen record answers.json
    python -m bench.frozen compare answers.json

`record` writes one line for each request: every reference of tests/references, the workloads of the README, a few
thousand random compositions under all adjacencies and both engines, grids, calibrations, Monte Carlo estimates and
verifications, and what samplers, noise and filters hand out for a seed. Numbers are written as hexadecimal floats,
arrays as a digest of their bytes, refusals as the name of the exception. `compare` answers the same requests again
and lists every answer that differs, with the largest relative change; it exits with status 1 if there is one.
Answers of another machine may differ in the last digits (docs/accounting/bounds.md), so record and compare on the same one.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import math
import random
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import hockeystick as hs
import numpy as np

REFERENCES = Path(__file__).parent.parent / "tests" / "references"
ADJACENCIES = ("add", "remove", "add_or_remove", "replace_one", "zero_out")
RANDOM = 2000

Request = tuple[str, Callable[[], Any]]


def plain(value: Any) -> Any:
    """``value`` as JSON that two equal answers, and only they, share."""
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, np.ndarray):
        flat = np.ascontiguousarray(value)
        return f"{flat.dtype}{flat.shape} {hashlib.sha256(flat.tobytes()).hexdigest()[:16]}"
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    raise TypeError(f"a request answered {type(value).__name__}")


def answer(ask: Callable[[], Any]) -> Any:
    try:
        return plain(ask())
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        return type(error).__name__


def said(report: hs.accounting.Report) -> str:
    """The statement, whatever commit made it."""
    return dataclasses.replace(report, commit="").statement()


def references() -> Iterator[Request]:
    """The interval of delta of each reference, and the step under each of its names."""
    entries = []
    for name in ("subsampled_gaussian.json", "rare.json"):
        entries += json.loads((REFERENCES / name).read_text())["entries"]
    for number, entry in enumerate(entries):
        step = hs.PoissonSampled(hs.Gaussian(float(entry["sigma"])), float(entry["q"]))
        process, epsilon = step * int(entry["steps"]), float(entry["epsilon"])
        profile = hs.account(process, adjacency=entry["direction"])
        yield f"reference {number} delta({epsilon!r})", lambda p=profile, e=epsilon: p.delta_bounds(e)


def workloads() -> Iterator[Request]:
    """W1 to W12 and the other examples of the README."""

    def gaussian(noise_multiplier: float, q: float, steps: int) -> Any:
        return hs.PoissonSampled(hs.Gaussian(noise_multiplier), q) * steps

    many = [gaussian(0.8 + 0.05 * i, 0.01, 500) for i in range(20)]
    distinct = [gaussian(0.8 + 0.005 * i, 0.005 + 1e-5 * i, 1) for i in range(300)]
    runs: dict[str, tuple[Any, float]] = {
        "W1": (gaussian(1.0, 0.01, 1000), 1e-5),
        "W2": (gaussian(0.8, 0.001, 100_000), 1e-7),
        "W3": (gaussian(1.0, 256 / 60_000, 14_000), 1e-5),
        "W4": (hs.Gaussian(100.0) * 420, 1e-5),
        "W5": (sum(many[1:], start=many[0]), 1e-6),
        "W6": (gaussian(2.0, 0.01, 1000), 1e-30),
        "W7": (hs.Laplace(20.0) * 500, 1e-6),
        "W8": (gaussian(1.5, 0.01, 10_000), 1e-6),
        "W10": (hs.TruncatedPoissonSampled(1.0, 100_000, 0.01, 1100) * 1000, 1e-6),
        "W11": (gaussian(20.0, 0.001, 10_000_000), 1e-5),
        "W12": (sum(distinct[1:], start=distinct[0]), 1e-6),
    }
    for name, (process, delta) in runs.items():
        for adjacency in ADJACENCIES:
            for engine in ("auto", "fft"):
                if (name == "W12" or name == "W10") and (engine, adjacency) != ("auto", "add_or_remove"):
                    continue
                profile = hs.account(process, adjacency=adjacency, engine=engine)
                label = f"{name} {adjacency} {engine}"
                yield f"{label} epsilon", lambda p=profile, d=delta: p.epsilon_bounds(d)
                if name != "W12":
                    yield f"{label} curve", lambda p=profile: p.delta_curve([0.0, 0.5, 1.0, 4.0])
        profile = hs.account(process)
        if name not in ("W10", "W12"):
            yield f"{name} report", lambda p=profile, d=delta: said(p.report(delta=d))
            yield f"{name} tradeoff", lambda p=profile: p.tradeoff(np.array([0.01, 0.1, 0.5]))
    yield (
        "W9",
        lambda: hs.calibrate_noise_multiplier(
            lambda s: hs.PoissonSampled(hs.Gaussian(s), 0.005) * 10_000, epsilon=1.0, delta=1e-6
        ),
    )
    before, step = hs.Laplace(20.0) * 500, hs.PoissonSampled(hs.Gaussian(1.0), 0.01)
    yield (
        "steps for a budget",
        lambda: hs.calibrate_steps(lambda n: before + step * n, epsilon=8.0, delta=1e-6),
    )
    q, noise = np.geomspace(1e-4, 1e-1, 12), np.linspace(0.5, 5.0, 12)[:, None]
    yield "grid", lambda: hs.grid_epsilon(noise, q, steps=np.ceil(60 / q).astype(int), delta=1e-5).upper
    yield "grid of delta", lambda: hs.grid_delta(noise, q, steps=1000, epsilon=2.0).lower


def _mechanism(draw: random.Random) -> Any:
    """A mechanism, sampled or not, with few atoms where it has some."""
    scale = 10 ** draw.uniform(-0.5, 1.3)
    plain_one = draw.choice(
        [
            lambda: hs.Gaussian(scale),
            lambda: hs.Gaussian(scale),
            lambda: hs.Laplace(scale),
            lambda: hs.DiscreteLaplace(scale),
            lambda: hs.DiscreteGaussian(scale),
            lambda: hs.RandomizedResponse(draw.uniform(0.05, 3.0), num_categories=draw.choice([2, 2, 5])),
            lambda: hs.PureDP(draw.uniform(0.01, 2.0)),
            lambda: hs.ApproximateDP(draw.uniform(0.01, 1.0), 10 ** draw.uniform(-9, -4)),
        ]
    )()
    return draw.choice(
        [
            lambda: plain_one,
            lambda: hs.PoissonSampled(plain_one, 10 ** draw.uniform(-4, -0.1)),
            lambda: hs.PoissonSampled(plain_one, 10 ** draw.uniform(-4, -0.1)),
            lambda: hs.PoissonSampled(hs.Gaussian(scale), 10 ** draw.uniform(-4, -0.1)),
            lambda: hs.WithoutReplacement(plain_one, draw.randrange(1, 50), 100),
            lambda: hs.WithReplacement(hs.Gaussian(scale), draw.randrange(1, 20), 100),
            lambda: hs.TruncatedPoissonSampled(scale, 1000, draw.uniform(0.01, 0.1), draw.randrange(60, 150)),
            lambda: hs.MixtureOfGaussians(scale, [0, 1, 2], [0.9, 0.08, 0.02]),
            lambda: hs.Mixture([hs.Gaussian(scale), hs.Gaussian(2 * scale)], [0.3, 0.7]),
        ]
    )()


def compositions() -> Iterator[Request]:
    """Random compositions of up to three kinds of step, asked for delta and for epsilon."""
    for number in range(RANDOM):
        draw = random.Random(number)

        def ask(draw: random.Random = draw) -> Any:
            process = _mechanism(draw) * int(10 ** draw.uniform(0, 3.5))
            for _ in range(draw.choice([0, 0, 0, 1, 2])):
                process = process + _mechanism(draw) * draw.randrange(1, 200)
            adjacency, engine = draw.choice(ADJACENCIES), draw.choice(["auto", "auto", "auto", "fft"])
            if "Replacement(" in repr(process):
                adjacency = "replace_one"
            accuracy = draw.choice([1e-3, 1e-3, 1e-6])
            profile = hs.account(process, adjacency=adjacency, engine=engine, accuracy=accuracy)
            first = profile.epsilon_bounds(10 ** -draw.uniform(2, 15))
            middle = first.upper if math.isfinite(first.upper) else 1.0
            return [*first, *profile.delta_bounds(float(f"{middle:.1g}") * draw.uniform(0.5, 1.2))]

        yield f"composition {number}", ask


def monte_carlo() -> Iterator[Request]:
    """Estimates and samples of every scheme, and one estimate-verify-release."""
    strategy = hs.BandedToeplitz.square_root(steps=48, bands=4)
    schemes = {
        "poisson": hs.Poisson(48, 0.05),
        "cyclic": hs.CyclicPoisson(48, 4, 0.2),
        "balls": hs.BallsInBins(48, 12),
        "cold": hs.BMinSep(48, 4, 0.05, warm_start=False),
        "warm": hs.BMinSep(48, 4, 0.05),
        "r": hs.matrix.RMinSep(48, 4, 0.05),
        "truncated": hs.matrix.TruncatedBMinSep(48, 4, 0.05, dataset_size=1000, max_batch_size=60),
    }
    for name, scheme in schemes.items():
        matrix = hs.Identity(48) if name == "poisson" else strategy
        mechanism = hs.BandMF(matrix, scheme, noise_multiplier=0.9)
        for direction in ("remove", "add"):
            yield (
                f"losses {name} {direction}",
                lambda m=mechanism, d=direction: m.sample_losses(3000, seed=5, direction=d),
            )
        for method in ("plain", "tilted", "auto"):

            def estimate(m: Any = mechanism, how: str = method) -> Any:
                found = hs.estimate_delta(m, epsilon=2.0, samples=20_000, seed=3, method=how)
                return [found.estimate, found.lower, found.upper, found.confidence]

            yield f"estimate {name} {method}", estimate
    scheme = hs.BMinSep(64, 4, 0.02)
    long = hs.BandedToeplitz.square_root(steps=64, bands=4)

    def calibrated() -> Any:
        found = hs.calibrate_bandmf(long, scheme, epsilon=2.0, delta=1e-4, seed=11)
        return [found.noise_multiplier, found.statement()]

    yield "calibrate_bandmf", calibrated
    yield (
        "mean_bounds",
        lambda: hs.montecarlo.mean_bounds(hs.montecarlo.Empirical.of(np.linspace(0, 1, 1001) ** 8), 1e-6),
    )


def drawn() -> Iterator[Request]:
    """Batches, noise, filters, graphs: what a seed hands out."""
    steps = 24
    schemes = {
        "poisson": hs.Poisson(steps, 0.05),
        "cyclic": hs.CyclicPoisson(steps, 4, 0.2),
        "balls": hs.BallsInBins(steps, 12),
        "b-min-sep": hs.BMinSep(steps, 4, 0.05),
        "truncated": hs.matrix.TruncatedBMinSep(steps, 4, 0.05, dataset_size=1000, max_batch_size=40),
    }
    for name, scheme in schemes.items():
        yield (
            f"batches {name}",
            lambda s=scheme: [
                np.asarray(b[0] if isinstance(b, tuple) else b) for b in s.batches(1000, seed=7)
            ],
        )
    for name, strategy in (
        ("square root", hs.BandedToeplitz.square_root(steps=steps, bands=6)),
        ("optimized", hs.BandedToeplitz.optimized(steps=steps, bands=6)),
        ("identity", hs.Identity(steps)),
    ):
        yield (
            f"noise {name}",
            lambda s=strategy: hs.CorrelatedNoise(s, 1000, 1.5, clipping_norm=1.0, seed=3).rows(steps),
        )
        yield f"errors {name}", lambda s=strategy: [s.mean_squared_error(1.0), s.max_error(1.0)]

    def filtered() -> Any:
        norms = np.random.default_rng(1).uniform(0, 1, (30, 500))
        filt = hs.IndividualGDPFilter(500, epsilon=1.0, delta=1e-5)
        active = [filt.step(row, noise_multiplier=10.0, clipping_norm=1.0) for row in norms]
        return [np.array(active), filt.spent_mu()]

    def individual() -> Any:
        norms = np.random.default_rng(2).uniform(0, 5, (20, 300))
        accountant = hs.IndividualAccountant(
            300, noise_multiplier=2.0, sampling_probability=0.05, clipping_norm=5.0
        )
        for row in norms:
            accountant.step(row)
        return [accountant.epsilon(delta=1e-6), accountant.nonadaptive_delta(0.5)]

    def attributed() -> Any:
        generator = np.random.default_rng(3)
        graph = hs.AttributionGraph.from_edges(
            generator.integers(0, 60, 900), generator.integers(0, 400, 900)
        )
        bounded = graph.bound(5)
        return [graph.example_degrees(), graph.neighbourhood_sizes(), bounded.graph.example_degrees()]

    yield "filter", filtered
    yield "individual", individual
    yield "attribution", attributed


def requests() -> list[Request]:
    return [*references(), *workloads(), *compositions(), *monte_carlo(), *drawn()]


def _part(first: int, stride: int, every: int) -> dict[str, Any]:
    return {name: answer(ask) for name, ask in requests()[::every][first::stride]}


def answers(jobs: int, every: int) -> dict[str, Any]:
    with ProcessPoolExecutor(jobs) as pool:
        parts = [pool.submit(_part, first, 16 * jobs, every) for first in range(16 * jobs)]
        found = {name: value for part in parts for name, value in part.result().items()}
    return {name: found[name] for name, _ in requests()[::every]}


def _floats(value: Any) -> list[float]:
    if isinstance(value, list):
        return [number for item in value for number in _floats(item)]
    return [float.fromhex(value)] if isinstance(value, str) and "0x" in value[:4] else []


def change(before: Any, after: Any) -> float:
    """The largest relative change of a number; infinite where the answers have different shapes."""
    old, new = _floats(before), _floats(after)
    if not old or len(old) != len(new):
        return math.inf
    return max(abs(a - b) / max(abs(a), abs(b)) if a != b else 0.0 for a, b in zip(old, new, strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.frozen",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument(
        "--every", type=int, default=1, help="only every n-th request, in both runs (default 1)"
    )
    arguments = parser.parse_args()
    found = answers(arguments.jobs, arguments.every)
    if arguments.command == "record":
        arguments.file.write_text(json.dumps(found, indent=0) + "\n")
        refused = sum(isinstance(value, str) and value.endswith("Error") for value in found.values())
        print(f"{len(found)} answers, {refused} of them refusals")
        return 0
    expected = json.loads(arguments.file.read_text())
    different = [name for name in expected if found.get(name) != expected[name]]
    for name in different:
        print(
            f"{change(expected[name], found.get(name)):.1e}  {name}\n  was {expected[name]}\n  is  {found.get(name)}"
        )
    print(f"{len(expected)} answers, {len(different)} differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
