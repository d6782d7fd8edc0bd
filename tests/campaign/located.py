"""One step of Gaussian or Laplace noise around random centres, and everything that a finite law can be added to.

P = sum_i p_i D(t - s_i) with s_i >= 0, Q = sum_j q_j D(t - r_j) with r_j <= 0, D the noise in units of its scale: the loss never
falls with t, so that delta = P(t > t0) - e^epsilon Q(t > t0) at the root t0 of loss = epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flint import arb, ctx

from .balls import ONE, ZERO, Enclosure, laplace_tail, normal_tail, positive_part, to_float

Centres = tuple[tuple[arb, arb], ...]
"""(centre, weight), all weights positive."""


class Gaussian:
    """N(mu, 1) against N(0, 1): sums of Gaussians, with mu^2 = sum (shift / sigma)^2."""

    def __init__(self, squared_mu: arb) -> None:
        self.mu = squared_mu.sqrt()

    def at(self, epsilon: arb) -> Enclosure:
        """delta at a ball."""
        half, ratio = self.mu / 2, epsilon / self.mu
        value = normal_tail(ratio - half) - epsilon.exp() * normal_tail(ratio + half)
        return Enclosure(value.max(ZERO), value.upper().max(ZERO))

    def tails(self, epsilon: float) -> tuple[Enclosure, Enclosure]:
        """P(L > epsilon) and Q(L > epsilon)."""
        half, ratio = self.mu / 2, arb(epsilon) / self.mu
        p, q = normal_tail(ratio - half), normal_tail(ratio + half)
        return Enclosure(p, p), Enclosure(q, q)


class Located:
    """One step with random centres."""

    def __init__(self, noise: str, p: Centres, q: Centres) -> None:
        self.noise, self.p, self.q = noise, p, q
        self.tail: Callable[[arb], arb] = normal_tail if noise == "gaussian" else laplace_tail
        self.first = min((s for s, _ in (*p, *q)), key=to_float)
        self.last = max((s for s, _ in (*p, *q)), key=to_float)
        self.infimum, self.supremum = self._limit(self.first, -1), self._limit(self.last, +1)
        self.guess = ZERO

    def _limit(self, end: arb, side: int) -> arb | None:
        """The loss far out, None if it is infinite."""
        if self.noise == "laplace":
            sides = [sum((w * (side * s).exp() for s, w in centres), ZERO) for centres in (self.p, self.q)]
        else:
            sides = [sum((w for s, w in centres if s == end), ZERO) for centres in (self.p, self.q)]
            if not (sides[0] > 0 and sides[1] > 0):
                return None
        return (sides[0] / sides[1]).log()

    def _kernel(self, t: arb, s: arb) -> arb:
        # For Gaussian noise t^2 / 2 cancels between P and Q.
        return (s * (t - s / 2)).exp() if self.noise == "gaussian" else (-abs(t - s)).exp()

    def loss(self, t: arb) -> arb:
        """ln dP/dQ at an output."""
        p = sum((w * self._kernel(t, s) for s, w in self.p), ZERO)
        q = sum((w * self._kernel(t, s) for s, w in self.q), ZERO)
        return (p / q).log()

    def root(self, epsilon: arb) -> tuple[arb, arb]:
        """Points with loss <= epsilon and loss >= epsilon, close together; both within the loss's range."""
        if self.noise == "laplace":
            a, b = self.first, self.last
        else:
            known = self._closed_form(epsilon)
            if known is not None:
                width = arb(2) ** (-ctx.prec // 2) * (1 + abs(known))
                a, b = (known - width).mid(), (known + width).mid()
                if self.loss(a) < epsilon and self.loss(b) > epsilon:
                    return a, b
            a = b = self.guess
            step = ONE
            while not self.loss(a) < epsilon:
                a, step = a - step, 2 * step
            step = ONE
            while not self.loss(b) > epsilon:
                b, step = b + step, 2 * step
        a, b = a.mid(), b.mid()
        fa, fb = (self.loss(x) - epsilon for x in (a, b))
        # The Illinois variant of regula falsi, with bisection now and then: certain signs only.
        side = 0
        for i in range(4 * ctx.prec):
            if (b - a) <= arb(2) ** (-ctx.prec // 2) * (1 + abs(a)):
                break
            t = ((a * fb - b * fa) / (fb - fa)).mid() if i % 3 else ((a + b) / 2).mid()
            if not (t.is_finite() and a < t < b):
                t = ((a + b) / 2).mid()
            f = self.loss(t) - epsilon
            if f < 0:
                a, fa, side, fb = t, f, -1, fb / 2 if side == -1 else fb
            elif f > 0:
                b, fb, side, fa = t, f, +1, fa / 2 if side == +1 else fa
            else:
                # As close as the precision allows: step off to either side until the signs are certain.
                width = (b - a) * arb(2) ** (-ctx.prec // 4)
                for _ in range(ctx.prec):
                    if t - width > a and self.loss(t - width) < epsilon:
                        a = (t - width).mid()
                    if t + width < b and self.loss(t + width) > epsilon:
                        b = (t + width).mid()
                    width = width * 2
                    if b - a < 4 * width:
                        break
                break
        self.guess = a
        return a, b

    def _closed_form(self, epsilon: arb) -> arb | None:
        """The root for a centre at 0 against one at 0 and one elsewhere; to be verified."""
        for one, two, sign in ((self.q, self.p, 1), (self.p, self.q, -1)):
            if len(one) == 1 and one[0][0].is_zero() and len(two) == 2 and two[0][0].is_zero():
                s, w = two[1]
                odds = (sign * epsilon).expm1() / w + 1
                return (odds.log() / s + s / 2).mid() if odds > 0 else None
        return None

    def _above(self, t: arb) -> tuple[arb, arb]:
        return tuple(sum((w * self.tail(t - s) for s, w in side), ZERO) for side in (self.p, self.q))  # type: ignore[return-value]

    def at(self, epsilon: arb) -> Enclosure:
        """delta at a ball."""
        if self.supremum is not None and epsilon >= self.supremum:
            return Enclosure(ZERO, ZERO)
        if self.infimum is not None and epsilon <= self.infimum:
            return Enclosure(-epsilon.expm1(), -epsilon.expm1())
        edges = [x for x in (self.infimum, self.supremum) if x is not None and epsilon.overlaps(x)]
        if edges:  # between just inside and just outside
            return Enclosure(positive_part(-epsilon.expm1()).low, _hull_at_edge(epsilon, self.supremum))
        a, b = self.root(epsilon)
        p, q = self._above(b)
        value = p - epsilon.exp() * q
        # Between a and b the loss is at most that at b.
        excess = (self._above(a)[0] - p).upper().max(ZERO) * -(epsilon - self.loss(b)).expm1()
        return Enclosure(value, value + excess.upper().max(ZERO))

    def tails(self, epsilon: float) -> tuple[Enclosure, Enclosure]:
        """P(L > epsilon) and Q(L > epsilon)."""
        point = arb(epsilon)
        if self.supremum is not None and not point < self.supremum:
            return Enclosure(ZERO, ONE), Enclosure(ZERO, ONE)
        if self.infimum is not None and not point > self.infimum:
            return Enclosure(ZERO, ONE), Enclosure(ZERO, ONE)
        a, b = self.root(point)
        (p, q), (p_more, q_more) = self._above(b), self._above(a)
        return Enclosure(p, p_more), Enclosure(q, q_more)


def _hull_at_edge(epsilon: arb, supremum: arb | None) -> arb:
    # delta is at most (1 - e^{epsilon - supremum})+ near the largest loss, and 1 anywhere.
    if supremum is not None and epsilon.overlaps(supremum):
        return positive_part(-(epsilon - supremum).expm1()).high
    return ONE


def sampled_gaussian(mu: arb, gamma: arb, direction: str) -> Located:
    """Poisson sampling of N(mu, 1) against N(0, 1)."""
    mixed = ((ZERO, 1 - gamma), (mu, gamma)) if gamma < 1 else ((mu, ONE),)
    if direction == "remove":
        return Located("gaussian", mixed, ((ZERO, ONE),))
    return Located("gaussian", ((ZERO, ONE),), tuple((-s, w) for s, w in mixed))


@dataclass
class Shifted:
    """A finite law and one more release: delta(epsilon) = sum_i p_i delta_1(epsilon - loss_i) + what is revealed."""

    atoms: Sequence[tuple[arb, arb]]
    revealed: arb
    beyond: arb
    last: Gaussian | Located

    def delta(self, epsilon: float) -> Enclosure:
        """Enclosure of delta at a double."""
        if epsilon == -math.inf:
            return Enclosure(ONE, ONE)
        if epsilon == math.inf:
            return Enclosure(self.revealed, self.revealed + self.beyond)
        low = high = self.revealed
        for p, loss in self.atoms:
            part = self.last.at(arb(epsilon) - loss)
            low, high = low + p * part.low, high + p * part.high
        return Enclosure(low, high + self.beyond)


def alone(last: Gaussian | Located) -> Shifted:
    """A release with nothing else."""
    return Shifted([(ONE, ZERO)], ZERO, ZERO, last)


@dataclass
class Released:
    """A released choice between truths, used once; or parts of one that hold for losses of one sign."""

    parts: Sequence[tuple[arb, object]]

    def delta(self, epsilon: float) -> Enclosure:
        """Enclosure of delta at a double."""
        found = [(w, part.delta(epsilon)) for w, part in self.parts]  # type: ignore[attr-defined]
        return Enclosure(sum((w * e.low for w, e in found), ZERO), sum((w * e.high for w, e in found), ZERO))


@dataclass
class BySign:
    """A profile that is one thing for epsilon >= 0 and another below (docs/mechanisms/replacement.md, section 3)."""

    upper: Shifted
    lower: Shifted

    def delta(self, epsilon: float) -> Enclosure:
        """Enclosure of delta at a double."""
        return (self.upper if epsilon >= 0.0 else self.lower).delta(epsilon)
