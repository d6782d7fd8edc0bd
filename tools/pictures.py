"""Draws the pictures of the tutorials anew, by running their code: python -m tools.pictures. Needs the extra "examples"."""

from __future__ import annotations

import os
from pathlib import Path

from tools.stranger import code

DOCS = Path(__file__).resolve().parent.parent / "docs"

if __name__ == "__main__":
    os.chdir(DOCS / "images")
    for page in sorted((DOCS / "tutorials").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        if "../images/" in text:
            exec(compile(code(text), str(page), "exec"), {"__name__": "__page__"})  # noqa: S102
