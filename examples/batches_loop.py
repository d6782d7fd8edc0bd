"""A training loop on batches of one shape: BandMF with truncated b-min-sep batches, logistic regression.

    python examples/batches_loop.py            # NumPy
    python examples/batches_loop.py --jax      # the same loop, compiled once by JAX

The object that is accounted draws the batches. Padding has index N, where the data have a row of zeros; the mask keeps it
out of the sum. Nothing is divided by the true size of a batch, which must stay hidden.
"""

from __future__ import annotations

import argparse
from typing import Any

import hockeystick as hs
import numpy as np

N, DIMENSION, STEPS, BANDS = 4000, 8, 120, 4
EXPECTED, LARGEST, CLIP, RATE = 100.0, 128, 1.0, 8.0


def dataset() -> tuple[np.ndarray, np.ndarray]:
    """Two clouds of points, and a row of zeros for the padding."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, N)
    points = rng.standard_normal((N, DIMENSION)) + 0.6 * (2 * labels[:, None] - 1)
    return np.vstack([points, np.zeros(DIMENSION)]), np.append(labels, 0)


def clipped_sum(np: Any, weights: Any, x: Any, y: Any, mask: Any) -> Any:
    """Sum over the examples of the batch of their gradients, each of norm at most CLIP; np is NumPy or jax.numpy."""
    errors = 1.0 / (1.0 + np.exp(-(x @ weights))) - y
    gradients = errors[:, None] * x
    norms = np.maximum(np.linalg.norm(gradients, axis=1), 1e-12)
    return (gradients * (mask * np.minimum(1.0, CLIP / norms))[:, None]).sum(axis=0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jax", action="store_true")
    parser.add_argument("--seed", type=int, help="for tests: whoever knows it can undo the noise")
    arguments = parser.parse_args()
    p = hs.matrix.b_min_sep_probability(EXPECTED / N, min_sep=BANDS)
    strategy = hs.BandedToeplitz.square_root(STEPS, BANDS)
    scheme = hs.matrix.TruncatedBMinSep(STEPS, BANDS, p, dataset_size=N, max_batch_size=LARGEST)
    mechanism = hs.BandMF(strategy, scheme, noise_multiplier=2.0)

    sampler = mechanism.batches(seed=arguments.seed, pad=True)
    # One secret for the run; batches and noise use different keys made of it.
    noise = hs.CorrelatedNoise(
        strategy,
        DIMENSION,
        mechanism.noise_multiplier,
        clipping_norm=CLIP,
        seed=sampler.seed,
        dtype="float64",
    )
    gradient: Any = lambda *batch: clipped_sum(np, *batch)
    if arguments.jax:
        import jax

        gradient = jax.jit(lambda *batch: clipped_sum(jax.numpy, *batch))
    x, y = dataset()
    weights = np.zeros(DIMENSION)
    for indices, mask in sampler:
        total = np.array(gradient(weights, x[indices], y[indices], mask), dtype=np.float64)
        noise.add_to(total)
        weights -= RATE / EXPECTED * total

    accuracy = np.mean((x[:N] @ weights > 0) == y[:N])
    delta = hs.estimate_delta(mechanism, epsilon=4.0, samples=20_000, seed=1)
    print(f"accuracy {accuracy:.3f} after {sampler.step} steps")
    print(f"an estimate, no guarantee: delta(4.0) is about {delta.estimate:.1e}")
    print(sampler.report())


if __name__ == "__main__":
    main()
