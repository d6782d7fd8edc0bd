"""``hockeystick delta``: delta of a run of DP-SGD at a given epsilon."""

from __future__ import annotations

import argparse

from . import dpsgd
from .numbers import real

EXAMPLES = ("hockeystick delta --noise-multiplier 1.0 --sampling-probability 0.01 --steps 1000 --epsilon 2",)


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--epsilon", type=real, required=True)
    dpsgd.add_options(command)
    dpsgd.add_report_options(command)


def run(options: argparse.Namespace) -> None:
    dpsgd.print_report(dpsgd.profile(options), options, epsilon=options.epsilon)
