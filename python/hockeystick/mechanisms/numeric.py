"""Noise on a numeric query: Gaussian and Laplace, of real numbers and of integers."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, ClassVar, TypeAlias

from .. import _core
from .._base.validation import NonNegative, ParameterError, integer, no_more
from . import atoms
from .atoms import IntegerNoise
from .core_pairs import HUGE, bracket, discrete, gaussian, location_pair, revealing
from .steps import ExactGuarantee, Mechanism, shift_of


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

    def guarantee(self, adjacency: str) -> ExactGuarantee | None:
        """Of noise, none; without any the data are revealed, which is (0, 1)-DP and says something where records are sampled."""
        return ExactGuarantee(Fraction(0), Fraction(1)) if self.noise_multiplier == 0.0 else None

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

    scale: Annotated[float, no_more]
    noise_convention = "Laplace scale in units of the sensitivity when one record is added or removed"

    def guarantee(self, adjacency: str) -> ExactGuarantee | None:
        """How far a record moves the sum, over the scale."""
        return ExactGuarantee(shift_of(adjacency) / Fraction(self.scale))

    def symmetric_pair(self, shift: int, group: int) -> _core.Pair:
        """Laplace noise around shift against around 0."""
        epsilon = shift / self.scale
        return _core.laplace_pair(epsilon) if epsilon < HUGE else revealing(_core.laplace_pair(HUGE), epsilon)

    def poisson_replaced(self, q: float) -> _core.Pair:
        if not self.scale * HUGE > 1.0:
            return super().poisson_replaced(q)
        return location_pair("laplace", self.scale, [0.0, 1.0], [1.0 - q, q])


MOST_SCALE, MOST_SENSITIVITY = 1e12, 2**50
"""*Proof*, of noise on the integers: what carries mass, up to 720 scales beyond twice the sensitivity, is then an exact double."""

_Scale: TypeAlias = Annotated[float, functools.partial(no_more, high=MOST_SCALE)]
_Sensitivity: TypeAlias = Annotated[int, functools.partial(integer, low=1, high=MOST_SENSITIVITY)]


class _OnIntegers(Mechanism):
    """Noise whose pairs have atoms."""

    sensitivity: int
    most_sensitivity: ClassVar[int] = MOST_SENSITIVITY

    def noise(self) -> IntegerNoise:
        """The law of the noise."""
        raise NotImplementedError

    def symmetric_pair(self, shift: int, group: int) -> _core.Pair:
        noise, reach = self.noise(), shift * self.sensitivity
        if reach > 2 * self.most_sensitivity:
            raise ParameterError(
                f"sensitivity = {self.sensitivity}: must be at most {self.most_sensitivity} for all records together that "
                f"a batch may hold twice; here it is {reach}"
            )
        if reach / noise.scale >= HUGE:
            return revealing(discrete(atoms.shown(HUGE)), math.inf if noise.scale == 0.0 else HUGE)
        return bracket(atoms.shifted(noise, reach))

    def poisson_replaced(self, q: float) -> _core.Pair:
        noise = self.noise()
        if not self.sensitivity / noise.scale < HUGE:
            return super().poisson_replaced(q)
        return bracket(atoms.sampled_replace_one(noise, self.sensitivity, q))


@dataclass(frozen=True)
class DiscreteLaplace(_OnIntegers):
    """Discrete Laplace (two-sided geometric) noise on an integer query.

    Pr[t] proportional to exp(-|t|/scale), t integer; ``scale`` in (0, 1e12] in units of the query, whose
    change when one record is added or removed is at most the integer ``sensitivity`` in [1, 2^50].
    """

    scale: _Scale
    sensitivity: _Sensitivity = 1
    noise_convention = "discrete Laplace scale and add/remove sensitivity in units of the query"

    def guarantee(self, adjacency: str) -> ExactGuarantee | None:
        """How far a record moves the query, over the scale."""
        return ExactGuarantee(shift_of(adjacency) * self.sensitivity / Fraction(self.scale))

    def noise(self) -> IntegerNoise:
        return IntegerNoise("laplace", self.scale)


@dataclass(frozen=True)
class DiscreteGaussian(_OnIntegers):
    """Discrete Gaussian noise on an integer query (Canonne, Kamath, Steinke 2020).

    Pr[t] proportional to exp(-t^2 / (2 sigma^2)), t integer; ``sigma`` in (0, 1e12] in units of the query,
    whose change when one record is added or removed is at most the integer ``sensitivity`` in [1, 2^50].
    """

    sigma: _Scale
    sensitivity: _Sensitivity = 1
    noise_convention = "discrete Gaussian sigma and add/remove sensitivity in units of the query"

    def noise(self) -> IntegerNoise:
        return IntegerNoise("gaussian", self.sigma)
