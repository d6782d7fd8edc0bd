"""The whole chain: discretise, compose, read off. `parts` is a list of (pair, count)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.baselines import compose, discretise, profile
from bench.baselines.pairs import Pair

Discretise = Callable[[Pair, float, int, int], discretise.Lattice]


def lattices(
    parts: Sequence[tuple[Pair, int]], step: float, method: Discretise
) -> list[tuple[discretise.Lattice, int]]:
    return [(method(pair, step, *discretise.window(pair, step)), count) for pair, count in parts]


def epsilon(parts: Sequence[tuple[Pair, int]], delta: float, step: float, method: Discretise) -> float:
    grids = lattices(parts, step, method)
    return profile.epsilon(compose.compose(grids, compose.saddle(grids, delta)), delta)


def delta(
    parts: Sequence[tuple[Pair, int]], epsilon: float, step: float, method: Discretise, tilt: float = 0.0
) -> float:
    return profile.delta(compose.compose(lattices(parts, step, method), tilt), epsilon)
