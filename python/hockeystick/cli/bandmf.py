"""``hockeystick bandmf``: the least noise multiplier of a matrix mechanism that samples can prove to be enough; `plan` shares its options."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from .._base.validation import ParameterError, choice, integer
from ..accounting.plausibility import of_budget
from ..matrix.bandmf import BandMF
from ..matrix.min_sep import BMinSep, TruncatedBMinSep
from ..matrix.scheme import Scheme
from ..matrix.schemes import BallsInBins, CyclicPoisson, Poisson
from ..matrix.strategies import BandedToeplitz
from ..montecarlo.bandmf_calibration import FALLBACKS, calibrate_bandmf
from ..montecarlo.direction import ADJACENCIES
from .dpsgd import add_adjacency, print_notes
from .numbers import real, whole

EXAMPLES = (
    "hockeystick bandmf --steps 1024 --bands 32 --dataset-size 50000 --batch-size 100 --epsilon 4 --delta 1e-3",
)

_STRATEGIES: dict[str, Callable[[int, int], BandedToeplitz]] = {
    "optimized": BandedToeplitz.optimized,
    "square-root": BandedToeplitz.square_root,
}


class _Kind(NamedTuple):
    """A scheme: the ``probability`` of an available record at an overall rate, and the scheme with a probability."""

    probability: Callable[[float, int], float] | None
    make: Callable[[argparse.Namespace, int, float], Scheme]


def _of_available(rate: float, min_sep: int) -> float:
    """So that the batch size of all take part, although some wait."""
    waiting = rate * (min_sep - 1)
    return rate / (1.0 - waiting) if waiting < 1.0 else math.inf


def _if_cut(options: argparse.Namespace) -> int | None:
    """The number of records, where it matters which batches are too large."""
    if options.max_batch_size is not None and options.dataset_size is None:
        raise ParameterError("--max-batch-size: needs --dataset-size")
    return None if options.max_batch_size is None else options.dataset_size


def _b_min_sep(options: argparse.Namespace, min_sep: int, probability: float) -> Scheme:
    size, warm_start = _if_cut(options), not options.cold_start
    if size is None:
        return BMinSep(options.steps, min_sep, probability, warm_start, options.examples_per_user)
    if options.examples_per_user != 1:
        raise ParameterError("--max-batch-size: not with --examples-per-user")
    return TruncatedBMinSep(options.steps, min_sep, probability, size, options.max_batch_size, warm_start)


_SCHEMES = {
    "b-min-sep": _Kind(_of_available, _b_min_sep),
    "cyclic-poisson": _Kind(
        lambda rate, sep: rate * sep,
        lambda o, sep, q: CyclicPoisson(o.steps, sep, q, None, _if_cut(o), o.max_batch_size),
    ),
    "balls-in-bins": _Kind(None, lambda o, sep, _: BallsInBins(o.steps, sep)),
    "poisson": _Kind(lambda rate, _: rate, lambda o, _, q: Poisson(o.steps, q)),
}


def add_options(command: argparse.ArgumentParser) -> None:
    command.description = (
        "The least noise multiplier that Monte Carlo samples can prove to be enough (estimate, verify, release), "
        "and the mean squared error of the prefix sums. Runs as long as the budget asks for, about 100 / delta samples per "
        "candidate, fewer for a small delta; with --checkpoint it can be interrupted and resumed."
    )
    command.add_argument("--epsilon", type=real, required=True)
    command.add_argument("--delta", type=real, required=True)
    command.add_argument("--steps", type=whole, required=True, help="noisy updates")
    strategy = command.add_argument_group("the strategy matrix")
    strategy.add_argument(
        "--bands", type=whole, default=1, help="of the strategy (default: 1, independent noise)"
    )
    strategy.add_argument("--strategy", help=f"{', '.join(_STRATEGIES)} (default: {next(iter(_STRATEGIES))})")
    scheme = command.add_argument_group("how batches are drawn")
    scheme.add_argument("--scheme", default="b-min-sep", help=f"{', '.join(_SCHEMES)} (default: b-min-sep)")
    scheme.add_argument(
        "--min-sep", type=whole, help="steps between participations (default: --bands); poisson has none"
    )
    scheme.add_argument("--cold-start", action="store_true", help="b-min-sep: everyone is available at first")
    scheme.add_argument(
        "--examples-per-user",
        type=whole,
        default=1,
        help="b-min-sep: protect users who own so many records at most, shared in any way (a plan needs to know who "
        "owns what: plan_training)",
    )
    scheme.add_argument("--sampling-probability", type=real, help="of an available record, per step")
    scheme.add_argument("--dataset-size", type=whole)
    scheme.add_argument("--batch-size", type=whole, help="expected, instead of --sampling-probability")
    scheme.add_argument(
        "--max-batch-size", type=whole, help="b-min-sep, cyclic-poisson: cut larger batches at random"
    )
    run = command.add_argument_group("the run")
    add_adjacency(run, ADJACENCIES[0], names=ADJACENCIES)
    run.add_argument(
        "--samples", type=whole, help="per candidate and direction (default: what delta / 2 takes)"
    )
    run.add_argument("--fallback", help=f"{', '.join(FALLBACKS)} (default: {FALLBACKS[0]})")
    run.add_argument("--seed", type=whole, help="choose it beforehand (default: from the operating system)")
    run.add_argument("--checkpoint", metavar="DIRECTORY", help="where to keep what is done, and to resume")
    run.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> None:
    if options.dataset_size is not None and options.batch_size is None and options.max_batch_size is None:
        raise ParameterError("--dataset-size: goes with --batch-size or --max-batch-size")
    what = matrix(options)
    what[1].check_groups(options.adjacency)
    found = calibrate_bandmf(*what, options.epsilon, options.delta, seed=options.seed, **calibration(options))
    print_notes(of_budget(options.epsilon, options.delta, options.dataset_size))
    if options.json:
        print(found.to_json())
        return
    print_noise(found.noise_multiplier, found.mean_squared_error)
    print(f"draw batches from {found.mechanism.scheme!r}")
    print(found.statement())


def calibration(options: argparse.Namespace) -> dict[str, Any]:
    """How to calibrate, for `calibrate_bandmf` and `plan_training` alike."""
    given = {name: getattr(options, name) for name in ("adjacency", "samples", "fallback", "checkpoint")}
    return {name: value for name, value in given.items() if value is not None}


def matrix(options: argparse.Namespace) -> tuple[BandedToeplitz, Scheme]:
    """The strategy and the scheme; what is said of samples is refused where none are taken."""
    what = _strategy(options), _scheme(options)
    if BandMF(*what, 1.0).is_certified(options.adjacency):
        for name in ("samples", "fallback", "seed", "checkpoint"):
            if getattr(options, name) is not None:
                raise ParameterError(
                    f"--{name}: goes with Monte Carlo samples, and --scheme {options.scheme} is accounted for without any here"
                )
    return what


def _strategy(options: argparse.Namespace) -> BandedToeplitz:
    names = tuple(_STRATEGIES)
    if options.strategy is not None and options.bands == 1:
        raise ParameterError("--strategy: needs --bands, as with one band the noise is not correlated")
    name = names[0] if options.strategy is None else choice("--strategy", options.strategy, names)
    return _STRATEGIES[name](options.steps, options.bands)


def _scheme(options: argparse.Namespace) -> Scheme:
    name = choice("--scheme", options.scheme, tuple(_SCHEMES))
    if options.cold_start and name != "b-min-sep":
        raise ParameterError("--cold-start: only b-min-sep has it")
    if options.examples_per_user != 1 and name != "b-min-sep":
        raise ParameterError("--examples-per-user: only b-min-sep has it")
    if options.max_batch_size is not None and name not in ("b-min-sep", "cyclic-poisson"):
        raise ParameterError("--max-batch-size: only b-min-sep and cyclic-poisson have it")
    if options.min_sep is not None and name == "poisson":
        raise ParameterError("--min-sep: poisson has none, a record may take part in every step")
    min_sep = options.bands if options.min_sep is None else integer("min_sep", options.min_sep, 1)
    if name == "poisson":
        min_sep = 1
    kind = _SCHEMES[name]
    return kind.make(options, min_sep, _probability(options, kind, min_sep))


def _probability(options: argparse.Namespace, kind: _Kind, min_sep: int) -> float:
    """Of an available record: what was given, or what makes up the expected batch size."""
    given, size = options.sampling_probability, options.batch_size
    if kind.probability is None:
        if given is not None or size is not None:
            raise ParameterError(
                "--scheme balls-in-bins: takes every record once per --min-sep steps; give no rate"
            )
        return 0.0  # it has none
    if (given is None) == (size is None) or (given is None and options.dataset_size is None):
        raise ParameterError("--sampling-probability: give either it or --dataset-size with --batch-size")
    probability: float = given
    if given is None:
        size, records = integer("batch_size", size, 1), integer("dataset_size", options.dataset_size, 1)
        probability = kind.probability(size / records, min_sep)
        if not 0.0 <= probability <= 1.0:
            raise ParameterError(
                f"--batch-size {size}: must be at most --dataset-size / --min-sep = {records / min_sep:g}"
            )
    return probability


def print_noise(noise_multiplier: float, mean_squared_error: float) -> None:
    """What was found, and what it costs."""
    print(f"noise_multiplier = {noise_multiplier!r}")
    print(f"mean squared error of prefix sums = {mean_squared_error:.8g} squared clipping norms")
