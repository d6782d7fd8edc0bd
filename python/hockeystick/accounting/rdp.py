"""Rényi differential privacy and its conversion to (epsilon, delta), for comparison with the exact curves."""

from __future__ import annotations

import math

import numpy as np
import scipy  # its parts are loaded when they are used
from numpy.typing import ArrayLike

from .. import _core
from .._base.types import Array
from .._base.validation import ParameterError, real, reals
from ..mechanisms.adjacency import Directions
from ..mechanisms.descriptions import Composable, Process, composition
from ..mechanisms.renyi import Renyi
from .settings import Settings

_MARGIN = 1e-12
"""*Proof*: relative margin for the rounding of a few logarithms."""

LARGEST_ORDER = 2.0**53
"""*proof*: up to here order - 1 is exact (docs/accounting/rdp.md, "The moment")."""


def rdp_curve(
    process: Composable, orders: ArrayLike, adjacency: str = "add_or_remove"
) -> tuple[Array, Array]:
    """(lower, upper): Rényi differential privacy of ``process`` at each order, as certified bounds.

    rho(order) = max over directions of the sum over steps of D_order(P || Q), with D_order(P || Q) =
    ln E_Q[(P/Q)^order] / (order - 1) (Mironov 2017). Any real orders in (1, 2^53], and inf for pure DP; the
    results have the shape of ``orders``. ``upper`` holds for the mechanism, ``lower`` for the pair of
    distributions that dominates it; for sampled Gaussians, Laplace noise and finite laws the two agree to about 12
    digits, but for orders so high that the largest losses alone count. What is declared (`ZCDP`, `RenyiCurve`) counts as declared. inf where a loss is infinite or no better bound is known (docs/accounting/rdp.md). Raises ParameterError before any work.

    >>> import hockeystick as hs
    >>> step = hs.PoissonSampled(hs.Gaussian(noise_multiplier=1.0), sampling_probability=0.01)
    >>> lower, upper = rdp_curve(step * 1000, [2.0, 4.5, 16.0])
    >>> upper.round(6).tolist()
    [0.171813, 0.414927, 3087.850784]
    """
    settings = Settings(adjacency)
    points = reals("orders", orders, 1.0, open_low=True, allow_inf=True)
    if np.any((points > LARGEST_ORDER) & np.isfinite(points)):
        raise ParameterError(f"orders: must lie in (1, 2^53] or be inf, not {points.max()!r}")
    known = _divided(process, settings)
    found = np.array([_divergence(*known, order) for order in points.ravel().tolist()])
    lower, upper = found.reshape(-1, 2).T
    return lower.reshape(points.shape), upper.reshape(points.shape)


def _divided(process: Composable, settings: Settings) -> tuple[Directions, list[tuple[Renyi, int]]]:
    """The pairs, and what is declared as divergences, of which the pair of a curve would say less."""
    whole = composition(process)
    declared = [(simple, count) for step, count in whole if isinstance(simple := step.simplified(), Renyi)]
    rest = Process((step, count) for step, count in whole if not isinstance(step.simplified(), Renyi))
    return settings.directions(rest), declared


def _divergence(
    directions: Directions, declared: list[tuple[Renyi, int]], order: float
) -> tuple[float, float]:
    """Bounds on the largest, over directions, of the sum of all pairs' divergences, and what is declared: of order inf, nothing."""
    lower = upper = 0.0
    for direction in directions:
        terms = [(pair, count, _core.renyi_divergence(pair, order)) for pair, count in direction]
        high = math.fsum(count * bounds[1] for _, count, bounds in terms)
        low = math.fsum(
            count * (bounds[0] if pair.lower is None else _core.renyi_divergence(pair.lower, order)[0])
            for pair, count, bounds in terms
        )
        lower, upper = max(lower, low * (1.0 - 1e-15)), max(upper, high * (1.0 + 1e-15))
    if not declared or math.isinf(order):
        return lower, math.inf if declared else upper
    moments = [(float(step.moments(np.array(order))), count) for step, count in declared]
    # Below the normal doubles roundings are not relative.
    added = math.fsum(count * (moment / (order - 1.0) + 1e-300) for moment, count in moments)
    return lower, upper + added * (1.0 + _MARGIN)


def best_rdp_epsilon(
    process: Composable, delta: float, adjacency: str = "add_or_remove"
) -> tuple[float, float]:
    """(epsilon, order): the least epsilon at ``delta`` in (0, 1) that RDP of any order implies for ``process``.

    The minimum over real orders from 1.0005 on, and those of each `RenyiCurve`, of `rdp_epsilon` of `rdp_curve`: an upper bound, as either is, and never less
    than `account` says but for what that loses of declared divergences (docs/mechanisms/renyi.md, section 3). Raises ParameterError before any work.

    >>> import hockeystick as hs
    >>> epsilon, order = best_rdp_epsilon(hs.PoissonSampled(hs.Gaussian(1.0), 0.01) * 1000, delta=1e-5)
    >>> round(epsilon, 4), round(order, 1)
    (2.1013, 7.8)
    """
    delta = real("delta", delta, 0.0, 1.0, open_low=True, open_high=True)
    known = _divided(process, Settings(adjacency))

    def at(order: float) -> float:
        return _converted(order, _divergence(*known, order)[1], delta)

    def epsilon(log_excess: float) -> float:
        return at(1.0 + math.exp(log_excess))

    # Any order will do. Half steps find the basin, of which there may be several; rho increases with the order,
    # so that far beyond the best epsilon nothing is left to find.
    largest_loss = best = _divergence(*known, math.inf)[1]
    middle = math.inf
    for log_excess in np.arange(-7.0, 36.0, 0.5).tolist():
        here = epsilon(log_excess)
        if here < best:
            best, middle = here, log_excess
        elif middle < math.inf and here > 1.5 * best + 1.0:
            break
    orders = [order for step, _ in known[1] for order in step.known_orders()]
    if middle < math.inf:
        with np.errstate(invalid="ignore"):  # beside orders of which nothing is known
            found = scipy.optimize.minimize_scalar(
                epsilon, bounds=(middle - 0.5, middle + 0.5), method="bounded"
            )
        orders += [1.0 + math.exp(middle), 1.0 + math.exp(float(found.x))]
    return min([(largest_loss, math.inf), *((at(order), order) for order in orders)])


def rdp_epsilon(order: float, rho: float, delta: float) -> float:
    """The epsilon at ``delta`` that (order, rho)-RDP implies: an upper bound.

    epsilon = rho + ln(1 - 1/order) - ln(delta order) / (order - 1), at least 0 (Canonne, Kamath, Steinke
    2020, Proposition 12; Koskela, Tobaben, Honkela 2022, Lemma 4). order > 1, rho >= 0, delta in (0, 1).

    >>> round(rdp_epsilon(order=16.0, rho=0.3, delta=1e-5), 4)
    0.8182
    """
    order = real("order", order, 1.0, open_low=True, towards=-math.inf)  # divergences rise with it
    rho = real("rho", rho, 0.0, allow_inf=True, towards=math.inf)
    return _converted(order, rho, real("delta", delta, 0.0, 1.0, open_low=True, open_high=True))


def _converted(order: float, rho: float, delta: float) -> float:
    return max(0.0, math.nextafter(rho + conversion(order, delta), math.inf))


def rdp_budget(order: float, epsilon: float, delta: float) -> float:
    """The largest rho for which (order, rho)-RDP implies (epsilon, delta): the inverse of `rdp_epsilon`.

    Rounded down. Raises ParameterError where not even rho = 0 does.
    """
    order = real("order", order, 1.0, open_low=True, towards=-math.inf)  # divergences rise with it
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


def best_order(epsilon: float, delta: float) -> float:
    """The order at which a budget of (epsilon, delta) allows the most Gaussian steps: the largest rho/order."""
    epsilon = real("epsilon", epsilon, 1e-300)  # the order is about ln(1/delta) / epsilon
    delta = real("delta", delta, 0.0, 1.0, open_low=True, open_high=True)

    def order_at(log_excess: float) -> float:
        return 1.0 + max(2.0**-52, math.exp(log_excess))  # above 1, however large epsilon is

    def allowed(log_excess: float) -> float:
        order = order_at(log_excess)
        return -(epsilon - conversion(order, delta)) / order

    middle = math.log(-math.log(delta)) - math.log(epsilon)
    best = scipy.optimize.minimize_scalar(allowed, bounds=(middle - 5.0, middle + 5.0), method="bounded")
    return order_at(float(best.x))


def conversion(order: float, delta: float) -> float:
    """What the conversion adds to rho, rounded up."""
    excess = order - 1.0
    # ln(1 - 1/order) with all its digits near order 1, too, as the excess is exact there.
    first = -math.log1p(1.0 / excess)
    second = (math.log(delta) + math.log(order)) / excess
    size = abs(first) + (abs(math.log(delta)) + abs(math.log(order))) / excess
    return first - second + _MARGIN * size
