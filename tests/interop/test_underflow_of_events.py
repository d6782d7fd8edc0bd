"""Events whose parameters underflow: never a free step, and never more noise than they say."""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from types import SimpleNamespace

import hockeystick as hs
import pytest

pytest.importorskip("dp_accounting")

from dp_accounting import NeighboringRelation, dp_event
from hockeystick.interop.dp_accounting import _discrete_gaussian, from_event, to_event

RELATION = NeighboringRelation.ADD_OR_REMOVE_ONE


@pytest.mark.parametrize(
    "rates",
    [(0.1, 0.5, 0.5), (1e-200, 1e-200), (3e-162, 1e-162), (5e-324, 0.5), (0.3, 0.7, 0.9, 0.1), (1.0, 1.0)],
)
def test_nested_rates_are_rounded_up(rates: tuple[float, ...]) -> None:
    event = functools.reduce(
        lambda inner, q: dp_event.PoissonSampledDpEvent(q, inner), rates, dp_event.GaussianDpEvent(1.0)
    )
    ((step, count),) = from_event(event, RELATION)
    exact = math.prod(map(Fraction, rates))
    assert count == 1
    assert exact <= Fraction(step.sampling_probability) <= exact * (1 + Fraction(2) ** -52) + Fraction(5e-324)
    nested = functools.reduce(hs.PoissonSampled, rates, hs.Gaussian(1.0))
    assert step.sampling_probability == pytest.approx(nested.participation, rel=1e-15)
    ((again, _),) = from_event(to_event(nested), RELATION)
    assert again == step


@pytest.mark.parametrize(
    ("sigma", "sensitivity"), [(1e300, 1e-300), (1e162, 1.0), (1.0, 1e-162), (3.0, 2.0), (1e-200, 1e200)]
)
@pytest.mark.parametrize("relation", [RELATION, NeighboringRelation.REPLACE_ONE])
def test_zcdp_of_discrete_gaussians_is_rounded_up(
    sigma: float, sensitivity: float, relation: NeighboringRelation
) -> None:
    """Not every dp_accounting has the event; any object with its fields will do."""
    step = _discrete_gaussian(SimpleNamespace(sigma=sigma, sensitivity=sensitivity, dimension=3), relation)
    shift = 2 if relation is NeighboringRelation.REPLACE_ONE else 1
    exact = (shift * Fraction(sensitivity) / Fraction(sigma)) ** 2 / 2
    if isinstance(step, hs.ApproximateDP):
        assert (step.delta, exact > Fraction(1e308)) == (1.0, True)
    else:
        assert exact <= Fraction(step.rho)


@pytest.mark.parametrize("noise", [5e-324, 1.5e-323, 1e-310, 1.0, 1e308])
def test_noise_of_trees_is_rounded_down(noise: float) -> None:
    event = dp_event.SingleEpochTreeAggregationDpEvent(noise, [3])
    ((step, _),) = from_event(event, NeighboringRelation.REPLACE_SPECIAL)
    assert 2 * Fraction(step.noise_multiplier) ** 2 <= Fraction(noise) ** 2


@pytest.mark.parametrize("parameter", [0.1, 0.3, 1 / 3, 7e-10, 49.0, 1e-11, 1e300])
def test_discrete_laplace_noise_is_rounded_down(parameter: float) -> None:
    ((step, _),) = from_event(dp_event.DiscreteLaplaceDpEvent(parameter, 1), RELATION)
    assert Fraction(step.scale) * Fraction(parameter) <= 1
    back = to_event(step)
    assert Fraction(back.noise_parameter) * Fraction(step.scale) >= 1
