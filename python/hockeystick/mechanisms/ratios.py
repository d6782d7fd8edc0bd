"""From masses that a caller gives to atoms: exact totals, losses without cancellation, fewer atoms where there are many.

docs/mechanisms/pairs.md says which pair is accounted for given numbers, and proves the bounds for fewer atoms.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np

from .._base.bounds import Bounds
from .._base.types import Array
from .._base.validation import ParameterError
from .atoms import MAX_ATOMS, Atoms, Bracket

ROUNDING = 1e-12
"""*Limit*: how far a sum of probabilities may be from 1."""

LOSS_ERROR = 16.0
"""proof: `log_ratio` is off by at most this many units of 2^-53, relatively (docs/mechanisms/pairs.md, "Rounding")."""

_TOTAL = 16 * 2.0**-53
"""proof: what Q's masses may be from 1 while they count as summing to 1, but for `hidden` (docs/mechanisms/pairs.md, "Privacy loss distributions")."""

_REST_ERROR = 16 * 2.0**-53
"""proof: relative error of each p (1 - e^-loss), merged and completed masses included (docs/mechanisms/pairs.md, "Rounding")."""


def lacking(values: list[float]) -> list[float]:
    """1 - sum(values) exactly, as a sum of doubles, the largest first."""
    parts: list[float] = []
    terms = [1.0, *(-value for value in values)]
    while (part := math.fsum(terms)) != 0.0:
        parts.append(part)
        terms.append(-part)
    return parts


def completed(values: Array, beside: Array) -> tuple[int, Fraction]:
    """Which of ``values`` stands for what the others leave of 1, and that number: the largest; among several, where ``beside`` is largest."""
    most = np.flatnonzero(values == values.max())
    at = int(most[np.argmax(beside[most])])
    return at, Fraction(float(values[at])) + sum(map(Fraction, lacking(values.tolist())))


def log_ratio(p: Array, q: Array) -> Array:
    """ln p/q of positive doubles, with a relative error of at most `LOSS_ERROR` units of round-off."""
    near = (p <= 2.0 * q) & (q <= 2.0 * p)
    # The difference of neighbours is exact, and so are exponents.
    close = np.log1p((p - q) / np.where(near, q, 1.0), where=near, out=np.zeros_like(p))
    (p_part, p_power), (q_part, q_power) = np.frexp(p), np.frexp(q)
    return np.where(near, close, np.log(p_part / q_part) + (p_power - q_power) * math.log(2.0))


def _log_of(ratio: Fraction) -> float:
    if Fraction(1, 2) <= ratio <= 2:
        return math.log1p(float(ratio - 1))
    bits = ratio.numerator.bit_length() - ratio.denominator.bit_length()
    scaled = ratio / 2**bits if bits >= 0 else ratio * 2**-bits
    return math.log(float(scaled)) + bits * math.log(2.0)


def from_masses(p: Array, q: Array) -> Atoms:
    """The pair of two probability vectors: losses ln p/q, equal ones merged."""
    at_p, exact_p = completed(p, q)
    at_q, exact_q = completed(q, p)
    p, q = p.copy(), q.copy()
    p[at_p], q[at_q] = float(exact_p), float(exact_q)
    finite = (p > 0.0) & (q > 0.0)
    places = np.flatnonzero(finite)
    losses = log_ratio(p[finite], q[finite])
    for at in {at_p, at_q}:
        if finite[at]:
            top = exact_p if at == at_p else Fraction(float(p[at]))
            bottom = exact_q if at == at_q else Fraction(float(q[at]))
            losses[np.searchsorted(places, at)] = _log_of(top / bottom)
    shown, hidden = math.fsum(p[q == 0.0]), math.fsum(q[p == 0.0])
    if not len(losses):
        return Atoms(np.zeros(1), np.zeros(1), np.zeros(1), 1.0, q_infinity=1.0)
    losses, p, q = _merged(losses, p[finite], q[finite])
    return Atoms(losses, p, q, shown, q_infinity=hidden, loss_error=LOSS_ERROR)


def from_losses(losses: Array, p: Array, p_infinity: float) -> Atoms:
    """The pair of a privacy-loss distribution: Q-masses p e^-loss, and what they lack to 1 where P has none."""
    missing = sum(map(Fraction, lacking([*p.tolist(), p_infinity])))
    p = p.copy()
    if len(p) and p.max() >= p_infinity:
        at = int(np.argmax(p))
        p[at] = float(Fraction(float(p[at])) + missing)
    else:
        p_infinity = float(Fraction(p_infinity) + missing)
    losses, p = losses[p > 0.0], p[p > 0.0]
    if not len(losses):
        return Atoms(np.zeros(1), np.zeros(1), np.zeros(1), 1.0, q_infinity=1.0)
    losses, p, _ = _merged(losses, p, p)
    q = q_masses(losses, p)
    total = math.fsum(q)
    if not total <= 1.0 + ROUNDING:
        raise ParameterError(
            f"losses: the sum of probabilities * exp(-losses) must be at most 1 (to within {ROUNDING:g}), as it is the "
            f"total mass of the other distribution; here it is {total!r}"
        )
    if total > 1.0 + _TOTAL:
        losses = np.nextafter(losses + math.log(total), math.inf)
        losses, p, _ = _merged(losses, p, p)
        q = q_masses(losses, p)
    rest_q = 1.0 - math.fsum(q)
    hidden = rest_q if rest_q > _TOTAL else 0.0
    return Atoms(losses, p, q, p_infinity, q_infinity=hidden, loss_error=0.0, total_is_rounded=True)


def q_masses(losses: Array, p: Array) -> Array:
    """p e^-loss; 0 where it underflows, inf where it overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        q = p * np.exp(-losses)
        half = np.exp(-0.5 * losses)
        # Either factor alone may be out of range.
        return np.where(np.abs(losses) < 700.0, q, (p * half) * half)


def reversed_bracket(atoms: Atoms) -> Bracket:
    """(Q, P), whose mass at +inf is known in an interval only where it is what masses p e^-loss lack to 1."""
    back = Atoms(
        -atoms.losses[::-1],
        atoms.q[::-1].copy(),
        atoms.p[::-1].copy(),
        float(atoms.q_infinity or 0.0),
        q_infinity=atoms.p_infinity,
        loss_error=atoms.loss_error,
        total_is_rounded=atoms.total_is_rounded,
    )
    if not atoms.total_is_rounded:
        return fewer(back)
    low, high = hidden(atoms)
    above = fewer(replace(back, p_infinity=high))
    if low == high:
        return above
    below = fewer(replace(back, p_infinity=low))
    return Bracket(above.upper, below.lower or below.upper)


def hidden(atoms: Atoms) -> Bounds:
    """What Q's masses p e^-loss lack to 1: at most, for the doubles as given; at least, also for what they may have been rounded from."""
    losses, p = atoms.losses, atoms.p
    # P's masses sum to 1, so what Q's lack is the sum of the differences: it rounds relatively to these, and not to 1.
    with np.errstate(over="ignore", invalid="ignore"):
        lost = np.where(np.abs(losses) < 700.0, p * -np.expm1(-losses), p - q_masses(losses, p))
    rest = math.fsum([*lost.tolist(), atoms.p_infinity])
    size = math.fsum(np.abs(lost).tolist()) + atoms.p_infinity
    unsure = _REST_ERROR * size + len(losses) * 5e-324
    # Losses and probabilities that are off by half a unit of the last place move the rest by a quarter of this.
    given = 2.0**-51 * (size + math.fsum((q_masses(losses, p) * np.abs(losses)).tolist()))
    return Bounds(max(0.0, rest - unsure - given), min(1.0, max(0.0, rest + unsure)))


def fewer(atoms: Atoms) -> Bracket:
    """The pair between two with at most 2 `MAX_ATOMS` atoms (docs/mechanisms/pairs.md, "Many atoms")."""
    if len(atoms.losses) <= MAX_ATOMS:
        return Bracket(atoms)
    anchors = _anchors(atoms.losses)
    return Bracket(_split(atoms, anchors), _joined(atoms, anchors))


def _anchors(losses: Array) -> Array:
    """Every so many atoms, and the first one in each of equal cells between the outermost losses."""
    n = len(losses)
    cells = np.searchsorted(losses, np.linspace(losses[0], losses[-1], MAX_ATOMS // 2))
    spaced = np.arange(0, n, -(-2 * n // MAX_ATOMS))
    return np.unique(np.concatenate([spaced, np.minimum(cells, n - 1), [n - 1]]))


def _split(atoms: Atoms, anchors: Array) -> Atoms:
    """Each atom between two anchors on both of them, its P-mass and no more than its Q-mass kept."""
    u = 2.0**-53
    losses = atoms.losses
    # What underflowed has lost at most a few units of the smallest double.
    p = np.where(atoms.p < 1e-300, atoms.p + 4 * 5e-324, atoms.p)
    left = np.searchsorted(anchors, np.arange(len(losses)), "right") - 1
    left = np.minimum(left, len(anchors) - 2)
    low, high = losses[anchors[left]], losses[anchors[left + 1]]
    # As if every loss was larger than it can be.
    raised = losses + 4.0 * LOSS_ERROR * u * np.abs(losses)
    with np.errstate(over="ignore", invalid="ignore"):
        up = np.expm1(np.minimum(0.0, low - raised)) / np.expm1(low - high)
    up = np.clip(up + 16.0 * u, 0.0, 1.0)
    up[anchors[:-1]], up[anchors[-1]] = 0.0, 1.0
    raised_p, kept_p = p * up, p * (1.0 - up)
    starts = np.append(anchors[:-1], len(losses))
    out = np.zeros(len(anchors))
    out[:-1] += _sums(kept_p, starts)
    out[1:] += _sums(raised_p, starts)
    q = q_masses(losses[anchors], out)
    rest = max(0.0, 1.0 - math.fsum(q))
    return replace(
        atoms,
        losses=losses[anchors],
        p=out,
        q=q,
        q_infinity=rest,
        loss_error=LOSS_ERROR,
        total_is_rounded=True,
    )


def _joined(atoms: Atoms, anchors: Array) -> Atoms:
    """An anchor and the atoms up to the next are one outcome."""
    starts = np.append(anchors, len(atoms.losses))
    p, q = _sums(atoms.p, starts), _sums(atoms.q, starts)
    # Moved down by more than the sums round.
    known = (p > 0.0) & (q > 0.0)
    losses = np.where(
        known, log_ratio(np.where(known, p, 1.0), np.where(known, q, 1.0)), atoms.losses[anchors]
    )
    losses = losses - 32.0 * 2.0**-53
    losses = np.minimum.accumulate(losses[::-1])[::-1]
    losses, p, q = _merged(losses, p, q)
    return replace(atoms, losses=losses, p=p, q=q, loss_error=LOSS_ERROR, total_is_rounded=True)


def _sums(values: Array, starts: Array) -> Array:
    """Sums over [starts[i], starts[i+1]), rounded once."""
    listed, places = values.tolist(), starts.tolist()
    return np.array([math.fsum(listed[a:b]) for a, b in itertools.pairwise(places)])


def _merged(losses: Array, p: Array, q: Array) -> tuple[Array, Array, Array]:
    """Sorted by loss, equal losses being one atom."""
    order = np.argsort(losses, kind="stable")
    losses, p, q = losses[order], p[order], q[order]
    starts = np.flatnonzero(np.append(True, losses[1:] > losses[:-1]))
    if len(starts) == len(losses):
        return losses, p, q
    ends = np.append(starts, len(losses))
    return losses[starts], _sums(p, ends), _sums(q, ends)
