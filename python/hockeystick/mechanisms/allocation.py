"""Random allocation: every record takes part in one step of an epoch, chosen uniformly (docs/mechanisms/allocation.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .. import _core
from .._base.validation import NonNegative, ParameterError, Size, integer
from ..sampling.laws import MAX_STEPS, Law
from .core_pairs import HUGE, NOTHING, Pairs, both, gaussian, revealing
from .numeric import Gaussian
from .steps import Items, Step, Words

_LEAST_MU, _LEAST_NOISE, _LEAST_DEVIATION = 1e-6, 0.2, 1e-8
"""*Speed*: outside, transforms have no digits left, or too many nodes: an upper bound is accounted instead."""


@dataclass(frozen=True)
class RandomAllocation(Step):
    """One epoch of ``steps`` Gaussian sums in which each record takes part in one step, chosen uniformly.

    Balls-in-bins sampling, redrawn every epoch: ``RandomAllocation(sigma, steps) * epochs``. With C_t the sum of the
    records that chose step t, each of norm at most 1, the outputs are C_t + N(0, sigma^2 I), t = 1..steps, and
        P = (1/steps) sum_t N(e_t, sigma^2 I)   against   Q = N(0, sigma^2 I)
    dominates in direction remove, (Q, P) in direction add; exact under add, remove, add_or_remove and zero_out
    (docs/mechanisms/allocation.md, "The pair"). Not accounted under replace_one.

    ``participations`` = k: each record takes part in k steps, either one of each k-th of the epoch, or k distinct
    ones of all. It is accounted as k allocations to steps // k steps each: exact for the former where
    k divides ``steps``, else an upper bound, as for the latter (same page, "Several participations"; Feldman and Shenfeld 2025).
    Training plans draw what is accounted: k blocks of steps // k.

    ``noise_multiplier`` >= 0 is sigma / (largest norm of a record's contribution). ``steps`` >= 1, 1 <=
    ``participations`` <= steps. Both bounds of epsilon and delta are certified.

    >>> import hockeystick as hs
    >>> epochs = hs.RandomAllocation(noise_multiplier=1.0, steps=100) * 10
    >>> bounds = hs.account(epochs).epsilon_bounds(delta=1e-5)
    >>> print(f"{bounds.lower:.6f} {bounds.upper:.6f}")
    1.701498 1.701498
    """

    noise_multiplier: NonNegative
    steps: Size
    participations: Size = 1
    noise_convention = "noise multiplier = standard deviation / L2 sensitivity of the sum when one record is added or removed"
    has_closed_form = False

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("steps", self.steps, 1, MAX_STEPS)
        integer("participations", self.participations, 1, self.steps)

    def parts(self) -> Items:
        """One allocation for each participation: whatever follows is of a single one."""
        block = RandomAllocation(self.noise_multiplier, self.steps // self.participations)
        return ((block, self.participations),)

    def _check_single(self) -> None:
        if self.participations != 1:
            raise ParameterError(
                f"participations = {self.participations}: must be 1 for one pair of distributions; as_process() is a composition of others"
            )

    def check_adjacency(self, adjacency: str) -> None:
        if adjacency == "replace_one":
            raise ParameterError(
                f"adjacency = {adjacency!r}: must be 'add', 'remove', 'add_or_remove' or 'zero_out' for {self!r}; no "
                "dominating pair is known for a replaced record"
            )

    def simplified(self) -> Step | None:
        """An epoch of one step is that step."""
        self._check_single()
        return Gaussian(self.noise_multiplier) if self.steps == 1 else self

    def pairs(self, adjacency: str) -> Pairs:
        """Exact, but for noise so large or so small that no digits are left: there from above alone."""
        self._check_single()
        sigma = self.noise_multiplier
        if sigma < _LEAST_NOISE:
            # Whoever knows the step sees the noise alone.
            upper = gaussian(1.0 / sigma) if sigma > 0.0 else revealing(_core.gaussian_pair(HUGE), math.inf)
            return both(_core.bracket_pair(NOTHING, upper))
        mu = max(1.0 / sigma, _LEAST_MU, _LEAST_DEVIATION * math.sqrt(self.steps))
        pairs = [
            _core.random_allocation_pair(mu, self.steps, mode, 1.0 / sigma) for mode in ("remove", "add")
        ]
        return Pairs(*pairs if mu == 1.0 / sigma else (_core.bracket_pair(NOTHING, pair) for pair in pairs))

    @property
    def mechanism(self) -> Gaussian:
        """The noise of one step."""
        return Gaussian(self.noise_multiplier)

    def unsampled_mu(self, shift: float) -> float | None:
        """That of who is told the step."""
        self._check_single()
        return self.mechanism.unsampled_mu(shift)

    @property
    def releases(self) -> int:
        """As many as there are steps."""
        return self.steps

    def _batch_law_of(self, steps: int) -> Law:
        self._check_single()
        return Law("random_allocation", self.steps * steps, {"bins": self.steps})

    def words(self, adjacency: str) -> Words:
        chosen = "one" if self.participations == 1 else self.participations
        return Words(
            self.noise_convention,
            f"in every epoch each record in {chosen} of its {self.steps} steps, chosen uniformly by a draw of its own",
            "docs/mechanisms/allocation.md (random allocation)",
        )
