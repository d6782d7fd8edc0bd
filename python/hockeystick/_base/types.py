"""Types by the names that many files use."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    # Other files take them from here.
    from typing_extensions import Self as Self  # noqa: PLC0414
    from typing_extensions import Unpack as Unpack  # noqa: PLC0414
else:
    Self = Unpack = Any

AnyPath: TypeAlias = str | os.PathLike[str]

Progress: TypeAlias = Callable[[int, int], object]
"""Called with what is done and with all there is to do."""

Numbers: TypeAlias = Sequence[float] | NDArray[Any]
"""What is taken for a sequence of numbers: NumPy's arrays are no sequences to type checkers. Descriptions keep a tuple of it."""

Array: TypeAlias = NDArray[np.float64]
"""The one array type that the package computes with."""


def dot(one: Array, two: Array) -> float:
    """Sum of products, added up in order: that of BLAS depends on the processor, and what is drawn may not."""
    return float(np.cumsum(one * two)[-1]) if len(one) else 0.0
