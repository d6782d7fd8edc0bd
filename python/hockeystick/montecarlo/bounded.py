"""Weighted samples below a known bound: how they are tallied, and what they prove about delta (docs/montecarlo/tilted.md).

What `tilted` (direction "remove") and `half_space` ("add") have in common: values Y in [0, B], B known, whose
expectation is delta. Y/B is drawn, in two versions: one whose expectation is at least that of Y/B whatever
the round-off of the losses, one whose expectation is at most that.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import _core
from .._base.arrays import Array
from .._base.bounds import Bounds
from .evidence import Bets, default_bets, lower_bound, plan_bets, upper_bound
from .mean_test import scaled_threshold
from .pilots import Prospects
from .runs import Samples
from .tally import EmpiricalTally

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
        most = upper_bound(tally.law(0), half, "betting", above)
        least = lower_bound(tally.law(1), half, "betting", below)
        upper = self._upper(most)
        lower = _scaled(self.log_lower, least - self.resolution, up=False) * self.share / _UP
        estimate = _scaled(self.log_scale, tally.law(0).mean, up=False)
        return min(1.0, max(lower, estimate)), Bounds(lower, upper)

    def evidence(self, tally: EmpiricalTally, confidence: float) -> dict[str, Any]:
        """The law of all values, and the bets that it pays."""
        half, law = 0.5 * (1.0 - confidence), tally.law(0)
        bets = self._bets(tally, confidence)[0] or default_bets(max(1, law.count), half)
        mean = upper_bound(law, half, "betting", bets)
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
