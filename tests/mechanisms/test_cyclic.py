"""Cyclic Poisson sampling: soundness for every subset, by brute force and by the order of compositions."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import hockeystick as hs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def group(norms: np.ndarray, b: int, j: int, p: float, sigma: float) -> hs.mechanisms.Process:
    """What subset j alone goes through; noise rounded down."""

    def down(norm: float) -> float:
        quotient = sigma / norm
        return (
            math.nextafter(quotient, 0.0)
            if Fraction(quotient) > Fraction(sigma) / Fraction(norm)
            else quotient
        )

    steps = [hs.PoissonSampled(hs.Gaussian(down(norm)), p) for norm in norms[j::b].tolist() if norm > 0.0]
    return hs.mechanisms.Process([(step, 1) for step in steps])


@settings(max_examples=8, deadline=None)
@given(
    norms=st.lists(st.floats(0.0, 3.0), min_size=1, max_size=9),
    b=st.integers(1, 4),
    p=st.floats(0.05, 0.9),
    direction=st.sampled_from(["add", "remove", "replace_one"]),
    most=st.sampled_from([None, 3]),
)
def test_dominates_every_subset(
    norms: list[float], b: int, p: float, direction: str, most: int | None
) -> None:
    values = np.round(np.array(norms), 1)
    truncated = {} if most is None else {"subset_size": 8, "max_batch_size": most}
    whole = hs.account(hs.mechanisms.cyclic_poisson(values, b, p, 2.0, **truncated), direction, accuracy=0.01)
    for j in range(b):
        alone = hs.mechanisms.cyclic_poisson(values[j::b], 1, p, 2.0, **truncated)
        if most is None:
            assert alone == group(values, b, j, p, 2.0)
        part = hs.account(alone, direction, accuracy=0.01)
        for epsilon in (-0.5, 0.0, 0.5):
            assert part.delta_bounds(epsilon).lower <= whole.delta(epsilon)


def test_toeplitz_norms_are_exact() -> None:
    """The first subset has the largest norms throughout, so it is the composition."""
    coefficients = np.array([1.0, 0.5, 0.25])
    n, b = 11, 3
    matrix = sum(c * np.eye(n, k=-lag) for lag, c in enumerate(coefficients))
    norms = np.linalg.norm(matrix, axis=0)
    assert hs.mechanisms.cyclic_poisson(norms, b, 0.2, 1.3) == group(norms, b, 0, 0.2, 1.3)
    assert hs.mechanisms.cyclic_poisson(norms, b, 0.2, 1.3).steps == math.ceil(n / b)


def test_ones_are_dp_sgd_on_the_subset() -> None:
    process = hs.mechanisms.cyclic_poisson(np.ones(1000), 4, 0.02, 0.9)
    assert process == hs.PoissonSampled(hs.Gaussian(0.9), 0.02) * 250
    truncated = hs.mechanisms.cyclic_poisson(
        np.ones(1000), 4, 0.02, 0.9, subset_size=5000, max_batch_size=120
    )
    assert truncated == hs.TruncatedPoissonSampled(0.9, 5000, 0.02, 120) * 250


def density(
    means: list[np.ndarray], weights: list[float], sigma: float, grid: list[np.ndarray]
) -> np.ndarray:
    out = 0.0
    for mean, weight in zip(means, weights, strict=True):
        out = out + weight * np.exp(
            -0.5 * sum((x - m) ** 2 for x, m in zip(grid, mean, strict=True)) / sigma**2
        )
    return np.asarray(out) / (2 * math.pi * sigma**2) ** (len(grid) / 2)


@pytest.mark.sweep
@pytest.mark.parametrize(("records", "most"), [(4, None), (4, 1), (3, 1)])
@pytest.mark.parametrize("adjacency", ["add_or_remove", "zero_out", "replace_one"])
def test_never_below_the_banded_mechanism(adjacency: str, records: int, most: int | None) -> None:
    """Three iterations, two bands, two subsets of one or two records: all batches and the whole output in R^3."""
    c = np.array([[1.0, 0.0, 0.0], [0.7, 0.9, 0.0], [0.0, 0.5, 0.8]])
    b, p, sigma = 2, 0.6, 1.1
    x = np.linspace(-7.0, 7.0, 71)
    grid = list(np.meshgrid(x, x, x, indexing="ij", sparse=True))
    cell = (x[1] - x[0]) ** 3

    def batches(subset: list[float]) -> list[tuple[float, float]]:
        """(sum, probability) of one truncated batch of a subset."""
        law: dict[float, float] = {}
        for drawn in itertools.product([0, 1], repeat=len(subset)):
            weight = math.prod(p if d else 1 - p for d in drawn)
            members = [r for r, d in zip(subset, drawn, strict=True) if d]
            size = len(members) if most is None else min(most, len(members))
            kept = list(itertools.combinations(members, size))
            for batch in kept:
                total = round(sum(batch), 9)
                law[total] = law.get(total, 0.0) + weight / len(kept)
        return list(law.items())

    def output(subset: list[float], other: list[float], mine: int) -> np.ndarray:
        laws = [batches(subset if i % b == mine else other) for i in range(3)]
        means, weights = [], []
        for choice in itertools.product(*laws):
            means.append(c @ np.array([value for value, _ in choice]))
            weights.append(math.prod(weight for _, weight in choice))
        return density(means, weights, sigma, grid)

    scheme = hs.CyclicPoisson(3, b, p, None, None if most is None else records, most)
    profile = hs.account(hs.BandMF(hs.matrix.LowerTriangular(c), scheme, sigma), adjacency)
    for mine in range(b):
        for companion in (-1.0, 1.0):
            # Subset j has the records j, j + 2, ...: of three, subset 1 has one.
            others = [companion] if mine == 0 or records == 4 else []
            changed = {
                "add_or_remove": others,
                "zero_out": [0.0, *others],
                "replace_one": [-1.0, *others],
            }
            rest = [-1.0, 0.5] if mine == 1 or records == 4 else [-1.0]
            first, second = output([1.0, *others], rest, mine), output(changed[adjacency], rest, mine)
            for epsilon in (0.0, 0.3, 1.0):
                for one, two in ((first, second), (second, first)):
                    truth = float(np.maximum(one - math.exp(epsilon) * two, 0.0).sum()) * cell
                    assert truth * (1.0 - 1e-2) <= profile.delta(epsilon)


@pytest.mark.parametrize("adjacency", ["add", "remove", "zero_out", "replace_one"])
def test_groups_of_both_sizes_are_covered(adjacency: str) -> None:
    """n = 4001 in four groups: the step bounds that of 1000 and that of 1001 records, and hardly more."""
    for b, p, most in ((4, 0.05, 60), (400, 0.5, 6), (4000, 0.3, 1)):
        step = hs.mechanisms.TruncatedPoissonGroup(1.0, 4001, p, most, groups=b)
        sizes = {max(1, 4001 // b), -(-4001 // b)}
        whole = hs.account(step, adjacency, accuracy=0.01)
        parts = [
            hs.account(hs.TruncatedPoissonSampled(1.0, n, p, most), adjacency, accuracy=0.01) for n in sizes
        ]
        for epsilon in (-0.3, 1.0):
            alone = [part.delta_bounds(epsilon) for part in parts]
            assert max(bounds.lower for bounds in alone) <= whole.delta(epsilon)
            if b == 4:
                assert whole.delta(epsilon) <= 1.05 * max(bounds.upper for bounds in alone)
    found = hs.TruncatedPoissonSampled(1.0, 1001, 0.05, 60), hs.TruncatedPoissonSampled(1.0, 1000, 0.05, 60)
    each = [step.expected_batch_size for step in found]
    group = hs.mechanisms.TruncatedPoissonGroup(1.0, 4001, 0.05, 60, groups=4)
    assert group.expected_batch_size == pytest.approx((each[0] + 3.0 * each[1]) / 4.0)
    assert hs.mechanisms.from_dict(hs.mechanisms.to_dict(group)) == group
    with pytest.raises(hs.ParameterError, match="has no batches"):
        (group * 3).batches()


def test_truncated_cyclic_sampling_is_a_scheme() -> None:
    """One description accounts, calibrates, draws and is stored; what it cannot do names the parameter."""
    strategy = hs.BandedToeplitz.square_root(16, 4)
    scheme = hs.CyclicPoisson.of_rate(16, 4, 0.05, dataset_size=402, max_batch_size=23)
    assert (
        hs.matrix.Scheme.from_dict(scheme.to_dict())
        == scheme
        == eval(repr(scheme), {"CyclicPoisson": hs.CyclicPoisson})
    )
    plain = hs.CyclicPoisson.of_rate(16, 4, 0.05)
    assert "max_batch_size" not in repr(plain) + str(plain.to_dict())
    process = hs.BandMF(strategy, scheme, 1.0).as_process()
    assert process.steps == 4
    epsilon = hs.account(process, "zero_out").epsilon(1e-5)
    assert epsilon > hs.account(hs.BandMF(strategy, plain, 1.0)).epsilon_bounds(1e-5).lower
    for group in range(4):
        alone = hs.BandMF(strategy, hs.CyclicPoisson(16, 4, 0.2, group, 402, 23), 1.0)
        assert alone.as_process().items[0][0].dataset_size == (101 if group < 2 else 100)
        assert hs.account(alone, "zero_out").epsilon_bounds(1e-5).lower <= epsilon
    empty = hs.CyclicPoisson(16, 4, 0.2, 3, 3, 2)
    assert hs.account(hs.BandMF(strategy, empty, 1.0)).epsilon(1e-5) == 0.0
    found = hs.calibrate_bandmf(strategy, scheme, epsilon, 1e-5)
    assert found.noise_multiplier == pytest.approx(1.0, abs=2e-5)
    with pytest.raises(hs.ParameterError, match="adjacency"):
        hs.calibrate_bandmf(strategy, scheme, epsilon, 1e-5, adjacency="add_or_remove")
    assert max(map(len, scheme.batches(seed=1))) <= 23
    for wrong in (
        lambda: scheme.batches(401),
        lambda: hs.plan_training(scheme, 401, epsilon=1.0, delta=1e-5),
    ):
        with pytest.raises(hs.ParameterError, match="dataset_size = 401: must be 402"):
            wrong()
    with pytest.raises(hs.ParameterTypeError, match="dataset_size, max_batch_size: give both"):
        hs.CyclicPoisson(16, 4, 0.2, max_batch_size=5)
    with pytest.raises(hs.ParameterError, match="max_batch_size = 0"):
        hs.CyclicPoisson(16, 4, 0.2, dataset_size=4, max_batch_size=0)
    with pytest.raises(hs.ParameterError, match="without samples; use account"):
        hs.estimate_delta(hs.BandMF(strategy, scheme, 1.0), 1.0, 1000)


def test_many_norms_are_merged_upwards() -> None:
    norms = np.linspace(1.0, 2.0, 1000)
    fine = hs.account(hs.mechanisms.cyclic_poisson(norms, 1, 0.01, 3.0, max_norms=1000)).epsilon_bounds(1e-6)
    coarse = hs.mechanisms.cyclic_poisson(norms, 1, 0.01, 3.0, max_norms=16)
    assert len(coarse) <= 16
    assert coarse.steps == 1000
    bounds = hs.account(coarse).epsilon_bounds(1e-6)
    assert fine.lower <= bounds.upper <= fine.upper * 1.1


def test_limits() -> None:
    assert hs.account(hs.mechanisms.cyclic_poisson([], 3, 0.1, 1.0)).epsilon(1e-5) == 0.0
    assert hs.account(hs.mechanisms.cyclic_poisson([0.0, 0.0], 1, 0.1, 1.0)).epsilon(1e-5) == 0.0
    assert hs.account(hs.mechanisms.cyclic_poisson([1.0, 1.0], 1, 0.0, 1.0)).epsilon(1e-5) == 0.0
    assert hs.account(hs.mechanisms.cyclic_poisson([1.0], 1, 0.5, 0.0)).epsilon(1e-5) == math.inf
    assert (
        hs.mechanisms.cyclic_poisson([2.0], 5, 1.0, 1.0)
        == hs.PoissonSampled(hs.Gaussian(0.5), 1.0).as_process()
    )


@pytest.mark.parametrize(
    ("arguments", "options", "error", "name"),
    [
        (([[1.0]], 1, 0.1, 1.0), {}, hs.ParameterError, "column_norms"),
        (([-1.0], 1, 0.1, 1.0), {}, hs.ParameterError, "column_norms"),
        (([1.0], 0, 0.1, 1.0), {}, hs.ParameterError, "min_sep"),
        (([1.0], 1, 1.5, 1.0), {}, hs.ParameterError, "sampling_probability"),
        (([1.0], 1, 0.1, -1.0), {}, hs.ParameterError, "noise_multiplier"),
        (([1.0], 1, 0.1, 1.0), {"subset_size": 5}, hs.ParameterTypeError, "max_batch_size"),
        (([1.0], 1, 0.1, 1.0), {"max_batch_size": 5}, hs.ParameterTypeError, "subset_size"),
        (
            ([1.0], 1, 0.1, 1.0),
            {"subset_size": 5, "dataset_size": 5, "max_batch_size": 2},
            hs.ParameterTypeError,
            "subset_size or dataset_size",
        ),
        (([1.0], 1, 0.1, 1.0), {"subset_size": 0, "max_batch_size": 2}, hs.ParameterError, "subset_size"),
    ],
)
def test_what_is_refused(
    arguments: tuple[object, ...], options: dict[str, int], error: type[Exception], name: str
) -> None:
    with pytest.raises(error, match=name):
        hs.mechanisms.cyclic_poisson(*arguments, **options)
