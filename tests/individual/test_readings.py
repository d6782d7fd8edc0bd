"""What filters, odometers and accountants say was spent is rounded towards more."""

from __future__ import annotations

import math
from fractions import Fraction

import hockeystick as hs
import mpmath
import numpy as np
from hockeystick.individual.spending import squared_down


def square(value: float) -> Fraction:
    return Fraction(value) ** 2


def test_budgets_are_squared_downwards() -> None:
    for mu in np.random.default_rng(0).uniform(1e-3, 10.0, 200).tolist():
        kept = Fraction(squared_down(mu))
        assert kept <= square(mu) < kept + Fraction(math.ulp(float(kept)))


def test_levels_and_readings_are_never_below_what_was_spent() -> None:
    """Next to every level, in units of the last place: the level, its mu, and the root of the sum."""
    rng = np.random.default_rng(0)
    for increment in rng.uniform(0.1, 3.0, 60).tolist():
        near = [float(level * square(increment)) for level in range(1, 60)]
        near = [math.nextafter(each, towards) for each in near for towards in (0.0, each, math.inf)]
        odometer = hs.individual.IndividualGDPOdometer(len(near), increment=increment)
        odometer.step(np.sqrt(near))
        readings = zip(
            odometer.spent.tolist(), odometer.levels().tolist(), odometer.mu().tolist(), strict=True
        )
        for spent, level, mu in readings:
            assert Fraction(spent) <= int(level) * square(increment) <= square(mu)


def test_roots_of_what_was_spent_are_rounded_up() -> None:
    filt = hs.IndividualGDPFilter(500, mu=100.0)
    filt.step(np.random.default_rng(1).uniform(0.0, 3.0, 500))
    for spent, mu in zip(filt.spent.tolist(), filt.spent_mu().tolist(), strict=True):
        assert Fraction(spent) <= square(mu)


def test_readings_of_renyi_filters_are_rounded_up() -> None:
    filt = hs.individual.IndividualRDPFilter(1, order=1.5, rho=1e100)
    filt.step([math.sqrt(3e15)])
    spent = float(filt.spent[0])
    with mpmath.workdps(40):
        for delta in np.logspace(-12, -1, 60).tolist():
            a, d = mpmath.mpf(1.5), mpmath.mpf(delta)
            exact = spent + mpmath.log(1 - 1 / a) - mpmath.log(d * a) / (a - 1)
            assert float(filt.epsilon(delta)[0]) >= exact


def test_sampling_probabilities_that_are_no_doubles_are_rounded_up() -> None:
    for q in [Fraction(i, 21) for i in range(1, 21) if i % 3 and i % 7]:
        found, least = (hs.individual.IndividualRDPFilter(1, order=4.0, rho=1e100) for _ in range(2))
        above = float(q) if Fraction(float(q)) >= q else math.nextafter(float(q), 1.0)
        for filt, rate in ((found, q), (least, above)):
            filt.step([1.0], noise_multiplier=1.0, clipping_norm=1.0, sampling_probability=rate)
        assert found.spent[0] >= least.spent[0]


def test_readings_cover_both_directions() -> None:
    readings = {}
    for adjacency in ("add", "remove", "add_or_remove"):
        accountant = hs.IndividualAccountant(
            1, noise_multiplier=0.8, sampling_probability=0.05, clipping_norm=1.0, adjacency=adjacency
        )
        accountant.step([1.0], steps=200)
        readings[adjacency] = float(accountant.epsilon(1e-6)[0])
    assert readings["add_or_remove"] >= max(readings["add"], readings["remove"])
    assert readings["add"] != readings["remove"]
