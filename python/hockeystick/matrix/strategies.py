"""Strategy matrices C of DP-MF: what correlates the noise of one training step with that of the next.

The mechanism releases C G + Z, G the (steps, dimension) matrix of clipped gradient sums and Z Gaussian; what
a training loop adds to step i is row i of C^{-1} Z. A strategy is lower-triangular (the mechanism can
run), has a positive diagonal (it can be inverted) and no negative entry (Choquette-Choo et al. 2024,
Lemma 4.5: amplification by sampling may be analysed with scalar gradients), all of it checked.

>>> strategy = BandedToeplitz.optimized(steps=1024, bands=32)
>>> round(strategy.mean_squared_error() * strategy.sensitivity() ** 2, 3)
24.558
"""

from __future__ import annotations

import functools
import hashlib
import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from .. import _core
from .._base.types import Array, Numbers
from .._base.validation import ParameterError, ParameterTypeError, integer, narrowed, reals
from ..mechanisms.descriptions import set_fields
from .strategy import Strategy, check_dense, kept_counts, row_sums
from .workload import PREFIX_SUMS, Workload, checked

MOST_PRODUCTS = 2**27
"""*Speed*: most steps * bands of an optimised strategy: a search of some ten seconds."""

MAX_STEPS = 2**24
"""*Speed*: most steps of a strategy: some answers take a few arrays of that length."""


def _leading(columns: Array, steps: int) -> Array:
    """Columns of the leading block: those of the first steps, without what is past its last row."""
    kept = np.array(columns[:steps])
    for offset in range(1, columns.shape[1]):
        kept[max(0, steps - offset) :, offset] = 0.0
    return kept


def _diagonals(matrix: Array, bands: int) -> Array:
    """The columns of a lower-triangular matrix, as `Strategy._columns` has them."""
    columns = np.zeros((len(matrix), bands))
    for offset in range(bands):
        columns[: len(matrix) - offset, offset] = np.diagonal(matrix, -offset)
    return columns


def _checked(name: str, values: Any, dimensions: int) -> Array:
    """An own, read-only copy of an array of finite numbers."""
    array = np.array(reals(name, values), dtype=np.float64, order="C")
    if array.ndim != dimensions or not array.size:
        raise ParameterTypeError(
            f"{name}: must be a non-empty array of {dimensions} dimensions, not {array.ndim}"
        )
    array.setflags(write=False)
    return array


_LEAST, _MOST = 2.0**-500, 2.0**500
"""*Proof*: the sums of squares that sensitivities and losses are made of are far from where doubles end."""

_MOST_UNSURE = 2.0**-10
"""*Proof*: what a computed inverse may be off by, beside it, is small."""


def _check_entries(name: str, array: Array, diagonal: Array) -> None:
    """Refuse what is no strategy: negative or very large entries, and a diagonal that is not positive or very small."""
    if array.min() < 0.0:
        raise ParameterError(f"{_entry(name, array, np.argmin(array))}: a strategy has no negative entry")
    if array.max() > _MOST:
        largest = _entry(name, array, np.argmax(array))
        raise ParameterError(f"{largest}: must be at most 2^500; scale it together with the noise")
    _check_diagonal(name, diagonal)


def _entry(name: str, array: Array, number: np.intp) -> str:
    """An entry by its place and value."""
    place = np.unravel_index(number, array.shape)
    return f"{name}[{', '.join(str(int(index)) for index in place)}] = {array[place]!r}"


def _check_diagonal(name: str, diagonal: Array) -> None:
    worst = int(np.argmin(diagonal))
    if not diagonal[worst] >= _LEAST:
        raise ParameterError(
            f"{name}: entry {worst} of the diagonal is {diagonal[worst]!r}; must be positive, and at least 2^-500"
        )


def divided_by_toeplitz(coefficients: Array, values: Array) -> Array:
    """C^{-1} values along the first axis, C the lower-triangular Toeplitz matrix of ``coefficients``."""
    if values.ndim == 1:
        return _core.divide_by_toeplitz(coefficients, values)
    flat = values.reshape(len(values), -1)
    rows = [_core.divide_by_toeplitz(coefficients, column) for column in np.ascontiguousarray(flat.T)]
    return np.ascontiguousarray(np.array(rows).T).reshape(values.shape)


@dataclass(frozen=True)
class Identity(Strategy):
    """C = I: independent noise in every step, which is DP-SGD. ``steps`` in [1, 2^24]."""

    steps: int

    def __post_init__(self) -> None:
        set_fields(self, steps=integer("steps", self.steps, 1, MAX_STEPS))

    @property
    def bands(self) -> int:
        """1."""
        return 1

    def _columns(self) -> Array:
        return np.ones((1, 1))

    def first_steps(self, steps: int) -> Identity:
        return Identity(integer("steps", steps, 1, self.steps))

    def _solved(self, right: Array) -> Array:
        return right

    def _prefix_errors(self) -> Array:
        return np.arange(1.0, self.steps + 1.0)


@dataclass(frozen=True)
class BandedToeplitz(Strategy):
    """C[i, j] = coefficients[i - j] for 0 <= i - j < bands, and 0 otherwise.

    ``coefficients`` are finite, non-negative, the first one positive; at most ``steps`` of them.
    The mechanism is the same for C and any multiple of it, at a noise multiplier in proportion.

    >>> BandedToeplitz((1.0, 0.5), steps=3).matrix()
    array([[1. , 0. , 0. ],
           [0.5, 1. , 0. ],
           [0. , 0.5, 1. ]])
    """

    coefficients: Numbers
    steps: int

    _given = "coefficients"

    def __post_init__(self) -> None:
        steps = integer("steps", self.steps, 1, MAX_STEPS)
        array = _checked("coefficients", self.coefficients, 1)
        if len(array) > steps:
            raise ParameterError(f"coefficients: {len(array)} of them, must be at most steps = {steps}")
        _check_entries("coefficients", array, array[:1])
        set_fields(self, steps=steps, coefficients=tuple(array.tolist()))

    @classmethod
    def square_root(cls, steps: int, bands: int, workload: Workload = PREFIX_SUMS) -> BandedToeplitz:
        """The first ``bands`` coefficients of the square root of A (Fichtenberger et al. 2023; Kalinin and Lampert 2024).

        That is 1 / sqrt(1 - x), and with momentum b and weight decay 1 / sqrt((1 - b x)(1 - (1 - eta w) x)); ParameterError for
        learning rates that vary.

        >>> BandedToeplitz.square_root(steps=8, bands=3).coefficients
        (1.0, 0.5, 0.375)
        """
        return cls(tuple(square_root(*_sizes(steps, bands), workload).tolist()), steps)

    @classmethod
    def optimized(
        cls,
        steps: int,
        bands: int,
        min_sep: int | None = None,
        max_participations: int | None = 1,
        workload: Workload = PREFIX_SUMS,
    ) -> BandedToeplitz:
        """The coefficients, in unit column norm, that minimise sensitivity^2 * mean_squared_error of the ``workload``.

        The sensitivity is that without amplification, for at most ``max_participations`` (None: as many
        as fit) at least ``min_sep`` >= bands apart (None: ``bands``); so chosen in
        Choquette-Choo et al. 2024 and McKenna 2024. A minimum found by L-BFGS from the
        square-root coefficients; any outcome is a valid strategy. Learning rates that vary: up to 8192 steps.
        """
        (steps, bands), workload = _sizes(steps, bands), checked(workload)
        min_sep = bands if min_sep is None else integer("min_sep", min_sep, bands)
        if steps * bands > MOST_PRODUCTS:
            raise ParameterError(
                f"bands = {bands}: must be at most {MOST_PRODUCTS // steps} for {steps} steps: the search takes some hundred "
                "times steps * bands operations; use square_root, which is hardly worse for as many bands"
            )
        count = -(-steps // min_sep)
        if max_participations is not None:
            count = min(count, integer("max_participations", max_participations, 1))
        kept = kept_counts(steps, bands, min_sep, count)
        found = _core.optimal_toeplitz(kept, *workload.quadratic_form(steps))
        return cls(tuple(found.tolist()), steps)

    def first_steps(self, steps: int) -> BandedToeplitz:
        steps = integer("steps", steps, 1, self.steps)
        return BandedToeplitz(self.coefficients[:steps], steps)

    @property
    def bands(self) -> int:
        """The number of coefficients."""
        return len(self.coefficients)

    def _columns(self) -> Array:
        return np.array(self.coefficients)[None, :]

    def _solved(self, right: Array) -> Array:
        return divided_by_toeplitz(np.array(self.coefficients), right)

    def _prefix_errors(self) -> Array:
        """Partial sums of the squared coefficients of 1 / ((1 - x) C(x))."""
        return np.cumsum(np.square(divided_by_toeplitz(np.array(self.coefficients), np.ones(self.steps))))


def _sizes(steps: Any, bands: Any) -> tuple[int, int]:
    steps = integer("steps", steps, 1, MAX_STEPS)
    return steps, integer("bands", bands, 1, steps)


def square_root(steps: int, bands: int, workload: Workload, power: float = 0.5) -> Array:
    """The first coefficients of A^power, A the Toeplitz matrix of the ``workload`` at learning rate 1, for |power| < 1."""
    if not checked(workload).is_toeplitz:
        raise ParameterError(f"workload.learning_rates: must be one number for a square root of {workload!r}")
    k = np.arange(1.0, bands)
    series = np.concatenate([[1.0], np.cumprod((k - 1.0 + power) / k)])
    kept = 1.0 - float(workload.rates(1)[0]) * workload.weight_decay
    one, two = (
        series * np.cumprod(np.concatenate([[1.0], np.full(bands - 1, x)])) for x in (kept, workload.momentum)
    )
    product = np.zeros(bands)
    for j in range(bands if workload.momentum else 1):
        product[j:] += two[j] * one[: bands - j]
    return product


class _Matrix(Strategy):
    """A strategy given by an array: equal and hashed by its bytes."""

    @property
    def _array(self) -> Array:
        return np.asarray(getattr(self, narrowed(self._given, str)))

    @functools.cached_property
    def _digest(self) -> bytes:
        return hashlib.sha256(repr(self._array.shape).encode() + self._array.tobytes()).digest()

    def _stored(self) -> Array:
        return self._array

    def first_steps(self, steps: int) -> Strategy:
        steps = integer("steps", steps, 1, self.steps)
        if steps == self.steps:
            return self
        columns = self._columns()[:, :steps]
        if len(columns) == 1:
            return BandedToeplitz(tuple(columns[0].tolist()), steps)
        return Banded(_leading(columns, steps))

    def _solved(self, right: Array) -> Array:
        return _divided(self._columns(), right)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Matrix) or type(other) is not type(self):
            return NotImplemented
        return self._digest == other._digest and self.steps == other.steps

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._digest, self.steps))

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(steps={self.steps}, bands={self.bands}, sha256={self._digest.hex()[:12]})"
        )


def _check_columns(name: str, columns: Array) -> None:
    """Refuse more bands than steps, and entries past the last row."""
    steps, bands = columns.shape
    if bands > steps:
        raise ParameterError(f"{name}: {bands} bands, must be at most the number of steps, {steps}")
    for offset in range(1, bands):
        outside = columns[steps - offset :, offset]
        if outside.any():
            raise ParameterError(
                f"{name}[{steps - offset + int(np.argmax(outside != 0.0))}, {offset}]: lies past row {steps} "
                "of the matrix; must be 0"
            )


@dataclass(frozen=True, eq=False, repr=False)
class Banded(_Matrix):
    """A banded matrix that need not be Toeplitz.

    ``columns`` has shape (steps, bands) and holds C[j .. j + bands - 1, j] in row j: finite,
    non-negative, the first column positive, and zero where it would lie past the last row.

    >>> Banded([[1.0, 0.5], [2.0, 0.25], [3.0, 0.0]]).matrix()
    array([[1.  , 0.  , 0.  ],
           [0.5 , 2.  , 0.  ],
           [0.  , 0.25, 3.  ]])
    """

    columns: Any
    steps: int = field(init=False)

    _given = "columns"

    def __post_init__(self) -> None:
        array = _checked("columns", self.columns, 2)
        _check_columns("columns", array)
        _check_entries("columns", array, array[:, 0])
        set_fields(self, columns=array, steps=len(array))

    @property
    def bands(self) -> int:
        """The number of diagonals given."""
        return int(self._array.shape[1])

    def _columns(self) -> Array:
        return self._array

    def _prefix_errors(self) -> Array:
        """O(steps^2 bands) time, blocks of 128 steps of memory."""
        from scipy.linalg.lapack import dtbtrs

        steps = self.steps
        errors = np.empty(steps)
        for first in range(0, steps, 128):
            last = min(first + 128, steps)
            # Row i of A C^{-1} solves C' x = (1, ..., 1, 0, ..., 0) with i + 1 ones.
            ones = np.triu(np.ones((last, last - first)), -first)
            columns = _leading(self._array, last)
            rows, info = dtbtrs(columns.T[: len(columns)], ones, uplo="L", trans="T")
            if info:  # cannot happen: the diagonal is positive
                raise ArithmeticError(f"banded forward substitution failed at row {info}")
            errors[first:last] = np.einsum("ij,ij->j", rows, rows)
        return errors


def _divided(columns: Array, right: Array) -> Array:
    """C^{-1} ``right`` by forward substitution, column after column: the same on every machine."""
    solution = np.array(right, dtype=np.float64, order="C")
    with np.errstate(all="ignore"):
        for j, column in enumerate(columns):
            solution[j] /= column[0]
            below = solution[j + 1 : j + len(column)]
            below -= column[1 : 1 + len(below), None] * solution[j]
    return solution


@dataclass(frozen=True, eq=False, repr=False)
class LowerTriangular(_Matrix):
    """Any non-negative lower-triangular matrix, its ``entries`` of shape (steps, steps), at most 16384 steps.

    ``bands`` counts the diagonals up to the last one that is not zero.
    """

    entries: Any
    steps: int = field(init=False)

    _given = "entries"

    def __post_init__(self) -> None:
        array = _checked("entries", self.entries, 2)
        if array.shape[0] != array.shape[1]:
            raise ParameterError(f"entries: must be a square matrix, not of shape {array.shape}")
        check_dense(len(array))
        above = np.argwhere(np.triu(array, 1) != 0.0)
        if len(above):
            row, column = above[0]
            raise ParameterError(
                f"entries[{row}, {column}] = {array[row, column]!r}: must be lower-triangular"
            )
        _check_entries("entries", array, np.diagonal(array))
        set_fields(self, entries=array, steps=len(array))

    @functools.cached_property
    def bands(self) -> int:
        """The number of diagonals up to the last one that is not zero."""
        rows, columns = np.nonzero(self._array)
        return int(np.max(rows - columns)) + 1

    def _columns(self) -> Array:
        return _diagonals(self._array, self.bands)

    def matrix(self) -> Array:
        """The matrix as it was given."""
        return self._array

    def _prefix_errors(self) -> Array:
        """O(steps^3) time."""
        from scipy.linalg import solve_triangular

        # (A C^{-1})' = C^{-T} A'
        rows = solve_triangular(
            self._array, np.triu(np.ones_like(self._array)), lower=True, trans="T", check_finite=False
        )
        return np.asarray(np.einsum("ij,ij->j", rows, rows))


@dataclass(frozen=True, eq=False, repr=False)
class InverseBanded(_Matrix):
    """The inverse of a banded lower-triangular matrix H: noise of one step mixes a few rows of Z only.

    ``inverse`` holds H: either its Toeplitz coefficients, shape (bands of H,), with ``steps`` given, or
    its columns as in `Banded`, shape (steps, bands of H), and ``steps`` left out. H may have negative
    entries (and should); C = H^{-1} is computed and must come out non-negative. What is accounted is that C times 1 + 4 eta,
    eta a bound on what its rounding is beside it, at most 2^-10: then the guarantee holds for H^{-1} itself (docs/matrix/buffered.md, "The inverse").

    >>> InverseBanded([1.0, -0.5], steps=3).matrix()
    array([[1.  , 0.  , 0.  ],
           [0.5 , 1.  , 0.  ],
           [0.25, 0.5 , 1.  ]])
    """

    inverse: Any
    steps: int = 0
    _unsure: float = field(init=False)

    _given = "inverse"

    @classmethod
    def square_root(cls, steps: int, bands: int, workload: Workload = PREFIX_SUMS) -> InverseBanded:
        """H of the first ``bands`` coefficients of 1/sqrt(A) (banded inverse square root, Kalinin, McKenna, Upadhyay, Lampert 2025).

        That is sqrt(1 - x), and with momentum b and weight decay sqrt((1 - b x)(1 - (1 - eta w) x)); ParameterError for learning
        rates that vary, and where C = H^{-1} has a negative entry.

        >>> InverseBanded.square_root(steps=8, bands=3).inverse
        array([ 1.   , -0.5  , -0.125])
        """
        return cls(square_root(*_sizes(steps, bands), workload, -0.5), steps)

    def __post_init__(self) -> None:
        dimensions = np.ndim(self.inverse)
        if dimensions == 2:
            array = _checked("inverse", self.inverse, 2)
            steps = len(array)
            if integer("steps", self.steps) not in (0, steps):
                raise ParameterError(
                    f"steps = {self.steps}: must be the number of rows, {steps}, or left out"
                )
            check_dense(steps)
            _check_columns("inverse", array)
            _check_diagonal("inverse", array[:, 0])
        else:
            array = _checked("inverse", self.inverse, 1)
            steps = integer("steps", self.steps, 1, MAX_STEPS)
            if len(array) > steps:
                raise ParameterError(f"inverse: {len(array)} coefficients, must be at most steps = {steps}")
            _check_diagonal("inverse", array[:1])
        set_fields(self, inverse=array, steps=steps)
        computed = self._inverted()
        if not np.isfinite(computed).all():
            raise ParameterError("inverse: its inverse overflows; the matrix is too ill-conditioned")
        _check_entries("inverse of `inverse`, columns", computed, computed[:, 0])
        unsure = self._rounding_of(computed)
        if not unsure <= _MOST_UNSURE:
            raise ParameterError(
                f"inverse: rounding may change its inverse by {unsure:.3g} of it, must be at most 2^-10; "
                "the matrix is too ill-conditioned"
            )
        set_fields(self, _unsure=unsure)

    def first_steps(self, steps: int) -> InverseBanded:
        steps = integer("steps", steps, 1, self.steps)
        leading = self._array[:steps] if self._array.ndim == 1 else _leading(self._array[:, :steps], steps)
        first = InverseBanded(leading, steps)
        # The bound for all steps holds for some of them, and with it the entries are the same.
        set_fields(first, _unsure=self._unsure)
        return first

    def recurrence(self) -> tuple[Literal["strategy", "inverse", "buffers"], Array]:
        return "inverse", np.atleast_2d(self._array)

    @property
    def bands(self) -> int:
        """As many as steps: the inverse of a banded matrix is full."""
        return self.steps

    def _inverted(self) -> Array:
        """C as it is computed."""
        if self._array.ndim == 1:
            impulse = np.zeros(self.steps)
            impulse[0] = 1.0
            return divided_by_toeplitz(self._array, impulse)[None, :]
        # From the right, so that C H is the identity up to rounding of each sum; in the same order on every machine.
        transposed, bands = np.eye(self.steps), self._array.shape[1]
        with np.errstate(all="ignore"):
            for j in reversed(range(self.steps)):
                transposed[j] /= self._array[j, 0]
                before = np.arange(max(0, j - bands + 1), j)
                transposed[before] -= self._array[before, j - before, None] * transposed[j]
        return _diagonals(transposed.T, self.steps)

    def _rounding_of(self, computed: Array) -> float:
        """No less than the norm of C H - 1 for C as ``computed``: each sum of products has been rounded relative to its terms."""
        given, found = np.abs(np.atleast_2d(self._array)), np.abs(computed)
        with np.errstate(all="ignore"):
            across = np.max(row_sums(found, self.steps)) * np.max(row_sums(given, self.steps))
            along = np.max(np.sum(found, axis=1)) * np.max(np.sum(given, axis=1))
            bound = float((given.shape[1] + 8) * 2.0**-53 * max(across, along))
        # To a power of two: sums may round otherwise on another machine, where C is to have the same bits.
        return math.ldexp(1.0, math.frexp(bound)[1]) if bound < 1.0 else math.inf

    def _columns(self) -> Array:
        return self._inverted() * (1.0 + 4.0 * self._unsure)

    @property
    def excess(self) -> float:
        """How much larger C is than the inverse of H, at most: a share of each norm."""
        return 8.0 * self._unsure

    def _solved(self, right: Array) -> Array:
        result = np.zeros_like(right)
        columns = np.atleast_2d(self._array)
        for offset in range(columns.shape[1]):
            kept = self.steps - offset
            result[offset:] += columns[:, offset][: kept if len(columns) > 1 else 1, None] * right[:kept]
        return result

    def _prefix_errors(self) -> Array:
        """The columns of A H are partial sums of those of H."""
        if self._array.ndim == 1:
            row = np.zeros(self.steps)
            row[: len(self._array)] = self._array
            return np.cumsum(np.square(np.cumsum(row)))
        sums = np.square(np.cumsum(self._array, axis=1))
        steps, bands = sums.shape
        errors = np.zeros(steps)
        for offset in range(bands):
            errors[offset:] += sums[: steps - offset, offset]
        # Columns that ended before row i contribute their total.
        errors[bands:] += np.cumsum(sums[:, -1])[: steps - bands]
        return errors
