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
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

import scipy  # its parts are loaded when they are used

from .._base import gdp
from .._base.bounds import Bounds, finite, round_up
from .._base.html import Shown
from .._base.search import COARSEST, Axis, Search, Verdict
from .._base.validation import ParameterError, ParameterTypeError, boolean, real
from .._base.validation import integer as integer_
from ..mechanisms.descriptions import Composable, composition
from ..mechanisms.dpsgd import DPSGD
from .profile import PrivacyProfile, account
from .settings import DEFAULT_ACCURACY, DEFAULT_MEMORY_LIMIT

if TYPE_CHECKING:
    from typing_extensions import Self

DEFAULT_TOLERANCE = 1e-6

_Number: TypeAlias = "float | int"
_TINY, _NEARLY_ONE = 1e-300, 1.0 - 1e-12
_ROOT_2PI = math.sqrt(2.0 * math.pi)


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

    @property
    def gap(self) -> float:
        """Relative distance from ``value`` to ``exceeding``; infinite if there is none."""
        if self.exceeding is None:
            return math.inf
        return abs(self.exceeding - self.value) / self.value if self.value else math.inf

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings; infinities become the string "inf"."""
        plain = {
            **self.__dict__,
            "description": str(self.description),
            "epsilon_bounds": self.epsilon_bounds._asdict(),
            "gap": self.gap,
        }
        named: dict[str, Any] = finite(plain)
        return named


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


class _Budget:
    """The target, and the question put to each candidate: does it fit, does it exceed, how far off?

    The distance is measured in ln mu, where N(mu, 1) against N(0, 1) has the same delta at the same
    epsilon: a straight line against ln noise, ln steps or ln q for Gaussians, and nearly so for
    every long composition, which is why few evaluations suffice. At delta = 0, where no Gaussian
    fits, it is measured in ln epsilon.
    """

    def __init__(
        self,
        make: Callable[[Any], Composable],
        epsilon: float,
        delta: float,
        adjacency: str,
        memory_limit: int,
    ) -> None:
        self.make = make
        self.epsilon = epsilon
        self.delta = delta
        self.adjacency = adjacency
        self.memory_limit = memory_limit
        self.evaluations = 0
        self.accuracies: dict[float, float] = {}
        self.target = self._log_mu(epsilon, delta)
        self.steepness = self._steepness()

    def profile(self, value: float, accuracy: float) -> PrivacyProfile:
        """The profile of make(value)."""
        description = self.make(value)
        composition(description, f"make({value!r})")
        return account(description, self.adjacency, accuracy, self.memory_limit)

    def epsilon_bounds(self, profile: PrivacyProfile) -> Bounds:
        """Epsilon at the target delta."""
        self.evaluations += 1
        return profile.epsilon_bounds(self.delta)

    def delta_bounds(self, profile: PrivacyProfile) -> Bounds:
        """Delta at the target epsilon."""
        self.evaluations += 1
        return profile.delta_bounds(self.epsilon)

    def look(self, value: float, accuracy: float) -> Verdict:
        """What the search learns from one candidate.

        delta at the target epsilon costs less than epsilon at the target delta, and either one
        proves the point. The second is asked for only where the first says nothing useful.
        """
        profile = self.profile(value, accuracy)
        self.accuracies[value] = accuracy
        fits = exceeds = False
        if self.delta > 0.0:
            lower, upper = self.delta_bounds(profile)
            # Comparisons with nan are false: then nothing is proven.
            fits, exceeds = upper <= self.delta, lower > self.delta
            if _TINY < upper < _NEARLY_ONE and (fits or lower > 0.0):
                height = self._log_mu(self.epsilon, upper) - self.target
                return Verdict(fits, exceeds, height, _width(lower, upper) / self.steepness)
        lower, upper = self.epsilon_bounds(profile)
        fits, exceeds = fits or upper <= self.epsilon, exceeds or lower > self.epsilon
        return Verdict(fits, exceeds, self._log_mu(upper, self.delta) - self.target, _width(lower, upper))

    def _log_mu(self, epsilon: float, delta: float) -> float:
        """ln mu of the Gaussian with this guarantee, nan if that says nothing."""
        if self.delta == 0.0:
            return math.log(epsilon) if 0.0 < epsilon < math.inf else math.nan
        if not (0.0 < delta < 1.0 and epsilon < math.inf):
            return math.nan
        if epsilon == 0.0:  # delta = 2 Phi(mu / 2) - 1
            half = 0.5 * delta
            return math.log(
                2.0 * float(scipy.special.ndtri(0.5 + half)) if half > 1e-6 else _ROOT_2PI * delta
            )
        mu = gdp.mu_at(epsilon, delta)
        return math.log(mu) if 1.1e-12 < mu < math.inf else math.nan

    def _steepness(self) -> float:
        """d ln delta / d ln mu at the target: how well delta must be known to see a change of mu."""
        if self.delta == 0.0 or math.isnan(self.target):
            return 1.0
        mu = math.exp(self.target)
        a = 0.5 * mu - self.epsilon / mu
        return math.exp(self.target - 0.5 * a * a - math.log(_ROOT_2PI * self.delta))


def _width(lower: float, upper: float) -> float:
    return math.log(upper / lower) if 0.0 < lower < upper < math.inf else 0.0


@overload
def calibrate(
    make: Callable[[float], Composable],
    epsilon: float,
    delta: float,
    *,
    increasing: bool,
    limits: tuple[float, float],
    integer: Literal[False] = False,
    start: float | None = None,
    parameter: str = "parameter",
    adjacency: str = "add_or_remove",
    tolerance: float = DEFAULT_TOLERANCE,
    memory_limit: int = DEFAULT_MEMORY_LIMIT,
) -> CalibratedFloat: ...


@overload
def calibrate(
    make: Callable[[int], Composable],
    epsilon: float,
    delta: float,
    *,
    increasing: bool,
    limits: tuple[int, int],
    integer: Literal[True],
    start: int | None = None,
    parameter: str = "parameter",
    adjacency: str = "add_or_remove",
    tolerance: float = DEFAULT_TOLERANCE,
    memory_limit: int = DEFAULT_MEMORY_LIMIT,
) -> CalibratedInt: ...


def calibrate(
    make: Callable[[Any], Composable],
    epsilon: float,
    delta: float,
    *,
    increasing: bool,
    limits: tuple[float, float],
    integer: bool = False,
    start: float | None = None,
    parameter: str = "parameter",
    adjacency: str = "add_or_remove",
    tolerance: float = DEFAULT_TOLERANCE,
    memory_limit: int = DEFAULT_MEMORY_LIMIT,
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

    ``epsilon`` >= 0, ``delta`` in [0, 1]. ``start`` is a first guess, moved into the limits;
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
    if not isinstance(parameter, str):
        raise ParameterTypeError(f"parameter = {parameter!r}: must be a string")
    epsilon = real("epsilon", epsilon, 0.0)
    delta = real("delta", delta, 0.0, 1.0)
    tolerance = real("tolerance", tolerance, 1e-12, 0.1)
    axis = _axis(limits, boolean("increasing", increasing), boolean("integer", integer))
    budget = _Budget(_function(make), epsilon, delta, adjacency, memory_limit)
    if start is None:
        # Noise at which a single Gaussian would spend the budget; among rising parameters, 1.
        start = axis.value(0.0 if axis.rising or math.isnan(budget.target) else budget.target)
    else:
        start = integer_("start", start) if axis.integer else real("start", start, 0.0, open_low=True)
        start = min(max(start, axis.low), axis.high)

    found = Search(budget.look, axis, tolerance, budget.steepness).run(start)
    if found is None:
        raise _unreachable(budget, axis, start, parameter)
    accuracy = min(budget.accuracies[found.value], DEFAULT_ACCURACY)
    profile = budget.profile(found.value, accuracy)
    lower, upper = budget.epsilon_bounds(profile)
    certificate = Certificate(
        parameter=parameter,
        value=found.value,
        epsilon=epsilon,
        delta=delta,
        adjacency=adjacency,
        description=profile.description,
        # That the value fits may have been proven by delta, which proves it for epsilon.
        epsilon_bounds=Bounds(min(lower, epsilon), min(upper, epsilon)),
        exceeding=found.exceeding,
        tight=found.tight,
        at_limit=found.value == axis.riskiest,
        tolerance=tolerance,
        accuracy=accuracy,
        evaluations=budget.evaluations,
    )
    return CalibratedInt(certificate) if axis.integer else CalibratedFloat(certificate)


def _function(make: Any) -> Callable[[Any], Composable]:
    if not callable(make):
        raise ParameterTypeError(f"make = {make!r}: must be a function that returns a description")
    function: Callable[[Any], Composable] = make
    return function


def _axis(limits: object, increasing: bool, whole: bool) -> Axis:
    if not isinstance(limits, (tuple, list)) or len(limits) != 2:
        raise ParameterTypeError(f"limits = {limits!r}: must be a pair (low, high)")
    if whole:
        low: float = integer_("limits[0]", limits[0])
        return Axis(low, integer_("limits[1]", limits[1], int(low)), increasing, True)
    low = real("limits[0]", limits[0], 0.0, open_low=True)
    return Axis(low, real("limits[1]", limits[1], low), increasing, False)


def _unreachable(budget: _Budget, axis: Axis, start: float, parameter: str) -> ParameterError:
    """The error for a budget that not even the safest value keeps."""
    # At the end of the range the bounds may be wide, so the values before it have a say.
    near = sorted(budget.accuracies, key=axis.position)[:3]
    profiles = {value: budget.profile(value, COARSEST) for value in (axis.safest, *near, start)}
    epsilons = {value: budget.epsilon_bounds(profile) for value, profile in profiles.items()}
    deltas = [budget.delta_bounds(profile) for profile in profiles.values()]
    if epsilons[start].upper < epsilons[axis.safest].lower:
        return ParameterError(
            f"increasing = {axis.rising}: must be {not axis.rising}; epsilon at {parameter} = {start!r} "
            f"is below that at {parameter} = {axis.safest!r}"
        )
    epsilon = Bounds(epsilons[axis.safest].lower, min(bounds.upper for bounds in epsilons.values()))
    delta = Bounds(deltas[0].lower, min(bounds.upper for bounds in deltas))
    exceeds = epsilon.lower > budget.epsilon or delta.lower > budget.delta
    keeps = "keeps" if exceeds else "could be shown to keep"
    reachable = f"epsilon = {round_up(epsilon.upper)}" if epsilon.upper < math.inf else "no finite epsilon"
    return UnreachableError(
        f"epsilon = {budget.epsilon!r}, delta = {budget.delta!r}: no {parameter} in [{axis.low:g}, "
        f"{axis.high:g}] {keeps} within this budget; reachable is {reachable} at delta = {budget.delta!r}, "
        f"or delta = {round_up(delta.upper)} at epsilon = {budget.epsilon!r}",
        axis.safest,
        epsilon,
        delta,
    )


def calibrate_noise_multiplier(
    make: Callable[[float], Composable],
    epsilon: float,
    delta: float,
    *,
    adjacency: str = "add_or_remove",
    tolerance: float = DEFAULT_TOLERANCE,
    limits: tuple[float, float] = (0.01, 1e15),
    memory_limit: int = DEFAULT_MEMORY_LIMIT,
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
        adjacency=adjacency,
        tolerance=tolerance,
        memory_limit=memory_limit,
    )


def calibrate_steps(
    make: Callable[[int], Composable],
    epsilon: float,
    delta: float,
    *,
    adjacency: str = "add_or_remove",
    limits: tuple[int, int] = (0, 10**9),
    memory_limit: int = DEFAULT_MEMORY_LIMIT,
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
        adjacency=adjacency,
        memory_limit=memory_limit,
    )


def calibrate_sampling_probability(
    make: Callable[[float], Composable],
    epsilon: float,
    delta: float,
    *,
    adjacency: str = "add_or_remove",
    tolerance: float = DEFAULT_TOLERANCE,
    limits: tuple[float, float] = (1e-12, 1.0),
    memory_limit: int = DEFAULT_MEMORY_LIMIT,
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
        adjacency=adjacency,
        tolerance=tolerance,
        memory_limit=memory_limit,
    )


def calibrate_batch_size(
    make: Callable[[int], Composable],
    epsilon: float,
    delta: float,
    *,
    adjacency: str = "add_or_remove",
    limits: tuple[int, int] | None = None,
    memory_limit: int = DEFAULT_MEMORY_LIMIT,
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
        run = _function(make)(1)
        if not isinstance(run, DPSGD):
            raise ParameterTypeError("limits: must be given, unless make(1) is what dp_sgd returns")
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
        adjacency=adjacency,
        memory_limit=memory_limit,
    )
