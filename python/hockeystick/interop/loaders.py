"""What gives away that a training loop of Opacus does not train on the Poisson samples that are accounted for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from .._base.validation import ParameterError

_CHANCE = 1e-12  # of stopping a loop that is right, for each of its steps; any value is sound
_ADVICE = "train on the loader that make_private returned, with poisson_sampling=True"


class EqualSizes:
    """Stops a loop whose batches all have one size, as those of a shuffled loader have.

    No size of a Poisson sample has a probability above 1 / sqrt(2 e v), v = B (1 - q) being the variance (Herzog 1947), so that k
    equal ones in a row have at most its power k - 1. Batches that were split in memory are let pass, as their size is not seen here.
    """

    def __init__(self, sample_rate: float) -> None:
        self._rate, self._size, self._count, self._split = sample_rate, -1, 0, False

    def see(self, optimizer: Any) -> None:
        """Raise ParameterError if the batch of this step completes a run that Poisson samples do not have."""
        size = _batch_size(optimizer)
        self._split = self._split or getattr(optimizer, "_is_last_step_skipped", False)
        if size is None or self._split:
            return
        self._count = self._count + 1 if size == self._size else 1
        self._size = size
        variance = getattr(optimizer, "expected_batch_size", 0) * (1.0 - self._rate)
        likely = 1.0 / math.sqrt(2.0 * math.e * variance) if variance > 0.0 else 1.0
        if likely < 1.0 and (self._count - 1) * math.log(likely) < math.log(_CHANCE):
            raise ParameterError(
                f"batch size = {size}: the last {self._count} batches all had it; Poisson samples do that with a "
                f"probability below {_CHANCE:g}, so epsilon would not hold: {_ADVICE}"
            )


def _batch_size(optimizer: Any) -> int | None:
    """Of the gradients that the optimizer holds; None where it does not keep one for each record."""
    for parameter in getattr(optimizer, "params", ()):
        kept = getattr(parameter, "grad_sample", None)
        if kept is not None:
            return sum(map(len, kept)) if isinstance(kept, list) else len(kept)
    return None


def watch(sampler: Any, optimizer: Any) -> None:
    """Let ``optimizer`` take no more steps than ``sampler`` has drawn batches; raises ParameterError before the weights change."""
    drawn, taken, hook = 0, 0, optimizer.step_hook
    kind: type[Any] = type(sampler)

    def counted(self: Any) -> Iterator[list[int]]:
        nonlocal drawn
        for batch in kind.__iter__(self):
            drawn += 1
            yield batch

    def guarded(optimizer: Any) -> None:
        nonlocal taken
        if taken == drawn:
            raise ParameterError(
                f"optimizer.step: {taken} steps on {drawn} batches of the private loader, so this batch came from "
                f"another one, and epsilon would not hold: {_ADVICE}"
            )
        hook(optimizer)
        taken += 1

    # A DataLoader does not let its sampler be replaced; a class of its own makes this one count.
    sampler.__class__ = type(kind.__name__, (kind,), {"__iter__": counted, "__module__": kind.__module__})
    optimizer.attach_step_hook(guarded)
