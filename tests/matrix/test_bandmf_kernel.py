"""Privacy losses of BandMF: against the sum over all participation patterns, identities, closed forms; reproducible
on any number of threads, in any batches, on any instruction set.
"""

import inspect
import math
import os
import pickle
import signal
import subprocess
import sys

import hockeystick as hs
import numpy as np
import pytest
from hockeystick import _core

from tests import enumeration

RNG_SEED = 5


def banded(steps, bands, seed=3):
    """A banded strategy that is not Toeplitz."""
    rng = np.random.default_rng(seed)
    matrix = np.zeros((steps, steps))
    for offset in range(bands):
        matrix[range(offset, steps), range(steps - offset)] = rng.uniform(0.1, 1.0, steps - offset)
    return hs.matrix.LowerTriangular(matrix)


def toeplitz(steps, bands):
    return hs.BandedToeplitz((1.0, 0.7, 0.4, 0.25)[:bands], steps)


def close(got, want, relative=1e-12):
    # Relative to the loss, but a loss near 0 is the logarithm of a ratio near 1.
    return np.all(np.abs(got - want) <= relative * np.maximum(1.0, np.abs(want)))


def ratio_and_samples(mechanism, law, samples=60):
    """Outputs from P and from Q, with the exact ln P/Q."""
    rng = np.random.default_rng(RNG_SEED)
    matrix, sigma = mechanism.strategy.matrix(), mechanism.noise_multiplier
    nobody = [(1.0, (0.0,) * mechanism.strategy.steps)]
    y = np.vstack([enumeration.outputs(one, matrix, sigma, samples, rng) for one in (law, nobody)])
    return y, enumeration.log_ratio(law, matrix, sigma, y)


SHAPES = [(8, 3, 3), (5, 3, 3), (4, 4, 4), (7, 9, 4), (1, 1, 1), (2, 3, 2)]
# From a separation of 8 on the kernel computes with plain doubles where they suffice.
CASES = [(12, 4, 3, 0.3, 1.3), (12, 8, 3, 0.3, 1.3), (12, 9, 4, 0.02, 0.3), (12, 8, 3, 0.3, 0.08)] + [
    (*shape, p, sigma) for shape in SHAPES for p, sigma in ((0.3, 1.3), (0.3, 0.08), (0.0, 1.3), (1.0, 0.08))
]


@pytest.mark.sweep
@pytest.mark.parametrize(("steps", "min_sep", "bands", "p", "sigma"), CASES)
def test_single_example_against_enumeration(steps, min_sep, bands, p, sigma):
    for strategy in (toeplitz(steps, bands), banded(steps, bands)):
        for warm in (False, True):
            mechanism = hs.BandMF(strategy, hs.BMinSep(steps, min_sep, p, warm), sigma)
            with np.errstate(divide="ignore"):
                y, want = ratio_and_samples(mechanism, enumeration.min_sep(steps, min_sep, p, warm))
            assert close(mechanism.privacy_loss(y), want)
            assert close(mechanism._blocks("add").evaluate(y, []), -want)


@pytest.mark.parametrize("sigma", [1.3, 0.08])
@pytest.mark.parametrize(
    ("steps", "period", "bands"), [(10, 4, 3), (7, 3, 3), (5, 8, 4), (7, 8, 4), (9, 2, 4), (9, 2, 3)]
)
def test_balls_in_bins_against_enumeration(steps, period, bands, sigma):
    # The last cases have more bands than bins: one example's columns overlap, in one row at the least.
    for strategy in (toeplitz(steps, bands), banded(steps, bands)):
        mechanism = hs.BandMF(strategy, hs.BallsInBins(steps, period), sigma)
        y, want = ratio_and_samples(mechanism, enumeration.balls_in_bins(steps, period))
        assert close(mechanism.privacy_loss(y), want)
        assert close(mechanism._blocks("add").evaluate(y, []), -want)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("steps", "min_sep", "bands"), [(8, 3, 3), (5, 4, 4), (3, 5, 2), (6, 1, 1), (7, 2, 1), (10, 8, 3)]
)
@pytest.mark.parametrize("p", [0.0, 0.2, 0.9, 1.0])
def test_multi_attribution_against_enumeration(steps, min_sep, bands, p):
    strategy = toeplitz(steps, bands)
    for law, enumerate_law in (
        ("dominating", enumeration.multi_attribution),
        ("exact", enumeration.isolated_user),
    ):
        for sigma in (2.0, 0.1):
            scheme = hs.matrix.MultiAttributionBMinSep(steps, min_sep, p, 2, law=law)
            mechanism = hs.BandMF(strategy, scheme, sigma)
            y, want = ratio_and_samples(mechanism, enumerate_law(steps, min_sep, p, 2))
            assert close(mechanism.privacy_loss(y), want)
            assert close(mechanism._blocks("add").evaluate(y, []), -want)


@pytest.mark.parametrize("group", [None, 0, 1, 2])
def test_cyclic_poisson_against_enumeration(group):
    steps, period, p = 8, 3, 0.4
    for strategy in (toeplitz(steps, 3), banded(steps, 3)):
        mechanism = hs.BandMF(strategy, hs.CyclicPoisson(steps, period, p, group), 0.7)
        shift = group or 0
        law = [
            (weight, (0.0,) * shift + values)
            for weight, values in enumeration.cyclic_poisson(steps - shift, period, p)
        ]
        y, want = ratio_and_samples(mechanism, law)
        if group is None and strategy._columns().shape[0] > 1:
            with pytest.raises(hs.ParameterError, match="group"):
                mechanism.privacy_loss(y)
        else:
            assert close(mechanism.privacy_loss(y), want)


@pytest.mark.sweep
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(("steps", "min_sep", "bands"), [(7, 3, 3), (5, 4, 4), (6, 1, 1), (11, 8, 3)])
def test_truncated_against_enumeration(steps, min_sep, bands, warm):
    rng = np.random.default_rng(8)
    for p in (0.0, 0.35, 1.0):
        for sigma in (1.0, 0.15):
            scheme = hs.matrix.TruncatedBMinSep(steps, min_sep, p, 50, 10, warm_start=warm)
            mechanism = hs.BandMF(toeplitz(steps, bands), scheme, sigma)
            base, matrix = enumeration.min_sep(steps, min_sep, p, warm), mechanism.strategy.matrix()
            for limit in (5, 21):  # truncation never, and in about half of the rounds
                r = rng.integers(0, limit, steps)
                above = enumeration.truncated(base, r.tolist(), 10, 1.0, 2.0)
                below = enumeration.truncated(base, r.tolist(), 10, 0.0, -1.0)
                y = np.vstack([enumeration.outputs(law, matrix, sigma, 40, rng) for law in (above, below)])
                want = enumeration.loss(above, below, matrix, sigma, y)
                counts = np.tile(r, (len(y), 1))
                assert close(mechanism.privacy_loss(y, counts), want)
                assert close(mechanism._blocks("add").evaluate(y, counts), -want)


@pytest.mark.parametrize("warm", [False, True])
def test_overlapping_columns_are_bounded_in_both_directions(warm):
    steps, min_sep, p = 9, 2, 0.4
    for strategy in (
        toeplitz(steps, 4),
        banded(steps, 4),
        hs.matrix.LowerTriangular(banded(steps, 9).matrix()),
    ):
        for sigma in (1.5, 0.3):
            mechanism = hs.BandMF(strategy, hs.matrix.RMinSep(steps, min_sep, p, warm), sigma)
            law = enumeration.min_sep(steps, min_sep, p, warm)
            y, exact = ratio_and_samples(mechanism, law)
            bound = enumeration.upper_log_ratio(law, strategy.matrix(), sigma, y)
            assert close(mechanism.privacy_loss(y), bound)
            slack = 1e-12 * np.maximum(1.0, np.abs(exact))
            assert np.all(mechanism.privacy_loss(y) >= exact - slack)
            # In the other direction an upper bound on ln P/Q would be a lower one on the loss.
            opposite = mechanism._blocks("add").evaluate(y, [])
            assert np.all(opposite >= -exact - slack)
            assert np.all(opposite >= -mechanism.privacy_loss(y) - slack)
            assert np.any(opposite > -mechanism.privacy_loss(y) + 1e-3)


def test_one_participation_needs_no_bound():
    steps = 8
    mechanism = hs.BandMF(toeplitz(steps, 4), hs.matrix.RMinSep(steps, steps, 0.3), 0.8)
    y, exact = ratio_and_samples(mechanism, enumeration.min_sep(steps, steps, 0.3, True))
    assert close(mechanism.privacy_loss(y), exact)
    assert close(mechanism._blocks("add").evaluate(y, []), -exact)


SCHEMES = {
    "warm": hs.BMinSep(40, 6, 0.1),
    "cold": hs.BMinSep(40, 6, 0.1, warm_start=False),
    "bins": hs.BallsInBins(40, 13),
    "multi": hs.matrix.MultiAttributionBMinSep(40, 6, 0.05, 3),
    "multi, exact": hs.matrix.MultiAttributionBMinSep(40, 6, 0.05, 3, law="exact"),
    "independent": hs.BMinSep(40, 6, 0.05, examples_per_user=3),
    "cyclic": hs.CyclicPoisson(40, 6, 0.3),
    "overlap": hs.matrix.RMinSep(40, 3, 0.05),
    "truncated": hs.matrix.TruncatedBMinSep(40, 6, 0.1, 300, 32),
    "far": hs.BMinSep(40, 9, 0.05),
    # Fewer than one candidate in two samples; truncated only where all others are sampled.
    "truncated, seldom": hs.matrix.TruncatedBMinSep(40, 4, 0.01, 300, 8),
    "truncated, by all": hs.matrix.TruncatedBMinSep(40, 4, 0.2, 4, 3),
    "truncated, counts by table": hs.matrix.TruncatedBMinSep(40, 9, 0.01, 20_000, 184),
}


def example(name, sigma=2.0):
    return hs.BandMF(toeplitz(40, 4), SCHEMES[name], sigma)


@pytest.mark.sweep
@pytest.mark.parametrize("name", [name for name in SCHEMES if name != "overlap"])
def test_likelihood_ratios_have_mean_one(name):
    # E_Q[P/Q] = 1 and E_P[Q/P] = 1.
    for direction in ("add", "remove"):
        ratios = np.exp(-example(name).sample_losses(30_000, 3, direction))
        assert abs(ratios.mean() - 1.0) < 4.5 * ratios.std() / math.sqrt(ratios.size)


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("name", SCHEMES)
def test_sampled_losses_are_those_of_the_sampled_outputs(name, direction):
    mechanism = example(name)
    core = mechanism._blocks(direction)
    _, outputs, counts, _ = core.draws(9, 2, 1)
    given = core.evaluate(outputs * mechanism.noise_multiplier, [] if counts is None else counts)
    assert close(core.losses(9, 2, 1), given)


@pytest.mark.parametrize("bands", [5, 40, 200, 700])
def test_sliding_products_by_transform(bands):
    # Few bands: sums; many: Fourier transforms of overlapping blocks, or of all steps at once.
    steps = 1500
    strategy = hs.BandedToeplitz.square_root(steps, bands)
    mechanism = hs.BandMF(strategy, hs.BMinSep(steps, max(bands, 5), 0.01), 0.7)
    core = mechanism._blocks("remove")
    outputs = core.draws(1, 0, 1)[1]
    assert close(core.losses(1, 0, 1), mechanism.privacy_loss(0.7 * outputs), 1e-11)


def test_noise_is_standard_normal():
    mechanism = hs.BandMF(hs.Identity(64), hs.Poisson(64, 0.0), 1.0)
    noise = mechanism._blocks("remove").draws(4, 0, 4)[1]
    n = noise.size
    assert abs(noise.mean()) < 5 / math.sqrt(n)
    for power, moment, spread in ((2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10_170)):
        assert abs(np.mean(noise**power) - moment) < 5 * math.sqrt(spread / n)
    # Neighbours in time, and in the group of samples computed side by side.
    for a, b in ((noise[:, :-1], noise[:, 1:]), (noise[:-1], noise[1:]), (noise[:-8], noise[8:])):
        assert abs(np.mean(a * b)) < 5 / math.sqrt(a.size)
        assert abs(np.mean((a**2 - 1) * (b**2 - 1))) < 5 * 2 / math.sqrt(a.size)
    # The tails: binomial counts.
    for z in (3.0, 4.0):
        expected = n * math.erfc(z / math.sqrt(2))
        assert abs(np.count_nonzero(np.abs(noise) > z) - expected) < 5 * math.sqrt(expected)


def test_diagonal_strategy_is_a_sum_over_steps():
    steps, p, sigma = 30, 0.2, 0.9
    mechanism = hs.BandMF(hs.Identity(steps), hs.Poisson(steps, p), sigma)
    y = np.random.default_rng(1).normal(size=(100, steps))
    each = np.log(1 - p + p * np.exp((y - 0.5) / sigma**2))
    assert close(mechanism.privacy_loss(y), each.sum(axis=1), 1e-13)


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_diagonal_strategy_agrees_with_the_privacy_profile(direction):
    steps, p, sigma = 50, 0.1, 1.0
    mechanism = hs.BandMF(hs.Identity(steps), hs.Poisson(steps, p), sigma)
    profile = hs.account(hs.PoissonSampled(hs.Gaussian(sigma), p) * steps, direction)
    losses = mechanism.sample_losses(200_000, 5, direction)
    for epsilon in (0.5, 2.0, 4.0):
        values = np.maximum(0.0, -np.expm1(epsilon - losses))
        error = 4.5 * values.std() / math.sqrt(values.size) + 10 / values.size
        lower, upper = profile.delta_bounds(epsilon)
        assert lower - error <= values.mean() <= upper + error


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_cyclic_poisson_agrees_with_the_privacy_profile(direction):
    steps, period, p, sigma = 30, 4, 0.3, 1.2
    dense = banded(steps, 4)
    norms = dense.column_norms()
    # Without a group: for each turn the largest norm of any group.
    turns = {
        hs.BandMF(toeplitz(steps, 4), hs.CyclicPoisson(steps, period, p), sigma): toeplitz(
            steps, 4
        ).column_norms()[::period],
        hs.BandMF(dense, hs.CyclicPoisson(steps, period, p, group=1), sigma): norms[1::period],
        hs.BandMF(dense, hs.CyclicPoisson(steps, period, p), sigma): [
            norms[i : i + period].max() for i in range(0, steps, period)
        ],
    }
    for mechanism, lengths in turns.items():
        process = sum(hs.PoissonSampled(hs.Gaussian(sigma / float(norm)), p) for norm in lengths)
        profile = hs.account(process, direction)
        losses = mechanism.sample_losses(60_000, 2, direction)
        for epsilon in (0.3, 1.5):
            values = np.maximum(0.0, -np.expm1(epsilon - losses))
            error = 4.5 * values.std() / math.sqrt(values.size) + 10 / values.size
            lower, upper = profile.delta_bounds(epsilon)
            assert lower - error <= values.mean() <= upper + error


def test_certain_warm_start_is_balls_in_bins():
    y = np.random.default_rng(2).normal(size=(50, 40))
    strategy = toeplitz(40, 4)
    chain = hs.BandMF(strategy, hs.BMinSep(40, 7, 1.0), 0.6)
    bins = hs.BandMF(strategy, hs.BallsInBins(40, 7), 0.6)
    assert close(chain.privacy_loss(y), bins.privacy_loss(y))


def test_theorem_6_1_with_one_example_is_the_cold_start():
    y = np.random.default_rng(2).normal(size=(50, 40))
    strategy = toeplitz(40, 4)
    cold = hs.BandMF(strategy, hs.BMinSep(40, 6, 0.1, warm_start=False), 0.6).privacy_loss(y)
    one = hs.BandMF(strategy, hs.matrix.MultiAttributionBMinSep(40, 6, 0.1, 1), 0.6)
    assert close(one.privacy_loss(y), cold)


def test_the_exact_law_is_tighter():
    strategy = hs.BandedToeplitz.square_root(300, 16)
    delta = {}
    for law in ("dominating", "exact"):
        scheme = hs.matrix.MultiAttributionBMinSep(300, 16, 0.05, 2, law=law)
        losses = hs.BandMF(strategy, scheme, 1.5).sample_losses(4000, 1)
        delta[law] = np.maximum(0.0, -np.expm1(2.0 - losses)).mean()
    assert delta["exact"] < 0.5 * delta["dominating"]


@pytest.mark.sweep
@pytest.mark.parametrize("name", SCHEMES)
def test_any_threads_and_batches_give_the_same(name):
    mechanism = example(name)
    core = mechanism._blocks("remove")
    size = core.block_size
    before = hs.max_threads()
    try:
        hs.set_threads(1)
        losses = core.losses(7, 0, 3)
        hs.set_threads(3)
        assert np.array_equal(core.losses(7, 0, 3), losses)
    finally:
        hs.set_threads(before)
    assert np.array_equal(np.concatenate([core.losses(7, i, 1) for i in range(3)]), losses)
    assert np.array_equal(mechanism.sample_losses(size + 5, seed=7), losses[: size + 5])
    assert np.array_equal(mechanism.sample_losses(17, seed=7), losses[:17])
    assert not np.any(np.isin(core.losses(8, 0, 1), losses))
    assert not np.any(np.isin(mechanism._blocks("add").losses(7, 0, 1), -losses))


def test_mechanisms_travel_to_other_processes():
    mechanism = example("warm")
    losses = mechanism.sample_losses(5, 1)
    copied = pickle.loads(pickle.dumps(mechanism))
    assert copied == mechanism
    assert hash(copied) == hash(mechanism)
    assert np.array_equal(copied.sample_losses(5, 1), losses)


def test_samples_are_not_sorted():
    losses = example("warm").sample_losses(4096, 1)
    ranks = np.argsort(np.argsort(losses))
    assert abs(np.corrcoef(ranks, np.arange(4096))[0, 1]) < 5 / 64


def fingerprint():
    """Run here and, as source code, in another process."""
    import hashlib

    import hockeystick as hs

    digest = hashlib.sha256()
    for bands in (90, 7):
        for scheme in (
            hs.BMinSep(300, 90, 0.01),
            hs.BallsInBins(300, 100),
            hs.matrix.MultiAttributionBMinSep(300, 90, 0.01, 3),
            hs.matrix.MultiAttributionBMinSep(300, 90, 0.01, 3, law="exact"),
            hs.BMinSep(300, 90, 0.01, examples_per_user=2),
            hs.matrix.TruncatedBMinSep(300, 90, 0.01, 1000, 9),
            hs.matrix.TruncatedBMinSep(300, 90, 0.001, 100_000, 95, warm_start=False),
        ):
            mechanism = hs.BandMF(hs.BandedToeplitz.square_root(300, bands), scheme, 0.5)
            for direction in ("remove", "add"):
                digest.update(mechanism.sample_losses(100, 1, direction).tobytes())
    return digest.hexdigest()


def test_any_instruction_set_gives_the_same_bits():
    # Here the widest that the machine has; the C++ tests compare all of them, loop by loop.
    run = subprocess.run(
        [sys.executable, "-c", inspect.getsource(fingerprint) + "\nprint(fingerprint())"],
        env={**os.environ, "HOCKEYSTICK_LANES": "baseline"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == fingerprint()


def test_sums_of_a_block():
    core = example("warm")._blocks("remove")
    epsilons = np.array([-1.0, 0.5, 3.0])
    sums, squares = core.delta_sums(3, epsilons, 1, 2)
    assert sums.shape == squares.shape == (3, 2)
    losses = core.losses(3, 1, 2).reshape(2, -1)
    values = np.maximum(0.0, -np.expm1(epsilons[:, None, None] - losses))
    assert np.allclose(sums, values.sum(axis=2), rtol=1e-13, atol=1e-10)
    assert np.allclose(squares, (values**2).sum(axis=2), rtol=1e-13, atol=1e-10)
    assert np.all(core.delta_sums(3, [math.inf], 0, 1)[0] == 0.0)
    assert np.all(core.delta_sums(3, [-math.inf], 0, 1)[0] == core.block_size)


def test_extreme_parameters_stay_finite():
    for steps, bands in ((1, 1), (3, 3), (100, 20)):
        strategy = hs.BandedToeplitz.square_root(steps, bands)
        for sigma in (0.01, 1e6):
            for p in (0.0, 1e-300, 1e-9, 1.0):
                for scheme in (
                    hs.BMinSep(steps, bands, p),
                    hs.BMinSep(steps, 10 * steps, p),
                    hs.matrix.MultiAttributionBMinSep(steps, bands, p, 5, law="exact"),
                    hs.matrix.MultiAttributionBMinSep(steps, bands, p, 5),
                    hs.BMinSep(steps, bands, p, examples_per_user=2),
                    hs.BMinSep(steps, bands, p, examples_per_user=17 if steps < 10 else 4),
                    hs.matrix.TruncatedBMinSep(steps, bands, p, 10**6, 10),
                    hs.matrix.TruncatedBMinSep(steps, 2**50, p, 10**15, 10),
                )[: 2 if sigma > 1.0 else None]:
                    mechanism = hs.BandMF(strategy, scheme, sigma)
                    for direction in ("remove", "add"):
                        losses = mechanism.sample_losses(32, 1, direction)
                        assert np.all(np.isfinite(losses))
                        if p == 0.0:
                            assert np.all(np.abs(losses) < 1e-12)


def test_no_noise_reveals_the_example():
    # p = 1, cold: one Gaussian of sensitivity |c_1|; the mean loss is |C x|^2/(2 sigma^2).
    strategy = toeplitz(10, 3)
    mechanism = hs.BandMF(strategy, hs.BMinSep(10, 5, 1.0, warm_start=False), 0.01)
    x = np.zeros(10)
    x[[0, 5]] = 1.0
    mean = np.sum((strategy.matrix() @ x) ** 2) / 2e-4
    losses = mechanism.sample_losses(4096, 1)
    assert abs(losses.mean() - mean) < 5 * math.sqrt(2 * mean / 4096)


def test_invalid_mechanisms():
    strategy = toeplitz(10, 3)
    scheme = hs.BMinSep(10, 3, 0.1)
    for sigma in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(hs.ParameterError, match="noise_multiplier"):
            hs.BandMF(strategy, scheme, sigma)
    with pytest.raises(hs.ParameterError, match="noise_multiplier"):
        hs.BandMF(strategy, scheme, 1e-9).sample_losses(1, 1)
    with pytest.raises(hs.ParameterError, match=r"scheme.steps = 11: must be strategy.steps = 10"):
        hs.BandMF(strategy, hs.BMinSep(11, 3, 0.1), 1.0)
    for narrow in (
        hs.BMinSep(10, 2, 0.1),
        hs.Poisson(10, 0.1),
        hs.CyclicPoisson(10, 2, 0.1),
        hs.matrix.MultiAttributionBMinSep(10, 2, 0.1, 2),
        hs.matrix.TruncatedBMinSep(10, 2, 0.1, 100, 20),
    ):
        with pytest.raises(hs.ParameterError, match=r"strategy.bands = 3: .* \[1, [12]\]"):
            hs.BandMF(strategy, narrow, 1.0)
    with pytest.raises(hs.ParameterTypeError, match="scheme"):
        hs.BandMF(strategy, "b-min-sep", 1.0)
    with pytest.raises(hs.ParameterTypeError, match="strategy"):
        hs.BandMF(np.eye(10), scheme, 1.0)


def test_invalid_questions():
    mechanism = hs.BandMF(toeplitz(10, 3), hs.BMinSep(10, 3, 0.1), 1.0)
    with pytest.raises(hs.ParameterError, match="direction"):
        mechanism.sample_losses(5, 1, "both")
    with pytest.raises(hs.ParameterError, match="samples"):
        mechanism.sample_losses(-1, 1)
    with pytest.raises(hs.ParameterError, match="seed"):
        mechanism.sample_losses(1, -1)
    with pytest.raises(hs.ParameterTypeError, match="seed"):
        mechanism.sample_losses(1, None)
    with pytest.raises(hs.ParameterError, match=r"outputs: must have the shape \(m, 10\)"):
        mechanism.privacy_loss(np.zeros((2, 9)))
    with pytest.raises(hs.ParameterError, match=r"outputs\[1, 2\] = nan"):
        mechanism.privacy_loss([[0.0] * 10, [0.0, 0.0, math.nan] + [0.0] * 7])
    with pytest.raises(hs.ParameterError, match="public_counts"):
        mechanism.privacy_loss(np.zeros((2, 10)), np.zeros((2, 10)))
    truncated = hs.BandMF(toeplitz(10, 3), hs.matrix.TruncatedBMinSep(10, 3, 0.1, 100, 20), 1.0)
    with pytest.raises(hs.ParameterError, match="public_counts"):
        truncated.privacy_loss(np.zeros((2, 10)))
    with pytest.raises(hs.ParameterError, match="public_counts"):
        truncated.privacy_loss(np.zeros((2, 10)), np.zeros((1, 10)))
    assert mechanism.privacy_loss(np.zeros((0, 10))).shape == (0,)
    assert mechanism.sample_losses(0, 1).shape == (0,)


def test_the_core_refuses_what_the_descriptions_refuse():
    scheme = _core.b_min_sep(2, 0.5, True)
    for columns, steps, sigma in (
        ([[1.0, -0.1]], 5, 1.0),
        ([[1.0, math.nan]], 5, 1.0),
        ([[1.0] * 6], 5, 1.0),
        ([[1.0, 1.0]] * 5, 5, 1.0),  # past the last row
        ([[1.0, 0.5]], 5, 0.0),
        ([[1.0, 0.5]], 5, math.nan),
        ([[1.0, 0.5]], 5, math.inf),
    ):
        with pytest.raises(ValueError, match=r"strategy|entries|bands|noise_multiplier"):
            _core.LossSampler(_core.MatrixMechanism(columns, steps, scheme, sigma), "remove")
    for wrong in (_core.b_min_sep(0, 0.5, True), _core.b_min_sep(2, math.nan, True)):
        with pytest.raises(ValueError, match=r"separation|probability"):
            _core.LossSampler(_core.MatrixMechanism([[1.0]], 5, wrong, 1.0), "remove")


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")
def test_a_signal_stops_the_work():
    class Stop(Exception):
        pass

    ticks = 0

    def stop(*_):
        nonlocal ticks
        ticks += 1
        if ticks == 2:
            raise Stop

    core = hs.BandMF(hs.Identity(2000), hs.Poisson(2000, 0.1), 1.0)._blocks("remove")
    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        # A core that does not listen returns after minutes, with all its signals counted as one: no second tick.
        with pytest.raises(Stop):
            core.delta_sums(1, [1.0], 0, 100_000)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
