"""What a loop may do between the forward pass and the step of the real Opacus, under the strict engine, without the step seeing it."""

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import hockeystick as hs
import opacus
import pytest
import torch
from hockeystick.interop import opacus_batches
from hockeystick.interop.opacus import PrivacyEngine
from opacus.layers import DPLSTM
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

pytestmark = pytest.mark.filterwarnings("ignore")


class Squares(nn.Module):
    """A loss of each record, or their mean; or, ``alone``, the mean as a single loss whatever is asked for."""

    def __init__(self, alone: bool = False) -> None:
        super().__init__()
        self.alone, self.reduction = alone, "mean"

    def forward(self, predicted: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        losses = ((predicted - wanted) ** 2).flatten(1).sum(1)
        if self.alone:
            return losses.mean().reshape(1)
        return losses if self.reduction == "none" else losses.mean()


def private(
    model: nn.Module, mode: str, records: int = 60, engine: Any = None, criterion: Any = None, **more: Any
) -> Any:
    """(model, optimizer, criterion, loader) of a run whose batches have all records."""
    torch.manual_seed(1)
    x, y = torch.randn(60, 4) * 10, torch.randn(60, 2) * 10
    engine, criterion = engine or PrivacyEngine(), criterion or Squares()
    options = {"noise_multiplier": 0.0, "max_grad_norm": 1.0, **more}
    made = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        data_loader=DataLoader(TensorDataset(x[:records], y[:records]), batch_size=records),
        criterion=criterion,
        grad_sample_mode=mode,
        **options,
    )
    return made[0], made[1], made[2] if len(made) == 4 else criterion, made[-1]


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ghost"])
@pytest.mark.parametrize("engine", [PrivacyEngine, opacus.PrivacyEngine])
@pytest.mark.parametrize("frozen", ["one", "all"])
def test_what_is_frozen_before_the_step_is_not_applied_unclipped(mode: str, engine: Any, frozen: str) -> None:
    """Opacus looks at what is trained at the step, and leaves the raw gradient of the rest to the optimizer it wraps."""
    if engine is opacus.PrivacyEngine and frozen == "all":
        return  # its optimizer calls nobody then
    net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    model, optimizer, criterion, loader = private(net, mode, engine=engine(accountant="hockeystick"))
    x, y = next(iter(loader))
    criterion(model(x), y).backward()
    for parameter in [*model.parameters()][: None if frozen == "all" else 2]:
        parameter.requires_grad_(False)
    before = [each.detach().clone() for each in model.parameters()]
    with pytest.raises(hs.ParameterError, match="neither clipped nor with noise"):
        optimizer.step()
    assert all(torch.equal(*each) for each in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_layers_may_be_frozen_before_the_forward_pass(mode: str) -> None:
    net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    net[0].requires_grad_(False)
    model, optimizer, criterion, loader = private(net, mode, noise_multiplier=1.0)
    before = net[0].weight.clone()
    for x, y in loader:
        optimizer.zero_grad(set_to_none=False)
        criterion(model(x), y).backward()
        optimizer.step()
    assert torch.equal(before, net[0].weight)


def sums_after_freezing(records: int) -> torch.Tensor:
    """The second batch's sum, where the first layer was frozen between the parts of the first batch and trained again in the second."""
    torch.manual_seed(0)
    model, optimizer, criterion, loader = private(
        nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)), "hooks", records
    )
    first, part = [*model.parameters()][:2], 0
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=30, optimizer=optimizer) as parts:
        for _ in range(2):
            for x, y in parts:
                for parameter in first:
                    parameter.requires_grad_(part != 1)
                if part == 2:
                    # The weights of both runs are the same again, whatever the first step was.
                    with torch.no_grad():
                        for each in model.parameters():
                            each.copy_(torch.linspace(-1.0, 1.0, each.numel()).reshape(each.shape))
                criterion(model(x), y).backward()
                optimizer.step()
                part += 1
                if part == 4:
                    return torch.cat([each.summed_grad.flatten() for each in optimizer.params])
                optimizer.zero_grad()
                if part == 1:
                    for parameter in first:
                        parameter.grad = None
    raise AssertionError


def test_parts_of_an_earlier_batch_are_not_added() -> None:
    """zero_grad leaves the sum in what is frozen; a record less moves what is left of the first batch, too."""
    moved = sums_after_freezing(60) - sums_after_freezing(59)
    assert 0.5 < float(moved.norm()) <= 1.0 + 1e-4


def test_a_single_loss_is_not_multiplied_by_all_factors() -> None:
    model, _, criterion, loader = private(nn.Linear(4, 2), "ghost", criterion=Squares(alone=True))
    x, y = next(iter(loader))
    with pytest.raises(hs.ParameterError, match=r"1 losses, must be 60"):
        criterion(model(x), y)


def test_a_backward_pass_that_was_interrupted_leaves_no_norms() -> None:
    model, optimizer, criterion, loader = private(nn.Linear(4, 2), "ghost")
    x, y = next(iter(loader))
    loss = criterion(model(x), y)
    enable, model.enable_hooks = model.enable_hooks, lambda: (_ for _ in ()).throw(MemoryError)
    with pytest.raises(MemoryError):
        loss.backward()
    model.enable_hooks = enable
    optimizer.zero_grad()
    with pytest.raises(hs.ParameterError, match="hooks_enabled"):
        criterion(model(x), y)
    model.enable_hooks()
    criterion(model(x), y).backward()
    optimizer.step()


def test_a_single_loss_is_seen_whoever_trains() -> None:
    """Opacus asks each layer whether it trains, not the model; and recurrent layers have rows for each time step."""
    net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    model, _, criterion, loader = private(net, "ghost", criterion=Squares(alone=True))
    x, y = next(iter(loader))
    model.eval()
    net[1].train()
    with pytest.raises(hs.ParameterError, match=r"1 losses, must be 60"):
        criterion(model(x), y)

    class Letters(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.read, self.last = DPLSTM(4, 3, batch_first=True), nn.Linear(3, 2).requires_grad_(False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.read(x[:, None].expand(-1, 5, -1))[0][:, -1])

    for alone in (True, False):
        model, optimizer, criterion, loader = private(Letters(), "ghost", criterion=Squares(alone=alone))
        x, y = next(iter(loader))
        if alone:
            with pytest.raises(hs.ParameterError, match=r"1 losses, must be 60"):
                criterion(model(x), y)
        else:
            (2 * criterion(model(x), y) + 1).backward()
            optimizer.step()


def test_a_backward_pass_that_was_interrupted_before_the_sum_pays_for_no_step() -> None:
    """The gradients are the raw ones then, and the norms are there."""
    model, optimizer, criterion, loader = private(nn.Linear(4, 2), "ghost")
    x, y = next(iter(loader))
    loss = criterion(model(x), y) * 2.0
    zero, optimizer.zero_grad = optimizer.zero_grad, lambda *_: (_ for _ in ()).throw(MemoryError)
    with pytest.raises(MemoryError):
        loss.backward()
    optimizer.zero_grad = zero
    with pytest.raises(hs.ParameterError, match="interrupted"):
        optimizer.step()


def test_not_all_is_frozen_in_a_part_of_a_batch() -> None:
    """Opacus forgets then that it was a part, and takes the first part of the next batch for the last one of this."""
    model, optimizer, criterion, loader = private(nn.Linear(4, 2), "hooks")
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=20, optimizer=optimizer) as parts:
        x, y = next(iter(parts))
        criterion(model(x), y).backward()
        optimizer.zero_grad()
        model.requires_grad_(False)
        with pytest.raises(hs.ParameterError, match="nothing is trained in a part"):
            optimizer.step()


@pytest.mark.parametrize("mode", ["hooks", "ew", "ghost"])
def test_statistics_of_the_batch_are_seen_in_the_forward_pass(mode: str) -> None:
    """Before the step, eval() would hide them."""
    norm = nn.BatchNorm1d(4).requires_grad_(False)
    model, _, _, loader = private(nn.Sequential(norm, nn.Linear(4, 2)), mode)
    x, _ = next(iter(loader))
    with pytest.raises(hs.ParameterError, match="normalises by the batch"):
        model.train()(x)
    with pytest.raises(hs.ParameterError, match="normalises by the batch"), torch.no_grad():
        model.train()(x)
    norm.eval()
    model(x)


class Halves(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.bfloat16().float()


def test_16_bits_are_seen_in_evaluation_mode_where_gradients_are_computed_there() -> None:
    model, _, _, loader = private(nn.Sequential(nn.Linear(4, 3), Halves(), nn.Linear(3, 2)), "ew")
    x, _ = next(iter(loader))
    with pytest.raises(hs.ParameterError, match="bfloat16"):
        model.eval()(x)
    with torch.no_grad():
        model.eval()(x)


def test_the_size_that_is_divided_by_stays() -> None:
    model, optimizer, criterion, loader = private(nn.Linear(4, 2), "hooks")
    x, y = next(iter(loader))
    criterion(model(x), y).backward()
    optimizer.expected_batch_size = len(x) + 1
    with pytest.raises(hs.ParameterError, match="expected_batch_size = 61: must stay 60"):
        optimizer.step()


REPLICA = """
import sys, warnings
warnings.simplefilter("ignore")
import torch
import torch.distributed as dist
import hockeystick as hs
from hockeystick.interop import opacus_batches
from hockeystick.interop.opacus import PrivacyEngine
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel as Replicated

rank, store, changed = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
model = Replicated(torch.nn.Linear(1, 4, bias=False))
records = torch.utils.data.TensorDataset(torch.arange(2000.0)[:, None] / 2000, torch.zeros(2000))
try:
  steps, said = 0, ""
  model, optimizer, loader = PrivacyEngine().make_private(
    module=model,
    optimizer=torch.optim.SGD(model.parameters(), lr=0.0),
    data_loader=torch.utils.data.DataLoader(records, batch_size=100 if changed == "rate" and rank else 200),
    noise_multiplier=1.0,
    max_grad_norm=50.0 if changed == "start" and rank else 1.0,
    loss_reduction="sum" if changed == "sum" and rank else "mean",
)
  for x, y in loader:
        if rank == 0 and steps == 2 and changed in ("max_grad_norm", "noise_multiplier"):
            setattr(optimizer, changed, .02)
        optimizer.zero_grad()
        model(x).sum(1).mean().backward()
        optimizer.step()
        steps += 1
except hs.ParameterError as error:
    said = str(error)
print((steps, said))
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("changed", "steps"),
    [("nothing", 10), ("start", 0), ("rate", 0), ("sum", 0), ("max_grad_norm", 2), ("noise_multiplier", 2)],
)
def test_replicas_clip_and_add_noise_alike(changed: str, steps: int, tmp_path: Path) -> None:
    """One of them adds the noise, for its own norm."""
    command = [sys.executable, "-c", REPLICA]
    running = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "store"), changed], stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    try:
        found = [eval(process.communicate(timeout=120)[0]) for process in running]
    finally:
        for process in running:
            process.kill()
    for done, said in found:
        assert done == steps
        assert ("on the replicas" in said) == (changed != "nothing")


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ghost"])
def test_gradients_are_not_computed_from_what_an_earlier_pass_kept(mode: str) -> None:
    """In evaluation mode Opacus keeps nothing of a layer, and takes what is left of a pass in training mode: of as many other records."""
    model, optimizer, criterion, loader = private(nn.Linear(4, 2), mode)
    before = [weight.detach().clone() for weight in model.parameters()]
    x, y = next(iter(loader))
    optimizer.zero_grad()
    model.train()
    model(torch.randn_like(x))
    model.eval()
    with pytest.raises(hs.ParameterError, match="is called in evaluation mode"):
        criterion(model(x), y)
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ghost"])
def test_passes_that_are_not_differentiated_may_be_in_evaluation_mode(mode: str) -> None:
    model, optimizer, criterion, loader = private(nn.Linear(4, 2), mode)
    x, y = next(iter(loader))
    for _ in range(2):
        loss = criterion(model(x), y)
        with torch.no_grad():
            model.eval()
            model(x)
            model.train()
        loss.backward()
        optimizer.zero_grad()


def test_noise_that_anybody_can_draw_again_is_refused() -> None:
    """All generators that were never seeded have one seed."""
    with pytest.raises(hs.ParameterError, match="noise_generator: has seed"):
        private(nn.Linear(4, 2), "hooks", noise_generator=torch.Generator())
    seeded = torch.Generator()
    seeded.seed()
    private(nn.Linear(4, 2), "hooks", noise_generator=seeded)


def noise_of_a_step(made: Any) -> torch.Tensor:
    """Beside which the gradients are nothing."""
    model, optimizer, criterion, loader = made
    for x, y in loader:
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
    return torch.cat([each.grad.flatten() for each in optimizer.params])


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_seeds_of_a_script_do_not_make_the_noise_again(mode: str) -> None:
    """Two epochs, or runs, that were seeded alike had one noise: the difference of their sums was without any, and ε that of independent ones."""

    def run() -> Any:
        return private(nn.Linear(4, 2), mode, noise_multiplier=1e6)

    first, second = run(), run()
    drawn = []
    for each in (first, first, second):
        torch.manual_seed(3)
        state = torch.get_rng_state()
        drawn.append(noise_of_a_step(each))
        torch.set_rng_state(state)
        drawn.append(noise_of_a_step(each))
    for i, one in enumerate(drawn):
        assert one.norm() > 1e4
        assert all((one - other).norm() > 0.1 * one.norm() for other in drawn[:i])


def test_devices_that_know_no_generators_draw_their_own_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    made = private(nn.Linear(4, 2), "hooks", noise_multiplier=1e6)

    def unknown(device: Any) -> Any:
        raise RuntimeError(f"{device} is not supported for torch.Generator() api")

    monkeypatch.setattr(opacus_batches, "_fresh_generator", unknown)
    assert noise_of_a_step(made).norm() > 1e4
    assert made[1].generator is None


def test_noise_of_a_generator_that_is_given_is_the_scripts() -> None:
    once, again, reset = (
        private(
            nn.Linear(4, 2), "hooks", noise_multiplier=1e6, noise_generator=torch.Generator().manual_seed(5)
        )
        for _ in range(3)
    )
    assert (noise_of_a_step(once) - noise_of_a_step(again)).norm() < 1.0
    reset[1].generator = torch.Generator()
    with pytest.raises(hs.ParameterError, match="noise_generator: has seed"):
        noise_of_a_step(reset)


def assert_clipped_sum(gradients: list[Any], state: Any, batch: Any, loss: Any) -> None:
    """They are the sum over the records of the gradients of their losses, each clipped to 1: computed one by one, by autograd alone."""
    model = nn.Linear(4, 2)
    model.load_state_dict(state)
    expected = torch.zeros(10)
    for one, wanted in zip(*batch, strict=True):
        row = flat(torch.autograd.grad(loss(model(one[None]), wanted[None]), list(model.parameters())))
        expected += row / max(1.0, float(row.norm()))
    assert float((flat(gradients) - expected).norm()) <= 1e-6 * float(expected.norm())


def flat(tensors: Any) -> torch.Tensor:
    return torch.cat([each.flatten() for each in tensors])


def test_ghost_clipping_adds_nothing_to_an_optimizer_that_keeps_its_gradients() -> None:
    """As Accelerate's does while it accumulates: between norms and sum, its zero_grad would leave the gradients that are not clipped."""
    model, optimizer, criterion, loader = private(nn.Linear(4, 2), "ghost")
    optimizer.original_optimizer.zero_grad = lambda set_to_none=True: None
    for _ in range(3):
        state = copy.deepcopy(model._module.state_dict())
        x, y = next(iter(loader))
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
        assert_clipped_sum([weight.summed_grad for weight in model.parameters()], state, (x, y), Squares())


@pytest.mark.parametrize("how", ["another criterion", "its losses", "cleared"])
def test_ghost_clipping_needs_a_loss_of_its_own_criterion(how: str) -> None:
    """Otherwise gradients are those of the mean, which a record moves by its norm over the size of the batch; comparing norms does not find it."""
    model, optimizer, criterion, loader = private(nn.Linear(4, 2), "ghost")
    x, y = next(iter(loader))
    criterion(model(x), y).backward()
    optimizer.step()
    before = [weight.clone() for weight in model.parameters()]
    x, y = next(iter(loader))
    optimizer.zero_grad()
    if how == "another criterion":
        Squares()(model(x), y).backward()
    elif how == "its losses":
        criterion(model(x), y).loss_per_sample.mean().backward()
    else:
        criterion(model(x), y).backward()
        optimizer.zero_grad()
    with pytest.raises(hs.ParameterError, match="no loss that the criterion of make_private returned"):
        optimizer.step()
    assert all(map(torch.equal, before, model.parameters()))
    criterion(model(x), y).backward()
    optimizer.step()


def test_ghost_clipping_refuses_a_penalty_that_is_differentiated() -> None:
    """Each record's factor multiplies its gradient, which no norm is of: with .01 of the L1 norm of 836 weights a record moved the sum by 1.02 C."""
    model, _, criterion, loader = private(nn.Linear(4, 2), "ghost")
    x, y = next(iter(loader))
    loss, weights = criterion(model(x), y), next(model.parameters())
    sparse, learned = weights.abs().sum(), weights[0, 0].exp()
    for combined in (
        lambda: loss + 0.01 * sparse,
        lambda: 0.01 * sparse + loss,
        lambda: sparse - loss,
        lambda: loss * learned,
        lambda: -(loss / learned),
    ):
        with pytest.raises(hs.ParameterError, match=r"a tensor of shape \(\) that is differentiated"):
            combined()


def test_penalties_of_single_records_are_let_pass() -> None:
    model, optimizer, criterion, loader = private(nn.Linear(4, 2), "ghost")
    x, y = next(iter(loader))
    output = model(x)
    of_each = 3.0 * output.pow(2).sum(1)
    (0.5 * (criterion(output, y) + of_each) * torch.ones(()) - x.mean()).backward()

    def loss(predicted: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return 0.5 * ((predicted - wanted).pow(2).sum() + 3.0 * predicted.pow(2).sum())

    found = [weight.grad for weight in model.parameters()]
    assert_clipped_sum(found, model._module.state_dict(), (x, y), loss)
    optimizer.step()
