"""Pure DP adds up exactly: a budget can be spent to its end, and not beyond."""

import itertools
import math
from fractions import Fraction
from typing import Any

import hockeystick as hs
import mpmath
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


def all_fail(kinds: list[tuple[hs.ApproximateDP, int]]) -> Fraction:
    """Exactly: what is left of delta where no loss counts but infinite ones."""
    none = Fraction(1)
    for each, count in kinds:
        none *= (1 - Fraction(each.delta)) ** count
    return 1 - none


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("kinds", "beside"),
    [
        ([(hs.ApproximateDP(0.1, 1e-5), 1)], []),
        ([(hs.ApproximateDP(0.1, 2.0**-17), 1)], [(hs.PureDP(0.1), 1)]),
        ([(hs.ApproximateDP(0.1, 1e-5), 1)], [(hs.Laplace(10.0), 3)]),
        (
            [(hs.ApproximateDP(1.0, 1e-300), 1)],
            [(hs.DiscreteLaplace(7.0, 2), 2), (hs.RandomizedResponse(0.3), 5)],
        ),
        ([(hs.ApproximateDP(0.3, 0.25), 3), (hs.ApproximateDP(0.2, 1e-9), 1)], [(hs.PureDP(0.5), 2)]),
        ([(hs.ApproximateDP(0.01, 1e-8), 1000)], []),
        ([(hs.ApproximateDP(0.0, 1e-6), 1), (hs.ApproximateDP(0.25, 0.0), 4)], []),
        ([(hs.ApproximateDP(0.5, 0.9), 7)], [(hs.PureDP(0.5), 2)]),
    ],
    ids=str,
)
@pytest.mark.parametrize("adjacency", ["add_or_remove", "remove", "zero_out"])
def test_declared_guarantees_hold_at_their_own_delta(
    kinds: list[tuple[hs.ApproximateDP, int]], beside: list[tuple[Any, int]], adjacency: str
) -> None:
    """Engines know the mass of infinite losses up to 1e-12 of it, and said that epsilon is inf there."""
    process = hs.mechanisms.Process([*kinds, *beside])
    profile = hs.account(process, adjacency)
    failing = all_fail(kinds)
    sums: dict[type, Fraction | float | None] = {
        hs.Laplace: 0.1,
        hs.DiscreteLaplace: Fraction(2, 7),
        hs.RandomizedResponse: 0.3,
        hs.PureDP: None,
    }
    exact = sum((Fraction(each.epsilon) * count for each, count in kinds), Fraction(0))
    for each, count in beside:
        loss = sums[type(each)]
        exact += Fraction(each.epsilon if loss is None else loss) * count
    total, first = float(exact), sum(count * Fraction(each.delta) for each, count in kinds)
    for beyond in (total * (1 + 1e-15), 2 * total + 1.0, math.inf):
        lower, upper = profile.delta_bounds(beyond)
        assert lower <= failing <= upper
        assert upper <= failing * (1 + Fraction(1, 10**11))
    if len(kinds) == 1 == kinds[0][1] or first <= 1e-5:
        given = profile.delta(math.inf)
        assert given <= first
        lower, upper = profile.epsilon_bounds(given)
        assert lower <= exact * (1 + Fraction(1, 2**50))
        # Of many steps a little more than what is revealed allows for much.
        assert process.steps > 20 or exact * (1 - Fraction(1, 10**9)) <= lower
        assert upper <= total * (1 + 4e-16)
    # Where less is allowed than what is revealed, nothing finite will do.
    assert profile.epsilon_bounds(float(failing * (1 - Fraction(1, 10**9))))[0] == math.inf


@pytest.mark.parametrize(
    "process",
    [
        hs.Laplace(1e-310),
        hs.PureDP(8e307) * 1,
        hs.PureDP(1e300) * 3,
        hs.ApproximateDP(8e307, 1e-3),
        hs.ApproximateDP(1.0, 1.0) * 5,
        hs.ApproximateDP(1.0, 5e-324),
        hs.ApproximateDP(1e-320, 5e-324) * 10**6,
        hs.ApproximateDP(0.1, 1e-6) * 10**6,
        hs.ApproximateDP(0.5, 1e-310) + hs.PureDP(1e-310),
    ],
    ids=str,
)
@pytest.mark.parametrize("adjacency", ["add_or_remove", "replace_one"])
def test_declared_guarantees_at_the_ends_of_their_ranges(process: Any, adjacency: str) -> None:
    profile = hs.account(process, adjacency)
    deltas = [profile.delta_bounds(epsilon) for epsilon in (0.0, 1e-310, 0.1, 1.0, 1e307, math.inf)]
    epsilons = [
        profile.epsilon_bounds(delta) for delta in (0.0, 5e-324, 1e-310, 1e-6, 0.5, 1.0 - 2**-53, 1.0)
    ]
    for bounds in (deltas, epsilons):
        assert all(lower <= upper for lower, upper in bounds)
        # Both fall.
        assert all(after.lower <= before.upper for before, after in itertools.pairwise(bounds))


@pytest.mark.parametrize(
    "release",
    [
        hs.ApproximateDP(0.1, 1e-5),
        hs.mechanisms.DeclaredProfile([0.1], [1e-5]),
        hs.mechanisms.DeclaredProfile([0.0, 1.0, 0.1], [1e-4, 1e-5, 1e-5]),
        # The error is there to be added.
        hs.mechanisms.DeclaredProfile([0.1, 0.0], [0.0, 1.0], error=1e-5),
    ],
    ids=str,
)
def test_a_declared_budget_is_spent_to_its_end(release: Any) -> None:
    assert hs.account(release).epsilon(1e-5) == 0.1
    assert hs.account(release).delta(0.1) == 1e-5
    assert hs.calibrate_steps(lambda n: release * n, 1.0, 1e-5) == 1
    assert hs.calibrate_steps(lambda n: release * n, 1.0, 1e-4) == 10
    assert "(0.1, 1e-05)-differential privacy" in hs.account(release).report(delta=1e-5).statement()
    # The rest of the composition has a delta of its own.
    assert hs.account(hs.Gaussian(3.0) + release).epsilon(1e-5) == math.inf


@pytest.mark.parametrize("adjacency", ["add_or_remove", "remove", "zero_out", "replace_one"])
@pytest.mark.parametrize(
    ("epsilon", "delta", "q"), [(5.0, 1e-9, 1e-3), (1.0, 1e-5, 0.01), (0.5, 1e-3, 0.3), (0.0, 0.1, 0.25), (1e-6, 2.0**-40, 1.0), (60.0, 1e-20, 1e-9)]
)  # fmt: skip
def test_sampled_declarations_hold_at_their_share_of_delta(
    epsilon: float, delta: float, q: float, adjacency: str
) -> None:
    """Epsilon was inf at q delta, and is where rounding made that less than it is."""
    share = Fraction(q) * Fraction(delta)
    exact = mpmath.log1p(mpmath.mpf(q) * mpmath.expm1(epsilon))
    profile = hs.account(hs.PoissonSampled(hs.ApproximateDP(epsilon, delta), q), adjacency)
    at = float(share) if Fraction(float(share)) >= share else math.nextafter(float(share), 1.0)
    lower, upper = profile.epsilon_bounds(at)
    assert exact * (1 - mpmath.mpf(1e-9)) <= upper <= exact * (1 + mpmath.mpf(2e-14)) + 1e-300
    assert exact * (1 - mpmath.mpf(1e-7)) <= lower <= exact
    assert share <= profile.delta(math.inf) == at
    less = math.nextafter(at, 0.0)
    assert Fraction(less) < share
    assert epsilon == 0.0 or profile.epsilon(less) == math.inf


def test_batches_without_replacement_keep_their_share_of_what_is_declared() -> None:
    profile = hs.account(hs.WithoutReplacement(hs.ApproximateDP(1.0, 2.0**-20), 1, 8), "replace_one")
    exact = math.log1p(math.expm1(1.0) / 8)
    assert profile.epsilon(2.0**-23) == pytest.approx(exact, rel=1e-13)
    assert profile.epsilon(2.0**-23) >= exact
    assert profile.epsilon(math.nextafter(2.0**-23, 0.0)) == math.inf


@pytest.mark.parametrize("q", [0.01, 0.25, 0.3])
def test_no_noise_says_nothing_of_who_is_not_sampled(q: float) -> None:
    step = hs.PoissonSampled(hs.Gaussian(0.0), q)
    assert hs.account(step).epsilon(q) == 0.0
    assert hs.account(step).epsilon(math.nextafter(q, 0.0)) == math.inf
    assert hs.account(step * 2).epsilon(q) == math.inf
    once = 1 - (1 - Fraction(q)) ** 2
    lower, upper = hs.account(step * 2).delta_bounds(3.0)
    assert lower <= once <= upper <= once * (1 + Fraction(1, 10**11))
