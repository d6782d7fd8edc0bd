"""Sampling with replacement of many records with little noise: how long any such request takes.

    python -m bench.wide [--all]

For σ in 0.02..5, batches and datasets of 2 to 100,000 records, 2 to 1,000,000 steps at δ = 1e-5: the processor time of
ε with both bounds, the slowest requests, and those whose interval is wider than asked for. --all takes more of each.
"""

from __future__ import annotations

import argparse
import itertools
import time

import hockeystick as hs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--all", action="store_true", help="1200 requests and more δ, not 192")
    everything = parser.parse_args().all
    sigmas = [0.02, 0.05, 0.1, 0.3, 1.0, 5.0] if everything else [0.02, 0.1, 1.0, 5.0]
    sizes = [1, 2, 30, 1000, 100_000] if everything else [2, 30, 1000, 100_000]
    counts = [2, 10, 100, 10_000, 1_000_000] if everything else [2, 100, 1_000_000]
    deltas = [1e-2, 1e-5, 1e-10, 1e-50] if everything else [1e-5]
    found = []
    for sigma, batch, dataset, steps in itertools.product(sigmas, sizes, sizes, counts):
        step = hs.WithReplacement(hs.Gaussian(sigma), batch, dataset)
        for delta in deltas:
            start = time.process_time()
            account = hs.account(step * steps, adjacency="replace_one")
            lower, upper = account.epsilon_bounds(delta=delta)
            seconds = time.process_time() - start
            gap = 1.0 - lower / upper if upper > 0.0 else 0.0
            found.append((seconds, gap, sigma, batch, dataset, steps, delta))
    found.sort(reverse=True)
    seconds = sum(entry[0] for entry in found)
    over = sum(entry[0] > 1.0 for entry in found)
    print(f"{len(found)} requests, {seconds:.0f} s of processor time, {over} over 1 s; the slowest:")
    for entry in found[:10]:
        print("  {:.2f} s  gap {:.1e}  sigma {} batch {} of {}, {} steps, delta {:g}".format(*entry))
    wide = [entry for entry in found if entry[1] > 1.01e-3]
    print(f"{len(wide)} intervals wider than 1e-3:")
    for entry in wide:
        print("  {:.2f} s  gap {:.1e}  sigma {} batch {} of {}, {} steps, delta {:g}".format(*entry))


if __name__ == "__main__":
    main()
