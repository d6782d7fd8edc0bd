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
from .bandmf import BandMF
from .bandmf_calibration import CalibratedBandMF, calibrate_bandmf
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
from .dp_sgd import DPSGD, dp_sgd
from .grid import Grid, grid_delta, grid_epsilon
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
from .montecarlo import DeltaEstimate, estimate_delta, estimate_from_tally, sample_blocks
from .pld import PrivacyProfile, account
from .plots import plot_grid, plot_profile
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
from .tally import Tally
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
    "BMinSep",
    "BallsInBins",
    "BandMF",
    "Banded",
    "BandedToeplitz",
    "Bounds",
    "CalibratedBandMF",
    "CalibratedFloat",
    "CalibratedInt",
    "Certificate",
    "CyclicPoisson",
    "DeltaEstimate",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Gaussian",
    "Grid",
    "Identity",
    "InverseBanded",
    "Laplace",
    "LowerTriangular",
    "MultiAttributionBMinSep",
    "ParameterError",
    "ParameterTypeError",
    "Poisson",
    "PoissonSampled",
    "PrivacyProfile",
    "Process",
    "PureDP",
    "RMinSep",
    "RandomizedResponse",
    "Report",
    "StorageError",
    "Strategy",
    "Tally",
    "TruncatedBMinSep",
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
    "calibrate_noise_multiplier",
    "calibrate_sampling_probability",
    "calibrate_steps",
    "dp_sgd",
    "estimate_delta",
    "estimate_from_tally",
    "get_include",
    "grid_delta",
    "grid_epsilon",
    "max_threads",
    "mean_interval",
    "plan_verification",
    "plot_grid",
    "plot_profile",
    "sample_blocks",
    "set_threads",
]
