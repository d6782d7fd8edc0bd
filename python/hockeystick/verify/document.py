"""A certificate as text: one canonical spelling, a digest of it, and fields that are read one by one."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

FORMAT = "hockeystick certificate 1"
_LONGEST = 1000  # *limit*: digits of a number


class Rejected(Exception):
    """Why a certificate proves nothing: printable and short, whatever of the certificate's own text is in it."""

    def __init__(self, reason: str) -> None:
        shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in reason[:_LONGEST])
        super().__init__(shown + ("..." if len(reason) > _LONGEST else ""))


def write(content: Mapping[str, Any]) -> str:
    """The only accepted spelling of ``content``, with its digest added."""
    kept = {name: value for name, value in content.items() if name != "sha256"}
    return _spelled({**kept, "sha256": hashlib.sha256(_spelled(kept).encode()).hexdigest()})


def read(text: str | bytes) -> Fields:
    """The fields of a certificate; Rejected unless its digest is right, and every byte as `write` puts it."""
    if not isinstance(text, (str, bytes)):
        raise Rejected(f"text = {text!r}: must be str or bytes, not {type(text).__name__}")
    try:
        text = text if isinstance(text, str) else text.decode("ascii")
        content = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise Rejected(f"not the JSON of a certificate: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise Rejected(f'not a certificate: the format must be "{FORMAT}"')
    try:
        expected = write(content)
    except ValueError as error:
        raise Rejected(f"a number is out of range: {error}") from None
    if "sha256" not in content:
        raise Rejected("has no sha256, the digest of the content")
    if content["sha256"] != json.loads(expected)["sha256"]:
        raise Rejected("the digest is not that of the content: something was altered")
    if text != expected:
        raise Rejected("the text is not spelled as certificates are: something was altered")
    return Fields({name: value for name, value in content.items() if name != "sha256"}, "certificate")


def _spelled(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a name occurs twice")
    return dict(pairs)


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number")


class Fields:
    """One object of a certificate: every field must be asked for, by its type and range, before `finished`."""

    def __init__(self, content: Any, place: str) -> None:
        if not isinstance(content, dict):
            raise Rejected(f"{place}: must be an object")
        self._left, self.place = dict(content), place

    def any(self, name: str) -> Any:
        """A field of any type, which then counts as read."""
        if name not in self._left:
            raise Rejected(f"{self.place}: has no {name}")
        return self._left.pop(name)

    def object(self, name: str) -> Fields:
        """An object within this one."""
        return Fields(self.any(name), f"{self.place}.{name}")

    def objects(self, name: str, least: int = 0, most: int = 10_000) -> list[Fields]:
        """A list of objects, neither too few nor too many."""
        values = self._list(name, least, most)
        return [Fields(value, f"{self.place}.{name}[{i}]") for i, value in enumerate(values)]

    def text(self, name: str, *allowed: str) -> str:
        """A text, one of those ``allowed`` if there are any."""
        value = self.any(name)
        if not isinstance(value, str) or (allowed and value not in allowed):
            raise Rejected(f"{self.place}.{name}: must be {' or '.join(allowed) or 'a text'}, not {value!r}")
        return value

    def integer(self, name: str, low: int, high: int) -> int:
        """A whole number in [low, high]."""
        value = self.any(name)
        if type(value) is not int or not low <= value <= high:
            raise Rejected(f"{self.place}.{name}: must be a whole number in [{low}, {high}], not {value!r}")
        return value

    def real(self, name: str, low: float, high: float) -> float:
        """A number in [low, high], which stands for the nearest double."""
        return self._real(self.any(name), name, low, high)

    def reals(self, name: str, low: float, high: float, most: int = 1 << 16) -> list[float]:
        """At least one such number."""
        return [self._real(value, name, low, high) for value in self._list(name, 1, most)]

    def texts(self, name: str, length: int) -> list[str]:
        """So many texts."""
        found = self._list(name, length, length)
        if not all(isinstance(value, str) for value in found):
            raise Rejected(f"{self.place}.{name}: must hold texts")
        return found

    def pairs(self, name: str, low: float, high: float) -> list[tuple[float, float]]:
        """At least one pair of numbers in [low, high]."""
        found = self._list(name, 1, 10_000)
        if not all(isinstance(value, list) and len(value) == 2 for value in found):
            raise Rejected(f"{self.place}.{name}: must hold pairs")
        return [(self._real(a, name, low, high), self._real(b, name, low, high)) for a, b in found]

    def holds(self, name: str) -> bool:
        """Whether there is such a field."""
        return name in self._left

    def finished(self) -> None:
        """Rejected if something is left that nobody asked for."""
        if self._left:
            raise Rejected(f"{self.place}: {', '.join(sorted(self._left))} is nothing that can be verified")

    def _list(self, name: str, least: int, most: int) -> list[Any]:
        value = self.any(name)
        if not isinstance(value, list) or not least <= len(value) <= most:
            raise Rejected(f"{self.place}.{name}: must be a list of {least} to {most} entries")
        return value

    def _real(self, value: Any, name: str, low: float, high: float) -> float:
        if type(value) not in (int, float) or not low <= value <= high or not math.isfinite(float(value)):
            raise Rejected(f"{self.place}.{name}: must be a number in [{low:g}, {high:g}], not {value!r}")
        return float(value)
