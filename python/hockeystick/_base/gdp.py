"""Gaussian differential privacy: the profile of a Gaussian mechanism, and the mu that one of its points, or pure privacy, asks for."""

from __future__ import annotations

import math

import scipy  # its parts are loaded when they are used

_MARGIN = 1e-9
"""*Proof*: relative margin on mu for the rounding of Phi^-1."""


def _mills(x: float) -> float:
    """(1 - Phi(x)) / phi(x)."""
    return math.sqrt(0.5 * math.pi) * float(scipy.special.erfcx(x / math.sqrt(2.0)))


def log_delta(mu: float, epsilon: float) -> float:
    """ln delta(epsilon) of N(mu, 1) against N(0, 1), mu > 0, epsilon >= 0.

    delta = Phi(a) - e^epsilon Phi(a - mu), a = mu/2 - epsilon/mu (Balle, Wang 2018, Theorem 8).
    """
    a = 0.5 * mu - epsilon / mu
    if a > 0.0:  # e^epsilon phi(a - mu) = phi(a), and both terms are far from underflow
        head = float(scipy.special.log_ndtr(a))
        return head + math.log1p(-math.exp(epsilon + float(scipy.special.log_ndtr(a - mu)) - head))
    difference = _mills(-a) - _mills(mu - a)
    if difference <= 0.0:
        return -math.inf
    return -0.5 * a * a - 0.5 * math.log(2.0 * math.pi) + math.log(difference)


def mu_at(epsilon: float, delta: float) -> float:
    """About the mu with delta_mu(epsilon) = delta, epsilon >= 0: it steers searches, and proves nothing, as it has few digits below 1e-6."""
    if delta <= 0.0:
        return 0.0
    if delta >= 1.0:
        return math.inf
    target = math.log(delta)

    # On a log scale: mu may be far below 1.
    def excess(log_mu: float) -> float:
        return max(log_delta(math.exp(log_mu), epsilon), -1e300) - target

    low, high = math.log(1e-12), 0.0
    while excess(high) < 0.0:
        high += math.log(2.0)
        if high > math.log(1e8):
            return math.inf
    # Asked of the very function whose root is sought, which rounds by more than it changes where mu is small.
    root = low if excess(low) >= 0.0 else scipy.optimize.brentq(excess, low, high, xtol=1e-13, rtol=1e-13)
    return math.exp(float(root)) * (1.0 + _MARGIN)


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
