"""calibrate_bandmf: what it releases keeps the budget, whatever path it took there."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import hockeystick as hs
import numpy as np
import pytest
from hockeystick.cli.commands import main
from hockeystick.matrix.scheme import Scheme
from hockeystick.montecarlo import bandmf_calibration
from hockeystick.montecarlo.bandmf_calibration import CalibratedBandMF, calibrate_bandmf

from bench.baselines.exact import gaussian_delta

STEPS = 24
STRATEGY = hs.BandedToeplitz.optimized(STEPS, 4)


def poisson(sigma: float, q: float, steps: int = STEPS) -> hs.mechanisms.Process:
    return hs.PoissonSampled(hs.Gaussian(sigma), q) * steps


def test_result_keeps_the_budget_where_the_truth_is_known() -> None:
    # b-min-sep with b = 1 is Poisson sampling; its accounting here knows nothing of that.
    identity, scheme = hs.Identity(STEPS), hs.BMinSep(STEPS, 1, 0.2)
    least = float(hs.calibrate_noise_multiplier(lambda s: poisson(s, 0.2), 1.0, 0.05))
    for seed in range(12):
        found = calibrate_bandmf(identity, scheme, 1.0, 0.05, seed=seed, fallback="unamplified")
        assert not found.fell_back
        assert found.plan is not None
        # True but for the plan's failure probability, below 1 in 400.
        assert hs.account(poisson(found.noise_multiplier, 0.2)).delta(1.0) <= found.plan.tested_delta
        assert least <= found.noise_multiplier <= 1.6 * least


def test_an_example_that_hardly_takes_part_needs_hardly_any_noise() -> None:
    # The verdict turns at once, where rounding of the losses is all that is seen.
    for seed in range(6):
        found = calibrate_bandmf(
            hs.Identity(1), hs.BMinSep(1, 1, 2.8e-4), 0.1, 0.026, seed=seed, method="plain"
        )
        assert not found.fell_back


def test_what_is_released_besides_is_named_without_samples_too() -> None:
    scheme, others = hs.CyclicPoisson(STEPS, 4, 0.1), hs.Gaussian(9.0)
    found = calibrate_bandmf(STRATEGY, scheme, 1.0, 0.05, composed_with=others)
    assert found.plan is None
    assert "released together with Gaussian(noise_multiplier=9.0)" in found.statement()
    assert hs.account(found.mechanism.as_process() + others).delta(1.0) <= 0.05


def test_cyclic_poisson_needs_no_samples() -> None:
    found = calibrate_bandmf(STRATEGY, hs.CyclicPoisson(STEPS, 4, 0.3), 1.0, 1e-4)
    assert found.plan is None
    assert found.verifications == ()
    assert not found.fell_back
    # Turn i releases one Gaussian of sensitivity |c_i|, sampled.
    norms = STRATEGY.column_norms()[::4]
    whole = sum(hs.PoissonSampled(hs.Gaussian(found.noise_multiplier / norm), 0.3) for norm in norms)
    lower, upper = hs.account(whole).delta_bounds(1.0)  # type: ignore[arg-type]
    assert lower <= 1e-4
    assert 0.999e-4 <= upper <= 1e-4 * (1.0 + 1e-9)
    one = calibrate_bandmf(hs.Identity(STEPS), hs.Poisson(STEPS, 0.1), 1.0, 1e-4)
    assert one.noise_multiplier == pytest.approx(
        float(hs.calibrate_noise_multiplier(lambda s: poisson(s, 0.1), 1.0, 1e-4)), rel=1e-5
    )
    assert "certified without sampling" in one.statement()


@pytest.mark.parametrize("group", [None, 0, 3])
def test_cyclic_poisson_covers_every_group(group: int | None) -> None:
    columns = np.random.default_rng(1).uniform(0.2, 1.0, (10, 3))
    columns[9, 1:] = columns[8, 2] = 0.0
    strategy = hs.matrix.Banded(columns)
    found = calibrate_bandmf(strategy, hs.CyclicPoisson(10, 4, 0.5, group), 2.0, 1e-3)
    norms = strategy.column_norms()
    for member in range(4) if group is None else [group]:
        steps = [
            hs.PoissonSampled(hs.Gaussian(found.noise_multiplier / norm), 0.5) for norm in norms[member::4]
        ]
        assert hs.account(sum(steps)).delta_bounds(2.0).lower <= 1e-3  # type: ignore[arg-type]


SCHEMES: list[tuple[Scheme, hs.matrix.Strategy]] = [
    (hs.BMinSep(STEPS, 4, 0.1), STRATEGY),
    (hs.BMinSep(STEPS, 6, 0.1, warm_start=False), STRATEGY),
    (hs.BallsInBins(STEPS, 8), STRATEGY),
    (hs.matrix.MultiAttributionBMinSep(STEPS, 4, 0.05, 2), STRATEGY),
    (hs.matrix.MultiAttributionBMinSep(STEPS, 4, 0.05, 2, "exact"), STRATEGY),
    (hs.matrix.TruncatedBMinSep(STEPS, 4, 0.05, 20, 3), STRATEGY),
    (hs.matrix.RMinSep(STEPS, 3, 0.1), hs.BandedToeplitz.square_root(STEPS, 8)),
    (hs.matrix.RMinSep(STEPS, 6, 0.1, warm_start=False), hs.matrix.InverseBanded([1.0, -0.5, -0.1], STEPS)),
]


@pytest.mark.sweep
@pytest.mark.parametrize(("scheme", "strategy"), SCHEMES)
def test_every_scheme_and_its_fallback(scheme: Scheme, strategy: hs.matrix.Strategy) -> None:
    found = calibrate_bandmf(strategy, scheme, 3.0, 0.05, seed=4, fallback="unamplified")
    assert not found.fell_back
    assert found.mechanism.scheme == scheme
    assert found.verifications[0].accepted
    assert found.fallback is not None
    assert found.noise_multiplier < found.fallback.noise_multiplier
    # The noise of the fallback needs no amplification: with it, delta is small by any account.
    safe = hs.BandMF(strategy, scheme, found.fallback.noise_multiplier)
    # The exact value of the fallback's Gaussian is the tested delta.
    assert hs.estimate_delta(safe, 3.0, 20_000, seed=5).lower <= found.plan.tested_delta  # type: ignore[union-attr]
    # And what was chosen has about the delta it should have.
    chosen = hs.estimate_delta(found.mechanism, 3.0, 100_000, seed=6, confidence=0.999)
    assert chosen.lower <= found.plan.tested_delta  # type: ignore[union-attr]
    assert chosen.upper >= 0.2 * found.plan.threshold  # type: ignore[union-attr]


def test_truncation_takes_no_more_noise_than_no_amplification() -> None:
    # Nearly every batch is cut: with all coins shown, the same records stay out in both worlds (tests/montecarlo/test_replacement.py).
    scheme = hs.matrix.TruncatedBMinSep(STEPS, 4, 0.9, 50, 40)
    found = calibrate_bandmf(STRATEGY, scheme, 1.0, 0.02, seed=1, candidates=[1e-2])
    assert found.fell_back
    alone = hs.Gaussian(found.noise_multiplier / STRATEGY.sensitivity(4, None))
    assert 0.009 < hs.account(alone).delta(1.0) <= 0.02


def test_fallback_is_released_if_nothing_is_accepted() -> None:
    scheme = hs.BMinSep.of_rate(STEPS, 4, 1 / 16)
    for kind in ("cyclic", "unamplified"):
        found = calibrate_bandmf(STRATEGY, scheme, 1.0, 0.02, seed=1, candidates=[1e-3, 2e-3], fallback=kind)
        assert found.fell_back
        assert [entry.accepted for entry in found.verifications] == [False]
        assert found.fallback is not None
        assert found.noise_multiplier == found.fallback.noise_multiplier
        assert found.mechanism.scheme == found.fallback.scheme
        assert hs.account(found.fallback.process).delta(1.0) <= found.plan.tested_delta * (1.0 + 1e-9)  # type: ignore[union-attr]
        assert "the fallback is released" in found.statement()
    assert found.mechanism.scheme == scheme
    # The same expected batch size: a quarter of the data, at four times the rate.
    cyclic = calibrate_bandmf(STRATEGY, scheme, 1.0, 0.02, seed=1, candidates=[1e-3]).mechanism.scheme
    assert isinstance(cyclic, hs.CyclicPoisson)
    assert cyclic.sampling_probability == pytest.approx(4 / 16, rel=1e-12)
    assert cyclic.min_sep == 4


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("steps", "scheme", "epsilon", "adjacency"),
    [
        (20, hs.BMinSep(20, 4, 0.05), 80.0, "add_or_remove"),
        (20, hs.BMinSep(20, 4, 1e-300), 2.0, "add_or_remove"),
        (20, hs.BMinSep(20, 4, 1e-300), 2.0, "replace_one"),
        (64, hs.BMinSep(64, 1, 0.01), 50.0, "add_or_remove"),
    ],
)
def test_fallback_is_released_where_pilots_see_nothing(
    steps: int, scheme: hs.BMinSep, epsilon: float, adjacency: str
) -> None:
    """They went down to noise with which no losses can be drawn, and its refusal was raised."""
    strategy = hs.BandedToeplitz.square_root(steps, scheme.min_sep)
    found = calibrate_bandmf(strategy, scheme, epsilon, 1e-5, seed=1, adjacency=adjacency)
    assert found.fell_back
    assert hs.account(found.fallback.process, adjacency).delta(epsilon) <= 1e-5  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("others", "threshold"), [(hs.ApproximateDP(0.0, 6e-4), None), (None, 0.0)], ids=["others", "threshold"]
)
def test_fallback_is_released_where_no_candidate_can_be_proposed(
    others: hs.mechanisms.Mechanism | None, threshold: float | None
) -> None:
    """Others alone use up more than a verifier would accept, or nothing is below its threshold: these raised."""
    strategy, scheme = hs.BandedToeplitz.square_root(6, 2), hs.BMinSep(6, 2, 0.3)
    found = calibrate_bandmf(
        strategy, scheme, 1.0, 1e-3, seed=3, composed_with=others, threshold=threshold, method="plain"
    )
    assert found.fell_back
    assert found.verifications == ()
    process = found.fallback.process if others is None else found.fallback.process + others  # type: ignore[union-attr]
    assert hs.account(process).delta(1.0) <= 1e-3


def test_candidates_noisier_than_the_fallback_are_not_asked_for() -> None:
    scheme = hs.BMinSep.of_rate(STEPS, 4, 1 / 16)
    found = calibrate_bandmf(STRATEGY, scheme, 1.0, 0.02, seed=1, candidates=[100.0, 200.0])
    assert found.fell_back
    assert found.verifications == ()


def test_composition_takes_more_noise() -> None:
    scheme = hs.BMinSep(STEPS, 4, 0.1)
    alone = calibrate_bandmf(STRATEGY, scheme, 3.0, 0.05, seed=4)
    both = calibrate_bandmf(STRATEGY, scheme, 3.0, 0.05, seed=4, composed_with=hs.Gaussian(1.0))
    assert both.noise_multiplier > 1.05 * alone.noise_multiplier
    assert "released together with Gaussian(noise_multiplier=1.0)" in both.statement()
    estimate = hs.estimate_delta(both.mechanism, 3.0, 100_000, seed=6, composed_with=hs.Gaussian(1.0))
    assert estimate.lower <= 0.05
    assert (
        hs.estimate_delta(alone.mechanism, 3.0, 100_000, seed=6, composed_with=hs.Gaussian(1.0)).lower > 0.05
    )


def settled(found: CalibratedBandMF) -> tuple[object, ...]:
    return found.noise_multiplier, found.verifications, found.plan, found.seed


def test_same_seed_same_answer_on_any_number_of_threads(tmp_path: Path) -> None:
    scheme = hs.BMinSep(STEPS, 4, 0.1)
    first = calibrate_bandmf(STRATEGY, scheme, 3.0, 0.05, seed=4, checkpoint=tmp_path)
    try:
        hs.set_threads(3)
        assert settled(calibrate_bandmf(STRATEGY, scheme, 3.0, 0.05, seed=4)) == settled(first)
    finally:
        hs.set_threads(0)
    # From the directory, seed and all.
    assert settled(calibrate_bandmf(STRATEGY, scheme, 3.0, 0.05, checkpoint=tmp_path)) == settled(first)


def test_statement_and_json_hold_what_a_reader_needs() -> None:
    found = calibrate_bandmf(STRATEGY, hs.BMinSep(STEPS, 4, 0.1), 3.0, 0.05, seed=4)
    statement = found.statement()
    assert found.plan is not None
    for part in (
        "(3.0, 0.05)-differential privacy",
        "Theorem A.1",
        f"at least {found.plan.samples} Monte Carlo samples",
        "BMinSep(steps=24, min_sep=4",
        repr(found.noise_multiplier),
        "zero_out",
        "repeating it until the result pleases forfeits it",
    ):
        assert part in statement
    assert "nan" not in statement
    content = json.loads(found.to_json())
    assert content["noise_multiplier"] == found.noise_multiplier
    assert content["mean_squared_error"] == STRATEGY.mean_squared_error(found.noise_multiplier)
    assert content["plan"]["samples"] == found.plan.samples
    total = found.plan.tested_delta + found.plan.failure_probability * (1.0 - found.plan.tested_delta)
    assert total <= 0.05


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": -1.0}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": math.nan}, "delta"),
        ({"delta": 1.0, "scheme": hs.CyclicPoisson(STEPS, 4, 0.1)}, "delta = 1.0"),
        ({"adjacency": "replace_two"}, "adjacency"),
        ({"fallback": "none"}, "fallback"),
        ({"candidates": [1.0, 0.0]}, r"candidates\[1\]"),
        ({"samples": 10, "threshold": 0.02}, "prove delta"),
        ({"samples": 10}, "must be at least"),
        ({"threshold": 0.05}, "must be below"),
        ({"scheme": hs.BMinSep(STEPS, 3, 0.1)}, "bands"),
        ({"scheme": hs.BMinSep(7, 4, 0.1)}, "steps"),
        (
            {"scheme": hs.matrix.TruncatedBMinSep(STEPS, 4, 0.1, 10, 5), "adjacency": "add_or_remove"},
            "zero_out",
        ),
        ({"scheme": hs.matrix.TruncatedBMinSep(STEPS, 4, 0.1, 10, 5), "fallback": "cyclic"}, "fallback"),
        # A third of the data in every batch: a group of a quarter is too small.
        ({"scheme": hs.BallsInBins(STEPS, 3), "fallback": "cyclic"}, "there is no cyclic Poisson sampling"),
        # What has no table under replace_one.
        (
            {"scheme": hs.BallsInBins(STEPS, 4), "method": "tilted", "adjacency": "replace_one"},
            "method = 'tilted'",
        ),
        (
            {"method": "tilted", "adjacency": "replace_one", "composed_with": hs.Gaussian(9.0)},
            "method = 'tilted'",
        ),
        ({"scheme": hs.BMinSep.of_rate(STEPS, 4, 1 / 4), "strategy": hs.Identity(STEPS), "seed": -1}, "seed"),
    ],
)
def test_refusals(changes: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {
        "strategy": STRATEGY,
        "scheme": hs.BMinSep(STEPS, 4, 0.1),
        "epsilon": 1.0,
        "delta": 0.05,
        **changes,
    }
    with pytest.raises(hs.ParameterError, match=message):
        calibrate_bandmf(**arguments)  # type: ignore[arg-type]


RUN = [
    "bandmf",
    "--epsilon",
    "3",
    "--delta",
    "0.05",
    "--steps",
    "24",
    "--bands",
    "4",
    "--dataset-size",
    "1600",
    "--batch-size",
    "100",
    "--seed",
    "3",
    "--fallback",
    "unamplified",
]
ANALYTIC = RUN[: RUN.index("--seed")]


def test_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main([*RUN, "--json", "--checkpoint", str(tmp_path / "run")]) == 0
    content = json.loads(capsys.readouterr().out)
    expected = calibrate_bandmf(
        STRATEGY, hs.BMinSep.of_rate(STEPS, 4, 1 / 16), 3.0, 0.05, seed=3, fallback="unamplified"
    )
    assert content == json.loads(expected.to_json())
    assert main([*RUN, "--checkpoint", str(tmp_path / "run")]) == 0
    out = capsys.readouterr().out
    assert f"noise_multiplier = {expected.noise_multiplier!r}\n" in out
    assert f"{expected.mean_squared_error:.8g}" in out
    assert "Theorem A.1" in out
    for options in (
        [*ANALYTIC, "--scheme", "cyclic-poisson"],
        [*ANALYTIC, "--scheme", "cyclic-poisson", "--max-batch-size", "120"],
        [*RUN, "--max-batch-size", "180"],
        [*RUN, "--strategy", "square-root", "--cold-start", "--min-sep", "6"],
        [*ANALYTIC, "--scheme", "poisson", "--bands", "1"],
    ):
        assert main(options) == 0
        assert "noise_multiplier = " in capsys.readouterr().out
    # The candidate's delta is about the threshold; these samples accept it.
    assert main([*RUN[:9], "--scheme", "balls-in-bins", "--min-sep", "8", "--seed", "4"]) == 0
    assert "BallsInBins(steps=24, bins=8)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--sampling-probability", "0.1", "--batch-size", "9"], "--sampling-probability"),
        (["--sampling-probability", "0.1", "--dataset-size", "99"], "--dataset-size"),
        (["--scheme", "balls-in-bins", "--dataset-size", "99"], "--dataset-size"),
        (["--sampling-probability", "0.1", "--strategy", "square-root"], "--strategy"),
        *[
            (["--scheme", "poisson", "--sampling-probability", "0.1", option, value], option)
            for option, value in (
                ("--samples", "9"),
                ("--seed", "9"),
                ("--fallback", "auto"),
                ("--checkpoint", "x"),
            )
        ],
    ],
)
def test_what_would_have_no_effect_is_refused(
    options: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bandmf", "--epsilon", "3", "--delta", "0.05", "--steps", "24", *options]) == 2
    assert capsys.readouterr().err.startswith(f"hockeystick: error: {named}: ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--batch-size", "500"], "--batch-size 500: must be at most"),
        (["--sampling-probability", "0.1"], "--sampling-probability"),
        (["--scheme", "shuffled"], "--scheme"),
        (["--strategy", "best"], "--strategy"),
        (["--scheme", "balls-in-bins"], "balls-in-bins"),
        (["--scheme", "cyclic-poisson", "--cold-start"], "--cold-start"),
        (["--scheme", "poisson", "--max-batch-size", "9"], "--max-batch-size: only"),
        (["--max-batch-size", "9", "--examples-per-user", "2"], "--max-batch-size: not with"),
        (["--delta", "0"], "delta"),
        (["--bands", "25"], "bands"),
        (["--min-sep", "2"], "bands"),
        (["--scheme", "poisson", "--min-sep", "4"], "--min-sep: poisson has none"),
        (["--min-sep", "0", "--batch-size", "-100"], "min_sep = 0: must be an integer in [1, "),
        (["--bands", "0"], "bands = 0: must be an integer in [1, "),
        (["--batch-size", "-100"], "batch_size = -100: must be an integer in [1, "),
        (["--batch-size", "1" + 400 * "0"], "0: must be an integer in [1, "),
        (["--dataset-size", "0"], "dataset_size = 0: must be an integer in [1, "),
    ],
)
def test_command_line_mistakes(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, *options]) == 2
    error = capsys.readouterr().err
    assert error.startswith("hockeystick: error: ")
    assert message in error
    assert len(error.splitlines()) == 1


def test_damaged_checkpoint_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "seed").write_bytes(b"nonsense")
    assert main([*RUN, "--checkpoint", str(tmp_path)]) == 2
    assert "cannot load" in capsys.readouterr().err


@pytest.mark.parametrize("group", [None, 0, 2])
def test_cyclic_bandmf_is_a_composition(group: int | None) -> None:
    """`account` takes it, and samples of its privacy loss agree."""
    strategy = hs.BandedToeplitz.square_root(30, 3)
    mechanism = hs.BandMF(strategy, hs.CyclicPoisson(30, 3, 0.2, group), 1.0)
    lower, upper = hs.account(mechanism).delta_bounds(2.0)
    found = hs.estimate_delta(mechanism, 2.0, samples=100_000, seed=5, confidence=0.9999)
    assert found.lower <= upper
    assert lower <= found.upper
    composed = mechanism + hs.Gaussian(5.0)
    assert hs.account(composed).delta(2.0) > upper


def test_correlated_participations_are_no_composition() -> None:
    mechanism = hs.BandMF(hs.BandedToeplitz.square_root(30, 3), hs.BMinSep(30, 3, 0.1), 1.0)
    with pytest.raises(hs.ParameterError, match="calibrate_bandmf"):
        hs.account(mechanism)


def test_the_unit_is_what_is_released_besides_too() -> None:
    users = hs.BandMF(STRATEGY, hs.BMinSep(STEPS, 4, 0.1, examples_per_user=3), 2.0)
    for others, covered in [
        (hs.Gaussian(5.0), 1),
        (hs.UserLevel(hs.Gaussian(5.0), 2), 2),
        (hs.UserLevel(hs.Gaussian(5.0), 9), 3),
    ]:
        found = CalibratedBandMF(users, 1.0, 1e-5, "zero_out", None, composed_with=others.as_process())
        assert f"one user, at most {covered}, are" in found.unit
        assert found.unit in found.statement()
    single, cut = (
        hs.BandMF(STRATEGY, hs.BMinSep(STEPS, 4, 0.1), 2.0),
        hs.TruncatedPoissonSampled(1.0, 60, 0.3, 20),
    )
    for others in (cut, hs.mechanisms.Group(cut, 1)):
        found = CalibratedBandMF(single, 1.0, 1e-5, "add_or_remove", None, composed_with=others.as_process())
        assert "exactly 60 records" in found.unit


def test_users_of_several_examples_move_the_fallback_by_all_of_them() -> None:
    strategy = hs.BandedToeplitz.square_root(8, 2)
    found = hs.calibrate_bandmf(
        strategy,
        hs.BMinSep(8, 2, 0.2, examples_per_user=3),
        3.0,
        0.05,
        seed=1,
        fallback="unamplified",
        candidates=[1e-3],
    )
    assert found.fell_back
    moved = 3.0 * strategy.sensitivity(2, None)
    assert hs.account(hs.Gaussian(found.noise_multiplier / moved)).epsilon_bounds(0.05).lower <= 3.0


@pytest.mark.parametrize(("adjacency", "moved"), [("zero_out", 1.0), ("replace_one", 2.0)])
def test_the_fallback_leaves_room_for_a_wrong_verdict(
    adjacency: str, moved: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is accounted at the delta that is tested, under the adjacency asked for; also where the verifier is chosen again.

    Four steps, of which an example may take part in two: the unamplified input moves by sqrt(2), or twice that.
    """
    epsilon, delta = 2.0, 5e-5
    seeds: list[int] = []

    def answering(answer: Any) -> Any:
        def asked(*given: Any) -> Any:
            seeds.append(given[-2])
            return answer

        return asked

    monkeypatch.setattr(bandmf_calibration, "propose", answering((1.0,)))
    monkeypatch.setattr(bandmf_calibration, "is_hopeful", answering(False))
    monkeypatch.setattr(bandmf_calibration, "choose", answering(()))  # none is accepted
    for scheme in (hs.matrix.TruncatedBMinSep(4, 2, 0.4, 12, 2), hs.BMinSep(4, 2, 0.4)):
        found = hs.calibrate_bandmf(
            hs.Identity(4), scheme, epsilon, delta, adjacency=adjacency, seed=1, fallback="unamplified"
        )
        assert found.fell_back
        assert found.plan is not None
        assert seeds.pop() == found.seed == 1
        assert 1 not in seeds  # what pilots see, the verifier does not
        tested, failure = found.plan.tested_delta, found.plan.failure_probability
        assert tested + failure * (1.0 - tested) <= delta * (1.0 + 1e-15)
        assert (
            0.9 * tested < gaussian_delta(moved * math.sqrt(2.0) / found.noise_multiplier, epsilon) <= tested
        )


def test_what_is_released_was_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less and less noise is asked for, up to the first rejection: what was rejected is not what is run."""
    choose = bandmf_calibration.choose

    def rejecting(make: Any, candidates: Any, *rest: Any) -> Any:
        verdicts = choose(make, candidates, *rest)
        *accepted, last = verdicts
        assert accepted
        assert all(entry.accepted for entry in accepted)
        return (*accepted, replace(last, accepted=False))

    given = {"candidates": (2.0, 2.2, 2.4), "seed": 3, "fallback": "unamplified", "method": "plain"}
    scheme = hs.BMinSep(STEPS, 1, 0.2)
    whole = calibrate_bandmf(hs.Identity(STEPS), scheme, 1.0, 0.05, **given)
    assert whole.noise_multiplier == min(entry.noise_multiplier for entry in whole.verifications)
    monkeypatch.setattr(bandmf_calibration, "choose", rejecting)
    found = calibrate_bandmf(hs.Identity(STEPS), scheme, 1.0, 0.05, **given)
    *accepted, last = found.verifications
    assert not last.accepted
    assert found.noise_multiplier == accepted[-1].noise_multiplier > last.noise_multiplier


def test_a_verifier_that_proves_more_than_the_target_is_refused() -> None:
    """With the probability of a wrong verdict it is more than delta, though what is tested is less."""
    plan = bandmf_calibration.plan_verification(threshold=0.01, samples=2000)
    between = 0.5 * (plan.tested_delta + plan.target_delta)
    assert plan.tested_delta < between < plan.target_delta
    given = (hs.Identity(STEPS), hs.BMinSep(STEPS, 1, 0.2), 1.0)
    with pytest.raises(hs.ParameterError, match="prove delta = "):
        calibrate_bandmf(*given, between, threshold=0.01, samples=2000, seed=1)
