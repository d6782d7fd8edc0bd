"""A figure of its own for each plot; needs matplotlib."""

from __future__ import annotations

import os
from typing import Any

from .files import check_target
from .lazy import needing
from .types import AnyPath
from .validation import ParameterError


def new_figure(width: float, height: float, path: AnyPath | None = None, panels: int = 1) -> tuple[Any, Any]:
    """A figure that notebooks display, which leaves the caller's pyplot state and backend alone, and the axes of its ``panels``, side by side.

    Raises what `check_path` raises for the ``path`` that it will be saved to.
    """
    check_path(path)
    figure = _imported()(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(1, panels)


def save(figure: Any, path: AnyPath | None) -> Any:
    """Write the figure to ``path``, if there is one; return it."""
    if path is not None:
        figure.savefig(path)
    return figure


def draw_bounds(axes: Any, x: Any, lower: Any, upper: Any) -> None:
    """Draw both bounds where they are above 0."""
    for values, style, label in ((upper, "-", "certified upper bound"), (lower, "--", "lower bound")):
        shown = values > 0.0
        axes.plot(x[shown], values[shown], style, label=label)


def check_path(path: AnyPath | None) -> None:
    """Raise, before anything is computed for it, if a picture cannot be written to ``path`` (None: it is not to be).

    ParameterError for an unknown format, FileNotFoundError for a folder that is not there, ImportError naming the extra
    if matplotlib is missing.
    """
    if path is None:
        return
    formats = _imported()().canvas.get_supported_filetypes()
    name = os.fspath(path)
    ending = os.path.splitext(name)[1].removeprefix(".").lower()
    if ending and ending not in formats:
        raise ParameterError(f"{name}: the ending must be one of {', '.join(sorted(formats))}")
    check_target("path", path)


def _imported() -> Any:
    """The class of figures; what is missing is said with the extra that brings it."""
    with needing("plots need matplotlib", extra="plot"):
        import matplotlib.figure  # noqa: F401

        from .notebook_figure import NotebookFigure
    return NotebookFigure
