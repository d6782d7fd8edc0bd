"""Two-sided bounds, how numbers are printed (guarantees rounded up, infinities as words), and how notebooks show answers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from html import escape
from typing import Any, NamedTuple

from .decimals import in_digits


class Bounds(NamedTuple):
    """A certified interval: lower <= truth <= upper, where the truth is that of the dominating pair.

    ``upper`` is a guarantee for the mechanism; ``lower`` shows how tight the numerical work is.

    >>> lower, upper = Bounds(0.5, 0.6)
    """

    lower: float
    upper: float


def round_up(value: float, digits: int = 6) -> str:
    """``value`` in ``digits`` significant digits, rounded up: a printed guarantee, read as a double, is still one.

    >>> round_up(0.12345612), round_down(0.12345689)
    ('0.123457', '0.123456')
    """
    return _rounded(value, digits, math.inf)


def round_down(value: float, digits: int = 6) -> str:
    """``value`` in ``digits`` significant digits, rounded down."""
    return _rounded(value, digits, -math.inf)


def exactly(value: float) -> str:
    """``value`` in as few digits as read back the same: for noise and rates, which a statement may round in neither direction.

    >>> exactly(1.225300677), exactly(60.0)
    ('1.225300677', '60')
    """
    return repr(float(value)).removesuffix(".0")


def _rounded(value: float, digits: int, towards: float) -> str:
    text = f"{value:.{digits}g}"
    nearest = float(text)
    if nearest < value if towards > 0.0 else nearest > value:
        # Decimal arithmetic: the next number of so many digits, whatever the exponent.
        with in_digits(digits + 2):
            exact = Decimal(text)
            unit = Decimal(1).scaleb(exact.adjusted() - digits + 1)
            moved = exact + unit.copy_sign(Decimal(towards))
            # As floats are written: nobody is to count zeros of one end of a range and read the exponent of the other.
            text = f"{moved:.{digits}g}" if -5 < moved.adjusted() < digits else f"{moved:.{digits - 1}e}"
    return text


def finite(plain: Mapping[str, Any]) -> dict[str, Any]:
    """``plain`` as JSON has it: infinities as words, `Bounds` as {"lower", "upper"}, tuples as lists."""
    return {name: _finite(value) for name, value in plain.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0.0 else "-inf"
    if isinstance(value, Bounds):
        return finite(value._asdict())
    if isinstance(value, Mapping):
        return finite(value)
    return [_finite(entry) for entry in value] if isinstance(value, (list, tuple)) else value


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
