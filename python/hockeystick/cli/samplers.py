"""How batches may be drawn in a run of DP-SGD, by the names of ``--sampler``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from ..mechanisms.descriptions import Composable, Gaussian, WithoutReplacement, WithReplacement
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


SAMPLERS = {
    "poisson": Sampler("add_or_remove", lambda run: run),
    "random-allocation": Sampler("add_or_remove", lambda run: replace(run, sampler="random_allocation")),
    "without-replacement": Sampler("replace_one", _fixed(WithoutReplacement)),
    "with-replacement": Sampler("replace_one", _fixed(WithReplacement)),
}
