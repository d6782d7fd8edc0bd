"""From a composition and an adjacency to the dominating pairs the core composes.

"remove": P is the output on the data with the record, Q without it; "add" swaps the two.
"add_or_remove", "zero_out" and "replace_one" take the worse of both directions. A composition
takes all its steps in the same direction.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from . import _core, atoms
from .atoms import Array, Atoms, IntegerNoise
from .mechanisms import (
    ApproximateDP,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    Mechanism,
    PoissonSampled,
    Process,
    PureDP,
    RandomizedResponse,
    Step,
    WithoutReplacement,
    WithReplacement,
)
from .validation import ParameterError, choice

ADJACENCIES = ("add", "remove", "add_or_remove", "replace_one", "zero_out")

_HUGE = 1e100
"""A shift this many times the noise is treated as no noise at all: only epsilon > 1e199 is lost."""

_GROUPS = 256
"""Most group sizes that sampling with replacement keeps apart."""

_MOST_SIZES = 2**20
"""If more group sizes than this are likely (batch_size > 1e8 dataset_size), all count as the largest."""

_RARE = 1e-310
"""Group sizes rarer than this are treated as the largest one."""


@dataclass(frozen=True)
class _Pairs:
    """One step's pair in the direction "remove" and in the direction "add"."""

    remove: _core.Pair
    add: _core.Pair

    @property
    def symmetric(self) -> bool:
        return self.remove is self.add


def check(process: Process, adjacency: str) -> str:
    """Return ``adjacency`` if it is known and every step of ``process`` can be accounted under it.

    Raises ParameterError otherwise; cheap, so that errors come before any work.
    """
    choice("adjacency", adjacency, ADJACENCIES)
    for step, _ in process:
        if isinstance(step, (WithoutReplacement, WithReplacement)) and adjacency != "replace_one":
            raise ParameterError(
                f"adjacency = {adjacency!r}: must be 'replace_one' for {step!r}; a batch of fixed "
                "size is drawn from a dataset of fixed size, so no record can be added or removed"
            )
    return adjacency


def directions(process: Process, adjacency: str) -> list[list[tuple[_core.Pair, int]]]:
    """The compositions of dominating pairs whose worst delta(epsilon) is the guarantee.

    One list of (pair, count) per direction; an empty result means that nothing is released.
    Unsampled Gaussians merge into one pair N(mu, 1) against N(0, 1) with mu^2 = sum of count *
    (shift / sigma)^2, which is exact (Dong, Roth, Su 2022, Corollary 3.3).
    """
    check(process, adjacency)
    gaussians: list[tuple[float, int]] = []
    pairs: list[tuple[_Pairs, int]] = []
    for step, count in process:
        step = _without_limits(step)
        if _is_free(step):
            continue
        if isinstance(step, Gaussian) and step.noise_multiplier > 0.0:
            gaussians.append((_shift(adjacency) / step.noise_multiplier, count))
        else:
            pairs.append((_pairs(step, adjacency), count))
    if gaussians:
        pair = gaussian(root_sum_of_squares(gaussians))
        pairs.insert(0, (_Pairs(pair, pair), 1))
    if not pairs:
        return []
    remove = [(pair.remove, count) for pair, count in pairs]
    add = [(pair.add, count) for pair, count in pairs]
    if all(pair.symmetric for pair, _ in pairs) or adjacency == "remove":
        return [remove]
    return [add] if adjacency == "add" else [remove, add]


def root_sum_of_squares(terms: list[tuple[float, int]]) -> float:
    """sqrt(sum of count * x^2) without overflow or underflow, independent of the order."""
    largest = max(x for x, _ in terms)
    if largest == 0.0 or math.isinf(largest):
        return largest
    return largest * math.sqrt(math.fsum(count * (x / largest) ** 2 for x, count in terms))


def gaussian(mu: float) -> _core.Pair:
    """N(mu, 1) against N(0, 1); no noise at all if mu is beyond _HUGE."""
    return _core.gaussian_pair(mu) if mu < _HUGE else discrete(atoms.revealing())


def discrete(pair: Atoms) -> _core.Pair:
    """Hand atoms to the core."""
    return _core.discrete_pair(pair.losses, pair.p, pair.q, p_infinity=pair.p_infinity, spacing=pair.spacing)


def unsampled(step: Step) -> Mechanism:
    """The mechanism inside a sampling scheme, or the mechanism itself."""
    mechanism = step if isinstance(step, Mechanism) else getattr(step, "mechanism", None)
    assert isinstance(mechanism, Mechanism)
    return mechanism


def _shift(adjacency: str) -> int:
    """How far one record moves a sum of sensitivity 1: replacing is removing and adding."""
    return 2 if adjacency == "replace_one" else 1


def _without_limits(step: Step) -> Step:
    """Resolve the sampling schemes that always or never see the record."""
    if isinstance(step, PoissonSampled) and step.sampling_probability == 1.0:
        return step.mechanism
    if isinstance(step, WithoutReplacement) and step.batch_size == step.dataset_size and step.pair == "sound":
        return step.mechanism
    return step


def _is_free(step: Step) -> bool:
    """Whether the step's output does not depend on the record at all."""
    if isinstance(step, PoissonSampled) and step.sampling_probability == 0.0:
        return True
    mechanism = unsampled(step)
    if isinstance(mechanism, ApproximateDP):
        return mechanism.epsilon == mechanism.delta == 0.0
    return isinstance(mechanism, (PureDP, RandomizedResponse)) and mechanism.epsilon == 0.0


def _pairs(step: Step, adjacency: str) -> _Pairs:
    if isinstance(step, PoissonSampled):
        q = step.sampling_probability
        if adjacency == "replace_one":
            pair = _poisson_replace_one(step.mechanism, q)
            return _Pairs(pair, pair)
        # Every base pair here is symmetric, so the reversed one is itself.
        base = base_pair(step.mechanism, 1)
        return _Pairs(_core.sampled_pair(base, q, "remove"), _core.sampled_pair(base, q, "add"))
    if isinstance(step, RandomizedResponse) and step.uniform_null and adjacency == "zero_out":
        forth, back = atoms.response_against_uniform(step.epsilon, step.num_categories)
        return _Pairs(discrete(forth), discrete(back))
    if isinstance(step, WithoutReplacement):
        pair = _without_replacement(step)
    elif isinstance(step, WithReplacement):
        pair = _with_replacement(step)
    else:
        pair = base_pair(unsampled(step), _shift(adjacency))
    return _Pairs(pair, pair)


@functools.lru_cache(maxsize=16)
def base_pair(mechanism: Mechanism, shift: int, group: int = 1) -> _core.Pair:
    """Symmetric dominating pair of an unsampled mechanism.

    Noise on a numeric query: the query moves by ``shift`` times its add/remove sensitivity.
    Declared guarantees: ``group`` records change, so epsilon becomes group * epsilon (and delta
    becomes delta (e^{group eps} - 1) / (e^eps - 1)).
    """
    if isinstance(mechanism, Gaussian):
        sigma = mechanism.noise_multiplier
        return gaussian(shift / sigma if sigma > 0.0 else math.inf)
    if isinstance(mechanism, Laplace):
        epsilon = shift / mechanism.scale
        return _core.laplace_pair(epsilon) if epsilon < _HUGE else discrete(atoms.revealing())
    if isinstance(mechanism, (DiscreteLaplace, DiscreteGaussian)):
        noise, reach = _integer_noise(mechanism), shift * mechanism.sensitivity
        huge = reach / noise.scale >= _HUGE
        return discrete(atoms.revealing() if huge else atoms.shifted(noise, reach))
    if isinstance(mechanism, RandomizedResponse) and group == 1:
        return discrete(atoms.randomized_response(mechanism.epsilon, mechanism.num_categories))
    if isinstance(mechanism, (RandomizedResponse, PureDP)):
        return discrete(atoms.randomized_response(group * mechanism.epsilon))
    assert isinstance(mechanism, ApproximateDP)
    return discrete(_group_of_approximate(mechanism, group))


def _group_of_approximate(mechanism: ApproximateDP, group: int) -> Atoms:
    epsilon, delta = mechanism.epsilon, mechanism.delta
    if group > 1 and delta > 0.0:
        if epsilon == 0.0:
            delta = min(1.0, group * delta)
        else:
            growth = (group - 1) * epsilon + math.log(math.expm1(-group * epsilon) / math.expm1(-epsilon))
            delta = math.exp(min(0.0, math.log(delta) + growth))
    if delta == 1.0:
        return atoms.revealing()
    if epsilon == 0.0:
        return atoms.revealing(delta)
    return atoms.randomized_response(group * epsilon, 2, delta)


def _integer_noise(mechanism: DiscreteLaplace | DiscreteGaussian) -> IntegerNoise:
    if isinstance(mechanism, DiscreteLaplace):
        return IntegerNoise("laplace", mechanism.scale)
    return IntegerNoise("gaussian", mechanism.sigma)


def _poisson_replace_one(mechanism: Mechanism, q: float) -> _core.Pair:
    """Poisson sampling, one record replaced (docs/replacement.md, section 5).

    Numeric noise: (1-q) N(0) + q N(1) against (1-q) N(0) + q N(-1). Otherwise advanced joint
    convexity, which needs the guarantee under add/remove and replace-one alike.
    """
    if isinstance(mechanism, (Gaussian, Laplace)):
        kind, scale = (
            ("gaussian", mechanism.noise_multiplier)
            if isinstance(mechanism, Gaussian)
            else ("laplace", mechanism.scale)
        )
        if scale * _HUGE > 1.0:
            weights = [1.0 - q, q]
            return _core.location_mixture_pair(kind, scale, [0.0, 1.0], weights, [0.0, -1.0], weights)
    elif isinstance(mechanism, (DiscreteLaplace, DiscreteGaussian)):
        noise = _integer_noise(mechanism)
        if mechanism.sensitivity / noise.scale < _HUGE:
            return discrete(atoms.sampled_replace_one(noise, mechanism.sensitivity, q))
    return _core.sampled_pair(base_pair(mechanism, 2), q, "replace_one")


def _without_replacement(step: WithoutReplacement) -> _core.Pair:
    """Balle, Barthe, Gaboardi 2018, Theorem 9: advanced joint convexity with gamma = m/n."""
    gamma = step.batch_size / step.dataset_size
    sigma = getattr(step.mechanism, "noise_multiplier", 0.0)
    if step.pair == "koskela2020" and sigma > 0.0:
        weights = [1.0 - gamma, gamma]
        return _core.location_mixture_pair("gaussian", sigma, [0.0, 1.0], weights, [0.0, -1.0], weights)
    return _core.sampled_pair(base_pair(step.mechanism, 2), gamma, "replace_one")


def _with_replacement(step: WithReplacement) -> _core.Pair:
    """Balle, Barthe, Gaboardi 2018, Theorem 10: a group of l records with a binomial weight."""
    m, n = step.batch_size, step.dataset_size
    gamma = -math.expm1(m * math.log1p(-1.0 / n)) if n > 1 else 1.0
    groups, weights = occurrences(m, n)
    sigma = getattr(step.mechanism, "noise_multiplier", 0.0)
    if step.pair == "koskela2020" and sigma > 0.0:
        shifts = [0.0, *map(float, groups)]
        all_weights = [1.0 - gamma, *(gamma * weights)]
        return _core.location_mixture_pair(
            "gaussian", sigma, shifts, all_weights, [-s for s in shifts], all_weights
        )
    bases = [base_pair(step.mechanism, 2 * int(group), int(group)) for group in groups]
    base = bases[0] if len(bases) == 1 else _core.mixture_pair(bases, list(weights))
    return base if gamma == 1.0 else _core.sampled_pair(base, gamma, "replace_one")


def occurrences(batch_size: int, dataset_size: int) -> tuple[list[int], Array]:
    """How often a record enters a batch drawn with replacement, given that it does.

    Returns group sizes l >= 1 (increasing) and weights summing to 1: the law of l ~ Binomial(m,
    1/n) given l >= 1. Sizes beyond the point where their weight falls below 1e-310 are counted as
    m, and if more than 256 sizes remain, neighbours are counted as the largest of them; both make
    the result an upper bound, in bounded time and memory.
    """
    m, n = batch_size, dataset_size
    mean = m / n
    # Bernstein: the chance to exceed mean + x is below exp(-x^2 / (2 mean + 2x/3)) = 1e-313.
    high = min(m, math.ceil(mean + 241.0 + math.sqrt(241.0**2 + 1445.0 * mean)))
    low = max(1, math.floor(mean - math.sqrt(1445.0 * mean)))
    if n == 1 or m == 1 or high - low > _MOST_SIZES:
        return [m], np.ones(1)
    sizes = np.arange(low, high + 1, dtype=np.float64)
    # Relative to the first size, then normalised: no binomial coefficient is ever formed.
    ratios = np.log((m - sizes[:-1]) / (sizes[:-1] + 1.0)) - math.log(n - 1.0)
    log_weights = np.concatenate(([0.0], np.cumsum(ratios)))
    weights = np.exp(log_weights - log_weights.max())
    weights /= math.fsum(weights)
    keep = weights >= _RARE
    keep[: int(np.argmax(weights))] = True
    sizes, weights = sizes[keep], weights[keep]
    if len(sizes) > _GROUPS:
        chunk = math.ceil(len(sizes) / _GROUPS)
        starts = np.arange(0, len(sizes), chunk)
        weights = np.add.reduceat(weights, starts)
        sizes = sizes[np.minimum(starts + chunk, len(sizes)) - 1]
    groups = [int(size) for size in sizes]
    if groups[-1] < m:
        groups.append(m)
        weights = np.append(weights, _RARE)
    # Rounding must not leave a gap, which the core would put at loss +inf.
    weights[int(np.argmax(weights))] += 1.0 - math.fsum(weights)
    return groups, weights
