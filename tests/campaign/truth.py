"""From a description to the truth: the pairs of docs/mechanisms/replacement.md and docs/mechanisms/truncated.md, written down once more.

Descriptions are read, nothing of the package computes here. A truth encloses delta(epsilon) of the mechanism's dominating pair;
where only a mechanism known by its data is at hand (truncated batches under zero-out, long sums of batches of fixed size) it
is a lower bound, which is what an upper bound is held against. Of truncated batches the law of the truncation is rounded up
(docs/mechanisms/truncated.md, section 4), so that their lower bounds are not the mechanism's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import hockeystick as hs
from flint import arb, fmpq
from hockeystick.mechanisms import Skellam

from . import finite
from .allocated import Allocated
from .balls import ONE, ZERO, Enclosure, Infeasible, largest, normal_tail, to_float
from .binomials import TwoLosses
from .finite import FiniteLaw, Pair
from .laplace import LaplaceSum
from .located import BySign, Gaussian, Located, Released, Shifted, alone, sampled_gaussian
from .quantised import Quantised, ends, outcomes

_MOST_OUTCOMES = 6000
_MOST_SHIFTS = 48


class Truth(Protocol):
    """A profile that is known."""

    def delta(self, epsilon: float) -> Enclosure:
        """Enclosure of delta at a double."""
        ...


@dataclass
class Part:
    """One step in one direction, in every form that is known of it."""

    pair: Pair | None = None
    located: Located | None = None
    squared_mu: arb | None = None
    laplace: arb | None = None
    once: Truth | None = None
    below: Callable[[], Pair] | None = None
    """A finite pair that it dominates."""
    above: Callable[[], Pair] | None = None
    """One that dominates it."""

    @property
    def whole(self) -> Pair | Located | None:
        """All of it, as an outcome law."""
        return self.pair or self.located


@dataclass
class Below:
    """The truth of a mechanism that is accounted for by more than itself: only upper bounds can be held against it."""

    exact: Truth

    def delta(self, epsilon: float) -> Enclosure:
        """Enclosure of delta at a double, open above."""
        return Enclosure(self.exact.delta(epsilon).low, ONE)


@dataclass
class Worst:
    """The worse of several directions."""

    directions: Sequence[Truth]

    def delta(self, epsilon: float) -> Enclosure:
        """Enclosure of delta at a double."""
        return largest(direction.delta(epsilon) for direction in self.directions)


@dataclass
class AtLeast:
    """A lower bound on delta, from the best half-line under two mixtures of Gaussians, whatever else may be better."""

    p: tuple[tuple[arb, arb], ...]
    q: tuple[tuple[arb, arb], ...]

    def delta(self, epsilon: float) -> Enclosure:
        """Enclosure of delta at a double, open above."""
        if math.isinf(epsilon):
            return Enclosure(ZERO if epsilon > 0 else ONE, ONE)
        growth = arb(epsilon).exp()

        def gain(t: float) -> arb:
            p, q = (sum((w * normal_tail(arb(t) - s) for s, w in side), ZERO) for side in (self.p, self.q))
            return p - growth * q

        points = [x / 4.0 for x in range(-160, 161)]
        best = max(points, key=lambda t: to_float(gain(t)))
        low, high = best - 0.25, best + 0.25
        for _ in range(40):
            a, b = low + 0.382 * (high - low), low + 0.618 * (high - low)
            if to_float(gain(a)) < to_float(gain(b)):
                low = a
            else:
                high = b
        return Enclosure(gain(0.5 * (low + high)).max(ZERO).max(-(arb(min(epsilon, 0.0))).expm1()), ONE)


def truth(process: hs.Composable, adjacency: str) -> Truth:
    """The truth of a composition; Infeasible if nothing here can tell it."""
    directions = ("remove", "add") if adjacency not in ("remove", "add") else (adjacency,)
    found = [_direction(process, adjacency, direction) for direction in directions]
    return found[0] if len(found) == 1 else Worst(found)


def _direction(process: hs.Composable, adjacency: str, direction: str) -> Truth:
    items = process.as_process().items
    if any(isinstance(step, hs.RandomAllocation) for step, _ in items):
        if len(items) > 1:
            raise Infeasible
        ((step, count),) = items
        return Allocated(1 / arb(step.noise_multiplier), step.steps, count, direction)
    parts = [(_part(step, adjacency, direction), count) for step, count in process.as_process()]
    squared_mu = sum((count * part.squared_mu for part, count in parts if part.squared_mu is not None), ZERO)
    laplace = [(part.laplace, count) for part, count in parts if part.laplace is not None]
    rest = [(p, count) for p, count in parts if p.squared_mu is None and p.laplace is None]
    pairs = [(p.pair, count) for p, count in rest if p.pair is not None]
    others = [(p, count) for p, count in rest if p.pair is None]

    if not laplace and not others:
        if not squared_mu > 0:
            return _finite(pairs)
        return _plus(pairs, Gaussian(squared_mu))
    if len(laplace) == 1 and not (squared_mu > 0 or others):
        a, count = laplace[0]
        if not pairs and (count <= 10 or a > 50):
            if a > 1e4 or count > 12:
                raise Infeasible
            return LaplaceSum(a, count)
        if count == 1:
            return _plus(pairs, _laplace(a))
    if not squared_mu > 0 and not laplace and len(others) == 1 and others[0][1] == 1:
        part = others[0][0]
        if part.located is not None:
            return _plus(pairs, part.located)
        if part.once is not None and not pairs:
            return part.once
    return _quantised(squared_mu, laplace, rest)


def _finite(pairs: list[tuple[Pair, int]]) -> Truth:
    if len(pairs) == 1 and pairs[0][1] > 400 and len(finite.finite_outcomes(pairs[0][0])) == 2:
        return TwoLosses(*pairs[0])
    if math.prod(finite.size(pair, count) for pair, count in pairs) <= _MOST_OUTCOMES:
        return FiniteLaw(pairs)
    return _quantised(ZERO, [], [(Part(pair=pair), count) for pair, count in pairs])


def _plus(pairs: list[tuple[Pair, int]], last: Gaussian | Located) -> Truth:
    if not pairs:
        return alone(last)
    if math.prod(finite.size(pair, count) for pair, count in pairs) > _MOST_SHIFTS:
        raise Infeasible
    law = FiniteLaw(pairs)
    return Shifted(law.atoms(), law.revealed, law.beyond, last)


def _quantised(squared_mu: arb, laplace: list[tuple[arb, int]], rest: list[tuple[Part, int]]) -> Truth:
    if squared_mu > 0:
        if squared_mu > 100 or squared_mu < 1e-6:
            raise Infeasible
        rest = [(Part(located=_gaussian(squared_mu.sqrt())), 1), *rest]
    rest = [*((Part(located=_laplace(a)), count) for a, count in laplace), *rest]
    whole = [(part.whole, count) for part, count in rest]
    if sum(count for _, count in whole) > 1500:
        raise Infeasible
    if all(part is not None for part, _ in whole):
        return Quantised([(part, count) for part, count in whole if part is not None])
    below = [(part.whole or (part.below and part.below()), count) for part, count in rest]
    if not all(part for part, _ in below):
        raise Infeasible
    above = [(part.whole or (part.above and part.above()), count) for part, count in rest]
    known = all(part for part, _ in above)
    return Quantised(
        [(part, count) for part, count in below if part],
        [(part, count) for part, count in above if part and known],
    )


def _gaussian(mu: arb) -> Located:
    return Located("gaussian", ((mu, ONE),), ((ZERO, ONE),))


def _laplace(a: arb) -> Located:
    return Located("laplace", ((a, ONE),), ((ZERO, ONE),))


def _oriented(pair: Pair, direction: str) -> Pair:
    return pair if direction == "remove" else pair.swapped()


_REVEALING = Pair((ZERO, ONE), (ONE, ZERO))


def _part(step: Any, adjacency: str, direction: str) -> Part:
    """The pair of one step in one direction."""
    shift = 2 if adjacency == "replace_one" else 1
    match step:
        case hs.Mixture():
            return _mixture(step, adjacency, direction)
        case hs.MixtureOfGaussians():
            return _of_gaussians(step, adjacency, direction)
        case hs.TruncatedPoissonSampled():
            return _truncated(step, adjacency, direction)
        case hs.PoissonSampled():
            return _poisson(step, adjacency, direction)
        case hs.WithoutReplacement():
            return _joined(
                [(ONE, 1)], arb(fmpq(step.batch_size, step.dataset_size)), step.mechanism, direction
            )
        case hs.WithReplacement():
            some, weights = finite.occurrences(step.batch_size, step.dataset_size)
            groups = [(w, k + 1) for k, w in enumerate(weights)]
            return _joined(groups, some, step.mechanism, direction)
        case hs.RandomizedResponse() if step.uniform_null and adjacency == "zero_out":
            return Part(
                pair=_oriented(finite.response_to_uniform(arb(step.epsilon), step.num_categories), direction)
            )
        case hs.FinitePair() | hs.PrivacyLoss():
            return Part(pair=_oriented(finite.given(step), direction))
    return _base(step, shift)


def _base(step: Any, shift: int, group: int = 1) -> Part:
    """The pair of an unsampled mechanism: a query moved by `shift` sensitivities, or `group` records changed."""
    match step:
        case hs.Gaussian(0.0):
            return Part(pair=_REVEALING)
        case hs.Gaussian(sigma):
            mu = arb(shift) / arb(sigma)
            return Part(squared_mu=mu**2, located=_gaussian(mu))
        case hs.Laplace(scale):
            a = arb(shift) / arb(scale)
            return Part(laplace=a, located=_laplace(a))
        case hs.DiscreteLaplace(scale, sensitivity):
            reach = shift * sensitivity
            if reach > 5000:
                raise Infeasible
            return Part(pair=finite.integer_laplace(arb(scale), {reach: ONE}, {0: ONE}))
        case hs.DiscreteGaussian(sigma, sensitivity):
            return Part(pair=_integer_gaussian(sigma, {shift * sensitivity: ONE}, {0: ONE}))
        case Skellam(variance, sensitivity):
            return Part(pair=_integer_skellam(variance, {shift * sensitivity: ONE}, {0: ONE}))
        case hs.FinitePair() | hs.PrivacyLoss():
            return Part(pair=finite.given(step))
        case hs.RandomizedResponse(epsilon, categories) if group == 1:
            return Part(pair=finite.response(arb(epsilon), categories))
        case hs.RandomizedResponse(epsilon) | hs.PureDP(epsilon):
            return Part(pair=finite.response(group * arb(epsilon)))
        case hs.ApproximateDP(epsilon, delta):
            # delta (e^{group eps} - 1)/(e^eps - 1) for a group
            grown = arb(delta) * sum(((k * arb(epsilon)).exp() for k in range(group)), ZERO)
            if not grown < 1:
                return Part(pair=_REVEALING)
            return Part(pair=finite.response(group * arb(epsilon), 2, grown))
    raise Infeasible


def _integer_gaussian(sigma: float, p: dict[int, arb], q: dict[int, arb]) -> Pair:
    """Masses down to e^-900 where there are few, else as far as 3000 outcomes reach."""
    nats = 900.0 if sigma < 12.0 else 80.0
    if sigma > 4000.0 or max(abs(c) for c in (*p, *q)) > 8000:
        raise Infeasible
    return finite.integer_gaussian(arb(sigma), p, q, nats)


def _integer_skellam(variance: float, p: dict[int, arb], q: dict[int, arb]) -> Pair:
    if variance > 1e4 or max(abs(c) for c in (*p, *q)) > 100:
        raise Infeasible
    return finite.integer_skellam(variance, p, q, 900.0 if variance < 100.0 else 80.0)


def _poisson(step: hs.PoissonSampled, adjacency: str, direction: str) -> Part:
    gamma, inner = arb(step.sampling_probability), step.mechanism
    if isinstance(inner, hs.Mixture):
        chosen = hs.Mixture(
            [hs.PoissonSampled(part, step.sampling_probability) for part in inner.mechanisms], inner.weights
        )
        return _mixture(chosen, adjacency, direction)
    if step.sampling_probability == 0.0:
        return Part(pair=finite.NOTHING)
    if step.sampling_probability == 1.0:
        return _part(inner, adjacency, direction)
    if adjacency == "replace_one":
        return _poisson_replaced(inner, gamma)
    base = _base(inner, 1)
    if base.squared_mu is not None:
        return Part(located=sampled_gaussian(base.squared_mu.sqrt(), gamma, direction))
    if base.laplace is not None:
        mixed = ((ZERO, 1 - gamma), (base.laplace, gamma))
        if direction == "remove":
            return Part(located=Located("laplace", mixed, ((ZERO, ONE),)))
        return Part(located=Located("laplace", ((ZERO, ONE),), tuple((-s, w) for s, w in mixed)))
    assert base.pair is not None
    return Part(pair=_oriented(finite.sampled(base.pair, gamma), direction))


def _poisson_replaced(inner: Any, gamma: arb) -> Part:
    """(1-q) N(0) + q N(1) against (1-q) N(0) + q N(-1) for noise, advanced joint convexity for declarations."""
    match inner:
        case hs.Gaussian(sigma) if sigma > 0.0:
            mu = 1 / arb(sigma)
            return Part(
                located=Located(
                    "gaussian", ((ZERO, 1 - gamma), (mu, gamma)), ((ZERO, 1 - gamma), (-mu, gamma))
                )
            )
        case hs.Laplace(scale):
            mu = 1 / arb(scale)
            return Part(
                located=Located(
                    "laplace", ((ZERO, 1 - gamma), (mu, gamma)), ((ZERO, 1 - gamma), (-mu, gamma))
                )
            )
        case hs.DiscreteLaplace(scale, s) if s <= 2500:
            return Part(
                pair=finite.integer_laplace(arb(scale), {0: 1 - gamma, s: gamma}, {0: 1 - gamma, -s: gamma})
            )
        case hs.DiscreteGaussian(sigma, s):
            return Part(pair=_integer_gaussian(sigma, {0: 1 - gamma, s: gamma}, {0: 1 - gamma, -s: gamma}))
        case Skellam(variance, s):
            return Part(pair=_integer_skellam(variance, {0: 1 - gamma, s: gamma}, {0: 1 - gamma, -s: gamma}))
    base = _base(inner, 2)
    if base.pair is None:
        raise Infeasible
    return Part(pair=finite.joined(base.pair, gamma))


def _joined(groups: list[tuple[arb, int]], gamma: arb, inner: Any, direction: str) -> Part:
    """Batches of fixed size (docs/mechanisms/replacement.md, section 4): the groups' replace-one pairs, released, then joined."""
    bases = [(w, _base(inner, 2 * k, k)) for w, k in groups]
    if all(base.pair is not None for _, base in bases):
        pair = finite.chosen([base.pair for _, base in bases if base.pair], [w for w, _ in bases])
        return Part(pair=_oriented(pair if gamma == 1 else finite.joined(pair, gamma), direction))
    located = [(w, base.located) for w, base in bases if base.located is not None]

    def cut(into: Callable[[Located], Pair]) -> Pair:
        pair = finite.chosen([into(part) for _, part in located], [w for w, _ in located])
        return pair if gamma == 1 else finite.joined(pair, gamma)

    if gamma == 1 and len(bases) == 1:
        return bases[0][1]
    sides = []
    for which in ("remove", "add"):
        profiles = []
        for w, part in located:
            mixed = ((part.first, 1 - gamma), (part.last, gamma)) if gamma < 1 else ((part.last, ONE),)
            if which == "remove":
                profiles.append((w, alone(Located(part.noise, mixed, ((ZERO, ONE),)))))
            else:
                profiles.append(
                    (w, alone(Located(part.noise, ((ZERO, ONE),), tuple((-s, v) for s, v in mixed))))
                )
        sides.append(Released(profiles))
    return Part(once=BySign(sides[0], sides[1]), below=lambda: cut(outcomes), above=lambda: cut(ends))


def _of_gaussians(step: hs.MixtureOfGaussians, adjacency: str, direction: str) -> Part:
    total = sum((arb(w) for w in step.probabilities), ZERO)
    law = [
        (arb(s), arb(w) / total)
        for s, w in zip(step.sensitivities, step.probabilities, strict=True)
        if w > 0.0
    ]
    merged: dict[float, arb] = {}
    for s, w in zip(step.sensitivities, step.probabilities, strict=True):
        if w > 0.0:
            merged[s] = merged.get(s, ZERO) + arb(w) / total
    if step.largest == 0.0:
        return Part(pair=finite.NOTHING)
    if step.noise_multiplier == 0.0:  # whether it counts at all
        counts = sum((w for s, w in law if s > 0), ZERO)
        if adjacency == "replace_one":
            return Part(pair=finite.joined(_REVEALING, counts))
        return Part(pair=_oriented(finite.sampled(_REVEALING, counts), direction))
    unit = 1 / arb(step.noise_multiplier)
    centres = tuple((arb(s) * unit, w) for s, w in sorted(merged.items()))
    mirrored = tuple((-s, w) for s, w in centres)
    if adjacency == "replace_one":
        return Part(located=Located("gaussian", centres, mirrored))
    if direction == "remove":
        return Part(located=Located("gaussian", centres, ((ZERO, ONE),)))
    return Part(located=Located("gaussian", ((ZERO, ONE),), mirrored))


def _mixture(step: hs.Mixture, adjacency: str, direction: str) -> Part:
    kept = [(arb(w), part) for w, part in zip(step.weights, step.mechanisms, strict=True) if w > 0.0]
    parts = [(w, _part(part, adjacency, direction)) for w, part in kept]
    if len(parts) == 1:
        return parts[0][1]
    if all(part.pair is not None for _, part in parts):
        return Part(pair=finite.chosen([part.pair for _, part in parts if part.pair], [w for w, _ in parts]))
    total = sum((w for w, _ in parts), ZERO)
    profiles: list[tuple[arb, Truth]] = []
    for w, part in parts:
        if part.squared_mu is not None:
            profiles.append((w / total, alone(Gaussian(part.squared_mu))))
        elif part.pair is not None:
            profiles.append((w / total, FiniteLaw([(part.pair, 1)])))
        elif part.located is not None:
            profiles.append((w / total, alone(part.located)))
        elif part.once is not None:
            profiles.append((w / total, part.once))

    def below() -> Pair:
        return finite.chosen(
            [outcomes(p.whole) if p.whole else p.below() for _, p in parts], [w for w, _ in parts]
        )  # type: ignore[misc]

    return Part(once=Released(profiles) if len(profiles) == len(parts) else None, below=below)


def _truncated(step: hs.TruncatedPoissonSampled, adjacency: str, direction: str) -> Part:
    """docs/mechanisms/truncated.md, section 3: X others join; below B a Poisson batch, else a batch of B with the record in it or not."""
    n, b, sigma = step.dataset_size, step.max_batch_size, step.noise_multiplier
    if step.sampling_probability == 0.0:
        return Part(pair=finite.NOTHING)
    if n > 400 or sigma == 0.0 or step.pair != "tight":
        raise Infeasible
    p, mu = arb(step.sampling_probability), 1 / arb(sigma)
    law = [math.comb(n - 1, x) * p**x * (1 - p) ** (n - 1 - x) for x in range(n)]
    full = sum(law[b:], ZERO)
    plain = _poisson(hs.PoissonSampled(hs.Gaussian(sigma), step.sampling_probability), adjacency, direction)
    if b >= n:
        return plain
    q = p * sum((w * b / (x + 1) for x, w in enumerate(law) if x >= b), ZERO) / full
    if adjacency == "zero_out":
        # Two datasets (Corollary 4): all others equal y; the record x is -y or y, its replacement 0.
        pairs = [
            (((ZERO, 1 - q), (2 * mu, q)), ((ZERO, 1 - q), (mu, q))),
            (((ZERO, ONE),), ((ZERO, 1 - q), (-mu, q))),
        ]
        branch: Truth = Worst(
            [AtLeast(*(pair if direction == "remove" else _reversed(pair))) for pair in pairs]
        )
        below = None
    else:
        wide = sampled_gaussian(
            2 * mu, q, "add" if adjacency != "replace_one" and direction == "add" else "remove"
        )
        branch = alone(wide)
        if adjacency == "replace_one":
            branch = BySign(branch, alone(sampled_gaussian(2 * mu, q, "add")))

        def below() -> Pair:
            second = outcomes(wide)
            if adjacency == "replace_one":
                second = finite.joined(outcomes(_gaussian(2 * mu)), q)
            return finite.chosen([outcomes(plain.whole or _gaussian(mu)), second], [1 - full, full])

    once = Released([(1 - full, alone(plain.located or Gaussian(plain.squared_mu))), (full, branch)])
    return Part(once=Below(once), below=below)


def _reversed(pair: Any) -> Any:
    """Q against P, mirrored so that the loss rises with the output."""
    p, q = pair
    return tuple((-s, w) for s, w in q), tuple((-s, w) for s, w in p)
