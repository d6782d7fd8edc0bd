"""What noise in the gradients does to the iterates: momentum, learning rates and weight decay as a matrix (docs/matrix/workloads.md).

>>> workload = Workload(learning_rates=(1.0, 0.5, 0.25), momentum=0.9)
>>> workload.matrix(3)
array([[1.    , 0.    , 0.    ],
       [1.45  , 0.5   , 0.    ],
       [1.6525, 0.725 , 0.25  ]])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import numpy as np

from .._base.types import Array, Numbers
from .._base.validation import (
    NonNegative,
    ParameterError,
    Probability,
    check_fields,
    instance,
    integer,
    numbers_in,
    real,
    reals,
)

MOST_GRAM = 2**13
"""*Speed*: most steps of a strategy optimised for learning rates that vary: a table of 512 MiB."""


def _rates(name: str, value: Any) -> float | tuple[float, ...]:
    if np.ndim(value) == 0:
        return real(name, value, 0.0)
    array = reals(name, value, 0.0)
    if array.ndim != 1 or not array.any():
        raise ParameterError(
            f"{name}: must be a number or one for each step, not all 0, not of shape {array.shape}"
        )
    return tuple(array.tolist())


_Rates: TypeAlias = Annotated[float | Numbers, _rates]


@dataclass(frozen=True)
class Workload:
    """The matrix A with which SGD turns gradients into iterates; the default sums them up (prefix sums).

    v_i = ``momentum`` v_{i-1} + g_i and x_i = (1 - eta_i ``weight_decay``) x_{i-1} - eta_i v_i, where eta_i is
    ``learning_rates`` or its entry i (a tuple of one >= 0 for each step); -A is the map from g to x (Denisov et al. 2022;
    Kalinin and Lampert 2024). ``momentum`` is in [0, 1]; ``weight_decay`` >= 0 is decoupled from the momentum, and no
    eta_i times it exceeds 1. Errors of a strategy C are the squared row norms of A C^{-1}.
    """

    learning_rates: _Rates = 1.0
    momentum: Probability = 0.0
    weight_decay: NonNegative = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        largest = float(np.max(self.learning_rates))
        real("weight_decay * the largest learning rate", self.weight_decay * largest, 0.0, 1.0)

    @property
    def is_toeplitz(self) -> bool:
        """Whether the learning rate is constant, so that A is a Toeplitz matrix."""
        return not isinstance(self.learning_rates, tuple)

    def rates(self, steps: int) -> Array:
        """The learning rate of each step; ParameterError if there is another number of them."""
        steps = integer("steps", steps)
        if isinstance(self.learning_rates, tuple) and len(self.learning_rates) != steps:
            raise ParameterError(
                f"workload.learning_rates: {len(self.learning_rates)} of them, must be one for each of {steps} steps"
            )
        return np.broadcast_to(np.asarray(self.learning_rates, np.float64), steps)

    def iterates(self, gradients: Array) -> Array:
        """A ``gradients`` along the first axis, shape (steps, ...)."""
        gradients = numbers_in("gradients", gradients)
        if not gradients.ndim:
            raise ParameterError("gradients: must have shape (steps, ...), not ()")
        rates = self.rates(len(gradients))
        out = np.empty_like(gradients)
        velocity, place = np.zeros(out.shape[1:]), np.zeros(out.shape[1:])
        for i, (rate, kept) in enumerate(zip(rates, 1.0 - rates * self.weight_decay, strict=True)):
            velocity = self.momentum * velocity + gradients[i]
            place = kept * place + rate * velocity
            out[i] = place
        return out

    def matrix(self, steps: int) -> Array:
        """The dense (steps, steps) matrix A."""
        return self.iterates(np.eye(integer("steps", steps)))

    def response(self, steps: int) -> Array:
        """The first column of A."""
        impulse = np.zeros(integer("steps", steps, 1))
        impulse[0] = 1.0
        return self.iterates(impulse)

    def quadratic_form(self, steps: int) -> tuple[Array, Array]:
        """(r, W): with h = r(x)/C(x), h'W h is the sum of squares of A C^{-1}, C a Toeplitz matrix.

        W is empty where it would be diag(steps, ..., 1). Otherwise r is the response of the momentum alone, and W what the
        schedule and the decay make of it (docs/matrix/workloads.md, "Optimised for a workload"); up to 8192 steps.
        """
        steps = integer("steps", steps, 1)
        if self.is_toeplitz:
            return self.response(steps), np.empty(0)
        if steps > MOST_GRAM:
            raise ParameterError(
                f"steps = {steps}: must be at most {MOST_GRAM} to optimise for learning rates that vary"
            )
        rates = self.rates(steps)
        kept = 1.0 - rates * self.weight_decay
        # tail[l]: the sum over i >= l of the squared decay from step l to step i.
        tail = np.ones(steps)
        for i in range(steps - 2, -1, -1):
            tail[i] += kept[i + 1] ** 2 * tail[i + 1]
        gram = np.zeros((steps, steps))
        decay = np.ones(steps)  # decay[l]: that from step l - lag to step l
        for lag in range(steps):
            products = rates[: steps - lag] * rates[lag:] * decay[lag:] * tail[lag:]
            sums = np.cumsum(products[::-1])[::-1]
            first = np.arange(steps - lag)
            gram[first, first + lag] = gram[first + lag, first] = sums
            decay[lag + 1 :] *= kept[1 : steps - lag]
        return np.cumprod(np.concatenate([[1.0], np.full(steps - 1, self.momentum)])), gram


PREFIX_SUMS = Workload()
"""Plain SGD at a constant learning rate of 1."""


def checked(workload: Any) -> Workload:
    """It; ParameterTypeError for anything else."""
    return instance("workload", workload, Workload, "a Workload")
