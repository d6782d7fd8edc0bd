"""Estimates with confidence, importance sampling, and estimate–verify–release."""

from .._base.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
