"""Norms of single precision, by which the real Opacus clips, of long rows of gradients that are much alike."""

from __future__ import annotations

import copy
from typing import Any

import hockeystick as hs
import opacus
import pytest
import torch
from hockeystick.interop.opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

pytestmark = pytest.mark.filterwarnings("ignore")


class Products(nn.Module):
    """Linear in the output."""

    reduction = "mean"

    def forward(self, output: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return output.flatten(1).sum(1).mean()


def moved(engine: Any, model: nn.Module, x: torch.Tensor, **options: Any) -> float:
    """By how many clipping norms two equal records move the sum, each: in double precision, and next to no noise."""
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        data_loader=DataLoader(TensorDataset(x, x[:, :1]), batch_size=len(x)),
        noise_multiplier=1e-9,
        **{"max_grad_norm": 1.0, **options},
    )
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for inputs, wanted in loader:
        before = [weight.detach().double() for weight in weights]
        optimizer.zero_grad()
        Products()(model(inputs), wanted).backward()
        optimizer.step()
        square = sum(
            float((weight.detach().double() - was).square().sum())
            for weight, was in zip(weights, before, strict=True)
        )
        return float(square**0.5)
    raise AssertionError("nothing was drawn")


def layer(features: int) -> nn.Module:
    model = nn.Linear(features, features, bias=False)
    nn.init.zeros_(model.weight)
    return model


@pytest.mark.parametrize("value", [1.2, 1.6, 1.9])
def test_long_rows_are_added_up_in_blocks(value: float) -> None:
    """Opacus's own norm of 1.7e7 numbers alike is 1 % too small; a record moved the sum by 1.0107 clipping norms."""
    x = torch.full((2, 4096), value)
    assert 0.9999 < moved(PrivacyEngine(), layer(4096), x) < 1.0001


def test_the_optimizer_is_of_opacus_class() -> None:
    model = layer(300)
    _, optimizer, _ = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        data_loader=DataLoader(TensorDataset(torch.ones(40, 300)), batch_size=4),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    assert isinstance(optimizer, opacus.optimizers.DPOptimizer)
    assert type(optimizer).__name__ == "DPOptimizer"


def test_the_defect_is_still_there() -> None:
    """Where torch mends it this test says so, and the blocks may go."""
    found = [
        moved(opacus.PrivacyEngine(), layer(4096), torch.full((2, 4096), value)) for value in (1.2, 1.6, 1.9)
    ]
    assert max(found) > 1.003


@pytest.mark.parametrize("mode", ["hooks", "functorch"])
def test_blocks_are_those_of_every_kind_of_parameter(mode: str) -> None:
    """Short rows, long ones, those of a bias and of a single number, in one model; and with BatchNorm's like left out."""

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution, self.last = nn.Conv1d(300, 300, 3, bias=True), nn.Linear(8, 2)
            self.norm = nn.GroupNorm(3, 300)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.norm(self.convolution(x)))

    torch.manual_seed(0)
    x = torch.randn(1, 300, 10).repeat(2, 1, 1)
    found = moved(PrivacyEngine(), Mixed(), x, grad_sample_mode=mode, max_grad_norm=0.5)
    assert 0.4999 < found < 0.50005
    # And smaller gradients as they are.
    model = Mixed()
    loose = moved(PrivacyEngine(), copy.deepcopy(model), x, grad_sample_mode=mode, max_grad_norm=1e3)
    Products()(model(x[:1]), x).backward()
    plain = sum(float(weight.grad.double().square().sum()) for weight in model.parameters())
    assert loose == pytest.approx(plain**0.5, rel=1e-4)


def test_by_layer_long_rows_are_refused() -> None:
    with pytest.raises(hs.ParameterError, match="4202500 numbers"):
        moved(PrivacyEngine(), layer(2050), torch.ones(2, 2050), clipping="per_layer", max_grad_norm=[1.0])
    assert (
        0.99
        < moved(PrivacyEngine(), layer(500), torch.ones(2, 500), clipping="per_layer", max_grad_norm=[1.0])
        < 1.001
    )
