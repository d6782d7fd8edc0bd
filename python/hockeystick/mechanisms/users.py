"""A user who owns several examples is what is protected (docs/mechanisms/users.md)."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, TypeAlias

from .._base.validation import ParameterTypeError, integer, narrowed, shown
from ..sampling.laws import Law
from .core_pairs import NOTHING, Pairs, both
from .mixtures import MixtureOfGaussians
from .numeric import Gaussian
from .sampled import PoissonSampled, between, binomial_cells, exact, group_pairs, law_of
from .steps import Mechanism, Step, Words, base_pair, shift_of

MOST_EXAMPLES = 100_000
"""speed: with more, one batch in 1e300 that holds them all would be what the engines spend their time on."""

Examples: TypeAlias = Annotated[int, functools.partial(integer, low=1, high=MOST_EXAMPLES)]


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
    examples_per_user: Examples
    repeats = True

    def __post_init__(self) -> None:
        inner = self.mechanism
        alone = inner.mechanism if isinstance(inner, PoissonSampled) else inner
        if not (isinstance(alone, Mechanism) and alone.may_be_sampled(self)):
            raise ParameterTypeError(
                f"mechanism = {shown(inner)}: must be an unsampled mechanism (Gaussian, Laplace, ...; not a pair that says nothing "
                "of groups) or PoissonSampled of one; of a DP-SGD run, dp_sgd(..., examples_per_user=)"
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
        base = narrowed(inner.mechanism, Mechanism)
        cells = binomial_cells(k, Fraction(inner.sampling_probability))
        if not isinstance(base, Gaussian):
            return group_pairs(base, cells, adjacency)
        upper = _gaussian_pairs(base.noise_multiplier, law_of(cells, above=True), adjacency)
        if exact(cells):
            return upper
        return between(_gaussian_pairs(base.noise_multiplier, law_of(cells, above=False), adjacency), upper)

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


def _gaussian_pairs(sigma: float, law: dict[int, float], adjacency: str) -> Pairs:
    if not any(law):
        return both(NOTHING)
    return MixtureOfGaussians(sigma, tuple(map(float, law)), tuple(law.values())).pairs(adjacency)
