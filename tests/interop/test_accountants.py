"""Accountants of other libraries: their adjacency, their place, and what False means."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace
from typing import Any

import hockeystick as hs
import numpy as np
import pytest
import torch
from flwr.serverapp import GaussianPrivacyEvent, NeighboringRelation, PrivacyConfig, SamplingMethod
from hockeystick.interop import flower, jax_privacy
from hockeystick.interop.opacus import HockeystickAccountant, PrivacyEngine, drawn_rate


@pytest.mark.parametrize("adjacency", ["replace_one", "zero_out"])
def test_the_noise_is_enough_under_the_adjacency_of_the_accountant(
    adjacency: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, made = PrivacyEngine(), {}
    engine.accountant = HockeystickAccountant(adjacency)
    monkeypatch.setattr(PrivacyEngine, "make_private", lambda self, **options: made.update(options))
    engine.make_private_with_epsilon(data_loader=[None] * 75, target_epsilon=2.0, target_delta=1e-5, epochs=3)
    run = hs.PoissonSampled(hs.Gaussian(made["noise_multiplier"]), drawn_rate(1 / 75)) * 225
    assert hs.account(run, adjacency).epsilon_bounds(1e-5).lower <= 2.0


def private(engine: Any) -> Any:
    records = torch.utils.data.TensorDataset(torch.randn(400, 8), torch.randint(0, 2, (400,)))
    model = torch.nn.Linear(8, 2)
    loader = torch.utils.data.DataLoader(records, batch_size=40)
    return engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )


def train(model: Any, optimizer: Any, loader: Any) -> None:
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def test_the_accountant_of_an_engine_is_not_replaced() -> None:
    """Steps would go on to be recorded by the one that make_private attached, and the engine answer for the other one."""
    engine = PrivacyEngine()
    made = private(engine)
    train(*made)
    engine.accountant = HockeystickAccountant()
    with pytest.raises(hs.ParameterError, match="must stay the one that make_private attached"):
        train(*made)
    assert engine.accountant.history == []


def test_a_limit_within_the_interval_is_exceeded() -> None:
    """False is a guarantee."""
    config = PrivacyConfig(1e-5, 1000, NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.POISSON, None)
    accountant = flower.HockeystickAccountant(config, accuracy=0.5)
    event = GaussianPrivacyEvent(1.0, 50, 1000)
    after = hs.account(hs.PoissonSampled(hs.Gaussian(1.0), 0.05) * 100, accuracy=0.5)
    lower, upper = after.epsilon_bounds(1e-5)
    assert lower < upper
    assert accountant.would_exceed(event, max_epsilon=lower, count=100)
    assert not accountant.would_exceed(event, max_epsilon=upper, count=100)
    assert accountant.would_exceed(event, max_epsilon=math.nextafter(upper, 0.0), count=100)


def test_the_noise_is_for_the_last_batch_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """.51 epochs of 75 batches are 39 steps."""
    engine, made = PrivacyEngine(), {}
    monkeypatch.setattr(PrivacyEngine, "make_private", lambda self, **options: made.update(options))
    engine.make_private_with_epsilon(
        data_loader=[None] * 75, target_epsilon=2.0, target_delta=1e-5, epochs=0.51
    )
    run = hs.PoissonSampled(hs.Gaussian(made["noise_multiplier"]), drawn_rate(1 / 75)) * 39
    assert hs.account(run).epsilon(1e-5) <= 2.0


def check_plan(
    monkeypatch: pytest.MonkeyPatch, strategy: list[float], wide: bool = True, **planned: Any
) -> None:
    """`check_config` where JAX has numbers of 64 bits (or not), whether it is installed or not."""

    def canonical(dtype: Any) -> np.dtype[Any]:
        found = np.dtype(dtype)
        return found if wide or found != np.float64 else np.dtype(np.float32)

    jax = SimpleNamespace(dtypes=SimpleNamespace(canonicalize_dtype=canonical))
    monkeypatch.setitem(sys.modules, "jax", jax)
    config = {"column_normalize": False, "dtype": "float32", "iterations": 100, **planned}
    jax_privacy.check_config(SimpleNamespace(strategy=strategy, **config))


@pytest.mark.parametrize(
    ("strategy", "planned", "message"),
    [
        ([0.7, 0.6], {"column_normalize": True}, "norm 0.921"),
        ([1.0, 0.5], {"dtype": None}, "dtype = None"),
        ([1.0, 0.5], {"dtype": "float16"}, "dtype = 'float16'"),
        ([1.0, 0.5], {"dtype": "complex64"}, "dtype = 'complex64'"),
        ([1.0, -1.2], {}, "rounding to float32 changes Z"),
        ([1.0, -1.2], {"dtype": "float64", "wide": False}, "rounding to float32 changes Z"),
        ([1.0, -1.2], {"iterations": 50}, "rounding to float32 changes Z by up to 0.0018"),
        ([1.0, -1e100], {}, "rounding to float32 changes Z by up to inf"),
        ([1.0, -1e200], {}, "rounding to float32 changes Z by up to inf"),
        ([0.0, 1.0], {}, "rounding to float32 changes Z by up to inf"),
        ([1.0, 0.5], {"l2_clip_norm": 0.0}, "l2_clip_norm = 0.0: must be at least 1.2e-10"),
        (
            [1.0, 0.5],
            {"l2_clip_norm": 1e-10, "dtype": "float64", "wide": False},
            "l2_clip_norm = 1e-10: must be at least 1.2e-10",
        ),
        (
            [1.0, 0.5],
            {"l2_clip_norm": 1e-146, "dtype": "float64"},
            "l2_clip_norm = 1e-146: must be at least 1.6e-145",
        ),
        ([1.0, 0.5], {"l2_clip_norm": math.nan}, "l2_clip_norm = nan"),
    ],
)
def test_plans_of_jax_that_add_less_noise_are_refused(
    strategy: list[float], planned: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(hs.ParameterError, match=message):
        check_plan(monkeypatch, strategy, **planned)


def test_plans_of_jax_that_add_the_noise_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    check_plan(monkeypatch, [0.8, 0.6], column_normalize=True)
    check_plan(monkeypatch, [0.7, 0.6])
    check_plan(monkeypatch, [1.0, -1.2], dtype="float64")
    check_plan(monkeypatch, [1.0, -1.2], iterations=30)
    check_plan(monkeypatch, [1.0], l2_clip_norm=1.2e-10)
    check_plan(monkeypatch, [1.0], l2_clip_norm=np.array(0.5, np.float32))  # as arrays of JAX with one number
    check_plan(monkeypatch, [1.0], l2_clip_norm=1e-10, dtype="float64")


def test_rounding_of_a_geometric_inverse_has_a_closed_form() -> None:
    """The rows of the inverse of (1, -a) are 1, a, a^2, ..."""
    a, steps, unit = 1.25, 38, 2.0**-16
    each = unit * (1.0 + a)
    norm, row = math.sqrt((a ** (2 * steps) - 1.0) / (a**2 - 1.0)), (a**steps - 1.0) / (a - 1.0)
    assert 0.1 < each * row < 0.9
    found = jax_privacy._rounding(np.array([1.0, -a]), steps, unit)
    assert found == pytest.approx(each * norm / (1.0 - each * row), rel=1e-9)
    assert jax_privacy._rounding(np.array([1.0, -a]), 2 * steps, unit) == math.inf
