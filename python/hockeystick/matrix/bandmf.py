"""BandMF: DP-SGD with noise that is correlated across iterations, on batches that are sampled.

The output is C x + noise (one-dimensional, by Lemma 4.5 of Choquette-Choo et al. 2023), C the strategy
matrix, x the participations of one example under the sampling scheme: P; Q is the same without the example.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import _core
from .._base.randomness import Seed
from .._base.validation import ParameterError, choice, instance, integer, real, reals
from ..mechanisms.descriptions import Composable, Process, set_fields
from ..mechanisms.runs import Dominated
from ..sampling.batches import BatchSampler
from ..sampling.laws import Law
from . import buffered  # noqa: F401 - kinds that files of mechanisms may name
from .scheme import Scheme
from .strategy import Strategy

_NOISE = "noise multiplier of BandMF = standard deviation of the noise that is added to strategy times sums of batches / clipping norm"
_SOURCE = "docs/matrix/bandmf.md, What is guaranteed (BandMF as a composition)"

DIRECTIONS = ("remove", "add", "replace_one")

_Sampler = TypeVar("_Sampler")

Components: TypeAlias = tuple[tuple[float, int, float, float], ...]
"""Of a proposal of importance sampling: weight, order, theta and shift of each."""


@dataclass(frozen=True)
class BandMF(Composable):
    """A matrix mechanism: ``strategy`` C, batches by ``scheme``, noise N(0, noise_multiplier^2) per iteration.

    C x + noise is released, x the number of the protected examples in each batch; clipping norm 1. The strategy
    and the scheme have the same number of steps; the strategy has at most as many bands as the scheme's minimum
    separation (`RMinSep` and `BallsInBins`: any number). ``noise_multiplier`` > 0.

    >>> from hockeystick import BMinSep, BandedToeplitz
    >>> mechanism = BandMF(BandedToeplitz.square_root(100, 4), BMinSep(100, 4, 0.05), noise_multiplier=1.0)
    >>> mechanism.sample_losses(3, seed=1).shape
    (3,)

    With `CyclicPoisson` batches, or with `Poisson` ones and a single band, it is a composition of sampled
    Gaussians, which `account`, the calibrations and ``+`` take as any other:

    >>> from hockeystick import CyclicPoisson, account
    >>> cyclic = BandMF(BandedToeplitz.square_root(100, 4), CyclicPoisson(100, 4, 0.2), noise_multiplier=1.0)
    >>> 10.4 < account(cyclic).epsilon(1e-5) < 10.5
    True
    """

    strategy: Strategy
    scheme: Scheme
    noise_multiplier: float
    _samplers: dict[str, _core.LossSampler] = field(
        default_factory=dict, init=False, repr=False, compare=False, hash=False
    )
    _proposals: dict[Components, _core.TiltedSampler] = field(
        default_factory=dict, init=False, repr=False, compare=False, hash=False
    )

    def __post_init__(self) -> None:
        kinds: tuple[tuple[str, type], ...] = (("strategy", Strategy), ("scheme", Scheme))
        for name, kind in kinds:
            instance(name, getattr(self, name), kind, f"a {kind.__name__}")
        sigma = real("noise_multiplier", self.noise_multiplier, 0.0, open_low=True)
        steps, bands, most = self.strategy.steps, self.strategy.bands, self.scheme.largest_bands()
        if steps != self.scheme.steps:
            raise ParameterError(f"scheme.steps = {self.scheme.steps}: must be strategy.steps = {steps}")
        if bands > most:
            raise ParameterError(
                f"strategy.bands = {bands}: must be an integer in [1, {most}] for {self.scheme!r}, "
                "whose participations would overlap"
            )
        set_fields(self, noise_multiplier=sigma)

    @property
    def is_analytic(self) -> bool:
        """Whether `account` answers it: participations meet different rows of the output, each with its own coin; or
        `BallsInBins` batches, whole epochs and independent noise."""
        return self.scheme.has_composition(self.strategy)

    def is_certified(self, adjacency: str) -> bool:
        """Whether `account` answers it under this adjacency."""
        if not self.is_analytic:
            return False
        try:
            for step, _ in self.as_process():
                step.check_adjacency(adjacency)
        except ParameterError:
            return False
        return True

    def as_process(self) -> Process:
        """Return the composition of sampled Gaussians that dominates it; see `cyclic_poisson`, `RandomAllocation`.

        What `account` says is about that composition: upper ends hold for the mechanism; lower ends, but for the 1e-12 (and the
        ``excess`` of the strategy) by which it has larger norms than C, where one group of examples has it all, as with Toeplitz strategies.

        Raises ParameterError where the scheme correlates participations: that needs sampled privacy losses,
        `calibrate_bandmf` or `estimate_delta`. What is printed of it, and reported, is the mechanism itself.
        """
        found, said = self.scheme.composition(self.strategy, self.noise_multiplier), self.scheme.words()
        if not said:
            return found
        kept = "all others staying in their groups" if self.scheme.regroups() else ""
        return Dominated(repr(self), found, self.scheme.steps, _NOISE, said, _SOURCE, kept).as_process()

    def batches(
        self,
        dataset_size: int | None = None,
        seed: Seed = None,
        shard: tuple[int, int] = (0, 1),
        **options: Any,
    ) -> BatchSampler:
        """Return the batches of its scheme: ``scheme.batches``, to which ``options`` go too."""
        return self.scheme.batches(dataset_size, seed, shard, **options)

    def _batch_law(self) -> Law:
        return self.scheme._batch_law()

    def __reduce__(self) -> tuple[Any, ...]:
        # Other processes make samplers of their own.
        return BandMF, (self.strategy, self.scheme, self.noise_multiplier)

    @property
    def no_participation_log_probability(self) -> float:
        """ln p_0: H_{e^eps}(Q||P) = 0 for eps >= -ln p_0; see `Scheme.no_participation_log_probability`."""
        return self.scheme.no_participation_log_probability()

    def worst_cases(self) -> tuple[BandMF, ...]:
        """Return the mechanisms whose largest delta is the guarantee: usually only this one.

        More than one for `MultiAttributionBMinSep`: each number of examples of a user, at most 64 (else ParameterError).
        """
        return tuple(BandMF(self.strategy, case, self.noise_multiplier) for case in self.scheme.worst_cases())

    def privacy_loss(self, outputs: ArrayLike, public_counts: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return ln P(y)/Q(y) of each row y of ``outputs``.

        ``outputs`` has shape (m, steps), the result (m,). For `TruncatedBMinSep` the densities are those given
        ``public_counts``, the numbers r_i >= 0 of other examples sampled per round, of the same shape. For
        `RMinSep` it is an upper bound on ln P/Q. Raises for values that are not finite. Losses agree with exact
        arithmetic to about 1e-13 times (1 + the largest exponent that occurs).
        """
        values = self._rows("outputs", outputs, -np.inf)
        if self.scheme.truncates:
            if public_counts is None:
                raise ParameterError("public_counts = None: TruncatedBMinSep needs the numbers r_i")
            counts = self._rows("public_counts", public_counts, 0.0)
            if counts.shape != values.shape:
                raise ParameterError(
                    f"public_counts: must have the shape {values.shape} of outputs, not {counts.shape}"
                )
        elif public_counts is not None:
            raise ParameterError(f"public_counts: {type(self.scheme).__name__} has none")
        else:
            counts = np.empty((0, 0))
        return self._blocks("remove").evaluate(self.scheme.seen_outputs(self.strategy, values), counts)

    def sample_losses(self, samples: int, seed: int, direction: str = "remove") -> NDArray[np.float64]:
        """Return the losses of ``samples`` independent outputs.

        ``direction="remove"``: y ~ P, loss ln P/Q; ``"add"``: y ~ Q, loss ln Q/P; ``"replace_one"``: y ~ P, loss ln P(y)/P(-y), another
        example in the place of the first (docs/montecarlo/replacement.md). The same ``seed`` in [0, 2^64) gives the same losses on any number
        of threads; more samples continue fewer. "remove" and "add" use different random numbers.
        """
        count = integer("samples", samples)
        key = integer("seed", seed, 0, 2**64 - 1)
        choice("direction", direction, DIRECTIONS)
        if direction == "replace_one":  # users have no such pair
            choice("direction", direction, self.scheme.adjacencies())
        core = self._blocks(direction)
        blocks = -(-count // core.block_size)
        return core.losses(key, 0, blocks)[:count]

    def _described(self) -> _core.MatrixMechanism:
        """The mechanism as the core takes it."""
        return _core.MatrixMechanism(
            *self.scheme.seen_as(self.strategy), self.scheme._core(), self.noise_multiplier
        )

    def _blocks(self, direction: str) -> _core.LossSampler:
        """Return the sampler of whole blocks in this direction; it depends on the description only."""
        if direction not in self._samplers:
            self._samplers[direction] = self._sampler(_core.LossSampler, direction)
        return self._samplers[direction]

    def _sampler(self, kind: Callable[..., _Sampler], *how: Any) -> _Sampler:
        """A sampler of the core for this mechanism; ParameterError where the core has none."""
        try:
            return kind(self._described(), *how)
        except ValueError as error:
            raise ParameterError(f"{self!r}: {error}") from None

    def _tilted(self, components: Components, cached: bool = True) -> _core.TiltedSampler:
        return self._tilted_given(self._proposals, components, cached)

    def _tilted_given(
        self, known: dict[Components, _core.TiltedSampler], components: Components, cached: bool, *counts: Any
    ) -> _core.TiltedSampler:
        """The same, from those that are ``known``; ``counts``: the largest public count, and the direction."""
        found = known.get(components)  # at once: another thread may clear them
        if found is not None:
            return found
        kind = functools.partial(_core.TiltedSampler, like=next(iter([*known.values()]), None))
        sampler = self._sampler(kind, np.array(components), *counts)
        if cached:
            # The tables are large, and the last one is what is asked for again.
            known.clear()
            known[components] = sampler
        return sampler

    def _rows(self, name: str, values: Any, low: float) -> NDArray[np.float64]:
        array = reals(name, values, low)
        if array.ndim != 2 or array.shape[1] != self.strategy.steps:
            raise ParameterError(f"{name}: must have the shape (m, {self.strategy.steps}), not {array.shape}")
        return np.ascontiguousarray(array)
