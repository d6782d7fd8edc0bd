"""Random allocation: certified intervals beside PLD_accounting and opake, and how they scale in steps, epochs and noise.

    python -m bench.allocation [W13 W14 W15] [--peers] [--scaling] [--output allocation.png]

The workloads are one of 100 steps, sigma = 1, 10 epochs, delta = 1e-5 (W13); one of 1000, 10 epochs, 1e-6 (W14); and one of 1000, 100 epochs,
sigma = 2, composed with 1000 Poisson-sampled steps (sigma = 1, q = .01), 1e-8 (W15), under add_or_remove. Times are processor seconds of first
calls. --peers (pip install PLD-accounting opake-accounting) takes some ten minutes. --scaling prints relative gap and time over a grid, and draws it.
"""

from __future__ import annotations

import argparse
import time

import hockeystick as hs

WORKLOADS = {
    "W13": (hs.RandomAllocation(1.0, 100) * 10, 1e-5),
    "W14": (hs.RandomAllocation(1.0, 1000) * 10, 1e-6),
    "W15": (
        hs.RandomAllocation(2.0, 1000) * 100 + hs.PoissonSampled(hs.Gaussian(1.0), 0.01) * 1000,
        1e-8,
    ),
}
NOISE, STEPS, EPOCHS = (0.3, 1.0, 3.0, 10.0, 100.0), (10, 100, 1000, 10**4, 10**5, 10**6), (1, 10, 100)


def ours(process: hs.mechanisms.Process, delta: float) -> tuple[float, float, float]:
    """Both bounds of epsilon, and the processor seconds of a first call."""
    start = time.process_time()
    bounds = hs.account(process).epsilon_bounds(delta)
    return bounds.lower, bounds.upper, time.process_time() - start


def pld_accounting(steps: int, epochs: int, delta: float) -> tuple[float, float]:
    from PLD_accounting.random_allocation_api import gaussian_allocation_epsilon_range

    upper, lower = gaussian_allocation_epsilon_range(
        delta=delta, sigma=1.0, num_steps=steps, num_epochs=epochs
    )
    return lower, upper


def opake(steps: int, epochs: int, delta: float) -> tuple[float, float]:
    from opake.api.accounting.core.opake_accounting import (
        DiscretizationConfig,
        random_allocation_gaussian_pld,
    )

    pld = random_allocation_gaussian_pld(1.0, steps, 1, DiscretizationConfig())
    return 0.0, pld.self_compose(epochs).epsilon_at(delta)


def show_workloads(names: list[str], with_peers: bool) -> None:
    print(f"{'':4} {'':15} {'lower':>14} {'upper':>14} {'gap':>8} {'seconds':>8}")
    for name in names:
        process, delta = WORKLOADS[name]
        lower, upper, seconds = ours(process, delta)
        print(
            f"{name:4} {'hockeystick':15} {lower:14.10f} {upper:14.10f} {1 - lower / upper:8.1e} {seconds:8.3f}",
            flush=True,
        )
        if not with_peers or name == "W15":
            continue
        steps = process.items[0][0].steps
        for peer in (pld_accounting, opake):
            start = time.process_time()
            try:
                low, high = peer(steps, 10, delta)
            except ImportError as error:
                print(f"{name:4} {peer.__name__:15} left out: {error}")
                continue
            spent = time.process_time() - start
            print(
                f"{name:4} {peer.__name__:15} {low:14.10f} {high:14.10f} {1 - low / high:8.1e} {spent:8.3f}  {spent / seconds:.0f}x",
                flush=True,
            )


def show_scaling(output: str | None) -> None:
    found = {}
    print(f"{'sigma':>6} {'steps':>8} {'epochs':>6} {'delta':>7} {'upper':>12} {'gap':>8} {'seconds':>8}")
    for sigma in NOISE:
        for steps in STEPS:
            for epochs in EPOCHS:
                lower, upper, seconds = ours(hs.RandomAllocation(sigma, steps) * epochs, 1e-6)
                gap = (upper - lower) / upper
                found[sigma, steps, epochs] = gap, seconds
                print(
                    f"{sigma:6} {steps:8} {epochs:6} {1e-6:7.0e} {upper:12.6g} {gap:8.1e} {seconds:8.2f}",
                    flush=True,
                )
    if output is None:
        return
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for axis, place, title in zip(
        axes, (0, 1), ("relative gap of epsilon", "processor seconds"), strict=True
    ):
        for sigma in NOISE:
            axis.loglog(
                STEPS,
                [max(found[sigma, steps, 10][place], 1e-14) for steps in STEPS],
                marker="o",
                label=f"σ = {sigma}",
            )
        axis.set_xlabel("steps per epoch")
        axis.set_title(f"{title} (10 epochs, δ = 1e-6)")
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.savefig(output, dpi=90)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS))
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--output")
    options = parser.parse_args()
    if options.scaling:
        show_scaling(options.output)
    else:
        show_workloads(options.workloads, options.peers)


if __name__ == "__main__":
    main()
