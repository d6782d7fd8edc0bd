"""mu and regret against closed forms and dense mpmath evaluations; the Gaussian profile is computed here, from its formula."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from pathlib import Path

import hockeystick as hs
import mpmath
import numpy as np
import pytest
from hockeystick._base.gdp import mu_at, mu_of_pure_dp
from mpmath import mp

FLOOR = 1e-10


def gaussian_delta(mu: float, epsilon: mp.mpf) -> mp.mpf:
    if mu == 0:
        return mp.mpf(0)
    return mp.ncdf(mu / mp.mpf(2) - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / mp.mpf(2) - epsilon / mu)


def finite_delta(present: list[float], absent: list[float], epsilon: mp.mpf) -> mp.mpf:
    return sum(
        (max(mp.mpf(0), p - mp.exp(epsilon) * q) for p, q in zip(present, absent, strict=True)), mp.mpf(0)
    )


@pytest.mark.sweep
@pytest.mark.parametrize("sigma", [0.02, 0.5, 1.0, 30.0, 1e5])
@pytest.mark.parametrize("adjacency", ["add_or_remove", "remove", "replace_one"])
def test_a_gaussian_is_its_own_summary(sigma: float, adjacency: str) -> None:
    truth = (2 if adjacency == "replace_one" else 1) / sigma
    found = hs.account(hs.Gaussian(sigma), adjacency).gdp(FLOOR)
    # d delta / d mu is at most phi(0), so that the floor is worth 2.51 times itself.
    assert truth - 2.51 * FLOOR <= found.mu <= truth * (1 + 1e-8)
    assert found.mu_bounds.lower <= found.mu == found.mu_bounds.upper
    assert found.mu <= found.mu_bounds.lower * (1 + 1e-6) + 3 * FLOOR
    assert 0.0 <= found.regret.lower <= 1e-11
    assert found.regret.upper <= 1e-5
    assert found.delta == FLOOR


@pytest.mark.sweep
@pytest.mark.parametrize(("epsilon", "steps"), [(0.01, 1), (1.0, 1), (1.0, 4), (4.0, 2)])
@pytest.mark.parametrize("floor", [0.0, 1e-4])
def test_randomised_response(epsilon: float, steps: int, floor: float) -> None:
    """Piecewise linear delta against a convex one: the worst epsilon are its kinks, and 0 by symmetry."""
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    present = [
        keep ** sum(bits) * (1 - keep) ** (steps - sum(bits)) for bits in product((0, 1), repeat=steps)
    ]
    found = hs.account(hs.RandomizedResponse(epsilon, 2) * steps).gdp(floor)
    grid = [mp.mpf(epsilon * steps) * i / 400 for i in range(401)]
    deltas = [finite_delta(present, present[::-1], at) for at in grid]
    for at, delta in zip(grid, deltas, strict=True):
        assert delta <= gaussian_delta(found.mu, at) + floor + 1e-15
    less = found.mu * (1 - 1e-5) - 1e-12
    assert any(
        delta > gaussian_delta(less, at) + floor - 1e-12 for at, delta in zip(grid, deltas, strict=True)
    )
    distance = max(
        (gaussian_delta(found.mu, at) - delta) / (1 + mp.exp(at))
        for at, delta in zip(grid, deltas, strict=True)
    )
    assert distance <= found.regret.upper
    assert found.regret.lower <= distance + 2e-4 * found.mu  # between the points of this grid
    assert found.regret.upper <= found.regret.lower + 1e-5
    if steps == 1 and floor == 0.0:
        assert found.mu == pytest.approx(float(-2 * mp.sqrt(2) * mp.erfinv(1 - 2 * mp.mpf(keep))), rel=1e-6)


def test_the_class_of_mistakes_of_a_mu_fitted_in_the_bulk() -> None:
    """sigma = 1, q = .01, T = 1000: GDP(.4394) has delta 3.7e-6 where the truth is 1.0e-5."""
    profile = hs.account(hs.PoissonSampled(hs.Gaussian(1.0), 0.01) * 1000)
    truth = profile.delta_bounds(1.8282).lower
    assert gaussian_delta(0.4394, mp.mpf(1.8282)) + FLOOR < 0.4 * truth
    found = profile.gdp(FLOOR)
    assert found.mu <= found.mu_bounds.lower * (1 + 1e-6)
    assert found.regret.upper <= found.regret.lower + 1e-5
    assert found.mu < profile.gdp_mu() / 50
    ahead, behind = 0, 0
    for i in range(400):
        at = 8.0 * i / 400
        lower, upper = profile.delta_bounds(at)
        assert lower <= gaussian_delta(found.mu, mp.mpf(at)) + FLOOR
        ahead += gaussian_delta(found.mu * (1 - 1e-4), mp.mpf(at)) + FLOOR < upper
        behind += (gaussian_delta(found.mu, mp.mpf(at)) - lower) / (1 + math.exp(at)) > found.regret.upper
    assert ahead > 0
    assert behind == 0


@pytest.mark.parametrize("adjacency", ["remove", "add"])
def test_one_direction_counts_negative_epsilon(adjacency: str) -> None:
    profile = hs.account(hs.PoissonSampled(hs.Gaussian(0.8), 0.05) * 20, adjacency)
    found = profile.gdp(1e-6)
    assert found.mu <= hs.account(profile.description).gdp(1e-6).mu * (1 + 1e-6)
    for i in range(-150, 151):
        at = i / 25
        gauss = gaussian_delta(found.mu, mp.mpf(at))
        assert profile.delta_bounds(at).lower <= gauss + 1e-6 + 1e-14
        distance = (gauss - profile.delta_bounds(at).upper) / (1 + math.exp(at))
        assert distance <= found.regret.upper + 1e-14


@pytest.mark.sweep
@pytest.mark.parametrize("adjacency", ["remove", "add"])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("probability", [1.0, 0.05])
@pytest.mark.parametrize("floor", [0.0, 1e-10])
def test_a_direction_of_small_losses_is_no_gaussian_of_them(
    adjacency: str, swapped: bool, probability: float, floor: float
) -> None:
    """One direction's largest loss is .22, the other's 5.3: mu counts both, whichever is asked for."""
    one, other = [0.2, 0.8], [0.001, 0.999]
    present, absent = (other, one) if swapped else (one, other)
    pair = hs.FinitePair(present, absent)
    process = (hs.PoissonSampled(pair, probability) if probability < 1 else pair) * 2
    present = [probability * p + (1 - probability) * q for p, q in zip(present, absent, strict=True)]
    p, q = ([a * b for a, b in product(masses, repeat=2)] for masses in (present, absent))
    if adjacency == "add":
        p, q = q, p
    mu = hs.account(process, adjacency).gdp(floor).mu
    largest = max(abs(math.log(a / b)) for a, b in zip(p, q, strict=True))
    for i in range(-100, 101):
        at = mp.mpf(1.05 * largest * i / 100)
        assert finite_delta(p, q, at) <= gaussian_delta(mu, at) + floor + 1e-14


def test_limits() -> None:
    nothing = hs.account(hs.Gaussian(1.0) * 0).gdp()
    assert (nothing.mu, nothing.regret) == (0.0, (0.0, 0.0))
    outright = hs.account(hs.ApproximateDP(1.0, 1e-3)).gdp()
    assert outright.mu == math.inf == outright.mu_bounds.lower
    assert hs.account(hs.ApproximateDP(1.0, 1e-3)).gdp(1e-2).mu < 1.3
    assert hs.account(hs.Gaussian(1.0)).gdp(0.5).mu == 0.0
    with pytest.raises(hs.ParameterError, match="delta = 1"):
        hs.account(hs.Gaussian(1.0)).gdp(1.0)


def test_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for steps in range(3, 9):  # labels are rounded up
        profile = hs.account(hs.Laplace(1.0) * steps)
        axes = hs.plots.plot_gdp(profile).axes[0]
        assert float(axes.lines[1].get_label().split("mu = ")[1]) >= profile.gdp().mu
        assert float(axes.get_title().split()[3].rstrip(",")) >= profile.gdp().regret.upper
    figure = hs.plots.plot_gdp(hs.account(hs.Laplace(1.0) * 3), path=tmp_path / "gdp.svg")
    assert (tmp_path / "gdp.svg").stat().st_size > 0
    curve, gaussian, _ = (line.get_ydata() for line in figure.axes[0].lines)
    assert (gaussian <= curve + 1e-9).all()


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(2.2924701674725727e-12, 3.739304346132964e-15), (4.313154633135644e-14, 3.779061121682421e-13)],
)
def test_a_mu_beside_the_least_that_is_sought(epsilon: float, delta: float) -> None:
    # Differences of two probabilities round by more than they change there.
    assert 0.9e-12 < mu_at(epsilon, delta) < 1.1e-12


@pytest.mark.parametrize("floor", [1e-3, 1e-10])
def test_infinite_losses_of_the_other_direction_cost_what_the_floor_does_not_cover(floor: float) -> None:
    """Under "remove" they lie at negative epsilon, where the floor counts e^epsilon times on the other side: a finite mu does."""
    p, q = (0.9, 0.1, 0.0), (0.7, 0.1, 0.2)
    found = hs.account(hs.FinitePair(p, q), "remove").gdp(floor)
    assert found.mu_bounds.lower <= found.mu < math.inf

    def needed(mu: float) -> float:
        """The floor that this mu leaves, between and beyond all kinks: delta is linear in e^epsilon there, delta_mu convex."""
        most = -math.inf
        for i in range(-600, 601):
            at = mp.mpf(i) / 20
            delta = sum(max(0, mp.mpf(a) - mp.exp(at) * mp.mpf(b)) for a, b in zip(p, q, strict=True))
            most = max(most, delta - gaussian_delta(mu, at))
        return float(most)

    assert needed(found.mu) <= floor * (1 + 1e-9)
    assert needed(found.mu_bounds.lower * (1 - 1e-3)) > floor
    both = hs.account(hs.FinitePair(p, q)).gdp(floor)
    assert (both.mu, both.mu_bounds.lower) == (math.inf, math.inf)


@pytest.mark.parametrize("ask", [hs.PrivacyProfile.gdp, hs.PrivacyProfile.gdp_mu])
def test_floors_that_no_double_resolves_are_refused(ask) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=r"5e-324: must be 0 or at least 1e-300"):
        ask(hs.account(hs.Gaussian(1.0)), 5e-324)


@pytest.mark.parametrize("probability", [0.01, 0.5])
@pytest.mark.parametrize("adjacency", ["remove", "add", "add_or_remove"])
def test_where_nothing_is_granted_sampling_is_no_help(probability: float, adjacency: str) -> None:
    """Far out, delta of a sampled Gaussian falls as that of the whole one does; so it does at negative epsilon of the other direction."""
    mu = hs.account(hs.PoissonSampled(hs.Gaussian(1.0), probability), adjacency).gdp(0.0).mu
    assert mu <= 1.0 + 1e-9
    with mp.workdps(60):
        q = mp.mpf(probability)
        for epsilon in (1, 5, 20, 100, 1000):
            delta = q * gaussian_delta(1.0, mp.log1p(mp.expm1(mp.mpf(epsilon)) / q))
            assert 0 < delta <= gaussian_delta(mu, mp.mpf(epsilon))


@pytest.mark.parametrize("sigma", [0.7, 1.0, 3.0, 7.0])
def test_what_is_said_of_a_summary_is_no_less_than_it(sigma: float) -> None:
    found = hs.account(hs.PoissonSampled(hs.Gaussian(sigma), 0.3) * 3).gdp(1e-6)
    words = found.statement().split()
    mu = float(words[2].removesuffix("-Gaussian"))
    lower, upper = (float(words[at].removesuffix(".")) for at in (-3, -1))
    assert found.mu <= mu <= found.mu * (1 + 1e-5)
    assert found.regret.lower * (1 - 1e-2) <= lower <= found.regret.lower
    assert found.regret.upper <= upper <= found.regret.upper * (1 + 1e-2)


def test_kinks_do_not_attract_nodes_without_end() -> None:
    """A few atoms on no lattice, whose deltas are known to 1e-4: once minutes, of nodes that told nothing new."""
    process = hs.FinitePair((0.28, 0.34, 0.373, 0.007), (0.36, 1e-7, 0.1, 0.5399999)) + hs.PureDP(1.6e-4) * 2
    found = hs.account(process + hs.PureDP(0.0126), "remove").gdp()
    assert found.mu <= found.mu_bounds.lower * (1 + 1e-6)


def test_the_gaussian_of_pure_privacy_is_rounded_up() -> None:
    with mpmath.workdps(40):
        for epsilon in np.logspace(-12, 2, 200).tolist():
            share = mpmath.tanh(mpmath.mpf(epsilon) / 2)  # 2 Phi(mu / 2) - 1
            mu = 2 * mpmath.sqrt(2) * mpmath.erfinv(share) if share < 0.999 else None
            assert mu is None or mu_of_pure_dp(epsilon) >= mu


def test_the_mu_of_a_gaussian_is_rounded_up() -> None:
    for sigma in np.random.default_rng(0).uniform(0.3, 30.0, 100).tolist():
        for adjacency, shift in (("add", 1), ("zero_out", 1), ("replace_one", 2)):
            assert Fraction(hs.account(hs.Gaussian(sigma), adjacency).gdp_mu()) * Fraction(sigma) >= shift


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("step", "adjacency"),
    [
        (hs.TruncatedPoissonSampled(1.0, 5, 0.9, 2), "add_or_remove"),
        (hs.TruncatedPoissonSampled(1.0, 5, 0.9, 2), "zero_out"),
        (hs.UserLevel(hs.PoissonSampled(hs.Gaussian(2.0), 0.9), 3), "add_or_remove"),
        (hs.UserLevel(hs.PoissonSampled(hs.Gaussian(2.0), 0.9), 3), "replace_one"),
        (hs.UserLevel(hs.Gaussian(2.0), 3), "remove"),
        (hs.WithReplacement(hs.Gaussian(4.0), 3, 4), "replace_one"),
        (hs.WithoutReplacement(hs.Gaussian(2.0), 3, 4), "replace_one"),
        (hs.Mixture([hs.Gaussian(5.0), hs.Gaussian(1.0)], [0.9, 0.1]), "remove"),
        (
            hs.PoissonSampled(hs.Mixture([hs.Gaussian(1.0), hs.Laplace(3.0)], [0.1, 0.9]), 0.9),
            "add_or_remove",
        ),
        (hs.FinitePair([0.2, 0.8], [0.001, 0.999]), "add"),
    ],
    ids=str,
)
def test_a_mu_without_slack_is_above_the_whole_profile(step: hs.Step, adjacency: str) -> None:
    """Far out, too, where those count who are in the batch as often as can be."""
    profile = hs.account(step * 2, adjacency)
    mu = profile.gdp_mu()
    assert mu < math.inf
    gaussian = hs.account(hs.Gaussian(1.0 / mu))
    for epsilon in (0.0, 1.0, 3.0, 6.0, 10.0, 15.0, 20.0):
        assert profile.delta_bounds(epsilon).lower <= gaussian.delta(epsilon)


def test_an_infinite_mu_is_not_spelt_out_as_a_number() -> None:
    """What reveals the data with more than the floor's probability is no Gaussian of any mu."""
    said = hs.account(hs.ApproximateDP(0.5, 1e-6)).report(delta=1e-5).statement()
    assert "No mu is known for which it is mu-Gaussian differentially private up to 1e-10." in said
    assert "inf-Gaussian" not in said
