"""What the tallies of a Monte Carlo estimate prove: docs/accounting/certificates.md, "Monte Carlo estimates"."""

from __future__ import annotations

import math
from fractions import Fraction

from flint import arb, ctx

from .document import Fields, Rejected
from .pairs import Ball

_UNIT, _POINTS = 1 << 32, 642  # *format*: of laws of values, as in montecarlo/empirical.py
_ALONE = ("add", "remove", "replace_one")  # adjacencies that are one direction; others are the worse of two
_UNCHECKED = (
    "that the blocks of this seed hold these values: the same call of estimate_delta draws them again, bit for bit",
    "that blocks, method and bets were fixed before a value was seen",
    "that no case of the mechanism is left out, where users of fewer examples are no safer",
    "that no value exceeds its bound (largest, scale), and what round-off adds (resolution, extra)",
)


def check_samples(certificate: Fields) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What was checked and what was not: delta is at most the claim but with the stated probability over the samples."""
    ctx.prec = 256
    for name in ("format", "made_by"):
        certificate.any(name)
    adjacency = certificate.text("adjacency", *_ALONE, "add_or_remove", "zero_out")
    epsilon, seed = certificate.real("epsilon", 0.0, 1e6), certificate.integer("seed", 0, 2**63 - 1)
    delta, failure = certificate.real("delta", 0.0, 1.0), certificate.real("failure_probability", 0.0, 1.0)
    checked, spent = [], arb(0)
    shown: dict[tuple[str, int], str] = {}
    for each in certificate.objects("directions", least=1):
        direction = each.text("direction", *_ALONE)
        case = each.integer("case", 0, 10_000)
        place = f"direction {direction}, case {case}"
        bound, method = each.real("delta", 0.0, 1.0), each.text("method", "betting", "mean")
        if bound > delta:
            raise Rejected(f"{place}: delta is only shown to be at most {bound!r}")
        count, drawn, unit = _tally(each, direction, epsilon, seed)
        share = arb(each.real("failure_probability", 0.0, 1.0))
        if (direction, case) in shown or any(c == case and what != drawn for (_, c), what in shown.items()):
            raise Rejected(f"{place}: shown twice, or of another mechanism than the other direction")
        enough = _is_enough(method, each, count, bound, share, unit)
        if not bool(share > 0) or not enough:
            raise Rejected(f"{place}: the tally is not evidence enough for {bound!r}")
        spent += share
        checked.append(f"{place}: {count} values of seed {seed} prove delta <= {bound!r}, by {method}")
        each.finished()
        shown[direction, case] = drawn
    certificate.finished()
    if {direction for direction, _ in shown} != ({adjacency} if adjacency in _ALONE else {"add", "remove"}):
        raise Rejected(f"{adjacency} asks about other directions")
    if not bool(spent <= arb(failure)):
        raise Rejected("the probabilities of failure are more than is stated")
    return (*checked, f"({epsilon!r}, {delta!r}), wrong with probability at most {failure!r}"), _UNCHECKED


def _is_enough(method: str, each: Fields, count: int, bound: float, share: arb, unit: float | None) -> bool:
    """Whether the tally proves delta <= ``bound``, of which 1 needs no proof."""
    passed = (
        _mean(each, count, arb(bound), share)
        if method == "mean"
        else _betting(each, count, arb(bound), share, unit)
    )
    return passed or bound == 1.0


def _tally(each: Fields, direction: str, epsilon: float, seed: int) -> tuple[int, str, float | None]:
    """The number of values, of what, and ln of their unit if they were drawn in one, after a look at the key of the run."""
    blocks, key = each.integer("blocks", 1, 2**53), each.object("key")
    size = key.integer("block_size", 1, 2**53)
    if (
        key.integer("seed", 0, 2**63 - 1) != seed
        or key.text("direction") != direction
        or key.text("epsilon") != repr(epsilon)
    ):
        raise Rejected(f"{key.place}: a tally of another seed, direction or epsilon")
    drawn = repr([key.any(name) for name in ("library", "mechanism", "digest", "composed_with")])
    unit = None
    if key.holds("log_scale"):
        key.text("proposal")
        unit = _number(key.text("log_scale"))
    key.finished()
    return blocks * size, drawn, unit


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise Rejected(f"{text!r} is no number")
    return value


def _whole(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        raise Rejected(f"{text!r} is no hexadecimal number") from None


def _mean(each: Fields, count: int, bound: Ball, failure: Ball) -> bool:
    """Chernoff's bound: n KL(mean || bound) >= ln 1/q, for values in [0, largest]."""
    total, most = _whole(each.text("total")), each.real("largest", 0.0, 1.0)
    if not 0 <= total <= count * 2**1074 * Fraction(most):
        raise Rejected(f"{each.place}: its total is not that of {count} values of at most {most!r}")
    largest = arb(most)
    mean, tested = arb(total) / arb(2) ** 1074 / count / largest, bound / largest
    if bool(tested >= 1):
        return True
    if not bool(mean < tested):
        return False
    evidence = (1 - mean) * ((1 - mean) / (1 - tested)).log()
    if total:
        evidence += mean * (mean / tested).log()
    return bool(count * evidence >= -failure.log())


def _betting(each: Fields, count: int, bound: Ball, failure: Ball, unit: float | None) -> bool:
    """The capital of bets against "the mean is at least ``mean``", on the empirical law, reaches 1/q."""
    masses = {i: _whole(mass) for i, mass in enumerate(each.texts("masses", _POINTS))}
    bets = [(arb(share), arb(weight)) for share, weight in each.pairs("bets", 0.0, 1.0)]
    scale = _scale(each, unit)
    resolution, extra = (arb(each.real(name, 0.0, 1e9)) for name in ("resolution", "extra"))
    mean = arb(each.real("mean", 0.0, 1.0))
    if min(masses.values()) < 0 or sum(masses.values()) != count * _UNIT:
        raise Rejected(f"{each.place}: the masses are not those of {count} values")
    if not bool(scale.exp() * (mean + resolution) + extra <= bound):
        return False
    # Spreading values onto the grid moves their mean by less than this (docs/montecarlo/means.md).
    mean = mean * (1 - arb(2) ** -36) - arb(2) ** -72
    seen = [(_point(i), arb(mass) / _UNIT) for i, mass in masses.items() if mass]
    capital, staked = arb(0), arb(0)
    for share, weight in bets:
        factors = [(1 + share * (mean - x) / (1 - mean), n) for x, n in seen]
        staked += weight
        if all(bool(factor > 0) for factor, _ in factors):
            capital += weight * sum((n * factor.log() for factor, n in factors), arb(0)).exp()
    return bool(capital >= staked.max(arb(1)) / failure)


def _scale(each: Fields, unit: float | None) -> Ball:
    """ln of what a value of 1 stands for: at least what the key of the run says."""
    scale = each.real("scale", -1e9, 1e9)
    if unit is None or scale < unit:
        raise Rejected(f"{each.place}: the scale is less than the unit in which values were drawn")
    return arb(scale)


def _point(index: int) -> Ball:
    """0, then 16 points in each octave from 2^-40 on, then 1."""
    octave, place = divmod(index - 1, 16)
    return arb(0) if index == 0 else (1 + arb(place) / 16) * arb(2) ** (octave - 40)
