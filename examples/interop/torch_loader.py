"""Batches of the accounted sampling scheme in PyTorch's DataLoader, stopped and resumed."""

import itertools

import hockeystick as hs
import numpy as np
import torch
from hockeystick.interop.torch import BatchLoader


class Points:
    """Any dataset with indices."""

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        return np.full(3, index, dtype=np.float32), np.array(index % 2)


scheme = hs.BMinSep(steps=30, min_sep=4, sampling_probability=0.01)
loader = BatchLoader(Points(), scheme.batches(dataset_size=1000, seed=1))
for x, _ in itertools.islice(loader, 10):  # one batch, one step: add the noise even if it is empty
    assert x.shape[1:] == (3,)
checkpoint = {"batches": loader.state_dict()}  # and the model, the noise; the seed stays in a safe place
left = [len(x) for x, _ in loader]
print(
    f"steps: {loader.step} of {len(loader)}, {torch.__name__} batches of {min(left)} to {max(left)} examples"
)

resumed = BatchLoader(Points(), scheme.batches(dataset_size=1000, seed=1))
resumed.load_state_dict(checkpoint["batches"])
print(f"resumed at step {resumed.step}; the same batches:", [len(x) for x, _ in resumed] == left)
