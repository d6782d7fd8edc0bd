"""The NumPy baseline against the sum over all participation patterns."""

import itertools
from fractions import Fraction

import hockeystick as hs
import numpy as np
import pytest
from hockeystick.matrix.scheme import Scheme

from bench.baselines import bandmf as baseline
from tests import enumeration

STRATEGIES = {
    "square-root": hs.BandedToeplitz.square_root(10, 4),
    "one band": hs.Identity(10),
    "n < 2b": hs.BandedToeplitz.square_root(10, 7),
    "not Toeplitz": hs.matrix.Banded(
        [[1.0 + 0.1 * j, *(0.7 - 0.05 * j if j < 10 - k else 0.0 for k in (1, 2))] for j in range(10)]
    ),
}
LAWS = {
    "poisson": (baseline.MinSep(10, 1, 0.3), enumeration.poisson(10, 0.3), 1),
    "cold": (baseline.MinSep(10, 7, 0.3), enumeration.min_sep(10, 7, 0.3), 7),
    "warm": (baseline.MinSep(10, 7, 0.3, True), enumeration.min_sep(10, 7, 0.3, True), 7),
    "warm p=1": (baseline.MinSep(10, 7, 1.0, True), enumeration.balls_in_bins(10, 7), 7),
    "users": (baseline.MinSep(10, 7, 0.3, False, 3), enumeration.multi_attribution(10, 7, 0.3, 3), 7),
    "bins": (baseline.Phases(10, 7), enumeration.balls_in_bins(10, 7), 7),
    "cyclic": (baseline.Phases(10, 7, 0.4, 0), enumeration.cyclic_poisson(10, 7, 0.4), 7),
}


# Participations must not overlap.
PAIRS = [
    (name, law) for name, strategy in STRATEGIES.items() for law in LAWS if strategy.bands <= LAWS[law][2]
]


@pytest.mark.parametrize(("name", "law"), PAIRS)
@pytest.mark.parametrize("sigma", [0.4, 2.0])
def test_baseline_is_the_enumeration(name: str, law: str, sigma: float) -> None:
    strategy, (ours, patterns, _) = STRATEGIES[name], LAWS[law]
    mechanism = baseline.Mechanism(strategy._columns(), ours, sigma)
    rng = np.random.default_rng(1)
    y = np.concatenate([mechanism.outputs(rng, 50, direction) for direction in ("remove", "add")])
    exact = enumeration.log_ratio(patterns, strategy.matrix(), sigma, y)
    assert mechanism.privacy_loss(y) == pytest.approx(exact, rel=1e-12, abs=1e-13)


@pytest.mark.parametrize("law", ["cold", "warm", "users", "bins", "cyclic"])
def test_baseline_draws_the_law(law: str) -> None:
    ours, patterns, _ = LAWS[law]
    drawn = ours.draw(np.random.default_rng(3), 40_000)
    found, counts = np.unique(drawn, axis=0, return_counts=True)
    frequencies = dict(zip(map(tuple, found.tolist()), counts / len(drawn), strict=True))
    known = {values: probability for probability, values in patterns}
    assert set(frequencies) <= set(known)
    for values, probability in known.items():
        error = 5.5 * np.sqrt(probability * (1.0 - probability) / len(drawn)) + 1e-9
        assert abs(frequencies.get(values, 0.0) - probability) <= error


@pytest.mark.parametrize(
    ("scheme", "law"),
    [
        (hs.BMinSep(200, 16, 0.05), baseline.MinSep(200, 16, 0.05, True)),
        (hs.BMinSep(200, 16, 0.05, False), baseline.MinSep(200, 16, 0.05)),
        (hs.matrix.MultiAttributionBMinSep(200, 16, 0.02, 3), baseline.MinSep(200, 16, 0.02, False, 3)),
        (hs.BallsInBins(200, 40), baseline.Phases(200, 40)),
        (hs.CyclicPoisson(200, 16, 0.3), baseline.Phases(200, 16, 0.3, 0)),
    ],
)
def test_baseline_and_core_agree(scheme: Scheme, law: baseline.Law) -> None:
    strategy = hs.BandedToeplitz.optimized(200, 16)
    ours = baseline.Mechanism(strategy._columns(), law, 0.5)
    outputs = ours.outputs(np.random.default_rng(1), 50, "remove")
    found = hs.BandMF(strategy, scheme, 0.5).privacy_loss(outputs)
    assert ours.privacy_loss(outputs) == pytest.approx(found, rel=1e-12)


@pytest.mark.parametrize(
    "scheme", [hs.Poisson(40, 0.1), hs.CyclicPoisson(40, 3, 0.1), hs.CyclicPoisson(40, 3, 0.1, 1)]
)
def test_no_step_of_a_composition_has_more_noise_than_its_columns_leave(scheme: hs.matrix.Scheme) -> None:
    """In exact arithmetic: norms are rounded upwards, whatever their last place is."""
    bands, steps = scheme.largest_bands(), scheme.steps
    columns = np.random.default_rng(3).uniform(0.1, 3.0, (steps, bands))
    for offset in range(1, bands):
        columns[steps - offset :, offset] = 0.0
    sigma = 0.7
    least = [
        Fraction(step.mechanism.noise_multiplier)
        for step, count in hs.BandMF(hs.matrix.Banded(columns), scheme, sigma).as_process()
        for _ in range(count)
    ]
    squares = [sum(Fraction(entry) ** 2 for entry in column) for column in columns.tolist()]
    chosen = getattr(scheme, "group", None)
    groups = range(bands) if chosen is None else [chosen]
    ranked = [sorted(squares[group::bands], reverse=True) for group in groups]
    # The largest of each rank, whoever has it.
    shown = [max(rank) for rank in itertools.zip_longest(*ranked, fillvalue=Fraction(0))]
    assert len(least) == len(shown)
    for noise, square in zip(sorted(least), shown, strict=True):
        assert noise**2 * square <= Fraction(sigma) ** 2 <= noise**2 * square * Fraction(1 + 1e-10)
