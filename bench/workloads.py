"""The workloads of shared/BASELINES.md as plain numbers, so that every tool builds its own description."""

from __future__ import annotations

from dataclasses import dataclass

from bench.baselines.exact import Step, sampled_gaussian_epsilon


@dataclass(frozen=True)
class Workload:
    """Kinds of Poisson-sampled Gaussian steps (sigma, q, count), or one Laplace mechanism, and a delta."""

    delta: float
    steps: tuple[tuple[float, float, int], ...] = ()
    laplace: tuple[float, int] | None = None
    truth: float | None = None

    def true_epsilon(self) -> float:
        """From the table, or by Laplace inversion ("remove", which is the worse direction in all of these)."""
        if self.truth is not None:
            return self.truth
        return sampled_gaussian_epsilon([Step(*step) for step in self.steps], self.delta, 0.05, 20.0)


WORKLOADS = {
    # Truths of W1, W2, W3 and W11: tests/references.
    "W1": Workload(1e-5, ((1.0, 0.01, 1000),), truth=1.8282366665165769),
    "W2": Workload(1e-7, ((0.8, 0.001, 100_000),), truth=3.2262289703152348),
    "W3": Workload(1e-5, ((1.0, 256 / 60_000, 14_000),), truth=2.8157231482721608),
    "W4": Workload(1e-5, ((100.0, 1.0, 420),), truth=0.74513823552116571),
    "W5": Workload(1e-6, tuple((0.8 + 0.05 * i, 0.01, 500) for i in range(20))),
    "W6": Workload(1e-10, ((2.0, 0.01, 1000),)),
    "W7": Workload(1e-6, laplace=(20.0, 500), truth=5.4739018),
    "W11": Workload(1e-5, ((20.0, 0.001, 10_000_000),), truth=0.5616839526899491),
    "W12": Workload(1e-6, tuple((0.8 + 0.004 * i, 0.005 + 1e-5 * i, 1) for i in range(300))),
}
