"""Certified differential-privacy accounting.

Describe what is released, then ask:

>>> import hockeystick as hs
>>> step = hs.PoissonSampled(hs.Gaussian(noise_multiplier=1.0), sampling_probability=0.01)
>>> profile = hs.account(step * 1000)
>>> lower, upper = profile.epsilon_bounds(delta=1e-5)
>>> lower <= upper < 2.0
True
"""

import os as _os

from ._base.interpreters import require_main as _require_main
from ._base.lazy import attach as _attach
from ._base.loading import install as _install

_require_main(__name__)
_install()

# What 0.1 showed here and a room shows now.
_MOVED = {
    "mechanisms": "ADJACENCIES DPSGD Process cyclic_poisson",
    "accounting": (
        "Answer BatchPlan CalibratedFloat CalibratedInt Certificate Grid Report UnionBound "
        "calibrate_max_batch_size plan_truncated_batches rdp_curve rdp_epsilon"
    ),
    "individual": (
        "ApproximateIndividualFilter GDPFilter GDPOdometer GroupSummary IndividualBounds "
        "IndividualGDPOdometer IndividualRDPFilter RDPFilter gdp_budget summarise"
    ),
    "matrix": (
        "Banded InverseBanded LowerTriangular MultiAttributionBMinSep RMinSep Strategy "
        "TruncatedBMinSep b_min_sep_probability"
    ),
    "sampling": (
        "BatchSampler BoundedAttribution NeighbourhoodSweep PaddedBatch expected_batch_size "
        "sampling_probability_for sweep_neighbourhood"
    ),
    "montecarlo": (
        "CalibratedBandMF DeltaEstimate Empirical EmpiricalTally MeanTest Tally VerificationPlan "
        "divide_target estimate_from_tally mean_bounds mean_interval plan_test plan_verification "
        "sample_blocks"
    ),
    "training": (
        "DeviationError Guarantee TrainingPlan TrainingReport TrainingRun TrainingStep "
        "plot_prefix_noise plot_proof read_report"
    ),
    "plots": "plot_active plot_grid plot_individual plot_truncation",
}


def get_include() -> str:
    """Directory of the C and C++ headers, for compiling against the core: ``-I$(python -c ...)``."""
    return _os.path.join(_os.path.dirname(_os.path.abspath(__file__)), "include")


def get_cmake_dir() -> str:
    """Directory of the CMake package, for linking with the core: ``cmake -Dhockeystick_DIR=$(python -c ...)``."""
    return _os.path.join(_os.path.dirname(_os.path.abspath(__file__)), "lib", "cmake", "hockeystick")


__getattr__, __dir__, __all__ = _attach(
    __name__, __file__, moved={name: room for room, names in _MOVED.items() for name in names.split()}
)
