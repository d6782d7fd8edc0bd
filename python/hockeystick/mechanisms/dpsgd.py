"""DP-SGD as people configure it: dataset size, batch size and epochs in, q and T out."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from .._base.bounds import exactly
from .._base.validation import (
    MAX_COUNT,
    Flag,
    NonNegative,
    ParameterError,
    ParameterTypeError,
    Size,
    choice,
    integer,
    real,
)
from ..sampling.laws import Law
from .allocation import RandomAllocation
from .numeric import Gaussian
from .runs import Dominated
from .sampled import PoissonSampled
from .steps import Composable, Process, Step, set_fields
from .truncated import TruncatedPoissonSampled
from .users import Examples, UserLevel

REFUSED_SAMPLERS = {
    "shuffle": "batches cut from a shuffled dataset are not Poisson samples, and nothing close to their epsilon is proven for it: "
    'draw each batch with a Poisson sampler, let random allocation deal out every epoch, or account each epoch as one Gaussian, under "zero_out" or "replace_one"',
    "without_replacement": "batches of fixed size have a description of their own, "
    "WithoutReplacement(Gaussian(noise_multiplier), batch_size, dataset_size) * steps",
}
"""Samplers that people have, and what to do about each."""


@dataclass(frozen=True)
class DPSGD(Composable):
    """What a DP-SGD run does, with the sampling probability and step count derived from it.

    Made by `dp_sgd`; usable wherever a composition is. ``sampling_probability`` = ``expected_batch_size`` / dataset_size and
    ``steps`` are what the training loop must really use: a Poisson sampler with that probability (or an allocation of each
    record to one update of every epoch), for that many noisy updates.
    """

    stored = True
    noise_multiplier: NonNegative
    dataset_size: Size
    batch_size: Size
    epochs: float | None = None
    requested_steps: int | None = None
    gradient_accumulation: Size = 1
    world_size: Size = 1
    drop_last: Flag = False
    sampler: str = "poisson"
    max_batch_size: int | None = None
    examples_per_user: Examples = 1
    sampling_probability: float = field(init=False)
    steps: int = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        given: object = self.sampler
        if isinstance(given, str) and given in REFUSED_SAMPLERS:
            raise ParameterError(
                f"sampler = {given!r}: must be 'poisson' or 'random_allocation'; {REFUSED_SAMPLERS[given]}"
            )
        choice("sampler", self.sampler, ("poisson", "random_allocation"))
        if self.logical_batch > self.dataset_size:
            raise ParameterError(
                f"batch_size * gradient_accumulation * world_size = {self.logical_batch}: must be at "
                f"most dataset_size = {self.dataset_size}"
            )
        if self.max_batch_size is not None:
            set_fields(self, max_batch_size=integer("max_batch_size", self.max_batch_size, 1))
            if self.examples_per_user > 1:
                raise ParameterError(
                    f"max_batch_size = {self.max_batch_size}: must be None where examples_per_user > 1; no pair is "
                    "proven for users whose examples may push each other out of a batch"
                )
        if self.sampler != "poisson" and (self.max_batch_size is not None or self.examples_per_user > 1):
            raise ParameterError(
                f"sampler = {self.sampler!r}: must be 'poisson' with max_batch_size or examples_per_user"
            )
        if (self.epochs is None) == (self.requested_steps is None):
            raise ParameterTypeError("epochs, steps: exactly one of the two must be given")
        if self.epochs is not None:
            set_fields(self, epochs=real("epochs", self.epochs, 0.0, MAX_COUNT / self.steps_per_epoch))
            steps = integer("steps", math.ceil(self.epochs * self.steps_per_epoch))
        else:
            steps = integer("steps", self.requested_steps)
            set_fields(self, requested_steps=steps)
        allocated = self.sampler == "random_allocation"
        rate = 1.0 / self.steps_per_epoch if allocated else self.logical_batch / self.dataset_size
        set_fields(self, sampling_probability=rate, steps=steps)

    @property
    def logical_batch(self) -> int:
        """The batch that was asked for, of one noisy update: all workers and passes together."""
        return self.batch_size * self.gradient_accumulation * self.world_size

    @property
    def expected_batch_size(self) -> float:
        """What is drawn for one noisy update, on average: of an allocation the records over the updates of an epoch, else ``logical_batch``."""
        if self.sampler == "random_allocation":
            return self.dataset_size / self.steps_per_epoch
        return self.logical_batch

    @property
    def steps_per_epoch(self) -> int:
        """How many noisy updates it takes to see as many records as there are, rounded up (down with ``drop_last``)."""
        whole, rest = divmod(self.dataset_size, self.logical_batch)
        return whole + (rest > 0 and not self.drop_last)

    def as_process(self) -> Process:
        """Return the composition of ``steps`` Poisson-sampled, perhaps truncated, Gaussian mechanisms.

        Of allocations, whole epochs: what the last one has not released yet is covered.
        """
        if self.sampler == "random_allocation":
            epoch = RandomAllocation(self.noise_multiplier, self.steps_per_epoch)
            whole = epoch * -(-self.steps // self.steps_per_epoch)
            if self.steps % self.steps_per_epoch == 0:
                return whole
            said = map(str, epoch.words("add_or_remove")[:3])
            return Dominated(str(self), whole, self.steps, *said).as_process()
        step: Step = PoissonSampled(Gaussian(self.noise_multiplier), self.sampling_probability)
        if self.max_batch_size is not None:
            step = TruncatedPoissonSampled(
                self.noise_multiplier, self.dataset_size, self.sampling_probability, self.max_batch_size
            )
        elif self.examples_per_user > 1:
            step = UserLevel(step, self.examples_per_user)
        return Process([(step, self.steps)])

    def _batch_law(self) -> Law:
        return replace(super()._batch_law(), steps=self.steps, dataset_size=self.dataset_size)

    def _sentence(self) -> str:
        return str(self)

    def __str__(self) -> str:
        given = f"{exactly(self.epochs)} epochs" if self.epochs is not None else f"{self.steps} steps"
        cut = "" if self.max_batch_size is None else f" truncated to {self.max_batch_size} records"
        batches = "Poisson sampling" if self.sampler == "poisson" else "random allocation in every epoch"
        users = "" if self.examples_per_user == 1 else f", at most {self.examples_per_user} of each user"
        batch = f"{self.batch_size} per worker and pass x {self.gradient_accumulation} accumulated x {self.world_size} workers"
        if self.sampler == "poisson":
            drawn = f"expected batch size {self.logical_batch} (= {batch}), sampling probability {exactly(self.sampling_probability)}"
        else:
            drawn = (
                f"each record in one of the {self.steps_per_epoch} updates of every epoch, expected batch size "
                f"{exactly(self.expected_batch_size)} (asked for {self.logical_batch} = {batch})"
            )
        return (
            f"DP-SGD: noise multiplier {exactly(self.noise_multiplier)}, {batches}{cut}, "
            f"{self.dataset_size} records{users}, {given}; derived: {drawn}, {self.steps} noisy updates"
        )


def dp_sgd(
    noise_multiplier: float,
    dataset_size: int,
    batch_size: int,
    epochs: float | None = None,
    steps: int | None = None,
    *,
    gradient_accumulation: int = 1,
    world_size: int = 1,
    drop_last: bool = False,
    sampler: str = "poisson",
    max_batch_size: int | None = None,
    examples_per_user: int = 1,
) -> DPSGD:
    """Describe a DP-SGD run and derive its sampling probability and number of noisy updates.

    ``batch_size`` is the expected number of examples per worker and forward pass; one noisy update
    sees B = batch_size * gradient_accumulation * world_size of them, so q = B / dataset_size.
    Give either ``steps`` (noisy updates) or ``epochs``: an epoch is ceil(dataset_size / B) updates,
    floor with ``drop_last``; a fractional number of epochs rounds the updates up.
    ``noise_multiplier`` is sigma / clipping norm, on the *sum* of the clipped gradients over all
    workers and accumulated passes. ``sampler="random_allocation"``: every record in one of the
    updates of each epoch, chosen uniformly (`RandomAllocation`). ``sampler="shuffle"`` is refused. ``max_batch_size`` caps the batch
    of one noisy update, all workers and passes together, as in `TruncatedPoissonSampled`.
    ``examples_per_user`` > 1 protects users with at most that many examples each, as `UserLevel` does.

    >>> run = dp_sgd(noise_multiplier=1.0, dataset_size=60_000, batch_size=256, epochs=60)
    >>> run.sampling_probability, run.steps
    (0.004266666666666667, 14100)
    >>> dp_sgd(1.0, 60_000, 256, epochs=60, drop_last=True).steps
    14040
    """
    data = noise_multiplier, dataset_size, batch_size
    workers = gradient_accumulation, world_size, drop_last
    return DPSGD(*data, epochs, steps, *workers, sampler, max_batch_size, examples_per_user)
