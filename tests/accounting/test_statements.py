"""Numbers of statements read back as they are: a statement that rounds noise down or a rate up is false."""

from __future__ import annotations

import re

import hockeystick as hs
import pytest
from hockeystick._base.bounds import exactly
from hypothesis import given
from hypothesis import strategies as st

NOISE, RATE, DELTA = 1.225300677, 0.0123456789012, 1.2345674e-5


@given(st.floats(min_value=0.0, allow_infinity=False))
def test_exact_numbers_read_back(value: float) -> None:
    assert float(exactly(value)) == value


@pytest.mark.parametrize(
    ("released", "numbers"),
    [
        (hs.PoissonSampled(hs.Gaussian(NOISE), RATE) * 10, [NOISE, RATE]),
        (hs.TruncatedPoissonSampled(NOISE, 1000, RATE, 60) * 10, [NOISE, RATE]),
        (hs.mechanisms.TruncatedPoissonGroup(NOISE, 1000, RATE, 60, groups=2) * 10, [NOISE, RATE]),
        (hs.dp_sgd(NOISE, 60_001, 256, epochs=1.23456789), [NOISE, 256 / 60_001, 1.23456789]),
        (
            hs.PrivateSelection(
                hs.PoissonSampled(hs.Gaussian(NOISE), RATE), hs.Repetitions.poisson(9.87654321)
            ),
            [NOISE, RATE, 9.87654321],
        ),
    ],
    ids=lambda part: type(part).__name__,
)
def test_statements_round_in_no_direction(released: hs.mechanisms.Composable, numbers: list[float]) -> None:
    report = hs.account(released, accuracy=1e-3).report(delta=DELTA)
    said = {float(text) for text in re.findall(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?", report.statement())}
    assert {*numbers, DELTA} <= said
