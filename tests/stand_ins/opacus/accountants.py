"""Stand-in: the interface of an accountant, and the registry."""

import abc
import copy
from typing import Any


class IAccountant(abc.ABC):
    @abc.abstractmethod
    def __init__(self) -> None:
        self.history: list[Any] = []

    @abc.abstractmethod
    def step(self, *, noise_multiplier: float, sample_rate: float) -> None: ...

    @abc.abstractmethod
    def get_epsilon(self, delta: float, *args: Any, **kwargs: Any) -> float: ...

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @classmethod
    @abc.abstractmethod
    def mechanism(cls) -> str: ...

    def get_optimizer_hook_fn(self, sample_rate: float) -> Any:
        raise NotImplementedError

    def state_dict(self, destination: Any = None) -> Any:
        destination = {} if destination is None else destination
        destination.update(history=copy.deepcopy(self.history), mechanism=self.mechanism())
        return destination

    def load_state_dict(self, state_dict: Any) -> None:
        if not state_dict or "history" not in state_dict or "mechanism" not in state_dict:
            raise ValueError(f"not the state of an accountant: {state_dict!r}")
        if state_dict["mechanism"] != self.mechanism():
            raise ValueError(f"the state of another accountant: {state_dict['mechanism']!r}")
        self.history = state_dict["history"]


class RDPAccountant(IAccountant):
    """Only keeps a history."""

    def __init__(self) -> None:
        super().__init__()

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        self.history.append((noise_multiplier, sample_rate, 1))

    def get_epsilon(self, delta: float, *args: Any, **kwargs: Any) -> float:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.history)

    @classmethod
    def mechanism(cls) -> str:
        return "rdp"


_REGISTERED: dict[str, Any] = {"rdp": RDPAccountant}


def register_accountant(mechanism: str, accountant: Any, force: bool = False) -> None:
    if mechanism in _REGISTERED and not force:
        raise ValueError(f"{mechanism} is taken")
    _REGISTERED[mechanism] = accountant


def create_accountant(mechanism: str) -> Any:
    if mechanism not in _REGISTERED:
        raise ValueError(f"there is no {mechanism}")
    return _REGISTERED[mechanism]()
