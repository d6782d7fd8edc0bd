"""Objects with state under threads and forks: nothing is lost, nothing is drawn twice, and a forked child is refused.

`CASES` has every class with state; two tests compare it with the source, so that a new one cannot be left out. The threads switch as
often as the interpreter lets them. What they did must be what one thread would have done, whatever the order.
"""

from __future__ import annotations

import ast
import copy
import importlib
import importlib.util
import inspect
import os
import pickle
import pkgutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import hockeystick as hs
import numpy as np
import pytest
from flwr.serverapp import GaussianPrivacyEvent, NeighboringRelation, PrivacyConfig, SamplingMethod
from hockeystick import _core
from hockeystick._base import exclusive
from hockeystick._base.exclusive import Exclusive
from hockeystick.individual.cells import cell_edges, sampled_pairs
from hockeystick.interop import flower, opacus, torch

THREADS = 4
SEED = 11

for module in pkgutil.iter_modules(hs.__path__):
    if not module.name.startswith("_"):
        importlib.import_module(f"hockeystick.{module.name}")


@pytest.fixture(autouse=True)
def frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(work: Callable[[int], Any]) -> list[Any]:
    """What ``work(thread)`` returned in each of several threads that begin at once; their first error is raised."""
    start = threading.Barrier(THREADS)
    results: list[Any] = [None] * THREADS
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            start.wait()
            results[number] = work(number)
        except BaseException as error:  # noqa: BLE001 (raised again below)
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive(), "the threads wait for each other"
    if errors:
        raise errors[0]
    return results


class Case(NamedTuple):
    """How an object is made, what each thread does with it, and what must have come of it."""

    make: Callable[[Path], Any]
    work: Callable[[Any, int], Any]
    check: Callable[[Any, list[Any]], None]
    copies: bool = True
    """Whether there are copies of it."""


# --- Accountants, filters, odometers: every step counts, and none too many is let through ----------------------

MU = 2.0**-5  # its square is exact


def repeat(call: Callable[[], Any], times: int) -> list[Any]:
    return [call() for _ in range(times)]


def counted(steps: int) -> Callable[[Any, list[Any]], None]:
    def check(thing: Any, _: list[Any]) -> None:
        assert thing.process == hs.Gaussian(1.0) * (steps * THREADS)

    return check


def attacked(risk: Any, results: list[Any]) -> None:
    """Every answer encloses that of a thread of its own: the questions are the same."""
    alone = hs.account(hs.Laplace(1.0)).risk
    for thread, found in enumerate(results):
        for i, bounds in enumerate(found):
            true = alone.tpr(10.0 ** -(1 + (thread + i) % 5))
            assert bounds.lower <= true.upper
            assert true.lower <= bounds.upper


def granted(limit: int) -> Callable[[Any, list[Any]], None]:
    """Exactly ``limit`` steps were let through, all threads together."""

    def check(thing: Any, results: list[Any]) -> None:
        assert sum(bool(np.all(fits)) for result in results for fits in result) == limit

    return check


def all_charged(steps: int) -> Callable[[Any, list[Any]], None]:
    def check(odometer: Any, _: list[Any]) -> None:
        assert odometer.steps == steps * THREADS
        assert set(odometer.spent.tolist()) == {odometer.steps * MU * MU}

    return check


def history_is_complete(steps: int) -> Callable[[Any, list[Any]], None]:
    def check(accountant: Any, _: list[Any]) -> None:
        assert accountant.steps == steps * THREADS
        for example in range(accountant.num_examples):
            ((_, count),) = list(accountant.history(example))
            assert count == accountant.steps

    return check


def individual_accountant(examples: int, **path: Any) -> hs.IndividualAccountant:
    return hs.IndividualAccountant(
        examples, noise_multiplier=1.0, sampling_probability=0.01, clipping_norm=1.0, fine=8, coarse=4, **path
    )


def approximate_filter(_: Path) -> hs.individual.ApproximateIndividualFilter:
    return hs.individual.ApproximateIndividualFilter(
        1, epsilon=1.0, delta=1e-5, noise_multiplier=2.0, sampling_probability=1.0, clipping_norm=1.0
    )


def as_one_thread(steps: int) -> Callable[[Any, list[Any]], None]:
    def check(filt: Any, results: list[Any]) -> None:
        alone = approximate_filter(Path())
        limit = sum(bool(alone.step([0.2])[0]) for _ in range(steps * THREADS))
        assert 0 < limit < steps * THREADS
        granted(limit)(filt, results)
        assert filt.active_counts().sum() == limit
        assert filt.steps == steps * THREADS

    return check


# --- Generators: every row and every batch once -----------------------------------------------------------

STRATEGY = hs.BandedToeplitz.square_root(400, 4)
SCHEME = hs.BMinSep(400, 4, 0.05)


def noise(_: Path) -> hs.CorrelatedNoise:
    return hs.CorrelatedNoise(STRATEGY, 8, 1.0, clipping_norm=1.0, seed=SEED)


def sampler(_: Path = Path()) -> hs.sampling.BatchSampler:
    return SCHEME.batches(300, SEED)


def drawn_once(make: Callable[[Path], Any], value: Callable[[Any], Any]) -> Callable[[Any, list[Any]], None]:
    def check(_: Any, results: list[Any]) -> None:
        seen = [value(each) for result in results for each in result]
        assert sorted(seen) == sorted(value(each) for each in make(Path()))

    return check


class Numbers:
    """A dataset that torch's loader understands."""

    def __len__(self) -> int:
        return 300

    def __getitem__(self, index: int) -> int:
        return index


def collate(examples: list[int]) -> list[int]:
    return examples


def loader(_: Path = Path()) -> torch.BatchLoader:
    return torch.BatchLoader(Numbers(), sampler(), collate_fn=collate, empty=[])


def each_of(thing: Any, _: int) -> list[Any]:
    return list(iter(thing))


PLAN = hs.plan_training(
    hs.CyclicPoisson(60, 3, 0.3),
    60,
    strategy=hs.BandedToeplitz.square_root(60, 3),
    delta=1e-4,
    noise_multiplier=0.8,
)


def training_run(path: Path) -> hs.training.TrainingRun:
    return PLAN.start(5, clipping_norm=1.0, seed=SEED, path=path / "run")


def train(run: hs.training.TrainingRun, _: int) -> list[tuple[int, bytes]]:
    """Take part in the run as long as there are steps; another thread's open step is waited for."""
    done = []
    while run.step < PLAN.steps:
        try:
            step = run.next()
        except hs.training.DeviationError:
            continue
        assert step.indices.dtype == np.int64
        done.append((step.number, step.add_noise(np.zeros(5)).tobytes()))
    return done


def trained(run: hs.training.TrainingRun, results: list[Any]) -> None:
    assert run.released == PLAN.steps
    run.close()
    with PLAN.start(5, clipping_norm=1.0, seed=SEED) as alone:
        assert sorted(step for result in results for step in result) == train(alone, 0)


def training_step(_: Path) -> hs.training.TrainingStep:
    step = PLAN.start(5, clipping_norm=1.0, seed=SEED).next()
    assert step.indices.size >= 0
    return step


def add_noise(step: hs.training.TrainingStep, _: int) -> int:
    try:
        step.add_noise(np.zeros(5))
    except hs.training.DeviationError:
        return 0
    return 1


def noisy_once(step: hs.training.TrainingStep, results: list[Any]) -> None:
    assert sum(results) == 1
    assert step._run.released == 1


# --- Tallies ----------------------------------------------------------------------------------------------

BLOCKS = 300


def add_blocks(tally: hs.montecarlo.Tally, thread: int) -> None:
    for block in range(thread, BLOCKS, THREADS):
        tally.add(block, 1, np.full((1, 1), block + 0.5), np.full((1, 1), 2.0 * block))


def summed(tally: hs.montecarlo.Tally, _: list[Any]) -> None:
    assert tally.ranges == [(0, BLOCKS)]
    assert tally.sum() == sum(block + 0.5 for block in range(BLOCKS))
    assert tally.sum_of_squares() == sum(2.0 * block for block in range(BLOCKS))


def add_laws(tally: hs.montecarlo.EmpiricalTally, thread: int) -> None:
    from hockeystick.montecarlo import empirical

    masses = np.zeros((1, empirical.POINTS), np.int64)
    masses[0, 0] = empirical.UNIT
    for block in range(thread, BLOCKS, THREADS):
        tally.add(block, 1, masses, 0)


def lawful(tally: hs.montecarlo.EmpiricalTally, _: list[Any]) -> None:
    from hockeystick.montecarlo import empirical

    assert tally.ranges == [(0, BLOCKS)]
    assert tally.totals[0] == sum(tally.totals) == BLOCKS * empirical.UNIT


# --- All of them ------------------------------------------------------------------------------------------


def flower_config() -> Any:
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    return PrivacyConfig(1e-5, 1000, relation, SamplingMethod.NO_AMPLIFICATION, 3.0)


def ledger_cases() -> dict[str, Case]:
    """In memory and on disk."""
    budget = 1000 * MU * MU
    out = {}
    for place in ("memory", "disk"):
        steps = 400 if place == "memory" else 60
        fits = 1000 if place == "memory" else 150

        def path(folder: Path, place: str = place) -> dict[str, Any]:
            return {} if place == "memory" else {"path": folder / "ledger"}

        def case(make: Callable[[Path], Any], check: Any, place: str = place, steps: int = steps) -> Case:
            # With indices the core works on copies: that is where threads used to overwrite each other.
            chosen = {"indices": [2, 0, 1]} if place == "memory" else {}
            return Case(
                make, lambda f, _: repeat(lambda: f.step([MU] * 3, **chosen), steps), check, place == "memory"
            )

        share = fits / 1000
        out |= {
            f"IndividualGDPFilter, {place}": case(
                lambda folder, share=share, path=path: hs.IndividualGDPFilter(
                    3, mu=float(np.nextafter(np.sqrt(budget * share), 9.0)), **path(folder)
                ),
                granted(fits),
            ),
            f"IndividualRDPFilter, {place}": case(
                lambda folder, share=share, path=path: hs.individual.IndividualRDPFilter(
                    3, order=2.0, rho=budget * share, **path(folder)
                ),
                granted(fits),
            ),
            f"IndividualGDPOdometer, {place}": case(
                lambda folder, path=path: hs.individual.IndividualGDPOdometer(
                    3, increment=0.5, **path(folder)
                ),
                all_charged(steps),
            ),
            f"IndividualAccountant, {place}": Case(
                lambda folder, path=path: individual_accountant(30, **path(folder)),
                lambda a, _, steps=steps: repeat(lambda: a.step([0.5] * 30), steps),
                history_is_complete(steps),
                place == "memory",
            ),
        }
    return out


CASES: dict[str, Case] = {
    "Accountant": Case(
        lambda _: hs.Accountant(),
        lambda a, _: repeat(lambda: a.step(hs.Gaussian(1.0)), 2500),
        counted(2500),
    ),
    "Risk": Case(
        lambda _: hs.account(hs.Laplace(1.0)).risk,
        lambda risk, thread: [risk.tpr(10.0 ** -(1 + (thread + i) % 5)) for i in range(10)],
        attacked,
        copies=False,
    ),
    **ledger_cases(),
    "GDPFilter": Case(
        lambda _: hs.individual.GDPFilter(mu=float(np.nextafter(np.sqrt(1000 * MU * MU), 9.0))),
        lambda f, _: repeat(lambda: f.step(MU), 400),
        granted(1000),
    ),
    "RDPFilter": Case(
        lambda _: hs.individual.RDPFilter(order=2.0, rho=1000 * MU * MU),
        lambda f, _: repeat(lambda: f.step(MU), 400),
        granted(1000),
    ),
    "GDPOdometer": Case(
        lambda _: hs.individual.GDPOdometer(increment=0.5),
        lambda o, _: repeat(lambda: o.step(MU), 400),
        lambda o, _: all_charged(400)(o._ledger, _),
    ),
    "ApproximateIndividualFilter": Case(
        approximate_filter, lambda f, _: repeat(lambda: f.step([0.2]), 50), as_one_thread(50)
    ),
    "CorrelatedNoise": Case(noise, each_of, drawn_once(noise, lambda row: row.tobytes()), False),
    "BatchSampler": Case(sampler, each_of, drawn_once(sampler, lambda batch: batch.tolist()), False),
    "TrainingRun": Case(training_run, train, trained, False),
    "TrainingStep": Case(training_step, add_noise, noisy_once, False),
    "Tally": Case(lambda _: hs.montecarlo.Tally({"of": "blocks"}, 1), add_blocks, summed),
    "EmpiricalTally": Case(lambda _: hs.montecarlo.EmpiricalTally({"block_size": 1}, 1), add_laws, lawful),
    "interop.opacus.HockeystickAccountant": Case(
        lambda _: opacus.HockeystickAccountant(),
        lambda a, _: repeat(lambda: a.step(noise_multiplier=1.0, sample_rate=0.01), 500),
        lambda a, _: len(a) == 2000 or pytest.fail(f"{len(a)} steps"),
    ),
    "interop.flower.HockeystickAccountant": Case(
        lambda _: flower.HockeystickAccountant(flower_config()),
        lambda a, _: repeat(lambda: a.compose(GaussianPrivacyEvent(1.0, 1000, 1000)), 500),
        lambda a, _: a.num_releases == 2000 or pytest.fail(f"{a.num_releases} releases"),
    ),
    "interop.torch.BatchLoader": Case(
        loader,
        lambda it, _: [it.step for _ in range(500)],
        lambda it, _: list(it) == list(loader()) or pytest.fail("other batches"),
        False,
    ),
    "interop.torch._Pass": Case(lambda _: iter(loader()), each_of, drawn_once(loader, list), False),
}
if "dp_accounting" in sys.modules or importlib.util.find_spec("dp_accounting"):
    from dp_accounting import GaussianDpEvent
    from hockeystick.interop import dp_accounting

    CASES["interop.dp_accounting.HockeystickAccountant"] = Case(
        lambda _: dp_accounting.HockeystickAccountant(),
        lambda a, _: repeat(lambda: a.compose(GaussianDpEvent(1.0)), 300),
        counted(300),
    )

# Classes that change after they were made, and belong to one call or to one object with a lock.
OWNED = {
    "accounting.goals.Budget",  # one call
    "accounting.goals.RiskBudget",  # one call
    "accounting.envelope.Envelope",  # Risk, or one call
    "accounting.gaussian_summary._Side",  # one call
    "_base.storage.Seen",  # Accountant, Kept
    "interop.opacus_steps.ClippingNorm",  # the hook of one optimizer
    "interop.opacus_steps.EqualSizes",  # the hook of one optimizer
    "interop.opacus_batches.Watch",
    "interop.repeats._Sources",  # one call
    "interop.opacus_layers.Buffers",  # Watch
    "interop.opacus_layers.Passes",  # the hooks of one model
    "interop.opacus_layers.RecordTensor",  # one loss of a loop
    "individual.histories.Histories",  # Recorded
    "individual.histories.LiveHistories",  # Recorded
    "individual.ledger.Ledger",  # IndividualLedger
    "individual.ledger.LiveLedger",  # IndividualLedger
    "_base.progress.Bar",  # one call
    "verify.document.Fields",  # one call
    "verify.release.Grid",  # one call
    "_base.progress.Patience",  # one call
    "_base.files.StoreLock",  # the store it lies in
    "_base.search.Search",  # one call
    "montecarlo.bounded.BoundedValues",  # by the constructors of its kinds
    "training.run._Ledger",  # TrainingRun
}
# Values computed on first use, the same whoever computes them.
CACHES = {
    "sampling.attribution.AttributionGraph",
    "matrix.bandmf.BandMF",
    "accounting.profile.PrivacyProfile",
}
# Classes of the core that change, and who locks them. The others have const methods only.
CORE = {"BatchSampler": hs.sampling.BatchSampler, "CorrelatedNoise": hs.CorrelatedNoise}


def load_everything() -> None:
    for room in (getattr(hs, name) for name in dir(hs)):
        for name in getattr(room, "__all__", []):
            getattr(room, name)


def kinds(base: type = Exclusive) -> Iterator[type]:
    for kind in base.__subclasses__():
        yield kind
        yield from kinds(kind)


def name_of(kind: type) -> str:
    module = kind.__module__.removeprefix("hockeystick.")
    return f"{module}.{kind.__name__}"


ABSTRACT = {
    "individual.kept.Kept",
    "accounting.accountant.Answers",
    "individual.filters._WholeFilter",
    "individual.spending.WholeDataSet",
    "individual.spending.IndividualLedger",
    "individual.histories.Recorded",
    "montecarlo.tally.Totals",
}


@contextmanager
def made(name: str, folder: Path) -> Iterator[Any]:
    """One of the cases, closed in the end if it is something to be closed."""
    folder.mkdir(exist_ok=True)
    thing = CASES[name].make(folder)
    yield thing
    getattr(thing, "close", lambda: None)()


def test_all_classes_with_state_are_here(tmp_path: Path) -> None:
    found = set()
    for name in CASES:
        with made(name, tmp_path / name) as thing:
            found.add(name_of(type(thing)))
    assert {name_of(kind) for kind in kinds()} == ABSTRACT | found


MUTATORS = {
    "add",
    "append",
    "clear",
    "discard",
    "extend",
    "insert",
    "pop",
    "popitem",
    "remove",
    "setdefault",
    "update",
}


def changes_itself(node: ast.ClassDef) -> bool:
    """Whether a method that is no constructor assigns to self, to a part of it, or calls what changes a list or dictionary of it."""

    def own(target: ast.expr) -> bool:
        while isinstance(target, (ast.Attribute, ast.Subscript, ast.Starred)):
            target = target.value
        return isinstance(target, ast.Name) and target.id == "self"

    for method in node.body:
        if not isinstance(method, ast.FunctionDef) or method.name in ("__init__", "__new__", "__post_init__"):
            continue
        if any(isinstance(d, ast.Name) and d.id == "classmethod" for d in method.decorator_list):
            continue
        for part in ast.walk(method):
            targets: list[ast.expr] = []
            if isinstance(part, ast.Assign):
                targets = part.targets
            elif isinstance(part, (ast.AugAssign, ast.AnnAssign)):
                targets = [part.target]
            elif isinstance(part, ast.Delete):
                targets = part.targets
            elif (
                isinstance(part, ast.Call)
                and isinstance(part.func, ast.Attribute)
                and part.func.attr in MUTATORS
                and isinstance(part.func.value, (ast.Attribute, ast.Subscript))
            ):
                targets = [part.func.value]
            flat = [
                t for target in targets for t in (target.elts if isinstance(target, ast.Tuple) else [target])
            ]
            if any(isinstance(t, (ast.Attribute, ast.Subscript)) and own(t) for t in flat):
                return True
    return False


def test_what_changes_has_a_lock() -> None:
    """Read from the source: a class that changes itself after it was made is exclusive, or belongs to one that is."""
    locked = {name_of(kind) for kind in kinds()}
    changing = set()
    package = Path(hs.__file__).parent
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and changes_itself(node):
                module = ".".join(path.relative_to(package).with_suffix("").parts)
                changing.add(f"{module}.{node.name}")
    changing -= {"_base.exclusive.Exclusive"}
    assert changing - locked == OWNED | CACHES
    assert changing >= {"accounting.accountant.Accountant", "individual.filters._WholeFilter"}


def test_what_changes_in_the_core_has_a_lock() -> None:
    """Every class of the core is known to change or not; that of `IndividualProfiles` has a lock of its own."""
    constant = {
        "Answer",
        "BlockSampler",
        "Coupling",
        "HalfSpaceSampler",
        "LossSampler",
        "MatrixMechanism",
        "Pair",
        "Profile",
        "Scheme",
        "TiltedSampler",
    }
    found = {name for name, _ in inspect.getmembers(_core, inspect.isclass)}
    assert found == constant | {"IndividualProfiles"} | set(CORE)
    for kind in CORE.values():
        assert issubclass(kind, Exclusive)


def test_profiles_of_the_core_under_threads() -> None:
    edges = cell_edges(1.0, fine=8, coarse=4)
    pairs = sampled_pairs(edges, 0.3, "remove")
    counts = np.arange(60 * edges.size, dtype=np.uint16).reshape(60, -1) % 7
    alone = _core.IndividualProfiles(pairs).epsilon(counts, 1e-5)
    for _ in range(5):
        profiles = _core.IndividualProfiles(pairs)
        for found in in_threads(lambda _, profiles=profiles: profiles.epsilon(counts, 1e-5)):
            assert found[1].tobytes() == alone[1].tobytes()


@pytest.mark.parametrize("name", CASES)
def test_threads_lose_nothing(name: str, tmp_path: Path) -> None:
    with made(name, tmp_path) as thing:
        results = in_threads(lambda thread: CASES[name].work(thing, thread))
        CASES[name].check(thing, results)


load_everything()


@pytest.mark.parametrize("kind", sorted(kinds(), key=name_of), ids=name_of)
def test_the_docstring_says_so(kind: type) -> None:
    text = inspect.getdoc(kind) or ""
    assert "hread" in text
    assert "fork" in text.lower()


# --- Forks ------------------------------------------------------------------------------------------------

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
may_fork = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def in_child(work: Callable[[], bool]) -> bool:
    """Whether ``work`` is true in a forked child, which has a minute."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(60)
            code = 0 if work() else 2
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


@contextmanager
def held_elsewhere(thing: Exclusive) -> Iterator[None]:
    """Another thread is inside the object meanwhile."""
    inside, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with exclusive.holding(thing):
            inside.set()
            leave.wait()

    thread = threading.Thread(target=stay)
    thread.start()
    inside.wait()
    try:
        yield
    finally:
        leave.set()
        thread.join()


def public(thing: Exclusive) -> Iterator[Callable[[], Any]]:
    """A call of every public method and property."""
    for name in dir(type(thing)):
        found = inspect.getattr_static(type(thing), name)
        if name.startswith("_") and name not in exclusive._SPECIAL:
            continue
        if isinstance(found, property):
            yield lambda name=name: getattr(thing, name)
        # Without arguments: it is refused before they are looked at.
        elif inspect.isfunction(found) and name not in ("merge", "merged"):
            yield lambda name=name: getattr(thing, name)()


def refused(call: Callable[[], Any], error: type[Exception]) -> bool:
    try:
        call()
    except error as found:
        return "fork" in str(found)
    return False


@needs_fork
@may_fork
@pytest.mark.parametrize("name", CASES)
def test_forked_children_are_refused(name: str, tmp_path: Path) -> None:
    error = hs.training.DeviationError if name.startswith("Training") else hs.ForkedError
    with made(name, tmp_path) as thing:
        calls = list(public(thing))
        assert len(calls) > 3 or name == "interop.torch._Pass"
        assert in_child(lambda: all(refused(call, error) for call in calls))
        # Nobody in the child is left to release the lock: refused all the same, and at once.
        with held_elsewhere(thing):
            assert in_child(lambda: all(refused(call, error) for call in calls))
        CASES[name].check(thing, in_threads(lambda thread: CASES[name].work(thing, thread)))


@needs_fork
@may_fork
def test_a_child_with_its_parents_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the first process of a container and its child in another one."""
    thing, number = hs.Accountant(), os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: number)
    assert in_child(lambda: refused(lambda: thing.epsilon(1e-5), hs.ForkedError))

    # What the child makes is its own; and its child's not.
    def in_a_child() -> bool:
        own = hs.Accountant()
        return own.epsilon(1e-5) == 0.0 and in_child(
            lambda: refused(lambda: own.epsilon(1e-5), hs.ForkedError)
        )

    assert in_child(in_a_child)
    assert thing.epsilon(1e-5) == 0.0


@needs_fork
@may_fork
def test_a_child_neither_keeps_a_store_from_its_parent_nor_opens_it_to_others(tmp_path: Path) -> None:
    path = tmp_path / "store"
    filt = hs.IndividualGDPFilter(3, epsilon=1.0, delta=1e-5, path=path)

    def still_locked() -> bool:
        # What a child inherited may end before its parent does.
        filt._state._lock.close()
        with pytest.raises(hs.StorageError, match="another process has it open"):
            hs.IndividualGDPFilter.open(path)
        return True

    assert in_child(still_locked)
    with pytest.raises(hs.StorageError, match="another process has it open"):
        hs.IndividualGDPFilter.open(path)
    end, alive = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(alive)
        os.read(end, 1)
        os._exit(0)
    try:
        filt.close()
        hs.IndividualGDPFilter.open(path).close()
    finally:
        os.close(alive)
        os.close(end)
        os.waitpid(child, 0)


@needs_fork
@may_fork
def test_forked_children_cannot_merge_either(tmp_path: Path) -> None:
    one, other = hs.Accountant(), hs.Accountant()
    tally = hs.montecarlo.Tally({}, 1)
    filt = hs.IndividualGDPFilter(3, mu=1.0)
    recorded = individual_accountant(2)

    def work() -> bool:
        calls = (
            lambda: one.merge(other),
            lambda: hs.Accountant().merge(other),
            lambda: tally.merged(hs.montecarlo.Tally({}, 1)),
            lambda: hs.IndividualGDPFilter.merge([filt]),
            lambda: hs.IndividualAccountant.merge([recorded]),
            lambda: pickle.dumps(filt),
            lambda: copy.deepcopy(one),
        )
        mine = hs.IndividualGDPFilter(3, mu=1.0)
        return all(refused(call, hs.ForkedError) for call in calls) and bool(mine.step([0.1] * 3).all())

    assert in_child(work)


# --- Copies and merging -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_copies_share_nothing(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    with made(name, tmp_path) as thing:
        check_copies(case, thing)


def check_copies(case: Case, thing: Any) -> None:
    ways = (copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each)))
    if not case.copies:
        for way in ways:
            with pytest.raises(TypeError, match=r"pickle|cop"):
                way(thing)
        return
    for way in ways:
        other = way(thing)
        assert other._guard is not thing._guard
        # Both do all of the work: had they anything in common, the second one would find it done.
        case.check(other, in_threads(lambda thread, other=other: case.work(other, thread)))
    case.check(thing, in_threads(lambda thread: case.work(thing, thread)))


def test_a_copy_is_of_one_moment() -> None:
    filt = hs.IndividualGDPFilter(2000, mu=100.0)
    done = threading.Event()

    def work(thread: int) -> list[hs.IndividualGDPFilter]:
        if thread == 0:
            try:
                for _ in range(300):
                    filt.step(np.full(2000, MU))
            finally:
                done.set()
            return []
        copies = [copy.deepcopy(filt)]
        while not done.is_set():
            copies.append(pickle.loads(pickle.dumps(filt)))
        return copies

    for copied in [each for result in in_threads(work) for each in result]:
        assert set(copied.spent.tolist()) == {copied.steps * MU * MU}
        assert copied.active_counts().sum() == 2000 * copied.steps


def test_merging_both_ways_does_not_block() -> None:
    one, other = hs.Accountant(), hs.Accountant()
    one.step(hs.Gaussian(1.0))

    def work(thread: int) -> None:
        for _ in range(5):
            (one.merge(other) if thread % 2 else other.merge(one))

    in_threads(work)
    tallies = [hs.montecarlo.Tally({}, 1), hs.montecarlo.Tally({}, 1)]
    shards = [hs.IndividualGDPFilter(3, mu=1.0), hs.IndividualGDPFilter(2, mu=1.0)]

    def merge(thread: int) -> None:
        order = slice(None, None, 1 if thread % 2 else -1)
        for _ in range(200):
            first, second = tallies[order]
            first.merged(second)
            assert hs.IndividualGDPFilter.merge(shards[order]).num_examples == 5

    in_threads(merge)


def test_shards_are_merged_at_one_moment() -> None:
    shards = [hs.IndividualGDPFilter(500, mu=100.0) for _ in range(2)]
    merged: list[hs.IndividualGDPFilter] = []

    def work(thread: int) -> None:
        for _ in range(200):
            if thread == 0:
                with exclusive.holding(*shards):
                    for shard in shards:
                        shard.step(np.full(500, MU))
            else:
                merged.append(hs.IndividualGDPFilter.merge(shards))

    in_threads(work)
    for each in merged:
        assert set(each.spent.tolist()) == {each.steps * MU * MU}


def test_ctrl_c_leaves_no_lock_behind() -> None:
    filt = hs.IndividualGDPFilter(100, mu=1e9)
    main = threading.get_ident()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        for _ in range(200):
            timer = threading.Timer(2e-4, lambda: signal.pthread_kill(main, signal.SIGUSR1))
            try:
                timer.start()
                while True:
                    filt.step(np.full(100, MU))
            except KeyboardInterrupt:
                pass
            timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    # Other threads come in: none of the interruptions left the lock taken.
    in_threads(lambda _: filt.step(np.full(100, MU)))


def test_generators_are_no_methods() -> None:
    with pytest.raises(TypeError, match="holds no lock"):

        class Leaky(Exclusive):
            def values(self) -> Iterator[int]:
                yield 1
