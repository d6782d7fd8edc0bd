"""The privacy loss of BandMF by adding up all participation patterns: an oracle for short runs.

Written from the definitions of the sampling schemes (Dong and Ganesh 2026, Algorithms 1 to 3, Theorem
6.1, Corollary D.2; balls-in-bins and cyclic Poisson, Section 3) and from the densities of Gaussians,
nothing else: no recursion over likelihood ratios, no banded structure. A law is a list of (probability,
values), the values being how often (with which factor) the example enters each step.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Law: TypeAlias = list[tuple[float, tuple[float, ...]]]


def poisson(steps: int, p: float) -> Law:
    """Each step independently with probability p."""
    return [
        (math.prod(p if taken else 1.0 - p for taken in pattern), tuple(map(float, pattern)))
        for pattern in itertools.product((0, 1), repeat=steps)
    ]


def cyclic_poisson(steps: int, period: int, p: float) -> Law:
    """The example is in the first part of the data: it may enter steps 1, period + 1, ..., each with p."""
    turns = range(0, steps, period)
    law = []
    for taken in itertools.product((0, 1), repeat=len(turns)):
        values = [0.0] * steps
        for turn, one in zip(turns, taken, strict=True):
            values[turn] = float(one)
        law.append((math.prod(p if one else 1.0 - p for one in taken), tuple(values)))
    return law


def balls_in_bins(steps: int, period: int) -> Law:
    """One uniform bin; the example enters that step of every epoch."""
    return _merged(
        (1.0 / period, tuple(float(i % period == bin_) for i in range(steps))) for bin_ in range(period)
    )


def min_sep(steps: int, separation: int, p: float, warm_start: bool = False) -> Law:
    """Algorithm 1, or Algorithm 2: the virtual history is part of the pattern and then forgotten."""
    b = separation
    starts: list[tuple[float, list[int]]] = [(1.0, [0] * (b - 1))]
    if warm_start:
        never = 1.0 / (1.0 + (b - 1) * p)
        starts = [(never, [0] * (b - 1))]
        for s in range(1, b):
            history = [0] * (b - 1)
            history[b - 1 - s] = 1  # took part in step 1 - s; the last entry is step 0
            starts.append(((1.0 - never) / (b - 1), history))
    law: list[tuple[float, tuple[float, ...]]] = []
    for weight, history in starts:
        for pattern in itertools.product((0, 1), repeat=steps):
            line, probability = [*history, *pattern], weight
            for i in range(b - 1, b - 1 + steps):
                excluded = any(line[max(0, i - b + 1) : i])
                if line[i]:
                    probability *= 0.0 if excluded else p
                elif not excluded:
                    probability *= 1.0 - p
            law.append((probability, tuple(map(float, pattern))))
    return _merged(law)


def multi_attribution(steps: int, separation: int, p: float, examples: int) -> Law:
    """Theorem 6.1: 0 after a participation in the last separation - 1 steps, otherwise Binomial(examples, p)."""
    weights = [math.comb(examples, j) * p**j * (1.0 - p) ** (examples - j) for j in range(examples + 1)]
    law: Law = []

    def extend(probability: float, values: tuple[int, ...]) -> None:
        if len(values) == steps:
            law.append((probability, tuple(map(float, values))))
        elif any(values[max(0, len(values) - separation + 1) :]):
            extend(probability, (*values, 0))
        else:
            for j, weight in enumerate(weights):
                extend(probability * weight, (*values, j))

    extend(1.0, ())
    return _merged(law)


def isolated_user(steps: int, separation: int, p: float, examples: int) -> Law:
    """Algorithm 3 for a user who shares no example: whoever is sampled blocks, whether it takes part or not."""
    weights = [math.comb(examples, j) * p**j * (1.0 - p) ** (examples - j) for j in range(examples + 1)]
    law: Law = []
    for sampled in itertools.product(range(examples + 1), repeat=steps):
        probability = math.prod(weights[j] for j in sampled)
        values = [
            0.0 if any(sampled[max(0, i - separation + 1) : i]) else float(j) for i, j in enumerate(sampled)
        ]
        law.append((probability, tuple(values)))
    return _merged(law)


def together(law: Law, examples: int) -> Law:
    """So many examples, each with this law, independent of each other: how many of them are in each step."""
    joint: Law = [(1.0, (0.0,) * len(law[0][1]))]
    for _ in range(examples):
        joint = _merged(
            (weight * share, tuple(a + b for a, b in zip(values, pattern, strict=True)))
            for weight, values in joint
            for share, pattern in law
        )
    return joint


def truncated(law: Law, others: Sequence[int], max_batch_size: int, full: float, cut: float) -> Law:
    """Corollary D.2 given the other examples' counts r: where r >= max_batch_size, a sampled example
    survives with probability max_batch_size / (r + 1) and then counts ``cut``; elsewhere it counts ``full``.

    P: full 1, cut 2. Q: full 0, cut -1.
    """
    outcomes: Law = []
    for probability, pattern in law:
        partial: Law = [(probability, ())]
        for value, r in zip(pattern, others, strict=True):
            if not value:
                partial = [(weight, (*values, 0.0)) for weight, values in partial]
            elif r < max_batch_size:
                partial = [(weight, (*values, full)) for weight, values in partial]
            else:
                survives = max_batch_size / (r + 1)
                partial = [
                    (weight * share, (*values, counts))
                    for weight, values in partial
                    for share, counts in ((survives, cut), (1.0 - survives, 0.0))
                ]
        outcomes += partial
    return _merged(outcomes)


def _merged(law: object) -> Law:
    weights: defaultdict[tuple[float, ...], list[float]] = defaultdict(list)
    for probability, values in law:  # type: ignore[attr-defined]
        if probability:
            weights[values].append(probability)
    merged = [(math.fsum(parts), values) for values, parts in weights.items()]
    assert math.isclose(math.fsum(p for p, _ in merged), 1.0, rel_tol=1e-12)
    return merged


def log_ratio(law: Law, matrix: Array, noise_multiplier: float, outputs: Array) -> Array:
    """ln of the mixture's density over N(0, noise_multiplier^2 I), at each row of ``outputs``."""
    return _log_sum(law, matrix, noise_multiplier, outputs, cross_terms=True)


def upper_log_ratio(law: Law, matrix: Array, noise_multiplier: float, outputs: Array) -> Array:
    """Lemma B.1's bound: ||C x||^2 without the products of different columns."""
    return _log_sum(law, matrix, noise_multiplier, outputs, cross_terms=False)


def _log_sum(law: Law, matrix: Array, noise_multiplier: float, outputs: Array, cross_terms: bool) -> Array:
    values = np.array([pattern for _, pattern in law])
    logs = np.log([probability for probability, _ in law])
    means = values @ matrix.T
    squares = (means**2).sum(axis=1) if cross_terms else values**2 @ (matrix**2).sum(axis=0)
    exponents = logs + (outputs @ means.T - 0.5 * squares) / noise_multiplier**2
    largest = exponents.max(axis=1)
    return np.asarray(largest + np.log(np.exp(exponents - largest[:, None]).sum(axis=1)))


def loss(p: Law, q: Law, matrix: Array, noise_multiplier: float, outputs: Array) -> Array:
    """ln P/Q for two mixtures."""
    return log_ratio(p, matrix, noise_multiplier, outputs) - log_ratio(q, matrix, noise_multiplier, outputs)


def outputs(
    law: Law, matrix: Array, noise_multiplier: float, samples: int, rng: np.random.Generator
) -> Array:
    """Samples of the mixture."""
    chosen = rng.choice(len(law), size=samples, p=[probability for probability, _ in law])
    values = np.array([pattern for _, pattern in law])[chosen]
    return np.asarray(values @ matrix.T + noise_multiplier * rng.standard_normal((samples, len(matrix))))
