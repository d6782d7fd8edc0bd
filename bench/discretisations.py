"""Three ways to put a privacy loss on a lattice: how fast does epsilon converge as the step shrinks?

    python -m bench.discretisations --output discretisations.png

Every method gives an interval that holds as it is:
    upper/lower      chords and tangents of the profile;
    mean-preserving  nearest point, the mean kept, and the coupling bound (Gopi et al. 2021), from the core;
    round up/down    naive rounding.
"nearest" is naive rounding to the nearest point, an estimate without a bound.
"""

from __future__ import annotations

import argparse

import numpy as np
from hockeystick import _core

from bench.baselines import accountant, discretise, pairs
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


def mean_preserving(work: Workload, step: float) -> tuple[float, float]:
    """The interval of the coupling bound."""
    parts = [
        (_core.sampled_pair(_core.gaussian_pair(1 / sigma), q, "remove"), count)
        for sigma, q, count in work.steps
    ]
    return _core.Coupling(parts, step, FAILURE * work.delta).epsilon_bounds(work.delta)


def table(work: Workload) -> dict[str, list[float]]:
    """Relative error of epsilon per method, one entry per step."""
    truth, delta = work.true_epsilon(), work.delta
    parts = [(pairs.Sampled(pairs.Gaussian(1 / sigma), q), k) for sigma, q, k in work.steps]
    errors: dict[str, list[float]] = {name: [] for name in [*METHODS, "mean lower", "mean upper"]}
    for step in STEPS:
        values = {name: accountant.epsilon(parts, delta, step, method) for name, method in METHODS.items()}
        values["mean lower"], values["mean upper"] = mean_preserving(work, step)
        for name, value in values.items():
            errors[name].append(value / truth - 1)
    return errors


def plot(errors: dict[str, list[float]], title: str, output: str) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 5), layout="constrained")
    families = {"upper": "C0", "lower": "C0", "mean": "C1", "round": "C2", "nearest": "C3"}
    for name, values in errors.items():
        colour = families.get(name) or families[name.split()[0]]
        style = "-" if name in ("upper", "mean upper", "round up") else "--"
        if name == "nearest":
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
