"""Guarantees declared as Renyi divergences: zCDP and RDP curves, which compose among each other by addition.

docs/mechanisms/renyi.md proves the conversion, and that the sum of all of them composes with everything else.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from .._base.types import Array, Numbers
from .._base.validation import NonNegative, NonNegatives, ParameterError, vector
from .core_pairs import Pairs, both
from .curves import FURTHEST, Curve
from .given import check_lengths
from .steps import Step

_ORDERS = 1.0 + np.logspace(-4.0, 9.0, 700)
"""speed: the orders at which divergences are compared; each gives a bound."""
_DEEPEST = math.log(1e60)
"""speed: where delta falls below e^-this the curve is no longer followed."""
_NODES = 1000
"""speed: points of the curve."""


class Renyi(Step):
    """What is known of it is D_alpha(P||Q) and D_alpha(Q||P), for neighbours, and nothing else."""

    reference = "docs/mechanisms/renyi.md (Renyi divergences as a pair)"

    def moments(self, orders: Array) -> Array:
        """At least (alpha - 1) D_alpha at each of ``orders`` > 1; inf where nothing is known."""
        raise NotImplementedError

    @property
    def relative_entropy(self) -> float:
        """At least D_1, the Kullback-Leibler divergence."""
        raise NotImplementedError

    def known_orders(self) -> Numbers:
        """Orders at which its curve has corners."""
        return ()

    def pairs(self, adjacency: str) -> Pairs:
        return both(renyi_curve([(self, 1)]).pair())


@dataclass(frozen=True)
class ZCDP(Renyi):
    """Any mechanism known to be (``xi``, ``rho``)-zCDP: D_alpha <= xi + rho alpha for all alpha > 1.

    Both orders of neighbours, under the adjacency asked for (Bun and Steinke 2016). Accounted by a pair of distributions
    that bounds delta(epsilon) of every such mechanism; all of them in a composition are added first, so that nothing is lost
    between them. ``rho`` >= 0, ``xi`` >= 0.

    >>> from hockeystick import Gaussian, account
    >>> exact, declared = account(Gaussian(2.0)).epsilon(1e-5), account(ZCDP(rho=0.125)).epsilon(1e-5)
    >>> exact < declared < 1.12 * exact
    True
    """

    rho: NonNegative
    xi: NonNegative = 0.0
    noise_convention = "rho of zero-concentrated differential privacy as declared by the user"

    def simplified(self) -> Step | None:
        return self if self.rho > 0.0 or self.xi > 0.0 else None

    def moments(self, orders: Array) -> Array:
        return (orders - 1.0) * (self.xi + self.rho * orders)

    @property
    def relative_entropy(self) -> float:
        return self.xi + self.rho


@dataclass(frozen=True)
class RenyiCurve(Renyi):
    """Any mechanism known to have D_alpha <= ``epsilons[i]`` at the orders alpha = ``orders[i]`` > 1.

    Both orders of neighbours, under the adjacency asked for (Mironov 2017). Between two orders (alpha - 1) D_alpha is convex, which bounds it there
    too. Composed as `ZCDP` is. ``orders`` increasing, at least one; ``epsilons`` >= 0, one for each.
    """

    orders: Annotated[Numbers, functools.partial(vector, low=1.0, open_low=True)]
    epsilons: NonNegatives
    noise_convention = "Renyi divergences as declared by the user"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_lengths("orders", self.orders, "epsilons", self.epsilons)
        if list(self.orders) != sorted(set(self.orders)):
            raise ParameterError(f"orders = {self.orders!r}: must increase")

    def simplified(self) -> Step | None:
        return self if max(self.epsilons) > 0.0 else None

    def moments(self, orders: Array) -> Array:
        known = np.array([1.0, *self.orders])
        values = np.array([0.0, *((a - 1.0) * e for a, e in zip(self.orders, self.epsilons, strict=True))])
        return np.asarray(np.interp(orders, known, values, right=math.inf))

    @property
    def relative_entropy(self) -> float:
        return self.epsilons[0]

    def known_orders(self) -> Numbers:
        return self.orders


def renyi_curve(parts: Sequence[tuple[Renyi, int]]) -> Curve:
    """The curve of all of them together, each so many times, in any order and with anything in between."""
    known = [order for part, _ in parts for order in part.known_orders()]
    orders = np.unique(np.concatenate([_ORDERS, known]))
    moments = sum((count * part.moments(orders) for part, count in parts), np.zeros_like(orders)) * (
        1.0 + 1e-12
    )
    finite = np.isfinite(moments)
    if not finite.any():
        return Curve.of_symmetric(np.array([0.0, 1.0]), np.ones(2))
    orders, moments = orders[finite], moments[finite]
    # Where the simple bound of some order is down to the deepest delta.
    end = float(min(FURTHEST, np.min((moments + _DEEPEST) / (orders - 1.0))))
    nodes = end * np.linspace(0.0, 1.0, _NODES) ** 1.5
    delta = np.concatenate([_delta(nodes[i : i + 100], orders, moments) for i in range(0, _NODES, 100)])
    entropy = math.fsum(count * part.relative_entropy for part, count in parts) * (1.0 + 1e-12)
    # Half of the least double would be 0.
    pinsker = math.sqrt(0.5) * math.sqrt(entropy) * (1.0 + 1e-15)
    delta[0] = min(delta[0], pinsker, math.sqrt(-math.expm1(-entropy)))
    return Curve.of_symmetric(nodes, delta)


def _delta(epsilon: Array, orders: Array, moments: Array) -> Array:
    """The least bound over all orders at each epsilon >= 0 (docs/mechanisms/renyi.md, section 1): never 0, as no divergence of finite order says so."""
    fall = (orders - 1.0) * epsilon[:, None]
    small = np.minimum(moments, 50.0)
    log_rest = np.broadcast_to(moments, fall.shape)
    for _ in range(4):  # speed: each pass is a bound, and lower than the last
        event = np.exp(np.minimum(0.0, log_rest - fall))
        with np.errstate(divide="ignore"):
            rest = np.expm1(small) - np.expm1(orders * np.log1p(-event))
            log_rest = np.where(moments < 50.0, np.minimum(moments, np.log(rest)), moments)
    best = (orders - 1.0) * np.log1p(-1.0 / orders) - np.log(orders)
    exponent = log_rest - fall + best
    # The terms are rounded relatively.
    exponent += 1e-15 * (np.abs(moments) + fall + np.abs(best) + 10.0)
    return np.asarray(np.maximum(np.exp(np.minimum(0.0, exponent.min(axis=1))), 5e-324))
