"""Sampling schemes: how the batches of a training run are formed, described once for every use.

A scheme says which of ``steps`` iterations an example takes part in. The same description draws
participations, gives their likelihood in Monte Carlo accounting (`BandMF`), and names the adjacency it
is analysed under: zero-out (an example is replaced by one whose gradient is zero), where P is the output with
the example and Q without. `Scheme` lists what it can do; a new one is a class here, its likelihood in the core, and tests.

The b-min-sep paper is Dong & Ganesh 2026, "Privacy Amplification for BandMF via b-Min-Sep Subsampling".
docs/montecarlo/estimates.md proves the likelihoods.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Annotated, TypeAlias

import numpy as np

from .. import _core
from .._base.randomness import Seed
from .._base.types import Array, dot
from .._base.validation import (
    Flag,
    ParameterError,
    ParameterTypeError,
    Probability,
    Size,
    choice,
    integer,
    narrowed,
    real,
)
from ..mechanisms.allocation import RandomAllocation
from ..mechanisms.cyclic import cyclic_poisson
from ..mechanisms.descriptions import Process, set_fields
from ..mechanisms.truncated import TruncatedPoissonGroup, TruncatedPoissonSampled
from ..sampling.attribution import AttributionGraph
from ..sampling.batches import BatchSampler
from ..sampling.laws import MAX_STEPS, Law
from ..sampling.sweep import expected_batch_size
from .scheme import Scheme
from .strategy import Strategy

_NORM_ERROR = 1e-12
"""*Proof*: more than the relative round-off of a column's norm, so a norm times 1 + this is no less than the true one."""

LAWS = ("dominating", "exact")

MOST_CASES = 64
"""*Speed*: most cases of one guarantee: k of them cost k^2 / 2 times what one does, seconds of bare overhead at 64 (docs/matrix/bandmf.md)."""

_Examples: TypeAlias = Annotated[int, functools.partial(integer, low=1, high=2**16)]


def b_min_sep_probability(participation_rate: float, min_sep: int) -> float:
    """Return the sampling probability p with which b-min-sep sampling has this participation rate p0.

    p = p0 / (1 - p0 (b - 1)), so that an example takes part once in (b - 1) + 1/p = 1/p0 iterations on average
    (b-min-sep paper, Section 4). ``participation_rate`` in [0, 1/b]: expected batch size / number of examples.

    >>> b_min_sep_probability(0.25, min_sep=4)
    1.0
    >>> b_min_sep_probability(1793 / 14_745_600, min_sep=256)
    0.00012548...
    """
    p0, b = _rate(participation_rate, min_sep)
    rest = math.fsum([1.0, -p0 * b, p0])  # 1 - p0 (b - 1)
    return min(1.0, p0 / rest)


def _rate(participation_rate: float, min_sep: int) -> tuple[float, int]:
    b = integer("min_sep", min_sep, 1)
    p0 = real("participation_rate", participation_rate, 0.0, 1.0)
    # p0 = 1/b is not a double for most b, so p0 b = 1 may come out a rounding above.
    if p0 * b > 1.0 + 1e-15 * b:
        raise ParameterError(f"participation_rate = {p0!r}: must be a number in [0, 1/{b}] for min_sep = {b}")
    return p0, b


def _rounded_down(log_probability: float) -> float:
    # Of the order of its rounding error, so that a direction is never skipped too early.
    return log_probability * (1.0 + 1e-14) if log_probability < 0.0 else log_probability


def _log_failure(probability: float) -> float:
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
        return _rounded_down(_log_failure(self.sampling_probability) * self.steps)

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
        p0, b = _rate(participation_rate, min_sep)
        return cls(steps, b, min(1.0, p0 * b), None, dataset_size, max_batch_size)

    def regroups(self) -> bool:
        return self.min_sep > 1

    @property
    def turns(self) -> int:
        """How many iterations sample the example's group; without a group, the largest number."""
        return max(0, -(((self.group or 0) - self.steps) // self.min_sep))

    def no_participation_log_probability(self) -> float:
        turns = self.turns
        return _rounded_down(_log_failure(self.sampling_probability) * turns) if turns else 0.0

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
            return _rounded_down(math.log1p(-self.steps / self.bins))
        return _rounded_down(math.log((self.bins - self.steps) / self.bins))

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


@dataclass(frozen=True, repr=False)
class _MinSep(_Separated):
    """What `BMinSep` and `RMinSep` share: how batches are drawn. They differ in the strategies they are for."""

    warm_start: Flag = True

    _law_kind = "b_min_sep"

    @property
    def participation_rate(self) -> float:
        """p_0 = 1 / (1/p + b - 1): the stationary probability to be in a batch."""
        return self.sampling_probability / (1.0 + (self.min_sep - 1) * self.sampling_probability)

    def no_participation_log_probability(self) -> float:
        steps, b, p = self.steps, self.min_sep, self.sampling_probability
        fail = _log_failure(p)
        if not self.warm_start:
            return _rounded_down(fail * steps)
        # Available first in iteration 1 (weight 1), or in one of the next b - 1 (weight p each).
        first = [(1.0, steps)] + [(p, steps - i) for i in range(1, min(b, steps))]
        weight = 1.0 + (b - 1) * p
        hit = math.fsum(w * -math.expm1(fail * left) for w, left in first) / weight
        if hit < 0.5:
            return _rounded_down(math.log1p(-hit))
        total = math.fsum([w * math.exp(fail * left) for w, left in first] + [p * max(0, b - steps)]) / weight
        return _rounded_down(math.log(total)) if total > 0.0 else -math.inf

    def cyclic_rate(self) -> float | None:
        return self.participation_rate if self.examples_of_users() is None else None

    def expected_batch_size(self, dataset_size: int, graph: AttributionGraph | None = None) -> float:
        return integer("dataset_size", dataset_size) * self.participation_rate

    def _core(self) -> _core.Scheme:
        return _core.b_min_sep(self.min_sep, self.sampling_probability, self.warm_start)


@dataclass(frozen=True, repr=False)
class BMinSep(_MinSep):
    """Poisson sampling of the examples that took part in none of the last ``min_sep`` - 1 iterations.

    Algorithm 1 of the b-min-sep paper, or with ``warm_start`` (default) Algorithm 2, where the state before the
    first iteration is stationary, so that every batch has the same expected size. ``min_sep`` = 1 is Poisson
    sampling, ``sampling_probability`` = 1 with a warm start is balls-in-bins with ``min_sep`` bins. The analysis
    is exact (Theorem 5.1) for strategies with at most ``min_sep`` bands.

    ``examples_per_user`` = k > 1 protects users who own at most k examples, shared with others in any way: every example
    still follows its own chain, whoever owns it, and all examples of one user are zeroed out. P = C (x^1 + ... + x^k) +
    noise with independent x^j, which dominates every user with fewer. Its likelihood is exact while the recursion
    over the states of k chains has at most 2^19 of them (`is_exact`: two examples for ``min_sep`` up to 1022, three up to 144,
    and so on); beyond that losses are upper bounds in both directions (docs/sampling/attribution.md).

    >>> BMinSep.of_rate(1024, min_sep=32, participation_rate=1 / 512).sampling_probability
    0.002079...
    """

    examples_per_user: _Examples = 1

    _unless_default = ("examples_per_user",)

    @classmethod
    def of_rate(
        cls,
        steps: int,
        min_sep: int,
        participation_rate: float,
        warm_start: bool = True,
        examples_per_user: int = 1,
    ) -> BMinSep:
        """Return the scheme with this expected batch size / number of examples; see `b_min_sep_probability`."""
        probability = b_min_sep_probability(participation_rate, min_sep)
        return cls(steps, min_sep, probability, warm_start, examples_per_user)

    @property
    def is_exact(self) -> bool:
        """Whether the losses of all ``examples_per_user`` examples together are exact, not only upper bounds."""
        # Without separation their number in a step is binomial.
        k = self.examples_per_user
        return k == 1 or self.min_sep == 1 or _core.joint_examples(self._core(), self.steps) == k

    def examples_of_users(self) -> int | None:
        return self.examples_per_user if self.examples_per_user > 1 else None

    def no_participation_log_probability(self) -> float:
        return super().no_participation_log_probability() * self.examples_per_user

    def losses_are_exact(self, strategy: Strategy) -> bool:
        return self.is_exact

    def half_space_width(self, bands: int) -> int | None:
        return None if self.examples_per_user > 1 and self.min_sep > 1 else bands + 1

    def _batch_law(self) -> Law:
        """The same seed draws the same batches whatever ``examples_per_user`` is; who owns what must be known from 2 on."""
        return (
            super()._batch_law() if self.examples_per_user == 1 else Law.of("independent_attribution", self)
        )

    def _core(self) -> _core.Scheme:
        if self.examples_per_user == 1:
            return super()._core()
        if self.min_sep == 1:
            return _core.multi_attribution(1, self.sampling_probability, self.examples_per_user, False)
        return _core.independent_b_min_sep(
            self.min_sep, self.sampling_probability, self.warm_start, self.examples_per_user
        )


@dataclass(frozen=True)
class RMinSep(_MinSep):
    """b-min-sep sampling for strategies with more bands than ``min_sep``, by an upper bound on the loss.

    Appendix B of the b-min-sep paper: with overlapping columns the recursion ignores the inner products
    <c_i, c_j> >= 0 of different participations, which gives f >= P/Q (Lemma B.1), hence losses ln P/Q that are too
    large. In direction "add" the loss is ln Q/P, and f would make it too small; there the recursion subtracts
    the largest sum of inner products that later participations can have, which gives f <= P/Q. Both are exact
    where no two participations fit into the ``steps``.
    """

    def largest_bands(self) -> int:
        return self.steps

    def losses_are_exact(self, strategy: Strategy) -> bool:
        # Participations whose columns do not meet, or only one of them.
        return self.min_sep >= min(self.steps, strategy.bands)


@dataclass(frozen=True)
class MultiAttributionBMinSep(_Separated):
    """Algorithm 3 of the b-min-sep paper, for users of at most ``examples_per_user`` examples in *closed* neighbourhoods.

    Every example is sampled in every iteration with ``sampling_probability``; it is left out if one that shares a
    user with it was sampled in the last ``min_sep`` - 1 iterations. Adjacency: all examples of one user are
    zeroed out. A warm start (batches drawn and thrown away) is covered: it only removes participations.

    **Condition**: examples that share a user have exactly the same users (`AttributionGraph.check_closed`), so that a
    user's samples exclude nobody else's examples. Elsewhere Theorem 6.1 of the paper, which this rests on, is false by any
    factor (docs/sampling/attribution.md): such graphs are refused, and `BMinSep` with ``examples_per_user`` is for them.

    ``law="dominating"`` (default) is that of Theorem 6.1: the user's examples count as barred for exactly
    ``min_sep`` - 1 iterations after one took part. ``law="exact"`` is what Algorithm 3 does: samples while barred
    extend the bar, which is much tighter. Both are the law of a user with *exactly* ``examples_per_user`` examples, and
    that fewer are safer is true for neither (a user of fewer is barred less): the guarantee is the largest
    divergence of `worst_cases`. That takes k times the samples, at k times the work each: more than 64 ``examples_per_user`` are
    drawn in batches (up to 65536), but not accounted for (ParameterError). `BMinSep`, where fewer are safer, has one case for any number.

    ``batches`` are those of Algorithm 3; ParameterError names an example and its users where a graph has an open neighbourhood.
    ``batches(..., run_ahead=n)`` draws n steps and throws them away before the first: after ``min_sep`` - 1 of them the law is
    stationary. Each example takes part at most as often as it would without them, with the same coins, so that is covered for any
    strategy.
    """

    examples_per_user: _Examples
    law: Annotated[str, functools.partial(choice, options=LAWS)] = "dominating"

    _law_kind = "multi_attribution"

    def no_participation_log_probability(self) -> float:
        return _rounded_down(_log_failure(self.sampling_probability) * self.examples_per_user * self.steps)

    def examples_of_users(self) -> int | None:
        return self.examples_per_user

    def worst_cases(self) -> tuple[Scheme, ...]:
        """Return the schemes of each number of examples up to this one; ParameterError for more than 64 of them."""
        if self.examples_per_user > MOST_CASES:
            raise ParameterError(
                f"examples_per_user = {self.examples_per_user}: must be an integer in [1, {MOST_CASES}] to be accounted for, since each "
                "smaller number takes samples of its own; bound the graph to fewer, or use BMinSep(examples_per_user=...)"
            )
        return tuple(replace(self, examples_per_user=k) for k in range(1, self.examples_per_user + 1))

    def losses_are_exact(self, strategy: Strategy) -> bool:
        # Nobody is barred for longer where nobody is barred, or until the end.
        return self.law == "exact" or self.min_sep == 1 or self.min_sep >= self.steps

    def half_space_width(self, bands: int) -> int | None:
        return bands + (min(self.min_sep, self.steps) if self.law == "exact" else 1)

    def unit(self, covered: float = math.inf) -> str:
        return f"{super().unit(covered)}, examples that share a user having exactly the same users"

    def check_data(self, dataset_size: int, graph: AttributionGraph | None) -> None:
        super().check_data(dataset_size, graph)
        narrowed(graph, AttributionGraph).check_closed()  # users are protected

    def expected_batch_size(self, dataset_size: int, graph: AttributionGraph | None = None) -> float:
        if graph is None:
            raise ParameterTypeError("graph = None: must be the attribution graph of the examples")
        return expected_batch_size(graph, self.sampling_probability, self.min_sep)

    def training_batches(self, dataset_size: int, seed: Seed, graph: AttributionGraph | None) -> BatchSampler:
        """All batches have the expected size, since the run ahead makes the law stationary; the accounting covers it."""
        ahead = min(self.min_sep - 1, MAX_STEPS - self.steps)
        return self.batches(dataset_size, seed, graph=graph, run_ahead=ahead)

    def conjectured_batches(
        self,
        dataset_size: int | None = None,
        seed: Seed = None,
        shard: tuple[int, int] = (0, 1),
        *,
        graph: AttributionGraph | None = None,
    ) -> BatchSampler:
        """Return batches by Algorithm 4: larger ones, whose privacy is CONJECTURED only, not a guarantee.

        Only examples that took part bar others, not all that were sampled. That Theorem 6.1 bounds this too is
        Conjecture 6.2 of the paper; the reports of the sampler say so. It is false where neighbourhoods are open (with
        ``min_sep`` = 2 and two steps this is Algorithm 3), so they are refused. So is ``law="exact"``, which is the law of
        Algorithm 3 and does not even bound that of a single user here.
        """
        if self.law != "dominating":
            raise ParameterError(f"law = {self.law!r}: must be 'dominating' for Algorithm 4")
        return BatchSampler(
            self, replace(self._batch_law(), conjectured=True), dataset_size, seed, shard, False, graph
        )

    def _batch_law(self, run_ahead: int = 0) -> Law:
        ahead = integer("run_ahead", run_ahead, 0, MAX_STEPS - self.steps)
        return Law.of(self._law_kind, self, run_ahead=ahead)

    def _core(self) -> _core.Scheme:
        return _core.multi_attribution(
            self.min_sep, self.sampling_probability, self.examples_per_user, self.law == "exact"
        )


@dataclass(frozen=True)
class TruncatedBMinSep(_Separated):
    """b-min-sep sampling with batches cut down to ``max_batch_size`` (Appendix D of the b-min-sep paper).

    Of more than ``max_batch_size`` sampled examples a uniformly random choice is kept; those that are not are barred
    all the same. ``dataset_size`` counts all examples, the protected one included. The analysis gives the
    adversary r_i, the number of other examples sampled in each round, and is conditional on them
    (Corollary D.2): where r_i >= max_batch_size, the example survives with probability max_batch_size/(r_i + 1),
    and then counts twice in P and, with the opposite sign, once in Q.
    """

    dataset_size: Size
    max_batch_size: Size
    warm_start: Flag = True

    _law_kind = "b_min_sep"
    truncates = True

    def no_participation_log_probability(self) -> float:
        return -math.inf

    def losses_are_exact(self, strategy: Strategy) -> bool:
        # The pair of Corollary D.2 shows more than is released.
        return self.max_batch_size >= self.dataset_size

    def half_space_width(self, bands: int) -> int | None:
        return None

    def expected_batch_size(self, dataset_size: int, graph: AttributionGraph | None = None) -> float:
        # Who is not kept is barred all the same: what is drawn does not depend on the cuts.
        rate = BMinSep(self.steps, self.min_sep, self.sampling_probability).participation_rate
        return TruncatedPoissonSampled(1.0, dataset_size, rate, self.max_batch_size).expected_batch_size

    def _core(self) -> _core.Scheme:
        return _core.truncated_b_min_sep(
            self.min_sep, self.sampling_probability, self.warm_start, self.dataset_size, self.max_batch_size
        )
