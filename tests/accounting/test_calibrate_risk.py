"""Calibration to what attacks achieve: closed forms of the Gaussian mechanism, and both sides of every answer."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import hockeystick as hs
import mpmath
import numpy as np
import pytest
from hockeystick.accounting.goals import aim
from mpmath import mp


def quantile(p: float) -> mp.mpf:
    with mp.workdps(30):
        return mp.sqrt(2) * mp.erfinv(2 * mp.mpf(p) - 1)


TARGETS: list[tuple[dict[str, float], mp.mpf]] = [
    ({"advantage": 0.1}, 2 * quantile(0.55)),
    ({"advantage": 1e-7}, mp.mpf(1e-7) * mp.sqrt(2 * mp.pi)),
    ({"tpr": 0.05, "fpr": 0.01}, quantile(0.05) - quantile(0.01)),
    ({"tpr": 0.9, "fpr": 1e-6}, quantile(0.9) - quantile(1e-6)),
    ({"reconstruction": 1e-3, "baseline": 1e-5}, quantile(1e-3) - quantile(1e-5)),
    ({"precision": 0.6, "fpr": 0.01, "prior": 0.5}, quantile(0.015) - quantile(0.01)),
    ({"recall": 0.01, "odds": 9.0}, quantile(0.01) - quantile(0.01 / 9)),
    ({"bayes_risk": 0.4, "prior": 0.5}, 2 * quantile(0.6)),
]


@pytest.mark.parametrize(("target", "mu"), TARGETS)
def test_the_noise_of_a_gaussian(target: Any, mu: mp.mpf) -> None:
    sigma = hs.calibrate_noise_multiplier(hs.Gaussian, **target)
    assert 1 / mu * (1 - mp.mpf(10) ** -10) <= sigma <= 1 / mu * (1 + mp.mpf("2e-6"))
    proof = sigma.certificate
    assert proof.tight
    assert proof.risk == target
    assert proof.exceeding is not None
    assert proof.exceeding >= sigma * (1 - 1.001e-6)
    assert proof.epsilon_bounds.upper <= proof.epsilon
    assert hs.account(proof.description, accuracy=1e-7).delta(proof.epsilon) <= proof.delta * (1 + 1e-7)
    assert set(target) <= set(proof.to_dict()["risk"])


@pytest.mark.parametrize("adjacency", ["add_or_remove", "remove", "replace_one"])
def test_dp_sgd_both_sides(adjacency: str) -> None:
    def make(sigma: float) -> hs.mechanisms.Process:
        return hs.PoissonSampled(hs.Gaussian(sigma), 0.01) * 1000

    sigma = hs.calibrate_noise_multiplier(make, tpr=0.02, fpr=0.01, adjacency=adjacency, tolerance=1e-5)
    assert sigma.certificate.tight
    assert hs.account(make(sigma), adjacency).risk.tpr(0.01).upper <= 0.02 * (1 + 1e-7)
    assert hs.account(make(sigma * (1 - 1.1e-5)), adjacency).risk.tpr(0.01).lower > 0.02
    bounds = sigma.certificate.risk_bounds
    assert bounds is not None
    assert bounds.lower <= bounds.upper <= 0.02


def test_steps_and_sampling() -> None:
    steps = hs.calibrate_steps(lambda n: hs.Gaussian(20.0) * n, tpr=0.1, fpr=0.01)
    allowed = float((quantile(0.1) - quantile(0.01)) ** 2) * 400
    assert (steps, steps.certificate.tight) == (math.floor(allowed), True)
    q = hs.calibrate_sampling_probability(
        lambda q: hs.PoissonSampled(hs.Gaussian(1.0), q), tpr=0.02, fpr=0.01, adjacency="remove"
    )
    # One step: TPR = (1 - q) FPR + q Phi(Phi^-1(FPR) + 1).
    assert q == pytest.approx(0.01 / float(mp.ncdf(quantile(0.01) + 1) - 0.01), rel=2e-6)


def test_what_is_refused() -> None:
    def calibrate(*budget: float, **target: Any) -> float:
        return hs.calibrate_noise_multiplier(hs.Gaussian, *budget, **target)

    with pytest.raises(hs.ParameterTypeError, match="tpr with fpr"):
        calibrate(tpr=0.1)
    with pytest.raises(hs.ParameterTypeError, match="must be one of"):
        calibrate(tpr=0.1, fpr=0.01, advantage=0.1)
    with pytest.raises(hs.ParameterTypeError, match="leave them out"):
        calibrate(1.0, 1e-5, advantage=0.1)
    for one in ({"epsilon": 1.0}, {"delta": 1e-5}):
        with pytest.raises(hs.ParameterTypeError, match="leave them out"):
            calibrate(**one, advantage=0.1)
    # What a risk is not taken at would have no effect.
    for risk in ({"advantage": 0.1, "fpr": 0.01}, {"tpr": 0.1, "fpr": 0.01, "prior": 0.5}):
        with pytest.raises(hs.ParameterTypeError, match="must be one of"):
            calibrate(**risk)
    with pytest.raises(hs.ParameterError, match=r"prior = 0\.7: must be a number in \(0, 0\.5\]"):
        calibrate(bayes_risk=0.2, prior=0.7)
    with pytest.raises(hs.ParameterError, match=r"bayes_risk = 0\.3: must be below prior = 0\.3"):
        calibrate(bayes_risk=0.3, prior=0.3)
    with pytest.raises(hs.ParameterTypeError, match="delta = None"):
        calibrate(1.0)
    with pytest.raises(hs.ParameterError, match=r"tpr = 0\.01: must be above 0\.01"):
        calibrate(tpr=0.01, fpr=0.01)
    with pytest.raises(hs.ParameterError, match="precision"):
        calibrate(precision=0.9999, fpr=0.5, prior=0.5)
    # The true positive rate that it takes is above 1 by less than a double shows.
    with pytest.raises(hs.ParameterError, match=r"precision = 0\.75: is reached by no attack"):
        calibrate(precision=0.75, fpr=math.nextafter(1.0 / 3.0, 1.0), prior=0.5)
    with pytest.raises(hs.UnreachableError, match="an attack reaches"):
        hs.calibrate_noise_multiplier(lambda s: hs.Gaussian(s) + hs.Gaussian(1.0), tpr=0.02, fpr=0.01)
    for risk in ({"advantage": 0.1}, {"bayes_risk": 0.4, "prior": 0.5}):
        asked = ", ".join(f"{name} = {value!r}" for name, value in risk.items())
        with pytest.raises(hs.UnreachableError, match=rf"^{asked} \(at epsilon = 0\.0, delta = "):
            hs.calibrate_noise_multiplier(lambda s: hs.Gaussian(s) + hs.Gaussian(1.0), **risk)


def test_precision_at_the_least_rates_and_limits_next_to_the_last_value() -> None:
    """The true positive rate that belongs to a precision underflowed; and nothing was shown of a limit that 10 just keeps."""

    def make(sigma: float) -> hs.Gaussian:
        return hs.Gaussian(sigma)

    sigma = hs.calibrate_noise_multiplier(make, precision=0.3, fpr=5e-324, prior=0.1)
    assert hs.account(hs.Gaussian(sigma)).risk.tpr(5e-324).upper <= 3 * 5e-324
    with pytest.raises(hs.ParameterError, match=r"precision = 0\.1001: must be .*prior = 0\.1.*fpr = 5e-324"):
        hs.calibrate_noise_multiplier(make, precision=0.1001, fpr=5e-324, prior=0.1)
    with pytest.raises(hs.UnreachableError, match="could be shown to keep below it; an attack reaches"):
        hs.calibrate_noise_multiplier(make, tpr=0.012995444546147705, fpr=0.01, limits=(1.0, 10.0))


@pytest.mark.parametrize(
    ("target", "ask"),
    [
        ({"tpr": 0.05, "fpr": 0.01}, lambda risk: risk.tpr(0.01)),
        ({"recall": 0.05, "odds": 9.0}, lambda risk: risk.recall(9.0)),
    ],
)
def test_a_risk_is_kept_by_its_upper_bound(target: dict[str, float], ask: Callable[..., Any]) -> None:
    """Of declared divergences nothing is known from below: a lower bound that keeps the limit proves nothing."""
    sigma = hs.calibrate_noise_multiplier(lambda s: hs.ZCDP(0.5 / s**2), tolerance=1e-3, **target)
    (limit, *_) = target.values()
    assert ask(hs.account(hs.ZCDP(0.5 / float(sigma) ** 2)).risk).upper <= limit
    assert sigma.certificate.risk_bounds.upper <= limit
    assert sigma.certificate.exceeding is None
    assert not sigma.certificate.tight


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.1, 1e-2), (0.0, 0.05)])
def test_delta_is_kept_by_its_upper_bound(epsilon: float, delta: float) -> None:
    """And nothing is shown to exceed by it."""
    sigma = hs.calibrate_noise_multiplier(lambda s: hs.ZCDP(0.5 / s**2), epsilon, delta, tolerance=1e-3)
    assert hs.account(hs.ZCDP(0.5 / float(sigma) ** 2)).delta(epsilon) <= delta
    assert sigma.certificate.exceeding is None
    assert not sigma.certificate.tight


def test_epsilon_is_kept_by_its_upper_bound() -> None:
    with pytest.raises(hs.UnreachableError):
        hs.calibrate_noise_multiplier(lambda s: hs.ZCDP(0.5 / s**2), 1.0, 0.0)


def test_the_point_of_a_bayes_risk_is_no_more_than_was_asked_for() -> None:
    """epsilon <= ln((1 - prior) / prior) and prior (1 - delta) >= the risk, exactly."""
    rng = np.random.default_rng(0)
    with mpmath.workdps(40):
        for prior, share in zip(
            rng.uniform(0.01, 0.5, 300).tolist(), rng.uniform(0.1, 0.99, 300).tolist(), strict=True
        ):
            found = aim(None, None, {"bayes_risk": share * prior, "prior": prior})
            assert Fraction(prior) * (1 - Fraction(found.delta)) >= Fraction(share * prior)
            assert found.epsilon <= mpmath.log((1 - mpmath.mpf(prior)) / mpmath.mpf(prior))


def test_what_no_noise_lets_an_attack_exceed_is_not_looked_for() -> None:
    """One record of a thousand is in the batch: nobody is found three times of ten."""
    found = hs.calibrate_noise_multiplier(
        lambda sigma: hs.PoissonSampled(hs.Gaussian(sigma), 1e-3), recall=0.3, odds=99.0
    )
    assert float(found) == 0.01
    assert found.certificate.at_limit
    assert found.certificate.evaluations <= 3
    assert found.certificate.risk_bounds.upper <= 0.3
