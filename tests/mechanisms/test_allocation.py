"""Random allocation: moments against mpmath, exact integrals for few steps, identities, samplers, and what must be refused."""

import itertools
import math

import flint
import hockeystick as hs
import mpmath
import numpy as np
import pytest
from flint import arb
from hockeystick import _core
from hockeystick.mechanisms.steps import from_dict, to_dict
from scipy.special import log_ndtr, ndtr

from tests.allocation_moments import integer_moment
from tests.campaign.balls import normal_tail
from tests.quadrature import density, integral

DIRECTIONS = ("remove", "add")


def bounds(process, adjacency, epsilon):
    return hs.account(process, adjacency=adjacency).delta_bounds(epsilon)


def exact_of_two(sigma: float, epsilon: float, direction: str, reach: int = 12) -> arb:
    """delta of one of two steps, by two nested closed forms: ball arithmetic alone.

    Given W_1 = w, V = (w + W_2)/2, and E(W_2 - c)_+ is the price of a call.
    """
    with flint.ctx.workprec(160):
        mu = 1 / arb(sigma)
        y = arb(epsilon).exp()

        def call(c):
            if c <= 0:
                return 1 - c
            d = c.log() / mu
            return normal_tail(d - mu / 2) - c * normal_tail(d + mu / 2)

        def value(g):
            w = (mu * g - mu**2 / 2).exp()
            if direction == "remove":
                return density(g) * call(2 * y - w) / 2
            # (1 - y V)_+ = y/2 (2/y - w - W_2)_+ , a put.
            c = 2 / y - w
            put = call(c) - (1 - c) if c > 0 else 0
            return density(g) * put * y / 2

        kink = ((2 * y if direction == "remove" else 2 / y).log() + mu**2 / 2) / mu
        end = float(mu) + reach
        # Next to the kink prices change within ever less.
        near = [kink + sign * arb(2) ** -k for k in range(1, 24) for sign in (-1, 1)]
        points = [*map(arb, range(-reach, int(end))), arb(end), kink, *near]
        return integral(value, sorted((p for p in points if -reach <= p <= end), key=float), 32)


@pytest.mark.sweep
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(
    ("sigma", "epsilon"),
    [
        (0.4, 1.0),
        (0.4, 6.0),
        (1.0, 0.0),
        (1.0, 0.3),
        (1.0, 2.5),
        (1.0, 5.0),
        (0.3, 16.0),
        (0.5, 9.0),
        (3.0, 0.4),
        (30.0, 0.05),
        (30.0, 0.26),
        (100.0, 0.02),
        (100.0, 0.0765),
        (1.0, -0.4),
    ],
)
def test_two_steps_agree_with_quadrature(direction, sigma, epsilon):
    truth = exact_of_two(sigma, epsilon, direction, 17 if sigma > 10 else 12)
    found = bounds(hs.RandomAllocation(sigma, 2), direction, epsilon)
    assert found.lower <= truth * (1 + 1e-15)
    assert truth <= found.upper * (1 + 1e-15)
    if truth > 1e-40:
        assert found.upper - found.lower <= 1e-6 * found.upper


@pytest.mark.parametrize(
    ("sigma", "steps", "epsilon"),
    [
        (0.5, 3, 0.3),
        (30.0, 5, 0.1),
        (10.0, 7, 0.3),
        (2.6, 5, 0.9),
        (6.5, 6, 0.5),
        (1.0, 100, 0.1),
        (1.0, 10**6, 0.003),
        (5.0, 7, 0.1),
        (20.0, 1000, 0.004),
    ],
)
def test_chernoff_bounds_respect_exact_moments(sigma, steps, epsilon):
    """delta <= E V^{1+s} e^{-s eps} (s/(1+s))^s / (1+s) at integer s: no lower bound may exceed it."""
    mpmath.mp.dps = 40
    found = bounds(hs.RandomAllocation(sigma, steps), "remove", epsilon)
    assert found.upper - found.lower <= 1e-6 * found.upper
    for order in (2, 3, 4, 6):
        s = order - 1
        log_moment = mpmath.log(integer_moment(sigma, steps, order))
        ceiling = mpmath.e ** (log_moment - s * epsilon + s * mpmath.log(mpmath.mpf(s) / order)) / order
        assert found.lower <= ceiling * (1 + mpmath.mpf(10) ** -12)


@pytest.mark.parametrize("steps", [4, 5, 8])
@pytest.mark.parametrize("mu", [0.03, 0.1, 0.4])
def test_the_modulus_of_few_steps_off_the_real_axis(steps, mu):
    """The inequalities of docs/mechanisms/allocation.md, "A few steps", at random points and those that attain them."""
    rng = np.random.default_rng(steps)
    x = rng.normal(size=(20_000, steps)) * rng.choice([0.1, 1, 5, 20], size=(20_000, 1))
    x[::4] = np.where(
        np.arange(steps) < 2, x[::4, :1] + 1e-3 * x[::4, 1:2], 0
    )  # two terms alike, all others equal
    x -= x.mean(axis=1, keepdims=True)
    radius, u = np.linalg.norm(x, axis=1), (x[:, 0] - x[:, 1]) / math.sqrt(2)
    terms = np.exp(mu * x)
    total, share = terms.mean(axis=1), terms[:, :2].sum(axis=1) / terms.sum(axis=1)
    furthest = mu * radius * math.sqrt((steps - 1) / steps)
    assert (total <= 1 + (np.expm1(furthest) - furthest) / (steps - 1) + 1e-9 * total).all()
    w = mu * radius * math.sqrt((steps - 2) / (2 * steps))
    gain = np.where(w < 1, w, (1 + w * w) / 2) * steps / (steps - 2)
    assert (share >= 2 / steps * np.exp(-w) / total * (1 - 1e-9)).all()
    assert (share <= (1 + 1e-9) / (1 + (steps / 2 - 1) * np.exp(-gain))).all()
    for turn in (0.1, 0.7, 1.5):
        d = turn * math.sqrt(2) / mu
        y = np.zeros(steps)
        y[:2] = d / math.sqrt(2), -d / math.sqrt(2)
        ratio = np.exp(mu * (x + 1j * y)).mean(axis=1) / total
        back, tilt = 1 - math.cos(turn), np.tanh(mu * u / math.sqrt(2)) * math.sin(turn)
        np.testing.assert_allclose(ratio, 1 - share * back + 1j * share * tilt, rtol=1e-9)
        phase = np.minimum(turn, share * np.abs(tilt) / (1 - share * back))
        assert (np.abs(np.angle(ratio)) <= phase + 1e-9).all()
        for tau in (0.1 / mu, 3 / mu, 30 / mu):
            assert (tau * phase - (mu * tau) ** 2 / (2 * steps) <= steps * (phase / mu) ** 2 / 2 + 1e-9).all()


@pytest.mark.sweep
@pytest.mark.parametrize(("sigma", "steps"), [(10.0, 4), (30.0, 5), (2.6, 5), (10.0, 7), (10.0, 8)])
def test_a_few_steps_have_digits_at_any_delta(sigma, steps):
    curve = hs.account(hs.RandomAllocation(sigma, steps))
    for delta in (1e-6, 1e-30):
        found = curve.epsilon_bounds(delta)
        assert 0 < found.lower <= found.upper <= found.lower * (1 + 1e-10)


@pytest.mark.parametrize(("sigma", "delta"), [(10.8, 1e-12), (9.0, 1e-12), (20.0, 1e-30)])
def test_a_few_more_steps_follow_on_few(sigma, delta):
    """From nine steps on another way answers; ln epsilon is nearly straight in ln steps."""
    all_steps = (6, 7, 8, 9)
    found = [
        hs.account(hs.RandomAllocation(sigma, steps) * 2, adjacency="remove").epsilon_bounds(delta)
        for steps in all_steps
    ]
    for bounds in found:
        assert bounds.upper - bounds.lower <= 1e-9 * bounds.upper
    logs = np.log([bounds.upper for bounds in found])
    line = np.polyfit(np.log(all_steps[:3]), logs[:3], 2)
    assert abs(np.polyval(line, math.log(9)) - logs[3]) < 1e-3


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_one_step_is_the_gaussian(direction):
    """The core answers T = 2 with both steps alike nowhere; one step is simplified to the Gaussian."""
    one = hs.account(hs.RandomAllocation(1.5, 1) * 3, adjacency=direction)
    plain = hs.account(hs.Gaussian(1.5) * 3, adjacency=direction)
    assert one.epsilon(1e-6) == plain.epsilon(1e-6)


@pytest.mark.sweep
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("sigma", "steps", "epochs"), [(1.0, 3, 1), (0.7, 4, 2), (1.0, 1000, 5)])
def test_agrees_with_samples(direction, sigma, steps, epochs):
    """Draws of V from NumPy: within five standard errors in every case."""
    rng = np.random.default_rng(7)
    n, epsilon = (200_000, 0.5) if steps < 100 else (20_000, 0.15)
    loss = np.zeros(n)
    for _ in range(epochs):
        if steps < 10:
            g = rng.standard_normal((n, steps))
            if direction == "remove":
                g[:, 0] += 1 / sigma
            v = np.exp(g / sigma - 0.5 / sigma**2).mean(axis=1)
        else:
            # In pieces: n * steps numbers do not fit.
            v = np.empty(n)
            for begin in range(0, n, 5000):
                g = rng.standard_normal((5000, steps))
                if direction == "remove":
                    g[:, 0] += 1 / sigma
                v[begin : begin + 5000] = np.exp(g / sigma - 0.5 / sigma**2).mean(axis=1)
        loss += np.log(v) if direction == "remove" else -np.log(v)
    sample = np.maximum(0.0, -np.expm1(epsilon - loss))
    error = sample.std() / math.sqrt(n)
    found = bounds(hs.RandomAllocation(sigma, steps) * epochs, direction, epsilon)
    assert abs(sample.mean() - found.upper) < 5 * error
    assert found.upper - found.lower <= 1e-6 * found.upper


def test_published_intervals_of_peers_hold():
    """PLD_accounting 2.0 encloses these two epsilons; ours lie inside, and are a million times narrower."""
    for steps, delta, low, high in ((100, 1e-5, 1.6644, 1.7398), (1000, 1e-6, 0.5307, 0.5509)):
        found = hs.account(hs.RandomAllocation(1.0, steps) * 10).epsilon_bounds(delta)
        assert low <= found.lower <= found.upper <= high
        assert found.upper - found.lower <= 1e-6 * found.upper


def test_moderate_and_large_tilts_join():
    """The two ways to a moment meet: delta is monotone and continuous across the tilt at which they change."""
    process = hs.RandomAllocation(10.0, 1000)
    curve = [bounds(process, "remove", epsilon) for epsilon in np.linspace(0.0005, 0.012, 9)]
    for one, next_one in itertools.pairwise(curve):
        assert next_one.lower < one.upper
        assert one.upper - one.lower <= 1e-6 * one.upper
    logs = np.log([b.upper for b in curve])
    assert np.all(np.diff(logs, 2) < 1e-6)  # log delta is concave for this nearly Gaussian law


@pytest.mark.parametrize("sigma", [1e-3, 0.1, 1e3, 1e7])
@pytest.mark.parametrize("steps", [2, 2**31])
def test_extreme_parameters_are_answered(sigma, steps):
    process = hs.RandomAllocation(sigma, steps) * 2
    unamplified = hs.account(hs.Gaussian(sigma) * 2)
    for adjacency in DIRECTIONS:
        profile = hs.account(process, adjacency=adjacency)
        found = profile.epsilon_bounds(1e-6)
        assert 0 <= found.lower <= found.upper <= unamplified.epsilon(1e-6) * (1 + 1e-9)


def test_noise_without_digits_has_no_lower_bound_of_its_own():
    """The upper bound is of less noise there, which is no lower bound: who knows the steps sees a Gaussian of the true noise."""
    for sigma, steps, epochs in ((1e7, 2, 10**7), (1e8, 10, 10**7), (1e4, 2**31, 10)):
        found = hs.account(hs.RandomAllocation(sigma, steps) * epochs + hs.Gaussian(1.0)).delta_bounds(1.0)
        unamplified, alone = (
            hs.account(process).delta_bounds(1.0)
            for process in (hs.Gaussian(sigma) * epochs + hs.Gaussian(1.0), hs.Gaussian(1.0))
        )
        assert alone.lower * (1 - 1e-12) <= found.lower <= unamplified.upper
        assert alone.lower <= found.upper


@pytest.mark.parametrize("adjacency", DIRECTIONS)
def test_a_released_choice_may_be_an_allocation(adjacency):
    """No lattice knows its law: between a statistic of the outputs and the Gaussian that stands in."""
    allocation, other = hs.RandomAllocation(1.0, 10), hs.Laplace(2.0)
    chosen = hs.Mixture([allocation, hs.Mixture([other, allocation], [0.5, 0.5])], [0.25, 0.75])
    for epsilon in (-0.5, 0.4):
        one, two = (bounds(step, adjacency, epsilon) for step in (allocation, other))
        found = bounds(chosen, adjacency, epsilon)
        assert found.lower <= 0.625 * one.lower + 0.375 * two.lower
        assert 0.625 * one.upper + 0.375 * two.upper <= found.upper
        assert bounds(chosen * 3, adjacency, epsilon).upper >= found.upper


def delta_of_a_statistic(sigma: float, steps: int, direction: str, epsilon: float) -> float:
    """The best test by a threshold of the largest output, or of the sum of all."""
    if sigma > 1:
        mu = 1 / (sigma * math.sqrt(steps))
        return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))
    mu, low, high, best = 1 / sigma, -12.0, 12 + 1 / sigma, -math.inf
    while high - low > 1e-9:
        m = np.linspace(low, high, 10_001)
        q, p = steps * log_ndtr(m), (steps - 1) * log_ndtr(m) + log_ndtr(m - mu)
        masses = (-np.expm1(p), -np.expm1(q)) if direction == "remove" else (np.exp(q), np.exp(p))
        values = masses[0] - math.exp(epsilon) * masses[1]
        at, best = int(np.argmax(values)), max(best, float(values.max()))
        low, high = m[max(at - 2, 0)], m[min(at + 2, len(m) - 1)]
    return best


@pytest.mark.sweep
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("sigma", "steps"), [(0.4, 2), (0.9, 2), (0.5, 10**4), (2.0, 2), (4.0, 12)])
def test_a_statistic_of_the_outputs_is_a_lower_bound(direction, sigma, steps):
    """A released choice between the same is that itself, and on lattices is known by the statistic alone."""
    law = hs.RandomAllocation(sigma, steps)
    same = hs.Mixture([law, law], [0.5, 0.5])
    for epsilon in (-0.4, 0.0, 0.3, 1.0):
        found, truth = (bounds(process, direction, epsilon) for process in (same, law))
        assert found.lower <= truth.lower * (1 + 1e-9)
        if steps == 2:
            assert found.lower <= float(exact_of_two(sigma, epsilon, direction))
        known = max(delta_of_a_statistic(sigma, steps, direction, epsilon), -math.expm1(epsilon))
        assert known * (1 - 1e-3) - 1e-12 <= found.lower <= known * (1 + 1e-6)


@pytest.mark.parametrize(
    ("sigma", "steps", "epochs", "delta", "near"),
    [
        (0.5, 10**5, 2, 1e-30, 0.1),
        (0.256, 802205, 2, 1e-9, 0.1),
    ],
)
def test_what_the_inversion_does_not_know_has_both_bounds(sigma, steps, epochs, delta, near):
    """And a Gaussian in company moves them up."""
    law = hs.RandomAllocation(sigma, steps) * epochs
    for adjacency in DIRECTIONS:
        found = hs.account(law, adjacency=adjacency).epsilon_bounds(delta)
        assert found.upper * (1 - near) <= found.lower or adjacency == "add"
        assert 0 < found.lower <= found.upper


def test_a_choice_with_noise_without_digits_has_no_lower_bound_of_its_own():
    """What stands in for it from below is not of the lesser noise that its upper bound is of."""
    law = hs.RandomAllocation(1e7, 10)
    found = hs.account(hs.Mixture([law, law], [0.5, 0.5])).delta_bounds(0.0)
    assert found.lower <= hs.account(hs.Gaussian(1e7)).delta_bounds(0.0).upper


def test_composes_with_everything():
    process = hs.RandomAllocation(2.0, 1000) * 100 + hs.PoissonSampled(hs.Gaussian(1.0), 0.01) * 1000
    found = hs.account(process).epsilon_bounds(1e-8)
    assert found.upper - found.lower <= 1e-6 * found.upper
    alone = hs.account(hs.RandomAllocation(2.0, 1000) * 100).epsilon(1e-8)
    assert alone < found.lower
    mixed = hs.RandomAllocation(1.0, 50) + hs.Laplace(10.0) + hs.RandomizedResponse(0.05)
    found = hs.account(mixed).delta_bounds(0.4)
    assert 0 < found.lower <= found.upper
    assert found.upper - found.lower <= 1e-3 * found.upper


@pytest.mark.sweep
@pytest.mark.parametrize("adjacency", ["remove", "add", "add_or_remove", "zero_out"])
def test_who_is_told_the_step_sees_gaussian_noise(adjacency):
    """So it is mu-GDP for a finite mu, which no smaller one is far out."""
    profile = hs.account(hs.RandomAllocation(2.0, 50, participations=2) * 3 + hs.Gaussian(4.0), adjacency)
    mu = profile.gdp_mu()
    assert math.sqrt(6 / 4 + 1 / 16) <= mu <= math.sqrt(6 / 4 + 1 / 16) * (1 + 1e-9)
    points = np.linspace(-3.0, 5.0, 30)
    assert (profile.delta_curve(points)[0] <= hs.account(hs.Gaussian(1 / mu)).delta_curve(points)[1]).all()


def test_adjacencies():
    process = hs.RandomAllocation(1.0, 20)
    remove, add = (hs.account(process, adjacency=a).epsilon(1e-5) for a in DIRECTIONS)
    assert add < remove == hs.account(process, adjacency="add_or_remove").epsilon(1e-5)
    assert hs.account(process, adjacency="zero_out").epsilon(1e-5) == remove
    with pytest.raises(hs.ParameterError, match="replace_one"):
        hs.account(process, adjacency="replace_one")


def test_participations_are_allocations_to_blocks():
    assert hs.RandomAllocation(2.0, 10, participations=3) * 2 == hs.RandomAllocation(2.0, 3) * 6
    # Enumeration: the law of k distinct steps is a mixture of block allocations, so delta is no larger.
    sigma, steps, k, n = 1.0, 4, 2, 400_000
    rng = np.random.default_rng(3)
    g = rng.standard_normal((n, steps))
    g[:, :k] += 1 / sigma
    subsets = [(i, j) for i in range(steps) for j in range(i)]
    log_w = g / sigma - 0.5 / sigma**2
    v = np.mean([np.exp(log_w[:, i] + log_w[:, j]) for i, j in subsets], axis=0)
    sample = np.maximum(0.0, 1 - math.e / v)
    upper = bounds(hs.RandomAllocation(sigma, steps, participations=k), "remove", 1.0).upper
    assert sample.mean() - 4 * sample.std() / math.sqrt(n) <= upper


def test_balls_in_bins_with_independent_noise():
    scheme = hs.BallsInBins(steps=60, bins=20)
    mechanism = hs.BandMF(hs.Identity(60), scheme, noise_multiplier=2.0)
    exact = hs.account(mechanism).delta_bounds(0.4)
    single = hs.account(hs.RandomAllocation(2.0 / math.sqrt(3), 20)).delta_bounds(0.4)
    assert exact.lower <= single.upper * (1 + 1e-9)
    assert single.lower <= exact.upper * (1 + 1e-9)
    for direction in DIRECTIONS:
        estimate = hs.estimate_delta(mechanism, epsilon=0.4, samples=200_000, seed=1, adjacency=direction)
        certified = bounds(mechanism, direction, 0.4)
        assert estimate.lower <= certified.upper
        assert certified.lower <= estimate.upper
    with pytest.raises(hs.ParameterError):
        hs.account(hs.BandMF(hs.Identity(50), hs.BallsInBins(50, 20), 2.0))


def test_calibration():
    found = hs.calibrate_noise_multiplier(
        lambda sigma: hs.RandomAllocation(sigma, 50) * 5, epsilon=0.3, delta=1e-5
    )
    assert hs.account(hs.RandomAllocation(found, 50) * 5).epsilon(1e-5) <= 0.3
    assert hs.account(hs.RandomAllocation(found * 0.999, 50) * 5).epsilon(1e-5) > 0.3


def test_batches_are_the_law():
    process = hs.RandomAllocation(1.0, 7) * 3
    batches = list(process.batches(dataset_size=1000, seed=5))
    assert len(batches) == 21
    epochs = [np.concatenate(batches[7 * e : 7 * e + 7]) for e in range(3)]
    assert all(np.array_equal(np.sort(epoch), np.arange(1000)) for epoch in epochs)
    places = [
        np.concatenate([np.full(len(b), t) for t, b in enumerate(batches[7 * e : 7 * e + 7])])[
            np.argsort(epochs[e])
        ]
        for e in range(3)
    ]
    # Redrawn: of 1000 records about 1/7 keep their place.
    for one, other in ((0, 1), (1, 2), (0, 2)):
        assert abs(np.mean(places[one] == places[other]) - 1 / 7) < 5 * math.sqrt(6 / 49 / 1000)
    counts = np.bincount(places[0], minlength=7)
    assert np.sum((counts - 1000 / 7) ** 2) / (1000 / 7) < 30  # chi-square with 6 degrees of freedom
    sampler = process.batches(dataset_size=1000, seed=5)
    sampler.seek(16)
    assert np.array_equal(sampler.next(), batches[16])
    sampler.seek(2)
    assert np.array_equal(sampler.next(), batches[2])


def test_training_plan_draws_what_was_accounted():
    plan = hs.plan_training(lambda sigma: hs.RandomAllocation(sigma, 10) * 4, 500, epsilon=3.0, delta=1e-4)
    assert plan.steps == 40
    assert (
        hs.account(hs.RandomAllocation(plan.noise_multiplier, 10) * 4, adjacency="zero_out").epsilon(1e-4)
        <= 3.0
    )
    assert plan.spent(1) <= plan.spent(11) <= plan.spent(40) <= plan.epsilon


def test_description_is_stored():
    process = hs.RandomAllocation(1.0, 5) * 3 + hs.Gaussian(2.0)
    assert from_dict(to_dict(process)) == process


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((-1.0, 5), "noise_multiplier"),
        ((1.0, 0), "steps"),
        ((1.0, 5, 6), "participations"),
        ((math.nan, 5), "noise_multiplier"),
    ],
)
def test_errors_name_the_parameter(arguments, name):
    with pytest.raises(ValueError, match=name):
        hs.RandomAllocation(*arguments)


@pytest.mark.parametrize("engine", ["fft", "prv"])
def test_engines_on_lattices_are_refused_by_name(engine):
    profile = hs.account(hs.RandomAllocation(1.0, 10) + hs.Gaussian(2.0), engine=engine)
    with pytest.raises(hs.ParameterError, match=f"engine = '{engine}': must be 'auto'"):
        profile.epsilon(1e-5)


def test_the_core_refuses():
    with pytest.raises(ValueError, match="replace_one"):
        _core.random_allocation_pair(1.0, 10, "replace_one")
    with pytest.raises(ValueError, match="inversion"):
        hs.account(hs.RandomAllocation(1.0, 10), engine="fft").epsilon(1e-5)


@pytest.mark.parametrize(
    ("sigma", "steps", "epochs", "delta"),
    [(0.2, 3, 1, 1e-30), (0.25, 10, 1, 1e-60), (0.3, 20, 1, 1e-6), (0.5, 3, 3, 1e-60)],
)
def test_removals_of_little_noise_are_tight(sigma, steps, epochs, delta):
    """The adversary who is told the step knows no more than of a Gaussian, and one who sees the sum no less."""
    found = hs.account(hs.RandomAllocation(sigma, steps) * epochs, adjacency="add").epsilon_bounds(delta)
    assert found.upper - found.lower <= 1e-9 * found.upper
    assert found.lower <= hs.account(hs.Gaussian(sigma) * epochs).epsilon(delta)
    assert (
        found.upper >= hs.account(hs.Gaussian(sigma * math.sqrt(steps)) * epochs).epsilon_bounds(delta).lower
    )
