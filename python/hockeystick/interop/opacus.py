"""Opacus: the accountant behind ``PrivacyEngine(accountant="hockeystick")``.

Importing this module registers it. `PrivacyEngine` is Opacus's engine, less the ways to train with
a sampler that the accountant does not account for.
"""

from __future__ import annotations

import math
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from .._base.lazy import needing
from .._base.validation import ParameterError, ParameterTypeError, integer, real
from ..accounting.accountant import Accountant, Answers
from ..accounting.calibration import calibrate_noise_multiplier
from ..accounting.profile import PrivacyProfile
from ..accounting.settings import DEFAULT_ACCURACY
from ..mechanisms.descriptions import Gaussian, PoissonSampled, Process

with needing("hockeystick.interop.opacus needs Opacus 1.6 or later", extra="opacus"):
    import opacus
    import torch
    from opacus.accountants import IAccountant, register_accountant
    from opacus.utils.uniform_sampler import (
        DistributedUniformWithReplacementSampler,
        UniformWithReplacementSampler,
    )

MECHANISM = "hockeystick"
"""The name in Opacus's registry and in saved states."""


class HockeystickAccountant(Answers, IAccountant):
    """Opacus's accountant interface, answered with certified bounds.

    ``history`` holds (noise_multiplier, sample_rate, steps), as in Opacus's own accountants: every
    entry is that many Gaussian mechanisms on Poisson samples, noise_multiplier = sigma / max_grad_norm
    on the *sum* of the clipped gradients. The list may be read and replaced (Opacus's noise search
    does); asking never changes it. ``adjacency`` and ``accuracy`` are those of `hockeystick.account`. Threads may share it: one call at a
    time, none is lost. In a forked child every call raises `ForkedError`.
    """

    def __init__(self, adjacency: str = "add_or_remove", accuracy: float = DEFAULT_ACCURACY) -> None:
        super().__init__()
        self.history: list[tuple[float, float, int]] = []
        self._accuracy = accuracy
        self._accountant = Accountant(adjacency, accuracy)

    @classmethod
    def from_accountant(cls, other: IAccountant, adjacency: str = "add_or_remove") -> HockeystickAccountant:
        """Take over the history of one of Opacus's accountants; both count what follows on their own.

        Rates become those that Opacus's sampler has drawn with (`drawn_rate`).
        """
        if not isinstance(other, IAccountant):
            raise ParameterTypeError(f"other = {other!r}: must be an Opacus accountant")
        accountant = cls(adjacency)
        accountant.history = [(s, drawn_rate(q), steps) for s, q, steps in _checked_history(other.history)]
        return accountant

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Record one optimizer step on a batch that holds each record with probability ``sample_rate``."""
        noise_multiplier = real("noise_multiplier", _plain(noise_multiplier), 0.0)
        sample_rate = real("sample_rate", _plain(sample_rate), 0.0, 1.0)
        steps = 1
        if self.history and tuple(self.history[-1][:2]) == (noise_multiplier, sample_rate):
            steps += self.history.pop()[2]
        self.history.append((noise_multiplier, sample_rate, steps))

    @property
    def process(self) -> Process:
        """Everything in ``history``, as a hockeystick description."""
        return Process(
            (PoissonSampled(Gaussian(noise_multiplier), sample_rate), steps)
            for noise_multiplier, sample_rate, steps in _checked_history(self.history)
        )

    def profile(self) -> PrivacyProfile:
        """The privacy profile of everything in ``history``."""
        process = self.process
        if process != self._accountant.process:
            # The history may have been replaced: begin anew.
            self._accountant = Accountant(self.adjacency, self._accuracy)
            self._accountant.step(process)
        return self._accountant.profile()

    def get_epsilon(self, delta: float, *, poisson: bool = True, **_: Any) -> float:
        """Certified epsilon at ``delta`` so far.

        Options of Opacus's other accountants (orders, error targets) have no meaning here and are
        ignored, except ``poisson=False``, which would ask for an answer that is not a guarantee.
        """
        if not poisson:
            raise ParameterError("poisson = False: must be True; there is no guarantee for other samplers")
        return super().get_epsilon(delta)

    def __repr__(self) -> str:
        return f"HockeystickAccountant(adjacency={self.adjacency!r}, history={self.history!r})"

    def __len__(self) -> int:
        """Number of optimizer steps so far (Opacus's own accountants return the length of ``history``)."""
        return sum(steps for _, _, steps in _checked_history(self.history))

    @classmethod
    def mechanism(cls) -> str:
        """The name in Opacus's registry."""
        return MECHANISM

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[Any], None]:
        """The function that Opacus's optimizer calls before it updates the weights.

        It raises, and the weights stay as they are, where Opacus would report an epsilon that does not
        hold: for batches summed over several backward passes, for adaptive clipping, for noise in proportion to a smaller norm
        than gradients are clipped to, and for batches that are nearly all of one size, which are no Poisson samples
        (``poisson_sampling=False``, or another loader than ``make_private`` returned). What it records is `drawn_rate`.
        """
        rate = drawn_rate(real("sample_rate", _plain(sample_rate), 0.0, 1.0))
        sizes, norms = EqualSizes(rate), ClippingNorm()

        def hook(optimizer: Any) -> None:
            check_uniforms()
            norms.see(optimizer)
            accumulated = optimizer.accumulated_iterations
            if accumulated != 1:
                raise ParameterError(
                    f"accumulated_iterations = {accumulated}: must be 1; a sum over {accumulated} batches is "
                    "no Poisson sample (a record can be in several of them): draw one larger batch and "
                    "split it with Opacus's BatchMemoryManager"
                )
            sizes.see(optimizer)
            self.step(noise_multiplier=optimizer.noise_multiplier, sample_rate=rate)

        return hook

    def state_dict(self, destination: Any = None) -> Any:
        """History, name and adjacency as plain values, for ``torch.save`` and ``load_state_dict``."""
        state = super().state_dict(destination)
        state["history"] = _checked_history(self.history)
        state["adjacency"] = self.adjacency
        return state

    def load_state_dict(self, state_dict: Any) -> None:
        """Replace the history by a saved one; raises ValueError and changes nothing if it is not valid."""
        before = self.history
        super().load_state_dict(state_dict)
        loaded, self.history = self.history, before
        adjacency = state_dict.get("adjacency", self.adjacency)
        if adjacency != self.adjacency:
            raise ParameterError(
                f"state_dict['adjacency'] = {adjacency!r}: must be {self.adjacency!r}, that of the accountant"
            )
        self.history = _checked_history(loaded)


def _plain(value: Any) -> Any:
    """A Python number from a tensor of one element."""
    return value.item() if hasattr(value, "item") else value


def _checked_history(history: Any) -> list[tuple[float, float, int]]:
    """A copy of ``history`` with every entry validated."""
    checked = []
    for index, entry in enumerate(history):
        try:
            noise_multiplier, sample_rate, steps = entry
        except (TypeError, ValueError):
            raise ParameterError(
                f"history[{index}] = {entry!r}: must be (noise_multiplier, sample_rate, steps)"
            ) from None
        checked.append(
            (
                real(f"history[{index}].noise_multiplier", _plain(noise_multiplier), 0.0),
                real(f"history[{index}].sample_rate", _plain(sample_rate), 0.0, 1.0),
                integer(f"history[{index}].steps", _plain(steps)),
            )
        )
    return checked


def check_loader(data_loader: Any) -> None:
    """Raise ParameterError unless ``data_loader`` draws Poisson samples, as the accounting assumes.

    What ``make_private`` returns does; the loader that was passed to it, or one made with
    ``poisson_sampling=False``, does not. Nor does one of several replicas whose share of a batch is less than 30.
    """
    sampler = getattr(data_loader, "batch_sampler", None)
    if not isinstance(sampler, (UniformWithReplacementSampler, DistributedUniformWithReplacementSampler)):
        raise ParameterError(
            f"data_loader.batch_sampler = {sampler!r}: must be Opacus's Poisson sampler; train on the "
            "loader that make_private returned, with poisson_sampling=True"
        )
    if isinstance(sampler, DistributedUniformWithReplacementSampler):
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


SOUND_OPTIONS = frozenset(
    {"module", "optimizer", "criterion", "data_loader", "noise_multiplier", "max_grad_norm", "batch_first"}
    | {"loss_reduction", "clipping", "noise_generator", "grad_sample_mode", "wrap_model"}
)
"""What ``make_private`` may be given besides ``poisson_sampling=True``: with these, one record moves the sum by max_grad_norm at most."""


class PrivacyEngine(opacus.PrivacyEngine):
    """Opacus's ``PrivacyEngine`` that trains only what its accountant accounts for.

    ``poisson_sampling=False`` is refused, and so are ``rand_on_empty``, adaptive clipping and options that are not known here. The
    noise for a target epsilon is found by hockeystick: certified, for exactly the steps that will be run, with what was spent
    before counted in.
    """

    def __init__(self, *, accountant: str = MECHANISM, secure_mode: bool = False) -> None:
        super().__init__(accountant=accountant, secure_mode=secure_mode)

    def make_private(self, *, poisson_sampling: bool = True, **options: Any) -> Any:
        """As ``opacus.PrivacyEngine.make_private``; ``poisson_sampling`` must be True.

        The optimizer steps once on each batch of the loader that is returned, one after the other (`watch`): ParameterError, and the
        weights stay as they are, where it does not. So it is for ``rand_on_empty=True``, whose made-up record takes the place of an
        empty batch, so that a real one moves the sum by twice max_grad_norm; for adaptive clipping; and for options that are not in
        `SOUND_OPTIONS`. Warns where a weighted sampler is replaced by a uniform one.
        """
        if not poisson_sampling:
            raise ParameterError(
                "poisson_sampling = False: must be True; epsilon is computed for Poisson samples, and "
                "batches cut from a shuffled dataset have a larger one"
            )
        if options.pop("rand_on_empty", False):
            raise ParameterError(
                "rand_on_empty = True: must be False; a made-up record in place of an empty batch doubles what a real one can change"
            )
        if options.get("clipping") == "adaptive":
            raise ParameterError(_ADAPTIVE)
        for name in sorted(options.keys() - SOUND_OPTIONS):
            raise ParameterError(
                f"{name} = {options[name]!r}: must be left out; make_private is known to be sound with "
                f"{', '.join(sorted(SOUND_OPTIONS))}"
            )
        before = type(getattr(options.get("data_loader"), "sampler", None)).__name__
        if before.startswith("Weighted"):
            warnings.warn(
                f"data_loader.sampler is a {before}: Opacus draws every record with the same probability instead, "
                "1 / len(data_loader), and that is what is accounted for",
                stacklevel=2,
            )
        made = super().make_private(poisson_sampling=True, **options)
        check_loader(made[-1])
        watch(made[-1], made[1], made[0])
        return made

    def make_private_with_epsilon(
        self, *, data_loader: Any, target_epsilon: float, target_delta: float, epochs: float, **options: Any
    ) -> Any:
        """As ``opacus.PrivacyEngine.make_private_with_epsilon``.

        The noise is the smallest (up to one part in a million) with which everything in the
        accountant's history plus ``epochs`` epochs are certified to stay within ``target_epsilon`` at
        ``target_delta``. Raises UnreachableError if the history alone exceeds that.
        """
        accountant = self.accountant
        if not isinstance(accountant, HockeystickAccountant):
            raise ParameterError(
                f"accountant = {accountant.mechanism()!r}: must be {MECHANISM!r} to find the noise"
            )
        batches = len(data_loader)
        steps = math.ceil(real("epochs", epochs, 0.0) * batches)
        # Opacus computes this twice, and rounding can lose a batch: then its rate is the larger one.
        rate = drawn_rate(1.0 / int(1.0 / (1.0 / batches)))
        before = accountant.process
        found = calibrate_noise_multiplier(
            lambda sigma: before + PoissonSampled(Gaussian(sigma), rate) * steps,
            target_epsilon,
            target_delta,
            adjacency=accountant.adjacency,
        )
        return self.make_private(data_loader=data_loader, noise_multiplier=float(found), **options)


register_accountant(MECHANISM, HockeystickAccountant, force=True)

_CHANCE = (
    1e-12  # of stopping a loop that is right, for each of its steps and sizes of a window; any value is sound
)
_LEAST_SHARE = 30.0  # a replica's batch is empty with a probability of at most e^-this, 1e-13, by which delta may be larger
_WINDOW = 1000  # batches that are looked back on; any value is sound
_ADVICE = "train on the loader that make_private returned, with poisson_sampling=True"
_ADAPTIVE = (
    "clipping = 'adaptive': must be 'flat' or 'per_layer'; the clipping bound follows the fraction of unclipped gradients, which "
    "is divided by the true size of the batch and so has no guarantee that could be accounted for"
)


class ClippingNorm:
    """Stops a loop whose noise is not in proportion to the norm that its gradients are clipped to."""

    def __init__(self) -> None:
        self._first = 0.0

    def see(self, optimizer: Any) -> None:
        """Raise ParameterError if the noise of this step is not noise_multiplier times the norm of clipping."""
        # Both kinds of adaptive clipping add less noise than their noise_multiplier says.
        if hasattr(optimizer, "unclipped_num_std") or hasattr(optimizer, "_adjusted_noise_multiplier"):
            raise ParameterError(_ADAPTIVE)
        norm = _plain(getattr(optimizer, "max_grad_norm", 0.0))
        if hasattr(optimizer, "max_grad_norms"):
            self._first = math.hypot(*optimizer.max_grad_norms)  # clipping by layer: to these
        elif hasattr(optimizer, "accumulate"):
            self._first = self._first or norm  # ghost clipping: the model clips, to what it was told at first
        check_norm(norm, self._first)


def check_norm(max_grad_norm: float, clipped: float) -> None:
    """Raise ParameterError where noise is in proportion to ``max_grad_norm`` and gradients are clipped to a larger norm."""
    # Opacus rounds the norm of a list to float32.
    if max_grad_norm < clipped * (1.0 - 1e-6):
        raise ParameterError(
            f"optimizer.max_grad_norm = {max_grad_norm!r}: must be at least {clipped!r}; gradients are still clipped to that: with "
            "ghost clipping, or by layer, a schedule of max_grad_norm moves the noise alone"
        )


class EqualSizes:
    """Stops a loop most of whose batches have one size, as those of a shuffled loader have.

    No size of a Poisson sample has a probability above p = 1 / sqrt(2 e v), v = B (1 - q) being the variance (Herzog 1947), so that m
    of n batches are equal with at most (n choose m) p^(m - 1). Batches that were split in memory are let pass, as their size is not
    seen here.
    """

    def __init__(self, sample_rate: float) -> None:
        self._rate, self._split, self._sizes = sample_rate, False, deque[int](maxlen=_WINDOW)

    def see(self, optimizer: Any) -> None:
        """Raise ParameterError if the batch of this step is one of more equal ones than Poisson samples have."""
        size = _batch_size(optimizer)
        self._split = self._split or getattr(optimizer, "_is_last_step_skipped", False)
        if size is None or self._split:
            return
        self._sizes.append(size)
        variance = getattr(optimizer, "expected_batch_size", 0) * (1.0 - self._rate)
        likely = 1.0 / math.sqrt(2.0 * math.e * variance) if variance > 0.0 else 1.0
        equal = 0
        for last, other in enumerate(reversed(self._sizes), 1):
            if other != size:
                continue
            equal += 1
            ways = math.lgamma(last + 1) - math.lgamma(equal + 1) - math.lgamma(last - equal + 1)
            if likely < 1.0 and ways + (equal - 1) * math.log(likely) < math.log(_CHANCE):
                raise ParameterError(
                    f"batch size = {size}: {equal} of the last {last} batches had it; Poisson samples do that with a "
                    f"probability below {_CHANCE:g}, so epsilon would not hold: {_ADVICE}"
                )


def _batch_size(optimizer: Any) -> int | None:
    """Of the gradients that the optimizer holds, or of their norms; None where it keeps neither for each record."""
    for parameter in getattr(optimizer, "params", ()):
        for kept in (getattr(parameter, "grad_sample", None), getattr(parameter, "_norm_sample", None)):
            if kept is not None:
                return sum(map(len, kept)) if isinstance(kept, list) else len(kept)
    return None


def watch(loader: Any, optimizer: Any, module: Any) -> None:
    """Let ``optimizer`` step once on each batch of ``loader``, before the next one; raises ParameterError before the weights change.

    Batches are counted as they are drawn, parts of a batch as BatchMemoryManager announces them. At each step one batch waits, and as
    many more as the loader's workers fetch ahead; in the end of a pass, when no more are drawn, at most those. What an earlier pass
    drew pays for nothing in a later one.
    """
    waiting, ended, announced = 0, False, False
    sampler, signal, pre_step = loader.batch_sampler, optimizer.signal_skip_step, optimizer.pre_step
    kind: type[Any] = type(sampler)

    def drawing(self: Any) -> Iterator[Any]:
        nonlocal waiting, ended, announced
        if optimizer._is_last_step_skipped:
            raise ParameterError(
                "data_loader: a pass begins where the last one was left inside a batch that BatchMemoryManager had split, whose "
                "gradients would be added to the next batch; leave a pass between batches, or call make_private again"
            )
        # Parts that workers fetched ahead of the end of the last pass are not going to come.
        optimizer._step_skip_queue.clear()
        waiting, ended = 0, False
        for batch in kind.__iter__(self):
            check_uniforms()
            waiting, announced = waiting + 1, False
            yield batch
        ended = True

    def announcing(do_skip: bool = True) -> None:
        nonlocal waiting, announced
        waiting, announced = waiting + announced, True
        signal(do_skip)

    def stepping(closure: Any = None) -> Any:
        nonlocal waiting
        ahead = loader.num_workers * (loader.prefetch_factor or 0)
        if waiting != ahead + 1 and not (ended and 1 <= waiting <= ahead):
            raise ParameterError(
                f"optimizer.step: {waiting} batches of the private loader wait for their step, must be {ahead + 1}. If less, this batch "
                f"was used before or came from another loader; if more, a batch was left out (empty ones are steps, too), so "
                f"epsilon would not hold: {_ADVICE}, one step for each batch"
            )
        check_norm(_plain(optimizer.max_grad_norm), _plain(getattr(module, "max_grad_norm", 0.0)))
        waiting -= 1
        return pre_step(closure)

    # A DataLoader does not let its sampler be replaced; a class of its own makes this one count.
    sampler.__class__ = type(kind.__name__, (kind,), {"__iter__": drawing, "__module__": kind.__module__})
    optimizer.signal_skip_step, optimizer.pre_step = announcing, stepping
