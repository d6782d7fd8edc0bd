"""Candidates for `verify`: noise multipliers around the one at which a verifier's verdict turns, from pilot samples.

Nothing rests on their quality but how close the result is to the least possible noise: verifiers never see the
pilots' samples.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

from .._base.validation import ParameterError
from .confidence import VerificationPlan
from .direction import Sampled, cases
from .runs import ALONE, RunOptions, derived
from .verify import Look, Make, Plan, Proposals, TiltedPlan

_SPREAD = (4.0, 2.75, 2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0, -1.5, -2.0)
"""Where the candidates of plain samples lie around the pilot's guess, in standard deviations of where the verifier's
verdict turns: the first is hardly ever rejected, the last hardly ever accepted (*speed*)."""

_NEAR = 0.12
"""Logarithms of noise multipliers that are near each other (*speed*)."""
_SEARCH_SAMPLES, _LINE_SAMPLES = 8192, 49_152
"""Weighted pilot samples at the noise multipliers of the search, and at those near its end (*speed*)."""
_COARSE, _FINE, _SAVED = 0.4, (0.5, 0.87), 0.007
"""delta over the delta that is tested, as the pilot sees it, at the candidates of weighted samples: the noisiest, and between what
that of least noise is; the share of the noise that no other could save beyond that (*speed*)."""
_SLOPE, _SLOPES = -30.0, (-200.0, -4.0)
"""d ln delta / d ln noise, where the pilot has not seen any, and between what it must be (*speed*)."""


def propose(
    make: Make, epsilon: float, plan: Plan, noisy: float, seed: int, options: RunOptions = ALONE
) -> tuple[float, ...]:
    """Candidates around the noise multiplier at which the verdict of the ``plan`` turns.

    ``noisy`` is where the search begins.
    """
    if isinstance(plan, TiltedPlan):
        return _by_tilted_samples(make, epsilon, plan, noisy, seed, options.unrecorded())
    return _by_plain_samples(make, epsilon, plan, noisy, seed, options)


def _by_plain_samples(
    make: Make, epsilon: float, plan: VerificationPlan, start: float, seed: int, options: RunOptions
) -> tuple[float, ...]:
    few = max(1, plan.samples // 16)
    target = math.log(plan.threshold)
    looks, relative_error = 0, 1.0

    def height(place: float, samples: int, label: str) -> float:
        """ln of the larger direction's mean over the threshold, with the same random numbers for every noise."""
        nonlocal looks, relative_error
        kept, largest = options.folder(f"pilot-{looks}"), 0.0
        looks += 1
        for values in cases(make(math.exp(place)), epsilon, options):
            if values.bound == 0.0:
                continue
            size = values.block_size
            blocks = -(-samples // size)
            here = kept.file(f"{values.label}.tally").in_samples(size)
            tally, count = values.tally(derived(seed, label), 0, blocks, here), blocks * size
            mean, square = tally.mean(count), tally.sum_of_squares() / count
            if mean > largest:
                largest = mean
                relative_error = min(1.0, math.sqrt(max(0.0, square - mean**2) / count) / mean)
        # Nothing seen: below what this many samples can show.
        return math.log(max(largest, 0.1 / samples)) - target

    low = high = math.log(start)
    while height(high, few, "coarse") > 0.0:
        low, high = high, high + 0.25
        if high > math.log(start) + 7.0:
            raise ParameterError(
                f"noise_multiplier up to {math.exp(low):.3g}: the estimated delta stays above {plan.threshold!r}"
            )
    while low == high or height(low, few, "coarse") <= 0.0:
        low, high = low - 0.25, low
        if low < math.log(start) - 14.0:
            # Hardly any noise is enough: the example hardly ever takes part.
            return (math.exp(low),)
    for _ in range(3):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if height(middle, few, "coarse") > 0.0 else (low, middle)

    # Refine with as many samples as the verifier takes; delta falls like a power of the noise.
    place = 0.5 * (low + high)
    slope, before = -6.0, (place, height(place, plan.samples, "fine"))
    for _ in range(3):
        place = before[0] - max(-0.2, min(0.2, before[1] / slope))
        here = (place, height(place, plan.samples, "fine"))
        if abs(here[0] - before[0]) > 1e-3:
            slope = min(-1.0, max(-200.0, (here[1] - before[1]) / (here[0] - before[0])))
        before = here
        if abs(here[1]) < 0.02:
            break
    place = before[0] - max(-0.2, min(0.2, before[1] / slope))
    # Both the pilot's and the verifier's mean vary around the truth.
    deviation = math.sqrt(2.0) * relative_error / -slope
    return tuple(math.exp(place + spread * max(deviation, 1e-4)) for spread in _SPREAD)


def _by_tilted_samples(
    make: Make, epsilon: float, plan: TiltedPlan, noisy: float, seed: int, options: RunOptions
) -> tuple[float, ...]:
    """Directions that cannot be tilted, or are known to be below what is tested, are left out.

    Pilots of one noise multiplier start from the proposals of the last one, unless that was far away.
    """
    proposals: Proposals = {}
    places: list[float] = []

    def height(place: float, samples: int = _SEARCH_SAMPLES) -> float:
        """ln of the largest delta over the one that is tested."""
        worst = -math.inf
        if places and abs(place - places[-1]) > _NEAR:
            proposals.clear()
        for values in cases(make(math.exp(place)), epsilon, options, only_above=True):
            if values.bound > 0.0 and values.known > plan.tested_delta and values.can_tilt:
                own = derived(seed, "search", len(places), values.direction, values.case)
                worst = max(worst, Look.of(values, own, samples, proposals, options).log_delta)
        places.append(place)
        return worst - math.log(plan.tested_delta)

    place = _near_root(height, math.log(noisy) - 0.1)
    if place < math.log(noisy) - 14.0:
        # Hardly any noise is enough: the example hardly ever takes part.
        return (math.exp(place),)
    place, slope = _on_a_line(lambda near: height(near, _LINE_SAMPLES), place)
    fine = min(_FINE[1], max(_FINE[0], math.exp(_SAVED * slope)))
    ratios = (_COARSE, max(_COARSE, 1.5 * fine - 0.5), fine)
    return tuple(math.exp(place + math.log(ratio) / slope) for ratio in ratios)


def _near_root(height: Callable[[float], float], place: float) -> float:
    """About where a height that falls, and may be far off or infinite away from its root, is 0."""
    ends: list[tuple[float, float]] = []  # the nearest ones above and below the root
    lowest, highest, step = place - 14.0, place + 1.5, 0.1
    while lowest <= place <= highest:
        here = height(place)
        if abs(here) < 1.0:
            return place - here / _SLOPE
        ends = [*(end for end in ends if (end[1] > 0.0) != (here > 0.0)), (place, here)]
        if len(ends) == 2:
            (low, above), (high, below) = sorted(ends)
            if high - low < 0.02:
                break
            share = above / (above - below) if below > -math.inf else 0.5
            place = low + (high - low) * min(0.8, max(0.2, share))
        else:
            # So far all were on one side.
            place += math.copysign(min(0.4, max(step, abs(here / _SLOPE))), here)
            step *= 1.5
    return place


def _on_a_line(height: Callable[[float], float], place: float) -> tuple[float, float]:
    """Where a line through looks nearby has height 0, and its slope: single looks are off by ten percent."""
    slope, near = _SLOPE, {}
    for offset in (-0.03, 0.03, 0.0):
        here = height(place + offset)
        if math.isfinite(here):
            near[place + offset] = here
        if len(near) > 1:
            found = statistics.linear_regression(list(near), list(near.values())).slope
            slope = min(_SLOPES[1], max(_SLOPES[0], found))
            level = statistics.fmean(near.values())
            place = statistics.fmean(near) - max(-3.0, min(3.0, level)) / slope
    return place, slope


def is_hopeful(mechanism: Sampled, epsilon: float, plan: TiltedPlan, seed: int, options: RunOptions) -> bool:
    """Whether pilot samples expect every direction to be accepted within plan.samples."""
    for values in cases(mechanism, epsilon, options, only_above=True):
        if values.bound == 0.0 or values.known <= plan.tested_delta:
            continue
        own = derived(seed, values.direction, values.case)
        if not values.can_tilt:
            return False
        look = Look.of(values, own, _LINE_SAMPLES, {}, options.unrecorded())
        if look.test(plan, plan.samples) is None:
            return False
    return True
