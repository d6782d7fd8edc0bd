"""hockeystick inside the libraries people already train with.

One module per library, imported only on request, so that ``import hockeystick`` needs none of them:
`hockeystick.interop.dp_accounting`, `hockeystick.interop.opacus`, `hockeystick.interop.flower`,
`hockeystick.interop.jax_privacy`, `hockeystick.interop.torch`, `hockeystick.interop.tensorflow_privacy`. Conventions and traps: docs/interop/interop.md.
"""

from __future__ import annotations

import importlib
from types import ModuleType

_MODULES = ("dp_accounting", "flower", "jax_privacy", "opacus", "tensorflow_privacy", "torch")


def __getattr__(name: str) -> ModuleType:
    """The module for a library, imported when it is asked for."""
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}: it has {', '.join(_MODULES)}")
