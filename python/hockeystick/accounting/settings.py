"""How a composition is accounted: the adjacency, the accuracy aimed at, and what the core may use for it."""

from __future__ import annotations

from dataclasses import dataclass

from .. import _core
from .._base.validation import choice, integer, real
from ..mechanisms.adjacency import ADJACENCIES, Directions, directions
from ..mechanisms.descriptions import Process

DEFAULT_ACCURACY = 1e-3
DEFAULT_MEMORY_LIMIT = 2**30

ENGINES = ("auto", "fft", "prv")


@dataclass(frozen=True)
class Settings:
    """What `account` takes beside a composition, checked."""

    adjacency: str = "add_or_remove"
    accuracy: float = DEFAULT_ACCURACY
    memory_limit: int = DEFAULT_MEMORY_LIMIT
    engine: str = "auto"

    def __post_init__(self) -> None:
        choice("adjacency", self.adjacency, ADJACENCIES)
        object.__setattr__(self, "accuracy", real("accuracy", self.accuracy, 1e-9, 1.0))
        object.__setattr__(self, "memory_limit", integer("memory_limit", self.memory_limit, 2**20))
        choice("engine", self.engine, ENGINES)

    @property
    def numerical(self) -> tuple[float, int, str]:
        """What the core takes."""
        return self.accuracy, self.memory_limit, self.engine

    def directions(self, process: Process) -> Directions:
        """The dominating pairs of ``process``."""
        return directions(process, self.adjacency)

    def profile(self, process: Process) -> _core.Profile:
        """The core's profile of ``process``, under these settings."""
        return _core.Profile(self.directions(process), *self.numerical)
