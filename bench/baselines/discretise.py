"""A pair's privacy loss on the lattice {i h}: bounds from above and below, and two classical roundings.

With y = e^x, the hockey-stick curve f(y) = P(L > x) - y Q(L > x) is convex and decreasing, and a measure on
lattice points is a curve that is linear between them: intercept T_i (the P-tail from x_i on) and slope -Q-tail.
A curve above f composes to a curve above the composed f, so bounding f bounds every composition.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bench.baselines.pairs import Floats, Pair


@dataclass(frozen=True)
class Lattice:
    """P-masses at (first + i) * step + shift, and P-mass at +inf."""

    step: float
    first: int
    masses: Floats
    infinity: float = 0.0
    shift: float = 0.0

    @property
    def losses(self) -> Floats:
        return (self.first + np.arange(self.masses.size)) * self.step + self.shift


def window(pair: Pair, step: float, tail: float = 1e-22) -> tuple[int, int]:
    """Lattice indices outside which the curves above and below are less than `tail`."""

    def edge(curve, sign: int) -> int:
        outer = 1
        while curve(sign * outer * step) > tail + pair.infinity_mass:
            outer *= 2
        inner = outer // 2
        while outer - inner > 1:
            middle = (outer + inner) // 2
            if curve(sign * middle * step) > tail + pair.infinity_mass:
                inner = middle
            else:
                outer = middle
        return sign * outer

    last = edge(pair.above, 1)
    if last * step > pair.max_loss:
        last = int(np.ceil(pair.max_loss / step - 1e-9))  # an atom at the end may be on the lattice
    return edge(pair.below, -1), last


def _chords(values: Floats, step: float) -> Floats:
    """Intercept at y = 0 of the line through each two neighbouring points (e^{x_i}, values_i)."""
    return (values[:-1] - np.exp(-step) * values[1:]) / -np.expm1(-step)


def upper(pair: Pair, step: float, first: int, last: int) -> Lattice:
    """Connect the dots (Doroshenko et al. 2022): chords of f; gap O(step^2), no shift in epsilon."""
    x = np.arange(first, last + 1) * step
    zero = int(
        np.clip(-first, 0, x.size - 1)
    )  # left of 0 use f - (1 - y), which is small; its intercepts lack 1
    left = -_chords(pair.below(x[: zero + 1]), step)  # P-mass below
    right = _chords(pair.above(x[zero:]), step)
    top = float(pair.above(x[-1]))
    below, above = np.append(0.0, left), np.append(right, top)
    masses = np.concatenate([np.diff(below), [1 - below[-1] - above[0]], -np.diff(above)])
    return Lattice(step, first, np.maximum(masses, 0.0), top)


def lower(pair: Pair, step: float, first: int, last: int) -> Lattice:
    """Tangents of f at the middle of each bin, their lower end at each lattice point, made convex.

    A chord between points under one tangent stays under that tangent. Where two neighbouring tangents disagree
    the chords need not be convex: the convex hull is an isotonic regression of their intercepts, with
    the widths of the bins in 1/y as weights.
    """
    x = np.arange(first, last + 1) * step
    touch = np.append(x[0], x[:-1] + step / 2)  # one tangent left of the lattice, then one per bin
    touch[[0, -1]] = x[[0, -1]] - 1e-9 * step  # both ends may be atoms: stay just below them
    p, q = pair.tails(touch)
    dots = p - np.exp(x) * q  # every bin's tangent at its right end,
    dots[:-1] = np.minimum(dots[:-1], p[1:] - np.exp(x[:-1]) * q[1:])  # and the next one's at its left
    dots[-1] = pair.infinity_mass
    sunk = np.flatnonzero(dots < pair.infinity_mass)  # here a tangent lies below what is at infinity:
    end = int(sunk[0]) - 1 if sunk.size else dots.size - 1  # from here on count nothing else
    dots[end] = pair.infinity_mass
    tail = np.append(_chords(dots[: end + 1], step), pair.infinity_mass)
    width = np.exp(x[0] - x[1 : end + 1])
    width = np.append(width, width[-1] / np.expm1(step))
    tail = np.minimum(_falling(tail, width), p[0])
    return Lattice(step, first, -np.diff(tail, prepend=p[0]), pair.infinity_mass)


def _falling(values: Floats, weights: Floats) -> Floats:
    """The non-increasing sequence nearest to `values`: neighbours that rise are pooled into their mean."""
    pools: list[tuple[float, float, int]] = []  # mean, weight, length
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        length = 1
        while pools and pools[-1][0] < value:
            mean, heft, more = pools.pop()
            value = (mean * heft + value * weight) / (heft + weight)
            weight, length = heft + weight, length + more
        pools.append((value, weight, length))
    return np.repeat([pool[0] for pool in pools], [pool[2] for pool in pools])


def rounded(pair: Pair, step: float, first: int, last: int, direction: str) -> Lattice:
    """Naive rounding: up is an upper bound, down a lower bound, both off by step/2 per step; nearest is neither."""
    offset = {"up": -step, "down": 0.0, "nearest": -step / 2}[direction]
    edges = np.arange(first, last + 2) * step + offset
    masses = np.where(edges[1:] > 0, -np.diff(pair.tails(edges)[0]), np.diff(pair.cotails(edges)[0]))
    masses[0] += 0.0 if direction == "down" else float(pair.cotails(edges[0])[0])
    beyond = float(pair.tails(edges[-1])[0])
    if direction == "up":
        return Lattice(step, first, masses, beyond)
    masses[-1] += beyond - pair.infinity_mass
    return Lattice(step, first, masses, pair.infinity_mass)


def mean_preserving(pair: Pair, step: float, first: int, last: int) -> Lattice:
    """Round to the nearest lattice point, then shift the lattice so that the mean is kept (Gopi et al. 2021).

    The mean needs the tail between lattice points: three Gauss-Legendre nodes a bin, so the pair must have no atoms.
    """
    lattice = rounded(pair, step, first, last, "nearest")
    edges = np.arange(first, last + 2) * step - step / 2
    nodes, weights = np.polynomial.legendre.leggauss(3)
    inside = edges[:-1, None] + step * (nodes + 1) / 2
    right = (edges[1:] > 0)[
        :, None
    ]  # left of 0 use the tail minus 1, which is small; the constant cancels per bin
    tail = np.where(right, pair.tails(inside)[0], -pair.cotails(inside)[0])
    ends = np.stack([edges[:-1], edges[1:]], axis=1)
    ends = np.where(right, pair.tails(ends)[0], -pair.cotails(ends)[0])
    moved = step / 2 * (tail @ weights - ends.sum(axis=1))
    return replace(lattice, shift=float(moved.sum() / lattice.masses.sum()))


def coupling(step: float, count: int, failure: float) -> float:
    """Mean-preserving rounding moves a sum of `count` losses by more than this with probability <= `failure`.

    Each rounding error has mean 0 and range `step` (Hoeffding): delta(eps) <= delta'(eps - this) + failure.
    """
    return step * np.sqrt(count / 2 * np.log(2 / failure))
