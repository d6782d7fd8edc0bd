"""One number for a whole profile: the least Gaussian above it, and how much it gives away (docs/accounting/risk.md, "One number")."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy  # its parts are loaded when they are used

from .. import _core
from .._base import gdp
from .._base.bounds import Bounds, Stated, finite, round_down, round_up
from .._base.types import Array
from .._base.validation import ParameterError
from ..mechanisms.adjacency import directions, root_sum_of_squares
from ..mechanisms.core_pairs import gaussian
from ..mechanisms.descriptions import Process, Step, composition, shift_of
from .envelope import LAST_NODE, MARGIN, Curve, Envelope, Mask, divide
from .settings import Settings

if TYPE_CHECKING:
    from .profile import PrivacyProfile

DEFAULT_FLOOR = 1e-10  # *limit*: what is said where nothing is asked for
_LEAST_FLOOR = 1e-300  # *speed*: smaller ones take minutes
_LAST = 1e5  # *speed*: no node lies beyond
_FURTHER = (0.0, 1e-12, 1e-9, 1e-6, 1e-3, 0.1)
"""*Speed*: ends that are tried, relative to epsilon at the floor."""
_FIRST, _NODES, _ROUNDS = 33, 400, 40  # *speed*
_LEAST, _MOST = 1e-12, 1e6
"""*Speed*: mu outside is 0 or infinite, as far as searches go."""


def granted(name: str, floor: float) -> float:
    """A delta that is granted everywhere: none, or one that doubles near it resolve."""
    if 0.0 < floor < _LEAST_FLOOR:
        raise ParameterError(f"{name} = {floor!r}: must be 0 or at least {_LEAST_FLOOR!r}")
    return floor


@dataclass(frozen=True)
class GaussianSummary(Stated):
    """What `PrivacyProfile.gdp` found: the profile is at most that of ``mu``-GDP plus ``delta``, everywhere.

    ``mu`` is certified; no mu below ``mu_bounds.lower`` would do. ``regret`` bounds from both sides the largest distance by which the
    trade-off curve lies above that of mu-GDP, measured along the diagonal: how much the one number understates the
    protection. Gomez et al. (2026) advise to report mu if it is below 0.01, and else the whole curve.
    """

    mu: float
    delta: float
    mu_bounds: Bounds
    regret: Bounds

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts and numbers."""
        return finite(asdict(self))

    def statement(self) -> str:
        """In words."""
        if math.isinf(self.mu):
            return f"No mu is known for which it is mu-Gaussian differentially private up to {self.delta!r}."
        mu = round_up(self.mu)
        return (
            f"It is {mu}-Gaussian differentially private up to {self.delta!r}: at every real epsilon, delta is at most that of a Gaussian mechanism "
            f"with mu = sensitivity / standard deviation = {mu}, plus {self.delta!r}; so telling the two datasets apart is as hard, but for that, as "
            f"telling one draw of a standard normal variable from one that is shifted by {mu}. The regret, how far the true trade-off between the two error "
            f"rates of such a test lies above that one, is between {round_down(self.regret.lower, 3)} and {round_up(self.regret.upper, 3)}."
        )


class _Effort(NamedTuple):
    """*Speed*: how closely mu (relatively) and the regret (absolutely) are sought."""

    mu: float
    regret: float


_CLOSELY, _ROUGHLY = _Effort(1e-7, 1e-6), _Effort(1e-3, 1e-4)


def summarise(
    profile: PrivacyProfile, floor: float, most: float, *, roughly: bool = False
) -> GaussianSummary:
    """The least mu found with ``floor``; ``most`` is a mu that is known to do without one. ``roughly`` as in a report."""
    effort = _ROUGHLY if roughly else _CLOSELY
    sides = [_side(profile, floor, most, effort)]
    if profile.adjacency in ("add", "remove"):
        # delta at negative epsilon is the other direction's at positive epsilon, where the floor counts e^epsilon times.
        sides.append(_side(profile.reversed(), floor, most, effort, growing=True))
    mu = max(side.mu for side in sides)
    lower = max(side.least_mu() for side in sides)
    curve = _gaussian(mu)
    regrets = [_regret(side.envelope, curve, effort) for side in sides]
    regret = Bounds(*(max(ends) for ends in zip(*regrets, strict=True)))
    return GaussianSummary(mu, floor, Bounds(min(lower, mu), mu), regret)


def _gaussian(mu: float) -> Curve:
    """Bounds on the profile of mu-GDP at rising epsilon >= 0."""
    if mu == 0.0:
        return lambda epsilon: (np.zeros_like(epsilon), np.zeros_like(epsilon))
    if mu == math.inf:
        return lambda epsilon: (np.ones_like(epsilon), np.ones_like(epsilon))
    core = _core.Profile([[(gaussian(mu), 1)]], *Settings().numerical)

    def curve(epsilon: Array) -> tuple[Array, Array]:
        lower, upper = core.delta_curve(epsilon)
        return np.clip(lower, 0.0, 1.0), np.clip(upper, 0.0, 1.0)

    return curve


def _overview(profile: PrivacyProfile) -> Curve:
    """The worst of both directions, from what a report has looked at."""

    def curve(epsilon: Array) -> tuple[Array, Array]:
        lower, upper = zip(*(envelope.between(epsilon) for envelope in profile.overview), strict=True)
        return np.max(lower, axis=0), np.max(upper, axis=0)

    return curve


def smallest_mu(curve: Curve, end: float, floor: float, most: float) -> float:
    """The least mu found with delta(epsilon) <= delta_mu(epsilon) + ``floor`` at every epsilon >= 0; ``most`` does without a floor.

    ``end`` is about where delta has fallen to the floor.
    """
    return _Side(curve, end, floor, most, _CLOSELY).mu


def _side(
    profile: PrivacyProfile, floor: float, most: float, effort: _Effort, *, growing: bool = False
) -> _Side:
    end = min(_LAST, profile.epsilon(floor))
    if growing and floor > 0.0:
        end = min(end, -math.log(floor))  # where the slack is 1
    if end == _LAST:
        end = profile.widest_epsilon()
    curve = _overview(profile) if effort is _ROUGHLY else profile.delta_curve
    return _Side(curve, end, floor, most, effort, growing=growing)


class _Side:
    """delta at epsilon >= 0 of one curve, against delta_mu(epsilon) + slack, which is the floor or ``growing`` e^epsilon times it."""

    def __init__(
        self, curve: Curve, end: float, floor: float, most: float, effort: _Effort, *, growing: bool = False
    ) -> None:
        self._floor, self._growing, self._effort = floor, growing, effort
        self._known: dict[tuple[float, float], float] = {}
        end = end or 1.0  # the floor is above delta everywhere
        # Two questions may differ by what is unknown of each: beyond the last of these nodes delta is below the floor.
        ends = np.array([end * (1.0 + further) for further in _FURTHER if end * (1.0 + further) <= _LAST])
        self.envelope = Envelope(curve, np.append(end * np.linspace(0.0, 1.0, _FIRST) ** 2, ends))
        covered = ends[self._slack(ends) >= self._at(ends)[1]]
        self._end = float(covered[0]) if covered.size else end
        # Infinite losses, unless what is allowed grows beyond any mass.
        self.unreachable = bool(self.envelope.lower[-1] > floor) and not (growing and floor > 0.0)
        if self.unreachable:
            self.mu = math.inf
        else:
            self.mu = min(most, self._search()) if covered.size else most

    def _slack(self, epsilon: Array) -> Array:
        growth = np.exp(np.minimum(epsilon, LAST_NODE)) if self._growing else np.ones_like(epsilon)
        return self._floor * growth * (1.0 - MARGIN)

    def _at(self, epsilon: Array) -> tuple[Array, Array]:
        place = np.searchsorted(self.envelope.epsilon, epsilon)
        return self.envelope.lower[place], self.envelope.upper[place]

    def _nodes(self) -> Array:
        epsilon = self.envelope.epsilon
        return epsilon[(epsilon >= 0.0) & (epsilon <= self._end)]

    def _needed(self, epsilon: float, delta: float) -> float:
        """About the mu that delta at one epsilon asks for."""
        if delta <= 0.0:
            return 0.0
        key = epsilon, delta
        if key not in self._known:
            self._known[key] = gdp.mu_at(epsilon, delta)
        return self._known[key]

    def _most_needed(self, excess: Array, nodes: Array) -> tuple[float, int]:
        needed = [self._needed(*pair) for pair in zip(nodes.tolist(), excess.tolist(), strict=True)]
        return max(needed), int(np.argmax(needed))

    def _search(self) -> float:
        """A mu for which every cell is proven; nodes are added where one is not."""
        best = mu = 0.0
        for _ in range(_ROUNDS):
            nodes = self._nodes()
            excess = self._at(nodes)[1] * (1.0 + MARGIN) - self._slack(nodes)
            best, _ = self._most_needed(excess, nodes)
            mu = best * (1.0 + self._effort.mu)
            if best == math.inf or best == 0.0:
                return best
            open_ = ~_proven(mu, nodes, excess)
            if not open_.any():
                return mu * (1.0 + MARGIN)
            left, right = nodes[:-1][open_], nodes[1:][open_]
            if len(nodes) > _NODES or not self.envelope.ask(divide(left, right)):
                break
        nodes = self._nodes()
        excess = self._at(nodes)[1] * (1.0 + MARGIN) - self._slack(nodes)
        step = self._effort.mu
        while mu < _MOST and not _proven(mu, nodes, excess).all():
            mu, step = mu * (1.0 + step), 2.0 * step
        return mu * (1.0 + MARGIN) if mu < _MOST else math.inf

    def least_mu(self) -> float:
        """A mu that some epsilon shows to be too small, or 0."""
        if self.unreachable:
            return math.inf
        nodes = self._nodes()
        excess = self._at(nodes)[0] * (1.0 - MARGIN) - self._slack(nodes) * (1.0 + 4.0 * MARGIN)
        best, at = self._most_needed(excess, nodes)
        for margin in (4e-9, 1e-7, 1e-5, 1e-3):
            mu = best * (1.0 - margin)
            if _LEAST < mu < _MOST and float(_gaussian(mu)(nodes[at : at + 1])[1][0]) < excess[at]:
                return mu * (1.0 - MARGIN)
        return 0.0


def _proven(mu: float, nodes: Array, excess: Array) -> Mask:
    """Between which nodes the chord through ``excess`` is below a tangent of the profile of mu-GDP."""
    a, b, at_a, at_b = nodes[:-1], nodes[1:], excess[:-1], excess[1:]
    # The tangent that is parallel to the chord. Any other one would do, and nothing is proven where nan is compared.
    with np.errstate(all="ignore"):
        slope = np.maximum((at_a - at_b) / np.expm1(b - a) * np.exp(-a), 1e-320)
        touch = np.clip(-mu * (scipy.special.ndtri(np.minimum(slope, 1.0)) + 0.5 * mu), a, b)
        tail = -touch / mu - 0.5 * mu
        fall = np.exp(touch + scipy.special.log_ndtr(tail))  # y |d delta / dy|
        # Roundings in the exponent, and of the library's functions.
        off = 1e-13 + 1e-14 * (tail * tail + touch)
        value, _ = _gaussian(mu)(touch)
        rise, drop = fall * -np.expm1(a - touch), fall * np.expm1(b - touch)
        before = value + rise * (1.0 - off) - MARGIN * (value + rise)
        after = value - drop * (1.0 + off) - MARGIN * (value + drop)
        proven: Mask = (at_a <= before) & (at_b <= after)
    return proven


def _regret(envelope: Envelope, curve: Curve, effort: _Effort) -> Bounds:
    """sup over epsilon >= 0 of (delta_mu - delta) / (1 + e^epsilon)."""

    def distance(above: Array, below: Array, epsilon: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            value: Array = np.maximum(0.0, above - below) / (1.0 + np.exp(epsilon))
        return np.where(np.isnan(value), 1.0, value)  # nothing is known there, and no distance is more

    for _ in range(_ROUNDS):
        finite = (envelope.epsilon >= 0.0) & (envelope.epsilon < math.inf)
        nodes = envelope.epsilon[finite]
        low, high = curve(nodes)
        best = float(np.max(distance(low, envelope.upper[finite], nodes))) * (1.0 - MARGIN)
        every = envelope.cells()
        chosen = every.left >= 0.0
        cells = type(every)(*(part[chosen] for part in every))
        # The Gaussian's chords to either side of the vertex, and lines below delta: their distance is monotone on each.
        most = distance(curve(cells.vertex)[1], cells.at_vertex, cells.vertex)
        most = np.maximum(most, distance(high[:-1], cells.at_left, cells.left))
        most = np.maximum(most, distance(high[1:], cells.at_right, cells.right))
        tail = float(distance(high[-1:], envelope.lower[-1:], nodes[-1:])[0])
        upper = max(float(np.max(most)), tail) * (1.0 + MARGIN)
        enough = best + effort.regret + effort.mu * best
        if upper <= enough or len(nodes) > _NODES:
            break
        new = envelope.inside(cells, (most > enough) & envelope.worthwhile()[chosen])
        if tail > enough:
            new = np.append(new, min(LAST_NODE, float(nodes[-1]) + 1.0))
        if not envelope.ask(new):
            break
    return Bounds(best, min(upper, 1.0))


def unsampled_mu(process: Process, adjacency: str) -> float:
    """mu^2 = sum of count * mu_i^2, each step taken as if it were never sampled; in both directions, as mu is about losses of either sign."""
    adjacency = "add_or_remove" if adjacency in ("add", "remove") else adjacency
    terms = [(max(_mu_of(part, adjacency) for part in step.alternatives()), count) for step, count in process]
    return root_sum_of_squares(terms)


def _mu_of(step: Step, adjacency: str) -> float:
    """mu of one step that is no mixture, as if it were never sampled; 0 if it releases nothing."""
    single = directions(composition(step), adjacency)
    if not single:
        return 0.0
    mu = step.unsampled_mu(shift_of(adjacency))
    if mu is not None:
        return mu * (1.0 + 1e-12)
    loss = max(
        pair.max_loss if pair.infinity_mass == 0.0 else math.inf
        for direction in single
        for pair, _ in direction
    )
    return gdp.mu_of_pure_dp(loss) if loss < math.inf else math.inf
