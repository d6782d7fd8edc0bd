"""Training plans: accounting, lockstep of batches and noise, every refusal, kill -9, and what reports say."""

import contextlib
import copy
import json
import math
import os
import pickle
import re
import signal
import stat
import struct
import subprocess
import sys
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import hockeystick as hs
import numpy as np
import pytest
from hockeystick.cli.commands import main
from hockeystick.matrix.scheme import Scheme
from hockeystick.training import run as training_run
from scipy import stats

from tests.anywhere import killed_again_and_again

SIZE, DIMENSION = 120, 5
DATA = np.random.default_rng(8).uniform(-0.4, 0.4, (SIZE, DIMENSION))  # rows of norm below 1
SEED = 31_415_926_535


def columns(steps, bands):
    array = np.random.default_rng(3).uniform(0.1, 0.4, (steps, bands))
    array[:, 0] = 1.0
    for offset in range(1, bands):
        array[steps - offset :, offset] = 0.0
    return array


def cyclic_plan(steps=12, delta=1e-4, size=SIZE, probability=0.3, **budget):
    return hs.plan_training(
        hs.CyclicPoisson(steps, 3, probability),
        size,
        strategy=hs.BandedToeplitz.square_root(steps, 3),
        delta=delta,
        **(budget or {"noise_multiplier": 0.8}),
    )


PLAN = cyclic_plan()


def quick(scheme, strategy=None, graph=None, size=SIZE, **changes):
    """A verified plan from few samples: a delta so large needs hardly any."""
    arguments = {"epsilon": 3.0, "delta": 0.05, "calibration_seed": 4, "graph": graph, **changes}
    return hs.plan_training(scheme, size, strategy=strategy, **arguments)


def graph_of(examples, per_user):
    return hs.AttributionGraph.from_lists([[i // per_user, 1000 + i // per_user] for i in range(examples)])


def chained(examples):
    """Every example shared by two users of two examples each."""
    return hs.AttributionGraph.from_lists([[i, i + 1] for i in range(examples)])


def every_kind():
    """One plan for everything that can be planned."""
    toeplitz = hs.BandedToeplitz.square_root(8, 2)
    given = {"noise_multiplier": 0.9, "delta": 1e-3}
    pairs = graph_of(SIZE, 2)
    return {
        "poisson": hs.plan_training(hs.Poisson(8, 0.1), SIZE, **given),
        "dp_sgd": hs.plan_training(lambda s: hs.dp_sgd(s, SIZE, 12, steps=8), SIZE, **given),
        "truncated": hs.plan_training(
            lambda s: hs.TruncatedPoissonSampled(s, SIZE, 0.1, 14) * 8, SIZE, **given
        ),
        "fixed": hs.plan_training(
            lambda s: hs.WithoutReplacement(hs.Gaussian(s), 12, SIZE) * 8,
            SIZE,
            adjacency="replace_one",
            **given,
        ),
        "cyclic": hs.plan_training(
            hs.CyclicPoisson(8, 2, 0.2), SIZE, strategy=hs.matrix.Banded(columns(8, 2)), **given
        ),
        "truncated cyclic": hs.plan_training(
            hs.CyclicPoisson(8, 7, 0.7, dataset_size=SIZE, max_batch_size=14), SIZE, strategy=2, **given
        ),
        "balls": quick(
            hs.BallsInBins(8, 4),
            hs.matrix.LowerTriangular(hs.matrix.Banded(columns(8, 3)).matrix()),
            noise_multiplier=3.0,
        ),
        "b-min-sep": quick(hs.BMinSep(8, 2, 0.2), toeplitz, noise_multiplier=1.5),
        "r-min-sep": quick(
            hs.matrix.RMinSep(8, 3, 0.2), hs.matrix.InverseBanded([1.0, -0.4], 8), noise_multiplier=9.0
        ),
        "truncated b-min-sep": quick(
            hs.matrix.TruncatedBMinSep(8, 2, 0.1, SIZE, 14), toeplitz, noise_multiplier=4.0
        ),
        "users": quick(
            hs.matrix.MultiAttributionBMinSep(8, 2, 0.1, 2), toeplitz, pairs, noise_multiplier=4.0
        ),
        "users who share": quick(
            hs.BMinSep(8, 2, 0.1, examples_per_user=2), toeplitz, chained(SIZE), noise_multiplier=5.0
        ),
    }


@pytest.fixture(scope="module")
def kinds():
    return every_kind()


def gradient_sum(step, weights=None):
    total = step.take(DATA).sum(axis=0)
    # Something that depends on the model, so that a resumed run goes astray if the model does.
    return total if weights is None else 0.5 * total * np.tanh(1.0 + weights**2)


def train(run, weights, until=None):
    """The loop of the tests: a plain descent; the sums that it released, by step."""
    released = {}
    for step in run:
        released[step.number] = step.add_noise(gradient_sum(step, weights)).copy()
        weights -= 0.1 * released[step.number]
        if until is not None and step.number + 1 == until:
            break
    return released


# --- Accounting -------------------------------------------------------------------------------------


def test_certified_plans_are_what_account_says():
    sigma, delta = 0.9, 1e-4
    cases = [
        (hs.Poisson(50, 0.1), None, hs.BandMF(hs.Identity(50), hs.Poisson(50, 0.1), sigma), "zero_out"),
        (
            lambda s: hs.dp_sgd(s, SIZE, 12, epochs=5),
            None,
            hs.dp_sgd(sigma, SIZE, 12, epochs=5),
            "add_or_remove",
        ),
        (
            lambda s: hs.TruncatedPoissonSampled(s, SIZE, 0.1, 14) * 30,
            None,
            hs.TruncatedPoissonSampled(sigma, SIZE, 0.1, 14) * 30,
            "zero_out",
        ),
        (
            lambda s: hs.WithoutReplacement(hs.Gaussian(s), 12, SIZE) * 30,
            None,
            hs.WithoutReplacement(hs.Gaussian(sigma), 12, SIZE) * 30,
            "replace_one",
        ),
        (
            hs.CyclicPoisson(30, 3, 0.3),
            hs.matrix.Banded(columns(30, 3)),
            hs.BandMF(hs.matrix.Banded(columns(30, 3)), hs.CyclicPoisson(30, 3, 0.3), sigma),
            "zero_out",
        ),
    ]
    for sampling, strategy, described, adjacency in cases:
        plan = hs.plan_training(
            sampling, SIZE, delta=delta, noise_multiplier=sigma, strategy=strategy, adjacency=adjacency
        )
        assert plan.epsilon == hs.account(described, adjacency).epsilon(delta)
        assert plan.guarantee.kind == "certified"
        assert plan.guarantee.failure_probability is None
        assert plan.noise_multiplier == sigma
        assert plan.steps in (described.as_process().steps, getattr(strategy, "steps", None))


def test_calibrated_plans_keep_within_the_budget():
    found = hs.calibrate_noise_multiplier(
        lambda s: hs.PoissonSampled(hs.Gaussian(s), 0.1) * 50, 2.0, 1e-4, adjacency="zero_out"
    )
    plan = hs.plan_training(hs.Poisson(50, 0.1), SIZE, epsilon=2.0, delta=1e-4)
    assert plan.noise_multiplier == pytest.approx(float(found), rel=2e-6)
    assert plan.epsilon == 2.0
    assert hs.account(plan.mechanism, "zero_out").delta(2.0) <= 1e-4
    less = replace(plan.mechanism, noise_multiplier=plan.noise_multiplier * (1 - 1e-5))
    assert hs.account(less, "zero_out").epsilon_bounds(1e-4).lower > 2.0


def test_a_number_of_bands_is_a_strategy():
    scheme = hs.CyclicPoisson.of_rate(12, 3, 0.1)
    assert scheme == hs.CyclicPoisson(12, 3, 3 * 0.1)
    plan = hs.plan_training(scheme, SIZE, strategy=3, noise_multiplier=1.0, delta=1e-3)
    assert plan.strategy == hs.BandedToeplitz.optimized(12, 3)
    assert plan.expected_batch_size == pytest.approx(0.1 * SIZE)
    assert hs.CyclicPoisson.of_rate(12, 3, 1 / 3).sampling_probability == 1.0
    with pytest.raises(hs.ParameterError, match=r"\[0, 1/3\]"):
        hs.CyclicPoisson.of_rate(12, 3, 0.34)
    for wrong in (0, 13, True, "optimized"):
        with pytest.raises((hs.ParameterError, hs.ParameterTypeError), match="strategy"):
            hs.plan_training(scheme, SIZE, strategy=wrong, noise_multiplier=1.0, delta=1e-3)


def test_verified_plans_are_what_calibrate_bandmf_found():
    plan = quick(hs.BMinSep(8, 2, 0.2), hs.BandedToeplitz.square_root(8, 2))
    found = hs.calibrate_bandmf(hs.BandedToeplitz.square_root(8, 2), hs.BMinSep(8, 2, 0.2), 3.0, 0.05, seed=4)
    assert plan.mechanism == found.mechanism
    assert plan.guarantee.statement.startswith(found.statement())
    assert plan.guarantee.evidence == found.to_dict()
    assert plan.guarantee.kind == "verified"
    assert found.plan is not None
    assert plan.guarantee.failure_probability == found.plan.failure_probability
    # What the verifier let through is what an estimate finds, far from it: a sanity check of the budget.
    estimate = hs.estimate_delta(plan.mechanism, 3.0, 200_000, seed=9)
    assert estimate.lower < 0.05


def test_given_noise_is_verified_or_refused(kinds):
    enough = 1.2 * kinds["b-min-sep"].noise_multiplier
    scheme, strategy = hs.BMinSep(8, 2, 0.2), hs.BandedToeplitz.square_root(8, 2)
    plan = quick(scheme, strategy, noise_multiplier=enough)
    assert plan.noise_multiplier == enough
    assert [entry["accepted"] for entry in plan.guarantee.evidence["verifications"]] == [True]
    with pytest.raises(hs.ParameterError, match="not accepted"):
        quick(scheme, strategy, noise_multiplier=0.3 * enough)
    with pytest.raises(hs.ParameterError, match="epsilon = None"):
        quick(scheme, strategy, epsilon=None, noise_multiplier=enough)
    with pytest.raises(hs.ParameterError, match=r"more than 0\.1"):
        hs.plan_training(hs.Poisson(8, 0.1), SIZE, delta=1e-3, epsilon=0.1, noise_multiplier=0.9)


def test_a_fallback_changes_the_batches_too():
    # So few samples that nothing below the fallback can be accepted.
    plan = hs.plan_training(
        hs.BMinSep(6, 6, 0.9), SIZE, epsilon=0.5, delta=0.05, strategy=hs.Identity(6), calibration_seed=1
    )
    if plan.guarantee.evidence["fell_back"]:
        assert repr(plan.sampling) == plan.guarantee.evidence["fallback"]["scheme"]
    assert plan.expected_batch_size == pytest.approx(SIZE * hs.BMinSep(6, 6, 0.9).participation_rate)


def test_expected_batch_sizes(kinds):
    trials = 300
    allocated = hs.plan_training(
        lambda sigma: hs.RandomAllocation(sigma, 4) * 2, SIZE, delta=1e-4, noise_multiplier=1.3
    )
    assert allocated.expected_batch_size == SIZE / 4
    for name, plan in {**kinds, "allocated": allocated}.items():
        sizes = [
            len(indices)
            for trial in range(trials)
            for indices in training_run._drawn(plan, 1000 + trial, 1, clipping_norm=1.0)[1]
        ]
        mean, error = np.mean(sizes), np.std(sizes) / np.sqrt(trials)
        assert abs(mean - plan.expected_batch_size) <= 6 * error, name


def test_the_mean_of_truncated_separated_batches_is_that_of_a_truncated_binomial():
    scheme = hs.matrix.TruncatedBMinSep(4, 2, 0.3, 3, 1)
    left_out = 1.0 - 0.3 / 1.3  # in the long run
    assert scheme.expected_batch_size(3) == pytest.approx(1.0 - left_out**3, rel=1e-12)
    # Nothing is cut.
    assert hs.matrix.TruncatedBMinSep(4, 2, 0.3, 3, 3).expected_batch_size(3) == pytest.approx(3 * 0.3 / 1.3)


# --- What cannot be planned ---------------------------------------------------------------------------


def test_plans_refuse_what_was_not_analysed():
    given = {"noise_multiplier": 0.9, "delta": 1e-3}
    with pytest.raises(hs.ParameterError, match="at least one"):
        hs.plan_training(hs.Poisson(8, 0.1), SIZE, delta=1e-3)
    with pytest.raises(hs.ParameterError, match="dataset_size = 120: must be 100"):
        hs.plan_training(lambda s: hs.TruncatedPoissonSampled(s, 100, 0.1, 14) * 8, SIZE, **given)
    with pytest.raises(hs.ParameterError, match="dataset_size = 120: must be 100"):
        hs.plan_training(
            lambda s: hs.WithoutReplacement(hs.Gaussian(s), 5, 100) * 8,
            SIZE,
            adjacency="replace_one",
            **given,
        )
    for other in (100, 140):
        with pytest.raises(hs.ParameterError, match=f"dataset_size = 120: must be {other}"):
            hs.plan_training(hs.matrix.TruncatedBMinSep(8, 2, 0.1, other, 14), SIZE, epsilon=1.0, **given)
    with pytest.raises(hs.ParameterError, match="dataset_size = 120: must be 100"):
        hs.plan_training(lambda s: hs.dp_sgd(s, 100, 10, steps=8), SIZE, **given)
    with pytest.raises(hs.ParameterError, match="group = 1"):
        hs.plan_training(hs.CyclicPoisson(8, 2, 0.1, group=1), SIZE, **given)
    with pytest.raises(hs.ParameterError, match="not a guarantee"):
        hs.plan_training(
            lambda s: hs.WithoutReplacement(hs.Gaussian(s), 5, SIZE, pair="koskela2020") * 8,
            SIZE,
            adjacency="replace_one",
            **given,
        )
    with pytest.raises(hs.ParameterError, match="one repeated step"):
        hs.plan_training(
            lambda s: hs.PoissonSampled(hs.Gaussian(s), 0.1) * 8 + hs.Laplace(1.0), SIZE, **given
        )
    with pytest.raises(hs.ParameterError, match="must be Gaussian"):
        hs.plan_training(lambda s: hs.PoissonSampled(hs.Laplace(s), 0.1) * 8, SIZE, **given)
    with pytest.raises(hs.ParameterError, match="must be the argument"):
        hs.plan_training(lambda s: hs.PoissonSampled(hs.Gaussian(2 * s), 0.1) * 8, SIZE, **given)
    with pytest.raises(hs.ParameterTypeError, match="sampling = 3"):
        hs.plan_training(3, SIZE, **given)
    with pytest.raises(hs.ParameterError, match="goes with a Scheme"):
        hs.plan_training(
            lambda s: hs.PoissonSampled(hs.Gaussian(s), 0.1) * 8, SIZE, strategy=hs.Identity(8), **given
        )
    with pytest.raises(hs.ParameterError, match=r"must be strategy\.steps"):
        hs.plan_training(hs.Poisson(8, 0.1), SIZE, strategy=hs.Identity(9), **given)


def test_plans_for_users_need_their_graph():
    scheme = hs.matrix.MultiAttributionBMinSep(8, 2, 0.1, 2)
    with pytest.raises(hs.ParameterError, match="graph = None"):
        quick(scheme)
    with pytest.raises(hs.ParameterError, match="a user has 3 examples, more than the 2"):
        quick(scheme, graph=graph_of(SIZE, 3))
    for other in (60, SIZE + 20):
        with pytest.raises(hs.ParameterError, match=f"must be {other}, that of the graph"):
            quick(scheme, graph=graph_of(other, 2))
    lists = [[i] for i in range(SIZE - 1)] + [[]]
    with pytest.raises(hs.ParameterError, match="1 examples belong to no user"):
        quick(scheme, graph=hs.AttributionGraph.from_lists(lists))
    with pytest.raises(hs.ParameterError, match="only BMinSep with examples_per_user > 1 and"):
        quick(hs.BMinSep(8, 2, 0.1), graph=graph_of(SIZE, 2))
    with pytest.raises(hs.ParameterTypeError, match="AttributionGraph"):
        quick(scheme, graph=[[0], [1]])
    bounded = graph_of(SIZE, 3).bound(2)
    plan = quick(scheme, graph=bounded, size=bounded.graph.num_examples, noise_multiplier=4.0)
    assert plan.graph is bounded.graph
    assert "one user, at most 2," in plan.guarantee.unit
    with pytest.raises(
        hs.ParameterError, match="example 1 belongs to user 2 and to user 1, who also owns example 0"
    ):
        quick(scheme, graph=chained(SIZE), noise_multiplier=4.0)
    independent = hs.BMinSep(8, 2, 0.1, examples_per_user=2)
    with pytest.raises(hs.ParameterError, match="graph = None"):
        quick(independent)
    with pytest.raises(hs.ParameterError, match="a user has 3 examples, more than the 2"):
        quick(independent, graph=graph_of(SIZE, 3))
    assert (
        "one user, at most 2," in quick(independent, graph=chained(SIZE), noise_multiplier=5.0).guarantee.unit
    )
    assert plan.guarantee.unit in plan.guarantee.statement
    assert "one record" not in plan.guarantee.statement
    assert plan.expected_batch_size == hs.sampling.expected_batch_size(bounded.graph, 0.1, 2)


# --- Files --------------------------------------------------------------------------------------------


def test_plans_survive_files(kinds, tmp_path):
    for name, plan in kinds.items():
        path = tmp_path / name
        plan.save(path)
        loaded = hs.training.TrainingPlan.load(path, graph=plan.graph)
        assert loaded == plan
        assert loaded.mechanism == plan.mechanism
        assert loaded.guarantee == plan.guarantee
        assert loaded.to_dict() == plan.to_dict()
        assert hash(loaded) == hash(plan)
    assert len({plan.fingerprint for plan in kinds.values()}) == len(kinds)


def test_strategies_survive_files_exactly():
    inverse = -0.3 * columns(9, 2)
    inverse[:, 0] = 1.0 / 3.0
    for strategy in (
        hs.matrix.InverseBanded(inverse),
        hs.BandedToeplitz((1 / 3, 1e-300, 0.1), 9),
        hs.Identity(9),
    ):
        plain, arrays = strategy.to_parts()
        assert hs.matrix.Strategy.from_parts(json.loads(json.dumps(plain)), arrays) == strategy
    with pytest.raises(ValueError, match="unknown strategy"):
        hs.matrix.Strategy.from_parts({"type": "Other", "steps": 3}, {})
    with pytest.raises(ValueError, match="3 steps, not 4"):
        hs.matrix.Strategy.from_parts({"type": "Banded", "steps": 4}, {"strategy": columns(3, 2)})
    with pytest.raises(ValueError, match="unknown scheme"):
        Scheme.from_dict({"type": "Other", "steps": 3})


def test_other_plans_have_other_fingerprints():
    others = [
        cyclic_plan(size=SIZE + 3),
        cyclic_plan(steps=15),
        cyclic_plan(probability=0.31),
        cyclic_plan(noise_multiplier=0.81),
        cyclic_plan(delta=1e-5),
    ]
    assert cyclic_plan() == PLAN
    assert len({PLAN.fingerprint, *(plan.fingerprint for plan in others)}) == 6
    # Whom it promises what, and whose the examples are.
    assert replace(PLAN, guarantee=replace(PLAN.guarantee, adjacency="replace_one")) != PLAN
    users = hs.matrix.MultiAttributionBMinSep(12, 4, 0.3, 2)
    mechanism = hs.BandMF(hs.BandedToeplitz.square_root(12, 4), users, 1.0)
    pairs = hs.AttributionGraph.from_lists([[i // 2] for i in range(SIZE)])
    one, other = (replace(PLAN, mechanism=mechanism, graph=graph) for graph in (graph_of(SIZE, 2), pairs))
    assert one != other


def test_loading_refuses_damage_and_other_graphs(kinds, tmp_path):
    path = tmp_path / "plan"
    PLAN.save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
    with pytest.raises(hs.StorageError):
        hs.training.TrainingPlan.load(path)
    hs.Accountant().save(path)
    with pytest.raises(hs.StorageError, match="wanted: training plan"):
        hs.training.TrainingPlan.load(path)
    kinds["users"].save(path)
    with pytest.raises(hs.ParameterError, match="the one that the plan was made with"):
        hs.training.TrainingPlan.load(path)
    with pytest.raises(hs.ParameterError, match="the one that the plan was made with"):
        hs.training.TrainingPlan.load(path, graph=graph_of(SIZE, 1))
    PLAN.save(path)
    with pytest.raises(hs.ParameterError, match="must be none"):
        hs.training.TrainingPlan.load(path, graph=graph_of(SIZE, 2))


# --- Steps --------------------------------------------------------------------------------------------


def test_batches_and_noise_are_those_of_the_plan(kinds):
    """What a run adds is `CorrelatedNoise` of the plan's strategy, bit by bit, and its batches the scheme's own."""
    for name, plan in kinds.items():
        noise = hs.CorrelatedNoise(
            plan.strategy, DIMENSION, plan.noise_multiplier, clipping_norm=1.5, seed=SEED, dtype="float64"
        )
        rows = noise.rows(plan.steps)
        batches = list(training_run._drawn(plan, SEED, 1, clipping_norm=1.0)[1])
        with plan.start(DIMENSION, clipping_norm=1.5, seed=SEED) as run:
            steps = 0
            for step, row, batch in zip(run, rows, batches, strict=True):
                np.testing.assert_array_equal(step.indices, batch, err_msg=name)
                total = gradient_sum(step)
                expected = total.copy()
                noisy = step.add_noise(total)
                assert noisy is total
                np.testing.assert_allclose(noisy - expected, row, rtol=0, atol=1e-13, err_msg=name)
                steps += 1
        assert steps == plan.steps == run.released


def test_the_noise_of_a_run_has_the_planned_law():
    """Prefix sums of the noise of real runs have the variance that the strategy says, at every step."""
    runs, dimension = 40, 500
    total = np.zeros((PLAN.steps, dimension * runs))
    for trial in range(runs):
        with PLAN.start(dimension, clipping_norm=2.0, seed=trial) as run:
            for step in run:
                _ = step.indices
                total[step.number, trial * dimension : (trial + 1) * dimension] = step.add_noise(
                    np.zeros(dimension)
                )
    variances = np.var(np.cumsum(total, axis=0), axis=1)
    expected = 4.0 * PLAN.strategy.per_step_error(PLAN.noise_multiplier)
    # A sample variance of 20,000 normals: 1 % standard deviation; twelve steps, each beyond 5 of them: 1e-5.
    assert np.all(np.abs(variances / expected - 1.0) < 0.05)


CLOSED_LOOP = {
    "poisson": (hs.Poisson(6, 0.4), hs.Identity(6)),
    "cyclic": (hs.CyclicPoisson(6, 2, 0.6), hs.BandedToeplitz.square_root(6, 2)),
    "balls": (hs.BallsInBins(6, 3), hs.BandedToeplitz.square_root(6, 3)),
    "b-min-sep": (hs.BMinSep(6, 3, 0.5), hs.matrix.Banded(columns(6, 2))),
    "cold b-min-sep": (hs.BMinSep(6, 2, 0.3, warm_start=False), hs.BandedToeplitz.square_root(6, 2)),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", CLOSED_LOOP)
def test_accounting_closes_the_loop(name):
    """Privacy losses of what real runs release, on the worst-case pair, have the law that the accountant samples.

    Two-sample Kolmogorov-Smirnov: the true law is rejected with probability 1e-4.
    """
    scheme, strategy = CLOSED_LOOP[name]
    if isinstance(scheme, (hs.Poisson, hs.CyclicPoisson)):
        plan = hs.plan_training(scheme, 4, strategy=strategy, delta=0.05, noise_multiplier=0.7)
    else:
        plan = quick(scheme, strategy, size=4, epsilon=20.0, noise_multiplier=0.9)
    mechanism, runs = plan.mechanism, 1200
    matrix = strategy.matrix()
    outputs = np.zeros((runs, plan.steps))
    for trial in range(runs):
        for step in plan.start(1, clipping_norm=1.0, seed=trial + 10):
            # Example 0 has a gradient of norm 1, the others none.
            released = step.add_noise(np.array([float(0 in step.indices)]))
            outputs[trial, step.number] = released[0]
    # The release C G + Z from what training got, G + C^-1 Z.
    losses = mechanism.privacy_loss(outputs @ matrix.T)
    expected = mechanism.sample_losses(20_000, seed=5, direction="remove")
    assert stats.ks_2samp(losses, expected).pvalue > 1e-4
    # The test has power: batches drawn at half the rate would be noticed.
    fewer = np.where(np.random.default_rng(1).random(runs) < 0.5, 1.0, 0.0)
    without = mechanism.privacy_loss((outputs * fewer[:, None]) @ matrix.T)
    assert stats.ks_2samp(without, expected).pvalue < 1e-4


def open_step(run=None):
    run = run or PLAN.start(DIMENSION, clipping_norm=1.0, seed=SEED)
    return run, next(run)


def test_noise_is_added_once():
    run, step = open_step()
    total = step.add_noise(gradient_sum(step))
    before = total.copy()
    with pytest.raises(hs.training.DeviationError, match="had its noise already"):
        step.add_noise(total)
    with pytest.raises(hs.training.DeviationError, match="had its noise already"):
        step.add_noise(gradient_sum(step))
    np.testing.assert_array_equal(total, before)
    assert run.released == run.step == 1


def test_threads_get_one_noise_between_them(monkeypatch):
    run, step = open_step()
    totals = [gradient_sum(step) for _ in range(8)]
    record = training_run._Ledger.record

    def slowly(*arguments):
        time.sleep(0.01)  # all others have come to the door by now
        record(*arguments)

    monkeypatch.setattr(training_run._Ledger, "record", slowly)
    barrier = threading.Barrier(8)

    def attempt(total):
        barrier.wait()
        try:
            step.add_noise(total)
        except hs.training.DeviationError:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, totals)) == 1
    changed = [total.tobytes() != gradient_sum(step).tobytes() for total in totals]
    assert sum(changed) == run.released == run._noise.step == 1


def test_no_step_goes_without_noise():
    run, _ = open_step()
    with pytest.raises(hs.training.DeviationError, match="has not had its noise"):
        next(run)
    with pytest.raises(hs.training.DeviationError, match="is open"):
        run.state()
    assert run.released == 0


def test_no_more_steps_than_planned():
    run = PLAN.start(DIMENSION, clipping_norm=1.0, seed=SEED)
    train(run, np.zeros(DIMENSION))
    assert run.released == PLAN.steps
    assert list(run) == []
    with pytest.raises(hs.training.DeviationError, match="the plan has 12 steps, and all are made"):
        run.next()


def test_own_batches_are_refused():
    run, step = open_step()
    with pytest.raises(hs.training.DeviationError, match="never looked at"):
        step.add_noise(np.zeros(DIMENSION))
    with pytest.raises(ValueError, match="read-only"):
        step.indices[:] = 0
    assert run.released == 0


def test_sums_of_more_or_unclipped_gradients_are_refused():
    run, step = open_step(PLAN.start(DIMENSION, clipping_norm=0.5, seed=SEED))
    most = 0.5 * len(step.indices)
    total = np.zeros(DIMENSION, np.float32)
    total[:2] = most * np.array([0.6, 0.8]) * 1.01
    with pytest.raises(hs.training.DeviationError, match="not clipped, or not of this batch"):
        step.add_noise(total)
    with pytest.raises(hs.training.DeviationError, match="not clipped"):
        step.add_noise(np.full(DIMENSION, 1e38, np.float32))
    assert run.released == 0
    assert run._noise.step == 0
    step.add_noise(total / np.float32(1.01))
    assert run.released == 1


def test_an_empty_batch_has_a_zero_sum():
    plan = cyclic_plan(probability=0.0, noise_multiplier=1.0)
    _, step = open_step(plan.start(DIMENSION, clipping_norm=1.0, seed=1))
    assert len(step.indices) == 0
    with pytest.raises(hs.training.DeviationError, match="norm"):
        step.add_noise(np.full(DIMENSION, 1e-30))
    assert np.abs(step.add_noise(np.zeros(DIMENSION))).max() > 0.0


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ([0.0] * DIMENSION, hs.ParameterTypeError, "NumPy array"),
        (np.zeros(DIMENSION, np.int64), hs.ParameterTypeError, "float32 or float64"),
        (np.zeros(DIMENSION + 1), hs.ParameterError, "5 numbers"),
        (np.zeros((DIMENSION, 2))[:, 0], hs.ParameterError, "C order"),
        (np.frombuffer(bytes(8 * DIMENSION)), hs.ParameterError, r"writable \(here: False\).* use the copy"),
        (np.full(DIMENSION, np.nan), hs.ParameterError, "not finite"),
        (np.array([np.inf, 0, 0, 0, 0]), hs.ParameterError, "not finite"),
    ],
)
def test_sums_that_are_none_are_refused(wrong, error, message):
    run, step = open_step()
    _ = step.indices
    with pytest.raises(error, match=message):
        step.add_noise(wrong)
    assert run.released == 0
    step.add_noise(np.zeros(DIMENSION))


def test_padding(kinds):
    for name in ("truncated", "truncated cyclic", "truncated b-min-sep"):
        with kinds[name].start(DIMENSION, clipping_norm=1.0, seed=SEED) as run:
            for step in run:
                indices, mask = step.padded()
                assert len(indices) == len(mask) == 14
                np.testing.assert_array_equal(indices[mask], step.indices)
                assert (indices[~mask] == SIZE).all()
                step.add_noise(np.zeros(DIMENSION))
    _, step = open_step()
    with pytest.raises(hs.ParameterError, match="maximum size"):
        step.padded()


def test_data_of_another_size_are_refused():
    _, step = open_step()
    with pytest.raises(hs.training.DeviationError, match=r"data\[1\]: has 119 examples, but 120 are planned"):
        step.take(DATA, DATA[1:])
    rows, again = step.take(DATA, np.arange(SIZE))
    np.testing.assert_array_equal(rows, DATA[step.indices])
    np.testing.assert_array_equal(again, step.indices)


class Labelled:
    """As pandas has it: ``[...]`` asks for labels, ``iloc`` knows places."""

    def __init__(self, values, labels):
        self.values, self.places = values, {label: place for place, label in enumerate(labels)}
        self.iloc = values

    def __len__(self):
        return len(self.values)

    def __getitem__(self, labels):
        return self.values[[self.places[label] for label in labels.tolist()]]


def test_rows_are_taken_by_their_places_whatever_their_labels_are():
    """Otherwise the parts of a record come in different batches, and it moves two rows of gradients."""
    _, step = open_step()
    labels = np.random.default_rng(2).permutation(SIZE)
    given = [Labelled(np.arange(SIZE), labels.tolist())]
    with contextlib.suppress(ImportError):
        import pandas

        given += [pandas.Series(np.arange(SIZE), labels), pandas.DataFrame({"x": np.arange(SIZE)}, labels)]
    for found in map(step.take, given):
        np.testing.assert_array_equal(np.ravel(found), step.indices)


def test_steps_of_other_runs_are_refused():
    run, step = open_step()
    other, _ = open_step()
    _ = step.indices
    with pytest.raises(hs.training.DeviationError, match="not the run's open step"):
        other._release(step, np.zeros(DIMENSION))
    assert run.released == other.released == 0


def test_drawing_past_the_run_is_noticed():
    run = PLAN.start(DIMENSION, clipping_norm=1.0, seed=SEED)
    run._batches.next()
    with pytest.raises(hs.training.DeviationError, match="somebody else drew"):
        next(run)
    run, step = open_step()
    run._noise.next()
    total = gradient_sum(step)
    with pytest.raises(hs.training.DeviationError, match="noise is drawn already"):
        step.add_noise(total)
    assert run.released == 0


def test_runs_cannot_be_copied_and_close():
    run, step = open_step()
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied"):
            attempt(run)
    run.close()
    with pytest.raises(hs.training.DeviationError, match="closed"):
        step.add_noise(gradient_sum(step))
    with pytest.raises(hs.training.DeviationError, match="closed"):
        run.next()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_forked_runs_release_nothing(tmp_path):
    with PLAN.start(DIMENSION, clipping_norm=1.0, path=tmp_path / "run") as run:
        step = next(run)
        total = gradient_sum(step)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                step.add_noise(total)
            except hs.training.DeviationError:
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert run.released == 0
        step.add_noise(total)
        assert records(tmp_path / "run") == 1


def test_the_calibrations_seed_is_no_secret(kinds):
    with pytest.raises(hs.ParameterError, match="that of the calibration"):
        kinds["b-min-sep"].start(DIMENSION, clipping_norm=1.0, seed=4)


# --- Stop and resume ------------------------------------------------------------------------------------


def whole_run():
    weights = np.zeros(DIMENSION)
    with PLAN.start(DIMENSION, clipping_norm=1.0, seed=SEED) as run:
        return train(run, weights), weights


@pytest.mark.parametrize("with_state", [False, True])
@pytest.mark.parametrize("stop", [0, 1, 5, 12])
def test_resumed_runs_are_the_same(tmp_path, stop, with_state):
    expected, end = whole_run()
    weights = np.zeros(DIMENSION)
    with PLAN.start(DIMENSION, clipping_norm=1.0, seed=SEED, path=tmp_path / "run") as run:
        released = train(run, weights, until=stop) if stop else {}
        state = run.state() if with_state else None
    with PLAN.resume(tmp_path / "run", state=state) as run:
        assert run.step == run.released == stop
        released |= train(run, weights)
        assert run.released == PLAN.steps
    assert released.keys() == expected.keys()
    for number, total in expected.items():
        assert released[number].tobytes() == total.tobytes()
    assert weights.tobytes() == end.tobytes()


def test_every_kind_of_plan_resumes(kinds, tmp_path):
    for name, plan in kinds.items():
        whole = plan.start(DIMENSION, clipping_norm=1.0, seed=SEED)
        expected = train(whole, np.zeros(DIMENSION))
        weights = np.zeros(DIMENSION)
        with plan.start(
            DIMENSION, clipping_norm=1.0, seed=SEED, path=tmp_path / name, state_dtype="float64"
        ) as run:
            released, state = train(run, weights, until=3), run.state()
        for given in (state, None):
            again = weights.copy()
            with plan.resume(tmp_path / name, step=3, state=given) as run:
                rest = train(run, again)
            assert {**released, **rest}.keys() == expected.keys()
            for number, total in expected.items():
                assert {**released, **rest}[number].tobytes() == total.tobytes(), name


def test_released_steps_are_repeated_bit_by_bit_or_not_at_all(tmp_path):
    weights = np.zeros(DIMENSION)
    with PLAN.start(DIMENSION, clipping_norm=1.0, seed=SEED, path=tmp_path / "run") as run:
        train(run, weights, until=4)
        saved, early = weights.copy(), run.state()
        released = train(run, weights, until=7)
    # From the model that was saved after step 4: the same sums again, and nothing new in the ledger.
    for state in (None, early):
        with PLAN.resume(tmp_path / "run", step=4, state=state) as run:
            again = train(run, saved.copy(), until=7)
            assert run.released == 7
        assert {k: v.tobytes() for k, v in again.items()} == {k: v.tobytes() for k, v in released.items()}
    # From another model: the same noise for another sum.
    with PLAN.resume(tmp_path / "run", step=4) as run:
        step = next(run)
        total = gradient_sum(step, saved + 1e-9)
        before = total.copy()
        with pytest.raises(hs.training.DeviationError, match="released before, with another gradient sum"):
            step.add_noise(total)
        np.testing.assert_array_equal(total, before)
        # In another precision it is another release, too.
        with pytest.raises(hs.training.DeviationError, match="released before"):
            step.add_noise(gradient_sum(step, saved).astype(np.float32))
    # After the last release nobody asks for the model.
    with PLAN.resume(tmp_path / "run") as run:
        assert run.step == 7
        train(run, np.full(DIMENSION, 0.3))
        assert run.report().complete


def test_resuming_elsewhere_is_refused(tmp_path):
    with PLAN.start(DIMENSION, clipping_norm=1.0, seed=SEED, path=tmp_path / "run") as run:
        train(run, np.zeros(DIMENSION), until=3)
        state = run.state()
    others = [
        cyclic_plan(size=SIZE + 3),
        cyclic_plan(steps=15),
        cyclic_plan(probability=0.31),
        cyclic_plan(delta=1e-5),
    ]
    for other in others:
        with pytest.raises(hs.training.DeviationError, match="run of another plan"):
            other.resume(tmp_path / "run")
    with pytest.raises(hs.ParameterError, match="exists already"):
        PLAN.start(DIMENSION, clipping_norm=1.0, path=tmp_path / "run")
    with pytest.raises(hs.training.DeviationError, match="only 3 steps were released"):
        PLAN.resume(tmp_path / "run", step=4)
    with pytest.raises(hs.ParameterError, match="the state is at 3"):
        PLAN.resume(tmp_path / "run", step=2, state=state)
    with pytest.raises(hs.ParameterTypeError, match="what state"):
        PLAN.resume(tmp_path / "run", state={"step": 1})
    with PLAN.start(DIMENSION, clipping_norm=1.0, seed=SEED + 1, path=tmp_path / "other") as run:
        train(run, np.zeros(DIMENSION), until=3)
        foreign = run.state()
    with pytest.raises(hs.ParameterError, match="another seed"):
        PLAN.resume(tmp_path / "run", state=foreign)
    with pytest.raises(hs.ParameterError):
        PLAN.resume(tmp_path / "run", state={**state, "step": 2})
    with pytest.raises(FileNotFoundError):
        PLAN.resume(tmp_path / "nothing")
    with PLAN.resume(tmp_path / "run") as run:
        assert run.step == 3
        with pytest.raises(hs.StorageError, match="another process has it open"):
            PLAN.resume(tmp_path / "run")


def test_only_the_owner_can_read_the_seed(tmp_path):
    with PLAN.start(DIMENSION, clipping_norm=1.0, path=tmp_path / "run") as run:
        assert str(run._noise.seed) not in repr(run)
    for name in ("secret", "ledger"):
        assert stat.S_IMODE((tmp_path / "run" / name).stat().st_mode) & 0o077 == 0
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) & 0o077 == 0


# --- The ledger -----------------------------------------------------------------------------------------


def records(path):
    return (path / "ledger").stat().st_size / (training_run._HEAD.size + training_run._TAIL.size)


def test_the_ledger_has_one_record_for_each_release(tmp_path):
    with PLAN.start(DIMENSION, clipping_norm=1.0, seed=SEED, path=tmp_path / "run", durable=True) as run:
        for step in run:
            assert records(tmp_path / "run") == step.number
            step.add_noise(gradient_sum(step))
            assert records(tmp_path / "run") == step.number + 1 == run.released


class Killed(BaseException):
    pass


@pytest.mark.parametrize("moment", ["before the record", "half of it", "after it"])
def test_a_crash_at_any_moment_counts_a_release_once(tmp_path, moment, monkeypatch):
    expected, _ = whole_run()
    weights, path = np.zeros(DIMENSION), tmp_path / "run"
    with PLAN.start(DIMENSION, clipping_norm=1.0, seed=SEED, path=path) as run:
        train(run, weights, until=4)
        step = next(run)
        total = gradient_sum(step, weights)
        untouched = total.copy()
        write = os.pwrite

        def dies(descriptor, data, offset):
            if moment == "half of it":
                write(descriptor, data[:11], offset)
            raise Killed

        with monkeypatch.context() as patch:
            if moment == "after it":
                patch.setattr(hs.CorrelatedNoise, "add_to", lambda *_: (_ for _ in ()).throw(Killed))
            else:
                patch.setattr(training_run.os, "pwrite", dies)
            with pytest.raises(Killed):
                step.add_noise(total)
        np.testing.assert_array_equal(total, untouched)  # nothing was handed out
    with PLAN.resume(path, step=4) as run:
        assert run.released == (5 if moment == "after it" else 4)
        rest = train(run, weights)
        assert run.released == PLAN.steps
    assert all(rest[number].tobytes() == expected[number].tobytes() for number in range(4, PLAN.steps))


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_a_step_has_one_release(tmp_path, seed, monkeypatch):
    """Crashes at random moments, resumed from right, old, wrong and no models: never two sums with one noise."""
    rng, path = np.random.default_rng(seed), tmp_path / "run"
    weights, saved, seen = np.zeros(DIMENSION), {0: np.zeros(DIMENSION)}, {}
    run = PLAN.start(DIMENSION, clipping_norm=1.0, seed=SEED, path=path, durable=False)
    add, refused, crashes = hs.CorrelatedNoise.add_to, 0, 0
    for _ in range(400):
        action = rng.choice(["step", "step", "step", "save", "crash", "resume", "elsewhere", "onwards"])
        if action in ("resume", "elsewhere", "onwards"):
            run.close()
            at = None if action == "onwards" else int(rng.choice([k for k in saved if k <= run.released]))
            run = PLAN.resume(path, step=at)
            # "elsewhere": the model of another checkpoint, or another model altogether, under the right number.
            weights = saved[at].copy() if at is not None else rng.normal(size=DIMENSION)
            if action == "elsewhere":
                weights += rng.choice([1e-12, 0.3])
        elif action == "save":
            if run.step == run.released or run.step in seen:
                saved[run.step] = weights.copy()
        elif run.step < PLAN.steps:
            step = run._open or next(run)
            total = gradient_sum(step, weights)
            before, clean = run.released, total.copy()
            with monkeypatch.context() as patch:
                if action == "crash":
                    target = (
                        (training_run.os, "pwrite") if rng.random() < 0.5 else (hs.CorrelatedNoise, "add_to")
                    )
                    patch.setattr(*target, lambda *_: (_ for _ in ()).throw(Killed))
                try:
                    step.add_noise(total)
                except hs.training.DeviationError:
                    refused += 1
                    assert total.tobytes() == clean.tobytes()
                    assert run.released == before
                except Killed:
                    crashes += 1
                    assert total.tobytes() == clean.tobytes()
                    run.close()
                    run = PLAN.resume(path)
                    weights = rng.normal(size=DIMENSION)
                else:
                    assert seen.setdefault(step.number, total.tobytes()) == total.tobytes()
                    weights -= 0.1 * total
        assert run.released == records(path) >= len(seen)
        assert add is hs.CorrelatedNoise.add_to
    assert refused > 0
    assert crashes > 0
    run.close()


def test_an_unfinished_write_can_be_tried_again(tmp_path, monkeypatch):
    with PLAN.start(DIMENSION, clipping_norm=1.0, seed=SEED, path=tmp_path / "run") as run:
        step = next(run)
        write = os.pwrite
        with monkeypatch.context() as patch:
            patch.setattr(training_run.os, "pwrite", lambda d, data, at: write(d, data[:9], at))
            with pytest.raises(OSError, match="nothing was released"):
                step.add_noise(gradient_sum(step))
        assert run.released == 0
        train_rest = step.add_noise(gradient_sum(step))
        assert np.isfinite(train_rest).all()
        assert records(tmp_path / "run") == 1
    with PLAN.resume(tmp_path / "run") as run:
        assert run.released == 1


def test_a_damaged_ledger_is_refused(tmp_path):
    path = tmp_path / "run"
    with PLAN.start(DIMENSION, clipping_norm=1.0, seed=SEED, path=path) as run:
        train(run, np.zeros(DIMENSION), until=5)
    whole = (path / "ledger").read_bytes()
    for position in range(64, 88):
        (path / "ledger").write_bytes(whole[:position] + bytes([whole[position] ^ 4]) + whole[position + 1 :])
        with pytest.raises(hs.StorageError, match="record of step 2 is damaged"):
            PLAN.resume(path)
    (path / "ledger").write_bytes(whole[:64] + whole[32:64] + whole[96:])
    with pytest.raises(hs.StorageError, match="record of step 2 is damaged"):
        PLAN.resume(path)
    (path / "ledger").write_bytes(whole)
    PLAN.resume(path).close()


def test_a_ledger_of_more_steps_than_planned_is_refused(tmp_path):
    with PLAN.start(DIMENSION, clipping_norm=1.0, seed=SEED, path=tmp_path / "run") as run:
        train(run, np.zeros(DIMENSION))
    ledger = tmp_path / "run" / "ledger"
    written = ledger.read_bytes()
    head = struct.pack("<Q16s", PLAN.steps, written[-24:-8])
    ledger.write_bytes(written + head + struct.pack("<I", zlib.crc32(head)) + written[-4:])
    with pytest.raises(hs.StorageError, match="more steps than the plan has"):
        PLAN.resume(tmp_path / "run")


def test_a_ledger_without_its_last_record_is_refused(tmp_path):
    with PLAN.start(DIMENSION, clipping_norm=1.0, seed=SEED, path=tmp_path / "run") as run:
        train(run, np.zeros(DIMENSION), until=3)
    ledger = tmp_path / "run" / "ledger"
    ledger.write_bytes(ledger.read_bytes()[:-32])
    with pytest.raises(hs.StorageError, match="there were 3, and 2 are left"):
        PLAN.resume(tmp_path / "run")


@pytest.mark.parametrize("durable", [False, True])
def test_durable_runs_wait_for_the_disk_at_each_step(tmp_path, durable, monkeypatch):
    waited = []
    with PLAN.start(DIMENSION, clipping_norm=1.0, seed=SEED, path=tmp_path / "run", durable=durable) as run:
        monkeypatch.setattr(os, "fsync", waited.append)
        train(run, np.zeros(DIMENSION), until=2)
        assert len(waited) == (2 if durable else 0)
    with PLAN.resume(tmp_path / "run") as run:
        waited.clear()
        train(run, np.zeros(DIMENSION), until=4)
        assert len(waited) == (2 if durable else 0)


def test_truncated_cyclic_batches_are_of_the_data_set_that_was_described():
    scheme = hs.CyclicPoisson(12, 4, 0.3, dataset_size=SIZE, max_batch_size=SIZE // 4)
    budget = {"delta": 1e-4, "noise_multiplier": 2.0}
    assert hs.plan_training(scheme, SIZE, **budget).dataset_size == SIZE
    with pytest.raises(hs.ParameterError, match=f"must be {SIZE}"):
        hs.plan_training(scheme, SIZE + 1, **budget)
    with pytest.raises(hs.ParameterError, match="protect users"):
        hs.plan_training(hs.CyclicPoisson(12, 4, 0.3), SIZE, graph=graph_of(SIZE, 1), **budget)


def test_batches_and_noise_that_went_on_together_are_noticed():
    run = PLAN.start(DIMENSION, clipping_norm=1.0, seed=SEED)
    run._batches.next()
    run._noise.next()
    with pytest.raises(hs.training.DeviationError, match="the batches are at 1, the noise at 1"):
        run.next()


def test_files_of_two_runs_are_told_apart(tmp_path):
    """One run's seed beside another one's records: its noise was given out a second time, for another sum."""
    runs = {name: tmp_path / name for name in "AB"}
    for name, path in runs.items():
        with PLAN.start(
            DIMENSION, clipping_norm=1.0, seed=f"the seed of run {name}".encode(), path=path
        ) as run:
            train(run, np.zeros(DIMENSION), until={"A": 3, "B": 7}[name])
    kept = {
        name: {part: (path / part).read_bytes() for part in ("secret", "ledger", "lock")}
        for name, path in runs.items()
    }
    for into, other, mixed in (
        ("A", "B", ("secret",)),
        ("B", "A", ("ledger", "lock")),
        ("A", "B", ("ledger", "lock")),
    ):
        for part in mixed:
            (runs[into] / part).write_bytes(kept[other][part])
        with pytest.raises(hs.StorageError, match="record of step 0 is of another run"):
            PLAN.resume(runs[into])
        for part in mixed:
            (runs[into] / part).write_bytes(kept[into][part])
    # Records of versions that did not say whose they are go on.
    records = kept["B"]["ledger"]
    old = b"".join(records[start : start + 28] + bytes(4) for start in range(0, len(records), 32))
    (runs["B"] / "ledger").write_bytes(old)
    with PLAN.resume(runs["B"]) as run:
        train(run, np.zeros(DIMENSION), until=9)
    assert (runs["B"] / "ledger").read_bytes()[: len(old)] == old
    with PLAN.resume(runs["B"]) as run:
        assert run.step == 9


KILLED = 400  # steps

TRAINING = """
import os, sys
from pathlib import Path
import numpy as np
import hockeystick as hs

folder = Path(sys.argv[1])
plan = hs.training.TrainingPlan.load(folder / "plan")
data = np.random.default_rng(8).uniform(-0.4, 0.4, (plan.dataset_size, 5))
model = folder / "model.npy"
theta = np.load(model) if model.exists() else np.zeros(6)
done = int(theta[5])
run = plan.resume(folder / "run", step=done) if (folder / "run").exists() else plan.start(5, clipping_norm=1.0, seed=7, path=folder / "run")
log = open(folder / "releases", "ab", buffering=0)
print("ready", flush=True)
for step in run:
    total = step.add_noise(0.5 * step.take(data).sum(axis=0) * np.tanh(1.0 + theta[:5] ** 2))
    log.write(np.concatenate([[step.number], total]).tobytes())
    theta[:5] -= 0.1 * total
    theta[5] = step.number + 1
    if step.number % 3 == 2 or step.number + 1 == plan.steps:
        with open(folder / "model.tmp", "wb") as file:
            np.save(file, theta)
        os.replace(folder / "model.tmp", model)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_killed_training_releases_nothing_twice(tmp_path):
    """kill -9 again and again: every step has one noisy sum, the model is that of a run in one piece."""
    plan = cyclic_plan(steps=KILLED, noise_multiplier=1.0)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        plan.save(tmp_path / name / "plan")
    command = [sys.executable, "-c", TRAINING]
    subprocess.run([*command, str(tmp_path / "a")], check=True, timeout=120)
    killed_again_and_again([*command, str(tmp_path / "b")], 4, 0.03)
    logs = [np.frombuffer((tmp_path / name / "releases").read_bytes()).reshape(-1, 6) for name in ("a", "b")]
    once = {int(row[0]): row.tobytes() for row in logs[0]}
    assert len(once) == len(logs[0]) == KILLED
    # Repeated steps repeat their sums: whoever saw all that was ever released saw one sum a step.
    assert all(row.tobytes() == once[int(row[0])] for row in logs[1])
    assert {int(row[0]) for row in logs[1]} == set(range(KILLED))
    models = [(tmp_path / name / "model.npy").read_bytes() for name in ("a", "b")]
    assert models[0] == models[1]
    assert records(tmp_path / "b" / "run") == KILLED


# --- Early ends and reports -------------------------------------------------------------------------------


def test_first_steps_are_the_leading_block():
    inverse = -0.3 * columns(9, 2)
    inverse[:, 0] = 1.0
    for strategy in (
        hs.Identity(9),
        hs.BandedToeplitz.square_root(9, 4),
        hs.matrix.Banded(columns(9, 3)),
        hs.matrix.LowerTriangular(hs.matrix.Banded(columns(9, 3)).matrix()),
        hs.matrix.InverseBanded([1.0, -0.4], 9),
        hs.matrix.InverseBanded(inverse),
    ):
        for steps in (1, 2, 5, 9):
            np.testing.assert_allclose(
                strategy.first_steps(steps).matrix(), strategy.matrix()[:steps, :steps], rtol=0, atol=1e-15
            )


def test_early_ends_are_accounted_where_that_is_sound(kinds):
    plan = kinds["dp_sgd"]
    step = hs.PoissonSampled(hs.Gaussian(0.9), 0.1)
    for made in (1, 3, 8):
        assert plan.spent(made) == hs.account(step * made, "zero_out").epsilon(plan.delta)
    assert plan.spent(0) == 0.0
    cyclic = kinds["cyclic"]
    spent = [cyclic.spent(made) for made in range(9)]
    assert spent == sorted(spent)
    assert spent[8] == cyclic.epsilon
    # By hand: after five steps, the group of step 0 had turns 0, 2 and 4, with columns cut off at row 5.
    norms = np.linalg.norm(np.tril(cyclic.strategy.matrix()[:5, :5]), axis=0)
    rounds = max(
        hs.account(sum(hs.PoissonSampled(hs.Gaussian(0.9 / norms[i]), 0.2) for i in turns), "zero_out")
        .epsilon_bounds(cyclic.delta)
        .lower
        for turns in ((0, 2, 4), (1, 3))
    )
    assert spent[5] >= rounds
    assert kinds["b-min-sep"].spent(5) is None
    with pytest.raises(hs.ParameterError, match="steps = 9"):
        cyclic.spent(9)


def test_reports_say_what_was_released(kinds, tmp_path):
    for name, plan in kinds.items():
        with plan.start(DIMENSION, clipping_norm=1.25, seed=SEED) as run:
            train(run, np.zeros(DIMENSION), until=3)
            early = run.report()
            assert run.report() == early  # asking changes nothing
            train(run, np.zeros(DIMENSION))
            full = run.report()
        found = json.loads(full.to_json())
        assert found["format"] == "hockeystick-training-report"
        assert found["version"] == 1
        assert found["guarantee"]["kind"] == plan.guarantee.kind
        assert (found["guarantee"]["epsilon"], found["guarantee"]["delta"]) == (plan.epsilon, plan.delta)
        assert found["guarantee"]["adjacency"] == plan.adjacency
        assert found["guarantee"]["unit"]
        assert found["steps"]["complete"] is True
        assert found["steps"]["released"] == found["steps"]["planned"] == plan.steps
        assert found["plan"]["noise_multiplier"] == plan.noise_multiplier
        assert found["plan"]["fingerprint"] == plan.fingerprint
        assert found["noise"]["clipping_norm"] == 1.25
        assert found["noise"]["seed"] == "given by the caller"
        assert str(SEED) not in full.to_json()
        assert not early.complete
        assert early.steps == 3
        assert early.epsilon_spent == plan.spent(3)
        assert "3 were made: the guarantee of the whole plan holds" in early.statement()
        assert ("If their number was fixed" in early.statement()) == (plan.guarantee.kind == "certified")
        assert repr(plan.delta) in early.statement(), name
        hidden = " ".join(full.caveats())
        assert "floating-point" in hidden
        assert "seed" in hidden
        assert "preprocessing" in hidden
        assert ("Monte Carlo" in hidden) == (plan.guarantee.kind == "verified")
        assert ("padding" in hidden) == ("truncated" in name)
        assert ("Users" in hidden) == name.startswith("users")
    json_path, _ = full.write(tmp_path / "new" / "folder")
    assert hs.training.read_report(json_path) == full.to_dict()


def test_batches_are_not_in_reports():
    """Reports of two seeds differ in nothing: what was sampled cannot be in them."""
    texts = []
    for seed in (1, 2):
        with PLAN.start(DIMENSION, clipping_norm=1.0, seed=seed) as run:
            train(run, np.zeros(DIMENSION))
            texts.append((run.report().to_json(), run.report().to_html(plots=False)))
    assert texts[0] == texts[1]


def test_pages_stand_alone(kinds):
    pytest.importorskip("matplotlib")
    for name in ("cyclic", "b-min-sep"):
        plan = kinds[name]
        run = plan.start(DIMENSION, clipping_norm=1.0)
        page = run.report().to_html()
        for reference in ("src=", "<script", "<link", "url(http", "@import"):
            assert reference not in page
        assert page.count("<svg") == 2
        assert page.rstrip().endswith("</html>")
        text = re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)
        for part in (
            plan.adjacency,
            plan.guarantee.kind,
            repr(plan.delta),
            "seed",
            "0 of 8 steps",
            plan.fingerprint,
        ):
            assert part in text
        assert "drawn from the operating system" in text
        assert "<svg" not in run.report().to_html(plots=False)
    # What a caller named is text, not markup.
    report = replace(run.report(), version="<script>alert(1)</script>")
    assert "<script" not in report.to_html(plots=False)


def test_the_page_of_a_plan_that_weighted_samples_verified():
    """Where delta is small the verifier compares no mean with a threshold; its page raised KeyError at the end of the run."""
    pytest.importorskip("matplotlib")
    plan = hs.plan_training(
        hs.BMinSep(8, 2, 0.1), SIZE, strategy=2, epsilon=4.0, delta=1e-5, calibration_seed=1
    )
    assert plan.guarantee.kind == "verified"
    assert "threshold" not in plan.guarantee.evidence["plan"]
    (axes,) = hs.training.plot_proof(plan).axes
    (line,) = [line for line in axes.lines if line.get_label() == "tested delta"]
    assert set(line.get_ydata()) == {plan.guarantee.evidence["plan"]["tested_delta"]}
    assert max(axes.lines[0].get_ydata()) < plan.guarantee.evidence["plan"]["tested_delta"] < plan.delta
    assert plan.start(DIMENSION, clipping_norm=1.0).report().to_html().count("<svg") == 2


def test_what_the_guarantee_means():
    """From the curve, or where samples verified one point of it from (epsilon, delta) alone, which allows more attacks."""
    plan = hs.plan_training(hs.Poisson(200, 0.01), dataset_size=1000, epsilon=2.0, delta=1e-5)
    report = plan.start(DIMENSION, clipping_norm=1.0).report()
    risks = dict(report.risks())
    profile = hs.account(plan.mechanism.as_process(), plan.adjacency)
    rate = profile.risk.tpr(0.01)
    found = risks["members found at a false positive rate of 0.01"]
    assert rate.lower <= found.upper <= rate.upper * 1.002
    assert report.to_dict()["risks"].keys() == risks.keys()
    assert "What this means" in report.to_html(plots=False)
    summary, close = report.gdp, profile.gdp()
    assert close.mu_bounds.lower <= summary.mu <= close.mu * 1.01
    assert report.to_dict()["gdp"]["mu"] == summary.mu
    assert summary.statement() in report.statement()
    tuned = hs.plan_training(
        hs.Poisson(200, 0.01),
        dataset_size=1000,
        noise_multiplier=plan.noise_multiplier,
        delta=1e-5,
        tuning=hs.Repetitions.geometric(mean=5),
    )
    best_of_several = dict(tuned.start(DIMENSION, clipping_norm=1.0).report().risks())
    assert best_of_several["members found at a false positive rate of 0.01"].upper > 1.5 * rate.upper


def test_pages_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    _, page = PLAN.start(DIMENSION, clipping_norm=1.0).report().write(tmp_path)
    assert "<svg" not in page.read_text(encoding="utf-8")


def test_reading_reports_refuses_others(tmp_path):
    path = tmp_path / "report.json"
    for text, message in (
        ("{", "is not JSON"),
        ("[]", "not a training report"),
        ('{"format": "hockeystick-training-report", "version": 2}', "reads up to 1"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(hs.ParameterError, match=message):
            hs.training.read_report(path)


def test_what_add_or_remove_does_not_hide():
    plan = hs.plan_training(
        lambda s: hs.dp_sgd(s, SIZE, 12, steps=8),
        SIZE,
        delta=1e-3,
        noise_multiplier=1.0,
        adjacency="add_or_remove",
    )
    assert any(
        "number of examples" in caveat
        for caveat in plan.start(DIMENSION, clipping_norm=1.0).report().caveats()
    )
    assert plan.sampling.sampling_probability == 0.1


# --- A scheme of one's own --------------------------------------------------------------------------------


@dataclass(frozen=True)
class EveryOther(Scheme):
    """Balls in two bins: all that the package needs to know of it is here."""

    _law_kind = "balls_in_bins"
    bins = 2

    def largest_bands(self):
        return self.steps

    def no_participation_log_probability(self):
        return -math.inf

    def expected_batch_size(self, dataset_size, graph=None):
        return dataset_size / 2

    def unamplified(self):
        return 2, 1

    def cyclic_rate(self):
        return 0.5

    def _core(self):
        return hs._core.balls_in_bins(2)


def test_a_new_scheme_is_one_class(tmp_path):
    """It is accounted, calibrated, drawn, stored and reported as the same one of the package, which is asked nothing else."""
    own, known = EveryOther(8), hs.BallsInBins(8, 2)
    strategy = hs.BandedToeplitz.square_root(8, 2)
    losses = [hs.BandMF(strategy, scheme, 2.0).sample_losses(5, seed=1) for scheme in (own, known)]
    np.testing.assert_array_equal(*losses)
    batches = [list(scheme.batches(SIZE, seed=1)) for scheme in (own, known)]
    assert all(np.array_equal(one, two) for one, two in zip(*batches, strict=True))
    assert Scheme.from_dict(own.to_dict()) == own
    plans = [quick(scheme, strategy, noise_multiplier=6.0) for scheme in (own, known)]
    assert plans[0].guarantee.evidence["verifications"] == plans[1].guarantee.evidence["verifications"]
    calibrated = [quick(scheme, strategy, fallback="cyclic") for scheme in (own, known)]
    assert calibrated[0].noise_multiplier == calibrated[1].noise_multiplier
    plans[0].save(tmp_path / "plan")
    assert hs.training.TrainingPlan.load(tmp_path / "plan") == plans[0]
    with plans[0].start(DIMENSION, clipping_norm=1.0, seed=SEED) as run:
        train(run, np.zeros(DIMENSION))
        assert "EveryOther(steps=8)" in run.report().to_html(plots=False)


# --- Command line -------------------------------------------------------------------------------------------


def test_command_line(tmp_path, capsys):
    out = tmp_path / "plan"
    command = ["plan", "--epsilon", "3", "--delta", "1e-3", "--steps", "12", "--dataset-size", "120"]
    batches = ["--scheme", "cyclic-poisson", "--bands", "3", "--batch-size", "12"]
    assert main([*command, *batches, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    plan = hs.training.TrainingPlan.load(out)
    assert f"noise_multiplier = {plan.noise_multiplier!r}" in printed
    assert plan.guarantee.statement in printed
    assert plan.mechanism.scheme == hs.CyclicPoisson(12, 3, 0.1 * 3)
    assert plan.strategy == hs.BandedToeplitz.optimized(12, 3)
    assert (plan.epsilon, plan.delta, plan.dataset_size) == (3.0, 1e-3, 120)
    assert hs.account(plan.mechanism, "zero_out").delta(3.0) <= 1e-3
    assert main([*command, *batches, "--out", str(out)]) == 2
    assert "exists already" in capsys.readouterr().err
    more = [*command, "--scheme", "poisson", "--batch-size", "12", "--noise-multiplier", "2"]
    assert main([*more, "--out", str(tmp_path / "more"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == hs.training.TrainingPlan.load(tmp_path / "more").to_dict()
    assert main([*more[:-1], "0.1", "--out", str(tmp_path / "less")]) == 2
    assert "noise_multiplier = 0.1" in capsys.readouterr().err
    more[more.index("poisson")] = "b-min-sep"
    assert main([*more, "--out", str(tmp_path / "less"), "--fallback", "cyclic"]) == 2
    assert "--fallback: not with" in capsys.readouterr().err
    for name in ("", str(tmp_path / "nowhere" / "less")):
        assert main([*more, "--out", name]) == 2
        assert "--out " in capsys.readouterr().err
    assert not (tmp_path / "less").exists()
    assert (
        main(["plan", "--epsilon", "3", "--delta", "1e-3", "--steps", "12", "--out", str(tmp_path / "x")])
        == 2
    )
    assert "--dataset-size: needed" in capsys.readouterr().err


EXAMPLE = Path(__file__).parents[2] / "examples" / "training" / "digits.py"


def test_example(tmp_path):
    """Four methods end to end; each report is of a complete run at the same budget."""
    pytest.importorskip("sklearn")
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--quick", "--out", str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^(.+?) +(certified|verified) .* (\d\.\d{4}) ± \d", done.stdout, re.MULTILINE)
    assert len(rows) == 4
    assert all(float(accuracy) > 0.6 for _, _, accuracy in rows)  # guessing gives 0.1
    budgets = set()
    for path in sorted(tmp_path.glob("*/report.json")):
        report = hs.training.read_report(path)
        assert report["steps"]["complete"]
        budgets.add((report["guarantee"]["epsilon"], report["guarantee"]["delta"]))
    assert len(list(tmp_path.glob("*/report.html"))) == 4
    assert budgets == {(8.0, 1 / 800)}
    numbers = json.loads((tmp_path / "accuracies.json").read_text())
    assert [len(entry["accuracies"]) for entry in numbers] == [2, 2, 2, 2]
