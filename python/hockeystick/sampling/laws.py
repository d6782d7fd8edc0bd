"""Laws of batches: what a file of batches needs to draw them again, whatever scheme or mechanism they were made for.

A law forgets what only the accounting knows (`RMinSep` and `BMinSep` draw alike) and knows what only the drawing does (batches that
were run ahead). docs/sampling/batches.md says how each is drawn, and how exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from .. import _core
from .._base.validation import (
    MAX_COUNT,
    ParameterError,
    ParameterTypeError,
    boolean,
    integer,
    narrowed,
)
from .attribution import AttributionGraph

MAX_STEPS = 2**31  # *limit*

_MAX_BATCH = 2**32
"""*Speed*: most examples in a batch, 32 GiB of indices."""

_MAX_KEPT = 2**32
"""*Proof*: examples that are remembered one by one are numbered in 32 bits."""

_MAX_PLACES = 2**27
"""*Speed*: most places of which a list of examples is kept."""

_Graph: TypeAlias = "AttributionGraph | None"


@dataclass(frozen=True)
class Law:
    """How batches are drawn: ``kind`` and parameters, JSON values, for so many ``steps``.

    ``dataset_size``: the only one it is defined for, if there is one. ``max_batch_size``: of larger batches a
    uniformly random choice is kept. ``conjectured``: its accounting is no guarantee.
    """

    kind: str
    steps: int
    parameters: Mapping[str, Any]
    dataset_size: int | None = None
    max_batch_size: int | None = None
    conjectured: bool = False

    @classmethod
    def of(cls, kind: str, scheme: Any, **options: Any) -> Law:
        """The law of this kind with the parameters that the scheme has under the same names, or that are given."""
        values = {name: options.get(name, getattr(scheme, name, None)) for name in _KINDS[kind].parameters}
        size, most = (getattr(scheme, name, None) for name in ("dataset_size", "max_batch_size"))
        return cls(kind, scheme.steps, values, size, most)

    def to_dict(self) -> dict[str, Any]:
        """JSON values, from which `from_dict` makes an equal law."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Law:
        """The law of which these are the values; ValueError, TypeError or KeyError for anything else."""
        if values["kind"] not in _KINDS:
            raise ParameterError(f"kind = {values['kind']!r}: must be one of {sorted(_KINDS)}")
        if set(values["parameters"]) != set(_KINDS[values["kind"]].parameters):
            raise ParameterError(f"parameters = {values['parameters']}: not those of {values['kind']}")
        return cls(
            str(values["kind"]),
            integer("steps", values["steps"], 0, MAX_STEPS),
            dict(values["parameters"]),
            values["dataset_size"],
            values["max_batch_size"],
            boolean("conjectured", values["conjectured"]),
        )

    @property
    def is_owned(self) -> bool:
        """Whether users are protected: who owns which example must be known."""
        return "examples_per_user" in self.parameters

    def allows(self, law: Law) -> bool:
        """Whether ``law`` is this one, or differs in options of ``batches`` alone."""
        parameters = dict(self.parameters)
        if "run_ahead" in parameters:
            parameters["run_ahead"] = law.parameters.get("run_ahead")
        return replace(self, parameters=parameters, conjectured=law.conjectured) == law

    def start(self, size: int, key: bytes, graph: _Graph) -> _core.BatchSampler:
        """The core's sampler of these batches, at the first step."""
        return _KINDS[self.kind].start(self, size, key, graph)

    def checked_size(self, dataset_size: Any, graph: Any) -> int:
        """The number of examples; an error for a dataset, or a graph of one, that the law is not for or the sampler cannot hold."""
        known = self.dataset_size if graph is None and not self.is_owned else self._checked_graph(graph)
        if dataset_size is None:
            if known is None:
                raise ParameterTypeError("dataset_size = None: must be an integer, the number of examples")
            size = known
        else:
            size = integer("dataset_size", dataset_size, 1, MAX_COUNT)
            if known is not None and size != known:
                raise ParameterError(f"dataset_size = {size}: must be {known}, as it was accounted")
        kind, values = _KINDS[self.kind], self.parameters
        if kind.places is not None:
            if size > _MAX_KEPT:
                raise ParameterError(
                    f"dataset_size = {size}: must be an integer in [1, 2^32] for {self.kind} batches"
                )
            if min(values[kind.places], self.steps) > _MAX_PLACES:
                raise ParameterError(
                    f"steps = {self.steps}: the smaller of steps and {values} must be at most 2^27 for {self.kind} batches"
                )
        expected = self.expected_drawn(size)
        if expected > _MAX_BATCH:
            raise ParameterError(
                f"dataset_size = {size}: {expected:.3g} examples would be sampled per step; must be at most 2^32"
            )
        return size

    def expected_drawn(self, size: int) -> float:
        """How many of so many examples are sampled in a step on average, whatever bars or cuts them afterwards."""
        values = self.parameters
        if "batch_size" in values:
            return float(values["batch_size"])
        if "bins" in values:
            return size / float(values["bins"])
        expected = size * float(values["sampling_probability"])
        return expected / values["min_sep"] if self.kind == "cyclic_poisson" else expected

    def _checked_graph(self, graph: Any) -> int:
        if self.is_owned != (graph is not None):
            raise ParameterTypeError(
                f"graph: must {'' if graph is None else 'not '}be given for {self.kind} batches"
            )
        if not isinstance(graph, AttributionGraph):
            raise ParameterTypeError(f"graph: must be an AttributionGraph, not {type(graph).__name__}")
        check_owners(graph, self.parameters["examples_per_user"])
        integer("number of examples", graph.num_examples, 1)
        if self.kind == "multi_attribution":
            graph.check_closed()
        return graph.num_examples


def check_owners(graph: AttributionGraph, allowed: int) -> None:
    """Refuse a graph in which a user has more examples than are accounted for."""
    most = int(graph.user_degrees().max(initial=0))
    if most > allowed:
        raise ParameterError(
            f"graph: a user has {most} examples, more than the {allowed} that are accounted for (examples_per_user); "
            "AttributionGraph.bound leaves so many"
        )


def law_of(description: object) -> Law:
    """The law of the batches of a scheme or mechanism; ParameterTypeError if it has none."""
    law = getattr(description, "_batch_law", None)
    if law is None:
        wanted = "must be a sampling scheme or a sampled mechanism"
        raise ParameterTypeError(f"description: {wanted}, not {type(description).__name__}")
    return narrowed(law(), Law)


def _poisson(law: Law, size: int, key: bytes, graph: _Graph) -> _core.BatchSampler:
    p, groups = law.parameters["sampling_probability"], law.parameters.get("min_sep", 1)
    return _core.BatchSampler.poisson(key, size, law.steps, law.max_batch_size, p, groups)


def _fixed(law: Law, size: int, key: bytes, graph: _Graph) -> _core.BatchSampler:
    replacement = law.kind == "with_replacement"
    return _core.BatchSampler.fixed(key, size, law.steps, None, law.parameters["batch_size"], replacement)


def _balls_in_bins(law: Law, size: int, key: bytes, graph: _Graph) -> _core.BatchSampler:
    redrawn = law.kind == "random_allocation"
    return _core.BatchSampler.balls_in_bins(key, size, law.steps, None, law.parameters["bins"], redrawn)


def _min_sep(law: Law, size: int, key: bytes, graph: _Graph) -> _core.BatchSampler:
    b, p, warm_start = (law.parameters[name] for name in _CHAIN)
    return _core.BatchSampler.min_sep(key, size, law.steps, law.max_batch_size, b, p, warm_start)


def _multi_attribution(law: Law, size: int, key: bytes, graph: _Graph) -> _core.BatchSampler:
    values, graph = law.parameters, narrowed(graph, AttributionGraph)  # `Law.checked_size` has seen it
    b, p, ahead = (values[name] for name in ("min_sep", "sampling_probability", "run_ahead"))
    owned = graph.offsets, graph.users, graph.num_users
    return _core.BatchSampler.multi_attribution(key, law.steps, owned, b, p, law.conjectured, ahead)


class _Kind(NamedTuple):
    """``places``: the parameter that says among how many places each example has its own, if the sampler remembers it."""

    start: Callable[[Law, int, bytes, _Graph], _core.BatchSampler]
    parameters: tuple[str, ...]
    places: str | None = None


_CHAIN = ("min_sep", "sampling_probability", "warm_start")
_KINDS = {
    "poisson": _Kind(_poisson, ("sampling_probability",)),
    "cyclic_poisson": _Kind(_poisson, ("min_sep", "sampling_probability")),
    "without_replacement": _Kind(_fixed, ("batch_size",)),
    "with_replacement": _Kind(_fixed, ("batch_size",)),
    "balls_in_bins": _Kind(_balls_in_bins, ("bins",), "bins"),
    "random_allocation": _Kind(_balls_in_bins, ("bins",), "bins"),
    "b_min_sep": _Kind(_min_sep, _CHAIN, "min_sep"),
    "independent_attribution": _Kind(_min_sep, (*_CHAIN, "examples_per_user"), "min_sep"),
    "multi_attribution": _Kind(
        _multi_attribution, ("min_sep", "sampling_probability", "examples_per_user", "run_ahead")
    ),
}
