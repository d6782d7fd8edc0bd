"""The trade-off curve beside the one Gaussian below it; needs matplotlib."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy  # its parts are loaded when they are used

from .._base.figures import new_figure, save
from .._base.types import AnyPath
from ..accounting.gaussian_summary import DEFAULT_FLOOR
from ..accounting.profile import PrivacyProfile


def plot_gdp(profile: PrivacyProfile, delta: float = DEFAULT_FLOOR, path: AnyPath | None = None) -> Any:
    """Draw the trade-off curve beside that of `PrivacyProfile.gdp` with the floor ``delta``; return the figure.

    The gap between the two is what the one number gives away. Saves to ``path`` if given.
    """
    figure = new_figure(5.0, 4.5, path)
    found = profile.gdp(delta)
    axes = figure.subplots()
    alpha = np.linspace(0.0, 1.0, 101)
    axes.plot(alpha, profile.tradeoff(alpha), label="no attack is below")
    with np.errstate(invalid="ignore"):
        gaussian = scipy.special.ndtr(scipy.special.ndtri(1.0 - alpha) - found.mu)
    axes.plot(alpha, gaussian, "--", label=f"Gaussian, mu = {found.mu:.4g}")
    axes.plot(alpha, 1.0 - alpha, ":", color="gray", label="guessing")
    axes.set(xlabel="false positive rate", ylabel="false negative rate")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    axes.set_title(f"regret at most {found.regret.upper:.2g}, up to {delta:g} in delta", fontsize="medium")
    return save(figure, path)
