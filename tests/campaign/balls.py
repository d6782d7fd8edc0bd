"""Enclosures in ball arithmetic, and the tails of the noise laws."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import flint
from flint import arb

ZERO, ONE = arb(0), arb(1)


class Infeasible(Exception):
    """No method of the oracle fits this composition."""


class Enclosure(NamedTuple):
    """low.lower() <= the truth <= high.upper(): two balls, as one cannot hold ends of different magnitude."""

    low: arb
    high: arb

    def above(self, number: float) -> bool:
        """Whether the truth is above this number for certain."""
        return bool(self.low > arb(number))

    def below(self, number: float) -> bool:
        """Whether the truth is below this number for certain."""
        return bool(self.high < arb(number))


def exactly(value: arb) -> Enclosure:
    """A truth known to a ball."""
    return Enclosure(value, value)


def largest(enclosures: Iterable[Enclosure]) -> Enclosure:
    """The largest of several truths."""
    known = list(enclosures)
    low, high = known[0]
    for other in known[1:]:
        low, high = low.max(other.low), high.max(other.high)
    return Enclosure(low, high)


def bits_for(*magnitudes: float) -> int:
    """Precision at which 1 + x keeps 160 bits of each x."""
    least = min([1.0, *(x for x in magnitudes if x > 0.0)])
    return 192 + int(2.2 * -math.log2(least))


def working(bits: int) -> flint.ctx.__class__:
    """A block in which balls carry so many bits."""
    return flint.ctx.workprec(bits)


def to_float(value: arb) -> float:
    """The middle of a ball; no claim is made about its rounding."""
    return float(value.mid())


def positive_part(value: arb) -> Enclosure:
    """max(0, value)."""
    if value > 0:
        return exactly(value)
    return Enclosure(ZERO, value.upper().max(ZERO))


def normal_tail(z: arb) -> arb:
    """Pr[N(0, 1) > z]."""
    return (z / arb(2).sqrt()).erfc() / 2


def laplace_tail(z: arb) -> arb:
    """Pr[Laplace(0, 1) > z]; the sign of z must be certain."""
    return (-z).exp() / 2 if z >= 0 else 1 - z.exp() / 2
