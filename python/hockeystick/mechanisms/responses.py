"""Randomized response, and declared guarantees, whose worst case it is (Kairouz, Oh, Viswanath 2015, Theorem 3.3)."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Annotated

from .. import _core
from .._base.fields import Flag, NonNegative, Probability
from .._base.validation import integer
from . import atoms
from .atoms import Atoms
from .core_pairs import Pairs, discrete
from .steps import Mechanism, Step


@dataclass(frozen=True)
class RandomizedResponse(Mechanism):
    """Report the true one of ``num_categories`` values with probability e^epsilon / (e^epsilon + k - 1).

    Each of the other k - 1 values is reported with probability 1 / (e^epsilon + k - 1).
    ``epsilon`` >= 0, ``num_categories`` >= 2. The guarantee is taken to hold between any two
    inputs, hence under every adjacency. With ``uniform_null`` a null record reports a value drawn
    uniformly at random, and adjacency "zero_out" compares with that instead of with any other value.
    """

    epsilon: NonNegative
    num_categories: Annotated[int, functools.partial(integer, low=2)] = 2
    uniform_null: Flag = False
    noise_convention = "randomized response on one value"

    def simplified(self) -> Step | None:
        return self if self.epsilon > 0.0 else None

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


class _Declared(Mechanism):
    """A guarantee of which nothing else is known."""

    reference = "Kairouz, Oh and Viswanath 2015, Theorem 3.3 (worst case of a declared guarantee)"


@dataclass(frozen=True)
class PureDP(_Declared):
    """Any mechanism known to be ``epsilon``-DP, and nothing else known about it.

    The declared guarantee must hold under the adjacency asked for; inside a sampling scheme, it
    must hold under add/remove too. Accounted by the worst case, binary randomized response
    (Kairouz, Oh, Viswanath 2015, Theorem 3.3).
    """

    epsilon: NonNegative
    noise_convention = "epsilon as declared by the user"

    def simplified(self) -> Step | None:
        return self if self.epsilon > 0.0 else None

    def symmetric_pair(self, shift: int, group: int) -> _core.Pair:
        """Binary randomized response."""
        return discrete(atoms.randomized_response(group * self.epsilon))


@dataclass(frozen=True)
class ApproximateDP(_Declared):
    """Any mechanism known to be (``epsilon``, ``delta``)-DP, and nothing else known about it.

    As for PureDP, the declaration must hold under the adjacency asked for, and inside a sampling
    scheme under add/remove too. Accounted by the worst case: with probability delta the data are
    revealed, otherwise randomized response (Kairouz, Oh, Viswanath 2015, Theorem 3.3).
    """

    epsilon: NonNegative
    delta: Probability
    noise_convention = "(epsilon, delta) as declared by the user"

    def simplified(self) -> Step | None:
        return self if self.epsilon > 0.0 or self.delta > 0.0 else None

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
