"""delta(epsilon) and epsilon(delta) of a composed loss."""

from __future__ import annotations

import numpy as np

from bench.baselines.compose import Composed
from bench.baselines.pairs import Floats


def delta(composed: Composed, epsilon: float) -> float:
    """E[(1 - e^(epsilon - L))_+]."""
    beyond = composed.losses > epsilon
    x = composed.losses[beyond]
    weight = composed.masses[beyond] * np.exp(composed.log_scale - composed.tilt * x)
    return composed.infinity + float(weight @ -np.expm1(epsilon - x))


def _suffix(values: Floats) -> Floats:
    return np.append(np.cumsum(values[::-1])[::-1], 0.0)


def epsilon(composed: Composed, target: float) -> float:
    """The smallest epsilon >= 0 with delta(epsilon) <= target: delta is linear in e^epsilon between losses."""
    if target <= composed.infinity:
        return np.inf
    x = composed.losses
    keep = x > 0
    x = x[keep]
    weight = composed.masses[keep] * np.exp(composed.log_scale - composed.tilt * x)
    p, q = _suffix(weight), _suffix(weight * np.exp(-x))
    at_losses = p[1:] - np.exp(x) * q[1:] + composed.infinity
    # delta(x_i) <= target < delta(x_{i-1}); from the right, as the tilt makes the left end noisy.
    i = int(np.append(-1, np.flatnonzero(at_losses > target))[-1]) + 1
    excess = p[i] + composed.infinity - target
    return max(0.0, float(np.log(excess / q[i]))) if excess > 0 else 0.0
