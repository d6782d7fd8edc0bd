"""Dominating pairs with finitely many losses, and integer-valued noise.

A pair is held as `Atoms`: losses in increasing order, their masses under P and Q, and the mass P
has where Q has none. Whatever had to be merged or cut was moved to a larger loss, with P's total
mass kept, so the atoms still dominate the mechanism. `Bracket` adds atoms that the mechanism
dominates, where those are others: what was merged is one outcome, and what was cut is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import numpy as np
import scipy  # its parts are loaded when they are used

from .._base.types import Array

MAX_ATOMS = 2**15
"""*Speed*: more integers than this are represented by equally spaced anchors (see `_integers`)."""

CUT = 1e-310
"""*Proof*: tails of integer noise lighter than this are moved to loss +inf."""

_MOST_LACKING = 5e-10
"""*Proof*: the core wants masses that add up to 1 within 1e-9: of noise that is moved by more than 9000 scales, delta may lack what the rule does."""

_PRECISE, _SEEN = 1e-290, 1e-200
"""*Proof*: masses above the first have all their digits. *Speed*: below the second it makes no difference."""

_WIDE_SHIFT = 40.0
"""*Proof*: blocks of merged integers are narrow beside Q's tail, too, up to this many scales of a shift (`_below`)."""

_LARGE = 600.0  # *proof*: e to this over 2^-53 is a double
_GAUSSIAN_REACH = 38.0  # *proof*: exp(-38^2/2) = 3e-314
_LAPLACE_REACH = 720.0  # *proof*: exp(-720) = 2e-313
_LEAST = 1e-323  # *proof*: two of the least double: more than what a product below the normal ones loses


@dataclass(frozen=True, eq=False)
class Atoms:
    """A discrete pair (P, Q): ``losses`` strictly increasing, masses ``p`` and ``q``, all of shape (n,).

    ``p_infinity`` is P's mass at loss +inf. If ``spacing`` > 0, every loss is an integer multiple
    of it. ``q_infinity`` is the mass Q has where P has none; None stands for what ``q`` lacks to 1, which is known
    to a rounding of 1 only. ``loss_error`` bounds the relative error of each loss in units of 2^-53 (0 for multiples of
    ``spacing``), ``total_is_rounded`` says that Q's masses sum to 1 only up to 64 such units.
    """

    losses: Array
    p: Array
    q: Array
    p_infinity: float = 0.0
    spacing: float = 0.0
    q_infinity: float | None = None
    loss_error: float = 2.0
    total_is_rounded: bool = False


@dataclass(frozen=True, eq=False)
class Bracket:
    """Atoms above a mechanism, and atoms below it where the former are not the mechanism itself."""

    upper: Atoms
    lower: Atoms | None = None


def revealing(p_infinity: float = 1.0) -> Atoms:
    """The data are published with probability ``p_infinity``, otherwise nothing is."""
    rest = np.array([1.0 - p_infinity])
    return Atoms(np.zeros(1), rest, rest.copy(), p_infinity, q_infinity=p_infinity)


def shown(loss: float) -> Atoms:
    """One outcome that the record alone can bring about, but for a chance of e^-loss."""
    return Atoms(np.array([loss]), np.ones(1), np.zeros(1))


def _response_masses(epsilon: float, num_categories: int) -> tuple[float, float]:
    """e^eps r and r = 1/(e^eps + k - 1), within 16 units of 2^-53."""
    if num_categories == 2:
        return float(scipy.special.expit(epsilon)), float(scipy.special.expit(-epsilon))
    half = math.exp(-0.5 * epsilon)  # its square may be less than any double where the product is not
    truth = 1.0 / (1.0 + half * (num_categories - 1) * half)
    return truth, half * half * truth


def randomized_response(epsilon: float, num_categories: int = 2, delta: float = 0.0) -> Atoms:
    """Losses epsilon, 0, -epsilon with P-masses e^eps r, (k-2) r, r, where r = 1/(e^eps + k - 1).

    All masses are multiplied by 1 - delta; delta is P's mass at +inf and Q's at -inf. With k = 2
    this is the worst case of (epsilon, delta)-DP (Kairouz, Oh, Viswanath 2015, Theorem 3.3).
    """
    truth, lie = ((1.0 - delta) * mass for mass in _response_masses(epsilon, num_categories))
    if num_categories == 2:
        losses, p = np.array([-epsilon, epsilon]), np.array([lie, truth])
    else:
        losses = np.array([-epsilon, 0.0, epsilon])
        p = np.array([lie, (num_categories - 2) * lie, truth])
    return Atoms(losses, p, p[::-1].copy(), delta, epsilon, delta)


def response_against_uniform(epsilon: float, num_categories: int) -> tuple[Atoms, Atoms]:
    """Randomized response on one value against a uniformly random value, and the two swapped.

    With k categories and r = 1/(e^eps + k - 1): P-masses e^eps r and (k-1) r, Q-masses 1/k and
    (k-1)/k, losses ln(k e^eps r) and ln(k r).
    """
    k = num_categories
    truth, lie = _response_masses(epsilon, k)
    # The sums are of terms of one sign, or as near to 1 as the logarithm allows.
    missed = (k - 1) / k * math.expm1(-epsilon)
    high = -math.log1p(missed) if missed > -0.5 else -math.log(1.0 / k + (k - 1) / k * math.exp(-epsilon))
    low = -math.log1p(math.expm1(epsilon) / k) if epsilon < _LARGE else high - epsilon
    response, uniform = np.array([(k - 1) * lie, truth]), np.array([(k - 1) / k, 1.0 / k])
    forth = Atoms(np.array([low, high]), response, uniform, q_infinity=0.0, loss_error=8.0)
    back = Atoms(
        np.array([-high, -low]), uniform[::-1].copy(), response[::-1].copy(), q_infinity=0.0, loss_error=8.0
    )
    return forth, back


@dataclass(frozen=True)
class IntegerNoise:
    """Even, log-concave noise on the integers: discrete Laplace or discrete Gaussian; `skellam` has one more."""

    kind: str  # "laplace" | "gaussian" | "skellam"
    scale: float
    loss_error: ClassVar[float] = 2.0  # *proof*: see `Atoms`

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


def shifted(noise: IntegerNoise, shift: int) -> Bracket:
    """The pair (shift + noise, noise).

    Discrete Laplace: losses (shift - 2j)/scale. Discrete Gaussian: losses
    shift (2t - shift) / (2 sigma^2).
    """
    upper = _integers(noise, shift, 1.0)
    if _anchors(noise, shift, False)[1].any():
        # Noise moved less far is easier to confuse: threshold tests are optimal, and lose power. Beyond its reach it shows all the same.
        shift = min(shift, math.ceil(max(_WIDE_SHIFT * noise.scale, noise.reach)))
    return Bracket(upper, _below(noise, shift, 1.0))


def sampled_replace_one(noise: IntegerNoise, shift: int, q: float) -> Bracket:
    """The pair ((1-q) N + q (N + shift), (1-q) N + q (N - shift)) for integer noise N.

    Worst case of Poisson sampling under replace-one (docs/mechanisms/replacement.md, section 5).
    """
    upper = _integers(noise, shift, q)
    if shift > _WIDE_SHIFT * noise.scale and _anchors(noise, shift, True)[1].any():
        return Bracket(upper, revealing(0.0))
    return Bracket(upper, _below(noise, shift, q))


@dataclass(frozen=True)
class _Law:
    """P = (1-q) N + q (N + shift) and its loss against Q = N if q = 1, else (1-q) N + q (N - shift)."""

    noise: IntegerNoise
    shift: int
    q: float

    def loss(self, t: Array) -> Array:
        """With a and b the noise's own losses for the shift and for its opposite, and t >= 0 as the loss is odd, for q < 1

        ln (1 + q (e^a - e^b) / (1 - q + q e^b)): b <= 0, b <= a, and a - b is a loss of twice the shift.
        """
        noise, q, k = self.noise, self.q, self.shift
        if q == 1.0:
            return noise.log_ratio(t, k)
        s = np.abs(t)
        a, b, apart = noise.log_ratio(s, k), noise.log_ratio(s, -k), noise.log_ratio(s + k, 2 * k)
        e_b = np.exp(b)
        moved = np.where(
            apart < 1.0, e_b * np.expm1(np.minimum(apart, 1.0)), np.exp(np.minimum(a, _LARGE)) - e_b
        )
        # A product that underflows is rounded up: no such loss is 0.
        small = np.log1p(q * moved / ((1.0 - q) + q * e_b)) + np.where(moved > 0.0, _LEAST, 0.0)
        large = np.logaddexp(0.0, a + (math.log(q) - math.log1p(-q)))
        return np.asarray(np.copysign(np.where(a < _LARGE, small, large), t))

    def loss_error(self, t: Array) -> float:
        """A bound on the relative error of all these losses, in units of 2^-53 (docs/mechanisms/replacement.md, section 5)."""
        noise, own = self.noise, self.noise.loss_error + 1.0
        if self.q == 1.0:
            return noise.loss_error
        most = float(np.max(np.abs(noise.log_ratio(np.abs(t), -self.shift)), initial=0.0))
        return own * (3.2 * min(most, 750.0) + 4.0) + 32.0

    def log_p(self, t: Array) -> Array:
        moved = self.noise.log_mass(t - self.shift)
        if self.q == 1.0:
            return moved
        return np.logaddexp(math.log(self.q) + moved, math.log1p(-self.q) + self.noise.log_mass(t))

    def p_mass(self, t: Array) -> Array:
        mass = self.q * np.exp(self.noise.log_mass(t - self.shift))
        if self.q == 1.0:
            return np.asarray(mass)
        return np.asarray(mass + (1.0 - self.q) * np.exp(self.noise.log_mass(t)))

    def tail(self, shifted_from: float, centred_from: float) -> float:
        """q Pr[noise >= shifted_from] + (1-q) Pr[noise >= centred_from]."""
        tail = self.q * math.exp(self.noise.log_tail(shifted_from))
        return tail if self.q == 1.0 else tail + (1.0 - self.q) * math.exp(self.noise.log_tail(centred_from))


def _nodes(anchors: Array, between: Array) -> Iterator[tuple[Array, Array]]:
    """(points, weights) whose sums are those over the integers between anchors, 3 for each gap.

    The quadrature is exact for polynomials of degree 5; over one block the masses vary by a few per
    cent, so its error is below double precision (where they vary by more, see `_integers`).
    """
    second = (between**2 - 1.0) / 12.0  # moments of `between` consecutive integers
    fourth = second * (3.0 * between**2 - 7.0) / 20.0
    node = np.sqrt(np.divide(fourth, second, out=np.ones_like(second), where=second > 0.0))
    weight = 0.5 * np.maximum(second, 0.0) / node**2
    middle = 0.5 * (anchors[:-1] + anchors[1:])
    for sign, share in ((-1.0, weight), (0.0, 1.0 - 2.0 * weight), (1.0, weight)):
        yield middle + sign * node, between * share


def _integers(noise: IntegerNoise, shift: int, q: float) -> Atoms:
    """P = (1-q) N + q (N + shift); Q = N if q = 1, else (1-q) N + q (N - shift); loss increasing.

    If more than MAX_ATOMS integers carry mass, every b-th one is an anchor, and the mass between
    two anchors is split onto them so that P- and Q-mass are kept (connect the dots, Doroshenko et
    al. 2022): an upper bound whose relative error in the variance of the loss is below 1e-6. Time and
    memory are O(MAX_ATOMS) whatever the scale.
    """
    law, sampled = _Law(noise, shift, q), q < 1.0
    anchors, between = _anchors(noise, shift, sampled)
    losses, p = law.loss(anchors), law.p_mass(anchors)
    if between.any():
        gap = np.diff(losses)
        safe_gap = np.where(gap > 0.0, gap, 1.0)
        lacking = 1.0
        if noise.kind == "laplace":
            # Of an exponential the rule lacks h^6 / 2016000, h a block in scales; where shifts are enormous that is no rounding.
            lacking += min(_MOST_LACKING, 1e-6 * (float(between.max() + 1.0) / noise.scale) ** 6)
        for t, weight in _nodes(anchors, between):
            mass = weight * law.p_mass(t) * lacking
            up = np.expm1(losses[:-1] - law.loss(t)) / np.expm1(-safe_gap)
            # A little too much on the upper anchor covers the rounding of `up`. Where the loss
            # jumps (enormous epsilon) or not at all, everything goes there.
            up = np.where((gap > 0.0) & (gap < 0.1), np.clip(up + 1e-8, 0.0, 1.0), 1.0)
            p[:-1] += mass * (1.0 - up)
            p[1:] += mass * up
    p_infinity = CUT
    if noise.kind == "laplace":
        # Beyond the anchors the loss stays constant, or has yet to fall: no larger loss is left out.
        p[-1] += law.tail(anchors[-1] + 1.0 - shift, anchors[-1] + 1.0)
        p[0] += law.tail(shift - anchors[0] + 1.0, 1.0 - anchors[0])
        p_infinity = 0.0
    merged = bool(between.any())
    q_mass = None if merged else _mirrored(law, anchors, p)
    made = _atoms(law, losses, p, p_infinity, merged, law.loss_error(anchors), q_mass=q_mass)
    return _within(made) if merged else made


def _within(atoms: Atoms) -> Atoms:
    """Where large losses' rounding makes Q's masses add up to more than 1: all losses raised by the logarithm, which is more than the truth."""
    total = math.fsum(atoms.q.tolist())
    if not total > 1.0 + 1e-13:
        return atoms
    raised = math.log(total) * (1.0 + 1e-9)
    return replace(
        atoms, losses=atoms.losses + raised, q=atoms.q * math.exp(-raised), loss_error=atoms.loss_error + 1.0
    )


def _mirrored(law: _Law, anchors: Array, p: Array) -> Array | None:
    """Q's masses, as it is P mirrored: from P's, which may be few least doubles, and large losses they would have the errors of these."""
    turned = 0.0 if law.q < 1.0 else float(law.shift)
    if law.noise.kind != "laplace":
        return law.p_mass(turned - anchors)
    return p[::-1].copy() if anchors[0] == turned - anchors[-1] else None


def _below(noise: IntegerNoise, shift: int, q: float) -> Atoms | None:
    """The pair of `_integers` after processing: an anchor and the integers up to the next are one outcome.

    Outcomes that were cut are left out of P, so that Q has their mass at loss -inf. None where nothing is
    merged or cut.
    """
    law, sampled = _Law(noise, shift, q), q < 1.0
    anchors, between = _anchors(noise, shift, sampled)
    whole = noise.kind == "laplace" and anchors[0] == (-shift if sampled else 0.0)
    if whole and not between.any():
        return None
    losses, p = law.loss(anchors), law.p_mass(anchors)
    if between.any():
        # ln E_Q[e^loss] over the block, counted from the loss at the anchor so that nothing cancels.
        first, log_q = losses[:-1].copy(), law.log_p(anchors[:-1]) - losses[:-1]
        weights, excess = np.ones_like(first), np.zeros_like(first)
        for t, weight in _nodes(anchors, between):
            loss = law.loss(t)
            p[:-1] += weight * law.p_mass(t)
            share = weight * np.exp(law.log_p(t) - loss - log_q)
            weights += share
            excess += share * np.expm1(loss - first)
        losses[:-1] += np.log1p(excess / weights)
    if noise.kind == "laplace":
        p[-1] += law.tail(anchors[-1] + 1.0 - shift, anchors[-1] + 1.0)
        if whole:
            # What lies below has the first anchor's own loss, which the block that begins there has no more.
            below = law.tail(shift - anchors[0] + 1.0, 1.0 - anchors[0])
            losses, p = np.append(law.loss(anchors[:1]), losses), np.append(below, p)
    merged = bool(between.any())
    q_mass = None if merged else _mirrored(law, anchors, p)
    made = _atoms(law, losses, p, 0.0, merged, law.loss_error(anchors), shared=np.minimum, q_mass=q_mass)
    # Nothing from below, where large losses' rounding makes Q's masses add up to more than 1.
    return made if math.fsum(made.q.tolist()) < 1.0 + _MOST_LACKING else revealing(0.0)


def _atoms(
    law: _Law,
    losses: Array,
    p: Array,
    p_infinity: float,
    merged: bool,
    error: float,
    shared: np.ufunc = np.maximum,
    q_mass: Array | None = None,
) -> Atoms:
    noise, spacing = law.noise, 0.0
    if not merged and law.q == 1.0 and noise.kind != "skellam":
        # The losses are half the unit, or the unit, times 2t - shift, whose parity is fixed.
        unit = 1.0 / noise.scale if noise.kind == "laplace" else 0.5 * law.shift / noise.scale / noise.scale
        spacing = unit * (1.0 if law.shift % 2 else 2.0)
        losses = spacing * np.rint(losses / spacing)
    if q_mass is not None and law.q == 1.0:
        with np.errstate(divide="ignore", over="ignore"):
            q_mass = np.where((p < _PRECISE) & (q_mass > _SEEN), q_mass, np.exp(np.log(p) - losses))
    if q_mass is None:
        losses, (p,) = _merge_ties(losses, [p], shared)
        with np.errstate(divide="ignore"):
            q_mass = np.exp(np.log(p) - losses)
    else:
        losses, (p, q_mass) = _merge_ties(losses, [p, q_mass], shared)
    return Atoms(losses, p, np.minimum(q_mass, 1.0), p_infinity, spacing, loss_error=error)


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


def _merge_ties(losses: Array, masses: list[Array], shared: np.ufunc) -> tuple[Array, list[Array]]:
    """Make the losses strictly increasing: atoms that rounding made equal share the larger loss, or the lesser."""
    if shared is np.maximum:
        losses = np.maximum.accumulate(losses)
    else:
        losses = np.minimum.accumulate(losses[::-1])[::-1]
    last = np.append(losses[1:] > losses[:-1], True)
    first = np.concatenate(([0], np.flatnonzero(last)[:-1] + 1))
    return losses[last], [np.add.reduceat(mass, first) for mass in masses]
