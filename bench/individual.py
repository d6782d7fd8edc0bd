"""Individual accounting: the ledger beside memory copies, individual epsilons beside the paper's method.

    python -m bench.individual                       # everything
    python -m bench.individual ledger --examples 10000000
    python -m bench.individual epsilon --examples 1000000
    python -m bench.individual exact --examples 1000
    python -m bench.individual short --examples 50000
    python -m bench.individual rare

ledger: one update of every example, against NumPy copying arrays of the same length with as many threads.
epsilon: delta = 1e-6 after 8,350 steps (50 epochs, batches of 300 of 50,000, sigma = 2, C = 5), both directions
together; the paper's FFT and Plancherel (NumPy, direction "remove" alone) on some of the same examples.
exact: random histories of those steps, against the engine's bounds on the composition with the norms as they are.
short: histories of 1, 3 and 10 steps, all norms different, beside the engine's own answers for some of them.
rare: sigma = 1, delta = 1e-6, 1000 steps in which hardly any draw is expected: how much larger than the full engine's the
fast and the refined epsilons are, for eight of 8 and of 64 different histories of ten norms each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import hockeystick as hs
import numpy as np
from hockeystick import _core

from bench.baselines.plancherel import Plancherel

CLOCKS = (time.perf_counter, time.process_time)
SIGMA, CLIP, Q, STEPS, DELTA = 2.0, 5.0, 300 / 50_000, 8350, 1e-6


def least_seconds(call: Callable[[], object], repeats: int = 15) -> tuple[float, float]:
    """(wall clock, processor time): the least of many runs. Others on the machine hardly change the second."""
    best = [float("inf")] * 2
    for _ in range(repeats):
        start = time.perf_counter(), time.process_time()
        call()
        best = [min(b, clock() - s) for b, s, clock in zip(best, start, CLOCKS, strict=True)]
    return best[0], best[1]


def ledger(examples: int) -> None:
    rng = np.random.default_rng(1)
    norms, source, target = rng.random(examples), rng.random(examples), np.empty(examples)
    for threads in sorted({1, _core.max_threads()}):
        hs.set_threads(threads)
        edges = np.linspace(0, examples, threads + 1).astype(int)
        parts = [slice(a, b) for a, b in pairwise(edges)]
        with ThreadPoolExecutor(threads) as pool:

            def copy(pool: ThreadPoolExecutor = pool, parts: list[slice] = parts) -> None:
                list(pool.map(lambda part: np.copyto(target[part], source[part]), parts))

            copied = least_seconds(copy)
        print(
            f"{threads} threads, {examples:,} examples: copying moves {16e-9 * examples / copied[0]:.1f} GB/s "
            f"(read + written), {16e-9 * examples / copied[1] * threads:.1f} GB/s by processor time"
        )
        for title, scaling in (
            ("step(mu)", {}),
            ("step(norms, noise, clip)", {"noise_multiplier": 50.0, "clipping_norm": 2.0}),
        ):
            filt = hs.IndividualGDPFilter(examples, mu=1e3)
            taken = least_seconds(lambda filt=filt, scaling=scaling: filt.step(norms, **scaling))
            # Norms and sums read, sums and the mask written: 25 bytes an example, not counting the check for
            # nan, which reads the norms once more.
            share = [25 / 16 * c / t for c, t in zip(copied, taken, strict=True)]
            print(
                f"  {title}: {1e3 * taken[0]:.1f} ms, {25e-9 * examples / taken[0]:.1f} GB/s, {share[0]:.0%} of copying "
                f"({share[1]:.0%} by processor time), {examples / taken[0] / 1e6:,.0f} million examples/s"
            )
        plain, mu = np.zeros(examples), norms * 1e-3

        def numpy_update(plain: np.ndarray = plain, mu: np.ndarray = mu) -> None:
            total = plain + mu * mu
            active = total <= 1e6
            plain[active] = total[active]

        print(f"  the same in NumPy, rounding as it comes: {1e3 * least_seconds(numpy_update, 3)[0]:.0f} ms")
    hs.set_threads(0)


def histories(rng: np.random.Generator, examples: int, edges: np.ndarray) -> np.ndarray:
    """Counts on the grid of `examples` runs: each example's norms are log-normal with a centre and width of its own."""
    kinds = 2000
    centre = CLIP * rng.uniform(0.02, 1.2, kinds)
    width = rng.uniform(0.02, 0.6, kinds)
    chances = np.zeros((kinds, edges.size))
    for kind in range(kinds):
        norms = centre[kind] * np.exp(width[kind] * rng.standard_normal(4000))
        cells = _core.find_cells(norms, edges, CLIP, SIGMA * CLIP).astype(int) - 1
        chances[kind] = np.bincount(cells, minlength=edges.size) / norms.size
    counts = np.empty((examples, edges.size), np.uint16)
    for start in range(0, examples, 10_000):
        part = counts[start : start + 10_000]
        part[...] = rng.multinomial(STEPS, chances[rng.integers(kinds, size=len(part))])
    return counts


def epsilon(examples: int, few: int) -> None:
    rng = np.random.default_rng(2)
    accountant = hs.IndividualAccountant(
        examples, noise_multiplier=SIGMA, sampling_probability=Q, clipping_norm=CLIP
    )
    start = time.perf_counter()
    accountant.step(CLIP * rng.random(examples))
    first = time.perf_counter() - start
    norms = CLIP * rng.random(examples)
    seconds = least_seconds(lambda: accountant.step(norms), 3)[0]
    print(
        f"recording one step of {examples:,} examples: {1e3 * seconds:.1f} ms (the first {1e3 * first:.0f} ms)"
    )
    print(f"drawing {examples:,} histories of {STEPS} steps ...", flush=True)
    counts = histories(rng, examples, accountant.edges)
    accountant._state.counts[Q] = counts
    start, busy = time.perf_counter(), time.process_time()
    found = accountant.nonadaptive_epsilon(DELTA)
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    cells = float((counts[:1000] > 0).sum(1).mean())
    print(
        f"epsilon at delta={DELTA} of {examples:,} examples after {STEPS} steps ({cells:.0f} cells of {counts.shape[1]} in use "
        f"each): {seconds:.1f} s with {_core.max_threads()} threads, {busy:.1f} s of processor time, "
        f"{1e6 * busy / examples:.1f} us each; "
        f"range {found.min():.4f} to {found.max():.4f}"
    )
    start = time.perf_counter()
    lower = accountant.nonadaptive_epsilon_bounds(DELTA).lower
    print(
        f"lower bounds as well: {time.perf_counter() - start:.1f} s; widest upper/lower - 1 {np.max(found / lower - 1):.2%}"
    )

    start = time.perf_counter()
    paper = Plancherel(accountant.edges, Q, 2e-4, 2**15)
    made = time.perf_counter() - start
    grid = np.linspace(0.0, 2.0, 4001)
    part = counts[:few].astype(float)
    paper.epsilon(part, DELTA, grid)  # makes the weights' transforms that it will want
    start = time.process_time()
    theirs = paper.epsilon(part, DELTA, grid)
    seconds_theirs = time.process_time() - start
    remove = hs.IndividualAccountant(
        few, noise_multiplier=SIGMA, sampling_probability=Q, clipping_norm=CLIP, adjacency="remove"
    )
    remove._state.counts[Q] = counts[:few].copy()
    ours = remove.nonadaptive_epsilon(DELTA)
    ratio = seconds_theirs / few / (busy / examples)
    print(
        f"FFT + Plancherel in NumPy, {few} of them, steps of 2e-4, 32768 points: {made:.1f} s for the spectra, then "
        f"{1e3 * seconds_theirs / few:.2f} ms of processor time each, {ratio:.0f} times as much (for one direction instead "
        f"of two); "
        f"err at most {paper.error(part).max():.1e}; theirs/ours - 1 from {np.min(theirs / ours - 1):.1e} "
        f"to {np.max(theirs / ours - 1):.1e}"
    )


def exact(examples: int) -> None:
    rng = np.random.default_rng(3)
    accountant = hs.IndividualAccountant(
        examples, noise_multiplier=SIGMA, sampling_probability=Q, clipping_norm=CLIP
    )
    distinct = 12
    centre, width = CLIP * rng.uniform(0.1, 1.2, (examples, 1)), rng.uniform(0.0, 0.6, (examples, 1))
    norms = centre * np.exp(width * rng.standard_normal((examples, distinct)))
    times = rng.multinomial(STEPS, np.full(distinct, 1 / distinct), size=examples)
    for column, count in zip(norms.T, times.T, strict=True):
        for value in np.unique(count).tolist():
            accountant.step(np.where(count == value, column, 0.0), steps=value)
    lower, upper = accountant.nonadaptive_epsilon_bounds(DELTA)
    inquiries = []
    for row, count in zip(np.minimum(norms, CLIP) / (SIGMA * CLIP), times, strict=True):
        sides = [
            [
                (_core.sampled_pair(_core.gaussian_pair(mu), Q, side), k)
                for mu, k in zip(row.tolist(), count.tolist(), strict=True)
            ]
            for side in ("remove", "add")
        ]
        inquiries.append((sides, [DELTA]))
    start = time.perf_counter()
    exact_lower, exact_upper, _ = _core.grid("epsilon", inquiries, 1e-4)
    seconds = time.perf_counter() - start
    print(
        f"{examples} random histories of {distinct} norms each, exact composition in {seconds:.1f} s: "
        f"below the exact lower bound {int((upper < exact_lower).sum())} times, lower above the exact upper bound "
        f"{int((lower > exact_upper).sum())} times; upper/exact - 1: mean {np.mean(upper / exact_lower - 1):.2%}, "
        f"largest {np.max(upper / exact_lower - 1):.2%}"
    )


def short(examples: int, few: int = 20) -> None:
    for steps in (1, 3, 10):
        rng = np.random.default_rng(4)
        accountant = hs.IndividualAccountant(
            examples, noise_multiplier=SIGMA, sampling_probability=Q, clipping_norm=CLIP
        )
        for _ in range(steps):
            accountant.step(CLIP * np.minimum(1.3, np.exp(rng.normal(-0.9, 0.7, examples))))
        start, busy = time.perf_counter(), time.process_time()
        found = accountant.nonadaptive_epsilon(DELTA)
        seconds, busy = time.perf_counter() - start, time.process_time() - busy
        start = time.perf_counter()
        engine = np.array([accountant.profile(row).epsilon_bounds(DELTA).lower for row in range(few)])
        each = (time.perf_counter() - start) / few
        print(
            f"{examples:,} examples of {steps} steps: {seconds:.2f} s, {busy:.2f} s of processor time; the engine alone "
            f"{1e3 * each:.1f} ms each; upper/engine's lower - 1 up to {np.max(found[:few] / engine - 1):.2%}"
        )


def rare() -> None:
    for examples in (8, 64):
        for q in (1e-5, 1e-4):
            rng = np.random.default_rng(6)
            accountant = hs.IndividualAccountant(
                examples, noise_multiplier=1.0, sampling_probability=q, clipping_norm=1.0
            )
            base = rng.uniform(0.1, 1.2, examples)
            for _ in range(10):
                accountant.step(base * rng.uniform(0.7, 1.2, examples), steps=100)
            start = time.process_time()
            fast = accountant.nonadaptive_epsilon(1e-6, refine=0)
            between = time.process_time()
            refined = accountant.nonadaptive_epsilon(1e-6)
            end = time.process_time()
            some = np.arange(0, examples, examples // 8)
            engine = np.array([accountant.profile(row).epsilon_bounds(1e-6).lower for row in some.tolist()])
            fast, refined = fast[some], refined[some]
            print(
                f"{examples} examples, q={q:g}: fast {np.median(fast / engine):.3g} times too large (at most "
                f"{np.max(fast / engine):.3g}), {between - start:.2f} s; refined {np.median(refined / engine):.4g} "
                f"({np.max(refined / engine):.4g}), {end - between:.2f} s, of processor time"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[[], "ledger", "epsilon", "exact", "short", "rare"])
    parser.add_argument("--examples", type=int, default=0)
    parser.add_argument("--few", type=int, default=200, help="examples for the paper's method")
    arguments = parser.parse_args()
    parts = arguments.parts or ["ledger", "epsilon", "exact", "short", "rare"]
    if "ledger" in parts:
        ledger(arguments.examples or 10_000_000)
    if "epsilon" in parts:
        epsilon(arguments.examples or 1_000_000, arguments.few)
    if "exact" in parts:
        exact(arguments.examples or 1000)
    if "short" in parts:
        short(arguments.examples or 50_000)
    if "rare" in parts:
        rare()


if __name__ == "__main__":
    main()
