"""Contribution bounding of a large hypergraph: seconds, peak memory, and the same in plain Python.

    python -m bench.attribution                          # 2 million examples, 10 million edges
    python -m bench.attribution --examples 200000 --users 100000
    python -m bench.attribution --file graph.parquet     # column "users": a list per example

The graph is synthetic: 1 + Poisson users per example, drawn from a heavy-tailed law (as authors of papers
are). Peak memory is that of the process, the graph's construction included, before the baseline runs.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import hockeystick as hs
import numpy as np

from bench.baselines import attribution as baseline


def synthetic(examples: int, users: int, edges: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    counts = 1 + rng.poisson(edges / examples - 1, examples)
    popularity = 1.0 / np.arange(1, users + 1) ** 0.5
    cumulative = np.cumsum(popularity)
    index = np.repeat(np.arange(examples), counts)
    owners = np.searchsorted(cumulative, rng.random(len(index)) * cumulative[-1])
    return index, rng.permutation(users)[np.minimum(owners, users - 1)]


def timed(label: str, call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = call()
    seconds = time.perf_counter() - start
    print(f"  {label:<58} {seconds:8.2f} s")
    return result, seconds


def parquet(graph: hs.AttributionGraph) -> None:
    """The same graph with users named by strings, written to a file and read back."""
    try:
        import pyarrow as pa
        from pyarrow import parquet as files
    except ImportError:
        print("  (pyarrow is not installed: no Parquet file is read)")
        return
    names = pa.DictionaryArray.from_arrays(
        pa.array(graph.users), pa.array([f"user-{u:08d}" for u in range(graph.num_users)])
    )
    lists = pa.LargeListArray.from_arrays(pa.array(graph.offsets), names.dictionary_decode())
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/graph.parquet"
        files.write_table(pa.table({"users": lists}), path)
        del lists, names
        again, _ = timed(
            "graph from a Parquet file, users named by strings",
            partial(hs.AttributionGraph.from_parquet, path),
        )
    if (again.num_edges, again.num_users) != (graph.num_edges, len(np.unique(graph.users))):
        raise SystemExit("the file gave another graph")


def peak_gigabytes() -> float:
    # Bytes on macOS, kilobytes elsewhere.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**30 if sys.platform == "darwin" else 2**20)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--examples", type=int, default=2_000_000)
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--per-user", type=int, default=2)
    parser.add_argument("--file", help="a Parquet file instead of the synthetic graph")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-baseline", action="store_true")
    arguments = parser.parse_args()
    k, total = arguments.per_user, 0.0
    if arguments.file:
        graph, seconds = timed("read the file", lambda: hs.AttributionGraph.from_parquet(arguments.file))
    else:
        pairs = synthetic(arguments.examples, arguments.users, arguments.edges, arguments.seed)
        graph, seconds = timed(
            "graph from the edge list", lambda: hs.AttributionGraph.from_edges(*pairs, arguments.examples)
        )
        del pairs
        parquet(graph)
    total += seconds
    print(f"  {graph}, most examples of one user: {graph.user_degrees().max()}")
    plain, ours = timed(f"bound to {k}, fewest users first, and verify", lambda: graph.bound(k))
    copies, seconds = timed(
        f"bound to {k} with duplicates, and verify", lambda: graph.bound(k, duplicates=True)
    )
    total += ours + seconds
    sizes, seconds = timed("|N(e)| of every example kept", copies.graph.neighbourhood_sizes)
    total += seconds
    limit = int(np.quantile(sizes, 0.9))
    limited, seconds = timed(
        f"bound to {k} and |N(e)| <= {limit}, and verify", lambda: graph.bound(k, max_neighbourhood=limit)
    )
    total += seconds
    batch = len(copies.examples) / 1000.0
    sweep, seconds = timed(
        "sweep of k_e, bounding once for each",
        lambda: hs.sampling.sweep_neighbourhood(graph, k, 16, expected_batch=batch, duplicates=True),
    )
    total += seconds
    print(f"  {'all of it':<58} {total:8.2f} s, peak {peak_gigabytes():.2f} GB")
    for result in (plain, copies, limited):
        print(result.report())
    print(sweep)
    if arguments.no_baseline:
        return
    order = np.argsort(graph.example_degrees(), kind="stable").tolist()
    users_of = [users.tolist() for users in np.split(graph.users, graph.offsets[1:-1])]
    taken, seconds = timed(
        "plain Python, the greedy walk alone", lambda: baseline.bound(users_of, order, k, False)
    )
    if sorted(taken) != plain.examples.tolist():
        raise SystemExit("the baseline chose other examples")
    print(f"  ratio to `bound` with its verification: {seconds / ours:.1f}; the same examples")


if __name__ == "__main__":
    main()
