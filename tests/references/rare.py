"""Reference values of δ(ε) where generate.py's contours find none: records that are hardly ever sampled.

    python rare.py [--output rare.json]

Needs mpmath and python-flint. The transform of one step is split, M = A + B, by a smooth cut of the output t: B is that
of the outputs above it. Of M^T - A^T and A^T, Chernoff's bound shows one to be below 1e-29 of the other, which is
inverted along Re z = s. The sums over t run along Im t = a, where the integrand decays with the frequency. Every value is computed
twice, with another cut, width, line, abscissa and steps, and kept only where the two agree to 20 digits. (Any split
gives the same δ; where it lies only decides what has to be computed.) Draws are generate.py's; the ε of each is a
number of six digits near which δ is the draw's target, and any other would do.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path

import flint
from generate import draw
from mpmath import mp

# draw number: epsilon
POINTS: dict[int, float] = json.loads(Path(__file__).with_name("rare_points.json").read_text())
DIGITS = 70


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
        end = cut + 27 * width
        for k in range(math.ceil(-22.0 / h), math.floor(max(high, end) / h) + 1):
            t = flint.acb(k * flint.arb(h), flint.arb(line))
            loss = (1 + flint.arb(q) * ((t * mu - mu * mu / 2).exp() - 1)).log()
            weight = scale * (-t * t / 2 + loss).exp()
            self.loss.append(loss)
            self.a.append(weight * ((t - flint.arb(cut)) / root).erfc() / 2 if k * h < end else flint.acb(0))
            self.b.append(weight * ((flint.arb(cut) - t) / root).erfc() / 2)

    def along(self, s: float, step: float) -> Iterator[tuple[flint.acb, flint.acb]]:
        """A and B at s, s + i step, ..."""
        turn = [(flint.acb(0, step) * loss).exp() for loss in self.loss]
        tilt = [(flint.arb(s) * loss).exp() for loss in self.loss]
        a = [x * t for x, t in zip(self.a, tilt, strict=True)]
        b = [x * t for x, t in zip(self.b, tilt, strict=True)]
        while True:
            yield sum(a, flint.acb(0)), sum(b, flint.acb(0))
            a = [x * t for x, t in zip(a, turn, strict=True)]
            b = [x * t for x, t in zip(b, turn, strict=True)]


def log_abs(x: flint.acb) -> float:
    return float(abs(x).log()) if x != 0 else -math.inf


def power(a: flint.acb, b: flint.acb, steps: int, above: bool) -> flint.acb:
    """(A+B)^T - A^T, or A^T."""
    rest = (steps * a.log()).exp()
    return rest * ((steps * (1 + b / a).log()).exp() - 1) if above else rest


def saddle(split: Split, steps: int, epsilon: float, above: bool, pole: bool) -> tuple[float, float]:
    """The least of ln of the transform - s epsilon (- ln s (s+1)), and where."""

    def value(x: float) -> float:
        s = math.exp(x)
        size = log_abs(power(*next(split.along(s, 0.0)), steps, above))
        return size - s * epsilon - (x + math.log1p(s) if pole else 0.0)

    low, high = math.log(1e-2), math.log(1e8)
    while high - low > 0.02:
        x, y = low + 0.382 * (high - low), low + 0.618 * (high - low)
        if value(x) < value(y):
            high = y
        else:
            low = x
    return value(low), math.exp(low)


def evaluate(sigma: float, q: float, steps: int, epsilon: float, run: dict[str, float]) -> flint.arb:
    """δ(ε), by whichever of its two parts is all of it but for 1e-30."""
    t_epsilon = sigma * math.log((math.expm1(epsilon) + q) / q) + 0.5 / sigma
    high = t_epsilon + 22.0
    flint.ctx.dps = 40
    for share in (0.97, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 1.3, 1.8, 2.5):
        cut = run["cut"] * share * t_epsilon
        split = Split(sigma, q, cut, run, 3.0, high)
        parts = [saddle(split, steps, epsilon, above, False)[0] for above in (True, False)]
        if abs(parts[0] - parts[1]) > 68.0:
            break
    else:
        raise ArithmeticError("no cut leaves one part only")
    above = parts[0] > parts[1]
    size, s = saddle(split, steps, epsilon, above, True)
    flint.ctx.dps = 72 + round(math.log10(steps))
    s *= run["s"]
    step = 2 * math.pi / (run["period"] * (75.0 - size) / s)
    split = Split(sigma, q, cut, run, 1.0, high)
    total, first = flint.arb(0), 0.0
    for j, (a, b) in enumerate(split.along(s, step)):
        z = flint.acb(flint.arb(s), flint.arb(step) * j)
        term = power(a, b, steps, above) * (-z * flint.arb(epsilon)).exp() / (z * (z + 1))
        total += term.real / (2 if j == 0 else 1)
        if j == 0:
            first = log_abs(term)
        if j > 20 and log_abs(term) < first - 62.0:
            return total * flint.arb(step) / flint.arb.pi()
        if j > 12_000:
            raise ArithmeticError("the transform falls too slowly")
    raise AssertionError


FIRST = {"width": 1.0, "line": 1.0, "h": 1.0, "cut": 1.0, "s": 1.0, "period": 1.0}
SECOND = {"width": 0.87, "line": 0.9, "h": 0.83, "cut": 0.96, "s": 0.9, "period": 1.21}


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
        try:
            a, b = (decimal(evaluate(sigma, q, steps, epsilon, run)) for run in (FIRST, SECOND))
            agreed = float(-mp.log10(abs(a / b - 1))) if a != b else 99.0
            if agreed < 20:
                raise ArithmeticError(f"agreement to {agreed:.1f} digits only")
        except ArithmeticError as error:
            skipped[number] = str(error)
            print(number, error, flush=True)
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
        print(entries[-1], flush=True)
        options.output.write_text(json.dumps({"entries": entries, "skipped": skipped}, indent=1) + "\n")


if __name__ == "__main__":
    main()
