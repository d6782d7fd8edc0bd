"""Replacing an example: the pair against every adversary tried, whole mechanisms, and the samples against enumeration.

The oracles are densities on grids and sums over patterns or over whole runs (`tests/enumeration.py`, `tests/batch_laws.py`).
"""

import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hockeystick as hs
import numpy as np
import pytest
from hockeystick import _core
from hockeystick.matrix.min_sep import RMinSep, TruncatedBMinSep
from hockeystick.montecarlo.tilted import orders
from hockeystick.montecarlo.truncation import TwoMixtures, tilting
from scipy import special, stats

from bench.baselines.exact import gaussian_delta
from tests import batch_laws, enumeration

Array = np.ndarray
THREE = hs.BandedToeplitz((1.0, 0.6, 0.3), 5)


def mirrored(law: enumeration.Law) -> enumeration.Law:
    return [(weight, tuple(-x for x in pattern)) for weight, pattern in law]


def normal(x: Array, mean: Array | float, sigma: float) -> Array:
    return np.exp(-0.5 * ((x - mean) / sigma) ** 2) / (sigma * math.sqrt(2.0 * math.pi))


# --- The pair ---------------------------------------------------------------------------------------------


def test_no_adaptive_adversary_beats_the_pair() -> None:
    """Two rounds; the second contributions are the best ones for every first output: dynamic programming, no theorem."""
    rng = np.random.default_rng(5)
    y = np.linspace(-9.0, 9.0, 73)
    h = y[1] - y[0]
    levels = np.array([-1.0, -0.4, 0.3, 1.0])
    for trial in range(12):
        patterns = np.array(list(itertools.product(range(3 if trial % 3 == 0 else 2), repeat=2)), float)
        p = rng.dirichlet(np.full(len(patterns), 0.7))
        c = np.array([[1.0, 0.0], [rng.uniform(0.0, 1.5), rng.uniform(0.2, 1.2)]])
        sigma, a = rng.uniform(0.6, 1.5), math.exp(rng.uniform(-0.7, 1.5))

        def rows(
            g1: float, g2: Array, patterns: Array = patterns, p: Array = p, c: Array = c, sigma: float = sigma
        ) -> Array:
            """Density of (y1, y2) for each choice of the second contribution: (choices, y1, y2)."""
            out = np.zeros((len(g2), len(y), len(y)))
            for weight, (x1, x2) in zip(p, patterns, strict=True):
                first = normal(y, c[0, 0] * x1 * g1, sigma)
                means = c[1, 0] * x1 * g1 + c[1, 1] * x2 * g2
                out += weight * first[:, None] * normal(y[None, :], means[:, None], sigma)[:, None, :]
            return out

        worst = float(np.maximum(rows(1.0, np.ones(1)) - a * rows(-1.0, -np.ones(1)), 0.0).sum()) * h * h
        best = 0.0
        for g1, h1 in itertools.product(levels, repeat=2):
            with_e, with_other = rows(g1, levels), a * rows(h1, levels)
            gains = np.maximum(with_e[:, None] - with_other[None, :], 0.0).sum(axis=-1) * h
            best = max(best, float(gains.max(axis=(0, 1)).sum()) * h)
        # The opposite ends are among the choices, and nothing is better.
        assert worst * (1.0 - 1e-9) <= best <= worst * (1.0 + 1e-9)


def test_no_vectors_in_the_plane_beat_the_pair() -> None:
    """Contributions of two rounds with two bands in R^2: densities on a grid in R^4."""
    rng = np.random.default_rng(7)
    y = np.linspace(-6.0, 6.0, 25)
    fine = np.linspace(-9.0, 9.0, 181)
    c = np.array([[1.0, 0.0], [0.7, 0.8]])
    law = enumeration.poisson(2, 0.4)
    for a in (0.7, 1.0, 2.5):
        scalar = [
            sum(
                w * normal(fine, s * mean[0], 1.2)[:, None] * normal(fine, s * mean[1], 1.2)[None, :]
                for w, x in law
                for mean in [c @ np.array(x)]
            )
            for s in (1.0, -1.0)
        ]
        bound = float(np.maximum(scalar[0] - a * scalar[1], 0.0).sum()) * (fine[1] - fine[0]) ** 2
        for trial in range(4):
            angles = rng.uniform(0.0, 2.0 * math.pi, (2, 2))
            if trial == 0:  # e and e' opposite, but along another line in each round
                angles[1] = angles[0] + math.pi
            worlds = []
            for directions in np.stack([np.cos(angles), np.sin(angles)], axis=-1):
                means = [(w, c @ (np.array(x)[:, None] * directions)) for w, x in law]
                parts = [[normal(y, v, 1.2) for v in mean.ravel()] for _, mean in means]
                worlds.append(
                    sum(
                        w * np.einsum("i,j,k,l->ijkl", *part)
                        for (w, _), part in zip(means, parts, strict=True)
                    )
                )
            found = float(np.maximum(worlds[0] - a * worlds[1], 0.0).sum()) * (y[1] - y[0]) ** 4
            assert found <= bound * 1.01


def on_grid(law: enumeration.Law, c: Array, sigma: float, grid: Array) -> Array:
    """The density of two outputs."""
    return sum(
        w * normal(grid, mean[0], sigma)[:, None] * normal(grid, mean[1], sigma)[None, :]
        for w, x in law
        for mean in [c @ np.array(x)]
    )


def pair_on_grid(law: enumeration.Law, c: Array, sigma: float, a: float, grid: Array) -> float:
    """H_a of the mixture of N(Cx) from its mirror image, for two rounds."""
    difference = on_grid(law, c, sigma, grid) - a * on_grid(mirrored(law), c, sigma, grid)
    return float(np.maximum(difference, 0.0).sum()) * float(grid[1] - grid[0]) ** 2


def counts_law(n: int, b: int, p: float, warm: bool) -> dict[tuple[int, int], float]:
    """How many of the others are sampled in the two rounds."""
    found: dict[tuple[int, int], float] = {}
    for run, weight in batch_laws.min_sep(n, 2, b, p, warm).items():
        r = (len(run[0]), len(run[1]))
        found[r] = found.get(r, 0.0) + weight
    return found


@pytest.mark.parametrize("kind", ["b-min-sep", "balls-in-bins", "truncated"])
def test_whole_mechanisms_lie_below_the_pair_and_the_pair_in_the_interval(kind: str) -> None:
    """Three examples, two rounds: every run of all their batches, companions of either sign, both ends for e."""
    c = np.array([[1.0, 0.0], [0.6, 0.9]])
    sigma, a, p, b = 0.9, math.exp(0.6), 0.45, 2
    strategy = hs.matrix.LowerTriangular(c)
    grid = np.linspace(-9.0, 9.0, 181)
    if kind == "balls-in-bins":
        scheme, runs = hs.BallsInBins(2, 2), batch_laws.balls_in_bins(3, 2, 2)
        pairs = [(1.0, enumeration.balls_in_bins(2, 2))]
    elif kind == "b-min-sep":
        scheme, runs = hs.BMinSep(2, b, p), batch_laws.min_sep(3, 2, b, p, True)
        pairs = [(1.0, enumeration.min_sep(2, b, p, True))]
    else:
        scheme, runs = TruncatedBMinSep(2, b, p, 3, 1), batch_laws.min_sep(3, 2, b, p, True, most=1)
        alone = enumeration.min_sep(2, b, p, True)
        pairs = [
            (weight, enumeration.truncated(alone, r, 1, 1.0, 2.0))
            for r, weight in counts_law(2, b, p, True).items()
        ]
    bound = sum(weight * pair_on_grid(law, c, sigma, a, grid) for weight, law in pairs)

    def output(contributions: tuple[float, ...]) -> Array:
        sums: dict[tuple[float, float], float] = {}
        for run, weight in runs.items():
            s = tuple(round(sum(contributions[e] for e in batch), 9) for batch in run)
            sums[s] = sums.get(s, 0.0) + weight
        return sum(
            w * normal(grid, mean[0], sigma)[:, None] * normal(grid, mean[1], sigma)[None, :]
            for s, w in sums.items()
            for mean in [c @ np.array(s)]
        )

    found = []
    for others in itertools.product((-1.0, 0.0, 1.0), repeat=2):
        for one, two in ((1.0, -1.0), (1.0, 0.0), (-1.0, 0.5)):
            difference = output((one, *others)) - a * output((two, *others))
            found.append(float(np.maximum(difference, 0.0).sum()) * (grid[1] - grid[0]) ** 2)
    assert max(found) <= bound * (1.0 + 1e-3)
    if kind != "truncated":
        assert max(found) >= bound * (1.0 - 1e-3)
    # Whatever is cut, all coins together say no more than one participation after the other.
    reach = strategy.sensitivity(scheme.unamplified()[0], None) * scheme.unamplified()[1] / sigma
    alone = hs.account(hs.Gaussian(1.0 / reach)).delta(0.6)
    for others in itertools.product((-1.0, 0.0, 1.0), repeat=2):
        difference = output((1.0, *others)) - a * output((0.0, *others))
        assert float(np.maximum(difference, 0.0).sum()) * (grid[1] - grid[0]) ** 2 <= alone * (1.0 + 1e-3)
    estimate = hs.estimate_delta(
        hs.BandMF(strategy, scheme, sigma),
        0.6,
        60_000,
        3,
        "plain",
        adjacency="replace_one",
        confidence=0.9999,
    )
    assert estimate.lower <= bound * (1.0 + 1e-3)
    assert bound * (1.0 - 1e-3) <= estimate.upper
    assert len(estimate.directions) == 1


# --- The losses -------------------------------------------------------------------------------------------

SCHEMES = {
    "warm": (hs.BMinSep(5, 3, 0.3), enumeration.min_sep(5, 3, 0.3, True)),
    "cold": (hs.BMinSep(5, 4, 0.3, False), enumeration.min_sep(5, 4, 0.3, False)),
    "longer than the run": (hs.BMinSep(5, 8, 0.3), enumeration.min_sep(5, 8, 0.3, True)),
    "bins": (hs.BallsInBins(5, 2), enumeration.balls_in_bins(5, 2)),
    "cyclic": (hs.CyclicPoisson(5, 3, 0.4), enumeration.cyclic_poisson(5, 3, 0.4)),
}


def outputs(law: enumeration.Law, matrix: Array, sigma: float) -> Array:
    """Along every pattern, and anywhere."""
    rng = np.random.default_rng(1)
    y = np.array([x for _, x in law]) @ matrix.T * rng.uniform(-2.0, 2.0, (len(law), 1))
    return np.vstack([y, 10.0 * y, rng.standard_normal((40, len(matrix))) * 2.0 * sigma])


@pytest.mark.parametrize("name", SCHEMES)
def test_losses_against_enumeration(name: str) -> None:
    scheme, law = SCHEMES[name]
    matrix = THREE.matrix()
    for sigma in (0.3, 1.1):
        mechanism = hs.BandMF(THREE, scheme, sigma)
        y = outputs(law, matrix, sigma)
        expected = enumeration.log_ratio(law, matrix, sigma, y) - enumeration.log_ratio(
            mirrored(law), matrix, sigma, y
        )
        core = mechanism._blocks("replace_one")
        seen = scheme.seen_outputs(THREE, y)
        found = core.evaluate(seen, np.empty((0, 0)))
        assert np.abs(found - expected).max() < 1e-11 * (1.0 + np.abs(expected).max())
        assert np.array_equal(core.evaluate(-seen, np.empty((0, 0))), -found)
        # What is drawn has the law of P, and delta is the mean of what it shows.
        drawn = mechanism.sample_losses(30_000, seed=2, direction="replace_one")
        weights = np.exp(-drawn)  # E_P[Q/P] = 1
        assert (
            abs(weights.mean() - 1.0) < 6.0 * max(weights.std(), 0.05) / math.sqrt(len(drawn)) or sigma < 1.0
        )


def test_losses_given_public_counts() -> None:
    scheme, sigma = TruncatedBMinSep(5, 3, 0.3, 9, 2), 0.9
    mechanism = hs.BandMF(THREE, scheme, sigma)
    law, matrix = enumeration.min_sep(5, 3, 0.3, True), THREE.matrix()
    y = outputs(law, matrix, sigma)
    core = mechanism._blocks("replace_one")
    for r in [(0, 0, 0, 0, 0), (2, 0, 3, 8, 1), (2, 2, 2, 2, 2), (8, 1, 1, 8, 8)]:
        given = enumeration.truncated(law, r, 2, 1.0, 2.0)
        expected = enumeration.log_ratio(given, matrix, sigma, y) - enumeration.log_ratio(
            mirrored(given), matrix, sigma, y
        )
        found = core.evaluate(y, np.tile(np.array(r, float), (len(y), 1)))
        assert np.abs(found - expected).max() < 1e-11 * (1.0 + np.abs(expected).max())


def test_overlapping_columns_give_losses_that_are_too_large() -> None:
    """RMinSep: three bands, participations two apart."""
    law, matrix = enumeration.min_sep(5, 2, 0.4, True), THREE.matrix()
    mechanism = hs.BandMF(THREE, RMinSep(5, 2, 0.4), 0.8)
    y = outputs(law, matrix, 0.8)
    true = enumeration.log_ratio(law, matrix, 0.8, y) - enumeration.log_ratio(mirrored(law), matrix, 0.8, y)
    bound = mechanism._blocks("replace_one").evaluate(y, np.empty((0, 0)))
    assert (bound >= true - 1e-11 * (1.0 + np.abs(true))).all()
    assert (bound > true + 1e-3).any()
    estimate = hs.estimate_delta(mechanism, 0.5, 20_000, 1, adjacency="replace_one")
    assert estimate.lower == 0.0
    assert estimate.method == "plain"


# --- Importance sampling ----------------------------------------------------------------------------------


def test_against_the_certified_profile_deep_in_the_tail() -> None:
    for mechanism in (
        hs.BandMF(hs.Identity(100), hs.Poisson(100, 0.01), 0.7),
        hs.BandMF(hs.BandedToeplitz.square_root(60, 3), hs.CyclicPoisson(60, 3, 0.03), 0.9),
        hs.BandMF(hs.Identity(40), hs.BMinSep(40, 1, 0.02), 0.8),
    ):
        scheme = mechanism.scheme
        same = mechanism if scheme.is_analytic else hs.PoissonSampled(hs.Gaussian(0.8), 0.02) * 40
        profile = hs.account(same, "replace_one")
        for epsilon in (2.0, 5.0):
            exact = profile.delta_bounds(epsilon)
            found = hs.estimate_delta(
                mechanism, epsilon, 20_000, 4, "tilted", adjacency="replace_one", confidence=0.9999
            )
            assert found.method == "tilted"
            assert found.lower <= exact.upper
            assert exact.lower <= found.upper
            assert found.upper < 10.0 * exact.upper


def test_every_value_is_below_its_bound() -> None:
    """Outputs along every pattern, against the claim itself; and the normaliser's part of R in Q."""
    for name in ("warm", "cold", "cyclic"):
        scheme, law = SCHEMES[name]
        mechanism = hs.BandMF(THREE, scheme, 0.6)
        parts = ((0.5, 2, 1.0, 0.0), (0.5, 0, 2.0, 0.5))
        core = TwoMixtures(mechanism, "replace_one")._tilted(parts)
        none = math.log(math.fsum(w for w, x in law if not any(x)))
        matrix = THREE.matrix()
        means = np.array([x for _, x in law]) @ matrix.T
        p = np.array([w for w, _ in law])
        moment = math.log((p[:, None] * p * np.exp(means @ means.T / 0.36)).sum())
        assert core.log_normaliser(0) == pytest.approx(moment - none, abs=1e-9)
        y = outputs(law, matrix, 0.6)
        over = enumeration.log_ratio(law, matrix, 0.6, y)
        under = enumeration.log_ratio(mirrored(law), matrix, 0.6, y)
        assert (under >= none - 1e-9).all()
        for epsilon in (0.0, 1.0, 4.0):
            log_value = over + np.log(np.maximum(1e-300, -np.expm1(np.minimum(0.0, epsilon + under - over))))
            assert (log_value - (math.log(0.5) + 2.0 * over - moment) <= core.log_bound(epsilon) + 1e-9).all()


def test_what_rare_truncation_adds() -> None:
    """Corollary 5 for every r of two rounds, densities on a grid."""
    c, sigma, p, b, most = np.array([[1.0, 0.0], [0.6, 0.9]]), 1.0, 0.35, 2, 2
    law = enumeration.min_sep(2, b, p, True)
    none = math.fsum(w for w, x in law if not any(x))
    grid = np.linspace(-10.0, 10.0, 161)
    means = np.array([x for _, x in law]) @ c.T
    weights = np.array([w for w, _ in law])
    second = float((weights[:, None] * weights * np.exp(means @ means.T / sigma**2)).sum())
    for a in (1.0, math.e, math.exp(3.0)):
        g = min(1.0 / none, second / (a * none**2))
        whole = pair_on_grid(law, c, sigma, a, grid)
        for r in itertools.product((1, 2, 5), repeat=2):
            met = math.fsum(w for w, x in law if any(v and k >= most for v, k in zip(x, r, strict=True)))
            cut = pair_on_grid(enumeration.truncated(law, r, most, 1.0, 2.0), c, sigma, a, grid)
            assert cut <= whole + met * (1.0 + g) + 1e-9
    # The mechanism itself, a record of any value left out: where e meets a cut, all coins are shown.
    for b, c in ((1, np.diag([1.0, 0.9])), (2, np.array([[1.0, 0.0], [0.6, 0.9]]))):
        law = enumeration.min_sep(2, b, p, True)
        none = math.fsum(w for w, x in law if not any(x))
        means, weights = np.array([x for _, x in law]) @ c.T, np.array([w for w, _ in law])
        second = float((weights[:, None] * weights * np.exp(means @ means.T / sigma**2)).sum())
        norm = max(float(np.linalg.norm(column)) for column in c.T)
        for epsilon, r in itertools.product((0.3, 2.0, 4.0), ((2, 0), (2, 2), (0, 5))):
            a = math.exp(epsilon)
            hit = [(w, sum(x)) for w, x in law if any(v and k >= most for v, k in zip(x, r, strict=True))]
            seen = math.fsum(
                w * hs.account(hs.Gaussian(sigma / (2.0 * math.sqrt(j) * norm))).delta(epsilon)
                for w, j in hit
            )
            g = min(1.0 / none, second / (a * none**2))
            bound = pair_on_grid(law, c, sigma, a, grid) + g * math.fsum(w for w, _ in hit) + seen
            for v in (-1.0, 0.0, 1.0):
                one, two = (
                    on_grid(enumeration.truncated(law, r, most, own, own - v), c, sigma, grid)
                    for own in (1.0, -1.0)
                )
                found = float(np.maximum(one - a * two, 0.0).sum()) * float(grid[1] - grid[0]) ** 2
                assert found <= bound + 1e-9
    # The plan takes the untruncated sampler where truncation is rare, and adds that.
    scheme = TruncatedBMinSep(32, 4, 0.01, 2000, 45)
    found = tilting(hs.BandMF(hs.BandedToeplitz.square_root(32, 4), scheme, 1.5), 3.0, "replace_one")
    assert found.mechanism.mechanism.scheme == hs.BMinSep(32, 4, 0.01)
    assert 0.0 < found.extra < 1e-6
    often = TruncatedBMinSep(32, 4, 0.01, 2000, 19)
    found = tilting(hs.BandMF(hs.BandedToeplitz.square_root(32, 4), often, 1.5), 3.0, "replace_one")
    assert found.mechanism.mechanism.scheme == often


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 3.0])
def test_what_rare_truncation_adds_is_that_of_corollary_5(epsilon: float) -> None:
    """Rounds with coins of their own: every number of the corollary is a closed form."""
    steps, p, size, most, sigma = 3, 0.3, 40, 31, 1.5
    mechanism = hs.BandMF(hs.Identity(steps), TruncatedBMinSep(steps, 1, p, size, most), sigma)
    cut = float(stats.binom.sf(most - 1, size - 1, p))
    met, none = steps * p * cut, (1.0 - p) ** steps
    logs = [-math.log(none)]
    for a in orders(hs.BandMF(hs.Identity(steps), hs.BMinSep(steps, 1, p), sigma)):
        j = np.arange(a + 1)
        moment = steps * special.logsumexp(stats.binom.logpmf(j, a, p) + j * (j - 1) / (2.0 * sigma**2))
        logs.append(float(moment) - (a - 1) * epsilon - a * math.log(none))
    g = math.exp(min(logs))
    shown = 0.0
    for k in range(1, steps + 1):
        mu = 2.0 * math.sqrt(k) / sigma
        shown += k * stats.binom.pmf(k, steps, p) * cut * float(gaussian_delta(mu, epsilon))
    found = tilting(mechanism, epsilon, "replace_one")
    assert found.extra == pytest.approx(met * (1.0 + g), rel=1e-6)
    assert 1.0 - found.share == pytest.approx(steps * cut, rel=1e-6)
    above = tilting(mechanism, epsilon, "replace_one", only_above=True)
    assert above.extra == pytest.approx(min(met, shown) + met * g, rel=1e-6)


def test_plain_and_tilted_agree_whatever_the_threads(tmp_path: Path) -> None:
    mechanism = hs.BandMF(hs.BandedToeplitz.square_root(40, 4), hs.BMinSep(40, 4, 0.02), 1.2)

    def go(seed: int, samples: int, method: str, **settings: object) -> hs.montecarlo.DeltaEstimate:
        return hs.estimate_delta(  # type: ignore[arg-type]
            mechanism, 1.5, samples, seed, method, adjacency="replace_one", confidence=0.999, **settings
        )

    whole, plain = go(3, 20_000, "tilted"), go(4, 100_000, "plain")
    assert (whole.method, plain.method) == ("tilted", "plain")
    assert whole.lower <= plain.upper
    assert plain.lower <= whole.upper
    zero_out = hs.estimate_delta(mechanism, 1.5, 20_000, 3, "tilted")
    assert zero_out.upper < whole.lower  # a replaced example moves twice as far
    _core.set_threads(1)
    try:
        assert go(3, 20_000, "tilted") == whole
    finally:
        _core.set_threads(0)
    assert go(3, 20_000, "tilted", checkpoint=tmp_path) == whole
    with ThreadPoolExecutor(2) as executor:
        assert go(3, 20_000, "tilted", executor=executor) == whole


# --- What rests on it -------------------------------------------------------------------------------------


def test_calibrations_and_plans() -> None:
    strategy = hs.BandedToeplitz.square_root(24, 3)
    given = {"epsilon": 3.0, "delta": 1e-5, "adjacency": "replace_one"}
    found = hs.calibrate_bandmf(strategy, hs.BMinSep(24, 3, 0.03), seed=3, candidates=[2.2, 1.9], **given)
    assert type(found.plan).__name__ == "TiltedPlan"
    assert "one record is replaced by another" in found.statement()
    # Without a bound on the weights, plain samples; balls-in-bins with independent noise is no composition here.
    bins = hs.calibrate_bandmf(
        hs.Identity(12),
        hs.BallsInBins(12, 4),
        3.0,
        0.02,
        adjacency="replace_one",
        seed=3,
        candidates=[2.0, 1.8],
    )
    assert type(bins.plan).__name__ == "VerificationPlan"
    plan = hs.plan_training(
        hs.BallsInBins(12, 4), 40, epsilon=20.0, delta=0.05, noise_multiplier=1.5, adjacency="replace_one"
    )
    assert (plan.guarantee.kind, plan.adjacency) == ("verified", "replace_one")
    assert plan.spent(8) is None  # as an account cannot say
    # The noise without amplification: a replaced example moves the sum by twice its norm, cut or not.
    cut = hs.calibrate_bandmf(
        strategy,
        TruncatedBMinSep(24, 3, 0.2, 50, 9),
        3.0,
        0.02,
        adjacency="replace_one",
        seed=3,
        candidates=[1e-3],
    )
    alone = hs.account(hs.Gaussian(cut.noise_multiplier / strategy.sensitivity(3, None)), "replace_one")
    assert cut.fell_back
    assert alone.delta(3.0) <= 0.02
    assert (
        hs.calibrate_bandmf(
            strategy, hs.CyclicPoisson(24, 3, 0.2, dataset_size=90, max_batch_size=9), **given
        ).process
        is not None
    )


@pytest.mark.parametrize(
    "scheme",
    [hs.BMinSep(8, 2, 0.1, examples_per_user=2), hs.matrix.MultiAttributionBMinSep(8, 2, 0.1, 2)],
)
def test_users_are_protected_under_zero_out_only(scheme: hs.matrix.Scheme) -> None:
    mechanism = hs.BandMF(hs.BandedToeplitz.square_root(8, 2), scheme, 1.0)
    with pytest.raises(hs.ParameterError, match="adjacency = 'replace_one': must be one of 'zero_out'"):
        hs.estimate_delta(mechanism, 1.0, 1000, 1, adjacency="replace_one")
    with pytest.raises(hs.ParameterError, match="adjacency = 'add_or_remove'"):
        hs.estimate_delta(
            hs.BandMF(hs.Identity(4), TruncatedBMinSep(4, 2, 0.1, 30, 4), 1.0),
            1.0,
            1000,
            1,
            adjacency="add_or_remove",
        )


def test_released_together_with_others() -> None:
    """The loss of both, against a certified composition."""
    mechanism = hs.BandMF(hs.Identity(20), hs.BMinSep(20, 1, 0.05), 1.0)
    others = hs.Gaussian(4.0)
    both = hs.account(hs.PoissonSampled(hs.Gaussian(1.0), 0.05) * 20 + others, "replace_one").delta_bounds(
        1.0
    )
    found = hs.estimate_delta(
        mechanism, 1.0, 100_000, 2, adjacency="replace_one", composed_with=others, confidence=0.9999
    )
    assert found.method == "plain"
    assert found.lower <= both.upper
    assert both.lower <= found.upper
