"""FinitePair, PrivacyLoss and DeclaredProfile against exact enumeration; nested sampling."""

from __future__ import annotations

import itertools
import json
import math
import random
from fractions import Fraction

import flint
import hockeystick as hs
import mpmath
import numpy as np
import pytest
from flint import arb, fmpq
from hockeystick.mechanisms import atoms
from hockeystick.mechanisms.ratios import fewer, from_masses, hidden, lacking, log_ratio
from hockeystick.mechanisms.steps import from_dict, to_dict
from hockeystick.verify.check import verify
from hypothesis import given, settings
from hypothesis import strategies as st

Masses = list[tuple[arb, arb]]
FLOOR = Fraction(2) ** -1060


@pytest.fixture(autouse=True)
def precision():
    before, flint.ctx.prec = flint.ctx.prec, 2500
    yield
    flint.ctx.prec = before


def ball(value: Fraction | float) -> arb:
    exact = Fraction(value)
    return arb(fmpq(exact.numerator, exact.denominator))


def completed(p: list[float], q: list[float]) -> list[Fraction]:
    """p, but its largest entry is what the others leave of 1; of equal ones that where q is largest."""
    at = max(range(len(p)), key=lambda i: (p[i], q[i], -i))
    return [
        1 - sum((Fraction(x) for j, x in enumerate(p) if j != at), Fraction(0)) if i == at else Fraction(p[i])
        for i in range(len(p))
    ]


def law(p: list[float], q: list[float]) -> Masses:
    return [(ball(a), ball(b)) for a, b in zip(completed(p, q), completed(q, p), strict=True)]


def power(masses: Masses, steps: int) -> Masses:
    """All multisets of outcomes."""
    out = []
    for chosen in itertools.combinations_with_replacement(range(len(masses)), steps):
        ways = math.factorial(steps)
        for i in set(chosen):
            ways //= math.factorial(chosen.count(i))
        p = q = arb(ways)
        for i in chosen:
            p, q = p * masses[i][0], q * masses[i][1]
        out.append((p, q))
    return out


def swapped(masses: Masses) -> Masses:
    return [(q, p) for p, q in masses]


def sampled(masses: Masses, rate: float) -> Masses:
    return [(arb(rate) * p + (1 - arb(rate)) * q, q) for p, q in masses]


def delta(masses: Masses, epsilon: float) -> arb:
    y = arb(epsilon).exp()
    return sum((p - y * q for p, q in masses if p > y * q), arb(0))


def truths(masses: Masses, adjacency: str, epsilon: float) -> list[arb]:
    ways = {"remove": [masses], "add": [swapped(masses)]}
    return [delta(way, epsilon) for way in ways.get(adjacency, [masses, swapped(masses)])]


def enclosed(
    process: hs.Composable, masses: Masses, adjacency: str, epsilons: list[float], engine: str = "auto"
) -> float:
    """Asserts lower <= truth <= upper; the largest relative gap."""
    profile, gap = hs.account(process, adjacency, engine=engine), 0.0
    for epsilon in epsilons:
        lower, upper = profile.delta_bounds(epsilon)
        deltas = truths(masses, adjacency, epsilon)
        assert not all(arb(lower) - ball(FLOOR) > truth for truth in deltas), (process, epsilon, lower)
        assert not any(truth - ball(FLOOR) > arb(upper) for truth in deltas), (process, epsilon, upper)
        gap = max(gap, (upper - lower) / max(upper, 1e-9))
    return gap


def epsilons_of(masses: Masses) -> list[float]:
    """Kinks of delta, next to them, and ordinary places."""
    losses = [abs(float((p / q).log())) for p, q in masses if p > 0 and q > 0]
    near = [loss * (1 + side) for loss in losses[:6] for side in (-1e-3, -1e-15, 0.0, 1e-15)]
    return [0.0, 0.01, 1.0, 5.0, *near]


def vector(rng: random.Random, n: int) -> list[float]:
    kind = rng.randrange(4)
    raw = [
        (
            rng.expovariate(1.0),
            1.0 + rng.uniform(-1e-9, 1e-9),
            float(rng.randint(0, 4)),
            math.exp(rng.uniform(-12.0, 0.0)),
        )[kind]
        for _ in range(n)
    ]
    if not sum(raw) > 0:
        raw[0] = 1.0
    total = math.fsum(raw)
    return [x / total for x in raw]


@pytest.mark.parametrize("seed", range(10))
def test_delta_is_enclosed(seed: int) -> None:
    """Random pairs, some with zeros on either side, few steps, every direction, sampled or not, both engines."""
    rng = random.Random(seed)
    n, steps = rng.randint(1, 4), rng.randint(1, 3)
    p, q = vector(rng, n), vector(rng, n)
    step: hs.Step = hs.FinitePair(p, q)
    masses = law(p, q)
    if rng.random() < 0.5:
        rate = rng.choice([0.5, 0.01, 0.9])
        step, masses = hs.PoissonSampled(step, rate), sampled(masses, rate)
    composed = power(masses, steps)
    adjacency, engine = (
        rng.choice(["remove", "add", "add_or_remove", "zero_out"]),
        rng.choice(["auto", "fft"]),
    )
    enclosed(step * steps, composed, adjacency, epsilons_of(composed), engine)


def test_ordinary_pairs_are_tight() -> None:
    masses = power(law([0.6, 0.3, 0.1], [0.2, 0.3, 0.5]), 4)
    assert (
        enclosed(
            hs.FinitePair([0.6, 0.3, 0.1], [0.2, 0.3, 0.5]) * 4, masses, "add_or_remove", [0.0, 0.5, 1.0, 3.0]
        )
        < 2e-3
    )


@pytest.mark.parametrize(
    ("p", "q", "rate", "steps", "epsilons"),
    [
        ([0.247, 0.587, 0.166], [0.204, 0.017, 0.779], 0.0191, 9, [0.9, 1.9]),
        ([0.032, 0.44, 0.528], [0.962, 0.036, 0.002], 0.3, 12, [10.0, 25.0]),
        ([0.66, 0.2, 0.14], [0.43, 0.21, 0.36], 0.11, 20, [0.1, 0.6]),
        ([0.1, 0.2, 0.3, 0.4], [0.35, 0.3, 0.2, 0.15], 1.0, 8, [1.0, 4.0]),
    ],
)
def test_few_losses_on_no_lattice_are_tight(
    p: list[float], q: list[float], rate: float, steps: int, epsilons: list[float]
) -> None:
    """Their outcomes are added up; a lattice moves each of them."""
    masses = power(sampled(law(p, q), rate), steps)
    process = hs.PoissonSampled(hs.FinitePair(p, q), rate) * steps
    assert enclosed(process, masses, "remove", epsilons) < 1e-6
    assert enclosed(process, masses, "remove", epsilons, "fft") < 5e-2


@pytest.mark.parametrize(
    ("p", "q", "rate", "steps", "epsilons"),
    [
        ([0.02, 0.38, 0.6], [1e-6, 0.4, 0.6 - 1e-6], 3e-3, 30, [0.05, 0.3, 1.1, 5.0]),
        ([0.02, 0.38, 0.6], [1e-6, 0.4, 0.6 - 1e-6], 1e-4, 60, [0.001, 0.03, 0.3]),
        ([0.1, 0.2, 0.3, 0.4], [1e-5, 0.25, 0.3, 0.44999], 1e-3, 16, [0.01, 0.3, 1.5]),
    ],
)
def test_where_delta_hardly_falls_epsilon_is_tight(
    p: list[float], q: list[float], rate: float, steps: int, epsilons: list[float]
) -> None:
    """Between the sums of a few losses, which lie far apart."""
    masses = power(sampled(law(p, q), rate), steps)
    profile = hs.account(hs.PoissonSampled(hs.FinitePair(p, q), rate) * steps, adjacency="remove")
    for epsilon in epsilons:
        wanted = float(delta(masses, epsilon))
        lower, upper = profile.epsilon_bounds(wanted)
        assert delta(masses, upper) < arb(wanted) < delta(masses, lower)
        assert upper - lower < 1e-6 * upper


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)), min_size=1, max_size=5))
def test_one_step_is_exact(raw: list[tuple[int, int]]) -> None:
    totals = [sum(side) for side in zip(*raw, strict=True)]
    if not all(totals):
        return
    p, q = ([x / total for x in side] for side, total in zip(zip(*raw, strict=True), totals, strict=True))
    masses = law(p, q)
    assert enclosed(hs.FinitePair(p, q), masses, "add_or_remove", epsilons_of(masses)) < 1e-3


def test_which_pair_is_accounted() -> None:
    """0.7 + 0.3 is less than 1: both large masses take the rest, so the pair stays its own reverse."""
    pair = hs.FinitePair([0.7, 0.3], [0.3, 0.7])
    found = from_masses(np.array(pair.p), np.array(pair.q))
    assert found.losses[0] == -found.losses[1]
    assert (found.p == found.q[::-1]).all()
    assert pair.is_own_reverse()
    assert hs.account(pair, "replace_one").delta(0.0) == pytest.approx(0.4)
    assert [sum(map(Fraction, lacking([0.7, 0.3])))] == [1 - Fraction(0.7) - Fraction(0.3)]


def test_losses_do_not_cancel() -> None:
    rng = random.Random(3)
    q = np.array([math.exp(rng.uniform(-740, 0)) for _ in range(300)])
    p = np.concatenate([q[:100] * (1 + 1e-13 * np.arange(100)), q[100:200] * 1.9, q[:100]])
    p = np.minimum(p, 1.0)
    for one, other, loss in zip(p, q, log_ratio(p, q), strict=True):
        truth = (ball(float(one)) / ball(float(other))).log()
        assert abs(arb(float(loss)) - truth) <= 16 * arb(2) ** -53 * abs(truth)


@pytest.mark.parametrize(
    ("p", "q", "epsilons"),
    [
        ([1.0], [1.0], [0.0, 1.0]),
        ([1.0, 0.0], [0.0, 1.0], [0.0, 1.0, 1e3]),
        ([1.0 - 2**-52, 2**-52], [1.0, 0.0], [0.0, 1e-16, 1.0]),
        ([1.0, 5e-324], [1.0, 0.0], [0.0, 1.0]),
        ([1.0, 5e-324], [5e-324, 1.0], [0.0, 1.0, 744.0, 744.4400719213812, 745.0]),
        ([0.25] * 4, [0.25 + 2**-54, 0.25 - 2**-54, 0.25, 0.25], [0.0, 1e-17, 2e-16, 1e-15]),
    ],
)
def test_extreme_masses(p: list[float], q: list[float], epsilons: list[float]) -> None:
    for steps in (1, 2):
        for adjacency in ("remove", "add", "add_or_remove"):
            enclosed(hs.FinitePair(p, q) * steps, power(law(p, q), steps), adjacency, epsilons)


def test_many_atoms_are_enclosed() -> None:
    """A hundred thousand atoms: bounds on both sides of the exact delta, and close to it."""
    rng = np.random.default_rng(5)
    x = np.sort(rng.normal(size=100_000))
    p, q = np.exp(-0.5 * (x - 1.0) ** 2), np.exp(-0.5 * x**2)
    p, q = p / p.sum(), q / q.sum()
    pair = hs.FinitePair(p, q)
    exact_p, exact_q = completed(list(pair.p), list(pair.q)), completed(list(pair.q), list(pair.p))
    for adjacency in ("remove", "add"):
        profile = hs.account(pair, adjacency)
        one, other = (exact_p, exact_q) if adjacency == "remove" else (exact_q, exact_p)
        for epsilon in (0.0, 1.0, 3.0):
            y = Fraction(math.exp(epsilon))
            truth = float(sum((a - y * b for a, b in zip(one, other, strict=True) if a > y * b), Fraction(0)))
            lower, upper = profile.delta_bounds(epsilon)
            assert lower <= truth * (1 + 1e-14)
            assert truth * (1 - 1e-14) <= upper <= lower * (1 + 1e-4)
    assert len(fewer(from_masses(p, q)).upper.losses) <= 2 * atoms.MAX_ATOMS
    assert repr(pair) == "FinitePair(p=<100000 numbers>, q=<100000 numbers>)"


def test_privacy_losses_are_enclosed() -> None:
    """Exact losses, with mass at both infinities; "add" follows from them or is given."""
    losses, p, beyond = [2.0, 0.5, 0.0, -1.0, 0.5], [0.25, 0.125, 0.125, 0.1875, 0.25], 0.0625
    step = hs.PrivacyLoss(losses, p, beyond)
    masses = [(ball(x), ball(x) * (-arb(loss)).exp()) for x, loss in zip(p, losses, strict=True)]
    masses += [(ball(beyond), arb(0)), (arb(0), 1 - sum((q for _, q in masses), arb(0)))]
    for steps, adjacency in itertools.product((1, 2, 3), ("remove", "add", "add_or_remove")):
        composed = power(masses, steps)
        assert enclosed(step * steps, composed, adjacency, epsilons_of(composed)) < 1e-3
        mixed = power(sampled(masses, 0.1), steps)
        assert enclosed(hs.PoissonSampled(step, 0.1) * steps, mixed, adjacency, epsilons_of(mixed)) < 1e-3
    same = hs.PrivacyLoss(losses, p, beyond, add=hs.PrivacyLoss(losses, p, beyond))
    assert hs.account(same, "add").delta_bounds(0.3) == hs.account(step, "remove").delta_bounds(0.3)
    assert hs.account(same * 2, "replace_one").delta(0.3) > 0.0


def lacking_of(losses: list[float], p: list[float], beyond: float = 0.0) -> arb:
    """What the other distribution lacks to 1, the largest mass standing for what the others leave."""
    exact = [Fraction(x) for x in (*p, beyond)]
    at = max(range(len(exact)), key=lambda i: exact[i])
    exact[at] += 1 - sum(exact)
    return 1 - sum((ball(x) * (-arb(loss)).exp() for x, loss in zip(exact, losses, strict=False)), arb(0))


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("losses", "p"),
    [
        ([1.0, 0.0], [1e-15, 1.0 - 1e-15]),
        ([3e-16, 0.0], [0.5, 0.5]),
        ([40.0, 0.0, -3e-17], [3e-17, 0.5, 0.5]),
        ([1e-12, -1e-12 * (1 - 1e-3)], [0.5, 0.5]),
        (
            [*np.linspace(1e-3, 1.0, 40_000), 0.0],
            [2.0**-66] * 40_000 + [1.0 - 40_000 * 2.0**-66],
        ),  # fewer atoms
    ],
)
def test_the_smallest_rest_is_shown(losses: list[float], p: list[float]) -> None:
    """Under "add" what Q lacks is mass at +inf, of each step: 6e-16 of it were left out."""
    step = hs.PrivacyLoss(losses, p)
    rest = lacking_of(losses, p)
    for steps in (1, 3, 10**6, 10**9):
        truth = 1 - (1 - rest) ** steps
        for adjacency in ("add", "add_or_remove"):
            profile = hs.account(step * steps, adjacency)
            for epsilon in (math.inf, 600.0):
                lower, upper = profile.delta_bounds(epsilon)
                assert not arb(lower) > truth
                assert not truth > arb(upper)
                assert upper <= 1.2 * float(truth)
            below = 0.5 * float(truth)
            assert profile.epsilon_bounds(below) == (math.inf, math.inf)
        sampled_too = hs.account(hs.PoissonSampled(step, 0.5) * steps, "add")
        assert sampled_too.epsilon(0.0) < math.inf  # the sample is what hides it


def test_rests_are_enclosed() -> None:
    """For the doubles as given from above; from below for all that they may be rounded from."""
    rng, clear = random.Random(11), 0
    for _ in range(300):
        n = rng.randint(1, 6)
        q, p = vector(rng, n), vector(rng, n)
        both = [(a, b) for a, b in zip(p, q, strict=True) if a > 0 and b > 0]
        scale = rng.choice([1.0, 1e-3, 1e-9, 1e-15])
        p = [b + scale * (a - b) for a, b in both]
        q = [b for _, b in both]
        beyond = max(0.0, 1.0 - math.fsum(p))
        losses = [math.log(a / b) if a > 0 else 0.0 for a, b in zip(p, q, strict=True)]
        q_total = math.fsum(a * math.exp(-loss) for a, loss in zip(p, losses, strict=True))
        if q_total > 1.0 + 1e-15 or abs(math.fsum([*p, beyond]) - 1.0) > 1e-12:
            continue
        found = hidden(hs.PrivacyLoss(losses, p, beyond)._atoms())
        truth = lacking_of(losses, p, beyond)
        assert not truth > arb(found.upper), (losses, p, beyond)
        assert not arb(found.lower) > max(truth, arb(0)), (losses, p, beyond)
        clear += found.lower > 0.0
    assert clear > 10


@pytest.mark.parametrize("odds", [3.0, 1.001, 2.0**0.5, 1e3, 7.0])
def test_rounded_losses_of_a_finite_mechanism_stay_finite(odds: float) -> None:
    """Randomised response: whatever rounding leaves is counted, and moves nothing else; ``add`` says that nothing is left."""
    loss = math.log(odds)
    given = hs.PrivacyLoss([loss, -loss], [odds / (1 + odds), 1 / (1 + odds)])
    symmetric = hs.PrivacyLoss(given.losses, given.probabilities, add=given)
    for steps in (1, 10, 1000):
        truth = hs.account(hs.RandomizedResponse(loss) * steps)
        found = hs.account(given * steps)
        for delta_ in (1e-5, 1e-8, 1e-11 * steps):
            lower, upper = truth.epsilon_bounds(delta_)
            assert lower * (1 - 1e-9) <= found.epsilon(delta_) <= upper * (1 + 1e-3) + 1e-12
            assert found.epsilon_bounds(delta_).lower <= upper * (1 + 1e-9)
        assert found.delta_bounds(math.inf).lower == 0.0
        assert found.delta(math.inf) <= 4e-15 * steps
        assert found.epsilon_bounds(0.0).lower <= loss * steps * (1 + 1e-9)
        assert hs.account(symmetric * steps).epsilon(0.0) == pytest.approx(loss * steps, rel=1e-9)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "losses", [[1e300, 0.0], [1e300, -1e-300], [5e-324, -5e-324], [700.0, -1e-12], [0.0, 0.0]]
)
def test_extreme_losses(losses: list[float]) -> None:
    p = [2.0**-40, 1.0 - 2.0**-40]
    step = hs.PrivacyLoss(losses, p)
    for steps in (1, 2):
        for epsilon in (0.0, 1e-13, 1.0, 699.0, 1e6):
            masses = power(
                [(ball(x), ball(x) * (-arb(loss)).exp()) for x, loss in zip(p, losses, strict=True)], steps
            )
            lower, upper = hs.account(step * steps, "remove").delta_bounds(epsilon)
            truth = delta(masses, epsilon)
            assert not arb(lower) > truth
            assert not truth > arb(upper)


@pytest.mark.parametrize("deltas", [(0.1, 0.01), (0.01, 0.1), (0.01, 0.01)])
def test_of_several_guarantees_at_one_epsilon_the_least_holds(deltas: tuple[float, float]) -> None:
    twice = hs.mechanisms.DeclaredProfile([1.0, 1.0, 0.5], [*deltas, 0.4])
    once = hs.mechanisms.DeclaredProfile([1.0, 0.5], [0.01, 0.4])
    for count in (1, 10):
        profile, other = hs.account(twice * count), hs.account(once * count)
        for epsilon in (-1.0, 0.0, 0.5, 1.0, 3.0):
            assert profile.delta_bounds(epsilon) == other.delta_bounds(epsilon)
    assert verify(profile.report(epsilon=3.0).certificate()).accepted


def test_declared_curves() -> None:
    """One point is ApproximateDP; more points say more; the pair keeps every guarantee and is its own reverse."""
    one = hs.account(hs.mechanisms.DeclaredProfile([1.0], [1e-3]) * 3)
    same = hs.account(hs.ApproximateDP(1.0, 1e-3) * 3)
    for epsilon in (0.0, 0.7, 2.0, 2.9):
        assert (
            same.delta_bounds(epsilon).lower
            <= one.delta(epsilon)
            == pytest.approx(same.delta(epsilon), rel=1e-6)
        )
    truth = hs.account(hs.Gaussian(1.5))
    epsilons = [0.1 * i for i in range(60)]
    curve = hs.mechanisms.DeclaredProfile(epsilons, [truth.delta(e) for e in epsilons], error=1e-9)
    known = hs.account(curve)
    for epsilon in epsilons[::7]:
        assert known.delta(epsilon) <= truth.delta(epsilon) + 2.1e-9
        assert known.delta(epsilon + 0.05) >= truth.delta_bounds(epsilon + 0.05).lower
    composed, exact = hs.account(curve * 20), hs.account(hs.Gaussian(1.5) * 20)
    for epsilon in (0.0, 1.0, 4.0):
        assert (
            exact.delta_bounds(epsilon).lower <= composed.delta(epsilon) <= exact.delta(epsilon) * 1.2 + 1e-6
        )
    sampled_too = hs.account(hs.PoissonSampled(curve, 0.01) * 100)
    assert (
        sampled_too.delta(0.5)
        >= hs.account(hs.PoissonSampled(hs.Gaussian(1.5), 0.01) * 100).delta_bounds(0.5).lower
    )
    assert hs.mechanisms.DeclaredProfile([0.0, 1.0], [0.0, 0.5]).simplified() is None
    for forth, back in zip(
        hs.account(curve, "remove").delta_bounds(1.0), hs.account(curve, "add").delta_bounds(1.0), strict=True
    ):
        assert forth == back


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (lambda: hs.FinitePair([0.5, 0.4], [0.5, 0.5]), r"p: must sum to 1 \(to within 1e-12\), not to 0.9"),
        (lambda: hs.FinitePair([0.5, 0.5], [0.5, 0.7]), r"q: must sum to 1 \(to within 1e-12\), not to 1.2"),
        (lambda: hs.FinitePair([1.5, -0.5], [0.5, 0.5]), r"p\[0\] = 1.5"),
        (lambda: hs.FinitePair([0.5, math.nan], [0.5, 0.5]), r"p\[1\] = nan"),
        (lambda: hs.FinitePair([1.0], [0.5, 0.5]), "here there are 1 and 2"),
        (lambda: hs.FinitePair([], []), "at least one"),
        (lambda: hs.FinitePair([[1.0]], [[1.0]]), r"shape \(1, 1\)"),
        (lambda: hs.PrivacyLoss([0.0, -1.0], [0.5, 0.5]), r"must be at most 1 .* here it is 1\.859140914"),
        (lambda: hs.PrivacyLoss([math.inf], [1.0]), r"losses = inf"),
        (lambda: hs.PrivacyLoss([-1e300, 0.0], [0.5, 0.5]), "here it is inf"),
        (lambda: hs.PrivacyLoss([1.0], [1.0], 0.1), r"not to 1.1"),
        (lambda: hs.PrivacyLoss([1.0, 2.0], [1.0]), "here there are 2 and 1"),
        (lambda: hs.mechanisms.DeclaredProfile([-1.0], [0.1]), r"epsilons.* = -1.0"),
        (lambda: hs.mechanisms.DeclaredProfile([1.0], [0.1, 0.2]), "here there are 1 and 2"),
    ],
)
def test_refused_with_the_number_that_is_wrong(make, wrong: str) -> None:
    with pytest.raises(hs.ParameterError, match=wrong):
        make()


def test_refused_where_the_pair_says_too_little() -> None:
    pair = hs.FinitePair([0.5, 0.5], [0.25, 0.75])
    for step in (pair, hs.PoissonSampled(pair, 0.5), hs.Mixture([pair, hs.Gaussian(1.0)], [0.5, 0.5])):
        with pytest.raises(hs.ParameterError, match="replace_one"):
            hs.account(step, "replace_one")
    with pytest.raises(hs.ParameterTypeError, match=r"must be an unsampled mechanism.* in the batch twice"):
        hs.WithReplacement(pair, 2, 10)
    for alone in (pair, hs.PoissonSampled(pair, 0.5)):
        with pytest.raises(hs.ParameterTypeError, match="says nothing of groups"):
            hs.mechanisms.UserLevel(alone, 2)
    curve = hs.mechanisms.DeclaredProfile([1.0], [1e-3])
    pairs = hs.account(hs.mechanisms.UserLevel(curve, 2))
    assert pairs.delta(1.0) >= hs.account(hs.ApproximateDP(1.0, 1e-3)).delta(0.5)


def test_everything_else_knows_them() -> None:
    """Serial form, reports, mixtures, calibration, the accountant."""
    pair = hs.FinitePair([0.5, 0.5, 0.0], [0.25, 0.5, 0.25])
    losses = hs.PrivacyLoss([0.5, -0.5], [0.5, 0.25], 0.25, add=hs.PrivacyLoss([0.25], [1.0]))
    curve = hs.mechanisms.DeclaredProfile([0.5, 1.0], [0.1, 0.01])
    for step in (pair, losses, curve, hs.PoissonSampled(pair, 0.1)):
        assert from_dict(json.loads(json.dumps(to_dict(step)))) == step
        profile = hs.account(hs.Mixture([step, hs.Gaussian(3.0)], [0.5, 0.5]) * 2 + step)
        assert 0.0 < profile.delta_bounds(0.2).lower <= profile.delta(0.2) < 1.0
        said = profile.report(delta=0.9, risks=step is losses).statement()
        assert "as given" in said or "as declared" in said
    assert (
        hs.calibrate_steps(lambda steps: hs.PoissonSampled(curve, 0.01) * steps, epsilon=1.0, delta=0.1) >= 1
    )
    assert hs.account(hs.FinitePair([0.5, 0.5], [0.5, 0.5])).epsilon(0.0) == 0.0


def test_nested_samples_are_one() -> None:
    inner = hs.PoissonSampled(hs.Laplace(2.0), 0.25)
    for adjacency in ("add", "remove", "add_or_remove", "replace_one", "zero_out"):
        nested = hs.account(hs.PoissonSampled(inner, 0.5) * 7, adjacency).delta_bounds(0.1)
        assert nested == hs.account(hs.PoissonSampled(hs.Laplace(2.0), 0.125) * 7, adjacency).delta_bounds(
            0.1
        )
    thrice = hs.PoissonSampled(hs.PoissonSampled(inner, 0.3), 0.7)
    assert Fraction(thrice.participation) >= Fraction(0.25) * Fraction(0.3) * Fraction(0.7)
    assert thrice.participation == pytest.approx(0.0525, rel=1e-15)
    assert hs.account(hs.PoissonSampled(inner, 0.0)).epsilon(0.0) == 0.0
    assert hs.account(hs.PoissonSampled(inner, 1.0)).delta(0.1) == hs.account(inner).delta(0.1)
    mixed = hs.PoissonSampled(hs.Mixture([inner, hs.Gaussian(1.0)], [0.5, 0.5]), 0.5)
    apart = hs.Mixture(
        [hs.PoissonSampled(hs.Laplace(2.0), 0.125), hs.PoissonSampled(hs.Gaussian(1.0), 0.5)], [0.5, 0.5]
    )
    assert hs.account(mixed).delta_bounds(0.1) == hs.account(apart).delta_bounds(0.1)
    with pytest.raises(hs.ParameterTypeError):
        hs.WithoutReplacement(inner, 3, 10)
    drawn = (hs.PoissonSampled(inner, 0.5) * 5).batches(dataset_size=1000, seed=1)
    assert [list(batch) for batch in drawn] == [
        list(batch)
        for batch in (hs.PoissonSampled(hs.Laplace(2.0), 0.125) * 5).batches(dataset_size=1000, seed=1)
    ]


def test_sampled_mixtures_of_gaussians() -> None:
    """By definition, and against sampling by hand."""
    mixture = hs.MixtureOfGaussians(1.0, [0.5, 1.0], [0.25, 0.75])
    by_hand = hs.MixtureOfGaussians(1.0, [0.0, 0.5, 1.0], [0.75, 0.0625, 0.1875])
    for adjacency in ("add", "remove", "replace_one"):
        found = hs.account(hs.PoissonSampled(mixture, 0.25) * 20, adjacency).delta_bounds(0.5)
        assert found == hs.account(by_hand * 20, adjacency).delta_bounds(0.5)
    plain = hs.MixtureOfGaussians(1.0, [1.0], [1.0])
    found = hs.account(hs.PoissonSampled(plain, 0.1) * 20).delta(0.5)
    assert found == pytest.approx(
        hs.account(hs.PoissonSampled(hs.Gaussian(1.0), 0.1) * 20).delta(0.5), rel=1e-9
    )


@pytest.mark.parametrize("adjacency", ["remove", "add"])
@pytest.mark.parametrize("rate", [0.01, 1e-6, 1e-12])
def test_sampled_losses_beside_other_outcomes_are_added_up(rate: float, adjacency: str) -> None:
    """Their total is rounded, which kept them from the sum of all outcomes: delta was 29 times too large, and not known from below."""
    losses, masses = [0.875, -0.5], [0.75, 0.25]
    sampled = hs.PoissonSampled(hs.PrivacyLoss(losses, masses), rate)
    profile = hs.account(sampled * 2 + hs.PoissonSampled(hs.RandomizedResponse(1.0), rate), adjacency)
    with mpmath.workdps(60):
        q, e = mpmath.mpf(rate), mpmath.exp(1)
        given = [(p, p * mpmath.exp(-loss)) for loss, p in zip(losses, map(mpmath.mpf, masses), strict=True)]
        given.append((mpmath.mpf(0), 1 - sum(b for _, b in given)))
        answer = [(e / (1 + e), 1 / (1 + e)), (1 / (1 + e), e / (1 + e))]
        laws = [[(q * a + (1 - q) * b, b) for a, b in law] for law in (given, given, answer)]
        outcomes = [
            (mpmath.fprod(a for a, _ in way), mpmath.fprod(b for _, b in way))
            for way in itertools.product(*laws)
        ]
        pairs = outcomes if adjacency == "remove" else [(b, a) for a, b in outcomes]
        most = max(mpmath.log(a / b) for a, b in pairs)
        for share in (0.01, 0.4, 0.7, 0.99):
            epsilon = float(share * most)
            truth = sum(max(0, a - mpmath.exp(epsilon) * b) for a, b in pairs)
            lower, upper = profile.delta_bounds(epsilon)
            assert lower <= truth <= upper <= lower * (1 + 1e-9)
