"""Contribution bounding: which examples are left when no user may have more than k_u (docs/sampling/attribution.md)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .._base.validation import ParameterError, boolean, choice, integer, integers

if TYPE_CHECKING:
    from .attribution import AttributionGraph

Integers: TypeAlias = NDArray[np.int64]

MAX_IDS = 2**31 - 1
"""*Proof*: most examples, and most users, of a graph: ids have 32 bits."""

ORDERS = ("fewest_users", "given", "random")
"""In which order `AttributionGraph.bound` offers the examples."""

MAX_WORK = 2**34
"""*Speed*: most steps of a search over the graph, some tens of seconds."""

_MAX_COPIES = 2**28
"""*Speed*: most examples that duplicates may become."""

_CHUNK = 2**16
"""*Speed*: how many examples are checked at once."""

_WITHOUT_USERS = ("refuse", "drop", "keep")
_ASKED = ("max_examples_per_user", "max_neighbourhood", "duplicates", "order", "without_users", "seed")


def bounded(
    graph: AttributionGraph,
    max_examples_per_user: int,
    duplicates: bool,
    order: str | Any,
    max_neighbourhood: int | None,
    without_users: str,
    seed: int | None,
) -> BoundedAttribution:
    per_user = integer("max_examples_per_user", max_examples_per_user, 1, MAX_IDS)
    duplicates = boolean("duplicates", duplicates)
    if max_neighbourhood is not None:
        max_neighbourhood = integer("max_neighbourhood", max_neighbourhood, 1)
    choice("without_users", without_users, _WITHOUT_USERS)
    if isinstance(order, str) and choice("order", order, ORDERS) == "random" and seed is None:
        seed = int.from_bytes(os.urandom(8), "little")
    if seed is not None:
        seed = integer("seed", seed, 0, 2**64 - 1)
    offered = _offered(graph, order, seed)
    orphans = offered[graph.example_degrees()[offered] == 0]
    if len(orphans):
        if without_users == "refuse":
            raise ParameterError(
                f"examples: {len(orphans)} of them have no user (the first: {orphans[0]}) and would be "
                'protected for no one; choose without_users = "drop" or "keep"'
            )
        offered = offered[graph.example_degrees()[offered] > 0]
    if duplicates and _most(graph, offered, per_user, True) > _MAX_COPIES:
        raise ParameterError(
            f"max_examples_per_user = {per_user}: with duplicates, up to "
            f"{_most(graph, offered, per_user, True)} copies; must be at most 2^28"
        )
    work = graph.num_edges * min(per_user, max_neighbourhood or 0)
    if work > MAX_WORK:
        raise ParameterError(
            f"max_neighbourhood = {max_neighbourhood}: times {graph.num_edges} edges, or max_examples_per_user "
            "times these, must be at most 2^34"
        )
    taken = _core.bound_contributions(
        graph.offsets, graph.users, graph.num_users, offered, per_user, duplicates, max_neighbourhood
    )
    kept = orphans if without_users == "keep" else orphans[:0]
    examples = np.sort(np.concatenate([taken, kept]))
    examples.setflags(write=False)
    named = order if isinstance(order, str) else "custom"
    asked = per_user, max_neighbourhood, duplicates, named, without_users, seed
    result = BoundedAttribution(graph, graph.select(examples), examples, offered, *asked)
    result.verify()
    return result


def _offered(graph: AttributionGraph, order: str | Any, seed: int | None) -> Integers:
    if not isinstance(order, str):
        indices = integers("order", order, 0, graph.num_examples - 1)
        if indices.ndim != 1 or (len(indices) and np.bincount(indices).max() > 1):
            raise ParameterError("order: must be a vector of indices, each at most once")
        return indices
    indices = np.arange(graph.num_examples, dtype=np.int64)
    if seed is not None and order != "given":
        indices = np.random.Generator(np.random.Philox(seed)).permutation(indices)
    if order == "fewest_users":
        indices = indices[np.argsort(graph.example_degrees()[indices], kind="stable")]
    return indices


@dataclass(frozen=True, eq=False, repr=False)
class BoundedAttribution:
    """What contribution bounding left over, and how it was found.

    ``examples``: the indices in the dataset to train on, ascending; copies are repeated. ``graph``: the attribution
    of these, example i of it being dataset example ``examples[i]``. A sampler must draw from ``graph``, so that copies
    are sampled one by one. ``max_examples_per_user`` is the k_u to account for; the other fields are those of `AttributionGraph.bound`.
    """

    source: AttributionGraph
    graph: AttributionGraph
    examples: Integers
    offered: Integers
    max_examples_per_user: int
    max_neighbourhood: int | None
    duplicates: bool
    order: str
    without_users: str
    seed: int | None

    def __repr__(self) -> str:
        return (
            f"BoundedAttribution(examples={len(self.examples)} of {self.source.num_examples}, "
            f"max_examples_per_user={self.max_examples_per_user})"
        )

    def verify(self) -> None:
        """Count again, without the code that chose: raises RuntimeError unless every bound holds and nothing can be added."""
        counts = self.graph.user_degrees()
        if counts.size and counts.max() > self.max_examples_per_user:
            raise RuntimeError(
                f"user {int(np.argmax(counts))} has {counts.max()} examples, more than {self.max_examples_per_user}"
            )
        if self.max_neighbourhood is not None:
            sizes = self.graph.neighbourhood_sizes(self.max_neighbourhood)
            if sizes.size and sizes.max() > self.max_neighbourhood:
                raise RuntimeError(f"example {int(self.examples[np.argmax(sizes)])} has too many neighbours")
        if not self.duplicates and (np.diff(self.examples) == 0).any():
            raise RuntimeError("an example was taken twice")
        fitting = self._fitting(counts)
        if len(fitting):
            raise RuntimeError(f"example {int(fitting[0])} could have been taken too")

    def _fitting(self, counts: Integers) -> Integers:
        """The examples that were offered and would still fit."""
        candidates = self.offered
        if not self.duplicates:
            absent = np.ones(self.source.num_examples, dtype=np.bool_)
            absent[self.examples] = False
            candidates = candidates[absent[candidates]]
        if not len(candidates):
            return candidates
        full = (counts >= self.max_examples_per_user)[self.source.users]
        running = np.concatenate([np.zeros(1, np.int64), np.cumsum(full)])
        blocked = running[self.source.offsets[candidates + 1]] > running[self.source.offsets[candidates]]
        candidates = candidates[~blocked]
        if self.max_neighbourhood is None or not len(candidates):
            return candidates
        taken = _incidence(self.graph)
        sizes = self.graph.neighbourhood_sizes(self.max_neighbourhood)
        free = []
        for start in range(0, len(candidates), _CHUNK):
            chunk = candidates[start : start + _CHUNK]
            shared = (_incidence(self.source.select(chunk)) @ taken.T).tocsr()
            reached = np.diff(shared.indptr) + 1 > self.max_neighbourhood
            at_limit = (shared > 0).astype(np.float64) @ (sizes >= self.max_neighbourhood).astype(np.float64)
            free.append(chunk[~reached & (at_limit == 0.0)])
        return np.concatenate(free)

    def size_bound(self) -> int:
        """No selection within k_u is larger: examples of the fewest users, until all users' shares are spent.

        An upper bound on what any algorithm could keep of the examples offered; the optimum itself is a hard problem (set packing).
        """
        orphans = len(self.examples) - int(np.count_nonzero(self.graph.example_degrees()))
        return _most(self.source, self.offered, self.max_examples_per_user, self.duplicates) + orphans

    def to_dict(self) -> dict[str, Any]:
        """The numbers of the report, as JSON values."""
        degrees = self.graph.user_degrees()
        source = self.source.user_degrees()
        return {
            **{name: getattr(self, name) for name in _ASKED},
            "examples_before": self.source.num_examples,
            "examples_after": len(self.examples),
            "distinct_examples_after": len(np.unique(self.examples)),
            "examples_without_users_kept": int(np.count_nonzero(self.graph.example_degrees() == 0)),
            "size_bound": self.size_bound(),
            "users": int(np.count_nonzero(source)),
            "users_represented": int(np.count_nonzero(degrees)),
            "largest_user_before": int(source.max(initial=0)),
            "largest_user_after": int(degrees.max(initial=0)),
        }

    def report(self) -> str:
        """The same for people."""
        numbers = self.to_dict()
        limit = "" if self.max_neighbourhood is None else f", |N(e)| <= {self.max_neighbourhood}"
        copies = "with" if self.duplicates else "without"
        kept = f"{numbers['examples_before']} -> {numbers['examples_after']}"
        distinct = f"{numbers['distinct_examples_after']} distinct, at most {numbers['size_bound']} possible"
        lines = [
            f"Contribution bounding: at most {self.max_examples_per_user} examples per user{limit}",
            f"  {copies} duplicates, order {self.order}",
            f"  examples: {kept} ({distinct})",
            f"  users with an example: {numbers['users']} -> {numbers['users_represented']}",
            f"  most examples of one user: {numbers['largest_user_before']} -> {numbers['largest_user_after']}",
        ]
        if numbers["examples_without_users_kept"]:
            lines.append(
                f"  {numbers['examples_without_users_kept']} examples belong to no user and are NOT protected"
            )
        return "\n".join(lines)


def _most(graph: AttributionGraph, offered: Integers, per_user: int, duplicates: bool) -> int:
    """How many examples of the fewest users fit, if every user gives all it may to any of them."""
    lengths = np.sort(graph.example_degrees()[offered])
    degrees = graph.select(offered).user_degrees()
    if duplicates:
        shares, copies = per_user * int(np.count_nonzero(degrees)), per_user
    else:
        shares, copies = int(np.minimum(degrees, per_user).sum()), 1
    spent = np.cumsum(lengths)
    whole = int(np.searchsorted(spent, shares // copies, side="right"))
    rest = 0
    if whole < len(lengths):
        rest = (shares - copies * (int(spent[whole - 1]) if whole else 0)) // int(lengths[whole])
    return whole * copies + rest


def _incidence(graph: AttributionGraph) -> Any:
    from scipy.sparse import csr_array

    ones = np.ones(graph.num_edges, dtype=np.int32)
    return csr_array((ones, graph.users, graph.offsets), shape=(graph.num_examples, graph.num_users))
