"""Ganesh 2025, "Tighter Privacy Analysis for Truncated Poisson Sampling": its message, and its conjectures.

    python -m bench.papers.truncated_poisson figure out.png   # sigma against B, new and old analysis
    python -m bench.papers.truncated_poisson conjecture       # Section 3.2, evaluated numerically
    python -m bench.papers.truncated_poisson gap              # what releasing "the batch is full" may cost

The last two are numerical evidence, no guarantees; what is proven is in docs/mechanisms/truncated.md.
"""

from __future__ import annotations

import argparse
import itertools
import math
from dataclasses import replace

import hockeystick as hs
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

N, P, STEPS, EPSILON, DELTA = 100_000, 0.01, 1000, 2.0, 1e-6


# ---- figure ---------------------------------------------------------------------------------------


def old_noise(step: hs.TruncatedPoissonSampled, steps: int, epsilon: float, delta: float) -> float:
    """The least sigma that the union bound certifies, to 1e-4; inf if none does."""
    low, high = 0.3, 50.0

    def fits(sigma: float) -> bool:
        return (
            hs.accounting.UnionBound(replace(step, noise_multiplier=sigma), steps).epsilon(delta) <= epsilon
        )

    if not fits(high):
        return math.inf
    while high > low * (1.0 + 1e-4):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def noise_curves(
    sizes: list[int], n: int, p: float, steps: int, epsilon: float, delta: float
) -> dict[str, Array]:
    """sigma at each maximum batch size by each analysis."""
    poisson = hs.calibrate_noise_multiplier(
        lambda s: hs.PoissonSampled(hs.Gaussian(s), p) * steps, epsilon, delta, tolerance=1e-4
    )
    curves: dict[str, list[float]] = {
        "union bound, delta + e^epsilon eta": [],
        "Ganesh 2025, add or remove": [],
        "zero out (docs/mechanisms/truncated.md)": [],
    }
    for size in sizes:
        step = hs.TruncatedPoissonSampled(1.0, n, p, size)
        curves["union bound, delta + e^epsilon eta"].append(old_noise(step, steps, epsilon, delta))
        for name, adjacency in (
            ("Ganesh 2025, add or remove", "add_or_remove"),
            ("zero out (docs/mechanisms/truncated.md)", "zero_out"),
        ):
            sigma = hs.calibrate(
                lambda s: replace(step, noise_multiplier=s) * steps,  # noqa: B023
                epsilon,
                delta,
                increasing=False,
                limits=(0.05, 1e6),
                start=float(poisson),
                adjacency=adjacency,
                tolerance=1e-4,
            )
            curves[name].append(float(sigma))
    found = {name: np.array(values) for name, values in curves.items()}
    return {**found, "no truncation": np.full(len(sizes), float(poisson))}


def figure(path: str) -> None:
    sizes = [1010, 1020, 1030, 1040, 1050, 1060, 1070, 1080, 1100, 1120, 1140, 1160, 1180, 1200, 1220, 1250]
    curves = noise_curves(sizes, N, P, STEPS, EPSILON, DELTA)
    wasted = [1.0 - hs.TruncatedPoissonSampled(1.0, N, P, size).expected_batch_size / size for size in sizes]
    print(f"n = {N}, p = {P}, T = {STEPS}, epsilon = {EPSILON}, delta = {DELTA}")
    print(f"{'B':>5} {'wasted':>7}  " + "  ".join(f"{name:>34}" for name in curves))
    for i, size in enumerate(sizes):
        print(f"{size:>5} {wasted[i]:>7.3f}  " + "  ".join(f"{curve[i]:>34.4f}" for curve in curves.values()))
    for factor in (1.001, 1.01, 1.05):
        least = {
            name: next(
                (
                    size
                    for size, sigma in zip(sizes, curve, strict=True)
                    if sigma <= factor * curves["no truncation"][0]
                ),
                None,
            )
            for name, curve in curves.items()
            if name != "no truncation"
        }
        print(f"least B with at most {factor - 1:.1%} more noise than without truncation: {least}")
    title = f"n = {N:,}, p = {P}, {STEPS} steps, epsilon = {EPSILON}, delta = {DELTA}"
    hs.plots.plot_truncation(sizes, curves, wasted, title, path)
    print(f"wrote {path}")


# ---- conjecture -----------------------------------------------------------------------------------


def profile(q: float, w: tuple[float, float], v: tuple[float, float], a: float) -> float:
    """H_a of (1-q) N(0) + q N(w) against (1-q) N(0) + q N(v) in the plane, by the trapezoidal rule."""
    x = np.arange(-8.0, 11.0, 0.05)
    grid = x[:, None], x[None, :]

    def normal(mean: tuple[float, float]) -> Array:
        return np.exp(-0.5 * ((grid[0] - mean[0]) ** 2 + (grid[1] - mean[1]) ** 2)) / (2 * math.pi)

    none = (1 - q) * normal((0.0, 0.0))
    return float(np.maximum(none + q * normal(w) - a * (none + q * normal(v)), 0.0).sum()) * 0.05**2


def conjecture() -> None:
    """Is one of the two pairs of Section 3.2 always the worst (|v| <= 1, |w - v| <= 1, in units of mu)?"""
    print(
        "CONJECTURE of Ganesh 2025, Section 3.2 (2), evaluated on a grid; its proof is in docs/mechanisms/truncated.md."
    )
    print(
        f"{'mu':>4} {'q':>5} {'epsilon':>8}  worst on the grid / worse of the two pairs, zero out, replace one"
    )
    angles = np.linspace(0.0, math.pi, 7)
    for mu, q, epsilon in itertools.product((0.5, 1.5), (0.05, 0.5), (-0.5, -0.05, 0.05, 0.5)):
        a = math.exp(epsilon)
        ends = {
            "zero_out": [((2 * mu, 0.0), (mu, 0.0)), ((0.0, 0.0), (mu, 0.0))],
            "replace_one": [((2 * mu, 0.0), (0.0, 0.0)), ((0.0, 0.0), (2 * mu, 0.0))],
        }
        ratios = []
        for adjacency, candidates in ends.items():
            two = max(profile(q, w, v, a) for w, v in candidates)
            worst = 0.0
            others = [(0.0, 0.0)] if adjacency == "zero_out" else list(itertools.product((0.5, 1.0), angles))
            for size, turn, (other, angle) in itertools.product((0.5, 1.0), angles, others):
                # In the place of the vector -pi, |pi| <= mu: the record, or its replacement.
                w = (mu * (size + math.cos(turn)), mu * math.sin(turn))
                v = (mu * (size + other * math.cos(angle)), mu * other * math.sin(angle))
                worst = max(worst, profile(q, w, v, a))
            ratios.append(worst / two)
        print(f"{mu:>4} {q:>5} {epsilon:>8}  {ratios[0]:.6f}  {ratios[1]:.6f}")


# ---- gap ------------------------------------------------------------------------------------------


def sums(records: list[float], p: float, most: int) -> dict[float, float]:
    """The law of the sum of Algorithm 1's batch."""
    law: dict[float, float] = {}
    for size in range(len(records) + 1):
        for drawn in itertools.combinations(records, size):
            weight = p**size * (1 - p) ** (len(records) - size)
            kept = list(itertools.combinations(drawn, min(size, most)))
            for batch in kept:
                total = round(math.fsum(batch), 9)
                law[total] = law.get(total, 0.0) + weight / len(kept)
    return law


def gap() -> None:
    """One step, add/remove: the bound beside the worst of a few datasets, of which the true delta is known."""
    n, sigma, epsilon = 8, 1.0, 0.5
    print(
        "ESTIMATE from below of the slack of Theorem 3.1, which Ganesh 2025 conjectures to be small but not\n"
        f"zero between the extremes. n = {n}, sigma = {sigma}, epsilon = {epsilon}, one step."
    )
    print(f"{'p':>5} {'B':>3} {'bound':>10} {'attained':>10} {'ratio':>7}")
    t = np.arange(-20.0, 20.0, 0.005)

    def density(law: dict[float, float]) -> Array:
        parts = [weight * np.exp(-0.5 * ((t - mean) / sigma) ** 2) for mean, weight in law.items()]
        return np.sum(parts, axis=0) / (sigma * math.sqrt(2 * math.pi))

    for p, most in itertools.product((0.1, 0.3, 0.6, 1.0), (2, 4, 8)):
        worst = 0.0
        for others in itertools.product((-1.0, 0.0, 1.0), repeat=2):
            rest = [others[i % 2] for i in range(n - 1)]
            first, second = density(sums([1.0, *rest], p, most)), density(sums(rest, p, most))
            for one, two in ((first, second), (second, first)):
                worst = max(worst, float(np.maximum(one - math.exp(epsilon) * two, 0).sum()) * 0.005)
        bound = hs.account(hs.TruncatedPoissonSampled(sigma, n, p, most)).delta(epsilon)
        print(f"{p:>5} {most:>3} {bound:>10.6f} {worst:>10.6f} {bound / worst:>7.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["figure", "conjecture", "gap"])
    parser.add_argument("path", nargs="?", default="truncated_poisson.png")
    options = parser.parse_args()
    if options.what == "figure":
        figure(options.path)
    elif options.what == "conjecture":
        conjecture()
    else:
        gap()


if __name__ == "__main__":
    main()
