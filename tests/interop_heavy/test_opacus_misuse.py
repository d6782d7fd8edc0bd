"""Ways to train with the real Opacus, under the strict engine, that the accounting does not cover."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hockeystick as hs
import opacus
import pytest
import torch
from hockeystick.interop.opacus import BatchWarning, PrivacyEngine, own_coins
from hockeystick.interop.opacus_batches import check_replicas
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import nn
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)

pytestmark = pytest.mark.filterwarnings("ignore")

LOSS = nn.CrossEntropyLoss()
MODES = pytest.mark.parametrize("mode", ["hooks", "ghost"])


class Tied(nn.Module):
    """A weight that is used again outside its module, as language models do with that of their embedding."""

    def __init__(self, again: bool) -> None:
        super().__init__()
        self.again = again
        self.first, self.last = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        if self.again:
            return self.last(hidden) * 1e-3 + nn.functional.linear(hidden, self.first.weight)
        return self.last(hidden)


def private(
    mode: str = "hooks",
    engine: Any = None,
    model: Any = None,
    scale: float = 100.0,
    size: int = 20,
    workers: int = 0,
    **more: Any,
) -> Any:
    """(engine, model, optimizer, criterion, loader) of a small run."""
    torch.manual_seed(1)
    engine, model = engine or PrivacyEngine(), model or Tied(False)
    kind = next(model.parameters()).dtype
    records = TensorDataset((torch.randn(400, 8) * scale).to(kind), torch.randint(0, 8, (400,)))
    made = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.0),
        criterion=LOSS,
        data_loader=DataLoader(records, batch_size=size, num_workers=workers),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        grad_sample_mode=mode,
        **more,
    )
    criterion = made[2] if len(made) == 4 else LOSS
    return engine, made[0], made[1], criterion, made[-1]


def train(
    parts: Any,
    after: Callable[[Any, Any], None] = lambda model, x: None,
    stepped: Any = None,
    autocast: bool = False,
) -> None:
    _, model, optimizer, criterion, loader = parts
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            output = model(x)
        criterion(output, y).backward()
        after(model, x)
        (stepped or optimizer).step()


ENGINES = pytest.mark.parametrize("engine", [PrivacyEngine, opacus.PrivacyEngine])


@ENGINES
def test_weights_that_are_used_outside_their_module_stop_ghost_clipping(engine: Any) -> None:
    # In larger batches gradients of different directions hide it: this finds gross cases.
    parts = private("ghost", engine(accountant="hockeystick"), Tied(True), size=1)
    with pytest.raises(hs.ParameterError, match="gradients came in that ghost clipping does not see"):
        train(parts)
    assert len(parts[0].accountant) < 20


@ENGINES
def test_a_second_backward_pass_stops_ghost_clipping(engine: Any) -> None:
    parts = private("ghost", engine(accountant="hockeystick"))
    with pytest.raises(
        hs.ParameterError, match=r"gradients came in that ghost clipping does not see|changed after"
    ):
        train(parts, lambda model, x: model(x).pow(2).sum().backward())
    assert parts[0].accountant.history == []


def multiply(model: Any, x: torch.Tensor) -> None:
    for parameter in model.parameters():
        parameter.grad *= 1.5


def replace(model: Any, x: torch.Tensor) -> None:
    for parameter in model.parameters():
        parameter.grad = 1.5 * parameter.grad


@pytest.mark.parametrize(
    "after", [lambda model, x: (0.1 * model(x).logsumexp(1).mean()).backward(), multiply, replace]
)
def test_the_sum_of_ghost_clipping_stays_as_it_was_made(after: Callable[[Any, Any], None]) -> None:
    """In batches whose gradients cancel, the norm of the sum shows none of it: a record moved it by 1.5 C, and with records of norm 10 C by 2.9 C."""
    for size in (1, 200):
        parts = private("ghost", size=size, scale=1.0)
        before = [weight.clone() for weight in parts[1].parameters()]
        with pytest.raises(hs.ParameterError, match="was changed after the backward pass"):
            train(parts, after)
        assert parts[0].accountant.history == []
        assert all(map(torch.equal, before, parts[1].parameters()))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize(
    "model",
    [
        lambda: Tied(False),
        lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 8)),
        lambda: nn.Sequential(nn.Unflatten(1, (1, 8)), nn.Conv1d(1, 4, 3), nn.Flatten(), nn.Linear(24, 8)),
    ],
)
def test_ghost_clipping_that_sees_everything_is_let_pass(model: Any, scale: float) -> None:
    parts = private("ghost", model=model(), scale=scale)
    train(parts)
    assert len(parts[0].accountant) == 20


@MODES
def test_weights_of_16_bits_are_refused(mode: str) -> None:
    with pytest.raises(hs.ParameterError, match=r"parameters\[0\].dtype = torch.bfloat16"):
        private(mode, model=Tied(False).bfloat16())


@ENGINES
@MODES
def test_autocast_is_refused_where_norms_are_rounded(mode: str, engine: Any) -> None:
    parts = private(mode, engine(accountant="hockeystick"))
    with pytest.raises(hs.ParameterError, match=r"16 bits"):
        train(parts, autocast=True)
    assert parts[0].accountant.history == []


@pytest.mark.parametrize(
    ("name", "value"), [("sample_rate", 0.5), ("steps", 100), ("generator", torch.Generator())]
)
def test_the_sampler_stays_as_it_was_made(name: str, value: Any) -> None:
    parts = private()
    train(parts)
    setattr(parts[-1].batch_sampler, name, value)
    with pytest.raises(hs.ParameterError, match=f"batch_sampler.{name} = "):
        train(parts)
    assert len(parts[0].accountant) == 20


@pytest.mark.parametrize("used", [0, 1])
def test_passes_do_not_go_on_beside_each_other(used: int) -> None:
    """zip(loader, loader) makes one step of two batches, whichever of them it takes."""
    engine, model, optimizer, _, loader = private()

    def steps() -> None:
        for batches in zip(loader, loader, strict=True):
            optimizer.zero_grad()
            x, y = batches[used]
            LOSS(model(x), y).backward()
            optimizer.step()

    with pytest.raises(hs.ParameterError, match=r"an earlier pass goes on|must be"):
        steps()
    assert len(engine.accountant) <= 1
    # A pass that was left, and another one, are no harm.
    for _ in range(2):
        next(iter(loader))


def test_two_passes_beside_each_other_have_no_step_of_both() -> None:
    engine, model, optimizer, _, loader = private()
    first, second = iter(loader), iter(loader)
    next(first), next(second)
    x, y = next(first)
    LOSS(model(x), y).backward()
    with pytest.raises(hs.ParameterError, match="2 batches of the private loader wait"):
        optimizer.step()
    with pytest.raises(hs.ParameterError, match="an earlier pass goes on"):
        next(second)
    assert len(engine.accountant) == 0


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_a_pass_may_be_interrupted_by_evaluation_on_the_same_loader(mode: str, workers: int) -> None:
    """Between two steps; how many batches the evaluation takes, and how often, does not matter. Not where workers have fetched all that is left."""
    engine, model, optimizer, criterion, loader = private(mode, workers=workers)
    for index, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            for taken in range(index % 3 if index < 14 else 0):
                for _, (x, _) in zip(range(5 * taken + 1), loader, strict=False):
                    model(x)
        model.train()
    assert len(engine.accountant) == 20


def test_steps_of_the_optimizer_that_was_passed_in_are_warned_of() -> None:
    parts = private()
    with pytest.warns(BatchWarning, match="20 batches were drawn"):
        train(parts, stepped=parts[2].original_optimizer)


def test_coins_do_not_follow_from_a_seed_of_32_bits() -> None:
    loaders = [private()[-1] for _ in range(2)]
    for loader in loaders:
        own_coins(loader)
    words = [g.batch_sampler.generator.get_state()[24 : 24 + 8 * 624].view(torch.int64) for g in loaders]
    for state in words:
        assert 0 <= int(state.min()) <= int(state.max()) < 2**32
        assert len(set(state.tolist())) > 600
        # What a seed would have made of the first word.
        first = int(state[0])
        assert int(state[1]) != (1812433253 * (first ^ first >> 30) + 1) % 2**32
    assert not torch.equal(*words)
    uniform = torch.rand(10**6, generator=loaders[0].batch_sampler.generator)
    assert abs(float(uniform.double().mean()) - 0.5) < 6 * (1 / 12e6) ** 0.5


REPLICA = """
import sys, warnings
warnings.simplefilter("ignore")
import torch
import torch.distributed as dist
from hockeystick.interop.opacus import PrivacyEngine
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel as Replicated

rank, store, given = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
torch.manual_seed(0)
model = Replicated(torch.nn.Linear(1, 4, bias=False))
records = torch.utils.data.TensorDataset(torch.arange(2000.0)[:, None], torch.zeros(2000))
generator = torch.Generator() if given == "loader" else None
engine = PrivacyEngine()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.0),
        data_loader=torch.utils.data.DataLoader(records, batch_size=200, generator=generator),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        noise_generator=torch.Generator().manual_seed(7) if given == "noise" else None,
    )
named = any("data_loader.generator" in str(warning.message) for warning in caught)
order = torch.randperm(2000, generator=torch.Generator().manual_seed(0))[rank::2]
place = {int(record): i for i, record in enumerate(order)}
coins = []
for epoch in range(2):
    loader.batch_sampler.set_epoch(epoch * rank)
    for x, y in loader:
        coins.append(sorted(place[int(record)] for record in x[:, 0]))
        optimizer.zero_grad()
        model(x / 2000).sum(1).mean().backward()
        optimizer.step()
print((coins, named, engine.accountant.history))
dist.destroy_process_group()
"""


@pytest.mark.parametrize("given", ["nothing", "noise", "loader"])
def test_replicas_with_one_seed_toss_coins_of_their_own(given: str, tmp_path: Path) -> None:
    """Two processes; every record is in the share that the common shuffle gave it, or it has no place there."""
    command = [sys.executable, "-c", REPLICA]
    running = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "store"), given],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        first, second = (eval(process.communicate(timeout=120)[0]) for process in running)
    finally:
        for process in running:
            process.kill()
    assert first[1:] == second[1:]
    assert first[1] == (given == "loader")
    assert len(first[0]) == len(second[0]) == first[2][0][2] == 20
    for one, other in zip(first[0], second[0], strict=True):
        # Of 100 of 1000 places, 10 are common to independent batches, at any shift.
        assert max(len({i + shift for i in one} & set(other)) for shift in range(-999, 1000)) < 50


def head(base: nn.Module) -> nn.Module:
    """A frozen base before a layer that is trained."""
    base.requires_grad_(False)
    return nn.Sequential(base, nn.Flatten(), nn.Linear(8, 8))


@MODES
@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm1d(8),
        nn.BatchNorm1d(8, affine=False),
        nn.BatchNorm1d(8, track_running_stats=False),
        nn.Sequential(nn.Unflatten(1, (2, 4)), nn.InstanceNorm1d(2, track_running_stats=True)),
    ],
    ids=repr,
)
def test_layers_that_mix_or_keep_records_are_stopped_frozen_or_not(layer: nn.Module, mode: str) -> None:
    made = private(mode, model=head(layer))
    before = [each.clone() for each in made[1].parameters() if each.requires_grad]
    with pytest.raises(hs.ParameterError, match=r"module\..*Norm1d"):
        train(made)
    for now, then in zip((each for each in made[1].parameters() if each.requires_grad), before, strict=True):
        assert torch.equal(now, then)
    assert made[0].accountant.history == []


def test_frozen_statistics_are_let_pass() -> None:
    norm = nn.BatchNorm1d(8)
    made = private(model=head(norm))
    norm.eval()
    train(made)
    assert len(made[0].accountant) == 20


@MODES
def test_embeddings_that_change_what_they_see_are_stopped(mode: str) -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.last = nn.Embedding(50, 8, max_norm=0.5), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.words((x.abs() % 50).long()).mean(1))

    with pytest.raises(hs.ParameterError, match="max_norm=None"):
        train(private(mode, model=Words()))


@pytest.mark.parametrize("padding", ["circular", "reflect", "replicate"])
def test_ghost_clipping_computes_norms_for_zeros(padding: str) -> None:
    model = nn.Sequential(
        nn.Unflatten(1, (1, 8)), nn.Conv1d(1, 1, 3, padding=1, padding_mode=padding), nn.Flatten()
    )
    with pytest.raises(hs.ParameterError, match=r"module\.1\.padding_mode"):
        private("ghost", model=model)
    train(private("hooks", model=model))


@MODES
@pytest.mark.parametrize("name", ["views in rows", "views beside each other", "two passes in one graph"])
def test_each_record_has_a_row_of_gradients(name: str, mode: str) -> None:
    """One record moved the sum by eight, two and 1.5 times max_grad_norm."""
    engine, model, optimizer, criterion, loader = private(mode, model=nn.Linear(8, 8))

    def run() -> None:
        for x, y in loader:
            optimizer.zero_grad()
            if name == "views in rows":
                loss = criterion(model(x.repeat_interleave(8, 0)), y.repeat_interleave(8, 0))
            elif name == "views beside each other":
                loss = criterion(model(torch.cat([x, -x])), torch.cat([y, y]))
            else:
                half = len(x) // 2
                loss = criterion(model(x[:half]), y[:half])
            loss.backward()
            optimizer.step()

    with pytest.raises(hs.ParameterError, match="the records that were drawn"):
        run()
    assert engine.accountant.history == []


def test_the_hook_of_the_accountant_is_needed() -> None:
    """Opacus keeps one alone: with another one, epsilon was 0."""
    made = private()
    engine, _, optimizer, _, _ = made
    kept, seen = optimizer.step_hook, []
    optimizer.attach_step_hook(seen.append)
    with pytest.raises(hs.ParameterError, match="attach_step_hook"):
        train(made)
    made = private(engine=engine)
    optimizer = made[2]
    kept = optimizer.step_hook

    def both(each: Any) -> None:
        kept(each)
        seen.append(each)

    optimizer.attach_step_hook(both)
    train(made)
    assert len(engine.accountant) == 20


@pytest.mark.parametrize("kind", ["flat", "per_layer", "ghost"])
def test_no_part_of_a_batch_is_clipped_to_more_than_its_noise_is_for(kind: str) -> None:
    """The sum of a batch had 380 to 730 times the norm that its noise was made for."""
    mode = "ghost" if kind == "ghost" else "hooks"
    more = {"clipping": "per_layer"} if kind == "per_layer" else {}
    torch.manual_seed(1)
    records = TensorDataset(torch.randn(400, 8), torch.randint(0, 8, (400,)))
    model = Tied(False)
    engine = PrivacyEngine()
    made = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.0),
        criterion=LOSS,
        data_loader=DataLoader(records, batch_size=200),
        noise_multiplier=1.0,
        max_grad_norm=[1.0, 1.0] if more else 1.0,
        grad_sample_mode=mode,
        **more,
    )
    model, optimizer, loader = made[0], made[1], made[-1]
    criterion = made[2] if len(made) == 4 else LOSS

    def run(parts: Any) -> None:
        for x, y in parts:
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
            optimizer.max_grad_norm *= 0.01
            if kind == "per_layer":
                optimizer.max_grad_norms = [0.01 * each for each in optimizer.max_grad_norms]
            if kind == "ghost":
                model.max_grad_norm *= 0.01

    with (
        BatchMemoryManager(data_loader=loader, max_physical_batch_size=20, optimizer=optimizer) as small,
        pytest.raises(hs.ParameterError, match="gradients of this batch were clipped to that"),
    ):
        run(small)
    assert engine.accountant.history == []


def test_schedules_between_batches_are_let_pass() -> None:
    made = private(size=100)
    engine, model, optimizer, criterion, loader = made
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=30, optimizer=optimizer) as parts:
        for x, y in parts:
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
            if not optimizer._is_last_step_skipped:
                optimizer.max_grad_norm *= 0.5
    assert len(engine.accountant) == 4


def test_frozen_weights_of_16_bits_are_let_pass() -> None:
    base = nn.Linear(8, 8).to(torch.bfloat16)

    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base, self.last = base.requires_grad_(False), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.base(x.to(torch.bfloat16)).float())

    model = Half()
    records = TensorDataset(torch.randn(400, 8), torch.randint(0, 8, (400,)))
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.last.parameters(), lr=0.1),
        data_loader=DataLoader(records, batch_size=20),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    train((engine, model, optimizer, LOSS, loader))
    assert len(engine.accountant) == 20


def test_samplers_that_are_replaced_are_named() -> None:
    records = TensorDataset(torch.randn(200, 8), torch.randint(0, 8, (200,)))
    subset = torch.utils.data.SubsetRandomSampler(range(100))
    model = nn.Linear(8, 8)
    with pytest.warns(UserWarning, match="is a SubsetRandomSampler: Opacus draws from all records"):
        PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=DataLoader(records, batch_size=20, sampler=subset),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
        )


class Frames(nn.Module):
    """Records of four frames, which a layer takes for records of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(8, 16), nn.Linear(4, 4), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        frames = self.first(x).reshape(len(x) * 4, 4)
        return self.last(self.middle(frames).reshape(len(x), 16))


def test_every_parameter_has_a_row_for_each_record() -> None:
    """Clipping by layer compares no parameter's rows with another's: one record moved the sum by 37 times max_grad_norm."""
    model = Frames()
    made = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.0),
        data_loader=DataLoader(
            TensorDataset(torch.randn(400, 8), torch.randint(0, 8, (400,))), batch_size=20
        ),
        noise_multiplier=1.0,
        max_grad_norm=[1.0] * 6,
        clipping="per_layer",
    )
    with pytest.raises(hs.ParameterError, match="for every parameter"):
        train((None, made[0], made[1], LOSS, made[-1]))


@MODES
def test_layers_are_checked_where_the_model_is_not_wrapped(mode: str) -> None:
    model = head(nn.BatchNorm1d(8))
    engine, _, *others = private(mode, model=model, wrap_model=False)
    with pytest.raises(hs.ParameterError, match="BatchNorm1d"):
        train((engine, model, *others))


def test_the_accountant_of_the_engine_stays() -> None:
    """The steps of the first one were recorded there, and the second one said epsilon 0."""
    made = private()
    made[0].accountant = hs.interop.opacus.HockeystickAccountant()
    with pytest.raises(hs.ParameterError, match=r"engine\.accountant"):
        train(made)


def test_layers_of_ones_own_may_have_any_name() -> None:
    class Embedding(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.table(x)

    made = private(model=nn.Sequential(Embedding(), nn.Linear(8, 8)))
    train(made)
    assert len(made[0].accountant) == 20


RECORDS = TensorDataset(torch.randn(100, 8), torch.randint(0, 8, (100,)))


class Transformed(Dataset):  # type: ignore[type-arg]
    """What a script puts around the subset that it trains on."""

    def __init__(self, subset: Any) -> None:
        self.subset = subset

    def __len__(self) -> int:
        return len(self.subset)

    def __getitem__(self, index: int) -> Any:
        x, y = self.subset[index]
        return x * 2, y


def over(data: Any) -> Any:
    """The private loader over these records."""
    model = nn.Linear(8, 8)
    return PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(data, batch_size=10),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )[-1]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (Subset(RECORDS, [*range(100), 7, 7]), "at 7 .* 3 times"),
        (Subset(RECORDS, [0, 5, -100]), "at 0 .* 2 times"),
        (Subset(Subset(RECORDS, range(50, 100)), torch.tensor([1, 2, 2])), "at 52 .* 2 times"),  # type: ignore[arg-type]
        (ConcatDataset([RECORDS, RECORDS]), "at 0 .* 2 times"),
        (ConcatDataset([Subset(RECORDS, range(60)), Subset(RECORDS, range(59, 100))]), "at 59 .* 2 times"),
        (ConcatDataset([RECORDS, Transformed(Subset(RECORDS, [3]))]), "at 3 .* 2 times"),
        (Transformed(Transformed(Subset(RECORDS, [4, 4]))), "at 4 .* 2 times"),
        (ConcatDataset([RECORDS, TensorDataset(*RECORDS.tensors)]), "at 0 .* 2 times"),
        (ConcatDataset([TensorDataset(*RECORDS.tensors), Subset(RECORDS, [5])]), "at 5 .* 2 times"),
        (
            ConcatDataset([RECORDS, TensorDataset(RECORDS.tensors[0][90:], torch.zeros(10))]),
            "at 90 .* 2 times",
        ),
        (
            ConcatDataset([TensorDataset(*(x.clone() for x in RECORDS.tensors)) for _ in "ab"]),
            "at 0 .* 2 times",
        ),
    ],
)
def test_records_that_are_there_several_times_are_refused(data: Any, said: str) -> None:
    # Two copies move the sum by 0, 1 or 2 times max_grad_norm: with noise multiplier 1, q = 0.05 and 20 steps that costs more than twice.
    with pytest.raises(hs.ParameterError, match=said):
        over(data)
    once = hs.account(hs.PoissonSampled(hs.Gaussian(1.0), 0.05) * 20).epsilon(1e-5)
    twice = hs.MixtureOfGaussians(1.0, [0.0, 1.0, 2.0], [0.9025, 0.095, 0.0025])
    assert hs.account(twice * 20).epsilon_bounds(1e-5).lower > 2.0 * once


def test_places_of_a_subset_that_change_later() -> None:
    places = list(range(100))
    loader = over(Subset(RECORDS, places))
    with torch.no_grad():
        next(iter(loader))
        places[3] = 8
        with pytest.raises(hs.ParameterError, match=r"at 8 .* 2 times"):
            next(iter(loader))


@pytest.mark.parametrize(
    "made", ["select", "repeat", "concatenate", "interleave", "shuffled", "subset", "from disk"]
)
def test_rows_that_are_in_a_table_several_times_are_refused(made: str, tmp_path: Path) -> None:
    """Hugging Face's ways to put data sets together, of which no class of torch tells."""
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"x": RECORDS.tensors[0].tolist(), "y": RECORDS.tensors[1].tolist()})
    rows.save_to_disk(tmp_path)
    stored = datasets.load_from_disk(tmp_path)
    data = {
        "select": lambda: rows.select([*range(100), 7, 7]),
        "repeat": lambda: rows.repeat(2),
        "concatenate": lambda: datasets.concatenate_datasets([rows, rows.select(range(7, 9))]),
        "interleave": lambda: datasets.interleave_datasets(
            [rows.select(range(20)), rows.select(range(20, 100))], stopping_strategy="all_exhausted"
        ),
        "shuffled": lambda: datasets.concatenate_datasets([rows.shuffle(seed=1), rows.shuffle(seed=2)]),
        "subset": lambda: Transformed(Subset(rows.repeat(2), [3, 4, 103])),
        "from disk": lambda: datasets.concatenate_datasets([stored, stored]),
    }[made]()
    with pytest.raises(hs.ParameterError, match=r"a record, at .* times"):
        over(data)


@pytest.mark.parametrize("wrapped", [False, True])
def test_replicas_have_the_same_rows_of_a_table(wrapped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A split that each replica draws with a seed of its own has records of the others' shares."""
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"x": RECORDS.tensors[0].tolist(), "y": RECORDS.tensors[1].tolist()})
    facts: list[Any] = []

    def gather(everywhere: list[Any], own: Any) -> None:
        facts.append(own)
        everywhere[:] = [facts[0], own]

    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "all_gather_object", gather)

    def check(seed: int) -> None:
        data = rows.train_test_split(0.5, seed=seed)["train"]
        check_replicas(Transformed(data) if wrapped else data)

    check(1)
    check(1)
    with pytest.raises(hs.ParameterError, match="must be the same on all replicas"):
        check(2)


def test_rows_that_are_in_a_table_once_are_let_pass(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"x": RECORDS.tensors[0].tolist(), "y": RECORDS.tensors[1].tolist()})
    rows.save_to_disk(tmp_path)
    split = rows.train_test_split(0.3, seed=1)
    for data in (
        rows,
        rows.shuffle(seed=1).map(lambda row: {"y": row["y"] + 1}),
        split["train"],
        datasets.concatenate_datasets(list(split.values())),
        datasets.concatenate_datasets([rows.select(range(60)), rows.select(range(60, 100))]),
        datasets.interleave_datasets([rows.select(range(20)), rows.select(range(20, 100))]),
        ConcatDataset([rows.select([5, 7]), rows.select([6])]),
        datasets.load_from_disk(tmp_path).shard(4, 1),
        datasets.concatenate_datasets([datasets.load_from_disk(tmp_path), rows.select([])]),
    ):
        assert len(over(data).dataset) == len(data)


@pytest.mark.parametrize(
    "data",
    [
        RECORDS,
        Subset(RECORDS, range(0, 100, 2)),
        ConcatDataset(random_split(RECORDS, [30, 70])),
        ConcatDataset([TensorDataset(RECORDS.tensors[0][:50]), TensorDataset(RECORDS.tensors[0][50:])]),
        Transformed(random_split(RECORDS, [30, 70])[0]),
        StackDataset(RECORDS, RECORDS),
        Subset(ConcatDataset([RECORDS, TensorDataset(torch.zeros(9, 8), torch.zeros(9))]), [3, 103]),
    ],
)
def test_records_that_are_there_once_are_let_pass(data: Any) -> None:
    assert len(over(data).dataset) == len(data)
