"""The pairs handed to the core, against direct formulas on the integers and against each other."""

import math
from fractions import Fraction

import hockeystick as hs
import numpy as np
import pytest
from hockeystick.mechanisms import adjacency, atoms, sampled
from hockeystick.mechanisms.atoms import Atoms, IntegerNoise
from hockeystick.mechanisms.steps import base_pair
from hockeystick.verify.check import verify
from scipy import integrate, stats

EPSILONS = [-3.0, -0.7, 0.0, 0.2, 1.0, 2.5]


def mass(noise: IntegerNoise, t: np.ndarray) -> np.ndarray:
    """Pr[noise = t], normalised by brute force."""
    wide = np.arange(-4000, 4001)

    def weight(x: np.ndarray) -> np.ndarray:
        if noise.kind == "laplace":
            return np.exp(-np.abs(x) / noise.scale)
        return np.exp(-0.5 * (x / noise.scale) ** 2)

    return np.asarray(weight(t) / math.fsum(weight(wide)))


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return math.fsum(np.maximum(p - math.exp(epsilon) * q, 0.0))


def delta(pair: Atoms, epsilon: float) -> float:
    terms = pair.p * np.maximum(0.0, -np.expm1(np.minimum(epsilon - pair.losses, 1.0)))
    return math.fsum(terms) + pair.p_infinity


def check_consistent(pair: Atoms) -> None:
    assert np.all(np.diff(pair.losses) > 0.0)
    assert math.fsum(pair.p) + pair.p_infinity == pytest.approx(1.0, rel=1e-12)
    assert math.fsum(pair.q) <= 1.0 + 1e-12
    visible = (pair.p > 1e-290) & (pair.q > 1e-290)
    assert np.allclose(np.log(pair.p[visible] / pair.q[visible]), pair.losses[visible], rtol=1e-9, atol=1e-12)
    if pair.spacing:
        multiples = pair.losses / pair.spacing
        assert np.allclose(multiples, np.rint(multiples), rtol=1e-12, atol=0.0)


NOISES = [IntegerNoise(kind, scale) for kind in ("laplace", "gaussian") for scale in (0.3, 1.0, 7.3, 60.0)]


@pytest.mark.parametrize("noise", NOISES, ids=str)
@pytest.mark.parametrize("shift", [1, 2, 5])
def test_shifted_integer_noise(noise: IntegerNoise, shift: int) -> None:
    pair = atoms.shifted(noise, shift).upper
    check_consistent(pair)
    assert pair.spacing > 0.0
    t = np.arange(-3000, 3001)
    for epsilon in EPSILONS:
        direct = hockey_stick(mass(noise, t - shift), mass(noise, t), epsilon)
        assert delta(pair, epsilon) == pytest.approx(direct, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("noise", NOISES, ids=str)
@pytest.mark.parametrize("q", [1e-4, 0.3, 0.999])
@pytest.mark.parametrize("shift", [1, 3])
def test_sampled_integer_noise_under_replacement(noise: IntegerNoise, q: float, shift: int) -> None:
    pair = atoms.sampled_replace_one(noise, shift, q).upper
    check_consistent(pair)
    t = np.arange(-3000, 3001)
    centre = (1.0 - q) * mass(noise, t)
    p, q_masses = centre + q * mass(noise, t - shift), centre + q * mass(noise, t + shift)
    for epsilon in EPSILONS:
        direct = hockey_stick(p, q_masses, epsilon)
        # What is left of two nearly equal masses is right relative to the masses.
        assert delta(pair, epsilon) == pytest.approx(direct, rel=1e-8, abs=1e-14)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("q", [1.0, 0.01])
def test_grouped_integers_dominate_and_are_close(
    kind: str, q: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise, shift = IntegerNoise(kind, 400.0), 1 if kind == "gaussian" else 4000

    def pair() -> Atoms:
        if q == 1.0:
            return atoms.shifted(noise, shift).upper
        return atoms.sampled_replace_one(noise, shift, q).upper

    exact = pair()
    monkeypatch.setattr(atoms, "MAX_ATOMS", 2**10)
    grouped = pair()
    check_consistent(grouped)
    assert len(grouped.losses) < 1100 < 3 * len(exact.losses)
    scale = float(np.sqrt(np.sum(exact.p * exact.losses**2)))
    for epsilon in (-scale, 0.0, 0.5 * scale, scale, 2.0 * scale):
        truth = delta(exact, epsilon)
        assert truth * (1 - 1e-11) <= delta(grouped, epsilon) <= truth * (1 + 1e-2) + 1e-300


@pytest.mark.parametrize("sigma", [1e4, 1e6, 1e12])
def test_huge_discrete_gaussians_are_nearly_continuous(sigma: float) -> None:
    pair = atoms.shifted(IntegerNoise("gaussian", sigma), 1).upper
    assert len(pair.losses) <= atoms.MAX_ATOMS + 2
    mean, second = np.sum(pair.p * pair.losses), np.sum(pair.p * pair.losses**2)
    assert second == pytest.approx(sigma**-2, rel=1e-5)
    assert delta(pair, 0.0) == pytest.approx(2 * stats.norm.cdf(0.5 / sigma) - 1, rel=1e-5)
    assert abs(mean) < 1e-3 / sigma


def test_randomized_response() -> None:
    epsilon, k = 1.3, 5
    pair = atoms.randomized_response(epsilon, k)
    check_consistent(pair)
    r = 1.0 / (math.exp(epsilon) + k - 1)
    assert np.allclose(pair.p, [r, (k - 2) * r, math.exp(epsilon) * r], rtol=1e-14)
    assert np.allclose(pair.losses, [-epsilon, 0.0, epsilon], rtol=0.0)


def test_approximate_dp_meets_its_declaration_exactly() -> None:
    pair = atoms.randomized_response(0.7, 2, 1e-6)
    check_consistent(pair)
    assert delta(pair, 0.7) == pytest.approx(1e-6, rel=1e-12)


def occurrences(batch_size: int, dataset_size: int) -> tuple[list[int], np.ndarray]:
    """How often a record enters a batch drawn with replacement, given that it does, counted from above."""
    law = sampled.law_of(sampled.binomial_cells(batch_size, Fraction(1, dataset_size)), above=True)
    weights = np.array([weight for size, weight in law.items() if size])
    return [size for size in law if size], weights / math.fsum(weights)


@pytest.mark.parametrize(("m", "n"), [(1, 10), (5, 2), (30, 3000), (256, 60_000), (10**9, 10**9), (7, 1)])
def test_occurrences_follow_the_binomial_law(m: int, n: int) -> None:
    groups, weights = occurrences(m, n)
    assert groups == sorted(set(groups))
    assert groups[-1] == m
    assert len(groups) <= 258
    assert math.fsum(weights) == pytest.approx(1.0, rel=1e-15)
    gamma = -math.expm1(m * math.log1p(-1.0 / n)) if n > 1 else 1.0
    for group, weight in zip(groups[:5], weights[:5], strict=False):
        assert weight == pytest.approx(stats.binom.pmf(group, m, 1.0 / n) / gamma, rel=1e-6)


def test_absurdly_many_occurrences_are_all_counted_as_most() -> None:
    groups, weights = occurrences(10**15, 2)
    assert (groups[-1], weights[-1]) == (10**15, 1.0)


def binomial_cdf(trials: int, probability: float, at: np.ndarray) -> np.ndarray:
    """From ratios of neighbouring masses: SciPy's has too few digits at a billion trials before version 1.12."""
    middle, width = trials * probability, 45.0 * math.sqrt(trials * probability) + 50.0
    k = np.arange(max(0.0, math.floor(middle - width)), min(trials, math.ceil(middle + width)) + 1.0)
    ratios = np.log((trials - k[:-1]) / k[1:] * (probability / (1.0 - probability)))
    logs = np.concatenate([[0.0], np.cumsum(ratios)])
    below = np.cumsum(np.exp(logs - logs.max()))
    place = np.searchsorted(k, at, side="right")
    return np.concatenate([[0.0], below])[place] / below[-1]


@pytest.mark.parametrize(("m", "n"), [(10**6, 100), (10**9, 10), (2000, 2)])
def test_many_occurrences_are_lumped_upwards(m: int, n: int) -> None:
    groups, weights = occurrences(m, n)
    assert len(groups) <= 258
    cumulative = np.cumsum(weights)
    # A lumped size is never smaller than the size it stands for.
    truth = binomial_cdf(m, 1.0 / n, groups)
    assert np.all(cumulative <= truth * (1 + 1e-9) + 1e-11)
    assert np.dot(groups, weights) == pytest.approx(m / n, rel=0.1)


def directions(process: hs.mechanisms.Process, name: str) -> list[list[tuple[object, int]]]:
    return adjacency.directions(process, name)  # type: ignore[return-value]


def test_number_of_directions() -> None:
    symmetric = hs.Gaussian(1.0) * 3 + hs.Laplace(1.0) + hs.PureDP(0.1)
    sampled = symmetric + hs.PoissonSampled(hs.Gaussian(1.0), 0.1)
    for name in adjacency.ADJACENCIES:
        assert len(directions(symmetric, name)) == 1
        both = name in ("add_or_remove", "zero_out")
        assert [len(part) for part in directions(sampled, name)] == [4] * (2 if both else 1)


def test_gaussians_merge_into_one() -> None:
    process = hs.Gaussian(1.0) * 3 + hs.Gaussian(2.0) * 4
    assert [count for _, count in directions(process, "remove")[0]] == [1]
    for epsilon in (0.5, 2.0):
        merged = hs.account(process).delta_bounds(epsilon)
        assert merged == hs.account(hs.Gaussian(0.5)).delta_bounds(epsilon)
    assert adjacency.root_sum_of_squares([(1e-300, 4)]) == 2e-300
    assert adjacency.root_sum_of_squares([(1e300, 4)]) == 2e300


@pytest.mark.parametrize(
    ("single", "double"),
    [
        (hs.Gaussian(1.0), hs.Gaussian(2.0)),
        (hs.Laplace(1.0), hs.Laplace(2.0)),
        (hs.DiscreteLaplace(3.0, 2), hs.DiscreteLaplace(3.0, 1)),
        (hs.DiscreteGaussian(3.0, 2), hs.DiscreteGaussian(3.0, 1)),
    ],
)
def test_replacing_is_twice_removing(single: hs.Gaussian, double: hs.Gaussian) -> None:
    for adjacent in ("add", "remove", "add_or_remove", "zero_out"):
        removed = hs.account(single, adjacent).delta_bounds(0.4)
        assert removed == hs.account(double, "replace_one").delta_bounds(0.4)


def test_adjacencies_of_sampled_steps_are_ordered() -> None:
    step = hs.PoissonSampled(hs.Gaussian(1.0), 0.1) * 20
    deltas = {name: hs.account(step, name).delta_bounds(0.5) for name in adjacency.ADJACENCIES}
    assert deltas["add_or_remove"].upper == max(deltas["add"].upper, deltas["remove"].upper)
    assert deltas["zero_out"] == deltas["add_or_remove"]
    assert deltas["add"].upper < deltas["remove"].lower < deltas["replace_one"].lower


@pytest.mark.parametrize("name", ["add", "remove", "replace_one", "zero_out"])
@pytest.mark.parametrize(
    "mechanism",
    [
        hs.Gaussian(1.0),
        hs.Laplace(1.0),
        hs.DiscreteLaplace(1.0, 2),
        hs.DiscreteGaussian(1.0),
        hs.RandomizedResponse(1.0, 3),
        hs.PureDP(1.0),
        hs.ApproximateDP(1.0, 1e-3),
    ],
    ids=repr,
)
def test_sampling_helps(mechanism: hs.Gaussian, name: str) -> None:
    few = hs.account(hs.PoissonSampled(mechanism, 0.1), name).delta(0.01)
    many = hs.account(hs.PoissonSampled(mechanism, 0.9), name).delta(0.01)
    assert 0.0 < few < many < hs.account(mechanism, name).delta(0.01)


@pytest.mark.parametrize("scheme", [hs.WithoutReplacement, hs.WithReplacement])
def test_the_sound_pair_costs_more_than_the_paper_pair(scheme: type[hs.WithoutReplacement]) -> None:
    sound = hs.account(scheme(hs.Gaussian(2.0), 5, 50) * 10, "replace_one")
    paper = hs.account(scheme(hs.Gaussian(2.0), 5, 50, pair="koskela2020") * 10, "replace_one")
    for epsilon in (0.5, 1.0, 2.0):
        assert paper.delta(epsilon) < sound.delta_bounds(epsilon).lower


@pytest.mark.parametrize("epsilon", [0.05, 0.3, 1.0])
def test_fixed_batches_against_the_worst_mechanism(epsilon: float) -> None:
    """docs/mechanisms/replacement.md, section 2: every other record is -1, the replaced one is +1 or -1."""
    sigma, m, n = 1.5, 2, 10
    q = m / n
    t = np.linspace(-40, 40, 400_001)
    noise = stats.norm(scale=sigma)
    # In the batch: -1 + 1 against -1 - 1; out: -2 in both worlds.
    p = (1 - q) * noise.pdf(t + 2) + q * noise.pdf(t)
    other = noise.pdf(t + 2)
    truth = integrate.trapezoid(np.maximum(p - math.exp(epsilon) * other, 0.0), t)
    bounds = hs.account(hs.WithoutReplacement(hs.Gaussian(sigma), m, n), "replace_one").delta_bounds(epsilon)
    assert bounds.lower <= truth * (1 + 1e-6)
    assert truth * (1 - 1e-6) <= bounds.upper
    paper = hs.WithoutReplacement(hs.Gaussian(sigma), m, n, pair="koskela2020")
    assert hs.account(paper, "replace_one").delta(epsilon) < truth


def test_full_batches_are_unsampled() -> None:
    full = hs.WithoutReplacement(hs.Gaussian(1.0), 10, 10)
    assert hs.account(full, "replace_one").delta_bounds(1.0) == hs.account(
        hs.Gaussian(1.0), "replace_one"
    ).delta_bounds(1.0)


def test_declared_guarantees_degrade_for_groups() -> None:
    pair = base_pair(hs.PureDP(0.5), 6, 3)
    assert pair.max_loss == pytest.approx(1.5, rel=1e-15)
    grouped = base_pair(hs.ApproximateDP(0.5, 1e-6), 6, 3)
    assert grouped.infinity_mass == pytest.approx(1e-6 * math.expm1(1.5) / math.expm1(0.5), rel=1e-12)
    assert base_pair(hs.ApproximateDP(0.5, 0.3), 200, 100).infinity_mass == 1.0


def test_sampling_with_replacement_at_one_draw_is_without() -> None:
    one = hs.account(hs.WithReplacement(hs.Gaussian(1.0), 1, 20), "replace_one")
    same = hs.account(hs.WithoutReplacement(hs.Gaussian(1.0), 1, 20), "replace_one")
    for epsilon in (0.1, 1.0):
        assert one.delta(epsilon) == pytest.approx(same.delta(epsilon), rel=1e-9)


def test_null_records_that_are_counted_are_replaced_records() -> None:
    # One step asks for ones and the next for blanks, by randomised response on whether a drawn record is one. The record is a one, or a blank.
    rate, epsilon = 0.05, 4.0
    more = np.array([math.exp(epsilon), 1.0]) / (1.0 + math.exp(epsilon))
    less, step = more[::-1], hs.PoissonSampled(hs.PureDP(epsilon), rate)
    p = np.outer(rate * more + (1.0 - rate) * less, less).ravel()
    q = np.outer(less, rate * more + (1.0 - rate) * less).ravel()
    exceeded = False
    for at in np.linspace(0.0, 1.4, 29):
        truth = max(float(np.maximum(0.0, a - math.exp(at) * b).sum()) for a, b in ((p, q), (q, p)))
        assert truth <= hs.account(step * 2, "replace_one").delta(at)
        exceeded |= truth > 1.5 * hs.account(step * 2, "zero_out").delta(at)
    assert exceeded  # so what the descriptions ask of a null record is needed


@pytest.mark.sweep
@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize(("epsilon", "q"), [(2.0, 0.1), (0.5, 0.7), (4.0, 0.01)])
def test_a_null_response_that_is_drawn_is_not_as_none(epsilon: float, q: float, k: int) -> None:
    """Not sampled, a record and its null record answer like three different inputs (two of them for two categories), all outputs enumerated."""
    response = np.full((k, k), 1.0) + np.diag(np.full(k, math.expm1(epsilon)))
    response /= response.sum(axis=1)
    none, record, null = response[0], response[1 % k], response[2 % k]
    p, other = (1 - q) * none + q * record, (1 - q) * none + q * null
    process = hs.PoissonSampled(hs.RandomizedResponse(epsilon, k), q) * 3
    outputs = [np.multiply.outer(np.multiply.outer(x, x), x).ravel() for x in (p, other)]
    profile = hs.account(process, "zero_out")
    for at in (0.0, 0.1, 0.5 * epsilon, epsilon):
        truth = max(hockey_stick(a, b, at) for a, b in (outputs, outputs[::-1]))
        lower, upper = profile.delta_bounds(at)
        assert truth <= upper * (1 + 1e-12) + 1e-16
        if k > 2 and at > 0.0:  # the worst case, at one epsilon and in all steps alike
            assert lower <= truth * (1 + 1e-9) + 1e-15
    report = profile.report(epsilon=0.5 * epsilon)
    assert "replacement.md" in report.statement()
    assert verify(report.certificate()).accepted


@pytest.mark.parametrize("q", [0.01, 0.5, 1 - 1e-12])
def test_who_is_not_sampled_answers_as_a_uniform_null_does(q: float) -> None:
    epsilon, k, steps = 2.0, 4, 3
    null, record = np.full(k, 1.0 / k), np.array([math.exp(epsilon), 1.0, 1.0, 1.0])
    sampled = (1 - q) * null + q * record / record.sum()
    outputs = [np.multiply.outer(np.multiply.outer(x, x), x).ravel() for x in (sampled, null)]
    profile = hs.account(hs.PoissonSampled(hs.RandomizedResponse(epsilon, k, True), q) * steps, "zero_out")
    for at in (0.0, 0.3, 1.0):
        truth = max(hockey_stick(a, b, at) for a, b in (outputs, outputs[::-1]))
        lower, upper = profile.delta_bounds(at)
        assert lower <= truth * (1 + 1e-12) + 1e-16
        assert truth <= upper * (1 + 1e-12) + 1e-16
        assert upper <= lower * (1 + 1e-9) + 1e-15
