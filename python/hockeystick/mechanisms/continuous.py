"""Continuous noise on a numeric query: Gaussian and Laplace."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .. import _core
from .._base.fields import NonNegative, Positive
from .core_pairs import HUGE, gaussian, location_pair, revealing
from .steps import Mechanism


@dataclass(frozen=True)
class Gaussian(Mechanism):
    """Gaussian noise on a vector-valued sum.

    Output f(D) + N(0, (noise_multiplier * Delta)^2 I), where Delta is the L2 sensitivity of the
    *sum* when one record is added or removed (for DP-SGD the clipping norm, before any averaging).
    ``noise_multiplier`` >= 0; 0 means no noise, and an infinite epsilon.

    >>> Gaussian(noise_multiplier=1.1)
    Gaussian(noise_multiplier=1.1)
    """

    noise_multiplier: NonNegative
    noise_convention = "noise multiplier = standard deviation / L2 sensitivity of the sum when one record is added or removed"

    def symmetric_pair(self, shift: int, group: int) -> _core.Pair:
        """N(shift, sigma^2) against N(0, sigma^2)."""
        sigma = self.noise_multiplier
        return gaussian(shift / sigma if sigma > 0.0 else math.inf)

    def unsampled_mu(self, shift: float) -> float | None:
        """Exact where there is noise; without any, there is no such mu."""
        return shift / self.noise_multiplier if self.noise_multiplier > 0.0 else None

    def poisson_replaced(self, q: float) -> _core.Pair:
        if not self.noise_multiplier * HUGE > 1.0:
            return super().poisson_replaced(q)
        return location_pair("gaussian", self.noise_multiplier, [0.0, 1.0], [1.0 - q, q])


@dataclass(frozen=True)
class Laplace(Mechanism):
    """Laplace noise on a real-valued query.

    Density exp(-|x|/scale) / (2 scale), ``scale`` > 0 in units of the query's sensitivity when one
    record is added or removed; (1/scale)-DP under add/remove. For a vector query with bounded L1
    sensitivity use PureDP(1/scale).
    """

    scale: Positive
    noise_convention = "Laplace scale in units of the sensitivity when one record is added or removed"

    def symmetric_pair(self, shift: int, group: int) -> _core.Pair:
        """Laplace noise around shift against around 0."""
        epsilon = shift / self.scale
        return _core.laplace_pair(epsilon) if epsilon < HUGE else revealing(_core.laplace_pair(HUGE), epsilon)

    def poisson_replaced(self, q: float) -> _core.Pair:
        if not self.scale * HUGE > 1.0:
            return super().poisson_replaced(q)
        return location_pair("laplace", self.scale, [0.0, 1.0], [1.0 - q, q])
