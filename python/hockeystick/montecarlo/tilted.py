"""Importance sampling for `estimate_delta` and `calibrate_bandmf`: as many samples for a small delta as for a large one.

Outputs are drawn from a mixture R of S_a = P^a Q^{1-a} / M_a, M_a = E_Q[(P/Q)^a], exactly, from a table, and of T, the mixture of
N((1 + shift) C x, sigma^2) with weights p_x theta^|x|. Some S_a bounds what is averaged, Y = (P/R) max(0, 1 - e^{epsilon - L}), so that the
components T may be tuned freely, on other samples than those that are averaged (docs/montecarlo/tilted.md, sections 1 to 6).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import numpy as np

from .. import _core
from .._base.types import Array
from .._base.validation import ParameterError, Positive, Probability, check_fields, integer, real
from ..matrix.bandmf import Components
from .bounded import (
    BoundedValues,
    Composed,
    HockeyStick,
    Part,
    Payoff,
    Pilot,
    Prospects,
    rounded_weights,
    spread,
    worthwhile,
)

PLAIN = (0, 1.0, 0.0)
"""*Format*: P itself, as a component (order, theta, shift)."""

# Where a pilot begins, and with how many samples per round (*speed*).
_THETAS = (1.0, 2.0, 4.0, 8.0, 16.0)
_SHIFTS = (0.0, 0.4, 0.8, 1.2, 1.6, 2.2)
_ORDERS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_PILOT = (2048, 4096, 8192)
_NEAR = 20
"""Most components that a round adds near others (*speed*, as all choices of a pilot)."""
_LAST_SHIFTS = 2
"""Most shifts among the components of a proposal (*speed*)."""
_CLIMB = 16
"""Rounds that come closer to epsilon before the pilot gives up on reaching it (*speed*)."""
_DEFENCE = math.log(32.0)
"""About what P as a component bounds ln P/R by (*speed*)."""
_BOUND_ERROR = 1e-11
"""More than the absolute round-off of ln B, for any table (*proof*, section 6)."""

Kind: TypeAlias = tuple[int, float, float]


@dataclass(frozen=True)
class Component:
    """A part of a proposal: S of this ``order`` (2 or more), or for order 0 T with ``theta`` and ``shift``."""

    weight: Probability
    order: Annotated[int, integer]
    theta: Positive = 1.0
    shift: Annotated[float, functools.partial(real, low=-1.0, high=100.0, open_low=True)] = 0.0

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Proposal(Prospects):
    """What outputs are drawn from, and what pilot samples say about it; made by `tune_proposal`.

    Only the ``components`` decide what is drawn; nothing rests on the others.
    """

    components: tuple[Component, ...]


def orders(mechanism: Any) -> tuple[int, ...]:
    """The orders a for which S_a can be sampled."""
    described = getattr(mechanism, "_described", None)
    if described is None:
        return ()
    core = described()
    return tuple(a for a in _ORDERS if _core.has_moment_law(core, a))


def log_moment(mechanism: Any, order: int) -> float:
    """Return ln M_a, M_a = E_Q[(P/Q)^a]: (a - 1) times the Renyi divergence of order a of P from Q.

    Exact up to round-off; ``mechanism`` is a `BandMF`. Raises ParameterError where there is no table for it:
    orders above 3 for schemes that bar examples (3 within 2^23 entries), schemes whose density is only bounded, tables of more than
    2^26 entries.

    >>> from hockeystick import BandMF, Identity, Poisson
    >>> mechanism = BandMF(Identity(100), Poisson(100, 0.01), noise_multiplier=1.0)
    >>> math.isclose(log_moment(mechanism, 2), 100 * math.log1p(1e-4 * math.expm1(1.0)))
    True
    """
    order = integer("order", order, 2)
    if mechanism.scheme.truncates or not _core.has_moment_law(mechanism._described(), order):
        raise ParameterError(f"order = {order}: there is no table of this order for {mechanism.scheme!r}")
    return float(mechanism._tilted(((1.0, order, 1.0, 0.0),)).log_normaliser(0))


def tune_proposal(
    mechanism: Any,
    epsilon: float,
    seed: int,
    *,
    gap: float = 0.1,
    start: Proposal | None = None,
    pilot: Sequence[int] = _PILOT,
    payoff: Payoff | None = None,
) -> Proposal:
    """Choose what to draw outputs from, by pilot samples: what bounds delta to within ``gap`` soonest.

    Given samples of any proposal R_0, the second moment of Y under another mixture R of the same components is an
    average over them, and convex in its weights; so is 1/pi_a, which multiplies B. The sum of both that
    `Proposal.effort` stands for is minimised, rare components are dropped, others put near those that are used,
    and the next round samples from the result. P itself is among the components ("plain sampling is best
    here"). ``start`` is where to begin, instead of a grid: the result for a similar mechanism. ``payoff`` is what is
    averaged, instead of (1 - e^{epsilon - L})_+; with it, P always is a component.
    """
    epsilon = real("epsilon", epsilon, 0.0)
    gap = real("gap", gap, 0.0, 1.0, open_low=True)
    possible = orders(mechanism)
    if not possible:
        raise ParameterError(f"mechanism = {mechanism!r}: has no table for importance sampling")
    moments = {a: mechanism._tilted(((1.0, a, 1.0, 0.0),)).log_normaliser(0) for a in possible}
    defend = payoff is not None
    payoff = HockeyStick(epsilon) if payoff is None else payoff

    def log_renyi(order: int) -> float:
        return payoff.log_bound([(moments[order], order), *([(_DEFENCE, 1)] if defend else [])])

    best = min(possible, key=log_renyi)
    place = possible.index(best)
    near_best = [a for a in possible[max(0, place - 2) : place + 3] if a != best]
    fixed: list[Kind] = [*((a, 1.0, 0.0) for a in (best, *near_best)), PLAIN]
    least = {fixed[0]: 0.05, **({PLAIN: 0.03} if defend else {})}
    kinds, weights = _beginning(fixed, start)
    rounds, index, price, last = list(pilot), 0, 0.0, False
    while not last:
        last = not rounds[1:]
        look, reached = _look(mechanism, kinds, weights, payoff, epsilon, (seed + index, rounds[0]))
        index += 1
        if reached:
            # What S_a costs: its bound over delta, times gap.
            price = gap * math.exp(min(600.0, log_renyi(best) - look.log_mean))
        if reached or index > _CLIMB:
            rounds.pop(0)
        # Where the bound is out of proportion, a larger pi_a would not help, but hide everything else.
        price = min(price, 4.0 * look.second_moment(look.best_weights(0.0)))
        weights = look.best_weights(price)
        heavy = _of_few_shifts(kinds, weights, last)
        chosen = sorted({*worthwhile(heavy, last), *map(kinds.index, least)})
        kinds, look = [kinds[k] for k in chosen], look.only(chosen)
        weights = look.best_weights(price, weights[chosen])
        for kind, weight in least.items():
            weights[kinds.index(kind)] = max(weights[kinds.index(kind)], weight)
        weights /= weights.sum()
        if not last:
            kinds, weights = _next_round(kinds, weights, fixed, reached)
    return _proposal(mechanism, payoff, kinds, weights, look, reached)


def _of_few_shifts(kinds: Sequence[Kind], weights: Array, last: bool) -> Array:
    """In the last round, 0 for T of other shifts than those that weigh most: T of one shift share their likelihood ratios."""
    totals: dict[float, float] = {}
    for (order, _, shift), weight in zip(kinds, weights.tolist(), strict=True):
        totals[shift] = totals.get(shift, 0.0) + weight * (order == 0)
    kept = sorted(totals, key=totals.__getitem__)[-(_LAST_SHIFTS if last else len(totals)) :]
    return np.where([order != 0 or shift in kept for order, _, shift in kinds], weights, 0.0)


def _beginning(fixed: list[Kind], start: Proposal | None) -> tuple[list[Kind], Array]:
    """The components of the first round, and their weights: a grid, or those of ``start``."""
    if start is None:
        kinds = [*fixed, *[(0, t, s) for t in _THETAS for s in _SHIFTS if (0, t, s) != PLAIN]]
        weights = np.full(len(kinds), 0.8 / (len(kinds) - 1))
        weights[0] = 0.2
        return kinds, weights
    before: dict[Kind, float] = {(c.order, c.theta, c.shift): c.weight for c in start.components}
    kinds = [*fixed, *[kind for kind in before if kind not in fixed]]
    weights = np.array([before.get(kind, 0.0) for kind in kinds]) * 0.8
    weights[0] += 0.2
    return kinds, weights


def _look(
    mechanism: Any,
    kinds: Sequence[Kind],
    weights: Array,
    payoff: Payoff,
    epsilon: float,
    pilot: tuple[int, int],
) -> tuple[Pilot, bool]:
    """What the samples of a ``pilot`` (seed, number) say, and whether they reach epsilon."""
    seed, count = pilot
    components = tuple((float(w), *kind) for w, kind in zip(rounded_weights(weights), kinds, strict=True))
    core = mechanism._tilted(components, cached=False)
    blocks = -(-count // core.block_size)
    rows = core.samples(seed, 0, blocks)
    rows = rows[np.isfinite(rows[:, 0]) & np.isfinite(rows[:, 1])]
    loss, ratio, densities = rows[:, 0], rows[:, 1], rows[:, 2:]
    reached = payoff.is_seen(loss, loss - ratio)
    if not reached:
        # Too few losses above epsilon: look at the largest ones first, and come closer in the next round.
        payoff = HockeyStick(min(epsilon, float(np.sort(loss)[-min(64, len(loss))])))
    return Pilot(payoff, loss, loss - ratio, densities - ratio[:, None], blocks * core.block_size), reached


def _next_round(
    kinds: list[Kind], weights: Array, fixed: list[Kind], reached: bool
) -> tuple[list[Kind], Array]:
    """What the next round samples from: what was chosen, and others near it."""
    # It must see what the choice is based on: not only S.
    weights[0] = min(weights[0], 0.3 if reached else 0.05)
    step = 1.5 if reached else 2.0
    near = [kind for kind in _neighbours(kinds, step) if kind not in kinds and kind not in fixed]
    if reached:
        near += [kind for kind in fixed if kind not in kinds]
    share = np.full(len(near), 0.2 / max(1, len(near)))
    weights = np.concatenate([(1.0 - share.sum()) * weights / weights.sum(), share])
    return [*kinds, *near], weights


class TiltedValues(BoundedValues):
    """Y/B in direction "remove", from a fixed proposal; see `BoundedValues`.

    What is asked for lies between share * delta and delta + extra, delta that of ``mechanism``. ``curve`` bounds the
    delta curve of what is released as well, as a function of the epsilon that is left. Losses that are off by their
    round-off are on either side of what is drawn.
    """

    def __init__(
        self,
        mechanism: Any,
        epsilon: float,
        proposal: Proposal,
        loss_error: float,
        extra: float = 0.0,
        share: float = 1.0,
        curve: Any = None,
    ) -> None:
        super().__init__(mechanism, proposal, extra, share)
        self._entries, self._curve = entries(proposal.components), curve
        core = mechanism._tilted(self._entries)
        self.block_size = int(core.block_size)
        self._points = (epsilon - loss_error, epsilon + loss_error)
        if curve is None:
            log_scale = float(core.log_bound(self._points[0]))
        else:
            parts = bounding_parts(mechanism, proposal.components)
            log_scale = Composed(curve, self._points[0]).log_bound(parts)
        # The weight P/R is made of densities e^{a L}, or of exponents (1 + shift)^2 times those of L.
        most = max(max(float(c.order), (1.0 + c.shift) ** 2) for c in proposal.components)
        slack = (2.0 + most) * loss_error + 1e-11
        # Public counts: one more law that is drawn from, round by round.
        slack += float(getattr(mechanism, "law_error", 0.0)) * mechanism.strategy.steps
        slack += 0.0 if curve is None else curve.log_mass
        self._bounded(log_scale + _BOUND_ERROR, slack, repr(self._entries))

    def draw(self, seed: int, first: int, count: int) -> tuple[Array, int]:
        core = self.mechanism._tilted(self._entries)
        if self._curve is None:
            return spread(core.values(seed, np.array(self._points), self.log_scale, first, count))
        rows = core.samples(seed, first, count)
        losses, log_weights = rows[:, 0], rows[:, 0] - rows[:, 1] - self.log_scale
        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.exp(log_weights + np.log(self._curve.around(self._points, losses)))
        # What is not a number counts as the largest; the scale is the largest value of all but for rounding.
        return spread(np.where(values <= 1.0, values, np.where(values > 1.0 + 1e-9, values, 1.0)))


def _proposal(
    mechanism: Any, payoff: Payoff, kinds: Sequence[Kind], weights: Array, look: Pilot, reached: bool
) -> Proposal:
    """The mixture with these weights, and what a look that has ``reached`` epsilon says about it."""
    weights = rounded_weights(weights)
    components = tuple(Component(float(w), *kind) for w, kind in zip(weights, kinds, strict=True) if w > 0.0)
    log_bound = payoff.log_bound(bounding_parts(mechanism, components))
    alone = isinstance(payoff, HockeyStick)
    return Proposal(
        components,
        relative_variance=look.relative_variance(weights) if reached else math.inf,
        log_delta=look.log_mean,
        log_bound=log_bound,
        plain_variance=math.inf if alone else max(0.0, look.plain_second - 1.0),
        law=look.law(weights, look.log_mean - log_bound) if reached else None,
    )


def _neighbours(kinds: Sequence[Kind], step: float) -> list[Kind]:
    near = []
    for order, theta, shift in kinds:
        if order == 0:
            small = step**0.3
            for t, s in ((step, 1.0), (1.0 / step, 1.0), (1.0, small), (1.0, 1.0 / small)):
                near.append((0, round(theta * t, 4), round(min(50.0, max(0.0, (1.0 + shift) * s - 1.0)), 4)))
    return list(dict.fromkeys(near))[:_NEAR]


def bounding_parts(mechanism: Any, components: Sequence[Component]) -> list[Part]:
    """What bounds P/R: the components S_a, and P."""
    core = mechanism._tilted(entries(components))
    return [
        ((core.log_normaliser(k) if c.order else 0.0) - math.log(c.weight), max(1, c.order))
        for k, c in enumerate(components)
        if c.order or (c.order, c.theta, c.shift) == PLAIN
    ]


def entries(components: Sequence[Component]) -> Components:
    return tuple((c.weight, c.order, c.theta, c.shift) for c in components)
