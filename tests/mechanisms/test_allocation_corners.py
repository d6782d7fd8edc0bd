"""Corners of random allocation: groups and private selection around it, deltas next to nothing, noise without digits."""

import math

import hockeystick as hs
import mpmath
import numpy as np
import pytest
from hockeystick import _core
from hockeystick.mechanisms import Skellam
from hockeystick.mechanisms.adjacency import directions
from hockeystick.mechanisms.selection import PrivateSelection, Repetitions
from hockeystick.mechanisms.whole import Group, curve_of
from scipy.stats import binom, norm

from .test_allocation import exact_of_two


@pytest.mark.parametrize("sigma", [0.6, 3.0])
def test_the_curve_of_two_steps_is_above_the_truth_and_close(sigma):
    """A curve of few contours, against nested closed forms in mpmath."""
    curve = curve_of(hs.RandomAllocation(sigma, 2).as_process(), "add_or_remove")
    for epsilon in (2.0 / sigma,):
        truth = max(exact_of_two(sigma, epsilon, direction) for direction in ("remove", "add"))
        assert truth <= float(curve(np.array(epsilon))) <= truth * 1.01


def test_two_records_are_within_their_group():
    """Two records drawn apart, both with contribution e_t: samples of their likelihood ratio from NumPy."""
    rng, steps, sigma, n = np.random.default_rng(5), 30, 1.0, 20_000
    g = rng.standard_normal((n, steps))
    w = np.exp(g / sigma - 0.5 / sigma**2)
    both = np.exp(2.0 * g / sigma - 2.0 / sigma**2)
    # Mean over pairs of steps (t, s) of the ratio of N(e_t + e_s) to N(0).
    ratio = (both.sum(axis=1) + w.sum(axis=1) ** 2 - (w * w).sum(axis=1)) / steps**2
    group = hs.account(Group(hs.RandomAllocation(sigma, steps), 2))
    for epsilon in (0.0, 0.1, 0.3):
        for sample in (
            np.maximum(0.0, ratio - math.exp(epsilon)),
            np.maximum(0.0, 1.0 - math.exp(epsilon) * ratio),
        ):
            assert sample.mean() - 5.0 * sample.std() / math.sqrt(n) <= group.delta(epsilon)
    assert group.epsilon(1e-6) < 2.0 * hs.account(hs.Gaussian(sigma)).epsilon(1e-6)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "release",
    [
        hs.RandomAllocation(2.0, 100) * 30,
        hs.RandomAllocation(1e7, 10) * 10**13,
        Skellam(10.0) * 10,
        hs.PoissonSampled(hs.Laplace(1.0), 0.01) * 100,
        hs.PoissonSampled(hs.DiscreteGaussian(2.0), 0.1) * 100,
    ],
    ids=str,
)
def test_groups_and_selections_of_what_is_slow_are_answered(release):
    """Each took minutes: what follows from a curve is no less than the curve, and not much more for one record."""
    delta, alone = 1e-5, hs.account(release)
    epsilon = alone.epsilon_bounds(delta)
    one = hs.account(Group(release, 1)).epsilon(delta)
    assert epsilon.lower <= one <= epsilon.upper * 1.003 + 1e-6
    assert one <= hs.account(Group(release, 2)).epsilon(delta)
    tuned = hs.account(PrivateSelection(release, Repetitions.geometric(10)))
    assert epsilon.lower <= tuned.epsilon(delta)


def test_rough_and_close_curves_meet_far_down():
    """Rough bounds enclose the close ones, whatever is negligible."""
    for process in (hs.RandomAllocation(1.0, 100) * 10, Skellam(4.0) * 2):
        profile = _core.Profile(directions(process.as_process(), "remove"), 1e-3)
        epsilon = np.linspace(0.0, profile.epsilon_bounds(1e-30).upper, 4)
        lower, upper = profile.rough_curve(np.repeat(epsilon[::-1], 2), 1e-40)
        for e, low, high in zip(np.repeat(epsilon[::-1], 2), lower, upper, strict=True):
            close = profile.delta_bounds(e)
            assert low <= close.upper
            assert close.lower <= high
            assert high <= close.upper * 1.02
    with pytest.raises(ValueError, match="negligible"):
        profile.rough_curve(epsilon, 0.0)


@pytest.mark.parametrize(
    ("process", "adjacency"),
    [
        (hs.RandomAllocation(1.0, 100) * 10, "remove"),
        (hs.WithReplacement(hs.Gaussian(1.857), 226, 5673) * 100, "replace_one"),
    ],
    ids=str,
)
def test_neighbours_of_a_dense_curve_share_lines(process, adjacency):
    profile = _core.Profile(directions(process.as_process(), adjacency), 1e-3)
    assert not profile.quick
    epsilon = profile.epsilon_bounds(1e-30).upper * np.linspace(0.0, 1.0, 400) ** 1.5
    lower, upper = profile.rough_curve(epsilon, 1e-40)
    for i in range(0, 400, 23):
        close = profile.delta_bounds(epsilon[i])
        assert lower[i] <= close.upper
        assert close.lower <= upper[i] <= 1.12 * close.upper


@pytest.mark.parametrize("epsilon", [14.0, 21.0])
def test_deltas_next_to_nothing_of_two_steps(epsilon):
    """One large W alone decides, either of the two; the quadrature over the first ends before it is the large one."""
    truth = 2 * exact_of_two(1.0, epsilon, "remove")
    assert truth < 1e-45
    found = hs.account(hs.RandomAllocation(1.0, 2), adjacency="remove").delta_bounds(epsilon)
    assert found.lower <= truth * (1 + 1e-14)
    assert truth * (1 - 1e-14) <= found.upper <= truth * (1 + 1e-6)
    back = hs.account(hs.RandomAllocation(1.0, 2), adjacency="remove").epsilon_bounds(float(truth))
    assert back.lower <= epsilon * (1 + 1e-14)
    assert epsilon <= back.upper * (1 + 1e-14)
    assert back.upper - back.lower <= 1e-6 * epsilon


@pytest.mark.parametrize(("sigma", "steps", "epochs"), [(3.0, 100, 1), (1e7, 10, 10**13)])
def test_never_more_than_without_amplification(sigma, steps, epochs):
    """Who is told the steps sees a Gaussian: an upper bound in closed form, of the noise there is."""
    mpmath.mp.dps = 30
    mu = mpmath.sqrt(epochs) / mpmath.mpf(sigma)
    for epsilon in (0.0, 20.0, 300.0):
        y = epsilon / mu
        gaussian = mpmath.ncdf(mu / 2 - y) - mpmath.e**epsilon * mpmath.ncdf(-mu / 2 - y)
        for adjacency in ("remove", "add"):
            found = hs.account(hs.RandomAllocation(sigma, steps) * epochs, adjacency=adjacency).delta_bounds(
                epsilon
            )
            assert 0.0 <= found.lower <= found.upper <= gaussian * (1 + mpmath.mpf(10) ** -9) + 5e-324


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("sigma", "epsilon"), [(0.5, 4.0), (2.0, 3.0), (30.0, 0.01), (1.0, -0.3)])
def test_two_steps_lie_in_the_ball_of_an_integral(direction, sigma, epsilon):
    """The campaign's oracle, in ball arithmetic: it can contradict either bound."""
    flint = pytest.importorskip("flint")
    from tests.campaign.allocated import Allocated

    with flint.ctx.workprec(420):
        truth = Allocated(1 / flint.arb(sigma), 2, 1, direction).delta(epsilon)
        found = hs.account(hs.RandomAllocation(sigma, 2), adjacency=direction).delta_bounds(epsilon)
        assert not truth.above(found.upper)
        assert not truth.below(found.lower)
        assert truth.above(found.upper * (1.0 - 1e-8))
        assert truth.below(found.lower * (1.0 + 1e-8))


def delta_of_one_ratio(sigma, steps, epsilon):
    """(V - c)_+ is at least the sum of all (W_t/T - c)_+, and hardly more where one W decides: a price of a call in closed form."""
    mu, c = 1 / mpmath.mpf(sigma), mpmath.e**epsilon
    g = mpmath.log(steps * c) / mu + mu / 2
    return mpmath.ncdf(mu - g) - steps * c * mpmath.ncdf(-g)


@pytest.mark.parametrize("epsilon", [16.0])
def test_deltas_beside_another_release_are_close_far_below_what_a_cut_leaves_out(epsilon):
    """Randomised response adds its loss, of two values; what is left out of an allocation by itself is 1e-60."""
    mpmath.mp.dps = 400
    least = sum(
        delta_of_one_ratio(1.0, 1000, epsilon - loss) / (1 + mpmath.exp(-loss))
        for loss in map(mpmath.mpf, (-0.4, 0.4))
    )
    assert 1e-300 < least < 1e-100
    release = hs.RandomAllocation(1.0, 1000) + hs.RandomizedResponse(0.4)
    found = hs.account(release, adjacency="remove").delta_bounds(epsilon)
    assert found.lower <= least * 2
    assert least <= found.upper <= 1000 * least


@pytest.mark.parametrize(
    "other", [hs.Laplace(10.0), hs.DiscreteLaplace(8.0), hs.PoissonSampled(hs.Gaussian(2.0), 0.01)], ids=str
)
def test_where_less_than_any_double_is_left_nothing_is_looked_for(other):
    """Each release alone has a loss above a third of this with far less than that; so have all three together."""
    profile = hs.account(hs.RandomAllocation(0.7, 1000) * 3 + other * 3, adjacency="remove")
    alone = hs.account(hs.Gaussian(0.7) * 3 + other * 3, adjacency="remove")
    assert profile.delta_bounds(300.0) == (0.0, 5e-324)
    assert alone.delta(300.0) <= 5e-324
    _, upper = profile.delta_curve(np.array([2.0, 300.0]))
    assert upper[1] <= 5e-324


@pytest.mark.parametrize(
    ("sigma", "steps", "epochs", "other", "epsilon"),
    [
        (50.0, 100, 1, hs.Laplace(5.0), 1.0),
        (100.0, 100, 1, hs.PureDP(0.1), 0.5),
        (1000.0, 100, 100, hs.RandomizedResponse(1.0), 5.0),
        (1e7, 100, 1000, hs.PureDP(0.1), 1.0),
    ],
)
def test_beyond_a_bounded_neighbour_the_noise_alone_says_that_nothing_is_left(
    sigma, steps, epochs, other, epsilon
):
    """It took up to a minute: epsilon is beyond the neighbour's largest loss by more than noise without allocation ever shows."""
    beyond = epsilon - {"Laplace": 0.2, "PureDP": 0.1, "RandomizedResponse": 1.0}[type(other).__name__]
    mu = math.sqrt(epochs) / sigma
    assert mpmath.log(mpmath.ncdf(0.5 * mu - beyond / mu)) < -746  # no double is as small
    profile = hs.account(hs.RandomAllocation(sigma, steps) * epochs + other)
    assert profile.delta_bounds(epsilon) == (0.0, 5e-324)


def test_nothing_worth_an_engine_is_looked_for_beside_a_bounded_neighbour():
    """The neighbour moves epsilon by at most a tenth; beside it the answer took half a minute."""
    release = hs.RandomAllocation(10.0, 100) * 10
    alone, found = hs.account(release), hs.account(release + hs.PureDP(0.1)).delta_bounds(2.0)
    assert found.lower <= alone.delta(1.9)
    assert alone.delta_bounds(2.0).lower <= found.upper <= 1e-100


@pytest.mark.parametrize(("sigma", "steps"), [(0.21, 10**5), (0.2, 10**9), (0.25, 10**6)])
def test_of_little_noise_nothing_is_left_far_out(sigma, steps):
    """A minute and a half went into tilts of thousands: without the record all ratios would have to be e^-epsilon T or less."""
    profile = hs.account(hs.RandomAllocation(sigma, steps), adjacency="add")
    for epsilon in (15.0, 20.0, 30.0):
        # -ln V > epsilon takes Z_t <= z for each t, where e^{z / sigma - 1 / (2 sigma^2)} = e^-epsilon T.
        z = sigma * (math.log(steps) - epsilon + 0.5 / sigma**2)
        assert steps * mpmath.ncdf(-z) > 746  # (1 - that share)^T is less than any double
        assert profile.delta_bounds(epsilon) == (0.0, 5e-324)


def truncated_batches(sigma, records, probability, largest):
    """The branches of one step with truncated batches, "remove": how likely each is, and a sampled Gaussian's q and shift."""
    others = np.arange(largest, records)
    full = binom.sf(largest - 1, records - 1, probability)
    taken = (binom.pmf(others, records - 1, probability) * largest / (others + 1)).sum() / full
    return [(1 - full, probability, 1 / sigma), (full, probability * taken, 2 / sigma)]


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("other", "branches"),
    [
        (
            hs.TruncatedPoissonSampled(
                0.9804, dataset_size=589, sampling_probability=0.0017, max_batch_size=4
            ),
            truncated_batches(0.9804, 589, 0.0017, 4),
        ),
        (
            hs.Mixture(
                [hs.PoissonSampled(hs.Gaussian(1.0), 0.01), hs.PoissonSampled(hs.Gaussian(3.0), 0.2)],
                [0.75, 0.25],
            ),
            [(0.75, 0.01, 1.0), (0.25, 0.2, 1 / 3)],
        ),
    ],
    ids=["truncated", "mixture"],
)
@pytest.mark.parametrize(("before", "epsilon", "nodes"), [(0, 0.012, 40), (0, 0.3, 320), (1, 0.02, 40)])
def test_beside_a_choice_of_sampled_steps_delta_is_an_average_over_its_output(
    other, branches, before, epsilon, nodes
):
    """One more step moves epsilon by its loss. Such steps were not cut where a ratio is large: intervals were up to 20 times as wide as they are high."""
    allocation = hs.RandomAllocation(13.99, 6614) * 3
    without = hs.account(allocation + other * before if before else allocation, adjacency="remove")
    found = hs.account(allocation + other * (before + 1), adjacency="remove").delta_bounds(epsilon)
    low = high = 0.0
    h = 1 / nodes
    for weight, q, shift in branches:
        g = np.arange(-9.0, 9.0 + shift, h)
        ratio = 1 - q + q * np.exp(shift * (g - shift / 2))
        mass = weight * h * norm.pdf(g) * ratio
        lower, upper = without.delta_curve(epsilon - np.log(ratio))
        low, high = low + mass @ lower, high + mass @ upper
    assert high <= low * (1 + 1e-7)
    assert found.lower <= high * (1 + 1e-9)
    assert low * (1 - 1e-9) <= found.upper <= found.lower * (1 + 1e-7)


def zero_out_losses(sigma, records, probability, largest, panels, reverse):
    """Losses of one step with truncated batches under "zero_out", and their masses: of a full batch each half by itself, and what these leave at 0."""
    x, weight = np.polynomial.legendre.leggauss(16)
    (rare, probability, mu), (full, q, _) = truncated_batches(sigma, records, probability, largest)

    def piece(low, share, p, other):
        edges = np.linspace(low, 10 + 2 * mu, panels)
        half = np.diff(edges)[:, None] / 2
        g = (edges[:-1, None] + half * (1 + x)).ravel()
        masses = [
            share
            * (half * weight).ravel()
            * sum(w * norm.pdf(g - shift * mu) for shift, w in enumerate(weights))
            for weights in (p, other)
        ]
        return np.log(masses[0] / masses[1]), *masses

    parts = [
        piece(-10, rare, (1 - probability, probability), (1.0,)),
        piece(1.5 * mu, full, (1 - q, 0.0, q), (1 - q, q)),
        piece(0.5 * mu, full, (1.0,), (1 - q, q)),
    ]
    loss, p, other = (np.concatenate(values) for values in zip(*parts, strict=True))
    loss, p, other = np.append(loss, 0.0), np.append(p, 1 - p.sum()), np.append(other, 1 - other.sum())
    assert p[-1] == pytest.approx(other[-1], rel=1e-5)
    return (-loss, other) if reverse else (loss, p)


@pytest.mark.sweep
@pytest.mark.parametrize("direction", [0, 1])
@pytest.mark.parametrize(
    ("allocation", "batches", "epsilons"),
    [
        (hs.RandomAllocation(20.71, 94330) * 12, (7.842, 41270, 0.0001135, 12), (9e-4,)),
        (hs.RandomAllocation(6.792, 189), (1.978, 398, 0.00791, 6), (0.2,)),
    ],
    ids=["narrow", "wide"],
)
def test_beside_truncated_batches_of_one_size_delta_is_an_average(allocation, batches, epsilons, direction):
    """Under "zero_out", where halves are joined: beside an allocation these had no layers, and intervals were up to .9 wide."""

    def profile(process):
        return _core.Profile([directions(process.as_process(), "zero_out")[direction]], 1e-6)

    alone, step = profile(allocation), hs.TruncatedPoissonSampled(*batches)
    for steps, panels, close in ((1, 150, 1e-9), (2, 9, 1e-4)):
        loss, mass = zero_out_losses(*batches, panels, reverse=direction == 1)
        if steps == 2:
            i, j = np.triu_indices(len(loss))  # either first
            loss, mass = loss[i] + loss[j], np.where(i < j, 2.0, 1.0) * mass[i] * mass[j]
        order = np.argsort(-loss)
        found = profile(allocation + step * steps)
        for epsilon in epsilons:
            bounds = found.delta_bounds(epsilon)
            lower, upper = (mass[order] @ each for each in alone.delta_curve(epsilon - loss[order]))
            assert bounds.lower <= upper * (1 + close)
            assert lower * (1 - close) <= bounds.upper
            if direction == 0:
                assert bounds.upper <= bounds.lower * (1 + 1e-6)


def discrete_gaussian(sigma, q):
    """P- and Q-masses of one sampled step, "remove"."""
    x = np.arange(-np.ceil(12 * sigma), np.ceil(12 * sigma) + 1)
    noise, moved = (np.exp(-((x - shift) ** 2) / (2 * sigma**2)) for shift in (0.0, 1.0))
    return ((1 - q) * noise + q * moved) / noise.sum(), noise / noise.sum()


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("other", "masses"),
    [
        (hs.DiscreteGaussian(4.6), discrete_gaussian(4.6, 1.0)),
        (hs.PoissonSampled(hs.DiscreteGaussian(1.4), 1e-3), discrete_gaussian(1.4, 1e-3)),
        # Outcomes that only one of the two has, next to nothing of each.
        (
            hs.FinitePair([0.6, 0.4, 1e-120, 0.0], [0.5, 0.5, 0.0, 1e-120]),
            (np.array([0.6, 0.4]), np.array([0.5, 0.5])),
        ),
    ],
    ids=["discrete", "sampled", "finite"],
)
@pytest.mark.parametrize("epsilon", [0.4, 0.7])
def test_beside_losses_of_which_hardly_any_are_infinite_delta_is_an_average(other, masses, epsilon):
    """Infinite losses of mass 1e-310, which windows of discrete noise leave, kept epochs from being told apart: intervals were up to 1e-4 wide."""
    allocation = hs.RandomAllocation(0.744, 18020) * 12
    p, q = masses
    lower, upper = (
        p @ bound for bound in hs.account(allocation, adjacency="remove").delta_curve(epsilon - np.log(p / q))
    )
    found = hs.account(allocation + other, adjacency="remove").delta_bounds(epsilon)
    assert found.lower <= upper * (1 + 1e-12)
    assert lower * (1 - 1e-12) <= found.upper <= found.lower * (1 + 1e-8)


def delta_of_two(sigma, epsilon, direction):
    """As `exact_of_two` for an array, by 300 nodes on the half that counts, and on what of it is beyond the kink."""
    mu, y = 1.0 / sigma, np.exp(epsilon)[:, None]

    def call(c):
        inner = np.where(c > 0.0, c, 1.0)
        d = -np.log(inner) / mu
        return np.where(c > 0.0, norm.cdf(d + mu / 2) - inner * norm.cdf(d - mu / 2), 1.0 - c)

    edge = 2.0 * y if direction == "remove" else 2.0 / y
    kink = np.clip((np.log(edge) + mu**2 / 2) / mu, -12.0, mu + 12.0)
    nodes, weights = np.polynomial.legendre.leggauss(300)
    total = 0.0
    for low, high in ((-12.0, kink), (kink, mu + 12.0)):
        g = (low + high) / 2 + (high - low) / 2 * nodes
        w = np.exp(mu * g - mu**2 / 2)
        c = edge - w
        value = call(c) / 2 if direction == "remove" else np.where(c > 0.0, call(c) - (1.0 - c), 0.0) * y / 2
        total = total + ((high - low) / 2)[:, 0] * ((norm.pdf(g) * value) @ weights)
    return total


@pytest.mark.sweep
@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("scale", "count"), [(0.6, 30), (2.0, 25), (7.0, 300)])
@pytest.mark.parametrize("share", [0.3, 0.8, 1.1])
def test_beside_many_discrete_steps_delta_is_the_sum_over_their_outcomes(direction, scale, count, share):
    """Masses of the sum from NumPy, and two steps' delta from closed forms; the whole transform was up to 1e-3 wide."""
    x = np.arange(-np.ceil(14 * scale), np.ceil(14 * scale) + 1)
    noise = np.exp(-(x**2) / (2 * scale**2))
    mass = np.ones(1)
    for _ in range(count):
        mass = np.convolve(mass, noise / noise.sum())
    # Under P each is centred at 1.
    outcome = np.arange(mass.size) - (mass.size - 1) / 2 + count
    loss = (2.0 * outcome - count) / (2.0 * scale**2)
    epsilon = share * count / (2.0 * scale**2) + 2.0 * share
    kept = mass > 1e-30
    truth = float(mass[kept] @ delta_of_two(1.3, epsilon - loss[kept], direction))
    process = hs.RandomAllocation(1.3, 2) + hs.DiscreteGaussian(scale) * count
    found = hs.account(process, adjacency=direction).delta_bounds(epsilon)
    assert found.lower <= truth * (1 + 1e-8)
    assert truth * (1 - 1e-8) <= found.upper <= found.lower * (1 + 1e-6)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("process", "adjacency", "delta"),
    [
        (hs.RandomAllocation(16.64, 33310) + hs.DiscreteGaussian(1.997) * 129, "zero_out", 7.6e-23),
        (hs.RandomAllocation(10.89, 88620) * 23 + hs.DiscreteLaplace(10.36) * 87, "zero_out", 5e-24),
        (hs.RandomAllocation(14.18, 115) + hs.DiscreteGaussian(0.5631) * 340, "add_or_remove", 1.1e-11),
        (
            hs.RandomAllocation(1.962, 406) + hs.PoissonSampled(hs.DiscreteGaussian(0.6981), 2.439e-5),
            "remove",
            3e-16,
        ),
        (
            hs.RandomAllocation(24.41, 7076) * 10
            + hs.PoissonSampled(hs.DiscreteGaussian(0.8687), 0.004229) * 355,
            "remove",
            2e-25,
        ),
        (
            hs.RandomAllocation(14.72, 32120) + hs.TruncatedPoissonSampled(8.801, 12923, 0.00102, 16) * 7,
            "zero_out",
            1e-9,
        ),
        (
            hs.RandomAllocation(20.71, 94330) * 12
            + hs.TruncatedPoissonSampled(7.842, 41270, 0.0001135, 12) * 62,
            "zero_out",
            1.61e-5,
        ),
    ],
)
def test_many_atoms_beside_allocations_are_close(process, adjacency, delta):
    """Intervals were 2e-4 to .6 wide; points of curves agree with points alone."""
    profile = hs.account(process, adjacency=adjacency)
    found = profile.epsilon_bounds(delta)
    assert found.lower <= found.upper <= found.lower * (1 + 1e-6)
    epsilons = found.upper * np.array([0.4, 0.7, 1.0])
    lower, upper = profile.delta_curve(epsilons)
    assert np.all(upper <= lower * (1 + 1e-4))
    assert lower[-1] <= delta * (1 + 1e-3)
    for epsilon, low, high in zip(epsilons, lower, upper, strict=True):
        alone = profile.delta_bounds(epsilon)
        assert low <= alone.upper
        assert alone.lower <= high


def test_beside_truncated_batches_of_few_hits_far_down_epsilon_is_close():
    """Half of delta was left open, as nothing was known from above where the allocation's losses had been asked about at few points."""
    process = hs.RandomAllocation(5.435, 27) + hs.TruncatedPoissonSampled(6.548, 13506, 2.408e-05, 3)
    found = hs.account(process, adjacency="zero_out").epsilon_bounds(5.7e-26)
    assert 0 < found.lower <= found.upper <= found.lower * (1 + 1e-4)
    # The allocation alone spends no more.
    alone = hs.account(hs.RandomAllocation(5.435, 27), adjacency="zero_out").epsilon_bounds(5.7e-26)
    assert alone.lower <= found.upper


def test_far_down_the_noise_alone_bounds_from_above_although_something_is_known_from_below():
    """Some steps alone are a lower bound, which is no reason to leave out what lattices of the noise say: they made 73.08 of 75.66."""
    found = hs.account(
        hs.RandomAllocation(10.0, 100) + hs.DiscreteGaussian(2.0) * 50, adjacency="remove"
    ).epsilon_bounds(1e-80)
    told = hs.account(hs.Gaussian(10.0) + hs.DiscreteGaussian(2.0) * 50).epsilon_bounds(1e-80)
    alone = hs.account(hs.DiscreteGaussian(2.0) * 50).epsilon_bounds(1e-80)
    assert alone.lower * (1 - 1e-9) <= found.lower <= found.upper <= told.upper * (1 + 2e-3)


@pytest.mark.parametrize(
    ("sigma", "steps", "scale", "delta"), [(1.112, 22440, 3.494, 4.21e-16), (1.01, 55080, 4.716, 1e-21)]
)
def test_beside_laplace_noise_far_down_epsilon_is_close(sigma, steps, scale, delta):
    """Beyond the largest loss of the noise a large one of the allocation decides: .017 wide. The noise's law is e^L with P-mass 1/2 at the largest loss and half of what it leaves at the least."""
    allocation, largest = hs.RandomAllocation(sigma, steps), 1 / scale
    found = hs.account(allocation + hs.Laplace(scale), adjacency="remove").epsilon_bounds(delta)
    assert found.upper <= found.lower * (1 + 1e-3)
    x, weight = np.polynomial.legendre.leggauss(400)
    loss = np.append(largest * x, [-largest, largest])
    # Between the two dP = e^{(L - largest)/2}/4 dL.
    mass = np.append(largest * weight * np.exp(largest * (x - 1) / 2) / 4, [math.exp(-largest) / 2, 0.5])
    assert mass.sum() == pytest.approx(1, rel=1e-12)
    alone = hs.account(allocation, adjacency="remove", accuracy=1e-6)
    order = np.argsort(-loss)
    for epsilon, above in ((found.lower, True), (found.upper, False)):
        lower, upper = (mass[order] @ each for each in alone.delta_curve(epsilon - loss[order]))
        assert upper * (1 + 1e-3) >= delta if above else lower * (1 - 1e-3) <= delta


def test_a_bound_far_below_what_a_cut_leaves_out_leaves_out_as_little():
    """Chernoff's bound follows where Gaussian noise in the place of the mean would leave 1e-40; it took four seconds to come down to it by factors of ten."""
    mpmath.mp.dps = 320
    found = hs.account(hs.RandomAllocation(7.496, 51790), adjacency="remove").delta_bounds(1.774)
    assert delta_of_one_ratio(7.496, 51790, 1.774) <= found.upper <= 1e-290
    assert found.lower <= found.upper
