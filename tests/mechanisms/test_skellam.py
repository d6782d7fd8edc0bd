"""Skellam noise against Bessel functions in ball arithmetic, and its privacy against sums over all integers."""

from __future__ import annotations

import itertools
import math

import flint
import hockeystick as hs
import numpy as np
import pytest
from flint import arb
from hockeystick.mechanisms import Skellam, from_dict, to_dict

BITS = 400


@pytest.fixture(autouse=True)
def precision():
    before, flint.ctx.prec = flint.ctx.prec, BITS
    yield
    flint.ctx.prec = before


def mass(t: int, variance: float) -> arb:
    v = arb(variance)
    return (-v).exp() * v.bessel_i(arb(abs(t)))


def hockey_stick(pairs: list[tuple[arb, arb]], epsilon: float) -> arb:
    factor = arb(epsilon).exp()
    return sum((max(arb(0), p - factor * q) for p, q in pairs), arb(0))


@pytest.mark.parametrize("variance", [1e-100, 1e-3, 0.7, 40.0, 3e3, 1e5])
def test_masses_and_losses(variance: float) -> None:
    noise = Skellam(variance).noise()
    reach = int(noise.reach)
    assert 2 * mass(reach, variance) < 1e-310
    for t in sorted({0, 1, 2, reach // 7, reach // 2, reach}):
        # As the core counts: 32 + 4 |ln mass| units.
        truth = mass(t, variance).log()
        assert abs(arb(float(noise.log_mass(np.array([float(t)]))[0])) - truth) <= (8 - 2 * truth) * 2.0**-53
        for shift in (1, 2, 5, 301):
            loss = (mass(t - shift, variance) / mass(t, variance)).log()
            found = arb(float(noise.log_ratio(np.array([float(t)]), shift)[0]))
            assert abs(found - loss) <= noise.loss_error * abs(loss) * 2.0**-53 + arb("1e-100")


@pytest.mark.parametrize(
    ("variance", "sensitivity"),
    [(1e-3, 1), (0.7, 3), (30.0, 2), (100.0, 20), (3.4e-4, 2), (1e-6, 10), (0.01, 5)],
)
@pytest.mark.parametrize("rate", [1.0, 0.05])
def test_one_release(variance: float, sensitivity: int, rate: float) -> None:
    reach = int(Skellam(variance).noise().reach) // 3
    q = arb(rate)
    laws = [(mass(t - sensitivity, variance), mass(t, variance)) for t in range(-reach, reach + sensitivity)]
    present = [(q * p + (1 - q) * absent, absent) for p, absent in laws]
    step = Skellam(variance, sensitivity)
    described = hs.PoissonSampled(step, rate) if rate < 1.0 else step
    for direction, pairs in (("remove", present), ("add", [(b, a) for a, b in present])):
        profile = hs.account(described, direction, accuracy=1e-5)
        for epsilon in (-0.3, 0.0, 0.4):
            lower, upper = profile.delta_bounds(epsilon)
            truth = hockey_stick(pairs, epsilon)
            assert arb(lower) <= truth + 1e-20
            assert truth <= arb(upper) + 1e-20
            assert upper <= lower * (1 + 1e-5) + 1e-14


def test_a_composition_by_all_outcomes() -> None:
    atoms = [(float(mass(t - 1, 0.8)), float(mass(t, 0.8))) for t in range(-13, 15)]
    p, q = (
        np.array([math.prod(c) for c in itertools.product(one, repeat=3)]) for one in zip(*atoms, strict=True)
    )
    profile = hs.account(Skellam(0.8) * 3, accuracy=1e-2)
    for epsilon in (0.0, 1.0, 4.0):
        lower, upper = profile.delta_bounds(epsilon)
        truth = math.fsum(np.maximum(0.0, p - math.exp(epsilon) * q))
        assert lower * (1 - 1e-11) - 1e-14 <= truth <= upper * (1 + 1e-11)
        assert upper <= lower * (1 + 1e-2) + 1e-14


def test_a_record_that_is_replaced_moves_the_query_twice_as_far() -> None:
    replaced = hs.account(Skellam(9.0, 2) * 2, "replace_one").epsilon_bounds(1e-5)
    moved = hs.account(Skellam(9.0, 4) * 2).epsilon_bounds(1e-5)
    assert replaced.lower <= moved.upper
    assert moved.lower <= replaced.upper


def test_much_noise_is_nearly_gaussian() -> None:
    found, gaussian = hs.account(Skellam(1e4)).epsilon(1e-6), hs.account(hs.Gaussian(100.0)).epsilon(1e-6)
    assert found == pytest.approx(gaussian, rel=2e-3)


def test_hardly_any_noise_hides_nothing() -> None:
    assert hs.account(Skellam(1e-100)).epsilon(1e-6) > 200.0
    assert hs.account(Skellam(1e-100)).delta_bounds(0.0).lower > 1 - 1e-12


def test_stored_reported_and_refused() -> None:
    step = Skellam(variance=12.5, sensitivity=3)
    assert from_dict(to_dict(step)) == step
    assert "variance of Skellam noise" in hs.account(step).report(delta=1e-6, risks=False).statement()
    for wrong in ({"variance": 0.0}, {"variance": 1e6}, {"variance": 1.0, "sensitivity": 5000}):
        with pytest.raises(hs.ParameterError, match=r"variance|sensitivity"):
            Skellam(**wrong)
    with pytest.raises(hs.ParameterError, match="together"):
        hs.account(hs.WithReplacement(Skellam(1.0, 4096), 3, 10), "replace_one").epsilon(1e-5)
