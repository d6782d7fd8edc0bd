"""Sampling schemes: how the batches of a training run are formed, described once for every use.

A scheme says which of ``steps`` iterations an example takes part in. The same description draws
participations, gives their likelihood in Monte Carlo accounting (`BandMF`), and names the adjacency it
is analysed under: zero-out (an example is replaced by one whose gradient is zero), where P is the output with
the example and Q without. `Scheme` lists what it can do; a new one is a class here or in a file of its own, as those of `min_sep`, its
likelihood in the core, and tests. docs/montecarlo/estimates.md proves the likelihoods.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .. import _core
from .._base.types import Array, dot
from .._base.validation import (
    ParameterError,
    ParameterTypeError,
    Probability,
    Size,
    integer,
    real,
)
from ..mechanisms.allocation import RandomAllocation
from ..mechanisms.cyclic import cyclic_poisson
from ..mechanisms.descriptions import Gaussian, Process, set_fields
from ..mechanisms.truncated import TruncatedPoissonGroup
from ..sampling.attribution import AttributionGraph
from ..sampling.laws import Law
from .scheme import Scheme
from .strategy import Strategy, squared_norm

_NORM_ERROR = 1e-12
"""*Proof*: more than the relative round-off of a column's norm, so a norm times 1 + this is no less than the true one."""


def checked_rate(participation_rate: float, min_sep: int) -> tuple[float, int]:
    """Both, if an example can take part that often."""
    b = integer("min_sep", min_sep, 1)
    p0 = real("participation_rate", participation_rate, 0.0, 1.0)
    # p0 = 1/b is not a double for most b, so p0 b = 1 may come out a rounding above.
    if p0 * b > 1.0 + 1e-15 * b:
        raise ParameterError(f"participation_rate = {p0!r}: must be a number in [0, 1/{b}] for min_sep = {b}")
    return p0, b


def rounded_down(log_probability: float) -> float:
    """Less by the order of its rounding error, so that a direction is never skipped too early."""
    return log_probability * (1.0 + 1e-14) if log_probability < 0.0 else log_probability


def log_failure(probability: float) -> float:
    """ln of the probability that it does not happen."""
    return math.log1p(-probability) if probability < 1.0 else -math.inf


@dataclass(frozen=True)
class Poisson(Scheme):
    """Each example is in each batch independently with ``sampling_probability``.

    For strategies with one band (C diagonal); for more bands see `BMinSep` and `RMinSep`.
    """

    sampling_probability: Probability

    _law_kind = "poisson"
    _taking_part = "independent Poisson sampling with probability {sampling_probability!r}"
    is_analytic = True

    def largest_bands(self) -> int:
        return 1

    def no_participation_log_probability(self) -> float:
        return rounded_down(log_failure(self.sampling_probability) * self.steps)

    def composition(self, strategy: Strategy, noise_multiplier: float) -> Process:
        norms = strategy.column_norms() * (1.0 + _NORM_ERROR)
        return cyclic_poisson(norms, 1, self.sampling_probability, noise_multiplier)

    def _core(self) -> _core.Scheme:
        return _core.b_min_sep(1, self.sampling_probability, False)


@dataclass(frozen=True, repr=False)
class _Separated(Scheme):
    """Schemes under which two participations of an example are at least ``min_sep`` iterations apart."""

    min_sep: Size
    sampling_probability: Probability

    def largest_bands(self) -> int:
        return self.min_sep

    def unamplified(self) -> tuple[int, int]:
        return self.min_sep, self.examples_of_users() or 1


_CUT = ("dataset_size", "max_batch_size")


@dataclass(frozen=True, repr=False)
class CyclicPoisson(_Separated):
    """The examples are split into ``min_sep`` fixed groups, and iteration i samples group i mod ``min_sep``.

    An example is taken with ``sampling_probability`` when it is its group's turn (Choquette-Choo et al. 2024):
    ``min_sep`` times the probability that Poisson sampling needs for the same batch size. ``group`` in
    [0, min_sep) is the group of the protected example. None (default) stands for all: for a Toeplitz strategy
    that is group 0, which has the most turns and the longest columns; for others turn j has the largest norm
    of the columns j min_sep, ..., (j + 1) min_sep - 1, which dominates every group. Unless one group has all of these, nothing is
    as bad as that: then ``lower`` of `estimate_delta` is 0, and the lower ends of `account` are those of the composition that dominates
    all groups. ``group`` = 0, 1, ... gives what each of them has.

    With ``max_batch_size``, batches of more are cut to a uniformly random choice of so many, as in `TruncatedPoissonSampled`
    (Ganesh 2025): of ``dataset_size`` examples in groups whose sizes differ by at most one, and the guarantee holds for all groups
    (`TruncatedPoissonGroup`; docs/mechanisms/truncated.md, section 6). Nothing is sampled for it: `account`, not `estimate_delta`.

    >>> CyclicPoisson(1024, 32, 0.0625, dataset_size=51_200, max_batch_size=128)
    CyclicPoisson(steps=1024, min_sep=32, sampling_probability=0.0625, group=None, dataset_size=51200, max_batch_size=128)
    """

    group: int | None = None
    dataset_size: int | None = None
    max_batch_size: int | None = None

    _law_kind = "cyclic_poisson"
    _taking_part = "cyclic Poisson sampling ({min_sep} fixed groups, which take turns): each record of the group in turn by a coin of its own with probability {sampling_probability!r}"
    _unless_default = _CUT
    is_analytic = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.group is not None:
            set_fields(self, group=integer("group", self.group, 0, self.min_sep - 1))
        if (self.dataset_size is None) != (self.max_batch_size is None):
            raise ParameterTypeError("dataset_size, max_batch_size: give both (batches are cut) or neither")
        for name in _CUT:
            if getattr(self, name) is not None:
                set_fields(self, **{name: integer(name, getattr(self, name), 1)})

    @classmethod
    def of_rate(
        cls,
        steps: int,
        min_sep: int,
        participation_rate: float,
        *,
        dataset_size: int | None = None,
        max_batch_size: int | None = None,
    ) -> CyclicPoisson:
        """Return the scheme with this expected batch size (before any cut) / number of examples: ``min_sep`` times the rate per turn.

        >>> CyclicPoisson.of_rate(1024, min_sep=32, participation_rate=1 / 512).sampling_probability
        0.0625
        """
        p0, b = checked_rate(participation_rate, min_sep)
        return cls(steps, b, min(1.0, p0 * b), None, dataset_size, max_batch_size)

    def regroups(self) -> bool:
        return self.min_sep > 1

    @property
    def turns(self) -> int:
        """How many iterations sample the example's group; without a group, the largest number."""
        return max(0, -(((self.group or 0) - self.steps) // self.min_sep))

    def no_participation_log_probability(self) -> float:
        turns = self.turns
        return rounded_down(log_failure(self.sampling_probability) * turns) if turns else 0.0

    def _batch_law(self) -> Law:
        if self.group is not None:
            raise ParameterError(
                f"group = {self.group}: the examples of other groups are not accounted for; use group = None"
            )
        return super()._batch_law()

    def check_data(self, dataset_size: int, graph: AttributionGraph | None) -> None:
        if self.group is not None:
            raise ParameterError(
                f"sampling.group = {self.group}: must be None, which stands for all examples"
            )
        super().check_data(dataset_size, graph)

    def composition(self, strategy: Strategy, noise_multiplier: float) -> Process:
        norms, min_sep = strategy.column_norms() * (1.0 + _NORM_ERROR), self.min_sep
        cut = {name: value for name in _CUT if (value := getattr(self, name)) is not None}
        if self.group is not None:
            norms, min_sep = norms[self.group :: min_sep], 1
            if cut:
                cut["subset_size"] = -((self.group - cut.pop("dataset_size")) // self.min_sep)
        if not norms.size or cut.get("subset_size", 1) <= 0:
            return Process()  # a group whose turn never comes, or without an example
        return cyclic_poisson(norms, min_sep, self.sampling_probability, noise_multiplier, **cut)

    def expected_batch_size(self, dataset_size: int, graph: AttributionGraph | None = None) -> float:
        if self.max_batch_size is None:
            return super().expected_batch_size(dataset_size, graph)
        p, most = self.sampling_probability, self.max_batch_size
        return TruncatedPoissonGroup(1.0, dataset_size, p, most, groups=self.min_sep).expected_batch_size

    def _stands_for_all(self, strategy: Strategy) -> bool:
        """Whether one group of a strategy without equal columns would have to stand for all."""
        return self.group is None and strategy._columns().shape[0] > 1

    def _columns_of_turns(self, strategy: Strategy) -> list[Array]:
        """The columns of the iterations that sample the group, without what is past the last row."""
        columns, steps = strategy._columns(), strategy.steps
        turns = range(self.group or 0, steps, self.min_sep)
        return [columns[i if columns.shape[0] > 1 else 0][: steps - i] for i in turns]

    def seen_as(self, strategy: Strategy) -> tuple[Array, int]:
        """Turns are apart by more than the bands, so <c_i, y> are independent: a diagonal strategy of norms."""
        if self._stands_for_all(strategy):
            starts = np.arange(0, strategy.steps, self.min_sep)
            norms = np.asarray(np.maximum.reduceat(strategy.column_norms(), starts))
        else:
            chosen = [math.sqrt(dot(column, column)) for column in self._columns_of_turns(strategy)]
            norms = np.array(chosen or [0.0])  # a group without turns: one that shows nothing
        return norms[:, np.newaxis], len(norms)

    def losses_are_exact(self, strategy: Strategy) -> bool:
        """Whether one group has the largest column of every turn, if it stands for all."""
        if not self._stands_for_all(strategy):
            return True
        norms, largest = strategy.column_norms(), self.seen_as(strategy)[0][:, 0]
        groups = (norms[group :: self.min_sep] for group in range(self.min_sep))
        return any(np.array_equal(np.pad(group, (0, len(largest) - len(group))), largest) for group in groups)

    def seen_outputs(self, strategy: Strategy, outputs: Array) -> Array:
        """<c_i, y> / |c_i| for each turn i."""
        if self._stands_for_all(strategy):
            raise ParameterError(
                "scheme.group = None: the loss of an output needs a group, because no group of this strategy "
                "stands for all"
            )
        columns = self._columns_of_turns(strategy)
        projected = np.zeros((outputs.shape[0], max(1, len(columns))))
        for turn, column in enumerate(columns):
            first = (self.group or 0) + turn * self.min_sep
            norm = math.sqrt(dot(column, column))
            if norm > 0.0:
                projected[:, turn] = outputs[:, first : first + len(column)] @ (column / norm)
        return projected

    def adjacencies(self) -> tuple[str, ...]:
        return super().adjacencies()[: 2 if self.max_batch_size is not None else None]

    def _core(self) -> _core.Scheme:
        if self.max_batch_size is not None:
            raise ParameterError(
                f"max_batch_size = {self.max_batch_size}: truncated cyclic Poisson sampling is accounted without samples; use account"
            )
        return _core.b_min_sep(1, self.sampling_probability, False)


@dataclass(frozen=True)
class BallsInBins(Scheme):
    """Each example chooses one of ``bins`` places, uniformly, and takes part in it in every epoch.

    With place j: iterations j, j + bins, j + 2 bins, ... below ``steps``; any number of epochs, whole or not
    (Chua et al. 2025; Choquette-Choo et al. 2024). The analysis is exact for any number of bands.
    """

    bins: Size

    _law_kind = "balls_in_bins"
    _taking_part = (
        "each record in one of {bins} places, the same in every epoch, chosen uniformly by a draw of its own"
    )

    def largest_bands(self) -> int:
        return self.steps

    def no_participation_log_probability(self) -> float:
        if self.bins <= self.steps:
            return -math.inf
        if 2 * self.steps < self.bins:
            return rounded_down(math.log1p(-self.steps / self.bins))
        return rounded_down(math.log((self.bins - self.steps) / self.bins))

    def unamplified(self) -> tuple[int, int]:
        return self.bins, 1

    def cyclic_rate(self) -> float | None:
        return 1.0 / self.bins

    def has_composition(self, strategy: Strategy) -> bool:
        return strategy.bands == 1 and len(strategy._columns()) == 1 and self.steps % self.bins == 0

    def composition(self, strategy: Strategy, noise_multiplier: float) -> Process:
        """Independent noise and whole epochs: one random allocation, of the sum of what an example's place releases."""
        if not self.has_composition(strategy):
            return super().composition(strategy, noise_multiplier)
        norm = float(strategy.column_norms()[0]) * math.sqrt(self.steps // self.bins) * (1.0 + _NORM_ERROR)
        return RandomAllocation(noise_multiplier / norm * (1.0 - _NORM_ERROR), self.bins).as_process()

    def _core(self) -> _core.Scheme:
        return _core.balls_in_bins(self.bins)


_ROUNDING = 1.0 - 1e-12
"""*Proof*: less than the relative round-off of a quotient."""


@dataclass(frozen=True)
class FixedOrder(Scheme):
    """The examples are split into ``min_sep`` fixed groups, and iteration i takes all of group i mod ``min_sep``.

    Nothing is random, so nothing is amplified: the mechanism is one Gaussian release at noise_multiplier / sensitivity, for any strategy,
    the sensitivity that of participations at least ``min_sep`` steps apart. Where it is computed exactly, so is the privacy.

    >>> from hockeystick import Gaussian, account
    >>> from hockeystick.matrix import BandMF, BufferedToeplitz
    >>> strategy = BufferedToeplitz(((0.3, 0.9), (0.1, 0.5)), steps=100)
    >>> mechanism = BandMF(strategy, FixedOrder(100, min_sep=25), noise_multiplier=8.0)
    >>> account(mechanism).epsilon(1e-5) >= account(Gaussian(8.0 / strategy.sensitivity(25, 4))).epsilon(1e-5)
    True
    """

    min_sep: Size

    _law_kind = "cyclic_poisson"
    _taking_part = "all records of one of {min_sep} fixed groups, which take turns"
    is_analytic = True
    sampling_probability: ClassVar[float] = 1.0
    """Of the law of its batches: cyclic Poisson sampling that takes everybody."""

    def regroups(self) -> bool:
        return self.min_sep > 1

    def largest_bands(self) -> int:
        return self.steps

    def unamplified(self) -> tuple[int, int]:
        return self.min_sep, 1

    def composition(self, strategy: Strategy, noise_multiplier: float) -> Process:
        return (
            Gaussian(noise_multiplier / strategy.sensitivity(self.min_sep, None) * _ROUNDING) * 1
        ).as_process()

    def seen_as(self, strategy: Strategy) -> tuple[Array, int]:
        """One release of a number that moves by the sensitivity."""
        return np.array([[strategy.sensitivity(self.min_sep, None)]]), 1

    def losses_are_exact(self, strategy: Strategy) -> bool:
        """Whether one group, whose participations are x, attains the sensitivity by the norm of C x; of equal columns the first one is the largest."""
        columns, sensitivity = strategy._columns(), strategy.sensitivity(self.min_sep, None)
        groups = range(min(self.steps, 1 if len(columns) == 1 else self.min_sep))
        turns = (range(group, self.steps, self.min_sep) for group in groups)
        attained = math.sqrt(max(squared_norm(columns, self.steps, each) for each in turns))
        return attained >= sensitivity * _ROUNDING

    def seen_outputs(self, strategy: Strategy, outputs: Array) -> Array:
        raise ParameterError(
            "scheme = FixedOrder: the loss of an output needs an example's group; use account"
        )

    def _core(self) -> _core.Scheme:
        return _core.b_min_sep(1, 1.0, False)
