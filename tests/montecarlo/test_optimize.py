"""Strategies optimised under a scheme, against enumeration of all pairs of participations."""

import math

import hockeystick as hs
import numpy as np
import pytest
from hockeystick.matrix import BandedToeplitz, Scheme, Workload
from hockeystick.montecarlo import optimize_strategy
from scipy.optimize import brentq

from tests.enumeration import Law, balls_in_bins, min_sep

EPSILON, DELTA = 2.0, 1e-4


def product(strategy: BandedToeplitz, law: Law, level: float, workload: Workload) -> float:
    """sigma^2 * error where E_Q (P/Q)^2 = sum p_x p_y e^{<Cx, Cy>/sigma^2} has this logarithm."""
    weights, points = np.array([w for w, _ in law]), np.array([x for _, x in law])
    images = points @ strategy.matrix().T
    inner = images @ images.T

    def height(log_sigma: float) -> float:
        return math.log(weights @ np.exp(inner / math.exp(2.0 * log_sigma)) @ weights) - level

    rows = workload.matrix(strategy.steps) @ np.linalg.inv(strategy.matrix())
    return math.exp(2.0 * brentq(height, math.log(0.1), math.log(100.0))) * float((rows**2).sum())


@pytest.mark.parametrize(
    ("scheme", "law", "workload"),
    [
        (hs.BMinSep(9, 4, 0.2, warm_start=False), min_sep(9, 4, 0.2), Workload()),
        (hs.BMinSep(9, 4, 0.2), min_sep(9, 4, 0.2, warm_start=True), Workload(momentum=0.8)),
        (hs.BallsInBins(9, 5), balls_in_bins(9, 5), Workload()),
    ],
)
def test_it_is_a_minimum_of_what_it_says(scheme: Scheme, law: Law, workload: Workload) -> None:
    bands = 4
    start = BandedToeplitz.optimized(9, bands, workload=workload)
    rate = scheme.cyclic_rate()
    assert rate is not None
    cyclic = hs.CyclicPoisson(9, bands, bands * rate)
    sigma = hs.calibrate_noise_multiplier(lambda s: hs.BandMF(start, cyclic, s).as_process(), EPSILON, DELTA)
    # Every turn adds p^2 (e^{|c|^2/sigma^2} - 1) to a factor of E_Q (P/Q)^2.
    norms = start.column_norms()[::bands]
    q = bands * rate
    level = sum(math.log1p(q * q * math.expm1(norm**2 / float(sigma) ** 2)) for norm in norms)
    found = optimize_strategy(scheme, EPSILON, DELTA, bands, workload)
    assert math.fsum(c * c for c in found.coefficients) == pytest.approx(1.0, rel=1e-10)
    least = product(found, law, level, workload)
    assert least < 0.999 * product(start, law, level, workload)
    assert least < product(BandedToeplitz.square_root(9, bands, workload), law, level, workload)
    rng = np.random.default_rng(0)
    for scale in (1e-1, 1e-2):
        for _ in range(20):
            moved = np.array(found.coefficients) * np.exp(scale * rng.standard_normal(bands))
            assert product(BandedToeplitz(tuple(moved), 9), law, level, workload) >= least * (1.0 - 1e-5)


def test_at_equal_error_it_has_less_delta() -> None:
    """The gain is one of delta itself, not only of the divergence that stands in for it."""
    scheme = hs.BMinSep.of_rate(64, 16, 1 / 32)
    plain, found = BandedToeplitz.optimized(64, 16), optimize_strategy(scheme, 1.0, 0.01)
    bounds = []
    for strategy in (plain, found):
        mechanism = hs.BandMF(strategy, scheme, math.sqrt(6.0 / strategy.mean_squared_error()))
        bounds.append(hs.estimate_delta(mechanism, 1.0, 40_000, seed=1, method="plain", confidence=0.999))
    assert bounds[1].upper < bounds[0].lower


def test_under_cyclic_poisson_there_is_nothing_to_gain() -> None:
    """The noise depends on the columns' norms alone: what minimises sensitivity^2 * error is optimal."""
    scheme = hs.CyclicPoisson(60, 6, 0.1)
    plain, found = BandedToeplitz.optimized(60, 6), optimize_strategy(scheme, EPSILON, DELTA)
    assert found.coefficients == pytest.approx(plain.coefficients, abs=1e-3)


def test_limits_and_refusals() -> None:
    never = hs.BMinSep(20, 4, 0.0)
    assert optimize_strategy(never, 1.0, 1e-5) == BandedToeplitz.optimized(20, 4)
    assert optimize_strategy(hs.Poisson(20, 0.1), 1.0, 1e-5).coefficients == (1.0,)
    for scheme in (
        hs.BMinSep(20, 4, 0.1, examples_per_user=2),
        hs.matrix.TruncatedBMinSep(20, 4, 0.1, 100, 20),
    ):
        with pytest.raises(hs.ParameterError, match="scheme = "):
            optimize_strategy(scheme, 1.0, 1e-5, 4)
    for arguments, name in [
        ((hs.BMinSep(20, 4, 0.1), -1.0, 1e-5), "epsilon"),
        ((hs.BMinSep(20, 4, 0.1), 1.0, 0.0), "delta"),
        ((hs.BMinSep(20, 4, 0.1), 1.0, 1e-5, 5), "bands = 5"),
        ((hs.BMinSep(2**20, 32, 0.1), 1.0, 1e-5), "bands = 32"),
    ]:
        with pytest.raises(hs.ParameterError, match=name):
            optimize_strategy(*arguments)
