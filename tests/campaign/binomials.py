"""Any number of steps with two finite losses: a binomial sum of positive terms, in double precision with counted errors.

delta(epsilon) = sum_j Pr[Binomial(T, p) = j] (1 - e^{epsilon - L_j})+ + what is revealed; the probabilities beside j follow from
one of them, taken from the log-gamma function in ball arithmetic, by their ratios.
"""

from __future__ import annotations

import math

import numpy as np
from flint import arb

from .balls import ONE, ZERO, Enclosure, positive_part, to_float
from .finite import Pair, finite_outcomes, revealed

_BLOCK = 2**15


class TwoLosses:
    """`steps` steps of a pair with two outcomes that leave the loss finite."""

    def __init__(self, pair: Pair, steps: int) -> None:
        (p0, _, low), (p1, _, high) = sorted(finite_outcomes(pair), key=lambda outcome: to_float(outcome[2]))
        self.steps, self.low, self.high = steps, low, high
        self.kept = (steps * (-revealed(pair)).log1p()).exp()
        self.revealed = -(steps * (-revealed(pair)).log1p()).expm1()
        self.p = p1 / (p0 + p1)

    def _loss(self, j: int) -> arb:
        return j * self.high + (self.steps - j) * self.low

    def _mass(self, j: int) -> arb:
        n = self.steps
        ways = (arb(n + 1).lgamma() - arb(j + 1).lgamma() - arb(n - j + 1).lgamma()).exp()
        return ways * self.p**j * (1 - self.p) ** (n - j)

    def delta(self, epsilon: float) -> Enclosure:
        """Enclosure of delta at a double."""
        if epsilon == -math.inf:
            return Enclosure(ONE, ONE)
        if epsilon == math.inf:
            return Enclosure(self.revealed, self.revealed)
        point = arb(epsilon)
        start = self._first_above(point)
        low = high = ZERO
        if start > 0:  # the one before may be too close to call
            part = positive_part(-(point - self._loss(start - 1)).expm1())
            low, high = self._mass(start - 1) * part.low, self._mass(start - 1) * part.high
        if start <= self.steps:
            here = max(start, min(int(to_float((self.steps + 1) * self.p)), self.steps))
            # Upwards from the larger of the first term and the mode, and down from there.
            for first, step, stop in ((here, +1, self.steps), (here - 1, -1, start)):
                if step * (stop - first) >= 0:
                    part = self._run(first, step, stop, start, point)
                    low, high = low + part.low, high + part.high
        return Enclosure(self.kept * low + self.revealed, self.kept * high + self.revealed)

    def _first_above(self, point: arb) -> int:
        """The least j whose loss is certainly above epsilon; steps + 1 if there is none."""
        guess = (point - self.steps * self.low) / (self.high - self.low)
        j = (
            min(self.steps + 1, max(0, int(guess.mid().floor().unique_fmpz()) - 1))
            if guess < 2**62
            else self.steps + 1
        )
        while j > 0 and (j > self.steps or self._loss(j) > point) and self._loss(j - 1) > point:
            j -= 1
        while j <= self.steps and not self._loss(j) > point:
            j += 1
        return j

    def _run(self, first: int, step: int, stop: int, start: int, epsilon: arb) -> Enclosure:
        """The terms from `first` to `stop`. Losses are counted from that of `start`, so that nothing cancels."""
        odds = to_float(self.p / (1 - self.p))
        spacing, nearest = to_float(self.high - self.low), to_float(self._loss(start) - epsilon)
        total, scale, error, j = 0.0, 1.0, 1e-14, first
        while step * (stop - j) >= 0 and scale > 1e-30 * (total + 1e-270):
            index = j + step * np.arange(min(_BLOCK, abs(stop - j) + 1), dtype=np.float64)
            if step > 0:
                ratios = (self.steps - index) / (index + 1.0) * odds
            else:
                ratios = index / (self.steps - index + 1.0) / odds
            masses = scale * np.concatenate(([1.0], np.cumprod(ratios[:-1])))
            total += float(np.sum(masses * -np.expm1(-(nearest + spacing * (index - start)))))
            error += len(index) * 2e-15
            scale = float(masses[-1] * ratios[-1])
            j += step * len(index)
        # The rest falls at least as fast as a geometric series; masses that underflowed were below 1e-300 each.
        rest = 1e-290
        if step * (stop - j) >= 0:
            ratio = (self.steps - j) / (j + 1.0) * odds if step > 0 else j / (self.steps - j + 1.0) / odds
            rest += 1.1 * scale / (1.0 - min(ratio, 1.0 - 1e-12))
        mass = self._mass(first)
        return Enclosure(
            mass * arb(total) * arb(1.0 - error), mass * (arb(total) * arb(1.0 + error) + arb(rest))
        )

    def notable(self) -> list[float]:
        """A few losses at which delta has a kink."""
        n = self.steps
        middle = int(to_float(n * self.p))
        return [
            to_float(self._loss(j)) for j in {0, n, n - 1, middle, min(n, middle + 1), n // 2} if 0 <= j <= n
        ]
