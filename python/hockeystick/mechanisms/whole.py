"""The certified curve of a whole composition, and steps of which nothing else is known."""

from __future__ import annotations

import functools
import math

import numpy as np

from .. import _core
from .adjacency import check, directions
from .core_pairs import Pairs, both
from .curves import FURTHEST, Curve
from .steps import Process, Step

_DEEPEST = 1e-50
"""speed: where the curve falls below this it is no longer followed."""
_ASKED, _NODES = 1000, 600
"""speed: how many points are asked for, as neighbours share a contour or a lattice, and how many are kept."""


class OfCurve(Step):
    """A step of which nothing is known but what follows from the certified curve of a release; both directions are the worse one."""

    @property
    def _process(self) -> Process:
        """The release."""
        raise NotImplementedError

    def _curve(self, adjacency: str) -> Curve:
        """The curve of the step under an adjacency that has both directions."""
        raise NotImplementedError

    def check_adjacency(self, adjacency: str) -> None:
        check(self._process, adjacency)

    def simplified(self) -> Step | None:
        return self if any(step.simplified() for step, _ in self._process) else None

    def pairs(self, adjacency: str) -> Pairs:
        """The pair of the curve."""
        return both(self._curve("add_or_remove" if adjacency in ("add", "remove") else adjacency).pair())


@functools.lru_cache(maxsize=16)
def curve_of(process: Process, adjacency: str) -> Curve:
    """Points of delta(epsilon), each an upper bound, which are close together where delta falls fast.

    ``adjacency`` has both directions, so that the curve is symmetric.
    """
    profile = _core.Profile(directions(process, adjacency), 3e-4)
    floor = profile.delta_bounds(math.inf).upper
    end = profile.epsilon_bounds(min(1.0, max(_DEEPEST, floor * 1.0001))).upper
    end = min(FURTHEST, end)
    if end == 0.0:
        return Curve.of_symmetric(np.zeros(1), np.array([profile.delta_bounds(0.0).upper]))
    # The end may be one of the support, where the curve has a corner.
    epsilon = np.append(end * np.linspace(0.0, 1.0, _ASKED) ** 1.5, end * (1.0 + 1e-9))
    delta = np.minimum.accumulate(np.clip(profile.rough_curve(epsilon, _DEEPEST)[1], 0.0, 1.0))
    fall = -np.log(np.maximum(delta, _DEEPEST))
    # Equal steps of a half of ln delta and a half of epsilon.
    travelled = (fall - fall[0]) / max(fall[-1] - fall[0], 1e-9) + epsilon / end
    kept = np.searchsorted(travelled, np.linspace(0.0, travelled[-2], _NODES))
    kept = np.unique(np.append(kept, [len(epsilon) - 2, len(epsilon) - 1]))
    return Curve.of_symmetric(epsilon[kept], delta[kept])
