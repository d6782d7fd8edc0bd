"""The one array type that the package computes with."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]


def dot(one: Array, two: Array) -> float:
    """Sum of products, added up in order: that of BLAS depends on the processor, and what is drawn may not."""
    return float(np.cumsum(one * two)[-1]) if len(one) else 0.0
