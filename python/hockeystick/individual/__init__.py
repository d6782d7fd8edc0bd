"""Filters, odometers and accountants for each example, in memory or on disk."""

from .._base.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
