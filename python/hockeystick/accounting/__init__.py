"""From a description to certified answers: profile, grid, report, ledger, calibration."""

from .._base.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
