"""Sums of independent privacy losses: convolution by FFT, tilted so that errors are relative to the tail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import logsumexp

from bench.baselines.discretise import Lattice
from bench.baselines.pairs import Floats


@dataclass(frozen=True)
class Composed:
    """True mass at loss x is masses * e^(log_scale - tilt * x); `infinity` is not tilted."""

    losses: Floats
    masses: Floats
    tilt: float
    log_scale: float
    infinity: float


Parts = Sequence[tuple[Lattice, int]]


def _log(masses: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.log(masses)


def cumulant(parts: Parts, tilt: float) -> float:
    """Sum of count * ln E[e^(tilt L); L finite]."""
    return sum(count * float(logsumexp(_log(part.masses) + tilt * part.losses)) for part, count in parts)


def saddle(parts: Parts, delta: float) -> float:
    """The tilt s that matters for `delta`: the saddle point of K(s) - s eps - ln s - ln(1+s) with that value."""
    tilts = np.geomspace(1e-2, 1e4, 61)
    height = np.array([cumulant(parts, t) for t in tilts]) - np.log(tilts) - np.log1p(tilts)
    # At the saddle epsilon is the slope of `height`, and ln delta its tangent's value at 0.
    return float(tilts[int(np.argmin(np.abs(height - tilts * np.gradient(height, tilts) - np.log(delta))))])


def _range(parts: Parts, tilt: float, tail: float) -> tuple[float, float]:
    """Chernoff: the tilted sum leaves this interval with probability at most 2 * tail."""
    scale = cumulant(parts, tilt)
    variance = 0.0
    for part, count in parts:
        weight = np.exp(_log(part.masses) + tilt * part.losses - cumulant([(part, 1)], tilt))
        mean = weight @ part.losses
        variance += count * (weight @ (part.losses - mean) ** 2)
    guess = np.sqrt(-2 * np.log(tail) / variance)
    shifts = guess * np.exp2(np.arange(-5, 4))
    high = min((cumulant(parts, tilt + s) - scale - np.log(tail)) / s for s in shifts)
    low = max((scale + np.log(tail) - cumulant(parts, tilt - s)) / s for s in shifts)
    return low, high


def compose(parts: Parts, tilt: float = 0.0, tail: float = 1e-20) -> Composed:
    """The `count`-fold composition of every part, through one common spectrum."""
    step = parts[0][0].step
    shift = sum(part.shift * count for part, count in parts)
    low, high = _range(parts, tilt, tail)
    first, last = int(np.floor((low - shift) / step)), int(np.ceil((high - shift) / step))
    size = next_fast_len(last - first + 1, real=True)
    spectrum: complex | np.ndarray = 1.0
    for part, count in parts:
        if part.step != step:
            raise ValueError(f"all lattices need one step, got {part.step} and {step}")
        weight = np.exp(_log(part.masses) + tilt * part.losses - cumulant([(part, 1)], tilt))
        place = (part.first + np.arange(weight.size)) % size
        spectrum = spectrum * rfft(np.bincount(place, weights=weight, minlength=size)) ** count
    masses = np.roll(irfft(spectrum, size), -(first % size))
    infinity = -np.expm1(sum(count * np.log1p(-part.infinity) for part, count in parts))
    return Composed((first + np.arange(size)) * step + shift, masses, tilt, cumulant(parts, tilt), infinity)


def convolve(parts: Sequence[Lattice]) -> Composed:
    """Direct O(n^2) convolution, no transform: slow and without any error but rounding."""
    first, shift, masses, finite = 0, 0.0, np.ones(1), 1.0
    for part in parts:
        masses = np.convolve(masses, part.masses)
        first, shift, finite = first + part.first, shift + part.shift, finite * (1 - part.infinity)
    losses = (first + np.arange(masses.size)) * parts[0].step + shift
    return Composed(losses, masses, 0.0, 0.0, 1 - finite)
