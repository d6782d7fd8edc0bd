"""Batches in a fixed order, for strategies of any number of bands: accounted without amplification (docs/matrix/buffered.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .. import _core
from .._base.fields import Size
from .._base.types import Array
from .._base.validation import ParameterError
from ..mechanisms.descriptions import Gaussian, Process
from .scheme import Scheme
from .strategy import Strategy

_ROUNDING = 1.0 - 1e-12
"""*Proof*: less than the relative round-off of a quotient."""


@dataclass(frozen=True)
class FixedOrder(Scheme):
    """The examples are split into ``min_sep`` fixed groups, and iteration i takes all of group i mod ``min_sep``.

    Nothing is random, so nothing is amplified: the mechanism is one Gaussian release at noise_multiplier / sensitivity, for any strategy,
    the sensitivity that of participations at least ``min_sep`` steps apart. Where it is computed exactly, so is the privacy.

    >>> from hockeystick import Gaussian, account
    >>> from hockeystick.matrix import BandMF, BufferedToeplitz
    >>> strategy = BufferedToeplitz(((0.3, 0.9), (0.1, 0.5)), steps=100)
    >>> mechanism = BandMF(strategy, FixedOrder(100, min_sep=25), noise_multiplier=8.0)
    >>> account(mechanism).epsilon(1e-5) >= account(Gaussian(8.0 / strategy.sensitivity(25, 4))).epsilon(1e-5)
    True
    """

    min_sep: Size

    _law_kind = "cyclic_poisson"
    is_analytic = True
    sampling_probability: ClassVar[float] = 1.0
    """Of the law of its batches: cyclic Poisson sampling that takes everybody."""

    def largest_bands(self) -> int:
        return self.steps

    def no_participation_log_probability(self) -> float:
        return 0.0 if self.steps == 0 else -math.inf

    def unamplified(self) -> tuple[int, int]:
        return self.min_sep, 1

    def composition(self, strategy: Strategy, noise_multiplier: float) -> Process:
        return (
            Gaussian(noise_multiplier / strategy.sensitivity(self.min_sep, None) * _ROUNDING) * 1
        ).as_process()

    def seen_as(self, strategy: Strategy) -> tuple[Array, int]:
        """One release of a number that moves by the sensitivity."""
        return np.array([[strategy.sensitivity(self.min_sep, None)]]), 1

    def seen_outputs(self, strategy: Strategy, outputs: Array) -> Array:
        raise ParameterError(
            "scheme = FixedOrder: the loss of an output needs an example's group; use account"
        )

    def _core(self) -> _core.Scheme:
        return _core.b_min_sep(1, 1.0, False)
