"""The grid of mu that histories are rounded up to, and what its cells cost. The proof: docs/individual/individual.md."""

from __future__ import annotations

import numpy as np

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
