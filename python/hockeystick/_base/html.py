"""How notebooks show answers and descriptions: a small table, and a sentence beneath it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from html import escape
from typing import Any


class Shown:
    """The base of what a notebook shows as a table: one row for each public field, unless ``_shown`` says otherwise."""

    def _shown(self) -> Iterable[tuple[str, Any]]:
        described: Any = self
        known = fields(described) if is_dataclass(described) else ()
        return [(entry.name, getattr(self, entry.name)) for entry in known if entry.repr]

    def _sentence(self) -> str:
        """A sentence beneath the table; none by default."""
        return ""

    def _repr_html_(self) -> str:
        return table(type(self).__name__, self._shown(), self._sentence())


class Stated(Shown):
    """The base of what says in words what it is: as text, and in notebooks beneath its table."""

    def statement(self) -> str:
        """It in words."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.statement()

    def _sentence(self) -> str:
        return self.statement()


class Reported(Stated):
    """The base of what goes to files as well."""

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, lists, numbers and strings; infinities become the string "inf"."""
        raise NotImplementedError

    def to_json(self, indent: int | None = 2) -> str:
        """The same as a JSON object."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)


def table(title: str, rows: Iterable[tuple[str, Any]], note: str = "") -> str:
    """An HTML table of two columns with a title.

    >>> table("Laplace", [("scale", 20.0)])
    '<table><caption><b>Laplace</b></caption><tr><th>scale</th><td style="text-align: left; overflow-wrap: anywhere">20.0</td></tr></table>'
    """
    cell = '<td style="text-align: left; overflow-wrap: anywhere">'  # notebooks align to the right what is unstyled
    body = "".join(f"<tr><th>{escape(name)}</th>{cell}{escape(str(value))}</td></tr>" for name, value in rows)
    beneath = f"<p>{escape(note)}</p>" if note else ""
    return f"<table><caption><b>{escape(title)}</b></caption>{body}</table>{beneath}"
