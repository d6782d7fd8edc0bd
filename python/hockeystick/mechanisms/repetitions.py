"""How often a mechanism is run before the best output is selected: the laws of Papernot and Steinke 2022."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .._base.arrays import Array
from .._base.randomness import Seed, derive_key, resolve_seed
from .._base.validation import ParameterError, choice, integer, real

LAWS = ("fixed", "poisson", "negative_binomial")
_NEVER_NONE = 600.0
"""*Speed*: where K = 0, which truncation leaves out, had the probability e^-600 there is nothing to leave out."""


@dataclass(frozen=True)
class Repetitions:
    """The law of the number K of runs, drawn independently of the data; use the constructors by name.

    ``mean`` is E[K] in [1, 10^6] (Poisson: above 0; fixed: an integer), ``shape`` eta > -1 of the truncated negative binomial law
    Pr[K = k] proportional to (1 - gamma)^k prod_{l<k} (l + eta)/(l + 1), k >= 1: 1 is geometric, 0 logarithmic.
    With Poisson K = 0 is possible, and nothing is released then.

    >>> Repetitions.geometric(mean=10).gamma
    0.1
    >>> Repetitions.fixed(3).draw()
    3
    """

    law: str
    mean: float
    shape: float = 1.0

    def __post_init__(self) -> None:
        choice("law", self.law, LAWS)
        least = 0.0 if self.law == "poisson" else 1.0
        mean = real("mean", self.mean, least, 1e6, open_low=self.law == "poisson")
        if self.law == "fixed" and mean != int(mean):
            raise ParameterError(f"mean = {mean!r}: must be an integer for a fixed number of runs")
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "shape", real("shape", self.shape, -1.0, 1e3, open_low=True))

    @classmethod
    def fixed(cls, count: int) -> Repetitions:
        """K = count: the runs cost nearly what their composition costs."""
        return cls("fixed", float(integer("count", count, 1, 10**6)))

    @classmethod
    def geometric(cls, mean: float) -> Repetitions:
        """Pr[K = k] = gamma (1 - gamma)^(k-1), gamma = 1/mean."""
        return cls("negative_binomial", mean, 1.0)

    @classmethod
    def logarithmic(cls, mean: float) -> Repetitions:
        """Pr[K = k] proportional to (1 - gamma)^k / k."""
        return cls("negative_binomial", mean, 0.0)

    @classmethod
    def negative_binomial(cls, mean: float, shape: float) -> Repetitions:
        """The truncated negative binomial law with this mean and shape."""
        return cls("negative_binomial", mean, shape)

    @classmethod
    def poisson(cls, mean: float) -> Repetitions:
        """Pr[K = k] = e^-mean mean^k / k!, K = 0 included."""
        return cls("poisson", mean)

    @cached_property
    def gamma(self) -> float:
        """The parameter of the truncated negative binomial law that has this mean."""
        if self.law != "negative_binomial" or self.mean == 1.0:
            return 1.0
        if self.shape == 1.0:
            return 1.0 / self.mean
        low, high = -60.0 * max(1.0, 1.0 / (1.0 + self.shape)), 0.0
        low = max(low, -690.0)
        for _ in range(200):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if _mean(self.shape, middle) > self.mean else (low, middle)
        return math.exp(high)

    def derivative(self, below: Array, above: Array) -> Array:
        """E[K u^(K-1)] at u = ``below`` = 1 - ``above``: how the best of K weighs an outcome at this rank."""
        if self.law == "fixed":
            with np.errstate(divide="ignore"):
                log_u = np.where(above < 0.5, np.log1p(-above), np.log(below))
            exponent = (self.mean - 1.0) * log_u if self.mean > 1.0 else np.zeros_like(below)
            return np.asarray(self.mean * np.exp(exponent))
        if self.law == "poisson":
            return np.asarray(self.mean * np.exp(-self.mean * above))
        gamma = self.gamma
        mean = self.mean if self.mean == 1.0 else _mean(self.shape, math.log(gamma))
        return np.asarray(mean * (gamma / (gamma + (1.0 - gamma) * above)) ** (self.shape + 1.0))

    def draw(self, seed: Seed = None) -> int:
        """A number of runs; ``seed`` None takes the operating system's randomness."""
        source = np.random.default_rng(
            int.from_bytes(derive_key(resolve_seed(seed), "repetitions"), "little")
        )
        if self.law == "poisson":
            return int(source.poisson(self.mean))
        if self.law == "fixed" or self.mean == 1.0:
            return int(self.mean)
        gamma, eta, count = self.gamma, self.shape, 1
        if -eta * math.log(gamma) > _NEVER_NONE:
            return max(1, int(source.negative_binomial(eta, gamma)))
        first = (
            (1.0 - gamma) / -math.log(gamma)
            if eta == 0.0
            else eta * (1.0 - gamma) / math.expm1(-eta * math.log(gamma))
        )
        left = float(source.random()) - first
        while left > 0.0 and first > 0.0:
            first *= (1.0 - gamma) * (count + eta) / (count + 1.0)
            left, count = left - first, count + 1
        return count


def _mean(shape: float, log_gamma: float) -> float:
    """E[K] of the truncated negative binomial law."""
    gamma = math.exp(log_gamma)
    if log_gamma == 0.0:
        return 1.0
    ratio = -log_gamma if shape == 0.0 else -math.expm1(shape * log_gamma) / shape
    return -math.expm1(log_gamma) / (gamma * ratio)
