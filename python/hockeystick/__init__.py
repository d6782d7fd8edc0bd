"""Certified differential-privacy accounting.

Describe what is released, then ask:

>>> import hockeystick as hs
>>> step = hs.PoissonSampled(hs.Gaussian(noise_multiplier=1.0), sampling_probability=0.01)
>>> profile = hs.account(step * 1000)
>>> lower, upper = profile.epsilon_bounds(delta=1e-5)
>>> lower <= upper < 2.0
True
"""

from __future__ import annotations

from pathlib import Path

from . import _core
from ._base.arithmetic import protect
from ._base.bounds import Bounds
from ._base.exclusive import ForkedError
from ._base.storage import StorageError
from ._base.validation import ParameterError, ParameterTypeError
from ._core import __version__, build_config, max_threads, set_threads
from .accounting.accountant import Accountant
from .accounting.batch_limits import BatchPlan, UnionBound, calibrate_max_batch_size, plan_truncated_batches
from .accounting.calibration import (
    CalibratedFloat,
    CalibratedInt,
    Certificate,
    UnreachableError,
    calibrate,
    calibrate_batch_size,
    calibrate_noise_multiplier,
    calibrate_sampling_probability,
    calibrate_steps,
)
from .accounting.grid import Grid, grid_delta, grid_epsilon
from .accounting.profile import PrivacyProfile, account
from .accounting.rdp import rdp_epsilon
from .accounting.report import Answer, Report
from .individual.accountant import ApproximateIndividualFilter, IndividualAccountant, IndividualBounds
from .individual.filters import GDPFilter, IndividualGDPFilter, IndividualRDPFilter, RDPFilter, gdp_budget
from .individual.odometers import GDPOdometer, IndividualGDPOdometer
from .individual.summary import GroupSummary, summarise
from .matrix.bandmf import BandMF
from .matrix.noise import CorrelatedNoise
from .matrix.schemes import (
    BallsInBins,
    BMinSep,
    CyclicPoisson,
    MultiAttributionBMinSep,
    Poisson,
    RMinSep,
    TruncatedBMinSep,
    b_min_sep_probability,
)
from .matrix.strategies import Banded, BandedToeplitz, Identity, InverseBanded, LowerTriangular, Strategy
from .mechanisms.adjacency import ADJACENCIES
from .mechanisms.cyclic import cyclic_poisson
from .mechanisms.descriptions import (
    ApproximateDP,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    Mixture,
    MixtureOfGaussians,
    PoissonSampled,
    Process,
    PureDP,
    RandomizedResponse,
    TruncatedPoissonSampled,
    WithoutReplacement,
    WithReplacement,
)
from .mechanisms.dpsgd import DPSGD, dp_sgd
from .montecarlo.bandmf_calibration import CalibratedBandMF, calibrate_bandmf
from .montecarlo.confidence import VerificationPlan, mean_interval, plan_verification
from .montecarlo.empirical import Empirical
from .montecarlo.estimate import DeltaEstimate, estimate_delta, estimate_from_tally, sample_blocks
from .montecarlo.evidence import mean_bounds
from .montecarlo.mean_test import MeanTest, divide_target, plan_test
from .montecarlo.tally import EmpiricalTally, Tally
from .plots.individual import plot_active, plot_individual
from .plots.profiles import plot_grid, plot_profile, plot_truncation
from .sampling.attribution import AttributionGraph, BoundedAttribution
from .sampling.batches import BatchSampler, PaddedBatch
from .sampling.sweep import (
    NeighbourhoodSweep,
    expected_batch_size,
    sampling_probability_for,
    sweep_neighbourhood,
)
from .training.guarantee import Guarantee
from .training.pictures import plot_prefix_noise, plot_proof
from .training.plan import TrainingPlan, plan_training
from .training.report import TrainingReport, read_report
from .training.run import DeviationError, TrainingRun, TrainingStep


def get_include() -> str:
    """Directory of the C++ headers, for compiling against the core: ``-I$(python -c ...)``."""
    return str(Path(__file__).parent / "include")


__all__ = [
    "ADJACENCIES",
    "DPSGD",
    "Accountant",
    "Answer",
    "ApproximateDP",
    "ApproximateIndividualFilter",
    "AttributionGraph",
    "BMinSep",
    "BallsInBins",
    "BandMF",
    "Banded",
    "BandedToeplitz",
    "BatchPlan",
    "BatchSampler",
    "BoundedAttribution",
    "Bounds",
    "CalibratedBandMF",
    "CalibratedFloat",
    "CalibratedInt",
    "Certificate",
    "CorrelatedNoise",
    "CyclicPoisson",
    "DeltaEstimate",
    "DeviationError",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Empirical",
    "EmpiricalTally",
    "ForkedError",
    "GDPFilter",
    "GDPOdometer",
    "Gaussian",
    "Grid",
    "GroupSummary",
    "Guarantee",
    "Identity",
    "IndividualAccountant",
    "IndividualBounds",
    "IndividualGDPFilter",
    "IndividualGDPOdometer",
    "IndividualRDPFilter",
    "InverseBanded",
    "Laplace",
    "LowerTriangular",
    "MeanTest",
    "Mixture",
    "MixtureOfGaussians",
    "MultiAttributionBMinSep",
    "NeighbourhoodSweep",
    "PaddedBatch",
    "ParameterError",
    "ParameterTypeError",
    "Poisson",
    "PoissonSampled",
    "PrivacyProfile",
    "Process",
    "PureDP",
    "RDPFilter",
    "RMinSep",
    "RandomizedResponse",
    "Report",
    "StorageError",
    "Strategy",
    "Tally",
    "TrainingPlan",
    "TrainingReport",
    "TrainingRun",
    "TrainingStep",
    "TruncatedBMinSep",
    "TruncatedPoissonSampled",
    "UnionBound",
    "UnreachableError",
    "VerificationPlan",
    "WithReplacement",
    "WithoutReplacement",
    "__version__",
    "_core",
    "account",
    "b_min_sep_probability",
    "build_config",
    "calibrate",
    "calibrate_bandmf",
    "calibrate_batch_size",
    "calibrate_max_batch_size",
    "calibrate_noise_multiplier",
    "calibrate_sampling_probability",
    "calibrate_steps",
    "cyclic_poisson",
    "divide_target",
    "dp_sgd",
    "estimate_delta",
    "estimate_from_tally",
    "expected_batch_size",
    "gdp_budget",
    "get_include",
    "grid_delta",
    "grid_epsilon",
    "max_threads",
    "mean_bounds",
    "mean_interval",
    "plan_test",
    "plan_training",
    "plan_truncated_batches",
    "plan_verification",
    "plot_active",
    "plot_grid",
    "plot_individual",
    "plot_prefix_noise",
    "plot_profile",
    "plot_proof",
    "plot_truncation",
    "rdp_epsilon",
    "read_report",
    "sample_blocks",
    "sampling_probability_for",
    "set_threads",
    "summarise",
    "sweep_neighbourhood",
]

globals().update(protect([(name, globals()[name]) for name in __all__]))
del protect
