"""Reference values of δ(ε) for noise with atoms: Laplace, discrete mechanisms, sampling around them, fixed-size batches.

    python generate_families.py [--output families.json]

Needs mpmath (and uses gmpy2 if it is there). Shares no code and no floating-point step with the package.

A step's loss has atoms and smooth pieces. The pieces are given by densities p(t), q(t) on an interval, sums of
e^{rate t}, times e^{-t²/2} for Gaussian noise. Four methods:

lattice   Only atoms, on o + hℤ. The law of the sum exactly, by multiplying polynomials whose coefficients are
          integers of 160 digits.
residues  T steps of plain Laplace noise. With w = z + 1/2 and shift/scale = a,
              M(z)^T = e^{-Ta/2} Σ_j C(T,j) u^{T-j} v^j,  u = e^{wa}(1 + 1/2w)/2,  v = e^{-wa}(1 - 1/2w)/2.
          The terms with a(T-2j) > ε vanish to the left, so that the line closes to a circle around their poles
          z = 0, -1/2, -1; the others vanish to the right and give nothing. The rule on a circle converges
          geometrically.
line      The trapezoidal rule for 1/(2πi) ∫ M(z)^T e^{-zε}/(z(z+1)) dz along Re z = s, where many steps or Gaussian
          noise make M^T fall below all digits. M by Gauss-Legendre panels.

pairs     Two equal steps: the integral of the profile of the second, a sum of error functions, over the law of the
          first.

Every value of the last three is computed twice, with other radii, abscissas, periods, panels and digits.
"""

from __future__ import annotations

import argparse
import json
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

from mpmath import mp

DIGITS = 28  # aimed at; 25 are stored
HALF = Fraction(1, 2)


def number(text: str):
    """The double that a text stands for, exactly."""
    return mp.mpf(float(text))


# ---- the law of one step's loss -----------------------------------------------------------------------------------


class Law:
    """Atoms (loss, P-mass) and pieces (low, high, gaussian, p terms, q terms), terms being (weight, rate)."""

    def __init__(self, atoms=(), pieces=()):
        self.atoms, self.pieces = list(atoms), list(pieces)

    def map(self, atom, piece):
        return Law([atom(*a) for a in self.atoms], [piece(*p) for p in self.pieces])

    def swapped(self):
        return self.map(lambda x, p: (-x, p * mp.exp(-x)), lambda a, b, g, p, q: (a, b, g, q, p))

    def removed(self, rate):
        """(rate P + (1-rate) Q, Q)"""

        def atom(x, p):
            loss = mp.log(1 - rate + rate * mp.exp(x))
            return loss, p * mp.exp(loss - x)

        def piece(a, b, gaussian, p, q):
            both = [(rate * w, r) for w, r in p] + [((1 - rate) * w, r) for w, r in q]
            return a, b, gaussian, both, q

        return self.map(atom, piece)

    def added(self, rate):
        return self.swapped().removed(rate).swapped()

    def joined(self, rate, middle):
        """Advanced joint convexity: remove form for L > 0, add form for L < 0, the rest at 0. `middle` is the t of
        loss 0, above which the loss is positive."""

        def positive(law, left):
            pieces = [
                (max(a, middle), b, g, p, q) if not left else (a, min(b, middle), g, p, q)
                for a, b, g, p, q in law.pieces
            ]
            return Law([a for a in law.atoms if a[0] > 0], [p for p in pieces if p[0] < p[1]])

        right, left = (
            positive(self, False).removed(rate),
            positive(self.swapped(), True).removed(rate).swapped(),
        )
        law = Law(right.atoms + left.atoms, right.pieces + left.pieces)
        rest = 1 - law.mass()
        if rest > mp.mpf(10) ** (-mp.dps + 10):
            law.atoms.append((mp.mpf(0), rest))
        return law

    def mass(self):
        return sum(p for _, p in self.atoms) + sum(integrate(piece, 0) for piece in self.pieces)


def laplace(a):
    half = mp.exp(-a / 2) / 4
    atoms = [(-a, mp.exp(-a) / 2), (a, mp.mpf(1) / 2)]
    return Law(atoms, [(-a, a, False, [(half, HALF)], [(half, -HALF)])])


def gaussian(mu):
    root = 1 / mp.sqrt(2 * mp.pi)
    return Law([], [(-mp.inf, mp.inf, True, [(root * mp.exp(-mu * mu / 2), mu)], [(root, mp.mpf(0))])])


def bells(*parts):
    """Terms of sum_i w_i N(m_i, 1)."""
    root = 1 / mp.sqrt(2 * mp.pi)
    return [(w * root * mp.exp(-m * m / 2), m) for w, m in parts]


def zero_out(mu, q):
    """One record of a full batch replaced by zero (docs/mechanisms/truncated.md, Theorem 3): a form for L > 0, one for L < 0."""
    none, one, two = (1 - q, mp.mpf(0)), (q, mu), (q, 2 * mu)
    pieces = [
        (3 * mu / 2, mp.inf, True, bells(none, two), bells(none, one)),
        (mu / 2, mp.inf, True, bells((mp.mpf(1), mp.mpf(0))), bells(none, one)),
    ]
    rest = (1 - q) * (1 - mp.ncdf(-mu / 2) - mp.ncdf(-3 * mu / 2))
    return Law([(mp.mpf(0), rest)], pieces)


def truncated(step, adjacency):
    """A Poisson batch, which is full with probability `full`; all numbers are doubles."""
    mu, p, q, full = (number(step[key]) for key in ("mu", "p", "q", "full"))
    if adjacency == "replace_one":
        none = (1 - p, mp.mpf(0))
        poisson = Law([], [(-mp.inf, mp.inf, True, bells(none, (p, mu)), bells(none, (p, -mu)))])
        other = gaussian(2 * mu).joined(q, mu)
    else:
        poisson = gaussian(mu).removed(p) if adjacency == "remove" else gaussian(mu).added(p)
        other = zero_out(mu, q) if adjacency == "remove" else zero_out(mu, q).swapped()
    parts = [
        one.map(
            lambda x, m, w=w: (x, m * w),
            lambda a, b, g, p, q, w=w: (a, b, g, [(w * v, r) for v, r in p], [(w * v, r) for v, r in q]),
        )
        for one, w in ((poisson, 1 - full), (other, full))
        if w > 0
    ]
    return Law(
        [atom for one in parts for atom in one.atoms], [piece for one in parts for piece in one.pieces]
    )


def laplace_replaced(a, rate):
    """(1-rate) Lap(0) + rate Lap(a) against (1-rate) Lap(0) + rate Lap(-a)."""

    def terms(sign, t):  # of (1-rate) Lap(0) + rate Lap(sign a) near t
        out = []
        for weight, centre in ((1 - rate, mp.mpf(0)), (rate, sign * a)):
            side = -1 if centre < t else 1
            out.append((weight / 2 * mp.exp(-side * centre), side))
        return out

    def at(parts, t):
        return sum(w * mp.exp(r * t) for w, r in parts)

    pieces = [
        (low, high, False, terms(1, (low + high) / 2), terms(-1, (low + high) / 2))
        for low, high in ((-a, 0), (0, a))
    ]
    atoms = []
    for end in (-a, a):
        p, q = terms(1, 2 * end), terms(-1, 2 * end)
        atoms.append((mp.log(at(p, end) / at(q, end)), at(p, end)))
    return Law(atoms, pieces)


def responses(epsilon, k):
    r = 1 / (mp.exp(epsilon) + k - 1)
    atoms = [(-epsilon, r), (epsilon, r * mp.exp(epsilon))]
    return Law(atoms + ([(mp.mpf(0), (k - 2) * r)] if k > 2 else []))


def integer_noise(mass, reach, shift, rate=None):
    """Integer noise moved by `shift`; with a rate, Poisson sampling with one record replaced."""
    atoms: dict = {}
    for t in range(-reach - shift, reach + shift + 1):
        if rate is None:
            p, q = mass(t - shift), mass(t)
        else:
            p = (1 - rate) * mass(t) + rate * mass(t - shift)
            q = (1 - rate) * mass(t) + rate * mass(t + shift)
        key = mp.nstr(mp.log(p / q), mp.dps - 15)
        loss, old = atoms.get(key, (mp.log(p / q), mp.mpf(0)))
        atoms[key] = (loss, old + p)
    return Law(atoms.values())


def discrete_laplace(scale):
    base = mp.tanh(1 / (2 * scale))
    return lambda t: base * mp.exp(-abs(t) / scale)


def discrete_gaussian(sigma, reach):
    total = sum(mp.exp(-(mp.mpf(t) ** 2) / (2 * sigma**2)) for t in range(-reach, reach + 1))
    return lambda t: mp.exp(-(mp.mpf(t) ** 2) / (2 * sigma**2)) / total


def law(step: dict, adjacency: str) -> Law:
    """One step of a process, in the direction "remove" or "add" or under "replace_one"."""
    if step["kind"] == "truncated":
        return truncated(step, adjacency)
    kind, rate = step["kind"], step.get("q")
    rate = None if rate is None else number(rate)
    moves = 2 if adjacency == "replace_one" and "batch" not in step and rate is None else 1
    if "batch" in step:  # without replacement: replacing a record moves the sum by 2
        moves, rate = 2, mp.mpf(step["batch"]) / step["dataset"]
    if kind == "laplace":
        if adjacency == "replace_one" and "q" in step:
            return laplace_replaced(1 / number(step["scale"]), rate)
        base, middle = laplace(moves / number(step["scale"])), mp.mpf(0)
    elif kind == "gaussian":
        mu = moves / number(step["sigma"])
        base, middle = gaussian(mu), mu / 2
    elif kind == "randomized_response":
        base, middle = responses(number(step["epsilon"]), step.get("categories", 2)), None
    elif kind == "discrete_laplace":
        scale, shift = number(step["scale"]), moves * step.get("sensitivity", 1)
        reach = int(scale * 260) + 2
        if adjacency == "replace_one" and "q" in step:
            return integer_noise(discrete_laplace(scale), reach, shift, rate)
        base, middle = integer_noise(discrete_laplace(scale), reach, shift), None
    elif kind == "discrete_gaussian":
        sigma = number(step["sigma"])
        reach = int(sigma * 24) + 2
        base, middle = integer_noise(discrete_gaussian(sigma, 2 * reach), reach, moves), None
    else:
        raise ValueError(kind)
    if rate is None:
        return base
    if adjacency == "replace_one":
        return base.joined(rate, middle)
    return base.removed(rate) if adjacency == "remove" else base.added(rate)


# ---- integrals over a piece ---------------------------------------------------------------------------------------

_rules: dict = {}


def rule(n: int) -> list:
    key = (n, mp.prec)
    if key not in _rules:
        nodes = []
        for i in range(n):
            x = mp.cos(mp.pi * (i + mp.mpf(3) / 4) / (n + mp.mpf(1) / 2))
            for _ in range(8):
                p0, p1 = mp.mpf(1), x
                for k in range(2, n + 1):
                    p0, p1 = p1, ((2 * k - 1) * x * p1 - (k - 1) * p0) / k
                slope = n * (x * p1 - p0) / (x * x - 1)
                x -= p1 / slope
            nodes.append((x, 2 / ((1 - x * x) * slope * slope)))
        _rules[key] = nodes
    return _rules[key]


def points(piece, s, tau, order: int, finer):
    """(loss, ln of p(t) dt) at the nodes of panels; the integrand p^{1+z} q^{-z} turns by a few radians in each."""
    low, high, is_gaussian, p, q = piece
    rates = [r for _, r in p], [r for _, r in q]
    if is_gaussian:
        far = mp.sqrt(2 * (mp.dps + 3) * mp.ln10)
        ends = [(1 + s) * a - s * b for a in rates[0] for b in rates[1]] + rates[0] + rates[1]
        low, high = max(low, min(ends) - far), min(high, max(ends) + far)
    turn = max(max(rates[0]) - min(rates[1]), max(rates[1]) - min(rates[0]))
    count = (
        int(
            mp.ceil(
                (high - low)
                * finer
                * (turn * (tau + s) / 12 + (mp.mpf(1) / 3 if is_gaussian else mp.mpf(1) / 4))
            )
        )
        + 1
    )
    half = (high - low) / (2 * count)
    for i in range(count):
        for x, weight in rule(order):
            t = low + half * (2 * i + 1 + x)
            log_p = mp.log(sum(w * mp.exp(r * t) for w, r in p))
            log_q = mp.log(sum(w * mp.exp(r * t) for w, r in q))
            yield log_p - log_q, log_p + mp.log(half * weight) - (t * t / 2 if is_gaussian else 0)


def integrate(piece, s):
    return sum(mp.exp(p + s * loss) for loss, p in points(piece, s, 0, 60, 1))


# ---- the three methods --------------------------------------------------------------------------------------------


def comb(laws):
    """Offset and spacing common to all atoms, or None."""
    gaps = []
    for one in laws:
        if one.pieces:
            return None
        losses = sorted(x for x, _ in one.atoms)
        gaps += [b - a for a, b in pairwise(losses)]
    small = min(gaps)
    for part in range(1, 13):
        h = small / part
        if all(abs(g / h - mp.nint(g / h)) < mp.mpf(10) ** -20 for g in gaps):
            return h
    return None


def lattice(laws, counts, h, epsilon):
    """The law of the sum exactly."""
    digits = 160
    unit = mp.mpf(10) ** digits
    bits = 4 * digits + 40

    def pack(c):
        total = 0
        for value in reversed(c):
            total = (total << bits) | value
        return total

    def unpack(total, n):
        mask = (1 << bits) - 1
        return [(total >> (bits * i)) & mask for i in range(n)]

    def multiply(a, b):
        # Products carry twice the digits; what is below the unit is cut off.
        n = len(a) + len(b) - 1
        wide = 2 * bits
        packed = [sum(v << (wide * i) for i, v in enumerate(c)) for c in (a, b)]
        product, scale, mask = packed[0] * packed[1], 10**digits, (1 << wide) - 1
        return [((product >> (wide * i)) & mask) // scale for i in range(n)]

    total, offset = [10**digits], mp.mpf(0)
    for one, count in zip(laws, counts, strict=True):
        first = min(x for x, _ in one.atoms)
        size = int(mp.nint((max(x for x, _ in one.atoms) - first) / h)) + 1
        base = [0] * size
        for x, p in one.atoms:
            base[int(mp.nint((x - first) / h))] += int(mp.nint(p * unit))
        offset += count * first
        while count:
            if count & 1:
                total = multiply(total, base)
            count >>= 1
            if count:
                base = multiply(base, base)
    delta = mp.mpf(0)
    for i in range(len(total) - 1, -1, -1):
        x = offset + i * h
        if x <= epsilon:
            break
        delta += total[i] / unit * (1 - mp.exp(epsilon - x))
    return delta


def residues(a, steps: int, epsilon, radius, nodes: int):
    """Plain Laplace noise."""
    last = int(mp.ceil((steps - epsilon / a) / 2)) - 1  # the largest j with a(T-2j) > ε
    binomials = [mp.binomial(steps, j) for j in range(last + 1)]
    total = mp.mpf(0)
    for i in range(nodes):
        turn = mp.expjpi(2 * (i + mp.mpf(1) / 2) / nodes)
        w = radius * turn
        z = w - mp.mpf(1) / 2
        u, v = mp.exp(w * a) * (1 + 1 / (2 * w)) / 2, mp.exp(-w * a) * (1 - 1 / (2 * w)) / 2
        term, ratio, part = u**steps, v / u, mp.mpc(0)
        for j in range(last + 1):
            part += binomials[j] * term
            term *= ratio
        total += (part * mp.exp(-steps * a / 2 - z * epsilon) / (z * (z + 1)) * w).real
    return total / nodes


def cumulants(laws, counts, s):
    """K and its first two derivatives at s."""
    k0 = k1 = k2 = mp.mpf(0)
    for one, count in zip(laws, counts, strict=True):
        nodes = [(x, mp.log(p)) for x, p in one.atoms]
        for piece in one.pieces:
            nodes += points(piece, s, 0, 24, 1)
        w = [mp.exp(p + s * x) for x, p in nodes]
        m0 = mp.fsum(w)
        m1 = mp.fsum(v * x for v, (x, _) in zip(w, nodes, strict=True)) / m0
        m2 = mp.fsum(v * x * x for v, (x, _) in zip(w, nodes, strict=True)) / m0
        k0, k1, k2 = k0 + count * mp.log(m0), k1 + count * m1, k2 + count * (m2 - m1 * m1)
    return k0, k1, k2


def line(laws, counts, s, epsilon, longer, order: int, finer):
    """The trapezoidal rule; stops where M^T has fallen below all digits, and fails if it does not."""
    _, _, variance = cumulants(laws, counts, s)
    drop = (DIGITS + 6) * mp.ln10
    period = longer * (mp.mpf("1.3") * mp.sqrt(2 * drop * variance) + drop / s)
    step = 2 * mp.pi / period
    tau = mp.sqrt(2 * drop / variance)
    for _ in range(6):
        tables = []
        for one, count in zip(laws, counts, strict=True):
            nodes = [(x, mp.log(p)) for x, p in one.atoms]
            for piece in one.pieces:
                nodes += points(piece, s, tau, order, finer)
            terms = [mp.mpc(mp.exp(p + s * x)) for x, p in nodes]
            tables.append([terms, [mp.expj(step * x) for x, _ in nodes], count])
        total, size0, n = mp.mpf(0), None, 0
        while n * step <= tau:
            z = mp.mpc(s, n * step)
            value = -z * epsilon
            for table in tables:
                value += table[2] * mp.log(mp.fsum(table[0]))
                table[0] = [t * f for t, f in zip(table[0], table[1], strict=True)]
            f = mp.exp(value) / (z * (z + 1))
            total += f.real * (1 if n else mp.mpf(1) / 2)
            size0 = size0 or abs(f)
            if abs(f) < size0 * mp.exp(-drop) and n > 3:
                break
            n += 1
        else:
            tau *= mp.mpf("1.6")
            if tau > 3000 * step:
                raise ArithmeticError("M^T falls too slowly")
            continue
        return total * step / mp.pi
    raise ArithmeticError("M^T falls too slowly")


def loss_of(piece, t):
    (p, q) = (mp.log(mp.fsum(w * mp.exp(r * t) for w, r in terms)) for terms in piece[3:])
    return p - q


def crossing(piece, x):
    """Where a Gaussian piece's monotone loss is x, an end if it never is, and whether it rises."""
    low, high = piece[:2]
    a, b = max(low, mp.mpf(-1000)), min(high, mp.mpf(1000))
    below, above = loss_of(piece, a) - x, loss_of(piece, b) - x
    rises = above > below
    if (below > 0) == (above > 0):
        return (low if (below > 0) == rises else high), rises
    # Bisection, then Newton, whose slope is a difference of mean rates.
    while b - a > mp.mpf(10) ** -4:
        middle = (a + b) / 2
        a, b = (a, middle) if (loss_of(piece, middle) - x > 0) == rises else (middle, b)
    t = (a + b) / 2
    for _ in range(8):
        slopes = []
        for terms in piece[3:]:
            all_ = [w * mp.exp(r * t) for w, r in terms]
            slopes.append(mp.fsum(v * r for v, (_, r) in zip(all_, terms, strict=True)) / mp.fsum(all_))
        t -= (loss_of(piece, t) - x) / (slopes[0] - slopes[1])
    return t, rises


def profile(one, x):
    """H_{e^x} of one step with Gaussian pieces."""
    total = mp.fsum(p * (1 - mp.exp(x - at)) for at, p in one.atoms if at > x)
    root = mp.sqrt(2 * mp.pi)
    for piece in one.pieces:
        t, rises = crossing(piece, x)
        low, high = (t, piece[1]) if rises else (piece[0], t)
        for terms, sign in ((piece[3], 1), (piece[4], -mp.exp(x))):
            for w, r in terms:
                # From the right, where tails are small.
                inside = mp.ncdf(r - low) - (mp.ncdf(r - high) if high < mp.inf else 0)
                total += sign * w * root * mp.exp(r * r / 2) * inside
    return total


def limits(piece):
    """The losses at the ends of a piece, where they are finite."""
    for end, extreme in ((piece[0], min), (piece[1], max)):
        if mp.isfinite(end):
            yield loss_of(piece, end)
            continue
        (wp, rp), (wq, rq) = (extreme(terms, key=lambda term: term[1]) for terms in piece[3:])
        if rp == rq:
            yield mp.log(wp / wq)


def two_steps(one, epsilon):
    """E[profile(epsilon - L)] over the law of one step; the profile is not analytic where a piece ends."""
    total = mp.fsum(p * profile(one, epsilon - x) for x, p in one.atoms)
    kinks = [mp.mpf(0)] + [x for piece in one.pieces for x in limits(piece)]

    def integrand(piece, t):
        mass = mp.fsum(w * mp.exp(r * t) for w, r in piece[3]) * mp.exp(-t * t / 2)
        return mass * profile(one, epsilon - loss_of(piece, t))

    for piece in one.pieces:
        far = mp.sqrt(2 * (mp.dps + 3) * mp.ln10)
        rates = [r for _, r in piece[3] + piece[4]]
        low, high = max(piece[0], min(rates) - far), min(piece[1], max(rates) + far)
        inner = {crossing(piece, epsilon - x)[0] for x in kinks}
        ends = sorted({low, high} | {t for t in inner if low < t < high})
        # Points that differ by rounding alone are one.
        ends = [t for i, t in enumerate(ends) if i == 0 or t - ends[i - 1] > mp.mpf(10) ** -20]
        total += mp.quad(lambda t, piece=piece: integrand(piece, t), ends)
    return total


# ---- the cases ----------------------------------------------------------------------------------------------------


def step(kind: str, count: int, **values) -> dict:
    return {"kind": kind, "count": count, **values}


def rr(count, epsilon, categories=2, **more):
    return step("randomized_response", count, epsilon=epsilon, categories=categories, **more)


def cut(count, mu, p, q, full):
    return step("truncated", count, mu=mu, p=p, q=q, full=full)


# (steps, adjacency, standard deviations above the mean)
CASES = [
    ([rr(10, "1.0")], "remove", (0, 0.9)),
    ([rr(200, "0.3")], "remove", (1, 4, 8)),
    ([rr(1000, "0.05", 4)], "remove", (0, 3, 7)),
    ([rr(500, "1.0", q="0.1")], "remove", (1, 5)),
    ([rr(500, "1.0", q="0.1")], "add", (1, 5)),
    ([rr(300, "0.5", q="0.3")], "replace_one", (2, 6)),
    ([step("discrete_laplace", 100, scale="3.0")], "remove", (1, 5)),
    ([step("discrete_laplace", 60, scale="5.0", sensitivity=3)], "remove", (2, 6)),
    ([step("discrete_laplace", 200, scale="2.0", q="0.2")], "remove", (1, 5)),
    ([step("discrete_laplace", 200, scale="2.0", q="0.2")], "add", (1, 5)),
    ([step("discrete_laplace", 150, scale="2.0", q="0.2")], "replace_one", (2, 6)),
    ([step("discrete_gaussian", 20, sigma="2.0")], "remove", (1, 4)),
    ([step("discrete_gaussian", 8, sigma="5.5")], "replace_one", (2, 6)),
    ([rr(40, "0.5"), step("discrete_laplace", 30, scale="4.0"), rr(20, "0.25", 3)], "remove", (1, 5)),
    ([step("laplace", 2, scale="1.0")], "remove", (0.5, 1)),
    ([step("laplace", 7, scale="3.0")], "remove", (0.5, 2)),
    ([step("laplace", 50, scale="10.0")], "remove", (1, 5)),
    ([step("laplace", 500, scale="20.0")], "remove", (1, 4.3, 9)),
    ([step("laplace", 300, scale="2.0")], "remove", (0, 3, 8)),
    ([step("laplace", 40, scale="4.0")], "replace_one", (2, 5)),
    ([step("laplace", 600, scale="1.0", q="0.1")], "remove", (0, 3, 7)),
    ([step("laplace", 600, scale="1.0", q="0.1")], "add", (0, 3, 7)),
    ([step("laplace", 600, scale="1.0", q="0.1")], "replace_one", (2, 6)),
    ([step("laplace", 2000, scale="2.0", q="0.02")], "remove", (1, 5)),
    ([step("laplace", 2000, scale="2.0", q="0.02")], "add", (1, 5)),
    ([step("laplace", 2000, scale="2.0", q="0.02")], "replace_one", (1, 5)),
    ([step("gaussian", 2000, sigma="3.0", batch=50, dataset=1000)], "replace_one", (1, 5, 9)),
    ([step("gaussian", 1000, sigma="4.0", batch=100, dataset=1000)], "replace_one", (1, 5)),
    ([step("gaussian", 300, sigma="1.5", batch=30, dataset=100)], "replace_one", (2, 6)),
    ([step("laplace", 1000, scale="2.0", batch=100, dataset=1000)], "replace_one", (1, 5)),
    ([step("laplace", 10, scale="5.0"), step("gaussian", 4, sigma="3.0")], "remove", (1, 5)),
    ([rr(10, "0.5"), step("gaussian", 4, sigma="3.0")], "remove", (1, 5)),
    (
        [step("discrete_gaussian", 10, sigma="3.0", q="0.1"), step("gaussian", 4, sigma="3.0")],
        "remove",
        (1, 4),
    ),
    (
        [step("laplace", 100, scale="1.0", q="0.2"), step("laplace", 100, scale="2.0"), rr(20, "0.5")],
        "remove",
        (1, 5),
    ),
    ([cut(100, "1.0", "0.3", "0.25", "0.25")], "remove", (1, 5)),
    ([cut(100, "1.0", "0.3", "0.25", "0.25")], "add", (2,)),
    ([cut(100, "1.0", "0.3", "0.25", "0.25")], "replace_one", (1, 4)),
    ([cut(200, "0.5", "0.5", "0.4", "0.0625")], "add", (2, 8)),
    ([cut(200, "0.5", "0.5", "0.4", "0.0625")], "replace_one", (6,)),
    ([cut(300, "0.5", "0.5", "0.5", "1.0")], "remove", (4,)),
    ([cut(60, "0.5", "0.4", "0.3", "0.5"), step("gaussian", 16, sigma="2.0")], "remove", (1, 5)),
    ([cut(2, "1.0", "0.3", "0.25", "0.5")], "remove", (1, 4)),
    ([cut(2, "1.0", "0.3", "0.25", "0.5")], "add", (1,)),
    ([cut(2, "0.25", "0.5", "0.25", "1.0")], "replace_one", (2,)),
]


def evaluate(steps: list, adjacency: str, epsilon: str) -> tuple:
    """δ, agreed digits and the method."""
    values = []
    for digits, more in ((60, 0), (75, 1)):
        mp.dps = digits
        e = number(epsilon)
        laws, counts = [law(one, adjacency) for one in steps], [one["count"] for one in steps]
        h = comb(laws)
        if h is not None:
            mp.dps = 160
            laws = [law(one, adjacency) for one in steps]
            return lattice(laws, counts, comb(laws), e), 60, "lattice"
        plain = len(steps) == 1 and steps[0]["kind"] == "laplace" and not {"q", "batch"} & steps[0].keys()
        s = mp.mpf(1)
        for _ in range(40):  # towards the saddle point; any s > 0 gives the same value
            _, k1, k2 = cumulants(laws, counts, s)
            off = k1 - 1 / s - 1 / (1 + s) - e
            slope = k2 + 1 / s**2 + 1 / (1 + s) ** 2
            s *= mp.exp(max(min(-off / (slope * s), 1), -1))
            if abs(off) < slope * s / 10:
                break
        if (
            plain
        ):  # a small circle, where values are large on its left, or a large one, where they are on its right
            mp.dps = 220 + 30 * more
            e, a = number(epsilon), (2 if adjacency == "replace_one" else 1) / number(steps[0]["scale"])
            values.append(residues(a, counts[0], e, s + mp.mpf(6 + more) / 10, 700 + 100 * more))
            method = "residues"
            continue
        if len(steps) == 1 and counts == [2]:
            with mp.workdps(40 + 10 * more):
                values.append(two_steps(laws[0], e))
            method = "pairs"
            continue
        values.append(
            line(
                laws,
                counts,
                s * (1 - mp.mpf(more) / 20),
                e,
                1 + mp.mpf(more) / 6,
                40 + 6 * more,
                1 + mp.mpf(more) / 5,
            )
        )
        method = "line"
    agreed = -mp.log10(abs(values[0] / values[1] - 1) + mp.mpf(10) ** -60)
    return values[1], int(agreed), method


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "families.json")
    arguments = parser.parse_args()
    entries = json.loads(arguments.output.read_text())["entries"] if arguments.output.exists() else []
    known = {json.dumps([e["steps"], e["adjacency"], e["deviations"]]) for e in entries}
    for steps, adjacency, all_deviations in CASES:
        for deviations in all_deviations:
            if json.dumps([steps, adjacency, deviations]) in known:
                continue
            mp.dps = 30
            laws, counts = [law(one, adjacency) for one in steps], [one["count"] for one in steps]
            _, mean, variance = cumulants(laws, counts, mp.mpf(0))
            # The value should fall between an estimate's digits: 12 of them.
            epsilon = repr(float(mp.nstr(mean + deviations * mp.sqrt(variance), 12)))
            value, agreed, method = evaluate(steps, adjacency, epsilon)
            if agreed < 25:
                raise ArithmeticError(f"{steps} {adjacency} {epsilon}: agreement to {agreed} digits only")
            with mp.workdps(40):
                delta = mp.nstr(value, 26, strip_zeros=False, min_fixed=0, max_fixed=0)
            entries.append(
                {
                    "steps": steps,
                    "adjacency": adjacency,
                    "deviations": deviations,
                    "epsilon": epsilon,
                    "delta": delta,
                    "method": method,
                }
            )
            print(len(entries), method, adjacency, epsilon, delta, steps, flush=True)
            arguments.output.write_text(json.dumps({"entries": entries}, indent=1) + "\n")


if __name__ == "__main__":
    main()
