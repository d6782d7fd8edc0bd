"""The noise multiplier of BandMF for a privacy budget, in one call, and what exactly is guaranteed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .. import _core
from .._base.bounds import Reported, exactly, finite, round_up
from .._base.types import Unpack
from .._base.validation import ParameterError, choice, entries, integer, real
from ..accounting.calibration import calibrate_noise_multiplier
from ..accounting.report import CAVEAT
from ..matrix.bandmf import BandMF
from ..matrix.min_sep import TruncatedBMinSep
from ..matrix.scheme import Scheme
from ..matrix.schemes import CyclicPoisson
from ..matrix.strategy import Strategy
from ..mechanisms.descriptions import Gaussian, Process
from ..mechanisms.steps import written
from .confidence import VerificationPlan, plan_verification
from .direction import ADJACENCIES, directions, unit_of
from .estimate import METHODS
from .public_counts import untruncated
from .runs import RunOptions, RunSettings, derived, resolve_seed
from .tally import digest
from .truncation import can_tilt, is_rare
from .verify import MOST_SAMPLES, Plan, TiltedPlan, Verification, choose, is_hopeful, propose

FALLBACKS = ("auto", "cyclic", "unamplified")

_LIMITS = (1e-3, 1e9)
"""*Speed*: noise multipliers among which a certified one is looked for."""


@dataclass(frozen=True)
class Fallback:
    """What is released if no candidate is accepted: a mechanism accounted without sampling.

    ``kind`` is "cyclic" (cyclic Poisson sampling) or "unamplified" (the same scheme, its randomness
    ignored), ``scheme`` what its batches must be drawn from, ``process`` what `account` certifies.
    """

    kind: str
    scheme: Scheme
    noise_multiplier: float
    process: Process


@dataclass(frozen=True)
class CalibratedBandMF(Reported):
    """A BandMF mechanism that keeps within a budget, and why; made by `calibrate_bandmf`.

    ``mechanism`` is what to run, with batches from ``mechanism.scheme`` (the fallback's if
    ``fell_back``). ``plan`` is the verifier and ``verifications`` its verdicts, None and empty where the
    accounting is analytic. What is guaranteed is in `statement`.
    """

    mechanism: BandMF
    epsilon: float
    delta: float
    adjacency: str
    plan: Plan | None
    verifications: tuple[Verification, ...] = ()
    fallback: Fallback | None = None
    fell_back: bool = False
    process: Process | None = None
    composed_with: Process | None = None
    seed: int | None = None
    version: str = _core.__version__
    caveat: str = CAVEAT

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation of Z over the clipping norm."""
        return float(self.mechanism.noise_multiplier)

    @property
    def mean_squared_error(self) -> float:
        """Mean over the steps of the variance of the prefix sums' noise, over the squared clipping norm."""
        return self.mechanism.strategy.mean_squared_error(self.noise_multiplier)

    @property
    def unit(self) -> str:
        """What neighbouring datasets differ in, in words: whom the guarantee protects."""
        return unit_of(self.mechanism, self.adjacency, self.composed_with)

    def _shown(self) -> list[tuple[str, Any]]:
        names = ("noise_multiplier", "mean_squared_error", "epsilon", "delta", "adjacency", "unit", "seed")
        return [
            *((name, getattr(self, name)) for name in names),
            ("draw batches from", self.mechanism.scheme),
        ]

    def statement(self) -> str:
        """A paragraph that says what is guaranteed, for whom, and how it was computed."""
        mechanism, plan = self.mechanism, self.plan
        also = "" if self.composed_with is None else f", released together with {self.composed_with}"
        budget = f"({self.epsilon!r}, {self.delta!r})-differential privacy"
        what = f"BandMF with strategy {short_name(mechanism.strategy)} and batches from {mechanism.scheme!r}"
        noise = f"noise multiplier {self.noise_multiplier!r} (standard deviation of Z / clipping norm)"
        sentences = [f"{what}, {noise}{also}."]
        if plan is None:
            sentences.append(
                f"It satisfies {budget}, certified without sampling: it is dominated by {self.process and written(self.process.items)}."
            )
        else:
            sentences.append(
                f"Choosing the noise multiplier and running the mechanism are together one randomised "
                f"procedure that satisfies {budget} (estimate, verify, release; Dong and Ganesh 2026, "
                "Algorithm 5 and Theorem A.1)."
            )
            sentences.append(plan.explained())
            verdicts = ", ".join(
                f"{exactly(entry.noise_multiplier)} {'accepted' if entry.accepted else 'rejected'}"
                for entry in self.verifications
            )
            sentences.append(f"Verdicts, in order: {verdicts or 'none asked for'} (seed {self.seed}).")
            if self.fell_back and self.fallback is not None:
                sentences.append(
                    f"None of less noise than the fallback was accepted, so the fallback is released, certified as "
                    f"{written(self.fallback.process.items)}."
                )
            sentences.append(
                "The guarantee is that of one calibration with a seed chosen beforehand: repeating it until the result "
                "pleases forfeits it."
            )
        sentences.append(f'Adjacency: "{self.adjacency}" ({self.unit}).')
        sentences.append(
            f"Mean squared error of the prefix sums: {self.mean_squared_error:.6g} squared clipping norms."
        )
        sentences.append(f"Computed by hockeystick {self.version}. {self.caveat}")
        return " ".join(sentences)

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, lists, numbers and strings."""
        kept = (
            "noise_multiplier",
            "mean_squared_error",
            "epsilon",
            "delta",
            "adjacency",
            "fell_back",
            "seed",
            "version",
        )
        safe, fallback = self.fallback, None
        if safe is not None:
            fallback = {**vars(safe), "scheme": repr(safe.scheme), "process": written(safe.process.items)}
        plain = {
            **{name: getattr(self, name) for name in kept},
            "strategy": short_name(self.mechanism.strategy),
            "scheme": repr(self.mechanism.scheme),
            "plan": None if self.plan is None else asdict(self.plan),
            "verifications": [asdict(entry) for entry in self.verifications],
            "fallback": fallback,
            "process": self.process and written(self.process.items),
            "composed_with": None if self.composed_with is None else str(self.composed_with),
            "statement": self.statement(),
        }
        return finite(plain)


def calibrate_bandmf(
    strategy: Strategy,
    scheme: Scheme,
    epsilon: float,
    delta: float,
    *,
    adjacency: str = "zero_out",
    seed: int | None = None,
    method: str = "auto",
    threshold: float | None = None,
    samples: int | None = None,
    candidates: Sequence[float] | None = None,
    fallback: str = "auto",
    **run: Unpack[RunSettings],
) -> CalibratedBandMF:
    """The least noise multiplier that can be proven to keep BandMF within (``epsilon``, ``delta``).

    Guarantee: the procedure as a whole (choose the noise multiplier by sampling, then run the mechanism
    with batches from ``result.mechanism.scheme``) is (``epsilon``, ``delta``)-DP, by Algorithm 5 and
    Theorem A.1 of Dong and Ganesh 2026; `CalibratedBandMF.statement` has the details. The proof is about
    one calibration, with a ``seed`` that is drawn from the operating system (None) or was chosen
    beforehand. Where the scheme is cyclic Poisson with at least as many steps between turns as bands, or
    Poisson with one band, the accounting is analytic, and nothing is random.

    ``method`` "plain": the verifier takes ``samples`` of the privacy loss per candidate and direction and
    compares with ``threshold``: by default delta / 2 and the number that goes with it (see
    `plan_verification`), which grows like 100 / delta. "tilted": it takes weighted samples of outputs where the
    loss is large (docs/montecarlo/tilted.md), as many as a pilot finds necessary, at most ``samples`` (default 2^21), whatever
    delta is; no ``threshold``, and a scheme that `estimate_delta` can tilt. A direction
    "add" whose delta is not known to be small may take more, but never more than "plain". "auto": "tilted" where it is possible and the other
    would take more than a million samples (delta < 1e-4), unless ``threshold`` or ``samples`` are given, or batches are truncated so often that a pilot expects
    more samples than allowed. ``candidates`` are noise multipliers fixed beforehand (None: chosen around
    the answer by pilot samples, which the verifier does not see).

    ``fallback`` is released if no candidate of less noise is accepted: "cyclic" Poisson sampling at the
    same rate (batches are then drawn from that scheme!), "unamplified" (the same scheme with the noise
    that needs no amplification), or "auto": cyclic where it exists. ``run``: ``composed_with``, ``checkpoint``,
    ``progress`` and ``executor`` as for `estimate_delta`; the first is released as well and counted in.
    """
    epsilon = real("epsilon", epsilon, 0.0)
    delta = real("delta", delta, 0.0, 1.0, open_low=True, open_high=True)
    adjacency = choice("adjacency", adjacency, ADJACENCIES)
    fallback = choice("fallback", fallback, FALLBACKS)
    method = choice("method", method, METHODS)
    options = RunOptions.of(adjacency, **run)
    if candidates is not None:
        candidates = tuple(
            real(f"candidates[{i}]", value, 0.0, open_low=True)
            for i, value in enumerate(entries("candidates", candidates, "numbers"))
        )
    any_noise = BandMF(strategy, scheme, 1.0)
    directions(any_noise, adjacency)  # refuses what does not fit together
    any_noise.worst_cases()  # refuses more of them than there is time for
    if any_noise.is_certified(adjacency):
        exact = _budgeted(any_noise, "exact", epsilon, delta, options)
        mechanism = BandMF(strategy, scheme, exact.noise_multiplier)
        return CalibratedBandMF(
            mechanism, epsilon, delta, adjacency, None, process=exact.process, composed_with=options.others
        )

    plan = _plan(any_noise, method, delta, threshold, samples, options)
    if fallback == "auto":
        fallback = "unamplified" if _cyclic_probability(strategy, scheme) is None else "cyclic"
    seed = resolve_seed(seed, options.checkpoint)
    safe = _budgeted(any_noise, fallback, epsilon, plan.tested_delta, options)
    begin = safe.noise_multiplier
    whole = untruncated(scheme) if isinstance(scheme, TruncatedBMinSep) else scheme
    if isinstance(plan, TiltedPlan) and _cyclic_probability(strategy, whole) is not None:
        # Nearer than without amplification; nothing rests on it.
        cyclic = _budgeted(BandMF(strategy, whole, 1.0), "cyclic", epsilon, plan.tested_delta, options)
        begin = min(begin, cyclic.noise_multiplier)

    def make(noise_multiplier: float) -> BandMF:
        return BandMF(strategy, scheme, noise_multiplier)

    pilot = derived(seed, "pilot")
    if candidates is None:
        candidates = propose(make, epsilon, plan, begin, pilot, options)
        # Frequent truncation, or many participations of a replaced example: the bound on the weights may be out of proportion.
        if (
            isinstance(plan, TiltedPlan)
            and method == "auto"
            and (adjacency == "replace_one" or not is_rare(any_noise, delta))
            and candidates
            and not is_hopeful(make(max(candidates)), epsilon, plan, derived(seed, "hope"), options)
        ):
            plan = plan_verification(delta)
            safe = _budgeted(any_noise, fallback, epsilon, plan.tested_delta, options)
            candidates = propose(make, epsilon, plan, safe.noise_multiplier, pilot, options)
    worthwhile = [value for value in candidates if value < safe.noise_multiplier]
    verdicts = choose(make, worthwhile, epsilon, plan, seed, options)
    accepted = [entry.noise_multiplier for entry in verdicts if entry.accepted]
    return CalibratedBandMF(
        make(accepted[-1]) if accepted else BandMF(strategy, safe.scheme, safe.noise_multiplier),
        epsilon,
        delta,
        adjacency,
        plan,
        verdicts,
        fallback=safe,
        fell_back=not accepted,
        composed_with=options.others,
        seed=seed,
    )


_PLAIN_DELTA = 1e-4
"""From here on plain verification takes at most a million samples (*speed*)."""


def _plan(
    mechanism: BandMF,
    method: str,
    delta: float,
    threshold: float | None,
    samples: int | None,
    options: RunOptions,
) -> Plan:
    """The verifier that was asked for, or the one that takes fewer samples."""
    possible = method != "plain" and can_tilt(mechanism, options.adjacency) and threshold is None
    if options.others is not None and (mechanism.scheme.truncates or options.adjacency == "replace_one"):
        possible = False
    if method == "tilted" and not possible:
        raise ParameterError(
            f"method = {method!r}: needs a scheme with a table, no threshold, and without composed_with if batches are "
            "truncated or examples replaced; use 'auto' or 'plain'"
        )
    if possible and (method == "tilted" or (samples is None and delta < _PLAIN_DELTA)):
        return TiltedPlan.of(delta, MOST_SAMPLES if samples is None else integer("samples", samples, 1))
    return verification_plan(delta, threshold, samples)


def verification_plan(delta: float, threshold: float | None, samples: int | None) -> VerificationPlan:
    """The plan of plain samples for this delta; ParameterError if what is given cannot prove it."""
    if threshold is None or samples is None:
        return plan_verification(delta, threshold, samples)
    plan = plan_verification(threshold=threshold, samples=samples)
    if not plan.target_delta <= delta:
        raise ParameterError(
            f"samples = {samples}, threshold = {threshold!r}: prove delta = {round_up(plan.target_delta)} at best, "
            f"not {delta!r}"
        )
    return plan


def _cyclic_probability(strategy: Strategy, scheme: Scheme) -> float | None:
    """The probability per turn of cyclic Poisson sampling with the same expected batch size, if there is one."""
    rate = scheme.cyclic_rate()
    return None if rate is None or strategy.bands * rate > 1.0 else strategy.bands * rate


def _budgeted(mechanism: BandMF, kind: str, epsilon: float, delta: float, options: RunOptions) -> Fallback:
    """The least noise of this kind that an account certifies to keep within (``epsilon``, ``delta``)."""
    strategy, scheme = mechanism.strategy, mechanism.scheme
    if kind == "cyclic":
        probability = _cyclic_probability(strategy, scheme)
        if probability is None:
            raise ParameterError(
                f"fallback = {kind!r}: there is no cyclic Poisson sampling in the place of {scheme!r} "
                f"with {strategy.bands} bands; use 'unamplified'"
            )
        scheme = CyclicPoisson(scheme.steps, strategy.bands, probability)

    sensitivity: float | None = None
    if kind == "unamplified":
        min_sep, multiplicity = scheme.unamplified()
        sensitivity = strategy.sensitivity(min_sep, None) * multiplicity

    def process(sigma: float) -> Process:
        if sensitivity is None:
            return BandMF(strategy, scheme, sigma).as_process()
        return Gaussian(sigma / sensitivity) * 1

    noise = calibrate_noise_multiplier(
        lambda sigma: process(sigma) + (options.others or Process()),
        epsilon,
        delta,
        adjacency=options.adjacency,
        limits=_LIMITS,
        tolerance=1e-5 if kind == "exact" else 1e-3,
    )
    return Fallback(kind, scheme, float(noise), process(float(noise)))


def short_name(strategy: Strategy) -> str:
    """The strategy in few words: its coefficients may be thousands."""
    numbers = digest(strategy._stored())[:12]
    return f"{type(strategy).__name__}(steps={strategy.steps}, bands={strategy.bands}, sha256={numbers})"
