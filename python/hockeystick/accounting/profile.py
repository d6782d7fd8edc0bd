"""Accounting: from a description to certified answers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import _core
from .._base import storage
from .._base.bounds import Bounds, Shown, exactly, round_down, round_up
from .._base.files import refusing
from .._base.types import AnyPath, Array
from .._base.validation import ParameterTypeError, boolean, integer, real, reals
from ..mechanisms import adjacency as _adjacency
from ..mechanisms.adjacency import Directions
from ..mechanisms.descriptions import Composable, Group, PrivateSelection, Repetitions, composition
from ..mechanisms.selection import checked_tuning
from ..mechanisms.steps import from_dict, to_dict, written
from . import rare
from .deployment import tuning_words
from .envelope import FIRST_NODES, LAST_NODE, TOLERANCE, Envelope, complement, line, look, mirrored
from .gaussian_summary import DEFAULT_FLOOR, GaussianSummary, granted, smallest_mu, summarise, unsampled_mu
from .plausibility import notes
from .rare import delta_limit, epsilon_limit
from .report import Answer, Report, declared, dominated, noise_conventions, references, samplers, unit
from .risk import Risk
from .settings import DEFAULT_ACCURACY, DEFAULT_MEMORY_LIMIT, Settings
from .views import AskCurve, Views, helpful

_ASKED_INSTEAD = 1e3
"""*Speed*: beyond this epsilon an engine that finds nothing is asked here instead."""
_AT_ONCE = ("exact", "closed form")
_FAST = (*_AT_ONCE, "inversion")
"""Engines that answer at once, and those that answer many points together as well."""
_CACHE_SIZE = 4096  # *speed*
_KIND = "profile"
_COMPUTED_BY = [_core.__version__, _core.__commit__]
ROUGH = 1e-2
"""*Speed*: the accuracy of what a report says beside epsilon and delta."""


def account(
    process: Composable,
    adjacency: str = "add_or_remove",
    accuracy: float = DEFAULT_ACCURACY,
    memory_limit: int = DEFAULT_MEMORY_LIMIT,
    engine: str = "auto",
) -> PrivacyProfile:
    """Return the privacy profile of ``process``; nothing is computed before the first question.

    ``adjacency`` is one of "add", "remove", "add_or_remove" (default, the worse of the two),
    "replace_one", "zero_out". ``accuracy`` is the relative gap upper/lower - 1 aimed at (1e-9 to
    1), ``memory_limit`` a cap in bytes (at least 2^20): where it binds, the interval widens.
    ``engine`` "auto" takes a closed form or exact inversion of the Laplace transform where they
    certify that accuracy, and composition by FFT elsewhere; "fft" always composes, and "prv" does so after
    mean-preserving rounding (Gopi, Lee, Wutschitz 2021), to compare: their bounds hold as well, and are wider.
    Raises ParameterError or ParameterTypeError before any work.

    >>> from hockeystick import Gaussian
    >>> profile = account(Gaussian(noise_multiplier=2.0) * 4)
    >>> lower, upper = profile.epsilon_bounds(delta=1e-5)
    >>> lower <= profile.epsilon(delta=1e-5) == upper
    True
    """
    return PrivacyProfile(process, adjacency, accuracy, memory_limit, engine)


_SHOWN = (1e-3, 1e-5, 1e-7)  # *limit*: what a notebook is told about


class PrivacyProfile(Shown):
    """The function delta(epsilon) of a composition, with certified bounds on both sides.

    Upper bounds hold for the mechanism; lower bounds hold for the pair of distributions that
    dominates it, so the gap between them is what the numerics lose; where mechanisms are declared by a curve (`ZCDP`,
    `ExponentialMechanism`, `Group`, ...) they are 0. Questions never change later answers. For data releases under several adjacencies, make one profile for each.
    """

    def __init__(
        self,
        process: Composable,
        adjacency: str = "add_or_remove",
        accuracy: float = DEFAULT_ACCURACY,
        memory_limit: int = DEFAULT_MEMORY_LIMIT,
        engine: str = "auto",
    ) -> None:
        self._process = composition(process)
        self._description = process
        _adjacency.check(self._process, adjacency)
        self._settings = Settings(adjacency, accuracy, memory_limit, engine)
        self._answers: dict[tuple[str, float], Answer] = {}
        rest, self._rare = rare.divide(self._process)
        self._rest = self._other(rest) if self._rare else None
        self._declared = rare.Declared.of(self._process, adjacency)

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy is the same question: what the core made for the answers so far is of this process.
        return type(self), (self._description, *vars(self._settings).values())

    def _other(self, process: Composable, **changed: Any) -> PrivacyProfile:
        """Another process, asked in the same way but for what has ``changed``."""
        return account(process, **{**vars(self._settings), **changed})

    @property
    def description(self) -> Composable:
        """What was accounted for, as it was given."""
        return self._description

    @property
    def adjacency(self) -> str:
        """The adjacency the answers hold under."""
        return self._settings.adjacency

    @property
    def accuracy(self) -> float:
        """The relative gap between upper and lower bound that was asked for."""
        return self._settings.accuracy

    def _shown(self) -> list[tuple[str, Any]]:
        answers = [(delta, self.epsilon_bounds(delta)) for delta in _SHOWN]
        return [
            ("released", self._description),
            ("adjacency", self.adjacency),
            *(
                (f"epsilon at delta = {exactly(delta)}", f"[{round_down(lower, 8)}, {round_up(upper, 8)}]")
                for delta, (lower, upper) in answers
            ),
        ]

    def __repr__(self) -> str:
        return (
            f"PrivacyProfile({self._description}, adjacency={self.adjacency!r}, accuracy={self.accuracy:g})"
        )

    @functools.cached_property
    def _directions(self) -> Directions:
        return self._settings.directions(self._process)

    @functools.cached_property
    def _profile(self) -> _core.Profile:
        return self._settings.core(self._directions)

    @functools.cached_property
    def _views(self) -> Views | None:
        if self._settings.engine != "auto" or not helpful(self._process):
            return None
        return Views(self._process, self._settings, self._profile)

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon >= 0 certified at this ``delta`` in [0, 1]: an upper bound, inf if none.

        >>> from hockeystick import Gaussian
        >>> account(Gaussian(1.0) * 0).epsilon(delta=0.0)
        0.0
        >>> account(Gaussian(0.0)).epsilon(delta=1e-5)
        inf
        """
        return self.epsilon_bounds(delta).upper

    def epsilon_bounds(self, delta: float) -> Bounds:
        """Bounds(lower, upper) on the epsilon at this ``delta`` in [0, 1]."""
        return self._epsilon(real("delta", delta, 0.0, 1.0)).bounds

    def delta(self, epsilon: float) -> float:
        """Smallest delta certified at this ``epsilon``: an upper bound on H_{e^epsilon}(P||Q).

        ``epsilon`` may be any real number or an infinity; negative values complete the trade-off
        curve.

        >>> from hockeystick import Gaussian
        >>> account(Gaussian(1.0)).delta(epsilon=float("inf"))
        0.0
        """
        return self.delta_bounds(epsilon).upper

    def delta_bounds(self, epsilon: float) -> Bounds:
        """Bounds(lower, upper) on the delta at this ``epsilon``."""
        return self._delta(real("epsilon", epsilon, allow_inf=True)).bounds

    def advantage(self) -> float:
        """Upper bound on the membership advantage max (TPR - FPR) = delta(0), the total variation."""
        return self.advantage_bounds().upper

    def advantage_bounds(self) -> Bounds:
        """Bounds(lower, upper) on the membership advantage."""
        return self._delta(0.0).bounds

    @functools.cached_property
    def risk(self) -> Risk:
        """What the guarantee means for who is attacked: true positives, precision, reconstruction; see `Risk`."""
        return Risk(self)

    def gdp(self, delta: float = DEFAULT_FLOOR) -> GaussianSummary:
        """The whole profile in one number: the smallest certified mu with delta(epsilon) <= delta_mu(epsilon) + ``delta`` for all real epsilon.

        Bounds on it from both sides, and on the regret: how far the trade-off curve is above that of mu-GDP. ``delta`` in
        [0, 1), 0 or at least 1e-300, is a floor far below any delta of interest; without one, sampling gains nothing (see `gdp_mu`).

        >>> from hockeystick import Gaussian
        >>> found = account(Gaussian(noise_multiplier=2.0) * 4).gdp()
        >>> bool(found.mu_bounds.lower <= 1.0 <= found.mu + 1e-9), found.regret.upper < 1e-5
        (True, True)
        """
        return self._summary(granted("delta", real("delta", delta, 0.0, 1.0, open_high=True)))

    def _summary(self, floor: float, *, roughly: bool = False) -> GaussianSummary:
        if not self._directions:
            return GaussianSummary(0.0, floor, Bounds(0.0, 0.0), Bounds(0.0, 0.0))
        return summarise(
            self, floor, unsampled_mu(self._process, self.adjacency) * (1.0 + 1e-12), roughly=roughly
        )

    def reversed(self) -> PrivacyProfile:
        """The profile of "add" for "remove" and the other way round; itself for all else."""
        return self._reversed

    @functools.cached_property
    def _reversed(self) -> PrivacyProfile:
        other = {"add": "remove", "remove": "add"}.get(self.adjacency)
        return self._other(self._process, adjacency=other) if other else self

    def each_direction(self) -> tuple[PrivacyProfile, ...]:
        """The profiles of adding and of removing a record alone, where they differ; else this one."""
        return self._parts or (self,)

    @functools.cached_property
    def _parts(self) -> tuple[PrivacyProfile, ...]:
        if self.adjacency != "add_or_remove" or len(self._directions) < 2:
            return ()
        return tuple(self._other(self._process, adjacency=one) for one in ("remove", "add"))

    @functools.cached_property
    def overview(self) -> tuple[Envelope, ...]:
        """The curve of each direction, looked at once and roughly: all that a report needs, and its cost is limited."""
        rough = self._other(self._process, accuracy=max(self.accuracy, ROUGH))
        return tuple(look(part) for part in rough.each_direction())

    def tradeoff(self, alpha: ArrayLike) -> Any:
        """Certified lower bound on the type II error of any test with type I error ``alpha``.

        f(alpha) = sup over real epsilon of max(0, 1 - delta(epsilon) - e^epsilon alpha) (Dong,
        Roth, Su 2022, Proposition 6), at finitely many epsilon, each of which gives a valid bound, chosen so that
        no other one gives 1e-7 more where delta is known as well as that. ``alpha`` in [0, 1], a number (returns a float) or
        an array (returns an array of the same shape). Decreasing and convex.

        >>> from hockeystick import Gaussian
        >>> float(account(Gaussian(1.0) * 0).tradeoff(0.25))
        0.75
        """
        points = reals("alpha", alpha, 0.0, 1.0)
        errors = points.ravel()
        detected = errors.copy()
        if self._process.items and self._directions:
            never = errors == 0.0
            detected[never] = self.delta(math.inf)
            if not never.all():
                wide = self.widest_epsilon()
                curve = Envelope(self.delta_curve, np.linspace(-wide, wide, FIRST_NODES))
                found = curve.least([line(error) for error in errors[~never].tolist()], TOLERANCE)
                detected[~never] = np.minimum(1.0, [upper for _, upper in found])
        missed = complement(detected).reshape(points.shape)
        return missed if points.ndim else float(missed)

    def widest_epsilon(self) -> float:
        """The epsilon at which delta is 1e-12 above what it falls to, at most 700; and 1e-3 more."""
        floor = self.delta(math.inf)
        wide = self.epsilon(min(1.0, floor + 1e-12)) if floor < 1.0 else 0.0
        return min(wide, LAST_NODE) + 1e-3  # e^epsilon must stay finite

    def gdp_mu(self, slack: float = 0.0) -> float:
        """Smallest certified mu such that the release is mu-GDP, up to ``slack`` in delta.

        delta(epsilon) <= delta_mu(epsilon) + slack for every epsilon >= 0, in both directions, so
        that the trade-off curve lies above the Gaussian one of mu minus ``slack``. With
        ``slack=0`` this is mu-GDP itself: exact for Gaussian compositions, infinite if the data
        may be revealed outright, or the noise is discrete and unbounded. Sampling does not help there: far enough in the tail a sampled
        Gaussian behaves like an unsampled one, so its only mu is that of the unsampled
        composition. Allow a slack far below your delta (1e-12, say; at least 1e-300) to see what sampling gains.

        Rigorous over all epsilon, as `gdp` is: between points by convexity, and beyond them delta is
        below ``slack``; never above the sum-of-squares bound from each step.

        >>> from hockeystick import Gaussian
        >>> mu = account(Gaussian(noise_multiplier=2.0) * 4).gdp_mu()
        >>> 1.0 <= mu <= 1.0 + 1e-6
        True
        """
        slack = granted("slack", real("slack", slack, 0.0, 1.0))
        # G_mu is its own inverse, so one direction is above it exactly if the other one is.
        if self.adjacency in ("add", "remove"):
            return self._other(self._process, adjacency="add_or_remove").gdp_mu(slack)
        if not self._directions or slack == 1.0:
            return 0.0
        if self.delta(math.inf) > slack:
            return math.inf
        bound = unsampled_mu(self._process, self.adjacency)
        end = self.epsilon(slack)
        if math.isinf(end):
            return bound
        return smallest_mu(self.delta_curve, end, slack, bound)

    def group(self, size: int) -> PrivacyProfile:
        """The profile where any ``size`` records change instead of one, by what this curve implies alone.

        docs/mechanisms/users.md, section 4. `UserLevel` is tighter where Poisson sampling draws a user's examples.

        >>> from hockeystick import Gaussian
        >>> 4.0 < account(Gaussian(2.0)).group(2).epsilon(delta=1e-5) < 4.4  # as Gaussian(1.0)
        True
        """
        return self._other(Group(self._process, size))

    def curve(self, points: int = 33) -> tuple[Array, Array, Array]:
        """delta(epsilon) at ``points`` values of epsilon >= 0: arrays (epsilon, lower, upper).

        The range reaches to the epsilon at which delta is 1e-12 above what it falls to, or to 700 where that is beyond.
        """
        points = integer("points", points, 2, 100_000)
        epsilon = np.linspace(0.0, self.widest_epsilon(), points)
        return epsilon, *self.delta_curve(epsilon)

    def delta_curve(self, epsilon: ArrayLike) -> tuple[Array, Array]:
        """Bounds on delta at many ``epsilon`` in one pass: arrays (lower, upper) of its shape.

        As `delta_bounds`, for any real numbers or infinities, in much less time (one contour, or lattice, serves many neighbours); points
        surely below 1e-40 as wide as takes little time. Both bounds fall with epsilon; those of single queries do so up to their
        relative distance, as each has a lattice of its own.

        >>> from hockeystick import Gaussian
        >>> lower, upper = account(Gaussian(2.0) * 4).delta_curve([0.0, 1.0, 2.0])
        >>> bool((lower <= upper).all()), bool((upper[1:] < upper[:-1]).all())
        (True, True)
        """
        points = reals("epsilon", epsilon, allow_inf=True)
        known, place = np.unique(points, return_inverse=True)
        bounds = np.array(self._mirrored(PrivacyProfile._curve, known))
        # delta falls, so that what bounds it at one point does so at all that lie to the proper side.
        bounds = np.array([np.maximum.accumulate(bounds[0, ::-1])[::-1], np.minimum.accumulate(bounds[1])])
        bounds = bounds[:, place.reshape(points.shape)]
        return bounds[0], bounds[1]

    def rough_curve(self, epsilon: Array) -> tuple[Array, Array]:
        """As `delta_curve`, in little time whatever the engine: as wide as that makes it, and below 1e-15 perhaps from above alone.

        Lattices of a size that is fixed beforehand serve all points, where inversion does not answer.
        """
        return self._mirrored(PrivacyProfile._rough_curve, reals("epsilon", epsilon, allow_inf=True))

    def _mirrored(
        self, curve: Callable[[PrivacyProfile, Array], tuple[Array, Array]], epsilon: Array
    ) -> tuple[Array, Array]:
        split = self.adjacency in ("add", "remove") and bool((epsilon < 0.0).any())
        profiles = (self, self._reversed) if split else (self,)
        return mirrored([functools.partial(curve, profile) for profile in profiles], epsilon)

    def _curve(self, epsilon: Array) -> tuple[Array, Array]:
        if self._rest is None and self._directions:
            return self._by_engines(epsilon, _core.Profile.delta_curve)
        lower, upper = np.array([self.delta_bounds(value) for value in epsilon.tolist()]).reshape(-1, 2).T
        return lower, upper

    def _rough_curve(self, epsilon: Array) -> tuple[Array, Array]:
        if self._rest is not None:
            lower, upper = self._rest.rough_curve(epsilon)
            return lower, upper + rare.total(self._rare) * (1.0 + 1e-12) + 5e-324
        return (
            self._by_engines(epsilon, _core.Profile.rough_curve) if self._directions else self._curve(epsilon)
        )

    def _by_engines(self, epsilon: Array, ask: AskCurve) -> tuple[Array, Array]:
        return ask(self._profile, epsilon) if self._views is None else self._views.curve(epsilon, ask)

    def slope_bounds(self, epsilon: float) -> Bounds:
        """Bounds(lower, upper) on d delta / d epsilon = -e^epsilon Q(L > epsilon), for finite ``epsilon``.

        delta is convex in e^epsilon, so that its chords to either side enclose the slope; certified, as
        the bounds on delta are. Where delta has a kink, both one-sided slopes are enclosed. Q(L > epsilon) is
        the type I error of the test that delta comes from.

        >>> from hockeystick import Gaussian
        >>> lower, upper = account(Gaussian(1.0)).slope_bounds(0.5)  # Q(L > 0.5) = Phi(-1)
        >>> lower <= -math.exp(0.5) * 0.15865525393145707 <= upper
        True
        """
        epsilon = real("epsilon", epsilon)
        # Far chords for where delta is only known roughly, near ones for where it is known well.
        far, near = 2.0 ** -np.arange(2.0, 10.0, 2.0), 2.0 ** -np.arange(10.0, 26.0, 2.0)
        answer = self._delta(epsilon)
        here = answer.bounds
        if answer.engine not in _FAST:
            # Every point has a lattice of its own: only chords about as wide as the root of what is not known.
            unknown = max(self.accuracy, (here.upper - here.lower) / max(here.upper, 5e-324))
            best = 2.0 ** round(0.5 * math.log2(min(unknown, 2.0**-4)))
            far, near = np.array([2.0 * best]), np.array([0.5 * best, 0.125 * best])
        far, near = (epsilon + np.log1p(np.append(-widths, widths)) for widths in (far, near))
        # Separately, as a curve is best known where its points are dense.
        upper = np.append(self.delta_curve(far)[1], self.delta_curve(near)[1])
        # Differences of doubles this close are exact, or rounded once.
        width = np.expm1(np.append(far, near) - epsilon)
        right, left = width > 0.0, width < 0.0
        steepest = (upper - here.lower)[left] / width[left] * (1.0 + 1e-15)
        flattest = (upper - here.lower)[right] / width[right] * (1.0 - 1e-15)
        # P(L > epsilon) = delta - slope is at most 1.
        least = max([here.lower - 1.0 - 1e-15, *steepest])
        return Bounds(float(min(least, 0.0)), float(min([0.0, *flattest])))

    def report(
        self,
        delta: float | None = None,
        epsilon: float | None = None,
        *,
        risks: bool = True,
        tuning: Repetitions | str | None = None,
    ) -> Report:
        """Everything known about the guarantee at this ``delta``, at this ``epsilon``, or at both.

        With ``risks`` also what it means to who is attacked (`Risk.table`), and one number for all of it (`gdp`): certified, and
        within about a per cent of `risk` and `gdp` (a few of `risk` for a single sampled step of little noise), which take longer where
        lattices answer. ``tuning`` as of `plan_training`: `Repetitions` of this release, of which the best is what is reported and accounted
        for (`PrivateSelection`); "none", a declaration; or not declared.

        >>> from hockeystick import Gaussian
        >>> report = account(Gaussian(2.0), adjacency="remove").report(delta=1e-5)
        >>> "1e-05" in report.statement() and "one record is removed" in report.statement()
        True
        """
        if tuning is not None:
            released = self
            if isinstance(chosen := checked_tuning(tuning), Repetitions):
                released = self._other(PrivateSelection(self._description, chosen))
            return released.report(delta, epsilon, risks=risks).declare(tuning=tuning_words(tuning))
        risks = boolean("risks", risks)
        if delta is None and epsilon is None:
            raise ParameterTypeError("delta, epsilon: at least one of the two must be given")
        if delta is not None:
            delta = real("delta", delta, 0.0, 1.0)
        if epsilon is not None:
            epsilon = real("epsilon", epsilon)
        process = self._process
        at_delta = None if delta is None else self._epsilon(delta)
        at_epsilon = None if epsilon is None else self._delta(epsilon)
        # At delta = 0 or 1 there is an answer at once, whoever finds others.
        found = (at_delta, at_epsilon, self._delta(0.0))
        roughly = any(answer is not None and answer.engine not in _AT_ONCE for answer in found)
        return Report(
            composition=written(process.items),
            details=str(self._description),
            steps=process.releases,
            adjacency=self.adjacency,
            unit=unit(process, self.adjacency),
            samplers=samplers(process, self.adjacency),
            noise=noise_conventions(process, self.adjacency),
            references=references(process, self.adjacency),
            accuracy=self.accuracy,
            version=_core.__version__,
            at_delta=delta,
            epsilon=at_delta,
            at_epsilon=epsilon,
            delta=at_epsilon,
            advantage=self.advantage_bounds(),
            gdp=self._summary(DEFAULT_FLOOR, roughly=roughly) if risks else None,
            risks=tuple(Risk(self, roughly=True).table()) if risks else (),
            dominated=tuple(dict.fromkeys(dominated(process))),
            notes=notes(self._description, self.adjacency, epsilon, delta),
            deployment=declared(process, self.adjacency),
            source=self,
        )

    def _epsilon(self, delta: float) -> Answer:
        return self._cached("epsilon", delta, self._compute_epsilon)

    def _delta(self, epsilon: float) -> Answer:
        return self._cached("delta", epsilon, self._compute_delta)

    def _cached(self, kind: str, value: float, compute: Callable[[float], Answer]) -> Answer:
        key = (kind, value + 0.0)  # -0.0 is 0.0
        answer = self._answers.get(key)
        if answer is None:
            answer = compute(value)
            if len(self._answers) >= _CACHE_SIZE:
                self._answers.clear()
            self._answers[key] = answer
        return answer

    def _compute_epsilon(self, delta: float) -> Answer:
        found = self._known_epsilon(delta)
        if found is None and self._views is not None:
            found = self._views.epsilon(delta)
        if found is None:
            found = Answer.of(self._profile.epsilon_bounds(delta))
        return self._declared.epsilon_at(delta, found, self._epsilon)

    def _known(self, quantity: str, point: float) -> Answer | None:
        """The "epsilon" or "delta" at one point where it takes no engine to answer for this very composition."""
        return self._known_epsilon(point) if quantity == "epsilon" else self._known_delta(point)

    def _known_epsilon(self, delta: float) -> Answer | None:
        if delta >= rare.participation(self._process):
            return Answer(0.0, 0.0)
        if self._rest is not None and delta > 0.0:
            return self._epsilon_beside_rare(self._rest, delta)
        return epsilon_limit(self._directions, delta)

    def _epsilon_beside_rare(self, rest: PrivacyProfile, delta: float) -> Answer:
        mass = rare.total(self._rare)
        if delta > mass:
            found = rest._epsilon((delta - mass) * (1.0 - 1e-15))
            return replace(found, lower=min(found.lower, rest._epsilon(delta).lower))
        # Basic composition: half of delta for the rest, the other half shared by the rare steps.
        found = rest._epsilon(0.5 * delta)
        added = [
            self._other(mechanism * rare.USES).epsilon(rare.share_of(0.5 * delta / len(self._rare), mass))
            for mechanism, mass in self._rare
        ]
        upper = math.fsum([found.upper, *added]) * (1.0 + 1e-15)
        return replace(found, lower=rest._epsilon(delta).lower, upper=upper)

    def _compute_delta(self, epsilon: float) -> Answer:
        known = self._known_delta(epsilon)
        if known is not None:
            return known
        if self._views is not None and math.isfinite(epsilon):
            answer = self._views.delta(epsilon)
            return replace(answer, upper=min(self._declared.most(epsilon), answer.upper))
        answer = Answer.of(self._profile.delta_bounds(epsilon))
        upper = min(self._declared.most(epsilon), answer.upper)
        if upper == 1.0 and _ASKED_INSTEAD < epsilon < math.inf:
            upper = self._delta(_ASKED_INSTEAD).upper  # delta falls
        return replace(answer, upper=upper)

    def _known_delta(self, epsilon: float) -> Answer | None:
        if self._rest is not None:
            return self._delta_beside_rare(self._rest, epsilon)
        return delta_limit(self._directions, epsilon, self._declared)

    def _delta_beside_rare(self, rest: PrivacyProfile, epsilon: float) -> Answer:
        beside = rest._delta(epsilon)
        # Infinite losses add up; finite ones of one kind of step alone need not be added to others'.
        alone = epsilon == math.inf or (epsilon >= 0.0 and rest._process.steps == 0 == len(self._rare) - 1)
        shown = [
            self._other(mechanism * rare.USES).delta(epsilon) if alone else 1.0 for mechanism, _ in self._rare
        ]
        added = [mass * part for (_, mass), part in zip(self._rare, shown, strict=True)]
        upper = math.fsum([beside.upper, *added]) * (1.0 + 1e-12)
        # The products may have underflowed, and more uses than those asked for are possible.
        if any(shown) or epsilon < self._epsilon(0.0).upper:
            upper += 5e-324
        return replace(beside, upper=min(1.0, upper))

    def save(self, path: AnyPath) -> None:
        """Write the description, a curve and all answers so far to one file, atomically.

        `load` of the same version gives the same answers back; questions not yet asked are computed anew, and by another version all.
        """
        epsilon, lower, upper = self.curve()
        # Of one moment: other threads may ask meanwhile.
        kept = [answer.to_parts(*asked) for asked, answer in dict(self._answers).items()]
        header = {
            "description": to_dict(self._description),
            **vars(self._settings),
            "computed_by": _COMPUTED_BY,
            "answers": [named for named, _ in kept],
        }
        arrays = {
            "answers": np.array([numbers for _, numbers in kept], dtype=np.float64).reshape(-1, 5),
            "curve": np.stack([epsilon, lower, upper]),
        }
        storage.write(path, _KIND, header, arrays)

    @classmethod
    def load(cls, path: AnyPath) -> PrivacyProfile:
        """Read what `save` wrote; StorageError (a ValueError) says why a file is refused."""
        header, arrays = storage.read(path, _KIND)
        with refusing(path):
            settings = {entry.name: header[entry.name] for entry in fields(Settings)}
            profile = cls(from_dict(header["description"]), **settings)
            answers, rows = header["answers"], arrays["answers"]
            if len(answers) != len(rows):
                raise ValueError("the table of answers does not match its header")
            # Another version may have erred, and what it computed is not to be reported as this one's.
            if header.get("computed_by") == _COMPUTED_BY:
                profile._answers |= dict(map(Answer.from_parts, answers, rows.tolist()))
        return profile
