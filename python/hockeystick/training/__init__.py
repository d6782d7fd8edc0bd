"""A plan fixes what is accounted, a run draws exactly that, a report states it."""

from .._base.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
