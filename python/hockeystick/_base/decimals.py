"""Decimal arithmetic of so many digits, whatever the host has set: for its thread, or for all by ``decimal.DefaultContext``."""

from __future__ import annotations

import decimal
from contextlib import AbstractContextManager


def in_digits(count: int) -> AbstractContextManager[decimal.Context]:
    """For a ``with``: ``count`` digits, rounded to nearest, for all exponents that occur here; only what has no value raises."""
    return decimal.localcontext(
        decimal.Context(
            prec=count,
            rounding=decimal.ROUND_HALF_EVEN,
            Emin=-(10**12),
            Emax=10**12,
            capitals=1,
            clamp=0,
            flags=[],
            traps=[decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow],
        )
    )
