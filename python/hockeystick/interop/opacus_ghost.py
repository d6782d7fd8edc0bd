"""Ghost clipping: norms are not those of the gradients that are summed, but found otherwise; where the two differ (docs/interop/interop.md, section 2)."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from .._base.lazy import needing
from .._base.validation import ParameterError, is_a

with needing("hockeystick.interop.opacus needs Opacus 1.6 or later", extra="opacus"):
    import torch
    from opacus.grad_sample import GradSampleHooksFastGradientClipping as GhostHooks

_KNOWN = {"torch", "opacus", "transformers", "hockeystick"}
"""Packages whose layers stay as they were made, and whose hooks leave what a layer returns as it is."""
_ADVICE = ", with ghost clipping, so that a record may move the sum by more than max_grad_norm; use grad_sample_mode='hooks'"


def kind_of(layer: Any) -> Any:
    """The class of ``layer``, or the one that FSDP2 has derived its own from."""
    return next(kind for kind in type(layer).__mro__ if not kind.__name__.startswith("FSDP"))


def has_trained(layer: Any) -> bool:
    """Whether some weight of its own is trained."""
    return any(each.requires_grad for each in layer.parameters(recurse=False))


def trains(layer: Any) -> bool:
    """Whether a forward pass now is one of training."""
    return bool(layer.training and torch.is_grad_enabled())


def check_ghost(module: Any, grad_sample_mode: str) -> None:
    """Raise ParameterError where ghost clipping finds other norms than those of the gradients that are summed.

    Convolutions are taken to be padded with zeros, embeddings not to divide by how often a word occurs in the batch, bags to hold each
    word once and with weight 1; layers that Opacus does not know are differentiated anew, as they were when they were wrapped, with all
    that is in them; hooks, and a ``forward`` that an instance has of its own, act on the gradients that are summed alone; and of a weight
    of several layers the first one's norm is taken for all.
    """
    if "ghost" not in grad_sample_mode or not hasattr(module, "named_modules"):
        return
    owners: dict[int, Any] = {}
    known = GhostHooks.NORM_SAMPLERS.keys()
    for name, layer in module.named_modules():
        problem = _problem(layer)
        for weight in layer.parameters(recurse=False):
            first = owners.setdefault(id(weight), layer)
            if weight.requires_grad and first is not layer and known & {kind_of(first), kind_of(layer)}:
                problem = f" has a weight of a {type(first).__name__}, too: the norm of one of them is taken for both"
        if problem:
            raise ParameterError(f"module.{name}{problem}{_ADVICE}")


def _problem(layer: Any) -> str:
    """What makes norms others than those of the gradients that are summed, if the layer is trained; or nothing."""
    if not has_trained(layer):
        return ""
    anew = _is_differentiated_anew(layer)
    parts = layer.modules() if anew and hasattr(layer, "modules") else [layer]
    return _of_settings(layer) or next(filter(None, (_of_part(part, layer, anew) for part in parts)), "")


def _of_settings(layer: Any) -> str:
    if is_a(layer, "_ConvNd") and getattr(layer, "padding_mode", "zeros") != "zeros":
        return f".padding_mode = {layer.padding_mode!r}: must be 'zeros', which norms are computed for"
    if getattr(layer, "scale_grad_by_freq", False):
        return ".scale_grad_by_freq = True: must be False, which norms are computed for"
    if is_a(layer, "EmbeddingBag"):
        return " is an EmbeddingBag: must be an Embedding, whose outputs are added up: norms are those of words that occur once"
    if any(map(_changed, layer.parameters(recurse=False))):
        return " has a parameter with hooks of its own: must have none, as norms are those of gradients before hooks"
    return ""


def _of_part(part: Any, layer: Any, anew: bool) -> str:
    own = kind_of(part)
    if {_root(own.forward), _root(own)} - _KNOWN:
        return f" {'is' if part is layer else 'has'} a {own.__name__}, whose norms are computed as it is now"
    if "forward" in vars(part):
        return ".forward was replaced: must be that of its class, which norms are computed for"
    hooks = [*getattr(part, "_forward_hooks", {}).values(), *_global_hooks()]
    if anew:
        hooks.extend(getattr(part, "_forward_pre_hooks", {}).values())
    strangers = [hook for hook in hooks if _root(hook) not in _KNOWN]
    if strangers:
        return f" has a forward hook, {strangers[0]!r}: must have none, as norms are those of what the layer itself returns"
    return ""


def _root(thing: Any) -> str:
    return str(getattr(thing, "__module__", "")).split(".")[0]


def _global_hooks() -> list[Any]:
    """Those of all modules, wherever torch keeps them."""
    kept = getattr(getattr(getattr(torch.nn, "modules", None), "module", None), "_global_forward_hooks", {})
    return list(kept.values())


def _changed(parameter: Any) -> bool:
    kinds = "_backward_hooks", "_post_accumulate_grad_hooks"
    return parameter.requires_grad and any(getattr(parameter, kind, None) for kind in kinds)


def _is_differentiated_anew(layer: Any) -> bool:
    kind = kind_of(layer)
    return kind not in GhostHooks.NORM_SAMPLERS and kind not in GhostHooks.GRAD_SAMPLERS


_signature = functools.cache(inspect.signature)
_PLAIN = (bool, int, float, str)


class Anew:
    """A hook that raises ParameterError where a layer that is differentiated anew is not used as it will be then.

    That is with its first argument alone, and with numbers and flags of its parts (training, dropout) as they were when this was made.
    """

    def __init__(self, layer: Any) -> None:
        self._states = [
            {name: value for name, value in vars(part).items() if isinstance(value, _PLAIN)}
            for part in layer.modules()
        ]

    def __call__(self, layer: Any, inputs: Any, named: Any) -> None:
        """Before each forward pass."""
        if not trains(layer):
            return
        for part, state in zip(layer.modules(), self._states, strict=True):
            changed = [name for name, value in state.items() if getattr(part, name, None) != value]
            if changed:
                raise ParameterError(
                    f"module: {changed[0]} of a {type(part).__name__}, a part of a {type(layer).__name__}, must be what it was in make_private (call "
                    f"train() before), as norms are computed with that{_ADVICE}"
                )
        signature = _signature(type(layer).forward)
        given = list(signature.bind(layer, *inputs, **named).arguments.items())[1:]
        several = (
            len(inputs) > 1 and signature.parameters[given[0][0]].kind is inspect.Parameter.VAR_POSITIONAL
        )
        for name, value in given if several else given[1:]:
            default = signature.parameters[name].default
            alike = value is default or (isinstance(value, _PLAIN) and value == default)
            if not alike and any(each is not None and each is not False for each in (value, default)):
                raise ParameterError(
                    f"{name}: must have its default in {type(layer).__name__}.forward, as norms are computed as if it had{_ADVICE}"
                )


def watch_ghost(layer: Any) -> list[Any]:
    """Let each forward pass of ``layer`` in training mode raise ParameterError where `check_ghost` would, or where it is not used as it is differentiated; the hooks."""
    if not has_trained(layer):
        return []
    added = [layer.register_forward_hook(_after_ghost)]
    if _is_differentiated_anew(layer):
        added.append(layer.register_forward_pre_hook(Anew(layer), with_kwargs=True))
    return added


def _after_ghost(layer: Any, inputs: Any, output: Any) -> None:
    """Hooks may be there in this pass alone; and of linear layers, norms are computed of outputs of two or three dimensions, and else are 0."""
    if not trains(layer):
        return
    problem = _problem(layer)
    if is_a(layer, "Linear") and output.dim() > 3:
        problem = f" has an output of {output.dim()} dimensions: must have 2 or 3, which norms are computed for: flatten those in the middle"
    if problem:
        raise ParameterError(f"module: a {type(layer).__name__}{problem}{_ADVICE}")
