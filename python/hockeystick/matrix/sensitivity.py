"""L2 sensitivity of C G without amplification: the largest norm of C x over participation patterns (docs/matrix/bandmf.md).

``columns`` are those of `Strategy._columns`; a pattern has at most ``count`` ones, at least ``min_sep`` steps apart.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._base.bounds import Bounds
from .._base.types import Array, dot

_MAX_TABLE = 2**26
"""*Speed*: most entries of a dynamic program's table; beyond it the bound is a coarser one."""

_EPSILON = np.finfo(np.float64).eps  # *proof*: a unit of the last place


def bounds(columns: Array, steps: int, bands: int, min_sep: int, count: int) -> Bounds:
    if count == 0:
        return Bounds(0.0, 0.0)
    falling = columns[0]
    if len(columns) == 1 and min_sep < bands:
        # Larger entries, larger norm: round-off may have lifted some of a sequence that never rises.
        falling = np.maximum.accumulate(columns[0][::-1])[::-1]
    if len(columns) == 1 and bool(np.all(falling <= columns[0] * (1.0 + _EPSILON * (steps + bands)))):
        lower, upper = (_spaced_norm(values, steps, min_sep, count) for values in (columns[0], falling))
    else:
        if min_sep < bands and count > 1:
            weights = _row_maxima(columns, steps, min_sep, count)
        else:
            weights = np.square(column_norms(columns, steps))
        upper, pattern = _heaviest(weights, min_sep, count)
        lower = _squared_norm(columns, steps, pattern)
    slack = 8.0 * (steps + bands) * _EPSILON
    return Bounds(math.sqrt(lower * max(0.0, 1.0 - slack)), math.sqrt(upper * (1.0 + slack)))


def column_norms(columns: Array, steps: int) -> Array:
    # Added up in order: libraries' own sums depend on the processor, and keys of runs on these norms.
    if len(columns) == steps:
        squares = np.zeros(steps)
        for offset in range(columns.shape[1]):
            squares += np.square(columns[:, offset])
        return np.asarray(np.sqrt(squares))
    cut = np.sqrt(np.cumsum(np.square(columns[0])))[:steps]
    norms = np.full(steps, cut[-1])
    # The column that starts k steps before the end keeps its first k entries.
    norms[steps - len(cut) :] = cut[::-1]
    return norms


def kept(steps: int, bands: int, min_sep: int, count: int) -> Array:
    """How many of the columns 0, min_sep, 2 min_sep, ... keep each coefficient: the sensitivity's weights."""
    return np.minimum(count, -(-(steps - np.arange(bands)) // min_sep)).astype(np.float64)


def _spaced_norm(coefficients: Array, steps: int, min_sep: int, count: int) -> float:
    """||C x||^2 for Toeplitz C and x = 1 at 0, min_sep, 2 min_sep, ..."""
    if min_sep >= len(coefficients):
        return dot(kept(steps, len(coefficients), min_sep, count), np.square(coefficients))
    # The sum of `count` copies, min_sep steps after one another, by the binary digits of count.
    image, copies, done, width = np.zeros(steps), np.zeros(steps), 0, 1
    copies[: len(coefficients)] = coefficients[:steps]
    while width <= count:
        if count & width:
            shift = min(steps, done * min_sep)
            image[shift:] += copies[: steps - shift]
            done += width
        shift = min(steps, width * min_sep)
        copies[shift:] += copies[: steps - shift].copy()
        width *= 2
    return dot(image, image)


def _squared_norm(columns: Array, steps: int, pattern: list[int]) -> float:
    image = np.zeros(steps)
    for start in pattern:
        column = columns[0] if len(columns) == 1 else columns[start]
        length = min(len(column), steps - start)
        image[start : start + length] += column[:length]
    return dot(image, image)


def _heaviest(weights: Array, min_sep: int, count: int) -> tuple[float, list[int]]:
    """The largest sum of ``count`` non-negative weights at least ``min_sep`` apart, and where it is attained.

    Where the table of the dynamic program would be too large, the sum of the largest ones, wherever
    they are: an upper bound still (the pattern is then the evenly spaced one).
    """
    steps = len(weights)
    unlimited = count >= -(-steps // min_sep)
    width = 1 if unlimited else count
    if steps * width > _MAX_TABLE:
        return float(np.sum(np.sort(weights)[-count:])), list(range(0, steps, min_sep))[:count]
    # best[i + min_sep - 1]: the most from the first i steps, one entry per number of participations.
    best = np.zeros((steps + min_sep, width + 1))
    for i in range(steps):
        before = best[i]
        taken = before + weights[i]
        if not unlimited:
            taken = np.concatenate([[0.0], taken[:-1]])
        best[i + min_sep] = np.maximum(best[i + min_sep - 1], taken)
    pattern, i, k = [], steps - 1, width
    while i >= 0 and k > 0:
        if best[i + min_sep, k] > best[i + min_sep - 1, k]:
            pattern.append(i)
            i -= min_sep
            k -= 0 if unlimited else 1
        else:
            i -= 1
    return float(best[-1, width]), pattern[::-1]


def _row_maxima(columns: Array, steps: int, min_sep: int, count: int) -> Array:
    """For each i the most that row i of C'C can add up to over the patterns that contain i.

    ||C x||^2 = sum of x_i x_j (C'C)_ij is at most the sum of these over the pattern. Participations
    are not counted where the bands hold no more of them anyway, or where the table would be too large.
    """
    bands = columns.shape[1]
    others = count - 1
    counted = others < 2 * ((bands - 1) // min_sep) and (min_sep + 1) * (others + 1) <= _MAX_TABLE
    width = others if counted else 1
    maxima = np.empty(steps)
    rows = max(1, min(steps, _MAX_TABLE // 8 // ((min_sep + 1) * (width + 1))))
    for first in range(0, steps, rows):
        block = np.arange(first, min(first + rows, steps))
        # best[at % (min_sep + 1)]: the most from the offsets up to `at`, by number of participations.
        best = np.zeros((min_sep + 1, len(block), width + 1))
        for at, offset in enumerate(range(1 - bands, bands)):
            here = best[at % (min_sep + 1)]
            # Overwriting `here` last: what lies min_sep steps back is in the slot after it.
            before = best[(at + 1) % (min_sep + 1)]
            here[:] = best[(at - 1) % (min_sep + 1)]
            if abs(offset) >= min_sep:
                gram = _gram(columns, steps, block, offset)[:, None]
                taken = before[:, :-1] + gram if counted else before + gram
                target = here[:, 1:] if counted else here
                np.maximum(target, taken, out=target)
        maxima[block] = here.max(axis=1) + _gram(columns, steps, block, 0)
    return maxima


def _gram(columns: Array, steps: int, block: Any, offset: int) -> Array:
    """(C'C)[i, i + offset] for each i in ``block``; 0 outside the matrix."""
    first = block if offset >= 0 else block + offset
    shift = abs(offset)
    inside = (first >= 0) & (first + shift < steps)
    left = np.where(inside, first, 0)
    values: Array
    if len(columns) == 1:
        # Products of the overlapping parts, cut off at the last row.
        products = np.cumsum(columns[0, shift:] * columns[0, : columns.shape[1] - shift])
        values = products[np.clip(steps - left - shift, 1, len(products)) - 1]
    else:
        right = np.where(inside, first + shift, 0)
        overlap = columns.shape[1] - shift
        values = np.einsum("ij,ij->i", columns[left, shift:], columns[right, :overlap])
    return np.where(inside, values, 0.0)
