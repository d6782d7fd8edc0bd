"""``hockeystick account``: epsilon or delta of what a file describes: a ledger, a plan, or any composition as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from .._base import storage
from .._base.validation import ParameterError, ParameterTypeError, instance, integer, shown
from ..accounting.accountant import Accountant
from ..accounting.profile import account
from ..accounting.settings import DEFAULT_ACCURACY
from ..mechanisms.descriptions import Composable, Process
from ..mechanisms.steps import from_dict
from ..training.plan import TrainingPlan
from . import dpsgd
from .numbers import real

EXAMPLES = (
    "hockeystick account ledger.hockeystick --delta 1e-6        # what Accountant.save wrote",
    "hockeystick account plan.hockeystick                       # what a training plan promises",
    'echo \'[{"type": "Laplace", "scale": 20, "count": 500}]\' | hockeystick account - --delta 1e-6',
)
_OF_ANSWERS = ("adjacency", "accuracy", "statement", "report", "certificate")
"""Options about an answer that is computed, which what a plan states is not."""
_DIGITS = 400
"""*Limit*: no number that is accepted has so many."""


def add_options(command: argparse.ArgumentParser) -> None:
    command.description = (
        "The file holds a ledger (Accountant.save), a training plan (TrainingPlan.save), or JSON: a description as "
        "hockeystick.mechanisms.to_dict gives it, or a list of them, each with a count if need be. Without --delta and --epsilon a plan "
        "states its own guarantee (one for users, which needs their graph, by TrainingPlan.load(FILE, graph) alone); with "
        "other options it is accounted for at its own delta."
    )
    command.add_argument("file", metavar="FILE", help="- reads JSON from the standard input")
    command.add_argument("--delta", type=real, help="asks for epsilon")
    command.add_argument("--epsilon", type=real, help="asks for delta")
    dpsgd.add_adjacency(command, without="the file's, or add_or_remove")
    dpsgd.add_accuracy(command, None)
    command.add_argument("--json", action="store_true", help="print JSON")
    dpsgd.add_report_options(command)


def run(options: argparse.Namespace) -> None:
    # Before a plan is loaded, whose guarantee is then computed again.
    dpsgd.check_report(options)
    kind = None if options.file == "-" else storage.kind_of(options.file)
    adjacency, delta = "add_or_remove", options.delta
    described: Composable
    if kind == "accountant":
        ledger = Accountant.load(options.file)
        described, adjacency = ledger.process, ledger.adjacency
    elif kind == "training plan":
        plan = TrainingPlan.load(options.file)
        described, adjacency = plan.released(), plan.adjacency
        plan.check_adjacency(options.adjacency or adjacency)
        if delta is None and options.epsilon is None:
            delta = _own_delta(plan, options)
            if delta is None:
                print(json.dumps(plan.to_dict(), indent=2) if options.json else plan.guarantee.statement)
                return
    elif kind is not None:
        raise ParameterError(f"{options.file}: holds neither a ledger nor a plan, but: {kind}")
    else:
        described = _described(options.file)
    if delta is None and options.epsilon is None:
        raise ParameterError("--delta, --epsilon: give at least one of them")
    profile = account(
        described,
        adjacency if options.adjacency is None else options.adjacency,
        DEFAULT_ACCURACY if options.accuracy is None else options.accuracy,
    )
    dpsgd.print_report(profile, options, delta=delta, epsilon=options.epsilon)


def _own_delta(plan: TrainingPlan, options: argparse.Namespace) -> float | None:
    """Where a plan is accounted for unless told otherwise; None if what it states is all that was asked for."""
    asked = [name for name in _OF_ANSWERS if getattr(options, name) not in (None, False)]
    if asked and plan.guarantee.kind != "certified":
        raise ParameterError(
            f"--{asked[0]}: goes with a certified plan, and samples verified this one: without it, the plan states its guarantee"
        )
    return plan.delta if asked else None


def _described(path: str) -> Composable:
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
        hooks: dict[str, Any] = {"object_pairs_hook": _once, "parse_float": _number, "parse_int": _whole}
        return _composition(json.loads(text, **hooks))
    except json.JSONDecodeError as error:
        raise ParameterError(f"{path}: is not JSON: {error}") from None
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ParameterError(f"{path}: {error}") from error


def _number(text: str) -> float:
    try:
        return real(text)
    except argparse.ArgumentTypeError as error:
        raise ValueError(str(error)) from None


def _whole(text: str) -> int:
    """It, but for the later digits of so many that Python reads them as no integer: whatever it is given for refuses it by name.

    >>> _whole("12"), _whole("1" * 5000) > 10**4999
    (12, True)
    """
    return int(text[:_DIGITS]) * int(10 ** max(0, len(text) - _DIGITS))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError(f"a name occurs twice: {', '.join(name for name, _ in pairs)}")
    return dict(pairs)


def _composition(plain: Any) -> Composable:
    """A description, or a list of them, each with a count or without.

    >>> _composition([{"type": "Laplace", "scale": 20.0, "count": 3}, {"type": "PureDP", "epsilon": 0.1}])
    Process(items=((Laplace(scale=20.0), 3), (PureDP(epsilon=0.1), 1)))
    """
    if not isinstance(plain, (list, dict)) or (isinstance(plain, dict) and "count" not in plain):
        return from_dict(plain)
    total = Process()
    for entry in plain if isinstance(plain, list) else [plain]:
        instance("description", entry, dict, "a dictionary with a type")
        fields = {name: value for name, value in entry.items() if name != "count"}
        try:
            step = from_dict(fields)
        except ParameterTypeError as error:
            more = " but count" if str(error).startswith(f"description = {shown(fields)}") else ""
            raise ParameterTypeError(f"{error}{more}") from None
        total = total + step * integer("count", entry.get("count", 1))
    return total
