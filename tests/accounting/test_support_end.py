"""delta next to the sum of the largest losses, against convolutions in ball arithmetic."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import flint
import hockeystick as hs
import numpy as np
import pytest
from flint import arb

from tests.campaign.balls import normal_tail
from tests.quadrature import density, integral

NEAR = [0.0, 1e-14, 1e-12, 1e-9, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2]


@pytest.fixture(autouse=True)
def precision():
    before, flint.ctx.prec = flint.ctx.prec, 300
    yield
    flint.ctx.prec = before


def laplace_delta(scales: list[float], epsilon: float) -> arb:
    """delta of Laplace noise of these scales at an epsilon within the least loss of the largest sum.

    D = 1/scale - L is 0 with probability 1/2 and has the density e^{-D/2}/4 from there on, whatever the scale: j
    steps that are not at their largest loss have a Gamma law of order j.
    """
    gap = sum((1 / arb(s) for s in scales), arb(0)) - arb(epsilon)
    if not gap > 0:
        return arb(0)
    assert gap < 2 / max(scales)
    steps = len(scales)
    total = (1 - (-gap).exp()) / arb(2) ** steps
    for j in range(1, steps + 1):
        # E[(1 - e^{D - gap}); D < gap] under the density D^{j-1} e^{-D/2} / (2 (j-1)!) / 2^{j-1} ... by its series.
        gamma = [moment(j, arb(1) / 2, gap), (-gap).exp() * moment(j, arb(-1) / 2, gap)]
        total += math.comb(steps, j) * (gamma[0] - gamma[1]) / arb(2) ** (steps + j)
    return total


def moment(j: int, rate: arb, end: arb) -> arb:
    """Integral of x^{j-1} e^{-rate x} / (j-1)! over (0, end), by the series of the exponential."""
    total, term = arb(0), end**j / math.factorial(j - 1)
    for n in range(200):
        total += term / (j + n)
        term *= -rate * end / (n + 1)
    return total


LAPLACE = [
    (hs.Laplace(1.0) * 3 + hs.Laplace(2.0) * 2, [1.0] * 3 + [2.0] * 2),
    (hs.Laplace(1.0) * 3, [1.0] * 3),
    (hs.Laplace(0.25) * 2, [0.25] * 2),
    (hs.Laplace(4.0) * 40, [4.0] * 40),
]


@pytest.mark.parametrize("engine", ["auto", "fft"])
@pytest.mark.parametrize(("composition", "scales"), LAPLACE)
def test_laplace_sums(composition: hs.mechanisms.Process, scales: list[float], engine: str) -> None:
    """Enclosed, to the accuracy asked for wherever the distance to the end is more than round-off."""
    profile = hs.account(composition, engine=engine)
    end = sum(1 / s for s in scales)
    before = math.inf
    for gap in sorted(NEAR, reverse=True):
        truth = laplace_delta(scales, end - gap)
        lower, upper = profile.delta_bounds(end - gap)
        assert not arb(lower) > truth
        assert not truth > arb(upper)
        assert upper <= before
        before = upper
        if gap >= 1e-9:
            assert upper <= lower * (1.0 + 1.2e-3)
    # At the end itself only the rounding of the sum is left: a few units, times the chance of all at their largest.
    assert profile.delta_bounds(end).upper <= 4e-15 * (1 + end) * len(scales) * 2.0 ** -len(scales)
    assert profile.delta_bounds(end * (1 + 1e-12)) == (0.0, 0.0)
    assert profile.epsilon_bounds(0.0).lower <= end <= profile.epsilon_bounds(0.0).upper
    assert profile.epsilon_bounds(5e-324).upper <= end * (1 + 1e-12)


@pytest.mark.sweep
@pytest.mark.parametrize("adjacency", ["add", "remove", "add_or_remove", "replace_one"])
@pytest.mark.parametrize(
    "step", [hs.PoissonSampled(hs.Laplace(1.0), 0.3), hs.PoissonSampled(hs.RandomizedResponse(2.0), 0.3)]
)
def test_sampled_sums_end_where_they_should(step: hs.Step, adjacency: str) -> None:
    """The curve falls, is as narrow as asked for, and ends at the largest loss."""
    profile = hs.account(step * 5, adjacency=adjacency)
    end = profile.epsilon_bounds(0.0).upper
    epsilon = end - np.array(sorted(NEAR, reverse=True))
    curve = [profile.delta_bounds(float(e)) for e in epsilon]
    uppers = [upper for _, upper in curve]
    assert all(a >= b for a, b in itertools.pairwise(uppers))
    for (lower, upper), gap in zip(curve, sorted(NEAR, reverse=True), strict=True):
        if gap >= 1e-8:
            assert upper <= lower * (1.0 + 1.2e-3)
    assert profile.delta_bounds(end) == (0.0, 0.0)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "composition",
    [
        hs.Laplace(1.0) * 3 + hs.Laplace(2.0) * 2,
        hs.PoissonSampled(hs.Laplace(1.0), 0.3) * 5,
        hs.Gaussian(1.0) + hs.Laplace(1.0) * 2,
        hs.DiscreteLaplace(1.0) * 3,
    ],
)
def test_curves_fall(composition: hs.mechanisms.Process) -> None:
    """Both bounds of a curve, however close its points."""
    profile = hs.account(composition)
    end = min(profile.epsilon_bounds(0.0).upper, 5.0)
    near = np.concatenate([np.linspace(-0.5, end, 30), end - np.logspace(-13, 0, 30)])
    near = np.concatenate([near, near * (1 + 1e-15)])
    lower, upper = profile.delta_curve(near)
    order = np.argsort(near)
    assert np.all(np.diff(upper[order]) <= 0.0)
    assert np.all(np.diff(lower[order]) <= 0.0)
    assert np.all(lower <= upper)


PAIR = hs.FinitePair((0.47, 0.009, 1e-7, 0.5209999), (0.043, 0.21, 0.74696, 4e-5))


@pytest.mark.parametrize(
    ("rare", "others", "delta"),
    [
        (hs.PoissonSampled(hs.Gaussian(6.36), 1e-8), [0.0938], 4e-12),
        (hs.PoissonSampled(hs.Gaussian(6.5), 2.1e-6) * 3, [2.5] * 3, 3e-8),
        (hs.PoissonSampled(hs.Gaussian(2.0), 1e-7) * 2, [0.5], 1e-10),
    ],
)
def test_rare_steps_beside_the_largest_losses_leave_a_lower_bound(
    rare: Any, others: list[float], delta: float
) -> None:
    """Where delta is less than what the rare steps may add to it there was none: to leave them out is post-processing."""
    profile = hs.account(sum([hs.Laplace(scale) for scale in others], rare), "remove")
    lower, upper = profile.epsilon_bounds(delta)
    largest = math.fsum(1.0 / scale for scale in others)
    # All losses are at their largest with 2^-n, which alone is (1 - e^(epsilon - largest)) 2^-n of delta.
    attained = largest + math.log1p(-delta * 2.0 ** len(others))
    assert attained * (1.0 - 1e-9) <= lower <= upper <= largest * (1.0 + 2e-3)
    more = hs.account(
        sum([hs.Laplace(scale) for scale in others], rare + hs.PoissonSampled(PAIR, 0.28)), "remove"
    )
    assert attained * (1.0 - 1e-9) <= more.epsilon_bounds(delta).lower <= more.epsilon_bounds(delta).upper


@functools.cache
def two_steps(sigma: float, q: float, epsilon: float) -> arb:
    """delta of two sampled Gaussian steps under "add", whose single losses -ln(1 - q + q r(x)) fall with the output x."""
    sigma, q, epsilon = arb(sigma), arb(q), arb(epsilon)

    def loss(x: arb) -> arb:
        return -(q * ((x - 0.5) / sigma**2).expm1()).log1p()

    def largest_output(t: arb) -> arb | None:
        """Above which the loss is at most t."""
        ratio = 1 + (-t).expm1() / q
        return 0.5 + sigma**2 * ratio.log() if ratio > 0 else None

    def one(t: arb) -> arb:
        x = largest_output(t)
        if x is None:
            return arb(0)
        head = normal_tail(-x / sigma)
        return head - t.exp() * ((1 - q) * head + q * normal_tail((1 - x) / sigma))

    end = largest_output(epsilon + (-q).log1p())
    start = min(-9 * sigma, end - 8 * sigma, key=float)  # far out, all is next to the end
    # Next to the end a loss changes within ever less.
    shares = [k / 24 for k in range(24)] + [1 - 2.0**-k for k in range(5, 50)] + [1.0]
    nodes = [start + (end - start) * share for share in shares]
    return integral(lambda x: density(x / sigma) / sigma * one(epsilon - loss(x)), nodes)


@pytest.mark.sweep
@pytest.mark.parametrize("engine", ["auto", "fft"])
@pytest.mark.parametrize(("sigma", "q"), [(0.3, 1e-3), (0.16, 1e-5)])
def test_losses_that_no_other_makes_good_for_take_no_room(sigma: float, q: float, engine: str) -> None:
    """Losses reach from minus ten to q; below minus the largest of the other step they count for nothing."""
    profile = hs.account(hs.PoissonSampled(hs.Gaussian(sigma), q) * 2, "add", engine=engine)
    end = -2.0 * math.log1p(-q)
    for share in (0.0, 0.3, 0.9, 0.98):
        delta = two_steps(sigma, q, share * end)
        lower, upper = profile.delta_bounds(share * end)
        assert lower <= delta * (1.0 + 1e-12)
        assert delta * (1.0 - 1e-12) <= upper
        assert upper <= lower * (1.0 + 1.2e-3)
        low, high = profile.epsilon_bounds(float(delta))
        assert low <= share * end * (1.0 + 1e-12) + 1e-12 * q
        assert share * end * (1.0 - 1e-12) <= high
        assert high - low <= 1.2e-3 * end


@pytest.mark.sweep
@pytest.mark.parametrize("engine", ["auto", "fft"])
@pytest.mark.parametrize("share", [0.9, 0.99, 0.998])
def test_lattices_of_which_one_atom_is_left_end(share: float, engine: str) -> None:
    """What is lifted to a point weighs so much that nothing else was kept, and points were looked for without end."""
    end = -2.0 * math.log1p(-0.214)
    profile = hs.account(hs.PoissonSampled(hs.Gaussian(2.4), 0.214) * 2, "add", engine=engine)
    lower, upper = profile.delta_bounds(share * end)
    delta = two_steps(2.4, 0.214, share * end)
    assert lower <= delta * (1.0 + 1e-9)
    assert delta * (1.0 - 1e-9) <= upper
    both = hs.PoissonSampled(hs.Gaussian(1.3), 7e-5) + hs.PoissonSampled(hs.Gaussian(2.6), 2e-5)
    lower, upper = hs.account(both, "add", engine=engine).delta_bounds(share * 9e-5)
    assert lower <= upper < 1e-6
