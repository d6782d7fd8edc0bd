"""Any mechanism with finitely many outcomes, as two probability vectors (docs/mechanisms/pairs.md)."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import numpy as np

from .. import _core
from .._base.validation import MAX_COUNT, ParameterError, vector
from .core_pairs import Pairs, bracket
from .ratios import ROUNDING, fewer, from_masses, reversed_bracket
from .steps import Mechanism, Step

Probabilities: TypeAlias = Annotated[
    tuple[float, ...], functools.partial(vector, low=0.0, high=1.0 + ROUNDING)
]
"""Numbers in [0, 1], or beyond 1 by rounding."""


class Given(Mechanism):
    """A mechanism of which nothing is known but a pair, or one for each direction."""

    def may_be_sampled(self, scheme: Step) -> bool:
        """Unless a record may be in the batch twice: what that costs, the pair does not say."""
        return not scheme.repeats

    def symmetric_pair(self, shift: int, group: int) -> _core.Pair:
        return directed(self).remove

    def pairs(self, adjacency: str) -> Pairs:
        """The pair as it was given, and reversed."""
        found = directed(self)
        return Pairs(found.remove, found.remove) if adjacency == "replace_one" else found

    def both_ways(self) -> Pairs:
        """The pairs of both directions."""
        raise NotImplementedError

    def is_own_reverse(self) -> bool:
        """Whether both directions are the same pair."""
        raise NotImplementedError

    def check_adjacency(self, adjacency: str) -> None:
        """Neither of two datasets is the one with the record where one record replaces another."""
        if adjacency == "replace_one" and not self.is_own_reverse():
            raise ParameterError(
                f"adjacency = 'replace_one': must be 'add', 'remove', 'add_or_remove' or 'zero_out' for {self!r}, whose two "
                "directions differ; under 'replace_one' each step may have either, so the pair must be its own reverse"
            )


@functools.lru_cache(maxsize=16)
def directed(mechanism: Given) -> Pairs:
    """`Given.both_ways`, kept: there may be many atoms, and sampled steps may share them."""
    return mechanism.both_ways()


@dataclass(frozen=True, repr=False)
class FinitePair(Given):
    """Any mechanism whose output is one of n outcomes, with probabilities ``p`` with a record and ``q`` without it.

    Or any other mechanism that the pair (p, q) dominates: delta(epsilon) is at most sum_i max(0, p_i - e^epsilon q_i)
    under "remove" and sum_i max(0, q_i - e^epsilon p_i) under "add", whatever the data. Under "zero_out" ``q`` is what a
    null record gives. Under "replace_one" the pair must be its own reverse. The pair must hold under the adjacency that is
    asked for; inside a sampling scheme, under add/remove too. Probabilities are numbers in [0, 1], n of each, that sum to
    1 to within 1e-12; what is accounted is p and q as given, but for the largest of each, which stands for what the
    others leave of 1.

    >>> from hockeystick import PoissonSampled, account
    >>> answer = FinitePair([0.5, 0.5, 0.0], [0.25, 0.5, 0.25])
    >>> profile = account(answer, "remove")
    >>> lower, upper = profile.delta_bounds(0.0)
    >>> lower <= 0.25 <= upper < 0.25 + 1e-12
    True
    >>> account(PoissonSampled(answer, 0.01) * 1000).epsilon(1e-5) < 2.5
    True
    """

    p: Probabilities
    q: Probabilities
    noise_convention = "probabilities of all outcomes with and without the record, as given"
    reference = "docs/mechanisms/pairs.md (the pair as given)"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_lengths("p", self.p, "q", self.q)
        for name, values in (("p", self.p), ("q", self.q)):
            check_total(name, math.fsum(values))

    def __repr__(self) -> str:
        return f"FinitePair(p={short(self.p)}, q={short(self.q)})"

    def simplified(self) -> Step | None:
        return None if self.p == self.q else self

    def is_own_reverse(self) -> bool:
        p, q = np.array(self.p), np.array(self.q)
        one, other = np.lexsort((p, q)), np.lexsort((q, p))
        return bool((p[one] == q[other]).all() and (q[one] == p[other]).all())

    def both_ways(self) -> Pairs:
        atoms = from_masses(np.array(self.p), np.array(self.q))
        remove = bracket(fewer(atoms))
        return Pairs(remove, remove if self.is_own_reverse() else bracket(reversed_bracket(atoms)))


def check_lengths(
    one: str, values: tuple[Any, ...], other: str, others: tuple[Any, ...], most: int = MAX_COUNT
) -> None:
    """Raise ParameterError unless there is one of each for each of the other, from 1 to ``most``."""
    if not 1 <= len(values) == len(others) <= most:
        raise ParameterError(
            f"{one}, {other}: must be of equal length, at least one and at most {most}; here there are {len(values)} and {len(others)}"
        )


def check_total(name: str, total: float) -> None:
    """Raise ParameterError unless it is 1, but for rounding."""
    if not abs(total - 1.0) <= ROUNDING:
        raise ParameterError(f"{name}: must sum to 1 (to within {ROUNDING:g}), not to {total!r}")


def short(values: tuple[float, ...]) -> str:
    """All of a few numbers, or how many there are."""
    return repr(values) if len(values) <= 8 else f"<{len(values)} numbers>"
