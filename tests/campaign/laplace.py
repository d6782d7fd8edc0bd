"""Sums of plain Laplace steps, in closed form.

With a = shift / scale the loss of one step has the law e^{(l - a)/2} v(dl) under P, v = (atoms of 1/2 at a and -a) + (density
1/4 between). The density is H * (atom at -a - atom at a) / 4, H the unit step, so the T-fold convolution of v is a sum over m, the
number of steps in between, of x_+^{m-1}/(m-1)! times atoms at multiples of a, and delta(epsilon), the integral of
(1 - e^{epsilon - l}) e^{(l - Ta)/2} over l > epsilon, a sum of incomplete gamma integrals up to Ta.
"""

from __future__ import annotations

import math

from flint import arb, arb_poly, ctx

from .balls import ONE, ZERO, Enclosure, to_float


class LaplaceSum:
    """`steps` steps of Laplace noise with shift / scale = a."""

    revealed = ZERO

    def __init__(self, a: arb, steps: int) -> None:
        self.a, self.steps = a, steps
        plus, minus = arb_poly([1, 1]), arb_poly([1, -1])  # in y = shift by 2a, counted from -Ta
        self.weights = [
            [
                c * math.comb(steps, m) / arb(2) ** (steps - m) / arb(4) ** m
                for c in (plus ** (steps - m) * minus**m).coeffs()
            ]
            for m in range(steps + 1)
        ]

    def delta(self, epsilon: float) -> Enclosure:
        """Enclosure of delta at a double."""
        if epsilon == -math.inf:
            return Enclosure(ONE, ONE)
        with ctx.workprec(ctx.prec + 16 * self.steps + self._extra()):
            end = self.steps * self.a
            point = arb(epsilon)
            if point >= end:
                return Enclosure(ZERO, ZERO)
            if point <= -end:
                return Enclosure(-point.expm1(), -point.expm1())
            total = ZERO
            for m, weights in enumerate(self.weights):
                for k, weight in enumerate(weights):
                    if not weight.is_zero():
                        total = total + weight * self._integral(m, (2 * k - self.steps) * self.a, point, end)
            value = total * (-end / 2).exp()
            return Enclosure(value.max(ZERO), value.upper().max(ZERO))

    def _extra(self) -> int:
        size = to_float(self.a)
        return int(self.steps * (3 * max(1.0, size) + 4 * max(0.0, -math.log2(size))))

    @staticmethod
    def _integral(m: int, at: arb, epsilon: arb, end: arb) -> arb:
        """Of (e^{l/2} - e^{epsilon - l/2}) over l in (max(at, epsilon), end] against (l - at)^{m-1}/(m-1)!; m = 0: an atom."""
        if m == 0:
            if not at > epsilon:  # where it is too close to call the integrand is 0
                return (
                    ((at / 2).exp() - (epsilon - at / 2).exp()).union(ZERO) if at.overlaps(epsilon) else ZERO
                )
            return (at / 2).exp() - (epsilon - at / 2).exp()
        low = (epsilon - at).max(ZERO)
        high = end - at
        grow, fall = arb(1) / 2, arb(-1) / 2
        return (at / 2).exp() * (_moment(m, grow, high) - _moment(m, grow, low)) - (
            epsilon - at / 2
        ).exp() * (_moment(m, fall, high) - _moment(m, fall, low))


def _moment(m: int, rate: arb, x: arb) -> arb:
    """The integral of e^{rate y} y^{m-1}/(m-1)! over [0, x], up to a constant: by parts."""
    total, term = ZERO, ONE / rate
    # sum_i (-1)^i y^{m-1-i}/(m-1-i)! / rate^{i+1}
    power = [ONE]
    for i in range(1, m):
        power.append(power[-1] * x / i)
    for i in range(m):
        total = total + term * power[m - 1 - i]
        term = -term / rate
    return total * (rate * x).exp()
