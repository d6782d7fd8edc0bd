"""Individual privacy filters in training: who gains, who loses? Digits of scikit-learn, softmax regression, NumPy.

    pip install 'hockeystick[examples]'
    python examples/individual_filtering.py --out pictures

Part 1, DP-GD with the individual GDP filter (Koskela, Tobaben, Honkela 2022, Algorithm 1 and Section 6): the
worst-case analysis would end training after `--steps` steps. With the filter it goes on for as many steps
again, and whoever has spent the budget is left out. Per class: mean individual epsilon (of what was spent, as if the norms
had been fixed in advance; the guarantee is the budget), loss and accuracy when
filtering starts, and their change by the end, averaged over runs that differ in the noise alone.

Part 2, DP-SGD with Poisson batches: individual epsilons by the loss distribution (again for norms fixed in advance), and the individual RDP filter,
which is proven for adaptive steps and knows what sampling is worth.

The individual numbers printed here are sensitive: on real data they must not be released as they are.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import hockeystick as hs
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

CLASSES = 10
DELTA = 1e-5
FIXED = "individual epsilon if norms had been fixed in advance"


@dataclass
class Data:
    x: np.ndarray  # (examples, features + 1): the last column is 1
    y: np.ndarray

    @property
    def size(self) -> int:
        return len(self.y)


def digits() -> tuple[Data, Data]:
    x, y = load_digits(return_X_y=True)
    x = np.hstack([x / 16.0, np.ones((len(x), 1))])
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.25, random_state=0, stratify=y)
    return Data(x_train, y_train), Data(x_test, y_test)


def probabilities(weights: np.ndarray, data: Data) -> np.ndarray:
    scores = data.x @ weights
    scores -= scores.max(axis=1, keepdims=True)
    p = np.exp(scores)
    return p / p.sum(axis=1, keepdims=True)


def residuals_and_norms(weights: np.ndarray, data: Data) -> tuple[np.ndarray, np.ndarray]:
    """An example's gradient is the outer product of x and p - onehot(y): its norm is a product of norms."""
    residual = probabilities(weights, data)
    residual[np.arange(data.size), data.y] -= 1.0
    return residual, np.linalg.norm(data.x, axis=1) * np.linalg.norm(residual, axis=1)


def losses_and_accuracies(weights: np.ndarray, data: Data) -> np.ndarray:
    """Rows: mean loss and accuracy; columns: the classes."""
    p = probabilities(weights, data)
    loss, right = -np.log(p[np.arange(data.size), data.y]), p.argmax(axis=1) == data.y
    return np.array([[v[data.y == c].mean() for c in range(CLASSES)] for v in (loss, right)])


def noisy_step(
    weights: np.ndarray,
    data: Data,
    residual: np.ndarray,
    scale: np.ndarray,
    deviation: float,
    rate: float,
    rng: np.random.Generator,
) -> np.ndarray:
    total = data.x.T @ (residual * scale[:, None]) + deviation * rng.standard_normal(weights.shape)
    return weights - rate * total


@dataclass
class Run:
    train: np.ndarray  # (before or after, loss or accuracy, class)
    test: np.ndarray
    epsilon: np.ndarray  # (before or after, example)
    active: np.ndarray


def gradient_descent(train: Data, test: Data, settings: argparse.Namespace, clip: float, seed: int) -> Run:
    """Twice as many steps as the worst case allows, with the filter."""
    rng = np.random.default_rng([seed, 1])
    filt = hs.IndividualGDPFilter(train.size, epsilon=settings.epsilon, delta=DELTA)
    # So much noise that an example whose gradient is always clipped spends everything in `steps` steps.
    noise = np.sqrt(settings.steps) / filt.mu * (1.0 + 1e-9)
    weights = np.zeros((train.x.shape[1], CLASSES))
    seen = []
    for step in range(2 * settings.steps):
        residual, norms = residuals_and_norms(weights, train)
        active = filt.step(norms, noise_multiplier=noise, clipping_norm=clip)
        scale = active * np.minimum(1.0, clip / np.maximum(norms, 1e-12))
        weights = noisy_step(
            weights, train, residual, scale, noise * clip, settings.rate / (clip * train.size), rng
        )
        if step + 1 in (settings.steps, 2 * settings.steps):
            seen.append(
                (
                    losses_and_accuracies(weights, train),
                    losses_and_accuracies(weights, test),
                    filt.nonadaptive_epsilon(DELTA),
                )
            )
    assert filt.active_counts()[: settings.steps].min() == train.size  # the worst case holds until here
    train_seen, test_seen, epsilon = (np.array(column) for column in zip(*seen, strict=True))
    return Run(train_seen, test_seen, epsilon, filt.active_counts())


def disparity(per_class: np.ndarray) -> np.ndarray:
    """Largest less smallest class, along the last axis."""
    return per_class.max(axis=-1) - per_class.min(axis=-1)


def mean_and_error(values: np.ndarray) -> str:
    return f"{values.mean():+.4f} ± {values.std(ddof=1) / np.sqrt(len(values)):.4f}"


def part_one(train: Data, test: Data, settings: argparse.Namespace) -> None:
    for clip in settings.clips:
        runs = [gradient_descent(train, test, settings, clip, seed) for seed in range(settings.runs)]
        training, testing = np.array([r.train for r in runs]), np.array([r.test for r in runs])
        epsilon = np.array([r.epsilon for r in runs])
        by_class = np.array([epsilon[:, :, train.y == c].mean(axis=(0, 2)) for c in range(CLASSES)])
        print(
            f"\nDP-GD, clipping norm {clip:g}, {settings.steps} + {settings.steps} steps, budget epsilon = "
            f"{settings.epsilon} at delta = {DELTA}, {settings.runs} runs; active at the end: "
            f"{np.mean([r.active[-1] for r in runs]) / train.size:.0%}"
        )
        print("class  epsilon          train loss       train accuracy   test loss        test accuracy")
        print("       start   end      start  change    start  change    start  change    start  change")
        for c in range(CLASSES):
            row = f"{c:5d}  {by_class[c, 0]:.3f}   {by_class[c, 1]:.3f}  "
            for values in (training, testing):
                for quantity in (0, 1):
                    before, after = values[:, :, quantity, c].mean(axis=0)
                    row += f"  {before:.3f}  {after - before:+.3f}  "
            print(row)
        first = training[:, 0, 0].mean(axis=0)
        print(
            f"correlation over classes of mean epsilon and training loss at the start: "
            f"{np.corrcoef(by_class[:, 0], first)[0, 1]:+.2f}"
        )
        for name, values in (("train", training), ("test", testing)):
            change = values[:, 1] - values[:, 0]
            spread = disparity(values[:, 1]) - disparity(values[:, 0])
            print(
                f"{name}: change of mean loss {mean_and_error(change[:, 0].mean(axis=-1))}, of mean accuracy "
                f"{mean_and_error(change[:, 1].mean(axis=-1))}; of the gap between the best and the worst class: "
                f"loss {mean_and_error(spread[:, 0])}, accuracy {mean_and_error(spread[:, 1])}"
            )
        print(
            f"spread of the classes' mean epsilon: {disparity(by_class[:, 0]):.3f} at the start, "
            f"{disparity(by_class[:, 1]):.3f} at the end"
        )
        if settings.out:
            pictures(settings.out, f"gd_clip{clip:g}", train, runs[0], training, testing)


def part_two(train: Data, test: Data, settings: argparse.Namespace) -> None:
    """One run of DP-SGD; the filter takes a budget that clipped gradients spend in half of the steps."""
    rng = np.random.default_rng(5)
    q, noise, clip, steps = 0.05, 1.5, settings.clips[0], 2 * settings.steps
    half = hs.account(hs.PoissonSampled(hs.Gaussian(noise), q) * (steps // 2))
    book = hs.IndividualAccountant(
        train.size, noise_multiplier=noise, sampling_probability=q, clipping_norm=clip
    )
    budget = 1.05 * half.epsilon(DELTA)
    filt = hs.individual.IndividualRDPFilter(train.size, epsilon=budget, delta=DELTA)
    weights = np.zeros((train.x.shape[1], CLASSES))
    before = None
    for step in range(steps):
        # Gradient norms of all examples, not only of the batch: each could have been drawn.
        residual, norms = residuals_and_norms(weights, train)
        active = filt.step(norms, noise_multiplier=noise, clipping_norm=clip, sampling_probability=q)
        book.step(norms, active=active)
        batch = rng.random(train.size) < q
        scale = active * batch * np.minimum(1.0, clip / np.maximum(norms, 1e-12))
        weights = noisy_step(
            weights, train, residual, scale, noise * clip, settings.rate / (clip * q * train.size), rng
        )
        if step + 1 == steps // 2:
            before = losses_and_accuracies(weights, test)
    after = losses_and_accuracies(weights, test)
    assert before is not None
    exact, by_rdp = book.nonadaptive_epsilon(DELTA), filt.epsilon(DELTA)
    print(
        f"\nDP-SGD, q = {q}, noise multiplier {noise}, clipping norm {clip:g}, {steps} steps; worst case of half of "
        f"them: epsilon = {half.epsilon(DELTA):.3f}; budget of the RDP filter {budget:.3f}; active at the end: "
        f"{filt.active_counts()[-1] / train.size:.0%}"
    )
    print(
        "individual epsilon by loss distribution (if norms had been fixed in advance) and by the RDP bound (adaptive):"
    )
    groups = train.y
    for summary, rdp in zip(
        hs.individual.summarise(exact, groups), hs.individual.summarise(by_rdp, groups), strict=True
    ):
        c = int(summary.group)
        print(
            f"  class {c}: median {summary.median:.3f}, largest {summary.maximum:.3f}; RDP median {rdp.median:.3f}, "
            f"largest {rdp.maximum:.3f}; test accuracy half-way {before[1, c]:.3f}, at the end {after[1, c]:.3f}"
        )
    if settings.out:
        hs.plots.plot_individual(exact, groups, settings.out / "sgd_epsilons.png", label=FIXED)
        hs.plots.plot_active(filt.active_counts(), settings.out / "sgd_active.png")


def pictures(out: Path, name: str, train: Data, run: Run, training: np.ndarray, testing: np.ndarray) -> None:
    from matplotlib.figure import Figure

    out.mkdir(parents=True, exist_ok=True)
    hs.plots.plot_individual(run.epsilon[0], train.y, out / f"{name}_epsilons_start.png", label=FIXED)
    hs.plots.plot_individual(run.epsilon[1], train.y, out / f"{name}_epsilons_end.png", label=FIXED)
    hs.plots.plot_active(run.active, out / f"{name}_active.png")
    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    for axes, values, title in zip(
        figure.subplots(1, 2), (training, testing), ("training", "test"), strict=True
    ):
        mean = values[:, :, 0].mean(axis=0)
        axes.bar(np.arange(CLASSES) - 0.2, mean[0], 0.4, label="filtering starts")
        axes.bar(np.arange(CLASSES) + 0.2, mean[1], 0.4, label="end")
        axes.set_xticks(range(CLASSES))
        axes.set_xlabel("class")
        axes.set_ylabel(f"{title} loss")
        axes.legend()
    figure.savefig(out / f"{name}_losses.png")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="folder for pictures (needs matplotlib)")
    parser.add_argument("--epsilon", type=float, default=2.0)
    parser.add_argument("--steps", type=int, default=100, help="steps that the worst case allows")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--rate", type=float, default=4.0)
    parser.add_argument("--clips", type=float, nargs="+", default=[0.5, 5.0])
    settings = parser.parse_args()
    if settings.out:
        settings.out.mkdir(parents=True, exist_ok=True)
    train, test = digits()
    part_one(train, test, settings)
    part_two(train, test, settings)


if __name__ == "__main__":
    main()
