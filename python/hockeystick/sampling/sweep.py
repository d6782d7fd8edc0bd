"""How large batches of a graph are under Algorithm 3, and what a limit on |N(e)| does to them (docs/sampling/attribution.md)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .._base.bounds import exactly, round_down
from .._base.search import first_holding
from .._base.types import Array
from .._base.validation import ParameterError, entries, instance, integer, real
from .attribution import AttributionGraph


def expected_batch_size(
    graph: AttributionGraph, sampling_probability: float, min_sep: int, step: int | None = None
) -> float:
    """E|B_i| of multi-attribution b-min-sep subsampling (Algorithm 3), exactly up to round-off.

    For any graph, but Algorithm 3 is a guarantee only for those that `AttributionGraph.check_closed` accepts.

    Whether an example was sampled is independent over examples and steps, and e takes part in step i if it is sampled
    there and nothing in N(e) was in the b - 1 steps before, hence
    E|B_i| = sum over e of p (1 - p)^(|N(e)| min(i - 1, b - 1)). ``step`` counts from 1; None means any
    step >= b, from where on the law is stationary: running ahead b - 1 steps is a full warm start. (An example
    without users has no neighbour, not even itself: nothing blocks it.)

    >>> pairs = AttributionGraph.from_lists([[0, 1], [1, 2], [2, 0]])  # every two share a user
    >>> round(expected_batch_size(pairs, 0.1, min_sep=2), 12) == round(3 * 0.1 * 0.9**3, 12)
    True
    """
    p = real("sampling_probability", sampling_probability, 0.0, 1.0)
    window = integer("min_sep", min_sep, 1) - 1
    if step is not None:
        window = min(window, integer("step", step, 1) - 1)
    sizes, counts = _histogram(graph)
    return float(_expected(p, window, sizes, counts))


def sampling_probability_for(graph: AttributionGraph, expected_batch: float, min_sep: int) -> float:
    """The smallest p with stationary `expected_batch_size` = ``expected_batch`` under Algorithm 3, by binary search (Section 7.3).

    Every example blocks its neighbours, so the expected size first grows with p and then falls: a size beyond the
    largest possible one raises ParameterError that names it.
    """
    target = real("expected_batch", expected_batch, 0.0, open_low=True)
    window = integer("min_sep", min_sep, 1) - 1
    sizes, counts = _histogram(graph)
    grid, values = _growth(window, sizes, counts)
    best = int(np.argmax(values))
    if not values[best] >= target:
        raise ParameterError(
            f"expected_batch = {target:g}: must be at most {values[best]:.6g}, the largest expected batch size "
            f"at min_sep = {min_sep} (at sampling_probability = {grid[best]:.6g})"
        )
    first = int(np.argmax(values >= target))
    low, high = (float(grid[first - 1]) if first else 0.0), float(grid[first])
    return first_holding(lambda p: _expected(p, window, sizes, counts) >= target, low, high)


def _histogram(graph: AttributionGraph) -> tuple[Array, Array]:
    graph = instance("graph", graph, AttributionGraph)
    sizes, counts = np.unique(graph.neighbourhood_sizes(), return_counts=True)
    return sizes.astype(np.float64), counts.astype(np.float64)


def _expected(p: float, window: int, sizes: Array, counts: Array) -> Any:
    if window == 0:
        return p * counts.sum()
    if p == 1.0:  # whatever has a user is blocked by itself
        return counts[sizes == 0.0].sum()
    return p * (counts @ np.exp(np.log1p(-p) * window * sizes))


def _growth(window: int, sizes: Array, counts: Array) -> tuple[Array, Array]:
    """Probabilities and expected sizes, from where the size still grows to where it no longer does.

    The term of an example peaks at p = 1 / (1 + |N| (b - 1)), and is about 1 wide in ln p.
    """
    if not len(sizes):
        return np.ones(1), np.zeros(1)
    low, high = 1.0 / (1.0 + window * sizes[-1]), 1.0 / (1.0 + window * sizes[0])
    grid = np.geomspace(low, high, 2 + math.ceil(128 * math.log(high / low)))
    grid[0], grid[-1] = low, high
    return grid, np.array([_expected(float(p), window, sizes, counts) for p in grid])


@dataclass(frozen=True)
class SweepRow:
    """One limit on |N(e)|. ``expected_batch_size`` is at the sweep's sampling probability; ``target_probability``
    is the probability that gives the sweep's target size (None: none does, or there is no target); ``rule`` is b p k_e."""

    max_neighbourhood: int | None
    examples: int
    largest_neighbourhood: int
    mean_neighbourhood: float
    expected_batch_size: float
    target_probability: float | None
    rule: float | None


@dataclass(frozen=True)
class NeighbourhoodSweep:
    """What each limit k_e on |N(e)| does to the batches; print it for a table, or read ``rows``."""

    rows: tuple[SweepRow, ...]
    sampling_probability: float
    min_sep: int
    max_examples_per_user: int
    target: float | None

    @property
    def best(self) -> SweepRow:
        """The row with the largest expected batch at the sweep's probability (the first if several have it)."""
        return max(self.rows, key=lambda row: row.expected_batch_size)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"k_u = {self.max_examples_per_user}, b = {self.min_sep}, p = {exactly(self.sampling_probability)}",
            f"{'k_e':>8} {'b p k_e':>11} {'examples':>10} {'max |N|':>8} {'mean |N|':>9} {'E|B| at p':>12} {'p for target':>22}",
        ]
        for row in self.rows:
            limit = "none" if row.max_neighbourhood is None else str(row.max_neighbourhood)
            rule = "-" if row.rule is None else round_down(row.rule)
            probability = "-" if row.target_probability is None else exactly(row.target_probability)
            lines.append(
                f"{limit:>8} {rule:>11} {row.examples:>10} {row.largest_neighbourhood:>8} "
                f"{row.mean_neighbourhood:>9.3f} {row.expected_batch_size:>12.6g} {probability:>22}"
            )
        return "\n".join(lines)


def sweep_neighbourhood(
    graph: AttributionGraph,
    max_examples_per_user: int,
    min_sep: int,
    *,
    expected_batch: float | None = None,
    sampling_probability: float | None = None,
    limits: Sequence[int | None] | None = None,
    **bounding: Any,
) -> NeighbourhoodSweep:
    """Expected batch sizes for several limits k_e on |N(e)| (Appendix C of the b-min-sep paper), before any training.

    Give ``expected_batch``, ``sampling_probability`` or both; without the latter, p is what gives the target without a limit
    on |N(e)| (or comes closest).
    ``limits`` (None among them: no limit) default to none, powers of two, and the largest k_e with b p k_e < 1: the rule
    of thumb by which an example is worth what it blocks. ``bounding`` goes to `AttributionGraph.bound`. Looking at the public graph costs no privacy.
    """
    min_sep = integer("min_sep", min_sep, 1)
    if expected_batch is None and sampling_probability is None:
        raise ParameterError("expected_batch = None: give it, or sampling_probability")
    if "max_neighbourhood" in bounding:
        raise ParameterError("max_neighbourhood: give limits instead")
    graph = instance("graph", graph, AttributionGraph)
    unlimited = graph.bound(max_examples_per_user, **bounding)
    bounding["seed"] = unlimited.seed  # the same order for every limit
    whole = unlimited.graph
    if sampling_probability is None:
        target = real("expected_batch", expected_batch, 0.0, open_low=True)
        grid, values = _growth(min_sep - 1, *_histogram(whole))
        reachable = bool(values.max() >= target)
        p = sampling_probability_for(whole, target, min_sep) if reachable else float(grid[np.argmax(values)])
    else:
        p = real("sampling_probability", sampling_probability, 0.0, 1.0)
    largest = int(whole.neighbourhood_sizes().max(initial=0))
    rows = []
    for limit in _limits(limits, largest, min_sep * p):
        kept = whole
        if limit is not None and limit < largest:
            kept = graph.bound(max_examples_per_user, max_neighbourhood=limit, **bounding).graph
        sizes = kept.neighbourhood_sizes()
        rows.append(
            SweepRow(
                max_neighbourhood=limit,
                examples=kept.num_examples,
                largest_neighbourhood=int(sizes.max(initial=0)),
                mean_neighbourhood=float(sizes.mean()) if len(sizes) else 0.0,
                expected_batch_size=expected_batch_size(kept, p, min_sep),
                target_probability=_reaching(kept, expected_batch, min_sep),
                rule=None if limit is None else min_sep * p * limit,
            )
        )
    return NeighbourhoodSweep(
        tuple(rows), p, min_sep, integer("max_examples_per_user", max_examples_per_user, 1), expected_batch
    )


def _limits(limits: Sequence[int | None] | None, largest: int, blocked: float) -> list[int | None]:
    """The limits as given; else none, powers of two and the rule of thumb, ``blocked`` being b p."""
    if limits is not None:
        given = entries("limits", limits, "numbers or None")
        return [None if limit is None else integer("limits", limit, 1) for limit in given]
    powers = {2**k for k in range(largest.bit_length()) if 2**k < largest}
    ruled = largest if blocked == 0.0 else min(largest, math.ceil(1.0 / blocked) - 1)
    return [None, *sorted(powers | ({ruled} if 1 <= ruled < largest else set()))]


def _reaching(graph: AttributionGraph, expected_batch: float | None, min_sep: int) -> float | None:
    try:
        return None if expected_batch is None else sampling_probability_for(graph, expected_batch, min_sep)
    except ParameterError:
        return None
