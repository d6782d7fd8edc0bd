"""What a guarantee means to somebody who is attacked: the best that any attack can do, certified on both sides.

Proofs: docs/accounting/risk.md.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from .._base.bounds import Bounds
from .._base.exclusive import Exclusive
from .._base.types import Array, Numbers
from .._base.validation import real, vector
from .envelope import FIRST_NODES, LAST_NODE, MARGIN, TOLERANCE, Envelope, Objective, line

if TYPE_CHECKING:
    from .profile import PrivacyProfile

_NEARLY_ALL = 0.99
"""speed: a delta that is quickly known to be reached wherever losses are large throughout."""

_NORMAL = 1e-300
"""*Proof*: from here on the margin of a rate is many times the least double."""


class Risk(Exclusive):
    """Bounds on what attacks achieve against one profile; ``profile.risk`` makes it.

    An attack knows everything but whether one record was in the data (under "replace_one" and "zero_out": which of two it
    was). The upper end holds for every attack, whatever it computes and knows; the lower end is reached, by the best test between
    the dominating pair. Threads may share it, forked children may not (`ForkedError`). Under "add_or_remove" it is the worse of an
    attack that detects presence and one that detects absence; under "replace_one" and "zero_out" with two directions, of one whose trade-off curve is the convex hull of both.

    >>> import hockeystick as hs
    >>> risk = hs.account(hs.Gaussian(noise_multiplier=1.0)).risk
    >>> lower, upper = risk.advantage()  # 2 Phi(1/2) - 1
    >>> lower <= 0.3829249225480262 <= upper <= lower * (1 + 1e-6)
    True
    >>> lower, upper = risk.tpr(fpr=0.01)  # Phi(Phi^-1(0.01) + 1)
    >>> lower <= 0.09236224807369394 <= upper <= lower * (1 + 1e-6)
    True
    """

    def __init__(
        self, profile: PrivacyProfile, tolerance: float = TOLERANCE, *, roughly: bool = False
    ) -> None:
        self._profile = profile
        self._roughly = roughly
        self._tolerance = tolerance
        self._found: list[Envelope] = []

    def __repr__(self) -> str:
        return f"Risk({self._profile!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("cannot copy or pickle a Risk: ask the copy's profile.risk")

    @property
    def _envelopes(self) -> list[Envelope]:
        if not self._found and self._roughly:
            self._found += self._profile.overview
        elif not self._found:
            for profile in self._profile.each_direction():
                wide = profile.widest_epsilon()
                if wide > LAST_NODE and profile.epsilon_bounds(_NEARLY_ALL).lower > LAST_NODE:
                    self._found = [_of_nearly_all()]  # the other direction cannot do better than 1
                    break
                self._found.append(Envelope(profile.delta_curve, np.linspace(-wide, wide, FIRST_NODES)))
        return self._found

    def advantage(self) -> Bounds:
        """Most of TPR - FPR, over all thresholds: the total variation distance, delta(0)."""
        return self._profile.advantage_bounds()

    def tpr(self, fpr: float) -> Bounds:
        """Most true positives of an attack with false positive rate ``fpr`` in [0, 1].

        TPR = min over real epsilon of e^epsilon fpr + delta(epsilon) (Dong, Roth and Su 2022, Proposition 6).
        """
        alpha = real("fpr", fpr, 0.0, 1.0)
        if alpha == 1.0:
            return Bounds(1.0, 1.0)
        if alpha == 0.0:
            return self._profile.delta_bounds(math.inf)
        if self.advantage().upper == 0.0:
            return Bounds(alpha, alpha)
        lower, upper = self._worst(line(alpha), alpha)
        # A product that is no normal double is rounded by half of the least one, which its margin may be less than.
        lost = 5e-324 if upper < _NORMAL else 0.0
        return Bounds(max(alpha, lower - lost), upper + lost)

    def reconstruction(self, baseline: float) -> Bounds:
        """Most probability that an attack reconstructs a record, where one without the release does with ``baseline``.

        1 - f(baseline), f the trade-off curve (Hayes, Mahloujifar and Balle 2023, Theorem 2; Kaissis et al. 2023): the
        success of any attack with any notion of success, ``baseline`` being the best that can be had by guessing from what is
        known beforehand.
        """
        return self.tpr(real("baseline", baseline, 0.0, 1.0))

    def precision(self, fpr: float, prior: float) -> Bounds:
        """Most of TP / (TP + FP) of an attack with this ``fpr`` in (0, 1], where ``prior`` in [0, 1] of its targets are members."""
        alpha = real("fpr", fpr, 0.0, 1.0, open_low=True)
        share = Fraction(real("prior", prior, 0.0, 1.0))
        # In fractions: products of small doubles are no doubles.
        right = [share * Fraction(rate) for rate in self.tpr(alpha)]
        lower, upper = (
            float(part / (part + (1 - share) * Fraction(alpha))) if part else 0.0 for part in right
        )
        return Bounds(math.nextafter(lower, 0.0), min(1.0, math.nextafter(upper, 1.0)) if right[1] else 0.0)

    def recall(self, odds: float) -> Bounds:
        """Most members that an attack may name and be right ``odds`` times as often as wrong, one half being members.

        Equally: the largest probability that what is released raises somebody's odds on membership by a factor ``odds`` > 1,
        whatever the prior ones. It is the TPR at which TPR = odds * FPR, min over e^epsilon < odds of
        delta(epsilon) / (1 - e^epsilon / odds).
        """
        top = math.log(real("odds", odds, 1.0, open_low=True))
        # The logarithm is rounded, and the least ratio may lie next to it: more odds for the lower end, less for the upper.
        most, least = (self._recall(top * (1.0 + off)) for off in (-4e-16, 4e-16))
        return Bounds(min(least.lower, most.upper), most.upper)

    def _recall(self, top: float) -> Bounds:
        def rate(epsilon: Array, delta: Array) -> Array:
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = delta / np.abs(np.expm1(epsilon - top))
            return np.where(np.isnan(ratio), 0.0, ratio)

        for envelope in self._envelopes:
            envelope.ask(np.array([top]))
        return self._worst(rate, 0.0, top)

    def _worst(self, objective: Objective, least: float, top: float = math.inf) -> Bounds:
        """The largest of the directions' infima, and at least this."""
        worst = Bounds(least, least)
        for envelope in self._envelopes:
            [found] = envelope.least([objective], self._tolerance, top, beside=worst.lower)
            worst = Bounds(max(worst.lower, found.lower), max(worst.upper, found.upper))
        return Bounds(min(worst.lower, 1.0), min(worst.upper, 1.0))

    def bayes_risk(self, prior: float = 0.5) -> Bounds:
        """Least probability that a guess at membership is wrong, ``prior`` being the share of members.

        prior (1 - delta(epsilon)) at e^epsilon = (1 - prior) / prior; the lower bound is the guarantee. prior = 1/2 is the game
        of balanced membership: (1 - advantage) / 2.
        """
        share = real("prior", prior, 0.0, 1.0)
        if share in (0.0, 1.0):
            return Bounds(0.0, 0.0)
        # delta at the doubles around the logarithm encloses that at the logarithm.
        at = math.log1p(-share) - math.log(share)
        off = 0.0 if share == 0.5 else 1e-15 * (1.0 + abs(at) - math.log(share))
        most = self._profile.delta(at - off)
        least = self._profile.delta_bounds(at + off).lower
        lower = max(0.0, share * (1.0 - most) * (1.0 - MARGIN) - 2.0**-52)
        upper = min(share, 1.0 - share, share * (1.0 - least) * (1.0 + MARGIN) + 2.0**-52)
        return Bounds(lower, upper)

    def table(self, fprs: Numbers = (1e-3, 1e-2, 1e-1)) -> list[tuple[str, Bounds]]:
        """What this guarantee means, in words, with its numbers."""
        rows = [("membership advantage, TPR - FPR", self.advantage())]
        wrong = self.bayes_risk(0.5)
        right = min(1.0, (1.0 - wrong.lower) * (1.0 + MARGIN))
        rows += [
            (f"members found at a false positive rate of {float(fpr)!r}", self.tpr(fpr))
            for fpr in vector("fprs", fprs, 0.0, 1.0)
        ]
        rows += [
            (
                "share of members among those it takes for one (precision) at a false positive rate of 0.01, 1 of 2 a member",
                self.precision(0.01, 0.5),
            ),
            ("the same, 1 of 100 a member", self.precision(0.01, 0.01)),
            ("members named by an attack that is right 9 times of 10, 1 of 2 a member", self.recall(9.0)),
            ("right guesses, 1 of 2 a member", Bounds(1.0 - wrong.upper, right)),
            (
                "reconstruction of what is guessed with probability 1e-4 without the release",
                self.reconstruction(1e-4),
            ),
        ]
        return rows


def _of_nearly_all() -> Envelope:
    """Where delta at LAST_NODE is at least _NEARLY_ALL: how much closer to 1 it is would take minutes."""
    ends = np.array([-LAST_NODE, 0.0, LAST_NODE])
    return Envelope(lambda at: (np.where(at <= LAST_NODE, _NEARLY_ALL, 0.0), np.ones_like(at)), ends).close()
