"""The ledger that filters and odometers share: what each example of a data set has spent, never too little (docs/individual/individual.md, "A budget cannot be overspent in float64")."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .._base.exclusive import Exclusive, Guard
from .._base.validation import (
    ParameterError,
    ParameterTypeError,
    boolean,
    double,
    doubles,
    integer,
    integers,
    real,
    unmasked,
)
from .kept import MAX_EXAMPLES, Kept
from .ledger import Ledger, LiveLedger

LARGEST_MU = 1e130  # *limit*: its square is a double
# *Proof*: beyond these the core's exact arithmetic could underflow.
_LEAST_NOISE, _MOST_NOISE = 2.0**-60, 2.0**60

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
# (clip, divisor, factor, square): the cost is factor * (min(norm, clip) / divisor)^2, or factor * norm.
Rule = tuple[float, float, float, bool]


def squared_down(mu: float) -> float:
    """mu^2 rounded down, unless it is exact."""
    return double(Fraction(mu) ** 2, -math.inf)


def product_below(count: Floats, factor: float, limit: Floats) -> NDArray[np.bool_]:
    """Where ``count`` times ``factor``, not rounded, is below ``limit``; the product's error is exact (Dekker 1971), as ``factor`` is above 1e-260."""

    def halves(value: Any) -> tuple[Any, Any]:
        shifted = 134217729.0 * value  # *proof*: 2^27 + 1 leaves 26 bits to each half
        high = shifted - (shifted - value)
        return high, value - high

    (a, b), (c, d) = halves(count), halves(factor)
    product = count * factor
    error = ((a * c - product) + a * d + b * c) + b * d
    return np.asarray((product < limit) | ((product == limit) & (error < 0.0)))


class LastStep:
    """What the last step did: ``step``, its number; ``indices`` (None: all examples); ``active``, the mask."""

    def __init__(self, step: int, indices: NDArray[np.int64] | None, active: Mask) -> None:
        self.step, self.indices, self.active = step, indices, active

    def __repr__(self) -> str:
        return f"LastStep(step={self.step}, active={int(self.active.sum())} of {self.active.size})"


class IndividualLedger(Kept):
    """What each example has spent, in units of its budget: the base of filters and odometers. Threads and forks: see `Exclusive`."""

    _LIVE = LiveLedger
    _ALIKE = "budgets"
    _state: Ledger

    def __init__(self, num_examples: int, limit: float, factor: float, path: Any, durable: bool) -> None:
        self._limit, self._factor = limit, factor
        boolean("durable", durable)
        n = integer("num_examples", num_examples, 0, MAX_EXAMPLES)
        if path is None:
            self._state = Ledger(np.zeros(n))
        else:
            # Not in memory: there may be more of them than fit.
            self._keep([Ledger(np.broadcast_to(0.0, (n,)))], path, durable)

    @property
    def _spent(self) -> Floats:
        self._state.check_open()
        return self._state.values

    @property
    def spent(self) -> Floats:
        """What each example has spent, in the units of the budget: a read-only view, and sensitive.

        No copy: where other threads make steps, it changes under the reader's hands, a number at a time.
        """
        view: Floats = self._spent.view()
        view.flags.writeable = False
        return view

    @property
    def last_step(self) -> LastStep | None:
        """The last step that was recorded; None before the first, and after `load`: directories keep it, files that `save` wrote do not.

        A run that is killed after a step was recorded and before its result was saved takes the mask from
        here and repeats the step with the same noise: it is the same release, and is not charged twice.
        """
        self._state.check_open()
        last = self._state.last
        return None if last is None else LastStep(self.steps, last[0], last[1].view(np.bool_))

    def active_counts(self) -> NDArray[np.int64]:
        """Number of examples that took part in each step so far, shape (steps,)."""
        return self._state.active_counts()

    def _charge_gaussian(
        self, norms: Any, noise_multiplier: float | None, clipping_norm: float | None, indices: Any
    ) -> Mask:
        rule = (*scaling(noise_multiplier, clipping_norm), self._factor, True)
        return self._charge(rule, norms, indices)

    def _charge(self, how: Rule, values: Any, indices: Any) -> Mask:
        """Charge one step: all of it, or nothing if anything is wrong with it."""
        chosen, array = self._given(values, indices)

        def charge(before: Any, after: Any, active: Any) -> int:
            return _core.charge(array, before, self._limit, after, active, how)

        return self._state.step(chosen, charge).view(np.bool_)

    def _given(self, norms: Any, indices: Any) -> tuple[NDArray[np.int64] | None, Floats]:
        """The examples that a step is about (None: all), and their norms."""
        chosen = self._indices(indices)
        return chosen, values_of("norms", norms, self.num_examples if chosen is None else chosen.size)

    def _indices(self, indices: Any) -> NDArray[np.int64] | None:
        if indices is None:
            return None
        array = integers("indices", indices, 0, self.num_examples - 1)
        if array.ndim != 1:
            raise ParameterTypeError("indices: must be a one-dimensional array of integers")
        order = np.sort(array)
        twice = order[1:][order[1:] == order[:-1]]
        if twice.size:
            # Its contributions would add up before they are squared.
            raise ParameterError(
                f"indices: {int(twice[0])} occurs twice; an example takes part in a step at most once"
            )
        return array

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.num_examples} examples, {self._settings()}, {self.steps} steps)"


class WholeDataSet(Exclusive):
    """The base of filters and odometers of a whole data set: the ledger of one example. Threads and forks: see `Exclusive`."""

    _ledger: IndividualLedger

    @property
    def _guard(self) -> Guard:
        return self._ledger._guard


def values_of(name: str, values: Any, size: int, towards: float = math.inf) -> Floats:
    """Numbers in [0, inf], one for all or one for each; ParameterError names the first that is not.

    Numbers that are no doubles (long doubles, large integers) are rounded ``towards`` an infinity: costs upwards.
    """
    array = unmasked(name, values)
    if array.dtype.kind not in "iuf":
        raise ParameterTypeError(f"{name}: must be an array of numbers, not {array.dtype}")
    if towards > 0.0 and array.dtype == np.float16:
        raise ParameterTypeError(
            f"{name}: must be of 32 bits or more, not float16, to which what was measured is rounded, down by up to 2^-11 of it"
        )
    if array.ndim == 0:
        array = np.full(size, array)
    if array.shape != (size,):
        raise ParameterError(f"{name}: must have the shape ({size},), not {array.shape}")
    if array.dtype != np.float64:
        array = doubles(array, towards)
    array = np.ascontiguousarray(array)
    bad = _core.first_invalid(array)
    if bad < array.size:
        raise ParameterError(f"{name}[{bad}] = {float(array[bad])!r}: must be a number in [0, inf]")
    return array


def noise_deviation(noise_multiplier: float, clipping_norm: float) -> float:
    """Standard deviation of the noise, rounded down: what a norm is divided by."""
    noise = real("noise_multiplier", noise_multiplier, 0.0, open_low=True, towards=-math.inf)
    clip = real("clipping_norm", clipping_norm, 0.0, open_low=True, towards=-math.inf)
    product = noise * clip
    if not _LEAST_NOISE <= product <= _MOST_NOISE:
        raise ParameterError(
            f"noise_multiplier * clipping_norm = {product!r}: must be in [{_LEAST_NOISE:g}, {_MOST_NOISE:g}]"
        )
    return double(Fraction(noise) * Fraction(clip), -math.inf)


def scaling(noise_multiplier: float | None, clipping_norm: float | None) -> tuple[float, float]:
    """(clip, divisor): mu is min(norm, clip) / divisor."""
    if noise_multiplier is None and clipping_norm is None:
        return math.inf, 1.0
    if noise_multiplier is None or clipping_norm is None:
        raise ParameterTypeError("noise_multiplier, clipping_norm: give both, or neither if norms are mu")
    # min(norm, C) / C falls with C: rounded down on both sides, it is never too small.
    clip = real("clipping_norm", clipping_norm, 0.0, open_low=True, towards=-math.inf)
    return clip, noise_deviation(noise_multiplier, clip)
