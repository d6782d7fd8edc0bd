"""Blocks that are drawn apart stand for what one call estimates, whatever is released besides and whoever is protected."""

from __future__ import annotations

import math
from typing import Any

import hockeystick as hs
import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from hockeystick.montecarlo import estimate_from_tally, sample_blocks

HALF = hs.BandMF(hs.Identity(1), hs.Poisson(1, 0.5), noise_multiplier=1.0)
CUT = hs.TruncatedPoissonSampled(1.0, 10, 0.9, 3)
UNEVEN = hs.matrix.LowerTriangular([[0.001, 0.0], [0.0, 1.0]])
OWNERS = [hs.BMinSep(2, 2, 0.5, examples_per_user=2), hs.matrix.MultiAttributionBMinSep(2, 2, 0.5, 2)]


def from_blocks(mechanism: hs.BandMF, direction: str, blocks: int = 20, **how: Any) -> Any:
    tally = sample_blocks(mechanism, 1.0, direction, 1, 0, blocks, **how)
    return estimate_from_tally(mechanism, 1.0, direction, tally, **how)


def replaced_beside(other: Any, epsilon: float) -> float:
    """delta of HALF and a Gaussian of noise multiplier 1 under replace_one: one integral over the first output."""

    def density(x: float, shift: float) -> float:
        return float(0.5 * scipy.stats.norm.pdf(x) + 0.5 * scipy.stats.norm.pdf(x, shift))

    def gaussian(left: float) -> float:  # of two normal variables that are 2 apart
        return float(
            scipy.stats.norm.cdf(1.0 - left / 2.0) - math.exp(left) * scipy.stats.norm.cdf(-1.0 - left / 2.0)
        )

    def value(x: float) -> float:
        return density(x, 1.0) * gaussian(epsilon - math.log(density(x, 1.0) / density(x, -1.0)))

    return float(scipy.integrate.quad(value, -12.0, 12.0, limit=200)[0])


@pytest.mark.parametrize("other", [hs.Gaussian(1.0), hs.MixtureOfGaussians(1.0, [1.0], [1.0])])
def test_what_is_released_besides_is_replaced_too(other: Any) -> None:
    truth = replaced_beside(other, 1.0)
    assert 0.57 < truth < 0.58
    found = from_blocks(HALF, "replace_one", 60, composed_with=other)
    assert found.lower <= truth <= found.upper < 1.02 * truth


@pytest.mark.sweep
@pytest.mark.parametrize(
    "other",
    [
        CUT,
        hs.RandomizedResponse(1.0, 2, uniform_null=True),
        hs.Mixture([NOISE := hs.Gaussian(1.0), hs.Gaussian(2.0)], [0.5, 0.5]),
    ],
)
@pytest.mark.parametrize("adjacency", ["zero_out", "add_or_remove", "remove", "add", "replace_one"])
def test_an_adjacency_is_that_of_one_call(other: Any, adjacency: str) -> None:
    asked = {"adjacency": adjacency, "composed_with": other}
    whole = hs.estimate_delta(HALF, 1.0, 20 * 1024, 1, method="plain", **asked)
    for one in whole.directions:
        found = from_blocks(
            HALF, one.direction, one.samples // HALF._blocks(one.direction).block_size, **asked
        )
        assert found.estimate == one.estimate


@pytest.mark.parametrize("q", [0.2, 1.0])
def test_users_besides_who_are_zeroed_out_are_removed(q: float) -> None:
    """Both examples are at one distance from none: the direction is the one of the rest, and so are bounds from below."""
    grid = np.arange(-8.0, 10.0, 0.05)
    none = scipy.stats.norm.pdf(grid)

    def mixed(shares: Any) -> Any:
        return sum(w * scipy.stats.norm.pdf(grid, s) for s, w in enumerate(shares))

    with_user = np.outer(mixed((0.5, 0.5)), mixed(scipy.stats.binom.pmf(range(3), 2, q)))
    without = np.outer(none, none)
    users = hs.mechanisms.UserLevel(hs.PoissonSampled(hs.Gaussian(1.0), q), 2)
    for direction, p, other in (("remove", with_user, without), ("add", without, with_user)):
        truth = float(np.maximum(0.0, p - math.e * other).sum() * 0.05**2)
        found = from_blocks(HALF, direction, 60, adjacency="zero_out", composed_with=users)
        assert 0.0 < found.lower <= truth * (1.0 + 1e-2)
        assert truth * (1.0 - 1e-2) <= found.upper < 2.5 * truth


def test_every_worst_case_is_asked_for() -> None:
    mechanism = hs.BandMF(UNEVEN, hs.matrix.MultiAttributionBMinSep(2, 2, 0.9, 2, "exact"), 0.3)
    for call in (
        lambda **how: sample_blocks(mechanism, 1.0, "remove", 1, 0, 1, **how),
        lambda **how: from_blocks(mechanism, "remove", **how),
    ):
        with pytest.raises(hs.ParameterError, match=r"case = None: must be in \[0, 1\]"):
            call()
        with pytest.raises(hs.ParameterError, match=r"case = 2: must be an integer in \[0, 1\]"):
            call(case=2)
    found = [from_blocks(mechanism, "remove", 200, case=case) for case in (0, 1)]
    assert [one.case for one in found] == [0, 1]
    whole = hs.estimate_delta(mechanism, 1.0, 20_000, 1, method="plain")
    # A user of one example takes part in the second step with most of its noise to itself: the worse case by far.
    assert found[1].upper < 0.2 * found[0].lower
    assert found[0].lower <= whole.upper
    assert whole.lower <= found[0].upper


@pytest.mark.parametrize("scheme", OWNERS)
def test_users_are_not_replaced(scheme: Any) -> None:
    mechanism = hs.BandMF(hs.Identity(2), scheme, 1.0)
    with pytest.raises(hs.ParameterError, match="replace_one"):
        sample_blocks(mechanism, 1.0, "replace_one", 1, 0, 1)
    with pytest.raises(hs.ParameterError, match="direction = 'replace_one'"):
        mechanism.sample_losses(10, 1, "replace_one")


def test_a_direction_is_one_of_the_adjacency() -> None:
    with pytest.raises(hs.ParameterError, match="direction = 'add': must be one of 'remove'"):
        sample_blocks(HALF, 1.0, "add", 1, 0, 1, adjacency="remove")


def test_an_estimate_says_whose_data_it_is_about() -> None:
    mechanism = hs.BandMF(hs.Identity(1), hs.BMinSep(1, 1, 0.5, True, examples_per_user=2), 1.0)
    alone = hs.estimate_delta(mechanism, 1.0, 1000, 1)
    beside = hs.estimate_delta(mechanism, 1.0, 1000, 1, composed_with=hs.Gaussian(1.0))
    counted = hs.estimate_delta(mechanism, 1.0, 1000, 1, composed_with=hs.UserLevel(hs.Gaussian(1.0), 2))
    assert "at most 2, are replaced" in alone.statement()
    assert "at most 1, are replaced" in beside.statement()
    assert "released together with" in beside.statement()
    assert "at most 2, are replaced" in counted.statement()
    assert counted.upper >= 0.58413 > 1.9 * beside.upper  # both examples move the Gaussian: by quadrature


@pytest.mark.sweep
@pytest.mark.parametrize("delta", [1e-5, 1e-3, 0.05])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_mass_at_infinity_counts_once(delta: float, epsilon: float) -> None:
    """The curve is followed to where little is left of it but that mass."""
    rare = hs.BandMF(hs.Identity(1), hs.BMinSep(1, 1, 0.01), 50.0)
    found = hs.estimate_delta(rare, epsilon, 100_000, 1, composed_with=hs.ApproximateDP(0.5, delta))
    assert found.lower <= delta <= found.estimate <= 1.004 * delta


@pytest.mark.sweep
@pytest.mark.parametrize("scale", [0.05, 0.032, 0.02, 0.005, 1e-3])
def test_little_noise_besides_leaves_both_bounds(scale: float) -> None:
    """Beyond epsilon = 700 nothing is asked; a sampled Gaussian of hardly any noise adds its sampling probability."""
    mechanism = hs.BandMF(hs.Identity(1), hs.Poisson(1, 0.5), 1.0)
    other = hs.PoissonSampled(hs.Gaussian(scale), 1e-3)
    found = hs.estimate_delta(mechanism, 1.0, 100_000, 1, "plain", composed_with=other)
    alone = hs.account(hs.PoissonSampled(hs.Gaussian(1.0), 0.5)).delta(1.0)
    assert found.lower <= alone + 1e-3 * (1.0 - alone) <= found.upper
    assert found.lower > 0.9 * alone
    assert hs.estimate_delta(mechanism, 1.0, 1000, 1, composed_with=hs.PureDP(1.0 / scale**2)).upper <= 1.0


def test_chords_have_all_digits_next_to_their_ends() -> None:
    """A pair of two losses has this very chord for its curve, which falls to nothing at the larger loss."""
    from hockeystick.accounting.envelope import Envelope

    loss = 1.0
    pure = hs.account(hs.PureDP(loss))
    nodes = Envelope(pure.delta_curve, np.array([-loss, 0.0, loss]))
    for step in (1e-15, 1e-13, 1e-10, 1e-5):
        at = np.array([loss - step])
        truth = -math.expm1(float(at[0]) - loss) * math.exp(loss) / (1.0 + math.exp(loss))
        assert nodes.between(at)[1][0] >= truth * (1.0 - 4e-16)
    far = Envelope(
        lambda e: (np.where(e < 0, 1.0, 0.1), np.where(e < 0, 1.0, 0.1)), np.array([-2000.0, 2000.0])
    )
    assert np.isfinite(far.between(np.linspace(-1999.0, 1999.0, 11))[1]).all()
