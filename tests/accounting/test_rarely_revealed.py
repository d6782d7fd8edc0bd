"""What is seen with a probability of about 1e-50 is accounted beside the rest, and counts."""

from __future__ import annotations

import math

import hockeystick as hs
import mpmath
import pytest


def revealed(delta: float, rate: float) -> hs.Step:
    """Infinite losses with probability rate * delta, and no others."""
    return hs.PoissonSampled(hs.ApproximateDP(0.0, delta), rate)


@pytest.mark.parametrize(
    ("process", "delta"),
    [
        # Infinite losses have 2e-49, 1e-50 and 1.62e-49 * .1.
        (hs.ApproximateDP(0.5, 1e-49) + hs.PoissonSampled(hs.Gaussian(0.0), 1e-49), 1.5e-49),
        (sum(revealed(0.01 + 1e-6 * k, 1e-50) for k in range(100)), 1.6e-51),
        (hs.ApproximateDP(0.5, 1.52e-50) + revealed(0.01, 1e-49), 1.6e-50),
    ],
    ids=["more than the mass", "many kinds", "less than the mass"],
)
def test_what_is_revealed_hardly_ever_adds_up(process: hs.mechanisms.Process, delta: float) -> None:
    """Where delta is less than the probability of infinite losses, no epsilon is enough."""
    profile = hs.account(process)
    assert profile.epsilon(delta) == math.inf
    assert profile.delta(math.inf) > delta
    assert profile.rough_curve([math.inf])[1][0] > delta


@pytest.mark.parametrize("sigmas", [(0.05, 0.05), (0.05, 0.0501)])
@pytest.mark.parametrize("epsilon", [800.0, 900.0, 1000.0])
def test_a_record_that_is_seen_twice_has_both_losses(sigmas: tuple[float, float], epsilon: float) -> None:
    """No less than P(A) - e^epsilon Q(A) of an event A: that x_1 / sigma_1^2 + x_2 / sigma_2^2 is large, the record being seen in both steps."""
    q = 1e-49
    upper = hs.account(sum(hs.PoissonSampled(hs.Gaussian(s), q) for s in sigmas), "remove").delta(epsilon)
    with mpmath.workdps(50):
        mean = mpmath.fsum(1 / mpmath.mpf(s) ** 2 for s in sigmas)  # and variance
        threshold = epsilon + mean / 2 - 2 * mpmath.log(q)
        present, absent = (mpmath.erfc((threshold - m) / mpmath.sqrt(2 * mean)) / 2 for m in (mean, 0))
        least = mpmath.mpf(q) ** 2 * present - mpmath.exp(epsilon) * absent
        assert 1e-300 < least <= upper
