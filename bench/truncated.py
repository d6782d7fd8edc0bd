"""W10, truncated Poisson batches: hockeystick beside dp_accounting and opake-accounting, in one run.

    python -m bench.truncated                  # n = 100,000, p = 0.01, sigma = 1, T = 1000, delta = 1e-6
    python -m bench.truncated 1100 --repeats 20

Each line is one maximum batch size and adjacency: epsilon of each tool, the least processor time of a first call
that starts from the description, and how many times faster hockeystick is. opake has one form only, under
add/remove. All tools use one thread.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hockeystick as hs

from bench.timing import times

N, P, SIGMA, STEPS, DELTA = 100_000, 0.01, 1.0, 1000, 1e-6
SIZES = (1050, 1100, 1150, 1200, 1300, 1400)
ADJACENCIES = ("add_or_remove", "zero_out", "replace_one")
ROW = "{:>5}  {:<14} {:>12} {:>9}  {:>12} {:>9} {:>7}  {:>12} {:>9}"


def hockeystick(size: int, adjacency: str) -> float:
    step = hs.TruncatedPoissonSampled(SIGMA, N, P, size)
    return hs.account(step * STEPS, adjacency).epsilon(DELTA)


def dp_accounting(size: int, adjacency: str) -> float:
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    relation = {
        "add_or_remove": dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
        "zero_out": dp_accounting.NeighboringRelation.REPLACE_SPECIAL,
        "replace_one": dp_accounting.NeighboringRelation.REPLACE_ONE,
    }[adjacency]
    accountant = PLDAccountant(relation)
    event = dp_accounting.TruncatedSubsampledGaussianDpEvent(
        dataset_size=N, sampling_probability=P, truncated_batch_size=size, noise_multiplier=SIGMA
    )
    accountant.compose(event, STEPS)
    epsilon: float = accountant.get_epsilon(DELTA)
    return epsilon


def opake(size: int) -> float:
    core = opake_core()
    pld = core.truncated_poisson_gaussian_pld(SIGMA, P, size, N, core.DiscretizationConfig())
    epsilon: float = pld.self_compose(STEPS).epsilon_at(DELTA)
    return epsilon


@functools.cache
def opake_core() -> Any:
    """The compiled part alone: the package's Python part does not import on every Python version."""
    package = importlib.util.find_spec("opake")
    if package is None or package.submodule_search_locations is None:
        raise ImportError("opake-accounting")
    path = next(Path(package.submodule_search_locations[0]).rglob("opake_accounting*.so"))
    spec = importlib.util.spec_from_file_location("opake_accounting", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def least_time(call: Callable[[], float], repeats: int) -> tuple[float, float]:
    return call(), min(times(call, repeats))


def peer(call: Callable[[], float], repeats: int) -> tuple[float, float] | None:
    """What a peer says, None where it is not installed."""
    try:
        return least_time(call, repeats)
    except ImportError:
        return None


def cells(found: tuple[float, float] | None) -> tuple[str, str]:
    return ("-", "-") if found is None else (f"{found[0]:.6f}", f"{1e3 * found[1]:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sizes", nargs="*", type=int, default=SIZES, help="maximum batch sizes")
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    hs.set_threads(1)
    print(
        ROW.format("B", "adjacency", "hockeystick", "ms", "dp_acc", "ms", "faster", "opake", "ms"), flush=True
    )
    for size in options.sizes:
        for adjacency in ADJACENCIES:
            few = options.repeats // 5 + 1
            ours = least_time(functools.partial(hockeystick, size, adjacency), options.repeats)
            theirs = peer(functools.partial(dp_accounting, size, adjacency), few)
            other = peer(functools.partial(opake, size), few) if adjacency == "add_or_remove" else None
            ratio = "-" if theirs is None else f"{theirs[1] / ours[1]:.0f}x"
            print(ROW.format(size, adjacency, *cells(ours), *cells(theirs), ratio, *cells(other)), flush=True)
            for name, found in (("dp_accounting", theirs), ("opake", other)):
                if found is not None and ours[0] > found[0]:
                    print(f"       above {name}: {ours[0]!r} > {found[0]!r}")


if __name__ == "__main__":
    main()
