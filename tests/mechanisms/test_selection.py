"""Private selection: enumeration of finite mechanisms, published bounds, and the law of the repetitions."""

from __future__ import annotations

import itertools
import json
import math

import hockeystick as hs
import numpy as np
import pytest
from hockeystick._base.types import Array
from hockeystick.mechanisms.curves import Curve
from hockeystick.mechanisms.selection import PrivateSelection, Repetitions, selection_curve

LAWS = [
    Repetitions.fixed(1),
    Repetitions.fixed(4),
    Repetitions.poisson(3.0),
    Repetitions.geometric(5.0),
    Repetitions.geometric(60.0),
    Repetitions.logarithmic(6.0),
    Repetitions.negative_binomial(8.0, 0.5),
    Repetitions.negative_binomial(8.0, -0.3),
    Repetitions.negative_binomial(4.0, 3.0),
]
EPSILONS = (0.0, 0.2, 0.5, 1.0, 1.7, 2.5)


def probabilities(law: Repetitions) -> Array:
    """Pr[K = k], k = 0, 1, ..., from the definitions and no closed form of the library's."""
    if law.law == "fixed":
        return np.eye(int(law.mean) + 1)[-1]
    if law.law == "poisson":
        return np.array([math.exp(k * math.log(law.mean) - law.mean - math.lgamma(k + 1)) for k in range(80)])
    g, eta = law.gamma, law.shape
    weights, weight = [0.0], 1.0
    for k in range(1, int(40 / g) + 40):
        # prod_{l<k} (l + eta)/(l + 1), up to the factor l = 0, is a product from l = 1.
        weight = (1.0 - g) if k == 1 else weight * (1.0 - g) * (k - 1 + eta) / k
        weights.append(weight)
    return np.array(weights) / math.fsum(weights)


def best_of(p: Array, law: Array) -> Array:
    """The law of the best outcome, outcomes in the order of their ranks; "nothing" comes last, if K may be 0."""
    below = np.concatenate([[0.0], np.cumsum(p)])
    below[-1] = 1.0
    generating = np.array([float((law * u ** np.arange(len(law))).sum()) if u > 0 else law[0] for u in below])
    return np.append(np.diff(generating), law[0])


def worst(p: Array, q: Array, epsilon: float) -> float:
    """max over all events, both directions."""
    events = np.array(list(itertools.product([0.0, 1.0], repeat=len(p))))
    x = math.exp(epsilon)
    return float(max((events @ (p - x * q)).max(), (events @ (q - x * p)).max()))


def random_base(rng: np.random.Generator, trial: int) -> tuple[Array, Array]:
    size = int(rng.integers(2, 6))
    p = rng.dirichlet(np.ones(size) * (3.0, 0.5, 0.2)[trial % 3])
    q = p * np.exp(rng.normal(size=size) * 0.5) if trial % 2 else p * np.exp(rng.choice([-0.5, 0.5], size))
    if trial % 5 == 0:
        q[int(rng.integers(size))] *= 1e-3
    return p, q / q.sum()


@pytest.mark.sweep
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_no_finite_mechanism_does_worse(law: Repetitions) -> None:
    rng, exact, closest = np.random.default_rng(9), probabilities(law), 0.0
    nodes = np.linspace(0.0, 8.0, 200)
    for trial in range(5):
        p, q = random_base(rng, trial)
        base = Curve.of_symmetric(nodes, np.array([worst(p, q, epsilon) for epsilon in nodes]))
        bound = selection_curve(base, law)
        for order in list(itertools.permutations(range(len(p))))[:24]:
            ranked = best_of(p[list(order)], exact), best_of(q[list(order)], exact)
            for epsilon in EPSILONS:
                truth, most = worst(*ranked, epsilon), float(bound(np.array(epsilon)))
                assert truth <= most * (1.0 + 1e-12) + 1e-13
                closest = max(closest, truth / most if most > 1e-6 else 0.0)
    assert closest > 0.8


@pytest.mark.sweep
@pytest.mark.parametrize("law", [LAWS[1], LAWS[2], LAWS[3], LAWS[5], LAWS[7]], ids=str)
@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_worst_bases_of_a_declared_guarantee(law: Repetitions, delta: float) -> None:
    """All mechanisms of losses +-0.8 (and, with probability delta, of infinite ones) cut into ranked pieces; a search for the worst."""
    epsilon, rng, exact = 0.8, np.random.default_rng(3), probabilities(law)
    declared = hs.account(PrivateSelection(hs.ApproximateDP(epsilon, delta), law))
    truth_of_coin = math.exp(epsilon) / (1.0 + math.exp(epsilon))

    def base(shares: Array, order: Array) -> tuple[Array, Array]:
        high, low = shares[:3] / shares[:3].sum(), shares[3:6] / shares[3:6].sum()
        p = (1 - delta) * np.concatenate([high * truth_of_coin, low * (1 - truth_of_coin)])
        q = (1 - delta) * np.concatenate([high * (1 - truth_of_coin), low * truth_of_coin])
        p, q = np.append(p, [delta, 0.0]), np.append(q, [0.0, delta])
        return p[order], q[order]

    found = dict.fromkeys((0.3, 0.8, 1.2, 2.0), 0.0)
    for _ in range(200):
        p, q = base(np.exp(rng.normal(size=6) * 3.0), rng.permutation(8))
        first, second = best_of(p, exact), best_of(q, exact)
        for level in found:
            x = math.exp(level)
            truth = max(np.maximum(first - x * second, 0).sum(), np.maximum(second - x * first, 0).sum())
            found[level] = max(found[level], float(truth))
    for level, truth in found.items():
        assert truth <= declared.delta(level) * (1.0 + 1e-9) + 1e-13
    assert found[0.3] > 0.2 * declared.delta(0.3)


def test_never_above_what_is_published() -> None:
    """Koskela, Redberg and Wang 2024 (profiles) for truncated negative binomial laws, from the same curve."""
    base = hs.account(hs.Gaussian(3.0))
    for law in (LAWS[3], LAWS[4], LAWS[5], LAWS[6]):
        ours = hs.account(PrivateSelection(hs.Gaussian(3.0), law))
        for target in (1.0, 2.0, 3.0):
            published = min(
                law.mean
                * base.delta(
                    target
                    - (law.shape + 1.0)
                    * math.log(math.exp(e) + (1.0 - law.gamma) / law.gamma * base.delta(e))
                )
                for e in np.linspace(0.05, 3.0, 60).tolist()
            )
            assert ours.delta(target) <= published * 1.001
    rdp = pytest.importorskip("dp_accounting.rdp.rdp_privacy_accountant")
    event = pytest.importorskip("dp_accounting").dp_event
    for mean, shape in ((10.0, 1.0), (10.0, 0.0), (10.0, math.inf)):
        law = Repetitions.poisson(mean) if math.isinf(shape) else Repetitions.negative_binomial(mean, shape)
        theirs = rdp.RdpAccountant().compose(
            event.RepeatAndSelectDpEvent(event.GaussianDpEvent(3.0), mean, shape)
        )
        for delta in (1e-4, 1e-6):
            assert hs.account(PrivateSelection(hs.Gaussian(3.0), law)).epsilon(delta) <= theirs.get_epsilon(
                delta
            )


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_repetitions_have_the_law_they_declare(law: Repetitions) -> None:
    exact = probabilities(law)
    k = np.arange(len(exact))
    assert float(exact @ k) == pytest.approx(law.mean, rel=1e-9)
    u = np.array([0.1, 0.5, 0.9, 0.999])
    weights = [float((exact[1:] * k[1:] * v ** (k[1:] - 1)).sum()) for v in u]
    assert law.derivative(u, 1.0 - u) == pytest.approx(weights, rel=1e-9)
    drawn = np.bincount([law.draw(seed) for seed in range(1500)], minlength=5)[:5] / 1500.0
    head = np.append(exact, np.zeros(5))[:5]
    assert (np.abs(drawn - head) <= 5.0 * np.sqrt(head * (1.0 - head) / 1500.0) + 1e-12).all()


def test_selection_composes_is_stored_and_has_limits() -> None:
    step = hs.PoissonSampled(hs.Gaussian(1.0), 0.01) * 1000
    one = PrivateSelection(step, Repetitions.fixed(1))
    assert (
        hs.account(step).epsilon(1e-6)
        <= hs.account(one).epsilon(1e-6)
        <= hs.account(step).epsilon(1e-6) * 1.002
    )
    tuned = PrivateSelection(step, Repetitions.geometric(10.0))
    for adjacency in ("add", "remove", "zero_out", "replace_one"):
        both = hs.account(tuned + hs.Gaussian(10.0) * 5, adjacency)
        assert hs.account(tuned, adjacency).epsilon(1e-6) < both.epsilon(1e-6) < math.inf
    described = hs.mechanisms
    assert described.from_dict(json.loads(json.dumps(described.to_dict(tuned)))) == tuned
    assert "private selection" in hs.account(tuned).report(delta=1e-6).statement()
    pure = hs.account(PrivateSelection(hs.PureDP(0.1), Repetitions.fixed(10)))
    assert pure.epsilon(0.0) <= 1.0 + 1e-6
    leaky = hs.account(PrivateSelection(hs.Gaussian(0.0), Repetitions.poisson(2.0)))
    assert leaky.epsilon(0.5) == math.inf
    assert hs.account(PrivateSelection(hs.Gaussian(1.0) * 0, Repetitions.poisson(2.0))).epsilon(0.0) == 0.0
    with pytest.raises(hs.ParameterTypeError, match="repetitions"):
        PrivateSelection(step, 3)  # type: ignore[arg-type]
    with pytest.raises(hs.ParameterError, match="mean"):
        Repetitions.geometric(0.5)
    with pytest.raises(hs.ParameterError, match="shape"):
        Repetitions.negative_binomial(2.0, -1.0)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "law",
    [Repetitions.fixed(10**6), Repetitions.poisson(1e6), Repetitions.poisson(1e-9), Repetitions.geometric(1e6),
     Repetitions.negative_binomial(1e6, -0.999), Repetitions.negative_binomial(1e3, 1e3), Repetitions.logarithmic(1.0)],
    ids=str,
)  # fmt: skip
def test_extremes_are_finite_and_ordered(law: Repetitions) -> None:
    base = Curve.of_symmetric(np.array([0.0, 0.1, 0.5]), np.array([0.05, 1e-3, 1e-9]))
    bound = selection_curve(base, law)
    values = bound(np.linspace(0.0, 10.0, 50))
    assert np.isfinite(values).all()
    assert values[0] >= base(np.array(0.0)) * min(1.0, law.mean) * 0.999
    assert (np.diff(values) <= 0.0).all()


def test_the_exponential_mechanism_on_real_scores() -> None:
    rng, closest = np.random.default_rng(2), 0.0
    for epsilon in (0.3, 1.5):
        profile = hs.account(hs.mechanisms.ExponentialMechanism(epsilon))
        twice = hs.account(hs.mechanisms.ExponentialMechanism(epsilon) * 2)
        for _ in range(300):
            size = int(rng.integers(2, 9))
            scores = rng.normal(size=size) * 2.0
            moved = scores + (
                rng.choice([-1.0, 1.0], size) if rng.random() < 0.7 else rng.uniform(-1, 1, size)
            )
            p, q = (np.exp(0.5 * epsilon * s) / np.exp(0.5 * epsilon * s).sum() for s in (scores, moved))
            for level in (0.0, 0.3 * epsilon, 0.7 * epsilon):
                truth, most = worst(p, q, level), profile.delta(level)
                assert truth <= most * (1.0 + 1e-12)
                closest = max(closest, truth / most)
                pairs = np.outer(p, p).ravel() - math.exp(level) * np.outer(q, q).ravel()
                assert np.maximum(pairs, 0.0).sum() <= twice.delta(level) * (1.0 + 1e-9)
    assert closest > 0.9


@pytest.mark.parametrize(
    ("mean", "shape"), [(1e6, 1e3), (1e5, 200.0), (1e4, 500.0), (3e4, 68.0), (3e4, 78.0)]
)
def test_laws_that_never_are_zero_are_drawn(mean: float, shape: float) -> None:
    """gamma^-shape overflows; moments of the definition: Var K = mean (1 + mean/shape), but for what truncation changes."""
    law = Repetitions.negative_binomial(mean, shape)
    drawn = np.array([law.draw(seed) for seed in range(40)], dtype=float)
    deviation = math.sqrt(mean * (1.0 + mean / shape))
    assert abs(drawn.mean() - mean) < 5.0 * deviation / math.sqrt(40.0)
    assert 0.5 * deviation < drawn.std() < 1.7 * deviation


@pytest.mark.sweep
@pytest.mark.parametrize("epsilon", [200.0, 350.0, 580.0, 590.0, 800.0])
@pytest.mark.parametrize("mean", [1.3, 300.0])
def test_bases_that_hide_nothing_have_answers(epsilon: float, mean: float) -> None:
    """The event that the better of two outcomes is released: 1 - e^(-mean p) in one world, 1 - e^(-mean q) in the other."""
    profile = hs.account(PrivateSelection(hs.PureDP(epsilon), Repetitions.poisson(mean)))
    p, q = 1.0 / (1.0 + math.exp(-epsilon)), 1.0 / (1.0 + math.exp(epsilon)) if epsilon < 700.0 else 0.0
    for level in (0.0, 0.5 * epsilon, 0.99 * epsilon):
        truth = -math.expm1(-mean * p) + math.expm1(-mean * q) * (math.exp(level) if q > 0.0 else 0.0)
        assert truth <= profile.delta_bounds(level).upper <= 1.0
    for delta in (1e-200, 1e-5):
        assert profile.epsilon(delta) >= min(epsilon, 600.0) * (1.0 - 1e-12)


@pytest.mark.sweep
@pytest.mark.parametrize("noise", [1e9, 1e100, 1e200, 1e300])
def test_bases_that_hide_all_have_answers(noise: float) -> None:
    profile = hs.account(PrivateSelection(hs.Gaussian(noise), Repetitions.poisson(3.0)))
    assert 0.0 <= profile.delta(0.0) < 0.01
    assert 0.0 <= profile.epsilon(1e-5) < 0.01
    group = hs.account(hs.mechanisms.Group(hs.Gaussian(noise), 3))
    assert 0.0 <= group.delta(0.0) < 2.0 / noise + 1e-14


def test_outcomes_that_are_hardly_ever_the_best_are_not_lost() -> None:
    """Their mass is less than any double; the lowest of 100 draws has the largest loss of all."""
    p, q = (5.584975291360226e-08, 0.9999999441502472), (7.289895797680017e-08, 0.999999927101042)
    for count in (100, 1000):
        tuned = hs.account(PrivateSelection(hs.FinitePair(p, q), Repetitions.fixed(count)))
        lowest = count * math.log(q[0] / p[0])
        assert lowest * (1.0 - 1e-9) <= tuned.epsilon(0.0) <= lowest * (1.0 + 1e-9)
        assert tuned.delta(0.5 * lowest) > 0.0
    for law in (Repetitions.poisson(1e-310), Repetitions.poisson(5e-324)):
        for noise in (1.0, 1e10):
            rare = hs.account(PrivateSelection(hs.Gaussian(noise), law))
            assert rare.epsilon(0.0) == math.inf
            assert rare.delta(0.0) > 0.0


@pytest.mark.parametrize(
    "law", [Repetitions.fixed(2), Repetitions.geometric(3.0), Repetitions.poisson(2.0)], ids=str
)
def test_the_least_infinite_loss_is_one(law: Repetitions) -> None:
    tuned = hs.account(PrivateSelection(hs.ApproximateDP(0.9, 5e-324), law))
    assert tuned.epsilon(0.0) == math.inf
    assert tuned.delta(10.0) > 0.0


@pytest.mark.sweep
@pytest.mark.parametrize("epsilon", [1e-6, 1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_pure_guarantees_stay_pure(law: Repetitions, epsilon: float) -> None:
    """(2 + shape) epsilon (Papernot and Steinke 2022), at every delta, however narrow the bins of ranks are beside it."""
    tuned = hs.account(PrivateSelection(hs.PureDP(epsilon), law))
    most = {
        "fixed": law.mean * epsilon,
        "poisson": epsilon + law.mean * -math.expm1(-epsilon),
        "negative_binomial": (2.0 + law.shape) * epsilon,
    }[law.law]
    for delta in (0.0, 1e-12, 1e-7):
        assert tuned.epsilon(delta) <= most * (1.0 + 1e-9)
    assert tuned.delta(0.0) <= math.tanh(0.5 * most) * (1.0 + 1e-6)


@pytest.mark.parametrize("epsilon", [5e-324, 1e-323, 1e-320, 1e-310, 1e-301])
def test_the_smallest_exponential_mechanism_has_its_range(epsilon: float) -> None:
    spent = hs.account(hs.mechanisms.ExponentialMechanism(epsilon)).epsilon(0.0)
    assert epsilon <= spent <= epsilon * (1.0 + 1e-9)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1 / 3, 0.7])
def test_the_exponential_mechanism_is_on_a_lattice(epsilon: float) -> None:
    """What compositions lose does not depend on the accuracy that is asked for: it was 2e-5, and took long to be less."""
    deltas = [
        hs.account(hs.mechanisms.ExponentialMechanism(epsilon) * 20, accuracy=accuracy).delta(3.0 * epsilon)
        for accuracy in (1e-3, 1e-9)
    ]
    assert deltas[0] <= deltas[1] * (1.0 + 1e-9)


def test_largest_losses_of_selection_are_those_of_papernot_and_steinke() -> None:
    law = hs.Repetitions
    for repetitions, factor in (
        (law.geometric(5.0), 3.0),
        (law.logarithmic(5.0), 2.0),
        (law.negative_binomial(5.0, 0.5), 2.5),
        (law.fixed(4), 4.0),
    ):
        assert repetitions.largest_loss(0.7) == pytest.approx(0.7 * factor, rel=1e-12)
    assert law.poisson(5.0).largest_loss(0.7) == pytest.approx(0.7 + 5.0 * (1.0 - math.exp(-0.7)), rel=1e-12)
