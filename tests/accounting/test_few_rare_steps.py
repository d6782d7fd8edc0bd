"""delta of two steps that hardly ever see a record, far below the probability of a hit, against quadrature."""

from __future__ import annotations

from typing import Any

import hockeystick as hs
import mpmath
import pytest
from mpmath import mpf


@pytest.fixture(autouse=True)
def precision():
    with mpmath.workdps(25):
        yield


def two_steps(weights: list[mpf], sigma: float, epsilon: float) -> mpf:
    """delta under "remove" of two steps of P = sum of ``weights[j]`` N(j, sigma^2) against N(0, sigma^2): over the first one's output."""
    sigma, epsilon = mpf(sigma), mpf(epsilon)

    def ratio(x: mpf) -> mpf:
        return mpmath.fsum(w * mpmath.exp((j * x - mpf(j * j) / 2) / sigma**2) for j, w in enumerate(weights))

    def tail(x: mpf) -> mpf:
        return mpmath.fsum(w * mpmath.ncdf((j - x) / sigma) for j, w in enumerate(weights))

    def output(y: mpf) -> mpf:
        """Where the ratio, which rises, is ``y``."""
        low, high = mpf(-20) * sigma, mpf(40) * sigma + 40
        while high - low > mpf(10) ** -3:
            middle = (low + high) / 2
            low, high = (low, middle) if ratio(middle) > y else (middle, high)
        return mpmath.findroot(
            lambda x: mpmath.log(ratio(x) / y), (low, high), solver="anderson", verify=False
        )

    def one(y: mpf) -> mpf:
        """delta of one step at e^epsilon = ``y``."""
        if y <= weights[0]:
            return 1 - y
        x = output(y)
        return tail(x) - y * mpmath.ncdf(-x / sigma)

    def integrand(x: mpf) -> mpf:
        p = mpmath.fsum(w * mpmath.npdf(x, j, sigma) for j, w in enumerate(weights))
        return p * one(mpmath.exp(epsilon) / ratio(x))

    # From where the first step alone says enough, the second one counts for nothing.
    middle = output(mpmath.exp(epsilon) / weights[0])
    near = [middle + sigma * mpf(sign) * mpf(2) ** k for k in range(-16, 3) for sign in (-1, 1)]
    bulk = [sigma * k for k in range(-12, 13) if sigma * k < middle - 4 * sigma]
    return mpmath.quad(integrand, sorted([*bulk, *near, middle, middle + 16 * sigma]), maxdegree=4)


@pytest.mark.parametrize(
    ("q", "sigma", "epsilon"),
    [(1.78e-7, 1.3, 5.96e-5), (1.78e-7, 1.3, 1e-3), (1e-9, 2.0, 0.01), (1e-5, 0.8, 0.002)],
)
def test_delta_is_known_where_epsilon_is(q: float, sigma: float, epsilon: float) -> None:
    """Layers of losses that are laid for fewer digits where a dozen cannot be had; both directions of asking agree."""
    truth = two_steps([1 - mpf(q), mpf(q)], sigma, epsilon)
    profile = hs.account(hs.PoissonSampled(hs.Gaussian(sigma), q) * 2, "remove")
    lower, upper = profile.delta_bounds(epsilon)
    assert lower <= truth * (1 + mpf(10) ** -7)
    assert truth * (1 - mpf(10) ** -7) <= upper
    assert upper <= lower * (1.0 + 1.2e-3)
    low, high = profile.epsilon_bounds(float(truth))
    assert low <= epsilon * (1.0 + 1e-12)
    assert epsilon * (1.0 - 1e-12) <= high


@pytest.mark.parametrize(
    ("examples", "q", "sigma", "epsilon"),
    [(4, 1.7e-7, 2.158, 0.00307), (8, 1e-8, 2.407, 0.3)],
)
def test_single_steps_bound_what_no_engine_finds(
    examples: int, q: float, sigma: float, epsilon: float
) -> None:
    """delta is at least that of one step, and at most twice that at half epsilon and a little more."""
    weights = [
        mpmath.binomial(examples, j) * mpf(q) ** j * (1 - mpf(q)) ** (examples - j)
        for j in range(examples + 1)
    ]
    truth = two_steps(weights, sigma, epsilon)
    step: Any = hs.mechanisms.UserLevel(hs.PoissonSampled(hs.Gaussian(sigma), q), examples)
    lower, upper = hs.account(step * 2, "remove").delta_bounds(epsilon)
    assert lower <= truth * (1 + mpf(10) ** -7)
    assert truth * (1 - mpf(10) ** -7) <= upper
    one, most = hs.account(step, "remove"), 1e-12
    assert lower >= one.delta_bounds(epsilon).lower * (1.0 - most)
    assert upper <= (2.0 + epsilon) * one.delta_bounds(epsilon / 2.0).upper * (1.0 + most)


@pytest.mark.parametrize("steps", [2, 9])
def test_shares_of_a_subnormal_epsilon(steps: int) -> None:
    """They round by as much as they are; the curve falls, so that at nothing it is no higher."""
    profile = hs.account(hs.PoissonSampled(hs.Gaussian(0.1), 1e-3) * steps, "remove", accuracy=1e-9)
    least = max(profile.delta_bounds(-1e-300).lower * (1.0 - 1e-12), profile.delta_bounds(1e-200).lower)
    for epsilon in (5e-324, 1.5e-323, 1e-300):
        assert least <= profile.delta_bounds(epsilon).upper


@pytest.mark.parametrize(("sigma", "q", "steps"), [(0.7, 3.15e-7, 1000), (0.5, 1e-6, 300), (0.6, 1e-5, 100)])
def test_who_asks_for_more_digits_gets_no_fewer(sigma: float, q: float, steps: int) -> None:
    """Where layers for a dozen digits cannot be had, those for fewer are asked for, whatever the accuracy."""
    process = hs.PoissonSampled(hs.Gaussian(sigma), q) * steps
    coarse = hs.account(process, accuracy=1e-3)
    for accuracy in (1e-6, 1e-9):
        fine = hs.account(process, accuracy=accuracy)
        for ask in (lambda p: p.delta_bounds(1e-8), lambda p: p.epsilon_bounds(0.5 * coarse.delta(1e-8))):
            found, other = ask(fine), ask(coarse)
            assert found.upper >= other.lower
            assert found.lower <= other.upper
            assert found.upper <= found.lower * (1.0 + 1e-5)
