"""Certificates that claim too little, with a proof of something else, are refused."""

from __future__ import annotations

import json
from typing import Any

import hockeystick as hs
import pytest
from hockeystick.verify.check import verify
from hockeystick.verify.document import FORMAT, write


@pytest.mark.parametrize(
    "step",
    [
        hs.FinitePair((0.9, 0.1), (0.6, 0.4)),
        hs.Mixture([hs.PoissonSampled(hs.PureDP(0.5), 0.3), hs.Gaussian(2.0)], [0.5, 0.5]),
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
