"""Random allocation: one of two steps by certified quadrature, else what must lie on either side.

V is the mean of T lognormals. For T = 2 the outcomes are split by which of the two is larger, so that each integrand is analytic
and `acb.integral` encloses it. For all else the mean of the noise alone is a test whose power no upper bound may be below, so is the
largest coordinate in a single epoch, and the Gaussian without amplification is a profile that no lower bound may exceed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from flint import acb, arb

from .balls import ONE, ZERO, Enclosure, normal_tail
from .located import Gaussian, alone

_FAR = 40
"""Standard deviations at which integrals end; what is beyond is at most e^-800."""


def _below(x: acb) -> acb:
    """Phi of a complex number."""
    return (-x / acb(2).sqrt()).erfc() / 2


@dataclass
class Allocated:
    """``epochs`` of one of ``steps`` steps, in one direction."""

    mu: arb
    steps: int
    epochs: int
    direction: str

    def delta(self, epsilon: float) -> Enclosure:
        """Enclosure of delta at a double."""
        if math.isinf(epsilon):
            return Enclosure(ONE, ONE) if epsilon < 0 else Enclosure(ZERO, ZERO)
        if self.steps == 2 and self.epochs == 1 and abs(epsilon) < 60.0 and self.mu < 4 and self.mu > 0.02:
            return self._of_two(arb(epsilon).exp())
        whole = arb(self.epochs) * self.mu**2
        low = alone(Gaussian(whole / self.steps)).delta(epsilon).low
        if self.epochs == 1 and self.direction == "remove":
            low = low.max(self._largest(arb(epsilon).exp()))
        return Enclosure(low, alone(Gaussian(whole)).delta(epsilon).high)

    def _largest(self, growth: arb) -> arb:
        """The most that the test of the largest coordinate reaches, of a few."""
        found = ZERO
        for i in range(1, 60):
            t = arb(i) / 4
            below = normal_tail(-t)
            rest = below ** (self.steps - 1)
            found = found.max(1 - normal_tail(self.mu - t) * rest - growth * (1 - below * rest))
        return found

    def _of_two(self, growth: arb) -> Enclosure:
        """remove: E[(V - c)_+; W_1 < W_2] twice; add: c E[(1/c - V)_+; W_1 < W_2] twice."""
        mu = acb(self.mu)
        middle = growth if self.direction == "remove" else 1 / growth
        turn = middle.log() / self.mu + self.mu / 2  # where W = middle

        def at(g: acb) -> tuple[acb, acb]:
            """W_1 and the density."""
            return (mu * g - mu**2 / 2).exp(), (-g * g / 2).exp() / (2 * acb.pi()).sqrt()

        def other(rest: acb, analytic: bool) -> acb:
            """The g at which W_2 is so much."""
            return rest.log(analytic=analytic) / mu + mu / 2

        def call(g: acb, analytic: bool) -> acb:
            w, density = at(g)
            x = other(2 * middle - w, analytic)
            return density * (_below(mu - x) - (2 * middle - w) * _below(-x))

        def both(g: acb, _: bool) -> acb:
            w, density = at(g)
            return density * (_below(mu - g) + (w - 2 * middle) * _below(-g))

        def put(g: acb, analytic: bool) -> acb:
            w, density = at(g)
            x = other(2 * middle - w, analytic)
            return density * ((2 * middle - w) * (_below(x) - _below(g)) - (_below(x - mu) - _below(g - mu)))

        start = (turn - 1).min(arb(-_FAR))
        first = acb.integral(put if self.direction == "add" else call, acb(start), acb(turn)).real
        if self.direction == "add":
            value, beyond = growth * first, growth * arb(-700).exp()
        else:
            end = (turn + 1).max(arb(_FAR) + self.mu)
            value = first + acb.integral(both, acb(turn), acb(end)).real
            beyond = arb(-700).exp()
        least = (1 - growth).max(ZERO)
        return Enclosure(value.max(least), (value + beyond).max(least))
