"""Compositions of many kinds of step, whose line is moved for a shorter period (docs/accounting/bounds.md,
"Exact inversion"), against the transform summed in NumPy on lines of our own choice."""

from __future__ import annotations

from collections.abc import Sequence

import hockeystick as hs
import numpy as np
import pytest

Kind = tuple[float, float, int]

KINDS: dict[str, list[Kind]] = {
    # One step each: large losses are rare, and many.
    "distinct": [(0.8 + 0.08 * i, 0.08 + 0.01 * i, 1) for i in range(14)],
    "noise schedule": [(0.7 + 0.1 * i, 0.01, 25) for i in range(10)],
    "batch schedule": [(1.0, 0.001 * 1.5**i, 300) for i in range(9)],
    "little noise": [(0.62 + 0.02 * i, 0.002, 40) for i in range(9)],
}


def delta(kinds: Sequence[Kind], direction: str, epsilon: float, s: float) -> float:
    """1/(2 pi i) times the integral of e^{K(z) - z eps}/(z (z + 1)) along Re z = s, by the trapezoidal rule."""
    step, size = 2 * np.pi / 60, 4000
    z = s + 1j * step * np.arange(size)
    k = -z * epsilon
    for sigma, q, count in kinds:
        t = np.arange(-10, (1 + s) / sigma + 10, 0.02)
        loss = np.log1p(q * np.expm1(t / sigma - 0.5 / sigma**2))
        log_p = -t * t / 2 + loss
        if direction == "add":
            log_p, loss = log_p - loss, -loss
        weight = np.exp(log_p + s * loss) * (t[1] - t[0]) / np.sqrt(2 * np.pi)
        turn = np.exp(1j * step * loss)
        anchor = np.exp(1j * step * 80 * np.arange(size // 80)[:, None] * loss) * weight
        rows = []
        for _ in range(80):
            rows.append(anchor.sum(axis=1))
            anchor *= turn
        k += count * np.log(np.array(rows).T.ravel())
    terms = (np.exp(k) / (z * (z + 1))).real
    assert np.abs(terms[-50:]).max() < 1e-13 * abs(terms.sum())
    return float(step / np.pi * (terms.sum() - terms[0] / 2))


@pytest.mark.sweep
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("direction", ["remove", "add"])
def test_many_kinds(name: str, direction: str) -> None:
    steps = [hs.PoissonSampled(hs.Gaussian(sigma), q) * count for sigma, q, count in KINDS[name]]
    profile = hs.account(sum(steps[1:], start=steps[0]), direction)
    low, high = profile.epsilon_bounds(1e-6)
    assert high <= low * (1 + 1e-8)
    at_low, at_high = (delta(KINDS[name], direction, epsilon, 2.5) for epsilon in (low, high))
    own = 5e-10  # what NumPy's sums lose to rounding
    assert at_high == pytest.approx(delta(KINDS[name], direction, high, 3.0), rel=own)
    assert at_high <= 1e-6 * (1 + own)
    assert at_low >= 1e-6 * (1 - own)
    bounds = profile.delta_bounds(high)
    assert bounds.lower <= at_high * (1 + own)
    assert at_high * (1 - own) <= bounds.upper <= bounds.lower * (1 + 1e-7)
