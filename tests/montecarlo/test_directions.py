"""What is known of a direction before anything is drawn, and what bounded values prove, against high precision and a closed form."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import hockeystick as hs
import numpy as np
import pytest
from hockeystick.montecarlo.beside import curve_beside
from hockeystick.montecarlo.bounded import BoundedValues, Prospects
from hockeystick.montecarlo.confidence import mean_interval
from hockeystick.montecarlo.direction import Direction, loss_error
from hockeystick.montecarlo.empirical import Empirical
from hockeystick.montecarlo.evidence import lower_bound, upper_bound
from hockeystick.montecarlo.half_space import half_space
from hockeystick.montecarlo.runs import RunOptions
from mpmath import mp

from bench.baselines.exact import gaussian_delta

STRATEGY = hs.BandedToeplitz((1.0, 0.5), 6)
SCHEMES = [
    hs.BMinSep(6, 2, 0.05),
    hs.BMinSep(6, 2, 0.3, False),
    hs.matrix.RMinSep(6, 1, 0.1),
    hs.matrix.MultiAttributionBMinSep(6, 2, 0.05, 3),
    hs.BallsInBins(6, 20),
]


def largest_value(mechanism: hs.BandMF, epsilon: float) -> mp.mpf:
    """1 - e^{epsilon - error} Pr[no participation], where half of what losses may be off by is left for other roundings."""
    floor, error = mechanism.no_participation_log_probability, loss_error(mechanism)
    return 1 - mp.exp(mp.mpf(epsilon) - mp.mpf(error) / 2 + mp.mpf(floor))


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: type(scheme).__name__)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_nothing_is_above_what_is_known(scheme: hs.matrix.Scheme, share: float) -> None:
    mechanism = hs.BandMF(STRATEGY, scheme, 0.7)
    epsilon = -share * mechanism.no_participation_log_probability
    plan, error = Direction(mechanism, "add", epsilon), loss_error(mechanism)
    with mp.workdps(30):
        largest = largest_value(mechanism, epsilon)
        assert largest <= plan.bound <= largest + 2 * error
        found = plan.half_space
        if found is not None:
            # A margin for what losses are off by is in the half space and in what its values may be.
            free = half_space(mechanism, epsilon, 0.0)
            assert free is not None
            assert found.threshold > free.threshold
            assert mp.exp(found.log_probability) * largest <= plan.known


@pytest.mark.parametrize("scheme", SCHEMES[:2], ids=["warm", "cold"])
@pytest.mark.parametrize("sigma", [0.8, 3.0])
def test_what_is_released_beside_is_known_by_its_upper_bound(scheme: hs.BMinSep, sigma: float) -> None:
    """No loss exceeds -ln Pr[no participation]: delta of a Gaussian alone at what that leaves of epsilon."""
    mechanism, others = hs.BandMF(STRATEGY, scheme, 0.7), (hs.Gaussian(sigma) * 1).as_process()
    floor = mechanism.no_participation_log_probability
    for k in range(1, 12):
        epsilon = 0.173 * k - floor
        plan = Direction(mechanism, "add", epsilon, RunOptions("add_or_remove", others))
        with mp.workdps(30):
            left = mp.mpf(epsilon) - mp.mpf(loss_error(mechanism)) + mp.mpf(floor)
            truth = gaussian_delta(1 / mp.mpf(sigma), left)
            assert truth <= plan.known <= 1.01 * truth + 1e-12
        assert plan.bound == 1.0


@pytest.mark.parametrize(
    ("share", "extra", "slack"), [(1.0, 0.0, 1e-3), (0.0, 1e-3, 1e-3), (0.25, 1e-4, 0.0)]
)
@pytest.mark.parametrize("confidence", [0.5, 0.99])
def test_bounded_values_prove_what_their_rows_do(
    share: float, extra: float, slack: float, confidence: float
) -> None:
    """e^{ln B +- slack} times the bound on each row's mean, its resolution outwards, each failing with half of what is left."""
    rng = np.random.default_rng(6)
    rows = [Empirical.of(rng.uniform(0.0, 0.5, 2000)), Empirical.of(rng.uniform(0.0, 0.4, 2000))]
    mechanism: Any = SimpleNamespace(strategy=hs.Identity(6))
    values = BoundedValues(mechanism, Prospects(), extra, share)
    values.resolution = 1e-4
    values._bounded(-3.0, slack, "")
    tally: Any = SimpleNamespace(law=lambda row: rows[row])
    half = 0.5 * (1.0 - confidence)
    _, (lower, upper) = values.interval(tally, confidence)
    most, least = upper_bound(rows[0], half), lower_bound(rows[1], half)
    with mp.workdps(30):
        above = mp.exp(mp.mpf(-3) + mp.mpf(slack)) * (mp.mpf(most) + mp.mpf(1e-4)) + mp.mpf(extra)
        below = mp.exp(mp.mpf(-3) - mp.mpf(slack)) * (mp.mpf(least) - mp.mpf(1e-4)) * mp.mpf(share)
        assert above <= upper <= above * (1 + mp.mpf(10) ** -11)
        assert below * (1 - mp.mpf(10) ** -11) <= lower <= below
        evidence = values.evidence(tally, confidence)
        assert evidence["delta"] == upper
        shown = mp.exp(mp.mpf(evidence["scale"])) * (
            mp.mpf(evidence["mean"]) + mp.mpf(evidence["resolution"])
        )
        assert shown + mp.mpf(evidence["extra"]) <= upper
        # A mean of row 0 below the threshold keeps within what is tested.
        for tested in (extra, extra + 1e-9, extra + 0.01, extra + 1.0):
            mean = values.threshold(tested)
            if mean > 0.0:
                reached = mp.exp(mp.mpf(-3) + mp.mpf(slack)) * (mp.mpf(mean) + mp.mpf(1e-4)) + mp.mpf(extra)
                assert reached <= tested
                assert mean >= 1.0 - 1e-3 or reached >= tested * (1 - mp.mpf(10) ** -11)


def test_plain_values_prove_what_their_own_row_does() -> None:
    """Row 0 is that of epsilon less the error, and bounds delta from above; row 1 from below, if losses are exact."""
    tally: Any = SimpleNamespace(blocks=3, mean=lambda samples, row: (0.03, 0.02)[row], totals=[5, 4])
    for scheme, exact in ((SCHEMES[0], True), (SCHEMES[3], False)):
        plan = Direction(hs.BandMF(STRATEGY, scheme, 0.7), "remove", 0.5)
        estimate, bounds = plan.interval(tally, 0.9)
        samples = 3 * plan.block_size
        assert estimate == 0.03
        assert bounds.upper == mean_interval(0.03, samples, 0.9).upper
        assert bounds.lower == (mean_interval(0.02, samples, 0.9).lower if exact else 0.0)
        said = plan.evidence(tally, 0.9)
        assert (said["total"], said["delta"], said["largest"]) == ("0x5", bounds.upper, 1.0)


@pytest.mark.parametrize(
    ("scheme", "direction", "exact"),
    [
        (SCHEMES[0], "remove", True),
        (SCHEMES[0], "add", True),
        (SCHEMES[2], "add", False),
        (SCHEMES[3], "remove", False),
        (SCHEMES[3], "add", False),
    ],
)
def test_weighted_values_say_nothing_from_below_where_losses_are_bounds(
    scheme: hs.matrix.Scheme, direction: str, exact: bool
) -> None:
    plan = Direction(hs.BandMF(STRATEGY, scheme, 0.7), direction, 0.1)
    values = plan.tilted_values(plan.tune(3, pilot=[512]))
    assert values.share == float(exact)
    (at, above), error = values._points, loss_error(plan.mechanism)
    assert at <= 0.1 - 0.9 * error
    assert above >= 0.1 + 0.9 * error


def test_a_curve_around_a_point_is_above_on_one_side_and_below_on_the_other() -> None:
    mu, points = 0.8, (0.4, 0.6)
    curve = curve_beside((hs.Gaussian(1 / mu) * 1).as_process(), "remove", "add_or_remove")
    losses = np.linspace(-3.0, 3.0, 61)
    above, below = curve.around(points, losses)
    with mp.workdps(30):
        for loss, upper, lower in zip(losses.tolist(), above.tolist(), below.tolist(), strict=True):
            left, right = (gaussian_delta(mu, mp.mpf(point) - mp.mpf(loss)) for point in points)
            assert left <= upper <= 1.01 * left + 1e-9
            assert 0.99 * right - 1e-9 <= lower <= right


@pytest.mark.parametrize("examples", [1, 2, 5, 40])
def test_losses_of_many_examples_are_off_by_more(examples: int) -> None:
    """An exponent is of up to so many columns together (of two at least, for batches that are cut), and there is one for each step."""
    mechanism = hs.BandMF(STRATEGY, hs.BMinSep(6, 2, 0.05, examples_per_user=examples), 1e-3)
    norms = np.linalg.norm(STRATEGY.matrix(), axis=0)
    assert loss_error(mechanism) >= 1e-12 * (max(2, examples) / 1e-3) ** 2 * float(norms @ norms)
