"""``hockeystick grid``: epsilon or delta of every combination of some noises, sampling probabilities and steps."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from typing import Any, cast

import numpy as np

from .._base.bounds import finite
from .._base.figures import check_path
from .._base.validation import ParameterError
from ..accounting.grid import MAX_CELLS, Grid, grid_delta, grid_epsilon
from ..accounting.plausibility import of_budget
from ..plots.pictures import plot_grid
from . import numbers
from .dpsgd import add_accuracy, add_adjacency, print_notes

EXAMPLES = (
    "hockeystick grid --noise-multiplier 0.5:5:50 --sampling-probability 1e-3:1e-1:log50 --steps 1e4 --delta 1e-5 --plot plan.png",
    "hockeystick grid --noise-multiplier 1,2 --sampling-probability 256/60000 --steps 1e3,1e4 --epsilon 1 --json",
)


def add_options(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Each option takes a value, a list 1,2,5 or a range first:last:count, evenly spaced, or "
        "first:last:logCOUNT, spaced by a constant factor. Every combination is answered."
    )
    command.add_argument("--noise-multiplier", required=True)
    command.add_argument("--sampling-probability", default="1", help="of each record, per step")
    command.add_argument("--steps", required=True, help="noisy updates; ranges are rounded")
    point = command.add_mutually_exclusive_group(required=True)
    point.add_argument("--delta", help="asks for epsilon")
    point.add_argument("--epsilon", help="asks for delta")
    add_adjacency(command, "add_or_remove")
    add_accuracy(command)
    command.add_argument("--json", action="store_true", help="print JSON instead of CSV")
    command.add_argument("--plot", metavar="FILE", help="write a heat map over the two options that vary")


def run(options: argparse.Namespace) -> None:
    check_path(options.plot)
    grid = _answered(options)
    if grid.quantity == "delta":
        print_notes(of_budget(float(grid.inputs["epsilon"].min()), None))
    else:
        print_notes(of_budget(None, float(grid.inputs["delta"].max())))
    if options.json:
        table = {
            "quantity": grid.quantity,
            "adjacency": grid.adjacency,
            "accuracy": grid.accuracy,
            "shape": grid.shape,
            **{
                # Every argument varies along an axis of its own.
                name: np.moveaxis(values, axis, 0)[:, 0, 0, 0].tolist()
                for axis, (name, values) in enumerate(grid.inputs.items())
            },
            "lower": grid.lower.tolist(),
            "upper": grid.upper.tolist(),
        }
        print(json.dumps(finite(table), allow_nan=False))
    else:
        columns = [*grid.inputs.values(), grid.lower, grid.upper]
        out = csv.writer(sys.stdout, lineterminator="\n")
        out.writerow([*grid.inputs, f"{grid.quantity}_lower", f"{grid.quantity}_upper"])
        out.writerows(zip(*(column.ravel().tolist() for column in columns), strict=True))
    if options.plot:
        plot_grid(grid, options.plot)
        print(f"wrote {options.plot}", file=sys.stderr)


def _answered(options: argparse.Namespace) -> Grid:
    names = ["noise_multiplier", "sampling_probability", "steps"]
    names.append("epsilon" if options.delta is None else "delta")
    axes = {
        name: _values("--" + name.replace("_", "-"), getattr(options, name), name == "steps")
        for name in names
    }
    mesh = dict(zip(names, np.meshgrid(*axes.values(), indexing="ij", sparse=True), strict=True))
    ask: Any = grid_epsilon if options.epsilon is None else grid_delta
    return cast("Grid", ask(**mesh, adjacency=options.adjacency, accuracy=options.accuracy))


def _values(option: str, text: str, whole: bool) -> list[Any]:
    """The numbers of one option of `grid`.

    >>> _values("--steps", "10:1000:log3", whole=True), _values("--delta", "1e-5,1e-6", whole=False)
    ([10, 100, 1000], [1e-05, 1e-06])
    """
    number = numbers.whole if whole else numbers.real
    try:
        if ":" not in text:
            return [number(value) for value in text.split(",")]
        first, last, count = text.split(":")
        logarithmic, points = count.startswith("log"), int(count.removeprefix("log"))
        start, stop = float(number(first)), float(number(last))
        if not (np.isfinite([start, stop]).all() and 1 <= points <= MAX_CELLS):
            raise ValueError
        if logarithmic and not min(start, stop) > 0.0:
            raise ValueError
        space = np.geomspace if logarithmic else np.linspace
        with np.errstate(over="raise", invalid="raise"):
            values: list[Any] = space(start, stop, points).tolist()
    except (ValueError, ArithmeticError, argparse.ArgumentTypeError):
        kind = "integer" if whole else "number"
        raise ParameterError(
            f"{option} {text}: must be a {kind}, a list 1,2,5 or a range first:last:count (last - first a double) or "
            f"first:last:logCOUNT (positive ends), with a count in [1, {MAX_CELLS}]"
        ) from None
    # Rounding may make two of them equal.
    return list(dict.fromkeys(map(round, values))) if whole else values
