"""What one adversary attains where batches of b-min-sep sampling are cut down: the production case, beside Theorem 7b's bound.

    python -m bench.papers.b_min_sep_attained             # two minutes of processor time
    python -m bench.papers.b_min_sep_attained --quick

The record that is left out of a cut batch is minus the example's: the example counts 2 and its null record 1 there, 1 and 0 in other
rounds. delta(10) of that mechanism from below, direction "remove", C square root, by samples whose patterns have one or two
participations in cut rounds (docs/montecarlo/tilted.md, Lemma 6b, gives their weights): counts, patterns, densities in plain NumPy, nothing
of the accountant's. An estimate with its standard error; no guarantee rests on it.
"""

from __future__ import annotations

import argparse
import math

import hockeystick as hs
import numpy as np
from numpy.typing import NDArray
from scipy.signal import fftconvolve

from bench.papers.b_min_sep_production import BANDS, EPSILON, EXAMPLES, SCHEME, STEPS

Array = NDArray[np.float64]
P, Q = SCHEME.sampling_probability, 1.0 - SCHEME.sampling_probability
CASES = (
    (1900, 0.6, (4.3, 3.3)),
    (1900, 0.55, (4.0, 2.9)),
    (1900, 0.45, (3.0, 1.8)),
    (1950, 0.45, (3.0, 1.8)),
)
"""Largest batch, noise multiplier, and by how much noise is moved for one and for two participations."""


def counts(runs: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """How many others are sampled in each round, after rounds in which the start is forgotten."""
    before = 4 * BANDS
    found, barred = np.zeros((before + STEPS, runs), np.int64), np.zeros(runs, np.int64)
    for i, row in enumerate(found):
        row[:] = rng.binomial(EXAMPLES - 1 - barred, P)
        barred += row - (found[i - BANDS + 1] if i >= BANDS - 1 else 0)
    return found[before:].T


def pattern(rng: np.random.Generator) -> list[int]:
    """Rounds in which the example is sampled, without a look at the others."""
    found, at = [], -8 * BANDS + int(rng.geometric(P)) - 1
    while at < STEPS:
        found.append(at)
        at += BANDS - 1 + int(rng.geometric(P))
    return [i for i in found if i >= 0]


def price(i: int) -> float:
    """The probability of a pattern with a participation in round i, over that of the same pattern without."""
    return float(P * Q ** -min(BANDS, STEPS - i)) if i >= BANDS else float(P * Q ** (-i - 1))


def density(u: Array, norms: Array, cut: NDArray[np.bool_], kept: Array, times: tuple[float, float]) -> Array:
    """The mixture's density over that of noise alone: factors of rounds that are not cut and that are."""
    whole, part = (np.exp(k * u - 0.5 * k * k * norms) for k in times)
    factor = P * np.where(cut, kept * part + 1.0 - kept, whole)
    first = 1.0 / (1.0 + (BANDS - 1) * P)
    taken, available = np.zeros((STEPS, len(u))), np.zeros(len(u))
    for i in range(STEPS):
        available = Q * available + (taken[i - BANDS] if i >= BANDS else first if i == 0 else P * first)
        taken[i] = factor[:, i] * available
    return np.asarray(Q * available + taken[STEPS - BANDS :].sum(axis=0))


def attained(most: int, sigma: float, k: int, moved: float, samples: int) -> tuple[float, float]:
    """The part of delta from patterns with k participations in cut rounds, and its standard error."""
    rng, root = np.random.default_rng(k), hs.BandedToeplitz.square_root(STEPS, BANDS)
    column, others = np.array(root.coefficients) / root.sensitivity(), counts(samples, rng)
    cut, kept = others >= most, most / (others + 1.0)
    mean, axis, weight = np.zeros((samples, STEPS)), np.zeros((samples, STEPS)), np.zeros(samples)
    for j in range(samples):
        rounds = np.flatnonzero(cut[j])
        sets = (
            [(i,) for i in rounds] if k == 1 else [(i, h) for i in rounds for h in rounds if h - i >= BANDS]
        )
        rest = pattern(rng)
        if not sets:
            continue
        chosen = list(sets[rng.integers(len(sets))])
        if cut[j, rest].any() or any(abs(i - h) < BANDS for i in chosen for h in rest):
            continue
        weight[j] = len(sets) * math.prod(price(i) * kept[j, i] for i in chosen)
        mean[j, rest], mean[j, chosen], axis[j, chosen] = 1.0, 2.0, 1.0
    mean, axis = (fftconvolve(x, column[None, :], axes=1)[:, :STEPS] for x in (mean, axis))
    axis /= np.maximum(np.linalg.norm(axis, axis=1), 1e-9)[:, None]
    noise = rng.standard_normal((samples, STEPS))
    weight *= np.exp(-moved * (noise * axis).sum(axis=1) - 0.5 * moved**2)
    output = mean + sigma * (noise + moved * axis)
    u = fftconvolve(output, column[None, ::-1], axes=1)[:, BANDS - 1 :] / sigma**2
    lengths = np.minimum(BANDS, STEPS - np.arange(STEPS))
    norms = np.cumsum(column**2)[lengths - 1] / sigma**2
    here, there = (density(u, norms, cut, kept, times) for times in ((1.0, 2.0), (0.0, 1.0)))
    values = weight * np.maximum(0.0, 1.0 - math.exp(EPSILON) * there / here)
    return float(values.mean()), float(values.std() / math.sqrt(samples))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one case, few samples")
    quick = parser.parse_args().quick
    for most, sigma, moves in CASES[:1] if quick else CASES:
        parts = [attained(most, sigma, k, moved, 100 if quick else 2000) for k, moved in enumerate(moves, 1)]
        shown = ", ".join(f"{k}: {mean:.2e} +- {error:.1e}" for k, (mean, error) in enumerate(parts, 1))
        total = sum(mean for mean, _ in parts)
        print(
            f"B_max {most}, sigma {sigma}: delta({EPSILON}) at least about {total:.2e} (participations in cut rounds {shown})",
            flush=True,
        )


if __name__ == "__main__":
    main()
