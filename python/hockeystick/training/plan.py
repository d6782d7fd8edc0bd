"""Training plans: what was accounted is what draws the batches and the noise, and what the report is about.

`plan_training` fixes everything that a guarantee depends on and finds the noise (or accounts for a given one). The
`TrainingPlan` then starts runs, which hand out batch and noise step by step and refuse whatever was not planned.

>>> import numpy as np, hockeystick as hs
>>> scheme = hs.CyclicPoisson.of_rate(steps=40, min_sep=4, participation_rate=25 / 500)
>>> plan = plan_training(scheme, 500, epsilon=4.0, delta=1e-5, strategy=4)
>>> parameters, data = np.zeros(3), np.ones((500, 3))
>>> with plan.start(dimension=3, clipping_norm=2.0) as run:
...     for step in run:
...         gradient_sum = step.take(data).sum(axis=0)  # of gradients of norm at most 2
...         parameters -= 0.1 / plan.expected_batch_size * step.add_noise(gradient_sum)
...     report = run.report()
>>> report.steps, report.complete
(40, True)
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from .. import _core
from .._base import storage
from .._base.arrays import Array
from .._base.bounds import finite, round_down, round_up
from .._base.randomness import Seed
from .._base.validation import ParameterError, ParameterTypeError, integer, real
from ..accounting.calibration import calibrate_noise_multiplier
from ..accounting.profile import account
from ..accounting.report import CAVEAT, unit
from ..matrix.bandmf import BandMF
from ..matrix.schemes import (
    BallsInBins,
    BMinSep,
    CyclicPoisson,
    MultiAttributionBMinSep,
    Poisson,
    RMinSep,
    Scheme,
    TruncatedBMinSep,
)
from ..matrix.strategies import BandedToeplitz, Identity, Strategy
from ..mechanisms.descriptions import (
    Composable,
    Gaussian,
    PoissonSampled,
    Process,
    Step,
    WithoutReplacement,
    WithReplacement,
    composition,
)
from ..mechanisms.dpsgd import DPSGD
from ..mechanisms.serialise import from_dict, to_dict
from ..mechanisms.truncated import TruncatedPoissonSampled
from ..montecarlo import evr
from ..montecarlo.bandmf_calibration import CalibratedBandMF, calibrate_bandmf, short_name, verification_plan
from ..montecarlo.estimate import directions, resolve_seed
from ..montecarlo.tally import Progress, digest
from ..sampling.attribution import AttributionGraph, BoundedAttribution
from ..sampling.sweep import expected_batch_size

if TYPE_CHECKING:
    from .run import TrainingRun

_KIND = "training plan"
_SAMPLED = (PoissonSampled, TruncatedPoissonSampled, WithoutReplacement, WithReplacement)

_NO_USERS = "graph: only BMinSep with examples_per_user > 1 and MultiAttributionBMinSep protect users"

_Path: TypeAlias = "str | os.PathLike[str]"
Make: TypeAlias = Callable[[float], Composable]


@dataclass(frozen=True)
class Guarantee:
    """What a plan promises, and why.

    ``kind`` "certified": an upper bound computed without sampling. ``kind`` "verified": choosing the noise by Monte Carlo samples and
    running the plan are *together* (``epsilon``, ``delta``)-DP (estimate, verify, release); the verifier is wrong with probability
    at most ``failure_probability``, which ``delta`` includes. ``evidence`` holds the numbers behind it, as JSON values.
    """

    kind: str
    epsilon: float
    delta: float
    adjacency: str
    unit: str
    statement: str
    failure_probability: float | None
    evidence: dict[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, eq=False)
class TrainingPlan:
    """Everything the guarantee of a training run depends on; made by `plan_training`.

    ``mechanism`` is a `BandMF` (strategy, scheme and noise multiplier) or a `Process` of one sampled Gaussian: what was accounted,
    and what `start` draws batches and noise from. ``graph`` says who owns which example, where a user is what is protected.
    """

    mechanism: BandMF | Process
    dataset_size: int
    guarantee: Guarantee
    graph: AttributionGraph | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dataset_size", integer("dataset_size", self.dataset_size, 1))
        _check(self.mechanism, self.dataset_size, self.graph)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TrainingPlan) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    @property
    def epsilon(self) -> float:
        """The guarantee's epsilon."""
        return self.guarantee.epsilon

    @property
    def delta(self) -> float:
        """The guarantee's delta."""
        return self.guarantee.delta

    @property
    def adjacency(self) -> str:
        """The guarantee's adjacency."""
        return self.guarantee.adjacency

    @property
    def steps(self) -> int:
        """Number of noisy updates."""
        return self.strategy.steps

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation of Z over the clipping norm."""
        if isinstance(self.mechanism, BandMF):
            return self.mechanism.noise_multiplier
        return _noise_multiplier(_single(self.mechanism))

    @property
    def strategy(self) -> Strategy:
        """C: what correlates the noise; the identity for DP-SGD."""
        if isinstance(self.mechanism, BandMF):
            return self.mechanism.strategy
        return Identity(self.mechanism.steps)

    @property
    def sampling(self) -> Scheme | Step:
        """How batches are drawn: a scheme, or a sampled Gaussian that is repeated."""
        return self.mechanism.scheme if isinstance(self.mechanism, BandMF) else _single(self.mechanism)

    @cached_property
    def expected_batch_size(self) -> float:
        """Mean number of examples in a batch (after a cold start: in the long run): public, what noisy sums are divided by.

        Never divide by a batch's true size: for most schemes that is as secret as the data.
        """
        return _expected_batch_size(self.sampling, self.dataset_size, self.graph)

    @cached_property
    def mean_squared_error(self) -> float:
        """Mean over the steps of the variance of the prefix sums' noise, over the squared clipping norm."""
        return self.strategy.mean_squared_error(self.noise_multiplier)

    @cached_property
    def fingerprint(self) -> str:
        """Equal for plans that draw the same batches and noise and promise the same."""
        content, arrays = self._content()
        promise = [self.epsilon, self.delta, self.adjacency, self.guarantee.kind]
        facts = json.dumps([content["mechanism"], self.dataset_size, content["attribution"], promise])
        return digest(facts, *(arrays[name] for name in sorted(arrays)))[:32]

    def start(
        self,
        dimension: int,
        *,
        clipping_norm: float = 1.0,
        path: _Path | None = None,
        seed: Seed = None,
        state_dtype: DTypeLike = np.float64,
        durable: bool = True,
    ) -> TrainingRun:
        """Start a run; `TrainingRun` says how to use it.

        ``dimension`` is the length of the gradient, ``clipping_norm`` the norm that each example's gradient is clipped to. ``path`` is a
        directory to be made: the run's ledger and seed, from which `resume` continues after kill -9, and with ``durable``
        (default; a wait for the disk at each step) after a power failure. Without ``path`` the run cannot be resumed.

        ``seed`` None draws 32 bytes from the operating system; integers are for tests and experiments. ``state_dtype`` is that of
        `CorrelatedNoise`: float32 halves its memory. One process holds the run: see docs/training/training.md for several workers.
        """
        from .run import TrainingRun

        return TrainingRun._started(self, dimension, clipping_norm, path, seed, durable, state_dtype)

    def resume(
        self, path: _Path, *, step: int | None = None, state: Mapping[str, Any] | None = None
    ) -> TrainingRun:
        """Continue the run in the directory ``path`` at ``step``: how many updates the model has had (None: go on after the last release).

        Steps that were released and are not in the model yet may be repeated, with exactly the same gradient sums (bit by bit): nothing new
        is then released. Any other sum is refused, since two releases with one noise differ by no noise. If the computation is
        not reproducible, go on with None: the updates since the model was saved are lost, no privacy is.

        ``state`` is what `TrainingRun.state` returned, kept beside the model: it spares making all rows of noise and
        all batches again, and has the step in it. Raises `DeviationError` for the run of another plan.
        """
        from .run import TrainingRun

        return TrainingRun._resumed(self, path, step, state)

    # --- Files and reports --------------------------------------------------------------------------

    def save(self, path: _Path) -> None:
        """Write the plan to one file, atomically; `load` reads it. No secret is in it; the graph is not either."""
        content, arrays = self._content()
        storage.write(path, _KIND, content, arrays)

    @classmethod
    def load(cls, path: _Path, graph: AttributionGraph | BoundedAttribution | None = None) -> TrainingPlan:
        """Read what `save` wrote: the same guarantee, without calibrating again.

        A plan for users needs the ``graph`` it was made with. Raises StorageError for damaged files.
        """
        content, arrays = storage.read(path, _KIND)
        with storage.refusing(path):
            mechanism = _unpacked(content["mechanism"], arrays)
            guarantee = Guarantee(**content["guarantee"])
            size, attribution = content["dataset_size"], content["attribution"]
        known = _graph(graph)
        if _digest(known) != attribution:
            need = "none" if attribution is None else "the one that the plan was made with"
            raise ParameterError(f"graph: must be {need}, not {known!r}")
        return cls(mechanism, size, guarantee, known)

    def _content(self) -> tuple[dict[str, Any], dict[str, Array]]:
        mechanism, arrays = _packed(self.mechanism)
        content = {
            "mechanism": mechanism,
            "dataset_size": self.dataset_size,
            "attribution": _digest(self.graph),
            "guarantee": asdict(self.guarantee),
        }
        return content, arrays

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON values, for reports; strategies of many coefficients by their digest."""
        sampling = self.sampling
        columns = self.strategy._columns()
        plain = {
            "dataset_size": self.dataset_size,
            "expected_batch_size": self.expected_batch_size,
            "steps": self.steps,
            "sampling": sampling.to_dict() if isinstance(sampling, Scheme) else to_dict(sampling),
            "strategy": {
                "type": type(self.strategy).__name__,
                "bands": self.strategy.bands,
                "sha256": digest(self.strategy._stored()),
                "coefficients": columns[0].tolist() if columns.size <= 64 and len(columns) == 1 else None,
            },
            "noise_multiplier": self.noise_multiplier,
            "mean_squared_error": self.mean_squared_error,
            "guarantee": asdict(self.guarantee),
            "attribution": _digest(self.graph),
            "fingerprint": self.fingerprint,
        }
        named: dict[str, Any] = finite(plain)
        return named

    def spent(self, steps: int) -> float | None:
        """Certified epsilon, at the plan's delta, of only the first ``steps`` steps; None where it takes Monte Carlo samples.

        It holds if the number of steps was fixed without looking at the data or at anything released (a machine that broke down). Whoever
        stops because of what the run showed has the guarantee of the whole plan: what was released is a part of what it covers.
        """
        made = integer("steps", steps, 0, self.steps)
        if made == 0:
            return 0.0
        if isinstance(self.mechanism, BandMF):
            if not self.mechanism.is_analytic:
                return None
            scheme: Any = replace(self.mechanism.scheme, steps=made)  # type: ignore[type-var]
            process = BandMF(self.strategy.first_steps(made), scheme, self.noise_multiplier).as_process()
        else:
            process = Process([(_single(self.mechanism), made)])
        return min(self.epsilon, account(process, self.adjacency).epsilon(self.delta))


def plan_training(
    sampling: Scheme | Make,
    dataset_size: int,
    *,
    delta: float,
    epsilon: float | None = None,
    noise_multiplier: float | None = None,
    strategy: Strategy | int | None = None,
    adjacency: str = "zero_out",
    graph: AttributionGraph | BoundedAttribution | None = None,
    fallback: str = "auto",
    samples: int | None = None,
    calibration_seed: int | None = None,
    checkpoint: _Path | None = None,
    progress: Progress | None = None,
) -> TrainingPlan:
    """Plan a training run: find the least noise multiplier that keeps it (``epsilon``, ``delta``)-DP, or account for a given one.

    ``sampling``: a scheme (`Poisson`, `CyclicPoisson`, `BallsInBins`, `BMinSep`, ...) with the number of steps, for noise correlated
    by ``strategy`` (an integer: `BandedToeplitz.optimized` with so many bands; None: independent noise, DP-SGD). Or a
    function of the noise multiplier that returns a repeated sampled Gaussian, as for `calibrate_noise_multiplier`:

        plan_training(lambda sigma: hs.dp_sgd(sigma, 60_000, 256, epochs=10), 60_000, epsilon=2.0, delta=1e-6)
        plan_training(lambda sigma: hs.TruncatedPoissonSampled(sigma, 60_000, 0.01, 700) * 1000, 60_000, ...)

    Where a composition in closed form dominates the run (Poisson, also truncated or cyclic; fixed-size batches under "replace_one"),
    the guarantee is "certified", and a ``noise_multiplier`` alone is accounted for. Elsewhere (balls-in-bins, b-min-sep) it is
    "verified": see `calibrate_bandmf`, whose ``fallback``, ``samples``, ``seed`` and ``checkpoint`` these are. A ``noise_multiplier``
    then needs ``epsilon`` too: it is verified once, and ParameterError is raised if that fails. The fallback may draw batches from another
    scheme than was asked for; the plan is then about that one, with the same expected batch size.

    ``adjacency`` "zero_out" (default) protects what an example is, not how many there are: ``dataset_size`` is public.
    For users with several examples: `BMinSep` with ``examples_per_user`` (or, where examples that share a user have the same users,
    `MultiAttributionBMinSep`) and the ``graph`` that `AttributionGraph.bound` left.
    """
    size = integer("dataset_size", dataset_size, 1)
    delta = real("delta", delta, 0.0, 1.0, open_low=True, open_high=True)
    if epsilon is None and noise_multiplier is None:
        raise ParameterError("epsilon, noise_multiplier: give at least one of them")
    epsilon = None if epsilon is None else real("epsilon", epsilon, 0.0)
    sigma = (
        None if noise_multiplier is None else real("noise_multiplier", noise_multiplier, 0.0, open_low=True)
    )
    known, make = _graph(graph), _made(sampling, strategy, size)
    example = make(1.0)
    _check(example, size, known)
    if isinstance(example, BandMF) and not example.is_analytic:
        found = _verified(
            make,
            example,
            epsilon,
            delta,
            sigma,
            adjacency,
            fallback,
            samples,
            calibration_seed,
            checkpoint,
            progress,
        )
        return TrainingPlan(found.mechanism, size, _verdict(found), known)
    return TrainingPlan(*_certified(make, size, epsilon, delta, sigma, adjacency), known)


# --- How guarantees come about ------------------------------------------------------------------------


def _certified(
    make: Callable[[float], BandMF | Process],
    size: int,
    epsilon: float | None,
    delta: float,
    sigma: float | None,
    adjacency: str,
) -> tuple[BandMF | Process, int, Guarantee]:
    evidence: dict[str, Any] = {}
    if sigma is None:
        assert epsilon is not None
        found = calibrate_noise_multiplier(
            lambda value: make(value).as_process(), epsilon, delta, adjacency=adjacency
        )
        sigma, evidence = float(found), {"certificate": found.certificate.to_dict()}
        bounds, proven = found.certificate.epsilon_bounds, epsilon
    else:
        bounds = account(make(sigma).as_process(), adjacency).epsilon_bounds(delta)
        proven = bounds.upper
        if epsilon is not None and not proven <= epsilon:
            raise ParameterError(
                f"noise_multiplier = {sigma!r}: gives epsilon = {round_up(proven)} at delta = {delta!r}, more "
                f"than {epsilon!r}"
            )
    mechanism = make(sigma)
    process = mechanism.as_process()
    what = unit(process, adjacency)
    evidence |= {"process": to_dict(process), "epsilon_bounds": bounds._asdict()}
    described = f"Batches and noise of {process}"
    if isinstance(mechanism, BandMF):
        described = (
            f"BandMF with strategy {short_name(mechanism.strategy)} and batches from {mechanism.scheme!r}, "
            f"noise multiplier {sigma!r} (standard deviation of Z / clipping norm)"
        )
    statement = (
        f"{described}. The run satisfies ({round_up(proven)}, {delta!r})-differential privacy, certified without sampling "
        f"(epsilon between {round_down(bounds.lower)} and {round_up(bounds.upper)}): it is dominated by {process}. "
        f'Adjacency: "{adjacency}" ({what}). Computed by hockeystick {_core.__version__}. {CAVEAT}'
    )
    if len(process) > 8:
        statement = statement.replace(
            str(process), f"{process.steps} sampled Gaussians of {len(process)} kinds"
        )
    return (
        mechanism,
        size,
        Guarantee("certified", proven, delta, adjacency, what, statement, None, finite(evidence)),
    )


def _verified(
    make: Callable[[float], Any],
    example: BandMF,
    epsilon: float | None,
    delta: float,
    sigma: float | None,
    adjacency: str,
    fallback: str,
    samples: int | None,
    seed: int | None,
    checkpoint: _Path | None,
    progress: Progress | None,
) -> CalibratedBandMF:
    if epsilon is None:
        raise ParameterError(
            f"epsilon = None: {type(example.scheme).__name__} is accounted by Monte Carlo samples, which can verify "
            "a given epsilon, but find none"
        )
    if sigma is None:
        return calibrate_bandmf(
            example.strategy,
            example.scheme,
            epsilon,
            delta,
            adjacency=adjacency,
            seed=seed,
            samples=samples,
            fallback=fallback,
            checkpoint=checkpoint,
            progress=progress,
        )
    directions(example, adjacency)
    plan = verification_plan(delta, None, samples)
    chosen = resolve_seed(seed, checkpoint)
    (verdict,) = evr.choose(
        make, [sigma], epsilon, plan, chosen, adjacency=adjacency, checkpoint=checkpoint, progress=progress
    )
    if not verdict.accepted:
        direction, mean, _ = verdict.means[-1]
        raise ParameterError(
            f"noise_multiplier = {sigma!r}: not accepted at epsilon = {epsilon!r}, delta = {delta!r} (direction "
            f"{direction!r}: the samples' mean is {mean:.4g} or more, the threshold {plan.threshold:.4g}); leave it out to have it calibrated"
        )
    return CalibratedBandMF(
        mechanism=make(sigma),
        epsilon=epsilon,
        delta=delta,
        adjacency=adjacency,
        plan=plan,
        verifications=(verdict,),
        fallback=None,
        fell_back=False,
        process=None,
        composed_with=None,
        seed=chosen,
        version=_core.__version__,
    )


def _verdict(found: CalibratedBandMF) -> Guarantee:
    assert found.plan is not None
    return Guarantee(
        "verified",
        found.epsilon,
        found.delta,
        found.adjacency,
        found.unit,
        found.statement(),
        found.plan.failure_probability,
        found.to_dict(),
    )


# --- What can be planned --------------------------------------------------------------------------------


def _made(sampling: Scheme | Make, strategy: Strategy | int | None, size: int) -> Callable[[float], Any]:
    """The mechanism as a function of its noise multiplier."""
    if isinstance(sampling, Scheme):
        matrix: Strategy
        if strategy is None:
            matrix = Identity(sampling.steps)
        elif isinstance(strategy, Strategy):
            matrix = strategy
        else:
            matrix = BandedToeplitz.optimized(
                sampling.steps, integer("strategy", strategy, 1, sampling.steps)
            )
        return lambda sigma: BandMF(matrix, sampling, sigma)
    if not callable(sampling):
        raise ParameterTypeError(
            f"sampling = {sampling!r}: must be a Scheme, or a function of the noise multiplier that returns a mechanism"
        )
    if strategy is not None:
        raise ParameterError("strategy: goes with a Scheme; a function returns the whole mechanism")

    def make(sigma: float) -> BandMF | Process:
        found = sampling(sigma)
        if isinstance(found, DPSGD):
            _same_size(size, found.dataset_size)
        mechanism = found if isinstance(found, BandMF) else composition(found, "sampling(noise_multiplier)")
        given = (
            mechanism.noise_multiplier
            if isinstance(mechanism, BandMF)
            else _noise_multiplier(_single(mechanism))
        )
        if given != sigma:
            raise ParameterError(
                f"sampling({sigma!r}): has the noise multiplier {given!r}; it must be the argument"
            )
        return mechanism

    return make


def _single(process: Process) -> Step:
    """The one step that is repeated."""
    if len(process) != 1 or not isinstance(process.items[0][0], _SAMPLED):
        names = ", ".join(kind.__name__ for kind in _SAMPLED)
        raise ParameterError(
            f"sampling: must give one repeated step of {names} (of Gaussian noise), not {process}"
        )
    step = process.items[0][0]
    _noise_multiplier(step)
    return step


def _noise_multiplier(step: Step) -> float:
    noise = step if isinstance(step, TruncatedPoissonSampled) else getattr(step, "mechanism", None)
    if not isinstance(noise, (TruncatedPoissonSampled, Gaussian)):
        raise ParameterError(f"sampling: the noise of {step!r} must be Gaussian")
    return noise.noise_multiplier


def _check(mechanism: Any, size: int, graph: AttributionGraph | None) -> None:
    """Refuse what was not analysed: for other data, for one group of examples only, for a user with more examples."""
    if isinstance(mechanism, BandMF):
        _scheme_for(mechanism.scheme, size, graph)
        return
    step = _single(mechanism)
    if graph is not None:
        raise ParameterError(_NO_USERS)
    if getattr(step, "pair", None) == "koskela2020":
        raise ParameterError(f"sampling: {step!r} is accounted with a pair that is not a guarantee")
    _same_size(size, getattr(step, "dataset_size", size))


def _same_size(size: int, described: int) -> None:
    if described != size:
        raise ParameterError(
            f"dataset_size = {size}: must be {described}, the number that the sampling is described with"
        )


def _scheme_for(scheme: Scheme, size: int, graph: AttributionGraph | None) -> None:
    if isinstance(scheme, CyclicPoisson) and scheme.group is not None:
        raise ParameterError(f"sampling.group = {scheme.group}: must be None, which stands for all examples")
    if isinstance(scheme, TruncatedBMinSep):
        _same_size(size, scheme.dataset_size)
    allowed = scheme.examples_of_users()
    if allowed is not None:
        if graph is None:
            raise ParameterError(
                f"graph = None: {type(scheme).__name__} for users needs to know whose the examples are"
            )
        if graph.num_examples != size:
            raise ParameterError(
                f"dataset_size = {size}: must be {graph.num_examples}, that of the graph (bounded, if it was)"
            )
        most = int(graph.user_degrees().max(initial=0))
        if most > allowed:
            raise ParameterError(
                f"graph: a user has {most} examples, more than the {allowed} that are accounted for; "
                "see AttributionGraph.bound"
            )
        orphans = int(np.count_nonzero(graph.example_degrees() == 0))
        if orphans:
            raise ParameterError(
                f'graph: {orphans} examples belong to no user and would be protected for no one; bound(without_users="drop")'
            )
        if isinstance(scheme, MultiAttributionBMinSep):
            graph.check_closed()
    elif graph is not None:
        raise ParameterError(_NO_USERS)


def _expected_batch_size(sampling: Scheme | Step, size: int, graph: AttributionGraph | None) -> float:
    if isinstance(sampling, (Poisson, PoissonSampled)):
        return size * sampling.sampling_probability
    if isinstance(sampling, CyclicPoisson):
        return size * sampling.sampling_probability / sampling.min_sep
    if isinstance(sampling, BallsInBins):
        return size / sampling.bins
    if isinstance(sampling, (BMinSep, RMinSep)):
        return size * sampling.participation_rate
    if isinstance(sampling, TruncatedBMinSep):
        p = sampling.sampling_probability
        return min(size * p / (1.0 + (sampling.min_sep - 1) * p), float(sampling.max_batch_size))
    if isinstance(sampling, MultiAttributionBMinSep):
        assert graph is not None
        return expected_batch_size(graph, sampling.sampling_probability, sampling.min_sep)
    if isinstance(sampling, TruncatedPoissonSampled):
        return sampling.expected_batch_size
    assert isinstance(sampling, (WithoutReplacement, WithReplacement))
    return float(sampling.batch_size)


def _graph(graph: Any) -> AttributionGraph | None:
    if isinstance(graph, BoundedAttribution):
        return graph.graph
    if graph is not None and not isinstance(graph, AttributionGraph):
        raise ParameterTypeError(
            f"graph: must be an AttributionGraph or a BoundedAttribution, not {type(graph).__name__}"
        )
    return graph


def _digest(graph: AttributionGraph | None) -> str | None:
    return None if graph is None else digest(graph.offsets, graph.users, graph.num_users)


def _packed(mechanism: BandMF | Process) -> tuple[dict[str, Any], dict[str, Array]]:
    if not isinstance(mechanism, BandMF):
        return to_dict(mechanism), {}
    strategy, arrays = mechanism.strategy.to_parts()
    plain = {
        "type": "BandMF",
        "strategy": strategy,
        "scheme": mechanism.scheme.to_dict(),
        "noise_multiplier": mechanism.noise_multiplier,
    }
    return plain, arrays


def _unpacked(plain: Mapping[str, Any], arrays: Mapping[str, Array]) -> BandMF | Process:
    if plain["type"] != "BandMF":
        return from_dict(plain).as_process()
    return BandMF(
        Strategy.from_parts(plain["strategy"], arrays),
        Scheme.from_dict(plain["scheme"]),
        plain["noise_multiplier"],
    )


__all__ = ["Guarantee", "TrainingPlan", "plan_training"]
