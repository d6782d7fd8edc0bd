"""What every sampling scheme can do: its losses, whom it protects, its batches (docs/montecarlo/estimates.md)."""

from __future__ import annotations

from typing import ClassVar

from .. import _core
from .._base.randomness import Seed
from ..sampling.batches import BatchSampler, Law


class Scheme:
    """A sampling scheme over ``steps`` iterations; the subclasses are frozen and hashable."""

    steps: int

    truncates: ClassVar[bool] = False
    """Whether batches are cut: then what protects an example are the others sampled, whose numbers are public."""

    def largest_bands(self) -> int:
        """Return how many bands a strategy may have at most: participations must not overlap."""
        raise NotImplementedError

    def no_participation_log_probability(self) -> float:
        """Return ln p_0, p_0 the probability that an example never takes part, rounded down; -inf for p_0 = 0.

        Where Q is the output without the example, ln P/Q >= ln p_0 everywhere, so H_{e^eps}(Q||P) = 0 for
        eps >= -ln p_0. For `TruncatedBMinSep`, whose Q is a mixture too, there is no such bound: -inf.
        """
        raise NotImplementedError

    def worst_cases(self) -> tuple[Scheme, ...]:
        """Return the schemes whose largest divergence is the guarantee; usually only the scheme itself."""
        return (self,)

    def examples_of_users(self) -> int | None:
        """Return how many examples a user may have, where users are what is protected; None: single examples are."""
        return None

    def losses_are_exact(self, bands: int) -> bool:
        """Return whether losses under a strategy of so many bands are exact, and not only bounds that make delta larger."""
        return True

    def unamplified(self) -> tuple[int, int]:
        """Return the least distance of two participations, and how far the input of one step may move."""
        return self.largest_bands(), self.examples_of_users() or 1

    def cyclic_rate(self) -> float | None:
        """Return the participation rate with which cyclic Poisson sampling may stand in for it; None if it may not."""
        return None

    def half_space_width(self, bands: int) -> int | None:
        """Return how many numbers per step the search for a half space takes; None where there is no such search."""
        return bands + 1

    @property
    def only_zero_out(self) -> bool:
        """Whether "zero_out" is the only adjacency: users are protected, or an example changes which others are kept."""
        return self.truncates or self.examples_of_users() is not None

    def unit(self) -> str | None:
        """Return what neighbouring datasets differ in, in words, where users are protected; None: in an example."""
        examples = self.examples_of_users()
        if examples is None:
            return None
        return (
            f"all examples of one user, at most {examples}, are replaced by null records that contribute nothing; "
            "which example belongs to whom is public"
        )

    def batches(
        self,
        dataset_size: int | None = None,
        seed: Seed = None,
        shard: tuple[int, int] = (0, 1),
        *,
        pad: bool = False,
    ) -> BatchSampler:
        """Return the batches of a run on ``dataset_size`` examples, drawn by this scheme; see `BatchSampler`.

        ``dataset_size`` may be left out where the scheme has one. ``pad`` fills batches up to ``max_batch_size``.

        >>> from hockeystick import Poisson
        >>> sampler = Poisson(steps=3, sampling_probability=0.5).batches(dataset_size=8, seed=1)
        >>> [batch.tolist() for batch in sampler]
        [[4, 5, 6, 7], [0, 2, 3, 4, 6], [0, 1, 3, 4, 5, 7]]
        """
        return BatchSampler(self, self._batch_law(), dataset_size, seed, shard, pad)

    def _batch_law(self) -> Law:
        raise NotImplementedError

    def _core(self) -> _core.Scheme:
        raise NotImplementedError


__all__ = ["Scheme"]
