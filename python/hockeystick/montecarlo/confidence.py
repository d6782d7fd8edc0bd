"""What a mean of independent values in [0, bound] proves about their expectation, and how many are needed.

Everything rests on Chernoff's bound in Hoeffding's form: if the expectation is p, the mean of s such
values is at most q < p with probability at most exp(-s KL(q || p)), and likewise above (docs/montecarlo/means.md, "Chernoff's bound").

>>> plan = plan_verification(target_delta=1e-3)
>>> plan.samples, plan.threshold
(75013, 0.0005)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from .._base.bounds import Bounds, round_up
from .._base.search import first_holding
from .._base.validation import MAX_COUNT, ParameterError, ParameterTypeError, integer, real

_LEAST_FAILURE = 2.0**-50
"""The least failure probability of which half is still told from 0 in 1 - q (*proof*)."""
_SLACK = 1e-12
"""More than the relative round-off of `kl` and of a product with it (*proof*)."""


def kl(q: float, p: float) -> float:
    """KL divergence of Bernoulli(``q``) from Bernoulli(``p``), both in [0, 1], to nearly full precision.

    q ln(q/p) + (1 - q) ln((1 - q)/(1 - p)), written as a sum of two non-negative terms.

    >>> kl(0.0, 1.0), kl(0.25, 0.25)
    (inf, 0.0)
    """
    q, p = real("q", q, 0.0, 1.0), real("p", p, 0.0, 1.0)
    if q == p:
        return 0.0
    if p in (0.0, 1.0):
        return math.inf
    return p * _excess((q - p) / p) + (1.0 - p) * _excess((p - q) / (1.0 - p))


def _excess(t: float) -> float:
    """(1 + t) ln(1 + t) - t for t >= -1: non-negative, and t^2 / 2 near 0."""
    if t <= -1.0:
        return 1.0
    if abs(t) > 0.05:
        return (1.0 + t) * math.log1p(t) - t
    total, power = 0.0, t * t
    for k in range(2, 14):
        total += power / (k * (k - 1))
        power *= -t
    return total


def checked_confidence(value: float, *, open_low: bool = True) -> float:
    """Return ``value`` if it is a confidence: in (0, 1 - 2^-50], so that its share of each side is still below 1."""
    value = real("confidence", value, 0.0, 1.0, open_low=open_low, open_high=True)
    if value > 1.0 - _LEAST_FAILURE:
        raise ParameterError(f"confidence = {value!r}: must be a number in (0, 1 - 2^-50]")
    return value


def shared_confidence(confidence: float, parts: int) -> float:
    """The confidence of each of ``parts`` intervals that hold together with this ``confidence``; never less than that.

    ParameterError where a double does not hold it.
    """
    share = 1.0 - (1.0 - confidence) / parts
    if parts * (1.0 - share) > 1.0 - confidence:
        share = math.nextafter(share, 1.0)
    if share > 1.0 - _LEAST_FAILURE:
        raise ParameterError(
            f"confidence = {confidence!r}: must be at most 1 - {parts} * 2^-50, as {parts} intervals share it"
        )
    return share


def mean_interval(mean: float, samples: int, confidence: float, bound: float = 1.0) -> Bounds:
    """A two-sided confidence interval for the expectation of independent values in [0, ``bound``].

    ``mean`` is that of ``samples`` values, their number fixed before any was seen. Guarantee: each
    side fails with probability at most (1 - ``confidence``) / 2, for every distribution. A mean that
    is nan proves nothing: the interval is all of [0, ``bound``].

    >>> lower, upper = mean_interval(0.0, samples=1000, confidence=0.99)
    >>> lower, 0.0052 < upper < 0.0053
    (0.0, True)
    """
    samples = integer("samples", samples, 1)
    confidence = checked_confidence(confidence, open_low=False)
    bound = real("bound", bound, 0.0)
    given: object = mean
    if isinstance(given, float) and math.isnan(given):
        return Bounds(0.0, bound)
    mean = real("mean", mean, 0.0, bound * (1.0 + _SLACK))
    if bound == 0.0:
        return Bounds(0.0, 0.0)
    share = min(mean / bound, 1.0)
    needed = math.log(2.0 / (1.0 - confidence)) / samples * (1.0 + _SLACK)
    above, below = (first_holding(lambda p: kl(share, p) >= needed, share, end) for end in (1.0, 0.0))
    return Bounds(below * bound * (1.0 - _SLACK), min(bound, above * bound * (1.0 + _SLACK)))


@dataclass(frozen=True)
class VerificationPlan:
    """A Monte Carlo verifier and what it proves; made by `plan_verification`.

    The verifier draws ``samples`` values and accepts if their mean is at most ``threshold``. A mechanism
    whose delta exceeds ``tested_delta`` is accepted with probability at most ``failure_probability``
    (Chua et al. 2024, Fact 4.2), and with both in one statement, the release of whatever Algorithm 5
    chooses has delta at most ``target_delta`` >= tested_delta + failure_probability * (1 - tested_delta)
    (Dong and Ganesh 2026, Theorem A.1).
    """

    target_delta: float
    threshold: float
    samples: int
    tested_delta: float
    failure_probability: float

    def explained(self) -> str:
        """What the verifier does, and how rarely it is wrong."""
        return (
            f"The verifier accepts a noise multiplier if the mean of at least {self.samples} Monte Carlo samples is at "
            f"most {self.threshold!r}, in each direction; if delta exceeds {round_up(self.tested_delta)} it does "
            f"so with probability at most {round_up(self.failure_probability)} (Chua et al. 2024, Fact 4.2). "
            "Both together are at most the stated delta."
        )


def plan_verification(
    target_delta: float | None = None, threshold: float | None = None, samples: int | None = None
) -> VerificationPlan:
    """Complete a verifier: of target delta, threshold and number of samples, any two give the third.

    The target is the smallest that is provable, the threshold the largest that suffices, the number of
    samples the smallest that suffices, rounded up. With ``target_delta`` alone, the threshold is half of
    it (the paper's choice). 0 <= threshold < target_delta < 1. Raises ParameterError if so few samples
    cannot prove anything, or if more than 2^53 are needed.

    >>> plan_verification(target_delta=1e-5).samples
    10745967
    >>> plan = plan_verification(threshold=5e-4, samples=75_013)
    >>> 9.99e-4 < plan.target_delta <= 1e-3
    True
    """
    if target_delta is not None:
        target_delta = real("target_delta", target_delta, 0.0, 1.0, open_low=True, open_high=True)
    if threshold is not None:
        threshold = real("threshold", threshold, 0.0, 1.0, open_high=True)
    if samples is not None:
        samples = integer("samples", samples, 1)
    if target_delta is None:
        if threshold is None or samples is None:
            raise ParameterTypeError("target_delta, threshold, samples: two of the three must be given")
        return _plan(threshold, samples)
    if threshold is not None and samples is not None:
        raise ParameterTypeError("target_delta, threshold, samples: one of the three must be left out")
    if samples is not None:
        return _largest_threshold(target_delta, samples)
    if threshold is None:
        threshold = 0.5 * target_delta
    if not threshold < target_delta:
        raise ParameterError(f"threshold = {threshold!r}: must be below target_delta = {target_delta!r}")
    return _fewest_samples(target_delta, threshold)


def _failure(threshold: float, tested: float, samples: int) -> float:
    """An upper bound on Pr[mean <= threshold] if the expectation is above ``tested``."""
    if not threshold < tested:
        return 1.0
    return min(1.0, math.exp(-samples * kl(threshold, tested) * (1.0 - _SLACK)) * (1.0 + _SLACK))


def _total(threshold: float, tested: float, samples: int) -> float:
    """delta + q (1 - delta) of Theorem A.1, rounded up."""
    failure = _failure(threshold, tested, samples)
    return min(1.0, (tested + failure * (1.0 - tested)) * (1.0 + 4e-16))


def _plan(threshold: float, samples: int) -> VerificationPlan:
    def total(x: float) -> float:
        return _total(threshold, threshold + math.exp(x) * (1.0 - threshold), samples)

    # In the logarithm of the margin, which may be small against the threshold. Far from the valley the
    # total is flat, so look for it first.
    low = math.log(max(threshold, 1.0 / samples)) - 40.0
    nodes = [low * (1.0 - k / 200.0) for k in range(201)]
    best = min(range(201), key=lambda k: total(nodes[k]))
    margin = _golden(total, nodes[max(0, best - 1)], nodes[min(200, best + 1)])
    tested = threshold + math.exp(margin) * (1.0 - threshold)
    target = _total(threshold, tested, samples)
    if not target < 1.0:
        raise ParameterError(f"samples = {samples}: too few to prove anything at threshold = {threshold!r}")
    return VerificationPlan(target, threshold, samples, tested, _failure(threshold, tested, samples))


def _fewest_samples(target: float, threshold: float) -> VerificationPlan:
    span = target - threshold

    def needed(share: float) -> float:
        tested = threshold + share * span
        rest = target - tested
        if not (rest > 0.0 and threshold < tested):
            return math.inf
        divergence = kl(threshold, tested)
        return math.log((1.0 - tested) / rest) / divergence if divergence > 0.0 else math.inf

    share = _golden(needed, 0.0, 1.0)
    count = needed(share)
    if not count <= MAX_COUNT:
        raise ParameterError(
            f"target_delta = {target!r}, threshold = {threshold!r}: needs {count:.3g} samples, more than 2^53"
        )
    samples, tested = max(1, math.ceil(count)), threshold + share * span
    while _total(threshold, tested, samples) > target:
        # Round-off in `needed`: at most a few parts in 1e12 are missing.
        samples += 1 + samples // 10**12
    return VerificationPlan(target, threshold, samples, tested, _failure(threshold, tested, samples))


def _largest_threshold(target: float, samples: int) -> VerificationPlan:
    least = _fewest_samples(target, 0.0).samples
    if samples < least:
        raise ParameterError(
            f"samples = {samples}: must be at least {least} to prove target_delta = {target!r}"
        )

    def suffices(threshold: float) -> bool:
        try:
            return _fewest_samples(target, threshold).samples <= samples
        except ParameterError:
            return False

    threshold = first_holding(suffices, target, 0.0, 2.0**-52, 2.0**-60 * target)
    found = _fewest_samples(target, threshold)
    failure = _failure(threshold, found.tested_delta, samples)
    return VerificationPlan(target, threshold, samples, found.tested_delta, failure)


def _golden(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function with one valley is smallest, by golden-section search."""
    ratio = 0.5 * (math.sqrt(5.0) - 1.0)
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(100):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = function(right)
    return left if at_left <= at_right else right
