"""Direction "add", H(Q||P): samples of Q from a half space that contains every output that counts.

Its probability F under Q is known exactly, and delta(epsilon) <= F (1 - e^epsilon Pr[x = 0]) without any samples; samples of Q given
the half space, or of a mixture of normal laws given it, have values below that bound over the weight of the former. Proofs:
docs/montecarlo/tilted.md, section 9.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _core
from .._base.types import Array, dot
from .bounded import BoundedValues, HockeyStick, Pilot, Prospects, rounded_weights, spread, worthwhile

_TANGENTS, _MOST_STEPS, _MOST_WORK = 60, 2**22, 2**26
"""How long the search for a half space may take (*speed*)."""
_BEYOND = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0)
"""How far beyond the threshold shifted laws are tried (*speed*)."""
_FARTHEST = 1e6
"""No half space is taken farther from 0, and no law shifted more (*speed*: a nearer one contains it)."""
_PILOT = (4096, 8192)
"""Samples of each of a pilot's rounds (*speed*)."""
_LEAST = 5e-324
"""More than the probability of an output 40 standard deviations off (*proof*, section 9)."""


@dataclass(frozen=True, eq=False)
class HalfSpace:
    """The outputs y, in units of the noise multiplier, with <direction, y> <= threshold; |direction| = 1.

    P/Q < e^-epsilon outside of it with probability at most 5e-324 under Q; made by `half_space`.
    ``log_probability`` is that under Q, rounded up.
    """

    direction: Array
    threshold: float
    log_probability: float


@dataclass(frozen=True)
class HalfSpaceProposal(Prospects):
    """A mixture of N(-shift direction, sigma^2) given a half space, and what pilot samples expect of it.

    ``shifts`` are pairs (weight, shift), the first without shift: Q given the half space.
    """

    half_space: HalfSpace
    shifts: tuple[tuple[float, float], ...]


def half_space(mechanism: Any, epsilon: float, loss_error: float) -> HalfSpace | None:
    """The half space of least probability that was found for a `BandMF`; None where there is none of any use.

    ``loss_error`` is more than the round-off of any of its losses. Every tangent is valid. From one to the next, the
    point to take it at is the nearest to 0 of the last half space, which converges to the nearest
    of all outputs with P/Q <= e^-epsilon: no half space that contains them is farther away.
    """
    if not _is_possible(mechanism):
        return None
    core, sigma = mechanism._described(), float(mechanism.noise_multiplier)
    columns, steps = mechanism.scheme.seen_as(mechanism.strategy)
    room = _log_room(mechanism, epsilon - loss_error)
    if room is None:
        return None
    # Exponents are sums of products of columns and parts of y, of which at most as many overlap as there are bands.
    most = float(getattr(mechanism.scheme, "examples_per_user", 1))
    norm = most * math.sqrt(max(dot(column, column) for column in columns)) / sigma
    per_length = 1e-12 * max(1.0, columns.shape[1] / 4096.0) * norm * math.sqrt(steps * columns.shape[1])

    best: tuple[float, Array] | None = None
    y, step = np.zeros(steps), 1.0
    for _ in range(_TANGENTS):
        log_rest, means = _core.tangent(core, y)
        gradient = _product(columns, means) / sigma
        length = math.sqrt(dot(gradient, gradient))
        if not (math.isfinite(log_rest) and 0.0 < length < math.inf):
            break
        along, distance = dot(gradient, y), math.sqrt(dot(y, y))
        error = loss_error + 1e-14 * steps + per_length * distance
        # The gradient's error, for outputs up to 40 standard deviations in the direction of that error.
        error += 2.0 * error * length * (distance + 40.0)
        error += 1e-13 * (abs(room) + abs(log_rest) + abs(along))
        threshold = (room - log_rest + along + error) / length
        if not threshold <= 1e3:
            break
        unit = gradient / length
        if best is None or threshold < best[0]:
            best = (threshold, unit)
        else:
            step *= 0.5
        target = threshold * unit
        moved = float(np.abs(target - y).max())
        if threshold >= 0.0 or moved < 1e-7 * (1.0 + abs(threshold)) or step < 1e-3:
            break
        y = y + step * (target - y)
    if best is None:
        return None
    threshold = max(best[0], -_FARTHEST)
    # The direction's length is 1 but for the rounding of a sum of squares.
    log_probability = _core.log_normal_below(threshold) + _round_off(steps) * (1.0 + threshold**2)
    return HalfSpace(best[1], threshold, min(0.0, log_probability))


def _round_off(steps: int) -> float:
    return 2.0**-48 + 2.0**-52 * steps


def _is_possible(mechanism: Any) -> bool:
    if not hasattr(mechanism, "_described"):
        return False
    columns, steps = mechanism.scheme.seen_as(mechanism.strategy)
    width = mechanism.scheme.half_space_width(columns.shape[1])
    return width is not None and steps <= _MOST_STEPS and steps * width <= _MOST_WORK


def _log_room(mechanism: Any, epsilon: float) -> float | None:
    """ln(e^-epsilon - Pr[x = 0]), rounded up; None if that is not positive."""
    floor = float(mechanism.no_participation_log_probability)
    gap = -epsilon - floor
    if not gap > 0.0:
        return None
    return -epsilon + math.log(-math.expm1(-gap)) + 1e-15 * (2.0 + abs(epsilon))


def _product(columns: Array, coefficients: Array) -> Array:
    """C times a vector, without what is past the last row."""
    steps = len(coefficients)
    out = np.zeros(steps)
    for k in range(columns.shape[1]):
        out[k:] += (columns[: steps - k, k] if len(columns) > 1 else columns[0, k]) * coefficients[
            : steps - k
        ]
    return out


def log_cap(mechanism: Any, epsilon: float) -> float:
    """ln(1 - e^epsilon Pr[x = 0]), rounded up: no value is larger."""
    floor = float(mechanism.no_participation_log_probability)
    if floor == -math.inf:
        return 0.0
    gap = min(0.0, epsilon + floor)
    return min(0.0, math.log(-math.expm1(gap)) + 1e-14) if gap < 0.0 else -math.inf


def certain_bound(mechanism: Any, epsilon: float, loss_error: float, found: HalfSpace) -> float:
    """What delta(epsilon) of direction "add" is at most, without any samples."""
    log_bound = found.log_probability + log_cap(mechanism, epsilon - loss_error)
    return min(1.0, math.exp(min(0.0, log_bound)) * (1.0 + 1e-14) + _LEAST)


def tune_half_space(
    mechanism: Any,
    epsilon: float,
    loss_error: float,
    found: HalfSpace,
    seed: int,
    *,
    gap: float = 0.1,
    pilot: Sequence[int] = _PILOT,
) -> HalfSpaceProposal:
    """Choose which shifted laws to draw from, by pilot samples: what bounds delta to within ``gap`` soonest."""
    cap = log_cap(mechanism, epsilon - loss_error)
    far = max(0.0, -found.threshold)
    shifts = sorted({0.0, 0.5 * far, *(min(_FARTHEST, round(far + more, 6)) for more in _BEYOND)})
    weights: Array = np.full(len(shifts), 1.0 / len(shifts))
    look: Pilot | None = None
    for index, count in enumerate(pilot):
        last = index + 1 == len(pilot)
        weights = rounded_weights(weights)
        core = sampler(mechanism, found, tuple(zip(weights.tolist(), shifts, strict=True)))
        rows = core.samples(seed + index, 0, -(-count // core.block_size))
        losses, log_weights, densities = -rows[:, 1], rows[:, 2], rows[:, 3:]
        payoff = HockeyStick(epsilon)
        if not payoff.is_seen(losses, log_weights):
            # Nearer to where something may be found, or the best that is known.
            weights, look = np.full(len(shifts), 1.0 / len(shifts)), None
            continue
        look = Pilot(payoff, losses, log_weights, densities + log_weights[:, np.newaxis], len(rows))
        # B/delta for weight 1, where both are relative to the half space's probability.
        price = min(gap * math.exp(min(600.0, cap - look.log_mean)), 4.0 * look.second_moment(weights))
        weights = look.best_weights(price)
        chosen = sorted([0, *worthwhile(weights, last)])
        shifts, look = [shifts[k] for k in chosen], look.only(chosen)
        weights = look.best_weights(price, weights[chosen])
        weights[0] = max(weights[0], 0.1)
        weights = rounded_weights(weights)
    log_bound = found.log_probability + cap
    if look is None:
        return HalfSpaceProposal(found, ((1.0, 0.0),), log_bound=log_bound, log_cap=cap)
    plain = look.plain_second * math.exp(min(700.0, -found.log_probability))
    kept = tuple((float(w), s) for w, s in zip(weights, shifts, strict=True) if w > 0.0)
    return HalfSpaceProposal(
        found,
        kept,
        relative_variance=look.relative_variance(weights),
        log_delta=found.log_probability + look.log_mean,
        log_bound=log_bound - math.log(kept[0][0]),
        log_cap=cap,
        plain_variance=max(plain - 1.0, 0.0),
        law=look.law(weights, look.log_mean - cap + math.log(kept[0][0])),
    )


def sampler(
    mechanism: Any, found: HalfSpace, shifts: tuple[tuple[float, float], ...]
) -> _core.HalfSpaceSampler:
    """What draws from the mixture of these (weight, shift)."""
    where = found.direction, found.threshold, np.array(shifts)
    made: _core.HalfSpaceSampler = mechanism._sampler(_core.HalfSpaceSampler, *where)
    return made


class HalfSpaceValues(BoundedValues):
    """Y/B in direction "add", from a fixed proposal; see `BoundedValues`.

    ``share`` 0: P/Q is only bounded, and nothing follows for delta from below.
    """

    proposal: HalfSpaceProposal

    def __init__(
        self,
        mechanism: Any,
        epsilon: float,
        proposal: HalfSpaceProposal,
        loss_error: float,
        share: float = 1.0,
    ) -> None:
        super().__init__(mechanism, proposal, _LEAST, share)
        found, shifts = proposal.half_space, proposal.shifts
        self.block_size = int(sampler(mechanism, found, shifts).block_size)
        self._points = (epsilon - loss_error, epsilon + loss_error)
        cap = log_cap(mechanism, self._points[0])
        log_scale = found.log_probability + cap - math.log(shifts[0][0]) + 1e-11
        # Exponents of the shifted laws, and the length of a direction that is 1 but for rounding.
        size = 40.0 + abs(found.threshold) + max(shift for _, shift in shifts)
        slack = 1e-11 + _round_off(mechanism.strategy.steps) * size**2
        described = repr((shifts, found.threshold, found.direction.tobytes().hex()[:64]))
        self._bounded(log_scale, slack, described)

    def draw(self, seed: int, first: int, count: int) -> tuple[Array, int]:
        core = sampler(self.mechanism, self.proposal.half_space, self.proposal.shifts)
        floor = float(self.mechanism.no_participation_log_probability)
        return spread(core.values(seed, np.array(self._points), floor, self.log_scale, first, count))
