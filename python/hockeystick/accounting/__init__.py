"""From a description to certified answers: profile, grid, report, ledger, calibration."""

from .._base.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "accountant": "Accountant",
        "batch_limits": "BatchPlan UnionBound calibrate_max_batch_size plan_truncated_batches",
        "calibration": (
            "CalibratedFloat CalibratedInt Certificate UnreachableError calibrate calibrate_batch_size "
            "calibrate_noise_multiplier calibrate_sampling_probability calibrate_steps"
        ),
        "grid": "Grid grid_delta grid_epsilon",
        "profile": "PrivacyProfile account",
        "rdp": "best_rdp_epsilon rdp_curve rdp_epsilon",
        "report": "Answer Report",
        "risk": "Risk",
    },
)
