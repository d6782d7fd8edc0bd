"""Choosing the maximum batch size: calibration, planning, the older bound, command line and picture."""

from __future__ import annotations

import json
import math
from pathlib import Path

import hockeystick as hs
import pytest
from hockeystick.accounting.batch_limits import UnionBound
from hockeystick.cli.commands import main

N, P, STEPS, DELTA = 20_000, 0.02, 200, 1e-6


def step(most: int, sigma: float = 1.0) -> hs.TruncatedPoissonSampled:
    return hs.TruncatedPoissonSampled(sigma, N, P, most)


@pytest.mark.parametrize("adjacency", ["add_or_remove", "replace_one"])
def test_the_smallest_batch_size(adjacency: str) -> None:
    poisson = hs.account(hs.PoissonSampled(hs.Gaussian(1.0), P) * STEPS, adjacency).epsilon(DELTA)
    target = poisson * 1.05
    size = hs.accounting.calibrate_max_batch_size(
        lambda b: step(b) * STEPS, target, DELTA, adjacency=adjacency
    )
    assert size.certificate.tight
    assert size.certificate.exceeding == size - 1
    assert hs.account(step(size) * STEPS, adjacency).epsilon(DELTA) <= target
    fine = hs.account(step(size - 1) * STEPS, adjacency, accuracy=1e-6)
    assert fine.epsilon_bounds(DELTA).lower > target


def test_no_batch_size_is_enough_without_enough_noise() -> None:
    with pytest.raises(hs.UnreachableError, match="max_batch_size"):
        hs.accounting.calibrate_max_batch_size(lambda b: step(b) * STEPS, 0.1, DELTA)
    with pytest.raises(hs.ParameterTypeError, match="limits"):
        hs.accounting.calibrate_max_batch_size(lambda b: hs.Gaussian(1.0) * STEPS, 1.0, DELTA)
    with pytest.raises(hs.ParameterTypeError, match="make"):
        hs.accounting.calibrate_max_batch_size(3, 1.0, DELTA)
    # With limits of its own it may be used for anything.
    both = hs.accounting.calibrate_max_batch_size(
        lambda b: step(b) * STEPS + hs.TruncatedPoissonSampled(2.0, 100, 0.1, b),
        4.0,
        DELTA,
        limits=(420, 600),
    )
    assert 420 <= both <= 600


def test_a_plan_keeps_the_budget_and_no_neighbour_is_better() -> None:
    budget, epsilon = 450 * STEPS + 17, 2.0
    plan = hs.accounting.plan_truncated_batches(N, STEPS, budget, epsilon, DELTA)
    assert plan.step.max_batch_size == 450
    assert plan.step.max_batch_size * plan.steps <= budget
    assert hs.account(plan.process).epsilon(DELTA) <= epsilon * (1.0 + 1e-3)
    assert plan.noise == pytest.approx(plan.step.noise_multiplier / plan.expected_batch_size, rel=1e-12)
    assert plan.wasted == pytest.approx(1.0 - plan.step.expected_batch_size / 450, rel=1e-12)
    assert plan.noise_multiplier.certificate.epsilon == epsilon
    for factor in (0.9, 1.1):
        base = hs.TruncatedPoissonSampled(1.0, N, plan.step.sampling_probability * factor, 450)
        sigma = hs.calibrate_noise_multiplier(
            lambda s: hs.TruncatedPoissonSampled(s, N, base.sampling_probability, 450) * STEPS,  # noqa: B023
            epsilon,
            DELTA,
            tolerance=1e-3,
        )
        assert plan.noise <= sigma / base.expected_batch_size * (1.0 + 1e-3)


def test_plans_that_cannot_be() -> None:
    with pytest.raises(hs.UnreachableError):
        hs.accounting.plan_truncated_batches(100, 1, 100, 1.0, 0.0)
    with pytest.raises(hs.ParameterError, match="compute_budget"):
        hs.accounting.plan_truncated_batches(100, 10, 9, 1.0, 1e-6)
    # More compute than records: every record in every batch, at most.
    plan = hs.accounting.plan_truncated_batches(50, 100, 10_000, 3.0, 1e-5, tolerance=0.01)
    assert plan.step.max_batch_size == 50


@pytest.mark.parametrize("adjacency", ["add_or_remove", "zero_out", "replace_one"])
def test_the_older_bound_is_one_and_is_never_better(adjacency: str) -> None:
    for most in (430, 560):
        bound = hs.accounting.UnionBound(step(most), STEPS, adjacency)
        profile = hs.account(step(most) * STEPS, adjacency)
        for epsilon in (0.0, 2.0):
            assert profile.delta_bounds(epsilon).lower <= bound.delta(epsilon)
            poisson = hs.account(hs.PoissonSampled(hs.Gaussian(1.0), P) * STEPS, adjacency)
            assert bound.delta(epsilon) >= min(1.0, poisson.delta(epsilon))
        found = bound.epsilon(DELTA)
        assert profile.epsilon_bounds(DELTA).lower <= found
        if found < math.inf:
            assert bound.delta(found) <= DELTA
            assert bound.delta(found * (1.0 - 1e-6)) > DELTA
    assert hs.accounting.UnionBound(step(430), STEPS).epsilon(DELTA) == math.inf
    assert hs.accounting.UnionBound(step(20_000), STEPS).eta == 0.0
    with pytest.raises(hs.ParameterTypeError, match="step"):
        hs.accounting.UnionBound(hs.Gaussian(1.0), 3)


def test_dp_sgd_with_a_maximum() -> None:
    run = hs.dp_sgd(1.0, N, 400, steps=STEPS, max_batch_size=480)
    assert run.as_process() == step(480) * STEPS
    assert "truncated to 480" in str(run)
    with pytest.raises(hs.ParameterError, match="max_batch_size"):
        hs.dp_sgd(1.0, N, 400, steps=STEPS, max_batch_size=0)


RUN = ["--noise-multiplier", "1", "--dataset-size", str(N), "--steps", str(STEPS)]


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    exact = hs.account(step(480) * STEPS).report(delta=DELTA, risks=False)
    for how in (["--sampling-probability", str(P)], ["--batch-size", "400"]):
        assert main(["epsilon", "--delta", "1e-6", *RUN, *how, "--max-batch-size", "480", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["epsilon"]["upper"] == exact.epsilon.upper
        assert "exactly 20000 records" in found["unit"]
        assert (
            main(
                ["delta", "--epsilon", "3", *RUN, *how, "--max-batch-size", "480", "--adjacency", "zero_out"]
            )
            == 0
        )
        assert "zero_out" in capsys.readouterr().out
    search = ["calibrate", "--epsilon", "4", "--delta", "1e-6", *RUN, "--sampling-probability", str(P)]
    assert main([*search, "--find", "max-batch-size", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["value"] == hs.accounting.calibrate_max_batch_size(lambda b: step(b) * STEPS, 4.0, DELTA)
    assert found["exceeding"] == found["value"] - 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--noise-multiplier", "1", "--sampling-probability", "0.1", "--steps", "3"], "--dataset-size"),
        ([*RUN[:4], "--sampling-probability", "0.1", "--epochs", "3"], "--steps"),
        ([*RUN, "--sampling-probability", "0.1", "--batch-size", "3"], "--sampling-probability"),
    ],
)
def test_command_line_mistakes(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["epsilon", "--delta", "1e-6", *options, "--max-batch-size", "12"]) == 2
    assert message in capsys.readouterr().err


def test_picture(tmp_path: Path) -> None:
    path = tmp_path / "noise.png"
    curves = {"old": [math.inf, 2.0, 1.1], "new": [1.5, 1.2, 1.05], "none": [1.0, 1.0, 1.0]}
    figure = hs.plots.plot_truncation([100, 110, 120], curves, [0.1, 0.2, 0.3], "title", path)
    assert path.stat().st_size > 0
    assert len(figure.axes) == 2


@pytest.mark.parametrize("batch", [7, 14, 28, 56])
def test_the_expected_batch_size_may_be_the_answer(batch: int) -> None:
    """100 (batch / 100) is a hair above the batch in doubles; the search began one above it."""
    size = hs.accounting.calibrate_max_batch_size(
        lambda b: hs.dp_sgd(3.0, 100, batch, steps=5, max_batch_size=b), 5.0, DELTA
    )
    assert size == batch


@pytest.mark.parametrize("most", [1200, 2000, 3000, 5000])
def test_the_older_bound_where_truncation_is_no_double(most: int) -> None:
    """delta / eta overflowed, and the search went on with nan."""
    bound = hs.accounting.UnionBound(hs.TruncatedPoissonSampled(1.0, 100_000, 0.01, most), steps=1000)
    poisson = hs.account(hs.PoissonSampled(hs.Gaussian(1.0), 0.01) * 1000)
    assert poisson.epsilon_bounds(1e-5).lower <= bound.epsilon(1e-5) <= 1.03 * poisson.epsilon(1e-5)


def test_unions_are_over_all_steps() -> None:
    step = hs.TruncatedPoissonSampled(1.0, 100_000, 0.01, 1200)
    for steps in (1, 10, 1000):
        assert UnionBound(step, steps).eta >= steps * step.truncation.full_low
