"""Numbers that are no doubles: what is charged for them is never less than they are worth."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import hockeystick as hs
import numpy as np
import pytest
from hockeystick._base.validation import doubles, real
from hockeystick.individual.spending import noise_deviation, values_of

WIDE = pytest.mark.skipif(
    np.finfo(np.longdouble).eps == np.finfo(np.float64).eps, reason="long doubles are doubles here"
)
RNG = np.random.default_rng(5)


def long_doubles(size: int) -> Any:
    return RNG.random(size).astype(np.longdouble) + RNG.random(size) * np.longdouble(2.0) ** -55


def exact(value: Any) -> Fraction:
    return Fraction(int(value)) if isinstance(value, np.integer) else Fraction(*value.as_integer_ratio())


ARRAYS: dict[str, Callable[[int], Any]] = {
    "longdouble": long_doubles,
    "int64": lambda size: RNG.integers(2**53, 2**63, size),
    "uint64": lambda size: RNG.integers(2**63, 2**64, size, np.uint64),
    "large end": lambda size: np.full(size, 2**64 - 1, np.uint64),
    "float32": lambda size: RNG.random(size, np.float32),
    "int32": lambda size: RNG.integers(0, 2**31, size, np.int32),
}
KINDS = [pytest.param(kind, marks=WIDE) if kind == "longdouble" else kind for kind in ARRAYS]


@pytest.mark.parametrize("kind", KINDS)
def test_norms_are_never_charged_less(kind: str) -> None:
    norms = ARRAYS[kind](2000)
    filt = hs.IndividualGDPFilter(norms.size, mu=1e100)
    odometer = hs.individual.IndividualGDPOdometer(norms.size, increment=1.0)
    renyi = hs.individual.IndividualRDPFilter(norms.size, order=2.0, rho=1e100)
    for kept in (filt, odometer, renyi):
        kept.step(norms)
        for norm, spent in zip(norms, kept.spent.tolist(), strict=True):
            true = exact(norm) ** 2
            assert true <= Fraction(spent) <= true * (1 + Fraction(3, 2**52))


@pytest.mark.parametrize("kind", KINDS)
def test_one_norm_for_all_is_never_charged_less(kind: str) -> None:
    for norm in ARRAYS[kind](200):
        filt = hs.IndividualGDPFilter(2, mu=1e100)
        filt.step(norm)
        assert Fraction(float(filt.spent[0])) >= exact(norm) ** 2


@WIDE
def test_norms_right_above_an_edge_are_in_the_next_cell() -> None:
    accountant = hs.IndividualAccountant(1, noise_multiplier=1.0, sampling_probability=0.1, clipping_norm=1.0)
    for cell in range(0, 500, 7):
        above = np.array([accountant.edges[cell]], np.longdouble) * (1 + np.longdouble(2.0) ** -60)
        one = hs.IndividualAccountant(1, noise_multiplier=1.0, sampling_probability=0.1, clipping_norm=1.0)
        one.step(above)
        counts = one._state.rows(0.1, slice(None))[0]
        assert np.flatnonzero(counts).tolist() == [cell + 1]


THIRDS = [Fraction(i, 3 * 7) for i in range(1, 200) if i % 3 and i % 7]
SCALARS = [*THIRDS, *(2**53 + i for i in range(1, 40)), *(np.int64(2**60 + i) for i in range(1, 40))]


def fraction(value: Any) -> Fraction:
    return Fraction(int(value)) if isinstance(value, np.integer) else Fraction(value)


def test_costs_of_a_data_set_are_never_less() -> None:
    for mu in SCALARS:
        true = fraction(mu)
        filt, odometer = hs.individual.GDPFilter(mu=1e100), hs.individual.GDPOdometer(increment=1.0)
        filt.step(mu)
        odometer.step(mu)
        assert Fraction(float(filt._ledger.spent[0])) >= true**2
        assert Fraction(float(odometer._ledger.spent[0])) >= true**2
        for how, cost in (({"mu": mu}, true**2), ({"rho": mu}, true)):
            renyi = hs.individual.RDPFilter(order=2.0, rho=1e100)
            renyi.step(**how)
            assert Fraction(float(renyi._ledger.spent[0])) >= cost


def test_norms_of_columns_are_never_less() -> None:
    """Each column of norm c is a Gaussian of noise multiplier sigma / c at most, exactly."""
    for norm in SCALARS:
        sigma = 3.0
        process = hs.mechanisms.cyclic_poisson([norm], 1, 0.5, sigma)
        ((step, count),) = process.items
        assert count == 1
        assert Fraction(step.mechanism.noise_multiplier) * fraction(norm) <= Fraction(sigma)


def test_noise_and_clipping_that_are_no_doubles() -> None:
    """The cost of a norm is (min(norm, C) / (sigma C))^2."""
    norms = RNG.random(40) * 3
    for sigma in THIRDS[:40]:
        for clip in THIRDS[10:80:10]:
            assert Fraction(noise_deviation(sigma, clip)) <= sigma * clip
            filt = hs.IndividualGDPFilter(40, mu=1e100)
            filt.step(norms, noise_multiplier=sigma, clipping_norm=clip)
            for norm, spent in zip(norms.tolist(), filt.spent.tolist(), strict=True):
                assert Fraction(spent) >= (min(Fraction(norm), clip) / (sigma * clip)) ** 2


def test_budgets_are_never_more() -> None:
    for budget in THIRDS:
        assert Fraction(hs.IndividualGDPFilter(1, mu=budget).mu) <= budget
        assert Fraction(hs.individual.IndividualRDPFilter(1, order=2.0, rho=budget).rho) <= budget


@pytest.mark.parametrize("towards", [-math.inf, math.inf])
@pytest.mark.parametrize("kind", KINDS)
def test_doubles_are_the_next_ones(kind: str, towards: float) -> None:
    array = ARRAYS[kind](500)
    for value, found in zip(array, doubles(array, towards).tolist(), strict=True):
        true, back = exact(value), math.nextafter(found, -towards)
        if towards > 0:
            assert back < true <= Fraction(found)
        else:
            assert Fraction(found) <= true < back


@pytest.mark.parametrize("towards", [-math.inf, math.inf])
def test_scalars_are_the_next_doubles(towards: float) -> None:
    for value in SCALARS:
        found = real("value", value, towards=towards)
        assert (Fraction(found) >= fraction(value)) if towards > 0 else (Fraction(found) <= fraction(value))
        assert abs(Fraction(found) - fraction(value)) < fraction(value) / 2**52
    assert real("value", 0.1, towards=towards) == 0.1


@WIDE
def test_ends_of_the_range() -> None:
    huge, tiny = np.longdouble(2.0) ** 2000, np.longdouble(2.0) ** -2000
    assert doubles(np.array([huge, tiny]), math.inf).tolist() == [math.inf, 5e-324]
    assert doubles(np.array([huge, tiny]), -math.inf).tolist() == [np.finfo(np.float64).max, 0.0]
    assert np.isnan(doubles(np.array([np.nan], np.longdouble), math.inf)).all()
    assert doubles(np.array([-np.inf, np.inf], np.longdouble), math.inf).tolist() == [-math.inf, math.inf]


@pytest.mark.parametrize("values", [[Fraction(1, 3)], ["0.1"], [None], [2**70], [1j]])
def test_objects_are_refused(values: Any) -> None:
    with pytest.raises(hs.ParameterTypeError, match="norms: must be an array of numbers"):
        values_of("norms", values, 1)


SMALL = [Fraction(1, 10**400), pytest.param(np.longdouble("1e-400"), marks=WIDE)]


@pytest.mark.parametrize("small", SMALL, ids=["fraction", "long double"])
def test_what_is_next_to_nothing_is_not_nothing(small: Any) -> None:
    """As doubles these are 0: a mechanism of no cost, a record that is never drawn."""
    for make in (
        hs.PureDP,
        hs.mechanisms.ExponentialMechanism,
        lambda x: hs.ApproximateDP(1.0, x),
        lambda x: hs.PoissonSampled(hs.Gaussian(1.0), x),
        lambda x: hs.TruncatedPoissonSampled(1.0, 10, x, 3),
        lambda x: hs.Mixture([hs.Gaussian(1.0), hs.Gaussian(2.0)], [x, 1]),
        lambda x: hs.MixtureOfGaussians(1.0, [0.0, x], [0.5, 0.5]),
        lambda x: hs.MixtureOfGaussians(1.0, np.array([0.0, x]), [0.5, 0.5]),
    ):
        with pytest.raises(hs.ParameterError, match="too small for a double"):
            make(small)
    assert real("delta", small, 0.0, 1.0, towards=math.inf) == 5e-324
    assert real("delta", 0 * small, 0.0, 1.0) == 0.0
