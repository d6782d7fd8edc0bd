"""Code that JAX is tracing runs once, for all the executions of what it traced: nothing that has state belongs there."""

from __future__ import annotations

import sys

from .validation import ParameterError


def refuse_tracing(what: str) -> None:
    """Raise ParameterError if ``what`` is called inside a function that JAX is tracing (``jax.jit``, ``scan`` and the like).

    One row of noise, one batch or one record of a step would be part of the compiled function, used at each of its executions. What
    ``jax.grad`` or ``vmap`` run without compiling, and callbacks, run when they are executed, and are let pass.
    """
    jax = sys.modules.get("jax")
    if jax is None:
        return
    # *speed*: not public, and so only asked for a quick answer, where there is one.
    clean = getattr(sys.modules.get("jax._src.core"), "trace_state_clean", None)
    if clean is not None and clean():
        return
    try:
        # A new array is a tracer where, and only where, what is being run is traced.
        traced = isinstance(jax.numpy.zeros(()), jax.core.Tracer)
    except AttributeError:
        return  # it is still being imported
    if traced:
        raise ParameterError(
            f"{what}: must not be called inside a function that JAX is tracing, which runs once however often the compiled function "
            "is executed: the same noise or batch each time, one step recorded for all. Call it outside, and pass in what it returned"
        )
