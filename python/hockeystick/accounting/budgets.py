"""What a calibration asks of each candidate: does it fit, does it exceed, how far off is it?"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import scipy  # its parts are loaded when they are used

from .._base import gdp
from .._base.bounds import Bounds
from .._base.search import Verdict
from ..mechanisms.descriptions import Composable, composition
from .goals import Aim, Goal
from .profile import PrivacyProfile, account
from .risk import Risk

_TINY, _NEARLY_ONE = 1e-300, 1.0 - 1e-12
_ROOT_2PI = math.sqrt(2.0 * math.pi)


class Budget:
    """The target, and the question put to each candidate: does it fit, does it exceed, how far off?

    The distance is measured in ln mu, where N(mu, 1) against N(0, 1) has the same delta at the same
    epsilon: a straight line against ln noise, ln steps or ln q for Gaussians, and nearly so for
    every long composition, which is why few evaluations suffice. At delta = 0, where no Gaussian
    fits, it is measured in ln epsilon.
    """

    def __init__(
        self, make: Callable[[Any], Composable], aim: Aim, adjacency: str, memory_limit: int
    ) -> None:
        self.make = make
        self.aim = aim
        self.epsilon = aim.epsilon
        self.delta = aim.delta
        self.adjacency = adjacency
        self.memory_limit = memory_limit
        self.evaluations = 0
        self.accuracies: dict[float, float] = {}
        self.target = self._log_mu(self.epsilon, self.delta)
        self.steepness = self._steepness()

    def profile(self, value: float, accuracy: float) -> PrivacyProfile:
        description = self.make(value)
        composition(description, f"make({value!r})")
        return account(description, self.adjacency, accuracy, self.memory_limit)

    def epsilon_bounds(self, profile: PrivacyProfile) -> Bounds:
        self.evaluations += 1
        return profile.epsilon_bounds(self.delta)

    def delta_bounds(self, profile: PrivacyProfile) -> Bounds:
        self.evaluations += 1
        return profile.delta_bounds(self.epsilon)

    def look(self, value: float, accuracy: float) -> Verdict:
        """What the search learns from one candidate.

        delta at the target epsilon costs less than epsilon at the target delta, and either one
        proves the point. The second is asked for only where the first says nothing useful.
        """
        profile = self.profile(value, accuracy)
        self.accuracies[value] = accuracy
        fits = exceeds = False
        if self.delta > 0.0:
            lower, upper = self.delta_bounds(profile)
            # Comparisons with nan are false: then nothing is proven.
            fits, exceeds = upper <= self.delta, lower > self.delta
            if _TINY < upper < _NEARLY_ONE and (fits or lower > 0.0):
                height = self._log_mu(self.epsilon, upper) - self.target
                return Verdict(fits, exceeds, height, _width(lower, upper) / self.steepness)
        lower, upper = self.epsilon_bounds(profile)
        fits, exceeds = fits or upper <= self.epsilon, exceeds or lower > self.epsilon
        return Verdict(fits, exceeds, self._log_mu(upper, self.delta) - self.target, _width(lower, upper))

    def risk_bounds(self, profile: PrivacyProfile) -> Bounds | None:
        """What was limited, where that is not epsilon at delta."""
        return None if not self.aim.risk else self.delta_bounds(profile)

    def _log_mu(self, epsilon: float, delta: float) -> float:
        """ln mu of the Gaussian with this guarantee, nan if that says nothing."""
        if self.delta == 0.0:
            return math.log(epsilon) if 0.0 < epsilon < math.inf else math.nan
        if not (0.0 < delta < 1.0 and epsilon < math.inf):
            return math.nan
        if epsilon == 0.0:  # delta = 2 Phi(mu / 2) - 1
            half = 0.5 * delta
            return math.log(
                2.0 * float(scipy.special.ndtri(0.5 + half)) if half > 1e-6 else _ROOT_2PI * delta
            )
        mu = gdp.mu_at(epsilon, delta)
        return math.log(mu) if 1.1e-12 < mu < math.inf else math.nan

    def _steepness(self) -> float:
        """d ln delta / d ln mu at the target: how well delta must be known to see a change of mu."""
        if self.delta == 0.0 or math.isnan(self.target):
            return 1.0
        mu = math.exp(self.target)
        a = 0.5 * mu - self.epsilon / mu
        return math.exp(self.target - 0.5 * a * a - math.log(_ROOT_2PI * self.delta))


def _width(lower: float, upper: float) -> float:
    return math.log(upper / lower) if 0.0 < lower < upper < math.inf else 0.0


class RiskBudget(Budget):
    """The limit is on what an attack achieves; ``epsilon`` is one at which delta bounds it well, and ``delta`` comes out."""

    def __init__(
        self, make: Callable[[Any], Composable], aim: Aim, goal: Goal, adjacency: str, memory_limit: int
    ) -> None:
        self.goal = goal
        super().__init__(make, aim, adjacency, memory_limit)
        # The tangent to the Gaussian's curve there has slope e^epsilon.
        mu = math.exp(self.target)
        quantile = float(scipy.special.ndtri(goal.fpr_of(goal.limit)))
        self.epsilon = max(0.0, -mu * (quantile + 0.5 * mu))

    def risk_bounds(self, profile: PrivacyProfile) -> Bounds:
        self.evaluations += 1
        return self.goal.ask(Risk(profile, tolerance=min(1e-7, 0.25 * profile.accuracy)))

    def look(self, value: float, accuracy: float) -> Verdict:
        self.accuracies[value] = accuracy
        lower, upper = self.risk_bounds(self.profile(value, accuracy))
        height, limit = self.goal.log_mu(upper), self.goal.limit
        error = height - self.goal.log_mu(lower) if lower > 0.0 else math.nan
        known = error if math.isfinite(error) else 0.0
        return Verdict(upper <= limit, lower > limit, height - self.target, known)

    def _log_mu(self, epsilon: float, delta: float) -> float:
        return self.goal.log_mu(self.goal.limit)

    def _steepness(self) -> float:
        limit = self.goal.limit
        step = 1e-6 * min(1.0, (1.0 - limit) / limit)
        rise = self.goal.log_mu(limit * (1.0 + step)) - self.target
        return step / rise if rise > 0.0 else 1.0


def budget(make: Callable[[Any], Composable], aim: Aim, adjacency: str, memory_limit: int) -> Budget:
    if aim.goal is None:
        return Budget(make, aim, adjacency, memory_limit)
    return RiskBudget(make, aim, aim.goal, adjacency, memory_limit)
