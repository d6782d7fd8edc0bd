"""Truncated Poisson sampling against the mechanism itself: every batch enumerated, densities integrated."""

from __future__ import annotations

import itertools
import json
import math

import hockeystick as hs
import mpmath as mp
import numpy as np
import pytest
from hockeystick import _core
from hockeystick.mechanisms import adjacency as adjacency_
from hockeystick.mechanisms import truncated
from hockeystick.mechanisms.steps import from_dict, to_dict
from hypothesis import given, settings
from hypothesis import strategies as st

Law = list[tuple[np.ndarray, float]]

EPSILONS = (-1.5, -0.3, 0.0, 0.1, 0.4, 1.0, 2.0)
ADJACENCIES = ("add_or_remove", "zero_out", "replace_one")


def batches(n: int, p: float, most: int) -> dict[tuple[int, ...], float]:
    """The law of Algorithm 1's batch, from all 2^n Poisson samples."""
    law: dict[tuple[int, ...], float] = {}
    for size in range(n + 1):
        for drawn in itertools.combinations(range(n), size):
            weight = p**size * (1.0 - p) ** (n - size)
            kept = list(itertools.combinations(drawn, min(size, most)))
            for batch in kept:
                law[batch] = law.get(batch, 0.0) + weight / len(kept)
    assert math.fsum(law.values()) == pytest.approx(1.0, rel=1e-12)
    return law


def sums(records: np.ndarray, p: float, most: int) -> Law:
    """The law of the sum of the batch's vectors, equal sums merged."""
    law: dict[tuple[float, ...], float] = {}
    for batch, weight in batches(len(records), p, most).items():
        total = tuple(np.round(records[list(batch)].sum(axis=0), 12) + 0.0)
        law[total] = law.get(total, 0.0) + weight
    return [(np.array(total), weight) for total, weight in law.items()]


def density(law: Law, sigma: float, grid: list[np.ndarray]) -> np.ndarray:
    out = np.zeros(np.broadcast_shapes(*(axis.shape for axis in grid)))
    for mean, weight in law:
        square = sum((axis - m) ** 2 for axis, m in zip(grid, mean, strict=True))
        out += weight * np.exp(-0.5 * square / sigma**2)
    return out / (2.0 * math.pi * sigma**2) ** (len(grid) / 2)


class Worst:
    """delta of the mechanism on one pair of datasets, in both directions, by the trapezoidal rule."""

    def __init__(self, first: Law, second: Law, sigma: float, step: float) -> None:
        means = np.array([mean for mean, _ in first + second])
        axes = [
            np.arange(low - 9 * sigma, high + 9 * sigma, step * sigma)
            for low, high in zip(means.min(axis=0), means.max(axis=0), strict=True)
        ]
        grid = list(np.meshgrid(*axes, indexing="ij", sparse=True))
        self.cell = (step * sigma) ** len(axes)
        self.p, self.q = density(first, sigma, grid), density(second, sigma, grid)

    def remove(self, epsilon: float) -> float:
        return float(np.maximum(self.p - math.exp(epsilon) * self.q, 0.0).sum()) * self.cell

    def add(self, epsilon: float) -> float:
        return float(np.maximum(self.q - math.exp(epsilon) * self.p, 0.0).sum()) * self.cell

    def twice(self, epsilon: float) -> float:
        """Two steps on the same data, "remove"."""
        p, q = np.multiply.outer(self.p, self.p), np.multiply.outer(self.q, self.q)
        return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum()) * self.cell**2


def neighbour(records: np.ndarray, adjacency: str, other: np.ndarray | None) -> np.ndarray:
    """The dataset without record 0, with it zeroed, or with another one in its place."""
    if adjacency == "add_or_remove":
        return records[1:]
    changed = records.copy()
    changed[0] = 0.0 if adjacency == "zero_out" else other
    return changed


def bounds(step: hs.TruncatedPoissonSampled, adjacency: str) -> tuple[hs.PrivacyProfile, list[object]]:
    from hockeystick import _core

    found = adjacency_.directions(step.as_process(), adjacency)
    return hs.account(step, adjacency), [_core.Profile([direction]) for direction in (found * 2)[:2]]


def check_below(
    step: hs.TruncatedPoissonSampled, adjacency: str, worst: Worst, accuracy: float = 1e-5
) -> None:
    """The truth is below the profile, and in each direction below that direction's own."""
    profile, (remove, add) = bounds(step, adjacency)
    for epsilon in EPSILONS:
        p, q = worst.remove(epsilon) * (1.0 - accuracy), worst.add(epsilon) * (1.0 - accuracy)
        assert p <= remove.delta_bounds(epsilon).upper, (step, adjacency, epsilon)
        assert q <= add.delta_bounds(epsilon).upper, (step, adjacency, epsilon)
        assert max(p, q) <= profile.delta(epsilon), (step, adjacency, epsilon)


# The record, its replacement, and the others (repeated as often as needed), on a line.
LINES = [
    (1.0, -1.0, [-1.0]),  # swapped with its opposite
    (1.0, -1.0, [1.0]),
    (1.0, 0.3, [-1.0]),
    (-1.0, 1.0, [-1.0]),
    (1.0, -1.0, [0.0]),
    (1.0, -1.0, [-1.0, 1.0]),
    (0.4, -0.8, [-1.0, -0.2, 0.9]),
]
SETTINGS = [  # n, B, p, sigma
    (4, 1, 0.5, 0.7),
    (4, 2, 0.35, 1.0),
    (5, 2, 0.9, 0.6),
    (5, 3, 0.15, 1.5),
    (3, 2, 1.0, 0.8),
    (4, 4, 0.4, 0.8),
]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("n", "most", "p", "sigma"), SETTINGS)
def test_never_below_the_mechanism_on_a_line(
    n: int, most: int, p: float, sigma: float, adjacency: str
) -> None:
    for pair in truncated.TRUNCATED_PAIRS:
        step = hs.TruncatedPoissonSampled(sigma, n, p, most, pair)
        for record, replacement, others in LINES:
            records = np.array([record, *itertools.islice(itertools.cycle(others), n - 1)])[:, None]
            changed = neighbour(records, adjacency, np.array([replacement]))
            worst = Worst(sums(records, p, most), sums(changed, p, most), sigma, 0.005)
            check_below(step, adjacency, worst)


# In the plane the sum of the others may tell their number apart from the record: angles to its axis.
@pytest.mark.sweep
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("angle", [0.3, 1.0, math.pi / 2, 2.6])
def test_never_below_the_mechanism_in_the_plane(angle: float, adjacency: str) -> None:
    n, most, p, sigma = 4, 2, 0.5, 0.8
    record, turned = np.array([1.0, 0.0]), np.array([math.cos(angle), math.sin(angle)])
    step = hs.TruncatedPoissonSampled(sigma, n, p, most)
    for replacement in (-record, -turned):
        records = np.array([record, -turned, -turned, turned])
        changed = neighbour(records, adjacency, replacement)
        worst = Worst(sums(records, p, most), sums(changed, p, most), sigma, 0.03)
        check_below(step, adjacency, worst, accuracy=1e-3)


unit = st.floats(-1.0, 1.0, allow_nan=False)


@settings(max_examples=25, deadline=None)
@given(
    records=st.lists(unit, min_size=2, max_size=5),
    replacement=unit,
    p=st.floats(0.05, 1.0),
    sigma=st.floats(0.4, 3.0),
    most=st.integers(1, 4),
    adjacency=st.sampled_from(ADJACENCIES),
)
def test_never_below_the_mechanism_on_random_data(
    records: list[float], replacement: float, p: float, sigma: float, most: int, adjacency: str
) -> None:
    data = np.array(records)[:, None]
    changed = neighbour(data, adjacency, np.array([replacement]))
    step = hs.TruncatedPoissonSampled(sigma, len(data), p, most)
    worst = Worst(sums(data, p, most), sums(changed, p, most), sigma, 0.01)
    profile = hs.account(step, adjacency)
    for epsilon in EPSILONS:
        # A nearly empty difference is all rounding.
        truth = max(worst.remove(epsilon), worst.add(epsilon)) * (1.0 - 1e-4) - 1e-12
        assert truth <= profile.delta(epsilon)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_two_steps_compose(adjacency: str) -> None:
    n, most, p, sigma = 4, 2, 0.6, 0.9
    step = hs.TruncatedPoissonSampled(sigma, n, p, most)
    profile = hs.account(step * 2, adjacency)
    for record, replacement, others in LINES[:4]:
        records = np.array([record, *itertools.islice(itertools.cycle(others), n - 1)])[:, None]
        changed = neighbour(records, adjacency, np.array([replacement]))
        for first, second in ((records, changed), (changed, records)):
            worst = Worst(sums(first, p, most), sums(second, p, most), sigma, 0.02)
            for epsilon in (-0.5, 0.0, 0.3, 1.2):
                assert worst.twice(epsilon) * (1.0 - 1e-4) <= profile.delta(epsilon)


@pytest.mark.parametrize("adjacency", hs.mechanisms.ADJACENCIES)
def test_without_truncation_it_is_poisson_sampling(adjacency: str) -> None:
    poisson = hs.account(hs.PoissonSampled(hs.Gaussian(0.9), 0.2) * 7, adjacency)
    for most in (50, 10**9):
        step = hs.TruncatedPoissonSampled(0.9, 50, 0.2, most)
        profile = hs.account(step * 7, adjacency)
        assert profile.epsilon_bounds(1e-6) == poisson.epsilon_bounds(1e-6)
        assert profile.delta_bounds(0.7) == poisson.delta_bounds(0.7)


def test_always_full_it_is_a_batch_of_fixed_size() -> None:
    step = hs.TruncatedPoissonSampled(0.9, 40, 1.0, 8)
    fixed = hs.WithoutReplacement(hs.Gaussian(0.9), 8, 40)
    for epsilon in EPSILONS:
        ours, theirs = (hs.account(what, "replace_one").delta_bounds(epsilon) for what in (step, fixed))
        assert ours == pytest.approx(theirs, rel=1e-12)
    # Under add and remove: Poisson sampling with doubled sensitivity and probability B/n (Ganesh 2025).
    doubled = hs.PoissonSampled(hs.Gaussian(0.45), 0.2)
    for direction in ("add", "remove"):
        for epsilon in EPSILONS:
            ours = hs.account(step, direction).delta_bounds(epsilon)
            assert ours == pytest.approx(hs.account(doubled, direction).delta_bounds(epsilon), rel=1e-12)


@pytest.mark.parametrize(
    ("adjacency", "record", "replacement", "other", "direction", "epsilons"),
    [
        ("add_or_remove", 1.0, None, -1.0, "remove", EPSILONS),
        ("replace_one", 1.0, -1.0, -1.0, "remove", (0.0, 0.1, 0.4, 1.0, 2.0)),
        ("replace_one", 1.0, -1.0, 1.0, "remove", (-1.5, -0.3, 0.0)),
        ("zero_out", 1.0, None, -1.0, "remove", (0.0, 0.1, 0.4, 1.0, 2.0)),
        ("zero_out", 1.0, None, 1.0, "remove", (-1.5, -0.3, 0.0)),
    ],
)
def test_fixed_batches_attain_the_bound(
    adjacency: str,
    record: float,
    replacement: float | None,
    other: float,
    direction: str,
    epsilons: tuple[float, ...],
) -> None:
    """p = 1: there is data on which nothing is lost, for each side of e^epsilon = 1."""
    n, most, sigma = 5, 2, 0.8
    records = np.array([record] + [other] * (n - 1))[:, None]
    changed = neighbour(records, adjacency, None if replacement is None else np.array([replacement]))
    worst = Worst(sums(records, 1.0, most), sums(changed, 1.0, most), sigma, 0.002)
    step = hs.TruncatedPoissonSampled(sigma, n, 1.0, most)
    _, (remove, _) = bounds(step, adjacency)
    for epsilon in epsilons:
        truth = getattr(worst, direction)(epsilon)
        assert truth * (1.0 - 1e-5) <= remove.delta_bounds(epsilon).upper <= truth * (1.0 + 1e-4) + 1e-12


@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
def test_the_tight_pair_is_never_worse_than_the_published_one(adjacency: str) -> None:
    for n, p, most, sigma, steps in (
        (1000, 0.05, 55, 0.8, 50),
        (100, 0.5, 40, 1.0, 3),
        (64, 1.0, 6, 2.0, 20),
    ):
        tight, published = (
            hs.account(hs.TruncatedPoissonSampled(sigma, n, p, most, pair) * steps, adjacency)
            for pair in truncated.TRUNCATED_PAIRS
        )
        for delta in (1e-3, 1e-6):
            assert tight.epsilon(delta) <= published.epsilon_bounds(delta).upper
        for epsilon in (-0.5, 0.0, 1.0):
            assert tight.delta(epsilon) <= published.delta(epsilon) * (1.0 + 1e-3)


def test_law_of_the_truncation_by_direct_sums() -> None:
    from scipy import stats

    for n, p, most in ((10, 0.3, 2), (200, 0.1, 25), (200, 0.1, 15), (5000, 0.01, 80), (6, 0.999, 5)):
        law = hs.TruncatedPoissonSampled(1.0, n, p, most).truncation
        s = np.arange(n)
        mass = stats.binom.pmf(s, n - 1, p)
        full = math.fsum(mass[s >= most])
        rate = p * math.fsum(mass[s >= most] * most / (s[s >= most] + 1.0)) / full
        assert law.full_low * (1 - 1e-10) <= full <= law.full_high * (1 + 1e-10)
        assert law.sampled_if_full == pytest.approx(rate, rel=1e-9)
        assert law.not_full == pytest.approx(math.fsum(mass[s < most]), rel=1e-9)
        expected = math.fsum(np.minimum(np.arange(n + 1), most) * stats.binom.pmf(np.arange(n + 1), n, p))
        assert hs.TruncatedPoissonSampled(1.0, n, p, most).expected_batch_size == pytest.approx(
            expected, rel=1e-9
        )


def test_rates_never_exceed_their_limits() -> None:
    """q <= min(p, B/n), whatever the size; monotone tails down to nothing."""
    for n in (3, 1000, 10**9, 10**12, 2**53):
        for p in (1e-300, 1e-12, 0.001, 0.5, 1.0 - 1e-12, 1.0):
            for most in {1, 2, n // 2 + 1, max(1, int(n * p)), min(n, int(n * p) + 100), n}:
                law = truncated.truncation(n, p, most)
                assert 0.0 <= law.full_low <= law.full_high <= 1.0
                assert law.not_full + law.full_high >= 1.0 - 1e-15
                assert law.sampled_if_full <= max(1e-300, min(p, most / n) * (1.0 + 1e-14))


@pytest.mark.sweep
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(
    ("sigma", "n", "p", "most"),
    [
        (1.0, 10**12, 1e-6, 10**6 + 8_000),
        (0.5, 1000, 0.01, 10),
        (100.0, 1000, 0.01, 10),
        (1.0, 1, 0.5, 1),
        (1.0, 2, 1e-12, 1),
        (1.0, 1000, 1.0, 999),
        (1.0, 100_000, 0.01, 2600),
        (0.0, 100, 0.1, 12),
        (1.0, 100, 0.0, 3),
    ],
)
def test_extremes_are_answered(sigma: float, n: int, p: float, most: int, adjacency: str) -> None:
    profile = hs.account(hs.TruncatedPoissonSampled(sigma, n, p, most) * 3, adjacency, accuracy=0.1)
    for delta in (1e-6, 1e-2):
        lower, upper = profile.epsilon_bounds(delta)
        assert 0.0 <= lower <= upper
        if sigma > 0.0:
            assert upper < math.inf
    for epsilon in (-2.0, math.inf, -math.inf):
        lower, upper = profile.delta_bounds(epsilon)
        assert 0.0 <= lower <= upper <= 1.0
    if p == 0.0:
        assert profile.epsilon(1e-6) == 0.0
    if sigma == 0.0:
        assert profile.epsilon(1e-6) == math.inf


def test_far_tails_of_a_truncation_that_hardly_ever_happens() -> None:
    """Pr[full] = 1e-273: at delta = 1e-100 it is Poisson sampling, from both sides."""
    step = hs.TruncatedPoissonSampled(1.0, 100_000, 0.01, 2300)
    assert 0.0 < step.truncation.full_low <= step.truncation.full_high < 1e-270
    lower, upper = hs.account(step * 1000, "remove").epsilon_bounds(1e-100)
    poisson = hs.account(hs.PoissonSampled(hs.Gaussian(1.0), 0.01) * 1000, "remove").epsilon_bounds(1e-100)
    assert lower <= poisson.upper
    assert poisson.lower <= upper <= poisson.upper * (1.0 + 1e-6)


def test_views_and_lattice_agree() -> None:
    """Every way of looking at it gives intervals that overlap."""
    for most in (1030, 1180, 1400):
        step = hs.TruncatedPoissonSampled(1.0, 100_000, 0.01, most)
        for adjacency in ADJACENCIES:
            views = hs.account(step * 1000, adjacency)
            lattice = hs.account(step * 1000, adjacency, engine="fft")
            for found, other in (
                (views.epsilon_bounds(1e-6), lattice.epsilon_bounds(1e-6)),
                (views.delta_bounds(2.0), lattice.delta_bounds(2.0)),
            ):
                assert found.lower <= other.upper
                assert other.lower <= found.upper
                assert found.upper <= other.upper * (1.0 + 1e-9)


# sigma, n, p, B, steps, delta: full batches nearly always, often, and hardly ever; from 5 steps to 1e6.
HARD = [
    (0.3, 1000, 0.1, 100, 100, 1e-6),
    (0.3, 100_000, 0.01, 1090, 2000, 1e-10),
    (0.5, 50, 0.5, 25, 60, 1e-3),
    (0.5, 1000, 0.5, 595, 100, 1e-200),
    (1.0, 1000, 0.5, 480, 5, 1e-6),
    (1.0, 100_000, 0.01, 990, 300, 1e-9),
    (1.0, 100_000, 0.01, 1120, 1000, 1e-30),
    (1.0, 10**7, 0.001, 10_150, 20_000, 1e-6),
    (3.0, 1000, 0.1, 101, 40, 1e-4),
    (3.0, 1000, 0.5, 690, 1000, 1e-30),
    (10.0, 100_000, 0.1, 10_050, 1000, 1e-200),
    (50.0, 100_000, 0.01, 1040, 10**6, 1e-8),
    (50.0, 1000, 0.5, 499, 10**5, 1e-200),
]


@pytest.mark.sweep
@pytest.mark.parametrize("adjacency", ["remove", "add", "zero_out", "replace_one"])
def test_tight_pairs_are_inverted_exactly(adjacency: str) -> None:
    """In each direction by itself, the inversion meets the lattice, and is far narrower."""
    inverted = asked = 0
    for sigma, n, p, most, steps, delta in HARD:
        step = hs.TruncatedPoissonSampled(sigma, n, p, most)
        for direction in adjacency_.directions(step * steps, adjacency):
            exact = _core.Profile([direction], 1e-4, 1 << 28)
            lattice = _core.Profile([direction], 1e-2, 1 << 28, "fft")
            found, other = exact.epsilon_bounds(delta), lattice.epsilon_bounds(delta)
            assert found.lower <= other.upper, (sigma, n, p, most, steps, delta)
            assert other.lower <= found.upper, (sigma, n, p, most, steps, delta)
            asked += 1
            # What it says of delta fits what it says of epsilon.
            assert exact.delta_bounds(found.upper).lower <= delta * (1 + 1e-12)
            if found.lower > 0.0:
                assert exact.delta_bounds(found.lower).upper >= delta * (1 - 1e-12)
            if found.engine == "inversion":
                inverted += 1
                assert found.upper <= found.lower * (1 + 1e-4)
    assert inverted >= (asked - 3 if adjacency == "add" else asked)


def test_one_step_is_in_closed_form_and_the_inversion_agrees() -> None:
    """T = 1 is the tangent's closed form; with a second step that hardly spends anything it is the inversion."""
    for adjacency in ("zero_out", "replace_one"):
        step = hs.TruncatedPoissonSampled(1.0, 1000, 0.3, 310)
        for (pair, _), *_ in adjacency_.directions(step * 1, adjacency):
            one = _core.Profile([[(pair, 1)]], 1e-2, 1 << 28)
            two = _core.Profile([[(pair, 1), (_core.gaussian_pair(1e-3), 1)]], 1e-2, 1 << 28)
            for epsilon in (-0.5, 0.0, 0.4, 2.0):
                closed, found = one.delta_bounds(epsilon), two.delta_bounds(epsilon)
                assert closed.engine == "closed form"
                # The total variation of N(mu) is below mu / 2; it counts e^epsilon times.
                assert found.lower <= closed.upper + 5e-4 * math.exp(epsilon)
                assert closed.lower <= found.upper * (1 + 1e-12)


def test_the_report_says_what_it_depends_on() -> None:
    step = hs.TruncatedPoissonSampled(2.0, 12_345, 0.01, 150)
    for adjacency in ("add", "remove", "add_or_remove"):
        statement = hs.account(step, adjacency).report(delta=1e-6).statement()
        assert "exactly 12345 records" in statement
        assert "Theorem 3.1" in statement
        assert "cut to 150 records" in statement
    for adjacency, theorem in (("zero_out", "3.3"), ("replace_one", "3.4")):
        statement = hs.account(step, adjacency).report(delta=1e-6).statement()
        assert "exactly" not in statement.split("Adjacency:")[1].split("Sampling:")[0]
        assert "docs/mechanisms/truncated.md" in statement
        published = hs.TruncatedPoissonSampled(2.0, 12_345, 0.01, 150, "ganesh2025")
        assert theorem in hs.account(published, adjacency).report(delta=1e-6).statement()


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((-1.0, 10, 0.1, 2), "noise_multiplier"),
        ((1.0, 0, 0.1, 2), "dataset_size"),
        ((1.0, 10, 1.1, 2), "sampling_probability"),
        ((1.0, 10, 0.1, 0), "max_batch_size"),
        ((1.0, 10, 0.1, 2, "best"), "pair"),
    ],
)
def test_values_outside_are_refused(arguments: tuple[object, ...], name: str) -> None:
    with pytest.raises(hs.ParameterError, match=name):
        hs.TruncatedPoissonSampled(*arguments)


def test_types_are_refused() -> None:
    with pytest.raises(hs.ParameterTypeError, match="max_batch_size"):
        hs.TruncatedPoissonSampled(1.0, 10, 0.1, 2.0)


def test_stored_and_read_again() -> None:
    step = hs.TruncatedPoissonSampled(1.0, 100, 0.1, 12)
    mixture = hs.Mixture([step, hs.PoissonSampled(hs.Laplace(2.0), 0.1)], [0.5, 0.5])
    gaussians = hs.MixtureOfGaussians(1.0, [0.0, 1.0, 2.0], [0.5, 0.25, 0.25])
    process = step * 3 + mixture + gaussians * 2
    assert from_dict(json.loads(json.dumps(to_dict(process)))) == process


Mixed = dict[int, mp.mpf]


def hockey_stick(p: Mixed, q: Mixed, mu: mp.mpf, epsilon: float) -> mp.mpf:
    """Of mixtures of N(i mu, 1), where p - e^epsilon q changes its sign once at most."""
    weights = {i: p.get(i, 0) - mp.exp(epsilon) * q.get(i, 0) for i in {*p, *q}}
    signs = [w > 0 for _, w in sorted(weights.items()) if w]
    if len(set(signs)) == 1:
        return mp.fsum(weights.values()) if signs[0] else mp.mpf(0)
    assert signs in (sorted(signs), sorted(signs, reverse=True))
    rising = signs[-1]
    low, high = mp.mpf(-(10**6)), mp.mpf(10**6)
    while high - low > mp.mpf(10) ** (10 - mp.mp.dps):
        middle = (low + high) / 2
        above = mp.fsum(w * mp.exp(i * mu * middle - (i * mu) ** 2 / 2) for i, w in weights.items()) > 0
        low, high = (low, middle) if above == rising else (middle, high)
    side = 1 if rising else -1
    return mp.fsum(w * mp.ncdf(side * (i * mu - high)) for i, w in weights.items())


def theorem(step: hs.TruncatedPoissonSampled, adjacency: str, epsilon: float) -> mp.mpf:
    """delta of one step as docs/mechanisms/truncated.md has it, from binomial sums in hundreds of digits."""
    n, p, most = step.dataset_size, mp.mpf(step.sampling_probability), step.max_batch_size
    law = [mp.binomial(n - 1, k) * p**k * (1 - p) ** (n - 1 - k) for k in range(n)]
    full = mp.fsum(law[most:])
    q = p * mp.fsum(mass * most / (k + 1) for k, mass in enumerate(law) if k >= most) / (full or 1)
    mu, still = 1 / mp.mpf(step.noise_multiplier), {0: mp.mpf(1)}

    def moved(rate: mp.mpf, shift: int) -> Mixed:
        return {0: 1 - rate, shift: rate}

    branches = {
        "remove": [((moved(p, 1), still), (moved(q, 2), still))],
        "add": [((still, moved(p, 1)), (still, moved(q, 2)))],
        "zero_out": [
            ((moved(p, 1), still), (moved(q, 2), moved(q, 1))),
            ((still, moved(p, 1)), (moved(q, 1), still)),
        ],
        "replace_one": [((moved(p, 1), moved(p, -1)), (moved(q, 2), still))],
    }[adjacency]
    return max(
        mp.fsum(law[:most]) * hockey_stick(*rare, mu, epsilon) + full * hockey_stick(*often, mu, epsilon)
        for rare, often in branches
    )


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("sigma", "n", "p", "most", "adjacency", "epsilons"),
    [
        (3.653542554774147, 27, 0.99, 2, "zero_out", (0.1, 0.94, 2.2, 3.1)),
        (30.0, 5, 0.9, 2, "remove", (0.01, 0.1872, 0.36, 0.5)),
        (2.2124, 200, 0.605, 34, "add", (0.01, 0.186, 0.1863, 0.195657)),
        (3.8647388137158725, 17, 1 - 2.0**-53, 1, "replace_one", (0.5, 4.0, 8.57)),
        (0.022095489551182644, 200, 0.7376836370124451, 1, "remove", (1e-9, 1.0)),
        (7.0662776674963315, 17, 0.03217217577993359, 1, "replace_one", (0.01, 0.05)),
        (1.0, 60, 0.5, 30, "zero_out", (0.1, 2.0, 5.0)),
        (1.0, 60, 0.5, 30, "add", (0.1, 0.4)),
        (2.0, 60, 0.5, 25, "remove", (0.1, 2.0, 5.0)),
    ],
)
def test_bounds_enclose_the_theorem_closely(
    sigma: float, n: int, p: float, most: int, adjacency: str, epsilons: tuple[float, ...]
) -> None:
    """What rounding of Pr[full] leaves open counted as a third kind of batch, from below too: 4e-21 for 9e-54."""
    step = hs.TruncatedPoissonSampled(sigma, n, p, most)
    profile = hs.account(step, adjacency)
    with mp.workdps(300):
        for epsilon in epsilons:
            truth = theorem(step, adjacency, epsilon)
            lower, upper = profile.delta_bounds(epsilon)
            assert lower <= truth <= upper
            assert truth > 1e-300
            assert upper - lower <= 1e-9 * truth


@pytest.mark.sweep
@pytest.mark.parametrize("adjacency", ["remove", "add", "zero_out", "replace_one"])
@pytest.mark.parametrize(
    ("n", "p", "most", "sizes", "epsilon"),
    [
        (61, 0.5, 9, (20, 21), 0.3),
        (26, 0.0072, 8, (8, 9), 2.3),  # the smaller group is never full
        (26, 0.9, 8, (8, 9), 0.5),
        (2, 0.3, 1, (1,), 0.2),  # and not every group has a record
    ],
)
def test_bounds_of_groups_enclose_both_sizes(
    n: int, p: float, most: int, sizes: tuple[int, ...], epsilon: float, adjacency: str
) -> None:
    """From below a group whose size some record has, from above both sizes."""
    step = truncated.TruncatedPoissonGroup(2.0, n, p, most, groups=3)
    with mp.workdps(150):
        truths = [
            theorem(hs.TruncatedPoissonSampled(2.0, size, p, most), adjacency, epsilon) for size in sizes
        ]
        lower, upper = hs.account(step, adjacency).delta_bounds(epsilon)
        assert lower <= max(truths) <= upper
        assert lower >= min(truths) * (1 - mp.mpf(1e-9))


@pytest.mark.parametrize("adjacency", ["add", "remove", *ADJACENCIES])
def test_views_are_bounds_however_roughly_they_are_asked(adjacency: str) -> None:
    """Truncation that is as likely as delta: Poisson sampling beside it is within the accuracy, and no bound by itself."""
    step = hs.TruncatedPoissonSampled(0.5, 5, 0.3, 3)
    cut = step.cut_probability
    for accuracy in (1.0, 0.3, 1e-3):
        views = hs.account(step, adjacency, accuracy=accuracy)
        lattice = hs.account(step, adjacency, engine="fft")
        pairs = [(views.epsilon_bounds(f * cut), lattice.epsilon_bounds(f * cut)) for f in (1.05, 2.0, 4.0)]
        pairs += [(views.delta_bounds(epsilon), lattice.delta_bounds(epsilon)) for epsilon in (0.0, 0.3, 1.0)]
        for found, other in pairs:
            assert found.lower <= other.upper
            assert other.lower <= found.upper
