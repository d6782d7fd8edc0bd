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
from .core_pairs import NOTHING, discrete

FURTHEST = 600.0
"""speed: beyond this epsilon a curve is taken to be constant; e^600 times what it is beside stays a double."""

_MARGIN = 1e-9
"""proof: more than the relative rounding of sums of differences of a curve (docs/mechanisms/curves.md, section 1)."""
_AT_ONCE = 100
"""speed: curves of groups of 100, 10^4 and 10^6 records are made on the way to larger groups."""
_STARTS = 3000
"""speed: how many type I errors the chains of tests start from."""


class Curve:
    """delta(epsilon) <= the chords, in e^epsilon, of points that bound it from above; 1 at e^epsilon = 0.

    ``epsilon`` and ``delta`` of shape (n,) are the lower convex hull of the points given; beyond the last of them delta is constant.
    """

    def __init__(self, epsilon: Array, delta: Array) -> None:
        order = np.argsort(epsilon, kind="stable")
        epsilon = epsilon[order]
        delta = np.minimum.accumulate(np.minimum(1.0, delta[order] * (1.0 + _MARGIN)))
        kept, self._arriving = _hull(epsilon, delta)
        self.epsilon, self.delta = epsilon[kept], delta[kept]

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
        before = np.minimum(epsilon - self.epsilon[at], 0.0)
        below = self.delta[at] - self._arriving[at] * np.expm1(before)
        return np.asarray(np.where(right > last, self.delta[last], np.minimum(1.0, below * (1.0 + 1e-14))))

    @cached_property
    def _corners(self) -> tuple[Array, Array]:
        """Where one tangent of the power meets the next: type I errors, increasing, and the powers there."""
        alpha = (self._arriving * np.exp(-self.epsilon))[1:][::-1]
        return alpha, (self.delta + self._arriving)[1:][::-1]

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
        return np.maximum(0.0, (power - self.delta[at]) * np.exp(-self.epsilon[at]) * (1.0 - 1e-14) - 1e-300)

    def pair(self) -> _core.Pair:
        """The pair of distributions with this profile: at each point its change of slope is Q's mass.

        Chords and margins are above what the curve bounds, so from below it tells nothing.
        """
        # The slopes of the chords that begin at each point, times e^epsilon there.
        leaving = np.append(self._arriving[1:] * np.exp(-np.diff(self.epsilon)), 0.0)
        p, rest = self._arriving - leaving, float(self.delta[-1])
        q = p * np.exp(-self.epsilon)
        scale = (1.0 - rest) / math.fsum(p) if rest < 1.0 else 0.0
        kept = p > 0.0
        q, p = q[kept] * scale, p[kept] * scale
        missing = max(0.0, 1.0 - math.fsum(q))
        known = Atoms(self.epsilon[kept], p, q, rest, q_infinity=missing) if kept.any() else revealing(rest)
        return _core.bracket_pair(NOTHING, discrete(known))


def _hull(epsilon: Array, delta: Array) -> tuple[list[int], Array]:
    """Which points, of increasing epsilon and falling delta, are the lower convex hull of delta over e^epsilon, and of 1 at 0.

    And the slopes, downwards, of the chords that end at each, times e^epsilon there: by itself a slope is less than any double far out.
    """
    kept, arriving = [0], [1.0 - float(delta[0])]
    for i in range(1, len(epsilon)):
        while kept:
            gap = float(epsilon[i] - epsilon[kept[-1]])
            # Of several at one epsilon the last is the least.
            if gap > 0.0:
                steep = float(delta[kept[-1]] - delta[i]) / -math.expm1(-gap)
                if steep * math.exp(-gap) < arriving[-1]:
                    kept.append(i)
                    arriving.append(steep)
                    break
            kept.pop()
            arriving.pop()
        else:
            kept, arriving = [i], [1.0 - float(delta[i])]
    return kept, np.array(arriving)


def group_curve(curve: Curve, size: int) -> Curve:
    """The curve of a group: that of one record, applied ``size`` times.

    Curves of groups are curves of records to larger groups: the digits of size to the base of ``_AT_ONCE`` say of which, and how often.
    """
    levels = []
    while size > 0:
        size, times = divmod(size, _AT_ONCE)
        levels.append((curve, times))
        if size > 0:
            curve = _chains([(curve, _AT_ONCE)])
    return _chains(levels)


def _chains(levels: list[tuple[Curve, int]]) -> Curve:
    """P_n(E) <= delta_1 + e^eps_1 (delta_2 + e^eps_2 (...)) along any chain of tangents, of each curve so many.

    Each chain follows the power of the best tests from one type I error on.
    """
    starts = np.concatenate([np.logspace(-280.0, -1.0, _STARTS), np.linspace(0.1, 1.0, 200), [0.0]])
    alpha, total, epsilon = starts.copy(), np.zeros_like(starts), np.zeros_like(starts)
    for curve, times in levels:
        for _ in range(times):
            delta, slope = curve.tangent(alpha)
            growth = np.exp(slope)
            total, epsilon = delta + growth * total, epsilon + slope
            alpha = np.minimum(1.0, delta + growth * alpha)
            if np.all((alpha == 1.0) | (epsilon > FURTHEST)):
                # No chain says anything of so many records, and more of them are no safer.
                return Curve.of_symmetric(np.zeros(1), np.ones(1))
    # The sums of so many terms are rounded upwards.
    rounding = 1e-15 * (sum(times for _, times in levels) + 1.0)
    total, epsilon = total * (1.0 + rounding), epsilon + rounding * np.abs(epsilon) + rounding
    kept = (epsilon >= 0.0) & (epsilon <= FURTHEST) & (total <= 1.0)
    return Curve.of_symmetric(np.append(epsilon[kept], 0.0), np.append(total[kept], 1.0))
