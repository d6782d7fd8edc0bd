"""The compiled core. Functions release the GIL; their errors are ValueError."""

from collections.abc import Sequence
from typing import TypedDict

from numpy import float64
from numpy.typing import ArrayLike, NDArray

__version__: str

class _BuildConfig(TypedDict):
    version: str
    compiler: str
    build_type: str
    fft: str
    openmp: bool

def build_config() -> _BuildConfig: ...
def max_threads() -> int: ...
def set_threads(threads: int) -> None: ...

class Pair:
    """An immutable pair (P, Q) seen through its privacy loss L = ln P/Q, in one direction."""

    @property
    def max_loss(self) -> float: ...
    @property
    def infinity_mass(self) -> float: ...
    def above(
        self, x: ArrayLike
    ) -> tuple[NDArray[float64], NDArray[float64], NDArray[float64], NDArray[float64]]:
        """Arrays (f, g, exponent, error): f e^exponent = P(L > x) - e^x Q(L > x), g e^exponent = e^x Q(L > x)."""

    def below(
        self, x: ArrayLike
    ) -> tuple[NDArray[float64], NDArray[float64], NDArray[float64], NDArray[float64]]:
        """Arrays (f, g, exponent, error): f e^exponent = e^x Q(L <= x) - P(L <= x), g e^exponent = e^x Q(L <= x)."""

def gaussian_pair(mu: float) -> Pair: ...
def laplace_pair(epsilon: float) -> Pair: ...
def discrete_pair(
    losses: ArrayLike,
    p: ArrayLike,
    q: ArrayLike,
    p_infinity: float = 0.0,
    spacing: float = 0.0,
) -> Pair: ...
def sampled_pair(pair: Pair, sampling_probability: float, mode: str) -> Pair: ...
def mixture_pair(pairs: Sequence[Pair], weights: Sequence[float]) -> Pair: ...
def location_mixture_pair(
    noise: str,
    scale: float,
    p_shifts: Sequence[float],
    p_weights: Sequence[float],
    q_shifts: Sequence[float],
    q_weights: Sequence[float],
) -> Pair: ...

class Answer:
    @property
    def lower(self) -> float: ...
    @property
    def upper(self) -> float: ...
    @property
    def engine(self) -> str: ...
    @property
    def direction(self) -> int: ...
    @property
    def terms(self) -> dict[str, float]: ...
    @property
    def step(self) -> float: ...
    @property
    def size(self) -> int: ...

class Profile:
    """A composition of pairs, the worst over its directions."""

    def __init__(
        self,
        directions: Sequence[Sequence[tuple[Pair, int]]],
        accuracy: float = 1e-3,
        memory_limit: int = 1 << 30,
    ) -> None: ...
    def epsilon_bounds(self, delta: float) -> Answer: ...
    def delta_bounds(self, epsilon: float) -> Answer: ...
