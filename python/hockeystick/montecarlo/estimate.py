"""Monte Carlo estimates of delta, with a confidence interval.

delta(epsilon) is the mean of max(0, 1 - e^{epsilon - L}), L the privacy loss of a sample (Wang et al.
2023). A finite sample gives an estimate and an interval that holds with a stated confidence, never a
guarantee: the functions here say so in their names. What turns samples into a guarantee is
`calibrate_bandmf`.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import numpy as np

from .. import _core
from .._base import storage
from .._base.arrays import Array
from .._base.bounds import Bounds, round_down, round_up
from .._base.executors import checked
from .._base.payoffs import Composed
from .._base.validation import ParameterError, ParameterTypeError, choice, integer, real
from ..accounting.profile import account
from ..mechanisms.descriptions import (
    ApproximateDP,
    Composable,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    PoissonSampled,
    Process,
    PureDP,
    RandomizedResponse,
    composition,
)
from .bounded import BoundedValues
from .confidence import checked_confidence, mean_interval
from .half_space import (
    HalfSpace,
    HalfSpaceProposal,
    HalfSpaceValues,
    certain_bound,
    half_space,
    tune_half_space,
)
from .tally import Progress, Tally, digest, run
from .tilted import Proposal, TiltedValues, orders, tune_proposal
from .truncation import GivenCounts, Tilting, tilting

ADJACENCIES = ("zero_out", "add_or_remove", "add", "remove")
METHODS = ("auto", "plain", "tilted")

_LOSS_ERROR, _EXPONENT_ERROR = 1e-9, 1e-12
"""More than the round-off of a computed privacy loss, absolute and relative to the exponents it is made of:
delta is evaluated that much below epsilon."""

_MAX_SEED = 2**63 - 1
MOST_SAMPLES = 10**13
"""Most samples of one estimate: at a million a second a quarter of a year. Longer runs are made of `sample_blocks`."""
_FEW = 512
"""Samples that are not worth a pilot."""
_CURVE_ACCURACY, _CURVE_ERROR, _CURVE_END, _MOST_NODES = 1e-4, 3e-3, 1e-13, 1000
_SAME_UNDER_ZERO_OUT = (
    Gaussian,
    Laplace,
    DiscreteLaplace,
    DiscreteGaussian,
    RandomizedResponse,
    PureDP,
    ApproximateDP,
    PoissonSampled,
)
_ROUND_OFF = 1e-12


class Blocks(Protocol):
    """Samples of the privacy loss, in blocks that depend on nothing but the seed and their index."""

    @property
    def block_size(self) -> int:
        """Samples per block."""

    def losses(self, seed: int, first_block: int, blocks: int) -> Array:
        """The losses of those blocks, in order."""

    def delta_sums(self, seed: int, epsilons: Array, first_block: int, blocks: int) -> tuple[Array, Array]:
        """Sums over each block of max(0, 1 - e^{epsilon - L}), and of its square: (epsilons, blocks)."""


class Sampled(Protocol):
    """A mechanism that is accounted by sampling its privacy loss."""

    @property
    def no_participation_log_probability(self) -> float:
        """A lower bound on ln P/Q: ln of the probability that the example never takes part."""

    def _blocks(self, direction: str) -> Blocks: ...


@dataclass(frozen=True)
class DirectionEstimate:
    """One of the two directions of one of the mechanism's ``worst_cases``, which ``case`` counts from 0.

    ``samples`` is 0 where delta is known to be 0. ``method`` is "plain" or "tilted".
    """

    direction: str
    estimate: float
    lower: float
    upper: float
    samples: int
    case: int = 0
    method: str = "plain"


@dataclass(frozen=True)
class DeltaEstimate:
    """An estimate of delta at ``epsilon``, not a guarantee; made by `estimate_delta`.

    ``lower`` <= delta <= ``upper`` with probability at least ``confidence`` over the samples. The numbers are
    the largest over the ``directions``; ``samples`` is that of each direction.
    """

    epsilon: float
    estimate: float
    lower: float
    upper: float
    confidence: float
    samples: int
    seed: int
    adjacency: str
    method: str
    directions: tuple[DirectionEstimate, ...]

    def statement(self) -> str:
        """One sentence that says what was found, and that it is an estimate."""
        return (
            f"Monte Carlo estimate from {self.samples} samples per direction (seed {self.seed}): "
            f"delta({self.epsilon!r}) is about {self.estimate:.4g}, and within "
            f"[{round_down(self.lower)}, {round_up(self.upper)}] with confidence {self.confidence!r}. "
            f'Adjacency: "{self.adjacency}". This is an estimate, not a guarantee.'
        )


def estimate_delta(
    mechanism: Sampled,
    epsilon: float,
    samples: int,
    seed: int | None = None,
    method: str = "auto",
    *,
    adjacency: str = "zero_out",
    confidence: float = 0.99,
    composed_with: Composable | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> DeltaEstimate:
    """Estimate delta at ``epsilon`` >= 0 from ``samples`` privacy losses of a `BandMF` mechanism.

    The number of samples (in each direction, rounded up to whole blocks) is fixed before the first one
    is drawn, and the interval holds with the stated ``confidence`` for that number only: do not ask
    again with another ``seed`` until the answer pleases. Each direction gets its share of the failure
    probability; "add" is not sampled where epsilon is at least minus the logarithm of the probability
    that the example never takes part, since delta is exactly 0 there. The round-off of the losses is
    included. The losses of `RMinSep` with more bands than ``min_sep``, and of `BMinSep` with more
    ``examples_per_user`` than it is exact for, are bounds: the estimate is that of something
    larger than delta, and ``lower`` is 0.

    The default ``adjacency`` "zero_out" is the one that BandMF is analysed under; where the presence of
    an example does not change what happens to others (all schemes but the truncated one and those that
    protect users), "add_or_remove" is the same, and "add" and "remove" are its directions.

    ``composed_with`` is anything `account` takes, released as well: the loss L of a sample leaves
    epsilon - L to it, whose certified delta there is averaged (upper bounds for the estimate and
    ``upper``, lower bounds for ``lower``).

    ``checkpoint`` is a directory for what is done so far: the same call resumes there, with
    bit-identical results. ``progress`` is called with the number of samples done and that of all.
    ``executor`` is any `concurrent.futures.Executor`, whose workers draw the blocks: the same result, bit for
    bit (docs/montecarlo/executors.md).
    ``seed`` None draws one from the operating system; the result records it.

    ``method`` "plain" averages over outputs of the mechanism itself: the number of samples it takes grows like
    1/delta. "tilted" is importance sampling (docs/montecarlo/tilted.md): outputs are drawn where the loss is large,
    with weights below a known bound, and the number of samples hardly depends on delta. Pilot samples, from
    random streams of their own (some ten thousand), choose how. For direction "remove" it needs
    an exact density and a table (`BMinSep` with one example per user, `Poisson`, `CyclicPoisson`,
    `BallsInBins`, `MultiAttributionBMinSep` with the default law). For "add" outputs come from a half space that contains all that count, for
    every scheme but `TruncatedBMinSep` and `BMinSep` with ``examples_per_user`` > 1, and without ``composed_with``: of much use for few independent participations, and
    where the half space alone proves delta to be small, nothing is drawn. `TruncatedBMinSep`, without ``composed_with``: where
    truncation is rare the scheme without it is sampled, and what truncation adds is added to ``upper``; otherwise both
    directions are sampled given the public counts. ParameterError where no direction can be
    tilted. "auto" (default) takes, for each direction, what the pilot expects to give the shorter interval, and "plain"
    for fewer than 512 samples.
    """
    epsilon = real("epsilon", epsilon, 0.0)
    samples = integer("samples", samples, 1, MOST_SAMPLES)
    method = choice("method", method, METHODS)
    confidence = checked_confidence(confidence)
    checked(executor)
    directions(mechanism, adjacency)  # one that does not fit raises before a seed is remembered
    others = None if composed_with is None else composition(composed_with, "composed_with")
    seed = resolve_seed(seed, checkpoint)

    plans = list(cases(mechanism, epsilon, adjacency, others))
    sampled = sum(plan.bound > 0.0 for _, _, plan in plans)
    share = 1.0 - (1.0 - confidence) / max(1, sampled)
    if method == "tilted" and not any(plan.can_tilt for _, _, plan in plans):
        raise ParameterError(
            f"method = {method!r}: needs direction 'remove' and a scheme with a table, or direction 'add' and no "
            "composed_with; use 'auto' or 'plain'"
        )
    before, found = 0, []
    for case, _, plan in plans:
        if plan.bound == 0.0:
            found.append(DirectionEstimate(plan.direction, 0.0, 0.0, 0.0, 0, case))
            continue
        asked = plan.can_tilt and (method == "tilted" or adjacency == plan.direction)
        if method != "plain" and not asked and plan.known < min(1.0, math.log(1.0 / (1.0 - share)) / samples):
            # Less than as many plain samples could show.
            found.append(DirectionEstimate(plan.direction, 0.0, 0.0, plan.known, 0, case))
            continue
        path = tally_path(checkpoint, plan.direction, case)
        tilted = None
        if method != "plain" and plan.can_tilt:
            tilted = plan.tilted(
                samples, share, derived(seed, "tune", plan.direction, case), method == "auto"
            )
            if tilted is not None and path is not None:
                path = path.with_suffix(".law")
        size = plan.blocks.block_size if tilted is None else tilted.block_size
        blocks = -(-samples // size)
        show = _shifted(progress, before, sampled * blocks * size, size)
        if tilted is None:
            tally = plan.tally(seed, 0, blocks, path, show, executor=executor)
            entry = replace(plan.estimate(tally, share), case=case)
        else:
            laws = tilted.tally(seed, 0, blocks, plan.identity, path, show, executor=executor)
            middle, (lower, upper) = tilted.interval(laws, share)
            entry = DirectionEstimate(plan.direction, middle, lower, upper, blocks * size, case, "tilted")
        if method != "plain":
            top = min(entry.upper, plan.known)
            entry = replace(entry, estimate=min(entry.estimate, top), lower=min(entry.lower, top), upper=top)
        found.append(entry)
        before += blocks * size
    return DeltaEstimate(
        epsilon=epsilon,
        estimate=max(entry.estimate for entry in found),
        lower=max(entry.lower for entry in found),
        upper=max(entry.upper for entry in found),
        confidence=confidence,
        samples=max(entry.samples for entry in found),
        seed=seed,
        adjacency=adjacency,
        method="tilted" if any(entry.method == "tilted" for entry in found) else "plain",
        directions=tuple(found),
    )


def sample_blocks(
    mechanism: Sampled,
    epsilon: float,
    direction: str,
    seed: int,
    first_block: int,
    last_block: int,
    *,
    composed_with: Composable | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Tally:
    """Sample the blocks [first_block, last_block) of one direction: a share of a long run.

    Several processes or machines may take disjoint ranges of the same ``seed``; the tallies' ``merged``
    is what one process would have found, bit for bit, and `estimate_from_tally` reads it. A block has
    ``mechanism._blocks(direction).block_size`` samples. ``checkpoint`` is a file, which the same call
    resumes; ``progress`` counts blocks; the workers of an ``executor`` draw them, if there is one.
    """
    direction = choice("direction", direction, ("remove", "add"))
    first_block = integer("first_block", first_block)
    last_block = integer("last_block", last_block, first_block)
    values = _direction(mechanism, direction, epsilon, composed_with)
    seed = integer("seed", seed, 0, _MAX_SEED)
    return values.tally(seed, first_block, last_block, checkpoint, progress, executor=checked(executor))


def estimate_from_tally(
    mechanism: Sampled,
    epsilon: float,
    direction: str,
    tally: Tally,
    confidence: float = 0.99,
    *,
    composed_with: Composable | None = None,
) -> DirectionEstimate:
    """The estimate that a tally of `sample_blocks` stands for, with the arguments it was made with.

    Its interval has the stated ``confidence`` if the number of blocks was fixed before any was seen.
    """
    confidence = checked_confidence(confidence)
    direction = choice("direction", direction, ("remove", "add"))
    values = _direction(mechanism, direction, epsilon, composed_with)
    values.check(tally)
    if values.bound == 0.0:
        return DirectionEstimate(direction, 0.0, 0.0, 0.0, 0)
    return values.estimate(tally, confidence)


def _direction(
    mechanism: Sampled, direction: str, epsilon: float, composed_with: Composable | None
) -> _Direction:
    others = None if composed_with is None else composition(composed_with, "composed_with")
    return _Direction(mechanism, direction, real("epsilon", epsilon, 0.0), others)


def directions(mechanism: Sampled, adjacency: str) -> tuple[str, ...]:
    """The directions that ``adjacency`` asks about.

    Where an example changes which others are kept, or users are protected, the analysis is that of "zero_out" only.
    """
    special = getattr(getattr(mechanism, "scheme", None), "only_zero_out", False)
    adjacency = choice("adjacency", adjacency, ADJACENCIES[:1] if special else ADJACENCIES)
    return (adjacency,) if adjacency in ("add", "remove") else ("remove", "add")


def worst_cases(mechanism: Sampled) -> tuple[Sampled, ...]:
    """The mechanisms whose largest delta is that of ``mechanism``; usually only itself."""
    cases = getattr(mechanism, "worst_cases", None)
    return (mechanism,) if cases is None else tuple(cases())


def cases(
    mechanism: Sampled,
    epsilon: float,
    adjacency: str,
    others: Process | None,
    only_above: bool = False,
) -> Iterator[tuple[int, str, _Direction]]:
    """Every pair of distributions whose divergence must be small; ``only_above``: only upper bounds are of interest."""
    for case, worst in enumerate(worst_cases(mechanism)):
        for direction in directions(mechanism, adjacency):
            yield case, direction, _Direction(worst, direction, epsilon, others, adjacency, only_above)


def tally_path(directory: str | os.PathLike[str] | None, direction: str, case: int) -> Path | None:
    """The file of one tally in a checkpoint directory."""
    if directory is None:
        return None
    return Path(directory) / (f"{direction}-{case}.tally" if case else f"{direction}.tally")


def _shifted(progress: Progress | None, before: int, total: int, size: int) -> Progress | None:
    if progress is None:
        return None
    show = progress
    return lambda done, _: show(before + done * size, total)


def resolve_seed(seed: int | None, directory: str | os.PathLike[str] | None) -> int:
    """The seed given, that of the run in ``directory``, or a new one, remembered there."""
    if directory is not None:
        os.makedirs(directory, exist_ok=True)
    path = None if directory is None else Path(directory) / "seed"
    recorded = None
    if path is not None and path.exists():
        content, _ = storage.read(path, "seed")
        with storage.refusing(path):
            recorded = int(content["seed"])
    if seed is None:
        seed = secrets.randbelow(_MAX_SEED) if recorded is None else recorded
    seed = integer("seed", seed, 0, _MAX_SEED)
    if recorded is not None and recorded != seed:
        raise ParameterError(f"seed = {seed}: the run in {os.fspath(path or '')!r} has seed {recorded}")
    if path is not None and recorded is None:
        storage.write(path, "seed", {"seed": seed}, {})
    return seed


def derived(seed: int, *label: object) -> int:
    """A seed for one part of a procedure, as good as independent of those of the other parts."""
    text = repr((integer("seed", seed, 0, _MAX_SEED), *label)).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 1


class _Direction:
    """The values to average in one direction: what they are, how large, and how to draw them."""

    def __init__(
        self,
        mechanism: Sampled,
        direction: str,
        epsilon: float,
        others: Process | None = None,
        adjacency: str = "zero_out",
        only_above: bool = False,
    ) -> None:
        if not hasattr(mechanism, "_blocks"):
            raise ParameterTypeError(
                f"mechanism = {mechanism!r}: must be a BandMF mechanism, not {type(mechanism).__name__}"
            )
        self.direction, self.mechanism = direction, mechanism
        self.blocks = mechanism._blocks(direction)
        # One row bounds delta from above, one from below.
        error = _loss_error(mechanism)
        self._points = np.array([epsilon - error, epsilon + error])
        self._curve = None if others is None else _curve_of(others, direction, adjacency)
        self.bound = 1.0
        if direction == "add" and others is None:
            floor = float(mechanism.no_participation_log_probability)
            # L <= -floor: 1 - e^{epsilon - L} is at most 1 - e^{epsilon + floor}.
            self.bound = min(1.0, max(0.0, -math.expm1(min(0.0, epsilon - error + floor)) * (1.0 + 1e-15)))
        self.epsilon, self.error = epsilon, error
        self._others, self._only_above = others, only_above
        self.identity = {
            "library": _core.__version__,
            "mechanism": repr(mechanism),
            "digest": _fingerprint(mechanism),
            "direction": direction,
            "epsilon": repr(epsilon),
            "composed_with": None if others is None else f"{others!r}, {adjacency}",
            "block_size": self.blocks.block_size,
        }

    @functools.cached_property
    def reduced(self) -> Tilting | None:
        """What a truncated scheme comes to."""
        if self._others is not None:
            return None
        return tilting(self.mechanism, self.epsilon - self.error, self.direction, self._only_above)

    @property
    def _tilted_epsilon(self) -> float:
        return self.epsilon if self.reduced is None else self.epsilon + self.reduced.shift

    @property
    def tilted_mechanism(self) -> Sampled | GivenCounts | None:
        """What importance sampling draws from."""
        return self.mechanism if self.reduced is None else self.reduced.mechanism

    @functools.cached_property
    def is_exact(self) -> bool:
        """Whether losses are those of the mechanism, and not only bounds that make delta larger."""
        scheme = getattr(self.mechanism, "scheme", None)
        return scheme is None or scheme.losses_are_exact(self.mechanism.strategy.bands)  # type: ignore[attr-defined]

    @functools.cached_property
    def half_space(self) -> HalfSpace | None:
        """Where the outputs of direction "add" are that count, if that is known."""
        if self.direction == "remove" or self._others is not None or self.bound == 0.0:
            return None
        return half_space(self.mechanism, self.epsilon, self.error)

    @functools.cached_property
    def can_tilt(self) -> bool:
        """Whether importance sampling is possible."""
        if self.direction == "add" and self.reduced is None:
            return self.half_space is not None
        if self._others is not None and getattr(getattr(self.mechanism, "scheme", None), "truncates", False):
            return False
        return bool(orders(self.tilted_mechanism))

    @functools.cached_property
    def known(self) -> float:
        """What delta is at most, without any samples."""
        if self._curve is not None:
            if self.direction == "remove":
                return 1.0
            # No loss of this direction exceeds -ln Pr[no participation], and the curve falls.
            floor = float(self.mechanism.no_participation_log_probability)
            if not floor > -math.inf:
                return 1.0
            _, upper = self._curve.between(np.array([self._points[0] + floor]))
            return float(upper[0])
        if self.half_space is not None:
            return certain_bound(self.mechanism, self.epsilon, self.error, self.half_space)
        return 1.0 if self.reduced is None else self.reduced.known

    def tally(
        self,
        seed: int,
        first: int,
        last: int,
        checkpoint: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
        stop: Callable[[Tally], bool] | None = None,
        executor: Executor | None = None,
    ) -> Tally:
        """The sums over blocks [first, last)."""
        key = {**self.identity, "seed": seed}
        draw = _DrawSums(self.mechanism, self.direction, self._points, self._curve, seed)
        return run(draw, key, 2, first, last, checkpoint, progress, stop, executor=executor)

    def tilted(self, samples: int, confidence: float, seed: int, optional: bool) -> BoundedValues | None:
        """Importance sampling, tuned for so many samples; None if ``optional`` and plain sampling looks better."""
        if optional and samples < _FEW:
            return None
        proposal = self.tune(seed)
        needed = math.log(2.0 / (1.0 - confidence))
        extra = 0.0 if self.reduced is None else self.reduced.extra
        if optional and not proposal.is_better(samples, needed, extra):
            return None
        return self.tilted_values(proposal)

    def tune(
        self,
        seed: int,
        *,
        gap: float = 0.1,
        start: Proposal | HalfSpaceProposal | None = None,
        pilot: Sequence[int] | None = None,
    ) -> Proposal | HalfSpaceProposal:
        """What to draw from, by pilot samples of this ``seed``; see `tune_proposal` and `tune_half_space`."""
        settings = {} if pilot is None else {"pilot": pilot}
        if self.half_space is not None:
            return tune_half_space(
                self.mechanism, self.epsilon, self.error, self.half_space, seed, gap=gap, **settings
            )
        begin = start if isinstance(start, Proposal) else None
        payoff = None if self._curve is None else Composed(self._curve, self.epsilon)
        return tune_proposal(
            self.tilted_mechanism, self._tilted_epsilon, seed, gap=gap, start=begin, payoff=payoff, **settings
        )

    def tilted_values(self, proposal: Proposal | HalfSpaceProposal) -> BoundedValues:
        """Importance sampling from this proposal."""
        if isinstance(proposal, HalfSpaceProposal):
            share = 1.0 if self.is_exact else 0.0
            return HalfSpaceValues(self.mechanism, self.epsilon, proposal, self.error, share)
        extra, share = (0.0, 1.0) if self.reduced is None else (self.reduced.extra, self.reduced.share)
        return TiltedValues(
            self.tilted_mechanism, self._tilted_epsilon, proposal, self.error, extra, share, self._curve
        )

    def check(self, tally: Tally) -> None:
        """Refuse a tally of something else, or of nothing."""
        key = {name: value for name, value in tally.key.items() if name != "seed"}
        if key != self.identity or not tally.blocks:
            raise ParameterError("tally: it is empty, or of another mechanism, epsilon or direction")

    def estimate(self, tally: Tally, confidence: float) -> DirectionEstimate:
        """What the tally of blocks says, at this confidence."""
        samples = tally.blocks * self.blocks.block_size
        # Rounding may lead beyond the largest value of all.
        above, below = (min(tally.mean(samples, row), self.bound) for row in (0, 1))
        lower = mean_interval(below, samples, confidence, self.bound).lower
        upper = mean_interval(above, samples, confidence, self.bound).upper
        lower = lower if self.is_exact else 0.0
        return DirectionEstimate(self.direction, above, lower, upper, samples)


@dataclass(frozen=True)
class _DrawSums:
    """Draws the sums of the values of blocks, and of their squares, anywhere: it pickles."""

    mechanism: Sampled
    direction: str
    points: Array
    curve: _Curve | None
    seed: int

    def __call__(self, first: int, count: int) -> tuple[Array, Array]:
        blocks = self.mechanism._blocks(self.direction)
        if self.curve is None:
            return blocks.delta_sums(self.seed, self.points, first, count)
        losses = blocks.losses(self.seed, first, count)
        _, upper = self.curve.between(self.points[0] - losses)
        lower, _ = self.curve.between(self.points[1] - losses)
        values = np.array([upper, lower]).reshape(2, count, blocks.block_size)
        return _block_sums(values), _block_sums(np.square(values))


def _block_sums(values: Array) -> Array:
    """Sums along the last axis, correctly rounded: the same on every machine."""
    return np.array([[math.fsum(block) for block in row] for row in values.tolist()])


def _fingerprint(mechanism: object) -> str:
    strategy = getattr(mechanism, "strategy", None)
    return digest(mechanism, *([] if strategy is None else [strategy._stored()]))


def _loss_error(mechanism: object) -> float:
    """More than the round-off of any loss that will be seen."""
    strategy, scheme = getattr(mechanism, "strategy", None), getattr(mechanism, "scheme", None)
    if strategy is None:
        return _LOSS_ERROR
    # Exponents are sums of <c, y> / sigma^2 and |c|^2 / (2 sigma^2), c up to this multiple of a column.
    most = max(2, getattr(scheme, "examples_per_user", 1))
    exponents = math.fsum(np.square(strategy.column_norms() * most / mechanism.noise_multiplier).tolist())  # type: ignore[attr-defined]
    return _LOSS_ERROR + _EXPONENT_ERROR * exponents


@functools.lru_cache(maxsize=16)
def _curve_of(process: Process, direction: str, adjacency: str) -> _Curve:
    # A search asks for it at every noise multiplier.
    return _Curve(process, direction, adjacency)


class _Curve:
    """Certified bounds on the delta curve of an analytic mechanism, between nodes by convexity.

    delta is a convex and falling function of e^epsilon (a mean of max(0, 1 - e^epsilon U)): chords lie
    above it, and chords of the neighbouring cells, prolonged, below.
    """

    def __init__(self, process: Process, direction: str, adjacency: str) -> None:
        one_sided = adjacency != "zero_out" or all(
            isinstance(step, _SAME_UNDER_ZERO_OUT) for step, _ in process
        )
        # Otherwise the pair under zero-out is one of its own, and the worse of its directions is used for both.
        profile = account(process, direction if one_sided else adjacency, accuracy=_CURVE_ACCURACY)
        floor = profile.delta(math.inf)
        wide = profile.epsilon(max(_CURVE_END, min(1.0, 2.0 * floor)))
        if not wide < math.inf:
            raise ParameterTypeError(f"composed_with = {process!r}: its epsilon is infinite")
        wide = max(wide, 1e-6)
        found: dict[float, Bounds] = {}
        # To the left of the bend the curve is nearly 1 - e^epsilon, a line.
        ends = [-wide - 30.0, *np.linspace(-wide, wide, 17).tolist()]
        for x in ends:
            found[x] = profile.delta_bounds(x)
        cells = list(pairwise(ends))
        while cells and len(found) < _MOST_NODES:
            left, right = cells.pop()
            middle = 0.5 * (left + right)
            here = found[middle] = profile.delta_bounds(middle)
            share = math.expm1(middle - left) / math.expm1(right - left)
            chord = found[left].upper + share * (found[right].upper - found[left].upper)
            if chord > here.upper * (1.0 + _CURVE_ERROR) + _CURVE_END:
                cells += [(left, middle), (middle, right)]
        self._x = np.array(sorted(found))
        low = np.array([found[x].lower if one_sided else 0.0 for x in self._x.tolist()])
        high = np.array([found[x].upper for x in self._x.tolist()])
        # The curve falls, so what bounds it at one node bounds it at those beyond.
        self._low, self._high = np.maximum.accumulate(low[::-1])[::-1], np.minimum.accumulate(high)

    @property
    def nodes(self) -> Array:
        """Between which the curve is interpolated."""
        return self._x

    def between(self, x: Array) -> tuple[Array, Array]:
        """Lower and upper bounds at each of ``x``."""
        nodes, low, high = self._x, self._low, self._high
        last = len(nodes) - 1
        # Cell k lies between nodes k and k + 1; a share of it is measured in e^x.
        k = np.clip(np.searchsorted(nodes, x) - 1, 0, last - 1)
        steps = np.diff(nodes)
        share = np.clip(np.expm1(np.clip(x - nodes[k], 0.0, steps[k])) / np.expm1(steps[k]), 0.0, 1.0)
        upper = high[k] + share * (high[k + 1] - high[k])
        # How much wider, in e^x, a cell is than the one before it.
        wider = np.exp(steps[:-1]) * np.expm1(steps[1:]) / np.expm1(steps[:-1])
        before, after = np.maximum(k - 1, 0), np.minimum(k + 2, last)
        falling = low[k] - share * wider[before] * (high[before] - low[k])
        rising = low[k + 1] + (1.0 - share) / wider[after - 2] * (low[k + 1] - high[after])
        lower = np.maximum(low[k + 1], np.where(k > 0, falling, 0.0))
        lower = np.maximum(lower, np.where(k + 2 <= last, rising, 0.0))
        lower = np.where(x > nodes[-1], 0.0, np.where(x < nodes[0], low[0], np.minimum(lower, upper)))
        upper = np.where(x < nodes[0], 1.0, np.minimum(1.0, upper))
        return lower * (1.0 - _ROUND_OFF), np.minimum(1.0, upper * (1.0 + _ROUND_OFF))


__all__ = ["DeltaEstimate", "DirectionEstimate", "estimate_delta", "estimate_from_tally", "sample_blocks"]
