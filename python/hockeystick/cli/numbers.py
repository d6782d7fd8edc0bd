"""Numbers as people type them: 1e4 steps, a probability of 256/60000, -1e-5."""

from __future__ import annotations

import math
import reprlib
from argparse import ArgumentTypeError
from collections.abc import Iterable


def real(text: str) -> float:
    """A number, or a quotient of two.

    >>> real("1e-5"), real("256/64")
    (1e-05, 4.0)
    """
    try:
        numerator, *rest = map(float, text.split("/"))
        (denominator,) = rest or [1.0]
        value = numerator / denominator
        # What underflows is not what was typed: a sampling probability of 0 would cost nothing.
        if value == 0.0 and any(map(_counts, text.split("/")[0].lower().split("e")[0])):
            raise ValueError
        if not denominator > 0.0:
            raise ValueError
        return value + 0.0  # -0.0 is 0.0
    except (ValueError, ArithmeticError):
        raise ArgumentTypeError(
            f"must be a number, such as 1e-5 or 256/60000, not {reprlib.repr(text)}"
        ) from None


def _counts(digit: str) -> bool:
    return digit.isdecimal() and int(digit) > 0


def whole(text: str) -> int:
    """A whole number, however it is written.

    >>> whole("1e4"), whole("10_000")
    (10000, 10000)
    """
    try:
        return int(text)
    except ValueError:
        value = real(text)
    if not value.is_integer():
        most = " below 1e308" if math.isinf(value) else ""
        raise ArgumentTypeError(
            f"must be a whole number{most}, such as 10000 or 1e4, not {reprlib.repr(text)}"
        )
    return int(value)


def joined(arguments: Iterable[str]) -> list[str]:
    """The arguments with negative numbers joined to their options, as argparse takes -1e-5 for an option.

    >>> joined(["grid", "--steps", "-1e4", "--json"])
    ['grid', '--steps=-1e4', '--json']
    """
    found: list[str] = []
    for argument in arguments:
        if argument[:1] == "-" and argument[1:2] in set(".0123456789") and found and found[-1][:2] == "--":
            found[-1] += "=" + argument
        else:
            found.append(argument)
    return found
