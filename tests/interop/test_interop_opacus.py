"""The Opacus accountant; against stand-ins, or against Opacus where it is installed."""

import contextlib
import copy
import itertools
import json
import math
import pickle
from types import SimpleNamespace
from typing import Any

import hockeystick as hs
import numpy as np
import opacus
import pytest
import scipy.stats
import torch
from hockeystick.interop.opacus import (
    BatchWarning,
    HockeystickAccountant,
    PrivacyEngine,
    check_loader,
    drawn_rate,
)
from opacus.accountants import RDPAccountant, create_accountant
from opacus.utils.batch_memory_manager import BatchMemoryManager
from opacus.utils.uniform_sampler import (
    DistributedUniformWithReplacementSampler,
    UniformWithReplacementSampler,
)

from tests.anywhere import interrupted_everywhere

pytestmark = pytest.mark.filterwarnings("ignore:Secure RNG turned off")


def optimizer(noise_multiplier: float = 1.0, accumulated: int = 1, **more: Any) -> Any:
    """What the hook sees of an Opacus optimizer."""
    return SimpleNamespace(noise_multiplier=noise_multiplier, accumulated_iterations=accumulated, **more)


def test_it_is_registered_under_its_name() -> None:
    accountant = create_accountant("hockeystick")
    assert isinstance(accountant, HockeystickAccountant)
    assert accountant.mechanism() == "hockeystick"
    assert opacus.PrivacyEngine(accountant="hockeystick").accountant.history == []


def test_history_has_opacus_form_and_counts_steps() -> None:
    accountant = HockeystickAccountant()
    for noise_multiplier in (1.0, 1.0, 0.9, 1.0):
        accountant.step(noise_multiplier=noise_multiplier, sample_rate=0.01)
    assert accountant.history == [(1.0, 0.01, 2), (0.9, 0.01, 1), (1.0, 0.01, 1)]
    assert len(accountant) == 4
    q = 0.01
    expected = hs.PoissonSampled(hs.Gaussian(1.0), q) * 3 + hs.PoissonSampled(hs.Gaussian(0.9), q)
    assert accountant.process == expected
    assert accountant.epsilon_bounds(1e-5) == hs.account(expected).epsilon_bounds(1e-5)
    assert accountant.get_epsilon(1e-5) == hs.account(expected).epsilon(1e-5)
    assert accountant.get_delta(0.5) == hs.account(expected).delta(0.5)


def test_asking_changes_nothing() -> None:
    accountant = HockeystickAccountant()
    assert accountant.get_epsilon(1e-5) == 0.0
    accountant.step(noise_multiplier=1.0, sample_rate=0.02)
    history = copy.deepcopy(accountant.history)
    first = accountant.get_epsilon(1e-5)
    accountant.get_delta(1.0)
    accountant.report(1e-5)
    assert accountant.get_epsilon(1e-5) == first > 0.0
    assert accountant.history == history
    for copied in (copy.deepcopy(accountant), pickle.loads(pickle.dumps(accountant))):
        assert copied.get_epsilon(1e-5) == first


def test_a_replaced_history_is_what_counts() -> None:
    """Opacus's get_noise_multiplier assigns to history and asks again."""
    accountant = HockeystickAccountant()
    answers = []
    for sigma in (20, 10.0, 1.0):
        accountant.history = [(sigma, 0.01, 1000)]
        answers.append(accountant.get_epsilon(delta=1e-5, eps_error=0.1, alphas=None))
    accountant.history.append((1.0, 0.01, 1))
    answers.append(accountant.get_epsilon(1e-5))
    assert answers == sorted(answers)
    assert len(set(answers)) == 4


def test_hook_records_the_step() -> None:
    accountant = HockeystickAccountant()
    hook = accountant.get_optimizer_hook_fn(sample_rate=0.125)
    hook(optimizer(1.5))
    hook(optimizer(1.5))
    hook(optimizer(1.4))  # a noise scheduler
    assert accountant.history == [(1.5, 0.125, 2), (1.4, 0.125, 1)]


def test_hook_refuses_what_has_no_guarantee() -> None:
    accountant = HockeystickAccountant()
    hook = accountant.get_optimizer_hook_fn(sample_rate=0.125)
    with pytest.raises(hs.ParameterError, match="accumulated_iterations = 4"):
        hook(optimizer(accumulated=4))
    # By gradients of each record, and by ghost clipping.
    for adaptive in ("unclipped_num_std", "_adjusted_noise_multiplier"):
        with pytest.raises(hs.ParameterError, match="clipping = 'adaptive'"):
            hook(optimizer(**{adaptive: 10.0}))
    with pytest.raises(hs.ParameterError, match="poisson = False"):
        accountant.get_epsilon(1e-5, poisson=False)
    for rate in (-0.1, 1.1, float("nan")):
        with pytest.raises(hs.ParameterError, match="sample_rate"):
            accountant.get_optimizer_hook_fn(sample_rate=rate)
        with pytest.raises(hs.ParameterError, match="sample_rate"):
            accountant.step(noise_multiplier=1.0, sample_rate=rate)
    assert accountant.history == []


@pytest.mark.parametrize(
    "clipping",
    [{"max_grad_norms": [3.0, 4.0]}, {"accumulate": None}],
    ids=["to norms of layers", "by the model, to what it was told"],
)
def test_hook_refuses_noise_for_a_smaller_norm_than_that_of_clipping(clipping: dict[str, Any]) -> None:
    accountant = HockeystickAccountant()
    hook = accountant.get_optimizer_hook_fn(sample_rate=0.125)
    for norm in (5.0, float(np.float32(5.0 * (1.0 - 5e-8)))):
        hook(optimizer(max_grad_norm=norm, **clipping))
    if "accumulate" in clipping:
        # What the model was told is not known: a schedule that begins below it had noise for less than that.
        with pytest.raises(hs.ParameterError, match=r"max_grad_norm = 6.0: must be above 0 and stay 5.0"):
            hook(optimizer(max_grad_norm=6.0, **clipping))
    else:
        hook(optimizer(max_grad_norm=6.0, **clipping))
    with pytest.raises(hs.ParameterError, match=r"optimizer.max_grad_norm = 4.5: must be at least 5.0"):
        hook(optimizer(max_grad_norm=4.5, **clipping))
    assert len(accountant) == (2 if "accumulate" in clipping else 3)
    if "accumulate" in clipping:
        with pytest.raises(hs.ParameterError, match=r"max_grad_norm = 0.0: must be above 0"):
            accountant.get_optimizer_hook_fn(sample_rate=0.125)(optimizer(max_grad_norm=0.0, **clipping))
    # Gradients that the optimizer clips itself follow its norm.
    hook = accountant.get_optimizer_hook_fn(sample_rate=0.125)
    for norm in (5.0, 4.5):
        hook(optimizer(max_grad_norm=norm))


def test_the_rate_is_that_of_the_comparison_with_uniform_numbers() -> None:
    uniforms = np.arange(4096, dtype=np.float32) * np.float32(2.0**-24)
    for rate in (1e-7, 1 / 3e6, 1e-6, 3 * 2.0**-24, 5e-324, 0.0, 2.0**-13):
        taken = int((uniforms < np.float32(rate)).sum()) * 2.0**-24
        assert rate <= drawn_rate(rate)
        assert taken <= drawn_rate(rate) <= math.nextafter(rate, 0.0) + 2.0**-24
        assert drawn_rate(drawn_rate(rate)) == drawn_rate(rate)
    assert drawn_rate(1e-7) == 2 * 2.0**-24
    assert drawn_rate(1.0) == drawn_rate(math.nextafter(1.0, 0.0)) == 1.0


def test_rates_of_opacus_are_accounted_as_they_are_drawn() -> None:
    accountant = HockeystickAccountant()
    accountant.get_optimizer_hook_fn(sample_rate=1e-7)(optimizer())
    assert accountant.history == [(1.0, 2 * 2.0**-24, 1)]
    other = RDPAccountant()
    other.step(noise_multiplier=1.0, sample_rate=1e-7)
    assert HockeystickAccountant.from_accountant(other).history == accountant.history


def test_other_devices_and_types_of_uniform_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_default_device", lambda: SimpleNamespace(type="cuda"))
    assert (drawn_rate(0.0), drawn_rate(0.25), drawn_rate(1.0)) == (0.0, 0.25 + 2.0**-24, 1.0)
    accountant = HockeystickAccountant()
    hook = accountant.get_optimizer_hook_fn(sample_rate=0.25)
    monkeypatch.setattr(torch, "get_default_dtype", lambda: torch.float64)
    hook(optimizer())
    monkeypatch.setattr(torch, "get_default_dtype", lambda: torch.float16)
    with pytest.raises(hs.ParameterError, match=r"get_default_dtype\(\) = torch.float16"):
        hook(optimizer())
    assert len(accountant) == 1


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ((1.0, 0.1), r"history\[1\] = \(1.0, 0.1\): must be \(noise_multiplier, sample_rate, steps\)"),
        ((float("nan"), 0.1, 1), r"history\[1\].noise_multiplier = nan"),
        ((1.0, 2.0, 1), r"history\[1\].sample_rate = 2.0"),
        ((1.0, 0.1, -1), r"history\[1\].steps = -1"),
        (7, r"history\[1\] = 7"),
    ],
)
def test_invalid_histories_are_refused(entry: Any, message: str) -> None:
    accountant = HockeystickAccountant()
    accountant.history = [(1.0, 0.1, 1), entry]
    for ask in (lambda: accountant.get_epsilon(1e-5), lambda: len(accountant), accountant.state_dict):
        with pytest.raises(hs.ParameterError, match=message):
            ask()
    fresh = HockeystickAccountant()
    fresh.step(noise_multiplier=2.0, sample_rate=0.5)
    with pytest.raises(ValueError, match=message):
        fresh.load_state_dict({"history": accountant.history, "mechanism": "hockeystick"})
    assert fresh.history == [(2.0, 0.5, 1)]


def test_state_survives_the_round_trip() -> None:
    accountant = HockeystickAccountant("zero_out")
    for _ in range(3):
        accountant.step(noise_multiplier=1.1, sample_rate=0.05)
    state = accountant.state_dict()
    restored = HockeystickAccountant("zero_out")
    restored.load_state_dict(pickle.loads(pickle.dumps(state)))
    assert restored.history == accountant.history
    assert restored.get_epsilon(1e-6) == accountant.get_epsilon(1e-6)
    # Later steps of one do not leak into the state or into the other.
    restored.step(noise_multiplier=1.1, sample_rate=0.05)
    assert len(accountant) == 3
    assert state["history"] == [(1.1, 0.05, 3)]
    # JSON turns tuples into lists. What was released in between is not counted any more.
    with pytest.warns(UserWarning, match="1 of 4 recorded steps are not in the ledger that is loaded"):
        restored.load_state_dict(json.loads(json.dumps(state)))
    assert restored.history == accountant.history
    # A ledger that goes on loses nothing, whatever its entries.
    longer = {**state, "history": [(1.1, 0.05, 2), (2.0, 0.05, 1), (1.1, 0.05, 1)]}
    restored.load_state_dict(longer)
    with pytest.warns(UserWarning, match="1 of 4 recorded steps"):
        restored.load_state_dict({**longer, "history": [(1.1, 0.05, 9)]})
    into: dict[str, Any] = {"epoch": 4}
    assert accountant.state_dict(into) is into
    assert into["epoch"] == 4
    assert into["mechanism"] == "hockeystick"


def test_states_of_others_are_refused() -> None:
    accountant = HockeystickAccountant()
    state = HockeystickAccountant("zero_out").state_dict()
    with pytest.raises(ValueError, match="adjacency"):
        accountant.load_state_dict(state)
    for wrong in (None, {}, {"history": []}, {"history": [], "mechanism": "rdp"}):
        with pytest.raises(ValueError, match=r"state|State"):
            accountant.load_state_dict(wrong)


def test_a_history_can_be_taken_over() -> None:
    other = RDPAccountant()
    for _ in range(5):
        other.step(noise_multiplier=1.3, sample_rate=0.01)
    accountant = HockeystickAccountant.from_accountant(other)
    assert accountant.process == hs.PoissonSampled(hs.Gaussian(1.3), drawn_rate(0.01)) * 5
    accountant.step(noise_multiplier=1.3, sample_rate=0.01)
    assert sum(entry[2] for entry in other.history) == 5
    with pytest.raises(hs.ParameterTypeError, match="other"):
        HockeystickAccountant.from_accountant("rdp")


def test_loaders_without_poisson_sampling_are_refused() -> None:
    sampler = UniformWithReplacementSampler(num_samples=100, sample_rate=0.1)
    check_loader(SimpleNamespace(batch_sampler=sampler))
    for wrong in (SimpleNamespace(batch_sampler=[range(10)]), SimpleNamespace()):
        with pytest.raises(hs.ParameterError, match="Poisson sampler"):
            check_loader(wrong)


def test_small_shares_of_replicas_are_refused() -> None:
    """Opacus's distributed sampler passes over empty batches: what it draws is Poisson given that it is not empty."""
    # It is made in a process group alone.
    sampler = object.__new__(DistributedUniformWithReplacementSampler)
    sampler.sample_rate, sampler.num_samples, sampler.generator = 0.1, 400, object()
    check_loader(SimpleNamespace(batch_sampler=sampler))
    sampler.num_samples = 200
    with pytest.raises(
        hs.ParameterError, match="batch size = 20 expected on this replica: must be at least 30"
    ):
        check_loader(SimpleNamespace(batch_sampler=sampler))


def test_replicas_that_draw_from_the_default_generator_are_refused() -> None:
    sampler = object.__new__(DistributedUniformWithReplacementSampler)
    sampler.sample_rate, sampler.num_samples, sampler.generator = 0.1, 400, None
    with pytest.raises(
        hs.ParameterError, match="generator = None: must be a generator of this replica's own"
    ):
        check_loader(SimpleNamespace(batch_sampler=sampler))


def test_engine_refuses_other_samplers() -> None:
    with pytest.raises(hs.ParameterError, match="poisson_sampling = False"):
        PrivacyEngine().make_private(poisson_sampling=False)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("rand_on_empty", True, "rand_on_empty = True: must be False; a made-up record"),
        ("clipping", "adaptive", "clipping = 'adaptive': must be"),
        ("target_unclipped_quantile", 0.5, "target_unclipped_quantile = 0.5: must be left out"),
        ("of_a_later_version", 1, "of_a_later_version = 1: must be left out"),
    ],
)
def test_engine_refuses_options_that_are_not_known_to_be_sound(option: str, value: Any, message: str) -> None:
    with pytest.raises(hs.ParameterError, match=message):
        private(PrivacyEngine(), **{option: value})
    with pytest.raises(hs.ParameterError, match=message):
        PrivacyEngine().make_private_with_epsilon(
            data_loader=[None] * 10, target_epsilon=2.0, target_delta=1e-5, epochs=1, **{option: value}
        )


def test_engine_names_epochs_that_are_too_many() -> None:
    with pytest.raises(hs.ParameterError, match=r"epochs = 1e\+308: must be a number in \[0, 9.0072e\+14\]"):
        PrivacyEngine().make_private_with_epsilon(
            data_loader=[None] * 10, target_epsilon=2.0, target_delta=1e-5, epochs=1e308
        )


def test_engine_takes_the_other_options() -> None:
    private(PrivacyEngine(), rand_on_empty=False, poisson_sampling=True)


def test_engine_finds_noise_for_the_steps_that_will_be_run(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = PrivacyEngine()
    made: dict[str, Any] = {}
    monkeypatch.setattr(PrivacyEngine, "make_private", lambda self, **options: made.update(options))
    # 3 epochs of 75 batches: int(3 / (1 / 75)) = 224, one step less than are run.
    loader = [None] * 75
    options = {"target_epsilon": 2.0, "target_delta": 1e-5, "epochs": 3, "max_grad_norm": 1.0}
    engine.make_private_with_epsilon(data_loader=loader, **options)
    sigma = made["noise_multiplier"]
    assert type(sigma) is float
    assert made["max_grad_norm"] == 1.0
    rate = drawn_rate(1 / 75)
    run = hs.PoissonSampled(hs.Gaussian(sigma), rate) * 225
    assert hs.account(run).epsilon(1e-5) <= 2.0
    less = hs.PoissonSampled(hs.Gaussian(sigma * (1 - 2e-6)), rate) * 225
    assert hs.account(less).epsilon_bounds(1e-5).lower > 2.0
    # What was spent before is part of the budget.
    engine.accountant.history = [(sigma, 1 / 75, 100)]
    engine.make_private_with_epsilon(data_loader=loader, **options)
    assert made["noise_multiplier"] > 1.05 * sigma
    both = engine.accountant.process + hs.PoissonSampled(hs.Gaussian(made["noise_multiplier"]), rate) * 225
    assert hs.account(both).epsilon(1e-5) <= 2.0
    with pytest.raises(hs.ParameterError, match="accountant = 'rdp'"):
        PrivacyEngine(accountant="rdp").make_private_with_epsilon(data_loader=loader, **options)


@pytest.mark.parametrize(("batches", "epochs", "target"), [(1993, 1.7, 8.0), (3641, 3, 0.5), (1814, 3, 0.5)])
def test_engine_says_at_the_end_what_it_was_asked_to_keep_within(
    batches: int, epochs: float, target: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that stops where `get_epsilon` exceeds the target makes all its steps, whatever accuracy that answers with."""
    engine = PrivacyEngine()
    made: dict[str, Any] = {}
    monkeypatch.setattr(PrivacyEngine, "make_private", lambda self, **options: made.update(options))
    engine.make_private_with_epsilon(
        data_loader=[None] * batches, target_epsilon=target, target_delta=1e-5, epochs=epochs
    )
    sigma, rate, steps = made["noise_multiplier"], drawn_rate(1 / batches), math.ceil(epochs * batches)
    engine.accountant.history = [(sigma, rate, steps)]
    assert engine.accountant.get_epsilon(1e-5) <= target
    less = hs.PoissonSampled(hs.Gaussian(sigma * (1 - 2e-6)), rate) * steps
    assert hs.account(less, accuracy=1e-8).epsilon_bounds(1e-5).lower > target


def steps_on(hook: Any, sizes: Any, expected: float = 60.0, ghost: bool = False, **more: Any) -> int:
    """How many batches of these sizes the hook lets pass."""
    for done, size in enumerate(sizes):
        # Ghost clipping keeps the norm of each record's gradient.
        kept = (
            {"grad_sample": None, "_norm_sample": np.zeros(size)}
            if ghost
            else {"grad_sample": [np.zeros((size, 2))]}
        )
        parameters = [SimpleNamespace(), SimpleNamespace(**kept)]
        try:
            hook(optimizer(params=parameters, expected_batch_size=expected, **more))
        except hs.ParameterError as error:
            assert "poisson_sampling=True" in str(error)  # noqa: PT017
            return done
    return -1


def test_batches_of_one_size_stop_a_loop() -> None:
    accountant = HockeystickAccountant()
    assert steps_on(accountant.get_optimizer_hook_fn(0.1), [60] * 50) == len(accountant) == 10
    assert steps_on(HockeystickAccountant().get_optimizer_hook_fn(0.1), [60] * 50, ghost=True) == 10
    # A remainder at the end of each of a few epochs hides nothing.
    epoch = [60] * 20 + [37]
    assert steps_on(HockeystickAccountant().get_optimizer_hook_fn(0.05), epoch * 3) == 10
    # Nor does one in epochs that are shorter than any run of equal batches would have to be.
    assert steps_on(HockeystickAccountant().get_optimizer_hook_fn(0.2), [60, 60, 60, 60, 37] * 10) == 16
    assert steps_on(HockeystickAccountant().get_optimizer_hook_fn(0.5), [60, 37] * 100) != -1
    # A loader may be exchanged late.
    poisson = np.random.default_rng(2).binomial(600, 0.1, 3000).tolist()
    assert steps_on(HockeystickAccountant().get_optimizer_hook_fn(0.1), poisson + [60] * 20) in range(
        3000, 3012
    )
    # All records in every batch, or less than a record expected: nothing is known.
    assert steps_on(HockeystickAccountant().get_optimizer_hook_fn(1.0), [60] * 500) == -1
    assert steps_on(HockeystickAccountant().get_optimizer_hook_fn(0.001), [0] * 500, 0.1) == -1
    # Parts of batches have one size.
    assert (
        steps_on(HockeystickAccountant().get_optimizer_hook_fn(0.1), [16] * 50, _is_last_step_skipped=True)
        == -1
    )


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("records", "rate"), [(2, 0.5), (100, 0.01), (600, 0.1), (60_000, 0.004), (50, 0.97)]
)
def test_poisson_samples_stop_none(records: int, rate: float) -> None:
    sizes = np.random.default_rng(1).binomial(records, rate, 5000).tolist()
    hook = HockeystickAccountant().get_optimizer_hook_fn(rate)
    assert steps_on(hook, sizes, int(records * rate)) == -1


def test_no_size_is_likelier_than_the_bound() -> None:
    for records in (1, 2, 3, 10, 1000):
        for rate in (0.01, 0.1, 0.5, 0.9):
            likeliest = scipy.stats.binom.pmf(np.arange(records + 1), records, rate).max()
            assert likeliest <= 1.0 / math.sqrt(2.0 * math.e * records * rate * (1.0 - rate))


def private(engine: Any, num_workers: int = 0, **options: Any) -> Any:
    """(model, optimizer, private loader, the loader that was passed in) of a small run."""
    records = torch.utils.data.TensorDataset(torch.randn(400, 8), torch.randint(0, 2, (400,)))
    model = torch.nn.Linear(8, 2)
    loader = torch.utils.data.DataLoader(records, batch_size=40, num_workers=num_workers)
    made = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        **options,
    )
    return (*made, loader)


def train(model: Any, optimizer: Any, loader: Any, steps: int = 10**9) -> None:
    for _, (x, y) in zip(range(steps), loader, strict=False):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


@pytest.mark.parametrize("before", [0, 3])
def test_the_engine_steps_on_its_own_loader_only(before: int) -> None:
    engine = PrivacyEngine()
    model, private_optimizer, loader, passed_in = private(engine)
    check_loader(loader)
    train(model, private_optimizer, loader, before)
    # A batch may have been drawn and left, when the loop was.
    train(model, private_optimizer, loader)
    assert len(engine.accountant) == before + 10
    train(model, private_optimizer, loader)
    with pytest.raises(hs.ParameterError, match="came from another loader"):
        train(model, private_optimizer, passed_in)
    assert len(engine.accountant) == before + 20


def test_the_engine_does_not_step_on_the_loader_that_was_passed_in() -> None:
    engine = PrivacyEngine()
    model, private_optimizer, _, passed_in = private(engine)
    with pytest.raises(
        hs.ParameterError, match="0 batches of the private loader wait for their step, must be 1"
    ):
        train(model, private_optimizer, passed_in)
    assert engine.accountant.history == []


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_an_epoch_without_a_private_step_is_warned_of_once() -> None:
    engine = PrivacyEngine()
    model, private_optimizer, loader, _ = private(engine)
    # Evaluation, and a pass that is left, are none of its business.
    with torch.no_grad():
        list(loader)
    model.eval()
    list(loader)
    model.train()
    list(itertools.islice(loader, 3))
    train(model, private_optimizer, loader)
    raw = SimpleNamespace(
        zero_grad=private_optimizer.zero_grad, step=private_optimizer.original_optimizer.step
    )
    with pytest.warns(BatchWarning, match="10 batches were drawn, and the optimizer .* made no step"):
        train(model, raw, loader)
    train(model, raw, loader)
    assert len(engine.accountant) == 10


@pytest.mark.parametrize("name", ["sample_rate", "num_samples", "another"])
def test_the_sampler_stays_as_it_was_made(name: str) -> None:
    engine = PrivacyEngine()
    model, private_optimizer, loader, _ = private(engine)
    train(model, private_optimizer, loader, 2)
    setattr(loader.batch_sampler, name, 200)
    with pytest.raises(hs.ParameterError, match=rf"batch_sampler.{name} = 200: must stay"):
        train(model, private_optimizer, loader)
    assert len(engine.accountant) == 2


@pytest.mark.parametrize("held", ["", ".grad_sample", "._norm_sample"])
def test_16_bits_are_refused(held: str) -> None:
    accountant = HockeystickAccountant()
    hook = accountant.get_optimizer_hook_fn(sample_rate=0.125)
    for kind, refused in ((np.float64, False), (np.float32, False), (np.float16, True)):
        kept = np.zeros((3, 2), kind)
        parameter = SimpleNamespace(**{held[1:] or "dtype": kept if held else kept.dtype})
        if refused:
            with pytest.raises(hs.ParameterError, match=rf"parameters\[0\]{held}.dtype = float16"):
                hook(optimizer(params=[parameter]))
        else:
            hook(optimizer(params=[parameter]))
    assert len(accountant) == 2


WORKERS = pytest.mark.parametrize("workers", [0, 1])


@WORKERS
def test_a_batch_is_used_once(workers: int) -> None:
    engine = PrivacyEngine()
    model, private_optimizer, loader, _ = private(engine, workers)
    batch = next(batches := iter(loader))
    train(model, private_optimizer, [batch])
    with pytest.raises(hs.ParameterError, match="used before"):
        train(model, private_optimizer, [batch])
    train(model, private_optimizer, batches)
    assert len(engine.accountant) == 10


@WORKERS
def test_what_was_drawn_and_not_used_pays_for_no_other_step(workers: int) -> None:
    engine = PrivacyEngine()
    model, private_optimizer, loader, passed_in = private(engine, workers)
    with torch.no_grad():
        kept = list(loader)
    for batches in (kept, passed_in):
        with pytest.raises(hs.ParameterError, match=f"10 batches .* must be {2 * workers + 1}"):
            train(model, private_optimizer, batches)
    # Leaving out an empty batch would be to train without its noise.
    next(batches := iter(loader))
    with pytest.raises(hs.ParameterError, match="a batch was left out"):
        train(model, private_optimizer, batches)
    assert engine.accountant.history == []
    # The next pass begins anew, and may be left.
    for _ in range(3):
        train(model, private_optimizer, itertools.islice(loader, 4))
    assert len(engine.accountant) == 12


@WORKERS
def test_parts_of_a_batch_are_one_step(workers: int) -> None:
    engine = PrivacyEngine()
    model, private_optimizer, loader, passed_in = private(engine, workers)
    done = 0

    def until(steps: int) -> None:
        nonlocal done
        done += steps
        with BatchMemoryManager(
            data_loader=loader, max_physical_batch_size=16, optimizer=private_optimizer
        ) as parts:
            for part in parts:
                train(model, private_optimizer, [part])
                if len(engine.accountant) == done:
                    break

    # Between two batches a pass may be left, though parts of the next one have been fetched.
    for steps in (10, 2, 10, 1, 3):
        until(steps)
    assert len(engine.accountant) == done
    with pytest.raises(hs.ParameterError, match=r"0 batches|2 batches .* must be 3"):
        train(model, private_optimizer, passed_in)
    assert len(engine.accountant) == done


@WORKERS
@pytest.mark.parametrize("used", [[0, 0], [1], [0, 2]], ids=["a part twice", "but the first", "but one"])
def test_every_part_is_used_once(used: list[int], workers: int) -> None:
    engine = PrivacyEngine()
    model, private_optimizer, loader, _ = private(engine, workers)
    with BatchMemoryManager(
        data_loader=loader, max_physical_batch_size=8, optimizer=private_optimizer
    ) as parts:
        first = list(itertools.islice(parts, used[-1] + 1)) if used != [0, 2] else None
        if first is None:
            batches = iter(parts)
            train(model, private_optimizer, [next(batches)])
            first, used = [next(batches), next(batches)], [1]
        with pytest.raises(hs.ParameterError, match="wait for their step"):
            train(model, private_optimizer, [first[i] for i in used])
    assert engine.accountant.history == []


@WORKERS
def test_a_pass_is_not_left_inside_a_batch(workers: int) -> None:
    engine = PrivacyEngine()
    model, private_optimizer, loader, _ = private(engine, workers)
    with BatchMemoryManager(
        data_loader=loader, max_physical_batch_size=8, optimizer=private_optimizer
    ) as parts:
        train(model, private_optimizer, itertools.islice(parts, 1))
        for again in (parts, loader):
            with pytest.raises(hs.ParameterError, match="left inside a batch"):
                train(model, private_optimizer, again)
    assert engine.accountant.history == []


def test_the_hook_of_the_accountant_is_not_replaced() -> None:
    """Opacus keeps one function alone: attaching another one made epsilon 0."""
    engine, seen = PrivacyEngine(), list[Any]()
    model, private_optimizer, loader, _ = private(engine)
    own = private_optimizer.step_hook

    def both(each: Any) -> None:
        own(each)
        seen.append(each)

    private_optimizer.attach_step_hook(both)
    train(model, private_optimizer, loader)
    assert len(engine.accountant) == len(seen) == 10
    private_optimizer.attach_step_hook(seen.append)
    with pytest.raises(hs.ParameterError, match="attach_step_hook"):
        train(model, private_optimizer, loader)
    assert len(engine.accountant) == 10


def test_a_norm_is_not_lowered_inside_a_batch() -> None:
    """Parts that were clipped to the larger norm had noise for the smaller one."""
    engine = PrivacyEngine()
    model, private_optimizer, loader, _ = private(engine)

    def run(when: Any) -> None:
        with BatchMemoryManager(
            data_loader=loader, max_physical_batch_size=8, optimizer=private_optimizer
        ) as parts:
            for part in parts:
                train(model, private_optimizer, [part])
                if when():
                    private_optimizer.max_grad_norm *= 0.9

    run(lambda: not private_optimizer._is_last_step_skipped)  # a schedule, between batches
    assert len(engine.accountant) == 10
    with pytest.raises(hs.ParameterError, match="gradients of this batch were clipped to that"):
        run(lambda: private_optimizer._is_last_step_skipped)
    assert len(engine.accountant) == 10


def test_weights_of_a_sampler_are_not_dropped_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    class WeightedRandomSampler:
        pass

    monkeypatch.setattr(opacus.PrivacyEngine, "make_private", lambda *_, **__: pytest.skip("warned"))
    loader = SimpleNamespace(sampler=WeightedRandomSampler())
    with pytest.warns(UserWarning, match="WeightedRandomSampler"), contextlib.suppress(pytest.skip.Exception):
        PrivacyEngine().make_private(data_loader=loader)


def test_names_that_users_of_opacus_expect() -> None:
    accountant = HockeystickAccountant()
    accountant.step(noise_multiplier=1.0, sample_rate=0.01)
    assert repr(accountant) == "HockeystickAccountant(adjacency='add_or_remove', history=[(1.0, 0.01, 1)])"
    ledger = hs.Accountant()
    ledger.step(accountant.process)
    assert ledger.get_epsilon(1e-5) == ledger.epsilon(1e-5) == accountant.get_epsilon(1e-5)
    assert ledger.get_delta(0.1) == ledger.delta(0.1) == accountant.get_delta(0.1)


def test_ctrl_c_takes_no_history_away() -> None:
    def begun() -> HockeystickAccountant:
        accountant = HockeystickAccountant()
        for _ in range(3):
            accountant.step(noise_multiplier=1.0, sample_rate=0.1)
        return accountant

    def work(accountant: HockeystickAccountant) -> None:
        accountant.step(noise_multiplier=1.0, sample_rate=0.1)

    for accountant in interrupted_everywhere(("opacus.py",), begun, work):
        made = len(accountant)
        assert made in (3, 4)
        assert accountant.process.steps == accountant.profile().description.as_process().steps == made
