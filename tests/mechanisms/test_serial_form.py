"""What `from_dict` reads: in a fresh process all kinds, and no key that says nothing."""

from __future__ import annotations

import json
import subprocess
import sys

import hockeystick as hs
import pytest
from hockeystick.mechanisms import from_dict, to_dict

GAUSSIAN = {"type": "Gaussian", "noise_multiplier": 1.0}
ITEM = {"step": GAUSSIAN, "count": 5}


@pytest.mark.sweep
@pytest.mark.parametrize(
    "step",
    [
        hs.Gaussian(1.0),
        hs.mechanisms.Group(hs.Laplace(1.0), 2),
        hs.RandomAllocation(1.0, 10),
        hs.dp_sgd(1.0, 100, 10, epochs=1),
        hs.PrivateSelection(hs.mechanisms.Skellam(9.0), hs.Repetitions.fixed(2)),
    ],
)
def test_a_fresh_process_knows_all_kinds(step: hs.mechanisms.Composable) -> None:
    code = "import json, sys; from hockeystick.mechanisms import from_dict; print(from_dict(json.load(sys.stdin)))"
    found = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(to_dict(step)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout.strip() == str(step), found.stderr


@pytest.mark.parametrize(
    "plain",
    [
        {"type": "Process", "items": [{**ITEM, "steps": 9}]},
        {"type": "Process", "items": [ITEM], "count": 5},
        {"type": "Process", "items": [{"step": GAUSSIAN}]},
        {"type": "Process", "items": [ITEM, 3]},
        {"type": "Process", "items": {"step": GAUSSIAN, "count": 5}},
        {"type": "Process"},
        {"type": ["Gaussian"]},
        {**GAUSSIAN, "count": 5},
        {"type": "Group", "mechanism": {"type": "Process", "items": [{**ITEM, "steps": 9}]}, "size": 2},
    ],
)
def test_what_says_nothing_is_refused(plain: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        from_dict(plain)


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        ({"noise_multiplier": 2.0}, "description = {'noise_multiplier': 2.0}: has no type; must have one of .*, Gaussian, .*, Process, "),
        ({"type": "Gausian"}, "unknown description 'Gausian': its type must be one of .*, Gaussian, "),
        ({"type": "Gaussian", "sigma": 2.0}, "description = .*: lacks noise_multiplier, has 'sigma'; must have the keys type, noise_multiplier, and no others"),
        ({"type": "ZCDP"}, "description = .*: lacks rho; must have the keys type, rho, may have xi, and no others"),
        ([GAUSSIAN], "description = .*: must be a dictionary with a type, not list"),
        ({"type": "Process", "items": [ITEM, {"step": GAUSSIAN}]}, r"items\[1\] = .*: lacks count; must have the keys step, count, and no others"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named(plain: object, said: str) -> None:
    with pytest.raises((ValueError, TypeError), match="^" + said):
        from_dict(plain)


def test_the_command_line_and_saved_accountants_refuse_it_too(tmp_path, capsys) -> None:
    from hockeystick._base import storage
    from hockeystick.cli.commands import main

    path = tmp_path / "process.json"
    path.write_text(json.dumps({"type": "Process", "items": [{**ITEM, "steps": 9}]}), encoding="utf-8")
    assert main(["account", str(path), "--delta", "1e-5"]) == 2
    assert "steps" in capsys.readouterr().err
    accountant = hs.Accountant()
    accountant.step(hs.Gaussian(1.0), 5)
    accountant.save(tmp_path / "saved")
    header, arrays = storage.read(tmp_path / "saved", "accountant")
    header["process"]["items"][0]["steps"] = 9
    storage.write(tmp_path / "saved", "accountant", header, arrays)
    with pytest.raises(storage.StorageError, match="steps"):
        hs.Accountant.load(tmp_path / "saved")
