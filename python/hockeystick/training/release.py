"""What a plan is about: a matrix mechanism; one sampled Gaussian that is repeated is one too, of independent noise.

docs/training/training.md says what is refused, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from .._base.arrays import Array
from .._base.randomness import Seed
from .._base.validation import ParameterError, ParameterTypeError, integer
from ..matrix.bandmf import BandMF
from ..matrix.scheme import no_users, same_size
from ..matrix.schemes import Scheme
from ..matrix.strategies import BandedToeplitz, Identity, Strategy
from ..mechanisms.descriptions import (
    Composable,
    Gaussian,
    PoissonSampled,
    Process,
    Step,
    WithoutReplacement,
    WithReplacement,
    composition,
)
from ..mechanisms.serialise import from_dict, to_dict
from ..mechanisms.truncated import TruncatedPoissonSampled
from ..sampling.attribution import AttributionGraph
from ..sampling.batches import BatchSampler
from ..sampling.laws import Law, law_of

Mechanism: TypeAlias = "BandMF | Process"
Make: TypeAlias = Callable[[float], Composable]

_SAMPLED = (PoissonSampled, TruncatedPoissonSampled, WithoutReplacement, WithReplacement)


@dataclass(frozen=True)
class _RepeatedStep(Scheme):
    """The batches of a sampled mechanism that is repeated."""

    step: Step

    is_analytic = True

    @property
    def description(self) -> Step:
        return self.step

    def to_dict(self) -> dict[str, Any]:
        return to_dict(self.step)

    def largest_bands(self) -> int:
        return 1

    def composition(self, strategy: Strategy, noise_multiplier: float) -> Process:
        return self.step * self.steps

    def check_data(self, dataset_size: int, graph: AttributionGraph | None) -> None:
        no_users(graph)
        if getattr(self.step, "pair", None) == "koskela2020":
            raise ParameterError(f"sampling: {self.step!r} is accounted with a pair that is not a guarantee")
        same_size(self.step, dataset_size)

    def expected_batch_size(self, dataset_size: int, graph: AttributionGraph | None = None) -> float:
        # Truncated batches are smaller than what is drawn.
        drawn = super().expected_batch_size(dataset_size, graph)
        return float(getattr(self.step, "expected_batch_size", drawn))

    def training_batches(self, dataset_size: int, seed: Seed, graph: AttributionGraph | None) -> BatchSampler:
        return (self.step * self.steps).batches(dataset_size, seed)

    def _batch_law(self) -> Law:
        return law_of(self.step * self.steps)


def as_matrix(mechanism: Mechanism) -> BandMF:
    """The matrix mechanism that a run draws from; ParameterError for one that no run can draw."""
    if isinstance(mechanism, BandMF):
        return mechanism
    if len(mechanism) != 1 or not isinstance(mechanism.items[0][0], _SAMPLED):
        names = ", ".join(kind.__name__ for kind in _SAMPLED)
        raise ParameterError(
            f"sampling: must give one repeated step of {names} (of Gaussian noise), not {mechanism}"
        )
    ((step, steps),) = mechanism.items
    noise = getattr(step, "mechanism", None)
    if not isinstance(noise, Gaussian):
        raise ParameterError(f"sampling: the noise of {step!r} must be Gaussian")
    return BandMF(Identity(steps), _RepeatedStep(steps, step), noise.noise_multiplier)


def to_parts(mechanism: Mechanism) -> tuple[dict[str, Any], dict[str, Array]]:
    """A dict of JSON values and the arrays that go with it; `from_parts` is its inverse."""
    if not isinstance(mechanism, BandMF):
        return to_dict(mechanism), {}
    strategy, arrays = mechanism.strategy.to_parts()
    scheme, sigma = mechanism.scheme.to_dict(), mechanism.noise_multiplier
    return {"type": "BandMF", "strategy": strategy, "scheme": scheme, "noise_multiplier": sigma}, arrays


def from_parts(plain: Mapping[str, Any], arrays: Mapping[str, Array]) -> Mechanism:
    """The mechanism of which these are the parts; everything is validated again."""
    if plain["type"] != "BandMF":
        return from_dict(plain).as_process()
    strategy = Strategy.from_parts(plain["strategy"], arrays)
    return BandMF(strategy, Scheme.from_dict(plain["scheme"]), plain["noise_multiplier"])


def mechanisms(
    sampling: Scheme | Make, strategy: Strategy | int | None, dataset_size: int
) -> Callable[[float], Mechanism]:
    """The mechanism as a function of its noise multiplier."""
    if isinstance(sampling, Scheme):
        matrix = _strategy(strategy, sampling.steps)
        return lambda sigma: BandMF(matrix, sampling, sigma)
    if not callable(sampling):
        raise ParameterTypeError(
            f"sampling = {sampling!r}: must be a Scheme, or a function of the noise multiplier that returns a mechanism"
        )
    if strategy is not None:
        raise ParameterError("strategy: goes with a Scheme; a function returns the whole mechanism")

    def make(sigma: float) -> Mechanism:
        found = sampling(sigma)
        same_size(found, dataset_size)
        mechanism = found if isinstance(found, BandMF) else composition(found, "sampling(noise_multiplier)")
        given = as_matrix(mechanism).noise_multiplier
        if given != sigma:
            raise ParameterError(
                f"sampling({sigma!r}): has the noise multiplier {given!r}; it must be the argument"
            )
        return mechanism

    return make


def _strategy(strategy: Strategy | int | None, steps: int) -> Strategy:
    if strategy is None:
        return Identity(steps)
    if isinstance(strategy, Strategy):
        return strategy
    return BandedToeplitz.optimized(steps, integer("strategy", strategy, 1, steps))


__all__ = ["Make", "Mechanism", "as_matrix", "from_parts", "mechanisms", "to_parts"]
