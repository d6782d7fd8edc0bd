"""A figure of its own for each plot; needs matplotlib."""

from __future__ import annotations

from typing import Any


def new_figure(width: float, height: float) -> Any:
    """A bare Figure, which leaves the caller's pyplot state and backend alone."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plots need matplotlib: install it with `pip install hockeystick[plot]`") from error
    return Figure(figsize=(width, height), layout="constrained")
