"""Individual epsilons as in Koskela, Tobaben, Honkela 2022, Appendix D: cached spectra and Plancherel's theorem.

Every kind of step on the grid of noise levels is discretised once (connect the dots: an upper bound) and
transformed once. An example's spectrum is the product of powers, exp(counts @ log spectra), and
delta(epsilon) its inner product with the transform of the weights (1 - e^{epsilon - x})+, also made once for
each epsilon. The term `err` of Theorem 2 is made of: losses past the end of each window (truncation), mass
that the cyclic convolution folds (wrap-around, by Chernoff's bound), and round-off.
"""

from __future__ import annotations

import numpy as np
from scipy.fft import rfft

from bench.baselines import discretise, pairs
from bench.baselines.pairs import Floats


class Plancherel:
    """For the Poisson-sampled Gaussians of these mu, direction "remove"."""

    def __init__(self, mus: Floats, q: float, step: float, size: int) -> None:
        self.step, self.size = step, size
        half = size // 2
        x = (np.arange(size) - half) * step
        self.losses = x
        spectra = np.empty((mus.size, half + 1), complex)
        self.beyond = np.empty(mus.size)
        # ln E[e^{tL}] at a few t on both sides, for Chernoff's bounds.
        self.tilts = np.concatenate([-np.geomspace(0.5, 500, 25), np.geomspace(0.5, 500, 25)])
        self.moments = np.empty((mus.size, self.tilts.size))
        for i, mu in enumerate(mus):
            pair = pairs.Sampled(pairs.Gaussian(mu), q)
            first, last = discretise.window(pair, step)
            lattice = discretise.upper(pair, step, max(first, -half), min(last, half - 1))
            self.beyond[i] = lattice.infinity
            mass = np.zeros(size)
            mass[lattice.first + half : lattice.first + half + lattice.masses.size] = lattice.masses
            spectra[i] = rfft(np.fft.ifftshift(mass))
            exponents = np.outer(self.tilts, lattice.losses)
            top = exponents.max(1)
            self.moments[i] = np.log(np.exp(exponents - top[:, None]) @ lattice.masses) + top
        self.log_modulus, self.angle = np.log(np.abs(spectra)), np.angle(spectra)
        self.weights: dict[float, Floats] = {}

    def _weight(self, epsilon: float) -> Floats:
        """The transform of the weights, conjugate, scaled so that a real inner product remains."""
        if epsilon not in self.weights:
            w = np.where(self.losses > epsilon, -np.expm1(np.minimum(0.0, epsilon - self.losses)), 0.0)
            transform = rfft(np.fft.ifftshift(w)).conj() * (2.0 / self.size)
            transform[[0, -1]] *= 0.5
            self.weights[epsilon] = transform
        return self.weights[epsilon]

    def error(self, counts: Floats) -> Floats:
        """`err` of Theorem 2 for each row of counts."""
        truncation = counts @ self.beyond
        cumulant = counts @ self.moments
        end = self.step * self.size / 2
        wrapped = np.exp(np.minimum(0.0, cumulant - np.abs(self.tilts) * end))
        left, right = np.split(wrapped, 2, axis=1)
        # Each power of a spectrum of modulus at most 1 keeps the absolute error of the transform.
        round_off = 2e-16 * np.log2(self.size) * (1.0 + counts.sum(1))
        return truncation + left.min(1) + right.min(1) + round_off

    def epsilon(self, counts: Floats, delta: float, epsilons: Floats) -> Floats:
        """Upper bound for each row, among the prepared ``epsilons`` (increasing).

        By bisection, but where two values are known next by the line through their logarithms: a third of the products.
        """
        modulus, angle = counts @ self.log_modulus, counts @ self.angle
        spectrum = np.exp(modulus) * (np.cos(angle) + 1j * np.sin(angle))
        error = self.error(counts)
        found = np.full(len(counts), epsilons.size - 1)
        for row in range(len(counts)):
            real, imaginary = (
                np.ascontiguousarray(spectrum[row].real),
                np.ascontiguousarray(spectrum[row].imag),
            )
            target, known = np.log(max(delta - error[row], 1e-300)), {}
            low, high, steps = -1, epsilons.size - 1, 0
            while high - low > 1:
                middle = (low + high) // 2
                if steps % 3 and low in known and high in known and known[low] > known[high]:
                    share = (known[low] - target) / (known[low] - known[high])
                    middle = min(max(low + round(share * (high - low)), low + 1), high - 1)
                weight = self._weight(float(epsilons[middle]))
                value = real @ weight.real - imaginary @ weight.imag
                known[middle] = float(np.log(max(value, 1e-300)))
                low, high = (low, middle) if value + error[row] <= delta else (middle, high)
                steps += 1
            found[row] = high
        return epsilons[found]
