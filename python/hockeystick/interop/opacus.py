"""Opacus: the accountant behind ``PrivacyEngine(accountant="hockeystick")``.

Importing this module registers it. `PrivacyEngine` is Opacus's engine, less the ways to train with
a sampler that the accountant does not account for.
"""

from __future__ import annotations

import math
import warnings
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
        """Take over the history of one of Opacus's accountants; both count what follows on their own."""
        if not isinstance(other, IAccountant):
            raise ParameterTypeError(f"other = {other!r}: must be an Opacus accountant")
        accountant = cls(adjacency)
        accountant.history = _checked_history(other.history)
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
        hold: for batches summed over several backward passes, for adaptive clipping, and for batches that are all of
        one size, which are no Poisson samples (``poisson_sampling=False``, or another loader than ``make_private`` returned).
        """
        rate = real("sample_rate", _plain(sample_rate), 0.0, 1.0)
        sizes = EqualSizes(rate)

        def hook(optimizer: Any) -> None:
            if hasattr(optimizer, "unclipped_num_std"):
                raise ParameterError(
                    "clipping = 'adaptive': must be 'flat' or 'per_layer'; the clipping bound follows the "
                    "fraction of unclipped gradients, which is divided by the true size of the batch and "
                    "so has no guarantee that could be accounted for"
                )
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
    ``poisson_sampling=False``, does not.
    """
    sampler = getattr(data_loader, "batch_sampler", None)
    if not isinstance(sampler, (UniformWithReplacementSampler, DistributedUniformWithReplacementSampler)):
        raise ParameterError(
            f"data_loader.batch_sampler = {sampler!r}: must be Opacus's Poisson sampler; train on the "
            "loader that make_private returned, with poisson_sampling=True"
        )


class PrivacyEngine(opacus.PrivacyEngine):
    """Opacus's ``PrivacyEngine`` that trains only what its accountant accounts for.

    ``poisson_sampling=False`` is refused, and the noise for a target epsilon is found by hockeystick:
    certified, for exactly the steps that will be run, with what was spent before counted in.
    """

    def __init__(self, *, accountant: str = MECHANISM, secure_mode: bool = False) -> None:
        super().__init__(accountant=accountant, secure_mode=secure_mode)

    def make_private(self, *, poisson_sampling: bool = True, **options: Any) -> Any:
        """As ``opacus.PrivacyEngine.make_private``; ``poisson_sampling`` must be True.

        The optimizer steps only on batches of the loader that is returned: ParameterError, and the weights stay as
        they are, where a step follows a batch of another one. Warns where a weighted sampler is replaced by a uniform one.
        """
        if not poisson_sampling:
            raise ParameterError(
                "poisson_sampling = False: must be True; epsilon is computed for Poisson samples, and "
                "batches cut from a shuffled dataset have a larger one"
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
        watch(made[-1].batch_sampler, made[1])
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
        rate = 1.0 / int(1.0 / (1.0 / batches))
        before = accountant.process
        found = calibrate_noise_multiplier(
            lambda sigma: before + PoissonSampled(Gaussian(sigma), rate) * steps,
            target_epsilon,
            target_delta,
            adjacency=accountant.adjacency,
        )
        return self.make_private(data_loader=data_loader, noise_multiplier=float(found), **options)


register_accountant(MECHANISM, HockeystickAccountant, force=True)

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
