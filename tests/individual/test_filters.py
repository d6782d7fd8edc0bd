"""Filters and odometers: budgets that nothing overspends, in exact arithmetic as the judge."""

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import hockeystick as hs
import mpmath
import numpy as np
import pytest
from hockeystick import _core
from hockeystick._base.gdp import narrow_delta
from hockeystick.accounting.rdp import best_order, best_rdp_epsilon, rdp_budget
from hypothesis import given, settings
from hypothesis import strategies as st

positive = st.floats(1e-12, 1e6)
any_norm = st.one_of(
    st.floats(0.0, 1e6), st.sampled_from([0.0, 5e-324, 1e-300, 1e-160, 2.0**-27, 0.1, 1.0, math.inf, 1e200])
)


def square(value: float) -> Fraction:
    return Fraction(value) ** 2


def gaussian_delta(mu: mpmath.mpf, epsilon: mpmath.mpf | float) -> mpmath.mpf:
    e = mpmath.mpf(epsilon)
    return mpmath.ncdf(-e / mu + mu / 2) - mpmath.exp(e) * mpmath.ncdf(-e / mu - mu / 2)


def steps_of(filt: hs.individual.GDPFilter | hs.individual.RDPFilter, mu: float) -> int:
    count = 0
    while filt.step(mu):
        count += 1
    return count


# ---- the paper's numbers ------------------------------------------------------------------------


def test_495_steps_instead_of_420() -> None:
    """sigma = 100, delta = 1e-5: 420 steps cost .81563 by RDP of integer orders, for which GDP allows 495."""
    epsilon = min(
        hs.accounting.rdp_epsilon(order, order * 420 / (2 * 100**2), 1e-5) for order in range(2, 200)
    )
    assert round(epsilon, 5) == 0.81563
    assert round(best_rdp_epsilon(hs.Gaussian(100.0) * 420, 1e-5)[0], 4) == 0.8156  # the best real order
    assert steps_of(hs.individual.RDPFilter(epsilon=epsilon, delta=1e-5), 1 / 100) == 420
    assert steps_of(hs.individual.GDPFilter(epsilon=epsilon, delta=1e-5), 1 / 100) == 495
    assert steps_of(hs.individual.RDPFilter(epsilon=0.8, delta=1e-5), 1 / 100) == 405
    assert steps_of(hs.individual.GDPFilter(epsilon=0.8, delta=1e-5), 1 / 100) == 478


def test_budget_is_the_largest_mu() -> None:
    with mpmath.workdps(40):
        for epsilon, delta in [(0.8, 1e-5), (1e-3, 1e-9), (8.0, 1e-6), (100.0, 1e-12), (0.1, 0.3)]:
            mu = mpmath.mpf(hs.individual.gdp_budget(epsilon, delta))

            assert gaussian_delta(mu, epsilon) <= mpmath.mpf(delta)
            assert gaussian_delta(mu * (1 + mpmath.mpf("1e-7")), epsilon) > mpmath.mpf(delta)


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [
        (1e-13, 1e-13),
        (1e-16, 1e-200),
        (1e-100, 1e-100),
        (1e-300, 1e-300),
        (1e-9, 1e-9),
        (1e-7, 1e-9),
        (1.25e-7, 1.69e-270),
        (1e-9, 2e-42),
        (1e-300, 1e-9),
        (1e-4, 3e-5),
        (2e-3, 1e-300),
        (1e-5, 0.5),
        (1e6, 1e-9),
    ],
)
def test_any_budget_has_a_mu(epsilon: float, delta: float) -> None:
    """Of small ones half was given up, or none was found."""
    with mpmath.workdps(1000):
        mu = mpmath.mpf(hs.individual.gdp_budget(epsilon, delta))
        assert gaussian_delta(mu, epsilon) <= mpmath.mpf(delta)
        assert gaussian_delta(mu * (1 + mpmath.mpf("1e-7")), epsilon) > mpmath.mpf(delta)


@settings(deadline=None)
@given(st.floats(-300, -4.001), st.floats(0, 44))
def test_the_delta_of_a_small_mu_is_above_the_truth(log_mu: float, z: float) -> None:
    mu = 10.0**log_mu
    epsilon = mu * z
    with mpmath.workdps(1000):
        truth = gaussian_delta(mpmath.mpf(mu), epsilon)
        most = truth * (1 + 2e-9 + (mu * (1.0 + z)) ** 2) + mpmath.mpf(1e-323)  # the trapezoid's error
        assert truth <= mpmath.mpf(narrow_delta(mu, epsilon)) <= most


@pytest.mark.parametrize(
    ("order", "rho", "delta"), [(21.0, 0.4, 1e-5), (1.5, 2.0, 1e-9), (400.0, 0.01, 1e-3)]
)
def test_rdp_conversion(order: float, rho: float, delta: float) -> None:
    """epsilon is where Canonne et al.'s delta equals delta, rounded up; the budget is its inverse."""
    epsilon = hs.accounting.rdp_epsilon(order, rho, delta)
    with mpmath.workdps(40):
        a, e = mpmath.mpf(order), mpmath.mpf(epsilon)
        value = mpmath.exp((a - 1) * (rho - e)) / a * (1 - 1 / a) ** (a - 1)
        assert value <= mpmath.mpf(delta) < value * (1 + mpmath.mpf("1e-7"))
    assert rho * (1 - 1e-9) <= rdp_budget(order, epsilon, delta) <= rho
    with pytest.raises(hs.ParameterError, match="order = 2"):
        rdp_budget(2.0, 0.1, 1e-9)


def test_budgets_of_any_size_have_a_best_order() -> None:
    for epsilon in (1e-300, 1e15, 1e17, 1e300):
        assert best_order(epsilon, 1e-5) > 1.0


def test_best_order_is_best() -> None:
    order = best_order(0.8, 1e-5)
    allowed = rdp_budget(order, 0.8, 1e-5) / order
    for other in (order * 0.9, order * 1.1, order * 0.99, order * 1.01):
        assert rdp_budget(other, 0.8, 1e-5) / other <= allowed


# ---- safety: exact rational arithmetic judges ----------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(
    budget=st.one_of(positive, st.sampled_from([1.0, 0.1, 3.0, 1e-3])),
    norms=st.lists(any_norm, min_size=1, max_size=40),
    greedy=st.booleans(),
    noise=st.one_of(st.none(), st.floats(0.01, 100.0)),
    clip=st.floats(1e-3, 1e3),
)
def test_adaptive_sequences_never_overspend(
    budget: float, norms: list[float], greedy: bool, noise: float | None, clip: float
) -> None:
    """An adversary who sees the ledger, and asks for just what is left, or one unit more."""
    filt = hs.IndividualGDPFilter(3, mu=budget)
    exact = [Fraction(0)] * 3
    limit = square(budget)
    for norm in norms:
        values = [norm, norm / 2, norm]
        if greedy:
            left = math.sqrt(max(0.0, budget * budget - float(filt.spent[2])))
            values[2] = left if len(exact) % 2 else math.nextafter(left, math.inf)
        if noise is None:
            active = filt.step(values)
            mu = [Fraction(0) if math.isinf(v) else Fraction(v) for v in values]
        else:
            active = filt.step(values, noise_multiplier=noise, clipping_norm=clip)
            mu = [Fraction(min(v, clip)) / (Fraction(noise) * Fraction(clip)) for v in values]
        for i in range(3):
            if active[i]:
                assert noise is not None or math.isfinite(values[i])
                exact[i] += mu[i] ** 2
            assert exact[i] <= limit
            # What is charged is never below the truth, and nobody is charged for a step without part in it.
            assert exact[i] <= Fraction(float(filt.spent[i]))


def test_dropped_examples_pay_nothing_and_may_return() -> None:
    filt = hs.IndividualGDPFilter(2, mu=1.0)
    assert filt.step([0.9, 0.1]).tolist() == [True, True]
    before = filt.spent.tolist()
    assert filt.step([0.5, 0.5]).tolist() == [False, True]
    assert filt.spent[0] == before[0]
    assert filt.step([0.4, 0.5]).tolist() == [True, True]
    assert filt.active_counts().tolist() == [2, 1, 2]


def test_exact_costs_are_not_rounded() -> None:
    """A hundred steps of mu = 1 use mu = 10 up to the last bit; so do 420 of 1/8."""
    for budget, mu, allowed in [(10.0, 1.0, 100), (0.125 * math.sqrt(420) * (1 + 1e-15), 0.125, 420)]:
        assert steps_of(hs.individual.GDPFilter(mu=budget), mu) == allowed
    filt = hs.individual.GDPFilter(mu=5.0)
    assert sum(filt.step(1.0, noise_multiplier=2.0) for _ in range(101)) == 100
    third = hs.individual.GDPFilter(mu=1.0)  # 1 / 3 is rounded up
    assert sum(third.step(1.0, noise_multiplier=3.0) for _ in range(9)) == 8
    unspent = hs.individual.GDPFilter(mu=0.0)
    assert unspent.step(0.0, noise_multiplier=3.0)
    assert not unspent.step(5e-324, noise_multiplier=2.0**60)
    filt = hs.IndividualGDPFilter(1, mu=2.0)
    for _ in range(16):
        assert filt.step([7.5], noise_multiplier=2.0, clipping_norm=5.0).all()
    assert filt.spent[0] == 4.0
    assert not filt.step([1e-9])[0]


@pytest.mark.parametrize("share", [0.3, 1e-3, 1e-9])
def test_a_billion_tiny_steps(share: float) -> None:
    """Rounding up a billion times: never below the truth, and at most 2^-52 of the budget a step above it."""
    mu = math.sqrt(share * 1e-9)
    # The sum after many equal steps follows a recursion that can be jumped over: near a sum S each step adds
    # a constant number of units in the last place, until S reaches the next power of two.
    cost, charged, exact, left = Fraction(mu) ** 2, Fraction(0), Fraction(0), 10**9
    spent = np.zeros(1)
    active = np.empty(1, np.uint8)

    def step() -> None:
        _core.charge(np.array([mu]), spent, 4.0, spent, active, (math.inf, 1.0, 1.0, True))

    while left:
        before = float(spent[0])
        step()
        left -= 1
        added = Fraction(float(spent[0])) - Fraction(before)
        exponent = math.frexp(float(spent[0]))[1]
        if before == 0.0 or math.frexp(before)[1] != exponent:
            continue
        room = Fraction(2) ** exponent - Fraction(float(spent[0]))
        jump = min(left, max(0, math.floor(room / added) - 2))
        if jump > 0:
            middle = Fraction(float(spent[0])) + jump * added
            assert Fraction(float(middle)) == middle  # all of these sums are doubles
            spent[0] = float(middle)
            left -= jump
    charged, exact = Fraction(float(spent[0])), 10**9 * cost
    assert exact <= charged <= exact + 10**9 * Fraction(2) ** -52 * max(charged, Fraction(1))
    assert charged <= 4


def test_a_million_steps_really_made() -> None:
    """Without jumps, beside exact arithmetic: plain addition would have lost budget here."""
    n, mu = 1_000_000, 1e-3
    plain = float(np.cumsum(np.full(n, mu * mu))[-1])
    filt = hs.IndividualGDPFilter(1, mu=10.0)
    values = np.array([mu])
    for _ in range(n):
        _core.charge(
            values, filt._spent, 100.0, filt._spent, np.empty(1, np.uint8), (math.inf, 1.0, 1.0, True)
        )
    exact = n * square(mu)
    assert Fraction(plain) != exact
    assert exact <= Fraction(float(filt.spent[0])) <= exact * (1 + Fraction(1, 10**9))


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(any_norm, min_size=1, max_size=600),
    divisor=st.sampled_from([1.0, 3.0, 0.1, 1e-6, 2.0**50]),
    clip=st.sampled_from([math.inf, 1.0, 0.3]),
    factor=st.sampled_from([1.0, 10.5]),
)
def test_kernel_rounds_up_and_by_one_unit_only(
    values: list[float], divisor: float, clip: float, factor: float
) -> None:
    """Every vector width and the remainder of the loop, against rational numbers."""
    array = np.array(values)
    after, active = np.zeros(array.size), np.empty(array.size, np.uint8)
    _core.charge(array, np.zeros(array.size), math.inf, after, active, (clip, divisor, factor, True))
    for value, cost in zip(values, after.tolist(), strict=True):
        value = min(value, clip)
        if value > 2.0**460:
            assert cost == math.inf
            continue
        exact = Fraction(factor) * (Fraction(value) / Fraction(divisor)) ** 2
        assert Fraction(cost) >= exact
        if value >= 2.0**-400:
            # A quotient, which is squared, and two products: two units each.
            assert Fraction(cost) <= exact * (1 + Fraction(2, 2**53)) ** 4
        assert (cost == 0.0) == (value == 0.0)


def test_threads_do_not_matter() -> None:
    rng = np.random.default_rng(1)
    norms = rng.random((3, 100_000))
    spent = []
    for threads in (1, 2, 5):
        hs.set_threads(threads)
        filt = hs.IndividualGDPFilter(100_000, mu=1.0)
        masks = [filt.step(row, noise_multiplier=0.7, clipping_norm=0.9) for row in norms]
        spent.append((filt.spent.tobytes(), b"".join(mask.tobytes() for mask in masks)))
    hs.set_threads(0)
    assert spent[0] == spent[1] == spent[2]


# ---- batches ------------------------------------------------------------------------------------


def test_batches_by_index() -> None:
    rng = np.random.default_rng(5)
    one, other = hs.IndividualGDPFilter(50, mu=1.0), hs.IndividualGDPFilter(50, mu=1.0)
    for _ in range(40):
        batch = rng.permutation(50)[:20]
        norms = np.zeros(50)
        norms[batch] = rng.random(20) * 0.5
        active = one.step(norms[batch], indices=batch)
        assert active.tolist() == other.step(norms)[batch].tolist()
    assert one.spent.tolist() == other.spent.tolist()
    assert one.last_step is not None
    assert one.last_step.indices is not None
    assert one.last_step.indices.tolist() == batch.tolist()


def test_the_last_step_stays_what_it_was(tmp_path: Path) -> None:
    """It is what a repeated step takes its mask from: nobody's use of the mask or the indices may change it."""
    for path in (None, tmp_path / "filter"):
        filt, batch = hs.IndividualGDPFilter(5, mu=1.0, path=path), np.array([4, 1])
        active = filt.step([0.1, 9.0], indices=batch)
        active[:], batch[:] = True, 0
        last = filt.last_step
        assert last is not None
        assert last.indices is not None
        assert (last.indices.tolist(), last.active.tolist()) == ([4, 1], [True, False])
        with pytest.raises(ValueError, match="read-only"):
            last.active[1] = True
        filt.close()


def test_a_shard_is_merged_once() -> None:
    one, other = (hs.IndividualGDPFilter(2, mu=1.0) for _ in range(2))
    assert hs.IndividualGDPFilter.merge([one, other]).num_examples == 4
    with pytest.raises(hs.ParameterError, match="twice"):
        hs.IndividualGDPFilter.merge([one, other, one])


def test_an_example_twice_in_a_batch_is_refused() -> None:
    """Its two contributions would add to twice the norm, four times the cost."""
    filt = hs.IndividualGDPFilter(5, mu=1.0)
    with pytest.raises(hs.ParameterError, match="3 occurs twice"):
        filt.step([0.1, 0.1, 0.1], indices=[3, 1, 3])
    for indices, error in [
        ([5], hs.ParameterError),
        ([-1], hs.ParameterError),
        ([0.0], hs.ParameterTypeError),
    ]:
        with pytest.raises(error, match="indices"):
            filt.step([0.1], indices=indices)
    assert filt.steps == 0
    assert not filt.spent.any()


@pytest.mark.parametrize("bad", [math.nan, -1e-300, -math.inf])
def test_bad_norms_charge_nobody(bad: float) -> None:
    filt = hs.IndividualGDPFilter(70_000, mu=1.0)
    norms = np.full(70_000, 0.5)
    norms[69_999] = bad
    with pytest.raises(hs.ParameterError, match=r"norms\[69999\]"):
        filt.step(norms)
    assert not filt.spent.any()
    assert filt.steps == 0


def test_refusals() -> None:
    for arguments in ({}, {"mu": 1.0, "epsilon": 1.0}, {"epsilon": 1.0}, {"delta": 0.1}):
        with pytest.raises(hs.ParameterTypeError, match="budget"):
            hs.IndividualGDPFilter(3, **arguments)
    with pytest.raises(hs.ParameterError, match="mu = -1"):
        hs.individual.GDPFilter(mu=-1.0)
    filt = hs.IndividualGDPFilter(3, mu=1.0)
    with pytest.raises(hs.ParameterTypeError, match="give both"):
        filt.step([0, 0, 0], noise_multiplier=1.0)
    with pytest.raises(hs.ParameterError, match="shape"):
        filt.step([0.0, 1.0])
    with pytest.raises(hs.ParameterError, match="noise_multiplier"):
        filt.step([0, 0, 0], noise_multiplier=0.0, clipping_norm=1.0)
    with pytest.raises(ValueError, match="read-only"):
        filt.spent[0] = 0.0
    assert hs.IndividualGDPFilter(0, mu=1.0).step([]).size == 0
    assert hs.IndividualGDPFilter(2, mu=0.0).step([0.0, 1e-300]).tolist() == [True, False]


# ---- the last step ------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    budget=st.floats(1e-3, 1e3),
    norms=st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=12),
    last=st.floats(1e-6, 1e6),
    noise=st.floats(0.1, 100.0),
    clip=st.floats(0.01, 100.0),
)
def test_last_step_uses_the_budget_up(
    budget: float, norms: list[float], last: float, noise: float, clip: float
) -> None:
    filt = hs.IndividualGDPFilter(2, mu=budget)
    spent = Fraction(0)
    for norm in norms:
        if filt.step([norm, 0.0], noise_multiplier=noise, clipping_norm=clip)[0]:
            spent += (Fraction(min(norm, clip)) / (Fraction(noise) * Fraction(clip))) ** 2
    before = Fraction(float(filt.spent[0]))
    scale = filt.last_scales([last, 0.0], noise_multiplier=noise, clipping_norm=clip)
    total = before + (Fraction(scale[0]) * Fraction(last) / (Fraction(noise) * Fraction(clip))) ** 2
    assert scale[1] == 0.0
    assert total <= square(budget)
    assert total >= square(budget) * (1 - Fraction(1, 2**40))
    assert spent <= before
    assert not filt.step([budget * 1e-5, 0.0])[0]


@settings(max_examples=100, deadline=None)
@given(
    budget=st.sampled_from([1e-150, 1e-12, 1.0, 1e12]),
    last=st.one_of(st.sampled_from([5e-324, 1e-310, 2.3e-308, 1.7e308]), st.floats(5e-324, 1.7e308)),
    noise=st.sampled_from([1e-15, 1.0, 1e15]),
)
def test_last_steps_of_extreme_norms_do_not_overspend(budget: float, last: float, noise: float) -> None:
    filt = hs.IndividualGDPFilter(1, mu=budget)
    scale = filt.last_scales([last], noise_multiplier=noise, clipping_norm=1.0)[0]
    assert (Fraction(scale) * Fraction(last) / Fraction(noise)) ** 2 <= square(budget)


def test_scales_without_all_their_digits_are_none() -> None:
    filt = hs.IndividualGDPFilter(1, mu=1e-12)
    assert filt.last_scales([1.7e308], noise_multiplier=1.0, clipping_norm=1.0).tolist() == [0.0]
    assert filt.spent.tolist() == [0.0]


@pytest.mark.parametrize("budget", [1e-119, 1e-121, 1e-130, 1e-150])
def test_scales_of_what_cannot_be_charged_are_none(budget: float) -> None:
    """Every call hands out no more than it charges, however small the budget is."""
    filt = hs.IndividualGDPFilter(2, mu=budget)
    total = Fraction(0)
    for _ in range(3):
        scale = filt.last_scales([1.0, 0.5], noise_multiplier=1.0, clipping_norm=1.0)[1]
        total += square(Fraction(scale) / 2)
        assert total <= filt.spent[1]
    assert total <= square(budget)
    assert (total > 0) == (budget > 2.0**-400)


def test_last_scales_are_those_of_the_examples_asked_about() -> None:
    filt = hs.IndividualGDPFilter(4, mu=1.0)
    filt.step([0.0, 0.6, 0.0, 0.8])
    scales = filt.last_scales([1.0, 1.0], noise_multiplier=1.0, clipping_norm=1.0, indices=[3, 1])
    assert scales == pytest.approx([0.6, 0.8], rel=1e-12)
    assert filt.spent == pytest.approx([0.0, 1.0, 0.0, 1.0], rel=1e-12)


def test_scales_are_rounded_to_less_than_what_is_charged() -> None:
    rng = np.random.default_rng(6)
    norms = rng.uniform(0.5, 2.0, 3000)
    filt = hs.IndividualGDPFilter(3000, mu=1.0)
    filt.step(rng.uniform(0.0, 0.9, 3000))
    before = filt.spent.copy()
    scales = filt.last_scales(norms, noise_multiplier=1.0, clipping_norm=1.0)
    charged = [
        Fraction(after) - Fraction(was)
        for after, was in zip(filt.spent.tolist(), before.tolist(), strict=True)
    ]
    for scale, norm, cost in zip(scales.tolist(), norms.tolist(), charged, strict=True):
        assert 0 < (Fraction(scale) * Fraction(norm)) ** 2 <= cost


def test_what_is_spent_has_no_larger_root_than_is_said() -> None:
    filt = hs.IndividualGDPFilter(1000, mu=10.0)
    filt.step(np.random.default_rng(2).uniform(0.0, 3.0, 1000))
    for mu, spent in zip(filt.spent_mu().tolist(), filt.spent.tolist(), strict=True):
        assert Fraction(mu) ** 2 >= Fraction(spent)


# ---- odometers ----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(increment=st.floats(1e-3, 10.0), norms=st.lists(st.floats(0.0, 3.0), max_size=30))
def test_odometer_reads_the_next_level(increment: float, norms: list[float]) -> None:
    """The reading is a level, at least the root of the sum, and the level below is not enough."""
    odometer = hs.individual.IndividualGDPOdometer(1, increment=increment)
    total = Fraction(0)
    for norm in norms:
        odometer.step([norm])
        total += square(norm)
    level, mu = int(odometer.levels()[0]), float(odometer.mu()[0])
    assert total <= square(mu)
    assert level == 0 or total > (level - 1) * square(increment) * (1 - Fraction(1, 10**9))
    assert (level == 0) == (total == 0)
    assert mu == pytest.approx(increment * math.sqrt(level), rel=1e-12)


def test_a_level_is_not_rounded_down_to_what_was_spent() -> None:
    """Three levels are less than what was spent, by 7e-17 of it, and as a double they are the same."""
    odometer = hs.individual.IndividualGDPOdometer(3, increment=1.0 + 2.0**-26)
    for norm in (1.0, 1.0, 1.0, 2.0**-12, 2.0**-13, 2.0**-13, 2.0**-25):
        odometer.step([norm, norm if norm == 1.0 else 0.0, 0.0])
    assert odometer.levels().tolist() == [4.0, 3.0, 0.0]
    for increment, steps in ((0.25, 12), (3.0 * 2.0**-30, 7), (3.0 * 2.0**-330, 5)):
        exact = hs.individual.IndividualGDPOdometer(1, increment=increment)
        for _ in range(steps):
            exact.step([increment])
        assert exact.levels().tolist() == [steps]


def test_odometer_of_a_data_set() -> None:
    odometer = hs.individual.GDPOdometer(increment=0.1)
    for _ in range(420):
        odometer.step(1 / 100)
    assert odometer.level == 5
    assert odometer.steps == 420
    exact = hs.account(hs.Gaussian(100.0) * 420).epsilon(1e-5)
    # The price of a reading at any time that the outputs may choose.
    assert exact <= odometer.epsilon(1e-5) <= 1.25 * exact


# ---- epsilons of what was spent -----------------------------------------------------------------


@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-12, 1e-200])
def test_gaussian_epsilons(delta: float) -> None:
    """Certified against 40 digits: never below, and hardly above."""
    mu = np.array([0.0, 1e-8, 1e-3, 0.05, 0.3, 1.0, 4.0, 30.0, 500.0])
    found = _core.gaussian_epsilons(mu, delta)
    assert found[0] == 0.0
    with mpmath.workdps(40 + int(-math.log10(delta))):
        for m, epsilon in zip(mu[1:].tolist(), found[1:].tolist(), strict=True):
            assert gaussian_delta(mpmath.mpf(m), mpmath.mpf(epsilon)) <= mpmath.mpf(delta)
            # Where epsilon is tiny, rounding in the closed form is not.
            below = mpmath.mpf(epsilon) * (1 - mpmath.mpf("1e-9" if m >= 1e-3 else "1e-3"))
            assert epsilon == 0.0 or gaussian_delta(mpmath.mpf(m), below) > mpmath.mpf(delta)
    assert _core.gaussian_epsilons(mu, 0.0)[1] == math.inf
    assert not _core.gaussian_epsilons(mu, 1.0).any()


def test_individual_epsilons_stay_within_the_budget() -> None:
    rng = np.random.default_rng(2)
    filt = hs.IndividualGDPFilter(200, epsilon=1.0, delta=1e-5)
    for _ in range(300):
        filt.step(rng.exponential(0.05, 200))
    epsilon = filt.nonadaptive_epsilon(1e-5)
    assert (epsilon <= filt.epsilon(1e-5)).all()
    assert epsilon.max() <= 1.0
    assert epsilon.max() > 0.99
    assert filt.active_counts()[-1] < 200


def test_rdp_filter_with_sampling() -> None:
    """The charge is the sampled Gaussian's Renyi divergence, from above; a run within (epsilon, delta)."""
    filt = hs.individual.IndividualRDPFilter(3, epsilon=2.0, delta=1e-5)
    steps = 0
    while filt.step([0.0, 0.3, 1.0], noise_multiplier=1.5, clipping_norm=1.0, sampling_probability=0.01)[2]:
        steps += 1
    assert 50 < steps < 100_000
    assert filt.spent[0] == 0.0 < filt.spent[1] < filt.spent[2] <= filt.rho
    exact = hs.account(hs.PoissonSampled(hs.Gaussian(1.5), 0.01) * steps).epsilon(1e-5)
    assert exact <= filt.epsilon(1e-5)[2] <= 2.0
    # E_Q[(P/Q)^order], P = .99 N(0, 1) + .01 N(mu, 1), by quadrature.
    alpha, mu = filt.order, 1 / 1.5
    with mpmath.workdps(25):

        def density(t: mpmath.mpf) -> mpmath.mpf:
            ratio = 1 - mpmath.mpf("0.01") + mpmath.mpf("0.01") * mpmath.exp(mu * t - mu * mu / 2)
            return ratio**alpha * mpmath.npdf(t)

        rho = mpmath.log(mpmath.quad(density, [-12, 0, alpha * mu, alpha * mu + 12])) / (alpha - 1)
    assert rho <= filt.spent[2] / steps <= rho * (1 + 1e-6)


def test_rdp_and_gdp_filters_agree_on_the_sum() -> None:
    """For plain Gaussian noise rho = order mu^2 / 2, so the filters differ by their budgets only."""
    rho = hs.individual.IndividualRDPFilter(1, order=8.0, rho=4.0)
    gdp = hs.IndividualGDPFilter(1, mu=1.0)
    for value in np.random.default_rng(3).random(200) * 0.2:
        assert rho.step([value]).tolist() == gdp.step([value]).tolist()
    assert rho.spent[0] == pytest.approx(4.0 * gdp.spent[0], rel=1e-12)


@pytest.mark.parametrize(
    ("order", "probability", "noise"),
    [(1.0 + 2.0**-52, 0.5, 1.0), (1000.0, 0.5, 1.0), (8.0, 0.01, 1.0), (1e6, 1e-9, 1.0), (2.0, 0.3, 0.05)],
)
def test_sampling_never_costs_more_than_its_share(order: float, probability: float, noise: float) -> None:
    """By joint convexity the moment is at most 1 + q (e^{(order - 1) order mu^2 / 2} - 1); and it is no less than of one outcome."""
    filt = hs.individual.IndividualRDPFilter(1, order=order, rho=1e9)
    filt.step([1.0], noise_multiplier=noise, clipping_norm=1.0, sampling_probability=probability)
    with mpmath.workdps(400):
        plain = mpmath.mpf(order) * (mpmath.mpf(order) - 1) / (2 * mpmath.mpf(noise) ** 2)
        most = mpmath.log1p(probability * mpmath.expm1(plain)) / (mpmath.mpf(order) - 1)
        least = mpmath.log(mpmath.mpf(probability) ** order * mpmath.exp(plain)) / (mpmath.mpf(order) - 1)
    assert least <= filt.spent[0] <= 1.02 * most


@pytest.mark.parametrize(
    ("order", "probability", "noise"),
    [
        (2, 0.01, 1.0),
        (8, 0.01, 1.0),
        (32, 1e-5, 0.7),
        (256, 4e-4, 3.57),
        (406, 0.0378, 6.345),
        (1000, 0.5, 9.0),
    ],
)
def test_a_sampled_step_costs_its_divergence(order: int, probability: float, noise: float) -> None:
    """Not several times it, as where moments were infinite; the grid of mu is 0.7 % wide. Under "remove", which is the worse direction."""
    filt = hs.individual.IndividualRDPFilter(1, order=float(order), rho=1e9)
    filt.step([1.0], noise_multiplier=noise, clipping_norm=1.0, sampling_probability=probability)
    with mpmath.workdps(400):
        mu, q = 1 / mpmath.mpf(noise), mpmath.mpf(probability)
        moment = mpmath.fsum(
            mpmath.binomial(order, k) * q**k * (1 - q) ** (order - k) * mpmath.exp(k * (k - 1) * mu**2 / 2)
            for k in range(order + 1)
        )
        truth = mpmath.log(moment) / (order - 1)
    assert (
        truth <= filt.spent[0] <= truth * (1 + mpmath.mpf("1e-9"))
    )  # the clipping norm is an edge of the grid


def test_a_filter_of_any_budget_is_stored(tmp_path: Path) -> None:
    filt = hs.individual.IndividualRDPFilter(2, epsilon=1e-300, delta=1e-5)  # of an order of 10^303
    filt.step([1e-160, 0.0])
    filt.step([1e-160, 0.0], noise_multiplier=1.0, clipping_norm=1e-10, sampling_probability=0.5)
    filt.save(tmp_path / "filter")
    again = hs.individual.IndividualRDPFilter.load(tmp_path / "filter")
    assert (again.order, again.rho, *again.spent) == (filt.order, filt.rho, *filt.spent)


def test_masked_norms_are_refused() -> None:
    filt = hs.IndividualGDPFilter(2, mu=1.0)
    for masked in (np.ma.masked_array([0.1, 0.2], [False, True]), np.ma.masked_array([0.1, 0.2])):
        with pytest.raises(hs.ParameterTypeError, match=r"norms: .*masked"):
            filt.step(masked)
    with pytest.raises(hs.ParameterTypeError, match=r"indices: .*masked"):
        filt.step([0.1], indices=np.ma.masked_array([1], [True]))
    assert not filt.spent_mu().any()


def test_norms_of_16_bits_are_refused() -> None:
    """A norm of 1.0004 is 1 there, and a budget was overspent by as much."""
    true = np.array([1.0004, 0.3])
    few = true.astype(np.float16)
    assert few[0] < true[0]
    arguments = {"noise_multiplier": 2.0, "sampling_probability": 0.1, "clipping_norm": 5.0}
    approximate = hs.individual.ApproximateIndividualFilter(2, epsilon=1.0, delta=1e-5, **arguments)
    for book in (
        hs.IndividualGDPFilter(2, mu=1.0),
        hs.individual.IndividualRDPFilter(2, order=4.0, rho=1.0),
        hs.individual.IndividualGDPOdometer(2, increment=0.1),
        hs.IndividualAccountant(2, **arguments),
        approximate,
    ):
        with pytest.raises(hs.ParameterTypeError, match=r"norms: must be of 32 bits or more, not float16"):
            book.step(few)
        assert book.steps == 0
        book.step(true.astype(np.float32))


def test_the_largest_budgets_are_read_back(tmp_path: Path) -> None:
    filt = hs.individual.IndividualRDPFilter(2, epsilon=1e131, delta=1e-5)
    filt.save(tmp_path / "filter")
    assert hs.individual.IndividualRDPFilter.load(tmp_path / "filter").rho == filt.rho


def test_orders_that_are_no_doubles_are_rounded_down() -> None:
    """Divergences rise with the order: a bound at this one says nothing about the next double."""
    order = Fraction(1) + Fraction(8, 5) / 2**52
    assert hs.individual.RDPFilter(order=order, rho=1.0).order == 1.0 + 2.0**-52
    assert hs.accounting.rdp_epsilon(order, 0.0, 0.9) == hs.accounting.rdp_epsilon(1.0 + 2.0**-52, 0.0, 0.9)


@pytest.mark.parametrize("kind", ["filter", "rdp", "odometer"])
def test_what_is_closed_says_nothing(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "kept"
    made: Any = {
        "filter": lambda: hs.IndividualGDPFilter(3, mu=1.0, path=path),
        "rdp": lambda: hs.individual.IndividualRDPFilter(3, order=2.0, rho=1.0, path=path),
        "odometer": lambda: hs.individual.IndividualGDPOdometer(3, increment=1.0, path=path),
    }[kind]()
    made.step([0.1, 0.2, 0.3])
    before = made.spent.tolist()
    made.close()
    for ask in (lambda: made.spent, lambda: made.epsilon(1e-5), lambda: made.last_step, made.active_counts):
        with pytest.raises(hs.StorageError, match="is closed; open it again"):
            ask()
    again = type(made).open(path)
    assert again.spent.tolist() == before
    again.close()


@pytest.mark.parametrize("kind", ["GDP", "RDP"])
def test_a_halted_filter_lets_nothing_through(kind: str) -> None:
    filt = hs.individual.GDPFilter(mu=0.5) if kind == "GDP" else hs.individual.RDPFilter(order=2.0, rho=0.25)
    assert filt.step(0.3)
    assert not filt.step(1.0)
    assert filt.halted
    assert not filt.step(1e-3)
    assert filt.steps == 1
