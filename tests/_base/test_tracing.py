"""Objects with state inside functions that JAX, TensorFlow or PyTorch is tracing or mapping; against stand-ins, and against these where they are installed."""

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


def step_of_a_plan() -> Any:
    plan = hs.plan_training(hs.Poisson(5, 0.2), dataset_size=50, noise_multiplier=1.0, delta=1e-5)
    return plan.start(dimension=4, clipping_norm=1.0).next()


USES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "a row of noise": (noise, lambda made: next(iter(made))),
    "a batch": (batches, lambda made: made.next()),
    "the batch of a step": (step_of_a_plan, lambda made: made.indices),
    "a step in a ledger": (spent, lambda made: made.step(hs.Gaussian(1.0))),
    "a step of a filter": (
        lambda: hs.individual.GDPFilter(epsilon=1.0, delta=1e-5),
        lambda made: made.step(0.1),
    ),
}


UNSEEN = ("a step of a filter", "the batch of a step")
"""What does not change how its object prints."""


def refused(use: Callable[[Any], Any], made: Any) -> None:
    before = repr(made)
    # Functions that are traced report it in their own way, with the message.
    with pytest.raises(Exception, match=r"inside a function that .* is tracing or mapping"):
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


def used_before(
    use: str, then: Callable[[Any], Any]
) -> tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]:
    """An object with state, how it is used, and a function that uses it before it returns ``then``."""
    make, call = USES[use]
    made = make()

    def step(x: Any) -> Any:
        call(made)
        return then(x)

    return made, call, step


@pytest.mark.parametrize("use", USES)
def test_functions_that_jax_compiles(use: str) -> None:
    jax = pytest.importorskip("jax")
    made, call, step = used_before(use, lambda x: x.sum())

    for compiled in (jax.jit(step), lambda x: jax.lax.scan(lambda c, row: (c + step(row), 0), 0.0, x[None])):
        refused(lambda _, run=compiled: run(jax.numpy.zeros(3)), made)  # type: ignore[misc]
    # What is executed as often as it is called.
    jax.grad(step)(jax.numpy.zeros(3))
    step(jax.numpy.zeros(3))
    echo = jax.jit(lambda x: jax.pure_callback(lambda v: (call(made), v)[1], x, x))
    jax.block_until_ready(echo(jax.numpy.zeros(3)))
    # One row, or one step in a ledger, for all rows.
    refused(lambda _: jax.vmap(step)(jax.numpy.zeros((3, 2))), made)

    def at_once(x: Any) -> Any:
        with jax.ensure_compile_time_eval():
            return step(x)

    refused(lambda _: jax.jit(at_once)(jax.numpy.zeros(3)), made)


def interpreter(name: str, parent: Any = None) -> Any:
    made = type(name, (), {})()
    if parent is not None:
        made.parent_trace = parent
    return made


@pytest.mark.parametrize(("names", "once"), [("JVP Eval", False), ("JVP Batch Eval", True), ("Eval", False)])
def test_interpreters_of_jax_that_execute_what_they_see(
    names: str, once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace: Any = None
    for name in reversed(names.split()):
        trace = interpreter(f"{name}Trace", trace)
    inside = SimpleNamespace(trace_state_clean=lambda: False, trace_ctx=SimpleNamespace(trace=trace))
    zeros = SimpleNamespace(zeros=np.zeros)
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(numpy=zeros, core=SimpleNamespace(Tracer=Sized)))
    monkeypatch.setitem(sys.modules, "jax._src.core", inside)
    rows = noise()
    if once:
        refused(lambda made: made.next(), rows)
    else:
        rows.next()


class Sized:
    """What nothing is an instance of."""


def torch_that(fx: Any = None, **answers: Any) -> SimpleNamespace:
    """PyTorch as far as the check sees it, tracing nothing but what ``answers`` say; ``fx``: what its module has, in another version."""
    says = {"traces": False, "symbolic": False, "levels": None, **answers}
    fx = SimpleNamespace(_is_fx_tracing_flag=says["symbolic"]) if fx is None else fx
    functorch = SimpleNamespace(
        get_interpreter_stack=lambda: says["levels"], TransformType=SimpleNamespace(Vmap="vmap")
    )
    return SimpleNamespace(
        jit=SimpleNamespace(is_tracing=lambda: says["traces"]),
        fx=SimpleNamespace(_symbolic_trace=fx),
        _C=SimpleNamespace(_functorch=functorch),
    )


def level(kind: str) -> SimpleNamespace:
    return SimpleNamespace(key=lambda: kind)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(
    ("module", "once", "each_time"),
    [
        (
            "tensorflow",
            SimpleNamespace(inside_function=lambda: True),
            SimpleNamespace(inside_function=lambda: False),
        ),
        ("tensorflow", SimpleNamespace(inside_function=lambda: True), SimpleNamespace()),
        ("torch", torch_that(traces=True), torch_that()),
        ("torch", torch_that(symbolic=True), SimpleNamespace()),
        (
            "torch",
            torch_that(fx=SimpleNamespace(is_fx_symbolic_tracing=lambda: True)),
            torch_that(fx=SimpleNamespace(is_fx_symbolic_tracing=lambda: False)),
        ),
        # A version that renames one of the things that are asked for does not hide the others.
        ("torch", torch_that(fx=SimpleNamespace(), levels=[level("vmap")]), torch_that(fx=SimpleNamespace())),
        ("torch", torch_that(levels=[level("grad"), level("vmap")]), torch_that(levels=[level("grad")])),
    ],
)
def test_other_libraries_that_trace(
    module: str, once: Any, each_time: Any, use: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, call = USES[use]
    made = make()
    monkeypatch.setitem(sys.modules, "torch.fx.experimental.proxy_tensor", None)
    monkeypatch.setitem(sys.modules, module, once)
    refused(call, made)
    monkeypatch.setitem(sys.modules, module, each_time)
    call(made)


@pytest.mark.parametrize("use", USES)
def test_what_torch_makes_a_graph_of(use: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, call = USES[use]
    made, proxies = make(), SimpleNamespace(get_proxy_mode=object)
    monkeypatch.setitem(sys.modules, "torch", torch_that())
    monkeypatch.setitem(sys.modules, "torch.fx.experimental.proxy_tensor", proxies)
    refused(call, made)
    proxies.get_proxy_mode = lambda: None
    call(made)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("use", USES)
def test_functions_that_tensorflow_compiles(use: str) -> None:
    tensorflow = pytest.importorskip("tensorflow")
    made, call, step = used_before(use, lambda x: x)
    refused(lambda _: tensorflow.function(step)(tensorflow.zeros(3)), made)
    refused(lambda _: list(tensorflow.data.Dataset.range(3).map(step)), made)
    step(tensorflow.zeros(3))
    each = tensorflow.function(
        lambda x: tensorflow.numpy_function(lambda v: (call(made), v)[1], [x], tensorflow.float32)
    )
    before = repr(made)
    each(tensorflow.zeros(3))
    assert repr(made) != before or use in UNSEEN


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("use", USES)
def test_functions_that_torch_traces(use: str) -> None:
    make_fx = pytest.importorskip("torch.fx.experimental.proxy_tensor").make_fx  # stand-ins have none
    torch = pytest.importorskip("torch")
    made, _, step = used_before(use, lambda x: x + 1)
    x = torch.zeros(3)

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return step(x)

    refused(lambda _: torch.jit.trace(step, x), made)
    refused(lambda _: torch.fx.symbolic_trace(step), made)
    refused(lambda _: make_fx(step)(x), made)
    refused(lambda _: torch.export.export(Model(), (x,), strict=False), made)
    refused(lambda _: torch.func.vmap(step)(x), made)
    torch.func.grad(lambda v: step(v).sum())(x)
    compiled = torch.compile(step, backend="eager")
    for _ in range(2):
        before = repr(made)
        compiled(x)
        assert repr(made) != before or use in UNSEEN
