"""Importance sampling of delta: agreement with plain sampling, samples needed, speed.

python -m bench.tilted                     # samples needed, speed
python -m bench.tilted needed --plot f.png # samples for delta to within 10 %, from 1e-3 to 1e-12: plain, S_2, S_3, mixture
python -m bench.tilted speed               # tables, weighted samples per second beside plain ones, on one core
python -m bench.tilted agreement           # 56 configurations against 1e7 plain samples each; a quarter of an hour
python -m bench.tilted truncated-agreement # 24 configurations with frequent truncation against 1e7 plain samples each
python -m bench.tilted add                 # direction "add": samples needed, plain and from half spaces; what these prove alone
python -m bench.tilted add-agreement       # 36 configurations of "add" against 1e7 plain samples each
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import hockeystick as hs
import numpy as np
from hockeystick import _core
from hockeystick.montecarlo.half_space import HalfSpace, sampler
from hockeystick.montecarlo.tilted import entries, orders, tune_proposal

from bench.timing import forget

PARTS = ("needed", "speed", "agreement", "truncated-agreement", "add", "add-agreement")
SURE = math.log(1 / 0.005)  # both sides together fail once in a hundred
GAP = 0.1


def needed(plot: Path | None) -> None:
    strategy = hs.BandedToeplitz.square_root(256, 8)
    mechanism = hs.BandMF(strategy, hs.BMinSep.of_rate(256, 8, 0.005), 0.8 * strategy.sensitivity())
    print(
        f"samples for delta within {GAP:.0%} (99 %), n = 256, b = 8, sigma = .8, p0 = .005; orders {orders(mechanism)}"
    )
    print(f"{'epsilon':>8} {'delta':>10} {'plain':>10} {'S_2':>10} {'S_3':>10} {'mixture':>10}")
    rows = []
    for epsilon in np.arange(0.25, 9.0, 0.5):
        proposal = tune_proposal(mechanism, float(epsilon), 1, gap=GAP)
        # The second moments of all under samples of the mixture.
        parts = (*entries(proposal.components), (0.0, 2, 1.0, 0.0), (0.0, 3, 1.0, 0.0))
        core = mechanism._tilted(parts, cached=False)
        rows_of = core.samples(2, 0, -(-200_000 // core.block_size))
        loss, ratio, densities = rows_of[:, 0], rows_of[:, 1], rows_of[:, 2:]
        over = loss > epsilon
        stick = np.log(-np.expm1(np.minimum(epsilon - loss[over], -1e-300)))
        log_y = loss[over] + stick - ratio[over]
        mean = np.exp(log_y).sum() / len(loss)
        found = {"plain": (1 / mean - 1, 1 / mean)}
        for name, k, order in (("S_2", -2, 2), ("S_3", -1, 3)):
            second = np.exp(2 * log_y + ratio[over] - densities[over][:, k]).sum() / len(loss)
            peak = (order - 1) * math.log1p(-1 / order) - math.log(order)
            bound = math.exp(core.log_normaliser(len(parts) + k) - (order - 1) * epsilon + peak)
            found[name] = (second / mean**2 - 1, bound / mean)
        second = np.exp(2 * log_y).sum() / len(loss)
        found["mixture"] = (second / mean**2 - 1, math.exp(core.log_bound(float(epsilon))) / mean)
        counts = {name: SURE * (2 * v / GAP**2 + reach / GAP) for name, (v, reach) in found.items()}
        rows.append((mean, counts))
        print(
            f"{epsilon:8.2f} {mean:10.2e} " + " ".join(f"{counts[name]:10.2e}" for name in counts), flush=True
        )
        if mean < 1e-12:
            break
    if plot is not None:
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(figsize=(6, 4))
        for name in rows[0][1]:
            axes.loglog([mean for mean, _ in rows], [counts[name] for _, counts in rows], "o-", label=name)
        axes.invert_xaxis()
        axes.set_xlabel("delta")
        axes.set_ylabel(f"samples for {GAP:.0%}")
        axes.legend()
        figure.savefig(plot, dpi=150, bbox_inches="tight")


def speed() -> None:
    _core.set_threads(1)
    root = hs.BandedToeplitz.square_root
    for steps, bands, p0, sigma, epsilon in [
        (7200, 256, 1793 / 14_745_600, 0.4, 10.0),
        (1024, 32, 1 / 512, 0.6, 4.0),
        (1024, 2, 1 / 512, 0.6, 4.0),
    ]:
        strategy = root(steps, bands)
        mechanism = hs.BandMF(strategy, hs.BMinSep.of_rate(steps, bands, p0), sigma * strategy.sensitivity())
        start = time.process_time()
        proposal = tune_proposal(mechanism, epsilon, 1)
        tuned = time.process_time() - start
        # Of a mechanism that has built none for the pilots.
        mechanism = hs.BandMF(strategy, mechanism.scheme, mechanism.noise_multiplier)
        forget()
        start = time.process_time()
        core = mechanism._tilted(entries(proposal.components), cached=False)
        built = time.process_time() - start
        plain = mechanism._blocks("remove")
        rates = []
        for draw, size in (
            (
                lambda seed, core=core, at=epsilon: core.values(seed, np.array([at]), 0.0, 0, 8),
                core.block_size,
            ),  # type: ignore[misc]
            (lambda seed, plain=plain: plain.losses(seed, 0, 8), plain.block_size),  # type: ignore[misc]
        ):
            best = math.inf
            for seed in range(5):
                start = time.process_time()
                draw(seed)
                best = min(best, time.process_time() - start)
            rates.append(8 * size / best)
        print(
            f"n = {steps}, b = {bands}: pilot {tuned:.2f} s, tables {built * 1e3:.0f} ms, {rates[0]:,.0f} weighted samples/s "
            f"with {len(proposal.components)} components, {rates[1]:,.0f} plain ({rates[0] / rates[1]:.2f}x)",
            flush=True,
        )
    _core.set_threads(0)


def agreement(samples: int) -> None:
    from tests.montecarlo.test_tilted import compare, sampled_cases

    cases = sampled_cases()
    scores = []
    for seed, (mechanism, epsilon) in enumerate(cases):
        scores.append(compare(mechanism, epsilon, samples, 10**6, 1000 + seed))
        print(
            f"{scores[-1]:+.2f}  {mechanism.scheme!r}, sigma {mechanism.noise_multiplier}, epsilon {epsilon}",
            flush=True,
        )
    print(
        f"{len(scores)} configurations, {samples} plain samples each: largest {max(map(abs, scores)):.2f} standard errors"
    )


def add() -> None:
    from hockeystick.montecarlo.half_space import certain_bound, half_space, tune_half_space

    root = hs.BandedToeplitz.square_root
    print(f'direction "add": samples for delta within {GAP:.0%} (99 %), and what the half space proves alone')
    print(
        f"{'':44} {'epsilon':>8} {'delta':>9} {'alone':>9} {'plain':>9} {'here':>9} {'time per sample':>16}"
    )
    for steps, b, scheme, sigma in [
        (4, 1, hs.Poisson(4, 0.5), 1.0),
        (64, 32, hs.BMinSep(64, 32, 0.05), 0.8),
        (64, 32, hs.BMinSep(64, 32, 0.05), 0.5),
        (64, 16, hs.BMinSep(64, 16, 0.05), 0.8),
        (64, 8, hs.BMinSep(64, 8, 0.05), 0.8),
        (64, 16, hs.matrix.MultiAttributionBMinSep(64, 16, 0.02, 3), 2.0),
        (64, 16, hs.matrix.MultiAttributionBMinSep(64, 16, 0.02, 3, "exact"), 2.0),
        (64, 16, hs.BallsInBins(64, 16), 1.0),
        (1024, 256, hs.BMinSep.of_rate(1024, 256, 1 / 512), 0.8),
        (1024, 32, hs.BMinSep.of_rate(1024, 32, 1 / 512), 0.8),
    ]:
        strategy = root(steps, b)
        mechanism = hs.BandMF(strategy, scheme, sigma * float(strategy.column_norms().max()))
        none = -mechanism.no_participation_log_probability
        rest, _ = _core.tangent(mechanism._described(), np.zeros(scheme.seen_as(strategy)[1]))
        low = -float(np.logaddexp(rest, -none))
        for share in (0.2, 0.6, 0.9):
            epsilon = low + share * ((none if none < math.inf else 3.0 * low) - low)
            found = half_space(mechanism, epsilon, 1e-9)
            assert found is not None
            proposal = tune_half_space(mechanism, epsilon, 1e-9, found, 1, pilot=(8192, 65_536))
            alone = certain_bound(mechanism, epsilon, 1e-9, found)
            delta = math.exp(proposal.log_delta)
            cap = math.exp(min(700.0, proposal.log_cap - proposal.log_delta))
            plain = SURE * (2.0 * proposal.plain_variance / GAP**2 + cap / GAP)
            here = SURE * proposal.effort(GAP)
            print(
                f"{type(scheme).__name__:24} n = {steps:4} b = {b:3} sigma {sigma} {epsilon:8.3f} {delta:9.1e} {alone:9.1e} "
                f"{plain:9.1e} {here:9.1e} {_relative_time(mechanism, found, proposal.shifts):16.2f}",
                flush=True,
            )


def _relative_time(mechanism: hs.BandMF, found: HalfSpace, shifts: tuple[tuple[float, float], ...]) -> float:
    """Time of a weighted sample over that of a plain one, least of several runs, on one core."""
    _core.set_threads(1)
    plain, here = mechanism._blocks("add"), sampler(mechanism, found, shifts)
    seconds = []
    for draw, size in (
        (lambda seed: plain.losses(seed, 0, 4), plain.block_size),
        (lambda seed: here.values(seed, np.array([1.0]), -1.0, 0.0, 0, 4), here.block_size),
    ):
        best = math.inf
        for seed in range(7):
            start = time.process_time()
            draw(seed)
            best = min(best, time.process_time() - start)
        seconds.append(best / size)
    _core.set_threads(0)
    return seconds[1] / seconds[0]


def add_agreement(samples: int) -> None:
    from tests.montecarlo.test_half_space import compare, sampled_cases

    scores = []
    for seed, (mechanism, epsilon) in enumerate(sampled_cases()):
        scores.append(compare(mechanism, epsilon, samples, 10**6, 3000 + seed))
        print(
            f"{scores[-1]:+.2f}  {mechanism.scheme!r}, sigma {mechanism.noise_multiplier}, epsilon {epsilon:.4f}",
            flush=True,
        )
    print(
        f"{len(scores)} configurations, {samples} plain samples each: largest {max(map(abs, scores)):.2f} standard errors"
    )


def truncated_agreement(samples: int) -> None:
    from tests.montecarlo.test_tilted_truncated import compare, sampled_cases

    scores = []
    for seed, (mechanism, epsilon, direction) in enumerate(sampled_cases()):
        scores.append(compare(mechanism, epsilon, direction, samples, 10**6, 5000 + seed))
        print(
            f"{scores[-1]:+.2f}  {mechanism.scheme!r}, sigma {mechanism.noise_multiplier}, epsilon {epsilon}, {direction}",
            flush=True,
        )
    print(
        f"{len(scores)} configurations, {samples} plain samples each: largest {max(map(abs, scores)):.2f} standard errors"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="?", choices=PARTS)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--samples", type=int, default=10**7)
    arguments = parser.parse_args()
    if arguments.part in (None, "needed"):
        needed(arguments.plot)
    if arguments.part in (None, "speed"):
        speed()
    if arguments.part == "agreement":
        agreement(arguments.samples)
    if arguments.part == "truncated-agreement":
        truncated_agreement(arguments.samples)
    if arguments.part == "add":
        add()
    if arguments.part == "add-agreement":
        add_agreement(arguments.samples)


if __name__ == "__main__":
    main()
