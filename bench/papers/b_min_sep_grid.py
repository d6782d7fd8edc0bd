"""Section 7.1 of Dong and Ganesh 2026: mean squared errors of b-min-sep, cyclic Poisson and balls-in-bins.

    python -m bench.papers.b_min_sep_grid --results grid.json                   # resumes where it stopped
    python -m bench.papers.b_min_sep_grid --results grid.json --seconds 600     # stops after ten minutes
    python -m bench.papers.b_min_sep_grid --results grid.json --plot grid.png   # the heat maps too

1024 steps, delta = 1e-3. For each epoch length |D|/B and epsilon, each method takes its best number of
bands, b-min-sep also its best min-sep (doubled, or multiplied by --factor, from the bands up to the
epoch length). C minimises the error without amplification. Noise multipliers of b-min-sep and
balls-in-bins are what estimate-verify-release proves (Algorithm 5, delta / 2 as threshold), those of
cyclic Poisson are analytic.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import hockeystick as hs
from hockeystick.montecarlo.runs import derived

STEPS, DELTA = 1024, 1e-3


def numbers(text: str) -> list[int]:
    return [int(value) for value in text.split(",")]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, required=True, help="JSON file with what is done")
    parser.add_argument("--bands", type=numbers, default=[2, 8, 32])
    parser.add_argument("--epochs", type=numbers, default=[128, 512], help="epoch lengths |D|/B")
    parser.add_argument("--epsilons", type=numbers, default=[1, 4, 16])
    parser.add_argument("--factor", type=int, default=2, help="between one min-sep and the next")
    parser.add_argument("--seed", type=int, default=20260611)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--plot", help="file for the heat maps")
    return parser.parse_args()


def configurations(options: argparse.Namespace) -> list[tuple[str, int, int, int, int]]:
    """(method, bands, min_sep, epoch, epsilon); the cheap and the interesting ones first."""
    found = []
    for epoch in options.epochs:
        for epsilon in options.epsilons:
            for bands in options.bands:
                found.append(("cyclic", bands, bands, epoch, epsilon))
                min_sep = bands
                while min_sep < epoch:
                    found.append(("b-min-sep", bands, min_sep, epoch, epsilon))
                    min_sep *= options.factor
                found.append(("balls-in-bins", bands, epoch, epoch, epsilon))
    return sorted(found, key=lambda entry: entry[0] == "b-min-sep")


def calibrated(entry: tuple[str, int, int, int, int], seed: int) -> dict[str, Any]:
    method, bands, min_sep, epoch, epsilon = entry
    strategy = hs.BandedToeplitz.optimized(STEPS, bands)
    if method == "cyclic":
        scheme: Any = hs.CyclicPoisson(STEPS, bands, bands / epoch)
    elif method == "balls-in-bins":
        scheme = hs.BallsInBins(STEPS, epoch)
    else:
        # p = p0 / (1 - p0 (b - 1)) with p0 = 1 / epoch
        scheme = hs.BMinSep(STEPS, min_sep, 1.0 / (epoch - min_sep + 1), warm_start=True)
    start = time.monotonic()
    found = hs.calibrate_bandmf(
        strategy, scheme, epsilon, DELTA, seed=derived(seed, *entry), fallback="unamplified"
    )
    return {
        "noise_multiplier": found.noise_multiplier,
        "mse": found.mean_squared_error,
        "fell_back": found.fell_back,
        "seconds": time.monotonic() - start,
    }


def save(path: Path, results: dict[str, Any]) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(results, indent=1))
    os.replace(temporary, path)


def best(results: dict[str, Any], method: str, epoch: int, epsilon: int) -> tuple[float, str] | None:
    """The least error of a method in one setting, and where; None if some of its cases are not done."""
    cases = [
        (value["mse"], f"{bands}/{min_sep}")
        for key, value in results.items()
        for kind, bands, min_sep, e, eps in [key.split(",")]
        if kind == method and int(e) == epoch and int(eps) == epsilon
    ]
    return min(cases) if cases else None


def table(options: argparse.Namespace, results: dict[str, Any]) -> dict[tuple[int, int], tuple[float, float]]:
    print("|D|/B  eps |  b-min-sep (bands/min-sep) |    cyclic (bands) | balls-in-bins | / cyclic | / balls")
    ratios = {}
    for epoch in options.epochs:
        for epsilon in options.epsilons:
            found = {
                name: best(results, name, epoch, epsilon) for name in ("b-min-sep", "cyclic", "balls-in-bins")
            }
            if any(value is None for value in found.values()):
                print(f"{epoch:5d} {epsilon:4d} | not done yet")
                continue
            (ours, where), (cyclic, at), (bins, also) = found.values()  # type: ignore[misc]
            # b-min-sep with min-sep = |D|/B is balls-in-bins.
            if bins < ours:
                ours, where = bins, also
            ratios[epoch, epsilon] = (ours / cyclic, ours / bins)
            print(
                f"{epoch:5d} {epsilon:4d} | {ours:12.6g} {where:>13} | {cyclic:10.6g} {at.split('/')[0]:>6} "
                f"| {bins:13.6g} | {ours / cyclic:8.4f} | {ours / bins:7.4f}"
            )
    return ratios


def plot(options: argparse.Namespace, ratios: dict[tuple[int, int], tuple[float, float]], path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import numpy as np

    figure, axes = plt.subplots(1, 2, figsize=(9.0, 3.6), constrained_layout=True)
    for side, (axis, peer) in enumerate(zip(axes, ("cyclic Poisson", "balls-in-bins"), strict=True)):
        values = np.array(
            [
                [ratios.get((epoch, epsilon), (np.nan, np.nan))[side] for epsilon in options.epsilons]
                for epoch in options.epochs
            ]
        )
        image = axis.imshow(values, cmap="RdBu_r", vmin=0.5, vmax=1.5, origin="lower", aspect="auto")
        for row, column in np.ndindex(*values.shape):
            axis.text(column, row, f"{values[row, column]:.3f}", ha="center", va="center")
        axis.set_xticks(range(len(options.epsilons)), [str(epsilon) for epsilon in options.epsilons])
        axis.set_yticks(range(len(options.epochs)), [str(epoch) for epoch in options.epochs])
        axis.set(xlabel="epsilon", ylabel="|D|/B", title=f"MSE of b-min-sep / {peer}")
        figure.colorbar(image, ax=axis)
    figure.savefig(path, dpi=150)


def main() -> None:
    options = parsed()
    results: dict[str, Any] = json.loads(options.results.read_text()) if options.results.exists() else {}
    end = time.monotonic() + options.seconds
    todo = [entry for entry in configurations(options) if ",".join(map(str, entry)) not in results]
    for done, entry in enumerate(todo):
        if time.monotonic() > end:
            print(f"stopped: {len(todo) - done} of {len(todo)} left", file=sys.stderr)
            break
        key = ",".join(map(str, entry))
        results[key] = calibrated(entry, options.seed)
        save(options.results, results)
        print(f"{done + 1}/{len(todo)} {key}: {results[key]}", file=sys.stderr)
    ratios = table(options, results)
    if options.plot:
        plot(options, ratios, options.plot)


if __name__ == "__main__":
    main()
