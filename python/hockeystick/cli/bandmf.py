"""``hockeystick bandmf``: the least noise multiplier of a matrix mechanism that samples can prove to be enough."""

from __future__ import annotations

import argparse

from ..montecarlo.bandmf_calibration import calibrate_bandmf
from . import matrix

EXAMPLES = (
    "hockeystick bandmf --steps 1024 --bands 32 --dataset-size 50000 --batch-size 100 --epsilon 4 --delta 1e-3",
)


def add_options(command: argparse.ArgumentParser) -> None:
    command.description = (
        "The least noise multiplier that Monte Carlo samples can prove to be enough (estimate, verify, release), "
        "and the mean squared error of the prefix sums. Runs as long as the budget asks for, about 100 / delta samples per "
        "candidate; with --checkpoint it can be interrupted and resumed."
    )
    matrix.add_options(command)


def run(options: argparse.Namespace) -> None:
    strategy, scheme = matrix.strategy(options), matrix.scheme(options)
    found = calibrate_bandmf(
        strategy, scheme, options.epsilon, options.delta, seed=options.seed, **matrix.calibration(options)
    )
    if options.json:
        print(found.to_json())
        return
    matrix.print_noise(found.noise_multiplier, found.mean_squared_error)
    print(f"draw batches from {found.mechanism.scheme!r}")
    print(found.statement())
