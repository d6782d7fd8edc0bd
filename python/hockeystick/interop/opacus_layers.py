"""What Opacus takes for granted of a model: that its layers neither mix records nor keep them, and that their gradients are whole (docs/interop/interop.md, section 2)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from .._base.lazy import needing
from .._base.validation import ParameterError, is_a
from .opacus_ghost import has_trained, trains, watch_ghost
from .opacus_steps import states_of

with needing("hockeystick.interop.opacus needs Opacus 1.6 or later", extra="opacus"):
    import torch
    from opacus.utils.fast_gradient_clipping_utils import (
        DPLossFastGradientClipping,
        DPTensorFastGradientClipping,
    )


_LOOKED_AT = 1000  # *limit*: operations that are looked at; the recursion that frees so many needs less than 256 KB of stack
_ROUNDED = "gradients of 16 bits let a record move the sum by several times max_grad_norm"


def trains_anywhere(module: Any) -> bool:
    """Whether a forward pass now is one of training for some layer."""
    layers = module.modules() if hasattr(module, "modules") else ()
    return bool(
        torch.is_grad_enabled()
        and (getattr(module, "training", True) or any(each.training for each in layers))
    )


def check_layers(module: Any) -> None:
    """Raise ParameterError where the forward pass of a layer mixes records, or keeps what it saw of them: none of it has noise.

    Opacus looks at layers that are trained. Frozen ones do the same.
    """
    for name, layer in module.named_modules() if hasattr(module, "named_modules") else ():
        check_layer(layer, name)


def check_layer(layer: Any, name: str) -> None:
    """As `check_layers`, of one."""
    problem = ""
    if is_a(layer, "_BatchNorm") and (layer.training or getattr(layer, "running_mean", None) is None):
        problem = (
            "normalises by the batch, so that one record moves the gradients of all others, and keeps statistics of the data without "
            "noise: replace it (nn.GroupNorm), or call eval() on it, after each train()"
        )
    elif is_a(layer, "_InstanceNorm") and layer.training and getattr(layer, "track_running_stats", False):
        problem = "keeps statistics of the data without noise: make it with track_running_stats=False"
    elif is_a(layer, "Embedding", "EmbeddingBag") and getattr(layer, "max_norm", None) is not None:
        problem = "changes the weights of what it sees without noise: make it with max_norm=None"
    if problem:
        raise ParameterError(f"module.{name} = {layer!r}: {problem}")


class RecordTensor(DPTensorFastGradientClipping):  # type: ignore[misc, unused-ignore]
    """What the criterion of ghost clipping returns: its optimizer knows while gradients are not the clipped sum."""

    def backward(self) -> None:
        """Norms, then the sum: an exception in between leaves what is not clipped."""
        self.optimizer.is_unfinished = True
        super().backward()
        self.optimizer.is_unfinished, self.optimizer.sums = False, states_of(self.optimizer)


def _stays(name: str) -> Any:
    def operation(self: Any, *others: Any) -> Any:
        for other in others:
            # A number for all, which every record's factor multiplies: the more records, the more of it, and no norm is of it.
            if getattr(other, "requires_grad", False) and other.shape != self.loss_per_sample.shape:
                raise ParameterError(
                    f"loss: a tensor of shape {tuple(other.shape)} that is differentiated is combined with it, must be of shape "
                    f"{tuple(self.loss_per_sample.shape)}, one number for each record: ghost clipping would add the gradient of a penalty once for each record, "
                    "without clipping it; for one of weights use the optimizer's weight_decay, and of outputs add the record's own"
                )
        made = getattr(super(RecordTensor, self), name)(*others)
        made.__class__ = RecordTensor
        return made

    return operation


for _name in ("truediv", "mul", "rmul", "add", "radd", "sub", "rsub", "neg"):
    setattr(RecordTensor, f"__{_name}__", _stays(f"__{_name}__"))


class RecordLosses(DPLossFastGradientClipping):  # type: ignore[misc, unused-ignore]
    """The criterion of ghost clipping; raises ParameterError unless it has one loss for each record, (B,), and gradients have norms.

    Opacus multiplies the losses by the factors of clipping, (B,): of losses (B, 1) each would be multiplied by all of these, and so would a single one.
    After a backward pass that was interrupted between norms and sum, it computes no norms, and would clip by those of that pass.
    """

    def __call__(self, *args: Any, **options: Any) -> Any:
        made = super().__call__(*args, **options)
        losses = made.loss_per_sample
        if len(losses.shape) != 1:
            raise ParameterError(
                f"criterion: losses of shape {tuple(losses.shape)}, must be (batch size,), one for each record, as each is multiplied by the "
                "factor that its record is clipped by: take the mean over the other dimensions, or squeeze predictions and targets"
            )
        made.__class__ = RecordTensor
        trained: Any = getattr(self.module, "_module", self.module)
        if trains_anywhere(trained):
            if not self.module.hooks_enabled:
                raise ParameterError(
                    "module.hooks_enabled = False: must be True; a backward pass was interrupted between the norms of gradients and their sum: call "
                    "module.enable_hooks() and optimizer.zero_grad(), and begin this batch again with its forward pass"
                )
            _check_count(losses.shape[0], trained, int(not getattr(self.module, "batch_first", True)))
            check_gradients(losses)
        return made


def _check_count(losses: int, module: Any, dimension: int) -> None:
    """As many losses as the layers that wait for a backward pass saw records, in this dimension."""
    seen = max((_rows_that_wait(layer, dimension) for layer in module.modules()), default=0) or losses
    if losses != seen:
        raise ParameterError(
            f"criterion: {losses} losses, must be {seen}, one for each record, as each is multiplied by the factor that its record is clipped by: "
            "let it return the losses of single records where reduction is 'none'"
        )


def _rows_that_wait(layer: Any, dimension: int) -> int:
    """Of the layer's last use; of a recurrent one, whose time steps have fewer and fewer records if they are packed, the most."""
    uses = getattr(layer, "activations", ())
    recurrent = is_a(layer, "RNNLinear")
    shapes = [kept[0].shape for kept in (uses if recurrent else uses[-1:]) if kept]
    at = 0 if recurrent else dimension
    return max((shape[at] for shape in shapes if len(shape) > at), default=0)


class Mixing:
    """A hook before each forward pass of a layer that may mix records or keep what it saw of them, as parts of ``root``, which trains."""

    def __init__(self, root: Any) -> None:
        self._root = root

    def __call__(self, layer: Any, inputs: Any) -> None:
        """Also without gradients, as in a frozen part; raises ParameterError."""
        if torch.is_grad_enabled() or self._root.training:
            check_layer(layer, "")


def watch_layers(module: Any, whole: Any, grad_sample_mode: str) -> None:
    """Let each forward pass in training mode raise ParameterError where gradients would be of 16 bits, rows of other records, or of other norms.

    The gradient of a mean is divided by the size of the batch before it is rounded, and Opacus multiplies it by that size again: one
    record more or less changes the rounding of all others', so that it moves the sum by several times max_grad_norm. Frozen layers above
    trained ones round alike; frozen ones below them have no gradients. A packed sequence holds the longest records first, and the
    gradients of a recurrent layer are in that order, while those of other layers are in the batch's: the parts of a row are of different
    records then; and so they are where a loss is of two forward passes on different records. Ghost clipping differentiates layers that Opacus
    does not know anew, with their first argument alone. Hooks are on the layers where Opacus takes
    them away with its own, and else on ``whole``, what it wrapped them in.
    """
    if not hasattr(module, "modules"):
        return
    kept = getattr(module, "autograd_grad_sample_hooks", None)
    if kept is None and whole is not module:
        # These gradients are computed in evaluation mode, too.
        whole.register_forward_hook(_after_any_model)
        return
    added = [module.register_forward_hook(_after_model)]
    passes = Passes(dimension=int(not getattr(whole, "batch_first", True)))
    for layer in module.modules():
        policy = getattr(getattr(layer, "_get_fsdp_state", lambda: None)(), "_mp_policy", None)
        if (kind := getattr(policy, "reduce_dtype", None)) is not None:
            _check_type(kind, "MixedPrecisionPolicy.reduce_dtype")
        added.append(layer.register_forward_hook(_after_layer))
        if is_a(layer, "_BatchNorm", "_InstanceNorm", "Embedding", "EmbeddingBag"):
            added.append(layer.register_forward_pre_hook(Mixing(module)))
        added.append(layer.register_forward_hook(passes.after_layer))
        if is_a(layer, "Conv2d", "Embedding"):
            added.append(layer.register_forward_hook(_after_strided))
        if "ghost" in grad_sample_mode:
            added.extend(watch_ghost(layer))
        if is_a(layer, "DPRNNBase"):
            added.append(layer.register_forward_pre_hook(_before_recurrent, with_kwargs=True))
            added.append(layer.register_forward_pre_hook(passes.before_recurrent, with_kwargs=True))
    if kept is not None:
        kept.extend(added)


def _after_strided(layer: Any, inputs: Any, output: Any) -> None:
    """Opacus reads what it has kept of this use by the strides that it would have in a tensor of its own.

    Of maps of one pixel torch calls others contiguous, too, which padding then keeps.
    """
    if trains(layer) and getattr(layer, "activations", None):
        layer.activations[-1] = [_in_order(each) for each in layer.activations[-1]]


def _in_order(value: Any) -> Any:
    if value.stride() == torch.empty(value.shape, device="meta").stride():
        return value
    return value.clone(memory_format=torch.contiguous_format)


def _before_recurrent(layer: Any, inputs: Any, named: Any) -> None:
    for value in (*inputs, *named.values()):
        order = getattr(value, "sorted_indices", None)
        if order is None or not trains(layer):
            continue
        if not torch.equal(order, torch.arange(len(order), device=order.device)):
            raise ParameterError(
                "input: a packed sequence of records in another order than the batch has, by which gradients of other layers belong to other "
                "records: let the collate_fn sort records by length, longest first, and pack_padded_sequence(..., enforce_sorted=True)"
            )


def _after_layer(layer: Any, inputs: Any, output: Any) -> None:
    if trains(layer):
        for value in _tensors(output):
            _check_value(value, type(layer).__name__)


class Passes:
    """Hooks that raise ParameterError where a weight is used on a number of rows while uses on others wait for a backward pass.

    Opacus adds the gradients of those uses row by row. ``dimension`` is that of the records in what layers take.
    """

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._rows: dict[int, int] = {}  # of each weight's last use

    def after_layer(self, layer: Any, inputs: Any, output: Any) -> None:
        """Of what Opacus has kept of this use, which is among those that wait."""
        seen = getattr(layer, "activations", None)
        if seen and not layer.training and torch.is_grad_enabled() and has_trained(layer):
            raise ParameterError(
                f"module: {type(layer).__name__} is called in evaluation mode, in which Opacus keeps nothing of it, while a forward pass in training mode "
                "waits for its backward pass: gradients would be computed from what that one kept, of other records: differentiate each forward "
                "pass before the next, or make it under torch.no_grad()"
            )
        if trains(layer) and seen and seen[-1] and not is_a(layer, "RNNLinear"):
            shape = seen[-1][0].shape
            if len(shape) > self._dimension:
                self._see(layer, layer.parameters(recurse=False), shape[self._dimension], 1)

    def before_recurrent(self, layer: Any, inputs: Any, named: Any) -> None:
        """Of the whole sequence: its steps have fewer and fewer rows if it is packed, of the same records."""
        given = [*inputs, *named.values()]
        if given and trains(layer):
            sizes = getattr(given[0], "batch_sizes", None)
            count = given[0].shape[int(not layer.batch_first)] if sizes is None else int(sizes[0])
            self._see(layer, layer.parameters(), count, 0)

    def _see(self, layer: Any, weights: Any, count: int, own: int) -> None:
        for weight in weights:
            last = self._rows.get(id(weight), count)
            self._rows[id(weight)] = count
            if last != count and getattr(weight, "_forward_counter", 0) > own:
                raise ParameterError(
                    f"module: weights of {type(layer).__name__} have had forward passes of {min(last, count)} and {max(last, count)} rows before a "
                    "backward pass; Opacus adds row i of one to row i of the other and clips the sum, so that a record more or less pairs all "
                    "others anew, and moves the sum by many times max_grad_norm: let each pass have the batch's records in their order (public data "
                    "need a step of their own)"
                )


def _after_any_model(module: Any, inputs: Any, output: Any) -> None:
    if torch.is_grad_enabled() or module.training:
        check_layers(module)
    if torch.is_grad_enabled():
        _look_at(inputs, output)


def _after_model(module: Any, inputs: Any, output: Any) -> None:
    if trains_anywhere(module):
        _look_at(inputs, output)


def _look_at(inputs: Any, output: Any) -> None:
    # A model that is called on what it returned goes on with a graph that was looked at.
    check_gradients(output, begun=any(each.grad_fn is not None for each in _tensors(inputs)))


def check_gradients(output: Any, begun: bool = False) -> None:
    """Raise ParameterError where gradients of the tensors in ``output`` have 16 bits, or some of those that they are passed on as.

    What was computed last is looked at (unless the graph was ``begun`` before), beside what layers returned; and in the backward pass
    whether `torch.autocast` is on.
    """
    tensors = list(_tensors(output))
    for value in tensors:
        _check_value(value, "the model")
        if value.grad_fn is not None:  # a weight that a model returns would keep the hook
            value.register_hook(lambda gradient: _check_value(gradient, "the backward pass"))
    # Breadth first, and not the whole graph: what Python has touched of it is freed by recursion, which has a stack alone.
    nodes = [] if begun else [value.grad_fn for value in tensors]
    seen = set[Any](nodes)
    for node in nodes:
        for kind in (each.dtype for each in getattr(node, "_input_metadata", ())):
            _check_type(kind, node.name())
        if len(nodes) < _LOOKED_AT:
            following = [each for each, _ in getattr(node, "next_functions", ()) if each not in seen]
            seen.update(following)
            nodes.extend(following)


def _check_value(value: Any, where: str) -> None:
    _check_type(value.dtype, where)
    if torch.is_autocast_enabled(value.device.type):
        raise ParameterError(
            f"torch.autocast: must be off in {where}; {_ROUNDED}: keep weights and inputs in float32, and run forward and backward pass without it"
        )


def _check_type(kind: Any, where: str) -> None:
    if kind.is_floating_point and kind.itemsize < 4:
        raise ParameterError(
            f"output.dtype = {kind} of {where}: must be torch.float32 or torch.float64; {_ROUNDED}: keep weights, inputs and frozen layers above "
            "trained ones in float32, and run the forward pass without torch.autocast"
        )


def _tensors(value: Any, depth: int = 8) -> Iterator[Any]:
    """Tensors that have a gradient, in what a model takes or returns; not weights of ``grad_sample_mode="ew"``, which answer nothing."""
    if type(value).__name__ == "ExpandedWeight":
        return
    if getattr(value, "requires_grad", False):
        yield value
    elif depth and isinstance(value, (Mapping, list, tuple)):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(each, depth - 1)


class Buffers:
    """Warns, once for each, where buffers of ``module`` change while it trains: what they keep of the records has no noise.

    Changes through ``data`` leave no trace.
    """

    def __init__(self, module: Any) -> None:
        self._module, self._named = module, set[str]()
        self.look()

    def look(self) -> None:
        """Take the buffers as they are: what comes before a pass is a checkpoint's."""
        named = self._module.named_buffers() if hasattr(self._module, "named_buffers") else ()
        self._seen = {name: (kept, 0 if kept.is_inference() else kept._version) for name, kept in named}

    def see(self) -> None:
        """Compare the buffers with those of the last look."""
        before = self._seen
        self.look()
        for name, (kept, version) in self._seen.items():
            last = before.get(name)
            if name not in self._named and last is not None and (last[0] is not kept or last[1] != version):
                self._named.add(name)
                warnings.warn(
                    f"module.{name} has changed since the last step: where that is by what it saw of the records, it has no noise, and epsilon "
                    "is not of what it says",
                    stacklevel=2,
                )
