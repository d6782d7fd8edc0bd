"""Weighted samples below a known bound: what is averaged, how it is tallied, what that proves, and what pilots say about mixtures.

What `tilted` (direction "remove") and `half_space` ("add") have in common: values Y in [0, B], B known, whose
expectation is delta (docs/montecarlo/tilted.md). Y/B is drawn, in two versions: one whose expectation is at least that of Y/B whatever
the round-off of the losses, one whose expectation is at most that. Nothing rests on pilots: the samples that are averaged come from
other random streams (section 5 there).

What is averaged in direction "remove" is a function of the privacy loss L: delta(epsilon) of a mechanism alone is
E_P[(1 - e^{epsilon - L})_+]; released together with an independent one whose delta curve is delta', E_P[delta'(epsilon - L)].
Importance sampling multiplies it by P/R, at most c e^{-(a-1) L} for every component S_a of R (Theorem 3 there), and c for P itself.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from .. import _core
from .._base.bounds import Bounds
from .._base.types import Array
from .empirical import POINTS, UNIT, Empirical, points
from .evidence import Bets, default_bets, lower_bound, plan_bets, scaled_threshold, upper_bound
from .runs import Samples
from .tally import EmpiricalTally

_ROUNDS, _UNITS = 100, 1024
"""Of the search for weights, and what they are whole multiples of (*speed*)."""
_UP = 1.0 + 1e-15
"""More than the round-off of the few products it is applied to (*proof*)."""


class BoundedValues(Samples[EmpiricalTally]):
    """Y/B from a fixed ``proposal``: what to average, how to draw it, what it proves.

    Row 0 of a tally bounds delta from above, row 1 from below. Guaranteed, for the expectations m_0 and m_1 of the rows:
    what is asked for is at most e^{log_upper} (m_0 + resolution) + extra and at least e^{log_lower} (m_1 -
    resolution) share.
    """

    kind = EmpiricalTally

    def __init__(self, mechanism: Any, proposal: Prospects, extra: float, share: float) -> None:
        self.mechanism, self.proposal, self.extra, self.share = mechanism, proposal, extra, share
        self.identity = {}
        self.resolution = 64.0 * mechanism.strategy.steps * 2.0**-53 + 1e-12

    def _bounded(self, log_scale: float, slack: float, described: str) -> None:
        """Fix ln B, known to within ``slack``; ``described`` is the proposal, for the key of a run."""
        self.log_scale, self.log_upper, self.log_lower = log_scale, log_scale + slack, log_scale - slack
        self._described = described

    def key(self, seed: int) -> dict[str, Any]:
        """The key of the tallies of this seed, which only the same proposal can continue."""
        own = {"proposal": self._described, "log_scale": repr(self.log_scale), "block_size": self.block_size}
        return {**super().key(seed), **own}

    def interval(self, tally: EmpiricalTally, confidence: float) -> tuple[float, Bounds]:
        """The estimate of delta, and bounds of which each fails with probability (1 - confidence)/2 at most.

        The number of blocks must have been fixed beforehand; so are the bets, by the pilot that chose the proposal.
        """
        above, below = self._bets(tally, confidence)
        half = 0.5 * (1.0 - confidence)
        most = upper_bound(tally.law(0), half, above)
        least = lower_bound(tally.law(1), half, below)
        upper = self._upper(most)
        lower = _scaled(self.log_lower, least - self.resolution, up=False) * self.share / _UP
        estimate = _scaled(self.log_scale, tally.law(0).mean, up=False)
        return min(1.0, max(lower, estimate)), Bounds(lower, upper)

    def evidence(self, tally: EmpiricalTally, confidence: float) -> dict[str, Any]:
        """The law of all values, and the bets that it pays."""
        half, law = 0.5 * (1.0 - confidence), tally.law(0)
        bets = self._bets(tally, confidence)[0] or default_bets(max(1, law.count), half)
        mean = upper_bound(law, half, bets)
        return {
            "method": "betting",
            "delta": self._upper(mean),
            "mean": mean,
            "masses": [hex(mass) for mass in law.masses],
            "bets": [list(bet) for bet in bets],
            "scale": self.log_upper,
            "resolution": self.resolution,
            "extra": self.extra,
        }

    def _bets(self, tally: EmpiricalTally, confidence: float) -> tuple[Bets | None, Bets | None]:
        """Against means that are too large and too small: those that the pilot recommends, if there was one."""
        pilot, count, half = self.proposal.law, tally.law(0).count, 0.5 * (1.0 - confidence)
        if pilot is None or not count:
            return None, None
        return plan_bets(pilot, count, half, "below"), plan_bets(pilot, count, half, "above")

    def _upper(self, mean: float) -> float:
        """delta where the expectation of row 0 is at most ``mean``."""
        return min(1.0, (_scaled(self.log_upper, mean + self.resolution, up=True) + self.extra) * _UP)

    def threshold(self, tested: float) -> float:
        """What the expectation of row 0 must be below, so that delta is below ``tested``."""
        rest = (tested - self.extra) / _UP
        return scaled_threshold(rest, self.log_upper) - self.resolution if rest > 0.0 else 0.0

    def delta_at(self, mean: float) -> float:
        """What this mean of row 0 makes of delta, up to round-off and `extra`."""
        return math.exp(min(0.0, self.log_upper + math.log(mean))) if mean > 0.0 else 0.0


def spread(values: Array) -> tuple[Array, int]:
    """The empirical laws of rows of values, and how many values lie outside of [0, 1]."""
    masses, refused = zip(*(_core.spread_values(row) for row in values), strict=True)
    return np.array(masses), sum(refused)


def _scaled(log_scale: float, share: float, up: bool) -> float:
    """e^log_scale * share in [0, 1], rounded up or down."""
    if not share > 0.0:
        return 0.0
    size = log_scale + math.log(share)
    error = 1e-15 * (abs(log_scale) + abs(size) + 1000.0)
    if up:
        return 1.0 if size > -error else max(math.exp(size + error), 5e-324)
    return math.exp(min(0.0, size - error))


_MOST, _LEAST_WEIGHT, _LEAST_LAST = 5, 0.001, 0.004
"""A proposal's components besides the first are at most so many, twice as many between rounds; rarer ones are dropped (*speed*)."""


@dataclass(frozen=True, kw_only=True)
class Prospects:
    """What pilot samples expect of a proposal.

    ``relative_variance`` is that of one value Y over delta^2, ``log_delta`` the logarithm of the pilot's estimate,
    ``log_bound`` ln B, ``law`` that of Y/B; infinite and None if nothing was seen. ``plain_variance`` and ``log_cap``
    are those of plain sampling: the variance of a value over delta^2, and ln of the largest value.
    """

    relative_variance: float = math.inf
    log_delta: float = -math.inf
    log_bound: float = 0.0
    log_cap: float = 0.0
    plain_variance: float = math.inf
    law: Empirical | None = field(default=None, repr=False, compare=False)

    @property
    def reach(self) -> float:
        """B / delta."""
        if not self.log_delta > -math.inf:
            return math.inf
        return math.exp(min(700.0, self.log_bound - self.log_delta))

    def effort(self, gap: float) -> float:
        """About how many samples, per unit of ln(1/q), bound delta to within a relative ``gap``."""
        return 2.0 * self.relative_variance / gap**2 + self.reach / gap

    def is_better(self, samples: int, needed: float, extra: float = 0.0) -> bool:
        """Whether the interval from so many samples looks shorter than that of plain sampling.

        ``needed`` is ln(1/q), q the failure probability of one side; ``extra`` is added to the upper end.
        """
        rate = needed / samples
        if not self.relative_variance < math.inf:
            return self.log_bound < self.log_cap and extra < rate
        plain = math.exp(min(700.0, self.log_cap - self.log_delta))
        here = math.sqrt(2.0 * self.relative_variance * rate) + self.reach * rate + extra * plain
        spread = min(self.plain_variance, max(plain - 1.0, 0.0))
        return here < math.sqrt(2.0 * spread * rate) + plain * rate


class Pilot:
    """Samples of a mixture R_0, their values Y, and what they say about other mixtures of the same components.

    Of ``samples``, those that have a ``payoff`` at their losses; ``log_weights`` are ln of P/R_0 (of Q/R_0 in direction
    "add"), ``log_ratios`` (samples, components) ln of the components' densities over that of R_0.
    """

    def __init__(
        self, payoff: Payoff, losses: Array, log_weights: Array, log_ratios: Array, samples: int
    ) -> None:
        log_values = payoff.log_values(losses)
        used = log_values > -math.inf
        log_y = (log_weights + log_values)[used]
        top = float(log_y.max()) if log_y.size else 0.0
        self._y: Array = np.exp(log_y - top)
        self._samples = samples
        mean = float(self._y.sum()) / samples
        self.log_mean = top + math.log(mean) if mean > 0.0 else -math.inf
        self._y /= mean if mean > 0.0 else 1.0
        self._ratios: Array = np.exp(np.minimum(log_ratios[used], 600.0))
        scale = math.exp(-max(-700.0, self.log_mean)) / samples
        self.plain_second = float(self._y @ np.exp(log_values[used])) * scale
        """E of the squared payoff under P (Q), over delta^2."""

    def only(self, chosen: Sequence[int]) -> Pilot:
        """The same samples, and some of the components."""
        part = copy.copy(self)
        part._ratios = self._ratios[:, list(chosen)]
        return part

    def best_weights(self, price: float, start: Array | None = None) -> Array:
        """Weights of a mixture that make E Y^2 / delta^2 + price / weight[0] small."""
        y, ratios = self._y, self._ratios
        count = ratios.shape[1]
        weights: Array = np.full(count, 1.0 / count) if start is None else np.maximum(start, 1e-6)
        weights = weights / weights.sum()
        if not y.size:
            return weights
        for _ in range(_ROUNDS):
            mixed = ratios @ weights
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                pull = np.square(y / mixed) @ ratios / self._samples
            pull[0] += price / weights[0] ** 2
            if not np.isfinite(pull).all():
                return weights
            # Minimises an upper bound that touches at the old weights.
            new = weights * np.sqrt(pull)
            total = new.sum()
            if not total > 0.0:
                return weights
            new = np.maximum(new / total, 1e-9)
            new /= new.sum()
            done = float(np.abs(new - weights).max()) < 1e-4
            weights = new
            if done:
                break
        return weights

    def second_moment(self, weights: Array) -> float:
        """E Y^2 / delta^2 under the mixture with these weights."""
        mixed = self._ratios @ weights
        return float((np.square(self._y) / np.maximum(mixed, 1e-300)).sum() / self._samples)

    def relative_variance(self, weights: Array) -> float:
        """That of Y over delta^2, never quite 0."""
        return max(self.second_moment(weights) - 1.0, 1e-3)

    def law(self, weights: Array, log_scale: float) -> Empirical:
        """The law of Y/delta e^log_scale under the mixture with these weights.

        For plans only: masses of weighted values are rounded, and what is missing to the number of samples is at 0.
        """
        mixed = np.maximum(self._ratios @ weights, 1e-300)
        with np.errstate(divide="ignore"):
            values = np.exp(np.minimum(np.log(self._y) - np.log(mixed) + log_scale, 0.0))
        grid = points()
        cell = np.clip(np.searchsorted(grid, values, side="right") - 1, 0, POINTS - 2)
        share = (values - grid[cell]) / (grid[cell + 1] - grid[cell])
        low, high = (
            np.bincount(at, part, POINTS)
            for at, part in ((cell, mixed * (1.0 - share)), (cell + 1, mixed * share))
        )
        found = np.asarray(low + high, np.float64)
        found = found * min(1.0, self._samples / max(float(found.sum()), 1e-300))
        masses = [int(mass) for mass in np.floor(found * UNIT * (1.0 - 1e-12)).tolist()]
        masses[0] += self._samples * UNIT - sum(masses)
        return Empirical(tuple(masses))


def worthwhile(weights: Array, last: bool) -> list[int]:
    """The components to go on with besides the first, the heaviest first."""
    least, most = (_LEAST_LAST, _MOST) if last else (_LEAST_WEIGHT, 2 * _MOST)
    return [k for k in np.argsort(-weights).tolist() if k != 0 and weights[k] > least][:most]


def rounded_weights(weights: Array) -> Array:
    """Whole multiples of 1/1024 that add up to 1; the first stays positive.

    So that round-off in a pilot's sums does not reach the result.
    """
    parts = np.floor(weights / weights.sum() * _UNITS)
    parts[0] = max(parts[0], 1.0)
    parts[int(np.argmax(parts))] += _UNITS - parts.sum()
    return np.asarray(parts / _UNITS)


Part: TypeAlias = "tuple[float, int]"
"""(ln c, a): P/R <= c e^{-(a-1) L}; a = 1 for P."""

_FINE = 16
"""*Speed*: points per cell of a curve."""


@dataclass(frozen=True)
class HockeyStick:
    """(1 - e^{epsilon - L})_+"""

    epsilon: float

    def log_values(self, losses: Array) -> Array:
        """ln of the values; -inf for 0."""
        over = losses > self.epsilon
        found = np.full(losses.shape, -math.inf)
        found[over] = np.log(-np.expm1(np.minimum(self.epsilon - losses[over], -1e-300)))
        return found

    def log_bound(self, parts: Sequence[Part]) -> float:
        """ln of what P/R times the value is at most: the least over the parts of the largest value, at e^{epsilon - L} = 1 - 1/a."""
        found = math.inf
        for log_factor, order in parts:
            peak = 0.0 if order == 1 else (order - 1) * math.log1p(-1.0 / order) - math.log(order)
            found = min(found, log_factor - (order - 1) * self.epsilon + peak)
        return found

    def is_seen(self, losses: Array, log_weights: Array) -> bool:
        """Whether samples with these ln P/R_0 are where the expectation comes from: sixteen losses above epsilon."""
        return int((losses > self.epsilon).sum()) >= 16


class Composed:
    """delta'(epsilon - L), by upper bounds of a certified curve."""

    def __init__(self, curve: Any, epsilon: float) -> None:
        self._curve, self._epsilon = curve, epsilon
        nodes = curve.epsilon[1:-1]
        steps = np.arange(_FINE) / _FINE
        fine = (nodes[:-1, np.newaxis] + np.diff(nodes)[:, np.newaxis] * steps).ravel()
        self._points = np.append(fine, nodes[-1])
        self._log_upper = self._log(self._points)

    def _log(self, x: Array) -> Array:
        _, upper = self._curve.between(x)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(upper))

    def log_values(self, losses: Array) -> Array:
        return self._log(self._epsilon - losses)

    def log_bound(self, parts: Sequence[Part]) -> float:
        """See `HockeyStick`: the largest over intervals of epsilon - L: the curve falls there, the bound on P/R rises."""
        values = np.concatenate([[0.0], self._log_upper])
        ends = np.append(self._points, math.inf)
        bound = np.full(ends.shape, math.inf)
        for log_factor, order in parts:
            rising = (order - 1) * (ends - self._epsilon) if order > 1 else np.zeros(ends.shape)
            bound = np.minimum(bound, log_factor + rising)
        total = np.where(values > -math.inf, values + bound, -math.inf)
        return float(total.max()) + 1e-12 * (1.0 + abs(float(total.max())))

    def is_seen(self, losses: Array, log_weights: Array) -> bool:
        """See `HockeyStick`: an effective number of samples of 32."""
        log_y = log_weights + self.log_values(losses)
        if not log_y.size or not log_y.max() > -math.inf:
            return False
        y = np.exp(log_y - log_y.max())
        return bool(y.sum() ** 2 >= 32.0 * np.square(y).sum())


Payoff: TypeAlias = HockeyStick | Composed
"""A function of the loss with values in [0, 1] that does not fall."""
