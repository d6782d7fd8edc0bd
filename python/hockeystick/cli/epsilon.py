"""``hockeystick epsilon``: epsilon of a run of DP-SGD at a given delta."""

from __future__ import annotations

import argparse

from . import dpsgd


def add_options(command: argparse.ArgumentParser) -> None:
    """Of this command."""
    command.add_argument("--delta", type=float, required=True)
    dpsgd.add_options(command)


def run(options: argparse.Namespace) -> None:
    """Answer and print."""
    dpsgd.print_report(dpsgd.profile(options).report(delta=options.delta), options.json)
