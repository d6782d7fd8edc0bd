"""Any mechanism of which a caller knows the worst case: two probability vectors, losses, or a curve (docs/mechanisms/pairs.md)."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, Any, TypeAlias

import numpy as np

from .. import _core
from .._base.types import Numbers
from .._base.validation import MAX_COUNT, ParameterError, Probability, instance, vector
from .atoms import Atoms
from .core_pairs import Pairs, bracket
from .curves import FURTHEST, Curve, group_curve
from .ratios import ROUNDING, fewer, from_losses, from_masses, reversed_bracket
from .steps import ExactGuarantee, Mechanism, Step

Probabilities: TypeAlias = Annotated[Numbers, functools.partial(vector, low=0.0, high=1.0 + ROUNDING)]
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
    asked for; inside a sampling scheme, under add/remove too, a null record being as none. Probabilities are numbers in [0, 1], n of each, that sum to
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
    one: str,
    values: Numbers | Sequence[Any],
    other: str,
    others: Numbers | Sequence[Any],
    most: int = MAX_COUNT,
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


def short(values: Numbers) -> str:
    """All of a few numbers, or how many there are."""
    return repr(values) if len(values) <= 8 else f"<{len(values)} numbers>"


@dataclass(frozen=True, repr=False)
class PrivacyLoss(Given):
    """Any mechanism whose privacy loss is at most this one: ``losses[i]`` with probability ``probabilities[i]``, else +inf.

    With P the output with a record and Q without it, the loss is ln P/Q under P, and delta(epsilon) is at most
    infinity_mass + sum_i probabilities[i] max(0, 1 - e^(epsilon - losses[i])) under "remove". ``add`` is the loss
    distribution of the other direction, ln Q/P under Q; without it, it follows from this one: -losses[i] with probability
    probabilities[i] e^(-losses[i]), and +inf with what these lack to 1, the numbers being what they are to the last digit. Upper bounds
    count what the rounding of that sum leaves open, at most 4e-15 of sum_i |1 - e^(-losses[i])| probabilities[i] for each step, so that there epsilon at
    delta = 0 is inf even if the numbers are the rounded ones of a mechanism without infinite losses; lower bounds count what no rounding of the
    numbers explains. Give ``add`` if the other direction is known better. Losses are finite, in any order, equal ones
    allowed; probabilities and ``infinity_mass`` sum to 1 to within 1e-12 (the largest stands for what the others leave of
    1), and sum_i probabilities[i] e^(-losses[i]), Q's mass where P has any, is at most 1 + 1e-12 (what is above 1 by more
    than 2e-15 is taken away by raising all losses by its logarithm). Under "replace_one", ``add`` must be given, and the same.

    >>> from hockeystick import account
    >>> from math import exp, log
    >>> response = PrivacyLoss([1.0, -1.0], [exp(1) / (1 + exp(1)), 1 / (1 + exp(1))])
    >>> abs(account(response * 10).epsilon(1e-5) - 10.0) < 1e-3
    True
    """

    losses: Annotated[Numbers, vector]
    probabilities: Probabilities
    infinity_mass: Probability = 0.0
    add: PrivacyLoss | None = None
    noise_convention = "a privacy-loss distribution, as given"
    reference = "docs/mechanisms/pairs.md (the losses as given)"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.losses) != len(self.probabilities):
            raise ParameterError(
                f"losses, probabilities: must be of equal length; here there are {len(self.losses)} and {len(self.probabilities)}"
            )
        check_total("probabilities, infinity_mass", math.fsum([*self.probabilities, self.infinity_mass]))
        if self.add is not None and instance("add", self.add, PrivacyLoss, "a PrivacyLoss").add is not None:
            raise ParameterError(f"add = {self.add!r}: must be a PrivacyLoss without an ``add`` of its own")
        self._atoms()  # which refuses losses that belong to no pair

    def __repr__(self) -> str:
        add = "" if self.add is None else f", add={self.add!r}"
        return (
            f"PrivacyLoss(losses={short(self.losses)}, probabilities={short(self.probabilities)}, "
            f"infinity_mass={self.infinity_mass!r}{add})"
        )

    def _atoms(self) -> Atoms:
        return from_losses(np.array(self.losses), np.array(self.probabilities), self.infinity_mass)

    def simplified(self) -> Step | None:
        silent = self.infinity_mass == 0.0 and not any(self.losses)
        return None if silent and (self.add is None or self.add.simplified() is None) else self

    def is_own_reverse(self) -> bool:
        return self.add is not None and replace(self, add=None) == self.add

    def both_ways(self) -> Pairs:
        atoms = self._atoms()
        remove = bracket(fewer(atoms))
        if self.is_own_reverse():
            return Pairs(remove, remove)
        return Pairs(remove, bracket(fewer(self.add._atoms()) if self.add else reversed_bracket(atoms)))


MOST_POINTS = 2**14
"""*Speed*: of a curve."""


@dataclass(frozen=True, repr=False)
class DeclaredProfile(Mechanism):
    """Any mechanism known to be (``epsilons[i]``, ``deltas[i]`` + ``error``)-DP for every i, and nothing else known about it.

    A curve delta(epsilon) >= the mechanism's, sampled at some points: epsilons in [0, 600], in any order, at most 16384 of
    them, deltas in [0, 1], ``error`` in [0, 1] what the curve itself may be too small by. Accounted by the pair whose profile is
    the largest that keeps all of these guarantees in both directions, which is piecewise linear in e^epsilon. With one
    point it is `ApproximateDP`, but for 1e-9 of delta; what the guarantees of least delta add up to holds exactly, as there. As there, the guarantees must hold under the adjacency asked for, and
    inside a sampling scheme under add/remove too, a null record being as none.

    >>> from hockeystick import Gaussian, account
    >>> curve = account(Gaussian(2.0)).delta
    >>> epsilons = [0.05 * i for i in range(80)]
    >>> known = DeclaredProfile(epsilons, [curve(epsilon) for epsilon in epsilons])
    >>> account(known * 10).epsilon(1e-2) / account(Gaussian(2.0) * 10).epsilon(1e-2) < 1.01
    True
    """

    epsilons: Annotated[Numbers, functools.partial(vector, low=0.0, high=FURTHEST)]
    deltas: Annotated[Numbers, functools.partial(vector, low=0.0, high=1.0)]
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

    def guarantee(self, adjacency: str) -> ExactGuarantee | None:
        """The one of the least delta, which the curve's rounding raises: there it would have no epsilon."""
        delta, epsilon = min(zip(self.deltas, self.epsilons, strict=True))
        return ExactGuarantee(Fraction(epsilon), min(Fraction(1), Fraction(delta) + Fraction(self.error)))

    def symmetric_pair(self, shift: int, group: int) -> _core.Pair:
        """The pair of the curve; of a group, of the curve applied as often."""
        curve = Curve.of_symmetric(
            np.array(self.epsilons), np.minimum(1.0, np.array(self.deltas) + self.error)
        )
        return (curve if group == 1 else group_curve(curve, group)).pair()
