"""What Opacus's loaders draw: Poisson samples at the rate that is accounted, and one step on each of them (docs/interop/interop.md, section 2)."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import struct
import warnings
from collections import deque
from collections.abc import Iterator
from numbers import Integral
from typing import Any

from .._base.lazy import needing
from .._base.validation import ParameterError, is_a, plain
from .opacus_layers import Buffers, check_layers, watch_layers
from .opacus_steps import (
    ADVICE,
    check_frozen,
    check_norm,
    check_seen,
    check_summed,
    check_types,
    clipped_to,
    forget_norms,
    give_members,
    norms_in_blocks,
    of_all_groups,
    row_counts,
    watch_sum,
)
from .repeats import check_repeats, is_of_a_table, size_of

with needing("hockeystick.interop.opacus needs Opacus 1.6 or later", extra="opacus"):
    import torch
    from opacus.utils.uniform_sampler import (
        DistributedUniformWithReplacementSampler,
        UniformWithReplacementSampler,
    )

_LEAST_SHARE = 30.0  # *proof*: a replica's batch is empty with a probability of at most e^-this, 1e-13, by which delta may be larger
# *Format*: bytes of a CPU generator's state, and where the 64-bit words of its Mersenne twister are.
_STATE, _WORDS, _AT = 5056, 624, 24


def check_loader(data_loader: Any) -> None:
    """Raise ParameterError unless ``data_loader`` draws Poisson samples, as the accounting assumes.

    What ``make_private`` returns does; the loader that was passed to it, or one made with
    ``poisson_sampling=False``, does not. Nor does one whose data set has a record several times, as far as can be seen (`check_repeats`), or
    one of several replicas whose share of a batch is less than 30, or which draws from
    torch's default generator: `own_coins` gives it one of its own.
    """
    sampler = getattr(data_loader, "batch_sampler", None)
    if not isinstance(sampler, (UniformWithReplacementSampler, DistributedUniformWithReplacementSampler)):
        raise ParameterError(
            f"data_loader.batch_sampler = {sampler!r}: must be Opacus's Poisson sampler; train on the "
            "loader that make_private returned, with poisson_sampling=True"
        )
    check_repeats("data_loader.dataset", getattr(data_loader, "dataset", None))
    if isinstance(sampler, DistributedUniformWithReplacementSampler):
        if sampler.generator is None:
            raise ParameterError(
                "data_loader.batch_sampler.generator = None: must be a generator of this replica's own; replicas with the same "
                "torch.manual_seed draw the same coins, and records that are drawn together move the sum together: call "
                "own_coins(data_loader) on each of them"
            )
        expected = sampler.num_samples * sampler.sample_rate
        if expected < _LEAST_SHARE:
            raise ParameterError(
                f"batch size = {expected:.6g} expected on this replica: must be at least {_LEAST_SHARE:g}; the distributed "
                "sampler passes over empty batches, so that what it draws is no Poisson sample where there are any"
            )


def drawn_rate(sample_rate: float) -> float:
    """The probability with which Opacus's samplers take a record: ceil(2^24 ``sample_rate``) / 2^24, at most 1.

    They compare ``sample_rate`` with a uniform number in float32, which is a multiple of 2^-24. Other devices than the CPU draw
    from (0, 1] and turn 1, which has a probability of about 2^-25, into 0: there it is 2^-24 more.
    """
    units = math.ceil(sample_rate * 2.0**24) + (torch.get_default_device().type != "cpu")
    return min(1.0, units * 2.0**-24) if sample_rate else 0.0


def check_uniforms() -> None:
    """Raise ParameterError unless torch's default type is one whose uniform numbers have the steps that `drawn_rate` assumes."""
    kind = torch.get_default_dtype()
    if kind not in (torch.float32, torch.float64):
        raise ParameterError(
            f"torch.get_default_dtype() = {kind}: must be torch.float32 or torch.float64; Opacus's sampler compares the "
            "sample rate with uniform numbers of that type, which are multiples of 1/256 or 1/2048"
        )


def own_coins(data_loader: Any) -> None:
    """Let the sampler of ``data_loader`` draw from a generator of its own, whose state is from the operating system.

    Before it is iterated over: coins are then independent of the noise, and those of different replicas of each other, whatever
    ``torch.manual_seed`` each has called. How records are split among replicas stays as it is. `PrivacyEngine` does it by itself.
    """
    data_loader.batch_sampler.generator = _fresh_generator(torch.get_default_device())


def _fresh_generator(device: Any) -> Any:
    """A generator whose state is from the operating system."""
    generator = torch.Generator(device=device)
    generator.manual_seed(int.from_bytes(os.urandom(8), "little"))
    state = generator.get_state()
    if generator.device.type == "cpu" and state.numel() == _STATE:
        # Of a seed, 32 bits are used: two of a thousand replicas would have the same one with a probability of 1e-4.
        words = torch.tensor(struct.unpack(f"<{_WORDS}I", os.urandom(4 * _WORDS)), dtype=torch.int64)
        state[_AT : _AT + 8 * _WORDS].view(torch.int64).copy_(words)
        generator.set_state(state)
    return generator


def check_noise(generator: Any) -> None:
    """Raise ParameterError for a generator that was never seeded: torch gives all of these one seed, so that anybody can draw the noise again."""
    if generator is not None and generator.initial_seed() == torch.Generator().initial_seed():
        raise ParameterError(
            f"noise_generator: has seed {generator.initial_seed()}, that of each torch.Generator() that was never seeded, must have one of its own, "
            "which nobody else knows: call noise_generator.seed(), or leave it out"
        )


def check_replicas(dataset: Any) -> None:
    """Raise ParameterError on all replicas unless ``dataset`` has the same records in the same order on each, as far as can be seen.

    Compared are its length and, of subsets (`random_split`, or Hugging Face's `train_test_split`) in whatever it holds, whose records they are.
    """
    facts = _facts(dataset)
    all_facts: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(all_facts, facts)
    if any(each != facts for each in all_facts):
        raise ParameterError(
            "data_loader.dataset: must be the same on all replicas, which share its records by their places; there is a subset that was "
            "drawn otherwise, and a record of several replicas moves the sum once for each: split it with one seed on all of them"
        )


def check_settings(**settings: Any) -> None:
    """Raise ParameterError on all replicas unless each has these ``settings``: one of them adds the noise, and each divides, by its own."""
    everywhere: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(everywhere, settings)
    if any(each != settings for each in everywhere):
        raise ParameterError(
            f"optimizer: {everywhere} on the replicas, must be the same on all: each draws, clips and divides by its own, and one of them adds noise for its own; "
            "give make_private the same everywhere, and let schedules run on every replica"
        )


def _facts(dataset: Any, depth: int = 8) -> list[Any]:
    facts: list[Any] = [size_of(dataset)]
    if is_of_a_table(dataset):
        rows = dataset._indices
        return [
            *facts,
            None if rows is None else hashlib.sha256(rows.column(0).to_numpy().tobytes()).digest(),
        ]
    for name, value in sorted(getattr(dataset, "__dict__", {}).items()):
        held = value if isinstance(value, (list, tuple)) else [value]
        facts.extend(
            _facts(each, depth - 1)
            for each in held
            if depth and (isinstance(each, torch.utils.data.Dataset) or is_of_a_table(each))
        )
        if name != "indices":
            continue  # a data set may be large
        indices = value.tolist() if hasattr(value, "tolist") else value
        if isinstance(indices, (list, tuple, range)):
            places = [int(i) for i in indices if isinstance(i, Integral)]
            facts.append(hashlib.sha256(repr(places).encode()).digest())
    return facts


def order_of(data_loader: Any) -> tuple[str, str]:
    """What decides which records ``data_loader`` draws, and its class: a batch sampler of an own kind, or else the sampler."""
    batches = getattr(data_loader, "batch_sampler", None)
    if type(batches).__name__ not in ("NoneType", "BatchSampler"):
        return "batch_sampler", type(batches).__name__
    return "sampler", type(getattr(batches, "sampler", getattr(data_loader, "sampler", None))).__name__


class BatchWarning(UserWarning):
    """Batches of a private loader were drawn, and no private step was made on any of them."""


class Watch:
    """Lets ``optimizer`` step once on each batch of ``loader``, before the next one; raises ParameterError before the weights change.

    Batches are counted as they are drawn, parts of a batch as BatchMemoryManager announces them. At each step one batch waits, and as
    many more as the loader's workers fetch ahead; in the end of a pass, when no more are drawn, at most those. What an earlier pass
    drew pays for nothing in a later one. The sampler must stay as it is: ParameterError, instead of a batch, where it was changed.
    Each record has one row of gradients, no part of a batch is clipped to a larger norm than its noise is for, no layer mixes or
    keeps records or has its gradients rounded or in another order (`check_layers`, `watch_layers`), and the accountant that
    ``engine`` has now records every step.

    Warns, once, where a whole pass was drawn in training mode without a step: another optimizer may have made them. Evaluation is
    let pass under ``torch.no_grad()`` or after ``eval()``.
    """

    def __init__(self, loader: Any, optimizer: Any, module: Any, engine: Any, grad_sample_mode: str) -> None:
        self._loader, self._optimizer, self._module = loader, optimizer, module
        self._engine, self._accountant = engine, engine.accountant
        self._trained = getattr(module, "_module", module)
        self._buffers = Buffers(self._trained)
        watch_layers(self._trained, module, grad_sample_mode)
        self._waiting, self._ended, self._announced, self._warned = 0, False, False, False
        self._pass, self._begun_passes = 0, 0
        # What passes that were left without a step since held, if they go on: evaluation on the same loader may come between two steps.
        self._left: dict[int, tuple[Any, ...]] = {}
        # Records of the batches that wait; of the oldest one's parts so far, whether there are any, rows of gradients and the largest norm.
        self._sizes, self._begun, self._rows, self._clipped = deque[int](), False, 0, 0.0
        self._expected = optimizer.expected_batch_size
        self._noise: Any = None
        sampler = loader.batch_sampler
        self._together = isinstance(sampler, DistributedUniformWithReplacementSampler)
        if self._together:
            self._compare()
        self._kind: type[Any] = type(sampler)
        self._facts = dict(vars(sampler))
        norms_in_blocks(optimizer)
        if "ghost" in grad_sample_mode:
            watch_sum(optimizer)
        self._signal, self._pre_step = optimizer.signal_skip_step, optimizer.pre_step
        # A DataLoader does not let its sampler be replaced; a class of its own makes this one count.
        members: dict[str, Any] = {"__iter__": lambda its: self._drawing(its)}
        if hasattr(self._kind, "set_epoch"):
            # Split anew on some replicas only, shares would overlap. All splits are as good, as coins are fresh in each pass.
            members["set_epoch"] = lambda its, epoch: None
        give_members(sampler, **members)
        optimizer.signal_skip_step, optimizer.pre_step = self._announcing, self._stepping

    @property
    def _ahead(self) -> int:
        return int(self._loader.num_workers * (self._loader.prefetch_factor or 0))

    def _drawing(self, sampler: Any) -> Iterator[Any]:
        if self._optimizer._is_last_step_skipped:
            raise ParameterError(
                "data_loader: a pass begins where the last one was left inside a batch that BatchMemoryManager had split, whose "
                "gradients would be added to the next batch; leave a pass between batches, or call make_private again"
            )
        if not self._ended and not self._optimizer._step_skip_queue:
            self._left[self._pass] = self._waiting, self._sizes, self._announced
        # Parts that workers fetched ahead of the end of the last pass are not going to come.
        self._optimizer._step_skip_queue.clear()
        self._waiting, self._ended = 0, False
        self._begun_passes += 1
        self._pass = this = self._begun_passes
        self._buffers.look()
        self._sizes = deque[int]()
        self._begun, self._rows, self._clipped = False, 0, 0.0
        self._check_facts(sampler)
        # The places of a Subset may be others by now.
        check_repeats("data_loader.dataset", getattr(self._loader, "dataset", None))
        drawn, training = 0, True
        for batch in self._kind.__iter__(sampler):
            check_uniforms()
            self._check_facts(sampler)
            if self._pass != this:
                if this not in self._left:
                    raise ParameterError(
                        "data_loader: an earlier pass goes on after a later one has begun, as in zip(loader, loader); two batches would be "
                        "counted as one step: make one pass after another"
                    )
                self._waiting, self._sizes, self._announced = self._left[this]
                self._pass, self._ended, self._left = this, False, {}
            drawn, self._waiting, self._announced = drawn + 1, self._waiting + 1, False
            self._sizes.append(len(batch))
            training = training and torch.is_grad_enabled() and getattr(self._trained, "training", True)
            yield batch
        self._ended = True
        if training and drawn > self._ahead and self._waiting == drawn and not self._warned:
            self._warned = True
            warnings.warn(
                f"data_loader: {drawn} batches were drawn, and the optimizer that make_private returned has made no step on them: steps of "
                "another one, also of the one that was passed in, have no noise and are not accounted for (to evaluate, use "
                "torch.no_grad())",
                BatchWarning,
                stacklevel=2,
            )

    def _check_facts(self, sampler: Any) -> None:
        now = vars(sampler)
        for name in sorted(now.keys() | self._facts.keys()):
            if now.get(name) != self._facts.get(name):
                raise ParameterError(
                    f"data_loader.batch_sampler.{name} = {now.get(name)!r}: must stay {self._facts.get(name)!r}, as make_private left it; "
                    "what is accounted for is what that draws"
                )

    def _announcing(self, do_skip: bool = True) -> None:
        # All replicas are told so of their first batch, and none waits for another one.
        if is_a(self._trained, "DistributedDataParallel", "FSDPModule"):
            raise ParameterError(
                f"module is a {type(self._trained).__name__}: must be an opacus.distributed.DifferentiallyPrivateDistributedDataParallel with BatchMemoryManager; "
                "others exchange gradients in each backward pass, and where replicas have different numbers of parts those of one are added to the sums "
                "of another"
            )
        self._waiting, self._announced = self._waiting + self._announced, True
        self._signal(do_skip)

    def _stepping(self, closure: Any = None) -> Any:
        optimizer, ahead = self._optimizer, self._ahead
        self._left = {}
        if self._waiting != ahead + 1 and not (self._ended and 1 <= self._waiting <= ahead):
            raise ParameterError(
                f"optimizer.step: {self._waiting} batches of the private loader wait for their step, must be {ahead + 1}. If less, this batch "
                f"was used before or came from another loader; if more, a batch was left out (empty ones are steps, too) or drawn ahead (Accelerate's loaders do), so "
                f"epsilon would not hold: {ADVICE}, one step for each batch"
            )
        whole = not optimizer._check_skip_next_step(pop_next=False)
        self._check_settings(whole)
        if getattr(optimizer, "params", None) == [] and (optimizer._step_skip_queue or self._begun):
            raise ParameterError(
                "parameters: nothing is trained in a part of a batch that BatchMemoryManager has split, so that the end of the next batch would be taken "
                "for that of this one: freeze layers between batches"
            )
        check_summed(optimizer)
        # Each part of a batch, before it is added to the others.
        check_frozen(optimizer)
        check_types(getattr(optimizer, "params", ()))
        check_layers(self._trained)
        self._buffers.see()
        check_seen(optimizer, "grad")
        if not self._begun:
            # A part of an earlier batch would be added, which zero_grad left in what was frozen then.
            for parameter in of_all_groups(optimizer):
                parameter.summed_grad = None
        self._check_rows(whole)
        self._waiting, self._begun = self._waiting - 1, not whole
        self._give_noise()
        before = _last(self._accountant)
        stepped = self._pre_step(closure)
        forget_norms(optimizer)
        if whole:
            self._sizes.popleft()
            self._rows, self._clipped = 0, 0.0
            # Without anything to train nothing is released, and Opacus does not call the hook.
            if getattr(optimizer, "params", None) != [] and _last(self._accountant) == before:
                raise ParameterError(
                    "optimizer.step_hook: the accountant has not recorded this step; attach_step_hook replaces the function that does, as it "
                    "keeps one alone: attach one that calls that, too, optimizer.step_hook as make_private left it"
                )
        return stepped

    def _give_noise(self) -> None:
        """A generator of its own for the noise, unless the script brings one: ``torch.manual_seed``, and states that are restored, would make it again."""
        optimizer = self._optimizer
        given = getattr(optimizer, "generator", None)
        if getattr(self._engine, "secure_mode", False):
            return
        if given is not None and given is not self._noise:
            check_noise(given)
            return
        params = getattr(optimizer, "params", ())
        devices = {getattr(each, "device", None) for each in params} - {None}
        # Sharded parameters, and those of several devices, draw from the devices' own generators.
        alone = len(devices) == 1 and not any(hasattr(each, "to_local") for each in params)
        if not alone or (self._noise is not None and self._noise.device not in devices):
            self._noise = None
        if alone and self._noise is None:
            with contextlib.suppress(RuntimeError):  # some devices know no generators
                self._noise = _fresh_generator(devices.pop())
        optimizer.generator = self._noise

    def _compare(self) -> None:
        """What must be the same on all replicas."""
        optimizer, sampler = self._optimizer, self._loader.batch_sampler
        check_settings(
            noise_multiplier=plain(optimizer.noise_multiplier),
            max_grad_norm=plain(optimizer.max_grad_norm),
            clipped_to=(clipped_to(optimizer), plain(getattr(self._module, "max_grad_norm", 0.0))),
            loss_reduction=(optimizer.loss_reduction, getattr(self._module, "loss_reduction", None)),
            expected_batch_size=optimizer.expected_batch_size,
            sample_rate=sampler.sample_rate,
            batches=len(sampler),
        )

    def _check_settings(self, whole: bool) -> None:
        """What make_private set, and what follows from it: the norm, the size that is divided by, who records steps."""
        optimizer = self._optimizer
        norm = plain(optimizer.max_grad_norm)
        clipped = max(clipped_to(optimizer), plain(getattr(self._module, "max_grad_norm", 0.0)))
        self._clipped = max(self._clipped, clipped)
        if self._together and whole:
            self._compare()
        check_norm(norm, self._clipped)
        if optimizer.expected_batch_size != self._expected:
            raise ParameterError(
                f"optimizer.expected_batch_size = {optimizer.expected_batch_size!r}: must stay {self._expected!r}, as make_private set it: sum and noise are divided by "
                "it, and the size of a batch could be read off the noise"
            )
        if self._engine.accountant is not self._accountant:
            raise ParameterError(
                "engine.accountant: must stay the one that make_private attached, which records the steps; let it load_state_dict, or call "
                "make_private again"
            )

    def _check_rows(self, whole: bool) -> None:
        """A row of gradients is what is clipped, and a record what is drawn: there must be as many, at the end of a batch."""
        counts, size = row_counts(self._optimizer, self._trained), self._sizes[0]
        if not counts:
            return
        self._rows += max(counts)
        unlike = sorted(set(counts)) if min(counts) < max(counts) else []
        if unlike or self._rows > size or (whole and self._rows < size):
            rows = " and ".join(map(str, unlike)) or self._rows
            raise ParameterError(
                f"optimizer: gradients of {rows} rows, must be {size} for every parameter, the records that were drawn; each row is "
                "clipped by itself, so a record in several of them (crops, views, frames) moves the sum by several times max_grad_norm, and so "
                "does one of several in a row (two forward passes in one graph): keep the records along the first dimension, and all of them (a "
                "collate_fn must leave none out: give those a weight of 0 in the loss)"
            )


def _last(accountant: Any) -> Any:
    """What differs after a step was recorded: the number of entries of the history, and the last one."""
    return len(accountant.history), tuple(accountant.history[-1:])
