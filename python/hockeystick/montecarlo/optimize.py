"""Strategies optimised under a sampling scheme: for the noise that the scheme needs, not for the sensitivity (docs/montecarlo/strategies.md).

Nothing of a guarantee rests on what is found: `calibrate_bandmf` proves the noise multiplier of any strategy.
"""

from __future__ import annotations

import math

import numpy as np

from .. import _core
from .._base.types import Array
from .._base.validation import ParameterError, instance, integer, real
from ..accounting.calibration import calibrate_noise_multiplier
from ..matrix.bandmf import BandMF
from ..matrix.scheme import Scheme
from ..matrix.schemes import CyclicPoisson
from ..matrix.strategies import BandedToeplitz
from ..matrix.workload import PREFIX_SUMS, Workload
from .tilted import log_moment

_MOST_PRODUCTS = 2**22
"""*Speed*: most steps * bands: a moment takes some 80 ms, a search some hundred of them."""
_KNOTS, _ITERATIONS, _STEP = 8, 60, 1e-5
"""*Speed*: the logarithms of the coefficients change by piecewise linear functions of ln(1 + lag) with so many knots, in at most so
many iterations, whose slopes are differences over such a step."""
_MOVE, _FLAT = 0.3, 1e-9
"""*Speed*: largest step of Newton's iteration for ln sigma, and where it ends."""


def optimize_strategy(
    scheme: Scheme, epsilon: float, delta: float, bands: int | None = None, workload: Workload = PREFIX_SUMS
) -> BandedToeplitz:
    """Coefficients that make noise_multiplier^2 * mean_squared_error small, the noise being what ``scheme`` needs for (epsilon, delta).

    ``bands`` None: as many as the scheme allows. The noise multiplier is not calibrated for each candidate: it is taken to be the one at
    which the Renyi divergence of order 2, which is exact and takes milliseconds, has the value that it has where cyclic Poisson sampling at the
    same rate just keeps (epsilon, delta). Found by L-BFGS from `BandedToeplitz.optimized`; the columns have unit norm. No guarantee and no random
    number is involved: `calibrate_bandmf` proves what the strategy costs. ParameterError for schemes without such a table (users with several examples,
    truncated batches: optimise for the scheme without, which is nearly the same), and for steps * bands > 2^22.

    >>> from hockeystick import BMinSep, BandedToeplitz
    >>> found = optimize_strategy(BMinSep(64, 8, 0.05), epsilon=4.0, delta=1e-5)
    >>> found.coefficients[1] / found.coefficients[0] < BandedToeplitz.optimized(64, 8).coefficients[1]
    True
    """
    epsilon = real("epsilon", epsilon, 0.0)
    delta = real("delta", delta, 0.0, 1.0, open_low=True, open_high=True)
    instance("scheme", scheme, Scheme)
    most = min(scheme.steps, scheme.largest_bands())
    bands = most if bands is None else integer("bands", bands, 1, most)
    if scheme.steps * bands > _MOST_PRODUCTS:
        raise ParameterError(
            f"bands = {bands}: must be at most {_MOST_PRODUCTS // scheme.steps} for {scheme.steps} steps"
        )
    start = BandedToeplitz.optimized(scheme.steps, bands, workload=workload)
    reference = _reference(start, scheme)
    sigma = calibrate_noise_multiplier(
        lambda s: BandMF(start, reference, s).as_process(), epsilon, delta, adjacency="zero_out"
    )
    level = log_moment(BandMF(start, reference, sigma), 2)
    if bands == 1 or not 0.0 < level < math.inf:
        return start  # there is nothing to choose, or next to no noise is enough
    return _searched(start, scheme, workload, level, float(sigma))


def _reference(start: BandedToeplitz, scheme: Scheme) -> Scheme:
    """A scheme that `account` answers, with as many participations as ``scheme``."""
    if not scheme.truncates and _core.has_moment_law(BandMF(start, scheme, 1.0)._described(), 2):
        if scheme.has_composition(start):
            return scheme
        rate = scheme.cyclic_rate()
        if rate is not None and start.bands * rate <= 1.0:
            return CyclicPoisson(scheme.steps, start.bands, start.bands * rate)
    raise ParameterError(
        f"scheme = {scheme!r}: has no table of its Renyi divergence, or no cyclic Poisson sampling at its rate; "
        "optimise for one without truncation and of single examples, with at most as many bands as it has steps between participations"
    )


def _searched(
    start: BandedToeplitz, scheme: Scheme, workload: Workload, level: float, sigma: float
) -> BandedToeplitz:
    """L-BFGS over what is added to the logarithms of the coefficients at the knots."""
    from scipy.optimize import minimize

    place = np.log1p(np.arange(start.bands, dtype=np.float64))
    knots = np.linspace(0.0, place[-1], min(_KNOTS, start.bands))

    def strategy(change: Array) -> BandedToeplitz:
        added = np.interp(place, knots, np.concatenate([[0.0], change]))
        values = [c * math.exp(x) for c, x in zip(start.coefficients, added, strict=True)]
        norm = math.sqrt(math.fsum(c * c for c in values))
        return BandedToeplitz(tuple(float(f"{c / norm:.12g}") for c in values), start.steps)

    def height(here: BandedToeplitz, log_sigma: float) -> float:
        """ln of the divergence over its level."""
        return math.log(log_moment(BandMF(here, scheme, math.exp(log_sigma)), 2) / level)

    def loss(change: Array) -> tuple[float, Array]:
        """ln(sigma^2 * error) and its slopes, sigma being where the height is 0."""
        here, slope, log_sigma = strategy(change), -2.0, math.log(sigma)
        for _ in range(30):
            high = height(here, log_sigma)
            slope = (height(here, log_sigma + _STEP) - high) / _STEP
            move = -high / min(slope, -0.1)
            log_sigma += max(-_MOVE, min(_MOVE, move))
            if abs(move) < _FLAT:
                break
        error = math.log(here.mean_squared_error(1.0, workload))
        slopes = np.empty(len(change))
        for i in range(len(change)):
            moved = np.array(change)
            moved[i] += _STEP
            there = strategy(moved)
            # The height stays 0 if ln sigma follows.
            follow = -height(there, log_sigma) / slope
            rise = math.log(there.mean_squared_error(1.0, workload)) - error
            slopes[i] = (rise + 2.0 * follow) / _STEP
        return error + 2.0 * log_sigma, slopes

    options = {"maxiter": _ITERATIONS}
    found = minimize(loss, np.zeros(len(knots) - 1), jac=True, method="L-BFGS-B", options=options)
    # Rounded, so that the round-off of the search does not reach the result.
    return strategy(np.round(found.x, 4))
