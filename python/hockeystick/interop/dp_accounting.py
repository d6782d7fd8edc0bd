"""dp_accounting: its events in and out, and an accountant that takes the place of its own.

A ``DpEvent`` says what was run, a ``NeighboringRelation`` what is compared, and hockeystick answers
with certified bounds. Where the two libraries' conventions meet, and where dp_accounting's own
accountants disagree with each other: docs/interop/interop.md.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._base.arithmetic import standard
from .._base.bounds import Bounds
from .._base.exclusive import Exclusive
from .._base.lazy import needing
from .._base.validation import ParameterError, ParameterTypeError, double, integer, real, reals, shown
from ..accounting.accountant import Accountant
from ..accounting.gaussian_summary import granted
from ..accounting.profile import PrivacyProfile
from ..accounting.report import Report
from ..mechanisms.adjacency import check, root_sum_of_squares
from ..mechanisms.descriptions import (
    ZCDP,
    ApproximateDP,
    Composable,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    Mechanism,
    PoissonSampled,
    PrivateSelection,
    Process,
    PureDP,
    RandomizedResponse,
    Repetitions,
    Step,
    WithoutReplacement,
    WithReplacement,
    composition,
)
from ..mechanisms.mixtures import MixtureOfGaussians
from ..mechanisms.responses import ExponentialMechanism
from ..mechanisms.truncated import TruncatedPoissonSampled
from .pld import from_pld

with needing("hockeystick.interop.dp_accounting needs dp-accounting", extra="dp-accounting"):
    import attr
    import dp_accounting
    from dp_accounting import NeighboringRelation, dp_event

__all__ = ["HockeystickAccountant", "adjacency", "from_event", "from_pld", "to_event"]

_ADD_OR_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
_REPLACE_ONE = NeighboringRelation.REPLACE_ONE
_ZERO_OUT = NeighboringRelation.REPLACE_SPECIAL

_ADJACENCIES = {_ADD_OR_REMOVE: "add_or_remove", _REPLACE_ONE: "replace_one", _ZERO_OUT: "zero_out"}

_NON_PRIVATE = ApproximateDP(0.0, 1.0)
"""Publishes the data: the counterpart of NonPrivateDpEvent."""


def adjacency(neighboring_relation: NeighboringRelation) -> str:
    """The name under which hockeystick knows a ``dp_accounting.NeighboringRelation``.

    >>> adjacency(NeighboringRelation.REPLACE_SPECIAL)
    'zero_out'
    """
    if neighboring_relation not in _ADJACENCIES:
        raise ParameterTypeError(
            f"neighboring_relation = {neighboring_relation!r}: must be a dp_accounting.NeighboringRelation"
        )
    return _ADJACENCIES[neighboring_relation]


def from_event(event: Any, neighboring_relation: NeighboringRelation) -> Process:
    """The composition that a ``DpEvent`` describes, for ``account(process, adjacency(relation))``.

    The relation is asked for because an event can have a meaning under one and none under another.
    Noise multipliers are taken as dp_accounting defines them, standard deviation (Laplace: scale)
    over the norm bound C of one record's contribution to the sum: the sensitivity under
    ADD_OR_REMOVE_ONE and REPLACE_SPECIAL; REPLACE_ONE moves the sum by 2C. Raises
    ``dp_accounting.UnsupportedEventError``, naming the event and the reason.

    >>> step = dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(1.1))
    >>> print(from_event(dp_event.SelfComposedDpEvent(step, 1000), NeighboringRelation.ADD_OR_REMOVE_ONE))
    PoissonSampled(mechanism=Gaussian(noise_multiplier=1.1), sampling_probability=0.01) * 1000
    """
    adjacency(neighboring_relation)
    try:
        return Process(_steps(event, neighboring_relation, 1))
    except _RefusedError as refused:
        raise dp_accounting.UnsupportedEventError(f"{shown(refused.event)}: {refused.reason}") from None


def to_event(process: Composable) -> Any:
    """The ``DpEvent`` that describes a composition; `from_event` is its inverse up to rounding.

    Rounding of parameters that the two libraries express differently (the noise of discrete Laplace
    and of randomized response) is towards less privacy. Raises ParameterError for steps that no
    event of the installed version describes: in 0.6 discrete Gaussian, declared (epsilon, delta)-DP, the exponential
    mechanism; in any released choices and published pairs without proof.

    >>> to_event(PoissonSampled(Gaussian(2.0), 0.5) * 3)
    SelfComposedDpEvent(event=PoissonSampledDpEvent(sampling_probability=0.5, \
event=GaussianDpEvent(noise_multiplier=2.0)), count=3)
    """
    events = [
        event if count == 1 else dp_event.SelfComposedDpEvent(event, count)
        for step, count in composition(process)
        if not isinstance(event := _step_event(step), dp_event.NoOpDpEvent)
    ]
    if not events:
        return dp_event.NoOpDpEvent()
    return events[0] if len(events) == 1 else dp_event.ComposedDpEvent(events)


class HockeystickAccountant(Exclusive, dp_accounting.PrivacyAccountant):
    """A ``dp_accounting.PrivacyAccountant`` whose epsilon and delta are certified by hockeystick.

    Takes the place of ``PLDAccountant`` wherever one is asked for, ``calibrate_dp_mechanism``
    included. ``accuracy`` is that of `hockeystick.account`, smaller by default because ``PLDAccountant``
    is precise for short compositions (1e-8 was enough to stay below it in every comparison). Answers are
    upper bounds; both bounds and the statement for a paper are there as well. Threads may share it: one call at a time, none
    is lost. In a forked child every call raises `ForkedError`.

    >>> accountant = HockeystickAccountant(NeighboringRelation.REPLACE_SPECIAL)
    >>> step = dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(1.0))
    >>> round(accountant.compose(step, 1000).get_epsilon(target_delta=1e-5), 6)
    1.828237
    """

    def __init__(
        self, neighboring_relation: NeighboringRelation = _ADD_OR_REMOVE, accuracy: float = 1e-6
    ) -> None:
        self._accountant = Accountant(adjacency(neighboring_relation), accuracy)
        super().__init__(neighboring_relation)

    @standard  # what calls it, with compositions of others, is dp_accounting's
    def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
        count = integer("count", count)  # the caller's, not the event's
        try:
            process = Process(_steps(event, self.neighboring_relation, count))
            check(process, self._accountant.adjacency)
        except _RefusedError as refused:
            return self.CompositionErrorDetails(invalid_event=refused.event, error_message=refused.reason)
        except ParameterError as invalid:
            return self.CompositionErrorDetails(invalid_event=event, error_message=str(invalid))
        if do_compose:
            self._accountant.step(process)
        return None

    @property
    def process(self) -> Process:
        """Everything composed so far, as a hockeystick description."""
        return self._accountant.process

    def profile(self) -> PrivacyProfile:
        """The privacy profile of everything composed so far."""
        return self._accountant.profile()

    def get_epsilon(self, target_delta: float) -> float:
        """Certified epsilon at ``target_delta`` in [0, 1]; inf if anything was published unprotected."""
        return self.epsilon_bounds(target_delta).upper

    def get_delta(self, target_epsilon: float) -> float:
        """Certified delta at ``target_epsilon``; 1 if anything was published unprotected."""
        return self.delta_bounds(target_epsilon).upper

    def epsilon_bounds(self, target_delta: float) -> Bounds:
        """Bounds(lower, upper) on epsilon."""
        if self._non_private:
            real("target_delta", target_delta, 0.0, 1.0)
            return Bounds(math.inf, math.inf)
        return self._accountant.epsilon_bounds(target_delta)

    def delta_bounds(self, target_epsilon: float) -> Bounds:
        """Bounds(lower, upper) on delta."""
        if self._non_private:
            real("target_epsilon", target_epsilon, allow_inf=True)
            return Bounds(1.0, 1.0)
        return self._accountant.delta_bounds(target_epsilon)

    def get_true_positive_rates(self, false_positive_rates: ArrayLike, deltas: Any = None) -> Any:
        """Certified upper bound on the true positives of any test at each of ``false_positive_rates``, a number or an array.

        In dp_accounting since the release after 0.6. The ``deltas`` it takes the best of have no meaning here.
        """
        rates = reals("false_positive_rates", false_positive_rates, 0.0, 1.0)
        if self._non_private:
            found = np.ones(rates.shape)
        else:
            risk = self.profile().risk
            found = np.array([risk.tpr(rate).upper for rate in rates.ravel().tolist()]).reshape(rates.shape)
        return found if rates.ndim else float(found)

    def get_gdp_parameter_estimate(self, false_positive_rates: Any = None, deltas: Any = None) -> float:
        """No estimate, but a certified mu: the least found with which the release is mu-GDP up to the smallest of ``false_positive_rates``.

        In dp_accounting since the release after 0.6, where it is neither an upper nor a lower bound; the smallest rate is 1e-12
        there, too, by default. ``deltas`` have no meaning here. `PrivacyProfile.gdp` has the regret besides.
        """
        if self._non_private:
            return math.inf
        rates = 1e-12 if false_positive_rates is None else false_positive_rates
        given = reals("false_positive_rates", rates, 0.0, 1.0)
        if not given.size:
            raise ParameterError("false_positive_rates: must hold at least one rate")
        least = real("false_positive_rates", float(given.min()), 0.0, 1.0, open_high=True)
        return self.profile().gdp(granted("false_positive_rates", least)).mu

    def report(self, target_delta: float) -> Report:
        """Everything known about the guarantee; its ``statement()`` can be pasted into a paper."""
        return self._accountant.report(target_delta)

    @property
    def _non_private(self) -> bool:
        # The contract of PrivacyAccountant: then epsilon is inf at every delta, even at delta = 1.
        return any(step == _NON_PRIVATE for step, _ in self.process)


class _RefusedError(Exception):
    def __init__(self, event: Any, reason: str) -> None:
        super().__init__(event, reason)
        self.event = event
        self.reason = reason


def _with_numbers(event: Any) -> Any:
    """The event with plain numbers where it holds arrays of a single one, as JAX computes them."""
    if not attr.has(type(event)):
        return event
    held = {field.name: getattr(event, field.name) for field in attr.fields(type(event))}
    numbers = {
        name: value.item()
        for name, value in held.items()
        if getattr(value, "shape", None) == () and not isinstance(value, (np.generic, np.ma.MaskedArray))
    }
    if not numbers:
        return event
    event = copy.copy(event)  # not made anew, as subclasses may be made otherwise
    for name, number in numbers.items():
        object.__setattr__(event, name, number)
    return event


def _steps(event: Any, relation: NeighboringRelation, count: Any) -> Iterator[tuple[Step, int]]:
    """The steps of an event that is run ``count`` times, with their counts."""
    event = _with_numbers(event)
    count = _checked(event, lambda: integer("count", count))
    if isinstance(event, dp_event.ComposedDpEvent):
        if isinstance(event.events, Iterator):
            # Whoever looks before composing, as dp_accounting's base class does, would leave nothing to compose.
            raise _RefusedError(event, "events: must be a list; an iterator holds nothing the second time")
        for part in event.events:
            yield from _steps(part, relation, count)
    elif isinstance(event, dp_event.SelfComposedDpEvent):
        times = _checked(event, lambda: integer("count", event.count))
        yield from _steps(event.event, relation, times * count)
    elif isinstance(event, dp_event.RepeatAndSelectDpEvent):
        base = Process(_steps(event.event, relation, 1))
        runs = _checked(event, lambda: _repetitions(event))
        if base.items:
            yield PrivateSelection(base, runs), count
    elif isinstance(event, _SAMPLED):
        sampled = _checked(event, lambda: _sampled(event, relation))
        if sampled is not None:
            yield sampled, count
    else:
        step = _checked(event, lambda: _single(event, relation))
        if step is not None:
            yield step, count


def _checked(event: Any, make: Any) -> Any:
    """What ``make`` returns; a parameter out of range is the event's fault."""
    try:
        return make()
    except (ParameterError, ParameterTypeError) as error:
        raise _RefusedError(event, str(error)) from None


def _only(event: Any, relation: NeighboringRelation, *allowed: NeighboringRelation, why: str) -> None:
    if relation not in allowed:
        names = " or ".join(f"`{name.name}`" for name in allowed)
        raise _RefusedError(
            event,
            f"neighboring_relation must be {names} for `{type(event).__name__}`. Found {relation}: {why}.",
        )


def _repetitions(event: Any) -> Repetitions:
    if math.isinf(event.shape):
        return Repetitions.poisson(event.mean)
    return Repetitions.negative_binomial(event.mean, event.shape)


def _laplace(event: Any, _: NeighboringRelation) -> Mechanism:
    # The event is vector-valued; one coordinate is the worst case (docs/interop/interop.md, "One coordinate is the worst case of Laplace noise").
    return Laplace(event.noise_multiplier) if event.noise_multiplier != 0 else _NON_PRIVATE


def _discrete_laplace(event: Any, _: NeighboringRelation) -> Mechanism:
    a = real("noise_parameter", event.noise_parameter, 0.0)
    if a == 0.0:
        return _NON_PRIVATE  # as dp_accounting has it; there is no such distribution
    scale = 1.0 / a
    if scale < math.inf and Fraction(scale) * Fraction(a) > 1:
        scale = math.nextafter(scale, 0.0)
    return DiscreteLaplace(scale, event.sensitivity)


def _discrete_gaussian(event: Any, relation: NeighboringRelation) -> Step | None:
    """Of one coordinate the noise itself; of several its zCDP.

    docs/interop/interop.md, "One coordinate is not the worst case of discrete Gaussian noise"
    """
    sigma, sensitivity = real("sigma", event.sigma, 0.0), real("sensitivity", event.sensitivity, 0.0)
    if sensitivity == 0.0:
        return None
    if sigma == 0.0:
        return _NON_PRIVATE
    if event.dimension == 1:
        whole = math.floor(sensitivity)  # of integers
        return DiscreteGaussian(sigma, whole) if whole else None
    shift = 2.0 if relation is _REPLACE_ONE else 1.0
    mu = shift * sensitivity / sigma
    rho = _up(0.5 * mu * mu)
    return ZCDP(rho) if rho < math.inf else _NON_PRIVATE


def _declared(event: Any, _: NeighboringRelation) -> Mechanism | None:
    epsilon = real("epsilon", event.epsilon, 0.0, allow_inf=True)
    delta = real("delta", event.delta, 0.0, 1.0)
    if epsilon == 0.0 and delta == 0.0:
        return None
    return ApproximateDP(epsilon, delta) if epsilon < math.inf else _NON_PRIVATE


def _permute_and_flip(event: Any, _: NeighboringRelation) -> Mechanism | None:
    """Dominated by Laplace noise: docs/interop/interop.md, "Permute-and-flip is no worse than Laplace noise"."""
    epsilon = real("epsilon", event.epsilon, 0.0)
    return Laplace(_down(1.0 / epsilon)) if epsilon else None


def _randomized_response(event: Any, relation: NeighboringRelation) -> Mechanism | None:
    _only(event, relation, _REPLACE_ONE, _ZERO_OUT, why="a record that is not there gives no response")
    p = real("noise_parameter", event.noise_parameter, 0.0, 1.0)
    k = integer("num_buckets", event.num_buckets, 1)
    if k == 1 or p == 1.0:
        return None
    if p == 0.0:
        return _NON_PRIVATE
    epsilon = _up(math.log1p(k * (1.0 - p) / p))
    # dp_accounting's special record answers uniformly at random.
    return RandomizedResponse(epsilon, k, uniform_null=True) if epsilon < math.inf else _NON_PRIVATE


def _tree(event: Any, relation: NeighboringRelation) -> Mechanism | None:
    """A record enters one leaf and the nodes above it: a sum of sensitivity sqrt(depth)."""
    _only(event, relation, _ZERO_OUT, why="the number of steps must not depend on the data")
    counts = event.step_counts if isinstance(event.step_counts, (list, tuple)) else [event.step_counts]
    depth = max((integer("step_counts", steps) for steps in counts), default=0).bit_length()
    noise_multiplier = real("noise_multiplier", event.noise_multiplier, 0.0)
    return Gaussian(_down(noise_multiplier / math.sqrt(depth))) if depth else None


def _truncated(event: Any, _: NeighboringRelation) -> Step | None:
    """With ADD_OR_REMOVE_ONE, ``dataset_size`` is the larger of the two, here as there."""
    size = integer("dataset_size", event.dataset_size)
    kept = integer("truncated_batch_size", event.truncated_batch_size)
    q = real("sampling_probability", event.sampling_probability, 0.0, 1.0)
    noise_multiplier = real("noise_multiplier", event.noise_multiplier, 0.0)
    if size == 0 or kept == 0 or q == 0.0:
        return None
    return TruncatedPoissonSampled(noise_multiplier, size, q, kept)


def _mixture_of_gaussians(event: Any, relation: NeighboringRelation) -> Step | None:
    _only(event, relation, _ADD_OR_REMOVE, _ZERO_OUT, why="the event names one output without the record")
    step = MixtureOfGaussians(event.standard_deviation, event.sensitivities, event.sampling_probs)
    return step if step.largest > 0.0 else None


_SINGLE: dict[Any, Callable[[Any, NeighboringRelation], Step | None]] = {
    dp_event.NoOpDpEvent: lambda *_: None,
    dp_event.NonPrivateDpEvent: lambda *_: _NON_PRIVATE,
    dp_event.GaussianDpEvent: lambda event, _: Gaussian(event.noise_multiplier),
    dp_event.LaplaceDpEvent: _laplace,
    dp_event.ZCDpEvent: lambda event, _: ZCDP(event.rho, event.xi) if event.rho or event.xi else None,
    dp_event.DiscreteLaplaceDpEvent: _discrete_laplace,
    dp_event.RandomizedResponseDpEvent: _randomized_response,
    dp_event.SingleEpochTreeAggregationDpEvent: _tree,
    dp_event.TruncatedSubsampledGaussianDpEvent: _truncated,
    dp_event.MixtureOfGaussiansDpEvent: _mixture_of_gaussians,
}
_LATER = {
    "DiscreteGaussianDpEvent": _discrete_gaussian,
    "EpsilonDeltaDpEvent": _declared,
    "ExponentialMechanismDpEvent": lambda event, _: (
        ExponentialMechanism(event.epsilon) if event.epsilon != 0 else None
    ),
    "PermuteAndFlipDpEvent": _permute_and_flip,
}
"""What came after 0.6."""
_SINGLE.update((getattr(dp_event, name), make) for name, make in _LATER.items() if hasattr(dp_event, name))
_FIXED_SIZE: dict[Any, Callable[..., Step]] = {
    dp_event.SampledWithoutReplacementDpEvent: WithoutReplacement,
    dp_event.SampledWithReplacementDpEvent: WithReplacement,
}
_SAMPLED = (dp_event.PoissonSampledDpEvent, *_FIXED_SIZE)


def _single(event: Any, relation: NeighboringRelation) -> Step | None:
    """The step behind an event without parts, None if it costs nothing."""
    for kind, make in _SINGLE.items():
        if isinstance(event, kind):
            return make(event, relation)
    unsupported = type(event).__name__ == "UnsupportedDpEvent"
    why = ": it stands for a mechanism without a description." if unsupported else "."
    raise _RefusedError(event, f"Unsupported event{why}")


def _sampled(event: Any, relation: NeighboringRelation) -> Step | None:
    if isinstance(event, dp_event.PoissonSampledDpEvent):
        q, inner = Fraction(1), event
        while isinstance(inner, dp_event.PoissonSampledDpEvent):  # a Poisson sample of a Poisson sample
            q *= Fraction(real("sampling_probability", inner.sampling_probability, 0.0, 1.0))
            inner = _with_numbers(inner.event)
        mechanism = _on_one_sample(inner, relation)
        if isinstance(mechanism, (Laplace, DiscreteLaplace)):
            why = "no tight pair is proven for vector-valued Laplace noise when a record is replaced"
            _only(event, relation, _ADD_OR_REMOVE, _ZERO_OUT, why=why)
        return None if mechanism is None else PoissonSampled(mechanism, double(q, math.inf))
    _only(event, relation, _REPLACE_ONE, why="a batch of fixed size comes from a dataset of fixed size")
    mechanism = _on_one_sample(_with_numbers(event.event), relation)
    if mechanism is None or event.sample_size == 0:
        return None
    kind = next(kind for theirs, kind in _FIXED_SIZE.items() if isinstance(event, theirs))
    return kind(mechanism, event.sample_size, event.source_dataset_size)


def _on_one_sample(event: Any, relation: NeighboringRelation) -> Mechanism | None:
    """The mechanism equivalent to everything that is run on one and the same sample."""
    if isinstance(event, _SAMPLED):
        raise _RefusedError(event, "Unsupported event inside a sample: only Poisson samples may be nested.")
    composed = isinstance(event, (dp_event.ComposedDpEvent, dp_event.SelfComposedDpEvent))
    found = _together(event, relation) if composed else _single(event, relation)
    if found is not None and not isinstance(found, Mechanism):
        raise _RefusedError(
            event,
            "Unsupported event inside a sample: it draws a sample of its own, or only its Renyi divergences are known.",
        )
    if isinstance(found, RandomizedResponse):
        raise _RefusedError(
            event, "Unsupported event inside a sample: a record outside the sample gives no response."
        )
    return found


def _together(event: Any, relation: NeighboringRelation) -> Mechanism | None:
    """Several Gaussians on one sample are one Gaussian with 1 / sigma^2 = sum of count / sigma_i^2."""
    parts: list[tuple[Mechanism, int]] = []
    for step, count in _steps(event, relation, 1):
        if not isinstance(step, Mechanism):
            raise _RefusedError(event, "Sampling schemes inside a sample must not be composed.")
        if count:
            parts.append((step, count))
    if any(mechanism in (_NON_PRIVATE, Gaussian(0.0)) for mechanism, _ in parts):
        return _NON_PRIVATE
    if [count for _, count in parts] == [1]:
        return parts[0][0]
    mus = [(1.0 / each.noise_multiplier, count) for each, count in parts if isinstance(each, Gaussian)]
    if len(mus) < len(parts):
        raise _RefusedError(
            event, "Several releases computed on one sample are supported for Gaussian noise only."
        )
    return Gaussian(_down(1.0 / root_sum_of_squares(mus))) if mus else None


def _step_event(step: Step) -> Any:
    if isinstance(step, (WithoutReplacement, WithReplacement)) and step.pair != "sound":
        raise ParameterError(f"step = {step!r}: no DpEvent describes a pair that is not a guarantee")
    if isinstance(step, PoissonSampled) and isinstance(step.mechanism, MixtureOfGaussians):
        return _step_event(step.mechanism.sampled_by(step))
    if isinstance(step, (PoissonSampled, WithoutReplacement, WithReplacement)):
        nested = isinstance(step.mechanism, PoissonSampled)
        inner = _step_event(step.mechanism) if nested else _mechanism_event(step.mechanism, step)
        if isinstance(inner, dp_event.NoOpDpEvent):
            return inner
        if isinstance(step, PoissonSampled):
            rate = step.sampling_probability
            return dp_event.PoissonSampledDpEvent(rate, inner) if rate else dp_event.NoOpDpEvent()
        kind = next(theirs for theirs, ours in _FIXED_SIZE.items() if ours is type(step))
        return kind(step.dataset_size, step.batch_size, inner)
    if isinstance(step, PrivateSelection) and step.repetitions.law != "fixed":
        runs = step.repetitions
        shape = math.inf if runs.law == "poisson" else runs.shape
        return dp_event.RepeatAndSelectDpEvent(to_event(step.base), runs.mean, shape)
    return _mechanism_event(step, step)


def _mechanism_event(mechanism: Step, step: Step) -> Any:
    if isinstance(mechanism, DiscreteLaplace):
        a = 1.0 / mechanism.scale
        if a < math.inf and Fraction(a) * Fraction(mechanism.scale) < 1:
            a = math.nextafter(a, math.inf)
        return dp_event.DiscreteLaplaceDpEvent(a, mechanism.sensitivity)
    if mechanism == _NON_PRIVATE:
        return dp_event.NonPrivateDpEvent()
    if mechanism in (PureDP(0.0), ApproximateDP(0.0, 0.0)):
        return dp_event.NoOpDpEvent()
    if isinstance(mechanism, RandomizedResponse) and not mechanism.uniform_null:
        raise ParameterError(
            f"step = {step!r}: must have uniform_null=True, as dp_accounting's special record answers uniformly"
        )
    if isinstance(mechanism, RandomizedResponse) and mechanism is step:
        k = mechanism.num_categories
        # p = 1 at epsilon = 0; p = k / (e^eps + k - 1) = k e^-eps / (1 + (k - 1) e^-eps), without overflow.
        p = k * math.exp(-mechanism.epsilon) / (1.0 + (k - 1) * math.exp(-mechanism.epsilon))
        return dp_event.RandomizedResponseDpEvent(_down(p) if mechanism.epsilon > 0.0 else 1.0, k)
    name, fields = _EVENTS.get(type(mechanism), ("", lambda _: ()))
    if not hasattr(dp_event, name):
        raise ParameterError(f"step = {step!r}: no DpEvent of the installed dp_accounting describes it")
    return getattr(dp_event, name)(*fields(mechanism))


_EVENTS: dict[type[Step], tuple[str, Callable[[Any], tuple[Any, ...]]]] = {
    Gaussian: ("GaussianDpEvent", lambda m: (m.noise_multiplier,)),
    Laplace: ("LaplaceDpEvent", lambda m: (m.scale,)),
    DiscreteGaussian: ("DiscreteGaussianDpEvent", lambda m: (m.sigma, m.sensitivity, 1)),
    PureDP: ("EpsilonDeltaDpEvent", lambda m: (m.epsilon, 0.0)),
    ApproximateDP: ("EpsilonDeltaDpEvent", lambda m: (m.epsilon, m.delta)),
    ExponentialMechanism: ("ExponentialMechanismDpEvent", lambda m: (m.epsilon,)),
    ZCDP: ("ZCDpEvent", lambda m: (m.rho, m.xi)),
    MixtureOfGaussians: (
        "MixtureOfGaussiansDpEvent",
        lambda m: (m.noise_multiplier, list(m.sensitivities), list(m.probabilities)),
    ),
    TruncatedPoissonSampled: (
        "TruncatedSubsampledGaussianDpEvent",
        lambda m: (m.dataset_size, m.sampling_probability, m.max_batch_size, m.noise_multiplier),
    ),
}
"""The events without special cases, by name, as some came after 0.6; and what they take of a step."""


def _up(value: float) -> float:
    """Larger than the exact result of a few roundings that gave ``value`` > 0."""
    return math.nextafter(value * (1.0 + 1e-15), math.inf)


def _down(value: float) -> float:
    """Smaller than the exact result of a few roundings that gave ``value`` > 0."""
    return math.nextafter(value * (1.0 - 1e-15), 0.0)
