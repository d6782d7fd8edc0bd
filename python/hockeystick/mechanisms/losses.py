"""Any mechanism whose privacy-loss distribution is known (docs/mechanisms/pairs.md, "Privacy loss distributions")."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from .._base.fields import Probability
from .._base.validation import ParameterError, ParameterTypeError, vector
from .atoms import Atoms
from .core_pairs import Pairs, bracket
from .finite import Given, Probabilities, check_total, short
from .ratios import fewer, from_losses, reversed_bracket
from .steps import Step


@dataclass(frozen=True, repr=False)
class PrivacyLoss(Given):
    """Any mechanism whose privacy loss is at most this one: ``losses[i]`` with probability ``probabilities[i]``, else +inf.

    With P the output with a record and Q without it, the loss is ln P/Q under P, and delta(epsilon) is at most
    infinity_mass + sum_i probabilities[i] max(0, 1 - e^(epsilon - losses[i])) under "remove". ``add`` is the loss
    distribution of the other direction, ln Q/P under Q; without it, it follows from this one: -losses[i] with probability
    probabilities[i] e^(-losses[i]), and +inf with what these lack to 1. Losses are finite, in any order, equal ones
    allowed; probabilities and ``infinity_mass`` sum to 1 to within 1e-12 (the largest stands for what the others leave of
    1), and sum_i probabilities[i] e^(-losses[i]), Q's mass where P has any, is at most 1 + 1e-12 (what is above 1 by more
    than 2e-15 is taken away by raising all losses by its logarithm). Under "replace_one", ``add`` must be given, and the same.

    >>> from hockeystick import account
    >>> from math import exp, log
    >>> response = PrivacyLoss([1.0, -1.0], [exp(1) / (1 + exp(1)), 1 / (1 + exp(1))])
    >>> abs(account(response * 10).epsilon(1e-5) - 10.0) < 1e-3
    True
    """

    losses: Annotated[tuple[float, ...], vector]
    probabilities: Probabilities
    infinity_mass: Probability = 0.0
    add: PrivacyLoss | None = None
    noise_convention = "a privacy-loss distribution, as given"
    reference = "docs/mechanisms/pairs.md (the losses as given)"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.losses) != len(self.probabilities):
            raise ParameterError(
                f"losses, probabilities: must be of equal length; here there are {len(self.losses)} and {len(self.probabilities)}"
            )
        check_total("probabilities, infinity_mass", math.fsum([*self.probabilities, self.infinity_mass]))
        if self.add is not None and not isinstance(self.add, PrivacyLoss):
            raise ParameterTypeError(
                f"add = {self.add!r}: must be a PrivacyLoss, not {type(self.add).__name__}"
            )
        if self.add is not None and self.add.add is not None:
            raise ParameterError(f"add = {self.add!r}: must be a PrivacyLoss without an ``add`` of its own")
        self._atoms()  # which refuses losses that belong to no pair

    def __repr__(self) -> str:
        add = "" if self.add is None else f", add={self.add!r}"
        return (
            f"PrivacyLoss(losses={short(self.losses)}, probabilities={short(self.probabilities)}, "
            f"infinity_mass={self.infinity_mass!r}{add})"
        )

    def _atoms(self) -> Atoms:
        return from_losses(np.array(self.losses), np.array(self.probabilities), self.infinity_mass)

    def simplified(self) -> Step | None:
        silent = self.infinity_mass == 0.0 and not any(self.losses)
        return None if silent and (self.add is None or self.add.simplified() is None) else self

    def is_own_reverse(self) -> bool:
        return self.add is not None and replace(self, add=None) == self.add

    def both_ways(self) -> Pairs:
        atoms = self._atoms()
        remove = bracket(fewer(atoms))
        if self.is_own_reverse():
            return Pairs(remove, remove)
        return Pairs(remove, bracket(fewer(self.add._atoms()) if self.add else reversed_bracket(atoms)))
