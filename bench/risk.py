"""What attacks achieve, mu and epsilon: gdpnum, riskcal, dp_accounting and Opacus beside certified intervals, and the noise for a TPR.

    python -m bench.risk [--accuracy 1e-6]

Each number of a peer is marked: below the certified interval (it claims more privacy than there is), inside, or above it by so much.
gdpnum's mu is compared with its own claim: the delta that GDP(mu) has at the epsilon where the truth exceeds it most.
The four packages come from the registry (`pip install gdpnum riskcal dp-accounting opacus`); what is missing is left out.
"""

from __future__ import annotations

import argparse
import importlib
import time
import warnings
from collections.abc import Callable
from typing import Any

import hockeystick as hs
import numpy as np
from hockeystick._base.bounds import Bounds
from scipy.special import ndtr

RUNS = {
    "sigma=1, q=.01, T=1000": (1.0, 0.01, 1000),
    "sigma=.6, q=.001, T=10000": (0.6, 0.001, 10_000),
    "sigma=1, q=.1, T=10": (1.0, 0.1, 10),
    "sigma=1, q=1, T=1": (1.0, 1.0, 1),
}
DELTA = 1e-5
FPRS = (1e-6, 1e-3, 1e-1)
ROW = "  {:<28} {:>13} {:>13}   {}"


def peer(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def mark(value: float, bounds: Bounds) -> str:
    if value < bounds.lower:
        return f"{value:.6g} TOO SMALL by {1 - value / bounds.lower:.1e}"
    return f"{value:.6g}" + (f" +{value / bounds.upper - 1:.1e}" if value > bounds.upper else " inside")


def timed(ask: Callable[[], Any]) -> tuple[Any, float]:
    before = time.perf_counter()
    found = ask()
    return found, time.perf_counter() - before


def loss_distribution(sigma: float, q: float, steps: int) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    return pld.from_gaussian_mechanism(
        sigma, sampling_prob=q, use_connect_dots=True, value_discretization_interval=1e-4
    ).self_compose(steps)


def gaussian_delta(mu: float, epsilon: np.ndarray) -> np.ndarray:
    found: np.ndarray = ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)
    return found


def opacus_epsilons(run: tuple[float, float, int]) -> list[tuple[str, float]]:
    found = []
    for name in ("PRVAccountant", "RDPAccountant", "GaussianAccountant"):
        accountant = getattr(peer("opacus.accountants"), name)()
        accountant.history = [run]
        try:
            found.append((f"Opacus {name}", float(accountant.get_epsilon(delta=DELTA))))
        except (ValueError, RuntimeError, MemoryError) as error:
            print(f"  Opacus {name}: {error}")
    return found


def show_epsilons(profile: hs.PrivacyProfile, run: tuple[float, float, int]) -> None:
    bounds, peers = profile.epsilon_bounds(DELTA), []
    if peer("dp_accounting") is not None:
        from dp_accounting.rdp import rdp_privacy_accountant as rdp

        peers.append(("dp_accounting PLD", loss_distribution(*run).get_epsilon_for_delta(DELTA)))
        sigma, q, steps = run
        divergences = rdp.RdpAccountant()
        divergences.compose(
            peer("dp_accounting").PoissonSampledDpEvent(q, peer("dp_accounting").GaussianDpEvent(sigma)),
            steps,
        )
        peers.append(("dp_accounting RDP", divergences.get_epsilon(DELTA)))
    if peer("opacus") is not None:
        peers += opacus_epsilons(run)
    said = "; ".join(f"{name} {mark(float(value), bounds)}" for name, value in peers)
    print(
        ROW.format(
            f"epsilon at delta {DELTA:g}",
            f"{bounds.lower:.8g}",
            f"{bounds.upper:.8g}",
            said or "no peer installed",
        )
    )


def show_mu(profile: hs.PrivacyProfile, run: tuple[float, float, int]) -> None:
    found, seconds = timed(profile.gdp)
    print(
        f"  mu up to 1e-10: [{found.mu_bounds.lower:.7f}, {found.mu:.7f}], regret [{found.regret.lower:.5f}, {found.regret.upper:.5f}], "
        f"{1e3 * seconds:.0f} ms"
    )
    if peer("gdpnum") is None:
        print("  gdpnum: not installed")
        return
    (mu, regret), seconds = timed(lambda: peer("gdpnum").dpsgd.get_mu_and_regret_for_dpsgd(*run))
    epsilon = np.linspace(0.0, profile.epsilon(1e-10), 400)
    truth, claim = profile.delta_curve(epsilon)[0], gaussian_delta(mu, epsilon) + 1e-10
    at = int(np.argmax(truth / claim))
    verdict = "holds up to 1e-10"
    if truth[at] > claim[at] * (1 + 1e-6):
        verdict = f"claims delta({epsilon[at]:.4f}) <= {claim[at]:.2e}, the truth is {truth[at]:.2e}"
    print(f"  gdpnum: mu = {mu:.7f}, regret {regret:.5f}: {verdict}; {1e3 * seconds:.0f} ms")


def show_risks(profile: hs.PrivacyProfile, run: tuple[float, float, int]) -> None:
    risk, law = profile.risk, None
    if peer("dp_accounting") is not None:
        law = loss_distribution(*run)
    riskcal = peer("riskcal")
    rows = [("advantage", risk.advantage(), None)] + [
        (f"TPR at FPR {fpr:g}", risk.tpr(fpr), fpr) for fpr in FPRS
    ]
    for name, bounds, fpr in rows:
        said = []
        if law is not None and fpr is None:
            said.append("dp_accounting " + mark(law.get_delta_for_epsilon(0.0), bounds))
        if law is not None and riskcal is not None:
            value = (
                riskcal.analysis.get_advantage_from_pld(law)
                if fpr is None
                else 1.0 - float(riskcal.analysis.get_beta_from_pld(law, alpha=fpr))
            )
            said.append("riskcal " + mark(value, bounds))
        print(
            ROW.format(
                name, f"{bounds.lower:.8g}", f"{bounds.upper:.8g}", "; ".join(said) or "no peer installed"
            )
        )


def show_calibration(tpr: float, fpr: float) -> None:
    run = 0.01, 1000

    def make(sigma: float) -> hs.mechanisms.Process:
        return hs.PoissonSampled(hs.Gaussian(sigma), run[0]) * run[1]

    sigma, seconds = timed(lambda: hs.calibrate_noise_multiplier(make, tpr=tpr, fpr=fpr))
    print(f"noise for TPR {tpr:g} at FPR {fpr:g}, q=.01, T=1000")
    print(
        f"  hockeystick {float(sigma):.7f}, {sigma.certificate.exceeding:.7f} exceeds; {1e3 * seconds:.0f} ms"
    )
    if peer("riskcal") is None:
        print("  riskcal: not installed")
        return
    find = peer("riskcal").calibration.dpsgd.find_noise_multiplier_for_err_rates
    other, seconds = timed(lambda: find(fpr, 1.0 - tpr, *run, noise_min=0.8, noise_max=4.0))
    reached = hs.account(make(float(other))).risk.tpr(fpr)
    print(
        f"  riskcal {float(other):.7f}, where the TPR is {reached.lower:.7f} to {reached.upper:.7f}; {1e3 * seconds:.0f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--accuracy", type=float, default=1e-6)
    accuracy = parser.parse_args().accuracy
    warnings.simplefilter("ignore")
    for name, (sigma, q, steps) in RUNS.items():
        print(name)
        profile = hs.account(hs.PoissonSampled(hs.Gaussian(sigma), q) * steps, accuracy=accuracy)
        show_mu(profile, (sigma, q, steps))
        show_epsilons(profile, (sigma, q, steps))
        show_risks(profile, (sigma, q, steps))
    show_calibration(0.02, 0.01)


if __name__ == "__main__":
    main()
