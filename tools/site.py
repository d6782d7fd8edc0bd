"""What mkdocs asks for besides docs/: the order of pages, those made of files beside it, the API reference, links.

    .venv/bin/pip install 'hockeystick[docs]' && .venv/bin/mkdocs serve

A page that is added to a folder of docs/ appears by itself. Nothing of the package is imported: the reference is read from its stubs.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # mkdocs runs this file by its path
from tools import formulas, headers

PACKAGE = ROOT / "python" / "hockeystick"
THEORY = ("accounting", "mechanisms", "sampling", "matrix", "montecarlo", "individual", "training")
BESIDE = {
    "README.md": "index.md",
    "bench/README.md": "benchmarks.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "THIRD_PARTY.md": "THIRD_PARTY.md",
}
"""Pages outside docs/, with their names on the site."""
_CODE = re.compile(
    r"(^```.*?^```$|^<div class=.formula.>[^\n]*$|`[^`]+`|<!--.*?-->|\]\([^)\s]*\))", re.MULTILINE | re.DOTALL
)
_PATH = re.compile(r"(?<![\w/\[])`?docs/([\w/-]+\.md)`?(?![\w\]])")
FIRST = ("tutorials/digits.md", "tutorials/opacus.md", "tutorials/budget.md")
ADAPTERS = ("dp_accounting", "flower", "jax_privacy", "opacus", "tensorflow_privacy", "torch")
TITLES = {"montecarlo": "Monte Carlo"}


def on_config(config: Any) -> Any:
    """The navigation: every page has its place."""
    placed = {
        "start.md",
        "sharp-edges.md",
        "notation.md",
        "comparison.md",
        "architecture.md",
        "cpp.md",
        "versions.md",
    }
    rest = [page for page in _pages("", "*.md") if page not in placed]
    config["nav"] = [
        {"Start here": ["index.md", "start.md", "sharp-edges.md", "notation.md"]},
        {"Tutorials": [*FIRST, *(page for page in _pages("tutorials") if page not in FIRST)]},
        {"How to": ["how-to/index.md", *(page for page in _pages("how-to") if page != "how-to/index.md")]},
        {"Other libraries": _pages("interop")},
        {"Theory": [{TITLES.get(room, room.capitalize()): _pages(room)} for room in THEORY]},
        {"Papers": _pages("papers")},
        {"API": [f"reference/{name}.md" for name in ("hockeystick", *_rooms(), "interop", "cpp")]},
        {
            "Project": [
                "comparison.md",
                *rest,
                "architecture.md",
                "cpp.md",
                "versions.md",
                *list(BESIDE.values())[1:],
            ]
        },
    ]
    config["nav"] = [section for section in config["nav"] if all(section.values())]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Pages that are made: of files beside docs/, of faces, and of the headers of C and C++."""
    for name, page in BESIDE.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    for name in ("hockeystick", *_rooms(), "interop"):
        files.append(File.generated(config, f"reference/{name}.md", content=_reference(name)))
    files.append(File.generated(config, "reference/cpp.md", content=headers.reference()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links between docs/ and what is beside it, and from every path of a page to the page; formulas with raised letters."""
    here = os.path.dirname(page.file.src_uri)
    if page.file.src_uri == "index.md":
        markdown = re.sub(r"\]\((?:docs/)?", "](", markdown).replace("](bench/README.md)", "](benchmarks.md)")
    if here in (*THEORY, "papers"):
        markdown = formulas.displayed(markdown)
    inside = _CODE.split(markdown)
    for place, text in enumerate(inside):
        if place % 2 == 0 or _PATH.fullmatch(text):
            linked = _PATH.sub(lambda found: _link(found[0], found[1], here), text)
            inside[place] = linked if place % 2 else formulas.inline(linked)
    return "".join(inside)


def _link(text: str, target: str, here: str) -> str:
    """The path of a page as a link; one that is no longer there (in the changelog) as it is."""
    if not (ROOT / "docs" / target).is_file():
        return text
    return f"[{target}]({os.path.relpath(target, here or '.')})"


def _pages(folder: str, pattern: str = "*.md") -> list[str]:
    """The pages of a folder of docs/, in the order of their names."""
    docs = ROOT / "docs"
    return [page.relative_to(docs).as_posix() for page in sorted((docs / folder).glob(pattern))]


def _rooms() -> list[str]:
    """The rooms with a face."""
    return sorted(stub.parent.name for stub in PACKAGE.glob("[a-z]*/__init__.pyi"))


def _reference(name: str) -> str:
    """The page of a face: what its stub hands on, file by file; of `interop`, which has none, its modules."""
    if name == "interop":
        return "\n\n".join(["# hockeystick.interop", *(f"::: hockeystick.interop.{one}" for one in ADAPTERS)])
    folder = PACKAGE if name == "hockeystick" else PACKAGE / name
    module = "hockeystick" if name == "hockeystick" else f"hockeystick.{name}"
    stub = (folder / "__init__.pyi").read_text(encoding="utf-8")
    lines = [f"# {module}", ""]
    if name == "hockeystick":
        lines += ["What most programs need. Each name is described on the page of its room.", ""]
    source, rest = "", ["", "## Errors, bounds, threads"]
    for found, public in re.findall(r"^from \.([\w.]+) import (\w+) as \w+$", stub, flags=re.MULTILINE):
        if name == "hockeystick":
            room = found.split(".")[0]
            if room in _rooms():
                lines.append(f"- [`{public}`]({room}.md#hockeystick.{found}.{public})")
            else:
                rest += ["", f"::: hockeystick.{found}.{public}"]
            continue
        if found != source:
            source = found
            lines += [f"## {found}.py", ""]
        lines += [f"::: {module}.{found}.{public}", ""]
    return "\n".join([*lines, *(rest if name == "hockeystick" else ())])
