"""Certificates: true ones are accepted, altered ones are not, and nothing that is accepted is false."""

from __future__ import annotations

import copy
import json
import math
import subprocess
import sys
from pathlib import Path

import hockeystick as hs
import mpmath as mp
import pytest
from flint import arb
from hockeystick.cli.commands import main
from hockeystick.mechanisms.steps import from_dict
from hockeystick.montecarlo.certificate import certificate
from hockeystick.montecarlo.estimate import DirectionEstimate
from hockeystick.verify.check import proven, verify
from hockeystick.verify.document import Fields, Rejected, write
from hockeystick.verify.release import Grid, read_release

from tests.campaign.certificates import NOISE, RELEASES, SAMPLED, campaign, certificates

KINDS = [*RELEASES, *SAMPLED]


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return dict(certificates())


def changed(text: str, *path: str | int, to: object) -> str:
    """The certificate with one field changed, and its digest computed anew."""
    content = json.loads(text)
    at = content
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = to
    return write(content)


@pytest.mark.sweep
@pytest.mark.parametrize("kind", KINDS)
def test_true_certificates_are_accepted(texts: dict[str, str], kind: str) -> None:
    verdict = verify(texts[kind])
    assert verdict.accepted, verdict
    assert verdict.checked
    assert verdict.unchecked[0].startswith("that ")
    assert len(texts[kind]) < 25_000


def test_what_is_printed_is_no_less_than_what_is_proven() -> None:
    """Of a Gaussian the bound is the truth to thirty digits: printed to the nearest, half of them were below it."""
    for epsilon in (0.5, 1.0, 1.5, 2.0, 3.0, 5.0):
        bounds = hs.account(hs.Gaussian(1.0)).delta_bounds(epsilon)
        answer = hs.account(hs.Gaussian(1.0)).report(epsilon=epsilon)
        verdict = verify(answer.certificate())
        assert verdict.accepted
        with mp.workdps(40):
            truth = mp.ncdf(mp.mpf(0.5) - epsilon) - mp.exp(epsilon) * mp.ncdf(-mp.mpf(0.5) - epsilon)
            printed = [mp.mpf(line.split("delta <= ")[1]) for line in verdict.checked if "delta <= " in line]
            assert printed
            assert all(truth <= found <= truth * (1 + mp.mpf(10) ** -10) for found in printed)
            assert bounds.lower <= truth


def shown(text: str) -> float:
    """The delta that the verifier shows, which is at most what is claimed."""
    content = json.loads(text)
    (claim,) = content["claims"]
    ((direction, proof),) = claim["proof"].items()
    fields = Fields(proof, "proof")
    *_, bound = proven(fields, content["release"], content["adjacency"], direction, claim["epsilon"])
    return float(bound.mid())


def test_bounds_are_above_closed_forms_and_near_them() -> None:
    """By another oracle than the core: one sampled Gaussian, a sum over binomials, an integral over Laplace noise."""
    mp.mp.dps = 40
    q, sigma, epsilon = mp.mpf(0.02), mp.mpf(2), mp.mpf(0.05)
    at = mp.log(1 + mp.expm1(epsilon) / q)
    once = q * (mp.ncdf(0.5 / sigma - at * sigma) - mp.exp(at) * mp.ncdf(-0.5 / sigma - at * sigma))
    told, steps = 1 / (1 + mp.exp(mp.mpf(-0.25))), 40
    response = mp.fsum(
        mp.binomial(steps, k)
        * told**k
        * (1 - told) ** (steps - k)
        * (1 - mp.exp(mp.mpf(2.1) - mp.mpf(0.25) * (2 * k - steps)))
        for k in range(25, steps + 1)
    )
    laplace = 1 - mp.exp(mp.mpf(0.3 - 1) / 2)
    for release, point, truth in (
        (NOISE, 0.05, once),
        (hs.PureDP(0.25) * steps, 2.1, response),
        (hs.Laplace(1.0), 0.3, laplace),
    ):
        found = shown(hs.account(release, "remove").report(epsilon=point).certificate(slack=1e-4))
        assert truth * (1 - mp.mpf(1e-30)) <= found * (1 + 1e-15)
        assert found <= truth * (1 + 1.1e-4)


@pytest.mark.sweep
@pytest.mark.parametrize("kind", KINDS)
def test_a_slice_of_the_campaign(texts: dict[str, str], kind: str) -> None:
    found = campaign(kind, texts[kind], 12, seed=1)
    assert found["bytes"]
    assert found["values"]
    assert not found["wrong"]


@pytest.mark.parametrize("kind", RELEASES)
def test_smaller_claims_are_rejected(texts: dict[str, str], kind: str) -> None:
    content = json.loads(texts[kind])
    profile = hs.account(from_dict(content["release"]), content["adjacency"])
    (claim,) = content["claims"]
    for epsilon in (claim["epsilon"], 0.5 * claim["epsilon"]):
        lower = profile.delta_bounds(epsilon).lower
        if lower > 0.0:
            # Of a declared divergence the verifier takes more orders than the engine.
            wrong = lower * (0.9 if kind == "zCDP" else 1.0 - 1e-12)
            smaller = changed(texts[kind], "claims", 0, "delta", to=wrong)
            assert not verify(changed(smaller, "claims", 0, "epsilon", to=epsilon)).accepted


@pytest.mark.parametrize("text", [None, 3.0, ["{}"]])
def test_what_is_no_text_is_rejected(text: object) -> None:
    verdict = verify(text)  # type: ignore[arg-type]
    assert not verdict.accepted
    assert "must be str or bytes" in verdict.reason


def test_every_byte_counts(texts: dict[str, str]) -> None:
    text = texts["Gaussian"]
    for i in range(len(text)):
        assert not verify(text[:i] + text[i + 1 :]).accepted
        assert not verify(text[:i] + ("7" if text[i] != "7" else "8") + text[i + 1 :]).accepted
    assert not verify(text + " ").accepted
    assert not verify(json.dumps(json.loads(text))).accepted


def test_what_would_fill_the_memory_is_rejected(texts: dict[str, str]) -> None:
    """Ten thousand small fields may ask for cells and nodes beyond any machine: they are counted over all steps."""
    step = json.loads(texts["Poisson, remove"])["release"]["items"][0]["step"]
    content = {"type": "Process", "items": [{"count": 1, "step": step}] * 40}
    assert len(read_release(content, "remove", Grid(100, arb(8), 8000)).pairs) == 40
    for adjacency, left in (("remove", 7999), ("replace_one", 15_999)):
        with pytest.raises(Rejected, match="more cells"):
            read_release(content, adjacency, Grid(100, arb(8), left))
    nodes = changed(texts["Poisson, remove"], "claims", 0, "proof", "remove", "nodes", to=1 << 24)
    small = changed(nodes, "claims", 0, "proof", "remove", "cells", to=2)
    assert "more cells and nodes" in verify(small).reason


def test_numbers_of_a_proof_are_no_part_of_the_truth(texts: dict[str, str]) -> None:
    """Whatever they are, they prove no delta that is too small: at the epsilon of the claim it is 1e-4/1.05."""
    text, place = texts["Poisson, remove"], ("claims", 0, "proof", "remove")
    for name, values in {
        "tilt": [1e-9, 0.5, 50.0, 1e9],
        "period": [1e-9, 0.1, 1e9],
        "nodes": [1, 10],
        "smoothing": [1e-9, 1.0, 1e9],
        "cells": [2, 3],
        "reach": [1.0],
        "precision": [64],
    }.items():
        for value in values:
            altered = changed(text, *place, name, to=value)
            assert not verify(changed(altered, "claims", 0, "delta", to=0.94e-4)).accepted


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("format",), "hockeystick certificate 2"),
        (("adjacency",), "both"),
        (("claims",), []),
        (("claims", 0, "delta"), "1e-5"),
        (("claims", 0, "delta"), True),
        (("claims", 0, "delta"), None),
        (("claims", 0, "delta"), -1e-5),
        (("claims", 0, "epsilon"), 10**400),
        (("claims", 0, "more"), 1),
        (("claims", 0, "proof"), {}),
        (("claims", 0, "proof", "remove", "method"), "trust me"),
        (("claims", 0, "proof", "remove", "method"), "closed form"),
        (("claims", 0, "proof", "remove", "method"), "largest loss"),
        (("claims", 0, "proof", "remove", "nodes"), 10**9),
        (("claims", 0, "proof", "remove", "nodes"), 100.0),
        (("claims", 0, "proof", "add"), {}),
        (("release", "items", 0, "count"), 0),
        (("release", "items", 0, "count"), True),
        (("release", "items", 0, "step", "type"), "Gauss"),
        (("release", "items", 0, "step", "mechanism"), [[]]),
        (("release", "items", 0, "step", "sampling_probability"), 1.5),
        (("release",), []),
    ],
)
def test_what_is_malformed_is_rejected(
    texts: dict[str, str], path: tuple[str | int, ...], value: object
) -> None:
    assert not verify(changed(texts["Poisson, remove"], *path, to=value)).accepted


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "1",
        '{"format": NaN}',
        '{"a": 1, "a": 2}',
        "[" * 100_000,
        b"\xff",
        '{"format": 1e999}',
    ],
)
def test_what_is_no_certificate_is_rejected(text: str) -> None:
    assert not verify(text).accepted


@pytest.mark.parametrize("kind", SAMPLED)
def test_tallies_prove_no_less_than_they_do(texts: dict[str, str], kind: str) -> None:
    text, place = texts[kind], ("directions", 0)
    entry = json.loads(text)["directions"][0]
    for name in ("delta", "failure_probability"):
        assert not verify(changed(text, *place, name, to=0.999 * entry[name])).accepted
    assert not verify(
        changed(text, "failure_probability", to=0.999 * json.loads(text)["failure_probability"])
    ).accepted
    assert not verify(changed(text, "seed", to=6)).accepted
    assert not verify(changed(text, "adjacency", to="add")).accepted
    assert not verify(changed(text, *place, "blocks", to=entry["blocks"] + 1)).accepted or kind == SAMPLED[0]
    assert not verify(changed(text, *place, "blocks", to=entry["blocks"] - 1)).accepted


@pytest.mark.parametrize("method", ["plain", "tilted"])
def test_estimates_under_replace_one_are_of_one_direction(method: str) -> None:
    mechanism = hs.BandMF(hs.BandedToeplitz.square_root(8, 2), hs.BMinSep(8, 2, 0.1), 2.0)
    found = hs.estimate_delta(mechanism, 1.0, 2000, 5, method, adjacency="replace_one")
    text = found.certificate()
    content = json.loads(text)
    assert verify(text).accepted
    assert [each["direction"] for each in content["directions"]] == ["replace_one"]
    assert content["delta"] == found.upper
    for other in ("remove", "add", "zero_out", "add_or_remove"):
        assert not verify(changed(text, "adjacency", to=other)).accepted
        assert not verify(changed(text, "directions", 0, "direction", to=other)).accepted


def test_the_unit_of_values_is_not_for_the_prover_to_choose() -> None:
    """A smaller scale than the key's, with a delta that follows from it, was accepted: 50,000 times below the estimate."""
    mechanism = hs.BandMF(hs.BandedToeplitz.square_root(8, 2), hs.BallsInBins(8, 2), 4.0)
    content = json.loads(
        hs.estimate_delta(mechanism, 3.0, 2000, 1, "tilted", adjacency="remove").certificate()
    )
    entry = content["directions"][0]
    assert verify(write(content)).accepted
    small = {"scale": entry["scale"] - 20.0, "resolution": 0.0, "extra": 0.0}
    forged = {**content, "delta": 1e-7 * entry["delta"]}
    forged["directions"] = [{**entry, **small, "delta": forged["delta"]}]
    assert "unit in which values were drawn" in verify(write(forged)).reason
    for key in (
        {**entry["key"], "really": "another"},
        {**entry["key"], "log_scale": "nan"},
        {name: value for name, value in entry["key"].items() if name not in ("log_scale", "proposal")},
    ):
        assert not verify(write({**content, "directions": [{**entry, "key": key}]})).accepted


@pytest.mark.parametrize("claim", [0.999, 0.5, 1e-9, 0.0])
def test_totals_are_those_of_values_that_are_at_most_their_bound(claim: float) -> None:
    """A bound on values below their mean, and as much for delta, was accepted: 1e-9 for .038."""
    mechanism = hs.BandMF(hs.BandedToeplitz.square_root(32, 4), hs.BMinSep(32, 4, 0.05), 1.0)
    content = json.loads(hs.estimate_delta(mechanism, 1.0, 4096, 5, "plain").certificate())
    assert verify(write(content)).accepted
    count = 4096 * 2**1074
    means = [int(entry["total"], 16) / count for entry in content["directions"]]
    forged = copy.deepcopy(content)
    for entry, mean in zip(forged["directions"], means, strict=True):
        entry["largest"] = entry["delta"] = claim * mean
    forged["delta"] = max(entry["delta"] for entry in forged["directions"])
    assert "its total is not that of" in verify(write(forged)).reason
    for total in ("-0x1", hex(count + 1)):
        forged = copy.deepcopy(content)
        for entry in forged["directions"]:
            entry.update(total=total, largest=1.0, delta=1.0)
        assert "its total is not that of" in verify(write({**forged, "delta": 1.0})).reason


def test_more_than_a_verifier_computes_is_rejected_at_once() -> None:
    """Sixty curves of a thousand orders took two minutes, thousands of claims each what one claim may take."""
    curve = hs.RenyiCurve([2.0, 4.0], [0.1, 0.2])
    content = json.loads(hs.account(curve).report(delta=1e-5).certificate())
    assert verify(write(content)).accepted
    (item,), (claim,) = content["release"]["items"], content["claims"]
    orders = [2.0 + 0.01 * i for i in range(1000)]
    step = {**item["step"], "orders": orders, "epsilons": [0.1 * order for order in orders]}
    shifted = [{"count": 1, "step": {**step, "orders": [o + 1e-5 * k for o in orders]}} for k in range(60)]
    assert "orders" in verify(write({**content, "release": {**content["release"], "items": shifted}})).reason
    assert "list of 1 to 16" in verify(write({**content, "claims": [claim] * 17})).reason


def test_reasons_are_shown_as_text(texts: dict[str, str]) -> None:
    """A rejected certificate could erase the verdict from a terminal, and write another one."""
    evil = "X\r\x1b[2K\x1b[1Aaccepted\u202e" + "x" * 100_000
    true = texts["Gaussian"]
    for text in (
        changed(true, "release", "items", 0, "step", "type", to=evil),
        changed(true, evil, to=1),
        changed(true, "adjacency", to=evil),
    ):
        verdict = verify(text)
        assert not verdict.accepted
        assert str(verdict).replace("\n", "").isprintable()
        assert len(str(verdict)) < 2000


def test_the_verifier_alone_says_what_file_is_missing(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.json"):
        run = subprocess.run(
            [sys.executable, "-m", "hockeystick.verify", str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 1
        assert run.stderr.startswith("error: ")
        assert str(path) in run.stderr
        assert "Traceback" not in run.stderr


def test_directions_without_tallies_are_not_claimed() -> None:
    mechanism = hs.BandMF(hs.BandedToeplitz.square_root(8, 2), hs.BMinSep(8, 2, 0.01), 1.0)
    text = hs.estimate_delta(mechanism, 1.0, 2000, 5, "plain").certificate()
    assert json.loads(text)["adjacency"] == "remove"
    assert verify(text).accepted
    assert not verify(changed(text, "adjacency", to="zero_out")).accepted
    assert not verify(changed(text, "directions", to=[])).accepted
    with pytest.raises(hs.ParameterError, match="nothing was drawn"):
        hs.estimate_delta(mechanism, 1.0, 2000, 5, adjacency="add").certificate()


def test_tallies_are_of_one_mechanism_and_all_known_cases_count() -> None:
    strategy = hs.BandedToeplitz.square_root(8, 2)
    found, other = (
        hs.estimate_delta(hs.BandMF(strategy, hs.BMinSep(8, 2, 0.4), sigma), 0.2, 2000, 5, "plain")
        for sigma in (1.0, 1000.0)
    )
    content, swapped = json.loads(found.certificate()), json.loads(other.certificate())
    assert verify(write(content)).accepted
    assert [entry["direction"] for entry in content["directions"]] == ["remove", "add"]
    # The other direction of a mechanism with a thousand times the noise, or the same direction twice.
    assert not verify(
        write({**content, "directions": [content["directions"][0], swapped["directions"][1]]})
    ).accepted
    assert not verify(
        write({**content, "directions": [*content["directions"], content["directions"][0]]})
    ).accepted
    case = DirectionEstimate("add", 0.0, 0.0, 0.75, 0, case=1)
    facts = {name: content[name] for name in ("adjacency", "epsilon", "seed")}
    assert json.loads(certificate(facts, [*found.directions, case]))["delta"] == 0.75


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 10.0, 20.0])
@pytest.mark.parametrize(("steps", "apart", "probability"), [(4, 2, 0.1), (6, 3, 0.02), (3, 3, 0.6)])
def test_no_value_of_users_with_many_examples_is_above_their_bound(
    steps: int, apart: int, probability: float, epsilon: float
) -> None:
    """What bounds the density from below may fall below the chance that nobody takes part, which none of it does."""
    users = hs.BMinSep(steps, apart, probability, False, examples_per_user=33)
    mechanism = hs.BandMF(hs.BandedToeplitz.square_root(steps, 2), users, 1.0)
    found = hs.estimate_delta(mechanism, epsilon, 1000, seed=1)
    (add,) = (each for each in found.directions if each.direction == "add")
    none = mechanism.no_participation_log_probability
    assert add.upper <= max(0.0, -math.expm1(epsilon + none)) * (1 + 1e-6) + 1e-15
    assert verify(found.certificate()).accepted


@pytest.mark.parametrize("adjacency", ["zero_out", "remove"])
def test_that_delta_is_at_most_one_needs_no_evidence(adjacency: str) -> None:
    mechanism = hs.BandMF(hs.Identity(20), hs.Poisson(20, 0.01), 1e-2)
    found = hs.estimate_delta(mechanism, 1.0, 1000, seed=1, method="tilted", adjacency=adjacency)
    assert found.upper == 1.0
    text = found.certificate()
    assert verify(text).accepted
    assert not verify(changed(text, "directions", 0, "delta", to=0.999)).accepted


@pytest.mark.sweep
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize(
    "step", [hs.ApproximateDP(0.5, 1e-6), hs.mechanisms.DeclaredProfile([0.5], [1e-6])], ids=str
)
def test_a_budget_that_is_spent_to_its_end_is_certified(step: hs.mechanisms.Step, steps: int) -> None:
    delta = steps * 1e-6
    report = hs.account(step * steps).report(delta=delta, risks=False)
    (claim,) = json.loads(report.certificate())["claims"]
    assert report.epsilon is not None
    assert report.epsilon.upper < claim["epsilon"] <= report.epsilon.upper * (1.0 + 1e-9)
    assert delta < claim["delta"] <= delta * 1.001


def test_what_cannot_be_certified_is_refused() -> None:
    discrete = hs.account(hs.DiscreteLaplace(5.0)).report(delta=1e-5)
    with pytest.raises(hs.ParameterError, match="DiscreteLaplace"):
        discrete.certificate()
    with pytest.raises(hs.ParameterError, match="nothing to prove"):
        hs.account(hs.ApproximateDP(1.0, 0.5)).report(delta=1e-5).certificate()
    with pytest.raises(hs.ParameterError, match="slack"):
        discrete.certificate(slack=0.0)


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.json"
    run = [
        "epsilon",
        "--noise-multiplier",
        "2",
        "--steps",
        "4",
        "--delta",
        "1e-5",
        "--certificate",
        str(path),
    ]
    assert main(run) == 0
    assert main(["verify", str(path)]) == 0
    assert "accepted" in capsys.readouterr().out
    path.write_text(path.read_text(encoding="utf-8").replace("1e-05", "2e-05"), encoding="utf-8")
    assert main(["verify", str(path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["accepted"] is False
    assert main(["verify", str(tmp_path / "none.json")]) == 2


def test_the_verifier_loads_nothing_of_what_it_verifies(tmp_path: Path, texts: dict[str, str]) -> None:
    path = tmp_path / "run.json"
    path.write_text(texts["Gaussian"], encoding="utf-8")
    code = (
        "import runpy, sys; sys.argv[0] = 'verify'\n"
        "try: runpy.run_module('hockeystick.verify', run_name='__main__')\n"
        "except SystemExit as stop: print(stop.code, *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    exit_code, *modules = done.stdout.splitlines()[-1].split()
    assert exit_code == "False"
    assert not {"numpy", "hockeystick._core", "hockeystick.accounting"} & set(modules)
    rooms = {name.split(".")[1] for name in modules if name.startswith("hockeystick.")}
    assert rooms <= {"verify", "_base"}


def test_without_flint_one_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("hockeystick.verify")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["verify", "run.json"]) == 2
    assert "hockeystick[verify]" in capsys.readouterr().err
