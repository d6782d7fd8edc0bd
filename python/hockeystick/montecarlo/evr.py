"""Estimate, verify, release: the least noise that Monte Carlo samples can prove to be enough.

Algorithm 5 of Dong and Ganesh 2026: a verifier looks at candidates in order of their noise, and what is
released is the one of least noise such that it and all noisier ones were accepted; if the noisiest is
rejected, a fallback whose privacy is known without sampling. A verifier that is rarely wrong about one
candidate makes all of it private (Theorem A.1): the last candidate that must be rejected stands in the
way of all the worse ones, so the failure probability is paid once, not once per candidate.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from .._base.validation import ParameterError, real
from ..mechanisms.descriptions import Process
from .confidence import VerificationPlan, accepts
from .estimate import Sampled, cases, derived, tally_path
from .tally import Progress, Tally, in_samples

Make: TypeAlias = Callable[[float], Sampled]

_SPREAD = (4.0, 2.75, 2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0, -1.5, -2.0)
"""Where the candidates lie around the pilot's guess, in standard deviations of where the verifier's
verdict turns: the first is hardly ever rejected, the last hardly ever accepted."""


@dataclass(frozen=True)
class Verification:
    """The verdict on one candidate.

    ``means`` are (direction, mean of the verifier's values, samples), for each of the mechanism's worst
    cases; no samples where delta is 0 for certain. A candidate is rejected as soon as the sum so far
    exceeds what all samples together may have, and the mean is then that of all samples if the rest were
    0.
    """

    noise_multiplier: float
    accepted: bool
    means: tuple[tuple[str, float, int], ...]


def verify(
    mechanism: Sampled,
    noise_multiplier: float,
    epsilon: float,
    plan: VerificationPlan,
    seed: int,
    *,
    adjacency: str = "zero_out",
    others: Process | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Verification:
    """Draw the plan's number of samples in each direction; accept if no mean exceeds its threshold.

    If the mechanism violates (``epsilon``, plan.tested_delta)-DP in either direction, or in any of its worst
    cases, it is accepted with probability at most plan.failure_probability: the samples of the violated
    one alone see to that.
    """
    means: list[tuple[str, float, int]] = []
    accepted = True
    for case, direction, values in cases(mechanism, epsilon, adjacency, others):
        if values.bound == 0.0:
            means.append((direction, 0.0, 0))
            continue
        if values.half_space is not None and values.known <= plan.tested_delta:
            means.append((direction, values.known, 0))
            continue
        size = values.blocks.block_size
        blocks = -(-plan.samples // size)
        most = plan.threshold * blocks * size

        def hopeless(tally: Tally, most: float = most) -> bool:
            return not accepts(tally.sum(), most)

        path = tally_path(checkpoint, direction, case)
        tally = values.tally(seed, 0, blocks, path, in_samples(progress, size), hopeless, executor)
        mean = tally.mean(blocks * size)
        complete = tally.blocks == blocks
        means.append((direction, mean, tally.blocks * size))
        if not (complete and accepts(mean, plan.threshold)):
            accepted = False
            break
    return Verification(noise_multiplier, accepted, tuple(means))


def choose(
    make: Make,
    candidates: Sequence[float],
    epsilon: float,
    plan: Any,
    seed: int,
    *,
    verifier: Callable[..., Verification] = verify,
    checkpoint: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> tuple[Verification, ...]:
    """Algorithm 5 from the noisiest of the ``candidates`` (noise multipliers) down to the first rejection.

    The verdicts below that one would not matter, so they are not asked for. Every candidate is verified
    with samples of its own. The choice is the last accepted one, if there is any. ``verifier`` is called like
    `verify`, with its ``plan`` and ``settings``.
    """
    order = sorted({real("candidates", value, 0.0, open_low=True) for value in candidates}, reverse=True)
    verdicts: list[Verification] = []
    for index, noise_multiplier in enumerate(order):
        directory = None
        if checkpoint is not None:
            directory = Path(checkpoint) / f"verify-{index}"
            directory.mkdir(parents=True, exist_ok=True)
        own = derived(seed, "verify", index)
        mechanism = make(noise_multiplier)
        verdicts.append(
            verifier(mechanism, noise_multiplier, epsilon, plan, own, checkpoint=directory, **settings)
        )
        if not verdicts[-1].accepted:
            break
    return tuple(verdicts)


def propose(
    make: Make,
    epsilon: float,
    plan: VerificationPlan,
    start: float,
    seed: int,
    *,
    adjacency: str = "zero_out",
    others: Process | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> tuple[float, ...]:
    """Candidates around the noise multiplier at which the verifier's verdict turns, from pilot samples.

    Nothing rests on their quality but how close the result is to the least possible noise: the
    verifier never sees the pilot's samples. ``start`` is where the search begins.
    """
    pilot = _Pilot(make, epsilon, adjacency, others, checkpoint, progress, executor)
    few = max(1, plan.samples // 16)
    target = math.log(plan.threshold)

    def height(noise_multiplier: float, samples: int, label: str) -> float:
        mean = pilot.look(noise_multiplier, samples, derived(seed, label))
        # Nothing seen: below what this many samples can show.
        return math.log(max(mean, 0.1 / samples)) - target

    low = high = math.log(start)
    while height(math.exp(high), few, "coarse") > 0.0:
        low, high = high, high + 0.25
        if high > math.log(start) + 7.0:
            raise ParameterError(
                f"noise_multiplier up to {math.exp(low):.3g}: the estimated delta stays above {plan.threshold!r}"
            )
    while low == high or height(math.exp(low), few, "coarse") <= 0.0:
        low, high = low - 0.25, low
        if low < math.log(start) - 14.0:
            # Hardly any noise is enough: the example hardly ever takes part.
            return (math.exp(low),)
    for _ in range(3):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if height(math.exp(middle), few, "coarse") > 0.0 else (low, middle)

    # Refine with as many samples as the verifier takes; delta falls like a power of the noise.
    place = 0.5 * (low + high)
    slope, before = -6.0, (place, height(math.exp(place), plan.samples, "fine"))
    for _ in range(3):
        place = before[0] - max(-0.2, min(0.2, before[1] / slope))
        here = (place, height(math.exp(place), plan.samples, "fine"))
        if abs(here[0] - before[0]) > 1e-3:
            slope = min(-1.0, max(-200.0, (here[1] - before[1]) / (here[0] - before[0])))
        before = here
        if abs(here[1]) < 0.02:
            break
    place = before[0] - max(-0.2, min(0.2, before[1] / slope))
    # Both the pilot's and the verifier's mean vary around the truth.
    deviation = math.sqrt(2.0) * pilot.relative_error / -slope
    return tuple(math.exp(place + spread * max(deviation, 1e-4)) for spread in _SPREAD)


class _Pilot:
    """Estimates of delta, the larger of the directions, with the same random numbers for every noise."""

    def __init__(
        self,
        make: Make,
        epsilon: float,
        adjacency: str,
        others: Process | None,
        checkpoint: str | os.PathLike[str] | None,
        progress: Progress | None,
        executor: Executor | None,
    ) -> None:
        self._make, self._epsilon, self._adjacency, self._others = make, epsilon, adjacency, others
        self._checkpoint, self._progress, self._executor = checkpoint, progress, executor
        self._looks = 0
        self.relative_error = 1.0
        """The standard error of the last look, relative to its result."""

    def look(self, noise_multiplier: float, samples: int, seed: int) -> float:
        """The estimate from so many samples in each direction."""
        mechanism, largest = self._make(noise_multiplier), 0.0
        directory = None
        if self._checkpoint is not None:
            directory = Path(self._checkpoint) / f"pilot-{self._looks}"
            directory.mkdir(parents=True, exist_ok=True)
        self._looks += 1
        for case, direction, values in cases(mechanism, self._epsilon, self._adjacency, self._others):
            if values.bound == 0.0:
                continue
            size = values.blocks.block_size
            blocks = -(-samples // size)
            path = tally_path(directory, direction, case)
            show = in_samples(self._progress, size)
            tally = values.tally(seed, 0, blocks, path, show, executor=self._executor)
            count = blocks * size
            mean, square = tally.mean(count), tally.sum_of_squares() / count
            if mean > largest:
                largest = mean
                self.relative_error = min(1.0, math.sqrt(max(0.0, square - mean**2) / count) / mean)
        return largest


__all__ = ["Verification", "choose", "derived", "propose", "verify"]
