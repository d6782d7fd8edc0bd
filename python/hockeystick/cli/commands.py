"""The command ``hockeystick``: epsilon, delta or a whole profile of a DP-SGD run, or what it may do, or many."""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from .. import _core
from .._base.bounds import finite, round_down, round_up
from .._base.progress import Bar
from .._base.storage import StorageError
from .._base.validation import ParameterError, ParameterTypeError, choice
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
from ..accounting.grid import MAX_CELLS, Grid, grid_delta, grid_epsilon
from ..accounting.profile import DEFAULT_ACCURACY, PrivacyProfile, account
from ..accounting.report import Report, unit
from ..matrix.schemes import BallsInBins, BMinSep, CyclicPoisson, Poisson, Scheme
from ..matrix.strategies import BandedToeplitz
from ..mechanisms.adjacency import ADJACENCIES
from ..mechanisms.descriptions import Composable, Gaussian, PoissonSampled, Step
from ..mechanisms.dpsgd import dp_sgd
from ..mechanisms.truncated import TruncatedPoissonSampled
from ..montecarlo.bandmf_calibration import FALLBACKS, CalibratedBandMF, calibrate_bandmf
from ..montecarlo.direction import ADJACENCIES as ADJACENCIES_OF_BANDMF
from ..plots.profiles import plot_grid, plot_profile
from ..training.plan import TrainingPlan, plan_training

_UNKNOWNS = ("noise-multiplier", "steps", "epochs", "sampling-probability", "batch-size", "max-batch-size")
_SCHEMES = ("b-min-sep", "cyclic-poisson", "balls-in-bins", "poisson")
_STRATEGIES = ("optimized", "square-root")
_TABLE_DELTAS = tuple(10.0**-exponent for exponent in range(1, 13))


class _Parser(argparse.ArgumentParser):
    """Reports a mistake in one line, like every other error."""

    def error(self, message: str) -> NoReturn:
        raise ParameterError(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="hockeystick",
        description="Certified differential privacy of a DP-SGD run or of repeated Gaussian noise.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {_core.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)
    epsilon = commands.add_parser("epsilon", help="epsilon at a given delta")
    epsilon.add_argument("--delta", type=float, required=True)
    delta = commands.add_parser("delta", help="delta at a given epsilon")
    delta.add_argument("--epsilon", type=float, required=True)
    profile = commands.add_parser("profile", help="table of epsilon over delta, JSON or a plot")
    profile.add_argument("--plot", metavar="FILE", help="write a picture, e.g. out.png")
    calibrate_ = commands.add_parser("calibrate", help="noise, steps or sampling that spend a budget")
    calibrate_.add_argument("--epsilon", type=float, required=True)
    calibrate_.add_argument("--delta", type=float, required=True)
    calibrate_.add_argument(
        "--find", default=_UNKNOWNS[0], help="what to leave out and find: " + ", ".join(_UNKNOWNS)
    )
    calibrate_.add_argument(
        "--tolerance",
        type=float,
        default=DEFAULT_TOLERANCE,
        help="relative step that would exceed the budget",
    )
    for command in (epsilon, delta, profile, calibrate_):
        run = command.add_argument_group("the run")
        run.add_argument(
            "--noise-multiplier",
            type=float,
            required=command is not calibrate_,
            help="standard deviation / clipping norm, on the sum of the gradients",
        )
        run.add_argument("--sampling-probability", type=float, help="of each record, per step")
        run.add_argument("--dataset-size", type=int)
        run.add_argument("--batch-size", type=int, help="expected, per worker and forward pass")
        run.add_argument(
            "--max-batch-size", type=int, help="larger batches of one noisy update lose records at random"
        )
        run.add_argument("--gradient-accumulation", type=int, help="passes per noisy update")
        run.add_argument("--world-size", type=int, help="number of workers")
        run.add_argument("--drop-last", action="store_true", help="epochs end at the last full batch")
        run.add_argument("--sampler", help='"poisson" (default); others are refused')
        run.add_argument("--steps", type=int, help="noisy updates")
        run.add_argument("--epochs", type=float)
        answer = command.add_argument_group("the answer")
        answer.add_argument("--adjacency", default="add_or_remove", help=", ".join(ADJACENCIES))
        if command is not calibrate_:
            answer.add_argument("--accuracy", type=float, default=DEFAULT_ACCURACY)
        answer.add_argument("--json", action="store_true", help="print JSON")
    _add_grid(
        commands.add_parser("grid", help="epsilon or delta of many configurations, CSV, JSON or a plot")
    )
    _add_bandmf(commands.add_parser("bandmf", help="noise multiplier of BandMF for a privacy budget"))
    _add_plan(commands.add_parser("plan", help="plan of a training run, in a file to start it from"))
    return parser


def _add_plan(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Calibrates a training run once and writes the plan to a file, from which TrainingPlan.load(FILE).start(...) draws "
        "batches and noise. DP-SGD: --scheme poisson."
    )
    _add_budget(command)
    command.add_argument("--noise-multiplier", type=float, help="checked against the budget instead of found")
    command.add_argument(
        "--out", metavar="FILE", required=True, help="where to write the plan; must not exist"
    )


def _add_bandmf(command: argparse.ArgumentParser) -> None:
    command.description = (
        "The least noise multiplier that Monte Carlo samples can prove to be enough (estimate, verify, release), "
        "and the mean squared error of the prefix sums. Runs as long as the budget asks for, about 100 / delta samples per "
        "candidate; with --checkpoint it can be interrupted and resumed."
    )
    _add_budget(command)


def _add_budget(command: argparse.ArgumentParser) -> None:
    """The options that `bandmf` and `plan` share."""
    command.add_argument("--epsilon", type=float, required=True)
    command.add_argument("--delta", type=float, required=True)
    command.add_argument("--steps", type=int, required=True, help="noisy updates")
    strategy = command.add_argument_group("the strategy matrix")
    strategy.add_argument("--bands", type=int, default=1)
    strategy.add_argument("--strategy", default=_STRATEGIES[0], help=", ".join(_STRATEGIES))
    scheme = command.add_argument_group("how batches are drawn")
    scheme.add_argument("--scheme", default=_SCHEMES[0], help=", ".join(_SCHEMES))
    scheme.add_argument("--min-sep", type=int, help="steps between participations (default: --bands)")
    scheme.add_argument("--cold-start", action="store_true", help="b-min-sep: everyone is available at first")
    scheme.add_argument(
        "--examples-per-user",
        type=int,
        default=1,
        help="b-min-sep: protect users who own so many records at most, shared in any way (a plan needs to know who "
        "owns what: plan_training)",
    )
    scheme.add_argument("--sampling-probability", type=float, help="of an available record, per step")
    scheme.add_argument("--dataset-size", type=int)
    scheme.add_argument("--batch-size", type=int, help="expected, instead of --sampling-probability")
    run = command.add_argument_group("the run")
    run.add_argument("--adjacency", default=ADJACENCIES_OF_BANDMF[0], help=", ".join(ADJACENCIES_OF_BANDMF))
    run.add_argument(
        "--samples", type=int, help="per candidate and direction (default: what delta / 2 takes)"
    )
    run.add_argument("--fallback", default=FALLBACKS[0], help=", ".join(FALLBACKS))
    run.add_argument("--seed", type=int, help="choose it beforehand (default: from the operating system)")
    run.add_argument("--checkpoint", metavar="DIRECTORY", help="where to keep what is done, and to resume")
    run.add_argument("--json", action="store_true", help="print JSON")


def _add_grid(grid: argparse.ArgumentParser) -> None:
    grid.description = (
        "Each option takes a value, a list 1,2,5 or a range first:last:count, evenly spaced, or "
        "first:last:logCOUNT, spaced by a constant factor. Every combination is answered."
    )
    grid.add_argument("--noise-multiplier", required=True)
    grid.add_argument("--sampling-probability", default="1", help="of each record, per step")
    grid.add_argument("--steps", required=True, help="noisy updates; ranges are rounded")
    point = grid.add_mutually_exclusive_group(required=True)
    point.add_argument("--delta", help="asks for epsilon")
    point.add_argument("--epsilon", help="asks for delta")
    grid.add_argument("--adjacency", default="add_or_remove", help=", ".join(ADJACENCIES))
    grid.add_argument("--accuracy", type=float, default=DEFAULT_ACCURACY)
    grid.add_argument("--json", action="store_true", help="print JSON instead of CSV")
    grid.add_argument("--plot", metavar="FILE", help="write a heat map over the two options that vary")


def _description(options: argparse.Namespace) -> Composable:
    """The run the options describe, however they describe it."""
    from_data: dict[str, Any] = {
        name: value
        for name in ("dataset_size", "batch_size", "gradient_accumulation", "world_size", "sampler")
        if (value := getattr(options, name)) is not None
    }
    if options.drop_last:
        from_data["drop_last"] = True
    if options.max_batch_size is not None:
        if set(from_data) == {"dataset_size"} and options.sampling_probability is not None:
            return _truncated(options)
        if not from_data:
            raise ParameterError("--max-batch-size: needs --dataset-size")
        from_data["max_batch_size"] = options.max_batch_size
    if from_data:
        if options.sampling_probability is not None:
            raise ParameterError(
                "--sampling-probability: give it or --dataset-size with --batch-size, not both"
            )
        missing = [name for name in ("dataset_size", "batch_size") if name not in from_data]
        if missing:
            raise ParameterError(f"--{missing[0].replace('_', '-')}: needed with these options")
        return dp_sgd(options.noise_multiplier, epochs=options.epochs, steps=options.steps, **from_data)
    if options.epochs is not None:
        raise ParameterError("--epochs: needs --dataset-size and --batch-size; or give --steps")
    if options.steps is None:
        raise ParameterError("--steps: how many steps? (or --epochs with --dataset-size)")
    step: Step = Gaussian(options.noise_multiplier)
    if options.sampling_probability is not None:
        step = PoissonSampled(Gaussian(options.noise_multiplier), options.sampling_probability)
    steps: int = options.steps
    return step * steps


def _truncated(options: argparse.Namespace) -> Composable:
    """Truncated batches, described by the sampling probability."""
    if options.epochs is not None or options.steps is None:
        raise ParameterError("--steps: needed with --sampling-probability; --epochs goes with --batch-size")
    step = TruncatedPoissonSampled(
        options.noise_multiplier, options.dataset_size, options.sampling_probability, options.max_batch_size
    )
    steps: int = options.steps
    return step * steps


def _calibrated(options: argparse.Namespace) -> CalibratedFloat | CalibratedInt:
    """The value of the one option that was left out."""
    find = choice("--find", options.find, _UNKNOWNS).replace("-", "_")
    if getattr(options, find) is not None:
        raise ParameterError(f"--{options.find}: is what --find looks for, so leave it out")
    if find != "noise_multiplier" and options.noise_multiplier is None:
        raise ParameterError("--noise-multiplier: needed unless it is what --find looks for")

    def make(value: float) -> Composable:
        return _description(argparse.Namespace(**{**vars(options), find: value}))

    budget: dict[str, Any] = {
        "epsilon": options.epsilon,
        "delta": options.delta,
        "adjacency": options.adjacency,
    }
    if find == "noise_multiplier":
        return calibrate_noise_multiplier(make, **budget, tolerance=options.tolerance)
    if find == "sampling_probability":
        return calibrate_sampling_probability(make, **budget, tolerance=options.tolerance)
    if find == "steps":
        return calibrate_steps(make, **budget)
    if find == "batch_size":
        return calibrate_batch_size(make, **budget)
    if find == "max_batch_size":
        return calibrate_max_batch_size(make, **budget)
    return calibrate(make, **budget, increasing=True, limits=(0, 10**6), integer=True, parameter="epochs")


def _print_calibrated(found: CalibratedFloat | CalibratedInt, as_json: bool) -> None:
    proof = found.certificate
    if as_json:
        print(json.dumps(proof.to_dict(), indent=2, allow_nan=False))
        return
    print(f"{proof.parameter} = {proof.value!r}")
    print(proof.description)
    print(f"epsilon <= {round_up(proof.epsilon_bounds.upper, 8)} at delta = {proof.delta!r}")
    print(f"epsilon >= {round_down(proof.epsilon_bounds.lower, 8)} (lower bound, shows the tightness)")
    budget = f"epsilon = {proof.epsilon!r} at delta = {proof.delta!r}"
    if proof.at_limit:
        print(f"every allowed {proof.parameter} keeps within {budget}: this is the last one")
    elif proof.exceeding is None:
        print(f"no {proof.parameter} was shown to exceed {budget}")
    else:
        print(f"{proof.parameter} = {proof.exceeding!r} exceeds {budget}")
    print(f"adjacency: {proof.adjacency} ({unit(proof.description, proof.adjacency)})")


def _scheme(options: argparse.Namespace) -> Scheme:
    """The sampling scheme of `bandmf`."""
    kind = choice("--scheme", options.scheme, _SCHEMES)
    if options.cold_start and kind != "b-min-sep":
        raise ParameterError("--cold-start: only b-min-sep has it")
    if options.examples_per_user != 1 and kind != "b-min-sep":
        raise ParameterError("--examples-per-user: only b-min-sep has it")
    min_sep = options.bands if options.min_sep is None else options.min_sep
    if kind == "poisson":
        min_sep = 1
    steps, probability = options.steps, options.sampling_probability
    if kind == "balls-in-bins":
        if probability is not None or options.batch_size is not None:
            raise ParameterError(
                "--scheme balls-in-bins: takes every record once per --min-sep steps; give no rate"
            )
        return BallsInBins(steps, min_sep)
    if (probability is None) == (options.dataset_size is None or options.batch_size is None):
        raise ParameterError("--sampling-probability: give it or --dataset-size with --batch-size")
    if probability is None:
        rate = options.batch_size / max(1, options.dataset_size)
        # Of the records that are available, so that batch_size of all take part.
        waiting = rate * (min_sep - 1) if kind == "b-min-sep" else 0.0
        probability = rate / (1.0 - waiting) if waiting < 1.0 else math.inf
        if kind == "cyclic-poisson":
            probability = rate * min_sep
        if not 0.0 <= probability <= 1.0:
            raise ParameterError(
                f"--batch-size {options.batch_size}: must be at most --dataset-size / --min-sep "
                f"= {options.dataset_size / min_sep:g}"
            )
    if kind == "poisson":
        return Poisson(steps, probability)
    if kind == "cyclic-poisson":
        return CyclicPoisson(steps, min_sep, probability)
    return BMinSep(steps, min_sep, probability, not options.cold_start, options.examples_per_user)


def _strategy(options: argparse.Namespace) -> BandedToeplitz:
    """The strategy matrix of `bandmf` and `plan`."""
    if choice("--strategy", options.strategy, _STRATEGIES) == "optimized":
        return BandedToeplitz.optimized(options.steps, options.bands)
    return BandedToeplitz.square_root(options.steps, options.bands)


def _planned(options: argparse.Namespace) -> TrainingPlan:
    """What the options of `plan` describe, calibrated and written."""
    if options.dataset_size is None:
        raise ParameterError("--dataset-size: needed, a plan is for so many records")
    if os.path.exists(options.out):
        # A plan is a calibration: doing it again until it pleases is not covered.
        raise ParameterError(f"--out {options.out}: exists already")
    bar = Bar("samples", "samples")
    try:
        plan = plan_training(
            _scheme(options),
            options.dataset_size,
            epsilon=options.epsilon,
            delta=options.delta,
            noise_multiplier=options.noise_multiplier,
            strategy=_strategy(options),
            adjacency=options.adjacency,
            calibration_seed=options.seed,
            samples=options.samples,
            fallback=options.fallback,
            checkpoint=options.checkpoint,
            progress=bar.show,
        )
    finally:
        bar.clear()
    plan.save(options.out)
    return plan


def _print_plan(plan: TrainingPlan, as_json: bool) -> None:
    if as_json:
        print(json.dumps(plan.to_dict(), indent=2, allow_nan=False))
        return
    print(f"noise_multiplier = {plan.noise_multiplier!r}")
    print(f"mean squared error of prefix sums = {plan.mean_squared_error:.8g} squared clipping norms")
    print(f"batches: {plan.sampling!r}, {plan.expected_batch_size:.6g} records expected")
    print(plan.guarantee.statement)


def _bandmf(options: argparse.Namespace) -> CalibratedBandMF:
    """What the options of `bandmf` describe, calibrated."""
    strategy = _strategy(options)
    scheme = _scheme(options)
    bar = Bar("samples", "samples")
    try:
        return calibrate_bandmf(
            strategy,
            scheme,
            options.epsilon,
            options.delta,
            adjacency=options.adjacency,
            seed=options.seed,
            samples=options.samples,
            fallback=options.fallback,
            checkpoint=options.checkpoint,
            progress=bar.show,
        )
    finally:
        bar.clear()


def _print_bandmf(found: CalibratedBandMF, as_json: bool) -> None:
    if as_json:
        print(found.to_json())
        return
    print(f"noise_multiplier = {found.noise_multiplier!r}")
    print(f"mean squared error of prefix sums = {found.mean_squared_error:.8g} squared clipping norms")
    print(f"draw batches from {found.mechanism.scheme!r}")
    print(found.statement())


def _values(option: str, text: str, whole: bool) -> list[Any]:
    """The numbers of one option of `grid`.

    >>> _values("--steps", "10:1000:log3", whole=True), _values("--delta", "1e-5,1e-6", whole=False)
    ([10, 100, 1000], [1e-05, 1e-06])
    """
    number = int if whole else float
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
    except (ValueError, OverflowError):
        kind = "integer" if whole else "number"
        raise ParameterError(
            f"{option} {text}: must be a {kind}, a list 1,2,5 or a range first:last:count or "
            f"first:last:logCOUNT (positive ends), with a count in [1, {MAX_CELLS}]"
        ) from None
    space = np.geomspace if logarithmic else np.linspace
    values: list[Any] = space(start, stop, points).tolist()
    # Rounding may make two of them equal.
    return list(dict.fromkeys(map(round, values))) if whole else values


def _grid(options: argparse.Namespace) -> Grid:
    names = ["noise_multiplier", "sampling_probability", "steps"]
    names.append("epsilon" if options.delta is None else "delta")
    axes = {
        name: _values("--" + name.replace("_", "-"), getattr(options, name), name == "steps")
        for name in names
    }
    mesh = dict(zip(names, np.meshgrid(*axes.values(), indexing="ij", sparse=True), strict=True))
    ask: Any = grid_epsilon if options.epsilon is None else grid_delta
    bar = Bar(options.command)
    try:
        found: Grid = ask(**mesh, adjacency=options.adjacency, accuracy=options.accuracy, progress=bar.show)
    finally:
        bar.clear()
    return found


def _print_grid(grid: Grid, options: argparse.Namespace) -> None:
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


def _with_progress(items: Sequence[float], label: str) -> Iterator[float]:
    bar = Bar(label)
    for done, item in enumerate(items):
        bar.show(done, len(items))
        yield item
    bar.clear()


def _print_report(report: Report, as_json: bool) -> None:
    if as_json:
        print(report.to_json())
        return
    print(report.details)
    if report.epsilon is not None:
        print(f"epsilon <= {round_up(report.epsilon.upper, 8)} at delta = {report.at_delta!r}")
        print(f"epsilon >= {round_down(report.epsilon.lower, 8)} (lower bound, shows the tightness)")
    if report.delta is not None:
        print(f"delta <= {round_up(report.delta.upper, 8)} at epsilon = {report.at_epsilon!r}")
        print(f"delta >= {round_down(report.delta.lower, 8)} (lower bound, shows the tightness)")
    print(f"adjacency: {report.adjacency} ({report.unit})")


def _print_profile(profile: PrivacyProfile, options: argparse.Namespace) -> None:
    rows = []
    for delta in _with_progress(_TABLE_DELTAS, "epsilon"):
        lower, upper = profile.epsilon_bounds(delta)
        rows.append({"delta": delta, "epsilon_lower": lower, "epsilon_upper": upper})
    lower, upper = profile.advantage_bounds()
    if options.json:
        table: dict[str, Any] = {
            "description": str(profile.description),
            "adjacency": profile.adjacency,
            "accuracy": profile.accuracy,
            "advantage": {"lower": lower, "upper": upper},
            # JSON has no infinity.
            "profile": [
                {key: value if value < float("inf") else "inf" for key, value in row.items()} for row in rows
            ],
        }
        print(json.dumps(table, indent=2, allow_nan=False))
    else:
        print(profile.description)
        print(f"adjacency: {profile.adjacency}")
        print(f"{'delta':>8}  {'epsilon <=':>14}  {'epsilon >=':>14}")
        for row in rows:
            print(
                f"{row['delta']:>8.0e}  {round_up(row['epsilon_upper'], 8):>14}  {round_down(row['epsilon_lower'], 8):>14}"
            )
        print(f"membership advantage <= {round_up(upper, 8)}")
    if options.plot:
        plot_profile(profile, options.plot)
        print(f"wrote {options.plot}", file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, or 2 after printing a one-line error to stderr."""
    try:
        options = _parser().parse_args(argv)
        if options.command == "calibrate":
            _print_calibrated(_calibrated(options), options.json)
            return 0
        if options.command == "grid":
            _print_grid(_grid(options), options)
            return 0
        if options.command == "bandmf":
            _print_bandmf(_bandmf(options), options.json)
            return 0
        if options.command == "plan":
            _print_plan(_planned(options), options.json)
            return 0
        profile = account(_description(options), options.adjacency, options.accuracy)
        if options.command == "epsilon":
            _print_report(profile.report(delta=options.delta), options.json)
        elif options.command == "delta":
            _print_report(profile.report(epsilon=options.epsilon), options.json)
        else:
            _print_profile(profile, options)
    except (ParameterError, ParameterTypeError, StorageError, ImportError, OSError) as error:
        print(f"hockeystick: error: {error}", file=sys.stderr)
        return 2
    except SystemExit as stop:  # --help and --version
        return stop.code if isinstance(stop.code, int) else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
