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

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .._base.lazy import needing
from .._base.types import AnyPath
from .._base.validation import MAX_COUNT, ParameterError, ParameterTypeError, entries, integer, integers
from .bounding import MAX_IDS, MAX_WORK, BoundedAttribution, Integers, bounded


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

    offsets: Integers
    users: NDArray[np.int32]
    num_users: int
    user_labels: NDArray[Any] | None = None
    example_labels: NDArray[Any] | None = None
    _sizes: dict[str, Integers] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_users", integer("num_users", self.num_users, 0, MAX_IDS))
        for name, dtype, most in (("offsets", np.int64, MAX_COUNT), ("users", np.int32, MAX_IDS)):
            given = integers(name, getattr(self, name), 0, most)
            # A copy: the caller's array, and what it is a view of, stay writable.
            array = np.array(given, dtype=dtype, order="C")
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
        indices, example_labels = _indices_of("examples", examples, num_examples)
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
        lists = []
        for i, users in enumerate(entries("users_of", users_of, "sequences of users")):
            if isinstance(users, (str, bytes)):
                raise ParameterTypeError(
                    f"users_of[{i}] = {users!r}: must be a sequence of users, not the name of one"
                )
            lists.append(entries(f"users_of[{i}]", users, "users"))
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
        _check_columns(table, users, examples)
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
        cls, path: AnyPath, users: str = "users", examples: str | None = None
    ) -> AttributionGraph:
        """`from_arrow` of the needed columns of a Parquet file (or of an Arrow/Feather file, ending ``.arrow`` or ``.feather``)."""
        name = os.fspath(path)
        columns = [users] if examples is None else [examples, users]
        with needing("reading Arrow and Parquet files needs pyarrow", extra="arrow"):
            from pyarrow import feather, parquet
        if name.endswith((".arrow", ".feather")):
            table = feather.read_table(name)
        else:
            _check_columns(parquet.read_schema(name), users, examples)
            table = parquet.read_table(name, columns=columns)
        return cls.from_arrow(table, users, examples)

    def users_of(self, example: int) -> NDArray[np.int32]:
        """The users of one example, as ids."""
        example = integer("example", example, 0, self.num_examples - 1)
        return self.users[self.offsets[example] : self.offsets[example + 1]]

    def example_degrees(self) -> Integers:
        """|U(e)| of every example, shape (examples,)."""
        return np.diff(self.offsets)

    def user_degrees(self) -> Integers:
        """Number of examples of every user, shape (num_users,)."""
        return np.bincount(self.users, minlength=self.num_users).astype(np.int64)

    def neighbourhood_sizes(self, limit: int | None = None) -> Integers:
        """|N(e)| of every example: how many share a user with it, itself included (0 without users).

        Sizes above ``limit`` are returned as ``limit`` + 1. The time grows with the sum over users of
        degree * min(degree, limit + 1); ParameterError is raised where that is beyond 2^34: bound the graph first.
        """
        limit = self.num_examples if limit is None else min(integer("limit", limit), self.num_examples)
        if limit == self.num_examples and "all" in self._sizes:
            return self._sizes["all"]
        degrees = self.user_degrees().astype(np.float64)
        work = float(degrees @ np.minimum(degrees, limit + 1.0))
        if work > MAX_WORK:
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
        place = np.arange(self.num_edges) - self.offsets[owner]
        there = np.minimum(self.offsets[leader[owner]] + place, self.num_edges - 1)
        differs = (sizes[owner] != sizes[leader[owner]]) | (self.users[there] != self.users)
        if not differs.any():
            return None
        one = int(owner[int(np.argmax(differs))])
        two, shared = int(leader[one]), int(self.users_of(one)[0])
        # One of the two has a user whom the other has not.
        alone = np.setdiff1d(self.users_of(one), self.users_of(two))
        if not len(alone):
            one, two = two, one
            alone = np.setdiff1d(self.users_of(one), self.users_of(two))
        return OpenNeighbourhood(one, int(alone[0]), shared, two)

    def check_closed(self) -> None:
        """Raise ParameterError, naming an example and its users, unless all neighbourhoods are closed.

        See `open_neighbourhood`, and docs/sampling/attribution.md for what goes wrong where one is open.
        """
        found = self.open_neighbourhood()
        if found is None:
            return

        def name(index: int, labels: NDArray[Any] | None) -> str:
            return repr(index if labels is None else np.asarray(labels[index]).item())

        example, other_example = (
            name(at, self.example_labels) for at in (found.example, found.other_example)
        )
        user, other_user = (name(at, self.user_labels) for at in (found.user, found.other_user))
        raise ParameterError(
            f"graph: example {example} belongs to user {user} and to user {other_user}, who also owns example {other_example}, "
            f"which user {user} does not. Excluding the neighbours of sampled examples would show when user {user}'s are sampled (docs/sampling/attribution.md). Use BMinSep(..., examples_per_user=k), or a graph "
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
        return bounded(self, max_examples_per_user, duplicates, order, max_neighbourhood, without_users, seed)


class _Encoded:
    """A pyarrow column of names: hashing them is much faster than sorting them."""

    def __init__(self, name: str, column: Any) -> None:
        from pyarrow import types

        if types.is_dictionary(column.type):
            # Its dictionary may hold a name twice, and nulls: what it stands for is encoded anew.
            column = column.cast(column.type.value_type)
        if column.null_count:
            raise ParameterError(f"column {name!r}: has {column.null_count} nulls; every user needs a name")
        encoded = column.dictionary_encode()
        self.ids = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32)
        self.labels = encoded.dictionary.to_numpy(zero_copy_only=False)
        if self.labels.dtype.kind not in "iuUSO":
            raise ParameterTypeError(f"column {name!r}: users must be integers or strings, not {column.type}")


def _check_columns(table: Any, users: str, examples: str | None) -> None:
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


def _indices_of(name: str, values: Any, count: int | None) -> tuple[Integers, NDArray[Any] | None]:
    array = _names(name, values)
    if count is not None:
        count = integer("num_examples", count, 0, MAX_IDS)
    if array.dtype.kind in "iu":
        return integers(name, array, 0, (MAX_IDS if count is None else count) - 1), None
    if count is not None:
        raise ParameterTypeError(f"{name}: must be indices below num_examples = {count}, not names")
    labels, ids = np.unique(array, return_inverse=True)
    return ids.reshape(-1).astype(np.int64), labels
