"""Individual accountants on disk: resumed, killed, merged from shards, damaged."""

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hockeystick as hs
import numpy as np
import pytest
from hockeystick import _core
from hockeystick._base import storage
from hockeystick.individual import histories

from tests.anywhere import interrupted_everywhere, killed_again_and_again

SETTINGS = {"noise_multiplier": 1.0, "sampling_probability": 0.01, "clipping_norm": 2.0}


def make(n: int, **where: object) -> hs.IndividualAccountant:
    return hs.IndividualAccountant(n, **SETTINGS, **where)  # type: ignore[arg-type]


def run(accountant: hs.IndividualAccountant, steps: range, offset: int = 0) -> None:
    """Some steps of a deterministic run: several sampling probabilities, one of them 0, some steps repeated."""
    for step in steps:
        rng = np.random.default_rng([step, 7])
        norms = rng.random(40)[offset : offset + accountant.num_examples] * 3
        q = (0.01, 0.02, 0.0, 0.01)[step % 4]
        accountant.step(norms, sampling_probability=q, steps=1 + step % 3)


def state(accountant: hs.IndividualAccountant) -> tuple[object, ...]:
    book = accountant._state
    everybody = slice(0, accountant.num_examples)
    return accountant.steps, [(q, book.rows(q, everybody).tolist()) for q in sorted(book.probabilities)]


@pytest.fixture
def folds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fold every few steps, so that tests see it."""
    monkeypatch.setattr(histories.LiveHistories, "FOLD", 4)


@pytest.mark.parametrize("durable", [False, True])
def test_on_disk_is_the_same(folds: None, durable: bool, tmp_path: Path) -> None:
    path = tmp_path / "accountant"
    memory, disk = make(40), make(40, path=path, durable=durable)
    run(memory, range(11))
    run(disk, range(11))
    assert state(disk) == state(memory)
    with pytest.raises(hs.StorageError, match="another process"):
        hs.IndividualAccountant.open(path)
    disk.close()
    again = hs.IndividualAccountant.open(path)
    assert state(again) == state(memory)
    run(memory, range(11, 30))
    run(again, range(11, 30))
    assert state(again) == state(memory)
    assert again.nonadaptive_epsilon(1e-5).tobytes() == memory.nonadaptive_epsilon(1e-5).tobytes()
    assert again.nonadaptive_gdp_mu(3, 1e-6) == memory.nonadaptive_gdp_mu(3, 1e-6)
    assert list(again.history(3)) == list(memory.history(3))
    again.save(tmp_path / "copy")
    assert state(hs.IndividualAccountant.load(tmp_path / "copy")) == state(memory)
    again.close()
    with pytest.raises(hs.ParameterError, match="exists already"):
        make(40, path=path)


def test_many_steps_widen_the_counters(tmp_path: Path) -> None:
    disk = make(2, path=tmp_path / "accountant")
    for _ in range(3):
        disk.step([1.0, 0.0], steps=40_000)
    assert disk._state.rows(0.01, slice(0, 1)).sum() == 120_000
    disk._state.fold()  # type: ignore[attr-defined]
    disk.step([1.0, 0.0])
    disk.close()
    again = hs.IndividualAccountant.open(tmp_path / "accountant")
    assert again._state.rows(0.01, slice(0, 2)).sum(1).tolist() == [120_001, 0]
    again.close()


def test_a_step_beyond_what_the_snapshot_counts_in_two_bytes_is_added(tmp_path: Path) -> None:
    disk, memory = make(2, path=tmp_path / "accountant"), make(2)
    for steps in (2**16 - 1, 1):
        disk.step([1.0, 0.0], steps=steps)
        memory.step([1.0, 0.0], steps=steps)
        assert state(disk) == state(memory)
        disk._state.fold()  # type: ignore[attr-defined]
    disk.step([1.0, 0.0])
    memory.step([1.0, 0.0])
    assert disk.nonadaptive_epsilon(1e-5).tolist() == memory.nonadaptive_epsilon(1e-5).tolist()
    disk.close()


@pytest.mark.sweep
@pytest.mark.parametrize("sizes", [(0, 2), (2, 0), (2, 1), (0, 0, 2), (2, 1, 3)])
def test_shards_may_differ_in_their_sampling_probabilities(sizes: tuple[int, ...]) -> None:
    """One without examples has none at all: whoever is first, every example keeps its own history."""
    parts = [make(size) for size in sizes]
    for rate, part in zip((0.01, 0.3, 0.05), parts, strict=False):
        part.step(np.ones(part.num_examples), sampling_probability=rate, steps=10)
    apart = [part.nonadaptive_epsilon(1e-5).tolist() for part in parts]
    merged = hs.IndividualAccountant.merge(parts)
    assert merged.nonadaptive_epsilon(1e-5).tolist() == [epsilon for part in apart for epsilon in part]


@pytest.mark.parametrize("on_disk", [False, True])
def test_shards_are_the_whole(folds: None, on_disk: bool, tmp_path: Path) -> None:
    """Shards in memory and on disk, merged into memory or onto the disk; the whole goes on from there."""
    whole = make(40)
    parts = [make(25), make(15, path=tmp_path / "part")]
    run(whole, range(10))
    run(parts[0], range(10))
    run(parts[1], range(10), offset=25)
    where = {"path": tmp_path / "whole"} if on_disk else {}
    merged = hs.IndividualAccountant.merge(parts, **where)
    parts[1].close()
    assert state(merged) == state(whole)
    run(merged, range(10, 13))
    run(whole, range(10, 13))
    assert state(merged) == state(whole)
    if on_disk:
        merged.close()
        merged = hs.IndividualAccountant.open(tmp_path / "whole")
        assert state(merged) == state(whole)
    merged.close()


def test_whatever_a_killed_process_leaves_is_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before a step took its name, before a snapshot did, and before the old steps were removed."""
    path = tmp_path / "accountant"
    disk = make(40, path=path)
    run(disk, range(6))
    expected = state(disk)
    disk.close()
    (path / ".step-000000000099.abc").write_bytes(b"half of a step")
    (path / ".state.abc").write_bytes(b"half of a snapshot")
    disk = hs.IndividualAccountant.open(path)
    assert state(disk) == expected
    assert not list(path.glob(".*"))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        disk._state.fold()  # type: ignore[attr-defined]
    left = sorted(entry.name for entry in path.glob("step-*"))
    assert len(left) == 6
    assert state(disk) == expected
    disk.close()
    for _ in range(2):
        disk = hs.IndividualAccountant.open(path)
        assert state(disk) == expected
        assert not list(path.glob("step-*"))
        disk.close()


def test_an_exception_within_a_step_asks_to_open_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the step has happened only the disk knows: going on could overwrite it."""
    path = tmp_path / "accountant"
    disk = make(2, path=path)
    write = storage.write

    def interrupt(*arguments: object, **named: object) -> None:
        write(*arguments, **named)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(storage, "write", interrupt)
        with pytest.raises(KeyboardInterrupt):
            disk.step([1.0, 1.0])
    with pytest.raises(hs.StorageError, match="open it again"):
        disk.step([1.0, 1.0])
    with pytest.raises(hs.StorageError, match="open it again"):
        disk.nonadaptive_epsilon(1e-5)
    disk.close()
    disk = hs.IndividualAccountant.open(path)
    assert disk.steps == 1
    disk.close()


def test_counters_are_wide_enough_wherever_ctrl_c_comes() -> None:
    """A count without its step: the next one would begin again at 0."""

    def full() -> hs.IndividualAccountant:
        accountant = hs.IndividualAccountant(2, **SETTINGS, fine=8, coarse=2)
        accountant.step([1.0, 0.0], steps=65534)
        return accountant

    for accountant in interrupted_everywhere(("histories.py",), full, lambda it: it.step([1.0, 0.0])):
        before, made = accountant.steps, sum(count for _, count in accountant.history(0))
        assert 65534 <= made <= before
        accountant.step([1.0, 0.0])
        assert sum(count for _, count in accountant.history(0)) == made + 1
    # By whatever way: a counter never wraps.
    with pytest.raises(OverflowError, match="full"):
        _core.count_cells(np.ones(3, np.uint16), 1, np.array([[0], [65535], [0]], np.uint16))


def test_damage_is_found(tmp_path: Path) -> None:
    path = tmp_path / "accountant"
    disk = make(40, path=path)
    run(disk, range(3))
    disk._state.fold()  # type: ignore[attr-defined]
    run(disk, range(4, 9))
    disk.close()
    names = sorted(entry.name for entry in path.iterdir() if entry.name != "lock")
    for name in names:
        good = (path / name).read_bytes()
        for place in (30, 4100):
            if place >= len(good):
                continue
            (path / name).write_bytes(good[:place] + bytes([good[place] ^ 4]) + good[place + 1 :])
            with pytest.raises(hs.StorageError, match="cannot load"):
                hs.IndividualAccountant.open(path)
        (path / name).write_bytes(good)
    # A step in the middle is gone.
    steps = [name for name in names if name.startswith("step-")]
    (path / steps[1]).rename(tmp_path / "elsewhere")
    with pytest.raises(hs.StorageError, match="missing"):
        hs.IndividualAccountant.open(path)
    (tmp_path / "elsewhere").rename(path / steps[1])
    hs.IndividualAccountant.open(path).close()
    with pytest.raises(FileNotFoundError):
        hs.IndividualAccountant.open(tmp_path / "none")


def test_bad_norms_leave_the_disk_alone(tmp_path: Path) -> None:
    path = tmp_path / "accountant"
    disk = make(2, path=path)
    with pytest.raises(hs.ParameterError, match="norms"):
        disk.step([1.0, float("nan")])
    disk.step([1.0, 1.0], steps=0)
    assert disk.steps == 0
    assert not list(path.glob("step-*"))
    disk.close()


TRAINING = """
import os, sys
from pathlib import Path
import numpy as np
import hockeystick as hs
from hockeystick.individual import histories

histories.LiveHistories.FOLD = 5
folder, steps, n = Path(sys.argv[1]), int(sys.argv[2]), 20_000
path = folder / "accountant"
if path.exists():
    accountant = hs.IndividualAccountant.open(path)
else:
    accountant = hs.IndividualAccountant(n, noise_multiplier=1.0, sampling_probability=0.01, clipping_norm=1.0, path=path)
model = folder / "model.npy"
done = int(np.load(model)) if model.exists() else 0
print("ready", flush=True)
while done < steps:
    assert accountant.steps in (done, done + 1)
    if accountant.steps == done:  # else killed between the record and the model: not counted twice
        accountant.step(np.random.default_rng([done, 3]).random(n) * 1.2)
    done += 1
    with open(folder / "model.tmp", "wb") as file:
        np.save(file, np.array(done))
    os.replace(folder / "model.tmp", model)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_killed_training_resumes(tmp_path: Path) -> None:
    """kill -9 again and again, also while steps are folded: nothing is lost, nothing is counted twice."""
    steps = 60
    command = [sys.executable, "-c", TRAINING]
    whole = hs.IndividualAccountant(
        20_000, noise_multiplier=1.0, sampling_probability=0.01, clipping_norm=1.0
    )
    for step in range(steps):
        whole.step(np.random.default_rng([step, 3]).random(20_000) * 1.2)
    killed_again_and_again([*command, str(tmp_path), str(steps)], 6, 0.1, 0.01)
    resumed = hs.IndividualAccountant.open(tmp_path / "accountant")
    assert resumed.steps == steps
    everybody = slice(0, 20_000)
    assert (resumed._state.rows(0.01, everybody) == whole._state.rows(0.01, everybody)).all()
    resumed.close()
    assert sorted(os.listdir(tmp_path)) == ["accountant", "model.npy"]


def test_any_number_of_sampling_probabilities(tmp_path: Path) -> None:
    """Each has counts of its own, which the header describes: it was too short for 40."""
    accountant = hs.IndividualAccountant(
        3, noise_multiplier=2.0, sampling_probability=0.1, clipping_norm=1.0, fine=4, coarse=1
    )
    for q in np.linspace(0.001, 0.1, 40):
        accountant.step([0.1, 0.0, 2.0], sampling_probability=float(q))
    accountant.save(tmp_path / "saved")
    again = hs.IndividualAccountant.load(tmp_path / "saved")
    merged = hs.IndividualAccountant.merge([accountant, again], path=tmp_path / "live")
    epsilon = accountant.epsilon(1e-5)
    assert np.array_equal(again.epsilon(1e-5), epsilon)
    [(_, own)], [(_, counts)] = accountant._blocks(None), merged._blocks(None)
    assert np.array_equal(counts, np.tile(own, (2, 1)))
    # Sums of products of these, which libraries add up in another order for other numbers of rows.
    assert merged.epsilon(1e-5) == pytest.approx(np.tile(epsilon, 2), rel=1e-14)
    merged.close()


def test_a_step_without_memory_has_not_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    accountant = make(2)
    accountant.step([1.0, 0.5])
    before = accountant.steps, accountant.nonadaptive_epsilon(1e-5).tolist()

    def no_memory(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(histories.np, "zeros", no_memory)
        with pytest.raises(MemoryError):
            accountant.step([1.0, 0.5], sampling_probability=0.2)
    assert (accountant.steps, accountant.nonadaptive_epsilon(1e-5).tolist()) == before
    accountant.step([1.0, 0.5], sampling_probability=0.2)
    assert accountant.steps == before[0] + 1


def test_a_file_that_an_editor_left_is_named(tmp_path: Path) -> None:
    make(2, path=tmp_path / "accountant").close()
    (tmp_path / "accountant" / "step-000000000001~").write_bytes(b"")
    with pytest.raises(hs.StorageError, match="step-000000000001~"):
        hs.IndividualAccountant.open(tmp_path / "accountant")


def test_a_step_of_other_histories_is_refused(tmp_path: Path) -> None:
    for name, norm in (("mine", 1.0), ("other", 0.0)):
        kept = hs.IndividualAccountant(
            3, noise_multiplier=1.0, sampling_probability=0.1, clipping_norm=1.0, path=tmp_path / name
        )
        kept.step([norm] * 3)
        kept.close()
    (file,) = (tmp_path / "other").glob("step-*")
    shutil.copy(file, tmp_path / "mine" / file.name)
    with pytest.raises(hs.StorageError, match="other histories"):
        hs.IndividualAccountant.open(tmp_path / "mine")


@pytest.mark.parametrize(
    ("changed", "cells", "message"),
    [
        ({}, lambda _: np.ones(3, np.int32), "number of examples"),
        ({}, lambda _: np.ones(2, np.uint16), "number of examples"),
        ({}, lambda last: np.full(3, last + 1, np.uint16), "past the last column"),
        ({"times": 0}, lambda _: np.ones(3, np.uint16), "times = 0"),
        ({"q": 1.5}, lambda _: np.ones(3, np.uint16), "sampling_probability = 1.5"),
        ({"q": 0.0}, lambda _: np.ones(3, np.uint16), "number of examples"),
        ({"before": -1}, lambda _: np.ones(3, np.uint16), "a step before it is missing"),
        ({"before": 1}, lambda _: np.ones(3, np.uint16), "a step before it is missing"),
    ],
)
def test_a_step_that_does_not_fit_is_refused(
    changed: dict[str, object], cells: Callable[[int], np.ndarray], message: str, tmp_path: Path
) -> None:
    """Its checksum is right: fewer examples, or a step that repeats nothing, would be less than was spent."""
    path = tmp_path / "accountant"
    kept = hs.IndividualAccountant(
        3, noise_multiplier=1.0, sampling_probability=0.1, clipping_norm=1.0, path=path
    )
    kept.step([1.0] * 3)
    last = kept._state.columns
    kept.close()
    (file,) = path.glob("step-*")
    content, _ = storage.read(file, histories._STEP_KIND)
    storage.write(file, histories._STEP_KIND, {**content, **changed}, {"cells": cells(last)})
    with pytest.raises(hs.StorageError, match=message):
        hs.IndividualAccountant.open(path)


@pytest.mark.parametrize(
    ("gone", "message"), [(0, "it follows 1 steps"), (1, "it follows 2"), (2, "there were 3, and 2 are left")]
)
def test_a_step_that_is_gone_is_missed(gone: int, message: str, tmp_path: Path) -> None:
    path = tmp_path / "accountant"
    kept = hs.IndividualAccountant(
        3, noise_multiplier=1.0, sampling_probability=0.1, clipping_norm=1.0, path=path
    )
    for _ in range(3):
        kept.step([1.0] * 3)
    kept.close()
    files = sorted(path.glob("step-*"))
    files[gone].unlink()
    with pytest.raises(hs.StorageError, match=message):
        hs.IndividualAccountant.open(path)


def test_a_step_counts_once_whatever_its_file_is_called(tmp_path: Path) -> None:
    path = tmp_path / "accountant"
    kept = hs.IndividualAccountant(
        3, noise_multiplier=1.0, sampling_probability=0.1, clipping_norm=1.0, path=path
    )
    kept.step([1.0] * 3)
    kept.close()
    (file,) = path.glob("step-*")
    shutil.copy(file, path / "step-000000000002")
    with pytest.raises(hs.StorageError, match="it follows 0 steps"):
        hs.IndividualAccountant.open(path)


def test_an_exception_right_after_a_step_has_its_name_asks_to_open_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write = tmp_path / "accountant", storage.write
    kept = hs.IndividualAccountant(
        3, noise_multiplier=1.0, sampling_probability=0.1, clipping_norm=1.0, path=path
    )

    def interrupted(*given: Any, **options: Any) -> None:
        write(*given, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(storage, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            kept.step([1.0] * 3)
    with pytest.raises(hs.StorageError, match="open it again"):
        kept.step([1.0] * 3)
    kept.close()
    kept = hs.IndividualAccountant.open(path)
    assert kept.steps == 1
    kept.close()
