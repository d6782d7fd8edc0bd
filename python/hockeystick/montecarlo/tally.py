"""Sums over blocks of samples: exact, so that order, interruptions and merging leave no trace.

A long Monte Carlo run is a set of blocks; block i of a seed holds the same samples whoever draws it. A
`Tally` remembers which blocks are done and the exact sum of their values, so the file of a run
is small however long it is, a run can be resumed after any interruption, and the tallies of disjoint
blocks, from one machine or many, add up to what one run would have found, bit for bit.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

import numpy as np

from .._base import storage
from .._base.arrays import Array
from .._base.exclusive import Exclusive, holding, unlocked
from .._base.executors import SECONDS, Draw, elsewhere, here
from .._base.progress import Patience
from .._base.validation import MAX_COUNT, ParameterError, ParameterTypeError
from . import empirical

if TYPE_CHECKING:
    from typing_extensions import Self

_SCALE = 1074  # every double is a whole multiple of 2^-1074
_T = TypeVar("_T", bound="Totals")

Progress: TypeAlias = Callable[[int, int], object]


def in_samples(progress: Progress | None, block_size: int) -> Progress | None:
    """The callback for someone who counts in blocks, where ``progress`` counts in samples."""
    if progress is None:
        return None
    show = progress
    return lambda done, total: show(done * block_size, total * block_size)


@dataclass
class Totals(Exclusive):
    """Which blocks are done, and what they add up to: whole numbers, so that nothing depends on the order.

    ``key`` says what was sampled, in JSON values; only equal keys can be merged. There are ``rows``
    quantities (for several epsilons, say); ``ranges`` are the blocks [first, last) done, disjoint and
    in order. Threads may share a tally: one call at a time, none is lost. In a forked child every call raises `ForkedError`.
    """

    key: Mapping[str, Any]
    rows: int
    ranges: list[tuple[int, int]] = field(default_factory=list)
    totals: list[int] = field(default_factory=list)

    kind: ClassVar[str]
    width: ClassVar[int]
    """Numbers per row."""

    def __post_init__(self) -> None:
        self.totals = self.totals or [0] * (self.rows * self.width)

    @property
    def blocks(self) -> int:
        """The number of blocks done."""
        return sum(last - first for first, last in self.ranges)

    def missing(self, first: int, last: int) -> list[tuple[int, int]]:
        """The ranges of blocks in [first, last) that are not done yet."""
        gaps, at = [], first
        for start, end in self.ranges:
            if start >= last:
                break
            if start > at:
                gaps.append((at, min(start, last)))
            at = max(at, end)
        if at < last:
            gaps.append((at, last))
        return gaps

    def add(self, first: int, blocks: int, *drawn: Any) -> None:
        """Add ``blocks`` blocks from ``first`` on, none of which may be there already."""
        numbers = self._numbers(first, blocks, *drawn)
        if blocks < 1 or self.missing(first, first + blocks) != [(first, first + blocks)]:
            raise ParameterError(f"blocks [{first}, {first + blocks}): some of them are in the tally already")
        self.totals = [a + b for a, b in zip(self.totals, numbers, strict=True)]
        self.ranges = _union([*self.ranges, (first, first + blocks)])

    def _numbers(self, first: int, blocks: int, *drawn: Any) -> list[int]:
        """What to add to ``totals`` for these blocks, whose values must be complete and valid."""
        raise NotImplementedError

    @unlocked
    def merged(self, other: Self) -> Self:
        """The tally of the blocks of both, which must be disjoint and of the same run."""
        if type(other) is not type(self):
            raise ParameterTypeError(f"tallies of different kinds: {type(self).__name__} and {other!r}")
        if dict(self.key) != dict(other.key) or self.rows != other.rows:
            raise ParameterError(f"tallies of different runs: {_difference(self.key, other.key)}")
        with holding(self, other):
            for first, last in other.ranges:
                if self.missing(first, last) != [(first, last)]:
                    raise ParameterError(f"blocks [{first}, {last}): counted in both tallies")
            totals = [a + b for a, b in zip(self.totals, other.totals, strict=True)]
            return type(self)(self.key, self.rows, _union([*self.ranges, *other.ranges]), totals)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tally to one small file: atomic, versioned, checksummed."""
        content = {
            "key": dict(self.key),
            "rows": self.rows,
            "ranges": [list(pair) for pair in self.ranges],
            "totals": [hex(value) for value in self.totals],
        }
        storage.write(path, self.kind, content, {})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote; StorageError says why a file is refused."""
        content, _ = storage.read(path, cls.kind)
        with storage.refusing(path):
            ranges = [(int(first), int(last)) for first, last in content["ranges"]]
            totals = [int(value, 16) for value in content["totals"]]
            rows = int(content["rows"])
            ordered = [bound for pair in ranges for bound in pair]
            if len(totals) != rows * cls.width or min([0, *totals, *ordered]) < 0:
                raise ValueError("the sums do not match the header")
            if ranges != _union(ranges) or any(first >= last for first, last in ranges):
                raise ValueError("the ranges of blocks overlap")
            return cls(content["key"], rows, ranges, totals)


class Tally(Totals):
    """The exact sums of the values of blocks and of their squares. Threads and forked children: as for `Totals`."""

    kind = "monte-carlo-tally"
    width = 2

    def sum(self, row: int = 0) -> float:
        """The sum of all values, correctly rounded."""
        return self.totals[2 * row] / (1 << _SCALE)

    def sum_of_squares(self, row: int = 0) -> float:
        """The sum of all squared values, correctly rounded."""
        return self.totals[2 * row + 1] / (1 << _SCALE)

    def mean(self, count: int, row: int = 0) -> float:
        """The sum over ``count``, correctly rounded."""
        return self.totals[2 * row] / (count << _SCALE)

    def _numbers(self, first: int, blocks: int, *drawn: Any) -> list[int]:
        """From the sums and the sums of squares of each block: shape (rows, blocks), finite, non-negative."""
        sums, squares = drawn
        _check_shape(first, blocks, (self.rows, blocks), sums, squares)
        if not (np.isfinite(sums).all() and np.isfinite(squares).all()):
            # nan must not become a small delta.
            raise ArithmeticError(f"blocks from {first} on: a sum is not finite; the estimate is void")
        return [_exact(part[row]) for row in range(self.rows) for part in (sums, squares)]


class EmpiricalTally(Totals):
    """The empirical laws of the values of blocks, which lie in [0, 1]; the key has their "block_size". Threads and forks: see `Totals`."""

    kind = "monte-carlo-law"
    width = empirical.POINTS

    def law(self, row: int = 0) -> empirical.Empirical:
        """The law of all values of one quantity."""
        return empirical.Empirical(tuple(self.totals[row * self.width : (row + 1) * self.width]))

    def _numbers(self, first: int, blocks: int, *drawn: Any) -> list[int]:
        """From masses of shape (rows, points), and how many values were refused."""
        masses, refused = drawn
        _check_shape(first, blocks, (self.rows, self.width), masses)
        empirical.check(refused)
        numbers = masses.tolist()
        complete = blocks * self.key["block_size"] * empirical.UNIT
        if any(sum(row) != complete for row in numbers):
            raise ArithmeticError(f"blocks from {first} on: values are missing; the estimate is void")
        return [mass for row in numbers for mass in row]


def _check_shape(first: int, blocks: int, shape: tuple[int, int], *drawn: Array) -> None:
    for part in drawn:
        if part.shape != shape:
            raise ArithmeticError(
                f"blocks [{first}, {first + blocks}): an array of shape {part.shape} came back instead of {shape}"
            )


def _exact(values: Array) -> int:
    """The sum of doubles as a multiple of 2^-1074."""
    total = 0
    for value in values.tolist():
        numerator, denominator = value.as_integer_ratio()
        total += numerator << (_SCALE + 1 - denominator.bit_length())
    return total


def _union(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and joined[-1][1] == first:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return joined


def _difference(one: Mapping[str, Any], two: Mapping[str, Any]) -> str:
    names = [name for name in dict.fromkeys([*one, *two]) if one.get(name) != two.get(name)]
    return ", ".join(f"{name} {one.get(name)!r} and {two.get(name)!r}" for name in names)


def digest(*parts: object) -> str:
    """A fingerprint of arrays (their bytes) and of anything else (its repr)."""
    found = hashlib.sha256()
    for part in parts:
        data = part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode()
        found.update(f"{len(data)} ".encode() + data)
    return found.hexdigest()


def run(
    draw: Draw,
    key: Mapping[str, Any],
    rows: int,
    first: int,
    last: int,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    stop: Callable[[_T], bool] | None = None,
    kind: type[_T] = Tally,  # type: ignore[assignment]
    executor: Executor | None = None,
) -> _T:
    """Draw the blocks of [first, last) that are not in the ``checkpoint`` file yet; return the tally of all of them.

    A file that holds other blocks as well is refused: the number of blocks is what was asked for, or fewer after ``stop``. The file, if any, is replaced after every second or so of work, so that whatever ends the
    process, at most the blocks just running are lost. ``progress`` is called with the blocks done and all;
    without it a run of more than ten seconds says so (`Patience`).
    ``stop`` is asked after each chunk whether what is known suffices. With an ``executor``, its workers draw,
    and the tally is the same.
    """
    if last > MAX_COUNT:
        raise ParameterError(f"blocks up to {last}: must be at most {MAX_COUNT}")
    # The key as the file would give it back.
    tally = kind(json.loads(json.dumps(dict(key))), rows)
    if checkpoint is not None and Path(checkpoint).exists():
        found = kind.load(checkpoint)
        if found.key != tally.key:
            raise ParameterError(
                f"checkpoint {os.fspath(checkpoint)!r}: belongs to another run: {_difference(found.key, tally.key)}"
            )
        # The sums of a file cannot be taken apart: what is outside would be counted.
        if found.ranges and not first <= found.ranges[0][0] < found.ranges[-1][1] <= last:
            raise ParameterError(
                f"checkpoint {os.fspath(checkpoint)!r}: holds blocks {found.ranges}, not only of the [{first}, {last}) "
                "asked for; ask for as many, or name another checkpoint"
            )
        tally = found

    patience = Patience("Monte Carlo samples", "blocks")

    def report() -> bool:
        left = sum(end - start for start, end in tally.missing(first, last))
        if progress is not None:
            progress(last - first - left, last - first)
        else:
            patience.show(last - first - left, last - first)
        return stop is not None and stop(tally)

    if report():
        return tally
    gaps = tally.missing(first, last)
    drawn = here(draw, gaps) if executor is None else elsewhere(draw, gaps, executor)
    saved, unsaved = -math.inf, False

    def save() -> None:
        nonlocal saved, unsaved
        if checkpoint is not None:
            tally.save(checkpoint)
        saved, unsaved = time.monotonic(), False

    try:
        for start, count, parts in drawn:
            tally.add(start, count, *parts)
            unsaved = True
            # Many workers come back many times a second.
            if time.monotonic() - saved > (0.0 if executor is None else SECONDS):
                save()
            if report():
                return tally
    finally:
        drawn.close()
        if unsaved:
            save()
    if tally.missing(first, last):
        raise RuntimeError(f"blocks {tally.missing(first, last)} were not drawn")
    return tally


__all__ = ["EmpiricalTally", "Tally", "Totals"]
