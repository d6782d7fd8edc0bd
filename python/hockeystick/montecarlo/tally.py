"""Sums over blocks of samples: exact, so that order, interruptions and merging leave no trace.

A long Monte Carlo run is a set of blocks; block i of a seed holds the same samples whoever draws it. A
`Tally` remembers which blocks are done and the exact sum of their values, so the file of a run
is small however long it is, a run can be resumed after any interruption, and the tallies of disjoint
blocks, from one machine or many, add up to what one run would have found, bit for bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from .._base import storage
from .._base.exclusive import Exclusive, holding, unlocked
from .._base.files import refusing
from .._base.types import AnyPath, Array, Self
from .._base.validation import ParameterError, ParameterTypeError
from . import empirical

_SCALE = 1074  # *proof*: every double is a whole multiple of 2^-1074


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
            raise ParameterError(f"tallies of different runs: {difference(self.key, other.key)}")
        with holding(self, other):
            for first, last in other.ranges:
                if self.missing(first, last) != [(first, last)]:
                    raise ParameterError(f"blocks [{first}, {last}): counted in both tallies")
            totals = [a + b for a, b in zip(self.totals, other.totals, strict=True)]
            return type(self)(self.key, self.rows, _union([*self.ranges, *other.ranges]), totals)

    def save(self, path: AnyPath) -> None:
        """Write the tally to one small file: atomic, versioned, checksummed."""
        ranges, totals = [list(pair) for pair in self.ranges], [hex(value) for value in self.totals]
        content = {"key": dict(self.key), "rows": self.rows, "ranges": ranges, "totals": totals}
        storage.write(path, self.kind, content, {})

    @classmethod
    def load(cls, path: AnyPath) -> Self:
        """Read what `save` wrote; StorageError says why a file is refused."""
        content, _ = storage.read(path, cls.kind)
        with refusing(path):
            ranges = [(int(first), int(last)) for first, last in content["ranges"]]
            totals = [int(value, 16) for value in content["totals"]]
            rows = int(content["rows"])
            ordered = [bound for pair in ranges for bound in pair]
            if len(totals) != rows * cls.width or min([0, *totals, *ordered]) < 0:
                raise ValueError("the sums do not match the header")
            if ordered != sorted(set(ordered)):
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


def difference(one: Mapping[str, Any], two: Mapping[str, Any]) -> str:
    """In what the keys of two runs differ."""
    names = [name for name in dict.fromkeys([*one, *two]) if one.get(name) != two.get(name)]
    return ", ".join(f"{name} {one.get(name)!r} and {two.get(name)!r}" for name in names)


def digest(*parts: object) -> str:
    """A fingerprint of arrays (their bytes) and of anything else (its repr)."""
    found = hashlib.sha256()
    for part in parts:
        data = part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode()
        found.update(f"{len(data)} ".encode() + data)
    return found.hexdigest()
