"""Matrix mechanisms: strategy matrices, participation schemes, correlated noise, BandMF."""

from .._base.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "bandmf": "BandMF",
        "noise": "CorrelatedNoise",
        "scheme": "Scheme",
        "schemes": (
            "BMinSep BallsInBins CyclicPoisson MultiAttributionBMinSep Poisson RMinSep TruncatedBMinSep "
            "b_min_sep_probability"
        ),
        "strategies": "Banded BandedToeplitz Identity InverseBanded LowerTriangular",
        "strategy": "Strategy",
    },
)
