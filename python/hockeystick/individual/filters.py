"""Privacy filters, budgets that fully adaptive mechanisms cannot overspend, and odometers, which have none.

A step of a training run is a sum of contributions, one from each example, plus Gaussian noise. With
mu = (norm of the example's contribution) / (standard deviation of the noise), the step is mu-GDP for that
example, and the whole run is B-GDP for it as long as the sum of its mu^2 stays at most B^2, even if every
step depends on all outputs before (Koskela, Tobaben, Honkela 2022, Theorems 1 and 2). A filter keeps that
sum for each example and says who may take part (docs/individual/individual.md, "Filters").

What is known about an example depends on that example's data. The masks, the sums, the readings and the individual
epsilons are as sensitive as the data set: do not release them.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from .. import _core
from .._base import storage
from .._base.exclusive import undivided
from .._base.gdp import NARROW, mu_at, narrow_delta
from .._base.types import AnyPath
from .._base.validation import ParameterError, ParameterTypeError, double, real
from ..accounting.profile import account
from ..accounting.rdp import LARGEST_ORDER, best_order, conversion, rdp_budget
from ..mechanisms.descriptions import Gaussian
from .adaptive import gaussian_spent
from .cells import cell_edges, sampled_pairs
from .spending import (
    LARGEST_MU,
    Floats,
    IndividualLedger,
    Mask,
    WholeDataSet,
    noise_deviation,
    product_below,
    scaling,
    squared_down,
)

_LEAST_NORMAL = 2.0**-1022
"""*Proof*: roundings of smaller doubles are not relative to them."""

_LARGEST_ORDER = 1e306
"""*Speed*: larger orders are refused."""
_COST_ITSELF = (math.inf, 1.0, 1.0, False)  # *format*: a rule under which the values are costs


def gdp_budget(epsilon: float, delta: float) -> float:
    """The largest mu found such that mu-GDP implies (epsilon, delta), certified; to about eight digits, unless delta is next to 0 or 1.

    delta = Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2) (Corollary 2). epsilon > 0, delta in
    (0, 1). Below delta = 1e-300, and where 1 - delta is below some 1e-9, as few digits are left as delta has, at worst half of mu is given up.

    >>> mu = gdp_budget(epsilon=1.0, delta=1e-5)
    >>> account(Gaussian(1 / mu)).delta(epsilon=1.0) <= 1e-5
    True
    """
    epsilon = real("epsilon", epsilon, 0.0, 1e6, open_low=True, towards=-math.inf)
    delta = real("delta", delta, 0.0, 1.0, open_low=True, open_high=True, towards=-math.inf)
    mu = mu_at(epsilon, delta)
    for margin in (2e-9, 1e-8, 1e-6, 1e-4, 1e-2, 0.5):
        down = mu * (1.0 - margin)
        if down <= NARROW:
            spent = narrow_delta(down, epsilon)
        else:
            spent = account(Gaussian(math.nextafter(1.0 / down, 0.0))).delta(epsilon)
        if spent <= delta:
            return down
    raise ParameterError(f"epsilon = {epsilon!r}, delta = {delta!r}: no Gaussian mechanism is found for them")


class IndividualGDPFilter(IndividualLedger):
    """A budget of Gaussian differential privacy for each example of a data set.

    The run is B-GDP for each example under removal or addition of it, whatever the steps depend on: an
    example takes part in a step only if its sum of mu^2 stays at most B^2 (Koskela, Tobaben, Honkela 2022,
    Algorithm 1, Theorem 1; so (epsilon, delta) by Corollary 2). An example that was dropped for a step pays
    nothing for it, and may take part again when its gradient is smaller. The budget is given as
    ``mu`` (= B) or as ``epsilon`` with ``delta``.

    Sums are kept in float64 and every rounding is upwards, so the budget cannot be overspent; after
    T steps the sum is at most (T + 4) 2^-52 of the budget too large; a step that would use all of it up may so be refused. ``path`` keeps the ledger in a directory, mapped
    into memory: for more examples than fit, and for runs that may be killed (`open` resumes); ``durable``
    also survives a power failure. Threads may share it: one call at a time,
    none is lost. In a forked child every call raises `ForkedError`.

    >>> filt = IndividualGDPFilter(num_examples=3, mu=1.0)
    >>> filt.step([0.5, 0.9, 2.0]).tolist()
    [True, True, False]
    >>> filt.step(norms=[4.0, 4.0, 4.0], noise_multiplier=8.0, clipping_norm=1.0).tolist()
    [True, True, True]
    >>> filt.spent.tolist()
    [0.265625, 0.825625..., 0.015625]
    """

    _KIND = "individual GDP filter"
    _MISSED = storage.RELEASED
    _SETTINGS = ("mu",)

    def __init__(
        self,
        num_examples: int,
        *,
        mu: float | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        path: AnyPath | None = None,
        durable: bool = False,
    ) -> None:
        if mu is not None and epsilon is None and delta is None:
            self._mu = real("mu", mu, 0.0, LARGEST_MU, towards=-math.inf)
        elif mu is None and epsilon is not None and delta is not None:
            self._mu = gdp_budget(epsilon, delta)
        else:
            raise ParameterTypeError("mu, epsilon, delta: give the budget as mu or as (epsilon, delta)")
        super().__init__(num_examples, squared_down(self._mu), 1.0, path, durable)

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
        return self._charge_gaussian(norms, noise_multiplier, clipping_norm, indices)

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
        scaled: it spends nothing, nor does one whose scale would be below 2^-1022 or above all doubles, or whose mu below 2^-400.
        """
        deviation = noise_deviation(noise_multiplier, clipping_norm)
        chosen, array = self._given(norms, indices)
        spent = np.asarray(self._spent if chosen is None else self._spent[chosen])
        rest = np.maximum(0.0, np.nextafter(self._limit - spent, 0.0))
        mu = np.nextafter(np.sqrt(rest), 0.0)
        usable = np.isfinite(array) & (array > 0.0)
        scales = np.zeros(array.size)
        with np.errstate(over="ignore", under="ignore"):
            product = mu[usable] * deviation
            quotient = product / array[usable] * (1.0 - 2.0**-50)
        # Where either overflows, or is too small to have all its digits, nothing is scaled.
        digits = (product >= _LEAST_NORMAL) & (quotient >= _LEAST_NORMAL) & np.isfinite(quotient)
        scales[usable] = np.where(digits, quotient, 0.0)
        cost = np.where(scales > 0.0, mu, 0.0)
        # mu was rounded down so far that its square, rounded up, still fits; dropped are those whose mu is too small to be squared.
        return np.where(self._charge_gaussian(cost, None, None, indices), scales, 0.0)

    def spent_mu(self) -> Floats:
        """sqrt(sum mu^2) of each example so far, rounded up; sensitive.

        The outputs so far are mu-GDP for this mu only if norms and the number of steps were fixed in advance; the budget always holds.
        """
        spent = np.asarray(self._spent)
        return np.asarray(np.where(spent > 0.0, np.nextafter(np.sqrt(spent), np.inf), 0.0), np.float64)

    def epsilon(self, delta: float) -> Floats:
        """For each example the epsilon at ``delta`` of what it has spent so far: certified for adaptive steps, and sensitive.

        E (1 - e^{epsilon - L})_+ <= delta, L the loss so far, although norms, the number of steps and this very reading may depend on
        the outputs (`adaptive`; ``delta`` may not). About a tenth above `nonadaptive_epsilon` where the budget is used up, more where
        little is spent. The budget is a guarantee of its own: of `mu`-GDP, and smaller than this reading of all of it.
        """
        return gaussian_spent(self._spent, self._limit, delta, growing=False)

    def nonadaptive_epsilon(self, delta: float) -> Floats:
        """For each example the epsilon at ``delta`` of mu^2 = `spent`, if the norms had been FIXED IN ADVANCE; sensitive.

        An upper bound only if neither the norms nor the number of steps depend on the outputs. In training they do: then the loss
        may exceed it with several times the probability (docs/individual/individual.md, "What has been spent so far").
        """
        return _core.gaussian_epsilons(self.spent_mu(), real("delta", delta, 0.0, 1.0))


class IndividualRDPFilter(IndividualLedger):
    """A budget of Rényi differential privacy of one order for each example (Feldman, Zrnic 2021).

    An example takes part in a step only if its sum of Rényi divergences of this ``order`` stays at most ``rho``;
    the run is then (order, rho)-RDP for it, and (epsilon, delta)-DP by `rdp_epsilon`, whatever the steps
    depend on (their Theorem 4.3). For steps of plain Gaussian noise the GDP filter allows more of them for the
    same (epsilon, delta). Unlike it, this one also knows what random batches are worth:
    ``sampling_probability`` in `step`. The budget is ``rho`` at ``order``, or ``epsilon`` with ``delta``, then ``order``
    defaults to the one that allows the most Gaussian steps. ``path`` and ``durable`` are as of `IndividualGDPFilter`. Threads may
    share it: one call at a time, none is lost. In a forked child every call raises `ForkedError`.

    >>> filt = IndividualRDPFilter(2, epsilon=1.0, delta=1e-5)
    >>> filt.step([0.01, 5.0]).tolist()
    [True, False]
    """

    _KIND = "individual RDP filter"
    _MISSED = storage.RELEASED
    _SETTINGS = ("order", "rho")

    def __init__(
        self,
        num_examples: int,
        *,
        order: float | None = None,
        rho: float | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        path: AnyPath | None = None,
        durable: bool = False,
    ) -> None:
        self._order, self._rho = _rdp(order, rho, epsilon, delta)
        super().__init__(num_examples, self._rho, 0.5 * self._order, path, durable)

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
        cost is the Rényi divergence of the sampled Gaussian in the worse direction (`rdp_curve`), at mu rounded up by less
        than 0.7 % (7 % below 7 % of the clipping norm).
        ``norms`` must then be those of all examples that could have been drawn, not of the batch.
        """
        clip, divisor = scaling(noise_multiplier, clipping_norm)
        q = real("sampling_probability", sampling_probability, 0.0, 1.0, towards=math.inf)
        if q == 1.0:
            return self._charge_gaussian(norms, noise_multiplier, clipping_norm, indices)
        if not math.isfinite(clip):
            raise ParameterTypeError("sampling_probability: needs noise_multiplier and clipping_norm as well")
        _, array = self._given(norms, indices)
        noise = real("noise_multiplier", noise_multiplier, 0.0, towards=-math.inf)
        edges, costs = _costs(self._order, noise, q)
        cells = _core.find_cells(array, edges, clip, divisor)
        return self._charge(_COST_ITSELF, costs[cells], indices)

    def epsilon(self, delta: float) -> Floats:
        """For each example the epsilon at ``delta`` of what it has spent so far: certified for adaptive steps, and sensitive.

        The conversion of Canonne, Kamath and Steinke (2020). It holds for a sum of divergences along the realised path, too, whatever
        norms and the number of steps depend on, since the order is fixed (`adaptive`; ``delta`` must be as well).
        """
        spent = np.asarray(self._spent)
        shift = conversion(self._order, real("delta", delta, 0.0, 1.0, open_low=True, open_high=True))
        # Whoever has spent nothing has revealed nothing, whatever the conversion says.
        return np.where(spent > 0.0, np.maximum(0.0, np.nextafter(spent + shift, np.inf)), 0.0)


@functools.lru_cache(maxsize=256)
def _costs(order: float, noise_multiplier: float, q: float) -> tuple[Floats, Floats]:
    """A grid of mu, and what a sampled step costs at this order: 0 first, for no cell, then in each."""
    edges = cell_edges(noise_multiplier)
    if q == 0.0:
        return edges, np.zeros(edges.size + 1)
    # Moments are jointly convex: of those of the step without sampling at most q times what they are above 1 is left.
    with np.errstate(over="ignore"):
        plain = 0.5 * order * (order - 1.0) * edges**2 * (1.0 + 1e-15)
        tame = np.log1p(q * np.expm1(np.minimum(plain, 700.0)))
        least = np.where(plain < 700.0, tame, np.logaddexp(0.0, math.log(q) + plain)) * (1.0 + 1e-12)
    # Divergences underflow: only what reveals nothing is free.
    least += 5e-323  # proof: the products are rounded by units of the least double there
    costs = np.maximum(5e-324, least / (order - 1.0) * (1.0 + 1e-15))
    if order <= LARGEST_ORDER:
        ways = [sampled_pairs(edges, q, way) for way in ("remove", "add")]
        found = [
            max(_core.renyi_divergence(pair, order)[1] for pair in pairs if pair is not None)
            for pairs in zip(*ways, strict=True)
        ]
        costs = np.fmin(costs, np.maximum(5e-324, found))
    return edges, np.concatenate([[0.0], costs])


def _rdp(
    order: float | None, rho: float | None, epsilon: float | None, delta: float | None
) -> tuple[float, float]:
    if rho is None and epsilon is not None and delta is not None:
        chosen = best_order(epsilon, delta) if order is None else _order(order)
        return chosen, min(rdp_budget(chosen, epsilon, delta), LARGEST_MU)
    if rho is None or order is None or epsilon is not None or delta is not None:
        raise ParameterTypeError("order, rho, epsilon, delta: give order and rho, or epsilon and delta")
    return _order(order), real("rho", rho, 0.0, LARGEST_MU, towards=-math.inf)


def _order(order: float) -> float:
    return real("order", order, 1.0, _LARGEST_ORDER, open_low=True, towards=-math.inf)


class _WholeFilter(WholeDataSet):
    """A filter that the first step above the budget halts. Threads and forks: see `Exclusive`."""

    _halted = False

    @property
    def halted(self) -> bool:
        """Whether a step was refused; no further step may be made."""
        return self._halted

    @property
    def steps(self) -> int:
        """Number of steps let through."""
        return self._ledger.steps - int(self._halted)

    def _decide(self, fits: Mask) -> bool:
        self._halted = not bool(fits[0])
        return not self._halted


class GDPFilter(_WholeFilter):
    """A budget of Gaussian differential privacy for a whole data set: one mu per step (Algorithm 2).

    The outputs of the steps that were let through are B-GDP, each step being mu-GDP given all before, for any data (Theorem
    1 of Appendix C). The first step that would exceed the budget halts the filter; so may one that would use up all of it, where
    a square is no double and is rounded up. Threads may share it: one call at
    a time, none is lost. In a forked child every call raises `ForkedError`.

    >>> filt = GDPFilter(mu=0.5)
    >>> [filt.step(0.3) for _ in range(4)]
    [True, True, False, False]
    >>> filt.halted
    True
    """

    _ledger: IndividualGDPFilter

    def __init__(
        self, *, mu: float | None = None, epsilon: float | None = None, delta: float | None = None
    ) -> None:
        self._ledger = IndividualGDPFilter(1, mu=mu, epsilon=epsilon, delta=delta)

    @property
    def mu(self) -> float:
        """The budget B."""
        return self._ledger.mu

    def spent_mu(self) -> float:
        """sqrt(sum mu^2) so far, rounded up: the outputs are mu-GDP for it only if all mu were fixed in advance."""
        return float(self._ledger.spent_mu()[0])

    @undivided
    def step(self, mu: float, *, noise_multiplier: float | None = None) -> bool:
        """Whether a mu-GDP step may be made; if so, it is charged.

        ``mu``: what the step is for *any* data, as clipping norm / standard deviation of the noise is; it may follow from earlier outputs
        and nothing else. The largest norm in the data at hand will not do: when the filter halts would show who is among them. With
        ``noise_multiplier`` sigma, the sensitivity in units of which it is given: mu / sigma.
        """
        if self._halted:
            return False
        value = real("mu", mu, 0.0, allow_inf=True, towards=math.inf)
        if noise_multiplier is not None:
            deviation = noise_deviation(noise_multiplier, 1.0)
            # Where it overflows, no budget suffices.
            exact = value / deviation < math.inf
            value = double(Fraction(value) / Fraction(deviation), math.inf) if exact else math.inf
        return self._decide(self._ledger.step([value]))


class RDPFilter(_WholeFilter):
    """A budget of Rényi differential privacy for a whole data set (Feldman, Zrnic 2021): see GDPFilter.

    Threads may share it: one call at a time, none is lost. In a forked child every call raises `ForkedError`.

    >>> filt = RDPFilter(epsilon=0.8, delta=1e-5)
    >>> sum(filt.step(mu=1 / 100) for _ in range(500))
    405
    """

    _ledger: IndividualRDPFilter

    def __init__(
        self,
        *,
        order: float | None = None,
        rho: float | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
    ) -> None:
        self._ledger = IndividualRDPFilter(1, order=order, rho=rho, epsilon=epsilon, delta=delta)

    @property
    def order(self) -> float:
        """The order of the Rényi divergence."""
        return self._ledger.order

    @property
    def rho(self) -> float:
        """The budget at that order."""
        return self._ledger.rho

    @undivided
    def step(self, mu: float | None = None, *, rho: float | None = None) -> bool:
        """Whether a step may be made that is mu-GDP, or (order, rho)-RDP; if so, it is charged."""
        if (mu is None) == (rho is None):
            raise ParameterTypeError("mu, rho: give one of the two")
        if self._halted:
            return False
        if rho is None:
            return self._decide(self._ledger.step([real("mu", mu, 0.0, allow_inf=True, towards=math.inf)]))
        cost = real("rho", rho, 0.0, allow_inf=True, towards=math.inf)
        return self._decide(self._ledger._charge(_COST_ITSELF, [cost], None))


class IndividualGDPOdometer(IndividualLedger):
    """What each example has spent so far, without a limit: a level of Gaussian privacy, and an epsilon.

    The levels are B_m = increment sqrt(m). The outputs up to the last step at which an example's sqrt(sum mu^2)
    is at most B_m are B_m-GDP for it, for each m fixed in advance: a sequence of filters (Koskela, Tobaben,
    Honkela 2022, Appendix C.5; Feldman, Zrnic 2021, Section 4.3). So the reading of `mu` is rounded up to a
    level. (Setting the counter to zero at every crossing, as the appendix describes it, is valid too, and
    wastes what is left of a level; the filters for the B_m do not need it.) ``path`` and ``durable`` are as of
    `IndividualGDPFilter`. Threads may share it: one call at a time, none is lost. In a forked child every call raises `ForkedError`.

    >>> odometer = IndividualGDPOdometer(2, increment=0.5)
    >>> odometer.step([0.3, 0.9])
    >>> odometer.mu().round(6).tolist()
    [0.5, 1.0]
    """

    _KIND = "individual GDP odometer"
    _SETTINGS = ("increment",)

    def __init__(
        self, num_examples: int, *, increment: float, path: AnyPath | None = None, durable: bool = False
    ) -> None:
        self._increment = real("increment", increment, 1e-100, 1e100)
        super().__init__(num_examples, math.inf, 1.0, path, durable)

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
        self._charge_gaussian(norms, noise_multiplier, clipping_norm, indices)

    def levels(self) -> Floats:
        """The number m of the level that each example is below, 0 if it has spent nothing; sensitive."""
        square = squared_down(self._increment)
        spent = np.asarray(self._spent)
        with np.errstate(over="ignore", invalid="ignore"):
            level = np.ceil(spent / square)
            return np.asarray(level + product_below(level, square, spent), np.float64)

    def mu(self) -> Floats:
        """For each example the level B_m that its sqrt(sum mu^2) is below; sensitive.

        For each m the outputs up to the end of level m are B_m-GDP. That is no statement about the level that happens to be reached.
        """
        return np.asarray(np.sqrt(self.levels()) * (self._increment * (1.0 + 2.0**-50)), np.float64)

    def epsilon(self, delta: float) -> Floats:
        """For each example the epsilon at ``delta`` of what it has spent so far: certified for adaptive steps, and sensitive.

        E (1 - e^{epsilon - L})_+ <= delta, L the loss so far, although norms, the number of steps and this very reading may depend on
        the outputs (`adaptive`; ``delta`` may not). Least loose where sum mu^2 is of the order of increment^2 or somewhat above. Larger than
        the epsilon of `mu`, which is a guarantee for each level alone: which level is read depends on the outputs.
        """
        return gaussian_spent(self._spent, self._increment**2, delta, growing=True)


class GDPOdometer(WholeDataSet):
    """What a whole data set has spent so far: see IndividualGDPOdometer.

    Threads may share it: one call at a time, none is lost. In a forked child every call raises `ForkedError`.

    >>> odometer = GDPOdometer(increment=0.5)
    >>> odometer.step(0.6)
    >>> round(odometer.mu, 4)
    0.7071
    """

    _ledger: IndividualGDPOdometer

    def __init__(self, *, increment: float) -> None:
        self._ledger = IndividualGDPOdometer(1, increment=increment)

    @property
    def mu(self) -> float:
        """The level B_m that the outputs so far are below."""
        return float(self._ledger.mu()[0])

    @property
    def level(self) -> float:
        """Its number m, an integer; infinite after a step that reveals everything."""
        level = float(self._ledger.levels()[0])
        return level if math.isinf(level) else int(level)

    @property
    def steps(self) -> int:
        """Number of steps so far."""
        return self._ledger.steps

    def step(self, mu: float) -> None:
        """Record a mu-GDP step."""
        self._ledger.step([real("mu", mu, 0.0, allow_inf=True, towards=math.inf)])

    def epsilon(self, delta: float) -> float:
        """The epsilon at ``delta`` of what has been spent so far: certified for adaptive steps; see `IndividualGDPOdometer.epsilon`."""
        return float(self._ledger.epsilon(delta)[0])
