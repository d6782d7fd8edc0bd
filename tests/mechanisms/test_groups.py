"""Curves, the pairs made of them, and groups: against enumeration of finite mechanisms and Gaussian closed forms."""

from __future__ import annotations

import itertools
import json
import math

import hockeystick as hs
import mpmath
import numpy as np
import pytest
from hockeystick._base.types import Array
from hockeystick.mechanisms.curves import Curve
from hockeystick.mechanisms.whole import Group, group_curve
from scipy.stats import norm

EPSILONS = (-0.5, 0.0, 0.1, 0.5, 1.0, 2.0, 4.0)


def worst(p: Array, q: Array, epsilon: float) -> float:
    """max over all events, and both directions."""
    events = np.array(list(itertools.product([0.0, 1.0], repeat=len(p))))
    x = math.exp(epsilon)
    return float(max((events @ (p - x * q)).max(), (events @ (q - x * p)).max()))


def curve_between(pairs: list[tuple[Array, Array]], nodes: Array) -> Curve:
    return Curve.of_symmetric(nodes, np.array([max(worst(p, q, e) for p, q in pairs) for e in nodes]))


def test_a_curve_and_its_pair_bound_the_mechanism_and_touch_it() -> None:
    rng = np.random.default_rng(3)
    for _ in range(60):
        p, q = rng.dirichlet(np.ones(4) * 0.5), rng.dirichlet(np.ones(4) * 0.5)
        if rng.random() < 0.3:
            p[0] = 0.0
            p /= p.sum()
        nodes = np.sort(rng.random(rng.integers(1, 40))) * 4.0
        curve = curve_between([(p, q)], nodes)
        profile = hs._core.Profile([[(curve.pair(), 1)]])
        for epsilon in (*EPSILONS, *nodes[:3]):
            truth, bound = worst(p, q, epsilon), float(curve(np.array(epsilon)))
            assert truth <= bound
            assert truth <= profile.delta_bounds(epsilon).upper
            assert profile.delta_bounds(epsilon).upper <= bound * (1.0 + 1e-8) + 1e-12
        for node in nodes:  # no smaller is known there, but for the margin, if it is a corner of the hull
            assert float(curve(np.array(node))) <= worst(p, q, node) * (1.0 + 1e-8) + 1e-9


@pytest.mark.parametrize(
    ("end", "deepest"), [(590.0, 1e-240), (590.0, 1e-60), (300.0, 1e-200), (600.0, 1e-250)]
)
def test_chords_far_out_are_not_lost(end: float, deepest: float) -> None:
    """A slope by e^epsilon is less than any double there; chords in mpmath."""
    nodes = np.linspace(0.0, end, 40)
    known = 0.5 * deepest ** (nodes / end)
    curve = Curve.of_symmetric(nodes, known)
    profile = hs._core.Profile([[(curve.pair(), 1)]])
    declared = hs.account(hs.mechanisms.DeclaredProfile(nodes, known))
    with mpmath.workdps(50):
        points = [(mpmath.exp(e), mpmath.mpf(d)) for e, d in zip(nodes, known, strict=True)]
        for (x, high), (y, low), left, right in zip(points, points[1:], nodes, nodes[1:], strict=False):
            for epsilon in left + (right - left) * np.array([0.01, 0.5, 0.9, 0.99]):
                chord = float(high + (low - high) * (mpmath.exp(epsilon) - x) / (y - x))
                for bound in (
                    float(curve(epsilon)),
                    profile.delta_bounds(epsilon).upper,
                    declared.delta(epsilon),
                ):
                    assert chord <= bound * (1.0 + 1e-15) <= chord * (1.0 + 1e-7) + 1e-300


def test_power_and_what_it_needs_are_tangents() -> None:
    rng = np.random.default_rng(4)
    for _ in range(40):
        p, q = rng.dirichlet(np.ones(5)), rng.dirichlet(np.ones(5))
        curve = curve_between([(p, q)], np.linspace(0.0, 5.0, 30))
        for event in itertools.product([0.0, 1.0], repeat=5):
            a, b = float(np.dot(event, p)), float(np.dot(event, q))
            assert a <= curve.power(np.array(b)) + 1e-15
            assert b >= curve.needed(np.array(a)) - 1e-15


def test_groups_of_finite_mechanisms() -> None:
    """Chains of distributions: the first against the last, from no more than the curve of neighbours."""
    rng, closest = np.random.default_rng(5), 0.0
    for size in (2, 3, 5):
        for trial in range(40):
            logits = rng.normal(size=4) + np.cumsum(
                rng.normal(size=(size + 1, 4)) * 0.3
                if trial % 2
                else np.tile(rng.normal(size=4), (size + 1, 1)) * 0.3,
                axis=0,
            )
            chain = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
            curve = curve_between(list(itertools.pairwise(chain)), np.linspace(0.0, 3.0, 200))
            group = group_curve(curve, size)
            for epsilon in EPSILONS:
                truth, bound = worst(chain[0], chain[-1], epsilon), float(group(np.array(epsilon)))
                assert truth <= bound * (1.0 + 1e-12)
                closest = max(closest, truth / bound if epsilon > 0.0 and bound > 1e-4 else 0.0)
    assert closest > 0.8


@pytest.mark.parametrize(("sigma", "size"), [(8.0, 4), (2.0, 2), (2.0, 10), (20.0, 64), (100.0, 1000)])
def test_gaussian_groups_are_gaussian(sigma: float, size: int) -> None:
    profile = hs.account(hs.Gaussian(sigma)).group(size)
    mu = size / sigma
    for epsilon in (0.0, mu * mu / 2.0, mu * mu / 2.0 + 4.0 * mu):
        truth = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))
        assert truth <= profile.delta(epsilon) <= truth * 1.03
    exact = hs.account(hs.Gaussian(sigma / size)).epsilon(1e-6)
    assert exact <= profile.epsilon(1e-6) <= exact * 1.003


@pytest.mark.parametrize("mu", [1.0, 10.0])
@pytest.mark.parametrize("size", [99, 100, 101, 10_000, 10**6])
def test_large_gaussian_groups_are_gaussian(mu: float, size: int) -> None:
    """Each record's share of delta is as deep as that of the group's mu; sizes are digits to the base of 100."""
    group, exact = hs.account(Group(hs.Gaussian(size / mu), size)), hs.account(hs.Gaussian(1.0 / mu))
    for delta in (1e-3, 1e-6, 1e-12, 1e-30):
        assert exact.epsilon_bounds(delta).lower <= group.epsilon(delta) <= 1.001 * exact.epsilon(delta)


@pytest.mark.parametrize("size", [150, 20_000])
def test_large_groups_of_finite_mechanisms(size: int) -> None:
    """A walk of one chance whose odds change by as much with each record, with a chance of telling all."""
    step, leak = 3.0 / size, 1e-3 / size
    group = hs.account(Group(hs.ApproximateDP(step, leak), size))
    # The chain that keeps every bound with equality: odds that grow by e^step, and the leak on top.
    for start in (1e-6, 1e-3, 0.03):
        chance = start
        for _ in range(size):
            chance = min(leak + math.exp(step) * chance, 1.0 - math.exp(-step) * (1.0 - leak - chance))
        for epsilon in (0.5, 1.5, 2.5):
            assert chance - math.exp(epsilon) * start <= group.delta(epsilon)
    assert group.delta(3.0) <= 1.01 * leak * math.expm1(3.0) / math.expm1(step)


@pytest.mark.parametrize("probability", [1e-6, 1e-8, 1e-20])
def test_groups_of_records_that_are_hardly_ever_sampled(probability: float) -> None:
    """No end of their curves was seen. The steps' own groups are no worse, and each record adds no more than its delta."""
    step = hs.PoissonSampled(hs.Gaussian(1.0), probability)
    group, users = hs.account(Group(step * 10, 3)), hs.account(hs.UserLevel(step, 3) * 10)
    for epsilon in (0.0, 1e-3):
        assert users.delta_bounds(epsilon).lower <= group.delta(epsilon)
    assert group.delta(0.0) <= 3.0 * 10.0 * probability + 1e-12


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("process", "least"),
    [
        (Group(hs.Gaussian(8.0), 4), hs.Gaussian(2.0)),
        (Group(hs.Gaussian(1e300), 3), hs.Gaussian(1e300 / 3.0)),
        (Group(hs.PureDP(250.0), 3), hs.PureDP(749.0)),
        (Group(hs.Gaussian(8.0), 4) + hs.Gaussian(3.0), hs.Gaussian(2.0) + hs.Gaussian(3.0)),
        (hs.PoissonSampled(hs.mechanisms.ExponentialMechanism(0.5), 0.1) * 10, hs.Gaussian(1.0) * 0),
        (hs.mechanisms.DeclaredProfile([0.5, 1.0], [0.1, 0.01]) * 3, hs.Gaussian(1.0) * 0),
        (hs.ZCDP(0.1) * 3, hs.Gaussian(1.0) * 0),
        (hs.PrivateSelection(hs.Gaussian(3.0), hs.Repetitions.geometric(3.0)), hs.Gaussian(3.0)),
    ],
    ids=str,
)
def test_curves_tell_nothing_from_below(process: hs.mechanisms.Process, least: hs.mechanisms.Process) -> None:
    """Chords, margins and cut ends are above the truth: lower bounds were, too, and "exceeding" values false."""
    found, truth = hs.account(process), hs.account(least)
    for epsilon in (0.0, 0.3, 2.0, math.inf):
        assert found.delta_bounds(epsilon).lower <= truth.delta_bounds(epsilon).upper
    for delta in (0.0, 1e-12, 1e-5, 0.1):
        assert found.epsilon_bounds(delta).lower <= truth.epsilon_bounds(delta).upper


def test_nothing_is_said_to_exceed_a_budget_by_a_curve() -> None:
    sigma = hs.calibrate_noise_multiplier(lambda s: Group(hs.Gaussian(s), 4), 1.9933, 1e-5, tolerance=1e-3)
    assert not sigma.certificate.tight


def test_other_groups() -> None:
    pure = hs.account(hs.PureDP(0.5)).group(3)
    assert 1.5 <= pure.epsilon(0.0) <= 1.5 + 1e-6
    coins = np.linspace(
        0.0, 1.0, 100_001
    )  # the worst chain of coins: each as far from the last as 0.5-DP allows
    moved = coins
    for _ in range(3):
        moved = np.minimum(math.exp(0.5) * moved, 1.0 - math.exp(-0.5) * (1.0 - moved))
    for epsilon in (0.0, 1.0, 1.4):
        truth = float((moved - math.exp(epsilon) * coins).max())
        assert truth <= pure.delta(epsilon) <= truth * 1.001 + 1e-6
    step = hs.PoissonSampled(hs.Gaussian(2.0), 0.01)
    sampled = hs.account(hs.UserLevel(step, 4) * 1000).epsilon(
        1e-5
    )  # knows the steps: no worse than the curve
    assert sampled <= hs.account(step * 1000).group(4).epsilon(1e-5) <= 1.01 * sampled
    assert hs.account(step * 1000).group(1).epsilon(1e-5) <= 1.001 * hs.account(step * 1000).epsilon(1e-5)
    report = hs.account(step * 10).group(2).report(delta=1e-5)
    assert report.unit == "one user with at most 2 records is added or removed"
    assert hs.account(Group(hs.Gaussian(0.0), 2)).epsilon(0.5) == math.inf
    assert hs.account(Group(hs.Gaussian(1.0) * 0, 2)).epsilon(0.0) == 0.0
    leaky = hs.account(hs.ApproximateDP(0.0, 1e-3)).group(5)
    assert 5e-3 <= leaky.delta(1.0) <= 5.1e-3
    with pytest.raises(hs.ParameterError, match="size"):
        hs.account(hs.Gaussian(1.0)).group(0)
    plain = json.dumps(hs.mechanisms.steps.to_dict(Group(step * 10, 2)))
    restored = hs.mechanisms.steps.from_dict(json.loads(plain))
    assert restored == Group(step * 10, 2)


def test_groups_of_whom_nothing_is_hidden() -> None:
    """The chains of a million tests end where none says anything."""
    for release in (hs.Gaussian(1.0), hs.PureDP(2.0), hs.ApproximateDP(0.1, 1e-3)):
        assert hs.account(Group(release, 10**6)).delta(3.0) == 1.0


@pytest.mark.parametrize("selected", [False, True])
def test_groups_of_truncated_batches_keep_their_places(selected: bool) -> None:
    # The pair is for n records against n - 1; that of n - 1 against n - 2 samples the record more often.
    step = hs.TruncatedPoissonSampled(1.0, dataset_size=10, sampling_probability=0.5, max_batch_size=4)
    less = hs.TruncatedPoissonSampled(1.0, dataset_size=9, sampling_probability=0.5, max_batch_size=4)
    assert step.truncation.sampled_if_full < less.truncation.sampled_if_full
    release = hs.PrivateSelection(step, hs.Repetitions.geometric(2.0)) if selected else step * 10
    assert "exactly 10 records" in hs.account(release).report(delta=1e-5, risks=False).unit
    for adjacency in ("add", "remove", "add_or_remove"):
        assert hs.account(release, adjacency).group(1).delta(1.0) > 0.0
        with pytest.raises(hs.ParameterError, match="zero_out"):
            hs.account(release, adjacency).group(2)
    for adjacency in ("zero_out", "replace_one"):
        assert hs.account(release, adjacency).group(2).delta(1.0) > hs.account(release, adjacency).delta(1.0)


def test_a_group_of_groups_says_how_many_records_it_protects():
    inner = hs.UserLevel(hs.PoissonSampled(hs.Gaussian(20.0), 0.01), 4)
    for process, records in (
        (Group(Group(hs.Gaussian(40.0), 2), 3), 6),
        (Group(inner, 3), 12),
        (Group(hs.Gaussian(40.0) * 2, 3), 3),
    ):
        said = hs.account(process).report(delta=1e-5).deployment.contribution_bound
        assert f"{records} records" in said


@pytest.mark.parametrize("adjacency", ["add", "remove"])
def test_curves_are_of_the_worse_direction(adjacency: str) -> None:
    group = Group(hs.PoissonSampled(hs.Gaussian(0.7), 0.1) * 3, 2)
    for delta in (1e-2, 1e-5):
        assert hs.account(group, adjacency).epsilon(delta) == hs.account(group, "add_or_remove").epsilon(
            delta
        )
