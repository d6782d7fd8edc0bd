"""What the package answers, held against the truth.

A check is one interval, or one one-sided bound, that contains the truth or does not. Every question is asked of both engines.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import flint
import hockeystick as hs
import numpy as np
from flint import arb

from .balls import ZERO, Enclosure, Infeasible, to_float
from .finite import FiniteLaw
from .located import Gaussian, Shifted, alone
from .requests import Request, log_uniform
from .truth import Truth, Worst, truth

ENGINES = ("auto", "fft")
TIGHT_FROM = 1e-40
"""Gaps are promised to be small, and recorded, where delta is at least this."""


@dataclass
class Result:
    """Counts by (family, adjacency, engine, question), and what went wrong."""

    counts: Counter[str] = field(default_factory=Counter)
    violations: list[dict[str, Any]] = field(default_factory=list)
    gaps: dict[str, tuple[float, str]] = field(default_factory=dict)
    """The largest upper / lower - 1 by family and engine, and where."""

    @property
    def checks(self) -> int:
        """How many there were."""
        return sum(self.counts.values())

    def to_dict(self) -> dict[str, Any]:
        """For a line of JSON."""
        return {"counts": dict(self.counts), "violations": self.violations, "gaps": self.gaps}


@dataclass
class Examiner:
    """Asks all questions about one composition."""

    request: Request
    rng: random.Random
    truth: Truth
    result: Result = field(default_factory=Result)
    known: dict[float, Enclosure] = field(default_factory=dict)

    def delta(self, epsilon: float) -> Enclosure:
        """The truth, remembered."""
        if epsilon not in self.known:
            self.known[epsilon] = self.truth.delta(epsilon)
        return self.known[epsilon]

    def count(self, engine: str, question: str, violated: str | None, **where: Any) -> None:
        """One check; `violated` says how it failed."""
        request = self.request
        self.result.counts[f"{request.family}|{request.adjacency}|{engine}|{question}"] += 1
        if violated is not None:
            found = {key: value if isinstance(value, str) else repr(value) for key, value in where.items()}
            self.result.violations.append(
                {
                    "family": request.family,
                    "process": str(request.process),
                    "adjacency": request.adjacency,
                    "engine": engine,
                    "question": question,
                    "violated": violated,
                    **found,
                }
            )

    def interval(
        self, engine: str, epsilon: float, lower: float, upper: float, question: str = "delta"
    ) -> None:
        """One pair of bounds on delta."""
        known = self.delta(epsilon)
        violated = None
        if not lower <= upper or not lower >= 0.0 or not upper <= 1.0:
            violated = "not an interval"
        elif known.above(upper):
            violated = "upper bound"
        elif known.below(lower):
            violated = "lower bound"
        self.count(
            engine,
            question,
            violated,
            epsilon=epsilon,
            lower=lower,
            upper=upper,
            truth=f"[{known.low.str(17)}, {known.high.str(17)}]",
        )
        if upper >= TIGHT_FROM:
            gap = upper / lower - 1.0 if lower > 0.0 else math.inf
            key = f"{self.request.family}|{engine}"
            if gap > self.result.gaps.get(key, (-1.0, ""))[0]:
                self.result.gaps[key] = (
                    gap,
                    f"{self.request.process}, {self.request.adjacency}, epsilon = {epsilon!r}",
                )

    def epsilon(
        self, engine: str, delta: float, lower: float, upper: float, question: str = "epsilon"
    ) -> None:
        """One pair of bounds on epsilon at a delta: delta(upper) <= delta <= delta(just below lower)."""
        violated = None
        if not 0.0 <= lower <= upper:
            violated = "not an interval"
        elif upper < math.inf and self.delta(upper).above(delta):
            violated = "upper bound"
        elif lower > 0.0:
            before = math.nextafter(
                min(lower, 1e12), 0.0
            )  # losses this large or infinite are told apart by nobody
            known = self.delta(before)
            if known.below(delta) or (known.high.is_zero() and delta == 0.0):
                violated = "lower bound"
        where = {}
        if violated:
            where = {
                "truth at upper": self.delta(min(upper, 1e12)).low.str(17),
                "truth below lower": self.delta(math.nextafter(min(lower, 1e12), 0.0)).high.str(17),
            }
        self.count(engine, question, violated, delta=delta, lower=lower, upper=upper, **where)


SLOW = (
    "noise and atoms",
    "different finite steps",
    "Laplace sums",
    "released choices",
    "truncated",
    "sampled often",
    "random allocation",
)
"""Families in which a question may take the package a second: these are asked fewer of them."""


def examine(request: Request, rng: random.Random, points: int = 400) -> Result:
    """All checks of one composition; Infeasible where the truth is not at hand.

    Composition by FFT takes a hundred times as long as the other methods: it is asked in every fourth composition, and wherever it
    is the one that answers, at a few points each.
    """
    with flint.ctx.workprec(request.bits):
        examiner = Examiner(request, rng, truth(request.process, request.adjacency))
        quick = isinstance(examiner.truth, FiniteLaw)
        epsilons = _epsilons(examiner, rng, 48 if request.family in SLOW else 2 * points if quick else points)
        deltas = _deltas(examiner, rng, epsilons, 12 if request.family in SLOW else 40)
        for engine in ENGINES:
            if engine == "fft" and (rng.random() > 0.25 or request.family == "random allocation"):
                continue
            profile = hs.account(request.process, request.adjacency, engine=engine)
            by_fft = any(
                _by_fft(profile, epsilon) for epsilon in rng.sample(epsilons, 3) if math.isfinite(epsilon)
            )
            few = 6 if request.family == "random allocation" else 8 if by_fft else 24
            some = rng.sample(epsilons, few) if by_fft or request.family in SLOW else epsilons
            _curve(examiner, engine, profile, some)
            _single(
                examiner, engine, profile, some, rng.sample(deltas, 2) if some is not epsilons else deltas
            )
            if some is epsilons:
                _shape(examiner, engine, profile, epsilons)
        if request.family not in SLOW:
            _grids(examiner, epsilons, deltas)
            _calibrations(examiner, epsilons)
        return examiner.result


def _by_fft(profile: hs.PrivacyProfile, epsilon: float) -> bool:
    answer = profile.report(epsilon=epsilon, risks=False).delta
    return answer is not None and answer.engine == "fft"


def _epsilons(examiner: Examiner, rng: random.Random, points: int) -> list[float]:
    """Where delta has kinks, beside them, where it falls, and the ends of the range."""
    fixed = [0.0, 1.0, math.inf, -math.inf, 1e3, -1e3, 5e-324, 1e-300]
    parts = examiner.truth.directions if isinstance(examiner.truth, Worst) else [examiner.truth]
    kinks = [x for part in parts if hasattr(part, "notable") for x in part.notable()]
    chosen = rng.sample(kinks, min(len(kinks), points // 20))
    if kinks:
        chosen += [max(kinks), min(kinks)]
    for kink in chosen:
        fixed += [
            kink,
            math.nextafter(kink, math.inf),
            math.nextafter(kink, -math.inf),
            kink * (1.0 - 1e-9),
            kink * (1 + 1e-9),
        ]
    # The epsilon at which delta is about 1e-60, found by doubling, sets the scale of the rest.
    end = 1e-12
    while end < 1e3 and not examiner.delta(end).below(1e-60) and not _flat(examiner, end):
        end *= 4.0
    while len(fixed) < points:
        kind = rng.random()
        if kind < 0.5:
            fixed.append(rng.uniform(-0.3, 1.0) * end)
        elif kind < 0.8:
            fixed.append(rng.choice((1.0, 1.0, -1.0)) * log_uniform(rng, 1e-3 * end, end))
        else:
            fixed.append(rng.choice((1.0, -1.0)) * log_uniform(rng, 1e-12, 1e3))
    return sorted({x for x in fixed if not math.isnan(x)})


def _flat(examiner: Examiner, epsilon: float) -> bool:
    return (
        bool(examiner.delta(epsilon).high <= examiner.delta(math.inf).low * arb(1.000001))
        and examiner.delta(math.inf).low > 0
    )


def _deltas(examiner: Examiner, rng: random.Random, epsilons: list[float], points: int) -> list[float]:
    """Some at random, some that are delta at one of the epsilons, and the ends."""
    some = [
        1e-5,
        1e-300,
        *(log_uniform(rng, rng.choice((1e-300, 1e-40, 1e-12, 1e-6)), 1.0) for _ in range(points // 2)),
    ]
    for epsilon in rng.sample([x for x in epsilons if 0.0 <= x < math.inf], points // 3):
        value = to_float(examiner.delta(epsilon).low)
        some += [value, value * (1.0 + 1e-9)] if rng.random() < 0.3 else [value]
    return [x for x in sorted({*some, 0.0, 1.0}) if 0.0 <= x <= 1.0 and (x == 0.0 or x >= 1e-300)]


def _curve(examiner: Examiner, engine: str, profile: hs.PrivacyProfile, epsilons: list[float]) -> None:
    lower, upper = profile.delta_curve(np.array(epsilons))
    for epsilon, low, high in zip(epsilons, lower.tolist(), upper.tolist(), strict=True):
        examiner.interval(engine, epsilon, low, high, "delta_curve")


def _single(
    examiner: Examiner, engine: str, profile: hs.PrivacyProfile, epsilons: list[float], deltas: list[float]
) -> None:
    for epsilon in examiner.rng.sample(epsilons, 3):
        examiner.interval(engine, epsilon, *profile.delta_bounds(epsilon), question="delta_bounds")
    for delta in deltas:
        examiner.epsilon(engine, delta, *profile.epsilon_bounds(delta), question="epsilon_bounds")
    examiner.interval(engine, 0.0, *profile.advantage_bounds(), question="advantage_bounds")


def _shape(examiner: Examiner, engine: str, profile: hs.PrivacyProfile, epsilons: list[float]) -> None:
    """Slopes, the trade-off curve and the GDP parameter, now and then: they take many questions each."""
    rng = examiner.rng
    parts = examiner.truth.directions if isinstance(examiner.truth, Worst) else [examiner.truth]
    parts = [
        part.last
        if isinstance(part, Shifted) and len(part.atoms) == 1 and part.atoms[0][1].is_zero()
        else part
        for part in parts
    ]
    parts = [part for part in parts if hasattr(part, "tails")]
    finite = [x for x in epsilons if math.isfinite(x) and abs(x) < 700.0]
    if len(parts) == 1 and not isinstance(examiner.truth, Worst) and rng.random() < 0.5:
        for epsilon in rng.sample(finite, 2):
            lower, upper = profile.slope_bounds(epsilon)
            growth = arb(epsilon).exp()
            q = parts[0].tails(epsilon)[1]
            before = parts[0].tails(math.nextafter(epsilon, -math.inf))[1]
            # -e^epsilon Q(L >= epsilon) and -e^epsilon Q(L > epsilon), the latter's enclosure from points on either side.
            violated = None
            if -growth * before.low < arb(lower) and -growth * q.low < arb(lower):
                violated = "lower bound"
            if -growth * q.high > arb(upper):
                violated = "upper bound"
            examiner.count(
                engine,
                "slope_bounds",
                violated,
                epsilon=epsilon,
                lower=lower,
                upper=upper,
                truth=(growth * q.high).str(17),
            )
    if parts and rng.random() < 0.2:
        for epsilon in rng.sample(finite, 2):
            # The test L > epsilon has these errors, and no test may be said to be worse.
            p, q = rng.choice(parts).tails(epsilon)
            alpha = math.nextafter(to_float(q.high.upper()), 2.0)
            if alpha <= 1.0:
                beta = profile.tradeoff(alpha)
                violated = "upper bound" if arb(beta) > 1 - p.low else None
                examiner.count(
                    engine, "tradeoff", violated, alpha=alpha, value=beta, truth=(1 - p.low).str(17)
                )
    if rng.random() < 0.1:
        slack = rng.choice((0.0, 1e-9, 1e-6))
        mu = profile.gdp_mu(slack)
        for epsilon in rng.sample(finite, 10):
            if epsilon < 0.0 or mu == math.inf:
                continue
            allowed = (alone(Gaussian(arb(mu) ** 2)).delta(epsilon).high if mu > 0.0 else ZERO) + arb(slack)
            violated = "upper bound" if examiner.delta(epsilon).low > allowed else None
            examiner.count(
                engine,
                "gdp_mu",
                violated,
                slack=slack,
                mu=mu,
                epsilon=epsilon,
                truth=examiner.delta(epsilon).low.str(17),
            )


def _grids(examiner: Examiner, epsilons: list[float], deltas: list[float]) -> None:
    """A grid of one configuration, where it is a sampled Gaussian."""
    items = examiner.request.process.items
    if (
        len(items) != 1
        or not isinstance(items[0][0], hs.PoissonSampled)
        or not isinstance(items[0][0].mechanism, hs.Gaussian)
    ):
        return
    step, count = items[0]
    some, deltas = examiner.rng.sample(epsilons, 10), examiner.rng.sample(deltas, 5)
    for engine in ENGINES[: examiner.rng.choice((1, 1, 2))]:
        if engine == "fft":
            some, deltas = some[:3], deltas[:1]
        arguments = (step.mechanism.noise_multiplier, step.sampling_probability, count)
        options = {"adjacency": examiner.request.adjacency, "engine": engine}
        grid = hs.grid_delta(*arguments, some, **options)
        for epsilon, lower, upper in zip(some, grid.lower.tolist(), grid.upper.tolist(), strict=True):
            examiner.interval(engine, epsilon, lower, upper, "grid_delta")
        grid = hs.grid_epsilon(*arguments, deltas, **options)
        for delta, lower, upper in zip(deltas, grid.lower.tolist(), grid.upper.tolist(), strict=True):
            examiner.epsilon(engine, delta, lower, upper, "grid_epsilon")


def _calibrations(examiner: Examiner, epsilons: list[float]) -> None:
    """A parameter that just fits the budget of this composition's own delta at some epsilon."""
    rng, request = examiner.rng, examiner.request
    if len(request.process) != 1 or rng.random() >= 0.15:
        return
    ((step, count),) = request.process.items
    candidates = [x for x in epsilons if 0.0 < x < 50.0]
    if not candidates:
        return
    epsilon = rng.choice(candidates)
    delta = to_float(examiner.delta(epsilon).low)
    if not 1e-30 < delta < 0.9:
        return
    mechanism = getattr(step, "mechanism", None)
    if isinstance(step, hs.PoissonSampled) and isinstance(mechanism, hs.Gaussian) and rng.random() < 0.7:
        if rng.random() < 0.5:
            _calibrated(
                examiner,
                "calibrate_sampling_probability",
                lambda q: hs.PoissonSampled(mechanism, q) * count,
                epsilon,
                delta,
            )
        else:
            q = step.sampling_probability
            _calibrated(
                examiner,
                "calibrate_noise_multiplier",
                lambda s: hs.PoissonSampled(hs.Gaussian(s), q) * count,
                epsilon,
                delta,
            )
    elif isinstance(step, (hs.Gaussian, hs.Laplace)) and rng.random() < 0.5:
        kind = type(step)
        _calibrated(examiner, "calibrate_noise_multiplier", lambda s: kind(s) * count, epsilon, delta)
    else:
        _calibrated(examiner, "calibrate_steps", lambda n: step * n, epsilon, delta)


def _calibrated(examiner: Examiner, name: str, make: Any, epsilon: float, delta: float) -> None:
    request = examiner.request
    try:
        value = getattr(hs, name)(make, epsilon, delta, adjacency=request.adjacency)
    except hs.UnreachableError:
        return
    certificate = value.certificate
    for parameter, fits in ((certificate.value, True), (certificate.exceeding, False)):
        if parameter is None:
            continue
        try:
            known = truth(make(parameter).as_process(), request.adjacency).delta(epsilon)
        except Infeasible:
            continue
        violated = None
        if fits and known.above(delta):
            violated = "upper bound"
        elif not fits and known.below(delta):
            violated = "lower bound"
        examiner.count(
            "auto",
            name,
            violated,
            epsilon=epsilon,
            delta=delta,
            parameter=parameter,
            fits=fits,
            truth=known.low.str(17),
        )


__all__ = ["ENGINES", "Examiner", "FiniteLaw", "Result", "examine"]
