"""Where losses are those of a law that only dominates, nothing is known from below: against closed forms of what the mechanism itself has."""

from __future__ import annotations

import math
from typing import Any

import hockeystick as hs
import numpy as np
import pytest
from hockeystick import estimate_delta
from hockeystick.matrix import Banded, BandMF, FixedOrder, MultiAttributionBMinSep, TruncatedBMinSep
from scipy.special import ndtr


def gaussian(mu: float, epsilon: float) -> float:
    return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))


def diagonal(*values: float) -> Banded:
    return Banded(np.array(values)[:, np.newaxis])


def cut_in_half(sigma: float, epsilon: float) -> float:
    """Of two examples, both in the batch, one is kept: the worst value of the other one, on a grid of outputs."""
    y = np.linspace(-9 * sigma - 1, 9 * sigma + 1, 40_001)

    def density(at: float) -> Any:
        return np.exp(-0.5 * ((y - at) / sigma) ** 2) / sigma / math.sqrt(2 * math.pi)

    def excess(p: Any, q: Any) -> float:
        return float(np.maximum(0.0, p - math.exp(epsilon) * q).sum() * (y[1] - y[0]))

    worst = 0.0
    for other in np.linspace(-1.0, 1.0, 41):
        p, q = density(1.0) + density(other), density(0.0) + density(other)
        worst = max(worst, 0.5 * excess(p, q), 0.5 * excess(q, p))
    return worst


CYCLIC = BandMF(diagonal(1.2465, 1.862, 1.4173), hs.CyclicPoisson(3, 2, 1.0), 1.9)
GROUPS = (math.hypot(1.2465, 1.4173) / 1.9, 1.862 / 1.9)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("mechanism", "truth"),
    [
        # No group has the largest column of both turns.
        (CYCLIC, max(gaussian(mu, 1.0) for mu in GROUPS)),
        # Participations 0 and 3 are far enough apart, but of no group.
        (BandMF(diagonal(2.0, 1.0, 1.0, 2.0), FixedOrder(4, 2), 2.0), gaussian(math.sqrt(5.0) / 2.0, 1.0)),
        # Who is sampled in every step takes part once, and is barred for ever.
        (BandMF(diagonal(1.0, 1.0, 1.0), MultiAttributionBMinSep(3, 2, 1.0, 1), 1.0), gaussian(1.0, 1.0)),
        # Who else was sampled is not released, and who is kept instead is the same one in both worlds.
        (BandMF(hs.Identity(1), TruncatedBMinSep(1, 1, 1.0, 2, 1), 0.5), cut_in_half(0.5, 1.0)),
    ],
    ids=["cyclic", "fixed", "attribution", "truncated"],
)
def test_a_lower_end_is_not_above_what_the_mechanism_has(mechanism: BandMF, truth: float) -> None:
    for adjacency in ("zero_out", "remove", "add"):
        if adjacency not in mechanism.scheme.adjacencies():
            continue
        for method in ("plain", "auto"):
            found = estimate_delta(mechanism, 1.0, 60_000, 1, method, adjacency=adjacency, confidence=0.999)
            assert found.lower <= truth <= found.upper


def test_where_the_stand_in_is_a_group_the_lower_end_is_its_own() -> None:
    toeplitz = BandMF(hs.BandedToeplitz.square_root(40, 2), hs.CyclicPoisson(40, 2, 0.5), 2.0)
    ordered = BandMF(diagonal(2.0, 1.9, 1.0, 0.9, 0.5), hs.CyclicPoisson(5, 2, 1.0), 2.0)
    single = BandMF(diagonal(1.0, 3.0, 2.0), hs.CyclicPoisson(3, 1, 1.0), 4.0)
    for mechanism in (
        toeplitz,
        ordered,
        single,
        BandMF(hs.Identity(6), FixedOrder(6, 2), 2.0),
        BandMF(diagonal(1.0, 2.0, 1.0, 2.0), FixedOrder(4, 2), 2.0),
        BandMF(hs.Identity(3), MultiAttributionBMinSep(3, 3, 0.5, 1), 1.0),
        BandMF(hs.Identity(4), MultiAttributionBMinSep(4, 2, 0.5, 1, law="exact"), 1.0),
        BandMF(hs.Identity(4), TruncatedBMinSep(4, 2, 0.5, 9, 9), 1.0),
    ):
        assert mechanism.scheme.losses_are_exact(mechanism.strategy)
    found = estimate_delta(ordered, 0.5, 100_000, 1, confidence=0.999)
    truth = gaussian(math.sqrt(5.25) / 2.0, 0.5)
    assert 0.9 * truth < found.lower <= truth <= found.upper
    assert estimate_delta(toeplitz, 1.0, 20_000, 1).lower > 0.0


def test_the_group_that_was_asked_for_has_a_lower_end() -> None:
    for group, mu in enumerate(GROUPS):
        alone = BandMF(CYCLIC.strategy, hs.CyclicPoisson(3, 2, 1.0, group), 1.9)
        found = estimate_delta(alone, 1.0, 100_000, 2, confidence=0.999)
        assert 0.8 * gaussian(mu, 1.0) < found.lower <= gaussian(mu, 1.0) <= found.upper
        lower, upper = hs.account(alone).delta_bounds(1.0)
        assert lower * (1 - 1e-9) <= gaussian(mu, 1.0) <= upper * (1 + 1e-9)
