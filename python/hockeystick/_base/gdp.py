"""Gaussian differential privacy: the profile of a Gaussian mechanism, and the smallest mu above a profile."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from itertools import pairwise

import scipy  # its parts are loaded when they are used

_MAX_EVALUATIONS = 256  # *speed*
_TOLERANCE = 1e-3  # *speed*
_MARGIN = 1e-9
"""*Proof*: relative margin on mu for the rounding of the Gaussian profile and of the root search."""


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
    """The mu with delta_mu(epsilon) = delta, epsilon >= 0, a hair too large rather than too small."""
    if delta <= 0.0:
        return 0.0
    if delta >= 1.0:
        return math.inf
    target = math.log(delta)
    low, high = 1e-12, 1.0
    while log_delta(high, epsilon) < target:
        high *= 2.0
        if high > 1e8:
            return math.inf
    if log_delta(low, epsilon) >= target:
        return low

    def excess(log_mu: float) -> float:
        return max(log_delta(math.exp(log_mu), epsilon), -1e300) - target

    # On a log scale: mu may be far below 1.
    root = scipy.optimize.brentq(excess, math.log(low), math.log(high), xtol=1e-13, rtol=1e-13)
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


def smallest_mu(delta: Callable[[float], float], end: float, slack: float) -> float:
    """Smallest mu found with delta(eps) <= delta_mu(eps) + slack for every eps in [0, end].

    ``delta`` returns an upper bound that does not increase with eps. On a cell [a, b], delta(a)
    against the Gaussian's value at b covers every eps in between, because both fall; the cell that
    asks for the largest mu is halved until it asks for hardly more than one of the points does.
    The result is rigorous at any time, and within one part in 1000 of the best for this ``delta`` unless the
    number of evaluations runs out.
    """

    def needed(at: float, value: float) -> float:
        return mu_at(at, value - slack) if value > slack else 0.0

    edges = [end * (i / 32.0) ** 2 for i in range(33)]
    values = [delta(edge) for edge in edges]
    best = max(needed(edge, value) for edge, value in zip(edges, values, strict=True))
    cells = [(-needed(b, value), a, b, value) for (a, b), value in zip(pairwise(edges), values, strict=False)]
    heapq.heapify(cells)
    for _ in range(_MAX_EVALUATIONS):
        negative, a, b, value = cells[0]
        middle = 0.5 * (a + b)
        if -negative <= best * (1.0 + _TOLERANCE) or not a < middle < b:
            break
        at_middle = delta(middle)
        best = max(best, needed(middle, at_middle))
        heapq.heapreplace(cells, (-needed(middle, value), a, middle, value))
        heapq.heappush(cells, (-needed(b, at_middle), middle, b, at_middle))
    return max(best, -cells[0][0])
