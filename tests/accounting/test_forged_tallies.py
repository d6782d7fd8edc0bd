"""Certificates of tallies that prove a little less than they claim, against Chernoff's bound and capitals of bets in high precision."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import hockeystick as hs
import pytest
from hockeystick.verify.check import Verdict, verify
from hockeystick.verify.document import write
from mpmath import mp

COUNT, UNIT = 4096, 2**32


@pytest.fixture(scope="module", params=["plain", "tilted"])
def both(request: pytest.FixtureRequest) -> dict[str, Any]:
    """A true certificate of two directions."""
    mechanism = hs.BandMF(hs.BandedToeplitz.square_root(32, 4), hs.BMinSep(32, 4, 0.05), 1.0)
    found = hs.estimate_delta(mechanism, 1.0, COUNT, 5, request.param)
    return dict(json.loads(found.certificate()))


def with_entry(content: dict[str, Any], place: int, **changed: Any) -> dict[str, Any]:
    entries = [dict(entry) for entry in content["directions"]]
    entries[place].update(changed)
    return {**content, "directions": entries}


def alone(content: dict[str, Any], **changed: Any) -> Verdict:
    """The verdict on direction "remove" by itself, with another tally."""
    entry = {**content["directions"][0], **changed}
    said = {
        "adjacency": "remove",
        "delta": entry["delta"],
        "failure_probability": entry["failure_probability"],
    }
    return verify(write({**content, **said, "directions": [entry]}))


def test_each_direction_is_of_this_run_and_below_the_claim(both: dict[str, Any]) -> None:
    assert verify(write(both)).accepted
    for place in (0, 1):
        key = both["directions"][place]["key"]
        for name, other in (("direction", "replace_one"), ("epsilon", "2.0"), ("seed", 6)):
            assert "another seed" in verify(write(with_entry(both, place, key={**key, name: other}))).reason
    assert "only shown" in verify(write({**both, "delta": (1.0 - 1e-9) * both["delta"]})).reason
    assert not verify(write({**both, "failure_probability": 0.999 * both["failure_probability"]})).accepted
    # The other direction proves no more either.
    delta = both["directions"][1]["delta"]
    assert not verify(write(with_entry(both, 1, delta=0.999 * delta))).accepted


@pytest.mark.parametrize("both", ["plain"], indirect=True)
@pytest.mark.parametrize("largest", [1.0, 0.25])
@pytest.mark.parametrize("share", [0.0, 1e-3, 0.4])
def test_a_mean_proves_what_chernoff_says(both: dict[str, Any], largest: float, share: float) -> None:
    mean = largest * share
    total = hex(int(mean * 2**60) * COUNT * 2 ** (1074 - 60))
    with mp.workdps(40):
        failure = both["directions"][0]["failure_probability"]

        def excess(u: Any) -> Any:
            q, p = mp.mpf(share), u / mp.mpf(largest)
            some = q * mp.log(q / p) if share else 0
            return COUNT * (some + (1 - q) * mp.log((1 - q) / (1 - p))) + mp.log(failure)

        bound = float(mp.findroot(excess, (mean + 1e-3 * largest, mean + 0.2 * largest), solver="anderson"))
    assert mean < bound < largest
    for delta, accepted in ((bound * (1 + 1e-9), True), (bound * (1 - 1e-9), False), (0.5 * mean, False)):
        assert alone(both, total=total, largest=largest, delta=delta).accepted == accepted


def capital(values: Sequence[tuple[Any, int]], mean: float, bets: Sequence[tuple[float, float]]) -> Any:
    """What bets with these shares and weights made of 1 against this mean, less what spreading may have moved it by."""
    m = mp.mpf(mean) * (1 - mp.mpf(2) ** -36) - mp.mpf(2) ** -72
    grown = (
        weight * mp.fprod((1 + share * (m - x) / (1 - m)) ** n for x, n in values) for share, weight in bets
    )
    return mp.fsum(grown) / max(1, mp.fsum(weight for _, weight in bets))


@pytest.mark.parametrize("both", ["tilted"], indirect=True)
@pytest.mark.parametrize(
    "bets", [[(0.9, 1.0)], [(0.5, 0.25), (0.25, 0.25)], [(0.9, 0.75), (0.7, 0.75)], [(1.0, 0.5), (0.8, 0.5)]]
)
def test_bets_prove_what_they_have_won(both: dict[str, Any], bets: list[tuple[float, float]]) -> None:
    """Values of 0, of 1/64 and of 1, each at a point of the grid: 16 in an octave from 2^-40 on."""
    mean, numbers = 0.02, {0: COUNT - 40, 1 + 16 * 34: 37, 641: 3}
    values = [(mp.mpf(0), numbers[0]), (mp.mpf(2) ** -6, 37), (mp.mpf(1), 3)]
    masses = [hex(UNIT * numbers.get(i, 0)) for i in range(642)]
    with mp.workdps(50):
        failure = float(1 / capital(values, mean, bets))
        scale, resolution, extra = both["directions"][0]["scale"], 1e-3, 1e-4
        delta = float(mp.exp(scale) * (mp.mpf(mean) + mp.mpf(resolution)) + mp.mpf(extra))
    proof = {"masses": masses, "bets": bets, "mean": mean, "resolution": resolution, "extra": extra}
    assert 0.0 < failure < 0.5
    for claim, risk, accepted in (
        (delta * (1 + 1e-12), failure * (1 + 1e-10), True),
        (delta * (1 + 1e-12), failure * (1 - 1e-10), False),
        (delta * (1 - 1e-12), failure * (1 + 1e-10), False),
    ):
        assert alone(both, delta=claim, failure_probability=risk, **proof).accepted == accepted
    # More values of 0, by a negative number of others.
    borrowed = [*masses]
    borrowed[0], borrowed[640] = hex((numbers[0] + 10) * UNIT), hex(-10 * UNIT)
    sound = {"delta": delta * (1 + 1e-12), "failure_probability": failure * (1 + 1e-10)}
    assert "masses are not those" in alone(both, **sound, **{**proof, "masses": borrowed}).reason
