"""Pairs of the core, in both directions, with the limits that the core leaves out."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .. import _core
from . import atoms
from .atoms import Atoms, Bracket

NOTHING = _core.discrete_pair([0.0], [1.0], [1.0])
"""What depends on nothing."""

HUGE = 1e100
"""*Speed*: a shift this many times the noise is treated as no noise at all: only epsilon > 1e199 is lost."""


@dataclass(frozen=True)
class Pairs:
    """One step's pair in the direction "remove" and in the direction "add"."""

    remove: _core.Pair
    add: _core.Pair

    @property
    def symmetric(self) -> bool:
        """Whether both directions are the same pair."""
        return self.remove is self.add


def both(pair: _core.Pair) -> Pairs:
    """A pair that is its own reverse."""
    return Pairs(pair, pair)


def gaussian(mu: float) -> _core.Pair:
    """N(mu, 1) against N(0, 1); beyond HUGE, no noise at all from above and HUGE from below."""
    return _core.gaussian_pair(mu) if mu < HUGE else revealing(_core.gaussian_pair(HUGE), mu)


def revealing(lower: _core.Pair, size: float) -> _core.Pair:
    """The data themselves in the place of a mechanism that is at least ``lower``, unless its size is infinite."""
    upper = discrete(atoms.revealing())
    return upper if math.isinf(size) else _core.bracket_pair(lower, upper)


def bracket(pair: Bracket) -> _core.Pair:
    """Hand atoms above and below a mechanism to the core."""
    upper = discrete(pair.upper)
    return upper if pair.lower is None else _core.bracket_pair(discrete(pair.lower), upper)


def discrete(pair: Atoms) -> _core.Pair:
    """Hand atoms to the core."""
    return _core.discrete_pair(
        pair.losses,
        pair.p,
        pair.q,
        p_infinity=pair.p_infinity,
        spacing=pair.spacing,
        q_infinity=pair.q_infinity,
        loss_error=pair.loss_error,
        total_is_rounded=pair.total_is_rounded,
    )


def sampled(base: Pairs, q: float) -> Pairs:
    """Poisson sampling under "remove" and "add" (Zhu, Dong, Wang 2022, Theorem 11)."""
    return Pairs(_core.sampled_pair(base.remove, q, "remove"), _core.sampled_pair(base.add, q, "add"))


def mixture(pairs: list[Pairs], weights: list[float]) -> Pairs:
    """The choice between several steps, released; weights sum to 1 or, by rounding, a little more."""
    kept = [(pair, weight) for pair, weight in zip(pairs, weights, strict=True) if weight > 0.0]
    if len(kept) == 1:
        return kept[0][0]
    masses = [weight for _, weight in kept]
    remove = _core.mixture_pair([pair.remove for pair, _ in kept], masses)
    if all(pair.symmetric for pair, _ in kept):
        return both(remove)
    return Pairs(remove, _core.mixture_pair([pair.add for pair, _ in kept], masses))


def location_pair(kind: str, scale: float, shifts: list[float], weights: list[float]) -> _core.Pair:
    """sum_i w_i N(s_i) against sum_i w_i N(-s_i) for one kind of noise, which is its own reverse."""
    return _core.location_mixture_pair(kind, scale, shifts, weights, [-s for s in shifts], weights)


def location_mixture(sigma: float, p: dict[float, float], q: dict[float, float]) -> Pairs:
    """sum_i p_i N(s_i, sigma^2) against sum_j q_j N(-r_j, sigma^2), all shifts >= 0 ({shift: weight})."""

    def against(one: dict[float, float], other: dict[float, float]) -> _core.Pair:
        opposite = [-shift for shift in other]
        return _core.location_mixture_pair(
            "gaussian", sigma, list(one), list(one.values()), opposite, list(other.values())
        )

    return both(against(p, p)) if p == q else Pairs(against(p, q), against(q, p))
