"""A privacy profile known at finitely many points: what it implies between them, and the pair that has it.

The page docs/mechanisms/curves.md proves what is used here.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from .. import _core
from .._base.types import Array
from .atoms import Atoms, revealing
from .core_pairs import discrete

FURTHEST = 600.0
"""speed: beyond this epsilon a curve is taken to be constant; e^600 times what it is beside stays a double."""

_MARGIN = 1e-9
"""proof: more than the relative rounding of sums of differences of a curve (docs/mechanisms/curves.md, section 1)."""
_STARTS = 3000
"""speed: how many type I errors the chains of tests start from."""


class Curve:
    """delta(epsilon) <= the chords, in e^epsilon, of points that bound it from above; 1 at e^epsilon = 0.

    ``epsilon`` and ``delta`` of shape (n,) are the lower convex hull of the points given; beyond the last of them delta is constant.
    """

    def __init__(self, epsilon: Array, delta: Array) -> None:
        order = np.argsort(epsilon, kind="stable")
        x, delta = np.exp(epsilon[order]), np.minimum(1.0, delta[order] * (1.0 + _MARGIN))
        delta = np.minimum.accumulate(delta)
        kept = [0]
        for i in range(1, len(x)):
            if x[i] == x[kept[-1]]:
                continue
            while len(kept) > 1 and _slope(x, delta, kept[-1], i) >= _slope(x, delta, kept[-2], kept[-1]):
                kept.pop()
            if len(kept) == 1 and (1.0 - delta[kept[0]]) * x[i] <= (1.0 - delta[i]) * x[kept[0]]:
                kept.pop()
            kept.append(i)
        self.epsilon, self.delta, self._x = epsilon[order][kept], delta[kept], x[kept]
        drops = np.concatenate(([1.0 - self.delta[0]], -np.diff(self.delta)))
        self._slopes = drops / np.diff(self._x, prepend=0.0)
        """Of the chords that end at each point, downwards; decreasing."""

    @classmethod
    def of_symmetric(cls, epsilon: Array, delta: Array) -> Curve:
        """From points at epsilon >= 0 of a curve that bounds both directions: delta(-e) = 1 - e^-e + e^-e delta(e)."""
        reversed_delta = -np.expm1(-epsilon) + np.exp(-epsilon) * delta
        return cls(np.concatenate([-epsilon[::-1], epsilon]), np.concatenate([reversed_delta[::-1], delta]))

    def __call__(self, epsilon: Array) -> Array:
        """Upper bounds at any real epsilon."""
        right = np.searchsorted(self.epsilon, epsilon, side="right")
        last = len(self.epsilon) - 1
        at = np.minimum(right, last)
        below = self.delta[at] + self._slopes[at] * (
            self._x[at] - np.exp(np.minimum(epsilon, self.epsilon[last]))
        )
        return np.asarray(np.where(right > last, self.delta[last], np.minimum(1.0, below * (1.0 + 1e-14))))

    @cached_property
    def _corners(self) -> tuple[Array, Array]:
        """Where one tangent of the power meets the next: type I errors, increasing, and the powers there."""
        alpha = self._slopes[1:][::-1]
        return alpha, self.delta[1:][::-1] + alpha * self._x[1:][::-1]

    def least(self, other: Curve) -> Curve:
        """The curve below both."""
        epsilon = np.concatenate([self.epsilon, other.epsilon])
        return Curve(epsilon, np.minimum(self(epsilon), other(epsilon)))

    def tangent(self, alpha: Array) -> tuple[Array, Array]:
        """(delta, epsilon) with power(a) <= delta + e^epsilon a for every a, the least of them at ``alpha``."""
        at = len(self.epsilon) - 1 - np.searchsorted(self._corners[0], alpha)
        return self.delta[at], self.epsilon[at]

    def power(self, alpha: Array) -> Array:
        """At most the probability of an event in one world whose probability in the other is ``alpha``."""
        delta, epsilon = self.tangent(alpha)
        return np.minimum(1.0, (delta + np.exp(epsilon) * alpha) * (1.0 + 1e-14))

    def needed(self, power: Array) -> Array:
        """At least the probability of an event in one world whose probability in the other is ``power``."""
        at = len(self.epsilon) - 1 - np.searchsorted(self._corners[1], power)
        return np.maximum(0.0, (power - self.delta[at]) / self._x[at] * (1.0 - 1e-14) - 1e-300)

    def pair(self) -> _core.Pair:
        """The pair of distributions with this profile: at each point its change of slope is Q's mass."""
        q = -np.diff(self._slopes, append=0.0)
        p, rest = q * self._x, float(self.delta[-1])
        scale = (1.0 - rest) / math.fsum(p) if rest < 1.0 else 0.0
        kept = p > 0.0
        if not kept.any():
            return discrete(revealing(rest))
        q, p = q[kept] * scale, p[kept] * scale
        missing = max(0.0, 1.0 - math.fsum(q))
        return discrete(Atoms(self.epsilon[kept], p, q, rest, q_infinity=missing))


def _slope(x: Array, delta: Array, left: int, right: int) -> float:
    return float((delta[left] - delta[right]) / (x[right] - x[left]))


def group_curve(curve: Curve, size: int) -> Curve:
    """The curve of a group: P_size(E) <= delta_1 + e^eps_1 (delta_2 + e^eps_2 (...)) along any chain of tangents.

    Each chain follows the power of the best tests from one type I error on.
    """
    starts = np.concatenate([np.logspace(-280.0, -1.0, _STARTS), np.linspace(0.1, 1.0, 200), [0.0]])
    alpha, total, epsilon = starts.copy(), np.zeros_like(starts), np.zeros_like(starts)
    for _ in range(size):
        delta, slope = curve.tangent(alpha)
        growth = np.exp(slope)
        total, epsilon = delta + growth * total, epsilon + slope
        alpha = np.minimum(1.0, delta + growth * alpha)
        if np.all((alpha == 1.0) | (epsilon > 600.0)):
            # No chain says anything of so many records, and more of them are no safer.
            return Curve.of_symmetric(np.zeros(1), np.ones(1))
    # The sums of up to 10^6 terms are rounded upwards.
    rounding = 1e-15 * (size + 1.0)
    total, epsilon = total * (1.0 + rounding), epsilon + rounding * np.abs(epsilon) + rounding
    kept = (epsilon >= 0.0) & (epsilon <= 600.0) & (total <= 1.0)
    return Curve.of_symmetric(np.append(epsilon[kept], 0.0), np.append(total[kept], 1.0))
