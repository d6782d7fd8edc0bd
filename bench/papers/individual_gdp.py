"""Figures 3 to 5 of Koskela, Tobaben, Honkela 2022 ("Individual privacy accounting with Gaussian DP").

    python -m bench.papers.individual_gdp --out figures

Private gradient descent with sigma = 100: what the RDP filter and the GDP filter say, at delta = 1e-5. Prints
the numbers of Section 4.1 and Appendix C.4, and the curves as tables; with --out, draws them.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import hockeystick as hs
import numpy as np
from hockeystick import _core
from hockeystick.accounting.rdp import gaussian_rdp_epsilon

SIGMA, STEPS, DELTA = 100.0, 420, 1e-5


def gdp_epsilon(steps: int, delta: float) -> float:
    return float(_core.gaussian_epsilons(np.array([math.sqrt(steps) / SIGMA]), delta)[0])


def rdp_epsilon(steps: int, delta: float) -> float:
    return gaussian_rdp_epsilon(math.sqrt(steps) / SIGMA, delta)[0]


def allowed(filt: hs.individual.GDPFilter | hs.individual.RDPFilter) -> int:
    """Steps that a filter lets through, each of them mu = 1/sigma."""
    count = 0
    while filt.step(1 / SIGMA):
        count += 1
    return count


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="folder for the figures")
    arguments = parser.parse_args()

    whole = min(
        hs.accounting.rdp_epsilon(order, order * STEPS / (2 * SIGMA**2), DELTA) for order in range(2, 500)
    )
    real = rdp_epsilon(STEPS, DELTA)
    print(
        f"{STEPS} steps by RDP: epsilon {whole:.5f} (integer orders), {real:.5f} (any order); the paper rounds to .8"
    )
    print(f"{STEPS} steps by GDP: epsilon {gdp_epsilon(STEPS, DELTA):.5f}")
    for epsilon in (whole, 0.8):
        rdp = allowed(hs.individual.RDPFilter(epsilon=epsilon, delta=DELTA))
        gdp = allowed(hs.individual.GDPFilter(epsilon=epsilon, delta=DELTA))
        print(f"budget epsilon = {epsilon:.5f}: the RDP filter allows {rdp} steps, the GDP filter {gdp}")

    print("\nFigure 3: epsilon after 420 steps\n   delta      RDP      GDP")
    deltas = np.geomspace(1e-8, 1e-2, 25)
    figure3 = np.array([[rdp_epsilon(STEPS, d), gdp_epsilon(STEPS, d)] for d in deltas])
    for d, (rdp_value, gdp_value) in list(zip(deltas, figure3, strict=True))[::4]:
        print(f"{d:8.1e} {rdp_value:8.4f} {gdp_value:8.4f}")
    print("\nFigure 4: epsilon at delta = 1e-5\n   steps     RDP      GDP")
    steps = np.arange(20, 1001, 20)
    figure4 = np.array([[rdp_epsilon(k, DELTA), gdp_epsilon(k, DELTA)] for k in steps.tolist()])
    for k, (rdp_value, gdp_value) in list(zip(steps, figure4, strict=True))[4::10]:
        print(f"{k:8d} {rdp_value:8.4f} {gdp_value:8.4f}")
    print("\nFigure 5: largest number of steps at delta = 1e-5\n epsilon     RDP      GDP")
    epsilons = np.linspace(0.1, 2.0, 39)
    figure5 = []
    for epsilon in epsilons.tolist():
        rdp_filter = hs.individual.RDPFilter(epsilon=epsilon, delta=DELTA)
        rho = rdp_filter.rho / (0.5 * rdp_filter.order / SIGMA**2)
        figure5.append([math.floor(rho), math.floor((hs.individual.gdp_budget(epsilon, DELTA) * SIGMA) ** 2)])
    for epsilon, (rdp_value, gdp_value) in list(zip(epsilons, figure5, strict=True))[::4]:
        print(f"{epsilon:8.2f} {rdp_value:8d} {gdp_value:8d}")
    if arguments.out:
        draw(arguments.out, deltas, figure3, steps, figure4, epsilons, np.array(figure5))


def draw(
    out: Path,
    deltas: np.ndarray,
    figure3: np.ndarray,
    steps: np.ndarray,
    figure4: np.ndarray,
    epsilons: np.ndarray,
    figure5: np.ndarray,
) -> None:
    from matplotlib.figure import Figure

    out.mkdir(parents=True, exist_ok=True)
    for name, x, values, x_label, y_label in (
        ("figure3", figure3, deltas, "epsilon", "delta"),
        ("figure4", steps, figure4, "number of compositions k", "epsilon at delta = 1e-5"),
        ("figure5", epsilons, figure5, "epsilon at delta = 1e-5", "largest number of compositions k"),
    ):
        figure = Figure(figsize=(5.0, 3.6), layout="constrained")
        axes = figure.subplots()
        for column, label in enumerate(("RDP", "GDP")):
            if name == "figure3":
                axes.semilogy(x[:, column], values, label=label)
            else:
                axes.plot(x, values[:, column], label=label)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.legend()
        axes.set_title(f"Figure {name[-1]}, sigma = 100")
        figure.savefig(out / f"{name}.png")
        print(f"wrote {out / f'{name}.png'}")


if __name__ == "__main__":
    main()
