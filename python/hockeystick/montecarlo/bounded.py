"""Weighted samples below a known bound: how they are tallied, and what they prove about delta.

What `tilted` (direction "remove") and `half_space` ("add") have in common: values Y in [0, B], B known, whose
expectation is delta. Y/B is drawn, in two versions: one whose expectation is at least that of Y/B whatever
the round-off of the losses, one whose expectation is at most that.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any

import numpy as np

from .. import _core
from .._base.arrays import Array
from .._base.bounds import Bounds
from .._base.executors import Draw
from .empirical import POINTS, UNIT, Empirical, points
from .evidence import Bets, lower_bound, plan_bets, upper_bound
from .mean_test import scaled_threshold
from .tally import EmpiricalTally, Progress, run

_UP = 1.0 + 1e-15


class Prospects:
    """What pilot samples expect of a proposal. Nothing rests on it."""

    relative_variance: float
    """Of one value, over delta^2."""
    log_delta: float
    log_bound: float
    """ln B"""
    law: Empirical | None
    """Of Y/B; None if nothing was seen."""

    @property
    def reach(self) -> float:
        """B / delta."""
        if not self.log_delta > -math.inf:
            return math.inf
        return math.exp(min(700.0, self.log_bound - self.log_delta))

    def effort(self, gap: float) -> float:
        """About how many samples, per unit of ln(1/q), bound delta to within a relative ``gap``."""
        return 2.0 * self.relative_variance / gap**2 + self.reach / gap


class BoundedValues:
    """Y/B from a fixed proposal: what to average, how to draw it, what it proves.

    Row 0 of a tally bounds delta from above, row 1 from below. Guaranteed, for the expectations m_0 and m_1 of the rows:
    what is asked for is at most e^{log_upper} (m_0 + resolution) + extra and at least e^{log_lower} (m_1 -
    resolution) share.
    """

    mechanism: Any
    proposal: Prospects
    block_size: int
    log_scale: float
    """ln B"""
    log_upper: float
    log_lower: float
    resolution: float
    extra: float = 0.0
    share: float = 1.0

    def _described(self) -> str:
        """What is drawn from, for the key of a run."""
        raise NotImplementedError

    def _draw(self, seed: int) -> Draw:
        """Draws the laws of Y/B of blocks, anywhere: it pickles."""
        raise NotImplementedError

    def tally(
        self,
        seed: int,
        first: int,
        last: int,
        key: Mapping[str, Any],
        checkpoint: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
        stop: Callable[[EmpiricalTally], bool] | None = None,
        executor: Executor | None = None,
    ) -> EmpiricalTally:
        """The laws of Y/B over blocks [first, last); ``key`` names the run."""
        key = {
            **key,
            "seed": seed,
            "proposal": self._described(),
            "log_scale": repr(self.log_scale),
            "block_size": self.block_size,
        }
        draw = self._draw(seed)
        return run(
            draw, key, 2, first, last, checkpoint, progress, stop, kind=EmpiricalTally, executor=executor
        )

    def interval(self, tally: EmpiricalTally, confidence: float) -> tuple[float, Bounds]:
        """The estimate of delta, and bounds of which each fails with probability (1 - confidence)/2 at most.

        The number of blocks must have been fixed beforehand; so are the bets, by the pilot that chose the proposal.
        """
        half = 0.5 * (1.0 - confidence)
        pilot, count = self.proposal.law, tally.law(0).count
        bets: list[Bets | None] = [None, None]
        if pilot is not None and count:
            bets = [plan_bets(pilot, count, half, side) for side in ("below", "above")]
        above = upper_bound(tally.law(0), half, "betting", bets[0])
        below = lower_bound(tally.law(1), half, "betting", bets[1])
        upper = min(1.0, (_scaled(self.log_upper, above + self.resolution, up=True) + self.extra) * _UP)
        lower = _scaled(self.log_lower, below - self.resolution, up=False) * self.share / _UP
        estimate = _scaled(self.log_scale, tally.law(0).mean, up=False)
        return min(1.0, max(lower, estimate)), Bounds(lower, upper)

    def threshold(self, tested: float) -> float:
        """What the expectation of row 0 must be below, so that delta is below ``tested``."""
        rest = (tested - self.extra) / _UP
        return scaled_threshold(rest, self.log_upper) - self.resolution if rest > 0.0 else 0.0


def spread(values: Array) -> tuple[Array, int]:
    """The empirical laws of rows of values, and how many values lie outside of [0, 1]."""
    masses, refused = [], 0
    for row in values:
        mass, wrong = _core.spread_values(row)
        masses.append(mass)
        refused += wrong
    return np.array(masses), refused


def best_weights(
    y: Array, ratios: Array, samples: int, price: float, start: Array | None = None, iterations: int = 100
) -> Array:
    """Weights of a mixture that make E Y^2 + price / weight[0] small.

    ``y`` are the values that are not 0 of so many ``samples`` of R_0, (P - e^epsilon Q)_+ / R_0 or the like, and
    ``ratios`` (values, components) the densities of the components over that of R_0 there.
    """
    count = ratios.shape[1]
    weights: Array = np.full(count, 1.0 / count) if start is None else np.maximum(start, 1e-6)
    weights = weights / weights.sum()
    if not y.size:
        return weights
    for _ in range(iterations):
        mixed = ratios @ weights
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            pull = np.square(y / mixed) @ ratios / samples
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


def second_moment(y: Array, ratios: Array, samples: int, weights: Array) -> float:
    """E Y^2 under the mixture with these weights; see `best_weights`."""
    mixed = ratios @ weights
    return float((np.square(y) / np.maximum(mixed, 1e-300)).sum() / samples)


def expected_law(y: Array, ratios: Array, samples: int, weights: Array, log_scale: float) -> Empirical:
    """The law of Y e^log_scale under the mixture with these weights, as samples of another one show it.

    For plans only: masses of weighted values are rounded, and what is missing to ``samples`` is at 0.
    """
    mixed = np.maximum(ratios @ weights, 1e-300)
    with np.errstate(divide="ignore"):
        values = np.exp(np.minimum(np.log(y) - np.log(mixed) + log_scale, 0.0))
    grid = points()
    cell = np.clip(np.searchsorted(grid, values, side="right") - 1, 0, POINTS - 2)
    share = (values - grid[cell]) / (grid[cell + 1] - grid[cell])
    low, high = (
        np.bincount(at, part, POINTS)
        for at, part in ((cell, mixed * (1.0 - share)), (cell + 1, mixed * share))
    )
    found = np.asarray(low + high, np.float64)
    found = found * min(1.0, samples / max(float(found.sum()), 1e-300))
    masses = [int(mass) for mass in np.floor(found * UNIT * (1.0 - 1e-12)).tolist()]
    masses[0] += samples * UNIT - sum(masses)
    return Empirical(tuple(masses))


def rounded_weights(weights: Array, units: int = 1024) -> Array:
    """Whole multiples of 1/``units`` that add up to 1; the first stays positive.

    So that round-off in a pilot's sums does not reach the result.
    """
    parts = np.floor(weights / weights.sum() * units)
    parts[0] = max(parts[0], 1.0)
    parts[int(np.argmax(parts))] += units - parts.sum()
    return np.asarray(parts / units)


def _scaled(log_scale: float, share: float, up: bool) -> float:
    """e^log_scale * share in [0, 1], rounded up or down."""
    if not share > 0.0:
        return 0.0
    size = log_scale + math.log(share)
    error = 1e-15 * (abs(log_scale) + abs(size) + 1000.0)
    if up:
        return 1.0 if size > -error else max(math.exp(size + error), 5e-324)
    return math.exp(min(0.0, size - error))


__all__: list[str] = []
