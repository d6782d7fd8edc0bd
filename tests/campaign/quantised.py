"""Sums of any steps: a lower bound by merging outcomes, an upper bound by splitting them.

Merging outcomes is post-processing, so delta of the merged pair is a lower bound, and merged pairs may be composed and merged
again. Splitting the mass of an outcome on two neighbouring losses such that P- and Q-mass are kept makes it a post-processing of the
result: an upper bound (the chords of Doroshenko et al. 2022). More mass than that on the larger loss is safe, too. Masses are
sums of products of positive doubles, so that their relative error is counted; it stays below `_ROUNDING`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from flint import arb
from numpy.typing import NDArray

from .balls import ONE, ZERO, Enclosure, Infeasible, to_float
from .finite import Pair, finite_outcomes, revealed
from .located import Located

Array: TypeAlias = NDArray[np.float64]

_ROUNDING = 1e-9
"""Products and sums of at most 1e4 terms, composed at most 1e3 times by repeated squaring, each with 2^-53 a term: 1e-11."""

_POINTS = 800
_FINE = 2**15
_LEAST = 1e-30
"""P-mass that is counted as revealed (above) or left out (below), in every convolution."""


def outcomes(step: Pair | Located, points: int = _POINTS) -> Pair:
    """A step's outcomes, merged between points of the output if it is continuous: a finite pair that it dominates."""
    if isinstance(step, Pair):
        return step
    edges = _edges(step, points)
    above = [step._above(t) for t in edges]
    tails = [(ONE, ONE), *above, (ZERO, ZERO)]
    p = tuple(a[0] - b[0] for a, b in pairwise(tails))
    q = tuple(a[1] - b[1] for a, b in pairwise(tails))
    return Pair(p, q)


def ends(step: Pair | Located, points: int = _POINTS) -> Pair:
    """A finite pair that dominates it: each output interval's masses on the losses at its two ends, so that both are kept."""
    if isinstance(step, Pair):
        return step
    inner = [step.loss(t) for t in _edges(step, points)]
    losses = [step.infimum, *inner, step.supremum]
    cells = outcomes(step, points)
    found: list[tuple[arb, arb]] = []
    for p, q, low, high in zip(cells.p, cells.q, losses, losses[1:], strict=False):
        if high is None:
            found += [(q * low.exp(), q), (p - q * low.exp(), ZERO)]
        elif low is None or not (high - low) > 1e-30:
            found += [(p, p * (-high).exp()), (ZERO, q - p * (-high).exp())]
        else:
            up = (p - q * low.exp()) / (1 - (low - high).exp())
            found += [(p - up, (p - up) * (-low).exp()), (up, up * (-high).exp())]
    return Pair(tuple(p for p, _ in found), tuple(q for _, q in found))


def _edges(step: Located, points: int) -> list[arb]:
    low, high = to_float(step.first), to_float(step.last)
    if step.noise == "laplace":
        return [arb(x) for x in np.linspace(low, high, points).tolist()]
    return [arb(x) for x in np.linspace(low - 11.5, high + 11.5, points).tolist()]


class Merged:
    """Lower bounds: masses p, q of outcomes, losses rising."""

    def __init__(self, p: Array, q: Array) -> None:
        self.p, self.q = p, q

    @classmethod
    def of(cls, pair: Pair) -> Merged:
        """The outcomes whose losses are finite; the rest is left out, or revealed and counted elsewhere."""
        finite = sorted(finite_outcomes(pair), key=lambda outcome: to_float(outcome[2]))
        p, q = (np.array([to_float(outcome[i]) for outcome in finite]) for i in (0, 1))
        return cls(p, q)._tidy()

    def _tidy(self) -> Merged:
        normal = (self.p > 1e-290) & (self.q > 1e-290)  # below, doubles lose their relative accuracy
        return Merged(self.p[normal], self.q[normal])

    def times(self, other: Merged) -> Merged:
        """The composition, merged to at most `_POINTS` outcomes."""
        p, q = np.multiply.outer(self.p, other.p).ravel(), np.multiply.outer(self.q, other.q).ravel()
        normal = (p > 1e-290) & (q > 1e-290)
        p, q = p[normal], q[normal]
        losses = np.log(p / q)
        if len(p) <= _POINTS:
            order = np.argsort(losses)
            return Merged(p[order], q[order])
        # The error of merging grows with mass * width^2: equal shares of the integral of mass^(1/3).
        heavy = losses[p > _LEAST]
        low, high = float(heavy.min()), float(heavy.max())
        if low == high:
            return Merged(np.array([p.sum()]), np.array([q.sum()]))
        fine = np.clip((losses - low) * (_FINE / (high - low)), 0.0, _FINE - 1.0).astype(np.int64)
        share = np.cumsum(np.cbrt(np.bincount(fine, weights=p, minlength=_FINE)))
        bins = np.minimum(share * (_POINTS / share[-1]), _POINTS - 1.0).astype(np.int64)[fine]
        sums = (np.bincount(bins, weights=w, minlength=_POINTS) for w in (p, q))
        return Merged(*sums)._tidy()

    def delta(self, epsilon: float) -> arb:
        """A lower bound on delta; of masses that are exact up to a relative error."""
        losses = np.log(self.p / self.q)
        chosen = losses > epsilon
        p, q = float(self.p[chosen].sum()), float(self.q[chosen].sum())
        return (arb(p) * arb(1.0 - _ROUNDING) - arb(epsilon).exp() * arb(q) * arb(1.0 + _ROUNDING)).max(ZERO)


class Split:
    """Upper bounds: P-masses at losses first, first + 1, ... times width, and P-mass at infinity."""

    def __init__(self, first: int, p: Array, width: float, infinite: float) -> None:
        self.first, self.p, self.width, self.infinite = first, p, width, infinite

    @classmethod
    def of(cls, step: Pair | Located, width: float) -> Split:
        """One step on a lattice. An output interval's losses lie between those at its ends, and so does its mass."""
        if isinstance(step, Pair):
            finite = finite_outcomes(step)
            p = np.array([to_float(x) for x, _, _ in finite]) * (1.0 + 1e-15)
            losses = np.array([to_float(x) for _, _, x in finite])
            lost = to_float(revealed(step) + step.beyond[0])
            return cls._chords(p, losses + 1e-14 * (1.0 + np.abs(losses)), width, lost * (1.0 + 1e-12))
        # Between points whose losses lie within one lattice cell, the mass is split like its mean of e^-L, rounded up.
        merged = outcomes(step, 2 * _POINTS)
        edges = _edges(step, 2 * _POINTS)
        at = np.array([to_float(step.loss(t)) for t in edges])
        bottom = -math.inf if step.infimum is None else to_float(step.infimum)
        top = math.inf if step.supremum is None else to_float(step.supremum)
        highest = np.append(at, top)
        lowest = np.insert(at, 0, bottom)
        p = np.array([max(0.0, to_float(x.upper())) for x in merged.p]) * (1.0 + 1e-15)
        q = np.array([max(0.0, to_float(x.lower())) for x in merged.q])
        finite_top = np.isfinite(highest)
        lost = float(p[~finite_top].sum())
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = np.clip(np.log(p / q), lowest, highest)
        p, mean, lowest, highest = (x[finite_top] for x in (p, mean, lowest, highest))
        # Mass anywhere in an interval is dominated by the same P- and Q-mass at the interval's two ends.
        reach = highest - lowest
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            share = np.where(
                (reach > 0.0) & np.isfinite(reach),
                np.expm1(lowest - mean) / np.expm1(-np.maximum(reach, 1e-300)),
                1.0,
            )
        share = np.where(np.isfinite(share), np.clip(share * (1.0 + 1e-11) + 1e-11, 0.0, 1.0), 1.0)
        # Where the distance is lost in rounding, all goes up.
        share = np.where(reach < 1e-9, 1.0, share)
        lowest = np.where(np.isfinite(lowest), lowest, highest)
        masses = np.concatenate([p * share, p * (1.0 - share)])
        losses = np.concatenate([highest, lowest])
        return cls._chords(masses, losses + 1e-14 * (1.0 + np.abs(losses)), width, lost)

    @classmethod
    def _chords(cls, p: Array, losses: Array, width: float, infinite: float) -> Split:
        below = np.floor(losses / width)
        share = np.expm1(below * width - losses) / math.expm1(-width)
        share = np.clip(share + 1e-11, 0.0, 1.0)
        below = below.astype(np.int64)
        first = int(below.min())
        size = int(below.max()) - first + 2
        masses = np.bincount(below - first + 1, weights=p * share, minlength=size)
        masses = masses + np.bincount(below - first, weights=p * (1.0 - share), minlength=size)
        return cls(first, masses, width, infinite)._trimmed()._short()

    def _short(self) -> Split:
        return self if len(self.p) <= 4 * _POINTS else self.coarser()._short()

    def coarser(self) -> Split:
        """On every second point."""
        p = np.pad(self.p, (self.first % 2, 0))
        p = np.pad(p, (0, 1 - len(p) % 2))
        up = min(1.0, 1.0 / (1.0 + math.exp(-self.width)) + 1e-12)
        even, odd = p[::2].copy(), p[1::2]
        even[1:] += odd * up
        even[:-1] += odd * (1.0 - up)
        return Split(self.first // 2, even, 2.0 * self.width, self.infinite)

    def times(self, other: Split) -> Split:
        """The composition."""
        a, b = self, other
        while a.width < b.width * 0.99:
            a = a.coarser()
        while b.width < a.width * 0.99:
            b = b.coarser()
        return (
            Split(a.first + b.first, np.convolve(a.p, b.p), a.width, a.infinite + b.infinite)
            ._trimmed()
            ._short()
        )

    def _trimmed(self) -> Split:
        from_right = np.cumsum(self.p[::-1])[::-1]
        keep = max(1, int(np.searchsorted(-from_right, -_LEAST)))
        infinite = self.infinite + float(self.p[keep:].sum()) * (1.0 + _ROUNDING)
        p = self.p[:keep].copy()
        start = min(len(p) - 1, int(np.searchsorted(np.cumsum(p), _LEAST)))
        p[start] += p[:start].sum()
        return Split(self.first + start, p[start:], self.width, infinite)

    def delta(self, epsilon: float) -> float:
        """An upper bound on delta."""
        losses = (self.first + np.arange(len(self.p))) * self.width
        gain = -np.expm1(np.minimum(0.0, epsilon - losses - 1e-13 * np.abs(losses)))
        return min(1.0, (float((self.p * gain).sum()) + self.infinite) * (1.0 + _ROUNDING) + 1e-300)


class Quantised:
    """A composition of steps [(pair or located noise, count), ...], enclosed by merging and splitting.

    ``above``: what dominates the steps, where ``parts`` are dominated by them; empty if nothing is known from above.
    """

    def __init__(
        self,
        parts: Sequence[tuple[Pair | Located, int]],
        above: Sequence[tuple[Pair | Located, int]] | None = None,
    ) -> None:
        above = parts if above is None else above
        merged = [(Merged.of(outcomes(step)), count) for step, count in parts]
        self.merged = _composed(merged)
        self.split: Split | None = None
        if above:
            spread = max(float(np.ptp(np.log(m.p / m.q)[m.p > 1e-25])) for m, _ in merged)
            if not 1e-6 < spread < 1e4:
                raise Infeasible
            self.split = _composed([(Split.of(step, spread / (3 * _POINTS)), count) for step, count in above])
        hidden = ZERO
        for step, count in parts:
            if isinstance(step, Pair):
                hidden = hidden + count * (-revealed(step)).log1p()
        self.revealed = -hidden.expm1()

    def delta(self, epsilon: float) -> Enclosure:
        """Enclosure of delta at a double; loose where delta is below about 1e-20."""
        if epsilon == -math.inf:
            return Enclosure(ONE, ONE)
        low = self.revealed
        if epsilon < math.inf:
            low = (self.merged.delta(epsilon) + low).max(-(arb(min(epsilon, 0.0))).expm1())
        return Enclosure(low, ONE if self.split is None else arb(self.split.delta(epsilon)))


def _composed(parts: Sequence[tuple[Merged, int]] | Sequence[tuple[Split, int]]):  # type: ignore[no-untyped-def]
    """The composition of all, powers by repeated squaring."""
    total = None
    for base, count in parts:
        while count:
            if count & 1:
                total = base if total is None else total.times(base)
            count >>= 1
            if count:
                base = base.times(base)
    return total
