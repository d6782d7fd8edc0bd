"""A plan fixes what is accounted, a run draws exactly that, a report states it."""

from .._base.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "guarantee": "Guarantee",
        "pictures": "plot_prefix_noise plot_proof",
        "plan": "TrainingPlan plan_training",
        "report": "TrainingReport read_report",
        "run": "DeviationError TrainingRun TrainingStep",
    },
)
