"""Pure DP adds up exactly: a budget can be spent to its end, and not beyond."""

import math
from fractions import Fraction
from typing import Any

import hockeystick as hs
import pytest

EPSILONS = [0.25, 1.0, 0.1, 1 / 3, 5e-324, 1e-310, 17.0, 699.0]


def pure(epsilon: float) -> list[tuple[Any, str, Fraction]]:
    """Mechanisms, adjacencies, and what a record of theirs is told apart by at most."""
    exact, scale = Fraction(epsilon), max(1e-3, min(1.0 / epsilon if epsilon > 1e-300 else 1e12, 1e12))
    return [
        (hs.PureDP(epsilon), "add_or_remove", exact),
        (hs.PureDP(epsilon), "replace_one", exact),
        (hs.RandomizedResponse(epsilon, 3), "zero_out", exact),
        (hs.mechanisms.ExponentialMechanism(epsilon), "add", exact),
        (hs.Laplace(scale), "remove", 1 / Fraction(scale)),
        (hs.Laplace(scale), "replace_one", 2 / Fraction(scale)),
        (hs.DiscreteLaplace(scale, 3), "zero_out", 3 / Fraction(scale)),
    ]


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_sums_are_rounded_once(epsilon: float) -> None:
    for mechanism, adjacency, exact in pure(epsilon):
        for count in (1, 4, 10, 999):
            profile = hs.account(mechanism * count, adjacency)
            lower, upper = profile.epsilon_bounds(0.0)
            assert lower <= exact * count <= upper
            assert Fraction(math.nextafter(upper, -math.inf)) < exact * count
            assert profile.delta_bounds(upper) == (0.0, 0.0)
            assert profile.epsilon(1e-300) <= upper


def test_kinds_are_added_up_before_they_are_rounded() -> None:
    kinds = [mechanism for epsilon in (0.1, 1 / 3, 0.7) for mechanism, _, _ in pure(epsilon)[:2]]
    exact = sum(Fraction(each.epsilon) for each in kinds)
    process = hs.mechanisms.Process((each, 1) for each in kinds)
    upper = hs.account(process).epsilon(0.0)
    assert Fraction(math.nextafter(upper, 0.0)) < exact <= upper
    # What is not pure has no such sum.
    assert hs.account(process + hs.Gaussian(1.0)).epsilon(0.0) == math.inf
    assert hs.account(process + hs.ApproximateDP(0.1, 1e-6)).epsilon(0.0) == math.inf


@pytest.mark.parametrize(
    ("mechanism", "steps"),
    [
        (hs.PureDP(1.0), 1),
        (hs.PureDP(0.25), 4),
        (hs.Laplace(4.0), 4),
        (hs.RandomizedResponse(0.25), 4),
        (hs.mechanisms.ExponentialMechanism(0.25), 4),
        (hs.DiscreteLaplace(8.0, 2), 4),
        (hs.PureDP(0.1), 9),  # the double is more than a tenth
        (hs.PureDP(Fraction(1, 3)), 2),  # and this one more than a third
    ],
    ids=str,
)
def test_budgets_are_spent_to_their_end(mechanism: Any, steps: int) -> None:
    assert hs.calibrate_steps(lambda n: mechanism * n, 1.0, 0.0) == steps


@pytest.mark.parametrize("value", [Fraction(1, 3), Fraction(2, 3), Fraction(10**30 + 1, 10**30), 2**60 + 1])
def test_what_is_no_double_is_rounded_to_more_loss(value: Any) -> None:
    exact = Fraction(value)
    assert exact <= Fraction(hs.PureDP(value).epsilon) <= exact * (1 + Fraction(1, 2**52))
    assert exact * (1 - Fraction(1, 2**52)) <= Fraction(hs.Laplace(value).scale) <= exact
