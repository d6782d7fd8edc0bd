"""hockeystick inside the libraries people already train with.

One module to import per library, only on request, so that ``import hockeystick`` needs none of them:
`hockeystick.interop.dp_accounting`, `hockeystick.interop.opacus`, `hockeystick.interop.flower`,
`hockeystick.interop.jax_privacy`, `hockeystick.interop.torch`, `hockeystick.interop.tensorflow_privacy`. Conventions and traps: docs/interop/interop.md.
"""

from .._base.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
