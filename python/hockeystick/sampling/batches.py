"""The batches of a training run, drawn from the description that was accounted.

``scheme.batches(dataset_size)`` (schemes of `sampling`, `BandMF`) or ``process.batches(dataset_size)``
(``PoissonSampled(...) * steps`` and the like, `dp_sgd`) gives a `BatchSampler`. docs/sampling/batches.md says how batches are
drawn, how exact their law is, and what must stay secret.

>>> import hockeystick as hs
>>> scheme = hs.BMinSep(steps=100, min_sep=8, sampling_probability=0.01)
>>> sampler = scheme.batches(dataset_size=60_000)
>>> for batch in sampler:
...     assert batch.dtype == np.int64  # sorted indices of examples
>>> sampler.step
100
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .._base import storage
from .._base.exclusive import Exclusive
from .._base.files import refusing
from .._base.randomness import Seed, derive_key, resolve_seed, seed_from_dict, seed_to_dict
from .._base.types import AnyPath
from .._base.validation import ParameterError, ParameterTypeError, boolean, integer, two
from .attribution import AttributionGraph
from .laws import Law, law_of

Indices: TypeAlias = NDArray[np.int64]

CONJECTURE = (
    "NOT A GUARANTEE: batches by Algorithm 4 of the b-min-sep paper. That the privacy analysis of Algorithm 3 "
    "(Theorem 6.1) bounds this algorithm too is a conjecture of its authors; it is false where an example of a "
    "user shares another owner with somebody else's, and such graphs are refused (docs/sampling/attribution.md)."
)

_KIND = "batches"
_VERSION = 1  # *format*
_CHUNK = 64
"""*Speed*: steps between two looks at Ctrl-C."""


class PaddedBatch(NamedTuple):
    """A batch of fixed length. ``mask`` is True for the examples, which come first, ascending.

    Padding has the index ``dataset_size``, which no example has: an array without a row for it raises
    IndexError, one with an extra row of zeros gives zeros. The sum of the gradients must be taken over the mask.
    """

    indices: Indices
    mask: NDArray[np.bool_]

    @classmethod
    def of(cls, batch: Indices, width: int, dataset_size: int) -> PaddedBatch:
        """``batch``, filled up to ``width`` places."""
        indices = np.full(width, dataset_size, dtype=np.int64)
        indices[: len(batch)] = batch
        return cls(indices, np.arange(width) < len(batch))


class BatchSampler(Exclusive):
    """The batches of a run, one step after another: each a sorted int64 array of indices of examples.

    Made by ``batches`` of the scheme or mechanism that was accounted; ends after its ``steps``. With replacement, an
    index occurs as often as it was drawn. A batch may be empty: the step still counts, and still gets its noise.

    Every batch is a function of the seed and the step, made by ChaCha20 (RFC 8439) under a key of its own. ``seed``
    None draws 32 bytes from the operating system; see `randomness.resolve_seed`. ``shard`` = (rank, world): this
    worker's part of the batch that all workers draw alike, ``batch[rank::world]``; all need the same seed, which
    must be given, so the union over the ranks is the batch itself, and its law is that of one worker.

    Threads may share it: each batch is drawn once. In a forked child, which would draw its parent's batches again, every call raises
    `ForkedError`.
    """

    def __init__(
        self,
        description: object,
        law: Law,
        dataset_size: int | None,
        seed: Seed,
        shard: tuple[int, int],
        pad: bool,
        graph: AttributionGraph | None = None,
    ) -> None:
        self.description = description
        """The scheme or mechanism whose batches these are (None if loaded from a file alone)."""
        self._law = law
        self.dataset_size = law.checked_size(dataset_size, graph)
        self.shard = _shard(shard)
        if self.shard[1] > 1 and seed is None:
            raise ParameterError(
                "seed = None: all workers of a sharded run must draw the same batches; give them one seed "
                "(hockeystick._base.randomness.resolve_seed(None) makes one)"
            )
        self.pad = boolean("pad", pad)
        if self.pad and law.max_batch_size is None:
            raise ParameterError(
                "pad = True: only batches with a max_batch_size can be padded to it; these have none"
            )
        self._graph = graph
        self._graph_digest = "" if graph is None else _digest_graph(graph)
        self._seed = resolve_seed(seed)
        self._from_system = seed is None
        key = derive_key(self._seed, "hs batches 1")
        try:
            self._core = law.start(self.dataset_size, key, graph)
        except (TypeError, ValueError) as error:  # a file's law has what somebody wrote into it
            raise ParameterError(f"{description!r}: {error}") from None

    def __repr__(self) -> str:
        # Without the seed: what is printed ends up in logs.
        return (
            f"BatchSampler({self.description!r}, dataset_size={self.dataset_size}, "
            f"shard={self.shard}, step={self.step})"
        )

    @property
    def seed(self) -> int | bytes:
        """The secret all batches follow from: amplification by sampling is gone for whoever knows it. Keep it as safe as the data."""
        return self._seed

    @property
    def step(self) -> int:
        """How many batches have been drawn; the next one is that of step ``step``, counted from 0."""
        return self._core.step

    @property
    def steps(self) -> int:
        """How many batches there are, as accounted."""
        return self._law.steps

    @property
    def max_batch_size(self) -> int | None:
        """Larger batches are cut down to this; None: they are not."""
        return self._law.max_batch_size

    @property
    def conjectured(self) -> bool:
        """Whether the privacy of these batches is conjectured only: see ``to_dict()["guarantee"]``."""
        return self._law.conjectured

    @property
    def graph(self) -> AttributionGraph | None:
        """Who owns which example, of batches for users with several examples."""
        return self._graph

    @property
    def state_bytes(self) -> int:
        """Memory kept between steps, of the core."""
        return self._core.state_bytes

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Any]:
        """The batches that are left: `itertools.islice` takes some of them, and the next loop goes on."""
        return self

    def __next__(self) -> Indices | PaddedBatch:
        if self.step >= self.steps:
            raise StopIteration
        return self.next()

    def next(self) -> Indices | PaddedBatch:
        """The batch of the next step; with ``pad`` a `PaddedBatch`.

        Raises ParameterError after the last step: a run of more steps than were accounted for gets no batches.
        """
        rank, world = self.shard
        try:
            batch: Indices = self._core.next()
        except IndexError:
            raise ParameterError(f"step = {self.step}: all {self.steps} steps have had their batch") from None
        if world > 1:
            batch = np.ascontiguousarray(batch[rank::world])
        if not self.pad:
            return batch
        width = -(-(self._law.max_batch_size or 0) // world)
        return PaddedBatch.of(batch, width, self.dataset_size)

    def seek(self, step: int) -> None:
        """Make ``step`` the next one: its batch, and all after it, are what they would have been.

        At once, except for b-min-sep laws, where each batch depends on those before: these are drawn again, from here or
        from the start, at the usual time per step. Where that is interrupted the sampler stands somewhere on the way, as ``step`` says.
        """
        step = integer("step", step, 0, self.steps)
        while not self._core.seek(step, _CHUNK):
            pass

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs besides the seed, as JSON values: {"version", "step", "fingerprint"}. No secret."""
        return {"version": _VERSION, "step": self.step, "fingerprint": self._fingerprint()}

    def load_state_dict(self, state: Any) -> None:
        """Continue from a `state_dict`, bit by bit: of the same seed, law, ``steps`` and dataset; any shard of it.

        Raises ParameterError for any other. Never draw the batch of a step anew after its sum was released under the
        same noise: resume at the step that was not released yet.
        """
        if not isinstance(state, Mapping) or not {"version", "step", "fingerprint"} <= set(state):
            raise ParameterTypeError("state: must be what state_dict() returned")
        if state["version"] != _VERSION:
            raise ParameterError(f"state: its version is {state['version']!r}; must be {_VERSION}")
        if state["fingerprint"] != self._fingerprint():
            raise ParameterError(
                "state: belongs to another seed, sampling scheme, number of steps or dataset"
            )
        self.seek(integer("state['step']", state["step"], 0, self.steps))

    def save(self, path: AnyPath) -> None:
        """Write law, seed and step to a file that only its owner can read (where the system has such a thing).

        The file holds the seed: keep it as safe as the data. An attribution graph is not in it.
        """
        content = {
            "seed": seed_to_dict(self._seed),
            "from_system": self._from_system,
            "law": self._law.to_dict(),
            "dataset_size": self.dataset_size,
            "shard": list(self.shard),
            "pad": self.pad,
            "state": self.state_dict(),
        }
        storage.write(path, _KIND, content, {})

    @classmethod
    def load(
        cls,
        path: AnyPath,
        description: object = None,
        *,
        graph: AttributionGraph | None = None,
        shard: tuple[int, int] | None = None,
    ) -> BatchSampler:
        """The sampler that `save` wrote, at its step: its next batch is what it would have been.

        With ``description``, the scheme or mechanism, it must be that one's. ``graph`` is needed where the law
        has one; ``shard`` lets another worker read the file. Raises StorageError for damaged files,
        ParameterError for another scheme or graph.
        """
        content, _ = storage.read(path, _KIND)
        with refusing(path):
            law = Law.from_dict(content["law"])
            seed, state = seed_from_dict(content["seed"]), content["state"]
            size, pad = content["dataset_size"], content["pad"]
            saved_shard = tuple(content["shard"])
            from_system = bool(content["from_system"])
        if description is not None and not law_of(description).allows(law):
            raise ParameterError(f"description = {description!r}: the file is of another one, {law}")
        if law.is_owned and graph is None:
            raise ParameterError(f"graph = None: the file is of {law.kind} batches; give their graph")
        sampler = cls(description, law, size, seed, saved_shard if shard is None else shard, pad, graph)
        sampler._from_system = from_system
        sampler.load_state_dict(state)
        return sampler

    def to_dict(self) -> dict[str, Any]:
        """What a report may say about the batches, as JSON values; the seed is not in it."""
        facts = {
            "law": self._law.to_dict(),
            "description": repr(self.description),
            "dataset_size": self.dataset_size,
            "shard": list(self.shard),
            "padded": self.pad,
            "steps_done": self.step,
            "generator": "ChaCha20 (RFC 8439)",
            "seed": "drawn from the operating system" if self._from_system else "given by the caller",
            "guarantee": CONJECTURE if self.conjectured else "the law that is accounted",
        }
        if self._graph is not None:
            degrees = self._graph.example_degrees()
            facts["most_examples_per_user"] = int(self._graph.user_degrees().max(initial=0))
            facts["examples_without_users"] = int(np.count_nonzero(degrees == 0))
        return facts

    def report(self) -> str:
        """The same for people."""
        facts = self.to_dict()
        limit = "" if self.max_batch_size is None else f", at most {self.max_batch_size} each"
        lines = [
            f"Batches by {self._law.kind}: {self._law.parameters}",
            f"  {self.dataset_size} examples, {self.steps} steps{limit}; {self.step} steps done",
            f"  {facts['generator']}, seed {facts['seed']}",
        ]
        if facts.get("examples_without_users"):
            lines.append(
                f"  {facts['examples_without_users']} examples belong to no user and are NOT protected"
            )
        if self.conjectured:
            lines.append(f"  {CONJECTURE}")
        return "\n".join(lines)

    def _fingerprint(self) -> str:
        """Equal for equal batches. A hash of the seed through the key: nothing about it can be read from it."""
        digest = hashlib.blake2b(digest_size=16, key=derive_key(self._seed, "hs batch print"))
        facts = {"law": self._law.to_dict(), "size": self.dataset_size, "graph": self._graph_digest}
        digest.update(json.dumps(facts, sort_keys=True).encode())
        return digest.hexdigest()


def _shard(shard: Any) -> tuple[int, int]:
    place, workers = two("shard", shard, "(rank, world)")
    world = integer("shard[1]", workers, 1, 2**31)
    return integer("shard[0]", place, 0, world - 1), world


def _digest_graph(graph: AttributionGraph) -> str:
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps([graph.num_examples, graph.num_edges, graph.num_users]).encode())
    digest.update(graph.offsets.astype("<i8").tobytes())
    digest.update(graph.users.astype("<i4").tobytes())
    return digest.hexdigest()
