"""Reports say everything, in words and in JSON, and never round a guarantee down."""

import json
import math

import hockeystick as hs
import pytest
from hockeystick.accounting.report import UNITS, round_down, round_up
from hypothesis import given
from hypothesis import strategies as st

STEP = hs.PoissonSampled(hs.Gaussian(1.1), 0.02)


@given(st.floats(0.0, 1e300, allow_nan=False))
def test_printed_bounds_enclose_the_value(value: float) -> None:
    below, above = float(round_down(value)), float(round_up(value))
    assert below <= value <= above
    assert above <= value * (1 + 2e-5) + 5e-324
    assert below >= value * (1 - 2e-5) - 5e-324


def test_infinity_is_printed() -> None:
    assert round_up(math.inf) == "inf"


@pytest.mark.parametrize("adjacency", UNITS)
def test_statement_says_everything(adjacency: str) -> None:
    process = STEP * 40 + hs.Laplace(20.0) * 3
    profile = hs.account(process, adjacency)
    report = profile.report(delta=1e-5, epsilon=0.5)
    text = report.statement()
    assert report.epsilon is not None
    assert report.delta is not None
    for said in (
        f"({round_up(report.epsilon.upper)}, 1e-05)",
        f"[{round_down(report.epsilon.lower)}, ",
        f"(0.5, {round_up(report.delta.upper)})",
        adjacency,
        UNITS[adjacency],
        "Poisson sampling with probability 0.02 (40 steps)",
        "Laplace(scale=20.0) * 3",
        "sensitivity of the sum",
        f"hockeystick {hs.__version__}",
        "floating-point",
        "ideal sampler",
    ):
        assert said in text
    for name in report.epsilon.terms:
        assert name in text
    assert "\n" not in text


def test_report_agrees_with_the_profile() -> None:
    profile = hs.account(STEP * 10)
    report = profile.report(delta=1e-6, epsilon=0.25)
    assert report.epsilon is not None
    assert report.delta is not None
    assert report.epsilon.bounds == profile.epsilon_bounds(1e-6)
    assert report.delta.bounds == profile.delta_bounds(0.25)
    assert report.advantage == profile.advantage_bounds()
    assert report.steps == 10
    assert report.at_delta == 1e-6
    assert hs.account(STEP * 10).report(delta=1e-6).delta is None
    assert hs.account(STEP * 10).report(epsilon=1.0).epsilon is None


def test_json_round_trip() -> None:
    report = hs.account(STEP * 10).report(delta=1e-6)
    assert json.loads(report.to_json()) == report.to_dict()
    assert json.loads(report.to_json())["epsilon"]["upper"] == report.epsilon.upper  # type: ignore[union-attr]


def test_json_has_no_bare_infinities() -> None:
    plain = json.loads(hs.account(hs.Gaussian(0.0)).report(delta=1e-6).to_json())
    assert plain["epsilon"]["upper"] == "inf"


def test_the_paper_pair_is_branded() -> None:
    step = hs.WithoutReplacement(hs.Gaussian(1.0), 2, 20, pair="koskela2020")
    assert "NOT a guarantee" in hs.account(step, "replace_one").report(delta=1e-5).statement()
    sound = hs.WithoutReplacement(hs.Gaussian(1.0), 2, 20)
    text = hs.account(sound, "replace_one").report(delta=1e-5).statement()
    assert "NOT a guarantee" not in text
    assert "batches of 2 of 20 records drawn without replacement" in text


def test_dp_sgd_echoes_in_the_statement() -> None:
    text = hs.account(hs.dp_sgd(1.0, 1000, 10, epochs=1)).report(delta=1e-5).statement()
    for said in ("1000 records", "sampling probability 0.01", "100 noisy updates"):
        assert said in text


def test_nothing_released() -> None:
    text = hs.account(hs.mechanisms.Process()).report(delta=0.0).statement()
    assert "(0, 0.0)-differential privacy" in text
