"""The best of several runs, as in the tuning of hyperparameters: how many, and the bound (docs/accounting/selection.md proves it)."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .. import _core
from .._base.bounds import exactly
from .._base.randomness import Seed, derive_key, resolve_seed
from .._base.types import Array
from .._base.validation import ParameterError, choice, instance, integer, real, shown
from .adjacency import directions
from .curves import FURTHEST, Curve
from .steps import KINDS, Process, Release, Words
from .whole import OfCurve, curve_of

LAWS = ("fixed", "poisson", "negative_binomial")
_NEVER_NONE = 600.0
"""*Speed*: where K = 0, which truncation leaves out, had the probability e^-600 there is nothing to leave out."""
_RANKS = 40_000
"""speed: into how many bins the ranks of outcomes are cut; each bin is bounded from both ends."""
_LOGITS = 45.0
"""speed: the ranks are followed to 1 - e^-45 and e^-45; what lies beyond is in the last bins."""
_RATIOS = 600
"""speed: at how many ratios y = dQ/dP the envelope is evaluated."""
_FARTHEST_RATIO = 50.0
"""speed: ranks that gain more than this in ln dP/dQ are charged their whole mass."""
_CAPS = 0.6 ** np.arange(24)
"""speed: caps of the weights, of which the best one counts, in units of the largest weight."""
_SPREADS = 250
"""speed: how many losses are tried as the one beyond which outcomes are charged alone."""
_NODES = 500
"""speed: points of the curve."""
_LOST = 1e-318
"""proof: more than what underflows in the sums over bins, each term of which may lose 5e-324: of outcomes that are hardly ever the best, all."""


@dataclass(frozen=True)
class Repetitions:
    """The law of the number K of runs, drawn independently of the data; use the constructors by name.

    ``mean`` is E[K] in [1, 10^6] (Poisson: above 0; fixed: an integer; for shapes next to -1 less than that, where gamma would be below
    e^-690), ``shape`` eta > -1 of the truncated negative binomial law Pr[K = k] proportional to (1 - gamma)^k prod_{l<k} (l + eta)/(l + 1), k >= 1: 1 is geometric, 0 logarithmic.
    With Poisson K = 0 is possible, and nothing is released then.

    >>> Repetitions.geometric(mean=10).gamma
    0.1
    >>> Repetitions.fixed(3).draw()
    3
    """

    law: str
    mean: float
    shape: float = 1.0

    def __post_init__(self) -> None:
        choice("law", self.law, LAWS)
        least = 0.0 if self.law == "poisson" else 1.0
        mean = real("mean", self.mean, least, 1e6, open_low=self.law == "poisson")
        if self.law == "fixed" and mean != int(mean):
            raise ParameterError(f"mean = {mean!r}: must be an integer for a fixed number of runs")
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "shape", real("shape", self.shape, -1.0, 1e3, open_low=True))

    @classmethod
    def fixed(cls, count: int) -> Repetitions:
        """K = count: the runs cost nearly what their composition costs."""
        return cls("fixed", float(integer("count", count, 1, 10**6)))

    @classmethod
    def geometric(cls, mean: float) -> Repetitions:
        """Pr[K = k] = gamma (1 - gamma)^(k-1), gamma = 1/mean."""
        return cls("negative_binomial", mean, 1.0)

    @classmethod
    def logarithmic(cls, mean: float) -> Repetitions:
        """Pr[K = k] proportional to (1 - gamma)^k / k."""
        return cls("negative_binomial", mean, 0.0)

    @classmethod
    def negative_binomial(cls, mean: float, shape: float) -> Repetitions:
        """The truncated negative binomial law with this mean and shape."""
        return cls("negative_binomial", mean, shape)

    @classmethod
    def poisson(cls, mean: float) -> Repetitions:
        """Pr[K = k] = e^-mean mean^k / k!, K = 0 included."""
        return cls("poisson", mean)

    @cached_property
    def gamma(self) -> float:
        """The parameter of the truncated negative binomial law that has this mean."""
        if self.law != "negative_binomial" or self.mean == 1.0:
            return 1.0
        if self.shape == 1.0:
            return 1.0 / self.mean
        low, high = -60.0 * max(1.0, 1.0 / (1.0 + self.shape)), 0.0
        low = max(low, -690.0)
        for _ in range(200):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if _mean(self.shape, middle) > self.mean else (low, middle)
        return math.exp(high)

    def derivative(self, below: Array, above: Array) -> Array:
        """E[K u^(K-1)] at u = ``below`` = 1 - ``above``: how the best of K weighs an outcome at this rank."""
        if self.law == "fixed":
            with np.errstate(divide="ignore"):
                log_u = np.where(above < 0.5, np.log1p(-above), np.log(below))
            exponent = (self.mean - 1.0) * log_u if self.mean > 1.0 else np.zeros_like(below)
            return np.asarray(self.mean * np.exp(exponent))
        if self.law == "poisson":
            return np.asarray(self.mean * np.exp(-self.mean * above))
        gamma = self.gamma
        mean = self.mean if self.mean == 1.0 else _mean(self.shape, math.log(gamma))
        return np.asarray(mean * (gamma / (gamma + (1.0 - gamma) * above)) ** (self.shape + 1.0))

    def largest_loss(self, loss: float) -> float:
        """At most the largest loss of the best of K runs, none of which loses more than ``loss``.

        Weights of ranks u and v in [0, 1], u <= e^loss v and 1 - u <= e^loss (1 - v), differ by e^{(K - 1) loss} for a fixed number of runs,
        e^{(1 + shape) loss} (Papernot and Steinke 2022) and e^{mean (1 - e^-loss)}.
        """
        loss = real("loss", loss, 0.0, allow_inf=True)
        if self.law == "poisson":
            return loss - self.mean * math.expm1(-loss)
        return loss * (self.mean if self.law == "fixed" else 2.0 + self.shape)

    def draw(self, seed: Seed = None) -> int:
        """A number of runs; ``seed`` None takes the operating system's randomness."""
        source = np.random.default_rng(
            int.from_bytes(derive_key(resolve_seed(seed), "repetitions"), "little")
        )
        if self.law == "poisson":
            return int(source.poisson(self.mean))
        if self.law == "fixed" or self.mean == 1.0:
            return int(self.mean)
        gamma, eta, count = self.gamma, self.shape, 1
        if -eta * math.log(gamma) > _NEVER_NONE:
            return max(1, int(source.negative_binomial(eta, gamma)))
        first = (
            (1.0 - gamma) / -math.log(gamma)
            if eta == 0.0
            else eta * (1.0 - gamma) / math.expm1(-eta * math.log(gamma))
        )
        left = float(source.random()) - first
        while left > 0.0 and first > 0.0:
            first *= (1.0 - gamma) * (count + eta) / (count + 1.0)
            left, count = left - first, count + 1
        return count


def _mean(shape: float, log_gamma: float) -> float:
    """E[K] of the truncated negative binomial law."""
    gamma = math.exp(log_gamma)
    if log_gamma == 0.0:
        return 1.0
    ratio = -log_gamma if shape == 0.0 else -math.expm1(shape * log_gamma) / shape
    return -math.expm1(log_gamma) / (gamma * ratio)


KINDS["Repetitions"] = Repetitions


def checked_tuning(tuning: object) -> Repetitions | str | None:
    """What may be said of other runs on the same data: their law, "none", or nothing."""
    if tuning is None or isinstance(tuning, Repetitions) or (isinstance(tuning, str) and tuning == "none"):
        return tuning
    raise ParameterError(f"tuning = {shown(tuning)}: must be None, 'none' or Repetitions")


@dataclass(frozen=True)
class PrivateSelection(OfCurve):
    """The best of K runs of a release by a score, and nothing else of them; K is drawn from ``repetitions``.

    Each run is ``base`` with fresh randomness, on the same data. Its output has a rank in an order that does not depend on the data (a score
    that the run itself releases, ties broken at random); only the output of the highest rank is seen, not K, not the others.
    A random choice of hyperparameters is part of a run: where runs of different kinds are chosen among at random, ``base`` is
    their `Mixture`. Accounted from the certified curve of ``base`` alone (docs/accounting/selection.md), at every epsilon no more than
    Papernot and Steinke 2022 or Koskela, Redberg and Wang 2024 give from it (from losses of about .01 on: below, the bins of ranks show, but
    the largest loss of pure DP is theirs). A step like any other; both directions are the worse one.

    >>> from hockeystick import Gaussian, account
    >>> tuned = PrivateSelection(Gaussian(4.0), Repetitions.geometric(mean=20))
    >>> account(Gaussian(4.0)).epsilon(1e-6) < account(tuned).epsilon(1e-6) < 3 * account(Gaussian(4.0)).epsilon(1e-6)
    True
    """

    base: Release
    repetitions: Repetitions

    def __post_init__(self) -> None:
        super().__post_init__()
        instance("repetitions", self.repetitions, Repetitions)

    @property
    def _process(self) -> Process:
        return self.base.as_process()

    def _curve(self, adjacency: str) -> Curve:
        return _curve(self, adjacency)

    def words(self, adjacency: str) -> Words:
        found, mean = self._process.words(adjacency), exactly(self.repetitions.mean)
        law = self.repetitions.law.replace("_", " ")
        return found._replace(
            sampler=found.sampler
            and f"the best of a number of runs, its law {law} with mean {mean}, each with {found.sampler}",
            reference="docs/accounting/selection.md (private selection)",
        )


@functools.lru_cache(maxsize=16)
def _curve(selection: PrivateSelection, adjacency: str) -> Curve:
    process, repetitions = selection._process, selection.repetitions
    found = selection_curve(curve_of(process, adjacency), repetitions)
    most = _core.Profile(directions(process, adjacency)).epsilon_bounds(0.0).upper
    end = math.nextafter(repetitions.largest_loss(most) * (1.0 + 1e-15), math.inf)
    if end <= FURTHEST:
        found = found.least(Curve.of_symmetric(np.array([end]), np.zeros(1)))
    if repetitions.law != "fixed":
        return found
    # The best of a fixed number of runs is a function of all of them.
    return found.least(curve_of(process * int(repetitions.mean), adjacency))


def selection_curve(curve: Curve, repetitions: Repetitions) -> Curve:
    """A curve of the best of K runs of anything that has ``curve`` in both directions (docs/accounting/selection.md)."""
    lines, widths = _lines(curve, repetitions)
    extra, ratios, envelopes = _envelopes(*lines, widths)
    # Chords of the envelope: sum over k of weights_k (y_k - y)_+, each an E[(1 - y/y_k)_+] = delta(-ln y_k).
    slopes = -np.diff(envelopes, axis=1) / np.diff(ratios)
    weights = np.maximum(0.0, -np.diff(slopes, axis=1, append=0.0)) * ratios[1:]
    end = min(FURTHEST, float(curve.epsilon[-1] + np.log(ratios[-1])))
    nodes = end * np.linspace(0.0, 1.0, _NODES) ** 1.5
    delta = np.concatenate(
        [_expected(curve, node, ratios, weights, extra) for node in np.array_split(nodes, 20)]
    )
    delta = np.minimum(delta, _spread(curve, nodes, *lines, widths)) + _LOST
    return Curve.of_symmetric(nodes, np.minimum(delta, 1.0))


def _expected(curve: Curve, nodes: Array, ratios: Array, weights: Array, extra: Array) -> Array:
    """min over caps of extra + sum of weights_k delta(epsilon - ln y_k)."""
    known = curve(nodes[:, None] - np.log(ratios[1:]))
    return np.asarray((known @ weights.T + extra).min(axis=1) * (1.0 + 1e-11))


def _spread(curve: Curve, nodes: Array, a: Array, b: Array, widths: Array) -> Array:
    """min over t of the integral over ranks of (a - e^(epsilon - t) b)_+ and what losses above t add (section 4)."""
    largest = float(a[0])
    starts = np.arange(0, len(a), 8)  # speed: broader bins do for it
    a, b, widths = a[starts], np.minimum.reduceat(b, starts), np.add.reduceat(widths, starts)
    losses = np.linspace(0.0, float(curve.epsilon[-1]), _SPREADS)
    shifts = np.linspace(-losses[-1], float(nodes[-1]), 2 * _SPREADS)
    integrals = np.array([(np.maximum(0.0, a - math.exp(s) * b) * widths).sum() for s in shifts])
    # The integral falls with the shift: the one of the shift before is more.
    before = np.searchsorted(shifts, nodes[:, None] - losses, side="right") - 1
    more = largest * np.exp(nodes[:, None] - losses) * curve(losses)
    return np.asarray((integrals[np.maximum(before, 0)] + more).min(axis=1) * (1.0 + 1e-10))


def _lines(curve: Curve, repetitions: Repetitions) -> tuple[tuple[Array, Array], Array]:
    """(a, b) for bins of ranks from the highest down, and the bins' widths: weights at most a under P, at least b under Q."""
    bulk = np.linspace(-15.0, 15.0, _RANKS)  # speed: where the bins are narrow
    tail = np.linspace(15.0, _LOGITS, _RANKS // 10)[1:]
    z = np.concatenate([[-np.inf], -tail[::-1], bulk, tail, [np.inf]])
    with np.errstate(over="ignore"):
        above, below = 1.0 / (1.0 + np.exp(-z)), 1.0 / (1.0 + np.exp(z))
    low, high = curve.needed(below), curve.power(above)
    a = repetitions.derivative(below, above)[:-1]
    b = repetitions.derivative(low, np.maximum(above, high))[1:]
    # Powers are rounded by as many units as their exponents are large.
    large = repetitions.shape if repetitions.law == "negative_binomial" else repetitions.mean
    rounding = 1e-12 + 1e-14 * abs(large)
    widths = np.where(above[1:] < 0.5, np.diff(above), -np.diff(below))
    return (a * (1.0 + rounding), b * (1.0 - rounding)), widths


def _envelopes(a: Array, b: Array, widths: Array) -> tuple[Array, Array, Array]:
    """For each cap: what is charged beside the envelope, the ratios y, and max over bins of (min(a, cap) - b y)_+.

    The envelopes are of shape (caps, ratios); the first ratio is 0. Both a and b fall from bin to bin.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.log(a) - np.log(b)
    kept = len(a) - int(np.argmax(((gain < _FARTHEST_RATIO) & (a > 0.0))[::-1]))
    charged = float(a[kept:] @ widths[kept:])
    largest = min(600.0, float(gain[:kept].max())) + 1e-9
    ratios = np.concatenate([[0.0], np.exp(np.linspace(largest - 45.0, largest, _RATIOS))])
    # The bins whose weight is above a cap give, capped, no more than the first bin below it.
    starts = np.searchsorted(-a[:kept], -a[0] * _CAPS)
    starts = np.unique(starts[starts < kept])[::-1]
    extra, rows, best = [], [], np.zeros(_RATIOS + 1)
    for start, stop in zip(starts.tolist(), [kept, *starts.tolist()], strict=False):
        for part in range(start, stop, 128):  # speed: as many as stay in the cache
            here = slice(part, min(part + 128, stop))
            best = np.maximum(best, (a[here, None] - b[here, None] * ratios).max(axis=0))
        excess = float((a[:start] - a[start]) @ widths[:start])
        extra.append((charged + excess) * (1.0 + 1e-10) + float(best[-1]))
        rows.append(best)
    return np.array(extra)[None, :], ratios, np.array(rows)
