"""Plans that say how their settings were chosen: accounted, declared or not declared."""

from __future__ import annotations

import json
from pathlib import Path

import hockeystick as hs
import pytest
from hockeystick._base.bounds import round_up
from hockeystick.cli.commands import main
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


def test_the_command_accounts_for_the_best_of_the_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`hockeystick account PLAN --delta` answered for one run."""
    tuned, file = plan(RUNS), str(tmp_path / "plan")
    tuned.save(file)
    assert main(["account", file, "--delta", "1e-6", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["epsilon"]["upper"] == tuned.epsilon
    assert main(["account", file, "--delta", "1e-6", "--statement"]) == 0
    assert f"({round_up(tuned.epsilon)}, 1e-06)" in capsys.readouterr().out
    # Both statements say of what the pair is that they name.
    assert "The best of the runs satisfies" in tuned.guarantee.statement
    assert f"each run is dominated by {tuned.mechanism}" in tuned.guarantee.statement


@pytest.mark.parametrize("budget", [{"noise_multiplier": 1.0}, {"epsilon": 2.0}])
def test_what_is_drawn_was_accounted(budget: dict[str, float]) -> None:
    """A function that says something else later: a closure over a configuration that changes."""
    for calm in range(1, 40):
        calls = 0

        def changing(sigma: float, calm: int = calm) -> hs.Process:
            nonlocal calls
            calls += 1
            return hs.PoissonSampled(hs.Gaussian(sigma), 0.01 if calls <= calm else 0.5) * 100

        made = hs.plan_training(changing, 1000, delta=1e-5, **budget)  # type: ignore[arg-type]
        assert made.epsilon >= hs.account(made.mechanism, made.adjacency).epsilon(1e-5)
        if calls <= calm:
            break
    else:
        raise AssertionError("the function never stayed as it was")


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
