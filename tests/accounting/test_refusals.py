"""Extreme arguments: answered where there is an answer, and refused by the name of the parameter where there is none."""

from __future__ import annotations

import math
from fractions import Fraction

import hockeystick as hs
import pytest
from hockeystick.accounting import UnionBound, noise_multiplier, standard_deviation
from hockeystick.accounting.goals import aim
from mpmath import mp, mpf


@pytest.mark.parametrize("prior", [0.5, 0.3, 1e-3, 1e-323])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.999, 1.0])
def test_least_errors_as_near_to_guessing_as_can_be(prior: float, share: float) -> None:
    risk = min(max(prior * share, 5e-324), math.nextafter(prior, 0.0))
    found = aim(None, None, {"bayes_risk": risk, "prior": prior})
    # At this epsilon an attack errs with prior (1 - delta) at least.
    assert 0.0 <= found.delta < 1.0
    assert Fraction(prior) * (1 - Fraction(found.delta)) >= Fraction(risk)
    assert mp.exp(mpf(found.epsilon)) <= (1 - mpf(prior)) / mpf(prior)


def test_least_error_just_below_guessing() -> None:
    risk = math.nextafter(0.3, 0.0)
    sigma = hs.calibrate_noise_multiplier(hs.Gaussian, bayes_risk=risk, prior=0.3)
    with mp.workdps(60):
        mu, prior = 1 / mpf(float(sigma)), mpf(0.3)
        epsilon = mp.log((1 - prior) / prior)
        delta = mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)
        assert prior * (1 - delta) >= risk
    with pytest.raises(hs.accounting.UnreachableError, match=r"delta = 1\.11"):
        hs.calibrate_noise_multiplier(hs.Gaussian, bayes_risk=math.nextafter(0.5, 0.0), prior=0.5)


@pytest.mark.parametrize("advantage", [1.0 - 2.0**-53, 1.0 - 1e-15, 1.0 - 1e-10, 0.5, 3e-6, 1e-6])
def test_advantages_near_one(advantage: float) -> None:
    sigma = float(hs.calibrate_noise_multiplier(hs.Gaussian, advantage=advantage))
    with mp.workdps(60):
        mu = 1 / mpf(sigma)
        assert mp.erf(mu / mp.sqrt(8)) <= advantage
        assert mp.erf(mu * 1.08 / mp.sqrt(8)) >= advantage


@pytest.mark.parametrize(
    ("convert", "given"),
    [
        (noise_multiplier, (1e300, 1e-300, 10.0)),
        (noise_multiplier, (1e-300, 1e300)),
        (standard_deviation, (1e200, 1e200, 1e-5)),
        (standard_deviation, (1e-200, 1e-200)),
    ],
)
def test_noise_that_is_no_double_is_refused(convert, given) -> None:
    with pytest.raises(hs.ParameterError, match=r"divided_by.*must be 0 or in"):
        convert(*given)


@pytest.mark.parametrize(
    "given", [(1e300, 1e20, 1e20), (0.3, 0.7, 256.0), (0.0, 1e-300, 1e-300), (1e-200, 1e-200, 1.0)]
)
def test_noise_is_rounded_once(given: tuple[float, float, float]) -> None:
    deviation, clip, scale = map(Fraction, given)
    assert noise_multiplier(*given) == float(deviation * scale / clip)


def test_users_with_more_examples_than_are_accounted_for() -> None:
    hs.dp_sgd(1.0, 10**6, 100, epochs=1, examples_per_user=100_000)
    with pytest.raises(
        hs.ParameterError, match=r"examples_per_user = 100001: must be an integer in \[1, 100000\]"
    ):
        hs.dp_sgd(1.0, 10**6, 100, epochs=1, examples_per_user=100_001)


@pytest.mark.parametrize("epsilon", [1.0, 700.0, 709.0, 710.0, 720.0, 760.0, 1e4, 1e308])
@pytest.mark.parametrize("batch", [1200, 3000, 4000])
def test_the_union_bound_beyond_the_largest_exponential(batch: int, epsilon: float) -> None:
    bound = UnionBound(hs.TruncatedPoissonSampled(1.0, 100_000, 0.01, batch), 1000)
    truth = min(mpf(1), mp.exp(min(epsilon, 1e5)) * mpf(bound.eta))
    assert bound.delta(epsilon) >= truth
    if epsilon >= 700.0:
        assert bound.delta(epsilon) <= min(mpf(1), truth * (1 + mpf(1e-12)) + mpf(1e-12))


@pytest.mark.parametrize(
    ("sigma", "epsilon", "delta"),
    [(3065.69, 0.4257, 0.99), (100.0, 0.4257, 0.99), (3065.69, 1e-3, 0.9999), (1e3, 0.1, 0.5)],
)
def test_steps_far_below_a_large_delta(sigma: float, epsilon: float, delta: float) -> None:
    """Epsilon is 0 at the first looks, which says nothing of the distance: the search must not creep."""
    found = hs.accounting.calibrate_steps(lambda k: hs.Gaussian(sigma) * k, epsilon, delta)

    def exact(steps: int) -> mpf:
        with mp.workdps(60):
            mu, e = mp.sqrt(steps) / mpf(sigma), mpf(epsilon)
            return mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu)

    assert found.certificate.tight
    assert exact(int(found)) <= delta < exact(int(found) + 1)
