"""Bounds that were once violated; each test names the mistake it guards against."""

import math
from fractions import Fraction

import hockeystick as hs
import pytest
from hockeystick import _core
from mpmath import mp


def test_a_jump_past_the_lattice_counts_with_the_full_moment() -> None:
    # Nearly all of P sits at the largest loss -ln(1-q); a lattice that stops short of it must say so.
    pair = _core.sampled_pair(_core.gaussian_pair(50.0), 0.01, "add")
    answer = _core.Profile([[(pair, 10)]]).epsilon_bounds(1e-5)
    # The loss is 10 times -ln(1-q) except on a set of probability below 1e-100.
    truth = -10 * math.log1p(-0.01) + math.log1p(-1e-5)
    assert answer.lower <= truth * (1 + 1e-12)
    assert truth * (1 - 1e-12) <= answer.upper


def test_atoms_with_underflowing_masses() -> None:
    bounds = hs.account(hs.RandomizedResponse(1000.0)).epsilon_bounds(delta=1e-6)
    truth = 1000.0 + math.log1p(-1e-6)
    assert bounds.lower <= truth * (1 + 1e-14)
    assert truth * (1 - 1e-14) <= bounds.upper


def test_bulk_far_from_the_tilted_mass_is_not_moved_up() -> None:
    # delta = 1e-200 tilts three steps of N(2, .) so far that the untilted bulk is negligible.
    composed = _core.Profile([[(_core.gaussian_pair(2.0), 3)]], engine="fft").epsilon_bounds(1e-200)
    exact = _core.Profile([[(_core.gaussian_pair(2.0 * math.sqrt(3.0)), 1)]]).epsilon_bounds(1e-200)
    assert composed.lower <= exact.upper
    assert exact.lower <= composed.upper
    assert composed.upper <= composed.lower * (1 + 2e-3)


def test_rare_jumps_whose_tilted_mass_exceeds_the_rest() -> None:
    # Both bounds of an engine, and the neighbours of a point where delta's upper bound was once 1.
    step = hs.PoissonSampled(hs.Gaussian(2.41), 1.3219411484660288e-4)
    bounds = hs.account(step * 1000, "remove", engine="fft").epsilon_bounds(1e-5)
    assert bounds.upper <= bounds.lower * (1 + 1e-3)
    less, more = (
        hs.account(hs.PoissonSampled(hs.Gaussian(sigma), step.sampling_probability) * 1000, "remove")
        for sigma in (2.43, 2.40)
    )
    assert less.epsilon_bounds(1e-5).lower <= bounds.upper
    assert bounds.lower <= more.epsilon(1e-5)


@pytest.mark.parametrize(
    ("sigma", "q", "steps", "delta"),
    [
        (0.37733561077398725, 0.1, 6, 9.528e-11),
        (0.4573023260947037, 0.9, 6, 3.9964e-8),
        (0.19533796354481245, 0.9, 4, 1.508e-10),
    ],
)
def test_strips_far_beyond_the_range_of_exp(sigma: float, q: float, steps: int, delta: float) -> None:
    # Once clamped exponents let the inversion miss the truth; the FFT did not.
    process = hs.PoissonSampled(hs.Gaussian(sigma), q) * steps
    bounds = hs.account(process, adjacency="remove").epsilon_bounds(delta)
    fft = hs.account(process, adjacency="remove", accuracy=1e-6, engine="fft").epsilon_bounds(delta)
    assert bounds.lower <= fft.upper
    assert fft.lower <= bounds.upper


def test_delta_below_the_smallest_normal_number() -> None:
    # In units of 5e-324: 1.8517 and 22.70 by an inversion in 40 digits.
    process = hs.PoissonSampled(hs.Gaussian(1.0), 0.01) * 1000
    for epsilon, units in ((91.9, 1.8517), (91.6, 22.70)):
        bounds = hs.account(process, adjacency="remove").delta_bounds(epsilon)
        assert bounds.lower <= math.floor(units) * 5e-324
        assert bounds.upper >= math.ceil(units) * 5e-324


def test_the_loosest_accuracy_is_valid() -> None:
    bounds = hs.account(hs.Laplace(20.0) * 500, accuracy=1.0).epsilon_bounds(delta=1e-6)
    assert 0.0 < bounds.lower <= bounds.upper < 20.0


@pytest.mark.parametrize("q", [0.25, 0.1, 1e-7])
@pytest.mark.parametrize("steps", [1, 3, 1000])
def test_revealed_with_certainty_is_not_rounded_down(q: float, steps: int) -> None:
    """Without noise delta is 1 - (1-q)^steps at every large epsilon; it was a unit too small."""
    truth = 1 - (1 - Fraction(q)) ** steps
    process = hs.PoissonSampled(hs.Gaussian(0.0), q) * steps
    for epsilon in (5.0, 700.0):
        lower, upper = hs.account(process, adjacency="remove").delta_bounds(epsilon)
        assert Fraction(lower) <= truth <= Fraction(upper)
        assert upper - lower <= 1e-11 * upper


@pytest.mark.parametrize("engine", ["auto", "fft"])
@pytest.mark.parametrize(("steps", "delta"), [(4, 1.6e-18), (4, 1e-300), (30, 1e-25)])
def test_epsilon_next_to_the_sum_of_the_largest_losses(engine: str, steps: int, delta: float) -> None:
    """Here delta(eps) is the mass of the topmost atom times 1 - e^{eps - top}; the lower bound was 0."""
    scale = 10.442201937218359
    with mp.workdps(40):
        top = mp.mpf(steps) / mp.mpf(scale)
        truth = top + mp.log1p(-mp.mpf(delta) * mp.mpf(2) ** steps)
    process = hs.Laplace(scale) * steps
    lower, upper = hs.account(process, adjacency="remove", engine=engine).epsilon_bounds(delta)
    assert lower <= truth * (1 + mp.mpf(10) ** -15)
    assert truth * (1 - mp.mpf(10) ** -15) <= upper
    assert upper - lower <= 1e-6 * upper


def test_finite_losses_below_zero_beside_an_infinite_one() -> None:
    """A pair whose largest finite loss is 0 need not have the loss 0 throughout."""
    q = [0.3 * math.exp(0.5), 0.3]
    uneven = _core.discrete_pair([-0.5, 0.0], [0.3, 0.3], q, 0.4)
    top = _core.discrete_pair([-1.0, 1.0], [0.2689, 0.7311], [0.2689 * math.e, 0.7311 / math.e])
    profile = _core.Profile([[(uneven, 1), (top, 1)]])
    delta = 0.4 + 1e-9
    found = profile.epsilon_bounds(delta)
    # delta(eps) - 0.4 = 0.3 * 0.7311 (1 - e^{eps-1}) for eps in (0.5, 1), so eps is just below 1.
    truth = 1 + math.log1p(-1e-9 / (0.3 * 0.7311))
    assert found.lower <= truth * (1 + 1e-14)
    assert truth * (1 - 1e-14) <= found.upper
    half = profile.epsilon_bounds(0.4 + 0.05)
    assert half.lower <= 1 + math.log1p(-0.05 / (0.3 * 0.7311)) <= half.upper


@pytest.mark.parametrize("epsilon", [3.0, 1000.0])
@pytest.mark.parametrize("sigma", [1e2, 1e4, 1e6])
@pytest.mark.parametrize("adjacency", ["add_or_remove", "replace_one"])
def test_delta_far_below_the_smallest_double(adjacency: str, sigma: float, epsilon: float) -> None:
    """The upper bound was 1 after seconds of lattices. Unsampled, delta(3) is already below 1e-300."""
    profile = hs.account(hs.PoissonSampled(hs.Gaussian(sigma), 0.01) * 1000, adjacency)
    assert profile.delta_bounds(epsilon) == (0.0, 5e-324)


def test_the_least_delta_below_zero_is_rounded_down() -> None:
    """delta(eps) >= 1 - e^eps where nothing is released; the lower bound was rounded to nearest."""
    for epsilon in (-1e-9, -0.3, -1.0, -2.7, -40.0):
        with mp.workdps(40):
            truth = -mp.expm1(mp.mpf(epsilon))
        for process in (hs.Gaussian(1.0) * 0, hs.PureDP(1e-300)):
            lower, upper = hs.account(process).delta_bounds(epsilon)
            assert mp.mpf(lower) <= truth <= mp.mpf(upper)


def test_losses_too_small_for_any_transform_take_no_time() -> None:
    account = hs.account(hs.PureDP(1e-300) * 10)
    for epsilon in (0.0, 4e-300):
        bounds = account.delta_bounds(epsilon=epsilon)
        assert 0 <= bounds.lower <= bounds.upper <= 1.1e-299
    # One step alone has tanh(1e-300 / 2).
    assert account.delta_bounds(epsilon=0.0).upper >= 0.5e-300
