"""Examples that belong to several users: the attribution hypergraph, and how many examples a user may contribute.

Under the fixed-graph adjacency (Ganesh et al. 2025, "It's my data too") two datasets are neighbours if they
differ in the contents of the examples attributed to one user, who attributed what to whom being public.
Training is private for users after `AttributionGraph.bound` has left at most k_u examples to each of them:
that number is what multi-attribution b-min-sep subsampling (b-min-sep paper, Section 6) accounts for.

>>> graph = AttributionGraph.from_lists([["ann", "bob"], ["bob"], ["bob", "eve"], ["eve"]])
>>> bounded = graph.bound(max_examples_per_user=1)
>>> bounded.examples
array([1, 3])
>>> bounded.graph.user_degrees()
array([0, 1, 1])
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .._base.arrays import Array
from .._base.validation import ParameterError, ParameterTypeError, boolean, choice, integer, integers, real

_Ints: TypeAlias = NDArray[np.int64]

MAX_IDS = 2**31 - 1
"""Most examples, and most users, of a graph."""

ORDERS = ("fewest_users", "given", "random")
"""In which order `AttributionGraph.bound` offers the examples."""

_WITHOUT_USERS = ("refuse", "drop", "keep")
_MAX_WORK = 2**34
_MAX_COPIES = 2**28
_CHUNK = 2**16


class OpenNeighbourhood(NamedTuple):
    """``example`` belongs to ``user`` and to ``other_user``, who also owns ``other_example``, which ``user`` does not."""

    example: int
    user: int
    other_user: int
    other_example: int


@dataclass(frozen=True, eq=False, repr=False)
class AttributionGraph:
    """The users U(e) of every example e, as public information.

    ``offsets`` has shape (examples + 1,) and ``users`` shape (edges,): example e belongs to the users
    ``users[offsets[e]:offsets[e + 1]]``, ascending and distinct ids below ``num_users``. Where the caller
    named users (or examples) otherwise, ``user_labels[id]`` (``example_labels[index]``) is the name. Build it with one of
    the ``from_`` methods. At most 2^31 - 1 examples and users; 4 bytes per edge and 8 per example.
    """

    offsets: _Ints
    users: NDArray[np.int32]
    num_users: int
    user_labels: NDArray[Any] | None = None
    example_labels: NDArray[Any] | None = None
    _sizes: dict[str, _Ints] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_users", integer("num_users", self.num_users, 0, MAX_IDS))
        for name, dtype in (("offsets", np.int64), ("users", np.int32)):
            # Not through asarray alone: the caller's array would stay writable under our hands.
            array = np.ascontiguousarray(getattr(self, name), dtype=dtype).view()
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        try:
            _core.check_attribution(self.offsets, self.users, self.num_users)
        except ValueError as error:
            raise ParameterError(f"offsets, users: {error}") from None

    def __repr__(self) -> str:
        return (
            f"AttributionGraph(examples={self.num_examples}, users={self.num_users}, edges={self.num_edges})"
        )

    @property
    def num_examples(self) -> int:
        """Number of examples, those without users included."""
        return len(self.offsets) - 1

    @property
    def num_edges(self) -> int:
        """Number of distinct (example, user) pairs."""
        return len(self.users)

    # --- Where graphs come from ---------------------------------------------------------------------

    @classmethod
    def from_edges(
        cls, examples: Any, users: Any, num_examples: int | None = None, num_users: int | None = None
    ) -> AttributionGraph:
        """The graph of the pairs (examples[i], users[i]), in any order; repeated pairs count once.

        ``examples``: integers are indices in the dataset of ``num_examples`` examples (None: one more than
        the largest); strings are names, numbered in sorted order. ``users``: integers or strings,
        any names, numbered in sorted order; or, with ``num_users`` given, ids below it.

        >>> AttributionGraph.from_edges([0, 0, 1], [1001, 1002, 1002])
        AttributionGraph(examples=2, users=2, edges=3)
        """
        owners, owner_labels = _numbered("users", users, num_users)
        indices, example_labels = _indices("examples", examples, num_examples)
        if len(indices) != len(owners):
            raise ParameterError(f"users: {len(owners)} of them for {len(indices)} examples; one per pair")
        if num_examples is None:
            count = len(example_labels) if example_labels is not None else int(indices.max(initial=-1)) + 1
        else:
            count = num_examples
        known = num_users if owner_labels is None else len(owner_labels)
        offsets, ids = _core.group_edges(indices, owners, count, known or 0)
        return cls(offsets, ids, known or 0, owner_labels, example_labels)

    @classmethod
    def from_lists(cls, users_of: Iterable[Sequence[Any]]) -> AttributionGraph:
        """The graph of one sequence of users (integers or strings) per example."""
        lists = [list(users) for users in users_of]
        examples = np.repeat(np.arange(len(lists)), [len(users) for users in lists])
        return cls.from_edges(examples, [user for users in lists for user in users], len(lists))

    @classmethod
    def from_csr(cls, matrix: Any) -> AttributionGraph:
        """The graph of a sparse (examples, users) matrix of scipy.sparse, any format: its entries that are not 0."""
        if not hasattr(matrix, "tocsr"):
            raise ParameterTypeError(
                f"matrix: must be a scipy.sparse matrix or array, not {type(matrix).__name__}"
            )
        rows = matrix.tocsr()
        examples, users = rows.shape
        for name, size in (("examples", examples), ("users", users)):
            integer(f"number of {name}", size, 0, MAX_IDS)
        index = np.repeat(np.arange(examples, dtype=np.int64), np.diff(rows.indptr))
        kept = rows.data != 0
        offsets, ids = _core.group_edges(index[kept], rows.indices[kept].astype(np.int32), examples, users)
        return cls(offsets, ids, users)

    @classmethod
    def from_arrow(cls, table: Any, users: str = "users", examples: str | None = None) -> AttributionGraph:
        """The graph of a pyarrow table: needs the extra ``hockeystick[arrow]``.

        With ``examples`` given, a row is one pair, ``examples`` and ``users`` naming two columns as in `from_edges`.
        Without, a row is one example and column ``users`` holds the list of its users (null: none).
        """
        _columns(table, users, examples)
        column = table.column(users).combine_chunks()
        if examples is not None:
            pairs = _plain(examples, table.column(examples).combine_chunks())
            return cls.from_edges(pairs, _Encoded(users, column), None)
        import pyarrow.types as kinds
        from pyarrow import compute

        if not (
            kinds.is_list(column.type)
            or kinds.is_large_list(column.type)
            or kinds.is_fixed_size_list(column.type)
        ):
            raise ParameterTypeError(
                f"column {users!r}: must hold a list of users per row, not {column.type}; "
                "name the column of examples if a row is one (example, user) pair"
            )
        lengths = compute.fill_null(compute.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        index = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
        return cls.from_edges(index, _Encoded(users, compute.list_flatten(column)), len(lengths))

    @classmethod
    def from_parquet(
        cls, path: str | os.PathLike[str], users: str = "users", examples: str | None = None
    ) -> AttributionGraph:
        """`from_arrow` of the needed columns of a Parquet file (or of an Arrow/Feather file, ending ``.arrow`` or ``.feather``)."""
        name = os.fspath(path)
        columns = [users] if examples is None else [examples, users]
        try:
            from pyarrow import feather, parquet
        except ImportError as error:
            raise ImportError("reading Arrow and Parquet files needs pyarrow: hockeystick[arrow]") from error
        if name.endswith((".arrow", ".feather")):
            table = feather.read_table(name)
        else:
            _columns(parquet.read_schema(name), users, examples)
            table = parquet.read_table(name, columns=columns)
        return cls.from_arrow(table, users, examples)

    # --- What can be asked ----------------------------------------------------------------------

    def users_of(self, example: int) -> NDArray[np.int32]:
        """The users of one example, as ids."""
        example = integer("example", example, 0, self.num_examples - 1)
        return self.users[self.offsets[example] : self.offsets[example + 1]]

    def example_degrees(self) -> _Ints:
        """|U(e)| of every example, shape (examples,)."""
        return np.diff(self.offsets)

    def user_degrees(self) -> _Ints:
        """Number of examples of every user, shape (num_users,)."""
        return np.bincount(self.users, minlength=self.num_users).astype(np.int64)

    def neighbourhood_sizes(self, limit: int | None = None) -> _Ints:
        """|N(e)| of every example: how many share a user with it, itself included (0 without users).

        Sizes above ``limit`` are returned as ``limit`` + 1. The time grows with the sum over users of
        degree * min(degree, limit + 1); ParameterError is raised where that is beyond 2^34: bound the graph first.
        """
        limit = self.num_examples if limit is None else min(integer("limit", limit), self.num_examples)
        if limit == self.num_examples and "all" in self._sizes:
            return self._sizes["all"]
        degrees = self.user_degrees().astype(np.float64)
        work = float(degrees @ np.minimum(degrees, limit + 1.0))
        if work > _MAX_WORK:
            raise ParameterError(
                f"limit = {limit}: the users' degrees times their neighbours sum to {work:.3g}, more than "
                "2^34; give a smaller limit, or bound the graph first"
            )
        sizes = _core.neighbourhood_sizes(self.offsets, self.users, self.num_users, limit)
        sizes.setflags(write=False)
        if limit == self.num_examples:
            self._sizes["all"] = sizes
        return sizes

    def open_neighbourhood(self) -> OpenNeighbourhood | None:
        """Return a place where a user's examples share an owner with somebody else's, or None if there is none.

        None: all neighbourhoods are *closed*. Examples that share a user then belong to exactly the same users, so that
        whoever excludes the neighbours of a sampled example excludes nobody else's. Time and memory are linear in the
        number of edges.

        >>> AttributionGraph.from_lists([["ann", "bob"], ["ann", "bob"], ["eve"]]).open_neighbourhood()
        >>> AttributionGraph.from_lists([["ann"], ["ann", "bob"]]).open_neighbourhood()
        OpenNeighbourhood(example=1, user=1, other_user=0, other_example=0)
        """
        if not self.num_edges:
            return None
        sizes = self.example_degrees()
        owner = np.repeat(np.arange(self.num_examples), sizes)
        # The first example of every user. Closed: all users of an example have the same first one ...
        first = np.full(self.num_users, self.num_examples)
        np.minimum.at(first, self.users, owner)
        starts = self.offsets[:-1][sizes > 0]
        leader = np.zeros(self.num_examples, np.int64)
        leader[sizes > 0] = first[self.users[starts]]
        differs = first[self.users] != leader[owner]
        if differs.any():
            edge = int(np.argmax(differs))
            example = int(owner[edge])
            one, two = int(self.users[self.offsets[example]]), int(self.users[edge])
            # The earlier of the two first examples belongs to one of them only.
            if first[one] < first[two]:
                one, two = two, one
            return OpenNeighbourhood(example, one, two, int(first[two]))
        # ... and the same users as it has.
        shorter = np.minimum(sizes[owner], sizes[leader[owner]])
        place = np.arange(self.num_edges) - self.offsets[owner]
        there = np.minimum(self.offsets[leader[owner]] + place, self.num_edges - 1)
        differs = (
            (sizes[owner] != sizes[leader[owner]]) | (place >= shorter) | (self.users[there] != self.users)
        )
        if not differs.any():
            return None
        example = int(owner[int(np.argmax(differs))])
        mine, theirs = self.users_of(example), self.users_of(int(leader[example]))
        shared = int(mine[0])
        # One of the two has a user whom the other has not.
        for a, b, users, others in (
            (example, int(leader[example]), mine, theirs),
            (int(leader[example]), example, theirs, mine),
        ):
            alone = np.setdiff1d(users, others)
            if len(alone):
                return OpenNeighbourhood(a, int(alone[0]), shared, b)
        raise AssertionError("two different sets of users, none of whom is in one of them only")

    def check_closed(self) -> None:
        """Raise ParameterError, naming an example and its users, unless all neighbourhoods are closed.

        See `open_neighbourhood`, and docs/sampling/attribution.md for what goes wrong where one is open.
        """
        found = self.open_neighbourhood()
        if found is None:
            return

        def example(index: int) -> str:
            return repr(
                index if self.example_labels is None else np.asarray(self.example_labels[index]).item()
            )

        def user(index: int) -> str:
            return repr(index if self.user_labels is None else np.asarray(self.user_labels[index]).item())

        raise ParameterError(
            f"graph: example {example(found.example)} belongs to user {user(found.user)} and to user "
            f"{user(found.other_user)}, who also owns example {example(found.other_example)}, which user "
            f"{user(found.user)} does not. Excluding the neighbours of sampled examples would show when user "
            f"{user(found.user)}'s are sampled (docs/sampling/attribution.md). Use BMinSep(..., examples_per_user=k), or a graph "
            "in which examples that share a user have exactly the same users"
        )

    def select(self, examples: Any) -> AttributionGraph:
        """The graph whose example i is this graph's example ``examples[i]``; repeats are copies of their own."""
        chosen = integers("examples", examples, 0, self.num_examples - 1)
        lengths = self.example_degrees()[chosen]
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        # Position of every edge: its example's first edge, plus a running number.
        at = np.repeat(self.offsets[chosen] - offsets[:-1], lengths) + np.arange(offsets[-1])
        labels = None if self.example_labels is None else self.example_labels[chosen]
        return AttributionGraph(offsets, self.users[at], self.num_users, self.user_labels, labels)

    # --- Contribution bounding ---------------------------------------------------------------------

    def bound(
        self,
        max_examples_per_user: int,
        *,
        duplicates: bool = False,
        order: str | Any = "fewest_users",
        max_neighbourhood: int | None = None,
        without_users: str = "refuse",
        seed: int | None = None,
    ) -> BoundedAttribution:
        """A set of examples of which no user has more than ``max_examples_per_user`` (k_u), chosen greedily.

        Offers the examples one after another and takes each one that leaves all its users within k_u.
        ``order``: "fewest_users" first (Ganesh et al. 2025, Algorithm 2), "given" (by index), "random", or
        an array of the indices to be offered. With ``duplicates``, those taken are offered again until none fits:
        an example may then count up to k_u times, every copy as an example of its own.
        ``max_neighbourhood`` (k_e, Appendix C of the b-min-sep paper): also refuse what would give an
        example more than k_e examples that share a user with it, itself and copies included.

        ``without_users``: an example of no user is protected for no one. "refuse" raises ParameterError if
        there is one, "drop" leaves it out, "keep" takes it once.

        ``seed`` shuffles a random order, and otherwise examples of equally many users if given; it is
        drawn from the operating system if a random order has none. The graph being public, it need not
        be secret. The result is checked (`BoundedAttribution.verify`) before it is returned.
        """
        per_user = integer("max_examples_per_user", max_examples_per_user, 1, MAX_IDS)
        duplicates = boolean("duplicates", duplicates)
        if max_neighbourhood is not None:
            max_neighbourhood = integer("max_neighbourhood", max_neighbourhood, 1)
        choice("without_users", without_users, _WITHOUT_USERS)
        if isinstance(order, str) and choice("order", order, ORDERS) == "random" and seed is None:
            seed = int.from_bytes(os.urandom(8), "little")
        if seed is not None:
            seed = integer("seed", seed, 0, 2**64 - 1)
        offered = self._offered(order, seed)
        orphans = offered[self.example_degrees()[offered] == 0]
        if len(orphans):
            if without_users == "refuse":
                raise ParameterError(
                    f"examples: {len(orphans)} of them have no user (the first: {orphans[0]}) and would be "
                    'protected for no one; choose without_users = "drop" or "keep"'
                )
            offered = offered[self.example_degrees()[offered] > 0]
        if duplicates and _most(self, offered, per_user, True) > _MAX_COPIES:
            raise ParameterError(
                f"max_examples_per_user = {per_user}: with duplicates, up to "
                f"{_most(self, offered, per_user, True)} copies; must be at most 2^28"
            )
        work = self.num_edges * min(per_user, max_neighbourhood or 0)
        if work > _MAX_WORK:
            raise ParameterError(
                f"max_neighbourhood = {max_neighbourhood}: times {self.num_edges} edges, or max_examples_per_user "
                "times these, must be at most 2^34"
            )
        taken = _core.bound_contributions(
            self.offsets, self.users, self.num_users, offered, per_user, duplicates, max_neighbourhood
        )
        kept = orphans if without_users == "keep" else orphans[:0]
        examples = np.sort(np.concatenate([taken, kept]))
        examples.setflags(write=False)
        result = BoundedAttribution(
            source=self,
            graph=self.select(examples),
            examples=examples,
            offered=offered,
            max_examples_per_user=per_user,
            max_neighbourhood=max_neighbourhood,
            duplicates=duplicates,
            order=order if isinstance(order, str) else "custom",
            without_users=without_users,
            seed=seed,
        )
        result.verify()
        return result

    def _offered(self, order: str | Any, seed: int | None) -> _Ints:
        if not isinstance(order, str):
            indices = integers("order", order, 0, self.num_examples - 1)
            if indices.ndim != 1 or (len(indices) and np.bincount(indices).max() > 1):
                raise ParameterError("order: must be a vector of indices, each at most once")
            return indices
        indices = np.arange(self.num_examples, dtype=np.int64)
        if seed is not None and order != "given":
            indices = np.random.Generator(np.random.Philox(seed)).permutation(indices)
        if order == "fewest_users":
            indices = indices[np.argsort(self.example_degrees()[indices], kind="stable")]
        return indices


class _Encoded:
    """A pyarrow column of names: hashing them is much faster than sorting them."""

    def __init__(self, name: str, column: Any) -> None:
        if column.null_count:
            raise ParameterError(f"column {name!r}: has {column.null_count} nulls; every user needs a name")
        encoded = column.dictionary_encode()
        self.ids = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32)
        self.labels = encoded.dictionary.to_numpy(zero_copy_only=False)
        if self.labels.dtype.kind not in "iuUSO":
            raise ParameterTypeError(f"column {name!r}: users must be integers or strings, not {column.type}")


def _columns(table: Any, users: str, examples: str | None) -> None:
    if not hasattr(table, "field"):
        raise ParameterTypeError(f"table: must be a pyarrow.Table, not {type(table).__name__}")
    names = list(getattr(table, "column_names", None) or table.names)
    for parameter, column in (("users", users), ("examples", examples)):
        if column is not None and column not in names:
            raise ParameterError(f"{parameter} = {column!r}: must be one of the columns {names}")


def _plain(name: str, column: Any) -> NDArray[Any]:
    if column.null_count:
        raise ParameterError(f"column {name!r}: has {column.null_count} nulls")
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _names(name: str, values: Any) -> NDArray[Any]:
    """``values`` as a vector of integers or of strings."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ParameterTypeError(f"{name}: must be a vector of integers or strings: {error}") from None
    if array.ndim == 1 and not array.size:
        return np.empty(0, np.int64)
    if array.dtype == object and all(isinstance(value, str) for value in array.flat):
        array = array.astype(np.str_)
    if array.ndim != 1 or array.dtype.kind not in "iuUS":
        raise ParameterTypeError(
            f"{name}: must be a vector of integers or strings, not {array.ndim}-dimensional of {array.dtype}"
        )
    return array


def _numbered(name: str, values: Any, count: int | None) -> tuple[NDArray[np.int32], NDArray[Any] | None]:
    """Ids 0, 1, ... for the names in ``values``, and the names by id; as they are if there is a ``count``."""
    if isinstance(values, _Encoded):
        return values.ids, values.labels
    if count is not None:
        count = integer("num_users", count, 0, MAX_IDS)
        return integers(name, values, 0, count - 1).astype(np.int32), None
    array = _names(name, values)
    if array.dtype.kind in "iu" and array.size and array.min() >= 0 and array.max() < 4 * array.size + 2**20:
        # Marking the names that occur is faster than sorting them.
        used = np.zeros(int(array.max()) + 1, dtype=np.bool_)
        used[array] = True
        labels = np.flatnonzero(used)
        return (np.cumsum(used, dtype=np.int32) - 1)[array], labels
    labels, ids = np.unique(array, return_inverse=True)
    return ids.reshape(-1).astype(np.int32), labels


def _indices(name: str, values: Any, count: int | None) -> tuple[_Ints, NDArray[Any] | None]:
    array = _names(name, values)
    if count is not None:
        count = integer("num_examples", count, 0, MAX_IDS)
    if array.dtype.kind in "iu":
        return integers(name, array, 0, (MAX_IDS if count is None else count) - 1), None
    if count is not None:
        raise ParameterTypeError(f"{name}: must be indices below num_examples = {count}, not names")
    labels, ids = np.unique(array, return_inverse=True)
    return ids.reshape(-1).astype(np.int64), labels


@dataclass(frozen=True, eq=False, repr=False)
class BoundedAttribution:
    """What contribution bounding left over, and how it was found.

    ``examples``: the indices in the dataset to train on, ascending; copies are repeated. ``graph``: the attribution
    of these, example i of it being dataset example ``examples[i]``. A sampler must draw from ``graph``, so that copies
    are sampled one by one. ``max_examples_per_user`` is the k_u to account for; the other fields are those of `AttributionGraph.bound`.
    """

    source: AttributionGraph
    graph: AttributionGraph
    examples: _Ints
    offered: _Ints
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

    def _fitting(self, counts: _Ints) -> _Ints:
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
            "max_examples_per_user": self.max_examples_per_user,
            "max_neighbourhood": self.max_neighbourhood,
            "duplicates": self.duplicates,
            "order": self.order,
            "without_users": self.without_users,
            "seed": self.seed,
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


def _most(graph: AttributionGraph, offered: _Ints, per_user: int, duplicates: bool) -> int:
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


# --- How large the batches are ------------------------------------------------------------------------


def expected_batch_size(
    graph: AttributionGraph, sampling_probability: float, min_sep: int, step: int | None = None
) -> float:
    """E|B_i| of multi-attribution b-min-sep subsampling (Algorithm 3), exactly up to round-off.

    For any graph, but Algorithm 3 is a guarantee only for those that `AttributionGraph.check_closed` accepts.

    Whether an example was sampled is independent over examples and steps, and e takes part in step i if it is sampled
    there and nothing in N(e) was in the b - 1 steps before, hence
    E|B_i| = sum over e of p (1 - p)^(|N(e)| min(i - 1, b - 1)). ``step`` counts from 1; None means any
    step >= b, from where on the law is stationary: running ahead b - 1 steps is a full warm start. (An example
    without users has no neighbour, not even itself: nothing blocks it.)

    >>> pairs = AttributionGraph.from_lists([[0, 1], [1, 2], [2, 0]])  # every two share a user
    >>> round(expected_batch_size(pairs, 0.1, min_sep=2), 12) == round(3 * 0.1 * 0.9**3, 12)
    True
    """
    p = real("sampling_probability", sampling_probability, 0.0, 1.0)
    window = integer("min_sep", min_sep, 1) - 1
    if step is not None:
        window = min(window, integer("step", step, 1) - 1)
    sizes, counts = _histogram(graph)
    return float(_expected(p, window, sizes, counts))


def sampling_probability_for(graph: AttributionGraph, expected_batch: float, min_sep: int) -> float:
    """The smallest p with stationary `expected_batch_size` = ``expected_batch`` under Algorithm 3, by binary search (Section 7.3).

    Every example blocks its neighbours, so the expected size first grows with p and then falls: a size beyond the
    largest possible one raises ParameterError that names it.
    """
    target = real("expected_batch", expected_batch, 0.0, open_low=True)
    window = integer("min_sep", min_sep, 1) - 1
    sizes, counts = _histogram(graph)
    grid, values = _growth(window, sizes, counts)
    best = int(np.argmax(values))
    if not values[best] >= target:
        raise ParameterError(
            f"expected_batch = {target:g}: must be at most {values[best]:.6g}, the largest expected batch size "
            f"at min_sep = {min_sep} (at sampling_probability = {grid[best]:.6g})"
        )
    first = int(np.argmax(values >= target))
    low, high = (float(grid[first - 1]) if first else 0.0), float(grid[first])
    while True:
        middle = 0.5 * (low + high)
        if not low < middle < high:
            return high
        if _expected(middle, window, sizes, counts) >= target:
            high = middle
        else:
            low = middle


def _histogram(graph: AttributionGraph) -> tuple[Array, Array]:
    sizes, counts = np.unique(graph.neighbourhood_sizes(), return_counts=True)
    return sizes.astype(np.float64), counts.astype(np.float64)


def _expected(p: float, window: int, sizes: Array, counts: Array) -> Any:
    if window == 0:
        return p * counts.sum()
    if p == 1.0:  # whatever has a user is blocked by itself
        return counts[sizes == 0.0].sum()
    return p * (counts @ np.exp(np.log1p(-p) * window * sizes))


def _growth(window: int, sizes: Array, counts: Array) -> tuple[Array, Array]:
    """Probabilities and expected sizes, from where the size still grows to where it no longer does.

    The term of an example peaks at p = 1 / (1 + |N| (b - 1)), and is about 1 wide in ln p.
    """
    if not len(sizes):
        return np.ones(1), np.zeros(1)
    low, high = 1.0 / (1.0 + window * sizes[-1]), 1.0 / (1.0 + window * sizes[0])
    grid = np.geomspace(low, high, 2 + math.ceil(128 * math.log(high / low)))
    grid[0], grid[-1] = low, high
    return grid, np.array([_expected(float(p), window, sizes, counts) for p in grid])


@dataclass(frozen=True)
class SweepRow:
    """One limit on |N(e)|. ``expected_batch_size`` is at the sweep's sampling probability; ``target_probability``
    is the probability that gives the sweep's target size (None: none does, or there is no target); ``rule`` is b p k_e."""

    max_neighbourhood: int | None
    examples: int
    largest_neighbourhood: int
    mean_neighbourhood: float
    expected_batch_size: float
    target_probability: float | None
    rule: float | None


@dataclass(frozen=True)
class NeighbourhoodSweep:
    """What each limit k_e on |N(e)| does to the batches; print it for a table, or read ``rows``."""

    rows: tuple[SweepRow, ...]
    sampling_probability: float
    min_sep: int
    max_examples_per_user: int
    target: float | None

    @property
    def best(self) -> SweepRow:
        """The row with the largest expected batch at the sweep's probability (the first if several have it)."""
        return max(self.rows, key=lambda row: row.expected_batch_size)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"k_u = {self.max_examples_per_user}, b = {self.min_sep}, p = {self.sampling_probability:.6g}",
            f"{'k_e':>8} {'b p k_e':>8} {'examples':>10} {'max |N|':>8} {'mean |N|':>9} {'E|B| at p':>12} {'p for target':>13}",
        ]
        for row in self.rows:
            limit = "none" if row.max_neighbourhood is None else str(row.max_neighbourhood)
            rule = "-" if row.rule is None else f"{row.rule:.3g}"
            probability = "-" if row.target_probability is None else f"{row.target_probability:.6g}"
            lines.append(
                f"{limit:>8} {rule:>8} {row.examples:>10} {row.largest_neighbourhood:>8} "
                f"{row.mean_neighbourhood:>9.3f} {row.expected_batch_size:>12.6g} {probability:>13}"
            )
        return "\n".join(lines)


def sweep_neighbourhood(
    graph: AttributionGraph,
    max_examples_per_user: int,
    min_sep: int,
    *,
    expected_batch: float | None = None,
    sampling_probability: float | None = None,
    limits: Sequence[int | None] | None = None,
    **bounding: Any,
) -> NeighbourhoodSweep:
    """Expected batch sizes for several limits k_e on |N(e)| (Appendix C of the b-min-sep paper), before any training.

    Give ``expected_batch``, ``sampling_probability`` or both; without the latter, p is what gives the target without a limit
    on |N(e)| (or comes closest).
    ``limits`` (None among them: no limit) default to none, powers of two, and the largest k_e with b p k_e < 1: the rule
    of thumb by which an example is worth what it blocks. ``bounding`` goes to `AttributionGraph.bound`. Looking at the public graph costs no privacy.
    """
    min_sep = integer("min_sep", min_sep, 1)
    if expected_batch is None and sampling_probability is None:
        raise ParameterError("expected_batch = None: give it, or sampling_probability")
    if "max_neighbourhood" in bounding:
        raise ParameterError("max_neighbourhood: give limits instead")
    unlimited = graph.bound(max_examples_per_user, **bounding)
    bounding["seed"] = unlimited.seed  # the same order for every limit
    whole = unlimited.graph
    if sampling_probability is None:
        target = real("expected_batch", expected_batch, 0.0, open_low=True)
        grid, values = _growth(min_sep - 1, *_histogram(whole))
        reachable = bool(values.max() >= target)
        p = sampling_probability_for(whole, target, min_sep) if reachable else float(grid[np.argmax(values)])
    else:
        p = real("sampling_probability", sampling_probability, 0.0, 1.0)
    largest = int(whole.neighbourhood_sizes().max(initial=0))
    if limits is None:
        powers = {2**k for k in range(largest.bit_length()) if 2**k < largest}
        ruled = largest if min_sep * p == 0.0 else min(largest, math.ceil(1.0 / (min_sep * p)) - 1)
        chosen: list[int | None] = [None, *sorted(powers | ({ruled} if 1 <= ruled < largest else set()))]
    else:
        chosen = [None if limit is None else integer("limits", limit, 1) for limit in limits]
    rows = []
    for limit in chosen:
        kept = whole
        if limit is not None and limit < largest:
            kept = graph.bound(max_examples_per_user, max_neighbourhood=limit, **bounding).graph
        sizes = kept.neighbourhood_sizes()
        probability = None
        if expected_batch is not None:
            try:
                probability = sampling_probability_for(kept, expected_batch, min_sep)
            except ParameterError:
                probability = None
        rows.append(
            SweepRow(
                max_neighbourhood=limit,
                examples=kept.num_examples,
                largest_neighbourhood=int(sizes.max(initial=0)),
                mean_neighbourhood=float(sizes.mean()) if len(sizes) else 0.0,
                expected_batch_size=expected_batch_size(kept, p, min_sep),
                target_probability=probability,
                rule=None if limit is None else min_sep * p * limit,
            )
        )
    return NeighbourhoodSweep(
        tuple(rows), p, min_sep, integer("max_examples_per_user", max_examples_per_user, 1), expected_batch
    )


__all__ = [
    "AttributionGraph",
    "BoundedAttribution",
    "NeighbourhoodSweep",
    "OpenNeighbourhood",
    "SweepRow",
    "expected_batch_size",
    "sampling_probability_for",
    "sweep_neighbourhood",
]
