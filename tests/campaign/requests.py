"""Random compositions: every family of mechanisms, every adjacency, ordinary values and the ends of every range."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import hockeystick as hs
from hockeystick.mechanisms import Skellam

from .balls import bits_for

ADJACENCIES = ("add", "remove", "add_or_remove", "replace_one", "zero_out")


@dataclass(frozen=True)
class Request:
    """What to account for, and a precision in bits at which its truth is known well."""

    family: str
    process: hs.mechanisms.Process
    adjacency: str
    bits: int


def request(rng: random.Random) -> Request:
    """A composition at random."""
    names, weights = zip(*((name, weight) for name, (weight, _) in FAMILIES.items()), strict=True)
    family = rng.choices(names, weights)[0]
    adjacency = rng.choice(ADJACENCIES)
    if family in ("fixed size",):
        adjacency = "replace_one"
    if family in ("given pairs", "random allocation") and adjacency == "replace_one":
        adjacency = "zero_out"
    process = FAMILIES[family][1](rng).as_process()
    bits = 420 if family == "random allocation" else bits_for(*_smallness(process))
    return Request(family, process, adjacency, bits)


def _smallness(process: hs.mechanisms.Process) -> list[float]:
    """Numbers whose sum with 1 must not lose them."""
    found = []
    for step, _ in process:
        values = [
            getattr(step, "sampling_probability", 1.0),
            *getattr(step, "probabilities", ()),
            *getattr(step, "weights", ()),
        ]
        inner = getattr(step, "mechanism", step)
        for part in (inner, *getattr(inner, "mechanisms", ()), *getattr(step, "mechanisms", ())):
            values += [
                getattr(part, "epsilon", 1.0),
                getattr(part, "delta", 1.0),
                getattr(part, "sampling_probability", 1.0),
                *getattr(part, "p", ()),
                *getattr(part, "q", ()),
                *(math.exp(-abs(loss)) for loss in getattr(part, "losses", ())),
            ]
            values += [
                1.0 / max(1.0, getattr(part, name, 1.0)) for name in ("scale", "noise_multiplier", "sigma")
            ]
        found += values
    return found


def log_uniform(rng: random.Random, low: float, high: float) -> float:
    """A number whose logarithm is uniform."""
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def probability(rng: random.Random) -> float:
    """A sampling probability."""
    kind = rng.random()
    if kind < 0.6:
        return log_uniform(rng, 1e-4, 1.0)
    if kind < 0.8:
        return rng.choice((0.5, 0.25, 0.1, 0.9, 0.99, 1.0 - 1e-9, 1.0 - 2.0**-53, 1.0, 0.0))
    if kind < 0.95:
        return log_uniform(rng, 1e-12, 1e-4)
    return log_uniform(rng, 1e-300, 1e-12)


def steps(rng: random.Random, most: int) -> int:
    """A number of steps, small ones often."""
    return rng.choice((1, 2, 3, int(log_uniform(rng, 1, most + 0.99)), int(log_uniform(rng, 1, most + 0.99))))


def _epsilon(rng: random.Random) -> float:
    return rng.choice(
        (log_uniform(rng, 1e-3, 5.0), log_uniform(rng, 1e-3, 5.0), log_uniform(rng, 1e-9, 1e3), 0.5, 1.0)
    )


def _small_delta(rng: random.Random) -> float:
    return rng.choice((log_uniform(rng, 1e-12, 0.5), log_uniform(rng, 1e-300, 1e-12), 1e-3, 1e-5))


def _declared(rng: random.Random) -> hs.Composable:
    return rng.choice(
        (
            lambda: hs.RandomizedResponse(_epsilon(rng), rng.choice((2, 2, 3, 10, 1000))),
            lambda: hs.RandomizedResponse(
                _epsilon(rng), rng.choice((2, 3, 5)), uniform_null=rng.random() < 0.5
            ),
            lambda: hs.PureDP(_epsilon(rng)),
            lambda: hs.ApproximateDP(_epsilon(rng), _small_delta(rng)),
            lambda: hs.ApproximateDP(rng.choice((0.0, _epsilon(rng))), rng.choice((0.0, _small_delta(rng)))),
        )
    )()


def _integer_laplace(rng: random.Random) -> hs.Composable:
    return hs.DiscreteLaplace(
        rng.choice((1.0, 2.0, log_uniform(rng, 0.05, 40.0), log_uniform(rng, 1e-3, 1e4))),
        rng.choice((1, 1, 1, 2, 3, 7)),
    )


def _integer_gaussian(rng: random.Random) -> hs.Composable:
    return hs.DiscreteGaussian(
        rng.choice((1.0, 0.5, log_uniform(rng, 0.1, 4.0), log_uniform(rng, 0.05, 20.0))),
        rng.choice((1, 1, 2, 5)),
    )


def _integer_skellam(rng: random.Random) -> hs.Composable:
    return Skellam(
        rng.choice((1.0, 0.5, log_uniform(rng, 0.05, 60.0), log_uniform(rng, 1e-9, 3e3))),
        rng.choice((1, 1, 2, 5)),
    )


def _sampled(rng: random.Random, mechanism: hs.Composable, share: float = 0.5) -> hs.Composable:
    plain = isinstance(mechanism, hs.RandomizedResponse) and mechanism.uniform_null
    if plain or rng.random() >= share:
        return mechanism
    return hs.PoissonSampled(mechanism, probability(rng))  # type: ignore[arg-type]


def _sigma(rng: random.Random) -> float:
    return rng.choice(
        (log_uniform(rng, 0.3, 10.0), log_uniform(rng, 0.3, 10.0), log_uniform(rng, 0.01, 1e6), 1.0)
    )


def _declarations(rng: random.Random) -> hs.Composable:
    mechanism = _sampled(rng, _declared(rng))
    return mechanism * rng.choice((steps(rng, 24), steps(rng, 24), steps(rng, 300)))


def _long(rng: random.Random) -> hs.Composable:
    count = int(log_uniform(rng, 500, 1e9))
    epsilon = log_uniform(rng, 1e-3, 30.0) / math.sqrt(count)
    mechanism = rng.choice(
        (
            lambda: hs.RandomizedResponse(epsilon),
            lambda: hs.PureDP(epsilon),
            lambda: hs.DiscreteLaplace(1.0 / epsilon),
            lambda: hs.ApproximateDP(epsilon, _small_delta(rng) / count),
        )
    )()
    if not isinstance(mechanism, hs.ApproximateDP) and rng.random() < 0.3:
        return hs.PoissonSampled(mechanism, max(probability(rng), 1e-6)) * count
    return mechanism * count


def _integers(rng: random.Random) -> hs.Composable:
    if rng.random() < 0.5:
        return _sampled(rng, _integer_laplace(rng)) * steps(rng, 60)
    return _sampled(rng, rng.choice((_integer_gaussian, _integer_skellam))(rng), 0.4) * rng.choice(
        (1, 1, 2, 3)
    )


def _wide_integers(rng: random.Random) -> hs.Composable:
    reach = rng.choice((1, 2, int(log_uniform(rng, 1, 1000))))
    if rng.random() < 0.5:
        return hs.DiscreteLaplace(log_uniform(rng, 0.05, 1e5), reach) * rng.choice((1, 1, 2))
    return hs.DiscreteGaussian(log_uniform(rng, 2.0, 3000.0), reach)


def _gaussians(rng: random.Random) -> hs.Composable:
    kind = rng.random()
    count = rng.choice((0, 1, steps(rng, 1000), int(log_uniform(rng, 1, 1e9)), 10**9))
    if kind < 0.6:
        sigma = rng.choice((_sigma(rng), math.sqrt(max(1, count)) * log_uniform(rng, 0.1, 20.0)))
        return hs.Gaussian(min(sigma, 1e6)) * count
    return (
        hs.Gaussian(_sigma(rng)) * steps(rng, 100) + hs.PoissonSampled(hs.Gaussian(_sigma(rng)), 1.0) * count
    )


def _sampled_once(rng: random.Random) -> hs.Composable:
    return hs.PoissonSampled(hs.Gaussian(_sigma(rng)), max(probability(rng), 1e-90)) * 1


def _laplace_once(rng: random.Random) -> hs.Composable:
    return (
        _sampled(rng, hs.Laplace(rng.choice((log_uniform(rng, 0.1, 20.0), log_uniform(rng, 1e-3, 1e6)))), 0.8)
        * 1
    )


def _laplace_sums(rng: random.Random) -> hs.Composable:
    return hs.Laplace(log_uniform(rng, 0.2, 50.0)) * rng.choice((1, 2, 3, 4, 6, 10))


def _random_sensitivity(rng: random.Random) -> hs.Composable:
    n = rng.choice((1, 2, 3, 4))
    sensitivities = [rng.choice((0.0, 1.0, 2.0, rng.uniform(0.0, 3.0))) for _ in range(n)]
    weights = [rng.choice((1, 2, 5, 8)) for _ in range(n)]
    shares = [w / 2.0**7 for w in weights]
    shares[0] += 1.0 - sum(shares)
    sigma = rng.choice((0.0, 1.0, log_uniform(rng, 0.2, 20.0), log_uniform(rng, 0.2, 20.0)))
    return hs.MixtureOfGaussians(sigma, sensitivities, shares) * rng.choice((1, 1, steps(rng, 40)))


def _noise_and_atoms(rng: random.Random) -> hs.Composable:
    atoms = _sampled(rng, _declared(rng)) * rng.choice((1, 2, 3, 5))
    last = rng.choice(
        (
            lambda: hs.Gaussian(_sigma(rng)) * steps(rng, 100),
            lambda: hs.PoissonSampled(hs.Gaussian(log_uniform(rng, 0.3, 10.0)), max(probability(rng), 1e-12)),
            lambda: hs.Laplace(log_uniform(rng, 0.3, 20.0)),
        )
    )()
    return atoms + last


def _different(rng: random.Random) -> hs.Composable:
    parts = [
        _sampled(rng, rng.choice((_declared, _declared, _integer_laplace))(rng)) * rng.choice((1, 2, 3, 4))
        for _ in range(rng.choice((2, 2, 3)))
    ]
    return sum(parts[1:], parts[0])


def _weights(rng: random.Random, n: int) -> list[float]:
    cuts = sorted(rng.sample(range(1, 1024), n - 1))
    return [(b - a) / 1024.0 for a, b in zip([0, *cuts], [*cuts, 1024], strict=True)]


def _choices(rng: random.Random, depth: int = 0) -> hs.Composable:
    n = rng.choice((2, 2, 3))

    def leaf() -> hs.Composable:
        if depth < 1 and rng.random() < 0.3:
            return _choices(rng, depth + 1)
        if rng.random() < 0.25:
            return rng.choice(
                (
                    hs.Gaussian(log_uniform(rng, 0.4, 8.0)),
                    hs.PoissonSampled(hs.Gaussian(log_uniform(rng, 0.4, 8.0)), 0.25),
                )
            )
        return _sampled(rng, rng.choice((_declared, _integer_laplace))(rng), 0.3)

    chosen = hs.Mixture([leaf() for _ in range(n)], _weights(rng, n))  # type: ignore[misc]
    if depth:
        return chosen
    wrapped: hs.Composable = chosen
    if chosen.is_unsampled() and rng.random() < 0.5:
        wrapped = hs.PoissonSampled(chosen, probability(rng))
    return wrapped * rng.choice((1, 1, 2, 3))


def _fixed_size(rng: random.Random) -> hs.Composable:
    mechanism = rng.choice(
        (
            lambda: hs.Gaussian(log_uniform(rng, 0.3, 20.0)),
            lambda: hs.Laplace(log_uniform(rng, 0.3, 20.0)),
            lambda: _declared(rng),
            lambda: _integer_laplace(rng),
        )
    )()
    dataset = rng.choice((1, 2, 10, 1000, int(log_uniform(rng, 1, 1e9))))
    if rng.random() < 0.6:
        scheme: hs.Composable = hs.WithoutReplacement(mechanism, rng.randint(1, dataset), dataset)  # type: ignore[arg-type]
    else:
        scheme = hs.WithReplacement(mechanism, rng.choice((1, 2, 3, 4)), dataset)  # type: ignore[arg-type]
    return scheme * rng.choice((1, 1, 2, steps(rng, 20)))


def _truncated(rng: random.Random) -> hs.Composable:
    n = rng.choice((2, 8, 50, 300))
    p = rng.choice((1.0, 0.5, log_uniform(rng, 1e-2, 1.0)))
    b = max(1, min(n, round(n * p * rng.choice((0.5, 1.0, 1.5, 2.5)))))
    return hs.TruncatedPoissonSampled(log_uniform(rng, 0.4, 10.0), n, p, b) * rng.choice((1, 1, 1, 10))


def _sampled_often(rng: random.Random) -> hs.Composable:
    mechanism = rng.choice(
        (
            lambda: hs.Gaussian(log_uniform(rng, 0.4, 8.0)),
            lambda: hs.Gaussian(log_uniform(rng, 0.4, 8.0)),
            lambda: hs.Laplace(log_uniform(rng, 0.4, 20.0)),
            lambda: hs.DiscreteGaussian(log_uniform(rng, 0.5, 5.0)),
        )
    )()
    count = rng.choice((2, 3, steps(rng, 1000)))
    extra = rng.choice((None, None, hs.Gaussian(20.0) * 3, hs.RandomizedResponse(0.1) * 5))
    process = hs.PoissonSampled(mechanism, log_uniform(rng, 1e-3, 1.0)) * count
    return process if extra is None else process + extra


def _masses(rng: random.Random, n: int) -> list[float]:
    spread = rng.choice((0.0, 1.0, 5.0, 30.0, 300.0))
    raw = [math.exp(-rng.expovariate(1.0) * spread) * (rng.random() > 0.1) for _ in range(n)]
    raw[rng.randrange(n)] += 1.0
    return [x / math.fsum(raw) for x in raw]


def _losses(rng: random.Random, n: int) -> hs.PrivacyLoss:
    size = log_uniform(rng, 1e-6, 30.0)
    losses = [size * rng.choice((rng.uniform(-1.0, 1.0), 0.0, 1.0)) for _ in range(n)]
    p = [w / 1024.0 for w in rng.choices(range(1, 1024 // n), k=n)]
    q = math.fsum(x * math.exp(-loss) for x, loss in zip(p, losses, strict=True))
    raised = [loss + max(0.0, math.log(q / 0.95)) for loss in losses]
    return hs.PrivacyLoss(raised, p, 1.0 - math.fsum(p))


def _given(rng: random.Random) -> hs.Composable:
    n = rng.choice((1, 2, 2, 3, 4, 6))
    p = _masses(rng, n)
    q = rng.choice((_masses(rng, n), _masses(rng, n), p[::-1]))
    step = _losses(rng, n) if rng.random() < 0.3 else hs.FinitePair(p, q)
    return _sampled(rng, step) * rng.choice((1, 1, 2, 3, steps(rng, 12)))


def _allocated(rng: random.Random) -> hs.Composable:
    sigma = rng.choice((log_uniform(rng, 0.3, 30.0), log_uniform(rng, 0.01, 1e8)))
    count = rng.choice((2, 2, 2, 3, int(log_uniform(rng, 1, 2000.99))))
    taken = rng.choice((1, 1, rng.randint(1, min(count, 4))))
    return hs.RandomAllocation(sigma, count, taken) * rng.choice((1, 1, 1, steps(rng, 100)))


def _limits(rng: random.Random) -> hs.Composable:
    return rng.choice(
        (
            lambda: _declared(rng) * 0,
            lambda: hs.Gaussian(0.0) * steps(rng, 10),
            lambda: hs.PoissonSampled(hs.Gaussian(0.0), probability(rng)) * steps(rng, 200),
            lambda: (
                hs.PoissonSampled(hs.ApproximateDP(_epsilon(rng), 1.0), probability(rng)) * steps(rng, 50)
            ),
            lambda: hs.PoissonSampled(hs.Gaussian(_sigma(rng)), 0.0) * steps(rng, 1000),
            lambda: hs.PoissonSampled(hs.Laplace(1e-101), probability(rng)) * steps(rng, 20),
        )
    )()


FAMILIES: dict[str, tuple[float, Callable[[random.Random], hs.Composable]]] = {
    "declared": (20, _declarations),
    "many steps of two losses": (8, _long),
    "integer noise": (10, _integers),
    "wide integer noise": (2, _wide_integers),
    "Gaussian": (10, _gaussians),
    "sampled Gaussian, once": (10, _sampled_once),
    "Laplace, once": (5, _laplace_once),
    "Laplace sums": (3, _laplace_sums),
    "random sensitivity": (4, _random_sensitivity),
    "noise and atoms": (8, _noise_and_atoms),
    "different finite steps": (8, _different),
    "released choices": (6, _choices),
    "fixed size": (6, _fixed_size),
    "truncated": (2, _truncated),
    "sampled often": (4, _sampled_often),
    "given pairs": (8, _given),
    "random allocation": (6, _allocated),
    "limits": (4, _limits),
}
