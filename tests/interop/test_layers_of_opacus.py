"""What the strict engine sees of models, losses, loaders and replicas; against stand-ins, or against Opacus where it is installed."""

import contextlib
import itertools
import warnings
from types import SimpleNamespace
from typing import Any

import hockeystick as hs
import numpy as np
import pytest
import torch
from hockeystick.interop.opacus import PrivacyEngine
from hockeystick.interop.opacus_batches import check_replicas, order_of
from hockeystick.interop.opacus_ghost import check_ghost
from hockeystick.interop.opacus_layers import (
    Buffers,
    Passes,
    RecordLosses,
    _after_layer,
    _after_model,
    check_gradients,
    watch_layers,
)
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
def test_buffers_that_change_are_warned_of_once_each(changed: str) -> None:
    versions, kept = itertools.count(1), {}

    def tensor() -> Any:
        return SimpleNamespace(_version=0, is_inference=lambda: changed == "inference")

    def change(name: str) -> None:
        if changed in ("in place", "inference"):
            kept[name]._version = next(versions)
        elif changed == "replaced":
            kept[name] = tensor()

    kept["first"], kept["second"] = tensor(), tensor()
    buffers = Buffers(SimpleNamespace(named_buffers=lambda: list(kept.items())))
    change("first")
    buffers.look()  # a checkpoint's
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for name in ("second", "second", "first", "first", "second"):
            change(name)
            buffers.see()
    said = [str(warning.message).split(" has changed")[0] for warning in caught]
    assert said == (["module.second", "module.first"] if changed in ("in place", "replaced") else [])


@pytest.mark.parametrize("shape", [(), (64, 1), (64, 2)])
def test_losses_are_one_for_each_record(shape: tuple[int, ...]) -> None:
    class Losses:
        reduction = "mean"

        def __call__(self, shape: Any, *, scale: int) -> Any:
            return SimpleNamespace(shape=shape, grad_fn=None, scale=scale)

    seen = SimpleNamespace(activations=[[SimpleNamespace(shape=(64, 3), dim=lambda: 2)]])
    parts: Any = SimpleNamespace(loss_reduction="mean", hooks_enabled=True, modules=lambda: [seen])
    criterion = RecordLosses(parts, parts, Losses())
    assert criterion((64,), scale=3).loss_per_sample.scale == 3
    with pytest.raises(hs.ParameterError, match="losses of shape"):
        criterion(shape, scale=3)
    with pytest.raises(hs.ParameterError, match="1 losses, must be 64"):
        criterion((1,), scale=3)
    parts.hooks_enabled = False
    with pytest.raises(hs.ParameterError, match="interrupted"):
        criterion((64,), scale=3)


class Node:
    """One of an autograd graph."""

    def __init__(self, itemsize: int, *after: Any, floating: bool = True) -> None:
        kind = SimpleNamespace(is_floating_point=floating, itemsize=itemsize)
        self._input_metadata = [SimpleNamespace(dtype=kind)]
        self.next_functions = [(node, 0) for node in (*after, None)]

    def name(self) -> str:
        return "Node"


class Value:
    """A tensor that has a gradient."""

    def __init__(self, node: Any, itemsize: int = 4) -> None:
        self.requires_grad, self.grad_fn = True, node
        self.dtype = SimpleNamespace(is_floating_point=True, itemsize=itemsize)
        self.device = SimpleNamespace(type="cpu")
        self.hooks: list[Any] = []

    def register_hook(self, hook: Any) -> None:
        self.hooks.append(hook)


def test_gradients_of_16_bits_are_refused_where_they_pass() -> None:
    shared = Node(4, Node(8))
    fine = Value(Node(4, shared, Node(1, shared, floating=False)))
    check_gradients({"logits": fine, "hidden": [(fine, None), 3], "constant": SimpleNamespace(dtype=None)})
    weight = Value(None)
    check_gradients(weight)
    assert fine.hooks
    assert not weight.hooks
    for hook in fine.hooks:
        hook(Value(None))
        with pytest.raises(hs.ParameterError, match="gradients of 16 bits"):
            hook(Value(None, itemsize=2))
    for wrong in (Value(Node(4, shared, Node(4, Node(2)))), Value(None, itemsize=2)):
        for output in (wrong, {"logits": fine, "hidden": [(wrong,)]}):
            with pytest.raises(hs.ParameterError, match="gradients of 16 bits"):
                check_gradients(output)


def test_long_graphs_are_not_followed_to_their_end() -> None:
    """Each operation that Python has touched is freed within the one before it: a hundred thousand of them overflowed the stack."""
    node = first = Node(4)
    touched = set()

    class Watched(Node):
        @property
        def next_functions(self) -> Any:
            touched.add(self)
            return [(self.after, 0)]

        @next_functions.setter
        def next_functions(self, value: Any) -> None:
            self.after = value[0][0]

    for _ in range(20_000):
        node = Watched(4, node)
    _after_model(SimpleNamespace(training=True), (Value(Node(4)),), Value(node))
    assert not touched  # a graph that goes on was looked at before
    _after_model(SimpleNamespace(training=True), (Value(None), 3), Value(node))
    assert 100 < len(touched) <= 1000
    assert first not in touched


@pytest.mark.parametrize("training", [False, True])
def test_autocast_is_refused_around_what_has_a_gradient(
    training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: True)
    layer = SimpleNamespace(training=training)
    _after_layer(layer, (), {"frozen": SimpleNamespace(requires_grad=False)})
    with pytest.raises(hs.ParameterError, match=r"torch\.autocast") if training else contextlib.nullcontext():
        _after_layer(layer, (), {"trained": Value(None)})


@pytest.mark.parametrize(
    ("kind", "shapes", "dimension", "refused"),
    [
        ("Linear", [(40, 1), (30, 1)], 0, True),
        ("Linear", [(7, 40), (9, 40)], 0, True),
        ("Linear", [(7, 40), (9, 40)], 1, False),
        ("Linear", [(7, 40), (7, 30)], 1, True),
        ("Linear", [(40, 1), (40, 3), (40,)], 0, False),
        ("Linear", [(40,), ()], 1, False),
        ("RNNLinear", [(40, 1), (30, 1)], 0, False),
    ],
)
@pytest.mark.parametrize("tied", [False, True])
def test_passes_before_a_backward_pass_have_as_many_rows(
    kind: str, shapes: list[tuple[int, ...]], dimension: int, refused: bool, tied: bool
) -> None:
    """Row i of one is added to row i of the other: of 40 private and 30 public rows one record moved the sum by 29 norms."""
    weight = SimpleNamespace(_forward_counter=0)

    def layer() -> Any:
        return type(
            kind, (), {"training": True, "activations": [], "parameters": lambda _, recurse=True: [weight]}
        )()

    def passes(waiting: bool) -> None:
        layers, hooks = [layer() for _ in shapes] if tied else [layer()] * len(shapes), Passes(dimension)
        weight._forward_counter = 0
        for each, shape in zip(layers, shapes, strict=True):
            each.activations.append([SimpleNamespace(shape=shape)])
            weight._forward_counter += 1
            hooks.after_layer(each, (), None)
            if not waiting:
                each.activations.pop()
                weight._forward_counter -= 1

    passes(waiting=False)
    with (
        pytest.raises(hs.ParameterError, match="rows before a backward pass")
        if refused
        else contextlib.nullcontext()
    ):
        passes(waiting=True)


def layer(kind: str, module: str, trained: bool = True, hooks: Any = None, **more: Any) -> Any:
    forward = type("forward", (), {"__module__": module})
    made = type(kind, (), {"__module__": module, "forward": forward})()
    parameters = [SimpleNamespace(requires_grad=trained, _backward_hooks=hooks)]
    vars(made).update(more, parameters=lambda recurse: parameters)
    return made


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (layer("Linear", "torch.nn"), None),
        (layer("DPLSTM", "opacus.layers"), None),
        (layer("Mine", "mine"), r"module\.a is a Mine"),
        (layer("Mine", "mine", trained=False), None),
        (layer("Conv1D", "transformers.pytorch_utils"), None),
        (layer("EmbeddingBag", "torch.nn"), "is an EmbeddingBag"),
        (layer("Embedding", "torch.nn", scale_grad_by_freq=True), "scale_grad_by_freq"),
        (layer("_ConvNd", "torch.nn", padding_mode="circular"), "padding_mode"),
        (layer("Linear", "torch.nn", forward=len), r"module\.a\.forward was replaced"),
        (layer("Linear", "torch.nn", _forward_hooks={0: torch.no_grad}), None),
        (layer("Linear", "torch.nn", _forward_hooks={0: torch.no_grad, 1: warnings.warn}), "forward hook"),
        (layer("Linear", "torch.nn", hooks={0: len}), "parameter with hooks"),
        (layer("Linear", "torch.nn", trained=False, hooks={0: len}, _forward_hooks={1: len}), None),
        (layer("Norm", "torch.nn", _forward_pre_hooks={0: len}), "forward hook"),
        (layer("Norm", "torch.nn", modules=lambda: [layer("Mine", "mine")]), "has a Mine"),
        (
            layer("Norm", "torch.nn", modules=lambda: [layer("Linear", "torch.nn", _forward_hooks={0: len})]),
            "forward hook",
        ),
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


class Gated:
    """A layer that Opacus does not know, of whose arguments ghost clipping sees the first one."""

    def __init__(self, trained: bool = True) -> None:
        self.training, self.trained = True, trained
        self.hooks: list[Any] = []

    def parameters(self, recurse: bool) -> Any:
        return [SimpleNamespace(requires_grad=self.trained)]

    def modules(self) -> Any:
        return [self]

    def register_forward_pre_hook(self, hook: Any, with_kwargs: bool) -> None:
        assert with_kwargs
        self.hooks.append(hook)

    def register_forward_hook(self, hook: Any) -> None:
        assert self.training

    def forward(self, x: Any, gate: Any = None, scaled: bool = False, size: int = 1000) -> Any:
        raise NotImplementedError


def test_layers_that_ghost_clipping_does_not_know_take_one_argument() -> None:
    gated, frozen = Gated(), Gated(trained=False)
    module = SimpleNamespace(
        modules=lambda: [gated, frozen], register_forward_hook=gated.register_forward_hook
    )
    watch_layers(module, module, "hooks")
    assert not gated.hooks
    watch_layers(module, module, "ghost")
    assert not frozen.hooks
    (before,) = gated.hooks
    x = object()
    for inputs, named in (
        ((x,), {}),
        ((x, None), {"scaled": False}),
        ((x, False, None), {}),
        ((x, None, False, int("1000")), {}),
        ((), {"x": x}),
    ):
        before(gated, inputs, named)
    for inputs, named, name in (
        ((x, object()), {}, "gate"),
        ((x,), {"gate": np.zeros(3)}, "gate"),
        ((x, None, True), {}, "scaled"),
        ((x,), {"size": 7}, "size"),
    ):
        with pytest.raises(hs.ParameterError, match=rf"^{name}: must have its default in Gated\.forward"):
            before(gated, inputs, named)
        gated.training = False
        before(gated, inputs, named)
        gated.training = True
    gated.trained = None  # type: ignore[assignment]
    with pytest.raises(hs.ParameterError, match=r"trained of a Gated.* must be what it was in make_private"):
        before(gated, (x,), {})


def test_layers_of_ones_own_are_known_when_sharded() -> None:
    forward = type("forward", (), {"__module__": "mine"})
    mine = type("Mine", (), {"__module__": "mine", "forward": forward})
    sharded = type("FSDPMine", (type("FSDPModule", (), {}), mine), {"__module__": "torch.distributed"})()
    vars(sharded)["parameters"] = lambda recurse: [SimpleNamespace(requires_grad=True)]
    with pytest.raises(hs.ParameterError, match="is a Mine"):
        check_ghost(SimpleNamespace(named_modules=lambda: [("a", sharded)]), "ghost_fsdp")


class Subset(torch.utils.data.Dataset):  # type: ignore[name-defined, misc, unused-ignore]
    def __init__(self, dataset: Any, indices: Any) -> None:
        self.dataset, self.indices = dataset, indices

    def __len__(self) -> int:
        return 2


class Wrapped(torch.utils.data.Dataset):  # type: ignore[name-defined, misc, unused-ignore]
    def __init__(self, *parts: Any) -> None:
        self.parts, self.itself = parts, self


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    ("other", "differs"),
    [
        ([3, 2], True),
        ([2, 3], False),
        (np.array([2, 3]), False),
        (range(2, 4), False),
        ([2, 3, 4], True),
        ({"a": 1}, True),
        (None, True),
    ],
    ids=str,
)
def test_replicas_have_one_data_set(
    other: Any, differs: bool, wrapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def data(indices: Any) -> Any:
        subset = Subset(range(9), indices)
        return Wrapped(subset, subset) if wrapped else subset

    facts: list[Any] = []

    def gather(into: list[Any], mine: Any) -> None:
        facts.append(mine)
        into[:] = [facts[0], facts[-1]]

    distributed = SimpleNamespace(get_world_size=lambda: 2, all_gather_object=gather)
    monkeypatch.setattr(torch, "distributed", distributed, raising=False)
    check_replicas(data([2, 3]))
    if differs:
        with pytest.raises(hs.ParameterError, match="must be the same on all replicas"):
            check_replicas(data(other))
    else:
        check_replicas(data(other))


@pytest.mark.parametrize("indices", [[(0, 1), (2,)], ["a", "b"], {"a": 0}, None], ids=str)
def test_subsets_by_other_names_are_let_pass(indices: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def gather(into: list[Any], mine: Any) -> None:
        into[:] = [mine, mine]

    distributed = SimpleNamespace(get_world_size=lambda: 2, all_gather_object=gather)
    monkeypatch.setattr(torch, "distributed", distributed, raising=False)
    check_replicas(Subset(range(9), indices))
