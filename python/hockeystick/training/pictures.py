"""Pictures of a training plan; needs matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._base.figures import draw_bounds, new_figure, save
from .._base.types import AnyPath
from ..accounting.profile import account
from ..matrix.strategies import Identity

if TYPE_CHECKING:
    from .plan import TrainingPlan


def plot_prefix_noise(plan: TrainingPlan, path: AnyPath | None = None) -> Any:
    """Draw the noise in each prefix sum of the gradients, in clipping norms; return the figure.

    Beside it, independent noise with the same noise multiplier and strategy's largest diagonal entry: what correlation cancels.
    Saves to ``path`` if given.
    """
    figure, axes = new_figure(6.5, 3.6, path)
    steps = np.arange(1, plan.steps + 1)
    shown = np.unique(np.geomspace(1, plan.steps, 400).astype(int)) - 1
    errors = np.sqrt(plan.strategy.per_step_error(plan.noise_multiplier))
    axes.plot(
        steps[shown], errors[shown], label=f"{type(plan.strategy).__name__}, {plan.strategy.bands} band(s)"
    )
    if plan.strategy != Identity(plan.steps):
        alone = errors[0] * np.sqrt(steps[shown])
        axes.plot(steps[shown], alone, ":", color="gray", label="the same noise, not correlated")
    axes.set(xlabel="step", ylabel="standard deviation / clipping norm")
    axes.set_ylim(bottom=0.0)
    axes.legend()
    return save(figure, path)


def plot_proof(plan: TrainingPlan, path: AnyPath | None = None) -> Any:
    """Draw what the guarantee rests on; return the figure.

    A certified plan: the bounds on delta(epsilon), and the guarantee as a point. A verified one: the verifier's mean for each
    candidate, and the threshold; with weighted samples, whose means are of delta, the delta that is tested. Saves to ``path`` if given.
    """
    figure, axes = new_figure(6.5, 3.6, path)
    if plan.guarantee.kind == "certified":
        profile = account(plan.released(), plan.adjacency)
        epsilons = np.linspace(0.0, 2.0 * plan.epsilon if plan.epsilon else 1.0, 13)
        draw_bounds(axes, epsilons, *np.transpose([profile.delta_bounds(float(at)) for at in epsilons]))
        axes.plot([plan.epsilon], [plan.delta], "o", color="black", label="the guarantee")
        axes.set(yscale="log", xlabel="epsilon", ylabel="delta")
    else:
        evidence = plan.guarantee.evidence
        for accepted, marker in ((True, "o"), (False, "x")):
            points = [
                (entry["noise_multiplier"], max(mean for _, mean, _ in entry["means"]))
                for entry in evidence["verifications"]
                if entry["accepted"] is accepted
            ]
            if points:
                axes.plot(*zip(*points, strict=True), marker, label="accepted" if accepted else "rejected")
        level = "threshold" if "threshold" in evidence["plan"] else "tested_delta"
        axes.axhline(evidence["plan"][level], color="gray", linestyle="--", label=level.replace("_", " "))
        axes.axvline(plan.noise_multiplier, color="black", linestyle=":", label="released")
        axes.set_ylim(bottom=0.0)
        axes.set(
            xlabel="noise multiplier", ylabel=f"mean of the verifier's samples at epsilon = {plan.epsilon:g}"
        )
    axes.legend()
    return save(figure, path)
