"""Bounds without an engine: where sampling is so rare that hardly any run sees the record, and at the ends of all ranges.

Let K be how often T steps of Poisson sampling with probability q see the record, and mass = T q >= Pr[K > 0]. Given
K and what else is drawn, the two worlds' outputs are K uses of the mechanism M; hockey-stick divergences are jointly
convex, and more uses are never safer. So these steps' delta(epsilon), epsilon >= 0, is at most Pr[0 < K <= 8]
delta_8(epsilon) + Pr[K > 8], delta_8 that of 8 unsampled uses of M. Where mass <= 1e-48, Pr[K > 8] <= mass^9 / 9! is
below every double, and its share of the rounding. Beside other steps, with outputs P_1 against Q_1, theirs P_2 and Q_2
are at a total variation of at most mass: from P_1 P_2 - e^epsilon Q_1 Q_2 = P_1 (P_2 - Q_2) + (P_1 - e^epsilon Q_1) Q_2
follows delta <= delta_1 + mass at every epsilon. Leaving the steps out is post-processing: a lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from .. import _core
from .._base.validation import double
from ..mechanisms.adjacency import Directions
from ..mechanisms.core_pairs import HUGE
from ..mechanisms.descriptions import Process, Step
from .report import Answer

MOST_MASS = 1e-48
"""*Proof*: together with a gap of 1e-6 at delta = 1e-40 wanted, so small that adding it to delta is exact enough."""

_LOST_TO_UNDERFLOW = 1e-290  # *proof*: more than 2^53 losses below the normal doubles may be off by, each by some units of the smallest
_FURTHER = 1.0 + 1e-11  # *speed*: more than engines round the mass of infinite losses by
USES = 8  # *proof*: more are below every double
_UP = 1.0 + 1e-12  # *proof*: more than the roundings of a sum of products


def divide(process: Process) -> tuple[Process, list[tuple[Step, float]]]:
    """The steps that are not rare, and for each of the others its mechanism and its mass, rounded up."""
    masses = {step: count * step.participation for step, count in process}
    rare = {step: max(mass * _UP, 5e-324) for step, mass in masses.items() if 0.0 < mass <= MOST_MASS}
    if not rare or (process.steps <= 1 and all(step.has_closed_form for step, _ in process)):
        return process, []
    rest = Process([(step, count) for step, count in process if step not in rare])
    return rest, [(step.if_seen(), mass) for step, mass in rare.items()]


def participation(process: Process) -> float:
    """At least the probability that any step sees the record: at this delta, and above, epsilon is 0."""
    return math.fsum(count * step.participation for step, count in process) * _UP + 5e-324


def total(rare: list[tuple[Step, float]]) -> float:
    """What the rare steps add to delta at most, rounded up."""
    return math.fsum(mass for _, mass in rare) * _UP


def share_of(delta: float, mass: float) -> float:
    """The delta at which ``USES`` uses are to be asked, so that the rare steps keep within ``delta``."""
    return min(1.0, delta / mass / _UP)


def epsilon_limit(directions: Directions, delta: float) -> Answer | None:
    if delta == 1.0 or not directions:
        return Answer(0.0, 0.0)
    if delta == 0.0:
        largest = max(_largest_loss(direction) for direction in directions)
        least = max(
            _largest_loss([(pair.lower or pair, k) for pair, k in direction]) for direction in directions
        )
        # The sum is rounded: the truth is within one part in 1e12.
        return Answer(max(0.0, least * (1.0 - 1e-12) - _LOST_TO_UNDERFLOW), largest * (1.0 + 1e-12))
    return None


class Declared(NamedTuple):
    """Delta is at most ``delta`` at ``epsilon``, and above: what the steps' own guarantees add up to, exactly, and rounded up once; (inf, 1) where one has none."""

    epsilon: float
    delta: float

    @classmethod
    def of(cls, process: Process, adjacency: str) -> Declared:
        """Basic composition, of independent failures of which at least one occurs with 1 - prod (1 - delta_i) <= S_1 - S_2 + S_1^3 / 6 (Bonferroni).

        Noise of which the sum of epsilons is `HUGE` counts as none.
        """
        epsilon = first = squares = Fraction(0)
        for step, count in process:
            known = step.guarantee(adjacency)
            if known is None:
                return cls(math.inf, 1.0)
            epsilon += count * known.epsilon
            first += count * known.delta
            squares += count * known.delta**2
        second = (first**2 - squares) / 2
        return cls(
            double(epsilon, math.inf) if epsilon < HUGE else math.inf,
            min(1.0, double(min(first, first - second + first**3 / 6), math.inf)),
        )

    def most(self, epsilon: float) -> float:
        """What delta is not above."""
        return self.delta if self.epsilon <= epsilon and self.epsilon < math.inf else 1.0

    def epsilon_at(self, delta: float, found: Answer, ask: Callable[[float], Answer]) -> Answer:
        """``found``, no end of it above what is declared.

        Engines that know infinite losses up to rounding say nothing next to the delta declared: a little further on, which is less, they do (``ask``).
        """
        if delta < self.delta or found.upper <= self.epsilon:
            return found
        lower, further = found.lower, min(1.0, self.delta * _FURTHER)
        # Once: there they are asked for themselves.
        if (lower == 0.0 or found.upper == math.inf) and delta < further:
            lower = max(lower, ask(further).lower)
        return replace(found, lower=min(lower, self.epsilon), upper=self.epsilon)


def delta_limit(directions: Directions, epsilon: float, declared: Declared) -> Answer | None:
    if epsilon == -math.inf:
        return Answer(1.0, 1.0)
    if declared.most(epsilon) == 0.0:
        return Answer(0.0, 0.0)
    if not directions:
        value = max(0.0, -math.expm1(min(0.0, epsilon)))
        return Answer(value * (1.0 - 1e-15), min(1.0, value * (1.0 + 1e-15)))
    return None


def _largest_loss(direction: list[tuple[_core.Pair, int]]) -> float:
    if any(pair.infinity_mass > 0.0 for pair, _ in direction):
        return math.inf
    return max(0.0, math.fsum(count * pair.max_loss for pair, count in direction))
