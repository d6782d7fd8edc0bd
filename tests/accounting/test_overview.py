"""One rough look at a curve: it encloses the truth at its points and between them, and what a report says of it is no less."""

from __future__ import annotations

import math
from itertools import product

import hockeystick as hs
import numpy as np
import pytest
from hockeystick.accounting.envelope import Envelope, look
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp

from bench.baselines.exact import gaussian_delta

LATTICE = hs.PoissonSampled(hs.DiscreteGaussian(2.0), 0.05) * 4
KINDS = {
    "lattices": LATTICE,
    "inversion": hs.PoissonSampled(hs.Gaussian(1.0), 0.01) * 1000,
    "rare truncation": hs.TruncatedPoissonSampled(1.0, 10_000, 0.01, 160) * 50,
    "infinite losses": hs.ApproximateDP(1.0, 1e-6) + hs.Gaussian(2.0),
    "next to never": hs.PoissonSampled(hs.Gaussian(1.0), 1e-60) * 3 + hs.Gaussian(3.0),
    "hardly hidden": hs.PoissonSampled(hs.Gaussian(0.05), 0.01) * 100,
}


@pytest.mark.sweep
@pytest.mark.parametrize("kind", KINDS)
def test_the_rough_curve_and_the_close_one_meet(kind: str) -> None:
    profile = hs.account(KINDS[kind], "remove")
    wide = min(profile.widest_epsilon(), 690.0)
    points = np.sort(np.append(np.linspace(-wide, 0.9 * wide, 6), [-math.inf, 0.0, math.inf]))
    lower, upper = profile.rough_curve(points)
    close = np.array([profile.delta_bounds(at) for at in points.tolist()])
    assert (lower <= close[:, 1]).all()
    assert (close[:, 0] <= upper).all()
    (envelope,) = profile.overview
    lower, upper = envelope.between(points)
    assert (lower <= close[:, 1]).all()
    assert (close[:, 0] <= upper).all()
    # Roughly, but not so roughly that nothing is said.
    if wide < 690.0:
        assert (upper - lower <= 0.25 * upper + 2e-12).all()


@pytest.mark.parametrize(
    "nodes", [[0.0], [0.7], [-0.4, 0.4], [-1.0, 1.0], [-3.0, -1.1, 0.2, 3.0], [-600.0, 0.0, 600.0]]
)
@pytest.mark.parametrize("name", ["randomised response", "gaussian"])
def test_few_nodes_enclose_the_whole_curve(name: str, nodes: list[float]) -> None:
    """Also before the first of them, where delta falls by all of e^epsilon, and where exponentials overflow between two."""

    def response(epsilon: float) -> float:
        keep, flip = math.e / (1.0 + math.e), 1.0 / (1.0 + math.e)
        return max(0.0, keep - math.exp(epsilon) * flip) + max(0.0, flip - math.exp(epsilon) * keep)

    step, truth = (
        (hs.RandomizedResponse(1.0, 2), response)
        if name == "randomised response"
        else (hs.Gaussian(1.0), lambda epsilon: gaussian_delta(1.0, epsilon))
    )
    envelope = Envelope(hs.account(step, "remove").delta_curve, np.array(nodes))
    points = np.linspace(-5.0, 5.0, 201)
    lower, upper = envelope.between(points)
    for at, low, up in zip(points.tolist(), lower, upper, strict=True):
        assert low - 1e-12 <= truth(at) <= up + 1e-12


@pytest.mark.parametrize("adjacency", ["add_or_remove", "remove"])
def test_between_what_is_known_and_what_is_only_declared(adjacency: str) -> None:
    """Beside a Gaussian: what keeps 0.1-zCDP may show nothing, or be one more Gaussian; a curve has room for both, at nodes and between."""
    profile = hs.account(hs.ZCDP(0.1) + hs.Gaussian(2.0), adjacency)
    least, most = 0.5, math.sqrt(0.2 + 0.25)
    points = np.linspace(-2.0, 4.0, 601)
    for envelope in profile.overview:
        lower, upper = envelope.between(points)
        for at, low, up in zip(points.tolist(), lower, upper, strict=True):
            assert low <= gaussian_delta(least, at) * (1.0 + 1e-12)
            assert gaussian_delta(most, at) <= up * (1.0 + 1e-12)
    found = profile.report(delta=1e-5).gdp
    assert found is not None
    assert found.mu_bounds.lower <= least + 1e-9
    assert most * (1.0 - 1e-6) <= found.mu < 2.0 * most
    # So is the distance between the trade-off of mu-GDP and that of either.
    regrets = [
        max(
            (gaussian_delta(found.mu, at) - gaussian_delta(mu, at)) / (1.0 + math.exp(at))
            for at in np.linspace(0.0, 4.0, 401).tolist()
        )
        for mu in (most, least)
    ]
    assert found.regret.lower <= regrets[0] * (1.0 + 1e-3)
    assert regrets[1] <= found.regret.upper


def test_lattices_against_enumeration() -> None:
    """Three rounds of a pair whose losses are on no common lattice, by all outcomes."""
    p, q = (0.5, 0.2, 0.3), (0.25, 0.35, 0.4)
    profile = hs.account(hs.FinitePair(p, q) * 3, "remove", engine="fft")
    with mp.workdps(30):
        laws = [[mp.mpf(x) for x in law] for law in (p, q)]
        outcomes = [
            tuple(mp.fprod(law[i] for i in place) for law in laws) for place in product(range(3), repeat=3)
        ]
        points = np.linspace(-1.9, 2.4, 40)
        truth = [
            sum(max(mp.mpf(0), a - mp.exp(mp.mpf(at)) * b) for a, b in outcomes) for at in points.tolist()
        ]
        for lower, upper in (profile.rough_curve(points), profile.overview[0].between(points)):
            assert all(low - 1e-15 <= delta <= up for low, delta, up in zip(lower, truth, upper, strict=True))
        for fpr in (1e-3, 0.07, 0.4):
            best = sorted(outcomes, key=lambda pair: -pair[0] / pair[1])
            power, left = mp.mpf(0), mp.mpf(fpr)
            for a, b in best:
                power += a * min(mp.mpf(1), left / b)
                left -= min(left, b)
            found = hs.accounting.Risk(profile, roughly=True).tpr(fpr)
            assert found.lower <= power <= found.upper


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-4.0, 4.0), min_size=2, max_size=12, unique=True),
    st.lists(st.floats(1e-6, 1.0), min_size=3, max_size=3),
    st.lists(st.floats(1e-6, 1.0), min_size=3, max_size=3),
    st.floats(0.0, 0.1),
)
def test_between_nodes(nodes: list[float], p: list[float], q: list[float], noise: float) -> None:
    """Any pair of three outcomes, known up to ``noise`` at any nodes."""
    with mp.workdps(40):
        present = [mp.mpf(x) / sum(map(mp.mpf, p)) for x in p]
        absent = [mp.mpf(x) / sum(map(mp.mpf, q)) for x in q]

        def truth(epsilon: float) -> mp.mpf:
            y = mp.mpf(0) if epsilon == -math.inf else mp.exp(mp.mpf(epsilon))
            return sum((max(mp.mpf(0), a - y * b) for a, b in zip(present, absent, strict=True)), mp.mpf(0))

        def curve(epsilon: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            values = np.array([0.0 if at == math.inf else float(truth(at)) for at in epsilon.tolist()])
            return np.maximum(0.0, values * (1 - noise) - 1e-16), np.minimum(
                1.0, values * (1 + noise) + 1e-16
            )

        envelope = Envelope(curve, np.array(nodes)).close()
        points = np.array([-math.inf, *np.linspace(-6.0, 6.0, 25), *nodes])
        lower, upper = envelope.between(points)
        for at, low, up in zip(points.tolist(), lower, upper, strict=True):
            assert low <= truth(at) + 1e-15
            assert truth(at) <= up + 1e-15
        assert not envelope.ask(np.array([0.123]))


def test_a_look_asks_twice_and_no_more() -> None:
    """However hard the curve is: what a report costs is fixed beforehand."""
    asked: list[int] = []

    class Counted:
        def widest_epsilon(self) -> float:
            return 3.0

        def rough_curve(self, epsilon: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            asked.append(epsilon.size)
            value = np.exp(-np.maximum(epsilon, 0.0) * 5) * 0.3 + np.maximum(0.0, -np.expm1(epsilon)) * 0.7
            return np.where(np.isinf(epsilon), 0.0, value * 0.9), np.where(np.isinf(epsilon), 0.0, value)

    envelope = look(Counted())  # type: ignore[arg-type]
    assert len(asked) == 2
    assert sum(asked) < 200
    assert not envelope.ask(np.array([0.5]))
