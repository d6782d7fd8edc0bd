"""Pictures of a profile; needs matplotlib (``pip install hockeystick[plot]``)."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from .pld import PrivacyProfile


def plot_profile(profile: PrivacyProfile, path: str | os.PathLike[str] | None = None) -> Any:
    """Draw delta(epsilon), both bounds, beside the trade-off curve; return the figure.

    Saves to ``path`` if given, in the format of its ending. Raises ImportError naming the extra
    if matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plots need matplotlib: install it with `pip install hockeystick[plot]`") from error
    # A bare Figure leaves the caller's pyplot state and backend alone.
    figure = Figure(figsize=(9.0, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    epsilon, lower, upper = profile.curve(49)
    shown = upper > 0.0
    left.plot(epsilon[shown], upper[shown], label="certified upper bound")
    drawn = lower > 0.0
    left.plot(epsilon[drawn], lower[drawn], linestyle="--", label="lower bound")
    left.set_yscale("log")
    left.set_xlabel("epsilon")
    left.set_ylabel("delta")
    left.legend()
    alpha = np.linspace(0.0, 1.0, 51)
    right.plot(alpha, profile.tradeoff(alpha), label="no attack is below")
    right.plot(alpha, 1.0 - alpha, linestyle=":", color="gray", label="guessing")
    right.set_xlabel("false positive rate")
    right.set_ylabel("false negative rate")
    right.legend()
    figure.suptitle(f'adjacency "{profile.adjacency}"')
    if path is not None:
        figure.savefig(path)
    return figure
