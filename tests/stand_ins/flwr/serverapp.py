"""Stand-in: the types of Flower's accounting protocol."""

from dataclasses import dataclass
from enum import Enum


class NeighboringRelation(str, Enum):
    ADD_OR_REMOVE_ONE = "add-or-remove-one"
    REPLACE_ONE = "replace-one"


class SamplingMethod(str, Enum):
    POISSON = "poisson"
    WITHOUT_REPLACEMENT = "without-replacement"
    NO_AMPLIFICATION = "no-amplification"


@dataclass(frozen=True)
class PrivacyConfig:
    target_delta: float
    population_size: int
    neighboring_relation: NeighboringRelation
    sampling_method: SamplingMethod
    max_epsilon: float | None = None


@dataclass(frozen=True)
class GaussianPrivacyEvent:
    noise_multiplier: float
    sample_size: int
    population_size: int

    def __post_init__(self) -> None:
        if not self.noise_multiplier > 0 or not 0 < self.sample_size <= self.population_size:
            raise ValueError(f"not a valid event: {self}")


@dataclass(frozen=True)
class PrivacySpent:
    epsilon: float
    delta: float
    num_releases: int
    accounting_method: str
    optimal_order: float | None = None
