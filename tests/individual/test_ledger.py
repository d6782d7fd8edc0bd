"""State on disk: snapshots, shards, and ledgers of processes that are killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import hockeystick as hs
import numpy as np
import pytest
from hockeystick._base import storage
from hockeystick.individual import ledger

from tests.anywhere import killed_again_and_again

Filter = hs.IndividualGDPFilter | hs.individual.IndividualRDPFilter | hs.individual.IndividualGDPOdometer


def run(filt: Filter, steps: range, offset: int = 0) -> None:
    """Some steps of a deterministic run, by index and on everybody."""
    for step in steps:
        rng = np.random.default_rng([step, 7])
        norms = rng.random(40) * 0.4
        part = slice(offset, offset + filt.num_examples)
        if step % 3:
            filt.step(norms[part])
        else:
            batch = np.flatnonzero(rng.random(40) < 0.5)
            mine = batch[(batch >= offset) & (batch < part.stop)]
            filt.step(norms[mine], indices=mine - offset)


MAKE = [
    lambda n, **path: hs.IndividualGDPFilter(n, mu=1.0, **path),
    lambda n, **path: hs.individual.IndividualRDPFilter(n, order=4.0, rho=2.0, **path),
    lambda n, **path: hs.individual.IndividualGDPOdometer(n, increment=0.3, **path),
]


@pytest.mark.parametrize("make", MAKE)
def test_snapshot_resumes(make, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    whole, first = make(40), make(40)
    run(whole, range(30))
    run(first, range(11))
    first.save(tmp_path / "state")
    second = type(first).load(tmp_path / "state")
    run(second, range(11, 30))
    assert second.spent.tobytes() == whole.spent.tobytes()
    assert second.active_counts().tolist() == whole.active_counts().tolist()
    assert second.steps == 30
    assert repr(second) == repr(whole)


@pytest.mark.parametrize("make", MAKE)
@pytest.mark.parametrize("on_disk", [False, True])
def test_shards_are_the_whole(make, on_disk: bool, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """In memory or on disk, from shards here and there; the whole goes on from there, and is resumed."""
    whole, parts = make(40), [make(25), make(15, path=tmp_path / "part")]
    run(whole, range(20))
    run(parts[0], range(20))
    run(parts[1], range(20), offset=25)
    merged = type(whole).merge(parts, path=tmp_path / "whole") if on_disk else type(whole).merge(parts)
    parts[1].close()
    with pytest.raises(hs.StorageError, match="is closed"):
        type(whole).merge(parts)
    for steps in (range(20, 21), range(21, 25)):
        assert merged.spent.tobytes() == whole.spent.tobytes()
        assert merged.active_counts().tolist() == whole.active_counts().tolist()
        assert merged.steps == whole.steps
        if on_disk:
            merged.close()
            merged = type(whole).open(tmp_path / "whole")
        run(merged, steps)
        run(whole, steps)
    assert merged.spent.tobytes() == whole.spent.tobytes()
    assert merged.active_counts().tolist() == whole.active_counts().tolist()
    assert merged.steps == 25
    if on_disk:
        with pytest.raises(hs.ParameterError, match="exists already"):
            type(whole).merge([merged], path=tmp_path / "whole")
    merged.close()


def test_closed_is_closed(tmp_path: Path) -> None:
    """Another process may have it by now: nothing is written, and nothing is answered from nothing."""
    disk = hs.IndividualGDPFilter(3, mu=1.0, path=tmp_path / "ledger")
    disk.step([0.5, 0.5, 0.5])
    disk.close()
    for attempt in (
        lambda: disk.step(0.1),
        lambda: disk.save(tmp_path / "copy"),
        disk.active_counts,
    ):
        with pytest.raises(hs.StorageError, match="is closed"):
            attempt()
    disk = hs.IndividualGDPFilter.open(tmp_path / "ledger")
    assert disk.steps == 1
    disk.close()


def test_shards_must_fit() -> None:
    one, other = hs.IndividualGDPFilter(2, mu=1.0), hs.IndividualGDPFilter(2, mu=2.0)
    with pytest.raises(hs.ParameterError, match="budgets differ"):
        hs.IndividualGDPFilter.merge([one, other])
    other = hs.IndividualGDPFilter(2, mu=1.0)
    other.step([0.1, 0.1])
    with pytest.raises(hs.ParameterError, match="0 and 1 steps"):
        hs.IndividualGDPFilter.merge([one, other])
    with pytest.raises(hs.ParameterError, match="1 and 0 steps"):
        hs.IndividualGDPFilter.merge([other, one])
    with pytest.raises(hs.ParameterTypeError, match="parts"):
        hs.IndividualGDPFilter.merge([])


@pytest.mark.parametrize("make", MAKE)
@pytest.mark.parametrize("durable", [False, True])
def test_ledger_on_disk_is_the_same(make, durable: bool, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "ledger"
    memory, disk = make(40), make(40, path=path, durable=durable)
    run(memory, range(10))
    run(disk, range(10))
    with pytest.raises(hs.StorageError, match="another process"):
        type(disk).open(path)
    disk.close()
    again = type(disk).open(path)
    assert again.steps == 10
    assert again.last_step is not None
    assert memory.last_step is not None
    assert again.last_step.active.tolist() == memory.last_step.active.tolist()
    run(memory, range(10, 20))
    run(again, range(10, 20))
    assert again.spent.tobytes() == memory.spent.tobytes()
    assert again.active_counts().tolist() == memory.active_counts().tolist()
    again.save(tmp_path / "copy")
    assert type(disk).load(tmp_path / "copy").spent.tobytes() == memory.spent.tobytes()
    again.close()
    with pytest.raises(hs.ParameterError, match="exists already"):
        make(40, path=path)


def test_an_interrupted_step_is_made_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a killed process leaves behind between two system calls, opening repairs it."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "ledger"
    disk = hs.IndividualGDPFilter(40, mu=1.0, path=path)
    run(disk, range(6))
    before = disk.spent.copy()
    # Killed before the journal had its name: the step has not happened.
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupt)
        # What an exception cleans up, a killed process leaves behind.
        patch.setattr(os, "unlink", lambda _: None)
        with pytest.raises(KeyboardInterrupt):
            disk.step(np.full(40, 0.2))
    assert list(path.glob(".*"))
    disk.close()
    disk = hs.IndividualGDPFilter.open(path)
    assert disk.spent.tobytes() == before.tobytes()
    assert disk.steps == 6
    # Killed when half of the values were copied: the step has happened.
    run(disk, range(6, 7))
    assert not list(path.glob(".*"))
    whole = disk.spent.copy()
    disk.close()
    state = (path / "state").read_bytes()
    offset = json.loads(state[:4096])["arrays"][0]["offset"]
    with open(path / "state", "r+b") as file:
        file.seek(offset)
        file.write(before[:17].tobytes())
    with open(path / "active", "r+b") as file:
        file.truncate(8 * 6)
    for _ in range(2):  # twice is once
        disk = hs.IndividualGDPFilter.open(path)
        assert disk.spent.tobytes() == whole.tobytes()
        assert disk.steps == 7
        assert disk.active_counts().size == 7
        disk.close()


@pytest.mark.parametrize("journal_first", [False, True])
def test_an_exception_within_a_step_asks_to_open_again(
    journal_first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Going on as if nothing had happened could lose a charge, also right after the journal has its name: the step has happened then."""
    path, write = tmp_path / "ledger", ledger.storage.write
    disk = hs.IndividualGDPFilter(4, mu=1.0, path=path)
    disk.step(np.full(4, 0.1))

    def interrupt(*given: Any, **options: Any) -> None:
        if journal_first:
            write(*given, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if journal_first:
            patch.setattr(ledger.storage, "write", interrupt)
        else:
            patch.setattr(ledger.LiveLedger, "_apply", interrupt)
        with pytest.raises(KeyboardInterrupt):
            disk.step(np.full(4, 0.2))
    with pytest.raises(hs.StorageError, match="open it again"):
        disk.step(np.full(4, 0.3))
    disk.close()
    disk = hs.IndividualGDPFilter.open(path)
    assert disk.steps == 2
    assert (disk.spent >= 0.05).all()
    disk.close()


TRAINING = """
import os, sys
from pathlib import Path
import numpy as np
import hockeystick as hs

folder, steps, n = Path(sys.argv[1]), int(sys.argv[2]), 50_000
path = folder / "ledger"
if path.exists():
    filt = hs.IndividualGDPFilter.open(path)
else:
    scratch = folder / f"new{os.getpid()}"
    hs.IndividualGDPFilter(n, mu=1.0, path=scratch).close()
    os.rename(scratch, path)
    filt = hs.IndividualGDPFilter.open(path)
model = folder / "model.npy"
theta = np.load(model) if model.exists() else np.zeros(2)
print("ready", flush=True)
while True:
    done = int(theta[1])
    if done == steps:
        break
    rng = np.random.default_rng([done, 3])
    norms = rng.random(n) * 0.2
    if filt.steps == done:
        active = filt.step(norms)
    else:  # killed between the ledger and the model: the same step with the same noise is not paid twice
        assert filt.steps == done + 1
        active = filt.last_step.active
    theta = np.array([theta[0] + norms[active].sum() + rng.standard_normal(), done + 1])
    with open(folder / "model.tmp", "wb") as file:
        np.save(file, theta)
    os.replace(folder / "model.tmp", model)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_killed_training_resumes(tmp_path: Path) -> None:
    """kill -9 again and again: nothing is lost, nothing is counted twice, the model is the same."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    steps = 60
    command = [sys.executable, "-c", TRAINING]
    subprocess.run([*command, str(tmp_path / "a"), str(steps)], check=True, timeout=120)
    killed_again_and_again([*command, str(tmp_path / "b"), str(steps)], 5, 0.06, 0.01)
    results = []
    for name in ("a", "b"):
        filt = hs.IndividualGDPFilter.open(tmp_path / name / "ledger")
        model = np.load(tmp_path / name / "model.npy")
        results.append((filt.spent.tobytes(), filt.active_counts().tolist(), model.tobytes(), filt.steps))
        filt.close()
    assert results[0] == results[1]
    assert results[0][3] == steps


def test_damage_is_found(tmp_path: Path) -> None:
    path = tmp_path / "state"
    filt = hs.IndividualGDPFilter(1000, mu=1.0)
    filt.step(np.full(1000, 0.1))
    filt.save(path)
    good = path.read_bytes()
    for place in (3, 200, 5000, len(good) // 2):
        path.write_bytes(good[:place] + bytes([good[place] ^ 4]) + good[place + 1 :])
        with pytest.raises(hs.StorageError, match="cannot load"):
            hs.IndividualGDPFilter.load(path)
    path.write_bytes(good[:100])
    with pytest.raises(hs.StorageError, match="cannot load"):
        hs.IndividualGDPFilter.load(path)
    path.write_bytes(good)
    with pytest.raises(hs.StorageError, match="wanted: individual RDP filter"):
        hs.individual.IndividualRDPFilter.load(path)
    with pytest.raises(FileNotFoundError):
        hs.IndividualGDPFilter.load(tmp_path / "none")
    header = json.loads(good[:4096])
    header["version"] = storage.VERSION + 1
    path.write_bytes(json.dumps(header).encode().ljust(4096) + good[4096:])
    with pytest.raises(hs.StorageError, match="upgrade"):
        hs.IndividualGDPFilter.load(path)


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state"
    filt = hs.IndividualGDPFilter(10, mu=1.0)
    filt.save(path)
    before = path.read_bytes()
    filt.step(np.full(10, 0.1))

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        filt.save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"]


def test_step_with_bad_norms_leaves_the_disk_alone(tmp_path: Path) -> None:
    disk = hs.IndividualGDPFilter(3, mu=1.0, path=tmp_path / "ledger")
    disk.step([0.5, 0.5, 0.5])
    with pytest.raises(hs.ParameterError, match="norms"):
        disk.step([0.1, 0.1, float("nan")])
    disk.close()
    disk = hs.IndividualGDPFilter.open(tmp_path / "ledger")
    assert disk.spent.tolist() == [0.25, 0.25, 0.25]
    assert disk.steps == 1
    disk.close()


def test_a_journal_of_another_ledger_is_refused(tmp_path: Path) -> None:
    """It would put what others have spent in the place of what these have, with checksums that fit."""
    for name, norm in (("mine", 1.0), ("other", 0.0)):
        filt = hs.IndividualGDPFilter(3, mu=2.0, path=tmp_path / name)
        filt.step([norm] * 3)
        filt.close()
    shutil.copy(tmp_path / "other" / "journal", tmp_path / "mine" / "journal")
    with pytest.raises(hs.StorageError, match="another ledger"):
        hs.IndividualGDPFilter.open(tmp_path / "mine")


def test_a_ledger_that_was_put_back_is_refused(tmp_path: Path) -> None:
    """All of its files but the lock are those of a step before: each fits the others."""
    path, names = tmp_path / "ledger", ("state", "journal", "active")
    filt = hs.IndividualGDPFilter(3, mu=1.0, path=path)
    filt.step([0.5, 0.5, 0.5])
    filt.close()
    earlier = {name: (path / name).read_bytes() for name in names}
    filt = hs.IndividualGDPFilter.open(path)
    filt.step([0.5, 0.5, 0.5])
    filt.close()
    for name, data in earlier.items():
        (path / name).write_bytes(data)
    with pytest.raises(hs.StorageError, match="there were 2, and 1 are left"):
        hs.IndividualGDPFilter.open(path)


def test_a_store_stays_where_it_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two under the same relative name, of two directories: neither writes into the other's."""
    kept = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        kept.append(hs.IndividualGDPFilter(2, mu=1.0, path="store"))
    kept[0].step([0.5, 0.5])
    for each in kept:
        each.close()
    for name, steps in (("a", 1), ("b", 0)):
        found = hs.IndividualGDPFilter.open(tmp_path / name / "store")
        assert found.steps == steps
        found.close()


def test_what_two_copies_of_a_filter_released_is_not_to_be_recorded_there(tmp_path: Path) -> None:
    """A filter that is loaded anew refuses it, and then it counts nowhere."""
    filt = hs.IndividualGDPFilter(1, mu=1.0)
    filt.save(tmp_path / "f")
    one, two = (hs.IndividualGDPFilter.load(tmp_path / "f") for _ in range(2))
    assert one.step([0.9]).all()
    assert two.step([0.9]).all()
    one.save(tmp_path / "f")
    with pytest.raises(hs.StorageError, match="must be counted beside it"):
        two.save(tmp_path / "f")
    assert not hs.IndividualGDPFilter.load(tmp_path / "f").step([0.9]).any()
