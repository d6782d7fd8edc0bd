"""Randomized response, declared guarantees, whose worst case it is, and the exponential mechanism by its bounded range."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, TypeAlias

import numpy as np

from .. import _core
from .._base.validation import Flag, Probability, integer, no_less
from . import atoms
from .atoms import Atoms
from .core_pairs import NOTHING, Pairs, discrete
from .curves import FURTHEST, Curve
from .steps import ExactGuarantee, Mechanism, Step

_Epsilon: TypeAlias = Annotated[float, no_less]

_WORST_CASE = "Kairouz, Oh and Viswanath 2015, Theorem 3.3 (worst case of a declared guarantee)"


@dataclass(frozen=True)
class _OfEpsilon(Mechanism):
    """What has epsilon-DP, whatever else it has."""

    epsilon: _Epsilon

    def simplified(self) -> Step | None:
        return self if self.epsilon > 0.0 else None

    def guarantee(self, adjacency: str) -> ExactGuarantee | None:
        """Epsilon, as it was given."""
        return ExactGuarantee(Fraction(self.epsilon))


@dataclass(frozen=True)
class RandomizedResponse(_OfEpsilon):
    """Report the true one of ``num_categories`` values with probability e^epsilon / (e^epsilon + k - 1).

    Each of the other k - 1 values is reported with probability 1 / (e^epsilon + k - 1).
    ``epsilon`` >= 0, ``num_categories`` >= 2. The guarantee is taken to hold between any two
    inputs, a null record and no record among them, hence under every adjacency. Where records are sampled a null record and no record may be two
    different ones, so that "zero_out" is what "replace_one" is. With ``uniform_null`` a null record reports a value drawn
    uniformly at random, and so does who is not sampled: adjacency "zero_out" compares with that instead of with any other value.
    """

    num_categories: Annotated[int, functools.partial(integer, low=2)] = 2
    uniform_null: Flag = False
    noise_convention = "randomized response on one value"

    @property
    def null_is_none(self) -> bool:
        """Who is not sampled may answer otherwise than a null record does."""
        return self.uniform_null

    def symmetric_pair(self, shift: int, group: int) -> _core.Pair:
        """The response itself; of a group, what is left of its guarantee."""
        if group == 1:
            return discrete(atoms.randomized_response(self.epsilon, self.num_categories))
        return discrete(atoms.randomized_response(group * self.epsilon))

    def pairs(self, adjacency: str) -> Pairs:
        """A null record may answer uniformly."""
        if not (self.uniform_null and adjacency == "zero_out"):
            return super().pairs(adjacency)
        forth, back = atoms.response_against_uniform(self.epsilon, self.num_categories)
        return Pairs(discrete(forth), discrete(back))


@dataclass(frozen=True)
class PureDP(_OfEpsilon):
    """Any mechanism known to be ``epsilon``-DP, and nothing else known about it.

    The declared guarantee must hold under the adjacency asked for; inside a sampling scheme, it must hold under add/remove
    too, and under "zero_out" a null record must do what no record does. Accounted by the worst case, binary randomized response
    (Kairouz, Oh, Viswanath 2015, Theorem 3.3).
    """

    noise_convention = "epsilon as declared by the user"
    reference = _WORST_CASE

    def symmetric_pair(self, shift: int, group: int) -> _core.Pair:
        """Binary randomized response."""
        return discrete(atoms.randomized_response(group * self.epsilon))


@dataclass(frozen=True)
class ApproximateDP(Mechanism):
    """Any mechanism known to be (``epsilon``, ``delta``)-DP, and nothing else known about it.

    As for PureDP, the declaration must hold under the adjacency asked for, and inside a sampling
    scheme under add/remove too, a null record being as none. Accounted by the worst case: with probability delta the data are
    revealed, otherwise randomized response (Kairouz, Oh, Viswanath 2015, Theorem 3.3). What such guarantees add up to by basic composition,
    with pure DP beside them, holds exactly: a budget can be spent to its end, also where records are sampled (q delta, for a sampling probability q).
    """

    epsilon: _Epsilon
    delta: Probability
    noise_convention = "(epsilon, delta) as declared by the user"
    reference = _WORST_CASE

    def simplified(self) -> Step | None:
        return self if self.epsilon > 0.0 or self.delta > 0.0 else None

    def guarantee(self, adjacency: str) -> ExactGuarantee | None:
        """Both, as declared."""
        return ExactGuarantee(Fraction(self.epsilon), Fraction(self.delta))

    def symmetric_pair(self, shift: int, group: int) -> _core.Pair:
        """The data themselves with probability delta, otherwise binary randomized response."""
        return discrete(self._of_group(group))

    def _of_group(self, group: int) -> Atoms:
        epsilon, delta = self.epsilon, self.delta
        if group > 1 and delta > 0.0:
            if epsilon == 0.0:
                delta = min(1.0, group * delta)
            else:
                growth = (group - 1) * epsilon + math.log(math.expm1(-group * epsilon) / math.expm1(-epsilon))
                delta = math.exp(min(0.0, math.log(delta) + growth))
        if delta == 1.0:
            return atoms.revealing()
        if epsilon == 0.0:
            return atoms.revealing(delta)
        return atoms.randomized_response(group * epsilon, 2, delta)


_NODES = 1000
"""speed: points of the curve."""
_LEAST_RANGE = 1e-300
"""proof: smaller nodes of a curve are not normal doubles; pure DP of this range is hardly more."""


@dataclass(frozen=True)
class ExponentialMechanism(_OfEpsilon):
    """Choose o with probability proportional to exp(epsilon q(o) / (2 Delta)); report noisy max with Gumbel noise is the same.

    Delta is the most that one record changes any score q(o) under the adjacency asked for, and inside a sampling scheme under add/remove too, a
    null record being as none; without the 2 where all scores move the same way. Its losses have
    a range of ``epsilon`` (Dong, Durfee and Rogers 2020), which is less than epsilon-DP allows; docs/accounting/selection.md, section 6.

    >>> from hockeystick import PureDP, account
    >>> account(ExponentialMechanism(0.1) * 100).epsilon(1e-6) < 0.6 * account(PureDP(0.1) * 100).epsilon(1e-6)
    True
    """

    noise_convention = "epsilon of the exponential mechanism: the range of its losses"
    reference = "Dong, Durfee and Rogers 2020 (bounded range)"

    def symmetric_pair(self, shift: int, group: int) -> _core.Pair:
        """The worst case of bounded range at every epsilon."""
        reach = group * self.epsilon
        if reach > FURTHEST:
            return discrete(atoms.randomized_response(reach))
        if reach < _LEAST_RANGE:
            return _core.bracket_pair(NOTHING, discrete(atoms.randomized_response(reach)))
        # Multiples of one double of 40 bits, up to the reach and next to nothing more: on that lattice losses add up exactly.
        mantissa, exponent = math.frexp(math.nextafter(reach / (_NODES - 1), math.inf))
        nodes = math.ldexp(math.ceil(mantissa * 2.0**40), exponent - 40) * np.arange(float(_NODES))
        missed = np.expm1(0.5 * np.minimum(0.0, nodes - reach))
        delta = missed * (missed / -np.expm1(-reach))  # the square may be less than any double
        return Curve.of_symmetric(nodes, delta).pair()
