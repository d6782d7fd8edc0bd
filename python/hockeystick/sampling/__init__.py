"""Drawing batches, and who owns which example."""

from .._base.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "attribution": "AttributionGraph",
        "batches": "BatchSampler PaddedBatch",
        "bounding": "BoundedAttribution",
        "sweep": "NeighbourhoodSweep expected_batch_size sampling_probability_for sweep_neighbourhood",
    },
)
