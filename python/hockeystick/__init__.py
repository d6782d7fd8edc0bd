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
from ._core import __version__, build_config, max_threads, set_threads
from .accountant import Accountant
from .adjacency import ADJACENCIES
from .attribution import (
    AttributionGraph,
    BoundedAttribution,
    NeighbourhoodSweep,
    expected_batch_size,
    sampling_probability_for,
    sweep_neighbourhood,
)
from .bandmf import BandMF
from .bandmf_calibration import CalibratedBandMF, calibrate_bandmf
from .batch_limits import BatchPlan, UnionBound, calibrate_max_batch_size, plan_truncated_batches
from .calibrate import (
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
from .confidence import VerificationPlan, mean_interval, plan_verification
from .cyclic import cyclic_poisson
from .dp_sgd import DPSGD, dp_sgd
from .empirical import Empirical
from .evidence import mean_bounds
from .filters import (
    GDPFilter,
    GDPOdometer,
    IndividualGDPFilter,
    IndividualGDPOdometer,
    IndividualRDPFilter,
    RDPFilter,
    gdp_budget,
)
from .grid import Grid, grid_delta, grid_epsilon
from .individual import (
    ApproximateIndividualFilter,
    GroupSummary,
    IndividualAccountant,
    IndividualBounds,
    summarise,
)
from .mean_test import MeanTest, divide_target, plan_test
from .mechanisms import (
    ApproximateDP,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    PoissonSampled,
    Process,
    PureDP,
    RandomizedResponse,
    WithoutReplacement,
    WithReplacement,
)
from .mixtures import Mixture, MixtureOfGaussians
from .montecarlo import DeltaEstimate, estimate_delta, estimate_from_tally, sample_blocks
from .noise import CorrelatedNoise
from .pld import PrivacyProfile, account
from .plots import plot_grid, plot_profile, plot_truncation
from .plots_individual import plot_active, plot_individual
from .rdp import rdp_epsilon
from .report import Answer, Bounds, Report
from .sampling import (
    BallsInBins,
    BMinSep,
    CyclicPoisson,
    MultiAttributionBMinSep,
    Poisson,
    RMinSep,
    TruncatedBMinSep,
    b_min_sep_probability,
)
from .storage import StorageError
from .strategies import Banded, BandedToeplitz, Identity, InverseBanded, LowerTriangular, Strategy
from .tally import EmpiricalTally, Tally
from .truncated import TruncatedPoissonSampled
from .validation import ParameterError, ParameterTypeError


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
    "BoundedAttribution",
    "Bounds",
    "CalibratedBandMF",
    "CalibratedFloat",
    "CalibratedInt",
    "Certificate",
    "CorrelatedNoise",
    "CyclicPoisson",
    "DeltaEstimate",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Empirical",
    "EmpiricalTally",
    "GDPFilter",
    "GDPOdometer",
    "Gaussian",
    "Grid",
    "GroupSummary",
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
    "plan_truncated_batches",
    "plan_verification",
    "plot_active",
    "plot_grid",
    "plot_individual",
    "plot_profile",
    "plot_truncation",
    "rdp_epsilon",
    "sample_blocks",
    "sampling_probability_for",
    "set_threads",
    "summarise",
    "sweep_neighbourhood",
]
