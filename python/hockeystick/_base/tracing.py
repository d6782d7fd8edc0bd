"""Code that JAX, TensorFlow or PyTorch is tracing or mapping runs once, for all executions or all rows: nothing that has state belongs there.

The libraries are asked only where they have been imported; one that is still being imported traces nothing yet.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .validation import ParameterError

_AT_ONCE = frozenset({"EvalTrace", "JVPTrace", "LinearizeTrace", "JaxprTrace"})
"""*Format*: JAX's interpreters, by name, that execute what they see: those of ``grad`` and its like."""


def refuse_tracing(what: str) -> None:
    """Raise ParameterError if ``what`` is called inside a function that is being traced (``jax.jit``, ``scan``, ``tf.function``, which Keras's
    ``train_step`` is, ``torch.jit.trace``, ``torch.fx``, ``torch.export`` and the like) or mapped (``vmap``).

    One row of noise, one batch or one record of a step would be part of the compiled function, used at each of its executions, or be used for all
    rows. What ``grad`` or ``torch.compile`` run, which leaves such calls as they are, and callbacks, run when they are executed, and are let pass.
    """
    for module, (name, runs_once) in _LIBRARIES.items():
        if module in sys.modules and runs_once(sys.modules[module]):
            raise ParameterError(
                f"{what}: must not be called inside a function that {name} is tracing or mapping, which runs once however often the compiled "
                "function is executed, or for all rows: the same noise or batch each time, one step recorded for all. Call it outside, "
                "and pass in what it returned"
            )


def _in_jax(jax: Any) -> bool:
    inside = sys.modules.get("jax._src.core")
    # *speed*: not public, and so only asked for a quick answer, where there is one.
    clean = getattr(inside, "trace_state_clean", None)
    if clean is not None and clean():
        return False
    # Not public either, but vmap, and what is computed at compile time, are seen nowhere else.
    trace = getattr(getattr(inside, "trace_ctx", None), "trace", None)
    while trace is not None:
        if type(trace).__name__ not in _AT_ONCE:
            return True
        trace = getattr(trace, "parent_trace", None)
    try:
        # A new array is a tracer where, and only where, what is being run is traced.
        return isinstance(jax.numpy.zeros(()), jax.core.Tracer)
    except AttributeError:
        return False


def _in_tensorflow(tensorflow: Any) -> bool:
    inside = getattr(tensorflow, "inside_function", None)
    return inside is not None and bool(inside())


def _in_torch(torch: Any) -> bool:
    for asked in (_in_jit, _in_fx, _in_vmap, _in_proxies):
        try:
            if asked(torch):
                return True
        except AttributeError:
            continue  # another version has another name for this; the rest is asked all the same
    return False


def _in_jit(torch: Any) -> bool:
    return bool(torch.jit.is_tracing())


def _in_fx(torch: Any) -> bool:
    inside = torch.fx._symbolic_trace
    # A function, and before PyTorch 2.14 a flag.
    asked = getattr(inside, "is_fx_symbolic_tracing", None)
    return bool(inside._is_fx_tracing_flag if asked is None else asked())


def _in_vmap(torch: Any) -> bool:
    levels = torch._C._functorch.get_interpreter_stack() or ()
    return any(level.key() == torch._C._functorch.TransformType.Vmap for level in levels)


def _in_proxies(_: Any) -> bool:
    # make_fx, and what torch.export traces; loaded with whatever uses it.
    proxies = sys.modules.get("torch.fx.experimental.proxy_tensor")
    return proxies is not None and proxies.get_proxy_mode() is not None


_LIBRARIES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "jax": ("JAX", _in_jax),
    "tensorflow": ("TensorFlow", _in_tensorflow),
    "torch": ("PyTorch", _in_torch),
}
