"""The delta curve of what is released beside a sampled mechanism, bounded between nodes (docs/montecarlo/estimates.md)."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from .._base.bounds import Bounds
from .._base.types import Array
from .._base.validation import ParameterTypeError
from ..accounting.profile import account
from ..mechanisms.descriptions import (
    ApproximateDP,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    PoissonSampled,
    Process,
    PureDP,
    RandomizedResponse,
    Skellam,
)

_ACCURACY, _ERROR, _END, _MOST_NODES = 1e-4, 3e-3, 1e-13, 1000
"""How near to the curve its bounds are to come, and where it is left (*speed*)."""
_SAME_UNDER_ZERO_OUT = (
    Gaussian,
    Laplace,
    DiscreteLaplace,
    DiscreteGaussian,
    Skellam,
    RandomizedResponse,
    PureDP,
    ApproximateDP,
    PoissonSampled,
)
"""Mechanisms whose pair under zero-out is that of one record more or less (*proof*: of others both directions are taken)."""
_ROUND_OFF = 1e-12
"""More than the relative round-off of an interpolation (*proof*)."""


@functools.lru_cache(maxsize=16)
def curve_of(process: Process, direction: str, adjacency: str) -> Curve:
    """The curve, remembered: a search asks for it at every noise multiplier."""
    return Curve(process, direction, adjacency)


class Curve:
    """Certified bounds on the delta curve of an analytic mechanism, between nodes by convexity.

    delta is a convex and falling function of e^epsilon (a mean of max(0, 1 - e^epsilon U)): chords lie
    above it, and chords of the neighbouring cells, prolonged, below.
    """

    log_mass = 0.0
    """ln of what the values have been divided by, to be at most 1."""

    def __init__(self, process: Process, direction: str, adjacency: str) -> None:
        one_sided = adjacency != "zero_out" or all(
            isinstance(step, _SAME_UNDER_ZERO_OUT) for step, _ in process
        )
        # Otherwise the pair under zero-out is one of its own, and the worse of its directions is used for both.
        profile = account(process, direction if one_sided else adjacency, accuracy=_ACCURACY)
        floor = profile.delta(math.inf)
        wide = profile.epsilon(max(_END, min(1.0, 2.0 * floor)))
        if not wide < math.inf:
            raise ParameterTypeError(f"composed_with = {process!r}: its epsilon is infinite")
        wide = max(wide, 1e-6)
        found: dict[float, Bounds] = {}
        # To the left of the bend the curve is nearly 1 - e^epsilon, a line.
        ends = [-wide - 30.0, *np.linspace(-wide, wide, 17).tolist()]
        for x in ends:
            found[x] = profile.delta_bounds(x)
        cells = list(pairwise(ends))
        while cells and len(found) < _MOST_NODES:
            left, right = cells.pop()
            middle = 0.5 * (left + right)
            here = found[middle] = profile.delta_bounds(middle)
            share = math.expm1(middle - left) / math.expm1(right - left)
            chord = found[left].upper + share * (found[right].upper - found[left].upper)
            if chord > here.upper * (1.0 + _ERROR) + _END:
                cells += [(left, middle), (middle, right)]
        self._x = np.array(sorted(found))
        low = np.array([found[x].lower if one_sided else 0.0 for x in self._x.tolist()])
        high = np.array([found[x].upper for x in self._x.tolist()])
        # The curve falls, so what bounds it at one node bounds it at those beyond.
        self._low, self._high = np.maximum.accumulate(low[::-1])[::-1], np.minimum.accumulate(high)

    @property
    def nodes(self) -> Array:
        """Between which the curve is interpolated."""
        return self._x

    def between(self, x: Array) -> tuple[Array, Array]:
        """Lower and upper bounds at each of ``x``."""
        nodes, low, high = self._x, self._low, self._high
        last = len(nodes) - 1
        # Cell k lies between nodes k and k + 1; a share of it is measured in e^x.
        k = np.clip(np.searchsorted(nodes, x) - 1, 0, last - 1)
        steps = np.diff(nodes)
        share = np.clip(np.expm1(np.clip(x - nodes[k], 0.0, steps[k])) / np.expm1(steps[k]), 0.0, 1.0)
        upper = high[k] + share * (high[k + 1] - high[k])
        # How much wider, in e^x, a cell is than the one before it.
        wider = np.exp(steps[:-1]) * np.expm1(steps[1:]) / np.expm1(steps[:-1])
        before, after = np.maximum(k - 1, 0), np.minimum(k + 2, last)
        falling = low[k] - share * wider[before] * (high[before] - low[k])
        rising = low[k + 1] + (1.0 - share) / wider[after - 2] * (low[k + 1] - high[after])
        lower = np.maximum(low[k + 1], np.where(k > 0, falling, 0.0))
        lower = np.maximum(lower, np.where(k + 2 <= last, rising, 0.0))
        lower = np.where(x > nodes[-1], 0.0, np.where(x < nodes[0], low[0], np.minimum(lower, upper)))
        upper = np.where(x < nodes[0], 1.0, np.minimum(1.0, upper))
        return lower * (1.0 - _ROUND_OFF), np.minimum(1.0, upper * (1.0 + _ROUND_OFF))

    def around(self, points: Sequence[float] | Array, losses: Array) -> Array:
        """An upper bound at points[0] - L and a lower one at points[1] - L, for each loss L: two rows."""
        return np.array([self.between(points[0] - losses)[1], self.between(points[1] - losses)[0]])
