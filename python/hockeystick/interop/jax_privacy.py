"""JAX Privacy: its ``DpAccountantConfig``, answered by hockeystick.

JAX Privacy describes mechanisms as dp_accounting events and asks dp_accounting accountants, so that
`hockeystick.interop.dp_accounting.HockeystickAccountant` goes wherever it takes an accountant (an
execution plan, 2.2's ``BandMFConfig.calibrate(accountant_fn=HockeystickAccountant)``, ``calibrate_dp_mechanism``). The training
accountants of 2.0 take a configuration instead: this one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._base.lazy import needing
from .._base.validation import ParameterError, real

with needing("hockeystick.interop.jax_privacy needs JAX Privacy 2.0 or later", extra="jax-privacy"):
    from jax_privacy import accounting as theirs

from .dp_accounting import HockeystickAccountant

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
    bits noise ends at three of its standard deviations. What no configuration shows is in docs/interop/interop.md, section 4.

    >>> from types import SimpleNamespace
    >>> check_config(SimpleNamespace(strategy=[0.1], column_normalize=True, dtype="float32"))
    Traceback (most recent call last):
    ...
    hockeystick._base.validation.ParameterError: strategy: has norm 0.1, must have at least 1 with column_normalize=True; the noise is multiplied by it, while columns are made to have norm 1: multiply the strategy by a constant
    """
    norm = float(np.linalg.norm(np.asarray(config.strategy, dtype=np.float64)))
    if config.column_normalize and not norm >= 1.0:
        raise ParameterError(
            f"strategy: has norm {norm:.6g}, must have at least 1 with column_normalize=True; the noise is multiplied by it, while columns are "
            "made to have norm 1: multiply the strategy by a constant"
        )
    kind = np.dtype(config.dtype)
    if kind.itemsize < 4:
        raise ParameterError(
            f"dtype = {kind}: must be float32 or float64; noise of 16 bits ends at about three standard deviations, and sums are rounded by more "
            "than the clipping norm"
        )
