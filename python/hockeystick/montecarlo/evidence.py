"""What independent values in [0, 1] prove about their mean, by betting; and tests of a mean, planned from pilot samples.

The evidence against "the mean is at least m" is a number W with Pr[W >= w] <= e^-w, for every w, if that is
true: the logarithm of one over a p-value, known before anything else. A one-sided bound that fails with
probability at most q is the first m against which the evidence is at least ln 1/q; proofs in docs/montecarlo/means.md.

That number is the logarithm of the capital that fixed bets against m would have made (Waudby-Smith and Ramdas 2024,
Section 4), which profits from all there is to know about the law: never worse than Chernoff's bound but for what spreading
the bets costs, and narrower the less values look like 0 and 1.

A verifier of Estimate-Verify-Release (Dong and Ganesh 2026, Appendix A) accepts a candidate only if its samples are evidence against
"delta is at least ``tested``"; nothing rests on the pilot of `plan_test` but the number of samples and the chance to be accepted.

>>> import numpy as np
>>> values = Empirical.of(np.linspace(0.0, 0.1, 1001))
>>> lower, upper = mean_bounds(values, 1e-6)
>>> print(f"{lower:.3f} {upper:.3f}")
0.045 0.066
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from .._base.bounds import Bounds
from .._base.search import first_holding
from .._base.types import Array
from .._base.validation import MAX_COUNT, ParameterError, ParameterTypeError, choice, instance, integer, real
from .empirical import Empirical

Bets: TypeAlias = "tuple[tuple[float, float], ...]"
"""(share, weight): what is staked, as a share of the largest stake that cannot lose more than there is, and how
much of the capital does so. Shares lie in (0, 1], weights are positive and sum to at most 1."""

PLANNED = 0.75
"""How much of the capital stakes what a pilot recommends; the rest is spread over the default bets (*speed*)."""

SHARES = np.concatenate([-np.expm1(-np.arange(40, 3, -1) / 4.0), np.exp(-np.arange(6, 12 * 30) / 12.0)])
"""What a plan chooses from: dense near 1, where large values are rare, and near 0 (*speed*)."""

_SLACK = 1e-12
"""More than the relative round-off of any sum of logarithms here (*proof*)."""

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
    if not instance("pilot", pilot, Empirical).count:
        return default_bets(samples, failure)
    points, weights = pilot.atoms()
    needed = (math.log(1.0 / failure) - math.log(PLANNED)) * pilot.count / samples

    def gains(mean: float) -> Array:
        excess = (mean - points) / (1.0 - mean) if below else (points - mean) / mean
        found: Array = np.log1p(np.multiply.outer(SHARES, excess)) @ weights
        return found

    end = 1.0 - 1e-12 if below else 2.0**-70
    start = min(max(_mean(pilot), 2.0**-69), 1.0 - 2e-12)
    bound = first_holding(lambda m: float(gains(m).max()) >= needed, start, end, 1e-4, _SPREAD_ABSOLUTE)
    return insured(float(SHARES[gains(bound).argmax()]), samples, failure)


def evidence_against(seen: Empirical, mean: float, bets: Bets | None = None, side: str = "below") -> float:
    """A lower bound, at least 0, on the evidence against "the expectation is at least ``mean``"; for ``side="above"``, "at most".

    ``bets`` must have been fixed before any of the values was seen, and so must the number of values. None: `default_bets`
    for a failure probability of 1e-6.
    """
    mean = real("mean", mean, 0.0, 1.0)
    below = choice("side", side, ("below", "above")) == "below"
    sign = 1.0 if below else -1.0
    mean = mean * (1.0 - sign * _SPREAD_RELATIVE) - sign * _SPREAD_ABSOLUTE
    if not seen.count or not (mean if below else 1.0 - mean) > 0.0:
        return 0.0
    points, weights = seen.atoms()
    room, ends = (1.0 - mean, 1.0 - points) if below else (mean, points)
    return _capital(ends / room, sign * (mean - points) / room, weights, seen.count, bets)


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


def upper_bound(seen: Empirical, failure_probability: float, bets: Bets | None = None) -> float:
    """What the expectation of values in [0, 1] exceeds with probability at most ``failure_probability``.

    Number of values and bets must be fixed beforehand.
    """
    return _bound("below", 1.0, seen, failure_probability, bets)


def lower_bound(seen: Empirical, failure_probability: float, bets: Bets | None = None) -> float:
    """What the expectation falls below with probability at most ``failure_probability``; see `upper_bound`."""
    return _bound("above", 0.0, seen, failure_probability, bets)


def mean_bounds(seen: Empirical, failure_probability: float, pilot: Empirical | None = None) -> Bounds:
    """Both, each with half of ``failure_probability``: they enclose the expectation but for that.

    ``pilot``: values of other random streams, that `plan_bets` may look at.
    """
    half = 0.5 * real("failure_probability", failure_probability, 0.0, 1.0, open_low=True)
    instance("seen", seen, Empirical)
    above = below = None
    if pilot is not None and seen.count:
        above, below = (plan_bets(pilot, seen.count, half, side) for side in ("above", "below"))
    return Bounds(lower_bound(seen, half, above), upper_bound(seen, half, below))


def _bound(side: str, end: float, seen: Empirical, failure: float, bets: Bets | None) -> float:
    """The first mean on the way to ``end`` against which there is enough evidence."""
    failure = real("failure_probability", failure, 0.0, 1.0, open_low=True)
    stakes = default_bets(max(1, seen.count), failure) if bets is None else bets
    needed = math.log(1.0 / failure) * (1.0 + _SLACK)
    # Below the grid's resolution nothing is proven.
    return first_holding(
        lambda m: evidence_against(seen, m, stakes, side) >= needed,
        _mean(seen),
        end,
        _SLACK,
        _SPREAD_ABSOLUTE,
    )


def _mean(seen: Empirical) -> float:
    return seen.mean if seen.count else 0.5


_CAUTION, _PILOT_CAUTION = 3.0, 1.5
"""Standard deviations, of the test's and of the pilot's result, by which the plan expects bad luck (*speed*)."""


@dataclass(frozen=True)
class MeanTest:
    """Accepts if ``samples`` or more values in [0, 1] prove their expectation to be below ``tested``.

    Guarantee: if the expectation exceeds ``tested``, it accepts with probability at most
    ``failure_probability``, whatever the law of the values. Their number must not depend on them (round up
    to whole blocks). A ``tested`` of 1 is never exceeded. Made by `plan_test`.

    >>> pilot, seen = (np.random.default_rng(seed).beta(1.0, 99.0, 20_000) for seed in (0, 1))
    >>> test = plan_test(0.012, failure_probability=1e-9, pilot=Empirical.of(pilot[:10_000]))
    >>> test.samples < 20_000, test.accepts(Empirical.of(seen))
    (True, True)
    """

    tested: float
    failure_probability: float
    samples: int
    bets: Bets = ()

    def __post_init__(self) -> None:
        real("tested", self.tested, 0.0, 1.0, open_low=True)
        real("failure_probability", self.failure_probability, 0.0, 1.0, open_low=True)
        integer("samples", self.samples, 1)
        if self.bets:
            checked_bets(self.bets)

    def evidence(self, seen: Empirical) -> float:
        """A lower bound on ln 1/p."""
        return evidence_against(seen, self.tested, self.bets or None)

    def accepts(self, seen: Empirical) -> bool:
        """Whether there are enough values, and enough evidence in them."""
        return seen.count >= self.samples and self.accepts_early(seen)

    def accepts_early(self, seen: Empirical) -> bool:
        """Whether fewer values are evidence enough, which may be asked after any block.

        The values must be those of the first blocks, in the order of their numbers, nothing left out and nothing
        drawn ahead: then the capital is a martingale, and Ville's inequality makes one failure probability
        good for all the times it is asked, and for `accepts` at the end.
        """
        # Written so that nan rejects.
        needed = math.log(1.0 / self.failure_probability) * (1.0 + 1e-12)
        return self.tested == 1.0 or bool(self.evidence(seen) >= needed)

    def looks(self, block_size: int) -> tuple[int, ...]:
        """After how many blocks to ask: the last is the number of blocks of the whole test.

        Fixed beforehand, so that the verdict does not depend on the clock: steps of about an eighth make a test as short
        as its luck allows.
        """
        last = -(-self.samples // integer("block_size", block_size, 1))
        return tuple(sorted({max(1, math.ceil(last * 1.125**-k)) for k in range(24)}))


def scaled_threshold(target: float, log_bound: float) -> float:
    """``target`` / e^``log_bound``, rounded down and at most 1: what `plan_test` takes as ``tested``.

    Values in [0, e^log_bound] are divided by their bound, whose logarithm may be far below -700.
    At 1, nothing needs to be tested: the bound itself is small enough. At 0 (for less than 1e-300) no number
    of samples would do.
    """
    target = real("target", target, 0.0, open_low=True)
    log_bound = real("log_bound", log_bound)
    log_share = math.log(target) - log_bound
    found = math.exp(min(0.0, log_share - 1e-15 * (abs(log_share) + abs(log_bound) + 1000.0)))
    return found if found >= 1e-300 else 0.0


def divide_target(target: float, share: float = 1.0 / 32.0, probes: int = 1) -> tuple[float, float]:
    """What to test, and how surely, so that the whole procedure keeps within delta = ``target``.

    Returns (tested, q) with tested + probes q (1 - tested) <= target (Theorem A.1 of Dong and Ganesh 2026); q takes
    ``share`` of the target. ``probes`` is 1 for candidates in order of their noise of which the last one before the
    first rejection is released, however many they are: the one that must be rejected and is nearest to being
    good stands in the way of all the others. Otherwise it is the largest number of verdicts asked for.

    >>> tested, failure = divide_target(1e-5, share=0.25)
    >>> round(tested, 12), round(failure, 12)
    (7.5e-06, 2.5e-06)
    """
    target = real("target", target, 0.0, 1.0, open_low=True, open_high=True)
    share = real("share", share, 0.0, 1.0, open_low=True, open_high=True)
    probes = integer("probes", probes, 1)
    tested = target * (1.0 - share)
    return tested, math.nextafter((target - tested) / probes * (1.0 - 1e-15), 0.0)


@dataclass(frozen=True)
class _Law:
    """What a pilot believes the values to be."""

    points: Array
    weights: Array
    samples: float


def plan_test(
    tested: float,
    failure_probability: float,
    *,
    pilot: Empirical | None = None,
    mean: float | None = None,
    variance: float | None = None,
) -> MeanTest:
    """Plan the test of "the expectation of values in [0, 1] exceeds ``tested``" that needs the fewest samples.

    The pilot's knowledge is the law of its values (``pilot``, the better), or their ``mean`` and ``variance``: then
    the least favourable law that has them is expected, with values at 1 (Bennett 1962). The number of samples
    is such that the test still accepts when it is three standard deviations unlucky, and the pilot one and a half.
    Raises ParameterError where the pilot suggests that no test would accept, or that it takes more than 2^53 samples.

    >>> round(plan_test(2e-3, 1e-9, mean=1e-3, variance=1e-6).samples, -3)
    23000
    """
    tested = real("tested", tested, 0.0, 1.0, open_low=True)
    failure = real("failure_probability", failure_probability, 0.0, 1.0, open_low=True, open_high=True)
    law = _pilot_law(pilot, mean, variance)
    samples, bets = _betting_samples(law, tested, math.log(1.0 / failure))
    if not samples <= MAX_COUNT:
        raise ParameterError(
            f"tested = {tested!r}: a mean of about {float(law.points @ law.weights):.3g}, as the pilot suggests, needs "
            f"more than 2^53 samples"
        )
    return MeanTest(tested, failure, math.ceil(samples), bets)


def _pilot_law(pilot: Empirical | None, mean: float | None, variance: float | None) -> _Law:
    if pilot is not None:
        if mean is not None or variance is not None or not instance("pilot", pilot, Empirical).count:
            raise ParameterTypeError("pilot: must have values, and mean and variance must be left out")
        points, weights = pilot.atoms()
        return _Law(points, weights / pilot.count, pilot.count)
    if mean is None or variance is None:
        raise ParameterTypeError("pilot, or mean and variance, must be given")
    mean = real("mean", mean, 0.0, 1.0, open_high=True)
    variance = real("variance", variance, 0.0, mean * (1.0 - mean) * (1.0 + 1e-12))
    low = max(0.0, mean - variance / (1.0 - mean))
    at_one = (mean - low) / (1.0 - low)
    return _Law(np.array([low, 1.0]), np.array([1.0 - at_one, at_one]), math.inf)


def _betting_samples(law: _Law, tested: float, needed: float) -> tuple[float, Bets]:
    if not tested < 1.0:
        return 1.0, default_bets(1, 0.5)
    gains = np.log1p(np.multiply.outer(SHARES, (tested - law.points) / (1.0 - tested)))
    means = gains @ law.weights
    spread = np.sqrt(np.square(gains - means[:, np.newaxis]) @ law.weights)
    luck = _CAUTION * spread
    rates = means - _PILOT_CAUTION * spread / math.sqrt(law.samples)
    hopeful = rates > 0.0
    rates = np.where(hopeful, rates, 1.0)
    # rate n - luck sqrt(n) = needed, with the price of not staking all of the capital.
    term = needed - math.log(PLANNED)
    samples = np.square((luck + np.sqrt(np.square(luck) + 4.0 * rates * term)) / (2.0 * rates))
    samples = np.where(hopeful, np.maximum(samples, 1.0), math.inf)
    best = int(samples.argmin())
    found = float(samples[best])
    most = math.ceil(found) if found <= MAX_COUNT else MAX_COUNT
    return found, insured(float(SHARES[best]), most, math.exp(-min(needed, 700.0)))
