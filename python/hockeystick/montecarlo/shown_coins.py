"""Truncated b-min-sep sampling, with an example's coins in truncated rounds shown and all others hidden.

At most the scheme without truncation, released together with a Gaussian mechanism of noise multiplier sigma / sqrt(k) where the example is
sampled in k truncated rounds: Theorem 7b of docs/montecarlo/tilted.md, with D(x, mu) the delta of N(mu, 1) against N(0, 1) at epsilon = x.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from .._base.binomial import tail
from .._base.gdp import log_delta
from .._base.types import Array
from ..matrix.min_sep import BMinSep, TruncatedBMinSep
from .beside import CurveBeside
from .public_counts import (
    LARGE_COUNT_RISK,
    ROUND_UP,
    participation_probabilities,
    rarely_exceeded,
    untruncated,
)

_MOST = 8
"""Truncated rounds of one example that are counted one by one (*speed*)."""
_CELL, _FAR = 0.1, 5.0
"""Cells of ln P/Q in the closed form, and how far beyond epsilon they go (*speed*)."""


@dataclass(frozen=True)
class ShownCoins:
    """Of a scheme: triples (k, t_k, l_k <= 0), k = 0 first; ``rest``; ln of Pr[no participation] is ``none``.

    ``kept`` is ln of what a participation that is shown leaves of the probability that there is no other, at least.
    """

    terms: tuple[tuple[int, float, float], ...]
    rest: float
    none: float
    kept: float

    def least(self, distance: float, epsilon: float) -> float:
        """About what the sum over k >= 1 is at least: the mean of a convex function of P/Q is no less than its value at the mean."""
        return math.fsum(
            w * stick(math.sqrt(k) * distance, epsilon + shift) for k, w, shift in self.terms[1:]
        )

    def remove(self, distance: float, epsilon: float, log_spread: float) -> float:
        """The sum over k >= 1 and ``rest`` in closed form: ``distance`` is max|c_i| / sigma, ``log_spread`` ln E_Q[(P/Q - 1)^2]."""
        edges = np.arange(0.0, epsilon + _FAR, _CELL)
        total = self.rest
        for k, weight, shift in self.terms[1:]:
            # u D(epsilon - ln u) rises with u = P/Q: beyond edge i it is at most kappa_i (u - 1)^2. All in logarithms.
            far = math.sqrt(k) * distance
            values = np.array([e + math.log(stick(far, epsilon + shift - e)) for e in edges.tolist()])
            own = edges[1:]
            ratios = np.append(values[2:], edges[-1]) - 2.0 * (own + np.log1p(-np.exp(-own)))
            kappa = np.maximum.accumulate(ratios[::-1])[::-1]
            total += weight * math.exp(min(0.0, np.min(np.logaddexp(values[1:], kappa + log_spread))))
        return total * ROUND_UP

    def add(self, distance: float, epsilon: float, log_spread: float) -> float:
        """H(Q||P) where epsilon >= -none; see `remove`."""
        total = self.rest
        for k, weight, shift in self.terms[1:]:
            least = self.none + k * self.kept  # of ln P/Q, what is shown left out
            here, worst = (stick(math.sqrt(k) * distance, epsilon + x) for x in (0.0, least))
            share = 0.5 * math.exp(min(0.5 * log_spread - shift, 700.0)) / -math.expm1(least)
            total += weight * (here + min(1.0, share) * (worst - here))
        return total * ROUND_UP


class ShownCurve(CurveBeside):
    """The sum over all k as a function of epsilon - L, divided by sum t_k: an upper bound between nodes."""

    def __init__(self, shown: ShownCoins, distance: float, epsilon: float) -> None:
        whole = math.fsum(weight for _, weight, _ in shown.terms)

        def total(x: float) -> float:
            return math.fsum(w * stick(math.sqrt(k) * distance, x + shift) for k, w, shift in shown.terms)

        def bounds(x: Array) -> tuple[Array, Array]:
            above = np.array([total(at) / whole * ROUND_UP for at in x.tolist()])
            return np.zeros(len(x)), np.minimum(1.0, above)

        super().__init__(
            bounds, np.append(np.linspace(-30.0, -1.5, 58), np.arange(-1.0, epsilon + 4.0, 0.02))
        )
        self.close()
        self.log_mass = math.log(whole) + 1e-12


def stick(mu: float, epsilon: float) -> float:
    """More than the delta of N(mu, 1) against N(0, 1) at any epsilon; mu = 0: of nothing."""
    if epsilon < 0.0:
        return -math.expm1(epsilon) + math.exp(epsilon) * stick(mu, -epsilon)
    return math.exp(log_delta(max(1e-3, mu), epsilon)) * ROUND_UP + 1e-300 if mu > 0.0 else 0.0


@functools.lru_cache(maxsize=64)
def shown_coins(scheme: TruncatedBMinSep) -> ShownCoins | None:
    """The numbers of Theorem 7b; None where truncation is too frequent for it."""
    chain, n, p = untruncated(scheme), scheme.steps, scheme.sampling_probability
    b, others = min(scheme.min_sep, n), scheme.dataset_size - 1
    cold = BMinSep(n, scheme.min_sep, p, warm_start=False)
    rates, error = participation_probabilities(chain), ROUND_UP + 1e-12 * n
    least = min(rates + participation_probabilities(cold)) / error
    if not (p < 1.0 and least > 1e-3 * p):  # what is added up for `least` is off by 2u a round
        return None
    kept = b * math.log1p(-p) * ROUND_UP
    odds = p * math.exp(-kept) * ROUND_UP
    available = rarely_exceeded(others, min(1.0, max(rates) / p * error), n)
    cut = tail(available, p, scheme.max_batch_size).high
    most = rarely_exceeded(n, cut, 1)
    met = n * cut * odds
    if not (met < 0.5 and most * odds < 0.5):
        return None
    terms = []
    for k in range(min(_MOST, 1 + (n - 1) // b) + 1):
        sets = math.comb(n - max(0, k - 1) * (b - 1), k)
        shift = k * math.log(least / odds) + math.log1p(-most * odds) - 1e-9 if cut else 0.0
        terms.append((k, sets * (cut * odds) ** k * ROUND_UP, shift))
    more = 2.0 * met ** (_MOST + 1) / math.factorial(_MOST + 1)
    rest = more + (2.0 * LARGE_COUNT_RISK if cut else 0.0)
    return ShownCoins(tuple(terms), rest, chain.no_participation_log_probability(), kept)
