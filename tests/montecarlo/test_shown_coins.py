"""Theorem 7b of docs/montecarlo/tilted.md, step by step and as a whole: every r, every pattern, densities integrated."""

import itertools
import math

import hockeystick as hs
import numpy as np
import pytest
from hockeystick.matrix.min_sep import TruncatedBMinSep
from hockeystick.montecarlo.direction import Direction
from hockeystick.montecarlo.shown_coins import ShownCoins, ShownCurve, shown_coins
from hockeystick.montecarlo.tilted import log_moment
from hockeystick.montecarlo.truncation import reduction, tilting
from scipy.stats import norm

from tests import enumeration
from tests.montecarlo.test_truncation import plane_densities, public_counts

Array = np.ndarray
CHAINS = [(6, 3, 0.3, False), (6, 3, 0.3, True), (5, 1, 0.2, True), (4, 6, 0.2, True), (7, 2, 0.05, False)]


def apart(rounds: int, b: int, k: int) -> list[tuple[int, ...]]:
    """Sets of k rounds that are b apart."""
    return [
        each
        for each in itertools.combinations(range(rounds), k)
        if all(y - x >= b for x, y in itertools.pairwise(each))
    ]


@pytest.mark.parametrize(("steps", "b", "p", "warm"), CHAINS)
def test_participations_can_be_added_at_a_price(steps: int, b: int, p: float, warm: bool) -> None:
    law = {tuple(map(int, x)): w for w, x in enumeration.min_sep(steps, b, p, warm) if w}
    cold = {tuple(map(int, x)): w for w, x in enumeration.min_sep(steps, b, p, False) if w}
    odds = p * (1.0 - p) ** -min(b, steps)
    least = min(math.fsum(w for x, w in one.items() if x[i]) for one in (law, cold) for i in range(steps))
    for k in range(1, 4):
        for rounds in apart(steps, b, k):
            seen = math.fsum(w for x, w in law.items() if all(x[i] for i in rounds))
            assert least**k * (1 - 1e-12) <= seen <= odds**k * (1 + 1e-12)
            for x, w in law.items():
                if all(x[i] for i in rounds):
                    without = tuple(0 if i in rounds else v for i, v in enumerate(x))
                    assert w <= odds**k * law[without] * (1 + 1e-12)
            alone = law.get(tuple(int(i in rounds) for i in range(steps)), 0.0)
            assert alone >= law[(0,) * steps] * (p / odds) ** k * seen * (1 - 1e-12)


@pytest.mark.parametrize(
    ("steps", "b", "p", "size", "largest", "warm"),
    [(3, 1, 0.05, 8, 2, True), (4, 2, 0.06, 6, 2, True), (4, 2, 0.05, 7, 2, False), (3, 2, 0.1, 6, 3, True)],
)
def test_weights_count_every_set_of_truncated_rounds(
    steps: int, b: int, p: float, size: int, largest: int, warm: bool
) -> None:
    scheme = TruncatedBMinSep(steps, b, p, size, largest, warm)
    shown = shown_coins(scheme)
    assert shown is not None
    expected = [0.0] * len(shown.terms)
    base = enumeration.min_sep(steps, b, p, warm)
    for counts, chance in public_counts(scheme).items():
        cuts = [c >= largest for c in counts]
        for w, x in base:
            expected[sum(1 for c, v in zip(cuts, x, strict=True) if c and v)] += chance * w
    for (k, weight, _), truth in zip(shown.terms, expected, strict=True):
        assert truth <= weight
        if k == 1:
            assert weight < 3.0 * truth
    assert sum(expected) == pytest.approx(1.0)


def gaussian_beside(plain: Array, flat: Array, k: int, distance: float, epsilon: float, cell: float) -> float:
    """E_P[D(epsilon - L)] on the grid, D by scipy's normal law."""
    x = epsilon - np.log(plain / flat)
    mu = math.sqrt(k) * distance
    if k == 0:
        return float((plain * np.maximum(0.0, -np.expm1(np.minimum(x, 0.0)))).sum() * cell)
    values = norm.cdf(mu / 2 - x / mu) - np.exp(x + norm.logcdf(-mu / 2 - x / mu))
    return float((plain * values).sum() * cell)


def whole(
    shown: ShownCoins, plain: Array, flat: Array, distance: float, epsilon: float, cell: float
) -> float:
    return shown.rest + math.fsum(
        weight * gaussian_beside(plain, flat, k, distance, epsilon + shift, cell)
        for k, weight, shift in shown.terms
    )


def worlds(
    law: enumeration.Law,
    counts: tuple[int, ...],
    largest: int,
    own: tuple[float, ...],
    left_out: tuple[float, ...],
) -> tuple[enumeration.Law, enumeration.Law]:
    """What is added to the known sums, with the record and with a null record in its place; `left_out` is who is cut for it."""
    here: enumeration.Law = []
    there: enumeration.Law = []
    for weight, x in law:
        cut = [i for i, v in enumerate(x) if v and counts[i] >= largest]
        for kept in itertools.product((True, False), repeat=len(cut)):
            chance, one, other = weight, [v * g for v, g in zip(x, own, strict=True)], [0.0] * len(x)
            for i, stays in zip(cut, kept, strict=True):
                s = largest / (counts[i] + 1)
                chance *= s if stays else 1.0 - s
                one[i], other[i] = (own[i] - left_out[i], -left_out[i]) if stays else (0.0, 0.0)
            here.append((chance, tuple(one)))
            there.append((chance, tuple(other)))
    return here, there


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("b", "p", "warm", "size", "largest", "sigma"),
    [
        (1, 0.05, False, 6, 2, 0.8),
        (2, 0.05, True, 8, 2, 0.5),
        (1, 0.02, True, 7, 1, 0.6),
        (2, 0.1, False, 6, 3, 0.7),
    ],
)
def test_no_adversary_exceeds_the_bound(
    b: int, p: float, warm: bool, size: int, largest: int, sigma: float
) -> None:
    # Records left out, and the example itself, of any sign; the second round's also as the first output tells.
    scheme = TruncatedBMinSep(2, b, p, size, largest, warm)
    strategy: hs.matrix.Strategy = hs.Identity(2) if b == 1 else hs.BandedToeplitz((1.0, 0.6), 2)
    matrix, base = strategy.matrix(), enumeration.min_sep(2, b, p, warm)
    axis = np.linspace(-2.5 - 7.0 * sigma, 3.0 + 7.0 * sigma, 111)
    cell = (axis[1] - axis[0]) ** 2
    flat = plane_densities([(1.0, (0.0, 0.0))], matrix, sigma, axis)
    plain = plane_densities(base, matrix, sigma, axis)
    distance = float(strategy.column_norms().max()) / sigma
    shown, mechanism = shown_coins(scheme), hs.BandMF(strategy, scheme, sigma)
    assert shown is not None
    late = (axis > 0.8)[:, None]
    pairs = []
    for counts, chance in public_counts(scheme).items():
        if chance < 1e-8:
            continue
        tried = []
        signs = itertools.product((1.0, -1.0), (1.0, -1.0), (-1.0, 0.0, 1.0), (-1.0, 1.0))
        for g, h, v, u in signs if max(counts) >= largest else [(1.0, 1.0, 0.0, 0.0), (1.0, -1.0, 0.0, 0.0)]:
            laws = worlds(base, counts, largest, (g, h), (v, u))
            tried.append([plane_densities(law, matrix, sigma, axis) for law in laws])
        # Adaptive: the first round's choices are alike in neighbours of this list.
        mixed = [
            [np.where(late, x, y) for x, y in zip(one, two, strict=True)]
            for one, two in itertools.pairwise(tried)
        ]
        pairs.append((chance, tried + (mixed[::2] if len(tried) > 2 else mixed)))
    none = math.log(math.fsum(w for w, x in base if not any(x)))
    spread = float((plain**2 / flat).sum() * cell) - 1.0
    for epsilon in (0.3, 1.0, 2.5, 4.0, 6.0):
        a, least = math.exp(epsilon), [0.0, 0.0]
        for chance, found in pairs:
            for i in (0, 1):
                least[i] += chance * max(
                    float(np.maximum(w[i] - a * w[1 - i], 0.0).sum()) * cell for w in found
                )
        most = whole(shown, plain, flat, distance, epsilon, cell)
        assert least[0] <= most * (1.0 + 1e-3) + 1e-9
        if epsilon >= 2.5:
            assert most < 12.0 * least[0]  # of use
        reverse = reduction(mechanism, epsilon)
        assert reverse is not None
        assert least[1] <= reverse.add_above * (1.0 + 1e-3) + 1e-9
        if epsilon > -none:
            assert least[1] <= shown.add(distance, epsilon, spread) * (1.0 + 1e-3) + 1e-9
        first = gaussian_beside(plain, flat, 0, distance, epsilon + shown.terms[0][2], cell)
        assert most <= first + shown.remove(distance, epsilon, spread) + 1e-9
        curve = ShownCurve(shown, distance, epsilon)
        _, above = curve.between((epsilon - np.log(plain / flat)).ravel())
        averaged = float((plain.ravel() * above).sum() * cell) * math.exp(curve.log_mass) + shown.rest
        assert most * (1.0 - 1e-6) <= averaged <= most * 1.01 + 1e-9


def test_what_verdicts_average_against_the_certified_profile() -> None:
    # Poisson sampling without correlation: each term is a composition that the accountant bounds on both sides.
    steps, p, sigma, epsilon = 16, 0.01, 0.6, 6.0
    scheme = TruncatedBMinSep(steps, 1, p, 801, 16)
    shown = shown_coins(scheme)
    assert shown is not None
    low = high = 0.0
    for k, weight, shift in shown.terms[:5]:
        process = hs.PoissonSampled(hs.Gaussian(sigma), p) * steps
        whole = process if k == 0 else process + hs.Gaussian(sigma / math.sqrt(k))
        term = hs.account(whole, "remove").delta_bounds(epsilon + shift)
        low, high = low + weight * term.lower, high + weight * term.upper
    high += math.fsum(weight for _, weight, _ in shown.terms[5:]) + shown.rest
    mechanism = hs.BandMF(hs.Identity(steps), scheme, sigma)
    values = Direction(mechanism, "remove", epsilon, only_above=True)
    assert values.tilting.curve is not None
    drawn = values.tilted_values(values.tune(1))
    estimate, bounds = drawn.interval(drawn.tally(2, 0, 131_072 // drawn.block_size), 0.999)
    assert bounds.upper > low
    assert 0.97 * low < estimate < 1.03 * high
    assert bounds.upper < 1.1 * high
    # The closed form is above, and rare truncation needs no curve.
    spread = math.expm1(log_moment(hs.BandMF(hs.Identity(steps), hs.Poisson(steps, p), sigma), 2))
    first = hs.account(hs.PoissonSampled(hs.Gaussian(sigma), p) * steps, "remove").delta(
        epsilon + shown.terms[0][2]
    )
    assert high < first + shown.remove(1.0 / sigma, epsilon, spread)
    rare = hs.BandMF(hs.Identity(steps), TruncatedBMinSep(steps, 1, p, 801, 40), sigma)
    how = tilting(rare, epsilon, "remove", only_above=True)
    assert how.curve is None
    assert how.extra < 1e-12


def test_what_has_no_use_for_it() -> None:
    for p, largest in ((1.0, 9), (0.9, 3), (0.5, 10)):  # always, too seldom available, half of the time
        assert shown_coins(TruncatedBMinSep(8, 2, p, 21, largest)) is None
    never = shown_coins(TruncatedBMinSep(8, 2, 0.2, 41, 41))
    assert never is not None
    assert never.rest == 0.0
    assert [weight for _, weight, _ in never.terms[1:]] == [0.0] * 4
    assert never.terms[0][2] == 0.0


@pytest.mark.parametrize(
    ("steps", "p", "records", "most", "noise", "epsilon"),
    [
        (38_000, 0.02, 100_000, 2200, 0.4, 345.0),
        (38_000, 0.02, 100_000, 2200, 0.4, 600.0),
        (30_000, 0.005, 200_000, 1110, 0.25, 650.0),
    ],
)
def test_what_is_shown_adds_its_share_at_large_epsilons(
    steps: int, p: float, records: int, most: int, noise: float, epsilon: float
) -> None:
    """D(x) is at least 1 - e^x, so that each weight counts with the delta of all coins hidden; a square that overflowed made it nothing."""
    mechanism = hs.BandMF(hs.matrix.Identity(steps), TruncatedBMinSep(steps, 1, p, records, most), noise)
    shown = shown_coins(mechanism.scheme)
    assert shown is not None
    hidden = (
        hs.account(hs.PoissonSampled(hs.Gaussian(noise), p) * steps, "remove").delta_bounds(epsilon).lower
    )
    least = hidden * math.fsum(weight for _, weight, _ in shown.terms[1:])
    assert least > 1e-10
    chosen = tilting(mechanism, epsilon, "remove", only_above=True)
    assert chosen.extra >= least or chosen.curve is not None
