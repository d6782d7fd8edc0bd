"""Samples of BandMF's privacy loss per second: hockeystick, jax_privacy and NumPy, in one run on one core.

    python -m bench.montecarlo                                   # the table, then one and two threads
    python -m bench.montecarlo --library build/libhockeystick.a  # also the parts of the kernel, GFLOP/s, share of peak

Time is processor time, the least of several runs: it does not count what other programs do to the machine.
Two threads are compared by the clock, and need an idle machine. All three compute the same: outputs drawn
from P, and their losses ln P/Q; jax_privacy and NumPy with the best of several batch sizes.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hockeystick as hs
import numpy as np

from bench.baselines import bandmf as baseline

ROOT = Path(__file__).parent.parent
RATE = 1793 / 14_745_600
DATASET, MAX_BATCH = 14_745_600, 2048


def rate(call: Callable[[int], Any], samples: int, repeats: int) -> float:
    """Samples per second of processor time."""
    call(0)
    best = float("inf")
    for seed in range(1, repeats + 1):
        start = time.process_time()
        call(seed)
        best = min(best, time.process_time() - start)
    return samples / best


def ours(mechanism: hs.BandMF, repeats: int = 15) -> float:
    core = mechanism._blocks("remove")
    return rate(lambda seed: core.losses(seed, 0, 1), core.block_size, repeats)


def jax_privacy(mechanism: hs.BandMF, repeats: int = 3) -> float:
    from jax_privacy import batch_selection
    from jax_privacy.experimental.monte_carlo import sample_generation

    scheme, columns = mechanism.scheme, mechanism.strategy._columns()[0]
    options: dict[str, Any] = {}
    if isinstance(scheme, hs.BallsInBins):
        peer = batch_selection.BallsInBinsSampling(scheme.steps, scheme.bins)
    else:
        assert isinstance(scheme, (hs.BMinSep, hs.matrix.TruncatedBMinSep))
        limit = None
        if isinstance(scheme, hs.matrix.TruncatedBMinSep):
            limit = scheme.max_batch_size
            options["dataset_size"] = scheme.dataset_size
        peer = batch_selection.BMinSepSampling(
            scheme.sampling_probability, scheme.steps, scheme.min_sep, scheme.warm_start, limit
        )
    best = 0.0
    for batch in (16, 64, 256, 1024):
        if batch * scheme.steps > 2**21:
            continue

        def call(seed: int, batch: int = batch) -> None:
            sample_generation.get_privacy_loss_sample(
                peer, mechanism.noise_multiplier, columns, seed=seed, num_samples=batch, **options
            )

        best = max(best, rate(call, batch, repeats))
    return best


def numpy_baseline(mechanism: hs.BandMF, repeats: int = 3) -> float | None:
    scheme = mechanism.scheme
    if isinstance(scheme, hs.BMinSep):
        law: baseline.Law = baseline.MinSep(
            scheme.steps, scheme.min_sep, scheme.sampling_probability, scheme.warm_start
        )
    elif isinstance(scheme, hs.BallsInBins):
        law = baseline.Phases(scheme.steps, scheme.bins)
    else:
        return None
    best = 0.0
    for batch in (64, 256, 1024):
        if batch * scheme.steps > 2**21:
            continue
        blocks = baseline.Mechanism(
            mechanism.strategy._columns(), law, mechanism.noise_multiplier, batch
        )._blocks("remove")
        best = max(best, rate(lambda seed, blocks=blocks: blocks.losses(seed, 0, 1), batch, repeats))
    return best


def cases() -> list[tuple[str, hs.BandMF, bool]]:
    large = hs.BandedToeplitz.square_root(7200, 256)
    p = hs.matrix.b_min_sep_probability(RATE, 256)
    table: list[tuple[str, hs.BandMF, bool]] = [
        ("b-min-sep", hs.BandMF(large, hs.BMinSep(7200, 256, p), 0.47), True),
        (
            f"truncated at {MAX_BATCH}",
            hs.BandMF(large, hs.matrix.TruncatedBMinSep(7200, 256, p, DATASET, MAX_BATCH), 0.47),
            True,
        ),
        (
            "truncated at 1793",  # in half of the rounds
            hs.BandMF(large, hs.matrix.TruncatedBMinSep(7200, 256, p, DATASET, 1793), 0.47),
            True,
        ),
    ]
    for bands in (2, 8, 32):
        strategy = hs.BandedToeplitz.square_root(1024, bands)
        table.append(("b-min-sep", hs.BandMF(strategy, hs.BMinSep.of_rate(1024, bands, 1 / 512), 1.0), True))
    strategy = hs.BandedToeplitz.square_root(1024, 32)
    # The released jax_privacy takes one sample at a time here.
    table.append(("balls-in-bins, 512", hs.BandMF(strategy, hs.BallsInBins(1024, 512), 1.0), False))
    for law in ("dominating", "exact"):
        users = hs.matrix.MultiAttributionBMinSep(1024, 32, 0.02, 2, law)
        table.append((f"two examples, {law}", hs.BandMF(strategy, users, 1.0), False))
    return table


def threads(mechanism: hs.BandMF, blocks: int = 1024, repeats: int = 3) -> None:
    """A run of some seconds, on one thread and on two in turn."""
    core = mechanism._blocks("remove")

    def seconds(seed: int, count: int) -> float:
        hs.set_threads(count)
        start = time.perf_counter()
        core.delta_sums(seed, [1.0], 0, blocks)
        return time.perf_counter() - start

    one, two = zip(*((seconds(seed, 1), seconds(seed, 2)) for seed in range(repeats)), strict=True)
    hs.set_threads(0)
    print(f"\nn=7200, b=256, {blocks} blocks: one thread {min(one):.3f} s, two {min(two):.3f} s, ", end="")
    print(f"{min(one) / min(two):.2f}x")


def parts(library: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "parts"
        command = [
            "c++",
            "-std=c++20",
            "-O3",
            "-march=native",
            "-ffp-contract=off",
            "-I",
            "cpp/include",
            "-I",
            "cpp/src",
        ]
        subprocess.run(
            [*command, "bench/kernel_parts.cpp", str(library.resolve()), "-fopenmp", "-o", str(program)],
            cwd=ROOT,
            check=True,
        )
        print(flush=True)
        subprocess.run([str(program)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--library", type=Path, help="libhockeystick.a of a CMake build")
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    hs.set_threads(1)
    header = f"{'n':>6}{'b':>5}  {'scheme':<26}{'hockeystick':>12}{'jax_privacy':>12}{'ratio':>8}{'NumPy':>12}{'ratio':>8}"
    print(header + "   (samples/s)")
    for name, mechanism, has_peer in cases():
        row = f"{mechanism.strategy.steps:>6}{mechanism.strategy.bands:>5}  {name:<26}"
        here = ours(mechanism, arguments.repeats)
        row += f"{here:>12.0f}"
        for there in (jax_privacy(mechanism) if has_peer else None, numpy_baseline(mechanism)):
            row += f"{there:>12.0f}{here / there:>7.1f}x" if there else f"{'-':>12}{'-':>8}"
        print(row, flush=True)
    threads(cases()[0][1])
    if arguments.library:
        parts(arguments.library)


if __name__ == "__main__":
    np.seterr(all="raise", under="ignore")
    main()
