"""The production case of the b-min-sep paper, certified: n = 7200, b = 256, (10, 1.301e-8)-DP, 1793 of 14,745,600.

    python -m bench.papers.b_min_sep_production                 # all of it, some ten minutes on two cores
    python -m bench.papers.b_min_sep_production table           # delta(sigma) with intervals
    python -m bench.papers.b_min_sep_production calibrate       # estimate, verify, release: the least noise multiplier
    python -m bench.papers.b_min_sep_production truncated       # the same with batches of at most 2048
    python -m bench.papers.b_min_sep_production frequent        # batches of at most 1793: truncation in half of the rounds
    python -m bench.papers.b_min_sep_production frequent-calibrate  # the least noise multiplier there
    python -m bench.papers.b_min_sep_production between         # what truncation costs between rare and frequent
    python -m bench.papers.b_min_sep_production between-calibrate  # the least noise multiplier with batches of at most 1900
    python -m bench.papers.b_min_sep_production dp_sgd          # the paper's lower bound, against the exact value
    python -m bench.papers.b_min_sep_production low_epsilon     # b-min-sep against cyclic Poisson
    python -m bench.papers.b_min_sep_production errors          # of strategies, without amplification
    python -m bench.papers.b_min_sep_production cyclic          # the paper's baseline of 0.627, from the parameters it states

The paper (Dong and Ganesh 2026, Section 7) took 7.5e9 samples and 300 CPU-days for one noise multiplier.
"""

from __future__ import annotations

import math
import sys
import time

import hockeystick as hs
import numpy as np
from hockeystick.montecarlo.direction import Direction
from hockeystick.montecarlo.truncation import TwoMixtures, reduction

STEPS, BANDS, EPSILON, DELTA = 7200, 256, 10.0, 1.301e-8
EXAMPLES, BATCH, MAX_BATCH = 14_745_600, 1793, 2048
NOISE = (0.40, 0.42, 0.44, 0.47, 0.50, 0.56, 0.60)
SCHEME = hs.BMinSep.of_rate(STEPS, BANDS, BATCH / EXAMPLES)
TRUNCATED = hs.matrix.TruncatedBMinSep(STEPS, BANDS, SCHEME.sampling_probability, EXAMPLES, MAX_BATCH)
SOMETIMES = hs.matrix.TruncatedBMinSep(STEPS, BANDS, SCHEME.sampling_probability, EXAMPLES, 1900)
OFTEN = hs.matrix.TruncatedBMinSep(STEPS, BANDS, SCHEME.sampling_probability, EXAMPLES, BATCH)


def strategies() -> dict[str, hs.matrix.Strategy]:
    """Columns of norm 1, so that noise multipliers are those of the paper."""
    root = hs.BandedToeplitz.square_root(STEPS, BANDS)
    scaled = tuple((np.array(root.coefficients) / root.sensitivity()).tolist())
    return {
        "optimised for MSE": hs.BandedToeplitz.optimized(steps=STEPS, bands=BANDS),
        "square root": hs.BandedToeplitz(scaled, STEPS),
        "optimised under the scheme": hs.montecarlo.optimize_strategy(SCHEME, EPSILON, DELTA),
    }


def timed(label: str, start: tuple[float, float]) -> str:
    return (
        f"{label} {time.time() - start[0]:.1f} s ({time.process_time() - start[1]:.1f} s of processor time)"
    )


def now() -> tuple[float, float]:
    return time.time(), time.process_time()


def table(samples: int = 200_000) -> None:
    for name, strategy in strategies().items():
        print(f"delta({EPSILON}) of b-min-sep sampling, warm start, C {name}, {samples} samples, 99 %:")
        for sigma in NOISE:
            start = now()
            found = hs.estimate_delta(hs.BandMF(strategy, SCHEME, sigma), EPSILON, samples, 1, "tilted")
            print(
                f"  sigma {sigma:.2f}: {found.estimate:.3e} in [{found.lower:.2e}, {found.upper:.2e}]  "
                + timed("", start),
                flush=True,
            )


def calibrate(scheme: hs.BMinSep | hs.matrix.TruncatedBMinSep = SCHEME) -> None:
    for name, strategy in strategies().items():
        start = now()
        found = hs.calibrate_bandmf(
            strategy, scheme, EPSILON, DELTA, seed=1, method="tilted", fallback="unamplified"
        )
        print(
            f"C {name}, {type(scheme).__name__}: noise multiplier {found.noise_multiplier:.4f}",
            timed("in", start),
        )
        for entry in found.verifications:
            mean, drawn = entry.means[0][1], entry.means[0][2]
            verdict = "accepted" if entry.accepted else "rejected"
            print(f"  {entry.noise_multiplier:.5f} {verdict}: delta about {mean:.3e}, {drawn} samples")
        print(f"  mean squared error {found.mean_squared_error:.4f}", flush=True)


def frequent(samples: int = 200_000) -> None:
    """Samples given the public counts, and their rate beside plain sampling."""
    strategy = strategies()["square root"]
    print(f"delta({EPSILON}), B_max = {BATCH}, C square root, {samples} samples, 99 %:")
    for sigma in (0.6, 0.7, 0.8):
        for method in ("tilted", "plain"):
            start = now()
            found = hs.estimate_delta(hs.BandMF(strategy, OFTEN, sigma), EPSILON, samples, 1, method)
            ends = ", ".join(
                f"{entry.direction} {entry.estimate:.2e} in [{entry.lower:.2e}, {entry.upper:.2e}]"
                for entry in found.directions
            )
            print(f"  sigma {sigma:.2f}, {method}: {ends} " + timed("", start), flush=True)


def dp_sgd(samples: int = 400_000) -> None:
    mechanism = hs.BandMF(hs.Identity(STEPS), hs.Poisson(STEPS, 1.216e-4), 0.368)
    exact = hs.account(mechanism, "remove").delta_bounds(EPSILON)
    for count in (2000, 20_000, samples):
        start = now()
        found = hs.estimate_delta(mechanism, EPSILON, count, 1, "tilted", adjacency="remove", confidence=0.95)
        width = (found.upper - found.lower) / exact.upper
        inside = found.lower <= exact.lower and exact.upper <= found.upper
        print(
            f"DP-SGD, sigma .368: {found.estimate:.4e} in [{found.lower:.4e}, {found.upper:.4e}] (width {width:.1%}), "
            f"exact {exact.upper:.6e} inside: {inside}, {found.samples} samples",
            timed("in", start),
            flush=True,
        )


def low_epsilon(samples: int = 400_000) -> None:
    """delta of both schemes where cyclic Poisson sampling has delta = 1e-4 in direction "remove"."""
    steps, bands, rate = 1024, 32, 1 / 512
    strategy = hs.BandedToeplitz.optimized(steps=steps, bands=bands)
    for epsilon in (0.25, 0.5, 1.0, 2.0):
        cyclic = hs.CyclicPoisson(steps, bands, bands * rate)
        sigma = hs.calibrate_noise_multiplier(
            lambda s, cyclic=cyclic: hs.BandMF(strategy, cyclic, s).as_process(),  # type: ignore[misc]
            epsilon,
            1e-4,
            adjacency="remove",
        )
        scheme = hs.BMinSep.of_rate(steps, bands, rate)
        for direction in ("remove", "add"):
            exact = hs.account(hs.BandMF(strategy, cyclic, float(sigma)), direction).delta_bounds(epsilon)
            start = now()
            found = hs.estimate_delta(
                hs.BandMF(strategy, scheme, float(sigma)), epsilon, samples, 1, "tilted", adjacency=direction
            )
            print(
                f'epsilon {epsilon}, "{direction}": sigma {float(sigma):.4f}, cyclic Poisson {exact.upper:.4e}, b-min-sep '
                f"{found.estimate:.4e} in [{found.lower:.4e}, {found.upper:.4e}] ({found.samples} samples)",
                timed("in", start),
                flush=True,
            )


def cyclic() -> None:
    """Least noise multipliers of cyclic Poisson sampling: columns of norm 1, those of each C, truncated batches."""
    p = BANDS * BATCH / EXAMPLES
    norms = {"columns of norm 1": np.ones(STEPS)}
    norms.update({f"C {name}": strategy.column_norms() for name, strategy in strategies().items()})
    for name, columns in norms.items():
        for limit in (None, MAX_BATCH):
            kept = {} if limit is None else {"subset_size": EXAMPLES // BANDS, "max_batch_size": limit}
            found = hs.calibrate_noise_multiplier(
                lambda s, columns=columns, kept=kept: hs.mechanisms.cyclic_poisson(
                    columns, BANDS, p, s, **kept
                ),  # type: ignore[misc]
                EPSILON,
                DELTA,
            )
            print(f"cyclic Poisson, {name}, B_max {limit}: noise multiplier {float(found):.4f}", flush=True)


def between(samples: int = 40_000) -> None:
    """delta(10) where truncation is neither rare nor frequent, C square root: by Theorem 7 what truncation adds, by 7b all of delta."""
    strategy = strategies()["square root"]
    for most in (1850, 1900, 1950, 2000, MAX_BATCH):
        scheme = hs.matrix.TruncatedBMinSep(STEPS, BANDS, SCHEME.sampling_probability, EXAMPLES, most)
        for sigma in (0.39, 0.45, 0.6, 0.75):
            mechanism = hs.BandMF(strategy, scheme, sigma)
            found = reduction(mechanism, EPSILON)
            assert found is not None
            values = Direction(mechanism, "remove", EPSILON, only_above=True)
            drawn = values.tilted_values(values.tune(1))
            _, bounds = drawn.interval(drawn.tally(2, 0, -(-samples // drawn.block_size)), 0.99)
            given = TwoMixtures(mechanism, "remove")._tilted(((1.0, 2, 1.0, 0.0),)).log_bound(EPSILON)
            print(
                f"B_max {most}, sigma {sigma}: theorem 7 adds {found.remove:.2e}; 7b: delta at most {bounds.upper:.2e}, reverse "
                f"{found.add_above:.2e}; samples given the counts: values up to {math.exp(min(0.0, given)):.2e}",
                flush=True,
            )


def errors() -> None:
    """sensitivity^2 * mean squared error of the strategies, without amplification."""
    for steps, bands in ((1024, 2), (1024, 8), (1024, 32), (STEPS, BANDS)):
        found = [
            float(c.sensitivity()) ** 2 * c.mean_squared_error()
            for c in (hs.BandedToeplitz.square_root(steps, bands), hs.BandedToeplitz.optimized(steps, bands))
        ]
        print(f"{steps:5} {bands:4}  square root {found[0]:.6g}, optimised {found[1]:.6g}", flush=True)


PARTS = {
    "errors": errors,
    "between": between,
    "cyclic": cyclic,
    "dp_sgd": dp_sgd,
    "table": table,
    "calibrate": calibrate,
    "truncated": lambda: calibrate(TRUNCATED),
    "between-calibrate": lambda: calibrate(SOMETIMES),
    "frequent": frequent,
    "frequent-calibrate": lambda: calibrate(OFTEN),
    "low_epsilon": low_epsilon,
}

if __name__ == "__main__":
    for part in sys.argv[1:] or [part for part in PARTS if not part.startswith(("frequent", "between-"))]:
        PARTS[part]()
