"""Pictures of profiles, grids and individual budgets (these show sensitive values); needs matplotlib (``pip install hockeystick[plot]``)."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy  # its parts are loaded when they are used
from numpy.typing import ArrayLike, NDArray

from .._base.bounds import exactly, round_up
from .._base.figures import draw_bounds, new_figure, save
from .._base.types import AnyPath, Numbers
from .._base.validation import ParameterError, instance, integer, integers, numbers_in
from ..accounting.gaussian_summary import DEFAULT_FLOOR
from ..accounting.grid import Grid
from ..accounting.profile import PrivacyProfile
from ..individual.summary import by_group

MAX_BINS = 10_000
"""*Speed*: more bars than a picture has columns."""


def plot_profile(profile: PrivacyProfile, path: AnyPath | None = None) -> Any:
    """Draw delta(epsilon), both bounds, beside the largest true positive rate of any attack; return the figure.

    Saves to ``path`` if given, in the format of its ending; raises before any work if that cannot be. Raises
    ImportError naming the extra if matplotlib is missing.
    """
    instance("profile", profile, PrivacyProfile)
    figure, (left, right) = new_figure(9.0, 4.2, path, 2)
    epsilon, lower, upper = profile.curve(49)
    draw_bounds(left, epsilon, lower, upper)
    left.set(yscale="log", xlabel="epsilon", ylabel="delta")
    # Attacks matter where false positives are rare.
    alpha = np.concatenate([np.geomspace(1e-6, 0.1, 51), np.linspace(0.1, 1.0, 46)[1:]])
    right.plot(alpha, 1.0 - profile.tradeoff(alpha), label="no attack is above")
    right.plot(alpha, alpha, ":", color="gray", label="guessing")
    right.set(xscale="log", yscale="log", xlabel="false positive rate", ylabel="true positive rate")
    for plot in (left, right):
        plot.grid(visible=True, alpha=0.3)
        plot.legend()
    figure.suptitle(_title(str(profile.description)) + f"\nadjacency: {profile.adjacency}", fontsize="medium")
    return save(figure, path)


def _title(text: str) -> str:
    """In lines that a picture has room for; the middle of a long one is left out."""
    if len(text) > 320:
        text = f"{text[:200]} ... {text[-110:]}"
    return textwrap.fill(text, 110, break_long_words=False)


def plot_grid(grid: Grid, path: AnyPath | None = None) -> Any:
    """Draw the certified upper bounds as a heat map with contour lines; return the figure.

    The grid must have two axes of more than one configuration, and an argument that varies along
    each of them and not along the other. Infinite values stay blank.
    """
    instance("grid", grid, Grid)
    figure, plot = new_figure(7.0, 5.0, path)
    axes = [axis for axis, length in enumerate(grid.shape) if length > 1]
    if len(axes) != 2:
        raise ParameterError(f"grid of shape {grid.shape}: a heat map needs two axes that vary")
    (y_name, y), (x_name, x) = (_along(grid, axis, other) for axis, other in (axes, axes[::-1]))
    _heat_map(plot, x, y, grid)
    for values, set_scale in ((x, plot.set_xscale), (y, plot.set_yscale)):
        if _geometric(values):
            set_scale("log")
    plot.set(xlabel=x_name.replace("_", " "), ylabel=y_name.replace("_", " "))
    fixed = [
        f"{name.replace('_', ' ')} = {values.flat[0]:g}"
        for name, values in grid.inputs.items()
        if (values == values.flat[0]).all()
    ]
    plot.set_title(_title(", ".join([*fixed, f"adjacency {grid.adjacency}"])), fontsize="medium")
    return save(figure, path)


_DECADES = 20  # *limit*: of a heat map; what is smaller than these beneath the largest value has one colour


def _heat_map(plot: Any, x: NDArray[Any], y: NDArray[Any], grid: Grid) -> None:
    """Draw the upper bounds and their contour lines, in logarithms where they span decades."""
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import MaxNLocator

    shown = np.ma.masked_invalid(grid.upper.squeeze())
    positive = shown[shown > 0.0].compressed()
    logarithmic = positive.size > 0 and positive.max() > 20.0 * positive.min()
    if logarithmic:
        shown = np.ma.masked_less_equal(shown, 0.0)
    low, high = (float(shown.min()), float(shown.max())) if shown.count() else (0.0, 0.0)
    cut = logarithmic and low < high * 10.0**-_DECADES
    if cut:
        low = high * 10.0**-_DECADES
    norm = LogNorm(low, high) if logarithmic else None
    mesh = plot.pcolormesh(x, y, shown, shading="nearest", cmap="viridis", norm=norm)
    plot.figure.colorbar(
        mesh, label=f"{grid.quantity}, certified upper bound", extend="min" if cut else "neither"
    )
    levels = _round_numbers(low, high) if logarithmic else MaxNLocator(8).tick_values(low, high)
    levels = [level for level in levels if low < level < high]
    if levels:
        # Every level would crowd a picture of many decades.
        levels = levels[:: len(levels) // 8 + 1]
        lines = plot.contour(x, y, shown, levels=levels, colors="white", linewidths=0.8)
        for text in plot.clabel(lines, fmt="%g", fontsize="small"):
            # Read on light and dark cells alike.
            text.set(
                color="black", bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0, "alpha": 0.8}
            )


def _round_numbers(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten over the range; of many decades the powers alone.

    >>> _round_numbers(0.3, 4.0)
    [0.1, 0.2, 0.5, 1.0, 2.0, 5.0]
    """
    decades = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    digits = (1, 2, 5) if len(decades) <= 4 else (1,)
    return [float(f"{digit}e{decade}") for decade in decades for digit in digits]


def plot_truncation(
    max_batch_sizes: Numbers,
    noise_multipliers: Mapping[str, Numbers],
    wasted: Numbers,
    title: str = "",
    path: AnyPath | None = None,
) -> Any:
    """Draw the noise that each analysis asks for against the maximum batch size; return the figure.

    ``noise_multipliers`` maps the name of an analysis to its noise at each of ``max_batch_sizes``
    (infinite values stay blank), ``wasted`` is the share of each batch that is padding. Saves to
    ``path`` if given.
    """
    sizes = integers("max_batch_sizes", max_batch_sizes, 1)
    if sizes.ndim != 1:
        raise ParameterError(f"max_batch_sizes: must have shape (n,), not {sizes.shape}")
    instance("noise_multipliers", noise_multipliers, Mapping, "a mapping of names to noise multipliers")  # type: ignore[type-abstract]
    curves = {
        name: _each(f"noise_multipliers[{name!r}]", values, sizes)
        for name, values in noise_multipliers.items()
    }
    share, markers = _each("wasted", wasted, sizes), itertools.cycle("os^Dv")
    figure, plot = new_figure(7.0, 5.0, path)
    for name, values in curves.items():
        shown = np.ma.masked_invalid(values)
        flat = shown.count() > 1 and float(np.ptp(shown.compressed())) == 0.0
        # Markers tell the curves apart in print.
        plot.plot(sizes, shown, ":" if flat else f"{next(markers)}-", markersize=4, label=name)
    plot.set(xlabel="maximum batch size", ylabel="noise multiplier")
    plot.grid(visible=True, alpha=0.3)
    waste = plot.twinx()
    waste.plot(sizes, share, color="gray", alpha=0.5)
    waste.set_ylabel("padding, share of the batch (gray)")
    figure.legend(loc="outside lower center", ncols=2)
    if instance("title", title, str):
        plot.set_title(title, fontsize="medium")
    return save(figure, path)


def _each(name: str, values: ArrayLike, sizes: NDArray[Any]) -> NDArray[np.float64]:
    """``values``, one for each of the ``sizes``."""
    array = numbers_in(name, values)
    if array.shape != sizes.shape:
        raise ParameterError(
            f"{name}: must have shape {sizes.shape}, one for each max_batch_sizes, not {array.shape}"
        )
    return array


def _along(grid: Grid, axis: int, other: int) -> tuple[str, NDArray[Any]]:
    """The first argument that varies along one axis alone, with its values there."""
    for name, values in grid.inputs.items():
        plane = np.moveaxis(values, (axis, other), (0, 1)).reshape(values.shape[axis], values.shape[other])
        if (plane == plane[:, :1]).all() and (plane[1:] != plane[:-1]).all():
            return name, plane[:, 0]
    raise ParameterError(f"axis {axis} of the grid: no argument varies along it, and along it alone")


def _geometric(values: NDArray[Any]) -> bool:
    """Whether values are spread more evenly by their logarithms than by themselves."""
    if len(values) < 3 or not (values > 0).all():
        return False

    def unevenness(points: NDArray[Any]) -> float:
        gaps = np.abs(np.diff(points))
        return float(gaps.std() / gaps.mean())

    return unevenness(np.log(values)) < unevenness(values.astype(float))


def plot_gdp(profile: PrivacyProfile, delta: float = DEFAULT_FLOOR, path: AnyPath | None = None) -> Any:
    """Draw the trade-off curve beside that of `PrivacyProfile.gdp` with the floor ``delta``; return the figure.

    The gap between the two is what the one number gives away. Saves to ``path`` if given.
    """
    instance("profile", profile, PrivacyProfile)
    figure, axes = new_figure(5.0, 4.5, path)
    found = profile.gdp(delta)
    alpha = np.linspace(0.0, 1.0, 101)
    axes.plot(alpha, profile.tradeoff(alpha), label="no attack is below")
    with np.errstate(invalid="ignore"):
        gaussian = scipy.special.ndtr(scipy.special.ndtri(1.0 - alpha) - found.mu)
    axes.plot(alpha, gaussian, "--", label=f"Gaussian, mu = {round_up(found.mu, 4)}")
    axes.plot(alpha, 1.0 - alpha, ":", color="gray", label="guessing")
    axes.set(xlabel="false positive rate", ylabel="false negative rate")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    regret = round_up(found.regret.upper, 2)
    axes.set_title(f"regret at most {regret}, up to {exactly(delta)} in delta", fontsize="medium")
    return save(figure, path)


def plot_individual(
    values: ArrayLike,
    groups: ArrayLike | None = None,
    path: AnyPath | None = None,
    *,
    label: str = "individual epsilon",
    bins: int = 40,
) -> Any:
    """Draw a histogram of individual values for each group; return the figure.

    ``groups``: a label for each example, as in `individual.summarise`. Infinite values are left out, and counted in
    the title. Saves to ``path`` if given. The picture is as sensitive as the data.
    """
    bins = integer("bins", bins, 1, MAX_BINS)
    parts = by_group(values, groups)
    array = np.concatenate([part for _, part in parts]) if parts else np.empty(0)
    finite = array[np.isfinite(array)]
    figure, axes = new_figure(6.0, 4.0, path)
    if finite.size:
        edges = np.histogram_bin_edges(finite, bins)
        for name, part in parts:
            if np.isfinite(part).any():
                axes.hist(part[np.isfinite(part)], edges, histtype="step", linewidth=1.5, label=name)
    if groups is not None:
        axes.legend(title="group")
    axes.set(xlabel=label, ylabel="examples")
    missing = array.size - finite.size
    axes.set_title("sensitive: not to be released" + (f"; {missing} infinite values" if missing else ""))
    return save(figure, path)


def plot_active(counts: ArrayLike, path: AnyPath | None = None) -> Any:
    """Draw the number of active examples over the steps (a filter's ``active_counts()``); return the figure."""
    array = numbers_in("counts", counts)
    if array.ndim != 1:
        raise ParameterError(f"counts: must be one-dimensional, not of shape {array.shape}")
    figure, axes = new_figure(6.0, 4.0, path)
    axes.plot(np.arange(1, array.size + 1), array)
    axes.set(xlabel="step", ylabel="active examples")
    axes.set_ylim(bottom=0)
    return save(figure, path)
