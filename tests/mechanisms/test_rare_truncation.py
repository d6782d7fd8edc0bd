"""Truncation that is rare, but not beside delta: against a composition on a lattice of our own, and how near the bounds are."""

from __future__ import annotations

import math

import hockeystick as hs
import numpy as np
import pytest
from hockeystick.mechanisms.truncated import truncation
from scipy.special import ndtr

CELL = 1e-5  # of losses
CELLS = 2**19


def half(
    q: float, p_shift: float, q_shift: float, positive: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Masses of narrow ranges of outputs, and their least and largest losses, where R = P/Q is above 1: of ln R with P's masses, or -ln R with Q's.

    P = (1-q) N(0) + q N(p_shift) and Q = (1-q) N(0) + q N(q_shift), from the output at which they are the same
    (docs/mechanisms/truncated.md, section 3).
    """
    output = 0.5 * (p_shift + q_shift) + np.arange(200_000) * 1e-4
    shift = p_shift if positive else q_shift
    upper_tail = (1 - q) * ndtr(-output) + q * ndtr(shift - output)
    loss = np.log1p(q * np.expm1(p_shift * output - 0.5 * p_shift**2))
    loss -= np.log1p(q * np.expm1(q_shift * output - 0.5 * q_shift**2))
    mass = upper_tail[:-1] - upper_tail[1:]
    return (mass, loss[:-1], loss[1:]) if positive else (mass, -loss[1:], -loss[:-1])


def zero_out_step(sigma: float, n: int, p: float, most: int) -> list[tuple[np.ndarray, ...]]:
    """The pair "remove" of one step under zero_out, as ranges of losses: a Poisson batch, or a full one."""
    mu, law = 1 / sigma, truncation(n, p, most)
    output = -12 + np.arange(320_000) * 1e-4
    mass = np.diff((1 - p) * ndtr(output) + p * ndtr(output - mu))
    loss = np.log1p(p * np.expm1(mu * output - 0.5 * mu**2))
    q = law.sampled_if_full
    full = [half(q, 2 * mu, mu, True), half(q, mu, 0.0, False)]
    rest = 1 - sum(part[0].sum() for part in full)
    full.append((np.array([rest]), np.zeros(1), np.zeros(1)))
    weighted = [(mass * law.full_high, low, high) for mass, low, high in full]
    return [(mass * law.not_full, loss[:-1], loss[1:]), *weighted]


def composed(parts: list[tuple[np.ndarray, ...]], steps: int, epsilon: float, up: bool) -> float:
    """delta(epsilon) of the composition with all losses rounded up, or down, to the lattice."""
    law = np.zeros(CELLS)
    for mass, low, high in parts:
        cells = np.ceil(high / CELL) if up else np.floor(low / CELL)
        np.add.at(law, cells.astype(int) % CELLS, mass)
    law = np.fft.irfft(np.fft.rfft(law) ** steps, CELLS)
    loss = (np.arange(CELLS) - CELLS // 8) * CELL
    return math.fsum(np.roll(law, CELLS // 8) * np.maximum(0.0, -np.expm1(epsilon - loss)))


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("sigma", "n", "p", "most", "steps", "epsilon"),
    [
        (1.32, 5235, 0.000354, 10, 229, 0.225),  # was 12 % wide
        (1.32, 5235, 0.000354, 10, 229, 0.1),  # was anything from 4e-15 to 6e-10
        (1.04, 13, 0.000229, 1, 40, 0.2),
        (1.5, 30, 0.02, 3, 5, 0.6),
        (2.14, 3441, 0.00254, 27, 60, 0.13),
    ],
)
def test_under_zero_out_against_a_lattice(
    sigma: float, n: int, p: float, most: int, steps: int, epsilon: float
) -> None:
    """Joined halves of full batches among Poisson batches; their rounding to the lattice moves delta by some percent."""
    parts = zero_out_step(sigma, n, p, most)
    least, largest = (composed(parts, steps, epsilon, up) for up in (False, True))
    assert 1e-13 < least < largest < 1.07 * least
    lower, upper = hs.account(hs.TruncatedPoissonSampled(sigma, n, p, most) * steps, "zero_out").delta_bounds(
        epsilon
    )
    assert lower <= largest
    assert least <= upper
    assert 0.0 < lower <= upper <= lower * (1 + 1e-8)


@pytest.mark.parametrize(("sigma", "p"), [(41.73647598058734, 0.046875), (50.78569148447369, 0.05734375)])
def test_where_the_curve_is_flat_epsilon_is_as_near_as_delta(sigma: float, p: float) -> None:
    """About delta(0) all epsilons are next to nothing: lattices were searched for up to 20 s for digits of 1e-8."""
    profile = hs.account(hs.TruncatedPoissonSampled(sigma, 100, p, 10) * 5, "zero_out")
    delta = profile.delta_bounds(0.0).lower * (1.0 - 6e-6)
    lower, upper = profile.epsilon_bounds(delta)
    assert profile.delta_bounds(lower).upper >= delta >= profile.delta_bounds(upper).lower
    assert 0.0 < lower < upper < lower + 4e-6 * delta
    answer = profile.report(delta=delta, risks=False).epsilon
    assert answer is not None
    assert answer.engine == "inversion"


@pytest.mark.sweep
@pytest.mark.parametrize("adjacency", ["remove", "add", "zero_out", "replace_one"])
@pytest.mark.parametrize(
    ("sigma", "n", "p", "most", "steps"),
    [
        (1.6, 13755, 0.000224, 13, 1279),
        (2.26, 572, 0.00415, 7, 300),
        (3.43, 78, 0.624, 39, 100),
        (2.35, 937, 0.000436, 4, 900),
    ],
)
def test_bounds_are_near_where_truncation_is_rare(
    sigma: float, n: int, p: float, most: int, steps: int, adjacency: str
) -> None:
    """What Pr[full] leaves open went to a batch that shows nothing, an atom among Gaussians: epsilon in [.04, .40] at 1e-14."""
    step = hs.TruncatedPoissonSampled(sigma, n, p, most) * steps
    profile, lattice = hs.account(step, adjacency), hs.account(step, adjacency, engine="fft")
    # Joined pairs are asked for as many digits as the profile's accuracy wants.
    near = 1.0 + (1.1e-3 if adjacency in ("zero_out", "replace_one") else 1e-5)
    for delta in (1e-6, 1e-12, 1e-18):
        lower, upper = profile.epsilon_bounds(delta)
        assert 0.0 < lower <= upper <= lower * near
        other = lattice.epsilon_bounds(delta)
        assert lower <= other.upper
        assert other.lower <= upper
        lower, upper = profile.delta_bounds(upper)
        assert lower <= delta
        assert 0.0 < lower <= upper <= lower * near


@pytest.mark.parametrize(
    ("sigma", "n", "p", "most", "steps", "epsilon"),
    [(0.7, 100, 0.7, 5, 3, 0.16), (0.5, 10_000, 0.7, 140, 3, 0.2), (2.0, 20, 0.9, 1, 5, 0.3)],
)
def test_batches_that_are_nearly_always_full(
    sigma: float, n: int, p: float, most: int, steps: int, epsilon: float
) -> None:
    """Under "add" a full batch loses at most -ln(1-q): beyond that of all steps delta is at most the chance of one that is not full (it was .019)."""
    law = truncation(n, p, most)
    assert epsilon > -steps * math.log1p(-law.sampled_if_full)
    profile = hs.account(hs.TruncatedPoissonSampled(sigma, n, p, most) * steps, "add")
    lower, upper = profile.delta_bounds(epsilon)
    assert lower <= steps * law.not_full
    assert upper <= max(1.5 * steps * law.not_full, 1e-322)
