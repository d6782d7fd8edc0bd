"""Individual privacy of training with random batches: (epsilon, delta) for each example by its loss distribution.

Each step of DP-SGD is, for one example, a Poisson-sampled Gaussian mechanism with mu = min(norm, C) / (sigma C),
where norm is that of the example's own gradient (Koskela, Tobaben, Honkela 2022, Section 5 and Appendix D).
An example's history is a vector of counts over a grid of values of mu, each value rounded up to the grid.
That is conservative: a sampled Gaussian of a smaller mu is a post-processing of one of a larger mu (Theorem
2 of Appendix D). Epsilon is then certified for this history; see docs/individual.md.

Individual epsilons depend on the data of the individuals. Do not release them as they are.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _core, gdp, ledger
from .histories import MAX_STEPS, Histories, LiveHistories
from .individual_ledger import Floats, Mask, noise_deviation, values_of
from .mechanisms import Gaussian, PoissonSampled, Process
from .pld import PrivacyProfile
from .storage import StorageError, refusing
from .validation import ParameterError, ParameterTypeError, choice, integer, real

if TYPE_CHECKING:
    from typing_extensions import Self

CAVEAT = (
    "Individual epsilons are computed from the data of the individuals they are about: they are as sensitive "
    "as the data, and must not be released as they are."
)

_KIND = "individual accountant"
_DIRECTIONS = {"add_or_remove": ("remove", "add"), "remove": ("remove",), "add": ("add",)}
_ROWS = 2**16
_Tables = dict[tuple[str, bool, tuple[float, ...]], _core.IndividualProfiles]


class IndividualBounds(NamedTuple):
    """Certified bounds for each example: ``lower`` <= truth <= ``upper``, arrays of shape (num_examples,)."""

    lower: Floats
    upper: Floats


def cell_edges(
    noise_multiplier: float, resolution: float = 0.007, fine: int = 384, coarse: int = 128
) -> Floats:
    """The grid of mu: ``fine`` values in ratio 1 + resolution down from 1/noise_multiplier, then ``coarse`` more.

    The coarse ones are ten times as far apart: at the defaults the grid is fine down to 7 % of the clipping
    norm, and ends at 1e-5 of it; what is smaller and not 0 counts as that. Increasing, shape (fine + coarse,).
    """
    # The largest value must not be below any C / (sigma C), rounded up.
    top = 1.0 / real("noise_multiplier", noise_multiplier, 1e-6, 1e12) * (1.0 + 2.0**-48)
    steps = np.concatenate([np.full(coarse, 10.0 * resolution), np.full(fine - 1, resolution)])
    depth = np.concatenate([np.cumsum(np.log1p(steps[::-1]))[::-1], [0.0]])
    return np.asarray(top * np.exp(-depth), np.float64)


def sampled_pairs(edges: Floats, sampling_probability: float, direction: str) -> list[_core.Pair | None]:
    """The pairs of Poisson-sampled Gaussians of these mu; None where nothing is revealed."""
    out: list[_core.Pair | None] = []
    for mu in edges.tolist():
        if mu == 0.0 or sampling_probability == 0.0:
            out.append(None)
        elif sampling_probability == 1.0:
            out.append(_core.gaussian_pair(mu))
        else:
            out.append(_core.sampled_pair(_core.gaussian_pair(mu), sampling_probability, direction))
    return out


class IndividualAccountant:
    """The (epsilon, delta) of each example after steps of Poisson-sampled Gaussian noise: DP-SGD.

    ``noise_multiplier`` sigma (standard deviation of the noise over the clipping norm C), ``sampling_probability``
    and ``clipping_norm`` are the defaults of `step`, and sigma the smallest that any step may use.
    ``adjacency`` is "add_or_remove" (default), "add" or "remove" of the one example. Memory: 1 kB for an
    example (2 kB from 65536 steps on), for each sampling probability in use. ``path`` keeps all of it in a
    directory, mapped into memory: for more examples than fit, and for runs that may be killed (`open` resumes);
    ``durable`` also survives a power failure.

    `epsilon` is a guarantee for histories that do not depend on the outputs. Where gradients do, as in training,
    it is the established individual accounting (Feldman, Zrnic 2021; Yu et al. 2022; Section 5 of the
    paper), which is not proven for fully adaptive steps; `IndividualRDPFilter` and `IndividualGDPFilter` are.

    >>> accountant = IndividualAccountant(3, noise_multiplier=2.0, sampling_probability=0.01, clipping_norm=5.0)
    >>> for _ in range(1000):
    ...     accountant.step(norms=[0.0, 1.3, 80.0])
    >>> epsilon = accountant.epsilon(delta=1e-6)
    >>> bool(epsilon[0] == 0.0 < epsilon[1] < epsilon[2])
    True
    """

    def __init__(
        self,
        num_examples: int,
        *,
        noise_multiplier: float,
        sampling_probability: float,
        clipping_norm: float = 1.0,
        adjacency: str = "add_or_remove",
        resolution: float = 0.007,
        fine: int = 384,
        coarse: int = 128,
        path: str | os.PathLike[str] | None = None,
        durable: bool = False,
    ) -> None:
        n = integer("num_examples", num_examples, 0, 2**40)
        self._noise = real("noise_multiplier", noise_multiplier, 0.01, 1e6)
        self._q = real("sampling_probability", sampling_probability, 0.0, 1.0)
        self._clip = real("clipping_norm", clipping_norm, 1e-100, 1e100)
        self._adjacency = choice("adjacency", adjacency, list(_DIRECTIONS))
        self._grid = {
            "resolution": real("resolution", resolution, 1e-6, 1.0),
            "fine": integer("fine", fine, 1, 30_000),
            "coarse": integer("coarse", coarse, 0, 30_000),
        }
        self._edges = cell_edges(self._noise, resolution, fine, coarse)
        self._histories = Histories(n, self._edges.size)
        if path is not None:
            self._histories = LiveHistories.create(
                path, _KIND, self._settings(), self._edges.size, durable, [self._histories]
            )
        self._tables: _Tables = {}

    @property
    def num_examples(self) -> int:
        """Number of examples."""
        return self._histories.num_examples

    @property
    def steps(self) -> int:
        """Number of steps so far."""
        return self._histories.steps

    @property
    def adjacency(self) -> str:
        """The adjacency the answers hold under."""
        return self._adjacency

    @property
    def edges(self) -> Floats:
        """The grid of mu that histories are rounded up to."""
        return np.array(self._edges)

    def __repr__(self) -> str:
        return f"IndividualAccountant({self._n} examples, {self.steps} steps, adjacency={self._adjacency!r})"

    def step(
        self,
        norms: ArrayLike,
        *,
        noise_multiplier: float | None = None,
        clipping_norm: float | None = None,
        sampling_probability: float | None = None,
        active: ArrayLike | None = None,
        steps: int = 1,
    ) -> None:
        """Record one step, or ``steps`` equal ones.

        ``norms``: shape (num_examples,), the norm of each example's gradient before clipping; of all examples
        that could have been drawn, not only of the batch. Where norms are measured now and then and used for
        later steps, the result is a guarantee only if each contribution is clipped to its recorded norm.
        ``active``: mask of who could be drawn; others count as norm 0. Raises ParameterError, and records
        nothing, if a norm is negative or nan, or sigma is below the accountant's.
        """
        noise = (
            self._noise if noise_multiplier is None else real("noise_multiplier", noise_multiplier, 0.01, 1e6)
        )
        if noise < self._noise:
            raise ParameterError(
                f"noise_multiplier = {noise!r}: must be at least {self._noise!r}, the accountant's"
            )
        clip = self._clip if clipping_norm is None else real("clipping_norm", clipping_norm, 1e-100, 1e100)
        q = (
            self._q
            if sampling_probability is None
            else real("sampling_probability", sampling_probability, 0.0, 1.0)
        )
        times = integer("steps", steps, 0, MAX_STEPS - self.steps)
        array = values_of("norms", norms, self._n)
        if active is not None:
            mask = np.asarray(active)
            if mask.dtype != np.bool_ or mask.shape != (self._n,):
                raise ParameterTypeError(f"active: must be a mask of shape ({self._n},)")
            array = np.where(mask, array, 0.0)
        cells = _core.find_cells(array, self._edges, clip, noise_deviation(noise, clip))
        self._histories.record(q, cells, times)

    @property
    def _n(self) -> int:
        return self._histories.num_examples

    def epsilon(self, delta: float, *, refine: int = 0) -> Floats:
        """The certified epsilon of each example at ``delta`` in [0, 1]: upper bounds, shape (num_examples,).

        Includes every numerical error; the rounding to the grid is part of it. At the default grid it costs
        at most 0.7 % in each norm above 7 % of the clipping norm, and so less than 2 % in epsilon (up to 3.3 % where
        a single draw decides and sigma is below 1: take a smaller ``resolution``). Where not even
        one draw of the example is expected in thousands of steps, the fast bounds may be some percent wider:
        ``refine`` asks the full engine (milliseconds to seconds each) about up to so many examples, the widest
        first. Sensitive: see the module's text.
        """
        delta = real("delta", delta, 0.0, 1.0)
        most = integer("refine", refine, 0)
        bounds = self._epsilons(delta, upper_edges=True, lower=most > 0)
        upper = bounds.upper
        if most:
            wide = np.flatnonzero(upper > 1.001 * bounds.lower)
            gap = upper[wide] - bounds.lower[wide]
            for row in wide[np.argsort(-gap, kind="stable")][:most].tolist():
                upper[row] = min(upper[row], self.profile(row).epsilon(delta))
        return upper

    def epsilon_bounds(self, delta: float) -> IndividualBounds:
        """Bounds on the epsilon of each example: the upper one for mu rounded up to the grid, the lower one down."""
        delta = real("delta", delta, 0.0, 1.0)
        upper = self._epsilons(delta, upper_edges=True).upper
        lower = self._epsilons(delta, upper_edges=False, lower=True).lower
        return IndividualBounds(np.minimum(lower, upper), upper)

    def delta(self, epsilon: ArrayLike) -> Floats:
        """The certified delta of each example at ``epsilon`` >= 0, one number or one for each example."""
        array = values_of("epsilon", epsilon, self._n)
        return self._deltas(array)

    def gdp_mu(self, example: int, slack: float) -> float:
        """The smallest certified mu such that the example's losses are mu-GDP up to ``slack`` in delta.

        delta(epsilon) <= delta_mu(epsilon) + slack for every epsilon >= 0, not only at some points
        (`PrivacyProfile.gdp_mu` says how). With slack = 0 only the mu without sampling is certain: sum of mu^2.
        """
        row = integer("example", example, 0, self._n - 1)
        slack = real("slack", slack, 0.0, 1.0)
        plain = math.sqrt(
            sum(count * float(self._edges[cell]) ** 2 for _, cell, count in self._steps_of(row))
        )
        plain *= 1.0 + 1e-12
        if slack == 0.0 or plain == 0.0:
            return plain
        end = float(self._epsilons(slack, True, np.array([row])).upper[0])
        if not math.isfinite(end):
            return plain

        def delta(epsilon: float) -> float:
            return float(self._deltas(np.array([epsilon]), np.array([row]))[0])

        return min(plain, gdp.smallest_mu(delta, end, slack))

    def history(self, example: int) -> Process:
        """What was recorded for one example, on the grid: a composition for `account`."""
        row = integer("example", example, 0, self._n - 1)
        items = []
        for q, cell, count in self._steps_of(row):
            # Rounded towards more privacy loss.
            noise = math.nextafter(1.0 / float(self._edges[cell]), 0.0)
            items.append((PoissonSampled(Gaussian(noise), q), count))
        return Process(items)

    def _steps_of(self, row: int) -> Iterator[tuple[float, int, int]]:
        """(sampling probability, cell, count) of one example."""
        for q in self._histories.probabilities:
            (counts,) = self._histories.rows(q, slice(row, row + 1))
            for cell in np.flatnonzero(counts).tolist():
                yield q, cell, int(counts[cell])

    def profile(self, example: int) -> PrivacyProfile:
        """The privacy profile of one example's history: delta(epsilon), trade-off curve and so on."""
        return PrivacyProfile(self.history(example), self._adjacency)

    def _profiles(self, direction: str, upper_edges: bool) -> _core.IndividualProfiles:
        probabilities = self._histories.probabilities
        key = (direction, upper_edges, tuple(probabilities))
        if key not in self._tables:
            edges = self._edges if upper_edges else np.concatenate([[0.0], self._edges[:-1]])
            pairs = [pair for q in probabilities for pair in sampled_pairs(edges, q, direction)]
            self._tables[key] = _core.IndividualProfiles(pairs)
        return self._tables[key]

    def _blocks(self, rows: NDArray[np.int64] | None) -> Iterable[tuple[slice, NDArray[Any]]]:
        """Counts of some examples at a time, all sampling probabilities side by side."""
        size = self._n if rows is None else rows.size
        for start in range(0, size, _ROWS):
            part = slice(start, min(start + _ROWS, size))
            chosen = part if rows is None else rows[part]
            blocks = [self._histories.rows(q, chosen) for q in self._histories.probabilities]
            dtype = np.result_type(*blocks)
            yield part, np.ascontiguousarray(blocks[0] if len(blocks) == 1 else np.hstack(blocks), dtype)

    def _epsilons(
        self, delta: float, upper_edges: bool, rows: NDArray[np.int64] | None = None, lower: bool = False
    ) -> IndividualBounds:
        """The worst of all directions; the lower bounds may be 0 unless they are asked for."""
        return self._worst(
            rows,
            upper_edges,
            lower,
            lambda profiles, counts, _, **wish: profiles.epsilon(counts, delta, **wish),
        )

    def _deltas(self, epsilon: Floats, rows: NDArray[np.int64] | None = None) -> Floats:
        def ask(profiles: Any, counts: Any, part: slice, **wish: Any) -> Any:
            return profiles.delta(counts, np.ascontiguousarray(epsilon[part]), **wish)

        return self._worst(rows, True, False, ask).upper

    def _worst(
        self, rows: NDArray[np.int64] | None, upper_edges: bool, lower: bool, ask: Any
    ) -> IndividualBounds:
        size = self._n if rows is None else rows.size
        out = IndividualBounds(np.zeros(size), np.zeros(size))
        if not self._histories.probabilities:
            return out
        for direction in _DIRECTIONS[self._adjacency]:
            profiles = self._profiles(direction, upper_edges)
            for part, counts in self._blocks(rows):
                # Where only upper bounds are wanted, this direction's matters above the last one's only.
                floor = None if lower else out.upper[part].copy()
                low, high, _ = ask(profiles, counts, part, floor=floor, lower=lower)
                np.maximum(out.lower[part], low, out=out.lower[part])
                np.maximum(out.upper[part], high, out=out.upper[part])
        return out

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the whole state to one file, atomically; `load` resumes from it."""
        content = {**self._settings(), **self._histories.describe()}
        ledger.write(path, _KIND, content, self._histories.streams())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote; StorageError (a ValueError) says why a file is refused."""
        content, arrays = ledger.read(path, _KIND)
        with refusing(path):
            self = cls._restore(content, content["num_examples"])
            self._histories.restore(content, arrays)
        return self

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Resume an accountant on disk, made with ``path=...``; a step that was under way is made or not.

        Raises StorageError where the directory holds none, or where another process has it open.
        """
        live = LiveHistories(path, _KIND)
        try:
            with refusing(path):
                self = cls._restore(live.settings, 0)
                if self._edges.size != live.columns:
                    raise StorageError("its counts do not fit its grid")
        except BaseException:
            live.close()
            raise
        self._histories = live
        return self

    def close(self) -> None:
        """Let go of an accountant on disk."""
        self._histories.close()

    @classmethod
    def merge(
        cls, parts: Iterable[Self], *, path: str | os.PathLike[str] | None = None, durable: bool = False
    ) -> Self:
        """One accountant for the examples of all ``parts``, in their order: shards of one data set.

        All must have the same settings and number of steps. ``path`` puts it on disk, part by part.
        """
        shards = list(parts)
        if not shards or not all(type(shard) is cls for shard in shards):
            raise ParameterTypeError(f"parts: must be one or more {cls.__name__}")
        first = shards[0]
        for shard in shards[1:]:
            if shard._settings() != first._settings():
                raise ParameterError(f"parts: settings differ: {first._settings()} and {shard._settings()}")
            if shard.steps != first.steps:
                raise ParameterError(f"parts: have made {first.steps} and {shard.steps} steps")
        histories = [shard._histories for shard in shards]
        self = cls._restore(first._settings(), 0)
        if path is None:
            self._histories = Histories.merge(histories)
        else:
            self._histories = LiveHistories.create(
                path, _KIND, self._settings(), self._edges.size, durable, histories
            )
        return self

    @classmethod
    def _restore(cls, settings: Mapping[str, Any], num_examples: int) -> Self:
        """One without steps, with the same settings."""
        names = cls(0, noise_multiplier=1, sampling_probability=0)._settings()
        return cls(num_examples, **{name: settings[name] for name in names})

    def _settings(self) -> dict[str, Any]:
        return {
            "noise_multiplier": self._noise,
            "sampling_probability": self._q,
            "clipping_norm": self._clip,
            "adjacency": self._adjacency,
            **self._grid,
        }


class ApproximateIndividualFilter:
    """An (epsilon, delta) budget for each example of a DP-SGD run; approximate, NOT a proven filter.

    An example takes part in a step only if the epsilon at ``delta`` of its history with that step, as
    `IndividualAccountant` computes it, stays at most ``epsilon``. For a history that does not depend on the
    outputs this is a guarantee. For fully adaptive steps nobody has proven it: the paper's Section 5
    proves an (epsilon, delta) only under condition (5.1) for *every* epsilon, and no amplification by
    sampling satisfies that (docs/individual.md, "The approximate filter"). `IndividualGDPFilter` (no
    amplification) and `IndividualRDPFilter` (with it, one order) are proven filters.

    >>> filt = ApproximateIndividualFilter(
    ...     2, epsilon=1.0, delta=1e-5, noise_multiplier=2.0, sampling_probability=0.02
    ... )
    >>> masks = [filt.step([0.1, 1.0]) for _ in range(2000)]
    >>> masks[0].tolist(), masks[-1].tolist()
    ([True, True], [True, False])
    >>> bool((filt.accountant.epsilon(delta=1e-5) <= 1.0).all())
    True
    """

    _RESERVES = (4096, 512, 64, 8, 0)

    def __init__(
        self,
        num_examples: int,
        *,
        epsilon: float,
        delta: float,
        noise_multiplier: float,
        sampling_probability: float,
        clipping_norm: float = 1.0,
        adjacency: str = "add_or_remove",
    ) -> None:
        self._epsilon = real("epsilon", epsilon, 0.0)
        self._delta = real("delta", delta, 0.0, 1.0)
        self._accountant = IndividualAccountant(
            num_examples,
            noise_multiplier=noise_multiplier,
            sampling_probability=sampling_probability,
            clipping_norm=clipping_norm,
            adjacency=adjacency,
        )
        # So many further steps of the largest mu fit into the budget.
        self._reserve = np.zeros(num_examples, np.int64)
        self._active: list[int] = []
        self._tables: _Tables = {}

    @property
    def accountant(self) -> IndividualAccountant:
        """The histories so far: of the steps in which each example was active."""
        return self._accountant

    def active_counts(self) -> NDArray[np.int64]:
        """Number of examples that could take part in each step so far, shape (steps,)."""
        return np.array(self._active, np.int64)

    def step(self, norms: ArrayLike) -> Mask:
        """Record one step and return who may take part in it; as in `IndividualAccountant.step`."""
        book = self._accountant
        array = values_of("norms", norms, book.num_examples)
        cells = _core.find_cells(array, book._edges, book._clip, noise_deviation(book._noise, book._clip))
        free = (cells == 0) | (book._q == 0.0)
        active: Mask = free | (self._reserve > 0)
        open_rows = np.flatnonzero(~active)
        for reserve in self._RESERVES:
            if not open_rows.size:
                break
            fits = self._fits(open_rows, cells[open_rows], reserve)
            active[open_rows[fits]] = True
            self._reserve[open_rows[fits]] = reserve + 1
            open_rows = open_rows[~fits]
        self._reserve[active & ~free] -= 1
        book._histories.record(book._q, np.where(active, cells, 0).astype(np.uint16), 1)
        self._active.append(int(active.sum()))
        return active

    def _fits(self, rows: NDArray[np.int64], cells: NDArray[np.uint16], reserve: int) -> Mask:
        """Whether this step and ``reserve`` further ones, however large, keep within the budget."""
        book = self._accountant
        trial = IndividualAccountant(rows.size, **book._settings())
        counts = np.zeros((rows.size, book._edges.size), np.uint32)
        counts += book._histories.rows(book._q, rows)
        counts[np.arange(rows.size), cells.astype(np.int64) - 1] += 1
        counts[:, -1] += np.uint32(reserve)
        trial._histories.counts[book._q] = counts
        trial._tables = self._tables
        within: Mask = trial._epsilons(self._delta, upper_edges=True).upper <= self._epsilon
        return within


@dataclass(frozen=True)
class GroupSummary:
    """The values of one group of examples: count, mean, and quantiles. Sensitive, like the values."""

    group: str
    count: int
    mean: float
    minimum: float
    lower_quartile: float
    median: float
    upper_quartile: float
    maximum: float


def summarise(values: ArrayLike, groups: ArrayLike | None = None) -> list[GroupSummary]:
    """Summaries of individual values (epsilons, say) for each of the ``groups``, a label for each example.

    Infinite values are allowed. The summaries are not private: see CAVEAT.

    >>> [(s.group, s.count, s.median) for s in summarise([1.0, 2.0, 6.0, 0.5], ["a", "a", "a", "b"])]
    [('a', 3, 2.0), ('b', 1, 0.5)]
    """
    array = np.asarray(values, np.float64)
    if array.ndim != 1:
        raise ParameterError(f"values: must be one-dimensional, not of shape {array.shape}")
    labels = np.full(array.size, "all") if groups is None else np.asarray(groups)
    if labels.shape != array.shape:
        raise ParameterError(f"groups: must have the shape {array.shape}, not {labels.shape}")
    out = []
    for label in np.unique(labels).tolist():
        chosen = np.sort(array[labels == label])
        # Order statistics: interpolation would turn infinite values into nan.
        at = [chosen[round(share * (chosen.size - 1))].item() for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
        out.append(GroupSummary(str(label), chosen.size, float(chosen.mean()), *at))
    return out


__all__ = [
    "CAVEAT",
    "ApproximateIndividualFilter",
    "GroupSummary",
    "IndividualAccountant",
    "IndividualBounds",
    "cell_edges",
    "summarise",
]
