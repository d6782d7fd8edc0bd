"""The contract at its edges: every valid input has a finite correct answer in bounded time and memory."""

from __future__ import annotations

import json
import math
import select
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import hockeystick as hs
import mpmath as mp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bench.baselines import exact

SECONDS = 10.0  # a watchdog: an answer that takes longer counts as hanging
MEGABYTES = 1024

WORKER = """
import json, resource, sys
import hockeystick as hs

resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))  # spare the machine

for line in sys.stdin:
    sigma, q, steps, value, adjacency, kind = json.loads(line)
    process = hs.PoissonSampled(hs.Gaussian(sigma), q) * steps
    profile = hs.account(process, adjacency=adjacency)
    bounds = profile.epsilon_bounds(delta=value) if kind == "epsilon" else profile.delta_bounds(epsilon=value)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([bounds.lower, bounds.upper, peak]), flush=True)
"""


class Worker:
    """A process that answers questions, is timed, and is replaced after it hung or died."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def ask(self, *question) -> tuple[float, float]:
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                [sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            self.ask(1.0, 1.0, 1, 1e-5, "remove", "epsilon")  # start-up does not count
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], SECONDS)[0]:
            self.stop()
            pytest.fail(f"no answer within {SECONDS:g} s to {question}")
        line = self.process.stdout.readline()
        assert line, f"the process died on {question}"
        lower, upper, peak = json.loads(line)
        if peak > MEGABYTES:
            self.stop()
            pytest.fail(f"{peak:.0f} MB for {question}")
        return lower, upper

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    instance = Worker()
    yield instance
    instance.stop()


sigmas = st.one_of(st.sampled_from([0.01, 0.05, 1.0, 1e6]), st.floats(-2, 6).map(lambda e: 10.0**e))
rates = st.one_of(st.sampled_from([0.0, 1e-12, 1e-3, 1.0]), st.floats(-12, 0).map(lambda e: 10.0**e))
counts = st.one_of(st.sampled_from([0, 1, 10**9]), st.floats(0, 9).map(lambda e: round(10.0**e)))
deltas = st.one_of(st.sampled_from([0.0, 1e-300, 1.0]), st.floats(-300, -0.1).map(lambda e: 10.0**e))
adjacencies = st.sampled_from(["remove", "add", "add_or_remove"])


def mu_of(sigma: float, steps: int) -> mp.mpf:
    return mp.sqrt(steps) / mp.mpf(sigma)


@given(sigma=sigmas, q=rates, steps=counts, delta=deltas, adjacency=adjacencies)
@example(0.05, 0.01, 1000, 1e-5, "add_or_remove")  # every peer that composes losses fails here
@example(0.02, 0.01, 10, 1e-5, "remove")
@example(0.02, 1e-3, 1000, 1e-9, "remove")
@example(0.1, 1e-5, 10**6, 1e-12, "add_or_remove")
@example(0.01, 1e-12, 10**9, 1e-5, "remove")
@example(0.01, 1e-12, 10**9, 1e-300, "add_or_remove")
@example(0.01, 1.0, 10**9, 1e-300, "add_or_remove")
@example(1e6, 1e-12, 10**9, 1e-5, "add")
@example(1e6, 0.5, 1, 1e-300, "remove")
@settings(max_examples=60, deadline=None, derandomize=True)
def test_epsilon(worker: Worker, sigma: float, q: float, steps: int, delta: float, adjacency: str) -> None:
    lower, upper = worker.ask(sigma, q, steps, delta, adjacency, "epsilon")
    assert 0.0 <= lower <= upper  # false for nan
    if steps == 0 or q == 0.0 or delta == 1.0:
        assert (lower, upper) == (0.0, 0.0)
        return
    if delta == 0.0:
        if adjacency != "add" or q == 1.0:
            assert (lower, upper) == (math.inf, math.inf)
        else:  # the loss of "add" is at most -ln(1-q)
            truth = -steps * mp.log1p(-mp.mpf(q))
            assert lower <= truth * (1 + mp.mpf(10) ** -12)
            assert upper >= truth * (1 - mp.mpf(10) ** -12)
        return
    with mp.workdps(exact.DIGITS):
        mu = mu_of(sigma, steps)
        # Sampling helps, and more steps cost more. "add" is at most -T ln(1-q), too.
        unsampled = exact.gaussian_epsilon(mu, delta)
        assert lower <= unsampled * (1 + mp.mpf(10) ** -13)
        assert upper < math.inf
        if q == 1.0:
            assert upper >= unsampled * (1 - mp.mpf(10) ** -13)
        if adjacency != "add":
            assert upper >= exact.sampled_once_epsilon(1 / mp.mpf(sigma), q, delta) * (1 - mp.mpf(10) ** -12)
        else:
            assert lower <= -steps * mp.log1p(-mp.mpf(q)) * (1 + mp.mpf(10) ** -12) if q < 1 else True


@given(sigma=sigmas, q=rates, steps=counts, epsilon=st.floats(0.0, 1000.0), adjacency=adjacencies)
@example(0.01, 1e-12, 10**9, 1000.0, "add_or_remove")
@example(0.3, 0.01, 100, 1000.0, "remove")
@settings(max_examples=40, deadline=None, derandomize=True)
def test_delta(worker: Worker, sigma: float, q: float, steps: int, epsilon: float, adjacency: str) -> None:
    lower, upper = worker.ask(sigma, q, steps, epsilon, adjacency, "delta")
    assert 0.0 <= lower <= upper <= 1.0
    if steps == 0 or q == 0.0:
        assert (lower, upper) == (0.0, 0.0)
        return
    with mp.workdps(max(exact.DIGITS, 30)):
        unsampled = exact.gaussian_delta(mu_of(sigma, steps), epsilon)
        smallest = mp.mpf(10) ** -307  # below this, doubles lose their relative precision
        assert lower <= unsampled * (1 + mp.mpf(10) ** -11) + smallest
        if q == 1.0:
            assert upper >= unsampled * (1 - mp.mpf(10) ** -11) - smallest
        elif adjacency != "add":
            level = mp.log1p(mp.expm1(mp.mpf(epsilon)) / mp.mpf(q))
            once = mp.mpf(q) * exact.gaussian_delta(1 / mp.mpf(sigma), level)
            assert upper >= once * (1 - mp.mpf(10) ** -11) - smallest


@pytest.mark.parametrize("steps", [0, 1, 10**9])
@pytest.mark.parametrize("q", [0.0, 1e-12, 0.3, 1.0])
def test_no_noise_means_no_privacy(q: float, steps: int) -> None:
    account = hs.account(hs.PoissonSampled(hs.Gaussian(0.0), q) * steps, adjacency="remove")
    if q == 0.0 or steps == 0:
        assert account.epsilon_bounds(delta=1e-5) == (0.0, 0.0)
    elif q * steps > 1:
        assert account.epsilon_bounds(delta=1e-5) == (math.inf, math.inf)
    else:  # the record is revealed exactly when it is sampled
        revealed = -math.expm1(steps * math.log1p(-q)) if q < 1 else 1.0
        lower, upper = account.delta_bounds(epsilon=3.0)
        assert lower <= revealed * (1 + 1e-9)
        assert upper >= revealed * (1 - 1e-9)


def test_a_small_memory_limit_widens_the_interval_instead_of_failing() -> None:
    process = hs.PoissonSampled(hs.Gaussian(1.0), 0.01) * 1000
    narrow = hs.account(process, accuracy=1e-7, memory_limit=2**30, engine="fft").epsilon_bounds(delta=1e-5)
    wide = hs.account(process, accuracy=1e-7, memory_limit=2**20, engine="fft").epsilon_bounds(delta=1e-5)
    assert wide.upper - wide.lower >= narrow.upper - narrow.lower
    for bounds in (narrow, wide):
        assert bounds.lower <= 1.8282366667
        assert bounds.upper >= 1.8282366666
    assert wide.upper < math.inf


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1.0, "1", None, [1.0], 1j, True])
@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("noise_multiplier", lambda bad: hs.Gaussian(bad)),
        ("scale", lambda bad: hs.Laplace(bad)),
        ("sampling_probability", lambda bad: hs.PoissonSampled(hs.Gaussian(1.0), bad)),
        ("steps", lambda bad: hs.Gaussian(1.0) * bad),
        ("delta", lambda bad: hs.account(hs.Gaussian(1.0)).epsilon(delta=bad)),
        ("accuracy", lambda bad: hs.account(hs.Gaussian(1.0), accuracy=bad)),
        ("memory_limit", lambda bad: hs.account(hs.Gaussian(1.0), memory_limit=bad)),
    ],
)
def test_invalid_input_is_named(name: str, use, bad: object) -> None:
    with pytest.raises((ValueError, TypeError), match=rf"^{name}\b") as caught:
        use(bad)
    assert "must be" in str(caught.value)


@pytest.mark.parametrize("delta", [-1e-9, 1.0 + 1e-9, 2, np.nan])
def test_delta_outside_the_unit_interval(delta: float) -> None:
    with pytest.raises(ValueError, match="delta"):
        hs.account(hs.Gaussian(1.0)).epsilon(delta=delta)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("mechanism", "q", "steps", "adjacency"),
    [
        (hs.Gaussian(1.0), 1e-20, 10, "remove"),
        (hs.Gaussian(1.0), 1e-30, 10**6, "remove"),
        (hs.Gaussian(1.0), 1e-30, 10, "add"),
        (hs.Laplace(1.0), 1e-16, 10**6, "remove"),
        (hs.FinitePair([0.2, 0.3, 0.5], [0.3, 0.3, 0.4]), 1e-16, 10, "add"),
    ],
    ids=str,
)
def test_a_record_that_is_never_sampled_is_safe(
    mechanism: hs.Step, q: float, steps: int, adjacency: str
) -> None:
    """Where losses are lost among their rounding, delta is no more than the chance to be sampled at all, and no less than that in one step."""
    account = hs.account(hs.PoissonSampled(mechanism, q) * steps, adjacency)
    distance = hs.account(mechanism).delta_bounds(0.0)
    for epsilon in (0.0, 1e-30, 1e-3, 0.5):
        assert account.delta_bounds(epsilon).upper <= steps * q * distance.upper * (1 + 1e-6)
    assert account.delta_bounds(0.0).upper >= q * distance.lower
    assert account.epsilon_bounds(steps * q) == (0.0, 0.0)


@pytest.mark.parametrize("epsilon", [0.7, 0.8, 0.9, 1.0, 1.02])
def test_less_than_any_normal_delta_is_known_to_be_so(epsilon: float) -> None:
    """Large losses that are rarer still keep tilts small. ln(delta) is -436, -624 and -729 at .5, .6 and .65: -845 or so at .7."""
    process = hs.PoissonSampled(hs.Gaussian(6.953), 4.2e-4) * 15104 + hs.Gaussian(233)
    bounds = hs.account(process, adjacency="replace_one").delta_bounds(epsilon)
    assert bounds.lower == 0.0
    assert 0.0 < bounds.upper < 1e-315


@pytest.mark.parametrize("steps", [1.5, 1.0, np.float64(3.0)])
def test_a_fractional_number_of_steps_is_refused(steps: float) -> None:
    with pytest.raises(TypeError, match="steps"):
        hs.Gaussian(1.0) * steps


@pytest.mark.parametrize("noise", [1e9, 1e140, 1e153, 1e160, 1e200, 1e300])
def test_noise_of_any_size_leaves_a_finite_epsilon(noise: float) -> None:
    """delta(z mu) = mu (phi(z) - z Phi(-z)) up to a relative mu, and epsilon < mu^2/2 + mu sqrt(2 ln 1/delta)."""
    profile = hs.account(hs.Gaussian(noise))
    for z in (0.5, 3.0, 20.0):
        truth = (mp.npdf(z) - z * mp.ncdf(-z)) / mp.mpf(noise)
        assert truth * (1 - 2 / mp.mpf(noise)) <= profile.delta(z / noise)
    for delta in (1e-20, 1e-60, 1e-200):
        assert 0.0 < profile.epsilon(delta) * noise < math.sqrt(-2.0 * math.log(delta)) + 1.0 / noise


def test_the_least_losses_have_a_least_epsilon() -> None:
    """The search for the lower end starts at a share of the upper one, which may be too small for a double."""
    for shift in (5e-324, 6.4e-309, 1e-300):
        profile = hs.account(hs.MixtureOfGaussians(1.0, (0.0, shift), (0.5, 0.5)), "remove")
        for delta in (5e-324, 1e-300, 1e-20):
            lower, upper = profile.epsilon_bounds(delta)
            assert 0.0 <= lower <= upper < 1e-290


MANY = 2**53 - 1


@pytest.mark.parametrize(
    ("step", "largest", "tv"),
    [
        (
            hs.PoissonSampled(hs.RandomizedResponse(1e-162), 1e-162),
            Fraction(1, 10**324),
            Fraction(1, 4 * 10**324),
        ),
        (
            hs.PoissonSampled(hs.PureDP(5e-324), 0.3),
            Fraction(3, 10) * Fraction(5e-324),
            Fraction(1, 15) * Fraction(5e-324),
        ),
        (hs.PoissonSampled(hs.PureDP(1e-24), 1e-300), Fraction(1, 10**324), Fraction(1, 4 * 10**324)),
        (hs.PoissonSampled(hs.Laplace(1e200), 1e-200), Fraction(1, 10**400), Fraction(1, 10**401)),
        (hs.PoissonSampled(hs.Laplace(1e12), 1e-315), Fraction(99, 10**329), Fraction(1, 10**328)),
        (hs.PoissonSampled(hs.DiscreteLaplace(1e12), 1e-315), Fraction(99, 10**329), Fraction(1, 10**328)),
        (
            hs.PoissonSampled(hs.PoissonSampled(hs.PureDP(1e-100), 1e-100), 1e-150),
            Fraction(1, 10**350),
            Fraction(1, 10**351),
        ),
    ],
)
@pytest.mark.parametrize("adjacency", ["add", "remove", "add_or_remove", "replace_one"])
def test_losses_below_the_least_double_are_losses(
    step: Any, largest: Fraction, tv: Fraction, adjacency: str
) -> None:
    """The largest loss, about q epsilon, rounded to 0, and so did the release's epsilon; nor is one step's delta 0.

    ``tv``: no more than the total variation of one step, whose sum over many grows with the root of their number at least.
    """
    for steps in (1, MANY):
        profile = hs.account(step * steps, adjacency)
        assert Fraction(profile.epsilon(0.0)) >= steps * largest * (1 - Fraction(1, 10**9))
        assert Fraction(profile.delta(0.0)) >= min(tv * math.isqrt(steps), Fraction(5e-324))
        assert profile.epsilon(0.0) < 1e-300
    orders = [2.0, 1e6, math.inf]
    curve = hs.accounting.rdp_curve(step * MANY, orders, adjacency=adjacency)[1]
    assert (curve > 0.0).all()
    assert Fraction(float(curve[-1])) >= MANY * largest * (1 - Fraction(1, 10**9))


@pytest.mark.parametrize("noise", [1e153, 1e300])
def test_many_steps_of_losses_whose_squares_are_no_doubles_are_answered(noise: float) -> None:
    """The product of two such losses is 0, and the search of the middle between them, under replace_one, did not end."""
    profile = hs.account(hs.PoissonSampled(hs.Gaussian(noise), 1e-15) * 1000, adjacency="replace_one")
    lower, upper = profile.epsilon_bounds(1e-300)
    assert (
        0.0 <= lower <= 2500.0 / noise
    )  # of whole batches: mu = 2 sqrt(1000) / noise, and sqrt(2 ln 1e300) < 38
    assert lower < upper < 1e-9


@pytest.mark.parametrize("epsilon", [2.9e307, 3e307, 4e307, 8e307, 1.7e308])
@pytest.mark.parametrize("engine", ["auto", "fft"])
def test_losses_next_to_the_largest_double_count(epsilon: float, engine: str) -> None:
    """Six times a loss overflowed in an error bound: the epsilon of PureDP(8e307) was 0."""
    for step in (
        hs.PureDP(epsilon),
        hs.RandomizedResponse(epsilon, 5),
        hs.mechanisms.ExponentialMechanism(epsilon),
        hs.PrivacyLoss([epsilon], [1.0], add=hs.PrivacyLoss([epsilon], [1.0])),
        hs.mechanisms.UserLevel(hs.PureDP(epsilon), 1),
    ):
        for steps in (1, 2):
            profile = hs.account(step * steps, engine=engine)
            for delta in (0.0, 1e-12, 1e-5, 0.3):
                assert profile.epsilon(delta) >= min(steps * epsilon, 1.797e308) * (1.0 - 1e-12)
            assert profile.delta(0.9 * epsilon) >= 1.0 - 1e-12


@pytest.mark.sweep
@pytest.mark.parametrize("epsilon", [2.9e307, 8e307, 1.7e308])
@pytest.mark.parametrize("engine", ["auto", "fft"])
def test_sampled_losses_next_to_the_largest_double_count(epsilon: float, engine: str) -> None:
    sampled = hs.account(hs.PoissonSampled(hs.PureDP(epsilon), 0.5) * 2, engine=engine)
    assert sampled.epsilon(1e-5) >= epsilon * (1.0 - 1e-12)


def test_noise_beside_which_every_loss_rounds_away() -> None:
    """Steps of so much noise are told by 1e-17 and less, which is what logarithms of densities are off by."""
    laplace = hs.account(hs.PoissonSampled(hs.Laplace(1e17), 0.5) * 2, "replace_one")
    # Both losses are the largest, 1e-17 after sampling, with a probability of more than 1/4 (1 - 1e-16).
    assert laplace.delta_bounds(1e-17).upper >= 0.249 * 1e-17
    # (1 - q) N(0, 1) + q N(mu, 1) beside (1 - q) N(0, 1) + q N(-mu, 1), to the first order of mu, q = 1/2: GDP of mu = 1/sigma.
    for sigma, steps in ((1e18, 9 * 10**15), (3e17, 10**12)):
        profile = hs.account(hs.WithoutReplacement(hs.Gaussian(sigma), 1, 2) * steps, "replace_one")
        mu = mp.sqrt(steps) / sigma
        for epsilon in (0.0, float(mu)):
            truth = mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)
            bounds = profile.delta_bounds(epsilon)
            assert bounds.lower <= truth * (1 + mp.mpf(10) ** -9)
            assert bounds.upper >= truth * (1 - mp.mpf(10) ** -9)
        assert profile.epsilon_bounds(1e-14).upper >= float(mu)


@pytest.mark.parametrize(
    ("scale", "steps", "epsilon"),
    [(1e8, 10**8, 0.0), (1e10, 10**10, 0.0), (1e10, 10**10, 1e-5), (1e4, 10**8, 0.5)],
)
def test_very_many_steps_of_laplace_noise_are_a_gaussian_one(
    scale: float, steps: int, epsilon: float
) -> None:
    """Losses are 1/scale either way, but for a share of 1/scale of them; exact sums over them took more than half a minute."""
    mu = mp.sqrt(steps) / scale
    truth = mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)
    bounds = hs.account(hs.Laplace(scale) * steps, "remove").delta_bounds(epsilon)
    assert bounds.lower <= truth * 1.001
    assert bounds.upper >= truth * 0.999
    assert bounds.upper - bounds.lower <= 1e-3 * bounds.upper


@pytest.mark.sweep
@pytest.mark.parametrize("adjacency", ["remove", "add", "replace_one"])
@pytest.mark.parametrize("scale", [1e16, 1e18])
def test_steps_whose_losses_round_away_are_next_to_nothing_beside_others(
    adjacency: str, scale: float
) -> None:
    """Nothing of such a loss is known but how little it is: transforms may not fall by what rounding makes of it."""
    main = hs.PoissonSampled(hs.Gaussian(1.0), 0.01) * 100
    alone = hs.account(main, adjacency)
    for tiny in (
        hs.PoissonSampled(hs.Laplace(scale), 0.5),
        hs.PoissonSampled(hs.Laplace(1.0), 1.0 / scale),
        hs.UserLevel(hs.PoissonSampled(hs.Gaussian(scale), 0.1), 3),
        hs.Mixture(
            [hs.PoissonSampled(hs.Laplace(scale), 0.5), hs.PoissonSampled(hs.Gaussian(scale), 0.5)],
            [0.5, 0.5],
        ),
    ):
        beside = hs.account(main + tiny * 1000, adjacency)
        for epsilon in (0.0, 0.5):
            bounds, without = beside.delta_bounds(epsilon), alone.delta_bounds(epsilon)
            assert bounds.upper >= without.lower * (1.0 - 1e-11)
            assert bounds.lower <= without.upper * (1.0 + 1e-11) + 3000.0 / scale
            assert bounds.upper - bounds.lower <= 1e-3 * bounds.upper
