"""What a plan is about: a matrix mechanism, or one sampled Gaussian that is repeated, behind the same questions.

docs/training/training.md says what is refused, and why.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
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
from ..montecarlo.bandmf_calibration import short_name
from ..sampling.attribution import AttributionGraph
from ..sampling.batches import BatchSampler
from ..sampling.laws import law_of

Mechanism: TypeAlias = "BandMF | Process"
Make: TypeAlias = Callable[[float], Composable]

_SAMPLED = (PoissonSampled, TruncatedPoissonSampled, WithoutReplacement, WithReplacement)


class Release(ABC):
    """A mechanism as a training run sees it."""

    strategy: Strategy
    sampling: Scheme | Step
    noise_multiplier: float
    is_analytic: bool

    @abstractmethod
    def check(self, dataset_size: int, graph: AttributionGraph | None) -> None:
        """Refuse what was not analysed: other data, one group of examples only, a user with more examples."""

    @abstractmethod
    def expected_batch_size(self, dataset_size: int, graph: AttributionGraph | None) -> float:
        """The mean number of examples in a batch."""

    @abstractmethod
    def batches(self, dataset_size: int, seed: Seed, graph: AttributionGraph | None) -> BatchSampler:
        """The batches of a run."""

    @abstractmethod
    def first_steps(self, steps: int) -> Process | None:
        """What dominates the first steps alone; None where it takes Monte Carlo samples."""

    @abstractmethod
    def sampling_to_dict(self) -> dict[str, Any]:
        """How batches are drawn, as JSON values."""

    @abstractmethod
    def to_parts(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """A dict of JSON values and the arrays that go with it; `mechanism_from_parts` is its inverse."""

    @abstractmethod
    def __str__(self) -> str: ...


class _Matrix(Release):
    def __init__(self, mechanism: BandMF) -> None:
        self._mechanism = mechanism
        self.strategy, self.sampling = mechanism.strategy, mechanism.scheme
        self.scheme, self.noise_multiplier = mechanism.scheme, mechanism.noise_multiplier
        self.is_analytic = mechanism.is_analytic

    def check(self, dataset_size: int, graph: AttributionGraph | None) -> None:
        self.scheme.check_data(dataset_size, graph)

    def expected_batch_size(self, dataset_size: int, graph: AttributionGraph | None) -> float:
        return self.scheme.expected_batch_size(dataset_size, graph)

    def batches(self, dataset_size: int, seed: Seed, graph: AttributionGraph | None) -> BatchSampler:
        return self.scheme.training_batches(dataset_size, seed, graph)

    def first_steps(self, steps: int) -> Process | None:
        if not self.is_analytic:
            return None
        scheme, strategy = self.scheme.first_steps(steps), self.strategy.first_steps(steps)
        return BandMF(strategy, scheme, self.noise_multiplier).as_process()

    def sampling_to_dict(self) -> dict[str, Any]:
        return self.scheme.to_dict()

    def to_parts(self) -> tuple[dict[str, Any], dict[str, Array]]:
        strategy, arrays = self.strategy.to_parts()
        scheme, sigma = self.scheme.to_dict(), self.noise_multiplier
        return {"type": "BandMF", "strategy": strategy, "scheme": scheme, "noise_multiplier": sigma}, arrays

    def __str__(self) -> str:
        return (
            f"BandMF with strategy {short_name(self.strategy)} and batches from {self.scheme!r}, "
            f"noise multiplier {self.noise_multiplier!r} (standard deviation of Z / clipping norm)"
        )


class _Repeated(Release):
    is_analytic = True

    def __init__(self, process: Process) -> None:
        if len(process) != 1 or not isinstance(process.items[0][0], _SAMPLED):
            names = ", ".join(kind.__name__ for kind in _SAMPLED)
            raise ParameterError(
                f"sampling: must give one repeated step of {names} (of Gaussian noise), not {process}"
            )
        step = process.items[0][0]
        if not isinstance(step.mechanism, Gaussian):
            raise ParameterError(f"sampling: the noise of {step!r} must be Gaussian")
        self._process, self.sampling = process, step
        self.strategy, self.noise_multiplier = Identity(process.steps), step.mechanism.noise_multiplier

    def check(self, dataset_size: int, graph: AttributionGraph | None) -> None:
        no_users(graph)
        if getattr(self.sampling, "pair", None) == "koskela2020":
            raise ParameterError(
                f"sampling: {self.sampling!r} is accounted with a pair that is not a guarantee"
            )
        same_size(self.sampling, dataset_size)

    def expected_batch_size(self, dataset_size: int, graph: AttributionGraph | None) -> float:
        # Truncated batches are smaller than what is drawn.
        drawn = law_of(self._process).expected_drawn(dataset_size)
        return float(getattr(self.sampling, "expected_batch_size", drawn))

    def batches(self, dataset_size: int, seed: Seed, graph: AttributionGraph | None) -> BatchSampler:
        return self._process.batches(dataset_size, seed)

    def first_steps(self, steps: int) -> Process | None:
        return Process([(step, steps) for step, _ in self._process])

    def sampling_to_dict(self) -> dict[str, Any]:
        return to_dict(self._process.items[0][0])

    def to_parts(self) -> tuple[dict[str, Any], dict[str, Array]]:
        return to_dict(self._process), {}

    def __str__(self) -> str:
        return f"Batches and noise of {self._process}"


def release_of(mechanism: Mechanism) -> Release:
    """The mechanism as a run sees it; ParameterError for one that no run can draw."""
    return _Matrix(mechanism) if isinstance(mechanism, BandMF) else _Repeated(mechanism)


def mechanism_from_parts(plain: Mapping[str, Any], arrays: Mapping[str, Array]) -> Mechanism:
    """The mechanism of which these are the parts; everything is validated again."""
    if plain["type"] != "BandMF":
        return from_dict(plain).as_process()
    return BandMF(
        Strategy.from_parts(plain["strategy"], arrays),
        Scheme.from_dict(plain["scheme"]),
        plain["noise_multiplier"],
    )


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
        given = release_of(mechanism).noise_multiplier
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


__all__ = ["Make", "Mechanism", "Release", "mechanism_from_parts", "mechanisms", "release_of"]
