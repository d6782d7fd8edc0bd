"""Epsilon of what has been spent so far, where norms, steps and the end of the run depend on the outputs: an odometer.

With S_k the sum of log-moments at orders lambda_k > 0 and weights w_k of sum at most 1, all fixed in advance, it is

    epsilon = sup_x { x + ln(1 - delta sum_k w_k e^{lambda_k x - S_k}) }

and E (1 - e^{epsilon - L})_+ <= delta (docs/individual/individual.md, "What has been spent so far").
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from .._base.validation import real
from .spending import Floats

_ROWS = 2**14  # speed only: how many examples are answered at a time
_BITS = 12  # speed only: what has been spent is rounded up to so many bits, 2^-12 of it at most
_LEVELS = 40  # *speed*: the weights of so many sum to less than 1
_LEAST = -1e280  # *speed*: smaller terms are left out
_ROUNDS = 60  # *speed*: Newton's method takes less than ten of them; any number of them is sound


class Moments(NamedTuple):
    """Orders of moments ``at`` lambda_k > 0, increasing or not, and their ``weights``: fixed before the first output."""

    at: Floats
    weights: Floats


def gaussian_moments(scale: float, delta: float, growing: bool) -> Moments:
    """The orders that are best at ``delta`` for sums of mu^2 of scale 2^k (``growing``) or scale 2^-k, k = 0, 1, ..., 39.

    Any choice is sound. Weights 1 / ((k + 1) (k + 2)) cost ln((k + 1) (k + 2)) in ln(1/delta).
    """
    k = np.arange(_LEVELS, dtype=np.float64)
    levels = max(scale, 1e-200) * np.exp2(k if growing else -k)
    at = np.sqrt(2.0 * max(0.1, -math.log(delta)) / levels)
    return Moments(np.clip(at, 1e-100, 1e100), 1.0 / ((k + 1.0) * (k + 2.0)))


def gaussian_spent(spent: Floats, scale: float, delta: float, *, growing: bool) -> Floats:
    """The epsilons at ``delta`` in [0, 1] of sums of mu^2, with the orders of `gaussian_moments`."""
    delta = real("delta", delta, 0.0, 1.0)
    spent = np.asarray(spent)
    if delta == 0.0:
        return np.where(spent > 0.0, np.inf, 0.0)
    if delta == 1.0:
        return np.zeros(spent.shape)
    return gaussian_epsilons(spent, gaussian_moments(scale, delta, growing), delta)


def gaussian_epsilons(spent: Floats, moments: Moments, delta: float) -> Floats:
    """The epsilons at ``delta`` in (0, 1) of sums of mu^2, shape (n,): the log-moments are lambda (lambda + 1) mu^2 / 2, or less."""
    # A larger sum has a larger epsilon: few different ones are left, however many examples there are.
    mantissa, exponent = np.frexp(spent)
    rounded = np.ldexp(np.ceil(np.ldexp(mantissa, _BITS)), exponent - _BITS)
    different, where = np.unique(rounded, return_inverse=True)
    with np.errstate(over="ignore"):
        cost = 0.5 * moments.at * (moments.at + 1.0)
        sums = np.where(different[:, None] > 0.0, np.maximum(5e-324, different[:, None] * cost), 0.0)
    return spent_epsilons(sums, moments, delta)[where.reshape(spent.shape)]


def spent_epsilons(sums: Floats, moments: Moments, delta: float) -> Floats:
    """The epsilons at ``delta`` in (0, 1) of the sums S of log-moments, shape (n, K): upper bounds, shape (n,).

    0 where all sums are 0: no step of that example revealed anything.
    """
    out = np.empty(len(sums))
    for start in range(0, len(sums), _ROWS):
        part = np.asarray(sums[start : start + _ROWS], np.float64)
        out[start : start + _ROWS] = _upper(part, moments, delta)
    return out


def _upper(sums: Floats, moments: Moments, delta: float) -> Floats:
    at = moments.at
    heads = math.log(delta) + np.log(moments.weights) + np.log1p(at) - sums
    # Without a term M is smaller, so this is sound; and nothing overflows.
    heads[heads < _LEAST] = -np.inf
    # The supremum is where t = sum_k e^{heads_k + lambda_k x} is 1. ln t is convex and grows with x, so Newton's method
    # comes down to it from where a single term is 1.
    with np.errstate(over="ignore"):
        x = np.min(-heads / at, axis=1)
    open_end = ~np.isfinite(x)
    x[open_end] = 0.0
    for _ in range(_ROUNDS):
        log_t, shares = _terms(heads, at, x)
        step = log_t / (shares @ at)
        step[open_end] = 0.0
        x = x - np.maximum(0.0, step)
        if not bool((step > 1e-14 * (1.0 + np.abs(x))).any()):
            break
    log_t, shares = _terms(heads, at, x)
    t = np.exp(log_t)
    ratio = shares @ (1.0 / (1.0 + at))  # delta sum_k w_k e^{...} over t
    rest = 1.0 - np.minimum(t * ratio, 1.0 - 2.0**-52)
    # Concave: from x to the supremum it rises by at most slope times distance.
    slope, distance = np.abs(t - 1.0) / rest, np.abs(log_t) / at.min()
    # Exponents are off by a few units of their last place, and so is x.
    with np.errstate(over="ignore"):
        relevant = np.where(shares > 1e-40, 1.0 + np.abs(heads) + at * np.abs(x)[:, None], 0.0)
    rounding = 2.0**-46 * relevant.max(axis=1) * (1.0 + t / rest) + 2.0**-46 * np.abs(x)
    with np.errstate(invalid="ignore"):
        epsilon = np.maximum(0.0, x + np.log(rest) + slope * distance + rounding)
    epsilon[open_end] = np.inf
    epsilon[~sums.any(axis=1)] = 0.0
    return np.asarray(epsilon, np.float64)


def _terms(heads: Floats, at: Floats, x: Floats) -> tuple[Floats, Floats]:
    """(ln of the sum, each term's share of it)."""
    with np.errstate(over="ignore", invalid="ignore"):
        exponents = np.where(np.isfinite(heads), heads + at * x[:, None], -np.inf)
    largest = np.max(exponents, axis=1, keepdims=True)
    largest[~np.isfinite(largest)] = 0.0
    terms = np.exp(exponents - largest)
    total = terms.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(total) + largest[:, 0], np.where(total[:, None] > 0.0, terms / total[:, None], 0.0)
