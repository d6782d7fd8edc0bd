"""Batches drawn with replacement: rare groups of a record have losses so large that they once ruled every tilt."""

from __future__ import annotations

import math

import hockeystick as hs
import numpy as np
import pytest
from hockeystick import _core
from mpmath import mp
from scipy.special import ndtr
from scipy.stats import binom

# noise multiplier, batch, records, steps, delta, step of the oracle's lattice; the last one has few hits.
REQUESTS = [
    (1.857, 22634, 567368, 1149, 2.1e-9, 4e-4),
    (10.0195, 10228, 1464150, 234, 3.7e-9, 2e-6),
    (1.0, 256, 60000, 1000, 1e-5, 2e-4),
    (2.705, 4913, 501700, 203, 3.1e-7, 2e-4),
    (4.598, 24, 149200, 2000, 1e-6, 1e-6),
]


def rounded_down(
    sigma: float, batch: int, records: int, h: float, points: int
) -> tuple[np.ndarray, np.ndarray]:
    """P-masses of the sum of all losses, each rounded down to a multiple of h, and the P-mass left out.

    The pair is that of docs/mechanisms/replacement.md, section 4: the tails of its loss in closed form.
    """
    gamma = -np.expm1(batch * np.log1p(-1.0 / records))
    groups = np.arange(1, 13)
    weights = binom.pmf(groups, batch, 1.0 / records) / gamma
    losses = h * np.arange(points // 2 + 1)
    right, left = np.zeros(len(losses)), np.zeros(len(losses))  # P(L > x) and P(L < -x)
    for mu, weight in zip(2.0 * groups / sigma, weights, strict=True):
        t = np.log1p(np.expm1(losses) / gamma) / mu
        right += weight * ((1.0 - gamma) * ndtr(-t - mu / 2) + gamma * ndtr(mu / 2 - t))
        left += weight * ndtr(-t - mu / 2)
    masses = np.concatenate([-np.diff(left)[::-1], -np.diff(right)])
    masses[0] += left[-1]
    masses[points // 2] += 1.0 - right[0] - left[0]
    return masses, h * (np.arange(points) - points // 2)


def delta_between(request: tuple[float, int, int, int, float, float], epsilon: float) -> tuple[float, float]:
    """delta(epsilon), between two bounds: every loss lies less than h above what it is rounded to."""
    sigma, batch, records, steps, _, h = request
    points = 1 << 18
    masses, edges = rounded_down(sigma, batch, records, h, points)
    lost = steps * abs(1.0 - masses.sum())
    shift = points // 2
    spectrum = np.fft.rfft(np.roll(masses, -shift)) ** steps
    total = np.roll(np.fft.irfft(spectrum, points), shift)
    ends = [
        float(np.sum(total * -np.expm1(np.minimum(0.0, e - edges)))) for e in (epsilon, epsilon - steps * h)
    ]
    return ends[0], ends[1] + lost


@pytest.mark.sweep
@pytest.mark.parametrize("request_", REQUESTS)
def test_against_rounded_losses(request_: tuple[float, int, int, int, float, float]) -> None:
    sigma, batch, records, steps, delta, _ = request_
    process = hs.WithReplacement(hs.Gaussian(sigma), batch, records) * steps
    profile = hs.account(process, adjacency="replace_one")
    bounds = profile.report(delta=delta, risks=False).epsilon
    assert bounds is not None
    assert 0 < bounds.lower <= bounds.upper
    assert bounds.upper - bounds.lower <= 2e-3 * bounds.upper
    noise = 1e-3 * delta + 1e-14 * steps  # what the oracle's own rounding may be
    low, high = delta_between(request_, bounds.lower)
    assert high + noise >= delta, "the lower bound is above the truth"
    low, high = delta_between(request_, bounds.upper)
    assert low - noise <= delta, "the upper bound is below the truth"
    deltas = profile.report(epsilon=bounds.upper, risks=False).delta
    assert deltas is not None
    assert low - noise <= deltas.upper
    assert deltas.lower <= high + noise
    assert deltas.upper - deltas.lower <= 2e-2 * deltas.upper


def chords(request_: tuple[float, int, int, int], epsilon: float, h: float, tilt: float) -> float:
    """delta(epsilon) of losses whose profile is that of the pair at multiples of h and straight in between.

    The profile is a closed form; tilted masses keep the transform's rounding small beside delta.
    """
    sigma, batch, records, steps = request_
    gamma = -np.expm1(batch * np.log1p(-1.0 / records))
    groups, half = np.arange(1, 13), 1 << 16
    weights = binom.pmf(groups, batch, 1.0 / records) / gamma
    x = h * np.arange(half + 1)
    ratio = 1.0 + np.expm1(x) / gamma
    f = np.zeros(half + 1)
    for mu, weight in zip(2.0 * groups / sigma, weights, strict=True):
        t = np.log(ratio) / mu
        f += gamma * weight * (ndtr(mu / 2 - t) - ratio * ndtr(-mu / 2 - t))
    f = np.concatenate([(-np.expm1(-x) + np.exp(-x) * f)[:0:-1], f])
    tails = (f[:-1] - math.exp(-h) * f[1:]) / -math.expm1(-h)
    masses = -np.diff(tails, prepend=1.0)
    x = h * np.arange(-half, half)
    tilted = masses * np.exp(tilt * x)
    scale = tilted.sum()
    total = np.fft.irfft(np.fft.rfft(np.roll(tilted / scale, half)) ** steps, 2 * half)
    total, x = np.roll(total, half)[x > epsilon], x[x > epsilon]
    return float(np.sum(total * -np.expm1(epsilon - x) * np.exp(steps * math.log(scale) - tilt * x)))


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("request_", "delta", "h", "tilt"),
    [
        ((1.857, 22634, 567368, 1149), 2.1e-9, 1e-3, 0.3),
        ((2.705, 4913, 501700, 203), 3.1e-7, 4e-4, 1.0),
        ((10.0195, 10228, 1464150, 234), 3.7e-9, 1e-5, 15.0),
        ((1.0, 256, 60000, 1000), 1e-5, 1e-3, 0.2),
    ],
)
def test_against_chords(request_: tuple[float, int, int, int], delta: float, h: float, tilt: float) -> None:
    """Two lattices, extrapolated: their error is h^2 at first."""
    sigma, batch, records, steps = request_
    process = hs.WithReplacement(hs.Gaussian(sigma), batch, records) * steps
    bounds = hs.account(process, adjacency="replace_one").epsilon_bounds(delta)
    assert 0 < bounds.lower <= bounds.upper <= bounds.lower * (1 + 1e-7)
    for epsilon, sign in ((bounds.lower, 1), (bounds.upper, -1)):
        fine, coarse = (chords(request_, epsilon, step, tilt) for step in (h, 2 * h))
        assert abs(coarse - fine) < 1e-3 * delta
        truth = fine + (fine - coarse) / 3
        assert sign * (truth / delta - 1) > -5e-6


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("request_", "delta"),
    [
        ((3.334, 528, 9009000, 27914), 1.4e-8),  # the next three once had no lower bound
        ((2.004, 29, 9713000, 100000), 7.4e-9),
        ((2.713, 32, 8799000, 100000), 8.5e-9),
        ((0.5345, 11920, 315800, 1669), 1.3e-10),
    ],
)
def test_few_hits_and_large_losses(request_: tuple[float, int, int, int], delta: float) -> None:
    sigma, batch, records, steps = request_
    process = hs.WithReplacement(hs.Gaussian(sigma), batch, records) * steps
    bounds = hs.account(process, adjacency="replace_one").epsilon_bounds(delta)
    assert 0 < bounds.lower <= bounds.upper <= bounds.lower * (1 + 1e-6)
    coarse = hs.account(process, adjacency="replace_one", engine="fft").epsilon_bounds(delta)
    assert bounds.lower <= coarse.upper
    assert coarse.lower <= bounds.upper


def by_midpoints(
    request_: tuple[float, int, int, int], epsilons: np.ndarray, h: float, half: int = 1 << 18
) -> np.ndarray:
    """delta at each epsilon, of losses that are moved to the nearest multiple of h.

    P = e^{L/2} S and Q = e^{-L/2} S, where S is symmetric: so nothing drifts, and the error is that of S's variance.
    """
    sigma, batch, records, steps = request_
    gamma = -np.expm1(batch * np.log1p(-1.0 / records))
    groups = np.arange(1, 13)
    weights = binom.pmf(groups, batch, 1.0 / records) / gamma
    x = h * np.arange(half)
    right, left = np.zeros(half), np.zeros(half)  # P(L > x + h/2) and P(L < -x - h/2)
    for mu, weight in zip(2.0 * groups / sigma, weights, strict=True):
        t = np.log1p(np.expm1(x + h / 2) / gamma) / mu
        right += weight * ((1.0 - gamma) * ndtr(-t - mu / 2) + gamma * ndtr(mu / 2 - t))
        left += weight * ndtr(-t - mu / 2)
    masses = np.zeros(2 * half)
    masses[0] = 1.0 - right[0] - left[0]
    masses[1:half] = -np.diff(right) * np.exp(-x[1:] / 2)
    masses[:half:-1] = masses[1:half]
    # In double precision what a transform rounds by, on some machines, shows beside the second order of h.
    total = np.fft.irfft(np.fft.rfft(masses.astype(np.longdouble)) ** steps, 2 * half)[:half]
    gains = np.exp(x / 2) - np.exp(epsilons[:, None] - x / 2)
    return np.maximum(0.0, gains) @ total


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("request_", "h"),
    [
        ((1.881, 17, 1540000, 1000), 2e-7),
        ((1.881, 17, 1540000, 100000), 4e-7),
        ((5.173, 48, 7412000, 100000), 5e-8),
        ((7.434, 16, 8620000, 100000), 1e-8),
    ],
)
def test_the_total_variation_where_hits_are_rare(request_: tuple[float, int, int, int], h: float) -> None:
    """Any epsilon far below what the losses move by, of which the lattices of losses know next to nothing."""
    sigma, batch, records, steps = request_
    profile = hs.account(
        hs.WithReplacement(hs.Gaussian(sigma), batch, records) * steps, adjacency="replace_one"
    )
    epsilons = np.array([0.0, 1e-9, 1e-6])
    fine, coarse = (by_midpoints(request_, epsilons, step) for step in (h, 2 * h))
    assert (abs(coarse - fine) < 1e-4 * fine).all()
    for epsilon, truth in zip(epsilons, fine + (fine - coarse) / 3, strict=True):
        bounds = profile.delta_bounds(float(epsilon))
        assert 0 < bounds.lower <= bounds.upper <= bounds.lower * (1 + 1e-6)
        assert bounds.lower <= truth * (1 + 5e-6)
        assert truth * (1 - 5e-6) <= bounds.upper


@pytest.mark.parametrize(
    ("request_", "delta", "half"),
    [((3.38, 15, 282859, 6), 1e-11, 1 << 19), ((1.63, 27, 1750018, 14), 1e-6, 1 << 20)],
)
def test_where_groups_begin_to_matter(request_: tuple[float, int, int, int], delta: float, half: int) -> None:
    """About this epsilon a rare group of a record has more of the losses than a single one; none had a lower bound."""
    sigma, batch, records, steps = request_
    process = hs.WithReplacement(hs.Gaussian(sigma), batch, records) * steps
    bounds = hs.account(process, adjacency="replace_one").epsilon_bounds(delta)
    assert 0 < bounds.lower <= bounds.upper <= bounds.lower * (1 + 1e-6)
    fine, coarse = (by_midpoints(request_, np.array(bounds), step, half) for step in (2e-7, 4e-7))
    assert (abs(coarse - fine) < 1e-5 * delta).all()
    at_lower, at_upper = fine + (fine - coarse) / 3
    assert at_lower >= delta * (1 - 1e-5), "the lower bound is above the truth"
    assert at_upper <= delta * (1 + 1e-5), "the upper bound is below the truth"


@pytest.mark.parametrize("g", [1e-6, 1e-5, 1e-4])
def test_many_steps_that_hardly_lose_anything(g: float) -> None:
    """Round-off of plain powers, 1e5 steps of it, would hide such a delta; the truth is a sum over the hits."""
    steps, a = 100_000, 0.5
    less, none = g * math.exp(-a), 1 - g - g * math.exp(-a)
    pair = _core.discrete_pair([-a, 0.0, a], [less, none, g], [g, none, less], spacing=a)
    profile = _core.Profile([[(pair, steps)]], engine="fft")
    with mp.workdps(40):
        up, down = mp.mpf(g), mp.mpf(g) * mp.exp(-mp.mpf(a))
        for losses in (4.6, 8.6, 12.6):
            epsilon, truth = losses * a, mp.mpf(0)
            for i in range(int(losses), 90):
                for j in range(min(i, 60)):
                    if (i - j) * a > epsilon:
                        ways = mp.ff(steps, i + j) / mp.factorial(i) / mp.factorial(j)
                        rest = (1 - up - down) ** (steps - i - j)
                        truth += ways * up**i * down**j * rest * (1 - mp.exp(epsilon - (i - j) * a))
            bounds = profile.delta_bounds(epsilon)
            assert bounds.lower <= truth * (1 + 1e-9)
            assert truth <= bounds.upper * (1 + 1e-9)
            assert bounds.upper <= bounds.lower * 1.01


@pytest.mark.parametrize(
    ("request_", "delta", "h", "tilt", "said"),
    [
        ((1.857, 22634, 567368, 1149), 2.1e-9, 1e-3, 0.3, 0.3),
        ((2.705, 4913, 501700, 203), 3.1e-7, 4e-4, 1.0, 0.1),
        ((1.0, 256, 60000, 1000), 1e-5, 1e-3, 0.2, 1.0),
    ],
)
def test_in_company_of_answers(
    request_: tuple[float, int, int, int], delta: float, h: float, tilt: float, said: float
) -> None:
    """Two randomised responses: delta is a mean over their losses; no transform of the steps falls fast enough."""
    sigma, batch, records, steps = request_
    process = hs.WithReplacement(hs.Gaussian(sigma), batch, records) * steps + hs.RandomizedResponse(said) * 2
    truthful = 1 / (1 + math.exp(-said))
    losses = {2 * said: truthful**2, 0.0: 2 * truthful * (1 - truthful), -2 * said: (1 - truthful) ** 2}
    report = hs.account(process, adjacency="replace_one").report(delta=delta, risks=False).epsilon
    assert report is not None
    assert report.engine == "inversion"
    assert 0 < report.lower <= report.upper <= report.lower * (1 + 1e-7)
    for epsilon, sign in ((report.lower, 1), (report.upper, -1)):
        fine, coarse = (
            sum(weight * chords(request_, epsilon - loss, step, tilt) for loss, weight in losses.items())
            for step in (h, 2 * h)
        )
        assert abs(coarse - fine) < 1e-3 * delta
        truth = fine + (fine - coarse) / 3
        assert sign * (truth / delta - 1) > -1e-5
