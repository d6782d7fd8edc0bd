"""Histories that dominate several others: one question to the full engine bounds them all.

Histories are counts over cells of mu, in increasing order, for each sampling probability. One has a tail at cell j: its
number of steps with mu at least that of the cell. Whoever has the larger tails everywhere, for each sampling
probability, has the larger epsilon at every delta (docs/individual/individual.md, "Envelopes").
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[Any]


def envelope(counts: Counts) -> NDArray[np.int64]:
    """The least history that dominates all of these: shape (kinds of sampling, cells), from (rows, kinds, cells)."""
    tails = np.cumsum(counts[..., ::-1].astype(np.int64), axis=-1).max(axis=0)
    return np.ascontiguousarray(np.diff(tails, axis=-1, prepend=0)[..., ::-1])


def groups(scores: NDArray[np.float64], most: int) -> Iterator[NDArray[np.int64]]:
    """Indices in at most ``most`` groups of neighbouring scores, the largest first; equal ones stay together."""
    distinct, place = np.unique(-scores, return_inverse=True)
    for part in np.array_split(np.arange(distinct.size), min(most, distinct.size)):
        yield np.flatnonzero((place >= part[0]) & (place <= part[-1]))
