"""Users with several examples, each of which follows a b-min-sep chain of its own: `BMinSep(examples_per_user=k)`.

The oracle adds up all patterns of all chains (`enumeration.together`), for runs of at most 8 steps.
"""

import itertools
import json
import math

import hockeystick as hs
import numpy as np
import pytest
from hockeystick import _core
from hockeystick.cli.commands import main
from hockeystick.matrix.scheme import Scheme
from scipy import stats

from tests import enumeration
from tests.matrix.test_bandmf_kernel import banded, close, toeplitz


def shared(steps, min_sep, p, k, warm=True):
    return hs.BMinSep(steps, min_sep, p, warm, examples_per_user=k)


def outputs_of(law, mechanism, samples=25):
    rng = np.random.default_rng(3)
    nobody = [(1.0, (0.0,) * mechanism.strategy.steps)]
    matrix, sigma = mechanism.strategy.matrix(), mechanism.noise_multiplier
    return np.vstack([enumeration.outputs(one, matrix, sigma, samples, rng) for one in (law, nobody)])


SHAPES = [
    (8, 3, 3),
    (6, 3, 2),
    (5, 2, 2),
    (7, 5, 3),
    (4, 6, 3),
    (3, 7, 2),
    (5, 1, 1),
    (1, 1, 1),
    (1, 4, 1),
    (2, 3, 2),
]


@pytest.mark.sweep
@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize(("steps", "min_sep", "bands"), SHAPES)
def test_likelihood_against_enumeration(steps, min_sep, bands, k):
    # Ratios of e^900 for the smaller noise: the kernel's long form.
    for warm, p in itertools.product((False, True), (0.0, 1e-9, 0.3, 0.95, 1.0)):
        one = enumeration.min_sep(steps, min_sep, p, warm)
        if len(one) ** k > 20_000:
            continue
        law = enumeration.together(one, k)
        for strategy, sigma in itertools.product((toeplitz(steps, bands), banded(steps, bands)), (1.3, 0.08)):
            mechanism = hs.BandMF(strategy, shared(steps, min_sep, p, k, warm), sigma)
            assert mechanism.scheme.is_exact
            y = outputs_of(law, mechanism)
            want = enumeration.log_ratio(law, strategy.matrix(), sigma, y)
            assert close(mechanism.privacy_loss(y), want)
            assert close(mechanism._blocks("add").evaluate(y, []), -want)


def test_long_toeplitz_columns_that_are_cut_off_or_not():
    # From 2 * bands steps on, whole columns share one row of the couplings.
    for steps, bands, min_sep in ((9, 4, 4), (8, 4, 4), (7, 4, 4), (8, 3, 4)):
        law = enumeration.together(enumeration.min_sep(steps, min_sep, 0.3, True), 2)
        for sigma in (0.9, 0.06):
            mechanism = hs.BandMF(toeplitz(steps, bands), shared(steps, min_sep, 0.3, 2), sigma)
            y = outputs_of(law, mechanism)
            assert close(
                mechanism.privacy_loss(y), enumeration.log_ratio(law, mechanism.strategy.matrix(), sigma, y)
            )


def test_one_example_is_what_it_was():
    old, new = hs.BMinSep(40, 6, 0.1), hs.BMinSep(40, 6, 0.1, examples_per_user=1)
    assert old == new
    assert repr(old) == "BMinSep(steps=40, min_sep=6, sampling_probability=0.1, warm_start=True)"
    assert old.to_dict() == {
        "type": "BMinSep",
        "steps": 40,
        "min_sep": 6,
        "sampling_probability": 0.1,
        "warm_start": True,
    }
    mechanism = hs.BandMF(toeplitz(40, 4), new, 2.0)
    # Recorded before users could have several examples.
    assert [x.hex() for x in mechanism.sample_losses(2, 1)] == ONE_EXAMPLE
    assert (
        mechanism.no_participation_log_probability
        == hs.BandMF(toeplitz(40, 4), old, 2.0).no_participation_log_probability
    )


ONE_EXAMPLE = ["-0x1.92948c51f9d5dp-2", "-0x1.34d2f0418b1afp-4"]


def test_the_chain_of_one_example_agrees():
    # The core's scheme of independent examples, with one.
    strategy = toeplitz(40, 4)
    for warm in (False, True):
        mechanism = hs.BandMF(strategy, hs.BMinSep(40, 6, 0.1, warm), 0.7)
        one = _core.independent_b_min_sep(6, 0.1, warm, 1)
        core = _core.LossSampler(
            _core.MatrixMechanism(*mechanism.scheme.seen_as(strategy), one, 0.7), "remove"
        )
        assert np.array_equal(core.draws(5, 0, 1)[1], mechanism._blocks("remove").draws(5, 0, 1)[1])
        assert close(core.losses(5, 0, 1)[:256], mechanism.sample_losses(256, 5))


@pytest.mark.sweep
@pytest.mark.parametrize(("min_sep", "k"), [(4, 2), (4, 3), (12, 2), (1, 3), (60, 2)])
@pytest.mark.parametrize("warm", [False, True])
def test_likelihood_ratios_have_mean_one(min_sep, k, warm):
    mechanism = hs.BandMF(toeplitz(40, min(4, min_sep)), shared(40, min_sep, 0.05, k, warm), 2.0)
    for direction in ("add", "remove"):
        ratios = np.exp(-mechanism.sample_losses(20_000, 3, direction))
        assert abs(ratios.mean() - 1.0) < 4.5 * ratios.std() / math.sqrt(ratios.size)


@pytest.mark.parametrize(("k", "warm"), [(2, True), (2, False), (3, True)])
def test_participations_have_the_enumerated_law(k, warm):
    steps, min_sep, p = 4, 3, 0.3
    law = {
        values: weight
        for weight, values in enumeration.together(enumeration.min_sep(steps, min_sep, p, warm), k)
    }
    core = hs.BandMF(hs.Identity(steps), shared(steps, min_sep, p, k, warm), 1.0)._blocks("remove")
    drawn = core.draws(4, 0, 8)[0]
    counts = {}
    for row in drawn.tolist():
        counts[tuple(row)] = counts.get(tuple(row), 0) + 1
    assert set(counts) <= set(law)
    total = len(drawn)
    usual = [values for values, weight in law.items() if weight * total > 5.0]
    observed = np.array([counts.get(values, 0) for values in usual] + [0])
    expected = np.array([law[values] * total for values in usual] + [0.0])
    observed[-1], expected[-1] = total - observed.sum(), total - expected.sum()
    kept = expected > 5.0
    statistic = float(np.sum((observed[kept] - expected[kept]) ** 2 / expected[kept]))
    assert statistic < stats.chi2.isf(1e-6, np.count_nonzero(kept) - 1)


def exact_delta(law, mechanism, epsilon, samples, seed):
    """delta of both directions with standard errors, by outputs of its own and the enumeration."""
    rng = np.random.default_rng(seed)
    matrix, sigma = mechanism.strategy.matrix(), mechanism.noise_multiplier
    nobody = [(1.0, (0.0,) * mechanism.strategy.steps)]
    found = []
    for source, sign in ((law, 1.0), (nobody, -1.0)):
        losses = sign * enumeration.log_ratio(
            law, matrix, sigma, enumeration.outputs(source, matrix, sigma, samples, rng)
        )
        values = -np.expm1(np.minimum(epsilon - losses, 0.0))
        found.append((float(values.mean()), float(values.std() / math.sqrt(samples))))
    return found


@pytest.mark.parametrize("k", [2, 3])
def test_delta_against_enumeration(k):
    mechanism = hs.BandMF(toeplitz(6, 3), shared(6, 3, 0.15, k), 1.5)
    law = enumeration.together(enumeration.min_sep(6, 3, 0.15, True), k)
    for epsilon in (0.2, 0.8):
        truth = exact_delta(law, mechanism, epsilon, 60_000, 7)
        found = hs.estimate_delta(mechanism, epsilon, 60_000, seed=4)
        for entry, (value, error) in zip(found.directions, truth, strict=True):
            assert entry.lower <= value + 5.0 * error
            assert value - 5.0 * error <= entry.upper
            assert entry.upper - entry.lower < 0.15 * value + 0.003
    # No loss of direction "add" is larger than -k ln Pr[one example never takes part].
    none = mechanism.no_participation_log_probability
    one = hs.BandMF(toeplitz(6, 3), hs.BMinSep(6, 3, 0.15), 1.5).no_participation_log_probability
    assert none == pytest.approx(k * one, rel=1e-13)
    assert none <= math.log({v: w for w, v in law}[(0.0,) * 6])
    assert hs.estimate_delta(mechanism, 1e-6 - none, 100, seed=1).directions[1].samples == 0


# --- More examples than the table affords ---------------------------------------------------------------------


def test_how_many_are_exact():
    assert shared(2000, 1022, 0.1, 2).is_exact
    assert not shared(2000, 1023, 0.1, 2).is_exact
    assert shared(2000, 144, 0.1, 3).is_exact
    assert not shared(2000, 145, 0.1, 3).is_exact
    assert shared(10, 2, 0.1, 16).is_exact
    assert not shared(10, 2, 0.1, 17).is_exact
    assert shared(10, 1, 0.1, 1000).is_exact  # binomial
    # As many slots as steps are enough.
    assert shared(64, 2**40, 0.1, 3).is_exact


@pytest.mark.sweep
@pytest.mark.parametrize("p", [0.02, 0.2, 1.0])
@pytest.mark.parametrize("sigma", [2.0, 0.3])
def test_bounds_on_either_side_of_the_likelihood(p, sigma):
    """17 examples: groups of 16 and one; and as an oracle the enumeration of three steps."""
    steps, min_sep, k = 3, 2, 17
    one = enumeration.min_sep(steps, min_sep, p, True)
    law = enumeration.together(one, k)
    for strategy in (toeplitz(steps, 2), banded(steps, 2)):
        mechanism = hs.BandMF(strategy, shared(steps, min_sep, p, k), sigma)
        assert not mechanism.scheme.is_exact
        y = outputs_of(law, mechanism)
        exact = enumeration.log_ratio(law, strategy.matrix(), sigma, y)
        slack = 1e-11 * np.maximum(1.0, np.abs(exact))
        above = mechanism.privacy_loss(y)
        below = -mechanism._blocks("add").evaluate(y, [])
        assert np.all(above >= exact - slack)
        assert np.all(below <= exact + slack)
        assert np.any(above > exact + 1e-6) or p == 1.0
        # Jensen's bound, in the words of the documentation.
        values = np.array([pattern for _, pattern in one])
        weights = np.log([weight for weight, _ in one])
        means = values @ strategy.matrix().T / sigma
        exponents = weights + y / sigma @ means.T - 0.5 * np.square(means).sum(axis=1)
        single = np.logaddexp.reduce(exponents, axis=1)
        middle = np.exp(exponents - single[:, None]) @ means
        want = k * single - k * (k - 1) / 2 * np.square(middle).sum(axis=1)
        # Nor is it less than the chance that nobody takes part.
        none = math.fsum(weight for weight, pattern in one if not any(pattern))
        if none > 0.0:
            want = np.maximum(want, k * math.log(none))
        assert np.all(np.abs(below - want) <= 1e-11 * (np.abs(want) + k * np.abs(single)) + 1e-11)
        assert hs.estimate_delta(mechanism, 1.0, 200, seed=1).lower == 0.0


def test_bounds_are_near_where_examples_seldom_meet():
    # 17 examples, of which two steps show how many are in each of them.
    law = enumeration.together(enumeration.min_sep(2, 2, 0.003, True), 17)
    mechanism = hs.BandMF(toeplitz(2, 2), shared(2, 2, 0.003, 17), 1.5)
    truth = exact_delta(law, mechanism, 0.05, 50_000, 2)
    found = hs.estimate_delta(mechanism, 0.05, 50_000, seed=4)
    for entry, (value, error) in zip(found.directions, truth, strict=True):
        assert value - 5.0 * error <= entry.upper <= 1.3 * value + 5.0 * error


# --- Everything around it ---------------------------------------------------------------------------------


def test_more_examples_need_more_noise():
    strategy = toeplitz(24, 4)
    noise = [
        hs.calibrate_bandmf(strategy, hs.BMinSep(24, 4, 0.03, examples_per_user=k), 2.0, 0.02, seed=3)
        for k in (1, 2, 3)
    ]
    values = [found.noise_multiplier for found in noise]
    assert values == sorted(values)
    assert values[0] < values[2]
    assert "all examples of one user, at most 3, are replaced" in noise[2].statement()
    assert "one example" not in noise[2].statement()
    # There is no cyclic fallback for users of several examples.
    assert noise[0].fallback.kind == "cyclic"
    assert noise[1].fallback.kind == "unamplified"
    with pytest.raises(hs.ParameterError, match="no cyclic Poisson"):
        hs.calibrate_bandmf(strategy, shared(24, 4, 0.03, 2), 2.0, 0.02, fallback="cyclic")
    # k times the sensitivity of one, whatever the chains do.
    sensitivity = 2 * strategy.sensitivity(4)
    proven = hs.account(hs.Gaussian(noise[1].fallback.noise_multiplier / sensitivity) * 1)
    assert proven.delta(2.0) <= noise[1].plan.tested_delta * (1.0 + 1e-9)


def test_adjacency_and_methods():
    mechanism = hs.BandMF(toeplitz(24, 4), shared(24, 4, 0.03, 2), 2.0)
    for adjacency in ("add", "remove", "add_or_remove"):
        with pytest.raises(hs.ParameterError, match="adjacency"):
            hs.estimate_delta(mechanism, 1.0, 100, adjacency=adjacency)
    with pytest.raises(hs.ParameterError, match="method"):
        hs.estimate_delta(mechanism, 1.0, 1000, method="tilted")
    with pytest.raises(hs.ParameterError, match="examples_per_user = 0"):
        hs.BMinSep(5, 2, 0.1, examples_per_user=0)
    with pytest.raises(hs.ParameterError, match="bands"):
        hs.BandMF(toeplitz(24, 4), shared(24, 3, 0.03, 2), 2.0)


def test_without_separation_it_is_binomial_and_can_be_tilted():
    mechanism = hs.BandMF(hs.Identity(12), shared(12, 1, 0.02, 2), 1.0)
    tilted = hs.estimate_delta(mechanism, 3.0, 20_000, seed=1, method="tilted")
    plain = hs.estimate_delta(mechanism, 3.0, 400_000, seed=1, method="plain")
    assert tilted.lower <= plain.upper
    assert plain.lower <= tilted.upper


def test_serialisation():
    scheme = shared(24, 4, 0.03, 2)
    assert Scheme.from_dict(scheme.to_dict()) == scheme
    assert "examples_per_user=2" in repr(scheme)
    assert hs.BMinSep.of_rate(24, 4, 0.01, examples_per_user=2).examples_per_user == 2
    assert eval(repr(scheme), {"BMinSep": hs.BMinSep}) == scheme


def test_batches(tmp_path):
    graph = hs.AttributionGraph.from_lists([[e, e + 1] for e in range(50)])
    scheme = shared(30, 4, 0.1, 2)
    sampler = scheme.batches(graph=graph, seed=5)
    plain = hs.BMinSep(30, 4, 0.1).batches(50, seed=5)
    for _ in range(10):
        assert np.array_equal(sampler.next(), plain.next())
    sampler.save(tmp_path / "batches")
    with pytest.raises(hs.ParameterError, match="graph = None"):
        hs.sampling.BatchSampler.load(tmp_path / "batches", scheme)
    again = hs.sampling.BatchSampler.load(tmp_path / "batches", scheme, graph=graph)
    assert [batch.tolist() for batch in again] == [batch.tolist() for batch in plain]
    assert again.to_dict()["most_examples_per_user"] == 2
    with pytest.raises(hs.ParameterError, match="another one"):
        hs.sampling.BatchSampler.load(tmp_path / "batches", hs.BMinSep(30, 4, 0.1), graph=graph)
    with pytest.raises(hs.ParameterTypeError, match="graph: must be given"):
        scheme.batches(50)
    with pytest.raises(hs.ParameterTypeError, match="graph: must not be given"):
        hs.BMinSep(30, 4, 0.1).batches(graph=graph)
    crowded = hs.AttributionGraph.from_lists([["ann"], ["ann", "bob"], ["ann"]])
    with pytest.raises(hs.ParameterError, match="a user has 3 examples, more than the 2"):
        scheme.batches(graph=crowded)


def test_command_line(capsys):
    run = [
        "bandmf",
        "--epsilon",
        "3",
        "--delta",
        "0.05",
        "--steps",
        "24",
        "--bands",
        "4",
        "--sampling-probability",
        "0.05",
        "--seed",
        "3",
        "--json",
    ]
    assert main([*run, "--examples-per-user", "2"]) == 0
    content = json.loads(capsys.readouterr().out)
    expected = hs.calibrate_bandmf(
        hs.BandedToeplitz.optimized(24, 4), shared(24, 4, 0.05, 2), 3.0, 0.05, seed=3
    )
    assert content == json.loads(expected.to_json())
    assert main([*run, "--scheme", "cyclic-poisson", "--examples-per-user", "2"]) != 0
    assert "--examples-per-user: only b-min-sep has it" in capsys.readouterr().err
