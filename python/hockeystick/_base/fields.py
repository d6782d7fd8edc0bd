"""Types that say which values a field of a dataclass takes; `check_fields` refuses all others, and names the field."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import fields
from inspect import get_annotations
from typing import Annotated, Any, TypeAlias

from .validation import boolean, integer, real, vector

NonNegative: TypeAlias = Annotated[float, functools.partial(real, low=0.0)]
Positive: TypeAlias = Annotated[float, functools.partial(real, low=0.0, open_low=True)]
Probability: TypeAlias = Annotated[float, functools.partial(real, low=0.0, high=1.0)]
Size: TypeAlias = Annotated[int, functools.partial(integer, low=1)]
NonNegatives: TypeAlias = Annotated[tuple[float, ...], functools.partial(vector, low=0.0)]
Flag: TypeAlias = Annotated[bool, boolean]


def check_fields(instance: object) -> None:
    """Put the checked value into each field whose type is ``Annotated`` with a check: check(name, value) returns it, or raises."""
    for name, check in _checks(type(instance)):  # type: ignore[arg-type]  # a class is hashable
        object.__setattr__(instance, name, check(name, getattr(instance, name)))


@functools.cache
def _checks(kind: type) -> list[tuple[str, Callable[[str, Any], Any]]]:
    # Of dataclasses alone: to evaluate what other bases say takes longer than the first answer.
    bases = [base for base in reversed(kind.__mro__) if "__dataclass_fields__" in vars(base)]
    types = {name: hint for base in bases for name, hint in get_annotations(base, eval_str=True).items()}
    return [
        (entry.name, check)
        for entry in fields(kind)
        for check in getattr(types[entry.name], "__metadata__", ())
    ]
