"""Users who share examples: Theorem 6.1 of the b-min-sep paper, attacked with batches that the library draws.

The graph of docs/sampling/attribution.md: user u owns two examples, each of them also owned by m people with one other example each. When
an example of u is sampled in the first of two steps, its co-owners' other examples are missing in the second, whether u's
content is zeroed or not. The event looks at that and at the first step's sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import hockeystick as hs
import numpy as np
import pytest
from hockeystick import _core
from hockeystick.sampling.laws import MAX_STEPS
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]

EPSILON, RUNS = 1.0, 3000
T = 1.5
"""Where the densities of N(1, 1) and N(0, 1) have the ratio e^epsilon."""

above: Callable[[float | Array], Array] = stats.norm.sf


def open_graph(m: int) -> hs.AttributionGraph:
    """Examples 0 and 1 are u's; 2, ..., m + 1 belong to the co-owners of 0, and m + 2, ... to those of 1."""
    first = [f"a{i}" for i in range(m)]
    second = [f"b{i}" for i in range(m)]
    return hs.AttributionGraph.from_lists(
        [["u", *first], ["u", *second], *([name] for name in first), *([name] for name in second)]
    )


def algorithm_3(
    graph: hs.AttributionGraph, p: float, by_participation: bool = False
) -> Iterator[list[Array]]:
    """Runs of two steps with b = 2, drawn by the core: `batches` refuses this graph."""
    for run in range(RUNS):
        key = run.to_bytes(32, "little")
        sampler = _core.BatchSampler.multi_attribution(
            key, 2, (graph.offsets, graph.users, graph.num_users), 2, p, by_participation, 0
        )
        yield [sampler.next(), sampler.next()]


def attack(runs: Iterator[list[Array]], m: int, c: float) -> tuple[float, float]:
    """Pr_P[A] - e^epsilon Pr_Q[A], its estimate and standard error, by batches; the noise is integrated out.

    A: the first sum, along u's direction, is above T, and the second, along the direction of one of the two groups
    of other examples, is below c.
    """
    counts = []
    for one, two in runs:
        groups = np.count_nonzero((two >= 2) & (two < m + 2)), np.count_nonzero(two >= m + 2)
        counts.append((np.count_nonzero(one < 2), *groups))
    present, first, second = np.array(counts).T
    missing = 1.0 - above(c - first) * above(c - second)
    values = missing * (above(T - present) - math.exp(EPSILON) * above(T))
    return float(np.mean(values)), float(np.std(values) / math.sqrt(len(values)))


def true_delta(p: float, m: int) -> float:
    """The proposition's probabilities of the event A, exactly: those of P minus e^epsilon times those of Q, for the best c."""
    counts = np.arange(m + 1)
    law = stats.binom(m, p * (1.0 - p)).pmf(counts)
    best = 0.0
    for c in np.linspace(-2.0, 8.0, 101):
        # That the second sum does not look empty: for a group without and with an owner's example sampled.
        full, empty = float(law @ above(c - counts)), float(above(c))
        value = 0.0
        for present, chance in enumerate([(1.0 - p) ** 2, 2.0 * p * (1.0 - p), p**2]):
            seen = 1.0 - empty**present * full ** (2 - present)
            value += chance * seen * float(above(T - present) - math.exp(EPSILON) * above(T))
        best = max(best, value)
    return best


def accounted(scheme: hs.BMinSep | hs.matrix.MultiAttributionBMinSep, samples: int = 2**17) -> float:
    mechanism = hs.BandMF(hs.Identity(2), scheme, 1.0)
    return hs.estimate_delta(mechanism, EPSILON, samples, seed=1, confidence=1.0 - 1e-9).upper


@pytest.mark.parametrize(
    ("p", "m", "claimed", "true"), [(0.02, 1000, 1.7e-5, 4.76e-3), (0.1, 100, 0.0062, 0.0233)]
)
def test_theorem_6_1_is_violated_where_neighbourhoods_are_open(
    p: float, m: int, claimed: float, true: float
) -> None:
    graph = open_graph(m)
    law = hs.matrix.MultiAttributionBMinSep(2, 2, p, 2)
    exact = hs.matrix.MultiAttributionBMinSep(2, 2, p, 2, "exact")
    # What the theorem claims; the exact law is below it, draw by draw.
    assert accounted(law, 2**20) < 1.25 * claimed
    assert true_delta(p, m) >= true
    for by_participation in (False, True):  # Algorithm 4 is the same here
        estimate, error = attack(algorithm_3(graph, p, by_participation), m, 4.0)
        assert estimate - 6.0 * error > 1.5 * claimed
        assert estimate + 6.0 * error > true_delta(p, m)
    # So the graph is refused, by name.
    for scheme in (law, exact):
        with pytest.raises(hs.ParameterError, match=r"user 'u'.*BMinSep\(\.\.\., examples_per_user"):
            scheme.batches(graph=graph)
    with pytest.raises(hs.ParameterError, match="user 'u'"):
        law.conjectured_batches(graph=graph)
    with pytest.raises(hs.ParameterError, match="user 'u'"):
        hs.plan_training(law, graph.num_examples, epsilon=1.0, delta=0.05, noise_multiplier=9.0, graph=graph)


@pytest.mark.parametrize(("p", "m"), [(0.02, 1000), (0.1, 100)])
def test_independent_examples_are_not_violated(p: float, m: int) -> None:
    scheme = hs.BMinSep(2, 2, p, warm_start=False, examples_per_user=2)
    graph, proven = open_graph(m), accounted(scheme)
    runs = [list(scheme.batches(graph=graph, seed=run)) for run in range(RUNS)]
    # The others' examples say nothing about u's now, whatever threshold is taken.
    for c in (0.0, 2.0, 4.0, 8.0, 20.0, 1e9):
        estimate, error = attack(iter(runs), m, c)
        assert estimate - 6.0 * error <= proven
    # The estimate is close to exact, so the scheme really is that much better than Algorithm 3.
    assert proven < 0.5 * true_delta(p, m)


def test_fewer_examples_are_not_safer() -> None:
    """Whoever has more examples is barred more often: what Theorem 6.1 says of exactly k does not hold for at most k."""
    strategy = hs.matrix.LowerTriangular([[1e-3, 0.0], [0.0, 1.0]])
    for law in ("dominating", "exact"):
        deltas = []
        for k in (1, 2):
            mechanism = hs.BandMF(strategy, hs.matrix.MultiAttributionBMinSep(2, 2, 0.9, k, law), 0.5)
            losses = mechanism.sample_losses(2**17, 3)
            deltas.append(float(np.mean(-np.expm1(np.minimum(1.0 - losses, 0.0)))))
        assert deltas[0] > 2.0 * deltas[1]
        both = hs.BandMF(strategy, hs.matrix.MultiAttributionBMinSep(2, 2, 0.9, 2, law), 0.5)
        found = hs.estimate_delta(both, 1.0, 2**16, seed=1)
        assert found.upper >= 0.98 * deltas[0]
        assert found.lower <= 1.02 * deltas[0]


# --- The condition, by definition --------------------------------------------------------------------------


def is_closed(lists: list[list[int]]) -> bool:
    """Nobody shares a user with u's examples but u."""
    for u in {user for users in lists for user in users}:
        mine = {e for e, users in enumerate(lists) if u in users}
        owners = {v for e in mine for v in lists[e]}
        if any(owners & set(users) and e not in mine for e, users in enumerate(lists)):
            return False
    return True


def test_closed_neighbourhoods_by_definition() -> None:
    rng = np.random.default_rng(4)
    closed = 0
    for trial in range(3000):
        examples, users = rng.integers(1, 6), rng.integers(1, 5)
        lists = [
            np.flatnonzero(rng.random(users) < rng.choice([0.2, 0.5, 0.8])).tolist() for _ in range(examples)
        ]
        if trial % 3 == 0:  # groups of alike examples
            kinds = [[0, 1], [2], [3, 4]]
            lists = [kinds[rng.integers(3)] for _ in range(examples)]
        graph = hs.AttributionGraph.from_lists(lists)
        # Ids count the users that occur.
        lists = [graph.users_of(e).tolist() for e in range(examples)]
        found = graph.open_neighbourhood()
        assert (found is None) == is_closed(lists)
        if found is None:
            closed += 1
            graph.check_closed()
            continue
        assert {found.user, found.other_user} <= set(lists[found.example])
        assert found.other_user in lists[found.other_example]
        assert found.user not in lists[found.other_example]
        with pytest.raises(
            hs.ParameterError,
            match=f"example {found.example} belongs to user {graph.user_labels[found.user]} ",
        ):
            graph.check_closed()
    assert 500 < closed < 2500


@pytest.mark.parametrize("min_sep", [1, 2, 5])
def test_training_starts_where_batches_have_their_size(min_sep: int) -> None:
    """After one step less than participations are apart: the batches before are drawn and thrown away."""
    graph = hs.AttributionGraph.from_lists([[i // 2] for i in range(400)])
    scheme = hs.matrix.MultiAttributionBMinSep(6, min_sep, 0.3, 2)
    found = [batch.tolist() for batch in scheme.training_batches(400, 3, graph)]
    ahead = scheme.batches(400, 3, graph=graph, run_ahead=min_sep - 1)
    assert found == [batch.tolist() for batch in ahead]
    # The first is as large as the rest: each example is in it with the stationary probability.
    expected = scheme.expected_batch_size(400, graph)
    assert abs(len(found[0]) - expected) < 6.0 * math.sqrt(2.0 * expected)


def test_no_more_steps_are_thrown_away_than_there_may_be() -> None:
    graph = hs.AttributionGraph.from_lists([[0], [1]])
    longest = hs.matrix.MultiAttributionBMinSep(MAX_STEPS - 1, 5, 0.3, 1)
    assert next(iter(longest.training_batches(2, 3, graph))).size <= 2
    assert next(iter(longest.batches(2, 3, graph=graph, run_ahead=1))).size <= 2
    with pytest.raises(hs.ParameterError, match=r"run_ahead = 2: must be an integer in \[0, 1\]"):
        longest.batches(2, 3, graph=graph, run_ahead=2)


def test_whom_closed_neighbourhoods_protect_is_said() -> None:
    scheme = hs.matrix.MultiAttributionBMinSep(6, 2, 0.3, 2)
    found = hs.estimate_delta(hs.BandMF(hs.Identity(6), scheme, 2.0), 1.0, 1000, seed=1)
    assert "at most 2, " in found.statement()
    assert "examples that share a user having exactly the same users" in found.statement()


def test_names_in_the_refusal() -> None:
    graph = hs.AttributionGraph.from_edges(["x", "x", "y"], ["ann", "bob", "bob"])
    with pytest.raises(
        hs.ParameterError,
        match=r"example 'x' belongs to user 'ann' and to user 'bob', who also owns example 'y', which user 'ann' does not",
    ):
        graph.check_closed()
    # One example each is closed, whoever shares it.
    graph.bound(1, without_users="drop").graph.check_closed()
    hs.AttributionGraph.from_lists([]).check_closed()
    hs.AttributionGraph.from_lists([[], []]).check_closed()
