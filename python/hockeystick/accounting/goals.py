"""What a calibration may aim at, a budget or the most that an attack may achieve, and what it asks of each candidate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypedDict

import scipy  # its parts are loaded when they are used

from .._base import gdp
from .._base.bounds import Bounds
from .._base.search import Verdict
from .._base.validation import ParameterError, ParameterTypeError, double, real
from ..mechanisms.descriptions import ApproximateDP, Composable, composition
from . import rare
from .profile import PrivacyProfile, account
from .risk import Risk


class RiskTarget(TypedDict, total=False):
    """A limit on what attacks achieve, in the place of ``epsilon`` and ``delta``: one of the first six, with what it is taken at.

    ``advantage``; ``tpr`` at ``fpr``; ``reconstruction`` at ``baseline``; ``precision`` at ``fpr`` and ``prior``; ``recall`` at
    ``odds``; ``bayes_risk`` (the least error) at ``prior`` <= 1/2. See `Risk`.
    """

    advantage: float
    tpr: float
    reconstruction: float
    precision: float
    recall: float
    bayes_risk: float
    fpr: float
    baseline: float
    prior: float
    odds: float


_AT = {
    "advantage": (),
    "tpr": ("fpr",),
    "reconstruction": ("baseline",),
    "precision": ("fpr", "prior"),
    "recall": ("odds",),
    "bayes_risk": ("prior",),
}


@dataclass(frozen=True)
class Goal:
    """A risk that must be at most ``limit``: ``ask`` bounds it, ``at_odds`` gives the FPR that belongs to a TPR."""

    limit: float
    ask: Callable[[Risk], Bounds]
    fpr_of: Callable[[float], float]

    def log_mu(self, value: float) -> float:
        """ln mu of the Gaussian mechanism with this risk, nan if there is none: all of them are a TPR at an FPR."""
        fpr = self.fpr_of(value)
        if not 0.0 < fpr < value < 1.0:
            return math.nan
        mu = float(scipy.special.ndtri(value) - scipy.special.ndtri(fpr))
        return math.log(mu) if mu > 0.0 else math.nan


@dataclass(frozen=True)
class Aim:
    """A budget, or a ``goal`` in its place; ``risk`` is what was asked for."""

    epsilon: float
    delta: float
    goal: Goal | None
    risk: dict[str, float]

    def __str__(self) -> str:
        named = self.risk or {"epsilon": self.epsilon, "delta": self.delta}
        return ", ".join(f"{name} = {value!r}" for name, value in named.items())


def aim(epsilon: float | None, delta: float | None, risk: Mapping[str, float]) -> Aim:
    """Check what was asked for."""
    if not risk:
        if epsilon is None or delta is None:
            missing = "epsilon" if epsilon is None else "delta"
            raise ParameterTypeError(
                f"{missing} = None: must be a number, unless a risk is limited: {', '.join(_AT)}"
            )
        return Aim(real("epsilon", epsilon, 0.0), real("delta", delta, 0.0, 1.0), None, {})
    if unknown := risk.keys() - _AT.keys() - {name for at in _AT.values() for name in at}:
        raise ParameterTypeError(
            f"{', '.join(sorted(unknown))}: unexpected keyword, must be epsilon and delta, or one of the risks: {', '.join(_AT)}"
        )
    if epsilon is not None or delta is not None:
        raise ParameterTypeError(f"{next(iter(risk))}: takes the place of epsilon and delta; leave them out")
    return _aim(*_checked(risk))


def _checked(risk: Mapping[str, float]) -> tuple[str, float, dict[str, float]]:
    """What is limited, the limit, and what it is taken at."""
    kinds = [name for name in _AT if name in risk]
    if len(kinds) != 1 or set(risk) != {*kinds, *_AT[kinds[0]]}:
        known = "; ".join(f"{name} with {' and '.join(at)}" if at else name for name, at in _AT.items())
        raise ParameterTypeError(f"{', '.join(risk)}: must be one of: {known}")
    kind = kinds[0]
    low = 1.0 if kind == "recall" else 0.0
    at = {
        name: real(name, risk[name], low, math.inf if low else 1.0, open_low=True, open_high=True)
        for name in _AT[kind]
    }
    value = real(kind, risk[kind], 0.0, 1.0, open_low=True, open_high=True)
    return kind, value, at


def _aim(kind: str, value: float, at: dict[str, float]) -> Aim:
    asked = {kind: value, **at}
    if kind == "advantage":
        return Aim(0.0, value, None, asked)
    if kind == "bayes_risk":
        # prior (1 - delta) >= value, at an epsilon rounded down and a delta rounded down.
        prior = real("prior", at["prior"], 0.0, 0.5, open_low=True)
        if not value < prior:
            raise ParameterError(
                f"bayes_risk = {value!r}: must be below prior = {prior!r}, the error of guessing"
            )
        epsilon = math.log1p(-prior) - math.log(prior)
        epsilon = max(0.0, epsilon - 4e-16 * (1.0 - math.log(prior)))
        return Aim(epsilon, double(1 - Fraction(value) / Fraction(prior), -math.inf), None, asked)
    if kind == "recall":
        odds = at["odds"]
        return Aim(0.0, 0.0, Goal(value, lambda risk: risk.recall(odds), lambda tpr: tpr / odds), asked)
    fpr = at["baseline"] if kind == "reconstruction" else at["fpr"]
    if kind == "precision":
        prior = at["prior"]
        if not prior < value:
            raise ParameterError(f"precision = {value!r}: must be above prior = {prior!r}, that of guessing")
        share = Fraction(value) / (1 - Fraction(value)) * (1 - Fraction(prior)) / Fraction(prior)
        tpr = double(share * Fraction(fpr), -math.inf)
        if not fpr < tpr:
            raise ParameterError(
                f"precision = {value!r}: must be so far above prior = {prior!r} that it is told apart at fpr = {fpr!r}"
            )
        if tpr >= 1.0:
            raise ParameterError(
                f"precision = {value!r}: is reached by no attack with fpr = {fpr!r} and prior = {prior!r}; must be less, or fpr lower"
            )
    else:
        tpr = value
        if not fpr < tpr:
            raise ParameterError(f"{kind} = {value!r}: must be above {fpr!r}, that of guessing")
    return Aim(0.0, 0.0, Goal(tpr, lambda risk: risk.tpr(fpr), lambda _: fpr), asked)


_TINY, _NEARLY_ONE = 1e-300, 1.0 - 1e-12  # *speed*: a delta between them says how far off a candidate is
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
        self._made: dict[float, Composable] = {}
        self.target = self._target()
        self.steepness = self._steepness()

    def profile(self, value: float, accuracy: float) -> PrivacyProfile:
        # Once for each value: what was proven is of what was made then, whatever would be made now.
        if value not in self._made:
            self._made[value] = self.make(value)
            composition(self._made[value], f"make({value!r})")
        return account(self._made[value], self.adjacency, accuracy, self.memory_limit)

    def is_constant(self) -> bool:
        """Whether ``make`` returned one description, that of some release, at all values so far."""
        first, *others = self._made.values()
        return composition(first).steps > 0 and all(other == first for other in others)

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
        # Epsilon is 0 however far below the target: that says nothing of the distance.
        height = self._log_mu(upper, self.delta) - self.target if upper > 0.0 else math.nan
        return Verdict(fits, exceeds, height, _width(lower, upper))

    def risk_bounds(self, profile: PrivacyProfile) -> Bounds | None:
        """What was limited, where that is not epsilon at delta."""
        return None if not self.aim.risk else self.delta_bounds(profile)

    def _target(self) -> float:
        """The height that candidates are measured from."""
        return self._log_mu(self.epsilon, self.delta)

    def _log_mu(self, epsilon: float, delta: float) -> float:
        """ln mu of the Gaussian with this guarantee, nan if that says nothing."""
        if self.delta == 0.0:
            return math.log(epsilon) if 0.0 < epsilon < math.inf else math.nan
        if not (0.0 < delta < 1.0 and epsilon < math.inf):
            return math.nan
        if epsilon == 0.0:  # delta = 2 Phi(mu / 2) - 1
            # By the small side, which is a double however near 1 delta is.
            mu = -2.0 * float(scipy.special.ndtri(0.5 * (1.0 - delta))) if delta > 2e-6 else _ROOT_2PI * delta
            return math.log(mu)
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
        profile = self.profile(value, accuracy)
        # A record that is hardly ever seen is found no more often, whatever is released then.
        seen = rare.participation(composition(self._made[value]))
        if seen < 1.0 and self.goal.ask(account(ApproximateDP(0.0, seen)).risk).upper <= self.goal.limit:
            return Verdict(True, False, math.nan, 0.0)
        lower, upper = self.risk_bounds(profile)
        height, limit = self.goal.log_mu(upper), self.goal.limit
        error = height - self.goal.log_mu(lower) if lower > 0.0 else math.nan
        known = error if math.isfinite(error) else 0.0
        return Verdict(upper <= limit, lower > limit, height - self.target, known)

    def _target(self) -> float:
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
