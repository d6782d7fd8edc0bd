"""Any mechanism of which several (epsilon, delta) guarantees are known (docs/mechanisms/pairs.md, "Declared curves")."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from .. import _core
from .._base.fields import Probability
from .._base.validation import vector
from .curves import FURTHEST, Curve
from .finite import check_lengths, short
from .groups import group_curve
from .steps import Mechanism, Step

MOST_POINTS = 2**14
"""Of a curve."""


@dataclass(frozen=True, repr=False)
class DeclaredProfile(Mechanism):
    """Any mechanism known to be (``epsilons[i]``, ``deltas[i]`` + ``error``)-DP for every i, and nothing else known about it.

    A curve delta(epsilon) >= the mechanism's, sampled at some points: epsilons in [0, 600], in any order, at most 16384 of
    them, deltas in [0, 1], ``error`` in [0, 1] what the curve itself may be too small by. Accounted by the pair whose profile is
    the largest that keeps all of these guarantees in both directions, which is piecewise linear in e^epsilon. With one
    point it is `ApproximateDP`, but for 1e-9 of delta. As there, the guarantees must hold under the adjacency asked for, and
    inside a sampling scheme under add/remove too.

    >>> from hockeystick import Gaussian, account
    >>> curve = account(Gaussian(2.0)).delta
    >>> epsilons = [0.05 * i for i in range(80)]
    >>> known = DeclaredProfile(epsilons, [curve(epsilon) for epsilon in epsilons])
    >>> account(known * 10).epsilon(1e-2) / account(Gaussian(2.0) * 10).epsilon(1e-2) < 1.01
    True
    """

    epsilons: Annotated[tuple[float, ...], functools.partial(vector, low=0.0, high=FURTHEST)]
    deltas: Annotated[tuple[float, ...], functools.partial(vector, low=0.0, high=1.0)]
    error: Probability = 0.0
    noise_convention = "(epsilon, delta) at several points as declared by the user"
    reference = "docs/mechanisms/pairs.md (the worst case of the declared guarantees)"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_lengths("epsilons", self.epsilons, "deltas", self.deltas, MOST_POINTS)

    def __repr__(self) -> str:
        return f"DeclaredProfile(epsilons={short(self.epsilons)}, deltas={short(self.deltas)}, error={self.error!r})"

    def simplified(self) -> Step | None:
        at_zero = any(e == 0.0 == d for e, d in zip(self.epsilons, self.deltas, strict=True))
        return None if at_zero and self.error == 0.0 else self

    def symmetric_pair(self, shift: int, group: int) -> _core.Pair:
        """The pair of the curve; of a group, of the curve applied as often."""
        curve = Curve.of_symmetric(
            np.array(self.epsilons), np.minimum(1.0, np.array(self.deltas) + self.error)
        )
        return (curve if group == 1 else group_curve(curve, group)).pair()
