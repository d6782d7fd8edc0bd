"""Certified binomial tails: two-sided bounds for any size, down to 1e-300 and below.

Probabilities of single values come from 60-digit decimals, sums over the tail from the ratios of
neighbouring values in double precision with a counted rounding error.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np
import scipy  # its parts are loaded when they are used

from .decimals import in_digits

_EXACT = Decimal("1e-40")  # *proof*: bounds every relative error of the decimal part
_ROUND_OFF = 2.0**-53  # *proof*: half a unit of the last place
_CHUNK = 2**16  # *speed*
_MOST_TERMS = 2**23
"""*Speed*: a sum of more terms than this (above about n = 1e12 in the middle of the law) is replaced by Zubkov and Serov's bounds."""

_HALF_LOG_TWO_PI = Decimal("0.91893853320467274178032973640561763986139747363778341281715")  # *proof*
_STIRLING_FROM = 100  # *proof*
# B_{2k} / (2k (2k-1)): the next term of Stirling's series bounds the error, here below 1e-55.
_STIRLING_TERMS = (
    "1/12 -1/360 1/1260 -1/1680 1/1188 -691/360360 1/156 -3617/122400 43867/244188 -174611/125400 "
    "77683/5796 -236364091/1506960 657931/300 -3392780147/93960"
)
_STIRLING = [Fraction(term) for term in _STIRLING_TERMS.split()]


@dataclass(frozen=True)
class Tail:
    """Bounds on Pr[X >= k] and on the hazard Pr[X = k] / Pr[X >= k], X ~ Binomial(trials, probability).

    ``below_low`` and ``below_high`` bound Pr[X < k], each with a small relative error of its own;
    ``survival`` bounds Pr[X > k] / Pr[X >= k] = 1 - hazard from above, without cancellation.
    """

    low: float
    high: float
    below_low: float
    below_high: float
    survival: float


@functools.lru_cache(maxsize=4096)
def tail(trials: int, probability: float, k: int) -> Tail:
    """Bounds for X >= k: valid for 0 <= trials <= 2^53, any probability in [0, 1] and any k.

    Every pair of bounds has a relative gap of at most 1e-10 for up to 1e7 trials, 1e-8 for 1e12 in the
    middle of the law, and 1e-5 beyond that, also where the tail is 1e-300. What underflows has the
    lower bound 0 and the upper bound 5e-324.
    """
    if k <= 0:
        return Tail(1.0, 1.0, 0.0, 0.0, 1.0)
    if k > trials or probability == 0.0:
        return Tail(0.0, 0.0, 1.0, 1.0, 0.0)
    if probability == 1.0:
        return Tail(1.0, 1.0, 0.0, 0.0, 0.0 if k == trials else 1.0)
    with in_digits(60):
        p = Decimal(probability)
        if k > trials * p:  # sum upwards from k
            sums = _sums(trials, k, p)
            if sums is None:
                return _zubkov_serov(trials, p, k)
            mass = _mass(trials, k, p)
            low, high = mass * sums[0], mass * sums[1]
            if low < Decimal("0.99"):  # else p is nearly 1, and the other side is the small one
                return _tail(low, high, 1 - high, 1 - low, sums[2] / (1 + sums[2]))
        # The other side: trials - X >= trials - k + 1.
        sums = _sums(trials, trials - k + 1, 1 - p)
        if sums is None:
            return _zubkov_serov(trials, p, k)
        mass = _mass(trials, k - 1, p)
        low, high = mass * sums[0], mass * sums[1]
        # Pr[X = k] = Pr[X = k-1] (trials - k + 1) p / (k (1-p))
        at_k = mass * (trials - k + 1) * p / (k * (1 - p))
        return _tail(1 - high, 1 - low, low, high, 1 - at_k / (1 - low))


def _tail(low: Decimal, high: Decimal, below_low: Decimal, below_high: Decimal, survival: Decimal) -> Tail:
    return Tail(_down(low), _up(high), _down(below_low), _up(below_high), _up(survival))


def _up(value: Decimal) -> float:
    """A double that is not below a number in [0, 1] known up to a relative error of _EXACT."""
    return min(1.0, math.nextafter(float(value * (1 + _EXACT)), math.inf))


def _down(value: Decimal) -> float:
    return max(0.0, math.nextafter(float(value * (1 - _EXACT)), -math.inf))


def _mass(trials: int, k: int, p: Decimal) -> Decimal:
    """Pr[X = k]; 60 digits leave more than 40 right, as no logarithm here is above 1e19."""
    log_mass = _log_factorial(trials) - _log_factorial(k) - _log_factorial(trials - k)
    log_mass += k * p.ln() + (trials - k) * (1 - p).ln()
    return log_mass.exp()


@functools.lru_cache(maxsize=4096)
def _log_factorial(m: int) -> Decimal:
    """ln m! to about 60 digits, among that many."""
    if m < _STIRLING_FROM:
        return Decimal(math.factorial(m)).ln()
    x = Decimal(m)
    total = (x + Decimal("0.5")) * x.ln() - x + _HALF_LOG_TWO_PI
    power, square = x, x * x
    for term in _STIRLING:
        total += Decimal(term.numerator) / (term.denominator * power)
        power *= square
    return total


def _sums(trials: int, k: int, p: Decimal) -> tuple[Decimal, Decimal, Decimal] | None:
    """Bounds on Pr[X >= k] / Pr[X = k], and an upper bound on Pr[X > k] / Pr[X = k]; None if they take too many terms.

    S_j = 1 + r_j S_{j+1}, r_j = Pr[X = j+1] / Pr[X = j] = (trials - j) p / ((j+1) (1-p)), which falls
    with j, so that 1 <= S_j <= 1 / (1 - r_j) starts the recursion.
    """
    odds = float(p / (1 - p))
    mean, deviation = float(trials * p), math.sqrt(float(trials * p * (1 - p)))
    ratio = (trials - k) / (k + 1.0) * odds
    terms = 10.0 * deviation + 64.0
    if 0.0 < ratio < 1.0:
        terms = min(terms, 50.0 / -math.log(ratio) + 2.0)
    terms += max(0.0, mean - k)
    if terms > _MOST_TERMS:
        return None
    last = min(trials, k + math.ceil(terms))
    final = (trials - last) / (last + 1.0) * odds * (1.0 + 8.0 * _ROUND_OFF)
    if not final < 1.0:
        return None
    # S_last; then downwards in chunks, whose cumulative products carry an error of 6 units a factor.
    low, high, error = 1.0, 1.0 / (1.0 - final), 8.0 * _ROUND_OFF
    beyond = final * high  # of `last`
    for end in range(last, k, -_CHUNK):
        start = max(k, end - _CHUNK)
        j = np.arange(start, end, dtype=np.float64)
        products = np.cumprod((trials - j) / (j + 1.0) * odds)
        inner = math.fsum(products[:-1])
        error += 6.0 * _ROUND_OFF * (end - start + 1)
        beyond = inner + float(products[-1]) * high
        low, high = 1.0 + inner + float(products[-1]) * low, 1.0 + beyond
    grow, shrink = Decimal(1.0 + 2.0 * error), Decimal(1.0 - 2.0 * error)
    return Decimal(low) * shrink, Decimal(high) * grow, Decimal(beyond * (1.0 + 2.0 * error))


def _zubkov_serov(trials: int, p: Decimal, k: int) -> Tail:
    """Phi(z_j) <= Pr[X <= j] <= Phi(z_{j+1}), z_j = sign(j/n - p) sqrt(2 n KL(j/n || p)).

    Zubkov and Serov 2013, Theorem 1: closed, valid for every n, p and 0 <= j < n, and close where n is large.
    """

    def z(j: int) -> float:
        rate = Decimal(j) / trials
        divergence = Decimal(0)
        if j > 0:
            divergence += rate * (rate / p).ln()
        if j < trials:
            divergence += (1 - rate) * ((1 - rate) / (1 - p)).ln()
        root = math.sqrt(max(0.0, float(2 * trials * divergence)))
        return root if rate > p else -root

    def phi(value: float, error: float) -> Decimal:
        return Decimal(float(scipy.special.log_ndtr(value))).exp() * Decimal(1.0 + error)

    # Pr[X >= k] = 1 - Pr[X <= k-1]
    slack = 1e-11  # what sqrt and log_ndtr may be off by, for every tail above 1e-320
    low, high = phi(-z(k), -slack), phi(-z(k - 1), slack)
    below_low, below_high = phi(z(k - 1), -slack), phi(z(k), slack)
    return _tail(low, high, below_low, below_high, Decimal(1))
