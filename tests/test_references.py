"""Every interval contains the truth: 25-digit references by mpmath, `references/generate.py`."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import hockeystick as hs
import pytest

TABLE = json.loads((Path(__file__).parent / "references" / "subsampled_gaussian.json").read_text())
ENTRIES = TABLE["entries"]


def profile(entry: dict[str, Any], **options: Any) -> hs.PrivacyProfile:
    step = hs.PoissonSampled(hs.Gaussian(float(entry["sigma"])), float(entry["q"]))
    return hs.account(step * int(entry["steps"]), adjacency=entry["direction"], **options)


def contains(bounds: hs.Bounds, truth: Decimal) -> bool:
    return Decimal(bounds.lower) <= truth <= Decimal(bounds.upper)


def test_delta_contains_the_truth_and_is_mostly_exact() -> None:
    exact = 0
    for entry in ENTRIES:
        account, epsilon, truth = profile(entry), float(entry["epsilon"]), Decimal(entry["delta"])
        bounds = account.delta_bounds(epsilon=epsilon)
        assert contains(bounds, truth), entry
        answer = account.report(epsilon=epsilon).delta
        assert answer is not None
        middle = (Decimal(bounds.lower) + Decimal(bounds.upper)) / 2
        exact += answer.engine != "fft" and abs(middle / truth - 1) < Decimal("1e-10")
    assert len(ENTRIES) >= 200
    assert exact >= 0.9 * len(ENTRIES)


def test_epsilon_is_the_inverse() -> None:
    for entry in ENTRIES[::3]:
        delta, epsilon = float(entry["delta"]), float(entry["epsilon"])
        if delta < 1e-290:  # a double has lost digits there
            continue
        bounds = profile(entry).epsilon_bounds(delta=delta)
        # The double nearest to delta moves epsilon by far less than 1e-12.
        assert bounds.lower <= epsilon * (1 + 1e-12), entry
        assert epsilon * (1 - 1e-12) <= bounds.upper, entry


def test_the_fft_agrees() -> None:
    for entry in ENTRIES:
        epsilon = float(entry["epsilon"])
        fft = profile(entry, engine="fft", accuracy=0.05).delta_bounds(epsilon=epsilon)
        assert contains(fft, Decimal(entry["delta"])), entry
        bounds = profile(entry).delta_bounds(epsilon=epsilon)
        assert fft.lower <= bounds.upper, entry
        assert bounds.lower <= fft.upper, entry


@pytest.mark.parametrize("entry", TABLE["named_epsilons"])
def test_workloads(entry: dict[str, Any]) -> None:
    bounds = profile(entry).epsilon_bounds(delta=float(entry["delta"]))
    assert contains(bounds, Decimal(entry["epsilon"]))
    assert bounds.upper / bounds.lower - 1 < 1e-11


@pytest.mark.parametrize("entry", TABLE["named_deltas"])
def test_deltas_to_many_digits(entry: dict[str, Any]) -> None:
    bounds = profile(entry).delta_bounds(epsilon=float(entry["epsilon"]))
    assert contains(bounds, Decimal(entry["delta"]))
    assert bounds.upper / bounds.lower - 1 < 1e-10
