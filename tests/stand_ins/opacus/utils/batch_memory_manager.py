"""Stand-in: large batches, a part at a time."""

import copy
from typing import Any


class BatchMemoryManager:
    def __init__(self, *, data_loader: Any, max_physical_batch_size: int, optimizer: Any) -> None:
        self.loader, self.most, self.optimizer = data_loader, max_physical_batch_size, optimizer

    def __enter__(self) -> Any:
        loader = copy.copy(self.loader)
        loader.batch_sampler = Parts(self.loader.batch_sampler, self.most, self.optimizer)
        return loader

    def __exit__(self, *_: object) -> None:
        pass


class Parts:
    """Announces to the optimizer, for each part, whether it is not the last one of its batch."""

    def __init__(self, sampler: Any, most: int, optimizer: Any) -> None:
        self.sampler, self.most, self.optimizer = sampler, most, optimizer

    def __iter__(self) -> Any:
        for batch in self.sampler:
            for start in range(0, max(len(batch), 1), self.most):
                self.optimizer.signal_skip_step(do_skip=start + self.most < len(batch))
                yield batch[start : start + self.most]
