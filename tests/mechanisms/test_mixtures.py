"""Mixtures of mechanisms and of Gaussians against their definition."""

from __future__ import annotations

import json
import math

import hockeystick as hs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp
from scipy.special import ndtr

EPSILONS = (-1.0, 0.0, 0.3, 1.0, 2.5)
PARTS = [
    hs.Gaussian(0.8),
    hs.PoissonSampled(hs.Gaussian(0.7), 0.2),
    hs.Laplace(1.5),
    hs.TruncatedPoissonSampled(0.9, 20, 0.4, 8),
    hs.RandomizedResponse(1.0, 3),
    hs.MixtureOfGaussians(1.0, [0.0, 0.5, 1.5], [0.5, 0.3, 0.2]),
]


@settings(max_examples=30, deadline=None)
@given(
    chosen=st.lists(st.tuples(st.sampled_from(PARTS), st.floats(0.0, 1.0)), min_size=1, max_size=4),
    direction=st.sampled_from(["add", "remove", "replace_one"]),
)
def test_one_use_is_the_weighted_profile(
    chosen: list[tuple[hs.mechanisms.descriptions.Step, float]], direction: str
) -> None:
    total = math.fsum(weight for _, weight in chosen)
    if not total > 1e-3:
        chosen, total = [(chosen[0][0], 1.0)], 1.0
    weights = [weight / total for _, weight in chosen]
    profile = hs.account(hs.Mixture([part for part, _ in chosen], weights), direction)
    parts = [hs.account(part, direction, accuracy=1e-6) for part, _ in chosen]
    for epsilon in EPSILONS:
        lower = math.fsum(
            w * part.delta_bounds(epsilon).lower for w, part in zip(weights, parts, strict=True)
        )
        upper = math.fsum(
            w * part.delta_bounds(epsilon).upper for w, part in zip(weights, parts, strict=True)
        )
        found = profile.delta_bounds(epsilon)
        assert found.lower <= upper * (1.0 + 1e-12) + 1e-300
        assert lower * (1.0 - 1e-12) <= found.upper


@pytest.mark.parametrize("engine", ["auto", "fft"])
@pytest.mark.parametrize("direction", hs.mechanisms.ADJACENCIES)
def test_composition_expands_into_the_binomial_of_choices(direction: str, engine: str) -> None:
    """T uses are a binomial mixture of compositions, each of which is accounted for alone."""
    first, second, share, uses = hs.PoissonSampled(hs.Gaussian(0.9), 0.3), hs.Gaussian(3.0), 0.3, 4
    whole = hs.account(hs.Mixture([first, second], [share, 1.0 - share]) * uses, direction, engine=engine)
    sides = ("remove", "add") if direction in ("add_or_remove", "zero_out") else (direction,)
    for epsilon in EPSILONS:
        bounds = []
        for side in sides:
            lower = upper = 0.0
            for k in range(uses + 1):
                weight = math.comb(uses, k) * share**k * (1.0 - share) ** (uses - k)
                part = hs.account(first * k + second * (uses - k), side).delta_bounds(epsilon)
                lower, upper = lower + weight * part.lower, upper + weight * part.upper
            bounds.append((lower, upper))
        found = whole.delta_bounds(epsilon)
        assert max(lower for lower, _ in bounds) * (1.0 - 1e-12) <= found.upper
        assert found.lower <= max(upper for _, upper in bounds) * (1.0 + 1e-12)
        assert found.upper <= max(upper for _, upper in bounds) * 1.01


@pytest.mark.sweep
@pytest.mark.parametrize("share", [1e-9, 1e-3, 0.1])
@pytest.mark.parametrize("direction", ["add", "remove"])
def test_few_uses_of_lopsided_choices_are_near(direction: str, share: float) -> None:
    """Of several parts only wide strips were tried: too many nodes for the inversion, and the FFT was 7 % wide in half a minute."""
    first, second, uses = (
        hs.PoissonSampled(hs.Gaussian(0.674), 1.14e-4),
        hs.PoissonSampled(hs.Gaussian(0.337), 1e-4),
        4,
    )
    beside = hs.PoissonSampled(hs.Gaussian(0.726), 1.07e-4) * 4
    whole = hs.account(hs.Mixture([first, second], [1.0 - share, share]) * uses + beside, direction)
    for epsilon in (1e-4, 4.3e-4):
        lower = upper = 0.0
        for k in range(uses + 1):
            weight = math.comb(uses, k) * share**k * (1.0 - share) ** (uses - k)
            part = hs.account(first * (uses - k) + second * k + beside, direction).delta_bounds(epsilon)
            lower, upper = lower + weight * part.lower, upper + weight * part.upper
        found = whole.delta_bounds(epsilon)
        assert lower * (1.0 - 1e-12) <= found.upper
        assert found.lower <= upper * (1.0 + 1e-12)
        assert found.lower > 0.0
        if direction == "add":
            assert found.upper <= found.lower * (1.0 + 1e-6)


@pytest.mark.parametrize("direction", ["add", "remove", "replace_one"])
def test_a_sampled_choice_is_a_choice_of_sampled_mechanisms(direction: str) -> None:
    inner, weights = [hs.Gaussian(0.8), hs.Laplace(2.0)], [0.4, 0.6]
    outside = hs.account(hs.PoissonSampled(hs.Mixture(inner, weights), 0.2) * 3, direction)
    inside = hs.account(hs.Mixture([hs.PoissonSampled(m, 0.2) for m in inner], weights) * 3, direction)
    assert outside.epsilon_bounds(1e-6) == inside.epsilon_bounds(1e-6)
    if direction == "replace_one":
        for scheme in (hs.WithoutReplacement, hs.WithReplacement):
            whole = hs.account(scheme(hs.Mixture(inner, weights), 5, 50) * 3, direction)
            split = hs.account(hs.Mixture([scheme(m, 5, 50) for m in inner], weights) * 3, direction)
            assert whole.epsilon_bounds(1e-6) == split.epsilon_bounds(1e-6)


def test_limits() -> None:
    one = hs.account(hs.Mixture([hs.Gaussian(1.0)], [1.0]) * 5)
    assert one.epsilon_bounds(1e-6) == pytest.approx(
        hs.account(hs.Gaussian(1.0) * 5).epsilon_bounds(1e-6), rel=1e-9
    )
    assert hs.account(hs.Mixture([hs.Gaussian(1.0), hs.PureDP(0.0)], [0.0, 1.0]) * 9).epsilon(1e-9) == 0.0
    never = hs.Mixture([hs.Gaussian(0.0), hs.Gaussian(2.0)], [0.0, 1.0])
    assert hs.account(never).epsilon(1e-6) < math.inf
    # With probability 1e-4 the data are published.
    leak = hs.account(hs.Mixture([hs.Gaussian(0.0), hs.PureDP(0.0)], [1e-4, 1.0 - 1e-4]))
    assert leak.delta(5.0) == pytest.approx(1e-4, rel=1e-9)
    assert leak.epsilon(0.9e-4) == math.inf
    nested = hs.Mixture(
        [hs.Mixture([hs.Gaussian(1.0), hs.Gaussian(2.0)], [0.5, 0.5]), hs.Gaussian(4.0)], [0.5, 0.5]
    )
    flat = hs.Mixture([hs.Gaussian(1.0), hs.Gaussian(2.0), hs.Gaussian(4.0)], [0.25, 0.25, 0.5])
    assert hs.account(nested * 4).epsilon(1e-6) == pytest.approx(hs.account(flat * 4).epsilon(1e-6), rel=1e-9)


def test_gdp_of_a_mixture() -> None:
    mixture = hs.Mixture([hs.Gaussian(2.0), hs.Gaussian(8.0)], [0.5, 0.5])
    mu = hs.account(mixture * 4).gdp_mu()
    assert mu <= 1.0 + 1e-6
    assert hs.account(mixture * 4).delta(0.5) <= hs.account(hs.Gaussian(1.0 / mu)).delta(0.5) * (1.0 + 1e-6)
    step = hs.TruncatedPoissonSampled(4.0, 20, 0.4, 8)
    for adjacency in ("add_or_remove", "zero_out", "replace_one"):
        assert hs.account(step * 4, adjacency).gdp_mu() <= 1.0 + 1e-6


def direct(p: list[tuple[float, float]], q: list[tuple[float, float]], sigma: float, epsilon: float) -> float:
    t = np.arange(-12 * sigma - 5, 12 * sigma + 5, 1e-3 * sigma)

    def law(parts: list[tuple[float, float]]) -> np.ndarray:
        terms = [w * np.exp(-0.5 * ((t - s) / sigma) ** 2) for s, w in parts]
        return np.sum(terms, axis=0) / (sigma * math.sqrt(2 * math.pi))

    return float(np.maximum(law(p) - math.exp(epsilon) * law(q), 0.0).sum()) * 1e-3 * sigma


def test_mixture_of_gaussians_by_quadrature() -> None:
    sigma, law = 0.9, [(0.0, 0.4), (0.5, 0.3), (2.0, 0.3)]
    step = hs.MixtureOfGaussians(sigma, [s for s, _ in law], [w for _, w in law])
    mirrored, nothing = [(-s, w) for s, w in law], [(0.0, 1.0)]
    for epsilon in EPSILONS:
        remove, add = direct(law, nothing, sigma, epsilon), direct(nothing, law, sigma, epsilon)
        assert hs.account(step, "remove").delta(epsilon) == pytest.approx(remove, rel=1e-5, abs=1e-9)
        assert hs.account(step, "add").delta(epsilon) == pytest.approx(add, rel=1e-5, abs=1e-9)
        assert hs.account(step, "zero_out").delta(epsilon) == pytest.approx(
            max(remove, add), rel=1e-5, abs=1e-9
        )
        replaced = direct(law, mirrored, sigma, epsilon)
        assert hs.account(step, "replace_one").delta(epsilon) == pytest.approx(replaced, rel=1e-5, abs=1e-9)


@settings(max_examples=20, deadline=None)
@given(
    u=st.lists(st.floats(-1.0, 1.0), min_size=3, max_size=3),
    v=st.lists(st.floats(-1.0, 1.0), min_size=3, max_size=3),
    angles=st.lists(st.floats(0.0, 6.3), min_size=6, max_size=6),
    epsilon=st.sampled_from(EPSILONS),
)
def test_no_vectors_do_worse(u: list[float], v: list[float], angles: list[float], epsilon: float) -> None:
    """Ganesh 2025, Lemma 2.4, in the plane: vectors within the norms that were declared."""
    sigma, sizes, weights = 0.8, [0.0, 1.0, 2.0], [0.3, 0.4, 0.3]
    x = np.arange(-8.0, 8.0, 0.04)[:, None], np.arange(-8.0, 8.0, 0.04)[None, :]

    def law(scales: list[float], turns: list[float]) -> np.ndarray:
        terms = [
            w
            * np.exp(
                -0.5 * ((x[0] - r * f * math.cos(a)) ** 2 + (x[1] - r * f * math.sin(a)) ** 2) / sigma**2
            )
            for r, f, a, w in zip(sizes, scales, turns, weights, strict=True)
        ]
        return np.sum(terms, axis=0) / (2 * math.pi * sigma**2)

    truth = (
        float(np.maximum(law(u, angles[:3]) - math.exp(epsilon) * law(v, angles[3:]), 0.0).sum()) * 0.04**2
    )
    step = hs.MixtureOfGaussians(sigma, sizes, weights)
    assert truth * (1.0 - 1e-3) - 1e-9 <= hs.account(step, "replace_one").delta(epsilon)


@pytest.mark.parametrize("adjacency", hs.mechanisms.ADJACENCIES)
def test_no_noise(adjacency: str) -> None:
    step = hs.MixtureOfGaussians(0.0, [0.0, 1.0], [0.9, 0.1])
    poisson = hs.PoissonSampled(hs.Gaussian(0.0), 0.1)
    for epsilon in EPSILONS:
        ours, theirs = (hs.account(what, adjacency).delta_bounds(epsilon) for what in (step, poisson))
        assert ours == pytest.approx(theirs, rel=1e-12)


@pytest.mark.parametrize(
    ("mechanisms", "weights", "error", "name"),
    [
        ([hs.Gaussian(1.0)], [0.9], hs.ParameterError, "weights"),
        ([hs.Gaussian(1.0)], [0.5, 0.5], hs.ParameterError, "weights"),
        ([], [], hs.ParameterError, "weights"),
        ([hs.Gaussian(1.0)] * 2, [1.5, -0.5], hs.ParameterError, r"weights\[0\]"),
        ([hs.Gaussian(1.0)] * 2, [0.5, math.nan], hs.ParameterError, r"weights\[1\]"),
        ([hs.Gaussian(1.0) * 2], [1.0], hs.ParameterTypeError, r"mechanisms\[0\]"),
        (hs.Gaussian(1.0), [1.0], hs.ParameterTypeError, "mechanisms"),
        ([hs.Gaussian(1.0)], 1.0, hs.ParameterTypeError, "weights"),
    ],
)
def test_what_is_refused(mechanisms: object, weights: object, error: type[Exception], name: str) -> None:
    with pytest.raises(error, match=name):
        hs.Mixture(mechanisms, weights)


def test_what_else_is_refused() -> None:
    with pytest.raises(hs.ParameterTypeError, match="mechanism"):
        hs.PoissonSampled(hs.Mixture([hs.WithoutReplacement(hs.Gaussian(1.0), 2, 10)], [1.0]), 0.5)
    fixed = hs.Mixture([hs.WithoutReplacement(hs.Gaussian(1.0), 2, 10), hs.Gaussian(1.0)], [0.5, 0.5])
    with pytest.raises(hs.ParameterError, match="replace_one"):
        hs.account(fixed)
    assert hs.account(fixed, "replace_one").epsilon(1e-5) > 0.0
    with pytest.raises(hs.ParameterError, match="sensitivities"):
        hs.MixtureOfGaussians(1.0, [-1.0], [1.0])
    with pytest.raises(hs.ParameterError, match="probabilities"):
        hs.MixtureOfGaussians(1.0, [1.0], [0.5])


def test_the_report_names_the_choice() -> None:
    mixture = hs.Mixture([hs.PoissonSampled(hs.Gaussian(1.0), 0.1), hs.Laplace(3.0)], [0.5, 0.5])
    statement = hs.account(mixture * 5).report(delta=1e-5).statement()
    assert "released random choice between 2 mechanisms (5 steps)" in statement
    assert "probability 0.1" in statement
    assert "Laplace scale" in statement
    assert mixture == hs.Mixture((hs.PoissonSampled(hs.Gaussian(1.0), 0.1), hs.Laplace(3.0)), (0.5, 0.5))
    assert len({mixture, hs.Mixture(list(mixture.mechanisms), [0.5, 0.5])}) == 1


def test_what_was_normalised_stays_as_it_is() -> None:
    """Otherwise a stored description would not be the one that was stored."""
    rng = np.random.default_rng(3)
    for _ in range(300):
        size = int(rng.integers(2, 60))
        weights = 10.0 ** -rng.uniform(0.0, 12.0, size)
        weights /= weights.sum()
        mixture = hs.Mixture([hs.Gaussian(float(i + 1)) for i in range(size)], weights.tolist())
        again = hs.mechanisms.from_dict(json.loads(json.dumps(hs.mechanisms.to_dict(mixture.as_process()))))
        assert again == mixture.as_process()
        assert abs(math.fsum(mixture.weights) - 1.0) <= 4 * 2.0**-53


def of_half_line(law: dict[float, float], a: mp.mpf) -> mp.mpf:
    """H_a of sum_s w_s N(s, 1) against N(0, 1), by the half-line on which the likelihood ratio exceeds a."""
    low, high = mp.mpf(-200), mp.mpf(200)
    ratio = lambda t: mp.fsum(w * mp.expm1(s * t - s * s / 2) for s, w in law.items()) - (a - 1)
    if ratio(high) <= 0:
        return mp.mpf(0)
    if ratio(low) >= 0:
        return 1 - a
    for _ in range(220):
        middle = (low + high) / 2
        low, high = (middle, high) if ratio(middle) < 0 else (low, middle)
    return mp.fsum(w * mp.ncdf(s - low) for s, w in law.items()) - a * mp.ncdf(-low)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("sigma", "q"),
    [(5.3, 1.7e-16), (50.0, 2.3e-20), (5.6e5, 1e-12), (1e16, 0.3), (1e20, 0.3), (4e10, 1e-17), (1.0, 0.01)],
)
@pytest.mark.parametrize("users", [False, True])
def test_losses_that_hardly_move_are_no_smaller(sigma: float, q: float, users: bool) -> None:
    # Where all losses are within rounding of each other, the one that is asked for is found anywhere.
    if users:
        step: hs.mechanisms.Step = hs.UserLevel(hs.PoissonSampled(hs.Gaussian(sigma), q), 2)
    else:
        step = hs.MixtureOfGaussians(sigma, [0.0, 1.0], [1.0 - q, q])
    with mp.workdps(80):
        rare, shift = mp.mpf(q), 1 / mp.mpf(sigma)
        law = {mp.mpf(0): 1 - rare, shift: rare}
        if users:
            law = {mp.mpf(0): (1 - rare) ** 2, shift: 2 * rare * (1 - rare), 2 * shift: rare**2}
        for epsilon in (0.0, 0.2 * q / sigma, q / sigma, 3.0 * q / sigma, 0.1 * q):
            a = mp.exp(mp.mpf(epsilon))
            for adjacency, truth in [
                ("remove", of_half_line(law, a)),
                ("add", 1 - a + a * of_half_line(law, 1 / a)),
            ]:
                lower, upper = hs.account(step, adjacency).delta_bounds(epsilon)
                assert lower * (1.0 - 1e-12) - 1e-70 <= truth <= upper * (1.0 + 1e-15) + 1e-70


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("sigma", "q", "steps"),
    [
        (3305.0882025058872, 1.2602709778808316e-16, 2),
        (321061134.1265089, 1.935239910565471e-11, 3),
        (1e6, 1e-14, 5),
        (1e12, 1e-9, 100),
    ],
)
@pytest.mark.parametrize("engine", ["auto", "fft"])
def test_total_variations_add_up_to_no_less(sigma: float, q: float, steps: int, engine: str) -> None:
    """delta(0) of n steps is at most n times that of one, also where no double tells the lattice's losses from 0."""
    step = hs.MixtureOfGaussians(sigma, [0.0, 1.0], [1.0 - q, q])
    with mp.workdps(60):
        one = mp.mpf(q) * (2 * mp.ncdf(1 / (2 * mp.mpf(sigma))) - 1)
        for adjacency in ("remove", "add"):
            assert hs.account(step * steps, adjacency, engine=engine).delta_bounds(
                0.0
            ).lower <= steps * one * (1 + 1e-12)


def two_steps(shifts: np.ndarray, weights: np.ndarray, epsilon: float, adjacency: str, h: float) -> float:
    """E_P[delta_1(epsilon - L)], P the mixture, against its mirror image or N(0, 1): by the trapezoidal rule and bisection."""
    others = -shifts if adjacency == "replace_one" else np.zeros(1)
    their_weights = weights if adjacency == "replace_one" else np.ones(1)

    def loss(t: np.ndarray) -> np.ndarray:
        p, q = (
            np.logaddexp.reduce(np.log(w)[:, None] + c[:, None] * t - c[:, None] ** 2 / 2, axis=0)
            for c, w in ((shifts, weights), (others, their_weights))
        )
        return np.asarray(p - q)

    t = np.arange(shifts.min() - 11, shifts.max() + 11, h)
    rest = epsilon - loss(t)
    low, high = np.full_like(rest, others.min() - 60), np.full_like(rest, shifts.max() + 60)
    for _ in range(54):
        middle = (low + high) / 2
        below = loss(middle) < rest
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    tail_p = (weights[:, None] * ndtr(shifts[:, None] - low)).sum(0)
    tail_q = (their_weights[:, None] * ndtr(others[:, None] - low)).sum(0)
    lost = np.exp(np.minimum(rest + np.log(np.maximum(tail_q, 1e-320)), 50)) * (tail_q > 0)
    density = (weights[:, None] * np.exp(-((t - shifts[:, None]) ** 2) / 2)).sum(0) / math.sqrt(2 * math.pi)
    return float(h * (density * np.clip(tail_p - lost, 0, 1)).sum())


@pytest.mark.sweep
@pytest.mark.parametrize("adjacency", ["replace_one", "remove"])
@pytest.mark.parametrize("sigma", [1.0, 1.5, 1.69, 2.5])
@pytest.mark.parametrize(
    ("shifts", "weights"),
    [
        ((3.0, 6.0), (0.1, 0.9)),
        ((5.0, 5.1), (0.5, 0.5)),
        ((2.0, 3.0, 3.5), (0.2, 0.3, 0.5)),
        ((0.5, 6.0), (0.2, 0.8)),
    ],
)
def test_records_that_always_contribute(
    shifts: tuple[float, ...], weights: tuple[float, ...], sigma: float, adjacency: str
) -> None:
    """Without a shift of 0 sums turn by more than pi between two zeros, which aliasing once left out: delta <= .99994 for .99995."""
    profile = hs.account(hs.MixtureOfGaussians(sigma, shifts, weights) * 2, adjacency=adjacency)
    centres = np.array(shifts) / sigma
    for epsilon in (0.0, 0.7, 1.0, 4.0, 15.0):
        bounds = profile.delta_bounds(epsilon)
        fine, coarse = (two_steps(centres, np.array(weights), epsilon, adjacency, h) for h in (0.01, 0.02))
        assert abs(fine - coarse) < 1e-10
        assert bounds.lower <= fine + 3e-10
        assert fine - 3e-10 <= bounds.upper
        assert bounds.upper - bounds.lower <= 1e-3 * bounds.upper


@pytest.mark.parametrize("adjacency", ["remove", "add", "replace_one"])
@pytest.mark.parametrize("least", [1e-3, 1.0, 100.0])
def test_a_shift_that_noise_hides_is_not_taken_for_one_that_it_does_not(adjacency: str, least: float) -> None:
    """Half of the time the shift is larger than any number of deviations, and else it is ``least``."""
    bounds = hs.account(hs.MixtureOfGaussians(1.0, (least, 1e150), (0.5, 0.5)), adjacency).delta_bounds(1.0)

    def gaussian(mu: float, epsilon: float) -> float:
        return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))

    truth = {
        "remove": 0.5 + 0.5 * gaussian(least, 1.0 + math.log(2.0)),
        "add": gaussian(least, 1.0 - math.log(2.0)),
        "replace_one": 0.5 + 0.5 * gaussian(2.0 * least, 1.0),
    }
    assert bounds.lower <= truth[adjacency] * (1.0 + 1e-9)
    assert truth[adjacency] * (1.0 - 1e-9) <= bounds.upper
