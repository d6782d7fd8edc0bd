"""Buffered linear Toeplitz strategies (BLT): C full, noise in memory for a few buffers (docs/matrix/buffered.md).

>>> strategy = BufferedToeplitz(((0.3, 0.9), (0.1, 0.5)), steps=3)
>>> strategy.matrix().round(3)
array([[1.  , 0.  , 0.  ],
       [0.4 , 1.  , 0.  ],
       [0.32, 0.4 , 1.  ]])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .._base.types import Array
from .._base.validation import ParameterError, ParameterTypeError, integer, real, reals
from ..mechanisms.descriptions import set_fields
from .strategies import MAX_STEPS, divided_by_toeplitz
from .strategy import Strategy
from .workload import PREFIX_SUMS, Workload

MOST_BUFFERS = 64
"""*Speed*: three are nearly as good as the best Toeplitz matrix of 1024 steps."""
_BLOCK = 256
"""*Speed*: steps of `correlated_noise` that are solved together."""
_MOST_SEARCHED, _ITERATIONS = 2**17, 200
"""*Speed*: most steps * buffers of a search, and its iterations; each tries one move for every parameter."""
_DIFFERENCE = 1e-6
"""*Speed*: of the parameters, for slopes."""


@dataclass(frozen=True)
class BufferedToeplitz(Strategy):
    """C[i, i] = 1 and C[i, j] = sum over the ``buffers`` (weight, decay) of weight * decay^(i - j - 1) below the diagonal.

    Weights are >= 0 and add up to at most 1, decays are in [0, 1), so that no coefficient is larger than the one before: the sensitivity is
    exact for any separation and number of participations (Kalinin and Lampert 2024, Theorem 2). Rows of noise take one buffer of the model's size for each pair
    instead of ``steps`` of them (Dvijotham, McMahan, Pillutla, Steinke, Thakurta 2024; McMahan, Xu, Zhang 2024). C is full, so that amplification by `Poisson`, `CyclicPoisson`
    and `BMinSep` sampling does not apply (`BandMF` refuses); what does is in docs/matrix/buffered.md, "What is accounted".
    """

    buffers: Sequence[tuple[float, float]] | Array
    steps: int

    _given = "buffers"

    def __post_init__(self) -> None:
        steps = integer("steps", self.steps, 1, MAX_STEPS)
        array = np.asarray(reals("buffers", self.buffers, 0.0), np.float64)
        if array.ndim != 2 or array.shape[1] != 2 or not 1 <= len(array) <= MOST_BUFFERS:
            raise ParameterTypeError(
                f"buffers: must be 1 to {MOST_BUFFERS} pairs (weight, decay), not of shape {array.shape}"
            )
        for i, decay in enumerate(array[:, 1].tolist()):
            real(f"buffers[{i}, 1]", decay, 0.0, 1.0, open_high=True)
        real("sum of the weights of buffers", math.fsum(array[:, 0]), 0.0, 1.0)
        set_fields(self, steps=steps, buffers=tuple((weight, decay) for weight, decay in array.tolist()))

    @classmethod
    def optimized(
        cls,
        steps: int,
        buffers: int,
        min_sep: int | None = None,
        max_participations: int | None = 1,
        workload: Workload = PREFIX_SUMS,
    ) -> BufferedToeplitz:
        """Weights and decays that make sensitivity^2 * mean_squared_error of the ``workload`` small.

        The sensitivity is that of at most ``max_participations`` (None: as many as fit) at least ``min_sep`` apart (None: one participation). Found by L-BFGS
        from decays whose logarithms are evenly spaced; any outcome is a valid strategy. steps * buffers at most 2^17.
        """
        from scipy.optimize import minimize

        steps, buffers = integer("steps", steps, 1, MAX_STEPS), integer("buffers", buffers, 1, MOST_BUFFERS)
        if steps * buffers > _MOST_SEARCHED:
            raise ParameterError(
                f"steps = {steps}: must be at most {_MOST_SEARCHED // buffers} for {buffers} buffers"
            )

        def made(place: Array) -> BufferedToeplitz:
            """Any real numbers: the first half decides the rates 1 - decay, the other the shares of 1 that are weights."""
            grown = [math.exp(max(-30.0, min(30.0, x))) for x in place.tolist()]
            total = 1.0 + math.fsum(grown[buffers:])
            # A hair less than 1: the rounded sum may not exceed it.
            pairs = zip(grown[:buffers], grown[buffers:], strict=True)
            return cls(tuple((w / total * (1.0 - 1e-12), 1.0 / (1.0 + r)) for r, w in pairs), steps)

        def loss(place: Array) -> float:
            strategy = made(place)
            error = strategy.mean_squared_error(1.0, workload)
            return math.log(error) + 2.0 * math.log(
                strategy.sensitivity(min_sep or steps, max_participations)
            )

        rates = np.linspace(math.log(4.0 / steps), 0.0, buffers + 2)[1:-1]
        start = np.concatenate([rates, 0.5 * rates - math.log(1.5 * buffers)])
        options = {"maxiter": _ITERATIONS, "eps": _DIFFERENCE, "maxfun": 10**5}
        found = minimize(loss, start, method="L-BFGS-B", options=options)
        # Rounded, so that the round-off of the search does not reach the result.
        return made(np.round(found.x, 4))

    def first_steps(self, steps: int) -> BufferedToeplitz:
        return BufferedToeplitz(self.buffers, integer("steps", steps, 1, self.steps))

    @property
    def bands(self) -> int:
        """As many as steps: the matrix is full."""
        return self.steps

    def _powers(self, count: int) -> Array:
        """decay^0, ..., decay^(count - 1) of each buffer, shape (buffers, count)."""
        decays = np.array(self.buffers)[:, 1:]
        return np.cumprod(
            np.concatenate([np.ones_like(decays), np.repeat(decays, count - 1, axis=1)], axis=1), axis=1
        )

    def _first(self, count: int) -> Array:
        """The first coefficients of C."""
        coefficients = np.ones(count)
        if count > 1:
            coefficients[1:] = 0.0
            for (weight, _), powers in zip(self.buffers, self._powers(count - 1), strict=True):
                coefficients[1:] += weight * powers
        return coefficients

    def _columns(self) -> Array:
        return self._first(self.steps)[None, :]

    def _stored(self) -> Array:
        return np.array(self.buffers)

    def recurrence(self) -> tuple[Literal["strategy", "inverse", "buffers"], Array]:
        return "buffers", np.array(self.buffers).T

    def _solved(self, right: Array) -> Array:
        """By forward substitution within blocks, by buffers between them."""
        size = min(self.steps, _BLOCK)
        coefficients, powers = self._first(size), self._powers(size + 1)
        out, buffers = np.empty_like(right), np.zeros((len(powers), right.shape[1]))
        for first in range(0, self.steps, size):
            rest = np.array(right[first : first + size])
            count = len(rest)
            for (weight, _), power, kept in zip(self.buffers, powers, buffers, strict=True):
                rest -= weight * power[:count, None] * kept
            rows = out[first : first + count] = divided_by_toeplitz(coefficients[:count], rest)
            for power, kept in zip(powers, buffers, strict=True):
                kept *= power[count]
                kept += (power[:count][::-1, None] * rows).sum(axis=0)
        return out

    def _prefix_errors(self) -> Array:
        return np.cumsum(np.square(self.correlated_noise(np.ones(self.steps))))
