"""Time per step of the batch samplers, against JAX Privacy's iterators and plain NumPy in the same run.

    python -m bench.batches                # 14,745,600 examples, b = 256, expected batch 1793: Section 7.4 of the paper
    python -m bench.batches --large        # and 10^9 examples (balls in bins takes 4 GB there)
    python -m bench.batches --skip-peers   # without JAX Privacy (extra "bench")

Milliseconds per step are the minimum processor time over several runs of steps, on one thread; "start" is the seconds before the
first batch; "state" is what is kept between steps. Peers draw with NumPy's PCG64, which is no secret generator;
hockeystick with ChaCha20. The last lines give the time to resume at the end of a run.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from typing import Any

import hockeystick as hs
import numpy as np


def measure(name: str, make: Any, steps: int, repeats: int) -> float:
    start = time.process_time()
    batches: Iterator[Any] = iter(make())
    next(batches)
    begun = time.process_time() - start
    seconds, sizes = [], []
    for _ in range(repeats):
        start = time.process_time()
        drawn = list(itertools.islice(batches, steps))
        seconds.append((time.process_time() - start) / steps)
        sizes.extend(map(len, drawn))
    best = min(seconds) * 1e3
    print(f"{name:<44} {best:>10.4f} {begun:>9.3f} {np.mean(sizes):>10.1f}")
    return best


def ours(scheme: Any, size: int, steps: int, repeats: int) -> float:
    sampler = scheme.batches(size, seed=1)
    best = measure(
        f"hockeystick {type(scheme).__name__}", lambda: scheme.batches(size, seed=1), steps, repeats
    )
    sampler.next()
    print(
        f"{'':<4}state: {sampler.state_bytes / 1e6:.3f} MB, {8 * sampler.state_bytes / size:.2f} bits per example"
    )
    return best


def numpy_mask(size: int, p: float) -> Iterator[np.ndarray]:
    """Poisson sampling as it is usually written: a coin for each example."""
    generator = np.random.default_rng(1)
    while True:
        yield np.flatnonzero(generator.random(size) < p)


def compare(size: int, b: int, rate: float, peers: bool, repeats: int) -> None:
    steps = 7200
    p = hs.matrix.b_min_sep_probability(rate, b)
    header = f"{size} examples, b = {b}, expected batch {rate * size:.1f}"
    print(f"\n{header:<44} {'ms/step':>10} {'start, s':>9} {'mean size':>10}")
    runs: list[tuple[Any, Any]] = [
        (hs.BMinSep(steps, b, p), ("BMinSepSampling", {"min_sep": b, "sampling_prob": p})),
        (hs.Poisson(steps, rate), ("CyclicPoissonSampling", {"sampling_prob": rate})),
        (
            hs.CyclicPoisson(steps, b, b * rate),
            ("CyclicPoissonSampling", {"sampling_prob": b * rate, "cycle_length": b}),
        ),
        (hs.BallsInBins(steps, round(1 / rate)), ("BallsInBinsSampling", {"cycle_length": round(1 / rate)})),
    ]
    for scheme, (name, values) in runs:
        mine = ours(scheme, size, 200, repeats)
        if not peers:
            continue
        from jax_privacy import batch_selection

        peer = getattr(batch_selection, name)(iterations=steps, **values)
        theirs = measure(f"jax_privacy {name}", lambda peer=peer: peer.batch_iterator(size, 1), 5, 3)
        print(f"{'':<4}jax_privacy / hockeystick: {theirs / mine:.1f}")
    if size <= 10**8:
        measure("NumPy, a coin for each example", lambda: numpy_mask(size, rate), 2, 3)


def owned(repeats: int) -> None:
    examples, users, edges = 2_000_000, 1_000_000, 10_000_000
    rng = np.random.default_rng(1)
    graph = hs.AttributionGraph.from_edges(
        rng.integers(0, examples, edges), rng.integers(0, users, edges), examples, users
    )
    bounded = graph.bound(2, without_users="drop").graph
    independent = hs.BMinSep.of_rate(7200, 32, 500.0 / bounded.num_examples, examples_per_user=2)
    header = f"{bounded.num_examples} examples of {users} users, k_u = 2, b = 32, expected batch 500"
    print(f"\n{header:<44}")
    measure("hockeystick, independent", lambda: independent.batches(graph=bounded, seed=1), 200, repeats)
    # Algorithms 3 and 4 are for closed neighbourhoods: couples who share two examples.
    count = bounded.num_examples // 2
    couples = hs.AttributionGraph.from_lists([[e // 2 * 2, e // 2 * 2 + 1] for e in range(2 * count)])
    p = hs.sampling.sampling_probability_for(couples, 500.0, 32)
    scheme = hs.matrix.MultiAttributionBMinSep(7200, 32, p, 2)
    for name, make in (("Algorithm 3", scheme.batches), ("Algorithm 4", scheme.conjectured_batches)):
        measure(f"hockeystick, {name}", lambda make=make: make(graph=couples, seed=1), 200, repeats)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--skip-peers", action="store_true")
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    hs.set_threads(1)
    size, b, steps = 14_745_600, 256, 7200
    rate = 1793 / size
    compare(size, b, rate, not arguments.skip_peers, arguments.repeats)
    scheme = hs.BMinSep(steps, b, hs.matrix.b_min_sep_probability(rate, b))
    sampler = scheme.batches(size, seed=1)
    start = time.process_time()
    sampler.seek(steps)
    print(f"resume BMinSep at step {steps}: {time.process_time() - start:.2f} s")
    owned(arguments.repeats)
    if arguments.large:
        compare(10**9, b, 1793e-9, False, arguments.repeats)


if __name__ == "__main__":
    main()
