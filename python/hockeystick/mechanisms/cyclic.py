"""BandMF with cyclic Poisson sampling as a composition of sampled Gaussians, one for each participation."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._base.validation import ParameterError, ParameterTypeError, double, integer, narrowed, real, reals
from .numeric import Gaussian
from .sampled import PoissonSampled
from .steps import Process, Step
from .truncated import TruncatedPoissonGroup, TruncatedPoissonSampled

MAX_NORMS = 256
"""*Speed*: most different column norms that are kept apart."""


def cyclic_poisson(
    column_norms: ArrayLike,
    min_sep: int,
    sampling_probability: float,
    noise_multiplier: float,
    *,
    subset_size: int | None = None,
    dataset_size: int | None = None,
    max_batch_size: int | None = None,
    max_norms: int = MAX_NORMS,
) -> Process:
    """Return a composition that dominates BandMF with (truncated) cyclic Poisson sampling.

    The records are divided into b = ``min_sep`` fixed subsets; iteration i (0, 1, ...) draws its batch
    from subset i mod b alone, each record with ``sampling_probability``. What is released is C X + Z,
    row i of X the sum of batch i (vectors of norm at most 1), C lower triangular with at most b bands,
    Z ~ N(0, noise_multiplier^2). ``column_norms`` has shape (n,): the L2 norm of each column of C over
    the iterations that are run. Not the same as `Strategy` sensitivities: nothing is normalised here.

    A record of subset j only shows in the columns j, j+b, ..., which share no row. So its privacy is that
    of at most ceil(n/b) sampled Gaussians, adaptively composed, the k-th with noise multiplier
    noise_multiplier / (norm of the column) (Choquette-Choo et al. 2023; proof in docs/mechanisms/truncated.md,
    section 6). Norms of each subset are sorted, and the largest of each rank is
    taken: a guarantee for every subset, and exact where one of them has the largest norms throughout,
    as for Toeplitz C. If more than ``max_norms`` norms differ, neighbours count as the largest of them.

    With ``subset_size`` (records in each subset) and ``max_batch_size``, batches are truncated as in
    `TruncatedPoissonSampled`. Under add/remove, one subset then has ``subset_size`` records with the
    record and one less without it. With ``dataset_size`` instead, that many records are divided as evenly as possible, and the
    guarantee is for both sizes of subsets (`TruncatedPoissonGroup`).

    >>> import hockeystick as hs
    >>> process = cyclic_poisson([2.0] * 9 + [1.0], min_sep=3, sampling_probability=0.1, noise_multiplier=4.0)
    >>> print(process)
    PoissonSampled(mechanism=Gaussian(noise_multiplier=2.0), sampling_probability=0.1) * 3 + \
PoissonSampled(mechanism=Gaussian(noise_multiplier=4.0), sampling_probability=0.1) * 1
    """
    norms = _ranked(column_norms, integer("min_sep", min_sep, 1))
    p = real("sampling_probability", sampling_probability, 0.0, 1.0)
    sigma = real("noise_multiplier", noise_multiplier, 0.0)
    if max_batch_size is None:
        if not subset_size is dataset_size is None:
            raise ParameterTypeError("max_batch_size = None: must be given with subset_size or dataset_size")
    elif (subset_size is None) == (dataset_size is None):
        raise ParameterTypeError("max_batch_size: needs either subset_size or dataset_size")
    size = None if subset_size is None else integer("subset_size", subset_size, 1)
    whole = None if dataset_size is None else integer("dataset_size", dataset_size, 1)
    most = None if max_batch_size is None else integer("max_batch_size", max_batch_size, 1)
    values, counts = _merged(norms, integer("max_norms", max_norms, 1, 100_000))

    def step(norm: float) -> Step:
        # Rounded down: a quotient that comes out too large would be too little noise.
        noise = double(min(Fraction(sigma) / Fraction(norm), Fraction(1e300)), -math.inf)
        if most is None:
            return PoissonSampled(Gaussian(noise), p)
        if whole is not None:
            return TruncatedPoissonGroup(noise, whole, p, most, groups=min_sep)
        return TruncatedPoissonSampled(noise, narrowed(size, int), p, most)

    # A column that is all zeros shows nothing.
    chosen = [(norm, count) for norm, count in zip(values, counts, strict=True) if norm > 0.0]
    return Process([(step(norm), count) for norm, count in chosen])


def _ranked(column_norms: Any, min_sep: int) -> NDArray[np.float64]:
    """For each rank the largest norm that any subset has at it, in descending order."""
    norms = reals("column_norms", column_norms, 0.0, towards=math.inf)
    if norms.ndim != 1:
        raise ParameterError(f"column_norms: must have shape (n,), not {norms.shape}")
    if not norms.size:
        return norms
    rounds = -(-norms.size // min_sep)
    padded = np.zeros(rounds * min_sep)
    padded[: norms.size] = norms
    # Row k holds the k-th participation of each subset.
    ranked = -np.sort(-padded.reshape(rounds, min_sep), axis=0)
    return np.asarray(ranked.max(axis=1), dtype=np.float64)


def _merged(norms: NDArray[np.float64], most: int) -> tuple[list[float], list[int]]:
    """Different norms with their counts, neighbours raised to the largest of them where there are too many."""
    values, counts = np.unique(norms, return_counts=True)
    if len(values) > most:
        # Bands of equal ratio, so that every norm grows by the same small factor at most.
        positive = values[values > 0.0]
        edges = np.geomspace(positive[0], positive[-1], most + 1)[1:]
        edges[-1] = positive[-1]
        band = np.searchsorted(edges, values)
        starts = np.flatnonzero(np.append(True, band[1:] != band[:-1]))
        ends = np.append(starts[1:], len(values)) - 1
        values, counts = values[ends], np.add.reduceat(counts, starts)
    return values[::-1].tolist(), counts[::-1].tolist()
