"""Privacy filters and odometers: budgets that fully adaptive mechanisms cannot overspend.

A step of a training run is a sum of contributions, one from each example, plus Gaussian noise. With
mu = (norm of the example's contribution) / (standard deviation of the noise), the step is mu-GDP for that
example, and the whole run is B-GDP for it as long as the sum of its mu^2 stays at most B^2, even if every
step depends on all outputs before (Koskela, Tobaben, Honkela 2022, Theorems 1 and 2). A filter keeps that
sum for each example and says who may take part.

What a filter knows about an example depends on that example's data. The masks, the sums and the individual
epsilons are as sensitive as the data set: do not release them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _core, ledger
from .gdp import mu_at
from .mechanisms import Gaussian
from .pld import account
from .rdp import best_order, conversion, rdp_budget
from .storage import StorageError, refusing
from .validation import ParameterError, ParameterTypeError, boolean, integer, real

if TYPE_CHECKING:
    from typing_extensions import Self

_MAX_EXAMPLES = 2**40
_LARGEST_MU = 1e130
# Beyond these the core's exact arithmetic could underflow.
_LEAST_NOISE, _MOST_NOISE = 2.0**-60, 2.0**60

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
# (clip, divisor, factor, square): the cost is factor * (min(norm, clip) / divisor)^2, or factor * norm.
_Rule = tuple[float, float, float, bool]


def gdp_budget(epsilon: float, delta: float) -> float:
    """The largest mu found such that mu-GDP implies (epsilon, delta), to about nine digits, certified.

    delta = Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2) (Corollary 2). epsilon > 0, delta in
    (0, 1).

    >>> mu = gdp_budget(epsilon=1.0, delta=1e-5)
    >>> account(Gaussian(1 / mu)).delta(epsilon=1.0) <= 1e-5
    True
    """
    epsilon = real("epsilon", epsilon, 0.0, 1e6, open_low=True)
    delta = real("delta", delta, 0.0, 1.0, open_low=True, open_high=True)
    mu = mu_at(epsilon, delta)
    for margin in (2e-9, 1e-8, 1e-6, 1e-4, 1e-2, 0.5):
        down = mu * (1.0 - margin)
        noise = math.nextafter(1.0 / down, 0.0)
        if account(Gaussian(noise)).delta(epsilon) <= delta:
            return down
    raise ParameterError(f"epsilon = {epsilon!r}, delta = {delta!r}: no Gaussian mechanism is found for them")


def _gdp_mu(mu: float | None, epsilon: float | None, delta: float | None) -> float:
    if mu is not None:
        if epsilon is not None or delta is not None:
            raise ParameterTypeError("mu, epsilon, delta: give the budget as mu or as (epsilon, delta)")
        return real("mu", mu, 0.0, _LARGEST_MU)
    if epsilon is None or delta is None:
        raise ParameterTypeError("mu, epsilon, delta: give the budget as mu or as (epsilon, delta)")
    return gdp_budget(epsilon, delta)


def _squared_down(mu: float) -> float:
    """mu^2 rounded down, unless it is exact."""
    square = mu * mu
    return math.nextafter(square, 0.0) if Fraction(square) > Fraction(mu) ** 2 else square


class LastStep:
    """What the last step did: ``step``, its number; ``indices`` (None: all examples); ``active``, the mask."""

    def __init__(self, step: int, indices: NDArray[np.int64] | None, active: Mask) -> None:
        self.step, self.indices, self.active = step, indices, active

    def __repr__(self) -> str:
        return f"LastStep(step={self.step}, active={int(self.active.sum())} of {self.active.size})"


class _IndividualLedger:
    """The state that filters and odometers share: what each example has spent, in units of its budget."""

    _KIND: ClassVar[str]

    def __init__(
        self,
        num_examples: int,
        limit: float,
        factor: float,
        path: Any,
        durable: bool,
        content: dict[str, Any],
    ) -> None:
        self._limit, self._factor = limit, factor
        self._content = {**content, "durable": boolean("durable", durable)}
        n = integer("num_examples", num_examples, 0, _MAX_EXAMPLES)
        self._live: ledger.LiveLedger | None = None
        self._spent: Floats
        self._counts: list[int] = []
        self._last: LastStep | None = None
        if path is None:
            self._spent = np.zeros(n)
        else:
            self._attach(ledger.LiveLedger.create(path, self._KIND, self._content, n))

    def _attach(self, live: ledger.LiveLedger) -> None:
        self._live = live
        self._spent = live.values
        if live.last is not None:
            indices, active = live.last
            self._last = LastStep(live.steps, indices, np.array(active).view(np.bool_))

    @property
    def num_examples(self) -> int:
        """Number of examples."""
        return int(self._spent.size)

    @property
    def steps(self) -> int:
        """Number of steps so far."""
        return self._live.steps if self._live is not None else len(self._counts)

    @property
    def spent(self) -> Floats:
        """What each example has spent, in the units of the budget: a read-only view, and sensitive."""
        view: Floats = self._spent.view()
        view.flags.writeable = False
        return view

    @property
    def last_step(self) -> LastStep | None:
        """The last step that was recorded; None before the first.

        A run that is killed after a step was recorded and before its result was saved takes the mask from
        here and repeats the step with the same noise: it is the same release, and is not charged twice.
        """
        return self._last

    def active_counts(self) -> NDArray[np.int64]:
        """Number of examples that took part in each step so far, shape (steps,)."""
        if self._live is not None:
            return self._live.active_counts()
        return np.array(self._counts, np.int64)

    def _charge(self, how: _Rule, values: Any, indices: Any) -> Mask:
        """Charge one step: all of it, or nothing if anything is wrong with it."""
        chosen = self._indices(indices)
        n = self.num_examples if chosen is None else chosen.size
        array = _values("norms", values, n)
        if self._live is not None:
            after, active = self._live.begin(chosen)
        else:
            # Without indices the core works in place: nothing can fail from here on.
            after = self._spent if chosen is None else np.empty(n)
            active = np.empty(n, np.uint8)
        before = self._spent if chosen is None else self._spent[chosen]
        count = _core.charge(array, before, self._limit, after, active, *how)
        if self._live is not None:
            self._live.commit(chosen, after, active, count)
        else:
            if chosen is not None:
                self._spent[chosen] = after
            self._counts.append(count)
        # A mapped journal goes away with the next step.
        mask: Mask = (np.array(active) if self._live is not None else active).view(np.bool_)
        self._last = LastStep(self.steps, chosen, mask)
        return mask

    def _indices(self, indices: Any) -> NDArray[np.int64] | None:
        if indices is None:
            return None
        array = np.asarray(indices)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise ParameterTypeError("indices: must be a one-dimensional array of integers")
        array = array.astype(np.int64)
        if array.size:
            low, high = int(array.min()), int(array.max())
            if low < 0 or high >= self.num_examples:
                raise ParameterError(
                    f"indices: must be in [0, {self.num_examples - 1}], found {low if low < 0 else high}"
                )
            order = np.sort(array)
            twice = order[1:][order[1:] == order[:-1]]
            if twice.size:
                # Its contributions would add up before they are squared.
                raise ParameterError(
                    f"indices: {int(twice[0])} occurs twice; an example takes part in a step at most once"
                )
        return array

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the whole state to one file, atomically; `load` resumes from it.

        Save together with the model: a ledger and a model from the same moment resume exactly.
        """
        arrays = {"spent": np.asarray(self._spent), "active": self.active_counts()}
        ledger.write(path, self._KIND, self._content, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote; StorageError (a ValueError) says why a file is refused."""
        content, arrays = ledger.read(path, cls._KIND)
        with refusing(path):
            self = cls._restore(content)
            spent, counts = arrays["spent"], arrays["active"]
            if spent.dtype != np.float64 or spent.ndim != 1 or not bool((spent >= 0).all()):
                raise StorageError("its ledger is not one of numbers >= 0")
            self._spent = spent
            self._counts = [integer("active", count, 0, spent.size) for count in counts.tolist()]
        return self

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Resume a ledger on disk, made with ``path=...``; a step that was under way is made or not, never half.

        Raises StorageError where the directory holds none, or where another process has it open.
        """
        live = ledger.LiveLedger(path, cls._KIND)
        try:
            with refusing(path):
                self = cls._restore(live.content)
        except BaseException:
            live.close()
            raise
        self._content["durable"] = live.durable
        self._attach(live)
        return self

    def close(self) -> None:
        """Let go of a ledger on disk."""
        if self._live is not None:
            self._live.close()
            self._spent = np.zeros(0)

    @classmethod
    def merge(cls, parts: Iterable[Self]) -> Self:
        """One ledger for the examples of all ``parts``, in their order: shards of one data set.

        Each worker kept the ledger of its own examples. All must have the same budget and number of steps.
        """
        shards = list(parts)
        if not shards or not all(type(shard) is cls for shard in shards):
            raise ParameterTypeError(f"parts: must be one or more {cls.__name__}")
        first = shards[0]
        for shard in shards[1:]:
            if shard._budget() != first._budget():
                raise ParameterError(f"parts: budgets differ: {first._budget()} and {shard._budget()}")
            if shard.steps != first.steps:
                raise ParameterError(f"parts: have made {first.steps} and {shard.steps} steps")
        self = cls._restore({**first._content, "durable": False})
        self._spent = np.concatenate([shard._spent for shard in shards])
        self._counts = np.sum([shard.active_counts() for shard in shards], axis=0).tolist()
        return self

    def _budget(self) -> dict[str, Any]:
        return {name: value for name, value in self._content.items() if name != "durable"}

    @classmethod
    def _restore(cls, content: dict[str, Any]) -> Self:
        """An empty ledger with the same budget."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.num_examples} examples, {self._budget()}, {self.steps} steps)"


def _values(name: str, values: Any, size: int) -> Floats:
    array = np.asarray(values)
    if array.dtype.kind not in "iuf":
        raise ParameterTypeError(f"{name}: must be an array of numbers, not {array.dtype}")
    if array.ndim == 0:
        array = np.full(size, array)
    if array.shape != (size,):
        raise ParameterError(f"{name}: must have the shape ({size},), not {array.shape}")
    # float32 is exact in float64.
    array = np.ascontiguousarray(array, np.float64)
    bad = _core.first_invalid(array)
    if bad < array.size:
        raise ParameterError(f"{name}[{bad}] = {float(array[bad])!r}: must be a number in [0, inf]")
    return array


def noise_deviation(noise_multiplier: float, clipping_norm: float) -> float:
    """Standard deviation of the noise, rounded down: what a norm is divided by."""
    noise = real("noise_multiplier", noise_multiplier, 0.0, open_low=True)
    clip = real("clipping_norm", clipping_norm, 0.0, open_low=True)
    product = noise * clip
    if not _LEAST_NOISE <= product <= _MOST_NOISE:
        raise ParameterError(
            f"noise_multiplier * clipping_norm = {product!r}: must be in [{_LEAST_NOISE:g}, {_MOST_NOISE:g}]"
        )
    return math.nextafter(product, 0.0) if Fraction(product) > Fraction(noise) * Fraction(clip) else product


def _scaling(noise_multiplier: float | None, clipping_norm: float | None) -> tuple[float, float]:
    """(clip, divisor): mu is min(norm, clip) / divisor."""
    if noise_multiplier is None and clipping_norm is None:
        return math.inf, 1.0
    if noise_multiplier is None or clipping_norm is None:
        raise ParameterTypeError("noise_multiplier, clipping_norm: give both, or neither if norms are mu")
    return float(clipping_norm), noise_deviation(noise_multiplier, clipping_norm)


class IndividualGDPFilter(_IndividualLedger):
    """A budget of Gaussian differential privacy for each example of a data set.

    The run is B-GDP for each example under removal or addition of it, whatever the steps depend on: an
    example takes part in a step only if its sum of mu^2 stays at most B^2 (Koskela, Tobaben, Honkela 2022,
    Algorithm 1, Theorem 1; so (epsilon, delta) by Corollary 2). An example that was dropped for a step pays
    nothing for it, and may take part again when its gradient is smaller. The budget is given as
    ``mu`` (= B) or as ``epsilon`` with ``delta``.

    Sums are kept in float64 and every rounding is upwards, so the budget cannot be overspent; after
    T steps the sum is at most T 2^-52 of the budget too large. ``path`` keeps the ledger in a directory, mapped
    into memory: for more examples than fit, and for runs that may be killed (`open` resumes); ``durable``
    also survives a power failure.

    >>> filt = IndividualGDPFilter(num_examples=3, mu=1.0)
    >>> filt.step([0.5, 0.9, 2.0]).tolist()
    [True, True, False]
    >>> filt.step(norms=[4.0, 4.0, 4.0], noise_multiplier=8.0, clipping_norm=1.0).tolist()
    [True, True, True]
    >>> filt.spent.tolist()
    [0.265625, 0.825625..., 0.015625]
    """

    _KIND = "individual GDP filter"

    def __init__(
        self,
        num_examples: int,
        *,
        mu: float | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        path: str | os.PathLike[str] | None = None,
        durable: bool = False,
    ) -> None:
        self._mu = _gdp_mu(mu, epsilon, delta)
        super().__init__(num_examples, _squared_down(self._mu), 1.0, path, durable, {"mu": self._mu})

    @classmethod
    def _restore(cls, content: dict[str, Any]) -> Self:
        return cls(0, mu=content["mu"])

    @property
    def mu(self) -> float:
        """The budget B: the run is B-GDP for every example."""
        return self._mu

    def step(
        self,
        norms: ArrayLike,
        *,
        noise_multiplier: float | None = None,
        clipping_norm: float | None = None,
        indices: ArrayLike | None = None,
    ) -> Mask:
        """Charge one step and return who may take part in it: a mask of the shape of ``norms``.

        ``norms``: for each example the norm of its contribution in units of the noise's standard deviation,
        that is its mu; or, with ``noise_multiplier`` sigma and ``clipping_norm`` C, the norm of its gradient
        before clipping: mu = min(norm, C) / (sigma C). Both may change from step to step. ``indices``: the
        examples that ``norms`` is about, each at most once; others take no part and pay nothing. A batch
        must be drawn without looking at the data, and nothing is gained from its being random: for
        that use `IndividualAccountant`. The step must not use the contribution of an example whose mask is
        False. Raises ParameterError, and charges nobody, if a norm is negative or nan.
        """
        return self._charge((*_scaling(noise_multiplier, clipping_norm), 1.0, True), norms, indices)

    def last_scales(
        self,
        norms: ArrayLike,
        *,
        noise_multiplier: float,
        clipping_norm: float,
        indices: ArrayLike | None = None,
    ) -> Floats:
        """Charge a last step that uses every budget up, and return what to multiply each gradient with.

        The scaled gradient has the norm sigma C sqrt(B^2 - sum mu^2), so that sum mu^2 = B^2 (Remark 3, where
        sum mu = B is a slip; Feldman, Zrnic 2021, Algorithm 3). Multiply instead of clipping. Scales are
        rounded down by a few units of the last place, and may exceed 1. A gradient of norm 0 cannot be
        scaled: it spends nothing.
        """
        deviation = noise_deviation(noise_multiplier, clipping_norm)
        chosen = self._indices(indices)
        array = _values("norms", norms, self.num_examples if chosen is None else chosen.size)
        spent = np.asarray(self._spent if chosen is None else self._spent[chosen])
        rest = np.maximum(0.0, np.nextafter(self._limit - spent, 0.0))
        mu = np.nextafter(np.sqrt(rest), 0.0)
        usable = np.isfinite(array) & (array > 0.0)
        scales = np.zeros(array.size)
        scales[usable] = mu[usable] * deviation / array[usable] * (1.0 - 2.0**-50)
        # So small or large norms that the quotient overflows: nothing is scaled.
        scales[~np.isfinite(scales)] = 0.0
        cost = np.where(scales > 0.0, mu, 0.0)
        # mu was rounded down so far that its square, rounded up, still fits: nobody is dropped here.
        self._charge((math.inf, 1.0, 1.0, True), cost, indices)
        return scales

    def spent_mu(self) -> Floats:
        """sqrt(sum mu^2) of each example so far, rounded up; sensitive."""
        spent = np.asarray(self._spent)
        return np.asarray(np.where(spent > 0.0, np.nextafter(np.sqrt(spent), np.inf), 0.0), np.float64)

    def epsilon(self, delta: float) -> Floats:
        """For each example the epsilon at ``delta`` of what it has spent so far: certified, and sensitive.

        An upper bound on what the run's outputs reveal if the run was going to end here whatever they are; if
        it may stop or go on depending on them, the guarantee is that of the budget (or see
        `IndividualGDPOdometer`).
        """
        return _core.gaussian_epsilons(self.spent_mu(), real("delta", delta, 0.0, 1.0))


class IndividualRDPFilter(_IndividualLedger):
    """A budget of Rényi differential privacy of one order for each example (Feldman, Zrnic 2021).

    An example takes part in a step only if its sum of Rényi divergences of this ``order`` stays at most ``rho``;
    the run is then (order, rho)-RDP for it, and (epsilon, delta)-DP by `rdp_epsilon`, whatever the steps
    depend on (their Theorem 4.3). For steps of plain Gaussian noise the GDP filter allows more of them for the
    same (epsilon, delta). Unlike it, this one also knows what random batches are worth:
    ``sampling_probability`` in `step`. The budget is ``rho`` at ``order``, or ``epsilon`` with ``delta``, then ``order``
    defaults to the one that allows the most Gaussian steps.

    >>> filt = IndividualRDPFilter(2, epsilon=1.0, delta=1e-5)
    >>> filt.step([0.01, 5.0]).tolist()
    [True, False]
    """

    _KIND = "individual RDP filter"

    def __init__(
        self,
        num_examples: int,
        *,
        order: float | None = None,
        rho: float | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        path: str | os.PathLike[str] | None = None,
        durable: bool = False,
    ) -> None:
        self._order, self._rho = _rdp(order, rho, epsilon, delta)
        content = {"order": self._order, "rho": self._rho}
        super().__init__(num_examples, self._rho, 0.5 * self._order, path, durable, content)
        self._tables: dict[tuple[float, float], tuple[Floats, Floats]] = {}

    @classmethod
    def _restore(cls, content: dict[str, Any]) -> Self:
        return cls(0, order=content["order"], rho=content["rho"])

    @property
    def order(self) -> float:
        """The order of the Rényi divergence, above 1."""
        return self._order

    @property
    def rho(self) -> float:
        """The budget: the run is (order, rho)-RDP for every example."""
        return self._rho

    def step(
        self,
        norms: ArrayLike,
        *,
        noise_multiplier: float | None = None,
        clipping_norm: float | None = None,
        indices: ArrayLike | None = None,
        sampling_probability: float = 1.0,
    ) -> Mask:
        """Charge one step and return who may take part in it; see `IndividualGDPFilter.step`.

        The cost is order mu^2 / 2. With ``sampling_probability`` q < 1 (then noise_multiplier and clipping_norm
        are needed), each example that takes part is in the batch with probability q, independently, and the
        cost is the Rényi divergence of the sampled Gaussian in the worse direction, at mu rounded up by less
        than 0.7 % (7 % below 7 % of the clipping norm). ``norms`` must then be those of all examples that could
        have been drawn, not of the batch.
        """
        clip, divisor = _scaling(noise_multiplier, clipping_norm)
        q = real("sampling_probability", sampling_probability, 0.0, 1.0)
        if q == 1.0:
            return self._charge((clip, divisor, self._factor, True), norms, indices)
        if not math.isfinite(clip):
            raise ParameterTypeError("sampling_probability: needs noise_multiplier and clipping_norm as well")
        chosen = self._indices(indices)
        array = _values("norms", norms, self.num_examples if chosen is None else chosen.size)
        edges, costs = self._table(float(noise_multiplier or 0.0), q)
        cells = _core.find_cells(array, edges, clip, divisor)
        return self._charge((math.inf, 1.0, 1.0, False), costs[cells], indices)

    def _table(self, noise_multiplier: float, q: float) -> tuple[Floats, Floats]:
        from .individual import cell_edges, sampled_pairs

        key = (noise_multiplier, q)
        if key not in self._tables:
            if len(self._tables) >= 256:
                self._tables.clear()
            edges = cell_edges(noise_multiplier)
            costs = np.zeros(edges.size)
            if q > 0.0:
                for direction in ("remove", "add"):
                    profiles = _core.IndividualProfiles(sampled_pairs(edges, q, direction))
                    moments = profiles.log_moments(self._order - 1.0)
                    costs = np.maximum(costs, np.maximum(0.0, moments) / (self._order - 1.0) * (1.0 + 1e-15))
            self._tables[key] = edges, np.concatenate([[0.0], costs])
        return self._tables[key]

    def epsilon(self, delta: float) -> Floats:
        """For each example the epsilon at ``delta`` that its spent Rényi divergence implies; sensitive."""
        spent = np.asarray(self._spent)
        shift = conversion(self._order, real("delta", delta, 0.0, 1.0, open_low=True, open_high=True))
        # Whoever has spent nothing has revealed nothing, whatever the conversion says.
        return np.where(spent > 0.0, np.maximum(0.0, np.nextafter(spent + shift, np.inf)), 0.0)


def _rdp(
    order: float | None, rho: float | None, epsilon: float | None, delta: float | None
) -> tuple[float, float]:
    if rho is not None:
        if order is None or epsilon is not None or delta is not None:
            raise ParameterTypeError("order, rho, epsilon, delta: give order and rho, or epsilon and delta")
        return real("order", order, 1.0, 1e6, open_low=True), real("rho", rho, 0.0, _LARGEST_MU)
    if epsilon is None or delta is None:
        raise ParameterTypeError("order, rho, epsilon, delta: give order and rho, or epsilon and delta")
    chosen = best_order(epsilon, delta) if order is None else real("order", order, 1.0, 1e6, open_low=True)
    return chosen, rdp_budget(chosen, epsilon, delta)


class IndividualGDPOdometer(_IndividualLedger):
    """What each example has spent so far, without a limit; readings are guarantees at given levels only.

    The levels are B_m = increment sqrt(m). The outputs up to the last step at which an example's sqrt(sum mu^2)
    is at most B_m are B_m-GDP for it, for each m fixed in advance: a sequence of filters (Koskela, Tobaben,
    Honkela 2022, Appendix C.5; Feldman, Zrnic 2021, Section 4.3). So the reading of `mu` is rounded up to a
    level. (Setting the counter to zero at every crossing, as the appendix describes it, is valid too, and
    wastes what is left of a level; the filters for the B_m do not need it.)

    >>> odometer = IndividualGDPOdometer(2, increment=0.5)
    >>> odometer.step([0.3, 0.9])
    >>> odometer.mu().round(6).tolist()
    [0.5, 1.0]
    """

    _KIND = "individual GDP odometer"

    def __init__(
        self,
        num_examples: int,
        *,
        increment: float,
        path: str | os.PathLike[str] | None = None,
        durable: bool = False,
    ) -> None:
        self._increment = real("increment", increment, 1e-100, 1e100)
        super().__init__(num_examples, math.inf, 1.0, path, durable, {"increment": self._increment})

    @classmethod
    def _restore(cls, content: dict[str, Any]) -> Self:
        return cls(0, increment=content["increment"])

    @property
    def increment(self) -> float:
        """The first level; the m-th is this times sqrt(m)."""
        return self._increment

    def step(
        self,
        norms: ArrayLike,
        *,
        noise_multiplier: float | None = None,
        clipping_norm: float | None = None,
        indices: ArrayLike | None = None,
    ) -> None:
        """Record one step; arguments as in `IndividualGDPFilter.step`."""
        self._charge((*_scaling(noise_multiplier, clipping_norm), 1.0, True), norms, indices)

    def levels(self) -> Floats:
        """The number m of the level that each example is below, 0 if it has spent nothing; sensitive."""
        square = _squared_down(self._increment)
        spent = np.asarray(self._spent)
        level = np.ceil(spent / square)
        return np.asarray(level + (level * square < spent), np.float64)

    def mu(self) -> Floats:
        """For each example the level B_m that its outputs so far are below: rounded up; sensitive."""
        return np.asarray(np.sqrt(self.levels()) * (self._increment * (1.0 + 2.0**-50)), np.float64)

    def epsilon(self, delta: float) -> Floats:
        """For each example the epsilon at ``delta`` of its reading `mu`: certified, and sensitive."""
        return _core.gaussian_epsilons(self.mu(), real("delta", delta, 0.0, 1.0))


class GDPFilter:
    """A budget of Gaussian differential privacy for a whole data set: one mu per step (Algorithm 2).

    The outputs of the steps that were let through are B-GDP, each step being mu-GDP given all before (Theorem
    1 of Appendix C). The first step that would exceed the budget halts the filter.

    >>> filt = GDPFilter(mu=0.5)
    >>> [filt.step(0.3) for _ in range(4)]
    [True, True, False, False]
    >>> filt.halted
    True
    """

    def __init__(
        self, *, mu: float | None = None, epsilon: float | None = None, delta: float | None = None
    ) -> None:
        self._ledger = IndividualGDPFilter(1, mu=mu, epsilon=epsilon, delta=delta)
        self._halted = False

    @property
    def mu(self) -> float:
        """The budget B."""
        return self._ledger.mu

    @property
    def halted(self) -> bool:
        """Whether a step was refused; no further step may be made."""
        return self._halted

    @property
    def steps(self) -> int:
        """Number of steps let through."""
        return self._ledger.steps - int(self._halted)

    def spent_mu(self) -> float:
        """sqrt(sum mu^2) so far, rounded up."""
        return float(self._ledger.spent_mu()[0])

    def step(self, mu: float, *, noise_multiplier: float | None = None) -> bool:
        """Whether a mu-GDP step may be made; if so, it is charged.

        ``mu``: supremum over the data set of norm / (standard deviation of the noise); with
        ``noise_multiplier`` sigma, the sensitivity in units of which it is given: mu / sigma.
        """
        if self._halted:
            return False
        value = real("mu", mu, 0.0, allow_inf=True)
        if noise_multiplier is not None:
            value = math.nextafter(value / noise_deviation(noise_multiplier, 1.0), math.inf)
        self._halted = not bool(self._ledger.step([value])[0])
        return not self._halted


class RDPFilter:
    """A budget of Rényi differential privacy for a whole data set (Feldman, Zrnic 2021): see GDPFilter.

    >>> filt = RDPFilter(epsilon=0.8, delta=1e-5)
    >>> sum(filt.step(mu=1 / 100) for _ in range(500))
    405
    """

    def __init__(
        self,
        *,
        order: float | None = None,
        rho: float | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
    ) -> None:
        self._ledger = IndividualRDPFilter(1, order=order, rho=rho, epsilon=epsilon, delta=delta)
        self._halted = False

    @property
    def order(self) -> float:
        """The order of the Rényi divergence."""
        return self._ledger.order

    @property
    def rho(self) -> float:
        """The budget at that order."""
        return self._ledger.rho

    @property
    def halted(self) -> bool:
        """Whether a step was refused."""
        return self._halted

    def step(self, mu: float | None = None, *, rho: float | None = None) -> bool:
        """Whether a step may be made that is mu-GDP, or (order, rho)-RDP; if so, it is charged."""
        if (mu is None) == (rho is None):
            raise ParameterTypeError("mu, rho: give one of the two")
        if self._halted:
            return False
        if rho is None:
            fits = self._ledger.step([real("mu", mu, 0.0, allow_inf=True)])
        else:
            fits = self._ledger._charge(
                (math.inf, 1.0, 1.0, False), [real("rho", rho, 0.0, allow_inf=True)], None
            )
        self._halted = not bool(fits[0])
        return not self._halted


class GDPOdometer:
    """What a whole data set has spent so far: see IndividualGDPOdometer.

    >>> odometer = GDPOdometer(increment=0.5)
    >>> odometer.step(0.6)
    >>> round(odometer.mu, 4)
    0.7071
    """

    def __init__(self, *, increment: float) -> None:
        self._ledger = IndividualGDPOdometer(1, increment=increment)

    @property
    def mu(self) -> float:
        """The level B_m that the outputs so far are below."""
        return float(self._ledger.mu()[0])

    @property
    def level(self) -> int:
        """Its number m."""
        return int(self._ledger.levels()[0])

    @property
    def steps(self) -> int:
        """Number of steps so far."""
        return self._ledger.steps

    def step(self, mu: float) -> None:
        """Record a mu-GDP step."""
        self._ledger.step([real("mu", mu, 0.0, allow_inf=True)])

    def epsilon(self, delta: float) -> float:
        """The epsilon at ``delta`` of the reading: certified."""
        return float(self._ledger.epsilon(delta)[0])


__all__ = [
    "GDPFilter",
    "GDPOdometer",
    "IndividualGDPFilter",
    "IndividualGDPOdometer",
    "IndividualRDPFilter",
    "LastStep",
    "RDPFilter",
    "gdp_budget",
]
