"""The delta curve of what is released beside a sampled mechanism, bounded between nodes (docs/montecarlo/estimates.md)."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from .._base.types import Array
from .._base.validation import ParameterTypeError
from ..accounting.envelope import LAST_NODE, Envelope
from ..accounting.profile import account
from ..mechanisms.descriptions import (
    ApproximateDP,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    PoissonSampled,
    Process,
    PureDP,
    Skellam,
    Step,
    UserLevel,
)

_ACCURACY, _ERROR, _END, _MOST_NODES = 1e-4, 3e-3, 1e-13, 1000
"""How near to the curve its bounds are to come, and where it is left (*speed*)."""
_SAME_UNDER_ZERO_OUT: tuple[type[Step], ...] = (
    Gaussian,
    Laplace,
    DiscreteLaplace,
    DiscreteGaussian,
    Skellam,
    PureDP,
    ApproximateDP,
)
"""Mechanisms whose pair under zero-out is that of one record more or less (*proof*: of others both directions are taken)."""


class CurveBeside(Envelope):
    """Bounds on a delta curve between nodes, asked at what the losses of samples leave of an epsilon."""

    log_mass = 0.0
    """ln of what the values have been divided by, to be at most 1."""

    def around(self, points: Sequence[float] | Array, losses: Array) -> Array:
        """An upper bound at points[0] - L and a lower one at points[1] - L, for each loss L: two rows."""
        return np.array([self.between(points[0] - losses)[1], self.between(points[1] - losses)[0]])


def _same_under_zero_out(step: Step) -> bool:
    proven = _SAME_UNDER_ZERO_OUT
    if isinstance(step, UserLevel):  # docs/mechanisms/users.md, section 1
        step, proven = step.mechanism, (Gaussian,)
    alone = step.innermost if isinstance(step, PoissonSampled) else step
    return isinstance(alone, proven)


@functools.lru_cache(maxsize=16)
def curve_beside(process: Process, direction: str, adjacency: str) -> CurveBeside:
    """The certified curve of an analytic mechanism, remembered: a search asks for it at every noise multiplier."""
    one_sided = adjacency != "zero_out" or all(_same_under_zero_out(step) for step, _ in process)
    # Otherwise the pair under zero-out is one of its own, and the worse of its directions is used for both.
    profile = account(process, direction if one_sided else adjacency, accuracy=_ACCURACY)
    floor = profile.delta(math.inf)
    near = (min(1.0, max(_END, share * floor)) for share in (1.0 + _ERROR, 2.0))
    wide = next((found for delta in near if (found := profile.epsilon(delta)) < math.inf), math.inf)
    if not wide < math.inf:
        raise ParameterTypeError(f"composed_with = {process!r}: its epsilon is infinite")
    wide = min(max(wide, 1e-6), LAST_NODE)

    def bounds(epsilon: Array) -> tuple[Array, Array]:
        lower, upper = profile.delta_curve(epsilon)
        return lower if one_sided else np.zeros_like(lower), upper

    # To the left of the bend the curve is nearly 1 - e^epsilon, a line.
    ends = np.append(-wide - 30.0, np.linspace(-wide, wide, 17))
    curve, left, right = CurveBeside(bounds, ends), ends[:-1], ends[1:]
    while left.size and curve.epsilon.size < _MOST_NODES:
        middle = 0.5 * (left + right)
        tangent, chord = curve.between(middle)
        curve.ask(middle)
        lower, upper = curve.between(middle)
        bent = (chord > upper * (1.0 + _ERROR) + _END) | (tangent < lower * (1.0 - _ERROR) - _END)
        left, right = np.append(left[bent], middle[bent]), np.append(middle[bent], right[bent])
    return curve.close()
