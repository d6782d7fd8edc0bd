"""Poisson samples of Poisson samples against closed forms: every level counts exactly once, however many there are."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import hockeystick as hs
import pytest
from hockeystick.mechanisms.users import UserLevel
from mpmath import mp, mpf

RATES = [(0.1, 0.5), (0.1, 0.5, 0.5), (0.3, 0.7, 0.9), (0.9, 0.5, 0.3, 0.7)]
GAUSSIAN = hs.Gaussian(1.0)


def nested(mechanism: hs.Composable, rates: tuple[float, ...]) -> hs.PoissonSampled:
    return functools.reduce(hs.PoissonSampled, rates, mechanism)


def product(rates: tuple[float, ...]) -> Fraction:
    return math.prod(map(Fraction, rates))


def gaussian(epsilon: mpf) -> mpf:
    return mp.ncdf(0.5 - epsilon) - mp.exp(epsilon) * mp.ncdf(-0.5 - epsilon)


def laplace(epsilon: mpf) -> mpf:
    return max(mpf(0), -mp.expm1((epsilon - 1) / 2))


def finite(epsilon: mpf) -> mpf:
    return max(mpf(0), mpf(0.75) - mp.exp(epsilon) * mpf(0.25))


UNSAMPLED: list[tuple[hs.Composable, Callable[[mpf], mpf]]] = [
    (GAUSSIAN, gaussian),
    (hs.Laplace(1.0), laplace),
    (hs.FinitePair([0.75, 0.25], [0.25, 0.75]), finite),
    (hs.ApproximateDP(0.0, 1.0), lambda _: mpf(1)),
    (hs.MixtureOfGaussians(1.0, [1.0], [1.0]), gaussian),
    (hs.Mixture([GAUSSIAN, hs.Laplace(1.0)], [0.5, 0.5]), lambda e: (gaussian(e) + laplace(e)) / 2),
]
"""Mechanisms, and their delta."""


@pytest.mark.parametrize("rates", RATES)
@pytest.mark.parametrize(("mechanism", "delta"), UNSAMPLED, ids=lambda part: type(part).__name__)
def test_the_product_by_its_closed_form(
    rates: tuple[float, ...], mechanism: hs.Composable, delta: Callable[[mpf], mpf]
) -> None:
    q = mpf(product(rates).numerator) / product(rates).denominator
    profile = hs.account(nested(mechanism, rates), "remove")
    for epsilon in (0.0, 0.01, 0.3):
        # (1 - q) Q + q P against Q is q times P against Q at a larger epsilon.
        truth = q * delta(mp.log1p(mp.expm1(mpf(epsilon)) / q))
        lower, upper = profile.delta_bounds(epsilon)
        assert lower <= truth <= upper
        assert upper <= truth * (1 + mpf(1e-6)) + mpf(1e-12)


@pytest.mark.sweep
@pytest.mark.parametrize("rates", RATES)
@pytest.mark.parametrize("adjacency", ["add", "remove", "add_or_remove", "zero_out", "replace_one"])
@pytest.mark.parametrize("mechanism", [part for part, _ in UNSAMPLED], ids=lambda part: type(part).__name__)
def test_one_sample_with_the_product(
    mechanism: hs.Composable, adjacency: str, rates: tuple[float, ...]
) -> None:
    if isinstance(mechanism, hs.FinitePair) and adjacency == "replace_one":
        pytest.skip("A pair says nothing of replacement.")
    once = hs.PoissonSampled(mechanism, nested(mechanism, rates).participation)
    several = nested(mechanism, rates)
    one, other = hs.account(once * 5, adjacency), hs.account(several * 5, adjacency)
    assert other.delta_bounds(0.1) == one.delta_bounds(0.1)
    for around in (
        lambda step: hs.Mixture([step, hs.Laplace(9.0)], [0.5, 0.5]),
        lambda step: hs.PoissonSampled(hs.Mixture([step, hs.PoissonSampled(GAUSSIAN, 0.1)], [0.5, 0.5]), 0.5),
    ):
        found = hs.account(around(several), adjacency).delta_bounds(0.01)
        expected = hs.account(around(once), adjacency).delta_bounds(0.01)
        assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("rates", [*RATES, (1e-200, 1e-200, 0.5), (3e-162, 1e-162, 1.0), (1.0, 1.0, 1.0)])
def test_rates_are_rounded_up(rates: tuple[float, ...]) -> None:
    for order in itertools.permutations(rates):
        step = nested(GAUSSIAN, order)
        exact = product(order)
        assert exact <= Fraction(step.participation) <= exact * (1 + Fraction(2) ** -50) + Fraction(5e-324)
        simplified = step.simplified()
        assert simplified is not None
        assert simplified.participation == step.participation
        (alternative,) = step.alternatives()
        assert alternative == hs.PoissonSampled(GAUSSIAN, step.participation)
        mixture = nested(hs.MixtureOfGaussians(1.0, [1.0], [1.0]), order).simplified()
        assert isinstance(mixture, hs.MixtureOfGaussians)
        assert Fraction(mixture.probabilities[-1]) >= exact


@pytest.mark.parametrize("chance", [0.3, 3e-162, 5e-324])
def test_chances_of_a_sampled_mixture_are_rounded_up(chance: float) -> None:
    mixture = hs.MixtureOfGaussians(1.0, [0.0, 1.0], [1.0 - chance, chance])
    sampled = hs.PoissonSampled(mixture, 0.7).simplified()
    assert isinstance(sampled, hs.MixtureOfGaussians)
    assert Fraction(sampled.probabilities[-1]) >= Fraction(0.7) * Fraction(chance)


def test_a_rate_of_zero_anywhere_releases_nothing() -> None:
    for rates in itertools.permutations((0.0, 0.5, 1.0)):
        assert nested(GAUSSIAN, rates).simplified() is None


def test_everything_that_is_asked_of_three_levels() -> None:
    rates = (0.1, 0.5, 0.5)
    once, several = hs.PoissonSampled(GAUSSIAN, 0.025), nested(GAUSSIAN, rates)
    assert hs.accounting.rdp_curve(several, [2.0]) == hs.accounting.rdp_curve(once, [2.0])
    assert hs.account(several).gdp(1e-6) == hs.account(once).gdp(1e-6)
    assert "0.025" in hs.account(several * 10).report(delta=1e-5).statement()

    def noise(levels: tuple[float, ...]) -> float:
        return float(hs.calibrate_noise_multiplier(lambda x: nested(hs.Gaussian(x), levels) * 100, 1.0, 1e-5))

    assert noise(rates) == noise((0.025,))
    runs = hs.Repetitions.fixed(1)
    for around in (
        lambda step: hs.mechanisms.Group(step, 2),
        lambda step: hs.PrivateSelection(step, runs),
    ):
        assert hs.account(around(several)).delta(0.1) == hs.account(around(once)).delta(0.1)
    with pytest.raises(hs.ParameterTypeError, match="PoissonSampled of one"):
        UserLevel(several, 2)
