"""Descriptions of what is released: frozen and cheap, composed with * and +; and their dominating pairs."""

from .._base.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
