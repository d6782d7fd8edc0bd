"""Certificates that claim too little, with a proof of something else, are refused."""

from __future__ import annotations

import json
import math
from typing import Any

import hockeystick as hs
import pytest
from flint import arb, ctx
from hockeystick import mechanisms
from hockeystick.verify.check import own_precision, verify
from hockeystick.verify.document import FORMAT, write
from hockeystick.verify.inversion import Line, Part, delta_bound
from mpmath import mp

from bench.baselines.exact import gaussian_delta


@pytest.mark.parametrize(
    "step",
    [
        hs.FinitePair((0.9, 0.1), (0.6, 0.4)),
        hs.Mixture([hs.PoissonSampled(hs.PureDP(0.5), 0.3), hs.Gaussian(2.0)], [0.5, 0.5]),
        hs.MixtureOfGaussians(1.0, (0.0, 2.0), (0.7, 0.3)),
        hs.FinitePair((0.9, 0.1), (0.6, 0.4)) + hs.PureDP(0.1),  # the last step is its own reverse
    ],
    ids=str,
)
def test_both_directions_are_proven_where_they_differ(step: Any) -> None:
    text = hs.account(step).report(epsilon=0.3).certificate(slack=1e-2)
    assert verify(text).accepted
    content = json.loads(text)
    (claim,) = content["claims"]
    assert set(claim["proof"]) == {"remove", "add"}
    del claim["proof"]["add"]
    assert not verify(write(content)).accepted


def forged(release: Any, adjacency: str, epsilon: float, delta: float, **proof: Any) -> str:
    numbers = {"precision": 128, "cells": 256, "reach": 12.0, **proof}
    process = release.as_process()
    claim = {"epsilon": epsilon, "delta": delta, "proof": {"remove": numbers}}
    content = {
        "format": FORMAT,
        "release": hs.mechanisms.to_dict(process),
        "adjacency": adjacency,
        "claims": [claim],
    }
    return write({**content, "made_by": {}})


@pytest.mark.parametrize(
    ("release", "method"),
    [
        (hs.PureDP(0.1) + hs.Gaussian(1.0), "closed form"),
        (hs.PureDP(0.1) + hs.Gaussian(1.0), "largest loss"),
        (hs.PureDP(0.1) * 2, "closed form"),
        (hs.PureDP(0.1) * 2, "largest loss"),
    ],
    ids=str,
)
def test_methods_are_for_what_they_know(release: Any, method: str) -> None:
    """Nothing beyond a loss of 0.1 but for the other step."""
    assert verify(forged(hs.PureDP(0.1), "remove", 0.11, 0.0, method=method)).accepted
    assert not verify(forged(release, "remove", 0.11, 1e-9, method=method)).accepted


def test_infinite_losses_of_all_steps_count() -> None:
    release = hs.ApproximateDP(0.1, 1e-3) * 3
    assert verify(forged(release, "remove", 0.31, 3.1e-3, method="largest loss")).accepted
    assert not verify(forged(release, "remove", 0.31, 1.5e-3, method="largest loss")).accepted


def test_replacing_moves_twice_as_far_and_given_pairs_need_their_reverse() -> None:
    for release in (hs.Laplace(10.0), hs.Gaussian(10.0)):
        lower = hs.account(release, "replace_one").delta_bounds(0.0).lower
        assert not verify(forged(release, "replace_one", 0.0, 0.9 * lower, method="closed form")).accepted
    pair = hs.FinitePair((0.9, 0.1), (0.6, 0.4))
    both = json.loads(forged(pair, "replace_one", 0.3, 0.9, method="closed form"))
    (claim,) = both["claims"]
    claim["proof"]["add"] = claim["proof"]["remove"]
    assert not verify(write(both)).accepted
    published = hs.WithoutReplacement(hs.Gaussian(1.0), 1, 10, pair="koskela2020")
    assert not verify(forged(published, "replace_one", 0.3, 0.9, method="closed form")).accepted


@pytest.mark.parametrize(
    ("smoothing", "tilt", "period", "nodes"),
    [
        (1e-3, 1.0, 60.0, 9),
        (0.3, 0.1, 60.0, 15),
        (2.0, 4.0, 60.0, 15),
        (1.0, 1.0, 6.28, 1),
    ],
)
def test_what_lies_beyond_few_nodes_is_counted(
    smoothing: float, tilt: float, period: float, nodes: int
) -> None:
    """A line may end as early as the prover likes: a loss of 1/2 beside a Gaussian, which has a closed form."""
    part = Part([(arb(0.5), arb(1))], arb(0), 1)
    line = Line(arb(tilt), arb(period), nodes, arb(smoothing))
    with own_precision(), mp.workdps(40):
        ctx.prec = 192
        for k in range(41):
            epsilon = (k / 40 - 0.5) * period
            truth = gaussian_delta(smoothing, mp.mpf(epsilon) - 0.5)
            bound = delta_bound([part], arb(0), arb(epsilon), line)
            assert mp.mpf(bound.upper().str(40, radius=False)) >= truth * (1 - mp.mpf(10) ** -30)


def test_nothing_that_is_released_has_its_divergence_below_zero_too() -> None:
    """1 - e^epsilon: at epsilon = -1 it is 0.63."""
    nothing = hs.mechanisms.descriptions.Process()
    for claim, accepted in ((0.64, True), (0.63, False), (0.0, False)):
        assert verify(forged(nothing, "remove", -1.0, claim, method="closed form")).accepted == accepted


@pytest.mark.parametrize(
    ("release", "adjacency", "claim"),
    [
        # Cells so narrow that both ends of one are the same to the digits that are computed.
        (hs.PoissonSampled(hs.Gaussian(2.0**30), 0.5), "remove", 0.1994 * 2.0**-30),
        # A response that these digits do not tell from none, sampled half of the time.
        (hs.WithoutReplacement(hs.PureDP(1e-25), 1, 2), "replace_one", 0.0),
    ],
    ids=str,
)
def test_what_few_digits_do_not_tell_apart_is_no_less(release: Any, adjacency: str, claim: float) -> None:
    numbers = {"method": "closed form", "precision": 64, "cells": 64}
    assert hs.account(release, adjacency).delta_bounds(0.0).upper > claim
    assert not verify(forged(release, adjacency, 0.0, claim, **numbers)).accepted
    assert verify(forged(release, adjacency, 0.0, 2.0**-30, **{**numbers, "precision": 256})).accepted


def test_what_is_shown_in_either_world_counts_where_it_is_sampled() -> None:
    """Of ApproximateDP sampled with rate q: delta of direction "add" by its four outcomes."""
    release, rate = hs.PoissonSampled(hs.ApproximateDP(0.1, 0.05), 0.5), 0.5
    with mp.workdps(30):
        other = (1 - mp.mpf(0.05)) / (1 + mp.exp(mp.mpf(0.1)))
        # (with, without) of the unsampled pair: told, not told, and the data in one world or the other.
        outcomes = [
            (other * mp.exp(0.1), other),
            (other, other * mp.exp(0.1)),
            (mp.mpf(0.05), 0),
            (0, mp.mpf(0.05)),
        ]
        p = [rate * a + (1 - rate) * b for a, b in outcomes]
        truth = mp.fsum(max(b - a, 0) for a, (_, b) in zip(p, outcomes, strict=True))
    proof = json.loads(forged(release, "add", 0.0, float(truth), method="closed form"))
    for share, accepted in ((1.0 + 1e-9, True), (1.0 - 1e-9, False)):
        (claim,) = proof["claims"]
        claim["delta"] = float(truth) * share
        claim["proof"] = {"add": next(iter(claim["proof"].values()))}
        assert verify(write(proof)).accepted == accepted


def test_probabilities_are_completed_to_one() -> None:
    """The largest is what the others leave: 4e-13 more than as it is given; and a sum that is another is refused."""
    release = hs.FinitePair((0.5, 0.5 - 8e-13), (1e-6, 1.0 - 1e-6))
    proof = json.loads(forged(release, "remove", 0.0, 0.5, method="closed form"))
    (claim,), (item,) = proof["claims"], proof["release"]["items"]
    for delta, accepted in ((0.5 - 1e-6 + 9e-13, True), (0.5 - 1e-6 + 4e-13, False)):
        claim["delta"] = delta
        assert verify(write(proof)).accepted == accepted
    claim["delta"], item["step"]["p"] = 0.9, [0.5, 0.4]
    assert "sum to 1" in verify(write(proof)).reason


RARE, LOSS = 2e-3, 3.5
"""A pair of two outcomes: one of probability RARE, and e^-LOSS times that in the other world."""


def rare_divergence(order: float) -> float:
    """Renyi's, of that pair, rounded up."""
    with mp.workdps(40):
        p, q = mp.mpf(RARE), mp.mpf(RARE) * mp.exp(-LOSS)
        moment = p**order * q ** (1 - order) + (1 - p) ** order * (1 - q) ** (1 - order)
        return float(mp.log(moment) / (order - 1)) * (1.0 + 1e-12)


def rare_delta(epsilon: float) -> float:
    return RARE * -math.expm1(epsilon - LOSS)


PEAK = LOSS - math.log(2.0)
"""Where no pair with this divergence of order 2 has more."""
RARELY_KNOWN = mechanisms.RenyiCurve((2.0,), (rare_divergence(2.0),)) + mechanisms.ZCDP(1e-9)
CURVE = mechanisms.DeclaredProfile((0.0, 1.0), (0.3, 0.05), error=0.01)
MIXTURE = mechanisms.MixtureOfGaussians(1.0, (0.0, 1.0, 2.0), (0.5, 0.3, 0.2))
KNOWN = [
    # Declared curves: between two points the chord in e^epsilon, beyond the last one that.
    (CURVE, "remove", 0.5, 0.31 - 0.25 * math.expm1(0.5) / math.expm1(1.0)),
    (CURVE, "remove", 5.0, 0.06),
    (mechanisms.PoissonSampled(CURVE, 0.5), "add", 0.0, 0.155),
    (mechanisms.PoissonSampled(CURVE, 0.5), "remove", 0.0, 0.155),
    # Renyi divergences: of a Gaussian (mu^2/2 times the order), and of two outcomes at one order and at two.
    (mechanisms.ZCDP(0.5), "remove", 1.0, float(gaussian_delta(1.0, 1.0))),
    (mechanisms.ZCDP(0.125) * 4, "remove", 1.0, float(gaussian_delta(1.0, 1.0))),
    (mechanisms.ZCDP(0.3) + mechanisms.ZCDP(0.2), "remove", 1.0, float(gaussian_delta(1.0, 1.0))),
    (mechanisms.RenyiCurve((2.0,), (rare_divergence(2.0),)), "remove", 3.0, rare_delta(3.0)),
    (
        mechanisms.RenyiCurve((2.0, 9.0), tuple(map(rare_divergence, (2.0, 9.0)))),
        "remove",
        2.0,
        rare_delta(2.0),
    ),
    (mechanisms.RenyiCurve((2.0,), (rare_divergence(2.0),)), "remove", PEAK, rare_delta(PEAK)),
    (RARELY_KNOWN, "remove", 3.0, rare_delta(3.0)),
    (mechanisms.ZCDP(0.005), "remove", 0.0, float(gaussian_delta(0.1, 0.0))),
    # By the certified lower bound of the core.
    (MIXTURE, "remove", 0.5, None),
    (MIXTURE, "add", 0.5, None),
    (MIXTURE, "replace_one", 0.5, None),
    (mechanisms.UserLevel(mechanisms.PoissonSampled(mechanisms.Gaussian(1.0), 0.3), 2), "remove", 2.0, None),
    (
        mechanisms.UserLevel(mechanisms.PoissonSampled(mechanisms.Gaussian(1.0), 0.3), 2),
        "replace_one",
        2.0,
        None,
    ),
    (mechanisms.PoissonSampled(mechanisms.RandomizedResponse(1.0, 3), 0.3), "zero_out", 0.1, None),
    (mechanisms.PoissonSampled(mechanisms.RandomizedResponse(1.0, 3), 0.3), "replace_one", 0.1, None),
]


@pytest.mark.sweep
@pytest.mark.parametrize(("release", "adjacency", "epsilon", "known"), KNOWN, ids=lambda x: str(x)[:60])
def test_nothing_below_what_is_known_is_proven(
    release: Any, adjacency: str, epsilon: float, known: float | None
) -> None:
    """Claims a little below a delta that some pair has; a little above an upper bound they are accepted, so that it is not for another reason."""
    steps = hs.account(release, adjacency)
    least = steps.delta_bounds(epsilon).lower if known is None else known
    numbers = {"method": "closed form", "cells": 4096}
    for claim, accepted in ((0.999 * least, False), (1.01 * steps.delta(epsilon), True)):
        content = json.loads(forged(release, adjacency, epsilon, claim, **numbers))
        proof = content["claims"][0]["proof"]
        if adjacency == "add":
            proof["add"] = proof.pop("remove")
        verdict = verify(write(content))
        assert verdict.accepted == accepted, verdict
        assert accepted or "is not proven in direction" in verdict.reason


@pytest.mark.parametrize("adjacency", ["zero_out", "add_or_remove", "add", "remove"])
def test_a_batch_of_fixed_size_is_compared_with_one_of_another_record_alone(adjacency: str) -> None:
    release = hs.WithoutReplacement(hs.Gaussian(1.0), 1, 10)
    content = json.loads(forged(release, adjacency, 0.3, 0.9, method="closed form"))
    proof = content["claims"][0]["proof"]
    if adjacency == "add":
        proof["add"] = proof.pop("remove")
    assert "replace_one only" in verify(write(content)).reason
    null = json.loads(forged(hs.mechanisms.RandomizedResponse(1.0), "remove", 0.3, 0.9, method="closed form"))
    for told in (True, 1, "no", None):
        null["release"]["items"][0]["step"]["uniform_null"] = told
        assert "uniform null" in verify(write(null)).reason
