"""Risks against closed forms, Neyman-Pearson tests by quadrature, and finite pairs by enumeration; no oracle asks for delta."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any

import hockeystick as hs
import mpmath
import numpy as np
import pytest
from hockeystick._base.bounds import Bounds
from hockeystick.accounting.envelope import Envelope, line
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

TIGHT = 1e-6


def encloses(bounds: Bounds, truth: float, tight: float = TIGHT, slack: float = 2e-15) -> None:
    lower, upper = bounds
    assert lower <= truth * (1 + slack)
    assert truth * (1 - slack) <= upper
    assert upper <= lower * (1 + tight)


def normal_tail(quantile: mp.mpf) -> mp.mpf:
    return mp.erfc(quantile / mp.sqrt(2)) / 2


def upper_quantile(alpha: float) -> mp.mpf:
    with mp.workdps(40):
        start = math.sqrt(max(0.0, -2 * math.log(min(alpha, 1 - alpha) * 2)))
        start = start if alpha < 0.5 else -start
        return mp.findroot(lambda x: mp.log(normal_tail(x)) - mp.log(mp.mpf(alpha)), start)


@pytest.mark.parametrize("mu", [1e-3, 0.3, 1.0, 4.0, 11.0])
@pytest.mark.parametrize("alpha", [1e-250, 1e-30, 1e-5, 0.01, 0.5, 0.99])
def test_gaussian_tpr(mu: float, alpha: float) -> None:
    with mp.workdps(40):
        truth = float(normal_tail(upper_quantile(alpha) - 1 / (1 / mp.mpf(mu))))
    tight = TIGHT if alpha >= 1e-40 else math.inf  # deeper tails are owed a bound only
    encloses(hs.account(hs.Gaussian(1 / mu)).risk.tpr(alpha), truth, tight, slack=1e-12)


@pytest.mark.parametrize("mu", [1e-3, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("adjacency", ["remove", "add_or_remove"])
def test_gaussian_tradeoff(mu: float, adjacency: str) -> None:
    """Below the truth, for all errors in one call, by no more than is promised."""
    alphas = [1e-250, 1e-30, 1e-5, 0.01, 0.2, 0.5, 0.9, 0.999]
    with mp.workdps(40):
        missed = [1 - normal_tail(upper_quantile(alpha) - mp.mpf(mu)) for alpha in alphas]
    found = hs.account(hs.Gaussian(1 / mu), adjacency).tradeoff(alphas)
    for value, truth in zip(found.tolist(), missed, strict=True):
        assert value <= float(truth) + 2e-16
        assert value >= float(truth) - 2e-7
    assert hs.account(hs.Gaussian(1 / mu), adjacency).tradeoff([0.0, 1.0]).tolist() == [1.0, 0.0]


def test_no_point_of_the_curve_is_asked_for_tests_that_never_accuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their errors follow from delta at infinity; the search for an infimum there asked further and further away."""
    asked: list[int] = []
    curve = hs.PrivacyProfile.delta_curve

    def counted(profile: hs.PrivacyProfile, epsilon: Any) -> Any:
        asked.append(np.size(epsilon))
        return curve(profile, epsilon)

    monkeypatch.setattr(hs.PrivacyProfile, "delta_curve", counted)
    step = hs.PoissonSampled(hs.Gaussian(1.0), 0.1)
    assert hs.account(step * 10).tradeoff([0.0]) == [1.0]
    assert asked == []
    alone = hs.account(step * 10).tradeoff(0.5)
    least = sum(asked)
    assert hs.account(step * 10).tradeoff([0.0, 0.5]).tolist() == [1.0, alone]
    assert sum(asked) == 2 * least


def test_tradeoff_of_no_errors_many_errors_and_what_is_revealed() -> None:
    assert hs.account(hs.Gaussian(1.0)).tradeoff([]).shape == (0,)
    # 1 - 1e-20 is no double, and 1 is not below it.
    assert hs.account(hs.ApproximateDP(1.0, 1e-20)).tradeoff(0.0) == 1.0 - 2.0**-53
    tiny = 1.9270385348723083e-12
    assert Fraction(hs.account(hs.Gaussian(1.0) * 0).tradeoff(tiny)) <= 1 - Fraction(tiny)
    alphas = np.linspace(0.001, 0.999, 1001)
    found = hs.account(hs.Gaussian(1.0)).tradeoff(alphas)
    truth = ndtr(-ndtri(alphas) - 1.0)
    assert (found <= truth + 1e-15).all()
    assert (found >= truth - 1e-6).all()


@pytest.mark.sweep
@pytest.mark.parametrize(
    "process",
    [
        hs.PoissonSampled(hs.Gaussian(0.5), 1e-4) * 10,
        hs.PoissonSampled(hs.DiscreteGaussian(1.3), 0.05) * 30,
        hs.RandomAllocation(1.0, 100) * 2,
        hs.RandomizedResponse(0.7) * 3,
    ],
    ids=str,
)
@pytest.mark.parametrize("adjacency", ["remove", "add"])
def test_a_tradeoff_is_one_minus_the_best_attack(process: hs.mechanisms.Process, adjacency: str) -> None:
    """Which another profile bounds by itself, node after node."""
    alphas = np.array([1e-4, 0.03, 0.5, 0.97])
    found = hs.account(process, adjacency).tradeoff(alphas)
    risk = hs.account(process, adjacency).risk
    for alpha, value in zip(alphas.tolist(), found.tolist(), strict=True):
        lower, upper = risk.tpr(alpha)
        assert value <= 1.0 - lower + 1e-15
        assert value >= 1.0 - upper - 2e-7
    slopes = np.diff(found) / np.diff(alphas)
    assert (slopes < 0).all()
    assert (np.diff(slopes) > -1e-5).all()


@pytest.mark.parametrize("mu", [1e-3, 0.5, 2.0, 9.0])
def test_gaussian_advantage_and_bayes_risk(mu: float) -> None:
    risk = hs.account(hs.Gaussian(1 / mu)).risk
    encloses(risk.advantage(), math.erf(mu / math.sqrt(8)), slack=1e-12)
    for prior in (0.01, 0.5, 0.9):
        threshold = math.log((1 - prior) / prior) / mu + mu / 2  # say "member" above it
        truth = prior * float(normal_tail(mu - threshold)) + (1 - prior) * float(normal_tail(threshold))
        encloses(risk.bayes_risk(prior), truth, tight=1e-6 + 1e-14 / truth, slack=1e-12)


@pytest.mark.parametrize("mu", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("threshold", [-1.0, 1.5, 6.0])
def test_gaussian_recall(mu: float, threshold: float) -> None:
    found, wrong = normal_tail(threshold - mu), normal_tail(threshold)
    encloses(hs.account(hs.Gaussian(1 / mu)).risk.recall(float(found / wrong)), float(found), slack=1e-11)


@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("alpha", [1e-40, 1e-3, 0.2, 0.5, 0.8])
def test_laplace(scale: float, alpha: float) -> None:
    mu = 1 / scale
    if alpha < math.exp(-mu) / 2:
        truth = math.exp(mu) * alpha
    elif alpha <= 0.5:
        truth = 1 - math.exp(-mu) / (4 * alpha)
    else:
        truth = 1 - math.exp(-mu) * (1 - alpha)
    risk = hs.account(hs.Laplace(scale)).risk
    encloses(risk.tpr(alpha), truth)
    encloses(risk.reconstruction(alpha), truth)
    encloses(risk.advantage(), -math.expm1(-mu / 2), slack=1e-14)


@pytest.mark.parametrize(("epsilon", "steps"), [(0.1, 1), (1.0, 1), (1.0, 5), (3.0, 3)])
def test_randomised_response(epsilon: float, steps: int) -> None:
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    present = [
        keep ** sum(bits) * (1 - keep) ** (steps - sum(bits)) for bits in product((0, 1), repeat=steps)
    ]
    risk = hs.account(hs.RandomizedResponse(epsilon, 2) * steps, accuracy=1e-9).risk
    found, wrong = np.array(present), np.array(present[::-1])
    for alpha in (1e-20, 1e-4, 0.03, 0.4, 0.9):
        encloses(risk.tpr(alpha), best_test(found, wrong, alpha), slack=1e-13)
    truth = float(np.abs(found - wrong).sum() / 2)
    encloses(risk.advantage(), truth, slack=1e-13)
    assert risk.recall(math.exp(epsilon * steps) * 1.001).upper == 0.0


def best_test(found: np.ndarray, wrong: np.ndarray, alpha: float) -> float:
    """TPR of the Neyman-Pearson test between finite laws: the likeliest outcomes first, the last one by a coin."""
    total = 0.0
    for i in sorted(range(len(found)), key=lambda i: -math.inf if wrong[i] == 0 else -found[i] / wrong[i]):
        share = 1.0 if wrong[i] == 0 else min(1.0, alpha / wrong[i])
        total += share * found[i]
        alpha = max(0.0, alpha - wrong[i])
    return total


class Sampled:
    """One Poisson-sampled Gaussian: the law with the record, or (``add``) the one without, as what is to be found."""

    def __init__(self, sigma: float, q: float, add: bool) -> None:
        self.sigma, self.q, self.add = sigma, q, add

    def loss(self, x: float) -> float:
        value = math.log1p(self.q * math.expm1((2 * x - 1) / (2 * self.sigma**2)))
        return -value if self.add else value

    def tails(self, threshold: float) -> tuple[float, float]:
        """Probabilities of a loss above it, (with, without)."""
        inner = (math.exp(-threshold if self.add else threshold) - 1 + self.q) / self.q
        if inner <= 0:
            return (0.0, 0.0) if self.add else (1.0, 1.0)
        x = self.sigma**2 * math.log(inner) + 0.5
        sign = -1 if self.add else 1
        without = 0.5 * math.erfc(sign * x / self.sigma / math.sqrt(2))
        moved = 0.5 * math.erfc(sign * (x - 1) / self.sigma / math.sqrt(2))
        return (1 - self.q) * without + self.q * moved, without

    def density(self, x: float) -> tuple[float, float]:
        without = math.exp(-0.5 * (x / self.sigma) ** 2) / self.sigma / math.sqrt(2 * math.pi)
        return without * math.exp(-self.loss(x) if self.add else self.loss(x)), without


def operating_point(step: Sampled, steps: int, threshold: float) -> tuple[float, float]:
    """(FPR, TPR) of the test that says "found" where the total loss exceeds the threshold; one step or two."""
    if steps == 1:
        laws = step.tails(threshold)
    else:
        laws = tuple(
            quad(
                lambda x, law=law: step.density(x)[law] * step.tails(threshold - step.loss(x))[law],
                -12 * step.sigma,
                1 + 12 * step.sigma,
                epsabs=0,
                epsrel=1e-11,
                limit=400,
            )[0]
            for law in (0, 1)
        )
    return laws if step.add else laws[::-1]


@pytest.mark.parametrize(
    ("adjacency", "steps", "threshold"),
    [
        *[(adjacency, 1, t) for adjacency in ("remove", "add", "add_or_remove") for t in (-0.05, 0.01, 0.1)],
        ("remove", 1, 0.7),
        ("remove", 2, 0.05),
        ("remove", 2, 0.7),
        ("add", 2, -0.05),
    ],
)
def test_sampled_steps_by_neyman_and_pearson(adjacency: str, steps: int, threshold: float) -> None:
    sigma, q = 0.9, 0.2
    directions = {"remove": [False], "add": [True], "add_or_remove": [False, True]}[adjacency]
    risk = hs.account(hs.PoissonSampled(hs.Gaussian(sigma), q) * steps, adjacency, accuracy=1e-4).risk
    tight = TIGHT if steps == 1 else 1e-3  # few sampled steps are the inversion's hardest
    alpha, found = operating_point(Sampled(sigma, q, directions[0]), steps, threshold)
    for add in directions[1:]:  # the other direction's power at the same rate of false positives
        other = Sampled(sigma, q, add)
        wanted = brentq(
            lambda t, other=other: operating_point(other, steps, t)[0] - alpha,
            -4,
            -steps * math.log1p(-q) - 1e-12,
            xtol=1e-14,
        )
        found = max(found, operating_point(other, steps, wanted)[1])
    encloses(risk.tpr(alpha), found, tight, slack=1e-9)
    if len(directions) == 1 and threshold > 0:
        encloses(risk.recall(found / alpha), found, tight, slack=1e-9)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=8),
    st.sampled_from([0.0, 1e-9, 1e-4, 0.1]),
    st.floats(1e-6, 0.999),
    st.integers(0, 2**32 - 1),
)
def test_bounds_hold_whatever_is_known_of_a_finite_pair(
    weights: list[tuple[int, int]], slop: float, alpha: float, seed: int
) -> None:
    """Bounds on delta as wrong as they are allowed to be, in random ways, never give a bound on the wrong side."""
    present, absent = (np.array(law, dtype=float) for law in zip(*weights, strict=True))
    if not present.any() or not absent.any():
        return
    present, absent = present / present.sum(), absent / absent.sum()
    draw = np.random.default_rng(seed)

    def curve(epsilon: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with np.errstate(over="ignore", invalid="ignore"):
            excess = present - np.where(absent > 0, np.exp(epsilon)[:, None] * absent, 0.0)
        delta = np.maximum(excess, 0.0).sum(axis=1)
        off = slop * draw.random((2, len(epsilon))) + 1e-15
        return np.clip(delta - off[0] * delta - 1e-16, 0, 1), np.clip(delta + off[1] + 1e-16, 0, 1)

    envelope = Envelope(curve, np.linspace(-3.0, 3.0, 5))
    [(lower, upper)] = envelope.least([line(alpha)], 1e-7)
    truth = best_test(present, absent, alpha)
    assert lower <= truth * (1 + 1e-15) + 1e-16
    assert truth <= upper * (1 + 1e-15) + 1e-16
    if slop <= 1e-9:
        assert upper <= lower + 1e-6


def test_limits() -> None:
    everything = hs.account(hs.Gaussian(0.0)).risk
    assert everything.tpr(0.0).upper == 1.0
    encloses(everything.precision(1e-3, 0.5), 1 / 1.001)
    nothing = hs.account(hs.Gaussian(1.0) * 0).risk
    assert nothing.advantage() == (0.0, 0.0)
    encloses(nothing.tpr(0.25), 0.25)
    assert nothing.recall(2.0).upper == 0.0
    assert nothing.precision(0.1, 0.0) == (0.0, 0.0)
    encloses(nothing.precision(0.1, 0.3), 0.3)
    encloses(nothing.bayes_risk(0.3), 0.3)
    assert nothing.bayes_risk(0.0) == nothing.bayes_risk(1.0) == (0.0, 0.0)
    assert hs.account(hs.ApproximateDP(1.0, 1e-3)).risk.tpr(0.0).upper == pytest.approx(1e-3)
    with pytest.raises(hs.ParameterError, match="fpr = 2"):
        nothing.tpr(2.0)
    with pytest.raises(hs.ParameterError, match="odds = 1"):
        nothing.recall(1.0)


@pytest.mark.parametrize(
    "laws", [([0.6, 0.4], [0.4, 0.6]), ([1.0, 0.0], [0.8, 0.2]), ([0.2, 0.8], [1e-3, 1.0 - 1e-3])]
)
def test_rates_and_shares_beyond_the_normal_doubles(laws: tuple[list[float], list[float]]) -> None:
    """Their products were 0, or rounded by half of themselves: precision(1e-200, 1e-200) was 0 where it is more than 1e-200."""
    present, absent = ([Fraction(x) for x in law] for law in laws)
    present[-1], absent[-1] = 1 - present[0], 1 - absent[0]
    risk = hs.account(hs.FinitePair(*laws), "remove").risk
    for alpha in (5e-324, 1.5e-322, 2.4e-310, 1e-300, 3.9e-294, 1e-200, 1e-5, 0.3, 1.0):
        # Neyman and Pearson, of two outcomes: the likelier one first.
        first = max((0, 1), key=lambda i: present[i] / absent[i])
        share = min(Fraction(1), Fraction(alpha) / absent[first])
        found = (
            share * present[first]
            + (Fraction(alpha) - share * absent[first]) / absent[1 - first] * present[1 - first]
        )
        lower, upper = risk.tpr(alpha)
        assert Fraction(lower) <= found <= Fraction(upper)
        for prior in (5e-324, 1e-319, 2e-251, 1e-200, 1e-20, 0.01, 0.99961, 1.0):
            right = Fraction(prior) * found
            truth = right / (right + (1 - Fraction(prior)) * Fraction(alpha))
            lower, upper = risk.precision(alpha, prior)
            assert Fraction(lower) <= truth <= Fraction(upper)
            if alpha >= 1e-5:
                assert upper - lower <= 0.02 * upper + 2e-323


def test_a_risk_of_nothing_is_not_refined() -> None:
    risk = hs.account(hs.Laplace(1e12) * 3).risk
    assert risk.recall(2.0) <= (0.0, 1e-200)
    risk = hs.account(hs.PoissonSampled(hs.Gaussian(1e6), 1e-12) * 2, "remove").risk
    assert risk.recall(2.0).upper <= 1e-200


def test_a_table_of_what_it_means() -> None:
    rows = dict(hs.account(hs.Gaussian(1.0)).risk.table())
    assert all(0 <= lower <= upper <= 1 for lower, upper in rows.values())
    encloses(rows["right guesses, 1 of 2 a member"], 0.5 + math.erf(1 / math.sqrt(8)) / 2)


@pytest.mark.parametrize("steps", [10**4, 10**6, 10**9])
def test_releases_that_reveal_nearly_all_are_answered(steps: int) -> None:
    """Each of many deltas far below the mean loss took seconds. An attack that guesses by the sign of the sum is right."""
    risk = hs.account(hs.PoissonSampled(hs.Gaussian(0.1), 0.01) * steps).risk
    for found in (risk.tpr(0.01), risk.reconstruction(1e-4)):
        assert 0.98 < found.lower <= found.upper == 1.0
    assert risk.recall(9.0).upper == 1.0


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("described", "bound"),
    [
        (hs.mechanisms.ExponentialMechanism(1.5) * 4, 6.0),
        (hs.mechanisms.DeclaredProfile((0.0, 1.0, 2.0), (0.3, 0.1, 0.01)) * 3, math.inf),
        (hs.ZCDP(0.1) * 4, math.inf),
        (hs.mechanisms.Group(hs.PoissonSampled(hs.Gaussian(1.0), 0.01) * 10, 3), math.inf),
    ],
)
def test_nothing_from_below_does_not_keep_from_looking(described: Any, bound: float) -> None:
    """Of a curve that is declared nothing is known from below: the best that points between its nodes can show ends the search."""
    profile = hs.account(described)
    asked: list[int] = []
    curve = type(profile).delta_curve

    def counted(self: hs.PrivacyProfile, epsilon: Any) -> Any:
        asked.append(np.size(epsilon))
        return curve(self, epsilon)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(profile), "delta_curve", counted)
        found = {fpr: profile.risk.tpr(fpr) for fpr in (1e-5, 1e-3, 0.1)}
    assert sum(asked) < 400
    for fpr, bounds in found.items():
        grid = np.linspace(0.0, min(bound, profile.widest_epsilon()), 201)
        least = float(np.min(np.exp(grid) * fpr + profile.delta_curve(grid)[1]))
        assert fpr <= bounds.lower <= bounds.upper <= least * (1.0 + 1e-6)


def test_lower_ends_that_are_known_late_are_no_others() -> None:
    """Nothing is known from below at the first nodes, and something at later ones, when other questions were answered already."""
    first = np.linspace(-3.0, 3.0, 5)

    def curve(epsilon: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        exact = np.array([hs.account(hs.Gaussian(1.0)).delta_bounds(float(each)).upper for each in epsilon])
        known = np.where(np.isin(epsilon, first) & (epsilon >= 0.0), 0.0, exact * 0.9)
        return np.where(epsilon < 0.0, exact * 0.9, known), np.minimum(1.0, exact * 1.5)

    objectives = [line(fpr) for fpr in (0.999, 1e-3, 0.3)]
    for order in ([0, 1, 2], [1], [0]):
        found = Envelope(curve, first).least([objectives[i] for i in order], 1e-7)
        for i, (lower, upper) in zip(order, found, strict=True):
            fpr = (0.999, 1e-3, 0.3)[i]
            truth = float(ndtr(1.0 + ndtri(fpr)))  # of the best test of N(1, 1) against N(0, 1)
            assert lower <= truth * (1.0 + 1e-9) <= upper * (1.0 + 2e-9)


def test_odds_next_to_the_largest_loss() -> None:
    """Nobody is named with larger odds than e^epsilon, and with these, or a little less, all whose answer is true: a jump."""
    with mpmath.workdps(40):
        for epsilon in np.random.default_rng(0).uniform(0.1, 6.0, 60).tolist():
            exact = mpmath.exp(mpmath.mpf(epsilon))
            odds = float(exact) if float(exact) <= exact else float(np.nextafter(float(exact), 0.0))
            upper = hs.account(hs.RandomizedResponse(epsilon)).risk.recall(odds).upper
            assert upper >= 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon))) * (1 - mpmath.mpf("1e-9"))
