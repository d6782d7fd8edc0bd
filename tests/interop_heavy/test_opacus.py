"""Training with the real Opacus."""

import runpy
from pathlib import Path
from typing import Any

import hockeystick as hs
import opacus
import pytest
import torch
from hockeystick.interop.opacus import HockeystickAccountant, PrivacyEngine, check_loader
from opacus.accountants import RDPAccountant
from opacus.accountants.utils import get_noise_multiplier
from opacus.schedulers import ExponentialNoise
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch.utils.data import DataLoader, TensorDataset

pytestmark = pytest.mark.filterwarnings("ignore")

RECORDS, BATCH = 600, 60


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


def train(model: Any, optimizer: Any, loader: Any, epochs: int = 1) -> None:
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()


def run(noise_multiplier: float, steps: int) -> Any:
    return hs.PoissonSampled(hs.Gaussian(noise_multiplier), BATCH / RECORDS) * steps


def test_these_are_the_real_ones() -> None:
    for module in (opacus, torch):
        assert "stand_ins" not in str(module.__file__)


def test_opacus_own_engine_finds_the_accountant() -> None:
    engine = opacus.PrivacyEngine(accountant="hockeystick")
    made = engine.make_private(noise_multiplier=1.2, **parts())
    check_loader(made[-1])
    train(*made, epochs=2)
    assert engine.accountant.history == [(1.2, 0.1, 20)]
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
    assert engine.accountant.history == [(1.0, 0.1, 10)]


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


def test_shuffled_batches_stop_opacus_own_engine() -> None:
    engine = opacus.PrivacyEngine(accountant="hockeystick")
    made = engine.make_private(noise_multiplier=1.0, poisson_sampling=False, **parts())
    with pytest.raises(hs.ParameterError, match="the last 11 batches all had it"):
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


def test_adaptive_clipping_stops_the_step() -> None:
    engine = PrivacyEngine()
    made = engine.make_private(
        noise_multiplier=1.0,
        clipping="adaptive",
        target_unclipped_quantile=0.5,
        clipbound_learning_rate=0.2,
        max_clipbound=10.0,
        min_clipbound=0.1,
        unclipped_num_std=5.0,
        **parts(),
    )
    with pytest.raises(hs.ParameterError, match="adaptive"):
        train(*made)


def test_ghost_clipping() -> None:
    engine = PrivacyEngine()
    model, optimizer, criterion, loader = engine.make_private(
        noise_multiplier=1.0, grad_sample_mode="ghost", criterion=torch.nn.CrossEntropyLoss(), **parts()
    )
    for x, y in loader:
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
    assert engine.accountant.history == [(1.0, 0.1, 10)]


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
    assert ours.history == [(1.0, 0.1, 10)]
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
    assert made[-1].batch_sampler.sample_rate <= rate == 1 / 92
