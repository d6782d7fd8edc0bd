"""Random allocation: certified intervals beside PLD_accounting and opake, and how they scale in steps, epochs and noise.

    python -m bench.allocation [W13 W14 W15] [--peers] [--scaling] [--output allocation.png] [--tails] [--company] [--random REQUESTS]

The workloads are one of 100 steps, sigma = 1, 10 epochs, delta = 1e-5 (W13); one of 1000, 10 epochs, 1e-6 (W14); and one of 1000, 100 epochs,
sigma = 2, composed with 1000 Poisson-sampled steps (sigma = 1, q = .01), 1e-8 (W15), under add_or_remove. Times are processor seconds of first
calls. --peers (pip install PLD-accounting opake-accounting) takes some ten minutes. --scaling prints relative gap and time over a grid, and draws it;
--tails prints the same of one, two and ten epochs at small deltas, where a single large likelihood ratio begins to matter,
and of few steps; --company of compositions of several kinds of allocation, or with steps that are not Gaussian; --random what random requests take, sigma .3
to 100, up to 10^6 steps, 1 to 50 epochs and delta 1e-30 to 1e-3.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable

import hockeystick as hs

from bench.truncated import opake_core

WORKLOADS = {
    "W13": (hs.RandomAllocation(1.0, 100) * 10, 1e-5),
    "W14": (hs.RandomAllocation(1.0, 1000) * 10, 1e-6),
    "W15": (
        hs.RandomAllocation(2.0, 1000) * 100 + hs.PoissonSampled(hs.Gaussian(1.0), 0.01) * 1000,
        1e-8,
    ),
}
TAILS = (
    *((sigma, steps, 1) for sigma in (0.7, 1.0, 1.5, 3.0) for steps in (100, 1000, 10**5)),
    *((sigma, steps, epochs) for epochs in (2, 10) for sigma, steps in ((0.7, 1000), (1.0, 10**5))),
    *((sigma, 10**5, epochs) for epochs in (2, 10) for sigma in (0.7, 0.5)),
    (0.5, 10**6, 10),
    *((sigma, 10**6, epochs) for sigma in (0.4, 0.3) for epochs in (2, 5, 20)),
    # Little noise, one epoch; and few steps with much noise, as many as its multiple, or more.
    *((sigma, steps, 1) for sigma in (0.3, 0.5) for steps in (100, 10**4, 10**6)),
    *((30.0, steps, 1) for steps in (2, 3, 4, 5, 7)),
    *((1.0 * steps, steps, epochs) for steps, epochs in ((8, 1), (9, 2), (18, 2))),
    *((10.0, steps, 1) for steps in (4, 5, 7)),
    *((5.0, steps, 1) for steps in (5, 6, 8)),
    *((30.0, steps, 10) for steps in (2, 3, 4)),
)
COMPANY = (
    (hs.RandomAllocation(1.7, 2649) + hs.RandomAllocation(5.16, 3840) * 11, 1.9e-15),
    (
        hs.RandomAllocation(7.268, 163) * 3
        + hs.PoissonSampled(hs.Gaussian(1.009), 0.00012) * 54
        + hs.PoissonSampled(hs.Gaussian(2.816), 0.00012) * 11,
        2.2e-21,
    ),
    (
        hs.RandomAllocation(2.239, 1951) * 3 + hs.Laplace(48.52) * 3 + hs.RandomAllocation(1.428, 1436) * 3,
        7.2e-16,
    ),
    (hs.RandomAllocation(4.583, 5825) * 4 + hs.RandomAllocation(0.953, 20820) * 25, 3.3e-12),
    (
        hs.RandomAllocation(0.704, 38640)
        + hs.PoissonSampled(hs.Gaussian(3.47), 0.00011) * 1026
        + hs.PoissonSampled(hs.Gaussian(3.458), 0.02342) * 37,
        1.8e-15,
    ),
    (hs.RandomAllocation(1.527, 9942) * 5 + hs.Laplace(16.01) * 11, 1.5e-11),
    (hs.RandomAllocation(0.615, 82727) * 5 + hs.Laplace(80.51) * 18, 9.5e-7),
    (hs.RandomAllocation(0.814, 12997) * 21 + hs.RandomAllocation(1.475, 10128) * 2, 8.8e-23),
    (hs.RandomAllocation(0.748, 24532) * 13 + hs.Laplace(7.12) * 10, 4.8e-11),
    (hs.RandomAllocation(0.702, 46908) * 4 + hs.PoissonSampled(hs.Gaussian(4.945), 0.00806) * 1468, 1.5e-25),
    (hs.RandomAllocation(4.748, 31849) + hs.PoissonSampled(hs.Gaussian(1.049), 1.8e-5) * 2, 5.3e-8),
    (hs.RandomAllocation(13.99, 6614) + hs.TruncatedPoissonSampled(0.9804, 589, 0.001698, 4), 4.9e-5),
    (
        hs.RandomAllocation(17.18, 4185) * 12 + hs.TruncatedPoissonSampled(1.627, 255300, 0.004097, 1217) * 2,
        1.9e-13,
    ),
    (hs.RandomAllocation(5.22, 88000) + hs.DiscreteLaplace(9.375) * 138, 2.1e-25),
    (hs.RandomAllocation(16.64, 33310) + hs.DiscreteGaussian(1.997) * 129, 7.6e-23),
    (
        hs.RandomAllocation(4.879, 76080) * 20
        + hs.PoissonSampled(hs.RandomizedResponse(0.8766), 0.145) * 509,
        2.1e-10,
    ),
)
NOISE, STEPS, EPOCHS = (0.3, 1.0, 3.0, 10.0, 100.0), (10, 100, 1000, 10**4, 10**5, 10**6), (1, 10, 100, 1000)


def ours(process: hs.mechanisms.Process, delta: float) -> tuple[float, float, float]:
    """Both bounds of epsilon, and the processor seconds of a first call."""
    start = time.process_time()
    bounds = hs.account(process).epsilon_bounds(delta)
    return bounds.lower, bounds.upper, time.process_time() - start


def pld_accounting(name: str, delta: float) -> tuple[float, float]:
    """Its adaptive range for one mechanism; for W15 its default lattice, composed with dp_accounting's."""
    from PLD_accounting import (
        AllocationSchemeConfig,
        BoundType,
        gaussian_allocation_epsilon_range,
        gaussian_allocation_pld,
    )
    from PLD_accounting.types import PrivacyParams

    if name != "W15":
        steps = WORKLOADS[name][0].items[0][0].steps
        upper, lower = gaussian_allocation_epsilon_range(
            delta=delta, sigma=1.0, num_steps=steps, num_epochs=10
        )
        return lower, upper
    from dp_accounting.pld import privacy_loss_distribution as pld

    config, found = AllocationSchemeConfig(), []
    for bound in (BoundType.IS_DOMINATED, BoundType.DOMINATES):
        allocated = gaussian_allocation_pld(
            params=PrivacyParams(sigma=2.0, num_steps=1000, num_epochs=100), config=config, bound_type=bound
        )
        sampled = pld.from_gaussian_mechanism(
            1.0,
            value_discretization_interval=config.loss_discretization,
            pessimistic_estimate=bound is BoundType.DOMINATES,
            sampling_prob=0.01,
        )
        found.append(allocated.compose(sampled.self_compose(1000)).get_epsilon_for_delta(delta))
    return found[0], found[1]


def opake(name: str, delta: float) -> tuple[float, float]:
    """Its upper bound; it has no lower one."""
    core = opake_core()
    config = core.DiscretizationConfig()
    if name != "W15":
        steps = WORKLOADS[name][0].items[0][0].steps
        pld = core.random_allocation_gaussian_pld(1.0, steps, 1, config).self_compose(10)
        return 0.0, pld.epsilon_at(delta)
    sampled = core.poisson_pld(core.gaussian_pld(1.0, config), 0.01).self_compose(1000)
    pld = core.random_allocation_gaussian_pld(2.0, 1000, 1, config).self_compose(100).compose(sampled)
    return 0.0, pld.epsilon_at(delta)


PEERS: tuple[Callable[[str, float], tuple[float, float]], ...] = (pld_accounting, opake)


def show_workloads(names: list[str], with_peers: bool) -> None:
    print(f"{'':4} {'':15} {'lower':>14} {'upper':>14} {'gap':>8} {'seconds':>8}")
    for name in names:
        process, delta = WORKLOADS[name]
        lower, upper, seconds = ours(process, delta)
        print(
            f"{name:4} {'hockeystick':15} {lower:14.10f} {upper:14.10f} {1 - lower / upper:8.1e} {seconds:8.3f}",
            flush=True,
        )
        for peer in PEERS if with_peers else ():
            start = time.process_time()
            try:
                low, high = peer(name, delta)
            except ImportError as error:
                print(f"{name:4} {peer.__name__:15} left out: {error}")
                continue
            spent = time.process_time() - start
            print(
                f"{name:4} {peer.__name__:15} {low:14.10f} {high:14.10f} {1 - low / high:8.1e} {spent:8.3f}  {spent / seconds:.0f}x",
                flush=True,
            )


def show_scaling(output: str | None) -> None:
    """Relative gap and time against steps (10 epochs) and epochs (1000 steps), for each noise multiplier."""
    found: dict[tuple[float, int, int], tuple[float, float]] = {}
    sweeps = [
        ("steps per epoch (10 epochs, δ = 1e-6)", STEPS, [(steps, 10) for steps in STEPS]),
        ("epochs (of 1000 steps, δ = 1e-6)", EPOCHS, [(1000, epochs) for epochs in EPOCHS]),
    ]
    print(f"{'sigma':>6} {'steps':>8} {'epochs':>6} {'upper':>12} {'gap':>8} {'seconds':>8}")
    for sigma in NOISE:
        for steps, epochs in dict.fromkeys(place for sweep in sweeps for place in sweep[2]):
            lower, upper, seconds = ours(hs.RandomAllocation(sigma, steps) * epochs, 1e-6)
            gap = (upper - lower) / upper
            found[sigma, steps, epochs] = gap, seconds
            print(
                f"{sigma:6} {steps:8} {epochs:6} {upper:12.6g} {gap:8.1e} {seconds:8.2f}",
                flush=True,
            )
    if output is None:
        return
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 6.6), layout="constrained")
    panels = figure.subplots(2, 2)
    for row, (label, values, places) in zip(panels, sweeps, strict=True):
        for axes, part, title in zip(row, (0, 1), ("relative gap of ε", "processor seconds"), strict=True):
            for sigma in NOISE:
                heights = [max(found[(sigma, *place)][part], 1e-14) for place in places]
                axes.loglog(values, heights, marker="o", ms=4, label=f"σ = {sigma:g}")
            axes.set(xlabel=label, ylabel=title)
            axes.grid(alpha=0.3)
    panels[0, 0].legend(fontsize=7)
    figure.savefig(output, dpi=90)


def show_tails() -> None:
    """The gap of epsilon at small deltas, one epoch, two and ten; "-" where the lower bound is 0."""
    deltas = (1e-6, 1e-9, 1e-12, 1e-15, 1e-20, 1e-30)
    head = "".join(f"{delta:>10.0e}" for delta in deltas)
    print(f"{'sigma':>6} {'steps':>8} {'epochs':>6}{head}   seconds")
    for sigma, steps, epochs in TAILS:
        found = [ours(hs.RandomAllocation(sigma, steps) * epochs, delta) for delta in deltas]
        gaps = [f"{1 - lower / upper:10.0e}" if lower > 0 else f"{'-':>10}" for lower, upper, _ in found]
        slowest = max(seconds for _, _, seconds in found)
        print(f"{sigma:6} {steps:8} {epochs:6}{''.join(gaps)} {slowest:9.2f}", flush=True)


def show_random(requests: int) -> None:
    """How long random requests take, and how wide they are; the slowest of them."""
    draw = random.Random(1)
    found = []
    for _ in range(requests):
        sigma, steps = math.exp(draw.uniform(*map(math.log, (0.3, 100)))), round(10 ** draw.uniform(0, 6))
        epochs, delta = draw.choice((1, 2, 3, 5, 10, 20, 50)), 10 ** draw.uniform(-30, -3)
        process = hs.RandomAllocation(float(f"{sigma:.4g}"), steps) * epochs
        lower, upper, seconds = ours(process, float(f"{delta:.2g}"))
        found.append((seconds, (upper - lower) / upper if upper else 0.0, f"{process} at {delta:.2g}"))
    found.sort(reverse=True)
    times, widest = [seconds for seconds, _, _ in found], max(gap for _, gap, _ in found)
    print(
        f"{requests} requests: median {times[requests // 2]:.3f} s, {sum(t > 0.8 for t in times)} above .8 s; "
        f"widest {widest:.0e}"
    )
    for seconds, gap, name in found[:5]:
        print(f"{seconds:6.2f} s  {gap:7.0e}  {name}")


def word(mechanism: object) -> str:
    """A mechanism in a few characters."""
    match mechanism:
        case hs.RandomAllocation(noise_multiplier=sigma, steps=steps):
            return f"1 of {steps}, σ {sigma}"
        case hs.PoissonSampled(mechanism=hs.Gaussian(noise_multiplier=sigma), sampling_probability=q):
            return f"q {q}, σ {sigma}"
        case hs.TruncatedPoissonSampled(noise_multiplier=sigma, sampling_probability=q, max_batch_size=most):
            return f"q {q}, at most {most}, σ {sigma}"
        case hs.PoissonSampled(mechanism=hs.RandomizedResponse(epsilon=epsilon), sampling_probability=q):
            return f"q {q}, response {epsilon}"
        case hs.DiscreteLaplace(scale=scale) | hs.Laplace(scale=scale) | hs.DiscreteGaussian(sigma=scale):
            return f"{type(mechanism).__name__} {scale}"
    return str(mechanism)


def show_company() -> None:
    """Bounds of epsilon for epochs of one kind of allocation beside another, or beside other steps."""
    print(f"{'delta':>8} {'upper':>16} {'gap':>8} {'seconds':>8}")
    for process, delta in COMPANY:
        lower, upper, seconds = ours(process, delta)
        name = "; ".join(f"{count}x {word(mechanism)}" for mechanism, count in process.items)
        print(f"{delta:8.0e} {upper:16.10g} {1 - lower / upper:8.0e} {seconds:8.2f}  {name}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS))
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--output")
    parser.add_argument("--tails", action="store_true")
    parser.add_argument("--company", action="store_true")
    parser.add_argument("--random", type=int, metavar="REQUESTS")
    options = parser.parse_args()
    if options.scaling:
        show_scaling(options.output)
    elif options.tails:
        show_tails()
    elif options.company:
        show_company()
    elif options.random:
        show_random(options.random)
    else:
        show_workloads(options.workloads, options.peers)


if __name__ == "__main__":
    main()
