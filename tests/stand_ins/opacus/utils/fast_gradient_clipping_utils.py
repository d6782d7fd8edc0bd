"""Stand-in: the criterion of ghost clipping, whose losses are what it is called with."""

from types import SimpleNamespace
from typing import Any


class DPLossFastGradientClipping:
    def __init__(self, module: Any, optimizer: Any, criterion: Any, loss_reduction: str = "mean") -> None:
        self.module, self.optimizer, self.criterion = module, optimizer, criterion

    def __call__(self, *args: Any, shape: Any = None, **kwargs: Any) -> Any:
        return SimpleNamespace(loss_per_sample=self.criterion(*args, **kwargs))
