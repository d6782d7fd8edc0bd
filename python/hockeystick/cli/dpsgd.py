"""The options that describe a run of DP-SGD, which four commands share, how batches may be drawn in it, and how bounds are printed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from .._base.bounds import Bounds, round_down, round_up
from .._base.files import check_target
from .._base.validation import ParameterError, choice, narrowed
from ..accounting.profile import PrivacyProfile, account
from ..accounting.report import Answer, Report
from ..accounting.settings import DEFAULT_ACCURACY
from ..matrix.bandmf import BandMF
from ..matrix.schemes import BallsInBins
from ..matrix.strategies import Identity
from ..mechanisms.adjacency import ADJACENCIES
from ..mechanisms.descriptions import (
    Composable,
    Dominated,
    Gaussian,
    PoissonSampled,
    Process,
    WithoutReplacement,
    WithReplacement,
)
from ..mechanisms.dpsgd import DPSGD, REFUSED_SAMPLERS, dp_sgd
from ..mechanisms.steps import Step
from ..mechanisms.truncated import TruncatedPoissonSampled
from ..mechanisms.users import UserLevel
from .numbers import real, whole

_OF_DATA = ("dataset_size", "batch_size", "gradient_accumulation", "world_size", "drop_last")


def add_options(command: argparse.ArgumentParser, *, calibrates: bool = False) -> None:
    """A command that ``calibrates`` finds the noise, and chooses the accuracy itself."""
    run = command.add_argument_group("the run")
    run.add_argument(
        "--noise-multiplier",
        type=real,
        required=not calibrates,
        help="standard deviation / clipping norm, on the sum of the gradients",
    )
    run.add_argument("--sampling-probability", type=real, help="of each record, per step")
    run.add_argument("--dataset-size", type=whole)
    run.add_argument("--batch-size", type=whole, help="expected, per worker and forward pass")
    run.add_argument(
        "--max-batch-size", type=whole, help="larger batches of one noisy update lose records at random"
    )
    run.add_argument("--gradient-accumulation", type=whole, help="passes per noisy update")
    run.add_argument("--world-size", type=whole, help="number of workers")
    run.add_argument(
        "--drop-last", action="store_true", help="with --epochs, each ends at its last full batch"
    )
    run.add_argument(
        "--examples-per-user", type=whole, help="protect users with at most so many examples each"
    )
    run.add_argument(
        "--sampler",
        default="poisson",
        type=lambda name: name.replace("_", "-"),
        help=f"how batches are drawn: {', '.join(SAMPLERS)} (default: poisson)",
    )
    run.add_argument("--steps", type=whole, help="noisy updates")
    run.add_argument("--epochs", type=real)
    answer = command.add_argument_group("the answer")
    add_adjacency(answer, without="what fits the sampler")
    if not calibrates:
        add_accuracy(answer)
    answer.add_argument("--json", action="store_true", help="print JSON")


def add_accuracy(command: argparse._ActionsContainer, default: float | None = DEFAULT_ACCURACY) -> None:
    """``--accuracy``, which is ``default`` where it is not given."""
    command.add_argument(
        "--accuracy",
        type=real,
        default=default,
        help=f"relative width of the bounds that is aimed at, 1e-9 to 1 (default: {DEFAULT_ACCURACY:g})",
    )


def add_adjacency(
    command: argparse._ActionsContainer,
    default: str | None = None,
    without: str | None = None,
    names: Sequence[str] = ADJACENCIES,
) -> None:
    """``--adjacency``, one of ``names``, with hyphens too, as options have them; ``without`` says what it is where there is no default."""
    command.add_argument(
        "--adjacency",
        default=default,
        type=lambda name: name.replace("-", "_"),
        help=f"{', '.join(names)} (default: {default or without})",
    )


def profile(options: argparse.Namespace) -> PrivacyProfile:
    return account(description(options), adjacency(options), options.accuracy)


def adjacency(options: argparse.Namespace) -> str:
    """What was asked for, or what fits the sampler."""
    return _sampler(options).adjacency if options.adjacency is None else str(options.adjacency)


def _sampler(options: argparse.Namespace) -> Sampler:
    if options.sampler == "shuffle":
        raise ParameterError(
            f"--sampler shuffle: must be one of {', '.join(SAMPLERS)}; {REFUSED_SAMPLERS['shuffle']}"
        )
    return SAMPLERS[choice("--sampler", options.sampler, tuple(SAMPLERS))]


def description(options: argparse.Namespace) -> Composable:
    """The run the options describe, however they describe it."""
    given = {name: getattr(options, name) for name in _OF_DATA}
    of_data = {name: value for name, value in given.items() if value is not None and value is not False}
    if options.sampler != "poisson":
        return _otherwise_sampled(options, of_data)
    if options.max_batch_size is not None:
        return _truncated(options, of_data)
    return _of_data(options, of_data) if of_data else _of_rate(options)


def _otherwise_sampled(options: argparse.Namespace, of_data: dict[str, Any]) -> Composable:
    """A run whose batches are no Poisson samples."""
    sampler = _sampler(options)
    for name in ("sampling_probability", "max_batch_size", "examples_per_user"):
        if getattr(options, name) is not None:
            raise ParameterError(
                f"--{name.replace('_', '-')}: not with --sampler {options.sampler}, which takes --dataset-size and --batch-size "
                "and protects one record"
            )
    return sampler.describe(_of_data(options, of_data))


def _truncated(options: argparse.Namespace, of_data: dict[str, Any]) -> Composable:
    """Truncated batches, described by the sampling probability or by sizes."""
    rate, most = options.sampling_probability, options.max_batch_size
    if options.examples_per_user is not None:
        raise ParameterError("--max-batch-size: not with --examples-per-user")
    if not of_data:
        raise ParameterError("--max-batch-size: needs --dataset-size")
    if rate is None or of_data.keys() != {"dataset_size"}:
        return _of_data(options, of_data | {"max_batch_size": most})
    if options.epochs is not None or options.steps is None:
        raise ParameterError("--steps: needed with --sampling-probability; --epochs goes with --batch-size")
    step = TruncatedPoissonSampled(options.noise_multiplier, options.dataset_size, rate, most)
    return step * int(options.steps)


def _of_data(options: argparse.Namespace, of_data: dict[str, Any]) -> DPSGD:
    """A run described by the sizes of its data and batches."""
    if options.sampling_probability is not None:
        other = next(iter(of_data)).replace("_", "-")
        raise ParameterError(
            f"--sampling-probability: not with --{other}; give --dataset-size and --batch-size in its place"
        )
    for name in ("dataset_size", "batch_size"):
        if name not in of_data:
            raise ParameterError(f"--{name.replace('_', '-')}: needed with these options")
    in_epochs = options.epochs is not None or options.sampler in ("random-allocation", "balls-in-bins")
    if options.drop_last and not in_epochs:
        raise ParameterError("--drop-last: needs --epochs; --steps counts every update there is")
    if options.examples_per_user is not None:
        of_data = of_data | {"examples_per_user": options.examples_per_user}
    return dp_sgd(options.noise_multiplier, epochs=options.epochs, steps=options.steps, **of_data)


def _of_rate(options: argparse.Namespace) -> Composable:
    """A run described by the sampling probability, or of all records in each step."""
    if options.epochs is not None:
        raise ParameterError("--epochs: needs --dataset-size and --batch-size; or give --steps")
    if options.steps is None:
        raise ParameterError("--steps: how many steps? (or --epochs with --dataset-size)")
    step: Step = Gaussian(options.noise_multiplier)
    if options.sampling_probability is not None:
        step = PoissonSampled(step, options.sampling_probability)
    if options.examples_per_user is not None:
        step = UserLevel(step, options.examples_per_user)
    return step * int(options.steps)


def add_report_options(command: argparse.ArgumentParser) -> None:
    """How the answer is given, where one guarantee is asked for."""
    answer = command.add_argument_group("the report")
    answer.add_argument(
        "--statement",
        action="store_true",
        help="a paragraph for a paper, and what it means to who is attacked",
    )
    answer.add_argument("--report", metavar="FILE", help="write a report, FILE.html, FILE.tex or FILE.json")
    answer.add_argument(
        "--certificate",
        metavar="FILE",
        help="write what `hockeystick verify FILE` accepts; takes up to minutes",
    )


def check_report(options: argparse.Namespace) -> str | None:
    """The ending of the report's file, None where none is asked for; refuses files that cannot be written."""
    ending = None if options.report is None else Path(options.report).suffix
    if ending not in (None, ".html", ".tex", ".json"):
        raise ParameterError(f"--report: {options.report!r} must end in .html, .tex or .json")
    for name in ("report", "certificate"):
        if (path := getattr(options, name)) is not None:
            check_target(f"--{name}", path)
    if ending is not None and options.certificate == options.report:
        raise ParameterError(f"--certificate {options.certificate}: must be another file than the report's")
    return ending


def print_report(
    found: PrivacyProfile,
    options: argparse.Namespace,
    delta: float | None = None,
    epsilon: float | None = None,
) -> None:
    """What `epsilon` and `delta` print."""
    ending = check_report(options)
    report = found.report(delta, epsilon, risks=options.statement or options.json or ending is not None)
    if options.json:
        print(report.to_json())
    elif options.statement:
        print(report.statement())
    else:
        print(report.details)
        for name, answer, at, point in report.answers():
            print_bounds(name, answer, f"{at} = {point!r}")
        print(f"adjacency: {report.adjacency} ({report.unit})")
    finish(report, options)


def finish(report: Report, options: argparse.Namespace) -> None:
    """Write the report's file, and say what looks like a slip."""
    if (ending := check_report(options)) is not None:
        write = {".html": report.to_html, ".tex": report.to_latex, ".json": report.to_json}[ending]
        Path(options.report).write_text(write(), encoding="utf-8")
        print(f"wrote {options.report}", file=sys.stderr)
    if options.certificate is not None:
        Path(options.certificate).write_text(report.certificate(), encoding="utf-8")
        print(f"wrote {options.certificate}", file=sys.stderr)
    print_notes(report.notes)


def print_notes(notes: Iterable[str]) -> None:
    """Remarks go beside what a program reads."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


def print_bounds(name: str, bounds: Bounds | Answer, at: str) -> None:
    """Both bounds on a quantity, the upper one rounded up and the lower one down."""
    print(f"{name} <= {round_up(bounds.upper, 8)} at {at}")
    print(f"{name} >= {round_down(bounds.lower, 8)} (lower bound, shows the tightness)")


class Sampler(NamedTuple):
    """The adjacency that fits it, and what a run is whose sizes are those of a Poisson-sampled one."""

    adjacency: str
    describe: Callable[[DPSGD], Composable]


def _fixed(sampled: type[WithoutReplacement | WithReplacement]) -> Callable[[DPSGD], Composable]:
    """Batches of exactly the size that is expected of a Poisson sample."""
    return lambda run: (
        sampled(Gaussian(run.noise_multiplier), run.logical_batch, run.dataset_size) * run.steps
    )


def _balls_in_bins(run: DPSGD) -> Composable:
    """One place for each record, the same in every epoch; an epoch that was begun is covered whole."""
    bins = run.steps_per_epoch
    steps = -(-run.steps // bins) * bins
    if not steps:
        return Process()
    whole = BandMF(Identity(steps), BallsInBins(steps, bins), run.noise_multiplier)
    ((said, _),) = whole.as_process().given
    begun = f"the first {run.steps} steps of {whole}"
    return whole if steps == run.steps else replace(narrowed(said, Dominated), run=begun, steps=run.steps)


SAMPLERS = {
    "poisson": Sampler("add_or_remove", lambda run: run),
    "random-allocation": Sampler("add_or_remove", lambda run: replace(run, sampler="random_allocation")),
    "balls-in-bins": Sampler("add_or_remove", _balls_in_bins),
    "without-replacement": Sampler("replace_one", _fixed(WithoutReplacement)),
    "with-replacement": Sampler("replace_one", _fixed(WithReplacement)),
}
