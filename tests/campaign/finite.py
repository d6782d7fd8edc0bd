"""Pairs with finitely many outcomes: randomised response, declared guarantees, integer noise; and their compositions.

A pair is two lists of masses. Of unbounded noise the outcomes far out are left out, and `beyond` bounds their mass under P
and under Q; delta then is what the others give and at most the mass beyond more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flint import arb, arb_poly, fmpq

from .balls import ONE, ZERO, Enclosure, positive_part, to_float


@dataclass(frozen=True)
class Pair:
    """Masses of the same outcomes under P and Q. With `lattice`, losses of finite outcomes are equally spaced and rising."""

    p: tuple[arb, ...]
    q: tuple[arb, ...]
    beyond: tuple[arb, arb] = (ZERO, ZERO)
    lattice: bool = False

    def swapped(self) -> Pair:
        """Q against P."""
        return Pair(self.q[::-1], self.p[::-1], self.beyond[::-1], self.lattice)


def given(step: Any) -> Pair:
    """What docs/mechanisms/pairs.md says is accounted: the largest mass is what the others leave of 1."""
    if hasattr(step, "losses"):
        p = [*(arb(x) for x in step.probabilities), arb(step.infinity_mass)]
        q = [x * (-arb(loss)).exp() for x, loss in zip(p, step.losses, strict=False)]
        return Pair((*p, ZERO), (*q, ZERO, 1 - sum(q, ZERO)))
    sides = []
    for values, beside in ((step.p, step.q), (step.q, step.p)):
        largest = max(range(len(values)), key=lambda i: (values[i], beside[i], -i))
        others = sum((_exact(x) for i, x in enumerate(values) if i != largest), fmpq(0))
        sides.append(tuple(arb(1 - others) if i == largest else arb(x) for i, x in enumerate(values)))
    return Pair(*sides)


def _exact(value: float) -> fmpq:
    return fmpq(*value.as_integer_ratio())


NOTHING = Pair((ONE,), (ONE,))


def response(epsilon: arb, categories: int = 2, delta: arb = ZERO) -> Pair:
    """k-ary randomised response; with delta the data are shown (Kairouz, Oh & Viswanath 2015, Theorem 3.3)."""
    lie = (1 - delta) / (epsilon.exp() + categories - 1)
    truth = lie * epsilon.exp()
    others = (lie * (categories - 2),) if categories > 2 else ()
    if not delta > 0:
        return Pair((lie, *others, truth), (truth, *others, lie))
    return Pair((ZERO, lie, *others, truth, delta), (delta, truth, *others, lie, ZERO))


def response_to_uniform(epsilon: arb, categories: int) -> Pair:
    """k-ary randomised response against a uniformly random value."""
    lie = 1 / (epsilon.exp() + categories - 1)
    return Pair(
        (lie * (categories - 1), lie * epsilon.exp()), (arb(categories - 1) / categories, ONE / categories)
    )


def integer_laplace(scale: arb, centres_p: dict[int, arb], centres_q: dict[int, arb]) -> Pair:
    """Two-sided geometric noise around random centres: beyond the outermost ones the loss stays constant."""
    r = (-1 / scale).exp()
    first, last = min(*centres_p, *centres_q), max(*centres_p, *centres_q)

    def masses(centres: dict[int, arb]) -> tuple[arb, ...]:
        inner = [
            sum((w * (1 - r) / (1 + r) * r ** abs(t - c) for c, w in centres.items()), ZERO)
            for t in range(first + 1, last)
        ]
        low = sum((w * r ** (c - first) for c, w in centres.items()), ZERO) / (1 + r)
        high = sum((w * r ** (last - c) for c, w in centres.items()), ZERO) / (1 + r)
        return (low, *inner, high)

    return Pair(masses(centres_p), masses(centres_q), lattice=len(centres_p) == len(centres_q) == 1)


def integer_gaussian(
    sigma: arb, centres_p: dict[int, arb], centres_q: dict[int, arb], nats: float = 900.0
) -> Pair:
    """exp(-t^2 / 2 sigma^2) on the integers around random centres, cut where less than e^-nats is left."""
    reach = math.ceil(math.sqrt(2.0 * nats) * to_float(sigma)) + 2
    law = _log_concave(lambda t: (-(arb(t) ** 2) / (2 * sigma**2)).exp(), reach, centres_p, centres_q)
    return replace(law, lattice=len(centres_p) == len(centres_q) == 1)


def integer_skellam(
    variance: float, centres_p: dict[int, arb], centres_q: dict[int, arb], nats: float = 900.0
) -> Pair:
    """The difference of two Poisson variables of mean variance/2: I_t(variance), as Bessel functions in balls."""
    reach = 2
    while reach * math.asinh(reach / variance) - math.hypot(reach, variance) + variance < nats:
        reach += reach // 8 + 1
    return _log_concave(lambda t: arb(variance).bessel_i(arb(t)), reach, centres_p, centres_q)


def _log_concave(
    density: Callable[[int], arb], reach: int, centres_p: dict[int, arb], centres_q: dict[int, arb]
) -> Pair:
    """Even noise of a log-concave density, up to a factor, around random centres, cut beyond ``reach``."""
    first, last = min(*centres_p, *centres_q) - reach, max(*centres_p, *centres_q) + reach
    weight = [density(t) for t in range(last - first + 1)]
    # Beyond t >= reach weights fall faster than geometrically, by at least this factor.
    ratio = weight[reach + 1] / weight[reach]
    rest = weight[reach] * ratio / (1 - ratio)
    total = weight[0] + 2 * sum(weight[1 : reach + 1], ZERO)
    total = total.union(total + 2 * rest)
    tail = 2 * rest / total

    def masses(centres: dict[int, arb]) -> tuple[arb, ...]:
        return tuple(
            sum((w * weight[abs(t - c)] for c, w in centres.items()), ZERO) / total
            for t in range(first, last + 1)
        )

    return Pair(masses(centres_p), masses(centres_q), (tail, tail))


def sampled(base: Pair, gamma: arb) -> Pair:
    """The direction "remove" of Poisson sampling; "add" is the same swapped."""
    p = tuple((1 - gamma) * q + gamma * p for p, q in zip(base.p, base.q, strict=True))
    beyond = (1 - gamma) * base.beyond[1] + gamma * base.beyond[0]
    return Pair(p, base.q, (beyond, base.beyond[1]))


def joined(base: Pair, gamma: arb) -> Pair:
    """Advanced joint convexity (docs/mechanisms/replacement.md, section 3): above loss 0 the pair (gamma A + (1-gamma) B, B), below it
    (A, (1-gamma) A + gamma B), and at 0 what is left of the mass."""
    p, q = [], []
    for a, b in zip(base.p, base.q, strict=True):
        if a > b:
            p.append(gamma * a + (1 - gamma) * b)
            q.append(b)
        elif a < b:
            p.append(a)
            q.append((1 - gamma) * a + gamma * b)
    # The two forms agree at 0, so P and Q lack the same; what lies beyond has no loss of 0 either.
    left_p, left_q = 1 - sum(p, ZERO), 1 - sum(q, ZERO)
    assert left_p.overlaps(left_q) or max(base.beyond) > 0
    p.append(left_p)
    q.append(left_p)
    return Pair(tuple(p), tuple(q), (base.beyond[0] + base.beyond[1],) * 2)


def chosen(pairs: Sequence[Pair], weights: Sequence[arb]) -> Pair:
    """One of several, and which one is released."""
    total = sum(weights, ZERO)
    shares = [w / total for w in weights]
    return Pair(
        tuple(w * x for pair, w in zip(pairs, shares, strict=True) for x in pair.p),
        tuple(w * x for pair, w in zip(pairs, shares, strict=True) for x in pair.q),
        tuple(  # type: ignore[arg-type]
            sum((w * pair.beyond[i] for pair, w in zip(pairs, shares, strict=True)), ZERO) for i in (0, 1)
        ),
    )


def occurrences(batch: int, dataset: int) -> tuple[arb, list[arb]]:
    """Pr[l >= 1] and the weights of l = 1, ..., m given that, l ~ Binomial(m, 1/n), as exact fractions."""
    some = 1 - fmpq(dataset - 1, dataset) ** batch
    weights = [
        math.comb(batch, k) * fmpq(dataset - 1, dataset) ** (batch - k) / fmpq(dataset) ** k / some
        for k in range(1, batch + 1)
    ]
    return arb(some), [arb(w) for w in weights]


# What follows composes.


def finite_outcomes(pair: Pair) -> list[tuple[arb, arb, arb]]:
    """(p, q, loss) where both masses are positive."""
    return [(p, q, (p / q).log()) for p, q in zip(pair.p, pair.q, strict=True) if p > 0 and q > 0]


def revealed(pair: Pair) -> arb:
    """P-mass where Q has none."""
    return sum((p for p, q in zip(pair.p, pair.q, strict=True) if not q > 0), ZERO)


def size(pair: Pair, steps: int) -> int:
    """How many outcomes `power` makes."""
    n = sum(1 for p, q in zip(pair.p, pair.q, strict=True) if p > 0 and q > 0)
    if n == 0:
        return 0
    return n * steps if pair.lattice else math.comb(steps + n - 1, n - 1)


Outcomes = tuple[list[arb], list[arb], np.ndarray]
"""Masses under P and Q, and the losses in double precision."""


def power(pair: Pair, steps: int) -> Outcomes:
    """All outcomes of `steps` independent steps that leave the loss finite."""
    finite = finite_outcomes(pair)
    if not finite:
        return [], [], np.zeros(0)
    if pair.lattice:
        p = (arb_poly([p for p, _, _ in finite]) ** steps).coeffs()
        q = (arb_poly([q for _, q, _ in finite]) ** steps).coeffs()
        ends = [to_float(steps * finite[0][2]), to_float(steps * finite[-1][2])]
        return p, q, np.linspace(ends[0], ends[1], len(p))
    counts = np.array(list(_counts(len(finite), steps)))
    table = [[[x**c / arb(c).fac() for c in range(steps + 1)] for x in (p, q)] for p, q, _ in finite]
    everyone = arb(steps).fac()
    masses: tuple[list[arb], list[arb]] = ([], [])
    for row in counts.tolist():
        for side, out in enumerate(masses):
            product = everyone
            for i, c in enumerate(row):
                product = product * table[i][side][c]
            out.append(product)
    return *masses, counts @ np.array([to_float(loss) for _, _, loss in finite])


def _counts(kinds: int, steps: int) -> Iterator[tuple[int, ...]]:
    if kinds == 1:
        yield (steps,)
        return
    for first in range(steps + 1):
        for rest in _counts(kinds - 1, steps - first):
            yield (first, *rest)


class FiniteLaw:
    """A composition of finite pairs, all its outcomes enumerated: [(pair, steps), ...]."""

    def __init__(self, parts: Sequence[tuple[Pair, int]]) -> None:
        p, q, losses = [ONE], [ONE], np.zeros(1)
        hidden, known, scale = ZERO, ZERO, 0.0
        for pair, steps in parts:
            p1, q1, l1 = power(pair, steps)
            p, q = [a * b for a in p for b in p1], [a * b for a in q for b in q1]
            losses = np.add.outer(losses, l1).ravel()
            scale += max((abs(to_float(loss)) for _, _, loss in finite_outcomes(pair)), default=0.0) * steps
            hidden += steps * (-revealed(pair)).log1p()
            known += steps * (-max(pair.beyond, key=to_float)).log1p()
        self.revealed = -hidden.expm1()
        self.beyond = -known.expm1()
        # Losses in double precision are off by far less than this; those that close to epsilon are looked at one by one.
        self.doubt = 1e-12 * scale
        order = np.argsort(losses, kind="stable")
        self.losses = losses[order]
        self.p, self.q = [p[i] for i in order], [q[i] for i in order]
        self.p_above, self.q_above = _suffix_sums(self.p), _suffix_sums(self.q)

    def delta(self, epsilon: float) -> Enclosure:
        """Enclosure of delta at a double."""
        if epsilon == -math.inf:
            return Enclosure(ONE, ONE)
        first = int(np.searchsorted(self.losses, epsilon - self.doubt, "left"))
        last = int(np.searchsorted(self.losses, epsilon + self.doubt, "right"))
        low = high = self.revealed
        if first < len(self.losses):
            growth = arb(epsilon).exp()
            certain = self.p_above[last] - growth * self.q_above[last]
            low, high = low + certain, high + certain
            for p, q in zip(self.p[first:last], self.q[first:last], strict=True):
                part = positive_part(p - growth * q)
                low, high = low + part.low, high + part.high
        return Enclosure(low, high + self.beyond)

    def tails(self, epsilon: float) -> tuple[Enclosure, Enclosure]:
        """P(L > epsilon) and Q(L > epsilon)."""
        first = int(np.searchsorted(self.losses, epsilon - self.doubt, "left"))
        last = int(np.searchsorted(self.losses, epsilon + self.doubt, "right"))
        return (
            Enclosure(self.revealed + self.p_above[last], self.revealed + self.p_above[first] + self.beyond),
            Enclosure(self.q_above[last], self.q_above[first] + self.beyond),
        )

    def atoms(self) -> list[tuple[arb, arb]]:
        """(P-mass, loss) of each outcome, for sums with something that is not finite."""
        return [(p, (p / q).log()) for p, q in zip(self.p, self.q, strict=True)]

    def notable(self) -> list[float]:
        """Losses at which delta has a kink."""
        return self.losses.tolist()


def _suffix_sums(values: list[arb]) -> list[arb]:
    sums = [ZERO]
    for value in reversed(values):
        sums.append(sums[-1] + value)
    return sums[::-1]
