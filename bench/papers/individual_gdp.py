"""Koskela, Tobaben, Honkela 2022 ("Individual privacy accounting with Gaussian DP"): Figures 1, 3 to 5, numbers.

    python -m bench.papers.individual_gdp              # a minute of processor time
    python -m bench.papers.individual_gdp --quick

Figures 3 to 5 and Appendix C.4: private gradient descent with sigma = 100, the RDP filter beside the GDP filter, at
delta = 1e-5. Appendix E's epsilon. Figure 1 on scikit-learn's digits in the place of MNIST: softmax regression,
50 epochs, sampling probability 300/60000, sigma = 2, C = 5.
"""

from __future__ import annotations

import math
from typing import Any

import hockeystick as hs
import numpy as np
from hockeystick.accounting.rdp import best_rdp_epsilon

from bench.papers.results import panels, parsed, save, write

SIGMA, STEPS, DELTA = 100.0, 420, 1e-5
Q, NOISE, CLIP, EPOCHS = 300 / 60_000, 2.0, 5.0, 50  # of Figure 1


def gdp_epsilon(steps: int, delta: float, sigma: float = SIGMA) -> float:
    return hs.account(hs.Gaussian(sigma) * steps, "remove").epsilon(delta)


def rdp_epsilon(steps: int, delta: float) -> float:
    return best_rdp_epsilon(hs.Gaussian(SIGMA) * steps, delta)[0]


def allowed(filt: hs.individual.GDPFilter | hs.individual.RDPFilter) -> int:
    """Steps that a filter lets through, each of them mu = 1/sigma."""
    count = 0
    while filt.step(1 / SIGMA):
        count += 1
    return count


def numbers(options: Any) -> None:
    whole = min(
        hs.accounting.rdp_epsilon(order, order * STEPS / (2 * SIGMA**2), DELTA) for order in range(2, 500)
    )
    rows: list[tuple[str, Any, Any]] = [
        ("420 steps by RDP, integer orders", "0.8", whole),
        ("420 steps by RDP, any order", "", rdp_epsilon(STEPS, DELTA)),
        ("420 steps by GDP", "", gdp_epsilon(STEPS, DELTA)),
        ("Appendix E: 50 steps, sigma 10.61", "2.75", gdp_epsilon(50, DELTA, 10.61)),
    ]
    for epsilon in (whole, 0.8):
        for name, filt in (("RDP", hs.individual.RDPFilter), ("GDP", hs.individual.GDPFilter)):
            steps = allowed(filt(epsilon=epsilon, delta=DELTA))
            rows.append((f"steps that the {name} filter allows at epsilon {epsilon:.5f}", "", steps))
    write(options.out / "individual_gdp_numbers.csv", ("what", "printed", "here"), rows)


def figures_3_to_5(options: Any) -> None:
    figure, (third, fourth, fifth) = panels(3, 3.8)
    deltas = np.geomspace(1e-8, 1e-2, 7 if options.quick else 25).tolist()
    rows = [(3, d, rdp_epsilon(STEPS, d), gdp_epsilon(STEPS, d)) for d in deltas]
    counts = np.arange(20, 1001, 140 if options.quick else 20).tolist()
    rows += [(4, k, rdp_epsilon(k, DELTA), gdp_epsilon(k, DELTA)) for k in counts]
    for epsilon in np.linspace(0.1, 2.0, 7 if options.quick else 39).tolist():
        rdp_filter = hs.individual.RDPFilter(epsilon=epsilon, delta=DELTA)
        rdp = math.floor(rdp_filter.rho / (0.5 * rdp_filter.order / SIGMA**2))
        rows.append((5, epsilon, rdp, math.floor((hs.individual.gdp_budget(epsilon, DELTA) * SIGMA) ** 2)))
    write(options.out / "individual_gdp_figures3to5.csv", ("figure", "x", "RDP", "GDP"), rows)
    for axes, number, labels in (
        (third, 3, ("δ", "ε after 420 steps")),
        (fourth, 4, ("steps", "ε at δ = 1e-5")),
        (fifth, 5, ("ε at δ = 1e-5", "most steps")),
    ):
        x, rdp, gdp = np.array([row[1:] for row in rows if row[0] == number]).T
        axes.plot(x, rdp, "C1--", label="RDP")
        axes.plot(x, gdp, "C0-", label="GDP")
        axes.set(xlabel=labels[0], ylabel=labels[1], title=f"Figure {number}, σ = 100")
        axes.legend()
    third.set_xscale("log")
    save(figure, options.out / "individual_gdp_figures3to5.png")


def trained(epochs: float) -> hs.IndividualAccountant:
    """Softmax regression by DP-SGD; every example's norm in every step is recorded."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x, y = images / 16.0, np.eye(10)[labels]
    rng = np.random.default_rng(1)
    size, lengths = len(x), np.linalg.norm(x, axis=1)
    weights = np.zeros((10, x.shape[1]))
    accountant = hs.IndividualAccountant(
        size, noise_multiplier=NOISE, sampling_probability=Q, clipping_norm=CLIP
    )
    rate = 0.002
    for _ in range(round(epochs / Q)):
        scores = x @ weights.T
        probabilities = np.exp(scores - scores.max(1, keepdims=True))
        probabilities /= probabilities.sum(1, keepdims=True)
        residual = probabilities - y
        norms = np.linalg.norm(residual, axis=1) * lengths
        accountant.step(norms)
        drawn = np.flatnonzero(rng.random(size) < Q)
        scale = np.minimum(1.0, CLIP / np.maximum(norms[drawn], 1e-12))
        gradient = (residual[drawn] * scale[:, None]).T @ x[drawn]
        weights -= rate * (gradient + NOISE * CLIP * rng.standard_normal(weights.shape))
    print(f"training accuracy {np.mean((x @ weights.T).argmax(1) == labels):.3f}")
    return accountant


def individual_rdp(accountant: hs.IndividualAccountant, delta: float) -> np.ndarray:
    """epsilon of each example by RDP of the same recorded norms, best of the orders."""
    counts = accountant._state.counts[Q].astype(float)
    orders = np.concatenate([np.arange(1.5, 64.0, 0.5), 2.0 ** np.arange(6, 13)])
    rho = np.array(
        [
            hs.accounting.rdp_curve(hs.PoissonSampled(hs.Gaussian(1.0 / mu), Q), orders)[1]
            if mu > 0
            else 0.0 * orders
            for mu in accountant.edges.tolist()
        ]
    )
    spent = counts @ rho
    added = np.array([hs.accounting.rdp_epsilon(float(order), 0.0, delta) for order in orders])
    # rdp_epsilon caps at 0 what the conversion adds, which only lengthens epsilon.
    return np.asarray((spent + added).min(axis=1))


def figure_1(options: Any) -> None:
    delta = 1e-6
    accountant = trained(0.1 if options.quick else EPOCHS)
    exact = accountant.nonadaptive_epsilon(delta)
    rdp = individual_rdp(accountant, delta)
    row = int(np.argsort(exact)[len(exact) // 2])
    profile = accountant.profile(row)
    mu = float(profile.gdp_mu(slack=1e-9))
    epsilons = np.linspace(0.0, 3.0 * float(exact[row]), 40)
    curve = profile.delta_curve(epsilons)[1]
    bound = hs.account(hs.Gaussian(1.0 / mu), "remove").delta_curve(epsilons)[1]
    figure, (left, right) = panels(2)
    left.semilogy(epsilons, curve, label="individual privacy profile")
    left.semilogy(epsilons, bound, "--", label=f"μ-GDP up to 1e-9, μ = {mu:.3f}")
    left.set(xlabel="ε", ylabel="δ", title=f"Figure 1, left: example {row}")
    left.set(xlim=(0.0, 2.0 * float(exact[row])), ylim=(1e-12, 1))
    left.legend(fontsize=7)
    edges = np.linspace(0.0, max(rdp.max(), exact.max()), 40)
    right.hist(exact, edges, alpha=0.6, label="by privacy loss")
    right.hist(rdp, edges, alpha=0.6, label="by RDP")
    right.set(xlabel="individual ε at δ = 1e-6", ylabel="examples", title="Figure 1, right")
    right.legend(fontsize=7)
    save(figure, options.out / "individual_gdp_figure1.png")
    quantiles = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
    rows = [(q, float(np.quantile(exact, q)), float(np.quantile(rdp, q))) for q in quantiles]
    write(options.out / "individual_gdp_figure1.csv", ("quantile", "privacy loss", "RDP"), rows)
    print(f"RDP below the privacy loss: {int(np.sum(rdp < exact * (1 - 1e-9)))} of {len(exact)} examples")


def main() -> None:
    options = parsed(__doc__)
    hs.set_threads(1)
    numbers(options)
    figures_3_to_5(options)
    try:
        figure_1(options)
    except ImportError:
        print("Figure 1 needs scikit-learn")


if __name__ == "__main__":
    main()
