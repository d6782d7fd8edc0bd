"""A mechanism on a sampled batch: Poisson sampling, and batches of fixed size with or without replacement.

docs/mechanisms/replacement.md proves what is accounted where a record is replaced.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, ClassVar

import numpy as np

from .. import _core
from .._base.types import Array
from .._base.validation import (
    ParameterError,
    ParameterTypeError,
    Probability,
    Size,
    choice,
    integer,
    narrowed,
)
from ..sampling.laws import Law
from .core_pairs import Pairs, both, location_pair, sampled
from .numeric import Gaussian
from .steps import Mechanism, Step, Words, base_pair

PAIRS = ("sound", "koskela2020")

_NO_GUARANTEE = (
    " accounted with the pair of Koskela et al. 2020, which is NOT a guarantee for batches of fixed size"
)

_GROUPS = 256
"""*Speed*: most group sizes that sampling with replacement keeps apart."""

_MOST_SIZES = 2**20
"""*Speed*: if more group sizes than this are likely (batch_size > 1e8 dataset_size), all count as the largest."""

_RARE = 1e-310
"""*Speed*: group sizes rarer than this are treated as the largest one."""


@dataclass(frozen=True)
class _Sampled(Step):
    """A scheme around an unsampled mechanism, which gives it its noise."""

    mechanism: Step

    def __post_init__(self) -> None:
        given: object = self.mechanism
        if not isinstance(given, Step) or not given.may_be_sampled(self):
            besides = "; Poisson sampling may also be nested" if self.independent else ""
            raise ParameterTypeError(
                f"mechanism = {given!r}: must be an unsampled mechanism "
                f"(Gaussian, Laplace, ... or a mixture of them{besides}), not {type(given).__name__}"
            )
        super().__post_init__()

    @property
    def _inner(self) -> Mechanism:
        """The mechanism, where it is no choice between several."""
        return narrowed(self.mechanism, Mechanism)

    def alternatives(self) -> list[Step]:
        choice = self.mechanism.sampled_by(self)
        return [self] if choice is self else choice.alternatives()

    def simplified(self) -> Step | None:
        choice = self.mechanism.sampled_by(self)
        if choice is not self:
            return choice.simplified()
        inner = self.mechanism.simplified()
        return None if inner is None else inner if self._sees_all() else self

    def _sees_all(self) -> bool:
        """Whether the batch is the dataset."""
        return False

    def check_adjacency(self, adjacency: str) -> None:
        self.mechanism.check_adjacency(adjacency)

    def unsampled_mu(self, shift: float) -> float | None:
        return self.mechanism.unsampled_mu(shift)


@dataclass(frozen=True)
class PoissonSampled(_Sampled):
    """The mechanism on a batch that contains each record independently with ``sampling_probability``.

    Not what shuffling or a fixed batch size does. 0 contributes nothing, 1 is the unsampled
    mechanism. A Poisson sample of a Poisson sample is one with the product of the probabilities, rounded up, under every
    adjacency (docs/mechanisms/pairs.md, "Sampling again"):

    >>> from hockeystick import Gaussian, account
    >>> nested = PoissonSampled(PoissonSampled(Gaussian(1.0), 0.5), 0.25)
    >>> account(nested).delta(1.0) == account(PoissonSampled(Gaussian(1.0), 0.125)).delta(1.0)
    True
    """

    sampling_probability: Probability
    independent = True

    def _batch_law_of(self, steps: int) -> Law:
        return Law("poisson", steps, {"sampling_probability": self.participation})

    def may_be_sampled(self, scheme: Step) -> bool:
        return scheme.independent

    def sampled_by(self, scheme: Step) -> Step:
        """A record is in both samples with the product of the probabilities."""
        return PoissonSampled(self.mechanism, scheme.participation)

    def simplified(self) -> Step | None:
        return None if self.sampling_probability == 0.0 else super().simplified()

    def _sees_all(self) -> bool:
        return self.sampling_probability == 1.0

    def pairs(self, adjacency: str) -> Pairs:
        """Zhu, Dong, Wang 2022, Theorem 11."""
        if adjacency == "replace_one":
            return both(self._inner.poisson_replaced(self.sampling_probability))
        return sampled(self._inner.pairs("add_or_remove"), self.sampling_probability)

    @property
    def participation(self) -> float:
        """Of all samples around the mechanism, rounded up."""
        q, inner = self.sampling_probability, self.mechanism.participation
        if inner == 1.0:
            return q
        product = q * inner
        return math.nextafter(product, 1.0) if Fraction(product) < Fraction(q) * Fraction(inner) else product

    def if_seen(self) -> Step:
        return self.mechanism.if_seen()

    def words(self, adjacency: str) -> Words:
        sampler = f"independent Poisson sampling with probability {self.sampling_probability:g}"
        reference = "Zhu, Dong and Wang 2022, Theorem 11 (Poisson sampling)"
        if adjacency == "replace_one":
            reference = "docs/mechanisms/replacement.md, section 5 (Poisson sampling, one record replaced)"
        return Words(self.mechanism.noise_convention, sampler, reference)


@dataclass(frozen=True)
class _FixedSize(_Sampled):
    """A batch of fixed size of a dataset of fixed size."""

    batch_size: Size
    dataset_size: Size
    pair: Annotated[str, functools.partial(choice, options=PAIRS)] = "sound"
    kind: ClassVar[str]
    theorem: ClassVar[int]
    """Of Balle, Barthe and Gaboardi 2018."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.repeats:
            integer("batch_size", self.batch_size, 1, self.dataset_size)
        if self.is_published and not isinstance(self.mechanism, Gaussian):
            raise ParameterError(
                f"pair = {self.pair!r}: defined for Gaussian only, use pair='sound' for {self.mechanism!r}"
            )

    @property
    def is_published(self) -> bool:
        """Whether the pair is the paper's, which is no guarantee."""
        return self.pair == "koskela2020"

    def check_adjacency(self, adjacency: str) -> None:
        super().check_adjacency(adjacency)
        if adjacency != "replace_one":
            raise ParameterError(
                f"adjacency = {adjacency!r}: must be 'replace_one' for {self.alternatives()[0]!r}; a batch of fixed "
                "size is drawn from a dataset of fixed size, so no record can be added or removed"
            )

    def _published_pair(self, shifts: list[float], weights: list[float]) -> Pairs | None:
        """The paper's pair: the other records of the batch are taken to be fixed. None if there is no noise."""
        sigma = getattr(self.mechanism, "noise_multiplier", 0.0)
        if not (self.is_published and sigma > 0.0):
            return None
        return both(location_pair("gaussian", sigma, shifts, weights))

    def _batch_law_of(self, steps: int) -> Law:
        return Law(self.kind, steps, {"batch_size": self.batch_size}, self.dataset_size)

    def words(self, adjacency: str) -> Words:
        how = self.kind.replace("_", " ")
        return Words(
            self.mechanism.noise_convention,
            f"batches of {self.batch_size} of {self.dataset_size} records drawn {how}",
            f"Balle, Barthe and Gaboardi 2018, Theorem {self.theorem} (sampling {how})",
            _NO_GUARANTEE if self.is_published else "",
        )


@dataclass(frozen=True)
class WithoutReplacement(_FixedSize):
    """The mechanism on a uniformly random batch of ``batch_size`` of the ``dataset_size`` records.

    Accounted under adjacency "replace_one" only. ``pair="sound"`` (default) is a guarantee.
    ``pair="koskela2020"`` (Gaussian only) is the pair of Koskela, Jalko and Honkela 2020,
    Section 6.2, for reproducing that paper: it treats the other records of the batch as fixed,
    which they are not, so it is NOT a guarantee. See docs/mechanisms/replacement.md.
    """

    kind = "without_replacement"
    theorem = 9

    def _sees_all(self) -> bool:
        return self.batch_size == self.dataset_size and not self.is_published

    def pairs(self, adjacency: str) -> Pairs:
        """Balle, Barthe, Gaboardi 2018, Theorem 9: advanced joint convexity with gamma = m/n."""
        gamma = self.batch_size / self.dataset_size
        return self._published_pair([0.0, 1.0], [1.0 - gamma, gamma]) or both(
            _core.sampled_pair(base_pair(self._inner, 2), gamma, "replace_one")
        )


@dataclass(frozen=True)
class WithReplacement(_FixedSize):
    """The mechanism on ``batch_size`` independent uniform draws from the ``dataset_size`` records.

    A record may enter the batch several times. Accounted under adjacency "replace_one" only;
    ``pair`` as in WithoutReplacement ("koskela2020": Section 6.3, NOT a guarantee).
    """

    kind = "with_replacement"
    theorem = 10
    repeats = True

    def pairs(self, adjacency: str) -> Pairs:
        """Balle, Barthe, Gaboardi 2018, Theorem 10: a group of l records with a binomial weight."""
        m, n = self.batch_size, self.dataset_size
        gamma = -math.expm1(m * math.log1p(-1.0 / n)) if n > 1 else 1.0
        groups, weights = occurrences(m, n)
        published = self._published_pair([0.0, *map(float, groups)], [1.0 - gamma, *(gamma * weights)])
        if published is not None:
            return published
        bases = [base_pair(self._inner, 2 * int(group), int(group)) for group in groups]
        base = bases[0] if len(bases) == 1 else _core.mixture_pair(bases, list(weights))
        return both(base if gamma == 1.0 else _core.sampled_pair(base, gamma, "replace_one"))

    def unsampled_mu(self, shift: float) -> float | None:
        return super().unsampled_mu(shift * self.batch_size)


def occurrences(batch_size: int, dataset_size: int) -> tuple[list[int], Array]:
    """How often a record enters a batch drawn with replacement, given that it does.

    Returns group sizes l >= 1 (increasing) and weights summing to 1: the law of l ~ Binomial(m,
    1/n) given l >= 1. Sizes beyond the point where their weight falls below 1e-310 are counted as
    m, and if more than 256 sizes remain, neighbours are counted as the largest of them; both make
    the result an upper bound, in bounded time and memory.
    """
    if dataset_size == 1:
        return [batch_size], np.ones(1)
    return binomial_sizes(batch_size, batch_size / dataset_size, -math.log(dataset_size - 1.0))


def binomial_sizes(trials: int, mean: float, log_odds: float) -> tuple[list[int], Array]:
    """`occurrences` for any binomial law with this mean and these odds of a single trial."""
    # Bernstein: the chance to exceed mean + x is below exp(-x^2 / (2 mean + 2x/3)) = 1e-313.
    high = min(trials, math.ceil(mean + 241.0 + math.sqrt(241.0**2 + 1445.0 * mean)))
    low = max(1, math.floor(mean - math.sqrt(1445.0 * mean)))
    if trials == 1 or high - low > _MOST_SIZES:
        return [trials], np.ones(1)
    sizes = np.arange(low, high + 1, dtype=np.float64)
    # Relative to the first size, then normalised: no binomial coefficient is ever formed.
    ratios = np.log((trials - sizes[:-1]) / (sizes[:-1] + 1.0)) + log_odds
    log_weights = np.concatenate(([0.0], np.cumsum(ratios)))
    weights = np.exp(log_weights - log_weights.max())
    weights /= math.fsum(weights)
    keep = weights >= _RARE
    keep[: int(np.argmax(weights))] = True
    sizes, weights = sizes[keep], weights[keep]
    if len(sizes) > _GROUPS:
        chunk = math.ceil(len(sizes) / _GROUPS)
        starts = np.arange(0, len(sizes), chunk)
        weights = np.add.reduceat(weights, starts)
        sizes = sizes[np.minimum(starts + chunk, len(sizes)) - 1]
    groups = [int(size) for size in sizes]
    if groups[-1] < trials:
        groups.append(trials)
        weights = np.append(weights, _RARE)
    # Rounding must not leave a gap, which the core would put at loss +inf.
    weights[int(np.argmax(weights))] += 1.0 - math.fsum(weights)
    return groups, weights
