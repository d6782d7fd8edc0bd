"""An upper bound on delta(epsilon) of a composition of atoms: docs/accounting/certificates.md, "Inversion"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flint import acb, acb_mat, arb

from .pairs import Ball

_ROWS, _COLUMNS = 64, 1024
"""speed: nodes and atoms that are multiplied at a time."""


@dataclass
class Part:
    """One step of a composition and how often it is there: [(loss, mass)], and the mass at +inf."""

    atoms: Sequence[tuple[Ball, Ball]]
    infinite: Ball
    count: int


@dataclass
class Line:
    """The line of integration: Re z = tilt, nodes 2 pi / period apart up to the last one, and what smooths delta."""

    tilt: Ball
    period: Ball
    nodes: int
    smoothing: Ball


def normal_delta(variance: Ball, epsilon: Ball) -> Ball:
    """delta of N(mu, 1) against N(0, 1), mu^2 = ``variance``."""
    if not bool(variance > 0):
        return (1 - epsilon.exp()).max(arb(0))
    mu = variance.sqrt()
    root = arb(2).sqrt()
    left, right = (((epsilon / mu + sign * mu / 2) / root).erfc() / 2 for sign in (-1, 1))
    return left - epsilon.exp() * right


def largest_loss(parts: Sequence[Part]) -> Ball:
    """At least the sum of the largest finite losses."""
    return sum((part.count * _largest(part) for part in parts), arb(0))


def _largest(part: Part) -> Ball:
    most = part.atoms[0][0] if part.atoms else arb(0)
    for x, _ in part.atoms:
        most = most.max(x)
    return most


def infinite_loss(parts: Sequence[Part]) -> Ball:
    """The probability that some loss is infinite."""
    none = arb(1)
    for part in parts:
        none *= (1 - part.infinite) ** part.count
    return 1 - none


def delta_bound(parts: Sequence[Part], variance: Ball, epsilon: Ball, line: Line) -> Ball:
    """At least delta(epsilon) of the parts together with a Gaussian of mu^2 = ``variance``."""
    s, nodes = line.tilt, line.nodes
    blurred = variance + line.smoothing**2
    step = 2 * arb.pi() / line.period
    transforms = [_transform(part.atoms, s, step, nodes + 1) for part in parts]
    total = arb(0)
    size = arb(1)
    for j in range(nodes + 1):
        z = acb(s, step * j)
        term = (blurred / 2 * z * (z + 1) - z * epsilon).exp() / (z * (z + 1))
        for part, transform in zip(parts, transforms, strict=True):
            term *= transform[j] ** part.count
        if j == 0:
            size = term.real * s * (s + 1)
            total = term.real
        else:
            total += 2 * term.real
    last = step * (nodes + 1)
    rest = 2 * size * (-blurred * last**2 / 2).exp() / (step**2 * nodes)
    return infinite_loss(parts) + (total + rest) / line.period


def _transform(atoms: Sequence[tuple[Ball, Ball]], tilt: Ball, step: Ball, count: int) -> list[acb]:
    """sum of mass e^{(tilt + i j step) loss} for j = 0, 1, ..., ``count`` - 1."""
    rows = -(-count // _ROWS)
    total = acb_mat(rows, _ROWS)
    for start in range(0, len(atoms), _COLUMNS):
        some = atoms[start : start + _COLUMNS]
        turns = [acb(0, step * x).exp() for x, _ in some]
        strides = [acb(0, step * _ROWS * x).exp() for x, _ in some]
        total += _powers([acb(m) * (tilt * x).exp() for x, m in some], strides, rows) * (
            _powers([acb(1)] * len(some), turns, _ROWS).transpose()
        )
    return total.entries()[:count]


def _powers(first: list[acb], factors: list[acb], rows: int) -> acb_mat:
    """Row j is first * factors^j: of two earlier powers, as every product widens the balls."""
    powers = [[acb(1)] * len(first), factors]
    for j in range(2, rows):
        powers.append([a * b for a, b in zip(powers[j // 2], powers[j - j // 2], strict=True)])
    entries = [a * b for row in powers[:rows] for a, b in zip(first, row, strict=True)]
    return acb_mat(rows, len(first), entries)
