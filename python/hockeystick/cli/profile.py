"""``hockeystick profile``: the privacy profile of a run of DP-SGD as a table, JSON or a picture."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from typing import Any

from .._base.bounds import Bounds, finite, round_down, round_up
from .._base.figures import check_path
from .._base.progress import shown
from .._base.validation import ParameterError
from ..plots.pictures import plot_profile
from . import dpsgd
from .numbers import real

_DELTAS = tuple(10.0**-exponent for exponent in range(1, 13))

EXAMPLES = (
    "hockeystick profile --noise-multiplier 1.0 --sampling-probability 0.01 --steps 1000",
    "hockeystick profile --noise-multiplier 1.0 --sampling-probability 0.01 --steps 1000 --plot profile.png",
    "hockeystick profile --noise-multiplier 1.0 --sampling-probability 0.01 --steps 1000 --statement --report profile.html",
)


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--plot", metavar="FILE", help="write a picture, e.g. out.png")
    command.add_argument(
        "--delta", type=real, help="of the guarantee in a report or statement (default: 1e-6)"
    )
    dpsgd.add_options(command)
    dpsgd.add_report_options(command)


def run(options: argparse.Namespace) -> None:
    check_path(options.plot)
    whole = dpsgd.check_report(options) is not None or options.statement or options.json
    if options.delta is not None and not whole and options.certificate is None:
        raise ParameterError("--delta: goes with --statement, --report, --certificate or --json")
    profile, rows = dpsgd.profile(options), []
    with shown("epsilon", "values") as show:
        for done, delta in enumerate(_DELTAS):
            show(done, len(_DELTAS))
            lower, upper = profile.epsilon_bounds(delta)
            rows.append({"delta": delta, "epsilon_lower": lower, "epsilon_upper": upper})
    lower, upper = profile.advantage_bounds()
    found = profile.report(delta=1e-6 if options.delta is None else options.delta, risks=whole)
    points = tuple((row["delta"], Bounds(row["epsilon_lower"], row["epsilon_upper"])) for row in rows)
    report = replace(found, profile=points)
    if options.json:
        table: dict[str, Any] = {
            "description": str(profile.description),
            "adjacency": profile.adjacency,
            "accuracy": profile.accuracy,
            "advantage": {"lower": lower, "upper": upper},
            "profile": rows,
            "report": report.to_dict(),
        }
        print(json.dumps(finite(table), indent=2, allow_nan=False))
    elif options.statement:
        print(report.statement())
    else:
        print(profile.description)
        print(f"adjacency: {profile.adjacency}")
        print(f"{'delta':>8}  {'epsilon <=':>14}  {'epsilon >=':>14}")
        for row in rows:
            upper_text, lower_text = round_up(row["epsilon_upper"], 8), round_down(row["epsilon_lower"], 8)
            print(f"{row['delta']:>8.0e}  {upper_text:>14}  {lower_text:>14}")
        print(f"membership advantage <= {round_up(upper, 8)}")
    dpsgd.finish(report, options)
    if options.plot:
        plot_profile(profile, options.plot)
        print(f"wrote {options.plot}", file=sys.stderr)
