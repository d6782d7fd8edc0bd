"""Files and functions stay small: limits that only shrink.

`offenders.txt` lists what is over a limit today. Whatever is not in it must keep the limits, and whatever is in it must still
exceed them, so that the list can only get shorter.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lizard
import pytest

from tools.lines import files, lines

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("offenders.txt")

MAX_FILE = 600
MAX_FUNCTION = 80
MAX_PARAMETERS = 8
MAX_COMPLEXITY = 15
MAX_PRODUCT = 65_104
"""Lines of the whole; docs/architecture.md, "Size", says when it may rise."""


def sources() -> list[Path]:
    """The product, but for stubs and the header of the C interface."""
    return [ROOT / name for name in files() if name.endswith((".py", ".cpp", ".hpp"))]


def offenders() -> Iterator[str]:
    for path in sources():
        name = path.relative_to(ROOT).as_posix()
        if len(path.read_text(encoding="utf-8").splitlines()) > MAX_FILE:
            yield name
        for function in lizard.analyze_file(str(path)).function_list:
            given = [name for name in function.parameters if name != "self"]  # what a caller writes
            if (
                function.length > MAX_FUNCTION
                or len(given) > MAX_PARAMETERS
                or function.cyclomatic_complexity > MAX_COMPLEXITY
            ):
                yield f"{name}: {function.name}"


@pytest.fixture(scope="module")
def found() -> set[str]:
    return set(offenders())


@pytest.fixture(scope="module")
def listed() -> list[str]:
    return [
        line for line in LIST.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")
    ]


def test_nothing_else_is_over_a_limit(found: set[str], listed: list[str]) -> None:
    new = sorted(found - set(listed))
    assert not new, (
        f"over {MAX_FILE} lines a file, or {MAX_FUNCTION} lines, {MAX_PARAMETERS} parameters or complexity {MAX_COMPLEXITY} a function: {new}"
    )


def test_what_keeps_the_limits_leaves_the_list(found: set[str], listed: list[str]) -> None:
    gone = sorted(set(listed) - found)
    assert not gone, f"take these off {LIST.name}: {gone}"
    assert len(listed) == len(set(listed))


def test_the_product_does_not_grow() -> None:
    count = sum(lines().values())
    assert count <= MAX_PRODUCT, f"{count} lines of product; see docs/architecture.md, Size"
