"""Skellam noise: the difference of two Poisson variables (docs/mechanisms/skellam.md)."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, ClassVar

import numpy as np
import scipy  # its parts are loaded when they are used
from numpy.typing import NDArray

from .._base.decimals import in_digits
from .._base.types import Array
from .._base.validation import integer, real
from .atoms import CUT, IntegerNoise
from .numeric import _OnIntegers

LEAST_VARIANCE, MOST_VARIANCE, MOST_SENSITIVITY = 1e-100, 1e5, 2**12
"""*Speed*: within these every integer that carries mass is an atom of its own."""
_DIGITS = 60
"""*Proof*: of the ratios; the recursion loses at most as many as the variance has."""
_FURTHER = 200
"""*Proof*: steps beyond the last integer, each of which makes the first ratio's error smaller (section 2 of the page)."""
_COARSE, _FINE = 2.0**-30, 2.0**-68
"""*Proof*: sums of multiples are below 2^52 of them, and less than 2^-50 of any term is lost (section 2 of the page)."""


@dataclass(frozen=True)
class SkellamNoise(IntegerNoise):
    """Pr[t] = e^-v I_t(v), v = scale^2 the variance."""

    kind: str = "skellam"
    scale: float = 1.0
    variance: float = 1.0
    loss_error: ClassVar[float] = 16.0  # *proof*: section 2 of the page

    @property
    def reach(self) -> float:
        """Pr[|noise| >= reach] < CUT, by Chernoff's bound."""
        v, enough = self.variance, 1.0 - math.log(0.5 * CUT)
        low, high = 0, 2
        while self._chernoff(v, high) < enough:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._chernoff(v, middle) < enough else (low, middle)
        return float(high)

    @staticmethod
    def _chernoff(v: float, t: float) -> float:
        """-ln of the bound on Pr[noise >= t]: t s - v (cosh s - 1) at sinh s = t/v."""
        return t * (math.log(t / v + math.hypot(1.0, t / v)) - t / (v + math.hypot(t, v)))

    def log_mass(self, t: Array) -> Array:
        """ln Pr[noise = t], t integers."""
        place = np.abs(t).astype(np.int64)
        coarse, fine = self._sums(place)
        return np.asarray(math.log(scipy.special.i0e(self.variance)) - (coarse[place] + fine[place]))

    def log_ratio(self, t: Array, shift: int) -> Array:
        """ln Pr[noise = t - shift] / Pr[noise = t]: a sum of terms of one sign."""
        there, here = np.abs(t - shift).astype(np.int64), np.abs(t).astype(np.int64)
        coarse, fine = self._sums(np.maximum(there, here))
        return np.asarray((coarse[here] - coarse[there]) + (fine[here] - fine[there]))

    def _sums(self, place: NDArray[np.int64]) -> tuple[Array, Array]:
        # Rounded up, so that few tables serve all questions.
        return _sums(self.variance, 1 << int(np.max(place, initial=int(self.reach))).bit_length())


@functools.lru_cache(maxsize=8)
def _sums(variance: float, end: int) -> tuple[Array, Array]:
    """Sums over j < t of -ln I_{j+1}/I_j for t = 0..end, in two parts, each of which adds up without rounding."""
    last, terms = end + _FURTHER, np.empty(end)
    with in_digits(_DIGITS):
        v = Decimal(variance)
        ratio = v / (last + (last * Decimal(last) + v * v).sqrt())
        two_over_v = 2 / v
        for j in range(last - 1, -1, -1):
            # I_j = 2 (j+1)/v I_{j+1} + I_{j+2}
            ratio = 1 / two_over_v.fma(j + 1, ratio)
            if j < end:
                far = float(ratio)
                terms[j] = -math.log(far) if far < 0.5 else -math.log1p(-float(1 - ratio))
    coarse = np.rint(terms / _COARSE) * _COARSE
    fine = np.rint((terms - coarse) / _FINE) * _FINE
    return np.append(0.0, np.cumsum(coarse)), np.append(0.0, np.cumsum(fine))


@dataclass(frozen=True)
class Skellam(_OnIntegers):
    """Skellam noise on an integer query: the difference of two independent Poisson variables (Agarwal, Kairouz and Liu 2021).

    Pr[t] = e^-v I_|t|(v), v = ``variance`` in [1e-100, 1e5] (each of the two Poisson variables has mean and variance v/2; the noise
    of k servers who add Skellam noise is Skellam noise, their variances added). The query is an integer that changes by at most the
    integer ``sensitivity`` in [1, 4096] when one record is added or removed.

    >>> from hockeystick import account
    >>> lower, upper = account(Skellam(variance=100.0)).epsilon_bounds(1e-6)
    >>> 0.3 < lower <= upper < 0.6 and upper - lower < 1e-3
    True
    """

    variance: Annotated[float, functools.partial(real, low=LEAST_VARIANCE, high=MOST_VARIANCE)]
    sensitivity: Annotated[int, functools.partial(integer, low=1, high=MOST_SENSITIVITY)] = 1
    most_sensitivity = MOST_SENSITIVITY
    noise_convention = "variance of Skellam noise and add/remove sensitivity in units of the query"

    def noise(self) -> IntegerNoise:
        return SkellamNoise("skellam", math.sqrt(self.variance), self.variance)
