"""Truncation that is rare: the table of the truncated scheme by brute force, and what truncation adds to delta."""

import itertools
import math
from collections import defaultdict

import hockeystick as hs
import numpy as np
import pytest
from hockeystick import _core
from hockeystick.matrix.min_sep import BMinSep, TruncatedBMinSep
from hockeystick.montecarlo.public_counts import (
    cut_probability,
    meeting_cuts,
    participation_counts,
    participation_probabilities,
)
from hockeystick.montecarlo.tilted import orders
from hockeystick.montecarlo.truncation import reduction, tilting
from scipy import special, stats

from bench.baselines.exact import gaussian_delta
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
        (3, 2, 2, 0.9, False, 2.0),
        (4, 6, 3, 0.4, True, 2.0),
    ],
)
@pytest.mark.parametrize("largest", [1, 7])
def test_tables_by_brute_force(
    steps: int, b: int, bands: int, p: float, warm: bool, sigma: float, largest: int
) -> None:
    """Of batches of one, half of what a truncated round has is without any column: it counts where columns are short."""
    columns = (1.0 / (1.0 + 0.5 * np.arange(bands)))[None, :]
    matrix = hs.BandedToeplitz(tuple(columns[0].tolist()), steps).matrix()
    law = enumeration.min_sep(steps, b, p, warm)
    core = _core.truncated_b_min_sep(b, p, warm, 100, largest)
    bounds = _core.log_moments_of_cuts(_core.MatrixMechanism(columns, steps, core, sigma), 3)
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


def test_participation_counts() -> None:
    for scheme in (BMinSep(9, 3, 0.3, False), BMinSep(9, 3, 0.3), BMinSep(5, 9, 0.2), BMinSep(6, 1, 0.4)):
        law = enumeration.min_sep(
            scheme.steps, scheme.min_sep, scheme.sampling_probability, scheme.warm_start
        )
        for j, chance in participation_counts(scheme):
            exact = math.fsum(w for w, x in law if sum(x) == j)
            assert exact <= chance <= exact * (1.0 + 1e-8) + 1e-12
    # So many that the last pair stands for several numbers, and one pair for all of them.
    (*_, last), bulk = (
        participation_counts(BMinSep(1000, 1, 0.3)),
        participation_counts(BMinSep(2**18, 2, 0.3)),
    )
    assert last[0] == 1000
    assert last[1] > 0.99
    assert bulk == ((2**17, 1.0),)


@pytest.mark.parametrize("warm", [False, True])
def test_number_of_cuts(warm: bool) -> None:
    # Bounds on the number of truncated rounds, against the sampler's counts.
    scheme = TruncatedBMinSep(12, 3, 0.2, 60, 19, warm)
    mechanism = hs.BandMF(hs.BandedToeplitz.square_root(12, 3), scheme, 1.0)
    bounds = [cut_probability(scheme, k) for k in range(1, 4)]
    core = mechanism._blocks("remove")
    counts = np.concatenate([core.draws(seed, 0, 1)[2] for seed in range(40)])
    cuts = (counts >= scheme.max_batch_size).sum(axis=1)
    n = len(cuts)
    for k in range(1, 4):
        share = float((cuts >= k).mean())
        assert share <= bounds[k - 1] + 4.0 * math.sqrt(bounds[k - 1] / n)
        if k == 1:
            assert share > 0.2 * bounds[0]  # no trivial bound
    # Sampled in a truncated round: independent of which rounds those are.
    rho = np.array(participation_probabilities(BMinSep(12, 3, 0.2, warm)))
    met = float(((counts >= scheme.max_batch_size) @ rho).mean())
    assert 0.2 * meeting_cuts(scheme) < met < meeting_cuts(scheme) * (1.0 + 4.0 / math.sqrt(n * met))


def public_counts(scheme: TruncatedBMinSep) -> dict[tuple[int, ...], float]:
    """The law of how many of the others are sampled, round by round, others added one by one."""
    one = enumeration.min_sep(scheme.steps, scheme.min_sep, scheme.sampling_probability, scheme.warm_start)
    found = {(0,) * scheme.steps: 1.0}
    for _ in range(scheme.dataset_size - 1):
        more: defaultdict[tuple[int, ...], float] = defaultdict(float)
        for counts, weight in found.items():
            for chance, pattern in one:
                more[tuple(int(c + x) for c, x in zip(counts, pattern, strict=True))] += weight * chance
        found = dict(more)
    return found


def plane_densities(law: enumeration.Law, matrix: np.ndarray, sigma: float, axis: np.ndarray) -> np.ndarray:
    """The density of two outputs on a grid."""
    total = np.zeros((len(axis), len(axis)))
    for weight, pattern in law:
        mean = matrix @ np.array(pattern)
        first, second = (np.exp(-0.5 * ((axis - m) / sigma) ** 2) for m in mean)
        total += weight * np.outer(first, second)
    return np.asarray(total / (2.0 * math.pi * sigma**2))


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("b", "p", "warm", "size", "largest", "sigma"),
    [
        (1, 0.05, False, 6, 2, 1.0),
        (2, 0.1, False, 5, 2, 0.7),
        (2, 0.02, True, 8, 2, 0.5),
        (2, 0.3, True, 5, 1, 1.0),  # truncation most of the time
        (2, 0.003, True, 4, 1, 0.4),
        (3, 0.1, True, 6, 3, 0.8),
    ],
)
def test_theorem_7_by_enumeration_and_integration(
    b: int, p: float, warm: bool, size: int, largest: int, sigma: float
) -> None:
    # Two rounds: every r, every pattern, densities integrated; nothing may exceed what is claimed.
    scheme = TruncatedBMinSep(2, b, p, size, largest, warm)
    strategy: hs.matrix.Strategy = hs.Identity(2) if b == 1 else hs.BandedToeplitz((1.0, 0.6), 2)
    mechanism = hs.BandMF(strategy, scheme, sigma)
    matrix = strategy.matrix()
    base = enumeration.min_sep(2, b, p, warm)
    axis = np.linspace(-3.0 - 7.0 * sigma, 5.5 + 7.0 * sigma, 401)
    cell = (axis[1] - axis[0]) ** 2
    zero: enumeration.Law = [(1.0, (0.0, 0.0))]
    flat = plane_densities(zero, matrix, sigma, axis)
    plain = plane_densities(base, matrix, sigma, axis)

    def divergence(above: np.ndarray, below: np.ndarray, epsilon: float) -> float:
        return float(np.maximum(above - math.exp(epsilon) * below, 0.0).sum() * cell)

    rho = participation_probabilities(BMinSep(2, b, p, warm))
    law = public_counts(scheme)
    pairs: list[tuple[float, float, np.ndarray, np.ndarray]] = []
    for counts, chance in law.items():
        cuts = tuple(c >= largest for c in counts)
        met = math.fsum(w for w, x in base if any(c and v for c, v in zip(cuts, x, strict=True)))
        given, absent = (
            plane_densities(enumeration.truncated(base, counts, largest, *values), matrix, sigma, axis)
            for values in ((1.0, 2.0), (0.0, -1.0))
        )
        pairs.append((chance, met, given, absent))
        assert met <= math.fsum(r for r, c in zip(rho, cuts, strict=True) if c) + 1e-12
    expected = math.fsum(chance * met for chance, met, _, _ in pairs)
    assert expected <= meeting_cuts(scheme)
    none = math.log(math.fsum(w for w, x in base if not any(x)))
    for epsilon in (0.0, 0.3 * -none, 1.0, 2.5, 4.0, 7.0):
        found = reduction(mechanism, epsilon)
        assert found is not None
        remove = add = 0.0
        for chance, met, above, below in pairs:
            one, other = divergence(above, below, epsilon), divergence(below, above, epsilon)
            if met < 1.0:
                shifted = divergence(plain, flat, epsilon + math.log1p(-met))
                assert one <= met + shifted + 1e-9
                assert shifted <= divergence(plain, flat, epsilon) + met / (1.0 - met) + 1e-9
            if epsilon >= -none:
                assert other <= met + 1e-9
            remove, add = remove + chance * one, add + chance * other
        alone, reverse = divergence(plain, flat, epsilon), divergence(flat, plain, epsilon)
        slack = 1e-6 * (remove + add) + 1e-12
        assert found.share * alone - slack <= remove <= alone + found.remove + slack
        assert found.share * reverse - slack <= add <= reverse + found.add + slack
        assert add <= found.known_add + slack
        if epsilon + none > 0.0:  # Kahane
            assert add <= divergence(plain, flat, epsilon + none) + slack
        # No trivial bound, either.
        if expected < 0.01:
            assert found.remove <= 2.5 * meeting_cuts(scheme)


def test_production_case_costs_what_it_should() -> None:
    # 1793 of 14,745,600 expected, at most 2048: 1.8e-9 of delta whatever C and sigma are (shorter columns: the same rates).
    scheme = TruncatedBMinSep(
        7200, 256, hs.BMinSep.of_rate(7200, 256, 1793 / 14_745_600).sampling_probability, 14_745_600, 2048
    )
    assert 1.7e-9 < meeting_cuts(scheme) < 1.8e-9
    strategy = hs.BandedToeplitz((1.0,), 7200)
    for sigma, epsilon in ((0.39, 10.0), (0.43, 9.5)):
        found = reduction(hs.BandMF(strategy, scheme, sigma), epsilon)
        assert found is not None
        assert found.remove < 1.81e-9
        assert found.known_add < 1.8e-9
        assert found.share > 0.99998
        # What a verifier is asked to allow for.
        assert tilting(hs.BandMF(strategy, scheme, sigma), epsilon, "remove", only_above=True).extra < 1e-10
        assert found.add_above < 1e-10


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
        assert add.lower <= found.known_add
        tilted = hs.estimate_delta(mechanism, epsilon, 50_000, 3, "tilted", confidence=0.999)
        assert tilted.lower <= plain.upper
        assert plain.lower <= tilted.upper
        assert tilted.method == "tilted"


def test_without_truncation_nothing_is_added() -> None:
    strategy = hs.BandedToeplitz.square_root(8, 2)
    never = hs.BandMF(strategy, TruncatedBMinSep(8, 2, 0.2, 41, 41), 1.0)
    found = reduction(never, 3.0)
    assert found is not None
    assert found.remove == found.add == 0.0
    assert reduction(found.base, 3.0) is None


@pytest.mark.parametrize("p", [0.0, 5e-324])
def test_who_hardly_ever_takes_part(p: float) -> None:
    strategy = hs.BandedToeplitz.square_root(4, 2)
    mechanism = hs.BandMF(strategy, TruncatedBMinSep(4, 2, p, 9, 2), 1.0)
    for method in ("plain", "tilted"):
        found = hs.estimate_delta(mechanism, 0.5, 1024, 1, method)
        assert found.lower == 0.0
        assert all(0.0 <= entry.lower <= entry.estimate <= entry.upper <= 1.0 for entry in found.directions)


@pytest.mark.parametrize("adjacency", ["add", "remove", "add_or_remove"])
def test_examples_keep_their_places_where_batches_are_cut(adjacency: str) -> None:
    """Without one of them others are kept that were not, and batches differ by two."""
    scheme = TruncatedBMinSep(4, 2, 0.3, 9, 2)
    mechanism = hs.BandMF(hs.BandedToeplitz.square_root(4, 2), scheme, 1.0)
    assert scheme.adjacencies() == ("zero_out", "replace_one")
    with pytest.raises(hs.ParameterError, match="adjacency"):
        hs.estimate_delta(mechanism, 1.0, 1024, seed=1, adjacency=adjacency)
    with pytest.raises(hs.ParameterError, match="adjacency"):
        hs.calibrate_bandmf(mechanism.strategy, scheme, 3.0, 0.05, seed=1, adjacency=adjacency)


def test_without_cuts_is_less_than_always() -> None:
    mechanism = hs.BandMF(hs.BandedToeplitz.square_root(8, 2), TruncatedBMinSep(8, 2, 0.05, 41, 8), 1.0)
    found = reduction(mechanism, 1.0)
    assert 0.9 < found.share < 1.0 - 1e-4  # truncation once in fifty runs


@pytest.mark.parametrize("most", [13, 31])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 3.0, 5.0])
def test_the_theorems_of_rounds_with_coins_of_their_own_are_closed_forms(epsilon: float, most: int) -> None:
    """Theorems 7 and 9, where the table of Theorem 8 would not help: its moments are too large."""
    steps, p, size, sigma = 3, 0.3, 40, 0.7
    mechanism = hs.BandMF(hs.Identity(steps), TruncatedBMinSep(steps, 1, p, size, most), sigma)
    cut = float(stats.binom.sf(most - 1, size - 1, p))
    met, none = steps * p * cut, (1.0 - p) ** steps
    moments = {}
    for a in orders(hs.BandMF(hs.Identity(steps), hs.BMinSep(steps, 1, p), sigma)):
        j = np.arange(a + 1)
        found = special.logsumexp(stats.binom.logpmf(j, a, p) + j * (j - 1) / (2.0 * sigma**2))
        moments[a] = steps * float(found)

    def beyond(share: float) -> float:
        if share >= 1.0:
            return math.inf
        rest = math.log1p(-share)
        return math.exp(min([-rest, *(m - (a - 1) * epsilon - a * rest for a, m in moments.items())]))

    def cuts(k: int) -> float:
        return min(1.0, steps * cut) * float(stats.binom.sf(k - 2, steps, cut))

    reduced = reduction(mechanism, epsilon)
    rest = min([beyond(1.0 - none) * met, *(beyond(m * p) * met + cuts(m + 1) for m in (2, 4, 8))])
    assert reduced.remove == pytest.approx(min(1.0, met + rest), rel=1e-6)
    assert reduced.share == pytest.approx(max(0.0, 1.0 - steps * cut), rel=1e-6)
    level = math.log(none) + epsilon + math.log(-math.expm1(-epsilon)) - math.log(1.0 - none)
    known = 1.0 - none
    if level > 0.0:
        chances = ((k, float(stats.binom.pmf(k, steps, p))) for k in range(1, steps + 1))
        known = sum(chance * float(gaussian_delta(math.sqrt(k) / sigma, level)) for k, chance in chances)
    never = epsilon >= -math.log(none)
    add = met if never else met * (1.0 + math.exp(epsilon))
    assert reduced.known_add == pytest.approx(min(known, add) if never else known, rel=1e-6)
    assert reduced.add == pytest.approx(min(known, add), rel=1e-6)
    # Less is said of the mechanism itself only where the example may be missing for all that is known.
    assert reduced.add_above <= reduced.known_add
    assert never or reduced.add_above == reduced.known_add
