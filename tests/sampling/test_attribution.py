"""Contribution bounding against brute force, and expected batch sizes against enumeration and simulation."""

import itertools
import json

import hockeystick as hs
import numpy as np
import pytest
from hockeystick.sampling.attribution import AttributionGraph
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

LISTS = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4), min_size=1, max_size=8)


def users_of(graph: AttributionGraph) -> list[set[int]]:
    return [set(graph.users_of(e).tolist()) for e in range(graph.num_examples)]


def neighbourhood(users: list[set[int]], chosen: list[int]) -> list[int]:
    return [sum(bool(users[e] & users[other]) for other in chosen) for e in chosen]


def allowed(users: list[set[int]], chosen: list[int], per_user: int, limit: int | None) -> bool:
    everyone = set().union(*users)
    if any(sum(u in users[e] for e in chosen) > per_user for u in everyone):
        return False
    return limit is None or max(neighbourhood(users, chosen), default=0) <= limit


@given(
    LISTS,
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from([None, 1, 2, 4]),
    st.sampled_from(hs.sampling.bounding.ORDERS),
)
@settings(max_examples=120, deadline=None)
def test_bounding_is_allowed_and_maximal(lists, per_user, duplicates, limit, order):
    graph = AttributionGraph.from_lists(lists)
    bounded = graph.bound(per_user, duplicates=duplicates, order=order, max_neighbourhood=limit, seed=3)
    users, chosen = users_of(graph), bounded.examples.tolist()
    assert allowed(users, chosen, per_user, limit)
    assert duplicates or len(set(chosen)) == len(chosen)
    for e in range(len(lists)):
        if duplicates or e not in chosen:
            assert not allowed(users, [*chosen, e], per_user, limit)
    assert users_of(bounded.graph) == [users[e] for e in chosen]
    assert bounded.graph.neighbourhood_sizes().tolist() == neighbourhood(users, chosen)
    assert len(chosen) <= bounded.size_bound()


@given(LISTS, st.integers(1, 2))
@settings(max_examples=60, deadline=None)
def test_size_bound_is_above_the_optimum(lists, per_user):
    graph = AttributionGraph.from_lists(lists)
    users, everything = users_of(graph), range(len(lists))
    optimum = max(
        len(chosen)
        for size in range(len(lists) + 1)
        for chosen in itertools.combinations(everything, size)
        if allowed(users, list(chosen), per_user, None)
    )
    bounded = graph.bound(per_user)
    assert len(bounded.examples) <= optimum <= bounded.size_bound()
    copies = graph.bound(per_user, duplicates=True)
    assert len(copies.examples) <= copies.size_bound()


def test_orders():
    # A star: example 0 has every user, so taking it first leaves no other.
    graph = AttributionGraph.from_lists([[0, 1, 2, 3], [0], [1], [2, 3]])
    assert graph.bound(1, order="given").examples.tolist() == [0]
    assert graph.bound(1).examples.tolist() == [1, 2, 3]
    assert graph.bound(1, order=[3, 0]).examples.tolist() == [3]
    assert graph.bound(2).examples.tolist() == [0, 1, 2, 3]
    assert graph.bound(2, duplicates=True).examples.tolist() == [0, 1, 2, 3]
    assert graph.bound(3, duplicates=True).examples.tolist() == [0, 1, 1, 2, 2, 3, 3]
    assert (
        graph.bound(1, order="random", seed=5).examples.tolist()
        == graph.bound(1, order="random", seed=5).examples.tolist()
    )
    drawn = graph.bound(1, order="random")
    assert drawn.seed is not None
    assert graph.bound(1, order="random", seed=drawn.seed).examples.tolist() == drawn.examples.tolist()
    several = {tuple(graph.bound(1, order="random", seed=s).examples) for s in range(30)}
    assert len(several) > 1


def test_every_source_gives_the_same_graph(tmp_path):
    lists = [["b", "a"], [], ["c", "a", "c"], ["d"]]
    expected = [{"a", "b"}, set(), {"a", "c"}, {"d"}]
    examples = [3, 0, 2, 2, 0, 2]
    users = ["d", "b", "c", "a", "a", "c"]
    dense = np.array([[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]])
    pa = pytest.importorskip("pyarrow")
    from pyarrow import feather, parquet

    rows = pa.table(
        {"text": ["w", "x", "y", "z"], "who": pa.array([["b", "a"], None, ["c", "a", "c"], ["d"]])}
    )
    pairs = pa.table({"row": examples, "who": users})
    parquet.write_table(rows, tmp_path / "rows.parquet")
    feather.write_feather(pairs, str(tmp_path / "pairs.arrow"))
    chunked = pa.concat_tables([rows.slice(0, 1), rows.slice(1, 3)])
    graphs = [
        AttributionGraph.from_lists(lists),
        AttributionGraph.from_edges(examples, users, num_examples=4),
        AttributionGraph.from_csr(sparse.coo_array(dense)),
        AttributionGraph.from_arrow(rows, "who"),
        AttributionGraph.from_arrow(chunked, "who"),
        AttributionGraph.from_arrow(pa.table({"who": pa.array([[1, 0], [], [2, 0], [3]])}), "who"),
        AttributionGraph.from_parquet(tmp_path / "rows.parquet", "who"),
        AttributionGraph.from_parquet(tmp_path / "pairs.arrow", "who", "row"),
    ]
    for graph in graphs:
        labels = graph.user_labels if graph.user_labels is not None else np.arange(4)
        named = [{str(labels[u]) for u in users} for users in users_of(graph)]
        if "a" not in named[0]:
            named = [{"abcd"[int(u)] for u in users} for users in named]
        assert named == expected
        assert (graph.num_examples, graph.num_users, graph.num_edges) == (4, 4, 5)


def test_a_dictionary_may_hold_a_name_twice(tmp_path):
    """As it does after its names were mapped, to lower case, say: one person is one user all the same."""
    pa = pytest.importorskip("pyarrow")
    from pyarrow import feather, parquet

    who = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3, 1]), pa.array(["ann", "ann", "bob", "ann"]))
    pairs = pa.table({"row": [0, 1, 2, 3, 3], "who": who})
    lists = pa.table({"who": pa.ListArray.from_arrays(pa.array([0, 1, 2, 3, 5]), who)})
    feather.write_feather(pairs, str(tmp_path / "pairs.arrow"))
    feather.write_feather(lists, str(tmp_path / "lists.feather"))
    parquet.write_table(pairs, tmp_path / "pairs.parquet")
    for graph in (
        AttributionGraph.from_arrow(pairs, "who", "row"),
        AttributionGraph.from_arrow(lists, "who"),
        AttributionGraph.from_parquet(tmp_path / "pairs.arrow", "who", "row"),
        AttributionGraph.from_parquet(tmp_path / "lists.feather", "who"),
        AttributionGraph.from_parquet(tmp_path / "pairs.parquet", "who", "row"),
    ):
        assert list(graph.user_labels) == ["ann", "bob"]
        assert users_of(graph) == [{0}, {0}, {1}, {0}]
    nameless = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1]), pa.array(["ann", None]))
    with pytest.raises(hs.ParameterError, match="has 2 nulls"):
        AttributionGraph.from_arrow(pa.table({"row": [0, 1, 2], "who": nameless}), "who", "row")


def test_a_graph_keeps_no_memory_of_its_callers():
    offsets, users = np.array([0, 1, 2]), np.array([0, 0], np.int32)
    graph = AttributionGraph(offsets, users, 2)
    offsets[1], users[1] = 2, 1
    assert users_of(graph) == [{0}, {0}]
    assert graph.user_degrees().tolist() == [2, 0]


def test_names_of_examples_and_users():
    graph = AttributionGraph.from_edges(["y", "x", "y"], [-7, 10**12, 10**12])
    assert graph.example_labels.tolist() == ["x", "y"]
    assert graph.user_labels.tolist() == [-7, 10**12]
    assert users_of(graph) == [{1}, {0, 1}]
    bounded = graph.bound(1)
    assert bounded.graph.example_labels.tolist() == ["x"]
    ids = AttributionGraph.from_edges([0, 1], [4, 2], num_users=7)
    assert (ids.num_users, ids.user_labels) == (7, None)
    assert users_of(ids) == [{4}, {2}]


def test_examples_without_users():
    graph = AttributionGraph.from_lists([[], ["a"], ["a"], []])
    with pytest.raises(hs.ParameterError, match="2 of them have no user"):
        graph.bound(1)
    assert graph.bound(1, without_users="drop").examples.tolist() == [1]
    kept = graph.bound(1, without_users="keep", duplicates=True)
    assert kept.examples.tolist() == [0, 1, 3]
    assert "NOT protected" in kept.report()
    assert len(kept.examples) <= kept.size_bound()
    assert kept.graph.neighbourhood_sizes().tolist() == [0, 1, 0]


def test_verify_notices_what_is_wrong():
    graph = AttributionGraph.from_lists([[0, 1], [1], [1, 2], [3]])
    good = graph.bound(1)

    def forged(examples, **changes):
        fields = {name: getattr(good, name) for name in good.__dataclass_fields__}
        chosen = np.array(examples)
        return type(good)(**{**fields, "examples": chosen, "graph": graph.select(chosen), **changes})

    forged(good.examples).verify()
    with pytest.raises(RuntimeError, match="more than 1"):
        forged([0, 1, 3]).verify()
    with pytest.raises(RuntimeError, match="could have been taken"):
        forged([1]).verify()
    with pytest.raises(RuntimeError, match="taken twice"):
        forged([1, 3, 3], max_examples_per_user=2).verify()
    with pytest.raises(RuntimeError, match="too many neighbours"):
        forged([0, 1, 2, 3], max_examples_per_user=5, max_neighbourhood=2).verify()
    # Maximal under k_u alone, not under a limit that leaves room.
    limited = graph.bound(3, max_neighbourhood=1)
    with pytest.raises(RuntimeError, match="could have been taken"):
        forged(limited.examples, max_examples_per_user=3, max_neighbourhood=2).verify()


@pytest.mark.sweep
@pytest.mark.parametrize("min_sep", [1, 2, 3])
@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_expected_batch_size_is_that_of_algorithm_3(min_sep, p):
    """Every coin of every step, enumerated."""
    lists, steps = [[0], [0, 1], [1], []], 3
    graph = AttributionGraph.from_lists(lists)
    users, mean = users_of(graph), np.zeros(steps)
    for coins in itertools.product([0, 1], repeat=len(lists) * steps):
        sampled = np.array(coins).reshape(steps, len(lists))
        weight = np.prod(np.where(sampled, p, 1.0 - p))
        for step in range(steps if weight else 0):
            before = {
                u
                for row in sampled[max(0, step - min_sep + 1) : step]
                for e in np.flatnonzero(row)
                for u in users[e]
            }
            mean[step] += weight * sum(not users[e] & before for e in np.flatnonzero(sampled[step]))
    for step in range(steps):
        assert hs.sampling.expected_batch_size(graph, p, min_sep, step + 1) == pytest.approx(
            mean[step], rel=1e-12, abs=1e-300
        )
    if steps >= min_sep:
        assert hs.sampling.expected_batch_size(graph, p, min_sep) == pytest.approx(
            mean[-1], rel=1e-12, abs=1e-300
        )


def test_sampling_probability_hits_the_target_and_is_the_smallest():
    rng = np.random.default_rng(1)
    graph = AttributionGraph.from_edges(np.arange(3000) % 1000, rng.integers(0, 300, 3000)).bound(4).graph
    for min_sep in (1, 2, 16, 400):
        peak = max(hs.sampling.expected_batch_size(graph, p, min_sep) for p in np.geomspace(1e-7, 1.0, 4000))
        for share in (1e-6, 0.1, 0.5, 0.999):
            p = hs.sampling.sampling_probability_for(graph, share * peak, min_sep)
            assert hs.sampling.expected_batch_size(graph, p, min_sep) == pytest.approx(
                share * peak, rel=1e-12
            )
            below = np.linspace(0.0, p * (1 - 1e-9), 500)
            assert all(hs.sampling.expected_batch_size(graph, q, min_sep) < share * peak for q in below)
        with pytest.raises(hs.ParameterError, match="the largest expected batch size"):
            hs.sampling.sampling_probability_for(graph, 1.02 * peak, min_sep)


def test_sweep():
    # Small groups, and one example that everybody shares: the paper's example (Appendix C).
    shared = list(range(50))
    graph = AttributionGraph.from_lists([[u] for u in range(50)] + [shared])
    sweep = hs.sampling.sweep_neighbourhood(graph, 2, 8, expected_batch=1.2)
    whole, kept = sweep.rows[0], sweep.best
    assert (whole.max_neighbourhood, whole.largest_neighbourhood, whole.examples) == (None, 51, 51)
    assert (kept.largest_neighbourhood, kept.examples) == (1, 50)
    assert kept.expected_batch_size > whole.expected_batch_size
    assert kept.target_probability < whole.target_probability == sweep.sampling_probability
    ruled = max(row.max_neighbourhood for row in sweep.rows if row.rule is not None and row.rule < 1.0)
    assert (ruled + 1) * 8 * sweep.sampling_probability >= 1.0
    # Probabilities read back as they are: they are what a run is made with.
    assert "k_e" in str(sweep)
    assert f"p = {sweep.sampling_probability!r}" in str(sweep)
    assert repr(kept.target_probability) in str(sweep)
    # Out of reach without a limit: shown, with what comes closest.
    beyond = hs.sampling.sweep_neighbourhood(graph, 2, 8, expected_batch=1.5)
    assert beyond.rows[0].target_probability is None
    assert 1.25 < beyond.rows[0].expected_batch_size < 1.5
    assert beyond.best.target_probability is not None
    json.dumps(sweep.to_dict(), allow_nan=False)
    fixed = hs.sampling.sweep_neighbourhood(graph, 2, 8, sampling_probability=1e-4, limits=[None, 3])
    assert fixed.best.max_neighbourhood is None  # rarely sampled, so it blocks little
    assert fixed.rows[1].target_probability is None
    assert fixed.target is None


def test_report():
    graph = AttributionGraph.from_lists([[0, 1], [1], [1, 2], [3]])
    bounded = graph.bound(1)
    numbers = bounded.to_dict()
    json.dumps(numbers, allow_nan=False)
    assert (numbers["largest_user_before"], numbers["largest_user_after"]) == (3, 1)
    assert (numbers["examples_before"], numbers["examples_after"], numbers["users"]) == (4, 2, 4)
    assert "4 -> 2" in bounded.report()
    assert "2 of 4" in repr(bounded)


def test_refusals():
    graph = AttributionGraph.from_lists([[0, 1], [1]])
    for call, message in [
        (lambda: graph.bound(0), "max_examples_per_user = 0"),
        (lambda: graph.bound(1, order="fewest"), "order = 'fewest'"),
        (lambda: graph.bound(1, order=[0, 0]), "order"),
        (lambda: graph.bound(1, order=[2]), "order"),
        (lambda: graph.bound(1, max_neighbourhood=0), "max_neighbourhood = 0"),
        (lambda: graph.bound(1, without_users="ignore"), "without_users"),
        (lambda: graph.bound(1, seed=-1), "seed"),
        (lambda: graph.users_of(2), "example = 2"),
        (lambda: graph.select([2]), "examples"),
        (lambda: AttributionGraph([0, 2, 1], [0, 1], 2), "offsets"),
        (lambda: AttributionGraph([0, 2], [0, 0], 2), "users of example 0"),
        (lambda: AttributionGraph([], [], 2), "offsets"),
        (lambda: AttributionGraph.from_edges([0, 5], [1, 2], num_examples=3), r"examples\[1\] = 5"),
        (lambda: AttributionGraph.from_edges([0, -1], [1, 2]), r"examples\[1\] = -1"),
        (lambda: AttributionGraph.from_edges([0], [1, 2]), "one per pair"),
        (lambda: AttributionGraph.from_edges([0], [2], num_users=2), "users"),
        (lambda: hs.sampling.expected_batch_size(graph, 1.5, 2), "sampling_probability = 1.5"),
        (lambda: hs.sampling.expected_batch_size(graph, 0.5, 0), "min_sep = 0"),
        (lambda: hs.sampling.expected_batch_size(graph, 0.5, 2, 0), "step = 0"),
        (lambda: hs.sampling.sampling_probability_for(graph, 0.0, 2), "expected_batch = 0.0"),
        (lambda: hs.sampling.sweep_neighbourhood(graph, 1, 2), "expected_batch"),
        (
            lambda: hs.sampling.sweep_neighbourhood(graph, 1, 2, expected_batch=1, max_neighbourhood=3),
            "max_neighbourhood",
        ),
    ]:
        with pytest.raises(hs.ParameterError, match=message):
            call()
    for call, message in [
        (lambda: graph.bound(1.5), "max_examples_per_user"),
        (lambda: graph.bound(1, duplicates="no"), "duplicates"),
        (lambda: AttributionGraph.from_edges([0.5], [1]), "examples"),
        (lambda: AttributionGraph.from_edges([0], [None]), "users"),
        (lambda: AttributionGraph.from_edges([[0]], [[1]]), "users"),
        (lambda: AttributionGraph.from_edges(["a"], [1], num_examples=1), "num_examples"),
        (lambda: AttributionGraph.from_lists([["ann"], "bob"]), r"users_of\[1\] = 'bob'"),
        (lambda: AttributionGraph([0, 1, 2], np.array([0.9, 1.9]), 2), r"users\[0\] = "),
        (lambda: AttributionGraph([0, 1, 2], ["0", "1"], 2), r"users\[0\] = "),
        (lambda: AttributionGraph([0.0, 1.5, 2.9], [0, 1], 2), r"offsets\[0\] = "),
        (lambda: AttributionGraph.from_csr(np.eye(2)), "scipy.sparse"),
        (lambda: AttributionGraph.from_arrow({"users": []}), "pyarrow.Table"),
    ]:
        with pytest.raises(hs.ParameterTypeError, match=message):
            call()


def test_arrow_refusals(tmp_path):
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"row": [0, 1], "who": ["a", None], "list": [["a"], ["b", None]], "real": [1.5, 2.0]})
    with pytest.raises(hs.ParameterError, match="must be one of the columns"):
        AttributionGraph.from_arrow(table, "nobody")
    with pytest.raises(hs.ParameterError, match="nulls"):
        AttributionGraph.from_arrow(table, "who", "row")
    with pytest.raises(hs.ParameterError, match="nulls"):
        AttributionGraph.from_arrow(table, "list")
    with pytest.raises(hs.ParameterTypeError, match="list of users"):
        AttributionGraph.from_arrow(table, "row")
    with pytest.raises(hs.ParameterTypeError, match="integers or strings"):
        AttributionGraph.from_arrow(table, "real", "row")
    with pytest.raises(FileNotFoundError):
        AttributionGraph.from_parquet(tmp_path / "missing.parquet")


def test_too_much_work_is_refused_and_a_limit_helps():
    graph = AttributionGraph.from_edges(np.arange(300_000), np.zeros(300_000, int))
    with pytest.raises(hs.ParameterError, match="limit"):
        graph.neighbourhood_sizes()
    assert graph.neighbourhood_sizes(limit=10).tolist() == [11] * 300_000
    assert graph.bound(3).graph.neighbourhood_sizes().tolist() == [3, 3, 3]
    with pytest.raises(hs.ParameterError, match="max_neighbourhood = 100000"):
        graph.bound(100_000, max_neighbourhood=100_000)
    with pytest.raises(hs.ParameterError, match="max_examples_per_user = 2147483647"):
        graph.bound(2**31 - 1, duplicates=True)
    assert len(graph.bound(2**31 - 1).examples) == 300_000
    assert graph.bound(2**31 - 1).size_bound() == 300_000


def test_limits_of_sizes_do_not_stick():
    graph = AttributionGraph.from_lists([[0], [0], [0, 1]])
    assert graph.neighbourhood_sizes(limit=1).tolist() == [2, 2, 2]
    assert graph.neighbourhood_sizes().tolist() == [3, 3, 3]
    assert graph.neighbourhood_sizes(limit=1).tolist() == [2, 2, 2]


def test_entries_of_a_sparse_matrix_count_unless_they_are_zero():
    values, rows, columns = [-1, 0, 2, 1], [0, 0, 1, 1], [0, 1, 1, 2]
    graph = AttributionGraph.from_csr(sparse.csr_array((values, (rows, columns)), shape=(3, 3)))
    assert users_of(graph) == [{0}, {1, 2}, set()]


def test_negative_names_are_those_of_other_users():
    graph = AttributionGraph.from_edges([0, 1, 2], [-1, 5, -2])
    assert (graph.num_users, graph.user_labels.tolist()) == (3, [-2, -1, 5])


def test_copies_that_share_their_users_reach_the_size_bound():
    graph = AttributionGraph.from_lists([[0, 1], [1, 2], [0, 2]])
    assert graph.bound(2, duplicates=True).size_bound() == 3
    # Nobody can give more than there is of them.
    assert AttributionGraph.from_lists([[0], [0], [1]]).bound(1).size_bound() == 2


def test_empty():
    graph = AttributionGraph.from_lists([])
    bounded = graph.bound(2)
    assert (len(bounded.examples), bounded.size_bound()) == (0, 0)
    assert hs.sampling.expected_batch_size(graph, 0.5, 3) == 0.0
    with pytest.raises(hs.ParameterError, match="must be at most 0"):
        hs.sampling.sampling_probability_for(graph, 1.0, 3)
    assert "0 -> 0" in bounded.report()


def test_results_do_not_depend_on_threads():
    rng = np.random.default_rng(2)
    graph = AttributionGraph.from_edges(
        rng.integers(0, 20_000, 60_000), rng.integers(0, 9000, 60_000), 20_000
    )
    sizes = []
    try:
        for threads in (1, 3):
            hs.set_threads(threads)
            sizes.append(AttributionGraph(graph.offsets, graph.users, graph.num_users).neighbourhood_sizes())
    finally:
        hs.set_threads(0)
    assert np.array_equal(*sizes)


def test_arrays_are_read_only():
    graph = AttributionGraph.from_lists([[0], [1]])
    for array in (graph.users, graph.offsets, graph.neighbourhood_sizes(), graph.bound(1).examples):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_expected_batch_size_asks_for_the_graph():
    """With assertions left out, too: an error that names what is missing."""
    scheme = hs.matrix.MultiAttributionBMinSep(10, 2, 0.1, examples_per_user=2)
    with pytest.raises(hs.ParameterTypeError, match="graph = None"):
        scheme.expected_batch_size(100)


def test_ids_of_users_end_below_their_number():
    """An id too large would be looked up behind the end of what is kept for each user."""
    AttributionGraph(np.array([0, 1]), np.array([2]), 3)
    for users in (0, 1, 2):
        with pytest.raises(hs.ParameterError, match="in range"):
            AttributionGraph(np.array([0, 1]), np.array([2]), users)
