"""Warnings about names that have moved, which point at the caller's line."""

from __future__ import annotations

import os
import sys
import warnings

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def warn_deprecated(message: str) -> None:
    """Warn, as of the first line of the call stack that is not the package's own."""
    # Level 1 is this function; locks and the arithmetic guard lie between the caller and the user.
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, DeprecationWarning, stacklevel=level)
