"""Individual privacy of training with random batches: (epsilon, delta) for each example by its loss distribution.

Each step of DP-SGD is, for one example, a Poisson-sampled Gaussian mechanism with mu = min(norm, C) / (sigma C),
where norm is that of the example's own gradient (Koskela, Tobaben, Honkela 2022, Section 5 and Appendix D).
An example's history is a vector of counts over a grid of values of mu, each value rounded up to the grid.
That is conservative: a sampled Gaussian of a smaller mu is a post-processing of one of a larger mu (Theorem
2 of Appendix D). Epsilon is then certified for this history; see docs/individual/individual.md, "Individual ε of DP-SGD".

Individual epsilons depend on the data of the individuals. Do not release them as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import _core
from .._base import storage
from .._base.exclusive import Guard, undivided
from .._base.files import StorageError
from .._base.lazy import warn_deprecated
from .._base.types import AnyPath, Self
from .._base.validation import ParameterError, ParameterTypeError, choice, integer, real
from ..accounting.gaussian_summary import smallest_mu
from ..accounting.profile import PrivacyProfile
from ..mechanisms.descriptions import Gaussian, PoissonSampled, Process
from . import adaptive
from .cells import cell_edges, envelope, grid_name, groups, may_be_narrow, sampled_pairs
from .histories import MAX_STEPS, Decision, Histories, Recorded
from .spending import Floats, LastStep, Mask, noise_deviation, values_of

_DIRECTIONS = {"add_or_remove": ("remove", "add"), "remove": ("remove",), "add": ("add",)}
# What is no double is rounded towards more privacy loss: min(norm, C) / (sigma C) falls with C and with sigma.
_RANGES = {
    "noise_multiplier": (0.01, 1e6, -math.inf),
    "sampling_probability": (0.0, 1.0, math.inf),
    "clipping_norm": (1e-100, 1e100, -math.inf),
}
_EPSILON, _DELTA = _core.IndividualProfiles.epsilon, _core.IndividualProfiles.delta
_SLOW = 4  # *format*: from this `Path` of the core on: a lattice, or Chernoff's bound
# *Speed*: how many examples are answered at a time, and where each has a large table.
_ROWS, _CHUNK = 2**16, 2**12
_MOMENTS = adaptive.Moments(np.exp2(np.arange(-4, 17) / 2.0), np.full(21, 1.0 / 21))
"""The orders 1.25 to 257 of `IndividualAccountant.epsilon`, fixed in advance; which ones they are is a matter of tightness only."""
_NEIGHBOURS = 12  # speed: the order, of those, by which examples of like history are found
_Tables = dict[tuple[str, bool, tuple[float, ...]], _core.IndividualProfiles]


def _renamed(name: str) -> None:
    warn_deprecated(
        f"IndividualAccountant.{name} is called nonadaptive_{name}: it holds for norms that were fixed in advance"
    )


def _checked(name: str, value: Any, default: float | None = None) -> float:
    low, high, towards = _RANGES[name]
    return default if value is None and default is not None else real(name, value, low, high, towards=towards)


class IndividualBounds(NamedTuple):
    """Certified bounds for each example: ``lower`` <= truth <= ``upper``, arrays of shape (num_examples,)."""

    lower: Floats
    upper: Floats


class IndividualAccountant(Recorded):
    """The (epsilon, delta) of each example after steps of Poisson-sampled Gaussian noise: DP-SGD.

    ``noise_multiplier`` sigma (standard deviation of the noise over the clipping norm C), ``sampling_probability``
    and ``clipping_norm`` are the defaults of `step`, and sigma the smallest that any step may use.
    ``adjacency`` is "add_or_remove" (default), "add" or "remove" of the one example. Memory: 1 kB for an
    example (2 kB from 65536 steps on), for each sampling probability in use. ``path`` keeps all of it in a
    directory, mapped into memory: for more examples than fit, and for runs that may be killed (`open` resumes);
    ``durable`` also survives a power failure. Threads may share it: one call at a time, none is lost. In a forked child every
    call raises `ForkedError`.

    `epsilon` is a guarantee whatever norms and the number of steps depend on. All that begins with ``nonadaptive`` is tighter, and a
    guarantee only for histories that do not depend on the outputs. Where gradients do, as in training, it is the established
    individual accounting by loss distributions (Yu et al. 2022; Section 5 of the paper), which does not bound adaptive steps.

    >>> accountant = IndividualAccountant(3, noise_multiplier=2.0, sampling_probability=0.01, clipping_norm=5.0)
    >>> for _ in range(1000):
    ...     accountant.step(norms=[0.0, 1.3, 80.0])
    >>> epsilon = accountant.epsilon(delta=1e-6)
    >>> bool(epsilon[0] == 0.0 < epsilon[1] < epsilon[2])
    True
    >>> bool((accountant.nonadaptive_epsilon(delta=1e-6) <= epsilon).all())
    True
    """

    _KIND = "individual accountant"
    _SETTINGS = (*_RANGES, "adjacency", "resolution", "fine", "coarse")

    def __init__(
        self,
        num_examples: int,
        *,
        noise_multiplier: float,
        sampling_probability: float,
        clipping_norm: float,
        adjacency: str = "add_or_remove",
        resolution: float = 0.007,
        fine: int = 384,
        coarse: int = 128,
        path: AnyPath | None = None,
        durable: bool = False,
    ) -> None:
        n = integer("num_examples", num_examples, 0, 2**40)
        self._noise_multiplier = _checked("noise_multiplier", noise_multiplier)
        self._sampling_probability = _checked("sampling_probability", sampling_probability)
        self._clipping_norm = _checked("clipping_norm", clipping_norm)
        self._adjacency = choice("adjacency", adjacency, list(_DIRECTIONS))
        self._resolution = real("resolution", resolution, 1e-6, 1.0)
        self._fine = integer("fine", fine, 1, 30_000)
        self._coarse = integer("coarse", coarse, 0, 30_000)
        self._edges = cell_edges(self._noise_multiplier, self._resolution, self._fine, self._coarse)
        self._state = Histories(n, self._edges.size)
        if path is not None:
            self._keep([self._state], path, durable)
        self._tables: _Tables = {}
        self._moments: dict[tuple[float, ...], Floats] = {}

    def _settings(self) -> dict[str, Any]:
        """With the grid that counts are of, which is made of the others."""
        return {**self._arguments(), "grid": grid_name(self._edges)}

    @classmethod
    def _restore(cls, settings: Mapping[str, Any]) -> Self:
        self = super()._restore(settings)
        grid = settings.get("grid")
        # Version 0.2.0 does not say, and counted on another one where the resolution was of another type than double.
        other = may_be_narrow(self._resolution) if grid is None else grid != grid_name(self._edges)
        if other:
            raise StorageError(
                f"its examples may have been counted on another grid of norms than that of resolution {self._resolution!r}, which cannot be made again"
            )
        return self

    @property
    def adjacency(self) -> str:
        """The adjacency the answers hold under."""
        return self._adjacency

    @property
    def edges(self) -> Floats:
        """The grid of mu that histories are rounded up to."""
        return np.array(self._edges)

    def __repr__(self) -> str:
        return f"IndividualAccountant({self.num_examples} examples, {self.steps} steps, adjacency={self._adjacency!r})"

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
        noise = _checked("noise_multiplier", noise_multiplier, self._noise_multiplier)
        if noise < self._noise_multiplier:
            raise ParameterError(
                f"noise_multiplier = {noise!r}: must be at least {self._noise_multiplier!r}, the accountant's"
            )
        clip = _checked("clipping_norm", clipping_norm, self._clipping_norm)
        q = _checked("sampling_probability", sampling_probability, self._sampling_probability)
        times = integer("steps", steps, 0, MAX_STEPS - self.steps)
        array = values_of("norms", norms, self.num_examples)
        if active is not None:
            mask = np.asarray(active)
            if mask.dtype != np.bool_ or mask.shape != (self.num_examples,):
                raise ParameterTypeError(f"active: must be a mask of shape ({self.num_examples},)")
            array = np.where(mask, array, 0.0)
        self._state.record(q, self._cells(array, noise, clip), times)

    def _cells(self, norms: Floats, noise_multiplier: float, clipping_norm: float) -> NDArray[np.uint16]:
        deviation = noise_deviation(noise_multiplier, clipping_norm)
        return _core.find_cells(norms, self._edges, clipping_norm, deviation)

    def epsilon(self, delta: float) -> Floats:
        """The epsilon of each example at ``delta`` in [0, 1], certified for adaptive steps: shape (num_examples,).

        E (1 - e^{epsilon - L})_+ <= delta, L the loss so far, although norms, the number of steps and this very reading may depend on
        the outputs (`adaptive`; ``delta`` may not): Rényi moments of the recorded cells at orders fixed in advance, mixed. Sensitive: see
        docs/individual/individual.md.
        """
        delta = real("delta", delta, 0.0, 1.0)
        if delta in (0.0, 1.0):
            revealed = np.zeros(self.num_examples, np.bool_)
            for part, counts in self._blocks(None):
                revealed[part] = counts @ (self._log_moments()[:, 0] > 0.0) > 0
            return np.where(revealed, math.inf if delta == 0.0 else 0.0, 0.0)
        out = np.zeros(self.num_examples)
        for part, counts in self._blocks(None):
            sums = np.empty((len(counts), _MOMENTS.at.size))
            for start in range(0, len(counts), _CHUNK):
                few = slice(start, start + _CHUNK)
                # The product is rounded by less than that.
                sums[few] = counts[few].astype(np.float64) @ self._log_moments() * (1.0 + 1e-10)
            out[part] = adaptive.spent_epsilons(sums, _MOMENTS, delta)
        return out

    def _log_moments(self) -> Floats:
        """The log-moments of each cell for all sampling probabilities, in the worse direction: shape (cells, orders)."""
        key = tuple(self._state.probabilities)
        if key not in self._moments:
            tables = [self._profiles(direction, True) for direction in _DIRECTIONS[self._adjacency]]
            found = [[table.log_moments(order) for order in _MOMENTS.at.tolist()] for table in tables]
            # Sampling only lowers them: where those of the sampled noise are not found, the plain noise's do.
            plain = 0.5 * np.multiply.outer(_MOMENTS.at * (_MOMENTS.at + 1.0), self._edges**2)
            found = np.max(found, axis=0)
            # Squares underflow: 0 is the log-moment of what reveals nothing.
            least = np.where(
                found > 0.0, np.maximum(5e-324, np.minimum(found, np.tile(plain, len(key)))), 0.0
            )
            self._moments = {key: np.ascontiguousarray(least.T * (1.0 + 1e-14))}
        return self._moments[key]

    def nonadaptive_epsilon(self, delta: float, *, accuracy: float = 0.01, refine: int = 8) -> Floats:
        """The epsilon of each example at ``delta`` in [0, 1] for norms FIXED IN ADVANCE: upper bounds, shape (num_examples,).

        A bound only if neither the norms nor the number of steps depend on the outputs. Includes every numerical error; the rounding to the grid is part of it. At the default grid it costs
        at most 0.7 % in each norm above 7 % of the clipping norm, and so less than 2 % in epsilon (up to 3.3 % where
        a single draw decides and sigma is below 1: take a smaller ``resolution``). Where hardly any draw of an example is
        expected the fast bounds may be many times too large. Those that are not known to within the share ``accuracy`` ask the full
        engine, at most ``refine`` times (0: not at all), each some 0.02 to 1 s (`python -m bench.individual rare`): up to ``refine``
        different histories are then within ``accuracy``, rounding to the grid aside; of more, neighbours share a bound, that of a
        history which dominates them. Sensitive: see docs/individual/individual.md.
        """
        delta = real("delta", delta, 0.0, 1.0)
        accuracy, most = real("accuracy", accuracy, 1e-9, 1.0), integer("refine", refine, 0)
        slow = np.zeros(self.num_examples, np.bool_)
        upper = self._worst(_EPSILON, delta, slow=slow).upper
        if most and slow.any():
            rows = np.flatnonzero(slow)
            # By which histories are neighbours: a Rényi divergence.
            weights = self._log_moments()[:, _NEIGHBOURS]
            scores = [counts.astype(np.float64) @ weights for _, counts in self._blocks(rows)]
            for members in groups(np.concatenate(scores), most):
                some = rows[members]
                upper[some] = np.minimum(upper[some], self._shared_epsilon(some, delta, accuracy))
        return upper

    def _shared_epsilon(self, rows: NDArray[np.int64], delta: float, accuracy: float) -> float:
        """An upper bound on the epsilon of all these examples; inf where the first one's is close already."""
        known = self._worst(_EPSILON, delta, rows[:1], lower=True)
        if known.upper[0] <= (1.0 + accuracy) * known.lower[0]:
            return math.inf
        probabilities = self._state.probabilities
        blocks = [
            counts.reshape(len(counts), len(probabilities), -1)
            for start in range(0, rows.size, _CHUNK)
            for _, counts in self._blocks(rows[start : start + _CHUNK])
        ]
        least = envelope(np.stack([envelope(block) for block in blocks]))
        history = [
            (q, cell, int(counts[cell]))
            for q, counts in zip(probabilities, least, strict=True)
            for cell in np.flatnonzero(counts).tolist()
        ]
        profile = PrivacyProfile(self._process_of(history), self._adjacency, min(0.1 * accuracy, 1e-3))
        return profile.epsilon(delta)

    def nonadaptive_epsilon_bounds(self, delta: float) -> IndividualBounds:
        """Bounds on `nonadaptive_epsilon`: the upper one for mu rounded up to the grid, the lower one down."""
        delta = real("delta", delta, 0.0, 1.0)
        upper = self._worst(_EPSILON, delta).upper
        lower = self._worst(_EPSILON, delta, upper_edges=False, lower=True).lower
        return IndividualBounds(np.minimum(lower, upper), upper)

    def nonadaptive_delta(self, epsilon: ArrayLike) -> Floats:
        """The delta of each example at ``epsilon`` >= 0, one number or one for each, for norms FIXED IN ADVANCE: upper bounds."""
        return self._worst(_DELTA, values_of("epsilon", epsilon, self.num_examples, towards=-math.inf)).upper

    def nonadaptive_gdp_mu(self, example: int, slack: float) -> float:
        """The smallest certified mu such that the example is mu-GDP up to ``slack`` in delta, for norms FIXED IN ADVANCE.

        delta(epsilon) <= delta_mu(epsilon) + slack for every epsilon >= 0 in both directions, whatever the adjacency, and not only at
        some points (`PrivacyProfile.gdp_mu` says how). With slack = 0 only the mu without sampling is certain: sum of mu^2.
        """
        row = integer("example", example, 0, self.num_examples - 1)
        slack = real("slack", slack, 0.0, 1.0)
        squares = sum(count * float(self._edges[cell]) ** 2 for _, cell, count in self._steps_of(row))
        plain = math.sqrt(squares) * (1.0 + 1e-12)
        if slack == 0.0 or plain == 0.0:
            return plain
        # Of one direction alone, at epsilon >= 0, no trade-off curve is above that of mu.
        both = "add_or_remove"
        end = float(self._worst(_EPSILON, slack, np.array([row]), adjacency=both).upper[0])
        if not math.isfinite(end):
            return plain

        def curve(epsilon: Floats) -> tuple[Floats, Floats]:
            upper = self._worst(_DELTA, epsilon, np.full(epsilon.size, row), adjacency=both).upper
            return np.zeros_like(upper), upper

        return smallest_mu(curve, end, slack, plain)

    def epsilon_bounds(self, delta: float) -> IndividualBounds:
        """Deprecated name of `nonadaptive_epsilon_bounds`."""
        _renamed("epsilon_bounds")
        return self.nonadaptive_epsilon_bounds(delta)

    def delta(self, epsilon: ArrayLike) -> Floats:
        """Deprecated name of `nonadaptive_delta`."""
        _renamed("delta")
        return self.nonadaptive_delta(epsilon)

    def gdp_mu(self, example: int, slack: float) -> float:
        """Deprecated name of `nonadaptive_gdp_mu`."""
        _renamed("gdp_mu")
        return self.nonadaptive_gdp_mu(example, slack)

    def history(self, example: int) -> Process:
        """What was recorded for one example, on the grid: a composition for `account`, as if it had been fixed in advance."""
        return self._process_of(self._steps_of(integer("example", example, 0, self.num_examples - 1)))

    def _process_of(self, history: Iterable[tuple[float, int, int]]) -> Process:
        items = []
        for q, cell, count in history:
            # Rounded towards more privacy loss.
            noise = math.nextafter(1.0 / float(self._edges[cell]), 0.0)
            items.append((PoissonSampled(Gaussian(noise), q), count))
        return Process(items)

    def _steps_of(self, row: int) -> Iterator[tuple[float, int, int]]:
        """(sampling probability, cell, count) of one example."""
        for q in self._state.probabilities:
            (counts,) = self._state.rows(q, slice(row, row + 1))
            for cell in np.flatnonzero(counts).tolist():
                yield q, cell, int(counts[cell])

    def profile(self, example: int) -> PrivacyProfile:
        """The privacy profile of one example's history, as if it had been fixed in advance: delta(epsilon), trade-off curve and so on."""
        return PrivacyProfile(self.history(example), self._adjacency)

    def _profiles(self, direction: str, upper_edges: bool) -> _core.IndividualProfiles:
        probabilities = self._state.probabilities
        key = (direction, upper_edges, tuple(probabilities))
        if key not in self._tables:
            edges = self._edges if upper_edges else np.concatenate([[0.0], self._edges[:-1]])
            pairs = [pair for q in probabilities for pair in sampled_pairs(edges, q, direction)]
            self._tables[key] = _core.IndividualProfiles(pairs)
        return self._tables[key]

    def _blocks(self, rows: NDArray[np.int64] | None) -> Iterable[tuple[slice, NDArray[Any]]]:
        """Counts of some examples at a time, all sampling probabilities side by side."""
        size = self.num_examples if rows is None else rows.size
        for start in range(0, size if self._state.probabilities else 0, _ROWS):
            part = slice(start, min(start + _ROWS, size))
            chosen = part if rows is None else rows[part]
            blocks = [self._state.rows(q, chosen) for q in self._state.probabilities]
            dtype = np.result_type(*blocks)
            yield part, np.ascontiguousarray(blocks[0] if len(blocks) == 1 else np.hstack(blocks), dtype)

    def _worst(
        self,
        asked: Callable[..., tuple[Floats, Floats, NDArray[np.uint8]]],
        at: float | Floats,
        rows: NDArray[np.int64] | None = None,
        *,
        upper_edges: bool = True,
        lower: bool = False,
        slow: Mask | None = None,
        adjacency: str | None = None,
    ) -> IndividualBounds:
        """The epsilons or deltas of some examples, the worst of all directions; ``asked`` is _EPSILON or _DELTA, ``at`` what it takes.

        The lower bounds may be 0 unless they are asked for. ``slow`` is set where no line served.
        """
        size = self.num_examples if rows is None else rows.size
        out = IndividualBounds(np.zeros(size), np.zeros(size))
        for direction in _DIRECTIONS[adjacency or self._adjacency]:
            for part, counts in self._blocks(rows):
                profiles = self._profiles(direction, upper_edges)
                # Where only upper bounds are wanted, this direction's matters above the last one's only.
                floor = None if lower else out.upper[part].copy()
                given = at[part] if isinstance(at, np.ndarray) else at
                low, high, path = asked(profiles, counts, given, floor=floor, lower=lower)
                if slow is not None:
                    slow[part] |= path >= _SLOW
                np.maximum(out.lower[part], low, out=out.lower[part])
                np.maximum(out.upper[part], high, out=out.upper[part])
        return out


class ApproximateIndividualFilter(Recorded):
    """An (epsilon, delta) budget for each example of a DP-SGD run; approximate, NOT a proven filter.

    An example takes part in a step only if the epsilon at ``delta`` of its history with that step, as
    `IndividualAccountant.nonadaptive_epsilon` computes it with ``refine=0``, stays at most ``epsilon``: where hits are rare that bound is
    wide, and examples leave long before their budget is used up. For a history that does not depend on the
    outputs this is a guarantee. For fully adaptive steps nobody has proven it: the paper's Section 5
    proves an (epsilon, delta) only under condition (5.1) for *every* epsilon, and no amplification by
    sampling satisfies that (docs/individual/individual.md, "The approximate filter"). `IndividualGDPFilter` (no
    amplification) and `IndividualRDPFilter` (with it, one order) are proven filters.

    ``path`` keeps it in a directory, as it does for `IndividualAccountant`, and `open` resumes: the histories, and what
    was decided in the last step, so that a resumed run decides what the uninterrupted one would have. Threads may share it: one
    call at a time, none is lost. In a forked child every call raises `ForkedError`.

    >>> filt = ApproximateIndividualFilter(
    ...     2, epsilon=1.0, delta=1e-5, noise_multiplier=2.0, sampling_probability=0.02, clipping_norm=1.0
    ... )
    >>> masks = [filt.step([0.1, 1.0]) for _ in range(2000)]
    >>> masks[0].tolist(), masks[-1].tolist()
    ([True, True], [True, False])
    >>> bool((filt.accountant.nonadaptive_epsilon(delta=1e-5) <= 1.0).all())
    True
    """

    _KIND = "approximate individual filter"
    _MISSED = storage.RELEASED
    _RESERVES = (4096, 512, 64, 8, 0)

    def __init__(
        self,
        num_examples: int,
        *,
        epsilon: float,
        delta: float,
        noise_multiplier: float,
        sampling_probability: float,
        clipping_norm: float,
        adjacency: str = "add_or_remove",
        path: AnyPath | None = None,
        durable: bool = False,
    ) -> None:
        accountant = IndividualAccountant(
            num_examples,
            noise_multiplier=noise_multiplier,
            sampling_probability=sampling_probability,
            clipping_norm=clipping_norm,
            adjacency=adjacency,
        )
        self._start(accountant, epsilon, delta)
        if path is not None:
            self._keep([self._state], path, durable)

    def _start(self, accountant: IndividualAccountant, epsilon: float, delta: float) -> None:
        self._epsilon = real("epsilon", epsilon, 0.0)
        self._delta = real("delta", delta, 0.0, 1.0)
        self._accountant = accountant
        self._state.decision = Decision.none(accountant.num_examples)
        self._tables: _Tables = {}

    @property
    def _guard(self) -> Guard:
        return self._accountant._guard  # they share their histories

    @property
    def _state(self) -> Histories:
        return self._accountant._state

    @_state.setter
    def _state(self, histories: Histories) -> None:
        self._accountant._state = histories

    @property
    def accountant(self) -> IndividualAccountant:
        """The histories so far: of the steps in which each example was active. To be asked, not to be added to."""
        return self._accountant

    @property
    def last_step(self) -> LastStep | None:
        """The last step that was recorded, with its mask; None before the first.

        A run that is killed after a step was recorded and before its result was saved takes the mask from
        here and repeats the step with the same batch and noise: it is the same release, and is not charged twice.
        """
        self._state.check_open()
        return LastStep(self.steps, None, self._decision.active.copy()) if self.steps else None

    def active_counts(self) -> NDArray[np.int64]:
        """Number of examples that could take part in each step so far, shape (steps,)."""
        self._state.check_open()
        return np.array(self._state.active_counts[: self.steps], np.int64)

    def __repr__(self) -> str:
        return (
            f"ApproximateIndividualFilter({self.num_examples} examples, epsilon={self._epsilon!r}, "
            f"delta={self._delta!r}, {self.steps} steps)"
        )

    @undivided
    def step(self, norms: ArrayLike) -> Mask:
        """Record one step and return who may take part in it; as in `IndividualAccountant.step`."""
        book = self._accountant
        array = values_of("norms", norms, book.num_examples)
        cells = book._cells(array, book._noise_multiplier, book._clipping_norm)
        free = (cells == 0) | (book._sampling_probability == 0.0)
        reserve = self._decision.reserve.copy()
        active: Mask = free | (reserve > 0)
        open_rows = np.flatnonzero(~active)
        for start in range(0, open_rows.size, _ROWS):
            self._decide(open_rows[start : start + _ROWS], cells, active, reserve)
        reserve[active & ~free] -= 1
        # All of it or nothing: the decision counts when the step does.
        taken = np.where(active, cells, 0).astype(np.uint16)
        self._state.record(book._sampling_probability, taken, 1, Decision(active, reserve))
        return np.array(active, np.bool_)

    @property
    def _decision(self) -> Decision:
        return self._state.decision or Decision.none(self.num_examples)

    def _decide(
        self, rows: NDArray[np.int64], cells: NDArray[np.uint16], active: Mask, reserve: NDArray[np.uint16]
    ) -> None:
        """Find out who of these can take part, and for how many steps."""
        book = self._accountant
        counts = np.zeros((rows.size, book._edges.size), np.uint32)
        counts += book._state.rows(book._sampling_probability, rows)
        counts[np.arange(rows.size), cells[rows].astype(np.int64) - 1] += 1
        for further in self._RESERVES:
            if not rows.size:
                return
            fits = self._fits(counts, further)
            active[rows[fits]] = True
            reserve[rows[fits]] = further + 1
            rows, counts = rows[~fits], counts[~fits]

    def _fits(self, counts: NDArray[np.uint32], further: int) -> Mask:
        """Whether these histories and ``further`` steps, however large, keep within the budget."""
        book = self._accountant
        trial = IndividualAccountant(len(counts), **book._arguments())
        full = counts.copy()
        full[:, -1] += np.uint32(further)
        trial._state.counts[book._sampling_probability] = full
        trial._tables = self._tables
        upper = trial._worst(_EPSILON, self._delta).upper
        return np.asarray(upper <= self._epsilon, np.bool_)

    @classmethod
    def _restore(cls, settings: Mapping[str, Any]) -> Self:
        self = cls.__new__(cls)
        accountant = IndividualAccountant._restore(settings)
        self._start(accountant, settings["epsilon"], settings["delta"])
        return self

    def _settings(self) -> dict[str, Any]:
        return {"epsilon": self._epsilon, "delta": self._delta, **self._accountant._settings()}
