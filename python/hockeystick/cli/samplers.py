"""How batches may be drawn in a run of DP-SGD, by the names of ``--sampler``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from ..matrix.bandmf import BandMF
from ..matrix.schemes import BallsInBins
from ..matrix.strategies import Identity
from ..mechanisms.descriptions import Composable, Gaussian, Process, WithoutReplacement, WithReplacement
from ..mechanisms.dpsgd import DPSGD


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
    return BandMF(Identity(steps), BallsInBins(steps, bins), run.noise_multiplier) if steps else Process()


SAMPLERS = {
    "poisson": Sampler("add_or_remove", lambda run: run),
    "random-allocation": Sampler("add_or_remove", lambda run: replace(run, sampler="random_allocation")),
    "balls-in-bins": Sampler("add_or_remove", _balls_in_bins),
    "without-replacement": Sampler("replace_one", _fixed(WithoutReplacement)),
    "with-replacement": Sampler("replace_one", _fixed(WithReplacement)),
}
