"""Where squares of rates and sums of moments underflow: whoever has revealed something is never said to have revealed nothing."""

from __future__ import annotations

import math

import hockeystick as hs
import numpy as np
import pytest
from hockeystick import _core
from hockeystick.individual.cells import sampled_pairs
from mpmath import mp, mpf


def sampled_delta(epsilon: float, q: float, mu: float, direction: str) -> mpf:
    """Of (1 - q) N(0, 1) + q N(mu, 1) against N(0, 1), or the reverse: what lies on either side of one threshold."""
    with mp.workdps(400):
        e, q, mu = mpf(epsilon), mpf(q), mpf(mu)
        if direction == "remove":
            at = mp.log1p(mp.expm1(e) / q) / mu + mu / 2
            return q * mp.ncdf(mu - at) - (mp.expm1(e) + q) * mp.ncdf(-at)
        ratio = (mp.expm1(-e) + q) / q
        if ratio <= 0:
            return mpf(0)
        at = mp.log(ratio) / mu + mu / 2
        return (q * mp.exp(e) - mp.expm1(e)) * mp.ncdf(at) - mp.exp(e) * q * mp.ncdf(at - mu)


@pytest.mark.sweep
@pytest.mark.parametrize("direction", ["add", "remove"])
@pytest.mark.parametrize("q", [1e-162, 1e-170, 1e-200, 1e-300, 1e-320])
def test_rarely_drawn_examples(q: float, direction: str) -> None:
    accountant = hs.individual.IndividualAccountant(
        2, noise_multiplier=1.0, sampling_probability=q, clipping_norm=1.0, adjacency=direction
    )
    accountant.step([1.0, 0.0])
    for epsilon in (0.0, 0.3 * q, 2.0 * q, 0.1):
        found = accountant.nonadaptive_delta(epsilon)
        assert found[0] >= sampled_delta(epsilon, q, 1.0, direction)
        assert found[1] == 0.0
    for delta in (1e-3 * q, 0.2 * q, 1e-320):
        for found in (
            accountant.nonadaptive_epsilon(delta),
            accountant.nonadaptive_epsilon_bounds(delta).upper,
        ):
            assert sampled_delta(found[0], q, 1.0, direction) <= delta
            assert found[1] == 0.0
        assert accountant.epsilon(delta)[0] >= accountant.nonadaptive_epsilon(delta)[0]
    assert accountant.epsilon(0.0).tolist() == [math.inf, 0.0]
    assert accountant.epsilon(1e-5)[0] > 0.0


@pytest.mark.parametrize("q", [1.0, 0.5, 1e-200])
@pytest.mark.parametrize("mu", [1.0, 1e-100, 1e-170, 1e-300])
def test_variances_that_underflow(mu: float, q: float) -> None:
    profiles = _core.IndividualProfiles([*sampled_pairs(np.array([0.0, mu]), q, "remove")])
    counts = np.array([[5, 0], [0, 5]], np.uint16)
    assert profiles.log_moments(2.0)[0] == 0.0 < profiles.log_moments(2.0)[1]
    _, upper, _ = profiles.delta(counts, np.zeros(2))
    assert upper[0] == 0.0
    assert upper[1] >= sampled_delta(0.0, q, mu, "remove")


def test_steps_whose_divergence_underflows_are_charged() -> None:
    filt = hs.individual.IndividualRDPFilter(2, order=8.0, rho=1.0)
    assert filt.step([1.0, 0.0], noise_multiplier=1.0, clipping_norm=1.0, sampling_probability=1e-165).all()
    spent = filt.spent
    assert spent[0] > 0.0 == spent[1]
    assert filt.epsilon(1e-300)[0] > 0.0 == filt.epsilon(1e-300)[1]


def test_the_approximate_filter_counts_rare_draws() -> None:
    budget = 1e-163
    filt = hs.individual.ApproximateIndividualFilter(
        1, epsilon=budget, delta=1e-165, noise_multiplier=1.0, sampling_probability=1e-162, clipping_norm=1.0
    )
    if filt.step([1.0])[0]:
        assert sampled_delta(budget, 1e-162, 1.0, "remove") <= 1e-165


@pytest.mark.parametrize("delta", [1e-200, 1e-5, 0.5])
@pytest.mark.parametrize("norm", [1e-119, 1e-100, 1e-20])
@pytest.mark.parametrize("scale", [1e100, 1e60, 1.0])
def test_sums_that_underflow_are_something(scale: float, norm: float, delta: float) -> None:
    filt = hs.IndividualGDPFilter(2, mu=scale)
    odometer = hs.individual.IndividualGDPOdometer(2, increment=scale)
    filt.step([norm, 0.0])
    odometer.step([norm, 0.0])
    for ledger in (filt, odometer):
        found = ledger.epsilon(delta)
        assert found[0] >= filt.nonadaptive_epsilon(delta)[0]
        with mp.workdps(60):
            # Beyond a million deviations, which mpmath does not reach, delta is smaller still.
            mu = mpf(norm)
            e = min(mpf(float(found[0])), 10**6 * mu)
            assert mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu) <= delta
        assert found[1] == 0.0
    assert filt.epsilon(1e-200)[0] > 0.0


@pytest.mark.parametrize("q", [0.1, 0.9, 1e-9, 1e-200, 1e-310, 1e-318, 1e-322, 5e-324])
def test_epsilon_without_delta_is_the_sum_of_the_largest_losses(q: float) -> None:
    """Under "add" no loss is above -ln(1 - q): the bounds said that there is none."""
    accountant = hs.individual.IndividualAccountant(
        2, noise_multiplier=1.0, sampling_probability=q, clipping_norm=1.0, adjacency="add"
    )
    for _ in range(3):
        accountant.step([1.0, 0.0])
    bounds, truth = accountant.nonadaptive_epsilon_bounds(0.0), -3 * mp.log1p(-mpf(q))
    # Of the smallest doubles the largest loss is known to a few units, which once were in the lower bound, too.
    assert bounds.lower[0] <= truth <= bounds.upper[0] <= float(truth) * (1.0 + 1e-9) + 6e-323
    assert bounds.upper[1] == 0.0
    step = hs.PoissonSampled(hs.Gaussian(1.0), q)
    for process in (step.as_process(), step * 3):
        lower, upper = hs.account(process, "add").epsilon_bounds(0.0)
        assert lower <= -process.steps * mp.log1p(-mpf(q)) <= upper


@pytest.mark.sweep
@pytest.mark.parametrize("mode", ["add", "remove"])
@pytest.mark.parametrize("sigma", [0.002, 0.005, 0.01, 0.015])
def test_moments_of_next_to_no_noise(sigma: float, mode: str) -> None:
    """Nodes between centres that far apart were too many: there was no bound at all. The oracle is the trapezoidal rule."""
    for q, s in ((1e-6, 1e-3), (0.3, 1e-8), (1e-3, 0.1), (0.7, 1.5)):
        pair = _core.sampled_pair(_core.gaussian_pair(1.0 / sigma), q, mode)
        (bound,) = _core.IndividualProfiles([pair]).log_moments(s)
        power = 1 + mpf(s) if mode == "remove" else -mpf(s)
        with mp.workdps(40):
            mu, h = 1 / mpf(sigma), mpf("0.05")

            def term(t: mpf, mu: mpf = mu, power: mpf = power, q: float = q) -> mpf:
                return mp.npdf(t) * (1 - mpf(q) + q * mp.exp(mu * t - mu**2 / 2)) ** power

            about = [0, mu * power] if mode == "remove" else [0]
            points = {h * mp.floor((c + h * i) / h) for c in about for i in range(-240, 241)}
            truth = mp.log(h * mp.fsum(term(t) for t in points))
        assert truth <= bound <= 1.2 * truth + 1


def test_next_to_no_noise_has_an_upper_bound() -> None:
    for sigma in (0.01, 0.012, 0.015):
        accountant = hs.IndividualAccountant(
            1, noise_multiplier=sigma, sampling_probability=0.1, clipping_norm=1.0
        )
        accountant.step([1.0], steps=100)
        ((lower,), (upper,)) = accountant.nonadaptive_epsilon_bounds(1e-5)
        truth = hs.account(hs.PoissonSampled(hs.Gaussian(sigma), 0.1) * 100).epsilon_bounds(1e-5)
        assert lower <= truth.upper
        assert truth.lower <= upper <= 1.1 * truth.upper
