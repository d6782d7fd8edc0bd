"""Descriptions to and from plain dicts, for JSON."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from .selection import Repetitions
from .steps import KINDS, Composable, Process, Step


def to_dict(description: Composable | Repetitions) -> dict[str, Any]:
    """A description as nested dicts of JSON values; `from_dict` is its inverse.

    >>> from hockeystick import Gaussian, PureDP
    >>> to_dict(Gaussian(2.0))
    {'type': 'Gaussian', 'noise_multiplier': 2.0}
    >>> from_dict(to_dict(Gaussian(2.0) * 3 + PureDP(0.1))) == Gaussian(2.0) * 3 + PureDP(0.1)
    True
    """
    if isinstance(description, Process):
        items = [{"step": to_dict(step), "count": count} for step, count in description]
        return {"type": "Process", "items": items}
    kind = type(description)
    if KINDS.get(kind.__name__) is not kind:
        raise TypeError(f"cannot store a {kind.__name__}")
    plain: dict[str, Any] = {"type": kind.__name__}
    for entry in fields(description):  # type: ignore[arg-type]
        if entry.init:
            value = getattr(description, entry.name)
            plain[entry.name] = _plain(value)
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    return to_dict(value) if isinstance(value, (Composable, Repetitions)) else value


def _rebuilt(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_rebuilt(entry) for entry in value)
    return from_dict(value) if isinstance(value, dict) else value


def from_dict(plain: Any) -> Composable:
    """Rebuild a description; every value is validated again. Raises ValueError or TypeError."""
    if not isinstance(plain, dict):
        raise TypeError(f"not a description: {plain!r}")
    name = plain.get("type")
    if name == "Process":
        items: list[tuple[Step, int]] = []
        for item in plain["items"]:
            step = from_dict(item["step"])
            if not isinstance(step, Step):
                raise TypeError(f"not a step: {item!r}")
            items.append((step, item["count"]))
        return Process(items)
    if name not in KINDS or not is_dataclass(KINDS[name]):
        raise ValueError(f"unknown description {name!r}")
    rebuilt: Composable = KINDS[name](
        **{key: _rebuilt(value) for key, value in plain.items() if key != "type"}
    )
    return rebuilt
