"""What is averaged in direction "remove", as a function of the privacy loss L, and its largest weighted value.

delta(epsilon) of a mechanism alone is E_P[(1 - e^{epsilon - L})_+]. Released together with an independent
mechanism whose delta curve is delta', it is E_P[delta'(epsilon - L)]. Importance sampling multiplies the value by
P/R, which is at most c e^{-(a-1) L} for every component S_a of R (docs/montecarlo/tilted.md, Theorem 3), and c without the power
for P itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from .types import Array

Part: TypeAlias = "tuple[float, int]"
"""(ln c, a): P/R <= c e^{-(a-1) L}; a = 1 for P."""

_FINE = 16
"""*Speed*: points per cell of a curve."""


@dataclass(frozen=True)
class HockeyStick:
    """(1 - e^{epsilon - L})_+"""

    epsilon: float

    def log_values(self, losses: Array) -> Array:
        """ln of the values; -inf for 0."""
        over = losses > self.epsilon
        found = np.full(losses.shape, -math.inf)
        found[over] = np.log(-np.expm1(np.minimum(self.epsilon - losses[over], -1e-300)))
        return found

    def log_bound(self, parts: Sequence[Part]) -> float:
        """ln of what P/R times the value is at most: the least over the parts of the largest value, at e^{epsilon - L} = 1 - 1/a."""
        found = math.inf
        for log_factor, order in parts:
            peak = 0.0 if order == 1 else (order - 1) * math.log1p(-1.0 / order) - math.log(order)
            found = min(found, log_factor - (order - 1) * self.epsilon + peak)
        return found

    def is_seen(self, losses: Array, log_weights: Array) -> bool:
        """Whether samples with these ln P/R_0 are where the expectation comes from: sixteen losses above epsilon."""
        return int((losses > self.epsilon).sum()) >= 16


class Composed:
    """delta'(epsilon - L), by upper bounds of a certified curve."""

    def __init__(self, curve: Any, epsilon: float) -> None:
        self._curve, self._epsilon = curve, epsilon
        nodes = curve.nodes
        steps = np.arange(_FINE) / _FINE
        fine = (nodes[:-1, np.newaxis] + np.diff(nodes)[:, np.newaxis] * steps).ravel()
        self._points = np.append(fine, nodes[-1])
        self._log_upper = self._log(self._points)

    def _log(self, x: Array) -> Array:
        _, upper = self._curve.between(x)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(upper))

    def log_values(self, losses: Array) -> Array:
        return self._log(self._epsilon - losses)

    def log_bound(self, parts: Sequence[Part]) -> float:
        """See `HockeyStick`: the largest over intervals of epsilon - L: the curve falls there, the bound on P/R rises."""
        values = np.concatenate([[0.0], self._log_upper])
        ends = np.append(self._points, math.inf)
        bound = np.full(ends.shape, math.inf)
        for log_factor, order in parts:
            rising = (order - 1) * (ends - self._epsilon) if order > 1 else np.zeros(ends.shape)
            bound = np.minimum(bound, log_factor + rising)
        total = np.where(values > -math.inf, values + bound, -math.inf)
        return float(total.max()) + 1e-12 * (1.0 + abs(float(total.max())))

    def is_seen(self, losses: Array, log_weights: Array) -> bool:
        """See `HockeyStick`: an effective number of samples of 32."""
        log_y = log_weights + self.log_values(losses)
        if not log_y.size or not log_y.max() > -math.inf:
            return False
        y = np.exp(log_y - log_y.max())
        return bool(y.sum() ** 2 >= 32.0 * np.square(y).sum())


Payoff: TypeAlias = HockeyStick | Composed
"""A function of the loss with values in [0, 1] that does not fall."""
