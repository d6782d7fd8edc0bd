"""Between the points at which a profile was asked: delta is convex in y = e^epsilon, so that chords bound it from above
and extended chords from below (docs/accounting/risk.md, "Between the points").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .._base.bounds import Bounds
from .._base.types import Array, Self

if TYPE_CHECKING:
    from .profile import PrivacyProfile

Mask: TypeAlias = NDArray[np.bool_]
Curve = Callable[[Array], "tuple[Array, Array]"]
"""Certified bounds (lower, upper) on delta at many epsilon: `PrivacyProfile.delta_curve`."""
Objective = Callable[[Array, Array], Array]
"""What is to be made small, of epsilon and of delta there: rises with both, and as y moves along a line it is monotone."""

MARGIN = 1e-14
"""*Proof*: more than the roundings of the few sums, products and exponentials behind a value, relative to its terms (of those that
count no exponent exceeds 40)."""
LAST_NODE = 700.0
"""*Speed*: no node lies beyond, so that e^epsilon stays finite."""
TOLERANCE, FIRST_NODES = 1e-7, 33
"""*Speed*: how close, relatively, the two bounds on an infimum are brought where delta is known as well as that, from so many nodes at first."""
_KNOWN = 0.9  # *speed*: lower bounds that are nowhere so near say nothing of where to look
_NEIGHBOURS = 4  # *speed*: chords to so many nodes on one side bound a slope
_NOTHING = 1e-200  # *speed*: a risk so small needs no lower bound
_LOOKS, _CLOSER = 129, 7
"""*Speed*: points of one look at a curve, and where it is wanted more closely: e^epsilon FPR + delta at its least."""
_FPRS = (1e-4, 1e-3, 1e-2, 1e-1)  # *speed*
_CLOSEST = 1.0 / 16.0  # *speed*: a new node keeps that share of its cell from either end
_PARTS = 4  # *speed*
_NOISE, _LITTLE = 4.0, 1e-3  # *speed*
_ROUNDS, _NODES, _NODES_EACH, _MANY = 40, 400, 16, 100
"""*Speed*: where to stop, with the interval as it is then: after so many rounds, or at so many nodes and some for each question, up to so many."""


def mirrored(curves: Sequence[Curve], epsilon: Array) -> tuple[Array, Array]:
    """Bounds on delta at any ``epsilon`` from curves that are asked about positive ones alone, of which more is known.

    P and Q change places: delta(-x) = 1 - e^{-x} + e^{-x} delta'(x), where delta' is the second curve, that of the other
    direction, or the only one, of the worse of both.
    """
    negative = (epsilon < 0.0) & (epsilon > -math.inf)
    lower, upper = np.ones_like(epsilon), np.ones_like(epsilon)
    signs = [epsilon >= 0.0, negative] if len(curves) > 1 else [epsilon > -math.inf]
    for curve, chosen in zip(curves, signs, strict=True):
        if chosen.any():
            asked, place = np.unique(np.abs(epsilon[chosen]), return_inverse=True)
            lower[chosen], upper[chosen] = (np.clip(each, 0.0, 1.0)[place] for each in curve(asked))
    rest, share = -np.expm1(epsilon[negative]), np.exp(epsilon[negative])
    lower[negative] = (rest + share * lower[negative]) * (1.0 - MARGIN)
    upper[negative] = np.minimum(1.0, (rest + share * upper[negative]) * (1.0 + MARGIN))
    return lower, upper


def divide(left: Array, right: Array) -> Array:
    """Nodes inside of each cell: neighbours in one curve cost little, another curve as much as the first."""
    return np.linspace(left, right, _PARTS + 1)[1:-1].ravel()


def complement(probability: Array) -> Array:
    """1 - ``probability``, rounded down."""
    nearest = 1.0 - probability
    return np.where(1.0 - nearest < probability, np.nextafter(nearest, 0.0), nearest)


def line(fpr: float) -> Objective:
    """e^epsilon FPR + delta, which no test's true positive rate exceeds at this false positive rate."""

    def rate(epsilon: Array, delta: Array) -> Array:
        return fpr * np.exp(epsilon) + delta

    return rate


class Cells(NamedTuple):
    """Between neighbouring finite nodes: lower bounds at both ends and where the two lines below delta cross."""

    left: Array
    vertex: Array
    right: Array
    at_left: Array
    at_vertex: Array
    at_right: Array


class Envelope:
    """Bounds on delta at every epsilon from those at finitely many, to which questions add.

    Nodes are kept in order. The first is epsilon = -inf, where delta = 1; the last is inf.
    """

    def __init__(self, curve: Curve, epsilons: Array) -> None:
        self._curve: Curve | None = curve
        self.epsilon, self.lower, self.upper = np.array([-math.inf]), np.ones(1), np.ones(1)
        self.ask(np.append(epsilons, math.inf))

    def ask(self, epsilons: Array) -> bool:
        """Add nodes; False if there was nothing new, or nothing is asked any more."""
        new = np.setdiff1d(epsilons, self.epsilon)
        if not new.size or self._curve is None:
            return False
        lower, upper = self._curve(new)
        place = np.searchsorted(self.epsilon, new)
        self.epsilon = np.insert(self.epsilon, place, new)
        # delta falls: what bounds it at one node does so at all that lie to the proper side.
        self.lower = np.maximum.accumulate(np.insert(self.lower, place, lower)[::-1])[::-1]
        self.upper = np.minimum.accumulate(np.insert(self.upper, place, upper))
        return True

    def close(self) -> Self:
        """Ask nothing any more, and be this one."""
        self._curve = None
        return self

    def between(self, epsilon: Array) -> tuple[Array, Array]:
        """Bounds on delta at any ``epsilon`` from what is known at the nodes."""
        upper = _chords(self.epsilon[:-1], self.upper[:-1], epsilon) * (1.0 + MARGIN)
        cells = self.cells()
        ends, low = (
            np.append(np.stack([left, vertex], axis=1).ravel(), right[-1:])
            for left, vertex, right in (cells[:3], cells[3:])
        )
        last = self.epsilon[-2]
        lower = _chords(ends, low, epsilon)
        lower -= MARGIN * np.abs(lower)
        beyond = self.lower[np.searchsorted(self.epsilon[:-1], epsilon)]
        return np.where(epsilon > last, beyond, np.fmax(lower, beyond)), np.minimum(upper, 1.0)

    def _slopes(self) -> tuple[Array, Array]:
        """At each finite node, and at y = 0: most of y |d delta/dy| to its right, least of it to its left."""
        epsilon, lower, upper = self.epsilon[:-1], self.lower[:-1], self.upper[:-1]
        most, least = np.ones_like(epsilon), np.zeros_like(epsilon)
        with np.errstate(over="ignore"):
            for k in range(1, min(_NEIGHBOURS + 1, len(epsilon))):
                before, after = slice(0, -k), slice(k, None)
                width = -np.expm1(epsilon[before] - epsilon[after])  # in units of the right one's y
                most[after] = np.minimum(most[after], (upper[before] - lower[after]) / width)
                width = np.expm1(epsilon[after] - epsilon[before])  # in units of the left one's y
                least[before] = np.maximum(least[before], (lower[before] - upper[after]) / width)
        return most * (1.0 + MARGIN), least * (1.0 - MARGIN)

    def cells(self) -> Cells:
        """The lower bounds between nodes."""
        most, least = self._slopes()
        left, right = self.epsilon[:-2], self.epsilon[1:-1]
        at_left, at_right = self.lower[:-2], self.lower[1:-1]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            fall = most[:-1] * np.exp(right - left)  # of delta over one y of the right end, at most
            fall[0] = math.exp(right[0])  # beside y = 0: |d delta / dy| = Q(loss > epsilon) <= 1
            rise, span = least[1:], -np.expm1(left - right)
            # Where the lines cross: s = (y - y_left) / y_right.
            s = np.clip((at_left - at_right - rise * span) / (fall - rise), 0.0, span)
            s = np.where(np.isfinite(s), s, span)
            vertex = left + np.log1p(s * np.exp(right - left))
            vertex[0] = right[0] + np.log(s[0])
            vertex = np.clip(np.where(np.isfinite(vertex), vertex, right), left, right)
            # Both at that very double, rounded down; the lesser, as it may lie to either side of the crossing.
            beyond = np.exp(vertex - right)
            beyond[1:] *= -np.expm1(left[1:] - vertex[1:])
            descent = np.where(beyond > 0.0, fall * beyond, 0.0)
        from_left = at_left * (1.0 - MARGIN) - descent * (1.0 + MARGIN)
        from_right = at_right + rise * -np.expm1(vertex - right) * (1.0 - MARGIN)
        # Where exponentials overflowed, nothing is known between the ends.
        at_vertex = np.nan_to_num(np.minimum(from_left, from_right), nan=-math.inf)
        return Cells(left, vertex, right, at_left, at_vertex, at_right)

    def least(
        self, objectives: Sequence[Objective], tolerance: float, top: float = math.inf, beside: float = 0.0
    ) -> list[Bounds]:
        """Bounds on the infimum of each of ``objectives`` over epsilon < ``top``, refined until they are ``tolerance`` apart.

        Relatively, or as close as the bounds on delta allow, or not above ``beside``, if something that large counts anyway. All of
        them ask for their nodes together, as neighbours in one curve cost little.
        """
        most = _NODES + _NODES_EACH * min(len(objectives), _MANY)
        found, left = [Bounds(0.0, math.inf)] * len(objectives), list(range(len(objectives)))
        supposed = False  # some lower end rests on what is known from above alone
        for _ in range(_ROUNDS):
            at = self if self._below() else self._taken_exactly()
            supposed = supposed or at is not self
            cells, new = at.cells(), [np.empty(0)]
            cells = Cells(*(part[cells.left < top] for part in cells))
            for i in left:
                found[i], wanted = at._look(objectives[i], cells, tolerance, top)
                new.append(wanted if found[i].upper > beside else np.empty(0))
            left = [i for i, wanted in zip(left, new[1:], strict=True) if wanted.size]
            if len(self.epsilon) > most or not self.ask(np.concatenate(new)):
                break
        if supposed:
            known = Cells(*(part[self.epsilon[:-2] < top] for part in self.cells()))
            least = [self._look(objective, known, tolerance, top)[0].lower for objective in objectives]
            found = [
                Bounds(min(low, bounds.upper), bounds.upper) for low, bounds in zip(least, found, strict=True)
            ]
        return found

    def _below(self) -> bool:
        """Whether delta is known well anywhere, from below too: not of declared curves, nor of what is composed with them."""
        positive = self.epsilon >= 0.0
        return bool((self.lower[positive] > _KNOWN * self.upper[positive]).any())

    def _taken_exactly(self) -> Self:
        """As if delta were its upper bounds: how near these come to what they can show says where to look, and nothing else."""
        exact = copy(self)
        exact.lower = exact.upper
        return exact

    def _look(self, objective: Objective, cells: Cells, tolerance: float, top: float) -> tuple[Bounds, Array]:
        """What the nodes say of an infimum, and which further ones would say more."""
        finite = (self.epsilon < top) & (self.epsilon < math.inf)
        values = objective(self.epsilon[finite], self.upper[finite])
        at = int(np.argmin(values))
        best = float(values[at]) * (1.0 + MARGIN)
        # Little that is unknown of delta at the best node is unknown of the infimum.
        known = float(objective(self.epsilon[finite][at : at + 1], self.lower[finite][at : at + 1])[0])
        enough = best * (1.0 - tolerance)
        if known >= best * (1.0 - _LITTLE):
            enough = min(enough, known)
        low = objective(cells.left, cells.at_left)
        low = np.minimum(low, objective(cells.vertex, cells.at_vertex))
        ends = np.where(cells.right < top, cells.right, cells.vertex)
        low = np.minimum(low, objective(ends, np.where(cells.right < top, cells.at_right, cells.at_vertex)))
        # In a cell both epsilon and delta are at least this.
        low = np.maximum(low, objective(cells.left, cells.at_right))
        last = self.epsilon[finite][-1:]
        tail = float(objective(last, self.lower[-1:])[0]) if top == math.inf else math.inf
        bottom = max(0.0, min(float(np.min(low)), tail)) * (1.0 - MARGIN)
        new = np.empty(0)
        if bottom < enough and best >= _NOTHING:
            helpful = self.worthwhile(best)[: len(cells.left)]
            new = self.inside(cells, (low < enough) & helpful)
            if tail < enough:
                new = np.append(new, min(LAST_NODE, float(last[0]) + max(1.0, 0.5 * float(last[0]))))
        return Bounds(min(bottom, best), best), new

    def worthwhile(self, best: float = math.inf) -> Mask:
        """Whether more nodes may narrow each of the `cells`: not where delta falls by hardly more than is unknown at its ends.

        Where that is more than ``best``, neither counts: then y alone decides, and nodes help.
        """
        unknown = (self.upper - self.lower)[:-2] + (self.upper - self.lower)[1:-1]
        return np.asarray((self.upper[:-2] - self.lower[1:-1] > _NOISE * unknown) | (unknown > best))

    @staticmethod
    def inside(cells: Cells, chosen: Mask) -> Array:
        """New nodes in each chosen cell: beside the vertex, off the ends, and where they divide it evenly."""
        left, right = cells.left[chosen], cells.right[chosen]
        left = np.where(np.isneginf(left), right - 4.0, left)
        gap = _CLOSEST * (right - left)
        vertex = np.clip(cells.vertex[chosen], left + gap, right - gap)
        return np.append(vertex, divide(left, right))


def _chords(nodes: Array, values: Array, epsilon: Array) -> Array:
    """Between nodes linear in e^epsilon; beyond the last one its value."""
    right = np.clip(np.searchsorted(nodes, epsilon, side="right"), 1, len(nodes) - 1)
    a, b = nodes[right - 1], nodes[right]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        # Each end's share has all its digits, next to either end too: delta may fall to nothing, or be this very line.
        width, ahead = np.expm1(a - b), np.expm1(epsilon - b)
        back = np.where(np.isneginf(a), -1.0, np.expm1(a - epsilon))
        of_left = np.where(epsilon >= b, 0.0, np.clip(ahead / width, 0.0, 1.0))
        of_right = np.where(epsilon >= b, 1.0, np.clip((1.0 + ahead) * (back / width), 0.0, 1.0))
        found: Array = values[right - 1] * of_left + values[right] * of_right
    return found


def look(profile: PrivacyProfile) -> Envelope:
    """A curve asked twice: over its width, and then beside the points that the attacks of a report turn on."""
    wide = profile.widest_epsilon()
    if wide > LAST_NODE:  # next to nothing is hidden
        return Envelope(profile.delta_curve, np.array([-LAST_NODE, 0.0, LAST_NODE])).close()
    envelope = Envelope(
        profile.rough_curve, np.append(np.linspace(-wide, wide, _LOOKS), [0.0, math.log(9.0)])
    )
    epsilon, upper = envelope.epsilon[1:-1], envelope.upper[1:-1]
    turns = [int(np.argmin(np.exp(epsilon) * fpr + upper)) for fpr in _FPRS]
    ends = [(epsilon[max(0, at - 1)], epsilon[min(at + 1, len(epsilon) - 1)]) for at in turns]
    envelope.ask(np.concatenate([np.linspace(left, right, _CLOSER) for left, right in ends]))
    return envelope.close()
