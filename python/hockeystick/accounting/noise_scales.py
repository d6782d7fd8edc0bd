"""From the noise that a program adds to the noise multiplier, and back."""

from __future__ import annotations

import sys
from fractions import Fraction

from .._base.validation import ParameterError, real

_LEAST, _MOST = Fraction(sys.float_info.min), Fraction(sys.float_info.max)


def noise_multiplier(standard_deviation: float, clipping_norm: float, divided_by: float = 1.0) -> float:
    """Noise multiplier: standard deviation of the noise on the *sum* of the records, divided by their clipping norm.

    ``divided_by`` is what the sum is divided by before the noise is added: 1 for noise on the sum (before batch
    scaling), the expected batch size for noise on the mean (after it). It must not depend on the batch that was drawn.
    The result is the double that is nearest to the exact one.

    >>> noise_multiplier(0.5, clipping_norm=0.1)  # on the sum
    5.0
    >>> noise_multiplier(0.001, clipping_norm=1.0, divided_by=256)  # on the mean
    0.256
    """
    sigma = real("standard_deviation", standard_deviation, 0.0)
    clip = real("clipping_norm", clipping_norm, 0.0, open_low=True)
    scale = real("divided_by", divided_by, 0.0, open_low=True)
    exact = Fraction(sigma) * Fraction(scale) / Fraction(clip)
    return _scaled(
        f"standard_deviation * divided_by / clipping_norm = {sigma!r} * {scale!r} / {clip!r}", exact
    )


def standard_deviation(noise_multiplier: float, clipping_norm: float, divided_by: float = 1.0) -> float:
    """Standard deviation of the noise to add: the inverse of `noise_multiplier`.

    >>> standard_deviation(0.256, clipping_norm=1.0, divided_by=256)
    0.001
    """
    sigma = real("noise_multiplier", noise_multiplier, 0.0)
    clip = real("clipping_norm", clipping_norm, 0.0, open_low=True)
    scale = real("divided_by", divided_by, 0.0, open_low=True)
    exact = Fraction(sigma) * Fraction(clip) / Fraction(scale)
    return _scaled(f"noise_multiplier * clipping_norm / divided_by = {sigma!r} * {clip!r} / {scale!r}", exact)


def _scaled(said: str, exact: Fraction) -> float:
    # No noise at all, or infinite noise, is not what was asked for.
    if exact and not _LEAST <= exact <= _MOST:
        raise ParameterError(f"{said}: must be 0 or in [{float(_LEAST)!r}, {float(_MOST)!r}]")
    return float(exact)
