"""The Fourier accountant of Koskela, Jälkö and Honkela (2020), Algorithm 1, as printed: an estimate, no bound."""

from __future__ import annotations

import math

import numpy as np
from scipy.fft import irfft, rfft

from bench.baselines.pairs import Floats


def density(s: Floats, sigma: float, q: float) -> Floats:
    """Of the privacy loss of the Poisson-sampled Gaussian, "remove" (Section 6.1)."""
    out = np.zeros_like(s)
    inside = s > math.log1p(-q)
    e = np.exp(s[inside])
    t = sigma**2 * np.log((e - (1 - q)) / q) + 0.5
    mixed = q * np.exp(-((t - 1) ** 2) / (2 * sigma**2)) + (1 - q) * np.exp(-(t**2) / (2 * sigma**2))
    out[inside] = mixed / math.sqrt(2 * math.pi * sigma**2) * sigma**2 * e / (e - (1 - q))
    return out


class FourierAccountant:
    """One kind of step on [-L, L) with n points."""

    def __init__(self, sigma: float, q: float, reach: float, n: int) -> None:
        self.x = -reach + np.arange(n) * (2 * reach / n)
        self._spectrum = rfft(np.roll(density(self.x, sigma, q), n // 2) * (2 * reach / n))

    def compose(self, count: int) -> Floats:
        """Masses of the sum of ``count`` losses."""
        n = self.x.size
        return np.asarray(np.roll(irfft(self._spectrum**count, n), n // 2))

    def delta(self, count: int, epsilon: float) -> float:
        masses, over = self.compose(count), self.x > epsilon
        return float(np.sum(-np.expm1(epsilon - self.x[over]) * masses[over]))

    def epsilon(self, count: int, delta: float) -> float:
        """By Newton's method from 0 (Section 5.4)."""
        masses, epsilon = self.compose(count), 0.0
        for _ in range(60):
            over = self.x > epsilon
            tail = np.exp(epsilon - self.x[over]) * masses[over]
            slope, excess = float(tail.sum()), float(masses[over].sum() - tail.sum()) - delta
            if abs(excess) <= 1e-10 * delta or slope <= 0:
                break
            epsilon += excess / slope
        return epsilon


def tail_estimate(sigma: float, q: float, count: int, reach: float) -> float:
    """(7.3), what the tail beyond L is estimated to hold."""
    return math.exp(count * q**2 * (reach / 2 + 1) * (reach / 2) / ((1 - q) * sigma**2) - reach**2 / 2)
