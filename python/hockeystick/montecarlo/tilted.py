"""Importance sampling for `estimate_delta` and `calibrate_bandmf`: as many samples for a small delta as for a large one.

P is the mixture of N(C x, sigma^2) over participations x, Q = N(0, sigma^2), L = ln P/Q. Outputs are drawn from a
mixture R of

    S_a = P^a Q^{1-a} / M_a,   M_a = E_Q[(P/Q)^a],        exactly, from a table,
    T   = the mixture of N((1 + shift) C x, sigma^2) with weights p_x theta^|x|,

and Y = (P/R) max(0, 1 - e^{epsilon - L}) is averaged: its expectation is delta(epsilon), and with S_a of weight
pi_a in R it never exceeds

    B = (M_a / pi_a) e^{-(a-1) epsilon} (1/a) (1 - 1/a)^{a-1},

1/pi_a times the bound that Renyi divergence gives on delta. Whatever the components T, every statement
about the mean of Y/B in [0, 1] is one about delta, so they may be tuned freely, as long as the samples that
tune them are not those that are averaged. Proofs: docs/montecarlo/tilted.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from .. import _core
from .._base.arrays import Array
from .._base.payoffs import Composed, HockeyStick, Part, Payoff
from .._base.validation import ParameterError, integer, real
from .bounded import (
    BoundedValues,
    Prospects,
    best_weights,
    expected_law,
    rounded_weights,
    second_moment,
    spread,
)
from .empirical import Empirical

PLAIN = (0, 1.0, 0.0)
"""P itself, as a component (order, theta, shift)."""

_THETAS = (1.0, 2.0, 4.0, 8.0, 16.0)
_SHIFTS = (0.0, 0.4, 0.8, 1.2, 1.6, 2.2)
_ORDERS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_PILOT = (2048, 4096, 8192)
_MOST = 5
_CLIMB = 16
"""Rounds that come closer to epsilon before the pilot gives up on reaching it."""
_DEFENCE = math.log(32.0)
"""About what P as a component bounds ln P/R by."""
_BOUND_ERROR = 1e-11
"""More than the absolute round-off of ln B, for any table."""

Kind: TypeAlias = tuple[int, float, float]


@dataclass(frozen=True)
class Component:
    """A part of a proposal: S of this ``order`` (2 or more), or for order 0 T with ``theta`` and ``shift``."""

    weight: float
    order: int
    theta: float = 1.0
    shift: float = 0.0

    def __post_init__(self) -> None:
        real("weight", self.weight, 0.0, 1.0)
        integer("order", self.order, 0)
        real("theta", self.theta, 0.0, open_low=True)
        real("shift", self.shift, -1.0, 100.0, open_low=True)


@dataclass(frozen=True)
class Proposal(Prospects):
    """What outputs are drawn from, and what pilot samples say about it; made by `tune_proposal`.

    ``relative_variance`` is that of one value over delta^2, ``log_delta`` the logarithm of the pilot's
    estimate, ``log_bound`` that of B. Only the ``components`` decide what is drawn; nothing rests on the others.
    """

    components: tuple[Component, ...]
    relative_variance: float = math.inf
    log_delta: float = -math.inf
    log_bound: float = 0.0
    law: Empirical | None = field(default=None, repr=False, compare=False)
    plain_variance: float = math.inf

    def is_better(self, samples: int, needed: float, extra: float = 0.0) -> bool:
        """Whether the interval from so many samples looks shorter than that of plain sampling.

        ``needed`` is ln(1/q), q the failure probability of one side; ``extra`` is added to the upper end.
        """
        if not self.relative_variance < math.inf:
            return self.log_bound < 0.0 and extra < needed / samples
        plain = math.exp(min(700.0, -self.log_delta))
        rate = needed / samples
        here = math.sqrt(2.0 * self.relative_variance * rate) + self.reach * rate + extra * plain
        spread = min(self.plain_variance, max(plain - 1.0, 0.0))
        return here < math.sqrt(2.0 * spread * rate) + plain * rate


def orders(mechanism: Any) -> tuple[int, ...]:
    """The orders a for which S_a can be sampled."""
    described = getattr(mechanism, "_described", None)
    if described is None:
        return ()
    columns, steps, scheme = described()
    return tuple(a for a in _ORDERS if _core.has_moment_law(columns, steps, scheme, a))


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
    columns, steps, scheme = mechanism._described()
    if mechanism.scheme.truncates or not _core.has_moment_law(columns, steps, scheme, order):
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
    fixed: list[Kind] = [(a, 1.0, 0.0) for a in (best, *near_best)]
    fixed.append(PLAIN)
    if start is None:
        kinds = [*fixed, *[(0, t, s) for t in _THETAS for s in _SHIFTS if (0, t, s) != PLAIN]]
        weights = np.full(len(kinds), 0.8 / (len(kinds) - 1))
        weights[0] = 0.2
    else:
        found = [(c.order, c.theta, c.shift) for c in start.components]
        kinds = [*fixed, *[kind for kind in found if kind not in fixed]]
        before = {kind: c.weight for kind, c in zip(found, start.components, strict=True)}
        weights = np.array([before.get(kind, 0.0) for kind in kinds]) * 0.8
        weights[0] += 0.2
    rounds, index, price, last = list(pilot), 0, 0.0, False
    while True:
        last = not rounds[1:]
        look = _Look(mechanism, kinds, weights, payoff, epsilon, seed + index, rounds[0])
        index += 1
        if look.reached:
            # What S_a costs: its bound over delta, times gap.
            reach = log_renyi(best) - look.log_mean
            price = gap * math.exp(min(600.0, reach))
        if look.reached or index > _CLIMB:
            rounds.pop(0)
        # Where the bound is out of proportion, a larger pi_a would not help, but hide everything else.
        weights = look.best_weights(0.0)
        price = min(price, 4.0 * look.second_moment(weights))
        weights = look.best_weights(price)
        ranked = [int(k) for k in np.argsort(-weights) if k != 0 and weights[k] > (0.004 if last else 0.001)]
        ranked = ranked[: _MOST if last else 2 * _MOST]
        if defend and kinds.index(PLAIN) not in ranked:
            ranked.append(kinds.index(PLAIN))
        chosen = sorted([0, *ranked])
        kinds, weights, look = [kinds[k] for k in chosen], weights[chosen], look.only(chosen)
        weights = look.best_weights(price, weights)
        weights[0] = max(weights[0], 0.05)
        if defend:
            weights[kinds.index(PLAIN)] = max(weights[kinds.index(PLAIN)], 0.03)
        weights /= weights.sum()
        if last:
            return look.proposal(weights)
        # The next round must see what the choice is based on: not only S.
        weights[0] = min(weights[0], 0.3 if look.reached else 0.05)
        step = 1.5 if look.reached else 2.0
        near = [kind for kind in _neighbours(kinds, step) if kind not in kinds and kind not in fixed]
        if look.reached:
            near += [kind for kind in fixed if kind not in kinds]
        kinds = [*kinds, *near]
        share = np.full(len(near), 0.2 / max(1, len(near)))
        weights = np.concatenate([(1.0 - share.sum()) * weights / weights.sum(), share])


@dataclass(frozen=True)
class _DrawLaw:
    """Draws the empirical laws of Y/B of blocks, anywhere: it pickles."""

    mechanism: Any
    entries: tuple[tuple[float, int, float, float], ...]
    points: tuple[float, ...]
    curve: Any
    log_scale: float
    seed: int

    def __call__(self, first: int, count: int) -> tuple[Array, int]:
        core = self.mechanism._tilted(self.entries)
        if self.curve is not None:
            rows = core.samples(self.seed, first, count)
            losses, log_weights = rows[:, 0], rows[:, 0] - rows[:, 1] - self.log_scale
            _, upper = self.curve.between(self.points[0] - losses)
            lower, _ = self.curve.between(self.points[1] - losses)
            with np.errstate(divide="ignore", invalid="ignore"):
                values = np.exp(log_weights + np.log(np.array([upper, lower])))
            # What is not a number counts as the largest; the scale is the largest value of all but for rounding.
            return spread(np.where(values <= 1.0, values, np.where(values > 1.0 + 1e-9, values, 1.0)))
        return spread(core.values(self.seed, np.array(self.points), self.log_scale, first, count))


class TiltedValues(BoundedValues):
    """Y/B in direction "remove", from a fixed proposal; see `BoundedValues`.

    ``curve`` bounds the delta curve of what is released as well, as a function of the epsilon that is left. Losses that are off by their round-off are on either side of what is drawn.
    """

    proposal: Proposal

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
        # What is asked for lies between share * delta and delta + extra, delta that of ``mechanism``.
        self.mechanism, self.proposal, self.extra, self.share = mechanism, proposal, extra, share
        self._entries = entries(proposal.components)
        core = mechanism._tilted(self._entries)
        self.block_size = int(core.block_size)
        self._points = (epsilon - loss_error, epsilon + loss_error)
        self._curve = curve
        if curve is None:
            self.log_scale = float(core.log_bound(self._points[0])) + _BOUND_ERROR
        else:
            parts = bounding_parts(mechanism, proposal.components)
            self.log_scale = Composed(curve, self._points[0]).log_bound(parts) + _BOUND_ERROR
        # The weight P/R is made of densities e^{a L}, or of exponents (1 + shift)^2 times those of L.
        most = max(max(float(c.order), (1.0 + c.shift) ** 2) for c in proposal.components)
        slack = (2.0 + most) * loss_error + 1e-11
        # Public counts: one more law that is drawn from, round by round.
        slack += float(getattr(mechanism, "law_error", 0.0)) * mechanism.strategy.steps
        self.log_upper, self.log_lower = self.log_scale + slack, self.log_scale - slack
        self.resolution = 64.0 * mechanism.strategy.steps * 2.0**-53 + 1e-12

    def _described(self) -> str:
        return repr(self._entries)

    def _draw(self, seed: int) -> _DrawLaw:
        return _DrawLaw(self.mechanism, self._entries, self._points, self._curve, self.log_scale, seed)


def log_renyi_delta(log_moment: float, order: int, epsilon: float) -> float:
    """ln of the bound on delta(epsilon) that the moment of one order gives (Canonne et al. 2020, Proposition 12)."""
    return log_moment - (order - 1) * epsilon + (order - 1) * math.log1p(-1.0 / order) - math.log(order)


def _neighbours(kinds: Sequence[Kind], step: float) -> list[Kind]:
    near = []
    for order, theta, shift in kinds:
        if order == 0:
            small = step**0.3
            for t, s in ((step, 1.0), (1.0 / step, 1.0), (1.0, small), (1.0, 1.0 / small)):
                near.append((0, round(theta * t, 4), round(min(50.0, max(0.0, (1.0 + shift) * s - 1.0)), 4)))
    return list(dict.fromkeys(near))[: 4 * _MOST]


class _Look:
    """Pilot samples, and what they say about mixtures of the components."""

    def __init__(
        self,
        mechanism: Any,
        kinds: Sequence[Kind],
        weights: Array,
        payoff: Payoff,
        epsilon: float,
        seed: int,
        count: int,
    ) -> None:
        weights = rounded_weights(weights)
        self._entries = [(float(w), *kind) for w, kind in zip(weights, kinds, strict=True)]
        self._mechanism, self._payoff = mechanism, payoff
        core = mechanism._tilted(tuple(self._entries), cached=False)
        rows = core.samples(seed, 0, -(-count // core.block_size))
        rows = rows[np.isfinite(rows[:, 0]) & np.isfinite(rows[:, 1])]
        loss, ratio, densities = rows[:, 0], rows[:, 1], rows[:, 2:]
        self._samples = -(-count // core.block_size) * core.block_size
        # Too few losses above epsilon: look at the largest ones first, and come closer in the next round.
        self.reached = payoff.is_seen(loss, loss - ratio)
        if not self.reached:
            payoff = HockeyStick(min(epsilon, float(np.sort(loss)[-min(64, len(loss))])))
        log_value = payoff.log_values(loss)
        used = log_value > -math.inf
        log_y = (loss - ratio + log_value)[used]
        top = float(log_y.max()) if log_y.size else 0.0
        self._y: Array = np.exp(log_y - top)
        mean = float(self._y.sum()) / self._samples
        self.log_mean = top + math.log(mean) if mean > 0.0 else -math.inf
        self._y /= mean if mean > 0.0 else 1.0
        self._ratios: Array = np.exp(np.minimum(densities[used] - ratio[used, None], 600.0))
        # E_P[value^2] / delta^2
        scale = math.exp(-max(-700.0, self.log_mean)) / self._samples
        self.plain_second = float(self._y @ np.exp(log_value[used])) * scale

    def only(self, chosen: Sequence[int]) -> _Look:
        """The same samples, and some of the components."""
        part = object.__new__(_Look)
        part.__dict__.update(self.__dict__)
        part._ratios = self._ratios[:, list(chosen)]
        part._entries = [self._entries[k] for k in chosen]
        return part

    def best_weights(self, price: float, start: Array | None = None) -> Array:
        """Weights that make E Y^2 / delta^2 + price / weight[0] small."""
        return best_weights(self._y, self._ratios, self._samples, price, start)

    def second_moment(self, weights: Array) -> float:
        """E Y^2 / delta^2 under the mixture with these weights."""
        return second_moment(self._y, self._ratios, self._samples, weights)

    def proposal(self, weights: Array) -> Proposal:
        weights = rounded_weights(weights)
        variance = math.inf
        if self.reached:
            variance = max(self.second_moment(weights) - 1.0, 1e-3)
        components = tuple(
            Component(float(w), *entry[1:])
            for w, entry in zip(weights, self._entries, strict=True)
            if w > 0.0
        )
        log_bound = self._payoff.log_bound(bounding_parts(self._mechanism, components))
        law = None
        if self.reached:
            law = expected_law(self._y, self._ratios, self._samples, weights, self.log_mean - log_bound)
        plain = math.inf if isinstance(self._payoff, HockeyStick) else max(0.0, self.plain_second - 1.0)
        return Proposal(components, variance, self.log_mean, log_bound, law, plain)


def bounding_parts(mechanism: Any, components: Sequence[Component]) -> list[Part]:
    """What bounds P/R: the components S_a, and P."""
    core = mechanism._tilted(entries(components))
    return [
        ((core.log_normaliser(k) if c.order else 0.0) - math.log(c.weight), max(1, c.order))
        for k, c in enumerate(components)
        if c.order or (c.order, c.theta, c.shift) == PLAIN
    ]


def entries(components: Sequence[Component]) -> tuple[tuple[float, int, float, float], ...]:
    """What the core takes."""
    return tuple((c.weight, c.order, c.theta, c.shift) for c in components)


__all__ = ["Component", "Proposal", "log_moment", "tune_proposal"]
