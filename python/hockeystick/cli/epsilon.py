"""``hockeystick epsilon``: epsilon of a run of DP-SGD at a given delta."""

from __future__ import annotations

import argparse

from . import dpsgd
from .numbers import real

EXAMPLES = (
    "hockeystick epsilon --noise-multiplier 1.0 --dataset-size 60000 --batch-size 256 --epochs 60 --delta 1e-5",
    "hockeystick epsilon --noise-multiplier 1.0 --sampling-probability 256/60000 --steps 1e4 --delta 1e-5 --json",
    "hockeystick epsilon --noise-multiplier 2 --dataset-size 60000 --batch-size 256 --epochs 5 --sampler without-replacement --delta 1e-5",
    "hockeystick epsilon --noise-multiplier 2 --sampling-probability 0.01 --steps 1000 --delta 1e-5 --certificate run.json",
)


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--delta", type=real, required=True)
    dpsgd.add_options(command)
    dpsgd.add_report_options(command)


def run(options: argparse.Namespace) -> None:
    dpsgd.print_report(dpsgd.profile(options), options, delta=options.delta)
