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
from .noise import CorrelatedNoise
from .pld import PrivacyProfile, account
from .plots import plot_grid, plot_profile
from .report import Answer, Bounds, Report
from .storage import StorageError
from .strategies import Banded, BandedToeplitz, Identity, InverseBanded, LowerTriangular, Strategy
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
    "AttributionGraph",
    "Banded",
    "BandedToeplitz",
    "BoundedAttribution",
    "Bounds",
    "CalibratedFloat",
    "CalibratedInt",
    "Certificate",
    "CorrelatedNoise",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Gaussian",
    "Grid",
    "Identity",
    "InverseBanded",
    "Laplace",
    "LowerTriangular",
    "NeighbourhoodSweep",
    "ParameterError",
    "ParameterTypeError",
    "PoissonSampled",
    "PrivacyProfile",
    "Process",
    "PureDP",
    "RandomizedResponse",
    "Report",
    "StorageError",
    "Strategy",
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
    "expected_batch_size",
    "get_include",
    "grid_delta",
    "grid_epsilon",
    "max_threads",
    "plot_grid",
    "plot_profile",
    "sampling_probability_for",
    "set_threads",
    "sweep_neighbourhood",
]
