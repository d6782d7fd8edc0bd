"""What accountants in the clothes of other libraries answer alike."""

from __future__ import annotations

from .._base.bounds import Bounds
from .._base.exclusive import Exclusive
from ..accounting.accountant import Accountant
from ..accounting.profile import PrivacyProfile


class Answers(Exclusive):
    """The base of adapters that ask an `Accountant`. Threads and forks: see `Exclusive`."""

    _accountant: Accountant

    def _current(self) -> Accountant:
        """The accountant, which knows of everything so far."""
        return self._accountant

    @property
    def adjacency(self) -> str:
        """The adjacency the answers hold under."""
        return self._accountant.adjacency

    def profile(self) -> PrivacyProfile:
        """The privacy profile of everything so far."""
        return self._current().profile()

    def get_epsilon(self, delta: float) -> float:
        """Certified epsilon at ``delta`` so far."""
        return self._current().epsilon(delta)

    def get_delta(self, epsilon: float) -> float:
        """Certified delta at ``epsilon`` so far."""
        return self._current().delta(epsilon)

    def epsilon_bounds(self, delta: float) -> Bounds:
        """Bounds(lower, upper) on epsilon at ``delta`` so far."""
        return self._current().epsilon_bounds(delta)
