"""How much rare truncation adds to delta: b-min-sep sampling with batches that are hardly ever cut down.

Given the public counts r, P_r and Q_r of Corollary D.2 (Dong and Ganesh 2026) differ from the pair without truncation, of
divergence delta_0, only in what the example does in truncated rounds. With K their number and b_r the probability that
the example is sampled in one of them,

    delta_r <= delta_0 + b_r (1 + g),      E[b_r] <= sum_i rho_i Pr[round i is truncated],

rho_i the probability that it is sampled in round i, g small where the loss hardly ever exceeds epsilon. For each number of
truncated rounds, a bound by Renyi divergence may be better. All of it in closed form or from a table; docs/tilted.md
has the proofs.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from . import _core
from .bandmf import BandMF
from .binomial import tail
from .sampling import BMinSep, TruncatedBMinSep
from .tilted import log_moment, orders

_MOST_CUTS = 4
"""Numbers of truncated rounds that are bounded one by one."""
_MOST_MET = (2, 4, 8, 16, 64, 256)
_GROUPS = 16
_ROUND_UP = 1.0 + 1e-9
"""More than all relative round-off here."""


@dataclass(frozen=True)
class Reduction:
    """A truncated mechanism in terms of the one without truncation, ``base``.

    H(P||Q) lies in [``share`` * H_0, H_0 + ``remove``], H_0 that of ``base``; H(Q||P) likewise with ``add``, and
    ``known_add`` is what it is at most: ``add`` where that of ``base`` is 0, otherwise 1.
    """

    base: BandMF
    share: float
    remove: float
    add: float
    known_add: float


def participation_probabilities(scheme: BMinSep) -> list[float]:
    """Pr[an example is sampled in round i], i = 1, ..., steps."""
    p, b = scheme.sampling_probability, scheme.min_sep
    if scheme.warm_start:
        return [scheme.participation_rate] * scheme.steps
    found: list[float] = []
    available = 1.0
    for i in range(scheme.steps):
        if i:
            available -= found[-1]
        if i >= b:
            available += found[i - b]
        found.append(p * min(1.0, max(available, 0.0)) if i >= b else p * (1.0 - p) ** i)
    return found


@functools.lru_cache(maxsize=64)
def _chances(scheme: TruncatedBMinSep) -> tuple[float, float, float]:
    """Upper bounds on E[K], on E[b_r], and on the probability that a round is truncated, whatever came before.

    Others are sampled independently of each other, so the number of those sampled in round i is Binomial with
    the probability that one of them is; given the past, at most all of the others are available.
    """
    others, largest = scheme.dataset_size - 1, scheme.max_batch_size
    # Equal probabilities once; others are rounded up to one of a few.
    rounds: dict[float, int] = {}
    values = participation_probabilities(_base(scheme))
    top = max(values)
    for value in values:
        share = 1.0 if value == top else math.ceil(_GROUPS * value / top) / _GROUPS
        rounds[share] = rounds.get(share, 0) + 1
    cuts = met = 0.0
    for share, count in rounds.items():
        rho = min(1.0, top * share * _ROUND_UP)
        expected = count * tail(others, rho, largest).high
        cuts += expected
        met += rho * expected
    given = tail(others, scheme.sampling_probability, largest).high
    return cuts * _ROUND_UP, met * _ROUND_UP, given


def cut_probability(scheme: TruncatedBMinSep, k: int) -> float:
    """An upper bound on Pr[K >= k], k >= 1."""
    once, _, given = _chances(scheme)
    once = min(1.0, once)
    return once * tail(scheme.steps, given, k - 1).high if k > 1 else once


def meeting_cuts(scheme: TruncatedBMinSep) -> float:
    """An upper bound on E[b_r]: the probability that the example is sampled in a truncated round, surviving or not."""
    return min(1.0, _chances(scheme)[1])


def reduction(mechanism: object, epsilon: float) -> Reduction | None:
    """The reduction at ``epsilon``, for a `BandMF` with `TruncatedBMinSep` batches; None for any other."""
    if not isinstance(mechanism, BandMF) or not isinstance(mechanism.scheme, TruncatedBMinSep):
        return None
    scheme = mechanism.scheme
    base = BandMF(mechanism.strategy, _base(scheme), mechanism.noise_multiplier)
    if not orders(base):
        return None
    met, cut = meeting_cuts(scheme), cut_probability(scheme, 1)
    none = base.no_participation_log_probability
    zero = epsilon >= -none
    remove = add = 1.0
    if met < 1.0:
        # Theorem 7 for all r, by the largest b_r: that of any participation, or that of a few truncated rounds.
        rho = max(participation_probabilities(_base(scheme)))
        moments = {a: log_moment(base, a) for a in orders(base)}
        remove = (1.0 + _beyond(moments, epsilon, -math.expm1(none))) * met
        for m in _MOST_MET:
            rest = (1.0 + _beyond(moments, epsilon, m * rho)) * met + cut_probability(scheme, m + 1)
            remove = min(remove, rest)
        add = met if zero else (1.0 + math.exp(min(epsilon, 700.0))) * met
        # The moment with one truncated round is at least this; the table takes seconds.
        peak = 4.0 * float(np.max(mechanism.strategy.column_norms())) ** 2 / mechanism.noise_multiplier**2
        kept = scheme.max_batch_size / (scheme.max_batch_size + 1)
        least = max(min(moments.values()), 2.0 * math.log(rho * kept) + peak)
        if least - epsilon - math.log(4.0) < math.log(0.5 * rho):
            above, below = _by_moments(mechanism, base, epsilon, moments)
            remove, add = min(remove, above), min(add, below) if zero else add
    remove, add = min(1.0, remove * _ROUND_UP), min(1.0, add * _ROUND_UP)
    return Reduction(base, max(0.0, 1.0 - cut), remove, add, add if zero else 1.0)


def _beyond(moments: dict[int, float], epsilon: float, share: float) -> float:
    """g of Theorem 7 for b_r <= share: what the part of b_r in e^epsilon Q costs."""
    if not share < 1.0:
        return math.inf
    rest = math.log1p(-share)
    logs = [moment - (a - 1) * epsilon - a * rest for a, moment in moments.items()]
    return math.exp(min(-rest, *logs))


def _by_moments(
    mechanism: BandMF, base: BandMF, epsilon: float, moments: dict[int, float]
) -> tuple[float, float]:
    """What truncation adds to H(P||Q), and to H(Q||P) for epsilon >= -ln p_none: the better of two bounds for each K."""
    scheme, sigma = mechanism.scheme, mechanism.noise_multiplier
    assert isinstance(scheme, TruncatedBMinSep)
    columns, steps, core = mechanism._described()
    logs = _core.log_moments_of_cuts(columns, steps, core, sigma, _MOST_CUTS)
    rho = max(participation_probabilities(_base(scheme)))
    largest = float(np.max(mechanism.strategy.column_norms())) ** 2 / sigma**2
    none = base.no_participation_log_probability
    remove = add = cut_probability(scheme, _MOST_CUTS + 1)
    for k in range(1, _MOST_CUTS + 1):
        # Pr[no participation in a truncated round] >= 1 - k rho.
        rest, chance = 1.0 - k * rho, cut_probability(scheme, k)
        above = float(logs[k]) - epsilon - math.log(4.0 * rest) if rest > 0.0 else 0.0
        remove += chance * min(
            1.0, math.exp(min(0.0, above)), k * rho * (1.0 + _beyond(moments, epsilon, k * rho))
        )
        exponent = math.log1p((k * rho) ** 2 * math.expm1(min(600.0, k * largest)))
        add += chance * min(math.exp(min(0.0, exponent - epsilon - none - math.log(4.0))), k * rho)
    return remove, add


def can_tilt(mechanism: BandMF, delta: float = 1.0) -> bool:
    """Whether importance sampling may certify ``delta``: truncation must not add more than that, or half of it."""
    if isinstance(mechanism.scheme, TruncatedBMinSep):
        base = BandMF(mechanism.strategy, _base(mechanism.scheme), mechanism.noise_multiplier)
        return meeting_cuts(mechanism.scheme) < 0.5 * delta and can_tilt(base)
    return bool(orders(mechanism))


def _base(scheme: TruncatedBMinSep) -> BMinSep:
    return BMinSep(scheme.steps, scheme.min_sep, scheme.sampling_probability, scheme.warm_start)


__all__ = ["Reduction", "can_tilt", "reduction"]
