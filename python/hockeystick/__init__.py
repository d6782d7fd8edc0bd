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
from .dp_sgd import DPSGD, dp_sgd
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
from .pld import PrivacyProfile, account
from .plots import plot_grid, plot_profile
from .plots_individual import plot_active, plot_individual
from .rdp import rdp_epsilon
from .report import Answer, Bounds, Report
from .storage import StorageError
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
    "Bounds",
    "CalibratedFloat",
    "CalibratedInt",
    "Certificate",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "GDPFilter",
    "GDPOdometer",
    "Gaussian",
    "Grid",
    "GroupSummary",
    "IndividualAccountant",
    "IndividualBounds",
    "IndividualGDPFilter",
    "IndividualGDPOdometer",
    "IndividualRDPFilter",
    "Laplace",
    "ParameterError",
    "ParameterTypeError",
    "PoissonSampled",
    "PrivacyProfile",
    "Process",
    "PureDP",
    "RDPFilter",
    "RandomizedResponse",
    "Report",
    "StorageError",
    "UnreachableError",
    "WithReplacement",
    "WithoutReplacement",
    "__version__",
    "_core",
    "account",
    "build_config",
    "calibrate",
    "calibrate_batch_size",
    "calibrate_noise_multiplier",
    "calibrate_sampling_probability",
    "calibrate_steps",
    "dp_sgd",
    "gdp_budget",
    "get_include",
    "grid_delta",
    "grid_epsilon",
    "max_threads",
    "plot_active",
    "plot_grid",
    "plot_individual",
    "plot_profile",
    "rdp_epsilon",
    "set_threads",
    "summarise",
]
