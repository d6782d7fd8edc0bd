"""Compositions of few outcomes, and losses of sampled integer noise, against arithmetic in many digits."""

from __future__ import annotations

import itertools
import math
import random

import flint
import hockeystick as hs
import mpmath as mp
import numpy as np
import pytest
from hockeystick.mechanisms import atoms
from hockeystick.mechanisms.skellam import SkellamNoise

from tests.campaign.balls import Infeasible
from tests.campaign.truth import truth


def step(rng: random.Random) -> hs.Step:
    """One with few losses; the largest ones in some, and the rarest."""
    size = math.exp(rng.uniform(-7.0, 6.0))
    base: hs.Step = rng.choice(
        (
            hs.RandomizedResponse(size, rng.choice((2, 3, 10))),
            hs.PureDP(size),
            hs.ApproximateDP(size, 10.0 ** rng.uniform(-300.0, -1.0)),
            hs.DiscreteLaplace(1.0 / size, rng.choice((1, 2))),
        )
    )
    kind = rng.randrange(3)
    if kind == 0:
        base = hs.PoissonSampled(base, 10.0 ** rng.choice((rng.uniform(-3.0, 0.0), rng.uniform(-40.0, 0.0))))
    if kind == 1:
        base = hs.Mixture([base, hs.PureDP(0.3)], [0.25, 0.75])
    return base


def joined(rng: random.Random) -> hs.Step:
    """One whose record is replaced: two pairs, which meet at the loss 0, where rounding may hide the rest."""
    size = math.exp(rng.uniform(-7.0, 6.0))
    base: hs.Step = rng.choice(
        (
            hs.RandomizedResponse(size, rng.choice((2, 3))),
            hs.PureDP(size),
            hs.ApproximateDP(size, 10.0 ** rng.choice((rng.uniform(-300.0, -1.0), -0.1))),
        )
    )
    records = rng.choice((2, 3, 50, 10**6, 10**15))
    return rng.choice(
        (
            hs.WithReplacement(base, rng.randint(1, 3), records),
            hs.WithoutReplacement(base, rng.randint(1, min(records, 3)), records),
            hs.PoissonSampled(base, rng.choice((0.5, 1.0 - 1e-15, 1.0, 10.0 ** rng.uniform(-40.0, 0.0)))),
        )
    )


def question(seed: int) -> tuple[hs.Composable, str]:
    rng = random.Random(seed)
    replaced = seed >= 40
    kind, most = (joined, 4) if replaced else (step, 9)
    process: hs.Composable = kind(rng) * rng.randint(2, most)
    if rng.random() < 0.6:
        process = process + kind(rng) * rng.randint(1, 2 if replaced else 3)
    return process, "replace_one" if replaced else rng.choice(("remove", "add", "add_or_remove"))


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(80))
def test_every_answer_encloses_the_truth(seed: int) -> None:
    process, adjacency = question(seed)
    profile = hs.account(process, adjacency)
    most = min(profile.epsilon_bounds(1e-300).upper, 1e4)
    with flint.ctx.workprec(1500):
        try:
            known = truth(process, adjacency)
        except Infeasible:
            pytest.skip("too many outcomes for the oracle")
        for share in (-0.2, 0.0, 1e-9, 1e-3, 0.1, 0.5, 0.9, 1.0 - 1e-9):
            bounds = profile.delta_bounds(share * most)
            exact = known.delta(share * most)
            assert not exact.above(bounds.upper)
            assert not exact.below(bounds.lower)
            if bounds.upper > 1e-290:
                spent = profile.epsilon_bounds(bounds.upper)
                assert not known.delta(spent.upper).above(bounds.upper)
                assert spent.lower == 0.0 or not known.delta(spent.lower * (1.0 - 1e-15)).below(bounds.upper)
        answer = profile.report(epsilon=0.5 * most, risks=False).delta
        assert answer is not None
        assert answer.engine in ("closed form", "inversion", "exact")  # exact: nothing is spent
        assert answer.upper - answer.lower <= 1e-9 * answer.upper + 1e-300


def test_many_distinct_guarantees_are_added_up() -> None:
    """2^10 outcomes, on no lattice, by all subsets; little memory takes another way to the same."""
    epsilons = [0.1 + 0.0317 * i for i in range(10)]
    process = hs.PureDP(epsilons[0]) * 1
    for epsilon in epsilons[1:]:
        process = process + hs.PureDP(epsilon)
    with mp.workdps(40):
        signs = np.array(np.meshgrid(*[[-1, 1]] * 10)).reshape(10, -1).T
        kept = [1 / (1 + mp.exp(-mp.mpf(epsilon))) for epsilon in epsilons]
        outcomes = [
            (
                mp.fsum(int(s) * mp.mpf(e) for s, e in zip(row, epsilons, strict=True)),
                mp.fprod(p if s > 0 else 1 - p for s, p in zip(row, kept, strict=True)),
            )
            for row in signs
        ]
        for epsilon in (0.0, 0.7, 1.9):
            exact = mp.fsum(p * -mp.expm1(epsilon - loss) for loss, p in outcomes if loss > epsilon)
            for memory_limit, gap in ((2**30, 1e-11), (2**20, 1e-3)):
                bounds = hs.account(process, memory_limit=memory_limit).delta_bounds(epsilon)
                assert bounds.lower <= exact <= bounds.upper
                assert bounds.upper - bounds.lower <= gap * bounds.upper


def known_loss(noise: atoms.IntegerNoise, shift: int, q: float, t: int) -> mp.mpf:
    """From the probabilities."""

    def log_ratio(k: int) -> mp.mpf:
        if isinstance(noise, SkellamNoise):
            v = mp.mpf(noise.variance)
            return mp.log(mp.besseli(abs(t - k), v) / mp.besseli(abs(t), v))
        scale = mp.mpf(noise.scale)
        if noise.kind == "laplace":
            return (abs(t) - abs(t - k)) / scale
        return k * (2 * t - k) / (2 * scale * scale)

    rate = mp.mpf(q)
    there, back = (1 - rate + rate * mp.exp(log_ratio(k)) for k in (shift, -shift))
    return mp.log(there / back)


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(4))
def test_losses_of_sampled_integer_noise_are_as_exact_as_they_say(seed: int) -> None:
    """With rates near 0 and 1, and losses that all but cancel; nothing but the noise's own losses used to be counted."""
    rng = random.Random(seed)
    with mp.workdps(700):
        for _ in range(60):
            scale, shift = math.exp(rng.uniform(-4.0, 3.5)), rng.choice((1, 2, 3, 7, 30))
            q = rng.choice((10.0 ** rng.uniform(-300.0, 0.0), 1.0 - 10.0 ** rng.uniform(-12.0, -0.3)))
            noise = (
                SkellamNoise("skellam", math.sqrt(3.0), 3.0)
                if rng.random() < 0.1
                else atoms.IntegerNoise(rng.choice(("laplace", "gaussian")), scale)
            )
            law = atoms._Law(noise, shift, q)
            t = np.array(
                sorted({*(rng.randint(-40, 40) for _ in range(4)), 0, 1, shift, -shift}), dtype=float
            )
            error = law.loss_error(t) * 2.0**-53
            for at, loss in zip(t, law.loss(t), strict=True):
                exact = known_loss(noise, shift, q, int(at))
                assert abs(float(loss) - exact) <= error * abs(exact) + mp.mpf("1e-307")


def masses(noise: hs.Step) -> list[tuple[mp.mpf, mp.mpf]]:
    """(P, Q) of each output of integer noise on 1 and on 0, or of approximate DP, as far as they are above 1e-60."""
    if isinstance(noise, hs.ApproximateDP):
        shown, truth = mp.mpf(noise.delta), mp.exp(noise.epsilon)
        kept = (1 - shown) / (1 + truth)
        return [(shown, mp.mpf(0)), (kept * truth, kept), (kept, kept * truth), (mp.mpf(0), shown)]
    if isinstance(noise, hs.mechanisms.Skellam):
        variance = mp.mpf(noise.variance)
        weight = [mp.besseli(abs(t), variance) * mp.exp(-variance) for t in range(-60, 61)]
    else:
        assert isinstance(noise, hs.DiscreteGaussian)
        weight = [mp.exp(-(mp.mpf(t) ** 2) / 2 / mp.mpf(noise.sigma) ** 2) for t in range(-80, 81)]
        weight = [each / mp.fsum(weight) for each in weight]
    return [(p, q) for p, q in itertools.pairwise(weight) if max(p, q) > mp.mpf("1e-60")]


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("noise", "q", "steps"),
    [
        (hs.mechanisms.Skellam(1.0), 1.0, 2),
        (hs.mechanisms.Skellam(4.0), 1.0, 2),
        (hs.DiscreteGaussian(1.0), 0.1, 2),
        (hs.DiscreteGaussian(4.0), 0.01, 2),
        (hs.DiscreteGaussian(0.5), 0.01, 3),
        (hs.ApproximateDP(1.0, 1e-18), 0.01, 5),
        (hs.ApproximateDP(1.0, 1e-310), 0.5, 4),
    ],
    ids=str,
)
@pytest.mark.parametrize("adjacency", ["remove", "add"])
def test_masses_below_their_rounding_do_not_count_as_all(
    noise: hs.Step, q: float, steps: int, adjacency: str
) -> None:
    """An outcome of 1e-310, or of what 1 rounds by, was given the mass 1: epsilon was [0, 7.8] for 4.1."""
    with mp.workdps(60):
        rate = mp.mpf(q)
        one = [(rate * p + (1 - rate) * other, other) for p, other in masses(noise)]
        one = one if adjacency == "remove" else [(other, p) for p, other in one]
        outcomes = [(mp.mpf(1), mp.mpf(1))]
        for _ in range(steps):
            merged: dict[str, tuple[mp.mpf, mp.mpf]] = {}
            for (p, other), (more, others) in itertools.product(outcomes, one):
                at = mp.nstr(p * more / (other * others), 40) if other * others else "inf"
                before = merged.get(at, (mp.mpf(0), mp.mpf(0)))
                merged[at] = (before[0] + p * more, before[1] + other * others)
            outcomes = list(merged.values())

        def delta(epsilon: float) -> mp.mpf:
            ratio = mp.exp(mp.mpf(epsilon))
            return mp.fsum(max(mp.mpf(0), p - ratio * other) for p, other in outcomes)

        process = (noise if q == 1.0 else hs.PoissonSampled(noise, q)) * steps
        profile = hs.account(process, adjacency)
        for epsilon in (0.0, 0.05, 0.4, 2.0):
            exact, bounds = delta(epsilon), profile.delta_bounds(epsilon)
            assert bounds.lower <= exact + mp.mpf("1e-50")
            assert exact - mp.mpf("1e-50") <= bounds.upper
            assert bounds.upper - bounds.lower <= 1e-3 * bounds.upper + 1e-12
        for asked in (1e-3, 1e-5, 1e-8):
            spent = profile.epsilon_bounds(asked)
            assert delta(spent.upper) <= asked
            assert spent.lower == 0.0 or delta(spent.lower * (1.0 - 1e-12)) >= asked
            assert spent.upper - spent.lower <= 1e-3 * spent.upper


def test_a_delta_that_adds_little_is_known_well_enough() -> None:
    """Deltas that are a millionth of the sum took half a minute to be known as closely as the sum."""
    allocation = hs.RandomAllocation(1.747, 4306) * 5
    epsilon, q, delta = 0.2713, 0.08919, 7.203e-30
    process = allocation + hs.PoissonSampled(hs.RandomizedResponse(epsilon), q) * 2
    lower, upper = hs.account(process, "remove").epsilon_bounds(delta)
    assert upper - lower <= 1e-9 * upper
    lie = mp.mpf(1) / (1 + mp.exp(mp.mpf(epsilon)))
    hit = (1 - mp.mpf(q)) * lie + mp.mpf(q) * (1 - lie)
    masses = ((1 - hit) ** 2, 2 * hit * (1 - hit), hit**2)
    up, down = mp.log(hit / lie), mp.log((1 - hit) / (1 - lie))
    alone = hs.account(allocation, "remove")
    # The outcome of the largest loss has nearly all of delta; the others no more than they would further up.
    for spent, above in ((lower, True), (upper, False)):
        most = alone.delta_bounds(float(spent - 2 * up) * (1 + (-1e-15 if above else 1e-15)))
        further = alone.delta(float(spent - 2 * up) + 0.015)
        assert spent - up - down > spent - 2 * up + 0.015
        if above:
            assert masses[2] * most.upper + (masses[0] + masses[1]) * further >= delta
        else:
            assert masses[2] * most.lower <= delta


def test_few_outcomes_beside_allocations_are_told_apart() -> None:
    """Deltas that the transform of the whole composition left open: [0, 68 % of epsilon], or 30 seconds."""
    for allocation in (hs.RandomAllocation(1.0, 10_000), hs.RandomAllocation(2.0, 1000)):
        for other in (hs.RandomizedResponse(1.0), hs.PureDP(0.1), hs.DiscreteLaplace(5.0)):
            alone, both = hs.account(allocation), hs.account(allocation + other)
            most = hs.account(other).epsilon(0.0)
            for delta in (1e-12, 1e-20, 1e-30):
                spent, least = both.epsilon_bounds(delta), alone.epsilon_bounds(delta)
                assert spent.upper - spent.lower <= 1e-6 * spent.upper
                assert least.lower <= spent.upper
                assert spent.lower <= least.upper + most
