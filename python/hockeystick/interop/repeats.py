"""Data sets of PyTorch and Hugging Face: whether a record is in one several times, as far as can be seen (docs/interop/interop.md, section 2)."""

from __future__ import annotations

import itertools
import math
from numbers import Number
from operator import index
from typing import Any, NamedTuple

import numpy as np

from .._base.lazy import needing
from .._base.validation import ParameterError, is_a

with needing("hockeystick.interop.torch needs PyTorch 2.2 or later", extra="torch"):
    import torch


def check_repeats(name: str, dataset: Any) -> None:
    """Raise ParameterError where a record is in ``dataset``, which is given as ``name``, several times, each of which is drawn, and clipped, by itself.

    Seen are the places of ``Subset``, the parts of ``ConcatDataset``, and which rows of which tables a data set of Hugging Face has
    (``select``, ``repeat``, ``concatenate_datasets``, ``interleave_datasets``), also inside data sets that hold one of as many records (a
    transformation), and data sets over the same tensors, arrays or lists, or made alike but for functions (a folder that is read twice, with two
    transformations); not copies that a data set of one's own has, nor those that were written to a table.
    """
    sources = _Sources()
    sources.trace(dataset, None)
    for source, uses in sources.uses.values():
        if all(isinstance(each, range) for each in uses):
            begun = sorted(uses, key=lambda each: each.start)
            if all(one.stop <= other.start for one, other in itertools.pairwise(begun)):
                continue  # a table may be large
        places = np.sort(
            np.concatenate([np.zeros(0, np.int64), *(_places(each) for each in uses if each is not None)])
        )
        whole = sum(each is None for each in uses)
        again = places if whole else places[1:][places[1:] == places[:-1]]
        place = int(again[0]) if len(again) else 0
        times = whole + int(np.count_nonzero(places == place))
        if times > 1 and size_of(source) != 0:
            raise ParameterError(
                f"{name}: has a record, at {place} of what it is a subset of or made up from, {times} times, must have it once; each copy is "
                "drawn and clipped by itself, so that the record moves the sum by several times the clipping norm: leave copies out, and give records that "
                "should count more a larger weight in the loss"
            )


class _Sources:
    """Which data sets records come from, each with its ``uses``: where they are there, None for all of it."""

    def __init__(self) -> None:
        self.uses: dict[Any, tuple[Any, list[Any]]] = {}
        self._sketched: dict[Any, list[Any]] = {}

    def trace(self, dataset: Any, wanted: Any, depth: int = 8) -> None:
        """Find where the records of ``dataset`` at the places ``wanted`` (None: all) come from."""
        below = _below(dataset, wanted) if depth else []
        for part, taken in below:
            self.trace(part, taken, depth - 1)
        if not below:
            key, first = _known_by(dataset)
            if key not in self.uses:
                key, first = _known_by(self._first_like(dataset))
            if first is not None:
                wanted = range(first, first + len(dataset)) if wanted is None else wanted + first
            self.uses.setdefault(key, (dataset, []))[1].append(wanted)

    def _first_like(self, dataset: Any) -> Any:
        """Of the data sets like this one, the first that was found; itself, if it is that."""
        # There may be thousands of parts, all of one kind.
        ends = [(_end(each[0]), _end(each[-1])) for each in _held(dataset)]
        sketch = type(dataset), size_of(dataset), *ends
        others = self._sketched.setdefault(sketch, [])
        like = next((each for each in others if _alike(each, dataset)), None)
        if like is None:
            others.append(dataset)
        return dataset if like is None else like


def _known_by(dataset: Any) -> tuple[Any, int | None]:
    """What two data sets of the same records have in common: memory, with the place there of the first one, or a list that holds them."""
    if isinstance(dataset, _Rows):
        return dataset, None
    placed = [place for each in _held(dataset) if (place := _place(each)) is not None]
    # The widest entries are the records; labels, or weights, may be shared by others.
    _, key, first = max(placed, key=lambda each: each[0], default=(0, id(dataset), None))
    return key, first


def _held(dataset: Any) -> list[Any]:
    """What ``dataset`` keeps with an entry for each record: tensors, arrays and lists."""
    size, members = size_of(dataset), list(getattr(dataset, "__dict__", {}).values())
    members += [
        each for group in members if isinstance(group, (list, tuple)) and len(group) < 9 for each in group
    ]
    kinds = (list, tuple, np.ndarray)
    return [
        each
        for each in members
        if (isinstance(each, kinds) or hasattr(each, "untyped_storage")) and size_of(each) == size != 0
    ]


def _place(held: Any) -> tuple[float, Any, int | None] | None:
    """(bytes of an entry, memory, place of the first entry there) of a tensor or an array, or a list as such; None where entries do not follow each other."""
    if isinstance(held, (list, tuple)):
        return 8.0 if isinstance(held[0], Number) else math.inf, id(held), None
    if isinstance(held, np.ndarray):
        whole = held
        while isinstance(whole.base, np.ndarray):
            whole = whole.base
        begin, step = whole.__array_interface__["data"][0], held.strides[0]
        offset = held.__array_interface__["data"][0] - begin
    else:
        try:
            begin, step = held.untyped_storage().data_ptr(), held.stride(0) * held.element_size()
            offset = held.storage_offset() * held.element_size()
        except RuntimeError:
            return None  # a sparse tensor
    return (step, (begin, step, offset % step), offset // step) if begin and step > 0 else None


def _alike(one: Any, other: Any) -> bool:
    """Whether two data sets were made alike, but for functions (transformations), and hold the same: read twice, say."""
    if type(one) is not type(other) or not _held(one):
        return False
    first, second = (
        {name: value for name, value in vars(each).items() if not callable(value)} for each in (one, other)
    )
    return first.keys() == second.keys() and all(_equal(first[name], second[name]) for name in first)


def _end(entry: Any) -> Any:
    """Something of an entry that is the same where the entry is; None where nothing is known of it."""
    if isinstance(entry, (str, bytes, Number)):
        return entry
    if isinstance(entry, tuple):
        return tuple(map(_end, entry))
    try:
        return hash(np.asarray(entry).tobytes()) if hasattr(entry, "tolist") else None
    except (RuntimeError, TypeError, ValueError):
        return None  # sparse, or on another device


def _equal(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if type(one) is not type(other) or size_of(one) != size_of(other):
        return False
    try:
        return bool(torch.equal(one, other) if hasattr(one, "untyped_storage") else np.all(one == other))
    except Exception:  # noqa: BLE001 (of whatever a script keeps)
        # Tensors in a list have no single answer, and other things none.
        return isinstance(one, (list, tuple)) and all(map(_equal, one, other))


def _below(dataset: Any, wanted: Any) -> list[tuple[Any, Any]]:
    """Which data sets ``dataset`` takes its records at ``wanted`` from, and where they are there; none if it has not the form of torch's classes.

    Places are handed down, as a data set may be far larger than what is taken of it.
    """
    if is_of_a_table(dataset):
        return _rows_of(dataset, wanted)
    size = size_of(dataset)
    parts: Any = getattr(dataset, "datasets", None) if is_a(dataset, "ConcatDataset") else None
    sizes: list[Any] = [size_of(part) for part in parts] if isinstance(parts, (list, tuple)) else [None]
    if None not in sizes and sum(sizes) == size:
        ends = np.cumsum(sizes, dtype=np.int64).tolist()
        return [
            (part, _inside(wanted, end - n, end)) for part, end, n in zip(parts, ends, sizes, strict=True)
        ]
    indices = _places(getattr(dataset, "indices", None)) if is_a(dataset, "Subset") else None
    if indices is not None and len(indices) == size:
        taken = indices if wanted is None else indices[_inside(wanted, 0, size)]
        # Negative ones count from the end.
        return [(dataset.dataset, np.where(taken < 0, taken + (size_of(dataset.dataset) or 0), taken))]
    return [(inner, wanted) for inner in _transformed(dataset)]


class _Rows(NamedTuple):
    """Rows that lie at these addresses, of whichever table."""

    addresses: tuple[Any, ...]


def is_of_a_table(dataset: Any) -> bool:
    """Whether it has the form of Hugging Face's: a table of Arrow, and which of its rows are meant (None: all)."""
    return hasattr(dataset, "_indices") and hasattr(getattr(dataset, "data", None), "to_batches")


def _rows_of(dataset: Any, wanted: Any) -> list[tuple[Any, Any]]:
    """Where in memory the rows of its table are: tables that are put together hold the same memory, and take no copies."""
    found: list[tuple[Any, Any]] = []
    if dataset._indices is not None:
        rows = dataset._indices.column(0).to_numpy().astype(np.int64)
        wanted = rows if wanted is None else rows[_inside(wanted, 0, len(rows))]
    wanted, end = wanted if wanted is None else np.sort(wanted), 0
    for batch in dataset.data.to_batches():
        begin, end = end, end + batch.num_rows
        columns = [
            (column.offset, [each and each.address for each in column.buffers()]) for column in batch.columns
        ]
        if not any(any(addresses) for _, addresses in columns):
            continue
        first = columns[0][0]
        source = _Rows(tuple((offset - first, *addresses) for offset, addresses in columns))
        if wanted is None:
            found.append((source, range(first, first + batch.num_rows)))
        else:
            inside = slice(*np.searchsorted(wanted, [begin, end]))
            found.append((source, wanted[inside] - begin + first))
    return found


def _transformed(dataset: Any) -> list[Any]:
    """The one data set that ``dataset`` holds, if that has as many records."""
    members = getattr(dataset, "__dict__", {}).values()
    held = [each for each in members if isinstance(each, torch.utils.data.Dataset) or is_of_a_table(each)]
    return held if len(held) == 1 and size_of(held[0]) == size_of(dataset) is not None else []


def _inside(places: Any, begin: int, end: int) -> Any:
    """Those from ``begin`` to ``end``, counted from there; all if all are wanted."""
    return places if places is None else places[(places >= begin) & (places < end)] - begin


def _places(indices: Any) -> Any:
    """The ``indices`` of a Subset as an array of integers, one for each record; None where they are something else."""
    if isinstance(indices, range):
        return np.arange(indices.start, indices.stop, indices.step)
    try:
        values = np.asarray(indices.cpu() if hasattr(indices, "cpu") else indices)
        if values.dtype == object:
            values = np.array([index(each) for each in values.flat], np.int64)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None  # of several lengths, or names
    if values.dtype.kind not in "iu" or values.ndim == 0 or values.size != len(values):
        return None
    return values.reshape(-1).astype(np.int64)


def size_of(dataset: Any) -> int | None:
    """The length, or None where there is none; torch leaves it to each class how it says so."""
    try:
        return len(dataset)
    except (TypeError, AttributeError, NotImplementedError, ValueError):
        return None
