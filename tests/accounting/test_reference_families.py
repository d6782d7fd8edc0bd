"""Noise with atoms: every interval contains the truth, `references/generate_families.py`."""

from __future__ import annotations

import json
import math
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import hockeystick as hs
import pytest
from hockeystick import _core

ALL = json.loads((Path(__file__).parents[1] / "references" / "families.json").read_text())["entries"]
TRUNCATED = [entry for entry in ALL if entry["steps"][0]["kind"] == "truncated"]
ENTRIES = [entry for entry in ALL if entry not in TRUNCATED]


def step(description: dict[str, Any]) -> hs.mechanisms.Process:
    kind = description["kind"]
    mechanism: Any
    if kind == "laplace":
        mechanism = hs.Laplace(float(description["scale"]))
    elif kind == "gaussian":
        mechanism = hs.Gaussian(float(description["sigma"]))
    elif kind == "randomized_response":
        mechanism = hs.RandomizedResponse(float(description["epsilon"]), description["categories"])
    elif kind == "discrete_laplace":
        mechanism = hs.DiscreteLaplace(float(description["scale"]), description.get("sensitivity", 1))
    else:
        mechanism = hs.DiscreteGaussian(float(description["sigma"]))
    count = int(description["count"])
    if "q" in description:
        return hs.PoissonSampled(mechanism, float(description["q"])) * count
    if "batch" in description:
        return hs.WithoutReplacement(mechanism, description["batch"], description["dataset"]) * count
    return mechanism * count


def profile(entry: dict[str, Any], **options: Any) -> hs.PrivacyProfile:
    process = hs.mechanisms.Process()
    for description in entry["steps"]:
        process = process + step(description)
    return hs.account(process, adjacency=entry["adjacency"], **options)


def contains(bounds: hs.Bounds, truth: Decimal) -> bool:
    return Decimal(bounds.lower) <= truth <= Decimal(bounds.upper)


def test_delta_contains_the_truth_and_is_exact() -> None:
    methods: Counter[str] = Counter()
    for entry in ENTRIES:
        account, epsilon, truth = profile(entry), float(entry["epsilon"]), Decimal(entry["delta"])
        bounds = account.delta_bounds(epsilon=epsilon)
        assert contains(bounds, truth), entry
        answer = account.report(epsilon=epsilon, risks=False).delta
        assert answer is not None
        first = entry["steps"][0]
        two_losses = first.get("sensitivity", 1) == 1 and first.get("categories", 2) == 2
        two_losses &= entry["adjacency"] != "replace_one"
        added_up = two_losses and len(entry["steps"]) == 1 and first["count"] <= 200
        added_up &= first["kind"] in ("discrete_laplace", "randomized_response")
        assert answer.engine == ("closed form" if added_up else "inversion"), entry
        middle = (Decimal(bounds.lower) + Decimal(bounds.upper)) / 2
        assert abs(middle / truth - 1) < Decimal("1e-10"), entry
        assert bounds.upper <= bounds.lower * (1 + 1e-9), entry
        methods[entry["method"]] += 1
    assert sum(methods.values()) >= 60
    assert min(methods[m] for m in ("lattice", "residues", "line")) >= 10


def test_epsilon_is_the_inverse() -> None:
    for entry in ENTRIES:
        epsilon = float(entry["epsilon"])
        bounds = profile(entry).epsilon_bounds(delta=float(entry["delta"]))
        # The double nearest to delta moves epsilon by far less than 1e-12.
        assert bounds.lower <= epsilon * (1 + 1e-12), entry
        assert epsilon * (1 - 1e-12) <= bounds.upper, entry
        assert bounds.upper <= bounds.lower * (1 + 1e-8), entry


def test_the_fft_agrees() -> None:
    for entry in ENTRIES[::2]:
        epsilon = float(entry["epsilon"])
        fft = profile(entry, engine="fft", accuracy=0.05).delta_bounds(epsilon=epsilon)
        assert contains(fft, Decimal(entry["delta"])), entry


@pytest.mark.parametrize("factor", [0.0, 0.25, 0.5, 0.75, 0.999, 1.0])
@pytest.mark.parametrize("steps", [2, 3, 8, 31])
def test_laplace_at_and_beside_its_kinks(steps: int, factor: float) -> None:
    """δ has a kink wherever ε is a sum of ±1/scale; there too it decreases and is convex in e^ε."""
    account = hs.account(hs.Laplace(2.0) * steps)
    kink = round(factor * steps) / 2.0
    epsilons = [kink - 1e-3, kink, kink + 1e-3]
    left, middle, right = (account.delta_bounds(epsilon=epsilon) for epsilon in epsilons)
    assert left.upper >= middle.lower
    assert middle.upper >= right.lower
    share = (math.exp(epsilons[1]) - math.exp(epsilons[0])) / (math.exp(epsilons[2]) - math.exp(epsilons[0]))
    assert middle.lower <= ((1 - share) * left.upper + share * right.upper) * (1 + 1e-12)


def test_atoms_on_no_lattice_are_inverted_with_a_pinch_of_noise() -> None:
    process = hs.RandomizedResponse(1.0) * 400 + hs.RandomizedResponse(2.0**0.5) * 400
    answer = (
        hs.account(process).report(delta=0.1, risks=False).epsilon
    )  # at 1e-3 the largest losses say it all
    assert answer is not None
    assert answer.engine == "inversion"
    assert answer.upper - answer.lower <= 1e-6 * answer.upper


def branches(description: dict[str, Any], adjacency: str) -> _core.Pair:
    """The pair of a truncated batch whose probability of being full is known exactly."""
    if description["kind"] == "gaussian":
        return _core.gaussian_pair(1.0 / float(description["sigma"]))
    mu, p, q, full = (float(description[key]) for key in ("mu", "p", "q", "full"))
    if adjacency == "replace_one":
        poisson = _core.location_mixture_pair("gaussian", 1.0, [0.0, mu], [1 - p, p], [0.0, -mu], [1 - p, p])
        other = _core.sampled_pair(_core.gaussian_pair(2.0 * mu), q, adjacency)
    else:
        poisson = _core.sampled_pair(_core.gaussian_pair(mu), p, adjacency)
        other = _core.zero_out_pair(mu, q, adjacency)
    return _core.mixture_pair([poisson, other], [1.0 - full, full])


@pytest.mark.parametrize("engine", ["auto", "fft"])
def test_truncated_batches(engine: str) -> None:
    methods: Counter[str] = Counter()
    for entry in TRUNCATED:
        composition = [(branches(one, entry["adjacency"]), int(one["count"])) for one in entry["steps"]]
        epsilon, truth = float(entry["epsilon"]), Decimal(entry["delta"])
        exact = engine == "auto"
        core = _core.Profile([composition], 1e-6 if exact else 0.05, 1 << 28, engine)
        found = core.delta_bounds(epsilon)
        assert contains(hs.Bounds(found.lower, found.upper), truth), entry
        back = core.epsilon_bounds(float(entry["delta"]))
        assert back.lower <= epsilon * (1 + 1e-12), entry
        assert epsilon * (1 - 1e-12) <= back.upper, entry
        if exact and entry["method"] == "line":
            assert found.engine == back.engine == "inversion", entry
            assert found.upper <= found.lower * (1 + 1e-8), entry
        methods[entry["method"]] += 1
    assert methods["line"] >= 9
    assert methods["pairs"] >= 4
