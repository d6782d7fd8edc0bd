"""engine="prv": its two bounds hold the truth, by closed forms and by the exact engine on random compositions."""

from __future__ import annotations

import math
import random

import hockeystick as hs
import pytest

from bench.baselines import exact


def random_process(rng: random.Random) -> tuple[hs.mechanisms.Process, str]:
    def step() -> hs.mechanisms.Process:
        scale, q = 10 ** rng.uniform(-0.3, 1.2), 10 ** rng.uniform(-4, 0)
        mechanism = rng.choice(
            [
                hs.Gaussian(scale),
                hs.Laplace(scale),
                hs.DiscreteLaplace(scale),
                hs.RandomizedResponse(1.0 / scale),
                hs.PureDP(0.5 / scale),
                hs.ApproximateDP(0.5 / scale, 1e-9),
            ]
        )
        sampled = hs.PoissonSampled(mechanism, q) if rng.random() < 0.7 else mechanism
        return sampled * int(10 ** rng.uniform(0, 3.5))

    return sum((step() for _ in range(rng.choice([1, 1, 2, 3]))), hs.mechanisms.Process()), "replace_one"


def random_added(rng: random.Random) -> tuple[hs.mechanisms.Process, str]:
    steps = [
        hs.PoissonSampled(hs.Gaussian(10 ** rng.uniform(-0.4, 1.5)), 10 ** rng.uniform(-5, -0.1)),
        hs.PoissonSampled(hs.Laplace(10 ** rng.uniform(-0.4, 1.5)), 10 ** rng.uniform(-4, -0.1)),
        hs.TruncatedPoissonSampled(10 ** rng.uniform(-0.2, 0.8), 10_000, 0.01, rng.choice([110, 130, 160])),
    ]
    process = rng.choice(steps) * int(10 ** rng.uniform(0, 3.5))
    return process, rng.choice(["add", "remove", "add_or_remove"])


@pytest.mark.sweep
@pytest.mark.parametrize("draw", [random_process, random_added])
@pytest.mark.parametrize("seed", range(14))
def test_population(draw, seed: int) -> None:  # type: ignore[no-untyped-def]
    rng = random.Random(seed)
    process, adjacency = draw(rng)
    here = hs.account(process, adjacency, accuracy=rng.choice([0.3, 0.1]), engine="prv", memory_limit=2**24)
    there = hs.account(process, adjacency)
    delta = 10 ** rng.uniform(-12, -1)
    epsilon = max(0.0, round(there.epsilon(delta) * rng.uniform(0.3, 1.2), 3))
    if math.isinf(epsilon):
        epsilon = 1.0
    for bounds, truth in [
        (here.epsilon_bounds(delta), there.epsilon_bounds(delta)),
        (here.delta_bounds(epsilon), there.delta_bounds(epsilon)),
        (here.delta_bounds(-0.1), there.delta_bounds(-0.1)),
    ]:
        assert bounds.lower <= bounds.upper
        assert bounds.lower <= truth.upper, (process, adjacency, delta, epsilon)
        assert bounds.upper >= truth.lower, (process, adjacency, delta, epsilon)


@pytest.mark.parametrize("accuracy", [0.5, 0.05, 1e-3])
def test_gaussians_against_mpmath(accuracy: float) -> None:
    # Sampled with probability 1 - 2^-53, so that steps do not merge: all but the plain Gaussian.
    step = hs.PoissonSampled(hs.Gaussian(10.0), 1.0 - 2.0**-53)
    profile = hs.account(step * 50, "remove", accuracy=accuracy, engine="prv")
    for delta in (1e-2, 1e-6, 1e-10):
        truth = float(exact.gaussian_epsilon(50**0.5 / 10, delta))
        lower, upper = profile.epsilon_bounds(delta)
        assert lower <= truth * (1 + 1e-12)
        assert upper >= truth * (1 - 1e-12)
        assert upper - lower <= 1.05 * accuracy * upper


def test_w1_is_as_close_as_asked() -> None:
    process = hs.PoissonSampled(hs.Gaussian(1.0), 0.01) * 1000
    profile = hs.account(process, "remove", accuracy=0.05, engine="prv")
    lower, upper = profile.epsilon_bounds(1e-5)
    assert lower <= 1.8282366665165769 <= upper <= 1.06 * lower
    answer = profile.report(delta=1e-5).epsilon
    assert answer is not None
    assert answer.engine == "prv"
    assert set(profile.delta_curve([0.5, 1.0])[0]) == {profile.delta_bounds(x).lower for x in (0.5, 1.0)}


def test_limits() -> None:
    for process in (hs.Gaussian(1.0) * 3, hs.PureDP(0.3) * 4, hs.ApproximateDP(0.1, 1e-3) * 2):
        here, there = (hs.account(process, "remove", engine=engine) for engine in ("prv", "auto"))
        for delta in (0.0, 1e-4, 1.0):
            a, b = here.epsilon_bounds(delta), there.epsilon_bounds(delta)
            assert a.lower <= b.upper
            assert a.upper >= b.lower
        assert here.delta(-math.inf) == 1.0
        assert here.delta_bounds(math.inf) == there.delta_bounds(math.inf)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "process",
    [
        hs.PoissonSampled(hs.Gaussian(0.01), 1e-3) * 3,
        hs.PoissonSampled(hs.Gaussian(1e6), 1e-6) * 10**9,
        hs.Gaussian(1e-3) * 10**9,
        hs.PoissonSampled(hs.Laplace(1e-3), 0.5) * 10**6,
    ],
)
def test_extremes_neither_hang_nor_are_wrong(process: hs.mechanisms.Process) -> None:
    here = hs.account(process, engine="prv", accuracy=0.3, memory_limit=2**20)
    there = hs.account(process)
    for epsilon in (0.0, 1.0, 1e3):
        bounds, truth = here.delta_bounds(epsilon), there.delta_bounds(epsilon)
        assert bounds.lower <= truth.upper
        assert bounds.upper >= truth.lower
    assert here.epsilon(1e-5) >= there.epsilon_bounds(1e-5).lower


@pytest.mark.parametrize("epsilon", [-36.7, -37.5, -38.0, -100.0, -700.0])
def test_no_delta_far_below_zero_is_all_of_it(epsilon: float) -> None:
    """1 - e^epsilon was rounded to 1, which no delta of finite losses is."""
    for process in (
        hs.Gaussian(1.0) * 2,
        hs.RandomizedResponse(1.0, 4) * 3,
        hs.PoissonSampled(hs.Laplace(1.0), 0.1) * 5,
    ):
        for engine in ("prv", "fft", "auto"):
            assert hs.account(process, engine=engine).delta_bounds(epsilon).lower < 1.0
