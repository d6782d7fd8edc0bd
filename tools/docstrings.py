"""Docstrings as the site's Markdown: examples become blocks of code, and `names` of this package links."""

from __future__ import annotations

import re
from typing import Any

import griffe

# A line that begins with >>>, and everything up to the next empty line.
_EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)


class Examples(griffe.Extension):
    """Puts fences around doctests, which Markdown would take for quotations."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Of every module, class and function."""
        if obj.docstring:
            obj.docstring.value = _EXAMPLE.sub(
                lambda found: f"\n```pycon\n{found[0]}\n```\n", obj.docstring.value
            )
