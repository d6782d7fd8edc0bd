"""A user who owns several examples is what is protected (docs/mechanisms/users.md)."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Annotated

from .. import _core
from .._base.validation import ParameterTypeError, integer, narrowed
from ..sampling.laws import Law
from .core_pairs import Pairs, both, sampled
from .mixtures import MixtureOfGaussians
from .numeric import Gaussian
from .sampled import PoissonSampled, binomial_sizes
from .steps import Mechanism, Step, Words, base_pair, shift_of

MOST_EXAMPLES = 100_000
"""speed: with more, one batch in 1e300 that holds them all would be what the engines spend their time on."""

_ROUNDING = 1e-12
"""proof: more than the relative error of a binomial weight, here added to the larger groups (docs, section 3)."""


@dataclass(frozen=True)
class UserLevel(Step):
    """The step, where a user with at most ``examples_per_user`` examples is added, removed or replaced as a whole.

    ``mechanism`` is an unsampled mechanism or a `PoissonSampled` one, described for *one example* as ever: its noise is
    in units of what one example may contribute. Each example is sampled by itself, so that a batch
    holds Binomial(k, q) of the user's, k at most 100,000: Gaussian noise is accounted by the mixture of Gaussians with those sensitivities,
    any other by advanced joint convexity over the group's size. An upper bound for users with fewer
    examples too; docs/mechanisms/users.md proves it. Composes with everything else under every adjacency.

    >>> from hockeystick import Gaussian, PoissonSampled, account
    >>> step = UserLevel(PoissonSampled(Gaussian(2.0), 0.01), examples_per_user=4)
    >>> round(account(step * 1000, accuracy=1e-6).epsilon(delta=1e-5), 4)
    2.8934
    """

    mechanism: Step
    examples_per_user: Annotated[int, functools.partial(integer, low=1, high=MOST_EXAMPLES)]
    repeats = True

    def __post_init__(self) -> None:
        inner = self.mechanism
        alone = inner.mechanism if isinstance(inner, PoissonSampled) else inner
        if not (isinstance(alone, Mechanism) and alone.may_be_sampled(self)):
            raise ParameterTypeError(
                f"mechanism = {inner!r}: must be an unsampled mechanism (Gaussian, Laplace, ...; not a pair that says nothing "
                "of groups) or PoissonSampled of one"
            )
        super().__post_init__()

    def check_adjacency(self, adjacency: str) -> None:
        self.mechanism.check_adjacency(adjacency)

    def _batch_law_of(self, steps: int) -> Law | None:
        return self.mechanism._batch_law_of(steps)

    def simplified(self) -> Step | None:
        inner = self.mechanism.simplified()
        return inner if inner is None or self.examples_per_user == 1 else replace(self, mechanism=inner)

    def pairs(self, adjacency: str) -> Pairs:
        """docs/mechanisms/users.md, sections 1 and 2."""
        inner, k, shift = self.mechanism, self.examples_per_user, shift_of(adjacency)
        if isinstance(inner, Mechanism):
            return both(base_pair(inner, k * shift, k))
        inner = narrowed(inner, PoissonSampled)
        base, law = narrowed(inner.mechanism, Mechanism), sensitivities(k, inner.sampling_probability)
        if isinstance(base, Gaussian):
            sizes = tuple(map(float, law))
            return MixtureOfGaussians(base.noise_multiplier, sizes, tuple(law.values())).pairs(adjacency)
        seen = min(1.0, math.fsum(weight for size, weight in law.items() if size))
        groups = [(base_pair(base, size * shift, size), weight) for size, weight in law.items() if size]
        weights = [weight / seen for _, weight in groups]
        weights[-1] += max(0.0, 1.0 - math.fsum(weights))  # no gap, which the core would put at loss +inf
        pair = _core.mixture_pair([pair for pair, _ in groups], weights) if len(groups) > 1 else groups[0][0]
        if adjacency == "replace_one":
            return both(_core.sampled_pair(pair, seen, "replace_one"))
        return sampled(both(pair), seen)

    def unsampled_mu(self, shift: float) -> float | None:
        return self.mechanism.unsampled_mu(shift * self.examples_per_user)

    @property
    def participation(self) -> float:
        return min(1.0, self.mechanism.participation * self.examples_per_user)

    def if_seen(self) -> Step:
        return replace(self, mechanism=self.mechanism.if_seen())

    def words(self, adjacency: str) -> Words:
        inner = self.mechanism.words(adjacency)
        reference = "docs/mechanisms/users.md (users with several examples)"
        return inner._replace(reference=reference, examples_per_user=self.examples_per_user)


def sensitivities(examples: int, probability: float) -> dict[int, float]:
    """{size: weight}: how many of a user's examples a batch holds, Binomial(examples, probability), rounded upwards.

    Sizes are merged into larger ones and weights moved to larger ones only (docs/mechanisms/users.md, section 3).
    """
    if probability == 1.0:
        return {examples: 1.0}
    seen = -math.expm1(examples * math.log1p(-probability))
    log_odds = math.log(probability) - math.log1p(-probability)
    sizes, weights = binomial_sizes(examples, examples * probability, log_odds)
    law = {0: 1.0}
    law.update(
        (size, seen * weight * (1.0 + _ROUNDING))
        for size, weight in zip(sizes, weights.tolist(), strict=True)
    )
    excess = math.fsum(law.values()) - 1.0
    for size, weight in law.items():  # what was added is taken from the smallest groups
        law[size], excess = max(0.0, weight - excess), max(0.0, excess - weight)
    return {size: weight for size, weight in law.items() if weight > 0.0}
