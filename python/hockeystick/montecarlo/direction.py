"""delta in one direction as a mean over samples: of what, how large at most, and how to draw it (docs/montecarlo/estimates.md)."""

from __future__ import annotations

import functools
import math
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from .. import _core
from .._base.bounds import Bounds
from .._base.types import Array
from .._base.validation import ParameterError, ParameterTypeError, choice, shown
from ..accounting.report import UNITS, records_covered, with_sizes
from ..matrix.scheme import Scheme
from ..mechanisms.descriptions import Process
from .beside import curve_beside
from .bounded import BoundedValues, Composed
from .confidence import mean_interval
from .half_space import (
    HalfSpace,
    HalfSpaceProposal,
    HalfSpaceValues,
    certain_bound,
    half_space,
    tune_half_space,
)
from .runs import ALONE, RunOptions, Samples
from .tally import Tally, digest
from .tilted import Proposal, TiltedValues, orders, tune_proposal
from .truncation import Tilting, tilting

ADJACENCIES = ("zero_out", "add_or_remove", "add", "remove", "replace_one")

_LOSS_ERROR, _EXPONENT_ERROR = 1e-9, 1e-12
"""More than the round-off of a computed privacy loss, absolute and relative to the exponents it is made of (*proof*,
docs/montecarlo/estimates.md): delta is evaluated that much below epsilon."""
_FEW = 512
"""Samples that are not worth a pilot (*speed*)."""


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


def scheme_of(mechanism: object) -> Scheme | None:
    """The sampling scheme, if the mechanism has one of ours."""
    scheme = getattr(mechanism, "scheme", None)
    return scheme if isinstance(scheme, Scheme) else None


def directions(mechanism: Sampled, adjacency: str) -> tuple[str, ...]:
    """The directions that ``adjacency`` asks about: of "replace_one" both are the same."""
    scheme = scheme_of(mechanism)
    allowed = ADJACENCIES[:-1] if scheme is None else scheme.adjacencies()
    adjacency = choice("adjacency", adjacency, tuple(name for name in ADJACENCIES if name in allowed))
    return ("remove", "add") if adjacency in ("zero_out", "add_or_remove") else (adjacency,)


def unit_of(mechanism: Sampled, adjacency: str, others: Process | None) -> str:
    """What neighbouring datasets differ in, in words: of users no more examples than every step of the ``others`` is accounted for."""
    scheme, covered = scheme_of(mechanism), math.inf if others is None else records_covered(others, adjacency)
    hidden = (None if scheme is None else scheme.unit(covered)) or UNITS[adjacency]
    return hidden if others is None else with_sizes(hidden, others, adjacency)


def cases(
    mechanism: Sampled, epsilon: float, options: RunOptions, only_above: bool = False
) -> Iterator[Direction]:
    """Every pair of distributions whose divergence must be small; ``only_above``: only upper bounds are of interest.

    Their largest delta is that of ``mechanism``: both directions of each of its worst cases, usually only itself. Each is made when it is
    asked for, and nothing here keeps it: samplers of many cases take much memory together.
    """
    left = deque(worst_cases(mechanism))
    for case in range(len(left)):
        worst = left.popleft()
        for direction in directions(mechanism, options.adjacency):
            yield Direction(worst, direction, epsilon, options, case, only_above)


def sampled_cases(mechanism: Sampled, epsilon: float, options: RunOptions) -> int:
    """How many of the `cases` take samples, without making them: those that share a failure probability."""
    asked = directions(mechanism, options.adjacency)
    return sum(
        _largest_value(worst, direction, epsilon, options) > 0.0
        for worst in worst_cases(mechanism)
        for direction in asked
    )


def worst_cases(mechanism: Sampled) -> Sequence[Sampled]:
    """The mechanisms whose largest delta is the guarantee: usually only this one."""
    made: Sequence[Sampled] = getattr(mechanism, "worst_cases", lambda: (mechanism,))()
    return made


def _largest_value(mechanism: Sampled, direction: str, epsilon: float, options: RunOptions) -> float:
    """What no value that is averaged exceeds; 0 where delta is 0 for certain."""
    if direction != "add" or options.others is not None:
        return 1.0
    floor = float(mechanism.no_participation_log_probability)
    # L <= -floor: 1 - e^{epsilon - L} is at most 1 - e^{epsilon + floor}.
    gap = min(0.0, epsilon - loss_error(mechanism) + floor)
    return min(1.0, max(0.0, -math.expm1(gap) * (1.0 + 1e-15)))


class Direction(Samples[Tally]):
    """The values to average in one direction: row 0 of a tally bounds delta from above, row 1 from below."""

    kind = Tally

    def __init__(
        self,
        mechanism: Sampled,
        direction: str,
        epsilon: float,
        options: RunOptions = ALONE,
        case: int = 0,
        only_above: bool = False,
    ) -> None:
        if not hasattr(mechanism, "_blocks"):
            raise ParameterTypeError(
                f"mechanism = {shown(mechanism)}: must be a BandMF mechanism, not {type(mechanism).__name__}"
            )
        self.mechanism, self.direction, self.epsilon, self.case = mechanism, direction, epsilon, case
        self.scheme = scheme_of(mechanism)
        self.label = f"{direction}-{case}" if case else direction
        """What its files are named after."""
        others, adjacency = options.others, options.adjacency
        self.block_size = mechanism._blocks(direction).block_size
        self.error = loss_error(mechanism)
        self._points = np.array([epsilon - self.error, epsilon + self.error])
        self._curve = None if others is None else curve_beside(others, direction, adjacency)
        self._only_above = only_above
        self.bound = _largest_value(mechanism, direction, epsilon, options)
        self.identity = {
            "library": _core.__version__,
            "mechanism": repr(mechanism),
            "digest": fingerprint(mechanism),
            "direction": direction,
            "epsilon": repr(epsilon),
            "composed_with": None if others is None else f"{others!r}, {adjacency}",
            "block_size": self.block_size,
        }

    @functools.cached_property
    def tilting(self) -> Tilting:
        """What importance sampling draws from: something else for a truncated scheme."""
        if self._curve is not None and self.direction != "replace_one":
            return Tilting(self.mechanism)
        return tilting(self.mechanism, self.epsilon - self.error, self.direction, self._only_above)

    @functools.cached_property
    def is_exact(self) -> bool:
        """Whether losses are those of the mechanism, and not only bounds that make delta larger."""
        return self.scheme is None or self.scheme.losses_are_exact(self.mechanism.strategy)  # type: ignore[attr-defined]

    @functools.cached_property
    def half_space(self) -> HalfSpace | None:
        """Where the outputs of direction "add" are that count, if that is known."""
        if self.direction != "add" or self._curve is not None or self.bound == 0.0:
            return None
        return half_space(self.mechanism, self.epsilon, self.error)

    @functools.cached_property
    def can_tilt(self) -> bool:
        """Whether importance sampling is possible."""
        truncated = self.scheme is not None and self.scheme.truncates
        if self.direction == "add" and not truncated:
            return self.half_space is not None
        if self._curve is not None and (truncated or self.direction == "replace_one"):
            return False
        return bool(orders(self.tilting.mechanism))

    @functools.cached_property
    def known(self) -> float:
        """What delta is at most, without any samples."""
        if self.half_space is not None:
            return certain_bound(self.mechanism, self.epsilon, self.error, self.half_space)
        if self._curve is None:
            return self.tilting.known
        # No loss of this direction exceeds -ln Pr[no participation], and the curve falls.
        floor = float(self.mechanism.no_participation_log_probability)
        if self.direction != "add" or not floor > -math.inf:
            return 1.0
        _, upper = self._curve.between(np.array([self._points[0] + floor]))
        return float(upper[0])

    def draw(self, seed: int, first: int, count: int) -> tuple[Array, Array]:
        """The sums of the values of blocks, and of their squares."""
        blocks = self.mechanism._blocks(self.direction)
        if self._curve is None:
            return blocks.delta_sums(seed, self._points, first, count)
        losses = blocks.losses(seed, first, count)
        values = self._curve.around(self._points, losses).reshape(2, count, blocks.block_size)
        return _block_sums(values), _block_sums(np.square(values))

    def interval(self, tally: Tally, confidence: float) -> tuple[float, Bounds]:
        """The estimate of delta, and bounds that hold with this ``confidence``."""
        samples = tally.blocks * self.block_size
        # Rounding may lead beyond the largest value of all.
        above, below = (min(tally.mean(samples, row), self.bound) for row in (0, 1))
        lower = mean_interval(below, samples, confidence, self.bound).lower if self.is_exact else 0.0
        return above, Bounds(lower, mean_interval(above, samples, confidence, self.bound).upper)

    def evidence(self, tally: Tally, confidence: float) -> dict[str, Any]:
        """The sum of all values, which bounds their expectation by Chernoff's inequality."""
        upper = self.interval(tally, confidence)[1].upper
        return {"method": "mean", "delta": upper, "total": hex(tally.totals[0]), "largest": self.bound}

    def check(self, tally: Tally) -> None:
        """Refuse a tally of something else, or of nothing."""
        key = {name: value for name, value in tally.key.items() if name != "seed"}
        if key != self.identity or not tally.blocks:
            raise ParameterError("tally: it is empty, or of another mechanism, epsilon or direction")

    def tilted(self, samples: int, confidence: float, seed: int, optional: bool) -> BoundedValues | None:
        """Importance sampling, tuned for so many samples; None if ``optional`` and plain sampling looks better."""
        if optional and samples < _FEW:
            return None
        proposal = self.tune(seed)
        needed = math.log(2.0 / (1.0 - confidence))
        if optional and not proposal.is_better(samples, needed, self.tilting.extra):
            return None
        return self.tilted_values(proposal)

    def tune(
        self, seed: int, *, start: Proposal | HalfSpaceProposal | None = None, **settings: Any
    ) -> Proposal | HalfSpaceProposal:
        """What to draw from, by pilot samples of this ``seed``; see `tune_proposal` and `tune_half_space`."""
        if self.half_space is not None:
            return tune_half_space(
                self.mechanism, self.epsilon, self.error, self.half_space, seed, **settings
            )
        begin = start if isinstance(start, Proposal) else None
        curve = self.tilting.curve if self._curve is None else self._curve
        payoff = None if curve is None else Composed(curve, self.epsilon)
        mechanism, epsilon = self.tilting.mechanism, self.epsilon + self.tilting.shift
        return tune_proposal(mechanism, epsilon, seed, start=begin, payoff=payoff, **settings)

    def tilted_values(self, proposal: Proposal | HalfSpaceProposal) -> BoundedValues:
        """Importance sampling from this proposal."""
        found: BoundedValues
        if isinstance(proposal, HalfSpaceProposal):
            share = 1.0 if self.is_exact else 0.0
            found = HalfSpaceValues(self.mechanism, self.epsilon, proposal, self.error, share)
        else:
            to, epsilon = self.tilting, self.epsilon + self.tilting.shift
            curve = to.curve if self._curve is None else self._curve
            share = to.share if self.is_exact else 0.0
            found = TiltedValues(to.mechanism, epsilon, proposal, self.error, to.extra, share, curve)
        found.identity = self.identity
        return found


def _block_sums(values: Array) -> Array:
    """Sums along the last axis, correctly rounded: the same on every machine."""
    return np.array([[math.fsum(block) for block in row] for row in values.tolist()])


def fingerprint(mechanism: object) -> str:
    """A digest of the mechanism and of its strategy's numbers."""
    strategy = getattr(mechanism, "strategy", None)
    return digest(mechanism, *([] if strategy is None else [strategy._stored()]))


def loss_error(mechanism: object) -> float:
    """More than the round-off of any loss that will be seen."""
    strategy, scheme = getattr(mechanism, "strategy", None), getattr(mechanism, "scheme", None)
    if strategy is None:
        return _LOSS_ERROR
    # Exponents are sums of <c, y> / sigma^2 and |c|^2 / (2 sigma^2), c up to this multiple of a column.
    most = max(2, getattr(scheme, "examples_per_user", 1))
    exponents = math.fsum(np.square(strategy.column_norms() * most / mechanism.noise_multiplier).tolist())  # type: ignore[attr-defined]
    return _LOSS_ERROR + _EXPONENT_ERROR * exponents
