"""Events and methods that dp_accounting has since the release after 0.6, against enumeration.

Where the installed release lacks them, events of the same names and fields stand in, and the adapter is imported anew beside itself.
"""

import importlib.util
import itertools
import math
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import attrs
import dp_accounting as dpa
import hockeystick as hs
import numpy as np
import pytest
from dp_accounting import dp_event as ev
from hockeystick.interop import dp_accounting as installed
from scipy.stats import norm

ADD_OR_REMOVE, REPLACE_ONE, ZERO_OUT = dpa.NeighboringRelation
FIELDS: dict[str, Any] = {
    "DiscreteGaussianDpEvent": {
        "sigma": attrs.field(),
        "sensitivity": attrs.field(default=1.0),
        "dimension": attrs.field(default=None),
    },
    "EpsilonDeltaDpEvent": ["epsilon", "delta"],
    "ExponentialMechanismDpEvent": ["epsilon"],
    "PermuteAndFlipDpEvent": ["epsilon"],
}


@pytest.fixture(scope="module")
def bridge() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patched:
        missing = [name for name in FIELDS if not hasattr(ev, name)]
        for name in missing:
            kind = attrs.make_class(name, FIELDS[name], bases=(ev.DpEvent,), frozen=True)
            patched.setattr(ev, name, kind, raising=False)
        if not missing:
            yield installed
            return
        assert installed.__file__ is not None
        spec = importlib.util.spec_from_file_location(
            "hockeystick.interop.dp_accounting_later", installed.__file__
        )
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module


def event(name: str, *fields: Any) -> Any:
    return getattr(ev, name + "DpEvent")(*fields)


def worst(p: Any, q: Any, epsilon: float) -> float:
    return math.fsum(max(0.0, a - math.exp(epsilon) * b) for a, b in zip(p, q, strict=True))


def test_there_and_back(bridge: ModuleType) -> None:
    there = {
        event("DiscreteGaussian", 2.0, 3, 1): hs.DiscreteGaussian(2.0, 3),
        event("DiscreteGaussian", 2.0, 3.9, 1): hs.DiscreteGaussian(2.0, 3),  # integers move by integers
        event("EpsilonDelta", 0.5, 1e-6): hs.ApproximateDP(0.5, 1e-6),
        event("ExponentialMechanism", 0.5): hs.mechanisms.ExponentialMechanism(0.5),
    }
    for theirs, ours in there.items():
        assert bridge.from_event(theirs, ADD_OR_REMOVE) == hs.mechanisms.Process([(ours, 1)])
        assert bridge.from_event(bridge.to_event(ours), ZERO_OUT) == hs.mechanisms.Process([(ours, 1)])
    assert bridge.to_event(hs.PureDP(0.5)) == event("EpsilonDelta", 0.5, 0.0)
    free = [
        *(event("DiscreteGaussian", 2.0, 0.5, 1), event("DiscreteGaussian", 2.0, 0.0)),
        *(event("EpsilonDelta", 0, 0.0), event("ExponentialMechanism", 0), event("PermuteAndFlip", 0)),
    ]
    assert bridge.from_event(ev.ComposedDpEvent(free), REPLACE_ONE) == hs.mechanisms.Process()
    for revealing in (event("DiscreteGaussian", 0.0, 1), event("EpsilonDelta", math.inf, 0.0)):
        assert bridge.HockeystickAccountant().compose(revealing).get_epsilon(0.5) == math.inf


@pytest.mark.parametrize("name", [name.removesuffix("DpEvent") for name in FIELDS])
def test_parameters_out_of_range_are_refused(bridge: ModuleType, name: str) -> None:
    for wrong in (-1.0, math.nan, "1"):
        given = (wrong, 0.1) if name == "EpsilonDelta" else (wrong,)
        with pytest.raises(dpa.UnsupportedEventError):
            bridge.from_event(event(name, *given), ADD_OR_REMOVE)
    sampled = ev.PoissonSampledDpEvent(0.1, event("DiscreteGaussian", 2.0, 1))
    with pytest.raises(dpa.UnsupportedEventError, match="Renyi"):
        bridge.from_event(sampled, ADD_OR_REMOVE)


@pytest.mark.parametrize("sigma", [0.6, 1.5])
def test_discrete_gaussian_of_several_coordinates(bridge: ModuleType, sigma: float) -> None:
    """Of two coordinates that both move by 1, by enumeration; one coordinate is not the worst case."""
    ticks = np.arange(-30, 31)
    one = np.exp(-(ticks**2) / (2.0 * sigma**2))
    p = np.outer(one, one).ravel() / one.sum() ** 2
    moved = np.exp(-((ticks - 1) ** 2) / (2.0 * sigma**2))
    q = np.outer(moved, moved).ravel() / one.sum() ** 2
    both = bridge.HockeystickAccountant().compose(event("DiscreteGaussian", sigma, math.sqrt(2.0)))
    replaced = bridge.HockeystickAccountant(REPLACE_ONE).compose(event("DiscreteGaussian", sigma, 2**0.5))
    for epsilon in (0.0, 0.5, 1.0, 2.0, 4.0):
        exact = worst(p, q, epsilon)
        assert exact <= both.get_delta(epsilon) <= replaced.get_delta(epsilon)
    # sqrt(2), floored, would be the shift by 1 of one coordinate: too little.
    assert hs.account(hs.DiscreteGaussian(sigma, 1)).delta(0.5) < worst(p, q, 0.5)


def permute_and_flip(scores: tuple[float, ...], rate: float) -> list[float]:
    """By its definition: candidates in random order, each taken with probability e^(rate (score - best)), the first that is."""
    found = [0.0] * len(scores)
    for order in itertools.permutations(range(len(scores))):
        left = 1.0 / math.factorial(len(scores))
        for candidate in order:
            taken = math.exp(rate * (scores[candidate] - max(scores)))
            found[candidate] += left * taken
            left *= 1.0 - taken
    return found


def test_permute_and_flip_is_no_worse_than_laplace_noise(bridge: ModuleType) -> None:
    rng = np.random.default_rng(7)
    for epsilon in (0.3, 1.0, 3.0):
        accountant = bridge.HockeystickAccountant().compose(event("PermuteAndFlip", epsilon))
        at = np.linspace(0.0, epsilon, 7)
        bound, most = [accountant.get_delta(x) for x in at], np.zeros(len(at))
        for _ in range(60):
            scores = rng.choice([0.0, rng.normal()], 4) * rng.choice([0.0, 1.0, 4.0]) + rng.choice([-1, 1], 4)
            for moves in itertools.product((-1.0, 1.0), repeat=4):
                q = permute_and_flip(tuple(scores + moves), epsilon / 2)
                p = permute_and_flip(tuple(scores), epsilon / 2)
                most = np.maximum(most, [worst(p, q, x) for x in at])
        assert (most <= np.array(bound) + 1e-12).all()
        assert most[0] > 0.6 * bound[0]


def test_true_positive_rates_and_the_gaussian_they_imply() -> None:
    accountant = installed.HockeystickAccountant().compose(ev.GaussianDpEvent(2.0), 4)  # mu = 1
    rates = np.array([[0.0, 1e-6, 1e-3], [0.1, 0.5, 1.0]])
    found = accountant.get_true_positive_rates(rates)
    exact = norm.cdf(norm.ppf(rates) + 1.0)
    assert found.shape == rates.shape
    assert (exact <= found + 1e-15).all()
    np.testing.assert_allclose(found, exact, rtol=1e-6)
    assert isinstance(accountant.get_true_positive_rates(0.1), float)
    assert accountant.get_true_positive_rates(0.1) == found[1, 0]
    assert 1.0 <= accountant.get_gdp_parameter_estimate() <= 1.0 + 1e-6
    loose = accountant.get_gdp_parameter_estimate(np.array([0.5, 1e-3]))
    assert 0.9 < loose < accountant.get_gdp_parameter_estimate(1e-3 / 2) < 1.0
    with pytest.raises(hs.ParameterError, match="false_positive_rates"):
        accountant.get_true_positive_rates([0.1, 1.5])
    for odd in ([], 1.0, 1e-310, math.nan):
        with pytest.raises(hs.ParameterError, match="false_positive_rates"):
            accountant.get_gdp_parameter_estimate(odd)
    nothing = installed.HockeystickAccountant()
    assert nothing.get_true_positive_rates(0.5) == 0.5
    assert nothing.get_gdp_parameter_estimate() == 0.0
    everything = nothing.compose(ev.NonPrivateDpEvent())
    assert everything.get_true_positive_rates(0.0) == 1.0
    assert everything.get_gdp_parameter_estimate() == math.inf
