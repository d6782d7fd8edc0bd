"""The public counts of truncated b-min-sep sampling: how often rounds are truncated, and how large counts get.

Others are sampled independently of each other, so the number of those sampled in round i is Binomial with
the probability that one of them is; given the past, at most all of the others are available.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_left

import numpy as np

from .._base.binomial import tail
from ..matrix.min_sep import BMinSep, TruncatedBMinSep

_GROUPS, _MOST_PARTICIPATIONS, _MOST_STEPS = 16, 256, 2**17
"""Different probabilities of rounds, and the size of a table; what is beyond is bounded (*speed*)."""
ROUND_UP = 1.0 + 1e-9
"""More than all relative round-off here (*proof*)."""

LARGE_COUNT_RISK = 1e-30
"""An upper bound on the probability of a count above `largest_count`, which is added to delta (*proof*, docs/montecarlo/tilted.md, section 8)."""


def untruncated(scheme: TruncatedBMinSep) -> BMinSep:
    """The same scheme without a largest batch size."""
    return BMinSep(scheme.steps, scheme.min_sep, scheme.sampling_probability, scheme.warm_start)


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
def participation_counts(scheme: BMinSep) -> tuple[tuple[int, float], ...]:
    """Pairs (j, an upper bound on Pr[an example takes part j times]), the last for all larger numbers as well.

    The j of the last pair is the largest number that is possible.
    """
    p, b, n = scheme.sampling_probability, min(scheme.min_sep, scheme.steps), scheme.steps
    largest = -(-n // b)
    if n > _MOST_STEPS:
        return ((largest, 1.0),)
    most = min(largest, _MOST_PARTICIPATIONS)
    # From iteration i on, if available in i: row i mod (b + 1) of the last b + 1. The last column is "so many or more".
    table = np.zeros((b + 1, most + 1))
    table[:, 0] = 1.0
    for i in range(n - 1, -1, -1):
        later = table[(i + b) % (b + 1)]
        now = (1.0 - p) * table[(i + 1) % (b + 1)]
        now[1:] += p * later[:-1]
        now[-1] += p * later[-1]
        table[i % (b + 1)] = now
    found = table[0]
    if scheme.warm_start:
        available = 1.0 / (1.0 + (scheme.min_sep - 1) * p)
        found = available * (table[0] + p * table[1:b].sum(axis=0))
        found[0] += available * p * (scheme.min_sep - b)
    chances = (found * ROUND_UP).tolist()
    return tuple((j if j < most else largest, chance) for j, chance in enumerate(chances))


@functools.lru_cache(maxsize=64)
def _chances(scheme: TruncatedBMinSep) -> tuple[float, float, float]:
    """Upper bounds on E[K], on E[b_r], and on the probability that a round is truncated, whatever came before."""
    others, largest = scheme.dataset_size - 1, scheme.max_batch_size
    # Equal probabilities once; others are rounded up to one of a few.
    rounds: dict[float, int] = {}
    values = participation_probabilities(untruncated(scheme))
    top = max(values)
    for value in values:
        share = 1.0 if value == top else math.ceil(_GROUPS * value / top) / _GROUPS
        rounds[share] = rounds.get(share, 0) + 1
    cuts = met = 0.0
    for share, count in rounds.items():
        rho = min(1.0, top * share * ROUND_UP)
        expected = count * tail(others, rho, largest).high
        cuts += expected
        met += rho * expected
    given = tail(others, scheme.sampling_probability, largest).high
    return cuts * ROUND_UP, met * ROUND_UP, given


def cut_probability(scheme: TruncatedBMinSep, k: int) -> float:
    """An upper bound on Pr[K >= k], k >= 1."""
    once, _, given = _chances(scheme)
    once = min(1.0, once)
    return once * tail(scheme.steps, given, k - 1).high if k > 1 else once


def meeting_cuts(scheme: TruncatedBMinSep) -> float:
    """An upper bound on E[b_r]: the probability that the example is sampled in a truncated round, surviving or not."""
    return min(1.0, _chances(scheme)[1])


@functools.lru_cache(maxsize=64)
def largest_count(scheme: TruncatedBMinSep) -> int:
    """A number of others that is exceeded in any round with probability at most `LARGE_COUNT_RISK`."""
    rho = max(participation_probabilities(untruncated(scheme)))
    return max(rarely_exceeded(scheme.dataset_size - 1, min(1.0, rho * ROUND_UP), scheme.steps), 1)


def rarely_exceeded(trials: int, probability: float, times: int) -> int:
    """A number that one of so many binomial counts exceeds with probability at most `LARGE_COUNT_RISK`."""

    def is_rare(count: int) -> bool:
        return times * tail(trials, probability, count + 1).high <= LARGE_COUNT_RISK

    return bisect_left(range(trials), True, key=is_rare)
