"""One epoch of a dozen steps against the law of its mean likelihood ratio, which shares nothing with the transforms here.

V is the mean of T independent ratios W = e^(mu g - mu^2/2) under Q. Put on a grid so that every cell keeps its mass and
its mean, W is larger in the convex order, and so is their sum: delta = E(V - e^epsilon)_+, or E(1 - e^epsilon V)_+ in
direction "add", comes out too large, by the square of the spacing.
"""

import hockeystick as hs
import numpy as np
import pytest
from scipy.special import ndtr


def between(places: np.ndarray) -> np.ndarray:
    """A normal variable's mass between neighbours, of either tail relatively exact."""
    return np.where(places[:-1] > 0, -np.diff(ndtr(-places)), np.diff(ndtr(places)))


def deltas(
    ends: np.ndarray, sigma: float, steps: int, spacing: float, last: float, direction: str
) -> np.ndarray:
    """Of V beyond each of ``ends``, or below it."""
    mu, count = 1.0 / sigma, round(last / spacing)
    grid = spacing * np.arange(count + 1)
    place = np.full(count + 1, -np.inf)
    place[1:] = (np.log(grid[1:]) + 0.5 * mu * mu) / mu
    mass, mean = between(place), between(place - mu)
    right = (mean - grid[:-1] * mass) / spacing
    law = np.zeros(2 * count)
    law[:count] += mass - right
    law[1 : count + 1] += right
    ratios = spacing * np.arange(2 * count) / steps
    total = np.fft.irfft(np.fft.rfft(law) ** steps, 2 * count)
    gains = ratios - ends[:, None] if direction == "remove" else 1.0 - ratios / ends[:, None]
    return np.maximum(gains, 0.0) @ total


@pytest.mark.sweep
@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(
    ("sigma", "steps", "last"), [(1.627, 6, 200.0), (2.168, 7, 100.0), (1.3, 9, 300.0), (1.0, 12, 1200.0)]
)
def test_one_epoch_is_the_law_of_a_mean(sigma: float, steps: int, last: float, direction: str) -> None:
    spacing = last / 2**17
    wanted = np.array([0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.2])
    # Between two points of the grid the grid's delta is a chord.
    unit = 2 * spacing / steps
    ends = unit * np.round(np.exp(wanted if direction == "remove" else -wanted) / unit)
    coarse, fine = (deltas(ends, sigma, steps, each, last, direction) for each in (2 * spacing, spacing))
    epsilons = np.log(ends) if direction == "remove" else -np.log(ends)
    lower, upper = hs.account(hs.RandomAllocation(sigma, steps), adjacency=direction).delta_curve(epsilons)
    # Of the transforms of the grid; and P's mass of a W beyond its last point, which it leaves out.
    rounding, place = 1e-13, (np.log(last) + 0.5 / sigma**2) * sigma
    beyond = ndtr(1.0 / sigma - place) + (steps - 1) * ndtr(-place)
    assert (lower <= fine + beyond + rounding).all()
    extrapolated = fine + (fine - coarse) / 3
    left = 1e-4 * (coarse - fine) + rounding
    assert (lower <= extrapolated + left + beyond).all()
    assert (extrapolated - left <= upper).all()
    assert (upper - lower <= 1e-6 * upper).all()
