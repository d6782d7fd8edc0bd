"""Dominating pairs as cells: between two losses, how likely with the record and how likely without it.

docs/accounting/certificates.md, "Cells", proves each step. All numbers are balls (python-flint): intervals that contain the exact value.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from flint import arb

from .document import Rejected

Ball: TypeAlias = Any
"""An ``arb``: a real number known to lie in an interval."""
Law: TypeAlias = "Sequence[tuple[Ball, Ball]]"
"""[(shift, weight)]"""


@dataclass
class Chain:
    """Neighbouring cells: ``p[i]`` and ``q[i]`` are what both worlds have at losses between ``losses[i]`` and ``losses[i + 1]``.

    Losses rise; the first may be None (anything below) and the last too (anything above).
    """

    losses: list[Ball | None]
    p: list[Ball]
    q: list[Ball]


@dataclass
class Pair:
    """P and Q: chains of cells, and single outcomes (p, q), whose loss is ln p/q."""

    chains: list[Chain]
    outcomes: list[tuple[Ball, Ball]]

    def reversed(self) -> Pair:
        """Q against P."""
        turned = [
            Chain([None if x is None else -x for x in c.losses[::-1]], c.q[::-1], c.p[::-1])
            for c in self.chains
        ]
        return Pair(turned, [(q, p) for p, q in self.outcomes])

    def sampled(self, rate: Ball) -> Pair:
        """rate P + (1 - rate) Q against Q."""
        chains = [
            Chain(
                [None if x is None else (rate * x.expm1()).log1p() for x in c.losses],
                [rate * p + (1 - rate) * q for p, q in zip(c.p, c.q, strict=True)],
                c.q,
            )
            for c in self.chains
        ]
        return Pair(chains, [(rate * p + (1 - rate) * q, q) for p, q in self.outcomes])

    def batch(self, rate: Ball) -> Pair:
        """Advanced joint convexity, for a pair that is its own reverse: delta(ln(1 + rate (e^x - 1))) = rate delta_0(x), x >= 0."""
        above = self._above().sampled(rate)
        both = above.joined(above.reversed())
        masses = [p for c in both.chains for p in c.p] + [p for p, _ in both.outcomes]
        silent = 1 - sum(masses, arb(0))
        return both.joined(Pair([], [(silent, silent)]))

    def _above(self) -> Pair:
        """The part with losses above 0."""
        chains = []
        for c in self.chains:
            start = next((i for i, x in enumerate(c.losses) if x is not None and bool(x == 0)), None)
            if start is None:
                raise Rejected("a batch of a mechanism of which no cell begins at a loss of 0")
            chains.append(Chain(c.losses[start:], c.p[start:], c.q[start:]))
        kept = [(p, q) for p, q in self.outcomes if p is not q and bool(p > q)]
        if any(not bool(p < q) for p, q in self.outcomes if p is not q and not bool(p > q)):
            raise Rejected("an outcome whose loss may be above or below 0")
        return Pair(chains, kept)

    def weighted(self, weight: Ball) -> Pair:
        """Both measures times ``weight``."""
        chains = [Chain(c.losses, [weight * p for p in c.p], [weight * q for q in c.q]) for c in self.chains]
        return Pair(chains, [(weight * p, weight * q) for p, q in self.outcomes])

    def joined(self, other: Pair) -> Pair:
        """The sum of both measures."""
        return Pair(self.chains + other.chains, self.outcomes + other.outcomes)

    def atoms(self) -> tuple[list[tuple[Ball, Ball]], Ball]:
        """[(loss, P-mass)] and the mass at +inf of a pair that dominates this one: each cell on its two ends."""
        found: list[tuple[Ball, Ball]] = []
        infinite = arb(0)
        for c in self.chains:
            masses = [arb(0) for _ in c.losses]
            for i, (p, q) in enumerate(zip(c.p, c.q, strict=True)):
                low, high = c.losses[i], c.losses[i + 1]
                at_low = _at_low(p, q, low, high)
                masses[i] += at_low
                if high is None:
                    infinite += p - at_low
                else:
                    masses[i + 1] += p - at_low
            found += [(x, mass) for x, mass in zip(c.losses, masses, strict=True) if x is not None]
        for p, q in self.outcomes:
            if not bool(q > 0):
                infinite += p
            elif not bool(p == 0):
                found.append(((p / q).log(), p))
        return found, infinite


def _at_low(p: Ball, q: Ball, low: Ball | None, high: Ball | None) -> Ball:
    """What of p goes to the lower end, so that P- and Q-mass are kept; the rest goes to the upper one."""
    if low is None:
        return arb(0)
    if high is None:
        return q * low.exp()
    u = (low - high).exp()
    if not bool(u < 1) or (1 - u).rel_accuracy_bits() < 30:
        return arb(0)  # the ends are hardly apart; everything at the upper one is a bound as well
    return (q * low.exp() - p * u) / (1 - u)


def response(epsilon: Ball, categories: int = 2, delta: Ball | None = None) -> Pair:
    """Randomised response among so many values, and the data themselves with probability ``delta``."""
    shown = arb(0) if delta is None else delta
    other = (1 - shown) / (epsilon.exp() + (categories - 1))
    told, rest = other * epsilon.exp(), other * (categories - 2)
    outcomes = [(told, other), (other, told)]
    if categories > 2:
        outcomes.append((rest, rest))
    if delta is not None:
        outcomes += [(shown, arb(0)), (arb(0), shown)]
    return Pair([], outcomes)


def completed(values: Sequence[float], beside: Sequence[float] | None = None) -> list[Ball]:
    """As given, but for the largest, which stands for what the others leave of 1 (of several, where ``beside`` is largest)."""
    ties = values if beside is None else beside
    largest = max(range(len(values)), key=lambda i: (values[i], ties[i]))
    exact = [arb(value) for value in values]
    exact[largest] = 1 - sum((x for i, x in enumerate(exact) if i != largest), arb(0))
    if abs(math.fsum(values) - 1.0) > 1e-12 or not bool(exact[largest] > 0):
        raise Rejected("probabilities that do not sum to 1")
    return exact


def finite(p: Sequence[float], q: Sequence[float]) -> Pair:
    """Outcomes one by one."""
    if len(p) != len(q):
        raise Rejected("p and q must be of equal length")
    return Pair([], list(zip(completed(p, q), completed(q, p), strict=True)))


def located(p: Law, q: Law, cells: int, reach: Ball) -> Pair:
    """sum_i w_i N(s_i, 1) against sum_j w_j N(r_j, 1), all s_i >= 0 >= r_j: the loss rises with the output."""
    most, least = (max((abs(s).upper() for s, _ in law), default=arb(0)) + reach for law in (p, q))
    knots = [(most if u > 0 else least) * (u + u**3) / 2 for u in _even(cells)]
    losses = [(_density(t, p) / _density(t, q)).log() for t in knots]
    return Pair([Chain([None, *losses, None], _masses(knots, p), _masses(knots, q))], [])


def _even(cells: int) -> list[Ball]:
    """Points from -1 to 1, 0 among them."""
    half = cells // 2
    return [arb(i) / half for i in range(-half, half + 1)]


def _density(t: Ball, law: Law) -> Ball:
    """Over that of N(0, 1)."""
    return sum((w * (s * t - s * s / 2).exp() for s, w in law), arb(0))


def _masses(knots: Sequence[Ball], law: Law) -> list[Ball]:
    """Of the cells between the knots, and of what is beyond; from the side on which nothing cancels."""
    root, total = arb(2).sqrt(), [arb(0)] * (len(knots) + 1)
    for shift, weight in law:
        places = [(t - shift) / root for t in knots]
        first = next((i for i, x in enumerate(places) if bool(x > 0)), len(places))
        left = [arb(0), *((-x).erfc() / 2 for x in places[:first])]
        right = [*(x.erfc() / 2 for x in places[first:]), arb(0)]
        middle = 1 - left[-1] - right[0]
        below = [b - a for a, b in itertools.pairwise(left)]
        above = [a - b for a, b in itertools.pairwise(right)]
        total = [m + weight * x for m, x in zip(total, [*below, middle, *above], strict=True)]
    return total


def gaussian(mu: Ball, cells: int, reach: Ball) -> Pair:
    """N(mu/2, 1) against N(-mu/2, 1), with a cell that begins at a loss of 0."""
    pair = located([(mu / 2, arb(1))], [(-mu / 2, arb(1))], cells, reach)
    pair.chains[0].losses[cells // 2 + 1] = arb(0)
    return pair


def laplace(epsilon: Ball, cells: int) -> Pair:
    """Laplace noise around ``epsilon`` against around 0, in units of its scale: between them the loss is 2t - epsilon."""
    losses = [epsilon * u for u in _even(cells)]
    rising = [((x - epsilon) / 2).exp() / 2 for x in losses]
    masses = [b - a for a, b in itertools.pairwise(rising)]
    end = (-epsilon).exp() / 2
    return Pair([Chain(losses, masses, masses[::-1])], [(arb(0.5), end), (end, arb(0.5))])


def curve(points: Sequence[tuple[Ball, Ball]]) -> Pair:
    """The pair whose delta is the lower convex hull, in e^epsilon, of [(epsilon, delta)] and of what the other direction says."""
    reflected = [(-x, 1 - (-x).exp() + (-x).exp() * d) for x, d in points]
    known = [(x.exp(), d) for x, d in (*points, *reflected)]
    known.sort(key=lambda point: (float(point[0].mid()), float(point[1].mid())))
    hull = [(arb(0), arb(1))]
    for y, d in known:
        if bool(d >= hull[-1][1]) or not bool(y > hull[-1][0]):
            continue  # it says nothing new, or cannot be told from its neighbour
        while len(hull) > 1 and not bool(_slope(hull[-1], (y, d)) > _slope(hull[-2], hull[-1])):
            hull.pop()
        hull.append((y, d))
    slopes = [*(_slope(a, b) for a, b in itertools.pairwise(hull)), arb(0)]
    q = [b - a for a, b in itertools.pairwise(slopes)]
    outcomes = [(y * x, x) for (y, _), x in zip(hull[1:], q, strict=True)]
    rest = hull[-1][1]
    return Pair([], [*outcomes, (rest, arb(0)), (arb(0), 1 - sum(q, arb(0)))])


def _slope(a: tuple[Ball, Ball], b: tuple[Ball, Ball]) -> Ball:
    return (b[1] - a[1]) / (b[0] - a[0])
