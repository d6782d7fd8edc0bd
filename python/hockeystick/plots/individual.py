"""Pictures of individual privacy; needs matplotlib. They show sensitive values: see hockeystick.individual.accountant."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._base.figures import new_figure, save
from .._base.types import AnyPath
from .._base.validation import ParameterError


def plot_individual(
    values: ArrayLike,
    groups: ArrayLike | None = None,
    path: AnyPath | None = None,
    *,
    label: str = "individual epsilon",
    bins: int = 40,
) -> Any:
    """Draw a histogram of individual values for each group; return the figure.

    ``groups``: a label for each example. Infinite values are left out, and counted in the title. Saves to
    ``path`` if given. The picture is as sensitive as the data.
    """
    array = np.asarray(values, np.float64)
    labels = np.full(array.shape, "") if groups is None else np.asarray(groups)
    if array.ndim != 1 or labels.shape != array.shape:
        raise ParameterError(f"groups: must have the shape of values, {array.shape}, not {labels.shape}")
    figure = new_figure(6.0, 4.0, path)
    axes = figure.subplots()
    finite = np.isfinite(array)
    if finite.any():
        edges = np.histogram_bin_edges(array[finite], bins)
        for name in np.unique(labels[finite]).tolist():
            chosen = array[finite & (labels == name)]
            axes.hist(chosen, edges, histtype="step", linewidth=1.5, label=str(name) or None)
    if groups is not None:
        axes.legend(title="group")
    axes.set(xlabel=label, ylabel="examples")
    missing = int(array.size - finite.sum())
    axes.set_title("sensitive: not to be released" + (f"; {missing} infinite values" if missing else ""))
    return save(figure, path)


def plot_active(counts: ArrayLike, path: AnyPath | None = None) -> Any:
    """Draw the number of active examples over the steps (a filter's ``active_counts()``); return the figure."""
    array = np.asarray(counts)
    if array.ndim != 1:
        raise ParameterError(f"counts: must be one-dimensional, not of shape {array.shape}")
    figure = new_figure(6.0, 4.0, path)
    axes = figure.subplots()
    axes.plot(np.arange(1, array.size + 1), array)
    axes.set(xlabel="step", ylabel="active examples")
    axes.set_ylim(bottom=0)
    return save(figure, path)
