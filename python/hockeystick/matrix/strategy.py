"""What every strategy matrix answers: its entries, its errors, its sensitivity, its stored form (docs/matrix/bandmf.md)."""

from __future__ import annotations

import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, ClassVar, Literal

import numpy as np

from .._base.bounds import Bounds
from .._base.types import Array, dot
from .._base.validation import ParameterError, integer, numbers_in, real
from .workload import PREFIX_SUMS, Workload, checked

MAX_DENSE = 2**14
"""*Speed*: most steps of a dense matrix, 2 GiB."""

_COLUMNS = 512
"""*Speed*: columns of C^{-1} that are worked on together."""


class Strategy(ABC):
    """A non-negative lower-triangular (steps, steps) matrix C with a positive diagonal.

    ``steps`` is its size, ``bands`` the number of diagonals that may be non-zero. Every subclass is
    frozen and hashable.
    """

    steps: int

    _given: ClassVar[str | None] = None
    """The field that holds the array it is made of; the rest follows from that and ``steps``."""

    _kinds: ClassVar[dict[str, type[Strategy]]] = {}

    def __init_subclass__(cls) -> None:
        if not cls.__name__.startswith("_"):
            Strategy._kinds[cls.__name__] = cls

    def to_parts(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return a dict of JSON values and the arrays that go with it, every double exactly; `from_parts` is its inverse."""
        arrays = {} if self._given is None else {"strategy": np.array(getattr(self, self._given), np.float64)}
        return {"type": type(self).__name__, "steps": self.steps}, arrays

    @staticmethod
    def from_parts(plain: Mapping[str, Any], arrays: Mapping[str, Array]) -> Strategy:
        """Rebuild a strategy from what `to_parts` returned; everything is validated again. Raises ParameterError, or KeyError where something is missing."""
        importlib.import_module(".buffered", __package__)  # which imports all others
        name, steps = plain["type"], plain["steps"]
        if name not in Strategy._kinds:
            raise ParameterError(
                f"unknown strategy {name!r}: must be one of {', '.join(sorted(Strategy._kinds))}"
            )
        kind = Strategy._kinds[name]
        values = {} if kind._given is None else {kind._given: arrays["strategy"]}
        if any(entry.init and entry.name == "steps" for entry in fields(kind)):  # type: ignore[arg-type]
            values["steps"] = steps
        strategy = kind(**values)
        if strategy.steps != steps:
            raise ParameterError(
                f"steps = {steps}: this is a strategy of {strategy.steps} steps, not {steps}"
            )
        return strategy

    @abstractmethod
    def first_steps(self, steps: int) -> Strategy:
        """Return the leading (``steps``, ``steps``) block of C: what the first steps release depends on no other entry."""

    @property
    @abstractmethod
    def bands(self) -> int:
        """How many diagonals are kept: C[i, j] = 0 unless 0 <= i - j < bands."""

    @abstractmethod
    def _columns(self) -> Array:
        """The entries as float64: (1, bands) Toeplitz coefficients, whose columns are cut off at row
        ``steps``, or (steps, bands) with C[j .. j + bands - 1, j] in row j, zero past the last row."""

    @property
    def excess(self) -> float:
        """How much larger C is than what it stands for, at most: a share of each norm."""
        return 0.0

    def _stored(self) -> Array:
        """The numbers that the strategy was given: fingerprints are made of these, not of what is computed from them."""
        return self._columns()

    def recurrence(self) -> tuple[Literal["strategy", "inverse", "buffers"], Array]:
        """Return what rows of noise are made with: the columns of C, those of a banded C^{-1}, or weights and decays of buffers.

        "strategy" keeps the last rows of C^{-1} Z, "inverse" the last rows of Z, "buffers" one row for each buffer.
        """
        return "strategy", self._columns()

    def correlated_noise(self, noise: Array) -> Array:
        """C^{-1} ``noise``: what to add to the clipped gradient sums, for ``noise`` of shape (steps, ...).

        In doubles, an estimate: where the inverse grows, rounding of rows changes ``noise``, which `CorrelatedNoise` refuses and this does not.
        """
        array = numbers_in("noise", noise)
        if not array.ndim or array.shape[0] != self.steps:
            raise ParameterError(f"noise: must have shape ({self.steps}, ...), not {array.shape}")
        return self._solved(array.reshape(self.steps, math.prod(array.shape[1:]))).reshape(array.shape)

    @abstractmethod
    def _solved(self, right: Array) -> Array:
        """C^{-1} ``right``, for one of shape (steps, n)."""

    @abstractmethod
    def _prefix_errors(self) -> Array:
        """`per_step_error` of prefix sums at noise multiplier 1; nan or inf where it overflows."""

    def per_step_error(self, noise_multiplier: float = 1.0, workload: Workload = PREFIX_SUMS) -> Array:
        """Variance of the noise in each iterate (by default each prefix sum of the gradients), an array of shape (steps,).

        Entry i is noise_multiplier^2 times the squared norm of row i of A C^{-1}, A the matrix of the ``workload``, in
        units of the squared clipping norm and per coordinate. inf where it overflows. Learning rates that vary: O(steps^2)
        operations at least, up to 16384 steps. ParameterError for another number of learning rates than of steps.
        """
        scale = real("noise_multiplier", noise_multiplier, 0.0) ** 2
        with np.errstate(all="ignore"):
            plain = checked(workload) == PREFIX_SUMS
            errors = (self._prefix_errors() if plain else self._workload_errors(workload)) * scale
        return np.where(np.isnan(errors), np.inf, errors)

    def _workload_errors(self, workload: Workload) -> Array:
        """The same for any workload, from the columns of C^{-1}."""
        toeplitz, impulse = len(self._columns()) == 1, np.zeros(self.steps)
        workload.rates(self.steps)
        impulse[0] = 1.0
        response = self.correlated_noise(impulse) if toeplitz else impulse
        if toeplitz and workload.is_toeplitz:
            return np.cumsum(np.square(workload.iterates(response)))
        check_dense(self.steps)
        errors = np.zeros(self.steps)
        for first in range(0, self.steps, _COLUMNS):
            block = np.zeros((self.steps, min(_COLUMNS, self.steps - first)))
            for j in range(block.shape[1]):
                block[first + j :, j] = response[: self.steps - first - j]
            errors += np.sum(
                np.square(workload.iterates(block if toeplitz else self.correlated_noise(block))), axis=1
            )
        return errors

    def mean_squared_error(self, noise_multiplier: float = 1.0, workload: Workload = PREFIX_SUMS) -> float:
        """Mean over the steps of `per_step_error` (for prefix sums, the MSE of the b-min-sep paper, Section 7.1)."""
        return float(np.mean(self.per_step_error(noise_multiplier, workload)))

    def max_error(self, noise_multiplier: float = 1.0, workload: Workload = PREFIX_SUMS) -> float:
        """Largest entry of `per_step_error`."""
        return float(np.max(self.per_step_error(noise_multiplier, workload)))

    def column_norms(self) -> Array:
        """L2 norm of each column, an array of shape (steps,)."""
        return column_norms(self._columns(), self.steps)

    def matrix(self) -> Array:
        """The dense (steps, steps) matrix; up to 16384 steps."""
        check_dense(self.steps)
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

        >>> from hockeystick import Identity
        >>> Identity(10).sensitivity(min_sep=5, max_participations=None)**2 <= 2 * (1 + 1e-12)
        True
        """
        columns, bands = self._columns(), self.bands
        min_sep = max(1, min(bands, self.steps)) if min_sep is None else integer("min_sep", min_sep, 1)
        fitting = -(-self.steps // min_sep)
        count = fitting
        if max_participations is not None:
            count = min(integer("max_participations", max_participations, 0), fitting)
        lower, upper = _sensitivity(columns, self.steps, bands, min_sep, count)
        return Bounds(lower * (1.0 - self.excess), upper)


def check_dense(steps: int) -> None:
    if steps > MAX_DENSE:
        raise ParameterError(f"steps = {steps}: must be at most {MAX_DENSE} for a dense matrix")


_MAX_TABLE = 2**26
"""*Speed*: most entries of a dynamic program's table; beyond it the bound is a coarser one."""

_EPSILON = np.finfo(np.float64).eps  # *proof*: a unit of the last place


def _sensitivity(columns: Array, steps: int, bands: int, min_sep: int, count: int) -> Bounds:
    """The largest norm of C x over patterns of at most ``count`` ones, at least ``min_sep`` steps apart (docs/matrix/bandmf.md)."""
    if count == 0:
        return Bounds(0.0, 0.0)
    falling = columns[0]
    if len(columns) == 1 and min_sep < bands:
        # Larger entries, larger norm: round-off may have lifted some of a sequence that never rises.
        falling = np.maximum.accumulate(columns[0][::-1])[::-1]
    if len(columns) == 1 and bool(np.all(falling <= columns[0] * (1.0 + _EPSILON * (steps + bands)))):
        lower, upper = (_spaced_norm(values, steps, min_sep, count) for values in (columns[0], falling))
    else:
        if min_sep < bands and count > 1:
            weights = _row_maxima(columns, steps, min_sep, count)
        else:
            weights = np.square(column_norms(columns, steps))
        upper, pattern = _heaviest(weights, min_sep, count)
        lower = squared_norm(columns, steps, pattern)
    slack = 8.0 * (steps + bands) * _EPSILON
    return Bounds(math.sqrt(lower * max(0.0, 1.0 - slack)), math.sqrt(upper * (1.0 + slack)))


def column_norms(columns: Array, steps: int) -> Array:
    # Added up in order: libraries' own sums depend on the processor, and keys of runs on these norms.
    if len(columns) == steps:
        squares = np.zeros(steps)
        for offset in range(columns.shape[1]):
            squares += np.square(columns[:, offset])
        return np.asarray(np.sqrt(squares))
    cut = np.sqrt(np.cumsum(np.square(columns[0])))[:steps]
    norms = np.full(steps, cut[-1])
    # The column that starts k steps before the end keeps its first k entries.
    norms[steps - len(cut) :] = cut[::-1]
    return norms


def row_sums(columns: Array, steps: int) -> Array:
    """Of a matrix of entries >= 0; for a Toeplitz one the last of them, which is the largest."""
    if len(columns) == 1:
        return np.asarray(np.sum(columns, axis=1))
    sums = np.zeros(steps)
    for offset in range(columns.shape[1]):
        sums[offset:] += columns[: steps - offset, offset]
    return sums


def kept_counts(steps: int, bands: int, min_sep: int, count: int) -> Array:
    """How many of the columns 0, min_sep, 2 min_sep, ... keep each coefficient: the sensitivity's weights."""
    return np.minimum(count, -(-(steps - np.arange(bands)) // min_sep)).astype(np.float64)


def _spaced_norm(coefficients: Array, steps: int, min_sep: int, count: int) -> float:
    """||C x||^2 for Toeplitz C and x = 1 at 0, min_sep, 2 min_sep, ..."""
    if min_sep >= len(coefficients):
        return dot(kept_counts(steps, len(coefficients), min_sep, count), np.square(coefficients))
    # The sum of `count` copies, min_sep steps after one another, by the binary digits of count.
    image, copies, done, width = np.zeros(steps), np.zeros(steps), 0, 1
    copies[: len(coefficients)] = coefficients[:steps]
    while width <= count:
        if count & width:
            shift = min(steps, done * min_sep)
            image[shift:] += copies[: steps - shift]
            done += width
        shift = min(steps, width * min_sep)
        copies[shift:] += copies[: steps - shift].copy()
        width *= 2
    return dot(image, image)


def squared_norm(columns: Array, steps: int, pattern: Iterable[int]) -> float:
    """||C x||^2 for x = 1 at the steps of the pattern."""
    image = np.zeros(steps)
    for start in pattern:
        column = columns[0] if len(columns) == 1 else columns[start]
        length = min(len(column), steps - start)
        image[start : start + length] += column[:length]
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
        values = products[np.clip(steps - left - shift, 1, len(products)) - 1]
    else:
        right = np.where(inside, first + shift, 0)
        overlap = columns.shape[1] - shift
        values = np.einsum("ij,ij->i", columns[left, shift:], columns[right, :overlap])
    return np.where(inside, values, 0.0)
