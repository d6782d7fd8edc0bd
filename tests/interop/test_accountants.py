"""Accountants of other libraries: their adjacency, their place, and what False means."""

from __future__ import annotations

from typing import Any

import hockeystick as hs
import pytest
import torch
from flwr.serverapp import GaussianPrivacyEvent, NeighboringRelation, PrivacyConfig, SamplingMethod
from hockeystick.interop import flower
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


def test_the_noise_is_for_the_last_batch_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """.51 epochs of 75 batches are 39 steps."""
    engine, made = PrivacyEngine(), {}
    monkeypatch.setattr(PrivacyEngine, "make_private", lambda self, **options: made.update(options))
    engine.make_private_with_epsilon(
        data_loader=[None] * 75, target_epsilon=2.0, target_delta=1e-5, epochs=0.51
    )
    run = hs.PoissonSampled(hs.Gaussian(made["noise_multiplier"]), drawn_rate(1 / 75)) * 39
    assert hs.account(run).epsilon(1e-5) <= 2.0
