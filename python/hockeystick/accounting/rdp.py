"""Rényi differential privacy and its conversion to (epsilon, delta), for comparison with the exact curves."""

from __future__ import annotations

import math

import scipy  # its parts are loaded when they are used

from .._base.validation import ParameterError, real

_MARGIN = 1e-12
"""Relative margin for the rounding of a few logarithms."""


def rdp_epsilon(order: float, rho: float, delta: float) -> float:
    """The epsilon at ``delta`` that (order, rho)-RDP implies: an upper bound.

    epsilon = rho + ln(1 - 1/order) - ln(delta order) / (order - 1), at least 0 (Canonne, Kamath, Steinke
    2020, Proposition 12; Koskela, Tobaben, Honkela 2022, Lemma 4). order > 1, rho >= 0, delta in (0, 1).

    >>> round(rdp_epsilon(order=16.0, rho=0.3, delta=1e-5), 4)
    0.8182
    """
    order = real("order", order, 1.0, open_low=True)
    rho = real("rho", rho, 0.0, allow_inf=True)
    return max(0.0, rho + conversion(order, real("delta", delta, 0.0, 1.0, open_low=True, open_high=True)))


def rdp_budget(order: float, epsilon: float, delta: float) -> float:
    """The largest rho for which (order, rho)-RDP implies (epsilon, delta): the inverse of `rdp_epsilon`.

    Rounded down. Raises ParameterError where not even rho = 0 does.
    """
    order = real("order", order, 1.0, open_low=True)
    epsilon = real("epsilon", epsilon, 0.0, towards=-math.inf)
    delta = real("delta", delta, 0.0, 1.0, open_low=True, open_high=True, towards=-math.inf)
    added = conversion(order, delta)
    rho = epsilon - added - _MARGIN * epsilon
    if rho < 0.0:
        raise ParameterError(
            f"order = {order!r}: must be higher for epsilon = {epsilon!r} and delta = {delta!r}: "
            f"at this order even rho = 0 implies no less than epsilon = {added:.6g}"
        )
    return rho


def gaussian_rdp_epsilon(mu: float, delta: float) -> tuple[float, float]:
    """(epsilon, order): the best that RDP says of a mu-GDP Gaussian mechanism, rho = order mu^2 / 2.

    An upper bound, never as low as the exact curve. mu >= 0, delta in (0, 1).

    >>> epsilon, order = gaussian_rdp_epsilon(mu=420**0.5 / 100, delta=1e-5)
    >>> round(epsilon, 5)
    0.81562
    """
    mu = real("mu", mu, 0.0)
    delta = real("delta", delta, 0.0, 1.0, open_low=True, open_high=True)
    if mu == 0.0:
        return 0.0, math.inf

    def epsilon(log_excess: float) -> float:
        order = 1.0 + math.exp(log_excess)
        return 0.5 * order * mu * mu + conversion(order, delta)

    # Without the logarithms of the order, the best one is 1 + sqrt(2 ln(1/delta)) / mu.
    middle = math.log(math.sqrt(-2.0 * math.log(delta)) / mu)
    best = scipy.optimize.minimize_scalar(epsilon, bounds=(middle - 5.0, middle + 5.0), method="bounded")
    order = 1.0 + math.exp(float(best.x))
    return max(0.0, epsilon(float(best.x))), order


def best_order(epsilon: float, delta: float) -> float:
    """The order at which a budget of (epsilon, delta) allows the most Gaussian steps: the largest rho/order."""
    epsilon = real("epsilon", epsilon, 1e-300)  # the order is about ln(1/delta) / epsilon
    delta = real("delta", delta, 0.0, 1.0, open_low=True, open_high=True)

    def allowed(log_excess: float) -> float:
        order = 1.0 + math.exp(log_excess)
        return -(epsilon - conversion(order, delta)) / order

    middle = math.log(-math.log(delta) / epsilon)
    best = scipy.optimize.minimize_scalar(allowed, bounds=(middle - 5.0, middle + 5.0), method="bounded")
    return 1.0 + math.exp(float(best.x))


def conversion(order: float, delta: float) -> float:
    """What the conversion adds to rho, rounded up."""
    first = math.log1p(-1.0 / order)
    second = (math.log(delta) + math.log(order)) / (order - 1.0)
    size = abs(first) + (abs(math.log(delta)) + abs(math.log(order))) / (order - 1.0)
    return first - second + _MARGIN * size
