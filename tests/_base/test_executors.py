"""Monte Carlo runs on executors: the same result bit for bit, whatever happens to tasks and workers."""

import math
import multiprocessing
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hockeystick as hs
import numpy as np
import pytest
from hockeystick._base import executors
from hockeystick.montecarlo.runs import RunOptions, run
from hockeystick.montecarlo.tally import EmpiricalTally, Tally


def mechanism(steps: int = 64, separation: int = 4) -> hs.BandMF:
    return hs.BandMF(
        hs.BandedToeplitz.square_root(steps, separation), hs.BMinSep(steps, separation, 0.1), 1.0
    )


def estimate(**settings: Any) -> hs.montecarlo.DeltaEstimate:
    return hs.estimate_delta(mechanism(), 1.0, 200_000, seed=5, **settings)


@pytest.fixture(scope="module")
def here() -> hs.montecarlo.DeltaEstimate:
    return estimate()


@dataclass(frozen=True)
class Draw:
    """Sums of very different sizes: any order of adding doubles would show."""

    fail_at: int = -1
    padding: str = ""

    def __call__(self, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        if first <= self.fail_at < first + count:
            raise OSError("no luck")
        found = [
            np.random.default_rng(block).random() * 10.0 ** -(block % 40)
            for block in range(first, first + count)
        ]
        return np.array([found]), np.square([found])


WHOLE = run(Draw(), {"run": 1}, 1, 0, 300)


class Unruly(Executor):
    """Runs tasks at once, answers late and in any order, and goes wrong as told."""

    def __init__(self, seed: int, spoil: Callable[[int, tuple[Any, ...]], Any] = lambda _, __: None) -> None:
        self.random, self.spoil = random.Random(seed), spoil
        self.waiting: list[tuple[Future[Any], Any]] = []
        self.tasks = 0
        self.largest = 0

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.tasks += 1
        self.largest = max(self.largest, len(pickle.dumps((function, args))))
        future: Future[Any] = Future()
        try:
            answer = self.spoil(self.tasks, args)
            if answer is None:
                answer = function(*args, **kwargs)
        except OSError as error:
            answer = error
        self.waiting.append((future, answer))
        # Some come back soon, some when nothing else is left.
        while len(self.waiting) > self.random.randrange(1, 20):
            self.answer()
        return future

    def answer(self) -> None:
        future, answer = self.waiting.pop(self.random.randrange(len(self.waiting)))
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)


@pytest.fixture(autouse=True)
def _delivery(monkeypatch: pytest.MonkeyPatch) -> None:
    """`wait` would wait forever for answers that are held back: one is let go first."""
    waiting = executors.wait
    unruly.clear()

    def delivering(pending: Any, **settings: Any) -> Any:
        for executor in unruly:
            while executor.waiting and not any(future.done() for future in pending):
                executor.answer()
        return waiting(pending, **settings)

    monkeypatch.setattr(executors, "wait", delivering)


unruly: list[Unruly] = []


def ruled(executor: Unruly) -> Unruly:
    unruly.append(executor)
    return executor


@pytest.mark.parametrize("seed", range(5))
def test_any_order_gives_the_same_tally(seed: int) -> None:
    calls: list[int] = []
    executor = ruled(Unruly(seed))
    options = RunOptions(executor=executor, progress=lambda done, total: calls.append(done))
    found = run(Draw(), {"run": 1}, 1, 0, 300, options)
    assert found == WHOLE
    assert calls == sorted(calls)
    assert calls[0] == 0
    assert calls[-1] == 300


def test_failed_tasks_are_drawn_again() -> None:
    def spoil(task: int, args: tuple[Any, ...]) -> Any:
        # Every block fails on its first two attempts.
        return ConnectionError("worker lost") if args[4] < 3 else None

    executor = ruled(Unruly(1, spoil))
    assert run(Draw(), {"run": 1}, 1, 0, 300, RunOptions(executor=executor)) == WHOLE
    assert executor.tasks % 3 == 0


def test_what_fails_for_good_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with pytest.raises(RuntimeError, match=r"failed 3 times: OSError\('no luck'\)"):
        run(Draw(fail_at=250), {"run": 1}, 1, 0, 300, RunOptions(checkpoint=path, executor=ruled(Unruly(2))))
    # What came back before is kept; the rest is drawn by whoever comes next.
    kept = Tally.load(path)
    assert 0 < kept.blocks < 300
    assert kept.missing(250, 251) == [(250, 251)]
    assert run(Draw(), {"run": 1}, 1, 0, 300, RunOptions(checkpoint=path)) == WHOLE


@pytest.mark.parametrize("kind", ["short", "wrong", "nan"])
def test_incomplete_answers_are_errors(kind: str) -> None:
    def spoil(task: int, args: tuple[Any, ...]) -> Any:
        sums, squares = Draw()(args[2], args[3])
        if kind == "short":
            sums = sums[:, 1:]
        elif kind == "wrong":
            squares = squares.T.copy() if args[3] > 1 else np.zeros((2, 1))
        else:
            sums = np.full_like(sums, math.nan)
        return hs.__version__, (sums, squares), 0.1

    with pytest.raises(ArithmeticError, match=r"came back instead of|not finite"):
        run(Draw(), {"run": 1}, 1, 0, 300, RunOptions(executor=ruled(Unruly(3, spoil))))


def test_workers_of_another_version_are_refused() -> None:
    def spoil(task: int, args: tuple[Any, ...]) -> Any:
        return "0.0.1", Draw()(args[2], args[3]), 0.1

    with pytest.raises(RuntimeError, match=r"a worker runs hockeystick 0\.0\.1"):
        run(Draw(), {"run": 1}, 1, 0, 300, RunOptions(executor=ruled(Unruly(4, spoil))))


def test_large_descriptions_travel_once(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = Draw(padding="x" * 100_000)
    executor = ruled(Unruly(5))
    sizes: list[int] = []
    executor.spoil = lambda task, args: sizes.append(len(args[1] or b""))
    monkeypatch.setattr(executors, "_descriptions", {})
    assert run(draw, {"run": 1}, 1, 0, 300, RunOptions(executor=executor)) == WHOLE
    assert sum(size > 0 for size in sizes) <= 20
    assert sizes.count(0) >= executor.tasks - 20
    # Nothing but a name and numbers where it is known already.
    executor.largest = 0
    assert run(draw, {"run": 1}, 1, 0, 300, RunOptions(executor=executor)) == WHOLE
    assert executor.largest < 500


def test_interruption_cancels_and_keeps(tmp_path: Path) -> None:
    class Enough(Exception):
        pass

    def interrupt(done: int, total: int) -> None:
        if done > 20:
            raise Enough

    path = tmp_path / "run"
    with ThreadPoolExecutor(2) as pool:
        with pytest.raises(Enough):
            run(Draw(), {"run": 1}, 1, 0, 300, RunOptions(checkpoint=path, progress=interrupt, executor=pool))
        kept = Tally.load(path)
        assert 20 < kept.blocks < 300
        assert run(Draw(), {"run": 1}, 1, 0, 300, RunOptions(checkpoint=path, executor=pool)) == WHOLE


def test_enough_is_enough() -> None:
    with ThreadPoolExecutor(2) as pool:
        found = run(
            Draw(), {"run": 1}, 1, 0, 10**9, RunOptions(executor=pool), lambda tally: tally.blocks >= 10
        )
    assert 10 <= found.blocks < 10**6


@dataclass(frozen=True)
class DrawLaw:
    lost: int = 0

    def __call__(self, first: int, count: int) -> tuple[Any, int]:
        values = np.concatenate(
            [np.random.default_rng(block).random(50) for block in range(first, first + count)]
        )
        law = hs.montecarlo.Empirical.of(values[self.lost :])
        return np.array([law.masses], dtype=np.uint64), 0


def test_laws_add_up(tmp_path: Path) -> None:
    key = {"run": 1, "block_size": 50}
    path = tmp_path / "law"
    found = run(
        DrawLaw(), key, 1, 0, 100, RunOptions(checkpoint=path, executor=ruled(Unruly(6))), kind=EmpiricalTally
    )
    assert found == EmpiricalTally.load(path)
    parts = [run(DrawLaw(), key, 1, first, last, kind=EmpiricalTally) for first, last in [(30, 100), (0, 30)]]
    assert parts[0].merged(parts[1]) == found
    assert found.law() == hs.montecarlo.Empirical.of(
        np.concatenate([np.random.default_rng(block).random(50) for block in range(100)])
    )
    with pytest.raises(ArithmeticError, match="values are missing"):
        run(DrawLaw(lost=1), key, 1, 0, 100, kind=EmpiricalTally)
    with pytest.raises(hs.ParameterTypeError, match="different kinds"):
        found.merged(WHOLE)  # type: ignore[arg-type]
    with pytest.raises(hs.StorageError):
        Tally.load(path)


def test_threads_and_processes_are_bit_identical(here: hs.montecarlo.DeltaEstimate, tmp_path: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        assert estimate(executor=pool) == here
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        assert estimate(executor=pool) == here
        other = hs.Gaussian(2.0) * 3
        assert estimate(executor=pool, composed_with=other) == estimate(composed_with=other)
        # Half here, half there.
        one = hs.montecarlo.sample_blocks(mechanism(), 1.0, "remove", 5, 0, 20, executor=pool)
        two = hs.montecarlo.sample_blocks(mechanism(), 1.0, "remove", 5, 20, 40)
        whole = hs.montecarlo.sample_blocks(mechanism(), 1.0, "remove", 5, 0, 40)
        assert one.merged(two) == whole
        # A worker dies: an error, not a smaller delta. Another pool goes on from the checkpoint.
        lost: list[Future[Any]] = []

        def kill(done: int, total: int) -> None:
            if not lost:
                lost.append(pool.submit(os._exit, 1))

        with pytest.raises(RuntimeError, match=r"broke down|terminated abruptly"):
            estimate(executor=pool, checkpoint=tmp_path, progress=kill)
    with ThreadPoolExecutor(2) as pool:
        assert estimate(executor=pool, checkpoint=tmp_path) == here


def test_calibration_on_an_executor() -> None:
    arguments = (hs.BandedToeplitz.square_root(16, 2), hs.BMinSep(16, 2, 0.1), 1.0, 0.02)
    with ThreadPoolExecutor(2) as pool:
        found = hs.calibrate_bandmf(*arguments, seed=3, executor=pool)
    alone = hs.calibrate_bandmf(*arguments, seed=3)
    assert found.noise_multiplier == alone.noise_multiplier
    assert [entry.accepted for entry in found.verifications] == [
        entry.accepted for entry in alone.verifications
    ]


def test_what_is_no_executor_is_refused() -> None:
    with pytest.raises(hs.ParameterTypeError, match=r"executor = 2: must be a concurrent\.futures\.Executor"):
        estimate(executor=2)

    class Client:
        def get_executor(self) -> None: ...

    with pytest.raises(hs.ParameterTypeError, match=r"client\.get_executor\(\)"):
        estimate(executor=Client())


def test_what_does_not_pickle_is_refused() -> None:
    draw = lambda first, count: Draw()(first, count)
    with pytest.raises(hs.ParameterTypeError, match="cannot be sent"):
        run(draw, {"run": 1}, 1, 0, 300, RunOptions(executor=ruled(Unruly(7))))
    # Threads need no copy.
    with ThreadPoolExecutor(2) as pool:
        assert run(draw, {"run": 1}, 1, 0, 300, RunOptions(executor=pool)) == WHOLE


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
@pytest.mark.filterwarnings("ignore")  # of dask's own making
def test_dask_worker_killed(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    large = mechanism(2048, 64)

    def go(**settings: Any) -> hs.montecarlo.DeltaEstimate:
        return hs.estimate_delta(large, 2.0, 60_000, seed=8, **settings)

    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            local_directory=tmp_path,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.run(hs.set_threads, 1)
        workers = client.run(os.getpid)
        assert len(set(workers.values()) | {os.getpid()}) == 3
        killed: list[int] = []
        seen: list[int] = []

        def kill(done: int, total: int) -> None:
            seen.append(done)
            if not killed and 0 < done < total // 2:
                killed.append(next(iter(workers.values())))
                os.kill(killed[0], signal.SIGKILL)

        found = go(executor=client.get_executor(), checkpoint=tmp_path / "run", progress=kill)
        assert killed
        assert killed[0] not in client.run(os.getpid).values()
    assert seen == sorted(seen)
    assert found == go()


MPI_PROGRAM = """
import hockeystick as hs
from mpi4py.futures import MPIPoolExecutor

from tests._base import test_executors

if __name__ == "__main__":
    hs.set_threads(1)
    with MPIPoolExecutor() as pool:
        print(*test_executors.several(pool), sep="\\n")
"""


def several(executor: Executor | None) -> list[str]:
    """Plain samples, weighted ones of both directions, and a description that does not travel with each task."""
    columns = np.random.default_rng(0).random((700, 4)) + 0.1
    for i in range(700):
        columns[i, 700 - i :] = 0.0
    large = hs.BandMF(hs.matrix.Banded(columns), hs.BMinSep(700, 4, 0.001), 1.0)
    both = {"method": "tilted", "executor": executor}
    return [
        repr(estimate(method="plain", executor=executor)),
        repr(hs.estimate_delta(mechanism(16, 4), 1.0, 50_000, 3, **both)),  # type: ignore[arg-type]
        repr(hs.estimate_delta(large, 0.5, 20_000, 4, "plain", executor=executor)),
    ]


@pytest.mark.slow
def test_mpi_is_bit_identical(tmp_path: Path) -> None:
    # A manager and two workers, as `mpiexec -n 3 python -m mpi4py.futures run.py` starts them.
    pytest.importorskip("mpi4py")
    mpiexec = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if mpiexec is None:
        pytest.skip("no mpiexec")
    program = tmp_path / "run.py"
    program.write_text(MPI_PROGRAM)
    command = [mpiexec, "-n", "3", sys.executable, "-m", "mpi4py.futures", str(program)]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        command,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == several(None)
