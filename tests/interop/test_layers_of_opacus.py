"""What the strict engine sees of models, losses, loaders and replicas; against stand-ins, or against Opacus where it is installed."""

import itertools
import warnings
from types import SimpleNamespace
from typing import Any

import hockeystick as hs
import pytest
import torch
from hockeystick.interop.opacus import PrivacyEngine
from hockeystick.interop.opacus_batches import check_replicas, order_of
from hockeystick.interop.opacus_layers import Buffers, check_ghost, check_losses
from hockeystick.interop.opacus_steps import check_types, row_counts

pytestmark = pytest.mark.filterwarnings("ignore:Secure RNG turned off")


def test_coins_have_a_generator_of_their_own() -> None:
    model = torch.nn.Linear(8, 2)
    records = torch.utils.data.TensorDataset(torch.randn(40, 8), torch.randint(0, 2, (40,)))
    loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=torch.utils.data.DataLoader(records, batch_size=10),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )[-1]
    assert isinstance(loader.batch_sampler.generator, torch.Generator)


def test_complex_numbers_are_refused() -> None:
    kind = SimpleNamespace(is_complex=True, itemsize=8)
    with pytest.raises(hs.ParameterError, match=r"parameters\[1\]\.dtype"):
        check_types([SimpleNamespace(), SimpleNamespace(dtype=kind)])


def test_rows_that_layers_keep_count() -> None:
    kept = SimpleNamespace(norm_sample=[range(7), range(9)])
    module = SimpleNamespace(modules=lambda: [SimpleNamespace(), kept])
    assert row_counts(SimpleNamespace(params=[]), module) == [7, 9]


class Unusual:
    """A batch sampler of an own kind."""


@pytest.mark.parametrize(
    ("loader", "order"),
    [
        (None, ("sampler", "NoneType")),
        (SimpleNamespace(sampler=Unusual()), ("sampler", "Unusual")),
        (SimpleNamespace(sampler=range(3), batch_sampler=Unusual()), ("batch_sampler", "Unusual")),
        (SimpleNamespace(sampler=range(3), batch_sampler=[[0], [1]]), ("batch_sampler", "list")),
        (
            SimpleNamespace(batch_sampler=type("BatchSampler", (), {"sampler": Unusual()})()),
            ("sampler", "Unusual"),
        ),
    ],
)
def test_what_decides_the_order_is_named(loader: Any, order: tuple[str, str]) -> None:
    assert order_of(loader) == order


@pytest.mark.parametrize("changed", ["in place", "replaced", "inference", "not"])
def test_buffers_that_change_are_warned_of_once(changed: str) -> None:
    versions, kept = itertools.count(), {}

    def tensor() -> Any:
        return SimpleNamespace(_version=0, is_inference=lambda: changed == "inference")

    kept["running"] = tensor()
    buffers = Buffers(SimpleNamespace(named_buffers=lambda: list(kept.items())))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            if changed in ("in place", "inference"):
                kept["running"]._version = 1 + next(versions)
            elif changed == "replaced":
                kept["running"] = tensor()
            buffers.see()
    assert len(caught) == (changed in ("in place", "replaced"))


@pytest.mark.parametrize("shape", [(), (64, 1), (64, 2)])
def test_losses_are_one_for_each_record(shape: tuple[int, ...]) -> None:
    class Losses:
        def __call__(self, x: Any, *, scale: int) -> Any:
            return SimpleNamespace(loss_per_sample=SimpleNamespace(shape=x), scale=scale)

    criterion: Any = Losses()
    check_losses(criterion)
    assert isinstance(criterion, Losses)
    assert criterion((64,), scale=3).scale == 3
    with pytest.raises(hs.ParameterError, match="losses of shape"):
        criterion(shape, scale=3)


def layer(kind: str, module: str, trained: bool = True, **more: Any) -> Any:
    made = type(kind, (), {"__module__": module})()
    vars(made).update(more, parameters=lambda recurse: [SimpleNamespace(requires_grad=trained)])
    return made


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (layer("Linear", "torch.nn"), None),
        (layer("DPLSTM", "opacus.layers"), None),
        (layer("Mine", "mine"), r"module\.a is a Mine"),
        (layer("Mine", "mine", trained=False), None),
        (layer("Embedding", "torch.nn", scale_grad_by_freq=True), "scale_grad_by_freq"),
        (layer("_ConvNd", "torch.nn", padding_mode="circular"), "padding_mode"),
    ],
)
def test_layers_whose_ghost_norms_are_others(made: Any, message: str | None) -> None:
    module = SimpleNamespace(named_modules=lambda: [("a", made)])
    check_ghost(module, "hooks")
    if message is None:
        check_ghost(module, "ghost")
        return
    for mode in ("ghost", "ghost_fsdp"):
        with pytest.raises(hs.ParameterError, match=message):
            check_ghost(module, mode)


def test_layers_of_ones_own_are_known_when_sharded() -> None:
    mine = type("Mine", (), {"__module__": "mine"})
    sharded = type("FSDPMine", (type("FSDPModule", (), {}), mine), {"__module__": "torch.distributed"})()
    vars(sharded)["parameters"] = lambda recurse: [SimpleNamespace(requires_grad=True)]
    with pytest.raises(hs.ParameterError, match="is a Mine"):
        check_ghost(SimpleNamespace(named_modules=lambda: [("a", sharded)]), "ghost_fsdp")


@pytest.mark.parametrize(("other", "message"), [([3, 2], True), ([2, 3], False), ([2, 3, 4], True)])
def test_replicas_have_one_data_set(other: list[int], message: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def subset(indices: list[int]) -> Any:
        its = type("Subset", (), {"__len__": lambda its: len(its.indices)})()
        its.indices, its.dataset = indices, range(9)
        return its

    facts: list[Any] = []

    def gather(into: list[Any], mine: Any) -> None:
        facts.append(mine)
        into[:] = [facts[0], facts[-1]]

    distributed = SimpleNamespace(get_world_size=lambda: 2, all_gather_object=gather)
    monkeypatch.setattr(torch, "distributed", distributed, raising=False)
    check_replicas(subset([2, 3]))
    if message:
        with pytest.raises(hs.ParameterError, match="must be the same on all replicas"):
            check_replicas(subset(other))
    else:
        check_replicas(subset(other))
