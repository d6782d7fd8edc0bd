"""Odometers: what adaptive mechanisms have spent so far, without a budget fixed in advance.

A reading depends on the data like what a filter knows (filters.py): do not release it.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from . import _core
from .individual_ledger import Floats, IndividualLedger, scaling, squared_down
from .validation import real

if TYPE_CHECKING:
    from typing_extensions import Self


class IndividualGDPOdometer(IndividualLedger):
    """What each example has spent so far, without a limit; readings are guarantees at given levels only.

    The levels are B_m = increment sqrt(m). The outputs up to the last step at which an example's sqrt(sum mu^2)
    is at most B_m are B_m-GDP for it, for each m fixed in advance: a sequence of filters (Koskela, Tobaben,
    Honkela 2022, Appendix C.5; Feldman, Zrnic 2021, Section 4.3). So the reading of `mu` is rounded up to a
    level. (Setting the counter to zero at every crossing, as the appendix describes it, is valid too, and
    wastes what is left of a level; the filters for the B_m do not need it.)

    >>> odometer = IndividualGDPOdometer(2, increment=0.5)
    >>> odometer.step([0.3, 0.9])
    >>> odometer.mu().round(6).tolist()
    [0.5, 1.0]
    """

    _KIND = "individual GDP odometer"

    def __init__(
        self,
        num_examples: int,
        *,
        increment: float,
        path: str | os.PathLike[str] | None = None,
        durable: bool = False,
    ) -> None:
        self._increment = real("increment", increment, 1e-100, 1e100)
        super().__init__(num_examples, math.inf, 1.0, path, durable, {"increment": self._increment})

    @classmethod
    def _restore(cls, content: dict[str, Any]) -> Self:
        return cls(0, increment=content["increment"])

    @property
    def increment(self) -> float:
        """The first level; the m-th is this times sqrt(m)."""
        return self._increment

    def step(
        self,
        norms: ArrayLike,
        *,
        noise_multiplier: float | None = None,
        clipping_norm: float | None = None,
        indices: ArrayLike | None = None,
    ) -> None:
        """Record one step; arguments as in `IndividualGDPFilter.step`."""
        self._charge((*scaling(noise_multiplier, clipping_norm), 1.0, True), norms, indices)

    def levels(self) -> Floats:
        """The number m of the level that each example is below, 0 if it has spent nothing; sensitive."""
        square = squared_down(self._increment)
        spent = np.asarray(self._spent)
        level = np.ceil(spent / square)
        return np.asarray(level + (level * square < spent), np.float64)

    def mu(self) -> Floats:
        """For each example the level B_m that its outputs so far are below: rounded up; sensitive."""
        return np.asarray(np.sqrt(self.levels()) * (self._increment * (1.0 + 2.0**-50)), np.float64)

    def epsilon(self, delta: float) -> Floats:
        """For each example the epsilon at ``delta`` of its reading `mu`: certified, and sensitive."""
        return _core.gaussian_epsilons(self.mu(), real("delta", delta, 0.0, 1.0))


class GDPOdometer:
    """What a whole data set has spent so far: see IndividualGDPOdometer.

    >>> odometer = GDPOdometer(increment=0.5)
    >>> odometer.step(0.6)
    >>> round(odometer.mu, 4)
    0.7071
    """

    def __init__(self, *, increment: float) -> None:
        self._ledger = IndividualGDPOdometer(1, increment=increment)

    @property
    def mu(self) -> float:
        """The level B_m that the outputs so far are below."""
        return float(self._ledger.mu()[0])

    @property
    def level(self) -> int:
        """Its number m."""
        return int(self._ledger.levels()[0])

    @property
    def steps(self) -> int:
        """Number of steps so far."""
        return self._ledger.steps

    def step(self, mu: float) -> None:
        """Record a mu-GDP step."""
        self._ledger.step([real("mu", mu, 0.0, allow_inf=True)])

    def epsilon(self, delta: float) -> float:
        """The epsilon at ``delta`` of the reading: certified."""
        return float(self._ledger.epsilon(delta)[0])


__all__ = ["GDPOdometer", "IndividualGDPOdometer"]
