"""The core's hockey-stick curves against mpmath, within the error each of them claims, and against NumPy."""

from __future__ import annotations

import hockeystick as hs
import mpmath as mp
import numpy as np
import pytest
from hockeystick import _core
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.baselines import pairs as oracle

DIGITS = 260
FLOOR = mp.mpf(10) ** -240  # of the reference itself
MODES = ("remove", "add", "replace_one")


class Exact:
    """P(x < L < inf), Q(L > x), P(L <= x) and Q(L <= x) in mpmath; the hockey sticks follow."""

    def tails(self, x):
        raise NotImplementedError

    def cotails(self, x):
        p, q = self.tails(x)
        return 1 - p, 1 - q

    def above(self, x):
        p, q = self.tails(x)
        return p - mp.exp(x) * q

    def below(self, x):
        p, q = self.cotails(x)
        return mp.exp(x) * q - p


class Gaussian(Exact):
    def __init__(self, mu: float) -> None:
        self.mu = mp.mpf(mu)

    def tails(self, x):
        return mp.ncdf(self.mu / 2 - x / self.mu), mp.ncdf(-self.mu / 2 - x / self.mu)

    def cotails(self, x):
        return mp.ncdf(x / self.mu - self.mu / 2), mp.ncdf(x / self.mu + self.mu / 2)


class Laplace(Exact):
    def __init__(self, epsilon: float) -> None:
        self.epsilon = mp.mpf(epsilon)

    def tails(self, x):
        e = self.epsilon
        if x < -e:
            return mp.mpf(1), mp.mpf(1)
        if x >= e:
            return mp.mpf(0), mp.mpf(0)
        return 1 - mp.exp((x - e) / 2) / 2, mp.exp(-(x + e) / 2) / 2


class Discrete(Exact):
    def __init__(self, losses, p, q) -> None:
        self.atoms = [tuple(map(mp.mpf, map(float, atom))) for atom in zip(losses, p, q, strict=True)]

    def tails(self, x):
        beyond = [atom for atom in self.atoms if atom[0] > x]
        return mp.fsum(a[1] for a in beyond), mp.fsum(a[2] for a in beyond)


class Sampled(Exact):
    """The hockey sticks of the three modes written out, without their shared structure."""

    def __init__(self, pair: Exact, q: float, mode: str) -> None:
        self.pair, self.q, self.mode = pair, mp.mpf(q), mode

    def above(self, x):
        y, q = mp.exp(x), self.q
        if self.mode == "remove" or (self.mode == "replace_one" and x >= 0):
            return q * self.pair.above(mp.log((y - 1 + q) / q)) if y > 1 - q else 1 - y
        rest = 1 - y * (1 - q)
        return rest * self.pair.above(mp.log(y * q / rest)) if rest > 0 else mp.mpf(0)

    def below(self, x):
        return self.above(x) - (1 - mp.exp(x))


def assert_curves_match(
    pair: _core.Pair, truth: Exact, x: np.ndarray, claim: float | None = 1e-9, end: float = np.inf
) -> None:
    """Both curves are within their claimed error, and the claim is small.

    Smallness, unless `claim` is None, is asked for on the curve's own side only, and not next to +-`end`, where
    the loss has its largest value and the last bit of x matters.
    """
    for name in ("above", "below"):
        value, slope, exponent, error = getattr(pair, name)(x)
        assert np.all(np.isfinite(value))
        assert np.all(np.isfinite(slope))
        assert np.all(error >= 0)
        with mp.workdps(DIGITS):
            for i, point in enumerate(x):
                scale = mp.exp(mp.mpf(float(exponent[i])))
                expected = getattr(truth, name)(mp.mpf(float(point)))
                assert (
                    abs(mp.mpf(float(value[i])) * scale - expected)
                    <= mp.mpf(float(error[i])) * scale * (1 + mp.mpf(10) ** -30) + FLOOR
                ), (name, float(point))
        own_side = (value * np.exp(exponent) <= 0.5) & (np.abs(np.abs(x) - end) > 1e-6 * np.abs(x))
        assert claim is None or np.all((error <= claim * np.maximum(value, slope))[own_side])


def around(pair_scale: float, centre: float = 0.0) -> np.ndarray:
    """Losses on both sides of the bulk, some of them deep in the tails."""
    return centre + pair_scale * np.array(
        [-30.0, -8.0, -3.0, -1.0, -0.2, -1e-3, 0.0, 1e-3, 0.2, 1.0, 3.0, 8.0, 30.0]
    )


mus = st.floats(-4, 1).map(lambda e: 10.0**e)
rates = st.one_of(st.sampled_from([1.0, 0.5, 1e-3, 1e-12]), st.floats(1e-6, 0.999))


@given(mu=mus)
@settings(max_examples=25, deadline=None, derandomize=True)
def test_gaussian(mu: float) -> None:
    assert_curves_match(_core.gaussian_pair(mu), Gaussian(mu), around(mu, mu**2 / 2))


@given(epsilon=st.floats(-6, 2).map(lambda e: 10.0**e))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_laplace(epsilon: float) -> None:
    pair = _core.laplace_pair(epsilon)
    x = epsilon * np.array([-3.0, -1.0, -0.999, -0.5, 0.0, 1e-9, 0.3, 0.9, 0.999999])
    assert_curves_match(pair, Laplace(epsilon), x)
    assert pair.max_loss == pytest.approx(epsilon, rel=1e-12)
    assert np.all(pair.above(np.array([epsilon * 1.001, 2 * epsilon]))[0] == 0.0)


@given(mu=st.floats(0.05, 8.0), q=rates, mode=st.sampled_from(MODES))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_sampled_gaussian(mu: float, q: float, mode: str) -> None:
    pair = _core.sampled_pair(_core.gaussian_pair(mu), q, mode)
    # Points placed where the loss really is: at levels of the unsampled pair.
    level = np.clip(around(mu, mu**2 / 2), -36, 600)
    remove = np.log1p(q * np.expm1(level))
    level = np.clip(level, -600, 36)
    x = {"remove": remove, "add": -np.log1p(q * np.expm1(-level))}.get(mode)
    if x is None:
        x = np.sort(np.concatenate([remove[remove >= 0], -remove[remove > 0]]))
    with mp.workdps(DIGITS):
        truth = Sampled(Gaussian(mu), q, mode)
    assert_curves_match(pair, truth, x, claim=1e-6, end=-np.log1p(-q) if q < 1 else np.inf)


@pytest.mark.parametrize("mode", ["remove", "add"])
@pytest.mark.parametrize("mu", [0.5, 3.0, 28.0])
@pytest.mark.parametrize("q", [1 - 1e-12, 0.999, 0.5, 1e-3, 1e-9])
def test_sampled_gaussian_where_its_support_ends(q: float, mu: float, mode: str) -> None:
    """At ln(1-q), or -ln(1-q), where (e^x - 1)/q is nearly -1: the last bit of x is in the claimed error."""
    pair = _core.sampled_pair(_core.gaussian_pair(mu), q, mode)
    end = np.log1p(-q) if mode == "remove" else -np.log1p(-q)
    x = end * (1 - np.array([-1e-15, 0.0, 1e-16, 4e-16, 1e-15, 1e-14, 1e-12, 1e-9, 1e-6, 1e-4, 1e-2]))
    with mp.workdps(DIGITS):
        truth = Sampled(Gaussian(mu), q, mode)
    assert_curves_match(pair, truth, x, claim=None)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_nearly_all_sampled_is_not_cheaper_than_its_largest_loss(steps: int) -> None:
    """Under "add" all losses but e^-80 of them are -ln(1-q) here: delta(eps) = 1 - e^{eps - largest}."""
    q, delta = 1 - 1e-12, 7e-9
    profile = hs.account(hs.PoissonSampled(hs.Gaussian(0.0358), q) * steps, adjacency="add")
    with mp.workdps(40):
        largest = -steps * mp.log1p(-mp.mpf(q))
        lower, upper = profile.epsilon_bounds(delta=delta)
        assert lower <= largest + mp.log1p(-mp.mpf(delta)) <= upper
        epsilon = float(largest) - 1e-4
        lower, upper = profile.delta_bounds(epsilon=epsilon)
        assert lower <= -mp.expm1(epsilon - largest) <= upper


@pytest.mark.parametrize("steps", [2, 3, 10])
@pytest.mark.parametrize("base", [hs.RandomizedResponse(30.0), hs.PureDP(30.0)])
@pytest.mark.parametrize("engine", ["auto", "fft"])
def test_responses_nearly_all_sampled(base: hs.Mechanism, steps: int, engine: str) -> None:
    """ln(1 - q + q e^-30) has few digits as log1p: epsilon was too small for a delta ten thousand times as large."""
    q, delta = 1 - 1e-12, 1e-8
    profile = hs.account(hs.PoissonSampled(base, q) * steps, adjacency="add", engine=engine)
    lower, upper = profile.epsilon_bounds(delta=delta)
    with mp.workdps(40):
        likely = 1 / (1 + mp.exp(-30))
        sampled = (1 - mp.mpf(q)) * likely + mp.mpf(q) * (1 - likely)

        def truth(epsilon: float) -> mp.mpf:
            return mp.fsum(
                mp.binomial(steps, k)
                * max(
                    mp.mpf(0),
                    likely**k * (1 - likely) ** (steps - k)
                    - mp.exp(mp.mpf(epsilon)) * sampled**k * (1 - sampled) ** (steps - k),
                )
                for k in range(steps + 1)
            )

        assert truth(upper) <= delta <= truth(lower)


@pytest.mark.parametrize("weight", [1e-13, 1e-12, 1e-10, 7e-9, 1e-6])
@pytest.mark.parametrize("below", [1e-7, 5e-7, 2e-6, 1e-2])
def test_location_mixture_where_its_loss_levels_off(weight: float, below: float) -> None:
    """N(0) against (1-w) N(0) + w N(-s): the largest loss, about w, has few digits as ln(1/(1-w))."""
    s = 20.0
    pair = _core.location_mixture_pair("gaussian", 1.0, [0.0], [1.0], [0.0, -s], [1 - weight, weight])
    with mp.workdps(60):
        total = mp.mpf(1 - weight) + mp.mpf(weight)
        zero, far = mp.mpf(1 - weight) / total, mp.mpf(weight) / total
        largest = -mp.log(zero)
        assert abs(pair.max_loss / largest - 1) < 1e-14
        x = float(largest * (1 - mp.mpf(below)))
        y = mp.exp(mp.mpf(x))
        t = -(mp.log((1 - y * zero) / (y * far)) + s * s / 2) / s
        truth = mp.ncdf(-t) - y * (zero * mp.ncdf(-t) + far * mp.ncdf(-t - s))
        value, _, exponent, error = (float(v[0]) for v in pair.above(np.array([x])))
        assert abs(value * mp.exp(exponent) - truth) <= error * mp.exp(exponent)


@given(epsilon=st.floats(0.01, 5.0), q=rates, mode=st.sampled_from(MODES))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_sampled_laplace(epsilon: float, q: float, mode: str) -> None:
    pair = _core.sampled_pair(_core.laplace_pair(epsilon), q, mode)
    top = np.log1p(q * np.expm1(epsilon))
    x = top * np.array([-2.0, -0.7, -0.1, 0.0, 0.1, 0.7, 0.99])
    with mp.workdps(DIGITS):
        truth = Sampled(Laplace(epsilon), q, mode)
    assert_curves_match(pair, truth, x, claim=1e-6)


@given(
    masses=st.lists(st.floats(1e-9, 1.0), min_size=1, max_size=8),
    losses=st.lists(st.floats(-20, 20), min_size=8, max_size=8, unique=True),
    rest=st.sampled_from([0.0, 1e-12, 0.1]),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_discrete(masses: list[float], losses: list[float], rest: float) -> None:
    atoms = np.sort(np.array(losses[: len(masses)]))
    p = np.array(masses)
    p *= (1 - 1e-9) / max(p.sum(), (p * np.exp(-atoms)).sum())
    p = p * (1 - rest)
    rest = 1 - p.sum()  # P's masses must sum to 1
    q = p * np.exp(-atoms)
    pair = _core.discrete_pair(atoms, p, q, p_infinity=rest)
    x = np.concatenate([(atoms[:-1] + atoms[1:]) / 2, atoms[:1] - 1.0, atoms[-1:] + 1.0, [0.0]])
    x = x[np.min(np.abs(x[:, None] - atoms), axis=1) > 1e-9]
    assert pair.infinity_mass == pytest.approx(rest, rel=1e-12)
    with mp.workdps(DIGITS):
        truth = Discrete(atoms, p, q)
        for point in x:
            value, _, exponent, error = (float(v[0]) for v in pair.above(np.array([point])))
            expected = truth.above(mp.mpf(float(point)))
            # q is p e^-loss only up to rounding, which the pair may include in its own way.
            slack = 4e-15 * float(truth.tails(mp.mpf(float(point)))[0])
            assert abs(value * mp.exp(exponent) - expected) <= error * mp.exp(exponent) + slack


@given(mu=st.floats(0.1, 3.0), other=st.floats(0.1, 3.0), weight=st.floats(0.01, 0.99))
@settings(max_examples=20, deadline=None, derandomize=True)
def test_mixture(mu: float, other: float, weight: float) -> None:
    """The choice is released, so hockey sticks average; what the weights lack sits at +inf, kept apart."""
    lost = 1e-3
    rest = 1 - weight - lost
    if rest <= 0:
        return
    pair = _core.mixture_pair([_core.gaussian_pair(mu), _core.laplace_pair(other)], [weight, rest])
    x = np.array([-2.0, -0.5, 0.0, 0.3, 1.0, 4.0])
    value, _, exponent, error = pair.above(x)
    with mp.workdps(DIGITS):
        for i, point in enumerate(map(mp.mpf, map(float, x))):
            expected = weight * Gaussian(mu).above(point) + rest * Laplace(other).above(point)
            scale = mp.exp(mp.mpf(float(exponent[i])))
            assert abs(float(value[i]) * scale - expected) <= float(error[i]) * scale + FLOOR
    assert pair.infinity_mass == pytest.approx(lost, rel=1e-9)


@given(
    scale=st.sampled_from([0.03, 0.4, 3.0, 20.0, 200.0]),
    count=st.integers(2, 40),
    decay=st.sampled_from([0.0, 0.5, 12.0]),
    place=st.floats(-1.5, 1.5),
)
@settings(max_examples=25, deadline=None, derandomize=True)
def test_many_gaussians(scale: float, count: int, decay: float, place: float) -> None:
    """Parts that hardly matter at a loss are left out; the error claimed must cover them, in the farthest tails too."""
    weights = np.exp(-decay * np.arange(count))
    weights /= weights.sum()
    weights[0] += 1.0 - weights.sum()
    mus = scale * np.arange(1, count + 1)
    pair = _core.mixture_pair([_core.gaussian_pair(mu) for mu in mus], list(weights))
    # Around the bulk of some part, between parts, and beyond all of them.
    middle = mus[count // 2]
    x = np.array(sorted({place * mus[-1] ** 2, 0.5 * middle**2 + 12.0 * place * middle, 0.5 * mus[-1] ** 2}))
    with mp.workdps(60):
        for name in ("above", "below"):
            value, slope, exponent, error = getattr(pair, name)(x)
            for i, point in enumerate(map(mp.mpf, map(float, x))):
                parts = [getattr(Gaussian(mu), name)(point) for mu in mus]
                expected = mp.fsum(mp.mpf(float(w)) * part for w, part in zip(weights, parts, strict=True))
                scaled = mp.exp(mp.mpf(float(exponent[i])))
                # In units of the exponent, as both may lie below any double.
                assert abs(float(value[i]) - expected / scaled) <= float(error[i]) + 1e-40
                assert float(slope[i]) >= 0.0


@pytest.mark.parametrize("sigma", [0.7, 2.0])
@pytest.mark.parametrize("q", [0.01, 0.5])
def test_location_mixture_is_the_sampled_gaussian(sigma: float, q: float) -> None:
    """P = (1-q) N(0) + q N(1) against Q = N(0), written both ways."""
    mixture = _core.location_mixture_pair("gaussian", sigma, [0.0, 1.0], [1 - q, q], [0.0], [1.0])
    sampled = _core.sampled_pair(_core.gaussian_pair(1 / sigma), q, "remove")
    x = np.log1p(q * np.expm1(np.linspace(-3.0, 6.0, 31) / sigma))
    for name in ("above", "below"):
        one, _, e1, error1 = getattr(mixture, name)(x)
        other, _, e2, error2 = getattr(sampled, name)(x)
        distance = np.abs(one * np.exp(e1) - other * np.exp(e2))
        rounding = 1e-14 * np.abs(other * np.exp(e2))
        assert np.all(distance <= error1 * np.exp(e1) + error2 * np.exp(e2) + rounding)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_location_mixture_by_quadrature(noise: str) -> None:
    scale, q = 1.5, 0.2
    pair = _core.location_mixture_pair(
        noise, scale, [0.0, 1.0, 2.0], [0.7, 0.2, 0.1], [0.0, -1.0], [1 - q, q]
    )
    with mp.workdps(30):

        def density(t, shifts, weights):
            u = [(t - s) / scale for s in shifts]
            if noise == "gaussian":
                return sum(w * mp.npdf(v) / scale for v, w in zip(u, weights, strict=True))
            return sum(w * mp.exp(-abs(v)) / (2 * scale) for v, w in zip(u, weights, strict=True))

        def p_minus(y, t):
            return density(t, [0, 1, 2], [0.7, 0.2, 0.1]) - y * density(t, [0, -1], [1 - q, q])

        for x in (-0.2, 0.1, 0.35):
            y = mp.exp(x)
            edge = mp.findroot(lambda t, y=y: p_minus(y, t), (-0.99, 1.99), solver="anderson", verify=False)
            knots = sorted({edge, *(mp.mpf(k) for k in (0, 1, 2) if k > edge), mp.mpf(60)})
            expected = mp.quad(lambda t, y=y: p_minus(y, t), knots)
            value, _, exponent, error = (float(v[0]) for v in pair.above(np.array([x])))
            assert abs(value * mp.exp(exponent) - expected) <= error * mp.exp(exponent) + 1e-12 * expected


@pytest.mark.parametrize(
    ("pair", "baseline"),
    [
        (_core.gaussian_pair(0.7), oracle.Gaussian(0.7)),
        (_core.laplace_pair(0.7), oracle.Laplace(0.7)),
        *(
            (
                _core.sampled_pair(_core.gaussian_pair(1.3), 0.03, m),
                oracle.Sampled(oracle.Gaussian(1.3), 0.03, m),
            )
            for m in MODES
        ),
        *(
            (_core.sampled_pair(_core.laplace_pair(0.4), 0.2, m), oracle.Sampled(oracle.Laplace(0.4), 0.2, m))
            for m in MODES
        ),
    ],
    ids=lambda value: "" if isinstance(value, _core.Pair) else str(value),
)
def test_baseline_agrees(pair: _core.Pair, baseline: oracle.Pair) -> None:
    """The NumPy curves and tails are the same functions (they are what the other tests lean on)."""
    x = np.linspace(-0.6, 0.6, 41) * 0.99
    for name, tails in (("above", baseline.tails), ("below", baseline.cotails)):
        value, slope, exponent, _ = getattr(pair, name)(x)
        mine = getattr(baseline, name)(x)
        size = np.exp(x) * tails(x)[1]
        assert value * np.exp(exponent) == pytest.approx(mine, rel=1e-9, abs=1e-14 * size.max())
        assert slope * np.exp(exponent) == pytest.approx(size, rel=1e-9, abs=1e-14 * size.max())


@pytest.mark.parametrize(
    "call",
    [
        lambda: _core.gaussian_pair(float("nan")),
        lambda: _core.gaussian_pair(-1.0),
        lambda: _core.laplace_pair(float("inf")),
        lambda: _core.sampled_pair(_core.gaussian_pair(1.0), 1.5, "remove"),
        lambda: _core.sampled_pair(_core.gaussian_pair(1.0), float("nan"), "remove"),
        lambda: _core.sampled_pair(_core.gaussian_pair(1.0), 0.5, "swap"),
        lambda: _core.discrete_pair([1.0, 0.0], [0.5, 0.5], [0.5, 0.5]),
        lambda: _core.discrete_pair([0.0], [-1.0], [1.0]),
        lambda: _core.mixture_pair([_core.gaussian_pair(1.0)], [1.5]),
    ],
)
def test_the_core_refuses_nonsense(call) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        call()
