"""What a certificate says is released, as parts of a composition: docs/accounting/certificates.md, "Releases"."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flint import arb

from .document import Fields, Rejected
from .inversion import Part
from .pairs import Ball, Pair, completed, curve, finite, gaussian, laplace, located, response

ADJACENCIES = ("add", "add_or_remove", "remove", "replace_one", "zero_out")
_MANY = 2**53  # *limit*
_NODES = 2000  # *speed*: of the curve of declared divergences
_MOST_MASSES = 1 << 22
"""speed: of cells times shifts, of all steps together: a few minutes, and some gigabytes."""


@dataclass
class Grid:
    """How finely outputs are cut into cells, and how far, in units of the noise."""

    cells: int
    reach: Ball
    left: int = _MOST_MASSES

    def cut(self, shifts: int) -> int:
        """The cells, to be computed for so many shifts."""
        self.left -= self.cells * shifts
        if self.left < 0:
            raise Rejected("more cells and sensitivities than are computed")
        return self.cells


@dataclass
class Release:
    """Steps read so far under one adjacency: pairs with their counts, Gaussians' mu^2, declared divergences."""

    adjacency: str
    grid: Grid
    pairs: list[tuple[Pair, int]] = field(default_factory=list)
    variance: Ball = field(default_factory=lambda: arb(0))
    divergences: list[tuple[_Divergence, int]] = field(default_factory=list)
    lopsided: bool = False

    @property
    def directions(self) -> tuple[str, ...]:
        """Whose delta must be small: one of them where every pair is its own reverse, or one is asked for."""
        if self.adjacency in ("add", "remove"):
            return (self.adjacency,)
        return ("remove", "add") if self.lopsided else ("remove",)

    def parts(self, direction: str) -> list[Part]:
        """The composition in one direction."""
        pairs = list(self.pairs)
        if self.divergences:
            pairs.append((_renyi(self.divergences), 1))
        found = []
        for pair, count in pairs:
            atoms, infinite = (pair if direction == "remove" else pair.reversed()).atoms()
            found.append(Part(atoms, infinite, count))
        return found


def read_release(content: Any, adjacency: str, grid: Grid) -> Release:
    """The release that ``content`` describes, as `hockeystick.mechanisms.to_dict` writes it."""
    release, fields = Release(adjacency, grid), Fields(content, "release")
    fields.text("type", "Process")
    for item in fields.objects("items"):
        count, step = item.integer("count", 1, _MANY), item.object("step")
        item.finished()
        _add(release, step, count)
    fields.finished()
    return release


def _add(release: Release, step: Fields, count: int) -> None:
    kind, shift = step.text("type"), 2 if release.adjacency == "replace_one" else 1
    if kind == "Gaussian":
        release.variance += count * (shift / _positive(step, "noise_multiplier")) ** 2
    elif kind in _DIVERGENCES:
        release.divergences.append((_DIVERGENCES[kind](step), count))
    else:
        pair, own_reverse = _pair(kind, step, release)
        release.pairs.append((pair, count))
        release.lopsided |= not own_reverse
    step.finished()


def _pair(kind: str, step: Fields, release: Release) -> tuple[Pair, bool]:
    """The pair of direction "remove", and whether it is its own reverse."""
    if kind in _SCHEMES:
        return _SCHEMES[kind](step, release)
    return _base(kind, step, release.adjacency, release.grid)


def _base(kind: str, step: Fields, adjacency: str, grid: Grid) -> tuple[Pair, bool]:
    """An unsampled mechanism."""
    shift = 2 if adjacency == "replace_one" else 1
    if kind == "Gaussian":
        return gaussian(shift / _positive(step, "noise_multiplier"), grid.cut(2), grid.reach), True
    if kind == "Laplace":
        return laplace(shift / _positive(step, "scale"), grid.cut(2)), True
    if kind == "RandomizedResponse":
        epsilon, categories = _positive(step, "epsilon", 1e4), step.integer("num_categories", 2, _MANY)
        if step.any("uniform_null") is not False:
            raise Rejected(f"{step.place}: randomised response with a uniform null cannot be verified")
        return response(epsilon, categories), True
    if kind == "PureDP":
        return response(_positive(step, "epsilon", 1e4)), True
    if kind == "ApproximateDP":
        return response(arb(step.real("epsilon", 0.0, 1e4)), 2, arb(step.real("delta", 0.0, 1.0))), True
    if kind == "DeclaredProfile":
        epsilons, deltas = step.reals("epsilons", 0.0, 600.0), step.reals("deltas", 0.0, 1.0)
        error = arb(step.real("error", 0.0, 1.0))
        if len(epsilons) != len(deltas):
            raise Rejected(f"{step.place}: epsilons and deltas must be of equal length")
        return curve([(arb(x), arb(d) + error) for x, d in zip(epsilons, deltas, strict=True)]), True
    if kind == "FinitePair" and adjacency != "replace_one":
        return finite(step.reals("p", 0.0, 1.0), step.reals("q", 0.0, 1.0)), False
    raise Rejected(f"{step.place}: {kind} under {adjacency} cannot be verified")


def _poisson(step: Fields, release: Release) -> tuple[Pair, bool]:
    """Zhu, Dong and Wang 2022, Theorem 11; a sample of a sample is one sample."""
    rate, inner = _rate(step), step.object("mechanism")
    kind = inner.text("type")
    while kind == "PoissonSampled":
        rate, outer = rate * _rate(inner), inner
        inner = outer.object("mechanism")
        outer.finished()
        kind = inner.text("type")
    # A null response that is sampled is not as none.
    if release.adjacency == "replace_one" or (
        release.adjacency == "zero_out" and kind == "RandomizedResponse"
    ):
        pair = _poisson_replaced(kind, inner, rate, release)
        inner.finished()
        return pair, True
    pair, _ = _base(kind, inner, "add_or_remove", release.grid)
    inner.finished()
    return pair.sampled(rate), False


def _poisson_replaced(kind: str, inner: Fields, rate: Ball, release: Release) -> Pair:
    if kind == "Gaussian":
        shift = 1 / _positive(inner, "noise_multiplier")
        law = [(arb(0), 1 - rate), (shift, rate)]
        return located(law, [(-s, w) for s, w in law], release.grid.cut(4), release.grid.reach)
    if kind == "Laplace":
        raise Rejected(f"{inner.place}: Poisson sampled Laplace under replace_one cannot be verified")
    return _base(kind, inner, release.adjacency, release.grid)[0].batch(rate)


def _without_replacement(step: Fields, release: Release) -> tuple[Pair, bool]:
    """Balle, Barthe and Gaboardi 2018, Theorem 9."""
    if release.adjacency != "replace_one":
        raise Rejected(f"{step.place}: a batch of fixed size is compared under replace_one only")
    size = step.integer("dataset_size", 1, _MANY)
    rate = arb(step.integer("batch_size", 1, size)) / size
    step.text("pair", "sound")
    inner = step.object("mechanism")
    pair, _ = _base(inner.text("type"), inner, release.adjacency, release.grid)
    inner.finished()
    return pair.batch(rate), True


def _mixture_of_gaussians(step: Fields, release: Release) -> tuple[Pair, bool]:
    """Ganesh 2025, Lemma 2.4."""
    sigma = _positive(step, "noise_multiplier")
    shifts, weights = step.reals("sensitivities", 0.0, 1e6, 1000), step.reals("probabilities", 0.0, 1.0, 1000)
    if len(shifts) != len(weights):
        raise Rejected(f"{step.place}: sensitivities and probabilities must be of equal length")
    return _several([arb(s) / sigma for s in shifts], completed(weights), release)


def _several(shifts: Sequence[Ball], weights: Sequence[Ball], release: Release) -> tuple[Pair, bool]:
    law = list(zip(shifts, weights, strict=True))
    replaced = release.adjacency == "replace_one"
    other = [(-s, w) for s, w in law] if replaced else [(arb(0), arb(1))]
    return located(law, other, release.grid.cut(len(law) + len(other)), release.grid.reach), replaced


def _user(step: Fields, release: Release) -> tuple[Pair, bool]:
    """docs/mechanisms/users.md: a batch holds Binomial(k, q) of a user's examples."""
    examples, sampled = step.integer("examples_per_user", 1, 300), step.object("mechanism")
    sampled.text("type", "PoissonSampled")
    rate, inner = _rate(sampled), sampled.object("mechanism")
    sampled.finished()
    inner.text("type", "Gaussian")
    sigma = _positive(inner, "noise_multiplier")
    inner.finished()
    sizes = range(examples + 1)
    weights = [arb.bin_uiui(examples, k) * rate**k * (1 - rate) ** (examples - k) for k in sizes]
    return _several([k / sigma for k in sizes], weights, release)


def _choice(step: Fields, release: Release) -> tuple[Pair, bool]:
    """One of several steps; which one is released."""
    parts, weights = step.objects("mechanisms"), completed(step.reals("weights", 0.0, 1.0, 1000))
    if len(parts) != len(weights):
        raise Rejected(f"{step.place}: mechanisms and weights must be of equal length")
    total, own_reverse = Pair([], []), True
    for part, weight in zip(parts, weights, strict=True):
        pair, same = _pair(part.text("type"), part, release)
        part.finished()
        total, own_reverse = total.joined(pair.weighted(weight)), own_reverse and same
    return total, own_reverse


_SCHEMES: Mapping[str, Callable[[Fields, Release], tuple[Pair, bool]]] = {
    "PoissonSampled": _poisson,
    "WithoutReplacement": _without_replacement,
    "MixtureOfGaussians": _mixture_of_gaussians,
    "UserLevel": _user,
    "Mixture": _choice,
}


def _positive(step: Fields, name: str, most: float = 1e12) -> Ball:
    value = step.real(name, 0.0, most)
    if value == 0.0:
        raise Rejected(f"{step.place}.{name}: must be above 0")
    return arb(value)


def _rate(step: Fields) -> Ball:
    return arb(step.real("sampling_probability", 0.0, 1.0))


@dataclass
class _Divergence:
    """(alpha - 1) D_alpha, by chords between ``orders`` (from 1 on, where it is 0) or ``slope`` (alpha - 1) + ``rise`` (alpha^2 - alpha)."""

    slope: float = 0.0
    rise: float = 0.0
    orders: tuple[float, ...] = ()
    moments: tuple[Ball, ...] = ()

    def at(self, order: float) -> Ball | None:
        """At least the moment there; None where nothing is known."""
        if not self.orders:
            a = arb(order)
            return (a - 1) * (arb(self.slope) + arb(self.rise) * a)
        if order > self.orders[-1]:
            return None
        i = bisect.bisect_left(self.orders, order)
        if i == 0:
            return arb(0)
        low, high = arb(self.orders[i - 1]), arb(self.orders[i])
        share = (arb(order) - low) / (high - low)
        return (1 - share) * self.moments[i - 1] + share * self.moments[i]


def _renyi_curve(step: Fields) -> _Divergence:
    orders, epsilons = step.reals("orders", 1.0, 1e12, 1000), step.reals("epsilons", 0.0, 1e6, 1000)
    known = [1.0, *orders]
    if len(orders) != len(epsilons) or any(a >= b for a, b in itertools.pairwise(known)):
        raise Rejected(f"{step.place}: orders must rise from above 1, with one epsilon for each")
    moments = ((arb(a) - 1) * arb(e) for a, e in zip(orders, epsilons, strict=True))
    return _Divergence(orders=tuple(known), moments=(arb(0), *moments))


_DIVERGENCES: Mapping[str, Callable[[Fields], _Divergence]] = {
    "ZCDP": lambda step: _Divergence(step.real("xi", 0.0, 1e6), step.real("rho", 0.0, 1e6)),
    "RenyiCurve": _renyi_curve,
}


_MOST_ORDERS = 10_000
"""speed: of all curves together; some seconds."""


def _renyi(parts: Sequence[tuple[_Divergence, int]]) -> Pair:
    """The pair of docs/accounting/certificates.md, "Declared divergences"."""
    orders = sorted(
        {1.0 + 10.0 ** (k / 50.0 - 4.0) for k in range(650)}.union(*(d.orders[1:] for d, _ in parts))
    )
    if len(orders) > _MOST_ORDERS or len(orders) * len(parts) > 200 * _MOST_ORDERS:
        raise Rejected("more orders than are computed")
    moments: list[tuple[float, Ball]] = []
    for order in orders:
        values = [(count, d.at(order)) for d, count in parts]
        known = [count * m for count, m in values if m is not None]
        if len(known) == len(parts):
            moments.append((order, sum(known, arb(0))))
    rough = [(a, float(m), (a - 1.0) * math.log1p(-1.0 / a) - math.log(a)) for a, m in moments]
    end = min(600.0, min((m + 140.0) / (a - 1.0) for a, m, _ in rough))
    points = [(arb(0), arb(1))]
    for i in range(_NODES):
        epsilon = end * (i / (_NODES - 1)) ** 1.5
        best = min(range(len(rough)), key=lambda j: rough[j][1] - (rough[j][0] - 1.0) * epsilon + rough[j][2])
        points.append((arb(epsilon), _from_divergence(*moments[best], arb(epsilon))))
    entropy = min((m / (arb(a) - 1) for a, m in moments), key=lambda x: float(x.mid()))
    points.append((arb(0), (1 - (-entropy).exp()).sqrt().min((entropy / 2).sqrt())))
    return curve(points)


def _from_divergence(order: float, moment: Ball, epsilon: Ball) -> Ball:
    """delta at epsilon of whatever has (alpha - 1) D_alpha <= ``moment`` at this order."""
    a = arb(order)
    fall, rest = (-(a - 1) * epsilon).exp(), moment.exp()
    whole = rest
    for _ in range(4):
        event = (rest * fall).min(arb(1))
        rest = rest.min(whole - (1 - event) ** a)
    return (rest * fall / a * (1 - 1 / a) ** (a - 1)).min(arb(1))
