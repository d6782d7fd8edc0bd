"""Stand-in: a model that learns nothing, on data that are numbers."""

import contextlib
import itertools
from collections import deque
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np


class Tensor:
    """Knows its number of rows, and that it took part in a backward pass."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def backward(self) -> None:
        pass


class Dataset:
    pass


class TensorDataset(Dataset):
    def __init__(self, *tensors: Tensor) -> None:
        self.tensors = tensors

    def __len__(self) -> int:
        return self.tensors[0].rows


def default_collate(examples: list[Any]) -> Any:
    return tuple(np.stack(column) for column in zip(*examples, strict=True))


class BatchSampler(list[Any]):
    """Batches of records in order; a list here."""


class DataLoader:
    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        batch_sampler: Any = None,
        collate_fn: Any = None,
        num_workers: int = 0,
        prefetch_factor: int | None = None,
    ) -> None:
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = prefetch_factor or (2 if num_workers else None)
        rows = len(dataset)
        self.batch_sampler = batch_sampler or BatchSampler(
            range(start, min(start + batch_size, rows)) for start in range(0, rows, batch_size)
        )
        self.collate_fn = collate_fn

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Any:
        batches, ahead = iter(self.batch_sampler), deque[Any]()
        for _ in range(self.num_workers * (self.prefetch_factor or 0)):
            ahead.extend(itertools.islice(batches, 1))
        while True:
            ahead.extend(itertools.islice(batches, 1))
            if not ahead:
                return
            indices = ahead.popleft()
            if self.collate_fn is not None:
                yield self.collate_fn([self.dataset[i] for i in indices])
            else:
                yield tuple(Tensor(len(indices)) for _ in self.dataset.tensors)


class Linear:
    def __init__(self, inputs: int, outputs: int) -> None:
        self.shape = (outputs, inputs)
        self.training = True

    def train(self) -> None:
        self.training = True

    def eval(self) -> None:
        self.training = False

    def parameters(self) -> list[Any]:
        return [self.shape]

    def __call__(self, x: Tensor) -> Tensor:
        return Tensor(x.rows)


class SGD:
    def __init__(self, parameters: Any, lr: float) -> None:
        self.parameters, self.lr = parameters, lr

    def zero_grad(self) -> None:
        pass

    def step(self) -> None:
        pass


def manual_seed(seed: int) -> None:
    np.random.default_rng(seed)


class Generator:
    """Draws nothing."""

    def __init__(self, device: Any) -> None:
        self.device = device

    def manual_seed(self, seed: int) -> None:
        pass

    def get_state(self) -> Any:
        return SimpleNamespace(numel=lambda: 0)


def randn(rows: int, columns: int) -> Tensor:
    return Tensor(rows)


def randint(low: int, high: int, size: tuple[int, ...]) -> Tensor:
    return Tensor(size[0])


_grad = [True]


def is_grad_enabled() -> bool:
    return _grad[0]


def is_autocast_enabled(device_type: str) -> bool:
    return False


@contextlib.contextmanager
def no_grad() -> Iterator[None]:
    _grad[0] = False
    try:
        yield
    finally:
        _grad[0] = True


float16, float32, float64 = "torch.float16", "torch.float32", "torch.float64"


def get_default_dtype() -> str:
    return float32


def get_default_device() -> Any:
    return SimpleNamespace(type="cpu")


class DistributedDataParallel:
    pass


nn = SimpleNamespace(
    Linear=Linear,
    functional=SimpleNamespace(cross_entropy=lambda output, target: Tensor(target.rows)),
    parallel=SimpleNamespace(DistributedDataParallel=DistributedDataParallel),
)
optim = SimpleNamespace(SGD=SGD)
utils = SimpleNamespace(
    data=SimpleNamespace(
        Dataset=Dataset, TensorDataset=TensorDataset, DataLoader=DataLoader, default_collate=default_collate
    )
)


# Nothing is being traced; asked at every batch.
jit = SimpleNamespace(is_tracing=lambda: False)
fx = SimpleNamespace(_symbolic_trace=SimpleNamespace(is_fx_symbolic_tracing=lambda: False))
_C = SimpleNamespace(_functorch=SimpleNamespace(get_interpreter_stack=lambda: None))
