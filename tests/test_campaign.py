"""A slice of the soundness campaign, what it found, and that it finds what it should."""

from __future__ import annotations

import contextlib
import json
import math
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import flint
import hockeystick as hs
import mpmath as mp
import pytest
from flint import arb
from hockeystick.mechanisms import Skellam

from tests.campaign import checks, requests, runner
from tests.campaign.balls import Enclosure, Infeasible, to_float
from tests.campaign.truth import truth

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("seed", [26, 28, 34])
def test_slice(seed: int) -> None:
    found = runner.Summary(seed)
    for index in range(8):
        found.add(runner.composition(seed, index))
    assert found.checks > 2000
    assert found.sound, found.markdown()


def _contains(bounds: hs.Bounds, known: Enclosure) -> bool:
    return not known.above(bounds.upper) and not known.below(bounds.lower)


# A rounding of the loss that crosses an atom: both engines said 5e-324, or missed the steeper side of the kink.
FOUND = [
    (
        hs.PoissonSampled(hs.RandomizedResponse(1.0, 3), 2.0331794016843358e-09),
        "remove",
        3.493575213808894e-09,
    ),
    (hs.WithoutReplacement(hs.PureDP(0.5), 978, 1000), "replace_one", 0.4913059909028807),
    (hs.PoissonSampled(hs.PureDP(0.5), 0.000291836526556203), "add_or_remove", 0.00018930264346816064),
    (
        hs.PoissonSampled(hs.DiscreteGaussian(1.6741829153996821), 0.006703352636662047),
        "add",
        0.006687682815242329,
    ),
    (hs.PureDP(0.5) * 0, "replace_one", -37.91928339976735),
    (
        hs.PoissonSampled(hs.DiscreteLaplace(0.23565993593636586, 3), 1.0 - 2.0**-53) * 2,
        "replace_one",
        50.920831970448404,
    ),
    (hs.DiscreteGaussian(0.6206164228997155), "remove", 11.683312323476871),
    # Q's mass at -inf, taken as a difference from 1, over many steps.
    (hs.ApproximateDP(2.9836571624915978e-06, 8.794920054176708e-11) * 113702, "remove", 0.0),
    (
        hs.ApproximateDP(0.0003580165986510281, 4.427838312822795e-15) * 188603935,
        "add_or_remove",
        -6.558339312102533,
    ),
    # Next to the end of the support, what one step gains was divided by a denormal.
    (
        hs.PoissonSampled(hs.PureDP(0.009129134176706884), 0.99) * 5
        + hs.PoissonSampled(hs.Gaussian(9.328137982196582), 0.0514510641752184),
        "add_or_remove",
        -0.08172168539556786,
    ),
    # P's mass of an outcome underflows, and Q's is nearly 1.
    (
        hs.PoissonSampled(hs.RandomizedResponse(714.4439492857133, 2), 0.008570302858184687) * 3,
        "remove",
        -6.307233957667875,
    ),
    # Less than any double, and positive.
    (
        hs.PoissonSampled(hs.DiscreteGaussian(1.0, 2), 3.286861289368209e-117),
        "remove",
        2.46462565835937e-83,
    ),
    (hs.PoissonSampled(hs.Gaussian(0.0), 0.5) * 10, "add", 6.9),
    (hs.PoissonSampled(hs.ApproximateDP(0.1, 1e-3), 0.9) * 19, "add", 2.0),
]


@pytest.mark.sweep
@pytest.mark.parametrize(("process", "adjacency", "epsilon"), FOUND)
@pytest.mark.parametrize("engine", checks.ENGINES)
def test_found_before(process: hs.Composable, adjacency: str, epsilon: float, engine: str) -> None:
    with flint.ctx.workprec(300):
        known = truth(process, adjacency).delta(epsilon)
        bounds = hs.account(process, adjacency, engine=engine).delta_bounds(epsilon)
        assert 0.0 <= bounds.lower <= bounds.upper <= 1.0
        assert _contains(bounds, known)


@pytest.mark.parametrize("engine", checks.ENGINES)
def test_masses_that_underflow_are_not_lost(engine: str) -> None:
    rng = random.Random(13)
    known_cases = 0
    with flint.ctx.workprec(5000):
        for _ in range(20):
            epsilon, steps = rng.uniform(600.0, 1600.0), rng.choice((1, 2, 3))
            base = rng.choice(
                (
                    hs.RandomizedResponse(epsilon, rng.choice((2, 3))),
                    hs.PureDP(epsilon),
                    hs.ApproximateDP(epsilon, 1e-3),
                    hs.DiscreteLaplace(1.0 / epsilon),
                )
            )
            other = hs.RandomizedResponse(1.0, 2)
            process: hs.Composable = rng.choice(
                (
                    hs.PoissonSampled(base, rng.uniform(1e-3, 1.0)) * steps,
                    hs.Mixture([base, other], [0.25, 0.75]) * steps,
                    base * steps,
                    base + hs.PoissonSampled(base, 0.25),
                )
            )
            adjacency = rng.choice(("remove", "add", "replace_one"))
            profile = hs.account(process, adjacency, engine=engine)
            with contextlib.suppress(Infeasible):
                known = truth(process, adjacency)
                for at in (-6.3, 0.0, 0.5, 5.0, epsilon - 1.0, epsilon + 1.0, 2.0 * epsilon - 3.0):
                    assert _contains(profile.delta_bounds(at), known.delta(at))
                    known_cases += 1
    assert known_cases > 60


@pytest.mark.parametrize("engine", checks.ENGINES)
def test_a_positive_delta_is_never_reported_as_zero(engine: str) -> None:
    rng = random.Random(11)
    bases = (
        hs.RandomizedResponse(1.0, 3),
        hs.PureDP(0.5),
        hs.ApproximateDP(0.1, 1e-300),
        hs.DiscreteLaplace(1.0, 2),
        hs.DiscreteGaussian(1.0, 2),
    )
    with flint.ctx.workprec(2500):
        for _ in range(15):
            base, q, steps = rng.choice(bases), 10.0 ** rng.uniform(-300.0, -10.0), rng.choice((1, 2, 3, 40))
            adjacency = rng.choice(("remove", "add", "replace_one"))
            process = hs.PoissonSampled(base, q) * steps
            profile = hs.account(process, adjacency, engine=engine)
            epsilon = profile.epsilon(0.0)
            for share in (1e-30, 0.5, 0.999):
                at = min(epsilon, 1e3) * share
                if at == 0.0:
                    continue
                bounds = profile.delta_bounds(at)
                with contextlib.suppress(Infeasible):
                    assert _contains(bounds, truth(process, adjacency).delta(at))
                assert bounds.upper > 0.0
                assert profile.delta_curve([at])[1][0] > 0.0


def test_mu_of_tiny_losses_is_no_less_than_the_truth() -> None:
    """2 Phi^-1(e^eps / (1 + e^eps)) for a pure step, sqrt(steps) times as much for many: never rounded to 0."""
    with mp.workdps(400):
        for epsilon in (1e-300, 2.3e-297, 1e-100, 1e-16, 1e-12, 3e-9, 1e-6, 9.99e-4, 1.001e-3, 0.1, 3.0):
            single = 2 * mp.sqrt(2) * mp.erfinv(mp.tanh(mp.mpf(epsilon) / 2))
            for steps in (1, 5, 10**6):
                bound = hs.account(hs.PureDP(epsilon) * steps).gdp_mu()
                assert single <= bound <= single * mp.sqrt(steps) * (1 + mp.mpf("1e-6"))
    rare = hs.PoissonSampled(hs.RandomizedResponse(1.2412337054693483, 5), 2.3167674762335458e-297) * 5
    mu = hs.account(rare, "zero_out").gdp_mu()
    # delta(0) of a Gaussian is 2 Phi(mu/2) - 1 < mu / sqrt(2 pi).
    assert mu / math.sqrt(2.0 * math.pi) >= hs.account(rare, "zero_out").delta_bounds(0.0).lower
    assert mu > 0.0


def test_tradeoff_is_rounded_down() -> None:
    with flint.ctx.workprec(200):
        for delta in (2.915357260604765e-07, 1e-3, 0.3, 1e-16):
            step = hs.ApproximateDP(0.0, delta) * 5
            error = (-arb(delta)).log1p() * 5
            assert arb(hs.account(step).tradeoff(5e-324)) <= error.exp()


def test_every_kink_of_a_finite_pair() -> None:
    """Beside every loss, to within a few roundings: sampled, joined and mixed pairs alike."""
    rng = random.Random(5)
    with flint.ctx.workprec(400):
        for _ in range(150):
            base = rng.choice(
                (
                    hs.RandomizedResponse(rng.uniform(0.01, 3.0), rng.choice((2, 3, 7))),
                    hs.DiscreteLaplace(rng.uniform(0.3, 3.0), 3),
                )
            )
            q = requests.log_uniform(rng, 1e-9, 0.999)
            n = rng.randint(2, 2000)
            step = rng.choice(
                (hs.PoissonSampled(base, q), hs.WithoutReplacement(base, rng.randint(1, n - 1), n), base)
            )
            adjacency = (
                "replace_one"
                if isinstance(step, hs.WithoutReplacement)
                else rng.choice(requests.ADJACENCIES[:4])
            )
            known, profile = truth(step, adjacency), hs.account(step, adjacency)
            kinks = {x for part in getattr(known, "directions", [known]) for x in part.notable()}  # type: ignore[attr-defined]
            for kink in kinks:
                for epsilon in (
                    math.nextafter(kink, -9.0),
                    kink,
                    math.nextafter(kink, 9.0),
                    kink * (1 - 1e-12),
                ):
                    assert _contains(profile.delta_bounds(epsilon), known.delta(epsilon)), (
                        step,
                        adjacency,
                        epsilon,
                    )


def test_the_oracle_agrees_with_definitions() -> None:
    """Binomial sums, normal tails and a numerical integral by another library: mpmath."""
    with mp.workdps(40), flint.ctx.workprec(200):
        e = mp.mpf("0.25")
        p = mp.exp(e) / (mp.exp(e) + 1)
        for steps, epsilon in ((7, 0.5), (600, 3.0)):
            terms = (
                mp.binomial(steps, j)
                * p**j
                * (1 - p) ** (steps - j)
                * max(0, 1 - mp.exp(epsilon - (2 * j - steps) * e))
                for j in range(steps + 1)
            )
            known = truth(hs.RandomizedResponse(0.25) * steps, "remove").delta(epsilon)
            _close(known, mp.fsum(terms), 1e-9)
        sampled = mp.quad(
            lambda t: max(0, mp.mpf("0.75") * mp.npdf(t) + mp.npdf(t, 1) / 4 - mp.exp("0.5") * mp.npdf(t)),
            [mp.log((mp.exp("0.5") - 0.75) * 4) + 0.5, 5, 9, 20],
        )
        _close(truth(hs.PoissonSampled(hs.Gaussian(1.0), 0.25), "remove").delta(0.5), sampled, 1e-15)
        laplace = (
            mp.quad(lambda t: (1 - mp.exp(0.5 - t)) * mp.exp((t - 1) / 2) / 4, [0.5, 1])
            + (1 - mp.exp(-0.5)) / 2
        )
        _close(truth(hs.Laplace(1.0), "add").delta(0.5), laplace, 1e-15)


def _close(known: Enclosure, value: mp.mpf, relative: float) -> None:
    assert abs(to_float(known.low) / float(value) - 1.0) <= relative
    assert abs(to_float(known.high) / float(value) - 1.0) <= relative


def test_methods_agree() -> None:
    """Enumeration, binomial sums, closed forms and merging overlap wherever two of them know the same thing."""
    from tests.campaign import binomials, finite, laplace, located, quantised

    with flint.ctx.workprec(200):
        pair = finite.sampled(finite.response(arb("0.4")), arb("0.3"))
        step = located.Located("laplace", ((arb("0.8"), arb(1)),), ((arb(0), arb(1)),))
        lattice = finite.integer_gaussian(arb("0.9"), {1: arb(1)}, {0: arb(1)}, 60.0)
        known = [
            (
                finite.FiniteLaw([(pair, 20)]),
                binomials.TwoLosses(pair, 20),
                quantised.Quantised([(pair, 20)]),
            ),
            (laplace.LaplaceSum(arb("0.8"), 6), quantised.Quantised([(step, 6)])),
            (finite.FiniteLaw([(lattice, 9)]), quantised.Quantised([(lattice, 9)])),
        ]
        for laws in known:
            for epsilon in (-0.7, 0.0, 0.31, 1.0, 2.0, 3.3):
                found = [law.delta(epsilon) for law in laws]
                assert max(to_float(x.low) for x in found) <= min(to_float(x.high) for x in found) * (
                    1 + 1e-12
                ), epsilon


def test_wrong_bounds_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that are off by one part in 1e9 are violations, on either side and of either quantity."""

    class Off:
        def __init__(self, profile: hs.PrivacyProfile, up: float) -> None:
            self.profile, self.up = profile, up

        def __getattr__(self, name: str):  # type: ignore[no-untyped-def]
            return getattr(self.profile, name)

        def delta_curve(self, epsilon):  # type: ignore[no-untyped-def]
            lower, upper = self.profile.delta_curve(epsilon)
            return lower * self.up, upper * self.up

        def epsilon_bounds(self, delta: float) -> hs.Bounds:
            return hs.Bounds(*(x * self.up for x in self.profile.epsilon_bounds(delta)))

    account = hs.account
    asked = requests.Request("declared", (hs.PureDP(0.3) * 5).as_process(), "remove", 200)
    for up, expected in (
        (1.0, set()),
        (1.0 - 1e-9, {"upper bound"}),
        (1.0 + 1e-9, {"lower bound", "not an interval"}),
    ):
        monkeypatch.setattr(hs, "account", lambda *args, up=up, **options: Off(account(*args, **options), up))
        found = checks.examine(asked, random.Random(3)).violations
        assert {v["violated"] for v in found} - {"not an interval"} == expected - {"not an interval"}
        questions = {v["question"] for v in found if v["violated"] != "not an interval"}
        assert questions == ({"delta_curve", "epsilon_bounds"} if expected else set())


def test_requests_reach_every_family_and_adjacency() -> None:
    rng = random.Random(1)
    asked = [requests.request(rng) for _ in range(3000)]
    families = Counter(request.family for request in asked)
    assert set(families) == set(requests.FAMILIES)
    assert {request.adjacency for request in asked} == set(requests.ADJACENCIES)
    assert max(request.process.steps for request in asked) >= 10**9


def test_command(tmp_path: Path) -> None:
    """The same summary from one process or two, and from a run that was interrupted."""

    def run(*options: str) -> str:
        summary = tmp_path / "summary.md"
        command = [
            sys.executable,
            "-m",
            "tests.campaign",
            "--seed",
            "22",
            "--checks",
            "1500",
            "--summary",
            str(summary),
        ]
        done = subprocess.run(
            [*command, *options], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return summary.read_text()

    record = tmp_path / "record.jsonl"
    whole = run("--jobs", "1", "--resume", str(record))
    lines = record.read_text().splitlines()
    kept = [line for line in lines if line.strip()]
    assert len(kept) > 3
    record.write_text("\n".join(kept[:3]) + "\n" + kept[3][:40])
    assert run("--jobs", "2", "--resume", str(record)) == whole
    entry = json.loads(kept[1])
    assert entry["index"] == 0


def test_what_no_method_knows_is_passed_over() -> None:
    with flint.ctx.workprec(200):
        for process, adjacency in (
            (hs.PoissonSampled(hs.Gaussian(1.0), 0.01) * 10**9, "remove"),
            (hs.TruncatedPoissonSampled(2.75, 50, 0.5, 25) * 10, "zero_out"),
        ):
            with pytest.raises(Infeasible):
                truth(process, adjacency)


@pytest.mark.parametrize(
    "process",
    [
        hs.WithoutReplacement(hs.Gaussian(1.0), 3, 10) * 6,
        hs.WithReplacement(hs.Gaussian(1.5), 2, 5) * 3,
        hs.PoissonSampled(Skellam(3.0, 2), 0.1) * 2,
    ],
)
def test_joined_layers_and_integers_on_both_sides(process: hs.Composable) -> None:
    """Merged outcomes below, outcomes on the ends of their losses above: joined layers of noise over several steps."""
    profile = hs.account(process, "replace_one")
    with flint.ctx.workprec(300):
        known = truth(process, "replace_one")
        for epsilon in (-0.5, 0.0, 0.3, 2.0):
            enclosure = known.delta(epsilon)
            assert to_float(enclosure.high) <= to_float(enclosure.low) * 1.003
            assert _contains(profile.delta_bounds(epsilon), enclosure)
