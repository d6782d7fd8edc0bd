"""Random choices: between mechanisms, where the choice is released, and of a sensitivity, where it is not."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, TypeAlias

from .. import _core
from .._base.types import Numbers
from .._base.validation import NonNegative, NonNegatives, ParameterError, double, entries, instance, vector
from .core_pairs import HUGE, NOTHING, Pairs, both, gaussian, location_mixture, mixture, revealing, sampled
from .given import check_lengths, check_total
from .numeric import Gaussian
from .steps import A_STEP, Step, Words, set_fields

_Weights: TypeAlias = Annotated[Numbers, functools.partial(vector, low=0.0, high=1.0)]


_SHOWN = 1e4
"""*Speed*: where the least of several shifts exceeds the noise so many times it is seen; engines are slow with more."""

_ROUNDED = 4 * 2.0**-53
"""*Proof*: each quotient and their sum are rounded once, so that no more is left of a sum."""


def _normalised(name: str, weights: Numbers) -> Numbers:
    """Numbers that sum to 1, made to do so to the last digits; what it returns, it returns unchanged."""
    total = math.fsum(weights)
    check_total(name, total)
    return weights if abs(total - 1.0) <= _ROUNDED else tuple(weight / total for weight in weights)


@dataclass(frozen=True)
class Mixture(Step):
    """One of several steps, chosen at random independently of the data; the choice is released.

    The privacy loss distribution is the mixture of theirs: delta(epsilon) = sum_i weights[i]
    delta_i(epsilon) for one use. ``mechanisms`` is a sequence of steps, sampled or not (of a composition, ``mechanisms.Group(composition, 1)``
    makes one), and ``weights`` one probability for each; they must sum to 1. Composes with everything else, under
    every adjacency that its parts allow. Of a `RandomAllocation` the noise alone counts, every step seen, which is many times too much:
    ``mechanisms.Group(allocation, 1)`` is near. Where all parts are unsampled, it may be sampled itself:
    the choice is then made before the batch is drawn.

    >>> from hockeystick import Gaussian, account
    >>> noisy, noisier = account(Gaussian(1.0)), account(Gaussian(5.0))
    >>> both = account(Mixture([Gaussian(1.0), Gaussian(5.0)], [0.25, 0.75])).delta(1.0)
    >>> abs(both - (0.25 * noisy.delta(1.0) + 0.75 * noisier.delta(1.0))) < 1e-9
    True
    """

    mechanisms: Sequence[Step]
    weights: _Weights

    def __post_init__(self) -> None:
        super().__post_init__()
        mechanisms = entries("mechanisms", self.mechanisms, "mechanisms")
        for i, mechanism in enumerate(mechanisms):
            instance(f"mechanisms[{i}]", mechanism, Step, A_STEP)
            if (uses := mechanism.as_process().steps) != 1:
                raise ParameterError(
                    f"mechanisms[{i}] = {mechanism!r}: must be one step, and this is accounted as a composition of {uses}; "
                    "mechanisms.Group(mechanism, 1) makes one step of any composition"
                )
        check_lengths("mechanisms", mechanisms, "weights", self.weights)
        set_fields(self, mechanisms=mechanisms, weights=_normalised("weights", self.weights))

    def is_unsampled(self) -> bool:
        return all(mechanism.is_unsampled() for mechanism in self.mechanisms)

    def may_be_sampled(self, scheme: Step) -> bool:
        return all(mechanism.may_be_sampled(scheme) for mechanism in self.mechanisms)

    def check_adjacency(self, adjacency: str) -> None:
        for part in self.mechanisms:
            part.check_adjacency(adjacency)

    def alternatives(self) -> list[Step]:
        return [leaf for part in self.mechanisms for leaf in part.alternatives()]

    def sampled_by(self, scheme: Step) -> Step:
        parts = [replace(scheme, mechanism=part) for part in self.mechanisms]  # type: ignore[type-var]
        return Mixture(tuple(parts), self.weights)

    def simplified(self) -> Step | None:
        chosen = zip(self.mechanisms, self.weights, strict=True)
        return self if any(part.simplified() for part, weight in chosen if weight > 0.0) else None

    def pairs(self, adjacency: str) -> Pairs:
        """A mixture of those of its parts, one of which may release nothing."""
        parts = [part.simplified() for part in self.mechanisms]
        weights = list(self.weights)
        # Rounding must not leave a gap, which the core would put at loss +inf.
        weights[weights.index(max(weights))] += max(0.0, 1.0 - math.fsum(weights))
        return mixture([part.pairs(adjacency) if part else both(NOTHING) for part in parts], weights)


@dataclass(frozen=True)
class MixtureOfGaussians(Step):
    """Gaussian noise on a sum in which a record counts with a random, unreleased sensitivity.

    With probability ``probabilities[i]`` the record contributes a vector of L2 norm at most
    ``sensitivities[i]`` >= 0, independently of the other records and of the noise N(0,
    noise_multiplier^2 I). "remove": sum_i p_i N(s_i, sigma^2) against N(0, sigma^2); "add" and
    "zero_out" likewise; "replace_one": against sum_i p_i N(-s_i, sigma^2). No vectors of any
    dimension do worse (Ganesh 2025, Lemma 2.4; proof in docs/mechanisms/truncated.md). Unlike in `Mixture`,
    the output does not say which i it was.

    Poisson sampling is the special case of the sensitivities 0 and 1:

    >>> from hockeystick import Gaussian, PoissonSampled, account
    >>> one = account(MixtureOfGaussians(1.0, [0.0, 1.0], [0.9, 0.1]) * 10).epsilon(1e-5)
    >>> abs(one - account(PoissonSampled(Gaussian(1.0), 0.1) * 10).epsilon(1e-5)) < 1e-6
    True
    """

    noise_multiplier: NonNegative
    sensitivities: NonNegatives
    probabilities: _Weights

    def __post_init__(self) -> None:
        super().__post_init__()
        check_lengths("sensitivities", self.sensitivities, "probabilities", self.probabilities)
        set_fields(self, probabilities=_normalised("probabilities", self.probabilities))

    @property
    def largest(self) -> float:
        """The largest sensitivity that occurs."""
        return float(max(s for s, p in zip(self.sensitivities, self.probabilities, strict=True) if p > 0.0))

    def may_be_sampled(self, scheme: Step) -> bool:
        return scheme.independent

    def sampled_by(self, scheme: Step) -> Step:
        """Whether a record is in the batch is one more chance that it contributes nothing (docs/mechanisms/pairs.md, "Sampling again")."""
        q = scheme.participation
        seen = [double(Fraction(q) * Fraction(p), math.inf) for p in self.probabilities]
        return MixtureOfGaussians(self.noise_multiplier, (0.0, *self.sensitivities), (1.0 - q, *seen))

    def simplified(self) -> Step | None:
        return self if self.largest > 0.0 else None

    def pairs(self, adjacency: str) -> Pairs:
        """Ganesh 2025, Lemma 2.4."""
        sigma = self.noise_multiplier
        law: dict[float, float] = {}
        for shift, weight in zip(self.sensitivities, self.probabilities, strict=True):
            if weight > 0.0:
                law[shift] = law.get(shift, 0.0) + weight
        shifts = [shift for shift in law if shift > 0.0]
        shown = len(shifts) > 1 and min(shifts) > _SHOWN * sigma
        if sigma * HUGE > max(law) and not shown:
            return location_mixture(sigma, law, law if adjacency == "replace_one" else {0.0: 1.0})
        # Whether the record counts at all is all that hides it; with any noise, at least that behind as much noise or more.
        counts, revealed = min(1.0, math.fsum(law[shift] for shift in shifts)), gaussian(math.inf)
        mu = min(_SHOWN, min(shifts) / sigma) if sigma > 0.0 else math.inf
        if adjacency == "replace_one":
            upper, surely = _core.sampled_pair(revealed, counts, "replace_one"), counts * (1.0 - 2.0**-52)
            if sigma == 0.0:
                return both(upper)
            seen = {0.0: 1.0 - surely, mu: surely}
            return both(_core.bracket_pair(location_mixture(1.0, seen, seen).remove, upper))
        if sigma > 0.0:
            revealed = revealing(_core.gaussian_pair(mu), mu)
        return sampled(both(revealed), counts)

    def unsampled_mu(self, shift: float) -> float | None:
        return shift * self.largest / self.noise_multiplier if self.noise_multiplier > 0.0 else None

    def words(self, adjacency: str) -> Words:
        chosen = f"a random sensitivity, one of {len(self.sensitivities)}, that is not released"
        return Words(Gaussian.noise_convention, chosen, "Ganesh 2025, Lemma 2.4 (mixtures of Gaussians)")
