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

import hashlib
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import _core
from .._base.arrays import Array, dot
from .._base.bounds import Bounds
from .._base.validation import ParameterError, ParameterTypeError, integer, real, reals

MOST_PRODUCTS = 2**27
"""Most steps * bands of an optimised strategy: a search of some ten seconds."""

MAX_STEPS = 2**24
"""Most steps of a strategy: some answers take a few arrays of that length."""

_MAX_DENSE = 2**14
_MAX_TABLE = 2**26
_EPSILON = np.finfo(np.float64).eps


class Strategy(ABC):
    """A non-negative lower-triangular (steps, steps) matrix C with a positive diagonal.

    ``steps`` is its size, ``bands`` the number of diagonals that may be non-zero. Every subclass is
    frozen and hashable.
    """

    steps: int

    @property
    @abstractmethod
    def bands(self) -> int:
        """How many diagonals are kept: C[i, j] = 0 unless 0 <= i - j < bands."""

    @abstractmethod
    def _columns(self) -> Array:
        """The entries as float64: (1, bands) Toeplitz coefficients, whose columns are cut off at row
        ``steps``, or (steps, bands) with C[j .. j + bands - 1, j] in row j, zero past the last row."""

    def _stored(self) -> Array:
        """The numbers that the strategy was given: fingerprints are made of these, not of what is computed from them."""
        return self._columns()

    @abstractmethod
    def correlated_noise(self, noise: Array) -> Array:
        """C^{-1} ``noise``: what to add to the clipped gradient sums, for ``noise`` of shape (steps, ...)."""

    @abstractmethod
    def per_step_error(self, noise_multiplier: float = 1.0) -> Array:
        """Variance of the noise in each prefix sum of the gradients, an array of shape (steps,).

        Entry i is noise_multiplier^2 times the squared norm of row i of A C^{-1}, A the lower-triangular
        matrix of ones, in units of the squared clipping norm and per coordinate. inf where it overflows.
        """

    def mean_squared_error(self, noise_multiplier: float = 1.0) -> float:
        """Mean over the steps of `per_step_error` (the paper's MSE of prefix sums, Section 7.1)."""
        return float(np.mean(self.per_step_error(noise_multiplier)))

    def max_error(self, noise_multiplier: float = 1.0) -> float:
        """Largest entry of `per_step_error`."""
        return float(np.max(self.per_step_error(noise_multiplier)))

    def column_norms(self) -> Array:
        """L2 norm of each column, an array of shape (steps,)."""
        columns = self._columns()
        # Added up in order: libraries' own sums depend on the processor, and keys of runs on these norms.
        if len(columns) == self.steps:
            squares = np.zeros(self.steps)
            for offset in range(columns.shape[1]):
                squares += np.square(columns[:, offset])
            return np.asarray(np.sqrt(squares))
        cut = np.sqrt(np.cumsum(np.square(columns[0])))[: self.steps]
        norms = np.full(self.steps, cut[-1])
        # The column that starts k steps before the end keeps its first k entries.
        norms[self.steps - len(cut) :] = cut[::-1]
        return norms

    def matrix(self) -> Array:
        """The dense (steps, steps) matrix; up to 16384 steps."""
        _dense_size(self.steps)
        columns, dense = self._columns(), np.zeros((self.steps, self.steps))
        for offset in range(min(self.bands, self.steps)):
            rows = np.arange(offset, self.steps)
            values = columns[:, offset]
            dense[rows, rows - offset] = values if len(columns) == 1 else values[: len(rows)]
        return dense

    def sensitivity(self, min_sep: int | None = None, max_participations: int | None = 1) -> float:
        """L2 sensitivity of C G without amplification: the upper end of `sensitivity_bounds`.

        Without sampling, the release is one Gaussian mechanism of ``noise_multiplier`` / sensitivity.
        """
        return self.sensitivity_bounds(min_sep, max_participations).upper

    def sensitivity_bounds(self, min_sep: int | None = None, max_participations: int | None = 1) -> Bounds:
        """Bounds on max ||C x|| over all participation patterns x.

        A pattern has at most ``max_participations`` ones (None: as many as fit), at least ``min_sep`` steps
        apart (None: ``bands``, so that participations never overlap). Since C is non-negative this is the
        sensitivity for vector gradients of norm at most 1 too. The two ends agree up to round-off, which
        both include, if bands <= min_sep, if there is one participation, or if C is Toeplitz with
        non-increasing coefficients (Kalinin and Lampert 2024, Theorem 2). Otherwise the upper one is a
        dynamic program over row-wise maxima (Choquette-Choo et al. 2023, Section 4), the lower one what
        the pattern it finds attains.

        >>> Identity(10).sensitivity(min_sep=5, max_participations=None)**2 <= 2 * (1 + 1e-12)
        True
        """
        steps = self.steps
        min_sep = max(1, min(self.bands, steps)) if min_sep is None else integer("min_sep", min_sep, 1)
        fitting = -(-steps // min_sep)
        if max_participations is None:
            count = fitting
        else:
            count = min(integer("max_participations", max_participations, 0), fitting)
        if count == 0:
            return Bounds(0.0, 0.0)
        columns = self._columns()
        if len(columns) == 1 and (min_sep >= self.bands or bool(np.all(np.diff(columns[0]) <= 0.0))):
            lower = upper = _spaced_norm(columns[0], steps, min_sep, count)
        else:
            weights = np.square(self.column_norms())
            if min_sep < self.bands and count > 1:
                weights = _row_maxima(columns, steps, min_sep, count)
            upper, pattern = _heaviest(weights, min_sep, count)
            lower = _squared_norm(columns, steps, pattern)
        slack = 8.0 * (steps + self.bands) * _EPSILON
        return Bounds(math.sqrt(lower * max(0.0, 1.0 - slack)), math.sqrt(upper * (1.0 + slack)))


def _dense_size(steps: int) -> None:
    if steps > _MAX_DENSE:
        raise ParameterError(f"steps = {steps}: must be at most {_MAX_DENSE} for a dense matrix")


def _checked(name: str, values: Any, dimensions: int) -> Array:
    """An own, read-only copy of an array of finite numbers."""
    array = np.array(reals(name, values), dtype=np.float64, order="C")
    if array.ndim != dimensions or not array.size:
        raise ParameterTypeError(
            f"{name}: must be a non-empty array of {dimensions} dimensions, not {array.ndim}"
        )
    array.setflags(write=False)
    return array


def _nonnegative(name: str, array: Array) -> None:
    smallest = np.unravel_index(np.argmin(array), array.shape)
    if array[smallest] < 0.0:
        at = ", ".join(str(int(index)) for index in smallest)
        raise ParameterError(f"{name}[{at}] = {array[smallest]!r}: a strategy has no negative entry")


def _positive_diagonal(name: str, diagonal: Array) -> None:
    worst = int(np.argmin(diagonal))
    if not diagonal[worst] > 0.0:
        raise ParameterError(
            f"{name}: entry {worst} of the diagonal is {diagonal[worst]!r}; must be positive"
        )


def _noise_multiplier(value: Any) -> float:
    return real("noise_multiplier", value, 0.0)


def _filtered(coefficients: Array, values: Array) -> Array:
    """C^{-1} values along the first axis, C the lower-triangular Toeplitz matrix of ``coefficients``."""
    if values.ndim == 1:
        return _core.divide_by_toeplitz(coefficients, values)
    flat = values.reshape(len(values), -1)
    rows = [_core.divide_by_toeplitz(coefficients, column) for column in np.ascontiguousarray(flat.T)]
    return np.ascontiguousarray(np.array(rows).T).reshape(values.shape)


def _noise_rows(noise: Any, steps: int) -> Array:
    array = np.asarray(noise, dtype=np.float64)
    if not array.ndim or array.shape[0] != steps:
        raise ParameterError(f"noise: must have shape ({steps}, ...), not {array.shape}")
    return array


def _running_squares(row: Array, noise_multiplier: float) -> Array:
    """Row norms of the lower-triangular Toeplitz matrix of ``row``, squared and scaled."""
    with np.errstate(all="ignore"):
        errors = np.cumsum(np.square(row)) * _noise_multiplier(noise_multiplier) ** 2
    # Overflow of an unstable inverse may pass through inf - inf.
    return np.where(np.isnan(errors), np.inf, errors)


@dataclass(frozen=True)
class Identity(Strategy):
    """C = I: independent noise in every step, which is DP-SGD. ``steps`` in [1, 2^24]."""

    steps: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", integer("steps", self.steps, 1, MAX_STEPS))

    @property
    def bands(self) -> int:
        """1."""
        return 1

    def _columns(self) -> Array:
        return np.ones((1, 1))

    def correlated_noise(self, noise: Array) -> Array:
        """The noise as it is."""
        return _noise_rows(noise, self.steps)

    def per_step_error(self, noise_multiplier: float = 1.0) -> Array:
        """noise_multiplier^2 times 1, 2, ..., steps."""
        return np.arange(1.0, self.steps + 1.0) * _noise_multiplier(noise_multiplier) ** 2


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

    coefficients: tuple[float, ...]
    steps: int

    def __post_init__(self) -> None:
        steps = integer("steps", self.steps, 1, MAX_STEPS)
        array = _checked("coefficients", self.coefficients, 1)
        if len(array) > steps:
            raise ParameterError(f"coefficients: {len(array)} of them, must be at most steps = {steps}")
        _nonnegative("coefficients", array)
        _positive_diagonal("coefficients", array[:1])
        object.__setattr__(self, "steps", steps)
        object.__setattr__(self, "coefficients", tuple(array.tolist()))

    @classmethod
    def square_root(cls, steps: int, bands: int) -> BandedToeplitz:
        """The first ``bands`` coefficients of the square root of A, 1 / sqrt(1 - x) (Fichtenberger et
        al. 2023).

        >>> BandedToeplitz.square_root(steps=8, bands=3).coefficients
        (1.0, 0.5, 0.375)
        """
        return cls(tuple(_square_root(*_sizes(steps, bands)).tolist()), steps)

    @classmethod
    def optimized(
        cls, steps: int, bands: int, min_sep: int | None = None, max_participations: int | None = 1
    ) -> BandedToeplitz:
        """The coefficients, in unit column norm, that minimise sensitivity^2 * mean_squared_error.

        The sensitivity is that without amplification, for at most ``max_participations`` (None: as many
        as fit) at least ``min_sep`` >= bands apart (None: ``bands``); so chosen in
        Choquette-Choo et al. 2024 and McKenna 2024. A minimum found by L-BFGS from the
        square-root coefficients; any outcome is a valid strategy.
        """
        steps, bands = _sizes(steps, bands)
        min_sep = bands if min_sep is None else integer("min_sep", min_sep, bands)
        if steps * bands > MOST_PRODUCTS:
            raise ParameterError(
                f"bands = {bands}: must be at most {MOST_PRODUCTS // steps} for {steps} steps: the search takes some hundred "
                "times steps * bands operations; use square_root, which is hardly worse for as many bands"
            )
        count = -(-steps // min_sep)
        if max_participations is not None:
            count = min(count, integer("max_participations", max_participations, 1))
        found = _core.optimal_toeplitz(steps, _kept(steps, bands, min_sep, count))
        return cls(tuple(found.tolist()), steps)

    @property
    def bands(self) -> int:
        """The number of coefficients."""
        return len(self.coefficients)

    def _columns(self) -> Array:
        return np.array(self.coefficients)[None, :]

    def correlated_noise(self, noise: Array) -> Array:
        """C^{-1} ``noise`` by forward substitution, for ``noise`` of shape (steps, ...)."""
        return _filtered(np.array(self.coefficients), _noise_rows(noise, self.steps))

    def per_step_error(self, noise_multiplier: float = 1.0) -> Array:
        """Partial sums of the squared coefficients of 1 / ((1 - x) C(x)), times noise_multiplier^2."""
        row = _filtered(np.array(self.coefficients), np.ones(self.steps))
        return _running_squares(row, noise_multiplier)


def _sizes(steps: Any, bands: Any) -> tuple[int, int]:
    steps = integer("steps", steps, 1, MAX_STEPS)
    return steps, integer("bands", bands, 1, steps)


def _square_root(steps: int, bands: int) -> Array:
    k = np.arange(1.0, bands)
    return np.concatenate([[1.0], np.cumprod((2.0 * k - 1.0) / (2.0 * k))])


def _kept(steps: int, bands: int, min_sep: int, count: int) -> Array:
    """How many of the columns 0, min_sep, 2 min_sep, ... keep each coefficient: the sensitivity's weights."""
    starts = np.arange(count) * min_sep
    return np.array([float(np.count_nonzero(starts + offset < steps)) for offset in range(bands)])


class _Matrix(Strategy):
    """A strategy given by an array: equal and hashed by its bytes."""

    _array: Array
    _digest: bytes

    def _stored(self) -> Array:
        return self._array

    def _store(self, array: Array) -> None:
        object.__setattr__(self, "_array", array)
        content = hashlib.sha256(repr(array.shape).encode() + array.tobytes()).digest()
        object.__setattr__(self, "_digest", content)

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

    def __post_init__(self) -> None:
        array = _checked("columns", self.columns, 2)
        _check_columns("columns", array)
        _nonnegative("columns", array)
        _positive_diagonal("columns", array[:, 0])
        object.__setattr__(self, "columns", array)
        object.__setattr__(self, "steps", len(array))
        self._store(array)

    @property
    def bands(self) -> int:
        """The number of diagonals given."""
        return int(self._array.shape[1])

    def _columns(self) -> Array:
        return self._array

    def correlated_noise(self, noise: Array) -> Array:
        """C^{-1} ``noise`` by forward substitution, for ``noise`` of shape (steps, ...)."""
        array = _noise_rows(noise, self.steps)
        flat = array.reshape(self.steps, -1)
        return _divided(self._array, flat).reshape(array.shape)

    def per_step_error(self, noise_multiplier: float = 1.0) -> Array:
        """As for every strategy; O(steps^2 bands) time, blocks of 128 steps of memory."""
        steps, scale = self.steps, _noise_multiplier(noise_multiplier) ** 2
        errors = np.empty(steps)
        for first in range(0, steps, 128):
            last = min(first + 128, steps)
            # Row i of A C^{-1} solves C' x = (1, ..., 1, 0, ..., 0) with i + 1 ones.
            ones = np.triu(np.ones((last, last - first)), -first)
            leading = self._array[:last].copy()
            for offset in range(1, self.bands):
                leading[max(0, last - offset) :, offset] = 0.0
            with np.errstate(all="ignore"):
                rows = _solve_transposed(leading, ones)
                errors[first:last] = np.einsum("ij,ij->j", rows, rows) * scale
        return np.where(np.isnan(errors), np.inf, errors)


def _divided(columns: Array, right: Array) -> Array:
    """C^{-1} ``right`` by forward substitution, column after column: the same on every machine."""
    solution = np.array(right, dtype=np.float64, order="C")
    with np.errstate(all="ignore"):
        for j, column in enumerate(columns):
            solution[j] /= column[0]
            below = solution[j + 1 : j + len(column)]
            below -= column[1 : 1 + len(below), None] * solution[j]
    return solution


def _solve_transposed(columns: Array, right: Array) -> Array:
    from scipy.linalg.lapack import dtbtrs

    solution, info = dtbtrs(columns.T[: len(columns)], right, uplo="L", trans="T")
    if info:  # cannot happen: the diagonal is positive
        raise ArithmeticError(f"banded forward substitution failed at row {info}")
    return np.asarray(solution)


@dataclass(frozen=True, eq=False, repr=False)
class LowerTriangular(_Matrix):
    """Any non-negative lower-triangular ``matrix`` of shape (steps, steps), at most 16384 steps.

    ``bands`` counts the diagonals up to the last one that is not zero.
    """

    entries: Any
    steps: int = field(init=False)
    _bands: int = field(init=False)

    def __post_init__(self) -> None:
        array = _checked("entries", self.entries, 2)
        if array.shape[0] != array.shape[1]:
            raise ParameterError(f"entries: must be a square matrix, not of shape {array.shape}")
        _dense_size(len(array))
        above = np.argwhere(np.triu(array, 1) != 0.0)
        if len(above):
            row, column = above[0]
            raise ParameterError(
                f"entries[{row}, {column}] = {array[row, column]!r}: must be lower-triangular"
            )
        _nonnegative("entries", array)
        _positive_diagonal("entries", np.diagonal(array))
        rows, found = np.nonzero(array)
        object.__setattr__(self, "entries", array)
        object.__setattr__(self, "steps", len(array))
        object.__setattr__(self, "_bands", int(np.max(rows - found)) + 1)
        self._store(array)

    @property
    def bands(self) -> int:
        """The number of diagonals up to the last one that is not zero."""
        return self._bands

    def _columns(self) -> Array:
        columns = np.zeros((self.steps, self.bands))
        for offset in range(self.bands):
            columns[: self.steps - offset, offset] = np.diagonal(self._array, -offset)
        return columns

    def matrix(self) -> Array:
        """The matrix as it was given."""
        return self._array

    def correlated_noise(self, noise: Array) -> Array:
        """C^{-1} ``noise`` by forward substitution, for ``noise`` of shape (steps, ...)."""
        array = _noise_rows(noise, self.steps)
        flat = array.reshape(self.steps, -1)
        return _divided(self._columns(), flat).reshape(array.shape)

    def per_step_error(self, noise_multiplier: float = 1.0) -> Array:
        """As for every strategy; O(steps^3) time."""
        from scipy.linalg import solve_triangular

        with np.errstate(all="ignore"):
            # (A C^{-1})' = C^{-T} A'
            rows = solve_triangular(
                self._array, np.triu(np.ones_like(self._array)), lower=True, trans="T", check_finite=False
            )
            errors = np.einsum("ij,ij->j", rows, rows) * _noise_multiplier(noise_multiplier) ** 2
        return np.where(np.isnan(errors), np.inf, errors)


@dataclass(frozen=True, eq=False, repr=False)
class InverseBanded(_Matrix):
    """The inverse of a banded lower-triangular matrix H: noise of one step mixes a few rows of Z only.

    ``inverse`` holds H: either its Toeplitz coefficients, shape (bands of H,), with ``steps`` given, or
    its columns as in `Banded`, shape (steps, bands of H), and ``steps`` left out. H may have negative
    entries (and should); C = H^{-1} is computed and must come out non-negative.

    >>> InverseBanded([1.0, -0.5], steps=3).matrix()
    array([[1.  , 0.  , 0.  ],
           [0.5 , 1.  , 0.  ],
           [0.25, 0.5 , 1.  ]])
    """

    inverse: Any
    steps: int = 0

    def __post_init__(self) -> None:
        dimensions = np.ndim(self.inverse)
        if dimensions == 2:
            array = _checked("inverse", self.inverse, 2)
            steps = len(array)
            if integer("steps", self.steps) not in (0, steps):
                raise ParameterError(
                    f"steps = {self.steps}: must be the number of rows, {steps}, or left out"
                )
            _dense_size(steps)
            _check_columns("inverse", array)
            _positive_diagonal("inverse", array[:, 0])
        else:
            array = _checked("inverse", self.inverse, 1)
            steps = integer("steps", self.steps, 1, MAX_STEPS)
            if len(array) > steps:
                raise ParameterError(f"inverse: {len(array)} coefficients, must be at most steps = {steps}")
            _positive_diagonal("inverse", array[:1])
        object.__setattr__(self, "inverse", array)
        object.__setattr__(self, "steps", steps)
        self._store(array)
        columns = self._columns()
        if not np.isfinite(columns).all():
            raise ParameterError("inverse: its inverse overflows; the matrix is too ill-conditioned")
        _nonnegative("inverse of `inverse`, columns", columns)

    @property
    def bands(self) -> int:
        """As many as steps: the inverse of a banded matrix is full."""
        return self.steps

    def _columns(self) -> Array:
        if self._array.ndim == 1:
            impulse = np.zeros(self.steps)
            impulse[0] = 1.0
            return _filtered(self._array, impulse)[None, :]
        dense = _divided(self._array, np.eye(self.steps))
        columns = np.zeros((self.steps, self.steps))
        for offset in range(self.steps):
            columns[: self.steps - offset, offset] = np.diagonal(dense, -offset)
        return columns

    def correlated_noise(self, noise: Array) -> Array:
        """H ``noise``, for ``noise`` of shape (steps, ...)."""
        array = _noise_rows(noise, self.steps)
        flat = array.reshape(self.steps, -1)
        result = np.zeros_like(flat)
        columns = self._array[None, :] if self._array.ndim == 1 else self._array
        for offset in range(columns.shape[1]):
            kept = self.steps - offset
            result[offset:] += columns[:, offset][: kept if len(columns) > 1 else 1, None] * flat[:kept]
        return result.reshape(array.shape)

    def per_step_error(self, noise_multiplier: float = 1.0) -> Array:
        """As for every strategy; the columns of A H are partial sums of those of H."""
        if self._array.ndim == 1:
            row = np.zeros(self.steps)
            row[: len(self._array)] = self._array
            return _running_squares(np.cumsum(row), noise_multiplier)
        sums = np.square(np.cumsum(self._array, axis=1))
        steps, bands = sums.shape
        errors = np.zeros(steps)
        for offset in range(bands):
            errors[offset:] += sums[: steps - offset, offset]
        # Columns that ended before row i contribute their total.
        errors[bands:] += np.cumsum(sums[:, -1])[: steps - bands]
        return np.asarray(errors * _noise_multiplier(noise_multiplier) ** 2)


# --- Sensitivity without amplification ------------------------------------------------------------


def _spaced_norm(coefficients: Array, steps: int, min_sep: int, count: int) -> float:
    """||C x||^2 for Toeplitz C and x = 1 at 0, min_sep, 2 min_sep, ..."""
    if min_sep >= len(coefficients):
        return dot(_kept(steps, len(coefficients), min_sep, count), np.square(coefficients))
    image = np.zeros(steps)
    for start in range(0, count * min_sep, min_sep):
        kept = min(len(coefficients), steps - start)
        image[start : start + kept] += coefficients[:kept]
    return dot(image, image)


def _squared_norm(columns: Array, steps: int, pattern: list[int]) -> float:
    image = np.zeros(steps)
    for start in pattern:
        column = columns[0] if len(columns) == 1 else columns[start]
        kept = min(len(column), steps - start)
        image[start : start + kept] += column[:kept]
    return dot(image, image)


def _heaviest(weights: Array, min_sep: int, count: int) -> tuple[float, list[int]]:
    """The largest sum of ``count`` non-negative weights at least ``min_sep`` apart, and where it is attained.

    Where the table of the dynamic program would be too large, the sum of the largest ones, wherever
    they are: an upper bound still (the pattern is then the evenly spaced one).
    """
    steps = len(weights)
    unlimited = count >= -(-steps // min_sep)
    width = 1 if unlimited else count
    if steps * width > _MAX_TABLE:
        return float(np.sum(np.sort(weights)[-count:])), list(range(0, steps, min_sep))[:count]
    # best[i + min_sep - 1]: the most from the first i steps, one entry per number of participations.
    best = np.zeros((steps + min_sep, width + 1))
    for i in range(steps):
        before = best[i]
        taken = before + weights[i]
        if not unlimited:
            taken = np.concatenate([[0.0], taken[:-1]])
        best[i + min_sep] = np.maximum(best[i + min_sep - 1], taken)
    pattern, i, k = [], steps - 1, width
    while i >= 0 and k > 0:
        if best[i + min_sep, k] > best[i + min_sep - 1, k]:
            pattern.append(i)
            i -= min_sep
            k -= 0 if unlimited else 1
        else:
            i -= 1
    return float(best[-1, width]), pattern[::-1]


def _row_maxima(columns: Array, steps: int, min_sep: int, count: int) -> Array:
    """For each i the most that row i of C'C can add up to over the patterns that contain i.

    ||C x||^2 = sum of x_i x_j (C'C)_ij is at most the sum of these over the pattern. Participations
    are not counted where the bands hold no more of them anyway, or where the table would be too large.
    """
    bands = columns.shape[1]
    others = count - 1
    counted = others < 2 * ((bands - 1) // min_sep) and (min_sep + 1) * (others + 1) <= _MAX_TABLE
    width = others if counted else 1
    maxima = np.empty(steps)
    rows = max(1, min(steps, _MAX_TABLE // 8 // ((min_sep + 1) * (width + 1))))
    for first in range(0, steps, rows):
        block = np.arange(first, min(first + rows, steps))
        # best[at % (min_sep + 1)]: the most from the offsets up to `at`, by number of participations.
        best = np.zeros((min_sep + 1, len(block), width + 1))
        for at, offset in enumerate(range(1 - bands, bands)):
            here = best[at % (min_sep + 1)]
            # Overwriting `here` last: what lies min_sep steps back is in the slot after it.
            before = best[(at + 1) % (min_sep + 1)]
            here[:] = best[(at - 1) % (min_sep + 1)]
            if abs(offset) >= min_sep:
                gram = _gram(columns, steps, block, offset)[:, None]
                taken = before[:, :-1] + gram if counted else before + gram
                target = here[:, 1:] if counted else here
                np.maximum(target, taken, out=target)
        maxima[block] = here.max(axis=1) + _gram(columns, steps, block, 0)
    return maxima


def _gram(columns: Array, steps: int, block: Any, offset: int) -> Array:
    """(C'C)[i, i + offset] for each i in ``block``; 0 outside the matrix."""
    first = block if offset >= 0 else block + offset
    shift = abs(offset)
    inside = (first >= 0) & (first + shift < steps)
    left = np.where(inside, first, 0)
    values: Array
    if len(columns) == 1:
        # Products of the overlapping parts, cut off at the last row.
        products = np.cumsum(columns[0, shift:] * columns[0, : columns.shape[1] - shift])
        kept = np.clip(steps - left - shift, 1, len(products))
        values = products[kept - 1]
    else:
        right = np.where(inside, first + shift, 0)
        overlap = columns.shape[1] - shift
        values = np.einsum("ij,ij->i", columns[left, shift:], columns[right, :overlap])
    return np.where(inside, values, 0.0)


__all__ = ["Banded", "BandedToeplitz", "Identity", "InverseBanded", "LowerTriangular", "Strategy"]
