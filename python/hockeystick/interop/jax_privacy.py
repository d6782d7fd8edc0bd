"""JAX Privacy: its ``DpAccountantConfig``, answered by hockeystick.

JAX Privacy describes mechanisms as dp_accounting events and asks dp_accounting accountants, so that
`hockeystick.interop.dp_accounting.HockeystickAccountant` goes wherever it takes an accountant (an
execution plan, 2.2's ``BandMFConfig.calibrate(accountant_fn=HockeystickAccountant)``, ``calibrate_dp_mechanism``). The training
accountants of 2.0 take a configuration instead: this one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # its parts are loaded when they are used

from .._base.lazy import needing
from .._base.types import Array
from .._base.validation import ParameterError, plain, real
from ..matrix.rounding import MOST_ROUNDING

with needing("hockeystick.interop.jax_privacy needs JAX Privacy 2.0 or later", extra="jax-privacy"):
    from jax_privacy import accounting as theirs

from .dp_accounting import HockeystickAccountant

_ROOM = 2.0**30  # *proof*: the norm of 2^40 numbers that are taken for 0 is 2^-10 of the least clipping norm
_Base: Any = getattr(theirs, "PldAccountantConfig", object)  # 2.2 has none


@dataclass(kw_only=True)
class HockeystickAccountantConfig(_Base):
    """Takes the place of JAX Privacy's ``PldAccountantConfig``; relation ADD_OR_REMOVE_ONE, as there.

    No guarantee for ``SamplingMethod.FIXED_BATCH_SIZE``, of which an accountant sees a Poisson sample that is no bound for it; compose
    ``fixed_dpsgd_event`` with REPLACE_ONE instead.

    ``accuracy`` is that of `hockeystick.interop.dp_accounting.HockeystickAccountant`; the inherited
    ``value_discretization_interval`` has no meaning here.
    """

    accuracy: float = 1e-6

    def __post_init__(self) -> None:
        self.accuracy = real("accuracy", self.accuracy, 1e-9, 1.0)

    def create_accountant(self) -> HockeystickAccountant:
        """A new accountant with nothing in it."""
        return HockeystickAccountant(accuracy=self.accuracy)


def check_config(config: Any) -> None:
    """Raise ParameterError where the plan of a ``BandMFExecutionPlanConfig`` adds less noise than its event says, whatever accounts for it.

    With ``column_normalize`` the noise is multiplied by the norm of ``strategy``, as without it, though the columns have norm 1 then; in 16
    bits noise ends at three of its standard deviations; and where the inverse of the strategy grows, rows of noise become so large that what is new
    in them is rounded away. Nor may ``l2_clip_norm`` be so small that squares of gradients of its size underflow, which lets a record move the
    sum by many times it. What no configuration shows is in docs/interop/interop.md, section 4.

    >>> from types import SimpleNamespace
    >>> check_config(SimpleNamespace(strategy=[0.1], column_normalize=True, dtype="float32", iterations=10))
    Traceback (most recent call last):
    ...
    hockeystick._base.validation.ParameterError: strategy: has norm 0.1, must have at least 1 with column_normalize=True; the noise is multiplied by it, while columns are made to have norm 1: multiply the strategy by a constant
    """
    with np.errstate(over="ignore"):  # an infinite one is refused below
        norm = float(np.linalg.norm(np.asarray(config.strategy, dtype=np.float64)))
    if config.column_normalize and not norm >= 1.0:
        raise ParameterError(
            f"strategy: has norm {norm:.6g}, must have at least 1 with column_normalize=True; the noise is multiplied by it, while columns are "
            "made to have norm 1: multiply the strategy by a constant"
        )
    from jax import dtypes

    # None is the type of the gradients; without jax_enable_x64 numbers of 64 bits are made with 32.
    kind = None if config.dtype is None else dtypes.canonicalize_dtype(config.dtype)
    if kind not in (np.float32, np.float64):
        raise ParameterError(
            f"dtype = {config.dtype!r}: must be float32 or float64; noise of 16 bits ends at about three standard deviations, and sums are rounded "
            "by more than the clipping norm; complex noise has half of the variance in each part"
        )
    clipping_norm = real("l2_clip_norm", plain(getattr(config, "l2_clip_norm", 1.0)), 0.0, allow_inf=True)
    least = _ROOM * math.sqrt(float(np.finfo(kind).tiny))
    if not clipping_norm >= least:
        raise ParameterError(
            f"l2_clip_norm = {clipping_norm!r}: must be at least {least:.2g} with {kind}; squares of numbers below {least / _ROOM:.2g} are rounded to 0, so that a "
            "gradient of many of these has a norm that is too small, and is not clipped: multiply the loss by a constant"
        )
    changed = _rounding(
        np.asarray(config.strategy, dtype=np.float64),
        config.iterations,
        2.0 ** (-24 if kind.itemsize < 8 else -53),
    )
    if not changed <= MOST_ROUNDING:
        raise ParameterError(
            f"strategy: rows of its inverse grow so much within {config.iterations} iterations that rounding to {kind} changes Z by up to "
            f"{changed:.3g} of its standard deviation, must be at most 2^-10; take fewer iterations, or float64 with jax_enable_x64"
        )


def _rounding(coefficients: Array, steps: int, unit: float) -> float:
    """A bound on E for rows w that are kept with this relative rounding: C w = Z + e, E the root mean square of an entry of e (`matrix.rounding`)."""
    if coefficients[0] == 0.0:
        return math.inf  # there is no inverse
    impulse = np.zeros(max(1, steps))
    impulse[0] = 1.0
    with np.errstate(all="ignore"):
        response = scipy.signal.lfilter([1.0], coefficients, impulse)
        # Each entry of a row is off by a unit of it, and C adds up those of its bands.
        each = unit * float(np.sum(np.abs(coefficients)))
        added, fed = each * float(np.linalg.norm(response)), each * float(np.sum(np.abs(response)))
    return added / (1.0 - fed) if fed < 1.0 else math.inf
