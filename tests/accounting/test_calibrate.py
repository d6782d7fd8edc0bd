"""Calibrated values fit, their neighbours do not, and what cannot be reached is refused with a reason."""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Callable
from typing import Any

import hockeystick as hs
import mpmath as mp
import pytest
from hockeystick._base.search import Axis, Search, Verdict
from hockeystick.cli.commands import main
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.baselines import exact

ROUND = 1e-9  # the closed forms are solved to many digits, the engine answers to about 1e-13


def sampled(sigma: float, q: float) -> hs.PoissonSampled:
    return hs.PoissonSampled(hs.Gaussian(sigma), q)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The mu of the Gaussian that spends the budget exactly (Balle, Wang 2018, Theorem 8)."""
    with mp.workdps(400 if delta < 1e-100 else 60):
        low, high = mp.mpf(10) ** -15, mp.mpf(10) ** 5
        for _ in range(120):
            middle = mp.sqrt(low * high)
            low, high = (middle, high) if exact.gaussian_delta(middle, epsilon) < delta else (low, middle)
        return float(low)


def assert_certified(
    found: hs.accounting.CalibratedFloat | hs.accounting.CalibratedInt, make: Callable[[Any], Any]
) -> None:
    """Both statements of the certificate hold when asked again."""
    proof = found.certificate
    assert type(proof.value) is (int if isinstance(found, int) else float)
    assert found == proof.value
    assert proof.description == make(proof.value)
    assert 0.0 <= proof.epsilon_bounds.lower <= proof.epsilon_bounds.upper <= proof.epsilon

    def bounds(value: float, accuracy: float) -> tuple[hs.Bounds, hs.Bounds]:
        profile = hs.account(make(value), proof.adjacency, accuracy)
        return profile.epsilon_bounds(proof.delta), profile.delta_bounds(proof.epsilon)

    epsilon, delta = bounds(proof.value, proof.accuracy)
    assert epsilon.lower <= proof.epsilon
    assert delta.lower <= proof.delta
    assert epsilon.upper <= proof.epsilon or delta.upper <= proof.delta
    if proof.exceeding is not None:
        step = 1 if isinstance(found, int) else proof.tolerance * proof.value
        distance = abs(proof.exceeding - proof.value)
        assert proof.tight == (distance <= step * (1 + ROUND))
        epsilon, delta = bounds(proof.exceeding, min(1e-4, proof.tolerance))
        assert epsilon.lower > proof.epsilon or delta.lower > proof.delta
    else:
        assert proof.at_limit or not proof.tight


@pytest.mark.parametrize("steps", [1, 37, 10**9])
@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(1.0, 1e-6), (0.0, 1e-6), (1e-6, 1e-6), (1e-6, 1e-300), (100.0, 1e-5), (100.0, 1e-300), (5.0, 0.9)],
)
def test_gaussian_against_the_closed_form(epsilon: float, delta: float, steps: int) -> None:
    def make(sigma: float) -> hs.mechanisms.Process:
        return hs.Gaussian(sigma) * steps

    truth = math.sqrt(steps) / gaussian_mu(epsilon, delta)
    # At 1e-300 a closed form in double precision has 13 digits of ln(delta), hence fewer of delta.
    tolerance = 1e-6 if delta > 1e-100 else 1e-5
    found = hs.calibrate_noise_multiplier(make, epsilon, delta, tolerance=tolerance)
    assert found.certificate.tight
    assert truth * (1 - ROUND) <= found <= truth * (1 + tolerance + ROUND)
    assert found.certificate.evaluations <= 8
    assert_certified(found, make)


@given(
    epsilon=st.floats(-4, 2).map(lambda e: 10.0**e),
    delta=st.floats(-250, -0.1).map(lambda e: 10.0**e),
    steps=st.floats(0, 9).map(lambda e: round(10.0**e)),
)
@settings(max_examples=25, deadline=None, derandomize=True)
def test_gaussian_at_random(epsilon: float, delta: float, steps: int) -> None:
    found = hs.calibrate_noise_multiplier(lambda s: hs.Gaussian(s) * steps, epsilon, delta)
    truth = math.sqrt(steps) / gaussian_mu(epsilon, delta)
    assert found.certificate.tight
    if found.certificate.at_limit:
        assert found == 0.01
        assert truth <= found
    else:
        assert truth * (1 - 1e-8) <= found <= truth * (1 + 1e-6 + 1e-8)


def test_w9() -> None:
    def make(sigma: float) -> hs.mechanisms.Process:
        return sampled(sigma, 0.005) * 10_000

    found = hs.calibrate_noise_multiplier(make, epsilon=1.0, delta=1e-6)
    assert 2.243371045 <= found <= 2.243371055 * (1 + 1e-6)
    assert found.certificate.tight
    assert found.certificate.gap <= 1e-6 * (1 + ROUND)
    assert found.certificate.evaluations <= 10
    assert_certified(found, make)


@pytest.mark.parametrize(
    ("sigma", "q", "steps", "epsilon", "delta"),
    [(1.0, 0.01, 1000, 1.8282366666, 1e-5), (2.0, 0.01, 1000, 1.6310218858, 1e-20)],
)
def test_every_unknown_inverts_the_same_answer(
    sigma: float, q: float, steps: int, epsilon: float, delta: float
) -> None:
    tolerance = 1e-4

    def noise(value: float) -> hs.mechanisms.Process:
        return sampled(value, q) * steps

    def rate(value: float) -> hs.mechanisms.Process:
        return sampled(sigma, value) * steps

    def count(value: int) -> hs.mechanisms.Process:
        return sampled(sigma, q) * value

    found = hs.calibrate_noise_multiplier(noise, epsilon, delta, tolerance=tolerance)
    assert found == pytest.approx(sigma, rel=2e-4)
    assert_certified(found, noise)
    found = hs.calibrate_sampling_probability(rate, epsilon, delta, tolerance=tolerance)
    assert found == pytest.approx(q, rel=2e-4)
    assert_certified(found, rate)
    # Half a step more than the budget of 1000 steps, so that 1001 exceeds it.
    whole = hs.calibrate_steps(count, epsilon * 1.0003, delta)
    assert whole == steps
    assert whole.certificate.tight
    assert_certified(whole, count)


def test_batch_size() -> None:
    def make(batch_size: int) -> hs.mechanisms.DPSGD:
        return hs.dp_sgd(1.0, 60_000, batch_size, epochs=10, gradient_accumulation=2, world_size=3)

    found = hs.calibrate_batch_size(make, epsilon=1.0, delta=1e-5)
    assert found.certificate.tight
    assert_certified(found, make)
    limit = hs.calibrate_batch_size(make, epsilon=500.0, delta=1e-5)
    assert limit == 10_000
    assert limit.certificate.at_limit

    def fixed_size(batch_size: int) -> hs.mechanisms.Process:
        return hs.WithoutReplacement(hs.Gaussian(3.0), batch_size, 1000) * 20

    found = hs.calibrate_batch_size(fixed_size, 1.0, 1e-5, adjacency="replace_one", limits=(1, 1000))
    assert found.certificate.tight
    assert_certified(found, fixed_size)
    with pytest.raises(hs.ParameterTypeError, match="limits"):
        hs.calibrate_batch_size(fixed_size, 1.0, 1e-5)


@pytest.mark.parametrize("spent", [0, 10, 99, 100, 101])
def test_the_rest_of_a_budget(spent: int) -> None:
    # 100 steps in all: mu = sqrt(100) / 30.
    epsilon = float(exact.gaussian_epsilon(10 / mp.mpf(30), 1e-6)) * (1 + 1e-9)
    before = hs.Gaussian(30.0) * spent
    if spent <= 100:
        found = hs.calibrate_steps(lambda n: before + hs.Gaussian(30.0) * n, epsilon, 1e-6)
        assert found == 100 - spent
        assert found.certificate.tight
        assert found.certificate.exceeding == found + 1
    else:
        with pytest.raises(hs.UnreachableError, match="no steps in"):
            hs.calibrate_steps(lambda n: before + hs.Gaussian(30.0) * n, epsilon, 1e-6)


def test_one_scale_for_several_mechanisms() -> None:
    def make(scale: float) -> hs.mechanisms.Process:
        return hs.Gaussian(2 * scale) * 10 + hs.Laplace(5 * scale) * 3 + hs.RandomizedResponse(0.1)

    found = hs.calibrate(
        make, 1.0, 1e-6, increasing=False, limits=(1e-3, 1e6), tolerance=1e-4, parameter="scale"
    )
    assert found.certificate.tight
    assert found.certificate.parameter == "scale"
    assert_certified(found, make)


def test_pure_dp_at_delta_zero() -> None:
    found = hs.calibrate_noise_multiplier(lambda b: hs.Laplace(b) * 10, epsilon=2.0, delta=0.0)
    assert 5.0 <= found <= 5.0 * (1 + 1e-6)
    assert found.certificate.tight
    privacy = hs.calibrate(lambda e: hs.PureDP(e) * 4, 2.0, 0.0, increasing=True, limits=(1e-9, 100.0))
    assert 0.5 * (1 - 1e-6) <= privacy <= 0.5
    below = hs.calibrate(
        lambda e: hs.PureDP(e) * 10, 1.0, 1e-6, increasing=True, limits=(1e-9, 10.0), tolerance=1e-4
    )
    assert 0.1 <= below <= 0.101  # an atom at the largest loss: delta jumps away from 0 there
    assert_certified(below, lambda e: hs.PureDP(e) * 10)


def test_integers_that_help_privacy() -> None:
    def make(scale: int) -> hs.mechanisms.Process:
        return hs.DiscreteLaplace(scale) * 5

    found = hs.calibrate(make, 1.0, 1e-6, increasing=False, limits=(1, 10**6), integer=True)
    assert found == 5
    assert found.certificate.exceeding == 4
    assert isinstance(found, hs.accounting.CalibratedInt)


def test_what_exceeds_is_not_looked_for_far_away() -> None:
    """Nothing is known of a selection from below: noise of .01 was tried, of which each look took half a minute."""
    made: list[float] = []

    def make(scale: float) -> hs.PrivateSelection:
        made.append(scale)
        return hs.PrivateSelection(hs.dp_sgd(scale, 1000, 50, steps=30), hs.Repetitions.geometric(mean=5))

    found = hs.calibrate_noise_multiplier(make, 3.0, 1e-6)
    assert hs.account(make(found)).epsilon(1e-6) <= 3.0
    assert hs.account(make(0.999 * found)).epsilon(1e-6) > 3.0
    assert found.certificate.exceeding is None
    assert min(made) > 0.5 * found


def test_a_jump_is_found() -> None:
    found = hs.calibrate_noise_multiplier(lambda s: hs.Gaussian(max(1, round(s))), 1.0, 1e-6)
    assert 4.5 <= found <= 4.5 * (1 + 1e-5)  # 4 is too little, 5 is enough
    assert found.certificate.tight
    assert found.certificate.evaluations < 40


def test_at_the_limits() -> None:
    assert hs.calibrate_noise_multiplier(hs.Gaussian, 1.0, 1.0) == 0.01
    assert hs.calibrate_noise_multiplier(hs.Gaussian, 1.0, 1e-6, limits=(7, 9)) == 7.0
    assert hs.calibrate_sampling_probability(lambda q: sampled(30.0, q), 1.0, 1e-6) == 1.0
    endless = hs.calibrate_steps(lambda n: hs.Gaussian(1e6) * n, 1.0, 1e-6)
    assert endless == 10**9
    assert endless.certificate.at_limit
    assert endless.certificate.tight
    assert endless.certificate.exceeding is None
    assert hs.calibrate_steps(lambda n: hs.Gaussian(1.0) * n, 1.0, 1e-6) == 0
    assert hs.calibrate_noise_multiplier(lambda s: hs.mechanisms.Process(), 0.0, 0.0) == 0.01
    rare = hs.calibrate_sampling_probability(lambda q: sampled(0.01, q), 1e-3, 1e-8, tolerance=1e-3)
    assert rare == pytest.approx(1e-8, rel=2e-3)


@pytest.mark.parametrize(
    ("make", "epsilon", "delta", "reachable"),
    [
        (lambda s: hs.Gaussian(s) + hs.ApproximateDP(0.1, 1e-5), 1.0, 1e-6, "no finite epsilon"),
        (lambda s: hs.Gaussian(s) + hs.PureDP(2.0), 1.0, 1e-6, "epsilon = 2"),
        (hs.Gaussian, 1.0, 0.0, "no finite epsilon"),
        (hs.Laplace, 0.0, 0.0, "epsilon = 0.01 at"),
        (hs.Gaussian, 0.0, 1e-300, "delta = "),
    ],
)
def test_unreachable(make: Callable[[float], Any], epsilon: float, delta: float, reachable: str) -> None:
    with pytest.raises(hs.UnreachableError, match="keeps within this budget; reachable is") as caught:
        hs.calibrate_noise_multiplier(make, epsilon, delta, limits=(0.01, 100.0))
    error = caught.value
    assert isinstance(error, hs.ParameterError)
    assert isinstance(error, ValueError)
    assert f"epsilon = {epsilon!r}, delta = {delta!r}: no noise_multiplier in [0.01, 100]" in str(error)
    assert reachable in str(error)
    assert error.safest == 100.0
    assert error.epsilon_bounds.lower > epsilon or error.delta_bounds.lower > delta
    assert pickle.loads(pickle.dumps(error)).delta_bounds == error.delta_bounds
    # What is said to be reachable, is.
    assert error.delta_bounds.upper <= hs.account(make(50.0)).delta(epsilon)


@pytest.mark.parametrize("share", [0.999, 0.98])
def test_a_plateau_just_above_the_target_hides_no_batch_size_that_fits(share: float) -> None:
    """The search went on by steps of one, gave up after 60 of them, and said that nothing fits."""

    def run(batch_size: int) -> hs.mechanisms.DPSGD:
        return hs.dp_sgd(1.0, 10_000, batch_size, steps=1000, max_batch_size=64)

    plateau = hs.account(run(256)).epsilon(1e-5)
    found = hs.calibrate_batch_size(run, share * plateau, 1e-5)
    assert found.certificate.tight
    assert hs.account(run(found)).epsilon(1e-5) <= share * plateau
    assert hs.account(run(found + 1)).epsilon_bounds(1e-5).lower > share * plateau


def test_the_safest_batch_size_is_looked_at_before_giving_up() -> None:
    def run(batch_size: int) -> hs.mechanisms.DPSGD:
        return hs.dp_sgd(1.5, 101, batch_size, drop_last=True, max_batch_size=3, epochs=0.1)

    assert hs.calibrate_batch_size(run, 1.5764927, 1e-5) == 4


def test_the_wrong_direction_is_noticed() -> None:
    with pytest.raises(
        hs.ParameterError, match=r"epsilon .* must grow with parameter, but .* given increasing = False$"
    ):
        hs.calibrate(hs.Gaussian, 0.1, 1e-6, increasing=True, limits=(1e-2, 1e3))


def test_wide_bounds_stay_sound_and_say_so() -> None:
    # So many steps that their bounds cannot tell one part in a million.
    def make(sigma: float) -> hs.mechanisms.Process:
        return sampled(sigma, 0.01) * 10**5

    found = hs.calibrate_noise_multiplier(make, 1.0, 1e-6, tolerance=1e-9)
    proof = found.certificate
    assert proof.exceeding is not None
    assert proof.exceeding < found
    assert proof.tight == (proof.gap <= 1e-9 * (1 + ROUND))
    assert hs.account(make(found), accuracy=1e-6).delta_bounds(1.0).lower <= 1e-6
    assert proof.evaluations < 50


def test_the_result_is_a_number() -> None:
    sigma = hs.calibrate_noise_multiplier(hs.Gaussian, 1.0, 1e-6)
    assert hs.Gaussian(sigma) == hs.Gaussian(sigma.certificate.value)
    assert type(sigma * 1.0) is float
    assert json.loads(json.dumps({"sigma": sigma}))["sigma"] == sigma
    for twin in (pickle.loads(pickle.dumps(sigma)), copy.deepcopy(sigma), copy.copy(sigma)):
        assert twin == sigma
        assert twin.certificate == sigma.certificate
    steps = hs.calibrate_steps(lambda n: hs.Gaussian(50.0) * n, 1.0, 1e-6)
    assert (hs.Gaussian(1.0) * steps).steps == steps == len(range(steps))
    assert pickle.loads(pickle.dumps(steps)).certificate == steps.certificate
    assert json.loads(json.dumps(steps.certificate.to_dict()))["value"] == steps


def budget(**changes: Any) -> Any:
    arguments: dict[str, Any] = {
        "make": hs.Gaussian,
        "epsilon": 1.0,
        "delta": 1e-6,
        "increasing": False,
        "limits": (0.01, 100.0),
    }
    return hs.calibrate(**{**arguments, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": -1.0}, r"^epsilon = -1.0: must be a number in \[0"),
        ({"epsilon": math.nan}, "^epsilon = nan"),
        ({"epsilon": math.inf}, "^epsilon = inf"),
        ({"epsilon": "1"}, "^epsilon = '1'"),
        ({"delta": 1.5}, r"^delta = 1.5: must be a number in \[0, 1\]"),
        ({"delta": None}, "^delta = None"),
        ({"make": 3}, "^make = 3"),
        ({"make": lambda s: s}, r"^make\([0-9.]+\) = .*must be a mechanism"),
        ({"adjacency": "swap"}, "^adjacency = 'swap'"),
        ({"tolerance": 0.0}, "^tolerance = 0.0"),
        ({"tolerance": math.nan}, "^tolerance = nan"),
        ({"limits": 3}, "^limits = 3"),
        ({"limits": (0.0, 1.0)}, r"^limits\[0\] = 0.0"),
        ({"limits": (2.0, 1.0)}, r"^limits\[1\] = 1.0"),
        ({"limits": (1, 2.5), "integer": True}, r"^limits\[1\] = 2.5"),
        ({"integer": 1}, "^integer = 1"),
        ({"increasing": None}, "^increasing = None"),
        ({"start": math.nan}, "^start = nan"),
        ({"parameter": 1}, "^parameter = 1"),
        ({"memory_limit": 1}, "^memory_limit = 1"),
    ],
)
def test_invalid_input_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises((hs.ParameterError, hs.ParameterTypeError), match=message):
        budget(**changes)


@pytest.mark.parametrize(
    "calibrated",
    [
        lambda: hs.calibrate_noise_multiplier(lambda _: hs.dp_sgd(2.0, 1000, 10, epochs=5), 4.0, 1e-5),
        lambda: hs.calibrate_noise_multiplier(
            lambda _: hs.Gaussian(2.0), 1e4, 1e-5
        ),  # one value alone is looked at
        lambda: hs.calibrate_noise_multiplier(lambda _: sampled(2.0, 0.01), advantage=0.1),
        lambda: hs.calibrate_steps(lambda _: sampled(2.0, 0.01) * 100, 4.0, 1e-5),
        lambda: hs.calibrate_batch_size(lambda _: hs.dp_sgd(2.0, 1000, 10, epochs=5), 4.0, 1e-5),
        lambda: hs.calibrate_sampling_probability(lambda _: sampled(2.0, 0.01), 4.0, 1e-5),
    ],
)
def test_a_make_that_does_not_use_its_argument_is_refused(calibrated: Callable[[], Any]) -> None:
    """Noise multipliers of 0.01 came out, and 10^9 steps: what was described keeps within the budget, and the value says nothing of it."""
    with pytest.raises(hs.ParameterError, match=r"^make: must use its argument"):
        calibrated()


@pytest.mark.parametrize(
    "calibrated",
    [
        # As a noise multiplier, a batch size of 60000 fits anything.
        lambda: hs.calibrate_batch_size(lambda b: hs.dp_sgd(b, 60_000, 256, epochs=10), 4.0, 1e-5),
        lambda: hs.calibrate_steps(lambda n: hs.Gaussian(2.0 + n) * 100, 4.0, 1e-5),
        lambda: hs.calibrate_noise_multiplier(lambda s: sampled(2.0, min(s, 1.0)) * 10, 10.0, 1e-5),
    ],
)
def test_an_argument_in_the_wrong_place_is_refused(calibrated: Callable[[], Any]) -> None:
    """The riskiest value fits, and has less epsilon than the safest one."""
    with pytest.raises(
        hs.ParameterError,
        match=r"^make: epsilon .* must (grow|fall) with (steps|batch_size|noise_multiplier), .*the argument of make must go where it belongs",
    ):
        calibrated()


def test_what_no_value_changes_near_the_limit_is_calibrated() -> None:
    """A noise multiplier that is raised to the least one that is allowed: all values below describe the same."""
    found = hs.calibrate_noise_multiplier(lambda s: hs.Gaussian(max(s, 5.0)), 4.0, 1e-5)
    assert found == 0.01
    assert found.certificate.description == hs.Gaussian(5.0)


def test_a_mistake_inside_make_is_passed_on() -> None:
    with pytest.raises(hs.ParameterError, match="noise_multiplier = -"):
        budget(make=lambda s: hs.Gaussian(-s))


@pytest.mark.parametrize("calls", [2, 3, 4, 5, 6, 8])
def test_what_is_certified_is_what_was_proven(calls: int) -> None:
    """make was asked once more at the end: a description of epsilon 13.5 was certified for 1 where it had changed its mind."""
    count = 0

    def make(sigma: float) -> hs.Gaussian:
        nonlocal count
        count += 1
        return hs.Gaussian(sigma * (1.0 if count < calls else 0.1))

    for limit in ({"epsilon": 1.0, "delta": 1e-6}, {"advantage": 0.1}):
        count = 0
        certificate = hs.calibrate_noise_multiplier(make, **limit).certificate
        profile = hs.account(certificate.description)
        assert profile.epsilon_bounds(certificate.delta).lower <= certificate.epsilon_bounds.upper * (
            1.0 + 1e-9
        )


@pytest.mark.parametrize("limits", [(2**53 - 5, 2**53), (2**53 - 1, 2**53), (10**15, 10**15 + 3), (0, 2**53)])
def test_integers_that_share_a_logarithm(limits: tuple[int, int]) -> None:
    found = hs.calibrate_steps(lambda n: hs.Gaussian(1e9) * n, 1.0, 1e-6, limits=limits)
    assert found == limits[1]
    assert found.certificate.at_limit
    assert found.certificate.tight


# The search alone.


@given(
    root=st.floats(-10, 10),
    width=st.sampled_from([0.0, 1e-12, 1e-7, 1e-3]),
    power=st.sampled_from([0.1, 1.0, 3.0]),
    blind=st.booleans(),
    rising=st.booleans(),
    integer=st.booleans(),
)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_search(root: float, width: float, power: float, blind: bool, rising: bool, integer: bool) -> None:
    axis = Axis(1 if integer else 1e-6, 10**6 if integer else 1e6, rising, integer)

    def height(value: float) -> float:
        x = axis.position(value) - root
        return math.copysign(abs(x) ** power, x)

    def look(value: float, accuracy: float) -> Verdict:
        upper, lower = height(value) + width, height(value) - width
        return Verdict(upper <= 0.0, lower > 0.0, math.nan if blind else upper, 2 * width)

    found = Search(look, axis, 1e-6, 1.0).run(axis.value(0.0))
    if found is None:
        assert height(axis.safest) + width > 0.0
        return
    assert height(found.value) + width <= 0.0
    step = 1 if integer else 1e-6 * found.value
    if found.exceeding is not None:
        assert height(found.exceeding) - width > 0.0
        assert axis.loss(found.exceeding) > axis.loss(found.value)
    if found.value != axis.riskiest:
        near = found.exceeding is not None and abs(found.exceeding - found.value) <= step * (1.0 + 1e-9)
        assert found.tight == near
    if width == 0.0:
        assert found.tight


def test_the_bounds_of_what_is_out_of_reach_enclose_it() -> None:
    """Of a Gaussian at the largest noise that is allowed, by its closed form, wherever the search began."""
    for sigma, epsilon, delta in ((1.0, 0.5, 1e-6), (3.0, 0.25, 1e-4), (10.0, 0.0, 1e-3)):
        for start in (0.1, sigma):
            with pytest.raises(hs.UnreachableError) as caught:
                hs.calibrate(hs.Gaussian, epsilon, delta, increasing=False, limits=(0.05, sigma), start=start)
            found = caught.value
            assert found.safest == sigma
            with mp.workdps(40):
                mu = 1 / mp.mpf(sigma)
                assert (
                    found.delta_bounds.lower <= exact.gaussian_delta(mu, epsilon) <= found.delta_bounds.upper
                )
                # It falls: what is reached is on either side of the target.
                low, high = found.epsilon_bounds
                assert epsilon < low <= high < math.inf
                assert exact.gaussian_delta(mu, low) >= mp.mpf(delta) >= exact.gaussian_delta(mu, high)


def test_nan_fits_nothing() -> None:
    nan = math.nan
    search = Search(
        lambda value, accuracy: Verdict(nan <= 0.0, nan > 0.0, nan, nan),
        Axis(1e-6, 1e6, True, False),
        1e-6,
        1.0,
    )
    assert search.run(1.0) is None


@pytest.mark.parametrize("rising", [True, False])
def test_nothing_beyond_the_limits_is_looked_at(rising: bool) -> None:
    """The first look is less than a step from the limit, and a little beyond it all fits too."""
    looked = []

    def look(value: float, accuracy: float) -> Verdict:
        looked.append(value)
        height = math.log(value / 2.05) if rising else math.log(0.95 / value)
        return Verdict(height <= 0.0, height > 0.0, height, 0.0)

    start, limit = (1.97, 2.0) if rising else (1.03, 1.0)
    found = Search(look, Axis(1.0, 2.0, rising, False), 0.1, 1.0).run(start)
    assert found is not None
    assert found.value == limit
    assert found.tight
    assert 1.0 <= min(looked) <= max(looked) <= 2.0


@pytest.mark.parametrize("rising", [True, False])
def test_what_has_no_lower_bounds_is_looked_at_no_longer_than_it_takes_to_fit(rising: bool) -> None:
    """Declared curves have none: no value beyond exceeds, and no accuracy shows it. It took twice as many looks, the longest ones."""
    looked = []

    def look(value: float, accuracy: float) -> Verdict:
        looked.append(accuracy)
        height = math.log(value / 3.0) * (1.0 if rising else -1.0)
        return Verdict(height <= 0.0, False, height, 0.0)

    found = Search(look, Axis(1e-3, 1e3, rising, False), 1e-6, 1.0).run(1.0)
    assert found is not None
    assert abs(found.value - 3.0) <= 1e-5
    assert not found.tight
    assert len(looked) <= 6
    assert min(looked) >= 1e-8


# The command line.

DATA = ["--dataset-size", "6000", "--batch-size", "64"]
BUDGET = ["--epsilon", "1.5", "--delta", "1e-5"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["calibrate", *arguments, *BUDGET]) == 0
    return capsys.readouterr().out


def test_command_finds_the_noise(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*DATA, "--epochs", "3", "--tolerance", "1e-3"]
    out = run(capsys, *arguments)
    found = hs.calibrate_noise_multiplier(
        lambda s: hs.dp_sgd(s, 6000, 64, epochs=3), 1.5, 1e-5, tolerance=1e-3
    )
    assert f"noise_multiplier = {float(found)!r}\n" in out
    assert "282 noisy updates" in out
    assert f"noise_multiplier = {found.certificate.exceeding!r} exceeds epsilon = 1.5 at delta = 1e-05" in out
    assert "add_or_remove" in out
    assert json.loads(run(capsys, *arguments, "--json")) == found.certificate.to_dict()


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_command_remarks_on_a_budget_that_looks_swapped(
    capsys: pytest.CaptureFixture[str], form: list[str]
) -> None:
    """epsilon = 1e-5 at delta = 0.5 was calibrated without a word, of which `hockeystick epsilon` and `delta` remark."""
    run = ["--dataset-size", "6000", "--batch-size", "64", "--epochs", "3"]
    assert main(["calibrate", *run, "--epsilon", "1e-5", "--delta", "0.5", *form]) == 0
    printed = capsys.readouterr()
    assert "note: delta = 0.5 is not below 1/6000" in printed.err
    assert "are epsilon and delta swapped?" in printed.err
    assert "note" not in printed.out
    assert main(["calibrate", *run, "--epsilon", "1", "--delta", "1e-5", *form]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "make"),
    [
        (["--find", "steps", *DATA], lambda n: hs.dp_sgd(1.1, 6000, 64, steps=n)),
        (["--find", "epochs", *DATA], lambda n: hs.dp_sgd(1.1, 6000, 64, epochs=n)),
        (["--find", "steps", "--sampling-probability", "0.01"], lambda n: sampled(1.1, 0.01) * n),
        (
            ["--find", "sampling-probability", "--steps", "90", "--tolerance", "1e-3"],
            lambda q: sampled(1.1, q) * 90,
        ),
        (
            ["--find", "batch-size", "--dataset-size", "6000", "--epochs", "2", "--world-size", "4"],
            lambda b: hs.dp_sgd(1.1, 6000, b, epochs=2, world_size=4),
        ),
    ],
    ids=lambda value: value[1] if isinstance(value, list) else "",
)
def test_command_finds(
    capsys: pytest.CaptureFixture[str], arguments: list[str], make: Callable[[Any], Any]
) -> None:
    printed = json.loads(run(capsys, *arguments, "--noise-multiplier", "1.1", "--json"))
    assert printed["tight"]
    assert printed["parameter"] == arguments[1].replace("-", "_")
    assert hs.account(make(printed["value"]), accuracy=1e-5).epsilon(1e-5) <= 1.5
    assert hs.account(make(printed["exceeding"]), accuracy=1e-5).epsilon_bounds(1e-5).lower > 1.5


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([*DATA, "--epochs", "1", "--find", "everything"], "--find = 'everything'"),
        ([*DATA, "--epochs", "1", "--noise-multiplier", "1"], "--noise-multiplier: is what"),
        ([*DATA, "--find", "steps"], "--noise-multiplier: needed"),
        ([*DATA, "--find", "steps", "--noise-multiplier", "1", "--steps", "3"], "--steps: is what"),
        ([*DATA, "--find", "steps", "--noise-multiplier", "1", "--epochs", "3"], "--epochs: leave it out"),
        ([*DATA, "--find", "epochs", "--noise-multiplier", "1", "--steps", "3"], "--steps: leave it out"),
        (["--steps", "3", "--find", "batch-size", "--noise-multiplier", "1"], "--dataset-size"),
        (["--find", "epochs", "--noise-multiplier", "1"], "--dataset-size"),
        (["--steps", "3", "--delta", "2"], "delta = 2.0"),
        (["--steps", "3", "--epsilon", "-2"], "epsilon = -2.0"),
        (["--steps", "3", "--delta", "0"], "no finite epsilon"),
        (["--steps", "3", "--accuracy", "1"], "--accuracy"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], named: str
) -> None:
    assert main(["calibrate", *BUDGET, *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("hockeystick: error: ")
    assert error.count("\n") == 1
    assert named in error


@pytest.mark.parametrize("adjacency", ["add", "remove", "zero_out", "replace_one"])
def test_a_certificate_names_its_adjacency(adjacency: str) -> None:
    found = hs.calibrate_noise_multiplier(lambda s: hs.Gaussian(s), 1.0, 1e-5, adjacency=adjacency)
    assert found.certificate.adjacency == adjacency
