"""The pages of docs/ and the README do what they show: their Python runs, block after block, and prints the text beneath."""

import contextlib
import doctest
import importlib
import io
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from hockeystick.cli.commands import main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "docs" / "start.md", ROOT / "docs" / "sharp-edges.md"] + [
    page for folder in ("how-to", "tutorials") for page in sorted((ROOT / "docs" / folder).glob("*.md"))
]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_does_what_it_shows(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text, names, printed = page.read_text(encoding="utf-8"), dict[str, Any](__name__="__page__"), ""
    if needed := re.search(r"<!-- needs: (\w+) -->", text):
        module = pytest.importorskip(needed[1])
        if "stand_ins" in str(module.__file__):
            pytest.skip(f"needs the real {needed[1]}")
    for language, block in BLOCK.findall(text):
        if language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(block, str(page), "exec"), names)  # noqa: S102
            printed = out.getvalue()
        elif language == "text":
            assert doctest.OutputChecker().check_output(block, printed, LOOSELY), f"{block}\n!=\n{printed}"
            printed = ""


def test_the_tutorial_of_opacus_is_its_example() -> None:
    """CI has no Opacus; tests/interop_heavy runs the example."""
    page = (ROOT / "docs" / "tutorials" / "opacus.md").read_text(encoding="utf-8")
    script = (ROOT / "examples" / "interop" / "opacus_digits.py").read_text(encoding="utf-8")
    assert f"```python\n{script}```" in page


def test_formulas() -> None:
    result = doctest.testmod(importlib.import_module("tools.formulas"))
    assert result.failed == 0 < result.attempted


def test_who_cites_names_this_version() -> None:
    project = re.search(
        r"project\(hockeystick VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    )
    assert project is not None
    assert f"\nversion: {project[1]}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## {project[1]}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def commands() -> list[str]:
    """Every command line of the pages, once."""
    found = [match for page in PAGES for match in BLOCK.findall(page.read_text(encoding="utf-8"))]
    lines = [line for language, block in found if language == "sh" for line in block.splitlines()]
    return sorted({line for line in lines if line.startswith("hockeystick ")})


@pytest.mark.parametrize("line", commands())
def test_commands_run(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(shlex.split(line, comments=True)[1:]) == 0
    assert out.getvalue()
