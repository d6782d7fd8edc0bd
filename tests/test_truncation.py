"""Truncation that is rare: the table of the truncated scheme by brute force, and what truncation adds to delta."""

import itertools
import math

import hockeystick as hs
import numpy as np
import pytest
from hockeystick import _core
from hockeystick.sampling import BMinSep, TruncatedBMinSep
from hockeystick.truncation import can_tilt, cut_probabilities, participation_probabilities, reduction

from tests import enumeration


@pytest.mark.parametrize(
    ("steps", "b", "bands", "p", "warm", "sigma"),
    [
        (6, 3, 3, 0.3, False, 0.9),
        (6, 3, 3, 0.3, True, 0.9),
        (5, 4, 2, 0.3, True, 1.2),
        (4, 6, 3, 0.4, True, 0.8),
        (5, 1, 1, 0.3, True, 1.0),
        (6, 2, 2, 0.5, False, 1.5),
    ],
)
def test_tables_by_brute_force(steps: int, b: int, bands: int, p: float, warm: bool, sigma: float) -> None:
    largest = 7
    columns = (1.0 / (1.0 + 0.5 * np.arange(bands)))[None, :]
    matrix = hs.BandedToeplitz(tuple(columns[0].tolist()), steps).matrix()
    law = enumeration.min_sep(steps, b, p, warm)
    core = _core.truncated_b_min_sep(b, p, warm, 100, largest)
    bounds = _core.log_moments_of_cuts(columns, steps, core, sigma, 3)
    worst = -math.inf
    for k in range(4):
        for cuts in itertools.combinations(range(steps), k):
            for count in (largest, largest + 4):
                counts = [count if i in cuts else 0 for i in range(steps)]
                pair = enumeration.truncated(law, counts, largest, 1.0, 2.0)
                other = enumeration.truncated(law, counts, largest, 0.0, -1.0)
                values = np.array([x for _, x in pair]) @ matrix.T
                weights = np.array([w for w, _ in pair])
                moment = math.log(weights @ np.exp(values @ values.T / sigma**2) @ weights)
                survivals = np.full(k, largest / (count + 1))
                table = _core.log_moment_given_cuts(
                    columns, steps, core, sigma, np.array(cuts, float), survivals
                )
                assert table == pytest.approx(moment, abs=1e-12, rel=1e-12)
                worst = max(worst, moment)
                # v = Q/R is at least the probability of no surviving participation in a truncated round.
                none = math.fsum(w for w, x in other if not any(x))
                assert none >= 1.0 - k * p - 1e-12
        # The bound holds for every set of rounds, and is exact where there is nothing to choose.
        assert worst <= bounds[k] + 1e-12
        if k == 0:
            assert worst == pytest.approx(bounds[0], abs=1e-12)
        assert bounds[k] <= worst + 1.0


def test_participation_probabilities() -> None:
    for scheme in (
        BMinSep(9, 3, 0.3, False),
        BMinSep(9, 3, 0.3),
        BMinSep(5, 9, 0.2, False),
        BMinSep(6, 1, 0.4),
    ):
        law = enumeration.min_sep(
            scheme.steps, scheme.min_sep, scheme.sampling_probability, scheme.warm_start
        )
        expected = sum(w * np.array(x) for w, x in law)
        assert np.allclose(participation_probabilities(scheme), expected, rtol=1e-12)


@pytest.mark.parametrize("warm", [False, True])
def test_number_of_cuts(warm: bool) -> None:
    # Bounds on the number of truncated rounds, against the sampler's counts.
    scheme = TruncatedBMinSep(12, 3, 0.2, 60, 19, warm)
    mechanism = hs.BandMF(hs.BandedToeplitz.square_root(12, 3), scheme, 1.0)
    bounds = cut_probabilities(scheme)
    core = mechanism._blocks("remove")
    cuts = np.concatenate(
        [(core.draws(seed, 0, 1)[2] >= scheme.max_batch_size).sum(axis=1) for seed in range(40)]
    )
    n = len(cuts)
    for k in range(1, 4):
        share = float((cuts >= k).mean())
        assert share <= bounds[k - 1] + 4.0 * math.sqrt(bounds[k - 1] / n)
        if k == 1:
            assert share > 0.2 * bounds[0]  # no trivial bound


def test_delta_lies_between_its_bounds() -> None:
    # Small |D|, truncation once in fifty runs: plain sampling of the truncated scheme agrees.
    strategy = hs.BandedToeplitz.square_root(8, 2)
    for warm, epsilon in [(True, 1.0), (False, 2.0)]:
        scheme = TruncatedBMinSep(8, 2, 0.05, 41, 8, warm)
        mechanism = hs.BandMF(strategy, scheme, 1.0)
        found = reduction(mechanism, epsilon)
        assert found is not None
        assert 0.0 < found.remove < 0.1
        plain = hs.estimate_delta(mechanism, epsilon, 200_000, 1, "plain", confidence=0.999)
        base = hs.estimate_delta(
            found.base, epsilon, 50_000, 2, "tilted", adjacency="remove", confidence=0.999
        )
        remove, add = plain.directions
        assert remove.lower <= base.upper + found.remove
        assert found.share * base.lower <= remove.upper
        assert add.lower <= found.add
        tilted = hs.estimate_delta(mechanism, epsilon, 50_000, 3, "tilted", confidence=0.999)
        assert tilted.lower <= plain.upper
        assert plain.lower <= tilted.upper
        assert tilted.method == "tilted"


def test_frequent_truncation_is_sampled_plainly() -> None:
    strategy = hs.BandedToeplitz.square_root(8, 2)
    often = hs.BandMF(strategy, TruncatedBMinSep(8, 2, 0.2, 41, 6), 1.0)
    assert not can_tilt(often)
    assert hs.estimate_delta(often, 1.0, 4096, 1).method == "plain"
    never = hs.BandMF(strategy, TruncatedBMinSep(8, 2, 0.2, 41, 41), 1.0)
    assert can_tilt(never)
    found = reduction(never, 3.0)
    assert found is not None
    assert found.remove == 0.0
    assert reduction(found.base, 3.0) is None
