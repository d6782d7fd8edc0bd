"""Users with several examples: the mixture against all vectors, the definition and a peer."""

from __future__ import annotations

import itertools
import math
import re
from fractions import Fraction

import hockeystick as hs
import mpmath as mp
import numpy as np
import pytest
from hockeystick._base.types import Array
from hockeystick.mechanisms.sampled import binomial_cells, law_of
from scipy.optimize import brentq
from scipy.special import log_ndtr, logsumexp
from scipy.stats import binom, norm

EPSILONS = (-1.0, 0.0, 0.2, 0.7, 2.0)


def hockey_stick(p: Array, q: Array, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


@pytest.mark.parametrize("adjacency", ["remove", "add", "replace_one"])
def test_one_step_is_the_aligned_user(adjacency: str) -> None:
    k, q, sigma = 4, 0.2, 1.3
    grid = np.linspace(-14.0, 18.0, 400_001)
    weights = binom.pmf(np.arange(k + 1), k, q)
    width = grid[1] - grid[0]
    p = sum(w * norm.pdf(grid, s, sigma) for s, w in enumerate(weights)) * width
    other = norm.pdf(grid, 0, sigma) * width
    if adjacency == "replace_one":
        other = p[::-1] if abs(grid[0] + grid[-1]) < 1e-9 else np.interp(-grid, grid, p, left=0.0, right=0.0)
    if adjacency == "add":
        p, other = other, p
    profile = hs.account(hs.UserLevel(hs.PoissonSampled(hs.Gaussian(sigma), q), k), adjacency, accuracy=1e-7)
    for epsilon in EPSILONS:
        bounds, truth = profile.delta_bounds(epsilon), hockey_stick(p, other, epsilon)
        assert bounds.lower <= truth * (1.0 + 1e-6) + 1e-10
        assert truth <= bounds.upper * (1.0 + 1e-6) + 1e-10


@pytest.mark.parametrize("replaced", [False, True])
def test_no_vectors_in_the_plane_do_worse(replaced: bool) -> None:
    """Random clipped vectors of each example, fewer examples included; the plane is summed up cell by cell."""
    k, q, sigma, rng = 3, 0.3, 1.0, np.random.default_rng(5)
    axis = np.linspace(-9.0, 9.0, 181)
    x, y = np.meshgrid(axis, axis)
    profile = hs.account(
        hs.UserLevel(hs.PoissonSampled(hs.Gaussian(sigma), q), k),
        "replace_one" if replaced else "add_or_remove",
    )

    def law(vectors: Array) -> Array:
        total = np.zeros_like(x)
        for coins in itertools.product([0, 1], repeat=k):
            mean = np.array(coins) @ vectors
            weight = q ** sum(coins) * (1.0 - q) ** (k - sum(coins))
            total += weight * np.exp(-0.5 * ((x - mean[0]) ** 2 + (y - mean[1]) ** 2) / sigma**2)
        return total / total.sum()

    worst = 0.0
    for trial in range(30):
        angles = rng.normal(0.0, 0.2 if trial % 2 else 3.0, (2, k))
        lengths = rng.random((2, k)) ** 0.2 * (rng.random((2, k)) < 0.9)
        vectors = [
            np.stack([np.cos(a), np.sin(a)], axis=1) * r[:, None]
            for a, r in zip(angles, lengths, strict=True)
        ]
        p, other = law(vectors[0]), law(-vectors[1] if replaced else np.zeros((k, 2)))
        for epsilon in EPSILONS:
            bound = profile.delta(epsilon)
            truth = max(hockey_stick(p, other, epsilon), hockey_stick(other, p, epsilon))
            assert truth <= bound + 1e-9
            worst = max(worst, truth / bound)
    assert worst > 0.5  # the attack comes near


@pytest.mark.parametrize("adjacency", ["remove", "add", "replace_one"])
def test_declared_guarantees_against_finite_mechanisms(adjacency: str) -> None:
    """Outputs M(S) on a few outcomes, neighbours within e^epsilon of each other; all events are tried."""
    k, q, epsilon, rng = 2, 0.35, 0.6, np.random.default_rng(8)
    profile = hs.account(hs.UserLevel(hs.PoissonSampled(hs.PureDP(epsilon), q), k), adjacency)
    worst = 0.0
    for _ in range(300):
        # Weights e^{<= epsilon/2} change by at most e^epsilon in all, with the normalisation.
        base = rng.dirichlet(np.ones(4))
        tilts = rng.choice([-0.25, 0.25], (2, k, 4)) * epsilon

        def law(tilt: Array, base: Array = base) -> Array:
            total = np.zeros(4)
            for coins in itertools.product([0, 1], repeat=k):
                weights = base * np.exp(np.array(coins) @ tilt)
                total += q ** sum(coins) * (1 - q) ** (k - sum(coins)) * weights / weights.sum()
            return total

        p, other = law(tilts[0]), law(tilts[1]) if adjacency == "replace_one" else law(0.0 * tilts[0])
        if adjacency == "add":
            p, other = other, p
        for level in EPSILONS:
            truth, bound = hockey_stick(p, other, level), profile.delta(level)
            assert truth <= bound + 1e-12
            worst = max(worst, truth / bound if bound > 1e-6 else 0.0)
    assert worst > 0.3


def test_the_issue_number_and_the_peer() -> None:
    accounting = pytest.importorskip("dp_accounting")
    run = hs.dp_sgd(2.0, 60_000, 600, steps=1000, examples_per_user=4)
    bounds = hs.account(run, accuracy=1e-6).epsilon_bounds(1e-5)
    assert bounds.lower <= 2.893385 <= bounds.upper + 1e-5
    event = accounting.dp_event.MixtureOfGaussiansDpEvent(
        2.0, list(range(5)), list(binom.pmf(range(5), 4, 0.01))
    )
    peer = accounting.pld.PLDAccountant(value_discretization_interval=1e-3)
    assert bounds.lower <= peer.compose(event, 1000).get_epsilon(1e-5) <= bounds.upper * 1.001
    report = hs.account(run).report(delta=1e-5)
    assert report.unit == "one user with at most 4 records is added or removed"


@pytest.mark.parametrize(
    ("k", "q"), [(1, 0.2), (4, 1e-300), (7, 1.0), (9, 1.0 - 1e-15), (3000, 0.3), (100_000, 1e-5)]
)
def test_cells_hold_the_binomial_law(k: int, q: float) -> None:
    cells = binomial_cells(k, Fraction(q))
    assert len(cells) <= 258
    for above in (True, False):
        law = law_of(cells, above)
        assert abs(math.fsum(law.values()) - 1.0) < 1e-15
        sizes = np.array(sorted(law))
        mass = np.cumsum([law[s] for s in sizes[::-1].tolist()])[::-1]
        truth = binom.sf(sizes - 1, k, q)
        assert ((mass - truth) * (1 if above else -1) >= -1e-12 * truth - 1e-307).all()
    if k < 50:
        for low, high, weight in cells:
            if low == high:
                exact = math.comb(k, low) * Fraction(q) ** low * (1 - Fraction(q)) ** (k - low)
                assert abs(Fraction(weight) - exact) <= exact * Fraction(2) ** -53


def aligned(k: int, q: float, sigma: float, epsilon: float, adjacency: str) -> float:
    """The mixture's delta by log-binomials (in 40 digits for few sizes): where the loss is epsilon, and both tails there."""
    sizes = np.arange(k + 1.0)
    if k < 50:
        mp.mp.dps = 60
        logs = [
            mp.log(mp.binomial(k, s)) + s * mp.log(q) + (k - s) * mp.log(1 - mp.mpf(q)) for s in range(k + 1)
        ]
        weights = np.array([float(x) for x in logs])
    else:
        weights = binom.logpmf(sizes, k, q)
    shifts = sizes / sigma

    def density(t: float, sign: float) -> float:
        return float(logsumexp(weights + sign * shifts * t - shifts**2 / 2))

    replaced, add = adjacency == "replace_one", adjacency == "add"

    def loss(t: float) -> float:  # rises with t, or with -t under "add"
        return density(t, 1.0) - (density(t, -1.0) if replaced else 0.0)

    target = -epsilon if add else epsilon
    far = 60.0 + shifts[-1] + abs(epsilon) * sigma
    if (loss(-far) - target) * (loss(far) - target) > 0.0:
        return 0.0
    t = brentq(lambda x: loss(x) - target, -far, far, xtol=1e-13, rtol=1e-15)
    side = 1.0 if add else -1.0
    mixed = float(logsumexp(weights + log_ndtr(side * (t - shifts))))
    other = float(logsumexp(weights + log_ndtr(-t - shifts))) if replaced else float(log_ndtr(side * t))
    p, x = (other, mixed) if add else (mixed, other)
    return math.exp(p) - math.exp(epsilon + x)


def released(k: int, q: float, epsilon: float, delta_of: object) -> float:
    """gamma sum_l w_l delta_l(epsilon'), 1 + (e^epsilon - 1)/gamma = e^epsilon'."""
    seen = -math.expm1(k * math.log1p(-q))
    inner = math.log1p(math.expm1(epsilon) / seen)
    terms = (math.exp(binom.logpmf(s, k, q)) * delta_of(s, inner) for s in range(1, k + 1))  # type: ignore[operator]
    return math.fsum(terms)


def gaussian(mu: float, e: float) -> float:
    return math.exp(log_ndtr(mu / 2 - e / mu)) - math.exp(e + log_ndtr(-mu / 2 - e / mu))


def laplace(reach: float, e: float) -> float:
    return max(0.0, -math.expm1((e - reach) / 2))


SLACK = 1e-11
"""Of the oracles, which are computed in doubles."""


@pytest.mark.parametrize(
    ("k", "q", "sigma", "epsilon", "adjacency", "width"),
    [
        (2, 1 - 1e-13, 0.2, 48.0, "add", 1e-10),
        (2000, 0.01, 60.0, 0.5, "remove", 1e-8),
        (1000, 0.5, 200.0, 2.0, "remove", 1e-8),
        (100_000, 0.5, 20_000.0, 1.0, "remove", 2e-4),
        (1000, 0.5, 200.0, 1.5, "add", 1e-8),
    ],
)
def test_lower_bounds_of_many_sizes(
    k: int, q: float, sigma: float, epsilon: float, adjacency: str, width: float
) -> None:
    step = hs.UserLevel(hs.PoissonSampled(hs.Gaussian(sigma), q), k)
    bounds, truth = (
        hs.account(step, adjacency).delta_bounds(epsilon),
        aligned(k, q, sigma, epsilon, adjacency),
    )
    assert bounds.lower <= truth * (1 + SLACK)
    assert truth * (1 - SLACK) <= bounds.upper <= bounds.lower * (1 + width)


def test_lower_epsilon_where_examples_are_hardly_ever_left_out() -> None:
    step = hs.UserLevel(hs.PoissonSampled(hs.Gaussian(0.2), 1 - 1e-13), 2)
    bounds = hs.account(step, "add").epsilon_bounds(0.3)
    assert bounds.lower <= bounds.upper <= bounds.lower + 1e-9
    assert aligned(2, 1 - 1e-13, 0.2, bounds.lower - 1e-9, "add") >= 0.3
    assert aligned(2, 1 - 1e-13, 0.2, bounds.upper + 1e-9, "add") <= 0.3


def test_random_users_lie_between_their_bounds() -> None:
    rng = np.random.default_rng(11)
    for trial in range(24):
        k = int(rng.choice([2, 3, 7, 30, 400, 1500]))
        q = float(rng.choice([0.01, 0.3, 0.9, 1 - 1e-6]))
        sigma = float(rng.uniform(0.3, 2.0)) * max(1.0, k * q / 3)
        adjacency = ("remove", "add", "replace_one", "zero_out")[trial % 4]
        profile = hs.account(hs.UserLevel(hs.PoissonSampled(hs.Gaussian(sigma), q), k), adjacency)
        for epsilon in (0.2, 1.5):
            kinds = ("remove", "add") if adjacency == "zero_out" else (adjacency,)
            truth = max(aligned(k, q, sigma, epsilon, kind) for kind in kinds)
            bounds = profile.delta_bounds(epsilon)
            assert bounds.lower <= truth * (1 + SLACK) + 1e-15
            assert truth * (1 - SLACK) - 1e-15 <= bounds.upper <= bounds.lower * (1 + 1e-4) + 1e-12


@pytest.mark.parametrize(
    ("k", "q", "scale"), [(3, 0.2, 2.0), (400, 0.5, 200.0), (2000, 0.5, 1000.0), (3, 0.99, 2.0)]
)
def test_released_sizes_lie_between_their_bounds(k: int, q: float, scale: float) -> None:
    step = hs.UserLevel(hs.PoissonSampled(hs.Laplace(scale), q), k)
    bounds = hs.account(step, "remove").delta_bounds(0.5)
    truth = released(k, q, 0.5, lambda size, e: laplace(size / scale, e))
    assert bounds.lower <= truth * (1 + SLACK)
    assert truth * (1 - SLACK) <= bounds.upper <= bounds.lower * (1 + 1e-6)


@pytest.mark.parametrize(
    ("m", "n", "sigma"), [(5000, 10, 1000.0), (400, 2, 200.0), (256, 60_000, 1.0), (7, 3, 2.0)]
)
def test_draws_with_replacement_lie_between_their_bounds(m: int, n: int, sigma: float) -> None:
    bounds = hs.account(hs.WithReplacement(hs.Gaussian(sigma), m, n), "replace_one").delta_bounds(1.0)
    truth = released(m, 1 / n, 1.0, lambda size, e: gaussian(2 * size / sigma, e))
    assert bounds.lower <= truth * (1 + SLACK)
    assert truth * (1 - SLACK) <= bounds.upper <= bounds.lower * (1 + 1e-6)


def test_groups_of_unsampled_mechanisms_are_their_own() -> None:
    for adjacency in ("add_or_remove", "replace_one"):
        for alone, group in [(hs.Gaussian(2.0), hs.Gaussian(0.5)), (hs.Laplace(4.0), hs.Laplace(1.0))]:
            assert hs.account(hs.UserLevel(alone, 4), adjacency).epsilon_bounds(1e-6) == hs.account(
                group, adjacency
            ).epsilon_bounds(1e-6)
    assert hs.account(hs.UserLevel(hs.PureDP(0.5), 3)).epsilon(0.0) == pytest.approx(1.5)
    step = hs.PoissonSampled(hs.Gaussian(1.0), 0.1)
    assert hs.account(hs.UserLevel(step, 1) * 9).epsilon_bounds(1e-6) == hs.account(step * 9).epsilon_bounds(
        1e-6
    )


def test_what_is_refused() -> None:
    with pytest.raises(hs.ParameterTypeError, match="unsampled mechanism"):
        hs.UserLevel(hs.WithoutReplacement(hs.Gaussian(1.0), 3, 10), 2)
    with pytest.raises(hs.ParameterError, match="max_batch_size"):
        hs.dp_sgd(1.0, 100, 10, steps=3, max_batch_size=20, examples_per_user=2)
    with pytest.raises(hs.ParameterError, match="examples_per_user"):
        hs.UserLevel(hs.Gaussian(1.0), 0)


def test_users_who_are_hardly_ever_sampled() -> None:
    """Of two steps one sees the user with probability about 8 q: that often the outputs are as far apart as one use."""
    step, q = hs.UserLevel(hs.PoissonSampled(hs.Gaussian(0.5), 1e-60), 4), 1e-60
    apart = hs.account(hs.Gaussian(0.5)).delta_bounds(0.0).lower
    for process in (step * 2, step * 2 + hs.Laplace(1e9)):
        assert hs.account(process).delta(0.0) >= 8.0 * q * apart * 0.999


@pytest.mark.parametrize("adjacency", ["remove", "add", "replace_one"])
@pytest.mark.parametrize("sigma", [0.0, 1e-160, 1e-20, 1e-6, 5e-5])
@pytest.mark.parametrize("steps", [1, 3])
def test_without_noise_a_user_who_is_drawn_is_seen(adjacency: str, sigma: float, steps: int) -> None:
    """And where the user is not in it, what shows nothing is e^epsilon times less likely than it would be."""
    step = hs.UserLevel(hs.PoissonSampled(hs.Gaussian(sigma), 0.01), 300)
    bounds = hs.account(step * steps, adjacency).delta_bounds(0.5)
    hidden = (1 - mp.mpf(0.01)) ** (300 * steps)
    truth = 1 - (mp.exp(0.5) if adjacency == "add" else 1) * hidden
    assert bounds.lower <= truth <= bounds.upper
    assert bounds.upper <= bounds.lower * (1 + 1e-6)


@pytest.mark.parametrize("epsilon", [0.0, 1e-14, 1e-12, 0.5])
@pytest.mark.parametrize(
    ("sigma", "q", "k"), [(0.1, 0.01, 2), (0.05, 0.1, 3), (0.12, 1e-3, 2), (0.15, 1e-5, 2)]
)
def test_little_noise_tells_whether_a_user_was_drawn(sigma: float, q: float, k: int, epsilon: float) -> None:
    """Where nobody was drawn the loss is level, and a search for the end of that went past all of the loss: delta <= 1."""
    process = hs.UserLevel(hs.PoissonSampled(hs.Gaussian(sigma), q), k).as_process()
    bounds = hs.account(process, adjacency="replace_one").delta_bounds(epsilon)
    with mp.workdps(40):
        weights = [mp.binomial(k, i) * mp.mpf(q) ** i * (1 - mp.mpf(q)) ** (k - i) for i in range(k + 1)]
        mu = 1 / mp.mpf(sigma)

        def ratio(t: mp.mpf) -> mp.mpf:
            up, down = (
                mp.fsum(w * mp.exp(side * i * mu * t - (i * mu) ** 2 / 2) for i, w in enumerate(weights))
                for side in (1, -1)
            )
            return mp.log(up / down) - epsilon

        low, high = mp.mpf(-1), mp.mpf(400)
        for _ in range(150):
            middle = (low + high) / 2
            low, high = (low, middle) if ratio(middle) > 0 else (middle, high)
        truth = mp.fsum(
            w * (mp.ncdf(i * mu - high) - mp.exp(epsilon) * mp.ncdf(-i * mu - high))
            for i, w in enumerate(weights)
        )
        assert bounds.lower <= truth <= bounds.upper
        assert bounds.upper <= truth * (1 + 1e-6)
        assert bounds.lower >= truth * (1 - 1e-6)


def test_the_unit_is_what_every_step_is_accounted_for() -> None:
    step, count = hs.PoissonSampled(hs.Gaussian(2.0), 0.01), hs.Gaussian(5.0)
    users = hs.UserLevel(step, 4) * 100
    for release, covered in [
        (users + count, 1),
        (users + hs.UserLevel(count, 2), 2),
        (users + count * 0 + hs.PureDP(0.0), 4),
        (hs.Mixture([hs.UserLevel(step, 4), count], [0.5, 0.5]), 1),
        (hs.PrivateSelection(users + count, hs.Repetitions.fixed(2)), 1),
        (hs.mechanisms.Group(step, 3) + hs.UserLevel(count, 2), 2),
        (hs.Gaussian(1.0) * 0, 1),
    ]:
        report = hs.account(release).report(epsilon=0.5, risks=False)
        said = re.search(r"at most (\d+) records", report.unit)
        owned = 1 if said is None else int(said[1])
        assert owned == covered
        assert report.deployment.contribution_bound.startswith("at most") == (covered > 1)
        # What one user of so many records does to the plain Gaussian step alone.
        if any(
            count in (part, getattr(part, "mechanism", None)) for part in release.as_process().alternatives()
        ):
            mu = owned / 5.0
            alone = norm.cdf(mu / 2 - 0.5 / mu) - math.exp(0.5) * norm.cdf(-mu / 2 - 0.5 / mu)
            share = 0.5 if isinstance(release, hs.Mixture) else 1.0
            assert share * alone <= report.delta.upper  # type: ignore[union-attr]


def test_groups_of_revealed_records_are_revealed_as_often() -> None:
    for size in (2, 5):
        step = hs.UserLevel(hs.ApproximateDP(0.0, 0.01), size)
        assert hs.account(step).delta(0.0) >= size * 0.01 * (1.0 - 1e-12)
