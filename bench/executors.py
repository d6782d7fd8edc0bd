"""What executors cost: the same Monte Carlo run in one process, in processes, and on a local Dask cluster.

    python -m bench.executors

Wall-clock samples per second, best of three; results are compared bit for bit.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor

import hockeystick as hs

SAMPLES = 400_000


def estimate(executor: Executor | None) -> hs.montecarlo.DeltaEstimate:
    mechanism = hs.BandMF(hs.BandedToeplitz.square_root(1024, 32), hs.BMinSep(1024, 32, 0.01), 1.0)
    return hs.estimate_delta(mechanism, 2.0, SAMPLES, seed=1, adjacency="remove", executor=executor)


def measure(
    name: str, executor: Executor | None, expected: hs.montecarlo.DeltaEstimate | None
) -> hs.montecarlo.DeltaEstimate:
    found, best = estimate(executor), float("inf")  # the first starts the workers
    for _ in range(3):
        began = time.perf_counter()
        assert estimate(executor) == found
        best = min(best, time.perf_counter() - began)
    same = "" if expected is None else f"   same result: {found == expected}"
    print(f"{name:44}{found.samples / best:12,.0f} samples/s{same}")
    return found


def main() -> None:
    workers = os.cpu_count() or 1
    hs.set_threads(1)
    expected = measure("one process, one thread", None, None)
    hs.set_threads(0)
    measure(f"one process, {hs.max_threads()} threads", None, expected)
    with ThreadPoolExecutor(workers) as pool:
        hs.set_threads(1)
        measure(f"ThreadPoolExecutor({workers}), one thread each", pool, expected)
        hs.set_threads(0)
    context = multiprocessing.get_context("spawn")
    one: Callable[[int], None] = hs.set_threads
    with ProcessPoolExecutor(workers, context, one, (1,)) as pool:
        measure(f"ProcessPoolExecutor({workers}), one thread each", pool, expected)
    try:
        import distributed
    except ImportError:
        print("dask: not installed (pip install 'hockeystick[dask]')")
        return
    settings = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**settings) as cluster, distributed.Client(cluster) as client:
        client.run(hs.set_threads, 1)
        # Dask would remember the results of equal tasks.
        measure(f"Dask, {workers} workers, one thread each", client.get_executor(pure=False), expected)


if __name__ == "__main__":
    main()
