"""Sampling schemes: how the batches of a training run are formed, described once for every use.

A scheme says which of ``steps`` iterations an example takes part in. The same description draws
participations, gives their likelihood in Monte Carlo accounting (`BandMF`), and names the adjacency it
is analysed under: zero-out (an example is replaced by one whose gradient is zero), where P is the output with
the example and Q without.

The b-min-sep paper is Dong & Ganesh 2026, "Privacy Amplification for BandMF via b-Min-Sep Subsampling".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from .. import _core
from .._base.randomness import Seed
from .._base.validation import MAX_COUNT, ParameterError, boolean, choice, integer, real
from ..mechanisms.descriptions import set_fields
from ..sampling.attribution import AttributionGraph
from ..sampling.batches import MAX_STEPS, BatchSampler, Law
from .scheme import Scheme

LAWS = ("dominating", "exact")


def b_min_sep_probability(participation_rate: float, min_sep: int) -> float:
    """Return the sampling probability p with which b-min-sep sampling has this participation rate p0.

    p = p0 / (1 - p0 (b - 1)), so that an example takes part once in (b - 1) + 1/p = 1/p0 iterations on average
    (b-min-sep paper, Section 4). ``participation_rate`` in [0, 1/b]: expected batch size / number of examples.

    >>> b_min_sep_probability(0.25, min_sep=4)
    1.0
    >>> b_min_sep_probability(1793 / 14_745_600, min_sep=256)
    0.00012548...
    """
    b = integer("min_sep", min_sep, 1)
    p0 = real("participation_rate", participation_rate, 0.0, 1.0)
    rest = math.fsum([1.0, -p0 * b, p0])  # 1 - p0 (b - 1)
    # p0 = 1/b is not a double for most b, so p = 1 may come out a rounding above.
    if p0 * b > 1.0 + 1e-15 * b:
        raise ParameterError(f"participation_rate = {p0!r}: must be a number in [0, 1/{b}] for min_sep = {b}")
    return min(1.0, p0 / rest)


def _rounded_down(log_probability: float) -> float:
    # Of the order of its rounding error, so that a direction is never skipped too early.
    return log_probability * (1.0 + 1e-14) if log_probability < 0.0 else log_probability


def _log_failure(probability: float) -> float:
    return math.log1p(-probability) if probability < 1.0 else -math.inf


def _common(scheme: Poisson | CyclicPoisson | _MinSep | MultiAttributionBMinSep) -> None:
    set_fields(
        scheme,
        steps=integer("steps", scheme.steps, 1, MAX_STEPS),
        sampling_probability=real("sampling_probability", scheme.sampling_probability, 0.0, 1.0),
    )


def _min_sep_law(scheme: _MinSep | TruncatedBMinSep) -> Law:
    names = ("min_sep", "sampling_probability", "warm_start")
    return Law("b_min_sep", scheme.steps, {name: getattr(scheme, name) for name in names})


def _b_min_sep_none(steps: int, min_sep: int, probability: float, warm_start: bool) -> float:
    fail = _log_failure(probability)
    if not warm_start:
        return fail * steps
    # Available first in iteration 1 (weight 1), or in one of the next b - 1 (weight p each).
    later = range(1, min(min_sep, steps))
    total = math.fsum(
        [math.exp(fail * steps)]
        + [probability * math.exp(fail * (steps - i)) for i in later]
        + [probability * max(0, min_sep - steps)]
    )
    total /= 1.0 + (min_sep - 1) * probability
    return math.log(total) if total > 0.0 else -math.inf


@dataclass(frozen=True)
class Poisson(Scheme):
    """Each example is in each batch independently with ``sampling_probability``.

    For strategies with one band (C diagonal); for more bands see `BMinSep` and `RMinSep`.
    """

    steps: int
    sampling_probability: float

    def __post_init__(self) -> None:
        _common(self)

    def largest_bands(self) -> int:
        return 1

    def no_participation_log_probability(self) -> float:
        return _rounded_down(_log_failure(self.sampling_probability) * self.steps)

    def _batch_law(self) -> Law:
        return Law("poisson", self.steps, {"sampling_probability": self.sampling_probability})

    def _core(self) -> _core.Scheme:
        return _core.b_min_sep(1, self.sampling_probability, False)


@dataclass(frozen=True)
class CyclicPoisson(Scheme):
    """The examples are split into ``min_sep`` fixed groups, and iteration i samples group i mod ``min_sep``.

    An example is taken with ``sampling_probability`` when it is its group's turn (Choquette-Choo et al. 2024):
    ``min_sep`` times the probability that Poisson sampling needs for the same batch size. ``group`` in
    [0, min_sep) is the group of the protected example. None (default) stands for all: for a Toeplitz strategy
    that is group 0, which has the most turns and the longest columns; for others turn j has the largest norm
    of the columns j min_sep, ..., (j + 1) min_sep - 1, which dominates every group.
    """

    steps: int
    min_sep: int
    sampling_probability: float
    group: int | None = None

    def __post_init__(self) -> None:
        _common(self)
        set_fields(self, min_sep=integer("min_sep", self.min_sep, 1))
        if self.group is not None:
            set_fields(self, group=integer("group", self.group, 0, self.min_sep - 1))

    @classmethod
    def of_rate(cls, steps: int, min_sep: int, participation_rate: float) -> CyclicPoisson:
        """Return the scheme with this expected batch size / number of examples: ``min_sep`` times the rate per turn.

        >>> CyclicPoisson.of_rate(1024, min_sep=32, participation_rate=1 / 512).sampling_probability
        0.0625
        """
        b = integer("min_sep", min_sep, 1)
        p0 = real("participation_rate", participation_rate, 0.0, 1.0)
        # 1/b is not a double for most b, so its multiple may come out a rounding above 1.
        if p0 * b > 1.0 + 1e-15 * b:
            raise ParameterError(
                f"participation_rate = {p0!r}: must be a number in [0, 1/{b}] for min_sep = {b}"
            )
        return cls(steps, b, min(1.0, p0 * b))

    @property
    def turns(self) -> int:
        """How many iterations sample the example's group; without a group, the largest number."""
        return max(0, -(((self.group or 0) - self.steps) // self.min_sep))

    def largest_bands(self) -> int:
        return self.min_sep

    def no_participation_log_probability(self) -> float:
        turns = self.turns
        return _rounded_down(_log_failure(self.sampling_probability) * turns) if turns else 0.0

    def _batch_law(self) -> Law:
        if self.group is not None:
            raise ParameterError(
                f"group = {self.group}: the examples of other groups are not accounted for; use group = None"
            )
        return Law(
            "cyclic_poisson",
            self.steps,
            {"min_sep": self.min_sep, "sampling_probability": self.sampling_probability},
        )

    def _core(self) -> _core.Scheme:
        return _core.b_min_sep(1, self.sampling_probability, False)


@dataclass(frozen=True)
class BallsInBins(Scheme):
    """Each example chooses one of ``bins`` places, uniformly, and takes part in it in every epoch.

    With place j: iterations j, j + bins, j + 2 bins, ... below ``steps``; any number of epochs, whole or not
    (Chua et al. 2025; Choquette-Choo et al. 2024). The analysis is exact for any number of bands.
    """

    steps: int
    bins: int

    def __post_init__(self) -> None:
        set_fields(self, steps=integer("steps", self.steps, 1, MAX_STEPS), bins=integer("bins", self.bins, 1))

    def largest_bands(self) -> int:
        return self.steps

    def unamplified(self) -> tuple[int, int]:
        return self.bins, 1

    def cyclic_rate(self) -> float | None:
        return 1.0 / self.bins

    def no_participation_log_probability(self) -> float:
        if self.bins <= self.steps:
            return -math.inf
        return _rounded_down(math.log((self.bins - self.steps) / self.bins))

    def _batch_law(self) -> Law:
        return Law("balls_in_bins", self.steps, {"bins": self.bins})

    def _core(self) -> _core.Scheme:
        return _core.balls_in_bins(self.bins)


@dataclass(frozen=True)
class _MinSep(Scheme):
    """What `BMinSep` and `RMinSep` share: how batches are drawn. They differ in the strategies they are for."""

    steps: int
    min_sep: int
    sampling_probability: float
    warm_start: bool = True

    def __post_init__(self) -> None:
        _common(self)
        set_fields(
            self,
            min_sep=integer("min_sep", self.min_sep, 1),
            warm_start=boolean("warm_start", self.warm_start),
        )

    @property
    def participation_rate(self) -> float:
        """p_0 = 1 / (1/p + b - 1): the stationary probability to be in a batch."""
        return self.sampling_probability / (1.0 + (self.min_sep - 1) * self.sampling_probability)

    def cyclic_rate(self) -> float | None:
        return self.participation_rate if self.examples_of_users() is None else None

    def no_participation_log_probability(self) -> float:
        return _rounded_down(
            _b_min_sep_none(self.steps, self.min_sep, self.sampling_probability, self.warm_start)
        )

    def _batch_law(self) -> Law:
        return _min_sep_law(self)

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

    examples_per_user: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, examples_per_user=integer("examples_per_user", self.examples_per_user, 1, 2**16))

    def __repr__(self) -> str:
        owners = "" if self.examples_per_user == 1 else f", examples_per_user={self.examples_per_user}"
        return (
            f"BMinSep(steps={self.steps}, min_sep={self.min_sep}, sampling_probability="
            f"{self.sampling_probability}, warm_start={self.warm_start}{owners})"
        )

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

    def largest_bands(self) -> int:
        return self.min_sep

    def examples_of_users(self) -> int | None:
        return self.examples_per_user if self.examples_per_user > 1 else None

    def losses_are_exact(self, bands: int) -> bool:
        return self.is_exact

    def half_space_width(self, bands: int) -> int | None:
        return None if self.examples_per_user > 1 and self.min_sep > 1 else bands + 1

    def no_participation_log_probability(self) -> float:
        return super().no_participation_log_probability() * self.examples_per_user

    def batches(
        self,
        dataset_size: int | None = None,
        seed: Seed = None,
        shard: tuple[int, int] = (0, 1),
        *,
        pad: bool = False,
        graph: AttributionGraph | None = None,
    ) -> BatchSampler:
        """Return the batches of a run; with ``examples_per_user`` > 1 of the examples of any ``graph`` of who owns what.

        The same seed draws the same batches whatever ``examples_per_user`` is. Raises ParameterError for a graph in which
        a user has more examples than were accounted; `AttributionGraph.bound` leaves so many.
        """
        return BatchSampler(self, self._batch_law(), dataset_size, seed, shard, pad, graph)

    def _batch_law(self) -> Law:
        law = super()._batch_law()
        if self.examples_per_user == 1:
            return law
        owned = {**law.parameters, "examples_per_user": self.examples_per_user}
        return replace(law, kind="independent_attribution", parameters=owned)

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

    def unamplified(self) -> tuple[int, int]:
        return self.min_sep, 1

    def losses_are_exact(self, bands: int) -> bool:
        # Participations whose columns do not meet, or only one of them.
        return self.min_sep >= min(self.steps, bands)


@dataclass(frozen=True)
class MultiAttributionBMinSep(Scheme):
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
    divergence of `worst_cases`.
    """

    steps: int
    min_sep: int
    sampling_probability: float
    examples_per_user: int
    law: str = "dominating"

    def __post_init__(self) -> None:
        _common(self)
        set_fields(
            self,
            min_sep=integer("min_sep", self.min_sep, 1),
            examples_per_user=integer("examples_per_user", self.examples_per_user, 1, 2**16),
            law=choice("law", self.law, LAWS),
        )

    def largest_bands(self) -> int:
        return self.min_sep

    def no_participation_log_probability(self) -> float:
        return _rounded_down(_log_failure(self.sampling_probability) * self.examples_per_user * self.steps)

    def examples_of_users(self) -> int | None:
        return self.examples_per_user

    def half_space_width(self, bands: int) -> int | None:
        return bands + (min(self.min_sep, self.steps) if self.law == "exact" else 1)

    def unit(self) -> str:
        return f"{super().unit()}, examples that share a user having exactly the same users"

    def worst_cases(self) -> tuple[Scheme, ...]:
        """Return the schemes of each number of examples up to this one."""
        return tuple(replace(self, examples_per_user=k) for k in range(1, self.examples_per_user + 1))

    def batches(
        self,
        dataset_size: int | None = None,
        seed: Seed = None,
        shard: tuple[int, int] = (0, 1),
        *,
        pad: bool = False,
        graph: AttributionGraph | None = None,
        run_ahead: int = 0,
    ) -> BatchSampler:
        """Return batches by Algorithm 3 of the examples of ``graph``, in which no user has more than was accounted.

        Raises ParameterError, naming an example and its users, for a graph with an open neighbourhood.
        ``run_ahead`` steps are drawn and thrown away before the first: after ``min_sep`` - 1 of them the law is
        stationary. Each takes part at most as often as it would without them, with the same coins, so that is covered
        for any strategy. For a `BoundedAttribution`, take its ``graph``; its ``examples[batch]`` are the
        indices in the dataset.
        """
        law = self._batch_law(integer("run_ahead", run_ahead, 0, MAX_STEPS - self.steps))
        return BatchSampler(self, law, dataset_size, seed, shard, pad, graph)

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
        return Law(
            "multi_attribution",
            self.steps,
            {
                "min_sep": self.min_sep,
                "sampling_probability": self.sampling_probability,
                "examples_per_user": self.examples_per_user,
                "run_ahead": run_ahead,
            },
        )

    def _core(self) -> _core.Scheme:
        return _core.multi_attribution(
            self.min_sep, self.sampling_probability, self.examples_per_user, self.law == "exact"
        )


@dataclass(frozen=True)
class TruncatedBMinSep(Scheme):
    """b-min-sep sampling with batches cut down to ``max_batch_size`` (Appendix D of the b-min-sep paper).

    Of more than ``max_batch_size`` sampled examples a uniformly random choice is kept; those that are not are barred
    all the same. ``dataset_size`` counts all examples, the protected one included. The analysis gives the
    adversary r_i, the number of other examples sampled in each round, and is conditional on them
    (Corollary D.2): where r_i >= max_batch_size, the example survives with probability max_batch_size/(r_i + 1),
    and then counts twice in P and, with the opposite sign, once in Q.
    """

    steps: int
    min_sep: int
    sampling_probability: float
    dataset_size: int
    max_batch_size: int
    warm_start: bool = True

    def __post_init__(self) -> None:
        set_fields(
            self,
            steps=integer("steps", self.steps, 1, MAX_STEPS),
            min_sep=integer("min_sep", self.min_sep, 1),
            sampling_probability=real("sampling_probability", self.sampling_probability, 0.0, 1.0),
            dataset_size=integer("dataset_size", self.dataset_size, 1, MAX_COUNT),
            max_batch_size=integer("max_batch_size", self.max_batch_size, 1),
            warm_start=boolean("warm_start", self.warm_start),
        )

    truncates = True

    def largest_bands(self) -> int:
        return self.min_sep

    def unamplified(self) -> tuple[int, int]:
        # Corollary D.2: where the batch is cut, 2 on one side and -1 on the other.
        return self.min_sep, 3

    def half_space_width(self, bands: int) -> int | None:
        return None

    def no_participation_log_probability(self) -> float:
        return -math.inf

    def _batch_law(self) -> Law:
        return replace(_min_sep_law(self), dataset_size=self.dataset_size, max_batch_size=self.max_batch_size)

    def _core(self) -> _core.Scheme:
        return _core.truncated_b_min_sep(
            self.min_sep,
            self.sampling_probability,
            self.warm_start,
            self.dataset_size,
            self.max_batch_size,
        )


__all__ = [
    "LAWS",
    "BMinSep",
    "BallsInBins",
    "CyclicPoisson",
    "MultiAttributionBMinSep",
    "Poisson",
    "RMinSep",
    "Scheme",
    "TruncatedBMinSep",
    "b_min_sep_probability",
]
