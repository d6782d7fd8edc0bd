"""Tests of "the mean exceeds what it may": planned from pilot samples, decided by samples it has not seen.

A verifier of Estimate-Verify-Release (Dong and Ganesh 2026, Appendix A) accepts a candidate only if its
samples are evidence against "delta is at least ``tested``". Method, bets and number of samples are fixed by
`plan_test`, from pilot samples of other random streams; nothing rests on their quality but the number of samples
and the chance that a good candidate is accepted.

>>> import numpy as np
>>> pilot = Empirical.of(np.random.default_rng(0).beta(1.0, 99.0, 10_000))
>>> test = plan_test(0.012, failure_probability=1e-9, pilot=pilot)
>>> test.method, test.samples < 20_000
('betting', True)
>>> test.accepts(Empirical.of(np.random.default_rng(1).beta(1.0, 99.0, test.samples)))
True
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .._base.types import Array
from .._base.validation import MAX_COUNT, ParameterError, ParameterTypeError, choice, integer, real
from .confidence import kl
from .empirical import Empirical
from .evidence import METHODS, PLANNED, SHARES, Bets, checked_bets, default_bets, evidence_below, insured

_CAUTION, _PILOT_CAUTION = 3.0, 1.5
"""Standard deviations, of the test's and of the pilot's result, by which the plan expects bad luck (*speed*)."""


@dataclass(frozen=True)
class MeanTest:
    """Accepts if ``samples`` or more values in [0, 1] prove their expectation to be below ``tested``.

    Guarantee: if the expectation exceeds ``tested``, it accepts with probability at most
    ``failure_probability``, whatever the law of the values. Their number must not depend on them (round up
    to whole blocks). A ``tested`` of 1 is never exceeded. Made by `plan_test`.
    """

    method: str
    tested: float
    failure_probability: float
    samples: int
    bets: Bets = ()

    def __post_init__(self) -> None:
        choice("method", self.method, METHODS)
        real("tested", self.tested, 0.0, 1.0, open_low=True)
        real("failure_probability", self.failure_probability, 0.0, 1.0, open_low=True)
        integer("samples", self.samples, 1)
        if self.method == "betting":
            checked_bets(self.bets)

    def evidence(self, seen: Empirical) -> float:
        """A lower bound on ln 1/p; see `evidence_below`."""
        return evidence_below(seen, self.tested, self.method, self.bets or None)

    def accepts(self, seen: Empirical) -> bool:
        """Whether there are enough values, and enough evidence in them."""
        return seen.count >= self.samples and self._suffices(seen)

    def accepts_early(self, seen: Empirical) -> bool:
        """Whether fewer values are evidence enough: for "betting" only, which may be asked after any block.

        The values must be those of the first blocks, in the order of their numbers, nothing left out and nothing
        drawn ahead: then the capital is a martingale, and Ville's inequality makes one failure probability
        good for all the times it is asked, and for `accepts` at the end.
        """
        return self.method == "betting" and self._suffices(seen)

    def looks(self, block_size: int) -> tuple[int, ...]:
        """After how many blocks to ask: the last is the number of blocks of the whole test.

        Fixed beforehand, so that the verdict does not depend on the clock: steps of about an eighth for "betting",
        which makes a test as short as its luck allows; only the end for the others.
        """
        last = -(-self.samples // integer("block_size", block_size, 1))
        if self.method != "betting":
            return (last,)
        return tuple(sorted({max(1, math.ceil(last * 1.125**-k)) for k in range(24)}))

    def _suffices(self, seen: Empirical) -> bool:
        # Written so that nan rejects.
        needed = math.log(1.0 / self.failure_probability) * (1.0 + 1e-12)
        return self.tested == 1.0 or bool(self.evidence(seen) >= needed)


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

    def moments(self, values: Array) -> tuple[float, float]:
        """The mean of a function, and its standard deviation."""
        mean = float(values @ self.weights)
        return mean, math.sqrt(max(0.0, float(np.square(values - mean) @ self.weights)))


def plan_test(
    tested: float,
    failure_probability: float,
    *,
    pilot: Empirical | None = None,
    mean: float | None = None,
    variance: float | None = None,
    method: str = "auto",
) -> MeanTest:
    """Plan the test of "the expectation of values in [0, 1] exceeds ``tested``" that needs the fewest samples.

    The pilot's knowledge is the law of its values (``pilot``, the better), or their ``mean`` and ``variance``: then
    "betting" expects the least favourable law that has them, with values at 1 (Bennett 1962). The number of samples
    is such that the test still accepts when it is three standard deviations unlucky, and the pilot one and a half.
    ``method`` "auto" is the one that needs fewest. Raises ParameterError where the pilot suggests
    that no test would accept, or that it takes more than 2^53 samples.

    >>> for method in ("betting", "bernstein", "kl"):
    ...     print(method, round(plan_test(2e-3, 1e-9, mean=1e-3, variance=1e-6, method=method).samples, -3))
    betting 23000
    bernstein 56000
    kl 69000
    """
    tested = real("tested", tested, 0.0, 1.0, open_low=True)
    failure = real("failure_probability", failure_probability, 0.0, 1.0, open_low=True, open_high=True)
    method = choice("method", method, ("auto", *METHODS))
    law = _pilot_law(pilot, mean, variance)
    plans = []
    for name in METHODS if method == "auto" else (method,):
        samples, bets = _PLANNERS[name](law, tested, math.log(1.0 / failure))
        plans.append((samples, METHODS.index(name), name, bets))
    samples, _, name, bets = min(plans)
    if not samples <= MAX_COUNT:
        raise ParameterError(
            f"tested = {tested!r}: a mean of about {law.moments(law.points)[0]:.3g}, as the pilot suggests, needs "
            f"more than 2^53 samples"
        )
    return MeanTest(name, tested, failure, math.ceil(samples), bets)


def _pilot_law(pilot: Empirical | None, mean: float | None, variance: float | None) -> _Law:
    if pilot is not None:
        if mean is not None or variance is not None or not pilot.count:
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


def _kl_samples(law: _Law, tested: float, needed: float) -> tuple[float, Bets]:
    mean, deviation = law.moments(law.points)

    def suffices(samples: float) -> bool:
        seen = min(1.0, mean + deviation * _luck(samples, law))
        return seen < tested and samples * kl(seen, tested) >= needed

    return _fewest(suffices), ()


def _bernstein_samples(law: _Law, tested: float, needed: float) -> tuple[float, Bets]:
    mean, deviation = law.moments(law.points)
    variance, spread = law.moments(np.square(law.points - mean))
    term = needed + math.log(2.0)

    def suffices(samples: float) -> bool:
        luck = _luck(samples, law)
        seen = math.sqrt(variance + luck * spread)
        width = seen * math.sqrt(2.0 * term / samples) + 7.0 * term / (3.0 * (samples - 1.0))
        return mean + luck * deviation + width <= tested

    return _fewest(suffices, 2.0), ()


def _luck(samples: float, law: _Law) -> float:
    """How bad the luck is that a plan expects, in standard deviations of one value."""
    return _CAUTION / math.sqrt(samples) + _PILOT_CAUTION / math.sqrt(law.samples)


def _fewest(suffices: Callable[[float], bool], low: float = 1.0) -> float:
    """The least number of samples, nearly, from ``low`` on; infinite if 2^54 do not suffice."""
    if suffices(low):
        return low
    high = 2.0 * low
    while not suffices(high):
        low, high = high, 2.0 * high
        if high > 2.0**54:
            return math.inf
    while high - low > max(1.0, 1e-6 * high):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


_PLANNERS: dict[str, Callable[[_Law, float, float], tuple[float, Bets]]] = {
    "betting": _betting_samples,
    "bernstein": _bernstein_samples,
    "kl": _kl_samples,
}
