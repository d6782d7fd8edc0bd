"""Objects with state inside functions that JAX is tracing; against a stand-in, and against JAX where it is installed."""

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import hockeystick as hs
import numpy as np
import pytest


def noise() -> hs.CorrelatedNoise:
    return hs.CorrelatedNoise(hs.Identity(steps=5), dimension=4, noise_multiplier=1.0, clipping_norm=1.0)


def batches() -> Any:
    return hs.Poisson(5, 0.2).batches(dataset_size=50)


def spent() -> hs.Accountant:
    accountant = hs.Accountant()
    accountant.step(hs.Gaussian(1.0))
    return accountant


USES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "a row of noise": (noise, lambda made: next(iter(made))),
    "a batch": (batches, lambda made: made.next()),
    "a step in a ledger": (spent, lambda made: made.step(hs.Gaussian(1.0))),
    "a step of a filter": (
        lambda: hs.individual.GDPFilter(epsilon=1.0, delta=1e-5),
        lambda made: made.step(0.1),
    ),
}


def refused(use: Callable[[Any], Any], made: Any) -> None:
    before = repr(made)
    with pytest.raises(hs.ParameterError, match="inside a function that JAX is tracing"):
        use(made)
    assert repr(made) == before


@pytest.fixture(params=["with the quick answer", "without"])
def stand_in(request: Any, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """JAX as far as the check sees it; ``tracing`` says whether it is."""

    class Tracer:
        pass

    state = SimpleNamespace(tracing=False)
    zeros = SimpleNamespace(zeros=lambda shape: Tracer() if state.tracing else np.zeros(shape))
    jax = SimpleNamespace(numpy=zeros, core=SimpleNamespace(Tracer=Tracer))
    inside = SimpleNamespace(trace_state_clean=lambda: not state.tracing)
    monkeypatch.setitem(sys.modules, "jax", jax)
    monkeypatch.setitem(
        sys.modules, "jax._src.core", inside if request.param.startswith("with ") else SimpleNamespace()
    )
    return state


@pytest.mark.parametrize("use", USES)
def test_nothing_is_drawn_or_recorded_while_tracing(use: str, stand_in: SimpleNamespace) -> None:
    make, call = USES[use]
    made = make()
    call(made)
    stand_in.tracing = True
    refused(call, made)
    stand_in.tracing = False
    call(made)


def test_properties_may_be_read_while_tracing(stand_in: SimpleNamespace) -> None:
    rows = noise()
    stand_in.tracing = True
    assert (rows.step, rows.width) == (0, 4)


def test_steps_of_a_plan_and_what_jax_is_before_its_import_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = hs.plan_training(
        hs.Poisson(5, 0.2), dataset_size=50, noise_multiplier=1.0, delta=1e-5, epsilon=None
    )
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace())
    with plan.start(dimension=4, clipping_norm=1.0, path=None) as run:
        step = run.next()
        step.take(np.ones((50, 4)))
        step.add_noise(np.zeros(4))
        assert run.step == 1


@pytest.mark.parametrize("use", USES)
def test_functions_that_jax_compiles(use: str) -> None:
    jax = pytest.importorskip("jax")
    make, call = USES[use]
    made = make()

    def step(x: Any) -> Any:
        call(made)
        return x.sum()

    for compiled in (jax.jit(step), lambda x: jax.lax.scan(lambda c, row: (c + step(row), 0), 0.0, x[None])):
        refused(lambda _, run=compiled: run(jax.numpy.zeros(3)), made)  # type: ignore[misc]
    # What is executed as often as it is called.
    jax.grad(step)(jax.numpy.zeros(3))
    step(jax.numpy.zeros(3))
    echo = jax.jit(lambda x: jax.pure_callback(lambda v: (call(made), v)[1], x, x))
    jax.block_until_ready(echo(jax.numpy.zeros(3)))
