"""Epsilon and delta at the ends of their ranges, where they take no computation."""

from __future__ import annotations

import math

from .. import _core
from ..mechanisms.adjacency import Directions
from .report import Answer


def epsilon_limit(directions: Directions, delta: float) -> Answer | None:
    if delta == 1.0 or not directions:
        return Answer(0.0, 0.0)
    if delta == 0.0:
        largest = max(_largest_loss(direction) for direction in directions)
        least = max(
            _largest_loss([(pair.lower or pair, k) for pair, k in direction]) for direction in directions
        )
        # The sum is rounded: the truth is within one part in 1e12.
        return Answer(least * (1.0 - 1e-12), largest * (1.0 + 1e-12))
    return None


def delta_limit(directions: Directions, epsilon: float) -> Answer | None:
    if epsilon == -math.inf:
        return Answer(1.0, 1.0)
    if not directions:
        value = max(0.0, -math.expm1(min(0.0, epsilon)))
        return Answer(value * (1.0 - 1e-15), min(1.0, value * (1.0 + 1e-15)))
    return None


def _largest_loss(direction: list[tuple[_core.Pair, int]]) -> float:
    if any(pair.infinity_mass > 0.0 for pair, _ in direction):
        return math.inf
    return max(0.0, math.fsum(count * pair.max_loss for pair, count in direction))
