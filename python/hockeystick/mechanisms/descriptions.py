"""Descriptions of mechanisms, sampling schemes and their composition.

Everything here is frozen, hashable and cheap: a description states *what* is released, `account`
computes what it costs. Descriptions compose with ``*`` and ``+``; equal steps merge.

>>> step = PoissonSampled(Gaussian(noise_multiplier=1.0), sampling_probability=0.01)
>>> step * 600 + Laplace(scale=20.0) + 400 * step == step * 1000 + Laplace(scale=20.0)
True
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from .._base.randomness import Seed
from .._base.validation import MAX_COUNT, ParameterError, ParameterTypeError, boolean, choice, integer, real
from ..sampling.batches import BatchSampler
from ..sampling.laws import MAX_STEPS, Law


class Composable:
    """Anything that can be composed: ``a * steps``, ``steps * a``, ``a + b`` and ``sum([a, b])``.

    Adaptive composition is covered: each step may be chosen after seeing the earlier outputs, as
    long as its description was fixed beforehand.
    """

    # Makes numpy integers defer to __rmul__ instead of building an object array.
    __array_ufunc__ = None

    def as_process(self) -> Process:
        """Return the composition this object stands for."""
        raise NotImplementedError

    def batches(
        self,
        dataset_size: int | None = None,
        seed: Seed = None,
        shard: tuple[int, int] = (0, 1),
        *,
        pad: bool = False,
    ) -> BatchSampler:
        """Return the batches of these steps, if all of them sample alike; see `BatchSampler`.

        ``dataset_size`` may be left out where the description has one. ``pad`` fills batches up to
        ``max_batch_size``. ParameterError is raised for unsampled mechanisms, and for steps that differ: their order
        is not part of the description.

        >>> steps = WithoutReplacement(Gaussian(1.0), batch_size=3, dataset_size=10) * 100
        >>> [len(batch) for batch in steps.batches()] == [3] * 100
        True
        """
        return BatchSampler(self, self._batch_law(), dataset_size, seed, shard, pad)

    def _batch_law(self) -> Law:
        process = self.as_process()
        if len(process) != 1:
            raise ParameterError(
                f"process = {process}: must be one sampled mechanism, repeated; draw the batches of each part alone"
            )
        ((step, count),) = process
        law = step._batch_law_of(integer("steps", count, 1, MAX_STEPS))
        if law is None:
            raise ParameterError(
                f"step = {step!r}: has no batches to draw; must be PoissonSampled, TruncatedPoissonSampled, "
                "WithoutReplacement or WithReplacement"
            )
        return law

    def __mul__(self, steps: Any) -> Process:
        count = integer("steps", steps)
        return Process([(step, k * count) for step, k in self.as_process()])

    __rmul__ = __mul__

    def __add__(self, other: Any) -> Process:
        if isinstance(other, int) and not isinstance(other, bool) and other == 0:
            return self.as_process()  # the start value of sum()
        if not isinstance(other, Composable):
            return NotImplemented
        return self.as_process()._with(other.as_process())

    __radd__ = __add__


class Step(Composable):
    """One release: a mechanism, or a mechanism run on a sampled batch."""

    def as_process(self) -> Process:
        """Return the composition that consists of this single step."""
        return Process([(self, 1)])

    def is_unsampled(self) -> bool:
        """Whether it is computed from all records, so that a sampling scheme may wrap around it."""
        return False

    def _batch_law_of(self, steps: int) -> Law | None:
        return None


class Mechanism(Step):
    """One release computed from all records; sampling schemes wrap around it."""

    def is_unsampled(self) -> bool:
        """Always true."""
        return True


def set_fields(instance: object, **values: object) -> None:
    """Store checked values in a frozen dataclass."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


@dataclass(frozen=True)
class Gaussian(Mechanism):
    """Gaussian noise on a vector-valued sum.

    Output f(D) + N(0, (noise_multiplier * Delta)^2 I), where Delta is the L2 sensitivity of the
    *sum* when one record is added or removed (for DP-SGD the clipping norm, before any averaging).
    ``noise_multiplier`` >= 0; 0 means no noise, and an infinite epsilon.

    >>> Gaussian(noise_multiplier=1.1)
    Gaussian(noise_multiplier=1.1)
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        set_fields(self, noise_multiplier=real("noise_multiplier", self.noise_multiplier, 0.0))


@dataclass(frozen=True)
class Laplace(Mechanism):
    """Laplace noise on a real-valued query.

    Density exp(-|x|/scale) / (2 scale), ``scale`` > 0 in units of the query's sensitivity when one
    record is added or removed; (1/scale)-DP under add/remove. For a vector query with bounded L1
    sensitivity use PureDP(1/scale).
    """

    scale: float

    def __post_init__(self) -> None:
        set_fields(self, scale=real("scale", self.scale, 0.0, open_low=True))


MOST_SCALE, MOST_SENSITIVITY = 1e12, 2**50
"""Of noise on the integers: what carries mass, up to 720 scales beyond twice the sensitivity, is then an exact double."""


@dataclass(frozen=True)
class DiscreteLaplace(Mechanism):
    """Discrete Laplace (two-sided geometric) noise on an integer query.

    Pr[t] proportional to exp(-|t|/scale), t integer; ``scale`` in (0, 1e12] in units of the query, whose
    change when one record is added or removed is at most the integer ``sensitivity`` in [1, 2^50].
    """

    scale: float
    sensitivity: int = 1

    def __post_init__(self) -> None:
        set_fields(
            self,
            scale=real("scale", self.scale, 0.0, MOST_SCALE, open_low=True),
            sensitivity=integer("sensitivity", self.sensitivity, 1, MOST_SENSITIVITY),
        )


@dataclass(frozen=True)
class DiscreteGaussian(Mechanism):
    """Discrete Gaussian noise on an integer query (Canonne, Kamath, Steinke 2020).

    Pr[t] proportional to exp(-t^2 / (2 sigma^2)), t integer; ``sigma`` in (0, 1e12] in units of the query,
    whose change when one record is added or removed is at most the integer ``sensitivity`` in [1, 2^50].
    """

    sigma: float
    sensitivity: int = 1

    def __post_init__(self) -> None:
        set_fields(
            self,
            sigma=real("sigma", self.sigma, 0.0, MOST_SCALE, open_low=True),
            sensitivity=integer("sensitivity", self.sensitivity, 1, MOST_SENSITIVITY),
        )


@dataclass(frozen=True)
class RandomizedResponse(Mechanism):
    """Report the true one of ``num_categories`` values with probability e^epsilon / (e^epsilon + k - 1).

    Each of the other k - 1 values is reported with probability 1 / (e^epsilon + k - 1).
    ``epsilon`` >= 0, ``num_categories`` >= 2. The guarantee is taken to hold between any two
    inputs, hence under every adjacency. With ``uniform_null`` a null record reports a value drawn
    uniformly at random, and adjacency "zero_out" compares with that instead of with any other value.
    """

    epsilon: float
    num_categories: int = 2
    uniform_null: bool = False

    def __post_init__(self) -> None:
        set_fields(
            self,
            epsilon=real("epsilon", self.epsilon, 0.0),
            num_categories=integer("num_categories", self.num_categories, 2),
            uniform_null=boolean("uniform_null", self.uniform_null),
        )


@dataclass(frozen=True)
class PureDP(Mechanism):
    """Any mechanism known to be ``epsilon``-DP, and nothing else known about it.

    The declared guarantee must hold under the adjacency asked for; inside a sampling scheme, it
    must hold under add/remove too. Accounted by the worst case, binary randomized response
    (Kairouz, Oh, Viswanath 2015, Theorem 3.3).
    """

    epsilon: float

    def __post_init__(self) -> None:
        set_fields(self, epsilon=real("epsilon", self.epsilon, 0.0))


@dataclass(frozen=True)
class ApproximateDP(Mechanism):
    """Any mechanism known to be (``epsilon``, ``delta``)-DP, and nothing else known about it.

    As for PureDP, the declaration must hold under the adjacency asked for, and inside a sampling
    scheme under add/remove too. Accounted by the worst case: with probability delta the data are
    revealed, otherwise randomized response (Kairouz, Oh, Viswanath 2015, Theorem 3.3).
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        set_fields(
            self,
            epsilon=real("epsilon", self.epsilon, 0.0),
            delta=real("delta", self.delta, 0.0, 1.0),
        )


def _mechanism(value: object) -> Step:
    if not isinstance(value, Step) or not value.is_unsampled():
        raise ParameterTypeError(
            f"mechanism = {value!r}: must be an unsampled mechanism "
            f"(Gaussian, Laplace, ... or a mixture of them), not {type(value).__name__}"
        )
    return value


@dataclass(frozen=True)
class PoissonSampled(Step):
    """The mechanism on a batch that contains each record independently with ``sampling_probability``.

    Not what shuffling or a fixed batch size does. 0 contributes nothing, 1 is the unsampled
    mechanism.
    """

    mechanism: Step
    sampling_probability: float

    def __post_init__(self) -> None:
        _mechanism(self.mechanism)
        set_fields(
            self,
            sampling_probability=real("sampling_probability", self.sampling_probability, 0.0, 1.0),
        )

    def _batch_law_of(self, steps: int) -> Law:
        return Law("poisson", steps, {"sampling_probability": self.sampling_probability})


PAIRS = ("sound", "koskela2020")


def _fixed_size(scheme: WithoutReplacement | WithReplacement, largest_batch: int) -> None:
    mechanism = _mechanism(scheme.mechanism)
    dataset_size = integer("dataset_size", scheme.dataset_size, 1)
    batch_size = integer("batch_size", scheme.batch_size, 1, largest_batch)
    pair = choice("pair", scheme.pair, PAIRS)
    if pair == "koskela2020" and not isinstance(mechanism, Gaussian):
        raise ParameterError(
            f"pair = {pair!r}: defined for Gaussian only, use pair='sound' for {mechanism!r}"
        )
    set_fields(scheme, dataset_size=dataset_size, batch_size=batch_size)


@dataclass(frozen=True)
class WithoutReplacement(Step):
    """The mechanism on a uniformly random batch of ``batch_size`` of the ``dataset_size`` records.

    Accounted under adjacency "replace_one" only. ``pair="sound"`` (default) is a guarantee.
    ``pair="koskela2020"`` (Gaussian only) is the pair of Koskela, Jalko and Honkela 2020,
    Section 6.2, for reproducing that paper: it treats the other records of the batch as fixed,
    which they are not, so it is NOT a guarantee. See docs/mechanisms/replacement.md.
    """

    mechanism: Step
    batch_size: int
    dataset_size: int
    pair: str = "sound"

    def __post_init__(self) -> None:
        _fixed_size(self, integer("dataset_size", self.dataset_size, 1))

    def _batch_law_of(self, steps: int) -> Law:
        return Law("without_replacement", steps, {"batch_size": self.batch_size}, self.dataset_size)


@dataclass(frozen=True)
class WithReplacement(Step):
    """The mechanism on ``batch_size`` independent uniform draws from the ``dataset_size`` records.

    A record may enter the batch several times. Accounted under adjacency "replace_one" only;
    ``pair`` as in WithoutReplacement ("koskela2020": Section 6.3, NOT a guarantee).
    """

    mechanism: Step
    batch_size: int
    dataset_size: int
    pair: str = "sound"

    def __post_init__(self) -> None:
        _fixed_size(self, MAX_COUNT)

    def _batch_law_of(self, steps: int) -> Law:
        return Law("with_replacement", steps, {"batch_size": self.batch_size}, self.dataset_size)


Items: TypeAlias = tuple[tuple[Step, int], ...]


@dataclass(frozen=True, init=False, eq=False)
class Process(Composable):
    """A composition: steps with their counts, equal steps merged, order irrelevant to equality.

    ``items`` is a tuple of (step, count), count >= 1, in the order of first appearance; an empty
    process releases nothing. Iterating yields the items; ``steps`` is the total count.

    >>> process = Gaussian(2.0) * 3 + Laplace(1.0) + Gaussian(2.0)
    >>> list(process)
    [(Gaussian(noise_multiplier=2.0), 4), (Laplace(scale=1.0), 1)]
    >>> sum([Laplace(1.0), Gaussian(2.0) * 4]) == process
    True
    """

    items: Items
    _counts: ClassVar[dict[Step, int]]  # the same as a dictionary; of the instance, but no field

    def __init__(self, items: Iterable[tuple[Step, int]] = ()) -> None:
        self._add({}, items)

    def _add(self, counts: dict[Step, int], items: Iterable[tuple[Step, int]]) -> None:
        for step, count in items:
            if not isinstance(step, Step):
                raise ParameterTypeError(
                    f"step = {step!r}: must be a mechanism or a sampled mechanism, not {type(step).__name__}"
                )
            if integer("steps", count):
                counts[step] = integer("steps", counts.get(step, 0) + count)
        set_fields(self, items=tuple(counts.items()), _counts=counts)

    def _with(self, other: Process) -> Process:
        # A copy of the dictionary hashes nothing anew: long sums are not quadratic in hashes.
        process = object.__new__(Process)
        process._add(self._counts.copy(), other.items)
        return process

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Process):
            return NotImplemented
        return dict(self.items) == dict(other.items)

    def __hash__(self) -> int:
        return hash(frozenset(self.items))

    def __iter__(self) -> Iterator[tuple[Step, int]]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    @property
    def steps(self) -> int:
        """Total number of steps."""
        return sum(count for _, count in self.items)

    def as_process(self) -> Process:
        """Return itself."""
        return self

    def __str__(self) -> str:
        return " + ".join(f"{step!r} * {count}" for step, count in self.items) or "nothing"


def composition(value: object, name: str = "process") -> Process:
    """Return ``value`` as a Process, or raise ParameterTypeError."""
    if not isinstance(value, Composable):
        raise ParameterTypeError(
            f"{name} = {value!r}: must be a mechanism, a sampled mechanism or a composition "
            f"of them, not {type(value).__name__}"
        )
    return value.as_process()
