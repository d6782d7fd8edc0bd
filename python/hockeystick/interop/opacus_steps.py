"""What Opacus's optimizers hold at a step: whether the sum is one that a record moves by max_grad_norm at most (docs/interop/interop.md, section 2)."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

from .._base.lazy import needing
from .._base.validation import ParameterError, plain

with needing("hockeystick.interop.opacus needs Opacus 1.6 or later", extra="opacus"):
    import torch

ADVICE = "train on the loader that make_private returned, with poisson_sampling=True"
ADAPTIVE = (
    "clipping = 'adaptive': must be 'flat' or 'per_layer'; the clipping bound follows the fraction of unclipped gradients, which "
    "is divided by the true size of the batch and so has no guarantee that could be accounted for"
)

_CHANCE = 1e-12  # *speed*: of stopping a loop that is right, for each of its steps and sizes of a window; any value is sound
_WINDOW = 1000  # *speed*: batches that are looked back on
_LONGEST, _BLOCK = 2**16, 2**14
"""*Limit*: rows up to this are added up at once, and longer ones in blocks of that: norms are too small by 6e-5 at most."""
_LONGEST_ALONE = 2**22  # *limit*: of these it is 0.4 %, half of what 16 bits do
_SLACK = 1e-3
"""*Limit*: how much of max_grad_norm, for each record of the batch, a sum may exceed its largest norm by: rounding of single precision."""


def norms_in_blocks(optimizer: Any) -> None:
    """Let ``optimizer`` add up the squares of long rows of gradients in blocks, so that their norms are not too small.

    On a CPU, torch adds up those of a row in some 32 sums of single precision, of which each addition may round the same way: of n
    numbers alike the norm is up to n / 2^30 too small (9 % for a layer of 10^4 times 10^4), and the factor that should bring
    the row down to max_grad_norm too large. Parameters of rows that are clipped one by one (by layer) may have 2^22 numbers at most: ParameterError.
    """
    if hasattr(optimizer, "max_grad_norms"):
        single = (each for each in getattr(optimizer, "params", ()) if each.dtype != torch.float64)
        largest = max((parameter.numel() for parameter in single), default=0)
        if largest > _LONGEST_ALONE:
            raise ParameterError(
                f"parameters: one has {largest} numbers, must be at most 2^22 with clipping = 'per_layer', as its norm in single precision may be "
                "0.4 % too small; use clipping = 'flat'"
            )
    kind = type(optimizer)
    given = getattr(kind, "grad_samples", None)
    if hasattr(optimizer, "accumulate") or not isinstance(given, property) or given.fget is None:
        return  # ghost clipping has norms alone
    rows_of = given.fget

    def grad_samples(its: Any) -> list[Any]:
        return [block for rows in rows_of(its) for block in _blocks(rows)]

    give_members(optimizer, grad_samples=property(grad_samples))


def give_members(instance: Any, **members: Any) -> None:
    """Let ``instance`` alone have these ``members``, by a class of its own with the name of the one it has."""
    kind = type(instance)
    instance.__class__ = type(kind.__name__, (kind,), {"__module__": kind.__module__, **members})


def _blocks(rows: Any) -> list[Any]:
    if math.prod(rows.shape[1:]) <= _LONGEST:
        return [rows]
    return list(rows.flatten(1).split(_BLOCK, dim=1))


def check_types(parameters: Any) -> None:
    """Raise ParameterError where parameters, the gradients of records or their norms have 16 bits, or fewer, or are complex.

    Norms of 8 or 11 digits are up to 0.7 % too small, and so is the factor that should bring a gradient down to max_grad_norm. The
    noise of a complex number is that of one coordinate, shared by two.
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
                if getattr(kind, "is_complex", False):
                    raise ParameterError(
                        f"parameters[{index}]{name}.dtype = {kind}: must be torch.float32 or torch.float64; real and imaginary part would "
                        "have 1 / sqrt(2) of the noise that is accounted for: keep them as two real parameters (torch.view_as_complex)"
                    )
                if getattr(kind, "itemsize", 4) < 4:
                    raise ParameterError(
                        f"parameters[{index}]{name}.dtype = {kind}: must be torch.float32 or torch.float64; norms that are rounded to "
                        "16 bits let a record move the sum by more than max_grad_norm: keep weights and inputs in float32, and run "
                        "the forward pass without torch.autocast"
                    )


def check_frozen(optimizer: Any) -> None:
    """Raise ParameterError where a parameter has been frozen since its gradient was computed: Opacus leaves that as it is, and the step applies it."""
    for parameter in of_all_groups(optimizer):
        gradient = None if parameter.requires_grad else parameter.grad
        # Of a sharded one this replica's part.
        if gradient is not None and float(getattr(gradient, "_local_tensor", gradient).norm()) != 0.0:
            raise ParameterError(
                "parameters: one of shape "
                f"{tuple(parameter.shape)} has a gradient and requires_grad = False, must be True until after optimizer.step, which would apply it as it is, "
                "neither clipped nor with noise: freeze layers before the forward pass, after zero_grad"
            )


def of_all_groups(optimizer: Any) -> list[Any]:
    """The parameters of ``optimizer``, frozen ones, too."""
    return [each for group in getattr(optimizer, "param_groups", ()) for each in group["params"]]


def watch_sum(optimizer: Any) -> None:
    """Let the ``optimizer`` of ghost clipping know whether its gradients are the clipped sum, and let its zero_grad clear them whatever it wraps.

    Between the norms and the sum Opacus clears the gradients of the first backward pass, which are not clipped, with the zero_grad of the
    optimizer that was passed in: one that leaves them (Accelerate's, while it accumulates) would let them be added to the sum.
    """
    cleared = optimizer.zero_grad

    def zero_grad(set_to_none: bool = False) -> None:
        cleared(set_to_none)
        optimizer.sums = None
        with torch.no_grad():
            for parameter in of_all_groups(optimizer):
                if parameter.grad is not None:
                    parameter.grad.zero_()

    optimizer.sums, optimizer.zero_grad = None, zero_grad


def states_of(optimizer: Any) -> list[tuple[Any, int]]:
    """The gradients, and how often each has been changed in place."""
    gradients = [parameter.grad for parameter in of_all_groups(optimizer)]
    return [(gradient, 0 if gradient is None else gradient._version) for gradient in gradients]


def check_summed(optimizer: Any) -> None:
    """Raise ParameterError where the gradients of this step are not those that ghost clipping has made: it has made none, or they were changed since."""
    if getattr(optimizer, "is_unfinished", False):
        raise ParameterError(
            "optimizer.step: the last backward pass was interrupted, and gradients are not those that were clipped: begin this batch again with its "
            "forward pass"
        )
    if not hasattr(optimizer, "sums") or getattr(optimizer, "params", None) == []:
        return
    if optimizer.sums is None:
        raise ParameterError(
            "optimizer.step: no loss that the criterion of make_private returned was differentiated since zero_grad, so that gradients are not the "
            "clipped sum: with ghost clipping call zero_grad, and then backward on what that criterion returns, for each batch"
        )
    for (made, version), (now, changes) in zip(optimizer.sums, states_of(optimizer), strict=False):
        if now is not None and (now is not made or changes != version):
            raise ParameterError(
                f"parameters: the gradient of one of shape {tuple(now.shape)} was changed after the backward pass, must be the clipped sum that this has made; "
                "what another backward pass adds is not clipped, and a sum that is multiplied moves by more than max_grad_norm: one backward pass a "
                "batch, of all losses added up, and no scaling or clipping of the sum"
            )


def forget_norms(optimizer: Any) -> None:
    """After a step: a later backward pass whose hooks were disabled would clip by its norms, and no other step has its sum."""
    for parameter in getattr(optimizer, "params", ()):
        if hasattr(parameter, "_norm_sample"):
            del parameter._norm_sample
    if hasattr(optimizer, "sums"):
        optimizer.sums = None


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
    sums = [_size_of(getattr(parameter, name), device) for parameter in parameters]
    excess = []
    for index, (found, norm) in enumerate(zip(sums, norms, strict=True)):
        _check_clipped(f"parameters[{index}].{name}", found, norm)
        excess.append(found if norm is None else found - (factors * norm.to(device)).sum())
    most = _SLACK * limit * len(total)
    worst = int(torch.stack(excess).argmax())
    if not float(excess[worst]) <= most:  # nor where it is no number
        raise ParameterError(
            f"parameters[{worst}].{name}: its norm is {float(excess[worst]):.6g} above what the clipped gradients of {len(total)} "
            f"records can add up to, must be at most {most:.6g}: gradients came in that ghost clipping does not see, from a weight "
            "used outside its module or a second backward pass; use grad_sample_mode='hooks', and one backward pass a batch"
        )


def _size_of(gradient: Any, device: Any) -> Any:
    return torch.zeros((), device=device) if gradient is None else gradient.detach().norm().to(device)


def _check_clipped(name: str, found: Any, norm: Any) -> None:
    if norm is None and float(found) != 0.0:
        raise ParameterError(
            f"{name}: it has a gradient and no norms, so that nothing was clipped: it was frozen in make_private (call it again after "
            "unfreezing), or is used outside its module"
        )


class ClippingNorm:
    """Stops a loop whose noise is not in proportion to the norm that its gradients are clipped to."""

    def __init__(self) -> None:
        self._first: float | None = None

    def see(self, optimizer: Any) -> None:
        """Raise ParameterError if the noise of this step is not noise_multiplier times the norm of clipping."""
        # Both kinds of adaptive clipping add less noise than their noise_multiplier says.
        if hasattr(optimizer, "unclipped_num_std") or hasattr(optimizer, "_adjusted_noise_multiplier"):
            raise ParameterError(ADAPTIVE)
        norm = plain(getattr(optimizer, "max_grad_norm", 0.0))
        first = norm
        if hasattr(optimizer, "max_grad_norms"):
            first = clipped_to(optimizer)
        elif hasattr(optimizer, "accumulate"):
            # Ghost clipping: the model clips, to what it was told at first.
            first = self._first = norm if self._first is None else self._first
            if not 0.0 < norm <= first * (1.0 + 1e-6):
                raise ParameterError(
                    f"optimizer.max_grad_norm = {norm!r}: must be above 0 and stay {first!r}; with ghost clipping the model clips to what make_private was "
                    "told, and a schedule of max_grad_norm moves the noise alone: steps before this one had too little, if that was more than "
                    "they began with"
                )
        check_norm(norm, first)


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


def row_counts(optimizer: Any, module: Any = None) -> list[int]:
    """Of each parameter that keeps gradients of rows, or their norms, how many; with ``ghost_fsdp`` the layers of ``module`` keep them."""
    layers = module.modules() if hasattr(module, "modules") else ()
    counts = [len(norms) for layer in layers for norms in getattr(layer, "norm_sample", ())]
    for parameter in getattr(optimizer, "params", ()):
        for kept in (getattr(parameter, "grad_sample", None), getattr(parameter, "_norm_sample", None)):
            if kept is not None:
                counts.append(sum(map(len, kept)) if isinstance(kept, list) else len(kept))
                break
    return counts


def batch_size(optimizer: Any) -> int | None:
    """Of the gradients that the optimizer holds, or of their norms; None where it keeps neither for each record."""
    return next(iter(row_counts(optimizer)), None)
