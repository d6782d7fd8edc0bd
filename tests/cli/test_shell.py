"""The command line among other programs: numbers as people type them, files, pipes, Ctrl-C, examples, completion, self-test."""

import io
import json
import os
import shlex
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import hockeystick as hs
import pytest
from hockeystick.cli import doctor
from hockeystick.cli.commands import COMMANDS, main, parser
from hockeystick.cli.numbers import joined

RUN = ["--noise-multiplier", "1.1", "--dataset-size", "6000", "--batch-size", "64"]
SAMPLED = ["--noise-multiplier", "1.1", "--sampling-probability", "0.01", "--steps", "50"]


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def mistake(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("hockeystick: error: ")
    assert error.count("\n") == 1
    return error


def test_numbers_as_people_type_them(capsys: pytest.CaptureFixture[str]) -> None:
    typed = ["--noise-multiplier", "11/10", "--sampling-probability", "256/60000", "--steps", "1e4"]
    found = answer(capsys, "epsilon", *typed, "--delta", "1e-5")
    described = hs.PoissonSampled(hs.Gaussian(1.1), 256 / 60000) * 10_000
    assert found == hs.account(described).report(delta=1e-5).to_dict()


@pytest.mark.parametrize(
    ("option", "text", "named"),
    [
        ("--steps", "1.5", "whole number"),
        ("--steps", "1e400", "whole number"),
        ("--steps", "nan", "whole number"),
        ("--steps", "-1e4", "steps = -10000"),
        ("--sampling-probability", "1/0", "256/60000"),
        ("--sampling-probability", "1e-400", "256/60000"),
        ("--sampling-probability", "1e-200/1e200", "256/60000"),
        ("--sampling-probability", "1/2/3", "256/60000"),
        ("--sampling-probability", "-.1", "sampling_probability = -0.1"),
        ("--noise-multiplier", "-1e-5", "noise_multiplier = -1e-05"),
        ("--delta", "-1e-5", "delta = -1e-05"),
    ],
)
def test_numbers_that_are_none(
    capsys: pytest.CaptureFixture[str], option: str, text: str, named: str
) -> None:
    assert named in mistake(capsys, "epsilon", *SAMPLED, "--delta", "1e-5", option, text)


def test_minus_zero_is_zero(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (
        ["epsilon", "--noise-multiplier", "-0", "--steps", "1", "--delta", "-0"],
        ["delta", *SAMPLED, "--epsilon", "-0.0"],
        ["grid", "--noise-multiplier", "-0:1:2", "--steps", "1", "--delta", "-0"],
    ):
        assert main(command) == 0
        assert "-0" not in capsys.readouterr().out
    report = hs.account(hs.Gaussian(-0.0)).report(delta=-0.0, epsilon=-0.0)
    assert "-0.0" not in report.to_json()


def test_what_begins_with_a_dash_is_an_option() -> None:
    assert joined(["--json", "--steps", "5", "-h"]) == ["--json", "--steps", "5", "-h"]
    assert joined(["-5"]) == ["-5"]


@pytest.mark.parametrize("sampled", [hs.WithoutReplacement, hs.WithReplacement])
def test_samplers(capsys: pytest.CaptureFixture[str], sampled: type) -> None:
    """Named, they come with their adjacency; sizes mean what they mean for Poisson samples."""
    name = "without-replacement" if sampled is hs.WithoutReplacement else "with-replacement"
    found = answer(capsys, "epsilon", *RUN, "--epochs", "2", "--delta", "1e-5", "--sampler", name)
    steps = hs.dp_sgd(1.1, 6000, 64, epochs=2).steps
    described = sampled(hs.Gaussian(1.1), 64, 6000) * steps
    assert found == hs.account(described, "replace_one").report(delta=1e-5).to_dict()
    common = ["epsilon", "--delta", "1e-5", "--sampler", name, "--steps", "5"]
    assert "replace_one" in mistake(capsys, *common, *RUN, "--adjacency", "remove")
    assert "--dataset-size" in mistake(capsys, *common, *SAMPLED[:4])
    assert "--max-batch-size" in mistake(capsys, *common, *RUN, "--max-batch-size", "70")
    assert "sampler" in mistake(capsys, *common, *RUN, "--sampler", "weighted")


def test_balls_in_bins(capsys: pytest.CaptureFixture[str]) -> None:
    """Every record has one place in all epochs; a part of an epoch counts as a whole one."""
    common = ["epsilon", *RUN, "--delta", "1e-5", "--sampler"]
    found = answer(capsys, *common, "balls-in-bins", "--epochs", "1.5")
    bins = hs.dp_sgd(1.1, 6000, 64, epochs=1).steps
    scheme = hs.BallsInBins(2 * bins, bins)
    described = hs.BandMF(hs.Identity(2 * bins), scheme, 1.1)
    whole = hs.account(described).report(delta=1e-5).to_dict()
    assert answer(capsys, *common, "balls-in-bins", "--epochs", "2") == whole
    assert found["epsilon"] == whole["epsilon"]
    assert found["steps"] == -(-3 * bins // 2)
    assert f"by a draw of its own ({found['steps']} steps)" in found["samplers"][0]
    assert found["details"] == f"the first {found['steps']} steps of {described}"
    assert found["dominated"] == whole["dominated"] != []
    once = [
        answer(capsys, *common, name, "--epochs", "1")["epsilon"]["upper"]
        for name in ("balls-in-bins", "random-allocation")
    ]
    assert once[0] == pytest.approx(once[1], rel=1e-9)
    assert answer(capsys, *common, "balls-in-bins", "--epochs", "0")["epsilon"]["upper"] == 0.0


def test_noise_is_found_for_other_samplers(capsys: pytest.CaptureFixture[str]) -> None:
    run = [*RUN[2:], "--epochs", "2", "--sampler", "without-replacement"]
    found = answer(capsys, "calibrate", *run, "--epsilon", "1", "--delta", "1e-5")
    assert found["adjacency"] == "replace_one"
    sampled = hs.WithoutReplacement(hs.Gaussian(found["value"]), 64, 6000)
    assert hs.account(sampled * 188, "replace_one").epsilon(1e-5) <= 1.0


@pytest.mark.parametrize("command", ["profile", "grid"])
def test_pictures_that_cannot_be_written_fail_first(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    for name in ("dpsgd.profile", "grid.grid_epsilon"):
        monkeypatch.setattr(f"hockeystick.cli.{name}", lambda *_, **__: pytest.fail("computed"))
    run = [command, *SAMPLED, *(["--delta", "1e-5"] if command == "grid" else [])]
    assert "png" in mistake(capsys, *run, "--plot", str(tmp_path / "a.xyz"))
    assert "nowhere" in mistake(capsys, *run, "--plot", str(tmp_path / "nowhere" / "a.png"))
    (tmp_path / "folder.png").mkdir()
    assert "folder" in mistake(capsys, *run, "--plot", str(tmp_path / "folder.png"))


@pytest.mark.parametrize("command", ["epsilon", "delta", "profile", "account"])
@pytest.mark.parametrize("option", ["--report", "--certificate"])
def test_files_that_cannot_be_written_fail_first(
    command: str,
    option: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was asked for was computed and printed, minutes later, before the path turned out to be a slip."""
    monkeypatch.setattr(
        "hockeystick.accounting.profile.PrivacyProfile.report", lambda *_, **__: pytest.fail("computed")
    )
    monkeypatch.setattr(
        "hockeystick.training.plan.TrainingPlan.load", lambda *_, **__: pytest.fail("computed")
    )
    plan = hs.plan_training(hs.Poisson(9, 0.1), 100, noise_multiplier=2.0, delta=1e-2)
    plan.save(tmp_path / "plan")
    point = ["--epsilon", "1"] if command == "delta" else ["--delta", "1e-2"]
    run = [command, *([str(tmp_path / "plan")] if command == "account" else SAMPLED), *point]
    (tmp_path / "folder.json").mkdir()
    for name in ("nowhere/a.json", "folder.json"):
        assert f"{option} " in mistake(capsys, *run, option, str(tmp_path / name))
        assert f"{option} " in mistake(capsys, *run, option, str(tmp_path / name), "--statement")
    both = str(tmp_path / "both.json")
    assert "another file" in mistake(capsys, *run, "--report", both, "--certificate", both)


def test_a_ledger_is_accounted_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ledger = hs.Accountant("remove")
    ledger.step(hs.PoissonSampled(hs.Gaussian(1.1), 0.01), 50)
    ledger.step(hs.Laplace(20.0))
    ledger.save(tmp_path / "ledger")
    file = str(tmp_path / "ledger")
    assert answer(capsys, "account", file, "--delta", "1e-6") == ledger.report(delta=1e-6).to_dict()
    other = answer(capsys, "account", file, "--epsilon", "1", "--adjacency", "add")
    assert other == hs.account(ledger.process, "add").report(epsilon=1.0).to_dict()
    assert "--delta, --epsilon" in mistake(capsys, "account", file)


def test_numbers_of_files_that_underflow_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Options were, and JSON counted as 0: "epsilon <= 0"."""
    file = tmp_path / "process.json"
    for text in (
        '[{"type": "PureDP", "epsilon": 1e-400}]',
        '{"type": "PoissonSampled", "mechanism": {"type": "Gaussian", "noise_multiplier": 1}, "sampling_probability": 1e-400}',
    ):
        file.write_text(text, encoding="utf-8")
        assert "1e-400" in mistake(capsys, "account", str(file), "--delta", "0")


def test_a_plan_says_what_it_promises(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan = hs.plan_training(lambda s: hs.dp_sgd(s, 6000, 64, epochs=1), 6000, epsilon=1.0, delta=1e-5)
    plan.save(tmp_path / "plan")
    file = str(tmp_path / "plan")
    assert main(["account", file]) == 0
    assert capsys.readouterr().out.strip() == plan.guarantee.statement
    assert answer(capsys, "account", file, "--delta", "1e-5")["epsilon"]["upper"] <= 1.0
    bins = hs.plan_training(
        hs.BallsInBins(8, 4),
        100,
        epsilon=4.0,
        delta=1e-2,
        strategy=2,
        calibration_seed=1,
        fallback="unamplified",
    )
    bins.save(tmp_path / "bins")
    assert main(["account", str(tmp_path / "bins")]) == 0
    assert capsys.readouterr().out.strip() == bins.guarantee.statement
    for option in (["--statement"], ["--report", str(tmp_path / "r.html")], ["--accuracy", "1e-4"]):
        assert option[0] in mistake(capsys, "account", str(tmp_path / "bins"), *option)
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize("scheme", [hs.CyclicPoisson(8, 4, 1.0), hs.matrix.FixedOrder(8, 4)], ids=repr)
@pytest.mark.parametrize("adjacency", ["add", "remove", "add_or_remove"])
def test_what_a_plan_refuses_it_is_not_accounted_for(
    scheme: hs.matrix.Scheme, adjacency: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A row less moves all that follow it into other groups: 399 clipping norms for an epsilon of 2."""
    file = str(tmp_path / "plan")
    plan = hs.plan_training(scheme, 400, noise_multiplier=4.0, delta=1e-5)
    plan.save(file)
    for more in ([], ["--delta", "1e-5"], ["--statement"], ["--certificate", str(tmp_path / "c.json")]):
        assert "groups are by places" in mistake(capsys, "account", file, "--adjacency", adjacency, *more)
    assert not (tmp_path / "c.json").exists()
    assert answer(capsys, "account", file, "--adjacency", "zero_out")["adjacency"] == "zero_out"


def test_groups_by_places_are_not_calibrated_for_data_sets_of_other_sizes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["bandmf", "--epsilon", "4", "--delta", "1e-3", "--steps", "8", "--bands", "2"]
    asked += ["--scheme", "cyclic-poisson", "--sampling-probability", "0.1"]
    assert "groups are by places" in mistake(capsys, *asked, "--adjacency", "add-or-remove")
    assert main([*asked, "--adjacency", "zero-out"]) == 0


def test_a_plan_is_reported_at_its_own_delta(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What asks for a report was ignored without --delta: nothing was written, and the exit code was 0."""
    plan = hs.plan_training(lambda s: hs.dp_sgd(s, 60, 20, epochs=1), 60, epsilon=1.0, delta=1e-3)
    file, page, proof = (str(tmp_path / name) for name in ("plan", "r.json", "c.json"))
    plan.save(file)
    report = hs.account(plan.released(), plan.adjacency).report(delta=plan.delta)
    assert main(["account", file, "--statement", "--report", page]) == 0
    assert capsys.readouterr().out.strip() == report.statement()
    assert json.loads(Path(page).read_text(encoding="utf-8")) == report.to_dict()
    other = answer(capsys, "account", file, "--adjacency", "add", "--accuracy", "1e-4")
    assert other == hs.account(plan.released(), "add", 1e-4).report(delta=plan.delta).to_dict()
    assert "adjacency = 'swap'" in mistake(capsys, "account", file, "--adjacency", "swap")
    pytest.importorskip("flint")
    assert main(["account", file, "--certificate", proof]) == 0
    assert main(["verify", proof]) == 0


def test_any_description_in_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = hs.PoissonSampled(hs.Gaussian(1.1), 0.01)
    described = step * 50 + hs.Laplace(20.0) * 3
    expected = hs.account(described).report(delta=1e-6).to_dict()
    text = json.dumps(hs.mechanisms.to_dict(described))
    (tmp_path / "a.json").write_text(text)
    assert answer(capsys, "account", str(tmp_path / "a.json"), "--delta", "1e-6") == expected
    listed = [{**hs.mechanisms.to_dict(one), "count": n} for one, n in ((step, 50), (hs.Laplace(20.0), 3))]
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(listed)))
    assert answer(capsys, "account", "-", "--delta", "1e-6") == expected


@pytest.mark.parametrize(
    "text",
    ["", "{", "7", "[7]", "{}", '{"type": "Nothing"}', '[{"type": "Laplace", "scale": -1}]', '{"header": 1'],
)
def test_files_that_hold_nothing_of_ours(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str
) -> None:
    (tmp_path / "a.json").write_text(text)
    mistake(capsys, "account", str(tmp_path / "a.json"), "--delta", "1e-6")


def test_what_is_wrong_with_a_list_is_named_as_it_is_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A count of 1.5 was said to be one of steps, and a misspelt count not to be allowed."""

    def refused(text: str) -> str:
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        return mistake(capsys, "account", "-", "--delta", "1e-6")

    gaussian = '"type": "Gaussian", "noise_multiplier": 2'
    assert "count = 1.5: must be an integer" in refused(f'[{{{gaussian}, "count": 1.5}}]')
    process = f'{{"type": "Process", "items": [{{"step": {{{gaussian}}}, "count": 1.5}}]}}'
    assert "count = 1.5: must be an integer" in refused(process)
    assert "the keys type, noise_multiplier, and no others but count" in refused(
        f'[{{{gaussian}, "cout": 3}}]'
    )
    inner = '[{"type": "PoissonSampled", "mechanism": {"type": "Gaussian"}, "sampling_probability": 0.1}]'
    assert "no others but count" not in refused(inner)


def test_files_of_another_kind(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    filt = hs.IndividualGDPFilter(num_examples=5, epsilon=1.0, delta=1e-5)
    filt.save(tmp_path / "filter")
    assert "neither a ledger nor a plan" in mistake(
        capsys, "account", str(tmp_path / "filter"), "--delta", "1e-6"
    )
    assert "nowhere" in mistake(capsys, "account", str(tmp_path / "nowhere"), "--delta", "1e-6")


@pytest.mark.parametrize("checkpoint", [None, "kept"])
def test_interrupted(
    checkpoint: str | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hockeystick.cli.bandmf.calibrate_bandmf", pressed)
    run = ["bandmf", "--steps", "8", "--sampling-probability", ".1", "--epsilon", "1", "--delta", "1e-3"]
    assert main(run + (["--checkpoint", checkpoint] if checkpoint else [])) == 130
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert (checkpoint or "--checkpoint DIRECTORY") in error


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_nobody_reads() -> None:
    """`hockeystick grid ... | head -1` ends without a word."""
    run = [sys.executable, "-m", "hockeystick", "grid", "--noise-multiplier", "1:2:40", "--steps", "1:40:40"]
    process = subprocess.Popen(
        [*run, "--delta", "1e-5"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline().startswith("noise_multiplier")
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(timeout=60) == 128 + signal.SIGPIPE


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples_that_are_understood(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    for example in import_module(f"hockeystick.cli.{name}").EXAMPLES:
        assert example in shown
        words = shlex.split(example.split(" > ")[0].split(" | ")[-1], comments=True)
        assert words[0] == "hockeystick"
        assert parser({name}).parse_args(words[1:]).command == name


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("shtab")
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in COMMANDS)
    assert "noise-multiplier" in script
    assert "powershell" in mistake(capsys, "completion", "powershell")


def test_completion_names_its_extra(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert "hockeystick[completion]" in mistake(capsys, "completion", "bash")


def test_doctor(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert hs.__version__ in out
    assert out.count("\nok: ") == 5
    monkeypatch.setattr(doctor, "account", lambda described: hs.account(described, "add"))
    assert main(["doctor"]) == 1
    assert "WRONG: 1000 steps of DP-SGD" in capsys.readouterr().out
