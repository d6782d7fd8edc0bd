"""Dominating pairs with finitely many losses, and integer-valued noise.

A pair is held as `Atoms`: losses in increasing order, their masses under P and Q, and the mass P
has where Q has none. Whatever had to be merged or cut was moved to a larger loss, with P's total
mass kept, so the atoms still dominate the mechanism.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Array: TypeAlias = NDArray[np.float64]

MAX_ATOMS = 2**15
"""More integers than this are represented by equally spaced anchors (see `_integers`)."""

CUT = 1e-310
"""Tails of integer noise lighter than this are moved to loss +inf."""

_GAUSSIAN_REACH = 38.0  # exp(-38^2/2) = 3e-314
_LAPLACE_REACH = 720.0  # exp(-720) = 2e-313


@dataclass(frozen=True, eq=False)
class Atoms:
    """A discrete pair (P, Q): ``losses`` strictly increasing, masses ``p`` and ``q``, all of shape (n,).

    ``p_infinity`` is P's mass at loss +inf. If ``spacing`` > 0, every loss is an integer multiple
    of it. Q's missing mass sits where P has none.
    """

    losses: Array
    p: Array
    q: Array
    p_infinity: float = 0.0
    spacing: float = 0.0


def revealing(p_infinity: float = 1.0) -> Atoms:
    """The data are published with probability ``p_infinity``, otherwise nothing is."""
    rest = np.array([1.0 - p_infinity])
    return Atoms(np.zeros(1), rest, rest.copy(), p_infinity)


def randomized_response(epsilon: float, num_categories: int = 2, delta: float = 0.0) -> Atoms:
    """Losses epsilon, 0, -epsilon with P-masses e^eps r, (k-2) r, r, where r = 1/(e^eps + k - 1).

    All masses are multiplied by 1 - delta; delta is P's mass at +inf and Q's at -inf. With k = 2
    this is the worst case of (epsilon, delta)-DP (Kairouz, Oh, Viswanath 2015, Theorem 3.3).
    """
    others = math.log(num_categories - 1)
    truth = (1.0 - delta) * float(expit(epsilon - others))
    lie = (1.0 - delta) * float(expit(others - epsilon)) / (num_categories - 1)
    if num_categories == 2:
        losses, p = np.array([-epsilon, epsilon]), np.array([lie, truth])
    else:
        losses = np.array([-epsilon, 0.0, epsilon])
        p = np.array([lie, (num_categories - 2) * lie, truth])
    return Atoms(losses, p, p[::-1].copy(), delta, epsilon)


def response_against_uniform(epsilon: float, num_categories: int) -> tuple[Atoms, Atoms]:
    """Randomized response on one value against a uniformly random value, and the two swapped.

    With k categories and r = 1/(e^eps + k - 1): P-masses e^eps r and (k-1) r, Q-masses 1/k and
    (k-1)/k, losses ln(k e^eps r) and ln(k r).
    """
    k = num_categories
    others = math.log(k - 1)
    truth, lies = float(expit(epsilon - others)), float(expit(others - epsilon))
    high = -math.log1p((k - 1) / k * math.expm1(-epsilon))
    low = -math.log1p(math.expm1(epsilon) / k) if epsilon < 1.0 else high - epsilon
    response, uniform = np.array([lies, truth]), np.array([(k - 1) / k, 1.0 / k])
    forth = Atoms(np.array([low, high]), response, uniform)
    back = Atoms(np.array([-high, -low]), uniform[::-1].copy(), response[::-1].copy())
    return forth, back


def _log_mean(q: float, a: Array) -> Array:
    """ln(1 - q + q e^a), precise for small q a and free of overflow."""
    if q == 1.0:
        return a
    small = np.log1p(q * np.expm1(np.minimum(a, 1.0)))
    large = np.logaddexp(math.log1p(-q), math.log(q) + a)
    return np.where(a < 1.0, small, large)


@dataclass(frozen=True)
class IntegerNoise:
    """Even, log-concave noise on the integers: discrete Laplace or discrete Gaussian."""

    kind: str  # "laplace" | "gaussian"
    scale: float

    @property
    def reach(self) -> float:
        """Pr[|noise| >= reach] < CUT."""
        width = _GAUSSIAN_REACH if self.kind == "gaussian" else _LAPLACE_REACH
        return math.ceil(width * self.scale) + 1.0

    def log_mass(self, t: Array) -> Array:
        """ln Pr[noise = t], also between the integers."""
        s = self.scale
        if self.kind == "laplace":
            return math.log(math.tanh(0.5 / s)) - np.abs(t) / s
        if s < 1.0:
            grid = np.arange(-40.0, 41.0)
            log_total = math.log(math.fsum(np.exp(-0.5 * (grid / s) ** 2)))
        else:  # Poisson summation; the next term is below 1e-34
            log_total = math.log(s * math.sqrt(2.0 * math.pi)) + math.log1p(
                2.0 * math.exp(-2.0 * (math.pi * s) ** 2)
            )
        return np.asarray(-0.5 * (t / s) ** 2 - log_total)

    def log_ratio(self, t: Array, shift: int) -> Array:
        """ln Pr[noise = t - shift] / Pr[noise = t], without cancellation."""
        if self.kind == "laplace":
            a = np.clip(2.0 * t - shift, -abs(shift), abs(shift)) / self.scale
            return np.asarray(math.copysign(1.0, shift) * a)
        return np.asarray(shift / self.scale * ((2.0 * t - shift) / (2.0 * self.scale)))

    def log_tail(self, t: float) -> float:
        """ln Pr[noise >= t] of discrete Laplace noise, t an integer."""
        log_r = -1.0 / self.scale
        log_half = -math.log1p(math.exp(log_r))  # Pr[noise >= 0]
        if t >= 0:
            return t * log_r + log_half
        return math.log(-math.expm1((1.0 - t) * log_r + log_half))


def shifted(noise: IntegerNoise, shift: int) -> Atoms:
    """The pair (shift + noise, noise).

    Discrete Laplace: losses (shift - 2j)/scale. Discrete Gaussian: losses
    shift (2t - shift) / (2 sigma^2).
    """
    return _integers(noise, shift, 1.0)


def sampled_replace_one(noise: IntegerNoise, shift: int, q: float) -> Atoms:
    """The pair ((1-q) N + q (N + shift), (1-q) N + q (N - shift)) for integer noise N.

    Worst case of Poisson sampling under replace-one (docs/replacement.md, section 5).
    """
    return _integers(noise, shift, q)


def _integers(noise: IntegerNoise, shift: int, q: float) -> Atoms:
    """P = (1-q) N + q (N + shift); Q = N if q = 1, else (1-q) N + q (N - shift); loss increasing.

    If more than MAX_ATOMS integers carry mass, every b-th one is an anchor, and the mass between
    two anchors is split onto them so that P- and Q-mass are kept (connect the dots, Doroshenko et
    al. 2022): an upper bound whose relative error in the variance of the loss is below 1e-6. The
    integers in between are summed by the 3-node quadrature that is exact for polynomials of degree
    5; over one block the masses vary by a few per cent, so its error is below double precision.
    Time and memory are O(MAX_ATOMS) whatever the scale.
    """
    sampled = q < 1.0

    def loss(t: Array) -> Array:
        if not sampled:
            return noise.log_ratio(t, shift)
        return _log_mean(q, noise.log_ratio(t, shift)) - _log_mean(q, noise.log_ratio(t, -shift))

    def p_mass(t: Array) -> Array:
        mass = q * np.exp(noise.log_mass(t - shift))
        return np.asarray(mass + (1.0 - q) * np.exp(noise.log_mass(t)) if sampled else mass)

    anchors, between = _anchors(noise, shift, sampled)
    losses, p = loss(anchors), p_mass(anchors)
    if between.any():
        second = (between**2 - 1.0) / 12.0  # moments of `between` consecutive integers
        fourth = second * (3.0 * between**2 - 7.0) / 20.0
        node = np.sqrt(np.divide(fourth, second, out=np.ones_like(second), where=second > 0.0))
        weight = 0.5 * np.maximum(second, 0.0) / node**2
        middle, gap = 0.5 * (anchors[:-1] + anchors[1:]), np.diff(losses)
        safe_gap = np.where(gap > 0.0, gap, 1.0)
        for sign, share in ((-1.0, weight), (0.0, 1.0 - 2.0 * weight), (1.0, weight)):
            t = middle + sign * node
            mass = between * share * p_mass(t)
            up = np.expm1(losses[:-1] - loss(t)) / np.expm1(-safe_gap)
            # A little too much on the upper anchor covers the rounding of `up`. Where the loss
            # jumps (enormous epsilon) or not at all, everything goes there.
            up = np.where((gap > 0.0) & (gap < 0.1), np.clip(up + 1e-8, 0.0, 1.0), 1.0)
            p[:-1] += mass * (1.0 - up)
            p[1:] += mass * up
    p_infinity = CUT
    if noise.kind == "laplace":  # beyond the anchors the loss stays constant
        bottom, top = anchors[0], anchors[-1]
        p[-1] += _tail(noise, top + 1.0 - shift, top + 1.0, q)
        if bottom == (-shift if sampled else 0.0):
            p[0] += _tail(noise, shift - bottom + 1.0, 1.0 - bottom, q)
            p_infinity = 0.0
    spacing = 0.0
    if not sampled and not between.any():
        unit = 1.0 / noise.scale if noise.kind == "laplace" else shift / noise.scale / noise.scale
        # The losses are unit/2 or unit times 2t - shift, whose parity is fixed.
        half = noise.kind == "gaussian"
        spacing = unit * (0.5 if half else 1.0) * (1.0 if shift % 2 else 2.0)
        losses = spacing * np.rint(losses / spacing)
    losses, p = _merge_ties(losses, p)
    with np.errstate(divide="ignore"):
        q_mass = np.exp(np.log(p) - losses)
    return Atoms(losses, p, np.minimum(q_mass, 1.0), p_infinity, spacing)


def _anchors(noise: IntegerNoise, shift: int, sampled: bool) -> tuple[Array, Array]:
    """The integers that become atoms, and how many integers between neighbours carry P-mass."""
    reach = noise.reach
    if not sampled:
        ranges = [(shift - reach, shift + reach)]
    elif shift > 2.0 * reach:  # two heaps far apart, nothing in between
        ranges = [(-reach, reach), (shift - reach, shift + reach)]
    else:
        ranges = [(-reach, shift + reach)]
    if noise.kind == "laplace":  # beyond these ends the loss stays constant
        bottom, top = (-float(shift) if sampled else 0.0), float(shift)
        ranges = [(max(a, bottom), min(b, top)) for a, b in ranges]
    block = max(1.0, math.ceil(math.fsum(b - a for a, b in ranges) / MAX_ATOMS))
    anchors, between = [], []
    for a, b in ranges:
        # The densities have a kink at 0 and at `shift`: a quadrature must not cross it.
        knots = [a, *(x for x in (0.0, float(shift)) if a < x < b), b]
        parts = [np.arange(x, y, block) for x, y in pairwise(knots)]
        part = np.concatenate([*parts, [b]])
        anchors.append(part)
        between.append(np.append(np.diff(part) - 1.0, 0.0))
    return np.concatenate(anchors), np.concatenate(between)[:-1]


def _tail(noise: IntegerNoise, shifted_from: float, centred_from: float, q: float) -> float:
    """q Pr[noise >= shifted_from] + (1-q) Pr[noise >= centred_from]."""
    tail = q * math.exp(noise.log_tail(shifted_from))
    return tail if q == 1.0 else tail + (1.0 - q) * math.exp(noise.log_tail(centred_from))


def _merge_ties(losses: Array, p: Array) -> tuple[Array, Array]:
    """Make the losses strictly increasing: atoms that rounding made equal share the larger loss."""
    losses = np.maximum.accumulate(losses)
    last = np.append(losses[1:] > losses[:-1], True)
    first = np.concatenate(([0], np.flatnonzero(last)[:-1] + 1))
    return losses[last], np.add.reduceat(p, first)
