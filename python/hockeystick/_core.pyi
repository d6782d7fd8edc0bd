"""The compiled core. Long computations release the GIL; errors are ValueError. Where no argument has a default, all go by position."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypedDict

from numpy import float64, int32, int64, uint8, uint16, uint32, uint64
from numpy.typing import ArrayLike, NDArray

_Array: TypeAlias = NDArray[float64]

# pybind11's own metaclass; it has no importable name.
class _Type(type): ...

class _Made(metaclass=_Type):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

__version__: str
__commit__: str

class _BuildConfig(TypedDict):
    version: str
    commit: str
    compiler: str
    build_type: str
    fft: str
    openmp: bool
    instruction_set: str

def build_config() -> _BuildConfig: ...
def begin_standard_arithmetic() -> int | None:
    """Set IEEE arithmetic for this thread; the mode before, or None if it was that already."""

def arithmetic_mode() -> int: ...
def set_arithmetic_mode(mode: int) -> None: ...
def divide_by_toeplitz(coefficients: ArrayLike, values: ArrayLike) -> _Array:
    """The first coefficients of values(x) / C(x), as many as there are values."""

def optimal_toeplitz(kept: ArrayLike, response: ArrayLike, gram: ArrayLike) -> _Array:
    """Coefficients in unit norm that minimise (sum kept c^2) * error of response(x) / C(x), the same on every machine."""

def max_threads() -> int: ...
def set_threads(threads: int) -> None: ...

class Pair(_Made):
    """An immutable pair (P, Q) seen through its privacy loss L = ln P/Q, in one direction."""

    @property
    def max_loss(self) -> float:
        """Supremum of the finite losses, rounded up; -inf if there are none."""

    @property
    def infinity_mass(self) -> float:
        """P(L = +inf)."""

    @property
    def spacing(self) -> float:
        """The number every loss is a multiple of, or 0."""

    @property
    def lower(self) -> Pair | None:
        """Where this pair is more than the mechanism, a pair that is less."""

    def above(self, x: ArrayLike) -> tuple[_Array, _Array, _Array, _Array]:
        """(f, g, exponent, error): f e^exponent = P(x < L < inf) - e^x Q(L > x), g e^exponent = e^x Q(L > x)."""

    def below(self, x: ArrayLike) -> tuple[_Array, _Array, _Array, _Array]:
        """(f, g, exponent, error): f e^exponent = e^x Q(L <= x) - P(L <= x), g e^exponent = e^x Q(L <= x)."""

def gaussian_pair(mu: float) -> Pair: ...
def laplace_pair(epsilon: float) -> Pair: ...
def discrete_pair(
    losses: ArrayLike,
    p: ArrayLike,
    q: ArrayLike,
    p_infinity: float = 0.0,
    *,
    spacing: float = 0.0,
    q_infinity: float | None = None,
    loss_error: float = 2.0,
    total_is_rounded: bool = False,
) -> Pair: ...
def random_allocation_pair(mu: float, steps: float, mode: str, told_mu: float = ...) -> Pair: ...
def sampled_pair(pair: Pair, sampling_probability: float, mode: str) -> Pair: ...
def zero_out_pair(mu: float, sampling_probability: float, mode: str) -> Pair: ...
def mixture_pair(pairs: Sequence[Pair], weights: Sequence[float]) -> Pair: ...
def bracket_pair(lower: Pair, upper: Pair) -> Pair: ...
def location_mixture_pair(
    noise: str,
    scale: float,
    p_shifts: Sequence[float],
    p_weights: Sequence[float],
    q_shifts: Sequence[float],
    q_weights: Sequence[float],
) -> Pair: ...
def renyi_divergence(pair: Pair, order: float) -> tuple[float, float]:
    """(lower, upper) of D_order(P || Q), for order in (1, 2^53] or +inf."""

class Answer(_Made):
    """A certified interval and the errors it includes, in units of delta."""

    @property
    def lower(self) -> float: ...
    @property
    def upper(self) -> float: ...
    @property
    def engine(self) -> str: ...
    @property
    def direction(self) -> int: ...
    @property
    def step(self) -> float: ...
    @property
    def size(self) -> int: ...
    @property
    def terms(self) -> dict[str, float]: ...

class Profile(metaclass=_Type):
    """A composition of pairs, the worst over its directions."""

    def __init__(
        self,
        directions: Sequence[Sequence[tuple[Pair, int]]],
        accuracy: float = 0.001,
        memory_limit: int = 1073741824,
        engine: str = "auto",
    ) -> None: ...
    def epsilon_bounds(self, delta: float) -> Answer: ...
    def delta_bounds(self, epsilon: float) -> Answer: ...
    def delta_curve(self, epsilon: ArrayLike) -> tuple[_Array, _Array]:
        """(lower, upper) for many epsilon, best in order: neighbours share work."""
    def rough_curve(self, epsilon: ArrayLike, negligible: float = 1e-15) -> tuple[_Array, _Array]:
        """The same in less time, and wider where that takes many lattices; a negligible delta may be known from above alone."""
    @property
    def quick(self) -> bool:
        """Whether a rough curve takes next to no time, however small the delta that is not negligible."""

def grid(
    quantity: str,
    inquiries: Sequence[tuple[Sequence[Sequence[tuple[Pair, int]]], ArrayLike]],
    accuracy: float = 0.001,
    memory_limit: int = 1073741824,
    engine: str = "auto",
    progress: Callable[[int, int], object] | None = None,
) -> tuple[_Array, _Array, list[str]]:
    """(lower, upper, engine) of the epsilon, or delta, of each (directions, points) at each of its points."""

class Coupling(metaclass=_Type):
    """delta~(eps + radius) - failure <= delta(eps) <= delta~(eps - radius) + failure, delta~ being that of the
    losses rounded to multiples of `step` with their means kept (Gopi, Lee & Wutschitz 2021)."""

    def __init__(self, composition: Sequence[tuple[Pair, int]], step: float, failure: float) -> None: ...
    @property
    def radius(self) -> float: ...
    def epsilon_bounds(self, delta: float) -> tuple[float, float]:
        """(lower, upper) for eps(delta): sharp for delta well above `failure`."""

    def delta_bounds(self, epsilon: float) -> tuple[float, float]:
        """(lower, upper) for delta(epsilon)."""

def check_attribution(offsets: NDArray[int64], users: NDArray[int32], num_users: int) -> None: ...
def group_edges(
    examples: NDArray[int64], users: NDArray[int32], num_examples: int, num_users: int
) -> tuple[NDArray[int64], NDArray[int32]]: ...
def bound_contributions(
    offsets: NDArray[int64],
    users: NDArray[int32],
    num_users: int,
    order: NDArray[int64],
    max_examples_per_user: int,
    duplicates: bool = False,
    max_neighbourhood: int | None = None,
) -> NDArray[int64]: ...
def neighbourhood_sizes(
    offsets: NDArray[int64], users: NDArray[int32], num_users: int, limit: int
) -> NDArray[int64]: ...

class CorrelatedNoise(metaclass=_Type):
    def __init__(
        self,
        columns: ArrayLike,
        bands: int,
        steps: int,
        form: str,
        key: bytes,
        start: int,
        stop: int,
        single: bool,
    ) -> None: ...
    def fill(self, out: NDArray[Any], scale: float, add: bool) -> None:
        """Write scale * the next rows, or add them."""

    def skip(self, count: int) -> None: ...
    def history(self) -> _Array: ...
    def restore(self, step: int, history: ArrayLike) -> None: ...
    @property
    def step(self) -> int: ...
    @property
    def state_bytes(self) -> int: ...

def coin_thresholds(probability: float, weight: int, most: int) -> tuple[int, list[bytes]]:
    """Block size, and Pr[at least 1, 2, ... heads in a block] as 256 bits; weight > 0: of w p / (1 + w p)."""

class BatchSampler(_Made):
    @staticmethod
    def poisson(
        key: bytes, population: int, steps: int, max_batch: int | None, probability: float, groups: int
    ) -> BatchSampler: ...
    @staticmethod
    def fixed(
        key: bytes, population: int, steps: int, max_batch: int | None, size: int, replacement: bool
    ) -> BatchSampler: ...
    @staticmethod
    def balls_in_bins(
        key: bytes, population: int, steps: int, max_batch: int | None, bins: int, redrawn: bool
    ) -> BatchSampler: ...
    @staticmethod
    def min_sep(
        key: bytes,
        population: int,
        steps: int,
        max_batch: int | None,
        separation: int,
        probability: float,
        warm_start: bool,
    ) -> BatchSampler: ...
    @staticmethod
    def multi_attribution(
        key: bytes,
        steps: int,
        graph: tuple[NDArray[int64], NDArray[int32], int],
        separation: int,
        probability: float,
        by_participation: bool,
        ahead: int,
    ) -> BatchSampler: ...
    def next(self) -> NDArray[int64]: ...
    def seek(self, step: int, most: int) -> bool: ...
    def sampled(self) -> NDArray[int64]:
        """What the last step sampled before it was cut down."""

    @property
    def step(self) -> int: ...
    @property
    def state_bytes(self) -> int: ...

class Scheme(_Made):
    """A sampling scheme: which iterations an example takes part in."""

def b_min_sep(separation: int, probability: float, warm_start: bool) -> Scheme: ...
def balls_in_bins(bins: int) -> Scheme: ...
def multi_attribution(separation: int, probability: float, examples: int, exact: bool) -> Scheme: ...
def truncated_b_min_sep(
    separation: int, probability: float, warm_start: bool, dataset_size: int, max_batch: int
) -> Scheme: ...
def independent_b_min_sep(separation: int, probability: float, warm_start: bool, examples: int) -> Scheme: ...
def joint_examples(scheme: Scheme, steps: int) -> int:
    """How many of a user's examples the likelihood of ``independent_b_min_sep`` is exact for."""

class MatrixMechanism(metaclass=_Type):
    """C x + noise, by the columns of C (as `Strategy` has them), the scheme of x and the noise's standard deviation."""

    def __init__(self, columns: ArrayLike, steps: int, scheme: Scheme, noise_multiplier: float) -> None: ...

def empirical_points() -> _Array:
    """The points that `spread_values` spreads onto: 0, 16 per octave from 2^-40 on, 1."""

def spread_values(values: ArrayLike) -> tuple[NDArray[uint64], int]:
    """Masses at the points, in units of 2^-32 of a value, and the number of values outside [0, 1], left out."""

class BlockSampler(_Made):
    """Samples of a matrix mechanism, in blocks of ``block_size``."""

    @property
    def block_size(self) -> int:
        """Samples per block; a function of the description alone."""

    def samples(self, seed: int, first_block: int, blocks: int) -> _Array:
        """A row for each sample of these blocks, one after the other."""

    def draws(
        self, seed: int, first_block: int, blocks: int
    ) -> tuple[_Array, _Array, _Array | None, NDArray[int32]]:
        """Coefficients of the mean, outputs / noise multiplier, public counts or None, components, of the same samples."""

class LossSampler(BlockSampler):
    """The privacy loss of a matrix mechanism in one direction."""

    def __init__(self, mechanism: MatrixMechanism, direction: str) -> None: ...
    def losses(self, seed: int, first_block: int, blocks: int) -> _Array:
        """The losses of these blocks, one after the other."""

    def delta_sums(
        self, seed: int, epsilons: ArrayLike, first_block: int, blocks: int
    ) -> tuple[_Array, _Array]:
        """Sums over each block of (1 - e^{epsilon - loss})_+ and of its square, shape (epsilons, blocks)."""

    def evaluate(self, outputs: ArrayLike, public_counts: ArrayLike) -> _Array:
        """The losses of given outputs."""

class TiltedSampler(BlockSampler):
    """Samples of direction "remove" from a mixture of S_a and T, weighted: L, ln R/Q, and ln of each component's density over Q."""

    def __init__(
        self,
        mechanism: MatrixMechanism,
        components: ArrayLike,
        most_others: int = ...,
        direction: str = ...,
        like: TiltedSampler | None = None,
    ) -> None: ...
    def log_normaliser(self, component: int) -> float:
        """ln M_a, or for T ln sum_x p_x theta^|x|."""

    def log_bound(self, epsilon: float) -> float:
        """ln of what no weighted value exceeds."""

    def values(
        self, seed: int, epsilons: ArrayLike, log_scale: float, first_block: int, blocks: int
    ) -> _Array:
        """Weighted values over e^log_scale, shape (epsilons, samples)."""

class HalfSpaceSampler(BlockSampler):
    """Samples of direction "add" from a half space, weighted.

    Rows of <direction, y>, ln P/Q, ln (Q/R over the probability), ln of each shift's density over Q's.
    """

    def __init__(
        self,
        mechanism: MatrixMechanism,
        direction: ArrayLike,
        threshold: float,
        shifts: ArrayLike,
    ) -> None: ...
    @property
    def log_probability(self) -> float:
        """ln of the probability of the half space under Q."""

    def values(
        self, seed: int, epsilons: ArrayLike, floor: float, log_scale: float, first_block: int, blocks: int
    ) -> _Array:
        """Weighted values over e^log_scale, shape (epsilons, samples); ln P/Q is at least ``floor``."""

def tangent(mechanism: MatrixMechanism, outputs: ArrayLike) -> tuple[float, _Array]:
    """ln(P/Q - Pr[x = 0]) at outputs / noise multiplier, and the expectation of x given that x is not 0."""

def log_normal_below(threshold: float) -> float:
    """ln Pr[N(0, 1) <= threshold]."""

def log_moments_of_cuts(mechanism: MatrixMechanism, most: int) -> _Array:
    """ln of bounds on E_R[(P_r/R)^2] over all counts r with at most 0, 1, ..., ``most`` truncated rounds."""

def has_moment_law(mechanism: MatrixMechanism, order: int) -> bool:
    """Whether `TiltedSampler` has S of this order."""

def first_invalid(values: _Array) -> int:
    """Index of the first value that is not >= 0, or the number of values."""

def gaussian_epsilons(mu: _Array, delta: float) -> _Array:
    """Upper bounds on the epsilon at delta of N(mu, 1) against N(0, 1)."""

def charge(
    values: _Array,
    spent: _Array,
    budget: float,
    after: _Array,
    active: NDArray[uint8],
    cost: tuple[float, float, float, bool],
) -> int:
    """Where spent + factor (min(value, clip) / divisor)^2, rounded up, is within the budget: active. Their number.

    cost: clip, divisor, factor, and whether there is a square.
    """

def checksum(array: NDArray[Any], first: int = 0) -> int:
    """The sum modulo 2^64 of mixed(first + i, word i) over the 64-bit words of contiguous memory."""

def checksum_at(places: NDArray[int64], values: _Array) -> int:
    """What values at these places add to the checksum of an array of doubles."""

def find_cells(values: _Array, edges: _Array, clip: float, divisor: float) -> NDArray[uint16]:
    """0 for the value 0, else 1 + the first c with min(value, clip) / divisor <= edges[c]."""

def count_cells(cells: NDArray[uint16], times: int, counts: NDArray[uint16] | NDArray[uint32]) -> None:
    """counts[i, cells[i] - 1] += times where cells[i] > 0."""

class IndividualProfiles(metaclass=_Type):
    """Many compositions of the same few pairs, in one direction."""

    def __init__(self, pairs: Sequence[Pair | None]) -> None: ...
    def log_moments(self, s: float) -> _Array:
        """For each pair an upper bound of ln E_P[e^{sL}]."""

    def epsilon(
        self,
        counts: NDArray[uint16] | NDArray[uint32],
        delta: float,
        floor: _Array | None = None,
        lower: bool = True,
    ) -> tuple[_Array, _Array, NDArray[uint8]]:
        """(lower, upper, path) of the epsilon of each row of counts.

        floor: upper bounds need not be improved below it; lower: whether the lower ones are wanted.
        """

    def delta(
        self,
        counts: NDArray[uint16] | NDArray[uint32],
        epsilons: _Array,
        floor: _Array | None = None,
        lower: bool = True,
    ) -> tuple[_Array, _Array, NDArray[uint8]]:
        """(lower, upper, path) of the delta of each row of counts, at an epsilon of its own; see epsilon."""
