"""What Opacus's optimizers hold at a step: whether the sum is one that a record moves by max_grad_norm at most."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

from .._base.lazy import needing
from .._base.validation import ParameterError

with needing("hockeystick.interop.opacus needs Opacus 1.6 or later", extra="opacus"):
    import torch

ADVICE = "train on the loader that make_private returned, with poisson_sampling=True"
ADAPTIVE = (
    "clipping = 'adaptive': must be 'flat' or 'per_layer'; the clipping bound follows the fraction of unclipped gradients, which "
    "is divided by the true size of the batch and so has no guarantee that could be accounted for"
)

_CHANCE = 1e-12  # *speed*: of stopping a loop that is right, for each of its steps and sizes of a window; any value is sound
_WINDOW = 1000  # *speed*: batches that are looked back on
_SLACK = 1e-3
"""*Limit*: how much of max_grad_norm, for each record of the batch, a sum may exceed its largest norm by: rounding of single precision."""


def plain(value: Any) -> Any:
    """A Python number from a tensor of one element."""
    return value.item() if hasattr(value, "item") else value


def check_types(parameters: Any) -> None:
    """Raise ParameterError where parameters, the gradients of records or their norms have 16 bits, or fewer.

    Norms of 8 or 11 digits are up to 0.7 % too small, and so is the factor that should bring a gradient down to max_grad_norm.
    """
    for index, parameter in enumerate(parameters):
        kept = getattr(parameter, "grad_sample", None)
        held = {
            "": [parameter],
            ".grad_sample": kept if isinstance(kept, list) else [kept],
            "._norm_sample": [getattr(parameter, "_norm_sample", None)],
        }
        for name, tensors in held.items():
            for tensor in tensors:
                kind = getattr(tensor, "dtype", None)
                if getattr(kind, "itemsize", 4) < 4:
                    raise ParameterError(
                        f"parameters[{index}]{name}.dtype = {kind}: must be torch.float32 or torch.float64; norms that are rounded to "
                        "16 bits let a record move the sum by more than max_grad_norm: keep weights and inputs in float32, and run "
                        "the forward pass without torch.autocast"
                    )


def _is(layer: Any, *names: str) -> bool:
    return any(kind.__name__ in names for kind in type(layer).__mro__)


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


def check_padding(module: Any, grad_sample_mode: str) -> None:
    """Raise ParameterError where ghost clipping computes the norms of convolutions as if they were padded with zeros, and they are not."""
    for name, layer in module.named_modules() if "ghost" in grad_sample_mode else ():
        trained = any(each.requires_grad for each in layer.parameters(recurse=False))
        if trained and _is(layer, "_ConvNd") and getattr(layer, "padding_mode", "zeros") != "zeros":
            raise ParameterError(
                f"module.{name}.padding_mode = {layer.padding_mode!r}: must be 'zeros' with grad_sample_mode = {grad_sample_mode!r}, whose "
                "norms are those of gradients for zeros, and may be half of the true ones; use grad_sample_mode='hooks'"
            )


def check_seen(optimizer: Any, name: str) -> None:
    """Raise ParameterError where ghost clipping cannot have made the sums in the attribute ``name`` of the parameters.

    A sum's norm is at most the sum of the clipped norms of its records. It exceeds that where gradients came in that the hooks of
    Opacus did not see, and nothing clipped: from a weight that is used outside its module, or a second backward pass. This
    finds gross cases only. With ``grad_sample_mode="ghost_fsdp"``, where each replica has parts of sums over all, nothing is checked.
    """
    parameters = list(getattr(optimizer, "params", ()))
    if not parameters or not hasattr(optimizer, "accumulate") or hasattr(optimizer, "grad_state"):
        return
    norms = [getattr(parameter, "_norm_sample", None) for parameter in parameters]
    known = [norm for norm in norms if norm is not None]
    if not known or len({len(norm) for norm in known}) > 1:
        raise ParameterError(
            "parameters: no norms of one batch's gradients are kept; call backward on what the criterion of make_private returned"
        )
    limit, device = plain(optimizer.max_grad_norm), known[0].device
    total = torch.stack([norm.to(device) for norm in known]).norm(2, dim=0)
    factors = (limit / (total + 1e-6)).clamp(max=1.0)
    excess = []
    for parameter, norm in zip(parameters, norms, strict=True):
        gradient = getattr(parameter, name)
        found = torch.zeros((), device=device) if gradient is None else gradient.detach().norm().to(device)
        excess.append(found if norm is None else found - (factors * norm.to(device)).sum())
    most = _SLACK * limit * len(total)
    worst = int(torch.stack(excess).argmax())
    if not float(excess[worst]) <= most:  # nor where it is no number
        raise ParameterError(
            f"parameters[{worst}].{name}: its norm is {float(excess[worst]):.6g} above what the clipped gradients of {len(total)} "
            f"records can add up to, must be at most {most:.6g}: gradients came in that ghost clipping does not see, from a weight "
            "used outside its module or a second backward pass; use grad_sample_mode='hooks', and one backward pass a batch"
        )


class ClippingNorm:
    """Stops a loop whose noise is not in proportion to the norm that its gradients are clipped to."""

    def __init__(self) -> None:
        self._first = 0.0

    def see(self, optimizer: Any) -> None:
        """Raise ParameterError if the noise of this step is not noise_multiplier times the norm of clipping."""
        # Both kinds of adaptive clipping add less noise than their noise_multiplier says.
        if hasattr(optimizer, "unclipped_num_std") or hasattr(optimizer, "_adjusted_noise_multiplier"):
            raise ParameterError(ADAPTIVE)
        norm = plain(getattr(optimizer, "max_grad_norm", 0.0))
        if hasattr(optimizer, "max_grad_norms"):
            self._first = clipped_to(optimizer)
        elif hasattr(optimizer, "accumulate"):
            self._first = self._first or norm  # ghost clipping: the model clips, to what it was told at first
        check_norm(norm, self._first)


def clipped_to(optimizer: Any) -> float:
    """The norm that the optimizer clips gradients to: with clipping by layer, that of the norms of the layers."""
    if hasattr(optimizer, "max_grad_norms"):
        return math.hypot(*map(plain, optimizer.max_grad_norms))
    return float(plain(optimizer.max_grad_norm))


def check_norm(max_grad_norm: float, clipped: float) -> None:
    """Raise ParameterError where noise is in proportion to ``max_grad_norm`` and gradients are clipped to a larger norm."""
    # Opacus rounds the norm of a list to float32.
    if max_grad_norm < clipped * (1.0 - 1e-6):
        raise ParameterError(
            f"optimizer.max_grad_norm = {max_grad_norm!r}: must be at least {clipped!r}; gradients of this batch were clipped to that: "
            "with ghost clipping, or by layer, a schedule of max_grad_norm moves the noise alone, and no schedule may come between parts of one batch"
        )


class EqualSizes:
    """Stops a loop most of whose batches have one size, as those of a shuffled loader have.

    No size of a Poisson sample has a probability above p = 1 / sqrt(2 e v), v = B (1 - q) being the variance (Herzog 1947), so that m
    of n batches are equal with at most (n choose m) p^(m - 1). Batches that were split in memory are let pass, as their size is not
    seen here.
    """

    def __init__(self, sample_rate: float) -> None:
        self._rate, self._split, self._sizes = sample_rate, False, deque[int](maxlen=_WINDOW)

    def see(self, optimizer: Any) -> None:
        """Raise ParameterError if the batch of this step is one of more equal ones than Poisson samples have."""
        size = batch_size(optimizer)
        self._split = self._split or getattr(optimizer, "_is_last_step_skipped", False)
        if size is None or self._split:
            return
        self._sizes.append(size)
        variance = getattr(optimizer, "expected_batch_size", 0) * (1.0 - self._rate)
        likely = 1.0 / math.sqrt(2.0 * math.e * variance) if variance > 0.0 else 1.0
        equal = 0
        for last, other in enumerate(reversed(self._sizes), 1):
            if other != size:
                continue
            equal += 1
            ways = math.lgamma(last + 1) - math.lgamma(equal + 1) - math.lgamma(last - equal + 1)
            if likely < 1.0 and ways + (equal - 1) * math.log(likely) < math.log(_CHANCE):
                raise ParameterError(
                    f"batch size = {size}: {equal} of the last {last} batches had it; Poisson samples do that with a "
                    f"probability below {_CHANCE:g}, so epsilon would not hold: {ADVICE}"
                )


def row_counts(optimizer: Any) -> list[int]:
    """Of each parameter that keeps gradients of rows, or their norms, how many."""
    counts = []
    for parameter in getattr(optimizer, "params", ()):
        for kept in (getattr(parameter, "grad_sample", None), getattr(parameter, "_norm_sample", None)):
            if kept is not None:
                counts.append(sum(map(len, kept)) if isinstance(kept, list) else len(kept))
                break
    return counts


def batch_size(optimizer: Any) -> int | None:
    """Of the gradients that the optimizer holds, or of their norms; None where it keeps neither for each record."""
    return next(iter(row_counts(optimizer)), None)
