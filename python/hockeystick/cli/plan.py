"""``hockeystick plan``: calibrates a training run once and writes its plan to a file."""

from __future__ import annotations

import argparse
import json
import os

from .._base.files import check_target
from .._base.validation import ParameterError
from ..accounting.plausibility import of_budget
from ..training.plan import plan_training
from . import bandmf
from .dpsgd import print_notes
from .numbers import real

EXAMPLES = (
    "hockeystick plan --scheme poisson --steps 1000 --dataset-size 60000 --batch-size 256 --epsilon 2 --delta 1e-5 --out plan.hockeystick",
)


def add_options(command: argparse.ArgumentParser) -> None:
    bandmf.add_options(command)
    command.description = (
        "Calibrates a training run once and writes the plan to a file, from which TrainingPlan.load(FILE).start(...) draws "
        "batches and noise. DP-SGD: --scheme poisson."
    )
    command.add_argument("--noise-multiplier", type=real, help="checked against the budget instead of found")
    command.add_argument(
        "--out", metavar="FILE", required=True, help="where to write the plan; must not exist"
    )


def run(options: argparse.Namespace) -> None:
    if options.dataset_size is None:
        raise ParameterError("--dataset-size: needed, a plan is for so many records")
    if os.path.exists(options.out):
        # A plan is a calibration: doing it again until it pleases is not covered.
        raise ParameterError(f"--out {options.out}: exists already")
    check_target("--out", options.out)
    if options.fallback is not None and options.noise_multiplier is not None:
        raise ParameterError("--fallback: not with --noise-multiplier, of which nothing else is found")
    strategy, scheme = bandmf.matrix(options)
    plan = plan_training(
        scheme,
        options.dataset_size,
        epsilon=options.epsilon,
        delta=options.delta,
        noise_multiplier=options.noise_multiplier,
        strategy=strategy,
        calibration_seed=options.seed,
        **bandmf.calibration(options),
    )
    plan.save(options.out)
    print_notes(of_budget(options.epsilon, options.delta, options.dataset_size))
    if options.json:
        print(json.dumps(plan.to_dict(), indent=2, allow_nan=False))
        return
    bandmf.print_noise(plan.noise_multiplier, plan.mean_squared_error)
    print(f"batches: {plan.sampling!r}, {plan.expected_batch_size:.6g} records expected")
    print(plan.guarantee.statement)
