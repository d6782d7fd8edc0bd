"""What every pair of the core promises, against finite laws in ball arithmetic.

The oracle holds a law as masses (p, q) of its outcomes and changes them as sampling and mixing do; tails, hockey
sticks and compositions are sums over outcomes. It shares nothing with the core but the parameters.
"""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass

import flint
import hockeystick as hs
import numpy as np
import pytest
from flint import arb
from hockeystick import _core
from hockeystick.mechanisms import atoms

BITS = 6000
SEEDS = range(60)


@pytest.fixture(autouse=True)
def precision():
    before, flint.ctx.prec = flint.ctx.prec, BITS
    yield
    flint.ctx.prec = before


@dataclass
class Law:
    """Masses of the outcomes under P and Q, and the pair of the core that should be it."""

    masses: list[tuple[arb, arb]]
    pair: _core.Pair
    name: str

    def loss(self, p: arb, q: arb) -> arb:
        return (p / q).log()

    def finite(self) -> list[tuple[arb, arb, arb]]:
        """(loss, p, q) where both have mass."""
        return [(self.loss(p, q), p, q) for p, q in self.masses if p > 0 and q > 0]

    def infinite(self) -> arb:
        return sum((p for p, q in self.masses if not q > 0), arb(0))

    def swapped(self) -> list[tuple[arb, arb]]:
        return [(q, p) for p, q in self.masses]


def blend(masses: list[tuple[arb, arb]], rate: arb) -> list[tuple[arb, arb]]:
    return [(rate * p + (1 - rate) * q, q) for p, q in masses]


def joined(masses: list[tuple[arb, arb]], rate: arb) -> list[tuple[arb, arb]]:
    """Advanced joint convexity as a pair: one form where L > 0, the other where L < 0, the rest of P at L = 0."""
    right = [(p, q) for p, q in blend(masses, rate) if p > q]
    left = [(p, q) for q, p in blend([(q, p) for p, q in masses], rate) if p < q]
    ends = right + left
    at_zero = 1 - sum((p for p, _ in ends), arb(0))
    rest = 1 - sum((q for _, q in ends), arb(0)) - at_zero
    assert abs(rest) < arb(2) ** (100 - BITS)  # as both forms have the same profile at 0
    return [*ends, (at_zero, at_zero)]


def sampled(law: Law, rate: float, mode: str) -> Law:
    pair, q = _core.sampled_pair(law.pair, rate, mode), arb(rate)
    if mode == "remove":
        masses = blend(law.masses, q)
    elif mode == "add":
        masses = [(p, q) for q, p in blend(law.swapped(), q)]
    else:
        masses = joined(law.masses, q)
    return Law(masses, pair, f"{mode}({law.name}, {rate!r})")


def mixed(laws: list[Law], weights: list[float]) -> Law:
    masses = [(arb(w) * p, arb(w) * q) for law, w in zip(laws, weights, strict=True) for p, q in law.masses]
    lost = 1 - sum(map(arb, weights), arb(0))
    if lost > arb(2) ** -40:
        masses += [(lost, arb(0)), (arb(0), lost)]
    name = "mixture(" + ", ".join(f"{w!r} * {law.name}" for law, w in zip(laws, weights, strict=True)) + ")"
    return Law(masses, _core.mixture_pair([law.pair for law in laws], weights), name)


def response(epsilon: float, delta: float, categories: int) -> Law:
    """Randomised response with a part that reveals."""
    e, d = arb(epsilon).exp(), arb(delta)
    total = e + categories - 1
    masses = [(e / total, 1 / total), (1 / total, e / total)] + [(1 / total, 1 / total)] * (categories - 2)
    masses = [((1 - d) * p, (1 - d) * q) for p, q in masses]
    if delta > 0:
        masses += [(d, arb(0)), (arb(0), d)]
    given = atoms.randomized_response(epsilon, categories, delta)
    return Law(masses, _pair(given), f"response({epsilon!r}, {delta!r}, {categories})")


def revealed() -> Law:
    return Law([(arb(1), arb(0)), (arb(0), arb(1))], _pair(atoms.revealing()), "revealed")


def laplace(scale: float, shift: int) -> Law:
    """Discrete Laplace noise; beyond 0 and the shift the loss is constant."""
    noise = atoms.IntegerNoise("laplace", scale)
    r = (-1 / arb(scale)).exp()
    one = (1 - r) / (1 + r)
    masses = [(one * r ** abs(t - shift), one * r ** abs(t)) for t in range(1, shift)]
    masses += [(r**shift / (1 + r), 1 / (1 + r)), (1 / (1 + r), r**shift / (1 + r))]
    return Law(masses, _pair(atoms.shifted(noise, shift).upper), f"laplace({scale}, {shift})")


def one_sided(mass: float, loss: float) -> Law:
    """P sees an outcome that Q never has, and one that it has more often than P."""
    p, q = arb(mass), arb(mass) * (-arb(loss)).exp()
    pair = _core.discrete_pair([loss], [mass], [mass * math.exp(-loss)], p_infinity=1.0 - mass)
    return Law([(p, q), (1 - p, arb(0)), (arb(0), 1 - q)], pair, f"one_sided({mass!r}, {loss!r})")


def _pair(given: atoms.Atoms) -> _core.Pair:
    return _core.discrete_pair(given.losses, given.p, given.q, given.p_infinity, spacing=given.spacing)


RATES = (0.5, 0.9, 1 - 1e-9, 1e-3, 1e-9, 1e-200, 2.0**-1000)
MODES = ("remove", "add", "replace_one")


def base(rng: random.Random) -> Law:
    kind = rng.randrange(5)
    epsilon = rng.choice([1e-9, 1e-3, 0.1, 1.0, 3.0, 30.0, 300.0, 650.0])
    if kind == 0:
        return response(epsilon, 0.0, rng.choice([2, 3, 10]))
    if kind == 1:
        return response(epsilon, rng.choice([1e-3, 0.4, 2.0**-40, 0.999]), 2)
    if kind == 2:
        return revealed()
    if kind == 3:
        return laplace(rng.choice([0.3, 1.0, 2.5, 20.0]), rng.choice([1, 2, 3, 7]))
    return one_sided(rng.choice([0.5, 2.0**-20, 0.99]), rng.choice([0.0, 0.5, 3.0]))


def law_of(rng: random.Random, depth: int) -> Law:
    if depth == 0:
        return base(rng)
    if rng.random() < 0.7:
        rate = rng.choice(RATES) if rng.random() < 0.6 else rng.uniform(0.01, 0.99)
        return sampled(law_of(rng, depth - 1), rate, rng.choice(MODES))
    weights = rng.choice([[0.5, 0.5], [0.25, 0.75], [1 - 2.0**-30, 2.0**-30], [0.5, 0.25, 0.25], [0.5, 0.25]])
    return mixed([law_of(rng, rng.randrange(depth)) for _ in weights], weights)


def points(law: Law, rng: random.Random) -> list[float]:
    losses = [float(loss) for loss, _, _ in law.finite()]
    out = [0.0, -0.0, 1e-300, -1e-300, 1e-9, -1e-9, 700.0, -700.0, 1e4, -1e4]
    for loss in losses:
        out += [loss, math.nextafter(loss, math.inf), math.nextafter(loss, -math.inf)]
        out += [loss * (1 + s * 10.0**-k) for k in (1, 4, 8, 12, 15) for s in (-1, 1)]
    out += [rng.uniform(-3, 3) for _ in range(20)] + [
        rng.gauss(0, 1) * 10 ** rng.uniform(-8, 2) for _ in range(20)
    ]
    return [x for x in out if math.isfinite(x)]


def between(low: arb, x: arb, high: arb) -> bool:
    return not (low > x) and not (x > high)


@pytest.mark.sweep
@pytest.mark.parametrize("seed", SEEDS)
def test_pairs_are_the_laws_they_stand_for(seed: int) -> None:
    """Both tangents within their errors, both ends, and the mass at infinity, at every loss and near it."""
    rng = random.Random(seed)
    law = law_of(rng, seed % 4)
    pair, finite = law.pair, law.finite()
    floor = arb(2) ** -1026  # of masses that underflow
    infinite = law.infinite()
    assert abs(arb(pair.infinity_mass) - infinite) <= infinite * arb(1e-12) + floor

    occurring = [loss for loss, p, _ in finite if p > floor]
    if occurring:
        largest = max(float(loss.upper()) for loss in occurring)
        # Parameters round to the losses of integer noise.
        least = max(occurring, key=lambda loss: float(loss.mid())).lower()
        assert not arb(pair.max_loss) < least - 2e-15 * abs(least) - floor
        assert pair.max_loss <= largest + 1e-12 * abs(largest) + 1e-300

    x = points(law, rng)
    for name in ("above", "below"):
        value, slope, exponent, error = getattr(pair, name)(np.array(x))
        for i, at in enumerate(x):
            y, scale = arb(at).exp(), arb(float(exponent[i])).exp()
            side = [m for m in finite if (m[0] > at) == (name == "above")]
            p, q = sum((m[1] for m in side), arb(0)), sum((m[2] for m in side), arb(0))
            if name == "below":
                q += sum((q for p, q in law.masses if not p > 0), arb(0))
            truth = p - y * q if name == "above" else y * q - p
            found, slack = arb(float(value[i])) * scale, arb(float(error[i])) * scale
            assert abs(found - truth) <= slack + floor * (1 + y), (
                law.name,
                name,
                at,
                float(truth),
                float(found),
                float(slack),
            )
            assert float(slope[i]) >= 0.0


def composed(law: Law, steps: int) -> tuple[list[tuple[arb, arb]], arb]:
    """P- and Q-masses of all sequences of finite losses, and P's mass of the others."""
    merged: dict[tuple[int, ...], tuple[arb, arb, int]] = {}
    finite = [(p, q) for _, p, q in law.finite()]
    for chosen in itertools.combinations_with_replacement(range(len(finite)), steps):
        ways = math.factorial(steps)
        p = q = arb(1)
        for i in set(chosen):
            ways //= math.factorial(chosen.count(i))
        for i in chosen:
            p, q = p * finite[i][0], q * finite[i][1]
        merged[chosen] = (p, q, ways)
    return [(p * n, q * n) for p, q, n in merged.values()], 1 - (1 - law.infinite()) ** steps


def delta_of(masses: list[tuple[arb, arb]], infinite: arb, epsilon: float) -> arb:
    y = arb(epsilon).exp()
    return infinite + sum((p - y * q for p, q in masses if p > y * q), arb(0))


@pytest.mark.sweep
@pytest.mark.parametrize("engine", ["auto", "fft"])
@pytest.mark.parametrize("seed", SEEDS)
def test_compositions_are_enclosed(seed: int, engine: str) -> None:
    """delta on both sides of the truth at every epsilon, and epsilon where delta crosses what was asked."""
    rng = random.Random(1000 + seed)
    law = law_of(rng, seed % 4)
    while len(law.masses) > 9:
        law = law_of(rng, seed % 4)
    steps = rng.choice([1, 2, 3])
    masses, infinite = composed(law, steps)
    profile = _core.Profile([[(law.pair, steps)]], 1e-3, 2**24, engine)
    floor = arb(2) ** -1026
    occurring = [loss for loss, p, _ in law.finite() if p > floor]
    end = steps * max([float(loss.mid()) for loss in occurring], default=0.0)
    near = [end * (1 - share) for share in (0.0, 1e-15, 1e-9, 1e-5, 1e-3, 0.1, 0.5, -1e-9)]
    for epsilon in [0.0, 0.3, 2.0, *near]:
        answer, truth = profile.delta_bounds(epsilon), delta_of(masses, infinite, epsilon)
        assert between(arb(answer.lower) - floor, truth, arb(answer.upper) + floor), (
            epsilon,
            float(truth),
            law.name,
            steps,
            answer.lower,
            answer.upper,
        )
    for delta in [1e-12, 1e-5, 0.1, float(infinite.upper()) * 1.5]:
        if not 0.0 < delta < 1.0:
            continue
        answer = profile.epsilon_bounds(delta)
        slack = 1e-15 * delta
        if math.isfinite(answer.upper):
            assert not delta_of(masses, infinite, answer.upper) > arb(delta + slack), (
                law.name,
                steps,
                delta,
                answer.lower,
                answer.upper,
            )
        if 0.0 < answer.lower < math.inf:
            assert not delta_of(masses, infinite, answer.lower) < arb(delta - slack), (
                law.name,
                steps,
                delta,
                answer.lower,
                answer.upper,
            )
        if answer.lower == math.inf:
            assert infinite > arb(delta)


REVEALING = [
    hs.PoissonSampled(hs.Gaussian(0.0), 0.5),
    hs.PoissonSampled(hs.Laplace(1e-101), 0.5),
    hs.PoissonSampled(hs.ApproximateDP(0.0, 1.0), 0.5),
    hs.MixtureOfGaussians(0.0, [0.0, 1.0], [0.5, 0.5]),
]


@pytest.mark.sweep
@pytest.mark.parametrize("steps", [1, 2, 10])
@pytest.mark.parametrize("step", REVEALING)
@pytest.mark.parametrize("engine", ["auto", "fft"])
def test_what_reveals_the_record_if_sampled_costs_its_absence(step: hs.Step, engine: str, steps: int) -> None:
    """Under "add" all losses are ln 2: epsilon solves 1 - e^{epsilon - T ln 2} = delta."""
    truth = steps * math.log(2) + math.log1p(-1e-5)
    lower, upper = hs.account(step * steps, "add", engine=engine).epsilon_bounds(1e-5)
    assert lower <= truth * (1 + 1e-14)
    assert truth * (1 - 1e-14) <= upper
    if "1e-101" not in repr(step):  # of too little noise the lower bound is that of more, or none
        assert upper <= lower * (1 + 1e-3)


@pytest.mark.parametrize("engine", ["auto", "fft"])
def test_sampled_guarantees_that_may_fail(engine: str) -> None:
    """(0.1, 1e-3)-DP sampled 19 times with 0.9, "add": delta(2) is P(2 or more of what reveals) and some more."""
    e, d, q, steps = arb("0.1").exp(), arb(1e-3), arb(0.9), 19
    likely, lie = (1 - d) * e / (1 + e), (1 - d) / (1 + e)
    law = [(likely, (1 - q) * likely + q * lie), (lie, (1 - q) * lie + q * likely), (d, (1 - q) * d)]
    truth = arb(0)
    for a in range(steps + 1):
        for b in range(steps + 1 - a):
            ways = math.comb(steps, a) * math.comb(steps - a, b)
            p, r = (law[0][i] ** a * law[1][i] ** b * law[2][i] ** (steps - a - b) for i in (0, 1))
            if p > arb(2).exp() * r:
                truth += ways * (p - arb(2).exp() * r)
    assert truth > arb(5.7e-3)
    step = hs.PoissonSampled(hs.ApproximateDP(0.1, 1e-3), 0.9)
    lower, upper = hs.account(step * steps, "add", engine=engine).delta_bounds(2.0)
    assert not arb(lower) > truth
    assert not truth > arb(upper)
    assert upper <= lower * (1 + 1e-2)


def test_searches_over_sampled_guarantees_that_may_fail() -> None:
    """Calibration and grids ask the same profiles."""
    step = hs.PoissonSampled(hs.ApproximateDP(0.1, 1e-3), 0.9)
    found = hs.calibrate_steps(lambda steps: step * steps, epsilon=2.0, delta=1e-6, adjacency="add")
    assert found < 19
    assert hs.account(step * found, "add").delta(2.0) <= 1e-6
    grid = hs.grid_epsilon(0.0, 0.5, steps=10, delta=1e-5, adjacency="add")
    assert float(grid.upper) >= 10 * math.log(2) + math.log1p(-1e-5)


def test_gdp_of_what_may_fail() -> None:
    """Steps whose data may be revealed outright are mu-GDP for no mu, sampled or not."""
    assert hs.account(hs.PoissonSampled(hs.ApproximateDP(0.1, 1e-3), 0.9)).gdp_mu(slack=2e-3) > 0
    with_failure = hs.account(hs.ApproximateDP(0.0, 1e-9) * 3 + hs.Gaussian(1.0))
    assert with_failure.gdp_mu(slack=1e-6) >= 1.0
