"""Opacus: the accountant behind ``PrivacyEngine(accountant="hockeystick")``.

Importing this module registers it. `PrivacyEngine` is Opacus's engine, less the ways to train with
a sampler that the accountant does not account for (docs/interop/interop.md, section 2).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

from .._base.exclusive import undivided
from .._base.lazy import needing
from .._base.validation import MAX_COUNT, ParameterError, instance, integer, plain, real
from ..accounting.accountant import Accountant, Answers, warn_of_forgotten
from ..accounting.calibration import calibrate_noise_multiplier
from ..accounting.profile import account
from ..accounting.settings import DEFAULT_ACCURACY
from ..mechanisms.descriptions import Gaussian, PoissonSampled, Process
from .opacus_batches import (
    BatchWarning,
    Watch,
    check_loader,
    check_noise,
    check_replicas,
    check_uniforms,
    drawn_rate,
    order_of,
    own_coins,
)
from .opacus_ghost import check_ghost
from .opacus_layers import RecordLosses
from .opacus_steps import ADAPTIVE, ClippingNorm, EqualSizes, check_frozen, check_seen, check_types

with needing("hockeystick.interop.opacus needs Opacus 1.6 or later", extra="opacus"):
    import opacus
    from opacus.accountants import IAccountant, register_accountant
    from opacus.utils.uniform_sampler import DistributedUniformWithReplacementSampler

__all__ = [
    "MECHANISM",
    "SOUND_OPTIONS",
    "BatchWarning",
    "HockeystickAccountant",
    "PrivacyEngine",
    "check_loader",
    "drawn_rate",
    "own_coins",
]

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
        instance("other", other, IAccountant, "an Opacus accountant")
        accountant = cls(adjacency)
        accountant.history = [(s, drawn_rate(q), steps) for s, q, steps in _checked_history(other.history)]
        return accountant

    @undivided
    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Record one optimizer step on a batch that holds each record with probability ``sample_rate``."""
        noise_multiplier = real("noise_multiplier", plain(noise_multiplier), 0.0)
        sample_rate = real("sample_rate", plain(sample_rate), 0.0, 1.0)
        last = self.history[-1:]
        if last and tuple(last[0][:2]) == (noise_multiplier, sample_rate):
            # In one assignment: an exception (Ctrl-C) may come before or after it, and must not find the entry gone.
            self.history[-1] = (noise_multiplier, sample_rate, last[0][2] + 1)
        else:
            self.history.append((noise_multiplier, sample_rate, 1))

    @property
    def process(self) -> Process:
        """Everything in ``history``, as a hockeystick description."""
        return Process(
            (PoissonSampled(Gaussian(noise_multiplier), sample_rate), steps)
            for noise_multiplier, sample_rate, steps in _checked_history(self.history)
        )

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
        than gradients are clipped to, for gradients or norms of 16 bits (`torch.autocast`), for sums beyond what ghost clipping can
        have made, and for batches that are nearly all of one size, which are no Poisson samples
        (``poisson_sampling=False``, or another loader than ``make_private`` returned). What it records is `drawn_rate`.
        """
        rate = drawn_rate(real("sample_rate", plain(sample_rate), 0.0, 1.0))
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
            check_frozen(optimizer)
            check_types(getattr(optimizer, "params", ()))
            if not getattr(optimizer, "_is_last_step_skipped", False):
                check_seen(optimizer, "summed_grad")
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
        """Replace the history by a saved one; raises ValueError and changes nothing if it is not valid.

        Warns where steps are lost by that, as where an engine goes back to an earlier checkpoint: what was seen of them counts.
        """
        before = self.history
        super().load_state_dict(state_dict)
        loaded, self.history = self.history, before
        adjacency = state_dict.get("adjacency", self.adjacency)
        if adjacency != self.adjacency:
            raise ParameterError(
                f"state_dict['adjacency'] = {adjacency!r}: must be {self.adjacency!r}, that of the accountant"
            )
        forgotten = self.process
        self.history = _checked_history(loaded)
        warn_of_forgotten(forgotten, self.process)


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
                real(f"history[{index}].noise_multiplier", plain(noise_multiplier), 0.0),
                real(f"history[{index}].sample_rate", plain(sample_rate), 0.0, 1.0),
                integer(f"history[{index}].steps", plain(steps)),
            )
        )
    return checked


SOUND_OPTIONS = frozenset(
    {"module", "optimizer", "criterion", "data_loader", "noise_multiplier", "max_grad_norm", "batch_first"}
    | {"loss_reduction", "clipping", "noise_generator", "grad_sample_mode", "wrap_model"}
)
"""What ``make_private`` may be given besides ``poisson_sampling=True``: with these, one record moves the sum by max_grad_norm at most."""


_MOST_RAISED = 16  # *speed*: how often noise is raised so that what the accountant says is within the target, too; by 0.7 % in all

_UNIFORM = (
    "NoneType",
    "SequentialSampler",
    "RandomSampler",
    "DistributedSampler",
    "UniformWithReplacementSampler",
    "DistributedUniformWithReplacementSampler",
)
"""Samplers that take all records alike, as the one does that replaces them."""


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

        The optimizer steps once on each batch of the loader that is returned, one after the other: ParameterError, and the
        weights stay as they are, where it does not; a warning where a whole pass is made without it. Records are drawn with a
        generator of their own, seeded by the operating system (`own_coins`), also where the loader brings one, which is warned of: of one
        stream with the noise, coins could be read off it. Unless there is a ``noise_generator``, noise has one of its own, too, which ``torch.manual_seed`` does not reach. ParameterError for trainable parameters of 16 bits, or complex ones, and for a ``noise_generator`` without a seed of its own. So it is for ``rand_on_empty=True``, whose made-up record takes the place of an
        empty batch, so that a real one moves the sum by twice max_grad_norm; for adaptive clipping; and for options that are not in
        `SOUND_OPTIONS`. Warns where a sampler of another kind is replaced by a uniform one.
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
            raise ParameterError(ADAPTIVE)
        for name in sorted(options.keys() - SOUND_OPTIONS):
            raise ParameterError(
                f"{name} = {options[name]!r}: must be left out; make_private is known to be sound with "
                f"{', '.join(sorted(SOUND_OPTIONS))}"
            )
        what, before = order_of(options.get("data_loader"))
        if before not in _UNIFORM:
            warnings.warn(
                f"data_loader.{what} is a {before}: Opacus draws from all records of the data set instead, each with the same probability, "
                "1 / len(data_loader), and that is what is accounted for",
                stacklevel=2,
            )
        module = options.get("module")
        check_types(
            each for each in getattr(module, "parameters", list)() if getattr(each, "requires_grad", True)
        )
        mode = options.get("grad_sample_mode", "hooks")
        check_ghost(module, mode)
        check_noise(options.get("noise_generator"))
        made = super().make_private(poisson_sampling=True, **options)
        sampler = made[-1].batch_sampler
        if isinstance(sampler, DistributedUniformWithReplacementSampler):
            check_replicas(made[-1].dataset)
        if not self.secure_mode:
            if sampler.generator is not None:
                warnings.warn(
                    "data_loader.generator is not what decides which records are drawn: coins must not be those of the noise, nor of another "
                    "replica, and come from a generator of their own instead, seeded by the operating system",
                    stacklevel=2,
                )
            own_coins(made[-1])
        if "ghost" in mode:
            made[2].__class__ = RecordLosses
        check_loader(made[-1])
        Watch(made[-1], made[1], made[0], self, mode)
        return made

    def make_private_with_epsilon(
        self, *, data_loader: Any, target_epsilon: float, target_delta: float, epochs: float, **options: Any
    ) -> Any:
        """As ``opacus.PrivacyEngine.make_private_with_epsilon``.

        The noise is the smallest (up to one part in a million) with which everything in the
        accountant's history plus ``epochs`` epochs are certified to stay within ``target_epsilon`` at
        ``target_delta``, as `get_epsilon` will say afterwards. Raises UnreachableError if the history alone exceeds that.
        """
        accountant = self.accountant
        if not isinstance(accountant, HockeystickAccountant):
            raise ParameterError(
                f"accountant = {accountant.mechanism()!r}: must be {MECHANISM!r} to find the noise"
            )
        batches = len(data_loader)
        steps = math.ceil(real("epochs", epochs, 0.0, MAX_COUNT / batches) * batches)
        # Opacus computes this twice, and rounding can lose a batch: then its rate is the larger one.
        rate = drawn_rate(1.0 / int(1.0 / (1.0 / batches)))
        before = accountant.process

        def run(sigma: float) -> Process:
            return before + PoissonSampled(Gaussian(sigma), rate) * steps

        noise = float(
            calibrate_noise_multiplier(run, target_epsilon, target_delta, adjacency=accountant.adjacency)
        )
        # It was certified with more accuracy than the accountant answers with, whose interval may end above the target.
        for doubled in range(_MOST_RAISED):
            said = account(run(noise), accountant.adjacency, accountant._accuracy).epsilon(target_delta)
            if said <= target_epsilon:
                break
            noise *= 1.0 + 2.0**doubled * 1e-7
        return self.make_private(data_loader=data_loader, noise_multiplier=noise, **options)


register_accountant(MECHANISM, HockeystickAccountant, force=True)
