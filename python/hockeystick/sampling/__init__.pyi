from .attribution import AttributionGraph as AttributionGraph
from .batches import BatchSampler as BatchSampler
from .batches import PaddedBatch as PaddedBatch
from .bounding import BoundedAttribution as BoundedAttribution
from .sweep import NeighbourhoodSweep as NeighbourhoodSweep
from .sweep import expected_batch_size as expected_batch_size
from .sweep import sampling_probability_for as sampling_probability_for
from .sweep import sweep_neighbourhood as sweep_neighbourhood
