"""Gopi, Lee, Wutschitz 2021 ("Numerical composition of differential privacy"): its figures, with `engine="prv"`.

    python -m bench.papers.prv_accountant              # five minutes of processor time
    python -m bench.papers.prv_accountant --quick

Figure 1 (GDP by the central limit theorem, RDP, both bounds), Figures 3 and 4 (error against mesh and against steps),
Figures 5 and 6 (sampling probability 1 and small delta), Figure 9 (time against steps). The authors' library,
prv_accountant, is measured beside it where it is installed. Times are processor time, one thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import hockeystick as hs
import numpy as np
from hockeystick import _core
from hockeystick.accounting import best_rdp_epsilon

from bench.baselines import accountant, discretise, pairs
from bench.papers.results import Results, panels, parsed, save, write
from bench.timing import middle

SIGMA, Q, DELTA = 0.8, 4e-3, 1e-6


def process(steps: int) -> hs.mechanisms.Process:
    return hs.PoissonSampled(hs.Gaussian(SIGMA), Q) * steps


def clt_epsilon(steps: int) -> float:
    """The GDP accountant: mu = q sqrt(T (e^{1/sigma^2} - 1)) (Bu et al. 2020)."""
    mu = Q * math.sqrt(steps * math.expm1(SIGMA**-2))
    return hs.account(hs.Gaussian(1 / mu), "remove").epsilon(DELTA)


def authors(steps: int, eps_error: float) -> list[float]:
    """(lower, estimate, upper) of the authors' library; nan where it is not installed or fails."""
    try:
        import prv_accountant as prv

        found = prv.PRVAccountant(
            prv.PoissonSubsampledGaussianMechanism(Q, SIGMA),
            max_self_compositions=steps,
            eps_error=eps_error,
            delta_error=DELTA / 1000,
        )
        return [float(x) for x in found.compute_epsilon(DELTA, [steps])]
    except (ImportError, RuntimeError, ValueError, MemoryError):
        return [math.nan] * 3


def figure_1(options: Any, results: Results) -> None:
    rows = []
    for steps in [round(k) for k in np.geomspace(10, 10_000, 5 if options.quick else 13)]:
        exact = hs.account(process(steps)).epsilon(DELTA)
        bounds = hs.account(process(steps), engine="prv", accuracy=0.02).epsilon_bounds(DELTA)
        theirs = results.get(f"authors,{steps}", lambda s=steps: authors(s, 0.1))
        rdp = best_rdp_epsilon(process(steps), DELTA)[0]
        rows.append((steps, exact, *bounds, theirs[0], theirs[2], clt_epsilon(steps), rdp))
    header = (
        "steps",
        "exact",
        "prv lower",
        "prv upper",
        "authors lower",
        "authors upper",
        "GDP (CLT)",
        "RDP",
    )
    write(options.out / "prv_accountant_figure1.csv", header, rows)
    table = np.array(rows).T
    figure, (axes,) = panels(1, 5.2)
    axes.fill_between(table[0], table[2], table[3], alpha=0.4, label='engine="prv", accuracy .02')
    axes.semilogx(table[0], table[1], "k-", lw=1, label="exact")
    axes.semilogx(table[0], table[4], "C2:", label="authors' library, ±.1")
    axes.semilogx(table[0], table[5], "C2:")
    axes.semilogx(table[0], table[6], "C3--", label="GDP by central limit: no bound")
    axes.semilogx(table[0], table[7], "C1--", label="RDP, all orders")
    axes.set(xlabel="steps", ylabel="ε(1e-6)", title=f"Figure 1 (σ = {SIGMA}, q = {Q})", ylim=(0, None))
    axes.legend(fontsize=7)
    save(figure, options.out / "prv_accountant_figure1.png")


def rounding(direction: str, steps: int, step: float) -> float:
    """epsilon with every loss rounded in one direction (Koskela et al. 2021 bound a sum in this way)."""
    pair = pairs.Sampled(pairs.Gaussian(1 / SIGMA), Q)
    return accountant.epsilon(
        [(pair, steps)], DELTA, step, lambda *grid: discretise.rounded(*grid, direction)
    )


def figures_3_and_4(options: Any, results: Results) -> None:
    core = _core.sampled_pair(_core.gaussian_pair(1 / SIGMA), Q, "remove")

    def both(steps: int, step: float) -> list[float]:
        coupling = _core.Coupling([(core, steps)], step, 1e-3 * DELTA).epsilon_bounds(DELTA)
        return [*coupling, rounding("down", steps, step), rounding("up", steps, step)]

    mesh = [(1000, h) for h in 0.1 * 2.0 ** -np.arange(3, 7 if options.quick else 11)]
    lengths = [(round(k), 1e-3) for k in np.geomspace(10, 10_000, 4 if options.quick else 10)]
    rows = []
    for steps, step in mesh + lengths:
        exact = hs.account(process(steps), "remove").epsilon(DELTA)
        rows.append(
            (steps, step, exact, *results.get(f"mesh,{steps},{step}", lambda s=steps, h=step: both(s, h)))
        )
    header = ("steps", "mesh", "exact", "coupling lower", "coupling upper", "round down", "round up")
    write(options.out / "prv_accountant_figures3and4.csv", header, rows)
    figure, (left, right) = panels(2)
    for axes, part, column in ((left, rows[: len(mesh)], 1), (right, rows[len(mesh) :], 0)):
        table = np.array(part).T
        for k, (name, style) in enumerate(
            (("mean kept, coupling bound", "C0"), ("rounded up and down", "C1"))
        ):
            axes.fill_between(
                table[column], table[3 + 2 * k], table[4 + 2 * k], color=style, alpha=0.4, label=name
            )
        axes.plot(table[column], table[2], "k-", lw=1, label="exact")
        axes.set(xscale="log", ylabel="ε(1e-6)")
        axes.legend(fontsize=7)
    left.set(xlabel="mesh", title="Figure 3 (1000 steps)", ylim=(0, 2 * rows[0][2]))
    right.set(xlabel="steps", title="Figure 4 (mesh 1e-3)", ylim=(0, 2 * rows[-1][2]))
    save(figure, options.out / "prv_accountant_figures3and4.png")


def unsampled_delta(epsilon: float, steps: int, mu: float) -> list[float]:
    """The authors' (lower, upper) for Gaussians alone; nan where it fails."""
    try:
        import prv_accountant as prv

        found = prv.PRVAccountant(
            prv.GaussianMechanism(1 / mu), max_self_compositions=steps, eps_error=0.01, delta_error=1e-14
        )
        return [float(x) for x in np.take(found.compute_delta(epsilon, [steps]), [0, 2])]
    except (ImportError, RuntimeError, ValueError, MemoryError, AttributeError):
        return [math.nan] * 2


def figures_5_and_6(options: Any, results: Results) -> None:
    steps, mu = 1000, 1 / 100.0  # one Gaussian of noise multiplier 100, a thousand times
    core = _core.gaussian_pair(mu)
    rows = []
    for epsilon in np.linspace(0.25, 3.0, 6 if options.quick else 12):
        exact = hs.account(hs.Gaussian(1 / mu) * steps, "remove").delta_bounds(float(epsilon))
        failure = 1e-3 * exact.upper
        coupling = _core.Coupling([(core, steps)], 1e-5, failure).delta_bounds(float(epsilon))
        theirs = results.get(f"unsampled,{epsilon}", lambda e=float(epsilon): unsampled_delta(e, steps, mu))
        rows.append((float(epsilon), exact.upper, *coupling, *theirs))
    header = ("epsilon", "exact", "coupling lower", "coupling upper", "authors lower", "authors upper")
    write(options.out / "prv_accountant_figures5and6.csv", header, rows)
    table = np.array(rows).T
    figure, (axes,) = panels(1, 5.2)
    axes.fill_between(table[0], table[2], table[3], alpha=0.4, label="coupling bound here, tilted")
    axes.plot(table[0], table[1], "k-", lw=1, label="exact")
    axes.plot(table[0], np.where(table[5] > 0, table[5], np.nan), "C2^", ms=4, label="authors' upper")
    axes.plot(
        table[0],
        np.where(table[4] > 0, table[4], np.nan),
        "C2v",
        ms=4,
        label="authors' lower, where positive",
    )
    axes.set(yscale="log", xlabel="ε", ylabel="δ", title="Figures 5 and 6 (p = 1, 1000 Gaussians, σ = 100)")
    axes.legend(fontsize=7, loc="lower left")
    save(figure, options.out / "prv_accountant_figures5and6.png")


def figure_9(options: Any, results: Results) -> None:
    def milliseconds(call: Callable[[], object]) -> float:
        return 1e3 * middle(call, 3, 10.0)

    def times(steps: int) -> list[float]:
        work = process(steps)
        return [
            milliseconds(lambda: hs.account(work).epsilon(DELTA)),
            milliseconds(lambda: hs.account(work, engine="fft").epsilon(DELTA)),
            milliseconds(lambda: hs.account(work, engine="prv", accuracy=0.02).epsilon(DELTA)),
            milliseconds(lambda: authors(steps, 0.1)),
        ]

    counts = [round(k) for k in np.geomspace(10, 10_000, 3 if options.quick else 7)]
    rows = [(steps, *results.get(f"times,{steps}", lambda s=steps: times(s))) for steps in counts]
    header = ("steps", "auto ms", "fft ms", "prv ms (2 %)", "authors ms (± .1)")
    write(options.out / "prv_accountant_figure9.csv", header, rows)
    table = np.array(rows).T
    figure, (axes,) = panels(1, 5.2)
    for values, name in zip(table[1:], header[1:], strict=True):
        axes.loglog(table[0], values, ".-", label=name.replace(" ms", ""))
    axes.set(xlabel="steps", ylabel="processor time, ms", title="Figure 9", ylim=(0.1, 3000))
    axes.legend(fontsize=7, ncols=2, loc="upper left")
    save(figure, options.out / "prv_accountant_figure9.png")


def main() -> None:
    options = parsed(__doc__)
    results = Results(options.resume)
    hs.set_threads(1)
    figure_1(options, results)
    figures_3_and_4(options, results)
    figures_5_and_6(options, results)
    figure_9(options, results)


if __name__ == "__main__":
    main()
