"""What every description shares: how it composes, what a step says of itself to the rooms that use it, and its form as JSON.

Everything here is frozen, hashable and cheap: a description states *what* is released, `account`
computes what it costs. Descriptions compose with ``*`` and ``+``; equal steps merge.

>>> import hockeystick as hs
>>> step = hs.PoissonSampled(hs.Gaussian(noise_multiplier=1.0), sampling_probability=0.01)
>>> step * 600 + hs.Laplace(scale=20.0) + 400 * step == step * 1000 + hs.Laplace(scale=20.0)
True

What a step is asked, and by whom (nobody outside this package needs to):

- `account`, through `mechanisms.adjacency`: ``check_adjacency``, ``simplified``, ``pairs``, ``unsampled_mu``;
- steps that are made of it (sampled, mixed, of users): ``is_unsampled``, ``may_be_sampled``, ``sampled_by``, ``alternatives``, ``null_is_none``;
- bounds where it is rarely seen or cut: ``participation``, ``if_seen``, ``cut_probability``, ``uncut``;
- reports and plans: ``words``, ``releases``.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, TypeAlias, cast

from .. import _core
from .._base.bounds import Shown
from .._base.randomness import Seed
from .._base.validation import (
    ParameterError,
    ParameterTypeError,
    built,
    check_fields,
    check_keys,
    entries,
    instance,
    integer,
    shown,
    two,
)
from ..sampling.batches import BatchSampler
from ..sampling.laws import MAX_STEPS, Law
from .core_pairs import Pairs, both

if TYPE_CHECKING:
    from .selection import Repetitions


class ExactGuarantee(NamedTuple):
    """(epsilon, delta)-DP, not rounded: these add up (basic composition)."""

    epsilon: Fraction
    delta: Fraction = Fraction(0)


class Composable(Shown):
    """Anything that can be composed: ``a * steps``, ``steps * a``, ``a + b`` and ``sum([a, b])``.

    Adaptive composition is covered: each step may be chosen after seeing the earlier outputs, as
    long as its description was fixed beforehand.
    """

    # Makes numpy integers defer to __rmul__ instead of building an object array.
    __array_ufunc__ = None

    stored: ClassVar[bool] = False
    """Whether `to_dict` writes its subclasses down, by their names and fields."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.stored and not cls.__name__.startswith("_"):
            KINDS.setdefault(cls.__name__, cls)

    def __post_init__(self) -> None:
        check_fields(self)

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

        >>> import hockeystick as hs
        >>> steps = hs.WithoutReplacement(hs.Gaussian(1.0), batch_size=3, dataset_size=10) * 100
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
                f"step = {step!r}: has no batches to draw; must be PoissonSampled (also UserLevel), TruncatedPoissonSampled, "
                "WithoutReplacement, WithReplacement or RandomAllocation"
            )
        return law

    def __mul__(self, steps: Any) -> Process:
        count = integer("steps", steps)
        return Process([(step, k * count) for step, k in self.as_process().given])

    __rmul__ = __mul__

    def __add__(self, other: Any) -> Process:
        if isinstance(other, int) and not isinstance(other, bool) and other == 0:
            return self.as_process()  # the start value of sum()
        if not isinstance(other, Composable):
            return NotImplemented
        return self.as_process()._with(other.as_process())

    __radd__ = __add__


KINDS: dict[str, type[Any]] = {}
"""What `from_dict` makes of each name."""


class Words(NamedTuple):
    """What a report says of a step: what its noise is measured in, how it is sampled, the theorem its pair rests on.

    ``caveat`` is added to the sampling where the pair is no guarantee. ``compared_sizes``: records of the larger of two
    datasets that differ by one, where the guarantee depends on it. ``examples_per_user``: what one user may own. ``kept``: what stays as
    it is where a record is added or removed, if that is more than all other records.
    """

    noise: str
    sampler: str | None = None
    reference: str | None = None
    caveat: str = ""
    compared_sizes: tuple[int, ...] = ()
    examples_per_user: int = 1
    kept: str = ""


class Step(Composable):
    """One release: a mechanism, or a mechanism run on a sampled batch.

    What the accounting, the reports and the serial form have to know of a step are methods and attributes of its
    class; those here are right for most. A new one must have `pairs`, and `noise_convention`.
    """

    stored = True
    noise_convention: ClassVar[str] = ""
    """What its noise or its guarantee is measured in."""
    reference: ClassVar[str | None] = None
    """The theorem that its pair rests on."""

    def as_process(self) -> Process:
        """Return the composition that one use is accounted as: mostly that of this single step."""
        return Process([(self, 1)])

    def parts(self) -> Items:
        """The steps that one use is accounted as, with their counts, where these are not the step itself; a `Process` has them in its place."""
        return ((self, 1),)

    independent: ClassVar[bool] = False
    """Whether each record is in its batch by a coin of its own."""
    repeats: ClassVar[bool] = False
    """Whether its batch may hold several records of what is protected, or one several times."""

    def is_unsampled(self) -> bool:
        """Whether it is computed from all records."""
        return False

    def may_be_sampled(self, scheme: Step) -> bool:
        """Whether ``scheme`` may wrap around it."""
        return self.is_unsampled()

    def _batch_law_of(self, steps: int) -> Law | None:
        return None

    # How it is accounted.

    def check_adjacency(self, adjacency: str) -> None:
        """Raise ParameterError if it cannot be accounted under ``adjacency``."""

    def alternatives(self) -> list[Step]:
        """The steps that one use may turn out to be, none of them a choice any more."""
        return [self]

    def sampled_by(self, scheme: Step) -> Step:
        """``scheme``, whose mechanism this is: a sampled choice is a choice between sampled mechanisms."""
        return scheme

    def simplified(self) -> Step | None:
        """The same release without a scheme that always sees the record, that cuts nothing, or that wraps a choice.

        None if the output does not depend on the record at all.
        """
        return self

    def pairs(self, adjacency: str) -> Pairs:
        """The dominating pairs of the step, which is `simplified`."""
        raise NotImplementedError

    def guarantee(self, adjacency: str) -> ExactGuarantee | None:
        """The (epsilon, delta) that it was declared to have, or pure DP, exactly: sums are then rounded once, and a budget can be spent to its end."""
        return None

    def unsampled_mu(self, shift: float) -> float | None:
        """mu of the step as if it were never sampled, the query moved by ``shift``; None if its noise is not Gaussian."""
        return None

    @property
    def releases(self) -> int:
        """How many noisy sums one use releases."""
        return 1

    # What sampling around it means.

    @property
    def participation(self) -> float:
        """At least the probability that one use sees the record."""
        return 1.0

    def if_seen(self) -> Step:
        """What one use that sees the record is no worse than."""
        return self

    has_closed_form: ClassVar[bool] = True
    """Whether delta of a single use needs no engine."""

    @property
    def cut_probability(self) -> float:
        """At least the probability that a batch is cut to its maximum size."""
        return 0.0

    def uncut(self) -> Step:
        """The same step with no maximum batch size."""
        return self

    # What a report says.

    def words(self, adjacency: str) -> Words:
        """What a report says of it, when it is no choice."""
        return Words(self.noise_convention, reference=self.reference)


class Mechanism(Step):
    """One release computed from all records; sampling schemes wrap around it. A new one must have `symmetric_pair`."""

    @property
    def null_is_none(self) -> bool:
        """Whether a null record does what no record does, as one that contributes zero to a sum; else one that is sampled may do a third thing."""
        return True

    def is_unsampled(self) -> bool:
        """Always true."""
        return True

    def symmetric_pair(self, shift: int, group: int) -> _core.Pair:
        """Dominating pair, its own reverse; use `base_pair`, which keeps what it has computed.

        Noise on a numeric query: the query moves by ``shift`` times its add/remove sensitivity.
        Declared guarantees: ``group`` records change, so epsilon becomes group * epsilon (and delta
        becomes delta (e^{group eps} - 1) / (e^eps - 1)).
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no symmetric_pair; outside of this package a mechanism is described by its two output "
            "distributions (FinitePair), privacy losses (PrivacyLoss) or guarantees (mechanisms.DeclaredProfile)"
        )

    def pairs(self, adjacency: str) -> Pairs:
        """Both directions are the same pair."""
        return both(base_pair(self, shift_of(adjacency)))

    def poisson_replaced(self, q: float) -> _core.Pair:
        """Poisson sampling, one record replaced, or by a null record that is not as none (docs/mechanisms/replacement.md, section 5).

        Numeric noise: (1-q) N(0) + q N(1) against (1-q) N(0) + q N(-1). Here, for all else, advanced joint
        convexity, which needs the guarantee under add/remove and replace-one alike.
        """
        return _core.sampled_pair(base_pair(self, 2), q, "replace_one")


@functools.lru_cache(maxsize=16)
def base_pair(mechanism: Mechanism, shift: int, group: int = 1) -> _core.Pair:
    """`Mechanism.symmetric_pair`, kept: it may have many atoms, and several steps may use the same."""
    return mechanism.symmetric_pair(shift, group)


def if_sampled(mechanism: Mechanism, adjacency: str) -> str:
    """The adjacency that ``mechanism`` is accounted under where records are sampled independently: "zero_out" may be a replacement."""
    replaces = adjacency == "zero_out" and not mechanism.null_is_none
    return "replace_one" if replaces else adjacency


def shift_of(adjacency: str) -> int:
    """How far one record moves a sum of sensitivity 1: replacing is removing and adding."""
    return 2 if adjacency == "replace_one" else 1


def set_fields(instance: object, **values: object) -> None:
    """Store checked values in a frozen dataclass."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


Items: TypeAlias = tuple[tuple[Step, int], ...]


@dataclass(frozen=True, init=False, eq=False)
class Process(Composable):
    """A composition: steps with their counts, equal steps merged, order irrelevant to equality.

    ``items`` is a tuple of (step, count), count >= 1, in the order of first appearance, where a step that stands for several
    (`RandomAllocation` with ``participations``, or a run that they dominate) is these, as it is in ``given``; an empty process releases
    nothing. Iterating yields the items; ``steps`` is their total count.

    >>> from hockeystick import Gaussian, Laplace
    >>> process = Gaussian(2.0) * 3 + Laplace(1.0) + Gaussian(2.0)
    >>> list(process)
    [(Gaussian(noise_multiplier=2.0), 4), (Laplace(scale=1.0), 1)]
    >>> sum([Laplace(1.0), Gaussian(2.0) * 4]) == process
    True
    """

    items: Items
    _counts: ClassVar[dict[Step, int]]  # the same as a dictionary; of the instance, but no field
    _runs: ClassVar[dict[Step, int]]  # what stands for several of them

    def __init__(self, items: Iterable[tuple[Step, int]] = ()) -> None:
        pairs = entries("items", items, "pairs (step, count)")
        for i, pair in enumerate(pairs):
            two(f"items[{i}]", pair, "a pair (step, count)")
        self._add({}, {}, pairs)

    def _add(self, counts: dict[Step, int], runs: dict[Step, int], items: Iterable[tuple[Step, int]]) -> None:
        for step, count in items:
            instance("step", step, Step, A_STEP)
            if times := integer("steps", count):
                parts = step.parts()
                if parts != ((step, 1),):
                    runs[step] = integer("steps", runs.get(step, 0) + times)
                for part, uses in parts:
                    counts[part] = integer("steps", counts.get(part, 0) + times * uses)
        set_fields(self, items=tuple(counts.items()), _counts=counts, _runs=runs)

    def _with(self, other: Process) -> Process:
        # A copy of the dictionary hashes nothing anew: long sums are not quadratic in hashes.
        process = object.__new__(Process)
        process._add(self._counts.copy(), self._runs.copy(), other.given)
        return process

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Process):
            return NotImplemented
        return dict(self.items) == dict(other.items)

    def __hash__(self) -> int:
        return hash(frozenset(self.items))

    @property
    def given(self) -> Items:
        """The items as they were described: what stands for several of them first, then the others."""
        if not self._runs:
            return self.items
        left = self._counts.copy()
        for run, count in self._runs.items():
            for part, uses in run.parts():
                left[part] -= count * uses
        return (*self._runs.items(), *((step, count) for step, count in left.items() if count))

    def __iter__(self) -> Iterator[tuple[Step, int]]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    @property
    def steps(self) -> int:
        """Total number of steps."""
        return sum(count for _, count in self.items)

    @property
    def releases(self) -> int:
        """How many noisy sums were described."""
        return sum(count * step.releases for step, count in self.given)

    def as_process(self) -> Process:
        """Return itself."""
        return self

    def alternatives(self) -> list[Step]:
        """The steps that its steps may turn out to be, none of them a choice any more."""
        return [part for step, _ in self.items for part in step.alternatives()]

    def described(self) -> list[Step]:
        """The same of the steps that were given, whatever they are accounted as."""
        return [part for step, _ in self.given for part in step.alternatives()]

    def words(self, adjacency: str) -> Words:
        """What a report says of all of it as one step, with all that its guarantee depends on."""
        found = [part.words(adjacency) for part in self.described()]
        drawn = dict.fromkeys(part.sampler + part.caveat for part in found if part.sampler)
        return Words(
            "; ".join(dict.fromkeys(part.noise for part in found)),
            ", ".join(drawn) or None,
            compared_sizes=tuple(dict.fromkeys(size for part in found for size in part.compared_sizes)),
            examples_per_user=min((part.examples_per_user for part in found), default=1),
            kept=next((part.kept for part in found if part.kept), ""),
        )

    def _shown(self) -> list[tuple[str, Any]]:
        return [(str(step), f"× {count}") for step, count in self.given]

    def __repr__(self) -> str:
        return f"Process(items={self.given!r})"

    def __str__(self) -> str:
        return written(self.given)


KINDS["Process"] = Process


def written(items: Items) -> str:
    """Steps with their counts, as a sum."""
    return " + ".join(f"{step!r} * {count}" for step, count in items) or "nothing"


def composition(value: object, name: str = "process") -> Process:
    """Return ``value`` as a Process, or raise ParameterTypeError."""
    wanted = "a mechanism, a sampled mechanism or a composition of them"
    return instance(name, value, Composable, wanted).as_process()


A_STEP = "a mechanism or a sampled mechanism"

Release: TypeAlias = Annotated[Composable, lambda name, value: composition(value, name)]
"""Of a field: whatever can be composed, kept as a composition."""


def to_dict(description: Composable | Repetitions) -> dict[str, Any]:
    """A description as nested dicts of JSON values; `from_dict` is its inverse.

    >>> from hockeystick import Gaussian, PureDP
    >>> to_dict(Gaussian(2.0))
    {'type': 'Gaussian', 'noise_multiplier': 2.0}
    >>> from_dict(to_dict(Gaussian(2.0) * 3 + PureDP(0.1))) == Gaussian(2.0) * 3 + PureDP(0.1)
    True
    """
    if isinstance(description, Process):
        items = [{"step": to_dict(step), "count": count} for step, count in description.given]
        return {"type": "Process", "items": items}
    kind = type(description)
    if KINDS.get(kind.__name__) is not kind:
        raise ParameterTypeError(f"description = {shown(description)}: cannot store a {kind.__name__}")
    kept = [entry.name for entry in fields(description) if entry.init]  # type: ignore[arg-type]
    return {"type": kind.__name__, **{name: _plain(getattr(description, name)) for name in kept}}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    return to_dict(value) if is_dataclass(value) else value  # type: ignore[arg-type]


def _rebuilt(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_rebuilt(entry) for entry in value)
    return from_dict(value) if isinstance(value, dict) else value


def from_dict(plain: Any) -> Composable:
    """Rebuild a description; every value is validated again. Raises ParameterError or ParameterTypeError."""
    importlib.import_module(".descriptions", __package__)  # each file of it adds its kinds
    plain = instance("description", plain, dict, "a dictionary with a type")
    if plain.get("type") != "Process":
        return cast(
            Composable, built("description", {key: _rebuilt(value) for key, value in plain.items()}, KINDS)
        )
    check_keys("description", plain, ["type", "items"])
    items = []
    for index, item in enumerate(instance("items", plain["items"], list, "a list")):
        check_keys(f"items[{index}]", item, ["step", "count"])
        items.append((cast(Step, from_dict(item["step"])), integer("count", item["count"])))
    return Process(items)
