"""BandMF's privacy loss in NumPy: all samples in one array, one step of the recursion after the other.

The laws here are those of one example (or one user); `columns` is what Strategy._columns() returns.
Recursions are those of Dong and Ganesh 2026, written in logarithms.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import comb
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Law(Protocol):
    """How often the example takes part in each step, and the likelihood ratio that follows."""

    @property
    def steps(self) -> int: ...

    def draw(self, rng: np.random.Generator, samples: int) -> Array:
        """Participations, (samples, steps)."""

    def log_ratio(self, terms: Terms) -> Array:
        """ln P/Q of each sample."""


@dataclass(frozen=True)
class Terms:
    """The sliding products <c_i, y> (samples, steps), the squared column norms and sigma^2."""

    products: Array
    squares: Array
    variance: float

    def at(self, i: int, times: float = 1.0) -> Array:
        """ln of N(times c_i, sigma^2 I) / N(0, sigma^2 I)."""
        return (times * self.products[:, i] - 0.5 * times**2 * self.squares[i]) / self.variance


def terms(outputs: Array, columns: Array, sigma: float) -> Terms:
    samples, steps = outputs.shape
    products, squares = np.zeros((samples, steps)), np.zeros(steps)
    for offset in range(columns.shape[1]):
        kept = steps - offset
        column = columns[:, offset] if len(columns) == 1 else columns[:kept, offset]
        products[:, :kept] += column * outputs[:, offset:]
        squares[:kept] += np.square(column)
    return Terms(products, squares, sigma**2)


@dataclass(frozen=True)
class MinSep:
    """b-min-sep sampling (Algorithms 1 and 2; `examples` > 1: Theorem 6.1's law). min_sep = 1 is Poisson."""

    steps: int
    min_sep: int
    probability: float
    warm_start: bool = False
    examples: int = 1

    def draw(self, rng: np.random.Generator, samples: int) -> Array:
        x = np.zeros((samples, self.steps))
        free = np.zeros(samples, dtype=np.int64)  # the first step the example may take part in
        if self.warm_start:
            available = rng.random(samples) < 1.0 / (1.0 + (self.min_sep - 1) * self.probability)
            last = rng.integers(1, self.min_sep, samples) if self.min_sep > 1 else 0
            free = np.where(available, 0, self.min_sep - last)
        for i in range(self.steps):
            x[:, i] = np.where(free <= i, rng.binomial(self.examples, self.probability, samples), 0)
            free = np.where(x[:, i] > 0, i + self.min_sep, free)
        return x

    def log_ratio(self, terms: Terms) -> Array:
        n, k, p = self.steps, self.examples, self.probability
        with np.errstate(divide="ignore"):
            weights = [np.log(comb(k, j) * p**j * (1.0 - p) ** (k - j)) for j in range(k + 1)]
        f = np.zeros((n + self.min_sep, terms.products.shape[0]))
        for i in reversed(range(n)):
            f[i] = weights[0] + f[i + 1]
            for j in range(1, k + 1):
                f[i] = np.logaddexp(f[i], weights[j] + terms.at(i, j) + f[i + self.min_sep])
        if not self.warm_start:
            return f[0]
        total = f[0]
        for i in range(1, self.min_sep):
            total = np.logaddexp(total, np.log(p) + f[i])
        return np.asarray(total - np.log1p((self.min_sep - 1) * p))


@dataclass(frozen=True)
class Phases:
    """The example takes part in steps j, j + period, ..., each with `probability`.

    `phase` None: j is uniform (balls-in-bins at probability 1); a number: cyclic Poisson's worst case
    is phase 0.
    """

    steps: int
    period: int
    probability: float = 1.0
    phase: int | None = None

    def draw(self, rng: np.random.Generator, samples: int) -> Array:
        phase = rng.integers(0, self.period, samples) if self.phase is None else np.full(samples, self.phase)
        turn = np.arange(self.steps)[None, :] % self.period == phase[:, None]
        return np.asarray(turn & (rng.random((samples, self.steps)) < self.probability), dtype=np.float64)

    def log_ratio(self, terms: Terms) -> Array:
        with np.errstate(divide="ignore"):
            absent, present = np.log1p(-self.probability), np.log(self.probability)
        ratios = np.zeros((self.period, terms.products.shape[0]))
        for i in range(self.steps):
            ratios[i % self.period] += np.logaddexp(absent, present + terms.at(i))
        if self.phase is not None:
            return np.asarray(ratios[self.phase])
        return np.asarray(np.logaddexp.reduce(ratios, axis=0) - np.log(self.period))


@dataclass(frozen=True)
class Mechanism:
    """A BandMF mechanism with the block interface of the core's."""

    columns: Any
    law: Law
    sigma: float
    block_size: int = 1024

    @cached_property
    def no_participation_log_probability(self) -> float:
        """ln of the likelihood ratio where the example never takes part, which is its minimum."""
        steps = self.law.steps
        nothing = Terms(np.full((1, steps), -np.inf), np.zeros(steps), 1.0)
        return float(self.law.log_ratio(nothing)[0])

    def privacy_loss(self, outputs: Array) -> Array:
        """ln P/Q at each row."""
        return self.law.log_ratio(terms(outputs, self.columns, self.sigma))

    def outputs(self, rng: np.random.Generator, samples: int, direction: str) -> Array:
        """Samples of P ("remove") or of Q ("add")."""
        y = self.sigma * rng.standard_normal((samples, self.law.steps))
        if direction == "remove":
            x = self.law.draw(rng, samples)
            for offset in range(self.columns.shape[1]):
                kept = self.law.steps - offset
                column = self.columns[:, offset] if len(self.columns) == 1 else self.columns[:kept, offset]
                y[:, offset:] += column * x[:, :kept]
        return y

    def _blocks(self, direction: str) -> Blocks:
        return Blocks(self, direction)


@dataclass(frozen=True)
class Blocks:
    """Independent blocks of samples: block i of a seed is the same whoever asks."""

    mechanism: Mechanism
    direction: str

    @property
    def block_size(self) -> int:
        return self.mechanism.block_size

    def losses(self, seed: int, first_block: int, blocks: int) -> Array:
        found = []
        for block in range(first_block, first_block + blocks):
            rng = np.random.Generator(np.random.Philox(key=[seed, block]))
            loss = self.mechanism.privacy_loss(self.mechanism.outputs(rng, self.block_size, self.direction))
            found.append(loss if self.direction == "remove" else -loss)
        return np.concatenate(found) if found else np.zeros(0)

    def delta_sums(self, seed: int, epsilons: Array, first_block: int, blocks: int) -> tuple[Array, Array]:
        losses = self.losses(seed, first_block, blocks).reshape(blocks, -1)
        with np.errstate(over="ignore"):
            values = [np.maximum(0.0, -np.expm1(epsilon - losses)) for epsilon in np.atleast_1d(epsilons)]
        table = np.array(values).reshape(-1, blocks, self.block_size)
        return table.sum(axis=2), np.square(table).sum(axis=2)
