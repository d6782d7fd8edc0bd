"""Reference values of δ(ε) for the Poisson-subsampled Gaussian, to 20 digits and more.

    python generate.py [--draws 340] [--output subsampled_gaussian.json]

Needs mpmath; python-flint, where installed, makes it faster. Shares no code and no floating-point
step with the package. Running it again continues an unfinished file; the same seed gives the same file.

One step is P = (1-q) N(0, σ²) + q N(1, σ²) against Q = N(0, σ²). With u = (2t-1)/(2σ²), which is normal under Q with
mean -1/(2σ²) and deviation 1/σ, and v = q/(1-q)·e^u, the loss is ln P/Q = ln(1-q) + ln(1+v), and

    M(z) = E_P[e^{z ln P/Q}] = (1-q)^{1+z} E_Q[(1+v)^{1+z}]                                                  (1)

    δ_remove(ε) =     1/(2πi) ∫ M(z)^T e^{-zε} / (z(z+1)) dz   over Re z = s > 0,
    δ_add(ε)    = e^ε/(2πi) ∫ M(z)^T e^{+zε} / (z(z+1)) dz   over Re z = s < -1.

The second is the first for the swapped pair, with z → -1-z, so both directions share M. Below, `cost` is ε
for "remove" and -ε for "add"; the integrand is F(z) = M(z)^T e^{-z cost}/(z(z+1)).

Every value is computed twice, with another abscissa s, other steps, other windows and more digits, and is stored
only if the two agree. There are three methods:

closed      T = 1, or q = 1 (a Gaussian with μ = √T/σ).
line        The trapezoidal rule along Re z = s. F is analytic near the line, so the rule converges geometrically.
bent        Where a step seldom "hits" under the tilted law, |M| falls slowly along the line: most of its mass sits in
            a spike near ln(1-q). Split the integral (1) over u in the complex plane at the branch point of ln(1+v),
            v = -1, Im u = π, where the integrand vanishes: M = A + B, A from u = -∞ to the branch point (no hit), B
            from there to u = +∞ (hit). High up in Im z, B is exponentially small. A, with w = -ln(1+v), is a Laplace
            transform over w in (0, ∞) and stays bounded to the right, where e^{-z(cost - T ln(1-q))} decays. So go
            up the line until A^T and M^T agree to all digits, and then turn to the right on A, where nothing
            oscillates. No tail is dropped.
"""

from __future__ import annotations

import argparse
import cmath
import json
import math
import random
from pathlib import Path

import mpmath
from mpmath import mp

try:
    import flint
except ImportError:
    flint = None

SEED = 20240607
GOAL = 28  # digits aimed at; 25 are stored
LN10 = math.log(10.0)

# ---- arithmetic: python-flint's balls where present, else mpmath ------------------------------------------------


def set_digits(digits: int) -> None:
    mp.dps = digits
    if flint:
        flint.ctx.dps = digits


if flint:

    def number(x) -> flint.acb:
        """A float, an mpmath number or a pair of them, exactly, as a complex number."""
        if isinstance(x, (int, float)):
            return flint.acb(x)
        if isinstance(x, complex):
            return flint.acb(x.real, x.imag)
        return flint.acb(exact(mp.re(x)), exact(mp.im(x)))

    def exact(x) -> flint.arb:
        sign, mantissa, exponent, _ = x._mpf_
        mantissa = -int(mantissa) if sign else int(mantissa)
        return flint.arb(mantissa) * flint.arb(2) ** exponent

    def to_mp(x):
        def part(r):
            mantissa, exponent = r.mid().man_exp()
            return mp.mpf(int(mantissa)) * mp.mpf(2) ** int(exponent)

        return mp.mpc(part(x.real), part(x.imag))

    def exp(x):
        return x.exp()

    def log(x):
        return x.log()

    def zero():
        return flint.acb(0)
else:

    def number(x):
        return mp.mpc(x)

    def to_mp(x):
        return x

    def exp(x):
        return mp.exp(x)

    def log(x):
        return mp.log(x)

    def zero():
        return mp.mpc(0)


def log10_abs(x) -> float:
    """log10|x| of an mpmath number; a very negative number for 0."""
    return float(mp.log10(abs(x))) if x else -1e9


_rules: dict[tuple[int, int], list] = {}


def gauss_legendre(n: int) -> list:
    """Nodes and weights on [-1, 1], by Newton's method on P_n."""
    key = (n, mp.prec)
    if key not in _rules:
        rule = []
        for i in range(n):
            x = mp.cos(mp.pi * (i + mp.mpf(3) / 4) / (n + mp.mpf(1) / 2))
            for _ in range(12):
                p0, p1 = mp.mpf(1), x
                for k in range(2, n + 1):
                    p0, p1 = p1, ((2 * k - 1) * x * p1 - (k - 1) * p0) / k
                slope = n * (x * p1 - p0) / (x * x - 1)
                step = p1 / slope
                x -= step
                if abs(step) < mp.mpf(10) ** (-mp.dps // 2 - 3):
                    break
            p0, p1 = mp.mpf(1), x
            for k in range(2, n + 1):
                p0, p1 = p1, ((2 * k - 1) * x * p1 - (k - 1) * p0) / k
            slope = n * (x * p1 - p0) / (x * x - 1)
            rule.append((x, 2 / ((1 - x * x) * slope * slope)))
        _rules[key] = rule
    return _rules[key]


# ---- one step -----------------------------------------------------------------------------------------------------


class Sum:
    """M(z)/(1-q)^{1+z} = Σ g_j e^{(1+z) l_j}: a trapezoidal rule for (1) or for A."""

    def __init__(self, losses: list, weights: list):
        self.losses, self.weights = losses, weights

    def __call__(self, z):
        """At one point, an mpmath number."""
        c = number(z) + 1
        total = zero()
        for loss, weight in zip(self.losses, self.weights, strict=True):
            total += weight * exp(c * loss)
        return total

    def along(self, start, step):
        """At start, start + step, ...: one multiplication per node and point."""
        c, d = number(start) + 1, number(step)
        terms = [weight * exp(c * loss) for loss, weight in zip(self.losses, self.weights, strict=True)]
        factors = [exp(d * loss) for loss in self.losses]
        while True:
            yield sum(terms, zero())
            terms = [t * f for t, f in zip(terms, factors, strict=True)]


def window(size, low: float, high: float, drop: float) -> tuple[float, float, float]:
    """Where size(x), the log of a magnitude in double precision, is within `drop` of its maximum; and the maximum."""
    for _ in range(3):
        grid = [low + (high - low) * i / 600 for i in range(601)]
        sizes = [size(x) for x in grid]
        top = max(sizes)
        inside = [i for i, value in enumerate(sizes) if value > top - drop]
        low, high = grid[max(inside[0] - 1, 0)], grid[min(inside[-1] + 1, 600)]
    return low, high, top


class NeedDigits(ArithmeticError):
    """The terms of a sum exceed its value by `lost` digits, more than the working precision has to spare."""

    def __init__(self, lost: float):
        super().__init__(f"{lost:.0f} digits cancel")
        self.lost = lost


class Step:
    """One step: its transforms M and A."""

    def __init__(self, sigma: float, q: float):
        self.sigma, self.q = sigma, q
        self.log_odds = math.log(q) - math.log1p(-q) if q < 1.0 else math.inf
        self.mean = -0.5 / sigma**2

    def full(self, real: float, top: float, digits: float, shrink: float) -> Sum:
        """M for Re z = real, |Im z| <= top, with an error below 10^-digits of M(real)."""
        drop = digits * LN10 + 5.0

        def size(x: float) -> float:
            v = x + self.log_odds
            softplus = v + math.log1p(math.exp(-v)) if v > 0 else math.log1p(math.exp(v))
            return (1.0 + real) * softplus - 0.5 * (self.sigma * (x - self.mean)) ** 2

        reach = math.sqrt(2.0 * drop) / self.sigma
        # Hits move the centre to the right by up to (1+s)/σ².
        centre = max(0.0, (1.0 + real) / self.sigma**2)
        left = self.mean - self._left(1.0 + real) if real < -1.0 else self.mean
        low, high, _ = window(size, left - 1.5 * reach, self.mean + centre + 1.5 * reach, drop)
        # A Gaussian needs h = π/(σ √(drop/2)); the strip |Im u| < π needs about h = 2π²/drop.
        h = shrink * min(2.0 * math.pi / (self.sigma * math.sqrt(2.0 * drop)), 2.0 * math.pi**2 / drop)
        while True:
            rule, other = self._full(low, high, h, 0.0), self._full(low, high, h, 0.5)
            scale = to_mp(rule(mp.mpf(real)))
            error = max(abs(to_mp(rule(z)) - to_mp(other(z))) for z in (mp.mpf(real), mp.mpc(real, top)))
            if error < abs(scale) * mp.mpf(10) ** -digits:
                return rule
            h *= 0.7

    def _left(self, power: float) -> float:
        """How far a negative power of 1+v can move the peak to the left: from |power| v/(1+v) = σ²|u|."""
        ratio = abs(power) / self.sigma**2
        return min(ratio, max(1.0, math.log(max(ratio, 1e-300)) + self.log_odds))

    def _full(self, low: float, high: float, h: float, offset: float) -> Sum:
        sigma, q = mp.mpf(self.sigma), mp.mpf(self.q)
        mean, odds = -1 / (2 * sigma**2), number(q / (1 - q))
        factor = h * sigma / mp.sqrt(2 * mp.pi)
        losses, weights = [], []
        for i in range(math.ceil((high - low) / h) + 1):
            u = mp.mpf(low) + mp.mpf(h) * (i + mp.mpf(offset))
            losses.append(log(1 + odds * exp(number(u))))
            weights.append(number(factor) * exp(number(-((sigma * (u - mean)) ** 2) / 2)))
        return Sum(losses, weights)

    def _bare_size(self, z: complex, theta: float):
        turn = cmath.exp(-1j * theta)

        def size(y: float) -> float:
            w = turn * math.exp(y)
            fall = 1.0 - cmath.exp(-w) if abs(w) > 1e-8 else w
            u = 1j * math.pi + cmath.log(fall) - self.log_odds
            value = -(1.0 + z) * w - 0.5 * (self.sigma * (u - self.mean)) ** 2
            # w/(e^w - 1) = w e^{-w}/(1 - e^{-w})
            return value.real + math.log(abs(w / fall)) - w.real

        return size

    def bare(self, corners: list, digits: float, scale: float, shrink: float) -> Sum:
        """A near the given points z, with an error below 10^-digits e^scale, by the substitution w = e^{y - iθ}."""
        zs = [complex(z) for z in corners]
        best = None
        args = [cmath.phase(1.0 + z) for z in zs]
        # Re((1+z) w) > 0 and Re w > 0 are needed; the Gaussian factor is largest at θ = 0.
        lowest, highest = max(args) - 0.5 * math.pi, 0.5 * math.pi
        lowest = max(lowest, -0.5 * math.pi)
        highest = min(highest, min(args) + 0.5 * math.pi)
        ylow = self.log_odds + self.mean - 20.0 / self.sigma - 5.0 - max(self._left(abs(1.0 + z)) for z in zs)
        yhigh = 12.0
        for i in range(1, 12):
            theta = lowest + (highest - lowest) * i / 12.0
            if not 0.0 <= theta < 1.5:
                continue
            tops = [
                max(self._bare_size(z, theta)(ylow + (yhigh - ylow) * k / 200) for k in range(201))
                for z in zs
            ]
            if best is None or max(tops) < best[0]:
                best = max(tops), theta
        top, theta = best
        lost = max(0.0, (top - scale) / LN10)
        if mp.dps < digits + lost + 25.0:
            raise NeedDigits(lost)
        drop = digits * LN10 + 5.0
        reach = 1.5 * math.sqrt(2.0 * (drop + max(0.0, top - scale))) / self.sigma
        pieces = []
        for z in zs:
            size = self._bare_size(z, theta)
            left = self.log_odds + self.mean - reach - 5.0 - self._left(abs(1.0 + z))
            inner = window(size, left, 12.0, 60.0)[2]
            keep = max(drop + inner - scale, 20.0)
            pieces.append(window(size, left, 12.0, keep)[:2])
        low, high = min(p[0] for p in pieces), max(p[1] for p in pieces)
        h = shrink * min(math.pi / (self.sigma * math.sqrt(drop / 2.0)), math.pi**2 / drop)
        while True:
            rule, other = self._bare(low, high, h, theta, 0), self._bare(low, high, h, theta, mp.mpf(1) / 2)
            error = max(abs(to_mp(rule(z)) - to_mp(other(z))) for z in corners)
            if error < mp.exp(scale) * mp.mpf(10) ** -digits:
                return rule
            h *= 0.7
            if h < 1e-4:
                raise ArithmeticError(f"A does not converge at θ = {theta:.3f}")

    def _bare(self, low: float, high: float, h: float, theta: float, offset) -> Sum:
        sigma, q = mp.mpf(self.sigma), mp.mpf(self.q)
        shift = number(mp.mpc(-mp.log(q / (1 - q)) + 1 / (2 * sigma**2), mp.pi))
        factor, half = number(h * sigma / mp.sqrt(2 * mp.pi)), number(-(sigma**2) / 2)
        turn = number(mp.expj(-mp.mpf(theta)))
        losses, weights = [], []
        for i in range(math.ceil((high - low) / h) + 1):
            w = turn * number(mp.exp(mp.mpf(low) + mp.mpf(h) * (i + offset)))
            fall = 1 - exp(-w)
            gap = log(fall) + shift
            losses.append(-w)
            weights.append(factor * w * exp(-w) / fall * exp(half * gap * gap))
        return Sum(losses, weights)


# ---- T steps --------------------------------------------------------------------------------------------------------


class Query:
    """δ(ε) after T steps."""

    def __init__(self, sigma: float, q: float, steps: int, direction: str):
        self.step = Step(sigma, q)
        self.sigma, self.q, self.steps, self.direction = sigma, q, steps, direction
        self.side = 1 if direction == "remove" else -1

    def abscissa(self, s: float) -> float:
        """Re z for a tilt s > 0 of this direction's own loss."""
        return s if self.side > 0 else -1.0 - s

    def cumulants(self, s: float) -> tuple:
        """T·ln M, and its first and second derivatives in z, at the abscissa."""
        z = mp.mpf(self.abscissa(s))
        rule = self.step.full(float(z), 0.0, 12, 1.0)
        c = number(z) + 1
        m0 = m1 = m2 = zero()
        for loss, weight in zip(rule.losses, rule.weights, strict=True):
            term = weight * exp(c * loss)
            m0 += term
            m1 += term * loss
            m2 += term * loss * loss
        m0, m1, m2 = (to_mp(m).real for m in (m0, m1, m2))
        base = mp.log1p(-mp.mpf(self.q))
        mean = m1 / m0
        return (
            self.steps * (mp.log(m0) + (1 + z) * base),
            self.steps * (mean + base),
            self.steps * (m2 / m0 - mean * mean),
        )

    def saddle(self, s: float) -> tuple:
        """For the tilt s: the ε whose saddle it is, and the saddle-point estimate of log10 δ(ε)."""
        k0, k1, k2 = self.cumulants(s)
        s = mp.mpf(s)
        epsilon = self.side * k1 - 1 / s - 1 / (1 + s)
        z_cost = self.side * mp.mpf(self.abscissa(float(s))) * epsilon
        size = k0 - z_cost - mp.log(s * (1 + s)) + (epsilon if self.side < 0 else 0)
        curvature = k2 + 1 / s**2 + 1 / (1 + s) ** 2
        return epsilon, float((size - mp.log(2 * mp.pi * curvature) / 2) / mp.ln10), float(k2)

    def tilt(self, below) -> float:
        """The largest s with below(saddle(s)) true, by bisection in ln s; below is true for small s."""
        low, high = -30.0, 0.0
        while below(self.saddle(float(mp.exp(high)))):
            low, high = high, high + 3.0
            if high > 60.0:
                raise ArithmeticError("no saddle point")
        while high - low > 1e-9:
            middle = 0.5 * (low + high)
            low, high = (middle, high) if below(self.saddle(float(mp.exp(middle)))) else (low, middle)
        return float(mp.exp(low))

    def integrand(self, total, z, cost, base):
        """F(z), with the factor e^ε of "add"; total is M(z)/(1-q)^{1+z}."""
        value = self.steps * mp.log(total) + self.steps * (1 + z) * base - z * cost
        if self.side < 0:
            value -= cost
        return mp.exp(value) / (z * (1 + z))

    def line(self, epsilon: float, s: float, run: dict):
        """The trapezoidal rule along Re z = s: δ(ε), and log10 F at the real point."""
        centre, _, variance = self.saddle(s)
        real = self.abscissa(s)
        base, cost = mp.log1p(-mp.mpf(self.q)), self.side * mp.mpf(epsilon)
        digits = run["digits"]
        # The rule with step Δ gives Σ_m δ(ε + m·period) e^{m s period}, period = 2π/Δ.
        period = 1.2 * math.sqrt(2.0 * digits * LN10 * variance) + (digits + 5) * LN10 / s
        period = run["period"] * (period + abs(float(centre - epsilon)))
        step = 2 * mp.pi / mp.mpf(period)
        start = mp.mpf(real)
        top = math.sqrt(2.0 * digits * LN10 / (variance + s**-2))
        tolerance = digits + math.log10(self.steps) + 3
        for _ in range(4):
            rule = self.step.full(real, top, tolerance, run["shrink"])
            total, size0, quiet, reached = mp.mpf(0), None, 0, 0.0
            for n, m in enumerate(rule.along(start, mp.mpc(0, step))):
                z = start + mp.mpc(0, n * step)
                f = self.integrand(to_mp(m), z, cost, base)
                total += f.real * (mp.mpf(1) / 2 if n == 0 else 1)
                size = log10_abs(f)
                size0 = size if size0 is None else size0
                quiet = quiet + 1 if size < size0 - digits else 0
                reached = float(n * step)
                if quiet >= 6:
                    break
                if n > 1500 * run["patience"] or (
                    n >= 150 and (size0 - size) / n < digits / (1200 * run["patience"])
                ):
                    raise ArithmeticError("F falls too slowly along the line")
            if reached <= top:
                return total * step / mp.pi, size0
            top = 1.05 * reached
        raise ArithmeticError("the line does not end")

    def bent(self, epsilon: float, s: float, run: dict):
        """Up the line by Gauss-Legendre panels as far as A and M differ, then to the right on A."""
        variance = self.saddle(s)[2]
        real = self.abscissa(s)
        base, cost = mp.log1p(-mp.mpf(self.q)), self.side * mp.mpf(epsilon)
        digits = run["digits"]
        tolerance = digits + math.log10(self.steps) + 3
        room = float(cost - self.steps * base)  # what the hits have to reach; positive
        start = mp.mpf(real)
        # How far up: until M^T = A^T.
        top = run["top"] * (8.0 if self.side > 0 else max(10.0, 1.2 * abs(real)))
        while True:
            rule = self.step.full(real, top, tolerance, run["shrink"])
            m0, m1 = to_mp(rule(start)), to_mp(rule(mp.mpc(real, top)))
            f0 = abs(self.integrand(m0, start, cost, base))
            f1 = abs(self.integrand(m1, mp.mpc(real, top), cost, base))
            corner = mp.mpc(real, top)
            if f1 < f0 * mp.mpf(10) ** -digits:
                turn = False
                break
            scale = float(mp.log(abs(m0)))
            try:
                bare = self.step.bare([corner], tolerance, scale, run["shrink"])
            except NeedDigits as need:
                if need.lost > 40.0 and top < 10.0 * self.sigma**2:
                    top *= 1.25  # higher up, A is computed with less cancellation
                    continue
                raise
            difference = abs(to_mp(bare(corner)) / m1 - 1) * self.steps * f1 / f0
            if difference < mp.mpf(10) ** -digits:
                turn = True
                break
            top *= 1.25
            if top > 3000.0 + 100 * abs(real):
                raise ArithmeticError("A and M never agree")
        # The highest frequencies in F: what the hits have to reach, the spread of the loss, one hit's loss.
        hit = 10.0 / self.sigma + max(0.0, (1.0 + real) / self.sigma**2 + self.step.log_odds)
        rate = max(room, 10.0 * math.sqrt(variance), 1.0 / s, hit if self.side > 0 else 0.0)
        nodes = gauss_legendre(run["nodes"])
        total, low = mp.mpf(0), 0.0
        half = min(run["panel"] * 15.0 / rate, 0.5 * s, top)
        panels = 0
        while low < top:
            high = (
                half
                if low == 0.0
                else min(top, low + 2.0 * min(run["panel"] * 15.0 / rate, max(0.5 * s, low / 3)))
            )
            a, b = (-high, high) if low == 0.0 else (low, high)
            middle, width = (mp.mpf(a) + b) / 2, (mp.mpf(b) - a) / 2
            part = mp.mpf(0)
            for x, w in nodes:
                z = mp.mpc(real, middle + width * x)
                part += w * self.integrand(to_mp(rule(z)), z, cost, base).real
            total += part * width / (2 if low == 0.0 else 1)
            low = high
            panels += 1
            if panels > 120 * run["patience"]:
                raise ArithmeticError("too many panels")
        ray = 0
        if turn:
            low = 0.0
            length = min(0.5 * abs(complex(corner)), 15.0 / room)
            while True:
                high = low + length
                ends = [corner + low, corner + high]
                bare = self.step.bare(ends, tolerance, scale, run["shrink"])
                part, largest = mp.mpf(0), mp.mpf(0)
                for x, w in nodes:
                    z = corner + (mp.mpf(low) + high) / 2 + (mp.mpf(high) - low) / 2 * x
                    f = self.integrand(to_mp(bare(z)), z, cost, base)
                    part += w * f.imag
                    largest = max(largest, abs(f))
                # ∫F dz along the line is i∫F dτ, hence Re becomes Im.
                total += part * (mp.mpf(high) - low) / 2
                ray += 1
                if largest * length < f0 * s * mp.mpf(10) ** (-digits - 2):
                    break
                if ray > 30 * run["patience"]:
                    raise ArithmeticError("too many panels")
                low, length = high, min(2.0 * length, run["panel"] * 60.0 / room)
        return total / mp.pi, log10_abs(f0)

    def closed(self, epsilon: float):
        sigma, q, e = mp.mpf(self.sigma), mp.mpf(self.q), mp.mpf(epsilon)

        def upper(x):
            return mp.erfc(x / mp.sqrt(2)) / 2

        if self.q == 1.0:
            mu = mp.sqrt(self.steps) / sigma
            return upper(e / mu - mu / 2) - mp.exp(e) * upper(e / mu + mu / 2)
        # The loss is increasing in t; t0 is where it equals ±ε.
        odds = (mp.expm1(self.side * e) + q) / q
        if odds <= 0:
            return mp.mpf(0)
        t0 = sigma**2 * mp.log(odds) + mp.mpf(1) / 2
        if self.side > 0:
            return (1 - q - mp.exp(e)) * upper(t0 / sigma) + q * upper((t0 - 1) / sigma)
        lower0, lower1 = upper(-t0 / sigma), upper((1 - t0) / sigma)
        return lower0 - mp.exp(e) * ((1 - q) * lower0 + q * lower1)


# ---- two independent evaluations ------------------------------------------------------------------------------------

# Everything that may leave an error differs between the two.
FIRST = {"period": 1.0, "shrink": 1.0, "nodes": 50, "panel": 1.0, "top": 1.0, "more": 0, "nudge": 0.0}
SECOND = {"period": 1.17, "shrink": 0.85, "nodes": 60, "panel": 0.9, "top": 1.15, "more": 4, "nudge": 0.3}


# Just below the tilt at which the hits take over, |M| on the line is that of the steps without a hit, and nothing is
# lost by staying there although the saddle point is further to the right: only digits, which can be added.
PLANS = [("line", 1.0, 1.0), ("bent", 1.0, 1.0), ("line", 0.9, 10.0), ("bent", 0.9, 2.0), ("bent", 0.97, 4.0)]
STAGES = [1, 2, 3, 5]  # plans tried at first, and later on for what is left: the file fills early


def evaluate(query: Query, epsilon, s: float, goal: float = GOAL, plans: int = len(PLANS)) -> tuple:
    """(δ(ε), digits on which two evaluations agree, method), by the first plan that succeeds."""
    reasons = []
    for method, closer, patience in PLANS[:plans]:
        try:
            return twice(query, method, epsilon, s * closer, patience, goal)
        except ArithmeticError as error:
            reasons.append(str(error))
    raise ArithmeticError("; ".join(dict.fromkeys(reasons)))


def twice(query: Query, method: str, epsilon, s: float, patience: float, goal: float) -> tuple:
    """One plan, with digits and nodes added until two evaluations agree."""
    digits, spare, fine, reason = goal + 8.0, 0.0, 1.0, "digits do not suffice"
    for _ in range(5):
        if digits + spare > 200.0:
            break
        try:
            values = []
            for setting in (FIRST, SECOND):
                run = dict(
                    setting, digits=digits + setting["more"], panel=setting["panel"] * fine, patience=patience
                )
                set_digits(math.ceil(run["digits"] + 35.0 + math.log10(query.steps) + spare))
                deviation = math.sqrt(query.saddle(s)[2])
                at = s - setting["nudge"] * min(0.3 * s, 1.0 / deviation)
                value, size = getattr(query, method)(epsilon, at, run)
                loss = size - log10_abs(value)
                if loss > digits - goal:
                    break
                values.append(value)
        except NeedDigits as need:
            spare = need.lost + 10.0
            continue
        if len(values) < 2:
            digits = goal + min(loss, digits + 20.0) + 4.0
            continue
        a, b = values
        agreed = min(-log10_abs(b / a - 1), 99.0) if a > 0 else 0.0
        if agreed >= min(26.0, goal):
            return b, agreed, method
        reason = f"agreement to {agreed:.1f} digits only"
        # Too few nodes for several hits, mostly.
        digits, fine = digits + 12.0, 0.5 * fine
    raise ArithmeticError(reason)


def closed(query: Query, epsilon: float, plans: int) -> tuple:
    """The closed form with two precisions; where the contour works too (q < 1), it has the last word."""
    values = []
    for digits in (120, 160):
        set_digits(digits)
        values.append(query.closed(epsilon))
    agreed = min(-log10_abs(values[0] / values[1] - 1), 99.0)
    if query.q == 1.0:
        return values[1], agreed, "closed"
    try:
        set_digits(60)
        s = query.tilt(lambda found: found[0] < epsilon)
        value, digits, method = evaluate(query, epsilon, s, 24, plans)
    except ArithmeticError:
        return values[1], agreed, "closed"
    agreed = min(digits, agreed, -log10_abs(value / values[1] - 1))
    return values[1], agreed, f"closed, confirmed by {method}"


# ---- the file -------------------------------------------------------------------------------------------------------


class Redraw(Exception):
    """The draw cannot be used, whatever the method."""


def draw(index: int) -> tuple:
    """sigma, q, steps, direction and the target log10 δ number `index`."""
    rng = random.Random(f"{SEED}:{index}")

    def log_uniform(low: float, high: float) -> float:
        # Six digits, so that no platform's logarithm matters.
        return float(f"{math.exp(rng.uniform(math.log(low), math.log(high))):.6g}")

    sigma, q = log_uniform(0.3, 100.0), log_uniform(1e-6, 1.0)
    steps = int(log_uniform(1.0, 1e8))
    if rng.random() < 0.07:
        q = 1.0
    return sigma, q, steps, rng.choice(["remove", "add"]), round(rng.uniform(-200.0, -2.0), 3)


def gaussian_epsilon(query: Query, target: float) -> float:
    """q = 1: the ε of the target, by bisection; negative if δ(0) is below it."""
    low, high = 0.0, 1001.0
    if log10_abs(query.closed(0.0)) < target:
        return -1.0
    while high - low > 1e-13 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if log10_abs(query.closed(middle)) > target else (low, middle)
    return low


def entry(index: int, plans: int) -> dict:
    """The reference value of draw `index`. Raises Redraw or ArithmeticError."""
    sigma, q, steps, direction, target = draw(index)
    query = Query(sigma, q, steps, direction)
    set_digits(60)
    s = 0.0
    if q == 1.0:
        set_digits(260)
        epsilon = gaussian_epsilon(query, target)
    else:
        try:
            s = query.tilt(lambda found: found[1] > target)
        except ArithmeticError as error:
            raise Redraw("the target is reached only within a hair of the largest loss") from error
        epsilon = float(query.saddle(s)[0])
    if epsilon > 1000.0:
        raise Redraw("epsilon above 1000")
    if epsilon <= 0.0:
        if index % 3:
            raise Redraw("delta(0) below the target: two in three are redrawn")
        epsilon = 0.0
        if q < 1.0:
            s = query.tilt(lambda found: found[0] < 0)
    epsilon = float(f"{epsilon:.12g}")
    if s * epsilon > 1e8:
        raise Redraw("delta changes by more than 1e-8 when epsilon changes by one unit in the last place")
    if direction == "add" and q < 1.0 and epsilon >= -steps * math.log1p(-q):
        raise Redraw("epsilon beyond the largest loss")
    known = {
        "draw": index,
        "sigma": repr(sigma),
        "q": repr(q),
        "steps": steps,
        "direction": direction,
        "epsilon": repr(epsilon),
    }
    try:
        if steps == 1 or q == 1.0:
            value, agreed, method = closed(query, epsilon, plans)
        else:
            value, agreed, method = evaluate(query, epsilon, s, plans=plans)
    except ArithmeticError as error:
        raise Unreachable({**known, "target_log10": target, "reason": str(error)}) from error
    if log10_abs(value) < -280.0:
        raise Redraw("delta near the end of the floating-point range")
    if agreed < 20:
        raise Unreachable(
            {**known, "target_log10": target, "reason": f"agreement to {agreed:.1f} digits only"}
        )
    return {**known, "delta": digits25(value), "digits": min(25, math.floor(agreed)), "method": method}


def digits25(x) -> str:
    return mp.nstr(x, 25, strip_zeros=False, min_fixed=0, max_fixed=0)


class Unreachable(Exception):
    """No verified value; what to record."""

    def __init__(self, record: dict):
        super().__init__(record["reason"])
        self.record = record


NAMED_DELTAS = [(1.5, 0.01, 10_000, 1.0), (2.0, 0.01, 1_000, 10.0)]
NAMED_EPSILONS = [
    (1.0, 0.01, 1_000, 1e-5),
    (0.8, 0.001, 100_000, 1e-7),
    (1.0, 256 / 60_000, 14_000, 1e-5),
    (20.0, 0.001, 10_000_000, 1e-5),
]


def named_delta(sigma: float, q: float, steps: int, epsilon: float) -> dict:
    query = Query(sigma, q, steps, "remove")
    set_digits(60)
    s = query.tilt(lambda found: found[0] < epsilon)
    value, agreed, method = evaluate(query, epsilon, s)
    return {
        "sigma": repr(sigma),
        "q": repr(q),
        "steps": steps,
        "direction": "remove",
        "epsilon": repr(epsilon),
        "delta": digits25(value),
        "digits": min(25, math.floor(agreed)),
        "method": method,
    }


def named_epsilon(sigma: float, q: float, steps: int, delta: float) -> dict:
    """ε(δ) by the secant method on ln δ, at 30 digits."""
    query = Query(sigma, q, steps, "remove")
    set_digits(60)
    target = mp.log(mp.mpf(delta))
    s = query.tilt(lambda found: found[1] > math.log10(delta))
    x0 = query.saddle(s)[0]
    y0 = mp.log(evaluate(query, x0, s)[0]) - target
    x1 = x0 + y0 / s
    agreed = 0.0
    for _ in range(30):
        value, agreed, _ = evaluate(query, x1, s)
        y1 = mp.log(value) - target
        if abs(y1) < mp.mpf(10) ** -28:
            break
        x0, y0, x1 = x1, y1, x1 - y1 * (x1 - x0) / (y1 - y0)
    else:
        raise ArithmeticError("the secant method does not converge")
    # An error of 10^-a in ln δ moves ε by 10^-a/s; s is about -d(ln δ)/dε.
    return {
        "sigma": repr(sigma),
        "q": repr(q),
        "steps": steps,
        "direction": "remove",
        "delta": repr(delta),
        "epsilon": digits25(x1),
        "digits": min(25, math.floor(min(agreed, 28.0) + math.log10(s * float(x1)))),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=340, help="values to try for, beside the redrawn ones")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("subsampled_gaussian.json"))
    options = parser.parse_args()
    if options.output.exists():
        state = json.loads(options.output.read_text())
    else:
        state = {
            "about": "delta(epsilon) of the Poisson-subsampled Gaussian; see generate.py. sigma, q, epsilon and, "
            "under named_epsilons, delta are doubles, taken exactly; `digits` of the decimals are verified. Skipped "
            "draws have no verified value after `tried` of the script's plans; run it again to try the rest.",
            "seed": SEED,
            "mpmath": mpmath.__version__,
            "named_deltas": [],
            "named_epsilons": [],
            "next_draw": 0,
            "redrawn": {},
            "skipped": [],
            "entries": [],
        }

    def save() -> None:
        # Whole file or none: the script may be stopped at any time.
        part = options.output.with_suffix(".part")
        part.write_text(json.dumps(state, indent=1) + "\n")
        part.replace(options.output)

    for known in NAMED_DELTAS[len(state["named_deltas"]) :]:
        state["named_deltas"].append(named_delta(*known))
        save()
    for known in NAMED_EPSILONS[len(state["named_epsilons"]) :]:
        state["named_epsilons"].append(named_epsilon(*known))
        save()

    def attempt(index: int, plans: int) -> None:
        try:
            state["entries"].append(entry(index, plans))
        except Redraw as reason:
            state["redrawn"][str(reason)] = state["redrawn"].get(str(reason), 0) + 1
        except Unreachable as error:
            state["skipped"].append({**error.record, "tried": plans})
        # In the order of the draws, whenever they succeeded.
        state["entries"].sort(key=lambda record: record["draw"])
        state["skipped"].sort(key=lambda record: record["draw"])

    while len(state["entries"]) + len(state["skipped"]) < options.draws:
        attempt(state["next_draw"], STAGES[0])
        state["next_draw"] += 1
        save()
    while left := [record for record in state["skipped"] if record["tried"] < STAGES[-1]]:
        # Small sigma first: fewer digits cancel in A.
        record = min(left, key=lambda record: (record["tried"], float(record["sigma"])))
        state["skipped"].remove(record)
        attempt(record["draw"], next(stage for stage in STAGES if stage > record["tried"]))
        save()


if __name__ == "__main__":
    main()
