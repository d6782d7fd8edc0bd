"""Koskela, Jälkö, Honkela 2020 ("Computing tight differential privacy guarantees using FFT"): tables and figures.

    python -m bench.papers.fourier_accountant              # two minutes of processor time
    python -m bench.papers.fourier_accountant --quick

Tables 1 and 2 by the Fourier accountant as printed (bench/baselines/fourier.py) beside the certified interval;
Figures 1 to 4 with the moments accountant, RDP over all orders, Berry-Esseen and privacy buckets; and what the pairs of
Sections 6.2 and 6.3 under-report.
"""

from __future__ import annotations

import math

import hockeystick as hs
import numpy as np
from hockeystick.accounting import best_rdp_epsilon

from bench.baselines.buckets import PrivacyBuckets
from bench.baselines.fourier import FourierAccountant, tail_estimate
from bench.papers.results import Results, panels, parsed, save, write

SIGMA, Q, STEPS, EPSILON = 1.5, 0.01, 10_000, 1.0  # of the tables
PRINTED_1 = {
    50_000: 0.0491228786423,
    200_000: 0.0496013846114,
    800_000: 0.0496014103252,
    3_200_000: 0.0496014103163,
}
PRINTED_2 = {2.0: 0.0422160172923, 6.0: 0.0496014103158, 10.0: 0.0496014103134, 12.0: 0.0496014103163}


def process(sigma: float, steps: int, q: float = Q) -> hs.mechanisms.Process:
    return hs.PoissonSampled(hs.Gaussian(sigma), q) * steps


def tables(options, results: Results) -> None:  # type: ignore[no-untyped-def]
    lower, upper = hs.account(process(SIGMA, STEPS), "remove").delta_bounds(EPSILON)
    print(f"certified: delta(1) in [{lower!r}, {upper!r}]; in 30 digits 0.04960141031482577...")

    def fourier(reach: float, n: int) -> float:
        return float(
            results.get(
                f"fa,{reach},{n}", lambda: FourierAccountant(SIGMA, Q, reach, n).delta(STEPS, EPSILON)
            )
        )

    doublings = 4 if options.quick else 7
    rows = []
    for n in (50_000 * 2**i for i in range(doublings)):
        value, finer = fourier(12.0, n), fourier(12.0, 2 * n)
        rows.append(
            (
                n,
                f"{value:.13f}",
                PRINTED_1.get(n, ""),
                f"{2 * abs(value - finer):.2e}",
                f"{value - upper:+.2e}",
            )
        )
    write(
        options.out / "fourier_accountant_table1.csv", ("n", "FA", "printed", "err(L,n)", "FA - truth"), rows
    )
    n = 400_000 if options.quick else 3_200_000
    rows = []
    for reach in (2.0, 4.0, 6.0, 8.0, 10.0, 12.0):
        value, tail = fourier(reach, n), tail_estimate(SIGMA, Q, STEPS, reach)
        rows.append(
            (reach, f"{value:.13f}", PRINTED_2.get(reach, ""), f"{tail:.2e}", f"{value - upper:+.2e}")
        )
    write(options.out / "fourier_accountant_table2.csv", ("L", "FA", "printed", "(7.3)", "FA - truth"), rows)


def moments_accountant(sigma: float, steps: int, most: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """lambda = 1 .. most, and the exact log moments of the whole run (Abadi et al. 2016)."""
    lambdas = np.arange(1.0, most + 1)
    return lambdas, steps * lambdas * hs.accounting.rdp_curve(process(sigma, 1), lambdas + 1.0, "remove")[1]


def figure_1(options, results: Results) -> None:  # type: ignore[no-untyped-def]
    counts = [round(k) for k in np.geomspace(30, 10_000, 6 if options.quick else 18)]
    n = 100_000 if options.quick else 1_000_000
    figure, (left, right) = panels(2)
    rows = []
    for colour, sigma in enumerate((1.0, 2.0, 3.0)):
        accountant = FourierAccountant(sigma, Q, 12.0, n)
        curves: list[list[float]] = []
        for k in counts:
            exact = hs.account(process(sigma, k), "remove")
            lambdas, moments = moments_accountant(sigma, k)
            fa = results.get(
                f"figure1,{sigma},{k},{n}", lambda a=accountant, k=k: [a.delta(k, 1.0), a.epsilon(k, 1e-6)]
            )
            curves.append(
                [
                    *(exact.delta(1.0), fa[0], min(1.0, math.exp(np.min(moments - lambdas)))),
                    *(exact.epsilon(1e-6), fa[1], float(np.min((moments + math.log(1e6)) / lambdas))),
                ]
            )
            rows.append((sigma, k, *curves[-1]))
        table = np.array(curves).T
        for axes, (ours, fourier, old) in ((left, table[:3]), (right, table[3:])):
            axes.plot(counts, ours, f"C{colour}-", label=f"exact, σ = {sigma:g}")
            axes.plot(counts, fourier, f"C{colour}.", label="Fourier accountant" if sigma == 1 else None)
            axes.plot(counts, old, f"C{colour}--", label="moments accountant" if sigma == 1 else None)
    left.set(xscale="log", yscale="log", xlabel="steps", ylabel="δ(1)", ylim=(1e-12, 1), title="Figure 1a")
    right.set(xscale="log", xlabel="steps", ylabel="ε(1e-6)", ylim=(0, 8), title="Figure 1b")
    left.legend(fontsize=7)
    save(figure, options.out / "fourier_accountant_figure1.png")
    header = ("sigma", "steps", "delta", "FA", "moments", "epsilon", "FA eps", "moments eps")
    write(options.out / "fourier_accountant_figure1.csv", header, rows)


def figure_2(options, sigma: float = 2.0, delta: float = 1e-6) -> list[tuple[float, ...]]:  # type: ignore[no-untyped-def]
    rows = []
    for k in sorted({round(k) for k in np.geomspace(1, 20_000, 8 if options.quick else 25)}):
        steps = process(sigma, k)
        orders = np.concatenate([np.arange(2.0, 128.0), 2.0 ** np.arange(7, 12)])
        classic = hs.accounting.rdp_curve(steps, orders, "remove")[1] + math.log(1 / delta) / (orders - 1)
        exact = hs.account(steps, "remove").epsilon(delta)
        rows.append((k, exact, best_rdp_epsilon(steps, delta, "remove")[0], float(np.min(classic))))
    header = ("steps", "exact", "RDP, real orders", "RDP, integers, old conversion")
    write(options.out / "fourier_accountant_figure2.csv", header, rows)
    return rows


def berry_esseen(sigma: float, steps: int, epsilons: np.ndarray) -> tuple[np.ndarray, float]:
    """delta of the normal sum with the loss's moments, and by how much delta may differ: 0.4748 rho/(s^3 sqrt(k))."""
    t = np.linspace(-12 * sigma, 12 * sigma + 1, 400_001)
    none = np.exp(-0.5 * (t / sigma) ** 2)
    loss = np.log1p(Q * np.expm1((2 * t - 1) / (2 * sigma**2)))
    weight = none * np.exp(loss)
    weight /= weight.sum()
    mean = float(weight @ loss)
    deviation = math.sqrt(float(weight @ (loss - mean) ** 2))
    third = float(weight @ np.abs(loss - mean) ** 3)
    m, s = steps * mean, math.sqrt(steps) * deviation
    from scipy.stats import norm

    normal = norm.sf((epsilons - m) / s) - np.exp(epsilons - m + s * s / 2) * norm.sf((epsilons - m) / s + s)
    return normal, 0.4748 * third / (deviation**3 * math.sqrt(steps))


def figures_2_to_4(options, results: Results) -> None:  # type: ignore[no-untyped-def]
    figure, (second, third, fourth) = panels(3, 3.8)
    columns = np.array(figure_2(options)).T
    for values, style, label in zip(
        columns[1:], ("-", "--", ":"), ("exact", "RDP, all real orders", "RDP, integers, old"), strict=True
    ):
        second.semilogx(columns[0], values, style, label=label)
    second.set(xlabel="steps", ylabel="ε(1e-6)", title="Figure 2 (σ = 2)")
    second.legend(fontsize=7)

    epsilons = np.linspace(0.25, 4.0, 16)
    rows = []
    for colour, sigma in enumerate((2.0, 4.0)):
        exact = hs.account(process(sigma, 50_000), "remove").delta_curve(epsilons)[1]
        normal, error = berry_esseen(sigma, 50_000, epsilons)
        third.semilogy(epsilons, exact, f"C{colour}-", label=f"exact, σ = {sigma:g}")
        third.semilogy(epsilons, np.minimum(1.0, normal + error), f"C{colour}--", label="Berry–Esseen")
        rows += [(sigma, *row) for row in zip(epsilons, exact, normal + error, normal, strict=True)]
    third.set(xlabel="ε", ylabel="δ", title="Figure 3 (50,000 steps)", ylim=(1e-12, 1))
    third.legend(fontsize=7)
    header = ("sigma", "epsilon", "exact", "Berry-Esseen", "normal")
    write(options.out / "fourier_accountant_figure3.csv", header, rows)

    epsilons = np.linspace(0.5, 5.0, 10)
    exact = hs.account(process(1.0, 2**12, 0.02), "remove").delta_curve(epsilons)[1]
    fourth.semilogy(epsilons, exact, "k-", label="exact")
    sizes = (10_000,) if options.quick else (10_000, 50_000, 200_000)
    buckets = {}
    for size in sizes:
        buckets[size] = results.get(
            f"buckets,{size}", lambda size=size: PrivacyBuckets(1.0, 0.02, size).composed(12).deltas(epsilons)
        )
        fourth.semilogy(epsilons, buckets[size], "--", label=f"{size:,} buckets")
    fourth.set(xlabel="ε", ylabel="δ", title="Figure 4 (4096 steps)")
    fourth.legend(fontsize=7)
    save(figure, options.out / "fourier_accountant_figures2to4.png")
    rows = [list(map(float, row)) for row in zip(epsilons, exact, *buckets.values(), strict=True)]
    write(options.out / "fourier_accountant_figure4.csv", ("epsilon", "exact", *map(str, sizes)), rows)


def fixed_size(options) -> None:  # type: ignore[no-untyped-def]
    """The pairs of Sections 6.2 and 6.3 beside sound ones."""
    rows = []
    without = [hs.WithoutReplacement(hs.Gaussian(1.5), 20, 100, pair=p) for p in ("koskela2020", "sound")]
    for epsilon in (0.05, 0.3, 1.0, 3.0):
        rows.append(
            (
                "without replacement",
                1,
                epsilon,
                *(hs.account(step, "replace_one").delta(epsilon) for step in without),
            )
        )
    others = [hs.WithReplacement(hs.Gaussian(4.0), 20, 1000, pair=p) for p in ("koskela2020", "sound")]
    for name, pair in (("without replacement", without), ("with replacement", others)):
        for epsilon in (1.0, 4.0):
            rows.append(
                (name, 100, epsilon, *(hs.account(s * 100, "replace_one").delta(epsilon) for s in pair))
            )
    header = ("sampling", "steps", "epsilon", "published pair", "sound")
    write(options.out / "fourier_accountant_fixed_size.csv", header, rows)


def main() -> None:
    options = parsed(__doc__)
    results = Results(options.resume)
    hs.set_threads(1)
    tables(options, results)
    figure_1(options, results)
    figures_2_to_4(options, results)
    fixed_size(options)


if __name__ == "__main__":
    main()
