"""What every sampling scheme can do: its losses, whom it protects, its batches, its stored form (docs/montecarlo/estimates.md)."""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from .. import _core
from .._base.bounds import Shown
from .._base.randomness import Seed
from .._base.types import Array, Self
from .._base.validation import ParameterError, built, check_fields, integer
from ..mechanisms.adjacency import COUNTS_DIFFER
from ..mechanisms.descriptions import Process
from ..sampling.attribution import AttributionGraph
from ..sampling.batches import BatchSampler
from ..sampling.laws import MAX_STEPS, Law, check_owners
from .strategy import Strategy


@dataclass(frozen=True)
class Scheme(Shown):
    """A sampling scheme over ``steps`` iterations; the subclasses are frozen and hashable dataclasses.

    What a scheme can do is a method here: a new one is a subclass, and nothing else asks which it is but importance sampling (`montecarlo.truncation`).
    """

    steps: Annotated[int, functools.partial(integer, low=1, high=MAX_STEPS)]

    _law_kind: ClassVar[str]
    """The kind of `Law` that its batches follow, with the fields of the same names."""

    _taking_part: ClassVar[str] = ""
    """How an example takes part, in words that name its fields."""

    truncates: ClassVar[bool] = False
    """Whether batches are cut: then what protects an example are the others sampled, whose numbers are public."""

    is_analytic: ClassVar[bool] = False
    """Whether participations meet different rows of the output, each with its own coin: `composition` is for these."""

    _unless_default: ClassVar[tuple[str, ...]] = ()
    """Fields that are stored and shown only where they say something: files and fingerprints of older plans have never had them."""

    _kinds: ClassVar[dict[str, type[Scheme]]] = {}

    def __init_subclass__(cls) -> None:
        if not cls.__name__.startswith("_"):
            Scheme._kinds[cls.__name__] = cls

    def __post_init__(self) -> None:
        check_fields(self)

    def first_steps(self, steps: int) -> Self:
        """Return the same scheme for so many steps."""
        return replace(self, steps=steps)

    @property
    def description(self) -> Any:
        """What it was made of: usually itself."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the scheme as a dict of JSON values; `from_dict` is its inverse.

        >>> from hockeystick import BallsInBins
        >>> BallsInBins(100, 10).to_dict()
        {'type': 'BallsInBins', 'steps': 100, 'bins': 10}
        """
        values = ((entry, getattr(self, entry.name)) for entry in fields(self))
        said = {
            f.name: value for f, value in values if f.name not in self._unless_default or value != f.default
        }
        return {"type": type(self).__name__, **said}

    def __repr__(self) -> str:
        named = ", ".join(f"{name}={value!r}" for name, value in self.to_dict().items() if name != "type")
        return f"{type(self).__name__}({named})"

    @staticmethod
    def from_dict(plain: Mapping[str, Any]) -> Scheme:
        """Rebuild a scheme; every value is validated again. Raises ParameterError or ParameterTypeError."""
        importlib.import_module(".min_sep", __package__)  # which imports all others
        return built("scheme", plain, Scheme._kinds)

    def largest_bands(self) -> int:
        """Return how many bands a strategy may have at most: participations must not overlap."""
        raise NotImplementedError

    def no_participation_log_probability(self) -> float:
        """Return ln p_0, p_0 the probability that an example never takes part, rounded down; -inf for p_0 = 0.

        Where Q is the output without the example, ln P/Q >= ln p_0 everywhere, so H_{e^eps}(Q||P) = 0 for
        eps >= -ln p_0. -inf, as here, says nothing: of `TruncatedBMinSep` Q is a mixture too, and there is no such bound.
        """
        return -math.inf

    def worst_cases(self) -> tuple[Scheme, ...]:
        """Return the schemes whose largest divergence is the guarantee; usually only the scheme itself."""
        return (self,)

    def has_composition(self, strategy: Strategy) -> bool:
        """Return whether `composition` has an answer for this strategy."""
        return self.is_analytic

    def composition(self, strategy: Strategy, noise_multiplier: float) -> Process:
        """Return the composition of sampled Gaussians that dominates it; ParameterError where participations are correlated."""
        raise ParameterError(
            f"scheme = {type(self).__name__}: has no composition in closed form; use calibrate_bandmf "
            "for a guarantee, estimate_delta for an estimate"
        )

    def losses_are_exact(self, strategy: Strategy) -> bool:
        """Return whether some example has the losses that are drawn, and not only smaller ones: else nothing is known from below."""
        return True

    def unamplified(self) -> tuple[int, int]:
        """Return the least distance of two participations, and how far the input of one step may move."""
        raise NotImplementedError

    def cyclic_rate(self) -> float | None:
        """Return the participation rate with which cyclic Poisson sampling may stand in for it; None if it may not."""
        return None

    def half_space_width(self, bands: int) -> int | None:
        """Return how many numbers per step the search for a half space takes; None where there is no such search."""
        return bands + 1

    def seen_as(self, strategy: Strategy) -> tuple[Array, int]:
        """Return the columns and the number of steps of the strategy whose losses are to be drawn."""
        return np.ascontiguousarray(strategy._columns(), np.float64), strategy.steps

    def seen_outputs(self, strategy: Strategy, outputs: Array) -> Array:
        """Return outputs of ``strategy`` as those of `seen_as`."""
        return outputs

    def _core(self) -> _core.Scheme:
        raise NotImplementedError

    def examples_of_users(self) -> int | None:
        """Return how many examples a user may have, where users are what is protected; None: single examples are."""
        return None

    def adjacencies(self) -> tuple[str, ...]:
        """Return what neighbouring datasets may be.

        Where users are protected, all that they own is zeroed out. Where batches are cut, an example changes which others are kept, so
        that it must keep its place.
        """
        if self.examples_of_users() is not None:
            return ("zero_out",)
        kept = ("zero_out", "replace_one")
        return kept if self.truncates else (*kept, "add_or_remove", "add", "remove")

    def words(self) -> str:
        """Return how an example takes part, for the reports of what has a `composition`; "" where that says it itself."""
        more = ("group", "dataset_size", "max_batch_size")
        said = [f", {name} = {value}" for name in more if (value := getattr(self, name, None)) is not None]
        return self._taking_part.format(**vars(self)) + "".join(said) if self._taking_part else ""

    def regroups(self) -> bool:
        """Return whether one example less moves others into other groups, as places in the data tell which group an example is in."""
        return False

    def check_groups(self, adjacency: str) -> None:
        """Raise ParameterError where data sets of other sizes are neighbours, and the scheme `regroups`."""
        if adjacency in COUNTS_DIFFER and self.regroups():
            raise ParameterError(
                f'adjacency = {adjacency!r}: must be "zero_out" or "replace_one" for {type(self).__name__}, whose groups are by places in the '
                "data: without one example, all that follow it are in other groups, and many batches differ by more than that example"
            )

    def unit(self, covered: float = math.inf) -> str | None:
        """Return what neighbouring datasets differ in, in words, where users are protected; None: in an example.

        ``covered``: of how many examples what is released besides is accounted for.
        """
        examples = self.examples_of_users()
        if examples is None:
            return None
        return (
            f"all examples of one user, at most {min(examples, covered)}, are replaced by null records that contribute nothing; "
            "which example belongs to whom is public"
        )

    def check_data(self, dataset_size: int, graph: AttributionGraph | None) -> None:
        """Refuse what was not analysed: another number of examples, an example of nobody, a user with more examples."""
        same_size(self, dataset_size)
        allowed = self.examples_of_users()
        if allowed is None:
            return no_users(graph)
        if graph is None:
            raise ParameterError(
                f"graph = None: {type(self).__name__} for users needs to know whose the examples are"
            )
        if graph.num_examples != dataset_size:
            raise ParameterError(
                f"dataset_size = {dataset_size}: must be {graph.num_examples}, that of the graph (bounded, if it was)"
            )
        check_owners(graph, allowed)
        orphans = int(np.count_nonzero(graph.example_degrees() == 0))
        if orphans:
            raise ParameterError(
                f'graph: {orphans} examples belong to no user and would be protected for no one; bound(without_users="drop")'
            )

    def expected_batch_size(self, dataset_size: int, graph: AttributionGraph | None = None) -> float:
        """Return the mean number of examples in a batch (after a cold start: in the long run)."""
        return self._batch_law().expected_drawn(dataset_size)

    def batches(
        self,
        dataset_size: int | None = None,
        seed: Seed = None,
        shard: tuple[int, int] = (0, 1),
        *,
        pad: bool = False,
        graph: AttributionGraph | None = None,
        **law: Any,
    ) -> BatchSampler:
        """Return the batches of a run on ``dataset_size`` examples, drawn by this scheme; see `BatchSampler`.

        ``dataset_size`` may be left out where the scheme has one. ``pad`` fills batches up to ``max_batch_size``. ``graph``
        says who owns what, where users are protected; ParameterError is raised for one in which a user has more examples
        than were accounted (`AttributionGraph.bound` leaves so many; take the ``graph`` of a `BoundedAttribution`, whose
        ``examples[batch]`` are the indices in the dataset). ``law``: what else the scheme's class says about its batches.

        >>> from hockeystick import Poisson
        >>> sampler = Poisson(steps=3, sampling_probability=0.5).batches(dataset_size=8, seed=1)
        >>> [batch.tolist() for batch in sampler]
        [[4, 5, 6, 7], [0, 2, 3, 4, 6], [0, 1, 3, 4, 5, 7]]
        """
        return BatchSampler(self, self._batch_law(**law), dataset_size, seed, shard, pad, graph)

    def training_batches(self, dataset_size: int, seed: Seed, graph: AttributionGraph | None) -> BatchSampler:
        """Return the batches as a training run draws them, from a stationary state where the scheme has one."""
        return self.batches(dataset_size, seed, graph=graph)

    def _batch_law(self) -> Law:
        return Law.of(self._law_kind, self)


def same_size(described: object, dataset_size: int) -> None:
    """Refuse another number of examples than that of a description, if it has one."""
    known = getattr(described, "dataset_size", None)
    if known is not None and known != dataset_size:
        raise ParameterError(
            f"dataset_size = {dataset_size}: must be {known}, the number that the sampling is described with"
        )


def no_users(graph: AttributionGraph | None) -> None:
    """Refuse a graph where single examples are protected."""
    if graph is not None:
        raise ParameterError(
            "graph: only BMinSep with examples_per_user > 1 and MultiAttributionBMinSep protect users"
        )
