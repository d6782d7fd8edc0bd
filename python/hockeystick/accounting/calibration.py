"""Calibration: the least noise, or the most steps or sampling, that keeps within a privacy budget.

Every function here takes ``make``, which turns one number into a description of everything that is
released. So mechanisms that share a budget, or a release that was made already, need no special
case: ``make`` returns their sum.

>>> import hockeystick as hs
>>> sigma = calibrate_noise_multiplier(lambda s: hs.Gaussian(s) * 10, epsilon=1.0, delta=1e-6)
>>> hs.account(hs.Gaussian(sigma) * 10).epsilon(delta=1e-6) <= 1.0
True
>>> hs.account(hs.Gaussian(sigma * (1 - 1e-6)) * 10).epsilon_bounds(delta=1e-6).lower > 1.0
True
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast, overload

from .._base.bounds import Bounds, Shown, finite, round_down, round_up
from .._base.search import COARSEST, Axis, Search
from .._base.types import Self, Unpack
from .._base.validation import ParameterError, ParameterTypeError, boolean, instance, narrowed, real, two
from .._base.validation import integer as integer_
from ..mechanisms.descriptions import Composable
from ..mechanisms.dpsgd import DPSGD
from .goals import Budget, Goal, RiskTarget, aim, budget
from .settings import DEFAULT_ACCURACY, DEFAULT_MEMORY_LIMIT

DEFAULT_TOLERANCE = 1e-6  # *speed*

_Number: TypeAlias = "float | int"


class CalibrationSettings(RiskTarget, total=False):
    """What every calibration takes, as `calibrate` does: by default "add_or_remove" and 2^30 bytes."""

    adjacency: str
    memory_limit: int


class UnreachableError(ParameterError):
    """No allowed value of the parameter keeps within the budget; the message says what is reachable.

    ``safest`` is the value of least loss that was allowed. ``epsilon_bounds`` bounds the least
    epsilon that can be reached at the target delta, ``delta_bounds`` the least delta at the target
    epsilon; the upper ends were reached by a value that was looked at.
    """

    def __init__(self, message: str, safest: float, epsilon_bounds: Bounds, delta_bounds: Bounds) -> None:
        super().__init__(message)
        self.safest = safest
        self.epsilon_bounds = epsilon_bounds
        self.delta_bounds = delta_bounds

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.safest, self.epsilon_bounds, self.delta_bounds)


@dataclass(frozen=True)
class Certificate(Shown):
    """What was proven about a calibrated value.

    ``value`` keeps within the budget: ``description``, which is make(value), satisfies
    (``epsilon``, ``delta``)-DP under ``adjacency``; ``epsilon_bounds`` is its certified epsilon at
    ``delta``, never above ``epsilon``. ``exceeding`` is the nearest value that was shown to exceed
    the budget (lower bound above the target), None if there is none; ``gap`` is its relative
    distance from ``value``. ``tight``: the gap is at most ``tolerance`` or, among integers, one; or
    ``at_limit``, when ``value`` is the end of the allowed range and fits. ``evaluations`` counts
    the questions asked of the accountant; ``accuracy`` is the one to pass to `account` to see
    ``epsilon_bounds`` again. (Its upper end may then lie above ``epsilon`` by that accuracy, since the
    proof may rest on delta at ``epsilon``; the smaller of the two holds.)

    If a risk was limited, ``risk`` says which and how far, and ``risk_bounds`` bounds it at ``value`` (of "precision": the TPR; of
    "bayes_risk" and "advantage": delta at ``epsilon``). ``epsilon`` and ``delta`` are then a point of the curve that says about as much.
    """

    parameter: str
    value: _Number
    epsilon: float
    delta: float
    adjacency: str
    description: Composable
    epsilon_bounds: Bounds
    exceeding: _Number | None
    tight: bool
    at_limit: bool
    tolerance: float
    accuracy: float
    evaluations: int
    risk: Mapping[str, float] | None = None
    risk_bounds: Bounds | None = None

    @property
    def gap(self) -> float:
        """Relative distance from ``value`` to ``exceeding``; infinite if there is none."""
        if self.exceeding is None:
            return math.inf
        return abs(self.exceeding - self.value) / self.value if self.value else math.inf

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings; infinities become the string "inf"."""
        return finite({**vars(self), "description": str(self.description), "gap": self.gap})


class _Certified:
    """A number that carries its proof; what it is a kind of comes second among the bases."""

    certificate: Certificate

    def _repr_html_(self) -> str:
        return self.certificate._repr_html_()

    def __new__(cls, certificate: Certificate) -> Self:
        number = super().__new__(cls, certificate.value)  # type: ignore[call-arg]
        number.certificate = certificate
        return number

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.certificate,)


class CalibratedFloat(_Certified, float):
    """A float that carries its proof.

    Callers want a number to hand to an optimizer, a loop or a JSON file, so the result is one; what
    was proven about it is in ``certificate``. Arithmetic gives plain floats: the proof is for this
    value only.
    """


class CalibratedInt(_Certified, int):
    """An int that carries its proof; see CalibratedFloat."""


@overload
def calibrate(
    make: Callable[[float], Composable],
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    increasing: bool,
    limits: tuple[float, float],
    integer: Literal[False] = False,
    start: float | None = None,
    parameter: str = "parameter",
    tolerance: float = DEFAULT_TOLERANCE,
    **settings: Unpack[CalibrationSettings],
) -> CalibratedFloat: ...


@overload
def calibrate(
    make: Callable[[int], Composable],
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    increasing: bool,
    limits: tuple[int, int],
    integer: Literal[True],
    start: int | None = None,
    parameter: str = "parameter",
    tolerance: float = DEFAULT_TOLERANCE,
    **settings: Unpack[CalibrationSettings],
) -> CalibratedInt: ...


def calibrate(
    make: Callable[[Any], Composable],
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    increasing: bool,
    limits: tuple[float, float],
    integer: bool = False,
    start: float | None = None,
    parameter: str = "parameter",
    adjacency: str = "add_or_remove",
    tolerance: float = DEFAULT_TOLERANCE,
    memory_limit: int = DEFAULT_MEMORY_LIMIT,
    **risk: Unpack[RiskTarget],
) -> CalibratedFloat | CalibratedInt:
    """Return the value of one parameter that spends a budget of (``epsilon``, ``delta``), certified.

    ``make(value)`` returns a description of everything that is released; epsilon grows with the
    value if ``increasing`` and falls otherwise. The value lies in ``limits`` = (low, high), with
    0 < low unless it is an ``integer``. The other functions here fill these in for you.

    Guarantee: make(value) is (``epsilon``, ``delta``)-DP under ``adjacency``, by a certified upper
    bound. Conversely the value one relative ``tolerance`` (1e-12 to 0.1; among integers: one)
    towards less privacy is shown to exceed the budget by a lower bound, or is outside the limits;
    ``certificate.tight`` says whether both succeeded. Where the bounds are too wide for the second
    statement, the first one still holds, and ``certificate.gap`` says what was shown. That epsilon
    is monotone only steers the search; where it is not, the value is on one of the boundaries.

    ``epsilon`` >= 0, ``delta`` in [0, 1]. In their place a limit on what attacks achieve may be given, see `RiskTarget`: ``advantage=0.1``, or
    ``tpr=0.05, fpr=0.01``; the guarantee then is that no attack achieves more, and that one achieves more one tolerance further. ``start`` is a first guess, moved into the limits;
    ``parameter`` the name used in messages. Raises UnreachableError (a ParameterError, hence a
    ValueError), which says what is reachable, if no allowed value keeps within the budget.

    One scale for the noise of two mechanisms that share a budget:

    >>> from hockeystick import Gaussian, Laplace
    >>> scale = calibrate(
    ...     lambda c: Gaussian(2 * c) * 10 + Laplace(5 * c), epsilon=1.0, delta=1e-6,
    ...     increasing=False, limits=(1e-3, 1e6), tolerance=1e-4,
    ... )
    >>> scale.certificate.tight, scale.certificate.epsilon_bounds.upper <= 1.0
    (True, True)
    """
    instance("parameter", parameter, str, "a string")
    wanted = aim(epsilon, delta, cast("dict[str, float]", risk))
    tolerance = real("tolerance", tolerance, 1e-12, 0.1)
    axis = _axis(limits, boolean("increasing", increasing), boolean("integer", integer))
    asked = budget(function(make), wanted, adjacency, memory_limit)
    if start is None:
        # Noise at which a single Gaussian would spend the budget; among rising parameters, 1.
        start = axis.value(0.0 if axis.rising or math.isnan(asked.target) else asked.target)
    else:
        start = integer_("start", start) if axis.integer else real("start", start, 0.0, open_low=True)
        start = min(max(start, axis.low), axis.high)

    found = Search(asked.look, axis, tolerance, asked.steepness).run(start)
    if found is None:
        raise _unreachable(asked, axis, start, parameter)
    if found.value == axis.riskiest != axis.safest:
        _check_use(asked, axis, parameter)
    accuracy = min(asked.accuracies[found.value], DEFAULT_ACCURACY)
    profile = asked.profile(found.value, accuracy)
    risk_bounds = asked.risk_bounds(profile)
    if wanted.goal is not None:  # a point of the curve that says about as much
        asked.delta = profile.delta(asked.epsilon)
    lower, upper = asked.epsilon_bounds(profile)
    certificate = Certificate(
        parameter=parameter,
        value=found.value,
        epsilon=asked.epsilon,
        delta=asked.delta,
        adjacency=adjacency,
        description=profile.description,
        # That the value fits may have been proven by delta, which proves it for epsilon.
        epsilon_bounds=Bounds(min(lower, asked.epsilon), min(upper, asked.epsilon)),
        exceeding=found.exceeding,
        tight=found.tight,
        at_limit=found.value == axis.riskiest,
        tolerance=tolerance,
        accuracy=accuracy,
        evaluations=asked.evaluations,
        risk=wanted.risk or None,
        risk_bounds=risk_bounds,
    )
    return CalibratedInt(certificate) if axis.integer else CalibratedFloat(certificate)


def function(make: Any) -> Callable[[Any], Composable]:
    return instance("make", make, Callable, "a function that returns a description")  # type: ignore[arg-type]


def _axis(limits: object, increasing: bool, whole: bool) -> Axis:
    first, last = two("limits", limits, "a pair (low, high)")
    if whole:
        low: float = integer_("limits[0]", first)
        return Axis(low, integer_("limits[1]", last, int(low)), increasing, True)
    low = real("limits[0]", first, 0.0, open_low=True)
    return Axis(low, real("limits[1]", last, low), increasing, False)


def _check_use(budget: Budget, axis: Axis, parameter: str) -> None:
    """Raise unless what fits at the riskiest value is released with that: whoever adds so little noise is not protected otherwise."""
    riskiest, safest = (budget.profile(value, COARSEST) for value in (axis.riskiest, axis.safest))
    if budget.is_constant():
        raise ParameterError(
            f"make: must use its argument; it returns the same for {parameter} = {axis.low!r} and {axis.high!r}"
        )
    if budget.aim.goal is None:
        _check_turn(axis, parameter, axis.riskiest, *map(budget.epsilon_bounds, (riskiest, safest)))


def _check_turn(axis: Axis, parameter: str, value: float, there: Bounds, safest: Bounds) -> None:
    """Raise if epsilon is less at ``value`` than at the safest one."""
    if there.upper < safest.lower:
        raise ParameterError(
            f"make: epsilon of what it returns must {'grow' if axis.rising else 'fall'} with {parameter}, but at {parameter} = {value!r} it is "
            f"below that at {parameter} = {axis.safest!r}: the argument of make must go where it belongs, or limits be some between which "
            f"epsilon does not turn; where it is the other way round, `calibrate` must be given increasing = {not axis.rising}"
        )


def _unreachable(budget: Budget, axis: Axis, start: float, parameter: str) -> ParameterError:
    """The error for a budget that not even the safest value keeps."""
    # At the end of the range the bounds may be wide, so the values before it have a say.
    if budget.aim.goal is not None:
        return _out_of_reach(budget, budget.aim.goal, axis, parameter)
    near = sorted(budget.accuracies, key=axis.position)[:3]
    profiles = {value: budget.profile(value, COARSEST) for value in (axis.safest, *near, start)}
    epsilons = {value: budget.epsilon_bounds(profile) for value, profile in profiles.items()}
    deltas = [budget.delta_bounds(profile) for profile in profiles.values()]
    _check_turn(axis, parameter, start, epsilons[start], epsilons[axis.safest])
    epsilon = Bounds(epsilons[axis.safest].lower, min(bounds.upper for bounds in epsilons.values()))
    delta = Bounds(deltas[0].lower, min(bounds.upper for bounds in deltas))
    exceeds = epsilon.lower > budget.epsilon or delta.lower > budget.delta
    keeps = "keeps" if exceeds else "could be shown to keep"
    reachable = f"epsilon = {round_up(epsilon.upper)}" if epsilon.upper < math.inf else "no finite epsilon"
    # An upper bound on delta is hardly ever 0, and says nothing where that is asked for.
    instead = (
        f", or delta = {round_up(delta.upper)} at epsilon = {budget.epsilon!r}" if budget.delta > 0.0 else ""
    )
    asked = f"epsilon = {budget.epsilon!r}, delta = {budget.delta!r}"
    if budget.aim.risk:
        asked = f"{budget.aim} (at {asked})"
    return UnreachableError(
        f"{asked}: no {parameter} in [{axis.low:g}, "
        f"{axis.high:g}] {keeps} within this budget; reachable is {reachable} at delta = {budget.delta!r}{instead}",
        axis.safest,
        epsilon,
        delta,
    )


def _out_of_reach(budget: Budget, goal: Goal, axis: Axis, parameter: str) -> ParameterError:
    """The error for a risk that not even the safest value keeps below its limit."""
    profile = budget.profile(axis.safest, COARSEST)
    found = narrowed(budget.risk_bounds(profile), Bounds)
    keeps = "keeps" if found.lower > goal.limit else "could be shown to keep"
    return UnreachableError(
        f"{budget.aim}: no {parameter} in [{axis.low:g}, {axis.high:g}] {keeps} below it; an attack reaches {round_down(found.lower)} "
        f"at {parameter} = {axis.safest!r}",
        axis.safest,
        Bounds(0.0, math.inf),
        profile.delta_bounds(budget.epsilon),
    )


def calibrate_noise_multiplier(
    make: Callable[[float], Composable],
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    limits: tuple[float, float] = (0.01, 1e15),
    tolerance: float = DEFAULT_TOLERANCE,
    **settings: Unpack[CalibrationSettings],
) -> CalibratedFloat:
    """Return the smallest noise multiplier that keeps make(noise_multiplier) within the budget.

    Any scale that makes the release more private will do: of Laplace noise, or one factor on the
    noise of several mechanisms. Guarantee, arguments and errors are those of `calibrate`. If every
    noise in ``limits`` is enough, the result is the lower limit.

    >>> from hockeystick import Gaussian, PoissonSampled
    >>> sigma = calibrate_noise_multiplier(
    ...     lambda s: PoissonSampled(Gaussian(s), 0.005) * 10_000, epsilon=1.0, delta=1e-6, tolerance=1e-3
    ... )
    >>> 2.243371 <= sigma <= 2.243371 * (1 + 1e-3)
    True
    """
    return calibrate(
        make,
        epsilon,
        delta,
        increasing=False,
        limits=limits,
        parameter="noise_multiplier",
        tolerance=tolerance,
        **settings,
    )


def calibrate_steps(
    make: Callable[[int], Composable],
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    limits: tuple[int, int] = (0, 10**9),
    **settings: Unpack[CalibrationSettings],
) -> CalibratedInt:
    """Return the largest number of steps that keeps make(steps) within the budget.

    Certified to fit, and ``certificate.tight`` says whether one step more was shown to exceed the
    budget (otherwise it was merely not shown to fit). What was released before is part of ``make``:
    0 is the answer if not even one more step fits, and UnreachableError is raised if what was
    released before exceeds the budget already.

    >>> from hockeystick import Gaussian, Laplace
    >>> before = Laplace(10.0) * 3
    >>> steps = calibrate_steps(lambda n: before + Gaussian(20.0) * n, epsilon=2.0, delta=1e-6)
    >>> steps, steps.certificate.tight  # 71 exceeds the budget
    (70, True)
    """
    return calibrate(
        make,
        epsilon,
        delta,
        increasing=True,
        limits=limits,
        integer=True,
        start=100,
        parameter="steps",
        **settings,
    )


def calibrate_sampling_probability(
    make: Callable[[float], Composable],
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    limits: tuple[float, float] = (1e-12, 1.0),
    tolerance: float = DEFAULT_TOLERANCE,
    **settings: Unpack[CalibrationSettings],
) -> CalibratedFloat:
    """Return the largest probability that keeps make(sampling_probability) within the budget.

    Guarantee, arguments and errors are those of `calibrate`. The result is 1.0 if no sampling is
    needed.

    >>> from hockeystick import Gaussian, PoissonSampled
    >>> float(calibrate_sampling_probability(lambda q: PoissonSampled(Gaussian(30.0), q), 1.0, 1e-6))
    1.0
    """
    return calibrate(
        make,
        epsilon,
        delta,
        increasing=True,
        limits=limits,
        start=0.01,
        parameter="sampling_probability",
        tolerance=tolerance,
        **settings,
    )


def calibrate_batch_size(
    make: Callable[[int], Composable],
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    limits: tuple[int, int] | None = None,
    **settings: Unpack[CalibrationSettings],
) -> CalibratedInt:
    """Return the largest batch size that keeps make(batch_size) within the budget.

    ``limits`` may be left out if ``make`` returns what `dp_sgd` does: from 1 to as many as the
    dataset has for each worker and accumulated pass. With a fixed number of epochs, the number of
    updates jumps where one more batch fills an epoch, so epsilon is not quite monotone: the result
    is certified to fit, and the next batch size not to, but a larger one may fit again.

    >>> from hockeystick import dp_sgd
    >>> batch_size = calibrate_batch_size(lambda b: dp_sgd(2.0, 60_000, b, steps=100), 0.3, 1e-5)
    >>> batch_size, batch_size.certificate.exceeding
    (911, 912)
    """
    if limits is None:
        run = function(make)(1)
        if not isinstance(run, DPSGD):
            raise ParameterTypeError(
                f"limits: must be given, unless make(1) is what dp_sgd returns, with its own sampler; it is {type(run).__name__}"
            )
        limits = (1, run.dataset_size // (run.gradient_accumulation * run.world_size))
    return calibrate(
        make,
        epsilon,
        delta,
        increasing=True,
        limits=limits,
        integer=True,
        start=256,
        parameter="batch_size",
        **settings,
    )
