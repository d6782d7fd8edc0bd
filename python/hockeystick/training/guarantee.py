"""How the guarantee of a plan comes about: certified by a composition in closed form, or verified by Monte Carlo samples.

docs/training/training.md says what each of them promises; docs/matrix/bandmf.md proves the second.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, NamedTuple, TypeAlias

from .. import _core
from .._base.bounds import Bounds, finite, round_down, round_up
from .._base.validation import NonNegative, ParameterError, check_fields, choice, instance, narrowed, real
from ..accounting.calibration import calibrate_noise_multiplier
from ..accounting.deployment import tuning_words
from ..accounting.profile import account
from ..accounting.report import CAVEAT, unit
from ..matrix.bandmf import BandMF
from ..mechanisms.adjacency import ADJACENCIES
from ..mechanisms.descriptions import Composable, PrivateSelection, Process, Repetitions
from ..mechanisms.steps import from_dict, to_dict, written
from ..montecarlo.bandmf_calibration import CalibratedBandMF, calibrate_bandmf, short_name, verification_plan
from ..montecarlo.direction import directions
from ..montecarlo.runs import RunOptions, resolve_seed
from ..montecarlo.verify import choose

Mechanism: TypeAlias = "BandMF | Process"

_AS_GOOD = 1e-3  # *speed*: by so much versions may differ that both are right, where intervals are as wide as `account` asks for


@dataclass(frozen=True)
class Guarantee:
    """What a plan promises, and why.

    ``kind`` "certified": an upper bound computed without sampling. ``kind`` "verified": choosing the noise by Monte Carlo samples and
    running the plan are *together* (``epsilon``, ``delta``)-DP (estimate, verify, release); the verifier is wrong with probability
    at most ``failure_probability``, which ``delta`` includes. ``evidence`` holds the numbers behind it, as JSON values.
    """

    kind: Annotated[str, functools.partial(choice, options=("certified", "verified"))]
    epsilon: NonNegative
    delta: Annotated[float, functools.partial(real, low=0.0, high=1.0, open_low=True, open_high=True)]
    adjacency: Annotated[str, functools.partial(choice, options=ADJACENCIES)]
    unit: str
    statement: str = field(repr=False)
    failure_probability: float | None
    evidence: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.failure_probability is not None:
            real("failure_probability", self.failure_probability, 0.0, 1.0)
        for name, kind in (("unit", str), ("statement", str), ("evidence", dict)):
            instance(name, getattr(self, name), kind)

    def check_verified(self, mechanism: BandMF) -> None:
        """Raise ParameterError if what was verified, by the evidence, is not what is promised of ``mechanism``."""
        promised = {
            "strategy": short_name(mechanism.strategy),
            "scheme": repr(mechanism.scheme),
            "noise_multiplier": mechanism.noise_multiplier,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "adjacency": self.adjacency,
            "failure_probability": self.failure_probability,
            "statement": self.statement,
        }
        verified = {"failure_probability": 0.0, **self.evidence, **(self.evidence.get("plan") or {})}
        for name, value in promised.items():
            known = verified.get(name)
            # The statement goes on with what is known of other runs.
            same = self.statement.startswith(f"{known} ") if name == "statement" else value == known
            if not same:
                raise ParameterError(
                    f"{name} = {value!r}: must be {known!r}, which the samples verified: plan it again"
                )

    def checked(self, mechanism: Mechanism, released: Composable) -> Guarantee:
        """This guarantee of what is ``released``, one or several runs of ``mechanism``, as this version says it where it is certified.

        ParameterError if this version does not confirm it: an earlier one may have erred, as in its words.
        """
        found = account(released, self.adjacency).epsilon_bounds(self.delta)
        if found.lower > self.epsilon or found.upper > self.epsilon * (1.0 + _AS_GOOD):
            raise ParameterError(
                f"epsilon = {self.epsilon!r}: is promised at delta = {self.delta!r}, but for what is planned hockeystick {_core.__version__} "
                f"finds {round_up(found.upper)} (at least {round_down(found.lower)}): plan it again"
            )
        if self.kind != "certified":
            return self
        known = Bounds(**self.evidence.get("epsilon_bounds", found._asdict()))
        if not found.lower <= known.upper <= self.epsilon or not known.lower <= found.upper:
            known = found
        tuning = self.evidence.get("tuning")
        none = Request(self.delta, None, None, self.adjacency, "none")
        said = "none" if self.statement.endswith(none.tuning_statement()) else None
        request = none._replace(tuning=said if tuning is None else narrowed(from_dict(tuning), Repetitions))
        text = _certified_statement(mechanism, request, self.epsilon, known)
        what = unit(mechanism.as_process(), self.adjacency)
        return replace(self, unit=what, statement=f"{text} {request.tuning_statement()}")


def is_certified(mechanism: Mechanism, adjacency: str) -> bool:
    """Whether the guarantee of ``mechanism`` needs no samples."""
    return not isinstance(mechanism, BandMF) or mechanism.is_certified(adjacency)


class Request(NamedTuple):
    """What is asked for: a budget, or a noise multiplier to account for, or both."""

    delta: float
    epsilon: float | None
    noise_multiplier: float | None
    adjacency: str
    tuning: Repetitions | str | None = None

    def released(self, process: Process) -> Process:
        """What is accounted: one run, or the best of several."""
        if not isinstance(self.tuning, Repetitions):
            return process
        return PrivateSelection(process, self.tuning).as_process()

    def tuning_statement(self) -> str:
        """What is known of other runs on the same data."""
        if self.tuning is not None:
            return f"Tuning: {tuning_words(self.tuning)}."
        return "Tuning: not declared; other runs on the same data, which chose settings of this one, are not covered."


def guarantee(
    make: Callable[[float], Mechanism], example: Mechanism, request: Request, **verifier: Any
) -> tuple[Mechanism, Guarantee]:
    """The mechanism that answers the request, and what it promises; ``verifier`` goes to `calibrate_bandmf` where it takes samples."""
    # Once for each noise multiplier: what is drawn from is what was accounted, even if ``make`` changes its mind.
    make = functools.cache(make)
    if is_certified(example, request.adjacency):
        mechanism, promise = _certified(make, request)
    elif isinstance(request.tuning, Repetitions):
        raise ParameterError(
            f"tuning = {request.tuning!r}: must be None or 'none' where the guarantee is verified by Monte Carlo samples: "
            "the best of several runs is accounted from a certified curve"
        )
    else:
        mechanism, promise = _verified(make, narrowed(example, BandMF), request, verifier)
    return mechanism, replace(promise, statement=f"{promise.statement} {request.tuning_statement()}")


def _certified(make: Callable[[float], Mechanism], request: Request) -> tuple[Mechanism, Guarantee]:
    delta, epsilon, sigma, adjacency, tuning = request
    evidence: dict[str, Any] = {}
    if sigma is None:
        epsilon = narrowed(epsilon, float)
        found = calibrate_noise_multiplier(
            lambda value: request.released(make(value).as_process()), epsilon, delta, adjacency=adjacency
        )
        sigma, evidence = float(found), {"certificate": found.certificate.to_dict()}
        bounds, proven = found.certificate.epsilon_bounds, epsilon
    else:
        bounds = account(request.released(make(sigma).as_process()), adjacency).epsilon_bounds(delta)
        proven = bounds.upper
        if epsilon is not None and not proven <= epsilon:
            raise ParameterError(
                f"noise_multiplier = {sigma!r}: gives epsilon = {round_up(proven)} at delta = {delta!r}, more "
                f"than {epsilon!r}"
            )
    if not proven < math.inf:
        raise ParameterError(f"noise_multiplier = {sigma!r}: gives no finite epsilon at delta = {delta!r}")
    mechanism = make(sigma)
    process = mechanism.as_process()
    evidence |= {"process": to_dict(request.released(process)), "epsilon_bounds": bounds._asdict()}
    if isinstance(tuning, Repetitions):
        evidence["tuning"] = to_dict(tuning)
    what, statement = unit(process, adjacency), _certified_statement(mechanism, request, proven, bounds)
    return mechanism, Guarantee(
        "certified", proven, delta, adjacency, what, statement, None, finite(evidence)
    )


def _certified_statement(mechanism: Mechanism, request: Request, proven: float, bounds: Bounds) -> str:
    """What may be said of a run, or of the best of several, whose epsilon is ``proven``, and known to be within these ``bounds``."""
    process, adjacency = mechanism.as_process(), request.adjacency
    described = f"Batches and noise of {process}"
    if isinstance(mechanism, BandMF):
        described = (
            f"BandMF with strategy {short_name(mechanism.strategy)} and batches from {mechanism.scheme!r}, "
            f"noise multiplier {mechanism.noise_multiplier!r} (standard deviation of Z / clipping norm)"
        )
    tuned = isinstance(request.tuning, Repetitions)
    subject, who = ("The best of the runs", "each run is") if tuned else ("The run", "it is")
    many = f"{process.steps} sampled Gaussians of {len(process)} kinds"
    composed = many if len(process) > 8 else written(process.items)
    return (
        f"{described}. {subject} satisfies ({round_up(proven)}, {request.delta!r})-differential privacy, certified without sampling "
        f"(epsilon between {round_down(bounds.lower)} and {round_up(bounds.upper)}): {who} dominated by {composed}. "
        f'Adjacency: "{adjacency}" ({unit(process, adjacency)}). Computed by hockeystick {_core.__version__}. {CAVEAT}'
    )


def _verified(
    make: Callable[[float], Any], example: BandMF, request: Request, verifier: Mapping[str, Any]
) -> tuple[BandMF, Guarantee]:
    if request.epsilon is None:
        raise ParameterError(
            f"epsilon = None: {type(example.scheme).__name__} is accounted by Monte Carlo samples, which can verify "
            "a given epsilon, but find none"
        )
    if request.noise_multiplier is None:
        what = example.strategy, example.scheme, request.epsilon, request.delta
        found = calibrate_bandmf(*what, adjacency=request.adjacency, **verifier)
    else:
        found = _accepted(make, example, request.epsilon, request.noise_multiplier, request, verifier)
    promised = found.epsilon, found.delta, found.adjacency, found.unit, found.statement()
    failure = 0.0 if found.plan is None else found.plan.failure_probability
    return found.mechanism, Guarantee("verified", *promised, failure, found.to_dict())


def _accepted(
    make: Callable[[float], Any],
    example: BandMF,
    epsilon: float,
    sigma: float,
    request: Request,
    verifier: Mapping[str, Any],
) -> CalibratedBandMF:
    """The verdict on a given noise multiplier; ParameterError if it is rejected."""
    delta, adjacency = request.delta, request.adjacency
    directions(example, adjacency)
    plan = verification_plan(delta, None, verifier["samples"])
    seed = resolve_seed(verifier["seed"], verifier["checkpoint"])
    options = RunOptions(adjacency, checkpoint=verifier["checkpoint"], progress=verifier["progress"])
    (verdict,) = choose(make, [sigma], epsilon, plan, seed, options)
    if not verdict.accepted:
        direction, mean, _ = verdict.means[-1]
        raise ParameterError(
            f"noise_multiplier = {sigma!r}: not accepted at epsilon = {epsilon!r}, delta = {delta!r} (direction "
            f"{direction!r}: the samples' mean is {mean:.4g} or more, the threshold {plan.threshold:.4g}); leave it out to have it calibrated"
        )
    return CalibratedBandMF(make(sigma), epsilon, delta, adjacency, plan, (verdict,), seed=seed)
