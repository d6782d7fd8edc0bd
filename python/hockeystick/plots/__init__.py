"""Pictures of profiles, grids and individual budgets; they need matplotlib."""

from .._base.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
