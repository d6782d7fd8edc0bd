"""Where a rising quantity meets its target, when each look costs time and returns a verdict with proof.

Nothing here knows about privacy. A look at one parameter value says whether the value certainly fits
the target and whether it certainly exceeds it (neither, if the interval contains the target), and how
far away the target seems. The distance only steers; what is returned rests on verdicts alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from .progress import shown
from .validation import narrowed

FINEST, COARSEST = 1e-9, 1e-2
"""*Speed*: range of the relative accuracies asked for: coarse while far away, fine at the end."""

_MAX_LOOKS = 60  # *speed*
_MAX_REFINEMENTS = 2  # *speed*
_FURTHEST = 0.25  # *speed*: a share of the value; what exceeds that far beyond says nothing of it, and its look may take long
_FLATTEST = 0.25  # *speed*: a plateau must not send an extrapolation to the end of the world


def first_holding(
    holds: Callable[[float], bool], start: float, end: float, tolerance: float = 0.0, finest: float = 0.0
) -> float:
    """The first number >= 0 on the way from ``start`` to ``end`` found for which this holds; ``end`` if there is none.

    It holds from there on, so that halving finds it; for whatever is found it holds. It is found to within a
    relative ``tolerance``, and not below ``finest``.
    """
    while True:
        middle = 0.5 * (start + end)
        # Near zero halving alone would take a thousand steps.
        if 0.0 < 4.0 * min(start, end) < max(start, end):
            middle = math.sqrt(start) * math.sqrt(end)
        close = abs(end - start) <= tolerance * min(start, end)
        if close or max(start, end) < finest or middle in (start, end):
            return end
        if holds(middle):
            end = middle
        else:
            start = middle


@dataclass(frozen=True)
class Verdict:
    """What one look showed.

    ``height`` rises with the loss, roughly linearly in the logarithm of the parameter, and is 0 at
    the target; nan if unknown. ``error`` is its uncertainty.
    """

    fits: bool
    exceeds: bool
    height: float
    error: float


@dataclass(frozen=True)
class Axis:
    """The allowed values from ``low`` to ``high``, seen in the order of growing loss.

    A position is the logarithm of a value, negated unless the loss is ``rising`` with the value.
    """

    low: float
    high: float
    rising: bool
    integer: bool

    @property
    def safest(self) -> float:
        """The value of least loss."""
        return self.low if self.rising else self.high

    @property
    def riskiest(self) -> float:
        """The value of most loss."""
        return self.high if self.rising else self.low

    def position(self, value: float) -> float:
        """Where ``value`` is; the integer 0 gets a place below 1."""
        logarithm = math.log(max(value, 0.5) if self.integer else value)
        return logarithm if self.rising else -logarithm

    def loss(self, value: float) -> float:
        """What orders the values: large integers may share a position."""
        return value if self.rising else -value

    def value(self, position: float) -> float:
        """The allowed value at ``position`` or, among integers, the next one of less loss."""
        if position <= self.position(self.safest):
            return self.safest
        if position >= self.position(self.riskiest):
            return self.riskiest
        value = math.exp(position if self.rising else -position)
        if self.integer:
            value = math.floor(value) if self.rising else math.ceil(value)
        return min(max(value, self.low), self.high)

    def beyond(self, value: float, step: float) -> float:
        """One relative ``step`` (among integers: so many) from ``value`` towards more loss."""
        signed = step if self.rising else -step
        moved = value + signed if self.integer else value * (1.0 + signed)
        return min(max(moved, self.low), self.high)


@dataclass(frozen=True)
class Found:
    """``value`` fits. ``exceeding`` is the nearest value shown to exceed, None if there is none.

    ``tight``: nothing allowed that is riskier by more than the tolerance (among integers: by one)
    fits, either because that was shown to exceed or because ``value`` is the limit.
    """

    value: float
    exceeding: float | None
    tight: bool


@dataclass(frozen=True)
class _Point:
    value: float
    position: float
    accuracy: float
    verdict: Verdict


class Search:
    """Finds the riskiest value that fits.

    ``look(value, accuracy)`` looks at one value; ``steepness`` converts a change of height into a
    relative change of what is looked at, and so into the accuracy that a look needs.

    Secant steps aim half a tolerance to the safe side. Once a value fits and the root seems less
    than a tolerance away, the value one tolerance beyond is looked at: if it exceeds, both sides
    are proven. Where secants do not converge, bisection steps in, so that jumps and kinks cost time
    but not correctness. Without a bracket, moves that come no closer double until there is one or a
    limit is reached.
    """

    def __init__(
        self, look: Callable[[float, float], Verdict], axis: Axis, tolerance: float, steepness: float
    ) -> None:
        self._look = look
        self._axis = axis
        self._tolerance = tolerance
        self._step = 1 if axis.integer else tolerance
        self._steepness = steepness
        self._points: dict[float, _Point] = {}
        self._slope = 1.0
        self._margin = 0.5 * tolerance
        self._reach = self._step
        self._shifts: list[float] = []
        self._sharper = 1.0
        self._coarsest = COARSEST
        self._refinements: dict[float, int] = {}

    def run(self, start: float) -> Found | None:
        """Search from ``start``; None if not even the safest value was shown to fit."""
        with shown("calibration", "looks") as show:
            self._at(start, COARSEST)
            while len(self._shifts) < _MAX_LOOKS:
                show(len(self._shifts), _MAX_LOOKS)
                fit, barrier = self._bracket()
                if fit is not None and fit.value == self._axis.riskiest:
                    return Found(fit.value, None, True)
                if fit is None and barrier is not None and barrier.value == self._axis.safest:
                    if not self._refine(barrier):
                        return None
                    continue
                root, shift = self._root(_FLATTEST if fit is None or barrier is None else 0.0)
                self._shifts.append(shift)
                if fit is not None and self._is_next(fit, barrier, root):
                    if self._is_settled(fit):
                        break
                    continue
                value = self._propose(fit, barrier, root)
                point = self._at(value, self._accuracy(shift, value))
                if shift <= self._tolerance and not point.verdict.fits:
                    self._margin *= 4.0  # the bound is rougher than the tolerance
        return self._found()

    def _is_settled(self, fit: _Point) -> bool:
        """Look one step beyond ``fit``; True if that exceeds, or nothing beyond can be shown to."""
        # `beyond` may lie past the barrier: the statement is about exactly this step.
        beyond = self._points.get(self._axis.beyond(fit.value, self._reach))
        if beyond is None:
            self._at(self._axis.beyond(fit.value, self._reach), self._accuracy(0.0, fit.value))
        elif beyond.verdict.exceeds or not self._sees_below():
            return True
        elif self._reach > self._step or not self._refine(beyond):
            far = self._reach > _FURTHEST * (max(fit.value, 1.0) if self._axis.integer else 1.0)
            if far or beyond.value == self._axis.riskiest:
                return True
            self._reach *= 8  # how far is the nearest value that can be shown to exceed?
        return False

    def _sees_below(self) -> bool:
        """Whether any look had a lower bound: of what is declared there is none, however long one looks. (An integer may still fit.)"""
        looks = (point.verdict for point in self._points.values())
        return self._axis.integer or any(look.exceeds or look.error > 0.0 for look in looks)

    def _found(self) -> Found | None:
        """What the looks so far have shown."""
        fit, _ = self._bracket()
        if fit is None:
            return None
        exceeding = [
            p for p in self._points.values() if p.verdict.exceeds and self._loss(p) > self._loss(fit)
        ]
        if not exceeding:
            return Found(fit.value, None, False)
        nearest = min(exceeding, key=self._loss)
        one_step = abs(self._axis.beyond(fit.value, self._step) - fit.value)
        return Found(fit.value, nearest.value, abs(nearest.value - fit.value) <= one_step)

    def _at(self, value: float, accuracy: float) -> _Point:
        point = _Point(value, self._axis.position(value), accuracy, self._look(value, accuracy))
        self._points[value] = point
        error = point.verdict.error / self._slope
        final = accuracy <= 1.01 * self._accuracy(0.0, value)
        if final and not self._axis.integer and 0.5 * self._tolerance < error < COARSEST:
            # The answer cannot tell a step of the tolerance from none. If asking for more accuracy
            # does not help, go on with a step that it can tell.
            if self._sharper == 1.0 and accuracy > FINEST:
                self._sharper = 1e-2
            else:
                self._tolerance = self._reach = 4.0 * error
                self._margin = 2.0 * error
        return point

    def _refine(self, point: _Point) -> bool:
        """Look again, more closely, at a point that decided nothing; False if that is no use."""
        tried = self._refinements.get(point.value, 0)
        if point.verdict.exceeds or point.accuracy <= FINEST or tried == _MAX_REFINEMENTS:
            return False
        again = self._at(point.value, max(FINEST, point.accuracy * 1e-2))
        better = again.verdict.fits or again.verdict.exceeds
        if better:
            self._coarsest = again.accuracy  # what it takes to decide anything around here
        helped = better or again.verdict.error < 0.5 * point.verdict.error
        self._refinements[point.value] = tried + 1 if helped else _MAX_REFINEMENTS
        return True

    def _bracket(self) -> tuple[_Point | None, _Point | None]:
        """The riskiest point that fits, and the next one beyond it that was not shown to fit."""
        points = self._points.values()
        fit = max((p for p in points if p.verdict.fits), key=self._loss, default=None)
        others = (
            p for p in points if not p.verdict.fits and (fit is None or self._loss(p) > self._loss(fit))
        )
        return fit, min(others, key=self._loss, default=None)

    def _loss(self, point: _Point) -> float:
        return self._axis.loss(point.value)

    def _root(self, flattest: float) -> tuple[float, float]:
        """Where the height seems to be 0, and how far that is from the nearest look; nan, inf if unknown.

        Slopes below ``flattest`` are not believed.
        """
        known = [p for p in self._points.values() if math.isfinite(p.verdict.height)]
        if not known:
            return math.nan, math.inf
        known.sort(key=lambda p: abs(p.verdict.height))
        best = known[0]
        for other in known[1:]:
            rise = other.verdict.height - best.verdict.height
            run = other.position - best.position
            noise = best.verdict.error + other.verdict.error
            if abs(rise) > 8.0 * noise and rise * run > 0.0:
                self._slope = rise / run
                break
        shift = -best.verdict.height / max(self._slope, flattest)
        return best.position + shift, abs(shift)

    def _accuracy(self, shift: float, value: float) -> float:
        """What a look needs to resolve a small part of the expected move, or of the final step."""
        needed = self._sharper * self._steepness * self._slope * max(0.02 * shift, 0.15 * self._unit(value))
        return min(max(needed, FINEST), self._coarsest)

    def _unit(self, value: float) -> float:
        """The difference in position that matters around ``value``."""
        return 1.0 / max(value, 1.0) if self._axis.integer else self._tolerance

    def _is_next(self, fit: _Point, barrier: _Point | None, root: float) -> bool:
        """Whether the end of the search seems to lie within one step of ``fit``."""
        beyond = self._axis.position(self._axis.beyond(fit.value, self._reach))
        if barrier is not None and barrier.position <= beyond:
            return True
        # A root well before a value that fits is a mistake of the secant.
        return fit.position - 4.0 * self._unit(fit.value) <= root <= beyond and not self._stalled()

    def _stalled(self) -> bool:
        """Whether the secants do not converge."""
        shifts = self._shifts
        return len(shifts) >= 3 and shifts[-1] > max(0.5 * shifts[-3], self._tolerance)

    def _propose(self, fit: _Point | None, barrier: _Point | None, root: float) -> float:
        """Where to look next: just on the safe side of ``root``, inside the bracket."""
        axis = self._axis
        aim = root if axis.integer else root - self._margin
        if fit is None and len(self._shifts) == _MAX_LOOKS:
            value = axis.safest  # what is said to fit nowhere must not fit here
        elif fit is None:
            known = narrowed(barrier, _Point)
            least = known.position - self._stride(known)
            value = axis.value(least if math.isnan(root) else min(aim, least))
        elif barrier is None:
            least = fit.position + self._stride(fit)
            value = axis.value(least if math.isnan(root) else max(aim, least))
        elif fit.position < aim < barrier.position and not self._stalled():
            value = axis.value(aim)
        else:
            value = axis.value(0.5 * (fit.position + barrier.position))
        if axis.integer:  # never the same value twice
            if fit is not None and axis.loss(value) <= self._loss(fit):
                value = axis.beyond(fit.value, 1)
            if barrier is not None and axis.loss(value) >= self._loss(barrier):
                value = axis.beyond(barrier.value, -1)
        return value

    def _stride(self, outermost: _Point) -> float:
        """The least move outwards while there is no bracket: long after looks that came no closer."""
        heights = [abs(point.verdict.height) for point in self._points.values()]
        futile = 0
        for before, after in pairwise(heights):
            futile = 0 if after <= 0.75 * before else futile + 1
        # On a plateau, however near the target, small steps lead nowhere.
        level = len(heights) > 3 and heights[-1] > 0.9 * heights[-4]
        near = heights[-1] <= 8.0 * self._unit(outermost.value) and not level
        if near or (futile == 0 and not math.isnan(heights[-1])):
            return 0.5 * self._unit(outermost.value)
        return 0.5 * 2.0**futile
