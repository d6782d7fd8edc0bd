"""Print the polynomial that cpp/src/numerics/special.cpp uses for erfcx, and its worst error.

(1 + 2x) erfcx(x) is smooth on [0, inf] as a function of t = (x - k)/(x + k)
(Shepherd & Laframboise, Math. Comp. 36, 1981). With k = 3 a polynomial of degree 26 in t
is exact to 1e-18, and its monomial coefficients stay below 1.3, so Horner's rule is stable.

Run: python tools/erfcx_coefficients.py   (needs mpmath)
"""

import mpmath as mp

CENTRE, DEGREE = 3, 26
mp.mp.dps = 50


def erfcx(x: mp.mpf) -> mp.mpf:
    """exp(x^2) erfc(x), by its asymptotic series where erfc itself would underflow."""
    if x < 100:
        return mp.exp(x * x) * mp.erfc(x)
    terms = (mp.fac2(2 * n - 1) * (-1) ** n / (2 * x * x) ** n for n in range(1, 10))
    return (1 + mp.fsum(terms)) / (x * mp.sqrt(mp.pi))


def scaled(t: mp.mpf) -> mp.mpf:
    if t >= 1:
        return 2 / mp.sqrt(mp.pi)
    x = CENTRE * (1 + t) / (1 - t)
    return (1 + 2 * x) * erfcx(x)


def coefficients() -> list[mp.mpf]:
    """Monomial coefficients of the Chebyshev interpolant of `scaled`."""
    count = DEGREE + 21
    angles = [mp.pi * (j + mp.mpf(1) / 2) / count for j in range(count)]
    values = [scaled(mp.cos(angle)) for angle in angles]
    chebyshev = [
        2 * mp.fsum(v * mp.cos(m * a) for v, a in zip(values, angles, strict=True)) / count
        for m in range(DEGREE + 1)
    ]
    chebyshev[0] /= 2
    basis = [[mp.mpf(1)], [mp.mpf(0), mp.mpf(1)]]
    while len(basis) <= DEGREE:
        following = [mp.mpf(0)] + [2 * v for v in basis[-1]]
        for i, v in enumerate(basis[-2]):
            following[i] -= v
        basis.append(following)
    monomial = [mp.mpf(0)] * (DEGREE + 1)
    for weight, polynomial in zip(chebyshev, basis, strict=True):
        for i, v in enumerate(polynomial):
            monomial[i] += weight * v
    return monomial


def worst_error(rounded: list[float]) -> float:
    """Largest relative error of the double-precision evaluation, in units of 2^-53."""
    worst = mp.mpf(0)
    for i in range(4000):
        x = 10.0 ** (-6 + 14 * i / 4000)
        t, value = (x - CENTRE) / (x + CENTRE), 0.0
        for c in reversed(rounded):
            value = value * t + c
        reference = erfcx(mp.mpf(x))
        worst = max(worst, abs(mp.mpf(value / (1 + 2 * x)) / reference - 1))
    return float(worst * 2**53)


if __name__ == "__main__":
    rounded = [float(c) for c in coefficients()]
    print(",\n".join(f"    {c:.17e}" for c in rounded))
    print(f"// worst relative error: {worst_error(rounded):.2f} units of 2^-53")
