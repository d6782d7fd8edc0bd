"""Moments of random allocations in mpmath, as coefficients of a power series: an oracle that shares no code with the core."""

from __future__ import annotations

from mpmath import mp, mpf


def integer_moment(sigma: float, steps: int, order: int) -> mpf:
    """E V^order, V the mean of one epoch's ratios W: order!/T^order times a coefficient of (sum E[W^j] x^j/j!)^T."""
    with mp.workdps(60):
        size, mu2 = order + 1, 1 / mpf(sigma) ** 2
        base = [mp.exp(mpf(j * (j - 1)) / 2 * mu2) / mp.factorial(j) for j in range(size)]

        def times(a: list[mpf], b: list[mpf]) -> list[mpf]:
            return [mp.fsum(a[i] * b[n - i] for i in range(n + 1)) for n in range(size)]

        power, square, left = [mpf(1)] + [mpf(0)] * order, base, steps
        while left:
            if left % 2:
                power = times(power, square)
            square, left = times(square, square), left // 2
        return mp.factorial(order) * power[order] / mpf(steps) ** order
