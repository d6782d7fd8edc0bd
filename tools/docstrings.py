"""Docstrings as the site's Markdown: examples become blocks of code, and formulas are set as on other pages."""

from __future__ import annotations

import re
from typing import Any

import griffe

from tools import formulas

# A line that begins with >>>, and everything up to the next empty line.
_EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(```.*?```|`[^`\n]+`|^ {4}[^\n]*$)", re.MULTILINE | re.DOTALL)


class Examples(griffe.Extension):
    """Puts fences around doctests, which Markdown would take for quotations."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Of every module, class and function."""
        if obj.docstring:
            fenced = _EXAMPLE.sub(lambda found: f"\n```pycon\n{found[0]}\n```\n", obj.docstring.value)
            parts = _CODE.split(fenced)
            parts[::2] = map(formulas.inline, parts[::2])
            obj.docstring.value = "".join(parts)
