"""What a calibration may aim at: a budget of (epsilon, delta), or the most that an attack may achieve."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypedDict

import scipy  # its parts are loaded when they are used

from .._base.bounds import Bounds
from .._base.validation import ParameterError, ParameterTypeError, real
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
_DOWN = 1.0 - 2.0**-50  # *proof*: more than the roundings of the quotients below


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
        return Aim(epsilon, (1.0 - value / prior / _DOWN) * _DOWN, None, asked)
    if kind == "recall":
        odds = at["odds"]
        return Aim(0.0, 0.0, Goal(value, lambda risk: risk.recall(odds), lambda tpr: tpr / odds), asked)
    fpr = at["baseline"] if kind == "reconstruction" else at["fpr"]
    if kind == "precision":
        prior = at["prior"]
        if not prior < value:
            raise ParameterError(f"precision = {value!r}: must be above prior = {prior!r}, that of guessing")
        tpr = value / (1.0 - value) * fpr * (1.0 - prior) / prior * _DOWN
        if tpr >= 1.0:
            raise ParameterError(
                f"precision = {value!r}: is reached by no attack with fpr = {fpr!r} and prior = {prior!r}; must be less, or fpr lower"
            )
    else:
        tpr = value
        if not fpr < tpr:
            raise ParameterError(f"{kind} = {value!r}: must be above {fpr!r}, that of guessing")
    return Aim(0.0, 0.0, Goal(tpr, lambda risk: risk.tpr(fpr), lambda _: fpr), asked)
