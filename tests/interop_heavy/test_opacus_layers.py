"""Layers, losses and replicas of the real Opacus under which a record moves the sum by more than max_grad_norm; refused."""

import pickle
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import hockeystick as hs
import pytest
import torch
from hockeystick.interop.opacus import PrivacyEngine
from opacus.layers import DPGRU, DPLSTM
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import BatchSampler, DataLoader, TensorDataset, WeightedRandomSampler

pytestmark = pytest.mark.filterwarnings("ignore")

CROSS = nn.CrossEntropyLoss()


def private(model: nn.Module, x: torch.Tensor, y: torch.Tensor, mode: str = "hooks", **more: Any) -> Any:
    """(engine, model, optimizer, criterion, loader) of all records in every batch."""
    engine = PrivacyEngine()
    options: dict[str, Any] = {
        "criterion": CROSS,
        "data_loader": DataLoader(TensorDataset(x, y), batch_size=len(x)),
    }
    options = {"max_grad_norm": 1.0, **options, **more}
    made = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        noise_multiplier=1.0,
        grad_sample_mode=mode,
        **options,
    )
    return engine, made[0], made[1], made[2] if len(made) == 4 else options["criterion"], made[-1]


def train(parts: Any, epochs: int = 2, autocast: bool = False) -> int:
    engine, model, optimizer, criterion, loader = parts
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                output = model(x)
            criterion(output, y).backward()
            optimizer.step()
    return len(engine.accountant)


class Words(nn.Module):
    """Sequences of one to six vectors, of which a recurrent layer's last state is classified."""

    def __init__(self, kind: Any, ordered: bool, named: bool = False) -> None:
        super().__init__()
        self.recurrent, self.last = kind(4, 3, batch_first=True), nn.Linear(3, 3)
        self.ordered, self.named = ordered, named

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(x[:, 1:], x[:, 0, 0].long(), True, enforce_sorted=self.ordered)
        _, state = self.recurrent(input=packed) if self.named else self.recurrent(packed)
        return self.last((state[0] if isinstance(state, tuple) else state)[-1])


def sequences(ordered: bool) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(50, 7, 4)
    lengths = torch.randint(1, 7, (50,))
    x[:, 0, 0] = lengths.sort(descending=True).values if ordered else lengths
    return x, torch.randint(0, 3, (50,))


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ghost"])
@pytest.mark.parametrize("kind", [DPGRU, DPLSTM])
def test_packed_sequences_keep_the_order_of_the_batch(kind: Any, mode: str) -> None:
    """The rows of the recurrent layer are in another order than those of the linear one: one record moved the sum by 2.4 to 8.2 norms."""
    torch.manual_seed(1)
    for named in (False, True):
        with pytest.raises(hs.ParameterError, match="packed sequence of records in another order"):
            train(private(Words(kind, False, named), *sequences(False), mode))
    assert train(private(Words(kind, True), *sequences(True), mode)) == 2


class Scaled(nn.Module):
    """Multiplies what a layer returns, or the gradients of its weight, from outside."""

    def __init__(self, where: str, factor: float) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 5), nn.Linear(5, 2)
        self.where, self.factor = where, factor

    def multiply(self, weight: Any) -> None:
        weight.grad.mul_(self.factor)

    def put(self) -> None:
        match self.where:
            case "forward":
                self.last.register_forward_hook(lambda layer, inputs, output: self.factor * output)
            case "weight":
                self.last.weight.register_hook(lambda gradient: self.factor * gradient)
            case "accumulated":
                self.last.weight.register_post_accumulate_grad_hook(self.multiply)
            case "instance":
                forward = self.last.forward
                self.last.forward = lambda x: self.factor * forward(x)  # type: ignore[method-assign]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x).tanh())


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("where", ["forward", "weight", "accumulated", "instance"])
def test_hooks_of_the_users_are_refused_under_ghost_clipping(where: str, late: bool) -> None:
    """Norms are computed without them; gradients were K times as large as they were clipped to."""
    x, y = torch.randn(30, 6), torch.randint(0, 2, (30,))

    def run(mode: str) -> int:
        model = Scaled(where, 3.0)
        if not late:
            model.put()
        parts = private(model, x, y, mode)
        if late:
            model.put()
        return train(parts)

    with pytest.raises(hs.ParameterError, match=r"module.*(hook|replaced)"):
        run("ghost")
    assert run("hooks") == 2


class Passing(Scaled):
    """Multiplies what its last layer returns, or every module, in each forward pass."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        everywhere = self.where == "every module"
        register = (
            nn.modules.module.register_module_forward_hook if everywhere else self.last.register_forward_hook
        )
        put = register(lambda layer, inputs, output: self.factor * output)
        try:
            return super().forward(x)
        finally:
            put.remove()


@pytest.mark.parametrize("where", ["every module", "this pass"])
def test_hooks_of_one_pass_are_refused_under_ghost_clipping(where: str) -> None:
    x, y = torch.randn(30, 6), torch.randint(0, 2, (30,))
    with pytest.raises(hs.ParameterError, match="has a forward hook"):
        train(private(Passing(where, 3.0), x, y, "ghost"))
    assert train(private(Passing(where, 3.0), x, y, "hooks")) == 2


class Shared(nn.Module):
    """A weight of two layers, the second of a kind that Opacus does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Embedding(6, 5)
        self.last = nn.modules.linear.NonDynamicallyQuantizableLinear(5, 6)
        self.last.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x[:, 0].abs().long() % 6))


def test_weights_of_two_layers_are_refused_under_ghost_clipping() -> None:
    """The norm was that of the first use alone: a record moved the sum by 75 norms."""
    x, y = torch.randn(30, 6), torch.randint(0, 6, (30,))
    with pytest.raises(hs.ParameterError, match=r"module\.last has a weight of a Embedding, too"):
        private(Shared(), x, y, "ghost")
    assert train(private(Shared(), x, y, "hooks")) == 2


def test_layers_that_are_differentiated_anew_stay_as_they_were() -> None:
    """Opacus keeps a copy of them: what changes later is in the gradients alone."""
    x, y = torch.randn(30, 6), torch.randint(0, 2, (30,))

    def model() -> nn.Sequential:
        return nn.Sequential(
            nn.Unflatten(1, (1, 6)), nn.ConvTranspose1d(1, 2, 3), nn.Flatten(), nn.Linear(16, 2)
        )

    assert train(private(model(), x, y, "ghost")) == 2
    late = model()
    late[1].eval()
    parts = private(late, x, y, "ghost")
    late.train()
    with pytest.raises(
        hs.ParameterError, match=r"training of a ConvTranspose1d.* what it was in make_private"
    ):
        train(parts)
    hooked = model()
    hooked[1].register_forward_pre_hook(lambda layer, inputs: (inputs[0] / 30.0,))
    with pytest.raises(hs.ParameterError, match=r"module\.1 has a forward hook"):
        private(hooked, x, y, "ghost")
    assert train(private(hooked, x, y, "hooks")) == 2


class Columns(nn.Module):
    """A convolution on a view of records that are not outermost in memory, as recurrent layers return them."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer, self.kind = nn.Conv2d(1, 3, (3, 8)), kind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "transposed":
            x = x.transpose(0, 1).contiguous().transpose(0, 1)
        elif self.kind == "innermost":
            x = x.permute(1, 2, 0).contiguous().permute(2, 0, 1)
        x = x.unsqueeze(1)
        if self.kind == "channels last":
            x = x.to(memory_format=torch.channels_last)
        return self.layer(x).squeeze(3).mean(2)


def test_linear_layers_on_maps_are_refused_under_ghost_clipping() -> None:
    """Norms of outputs of four dimensions are not computed, and were 0 when sharded: a record moved the sum by 1.6e5 norms."""
    x, y = torch.randn(30, 2, 2, 6), torch.randint(0, 2, (30,))

    def model() -> nn.Sequential:
        return nn.Sequential(nn.Linear(6, 5), nn.Flatten(), nn.Linear(20, 2))

    with pytest.raises(hs.ParameterError, match="a Linear has an output of 4 dimensions"):
        train(private(model(), x, y, "ghost"))
    assert train(private(model(), x, y, "hooks")) == 2


def test_layers_that_were_frozen_are_refused_under_ghost_clipping() -> None:
    """Opacus has no hooks on them, and their gradients were summed as they are."""
    x, y = torch.randn(30, 6), torch.randint(0, 2, (30,))
    model = nn.Sequential(nn.Linear(6, 5, bias=False), nn.Linear(5, 2))
    model[0].requires_grad_(False)
    parts = private(model, x, y, "ghost")
    model[0].requires_grad_(True)
    with pytest.raises(hs.ParameterError, match=r"has a gradient and no norms"):
        train(parts)


class Pixels(nn.Module):
    """A convolution of the means of images that have their channels last in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(6, 4, 3, padding=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.adaptive_avg_pool2d(x.to(memory_format=torch.channels_last), 1)
        return self.layer(x).flatten(1)


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_convolutions_see_maps_of_one_pixel(mode: str) -> None:
    """Whatever strides those have, torch calls them contiguous: Opacus read padding alone, so that gradients or norms were 0."""
    torch.manual_seed(4)
    x, y = torch.randn(20, 6, 5, 5) + 1.0, torch.randint(0, 4, (20,))
    parts = private(Pixels(), x, y, mode, max_grad_norm=0.01)
    train(parts, epochs=1)
    found = float(parts[2].params[0].summed_grad.norm())
    assert 0.01 < found <= 20 * 0.01 * (1.0 + 1e-3)


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
@pytest.mark.parametrize("kind", ["plain", "transposed", "innermost", "channels last"])
def test_convolutions_see_records_wherever_they_lie(kind: str, mode: str) -> None:
    """Opacus read them by the strides of another layout: a record changed the rows of others, and moved the sum by 7.6 norms."""
    torch.manual_seed(3)
    x, y = torch.randn(60, 9, 8), torch.randint(0, 3, (60,))
    x[25] *= 100.0
    start, everyone = Columns(kind).state_dict(), torch.ones(60, dtype=torch.bool)
    others = everyone.clone()
    others[25] = False

    def summed(keep: torch.Tensor) -> torch.Tensor:
        model = Columns(kind)
        model.load_state_dict(start)
        parts = private(model, x[keep], y[keep], mode, max_grad_norm=0.01)
        train(parts, epochs=1)
        return torch.cat([p.summed_grad.flatten() for p in parts[2].params]).double()

    moved = []
    for y[25] in range(3):  # a record that is recognised has no gradient
        moved.append(float((summed(everyone) - summed(others)).norm()))
    assert 0.009 < max(moved) < 0.01001


class Padded(nn.Module):
    """A layer that Opacus does not know, with an optional argument that matters."""

    def __init__(self, masked: bool) -> None:
        super().__init__()
        self.layer, self.last, self.masked = nn.ConvTranspose1d(1, 2, 3, stride=2), nn.Linear(28, 2), masked

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = [14] if self.masked else None
        made = self.layer(x[:, None], output_size=size)
        return self.last(nn.functional.pad(made, (0, 14 - made.shape[2])).flatten(1))


def test_ghost_clipping_takes_first_arguments_alone() -> None:
    x, y = torch.randn(30, 6), torch.randint(0, 2, (30,))
    with pytest.raises(hs.ParameterError, match=r"output_size: must have its default in ConvTranspose1d"):
        train(private(Padded(True), x, y, "ghost"))
    assert train(private(Padded(False), x, y, "ghost")) == 2


def test_gates_are_refused_under_ghost_clipping() -> None:
    """Their norms were those without the gate: a record moved the sum by 27 norms."""
    mamba = pytest.importorskip("transformers.models.mamba2.modeling_mamba2")

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.last = mamba.MambaRMSNormGated(6, group_size=6), nn.Linear(6, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.norm(x, x.flip(1)))

    x, y = torch.randn(30, 6), torch.randint(0, 2, (30,))
    with pytest.raises(hs.ParameterError, match="gate: must have its default in MambaRMSNormGated"):
        train(private(Mixed(), x, y, "ghost"))
    assert train(private(Mixed(), x, y, "hooks")) == 2


class Losses(nn.Module):
    """The loss of the batch and that of `count` public records, behind each other in one graph; batches are along `dimension`."""

    def __init__(self, model: nn.Module, count: int, dimension: int = 0) -> None:
        super().__init__()
        self.model, self.count, self.dimension = model, count, dimension

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        public = torch.ones_like(x.narrow(self.dimension, 0, self.count))
        return self.model(x) + self.model(public).mean(self.dimension, keepdim=True)


@pytest.mark.parametrize("mode", ["hooks", "functorch"])
def test_passes_on_other_records_are_refused(mode: str) -> None:
    """Row i of one is added to row i of the other, and a record less pairs all others anew."""
    x, y = torch.randn(8, 3), torch.randint(0, 2, (8,))
    for count in (1, 7):
        with pytest.raises(
            hs.ParameterError, match=f"forward passes of {count} and 8 rows before a backward pass"
        ):
            train(private(Losses(nn.Linear(3, 2), count), x, y, mode))
    assert train(private(Losses(nn.Linear(3, 2), 8), x, y, mode)) == 2


class Recurrent(nn.Module):
    """The mean state of a recurrent layer, and nothing behind it that is trained."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.layer = kind(3, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0].mean(1)


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
        self.other.weight = self.one.weight

    def forward(self, x: torch.Tensor, count: int) -> torch.Tensor:
        return self.one(x) + self.other(torch.ones(count, 3)).mean(0)


@pytest.mark.parametrize("kind", [DPLSTM, DPGRU])
def test_recurrent_layers_and_tied_weights_see_the_same_records(kind: Any) -> None:
    """Of two passes of a recurrent layer one record moved the sum by 18 to 20 norms, of a tied weight by 12."""
    x, y = torch.randn(8, 5, 3), torch.randint(0, 2, (8,))
    with pytest.raises(hs.ParameterError, match=f"weights of {kind.__name__} .* of 3 and 8 rows"):
        train(private(Losses(Recurrent(kind), 3), x, y))
    assert train(private(Losses(Recurrent(kind), 8), x, y)) == 2
    assert train(private(Recurrent(kind), x, y)) == 2

    class Counted(Tied):
        count = 3

        def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return super().forward(x, self.count)

    with pytest.raises(hs.ParameterError, match=r"weights of Linear .* of 3 and 8 rows"):
        train(private(Counted(), x[:, 0], y))
    Counted.count = 8
    assert train(private(Counted(), x[:, 0], y)) == 2


def test_passes_without_gradients_or_with_a_backward_pass_are_let_pass() -> None:
    x, y = torch.randn(8, 3), torch.randint(0, 2, (8,))
    engine, model, optimizer, criterion, loader = private(nn.Linear(3, 2), x, y)
    for x, y in loader:
        with torch.no_grad():
            model(x[:3])
        model.eval()
        model(x[:5])
        model.train()
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
    assert len(engine.accountant) == 1


def test_passes_of_batches_along_another_dimension_are_counted_there() -> None:
    x, y = torch.randn(8, 5, 3), torch.randint(0, 2, (8,))

    class Turned(nn.Module):
        """Two passes of 8 records, of sequences that are not of one length, and, if asked, one of fewer."""

        def __init__(self, count: int) -> None:
            super().__init__()
            self.layer, self.count = nn.Linear(3, 2), count

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            turned = x.transpose(0, 1)
            return self.layer(turned).mean(0) + self.layer(turned[:2, : self.count]).mean((0, 1))

    with pytest.raises(hs.ParameterError, match="forward passes of 6 and 8 rows"):
        train(private(Turned(6), x, y, batch_first=False))
    assert train(private(Turned(8), x, y, batch_first=False)) == 2


def test_coins_are_of_another_stream_than_the_noise() -> None:
    """After manual_seed of both with one seed, who was drawn could be read off the noise, in 300 of 300 runs."""

    def drawn(generator: torch.Generator | None) -> list[int]:
        torch.manual_seed(7)
        x = torch.arange(400.0)[:, None]
        loader = DataLoader(TensorDataset(x, torch.zeros(400)), batch_size=20, generator=generator)
        made = private(nn.Linear(1, 1), x, x, data_loader=loader)[-1]
        assert made.batch_sampler.generator not in (None, generator)
        return next(iter(made))[0].flatten().int().tolist()

    # Two draws of 400 coins with probability 1/20 agree with one below (1 - 2/20 + 2/400)^400 < 1e-17.
    assert drawn(None) != drawn(None)
    with pytest.warns(UserWarning, match=r"data_loader\.generator is not what decides"):
        first = drawn(torch.Generator().manual_seed(7))
    assert first != drawn(torch.Generator().manual_seed(7))


class Spectral(nn.Module):
    """A layer with complex weights and real output."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(5, dtype=torch.cfloat))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fft.irfft(torch.fft.rfft(x) * self.weight, n=8)


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ghost"])
def test_complex_weights_are_refused(mode: str) -> None:
    """Each of the two real coordinates had 1 / sqrt(2) of the noise."""
    with pytest.raises(hs.ParameterError, match=r"dtype = torch.complex64"):
        private(
            nn.Sequential(Spectral(), nn.Linear(8, 3)), torch.randn(9, 8), torch.randint(0, 3, (9,)), mode
        )


class Own(nn.Module):
    """A layer that Opacus does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.scale = nn.Parameter(torch.eye(8)), 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight * self.scale


@pytest.mark.parametrize("layer", [Own, lambda: nn.Linear(8, 8)])
@pytest.mark.parametrize("mode", ["hooks", "functorch"])
def test_autocast_is_refused_whatever_computes_gradients(layer: Any, mode: str) -> None:
    """Rounded to 16 bits after a product with the batch's size: one record moved the sum by 6.5 norms."""
    x, y = torch.randn(40, 8), torch.randint(0, 8, (40,))
    parts = private(nn.Sequential(layer()), x, y, mode)
    with pytest.raises(hs.ParameterError, match=r"16 bits"):
        train(parts, autocast=True)
    assert parts[0].accountant.history == []
    with torch.no_grad():
        assert torch.autocast("cpu", dtype=torch.bfloat16)(parts[1])(x).dtype == torch.bfloat16
    assert train(private(nn.Sequential(layer()), x, y, mode)) == 2


class Above(nn.Module):
    """A trained layer, and above it something of 16 bits that is not trained."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.first, self.above, self.how = nn.Linear(8, 8), nn.Linear(8, 8).requires_grad_(False), how
        if how == "weights":
            self.above.bfloat16()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        if self.how == "activation":
            return self.above(torch.relu(hidden.bfloat16()).float())
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.how == "autocast"):
            return self.above(hidden.bfloat16() if self.how == "weights" else hidden).float()


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ghost"])
@pytest.mark.parametrize("how", ["weights", "activation", "autocast"])
def test_16_bits_above_trained_layers_are_refused(how: str, mode: str) -> None:
    """Gradients are rounded on their way down: one record moved the sum by up to 6.1 norms."""
    x, y = torch.randn(40, 8), torch.randint(0, 8, (40,))
    parts = private(Above(how), x, y, mode)
    with pytest.raises(hs.ParameterError, match=r"16 bits"):
        train(parts)
    assert parts[0].accountant.history == []
    assert train(private(Above("nothing"), x, y, mode)) == 2


class Long(nn.Module):
    """Operations one after the other, more than a stack has room for."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.layer(x)
        for _ in range(100_000):
            hidden = hidden * 1.0
        return hidden


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_long_graphs_are_freed(mode: str) -> None:
    assert train(private(Long(), torch.randn(4, 8), torch.randint(0, 8, (4,)), mode), epochs=1) == 1


def test_a_model_that_is_called_on_what_it_returned_is_freed() -> None:
    """Each call looked at a thousand operations of one graph, and in a thread of a small stack a few calls overflowed it."""

    class Many(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = self.layer(x)
            for _ in range(1000):
                hidden = hidden * 1.0
            return hidden

    done = []

    def run() -> None:
        _, model, optimizer, criterion, loader = private(Many(), torch.randn(4, 8), torch.randint(0, 8, (4,)))
        for x, y in loader:
            optimizer.zero_grad()
            hidden = x
            for _ in range(8):
                hidden = model(hidden)
            criterion(hidden, y).backward()
            done.append(True)

    before = threading.stack_size(512 * 1024)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    threading.stack_size(before)
    assert done == [True]


def test_a_weight_that_a_model_returns_is_let_pass() -> None:
    class Shown(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> Any:
            return self.layer(x), {"weight": self.layer.weight}

    for mode in ("hooks", "functorch", "ew"):
        parts = private(Shown(), torch.randn(4, 8), torch.randint(0, 8, (4,)), mode)
        parts[1](torch.randn(4, 8))[0].sum().backward()


@pytest.mark.parametrize("mode", ["hooks", "functorch"])
def test_a_backward_pass_under_autocast_is_refused(mode: str) -> None:
    _, model, optimizer, criterion, loader = private(
        nn.Sequential(Own()), torch.randn(40, 8), torch.randint(0, 8, (40,)), mode
    )
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        with (
            torch.autocast("cpu", dtype=torch.bfloat16),
            pytest.raises(hs.ParameterError, match=r"torch\.autocast: must be off in the backward pass"),
        ):
            loss.backward()


def test_ghost_losses_may_be_evaluated_under_autocast() -> None:
    _, model, _, criterion, loader = private(
        nn.Linear(8, 8), torch.randn(40, 8), torch.randint(0, 8, (40,)), "ghost"
    )
    model.eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for x, y in loader:
            assert criterion(model(x), y).item() > 0.0


@pytest.mark.parametrize("mode", ["hooks", "ghost", "ew"])
def test_nothing_of_ours_stays_in_a_model_that_is_taken_back(mode: str) -> None:
    recurrent = mode != "ew"
    model = Words(DPLSTM, True) if recurrent else nn.Sequential(nn.Linear(8, 8))
    x, y = sequences(True) if recurrent else (torch.randn(50, 8), torch.randint(0, 8, (50,)))
    parts = private(model, x, y, mode)
    pickle.dumps(parts[3])
    if recurrent:
        assert train(parts) == 2
    parts[1].to_standard_module()
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in model.modules())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(x).sum().backward()


def test_ghost_clipping_has_one_loss_for_each_record() -> None:
    """Losses (B, 1) are each multiplied by all factors: one record moved the sum by 40 norms where the labels are balanced."""
    x, y = torch.randn(64, 8), torch.randint(0, 2, (64, 1)).float()
    with pytest.raises(hs.ParameterError, match=r"losses of shape \(64, 1\)"):
        train(private(nn.Linear(8, 1), x, y, "ghost", criterion=nn.BCEWithLogitsLoss()))
    squeezed = nn.Sequential(nn.Linear(8, 1), nn.Flatten(0))
    assert train(private(squeezed, x, y[:, 0], "ghost", criterion=nn.BCEWithLogitsLoss())) == 2


def test_ghost_clipping_takes_layers_whose_norms_are_right() -> None:
    """Keyword arguments and attributes that change later are not seen (20 norms), nor how often a word occurs (4.5)."""
    x, y = torch.randn(20, 8), torch.randint(0, 8, (20,))
    with pytest.raises(hs.ParameterError, match=r"module\.0 is a Own"):
        private(nn.Sequential(Own()), x, y, "ghost")
    assert train(private(nn.Sequential(Own()), x, y)) == 2
    words = torch.randint(0, 8, (20,))
    often = nn.Sequential(nn.Embedding(8, 8, scale_grad_by_freq=True))
    with pytest.raises(hs.ParameterError, match=r"module\.0\.scale_grad_by_freq"):
        private(often, words, y, "ghost")
    assert train(private(nn.Sequential(nn.Embedding(8, 8)), words, y, "ghost")) == 2


@pytest.mark.parametrize("how", ["sum", "mean", "max"])
def test_ghost_clipping_counts_a_repeated_word_once(how: str) -> None:
    """One record of thirty equal words moved the sum by 30 norms."""

    class Bags(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bags = nn.EmbeddingBag(8, 8, mode=how)

        def forward(self, words: torch.Tensor) -> torch.Tensor:
            return self.bags(words.flatten(), torch.arange(0, words.numel(), words.shape[1]))

    words, y = torch.zeros(20, 30, dtype=torch.long), torch.randint(0, 8, (20,))
    with pytest.raises(hs.ParameterError, match=r"module\.bags is an EmbeddingBag"):
        private(Bags(), words, y, "ghost")
    assert train(private(Bags(), words, y)) == 2


def test_norms_of_one_batch_clip_no_other() -> None:
    parts = private(nn.Linear(8, 8), torch.randn(20, 8), torch.randint(0, 8, (20,)), "ghost")
    assert train(parts) == 2
    assert not any(hasattr(parameter, "_norm_sample") for parameter in parts[1].parameters())


class Largest(nn.Module):
    """Keeps the largest value that it has seen."""

    def __init__(self, replaced: bool) -> None:
        super().__init__()
        self.replaced = replaced
        self.register_buffer("largest", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.replaced:
            self.largest = torch.maximum(self.largest, x.detach().max())
        else:
            self.largest.copy_(torch.maximum(self.largest, x.detach().max()))
        return x


@pytest.mark.parametrize("replaced", [False, True])
def test_buffers_that_change_are_warned_of_once(replaced: bool) -> None:
    parts = private(
        nn.Sequential(Largest(replaced), nn.Linear(8, 8)), torch.randn(20, 8), torch.randint(0, 8, (20,))
    )
    with pytest.warns(UserWarning, match=r"module\.0\.largest has changed") as caught:
        assert train(parts, epochs=3) == 3
    assert sum("has changed" in str(warning.message) for warning in caught) == 1


def test_buffers_of_a_checkpoint_are_let_pass() -> None:
    model = nn.Sequential(nn.Identity(), nn.Linear(8, 8))
    model[0].register_buffer("mean", torch.zeros(8))
    state = {name: value + 9.0 for name, value in model.state_dict().items()}
    parts = private(model, torch.zeros(20, 8), torch.randint(0, 8, (20,)))
    model.load_state_dict(state)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="module.* has changed")
        assert train(parts) == 2


def test_a_private_loader_is_taken_without_a_warning() -> None:
    x, y = torch.randn(20, 8), torch.randint(0, 8, (20,))
    loader = private(nn.Linear(8, 8), x, y)[-1]
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="data_loader.*: Opacus draws")
        private(nn.Linear(8, 8), x, y, data_loader=loader)


def test_samplers_inside_batch_samplers_are_named() -> None:
    x, y = torch.randn(200, 8), torch.randint(0, 8, (200,))
    weighted = BatchSampler(WeightedRandomSampler(torch.rand(200).tolist(), 200), 20, False)
    with pytest.warns(UserWarning, match=r"data_loader\.sampler is a WeightedRandomSampler"):
        private(nn.Linear(8, 8), x, y, data_loader=DataLoader(TensorDataset(x, y), batch_sampler=weighted))
    with pytest.warns(UserWarning, match=r"data_loader\.batch_sampler is a list"):
        private(nn.Linear(8, 8), x, y, data_loader=DataLoader(TensorDataset(x, y), batch_sampler=[[0], [1]]))


REPLICA = """
import contextlib, sys, warnings
warnings.simplefilter("ignore")
import torch
import torch.distributed as dist
from hockeystick.interop.opacus import PrivacyEngine
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel as Replicated
from opacus.utils.batch_memory_manager import BatchMemoryManager
from opacus.utils.fsdp_utils import FSDP2Wrapper
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.utils.data import DataLoader, Subset, TensorDataset

rank, store, case = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
torch.manual_seed(0)
records = TensorDataset(torch.randn(400, 8), torch.randint(0, 4, (400,)))
rows = 8 if case == "rows" else 1
if case in ("other split", "same split"):
    torch.manual_seed(rank if case == "other split" else 5)
    records = Subset(records, torch.randperm(400)[:300].tolist())
model = torch.nn.Sequential(torch.nn.Linear(8, 4))
if "split" in case:
    model, mode = Replicated(model), "hooks"
elif "parts" in case and "sharded" not in case:
    model, mode = (Replicated if "Opacus" in case else torch.nn.parallel.DistributedDataParallel)(model), "ghost"
else:
    types = {"16 bits": "param_dtype", "16 bits in sums": "reduce_dtype"}
    policy = {"mp_policy": MixedPrecisionPolicy(**{types[case]: torch.bfloat16})} if case in types else {}
    model, mode = FSDP2Wrapper(model, **policy), "ghost_fsdp"
engine = PrivacyEngine()
try:
    made = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        criterion=torch.nn.CrossEntropyLoss(),
        data_loader=DataLoader(records, batch_size=100),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        grad_sample_mode=mode,
    )
    criterion = made[2] if len(made) == 4 else torch.nn.CrossEntropyLoss()
    parts = BatchMemoryManager(data_loader=made[-1], max_physical_batch_size=40, optimizer=made[1])
    with parts if "parts" in case else contextlib.nullcontext(made[-1]) as loader:
        for x, y in loader:
            made[1].zero_grad()
            criterion(made[0](x.repeat_interleave(rows, 0)), y.repeat_interleave(rows, 0)).backward()
            made[1].step()
    print(len(engine.accountant), "steps")
except ValueError as error:
    print(error)
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("same split", "steps"),
        ("other split", "data_loader.dataset: must be the same on all replicas"),
        ("sharded", "steps"),
        ("16 bits", "dtype = torch.bfloat16"),
        ("16 bits in sums", "dtype = torch.bfloat16"),
        ("rows", "rows, must be"),
        ("Opacus's parts", "steps"),
        ("parts", "must be an opacus.distributed.DifferentiallyPrivateDistributedDataParallel"),
        ("sharded parts", "must be an opacus.distributed.DifferentiallyPrivateDistributedDataParallel"),
    ],
)
def test_replicas(case: str, said: str, tmp_path: Path) -> None:
    """Two processes: a record in both shares counts twice, sharded gradients of 16 bits and several rows were not seen.

    Where replicas had different numbers of parts, torch's own exchanges put gradients of one into the other's sum, or never ended.
    """
    running = [
        subprocess.Popen(
            [sys.executable, "-c", REPLICA, str(rank), str(tmp_path / "store"), case],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in running:
        assert said in process.communicate(timeout=120)[0]
