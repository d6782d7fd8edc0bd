"""Odometers: what adaptive mechanisms have spent so far, without a budget fixed in advance.

A reading depends on the data like what a filter knows (filters.py): do not release it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from .._base.types import AnyPath
from .._base.validation import real
from .adaptive import gaussian_spent
from .spending import Floats, IndividualLedger, WholeDataSet, squared_down


class IndividualGDPOdometer(IndividualLedger):
    """What each example has spent so far, without a limit: a level of Gaussian privacy, and an epsilon.

    The levels are B_m = increment sqrt(m). The outputs up to the last step at which an example's sqrt(sum mu^2)
    is at most B_m are B_m-GDP for it, for each m fixed in advance: a sequence of filters (Koskela, Tobaben,
    Honkela 2022, Appendix C.5; Feldman, Zrnic 2021, Section 4.3). So the reading of `mu` is rounded up to a
    level. (Setting the counter to zero at every crossing, as the appendix describes it, is valid too, and
    wastes what is left of a level; the filters for the B_m do not need it.) Threads may share it: one call at a time, none
    is lost. In a forked child every call raises `ForkedError`.

    >>> odometer = IndividualGDPOdometer(2, increment=0.5)
    >>> odometer.step([0.3, 0.9])
    >>> odometer.mu().round(6).tolist()
    [0.5, 1.0]
    """

    _KIND = "individual GDP odometer"
    _SETTINGS = ("increment",)

    def __init__(
        self, num_examples: int, *, increment: float, path: AnyPath | None = None, durable: bool = False
    ) -> None:
        self._increment = real("increment", increment, 1e-100, 1e100)
        super().__init__(num_examples, math.inf, 1.0, path, durable)

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
        self._charge_gaussian(norms, noise_multiplier, clipping_norm, indices)

    def levels(self) -> Floats:
        """The number m of the level that each example is below, 0 if it has spent nothing; sensitive."""
        square = squared_down(self._increment)
        spent = np.asarray(self._spent)
        level = np.ceil(spent / square)
        return np.asarray(level + (level * square < spent), np.float64)

    def mu(self) -> Floats:
        """For each example the level B_m that its sqrt(sum mu^2) is below; sensitive.

        For each m the outputs up to the end of level m are B_m-GDP. That is no statement about the level that happens to be reached.
        """
        return np.asarray(np.sqrt(self.levels()) * (self._increment * (1.0 + 2.0**-50)), np.float64)

    def epsilon(self, delta: float) -> Floats:
        """For each example the epsilon at ``delta`` of what it has spent so far: certified for adaptive steps, and sensitive.

        E (1 - e^{epsilon - L})_+ <= delta, L the loss so far, although norms, the number of steps and this very reading may depend on
        the outputs (`adaptive`; ``delta`` may not). Least loose where sum mu^2 is of the order of increment^2 or somewhat above. Larger than
        the epsilon of `mu`, which is a guarantee for each level alone: which level is read depends on the outputs.
        """
        return gaussian_spent(self._spent, self._increment**2, delta, growing=True)


class GDPOdometer(WholeDataSet):
    """What a whole data set has spent so far: see IndividualGDPOdometer.

    Threads may share it: one call at a time, none is lost. In a forked child every call raises `ForkedError`.

    >>> odometer = GDPOdometer(increment=0.5)
    >>> odometer.step(0.6)
    >>> round(odometer.mu, 4)
    0.7071
    """

    _ledger: IndividualGDPOdometer

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
        self._ledger.step([real("mu", mu, 0.0, allow_inf=True, towards=math.inf)])

    def epsilon(self, delta: float) -> float:
        """The epsilon at ``delta`` of what has been spent so far: certified for adaptive steps; see `IndividualGDPOdometer.epsilon`."""
        return float(self._ledger.epsilon(delta)[0])
