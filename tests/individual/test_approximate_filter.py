"""The approximate filter: within its budget, and the same whether it is interrupted, killed or split."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import hockeystick as hs
import numpy as np
import pytest
from hockeystick._base import storage
from hockeystick.individual import histories

from tests.anywhere import interrupted_everywhere

SETTINGS = {
    "epsilon": 1.0,
    "delta": 1e-5,
    "noise_multiplier": 1.5,
    "sampling_probability": 0.05,
    "clipping_norm": 1.0,
}
N = 12
TABLES: dict[Any, Any] = {}


def make(n: int = N, **where: object) -> hs.individual.ApproximateIndividualFilter:
    return hs.individual.ApproximateIndividualFilter(n, **SETTINGS, **where)  # type: ignore[arg-type]


def norms(step: int) -> np.ndarray:
    """From 0 to three times the clipping norm, different in each step: some examples run out of budget."""
    return np.linspace(0.0, 3.0, N) * np.random.default_rng([step, 7]).choice([0.0, 0.4, 1.0], N)


def run(filt: hs.individual.ApproximateIndividualFilter, steps: range, offset: int = 0) -> list[list[bool]]:
    return [filt.step(norms(step)[offset : offset + filt.num_examples]).tolist() for step in steps]


def state(filt: hs.individual.ApproximateIndividualFilter) -> tuple[object, ...]:
    book = filt._state
    last = filt.last_step
    return (
        filt.steps,
        filt.active_counts().tolist(),
        None if last is None else (last.step, last.indices, last.active.tolist()),
        filt._decision.reserve.tolist(),
        [(q, book.rows(q, slice(0, filt.num_examples)).tolist()) for q in book.probabilities],
    )


@pytest.fixture(scope="module")
def whole() -> list[tuple[object, ...]]:
    """The states of an uninterrupted run after 0, 1, ... steps."""
    filt = make()
    out = [state(filt)]
    for step in range(60):
        run(filt, range(step, step + 1))
        out.append(state(filt))
    assert N > filt.active_counts().min() > 0
    return out


@pytest.fixture(autouse=True)
def folds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fold every few steps, so that tests see it; and make the tables of the one grid only once."""
    monkeypatch.setattr(histories.LiveHistories, "FOLD", 4)
    start = hs.individual.ApproximateIndividualFilter._start

    def shared(filt: hs.individual.ApproximateIndividualFilter, *arguments: Any) -> None:
        start(filt, *arguments)
        filt._tables = TABLES

    monkeypatch.setattr(hs.individual.ApproximateIndividualFilter, "_start", shared)


def test_histories_stay_within_the_budget() -> None:
    rng = np.random.default_rng(6)
    filt = make(4)
    scale = np.array([0.0, 0.1, 1.0, 3.0])
    dropped = np.zeros(4, bool)
    for _ in range(60):
        active = filt.step(scale * rng.choice([0.3, 0.6, 1.0]))
        dropped |= ~active
    epsilon = filt.accountant.nonadaptive_epsilon(1e-5)
    assert (epsilon <= 1.0).all()
    assert dropped.tolist() == [False, False, False, True]
    assert epsilon[0] == 0.0 < epsilon[1] < epsilon[2] < epsilon[3]
    assert epsilon[3] > 0.9  # one more clipped step would be too much
    assert filt.active_counts()[0] == 4
    assert filt.active_counts()[-1] == 3


@pytest.mark.parametrize(("rows", "chunk"), [(5, 2), (5, 4096), (65536, 2), (7, 7)])
def test_blocks_of_examples_decide_the_same(
    whole: list[object], rows: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hockeystick.individual import accountant as individual

    monkeypatch.setattr(individual, "_ROWS", rows)
    monkeypatch.setattr(individual, "_CHUNK", chunk)
    filt = make()
    run(filt, range(60))
    assert state(filt) == whole[60]


@pytest.mark.parametrize("durable", [False, True])
def test_resumed_runs_decide_the_same(whole: list[object], durable: bool, tmp_path: Path) -> None:
    """Closed and opened, saved and loaded after any number of steps: the same masks, bit for bit."""
    memory = make()
    disk = make(path=tmp_path / "filter", durable=durable)
    assert state(disk) == whole[0]
    rng = np.random.default_rng(1)
    done = 0
    while done < 60:
        steps = range(done, min(60, done + int(rng.integers(0, 6))))
        assert run(disk, steps) == run(memory, steps)
        done = steps.stop
        with pytest.raises(hs.StorageError, match="another process"):
            hs.individual.ApproximateIndividualFilter.open(tmp_path / "filter")
        disk.close()
        disk = hs.individual.ApproximateIndividualFilter.open(tmp_path / "filter")
        assert state(disk) == whole[done]
        assert repr(disk) == repr(memory)
        memory.save(tmp_path / "copy")
        memory = hs.individual.ApproximateIndividualFilter.load(tmp_path / "copy")
        assert state(memory) == whole[done]
        disk.save(tmp_path / "copy")
        assert state(hs.individual.ApproximateIndividualFilter.load(tmp_path / "copy")) == whole[done]
    assert (
        disk.accountant.nonadaptive_epsilon(1e-5).tobytes()
        == memory.accountant.nonadaptive_epsilon(1e-5).tobytes()
    )
    disk.close()


@pytest.mark.parametrize("on_disk", [False, True])
def test_shards_are_the_whole(whole: list[object], on_disk: bool, tmp_path: Path) -> None:
    parts = [make(7), make(5, path=tmp_path / "part")]
    run(parts[0], range(21))
    run(parts[1], range(21), offset=7)
    where = {"path": tmp_path / "whole"} if on_disk else {}
    merged = hs.individual.ApproximateIndividualFilter.merge(parts, **where)  # type: ignore[arg-type]
    parts[1].close()
    assert state(merged) == whole[21]
    run(merged, range(21, 30))
    assert state(merged) == whole[30]
    if on_disk:
        merged.close()
        merged = hs.individual.ApproximateIndividualFilter.open(tmp_path / "whole")
        assert state(merged) == whole[30]
    merged.close()
    other = hs.individual.ApproximateIndividualFilter(1, **{**SETTINGS, "epsilon": 2.0})
    with pytest.raises(hs.ParameterError, match="settings differ"):
        hs.individual.ApproximateIndividualFilter.merge([make(1), other])


class Killed(BaseException):
    pass


def test_killed_anywhere_within_a_step(
    whole: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after each change of a name on the disk, also while steps are folded: a step is made or not."""
    changes, unlink = 0, os.unlink
    for last in range(1000):
        path = tmp_path / f"filter{last}"
        disk = make(path=path)
        run(disk, range(14))
        changes, killed = 0, False

        def point(last: int = last) -> None:
            nonlocal changes
            changes += 1
            if changes > last:
                raise Killed

        def replace(*names: object, real: Any = os.replace) -> None:
            point()
            real(*names)
            point()

        def remove(name: Path, missing_ok: bool = False) -> None:
            point()
            unlink(name)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", replace)
            patch.setattr(Path, "unlink", remove)
            # What an exception cleans up, a killed process leaves behind.
            patch.setattr(os, "unlink", lambda _: None)
            try:
                run(disk, range(14, 19))
            except Killed:
                killed = True
        disk.close()
        for _ in range(2):
            disk = hs.individual.ApproximateIndividualFilter.open(path)
            assert 14 <= disk.steps <= 19
            assert state(disk) == whole[disk.steps]
            assert not list(path.glob(".*"))
            disk.close()
        disk = hs.individual.ApproximateIndividualFilter.open(path)
        run(disk, range(disk.steps, 21))
        assert state(disk) == whole[21]
        disk.close()
        if not killed:
            break
    # Two for each of five steps and for a snapshot, one for each of four old steps.
    assert last == 16


def test_an_exception_within_a_step_asks_to_open_again(
    whole: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = make(path=tmp_path / "filter")
    run(disk, range(9))
    write = storage.write

    def interrupt(*arguments: object, **named: object) -> None:
        write(*arguments, **named)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(storage, "write", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(disk, range(9, 10))
    with pytest.raises(hs.StorageError, match="open it again"):
        run(disk, range(10, 11))
    disk.close()
    disk = hs.individual.ApproximateIndividualFilter.open(tmp_path / "filter")
    assert state(disk) == whole[10]
    disk.close()


def test_a_filter_goes_on_wherever_ctrl_c_comes(tmp_path: Path) -> None:
    def begun() -> hs.individual.ApproximateIndividualFilter:
        filt = make(2)
        filt.step([1.0, 0.0])
        return filt

    for filt in interrupted_everywhere(("histories.py",), begun, lambda it: it.step([1.0, 1.0])):
        filt.step([1.0, 0.0])
        assert sum(count for _, count in filt.accountant.history(0)) <= filt.steps in (2, 3)
        assert filt.active_counts().tolist()[-1] == 2
        filt.save(tmp_path / "saved")
        assert state(filt.load(tmp_path / "saved")) == state(filt)
        (tmp_path / "saved").unlink()


def test_refusals(whole: list[object], tmp_path: Path) -> None:
    disk = make(path=tmp_path / "filter")
    run(disk, range(6))
    # Nobody adds to its histories past the filter, which would then let too much through.
    with pytest.raises(hs.ParameterError, match="only its own step"):
        disk.accountant.step(norms(6))
    with pytest.raises(hs.ParameterError, match="norms"):
        disk.step(np.full(N, np.nan))
    assert state(disk) == whole[6]
    disk.close()
    for attempt in (
        lambda: run(disk, range(6, 7)),
        lambda: disk.save(tmp_path / "copy"),
        lambda: disk.accountant.nonadaptive_epsilon(1e-5),
        lambda: hs.individual.ApproximateIndividualFilter.merge([disk]),
        lambda: disk.last_step,
        disk.active_counts,
    ):
        with pytest.raises(hs.StorageError, match="is closed"):
            attempt()
    with pytest.raises(hs.StorageError, match="wanted: individual accountant"):
        hs.IndividualAccountant.open(tmp_path / "filter")
    plain = hs.IndividualAccountant(N, noise_multiplier=1.5, sampling_probability=0.05, clipping_norm=1.0)
    plain.save(tmp_path / "plain")
    with pytest.raises(hs.StorageError, match="wanted: approximate individual filter"):
        hs.individual.ApproximateIndividualFilter.load(tmp_path / "plain")
    memory = make(2)
    memory.step([1.0, 0.0])
    with pytest.raises(hs.ParameterError, match="only its own step"):
        memory.accountant.step([1.0, 1.0])
    # The caller's mask is the caller's.
    memory.step([1.0, 0.0])[:] = False
    assert memory.last_step is not None
    assert memory.last_step.active.all()


def test_damage_is_found(tmp_path: Path) -> None:
    path = tmp_path / "filter"
    disk = make(path=path)
    run(disk, range(6))
    disk.close()
    for entry in sorted(path.iterdir()):
        good = entry.read_bytes()
        for place in (30, 4100, 8195, 12290):
            if place < len(good) and good[place // 4096 * 4096 :].strip(b"\0"):
                entry.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
                with pytest.raises(hs.StorageError, match="cannot load"):
                    hs.individual.ApproximateIndividualFilter.open(path)
        entry.write_bytes(good)
    hs.individual.ApproximateIndividualFilter.open(path).close()


TRAINING = """
import os, sys
from pathlib import Path
import numpy as np
import hockeystick as hs
from hockeystick.individual import histories

histories.LiveHistories.FOLD = 5
folder, steps, n = Path(sys.argv[1]), int(sys.argv[2]), 200
path = folder / "filter"
if path.exists():
    filt = hs.individual.ApproximateIndividualFilter.open(path)
else:
    filt = hs.individual.ApproximateIndividualFilter(
        n, epsilon=1.0, delta=1e-5, noise_multiplier=1.5, sampling_probability=0.05, clipping_norm=1.0, path=path)
model = folder / "model.npy"
theta = np.load(model) if model.exists() else np.zeros(2)
while (done := int(theta[1])) < steps:
    rng = np.random.default_rng([done, 3])
    norms = rng.integers(0, 4, n) * (np.arange(n) % 5) * 0.5
    if filt.steps == done:
        active = filt.step(norms)
    else:  # killed between the filter and the model: the same step with the same noise is not paid twice
        assert filt.steps == done + 1 == filt.last_step.step
        active = filt.last_step.active
    theta = np.array([theta[0] + norms[active].sum() + rng.standard_normal(), done + 1])
    with open(folder / "model.tmp", "wb") as file:
        np.save(file, theta)
    os.replace(folder / "model.tmp", model)
    print(done, flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_killed_training_resumes(tmp_path: Path) -> None:
    """kill -9 again and again: nothing is lost, nothing is counted twice, the model is the same."""
    for name in "ab":
        (tmp_path / name).mkdir()
    steps = "50"
    command = [sys.executable, "-c", TRAINING]
    subprocess.run([*command, str(tmp_path / "a"), steps], check=True, timeout=120)
    rng = np.random.default_rng(0)
    for _ in range(3):
        process = subprocess.Popen([*command, str(tmp_path / "b"), steps], stdout=subprocess.PIPE)
        assert process.stdout is not None
        for _ in range(int(rng.integers(2, 10))):
            process.stdout.readline()
        time.sleep(0.02 * rng.random())
        process.send_signal(signal.SIGKILL)
        process.stdout.close()
        assert process.wait() != 0
    subprocess.run([*command, str(tmp_path / "b"), steps], check=True, timeout=120)
    results = []
    for name in "ab":
        filt = hs.individual.ApproximateIndividualFilter.open(tmp_path / name / "filter")
        results.append((state(filt), np.load(tmp_path / name / "model.npy").tobytes()))
        filt.close()
    assert results[0] == results[1]
    assert sorted(os.listdir(tmp_path / "b")) == ["filter", "model.npy"]
