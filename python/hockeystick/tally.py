"""Sums over blocks of samples: exact, so that order, interruptions and merging leave no trace.

A long Monte Carlo run is a set of blocks; block i of a seed holds the same samples whoever draws it. A
`Tally` remembers which blocks are done and the exact sum of their values, so the file of a run
is small however long it is, a run can be resumed after any interruption, and the tallies of disjoint
blocks, from one machine or many, add up to what one run would have found, bit for bit.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from . import storage
from .atoms import Array
from .validation import MAX_COUNT, ParameterError

_KIND = "monte-carlo-tally"
_SCALE = 1074  # every double is a whole multiple of 2^-1074
_SECONDS = 1.0

Draw: TypeAlias = Callable[[int, int], "tuple[Array, Array]"]
"""draw(first_block, blocks): sums and sums of squares of the values of each block, (rows, blocks)."""

Progress: TypeAlias = Callable[[int, int], object]


@dataclass
class Tally:
    """Which blocks are done, and the exact sums of their values.

    ``key`` says what was sampled, in JSON values; only equal keys can be merged. A tally has ``rows``
    quantities (for several epsilons, say); ``ranges`` are the blocks [first, last) done, disjoint and
    in order.
    """

    key: Mapping[str, Any]
    rows: int
    ranges: list[tuple[int, int]] = field(default_factory=list)
    _sums: list[int] = field(default_factory=list)
    _squares: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sums = self._sums or [0] * self.rows
        self._squares = self._squares or [0] * self.rows

    @property
    def blocks(self) -> int:
        """The number of blocks done."""
        return sum(last - first for first, last in self.ranges)

    def sum(self, row: int = 0) -> float:
        """The sum of all values, correctly rounded."""
        return self._sums[row] / (1 << _SCALE)

    def sum_of_squares(self, row: int = 0) -> float:
        """The sum of all squared values, correctly rounded."""
        return self._squares[row] / (1 << _SCALE)

    def mean(self, count: int, row: int = 0) -> float:
        """The sum over ``count``, correctly rounded."""
        return self._sums[row] / (count << _SCALE)

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

    def add(self, first: int, sums: Array, squares: Array) -> None:
        """Add blocks from ``first`` on: arrays of shape (rows, blocks), finite and non-negative."""
        if not (np.isfinite(sums).all() and np.isfinite(squares).all()):
            # nan must not become a small delta.
            raise ArithmeticError(f"blocks from {first} on: a sum is not finite; the estimate is void")
        blocks = sums.shape[1]
        if self.missing(first, first + blocks) != [(first, first + blocks)]:
            raise ParameterError(f"blocks [{first}, {first + blocks}): some of them are in the tally already")
        for row in range(self.rows):
            self._sums[row] += _exact(sums[row])
            self._squares[row] += _exact(squares[row])
        self.ranges = _union([*self.ranges, (first, first + blocks)])

    def merged(self, other: Tally) -> Tally:
        """The tally of the blocks of both, which must be disjoint and of the same run."""
        if dict(self.key) != dict(other.key) or self.rows != other.rows:
            raise ParameterError(f"tallies of different runs: {_difference(self.key, other.key)}")
        for first, last in other.ranges:
            if self.missing(first, last) != [(first, last)]:
                raise ParameterError(f"blocks [{first}, {last}): counted in both tallies")
        sums = [a + b for a, b in zip(self._sums, other._sums, strict=True)]
        squares = [a + b for a, b in zip(self._squares, other._squares, strict=True)]
        return Tally(self.key, self.rows, _union([*self.ranges, *other.ranges]), sums, squares)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tally to one small file: atomic, versioned, checksummed."""
        content = {
            "key": dict(self.key),
            "rows": self.rows,
            "ranges": [list(pair) for pair in self.ranges],
            "sums": [hex(value) for value in self._sums],
            "squares": [hex(value) for value in self._squares],
        }
        storage.write(path, _KIND, content, {})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tally:
        """Read what `save` wrote; StorageError says why a file is refused."""
        content, _ = storage.read(path, _KIND)
        with storage.refusing(path):
            ranges = [(int(first), int(last)) for first, last in content["ranges"]]
            sums, squares = ([int(value, 16) for value in content[name]] for name in ("sums", "squares"))
            rows = int(content["rows"])
            ordered = [bound for pair in ranges for bound in pair]
            if len(sums) != rows or len(squares) != rows or min([0, *sums, *squares, *ordered]) < 0:
                raise ValueError("the sums do not match the header")
            if ranges != _union(ranges) or any(first >= last for first, last in ranges):
                raise ValueError("the ranges of blocks overlap")
            return cls(content["key"], rows, ranges, sums, squares)


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
    stop: Callable[[Tally], bool] | None = None,
) -> Tally:
    """Draw the blocks of [first, last) that are not in the ``checkpoint`` file yet; return the tally.

    The file, if any, is replaced after every second or so of work, so that whatever ends the
    process, at most the blocks just running are lost. ``progress`` is called with the blocks done and all;
    ``stop`` is asked after each chunk whether what is known suffices.
    """
    if last > MAX_COUNT:
        raise ParameterError(f"blocks up to {last}: must be at most {MAX_COUNT}")
    # The key as the file would give it back.
    tally = Tally(json.loads(json.dumps(dict(key))), rows)
    if checkpoint is not None and Path(checkpoint).exists():
        found = Tally.load(checkpoint)
        if found.key != tally.key:
            raise ParameterError(
                f"checkpoint {os.fspath(checkpoint)!r}: belongs to another run: {_difference(found.key, tally.key)}"
            )
        tally = found

    def report() -> bool:
        if progress is not None:
            left = sum(end - start for start, end in tally.missing(first, last))
            progress(last - first - left, last - first)
        return stop is not None and stop(tally)

    chunk = 1
    enough = report()
    for start, end in tally.missing(first, last):
        while start < end and not enough:
            count = min(chunk, end - start)
            began = time.monotonic()
            tally.add(start, *draw(start, count))
            seconds = max(time.monotonic() - began, 1e-6)
            start += count
            if checkpoint is not None:
                tally.save(checkpoint)
            enough = report()
            # Blocks are the same however they are grouped, so the clock may decide.
            chunk = max(1, min(4 * count, int(count * _SECONDS / seconds)))
    return tally


__all__ = ["Tally"]
