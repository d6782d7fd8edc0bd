"""Checks of what a caller passes in, and of fields by their types: every refusal names the parameter, the value and the valid range."""

from __future__ import annotations

import functools
import math
import numbers
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from inspect import get_annotations
from typing import Annotated, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from .types import Numbers

T = TypeVar("T")

MAX_COUNT = 2**53
"""*Proof*: largest number of steps, records or categories: every smaller integer is also an exact double."""


class ParameterError(ValueError):
    """A parameter has the right type and a value outside its valid range."""


class ParameterTypeError(TypeError):
    """A parameter has the wrong type (a bool, a string, None, a fractional count, ...)."""


def shown(value: Any) -> str:
    """``value`` as a message shows it. Python writes no integer of more than 4300 digits, and nothing that holds one: of these, what they are.

    >>> shown(0.5), shown(10**5000), shown([10**5000])
    ('0.5', '<an integer of about 5001 digits>', '<a list that cannot be shown>')
    """
    try:
        return repr(value)
    except ValueError:
        if isinstance(value, int):
            return f"<an integer of about {int(value.bit_length() * math.log10(2)) + 1} digits>"
        return f"<a {type(value).__name__} that cannot be shown>"


def real(
    name: str,
    value: Any,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    open_low: bool = False,
    open_high: bool = False,
    allow_inf: bool = False,
    towards: float | None = None,
) -> float:
    """Return ``value`` as a float if it is a real number in the interval from ``low`` to ``high``.

    A fraction, a long double or a large integer that is no double is rounded to nearest, or ``towards`` an infinity:
    a cost upwards, what it is divided by downwards; one that would be 0 is refused, as what is next to nothing is not nothing. Ends belong to the interval unless ``open_low`` / ``open_high``; infinities are refused unless
    ``allow_inf``. Raises ParameterTypeError for bool, str, None and arrays, ParameterError for nan
    and for values outside.

    >>> real("sampling_probability", 1, 0.0, 1.0)
    1.0
    >>> real("delta", float("nan"), 0.0, 1.0)
    Traceback (most recent call last):
    ...
    hockeystick._base.validation.ParameterError: delta = nan: must be a number in [0, 1]
    """
    if type(value) is float and low < value < high:
        return value + 0.0  # -0.0 is 0.0
    open_low = open_low or (low == -math.inf and not allow_inf)
    open_high = open_high or (high == math.inf and not allow_inf)
    expected = f"must be a number in {'[('[open_low]}{low:g}, {high:g}{'])'[open_high]}"
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise ParameterTypeError(f"{name} = {shown(value)}: {expected}, not {type(value).__name__}")
    try:
        number = double(value, towards)
    except OverflowError as error:
        raise ParameterError(f"{name} = {shown(value)}: {expected} ({error})") from None
    above = low < number if open_low else low <= number
    below = number < high if open_high else number <= high
    # nan compares false, so it is refused.
    if not (above and below):
        raise ParameterError(f"{name} = {number!r}: {expected}")
    return number + 0.0


def double(value: Any, towards: float | None) -> float:
    """The nearest double or, if that is not ``value``, the next one ``towards`` an infinity; OverflowError where it would be 0 and is not."""
    number = float(value)
    if number == 0.0 and value != 0 and towards is None:
        raise OverflowError("too small for a double")
    if towards is None or not math.isfinite(number):
        return number
    # NumPy would compare its integers as doubles.
    return _moved(number, int(value) if isinstance(value, numbers.Integral) else value, towards)


def _moved(number: float, exact: Any, towards: float) -> float:
    """The next double towards an infinity if this one, the nearest to ``exact``, lies on the other side of it."""
    return math.nextafter(number, towards) if (exact > number if towards > 0 else exact < number) else number


def doubles(array: NDArray[Any], towards: float) -> NDArray[np.float64]:
    """The numbers of an array as doubles; those that are none are rounded ``towards`` an infinity.

    >>> doubles(np.array([2**53 + 1, 3]), math.inf).tolist()
    [9007199254740994.0, 3.0]
    """
    with np.errstate(over="ignore", under="ignore"):
        out = np.array(array, np.float64)
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        wrong = out < array if towards > 0 else out > array
        out[wrong] = np.nextafter(out[wrong], towards)
    elif array.dtype.kind in "iu" and array.dtype.itemsize == 8:
        for index in map(tuple, np.argwhere(np.abs(out) >= 2.0**53)):
            out[index] = _moved(float(out[index]), int(array[index]), towards)
    return out


def integer(name: str, value: Any, low: int = 0, high: int = MAX_COUNT) -> int:
    """Return ``value`` as an int if it is an integer (Python's or NumPy's) in [low, high].

    A float is refused even if it is whole: a fractional number of steps is a mistake upstream.

    >>> integer("steps", np.int32(7))
    7
    >>> integer("steps", 1.5)
    Traceback (most recent call last):
    ...
    hockeystick._base.validation.ParameterTypeError: steps = 1.5: must be an integer in [0, 9007199254740992], not float
    """
    if type(value) is int and low <= value <= high:
        return value
    expected = f"must be an integer in [{low}, {high}]"
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Integral):
        raise ParameterTypeError(f"{name} = {shown(value)}: {expected}, not {type(value).__name__}")
    number = int(value)
    if not low <= number <= high:
        raise ParameterError(f"{name} = {shown(number)}: {expected}")
    return number


def plain(value: Any) -> Any:
    """A Python number from a scalar, or a tensor of one element, of another library; anything else as it is."""
    return value.item() if hasattr(value, "item") else value


def reals(
    name: str,
    values: Any,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    towards: float | None = None,
    **ends: bool,
) -> NDArray[Any]:
    """Return ``values`` as an array of doubles if `real` accepts each of them, for the first that it does not
    raise as `real` does, with its index. Rounded to nearest or ``towards`` an infinity, as `real` does.

    >>> reals("delta", [[1e-5, 2.0]], 0.0, 1.0)
    Traceback (most recent call last):
    ...
    hockeystick._base.validation.ParameterError: delta[0, 1] = 2.0: must be a number in [0, 1]
    """

    def check(at: str, value: Any) -> float:
        return real(at, value, low, high, towards=towards, **ends)

    return _each(name, values, "iuf", np.float64, check, towards)


def vector(
    name: str, values: Any, low: float = -math.inf, high: float = math.inf, **ends: bool
) -> tuple[float, ...]:
    """Return a sequence of numbers as a tuple if `real` accepts each of them.

    >>> vector("p", {0.5: 1})
    Traceback (most recent call last):
    ...
    hockeystick._base.validation.ParameterTypeError: p = {0.5: 1}: must be a sequence of numbers, not dict
    """
    array = unmasked(name, tuple(values) if isinstance(values, Iterator) else values)
    if array.ndim == 0:
        raise ParameterTypeError(
            f"{name} = {shown(values)}: must be a sequence of numbers, not {type(values).__name__}"
        )
    if array.ndim != 1:
        raise ParameterError(f"{name}: must be a sequence of numbers, not an array of shape {array.shape}")
    return tuple(reals(name, array, low, high, **ends).tolist())


def integers(name: str, values: Any, low: int = 0, high: int = MAX_COUNT) -> NDArray[Any]:
    """Return ``values`` as an array of 64-bit integers if `integer` accepts each of them.

    >>> integers("steps", [10, -1])
    Traceback (most recent call last):
    ...
    hockeystick._base.validation.ParameterError: steps[1] = -1: must be an integer in [0, 9007199254740992]
    """
    return _each(name, values, "iu", np.int64, lambda at, value: integer(at, value, low, high))


def unmasked(name: str, values: Any) -> NDArray[Any]:
    """``values`` as an array; a masked one is refused, as what is masked would count."""
    if isinstance(values, np.ma.MaskedArray):
        raise ParameterTypeError(f"{name}: must be an array of numbers, not a masked one")
    try:
        return np.asarray(values)
    except ValueError as error:  # lists of different lengths
        raise ParameterTypeError(f"{name}: must be an array of numbers: {error}") from None


def numbers_in(name: str, values: Any) -> NDArray[np.float64]:
    """``values`` as an array of doubles, whatever they are: infinities and nan too."""
    array = unmasked(name, values)
    try:
        if array.dtype.kind in "iufO":
            return array.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError):
        pass  # an object that is no number
    raise ParameterTypeError(f"{name}: must be an array of numbers, not of dtype {array.dtype}")


def _each(
    name: str,
    values: Any,
    kinds: str,
    dtype: type[np.generic],
    check: Callable[[str, Any], Any],
    towards: float | None = None,
) -> NDArray[Any]:
    array = unmasked(name, values)
    if not array.size:
        return np.empty(array.shape, dtype)
    if array.dtype.kind in kinds and array.dtype.itemsize <= 8:
        # A range holds all values if it holds the ends; nan is an end of whatever has one.
        ends = {int(np.argmin(array)), int(np.argmax(array))}
        try:
            for end in ends:
                check(name, array.flat[end])
        except (ParameterError, ParameterTypeError):
            pass  # look for the first
        else:
            return array.astype(dtype) if towards is None else doubles(array, towards)
    checked = np.empty(array.shape, dtype)
    for index, value in np.ndenumerate(array):
        at = f"{name}[{', '.join(map(str, index))}]" if array.size > 1 else name
        checked[index] = check(at, value.item() if array.dtype.kind in "SUb" else value)  # as it was passed
    return checked


def choice(name: str, value: Any, options: Sequence[str]) -> str:
    """Return ``value`` if it is one of the strings in ``options``.

    >>> choice("adjacency", "swap", ["add", "remove"])
    Traceback (most recent call last):
    ...
    hockeystick._base.validation.ParameterError: adjacency = 'swap': must be one of 'add', 'remove'
    """
    if isinstance(value, str) and value in options:
        return value
    expected = "must be one of " + ", ".join(map(repr, options))
    if isinstance(value, str):
        raise ParameterError(f"{name} = {shown(value)}: {expected}")
    raise ParameterTypeError(f"{name} = {shown(value)}: {expected}, not {type(value).__name__}")


def boolean(name: str, value: Any) -> bool:
    """Return ``value`` if it is True or False (NumPy's included)."""
    if not isinstance(value, (bool, np.bool_)):
        raise ParameterTypeError(
            f"{name} = {shown(value)}: must be True or False, not {type(value).__name__}"
        )
    return bool(value)


def instance(name: str, value: Any, kind: type[T], wanted: str | None = None) -> T:
    """Return ``value`` if it is a ``kind``, which the message calls ``wanted``.

    >>> instance("profile", 3, str)
    Traceback (most recent call last):
    ...
    hockeystick._base.validation.ParameterTypeError: profile = 3: must be str, not int
    """
    if not isinstance(value, kind):
        wanted = kind.__name__ if wanted is None else wanted
        raise ParameterTypeError(f"{name} = {shown(value)}: must be {wanted}, not {type(value).__name__}")
    return value


def two(name: str, value: Any, wanted: str) -> Sequence[Any]:
    """Return ``value`` if it is a pair, which the message calls ``wanted``."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise ParameterTypeError(f"{name} = {shown(value)}: must be {wanted}")
    return value


def entries(name: str, values: Any, wanted: str) -> tuple[Any, ...]:
    """The entries of any iterable, in its order; ``wanted`` says what they must be.

    >>> entries("candidates", 3, "numbers")
    Traceback (most recent call last):
    ...
    hockeystick._base.validation.ParameterTypeError: candidates = 3: must be a sequence of numbers, not int
    """
    try:
        found = iter(values)
    except TypeError:
        raise ParameterTypeError(
            f"{name} = {shown(values)}: must be a sequence of {wanted}, not {type(values).__name__}"
        ) from None
    return tuple(found)


def built(name: str, plain: Any, kinds: Mapping[str, type[T]]) -> T:
    """Rebuild what a dictionary of JSON values describes: its "type" is one of the ``kinds``, dataclasses, and the rest are its fields."""
    values = dict(instance(name, plain, Mapping, "a dictionary with a type"))  # type: ignore[type-abstract]
    kind = values.pop("type", None)
    if not isinstance(kind, str) or not is_dataclass(kinds.get(kind)):
        concrete = ", ".join(sorted(each for each, made in kinds.items() if is_dataclass(made)))
        if "type" not in plain:
            raise ParameterError(f"{name} = {shown(plain)}: has no type; must have one of {concrete}")
        raise ParameterError(f"unknown {name} {shown(kind)}: its type must be one of {concrete}")
    known = [entry for entry in fields(kinds[kind]) if entry.init]  # type: ignore[arg-type]
    needed = [entry.name for entry in known if entry.default is MISSING and entry.default_factory is MISSING]
    check_keys(name, plain, ["type", *needed], [entry.name for entry in known])
    return kinds[kind](**values)


def check_keys(name: str, plain: Any, needed: Sequence[str], optional: Sequence[str] = ()) -> None:
    """Raise ParameterTypeError unless ``plain`` is a dictionary with all of the ``needed`` keys, and none that is not even ``optional``.

    >>> check_keys("item", {"step": 1, "counts": 2}, ["step", "count"])
    Traceback (most recent call last):
    ...
    hockeystick._base.validation.ParameterTypeError: item = {'step': 1, 'counts': 2}: lacks count, has 'counts'; must have the keys step, count, and no others
    """
    instance(name, plain, Mapping, "a dictionary")  # type: ignore[type-abstract]
    further = [key for key in optional if key not in needed]
    wrong = [f"lacks {key}" for key in needed if key not in plain]
    wrong += [f"has {shown(key)}" for key in plain if key not in needed and key not in further]
    if wrong:
        may = f", may have {', '.join(further)}" if further else ""
        raise ParameterTypeError(
            f"{name} = {shown(plain)}: {', '.join(wrong)}; must have the keys {', '.join(needed)}{may}, and no others"
        )


def is_a(value: object, *names: str) -> bool:
    """Whether a class of one of these names is among those of ``value``, of a library that need not be there."""
    return any(kind.__name__ in names for kind in type(value).__mro__)


def narrowed(value: object, kind: type[T]) -> T:
    """``value``, which is a ``kind`` by construction: an error that python -O does not leave out, as it does assertions."""
    if not isinstance(value, kind):
        raise TypeError(
            f"{value!r}: must be a {kind.__name__}, by what was checked before: a defect of hockeystick"
        )
    return value


NonNegative: TypeAlias = Annotated[float, functools.partial(real, low=0.0)]
Positive: TypeAlias = Annotated[float, functools.partial(real, low=0.0, open_low=True)]


def no_less(name: str, value: Any) -> float:
    """A finite number >= 0 that is spent: one that is no double is rounded up, and refused where it would have been 0."""
    real(name, value, 0.0)
    return real(name, value, 0.0, towards=math.inf)


def no_more(name: str, value: Any, high: float = math.inf) -> float:
    """A number > 0 that costs are divided by: one that is no double is rounded down, and refused where it would have been 0."""
    real(name, value, 0.0, high, open_low=True)
    return real(name, value, 0.0, high, open_low=True, towards=-math.inf)


Probability: TypeAlias = Annotated[float, functools.partial(real, low=0.0, high=1.0)]
Size: TypeAlias = Annotated[int, functools.partial(integer, low=1)]
NonNegatives: TypeAlias = Annotated[Numbers, functools.partial(vector, low=0.0)]
Flag: TypeAlias = Annotated[bool, boolean]


def check_fields(instance: object) -> None:
    """Put the checked value into each field whose type is ``Annotated`` with a check: check(name, value) returns it, or raises."""
    for name, check in _checks(type(instance)):  # type: ignore[arg-type]  # a class is hashable
        object.__setattr__(instance, name, check(name, getattr(instance, name)))


def _type(hint: Any, base: type) -> Any:
    # Most are names: to look one up takes a hundredth of evaluating it, which would be a fifth of a first answer.
    names = vars(sys.modules[base.__module__])
    if isinstance(hint, str):
        return names.get(hint) if hint.isidentifier() else eval(hint, names, dict(vars(base)))
    return hint


@functools.cache
def _checks(kind: type) -> list[tuple[str, Callable[[str, Any], Any]]]:
    # Of dataclasses alone: to evaluate what other bases say takes longer than the first answer.
    bases = [base for base in reversed(kind.__mro__) if "__dataclass_fields__" in vars(base)]
    types = {name: _type(hint, base) for base in bases for name, hint in get_annotations(base).items()}
    return [
        (entry.name, check)
        for entry in fields(kind)
        for check in getattr(types[entry.name], "__metadata__", ())
    ]
