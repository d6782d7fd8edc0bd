"""Full disks, umasks, symbolic links, and what killed processes leave behind: for every store alike."""

import errno
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hockeystick as hs
import numpy as np
import pytest
from hockeystick._base import storage
from hockeystick._base.files import replacing

SETTINGS = {"noise_multiplier": 2.0, "sampling_probability": 0.1, "clipping_norm": 1.0}
STORES: dict[str, Callable[..., Any]] = {
    "filter": lambda n, **how: hs.IndividualGDPFilter(n, mu=1.0, **how),
    "odometer": lambda n, **how: hs.individual.IndividualGDPOdometer(n, increment=0.3, **how),
    "accountant": lambda n, **how: hs.IndividualAccountant(n, **SETTINGS, **how),
    "approximate filter": lambda n, **how: hs.individual.ApproximateIndividualFilter(
        n, epsilon=1.0, delta=1e-5, **SETTINGS, **how
    ),
}


def saves(folder: Path) -> dict[str, Callable[[], object]]:
    """Everything that writes a file of that name."""
    strategy = hs.BandedToeplitz.square_root(6, 2)
    plan = hs.plan_training(hs.Poisson(6, 0.3), 20, noise_multiplier=0.9, delta=1e-3)
    return {
        "snapshot": lambda: hs.IndividualGDPFilter(5, mu=1.0).save(folder / "snapshot"),
        "histories": lambda: hs.IndividualAccountant(5, **SETTINGS).save(folder / "histories"),
        "noise": lambda: hs.CorrelatedNoise(strategy, 3, 1.0, clipping_norm=1.0, seed=4).save(
            folder / "noise"
        ),
        "accountant": lambda: hs.Accountant().save(folder / "accountant"),
        "plan": lambda: plan.save(folder / "plan"),
        "report.json": lambda: plan.start(3, clipping_norm=1.0, seed=5).report().write(folder),
    }


@pytest.fixture
def no_umask() -> Any:
    old = os.umask(0)
    yield
    os.umask(old)


def modes(path: Path) -> dict[str, int]:
    found = [path, *path.rglob("*")]
    return {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in found}


@pytest.mark.usefixtures("no_umask")
@pytest.mark.parametrize("name", STORES)
def test_stores_are_their_owners_only(name: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    kept = STORES[name](4, path=path)
    kept.step(np.full(4, 0.1))
    if not hasattr(kept, "spent"):
        kept._state.fold()
        kept.step(np.full(4, 0.1))
    kept.close()
    for entry, mode in modes(path).items():
        assert mode == (0o700 if entry == "store" else 0o600), entry


@pytest.mark.parametrize("name", ["snapshot", "histories", "noise", "accountant", "plan"])
def test_a_path_that_no_file_can_have_is_named_as_it_was_given(name: str, tmp_path: Path) -> None:
    """The error was about a temporary name, such as /missing/.ledger.dsqk399s.part."""
    with pytest.raises(
        FileNotFoundError, match=re.escape(f"path {tmp_path / 'missing' / name}: there is no")
    ):
        saves(tmp_path / "missing")[name]()
    (tmp_path / name).mkdir()
    with pytest.raises(hs.ParameterError, match="must be a file, not a folder"):
        saves(tmp_path)[name]()
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


@pytest.mark.usefixtures("no_umask")
def test_runs_and_saved_files_are_their_owners_only(tmp_path: Path) -> None:
    plan = hs.plan_training(hs.Poisson(6, 0.3), 20, noise_multiplier=0.9, delta=1e-3)
    plan.start(3, clipping_norm=1.0, path=tmp_path / "run").close()
    for entry, mode in modes(tmp_path / "run").items():
        assert mode == (0o700 if entry == "run" else 0o600), entry
    for save in saves(tmp_path).values():
        save()
    assert {mode for name, mode in modes(tmp_path).items() if (tmp_path / name).is_file()} == {0o600}


@pytest.mark.sweep
@pytest.mark.parametrize("name", saves(Path()))
def test_saving_through_a_symbolic_link_writes_its_target(name: str, tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "folder", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    save = saves(folder)[name]
    for there_already in (False, True):
        if there_already:
            (elsewhere / "file").write_bytes(b"old")
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to("../elsewhere/file")
        save()
        assert (folder / name).is_symlink()
        assert (elsewhere / "file").stat().st_size > 10
        (elsewhere / "file").unlink()
        assert not list(elsewhere.iterdir())


def test_a_store_behind_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    hs.IndividualGDPFilter(4, mu=1.0, path=tmp_path / "link").close()
    assert (tmp_path / "link").is_symlink()
    hs.IndividualGDPFilter.open(tmp_path / "target").close()
    with pytest.raises(hs.ParameterError, match="exists already"):
        hs.IndividualGDPFilter(4, mu=1.0, path=tmp_path / "link")


@pytest.mark.parametrize("moved", ["link", "directory"])
def test_a_name_that_leads_elsewhere_by_now_is_not_written(
    moved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger there is another one, whose steps would be gone."""
    for name, steps in (("one", 1), ("two", 100)):
        (tmp_path / name).mkdir()
        other = hs.Accountant()
        other.step(hs.Gaussian(1.0), steps)
        other.save(tmp_path / name / "ledger")
    monkeypatch.chdir(tmp_path / "one")
    latest = tmp_path / "latest"
    latest.symlink_to("one")
    name = Path("ledger") if moved == "directory" else latest / "ledger"
    mine = hs.Accountant.load(name)
    latest.unlink()
    latest.symlink_to("two")
    monkeypatch.chdir(tmp_path / "two")
    with pytest.raises(hs.StorageError, match="not the one that was loaded"):
        mine.save(name)
    assert hs.Accountant.load(tmp_path / "two" / "ledger").process.steps == 100


KILLED = """
import os, signal, sys
import hockeystick as hs
what, name = sys.argv[1:]
setattr(os, name, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
if what == "directory":
    hs.IndividualGDPFilter(5, mu=1.0, path="store")
elif what == "snapshot":
    hs.IndividualGDPFilter(5, mu=1.0).save("store")
else:
    hs.Accountant().save("store")
"""


@pytest.mark.parametrize("what", ["directory", "snapshot", "archive"])
def test_what_killed_saves_leave_is_removed(what: str, tmp_path: Path) -> None:
    """By the next one of the same name; files of others, and of those at work, stay."""
    name = "rename" if what == "directory" else "replace"
    # Directories hold files that take their names first.
    for _ in range(2):
        killed = subprocess.run(
            [sys.executable, "-c", KILLED, what, name], cwd=tmp_path, timeout=120, check=False
        )
        assert killed.returncode == -signal.SIGKILL
    left = list(tmp_path.iterdir())
    assert len(left) == 1  # the second removed what the first had left
    others = [".store.backup", ".store.12345678", ".store2.12345678.part", ".store.123456789.part"]
    for other in others:
        (tmp_path / other).write_bytes(b"of somebody else")
    with replacing(tmp_path / "store.at-work") as _, replacing(tmp_path / "other"):
        pass
    (tmp_path / "other").unlink()
    (tmp_path / "store.at-work").unlink()
    if what == "directory":
        hs.IndividualGDPFilter(5, mu=1.0, path=tmp_path / "store").close()
    else:
        hs.Accountant().save(tmp_path / "store")
    assert {entry.name for entry in tmp_path.iterdir()} == {"store", *others}


def test_writers_of_one_name_do_not_remove_each_others_files(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with replacing(path) as first, replacing(path) as second:
        first.write(b"first")
        second.write(b"second")
    assert path.read_bytes() == b"first"  # the last to end
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def reading(kept: Any) -> Any:
    if not hasattr(kept, "spent"):
        found = kept._state
        return kept.steps, [found.rows(q, slice(None)).tolist() for q in found.probabilities]
    return kept.steps, kept.spent.tolist(), kept.active_counts().tolist()


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("by_index", [False, True])
def test_a_step_for_which_there_is_no_space_can_be_tried_again(
    name: str, by_index: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the system says so; nothing has changed then, and the same step works when there is space."""
    disk, memory = STORES[name](4, path=tmp_path / "store"), STORES[name](4)
    how = {"indices": [2]} if by_index and name in ("filter", "odometer") else {}
    norms = np.full(1 if how else 4, 0.1)
    disk.step(norms, **how)
    memory.step(norms, **how)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    points = [(os, "fsync"), (os, "replace"), (tempfile, "mkstemp")]
    if name in ("filter", "odometer"):
        points.append((os, "posix_fallocate"))
    elif by_index:  # nothing is chosen by index here: while steps are folded, instead
        monkeypatch.setattr(disk._state, "FOLD", 1)
    for module, function in points:
        before = reading(disk)
        with monkeypatch.context() as patch:
            patch.setattr(module, function, full)
            if function == "fsync":
                patch.setattr(storage, "_header", full)  # steps do not wait for the disk
            with pytest.raises(OSError, match="No space left"):
                disk.step(norms, **how)
        assert reading(disk) == before
        disk.step(norms, **how)
        memory.step(norms, **how)
        assert reading(disk) == reading(memory)
    disk.close()
    disk = type(memory).open(tmp_path / "store")
    assert reading(disk) == reading(memory)
    disk.close()


FULL = """
import os, sys
import numpy as np
import hockeystick as hs
n, indexed = 20_000, sys.argv[1] == "indexed"
norms = np.full(n, 0.1)
how = {"indices": np.arange(n)} if indexed else {}
filt = hs.IndividualGDPFilter(n, mu=1.0, path="ledger")
filt.step(norms, **how)
before = filt.spent.tolist()
failures = 0
for left in range(0, 400_000, 40_000):
    with open("filler", "wb", buffering=0) as filler:
        try:
            while filler.write(bytes(4096)):
                pass
        except OSError:
            pass
        size = filler.tell()
        filler.truncate(max(0, size - left))
    try:
        filt.step(norms, **how)
    except OSError:
        failures += 1
        assert filt.steps == 1 and filt.spent.tolist() == before
    else:
        break
    finally:
        os.unlink("filler")
assert failures > 2, failures
filt.close()
filt = hs.IndividualGDPFilter.open("ledger")
assert filt.steps == 2 and filt.active_counts().tolist() == [n, n], filt
print("fine")
"""


@pytest.mark.parametrize("which", ["all", "indexed"])
def test_a_full_disk_is_an_exception(which: str, tmp_path: Path) -> None:
    """On a real file system without space: the process lived until it wrote to its map of the journal, and was killed."""
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare")
    inside = 'mount -t tmpfs -o size=1300k none "$1" && cd "$1" && shift && exec "$@"'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", inside, "sh", str(tmp_path)]
    if subprocess.run([*command, "true"], capture_output=True, timeout=60, check=False).returncode:
        pytest.skip("may not mount a file system")
    done = subprocess.run(
        [*command, sys.executable, "-c", FULL, which],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr
