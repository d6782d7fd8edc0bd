"""Who owns what, as callers have it: names and columns of any kind, turned into ids (docs/sampling/attribution.md)."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .._base.validation import ParameterError, ParameterTypeError, integer, integers

Integers: TypeAlias = NDArray[np.int64]

MAX_IDS = 2**31 - 1
"""*Proof*: most examples, and most users, of a graph: ids have 32 bits."""


class Encoded:
    """A pyarrow column of names: hashing them is much faster than sorting them."""

    def __init__(self, name: str, column: Any) -> None:
        if column.null_count:
            raise ParameterError(f"column {name!r}: has {column.null_count} nulls; every user needs a name")
        encoded = column.dictionary_encode()
        self.ids = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32)
        self.labels = encoded.dictionary.to_numpy(zero_copy_only=False)
        if self.labels.dtype.kind not in "iuUSO":
            raise ParameterTypeError(f"column {name!r}: users must be integers or strings, not {column.type}")


def check_columns(table: Any, users: str, examples: str | None) -> None:
    if not hasattr(table, "field"):
        raise ParameterTypeError(f"table: must be a pyarrow.Table, not {type(table).__name__}")
    names = list(getattr(table, "column_names", None) or table.names)
    for parameter, column in (("users", users), ("examples", examples)):
        if column is not None and column not in names:
            raise ParameterError(f"{parameter} = {column!r}: must be one of the columns {names}")


def plain(name: str, column: Any) -> NDArray[Any]:
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


def numbered(name: str, values: Any, count: int | None) -> tuple[NDArray[np.int32], NDArray[Any] | None]:
    """Ids 0, 1, ... for the names in ``values``, and the names by id; as they are if there is a ``count``."""
    if isinstance(values, Encoded):
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


def indices_of(name: str, values: Any, count: int | None) -> tuple[Integers, NDArray[Any] | None]:
    array = _names(name, values)
    if count is not None:
        count = integer("num_examples", count, 0, MAX_IDS)
    if array.dtype.kind in "iu":
        return integers(name, array, 0, (MAX_IDS if count is None else count) - 1), None
    if count is not None:
        raise ParameterTypeError(f"{name}: must be indices below num_examples = {count}, not names")
    labels, ids = np.unique(array, return_inverse=True)
    return ids.reshape(-1).astype(np.int64), labels


__all__ = ["MAX_IDS", "Encoded", "Integers", "check_columns", "indices_of", "numbered", "plain"]
