"""Thousands of Poisson-sampled Gaussian configurations in one call, for planning and for pictures.

One function for each of the two questions, as a profile has one method for each, so that what is asked
cannot be left open. Arguments broadcast as NumPy's do, and every answer is the one `account` gives.

>>> import numpy as np
>>> noise, q = np.array([0.8, 1.0, 1.2])[:, None], np.array([0.01, 0.02])
>>> grid = grid_epsilon(noise, q, steps=1000, delta=1e-5)
>>> grid.shape, bool((grid.lower <= grid.upper).all())
((3, 2), True)
>>> import hockeystick as hs
>>> profile = hs.account(hs.PoissonSampled(hs.Gaussian(0.8), 0.02) * 1000)
>>> profile.epsilon_bounds(delta=1e-5) == (grid.lower[0, 1], grid.upper[0, 1])
True
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import _core
from .._base.progress import shown
from .._base.types import Array, Progress
from .._base.validation import ParameterError, integers, reals
from ..mechanisms.adjacency import Directions
from ..mechanisms.descriptions import Gaussian, PoissonSampled
from .profile import account
from .settings import DEFAULT_ACCURACY, DEFAULT_MEMORY_LIMIT, Settings

MAX_CELLS = 2**24
"""*Speed*: most configurations of one grid: beyond, a broadcast is more likely a mistake than a wish."""


@dataclass(frozen=True, eq=False, repr=False)
class Grid:
    """Certified answers, one for each configuration; made by `grid_epsilon` and `grid_delta`.

    ``quantity`` is "epsilon" or "delta": what ``lower`` and ``upper`` bound. ``inputs`` holds the
    arguments by name, broadcast to the same shape; ``engine`` says how each answer was found
    ("exact" where nothing had to be computed). All arrays are read-only.
    """

    quantity: str
    inputs: Mapping[str, NDArray[Any]]
    lower: Array
    upper: Array
    engine: NDArray[np.str_]
    adjacency: str
    accuracy: float

    def __post_init__(self) -> None:
        for array in (*self.inputs.values(), self.lower, self.upper, self.engine):
            array.flags.writeable = False
        object.__setattr__(self, "inputs", MappingProxyType(self.inputs))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple({**vars(self), "inputs": dict(self.inputs)}.values())

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that the arguments broadcast to."""
        return self.upper.shape

    def __repr__(self) -> str:
        return f"Grid({self.quantity}, shape={self.shape}, adjacency={self.adjacency!r}, accuracy={self.accuracy:g})"


def grid_epsilon(
    noise_multiplier: ArrayLike,
    sampling_probability: ArrayLike,
    steps: ArrayLike,
    delta: ArrayLike,
    adjacency: str = "add_or_remove",
    accuracy: float = DEFAULT_ACCURACY,
    memory_limit: int = DEFAULT_MEMORY_LIMIT,
    engine: str = "auto",
    progress: Progress | None = None,
) -> Grid:
    """Bounds on the epsilon of each PoissonSampled(Gaussian(noise_multiplier), sampling_probability) * steps.

    The first four arguments broadcast; all are checked before any work. The numbers are the ones
    of `account` with the same ``adjacency``, ``accuracy``, ``memory_limit`` and ``engine``, bit
    for bit, on any number of threads; ``memory_limit`` holds for the whole grid. ``progress`` is
    called now and then with the number of configurations done and that of all to compute. Ctrl-C
    ends the work between two of them.

    >>> float(grid_epsilon(1.0, [0.0, 1.0], steps=4, delta=1e-5).upper[0])
    0.0
    >>> grid_epsilon(0.0, 0.5, steps=[0, 1], delta=1e-5).upper.tolist()
    [0.0, inf]
    >>> grid_epsilon([1.0, -1.0], 0.01, steps=1000, delta=1e-5)
    Traceback (most recent call last):
    ...
    hockeystick._base.validation.ParameterError: noise_multiplier[1] = -1.0: must be a number in [0, inf)
    """
    inputs = _broadcast(noise_multiplier, sampling_probability, steps, delta=reals("delta", delta, 0.0, 1.0))
    return _grid("epsilon", inputs, Settings(adjacency, accuracy, memory_limit, engine), progress)


def grid_delta(
    noise_multiplier: ArrayLike,
    sampling_probability: ArrayLike,
    steps: ArrayLike,
    epsilon: ArrayLike,
    adjacency: str = "add_or_remove",
    accuracy: float = DEFAULT_ACCURACY,
    memory_limit: int = DEFAULT_MEMORY_LIMIT,
    engine: str = "auto",
    progress: Progress | None = None,
) -> Grid:
    """Bounds on the delta at ``epsilon`` (real or infinite) of each configuration; else as `grid_epsilon`.

    >>> grid = grid_delta(2.0, 0.01, steps=[10, 100, 1000], epsilon=0.5)
    >>> bool((np.diff(grid.upper) > 0).all())
    True
    """
    inputs = _broadcast(
        noise_multiplier, sampling_probability, steps, epsilon=reals("epsilon", epsilon, allow_inf=True)
    )
    return _grid("delta", inputs, Settings(adjacency, accuracy, memory_limit, engine), progress)


def _broadcast(
    noise_multiplier: ArrayLike, sampling_probability: ArrayLike, steps: ArrayLike, **point: NDArray[Any]
) -> dict[str, NDArray[Any]]:
    given = {
        "noise_multiplier": reals("noise_multiplier", noise_multiplier, 0.0),
        "sampling_probability": reals("sampling_probability", sampling_probability, 0.0, 1.0),
        "steps": integers("steps", steps),
        **point,
    }
    shapes = ", ".join(f"{name} {array.shape}" for name, array in given.items())
    try:
        shape = np.broadcast_shapes(*(array.shape for array in given.values()))
    except ValueError:
        raise ParameterError(f"shapes {shapes}: must broadcast to one") from None
    if np.prod(shape, dtype=np.float64) > MAX_CELLS:
        raise ParameterError(f"shapes {shapes}: broadcast to {shape}, more than {MAX_CELLS} configurations")
    return {name: np.broadcast_to(array, shape) for name, array in given.items()}


def _grid(
    quantity: str, inputs: dict[str, NDArray[Any]], settings: Settings, progress: Progress | None
) -> Grid:
    shape = next(iter(inputs.values())).shape
    size = int(np.prod(shape))
    lower, upper = np.empty(size), np.empty(size)
    engines = np.full(size, "exact", dtype="U11")

    asked: list[tuple[Directions, Array]] = []
    cells: list[int] = []
    for composition, members, points in _compositions(inputs):
        profile = account(composition, **vars(settings))
        open_points = []
        for cell, point in zip(members, points, strict=True):
            known = profile._known(quantity, point)
            if known is None:
                cells.append(cell)
                open_points.append(point)
            else:
                lower[cell], upper[cell] = known.bounds
        if open_points:
            asked.append((profile._directions, np.array(open_points)))
    with shown("grid", "configurations", progress) as show:
        low, high, how = _core.grid(quantity, asked, *settings.numerical, show)
    # As in PrivacyProfile: what is below zero, or a delta above one, is nothing but round-off.
    lower[cells] = np.maximum(low, 0.0)
    upper[cells] = np.clip(high, 0.0, 1.0 if quantity == "delta" else np.inf)
    engines[cells] = how

    bounds = lower.reshape(shape), upper.reshape(shape)
    return Grid(quantity, inputs, *bounds, engines.reshape(shape), settings.adjacency, settings.accuracy)


def _compositions(inputs: dict[str, NDArray[Any]]) -> Iterator[tuple[Any, list[int], list[float]]]:
    """Each distinct composition with the cells it belongs to, and the points it is asked at there.

    One composition answers many points. Those of equal noise follow one another.
    """
    columns = [array.ravel() for array in inputs.values()]
    if not columns[0].size:
        return
    order = np.lexsort(columns[::-1])
    noise, probability, steps, points = (column[order] for column in columns)
    new = np.ones(order.size, dtype=bool)
    new[1:] = np.diff(noise) != 0
    for column in (probability, steps):
        new[1:] |= np.diff(column) != 0
    starts = np.flatnonzero(new)
    ends = np.append(starts[1:], order.size)
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        step = PoissonSampled(Gaussian(float(noise[start])), float(probability[start]))
        asked = points[start:end] + 0.0  # -0.0 is 0.0
        yield step * int(steps[start]), order[start:end].tolist(), asked.tolist()
