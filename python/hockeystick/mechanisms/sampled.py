"""A mechanism on a sampled batch: Poisson sampling, and batches of fixed size with or without replacement.

docs/mechanisms/replacement.md proves what is accounted where a record is replaced.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from .. import _core
from .._base.bounds import exactly
from .._base.types import Array
from .._base.validation import (
    ParameterError,
    ParameterTypeError,
    Probability,
    Size,
    choice,
    double,
    integer,
    narrowed,
    shown,
)
from ..sampling.laws import Law
from .core_pairs import NOTHING, Pairs, both, location_pair, sampled
from .numeric import Gaussian
from .steps import ExactGuarantee, Mechanism, Step, Words, base_pair, if_sampled, shift_of

PAIRS = ("sound", "koskela2020")

NO_GUARANTEE = (
    " accounted with the pair of Koskela et al. 2020, which is NOT a guarantee for batches of fixed size"
)

_GROUPS = 256
"""*Speed*: most cells of group sizes."""

_MOST_SIZES = 2**20
"""*Speed*: if more group sizes than this are likely (batch_size > 1e8 dataset_size), all share a cell."""

_RARE = 1e-307
"""*Proof*: so that weights have all their digits: group sizes that are rarer have none of their own."""

_OUTSIDE = 1e-312
"""*Proof*: more than what Bernstein's inequality leaves outside of the sizes that are looked at."""

_ROUNDED = 8e-16  # *proof*: more than the roundings of a sum of weights

_LARGE = 700  # *speed*: the exponential of more is no double; sampling then hardly helps
_LOG_ROUNDED, _LEAST = 1.0 + 4e-15, 1e-320
"""*Proof*: expm1, log1p (each within 2 units in the last place), a product and the arguments are off by less, relatively, and below the normal doubles, where none of them is above 1, absolutely."""


@dataclass(frozen=True)
class _Sampled(Step):
    """A scheme around an unsampled mechanism, which gives it its noise."""

    mechanism: Step

    def __post_init__(self) -> None:
        given: object = self.mechanism
        if not isinstance(given, Step) or not given.may_be_sampled(self):
            besides = "; Poisson sampling may also be nested" if self.independent else ""
            twice = isinstance(given, Step) and given.is_unsampled() and self.repeats
            which = ", which does not say what a record costs that is in the batch twice" if twice else ""
            raise ParameterTypeError(
                f"mechanism = {shown(given)}: must be an unsampled mechanism "
                f"(Gaussian, Laplace, ... or a mixture of them{besides}), not {type(given).__name__}{which}"
            )
        super().__post_init__()

    @property
    def _inner(self) -> Mechanism:
        """The mechanism, where it is no choice between several."""
        return narrowed(self.mechanism, Mechanism)

    def alternatives(self) -> list[Step]:
        chosen = self.mechanism.sampled_by(self)
        return [self] if chosen is self else chosen.alternatives()

    def simplified(self) -> Step | None:
        chosen = self.mechanism.sampled_by(self)
        if chosen is not self:
            return chosen.simplified()
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
        """A record is in all samples with the product of their probabilities, which is the outermost one's `participation`."""
        return PoissonSampled(self.innermost, scheme.participation)

    @property
    def innermost(self) -> Step:
        """What is sampled, without the samples around it."""
        within = self.mechanism
        while isinstance(within, PoissonSampled):
            within = within.mechanism
        return within

    def simplified(self) -> Step | None:
        return None if self.sampling_probability == 0.0 else super().simplified()

    def _sees_all(self) -> bool:
        return self.sampling_probability == 1.0

    def pairs(self, adjacency: str) -> Pairs:
        """Zhu, Dong, Wang 2022, Theorem 11."""
        inner, q = self._inner, self.sampling_probability
        adjacency = if_sampled(inner, adjacency)
        if adjacency == "replace_one":
            return both(inner.poisson_replaced(q))
        return sampled(inner.pairs(adjacency), q)

    def guarantee(self, adjacency: str) -> ExactGuarantee | None:
        """Balle, Barthe and Gaboardi 2018, Theorem 8; of a record that replaces another docs/mechanisms/replacement.md, section 5."""
        return amplified(self.mechanism.guarantee(adjacency), Fraction(self.sampling_probability))

    @property
    def participation(self) -> float:
        """Of all samples around the mechanism, rounded up."""
        if self.mechanism.participation == 1.0:
            return self.sampling_probability
        return double(Fraction(self.sampling_probability) * Fraction(self.mechanism.participation), math.inf)

    def if_seen(self) -> Step:
        return self.mechanism.if_seen()

    def words(self, adjacency: str) -> Words:
        sampler = f"independent Poisson sampling with probability {exactly(self.sampling_probability)}"
        reference = "Zhu, Dong and Wang 2022, Theorem 11 (Poisson sampling)"
        alone = self.innermost
        if isinstance(alone, Mechanism) and if_sampled(alone, adjacency) == "replace_one":
            reference = "docs/mechanisms/replacement.md, section 5 (Poisson sampling, one record replaced)"
        return Words(self.mechanism.noise_convention, sampler, reference)


def amplified(known: ExactGuarantee | None, share: Fraction) -> ExactGuarantee | None:
    """(ln(1 + q (e^epsilon - 1)), q delta)-DP for a share q of what is known: delta exactly, epsilon rounded up, and no more than without sampling."""
    if known is None:
        return None
    if not known.epsilon < _LARGE:
        return ExactGuarantee(known.epsilon, share * known.delta)
    grown = double(share, math.inf) * math.expm1(double(known.epsilon, math.inf))
    less = Fraction(math.log1p(grown) * _LOG_ROUNDED + _LEAST)
    return ExactGuarantee(min(known.epsilon, less), share * known.delta)


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

    def _published_pair(self, law: dict[int, float]) -> Pairs | None:
        """The paper's pair: the other records of the batch are taken to be fixed. None if there is no noise."""
        sigma = getattr(self.mechanism, "noise_multiplier", 0.0)
        if not (self.is_published and sigma > 0.0):
            return None
        return both(location_pair("gaussian", sigma, list(map(float, law)), list(law.values())))

    def _batch_law_of(self, steps: int) -> Law:
        return Law(self.kind, steps, {"batch_size": self.batch_size}, self.dataset_size)

    def words(self, adjacency: str) -> Words:
        how = self.kind.replace("_", " ")
        return Words(
            self.mechanism.noise_convention,
            f"batches of {self.batch_size} of {self.dataset_size} records drawn {how}",
            f"Balle, Barthe and Gaboardi 2018, Theorem {self.theorem} (sampling {how})",
            NO_GUARANTEE if self.is_published else "",
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

    def guarantee(self, adjacency: str) -> ExactGuarantee | None:
        """Balle, Barthe and Gaboardi 2018, Theorem 9."""
        return amplified(self.mechanism.guarantee(adjacency), Fraction(self.batch_size, self.dataset_size))

    def pairs(self, adjacency: str) -> Pairs:
        """Balle, Barthe, Gaboardi 2018, Theorem 9: advanced joint convexity with gamma = m/n."""
        gamma = self.batch_size / self.dataset_size
        return self._published_pair({0: 1.0 - gamma, 1: gamma}) or both(
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
        cells = binomial_cells(self.batch_size, Fraction(1, self.dataset_size))
        published = [self._published_pair(law_of(cells, above)) for above in (False, True)]
        if published[0] and published[1]:
            return published[1] if exact(cells) else between(published[0], published[1])
        return group_pairs(self._inner, cells, adjacency)

    def unsampled_mu(self, shift: float) -> float | None:
        return super().unsampled_mu(shift * self.batch_size)


class Cell(NamedTuple):
    """That a batch holds so many, from ``low`` to ``high``: counted as ``low`` from below and as ``high`` from above."""

    low: int
    high: int
    weight: float


@functools.lru_cache(maxsize=64)
def binomial_cells(trials: int, probability: Fraction) -> tuple[Cell, ...]:
    """The law Binomial(trials, probability), between a stochastically smaller and a larger one.

    One cell for each size and its probability, correctly rounded, if all of these are above 1e-307 and no more than 256.
    Otherwise rare sizes share a cell: the rarer, the more of them. Size 0 has a cell of its own, or is in the first one.
    """
    if probability == 1:
        return (Cell(trials, trials, 1.0),)
    # Bernstein: the chance to be outside of [low, high] is below 2e-313; for means below 1 it is no double.
    mean = float(trials * probability)
    high = min(trials, math.ceil(mean + 241.0 + math.sqrt(241.0**2 + 1445.0 * mean)))
    low = max(0, math.floor(mean - math.sqrt(1445.0 * mean)))
    if high - low > _MOST_SIZES:
        return Cell(0, low, _OUTSIDE), Cell(low, trials, 1.0)
    first, masses = _masses(trials, probability, low, high)
    total = sum(masses)
    weights = np.array([mass / total for mass in masses])
    kept = np.flatnonzero(weights >= _RARE)
    start, end = int(kept[0]), int(kept[-1]) + 1
    rest = _OUTSIDE if mean > 1.0 else 1e-323
    cells = []
    if first + start > 0:
        cells.append(Cell(0, first + start, rest + sum(masses[:start]) / total))
    edges = [start + edge for edge in _edges(weights[start:end], first + start == 0)]
    for begin, stop in itertools.pairwise([*edges, end]):
        cells.append(Cell(first + begin, first + stop - 1, sum(masses[begin:stop]) / total))
    if first + end <= trials:
        cells.append(Cell(first + end - 1, trials, rest + sum(masses[end:]) / total))
    return tuple(cells)


def _masses(trials: int, probability: Fraction, low: int, high: int) -> tuple[int, list[int]]:
    """The first size, and multiples of the probabilities of sizes in [low, high] that are not far below 1e-307."""
    yes, no = probability.numerator, probability.denominator - probability.numerator
    mode = min(trials, max(low, (trials + 1) * yes // (yes + no)))
    largest, least = 1 << 1200, 1 << 120  # each quotient is rounded down by less than 1
    above, below = [largest], [largest]
    for size in range(mode, high):
        if above[-1] < least:
            break
        above.append(above[-1] * ((trials - size) * yes) // ((size + 1) * no))
    for size in range(mode, low, -1):
        if below[-1] < least:
            break
        below.append(below[-1] * (size * no) // ((trials - size + 1) * yes))
    return mode - len(below) + 1, below[:0:-1] + above


def _edges(weights: Array, from_zero: bool) -> list[int]:
    """Where cells begin, at most 256: one for each size, or as wide as the eighth root of the weight allows."""
    count = len(weights)
    if count <= _GROUPS:
        return list(range(count))
    roots = np.exp(np.log(weights / weights.max()) / 8.0)
    few, many = 0.0, float(_GROUPS)
    for _ in range(40):
        scale = 0.5 * (few + many)
        fits = np.minimum(1.0, scale * roots).sum() <= _GROUPS - 3
        few, many = (scale, many) if fits else (few, scale)
    places = np.floor(np.cumsum(np.minimum(1.0, few * roots)))
    edges = np.flatnonzero(np.diff(places, prepend=-1.0))
    return sorted({0, *edges.tolist()} | ({1} if from_zero else set()))


def exact(cells: tuple[Cell, ...]) -> bool:
    """Whether no two sizes share a cell."""
    return all(cell.low == cell.high for cell in cells)


def law_of(cells: tuple[Cell, ...], above: bool) -> dict[int, float]:
    """{size: weight}, sizes increasing, each cell's counted as its largest (``above``) or as its least."""
    law: dict[int, list[float]] = {}
    for cell in cells:
        law.setdefault(cell.high if above else cell.low, []).append(cell.weight)
    return {size: math.fsum(weights) for size, weights in sorted(law.items())}


def _seen(law: dict[int, float]) -> float:
    """The probability of sizes above 0, from the smaller part."""
    unseen = law.get(0, 0.0)
    return 1.0 - unseen if unseen < 0.5 else math.fsum(weight for size, weight in law.items() if size)


def between(lower: Pairs, upper: Pairs) -> Pairs:
    """A mechanism between two, each of which may be between pairs itself."""
    remove = _core.bracket_pair(lower.remove.lower or lower.remove, upper.remove)
    if lower.symmetric and upper.symmetric:
        return both(remove)
    return Pairs(remove, _core.bracket_pair(lower.add.lower or lower.add, upper.add))


def group_pairs(mechanism: Mechanism, cells: tuple[Cell, ...], adjacency: str) -> Pairs:
    """The mechanism on a group whose size is released if it is not 0: its pairs mixed, then sampled.

    Between those of the two laws, unless the chance of 0 rounds as little as a weight and all other sizes have cells but
    those that are rarer than 1e-306 together (docs/mechanisms/users.md, section 3).
    """
    upper = law_of(cells, above=True)
    seen, last = _seen(upper), cells[-1]
    apart = exact(cells[:-1])
    rare = last.low == last.high or (last.low > 0 and last.weight < 10.0 * _RARE)
    if apart and rare and (seen <= 0.875 or last.weight == 1.0):
        return _group_pairs(mechanism, upper, seen, adjacency)
    lower = law_of(cells, above=False)
    above = _group_pairs(mechanism, upper, min(1.0, seen * (1.0 + _ROUNDED)), adjacency)
    below = _group_pairs(mechanism, lower, _seen(lower) * (1.0 - _ROUNDED), adjacency)
    return between(below, above)


def _group_pairs(
    mechanism: Mechanism,
    law: dict[int, float],
    seen: float,
    adjacency: str,
) -> Pairs:
    sizes = [size for size in law if size]
    if not sizes or seen == 0.0:
        return both(NOTHING)
    all_seen, shift = _seen(law), shift_of(adjacency)
    bases = [base_pair(mechanism, size * shift, size) for size in sizes]
    weights = [law[size] / all_seen for size in sizes]
    weights[weights.index(max(weights))] += 1.0 - math.fsum(weights)  # rounding is no loss of +inf
    pair = bases[0] if len(bases) == 1 else _core.mixture_pair(bases, weights)
    if seen == 1.0:
        return both(pair)
    if if_sampled(mechanism, adjacency) == "replace_one":
        return both(_core.sampled_pair(pair, seen, "replace_one"))
    return sampled(both(pair), seen)
