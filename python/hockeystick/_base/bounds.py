"""Two-sided bounds, and how numbers are printed: guarantees rounded up, infinities as words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NamedTuple


class Bounds(NamedTuple):
    """A certified interval: lower <= truth <= upper, where the truth is that of the dominating pair.

    ``upper`` is a guarantee for the mechanism; ``lower`` shows how tight the numerical work is.

    >>> lower, upper = Bounds(0.5, 0.6)
    """

    lower: float
    upper: float


def round_up(value: float, digits: int = 6) -> str:
    """``value`` in ``digits`` significant digits, rounded up: a printed guarantee is still one.

    >>> round_up(0.12345612), round_down(0.12345689)
    ('0.123457', '0.123456')
    """
    return _rounded(value, digits, math.inf)


def round_down(value: float, digits: int = 6) -> str:
    """``value`` in ``digits`` significant digits, rounded down."""
    return _rounded(value, digits, -math.inf)


def _rounded(value: float, digits: int, towards: float) -> str:
    text = f"{value:.{digits}g}"
    nearest = float(text)
    if nearest < value if towards > 0.0 else nearest > value:
        # Decimal arithmetic: the next number of so many digits, whatever the exponent.
        exact = Decimal(text)
        unit = Decimal(1).scaleb(exact.adjusted() - digits + 1)
        text = f"{exact + unit.copy_sign(Decimal(towards)):.{digits}g}"
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
