"""From a composition and an adjacency to the dominating pairs the core composes.

"remove": P is the output on the data with the record, Q without it; "add" swaps the two.
"add_or_remove", "zero_out" and "replace_one" take the worse of both directions. A composition
takes all its steps in the same direction.
"""

from __future__ import annotations

import math
from typing import TypeAlias

from .. import _core
from .._base.validation import choice
from .core_pairs import Pairs, both, gaussian
from .renyi import Renyi, renyi_curve
from .steps import Process, shift_of

COUNTS_DIFFER = ("add", "remove", "add_or_remove")
"""Adjacencies under which one of the datasets has a record more than the other."""
ADJACENCIES = (*COUNTS_DIFFER, "replace_one", "zero_out")

Directions: TypeAlias = "list[list[tuple[_core.Pair, int]]]"
"""One composition of pairs with their counts for each direction."""


def check(process: Process, adjacency: str) -> str:
    """Return ``adjacency`` if it is known and every step of ``process`` can be accounted under it.

    Raises ParameterError otherwise; cheap, so that errors come before any work.
    """
    choice("adjacency", adjacency, ADJACENCIES)
    for step, _ in process:
        step.check_adjacency(adjacency)
    return adjacency


def directions(process: Process, adjacency: str) -> Directions:
    """The compositions of dominating pairs whose worst delta(epsilon) is the guarantee.

    One list of (pair, count) per direction; an empty result means that nothing is released.
    Unsampled Gaussians merge into one pair N(mu, 1) against N(0, 1) with mu^2 = sum of count *
    (shift / sigma)^2, which is exact (Dong, Roth, Su 2022, Corollary 3.3), and declared Renyi divergences
    into one pair of their sum (docs/mechanisms/renyi.md, section 2).
    """
    check(process, adjacency)
    gaussians: list[tuple[float, int]] = []
    pairs: list[tuple[Pairs, int]] = []
    divergences: list[tuple[Renyi, int]] = []
    for step, count in process:
        simple = step.simplified()
        if simple is None:
            continue
        if isinstance(simple, Renyi):
            divergences.append((simple, count))
            continue
        mu = simple.unsampled_mu(shift_of(adjacency)) if simple.is_unsampled() else None
        if mu is not None:
            gaussians.append((mu, count))
        else:
            pairs.append((simple.pairs(adjacency), count))
    if gaussians:
        pairs.insert(0, (both(gaussian(root_sum_of_squares(gaussians))), 1))
    if divergences:
        pairs.append((both(renyi_curve(divergences).pair()), 1))
    if not pairs:
        return []
    remove = [(pair.remove, count) for pair, count in pairs]
    add = [(pair.add, count) for pair, count in pairs]
    if all(pair.symmetric for pair, _ in pairs) or adjacency == "remove":
        return [remove]
    return [add] if adjacency == "add" else [remove, add]


def root_sum_of_squares(terms: list[tuple[float, int]]) -> float:
    """sqrt(sum of count * x^2) without overflow or underflow, independent of the order."""
    largest = max(x for x, _ in terms)
    if largest == 0.0 or math.isinf(largest):
        return largest
    return largest * math.sqrt(math.fsum(count * (x / largest) ** 2 for x, count in terms))
