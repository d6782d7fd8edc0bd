"""Truncated batches seen in several ways, each of them a guarantee; the best bound on either side counts.

1. The pairs of `truncated.pairs`, which the inversion may find hard where truncation is rare.
2. Plain Poisson sampling, and beside it the probability r that some batch is full:
   (1 - r) delta_2 <= delta <= delta_2 + r (docs/mechanisms/truncated.md, section 5).

Which of them are looked at, and in which order, only costs time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from .. import _core
from .._base.types import Array
from ..mechanisms.descriptions import Process
from .report import Answer
from .settings import Settings

Ask = Callable[[_core.Profile], Answer]
AskCurve = Callable[[_core.Profile, Array], tuple[Array, Array]]

_UP, _DOWN = 1.0 + 1e-14, 1.0 - 1e-14  # *proof*: rounding of what is added or multiplied here


def helpful(process: Process) -> bool:
    """Whether there is more than one view of this composition."""
    return any(step.cut_probability > 0.0 for step, _ in process)


class Views:
    """The views of one composition; ``main`` is view 1."""

    def __init__(self, process: Process, settings: Settings, main: _core.Profile) -> None:
        self._accuracy = settings.accuracy
        self._main = main
        self._rare = min(1.0, math.fsum(count * step.cut_probability for step, count in process) * _UP)
        self._poisson = None
        if self._rare < 1.0:
            self._poisson = settings.profile(Process([(step.uncut(), count) for step, count in process]))

    def epsilon(self, delta: float) -> Answer:

        def poisson(profile: _core.Profile) -> Answer:
            least, most = delta / (1.0 - self._rare) * _UP, delta * _DOWN - self._rare
            lower = profile.epsilon_bounds(least).lower if least < 1.0 else 0.0
            if not self._rare <= self._accuracy * delta:
                return Answer(lower, math.inf)
            return self._with_rare(replace(Answer.of(profile.epsilon_bounds(most)), lower=lower))

        return self._best(lambda profile: Answer.of(profile.epsilon_bounds(delta)), poisson)

    def delta(self, epsilon: float) -> Answer:

        def poisson(profile: _core.Profile) -> Answer:
            found = Answer.of(profile.delta_bounds(epsilon))
            lower = found.lower * (1.0 - self._rare) * _DOWN
            return self._with_rare(replace(found, lower=lower, upper=(found.upper + self._rare) * _UP))

        return self._best(lambda profile: Answer.of(profile.delta_bounds(epsilon)), poisson)

    def curve(self, epsilon: Array, ask: AskCurve) -> tuple[Array, Array]:
        """Bounds on delta at many ``epsilon``, as ``ask`` has them: `_core.Profile.delta_curve` or ``rough_curve``."""
        lower, upper = np.zeros(epsilon.shape), np.full(epsilon.shape, np.inf)

        def keep(profile: _core.Profile, bounds: Callable[[Array, Array], tuple[Array, Array]]) -> None:
            wide = ~(upper <= lower * (1.0 + self._accuracy))
            if wide.any():
                least, most = bounds(*ask(profile, epsilon[wide]))
                lower[wide], upper[wide] = np.maximum(lower[wide], least), np.minimum(upper[wide], most)

        if self._poisson is not None:
            share = (1.0 - self._rare) * _DOWN
            keep(self._poisson, lambda least, most: (least * share, (most + self._rare) * _UP))
        keep(self._main, lambda least, most: (least, most))
        return np.minimum(lower, upper), upper

    def _with_rare(self, answer: Answer) -> Answer:
        return replace(answer, terms={**answer.terms, "rare_truncation": self._rare})

    def _best(self, ask: Ask, poisson: Ask) -> Answer:
        answer = Answer(0.0, math.inf) if self._poisson is None else poisson(self._poisson)
        if not self._close(answer):
            answer = _tighter(answer, ask(self._main))
        return answer

    def _close(self, answer: Answer) -> bool:
        return answer.upper <= answer.lower * (1.0 + self._accuracy)


def _tighter(a: Answer, b: Answer) -> Answer:
    """Two intervals for the same number; the one with the lower upper end gives the rest."""
    best = b if b.upper < a.upper else a
    return replace(best, lower=min(best.upper, max(a.lower, b.lower)))
