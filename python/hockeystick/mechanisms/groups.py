"""Groups of records, of which nothing is known but what a record's profile says (docs/mechanisms/users.md, section 4)."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from .._base.validation import integer
from .curves import Curve
from .steps import Process, Release, Words
from .whole import OfCurve, curve_of

_STARTS = 3000
"""speed: how many type I errors the chains of tests start from."""


@dataclass(frozen=True)
class Group(OfCurve):
    """A whole release, where any ``size`` records change instead of one.

    Whatever ``release`` is, size events in a row bound its profile: the trade-off curve of the group is that of one record, applied
    ``size`` times (Dong, Roth and Su 2022, Theorem 2.14), which is all that a curve implies, and exact for Gaussian noise. Where
    the mechanism of one step is known, `UserLevel` is tighter. ``size`` in [1, 10^6]. A step like any other: it
    composes, and both directions are the worse one. Its pair is no smaller than that of its curve; docs/mechanisms/users.md.

    >>> from hockeystick import Gaussian, account
    >>> alone, group = account(Gaussian(2.0)), account(Group(Gaussian(8.0), 4))
    >>> alone.epsilon(1e-5) <= group.epsilon(1e-5) <= 1.001 * alone.epsilon(1e-5)
    True
    """

    release: Release
    size: Annotated[int, functools.partial(integer, low=1, high=10**6)]

    @property
    def _process(self) -> Process:
        return self.release.as_process()

    def _curve(self, adjacency: str) -> Curve:
        return group_curve(curve_of(self._process, adjacency), self.size)

    def words(self, adjacency: str) -> Words:
        found = {part.words(adjacency).noise: None for part in self._process.alternatives()}
        reference = "docs/mechanisms/users.md, section 4 (groups; Dong, Roth and Su 2022, Theorem 2.14)"
        return Words("; ".join(found), reference=reference, examples_per_user=self.size)


def group_curve(curve: Curve, size: int) -> Curve:
    """The curve of a group: P_size(E) <= delta_1 + e^eps_1 (delta_2 + e^eps_2 (...)) along any chain of tangents.

    Each chain follows the power of the best tests from one type I error on.
    """
    starts = np.concatenate([np.logspace(-280.0, -1.0, _STARTS), np.linspace(0.1, 1.0, 200), [0.0]])
    alpha, total, epsilon = starts.copy(), np.zeros_like(starts), np.zeros_like(starts)
    for _ in range(size):
        delta, slope = curve.tangent(alpha)
        growth = np.exp(slope)
        total, epsilon = delta + growth * total, epsilon + slope
        alpha = np.minimum(1.0, delta + growth * alpha)
        if np.all((alpha == 1.0) | (epsilon > 600.0)):
            # No chain says anything of so many records, and more of them are no safer.
            return Curve.of_symmetric(np.zeros(1), np.ones(1))
    # The sums of up to 10^6 terms are rounded upwards.
    rounding = 1e-15 * (size + 1.0)
    total, epsilon = total * (1.0 + rounding), epsilon + rounding * np.abs(epsilon) + rounding
    kept = (epsilon >= 0.0) & (epsilon <= 600.0) & (total <= 1.0)
    return Curve.of_symmetric(np.append(epsilon[kept], 0.0), np.append(total[kept], 1.0))
