"""The command line says the same as the library, echoes what it derived, and refuses in one line."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import hockeystick as hs
import pytest
from hockeystick.accounting.report import round_up
from hockeystick.cli.commands import main
from hockeystick.cli.dpsgd import SAMPLERS

RUN = ["--noise-multiplier", "1.1", "--dataset-size", "6000", "--batch-size", "64"]
FIND = [
    "--noise-multiplier",
    "3",
    "--dataset-size",
    "1000",
    "--epochs",
    "2",
    "--epsilon",
    "2",
    "--delta",
    "1e-5",
    "--find",
]
UNKNOWN = ["--noise-multiplier", "3", "--epsilon", "2", "--delta", "1e-5"]
SAMPLED = ["--noise-multiplier", "1.1", "--sampling-probability", "0.01", "--steps", "50"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    captured = capsys.readouterr()
    return captured.out


def test_epsilon_is_the_library_s(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "epsilon", *RUN, "--epochs", "2", "--delta", "1e-5", "--json")
    printed = json.loads(out)
    profile = hs.account(hs.dp_sgd(1.1, 6000, 64, epochs=2))
    assert printed["epsilon"]["upper"] == profile.epsilon(1e-5)
    assert printed == profile.report(delta=1e-5).to_dict()


def test_delta_is_the_library_s(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "delta", *SAMPLED, "--epsilon", "0.5", "--adjacency", "remove", "--json")
    step = hs.PoissonSampled(hs.Gaussian(1.1), 0.01)
    assert json.loads(out)["delta"]["upper"] == hs.account(step * 50, "remove").delta(0.5)


def test_it_echoes_what_it_derived(capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--gradient-accumulation", "2", "--world-size", "4", "--drop-last", "--epochs", "3"]
    out = run(capsys, "epsilon", *RUN, *more, "--delta", "1e-5")
    description = hs.dp_sgd(1.1, 6000, 64, epochs=3, gradient_accumulation=2, world_size=4, drop_last=True)
    for echoed in ("512", f"{description.sampling_probability:.9g}", f"{description.steps} noisy updates"):
        assert echoed in out
    assert f"epsilon <= {round_up(hs.account(description).epsilon(1e-5), 8)}" in out
    assert "add_or_remove" in out


def test_unsampled(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "delta", "--noise-multiplier", "2", "--steps", "4", "--epsilon", "1", "--json")
    assert json.loads(out)["delta"]["upper"] == hs.account(hs.Gaussian(2.0) * 4).delta(1.0)


def test_profile_table_and_json_agree(capsys: pytest.CaptureFixture[str]) -> None:
    table = run(capsys, "profile", *SAMPLED)
    rows = json.loads(run(capsys, "profile", *SAMPLED, "--json"))["profile"]
    assert len(rows) >= 10
    for row in rows:
        assert round_up(row["epsilon_upper"], 8) in table
        assert row["epsilon_lower"] <= row["epsilon_upper"]
    uppers = [row["epsilon_upper"] for row in rows]
    assert uppers == sorted(uppers)


def test_no_noise_prints_infinity(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--noise-multiplier", "0", "--steps", "1"]
    assert "inf" in run(capsys, "epsilon", *arguments, "--delta", "1e-5")
    rows = json.loads(run(capsys, "profile", *arguments, "--json"))["profile"]
    assert {row["epsilon_upper"] for row in rows} == {"inf"}


def test_plot(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "out.png"
    run(capsys, "profile", *SAMPLED, "--plot", str(path))
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "command"),
        (["gamma"], "gamma"),
        (["epsilon", *SAMPLED], "--delta"),
        (["epsilon", *SAMPLED, "--delta", "2"], "delta = 2.0"),
        (["epsilon", *SAMPLED, "--delta", "nan"], "delta = nan"),
        (["epsilon", *SAMPLED, "--delta", "small"], "small"),
        (["epsilon", *SAMPLED, "--delta", "1e-5", "--frobnicate"], "--frobnicate"),
        (["epsilon", *SAMPLED, "--delta", "1e-5", "--adjacency", "swap"], "adjacency = 'swap'"),
        (["epsilon", *SAMPLED, "--delta", "1e-5", "--adjacency", ""], "adjacency = ''"),
        (["epsilon", *SAMPLED, "--delta", "1e-5", "--batch-size", "3"], "--sampling-probability"),
        (["epsilon", *RUN[:4], "--steps", "1", "--delta", "1e-5"], "--batch-size"),
        (["epsilon", *RUN, "--delta", "1e-5"], "epochs, steps"),
        (["epsilon", *RUN, "--epochs", "1", "--steps", "1", "--delta", "1e-5"], "epochs, steps"),
        (["epsilon", *RUN, "--steps", "1.5", "--delta", "1e-5"], "1.5"),
        (["epsilon", *RUN, "--steps", "-1", "--delta", "1e-5"], "steps = -1"),
        (["epsilon", *RUN, "--epochs", "1", "--sampler", "shuffle", "--delta", "1e-5"], "shuffle"),
        (["epsilon", "--noise-multiplier", "1", "--delta", "1e-5"], "--steps"),
        (["epsilon", "--noise-multiplier", "1", "--epochs", "3", "--delta", "1e-5"], "--dataset-size"),
        (
            ["epsilon", "--noise-multiplier", "-1", "--steps", "3", "--delta", "1e-5"],
            "noise_multiplier = -1.0",
        ),
        (["epsilon", *SAMPLED, "--delta", "1e-5/-1"], "1e-5/-1"),
        (["profile", *SAMPLED, "--plot", "/nowhere/at/all.png"], "/nowhere/at/all.png"),
        (["calibrate", *FIND, "batch-size", "--sampler", "balls-in-bins"], "--sampler balls-in-bins"),
        (["calibrate", *FIND, "max-batch-size", "--sampler", "without-replacement"], "--find max-batch-size"),
        # What would have no effect is refused: it was accepted.
        (["epsilon", *RUN, "--steps", "9", "--drop-last", "--delta", "1e-5"], "--drop-last"),
        (["epsilon", *SAMPLED, "--drop-last", "--delta", "1e-5"], "not with --drop-last"),
        (["epsilon", *SAMPLED, "--world-size", "4", "--delta", "1e-5"], "not with --world-size"),
        *[
            (["calibrate", "--find", find, "--tolerance", "1e-3", *UNKNOWN], "--tolerance")
            for find in ("steps", "epochs", "batch-size", "max-batch-size")
        ],
        (["profile", *SAMPLED, "--delta", "1e-5"], "--delta"),
        *[
            (
                ["epsilon", *RUN, "--epochs", "1", "--delta", "1e-5", "--examples-per-user", "2", *more],
                "--examples-per-user",
            )
            for more in (["--max-batch-size", "900"], *[["--sampler", name] for name in list(SAMPLERS)[1:]])
        ],
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], named: str
) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("hockeystick: error: ")
    assert error.count("\n") == 1
    assert named in error


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "epsilon" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert hs.__version__ in capsys.readouterr().out


def test_the_version_costs_nothing() -> None:
    """The command itself imports neither NumPy nor any other room for it (a bare package stands in for the library's own)."""
    script = """
import sys, types
package = sys.modules["hockeystick"] = types.ModuleType("hockeystick")
package.__path__ = [sys.argv[1]]
from hockeystick.cli.commands import main
assert main(["--version"]) == main(["--help"]) == 0
print(sorted({name for name in sys.modules if name.startswith(("hockeystick.", "numpy", "scipy"))}))
"""
    found = subprocess.run(
        [sys.executable, "-c", script, str(Path(hs.__file__).parent)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (
        found.stdout.splitlines()[-1]
        == "['hockeystick._core', 'hockeystick.cli', 'hockeystick.cli.commands', 'hockeystick.cli.numbers']"
    )


def test_missing_matplotlib_names_the_extra(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    assert main(["profile", *SAMPLED, "--plot", "x.png"]) == 2
    assert "hockeystick[plot]" in capsys.readouterr().err


def test_guarantees_are_rounded_up(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "epsilon", *SAMPLED, "--delta", "1e-5")
    printed = float(out.split("epsilon <= ")[1].split()[0])
    exact = hs.account(hs.PoissonSampled(hs.Gaussian(1.1), 0.01) * 50).epsilon(1e-5)
    assert exact <= printed <= math.nextafter(exact * (1 + 1e-7), math.inf)


def test_statements_reports_and_notes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    asked = ["epsilon", *RUN, "--epochs", "2", "--delta", "1e-3"]
    report = hs.account(hs.dp_sgd(1.1, 6000, 64, epochs=2)).report(delta=1e-3)
    assert main([*asked, "--statement", "--report", str(tmp_path / "r.tex")]) == 0
    printed = capsys.readouterr()
    assert printed.out == report.statement() + "\n"
    assert "Gaussian differentially private" in printed.out
    assert "note: delta = 0.001 is not below 1/6000" in printed.err
    assert (tmp_path / "r.tex").read_text(encoding="utf-8") == report.to_latex()
    run(capsys, "delta", *SAMPLED, "--epsilon", "0.5", "--report", str(tmp_path / "r.json"))
    assert json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["risks"]
    assert main([*asked, "--report", "r.doc"]) == 2
    assert "must end in" in capsys.readouterr().err


POISSON = ["--scheme", "poisson", "--steps", "10", "--sampling-probability", "0.1"]


@pytest.mark.sweep
@pytest.mark.parametrize(
    "command",
    [
        ["epsilon", *SAMPLED],
        ["calibrate", *SAMPLED[2:], "--epsilon", "1e-5"],
        ["grid", *SAMPLED],
        ["bandmf", *POISSON, "--epsilon", "1e-5"],
        ["plan", *POISSON, "--dataset-size", "100", "--epsilon", "1e-5", "--out", "plan"],
    ],
    ids=lambda command: command[0],
)
def test_every_command_remarks_on_a_large_delta(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*command, "--delta", "0.5"]) == 0
    printed = capsys.readouterr().err
    assert "note: delta = 0.5 is " in printed
    assert ("note: epsilon = 1e-05 is small: are epsilon and delta swapped?" in printed) == (
        "--epsilon" in command
    )


@pytest.mark.parametrize("command", ["delta", "grid"])
def test_every_command_remarks_on_a_small_epsilon(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert main([command, *SAMPLED, "--epsilon", "1e-5"]) == 0
    assert "note: epsilon = 1e-05 is small: are epsilon and delta swapped?" in capsys.readouterr().err


def test_a_profile_has_a_statement_a_report_and_notes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "r.html"
    assert (
        main(["profile", *RUN, "--epochs", "2", "--statement", "--delta", "1e-3", "--report", str(page)]) == 0
    )
    printed = capsys.readouterr()
    profile = hs.account(hs.dp_sgd(1.1, 6000, 64, epochs=2))
    assert f"{round_up(profile.epsilon(1e-9))} at 1e-09" in printed.out
    assert "not below 1/6000" in printed.err
    assert "epsilon at delta = 1e-09" in page.read_text(encoding="utf-8")
    plain = json.loads(run(capsys, "profile", *SAMPLED, "--json"))
    assert plain["report"]["risks"]
    assert len(plain["report"]["profile"]) == len(plain["profile"]) == 12


@pytest.mark.parametrize("levels", [900, 100_000])
def test_what_is_nested_too_deeply_is_refused_in_one_line(
    levels: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step = '{"type": "Gaussian", "noise_multiplier": 1}'
    start = '{"type": "PoissonSampled", "sampling_probability": 0.5, "mechanism": '
    (tmp_path / "deep.json").write_text(start * levels + step + "}" * levels)
    assert main(["account", str(tmp_path / "deep.json"), "--delta", "1e-5"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_name_that_occurs_twice_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Readers of JSON disagree on which of them counts: the larger noise is not to be had by accident."""
    (tmp_path / "twice.json").write_text(
        '[{"type": "Gaussian", "noise_multiplier": 1, "noise_multiplier": 10}]'
    )
    assert main(["account", str(tmp_path / "twice.json"), "--delta", "1e-5"]) == 2
    assert "a name occurs twice" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not JSON: "),
        ("[3]", "description = 3: must be a dictionary with a type"),
        (f'{{"type": "Laplace", "scale": 2, "count": {"1" * 5000}}}', "count = <an integer of about 5000 digits>: must be an integer in "),
        (f'{{"type": "Laplace", "scale": -{"1" * 5000}}}', "scale = <an integer of about 5000 digits>: must be a number in "),
    ],
    ids=["empty", "a number", "a long count", "a long scale"],
)  # fmt: skip
def test_what_a_file_lacks_is_said_in_our_words(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path := tmp_path / "described.json").write_text(text)
    assert main(["account", str(path), "--delta", "1e-5"]) == 2
    assert f"error: {path}: {said}" in capsys.readouterr().err


def test_one_description_may_have_a_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a list it could."""
    (path := tmp_path / "described.json").write_text('{"type": "Laplace", "scale": 20, "count": 500}')
    assert main(["account", str(path), "--delta", "1e-6", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["epsilon"]["upper"] == hs.account(
        hs.Laplace(20) * 500
    ).epsilon(1e-6)


def test_long_numbers_of_options_are_shown_in_short(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--noise-multiplier", "1", "--sampling-probability", ".1", "--delta", "1e-5"]
    assert main(["epsilon", *options, "--steps", "1" * 5000]) == 2
    printed = capsys.readouterr().err
    assert "argument --steps: must be a whole number below 1e308" in printed
    assert len(printed) < 200


@pytest.mark.parametrize(
    ("options", "described"),
    [
        (
            ["--sampling-probability", "0.01", "--steps", "10"],
            hs.UserLevel(hs.PoissonSampled(hs.Gaussian(1.0), 0.01), 3) * 10,
        ),
        (["--steps", "10"], hs.UserLevel(hs.Gaussian(1.0), 3) * 10),
        (
            ["--dataset-size", "1000", "--batch-size", "10", "--epochs", "1"],
            hs.dp_sgd(1.0, 1000, 10, epochs=1, examples_per_user=3),
        ),
    ],
)
def test_users_are_protected(options: list[str], described: Any, capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        "epsilon",
        "--noise-multiplier",
        "1",
        "--delta",
        "1e-5",
        "--examples-per-user",
        "3",
        "--json",
        *options,
    ]
    assert main(command) == 0
    upper = json.loads(capsys.readouterr().out)["epsilon"]["upper"]
    assert upper == hs.account(described).epsilon(1e-5)
    assert upper > 2.0 * hs.account(hs.PoissonSampled(hs.Gaussian(1.0), 0.01) * 10).epsilon(1e-5)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["--sampler", "random-allocation"], ["--sampler", "random_allocation"]),
        (["--adjacency", "add_or_remove"], ["--adjacency", "add-or-remove"]),
    ],
)
def test_hyphens_are_underscores(
    one: list[str], other: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    for more in (one, other):
        assert main(["epsilon", *RUN, "--epochs", "2", "--delta", "1e-5", *more]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]


def test_an_allocation_says_what_it_draws(capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        "epsilon",
        "--noise-multiplier",
        "1",
        "--dataset-size",
        "1000",
        "--batch-size",
        "300",
        "--epochs",
        "2",
    ]
    assert main([*command, "--sampler", "random-allocation", "--delta", "1e-5"]) == 0
    said = capsys.readouterr().out
    assert (
        "each record in one of the 4 updates of every epoch, expected batch size 250 (asked for 300" in said
    )
    run = hs.dp_sgd(1.0, 1000, 300, epochs=2, sampler="random_allocation")
    assert (run.expected_batch_size, run.sampling_probability) == (250.0, 0.25)
    drawn = [len(batch) for batch in run.batches(1000)]
    assert sum(drawn) == 2000
    assert len(drawn) == run.steps
