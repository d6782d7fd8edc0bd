"""How much rare truncation adds to delta: b-min-sep sampling with batches that are hardly ever cut down.

Given the public counts r, P_r and Q_r of Corollary D.2 (Dong and Ganesh 2026) differ from the pair without truncation only
through the truncated rounds. With K their number, delta is the mean of delta_r over r, so

    delta <= delta_0 + sum_{k=1}^{m} Pr[K >= k] beta_k + Pr[K > m],      delta >= Pr[K = 0] delta_0,

delta_0 that of `BMinSep`, beta_k >= delta_r for all r with at most k truncated rounds. All of it in closed form or
from a table; docs/tilted.md has the proofs.
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
from .tilted import orders

_MOST_CUTS = 4
_GROUPS = 16
_ROUND_UP = 1.0 + 1e-9
"""More than all relative round-off here."""


@dataclass(frozen=True)
class Reduction:
    """A truncated mechanism in terms of the one without truncation, ``base``.

    H(P||Q) lies in [``share`` * delta_0, delta_0 + ``remove``], H(Q||P) in [0, ``add``] where that of ``base`` is 0.
    """

    base: BandMF
    share: float
    remove: float
    add: float


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
def cut_probabilities(scheme: TruncatedBMinSep) -> tuple[float, ...]:
    """Upper bounds on Pr[K >= k], k = 1, ..., one more than are treated one by one.

    Others are sampled independently of each other, so the number of those sampled in round i is Binomial with
    the probability that one of them is; given the past, at most all of the others are available.
    """
    base = _base(scheme)
    others, largest = scheme.dataset_size - 1, scheme.max_batch_size
    # Equal probabilities once; others are rounded up to one of a few.
    rounds: dict[float, int] = {}
    values = participation_probabilities(base)
    top = max(values)
    for value in values:
        share = 1.0 if value == top else math.ceil(_GROUPS * value / top) / _GROUPS
        rounds[share] = rounds.get(share, 0) + 1
    once = sum(
        count * tail(others, min(1.0, top * share * _ROUND_UP), largest).high
        for share, count in rounds.items()
    )
    given = tail(others, scheme.sampling_probability, largest).high
    once = min(1.0, once * _ROUND_UP)
    return tuple(once * tail(scheme.steps, given, k).high if k else once for k in range(_MOST_CUTS + 1))


def reduction(mechanism: object, epsilon: float) -> Reduction | None:
    """The reduction at ``epsilon``, for a `BandMF` with `TruncatedBMinSep` batches; None for any other."""
    if not isinstance(mechanism, BandMF) or not isinstance(mechanism.scheme, TruncatedBMinSep):
        return None
    scheme, sigma = mechanism.scheme, mechanism.noise_multiplier
    base = BandMF(mechanism.strategy, _base(scheme), sigma)
    columns, steps, core = mechanism._described()
    if not _core.has_moment_law(columns, steps, base.scheme._core(), 2):
        return None
    chances = cut_probabilities(scheme)
    if chances[0] > 0.5:
        return Reduction(base, 0.0, 1.0, 1.0)
    logs = _core.log_moments_of_cuts(columns, steps, core, sigma, _MOST_CUTS)
    p = max(participation_probabilities(base.scheme))  # type: ignore[arg-type]
    largest = float(np.max(mechanism.strategy.column_norms())) ** 2 / sigma**2
    none = base.no_participation_log_probability
    remove = add = chances[_MOST_CUTS]
    for k in range(1, _MOST_CUTS + 1):
        # Pr[no participation in a truncated round] >= 1 - k p.
        rest = 1.0 - k * p
        above = float(logs[k]) - epsilon - math.log(4.0 * rest) if rest > 0.0 else 0.0
        remove += chances[k - 1] * math.exp(min(0.0, above))
        exponent = math.log1p((k * p) ** 2 * math.expm1(min(600.0, k * largest)))
        add += chances[k - 1] * math.exp(min(0.0, exponent - epsilon - none - math.log(4.0)))
    if epsilon < -none:
        add = 1.0
    return Reduction(base, 1.0 - chances[0], min(1.0, remove * _ROUND_UP), min(1.0, add * _ROUND_UP))


def can_tilt(mechanism: BandMF) -> bool:
    """Whether importance sampling may certify it: truncation must be rare."""
    if isinstance(mechanism.scheme, TruncatedBMinSep):
        base = BandMF(mechanism.strategy, _base(mechanism.scheme), mechanism.noise_multiplier)
        return cut_probabilities(mechanism.scheme)[0] < 1e-3 and can_tilt(base)
    return bool(orders(mechanism))


def _base(scheme: TruncatedBMinSep) -> BMinSep:
    return BMinSep(scheme.steps, scheme.min_sep, scheme.sampling_probability, scheme.warm_start)


__all__ = ["Reduction", "can_tilt", "reduction"]
