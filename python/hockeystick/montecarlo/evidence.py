"""What independent values in [0, 1] prove about their mean, by three methods.

The evidence against "the mean is at least m" is a number W with Pr[W >= w] <= e^-w, for every w, if that is
true: the logarithm of one over a p-value, known before anything else. A one-sided bound that fails with
probability at most q is the first m against which the evidence is at least ln 1/q; proofs in docs/montecarlo/means.md.

"kl"         n KL(sample mean || m): Chernoff's bound in Hoeffding's form. Uses the mean only.
"bernstein"  the empirical Bernstein bound of Maurer and Pontil 2009, Theorem 4. Profits from a low variance.
"betting"    the logarithm of the capital that fixed bets against m would have made (Waudby-Smith and Ramdas
             2024, Section 4): profits from all there is to know about the law.

>>> import numpy as np
>>> values = Empirical.of(np.linspace(0.0, 0.1, 1001))
>>> for method in METHODS:
...     lower, upper = mean_bounds(values, 1e-6, method)
...     print(f"{method:9} {lower:.3f} {upper:.3f}")
betting   0.045 0.066
bernstein 0.009 0.091
kl        0.021 0.096
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from .._base.bounds import Bounds
from .._base.types import Array
from .._base.validation import ParameterError, choice, integer, real
from .confidence import first_proven, kl
from .empirical import Empirical

METHODS = ("betting", "bernstein", "kl")

Bets: TypeAlias = "tuple[tuple[float, float], ...]"
"""(share, weight): what is staked, as a share of the largest stake that cannot lose more than there is, and how
much of the capital does so. Shares lie in (0, 1], weights are positive and sum to at most 1."""

PLANNED = 0.75
"""How much of the capital stakes what a pilot recommends; the rest is spread over the default bets (*speed*)."""

SHARES = np.concatenate([-np.expm1(-np.arange(40, 3, -1) / 4.0), np.exp(-np.arange(6, 12 * 30) / 12.0)])
"""What a plan chooses from: dense near 1, where large values are rare, and near 0 (*speed*)."""

_SLACK = 1e-12
"""More than the relative round-off of any sum of logarithms or of `kl` here (*proof*)."""

_SPREAD_RELATIVE, _SPREAD_ABSOLUTE = 2.0**-36, 2.0**-72
"""More than what spreading changes of a mean, with all roundings here: bounds are moved outwards by it (*proof*, docs/montecarlo/means.md)."""


def default_bets(samples: int, failure_probability: float) -> Bets:
    """Bets for values about which nothing is known: equal weights on shares 1, 3/4, 1/2, 1/4, ... .

    The best share against a bound that n values can prove with this failure probability q is at least of the
    order of ln(1/q)/n, where the list ends; the best of the list makes at least 8/9 of what it makes.
    """
    samples = integer("samples", samples, 1)
    failure = real("failure_probability", failure_probability, 0.0, 1.0, open_low=True)
    least = max(2.0**-40, min(0.5, math.log(1.0 / failure) / samples))
    shares = [1.0, 0.75, 0.5]
    while shares[-1] > least:
        shares.append(0.5 * shares[-1])
    return tuple((share, 1.0 / len(shares)) for share in shares)


def insured(share: float, samples: int, failure_probability: float) -> Bets:
    """A planned share, and the default bets for the case that the plan is bad."""
    rest = default_bets(samples, failure_probability)
    return ((share, PLANNED), *((other, weight * (1.0 - PLANNED)) for other, weight in rest))


def plan_bets(pilot: Empirical, samples: int, failure_probability: float, side: str = "below") -> Bets:
    """Bets for an `upper_bound` (``side="below"``) or a `lower_bound` ("above") from so many values like the pilot's.

    The pilot's values must be independent of those that the bets are for; nothing else rests on them. The share
    is the one that proves the bound nearest to the mean.
    """
    samples = integer("samples", samples, 1)
    failure = real("failure_probability", failure_probability, 0.0, 1.0, open_low=True)
    below = choice("side", side, ("below", "above")) == "below"
    if not pilot.count:
        return default_bets(samples, failure)
    points, weights = pilot.atoms()
    needed = (math.log(1.0 / failure) - math.log(PLANNED)) * pilot.count / samples

    def gains(mean: float) -> Array:
        excess = (mean - points) / (1.0 - mean) if below else (points - mean) / mean
        found: Array = np.log1p(np.multiply.outer(SHARES, excess)) @ weights
        return found

    end = 1.0 - 1e-12 if below else 2.0**-70
    start = min(max(_mean(pilot), 2.0**-69), 1.0 - 2e-12)
    bound = first_proven(lambda m: float(gains(m).max()) >= needed, start, end, 1e-4, _SPREAD_ABSOLUTE)
    return insured(float(SHARES[gains(bound).argmax()]), samples, failure)


def evidence_below(seen: Empirical, mean: float, method: str = "betting", bets: Bets | None = None) -> float:
    """A lower bound on the evidence against "the expectation is at least ``mean``"; at least 0.

    ``bets`` (for "betting") must have been fixed before any of the values was seen, and so must the method
    and the number of values. None: `default_bets` for a failure probability of 1e-6.
    """
    return _evidence(seen, mean, method, bets, 1.0)


def evidence_above(seen: Empirical, mean: float, method: str = "betting", bets: Bets | None = None) -> float:
    """A lower bound on the evidence against "the expectation is at most ``mean``"; see `evidence_below`."""
    return _evidence(seen, mean, method, bets, -1.0)


def _evidence(seen: Empirical, mean: float, method: str, bets: Bets | None, sign: float) -> float:
    """``sign`` 1: against an expectation of at least ``mean``; -1: of at most that."""
    choice("method", method, METHODS)
    mean = real("mean", mean, 0.0, 1.0)
    mean = mean * (1.0 - sign * _SPREAD_RELATIVE) - sign * _SPREAD_ABSOLUTE
    count, below = seen.count, sign > 0.0
    if not count or not (mean if below else 1.0 - mean) > 0.0:
        return 0.0
    if method == "betting":
        points, weights = seen.atoms()
        room, ends = (1.0 - mean, 1.0 - points) if below else (mean, points)
        return _capital(ends / room, sign * (mean - points) / room, weights, count, bets)
    found = math.nextafter(seen.mean, 1.0 if below else 0.0)
    gap = sign * (mean - found)
    if not gap > 0.0:
        return 0.0
    return count * kl(found, mean) * (1.0 - _SLACK) if method == "kl" else _bernstein(seen, gap)


def _capital(ratio: Array, excess: Array, weights: Array, count: int, bets: Bets | None) -> float:
    """A lower bound on ln of the sum over bets of weight * prod (1 + share * excess); ratio = 1 + excess >= 0."""
    bets = default_bets(count, 1e-6) if bets is None else checked_bets(bets)
    shares = np.array([share for share, _ in bets])[:, np.newaxis]
    changes = shares * excess
    near = np.abs(changes) < 0.5
    # 1 + change from terms of one sign where it may be near 0; ln 0 is the end of a bet.
    with np.errstate(divide="ignore"):
        far = np.log(np.where(near, 1.0, (1.0 - shares) + shares * ratio))
    terms = np.where(near, np.log1p(np.where(near, changes, 0.0)), far)
    with np.errstate(invalid="ignore"):
        totals = terms @ weights - _SLACK * (np.abs(terms) @ weights)
    staked = zip(totals.tolist(), bets, strict=True)
    logs = [total + math.log(weight) for total, (_, weight) in staked if total > -math.inf]
    if not logs:
        return 0.0
    top: float = max(logs)
    found = top + math.log(math.fsum(math.exp(value - top) for value in logs))
    return float(max(0.0, found - _SLACK * abs(found) - 1e-12))


def checked_bets(bets: Sequence[tuple[float, float]]) -> Bets:
    """The bets, if their shares and weights are in range."""
    for share, weight in bets:
        real("share", share, 0.0, 1.0, open_low=True)
        real("weight", weight, 0.0, 1.0, open_low=True)
    if not bets or math.fsum(weight for _, weight in bets) > 1.0 + 1e-12:
        raise ParameterError("bets: must be some, and their weights sum to at most 1")
    return tuple(bets)


def _bernstein(seen: Empirical, gap: float) -> float:
    """ln(1/q) of the q at which sqrt(2 V ln(2/q) / n) + 7 ln(2/q) / (3 (n - 1)) is the gap."""
    count = seen.count
    if count < 2:
        return 0.0
    gap *= 1.0 - _SLACK
    linear, root = 7.0 / (3.0 * (count - 1)), math.sqrt(2.0 * seen.variance / count)
    # a s^2 + b s = gap with s the square root of ln(2/q), without cancellation.
    s = 2.0 * gap / (root + math.sqrt(root * root + 4.0 * linear * gap))
    return max(0.0, s * s * (1.0 - _SLACK) - math.log(2.0))


def upper_bound(
    seen: Empirical, failure_probability: float, method: str = "betting", bets: Bets | None = None
) -> float:
    """What the expectation of values in [0, 1] exceeds with probability at most ``failure_probability``.

    Number of values, method and bets must be fixed beforehand.
    """
    return _bound(evidence_below, 1.0, seen, failure_probability, method, bets)


def lower_bound(
    seen: Empirical, failure_probability: float, method: str = "betting", bets: Bets | None = None
) -> float:
    """What the expectation falls below with probability at most ``failure_probability``; see `upper_bound`."""
    return _bound(evidence_above, 0.0, seen, failure_probability, method, bets)


def mean_bounds(
    seen: Empirical, failure_probability: float, method: str = "betting", pilot: Empirical | None = None
) -> Bounds:
    """Both, each with half of ``failure_probability``: they enclose the expectation but for that.

    ``pilot``: values of other random streams, that `plan_bets` may look at.
    """
    half = 0.5 * real("failure_probability", failure_probability, 0.0, 1.0, open_low=True)
    above = below = None
    if pilot is not None and method == "betting" and seen.count:
        above, below = (plan_bets(pilot, seen.count, half, side) for side in ("above", "below"))
    return Bounds(lower_bound(seen, half, method, above), upper_bound(seen, half, method, below))


def _bound(
    evidence: Callable[[Empirical, float, str, Bets], float],
    end: float,
    seen: Empirical,
    failure: float,
    method: str,
    bets: Bets | None,
) -> float:
    """The first mean on the way to ``end`` against which there is enough evidence."""
    failure = real("failure_probability", failure, 0.0, 1.0, open_low=True)
    stakes = default_bets(max(1, seen.count), failure) if bets is None else bets
    needed = math.log(1.0 / failure) * (1.0 + _SLACK)
    # Below the grid's resolution nothing is proven.
    return first_proven(
        lambda m: evidence(seen, m, method, stakes) >= needed, _mean(seen), end, _SLACK, _SPREAD_ABSOLUTE
    )


def _mean(seen: Empirical) -> float:
    return seen.mean if seen.count else 0.5
