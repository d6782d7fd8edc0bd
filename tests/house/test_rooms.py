"""The rule of docs/architecture.md: rooms import rooms to their left, without circles, and no private names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tools import house

ROOT = Path(__file__).resolve().parents[2]

LANGUAGES = {
    "python": (list(house.python_imports()), house.PYTHON_ROOMS),
    "cpp": (list(house.cpp_imports()), house.CPP_ROOMS),
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_import_leads_to_the_left(language: str) -> None:
    imports, rooms = LANGUAGES[language]
    assert len(imports) > 100
    assert {found.room for found in imports} - {""} <= set(rooms)
    assert house.running_back(imports, rooms) == []
    assert house.circles(imports) == []
    assert house.foreign_privates(imports) == []


def test_the_rule_is_seen_to_be_broken() -> None:
    rooms: Mapping[str, frozenset[str]] = {"left": frozenset(), "right": frozenset({"left"})}
    back = house.Import("left/a.py", 1, "right/b.py", ("_private",))
    forth = house.Import("right/b.py", 1, "left/a.py", ("public",))
    assert house.running_back([back, forth], rooms) == [back]
    assert house.foreign_privates([back, forth]) == [back]
    assert house.circles([back, forth]) == [["left/a.py", "right/b.py"]]


def test_every_file_is_in_a_room() -> None:
    loose = {path.name for path in house.PACKAGE.glob("*.py")}
    assert loose == {"__init__.py", "__main__.py"}
    assert not [path for path in house.CORE.iterdir() if path.is_file()]
    assert {path.parent.name for path in house.CORE.rglob("*.cpp")} == set(house.CPP_ROOMS)


def test_the_drawing_is_of_these_imports() -> None:
    drawn, kept = house.draw(), house.DRAWING.read_text(encoding="utf-8")
    without_lines = re.compile(r"[\d,]+ lines")
    boxes = [re.findall(r'font-weight="bold">(\w+)<', picture) for picture in (drawn, kept)]
    assert boxes[0] == boxes[1]
    assert without_lines.search(kept)
    # An import more or less changes a line's width, not the drawing; a new pair of rooms does.
    assert len(re.findall("<path", drawn)) == len(re.findall("<path", kept)), (
        "run python -m tools.house --draw"
    )


def test_sections_that_the_code_names_exist() -> None:
    """Every page of docs/ that code names exists, and so does every section named behind it."""
    named = 0
    pattern = re.compile(r'(docs/[\w/]+\.md)(?:,\s+(?:section\s+)?"([^"]+)")?')
    for folder in ("python", "cpp", "bench", "tests"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix not in {".py", ".cpp", ".hpp", ".pyi"}:
                continue
            text = re.sub(r"\n\s*(?://|#)?\s*", " ", path.read_text(encoding="utf-8"))
            for page, section in pattern.findall(text):
                target = ROOT / page
                assert target.is_file(), f"{path.relative_to(ROOT)} names {page}"
                if section:
                    headings = re.findall(
                        r"^#+ (?:[\d.]+ )?(.+)$", target.read_text(encoding="utf-8"), flags=re.MULTILINE
                    )
                    assert any(section.strip(".") in heading for heading in headings), (
                        f"{path.relative_to(ROOT)}: {page}, {section}"
                    )
                named += 1
    assert named > 20


def test_pages_link_to_what_exists() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        links = [
            page.parent / link
            for link in re.findall(r"\]\(([\w./-]+\.(?:md|png|svg|py))(?:#[\w-]*)?\)", text)
        ]
        named = [
            ROOT / name
            for name in re.findall(r"\b(?:docs|cpp|python|tests|bench|tools|examples)/[\w./-]+\.\w+\b", text)
        ]
        for target in links + named:
            assert target.exists(), f"{page.relative_to(ROOT)} leads to {target}"
