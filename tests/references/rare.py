"""Reference values of δ(ε) where generate.py's contours find none: records that are hardly ever sampled.

    python rare.py [--draws ...] [--output rare.json]

Needs mpmath and python-flint. The transform of one step is split, M = A + B, by a smooth cut of the output t: B is
that of the outputs above it. M^T = A^T + ((A+B)^T - A^T), and each of the two is inverted along a line Re z = s of its
own; where Chernoff's bound shows one to be below 1e-28 of the other, it is left out. Outputs so large that
P has nothing beyond are left out too. The sums over t run along Im t = a, where the integrand decays with the frequency.
Of all cuts that one is taken for which the fewest frequencies are needed. Every value is computed twice, with another
cut, width, line, abscissa and steps, and kept only where the two agree to 20 digits. (Any split gives the same δ; where
it lies only decides what has to be computed.) Draws are generate.py's; the ε of each is a number of six digits near which δ
is the draw's target, and any other would do.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import flint
from generate import draw
from mpmath import mp

# draw number: epsilon
POINTS: dict[str, float] = json.loads(Path(__file__).with_name("rare_points.json").read_text())
DIGITS = 70
GOAL = 64.0  # nats: 1e-28 of δ
FIRST = {"width": 1.0, "line": 1.0, "h": 1.0, "cut": 1.0, "s": 1.0, "period": 1.0}
SECOND = {"width": 0.87, "line": 0.9, "h": 0.83, "cut": 0.98, "s": 0.93, "period": 1.13}
SHARES = (0.97, 0.9, 0.8, 0.65, 0.5, 0.3, 1.1, 1.3)
MOST = 300_000


class Split:
    """Nodes t + ia with their losses and weights for A and B, at a cut."""

    def __init__(self, sigma: float, q: float, cut: float, run: dict[str, float], coarse: float, high: float):
        width = run["width"] * min(max(0.5 * sigma, 0.16), 0.5)
        line = run["line"] * min(1.2 * width, 0.9 * sigma)
        h = run["h"] * coarse * 2 * math.pi * line / 160.0
        mu = 1 / flint.arb(sigma)
        root = flint.arb(2).sqrt() * flint.arb(width)
        scale = flint.arb(h) / (2 * flint.arb.pi()).sqrt()
        self.loss, self.a, self.b = [], [], []
        # A ends where its P-mass is nothing, or a large tilt would pull all of it out there.
        end = min(cut + 27 * width, max(high, cut))
        for k in range(math.ceil(-22.0 / h), math.floor(max(high, end) / h) + 1):
            t = flint.acb(k * flint.arb(h), flint.arb(line))
            loss = (1 + flint.arb(q) * (t * mu - mu * mu / 2).expm1()).log()
            weight = scale * (-t * t / 2 + loss).exp()
            self.loss.append(loss)
            self.a.append(weight * ((t - flint.arb(cut)) / root).erfc() / 2 if k * h < end else flint.acb(0))
            self.b.append(weight * ((flint.arb(cut) - t) / root).erfc() / 2)

    def at(self, z: flint.acb) -> tuple[flint.acb, flint.acb]:
        """A and B at one point."""
        tilt = [(z * loss).exp() for loss in self.loss]
        a = sum((x * t for x, t in zip(self.a, tilt, strict=True)), flint.acb(0))
        return a, sum((x * t for x, t in zip(self.b, tilt, strict=True)), flint.acb(0))

    def along(self, s: float, step: flint.arb, count: int):
        """A and B at s, s + i step, ..., in blocks: one product of matrices each."""
        block = min(max(16, math.isqrt(count)), 256)
        tilt = [(flint.arb(s) * loss).exp() for loss in self.loss]
        turn = [(flint.acb(0, step) * loss).exp() for loss in self.loss]
        rows, row = [], [flint.acb(1)] * len(turn)
        for _ in range(block):
            rows.append(row)
            row = [x * t for x, t in zip(row, turn, strict=True)]
        powers = flint.acb_mat(rows).transpose()
        leap = row
        a = [x * t for x, t in zip(self.a, tilt, strict=True)]
        b = [x * t for x, t in zip(self.b, tilt, strict=True)]
        for _ in range(0, count, block):
            values = (flint.acb_mat([a, b]) * powers).tolist()
            yield from zip(values[0], values[1], strict=True)
            a = [x * t for x, t in zip(a, leap, strict=True)]
            b = [x * t for x, t in zip(b, leap, strict=True)]


def log_abs(x: flint.acb) -> float:
    size = abs(x)
    return float(size.log()) if size > 0 else -math.inf


def power(a: flint.acb, b: flint.acb, steps: int, above: bool) -> flint.acb:
    """(A+B)^T - A^T, or A^T."""
    rest = (steps * a.log()).exp()
    return rest * (steps * (b / a).log1p()).expm1() if above else rest


class Part:
    """One of the two parts at a cut: its saddle, and what inverting it takes."""

    def __init__(self, split: Split, steps: int, epsilon: float, above: bool):
        self.split, self.steps, self.epsilon, self.above = split, steps, epsilon, above
        self.known: dict[float, float] = {}
        low, high, golden = math.log(1e-2), math.log(1e8), 0.618
        x, y = high - golden * (high - low), low + golden * (high - low)
        at_x, at_y = self.with_pole(math.exp(x)), self.with_pole(math.exp(y))
        while high - low > 0.03:
            if at_x < at_y:
                high, y, at_y = y, x, at_x
                x = high - golden * (high - low)
                at_x = self.with_pole(math.exp(x))
            else:
                low, x, at_x = x, y, at_y
                y = low + golden * (high - low)
                at_y = self.with_pole(math.exp(y))
        self.s = math.exp(low)
        self.size = self.with_pole(self.s)

    def log_transform(self, s: float) -> float:
        """ln of the transform at a real s, which is positive."""
        if s not in self.known:
            self.known[s] = log_abs(power(*self.split.at(flint.acb(s)), self.steps, self.above))
        size = self.known[s]
        return size if math.isfinite(size) else math.inf

    def with_pole(self, s: float) -> float:
        return self.log_transform(s) - s * self.epsilon - math.log(s) - math.log1p(s)

    def plan(self, log_delta: float) -> tuple[float, float, float]:
        """Period and last frequency, so that aliases and rest are e^-GOAL of δ; and how many frequencies that is."""
        s, epsilon, wanted = self.s, self.epsilon, log_delta - GOAL
        # δ(ε ± W) e^{± s W} by Chernoff's bound at other tilts.
        right = min(
            max(0.0, self.log_transform(s * f) - s * f * epsilon - wanted) / (s * (f - 1.0))
            for f in (1.03, 1.1, 1.2, 1.35, 1.6, 2.0, 2.7, 4.0, 8.0)
        )
        left = min(
            max(0.0, self.log_transform(s * f) - s * f * epsilon - wanted) / (s * (1.0 - f))
            for f in (0.0, 0.1, 0.25, 0.4, 0.6, 0.8, 0.9)
        )
        period = max(left, right)
        tau = s
        while self.tail(tau) > wanted:
            tau *= 1.25
            if tau * period > 8.0 * MOST:
                raise ArithmeticError("the transform falls too slowly")
        return period, tau, tau * period / (2 * math.pi)

    def tail(self, tau: float) -> float:
        """About ln of what lies beyond a frequency; two of them, as one may be near a zero."""
        sizes = []
        for t in (tau, 1.03 * tau):
            value = power(*self.split.at(flint.acb(self.s, t)), self.steps, self.above)
            sizes.append(log_abs(value) - self.s * self.epsilon - math.log(tau))
        return max(sizes)


def value(part: Part, split: Split, run: dict[str, float], plan: tuple[float, float, float]) -> flint.arb:
    """One part of δ by the trapezoidal rule along Re z = s."""
    s, epsilon = part.s * run["s"], flint.arb(part.epsilon)
    step = 2 * flint.arb.pi() / flint.arb(run["period"] * 1.05 * plan[0])
    count = math.ceil(1.1 * plan[1] / float(step)) + 2
    total = flint.arb(0)
    for j, (a, b) in zip(range(count), split.along(s, step, count), strict=False):
        z = flint.acb(flint.arb(s), step * j)
        term = power(a, b, part.steps, part.above) * (-z * epsilon).exp() / (z * (z + 1))
        total += term.real / (2 if j == 0 else 1)
    return total * step / flint.arb.pi()


def evaluate(
    sigma: float,
    q: float,
    steps: int,
    epsilon: float,
    run: dict[str, float],
    shares: tuple[float, ...] = SHARES,
) -> tuple[flint.arb, float]:
    """δ(ε), at the cut that needs the fewest frequencies; and that cut, as a share of the output where L = ε."""
    t_epsilon = sigma * math.log((math.expm1(epsilon) + q) / q) + 0.5 / sigma
    # Outputs beyond add nothing to δ.
    high = min(t_epsilon, 38.0) + 1.0 / sigma + 16.0
    found: list[tuple[list[Part], float]] = []
    for share in shares:
        flint.ctx.dps = 60
        split = Split(sigma, q, run["cut"] * share * t_epsilon, run, 3.0, high)
        found.append(([Part(split, steps, epsilon, above) for above in (True, False)], share))
    # The best cut knows best how large δ is.
    log_delta = min(max(part.size for part in parts) for parts, _ in found) - 2.0
    plans = []
    for parts, share in found:
        kept = [part for part in parts if part.size > log_delta - GOAL]
        try:
            each = [part.plan(log_delta) for part in kept]
        except ArithmeticError:
            continue
        plans.append((sum(plan[2] for plan in each), share, kept, each))
    if not plans or min(plans, key=lambda plan: plan[0])[0] > MOST:
        raise ArithmeticError("the transform falls too slowly")
    _, share, kept, each = min(plans, key=lambda plan: plan[0])
    lost = max(part.size for part in kept) - log_delta
    flint.ctx.dps = 80 + round(math.log10(steps) + lost / math.log(10.0))
    split = Split(sigma, q, run["cut"] * share * t_epsilon, run, 1.0, high)
    total = sum((value(part, split, run, plan) for part, plan in zip(kept, each, strict=True)), flint.arb(0))
    return total, share


def decimal(x: flint.arb) -> mp.mpf:
    mantissa, exponent = x.mid().man_exp()
    return mp.mpf(int(mantissa)) * mp.mpf(2) ** int(exponent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", nargs="*", default=list(POINTS), help="which of them")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("rare.json"))
    options = parser.parse_args()
    mp.dps = DIGITS
    entries: list[dict[str, object]] = []
    skipped: dict[str, str] = {}
    for number in options.draws:
        epsilon = POINTS[number]
        sigma, q, steps, direction, _ = draw(int(number))
        start = time.process_time()
        try:
            first, share = evaluate(sigma, q, steps, epsilon, FIRST)
            second, _ = evaluate(sigma, q, steps, epsilon, SECOND, (share,))
            a, b = decimal(first), decimal(second)
            agreed = float(-mp.log10(abs(a / b - 1))) if a != b else 99.0
            if agreed < 20:
                raise ArithmeticError(f"agreement to {agreed:.1f} digits only")
        except ArithmeticError as error:
            skipped[number] = str(error)
            print(number, error, round(time.process_time() - start, 1), flush=True)
            continue
        entries.append(
            {
                "draw": int(number),
                "sigma": repr(sigma),
                "q": repr(q),
                "steps": steps,
                "direction": direction,
                "epsilon": repr(epsilon),
                "delta": mp.nstr(a, 25, strip_zeros=False, min_fixed=0, max_fixed=0),
                "digits": min(25, math.floor(agreed)),
            }
        )
        print(entries[-1], round(time.process_time() - start, 1), flush=True)
        options.output.write_text(json.dumps({"entries": entries, "skipped": skipped}, indent=1) + "\n")


if __name__ == "__main__":
    main()
