"""The core's losses of BandMF against the sum over all participation patterns, scheme by scheme."""

import itertools
import math

import hockeystick as hs
import numpy as np
import pytest
from hockeystick.matrix.scheme import Scheme
from numpy.polynomial.hermite_e import hermegauss
from scipy.stats import ks_2samp

from tests import enumeration
from tests.enumeration import Array, Law

STEPS = 10


def uneven(bands: int, steps: int = STEPS) -> hs.matrix.Banded:
    """A banded matrix with no structure: every column is different."""
    columns = np.random.default_rng(bands).uniform(0.1, 1.0, (steps, bands))
    for offset in range(1, bands):
        columns[steps - offset :, offset] = 0.0
    return hs.matrix.Banded(columns)


def dense(steps: int = STEPS) -> hs.matrix.LowerTriangular:
    rng = np.random.default_rng(4)
    return hs.matrix.LowerTriangular(np.tril(rng.uniform(0.1, 0.6, (steps, steps))) + 0.5 * np.eye(steps))


TOEPLITZ = {bands: hs.BandedToeplitz.square_root(STEPS, bands) for bands in (1, 3, 4, 7)}

# Scheme, its law, and the most bands a strategy may have.
SCHEMES: dict[str, tuple[Scheme, Law, int]] = {
    "poisson": (hs.Poisson(STEPS, 0.3), enumeration.poisson(STEPS, 0.3), 1),
    "cyclic": (hs.CyclicPoisson(STEPS, 4, 0.4), enumeration.cyclic_poisson(STEPS, 4, 0.4), 4),
    "bins": (hs.BallsInBins(STEPS, 4), enumeration.balls_in_bins(STEPS, 4), STEPS),
    "more bins than steps": (hs.BallsInBins(STEPS, 13), enumeration.balls_in_bins(STEPS, 13), STEPS),
    "cold": (hs.BMinSep(STEPS, 4, 0.35, False), enumeration.min_sep(STEPS, 4, 0.35), 4),
    "cold, n < 2b": (hs.BMinSep(STEPS, 7, 0.35, False), enumeration.min_sep(STEPS, 7, 0.35), 7),
    "warm": (hs.BMinSep(STEPS, 4, 0.35), enumeration.min_sep(STEPS, 4, 0.35, True), 4),
    "warm, n < 2b": (hs.BMinSep(STEPS, 7, 0.2), enumeration.min_sep(STEPS, 7, 0.2, True), 7),
    "warm, p = 1": (hs.BMinSep(STEPS, 4, 1.0), enumeration.balls_in_bins(STEPS, 4), 4),
    "cold, p = 1": (hs.BMinSep(STEPS, 4, 1.0, False), enumeration.min_sep(STEPS, 4, 1.0), 4),
    "b = 1": (hs.BMinSep(STEPS, 1, 0.3), enumeration.poisson(STEPS, 0.3), 1),
    "users": (
        hs.matrix.MultiAttributionBMinSep(STEPS, 4, 0.2, 3),
        enumeration.multi_attribution(STEPS, 4, 0.2, 3),
        4,
    ),
    "users, one example": (
        hs.matrix.MultiAttributionBMinSep(STEPS, 4, 0.2, 1),
        enumeration.min_sep(STEPS, 4, 0.2),
        4,
    ),
    "users, exact": (
        hs.matrix.MultiAttributionBMinSep(STEPS, 4, 0.2, 2, "exact"),
        enumeration.isolated_user(STEPS, 4, 0.2, 2),
        4,
    ),
    "users, exact, n < 2b": (
        hs.matrix.MultiAttributionBMinSep(STEPS, 7, 0.2, 2, "exact"),
        enumeration.isolated_user(STEPS, 7, 0.2, 2),
        7,
    ),
}
STRATEGIES: dict[str, hs.matrix.Strategy] = {
    **{f"toeplitz {bands}": strategy for bands, strategy in TOEPLITZ.items()},
    **{f"uneven {bands}": uneven(bands) for bands in (1, 3, 4, 7)},
    "dense": dense(),
}
PAIRS = [
    (scheme, strategy)
    for (scheme, (_, _, most)), (strategy, matrix) in itertools.product(SCHEMES.items(), STRATEGIES.items())
    # Cyclic Poisson stands for all groups, which is one law only if C is Toeplitz.
    if matrix.bands <= most and (scheme != "cyclic" or strategy.startswith("toeplitz"))
]


def close(found: Array, exact: Array) -> bool:
    return bool(np.allclose(found, exact, rtol=1e-12, atol=2e-14))


@pytest.mark.parametrize(("scheme", "strategy"), PAIRS)
@pytest.mark.parametrize("sigma", [0.3, 2.0])
def test_loss_is_the_sum_over_all_patterns(scheme: str, strategy: str, sigma: float) -> None:
    description, law, _ = SCHEMES[scheme]
    matrix = STRATEGIES[strategy].matrix()
    mechanism = hs.BandMF(STRATEGIES[strategy], description, sigma)
    rng = np.random.default_rng(1)
    none: Law = [(1.0, (0.0,) * STEPS)]
    for outputs in (
        enumeration.outputs(law, matrix, sigma, 40, rng),  # direction "remove"
        enumeration.outputs(none, matrix, sigma, 40, rng),  # direction "add"
    ):
        assert close(mechanism.privacy_loss(outputs), enumeration.log_ratio(law, matrix, sigma, outputs))


@pytest.mark.parametrize("strategy", ["toeplitz 4", "uneven 4"])
@pytest.mark.parametrize("group", [0, 1, 3])
def test_every_group_of_cyclic_poisson(strategy: str, group: int) -> None:
    matrix = STRATEGIES[strategy].matrix()
    law = [
        (probability, (0.0,) * group + values[: STEPS - group])
        for probability, values in enumeration.cyclic_poisson(STEPS, 4, 0.4)
    ]
    mechanism = hs.BandMF(STRATEGIES[strategy], hs.CyclicPoisson(STEPS, 4, 0.4, group), 0.8)
    outputs = enumeration.outputs(law, matrix, 0.8, 40, np.random.default_rng(1))
    assert close(mechanism.privacy_loss(outputs), enumeration.log_ratio(law, matrix, 0.8, outputs))


@pytest.mark.parametrize("warm_start", [False, True])
@pytest.mark.parametrize("strategy", ["toeplitz 3", "toeplitz 7", "uneven 7", "uneven 1"])
def test_truncated_loss_given_the_public_counts(strategy: str, warm_start: bool) -> None:
    matrix, p = STRATEGIES[strategy].matrix(), 0.3
    mechanism = hs.BandMF(
        STRATEGIES[strategy], hs.matrix.TruncatedBMinSep(STEPS, 7, p, 30, 4, warm_start), noise_multiplier=0.7
    )
    base = enumeration.min_sep(STEPS, 7, p, warm_start)
    rng = np.random.default_rng(2)
    for counts in ([0] * STEPS, [4] * STEPS, [3, 4, 5, 0, 12, 3, 29, 4, 0, 7]):
        law_p = enumeration.truncated(base, counts, 4, full=1.0, cut=2.0)
        law_q = enumeration.truncated(base, counts, 4, full=0.0, cut=-1.0)
        outputs = np.concatenate([enumeration.outputs(law, matrix, 0.7, 30, rng) for law in (law_p, law_q)])
        found = mechanism.privacy_loss(outputs, np.tile(counts, (60, 1)))
        assert close(found, enumeration.loss(law_p, law_q, matrix, 0.7, outputs))


@pytest.mark.parametrize("warm_start", [False, True])
@pytest.mark.parametrize("min_sep", [2, 4, 10])
@pytest.mark.parametrize("strategy", ["dense", "uneven 7", "toeplitz 7"])
def test_r_min_sep_is_lemma_b1_and_bounds_the_loss(strategy: str, min_sep: int, warm_start: bool) -> None:
    matrix, sigma = STRATEGIES[strategy].matrix(), 0.8
    law = enumeration.min_sep(STEPS, min_sep, 0.3, warm_start)
    mechanism = hs.BandMF(STRATEGIES[strategy], hs.matrix.RMinSep(STEPS, min_sep, 0.3, warm_start), sigma)
    outputs = np.concatenate(
        [
            enumeration.outputs(law, matrix, sigma, 100, np.random.default_rng(3)),
            sigma * np.random.default_rng(4).standard_normal((100, STEPS)),
        ]
    )
    exact = enumeration.log_ratio(law, matrix, sigma, outputs)
    upper = mechanism.privacy_loss(outputs)
    assert close(upper, enumeration.upper_log_ratio(law, matrix, sigma, outputs))
    assert (upper >= exact - 1e-12).all()
    # In the other direction too much is -ln P/Q from above.
    other = mechanism._blocks("add").evaluate(outputs, np.empty((0, 0)))
    assert (other >= -exact - 1e-12).all()
    if min_sep == STEPS:  # no two participations
        assert close(upper, exact)
        assert close(other, -exact)


@pytest.mark.parametrize("name", ["cold", "warm", "bins", "users", "users, exact"])
def test_the_ratio_integrates_to_one(name: str) -> None:
    # Over three steps by Gauss-Hermite quadrature: E_Q[P/Q] = 1.
    scheme: Scheme = {
        "cold": hs.BMinSep(3, 2, 0.3, False),
        "warm": hs.BMinSep(3, 2, 0.3),
        "bins": hs.BallsInBins(3, 2),
        "users": hs.matrix.MultiAttributionBMinSep(3, 2, 0.3, 2),
        "users, exact": hs.matrix.MultiAttributionBMinSep(3, 2, 0.3, 2, "exact"),
    }[name]
    nodes, weights = hermegauss(36)
    weights = weights / weights.sum()
    sigma = 1.2
    outputs = sigma * np.array(list(itertools.product(nodes, repeat=3)))
    mass = np.array([math.prod(w) for w in itertools.product(weights, repeat=3)])
    mechanism = hs.BandMF(hs.BandedToeplitz((1.0, 0.6), 3), scheme, sigma)
    assert math.fsum(mass * np.exp(mechanism.privacy_loss(outputs))) == pytest.approx(1.0, rel=1e-11)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "name",
    ["poisson", "cyclic", "bins", "cold", "cold, n < 2b", "warm", "warm, n < 2b", "users", "users, exact"],
)
@pytest.mark.parametrize("direction", ["remove", "add"])
def test_samples_follow_the_law(name: str, direction: str) -> None:
    scheme, law, most = SCHEMES[name]
    strategy = TOEPLITZ[max(bands for bands in TOEPLITZ if bands <= most and bands <= 4)]
    sigma, samples = 1.5, 8000
    found = hs.BandMF(strategy, scheme, sigma).sample_losses(samples, seed=5, direction=direction)
    source: Law = law if direction == "remove" else [(1.0, (0.0,) * STEPS)]
    outputs = enumeration.outputs(source, strategy.matrix(), sigma, samples, np.random.default_rng(6))
    exact = enumeration.log_ratio(law, strategy.matrix(), sigma, outputs)
    assert ks_2samp(found, exact if direction == "remove" else -exact).pvalue > 1e-3
    # E_P[Q/P] = E_Q[P/Q] = 1.
    ratios = np.exp(-found)
    assert abs(ratios.mean() - 1.0) <= 5.0 * ratios.std() / math.sqrt(samples) + 1e-12


def others(
    rng: np.random.Generator, samples: int, examples: int, min_sep: int, p: float, warm_start: bool
) -> Array:
    """How many of ``examples`` independent examples are sampled in each step: (samples, STEPS)."""
    law = enumeration.min_sep(STEPS, min_sep, p, warm_start)
    chosen = rng.choice(len(law), size=(samples, examples), p=[weight for weight, _ in law])
    patterns = np.array([pattern for _, pattern in law])
    return np.asarray(patterns[chosen].sum(axis=1))


@pytest.mark.sweep
@pytest.mark.parametrize("warm_start", [False, True])
@pytest.mark.parametrize("direction", ["remove", "add"])
def test_truncated_samples_follow_the_law(direction: str, warm_start: bool) -> None:
    min_sep, p, size, most, sigma, samples = 4, 0.2, 12, 2, 1.2, 1500
    strategy = TOEPLITZ[4]
    mechanism = hs.BandMF(
        strategy, hs.matrix.TruncatedBMinSep(STEPS, min_sep, p, size, most, warm_start), sigma
    )
    found = mechanism.sample_losses(samples, seed=8, direction=direction)
    base = enumeration.min_sep(STEPS, min_sep, p, warm_start)
    rng = np.random.default_rng(9)
    counts = others(rng, samples, size - 1, min_sep, p, warm_start)
    exact = np.empty(samples)
    for i, r in enumerate(counts):
        law_p = enumeration.truncated(base, r.astype(int).tolist(), most, full=1.0, cut=2.0)
        law_q = enumeration.truncated(base, r.astype(int).tolist(), most, full=0.0, cut=-1.0)
        source = law_p if direction == "remove" else law_q
        outputs = enumeration.outputs(source, strategy.matrix(), sigma, 1, rng)
        exact[i] = enumeration.loss(law_p, law_q, strategy.matrix(), sigma, outputs)[0]
    assert ks_2samp(found, exact if direction == "remove" else -exact).pvalue > 1e-3
    ratios = np.exp(-found)
    assert abs(ratios.mean() - 1.0) <= 5.0 * ratios.std() / math.sqrt(samples) + 1e-12


def test_one_band_is_the_poisson_accountant() -> None:
    strategy, q, sigma = hs.Identity(50), 0.1, 0.9
    for scheme in (hs.Poisson(50, q), hs.BMinSep(50, 1, q), hs.BMinSep(50, 1, q, False)):
        found = hs.estimate_delta(hs.BandMF(strategy, scheme, sigma), 1.0, 200_000, seed=3, confidence=0.999)
        for entry in found.directions:
            known = hs.account(hs.PoissonSampled(hs.Gaussian(sigma), q) * 50, entry.direction).delta_bounds(
                1.0
            )
            assert entry.lower <= known.upper
            assert known.lower <= entry.upper <= 1.2 * known.upper
