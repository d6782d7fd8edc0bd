"""Flower: an implementation of its ``PrivacyAccountant`` protocol.

Hand it to a strategy such as ``DifferentialPrivacyServerSideFixedClipping(..., accountant=...)`` in the
place of Flower's own ``RdpAccountant``. The unit of privacy is one client (docs/interop/interop.md, section 3).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._base.exclusive import undivided
from .._base.lazy import needing
from .._base.validation import ParameterError, instance, integer, plain, real
from ..accounting.accountant import Accountant, Answers, warn_of_forgotten
from ..accounting.profile import account
from ..accounting.report import Report
from ..accounting.settings import DEFAULT_ACCURACY
from ..mechanisms.descriptions import Gaussian, PoissonSampled, Process, Step, WithoutReplacement

with needing("hockeystick.interop.flower needs Flower 1.35 or later", extra="flower"):
    from flwr.serverapp import (
        GaussianPrivacyEvent,
        NeighboringRelation,
        PrivacyConfig,
        PrivacySpent,
        SamplingMethod,
    )

METHOD = "hockeystick"
"""The ``accounting_method`` of what was spent, and the ``backend`` of saved states."""

_SCHEMA_VERSION = 1  # *format*: theirs
_EVENT = ("noise_multiplier", "sample_size", "population_size")

_ADJACENCIES = {
    SamplingMethod.POISSON: "add_or_remove",
    SamplingMethod.WITHOUT_REPLACEMENT: "replace_one",
    SamplingMethod.NO_AMPLIFICATION: "zero_out",
}


_MOST_ROUNDED = 64  # *limit*: rounding lets a client move the sum by 1/64 of its clipping norm more


def check_arrays(arrays: Any, sensitivity: float | None = None) -> None:
    """Raise ParameterError unless Flower clips all of ``arrays`` (an ``ArrayRecord``, or a list of NumPy arrays) and adds noise to them.

    Flower scales arrays in place, which leaves a single number, of shape (), as it is: a client moves it by whatever it likes, and with
    `LocalDpMod` it gets no noise. BatchNorm has one, ``num_batches_tracked``. In 16 bits what was clipped is rounded. ``sensitivity``: by
    how much a client may move the average, clipping norm over number of clients; numbers may not be so large, or so many, that what
    rounding may move all of them by (the root of the sum of the squares of their steps) is more than 1/64 of it, whatever the noise is.
    Ask this once, of the weights that training begins with.

    >>> check_arrays([np.zeros((3, 4)), np.zeros(4)])
    >>> check_arrays({"scale": np.array(1.0)})
    Traceback (most recent call last):
    ...
    hockeystick._base.validation.ParameterError: arrays['scale']: has shape (), must have a dimension; Flower neither clips nor noises a single number: reshape it to (1,), or do not aggregate it
    """
    if sensitivity is not None:
        sensitivity = real("sensitivity", sensitivity, 0.0, open_low=True)
    steps = 0.0
    for name, array in arrays.items() if hasattr(arrays, "items") else enumerate(arrays):
        values = np.asarray(array.numpy() if hasattr(array, "numpy") else array)
        if values.ndim == 0:
            raise ParameterError(
                f"arrays[{name!r}]: has shape (), must have a dimension; Flower neither clips nor noises a single number: reshape it "
                "to (1,), or do not aggregate it"
            )
        if values.dtype not in (np.float32, np.float64):
            raise ParameterError(
                f"arrays[{name!r}].dtype = {values.dtype}: must be float32 or float64; what was clipped is rounded when it is added to others"
            )
        if sensitivity is None:
            continue
        largest = np.max(np.abs(values), initial=0.0)
        if not np.isfinite(largest):
            raise ParameterError(f"arrays[{name!r}]: must be finite, and holds {largest}")
        steps = math.hypot(steps, math.sqrt(values.size) * float(np.spacing(largest)))
        if not steps * _MOST_ROUNDED <= sensitivity:
            raise ParameterError(
                f"sensitivity = {sensitivity!r}: must be at least {_MOST_ROUNDED * steps:.3g}, {_MOST_ROUNDED} times what {values.dtype} may round all numbers "
                f"by up to arrays[{name!r}], of which the largest is {largest:.6g}; a client would move the average by what it is rounded by, too: "
                "scale the arrays, or do not aggregate them"
            )


class HockeystickAccountant(Answers):
    """Cumulative client-level privacy, certified.

    ``config`` is a ``flwr.serverapp.PrivacyConfig``; its sampling method decides what an event means:

    - POISSON: every client takes part with probability sample_size / population_size;
      adjacency "add_or_remove".
    - WITHOUT_REPLACEMENT: sample_size of population_size clients, drawn anew for every release;
      adjacency "replace_one", where the *sum* of updates moves by twice the clipping norm.
    - NO_AMPLIFICATION: no assumption on who takes part. A client that is left out of a round of fixed
      size makes room for another one, so what holds is adjacency "zero_out": the client's update
      against an update of zero. Flower calls it add-or-remove-one.

    ``noise_multiplier`` is that of Flower's strategies, the standard deviation of the noise on the sum
    of the clipped updates over the clipping norm. Asking never changes the ledger. Threads may share it: one call at a time, none
    is lost. In a forked child every call raises `ForkedError`.
    """

    def __init__(self, config: Any, accuracy: float = DEFAULT_ACCURACY) -> None:
        instance("config", config, PrivacyConfig, "a flwr.serverapp.PrivacyConfig")
        self._config = config
        self._sampling = SamplingMethod(config.sampling_method)  # Flower takes strings, too
        self._accuracy = accuracy
        self._compositions: list[tuple[Any, int]] = []
        self._accountant = Accountant(_ADJACENCIES[self._sampling], accuracy)

    @property
    def config(self) -> Any:
        """The privacy configuration."""
        return self._config

    @property
    def num_releases(self) -> int:
        """The number of composed private releases."""
        return sum(count for _, count in self._compositions)

    @undivided
    def compose(self, event: Any, count: int = 1) -> None:
        """Record ``count`` >= 1 releases described by a ``flwr.serverapp.GaussianPrivacyEvent``."""
        self._step(event).check_adjacency(self.adjacency)
        count, last = integer("count", count, 1), self._compositions[-1:]
        if last and last[0][0] == event:
            # In one assignment: an exception (Ctrl-C) may come before or after it, and must not find the entry gone.
            self._compositions[-1] = (event, last[0][1] + count)
        else:
            self._compositions.append((event, count))

    @property
    def process(self) -> Process:
        """Everything that happened so far."""
        return Process((self._step(event), count) for event, count in self._compositions)

    def report(self, delta: float | None = None, epsilon: float | None = None) -> Report:
        """Everything known about the guarantee at ``delta`` (default: that of ``config``)."""
        return super().report(self._delta(delta), epsilon)

    def get_privacy_spent(self, delta: float | None = None) -> Any:
        """The ``flwr.serverapp.PrivacySpent`` at ``delta`` (default: that of ``config``)."""
        delta = self._delta(delta)
        return PrivacySpent(
            epsilon=self.get_epsilon(delta),
            delta=delta,
            num_releases=self.num_releases,
            accounting_method=METHOD,
        )

    def would_exceed(self, event: Any, max_epsilon: float | None = None, count: int = 1) -> bool:
        """Whether ``count`` more releases would exceed ``max_epsilon`` (default: that of ``config``).

        False is a guarantee: the certified epsilon at the target delta stays within the limit.
        """
        after = self.process + self._step(event) * integer("count", count, 1)
        limit = self._config.max_epsilon if max_epsilon is None else max_epsilon
        if limit is None:
            raise ParameterError(
                "max_epsilon = None: must be a number in (0, inf), given here or in the config"
            )
        limit = real("max_epsilon", limit, 0.0, open_low=True)
        return account(after, self.adjacency, self._accuracy).epsilon(self._config.target_delta) > limit

    def state_dict(self) -> dict[str, object]:
        """The ledger and the configuration as JSON values."""
        compositions = [
            {"event": {name: plain(getattr(event, name)) for name in _EVENT}, "count": count}
            for event, count in self._compositions
        ]
        state = {"schema_version": _SCHEMA_VERSION, "backend": METHOD, "config": self._config_dict()}
        return {**state, "compositions": compositions}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Replace the ledger by a saved one, of this class or of Flower's ``RdpAccountant``.

        The configuration must be the same. Raises ValueError and changes nothing otherwise. Warns where releases are lost by that:
        what was seen of them counts.
        """
        instance("state", state, dict, "a dict made by state_dict()")
        for key, expected in (("schema_version", (_SCHEMA_VERSION,)), ("backend", (METHOD, "rdp"))):
            if state.get(key) not in expected:
                choices = " or ".join(repr(value) for value in expected)
                raise ParameterError(f"state[{key!r}] = {state.get(key)!r}: must be {choices}")
        if state.get("config") != self._config_dict():
            raise ParameterError(
                f"state['config'] = {state.get('config')!r}: must be {self._config_dict()!r}, "
                "that of the accountant"
            )
        loaded = HockeystickAccountant(self._config, self._accuracy)
        compositions: Any = state.get("compositions")
        try:
            for composition in compositions:
                loaded.compose(GaussianPrivacyEvent(**composition["event"]), composition["count"])
        except (ValueError, TypeError, KeyError) as error:
            raise ParameterError(f"state['compositions']: not a valid ledger: {error!r}") from error
        forgotten, self._compositions = self.process, loaded._compositions
        warn_of_forgotten(forgotten, self.process)

    def _delta(self, delta: float | None) -> float:
        return real("delta", self._config.target_delta if delta is None else delta, 0.0, 1.0)

    def _config_dict(self) -> dict[str, object]:
        config = self._config
        return {
            "target_delta": plain(config.target_delta),
            "population_size": plain(config.population_size),
            "neighboring_relation": NeighboringRelation(config.neighboring_relation).value,
            "sampling_method": self._sampling.value,
            "max_epsilon": plain(config.max_epsilon),
        }

    def _step(self, event: Any) -> Step:
        instance("event", event, GaussianPrivacyEvent, "a flwr.serverapp.GaussianPrivacyEvent")
        population = self._config.population_size
        if event.population_size != population:
            raise ParameterError(
                f"event.population_size = {event.population_size!r}: must be {population}, that of the config"
            )
        mechanism = Gaussian(event.noise_multiplier)
        if self._sampling is SamplingMethod.POISSON:
            return PoissonSampled(mechanism, event.sample_size / population)
        if self._sampling is SamplingMethod.WITHOUT_REPLACEMENT:
            return WithoutReplacement(mechanism, event.sample_size, population)
        return mechanism
