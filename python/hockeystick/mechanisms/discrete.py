"""Noise on the integers: discrete Laplace and discrete Gaussian."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, TypeAlias

from .. import _core
from .._base.validation import ParameterError, integer, real
from . import atoms
from .atoms import IntegerNoise
from .core_pairs import HUGE, bracket, discrete, revealing
from .steps import Mechanism

MOST_SCALE, MOST_SENSITIVITY = 1e12, 2**50
"""Of noise on the integers: what carries mass, up to 720 scales beyond twice the sensitivity, is then an exact double."""

_Scale: TypeAlias = Annotated[float, functools.partial(real, low=0.0, high=MOST_SCALE, open_low=True)]
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
