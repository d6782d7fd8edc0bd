"""Whatever is passed for any parameter of anything public: it is taken, or refused by an error of ours.

A bare error of Python's or NumPy's comes from the middle of the work, names something inside, and may come after a part of it was done.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import hockeystick as hs
import numpy as np
import pytest
from hockeystick import accounting, individual, matrix, mechanisms, montecarlo, plots, sampling, training
from hockeystick._base.validation import shown

ODD = [
    None, True, "x", b"x", -1, 2.5, np.nan, np.inf, 10**400, 10**5000, [10**5000], [], (1, 2), {"a": 1}, object(), 1j, int, lambda x: x,
    np.array(0.5), np.array([]), np.array([[0.5]]), np.array(["a"]), hs.Gaussian(1.0),
]  # fmt: skip

NOISE = hs.Gaussian(1.0)
STEP = hs.PoissonSampled(NOISE, 0.1)
CUT = hs.TruncatedPoissonSampled(1.0, 100, 0.1, 20)
STRATEGY, SCHEME = hs.BandedToeplitz((1.0, 0.5), 8), hs.BMinSep(8, 2, 0.1)
MECHANISM = hs.BandMF(STRATEGY, SCHEME, 1.0)
GRAPH = hs.AttributionGraph.from_edges([0, 0, 1, 2], [0, 1, 1, 2])
PROFILE = hs.account(STEP * 3)
SEEN = montecarlo.Empirical.of([0.0, 0.5, 1.0])
SETTINGS = {"adjacency": "add", "accuracy": 1e-3, "memory_limit": 2**30}
MIN_SEP = {"steps": 8, "min_sep": 2, "sampling_probability": 0.1}
BATCHES = {"noise_multiplier": 1.0, "dataset_size": 100, "sampling_probability": 0.1, "max_batch_size": 20}
FIXED = {"mechanism": NOISE, "batch_size": 2, "dataset_size": 10, "pair": "sound"}
TARGET = {"epsilon": 3.0, "delta": 1e-3}
LOOP = {"noise_multiplier": 1.0, "clipping_norm": 1.0}
DRAWN = {"dataset_size": 100, "seed": 1, "shard": (0, 1)}


def accountant() -> hs.IndividualAccountant:
    made = hs.IndividualAccountant(3, noise_multiplier=1.0, sampling_probability=0.1, clipping_norm=1.0)
    made.step([0.1, 0.2, 0.3])
    return made


def gdp() -> hs.IndividualGDPFilter:
    return hs.IndividualGDPFilter(3, mu=3.0)


def plan() -> training.TrainingPlan:
    return hs.plan_training(hs.Poisson(5, 0.1), 100, delta=1e-5, noise_multiplier=1.0)


FUNCTIONS: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (hs.Accountant, SETTINGS),
    (hs.ApproximateDP, {"epsilon": 1.0, "delta": 0.1}),
    (hs.AttributionGraph, {"offsets": [0, 2, 3], "users": np.array([0, 1, 1], np.int32), "num_users": 2, "user_labels": None, "example_labels": None}),
    (hs.BMinSep, MIN_SEP | {"warm_start": True, "examples_per_user": 1}),
    (hs.BallsInBins, {"steps": 8, "bins": 4}),
    (hs.BandMF, {"strategy": STRATEGY, "scheme": SCHEME, "noise_multiplier": 1.0}),
    (hs.BandedToeplitz, {"coefficients": (1.0, 0.5), "steps": 8}),
    (hs.CorrelatedNoise, {"strategy": STRATEGY, "dimension": 3, **LOOP, "seed": 1, "coordinates": (0, 2), "dtype": np.float32, "state_dtype": np.float32}),
    (hs.CyclicPoisson, MIN_SEP | {"group": 0, "dataset_size": 100, "max_batch_size": 20}),
    (hs.DiscreteGaussian, {"sigma": 1.0, "sensitivity": 1}),
    (hs.DiscreteLaplace, {"scale": 1.0, "sensitivity": 1}),
    (hs.FinitePair, {"p": (0.5, 0.5), "q": (0.4, 0.6)}),
    (hs.Gaussian, {"noise_multiplier": 1.0}),
    (hs.Identity, {"steps": 4}),
    (hs.IndividualAccountant, {"num_examples": 3, **LOOP, "sampling_probability": 0.1, "adjacency": "add", "resolution": 0.007, "fine": 384, "coarse": 128, "durable": False}),
    (hs.IndividualGDPFilter, {"num_examples": 3, "mu": 1.0, "durable": False}),
    (hs.IndividualGDPFilter, {"num_examples": 3, **TARGET}),
    (hs.Laplace, {"scale": 1.0}),
    (hs.Mixture, {"mechanisms": (NOISE, STEP), "weights": (0.5, 0.5)}),
    (hs.MixtureOfGaussians, {"noise_multiplier": 1.0, "sensitivities": (0.0, 1.0), "probabilities": (0.5, 0.5)}),
    (hs.Poisson, {"steps": 8, "sampling_probability": 0.1}),
    (hs.PoissonSampled, {"mechanism": NOISE, "sampling_probability": 0.1}),
    (hs.PrivacyLoss, {"losses": (-0.1, 0.05), "probabilities": (0.3, 0.7), "infinity_mass": 0.0, "add": None}),
    (hs.PrivacyProfile, {"process": STEP, **SETTINGS, "engine": "auto"}),
    (hs.PrivateSelection, {"base": NOISE, "repetitions": hs.Repetitions.poisson(2.0)}),
    (hs.PureDP, {"epsilon": 1.0}),
    (hs.RandomAllocation, {"noise_multiplier": 1.0, "steps": 4, "participations": 2}),
    (hs.RandomizedResponse, {"epsilon": 1.0, "num_categories": 3, "uniform_null": True}),
    (hs.RenyiCurve, {"orders": (2.0, 3.0), "epsilons": (0.1, 0.2)}),
    (hs.Repetitions, {"law": "poisson", "mean": 2.0, "shape": 1.0}),
    (hs.TruncatedPoissonSampled, BATCHES | {"pair": "tight"}),
    (hs.UserLevel, {"mechanism": STEP, "examples_per_user": 3}),
    (hs.WithReplacement, FIXED),
    (hs.WithoutReplacement, FIXED),
    (hs.ZCDP, {"rho": 0.1, "xi": 0.0}),
    (hs.account, {"process": STEP, **SETTINGS, "engine": "auto"}),
    (hs.calibrate, {"make": hs.Gaussian, **TARGET, "increasing": False, "limits": (0.1, 100.0), "integer": False, "start": 1.0, "parameter": "s", "adjacency": "add"}),
    (hs.calibrate_noise_multiplier, {"make": hs.Gaussian, **TARGET, "limits": (0.1, 100.0), "tolerance": 1e-3}),
    (hs.calibrate_sampling_probability, {"make": lambda q: hs.PoissonSampled(NOISE, q), **TARGET, "limits": (1e-3, 1.0), "tolerance": 1e-3}),
    (hs.calibrate_steps, {"make": lambda count: STEP * count, **TARGET, "limits": (0, 1000)}),
    (hs.calibrate_batch_size, {"make": lambda size: hs.dp_sgd(1.0, 1000, size, steps=10), **TARGET, "limits": (1, 1000)}),
    (hs.calibrate_bandmf, {"strategy": STRATEGY, "scheme": SCHEME, **TARGET, "adjacency": "zero_out", "seed": 1, "method": "auto", "threshold": None, "samples": None, "candidates": None, "composed_with": None}),
    (hs.dp_sgd, {"noise_multiplier": 1.0, "dataset_size": 100, "batch_size": 10, "epochs": 1.0, "steps": None, "gradient_accumulation": 1, "world_size": 1, "drop_last": False, "sampler": "poisson"}),
    (hs.dp_sgd, {"noise_multiplier": 1.0, "dataset_size": 100, "batch_size": 10, "steps": 5, "max_batch_size": 20, "examples_per_user": 1}),
    (hs.estimate_delta, {"mechanism": MECHANISM, "epsilon": 1.0, "samples": 1000, "seed": 1, "method": "auto", "adjacency": "zero_out", "confidence": 0.99}),
    (hs.grid_delta, {"noise_multiplier": [1.0, 2.0], "sampling_probability": 0.1, "steps": 3, "epsilon": 1.0, **SETTINGS}),
    (hs.grid_epsilon, {"noise_multiplier": [1.0, 2.0], "sampling_probability": 0.1, "steps": 3, "delta": 1e-5, **SETTINGS}),
    (hs.plan_training, {"sampling": hs.Poisson(5, 0.1), "dataset_size": 100, **TARGET, "noise_multiplier": None, "strategy": None, "adjacency": "zero_out", "graph": None, "tuning": None, "fallback": "auto", "samples": None, "calibration_seed": None}),
    (hs.plot_profile, {"profile": PROFILE}),
    (sampling.expected_batch_size, {"graph": GRAPH, "sampling_probability": 0.1, "min_sep": 1, "step": None}),
    (sampling.sampling_probability_for, {"graph": GRAPH, "expected_batch": 1.0, "min_sep": 1}),
    (sampling.sweep_neighbourhood, {"graph": GRAPH, "max_examples_per_user": 1, "min_sep": 1, "expected_batch": 1.0, "sampling_probability": None, "limits": [1, None]}),
    (mechanisms.DeclaredProfile, {"epsilons": (0.0, 1.0), "deltas": (0.1, 0.01), "error": 0.0}),
    (mechanisms.ExponentialMechanism, {"epsilon": 1.0}),
    (mechanisms.Group, {"release": STEP, "size": 2}),
    (mechanisms.Process, {"items": [(STEP, 2)]}),
    (mechanisms.Skellam, {"variance": 2.0, "sensitivity": 1}),
    (mechanisms.TruncatedPoissonGroup, BATCHES | {"pair": "tight", "groups": 2}),
    (mechanisms.cyclic_poisson, {"column_norms": [1.0, 0.5], "min_sep": 2, "sampling_probability": 0.1, "noise_multiplier": 1.0, "subset_size": 10, "dataset_size": None, "max_batch_size": 5, "max_norms": 256}),
    (mechanisms.from_dict, {"plain": mechanisms.to_dict(STEP)}),
    (mechanisms.to_dict, {"description": STEP}),
    (matrix.Banded, {"columns": [[1.0, 0.5], [1.0, 0.0]]}),
    (matrix.BufferedToeplitz, {"buffers": ((0.1, 0.5),), "steps": 5}),
    (matrix.FixedOrder, {"steps": 8, "min_sep": 2}),
    (matrix.InverseBanded, {"inverse": [1.0, -0.5], "steps": 4}),
    (matrix.LowerTriangular, {"entries": [[1.0, 0.0], [0.5, 1.0]]}),
    (matrix.MultiAttributionBMinSep, MIN_SEP | {"examples_per_user": 2, "law": "dominating"}),
    (matrix.RMinSep, MIN_SEP | {"warm_start": True}),
    (matrix.Scheme.from_dict, {"plain": SCHEME.to_dict()}),
    (matrix.TruncatedBMinSep, MIN_SEP | {"dataset_size": 100, "max_batch_size": 20, "warm_start": True}),
    (matrix.Workload, {"learning_rates": 1.0, "momentum": 0.5, "weight_decay": 0.1}),
    (matrix.b_min_sep_probability, {"participation_rate": 0.1, "min_sep": 2}),
    (accounting.Deployment, {"unit": "one record"}),
    (accounting.Risk, {"profile": PROFILE, "tolerance": 1e-7, "roughly": False}),
    (accounting.UnionBound, {"step": CUT, "steps": 3, "adjacency": "add_or_remove"}),
    (accounting.best_rdp_epsilon, {"process": STEP, "delta": 1e-5, "adjacency": "add"}),
    (accounting.calibrate_max_batch_size, {"make": lambda most: hs.TruncatedPoissonSampled(1.0, 100, 0.1, most) * 3, **TARGET, "adjacency": "add", "limits": (10, 100), "memory_limit": 2**30}),
    (accounting.noise_multiplier, {"standard_deviation": 1.0, "clipping_norm": 1.0, "divided_by": 1.0}),
    (accounting.plan_truncated_batches, {"dataset_size": 1000, "steps": 2, "compute_budget": 50, **TARGET, "adjacency": "add", "tolerance": 0.1}),
    (accounting.rdp_curve, {"process": STEP, "orders": [2.0, 3.0], "adjacency": "add"}),
    (accounting.rdp_epsilon, {"order": 2.0, "rho": 0.1, "delta": 1e-5}),
    (accounting.standard_deviation, {"noise_multiplier": 1.0, "clipping_norm": 1.0, "divided_by": 1.0}),
    (montecarlo.Empirical, {"masses": (2**32,) * 642}),
    (montecarlo.Empirical.total, {"laws": [SEEN]}),
    (montecarlo.divide_target, {"target": 1e-3, "share": 0.1, "probes": 1}),
    (montecarlo.mean_bounds, {"seen": SEEN, "failure_probability": 0.01, "pilot": None}),
    (montecarlo.mean_interval, {"mean": 0.1, "samples": 100, "confidence": 0.99, "bound": 1.0}),
    (montecarlo.optimize_strategy, {"scheme": SCHEME, **TARGET, "bands": 2, "workload": matrix.Workload()}),
    (montecarlo.plan_test, {"tested": 1e-3, "failure_probability": 0.01, "mean": 1e-4, "variance": 1e-6, "pilot": None}),
    (montecarlo.plan_verification, {"target_delta": 1e-3}),
    (montecarlo.sample_blocks, {"mechanism": MECHANISM, "epsilon": 1.0, "direction": "remove", "seed": 1, "first_block": 0, "last_block": 1}),
    (individual.ApproximateIndividualFilter, {"num_examples": 3, **TARGET, **LOOP, "sampling_probability": 0.1, "adjacency": "add", "durable": False}),
    (individual.GDPFilter, {"mu": 1.0}),
    (individual.GDPFilter, TARGET),
    (individual.GDPOdometer, {"increment": 1.0}),
    (individual.IndividualGDPOdometer, {"num_examples": 3, "increment": 1.0, "durable": False}),
    (individual.IndividualRDPFilter, {"num_examples": 3, "order": 2.0, "rho": 1.0}),
    (individual.RDPFilter, {"order": 2.0, "rho": 1.0}),
    (individual.RDPFilter, TARGET),
    (individual.gdp_budget, TARGET),
    (individual.summarise, {"values": [1.0, 2.0], "groups": ["a", "b"]}),
    (plots.plot_active, {"counts": [3, 2, 1]}),
    (plots.plot_gdp, {"profile": PROFILE, "delta": 1e-10}),
    (plots.plot_grid, {"grid": hs.grid_epsilon([[1.0], [2.0]], [0.1, 0.2], 3, 1e-5)}),
    (plots.plot_individual, {"values": [1.0, 2.0], "groups": ["a", "b"], "bins": 3}),
    (plots.plot_truncation, {"max_batch_sizes": [1, 2], "noise_multipliers": {"a": [1.0, 2.0]}, "wasted": [0.1, 0.2], "title": "x"}),
]  # fmt: skip

METHODS: list[tuple[Callable[[], Any], str, dict[str, Any]]] = [
    (hs.Accountant, "step", {"mechanism": STEP, "steps": 2}),
    (hs.Accountant, "merge", {"other": hs.Accountant()}),
    (hs.Accountant, "report", {"delta": 1e-5, "epsilon": 1.0}),
    *[(hs.Accountant, name, {"delta": 1e-5}) for name in ("epsilon", "get_epsilon", "epsilon_bounds")],
    *[(hs.Accountant, name, {"epsilon": 1.0}) for name in ("delta", "get_delta", "delta_bounds")],
    *[(lambda: PROFILE, name, {"epsilon": 1.0}) for name in ("delta", "delta_bounds", "delta_curve", "rough_curve", "slope_bounds")],
    *[(lambda: PROFILE, name, {"delta": 1e-5}) for name in ("epsilon", "epsilon_bounds", "gdp")],
    (lambda: PROFILE, "curve", {"points": 5}),
    (lambda: PROFILE, "gdp_mu", {"slack": 0.1}),
    (lambda: PROFILE, "group", {"size": 2}),
    (lambda: PROFILE, "report", {"delta": 1e-5, "epsilon": 1.0, "risks": False, "tuning": None}),
    (lambda: PROFILE, "tradeoff", {"alpha": 0.1}),
    *[(lambda: PROFILE.risk, name, asked) for name, asked in {
        "bayes_risk": {"prior": 0.5}, "precision": {"fpr": 0.1, "prior": 0.1}, "recall": {"odds": 3.0},
        "reconstruction": {"baseline": 0.1}, "table": {"fprs": [0.1]}, "tpr": {"fpr": 0.1},
    }.items()],
    (partial(individual.GDPFilter, mu=3.0), "step", {"mu": 1.0, "noise_multiplier": 1.0}),
    (partial(individual.GDPOdometer, increment=1.0), "step", {"mu": 1.0}),
    (partial(individual.GDPOdometer, increment=1.0), "epsilon", {"delta": 1e-5}),
    *[(accountant, name, {"delta": 1e-5}) for name in ("epsilon", "nonadaptive_epsilon_bounds")],
    (accountant, "nonadaptive_delta", {"epsilon": 1.0}),
    (accountant, "nonadaptive_epsilon", {"delta": 1e-5, "accuracy": 0.01, "refine": 8}),
    (accountant, "nonadaptive_gdp_mu", {"example": 1, "slack": 0.1}),
    *[(accountant, name, {"example": 1}) for name in ("history", "profile")],
    (accountant, "merge", {"parts": [accountant(), accountant()]}),
    (accountant, "step", {"norms": [0.1, 0.2, 0.3], **LOOP, "sampling_probability": 0.1, "active": [True, False, True], "steps": 2}),
    *[(gdp, name, {"delta": 1e-5}) for name in ("epsilon", "nonadaptive_epsilon")],
    *[(gdp, name, {"norms": [0.1, 0.2], **LOOP, "indices": [0, 1]}) for name in ("step", "last_scales")],
    (gdp, "merge", {"parts": [gdp(), gdp()]}),
    (partial(individual.IndividualRDPFilter, 3, order=2.0, rho=1.0), "step", {"norms": [0.1, 0.2], **LOOP, "indices": [0, 1], "sampling_probability": 0.1}),
    (partial(individual.IndividualGDPOdometer, 3, increment=0.1), "step", {"norms": [0.1, 0.2], **LOOP, "indices": [0, 1]}),
    (partial(individual.ApproximateIndividualFilter, 3, **TARGET, **LOOP, sampling_probability=0.1), "step", {"norms": [0.1, 0.2, 0.3]}),
    (lambda: STRATEGY, "correlated_noise", {"noise": np.zeros((8, 2))}),
    (lambda: STRATEGY, "first_steps", {"steps": 3}),
    *[(lambda: STRATEGY, name, {"noise_multiplier": 1.0, "workload": matrix.Workload()}) for name in ("max_error", "mean_squared_error", "per_step_error")],
    *[(lambda: STRATEGY, name, {"min_sep": 2, "max_participations": 1}) for name in ("sensitivity", "sensitivity_bounds")],
    (lambda: STRATEGY, "optimized", {"steps": 8, "bands": 2, "min_sep": 2, "max_participations": 2, "workload": matrix.Workload()}),
    (lambda: STRATEGY, "square_root", {"steps": 8, "bands": 2, "workload": matrix.Workload()}),
    (lambda: SCHEME, "batches", DRAWN | {"pad": False, "graph": None}),
    (lambda: SCHEME, "expected_batch_size", {"dataset_size": 100}),
    (lambda: SCHEME, "first_steps", {"steps": 3}),
    (lambda: SCHEME, "of_rate", {"steps": 8, "min_sep": 2, "participation_rate": 0.1, "warm_start": True, "examples_per_user": 1}),
    (lambda: MECHANISM, "batches", DRAWN),
    (lambda: MECHANISM, "is_certified", {"adjacency": "add"}),
    (lambda: MECHANISM, "privacy_loss", {"outputs": np.zeros((2, 8))}),
    (lambda: MECHANISM, "sample_losses", {"samples": 10, "seed": 1, "direction": "remove"}),
    (lambda: CUT * 3, "batches", DRAWN | {"pad": False}),
    (lambda: STEP * 3, "batches", DRAWN | {"pad": False}),
    (lambda: hs.dp_sgd(1.0, 100, 10, steps=3), "batches", DRAWN | {"pad": False}),
    (lambda: SCHEME.batches(100, 1), "seek", {"step": 3}),
    (lambda: SCHEME.batches(100, 1), "load_state_dict", {"state": SCHEME.batches(100, 1).state_dict()}),
    (lambda: GRAPH, "bound", {"max_examples_per_user": 1, "duplicates": False, "order": "random", "max_neighbourhood": 2, "without_users": "refuse", "seed": 1}),
    (lambda: GRAPH, "from_edges", {"examples": [0, 1], "users": [0, 1], "num_examples": 2, "num_users": 2}),
    (lambda: GRAPH, "from_lists", {"users_of": [[0], [1]]}),
    (lambda: GRAPH, "neighbourhood_sizes", {"limit": 3}),
    (lambda: GRAPH, "select", {"examples": [0]}),
    (lambda: GRAPH, "users_of", {"example": 0}),
    (plan, "released", {"run": STEP}),
    (plan, "spent", {"steps": 2}),
    (plan, "start", {"dimension": 3, "clipping_norm": 1.0, "seed": 1, "state_dtype": np.float64, "durable": False}),
    (partial(hs.CorrelatedNoise, STRATEGY, 3, **LOOP), "next", {"out": np.zeros(3, np.float32)}),
    (partial(hs.CorrelatedNoise, STRATEGY, 3, **LOOP), "rows", {"count": 2, "out": np.zeros((2, 3), np.float32)}),
    (partial(hs.CorrelatedNoise, STRATEGY, 3, **LOOP), "seek", {"step": 3}),
    (partial(hs.CorrelatedNoise, STRATEGY, 3, **LOOP), "add_to", {"out": np.zeros(3, np.float32)}),
    *[(lambda: hs.Repetitions, name, {"mean": 3.0}) for name in ("geometric", "logarithmic", "poisson")],
    (lambda: hs.Repetitions, "fixed", {"count": 3}),
    (lambda: hs.Repetitions, "negative_binomial", {"mean": 3.0, "shape": 1.0}),
    (partial(hs.Repetitions.poisson, 3.0), "draw", {"seed": 1}),
    (partial(hs.Repetitions.poisson, 3.0), "largest_loss", {"loss": 1.0}),
    *[(lambda: matrix.Workload(0.1, 0.5), name, {"steps": 4}) for name in ("matrix", "quadratic_form", "rates", "response")],
    (lambda: matrix.Workload(0.1, 0.5), "iterates", {"gradients": np.zeros((4, 2))}),
]  # fmt: skip

# What functions return, what is subclassed, and errors; numbers of threads and paths of files have tests of their own.
NOT_MADE_BY_CALLERS = """
Answer BatchPlan BatchSampler BoundedAttribution Bounds CalibratedBandMF CalibratedFloat CalibratedInt
Certificate Composable DPSGD DeltaEstimate DeviationError EmpiricalTally ForkedError GaussianSummary Grid
GroupSummary Guarantee IndividualBounds MeanTest Mechanism NeighbourhoodSweep PaddedBatch ParameterError
ParameterTypeError Report RiskTarget Step StorageError Strategy Tally TrainingPlan TrainingReport TrainingRun
TrainingStep UnreachableError VerificationPlan build_config estimate_from_tally get_cmake_dir get_include
max_threads plot_prefix_noise plot_proof read_report set_threads
"""


def check(call: Callable[..., Any], given: dict[str, Any]) -> None:
    call(**given)
    for name in given:
        for odd in ODD:
            try:
                call(**given | {name: odd})
            except (hs.ParameterError, hs.ParameterTypeError, hs.StorageError) as error:
                assert str(error)  # noqa: PT017
            except Exception as error:  # noqa: BLE001
                pytest.fail(f"{name} = {shown(odd)}: {type(error).__name__}: {error}")


@pytest.mark.sweep
@pytest.mark.parametrize(("call", "given"), FUNCTIONS, ids=lambda each: getattr(each, "__qualname__", ""))
def test_functions(
    call: Callable[..., Any], given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if call.__name__.startswith("plot_"):
        pytest.importorskip("matplotlib").use("Agg")
    check(call, given)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("make", "name", "given"), METHODS, ids=lambda each: each if isinstance(each, str) else ""
)
def test_methods(make: Callable[[], Any], name: str, given: dict[str, Any]) -> None:
    check(lambda **odd: getattr(make(), name)(**odd), given)


NORMED = [
    *[(lambda call=call: call, given) for call, given in FUNCTIONS if "clipping_norm" in given],
    *[
        (lambda make=make, name=name: getattr(make(), name), given)
        for make, name, given in METHODS
        if "clipping_norm" in given and make is not accountant  # whose steps take its own
    ],
]


@pytest.mark.parametrize(
    ("of", "given"), NORMED, ids=lambda each: "" if isinstance(each, dict) else each().__qualname__
)
def test_the_norm_that_gradients_are_clipped_to_is_never_guessed(
    of: Callable[[], Callable[..., Any]], given: dict[str, Any]
) -> None:
    """It was 1: an epsilon of .129 for norms of .1 that are clipped to .1, of which 2.73 is certified."""
    of()(**given)
    with pytest.raises(TypeError, match="clipping_norm"):
        of()(**{name: value for name, value in given.items() if name != "clipping_norm"})


@pytest.mark.parametrize("threads", [*ODD[:4], *ODD[5:], 1025], ids=lambda each: type(each).__name__)
def test_threads(threads: Any) -> None:
    before = hs.max_threads()
    with pytest.raises((hs.ParameterError, hs.ParameterTypeError), match=r"^threads = .*\[0, 1024\]"):
        hs.set_threads(threads)
    assert hs.max_threads() == before


def test_nothing_public_is_left_out() -> None:
    covered = {call.__qualname__.split(".")[0] for call, _ in FUNCTIONS}
    rooms = [hs, accounting, individual, matrix, mechanisms, montecarlo, plots, sampling, training]
    public = {
        name
        for room in rooms
        for name in dir(room)
        if callable(found := getattr(room, name)) and not inspect.ismodule(found) and not name.startswith("_")
    }
    assert public - covered == set(NOT_MADE_BY_CALLERS.split())
