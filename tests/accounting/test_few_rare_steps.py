"""delta of two steps that hardly ever see a record, far below the probability of a hit, against quadrature."""

from __future__ import annotations

import math
from typing import Any

import flint
import hockeystick as hs
import pytest
from flint import arb

from tests.campaign.balls import normal_tail
from tests.quadrature import density, integral


@pytest.fixture(autouse=True)
def precision():
    with flint.ctx.workprec(160):
        yield


def hits(q: float, examples: int = 1) -> list[arb]:
    """Probabilities of so many of the examples in a batch."""
    return [
        math.comb(examples, j) * arb(q) ** j * (1 - arb(q)) ** (examples - j) for j in range(examples + 1)
    ]


def two_steps(weights: list[arb], sigma: float, epsilon: float) -> arb:
    """delta under "remove" of two steps of P = sum of ``weights[j]`` N(j, sigma^2) against N(0, sigma^2): over the first one's output."""
    sigma, epsilon = arb(sigma), arb(epsilon)

    def ratio(x: arb, power: int = 0) -> arb:
        """At ``power`` 1, its slope times sigma^2."""
        terms = (w * j**power * ((j * x - arb(j * j) / 2) / sigma**2).exp() for j, w in enumerate(weights))
        return sum(terms, arb(0))

    def output(y: arb) -> arb:
        """Where the ratio, which rises and is convex, is ``y``: by Newton's method, from where one term alone is."""
        alone = [j / arb(2) + sigma**2 * ((y - weights[0]) / w).log() / j for j, w in enumerate(weights) if j]
        x = min(alone, key=float).mid()
        for _ in range(60):
            step = sigma**2 * (ratio(x) - y) / ratio(x, 1)
            x = (x - step).mid()
            if abs(step) < 1e-30:
                break
        return x

    def one(y: arb) -> arb:
        """delta of one step at e^epsilon = ``y``."""
        if y <= weights[0]:
            return 1 - y
        x = output(y)
        tails = (w * normal_tail((x - j) / sigma) for j, w in enumerate(weights))
        return sum(tails, -y * normal_tail(x / sigma))

    def integrand(x: arb) -> arb:
        p = sum((w * density((x - j) / sigma) / sigma for j, w in enumerate(weights)), arb(0))
        return p * one(epsilon.exp() / ratio(x))

    # From where the first step alone says enough, the second one counts for nothing.
    middle = output(epsilon.exp() / weights[0])
    near = [middle + sigma * sign * arb(2) ** k for k in range(-16, 3) for sign in (-1, 1)]
    bulk = [sigma * k for k in range(-12, 13) if sigma * k < middle - 4 * sigma]
    points = sorted([*bulk, *near, middle, middle + 16 * sigma], key=float)
    return integral(integrand, points, 24)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("q", "sigma", "epsilon"),
    [(1.78e-7, 1.3, 5.96e-5), (1.78e-7, 1.3, 1e-3), (1e-9, 2.0, 0.01), (1e-5, 0.8, 0.002)],
)
def test_delta_is_known_where_epsilon_is(q: float, sigma: float, epsilon: float) -> None:
    """Layers of losses that are laid for fewer digits where a dozen cannot be had; both directions of asking agree."""
    truth = two_steps(hits(q), sigma, epsilon)
    profile = hs.account(hs.PoissonSampled(hs.Gaussian(sigma), q) * 2, "remove")
    lower, upper = profile.delta_bounds(epsilon)
    assert lower <= truth * (1 + 1e-7)
    assert truth * (1 - 1e-7) <= upper
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
    truth = two_steps(hits(q, examples), sigma, epsilon)
    step: Any = hs.mechanisms.UserLevel(hs.PoissonSampled(hs.Gaussian(sigma), q), examples)
    lower, upper = hs.account(step * 2, "remove").delta_bounds(epsilon)
    assert lower <= truth * (1 + 1e-7)
    assert truth * (1 - 1e-7) <= upper
    one, most = hs.account(step, "remove"), 1e-12
    assert lower >= one.delta_bounds(epsilon).lower * (1.0 - most)
    assert upper <= (2.0 + epsilon) * one.delta_bounds(epsilon / 2.0).upper * (1.0 + most)


@pytest.mark.parametrize("steps", [2, 9])
def test_shares_of_a_subnormal_epsilon(steps: int) -> None:
    """They round by as much as they are; the curve falls, so that at nothing it is no higher."""
    profile = hs.account(hs.PoissonSampled(hs.Gaussian(0.1), 1e-3) * steps, "remove", accuracy=1e-9)
    least = max(profile.delta_bounds(-1e-300).lower * (1.0 - 1e-12), profile.delta_bounds(1e-200).lower)
    for epsilon in (5e-324, 1e-300):
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
