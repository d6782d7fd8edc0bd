"""The empirical law of values in [0, 1]: all that the bounds on their mean need, however many there are.

Every value is spread onto the two points of a fixed grid around it, so that its mean stays the same
(`cpp/src/montecarlo/empirical.hpp`). Masses are whole numbers: laws of disjoint blocks add up exactly,
in any order, and take the same small space for a thousand values or a billion (docs/montecarlo/means.md, "The empirical law on a grid").
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .. import _core
from .._base.types import Array
from .._base.validation import ParameterError, ParameterTypeError, entries, instance, numbers_in

UNIT = 2**32
"""*Format*: the mass of one value."""

POINTS = 642
"""*Format*: the number of points."""

_GRID = 2**44  # *proof*: every point is a whole multiple of its inverse


@functools.cache
def points() -> Array:
    """The points of the grid, from 0 to 1, exact."""
    found = _core.empirical_points()
    found.setflags(write=False)
    return found


@functools.cache
def _whole_points() -> tuple[int, ...]:
    return tuple(int(point * _GRID) for point in points().tolist())


@dataclass(frozen=True)
class Empirical:
    """The masses of values in [0, 1] at the points of the grid, in units of 2^-32 of a value.

    Spreading keeps the mean up to a relative 2^-37 (and an absolute 2^-73 where values are below 2^-40), and raises the
    mean of the squares by at most a part in 1024.

    >>> law = Empirical.of([0.0, 0.5, 1.0])
    >>> law.count, law.mean
    (3, 0.5)
    >>> (law + law).count
    6
    """

    masses: tuple[int, ...]

    def __post_init__(self) -> None:
        instance("masses", self.masses, Sequence, "a sequence of integers")  # type: ignore[type-abstract]
        if len(self.masses) != POINTS:
            raise ParameterError(f"masses: must be {POINTS} numbers, not {len(self.masses)}")
        if min(self.masses) < 0 or sum(self.masses) % UNIT:
            raise ParameterError("masses: must be non-negative and those of whole values")

    @classmethod
    def of(cls, values: ArrayLike) -> Empirical:
        """The law of an array of values; ArithmeticError if one of them is not a number in [0, 1]."""
        masses, refused = _core.spread_values(numbers_in("values", values))
        check(refused)
        return cls(tuple(masses.tolist()))

    @classmethod
    def total(cls, laws: Iterable[Empirical]) -> Empirical:
        """The law of the values of all of them together."""
        given = entries("laws", laws, "Empirical")
        return sum((instance("laws", law, Empirical) for law in given), cls((0,) * POINTS))

    def __add__(self, other: object) -> Empirical:
        if not isinstance(other, Empirical):
            return NotImplemented
        return Empirical(tuple(a + b for a, b in zip(self.masses, other.masses, strict=True)))

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.masses) // UNIT

    @property
    def mean(self) -> float:
        """The mean, correctly rounded; 0 values have none."""
        count, first, _ = self._sums()
        if not count:
            raise ParameterTypeError("a mean of no values")
        return first / (count * UNIT * _GRID)

    @property
    def variance(self) -> float:
        """The sample variance, over count - 1, of the spread values: never less than that of the values.

        Correctly rounded. Needs two values.
        """
        count, first, second = self._sums()
        if count < 2:
            raise ParameterError(f"count = {count}: a variance needs at least 2 values")
        mass = count * UNIT
        return (mass * second - first * first) / (mass * (mass - UNIT) * _GRID**2)

    def atoms(self) -> tuple[Array, Array]:
        """Points that have mass, and how many values they stand for."""
        masses = np.array(self.masses, dtype=np.float64) / UNIT
        used = masses > 0.0
        return points()[used], masses[used]

    def _sums(self) -> tuple[int, int, int]:
        """The number of values, and the exact sums of mass * point and mass * point^2."""
        first = second = 0
        for mass, point in zip(self.masses, _whole_points(), strict=True):
            if mass:
                first += mass * point
                second += mass * point * point
        return self.count, first, second


def check(refused: int) -> None:
    """Refuse values outside [0, 1]: a bound that does not hold proves nothing."""
    if refused:
        raise ArithmeticError(
            f"{refused} values are not numbers between 0 and their bound: nothing follows from them"
        )
