"""Four ways to train with the same guarantee: which one gives the best model? Digits of scikit-learn, NumPy alone.

    pip install 'hockeystick[examples]'
    python examples/training/digits.py                # a few minutes: 30 trials
    python examples/training/digits.py --quick        # seconds: 2 short trials

DP-SGD with Poisson batches, and BandMF with cyclic Poisson, balls-in-bins and b-min-sep batches, each calibrated to the same
(epsilon, delta) with delta = 1 / (2 |D|), train multinomial logistic regression: the comparison of Dong and Ganesh 2026, Section 7.2, on
data that fit on a laptop. As there: momentum 0.95, a learning rate that falls linearly to 1/20 from a quarter to three quarters of the run.

Every trial splits the data anew, and draws batches and noise anew. Learning rates are chosen on other trials; that choice is not
private, here as in the paper. Intervals are Student's, 95 %.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import hockeystick as hs
import numpy as np
from scipy.stats import t as student
from sklearn.datasets import load_digits

CLASSES, CLIP, MOMENTUM = 10, 1.0, 0.95
BANDS = {1.0: (8, 32, 8), 4.0: (32, 64, 64), 8.0: (64, 64, 64)}
"""By epsilon: bands and min-sep of b-min-sep, bands of balls-in-bins; of least error in pilot calibrations (--sweep), at most 64 bands, as in the paper."""
TUNING = 10_000  # seeds from here on are for choosing learning rates


def split(seed: int, size: int) -> tuple[np.ndarray, ...]:
    """Training and test data: rows with a last column of ones, and labels."""
    x, y = load_digits(return_X_y=True)
    x = np.hstack([x / 16.0, np.ones((len(x), 1))])
    order = np.random.default_rng([seed, 1]).permutation(len(y))
    train, test = order[:size], order[size:]
    return x[train], y[train], x[test], y[test]


def clipped_gradient_sum(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Sum over the batch of the gradients of the log loss, each clipped to norm CLIP."""
    scores = x @ weights
    residual = np.exp(scores - scores.max(axis=1, keepdims=True))
    residual /= residual.sum(axis=1, keepdims=True)
    residual[np.arange(len(y)), y] -= 1.0
    # An example's gradient is the outer product of its x and its residual: its norm is a product of norms.
    norms = np.linalg.norm(x, axis=1) * np.linalg.norm(residual, axis=1)
    return x.T @ (residual * np.minimum(1.0, CLIP / np.maximum(norms, 1e-12))[:, None])


def train(plan: hs.training.TrainingPlan, rate: float, seed: int) -> tuple[float, hs.training.TrainingReport]:
    """Test accuracy of one run, and its report."""
    x, y, x_test, y_test = split(seed, plan.dataset_size)
    weights = np.zeros((x.shape[1], CLASSES))
    velocity = np.zeros_like(weights)
    # An integer seed makes the experiment repeatable. Where data are to be protected: leave it out.
    with plan.start(weights.size, clipping_norm=CLIP, seed=seed) as run:
        for step in run:
            total = step.add_noise(clipped_gradient_sum(weights, *step.take(x, y)))
            progress = min(1.0, max(0.0, 2.0 * step.number / plan.steps - 0.5))
            velocity = MOMENTUM * velocity + total / plan.expected_batch_size
            weights -= rate * (1.0 - progress * 19.0 / 20.0) * velocity
        report = run.report()
    return float(np.mean((x_test @ weights).argmax(axis=1) == y_test)), report


def plans(settings: argparse.Namespace, epsilon: float) -> dict[str, hs.training.TrainingPlan]:
    """One plan per method; all have the same number of steps, expected batch size and guarantee."""
    size, epoch, steps = settings.size, settings.epoch, settings.steps
    budget = {"epsilon": epsilon, "delta": 1.0 / (2.0 * size), "calibration_seed": settings.seed}
    bands, min_sep, balls_bands = settings.bands or BANDS.get(epsilon, BANDS[4.0])

    cyclic = [
        hs.plan_training(hs.CyclicPoisson.of_rate(steps, count, 1.0 / epoch), size, strategy=count, **budget)
        for count in settings.cyclic_bands
    ]
    balls = hs.BallsInBins(steps, epoch)
    separate = hs.BMinSep.of_rate(steps, min_sep, 1.0 / epoch)
    return {
        "DP-SGD": hs.plan_training(hs.Poisson(steps, 1.0 / epoch), size, **budget),
        # Certified without samples: of such plans the best may be chosen.
        "cyclic Poisson": min(cyclic, key=lambda plan: plan.mean_squared_error),
        # Verified ones are calibrated once, with bands chosen beforehand.
        "balls-in-bins": hs.plan_training(balls, size, strategy=balls_bands, **budget),
        "b-min-sep": hs.plan_training(separate, size, strategy=bands, **budget),
    }


def sweep(settings: argparse.Namespace, epsilon: float) -> None:
    """Errors of the candidates for BANDS, from few samples and another seed than the calibration's."""
    steps, epoch = settings.steps, settings.epoch
    print(f"\nepsilon = {epsilon:g}: mean squared errors of pilot calibrations\nbands  min-sep      MSE")
    for bands in (8, 16, 32, 64):
        for min_sep in sorted({max(bands, 32), 64, epoch}):
            plan = hs.plan_training(
                hs.BMinSep.of_rate(steps, min_sep, 1.0 / epoch),
                settings.size,
                strategy=bands,
                epsilon=epsilon,
                delta=1.0 / (2.0 * settings.size),
                samples=60_000,
                calibration_seed=settings.seed + 1,
            )
            note = "  is balls-in-bins" if min_sep == epoch else ""
            note += "  (fallback)" if plan.guarantee.evidence["fell_back"] else ""
            print(f"{bands:>5}  {min_sep:>7} {plan.mean_squared_error:>8.2f}{note}", flush=True)


def mean_and_margin(values: np.ndarray) -> tuple[float, float]:
    """Mean and half the width of Student's 95 % interval."""
    count = len(values)
    return float(values.mean()), float(student.ppf(0.975, count - 1) * values.std(ddof=1) / math.sqrt(count))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="2 trials of 32 steps: shows that everything runs"
    )
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 4.0, 8.0])
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--size", type=int, default=1280, help="examples to train on, of 1797")
    parser.add_argument("--epoch", type=int, default=128, help="|D| over the expected batch size")
    parser.add_argument("--steps", type=int, default=640)
    parser.add_argument(
        "--bands", type=int, nargs=3, help="of b-min-sep, its min-sep, and the bands of balls-in-bins"
    )
    parser.add_argument(
        "--cyclic-bands", type=int, nargs="+", default=[2, 4, 8, 16, 32, 64], help="the least error is taken"
    )
    parser.add_argument("--rates", type=float, nargs="+", default=[0.01, 0.03, 0.1, 0.3, 1.0])
    parser.add_argument("--tuning-trials", type=int, default=8)
    parser.add_argument("--seed", type=int, default=2026, help="of the calibrations")
    parser.add_argument(
        "--out", type=Path, help="folder for a report of each method's last run, and the numbers as JSON"
    )
    parser.add_argument("--sweep", action="store_true", help="how BANDS was found; a few minutes")
    settings = parser.parse_args()
    if settings.quick:
        settings.trials, settings.tuning_trials, settings.rates = 2, 1, [0.1, 1.0]
        settings.steps, settings.epoch, settings.bands, settings.size = 32, 16, (4, 8, 4), 400
        settings.epsilon, settings.cyclic_bands = settings.epsilon[-1:], [4]
    results = []
    for epsilon in settings.epsilon:
        if settings.sweep:
            sweep(settings, epsilon)
            continue
        began = time.perf_counter()
        chosen = plans(settings, epsilon)
        print(
            f"\nepsilon = {epsilon:g}, delta = {1.0 / (2.0 * settings.size):.3g}, |D| = {settings.size}, expected batch "
            f"{settings.size / settings.epoch:g}, {settings.steps} steps, {settings.trials} trials "
            f"(calibrated in {time.perf_counter() - began:.0f} s)"
        )
        print(
            "method            guarantee  bands  noise multiplier      MSE   rate  test accuracy    less DP-SGD's"
            "     less cyclic Poisson's"
        )
        others: dict[str, np.ndarray] = {}
        for name, plan in chosen.items():
            tuning = [
                np.mean([train(plan, rate, TUNING + trial)[0] for trial in range(settings.tuning_trials)])
                for rate in settings.rates
            ]
            rate = settings.rates[int(np.argmax(tuning))]
            runs = [train(plan, rate, trial) for trial in range(settings.trials)]
            accuracies = np.array([accuracy for accuracy, _ in runs])
            others[name] = accuracies
            # Trial by trial, the data are split alike: differences vary less than their parts.
            against = [others[other] for other in ("DP-SGD", "cyclic Poisson") if other in others]
            shown = [mean_and_margin(accuracies)] + [mean_and_margin(accuracies - other) for other in against]
            assert all(report.complete for _, report in runs)
            if isinstance(plan.sampling, hs.CyclicPoisson) and name != "cyclic Poisson":
                name += " (*)"  # no verified candidate was better than the fallback
            print(
                f"{name:<17} {plan.guarantee.kind:<10} {plan.strategy.bands:>5} {plan.noise_multiplier:>17.4f} "
                f"{plan.mean_squared_error:>8.2f} {rate:>6g}  {shown[0][0]:.4f} ± {shown[0][1]:.4f}"
                + "".join(f"  {gain:+.4f} ± {margin:.4f}" for gain, margin in shown[1:])
            )
            results.append(
                {"method": name, "epsilon": epsilon, "rate": rate, "accuracies": accuracies.tolist()}
            )
            if settings.out:
                runs[-1][1].write(
                    settings.out / f"{name.split(' (')[0].replace(' ', '-')}-epsilon-{epsilon:g}"
                )
    if any(entry["method"].endswith("(*)") for entry in results):
        print("(*) no less noise was verified than cyclic Poisson sampling needs, so that is what was run")
    if settings.out:
        (settings.out / "accuracies.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
