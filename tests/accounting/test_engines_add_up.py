"""What engines leave out is counted: rare steps, coarse lattices, curves of layers."""

from __future__ import annotations

import math

import hockeystick as hs
import pytest
from scipy.stats import binom, norm


def event(sigma: float, q: float, steps: int, epsilon: float, at: float) -> float:
    """P(A) - e^epsilon Q(A) <= delta, A: some output is above `at` standard deviations of the noise."""
    hit = q * norm.sf(at - 1 / sigma) + (1 - q) * norm.sf(at)
    return -math.expm1(steps * math.log1p(-hit)) + math.exp(epsilon) * math.expm1(
        steps * math.log1p(-norm.sf(at))
    )


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("sigma", "q", "steps", "epsilon", "at", "engine"),
    [
        (0.02, 1e-12, 2, 1e-3, 25.0, "auto"),
        (0.02, 1e-12, 2, 30.0, 25.0, "auto"),
        (0.02, 1e-12, 5, 1e-3, 25.0, "auto"),
        (0.08522450428074273, 3.9206665565498974e-10, 2, 3.1631603110927893, 7.5, "fft"),
        (0.02, 1e-12, 2, 1e-3, 25.0, "fft"),
    ],
)
def test_rare_steps_add_up(
    sigma: float, q: float, steps: int, epsilon: float, at: float, engine: str
) -> None:
    """Whichever engine is lost, each step counts: what shows a record is worth its probability in every one."""
    process = hs.PoissonSampled(hs.Gaussian(sigma), q) * steps
    for accuracy in (1e-9, 1e-2):
        upper = hs.account(process, "remove", accuracy=accuracy, engine=engine).delta_bounds(epsilon).upper
        assert upper >= event(sigma, q, steps, epsilon, at) * (1 - 1e-9)


def test_total_variations_of_all_steps_bound_the_lattice() -> None:
    sigma, q = 1.8586889769256152, 0.15481512278963022
    process = hs.PoissonSampled(hs.Gaussian(sigma), q) * 2
    upper = hs.account(process, "add", accuracy=0.1, engine="fft").delta_bounds(0.0).upper
    best = max(
        sum(binom.pmf(j, 2, q) * norm.sf(t - j / sigma / 2**0.5) for j in range(3)) - norm.sf(t)
        for t in [0.05 * i for i in range(-20, 60)]
    )
    assert upper >= best


@pytest.mark.parametrize("delta", [1e-2, 1e-3, 1e-5])
@pytest.mark.parametrize(("sigma", "q", "steps"), [(0.5, 0.01, 1000), (0.5, 0.05, 300), (0.7, 0.02, 1000)])
def test_coarse_lattices_agree_with_the_inversion(sigma: float, q: float, steps: int, delta: float) -> None:
    """From below, a lattice has no more than all of P: that cap decides where points are far apart."""
    process = hs.PoissonSampled(hs.Gaussian(sigma), q) * steps
    truth = hs.account(process, "remove", accuracy=1e-9).epsilon_bounds(delta)
    for accuracy in (0.1, 1e-2, 1e-3):
        found = hs.account(process, "remove", accuracy=accuracy, engine="fft").epsilon_bounds(delta)
        assert found.lower <= truth.upper
        assert found.upper >= truth.lower


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("sigma", "q", "steps", "accuracy"),
    [(1.0, 1e-6, 1000, 1e-2), (1.0, 1e-4, 100, 1e-2), (0.8, 1e-6, 1000, 1e-2), (0.8, 1e-6, 1000, 1e-4)],
)
def test_coarse_curves_count_what_layers_leave_out(
    sigma: float, q: float, steps: int, accuracy: float
) -> None:
    process = hs.PoissonSampled(hs.Gaussian(sigma), q) * steps
    at = [0.1, 0.5, 1.0, 2.0, 4.0]
    lower, upper = hs.account(process, "remove", accuracy=accuracy).delta_curve(at)
    exact = hs.account(process, "remove", accuracy=1e-9)
    for epsilon, least, most in zip(at, lower, upper, strict=True):
        truth = exact.delta_bounds(epsilon)
        assert least <= truth.upper
        assert most >= truth.lower
