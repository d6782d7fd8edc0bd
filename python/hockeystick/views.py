"""Truncated batches seen in several ways, each of them a guarantee; the best bound on either side counts.

1. The pairs of `truncated.pairs`, which the inversion may not know, or may find hard where truncation
   is rare.
2. With ``pair="tight"``, the published pairs: looser, but mixtures of Gaussians.
3. Plain Poisson sampling, and beside it the probability r that some batch is full:
   (1 - r) delta_3 <= delta <= delta_3 + r (docs/truncated.md, section 5).

Which of them are looked at, and in which order, only costs time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from . import _core
from . import adjacency as _adjacency
from .mechanisms import PoissonSampled, Process, Step
from .report import Answer
from .truncated import TruncatedPoissonSampled

Directions = list[list[tuple[_core.Pair, int]]]
Ask = Callable[[_core.Profile], Answer]

_UP, _DOWN = 1.0 + 1e-14, 1.0 - 1e-14  # rounding of what is added or multiplied here


def helpful(process: Process) -> bool:
    """Whether there is more than one view of this composition."""
    return any(
        isinstance(step, TruncatedPoissonSampled) and step.truncation.full_high > 0.0 for step, _ in process
    )


class Views:
    """The views of one composition, each direction by itself; ``directions`` are those of view 1."""

    def __init__(
        self, process: Process, adjacency: str, directions: Directions, accuracy: float, memory_limit: int
    ) -> None:
        self._accuracy = accuracy

        def profiles(compositions: Directions) -> list[_core.Profile]:
            return [_core.Profile([pairs], accuracy, memory_limit) for pairs in compositions]

        def view(change: Callable[[TruncatedPoissonSampled], Step]) -> list[_core.Profile]:
            steps = [
                (change(step) if isinstance(step, TruncatedPoissonSampled) else step, count)
                for step, count in process
            ]
            found = profiles(_adjacency.directions(Process(steps), adjacency))
            return found if len(found) == len(directions) else []

        self._main = profiles(directions)
        truncated = [(step, k) for step, k in process if isinstance(step, TruncatedPoissonSampled)]
        self._published: list[_core.Profile] = []
        if adjacency in ("zero_out", "replace_one") and any(step.pair == "tight" for step, _ in truncated):
            self._published = view(lambda step: replace(step, pair="ganesh2025"))
        rare = math.fsum(count * step.truncation.full_high for step, count in truncated)
        self._rare = min(1.0, rare * _UP)
        self._poisson = (
            view(lambda step: PoissonSampled(step.mechanism, step.sampling_probability))
            if self._rare < 1.0
            else []
        )

    def epsilon(self, delta: float) -> Answer:
        """Bounds on epsilon at ``delta`` in (0, 1)."""

        def poisson(profile: _core.Profile) -> Answer:
            least, most = delta / (1.0 - self._rare) * _UP, delta * _DOWN - self._rare
            lower = profile.epsilon_bounds(least).lower if least < 1.0 else 0.0
            if not self._rare <= self._accuracy * delta:
                return Answer(lower, math.inf)
            return self._with_rare(replace(_answer(profile.epsilon_bounds(most)), lower=lower))

        return self._best(lambda profile: _answer(profile.epsilon_bounds(delta)), poisson)

    def delta(self, epsilon: float) -> Answer:
        """Bounds on delta at any real ``epsilon``."""

        def poisson(profile: _core.Profile) -> Answer:
            found = _answer(profile.delta_bounds(epsilon))
            lower = found.lower * (1.0 - self._rare) * _DOWN
            return self._with_rare(replace(found, lower=lower, upper=(found.upper + self._rare) * _UP))

        return self._best(lambda profile: _answer(profile.delta_bounds(epsilon)), poisson)

    def _with_rare(self, answer: Answer) -> Answer:
        return replace(answer, terms={**answer.terms, "rare_truncation": self._rare})

    def _best(self, ask: Ask, poisson: Ask) -> Answer:
        """The worst over the directions of the best over the views, the likely worst one first."""
        count = len(self._main)
        first = [poisson(self._poisson[i]) if self._poisson else Answer(0.0, math.inf) for i in range(count)]
        first = [replace(answer, direction=i) for i, answer in enumerate(first)]
        worst = Answer(0.0, 0.0)
        for answer in sorted(first, key=lambda found: (found.upper, found.lower), reverse=True):
            for view in (self._published, self._main):
                if view and not self._close(answer) and not answer.upper <= worst.lower:
                    found = ask(view[answer.direction])
                    # The published pair's lower bound is none for the tight one.
                    answer = _tighter(answer, found if view is self._main else replace(found, lower=0.0))
            lower = max(worst.lower, answer.lower)
            worst = replace(max(worst, answer, key=lambda found: found.upper), lower=lower)
        return worst

    def _close(self, answer: Answer) -> bool:
        return answer.upper <= answer.lower * (1.0 + self._accuracy)


def _tighter(a: Answer, b: Answer) -> Answer:
    """Two intervals for the same number; the one with the lower upper end gives the rest."""
    best = b if b.upper < a.upper else a
    return replace(best, direction=a.direction, lower=min(best.upper, max(a.lower, b.lower)))


def _answer(found: _core.Answer) -> Answer:
    return Answer(
        max(0.0, found.lower),
        max(0.0, found.upper),
        found.engine,
        found.direction,
        dict(found.terms),
        found.step,
        found.size,
    )
