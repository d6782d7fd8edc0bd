"""Stand-in: Opacus without per-sample gradients, clipping and noise."""

import copy
from typing import Any

from .accountants import create_accountant
from .utils.uniform_sampler import UniformWithReplacementSampler


class DPOptimizer:
    """Calls the hook before each step that is not skipped, as Opacus's does."""

    expected_batch_size: int | None = None

    def __init__(self, optimizer: Any, noise_multiplier: float, max_grad_norm: float) -> None:
        self.original_optimizer = optimizer
        self.noise_multiplier = noise_multiplier
        self.max_grad_norm = max_grad_norm
        self.step_hook: Any = None
        self.accumulated_iterations = 1
        self.steps_done = 0
        self._step_skip_queue: list[bool] = []
        self._is_last_step_skipped = False

    def attach_step_hook(self, fn: Any) -> None:
        self.step_hook = fn

    def zero_grad(self) -> None:
        self.original_optimizer.zero_grad()

    def signal_skip_step(self, do_skip: bool = True) -> None:
        self._step_skip_queue.append(do_skip)

    def _check_skip_next_step(self, pop_next: bool = True) -> bool:
        skip = bool(self._step_skip_queue) and self._step_skip_queue[0]
        if pop_next:
            del self._step_skip_queue[:1]
        return skip

    def pre_step(self, closure: Any = None) -> bool:
        self._is_last_step_skipped = self._check_skip_next_step()
        if not self._is_last_step_skipped and self.step_hook:
            self.step_hook(self)
        return not self._is_last_step_skipped

    def step(self) -> None:
        if self.pre_step():
            self.steps_done += 1
            self.original_optimizer.step()


class PrivacyEngine:
    def __init__(self, *, accountant: str = "prv", secure_mode: bool = False) -> None:
        self.accountant = create_accountant(mechanism=accountant)
        self.secure_mode = secure_mode

    def make_private(
        self,
        *,
        module: Any,
        optimizer: Any,
        data_loader: Any,
        noise_multiplier: float,
        max_grad_norm: float,
        poisson_sampling: bool = True,
        rand_on_empty: bool = False,
    ) -> Any:
        if poisson_sampling:
            sampler = UniformWithReplacementSampler(
                num_samples=len(data_loader.dataset), sample_rate=1 / len(data_loader)
            )
            data_loader = copy.copy(data_loader)
            data_loader.batch_sampler = sampler
        private = DPOptimizer(optimizer, noise_multiplier, max_grad_norm)
        private.attach_step_hook(self.accountant.get_optimizer_hook_fn(sample_rate=1 / len(data_loader)))
        return module, private, data_loader

    def make_private_with_epsilon(
        self,
        *,
        module: Any,
        optimizer: Any,
        data_loader: Any,
        target_epsilon: float,
        target_delta: float,
        epochs: int,
        max_grad_norm: float,
    ) -> Any:
        raise NotImplementedError("hockeystick's engine finds the noise itself")

    def get_epsilon(self, delta: float) -> float:
        return float(self.accountant.get_epsilon(delta))
