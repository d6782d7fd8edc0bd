"""The certified curve of a whole composition, and steps of which nothing else is known: groups of records."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from .. import _core
from .._base.validation import ParameterError, integer
from .adjacency import COUNTS_DIFFER, check, directions
from .core_pairs import Pairs, both
from .curves import FURTHEST, Curve, group_curve
from .steps import Process, Release, Step, Words

_QUICK, _DEAR = (1e-250, 2000, 1200), (1e-50, 1000, 600)
"""speed: where the curve falls below this it is no longer followed; how many points are asked for, as neighbours share a contour or a
lattice, and how many are kept; and all of that where each point takes long."""


class OfCurve(Step):
    """A step of which nothing is known but what follows from the certified curve of a release; both directions are the worse one."""

    @property
    def _process(self) -> Process:
        """The release."""
        raise NotImplementedError

    def _curve(self, adjacency: str) -> Curve:
        """The curve of the step under an adjacency that has both directions."""
        raise NotImplementedError

    def check_adjacency(self, adjacency: str) -> None:
        check(self._process, adjacency)

    def simplified(self) -> Step | None:
        return self if any(step.simplified() for step, _ in self._process) else None

    @property
    def releases(self) -> int:
        """As many as the release has."""
        return self._process.releases

    def pairs(self, adjacency: str) -> Pairs:
        """The pair of the curve."""
        return both(self._curve("add_or_remove" if adjacency in ("add", "remove") else adjacency).pair())


_HOPELESS = 0.9
"""speed: a release whose delta is above this as far as curves reach (little noise, for which each point takes long) is taken to have
no privacy at all."""


@functools.lru_cache(maxsize=16)
def curve_of(process: Process, adjacency: str) -> Curve:
    """Points of delta(epsilon), each an upper bound, which are close together where delta falls fast.

    ``adjacency`` has both directions, so that the curve is symmetric.
    """
    profile = _core.Profile(directions(process, adjacency), 3e-4)
    floor = profile.delta_bounds(math.inf).upper
    deepest, asked, nodes = _QUICK if profile.quick else _DEAR
    end = profile.epsilon_bounds(min(1.0, max(deepest, floor * 1.0001))).upper
    end = min(FURTHEST, end)
    if profile.delta_bounds(end).upper > _HOPELESS:
        return Curve.of_symmetric(np.zeros(1), np.ones(1))
    if end == 0.0:
        return Curve.of_symmetric(np.zeros(1), np.array([profile.delta_bounds(0.0).upper]))
    # The end may be one of the support, where the curve has a corner.
    epsilon = np.append(end * np.linspace(0.0, 1.0, asked) ** 1.5, end * (1.0 + 1e-9))
    delta = np.minimum.accumulate(np.clip(profile.rough_curve(epsilon, deepest)[1], 0.0, 1.0))
    fall = -np.log(np.maximum(delta, deepest))
    # Equal steps of a half of the root of ln delta and a half of epsilon's: closer where delta is large, as most ask there.
    travelled = np.sqrt((fall - fall[0]) / max(fall[-1] - fall[0], 1e-9)) + np.sqrt(epsilon / end)
    kept = np.searchsorted(travelled, np.linspace(0.0, travelled[-2], nodes))
    kept = np.unique(np.append(kept, [len(epsilon) - 2, len(epsilon) - 1]))
    return Curve.of_symmetric(epsilon[kept], delta[kept])


@dataclass(frozen=True)
class Group(OfCurve):
    """A whole release, where any ``size`` records change instead of one.

    Whatever ``release`` is, size events in a row bound its profile: the trade-off curve of the group is that of one record, applied
    ``size`` times (Dong, Roth and Su 2022, Theorem 2.14), which is all that a curve implies, and exact for Gaussian noise. Where
    the mechanism of one step is known, `UserLevel` is tighter. ``size`` in [1, 10^6]. A step like any other: it
    composes, and both directions are the worse one. Its pair is no smaller than that of its curve, and tells nothing from below;
    docs/mechanisms/users.md.

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

    def check_adjacency(self, adjacency: str) -> None:
        """A group's members leave one after the other: the pair of a step must be one for all sizes of the data."""
        super().check_adjacency(adjacency)
        if self.size == 1 or adjacency not in COUNTS_DIFFER:
            return
        for part in self._process.alternatives():
            if part.words(adjacency).compared_sizes:
                raise ParameterError(
                    f"adjacency = {adjacency!r}: must be 'zero_out' or 'replace_one' for a group of {self.size} and {part!r}, "
                    "which is accounted for datasets of one size and one record less"
                )

    def _curve(self, adjacency: str) -> Curve:
        return group_curve(curve_of(self._process, adjacency), self.size)

    def words(self, adjacency: str) -> Words:
        """What its steps say, with all that their guarantees depend on."""
        found = self._process.words(adjacency)
        return found._replace(
            sampler=found.sampler and f"a whole release with {found.sampler}",
            reference="docs/mechanisms/users.md, section 4 (groups; Dong, Roth and Su 2022, Theorem 2.14)",
            examples_per_user=self.size * found.examples_per_user,
        )
