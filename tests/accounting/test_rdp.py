"""Rényi divergences against binomial sums, closed forms and quadrature in mpmath, which share no code with the core."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction

import hockeystick as hs
import numpy as np
import pytest
from hockeystick.accounting import best_rdp_epsilon, rdp_curve, rdp_epsilon
from mpmath import mp, mpf

from tests.allocation_moments import integer_moment


def assert_encloses(
    process: hs.mechanisms.Composable, order: float, truth: mpf, adjacency: str, gap: float = 1e-9
) -> None:
    (lower,), (upper,) = rdp_curve(process, [order], adjacency)
    assert lower <= truth <= upper, (process, order)
    assert upper - lower <= gap * abs(truth) + 1e-300, (process, order, float(truth))


def binomial_sum(sigma: float, q: float, order: int) -> mpf:
    """Mironov, Talwar, Zhang 2019, Section 3.3: "remove", integer orders."""
    with mp.workdps(60):
        s, p = mpf(sigma), mpf(q)
        terms = [
            mp.binomial(order, k) * (1 - p) ** (order - k) * p**k * mp.exp(mpf(k * k - k) / (2 * s * s))
            for k in range(order + 1)
        ]
        return mp.log(mp.fsum(terms)) / (order - 1)


def by_quadrature(density: Callable[[mpf], tuple[mpf, mpf]], order: float, ends: list[mpf]) -> mpf:
    """ln of the integral of p^order q^(1-order), over order - 1."""
    alpha = mpf(order)

    def integrand(t: mpf) -> mpf:
        p, q = density(t)
        return p**alpha * q ** (1 - alpha)

    return mp.log(mp.quad(integrand, ends)) / (alpha - 1)


def test_sampled_gaussian_at_integer_orders() -> None:
    rng = random.Random(1)
    cases = [(1.0, 0.01, 256), (0.3, 0.5, 100), (0.05, 0.01, 16), (5.0, 1e-9, 300), (100.0, 1 - 1e-9, 50)]
    cases += [
        (10 ** rng.uniform(-0.6, 2), 10 ** rng.uniform(-8, 0), rng.randrange(2, 200)) for _ in range(60)
    ]
    for sigma, q, order in cases:
        # The core's shift is 1/sigma, rounded.
        truth = binomial_sum(1 / mpf(1 / sigma), q, order)
        assert_encloses(hs.PoissonSampled(hs.Gaussian(sigma), q), order, truth, "remove")


def test_far_orders_without_quadrature() -> None:
    for sigma, q, order in [(0.05, 0.01, 64), (0.03, 1e-6, 400), (0.05, 0.3, 2000)]:
        truth = binomial_sum(1 / mpf(1 / sigma), q, order)
        assert_encloses(hs.PoissonSampled(hs.Gaussian(sigma), q), order, truth, "remove", gap=1e-2)


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_sampled_gaussian_at_real_orders(direction: str) -> None:
    for sigma, q, order in [
        (1.0, 0.01, 1.001),
        (1.0, 0.01, 3.7),
        (0.6, 0.3, 20.5),
        (4.0, 1e-4, 1.5),
        (2.0, 0.5, 60.25),
    ]:
        s = 1 / mpf(1 / sigma)

        def density(t: mpf, s: mpf = s, q: float = q) -> tuple[mpf, mpf]:
            none = mp.npdf(t, 0, s)
            some = (1 - mpf(q)) * none + mpf(q) * mp.npdf(t, 1, s)
            return (some, none) if direction == "remove" else (none, some)

        with mp.workdps(40):
            ends = [-40 * s - order, -8 * s, mpf(0), mpf(1), mpf(order), order + 8 * s, 2 * order + 40 * s]
            truth = by_quadrature(density, order, ends)
        assert_encloses(hs.PoissonSampled(hs.Gaussian(sigma), q), order, truth, direction)


def of_allocation(sigma: float, steps: int, order: int) -> mpf:
    """Of one of so many steps, "remove"."""
    with mp.workdps(60):
        return mp.log(integer_moment(sigma, steps, order)) / (order - 1)


@pytest.mark.parametrize(
    ("sigma", "steps", "order"),
    [
        (1.0, 10, 2),
        (1.0, 10, 30),
        (0.5, 3, 12),
        (5.0, 100, 40),
        (20.0, 10, 100),
        (2.0, 100000, 8),
        (30.0, 1000, 60),
    ],
)
def test_random_allocation_at_integer_orders(sigma: float, steps: int, order: int) -> None:
    one = hs.RandomAllocation(sigma, steps)
    truth = of_allocation(sigma, steps, order)
    assert_encloses(one, order, truth, "remove", 1e-8)
    assert_encloses(one * 3, order, 3 * truth, "remove", 1e-8)


def test_far_orders_of_random_allocation() -> None:
    truth = of_allocation(0.7, 10, 200)
    (lower,), (upper,) = rdp_curve(hs.RandomAllocation(0.7, 10), [200], "remove")
    assert lower <= truth <= upper
    assert upper - lower <= 1.01 * math.log(10)


@pytest.mark.sweep
@pytest.mark.parametrize("sigma", [0.3, 0.7, 2.0])
@pytest.mark.parametrize("order", [1.5, 7.0, 20.0, 64.0, 300.0, 1e5])
def test_far_orders_of_random_allocation_under_add(sigma: float, order: float) -> None:
    """Of two steps E V^{1-a} is an integral of a power of cosh; far out it was bounded by nothing."""
    allocation = hs.RandomAllocation(sigma, 2)
    with mp.workdps(40):
        mu, s = 1 / mpf(sigma), mpf(order) - 1

        def density(b: mpf) -> mpf:
            return mp.npdf(b) * mp.cosh(mu * b / mp.sqrt(2)) ** -s

        edges = [0, *(mp.sqrt(2) * x / (mu * mp.sqrt(s)) for x in (1, 2, 4, 8)), 12, 30]
        power = 2 * mp.quad(density, sorted(edges))
        truth = (s * mu**2 / 2 + s**2 * mu**2 / 4 + mp.log(power)) / s
    (lower,), (upper,) = rdp_curve(allocation, [order], "add")
    assert lower <= truth <= upper
    assert upper <= (1 + s / 2) * mu**2 / 2 * (1 + 1e-9)
    assert upper <= 2.0 * truth
    (default,) = rdp_curve(allocation, [order])[1]
    assert default < math.inf


@pytest.mark.parametrize("order", [1.0001, 1.5, 2.0, 7.3, 64.0, 3000.0])
def test_closed_forms(order: float) -> None:
    a = mpf(order)
    with mp.workdps(40):
        e = mpf(1) / mpf(0.7)
        laplace = mp.log(a / (2 * a - 1) * mp.exp((a - 1) * e) + (a - 1) / (2 * a - 1) * mp.exp(-a * e)) / (
            a - 1
        )
        p = mp.exp(mpf(0.4)) / (1 + mp.exp(mpf(0.4)))
        response = mp.log(p**a * (1 - p) ** (1 - a) + (1 - p) ** a * p ** (1 - a)) / (a - 1)
        mixture = mp.log((3 * mp.exp(a * (a - 1) / 8) + mp.exp(a * (a - 1) / 2)) / 4) / (a - 1)
    assert_encloses(hs.Gaussian(3.0) * 7, order, 7 * a / 18, "add_or_remove")
    assert_encloses(hs.Laplace(0.7), order, laplace, "add_or_remove")
    assert_encloses(hs.RandomizedResponse(0.4), order, response, "replace_one")
    assert_encloses(hs.Mixture([hs.Gaussian(2.0), hs.Gaussian(1.0)], [0.75, 0.25]), order, mixture, "remove")


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_sampled_laplace(direction: str) -> None:
    for scale, q, order in [(1.0, 0.01, 2.5), (0.4, 0.2, 12.0)]:
        b, p = mpf(scale), mpf(q)

        def density(t: mpf, b: mpf = b, p: mpf = p) -> tuple[mpf, mpf]:
            none = mp.exp(-abs(t) / b)
            some = (1 - p) * none + p * mp.exp(-abs(t - 1) / b)
            first, second = (some, none) if direction == "remove" else (none, some)
            return first / (2 * b), second / (2 * b)

        with mp.workdps(40):
            truth = by_quadrature(density, order, [-mp.inf, mpf(0), mpf(1), mp.inf])
        assert_encloses(hs.PoissonSampled(hs.Laplace(scale), q), order, truth, direction)


def test_laws_of_finitely_many_outputs() -> None:
    """Discrete noise, sampled: sums over its outputs."""
    b, q, order = mpf(3), mpf(0.1), mpf(4.5)
    with mp.workdps(40):
        weights = {k: mp.exp(-abs(k) / b) for k in range(-400, 402)}
        scale = (mp.exp(1 / b) - 1) / (mp.exp(1 / b) + 1)
        some = {k: (1 - q) * weights[k] + q * weights.get(k - 1, mpf(0)) for k in weights}
        truth = mp.log(scale * mp.fsum(some[k] ** order * weights[k] ** (1 - order) for k in weights)) / (
            order - 1
        )
    assert_encloses(hs.PoissonSampled(hs.DiscreteLaplace(3.0), 0.1), float(order), truth, "remove")


def test_orders_add_up_grow_and_end_at_the_largest_loss() -> None:
    step, other = hs.PoissonSampled(hs.Laplace(2.0), 0.1), hs.PoissonSampled(hs.Gaussian(1.0), 0.02)
    orders = np.array([[1.1, 2.0, 5.0], [30.0, 1e4, np.inf]])
    whole = rdp_curve(step * 3 + other * 5, orders)[1]
    parts = 3 * rdp_curve(step, orders)[1] + 5 * rdp_curve(other, orders)[1]
    assert whole.shape == orders.shape
    assert np.all(whole <= parts * (1 + 1e-12))
    lower, upper = rdp_curve(step, orders.ravel())
    assert np.all(np.diff(upper) >= 0)
    assert np.all(lower <= upper)
    assert upper[-1] == pytest.approx(math.log1p(0.1 * math.expm1(0.5)), rel=1e-9)
    assert rdp_curve(hs.PoissonSampled(hs.Gaussian(1.0), 0.1), np.inf)[1] == np.inf
    assert rdp_curve(hs.ApproximateDP(0.1, 1e-6), 2.0)[1] == np.inf
    assert rdp_curve(hs.mechanisms.Process(), 2.0)[1] == 0.0


def test_truncated_and_fixed_batches_contain_what_a_random_law_says() -> None:
    """The best epsilon of all orders is never below the exact one, for every kind of step."""
    for process, adjacency in [
        (hs.TruncatedPoissonSampled(1.0, 10_000, 0.01, 120) * 50, "add_or_remove"),
        (hs.TruncatedPoissonSampled(1.0, 10_000, 0.01, 120) * 50, "zero_out"),
        (hs.WithoutReplacement(hs.Gaussian(1.5), 20, 1000) * 100, "replace_one"),
        (hs.DiscreteLaplace(4.0) * 10, "replace_one"),
        (hs.PoissonSampled(hs.Gaussian(0.3), 0.01) * 10, "add_or_remove"),
    ]:
        epsilon, order = best_rdp_epsilon(process, 1e-5, adjacency)
        assert hs.account(process, adjacency).epsilon_bounds(1e-5).lower <= epsilon < math.inf
        assert rdp_epsilon(order, float(rdp_curve(process, order, adjacency)[1]), 1e-5) == pytest.approx(
            epsilon
        )


@pytest.mark.parametrize("orders", [1.0, 0.5, math.nan, 2.0**60, [2.0, -1.0]])
def test_orders_are_refused_by_name(orders: object) -> None:
    with pytest.raises(hs.ParameterError, match="orders"):
        rdp_curve(hs.Gaussian(1.0), orders)  # type: ignore[arg-type]


def converted(order: float, rho: float, delta: float) -> mpf:
    with mp.workdps(700):
        a = mpf(order)
        return mpf(rho) + mp.log((a - 1) / a) - (mp.log(mpf(delta)) + mp.log(a)) / (a - 1)


@pytest.mark.parametrize("rho", [0.0, 0.3, 30.0, 1e20])
@pytest.mark.parametrize("delta", [5e-324, 1e-5, 0.5, 1.0 - 1e-9, 1.0 - 2.0**-53])
def test_conversion_is_an_upper_bound_at_every_order(rho: float, delta: float) -> None:
    near = [1.0 + k * 2.0**-52 for k in (1, 2, 3, 2**25 + 1, 2**26 + 3, 3 * 2**25 + 7, 2**27 + 5, 2**40 + 1)]
    for order in (*near, 1.01, 2.0, 16.0, 1e6, 2.0**53, 1e300):
        truth = max(mpf(0), converted(order, rho, delta))
        found = rdp_epsilon(order, rho, delta)
        assert truth <= found
        try:
            budget = hs.accounting.rdp.rdp_budget(order, rho, delta)
        except hs.ParameterError:
            continue
        assert converted(order, budget, delta) <= rho
        filt = hs.individual.IndividualRDPFilter(1, order=min(order, 1e6), rho=2.0)
        filt.step([1.0 / order])
        assert filt.epsilon(delta)[0] >= converted(min(order, 1e6), filt.spent[0], delta)


@pytest.mark.parametrize("epsilon", [1e-300, 1.0, 1e308])
@pytest.mark.parametrize("delta", [5e-324, 0.5, 1.0 - 1e-16])
def test_the_best_order_of_extreme_budgets(epsilon: float, delta: float) -> None:
    filt = hs.individual.IndividualRDPFilter(2, epsilon=epsilon, delta=delta)
    assert filt.order > 1.0
    assert converted(filt.order, filt.rho, delta) <= epsilon


def sampled_laplace(q: float, scale: float, adjacency: str) -> mpf:
    """Of order 2: in closed form under "remove", by quadrature under "replace_one", where one record gives 1 and the other -1."""
    with mp.workdps(60):
        p, a = mpf(q), 1 / mpf(scale)
        if adjacency == "remove":
            return mp.log1p(p * p * (2 * mp.exp(a) / 3 + mp.exp(-2 * a) / 3 - 1))

        def term(t: mpf) -> mpf:
            one, other = ((1 - p) * mp.exp(-abs(t)) + p * mp.exp(-abs(t - side)) for side in (a, -a))
            return one * one / other / 2

        # Beyond the centres all densities are multiples of e^-|t|.
        return mp.log(term(a) + term(-a) + mp.quad(term, [-a, 0, a]))


@pytest.mark.sweep
@pytest.mark.parametrize("adjacency", ["remove", "replace_one"])
@pytest.mark.parametrize("scale", [0.5, 1.0, 10.0])
@pytest.mark.parametrize("q", [1e-3, 1e-10, 1e-15, 1e-16, 3e-17, 1e-17, 1e-19, 1e-25])
def test_losses_that_are_less_than_what_they_round_by(adjacency: str, scale: float, q: float) -> None:
    """What they are off by counts squared, too: at q = 1e-17 the upper end was 13 % below the truth, or 1e22 times."""
    truth = sampled_laplace(q, scale, adjacency)
    (lower,), (upper,) = rdp_curve(hs.PoissonSampled(hs.Laplace(scale), q), [2.0], adjacency)
    assert lower <= truth <= upper
    if q >= 1e-3:
        assert upper - lower <= 1e-9 * truth


@pytest.mark.parametrize("q", [1e-12, 1e-17, 1e-20])
@pytest.mark.parametrize("adjacency", ["remove", "replace_one"])
def test_kinds_of_sampled_steps_whose_losses_round_away(adjacency: str, q: float) -> None:
    """One that has more than a sampled Laplace step has, has at least its divergence."""
    scale = 1.0 if adjacency == "remove" else 2.0
    least = sampled_laplace(q, scale, adjacency)
    users = hs.UserLevel(hs.PoissonSampled(hs.Laplace(scale), q), 2)
    (upper,) = rdp_curve(users, [2.0], adjacency)[1]
    assert least <= upper
    # Both parts are equally likely, and the choice is seen: the moment is the mean of theirs.
    some = hs.Mixture(
        [hs.PoissonSampled(hs.Gaussian(1.0), q), hs.PoissonSampled(hs.Laplace(scale), q)], [0.5, 0.5]
    )
    (upper,) = rdp_curve(some, [2.0], adjacency)[1]
    assert least / 2 * (1 - mpf(10) ** -9) <= upper


@pytest.mark.parametrize(
    ("losses", "masses", "q", "order"),
    [
        ([0.0, 100.0], [1.0, 5e-324], 0.1, 32.0),
        ([0.0, 100.0], [1.0, 5e-324], 0.1, 1000.0),
        ([0.0, 600.0], [1.0, 1e-310], 1e-250, 64.0),
        ([0.0, 300.0], [1.0, 1e-323], 1e-120, 128.0),
        ([0.0, 200.0], [1.0, 1e-323], 0.7, 8.0),
        ([0.0, 100.0, 200.0], [1.0, 5e-324, 5e-324], 0.3, 50.0),
        ([0.0, 50.0, 60.0, 70.0], [1.0, 5e-324, 1e-323, 1.5e-323], 0.01, 500.0),
    ],
)
def test_masses_that_underflow_may_be_all_of_a_moment(
    losses: list[float], masses: list[float], q: float, order: float
) -> None:
    """They were left out as less than any double, and counted as nothing: 7e-16 for 73.6."""
    with mp.workdps(60):
        p = [mp.mpf(mass) for mass in masses]
        other = [mass * mp.exp(-mp.mpf(loss)) for mass, loss in zip(p, losses, strict=True)]
        drawn = [q * one + (1 - mp.mpf(q)) * two for one, two in zip(p, other, strict=True)]
        rest = 1 - mp.fsum(other)  # of the base, where no loss of P's lies
        pairs = [*zip(drawn, other, strict=True), ((1 - mp.mpf(q)) * rest, rest)]
        moment = mp.fsum(one**order * two ** (1 - order) for one, two in pairs if two > 0)
        truth = mp.log(moment) / (order - 1)
        step = hs.PoissonSampled(hs.PrivacyLoss(losses, masses), q)
        lower, upper = rdp_curve(step, np.array([order]), adjacency="remove")
        assert lower[0] <= truth * (1 + 1e-12)
        assert upper[0] >= truth * (1 - 1e-12)
        assert upper[0] <= losses[-1] * (1 + 1e-9)


@pytest.mark.parametrize(
    "step",
    [hs.ZCDP(0.125), hs.mechanisms.ExponentialMechanism(0.5), hs.mechanisms.Group(hs.Gaussian(2.0), 2)],
    ids=str,
)
def test_divergences_of_what_is_declared_have_no_lower_bound(step: hs.Step) -> None:
    lower, upper = rdp_curve(step * 3, [1.5, 2.0, 8.0])
    assert (lower == 0.0).all()
    assert (upper > 0.0).all()


@pytest.mark.parametrize(
    "rest", [hs.Gaussian(2.0) * 0, hs.PoissonSampled(hs.Gaussian(2.0), 0.1) * 7], ids=str
)
def test_declared_divergences_are_added_as_they_are(rest: hs.mechanisms.Process) -> None:
    orders = np.array([1.0 + 1e-9, 1.5, 2.0, 3.0, 8.0, 1e6])
    curve = hs.RenyiCurve([2.0, 8.0], [0.3, 0.5])
    process = rest + hs.ZCDP(0.125, 0.01) * 3 + hs.ZCDP(0.0) + curve * 2
    # (order - 1) D is convex: 0 at 1, .3 at 2, 3.5 at 8.
    chords = np.interp(orders, [1.0, 2.0, 8.0], [0.0, 0.3, 3.5], right=math.inf) / (orders - 1.0)
    others, upper = rdp_curve(rest, orders)[1], rdp_curve(process, orders)[1]
    truth = others + 3.0 * (0.01 + 0.125 * orders) + 2.0 * chords
    assert (upper >= truth * (1.0 - 1e-15)).all()
    assert (upper[:-1] <= truth[:-1] * (1.0 + 1e-6)).all()
    assert rdp_curve(process, math.inf)[1] == math.inf


@pytest.mark.parametrize("order", [1.0 + 2.0**-52, 1.5, 3.3, 2.0**53])
def test_declared_divergences_that_underflow_are_no_less(order: float) -> None:
    rho, steps = 5e-324, 2**53
    (upper,) = rdp_curve(hs.ZCDP(rho) * steps, [order])[1]
    assert Fraction(upper) >= Fraction(rho) * Fraction(order) * steps


@pytest.mark.filterwarnings("error")
def test_declared_divergences_have_a_best_order() -> None:
    epsilon, order = best_rdp_epsilon(hs.ZCDP(2.56), 1e-10)
    assert hs.account(hs.ZCDP(2.56)).epsilon(1e-10) <= epsilon * (1.0 + 1e-4)
    assert epsilon <= min(rdp_epsilon(other, 2.56 * other, 1e-10) for other in np.linspace(2.0, 6.0, 401))
    assert 2.0 < order < 6.0
    orders, known = [1.0001, 2.0, 8.0], [0.2, 0.3, 0.5]
    for last in (1, 2, 3):
        epsilon, order = best_rdp_epsilon(hs.RenyiCurve(orders[:last], known[:last]), 1e-5)
        assert order == orders[last - 1]
        assert epsilon <= rdp_epsilon(order, known[last - 1], 1e-5) * (1.0 + 1e-11)


@pytest.mark.parametrize("rho", [2**53 + 1, 2**60 + 1, Fraction(1, 3), Fraction(2, 7), Fraction(10, 21)])
def test_divergences_that_are_no_doubles_are_rounded_up(rho: Fraction) -> None:
    above = float(rho) if Fraction(float(rho)) >= rho else math.nextafter(float(rho), math.inf)
    assert rdp_epsilon(2.0, rho, 1e-5) == rdp_epsilon(2.0, above, 1e-5)
