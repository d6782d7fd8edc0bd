"""JAX Privacy: its ``DpAccountantConfig``, answered by hockeystick.

JAX Privacy describes mechanisms as dp_accounting events and asks dp_accounting accountants, so that
`hockeystick.interop.dp_accounting.HockeystickAccountant` goes wherever it takes an accountant (an
execution plan, ``calibrate_dp_mechanism``). Its training accountants take a configuration instead: this one.
"""

from __future__ import annotations

from dataclasses import dataclass

from .._base.validation import real

try:
    from jax_privacy.accounting import PldAccountantConfig
except ImportError as error:
    raise ImportError(
        "hockeystick.interop.jax_privacy needs JAX Privacy 2.0 or later: pip install 'hockeystick[jax-privacy]'"
    ) from error

from .dp_accounting import HockeystickAccountant


@dataclass(kw_only=True)
class HockeystickAccountantConfig(PldAccountantConfig):
    """Takes the place of JAX Privacy's ``PldAccountantConfig``; relation ADD_OR_REMOVE_ONE, as there.

    ``accuracy`` is that of `hockeystick.interop.dp_accounting.HockeystickAccountant`; the inherited
    ``value_discretization_interval`` has no meaning here.
    """

    accuracy: float = 1e-6

    def __post_init__(self) -> None:
        self.accuracy = real("accuracy", self.accuracy, 1e-9, 1.0)

    def create_accountant(self) -> HockeystickAccountant:
        """A new accountant with nothing in it."""
        return HockeystickAccountant(accuracy=self.accuracy)
