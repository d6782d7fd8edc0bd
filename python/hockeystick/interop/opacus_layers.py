"""What Opacus takes for granted of a model: that its layers neither mix records nor keep them, and that their gradients are whole."""

from __future__ import annotations

import warnings
from typing import Any

from .._base.lazy import needing
from .._base.validation import ParameterError
from .opacus_steps import check_types

with needing("hockeystick.interop.opacus needs Opacus 1.6 or later", extra="opacus"):
    import torch


def _is(layer: Any, *names: str) -> bool:
    return any(kind.__name__ in names for kind in type(layer).__mro__)


def _kind(layer: Any) -> Any:
    """The class of ``layer``, or the one that FSDP2 has derived its own from."""
    return next(kind for kind in type(layer).__mro__ if not kind.__name__.startswith("FSDP"))


def check_layers(module: Any) -> None:
    """Raise ParameterError where the forward pass of a layer mixes records, or keeps what it saw of them: none of it has noise.

    Opacus looks at layers that are trained. Frozen ones do the same.
    """
    for name, layer in module.named_modules() if hasattr(module, "named_modules") else ():
        problem = ""
        if _is(layer, "_BatchNorm") and (layer.training or getattr(layer, "running_mean", None) is None):
            problem = (
                "normalises by the batch, so that one record moves the gradients of all others, and keeps statistics of the data without "
                "noise: replace it (nn.GroupNorm), or call eval() on it, after each train()"
            )
        elif _is(layer, "_InstanceNorm") and layer.training and getattr(layer, "track_running_stats", False):
            problem = "keeps statistics of the data without noise: make it with track_running_stats=False"
        elif _is(layer, "Embedding", "EmbeddingBag") and getattr(layer, "max_norm", None) is not None:
            problem = "changes the weights of what it sees without noise: make it with max_norm=None"
        if problem:
            raise ParameterError(f"module.{name} = {layer!r}: {problem}")


def check_ghost(module: Any, grad_sample_mode: str) -> None:
    """Raise ParameterError where ghost clipping finds other norms than those of the gradients that are summed.

    Convolutions are taken to be padded with zeros, embeddings not to divide by how often a word occurs in the batch; and layers that
    Opacus does not know are differentiated anew, as they were when they were wrapped and without keyword arguments.
    """
    if "ghost" not in grad_sample_mode or not hasattr(module, "named_modules"):
        return
    for name, layer in module.named_modules():
        if not any(each.requires_grad for each in layer.parameters(recurse=False)):
            continue
        problem = ""
        if _is(layer, "_ConvNd") and getattr(layer, "padding_mode", "zeros") != "zeros":
            problem = f".padding_mode = {layer.padding_mode!r}: must be 'zeros', which norms are computed for"
        elif getattr(layer, "scale_grad_by_freq", False):
            problem = ".scale_grad_by_freq = True: must be False, which norms are computed for"
        elif (own := _kind(layer)).__module__.split(".")[0] not in ("torch", "opacus"):
            problem = (
                f" is a {own.__name__}, whose norms are computed as it is now, and without keyword arguments"
            )
        if problem:
            raise ParameterError(
                f"module.{name}{problem}, with grad_sample_mode = {grad_sample_mode!r}, so that a record may move the sum by more than "
                "max_grad_norm; use grad_sample_mode='hooks'"
            )


def check_losses(criterion: Any) -> None:
    """Let ``criterion`` of ghost clipping raise ParameterError unless it has one loss for each record, (B,).

    Opacus multiplies the losses by the factors of clipping, (B,): of losses (B, 1) each would be multiplied by all of these.
    """
    kind = type(criterion)

    def call(its: Any, *args: Any, **options: Any) -> Any:
        made = kind.__call__(its, *args, **options)
        shape = tuple(made.loss_per_sample.shape)
        if len(shape) != 1:
            raise ParameterError(
                f"criterion: losses of shape {shape}, must be (batch size,), one for each record, as each is multiplied by the factor that its "
                "record is clipped by: take the mean over the other dimensions, or squeeze predictions and targets"
            )
        return made

    criterion.__class__ = type(kind.__name__, (kind,), {"__call__": call, "__module__": kind.__module__})


def watch_layers(module: Any) -> None:
    """Let each forward pass in training mode raise ParameterError where gradients would be of 16 bits, or rows of other records.

    A gradient of 16 bits is multiplied by the batch's size in Opacus, and rounded: one record more or less changes the rounding of
    all others'. A packed sequence holds the longest records first, and the gradients of a recurrent layer are in that order, while
    those of other layers are in the batch's: the parts of a row are of different records then.
    """
    for layer in module.modules() if hasattr(module, "modules") else ():
        if any(each.requires_grad for each in layer.parameters(recurse=False)) or _is(layer, "DPRNNBase"):
            layer.register_forward_pre_hook(_before_layer)
            layer.register_forward_hook(_after_layer)


def _before_layer(layer: Any, inputs: Any) -> None:
    if not layer.training or not torch.is_grad_enabled():
        return
    check_types(layer.parameters(recurse=False))  # sharded ones have their own type within a pass
    order = getattr(inputs[0], "sorted_indices", None) if inputs else None
    if order is not None and not torch.equal(order, torch.arange(len(order), device=order.device)):
        raise ParameterError(
            "input: a packed sequence of records in another order than the batch has, by which gradients of other layers belong to other "
            "records: let the collate_fn sort records by length, longest first, and pack_padded_sequence(..., enforce_sorted=True)"
        )


def _after_layer(layer: Any, inputs: Any, output: Any) -> None:
    kind = getattr(output, "dtype", None)
    if layer.training and torch.is_grad_enabled() and getattr(kind, "itemsize", 4) < 4:
        raise ParameterError(
            f"output.dtype = {kind} of {type(layer).__name__}: must be torch.float32 or torch.float64; gradients of 16 bits let a record move "
            "the sum by several times max_grad_norm: keep weights and inputs in float32, and run the forward pass without torch.autocast"
        )


class Buffers:
    """Warns, once, where buffers of ``module`` change while it trains: what they keep of the records has no noise."""

    def __init__(self, module: Any) -> None:
        self._module, self._warned = module, not hasattr(module, "named_buffers")
        self._seen = self._now()

    def _now(self) -> dict[str, tuple[Any, int]]:
        if self._warned:
            return {}
        return {
            name: (kept, 0 if kept.is_inference() else kept._version)
            for name, kept in self._module.named_buffers()
        }

    def see(self) -> None:
        """Compare the buffers with those of the last look."""
        before, self._seen = self._seen, self._now()
        for name, (kept, version) in self._seen.items():
            last = before.get(name)
            if last is not None and (last[0] is not kept or last[1] != version):
                self._warned = True
                warnings.warn(
                    f"module.{name} has changed since the last step: where that is by what it saw of the records, it has no noise, and epsilon "
                    "is not of what it says",
                    stacklevel=2,
                )
                return
