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
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from numpy.typing import DTypeLike

from .._base import storage
from .._base.bounds import Shown, finite
from .._base.files import refusing
from .._base.randomness import Seed
from .._base.types import AnyPath, Array, Progress
from .._base.validation import ParameterError, ParameterTypeError, choice, integer, real, shown
from ..accounting.profile import account
from ..matrix.bandmf import BandMF
from ..matrix.rounding import check_rounding
from ..matrix.scheme import Scheme, no_users, same_size
from ..matrix.schemes import CyclicPoisson
from ..matrix.strategies import BandedToeplitz, Identity
from ..matrix.strategy import Strategy
from ..mechanisms.adjacency import ADJACENCIES, COUNTS_DIFFER
from ..mechanisms.allocation import RandomAllocation
from ..mechanisms.descriptions import (
    Composable,
    Gaussian,
    PoissonSampled,
    PrivateSelection,
    Process,
    Repetitions,
    Step,
    WithoutReplacement,
    WithReplacement,
    composition,
)
from ..mechanisms.selection import checked_tuning
from ..mechanisms.steps import from_dict, to_dict
from ..mechanisms.truncated import TruncatedPoissonSampled
from ..montecarlo.bandmf_calibration import FALLBACKS
from ..montecarlo.tally import digest
from ..sampling.attribution import AttributionGraph
from ..sampling.batches import BatchSampler
from ..sampling.bounding import BoundedAttribution
from ..sampling.laws import Law, law_of
from .guarantee import Guarantee, Mechanism, Request, guarantee, is_certified

if TYPE_CHECKING:
    from .run import TrainingRun

_KIND = "training plan"
Make: TypeAlias = Callable[[float], Composable]

_SAMPLED = (PoissonSampled, RandomAllocation, TruncatedPoissonSampled, WithoutReplacement, WithReplacement)


@dataclass(frozen=True, eq=False)
class TrainingPlan(Shown):
    """Everything the guarantee of a training run depends on; made by `plan_training`.

    ``mechanism`` is a `BandMF` (strategy, scheme and noise multiplier) or a `Process` of one sampled Gaussian: what was accounted,
    and what `start` draws batches and noise from. ``graph`` says who owns which example, where a user is what is protected.
    """

    mechanism: Mechanism
    dataset_size: int
    guarantee: Guarantee
    graph: AttributionGraph | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dataset_size", integer("dataset_size", self.dataset_size, 1))
        self._matrix.scheme.check_data(self.dataset_size, self.graph)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TrainingPlan) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def _shown(self) -> list[tuple[str, Any]]:
        names = ("epsilon", "delta", "adjacency", "steps", "noise_multiplier", "sampling", "dataset_size")
        shown = [
            (name, getattr(self, name)) for name in (*names, "expected_batch_size", "mean_squared_error")
        ]
        return [*shown, ("guarantee", self.guarantee.kind)]

    def _sentence(self) -> str:
        return self.guarantee.statement

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

    @cached_property
    def _matrix(self) -> BandMF:
        return _as_matrix(self.mechanism)

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation of Z over the clipping norm."""
        return self._matrix.noise_multiplier

    @property
    def strategy(self) -> Strategy:
        """C: what correlates the noise; the identity for DP-SGD."""
        return self._matrix.strategy

    @property
    def sampling(self) -> Scheme | Step:
        """How batches are drawn: a scheme, or a sampled Gaussian that is repeated."""
        return cast("Scheme | Step", self._matrix.scheme.description)

    def check_adjacency(self, adjacency: str) -> None:
        """Raise ParameterError where no run of this plan has a guarantee under ``adjacency``, as its groups are by places in the data."""
        self._matrix.scheme.check_groups(adjacency)

    @cached_property
    def expected_batch_size(self) -> float:
        """Mean number of examples in a batch (after a cold start: in the long run): public, what noisy sums are divided by.

        Never divide by a batch's true size: for most schemes that is as secret as the data.
        """
        return self._matrix.scheme.expected_batch_size(self.dataset_size, self.graph)

    @cached_property
    def mean_squared_error(self) -> float:
        """Mean over the steps of the variance of the prefix sums' noise, over the squared clipping norm."""
        return self.strategy.mean_squared_error(self.noise_multiplier)

    @cached_property
    def fingerprint(self) -> str:
        """Equal for plans that draw the same batches and noise and promise the same."""
        content, arrays = self._content()
        promise = [self.epsilon, self.delta, self.adjacency, self.guarantee.kind]
        if "tuning" in self.guarantee.evidence:
            promise.append(self.guarantee.evidence["tuning"])
        facts = json.dumps([content["mechanism"], self.dataset_size, content["attribution"], promise])
        return digest(facts, *(arrays[name] for name in sorted(arrays)))[:32]

    def start(
        self,
        dimension: int,
        *,
        clipping_norm: float,
        path: AnyPath | None = None,
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
        self, path: AnyPath, *, step: int | None = None, state: Mapping[str, Any] | None = None
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

    def save(self, path: AnyPath) -> None:
        """Write the plan to one file, atomically; `load` reads it. No secret is in it; the graph is not either."""
        content, arrays = self._content()
        storage.write(path, _KIND, content, arrays)

    @classmethod
    def load(cls, path: AnyPath, graph: AttributionGraph | BoundedAttribution | None = None) -> TrainingPlan:
        """Read what `save` wrote: the same guarantee, without calibrating again.

        A plan for users needs the ``graph`` it was made with. Raises StorageError for damaged files, and where a certified guarantee, which
        is computed again, is not confirmed to 1e-3 (the version that wrote it may have erred), or a verified one is not what was verified. Unit and
        statement of a certified one are those of this version.
        """
        content, arrays = storage.read(path, _KIND)
        with refusing(path):
            mechanism = _from_parts(content["mechanism"], arrays)
            guarantee = Guarantee(**content["guarantee"])
            size, attribution = content["dataset_size"], content["attribution"]
        known = _graph(graph)
        if _digest(known) != attribution:
            need = "none" if attribution is None else "the one that the plan was made with"
            raise ParameterError(f"graph: must be {need}, not {known!r}")
        plan = cls(mechanism, size, guarantee, known)
        with refusing(path):
            plan.check_adjacency(guarantee.adjacency)
            # What needs no samples is computed again, whatever the file says of its kind, and so are the words for it.
            if guarantee.kind == "certified" or is_certified(mechanism, guarantee.adjacency):
                plan = replace(
                    plan, guarantee=guarantee.checked(mechanism, plan.released(mechanism.as_process()))
                )
            if guarantee.kind != "certified":
                guarantee.check_verified(plan._matrix)
        return plan

    def _content(self) -> tuple[dict[str, Any], dict[str, Array]]:
        mechanism, arrays = _to_parts(self.mechanism)
        content = {
            "mechanism": mechanism,
            "dataset_size": self.dataset_size,
            "attribution": _digest(self.graph),
            "guarantee": asdict(self.guarantee),
        }
        return content, arrays

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON values, for reports; strategies of many coefficients by their digest."""
        columns = self.strategy._columns()
        plain = {
            "dataset_size": self.dataset_size,
            "expected_batch_size": self.expected_batch_size,
            "steps": self.steps,
            "sampling": self._matrix.scheme.to_dict(),
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
        return finite(plain)

    def spent(self, steps: int) -> float | None:
        """Certified epsilon, at the plan's delta, of only the first ``steps`` steps; None where it takes Monte Carlo samples.

        It holds if the number of steps was fixed without looking at the data or at anything released (a machine that broke down). Whoever
        stops because of what the run showed has the guarantee of the whole plan: what was released is a part of what it covers.
        """
        made = integer("steps", steps, 0, self.steps)
        if made == 0:
            return 0.0
        scheme, strategy = self._matrix.scheme.first_steps(made), self.strategy.first_steps(made)
        shorter = BandMF(strategy, scheme, self.noise_multiplier)
        if not shorter.is_certified(self.adjacency):
            return None
        process = shorter.as_process()
        return min(self.epsilon, account(self.released(process), self.adjacency).epsilon(self.delta))

    def released(self, run: Composable | None = None) -> Composable:
        """What is released of one ``run`` (by default the plan's), or of several, where tuning was declared."""
        run = self.mechanism if run is None else run
        tuning = self.guarantee.evidence.get("tuning")
        return run if tuning is None else PrivateSelection(run.as_process(), from_dict(tuning))  # type: ignore[arg-type]


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
    tuning: Repetitions | str | None = None,
    fallback: str = "auto",
    samples: int | None = None,
    calibration_seed: int | None = None,
    checkpoint: AnyPath | None = None,
    progress: Progress | None = None,
) -> TrainingPlan:
    """Plan a training run: find the least noise multiplier that keeps it (``epsilon``, ``delta``)-DP, or account for a given one.

    ``sampling``: a scheme (`Poisson`, `CyclicPoisson`, `BallsInBins`, `BMinSep`, ...) with the number of steps, for noise correlated
    by ``strategy`` (an integer: `BandedToeplitz.optimized` with so many bands; None: independent noise, DP-SGD). Or a
    function of the noise multiplier that returns a repeated sampled Gaussian, as for `calibrate_noise_multiplier`:

        plan_training(lambda sigma: hs.dp_sgd(sigma, 60_000, 256, epochs=10), 60_000, epsilon=2.0, delta=1e-6)
        plan_training(lambda sigma: hs.TruncatedPoissonSampled(sigma, 60_000, 0.01, 700) * 1000, 60_000, ...)

    Where a composition in closed form dominates the run (Poisson, also truncated or cyclic; fixed-size batches under "replace_one"),
    the guarantee is "certified", and a ``noise_multiplier`` alone is accounted for; so it is for balls-in-bins with independent noise
    and whole epochs. Elsewhere (balls-in-bins with correlated noise, b-min-sep) it is "verified": see `calibrate_bandmf`, whose
    ``fallback``, ``samples``, ``checkpoint``, ``progress`` and ``seed`` (here ``calibration_seed``) these are. A ``noise_multiplier``
    then needs ``epsilon`` too: it is verified once, and ParameterError is raised if that fails. The fallback may draw batches from another
    scheme than was asked for; the plan is then about that one, with the same expected batch size. ParameterError for a ``strategy`` whose
    inverse grows so much that no run could have its noise (`CorrelatedNoise`).

    ``tuning`` `Repetitions`: the best of K runs of this plan is what is released, K drawn from that law, and what the
    guarantee is for (`PrivateSelection`; certified plans only). "none" declares that no other run on these data chose a setting; by
    default the statement says that nothing was declared.

    ``adjacency`` "zero_out" (default) protects what an example is, not how many there are: ``dataset_size`` is public. Schemes whose groups
    are by places in the data (`CyclicPoisson`, `FixedOrder`) protect no more in a run, whose data are an array.
    For users with several examples: `BMinSep` with ``examples_per_user`` (or, where examples that share a user have the same users,
    `MultiAttributionBMinSep`) and the ``graph`` that `AttributionGraph.bound` left.
    """
    size = integer("dataset_size", dataset_size, 1)
    delta = real("delta", delta, 0.0, 1.0, open_low=True, open_high=True)
    if epsilon is None and noise_multiplier is None:
        raise ParameterError("epsilon, noise_multiplier: give at least one of them")
    if epsilon is not None:
        epsilon = real("epsilon", epsilon, 0.0)
    if noise_multiplier is not None:
        noise_multiplier = real("noise_multiplier", noise_multiplier, 0.0, open_low=True)
    adjacency = choice("adjacency", adjacency, ADJACENCIES)
    request = Request(delta, epsilon, noise_multiplier, adjacency, checked_tuning(tuning))
    known, make = _graph(graph), _made(sampling, strategy, size)
    example = make(1.0)
    matrix = _as_matrix(example)
    matrix.scheme.check_data(size, known)
    matrix.scheme.check_groups(adjacency)
    if adjacency in COUNTS_DIFFER and matrix.strategy.bands > 1 and not is_certified(example, adjacency):
        # What is fallen back to is drawn, too.
        if choice("fallback", fallback, FALLBACKS) == "cyclic":
            CyclicPoisson(matrix.strategy.steps, matrix.strategy.bands, 1.0).check_groups(adjacency)
        fallback = "unamplified" if fallback == "auto" else fallback
    check_rounding(matrix.strategy, np.dtype(np.float64))  # no run could have its noise
    verifier = {"fallback": fallback, "samples": samples, "seed": calibration_seed}
    mechanism, promise = guarantee(
        make, example, request, **verifier, checkpoint=checkpoint, progress=progress
    )
    return TrainingPlan(mechanism, size, promise, known)


def _made(
    sampling: Scheme | Make, strategy: Strategy | int | None, dataset_size: int
) -> Callable[[float], Mechanism]:
    if isinstance(sampling, Scheme):
        matrix = _strategy(strategy, sampling.steps)
        return lambda sigma: BandMF(matrix, sampling, sigma)
    if not callable(sampling):
        raise ParameterTypeError(
            f"sampling = {shown(sampling)}: must be a Scheme, or a function of the noise multiplier that returns a mechanism"
        )
    if strategy is not None:
        raise ParameterError("strategy: goes with a Scheme; a function returns the whole mechanism")

    def make(sigma: float) -> Mechanism:
        found = sampling(sigma)
        same_size(found, dataset_size)
        mechanism = found if isinstance(found, BandMF) else composition(found, "sampling(noise_multiplier)")
        given = _as_matrix(mechanism).noise_multiplier
        if given != sigma:
            raise ParameterError(
                f"sampling({sigma!r}): has the noise multiplier {given!r}; it must be the argument"
            )
        return mechanism

    return make


def _strategy(strategy: Strategy | int | None, steps: int) -> Strategy:
    if strategy is None:
        return Identity(steps)
    if isinstance(strategy, Strategy):
        return strategy
    return BandedToeplitz.optimized(steps, integer("strategy", strategy, 1, steps))


@dataclass(frozen=True)
class _RepeatedStep(Scheme):
    """The batches of a sampled mechanism that is repeated."""

    step: Step

    is_analytic = True

    @property
    def description(self) -> Step:
        return self.step

    def to_dict(self) -> dict[str, Any]:
        return to_dict(self.step)

    def largest_bands(self) -> int:
        return 1

    def composition(self, strategy: Strategy, noise_multiplier: float) -> Process:
        """Of whole uses: what the last of them has not released yet is covered."""
        return self._uses()

    def check_data(self, dataset_size: int, graph: AttributionGraph | None) -> None:
        no_users(graph)
        if getattr(self.step, "pair", None) == "koskela2020":
            raise ParameterError(f"sampling: {self.step!r} is accounted with a pair that is not a guarantee")
        same_size(self.step, dataset_size)

    def expected_batch_size(self, dataset_size: int, graph: AttributionGraph | None = None) -> float:
        # Truncated batches are smaller than what is drawn.
        drawn = super().expected_batch_size(dataset_size, graph)
        return float(getattr(self.step, "expected_batch_size", drawn))

    def training_batches(self, dataset_size: int, seed: Seed, graph: AttributionGraph | None) -> BatchSampler:
        return self._uses().batches(dataset_size, seed)

    def _uses(self) -> Process:
        return self.step * -(-self.steps // self.step.releases)

    def _batch_law(self) -> Law:
        return law_of(self._uses())


def _as_matrix(mechanism: Mechanism) -> BandMF:
    """The matrix mechanism that a run draws from; ParameterError for one that no run can draw."""
    if isinstance(mechanism, BandMF):
        return mechanism
    if len(mechanism) != 1 or not isinstance(mechanism.items[0][0], _SAMPLED):
        names = ", ".join(kind.__name__ for kind in _SAMPLED)
        raise ParameterError(
            f"sampling: must give one repeated step of {names} (of Gaussian noise), not {mechanism}"
        )
    ((step, steps),) = mechanism.items
    noise = getattr(step, "mechanism", None)
    if not isinstance(noise, Gaussian):
        raise ParameterError(f"sampling: the noise of {step!r} must be Gaussian")
    steps *= step.releases
    return BandMF(Identity(steps), _RepeatedStep(steps, step), noise.noise_multiplier)


def _to_parts(mechanism: Mechanism) -> tuple[dict[str, Any], dict[str, Array]]:
    if not isinstance(mechanism, BandMF):
        return to_dict(mechanism), {}
    strategy, arrays = mechanism.strategy.to_parts()
    scheme, sigma = mechanism.scheme.to_dict(), mechanism.noise_multiplier
    return {"type": "BandMF", "strategy": strategy, "scheme": scheme, "noise_multiplier": sigma}, arrays


def _from_parts(plain: Mapping[str, Any], arrays: Mapping[str, Array]) -> Mechanism:
    if plain["type"] != "BandMF":
        return from_dict(plain).as_process()
    strategy = Strategy.from_parts(plain["strategy"], arrays)
    return BandMF(strategy, Scheme.from_dict(plain["scheme"]), plain["noise_multiplier"])


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
