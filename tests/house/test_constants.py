"""Every numeric constant says what rests on it.

*Proof*: an inequality. *Speed*: nothing but time and tightness. In Python also *format* (what files and other programs agree on) and *limit*
(what is accepted or shown). A word in the comment at a constant, above its block or in its docstring says so; in C++ "All of these are for
speed" holds for the rest of a file.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.lines import files

ROOT = Path(__file__).resolve().parents[2]
CORE = re.compile(
    r"\s*(?:static )?constexpr (?:double|int|float|std::size_t|std::uint64_t)\s+(\w+)(?:\[\])? = [-{]?[\d.]"
)
WORDS = re.compile(r"\b(proof|speed|format|limit)\b", re.IGNORECASE)


def unsaid_in_core(text: str) -> Iterator[str]:
    comment, in_comment = "", False
    for line in text.splitlines():
        is_comment = line.lstrip().startswith("//")
        if is_comment:
            comment = f"{comment if in_comment else ''} {line}"
        in_comment = is_comment
        if "all of these are for speed" in re.sub(r"\W+", " ", comment).lower():
            return
        if not line.strip():
            comment = ""
        found = CORE.match(line)
        if found and found[1] != "pi" and not re.search("proof|speed", comment + line, re.IGNORECASE):
            yield found[1]


def is_number(value: ast.expr) -> bool:
    inside = list(ast.walk(value))
    if any(isinstance(each, (ast.Call, ast.Lambda, ast.Dict)) for each in inside):
        return False
    numbers = [
        each.value for each in inside if isinstance(each, ast.Constant) and not isinstance(each.value, bool)
    ]
    return any(isinstance(number, (int, float)) for number in numbers)


def unsaid_in_python(text: str) -> Iterator[str]:
    lines, body = text.splitlines(), ast.parse(text).body
    for statement, following in zip(body, [*body[1:], None], strict=True):
        if (
            not isinstance(statement, (ast.Assign, ast.AnnAssign))
            or not statement.value
            or not is_number(statement.value)
        ):
            continue
        name = ast.unparse(statement).split(" ")[0]
        if name.islower():  # a variable
            continue
        block = statement.lineno - 1
        while block > 0 and lines[block - 1].strip() and not lines[block - 1].startswith('"""'):
            block -= 1
        said = "\n".join(lines[block : statement.end_lineno])
        if isinstance(following, ast.Expr):
            said += ast.unparse(following)
        if not WORDS.search(said):
            yield name


UNSAID = {".py": unsaid_in_python, ".cpp": unsaid_in_core, ".hpp": unsaid_in_core}


@pytest.mark.sweep
@pytest.mark.parametrize("name", [name for name in files() if Path(name).suffix in UNSAID])
def test_constants_say_what_rests_on_them(name: str) -> None:
    assert list(UNSAID[Path(name).suffix]((ROOT / name).read_text(encoding="utf-8"))) == []


def test_what_is_not_said_is_found() -> None:
    assert list(
        unsaid_in_core(
            "constexpr double a = 1;\n// Speed: this.\nconstexpr int b = 2;\n\nconstexpr int c = 3;"
        )
    ) == ["a", "c"]
    assert (
        list(
            unsaid_in_core(
                "// All of these are for\n// speed.\nconstexpr double a = 1;\n\nconstexpr int b = 2;"
            )
        )
        == []
    )
    assert list(unsaid_in_python('A = 1\n\nB = 2  # *speed*\n\nC = 3\n"""*Proof*."""\nD = "4"\nE = 5\n')) == [
        "A",
        "E",
    ]
