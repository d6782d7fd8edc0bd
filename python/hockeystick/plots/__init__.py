"""Pictures of profiles, grids and individual budgets; they need matplotlib."""

from .._base.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "individual": "plot_active plot_individual",
        "profiles": "plot_grid plot_profile plot_truncation",
    },
)
