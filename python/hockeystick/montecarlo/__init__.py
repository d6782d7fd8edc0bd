"""Estimates with confidence, importance sampling, and estimate–verify–release."""

from .._base.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "bandmf_calibration": "CalibratedBandMF calibrate_bandmf",
        "confidence": "VerificationPlan mean_interval plan_verification",
        "empirical": "Empirical",
        "estimate": "DeltaEstimate estimate_delta estimate_from_tally sample_blocks",
        "evidence": "mean_bounds",
        "mean_test": "MeanTest divide_target plan_test",
        "tally": "EmpiricalTally Tally",
    },
)
