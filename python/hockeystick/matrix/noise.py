"""Correlated noise for DP-MF training: one row of C^{-1} Z after another, in memory for ``bands`` - 1 rows.

A training loop that calibrated a strategy C and a noise multiplier adds row i to the sum of the clipped
gradients of step i. `strategies` says what C is; docs/matrix/noise.md what must stay secret, and why.

>>> import hockeystick as hs
>>> strategy = hs.BandedToeplitz.square_root(steps=100, bands=8)
>>> noise = CorrelatedNoise(strategy, dimension=1000, noise_multiplier=0.8, clipping_norm=0.5)
>>> gradient_sum = np.zeros(1000, dtype=np.float32)
>>> noise.add_to(gradient_sum)
>>> noise.step
1
"""

from __future__ import annotations

import hashlib
import json
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .. import _core
from .._base import storage
from .._base.exclusive import Exclusive
from .._base.files import refusing
from .._base.randomness import Seed, derive_key, resolve_seed, seed_from_dict, seed_to_dict
from .._base.types import AnyPath
from .._base.validation import (
    ParameterError,
    ParameterTypeError,
    boolean,
    instance,
    integer,
    real,
    reals,
    shown,
    two,
)
from .rounding import MOST_ROUNDING, check_rounding
from .strategy import Strategy

MAX_DIMENSION = 2**53  # *limit*

FLOATING_POINT_CAVEAT = (
    "Noise and sums are floating-point numbers: the analysis assumes real ones, and what their "
    "rounding may leak is not modelled. Exact samplers (discrete Gaussian) are outside this class."
)

_COPY = "where that takes a copy, as of a JAX array or of a tensor on a GPU, use the copy afterwards: the noise is in nothing else"
_KIND = "noise"
_MAX_SAVED = 2**24  # *speed*: numbers in a file
_MAX_STATE = 2**40  # *speed*: bytes: no machine's memory, surely a mistake
_ROOM = 2.0**24
"""*Proof*: subnormal numbers are rounded by 2^-48 of a row's standard deviation at most (float32; docs/matrix/noise.md)."""
_CHUNK = 64  # *speed*: steps between two looks at Ctrl-C
_begun: weakref.WeakValueDictionary[int, CorrelatedNoise] = weakref.WeakValueDictionary()
"""What has made rows, and is still there, by its id."""
_ARGUMENTS = ("dimension", "coordinates", "noise_multiplier", "clipping_norm", "dtype", "state_dtype")


class CorrelatedNoise(Exclusive):
    """The rows of sigma C^{-1} Z, sigma = ``noise_multiplier`` * ``clipping_norm``, Z standard normal of shape (steps, ``dimension``).

    ``noise_multiplier`` is sigma relative to ``clipping_norm``, to which each example's gradient is clipped, for C as it is given (not
    rescaled to unit columns): the number that was accounted or calibrated. Rows are of ``dtype`` float32 or float64.

    Z[i, x] is a function of the seed, the step i and the coordinate x, made by ChaCha20 (RFC 8439) and Box-Muller
    in double precision: the same bits for any number of threads and on any machine, for every instruction set.
    With ``coordinates=(start, stop)`` only those are made, exactly as the whole would have them, so that every worker can make its own
    range, or every array of parameters have its own. ``seed``: an integer in [0, 2^256) or 16 to 64 bytes; None draws 32 bytes from the
    operating system. Two objects of one seed and of different ``dimension`` begin with the same numbers, which cancel in the difference of what
    is released: while the first is there, the second raises ParameterError instead of its first row.

    Row i solves its equation, sum_k C[i, i-k] w_{i-k} = z_i, up to (bands + 3) 2^-53 times the sum of the magnitudes of its terms, at
    every step alike. Guarantee: the rows are those of Z + e, e a function of the seed alone, with entries of root mean square at most
    2^-10; ParameterError for a strategy whose inverse grows beyond what that allows, and for rows returned in float32 where it does for these (docs/matrix/noise.md). The last bands - 1 rows (of Z for `InverseBanded`) are kept as ``state_dtype``; float32
    halves the memory and adds 2^-24 C[i, i] |w_i| (for `InverseBanded`, it rounds Z to float32). A `LowerTriangular` strategy needs
    all rows: steps * dimension numbers. A `BufferedToeplitz` keeps its buffers instead, whose rounding errors decay as they do
    (docs/matrix/buffered.md).

    Threads may share it: each row is made once. In a forked child, which would make its parent's rows again, every call raises
    `ForkedError`.
    """

    def __init__(
        self,
        strategy: Strategy,
        dimension: int,
        noise_multiplier: float,
        *,
        clipping_norm: float,
        seed: Seed = None,
        coordinates: tuple[int, int] | None = None,
        dtype: DTypeLike = np.float32,
        state_dtype: DTypeLike = np.float64,
    ) -> None:
        self.strategy = instance("strategy", strategy, Strategy, "a Strategy")  # type: ignore[type-abstract]
        self.dimension = integer("dimension", dimension, 1, MAX_DIMENSION)
        self.noise_multiplier = real("noise_multiplier", noise_multiplier, 0.0)
        self.clipping_norm = real("clipping_norm", clipping_norm, 0.0, open_low=True)
        self.dtype = _float_type("dtype", dtype)
        self.state_dtype = _float_type("state_dtype", state_dtype)
        self.coordinates = _range(coordinates, self.dimension)
        self._seed = resolve_seed(seed)
        self._from_system, self._has_begun = seed is None, False
        self._seen = storage.Seen()
        self._scale = real(
            "noise_multiplier * clipping_norm", self.noise_multiplier * self.clipping_norm, 0.0
        )
        self._rounding = check_rounding(strategy, self.state_dtype)
        self._largest = self._rounding.largest * self._scale
        self._form, columns = strategy.recurrence()
        self._columns = np.ascontiguousarray(columns)
        # Of any entry of C^{-1} Z: no less than what its own entry of Z gives it.
        first = columns[:, 0].tolist()
        own = {"strategy": 1.0 / max(first), "inverse": min(first), "buffers": 1.0}
        self._least_deviation = own[self._form]
        self._check_room(np.dtype(np.float64))
        kept = self._rows_at(strategy.steps) * self.width * self.state_dtype.itemsize
        if kept > _MAX_STATE:
            raise ParameterError(
                f"dimension = {self.dimension}: {self._rows_at(strategy.steps)} rows of {self.width} coordinates are "
                f"{kept:.3g} bytes; must be at most 2^40"
            )
        key, single = derive_key(self._seed, "hs noise 1"), self.state_dtype == np.float32
        size = self._columns.shape[-1]
        self._core = _core.CorrelatedNoise(
            self._columns, size, strategy.steps, self._form, key, *self.coordinates, single
        )

    def __repr__(self) -> str:
        # Without the seed: what is printed ends up in logs.
        return (
            f"CorrelatedNoise({self.strategy!r}, dimension={self.dimension}, "
            f"noise_multiplier={self.noise_multiplier}, clipping_norm={self.clipping_norm}, step={self.step})"
        )

    @property
    def seed(self) -> int | bytes:
        """The secret all rows follow from: whoever knows it can subtract the noise. Keep it as safe as the data."""
        return self._seed

    @property
    def step(self) -> int:
        """How many rows have been made; the next one is row ``step``, counted from 0."""
        return self._core.step

    @property
    def width(self) -> int:
        """Length of the rows: stop - start."""
        return self.coordinates[1] - self.coordinates[0]

    @property
    def state_bytes(self) -> int:
        """Memory between rows: (bands - 1, or buffers) * width numbers of ``state_dtype``, and 4 * width doubles from 9 bands on."""
        return self._core.state_bytes

    def next(self, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """The next row, shape (width,), in ``out`` (any shape, C order, float32 or float64) if given.

        Raises ParameterError after the last step: a run of more steps than were accounted for gets no noise. Also for a row in
        float32 where that alone would change Z by more than 2^-10 (the inverse of the strategy grows).
        """
        target = np.empty(self.width, dtype=self.dtype) if out is None else out
        self._write(target, False)
        return target

    def add_to(self, out: NDArray[Any]) -> None:
        """Add the next row to ``out`` in place: `next` without a copy. What ``out`` is a copy of, such as a JAX array or a GPU's tensor, gets no noise."""
        self._write(out, True)

    def rows(self, count: int, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """The next ``count`` rows, shape (count, width), in ``out`` if given.

        Several at a time read the kept rows once: with many bands that is two to three times faster.
        """
        count = integer("count", count, 0, self.strategy.steps - self.step)
        target = np.empty((count, self.width), dtype=self.dtype) if out is None else out
        self._write(target, False, count)
        return target

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return self

    def __next__(self) -> NDArray[Any]:
        if self.step >= self.strategy.steps:
            raise StopIteration
        return self.next()

    def seek(self, step: int) -> None:
        """Go to a step by making all rows again that it depends on, without output.

        Forward or back, O(distance * width * bands) time from here or from the start; for `InverseBanded` only the few
        rows that are kept. Where that is interrupted the object stands somewhere on the way, or, where rows on the way are not
        made, after the last step: it has no rows until it is sent somewhere else.
        """
        step = integer("step", step, 0, self.strategy.steps)
        first = max(0, step - self._rows_at(step)) if self._form == "inverse" else 0
        far = not first <= self.step <= step
        try:
            if far:
                # Rows before `first` are not needed: zeros will do for them.
                self._forget(first)
            while self.step < step:
                self._core.skip(min(_CHUNK, step - self.step))
        except BaseException:
            if far and first > 0:
                self._forget(self.strategy.steps)
            raise

    def _forget(self, step: int) -> None:
        """Go to a step as if all rows before it were 0."""
        self._core.restore(step, np.zeros((self._rows_at(step), self.width)))

    def _write(self, out: Any, add: bool, count: int = 1) -> None:
        check_writable("out", out, count * self.width)
        self._check_room(out.dtype)
        # A sum is rounded with the gradients in it, which is post-processing.
        if not add and out.dtype == np.float32 and not self._rounding.returned_single <= MOST_ROUNDING:
            raise ParameterError(
                f"dtype = float32: rows rounded to it change Z by up to {self._rounding.returned_single:.3g} of its standard deviation, as the inverse of "
                "the strategy grows; must be at most 2^-10. Take dtype = float64, or add_to, which rounds nothing but the sum"
            )
        if self.step + count > self.strategy.steps:
            raise ParameterError(f"step = {self.step}: all {self.strategy.steps} steps have had their noise")
        self._begin()
        self._core.fill(out, self._scale, add)

    def _begin(self) -> None:
        """Before the first row: nobody else makes it for another array."""
        if self._has_begun:
            return
        for reference in _begun.valuerefs():
            other = reference()
            if other is not None and other._seed == self._seed and other.dimension != self.dimension:
                raise ParameterError(
                    f"dimension = {self.dimension}: must be {other.dimension}, as of other noise with this seed, which begins with the same numbers: they "
                    "would cancel in the difference of the two sums. For several arrays, choose the sum of their sizes, and coordinates=(start, stop) for "
                    "each of them; for another run, another seed"
                )
        _begun[id(self)] = self
        self._has_begun = True

    def _check_room(self, dtype: np.dtype[Any], beside: float = 0.0) -> None:
        """Refuse a type in which a row would underflow, or in which its sum with numbers of at most ``beside`` could overflow."""
        least = _ROOM * float(np.finfo(dtype).tiny) / self._least_deviation
        if self.noise_multiplier > 0.0 and not self._scale >= least:
            raise ParameterError(
                f"noise_multiplier * clipping_norm = {self._scale:.3g}: must be at least {least:.3g} for rows of noise in {dtype}, "
                "or noise_multiplier = 0; smaller ones underflow"
            )
        if not self._largest * (1.0 + 1e-6) + beside <= float(np.finfo(dtype).max):
            raise ParameterError(
                f"noise_multiplier * clipping_norm = {self._scale:.3g}: rows of noise may have entries of up to {self._largest:.3g}, which added to "
                f"{beside:.3g} do not fit into {dtype}"
            )

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs besides the seed: {"step", "history", "fingerprint", "digest"}.

        ``history`` has shape (kept rows, width), float64. It is as secret as the seed: with the released sums it gives the gradients.
        """
        step, history = self.step, self._core.history()
        kept = {"step": step, "history": history, "fingerprint": self._fingerprint()}
        return {**kept, "digest": self._digest(step, history)}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a `state`, bit by bit: of the same seed, strategy, coordinates and ``state_dtype``.

        Raises ParameterError for any other, and for rows that are not those of its step, as after a cast to single precision. Never make a step's noise twice for different sums: the difference of the two
        releases would have no noise at all.
        """
        given: object = state
        if not isinstance(given, dict) or not {"step", "history", "fingerprint"} <= set(state):
            raise ParameterTypeError("state: must be what state() returned")
        if state["fingerprint"] != self._fingerprint():
            raise ParameterError(
                "state: belongs to another seed, strategy, range of coordinates or state_dtype"
            )
        step = integer("state['step']", state["step"], 0, self.strategy.steps)
        most = float(np.finfo(self.state_dtype).max)
        history = np.ascontiguousarray(reals("state['history']", state["history"], -most, most))
        expected = (self._rows_at(step), self.width)
        if history.size == 0 == expected[0]:  # a list of no rows has no width
            history = history.reshape(expected)
        if history.shape != expected:
            raise ParameterError(f"state['history']: must have shape {expected}, not {history.shape}")
        # States of earlier versions have none.
        if state.get("digest", digest := self._digest(step, history)) != digest:
            raise ParameterError(
                "state['history']: is not what state() returned at this step; rows must be kept as float64, bit by bit, or a step "
                "that is repeated would have other noise"
            )
        self._core.restore(step, history)

    def save(self, path: AnyPath, *, history: bool = True) -> None:
        """Write seed, step and kept rows to a file that only its owner can read (where the system has such a thing).

        Without ``history``, or where there is much of it (more than 2^24 numbers: then ParameterError asks for it), `load`
        makes the rows again. The file holds the seed: keep it as safe as the data. StorageError, and the file stays as it is, if it
        is not the one that this was loaded from or saved to last: two that go on from one file make the same noise.
        """
        rows = self._core.history() if boolean("history", history) else None
        if rows is not None and rows.size > _MAX_SAVED:
            raise ParameterError(
                f"history = True: {rows.size} numbers are too many for this file; "
                "choose False, or put state() in the checkpoint of the model"
            )
        content = {
            **self._made_with(),
            "seed": seed_to_dict(self._seed),
            "step": self.step,
            "from_system": self._from_system,
            "fingerprint": self._fingerprint(),
        }
        storage.write(path, _KIND, content, {} if rows is None else {"history": rows}, seen=self._seen)

    @classmethod
    def load(cls, path: AnyPath, strategy: Strategy) -> CorrelatedNoise:
        """The object that `save` wrote, at its step: its next row is what it would have been.

        Raises StorageError for damaged files, ParameterError if ``strategy`` is another one.
        """
        instance("strategy", strategy, Strategy, "a Strategy")  # type: ignore[type-abstract]
        seen = storage.Seen()
        content, arrays = storage.read(path, _KIND, seen=seen)
        with refusing(path):
            noise = cls(
                strategy,
                seed=seed_from_dict(content["seed"]),
                **{name: content[name] for name in _ARGUMENTS},
            )
            noise._from_system, noise._seen = bool(content["from_system"]), seen
            step, fingerprint = integer("step", content["step"]), str(content["fingerprint"])
        if fingerprint != noise._fingerprint():
            raise ParameterError(f"strategy = {strategy!r}: the file is of another one")
        if "history" in arrays:
            noise.restore({"step": step, "history": arrays["history"], "fingerprint": fingerprint})
        else:
            noise.seek(step)
        return noise

    def to_dict(self) -> dict[str, Any]:
        """What a report may say about the noise, as JSON values; the seed is not in it."""
        return {
            "strategy": repr(self.strategy),
            "steps": self.strategy.steps,
            **self._made_with(),
            "generator": "ChaCha20 (RFC 8439), Box-Muller in double precision",
            "seed": "drawn from the operating system" if self._from_system else "given by the caller",
            "steps_done": self.step,
            "caveat": FLOATING_POINT_CAVEAT,
        }

    def _made_with(self) -> dict[str, Any]:
        """What `load` passes to the constructor, as JSON values."""
        plain = {name: getattr(self, name) for name in _ARGUMENTS}
        types = {"dtype": self.dtype.name, "state_dtype": self.state_dtype.name}
        return {**plain, **types, "coordinates": list(self.coordinates)}

    def _rows_at(self, step: int) -> int:
        """How many rows are kept at this step."""
        size = int(self._columns.shape[-1])
        return size if self._form == "buffers" else min(step, size - 1)

    def _digest(self, step: int, history: NDArray[Any]) -> str:
        """A keyed hash of where it stands."""
        digest = hashlib.blake2b(digest_size=16, key=derive_key(self._seed, "hs noise state"))
        digest.update(f"{step} ".encode())
        digest.update(np.ascontiguousarray(history, dtype="<f8").data)
        return digest.hexdigest()

    def _fingerprint(self) -> str:
        """Equal for equal rows. A hash of the seed through the key: nothing about it can be read from it."""
        digest = hashlib.blake2b(digest_size=16, key=derive_key(self._seed, "hs noise print"))
        facts = [self._form, self.strategy.steps, self.dimension, *self.coordinates, self.state_dtype.name]
        digest.update(json.dumps([*facts, *self._columns.shape]).encode())
        digest.update(np.ascontiguousarray(self._columns, dtype="<f8").tobytes())
        return digest.hexdigest()


def check_writable(name: str, array: Any, size: int) -> None:
    """Refuse what a row cannot be written to, or added to."""
    # Other subclasses than mapped files mean something else by an entry (masked ones) or a shape (matrices).
    if type(array) not in (np.ndarray, np.memmap) or array.dtype not in (np.float32, np.float64):
        raise ParameterTypeError(f"{name}: must be a NumPy array of float32 or float64; {_COPY}")
    if array.size != size or not array.flags.c_contiguous or not array.flags.writeable:
        raise ParameterError(
            f"{name}: must have {size} numbers in C order and be writable (here: {array.flags.writeable}), not shape {array.shape}; {_COPY}"
        )


def _float_type(name: str, value: DTypeLike) -> np.dtype[Any]:
    try:
        dtype = np.dtype(value)
    except (TypeError, ValueError):
        raise ParameterTypeError(f"{name} = {shown(value)}: must be float32 or float64") from None
    if dtype not in (np.float32, np.float64) or not dtype.isnative:
        raise ParameterError(f"{name} = {dtype}: must be float32 or float64")
    return dtype


def _range(coordinates: Any, dimension: int) -> tuple[int, int]:
    if coordinates is None:
        return 0, dimension
    first, last = two("coordinates", coordinates, "(start, stop)")
    start = integer("coordinates[0]", first, 0, dimension - 1)
    return start, integer("coordinates[1]", last, start + 1, dimension)
