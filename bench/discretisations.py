"""Three ways to put a privacy loss on a lattice: how fast does epsilon converge as the step shrinks?

    python -m bench.discretisations --output discretisations.png

Upper and lower bounds (connect the dots; tangents) and naive rounding give intervals that hold as they are.
Mean-preserving rounding (Gopi et al. 2021) gives an estimate, shown as "mean", and the interval that its
coupling bound allows, shown as "coupled": estimate +- step sqrt(k/2 ln(2/eta)), evaluated at delta -+ eta.
"""

from __future__ import annotations

import argparse

import numpy as np

from bench.baselines import accountant, compose, discretise, pairs, profile
from bench.workloads import WORKLOADS, Workload

STEPS = 0.1 * 2.0 ** -np.arange(3, 12)
FAILURE = 1e-3
"""eta, as a fraction of delta."""


def rounded(direction: str) -> accountant.Discretise:
    return lambda *grid: discretise.rounded(*grid, direction)


METHODS = {
    "upper": discretise.upper,
    "lower": discretise.lower,
    "round up": rounded("up"),
    "round down": rounded("down"),
    "nearest": rounded("nearest"),
}


def mean_preserving(parts: list, count: int, delta: float, step: float) -> tuple[float, float, float]:
    """Estimate, and the lower and upper end that the coupling bound leaves."""
    grids = accountant.lattices(parts, step, discretise.mean_preserving)
    composed = compose.compose(grids, compose.saddle(grids, delta))
    slack, eta = discretise.coupling(step, count, FAILURE * delta), FAILURE * delta
    return (
        profile.epsilon(composed, delta),
        max(0.0, profile.epsilon(composed, delta + eta) - slack),
        profile.epsilon(composed, delta - eta) + slack,
    )


def table(work: Workload) -> dict[str, list[float]]:
    """Relative error of epsilon per method, one entry per step."""
    truth, delta = work.true_epsilon(), work.delta
    parts = [(pairs.Sampled(pairs.Gaussian(1 / sigma), q), k) for sigma, q, k in work.steps]
    count = sum(k for _, k in parts)
    errors: dict[str, list[float]] = {
        name: [] for name in [*METHODS, "mean", "coupled lower", "coupled upper"]
    }
    for step in STEPS:
        values = {name: accountant.epsilon(parts, delta, step, method) for name, method in METHODS.items()}
        values["mean"], values["coupled lower"], values["coupled upper"] = mean_preserving(
            parts, count, delta, step
        )
        for name, value in values.items():
            errors[name].append(value / truth - 1)
    return errors


def plot(errors: dict[str, list[float]], title: str, output: str) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 5), layout="constrained")
    families = {"upper": "C0", "lower": "C0", "mean": "C1", "coupled": "C1", "round": "C2", "nearest": "C3"}
    for name, values in errors.items():
        colour = families.get(name) or families[name.split()[0]]
        style = "-" if name in ("upper", "coupled upper", "round up") else "--"
        if name in ("mean", "nearest"):
            style = ":"
        axes.loglog(STEPS, np.abs(values), style, color=colour, marker=".", label=name)
    axes.set(xlabel="step of the lattice", ylabel="|relative error of epsilon|", title=title)
    axes.legend(ncols=2)
    axes.grid(alpha=0.3)
    figure.savefig(output, dpi=150)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workload", default="W1", choices=["W1", "W3", "W5"])
    parser.add_argument("--output", default="discretisations.png", help="PNG to write")
    arguments = parser.parse_args()
    errors = table(WORKLOADS[arguments.workload])
    print(f"{arguments.workload}: relative error of epsilon")
    print(f"{'step':>10}" + "".join(f"{name:>15}" for name in errors))
    for i, step in enumerate(STEPS):
        print(f"{step:>10.2e}" + "".join(f"{values[i]:>+15.2e}" for values in errors.values()))
    plot(errors, f"{arguments.workload}: error against step", arguments.output)
    print(f"written: {arguments.output}")


if __name__ == "__main__":
    main()
