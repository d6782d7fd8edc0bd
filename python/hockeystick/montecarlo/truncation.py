"""How much rare truncation adds to delta: b-min-sep sampling with batches that are hardly ever cut down.

All of it in closed form or from a table, by the public counts' law and Renyi divergences (docs/montecarlo/tilted.md, section 8).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import _core
from .._base.binomial import tail
from .._base.gdp import log_delta
from .._base.validation import narrowed
from ..matrix.bandmf import BandMF, Components
from ..matrix.min_sep import TruncatedBMinSep
from ..matrix.schemes import BallsInBins
from ..matrix.strategy import Strategy
from .public_counts import (
    LARGE_COUNT_RISK,
    ROUND_UP,
    cut_probability,
    largest_count,
    meeting_cuts,
    participation_counts,
    participation_probabilities,
    untruncated,
)
from .shown_coins import ShownCoins, ShownCurve, shown_coins
from .tilted import log_moment, orders

_MOST_CUTS = 4
"""Numbers of truncated rounds that are bounded one by one (*speed*)."""
_MILLION = 2e-5
"""ln(1/q) over a million samples (*speed*)."""
_MOST_APART, _MOST_ENTRIES = 512, 2**21
"""Steps between two participations, and these times all steps, with which the moments of truncated rounds are looked at (*speed*)."""
_MOST_MET = (2, 4, 8, 16, 64, 256)
"""Numbers of truncated rounds that Theorem 7 is tried with; any is sound (*speed*)."""


@dataclass(frozen=True)
class Reduction:
    """A truncated mechanism in terms of the one without truncation, ``base``.

    H(P||Q) lies in [``share`` * H_0, H_0 + ``remove``], H_0 that of ``base``; H(Q||P) likewise with ``add``, and it is
    at most ``known_add``. These are of the pair of Corollary D.2, which bounds the mechanism from above; the mechanism itself has at
    most ``add_above`` (docs/montecarlo/tilted.md, Theorems 7a and 7b).
    """

    base: BandMF
    share: float
    remove: float
    add: float
    known_add: float
    add_above: float


def reduction(mechanism: object, epsilon: float) -> Reduction | None:
    """The reduction at ``epsilon``, for a `BandMF` with `TruncatedBMinSep` batches; None for any other."""
    if not isinstance(mechanism, BandMF) or not isinstance(mechanism.scheme, TruncatedBMinSep):
        return None
    scheme = mechanism.scheme
    base = BandMF(mechanism.strategy, untruncated(scheme), mechanism.noise_multiplier)
    if not orders(base):
        return None
    met, cut = meeting_cuts(scheme), cut_probability(scheme, 1)
    none = base.no_participation_log_probability
    remove = add = 1.0
    seen = min(met, _seen(mechanism, epsilon, 1.0))
    if met < 1.0:
        # Theorem 7 for all r, by the largest b_r: that of any participation, or that of a few truncated rounds.
        rho = max(participation_probabilities(untruncated(scheme)))
        moments = {a: log_moment(base, a) for a in orders(base)}
        rest = _beyond(moments, epsilon, -math.expm1(none)) * met
        for m in _MOST_MET:
            rest = min(rest, _beyond(moments, epsilon, m * rho) * met + cut_probability(scheme, m + 1))
        remove = met + rest
        add = met if epsilon >= -none else met + _times_exp(met, epsilon)
        # The moment with one truncated round is at least this; the table takes seconds. An example that hardly
        # ever takes part needs no table.
        peak = (2.0 * float(np.max(mechanism.strategy.column_norms())) / mechanism.noise_multiplier) ** 2
        kept = scheme.max_batch_size / (scheme.max_batch_size + 1)
        few = _has_table(scheme, rho) and cut_probability(scheme, _MOST_CUTS + 1) < remove
        least = max(min(moments.values()), 2.0 * math.log(rho * kept) + peak) if few else math.inf
        if few and least - epsilon - math.log(4.0) < math.log(0.5 * rho):
            remove = min(remove, _by_moments(mechanism, epsilon, moments))
    known = _reverse_bound(mechanism, epsilon, none)
    above = known
    if epsilon >= -none:
        known = min(known, add)
        shown = shown_coins(scheme)
        above = min(
            known, seen, 1.0 if shown is None else shown.add(_distance(base), epsilon, _log_spread(base))
        )
    limit = 1.0 / ROUND_UP
    values = (remove, min(add, known), known, above)
    return Reduction(base, max(0.0, 1.0 - cut), *(min(limit, value) * ROUND_UP for value in values))


def _has_table(scheme: TruncatedBMinSep, rho: float) -> bool:
    """Whether that of `_by_moments` takes no more than seconds and some 60 MB; without it more is added to delta, which is as true."""
    apart = min(scheme.min_sep, scheme.steps)
    return rho > 1e-300 and apart <= _MOST_APART and scheme.steps * apart <= _MOST_ENTRIES


def _times_exp(factor: float, exponent: float) -> float:
    """factor e^exponent, infinite where that may overflow."""
    whole = exponent + math.log(factor) if factor > 0.0 else -math.inf
    return math.exp(whole) * (1.0 + 1e-12) if whole < 700.0 else math.inf


def _log_spread(base: BandMF) -> float:
    """ln E_Q[(P/Q - 1)^2], rounded up."""
    if 2 not in orders(base):
        return math.inf
    moment = log_moment(base, 2) + 1e-10
    return moment + math.log(-math.expm1(-moment)) + 1e-12


def _distance(mechanism: BandMF) -> float:
    """More than max|c_i| / sigma."""
    return float(np.max(mechanism.strategy.column_norms())) / mechanism.noise_multiplier * (1.0 + 1e-9)


def _seen(mechanism: BandMF, epsilon: float, distance: float) -> float:
    """Theorem 7a: E[1_E D(sqrt(j) distance)], j the example's participations, E that one of them is in a truncated round."""
    scheme = narrowed(mechanism.scheme, TruncatedBMinSep)
    chain = untruncated(scheme)
    rho = min(1.0, max(participation_probabilities(chain)) * ROUND_UP)
    norm = distance * _distance(mechanism)
    some = math.fsum(
        j * chance * math.exp(log_delta(max(1e-3, math.sqrt(j) * norm), epsilon)) * ROUND_UP + 1e-300
        for j, chance in participation_counts(chain)
        if j
    )
    return tail(scheme.dataset_size - 1, rho, scheme.max_batch_size).high * some


def _reverse_bound(mechanism: BandMF, epsilon: float, none: float) -> float:
    """Theorem 9: H(Q||P), each number of participations on its own against the part of P without any."""
    scheme = narrowed(mechanism.scheme, TruncatedBMinSep)
    some = -math.expm1(none) * (1.0 + 1e-12)
    if not epsilon > 0.0 or not some > 0.0:
        return min(1.0, some)
    level = none + epsilon + math.log(-math.expm1(-epsilon)) - math.log(some) - 1e-12
    if not level > 0.0:
        return min(1.0, some)
    norm = _distance(mechanism)
    chances = participation_counts(untruncated(scheme))
    return math.fsum(
        chance * math.exp(log_delta(max(1e-3, math.sqrt(j) * norm), level)) * ROUND_UP + 1e-300
        for j, chance in chances
        if j
    )


def _beyond(moments: dict[int, float], epsilon: float, share: float) -> float:
    """g of Theorem 7 for b_r <= share: what the part of b_r in e^epsilon Q costs."""
    if not share < 1.0:
        return math.inf
    rest = math.log1p(-share)
    logs = [moment - (a - 1) * epsilon - a * rest for a, moment in moments.items()]
    return math.exp(min(-rest, *logs))


def _by_moments(mechanism: BandMF, epsilon: float, moments: dict[int, float]) -> float:
    """Theorem 8: what truncation adds to H(P||Q), the better of two bounds for each K."""
    scheme = narrowed(mechanism.scheme, TruncatedBMinSep)
    logs = _core.log_moments_of_cuts(mechanism._described(), _MOST_CUTS)
    rho = max(participation_probabilities(untruncated(scheme)))
    remove = cut_probability(scheme, _MOST_CUTS + 1)
    for k in range(1, _MOST_CUTS + 1):
        # Pr[no participation in a truncated round] >= 1 - k rho.
        rest, chance = 1.0 - k * rho, cut_probability(scheme, k)
        above = float(logs[k]) - epsilon - math.log(4.0 * rest) if rest > 0.0 else 0.0
        met = k * rho * (1.0 + _beyond(moments, epsilon, k * rho))
        remove += chance * min(1.0, math.exp(min(0.0, above)), met)
    return remove


@dataclass(frozen=True)
class TwoMixtures:
    """A mechanism whose Q is a mixture too, in one direction, as importance sampling takes it (docs/montecarlo/replacement.md).

    Truncated: P_r and Q_r given the public counts r, which are drawn first; in the place of S_2 stands U^2 / (M R), U >= P_r for
    all r alike. Of others only direction "replace_one" is.
    """

    mechanism: BandMF
    direction: str
    _known: dict[Components, _core.TiltedSampler] = field(
        default_factory=dict, init=False, repr=False, compare=False, hash=False
    )

    @property
    def law_error(self) -> float:
        """More than the relative error of the probability of one round's count, if counts are drawn."""
        return 4e-12 if self.mechanism.scheme.truncates else 0.0

    def __reduce__(self) -> tuple[type[TwoMixtures], tuple[BandMF, str]]:
        return TwoMixtures, (self.mechanism, self.direction)

    @property
    def strategy(self) -> Strategy:
        return self.mechanism.strategy

    def _described(self) -> _core.MatrixMechanism:
        return self.mechanism._described()

    def _tilted(self, components: Components, cached: bool = True) -> _core.TiltedSampler:
        """The sampler with these components (weight, order, theta, shift)."""
        scheme = self.mechanism.scheme
        most = largest_count(scheme) if isinstance(scheme, TruncatedBMinSep) else 0
        return self.mechanism._tilted_given(self._known, components, cached, most, self.direction)


@dataclass(frozen=True)
class Tilting:
    """What to draw from in one direction of a truncated mechanism: `TwoMixtures`, or the one without truncation.

    delta lies in [``share`` d, d + ``extra``], d that of ``mechanism`` at epsilon + ``shift`` in direction "remove" (of
    `TwoMixtures`: in its own); None if there is no table. ``known``: what delta is at most, without samples.
    With a ``curve``, delta is at most the mean of that curve at epsilon - L, times its mass, and ``extra``.
    """

    mechanism: Any
    extra: float = 0.0
    share: float = 1.0
    known: float = 1.0
    shift: float = 0.0
    curve: ShownCurve | None = None


def tilting(mechanism: object, epsilon: float, direction: str, only_above: bool = False) -> Tilting:
    """How to tilt at ``epsilon``: a `BandMF` with `TruncatedBMinSep` batches; any other mechanism is tilted itself.

    The one without truncation is taken where what truncation adds is less than what a million samples given the
    counts leave open. ``only_above``: nothing but an upper bound, of the mechanism itself, is of interest.
    """
    if direction == "replace_one":
        return _replacement(mechanism, epsilon, only_above)
    found = reduction(mechanism, epsilon)
    if found is None:
        return Tilting(mechanism)
    mechanism = narrowed(mechanism, BandMF)
    given = TwoMixtures(mechanism, direction) if orders(mechanism) else None
    whole = Tilting(given, LARGE_COUNT_RISK, 1.0, found.known_add if direction == "add" else 1.0)
    if direction == "add":
        shift = found.base.no_participation_log_probability
        if only_above and epsilon + shift > 0.0:
            return Tilting(found.base, 0.0, 0.0, found.add_above, shift)
        return whole
    shown = shown_coins(mechanism.scheme) if only_above else None
    extra = found.remove if shown is None else shown.least(_distance(mechanism), epsilon)
    if given is not None:
        reach = given._tilted(((1.0, 2, 1.0, 0.0),)).log_bound(epsilon)
        if reach + math.log(_MILLION) < math.log(max(extra, 1e-300)):
            return whole
    if shown is not None:
        return _shown(found.base, shown, epsilon)
    return Tilting(found.base, extra, found.share, 1.0) if extra < 1.0 else whole


def _shown(base: BandMF, shown: ShownCoins, epsilon: float) -> Tilting:
    """Theorem 7b: in closed form where a million samples leave more open, else averaged."""
    distance, shift = _distance(base), shown.terms[0][2]
    extra = shown.remove(distance, epsilon, _log_spread(base))
    open_ = base._tilted(((1.0, 2, 1.0, 0.0),)).log_bound(epsilon) + math.log(_MILLION)
    if math.log(max(extra, 1e-300)) < open_:
        return Tilting(base, extra, 0.0, 1.0, shift)
    return Tilting(base, shown.rest, 0.0, 1.0, curve=ShownCurve(shown, distance, epsilon))


def _replacement(mechanism: object, epsilon: float, only_above: bool) -> Tilting:
    """How to tilt under "replace_one"; without a bound where an example always takes part."""
    if not isinstance(mechanism, BandMF) or not can_tilt(mechanism, "replace_one"):
        return Tilting(None)
    scheme, whole = mechanism.scheme, TwoMixtures(mechanism, "replace_one")
    if not isinstance(scheme, TruncatedBMinSep):
        return Tilting(whole)
    # Corollary 5 of docs/montecarlo/replacement.md: what rare truncation adds.
    base = BandMF(mechanism.strategy, untruncated(scheme), mechanism.noise_multiplier)
    none, met = base.no_participation_log_probability, meeting_cuts(scheme)
    logs = [log_moment(base, a) - (a - 1) * epsilon - a * none for a in orders(base)]
    seen = min(met, _seen(mechanism, epsilon, 2.0)) if only_above else met
    extra = (seen + _times_exp(met, min(-none, *logs))) * ROUND_UP
    reach = whole._tilted(((1.0, 2, 1.0, 0.0),)).log_bound(epsilon)
    if not extra < min(1.0, math.exp(min(0.0, reach + math.log(_MILLION)))):
        return Tilting(whole, LARGE_COUNT_RISK)
    return Tilting(TwoMixtures(base, "replace_one"), extra, max(0.0, 1.0 - cut_probability(scheme, 1)))


def can_tilt(mechanism: BandMF, adjacency: str = "zero_out") -> bool:
    """Whether there are tables for importance sampling."""
    scheme = mechanism.scheme
    if isinstance(scheme, TruncatedBMinSep):
        base = BandMF(mechanism.strategy, untruncated(scheme), mechanism.noise_multiplier)
        return can_tilt(base, adjacency)
    # Under "replace_one" the probability of no participation is what bounds the values.
    if adjacency == "replace_one" and (
        isinstance(scheme, BallsInBins) or scheme.no_participation_log_probability() == -math.inf
    ):
        return False
    return bool(orders(mechanism))


def is_rare(mechanism: BandMF, delta: float) -> bool:
    """Whether truncation adds less than half of ``delta``, if there is any."""
    return not isinstance(mechanism.scheme, TruncatedBMinSep) or meeting_cuts(mechanism.scheme) < 0.5 * delta
