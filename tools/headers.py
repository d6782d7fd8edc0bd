"""The reference of the C and C++ interface, read from the public headers: their comments as text, their declarations as code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

HEADERS = Path(__file__).resolve().parent.parent / "cpp" / "include" / "hockeystick"
_EXPORT = "HOCKEYSTICK_API "
_LEFT_OUT = re.compile(
    r"#(?!define HOCKEYSTICK_ABI)|namespace \w+ \{|\}  // namespace|extern \"C\" \{|\}$|\s*$|class \w+;|template class"
)
_HIDDEN = re.compile(r"\n+private:\n.*?(?=\n\};|\npublic:)", re.DOTALL)


def reference() -> str:
    """One page: a section for each header, C first."""
    first = ["hockeystick.h", "profile.hpp", "answer.hpp", "pairs.hpp", "grid.hpp"]
    others = sorted(
        path.name for path in HEADERS.glob("*.hpp") if path.name not in {*first, "hockeystick.hpp"}
    )
    return "\n\n".join(
        ["# C and C++", "Read from the headers; how to link with them: [use from C++ and C](../cpp.md)."]
        + [part for name in [*first, *others] for part in _section(HEADERS / name)]
    )


def _section(path: Path) -> Iterator[str]:
    """The header's own comment, then each declaration under what is said of it."""
    yield f"## {path.name}"
    blocks = list(_blocks(path.read_text(encoding="utf-8")))
    yield _prose(blocks[0][0])
    for comment, code in blocks[1:] if not blocks[0][1] else blocks:
        if code:
            if code.startswith(_EXPORT):
                code = code.replace(_EXPORT, "").replace("\n" + len(_EXPORT) * " ", "\n")
            shown = _HIDDEN.sub("", code)
            yield f"{_prose(comment)}\n\n```cpp\n{shown}\n```" if comment else f"```cpp\n{shown}\n```"


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Comments at the margin, each with the declaration behind it, up to the next comment or empty line outside braces."""
    comment: list[str] = []
    code: list[str] = []
    depth = 0
    for line in [*text.replace("namespace hockeystick {", "").splitlines(), ""]:
        outside = depth == 0
        if outside and code and (not line.strip() or line.startswith("//")):
            yield "\n".join(comment), "\n".join(code)
            comment, code = [], []
        if outside and line.startswith("//"):
            comment.append(line[2:].removeprefix(" "))
        elif outside and not code and _LEFT_OUT.match(line):
            if comment:
                yield "\n".join(comment), ""
            comment = []
        else:
            code.append(line)
            depth += line.count("{") - line.count("}")


def _prose(comment: str) -> str:
    """A comment as Markdown: what is set in by four blanks is code, as there; signs are not marks."""
    return "\n".join(
        line if line.startswith("    ") else re.sub(r"([*_<\[|])", r"\\\1", line)
        for line in re.sub(r"([^\n])\n {4}", r"\1\n\n    ", comment).splitlines()
    )
