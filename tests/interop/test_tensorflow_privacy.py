"""TensorFlow Privacy's statement: both numbers against dp_accounting, which computes them there."""

import math
import re
from typing import Any

import dp_accounting as dpa
import hockeystick as hs
import pytest
from dp_accounting import dp_event as ev
from hockeystick.interop.tensorflow_privacy import compute_dp_sgd_privacy_statement
from scipy.stats import binom

RUN = {"number_of_examples": 60_000, "batch_size": 600, "num_epochs": 4.5, "delta": 1e-5}


def numbers(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"It satisfies \(([\d.]+), 1e-05\)", text)]


def theirs(event: Any, steps: int, interval: float = 1e-4) -> float:
    accountant = dpa.pld.PLDAccountant(value_discretization_interval=interval)
    found = accountant.compose(event, steps).get_epsilon(1e-5)
    return float(found)


@pytest.mark.sweep
@pytest.mark.parametrize("micro", [False, True])
@pytest.mark.parametrize("owned", [None, 1, 3])
def test_both_numbers(micro: bool, owned: int | None) -> None:
    """100 updates an epoch divide evenly, so that both libraries count 450."""
    text = compute_dp_sgd_privacy_statement(
        **RUN, noise_multiplier=3.0, used_microbatching=micro, max_examples_per_user=owned
    )
    sampled, once = numbers(text)
    sigma, k = (1.5 if micro else 3.0), owned or 1
    assert once == pytest.approx(theirs(ev.GaussianDpEvent(sigma / k), 5), rel=1e-4)
    if k == 1:
        expected = theirs(ev.PoissonSampledDpEvent(0.01, ev.GaussianDpEvent(sigma)), 450)
    else:  # as there, a mixture of Gaussians
        weights = binom.pmf(range(k + 1), k, 0.01)
        expected = theirs(ev.MixtureOfGaussiansDpEvent(sigma, range(k + 1), weights), 450, 5e-3)
    assert expected * (1 - 2e-2) <= sampled <= expected * (1 + 1e-5)
    assert ("at most 3 records" in text) == (k == 3)
    assert ("Without a bound on the examples of a user" in text) == (owned is None)
    assert text.count('"zero_out"') == 1 + micro  # who is left out of a microbatch leaves a place there
    assert ("accounted for as 1.5" in text) == micro
    assert "no Poisson samples" in text


def test_the_last_batch_of_an_epoch_is_an_update() -> None:
    text = compute_dp_sgd_privacy_statement(60_000, 256, 60, 1.0, 1e-5)
    assert "14100 noisy updates" in text
    assert math.ceil(60 * 60_000 / 256) == 14_063  # counted there


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"number_of_examples": 0}, "number_of_examples = 0"),
        ({"batch_size": 60_001}, "batch_size = 60001"),
        ({"num_epochs": -1.0}, "num_epochs = -1.0"),
        ({"noise_multiplier": math.nan}, "noise_multiplier = nan"),
        ({"delta": 2.0}, "delta = 2.0"),
        ({"max_examples_per_user": 0}, "max_examples_per_user = 0"),
    ],
)
def test_what_is_wrong_is_named(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(hs.ParameterError, match=named):
        compute_dp_sgd_privacy_statement(**{**RUN, "noise_multiplier": 1.0, **wrong})
