"""What looks like a slip of whoever described a release: never an error, as each of these may be meant.

Every threshold here is *speed*: it decides what is worth a remark and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..mechanisms.adjacency import COUNTS_DIFFER
from ..mechanisms.descriptions import Composable, Step
from ..mechanisms.dpsgd import DPSGD
from ..mechanisms.sampled import NO_GUARANTEE

# *Speed*, as no bound rests on what looks odd.
_MANY_STEPS = 100
_LARGE_NOISE, _SMALL_NOISE = 500.0, 0.05
_LARGE_DELTA = 0.01


def notes(
    described: Composable, adjacency: str, epsilon: float | None, delta: float | None
) -> tuple[str, ...]:
    """Remarks on a description, its adjacency and the epsilon or delta that it is asked at, None where it is not.

    >>> import hockeystick as hs
    >>> notes(hs.dp_sgd(1.0, 1000, 10, epochs=1), "add_or_remove", None, 1e-2)[0]
    'delta = 0.01 is not below 1/1000, one over the number of records: publishing one record outright would satisfy it'
    """
    parts = list(described.as_process().alternatives())
    sizes = [
        size for part in (described, *parts) if isinstance(size := getattr(part, "dataset_size", None), int)
    ]
    found = [*of_budget(epsilon, delta, min(sizes, default=None)), *_run(described, adjacency)]
    for step, count in described.as_process():
        for part in step.alternatives():
            found += [*_unsound(part), *_step(part, count)]
    return tuple(dict.fromkeys(found))


def of_budget(epsilon: float | None, delta: float | None, records: int | None = None) -> Iterator[str]:
    """Remarks on a budget alone, of which nothing else needs to be known."""
    if delta is not None and records is not None and delta >= 1.0 / records:
        yield (
            f"delta = {delta!r} is not below 1/{records}, one over the number of records: publishing one record outright "
            "would satisfy it"
        )
    elif delta is not None and delta >= _LARGE_DELTA:
        yield f"delta = {delta!r} is large: are epsilon and delta swapped? Publishing each record with that probability satisfies it"
    if epsilon is not None and 0.0 < epsilon <= 1e-4:
        yield f"epsilon = {epsilon!r} is small: are epsilon and delta swapped?"


def _run(described: Composable, adjacency: str) -> Iterator[str]:
    if adjacency in COUNTS_DIFFER and described.as_process().words(adjacency).kept:
        yield (
            f'adjacency = "{adjacency}" of fixed groups (CyclicPoisson, FixedOrder) takes the group of a record to depend on nothing but the record, such as '
            "its name; where groups are by places in the data, as in the batches that are drawn here, a record less moves others into other "
            'groups: ask for "zero_out" or "replace_one"'
        )
    if isinstance(described, DPSGD) and described.requested_steps:
        batch, records = described.logical_batch, described.dataset_size
        if described.steps * batch < records:
            yield f"steps = {described.steps} of {batch} records are less than one epoch of {records}: if they are epochs, give epochs"


def _unsound(step: Step) -> Iterator[str]:
    words = step.words("replace_one")  # the only adjacency of batches of fixed size, which have such pairs
    if NO_GUARANTEE in words.caveat + (words.sampler or ""):
        yield f"{step!r}:{NO_GUARANTEE}; choose pair = 'sound'"


def _step(step: Any, count: int) -> Iterator[str]:
    most = getattr(step, "max_batch_size", None)
    drawn = getattr(step, "dataset_size", 0) / getattr(step, "groups", 1)
    if most is not None and most < drawn * step.sampling_probability:
        yield (
            f"max_batch_size = {most} is below the expected batch of {drawn * step.sampling_probability:g} records: nearly every "
            "batch is cut"
        )
    noise = getattr(getattr(step, "mechanism", step), "noise_multiplier", None)
    if noise is None:
        return
    if count >= _MANY_STEPS and step.is_unsampled():
        yield f"{count} steps use all records each: if batches are drawn at random, give the sampling probability"
    if noise >= _LARGE_NOISE or 0.0 < noise <= _SMALL_NOISE:
        yield (
            f"noise_multiplier = {noise!r} looks like a standard deviation: it is that of the noise on the sum, divided by the "
            "clipping norm (`accounting.noise_multiplier` converts)"
        )
