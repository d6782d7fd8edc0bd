"""Matrix mechanisms: strategy matrices, participation schemes, correlated noise, BandMF."""

from .._base.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
