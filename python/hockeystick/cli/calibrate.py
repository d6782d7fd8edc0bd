"""``hockeystick calibrate``: the one option of a run of DP-SGD that was left out, so that a privacy budget is spent."""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Callable

from .._base.validation import ParameterError, choice
from ..accounting.batch_limits import calibrate_max_batch_size
from ..accounting.calibration import (
    DEFAULT_TOLERANCE,
    CalibratedFloat,
    CalibratedInt,
    calibrate,
    calibrate_batch_size,
    calibrate_noise_multiplier,
    calibrate_sampling_probability,
    calibrate_steps,
)
from ..accounting.plausibility import notes
from ..accounting.report import unit
from ..mechanisms.descriptions import Composable
from . import dpsgd
from .numbers import real

EXAMPLES = (
    "hockeystick calibrate --epsilon 2 --delta 1e-5 --dataset-size 60000 --batch-size 256 --epochs 60",
    "hockeystick calibrate --find steps --noise-multiplier 1.1 --sampling-probability 1/100 --epsilon 2 --delta 1e-5",
)
_FINDERS: dict[str, Callable[..., CalibratedFloat | CalibratedInt]] = {
    "noise-multiplier": calibrate_noise_multiplier,
    "steps": calibrate_steps,
    "epochs": functools.partial(
        calibrate, increasing=True, limits=(0, 10**6), integer=True, parameter="epochs"
    ),
    "sampling-probability": calibrate_sampling_probability,
    "batch-size": calibrate_batch_size,
    "max-batch-size": calibrate_max_batch_size,
}
_REAL = ("noise-multiplier", "sampling-probability")
"""What is found up to a tolerance; the others are whole numbers."""


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--epsilon", type=real, required=True)
    command.add_argument("--delta", type=real, required=True)
    command.add_argument(
        "--find", default=_REAL[0], help="what to leave out and find: " + ", ".join(_FINDERS)
    )
    command.add_argument(
        "--tolerance",
        type=real,
        help=f"of {' and '.join(_REAL)}: relative step that would exceed the budget (default: {DEFAULT_TOLERANCE:g})",
    )
    dpsgd.add_options(command, calibrates=True)


def run(options: argparse.Namespace) -> None:
    proof = _calibrated(options).certificate
    dpsgd.print_notes(notes(proof.description, proof.adjacency, proof.epsilon, proof.delta))
    if options.json:
        print(json.dumps(proof.to_dict(), indent=2, allow_nan=False))
        return
    print(f"{proof.parameter} = {proof.value!r}")
    print(proof.description)
    dpsgd.print_bounds("epsilon", proof.epsilon_bounds, f"delta = {proof.delta!r}")
    budget = f"epsilon = {proof.epsilon!r} at delta = {proof.delta!r}"
    if proof.at_limit:
        print(f"every allowed {proof.parameter} keeps within {budget}: this is the last one")
    elif proof.exceeding is None:
        print(f"no {proof.parameter} was shown to exceed {budget}")
    else:
        print(f"{proof.parameter} = {proof.exceeding!r} exceeds {budget}")
    print(f"adjacency: {proof.adjacency} ({unit(proof.description, proof.adjacency)})")


def _calibrated(options: argparse.Namespace) -> CalibratedFloat | CalibratedInt:
    """The value of the one option that was left out."""
    find = choice("--find", options.find, tuple(_FINDERS))
    name = find.replace("-", "_")
    if getattr(options, name) is not None:
        raise ParameterError(f"--{find}: is what --find looks for, so leave it out")
    other = {"steps": "epochs", "epochs": "steps"}.get(find)
    if other is not None and getattr(options, other) is not None:
        raise ParameterError(f"--{other}: leave it out, as --find looks for {find}")
    if find != "noise-multiplier" and options.noise_multiplier is None:
        raise ParameterError("--noise-multiplier: needed unless it is what --find looks for")

    if options.tolerance is not None and find not in _REAL:
        raise ParameterError(f"--tolerance: not with --find {find}, of which the last one is found")
    if find.endswith("batch-size") and options.sampler != "poisson":
        raise ParameterError(
            f"--find {find}: takes Poisson samples, not --sampler {options.sampler}; calibrate_batch_size does, from Python with limits"
        )

    def make(value: float) -> Composable:
        return dpsgd.description(argparse.Namespace(**{**vars(options), name: value}))

    how = {} if options.tolerance is None else {"tolerance": options.tolerance}
    return _FINDERS[find](
        make, epsilon=options.epsilon, delta=options.delta, adjacency=dpsgd.adjacency(options), **how
    )
