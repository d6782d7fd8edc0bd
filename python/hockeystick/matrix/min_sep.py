"""b-min-sep sampling: who takes part is barred for a while; for strategies of more bands, for users, and with batches cut.

The paper is Dong & Ganesh 2026, "Privacy Amplification for BandMF via b-Min-Sep Subsampling"; docs/montecarlo/estimates.md proves the likelihoods.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Annotated, TypeAlias

from .. import _core
from .._base.randomness import Seed
from .._base.validation import Flag, ParameterError, ParameterTypeError, Size, choice, integer, narrowed
from ..mechanisms.truncated import TruncatedPoissonSampled
from ..sampling.attribution import AttributionGraph
from ..sampling.batches import BatchSampler
from ..sampling.laws import MAX_STEPS, Law
from ..sampling.sweep import expected_batch_size
from .scheme import Scheme
from .schemes import _Separated, checked_rate, log_failure, rounded_down
from .strategy import Strategy

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
    p0, b = checked_rate(participation_rate, min_sep)
    rest = math.fsum([1.0, -p0 * b, p0])  # 1 - p0 (b - 1)
    return min(1.0, p0 / rest)


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
        fail = log_failure(p)
        if not self.warm_start:
            return rounded_down(fail * steps)
        # Available first in iteration 1 (weight 1), or in one of the next b - 1 (weight p each).
        first = [(1.0, steps)] + [(p, steps - i) for i in range(1, min(b, steps))]
        weight = 1.0 + (b - 1) * p
        hit = math.fsum(w * -math.expm1(fail * left) for w, left in first) / weight
        if hit < 0.5:
            return rounded_down(math.log1p(-hit))
        total = math.fsum([w * math.exp(fail * left) for w, left in first] + [p * max(0, b - steps)]) / weight
        return rounded_down(math.log(total)) if total > 0.0 else -math.inf

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
    law: Annotated[str, functools.partial(choice, options=("dominating", "exact"))] = "dominating"

    _law_kind = "multi_attribution"

    def no_participation_log_probability(self) -> float:
        return rounded_down(log_failure(self.sampling_probability) * self.examples_per_user * self.steps)

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
