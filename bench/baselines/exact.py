"""Reference answers that need no grid: closed forms, and Laplace inversion for the sampled Gaussian."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import mpmath as mp
import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import binom

DIGITS = 40


def gaussian_delta(mu: float, epsilon: float) -> mp.mpf:
    """H_{e^epsilon}(N(mu,1) || N(0,1)) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)."""
    with mp.workdps(DIGITS + 10):
        m, e = mp.mpf(mu), mp.mpf(epsilon)
        return mp.ncdf(m / 2 - e / m) - mp.exp(e) * mp.ncdf(-m / 2 - e / m)


def solve(delta_of: Callable[[mp.mpf], mp.mpf], target: float, low: float, high: float) -> mp.mpf:
    """epsilon with delta_of(epsilon) = target, by bisection on a bracket."""
    with mp.workdps(DIGITS):
        a, b, goal = mp.mpf(low), mp.mpf(high), mp.mpf(target)
        for _ in range(int(mp.log((b - a) / mp.mpf(10) ** -22, 2)) + 1):
            middle = (a + b) / 2
            a, b = (middle, b) if delta_of(middle) > goal else (a, middle)
        return (a + b) / 2


def gaussian_epsilon(mu: float, delta: float) -> mp.mpf:
    high = mp.mpf(mu) ** 2 / 2 + mp.mpf(mu) * mp.sqrt(-2 * mp.log(delta)) + 1
    return solve(lambda e: gaussian_delta(mu, e), delta, 0, high)


@cache
def _responses(epsilon_step: float, count: int) -> list[tuple[mp.mpf, mp.mpf]]:
    """The losses of `count` randomized responses, (2 j - count) epsilon_step with j ~ Binomial(count, p), and their masses."""
    with mp.workdps(DIGITS):
        e0 = mp.mpf(epsilon_step)
        p = mp.exp(e0) / (1 + mp.exp(e0))
        return [
            ((2 * j - count) * e0, mp.binomial(count, j) * p**j * (1 - p) ** (count - j))
            for j in range(count + 1)
        ]


def pure_dp_delta(epsilon_step: float, count: int, epsilon: float) -> mp.mpf:
    """`count` randomized responses, by all of their outcomes."""
    with mp.workdps(DIGITS):
        e = mp.mpf(epsilon)
        outcomes = _responses(epsilon_step, count)
        return mp.fsum(mass * (1 - mp.exp(e - loss)) for loss, mass in outcomes if loss > e)


def pure_dp_epsilon(epsilon_step: float, count: int, delta: float) -> mp.mpf:
    return solve(lambda e: pure_dp_delta(epsilon_step, count, e), delta, 0, count * epsilon_step)


def pure_dp_delta_of_many(epsilon_step: float, count: int, epsilon: float) -> float:
    """The same from the binomial tails of SciPy, for counts whose terms cannot be summed one by one."""
    p = 1 / (1 + np.exp(-epsilon_step))
    below = np.floor((epsilon / epsilon_step + count) / 2)
    return float(binom.sf(below, count, p) - np.exp(epsilon) * binom.sf(below, count, 1 - p))


def sampled_once_epsilon(mu: float, q: float, delta: float) -> mp.mpf:
    """One Poisson-sampled Gaussian, "remove": q H_y(P||Q) = delta with e^epsilon = 1 - q + q y."""
    with mp.workdps(DIGITS):
        if delta >= q * gaussian_delta(mu, 0):
            return mp.mpf(0)
        level = gaussian_epsilon(mu, mp.mpf(delta) / mp.mpf(q))
        return mp.log1p(mp.mpf(q) * mp.expm1(level))


@dataclass(frozen=True)
class Step:
    """`count` Poisson-sampled Gaussians; "remove" is the mixture against the plain Gaussian."""

    sigma: float
    q: float
    count: int
    direction: str = "remove"

    def nodes(self, tilt: float) -> tuple[np.ndarray, np.ndarray]:
        """Points u (trapezoid, noise in units of sigma) and spacing, wide enough for every 0 <= z <= tilt."""
        spacing = min(1.0, self.sigma) / 12
        reach = (1 + tilt) / self.sigma + 14
        return spacing * np.arange(int(-14 / spacing), int(reach / spacing) + 1), spacing

    def loss(self, u: np.ndarray) -> np.ndarray:
        """ln((1-q) + q dN(1, sigma^2)/dN(0, sigma^2)) at sigma u."""
        x = u / self.sigma - 1 / (2 * self.sigma**2)
        return np.where(
            x < 1,
            np.log1p(self.q * np.expm1(np.minimum(x, 1))),
            x + np.log(self.q + (1 - self.q) * np.exp(-x)),
        )

    def tilted(self, tilt: float) -> tuple[np.ndarray, np.ndarray, float]:
        """Losses, normalised weights of the tilted law at them, and K(tilt)."""
        u, spacing = self.nodes(tilt)
        loss = self.loss(u)
        if self.direction == "remove":
            exponent = -(u**2) / 2 + (1 + tilt) * loss
        else:
            exponent, loss = -(u**2) / 2 - tilt * loss, -loss
        top = exponent.max()
        weight = np.exp(exponent - top)
        total = weight.sum()
        return loss, weight / total, float(top + np.log(total * spacing / np.sqrt(2 * np.pi)))


def _plan(steps: Sequence[Step], epsilon: float, digits: float) -> tuple[float, float, float]:
    """Saddle s of K(s) - s eps - ln s(1+s), its value, and a spacing of the contour that keeps `digits`.

    The trapezoid adds sum_m delta(eps + 2 pi m/D) e^(2 pi m s/D): small once 2 pi/D passes ten-odd deviations of
    the tilted loss (m > 0) and e^(-2 pi s/D) falls below delta (m < 0).
    """

    def exponent(log_s: float) -> float:
        s = np.exp(log_s)
        return sum(step.count * step.tilted(s)[2] for step in steps) - s * epsilon - log_s - np.log1p(s)

    best = minimize_scalar(
        exponent, bounds=(np.log(1e-2), np.log(3e3)), method="bounded", options={"xatol": 1e-3}
    )
    s = float(np.exp(best.x))
    variance = 0.0
    for step in steps:
        loss, weight, _ = step.tilted(s)
        variance += step.count * (weight @ (loss - weight @ loss) ** 2)
    lost = digits * np.log(10)
    wide = max(2 * np.sqrt(2 * variance * lost), (lost + max(0.0, -best.fun)) / s)
    return s, best.fun, 2 * np.pi / wide


def sampled_gaussian_delta(steps: Sequence[Step], epsilon: float, digits: float = 15.0) -> float:
    """delta of any composition of sampled Gaussians by Laplace inversion, relative error near 1e-9.

    delta = 1/(2 pi i) int_{s - i inf}^{s + i inf} e^{K(z) - z eps} / (z (z+1)) dz, trapezoid along the contour.
    Made for compositions of many steps: with few, the integrand decays slowly and this raises.
    """
    s, _, spacing = _plan(steps, epsilon, digits)
    block = 64
    tables = [(step.count, *step.tilted(s)) for step in steps]
    scale = sum(count * k for count, _, _, k in tables) - s * epsilon
    total = 0.0
    for start in range(0, 1 << 16, block):
        tau = spacing * np.arange(start, start + block)
        log_phi = np.zeros(block, dtype=complex)
        for count, loss, weight, _ in tables:
            log_phi += count * np.log(np.exp(1j * np.outer(tau, loss)) @ weight)
        z = s + 1j * tau
        terms = (np.exp(log_phi - 1j * tau * epsilon) / (z * (z + 1))).real
        size = np.exp(log_phi.real) / np.abs(z * (z + 1))
        terms[0] *= 0.5 if start == 0 else 1.0
        total += terms.sum()
        if size.max() < 10 ** -(digits + 1) * abs(total):
            return float(spacing / np.pi * total * np.exp(scale))
    raise ValueError(
        f"the contour does not end for {len(steps)} kinds of step at epsilon={epsilon}: too few steps"
    )


def sampled_gaussian_epsilon(steps: Sequence[Step], delta: float, low: float, high: float) -> float:
    """epsilon of a composition of sampled Gaussians, by root search in ln delta on a bracket."""

    def excess(epsilon: float) -> float:
        return np.log(max(sampled_gaussian_delta(steps, epsilon), 1e-300) / delta)

    return brentq(excess, low, high, xtol=1e-14, rtol=1e-13)


def sampled_gaussian_delta_mp(step: Step, epsilon: float, digits: int = 30) -> mp.mpf:
    """The same inversion for one kind of step in `digits` digits: the anchor for everything else.

    Along the contour e^{i tau l(u)} advances by one multiplication per node.
    """
    s, _, spacing = _plan([step], epsilon, digits)
    with mp.workdps(digits + 15):
        sigma, q, s, d = mp.mpf(step.sigma), mp.mpf(step.q), mp.mpf(s), mp.mpf(spacing)
        width = mp.mpf(min(1.0, step.sigma)) / 24
        reach = mp.sqrt(2 * (digits + 10) * mp.log(10))
        count = int((2 * reach + (1 + s) / sigma) / width)
        values, factors = [], []
        for i in range(count):
            u = -reach + i * width
            loss = mp.log(1 - q + q * mp.exp(u / sigma - 1 / (2 * sigma**2)))
            power, sign = ((1 + s), 1) if step.direction == "remove" else (-s, -1)
            values.append(mp.npdf(u) * width * mp.exp(power * loss))
            factors.append(mp.expj(sign * d * loss))
        total, j = mp.mpf(0), 0
        while True:
            z = s + 1j * j * d
            term = mp.exp(step.count * mp.log(mp.fsum(values)) - z * epsilon) / (z * (z + 1))
            total += term.real / (2 if j == 0 else 1)
            if abs(term) < mp.mpf(10) ** -(digits + 5) * abs(total):
                return d / mp.pi * total
            values = [v * f for v, f in zip(values, factors, strict=True)]
            j += 1
