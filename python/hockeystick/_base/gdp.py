"""Gaussian differential privacy: the profile of a Gaussian mechanism, and the mu that one of its points, or pure privacy, asks for."""

from __future__ import annotations

import math

import scipy  # its parts are loaded when they are used

_MARGIN = 1e-9
"""*Proof*: relative margin on mu for the rounding of Phi^-1."""


NARROW = 1e-4
"""*Speed*: up to this mu the slope of mills, x mills(x) - 1, says more than a difference, which cancels."""

_ROUNDING = 1e-9
"""*Proof*: more than delta is rounded by, relatively, in `narrow_delta`: z^2 below 2000 times that of erfcx, 1e-13."""


def _mills(x: float) -> float:
    """(1 - Phi(x)) / phi(x)."""
    return math.sqrt(0.5 * math.pi) * float(scipy.special.erfcx(x / math.sqrt(2.0)))


def _fall(x: float) -> float:
    """How fast that falls: the integral of t e^(-x t - t^2/2), so that it is convex in x."""
    return 1.0 - x * _mills(x)


def log_delta(mu: float, epsilon: float) -> float:
    """ln delta(epsilon) of N(mu, 1) against N(0, 1), mu > 0, epsilon >= 0.

    delta = Phi(a) - e^epsilon Phi(a - mu), a = mu/2 - epsilon/mu (Balle, Wang 2018, Theorem 8).
    """
    a = 0.5 * mu - epsilon / mu
    if a > 0.0 and mu > NARROW:  # e^epsilon phi(a - mu) = phi(a), and both terms are far from underflow
        head = float(scipy.special.log_ndtr(a))
        return head + math.log1p(-math.exp(epsilon + float(scipy.special.log_ndtr(a - mu)) - head))
    z = epsilon / mu
    difference = _mills(-a) - _mills(mu - a) if mu > NARROW else mu * _fall(z)
    if difference <= 0.0:
        return -math.inf
    return -0.5 * a * a - 0.5 * math.log(2.0 * math.pi) + math.log(difference)


def narrow_delta(mu: float, epsilon: float) -> float:
    """At least delta(epsilon) of N(mu, 1) against N(0, 1), mu <= `NARROW`, epsilon >= 0: phi(a) times what mills falls by, by the trapezoid of its slope."""
    z = epsilon / mu
    if not z < 45.0:
        return 5e-324
    a = 0.5 * mu - z
    slope = 0.5 * (_fall(-a) + _fall(mu - a))
    return mu * slope * math.exp(-0.5 * a * a) / math.sqrt(2.0 * math.pi) * (1.0 + _ROUNDING) + 5e-324


def mu_at(epsilon: float, delta: float) -> float:
    """About the mu with delta_mu(epsilon) = delta, epsilon >= 0: it steers searches, and proves nothing."""
    if delta <= 0.0:
        return 0.0
    if delta >= 1.0:
        return math.inf
    target = math.log(delta)

    # On a log scale: mu may be far below 1.
    def excess(log_mu: float) -> float:
        return max(log_delta(math.exp(log_mu), epsilon), -1e300) - target

    # delta is below mu, and below every double where a is below -45.
    low, high = math.log(max(delta, 2.0 * epsilon / (45.0 + math.sqrt(2025.0 + 2.0 * epsilon)))), 0.0
    while excess(high) < 0.0:
        high += math.log(2.0)
        if high > math.log(1e8):
            return math.inf
    return math.exp(scipy.optimize.brentq(excess, low, high, xtol=1e-13, rtol=1e-13)) * (1.0 + _MARGIN)


_SMALL = 1e-3
"""*Proof*: below it the series of Phi^-1 is at most its first term times 1 + 2 h^2; above it rounding is within the margin."""


def mu_of_pure_dp(epsilon: float) -> float:
    """The smallest mu such that every epsilon-DP mechanism is mu-GDP: 2 Phi^-1(e^eps / (1 + e^eps)), rounded up."""
    if epsilon < _SMALL:
        # With h = tanh(eps/2) / 2 <= eps/4, Phi^-1(1/2 + h) = sqrt(2 pi) h (1 + pi h^2 / 3 + ...): the distance
        # to 1/2 is all that counts, and the logarithm below would round it away.
        h = 0.25 * epsilon
        return 2.0 * math.sqrt(2.0 * math.pi) * h * (1.0 + 2.0 * h * h) * (1.0 + _MARGIN) + 5e-324
    # Phi^-1 of the small side, in logs: ln(1 / (1 + e^eps)).
    return -2.0 * float(scipy.special.ndtri_exp(-math.log1p(math.exp(-epsilon)) - epsilon)) * (1.0 + _MARGIN)
