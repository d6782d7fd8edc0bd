"""What a plan in a file promises: it is computed again where that can be done, and what no plan says is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import hockeystick as hs
import numpy as np
import pytest
from hockeystick._base import storage
from hockeystick._base.bounds import round_up
from hockeystick.cli.commands import main
from hockeystick.training import Guarantee, TrainingPlan
from numpy.typing import NDArray
from scipy import stats

from tests.training.test_tuning import RUNS, plan

KIND = "training plan"
Numbers: TypeAlias = NDArray[np.float64]
Tail: TypeAlias = Callable[[Numbers], Numbers]


def altered(path: Path, **guarantee: Any) -> None:
    content, arrays = storage.read(path, KIND)
    storage.write(path, KIND, {**content, "guarantee": {**content["guarantee"], **guarantee}}, arrays)


@pytest.mark.parametrize("tuning", [None, RUNS])
def test_a_promise_that_is_less_than_what_is_drawn_is_refused(
    tmp_path: Path, tuning: hs.Repetitions | None
) -> None:
    """An earlier version promised 3.50 for a plan that draws 16.5, and this one repeated it."""
    path, made = tmp_path / "plan", plan(tuning)
    made.save(path)
    assert TrainingPlan.load(path) == made
    altered(path, epsilon=math.nextafter(made.epsilon, math.inf))
    assert TrainingPlan.load(path).epsilon > made.epsilon
    # Of the best of several nothing is known from below.
    near = (1.0 - 1e-6) * made.epsilon if tuning is None else 0.998 * made.epsilon
    for less in (0.0, 0.5 * made.epsilon, near):
        altered(path, epsilon=less)
        with pytest.raises(hs.StorageError, match=r"is promised at delta = 1e-06.*at least"):
            TrainingPlan.load(path)
    altered(path, epsilon=made.epsilon, delta=0.5e-6)
    with pytest.raises(hs.StorageError, match="is promised at delta = 5e-07"):
        TrainingPlan.load(path)
    if tuning is not None:
        content, _ = storage.read(path, KIND)
        alone = {**content["guarantee"]["evidence"]}
        del alone[
            "tuning"
        ]  # as if it were for one run: then the promise of the best of them is more than enough
        altered(path, delta=1e-6, evidence=alone)
        loaded = TrainingPlan.load(path)
        assert loaded.epsilon > plan(None).epsilon
        assert loaded.fingerprint != made.fingerprint  # a run of the best of several is not gone on with


@pytest.mark.parametrize("tuning", [None, RUNS])
def test_what_needs_no_samples_is_computed_again_whatever_its_kind(
    tmp_path: Path, tuning: hs.Repetitions | None
) -> None:
    path, made = tmp_path / "plan", plan(tuning)
    made.save(path)
    altered(path, kind="verified", epsilon=0.01)
    with pytest.raises(hs.StorageError, match=r"epsilon = 0.01: is promised"):
        TrainingPlan.load(path)


@pytest.mark.parametrize("tuning", [None, "none", RUNS])
def test_the_words_of_a_certified_promise_are_those_of_this_version(
    tmp_path: Path, tuning: hs.Repetitions | str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that said (0.1, 1e-9), of users, was repeated as it was, by the command line and in reports."""
    path, made = tmp_path / "plan", plan(tuning)
    made.save(path)
    assert TrainingPlan.load(path).guarantee == made.guarantee
    end = made.guarantee.statement[made.guarantee.statement.index("Tuning:") :]
    for bounds in ({"lower": 0.0, "upper": 1e-3}, {"lower": 1e3, "upper": 1e4}, None):
        content, _ = storage.read(path, KIND)
        evidence = {**content["guarantee"]["evidence"], "epsilon_bounds": bounds}
        if bounds is None:
            evidence = made.guarantee.evidence
        altered(path, unit="one user", statement=f"(0.1, 1e-9)-DP {end}", evidence=evidence)
        loaded = TrainingPlan.load(path).guarantee
        assert loaded.unit == made.guarantee.unit
        assert loaded.statement.endswith(end)
        assert f"({round_up(made.epsilon)}, {made.delta!r})-differential privacy" in loaded.statement
        assert "(0.1, 1e-9)" not in loaded.statement
    assert loaded == made.guarantee
    assert main(["account", str(path)]) == 0
    assert made.guarantee.statement in capsys.readouterr().out
    # What holds under another adjacency, too, says so.
    altered(path, adjacency="remove")
    other = TrainingPlan.load(path).guarantee
    assert 'Adjacency: "remove"' in other.statement
    assert other.unit != made.guarantee.unit


OTHER = {
    "epsilon": 1.9,
    "delta": 0.1,
    "adjacency": "add_or_remove",
    "failure_probability": 1e-30,
    "statement": "(0.1, 1e-9)-DP",
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", [*OTHER, "noise_multiplier", "scheme", "strategy"])
def test_a_verified_promise_is_what_was_verified(tmp_path: Path, name: str) -> None:
    path = tmp_path / "plan"
    made = hs.plan_training(
        hs.BMinSep.of_rate(6, 2, 0.2),
        60,
        strategy=2,
        epsilon=2.0,
        delta=0.2,
        calibration_seed=1,
        samples=2000,
    )
    assert made.guarantee.kind == "verified"
    made.save(path)
    assert TrainingPlan.load(path) == made
    content, arrays = storage.read(path, KIND)
    mechanism = content["mechanism"]
    if name == "noise_multiplier":
        mechanism[name] *= 0.5
    elif name == "scheme":  # a plan that promised delta = .001 drew .133 with it
        mechanism[name]["sampling_probability"] = 0.9
    elif name == "strategy":
        arrays = {key: 2.0 * array for key, array in arrays.items()}
    storage.write(path, KIND, content, arrays)
    if name in OTHER:
        altered(path, **{name: OTHER[name]})
    with pytest.raises(hs.StorageError, match=rf"{name} = .*must be .*which the samples verified"):
        TrainingPlan.load(path)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "certain"},
        {"kind": None},
        {"epsilon": "0.1"},
        {"epsilon": None},
        {"epsilon": -1.0},
        {"epsilon": True},
        {"epsilon": [0.1]},
        {"delta": -1.0},
        {"delta": 7.0},
        {"delta": 0.0},
        {"adjacency": "swap"},
        {"unit": None},
        {"statement": 3},
        {"failure_probability": 2.0},
        {"evidence": None},
    ],
    ids=str,
)
def test_what_no_plan_says_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    path = tmp_path / "plan"
    plan(None).save(path)
    altered(path, **wrong)
    (name,) = wrong
    with pytest.raises(hs.StorageError, match=name):
        TrainingPlan.load(path)


def test_next_to_no_noise_is_no_plan() -> None:
    """Its epsilon is infinite, which a file cannot say."""
    with pytest.raises(hs.ParameterError, match=r"noise_multiplier = 1e-200: gives no finite epsilon"):
        hs.plan_training(
            lambda sigma: hs.dp_sgd(sigma, 1000, 50, steps=30), 1000, delta=1e-6, noise_multiplier=1e-200
        )


@pytest.mark.parametrize("scheme", [hs.CyclicPoisson(40, 4, 1.0), hs.matrix.FixedOrder(40, 4)])
@pytest.mark.parametrize("adjacency", ["add", "remove", "add_or_remove"])
def test_one_row_less_moves_all_others_into_other_groups(
    scheme: hs.matrix.Scheme, adjacency: str, tmp_path: Path
) -> None:
    """Batches of `rows` and of `rows[1:]` differed by 445 clipping norms in all, where 3.16 were accounted for."""
    rows = np.where(np.arange(200) % 4 == 0, 1.0, -1.0)
    sums = [
        np.array([data[batch].sum() for batch in scheme.batches(len(data), seed=1)])
        for data in (rows, rows[1:])
    ]
    assert np.linalg.norm(sums[0] - sums[1]) > 400.0
    given = {"delta": 1e-5, "noise_multiplier": 3.0}
    with pytest.raises(hs.ParameterError, match=r"adjacency = .*whose groups are by places in the data"):
        hs.plan_training(scheme, 200, adjacency=adjacency, **given)
    made = hs.plan_training(scheme, 200, **given)
    made.save(tmp_path / "plan")
    altered(tmp_path / "plan", adjacency=adjacency)
    with pytest.raises(hs.StorageError, match="whose groups are by places in the data"):
        TrainingPlan.load(tmp_path / "plan")


def test_nothing_is_fallen_back_to_whose_groups_are_by_places() -> None:
    given = {
        "strategy": 2,
        "epsilon": 2.0,
        "delta": 5e-2,
        "adjacency": "add_or_remove",
        "calibration_seed": 1,
    }
    with pytest.raises(hs.ParameterError, match="for CyclicPoisson, whose groups are by places"):
        hs.plan_training(hs.BMinSep(8, 2, 0.5), 200, fallback="cyclic", **given)
    for fallback in ("auto", "unamplified"):
        plan = hs.plan_training(hs.BMinSep(8, 2, 0.5), 200, fallback=fallback, **given)
        assert isinstance(plan.sampling, hs.BMinSep)
    given["adjacency"] = "zero_out"
    plan = hs.plan_training(hs.BMinSep(8, 2, 0.5), 200, fallback="cyclic", **given)
    assert plan.adjacency == "zero_out"


def test_coins_that_know_no_places_protect_the_number_of_rows() -> None:
    for scheme in (hs.CyclicPoisson(8, 1, 0.1), hs.Poisson(8, 0.1), hs.BallsInBins(8, 4)):
        plan = hs.plan_training(scheme, 200, delta=1e-5, noise_multiplier=3.0, adjacency="add_or_remove")
        assert plan.adjacency == "add_or_remove"


SIZE = 40


def test_early_ends_are_accounted_under_the_adjacency_of_the_plan() -> None:
    plan = hs.plan_training(
        hs.Poisson(20, 0.1), SIZE, noise_multiplier=1.0, delta=1e-3, adjacency="replace_one"
    )
    steps = hs.PoissonSampled(hs.Gaussian(1.0), 0.1) * 5
    least = hs.account(steps, "replace_one").epsilon_bounds(1e-3).lower
    assert hs.account(steps).epsilon(1e-3) < least <= plan.spent(5) <= plan.epsilon


def test_given_noise_is_verified_under_the_adjacency_of_the_plan() -> None:
    scheme, strategy = hs.BMinSep(8, 2, 0.2), hs.BandedToeplitz.square_root(8, 2)
    for adjacency, directions in (
        ("replace_one", {"replace_one"}),
        ("remove", {"remove"}),
        ("zero_out", {"remove", "add"}),
    ):
        plan = hs.plan_training(
            scheme,
            SIZE,
            strategy=strategy,
            epsilon=8.0,
            delta=0.05,
            noise_multiplier=4.0,
            adjacency=adjacency,
            calibration_seed=3,
        )
        (verdict,) = plan.guarantee.evidence["verifications"]
        assert {direction for direction, _, _ in verdict["means"]} == directions
        assert plan.adjacency == adjacency


def test_a_budget_within_the_interval_is_not_kept() -> None:
    """That epsilon is at most the budget must be proven: an interval that contains it proves nothing."""
    asked = {"delta": 1e-3, "noise_multiplier": 1.0}
    plan = hs.plan_training(hs.Poisson(8, 0.1), SIZE, **asked)
    lower, upper = hs.account(plan.mechanism, "zero_out").epsilon_bounds(1e-3)
    assert lower < upper == plan.epsilon
    with pytest.raises(hs.ParameterError, match="more than"):
        hs.plan_training(hs.Poisson(8, 0.1), SIZE, epsilon=lower, **asked)
    assert hs.plan_training(hs.Poisson(8, 0.1), SIZE, epsilon=upper, **asked).epsilon == upper


def test_a_verified_plan_is_for_the_adjacency_that_was_asked_for() -> None:
    scheme, strategy = hs.BMinSep(8, 2, 0.2), hs.BandedToeplitz.square_root(8, 2)
    plan = hs.plan_training(
        scheme, SIZE, strategy=strategy, epsilon=8.0, delta=0.05, adjacency="replace_one", calibration_seed=3
    )
    assert plan.adjacency == "replace_one"
    for verdict in plan.guarantee.evidence["verifications"]:
        assert {direction for direction, _, _ in verdict["means"]} == {"replace_one"}


def largest_gap(one: Tail, other: Tail, epsilon: float) -> float:
    """The largest Pr_1[y > t] - e^epsilon Pr_0[y > t] on a grid of thresholds: a delta that an attack attains."""
    thresholds = np.linspace(-30.0, 30.0, 60_001)
    return float((one(thresholds) - math.exp(epsilon) * other(thresholds)).max())


def noisy_tail(sigma: float, probability: float, shift: float) -> Tail:
    """Pr[y > t] of one noisy sum in which an example of gradient ``shift`` takes part with this probability."""
    return lambda t: (
        (1.0 - probability) * stats.norm.sf(t / sigma) + probability * stats.norm.sf((t - shift) / sigma)
    )


def test_noise_found_for_the_best_of_several_runs_is_enough_for_the_best() -> None:
    """Whoever releases the largest of K sums, K geometric: its distribution function is that law's generating function."""
    epsilon, delta, mean = 1.0, 1e-4, 5.0

    def best(tail: Tail) -> Tail:
        stop = 1.0 / mean

        def of_several(t: Numbers) -> Numbers:
            one = tail(t)  # 1 - p x / (1 - (1 - p) x) at x = 1 - one
            return np.asarray(one / (stop + (1.0 - stop) * one))

        return of_several

    made = hs.plan_training(
        lambda sigma: hs.PoissonSampled(hs.Gaussian(sigma), 0.9) * 1,
        100,
        epsilon=epsilon,
        delta=delta,
        tuning=hs.Repetitions.geometric(mean=mean),
    )
    tails = [noisy_tail(made.noise_multiplier, 0.9, shift) for shift in (1.0, 0.0)]
    assert 0.0 < largest_gap(*map(best, tails), epsilon) <= delta
    assert largest_gap(*tails, epsilon) < 0.1 * delta  # one run alone would need less noise


def test_noise_is_found_under_the_adjacency_of_the_plan() -> None:
    epsilon, delta = 1.0, 1e-4
    needed = {}
    for adjacency, shift in (("replace_one", -1.0), ("zero_out", 0.0)):
        made = hs.plan_training(
            lambda sigma: hs.PoissonSampled(hs.Gaussian(sigma), 0.5) * 1,
            100,
            epsilon=epsilon,
            delta=delta,
            adjacency=adjacency,
        )
        needed[adjacency] = made.noise_multiplier
        tails = [noisy_tail(made.noise_multiplier, 0.5, gradient) for gradient in (1.0, shift)]
        assert 0.9 * delta < largest_gap(*tails, epsilon) <= delta
    assert needed["replace_one"] > 1.2 * needed["zero_out"]


def test_a_run_that_ends_within_an_epoch_is_accounted_for_the_whole_of_it() -> None:
    """The first of four steps alone is a sum in which the example takes part with probability 1/4."""
    made = hs.plan_training(
        lambda sigma: hs.RandomAllocation(sigma, 4) * 2, SIZE, noise_multiplier=1.3, delta=1e-3
    )
    assert made.steps == 8
    spent = [made.spent(steps) for steps in range(1, 9)]
    tails = [noisy_tail(1.3, 0.25, shift) for shift in (1.0, 0.0)]
    assert spent[0] is not None
    assert largest_gap(*tails, spent[0]) <= 1e-3
    assert spent[:4] == [spent[0]] * 4
    assert spent[4:] == [made.epsilon] * 4
    assert spent[0] < made.epsilon


def test_plans_of_the_same_promise_are_told_apart_by_what_is_drawn() -> None:
    """The entries of a strategy are no part of its name: these have columns of the same norms, and the same epsilon."""
    entries = np.tile([1.0, 0.2, 0.4], (6, 1))
    entries[4], entries[5] = (1.0, 0.3, 0.0), (1.0, 0.0, 0.0)
    swapped = entries.copy()
    swapped[:4, 1:] = entries[:4, :0:-1]
    made = [
        hs.plan_training(
            hs.CyclicPoisson(6, 3, 0.3),
            SIZE,
            strategy=hs.matrix.Banded(columns),
            noise_multiplier=1.0,
            delta=1e-3,
        )
        for columns in (entries, swapped)
    ]
    assert math.isclose(made[0].epsilon, made[1].epsilon, rel_tol=1e-9)
    made[1] = replace(made[1], guarantee=made[0].guarantee)
    assert made[0] != made[1]


@pytest.mark.parametrize(
    "graphs",
    [
        ([[0], [0], [1], [1]], [[0], [1], [0], [1]]),  # of equally many users each
        ([[0, 1], [0], [1]], [[0], [1], [0, 1]]),  # of the same users, in another order of examples
    ],
)
def test_graphs_are_told_apart_by_who_owns_what(graphs: tuple[list[list[int]], ...], tmp_path: Path) -> None:
    one, other = (hs.AttributionGraph.from_lists(lists) for lists in graphs)
    made = hs.plan_training(
        hs.BMinSep(4, 2, 0.2, examples_per_user=2),
        one.num_examples,
        graph=one,
        strategy=2,
        epsilon=3.0,
        delta=0.05,
        noise_multiplier=6.0,
        calibration_seed=4,
    )
    made.save(tmp_path / "plan")
    assert TrainingPlan.load(tmp_path / "plan", graph=one) == made
    with pytest.raises(hs.ParameterError, match="the one that the plan was made with"):
        TrainingPlan.load(tmp_path / "plan", graph=other)
    assert replace(made, graph=other) != made


@pytest.mark.parametrize("state_dtype", [np.float32, np.float64])
@pytest.mark.parametrize("with_state", [False, True])
def test_a_resumed_run_has_the_noise_of_its_clipping_norm(
    tmp_path: Path, with_state: bool, state_dtype: type
) -> None:
    """Noise for gradients of norm 1 would be too little for those of norm 2.5; other bits would show a difference of two sums."""
    made = hs.plan_training(
        hs.CyclicPoisson(12, 3, 0.3),
        SIZE,
        strategy=hs.BandedToeplitz.square_root(12, 3),
        noise_multiplier=0.8,
        delta=1e-4,
    )
    how = {"clipping_norm": 2.5, "state_dtype": state_dtype, "seed": 27_182_818}

    def noise(run: hs.training.TrainingRun, steps: int) -> list[np.ndarray]:
        released = []
        for _ in range(steps):
            step = run.next()
            assert step.indices.ndim == 1
            released.append(step.add_noise(np.zeros(7)))
        return released

    whole = noise(made.start(7, **how), 12)
    with made.start(7, path=tmp_path / "run", **how) as run:
        noise(run, 5)
        state = run.state() if with_state else None
    with made.resume(tmp_path / "run", state=state) as run:
        assert run.clipping_norm == 2.5
        np.testing.assert_array_equal(noise(run, 7), whole[5:])
    # By hand: C times the rows is independent noise of this scale, whatever the state is kept in.
    recovered = made.strategy.matrix() @ np.array(whole) / (0.8 * 2.5)
    assert 0.6 < recovered.std() < 1.4


def test_sums_of_millions_of_numbers_are_measured_whole() -> None:
    """The norm is summed up in portions: what is too large may be in any of them."""
    size = 2**20 + 8
    made = hs.plan_training(hs.Poisson(3, 1.0), 2, noise_multiplier=1.0, delta=1e-3)
    for place in (slice(0, 16), slice(size - 4, size)):
        run = made.start(size, clipping_norm=1.0, seed=1)
        step = run.next()
        assert len(step.indices) == 2
        total = np.zeros(size, np.float32)
        total[place] = 1.1  # no entry is beyond the norm of two clipped gradients, all of them are
        with pytest.raises(hs.training.DeviationError, match="its norm is beyond"):
            step.add_noise(total)


NOISE, TWO_BANDS = hs.Gaussian(1.5), hs.BandedToeplitz([1.0, 0.5], 8)
OF_VERSION_0_2 = {
    "5759023250cd851ad3208d602cb8c194": hs.PoissonSampled(NOISE, 0.1) * 8,
    "39ff6ba41fb5d62d956ea37f24f7908d": hs.WithoutReplacement(NOISE, 3, 40) * 8,
    "1506c48d5e794bac3c53658672fa94af": hs.WithReplacement(NOISE, 3, 40) * 8,
    "f6c62f50211f7a26bdb4b8a177b4c9e3": hs.TruncatedPoissonSampled(1.5, 40, 0.1, 9) * 8,
    "ea6d760fbf07024be64ee6b5ee51cead": hs.RandomAllocation(1.5, 8) * 1,
    "d1d39f50c0eb15b713761e0677aa9b1e": hs.BandMF(TWO_BANDS, hs.CyclicPoisson(8, 2, 0.1), 1.5),
    "69ac269c9d0bafe6c488423b6c13aa5d": hs.BandMF(TWO_BANDS, hs.BallsInBins(8, 4), 1.5),
    "b8639016e089b9bea83a3c38c84fb335": hs.BandMF(TWO_BANDS, hs.BMinSep(8, 2, 0.1), 1.5),
    "69a32cc5f72ed8d668f8f062ac3b1b55": hs.BandMF(TWO_BANDS, hs.matrix.RMinSep(8, 2, 0.1), 1.5),
    "41ba2ea501679ff19d4b8ee3f25b7eb9": hs.BandMF(TWO_BANDS, hs.matrix.FixedOrder(8, 2), 1.5),
}


@pytest.mark.parametrize("fingerprint", OF_VERSION_0_2)
def test_runs_of_earlier_versions_are_resumed(fingerprint: str) -> None:
    """A run is resumed under its plan's fingerprint alone: a field that a later version adds must not change it."""
    promise = Guarantee("certified", 2.0, 1e-5, "zero_out", "one record", "as planned", None)
    assert TrainingPlan(OF_VERSION_0_2[fingerprint], 40, promise).fingerprint == fingerprint
