"""Section 7.1 of Dong and Ganesh 2026: mean squared errors of b-min-sep, cyclic Poisson and balls-in-bins.

    python -m bench.papers.b_min_sep_grid --results grid.json                   # resumes where it stopped
    python -m bench.papers.b_min_sep_grid --results grid.json --seconds 600     # stops after ten minutes

1024 steps, delta = 1e-3. For each epoch length |D|/B and epsilon (Figures 2 and 3), each method takes its best number of
bands, b-min-sep also its best min-sep (doubled from the bands up to the epoch length). C minimises the error without
amplification. Of the 780 cases that need samples, those of bands with which cyclic Poisson sampling has 1.5 times its least
error are left out, pilots order the others (4096 samples a noise multiplier, then 32,768 for the best two; twice as many for
epsilon <= 1), and the best one of b-min-sep and of balls-in-bins is calibrated by estimate-verify-release (Algorithm 5,
delta / 2 as threshold, 75,013 samples a candidate and direction, other seeds). Noise multipliers of cyclic Poisson are analytic.
Intervals: the least noise multiplier with which the case that was chosen is private is at most the released one, by proof, and at least
the largest that 50,000 samples reject, at 99 %.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hockeystick as hs
import numpy as np
from hockeystick.montecarlo.runs import derived

from bench.papers.results import PAGES, Results, panels, save, write

STEPS, DELTA, SEED = 1024, 1e-3, 20260611
COARSE, FINE, LOOK = 4096, 32_768, 50_000  # samples of a pilot, of a better one, and of a rejection
HOPE = 1.5  # pilots leave out bands with which cyclic Poisson sampling has so many times its least error
KEPT = {"b-min-sep": 2, "balls-in-bins": 1}  # how many the better pilot looks at
CANDIDATES = (1.08, 1.04, 1.01, 0.99, 0.97)  # for the verifier, of the pilot's noise multiplier
MORE = (1.25, 1.16)  # where epsilon is below 1, as delta hardly falls with the noise there
RATIOS = tuple(1.0 - 0.02 * i for i in range(2, 14))  # of the released noise multiplier: rejections tried
Case = tuple[str, int, int, int, float]
"""(method, bands, min_sep, epoch, epsilon)."""


def numbers(text: str) -> list[int | float]:
    """Whole ones as int, so that 1 and 1.0 are one setting."""
    return [int(value) if value.isdigit() else float(value) for value in text.split(",")]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, required=True, help="JSON file with what is done")
    parser.add_argument("--bands", type=numbers, default=[2, 4, 8, 16, 32])
    parser.add_argument("--epochs", type=numbers, default=[128, 256, 512, 1024], help="epoch lengths |D|/B")
    parser.add_argument("--epsilons", type=numbers, default=[0.5, 1, 2, 4, 8, 16])
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after this time")
    parser.add_argument("--out", type=Path, default=PAGES, help="folder for the table and the heat maps")
    return parser.parse_args()


def cases(options: argparse.Namespace, method: str, epoch: int, epsilon: float) -> Iterator[Case]:
    for bands in options.bands:
        if method == "b-min-sep":
            for doubled in range(int(math.log2(epoch / bands))):
                yield method, bands, bands << doubled, epoch, epsilon
        else:
            yield method, bands, epoch if method == "balls-in-bins" else bands, epoch, epsilon


def scheme(case: Case) -> hs.matrix.Scheme:
    method, bands, min_sep, epoch, _ = case
    if method == "cyclic":
        return hs.CyclicPoisson(STEPS, bands, bands / epoch)
    if method == "balls-in-bins":
        return hs.BallsInBins(STEPS, epoch)
    # p = p0 / (1 - p0 (b - 1)) with p0 = 1 / epoch
    return hs.BMinSep(STEPS, min_sep, 1.0 / (epoch - min_sep + 1), warm_start=True)


def calibrated(case: Case, around: float = 1.0) -> dict[str, Any]:
    found = hs.calibrate_bandmf(
        hs.BandedToeplitz.optimized(STEPS, case[1]),
        scheme(case),
        case[-1],
        DELTA,
        seed=derived(SEED, *case),
        candidates=[ratio * around for ratio in (*(MORE if case[-1] < 1 else ()), *CANDIDATES)],
        fallback="unamplified",
    )
    return {
        "noise_multiplier": found.noise_multiplier,
        "mse": found.mean_squared_error,
        "fell_back": found.fell_back,
    }


def estimate(case: Case, noise: float, samples: int, seed: int, confidence: float) -> hs.DeltaEstimate:
    mechanism = hs.BandMF(hs.BandedToeplitz.optimized(STEPS, case[1]), scheme(case), noise)
    return hs.estimate_delta(
        mechanism, case[-1], samples, seed, "plain", adjacency="remove", confidence=confidence
    )


def pilot(case: Case, low: float, high: float, looks: int, samples: int) -> float:
    """About the noise multiplier at which delta is 16 / samples, from the same samples for all noise; more
    of them where epsilon is small: delta then hardly falls with the noise."""
    for _ in range(looks):
        middle = math.sqrt(low * high)
        count, seed = 2 * samples if case[-1] <= 1 else samples, derived(SEED, "pilot", *case)
        found = estimate(case, middle, count, seed, 0.99).estimate
        low, high = (middle, high) if found > 16 / samples else (low, middle)
    return math.sqrt(low * high)


def rejected(case: Case, released: float) -> float:
    """The largest of a few noise multipliers that is certainly too small, over the released one; 0 if there is none."""
    confidence = 1.0 - 0.01 / len(RATIOS)
    for ratio in RATIOS:
        seed = derived(SEED, "rejected", *case, ratio)
        if estimate(case, ratio * released, LOOK, seed, confidence).lower > DELTA:
            return ratio
    return 0.0


class Grid:
    """What is done, by stage and case; `done` counts, and `late` says whether the time is up."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._results, self._end, self.done = Results(options.results), time.monotonic() + options.seconds, 0

    def get(self, stage: str, case: Case, compute: Any) -> Any:
        def timed() -> Any:
            if time.monotonic() > self._end:
                raise TimeoutError
            value = compute()
            self.done += 1
            print(f"{self.done} {stage} {case}: {value}", file=sys.stderr, flush=True)
            return value

        return self._results.get(",".join(map(str, (stage, *case))), timed)

    def cyclic(self, case: Case) -> dict[str, Any]:
        same = ("cyclic", case[1], case[1], *case[3:])
        return dict(self.get("noise", same, lambda: calibrated(same)))

    def coarse(self, case: Case) -> float:
        around = self.cyclic(case)["noise_multiplier"]
        return float(self.get("coarse", case, lambda: pilot(case, 0.5 * around, 1.6 * around, 6, COARSE)))

    def fine(self, case: Case) -> float:
        around = self.coarse(case)
        return float(self.get("fine", case, lambda: pilot(case, 0.87 * around, 1.25 * around, 4, FINE)))

    def best(self, found: list[Case]) -> tuple[Case, dict[str, Any], float]:
        """What pilots find best of one method in one setting, what it released, and the lower end of the error over that."""

        def by_error(noise: Callable[[Case], float]) -> Callable[[Case], float]:
            return lambda case: (
                noise(case) ** 2 * hs.BandedToeplitz.optimized(STEPS, case[1]).mean_squared_error()
            )

        exact = {case: float(self.cyclic(case)["mse"]) for case in found}
        case = min(found, key=exact.__getitem__)
        if case[0] == "cyclic":
            return case, self.cyclic(case), 1.0
        hopeful = [each for each in found if exact[each] <= HOPE * exact[case]]
        likely = sorted(hopeful, key=by_error(self.coarse))[: KEPT[case[0]]]
        case = min(likely, key=by_error(self.fine))
        value = dict(self.get("noise", case, lambda: calibrated(case, self.fine(case))))
        ratio = self.get("rejected", case, lambda: rejected(case, value["noise_multiplier"]))
        return case, value, float(ratio) ** 2


def row(grid: Grid, options: argparse.Namespace, epoch: int, epsilon: float) -> list[Any]:
    """One cell of both heat maps: what is chosen, its error, and the ratios with intervals."""
    (ours, least, low), (cyclic, theirs, _), (bins, also, bins_low) = (
        grid.best(list(cases(options, method, epoch, epsilon)))
        for method in ("b-min-sep", "cyclic", "balls-in-bins")
    )
    if also["mse"] < least["mse"]:  # b-min-sep with min-sep = |D|/B is balls-in-bins
        ours, least, low = bins, also, bins_low
    one, other = least["mse"] / theirs["mse"], least["mse"] / also["mse"]
    ends = (other, other) if ours == bins else (low * other, other / bins_low if bins_low else math.inf)
    return [
        *(epoch, epsilon, f"{ours[1]}/{ours[2]}", least["mse"], low * least["mse"]),
        *(cyclic[1], theirs["mse"], bins[1], also["mse"], one, low * one, other, *ends),
    ]


HEADER = (
    *(
        "|D|/B",
        "epsilon",
        "bands/min-sep",
        "MSE",
        "at least",
        "cyclic bands",
        "cyclic MSE",
        "balls-in-bins bands",
    ),
    *("balls-in-bins MSE", "/ cyclic", "at least", "/ balls-in-bins", "at least", "at most"),
)


def plot(options: argparse.Namespace, rows: list[list[Any]]) -> None:
    figure, axes = panels(2, 5.6)
    shape = len(options.epochs), len(options.epsilons)
    for axis, peer, column, title in zip(
        axes, ("cyclic Poisson", "balls-in-bins"), (9, 11), ("Figure 2", "Figure 3"), strict=True
    ):
        values = np.full(shape, np.nan)
        for cell in rows:
            place = options.epochs.index(cell[0]), options.epsilons.index(cell[1])
            values[place] = cell[column]
            ends = (cell[10], cell[9]) if column == 9 else (cell[12], cell[13])
            white = {"color": "white"} if abs(cell[column] - 1.0) > 0.35 else {}
            axis.text(*place[::-1], f"{cell[column]:.3f}", ha="center", va="bottom", **white)
            span = f"{ends[0]:.2f}–{ends[1]:.2f}" if ends[0] < ends[1] else "the same"
            axis.text(*place[::-1], span, ha="center", va="top", fontsize=7, **white)
        image = axis.imshow(values, cmap="RdBu_r", vmin=0.5, vmax=1.5, origin="lower", aspect="auto")
        axis.set_xticks(range(shape[1]), [f"{epsilon:g}" for epsilon in options.epsilons])
        axis.set_yticks(range(shape[0]), [str(epoch) for epoch in options.epochs])
        axis.set(xlabel="ε", ylabel="|D|/B", title=f"{title}: MSE of b-min-sep / {peer}")
        figure.colorbar(image, ax=axis)
    save(figure, options.out / "b_min_sep_grid.png")


def main() -> None:
    options = parsed()
    hs.set_threads(1)
    grid = Grid(options)
    rows = []
    for epsilon in reversed(options.epsilons):  # small ones take longer
        for epoch in options.epochs:
            try:
                rows.append(row(grid, options, epoch, epsilon))
            except TimeoutError:
                print(f"not done yet: |D|/B = {epoch}, epsilon = {epsilon}", file=sys.stderr)
    if rows:
        rows.sort()
        write(options.out / "b_min_sep_grid.csv", HEADER, rows)
        plot(options, rows)


if __name__ == "__main__":
    main()
