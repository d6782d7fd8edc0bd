"""Print the polynomials of cpp/src/numerics/lanes.hpp, and their largest relative errors before rounding.

Each function is smooth on a short interval; its Chebyshev interpolant there is within a few per cent of the
best polynomial of that degree.

Run: python tools/lane_coefficients.py   (needs mpmath)
"""

from collections.abc import Callable

import mpmath as mp

mp.mp.dps = 50


def interpolant(function: Callable[[mp.mpf], mp.mpf], low: mp.mpf, high: mp.mpf, degree: int) -> list[mp.mpf]:
    """Monomial coefficients of the polynomial through the Chebyshev nodes of [low, high]."""
    middle, half = (low + high) / 2, (high - low) / 2
    nodes = [middle + half * mp.cos(mp.pi * (j + mp.mpf(1) / 2) / (degree + 1)) for j in range(degree + 1)]
    table = [function(x) for x in nodes]
    for level in range(1, degree + 1):  # Newton's divided differences
        for j in range(degree, level - 1, -1):
            table[j] = (table[j] - table[j - 1]) / (nodes[j] - nodes[j - level])
    monomial = [mp.mpf(0)] * (degree + 1)
    for j in range(degree, -1, -1):
        shifted = [mp.mpf(0), *monomial[:-1]]
        monomial = [s - nodes[j] * m for s, m in zip(shifted, monomial, strict=True)]
        monomial[0] += table[j]
    return monomial


def report(name: str, function: Callable[[mp.mpf], mp.mpf], low: mp.mpf, high: mp.mpf, degree: int) -> None:
    coefficients = [float(c) for c in interpolant(function, low, high, degree)]
    worst = mp.mpf(0)
    for i in range(2001):
        x = low + (high - low) * i / 2000
        value = mp.polyval([mp.mpf(c) for c in reversed(coefficients)], x)
        worst = max(worst, abs(value / function(x) - 1))
    print(f"// {name}: relative error {mp.nstr(worst, 3)}")
    for c in coefficients:
        print(f"    {c.hex()},  // {c!r}")


def atanh_series(z: mp.mpf) -> mp.mpf:
    """(atanh(s) - s) / s^3 with z = s^2, so that ln((1+s)/(1-s)) = 2s + 2 s z atanh_series(z)."""
    if z < mp.mpf(10) ** -6:
        return mp.fsum(z**k / (2 * k + 3) for k in range(9))
    s = mp.sqrt(z)
    return (mp.atanh(s) - s) / s**3


def four_atanh(z: mp.mpf) -> mp.mpf:
    """4 atanh(s)/s with z = s^2, so that -2 ln f = s four_atanh(z) with s = (1-f)/(1+f)."""
    return 4 + 4 * z * atanh_series(z)


def sine_series(z: mp.mpf) -> mp.mpf:
    """sin(2 pi r) / r with z = r^2."""
    r = mp.sqrt(z)
    return mp.sin(2 * mp.pi * r) / r if z else 2 * mp.pi


def cosine_series(z: mp.mpf) -> mp.mpf:
    """cos(2 pi r) with z = r^2."""
    return mp.cos(2 * mp.pi * mp.sqrt(z))


if __name__ == "__main__":
    half_log2 = mp.log(2) / 2 + mp.mpf(2) ** -40
    report("exp(x), |x| <= ln(2)/2", mp.exp, -half_log2, half_log2, 11)
    edge = (mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)
    report("(atanh(s) - s)/s^3 in s^2", atanh_series, mp.mpf(0), edge**2 * (1 + mp.mpf(2) ** -40), 8)
    report("4 atanh(s)/s in s^2", four_atanh, mp.mpf(0), edge**2 * (1 + mp.mpf(2) ** -40), 9)
    half = mp.mpf(1) / 2 + mp.mpf(2) ** -40
    report("2^x, |x| <= 1/2", lambda x: mp.mpf(2) ** x, -half, half, 11)
    report("sin(2 pi r)/r in r^2, |r| <= 1/8", sine_series, mp.mpf(0), mp.mpf(1) / 64, 6)
    report("cos(2 pi r) in r^2, |r| <= 1/8", cosine_series, mp.mpf(0), mp.mpf(1) / 64, 7)
