"""The ledger that filters and odometers share: what each example of a data set has spent, never too little."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .._base.exclusive import Exclusive, holding
from .._base.storage import StorageError, refusing
from .._base.validation import ParameterError, ParameterTypeError, boolean, doubles, integer, real
from . import ledger

if TYPE_CHECKING:
    from typing_extensions import Self

_MAX_EXAMPLES = 2**40
LARGEST_MU = 1e130
# Beyond these the core's exact arithmetic could underflow.
_LEAST_NOISE, _MOST_NOISE = 2.0**-60, 2.0**60

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
# (clip, divisor, factor, square): the cost is factor * (min(norm, clip) / divisor)^2, or factor * norm.
Rule = tuple[float, float, float, bool]


def squared_down(mu: float) -> float:
    """mu^2 rounded down, unless it is exact."""
    square = mu * mu
    return math.nextafter(square, 0.0) if Fraction(square) > Fraction(mu) ** 2 else square


class LastStep:
    """What the last step did: ``step``, its number; ``indices`` (None: all examples); ``active``, the mask."""

    def __init__(self, step: int, indices: NDArray[np.int64] | None, active: Mask) -> None:
        self.step, self.indices, self.active = step, indices, active

    def __repr__(self) -> str:
        return f"LastStep(step={self.step}, active={int(self.active.sum())} of {self.active.size})"


class IndividualLedger(Exclusive):
    """What each example has spent, in units of its budget: the base of filters and odometers. Threads and forks: see `Exclusive`."""

    _KIND: ClassVar[str]

    def __init__(
        self,
        num_examples: int,
        limit: float,
        factor: float,
        path: Any,
        durable: bool,
        content: dict[str, Any],
    ) -> None:
        self._limit, self._factor = limit, factor
        self._content = {**content, "durable": boolean("durable", durable)}
        n = integer("num_examples", num_examples, 0, _MAX_EXAMPLES)
        self._live: ledger.LiveLedger | None = None
        self._spent: Floats
        self._counts: list[int] = []
        self._last: LastStep | None = None
        if path is None:
            self._spent = np.zeros(n)
        else:
            self._attach(
                ledger.LiveLedger.create(path, self._KIND, self._content, [n], np.empty(0, np.int64))
            )

    def _attach(self, live: ledger.LiveLedger) -> None:
        self._live = live
        self._spent = live.values
        if live.last is not None:
            indices, active = live.last
            self._last = LastStep(live.steps, indices, active.view(np.bool_))

    @property
    def num_examples(self) -> int:
        """Number of examples."""
        return int(self._spent.size)

    @property
    def steps(self) -> int:
        """Number of steps so far."""
        return self._live.steps if self._live is not None else len(self._counts)

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
        """The last step that was recorded; None before the first.

        A run that is killed after a step was recorded and before its result was saved takes the mask from
        here and repeats the step with the same noise: it is the same release, and is not charged twice.
        """
        return self._last

    def active_counts(self) -> NDArray[np.int64]:
        """Number of examples that took part in each step so far, shape (steps,)."""
        if self._live is not None:
            return self._live.active_counts()
        return np.array(self._counts, np.int64)

    def _charge(self, how: Rule, values: Any, indices: Any) -> Mask:
        """Charge one step: all of it, or nothing if anything is wrong with it."""
        chosen = self._indices(indices)
        n = self.num_examples if chosen is None else chosen.size
        array = values_of("norms", values, n)
        budget = self._limit
        if self._live is not None:

            def charge(before: Any, after: Any, active: Any) -> int:
                return _core.charge(array, before, budget, after, active, how)

            active = self._live.step(chosen, charge)
        else:
            active = np.empty(n, np.uint8)
            # Without indices the core works in place: nothing can fail from here on.
            after = self._spent if chosen is None else np.empty(n)
            before = self._spent if chosen is None else self._spent[chosen]
            count = _core.charge(array, before, budget, after, active, how)
            if chosen is not None:
                self._spent[chosen] = after
            self._counts.append(count)
        mask: Mask = active.view(np.bool_)
        self._last = LastStep(self.steps, chosen, mask)
        return mask

    def _indices(self, indices: Any) -> NDArray[np.int64] | None:
        if indices is None:
            return None
        array = np.asarray(indices)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise ParameterTypeError("indices: must be a one-dimensional array of integers")
        array = array.astype(np.int64)
        if array.size:
            low, high = int(array.min()), int(array.max())
            if low < 0 or high >= self.num_examples:
                raise ParameterError(
                    f"indices: must be in [0, {self.num_examples - 1}], found {low if low < 0 else high}"
                )
            order = np.sort(array)
            twice = order[1:][order[1:] == order[:-1]]
            if twice.size:
                # Its contributions would add up before they are squared.
                raise ParameterError(
                    f"indices: {int(twice[0])} occurs twice; an example takes part in a step at most once"
                )
        return array

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the whole state to one file, atomically; `load` resumes from it.

        Save together with the model: a ledger and a model from the same moment resume exactly.
        """
        arrays = {"spent": np.asarray(self._spent), "active": self.active_counts()}
        ledger.write(path, self._KIND, self._content, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote; StorageError (a ValueError) says why a file is refused."""
        content, arrays = ledger.read(path, cls._KIND)
        with refusing(path):
            self = cls._restore(content)
            spent, counts = arrays["spent"], arrays["active"]
            if spent.dtype != np.float64 or spent.ndim != 1 or not bool((spent >= 0).all()):
                raise StorageError("its ledger is not one of numbers >= 0")
            self._spent = spent
            self._counts = [integer("active", count, 0, spent.size) for count in counts.tolist()]
        return self

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Resume a ledger on disk, made with ``path=...``; a step that was under way is made or not, never half.

        Raises StorageError where the directory holds none, or where another process has it open.
        """
        live = ledger.LiveLedger(path, cls._KIND)
        try:
            with refusing(path):
                self = cls._restore(live.content)
        except BaseException:
            live.close()
            raise
        self._content["durable"] = live.durable
        self._attach(live)
        return self

    def close(self) -> None:
        """Let go of a ledger on disk."""
        if self._live is not None:
            self._live.close()
            self._spent = np.zeros(0)

    @classmethod
    def merge(
        cls, parts: Iterable[Self], *, path: str | os.PathLike[str] | None = None, durable: bool = False
    ) -> Self:
        """One ledger for the examples of all ``parts``, in their order: shards of one data set.

        Each worker kept the ledger of its own examples. All must have the same budget and number of steps.
        ``path`` puts it on disk, part by part; ``durable`` as for a new one.
        """
        shards = list(parts)
        if not shards or not all(type(shard) is cls for shard in shards):
            raise ParameterTypeError(f"parts: must be one or more {cls.__name__}")
        with holding(*shards):
            first = shards[0]
            for shard in shards[1:]:
                if shard._budget() != first._budget():
                    raise ParameterError(f"parts: budgets differ: {first._budget()} and {shard._budget()}")
                if shard.steps != first.steps:
                    raise ParameterError(f"parts: have made {first.steps} and {shard.steps} steps")
            self = cls._restore(first._content)
            self._content["durable"] = boolean("durable", durable)
            counts = np.array([shard.active_counts() for shard in shards]).sum(axis=0)
            spent = [shard._spent for shard in shards]
            if path is None:
                self._spent, self._counts = np.concatenate(spent), counts.tolist()
            else:
                self._attach(ledger.LiveLedger.create(path, cls._KIND, self._content, spent, counts))
        return self

    def _budget(self) -> dict[str, Any]:
        return {name: value for name, value in self._content.items() if name != "durable"}

    @classmethod
    def _restore(cls, content: dict[str, Any]) -> Self:
        """An empty ledger with the same budget."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.num_examples} examples, {self._budget()}, {self.steps} steps)"


def values_of(name: str, values: Any, size: int, towards: float = math.inf) -> Floats:
    """Numbers in [0, inf], one for all or one for each; ParameterError names the first that is not.

    Numbers that are no doubles (long doubles, large integers) are rounded ``towards`` an infinity: costs upwards.
    """
    array = np.asarray(values)
    if array.dtype.kind not in "iuf":
        raise ParameterTypeError(f"{name}: must be an array of numbers, not {array.dtype}")
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
    return math.nextafter(product, 0.0) if Fraction(product) > Fraction(noise) * Fraction(clip) else product


def scaling(noise_multiplier: float | None, clipping_norm: float | None) -> tuple[float, float]:
    """(clip, divisor): mu is min(norm, clip) / divisor."""
    if noise_multiplier is None and clipping_norm is None:
        return math.inf, 1.0
    if noise_multiplier is None or clipping_norm is None:
        raise ParameterTypeError("noise_multiplier, clipping_norm: give both, or neither if norms are mu")
    # min(norm, C) / C falls with C: rounded down on both sides, it is never too small.
    clip = real("clipping_norm", clipping_norm, 0.0, open_low=True, towards=-math.inf)
    return clip, noise_deviation(noise_multiplier, clip)
