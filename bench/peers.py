"""hockeystick beside dp_accounting and prv_accountant: epsilon, gap, processor time and memory in one run.

    python -m bench.peers                       # W1-W3, W5, W11, W12
    python -m bench.peers W7 W11 --repeats 5

Every measurement is its own process on one thread: it forgets what it has computed and builds the description
anew for each repetition, and reports the least processor time of a call, so that a busy machine does not
matter, and its peak memory. (The peers' transforms take one thread, whatever there are.) hockeystick runs twice: as anybody would call it, and with the
loosest `accuracy` (halved from 1/8) whose upper bound is no further from the truth than dp_accounting's.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from bench.timing import times
from bench.workloads import WORKLOADS, Workload

ROOT = Path(__file__).parent.parent
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
COLUMNS = "{:<5} {:<34} {:>13} {:>10} {:>10} {:>8} {:>8}"


def hockeystick(work: Workload, accuracy: float | None = None) -> float:
    import hockeystick as hs

    if work.laplace:
        scale, count = work.laplace
        process = hs.Laplace(scale) * count
    else:
        process = sum(hs.PoissonSampled(hs.Gaussian(sigma), q) * count for sigma, q, count in work.steps)
    profile = hs.account(process) if accuracy is None else hs.account(process, accuracy=accuracy)
    return profile.epsilon(delta=work.delta)


def dp_accounting(work: Workload, step: float | None = None) -> float:
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant() if step is None else PLDAccountant(value_discretization_interval=step)
    if work.laplace:
        scale, count = work.laplace
        accountant.compose(dp_accounting.LaplaceDpEvent(scale), count)
    for sigma, q, count in work.steps:
        event = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(sigma))
        accountant.compose(event, count)
    return accountant.get_epsilon(work.delta)


def prv_accountant(work: Workload, eps_error: float = 0.01) -> float:
    import prv_accountant as prv

    if work.laplace:
        scale, count = work.laplace
        mechanisms, counts = [prv.LaplaceMechanism(1 / scale)], [count]
    else:
        mechanisms = [
            prv.GaussianMechanism(sigma) if q == 1 else prv.PoissonSubsampledGaussianMechanism(q, sigma)
            for sigma, q, _ in work.steps
        ]
        counts = [count for *_, count in work.steps]
    accountant = prv.PRVAccountant(
        mechanisms, max_self_compositions=counts, eps_error=eps_error, delta_error=work.delta / 1000
    )
    return accountant.compute_epsilon(work.delta, counts)[2]


TOOLS: dict[str, Callable[..., float]] = {
    "hockeystick": hockeystick,
    "dp_accounting": dp_accounting,
    "prv_accountant": prv_accountant,
}


def megabytes() -> float:
    """Peak memory of this process so far, its imports included."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def work(tool: str, name: str, repeats: int, setting: float | None, limit: float | None) -> dict[str, float]:
    """What a measuring process does. `limit`: look for the loosest accuracy with an answer below it."""
    settings = () if setting is None else (setting,)
    TOOLS[tool](Workload(1e-3, ((3.0, 0.5, 2),)), *settings)  # imports and first-use costs
    if limit is not None:
        accuracy = 0.125
        while TOOLS[tool](WORKLOADS[name], accuracy) > limit and accuracy > 1e-9:
            accuracy /= 2
        settings = (accuracy,)
    found: list[float] = []
    seconds = times(lambda: found.append(TOOLS[tool](WORKLOADS[name], *settings)), repeats, 20.0)
    accuracy = settings[0] if settings else math.nan
    return {"epsilon": found[-1], "seconds": min(seconds), "mb": megabytes(), "setting": accuracy}


def measure(
    tool: str, name: str, repeats: int, setting: float | None = None, limit: float | None = None
) -> dict[str, float] | str:
    """Run `work` in a process of its own; its last line of error where it failed."""
    question = json.dumps([tool, name, repeats, setting, limit])
    command = [sys.executable, "-m", "bench.peers", "--worker", question]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **ONE_THREAD},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "timeout"
    if done.returncode:
        return done.stderr.strip().splitlines()[-1][:60]
    return json.loads(done.stdout.splitlines()[-1])


def compare(name: str, repeats: int) -> None:
    truth = WORKLOADS[name].true_epsilon()
    reference = measure("dp_accounting", name, repeats)
    rows = [("dp_accounting 1e-4 (default)", reference)]
    rows.append(("prv_accountant eps_error=.01", measure("prv_accountant", name, repeats)))
    # Its calls take fractions of a millisecond: more of them, so that the median means something.
    rows.append(("hockeystick (default)", measure("hockeystick", name, 20 * repeats)))
    if isinstance(reference, dict):
        matched = measure("hockeystick", name, 20 * repeats, limit=reference["epsilon"])
        title = (
            f"hockeystick ({matched['setting']:.1e})"
            if isinstance(matched, dict)
            else "hockeystick (matched)"
        )
        rows.append((title, matched))
    for title, row in rows:
        if isinstance(row, str):
            print(COLUMNS.format(name, title, row, "", "", "", ""), flush=True)
            continue
        ratio = f"{reference['seconds'] / row['seconds']:.1f}x" if isinstance(reference, dict) else ""
        gap = row["epsilon"] / truth - 1
        cells = (
            f"{row['epsilon']:.8f}",
            f"{gap:+.1e}",
            f"{1e3 * row['seconds']:.2f}",
            f"{row['mb']:.0f}",
            ratio,
        )
        print(COLUMNS.format(name, title, *cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workloads", nargs="*", choices=[[], *WORKLOADS], help="default: W1 W2 W3 W5 W11 W12")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        print(json.dumps(work(*json.loads(arguments.worker))))
        return
    print(COLUMNS.format("", "tool", "epsilon", "gap", "CPU ms", "peak MB", "ratio", ""))
    for name in arguments.workloads or ["W1", "W2", "W3", "W5", "W11", "W12"]:
        compare(name, arguments.repeats)


if __name__ == "__main__":
    main()
