"""Privacy-loss distributions of dp_accounting as steps."""

import math

import hockeystick as hs
import pytest
from hockeystick.interop import dp_accounting as bridge

pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")


def test_pessimistic_ones_are_upper_bounds() -> None:
    """Of the mechanism, and no more than what dp_accounting makes of them; both directions of a sampled one."""
    theirs = pld.from_gaussian_mechanism(2.0, value_discretization_interval=1e-2)
    profile, exact = hs.account(bridge.from_pld(theirs) * 10), hs.account(hs.Gaussian(2.0) * 10)
    composed = theirs.self_compose(10)
    for epsilon in (0.0, 1.0, 4.0):
        assert exact.delta_bounds(epsilon).lower <= profile.delta(epsilon)
        assert profile.delta(epsilon) <= composed.get_delta_for_epsilon(epsilon) * 1.002 + 1e-9
        assert profile.delta_bounds(epsilon).lower <= composed.get_delta_for_epsilon(epsilon) * (1 + 1e-9)
    skewed = pld.from_gaussian_mechanism(1.0, value_discretization_interval=1e-2, sampling_prob=0.1)
    for adjacency in ("remove", "add"):
        step = hs.account(bridge.from_pld(skewed), adjacency)
        truth = hs.account(hs.PoissonSampled(hs.Gaussian(1.0), 0.1), adjacency)
        assert truth.delta_bounds(0.3).lower <= step.delta(0.3) <= truth.delta(0.3) * 1.05 + 1e-9


def test_what_is_all_at_infinity() -> None:
    """dp_accounting cannot make it dense."""
    theirs = pld.from_two_probability_mass_functions({0: 0.0}, {1: 0.0})
    step = bridge.from_pld(theirs)
    assert hs.account(step).delta(5.0) == theirs.get_delta_for_epsilon(5.0) == 1.0


def test_sampled_as_events_are() -> None:
    """Sampling what was loaded is no less than the sampled mechanism."""
    step = bridge.from_pld(pld.from_laplace_mechanism(1.0, value_discretization_interval=1e-2))
    ours = hs.account(hs.PoissonSampled(step, 0.1) * 20)
    truth = hs.account(hs.PoissonSampled(hs.Laplace(1.0), 0.1) * 20)
    assert truth.delta_bounds(0.5).lower <= ours.delta(0.5) <= truth.delta(0.5) * 1.05


def test_what_is_refused() -> None:
    optimistic = pld.from_gaussian_mechanism(
        2.0, value_discretization_interval=1e-2, pessimistic_estimate=False
    )
    with pytest.raises(hs.ParameterError, match="optimistic"):
        bridge.from_pld(optimistic)
    with pytest.raises(hs.ParameterTypeError, match="not float"):
        bridge.from_pld(math.pi)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("interval", [1e-3, 0.3])
def test_profiles_are_kept(sigma: float, interval: float) -> None:
    """What is taken from the smallest losses changes delta nowhere at epsilon >= 0, by more than rounding."""
    theirs = pld.from_gaussian_mechanism(sigma, value_discretization_interval=interval)
    step = hs.account(bridge.from_pld(theirs), "remove")
    for epsilon in (0.0, 0.5, 1.0, 3.0):
        assert step.delta(epsilon) == pytest.approx(
            theirs.get_delta_for_epsilon(epsilon), rel=1e-4, abs=1e-11
        )
        assert step.delta(epsilon) >= theirs.get_delta_for_epsilon(epsilon) - 1e-11
