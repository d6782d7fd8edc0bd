"""How a composition is accounted: the adjacency, the accuracy aimed at, and what the core may use for it."""

# Annotations are objects here, not strings that the first question would evaluate.
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from .. import _core
from .._base.validation import ParameterError, check_fields, choice, integer, real
from ..mechanisms.adjacency import ADJACENCIES, Directions, directions
from ..mechanisms.descriptions import Process

DEFAULT_ACCURACY = 1e-3  # *speed*
DEFAULT_MEMORY_LIMIT = 2**30  # *speed*: bytes

ENGINES = ("auto", "fft", "prv")


@dataclass(frozen=True)
class Settings:
    """What `account` takes beside a composition, checked."""

    adjacency: Annotated[str, partial(choice, options=ADJACENCIES)] = "add_or_remove"
    accuracy: Annotated[float, partial(real, low=1e-9, high=1.0)] = DEFAULT_ACCURACY
    memory_limit: Annotated[int, partial(integer, low=2**20)] = DEFAULT_MEMORY_LIMIT
    engine: Annotated[str, partial(choice, options=ENGINES)] = "auto"

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def numerical(self) -> tuple[float, int, str]:
        return self.accuracy, self.memory_limit, self.engine

    def directions(self, process: Process) -> Directions:
        return directions(process, self.adjacency)

    def profile(self, process: Process) -> _core.Profile:
        return self.core(self.directions(process))

    def core(self, pairs: Directions) -> _core.Profile:
        """The core's profile of dominating pairs; raises ParameterError where they have no lattice, and the engine needs one."""
        try:
            return _core.Profile(pairs, *self.numerical)
        except ValueError as error:
            if self.engine == "auto":
                raise
            raise ParameterError(
                f"engine = {self.engine!r}: must be 'auto' for random allocations ({error})"
            ) from None
