"""Training with the real Opacus."""

import contextlib
import itertools
import runpy
from pathlib import Path
from typing import Any

import hockeystick as hs
import opacus
import pytest
import torch
from hockeystick.interop.opacus import HockeystickAccountant, PrivacyEngine, check_loader, drawn_rate
from opacus.accountants import RDPAccountant
from opacus.accountants.utils import get_noise_multiplier
from opacus.schedulers import ExponentialGradClip, ExponentialNoise
from opacus.utils.adaptive_clipping.adaptive_clipping_utils import PrivacyEngineAdaptiveClipping
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch.utils.data import DataLoader, TensorDataset

pytestmark = pytest.mark.filterwarnings("ignore")

RECORDS, BATCH = 600, 60
RATE = drawn_rate(BATCH / RECORDS)


def parts(drop_last: bool = False) -> dict[str, Any]:
    torch.manual_seed(0)
    records = TensorDataset(torch.randn(RECORDS, 4), torch.randint(0, 2, (RECORDS,)))
    model = torch.nn.Linear(4, 2)
    return {
        "module": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "data_loader": DataLoader(records, batch_size=BATCH, shuffle=True, drop_last=drop_last),
        "max_grad_norm": 1.0,
    }


def train(model: Any, optimizer: Any, *made: Any, epochs: int = 1, criterion: Any = None) -> None:
    """On (loader) or, with ghost clipping, (criterion, loader)."""
    criterion = made[0] if len(made) > 1 else criterion or torch.nn.functional.cross_entropy
    for _ in range(epochs):
        for x, y in made[-1]:
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()


def run(noise_multiplier: float, steps: int) -> Any:
    return hs.PoissonSampled(hs.Gaussian(noise_multiplier), RATE) * steps


def test_these_are_the_real_ones() -> None:
    for module in (opacus, torch):
        assert "stand_ins" not in str(module.__file__)


def test_opacus_own_engine_finds_the_accountant() -> None:
    engine = opacus.PrivacyEngine(accountant="hockeystick")
    made = engine.make_private(noise_multiplier=1.2, **parts())
    check_loader(made[-1])
    train(*made, epochs=2)
    assert engine.accountant.history == [(1.2, RATE, 20)]
    assert engine.get_epsilon(1e-5) == hs.account(run(1.2, 20)).epsilon(1e-5)
    theirs = {name: opacus.PrivacyEngine(accountant=name) for name in ("prv", "rdp")}
    for other in theirs.values():
        other.accountant.history = list(engine.accountant.history)
        assert engine.get_epsilon(1e-5) <= other.get_epsilon(1e-5)


def test_opacus_own_noise_search_runs_on_it() -> None:
    engine = opacus.PrivacyEngine(accountant="hockeystick")
    _, optimizer, _ = engine.make_private_with_epsilon(
        target_epsilon=2.0, target_delta=1e-5, epochs=3, **parts()
    )
    assert hs.account(run(optimizer.noise_multiplier, 30)).epsilon(1e-5) <= 2.0
    assert engine.accountant.history == []
    searched = get_noise_multiplier(
        target_epsilon=2.0, target_delta=1e-5, sample_rate=0.1, steps=30, accountant="hockeystick"
    )
    assert searched == optimizer.noise_multiplier
    # Opacus stops within 0.01 of the target; hockeystick's engine finds the least noise.
    _, tight, _ = PrivacyEngine().make_private_with_epsilon(
        target_epsilon=2.0, target_delta=1e-5, epochs=3, **parts()
    )
    assert searched * 0.95 < tight.noise_multiplier < searched


def test_a_target_is_kept_where_opacus_forgets_a_step() -> None:
    # 3 epochs of 75 batches: Opacus looks for the noise of int(3 / (1 / 75)) = 224 steps.
    assert int(3 / (1 / 75)) == 224
    engine = PrivacyEngine()
    options = {**parts(), "data_loader": DataLoader(parts()["data_loader"].dataset, batch_size=8)}
    model, optimizer, loader = engine.make_private_with_epsilon(
        target_epsilon=1.0, target_delta=1e-5, epochs=3, **options
    )
    train(model, optimizer, loader, epochs=3)
    assert len(engine.accountant) == 225
    assert engine.get_epsilon(1e-5) <= 1.0


@pytest.mark.parametrize("clipping", ["flat", "per_layer"])
def test_memory_manager_counts_one_step_per_sample(clipping: str) -> None:
    engine = PrivacyEngine()
    options = parts()
    if clipping == "per_layer":
        options["max_grad_norm"] = [1.0, 1.0]
    model, optimizer, loader = engine.make_private(noise_multiplier=1.0, clipping=clipping, **options)
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=16, optimizer=optimizer) as split:
        train(model, optimizer, split)
    assert engine.accountant.history == [(1.0, RATE, 10)]


def counting(workers: int, size: int) -> tuple[Any, ...]:
    """(engine, model, optimizer, loader, its weight) of a run without noise whose gradient counts record 7."""
    records = torch.zeros(RECORDS, 1)
    records[7] = 1.0
    data = TensorDataset(records, torch.full((RECORDS, 1), 1000.0))
    model = torch.nn.Linear(1, 1, bias=False)
    engine = PrivacyEngine()
    made = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.0),
        data_loader=DataLoader(data, batch_size=size, num_workers=workers),
        noise_multiplier=0.0,
        max_grad_norm=1.0,
        loss_reduction="sum",
    )
    return engine, *made, model.weight


@pytest.mark.parametrize("workers", [0, 1])
def test_no_record_is_twice_in_a_step(workers: int) -> None:
    engine, model, optimizer, loader, weight = counting(workers, 150)
    sums = []
    for _ in range(10):
        begun = len(sums)
        with BatchMemoryManager(data_loader=loader, max_physical_batch_size=40, optimizer=optimizer) as split:
            for x, y in split:
                optimizer.zero_grad()
                torch.nn.functional.mse_loss(model(x), y, reduction="sum").backward()
                optimizer.step()
                if not optimizer._is_last_step_skipped:
                    sums.append(round(weight.grad.item(), 3))
                if len(sums) == begun + 2:
                    break  # where a worker has parts of the third batch ready
    assert set(sums) == {0.0, -1.0}
    assert len(engine.accountant) == len(sums) == 20


def test_a_pass_is_not_left_inside_a_batch() -> None:
    engine, model, optimizer, loader, _ = counting(0, 300)
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=100, optimizer=optimizer) as split:
        train(model, optimizer, itertools.islice(split, 2), criterion=torch.nn.MSELoss())
        with pytest.raises(hs.ParameterError, match="left inside a batch"):
            train(model, optimizer, split, criterion=torch.nn.MSELoss())
    assert engine.accountant.history == []


def test_the_rate_is_what_the_sampler_draws() -> None:
    engine, model, optimizer, loader, _ = counting(0, 7)
    rate = loader.batch_sampler.sample_rate
    # Every number near the rate that torch.rand can return, in the sampler's own comparison.
    units = torch.arange(2**24 // 86 - 1000, 2**24 // 86 + 1000, dtype=torch.float32)
    below = int(units[units * 2.0**-24 < rate].max()) + 1
    assert torch.equal(torch.rand(1000) * 2.0**24 % 1, torch.zeros(1000))
    train_one = next(iter(loader))
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(train_one[0]), train_one[1], reduction="sum").backward()
    optimizer.step()
    ((_, accounted, _),) = engine.accountant.history
    assert rate < below * 2.0**-24 <= accounted < 1 / len(loader) + 2.0**-24


def test_noise_schedules_are_followed() -> None:
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(noise_multiplier=1.0, **parts())
    scheduler = ExponentialNoise(optimizer, gamma=0.9)
    for _ in range(3):
        train(model, optimizer, loader)
        scheduler.step()
    expected = run(1.0, 10) + run(0.9, 10) + run(0.9 * 0.9, 10)
    assert len(engine.accountant.history) == 3
    assert engine.get_epsilon(1e-5) == pytest.approx(hs.account(expected).epsilon(1e-5), rel=1e-9)


def test_accumulated_gradients_stop_the_step() -> None:
    engine = opacus.PrivacyEngine(accountant="hockeystick")
    model, optimizer, loader = engine.make_private(noise_multiplier=1.0, poisson_sampling=False, **parts())
    with pytest.raises(hs.ParameterError, match="Poisson sampler"):
        check_loader(loader)
    weights = [p.detach().clone() for p in model.parameters()]
    for x, y in list(loader)[:2]:
        torch.nn.functional.cross_entropy(model(x), y).backward()
    with pytest.raises(hs.ParameterError, match="accumulated_iterations = 2"):
        optimizer.step()
    assert all(torch.equal(p, w) for p, w in zip(model.parameters(), weights, strict=True))
    assert engine.accountant.history == []


def test_the_example_keeps_its_budget() -> None:
    pytest.importorskip("sklearn")
    script = Path(__file__).parents[2] / "examples" / "interop" / "opacus_digits.py"
    names = runpy.run_path(str(script))
    assert names["accuracy"] > 0.8
    assert len(names["engine"].accountant) == 200
    assert 3.0 * (1.0 - 1e-5) <= names["engine"].get_epsilon(1e-4) <= 3.0


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_shuffled_batches_stop_opacus_own_engine(mode: str) -> None:
    engine = opacus.PrivacyEngine(accountant="hockeystick")
    made = engine.make_private(noise_multiplier=1.0, poisson_sampling=False, grad_sample_mode=mode, **parts())
    with pytest.raises(hs.ParameterError, match="11 of the last 11 batches had it"):
        train(*made, epochs=3)
    assert len(engine.accountant) == 10


def test_the_loader_that_was_passed_in_stops_both_engines() -> None:
    for engine, steps in ((PrivacyEngine(), 0), (opacus.PrivacyEngine(accountant="hockeystick"), 10)):
        options = parts()
        model, optimizer, _ = engine.make_private(noise_multiplier=1.0, **options)
        with pytest.raises(hs.ParameterError, match="train on the loader that make_private returned"):
            train(model, optimizer, options["data_loader"], epochs=3)
        assert len(engine.accountant) == steps


def test_workers_may_draw_ahead() -> None:
    engine = PrivacyEngine()
    options = parts()
    records = options["data_loader"].dataset
    options["data_loader"] = DataLoader(records, batch_size=BATCH, num_workers=1)
    train(*engine.make_private(noise_multiplier=1.0, **options), epochs=2)
    assert len(engine.accountant) == 20


def test_a_weighted_sampler_is_named() -> None:
    options = parts()
    records = options["data_loader"].dataset
    weighted = torch.utils.data.WeightedRandomSampler([1.0] * RECORDS, RECORDS)
    options["data_loader"] = DataLoader(records, batch_size=BATCH, sampler=weighted)
    with pytest.warns(UserWarning, match="WeightedRandomSampler"):
        PrivacyEngine().make_private(noise_multiplier=1.0, **options)


@pytest.mark.parametrize(
    ("engine", "options"),
    [
        (opacus.PrivacyEngine, {"clipping": "adaptive", "unclipped_num_std": 5.0}),
        (PrivacyEngineAdaptiveClipping, {"grad_sample_mode": "ghost"}),
    ],
)
def test_adaptive_clipping_stops_the_step(engine: Any, options: dict[str, Any]) -> None:
    bounds = {
        "target_unclipped_quantile": 0.5,
        "clipbound_learning_rate": 0.2,
        "max_clipbound": 10.0,
        "min_clipbound": 0.1,
    }
    engine = engine(accountant="hockeystick")
    made = engine.make_private(noise_multiplier=1.0, **options, **bounds, **parts())
    with pytest.raises(hs.ParameterError, match="adaptive"):
        train(*made)
    assert engine.accountant.history == []


@pytest.mark.parametrize("engine", [PrivacyEngine, opacus.PrivacyEngine])
@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({}, 20),
        ({"grad_sample_mode": "ghost"}, 10),
        ({"clipping": "per_layer", "max_grad_norm": [0.6, 0.8]}, 10),
    ],
)
def test_schedules_of_the_norm_that_move_the_noise_alone(
    engine: Any, options: dict[str, Any], allowed: int
) -> None:
    engine = engine(accountant="hockeystick")
    made = engine.make_private(noise_multiplier=1.0, **{**parts(), **options})
    schedule = ExponentialGradClip(made[1], gamma=0.9)
    train(*made)
    schedule.step()
    with (
        contextlib.nullcontext() if allowed > 10 else pytest.raises(hs.ParameterError, match=r"at least 1\.0")
    ):
        train(*made)
    assert len(engine.accountant) == allowed


def test_a_model_that_was_told_a_larger_norm_before() -> None:
    options = {**parts(), "grad_sample_mode": "ghost", "noise_multiplier": 1.0}
    first = PrivacyEngine().make_private(**options)
    again = {**options, "module": first[0], "optimizer": first[1], "max_grad_norm": 0.5}
    with pytest.raises(hs.ParameterError, match=r"max_grad_norm = 0\.5"):
        train(*PrivacyEngine().make_private(**again))


def test_ghost_clipping() -> None:
    engine = PrivacyEngine()
    train(*engine.make_private(noise_multiplier=1.0, grad_sample_mode="ghost", **parts()))
    assert engine.accountant.history == [(1.0, RATE, 10)]


def test_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(noise_multiplier=1.0, **parts())
    train(model, optimizer, loader)
    engine.save_checkpoint(path=path, module=model, optimizer=optimizer)
    resumed = PrivacyEngine()
    model, optimizer, loader = resumed.make_private(noise_multiplier=1.0, **parts())
    resumed.load_checkpoint(path=path, module=model, optimizer=optimizer)
    assert resumed.accountant.history == engine.accountant.history
    train(model, optimizer, loader)
    assert len(resumed.accountant) == 20
    assert len(engine.accountant) == 10
    rdp = opacus.PrivacyEngine(accountant="rdp")
    with pytest.raises(ValueError, match="mechanism"):
        rdp.load_checkpoint(path=path, module=model, optimizer=optimizer)


def test_a_run_of_the_rdp_accountant_is_taken_over() -> None:
    engine = opacus.PrivacyEngine(accountant="rdp")
    train(*engine.make_private(noise_multiplier=1.0, **parts()))
    assert isinstance(engine.accountant, RDPAccountant)
    ours = HockeystickAccountant.from_accountant(engine.accountant)
    assert ours.history == [(1.0, RATE, 10)]
    assert ours.get_epsilon(1e-5) <= engine.get_epsilon(1e-5)


def test_accounted_rate_is_never_below_the_sampled_one() -> None:
    # 93 batches: Opacus's sampler makes int(1 / (1 / 93)) = 92 of them, at rate 1 / 93.
    engine = PrivacyEngine()
    records = TensorDataset(torch.randn(93, 4), torch.randint(0, 2, (93,)))
    options = {**parts(), "data_loader": DataLoader(records, batch_size=1)}
    made = engine.make_private(noise_multiplier=1.0, **options)
    train(*made)
    ((_, rate, steps),) = engine.accountant.history
    assert steps == 92
    assert made[-1].batch_sampler.sample_rate <= rate == drawn_rate(1 / 92)
