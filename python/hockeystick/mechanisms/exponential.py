"""The exponential mechanism, and report noisy max with Gumbel noise, by their bounded range."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .. import _core
from .._base.fields import NonNegative
from . import atoms
from .core_pairs import discrete
from .curves import FURTHEST, Curve
from .steps import Mechanism, Step

_NODES = 1000
"""speed: points of the curve."""


@dataclass(frozen=True)
class ExponentialMechanism(Mechanism):
    """Choose o with probability proportional to exp(epsilon q(o) / (2 Delta)); report noisy max with Gumbel noise is the same.

    Delta is the most that one record changes any score q(o); without the 2 where all scores move the same way. Its losses have
    a range of ``epsilon`` (Dong, Durfee and Rogers 2020), which is less than epsilon-DP allows; docs/accounting/selection.md, section 6.

    >>> from hockeystick import PureDP, account
    >>> account(ExponentialMechanism(0.1) * 100).epsilon(1e-6) < 0.6 * account(PureDP(0.1) * 100).epsilon(1e-6)
    True
    """

    epsilon: NonNegative
    noise_convention = "epsilon of the exponential mechanism: the range of its losses"
    reference = "Dong, Durfee and Rogers 2020 (bounded range)"

    def simplified(self) -> Step | None:
        return self if self.epsilon > 0.0 else None

    def symmetric_pair(self, shift: int, group: int) -> _core.Pair:
        """The worst case of bounded range at every epsilon."""
        reach = group * self.epsilon
        if reach > FURTHEST:
            return discrete(atoms.randomized_response(reach))
        nodes = np.linspace(0.0, reach, _NODES)
        delta = np.expm1(0.5 * (nodes - reach)) ** 2 / -np.expm1(-reach)
        return Curve.of_symmetric(nodes, delta).pair()
