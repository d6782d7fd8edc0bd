"""Certified binomial tails against 60-digit sums."""

import random

import mpmath
import pytest
from hockeystick._base import binomial


def exact(n: int, p: float, k: int) -> tuple[mpmath.mpf, mpmath.mpf, mpmath.mpf]:
    """Pr[X >= k], Pr[X < k], Pr[X > k] / Pr[X >= k], the smaller one of the first two summed directly."""
    q = mpmath.mpf(p)

    def log_mass(j: int) -> mpmath.mpf:
        choose = mpmath.loggamma(n + 1) - mpmath.loggamma(j + 1) - mpmath.loggamma(n - j + 1)
        return choose + j * mpmath.log(q) + (n - j) * mpmath.log1p(-q)

    upwards = k > n * q
    j = k if upwards else k - 1
    term = total = first = mpmath.exp(log_mass(j))
    while 0 < j < n or (upwards and j < n):
        term *= (n - j) * q / ((j + 1) * (1 - q)) if upwards else j * (1 - q) / ((n - j + 1) * q)
        total += term
        j += 1 if upwards else -1
        if term < total * mpmath.mpf(10) ** -40:
            break
    if upwards:
        return total, 1 - total, 1 - first / total
    return 1 - total, total, 1 - mpmath.exp(log_mass(k)) / (1 - total)


def cases() -> list[tuple[int, float, int]]:
    draw = random.Random(7)
    found = [
        (99_999, 0.01, 1100),
        (99_999, 0.01, 2600),  # 1e-290 and less
        (10**12, 1e-9, 1000),
        (10**12, 1e-9, 2500),
        (10**12 - 1, 1e-6, 10**6 + 30_000),
        (10**12 - 1, 1e-6, 10**6 - 30_000),
        (7, 1e-300, 1),
        (3, 1.0 - 1e-9, 3),
        (2, 0.5, 2),
    ]
    while len(found) < 150:
        n, p = int(10 ** draw.uniform(0, 6)), 10 ** draw.uniform(-8, -0.001)
        p = p if draw.random() < 0.7 else 1.0 - p
        deviation = (n * p * (1 - p)) ** 0.5
        k = round(n * p + draw.uniform(-8, 36) * deviation + draw.uniform(0, 3))
        if 1 <= k <= n:
            found.append((n, p, k))
    return found


def test_bounds_hold_and_are_close() -> None:
    with mpmath.workdps(60):
        for n, p, k in cases():
            tail = binomial.tail(n, p, k)
            above, below, survival = exact(n, p, k)
            assert tail.low <= above <= tail.high, (n, p, k)
            assert tail.below_low <= below <= tail.below_high, (n, p, k)
            assert survival <= tail.survival, (n, p, k)
            if above > 1e-307:
                assert tail.high <= above * (1 + 1e-9), (n, p, k)
            if below > 1e-307:
                assert tail.below_high <= below * (1 + 1e-9), (n, p, k)
            if survival > 1e-300:
                assert tail.survival <= survival * (1 + 1e-9), (n, p, k)


def test_the_tail_of_1e12_trials_in_the_middle() -> None:
    """Where the sums are longest; the second case takes the closed bounds instead."""
    for n, k, wide in ((10**12, 5 * 10**11 + 10**6, 1e-6), (2**53 - 1, 2**52 + 10**8, 1e-3)):
        tail = binomial.tail(n, 0.5, k)
        deviation = mpmath.sqrt(n) / 2
        # The normal approximation with continuity correction; its error is far below 1e-6 here.
        normal = mpmath.ncdf(-(k - mpmath.mpf("0.5") - mpmath.mpf(n) / 2) / deviation)
        assert tail.low <= normal * (1 + 1e-9)
        assert normal * (1 - 1e-9) <= tail.high <= normal * (1 + wide)
        assert tail.below_low <= 1 - normal * (1 - 1e-9)


def test_closed_bounds_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zubkov and Serov's inequality, where the sums would do as well."""
    monkeypatch.setattr(binomial, "_MOST_TERMS", 0)
    with mpmath.workdps(60):
        for n, p, k in cases()[::3]:
            tail = binomial.tail.__wrapped__(n, p, k)
            above, below, survival = exact(n, p, k)
            assert tail.low <= above <= tail.high
            assert tail.below_low <= below <= tail.below_high
            assert survival <= tail.survival


@pytest.mark.parametrize(
    ("n", "p", "k", "above"),
    [
        (5, 0.3, 0, 1.0),
        (5, 0.3, 6, 0.0),
        (5, 0.0, 1, 0.0),
        (5, 1.0, 5, 1.0),
        (0, 0.5, 1, 0.0),
        (5, 1.0, 6, 0.0),
    ],
)
def test_limits_are_exact(n: int, p: float, k: int, above: float) -> None:
    tail = binomial.tail(n, p, k)
    assert (tail.low, tail.high) == (above, above)
    assert (tail.below_low, tail.below_high) == (1.0 - above, 1.0 - above)
