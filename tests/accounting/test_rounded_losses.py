"""Losses that round: where cancellation, an end of the support or a rounded parameter would once move them unseen."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence

import hockeystick as hs
import pytest
from hockeystick.mechanisms import ExponentialMechanism, atoms
from mpmath import mp

Law = Sequence[mp.mpf]


@pytest.fixture(autouse=True)
def _digits() -> Iterator[None]:
    with mp.workdps(400):
        yield


def blended(q: float, p: Law, other: Law) -> Law:
    return [mp.mpf(q) * a + (1 - mp.mpf(q)) * b for a, b in zip(p, other, strict=True)]


def response(epsilon: float) -> tuple[Law, Law]:
    truth = 1 / (1 + mp.exp(-mp.mpf(epsilon)))
    return [truth, 1 - truth], [1 - truth, truth]


def delta_of_two(p: Law, q: Law, steps: int, epsilon: float) -> mp.mpf:
    """delta of `steps` times a pair with two outcomes."""
    e = mp.exp(mp.mpf(epsilon))
    return mp.fsum(
        mp.binomial(steps, j)
        * max(mp.mpf(0), p[0] ** j * p[1] ** (steps - j) - e * q[0] ** j * q[1] ** (steps - j))
        for j in range(steps + 1)
    )


def check(profile: hs.Profile, epsilon: float, truth: mp.mpf) -> None:
    bounds = profile.delta_bounds(epsilon)
    assert bounds.lower <= truth <= bounds.upper, (profile, epsilon)


def near(end: float) -> list[float]:
    """Epsilons next to the largest loss, and beyond."""
    inside = [end * (1 - 10.0**-k) for k in (1, 3, 6, 9, 11, 12, 13, 14, 15)]
    return [*inside, math.nextafter(end, 0), end, math.nextafter(end, math.inf)]


CATEGORIES = (2, 3, 100, 10**6, 10**10, 10**15, 2**53)


@pytest.mark.parametrize("epsilon", [1e-300, 1e-9, 0.5, 5.0, 20.0, 36.0, 60.0, 300.0, 599.0, 601.0, 690.0])
@pytest.mark.parametrize("categories", CATEGORIES)
def test_responses_have_the_errors_that_they_say(epsilon: float, categories: int) -> None:
    k, growth = mp.mpf(categories), mp.expm1(mp.mpf(epsilon))
    truth, lie = (1 + growth) / (k + growth), 1 / (k + growth)
    unit = mp.mpf(2) ** -53
    for pair in atoms.response_against_uniform(epsilon, categories):
        low, high = -mp.log1p(growth / k), -mp.log1p((k - 1) / k * mp.expm1(-mp.mpf(epsilon)))
        for loss in pair.losses:
            exact = min((low, high, -low, -high), key=lambda value: abs(value - loss))
            assert abs(loss - exact) <= pair.loss_error * unit * abs(exact) + 5e-324
        for mass in (*pair.p, *pair.q):
            exact = min((truth, (k - 1) * lie, 1 / k, 1 - 1 / k), key=lambda value: abs(value - mass))
            assert abs(mass - exact) <= 16 * unit * exact
    whole = atoms.randomized_response(epsilon, categories)
    assert abs(whole.p[-1] - truth) <= 16 * unit * truth
    assert abs(whole.p[0] - lie) <= 16 * unit * lie


@pytest.mark.parametrize(
    ("epsilon", "categories", "steps"),
    [
        (5.0, 100, 4),
        (8.0, 1000, 5),
        (10.0, 10**6, 3),
        (20.0, 10**10, 3),
        (30.0, 10**15, 1),
        (30.0, 10**15, 3),
    ],
)
def test_response_against_a_uniform_one(epsilon: float, categories: int, steps: int) -> None:
    k, growth = mp.mpf(categories), mp.exp(mp.mpf(epsilon))
    p, q = [growth / (growth + k - 1), (k - 1) / (growth + k - 1)], [1 / k, 1 - 1 / k]
    profile = hs.account(
        hs.RandomizedResponse(epsilon, categories, uniform_null=True) * steps, adjacency="zero_out"
    )
    largest = steps * mp.log(p[0] / q[0])
    bounds = profile.epsilon_bounds(0.0)
    assert bounds.lower <= largest <= bounds.upper
    for e in (0.0, 0.5 * float(largest), *near(float(largest))):
        check(profile, e, max(delta_of_two(p, q, steps, e), delta_of_two(q, p, steps, e)))


@pytest.mark.parametrize("seed", range(12))
def test_tiny_rates_of_large_losses(seed: int) -> None:
    """q e^loss is about 1, or far below it."""
    rng = random.Random(seed)
    epsilon = rng.uniform(25, 90)
    rate = math.exp(-epsilon + rng.uniform(-12, 12))
    steps = rng.choice([1, 2, 3, 10])
    p, q = response(epsilon)
    profile = hs.account(hs.PoissonSampled(hs.PureDP(epsilon), rate) * steps, adjacency="remove")
    mixed = blended(rate, p, q)
    largest = float(steps * mp.log(mixed[0] / q[0]))
    for e in (0.0, 0.3 * largest, 0.7 * largest, *near(largest)):
        check(profile, e, delta_of_two(mixed, q, steps, e))


@pytest.mark.parametrize("rate", [1e-6, 0.15, 0.5, 0.99, 1 - 1e-15])
@pytest.mark.parametrize("epsilon", [3.0, 12.11269932949305, 35.52256794599652, 38.559132182883076, 700.0])
def test_one_step_next_to_what_an_absent_record_shows(epsilon: float, rate: float) -> None:
    p, q = response(epsilon)
    profile = hs.account(hs.PoissonSampled(hs.PureDP(epsilon), rate), adjacency="add")
    mixed = blended(rate, p, q)
    for e in (*near(float(mp.log(q[1] / mixed[1]))), *near(-math.log1p(-rate))):
        check(profile, e, delta_of_two(q, mixed, 1, e))


@pytest.mark.parametrize("rate", [0.3, 0.5, 0.99, 1 - 1e-15])
@pytest.mark.parametrize("sigma", [0.3, 0.451442808775526, 0.8114704337297963, 3.0])
def test_gaussian_noise_next_to_what_an_absent_record_shows(sigma: float, rate: float) -> None:
    profile = hs.account(hs.PoissonSampled(hs.Gaussian(sigma), rate), adjacency="add")
    s, q = mp.mpf(sigma), mp.mpf(rate)
    for e in near(-math.log1p(-rate)):
        # Q > e^eps (q P + (1 - q) Q) where the ratio e^{(2 x - 1)/(2 s^2)} of P to Q is below this one.
        ratio = (mp.exp(-mp.mpf(e)) - (1 - q)) / q
        if ratio <= 0:
            check(profile, e, mp.mpf(0))
            continue
        x = s**2 * mp.log(ratio) + 0.5
        tails = [mp.erfc(-(x - shift) / (s * mp.sqrt(2))) / 2 for shift in (0, 1)]
        check(profile, e, tails[0] - mp.exp(mp.mpf(e)) * (q * tails[1] + (1 - q) * tails[0]))


@pytest.mark.parametrize("scale", [0.0030310509571519284, 0.0045152429, 0.007, 0.03, 0.3, 7.0])
@pytest.mark.parametrize("adjacency", ["remove", "replace_one"])
def test_laplace_noise_whose_epsilon_rounds(scale: float, adjacency: str) -> None:
    exact = mp.mpf(2 if adjacency == "replace_one" else 1) / mp.mpf(scale)
    profile = hs.account(hs.Laplace(scale), adjacency=adjacency)
    for e in (0.0, *near(float(exact))):
        check(profile, e, max(mp.mpf(0), -mp.expm1((mp.mpf(e) - exact) / 2)))
    bounds = profile.epsilon_bounds(0.0)
    assert bounds.lower <= exact <= bounds.upper


@pytest.mark.parametrize("rate", [1e-100, 1e-60, 1e-3])
@pytest.mark.parametrize("scale", [0.004515242953198401, 0.02, 0.7])
@pytest.mark.parametrize("noise", [hs.Laplace, hs.DiscreteLaplace])
def test_sampled_noise_whose_epsilon_rounds(noise: type[hs.Mechanism], scale: float, rate: float) -> None:
    exact = 1 / mp.mpf(scale)
    profile = hs.account(hs.PoissonSampled(noise(scale), rate), adjacency="remove")
    largest = mp.log1p(mp.mpf(rate) * mp.expm1(exact))
    bounds = profile.epsilon_bounds(0.0)
    assert bounds.lower <= largest <= bounds.upper
    for e in near(float(largest)):
        base = mp.log1p(mp.expm1(mp.mpf(e)) / mp.mpf(rate))  # the loss before sampling
        if noise is hs.Laplace:
            inside = -mp.expm1((base - exact) / 2)
        else:  # what one cell away does lies at the smallest loss
            share = 1 / (1 + mp.exp(-exact))
            inside = share - mp.exp(base) * (1 - share)
        check(profile, e, max(mp.mpf(0), mp.mpf(rate) * inside))


@pytest.mark.sweep
@pytest.mark.parametrize("epsilon", [1e-300, 1e-170, 1e-162, 1e-150, 1e-9])
@pytest.mark.parametrize("steps", [1, 1000])
def test_an_exponential_mechanism_that_hardly_tells_anything(epsilon: float, steps: int) -> None:
    half = mp.mpf(epsilon) / 2
    one = mp.expm1(-half) ** 2 / -mp.expm1(-2 * half)
    upper = hs.account(ExponentialMechanism(epsilon) * steps).delta_bounds(0.0).upper
    assert one <= upper <= 5 * steps * one
