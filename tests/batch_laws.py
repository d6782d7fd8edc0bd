"""The laws of whole runs of batches, by adding up what the algorithms can do: an oracle for few examples and steps.

Written from the descriptions (Dong and Ganesh 2026, Algorithms 1 to 4 and Appendix D; Ganesh 2025, Algorithm 1), with all
outcomes enumerated and no shortcut. A run is a tuple of batches, a batch a tuple of examples, a law a dictionary
from runs to probabilities.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from math import comb, prod
from typing import TypeAlias

import numpy as np
from scipy import stats

Batch: TypeAlias = tuple[int, ...]
Run: TypeAlias = tuple[Batch, ...]
Law: TypeAlias = dict[Run, float]


def subsets(examples: Sequence[int], p: float) -> Iterable[tuple[Batch, float]]:
    """Each example with probability p."""
    for taken in itertools.product((False, True), repeat=len(examples)):
        batch = tuple(e for e, one in zip(examples, taken, strict=True) if one)
        yield batch, p ** len(batch) * (1.0 - p) ** (len(examples) - len(batch))


def cut(law: Iterable[tuple[Batch, float]], most: int | None) -> Iterable[tuple[Batch, float]]:
    """Of more than `most` a uniformly random choice."""
    for batch, probability in law:
        if most is None or len(batch) <= most:
            yield batch, probability
        else:
            for kept in itertools.combinations(batch, most):
                yield kept, probability / comb(len(batch), most)


def independent(steps: int, law: Callable[[int], Iterable[tuple[Batch, float]]]) -> Law:
    runs: Law = {(): 1.0}
    for step in range(steps):
        longer: Law = defaultdict(float)
        for run, weight in runs.items():
            for batch, probability in law(step):
                longer[(*run, batch)] += weight * probability
        runs = longer
    return runs


def poisson(n: int, steps: int, p: float, most: int | None = None) -> Law:
    return independent(steps, lambda _: cut(subsets(range(n), p), most))


def cyclic(n: int, steps: int, groups: int, p: float, most: int | None = None) -> Law:
    return independent(steps, lambda i: cut(subsets(range(i % groups, n, groups), p), most))


def without_replacement(n: int, steps: int, size: int) -> Law:
    return independent(
        steps, lambda _: [(kept, 1.0 / comb(n, size)) for kept in itertools.combinations(range(n), size)]
    )


def with_replacement(n: int, steps: int, size: int) -> Law:
    return independent(
        steps,
        lambda _: [(tuple(sorted(d)), float(n) ** -size) for d in itertools.product(range(n), repeat=size)],
    )


def balls_in_bins(n: int, steps: int, bins: int) -> Law:
    law: Law = defaultdict(float)
    for places in itertools.product(range(bins), repeat=n):
        run = tuple(tuple(e for e in range(n) if places[e] == i % bins) for i in range(steps))
        law[run] += float(bins) ** -n
    return law


def min_sep(n: int, steps: int, b: int, p: float, warm: bool, most: int | None = None) -> Law:
    """Algorithms 1 and 2, and Appendix D: who was sampled is barred, even if it was cut."""
    stationary = [(0, 1.0 / (1.0 + (b - 1) * p))] + [(s, p / (1.0 + (b - 1) * p)) for s in range(1, b)]
    starts = itertools.product(stationary, repeat=n) if warm else [((0, 1.0),) * n]
    law: Law = defaultdict(float)

    def go(run: Run, history: list[Batch], weight: float) -> None:
        if len(run) == steps:
            law[run] += weight
            return
        barred = {e for batch in history[len(history) - (b - 1) :] for e in batch}
        for sampled, probability in subsets([e for e in range(n) if e not in barred], p):
            for batch, kept in cut([(sampled, probability)], most):
                go((*run, batch), [*history, sampled], weight * kept)

    for start in starts:
        # history[-s] is the batch of step 1 - s
        history = [tuple(e for e in range(n) if start[e][0] == s) for s in range(b - 1, 0, -1)]
        go((), history, prod(probability for _, probability in start))
    return law


def multi_attribution(
    users: Sequence[set[int]], steps: int, b: int, p: float, *, by_participation: bool = False, ahead: int = 0
) -> Law:
    """Algorithm 3, or 4: every pattern of coins."""
    n = len(users)
    law: Law = defaultdict(float)
    for coins in itertools.product((False, True), repeat=n * (steps + ahead)):
        heads = [[e for e in range(n) if coins[i * n + e]] for i in range(steps + ahead)]
        blocking: list[list[int]] = []
        batches: list[Batch] = []
        for sampled in heads:
            recent = {
                u for before in blocking[max(0, len(blocking) - b + 1) :] for e in before for u in users[e]
            }
            batch = [e for e in sampled if not users[e] & recent]
            batches.append(tuple(batch))
            blocking.append(batch if by_participation else sampled)
        count = sum(coins)
        law[tuple(batches[ahead:])] += p**count * (1.0 - p) ** (len(coins) - count)
    return law


def p_value(law: Law, runs: Sequence[Run]) -> float:
    """Of the chi-square test that the runs have this law; outcomes expected less than 5 times count as one."""
    assert abs(sum(law.values()) - 1.0) < 1e-9
    counts: dict[Run, int] = defaultdict(int)
    for run in runs:
        counts[run] += 1
    assert set(counts) <= {run for run, probability in law.items() if probability > 0.0}
    expected, observed = [], []
    rare_expected = rare_observed = 0.0
    for run, probability in law.items():
        mean = probability * len(runs)
        if mean >= 5.0:
            expected.append(mean)
            observed.append(float(counts[run]))
        else:
            rare_expected += mean
            rare_observed += counts[run]
    if rare_expected > 0.0:
        expected.append(max(rare_expected, 1e-9))
        observed.append(rare_observed)
    assert len(expected) > 3
    statistic = float(np.sum((np.array(observed) - expected) ** 2 / np.array(expected)))
    return float(stats.chi2.sf(statistic, len(expected) - 1))
