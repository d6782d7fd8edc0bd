"""PyTorch: a `DataLoader` over the batches of a run, with its steps counted where they are used (docs/interop/interop.md, section 7).

>>> import hockeystick as hs
>>> import numpy as np
>>> data = [(np.zeros(3), np.array(0))] * 100  # anything with a length and indices
>>> sampler = hs.Poisson(steps=5, sampling_probability=0.2).batches(dataset_size=100)
>>> loader = BatchLoader(data, sampler)
>>> [x.shape[1] for x, y in loader]
[3, 3, 3, 3, 3]
>>> loader.step
5
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .._base.exclusive import Exclusive, Guard
from .._base.lazy import needing
from .._base.validation import ParameterError, ParameterTypeError, instance
from ..sampling.batches import BatchSampler
from .repeats import check_repeats

with needing("hockeystick.interop.torch needs PyTorch 2.2 or later", extra="torch"):
    import torch

_OURS = ("batch_size", "shuffle", "batch_sampler", "drop_last")


class BatchLoader(Exclusive):
    """A `torch.utils.data.DataLoader` of ``dataset`` (indices to examples) whose batches ``sampler`` draws, one for each step.

    ``options`` go to DataLoader (workers, pinned memory, ``collate_fn``). One pass is the rest of the run, not an
    epoch: loop over `itertools.islice(loader, count)` for part of it, as often as you like. Batches that workers
    have prepared when a pass is left are drawn again in the next one, bit by bit the same.

    A batch of no example is collated to ``empty``; by default to what the first example is, with all arrays cut to length 0.
    Do not skip it: that step adds its noise like any other.

    A record that is in ``dataset`` several times, as far as can be seen (`repeats`), is refused, at the beginning of each pass: each copy is drawn by
    itself, and what is accounted for is one. Where the sampler has a graph, it says whose they are.

    Where an example cannot be read, or anything else goes wrong, the next call tries the same step again.
    Threads may share it, and a pass: each batch is handed out once. A pass ends where another one begins. In a forked child (the workers
    of the DataLoader have no part in this) every call raises `ForkedError`.
    """

    def __init__(self, dataset: Any, sampler: BatchSampler, *, empty: Any = None, **options: Any) -> None:
        instance("sampler", sampler, BatchSampler, "what scheme.batches(...) returns")
        if sampler.pad:
            raise ParameterError(
                "sampler: its batches are padded; PyTorch needs no padding, choose pad = False"
            )
        if len(dataset) != sampler.dataset_size:
            raise ParameterError(
                f"dataset: has {len(dataset)} examples; must have the {sampler.dataset_size} that the sampler draws from"
            )
        for name in _OURS:
            if name in options:
                raise ParameterTypeError(
                    f"{name}: must not be given; the sampler says which examples a batch has"
                )
        if not options.get("in_order", True):
            raise ParameterError(
                "in_order = False: must be True; steps are counted, so that in another order some batches would be used twice, others never"
            )
        collate = options.pop("collate_fn", None) or torch.utils.data.default_collate
        if empty is None:
            empty = _cut(collate([dataset[0]]))
        self._sampler = sampler
        self._check(dataset)
        self._step = sampler.step
        self._pass: _Pass | None = None
        collate = functools.partial(_collated, collate, empty)
        self.loader = torch.utils.data.DataLoader(
            dataset, batch_sampler=_Lists(sampler), collate_fn=collate, **options
        )
        """The DataLoader itself. Iterating it directly loses count where workers prepare batches ahead."""

    @property
    def step(self) -> int:
        """How many batches have been handed out; the next one is that of step ``step``."""
        return self._step

    @property
    def sampler(self) -> BatchSampler:
        """Where the batches come from; with workers it is ahead of `step`. Only `load_state_dict` may move it."""
        return self._sampler

    def __len__(self) -> int:
        return self._sampler.steps

    def __iter__(self) -> Iterator[Any]:
        self._check(self.loader.dataset)
        self._pass = _Pass(self)
        return self._pass

    def _check(self, dataset: Any) -> None:
        if self._sampler.graph is None:
            check_repeats("dataset", dataset)

    def _following(self, current: _Pass) -> Any:
        if current is not self._pass:
            raise StopIteration  # its sampler has been moved
        if current.batches is None:
            self._sampler.seek(self._step)
            current.batches = iter(self.loader)
        batches, current.batches = current.batches, None
        batch = next(batches)
        current.batches = batches
        self._step += 1
        return batch

    def state_dict(self) -> dict[str, Any]:
        """`BatchSampler.state_dict` as of `step`: batches that workers prepared ahead do not count as drawn."""
        return {**self._sampler.state_dict(), "step": self._step}

    def load_state_dict(self, state: Any) -> None:
        """Continue from a `state_dict` of this class or of the sampler; see `BatchSampler.load_state_dict`.

        A pass that is under way ends: its workers have prepared batches of other steps.
        """
        self._sampler.load_state_dict(state)
        self._step, self._pass = self._sampler.step, None


class _Pass(Exclusive):
    """One pass over the rest of the run. Threads and forked children: as for `BatchLoader`."""

    def __init__(self, loader: BatchLoader) -> None:
        self._loader = loader
        self.batches: Iterator[Any] | None = None
        """Of the DataLoader, from the loader's step on; none before the first batch, and after an exception."""

    @property
    def _guard(self) -> Guard:
        return self._loader._guard

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._loader._following(self)


class _Lists:
    """The batches as lists, as a DataLoader wants them."""

    def __init__(self, sampler: BatchSampler) -> None:
        self._sampler = sampler

    def __len__(self) -> int:
        return self._sampler.steps - self._sampler.step

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self._sampler:
            yield batch.tolist()


def _collated(collate: Callable[[list[Any]], Any], empty: Any, examples: list[Any]) -> Any:
    """``collate`` for batches with examples. Goes to the workers, without the dataset."""
    return collate(examples) if examples else empty


def _cut(batch: Any) -> Any:
    """A collated batch of one example, less this example."""
    if getattr(batch, "shape", ()):
        return batch[:0]
    if isinstance(batch, Mapping):
        return {name: _cut(value) for name, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(_cut, batch))
    if isinstance(batch, (list, tuple)):
        # default_collate leaves texts as a list with one for each example.
        if all(isinstance(value, (str, bytes)) for value in batch):
            return type(batch)()
        return type(batch)(map(_cut, batch))
    raise ParameterTypeError(
        f"empty = None: cannot tell what a batch of no examples is from a {type(batch).__name__}; give it"
    )
