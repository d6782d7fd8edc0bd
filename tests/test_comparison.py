"""docs/comparison.md, "What users of other libraries expect": no cell is empty, and every name of ours exists."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import hockeystick as hs
import pytest
from hockeystick.cli.commands import COMMANDS

PAGE = (Path(__file__).parents[1] / "docs" / "comparison.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### (.+)\n\n((?:\|.*\n)+)", PAGE, flags=re.MULTILINE))


def resolve(name: str) -> Any:
    """What a dotted name stands for; modules of interop are imported on request."""
    found: Any = hs
    path = name.split(".")[1:]
    if path[0] == "interop":
        found, path = import_module(f"hockeystick.interop.{path[1]}"), path[2:]
    for part in path:
        found = getattr(found, part)
    return found


def test_the_tables_are_there() -> None:
    assert [*SECTIONS] == ["dp_accounting", "Opacus", "TensorFlow Privacy", "JAX Privacy", "Others"]


@pytest.mark.parametrize("section", SECTIONS)
def test_every_cell_is_filled_and_every_name_exists(section: str) -> None:
    for row in SECTIONS[section].splitlines()[2:]:
        expected, here = (cell.strip() for cell in row.strip("|").split("|"))
        assert expected
        ours, owner = 0, ""
        for name in re.findall("`([^`]+)`", here):
            if name.startswith("hockeystick "):
                assert name.split()[1] in COMMANDS
            elif name.startswith("hs."):
                resolve(name)
                owner = name if name.split(".")[-1][0].isupper() else name.rpartition(".")[0]
            elif name.startswith("."):
                resolve(owner + name)
            else:
                continue
            ours += 1
        assert ours or (here.startswith("– ") and len(here) > 40), row


def test_a_name_that_is_gone_is_seen() -> None:
    with pytest.raises(AttributeError):
        resolve("hs.interop.opacus.PrivacyEngine.gone")
