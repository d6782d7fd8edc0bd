"""Stand-in: Poisson samples of record indices."""

from collections.abc import Iterator

import numpy as np


class UniformWithReplacementSampler:
    def __init__(self, *, num_samples: int, sample_rate: float) -> None:
        self.num_samples, self.sample_rate, self.generator = num_samples, sample_rate, None

    def __len__(self) -> int:
        return int(1 / self.sample_rate)

    def __iter__(self) -> Iterator[list[int]]:
        generator = np.random.default_rng(0)
        for _ in range(len(self)):
            yield np.flatnonzero(generator.random(self.num_samples) < self.sample_rate).tolist()


class DistributedUniformWithReplacementSampler(UniformWithReplacementSampler):
    pass
