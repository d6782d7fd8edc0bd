"""How large a batch must be allowed to become: calibration of the truncation, and what it used to cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy  # its parts are loaded when they are used

from .._base.types import Array
from .._base.validation import ParameterTypeError, instance, integer, real
from ..mechanisms.descriptions import Composable, Gaussian, PoissonSampled, composition
from ..mechanisms.truncated import TruncatedPoissonSampled
from .calibration import CalibratedFloat, CalibratedInt, calibrate, calibrate_noise_multiplier, function
from .profile import PrivacyProfile, account
from .settings import DEFAULT_ACCURACY, DEFAULT_MEMORY_LIMIT


def calibrate_max_batch_size(
    make: Callable[[int], Composable],
    epsilon: float,
    delta: float,
    *,
    adjacency: str = "add_or_remove",
    limits: tuple[int, int] | None = None,
    memory_limit: int = DEFAULT_MEMORY_LIMIT,
) -> CalibratedInt:
    """Return the smallest maximum batch size, not below the expected batch, that keeps within the budget.

    ``make(max_batch_size)`` returns everything that is released. ``limits`` may be left out if that
    holds one kind of `TruncatedPoissonSampled` step: then they are (ceil(n p), n). Below n p, truncation
    is the rule, the batch has nearly a fixed size, and epsilon may fall again with B: give ``limits`` to
    look there. Guarantee and errors are those of `calibrate`: the result keeps within the budget, and
    one less is shown to exceed it (``certificate.tight``) or lies outside the limits.

    >>> from hockeystick import TruncatedPoissonSampled
    >>> size = calibrate_max_batch_size(
    ...     lambda b: TruncatedPoissonSampled(1.0, 100_000, 0.01, b) * 1000, epsilon=2.2, delta=1e-6
    ... )
    >>> size, size.certificate.exceeding
    (1139, 1138)
    """
    start: int | None = None
    if limits is None:
        parts = [step for step, _ in composition(function(make)(1))]
        steps = [step for step in parts if isinstance(step, TruncatedPoissonSampled)]
        if len({replace(step, noise_multiplier=1.0) for step in steps}) != 1:
            raise ParameterTypeError(
                f"limits: must be given, unless make(1) has one kind of TruncatedPoissonSampled step; it has {len(steps)} such steps"
            )
        step = steps[0]
        mean = step.dataset_size * step.sampling_probability
        low = min(step.dataset_size, max(1, math.ceil(mean * (1.0 - 1e-12))))  # n p is rounded
        limits = (low, step.dataset_size)
        deviation = math.sqrt(mean * (1.0 - step.sampling_probability))
        # Where the union bound over a thousand steps would spend the whole delta.
        reach = -float(scipy.special.ndtri(min(0.5, max(1e-300, 1e-3 * real("delta", delta, 0.0, 1.0)))))
        start = min(step.dataset_size, low + math.ceil(reach * deviation))
    return calibrate(
        make,
        epsilon,
        delta,
        increasing=False,
        limits=limits,
        integer=True,
        start=start,
        parameter="max_batch_size",
        adjacency=adjacency,
        memory_limit=memory_limit,
    )


@dataclass(frozen=True)
class BatchPlan:
    """What `plan_truncated_batches` found.

    ``noise_multiplier`` carries its certificate. ``expected_batch_size`` is E[min(Binomial(n, p), B)],
    ``wasted`` the share of the B places of a batch that are padding on average, and ``noise`` =
    noise_multiplier / expected_batch_size the standard deviation of the noise on the mean gradient,
    in clipping norms: what was minimised. These three are floating-point values, not bounds.
    """

    step: TruncatedPoissonSampled
    steps: int
    noise_multiplier: CalibratedFloat
    expected_batch_size: float
    wasted: float
    noise: float

    @property
    def process(self) -> Composable:
        """Everything that is released."""
        return self.step * self.steps


def plan_truncated_batches(
    dataset_size: int,
    steps: int,
    compute_budget: int,
    epsilon: float,
    delta: float,
    *,
    adjacency: str = "add_or_remove",
    tolerance: float = 1e-3,
) -> BatchPlan:
    """Return the sampling probability, maximum batch size and noise with the best signal for a compute budget.

    A padded batch costs B gradients whatever is in it, so ``compute_budget`` (gradients, padding
    included) over ``steps`` noisy updates pays for B = floor(compute_budget / steps), at most
    ``dataset_size``. What is left to choose is p: a small one wastes places on padding, a large one
    truncates often, which costs noise. Minimised is noise_multiplier(p) / E[min(Binomial(n, p), B)],
    with the noise multiplier calibrated to (``epsilon``, ``delta``) for each p that is looked at.

    Guarantee: the returned step, used ``steps`` times, keeps within the budget (``tolerance`` as in
    `calibrate_noise_multiplier`). That no other p is better is not proven: the search, over 40 standard
    deviations of the batch size on a grid that is refined three times, assumes one minimum.
    Raises UnreachableError if no noise up to 1e15 keeps the budget (delta = 0, say).

    >>> plan = plan_truncated_batches(100_000, 1000, compute_budget=1_100_000, epsilon=2.0, delta=1e-6)
    >>> plan.step.max_batch_size, 0.005 < plan.step.sampling_probability < 0.011
    (1100, True)
    >>> account(plan.process).epsilon(1e-6) <= 2.0
    True
    """
    n, count = integer("dataset_size", dataset_size, 1), integer("steps", steps, 1)
    budget = integer("compute_budget", compute_budget, count)
    most = min(n, budget // count)
    plans: dict[float, BatchPlan] = {}

    def look(p: float) -> float:
        """The noise at one p."""
        if p not in plans:
            base = TruncatedPoissonSampled(1.0, n, p, most)
            # Less noise than Poisson sampling is never enough: a close start saves time.
            plain = calibrate_noise_multiplier(
                lambda s: PoissonSampled(Gaussian(s), p) * count,
                epsilon,
                delta,
                adjacency=adjacency,
                tolerance=0.01,
            )
            sigma = calibrate(
                lambda s: replace(base, noise_multiplier=s) * count,
                epsilon,
                delta,
                increasing=False,
                limits=(0.01, 1e15),
                start=plain,
                parameter="noise_multiplier",
                adjacency=adjacency,
                tolerance=tolerance,
            )
            expected = base.expected_batch_size
            step = replace(base, noise_multiplier=float(sigma))
            plans[p] = BatchPlan(step, count, sigma, expected, 1.0 - expected / most, sigma / expected)
        return plans[p].noise

    share = most / n
    # p = B/n would fill the batch on average; its spread is about sqrt(B) (1 - B/n).
    spread = math.sqrt(most * (1.0 - share)) + 1.0
    low, high = share * max(0.05, 1.0 - 12.0 * spread / most), min(1.0, share * (1.0 + 6.0 * spread / most))
    for _ in range(3):
        grid = [low + (high - low) * i / 8 for i in range(9)]
        best = min(range(9), key=lambda i: look(grid[i]))
        low, high = grid[max(0, best - 1)], grid[min(8, best + 1)]
    return plans[min(plans, key=look)]


@dataclass(frozen=True)
class UnionBound:
    """The older analysis of truncation: delta_Poisson(epsilon) + e^epsilon eta (Chua et al. 2024).

    eta is the number of ``steps`` times the probability that the other records alone fill a batch. A
    guarantee as well, and never better than accounting for ``step`` itself: here to compare with.

    >>> bound = UnionBound(TruncatedPoissonSampled(1.0, 100_000, 0.01, 1200), steps=1000)
    >>> account(bound.step * 1000).epsilon(1e-6) < bound.epsilon(1e-6)
    True
    """

    step: TruncatedPoissonSampled
    steps: int
    adjacency: str = "add_or_remove"

    def __post_init__(self) -> None:
        instance("step", self.step, TruncatedPoissonSampled, "a TruncatedPoissonSampled step")
        object.__setattr__(self, "steps", integer("steps", self.steps))
        self._poisson()

    def _poisson(self) -> PrivacyProfile:
        poisson = PoissonSampled(self.step.mechanism, self.step.sampling_probability)
        return account(poisson * self.steps, self.adjacency, DEFAULT_ACCURACY)

    @property
    def eta(self) -> float:
        """Upper bound on the probability that any batch is truncated."""
        return min(1.0, self.steps * self.step.truncation.full_high * (1.0 + 1e-15))

    def delta(self, epsilon: float) -> float:
        """The bound at ``epsilon`` >= 0, at most 1."""
        return float(self._curve(self._poisson(), np.array([real("epsilon", epsilon, 0.0)]))[0])

    def _curve(self, poisson: PrivacyProfile, epsilon: Array) -> Array:
        _, delta = poisson.delta_curve(epsilon)
        if self.eta == 0.0:
            return delta
        with np.errstate(over="ignore"):
            # e^epsilon may overflow where its product with eta does not.
            root = np.exp(0.5 * epsilon)
            return np.minimum(1.0, (delta + root * self.eta * root) * (1.0 + 2e-15))

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon at which the bound is at most ``delta`` in (0, 1); inf if there is none.

        The bound is convex in e^epsilon: it falls to its minimum, and then rises.
        """
        delta = real("delta", delta, 0.0, 1.0, open_low=True, open_high=True)
        poisson = self._poisson()
        if self.eta == 0.0:
            return poisson.epsilon(delta)
        if not self.eta < delta:
            return math.inf
        if self.delta(0.0) <= delta:
            return 0.0
        low, high, fits = 0.0, math.log(delta) - math.log(self.eta), False
        for _ in range(6):  # speed: 2^-36 of where the search began
            epsilon = np.linspace(low, high, 65)
            bound = self._curve(poisson, epsilon)
            fits = bool((bound <= delta).any())
            # Towards the minimum, until something fits.
            best = int(np.argmax(bound <= delta) if fits else np.argmin(bound))
            low, high = epsilon[max(best - 1, 0)], epsilon[best if fits else min(best + 1, 64)]
        return float(high) if fits else math.inf
