"""Runs of a training plan: batch and noise of each step in lockstep, and a ledger of what was released.

A run with a ``path`` is a directory that appears complete or not at all: ``plan``, ``secret`` (the seed; only its owner can
read it), ``ledger``, one record of 32 bytes for each released step, and ``lock`` (storage.py), which knows how many there are. The record is written *before* the noisy sum is handed out: a process that is
killed has either recorded the step, or released nothing. So a released step is never taken for an open one. The other way
round it may be: a step is recorded, and the model never saw it. Resuming there repeats it, and the record, which holds a keyed hash of
the gradient sum, only lets through the same sum: the same batch, the same noise, the same bits, so nothing is released twice.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._base import storage
from .._base.exclusive import Exclusive, Guard, undivided
from .._base.files import StorageError, StoreLock, new_directory, part, refusing, replacing
from .._base.randomness import Seed, derive_key, resolve_seed, seed_from_dict, seed_to_dict
from .._base.tracing import refuse_tracing
from .._base.types import AnyPath, Self
from .._base.validation import ParameterError, ParameterTypeError, boolean, integer
from ..matrix.noise import CorrelatedNoise, check_writable
from ..sampling.batches import BatchSampler, PaddedBatch

if TYPE_CHECKING:
    from .plan import TrainingPlan
    from .report import TrainingReport

_KIND = "training run"
# Step, hash of the gradient sum, checksum of both, the run (0: of versions that did not say).
_HEAD, _TAIL = struct.Struct("<Q16s"), struct.Struct("<II")
_SLACK = 1e-3
"""*Limit*: how much a sum of clipped gradients may exceed its largest possible norm: rounding of single precision and of the clipping."""
_CHUNK = 2**20  # *speed*: numbers that are squared at a time

_Indices: TypeAlias = NDArray[np.int64]


class DeviationError(ParameterError):
    """The training loop did, or tried, what the plan does not cover. Nothing was released by the call that raised it."""


class TrainingStep(Exclusive):
    """One step of a run: its batch, and its noise, once. Threads and forked children: as for `TrainingRun`."""

    _FORKED = DeviationError

    def __init__(self, run: TrainingRun, number: int, indices: _Indices) -> None:
        self._run, self._number, self._indices = run, number, indices
        self._seen = self._done = False
        indices.setflags(write=False)

    @property
    def _guard(self) -> Guard:
        return self._run._guard

    @property
    def number(self) -> int:
        """Steps before this one."""
        return self._number

    @property
    def indices(self) -> _Indices:
        """The examples of the batch, ascending. As secret as the data, and so is how many there are."""
        refuse_tracing("TrainingStep.indices")  # a compiled function would keep them
        self._seen = True
        return self._indices

    def padded(self) -> PaddedBatch:
        """``indices`` filled up to the plan's maximum batch size, for compiled code; sum over the mask. ParameterError if there is none."""
        most = self._run._batches.max_batch_size
        if most is None:
            raise ParameterError("padded: only truncated batches have a maximum size")
        return PaddedBatch.of(self.indices, most, self._run.plan.dataset_size)

    def take(self, *data: Any) -> Any:
        """The batch's rows, by their places, of each array (anything that NumPy indexes, or pandas) of ``plan.dataset_size`` rows; a tuple if there are several."""
        size = self._run.plan.dataset_size
        for position, array in enumerate(data):
            if len(array) != size:
                raise DeviationError(f"data[{position}]: has {len(array)} examples, but {size} are planned")
        chosen = self.indices.copy()  # some libraries complain about arrays that they cannot write to
        # What has labels takes these for places otherwise: parts of one record would come with other records'.
        rows = tuple(getattr(array, "iloc", array)[chosen] for array in data)
        return rows[0] if len(rows) == 1 else rows

    def add_noise(self, gradient_sum: NDArray[Any]) -> NDArray[Any]:
        """Add the step's noise in place, and return ``gradient_sum``: what may be used, kept and published (what it is a copy of has no noise).

        ``gradient_sum`` is the sum (not the mean) over the batch of gradients of norm at most the run's ``clipping_norm``: float32 or float64,
        C order, ``dimension`` numbers in any shape; all zeros for an empty batch. Raises `DeviationError`, and adds and records nothing,
        if the step had its noise, is not the run's open one, if the batch was never looked at, or if so few clipped gradients cannot have so
        large a sum.
        """
        if self._done:
            raise DeviationError(
                f"step {self._number}: had its noise already; a second sum with it would reveal the difference"
            )
        return self._run._release(self, gradient_sum)


class TrainingRun(Exclusive):
    """The steps of a plan; made by `TrainingPlan.start` and `TrainingPlan.resume`. Iterate over it.

    Every step must get its noise before the next one begins, in order, and there are no more than planned. Whatever
    deviates raises `DeviationError`. Close the run (or use ``with``) to let another process resume it. Threads may share it: one
    call at a time, each step gets its noise once; in a forked child every call raises `DeviationError`.
    """

    _FORKED = DeviationError

    def __init__(
        self,
        plan: TrainingPlan,
        noise: CorrelatedNoise,
        batches: BatchSampler,
        ledger: _Ledger,
        from_system: bool,
    ) -> None:
        self.plan = plan
        self._noise, self._batches, self._ledger = noise, batches, ledger
        self._key = derive_key(noise.seed, "hs run sums")
        self._open: TrainingStep | None = None
        self._next = noise.step
        self._from_system = from_system

    def __repr__(self) -> str:
        # Without the seed: what is printed ends up in logs.
        return f"TrainingRun(step={self._next} of {self.plan.steps}, released={self.released}, plan={self.plan.fingerprint[:12]})"

    def __reduce__(self) -> Any:
        raise TypeError("a run cannot be copied or pickled: two of them would use the same noise twice")

    @property
    def dimension(self) -> int:
        """Length of the gradient."""
        return self._noise.dimension

    @property
    def clipping_norm(self) -> float:
        """The norm that each example's gradient is clipped to."""
        return self._noise.clipping_norm

    @property
    def step(self) -> int:
        """How many steps this model has had: the next one's number."""
        return self._next

    @property
    def released(self) -> int:
        """How many steps have been released, ever; at least ``step``, more while steps are repeated after `resume`."""
        return self._ledger.steps

    def __iter__(self) -> Iterator[TrainingStep]:
        return self

    def __next__(self) -> TrainingStep:
        if self._next >= self.plan.steps and self._open is None:
            raise StopIteration
        return self.next()

    def next(self) -> TrainingStep:
        """The next step; DeviationError if there is none, or if the one before has not had its noise."""
        self._ledger.check_open()
        if self._open is not None:
            raise DeviationError(
                f"step {self._next}: has not had its noise; every step is released, also one whose batch is empty"
            )
        if self._next >= self.plan.steps:
            raise DeviationError(
                f"step = {self._next}: the plan has {self.plan.steps} steps, and all are made"
            )
        self._lockstep()
        self._open = TrainingStep(self, self._next, np.array(self._batches.next(), dtype=np.int64))
        return self._open

    def _lockstep(self) -> None:
        drawn, noisy = self._batches.step, self._noise.step
        if not drawn == noisy == self._next:
            raise DeviationError(
                f"step = {self._next}: the batches are at {drawn}, the noise at {noisy}: somebody else drew from them, "
                "or a step was interrupted; resume the run"
            )

    @undivided
    def _release(self, step: TrainingStep, total: NDArray[Any]) -> NDArray[Any]:
        self._ledger.check_open()
        if step is not self._open:
            raise DeviationError(f"step {step._number}: is not the run's open step")
        if not step._seen:
            raise DeviationError(
                f"step {step._number}: its batch was never looked at; only the plan's own batches were accounted for"
            )
        self._check(step, total)
        if self._noise.step != self._next:
            raise DeviationError(f"step {step._number}: its noise is drawn already; resume the run")
        # From here on the step counts as released, whatever happens.
        self._ledger.record(step._number, self._hash(step._number, total) if self._ledger.on_disk else b"")
        step._done = True
        self._noise.add_to(total)
        self._next, self._open = self._next + 1, None
        return total

    def _check(self, step: TrainingStep, gradient_sum: Any) -> None:
        check_writable("gradient_sum", gradient_sum, self.dimension)
        flat = gradient_sum.reshape(-1)
        largest = float(np.max(np.abs(flat)))
        if not np.isfinite(largest):
            raise ParameterError("gradient_sum: has values that are not finite")
        limit = self.clipping_norm * len(step._indices) * (1.0 + _SLACK)
        if largest > limit or _norm_over(flat, limit) > 1.0:
            raise DeviationError(
                f"gradient_sum: its norm is beyond clipping_norm = {self.clipping_norm:g} times the number of examples in the batch of "
                f"step {step._number}: gradients that are not clipped, or not of this batch"
            )
        # Before the step counts as released: what will be written is finite, and nobody else's.
        self._noise._check_room(gradient_sum.dtype, largest)
        self._noise._begin()

    def _hash(self, number: int, total: NDArray[Any]) -> bytes:
        digest = hashlib.blake2b(digest_size=16, key=self._key)
        digest.update(f"{number} {total.dtype.name} ".encode())
        digest.update(np.ascontiguousarray(total).data)
        return digest.digest()

    def state(self) -> dict[str, Any]:
        """What `TrainingPlan.resume` needs to go on at once: {"step", "batches", "noise"}, as secret as the seed.

        Between steps only. Without it, resuming makes all earlier batches and rows of noise again.
        """
        if self._open is not None:
            raise DeviationError(f"step {self._next}: is open; save between steps")
        return {"step": self._next, "batches": self._batches.state_dict(), "noise": self._noise.state()}

    def close(self) -> None:
        """Release the directory; the run cannot be continued but by `TrainingPlan.resume`."""
        self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        # The run of a forked child is its parent's, and what the child has open ends with it.
        if not self._guard.forked:
            self.close()

    def report(self) -> TrainingReport:
        """What was released and what is guaranteed; asking changes nothing, and any number of steps will do."""
        from .report import TrainingReport

        noise = self._noise.to_dict()
        del noise["dtype"]  # that of the sums, whatever it is
        noise["seed"] = "drawn from the operating system" if self._from_system else "given by the caller"
        return TrainingReport._of(self.plan, self.released, noise)

    @classmethod
    def _started(
        cls,
        plan: TrainingPlan,
        dimension: int,
        clipping_norm: float,
        path: AnyPath | None,
        seed: Seed,
        durable: bool,
        state_dtype: DTypeLike,
    ) -> TrainingRun:
        secret = resolve_seed(seed)
        if secret == plan.guarantee.evidence.get("seed"):
            raise ParameterError("seed: is that of the calibration, which reports show; choose another one")
        noise, batches = _drawn(plan, secret, dimension, clipping_norm=clipping_norm, state_dtype=state_dtype)
        durable = boolean("durable", durable)
        content = {
            "plan": plan.fingerprint,
            "seed": seed_to_dict(secret),
            "from_system": seed is None,
            "dimension": noise.dimension,
            "clipping_norm": noise.clipping_norm,
            "state_dtype": noise.state_dtype.name,
            "durable": durable,
        }
        run = _name_of(secret)
        ledger = (
            _Ledger(None, run, durable)
            if path is None
            else _Ledger.create(Path(os.path.abspath(path)), run, plan, content)
        )
        return cls(plan, noise, batches, ledger, seed is None)

    @classmethod
    def _resumed(
        cls, plan: TrainingPlan, path: AnyPath, step: int | None, state: Mapping[str, Any] | None
    ) -> TrainingRun:
        directory = Path(os.path.abspath(path))
        content, _ = storage.read(part(directory, "secret"), _KIND)
        if content.get("plan") != plan.fingerprint:
            raise DeviationError(
                f"path = {os.fspath(path)!r}: is a run of another plan ({content.get('plan')}, not {plan.fingerprint})"
            )
        with refusing(directory / "secret"):
            seed = seed_from_dict(content["seed"])
            how = {name: content[name] for name in ("dimension", "clipping_norm", "state_dtype")}
            noise, batches = _drawn(plan, seed, **how)
            from_system = boolean("from_system", content["from_system"])
            durable = boolean("durable", content["durable"])
        ledger = _Ledger(directory, _name_of(seed), durable)
        try:
            if ledger.steps > plan.steps:
                raise StorageError(f"cannot load {os.fspath(path)!r}: more steps than the plan has")
            at = _position(step, state, ledger.steps)
            if state is None:
                batches.seek(at)
                noise.seek(at)
            else:
                noise.restore(state["noise"])
                batches.load_state_dict(state["batches"])
            run = cls(plan, noise, batches, ledger, from_system)
            run._lockstep()
            if run.step != at:
                raise ParameterError(
                    f"state['step'] = {at}: does not fit the rest of it, which is at {run.step}"
                )
        except BaseException:
            ledger.close()
            raise
        return run


def _position(step: int | None, state: Mapping[str, Any] | None, released: int) -> int:
    """Where to go on: at most where the next new step is, since nothing may be left out."""
    if state is not None:
        if not ("step" in state and all(isinstance(state.get(of), Mapping) for of in ("batches", "noise"))):
            raise ParameterTypeError("state: must be what state() returned")
        if step is not None and step != state["step"]:
            raise ParameterError(f"step = {step}: the state is at {state['step']}; give one of the two")
        step = state["step"]
    if step is None:
        return released
    at = integer("step", step)
    if at > released:
        raise DeviationError(f"step = {at}: only {released} steps were released; none may be left out")
    return at


def _drawn(
    plan: TrainingPlan, seed: int | bytes, dimension: int, **how: Any
) -> tuple[CorrelatedNoise, BatchSampler]:
    """The noise and the batches of a run, at its first step."""
    noise = CorrelatedNoise(plan.strategy, dimension, plan.noise_multiplier, seed=seed, **how)
    return noise, plan._matrix.scheme.training_batches(plan.dataset_size, seed, plan.graph)


def _norm_over(flat: NDArray[Any], limit: float) -> float:
    """The norm as a multiple of ``limit``, which no entry exceeds: nothing overflows."""
    if limit == 0.0:
        return 0.0
    total = 0.0
    for start in range(0, flat.size, _CHUNK):
        part = flat[start : start + _CHUNK].astype(np.float64) / limit
        total += float(part @ part)
    return float(np.sqrt(total))


def _name_of(seed: int | bytes) -> int:
    """A number by which files of one run are told from those of another one; it tells nothing of the seed."""
    return int.from_bytes(derive_key(seed, "hs run name")[:4], "little") or 1


class _Ledger:
    """Records of released steps, in memory and (with a path) in a file; steps are recorded once, in order. ``run``: whose they are."""

    def __init__(self, directory: Path | None, run: int, durable: bool) -> None:
        self._hashes: list[bytes] = []
        self._run = run
        self._durable, self._closed = durable, False
        self._lock: StoreLock | None = None
        self._file: Any = None
        if directory is not None:
            self._lock = StoreLock(directory)
            try:
                path = part(directory, "ledger")
                self._file = open(path, "r+b", buffering=0)  # noqa: SIM115 (held open as long as the run)
                self._load(path)
                self._lock.check(self.steps)
            except BaseException:
                self.close()
                raise

    @classmethod
    def create(cls, directory: Path, run: int, plan: TrainingPlan, content: Mapping[str, Any]) -> _Ledger:
        with new_directory(directory, "resume() continues a run") as making:
            plan.save(making / "plan")
            storage.write(making / "secret", _KIND, content, {})
            with replacing(making / "ledger"):
                pass
            StoreLock.create(making, 0)
        return cls(directory, run, bool(content["durable"]))

    @property
    def steps(self) -> int:
        return len(self._hashes)

    @property
    def on_disk(self) -> bool:
        return self._file is not None

    def _load(self, path: Path) -> None:
        data = self._file.read()
        size = _HEAD.size + _TAIL.size
        whole = len(data) // size * size
        with refusing(path):
            for step, start in enumerate(range(0, whole, size)):
                head = data[start : start + _HEAD.size]
                (number, found), (checksum, run) = (
                    _HEAD.unpack(head),
                    _TAIL.unpack_from(data, start + _HEAD.size),
                )
                if number != step or checksum != zlib.crc32(head):
                    raise StorageError(f"its record of step {step} is damaged")
                if run not in (0, self._run):
                    raise StorageError(
                        f"its record of step {step} is of another run than {path.with_name('secret')}"
                    )
                self._hashes.append(found)
        # Half a record: nothing was released, since that comes after the record.
        self._file.truncate(whole)

    def check_open(self) -> None:
        if self._closed:
            raise DeviationError("the run is closed; resume() continues it")

    def record(self, step: int, found: bytes) -> None:
        """Note that a step is released, unless it was, with the same sum."""
        if step < self.steps:
            if self._hashes[step] != found:
                raise DeviationError(
                    f"step {step}: was released before, with another gradient sum: the difference of the two would have no "
                    "noise. Repeat it bit by bit, or resume with step=None, after the last release"
                )
            return
        if self._file is not None:
            head = _HEAD.pack(step, found)
            record = head + _TAIL.pack(zlib.crc32(head), self._run)
            # To its own place: over what an interrupted or incomplete write may have left there.
            if os.pwrite(self._file.fileno(), record, step * len(record)) != len(record):
                raise OSError("the ledger could not be written; nothing was released")
            if self._durable:
                os.fsync(self._file.fileno())
            if self._lock is not None:
                self._lock.note(step + 1)
        self._hashes.append(found)

    def close(self) -> None:
        self._closed = True
        if self._file is not None:
            self._file.close()
        if self._lock is not None:
            self._lock.close()
