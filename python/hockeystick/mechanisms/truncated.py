"""Poisson batches cut to a maximum size (Ganesh 2025): description, law of the truncation, dominating pairs."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Annotated

from .. import _core
from .._base import binomial
from .._base.bounds import exactly
from .._base.validation import NonNegative, Probability, Size, choice
from ..sampling.laws import Law
from . import atoms
from .core_pairs import HUGE, NOTHING, Pairs, both, discrete, gaussian, location_mixture, mixture, sampled
from .numeric import Gaussian
from .sampled import PoissonSampled, between
from .steps import Step, Words

TRUNCATED_PAIRS = ("tight", "ganesh2025")

_THEOREMS = {"zero_out": "3.3", "replace_one": "3.4"}
"""Where a tighter pair than that of the paper is known; of other adjacencies it is Theorem 3.1."""

_LEAST = 1e-300
"""*Speed*: sampling probabilities below this count as this."""

_ROUNDING = 2.0**-50
"""*Proof*: less than the 1e-14 which the core takes for rounding of a mixture's weights."""


@dataclass(frozen=True)
class _Truncated(Step):
    """What steps with a largest batch share: the law of the truncation, and the pairs."""

    noise_multiplier: NonNegative
    dataset_size: Size
    sampling_probability: Probability
    max_batch_size: Size
    pair: Annotated[str, functools.partial(choice, options=TRUNCATED_PAIRS)] = "tight"
    has_closed_form = False

    @property
    def mechanism(self) -> Gaussian:
        """The noise that the sum gets."""
        return Gaussian(self.noise_multiplier)

    @property
    def truncation(self) -> Truncation:
        """How often the batch is full without a given record, and how often that one is then in it."""
        return truncation(self.dataset_size, self.sampling_probability, self.max_batch_size)

    @property
    def expected_batch_size(self) -> float:
        """E[min(Binomial(n, p), B)], a floating-point value and no bound."""
        law = self.truncation
        return self.dataset_size * (
            self.sampling_probability * law.not_full + law.full_low * law.sampled_if_full
        )

    def simplified(self) -> Step | None:
        if self.sampling_probability == 0.0:
            return None
        return self if self.cut_probability > 0.0 else self.uncut().simplified()

    def pairs(self, adjacency: str) -> Pairs:
        """Dominating pairs and what is less; sampling probability and noise are positive.

        With X as in `Truncation`, the adversary is shown the other records' order and whether X >= B:
        then the step is a mixture of two, and both have closed forms (docs/mechanisms/truncated.md, sections 3 and 4). What the
        bounds on Pr[X >= B] leave open goes to a third: from above to one that dominates both, from below to one that both dominate.
        """
        p, sigma = self.sampling_probability, self.noise_multiplier
        mu = 1.0 / sigma if sigma * HUGE > 1.0 else math.inf
        law, some = self.truncation, self._law_of_some_record()
        # Without pairs for a shift beyond HUGE, which are between two themselves.
        mu_least, q_least = min(mu, 0.49 * HUGE), some.sampled_if_full_low
        less = _untruncated(mu_least, q_least, adjacency)
        more = _full(mu, p, adjacency, self.pair)
        return between(
            self._mixed(mu_least, q_least, adjacency, some.weights(above=False), less),
            self._mixed(mu, law.sampled_if_full, adjacency, law.weights(above=True), more),
        )

    def _mixed(
        self, mu: float, q: float, adjacency: str, weights: tuple[float, float, float], left: Pairs
    ) -> Pairs:
        """Batches that are not full, full ones with the rate ``q``, and what is ``left``."""
        not_full = _untruncated(mu, self.sampling_probability, adjacency)
        return mixture([not_full, _full(mu, q, adjacency, self.pair), left], list(weights))

    def _law_of_some_record(self) -> Truncation:
        """The law for some record: what is true of it is no more than the guarantee."""
        return self.truncation

    def unsampled_mu(self, shift: float) -> float | None:
        """One record in the place of another one, under every adjacency."""
        return self.mechanism.unsampled_mu(2.0)

    @property
    def participation(self) -> float:
        return self.sampling_probability

    def if_seen(self) -> Step:
        """A record that a full batch takes may take the place of another one: twice the sensitivity."""
        return Gaussian(0.5 * self.noise_multiplier)

    @property
    def cut_probability(self) -> float:
        return self.truncation.full_high

    def uncut(self) -> Step:
        return PoissonSampled(self.mechanism, self.sampling_probability)

    def _drawn_from(self) -> str:
        return f"{self.dataset_size} records"

    def words(self, adjacency: str) -> Words:
        sampler = (
            f"independent Poisson sampling with probability {exactly(self.sampling_probability)} from "
            f"{self._drawn_from()}, batches cut to {self.max_batch_size} records chosen at random"
        )
        reference = f"Ganesh 2025, Theorem {_THEOREMS.get(adjacency, '3.1')}"
        if self.pair == "tight" and adjacency in _THEOREMS:
            reference = "docs/mechanisms/truncated.md, section 3"
        return Words(
            Gaussian.noise_convention,
            sampler,
            f"{reference} (truncated Poisson sampling)",
            compared_sizes=(self.dataset_size,),
        )


@dataclass(frozen=True)
class TruncatedPoissonSampled(_Truncated):
    """Gaussian noise on the sum of a Poisson batch of which at most ``max_batch_size`` records are kept.

    Each of ``dataset_size`` = n records joins independently with ``sampling_probability`` = p; of a
    batch of more than B = ``max_batch_size``, a uniformly random B are kept. Output: the sum of
    vectors of L2 norm at most 1 (the clipping norm) plus N(0, noise_multiplier^2 I). Smaller batches
    may be padded with zero vectors; neither the batch's true size nor which places are padding may
    be visible, and nothing may be divided by the true size. See docs/mechanisms/truncated.md.

    "add", "remove", "add_or_remove": one dataset has n records, the other one of them fewer, and the
    guarantee depends on n (Ganesh 2025, Theorem 3.1). "zero_out", "replace_one": both have n records,
    so n may be public. ``pair="tight"`` (default) is the exact worst case of each branch, proven in
    docs/mechanisms/truncated.md; ``pair="ganesh2025"`` takes Theorems 3.3 and 3.4 as published, which are
    guarantees too, slightly larger ones under these two adjacencies and the same under the others.

    >>> from hockeystick import Gaussian, PoissonSampled, account
    >>> step = TruncatedPoissonSampled(1.0, dataset_size=100_000, sampling_probability=0.01, max_batch_size=1200)
    >>> poisson = PoissonSampled(Gaussian(1.0), 0.01)
    >>> 1.0 <= account(step * 1000).epsilon(1e-6) / account(poisson * 1000).epsilon(1e-6) < 1.01
    True
    >>> 1050 > step.expected_batch_size > 999.9999
    True
    """

    def _batch_law_of(self, steps: int) -> Law:
        parameters = {"sampling_probability": self.sampling_probability}
        return Law("poisson", steps, parameters, self.dataset_size, self.max_batch_size)


@dataclass(frozen=True)
class TruncatedPoissonGroup(_Truncated):
    """`TruncatedPoissonSampled` from one of ``groups`` fixed groups, into which the records are divided as evenly as possible.

    A group has floor(n / groups) or ceil(n / groups) of the ``dataset_size`` = n records; the guarantee is for either, whichever
    group the record is in (docs/mechanisms/truncated.md, section 6). What a turn of truncated cyclic Poisson sampling releases.

    >>> TruncatedPoissonGroup(1.0, 1001, 0.1, 15, groups=10).expected_batch_size
    9.93...
    """

    groups: Size = 1

    def _sizes(self) -> tuple[int, int]:
        """Of the smallest group that has a record, and of the largest."""
        return max(1, self.dataset_size // self.groups), -(-self.dataset_size // self.groups)

    def _of_size(self, size: int) -> TruncatedPoissonSampled:
        return TruncatedPoissonSampled(
            self.noise_multiplier, size, self.sampling_probability, self.max_batch_size, self.pair
        )

    @property
    def truncation(self) -> Truncation:
        """Bounds that hold for both sizes of groups."""
        low, high = (self._of_size(size).truncation for size in self._sizes())
        return Truncation(
            low.full_low,
            high.full_high,
            high.not_full_low,
            low.not_full,
            min(low.sampled_if_full_low, high.sampled_if_full_low),
            max(low.sampled_if_full, high.sampled_if_full),  # the smaller group may never be full
        )

    def _law_of_some_record(self) -> Truncation:
        return self._of_size(self._sizes()[0]).truncation

    @property
    def expected_batch_size(self) -> float:
        """The mean over the groups, a floating-point value and no bound."""
        size, more = divmod(self.dataset_size, self.groups)
        means = [(more, size + 1), (self.groups - more, size)]
        return sum(k * self._of_size(m).expected_batch_size for k, m in means if k and m) / self.groups

    def _drawn_from(self) -> str:
        sizes = " or ".join(map(str, sorted(set(self._sizes()))))
        return f"one of {self.groups} fixed groups of {sizes} records"


@dataclass(frozen=True)
class Truncation:
    """The law of X ~ Binomial(n - 1, p), the other records' batch, as the accounting sees it.

    ``full_low`` <= Pr[X >= B] <= ``full_high``; ``not_full_low`` <= Pr[X < B] <= ``not_full``, each near relative to itself;
    ``sampled_if_full_low`` <= p E[B / (X + 1) | X >= B] <= ``sampled_if_full``, the chance of one record to be in
    the batch given that the others fill it.
    """

    full_low: float
    full_high: float
    not_full_low: float
    not_full: float
    sampled_if_full_low: float
    sampled_if_full: float

    def weights(self, above: bool) -> tuple[float, float, float]:
        """Of batches that are not full, of full ones, and of what is left: no less than 1 together from ``above``, else no more.

        The rarer ones have their least weight and the others what the most weight of those leaves, so that what is left
        is little beside the rarer ones, too. Rounding alone is left to nobody: from above it makes all weights a little larger.
        """
        end = 1.0 if above else 0.0

        def rest(weight: float) -> float:
            return min(1.0, max(0.0, math.nextafter(1.0 - weight, end)))

        not_full_is_rarer = self.not_full < self.full_high
        low, high = (
            (self.not_full_low, self.not_full) if not_full_is_rarer else (self.full_low, self.full_high)
        )
        left = high - low
        if above and left < _ROUNDING:
            rarer, others, left = high, rest(low), 0.0
        else:
            rarer, others = low, rest(high)
        left = math.nextafter(left, end) if left > 0.0 else 0.0
        return (rarer, others, left) if not_full_is_rarer else (others, rarer, left)


def truncation(dataset_size: int, sampling_probability: float, max_batch_size: int) -> Truncation:
    """The bounds of `Truncation`, with every rounding error on the safe side.

    p E[B/(X+1) | X >= B] = (B/n) Pr[Binomial(n, p) > B] / Pr[X >= B] (Ganesh 2025, Section 3.4), and
    Pr[Binomial(n, p) > B] = Pr[X >= B] - (1-p) Pr[X = B], so it is (B/n) (1 - (1-p) hazard), hazard =
    Pr[X = B] / Pr[X >= B]: with s = 1 - hazard it is (B/n) (p + (1-p) s), where nothing cancels.
    """
    n, p, b = dataset_size, sampling_probability, max_batch_size
    law = binomial.tail(n - 1, p, b)
    share = b / n
    if law.high == 0.0:
        return Truncation(0.0, 0.0, 1.0, 1.0, 0.0, 0.0)
    if p == 1.0:  # every batch is a uniformly random B of n
        return Truncation(1.0, 1.0, 0.0, 0.0, share, share)
    rate = min(share, share * (p + (1.0 - p) * law.survival), p * (b / (b + 1.0))) * (1.0 + 2.0**-49)
    low = share * binomial.tail(n, p, b + 1).low / law.high * (1.0 - 2.0**-50)
    return Truncation(
        law.low,
        law.high,
        law.below_low,
        law.below_high,
        low if low > _LEAST else 0.0,
        min(1.0, max(rate, _LEAST)),
    )


def _untruncated(mu: float, p: float, adjacency: str) -> Pairs:
    """The batch is not full: Poisson sampling."""
    if p == 0.0:
        return both(NOTHING)
    if adjacency != "replace_one" or mu == math.inf:
        return _replaced(mu, p) if adjacency == "replace_one" else sampled(both(gaussian(mu)), p)
    if p == 1.0:
        return both(gaussian(2.0 * mu))
    weights = {0.0: 1.0 - p, 1.0: p}
    return location_mixture(1.0 / mu, weights, weights)


def _full(mu: float, q: float, adjacency: str, pair: str) -> Pairs:
    """The others fill the batch: with probability q the record takes another one's place."""
    if q == 0.0:
        return both(NOTHING)
    if adjacency in ("replace_one", "zero_out") and pair == "ganesh2025":
        return _published(mu, q, adjacency)
    if adjacency == "replace_one":
        return _replaced(2.0 * mu, q)
    if adjacency == "zero_out":
        if mu >= HUGE:
            return _replaced(mu, q)
        return Pairs(_core.zero_out_pair(mu, q, "remove"), _core.zero_out_pair(mu, q, "add"))
    return sampled(both(gaussian(2.0 * mu)), q)


def _replaced(mu: float, q: float) -> Pairs:
    """(1-q) N(0) + q N(w) against (1-q) N(0) + q N(v), |v|, |w|, |v - w| <= mu: the worst case at each epsilon."""
    return both(_core.sampled_pair(gaussian(mu), q, "replace_one"))


def _published(mu: float, q: float, adjacency: str) -> Pairs:
    """r = 2 of Theorems 3.1, 3.3 and 3.4."""
    if mu >= HUGE:
        return both(discrete(atoms.revealing()))
    doubled = {0.0: 1.0 - q, 2.0: q}
    if adjacency == "replace_one":
        return location_mixture(1.0 / mu, doubled, doubled)
    if adjacency == "zero_out":
        return location_mixture(1.0 / mu, doubled, {0.0: 1.0 - q, 1.0: q})
    return sampled(both(gaussian(2.0 * mu)), q)
