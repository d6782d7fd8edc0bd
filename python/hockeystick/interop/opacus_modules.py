"""What kind of module a layer of an Opacus model is, and whether it is trained (docs/interop/interop.md, section 2)."""

from __future__ import annotations

from typing import Any

from .._base.lazy import needing

with needing("hockeystick.interop.opacus needs Opacus 1.6 or later", extra="opacus"):
    import torch


def kind_of(layer: Any) -> Any:
    """The class of ``layer``, or the one that FSDP2 has derived its own from."""
    return next(kind for kind in type(layer).__mro__ if not kind.__name__.startswith("FSDP"))


def has_trained(layer: Any) -> bool:
    """Whether some weight of its own is trained."""
    return any(each.requires_grad for each in layer.parameters(recurse=False))


def trains_anywhere(module: Any) -> bool:
    """Whether a forward pass now is one of training for some layer."""
    layers = module.modules() if hasattr(module, "modules") else ()
    return bool(
        torch.is_grad_enabled()
        and (getattr(module, "training", True) or any(each.training for each in layers))
    )


def trains(layer: Any) -> bool:
    """Whether a forward pass now is one of training."""
    return bool(layer.training and torch.is_grad_enabled())
