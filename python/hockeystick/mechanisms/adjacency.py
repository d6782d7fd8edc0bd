"""From a composition and an adjacency to the dominating pairs the core composes.

"remove": P is the output on the data with the record, Q without it; "add" swaps the two.
"add_or_remove", "zero_out" and "replace_one" take the worse of both directions. A composition
takes all its steps in the same direction.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import numpy as np

from .. import _core
from .._base.arrays import Array
from .._base.validation import ParameterError, choice
from . import atoms, truncated
from .atoms import Atoms, IntegerNoise
from .core_pairs import (
    HUGE,
    Pairs,
    both,
    bracket,
    discrete,
    gaussian,
    location_mixture,
    mixture,
    revealing,
    sampled,
)
from .descriptions import (
    MOST_SENSITIVITY,
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
from .mixtures import Mixture, MixtureOfGaussians
from .truncated import TruncatedPoissonSampled

ADJACENCIES = ("add", "remove", "add_or_remove", "replace_one", "zero_out")

_GROUPS = 256
"""Most group sizes that sampling with replacement keeps apart."""

_MOST_SIZES = 2**20
"""If more group sizes than this are likely (batch_size > 1e8 dataset_size), all count as the largest."""

_RARE = 1e-310
"""Group sizes rarer than this are treated as the largest one."""


def check(process: Process, adjacency: str) -> str:
    """Return ``adjacency`` if it is known and every step of ``process`` can be accounted under it.

    Raises ParameterError otherwise; cheap, so that errors come before any work.
    """
    choice("adjacency", adjacency, ADJACENCIES)
    for step in (part for whole, _ in process for part in alternatives(whole)):
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
    pairs: list[tuple[Pairs, int]] = []
    for step, count in process:
        step = _without_limits(step)
        if _is_free(step):
            continue
        if isinstance(step, Gaussian) and step.noise_multiplier > 0.0:
            gaussians.append((_shift(adjacency) / step.noise_multiplier, count))
        else:
            pairs.append((_pairs(step, adjacency), count))
    if gaussians:
        pairs.insert(0, (both(gaussian(root_sum_of_squares(gaussians))), 1))
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


def unsampled(step: Step) -> Mechanism:
    """The mechanism inside a sampling scheme, or the mechanism itself; of no mixture."""
    mechanism = step if isinstance(step, Mechanism) else getattr(step, "mechanism", None)
    assert isinstance(mechanism, Mechanism)
    return mechanism


def alternatives(step: Step) -> list[Step]:
    """The steps that one use of ``step`` may turn out to be, none of them a choice any more."""
    step = _choice_first(step)
    if not isinstance(step, Mixture):
        return [step]
    return [leaf for part in step.mechanisms for leaf in alternatives(part)]


def _choice_first(step: Step) -> Step:
    """A sampled choice is a choice between sampled mechanisms."""
    inner = getattr(step, "mechanism", None)
    if not isinstance(inner, Mixture):
        return step
    schemes: list[Step] = [replace(step, mechanism=part) for part in inner.mechanisms]  # type: ignore[type-var]
    return Mixture(tuple(schemes), inner.weights)


def _shift(adjacency: str) -> int:
    """How far one record moves a sum of sensitivity 1: replacing is removing and adding."""
    return 2 if adjacency == "replace_one" else 1


def _without_limits(step: Step) -> Step:
    """Resolve the sampling schemes that always see the record, that cut nothing, or that wrap a choice."""
    step = _choice_first(step)
    if isinstance(step, PoissonSampled) and step.sampling_probability == 1.0:
        return _without_limits(step.mechanism)
    if isinstance(step, WithoutReplacement) and step.batch_size == step.dataset_size and step.pair == "sound":
        return step.mechanism
    if isinstance(step, TruncatedPoissonSampled) and step.truncation.full_high == 0.0:
        return _without_limits(PoissonSampled(step.mechanism, step.sampling_probability))
    return step


def _is_free(step: Step) -> bool:
    """Whether the step's output does not depend on the record at all."""
    if isinstance(step, Mixture):
        chosen = zip(step.mechanisms, step.weights, strict=True)
        return all(_is_free(_without_limits(part)) for part, weight in chosen if weight > 0.0)
    if isinstance(step, MixtureOfGaussians):
        return step.largest == 0.0
    if isinstance(step, (PoissonSampled, TruncatedPoissonSampled)) and step.sampling_probability == 0.0:
        return True
    mechanism = unsampled(step)
    if isinstance(mechanism, ApproximateDP):
        return mechanism.epsilon == mechanism.delta == 0.0
    return isinstance(mechanism, (PureDP, RandomizedResponse)) and mechanism.epsilon == 0.0


def _pairs(step: Step, adjacency: str) -> Pairs:
    """The pairs of one step that is neither free nor without limits."""
    if isinstance(step, Mixture):
        return _mixture(step, adjacency)
    if isinstance(step, MixtureOfGaussians):
        return _mixture_of_gaussians(step, adjacency)
    if isinstance(step, TruncatedPoissonSampled):
        return truncated.pairs(step, adjacency)
    if isinstance(step, PoissonSampled):
        q = step.sampling_probability
        if adjacency == "replace_one":
            return both(_poisson_replace_one(unsampled(step), q))
        # Every base pair here is symmetric, so the reversed one is itself.
        return sampled(base_pair(unsampled(step), 1), q)
    if isinstance(step, RandomizedResponse) and step.uniform_null and adjacency == "zero_out":
        forth, back = atoms.response_against_uniform(step.epsilon, step.num_categories)
        return Pairs(discrete(forth), discrete(back))
    if isinstance(step, WithoutReplacement):
        pair = _without_replacement(step)
    elif isinstance(step, WithReplacement):
        pair = _with_replacement(step)
    else:
        pair = base_pair(unsampled(step), _shift(adjacency))
    return both(pair)


def _mixture(step: Mixture, adjacency: str) -> Pairs:
    pairs = []
    for mechanism in map(_without_limits, step.mechanisms):
        free = _is_free(mechanism)
        pairs.append(both(discrete(atoms.revealing(0.0))) if free else _pairs(mechanism, adjacency))
    weights = list(step.weights)
    # Rounding must not leave a gap, which the core would put at loss +inf.
    weights[weights.index(max(weights))] += max(0.0, 1.0 - math.fsum(weights))
    return mixture(pairs, weights)


def _mixture_of_gaussians(step: MixtureOfGaussians, adjacency: str) -> Pairs:
    sigma = step.noise_multiplier
    law: dict[float, float] = {}
    for shift, weight in zip(step.sensitivities, step.probabilities, strict=True):
        if weight > 0.0:
            law[shift] = law.get(shift, 0.0) + weight
    if not sigma * HUGE > max(law):  # no noise: whether the record counts at all is all that hides it
        counts, revealed = min(1.0, math.fsum(w for s, w in law.items() if s > 0.0)), gaussian(math.inf)
        if adjacency == "replace_one":
            joined = _core.sampled_pair(revealed, counts, "replace_one")
            nothing = discrete(atoms.revealing(0.0))
            return both(joined if sigma == 0.0 else _core.bracket_pair(nothing, joined))
        if sigma > 0.0:
            least = min(s for s in law if s > 0.0) / sigma
            revealed = revealing(_core.gaussian_pair(min(HUGE, least)), least)
        return sampled(revealed, counts)
    return location_mixture(sigma, law, law if adjacency == "replace_one" else {0.0: 1.0})


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
        return _core.laplace_pair(epsilon) if epsilon < HUGE else revealing(_core.laplace_pair(HUGE), epsilon)
    if isinstance(mechanism, (DiscreteLaplace, DiscreteGaussian)):
        noise, reach = _integer_noise(mechanism), shift * mechanism.sensitivity
        if reach > 2 * MOST_SENSITIVITY:
            raise ParameterError(
                f"sensitivity = {mechanism.sensitivity}: must be at most {MOST_SENSITIVITY} for all records together that "
                f"a batch may hold twice; here it is {reach}"
            )
        if reach / noise.scale >= HUGE:
            return revealing(discrete(atoms.shown(HUGE)), math.inf if noise.scale == 0.0 else HUGE)
        return bracket(atoms.shifted(noise, reach))
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
    """Poisson sampling, one record replaced (docs/mechanisms/replacement.md, section 5).

    Numeric noise: (1-q) N(0) + q N(1) against (1-q) N(0) + q N(-1). Otherwise advanced joint
    convexity, which needs the guarantee under add/remove and replace-one alike.
    """
    if isinstance(mechanism, (Gaussian, Laplace)):
        kind, scale = (
            ("gaussian", mechanism.noise_multiplier)
            if isinstance(mechanism, Gaussian)
            else ("laplace", mechanism.scale)
        )
        if scale * HUGE > 1.0:
            weights = [1.0 - q, q]
            return _core.location_mixture_pair(kind, scale, [0.0, 1.0], weights, [0.0, -1.0], weights)
    elif isinstance(mechanism, (DiscreteLaplace, DiscreteGaussian)):
        noise = _integer_noise(mechanism)
        if mechanism.sensitivity / noise.scale < HUGE:
            return bracket(atoms.sampled_replace_one(noise, mechanism.sensitivity, q))
    return _core.sampled_pair(base_pair(mechanism, 2), q, "replace_one")


def _without_replacement(step: WithoutReplacement) -> _core.Pair:
    """Balle, Barthe, Gaboardi 2018, Theorem 9: advanced joint convexity with gamma = m/n."""
    gamma = step.batch_size / step.dataset_size
    sigma = getattr(step.mechanism, "noise_multiplier", 0.0)
    if step.pair == "koskela2020" and sigma > 0.0:
        weights = [1.0 - gamma, gamma]
        return _core.location_mixture_pair("gaussian", sigma, [0.0, 1.0], weights, [0.0, -1.0], weights)
    return _core.sampled_pair(base_pair(unsampled(step), 2), gamma, "replace_one")


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
    bases = [base_pair(unsampled(step), 2 * int(group), int(group)) for group in groups]
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
