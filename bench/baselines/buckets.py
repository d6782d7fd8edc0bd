"""Privacy buckets (Meiser and Mohammadi 2018), in their plain form: ratios rounded up, without virtual errors."""

from __future__ import annotations

import math

import numpy as np
from scipy.signal import fftconvolve
from scipy.stats import norm

from bench.baselines.pairs import Floats


class PrivacyBuckets:
    """P-masses of the ratios f^i, i = -n .. n; larger ones are infinite. Up to round-off an upper bound."""

    def __init__(self, sigma: float, q: float, buckets: int) -> None:
        self.n = buckets // 2
        self.step = 3.0 / self.n  # a single loss is hardly ever above 3
        edges = np.arange(-self.n - 1, self.n + 1) * self.step
        # P(loss <= edge), by the output at which the loss is the edge.
        ratio = (np.expm1(np.maximum(edges, math.log1p(-q))) + q) / q
        with np.errstate(divide="ignore"):
            t = sigma**2 * np.log(ratio) + 0.5
        below = (1 - q) * norm.cdf(t / sigma) + q * norm.cdf((t - 1) / sigma)
        self.mass, self.infinite = np.diff(below), float(1 - below[-1])
        self.mass[0] += below[0]

    def _square_factor(self) -> None:
        """Buckets of twice the width, rounded up."""
        index = np.arange(-self.n, self.n + 1)
        merged = np.bincount((index + 1) // 2 + self.n, weights=self.mass, minlength=2 * self.n + 1)
        self.mass, self.step = merged, 2 * self.step

    def composed(self, doublings: int) -> PrivacyBuckets:
        """This with itself, 2^doublings times; the factor is squared where too much would become infinite."""
        for _ in range(doublings):
            while True:
                whole = np.maximum(fftconvolve(self.mass, self.mass), 0.0)
                over = float(whole[3 * self.n + 1 :].sum())
                if over <= 2.2 * self.infinite + 1e-12:
                    break
                self._square_factor()
            middle = whole[self.n : 3 * self.n + 1].copy()
            middle[0] += whole[: self.n].sum()
            self.infinite += self.infinite * (1 - self.infinite) + over
            self.mass = middle
        return self

    def deltas(self, epsilons: Floats) -> list[float]:
        loss = np.arange(-self.n, self.n + 1) * self.step
        gain = [self.mass @ np.maximum(0.0, -np.expm1(epsilon - loss)) for epsilon in epsilons]
        return [float(self.infinite + value) for value in gain]
