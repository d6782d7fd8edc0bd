"""Section 7.3 of Dong and Ganesh 2026: users who share examples, on a synthetic co-authorship graph (Figure 5).

    python -m bench.papers.b_min_sep_users                # ten minutes of processor time
    python -m bench.papers.b_min_sep_users --quick

1000 steps, rate 1024/300,000, at most two examples per user, as in the paper; delta = 1e-3, where plain samples (30,000) decide. Noise
multipliers of DP-SGD and of b-min-sep with independent examples are proven (estimate, verify, release), that of BandMF without
amplification is exact, and that of Theorem 6.1 is what the paper would have used: no guarantee on this graph. Then softmax
regression on synthetic papers, ten topics, the sound methods side by side.
"""

from __future__ import annotations

import math
from typing import Any

import hockeystick as hs
import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from bench.papers.results import Results, panels, parsed, save, write

Array = NDArray[np.float64]
STEPS, RATE, DELTA, OWNED, SEED = 1000, 1024 / 300_000, 1e-3, 2, 20260611
SAMPLES = 30_000  # of the verifier, for a candidate and direction
APART, PARTS = 128, 7  # of the paper's batches without amplification: steps apart, participations of a user
TOPICS, FEATURES, CLIP = 10, 40, 1.0
RATES = (0.3, 1.0, 3.0)


def papers(count: int, authors: int) -> hs.AttributionGraph:
    """Two authors or more for each paper, drawn by a heavy-tailed law."""
    rng = np.random.default_rng(1)
    paper = np.repeat(np.arange(count), 2 + rng.poisson(1.5, count))
    weight = np.cumsum(np.arange(1.0, authors + 1) ** -0.5)
    author = np.searchsorted(weight, rng.random(len(paper)) * weight[-1])
    return hs.AttributionGraph.from_edges(paper, np.minimum(author, authors - 1), count, authors)


# ---- noise ----------------------------------------------------------------------------------------


def noises(epsilon: float, bands: int, graph: hs.AttributionGraph) -> list[float]:
    """(noise multiplier, mean squared error) by independent examples, then by Theorem 6.1's law."""
    strategy = hs.BandedToeplitz.optimized(STEPS, bands)
    sound = hs.BMinSep.of_rate(STEPS, bands, RATE, examples_per_user=OWNED)
    p = hs.sampling.sampling_probability_for(graph, RATE * graph.num_examples, bands)
    theorem = hs.matrix.MultiAttributionBMinSep(STEPS, bands, p, OWNED)
    found = []
    for scheme in (sound, theorem) if bands > 1 else (sound,):
        done = hs.calibrate_bandmf(
            strategy, scheme, epsilon, DELTA, seed=SEED, samples=SAMPLES, fallback="unamplified"
        )
        found += [done.noise_multiplier, done.mean_squared_error]
    return [*found, math.nan, math.nan][:4]


def unamplified(epsilon: float) -> tuple[float, float]:
    strategy = hs.BandedToeplitz.optimized(STEPS, APART)
    sensitivity = float(strategy.sensitivity(APART, PARTS))
    noise = sensitivity * float(hs.calibrate_noise_multiplier(hs.Gaussian, epsilon, DELTA))
    return noise, noise**2 * strategy.mean_squared_error()


def errors(options: Any, results: Results, graph: hs.AttributionGraph) -> dict[str, list[tuple[float, ...]]]:
    """By method, for each epsilon: (epsilon, bands, noise multiplier, mean squared error), at the best bands."""
    epsilons = (4.0,) if options.quick else (1.0, 2.0, 4.0, 8.0, 16.0)
    band_counts = (8,) if options.quick else (8, 32)
    best: dict[str, list[tuple[float, ...]]] = {}
    rows = []
    for epsilon in epsilons:
        table: list[tuple[str, int, float, float]] = [("without amplification", APART, *unamplified(epsilon))]
        for bands in (1, *band_counts):
            found = results.get(f"noise,{epsilon},{bands}", lambda e=epsilon, b=bands: noises(e, b, graph))
            table.append(("b-min-sep" if bands > 1 else "DP-SGD", bands, *found[:2]))
            if bands > 1:
                table.append(("Theorem 6.1: no guarantee", bands, *found[2:]))
        rows += [(epsilon, *row) for row in table]
        for name in dict.fromkeys(row[0] for row in table):
            least = min((row for row in table if row[0] == name), key=lambda row: row[3])
            best.setdefault(name, []).append((epsilon, *least[1:]))
    write(
        options.out / "b_min_sep_users_noise.csv",
        ("epsilon", "method", "bands", "noise multiplier", "MSE"),
        rows,
    )
    return best


# ---- training -------------------------------------------------------------------------------------


def contents(graph: hs.AttributionGraph, count: int, seed: int) -> tuple[Array, NDArray[np.int64]]:
    """Features and topics of papers. Authors have a topic; a paper has that of one of its authors, and features around it."""
    rng = np.random.default_rng([7, seed])
    centres = np.random.default_rng(7).standard_normal((TOPICS, FEATURES)) / math.sqrt(FEATURES)
    liked = rng.integers(0, TOPICS, graph.num_users)
    first = np.minimum(graph.offsets[:-1], len(graph.users) - 1)
    topic = liked[graph.users[first]] if count == graph.num_examples else rng.integers(0, TOPICS, count)
    features = centres[topic] + 1.5 * rng.standard_normal((count, FEATURES)) / math.sqrt(FEATURES)
    return np.hstack([features, np.ones((count, 1))]), topic


def loss_and_residual(weights: Array, x: Array, y: NDArray[np.int64]) -> tuple[float, Array]:
    scores = x @ weights
    scores -= scores.max(axis=1, keepdims=True)
    residual = np.exp(scores)
    total = residual.sum(axis=1)
    loss = float(np.mean(np.log(total) - scores[np.arange(len(y)), y])) if len(y) else 0.0
    residual /= total[:, None]
    residual[np.arange(len(y)), y] -= 1.0
    return loss, residual


def train(
    graph: hs.AttributionGraph,
    strategy: hs.matrix.Strategy,
    min_sep: int,
    noise: float,
    rate: float,
    seed: int,
) -> float:
    """Test loss after one run, with momentum .9; batches of independent examples."""
    x, y = contents(graph, graph.num_examples, seed)
    weights = np.zeros((x.shape[1], TOPICS))
    velocity = np.zeros_like(weights)
    scheme = hs.BMinSep.of_rate(STEPS, min_sep, RATE, examples_per_user=OWNED)
    rows = hs.CorrelatedNoise(strategy, weights.size, noise, clipping_norm=CLIP, seed=seed, dtype="float64")
    for batch in scheme.batches(graph=graph, seed=seed):
        _, residual = loss_and_residual(weights, x[batch], y[batch])
        norms = np.linalg.norm(x[batch], axis=1) * np.linalg.norm(residual, axis=1)
        total = x[batch].T @ (residual * np.minimum(1.0, CLIP / np.maximum(norms, 1e-12))[:, None])
        total += rows.next().reshape(total.shape)
        velocity = 0.9 * velocity + total / (RATE * graph.num_examples)
        weights -= 0.1 * rate * velocity
    return loss_and_residual(weights, *contents(graph, 5000, seed + 10**6))[0]


def losses(
    options: Any, results: Results, graph: hs.AttributionGraph, best: dict[str, list[tuple[float, ...]]]
) -> dict[str, list[tuple[float, float, float]]]:
    """By method, for each epsilon: (epsilon, mean test loss, half of Student's 95 % interval)."""
    trials = 2 if options.quick else 8
    shown: dict[str, list[tuple[float, float, float]]] = {}
    rows = []
    for name, settings in best.items():
        if name.startswith("Theorem"):
            continue
        for epsilon, bands, noise, _ in settings:
            # Batches without amplification are formed otherwise; what counts for the loss is their size.
            strategy = hs.BandedToeplitz.optimized(STEPS, int(bands))
            min_sep = 1 if name.startswith("without") else int(bands)

            def values(s: Any = strategy, b: int = min_sep, z: float = noise) -> list[float]:
                tuned = [train(graph, s, b, z, r, 1000) for r in RATES]
                rate = RATES[int(np.argmin(tuned))]
                return [rate, *(train(graph, s, b, z, rate, i) for i in range(trials))]

            rate, *found = results.get(f"train,{name},{epsilon},{trials}", values)
            mean, margin = (
                float(np.mean(found)),
                float(student.ppf(0.975, trials - 1) * np.std(found, ddof=1) / math.sqrt(trials)),
            )
            shown.setdefault(name, []).append((epsilon, mean, margin))
            rows.append((name, epsilon, int(bands), noise, rate, mean, margin))
    header = ("method", "epsilon", "bands", "noise multiplier", "learning rate", "test loss", "+-")
    write(options.out / "b_min_sep_users_training.csv", header, rows)
    return shown


def main() -> None:
    options = parsed(__doc__)
    results = Results(options.resume)
    hs.set_threads(1)
    bounded = papers(60_000, 30_000).bound(OWNED, duplicates=True)
    print(bounded.report())
    best = errors(options, results, bounded.graph)
    shown = losses(options, results, bounded.graph, best)
    figure, (left, right) = panels(2)
    styles = {"DP-SGD": "C0o-", "b-min-sep": "C1s-", "without amplification": "C2^-"}
    for name, settings in best.items():
        table = np.array(settings).T
        left.loglog(table[0], table[3], styles.get(name, "C3x:"), ms=5, label=name)
    for name, settings in shown.items():
        epsilon, mean, margin = np.array(settings).T
        right.errorbar(epsilon, mean, margin, fmt=styles[name], ms=4, capsize=3, label=name)
    right.set_xscale("log")
    for axes, title, label in (
        (left, "Noise, best bands", "mean squared error"),
        (right, "Figure 5, synthetic papers", "test loss"),
    ):
        axes.set_xticks([1, 2, 4, 8, 16], ["1", "2", "4", "8", "16"])
        axes.set_xticks([], minor=True)
        axes.set(xlabel=f"ε at δ = {DELTA:g}", ylabel=label, title=title)
        axes.legend(fontsize=7)
    save(figure, options.out / "b_min_sep_users.png")


if __name__ == "__main__":
    main()
