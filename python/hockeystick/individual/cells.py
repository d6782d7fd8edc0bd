"""The grid of mu that histories are rounded up to, what its cells cost, and histories that dominate several others.

One question to the full engine bounds whatever a history dominates: it has a tail at cell j, its number of steps with mu at least that of the
cell, and whoever has the larger tails everywhere, for each sampling probability, has the larger epsilon at every delta
(docs/individual/individual.md, "Envelopes").
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .._base.validation import real
from .spending import Floats


def cell_edges(
    noise_multiplier: float, resolution: float = 0.007, fine: int = 384, coarse: int = 128
) -> Floats:
    """The grid of mu: ``fine`` values in ratio 1 + resolution down from 1/noise_multiplier, then ``coarse`` more.

    The coarse ones are ten times as far apart: at the defaults the grid is fine down to 7 % of the clipping
    norm, and ends at 1e-5 of it; what is smaller and not 0 counts as that. Increasing, shape (fine + coarse,).
    """
    # The largest value must not be below any C / (sigma C), rounded up.
    top = 1.0 / real("noise_multiplier", noise_multiplier, 1e-6, 1e12) * (1.0 + 2.0**-48)
    steps = np.concatenate([np.full(coarse, 10.0 * resolution), np.full(fine - 1, resolution)])
    # Products in order: cells are stored, and must mean the same to whoever reads them on another machine.
    with np.errstate(over="ignore"):
        ratios = np.concatenate([np.cumprod(1.0 + steps[::-1])[::-1], [1.0]])
    return np.asarray(top / ratios, np.float64)


def grid_name(edges: Floats) -> str:
    """Equal for equal grids."""
    return hashlib.blake2b(np.ascontiguousarray(edges, "<f8").data, digest_size=16).hexdigest()


def may_be_narrow(resolution: float) -> bool:
    """Whether a double may have been a number of fewer digits, of half or single precision."""
    return float(np.float32(resolution)) == resolution


def sampled_pairs(edges: Floats, sampling_probability: float, direction: str) -> list[_core.Pair | None]:
    """The pairs of Poisson-sampled Gaussians of these mu; None where nothing is revealed."""
    out: list[_core.Pair | None] = []
    for mu in edges.tolist():
        if mu == 0.0 or sampling_probability == 0.0:
            out.append(None)
        elif sampling_probability == 1.0:
            out.append(_core.gaussian_pair(mu))
        else:
            out.append(_core.sampled_pair(_core.gaussian_pair(mu), sampling_probability, direction))
    return out


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
