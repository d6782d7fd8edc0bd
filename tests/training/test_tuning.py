"""Plans that say how their settings were chosen: accounted, declared or not declared."""

from __future__ import annotations

from pathlib import Path

import hockeystick as hs
import pytest
from hockeystick.training import TrainingPlan

RUNS = hs.Repetitions.geometric(mean=5)


def plan(tuning: hs.Repetitions | str | None, epsilon: float | None = None) -> TrainingPlan:
    return hs.plan_training(
        lambda sigma: hs.dp_sgd(sigma, 1000, 50, steps=30),
        1000,
        delta=1e-6,
        noise_multiplier=1.0,
        epsilon=epsilon,
        tuning=tuning,
    )


def test_tuning_is_accounted_declared_or_said_to_be_missing(tmp_path: Path) -> None:
    silent, none, tuned = plan(None), plan("none"), plan(RUNS)
    assert "Tuning: not declared" in silent.guarantee.statement
    assert "Tuning: none, as declared" in none.guarantee.statement
    assert "best of K runs" in tuned.guarantee.statement
    assert silent.epsilon == none.epsilon < tuned.epsilon
    assert silent.mechanism == tuned.mechanism
    run = hs.dp_sgd(1.0, 1000, 50, steps=30)
    assert tuned.epsilon == hs.account(hs.PrivateSelection(run, RUNS), "zero_out").epsilon(1e-6)
    # What a part of a run spends is that of the best of such parts.
    part = hs.PrivateSelection(hs.dp_sgd(1.0, 1000, 50, steps=10), RUNS)
    assert tuned.spent(10) == hs.account(part, "zero_out").epsilon(1e-6)
    assert tuned.spent(30) == tuned.epsilon
    tuned.save(tmp_path / "plan")
    assert TrainingPlan.load(tmp_path / "plan").spent(10) == tuned.spent(10)
    with pytest.raises(hs.ParameterError, match="noise_multiplier"):
        plan(RUNS, epsilon=silent.epsilon * 1.01)  # enough for one run only


def test_what_cannot_be_accounted_is_refused() -> None:
    with pytest.raises(hs.ParameterError, match="tuning"):
        plan("some")
    with pytest.raises(hs.ParameterError, match="Monte Carlo"):
        hs.plan_training(
            hs.BMinSep(steps=8, min_sep=2, sampling_probability=0.1),
            100,
            delta=1e-3,
            epsilon=4.0,
            strategy=2,
            tuning=RUNS,
        )
