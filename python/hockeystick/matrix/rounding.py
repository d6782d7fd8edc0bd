"""What rounding of correlated noise does to the law of Z, bounded before a row is made (docs/matrix/noise.md, "How exact the rows are").

The rows w that are released satisfy C w = Z + e exactly. Where C^{-1} grows, so do the rows, and e, which is relative to them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from .._base.types import Array
from .._base.validation import ParameterError
from .strategy import Strategy, row_sums

MOST_ROUNDING = 2.0**-10
"""*Proof*: most that the entries of e may be, root mean square, in standard deviations of an entry of Z."""

LARGEST_NORMAL = 9.51
"""*Proof*: no entry of Z is larger; 9.5 is that of Box-Muller from 64 bits."""

_DOUBLE, _SINGLE = 2.0**-53, 2.0**-24
"""*Proof*: relative rounding of a double, and of a single-precision number."""
_PROBES, _ABOVE = 32, 8.0
"""*Proof*: so many random right sides, and a norm exceeds so many times what they show with probability below 1e-22: 8^2 times a mean of 32 squared
normals is below 1 with probability at most (t e^{1-t})^16, t = 1/64."""


class _Sizes(NamedTuple):
    """Bounds on the rows w = C^{-1} Z for independent standard normals Z, and on what their rounding adds to an entry of C w.

    ``added`` is its root mean square for these w; ``fed`` the most that it adds for a Z with entries of at most 1, whatever they are; ``norm`` the largest
    norm of a row of C^{-1}, ``row`` the largest sum of its magnitudes.
    """

    added: float
    fed: float
    norm: float
    row: float

    def share(self) -> float:
        """E <= ``added`` + ``fed`` E, for the largest root mean square E of an entry of e."""
        return self.added / (1.0 - self.fed) if self.fed < 1.0 else math.inf


class Rounding(NamedTuple):
    """A bound on the entries of C^{-1} Z, and one on E for rows that are returned in single precision, which may be more than may be returned."""

    largest: float
    returned_single: float


def check_rounding(strategy: Strategy, state: np.dtype[Any]) -> Rounding:
    """What rounding does to C^{-1} Z, for rows kept as ``state``; ParameterError where it changes Z too much.

    Guarantee: the rows are C^{-1} (Z + e), e a function of Z, and so of the seed, alone, whose entries have a root mean square of
    at most 2^-10, as long as they are returned as they are, or rounded with what they are added to.
    """
    with np.errstate(all="ignore"):
        sizes = _sizes(strategy, state)
        share = sizes.share()
        largest = LARGEST_NORMAL * sizes.row / (1.0 - sizes.fed) if sizes.fed < 1.0 else math.inf
        # Each entry of a row is off by this share of it, and C adds them up.
        rounded = _SINGLE * float(np.max(row_sums(strategy._columns(), strategy.steps)))
        returned = sizes._replace(
            added=sizes.added + rounded * sizes.norm, fed=sizes.fed + rounded * sizes.row
        ).share()
    if not (share <= MOST_ROUNDING and largest <= float(np.finfo(state).max)):
        raise ParameterError(
            f"strategy = {type(strategy).__name__}(steps={strategy.steps}, bands={strategy.bands}): a row of its inverse has entries that add up to "
            f"{sizes.row:.3g}, so that rounding of rows kept as {state} changes Z by up to {share:.3g} of its standard deviation; must be at most "
            "2^-10. Take fewer steps, coefficients whose inverse does not grow, or state_dtype = float64 if it is float32"
        )
    return Rounding(largest, returned)


def _sizes(strategy: Strategy, state: np.dtype[Any]) -> _Sizes:
    form, columns = strategy.recurrence()
    single = 0.0 if state == np.float64 else _SINGLE
    if form == "inverse":
        return _of_inverse(strategy, columns, single)
    if form == "buffers":
        return _of_buffers(strategy, columns, single)
    return _of_strategy(strategy, columns, single)


def _of_strategy(strategy: Strategy, columns: Array, single: float) -> _Sizes:
    """Each row solves its equation up to rounding of its terms, and of itself where it is kept in single precision."""
    steps, bands = strategy.steps, columns.shape[1]
    diagonal = columns[:, 0]
    norms, row = 1.0 / diagonal, float(np.max(1.0 / diagonal))
    if bands > 1 and len(columns) == 1:
        response = strategy.correlated_noise(_impulse(steps))
        norms, row = np.array([math.sqrt(_total(np.square(response)))]), _total(np.abs(response))
    elif bands > 1:
        probes = strategy.correlated_noise(np.random.default_rng(0).standard_normal((steps, _PROBES)))
        norms = _ABOVE * np.sqrt(np.mean(np.square(probes), axis=1))
        row = math.sqrt(steps) * float(np.max(norms))
    # Subnormal numbers are rounded absolutely.
    lost = 2.0**-150 * float(np.max(diagonal)) if single else 0.0
    # Twice, for z_i, which is as large as the other terms together.
    terms = 2.0 * float(bands + 3) * _DOUBLE * float(np.max(row_sums(columns, steps)))

    def rounded(own: float, largest: float) -> float:
        return single * own + lost + terms * largest

    norm = float(np.max(norms))
    added = rounded(float(np.max(diagonal * norms)), norm)
    return _Sizes(added, rounded(float(np.max(diagonal)) * row, row), norm, row)


def _of_inverse(strategy: Strategy, columns: Array, single: float) -> _Sizes:
    """Z is rounded before it is used; rows are sums of its entries, whose rounding C, a little more than their inverse, adds up."""
    row = float(np.max(row_sums(np.abs(columns), strategy.steps))) * (1.0 + single)
    return _Sizes(single + strategy.excess, 0.0, row, row)


def _of_buffers(strategy: Strategy, columns: Array, single: float) -> _Sizes:
    """Every step rounds each buffer, and what that leaves decays as the buffer does (docs/matrix/buffered.md, "The rows")."""
    from scipy.signal import lfilter

    steps, unit = strategy.steps, 2.0 * _DOUBLE + single
    response = strategy.correlated_noise(_impulse(steps))
    row, sums = _total(np.abs(response)), 2.0 * (len(columns[0]) + 3) * _DOUBLE
    norm = math.sqrt(_total(np.square(response)))
    added, fed = sums * norm, sums * row
    for weight, decay in columns.T.tolist():
        kept = lfilter([0.0, 1.0], [1.0, -decay], response)
        left = unit * (1.0 - decay**steps) / (1.0 - decay)
        # The stored buffers, which are what is rounded, are off themselves.
        error = weight * ((left / (1.0 - left) if left < 1.0 else math.inf) + sums) if weight else 0.0
        added += error * math.sqrt(_total(np.square(kept)))
        fed += error * _total(np.abs(kept))
    return _Sizes(added, fed, norm, row)


def _impulse(steps: int) -> Array:
    impulse = np.zeros(steps)
    impulse[0] = 1.0
    return impulse


def _total(values: Array) -> float:
    """Of numbers >= 0: nan where one of them is not a number."""
    return float(np.sum(values))
