"""Runs that are accounted as compositions which dominate them, in words of their own."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from .._base.validation import ParameterError, Size, instance
from .steps import Items, Release, Step, Words

_Text: TypeAlias = Annotated[str, functools.partial(instance, kind=str)]


@dataclass(frozen=True, repr=False)
class Dominated(Step):
    """A run of ``steps`` noisy sums, described as ``run``; it is accounted as ``composition``, and its words stay with it wherever it goes.

    ``noise`` is what its noise is measured in, ``sampler`` how a record takes part in it, ``source`` where it is proven that the composition
    dominates it, and ``kept`` what stays as it is where a record is added or removed (see `Words`).
    """

    run: _Text
    composition: Release
    steps: Size
    noise: _Text
    sampler: _Text
    source: _Text
    kept: _Text = ""

    def __repr__(self) -> str:
        return self.run

    def parts(self) -> Items:
        """Those of the composition: whatever follows is of these."""
        return self.composition.as_process().items

    def simplified(self) -> Step | None:
        """It has no pair of its own."""
        raise ParameterError(
            f"{self.run}: must be composed, not be a part of one step; Group(..., 1) makes one step of it"
        )

    @property
    def releases(self) -> int:
        """As many as it has steps."""
        return self.steps

    def words(self, adjacency: str) -> Words:
        inner = self.composition.as_process().words(adjacency)
        return inner._replace(noise=self.noise, sampler=self.sampler, reference=self.source, kept=self.kept)
