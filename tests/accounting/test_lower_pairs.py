"""Lower bounds are below the mechanism's own truth, where its pair is more than the mechanism."""

from __future__ import annotations

import math

import flint
import hockeystick as hs
import mpmath
import pytest
from flint import arb
from hockeystick.mechanisms import atoms
from hockeystick.mechanisms.steps import base_pair


@pytest.fixture(autouse=True)
def precision():
    before, flint.ctx.prec = flint.ctx.prec, 1500
    base_pair.cache_clear()  # of other numbers of atoms
    yield
    base_pair.cache_clear()
    flint.ctx.prec = before


def noise_masses(mechanism: hs.Mechanism, reach: int) -> tuple[list[arb], arb]:
    """Masses of the noise on -reach..reach, and a bound on the rest."""
    if isinstance(mechanism, hs.DiscreteLaplace):
        r = (-1 / arb(mechanism.scale)).exp()
        return [(1 - r) / (1 + r) * r ** abs(t) for t in range(-reach, reach + 1)], 2 * r**reach / (1 - r)
    assert isinstance(mechanism, hs.DiscreteGaussian)
    rate = 1 / (2 * arb(mechanism.sigma) ** 2)
    side = [(-rate * t * t).exp() for t in range(reach + 1)]
    total = side[0] + 2 * sum(side[1:], arb(0))
    rest = 2 * (-rate * reach * reach).exp() * (1 + 1 / rate)
    return [side[abs(t)] / total for t in range(-reach, reach + 1)], rest


def pair_masses(mechanism: hs.Mechanism, rate: float, replaced: bool) -> list[tuple[arb, arb]]:
    """(p, q) of every output that matters; Q lacks what is far out, so that delta comes out a little too large."""
    shift = mechanism.sensitivity
    scale = mechanism.scale if isinstance(mechanism, hs.DiscreteLaplace) else mechanism.sigma
    reach = math.ceil((1100 if isinstance(mechanism, hs.DiscreteLaplace) else 45) * scale) + 2 * shift
    masses, _ = noise_masses(mechanism, reach)
    g = arb(rate)

    def mass(t: int) -> arb:
        return masses[t + reach] if abs(t) <= reach else arb(0)

    moved = [(mass(t - shift), mass(t), mass(t + shift)) for t in range(-reach, reach + shift + 1)]
    if replaced:
        return [((1 - g) * none + g * up, (1 - g) * none + g * down) for up, none, down in moved]
    return [((1 - g) * none + g * up, none) for up, none, _ in moved]


TINY = arb(2) ** -1026


def delta_of(masses: list[tuple[arb, arb]], epsilon: float) -> arb:
    y = arb(epsilon).exp()
    return sum((p - y * q for p, q in masses if p > y * q), arb(0))


CASES = [
    (hs.DiscreteGaussian(3.4985, sensitivity=2), 1.0, "zero_out"),
    (hs.DiscreteGaussian(3.4985, sensitivity=2), 0.3, "remove"),
    (hs.DiscreteGaussian(3.4985, sensitivity=2), 0.3, "replace_one"),
    (hs.DiscreteGaussian(0.7, sensitivity=1), 1.0, "remove"),
    (hs.DiscreteLaplace(0.1, 100), 1.0, "add_or_remove"),
    (hs.DiscreteLaplace(0.1, 100), 0.3, "replace_one"),
    (hs.DiscreteLaplace(3.0, 5), 1.0, "add_or_remove"),
    (hs.DiscreteGaussian(100.0, sensitivity=30), 1.0, "add_or_remove"),
    (hs.DiscreteGaussian(100.0, sensitivity=30), 0.2, "replace_one"),
    (hs.DiscreteGaussian(100.0, sensitivity=30), 0.2, "add"),
]


@pytest.mark.sweep
@pytest.mark.parametrize(("mechanism", "rate", "adjacency"), CASES)
def test_one_step(
    mechanism: hs.Mechanism, rate: float, adjacency: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both bounds at every scale of delta, also where integers are merged or all tails were cut."""
    monkeypatch.setattr(atoms, "MAX_ATOMS", 2048)
    masses = pair_masses(mechanism, rate, adjacency == "replace_one")
    if adjacency == "add":
        masses = [(q, p) for p, q in masses]
    step = mechanism if rate == 1.0 else hs.PoissonSampled(mechanism, rate)
    profile = hs.account(step, adjacency=adjacency)
    for epsilon in [0.0, 0.1, 1.0, 5.0, 30.0, 200.0, 999.0]:
        truth = delta_of(masses, epsilon)
        lower, upper = profile.delta_bounds(epsilon)
        assert not arb(lower) > truth + TINY, epsilon
        assert not truth > arb(upper) + TINY, epsilon
    for delta in [0.3, 1e-3, 1e-10, 1e-100, 1e-300, 1e-309, 1e-311, 1e-320, 0.0]:
        lower, upper = profile.epsilon_bounds(delta)
        assert lower < math.inf
        if lower > 0.0:
            assert not delta_of(masses, lower * (1 - 2e-15)) < arb(delta), delta
        if upper < math.inf:
            assert not delta_of(masses, upper * (1 + 2e-15)) > arb(delta) + TINY, delta


def test_merged_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three steps of merged integers against the exact law of their sum, on which alone the loss depends."""
    monkeypatch.setattr(atoms, "MAX_ATOMS", 2048)
    mechanism, steps = hs.DiscreteGaussian(100.0, sensitivity=40), 3
    masses, _ = noise_masses(mechanism, 2500)
    flint.ctx.prec = 400
    power = flint.arb_poly(masses) ** steps
    sums = [power[i] for i in range(power.degree() + 1)]
    moved = [arb(0)] * (40 * steps) + sums
    profile = hs.account(mechanism * steps)
    for epsilon in [0.0, 0.2, 1.0, 3.0, 10.0]:
        y = arb(epsilon).exp()
        truth = sum((p - y * q for p, q in zip(moved, sums, strict=False) if p > y * q), arb(0))
        lower, upper = profile.delta_bounds(epsilon)
        assert not arb(lower) > truth
        assert not truth > arb(upper)
        assert lower > 0.9 * float(truth.mid())


@pytest.mark.sweep
@pytest.mark.parametrize("adjacency", ["add_or_remove", "replace_one"])
@pytest.mark.parametrize("rate", [1.0, 0.1])
def test_many_integers(adjacency: str, rate: float) -> None:
    """A million integers are merged by blocks: the bounds enclose the sum over all of them, and stay close."""
    flint.ctx.prec = 128
    mechanism = hs.DiscreteGaussian(3000.0, sensitivity=1000)
    step = mechanism if rate == 1.0 else hs.PoissonSampled(mechanism, rate)
    profile = hs.account(step, adjacency=adjacency)
    shift = 2000 if adjacency == "replace_one" and rate == 1.0 else 1000
    law = hs.DiscreteGaussian(3000.0, sensitivity=shift)
    masses = pair_masses(law, rate, adjacency == "replace_one" and rate < 1.0)
    for epsilon in [0.0, 0.05, 0.5]:
        truth = delta_of(masses, epsilon)
        lower, upper = profile.delta_bounds(epsilon)
        assert not arb(lower) > truth, epsilon
        assert not truth > arb(upper), epsilon
        assert upper <= lower * (1 + 1e-4)


def test_bounded_noise_has_its_largest_loss_for_delta_0() -> None:
    """Tails too light for a double are moved to the next loss, not to infinity."""
    lower, upper = hs.account(hs.DiscreteLaplace(0.1, 100)).epsilon_bounds(0.0)
    assert lower <= 1000.0 <= upper <= 1000.0 * (1 + 1e-11)
    assert lower >= 1000.0 * (1 - 1e-11)


@pytest.mark.parametrize(
    "mechanism",
    [hs.Laplace(1e-101), hs.DiscreteLaplace(1e-101), hs.DiscreteGaussian(1e-101), hs.Gaussian(1e-101)],
)
def test_noise_too_small_to_matter_is_not_none(mechanism: hs.Mechanism) -> None:
    """It counts as no noise from above; the largest loss is 1e101 or more, and so from below it is finite."""
    profile = hs.account(mechanism)
    lower, upper = profile.epsilon_bounds(1e-5)
    assert lower <= (1e101 if isinstance(mechanism, (hs.Laplace, hs.DiscreteLaplace)) else 1e205)
    assert upper == math.inf
    assert profile.delta_bounds(10.0).upper == 1.0
    assert (
        hs.account(hs.PoissonSampled(mechanism, 0.5), adjacency="add").epsilon_bounds(1e-5).upper
        <= math.log(2) + 1e-9
    )


@pytest.mark.parametrize(
    "mechanism",
    [
        hs.mechanisms.Skellam(6.68119865884648e-24, 13),
        hs.mechanisms.Skellam(3.1e-9, 32),
        hs.DiscreteGaussian(0.2, 7),
    ],
)
def test_noise_that_reaches_as_far_as_it_is_moved(mechanism: hs.Mechanism) -> None:
    """Q's masses were made of P's, which were few least doubles: they added up to 1 + 3e-9, and a bare ValueError came of it."""
    rate = 0.5937688542391893
    # The record shows whenever it is sampled.
    lower, upper = hs.account(hs.PoissonSampled(mechanism, rate), "replace_one").delta_bounds(1.0)
    assert lower <= rate <= upper
    assert upper - lower < 1e-12


@pytest.mark.parametrize(
    "mechanism",
    [
        hs.DiscreteGaussian(0.5454702752191042, 18),
        hs.DiscreteGaussian(1.0, 50),
        hs.DiscreteGaussian(0.02, 2),
        hs.DiscreteGaussian(100.0, 10**4),
        hs.DiscreteLaplace(0.5, 370),
    ],
)
def test_noise_that_hides_nothing_is_as_near_from_below(
    mechanism: hs.DiscreteGaussian | hs.DiscreteLaplace,
) -> None:
    """A shift of 40 deviations stood for larger ones (epsilon between 960 and 1450); one that reaches as far raised a ValueError."""
    profile = hs.account(mechanism)
    lower, upper = profile.epsilon_bounds(1e-5)
    assert 0.0 < lower <= upper <= lower * (1.0 + 1e-9)
    if isinstance(mechanism, hs.DiscreteGaussian):
        sigma, shift = mpmath.mpf(mechanism.sigma), mechanism.sensitivity
        with mpmath.workdps(50):
            span = range(-int(40 * sigma) - 40, int(40 * sigma) + 40)
            total = mpmath.fsum(mpmath.exp(-((k / sigma) ** 2) / 2) for k in span)
            # The tail of P beyond the loss, less e^epsilon times that of Q.
            for epsilon, sign in ((lower * (1 - 1e-9), 1), (upper * (1 + 1e-9), -1)):
                start = int(mpmath.ceil(sigma**2 * epsilon / shift - mpmath.mpf(shift) / 2))
                tail = [k for k in span if k >= start]
                p = mpmath.fsum(mpmath.exp(-((k / sigma) ** 2) / 2) for k in tail)
                q = mpmath.fsum(mpmath.exp(-(((k + shift) / sigma) ** 2) / 2) for k in tail)
                assert sign * ((p - mpmath.exp(epsilon) * q) / total - mpmath.mpf(1e-5)) > 0


@pytest.mark.sweep
@pytest.mark.parametrize(("sensitivity", "steps"), [(33_000, 1000), (10**5, 10**5), (3 * 10**5, 1000)])
@pytest.mark.parametrize("adjacency", ["remove", "add", "replace_one"])
@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_merged_laplace_noise_is_no_more_than_the_noise_on_a_line(
    sensitivity: int, steps: int, adjacency: str, rate: float
) -> None:
    """All that lies below the first block took its merged loss: lower ends were up to 1e-5 of epsilon above the truth."""

    def asked(mechanism: hs.DiscreteLaplace | hs.Laplace, delta: float) -> hs.Bounds:
        step = hs.PoissonSampled(mechanism, rate) if rate < 1.0 else mechanism
        return hs.account(step * steps, adjacency).epsilon_bounds(delta)

    for delta in (1e-5, 0.3):
        discrete = asked(hs.DiscreteLaplace(1e6, sensitivity), delta)
        # With a millionth of its scale for a step, it is within 1e-12 of this.
        line = asked(hs.Laplace(1e6 / sensitivity), delta)
        assert discrete.lower <= line.upper * (1.0 + 1e-9) + 1e-12
        assert line.lower <= discrete.upper * (1.0 + 1e-9) + 1e-12


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 5.0, 100.0])
def test_blocks_as_wide_as_a_part_of_the_scale_lack_no_mass(epsilon: float) -> None:
    """The rule for a block of .066 scales lacks 4e-14 of it: delta was that much less than the rate at which the record shows."""
    profile = hs.account(hs.PoissonSampled(hs.DiscreteLaplace(1000.0, 1_500_000), 0.5), "replace_one")
    assert 0.5 <= profile.delta(epsilon) <= 0.5 + 1e-9


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("scale", "sensitivity"),
    [(1e6, 10**9), (31717144.4, 23518399125), (115.34336640169198, 44634), (1e4, 10**10), (3e7, 4 * 10**10)],
)
@pytest.mark.parametrize("q", [1.0, 0.1])
@pytest.mark.parametrize("adjacency", ["add", "remove", "replace_one"])
def test_discrete_laplace_noise_moved_by_hundreds_of_scales(
    scale: float, sensitivity: int, q: float, adjacency: str
) -> None:
    """Rounding of losses that large made Q's masses add up to more than 1, which was refused."""
    noise = hs.DiscreteLaplace(scale, sensitivity=sensitivity)
    profile = hs.account(hs.PoissonSampled(noise, q), adjacency)
    largest = (1 + (adjacency == "replace_one" and q == 1.0)) * sensitivity / scale
    for delta in (1e-12, 1e-6, 0.01):
        lower, upper = profile.epsilon_bounds(delta)
        assert 0.0 <= lower <= upper
        # Half of the noise has the largest loss: q / 2 (1 - e^(epsilon - largest)) of delta, and what sampling takes off it.
        if adjacency != "add" or q == 1.0:
            assert upper >= largest + math.log(q) + math.log1p(-2.0 * delta / q) - 1e-9
        assert lower <= largest
