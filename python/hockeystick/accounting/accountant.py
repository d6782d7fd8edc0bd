"""A ledger for a running job: rates and noise may change on the way."""

from __future__ import annotations

import warnings
from typing import Any

from .._base import storage
from .._base.bounds import Bounds
from .._base.exclusive import Exclusive, holding, undivided, unlocked
from .._base.files import refusing
from .._base.types import AnyPath
from .._base.validation import ParameterError, instance, integer, real
from ..mechanisms import adjacency as _adjacency
from ..mechanisms.descriptions import Composable, Process, composition
from ..mechanisms.steps import from_dict, to_dict
from .profile import PrivacyProfile
from .report import Report
from .settings import DEFAULT_ACCURACY, DEFAULT_MEMORY_LIMIT

_KIND = "accountant"


class Answers(Exclusive):
    """What accountants answer of everything so far: this room's, and those in the clothes of other libraries.

    Those in other clothes have an `Accountant` that does the work, and may have a ``process`` of their own, which is then what
    counts. Threads and forks: see `Exclusive`.
    """

    _accountant: Accountant
    _accuracy: float

    @property
    def process(self) -> Process:
        """Everything that happened so far."""
        return self._accountant.process

    @property
    def adjacency(self) -> str:
        """The adjacency the answers hold under."""
        return self._accountant.adjacency

    def profile(self) -> PrivacyProfile:
        """The privacy profile of everything so far; later steps do not change it."""
        process = self.process
        if process != self._accountant.process:
            begun = Accountant(self.adjacency, self._accuracy)
            begun.step(process)
            self._accountant = begun
        return self._accountant.profile()

    def epsilon_bounds(self, delta: float) -> Bounds:
        """Bounds(lower, upper) on epsilon at ``delta`` so far."""
        return self.profile().epsilon_bounds(delta)

    def delta_bounds(self, epsilon: float) -> Bounds:
        """Bounds(lower, upper) on delta at ``epsilon`` so far."""
        return self.profile().delta_bounds(epsilon)

    def get_epsilon(self, delta: float) -> float:
        """Certified epsilon at ``delta`` so far, by the name that Opacus has for it."""
        return self.epsilon_bounds(delta).upper

    def get_delta(self, epsilon: float) -> float:
        """Certified delta at ``epsilon`` so far, by the name that dp_accounting has for it."""
        return self.delta_bounds(epsilon).upper

    def report(self, delta: float | None = None, epsilon: float | None = None) -> Report:
        """Everything known so far; see `PrivacyProfile.report`."""
        return self.profile().report(delta, epsilon)


def warn_of_forgotten(before: Process, after: Process) -> None:
    """Warn where a ledger that is loaded lacks steps of the one that it takes the place of: what they released, others may have seen."""
    kept = dict(after)
    lost = sum(max(0, count - kept.get(step, 0)) for step, count in before)
    if lost:
        warnings.warn(
            f"load_state_dict: {lost} of {before.steps} recorded steps are not in the ledger that is loaded, and no longer count. "
            "They were released, and they do count where anything of them was looked at, if only to choose what to go back to: load into a "
            "new accountant to account for another run, and to go on from older weights keep the ledger as it is",
            stacklevel=3,
        )


class Accountant(Answers):
    """Collects steps as they happen and answers for all of them together.

    Only `step` and `merge` change it; asking does not. ``adjacency``, ``accuracy`` and
    ``memory_limit`` are those of `account`. The answers hold for steps whose mechanisms, and whose number, do not depend on the
    outputs before; where they do, `GDPFilter` and `GDPOdometer` have a proof. Threads may share it: one call at a time,
    none is lost; in a forked child every call raises `ForkedError`.

    >>> from hockeystick import Gaussian, PoissonSampled, account
    >>> accountant = Accountant()
    >>> early = PoissonSampled(Gaussian(1.2), sampling_probability=0.01)
    >>> late = PoissonSampled(Gaussian(0.9), sampling_probability=0.02)
    >>> accountant.step(early, steps=100)
    >>> accountant.step(late)
    >>> accountant.process == early * 100 + late
    True
    >>> accountant.epsilon(delta=1e-5) == account(early * 100 + late).epsilon(delta=1e-5)
    True
    """

    def __init__(
        self,
        adjacency: str = "add_or_remove",
        accuracy: float = DEFAULT_ACCURACY,
        memory_limit: int = DEFAULT_MEMORY_LIMIT,
    ) -> None:
        self._adjacency = _adjacency.check(Process(), adjacency)
        self._accuracy = real("accuracy", accuracy, 1e-9, 1.0)
        self._memory_limit = integer("memory_limit", memory_limit, 2**20)
        self._process = Process()
        self._profile: tuple[Process, PrivacyProfile] | None = None
        self._seen = storage.Seen()

    @property
    def process(self) -> Process:
        """Everything that happened so far."""
        return self._process

    @property
    def adjacency(self) -> str:
        """The adjacency the answers hold under."""
        return self._adjacency

    def _kept(self) -> dict[str, Any]:
        return {**super()._kept(), "_profile": None}

    def __repr__(self) -> str:
        return f"Accountant({self._process}, adjacency={self._adjacency!r})"

    @undivided
    def step(self, mechanism: Composable, steps: int = 1) -> None:
        """Record that ``mechanism`` (or a whole composition) was run ``steps`` times.

        Raises before anything is recorded if the step cannot be accounted under this adjacency.
        """
        added = composition(mechanism, "mechanism") * steps
        _adjacency.check(added, self._adjacency)
        self._process, self._profile = self._process + added, None

    @unlocked
    def merge(self, other: Accountant) -> None:
        """Record everything that ``other`` recorded, too: both ran on the same data."""
        instance("other", other, Accountant, "an Accountant")
        if other.adjacency != self._adjacency:
            raise ParameterError(
                f"other.adjacency = {other.adjacency!r}: must be {self._adjacency!r}; guarantees "
                "under different adjacencies do not compose"
            )
        with holding(self, other):
            self.step(other.process)

    def profile(self) -> PrivacyProfile:
        """The privacy profile of everything so far; later steps do not change it."""
        made, process = self._profile, self._process
        if made is None or made[0] is not process:
            made = process, PrivacyProfile(process, self._adjacency, self._accuracy, self._memory_limit)
            self._profile = made
        return made[1]

    def epsilon(self, delta: float) -> float:
        """Certified epsilon at ``delta`` so far; see `PrivacyProfile.epsilon`."""
        return self.profile().epsilon(delta)

    def delta(self, epsilon: float) -> float:
        """Certified delta at ``epsilon`` so far; see `PrivacyProfile.delta`."""
        return self.profile().delta(epsilon)

    def save(self, path: AnyPath) -> None:
        """Write the ledger to one file, atomically; `load` resumes from it.

        StorageError, and the file stays as it is, if it is not the one that this ledger was loaded from or saved to last: another
        process has saved its own spending there.
        """
        header: dict[str, Any] = {
            "process": to_dict(self._process),
            "adjacency": self._adjacency,
            "accuracy": self._accuracy,
            "memory_limit": self._memory_limit,
        }
        storage.write(path, _KIND, header, {}, seen=self._seen)

    @classmethod
    def load(cls, path: AnyPath) -> Accountant:
        """Read what `save` wrote; StorageError (a ValueError) says why a file is refused."""
        seen = storage.Seen()
        header, _ = storage.read(path, _KIND, seen=seen)
        with refusing(path):
            accountant = cls(header["adjacency"], header["accuracy"], header["memory_limit"])
            accountant.step(from_dict(header["process"]))
        accountant._seen = seen
        return accountant
