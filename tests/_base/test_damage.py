"""Whatever happens to the files of a store, what it reads is what was written, or a StorageError."""

import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import hockeystick as hs
import numpy as np
import pytest
from hockeystick._base.files import StoreLock
from hockeystick.montecarlo.tally import Tally

ACCOUNTANT = {
    "noise_multiplier": 2.0,
    "sampling_probability": 0.1,
    "clipping_norm": 1.0,
    "fine": 5,
    "coarse": 2,
}
FILTER = {
    "epsilon": 1.0,
    "delta": 1e-5,
    "noise_multiplier": 2.0,
    "sampling_probability": 0.1,
    "clipping_norm": 1.0,
}


class Store(NamedTuple):
    """``make`` writes a store to a path, calling ``moment`` whenever there is something to be kept; ``read`` opens it."""

    make: Callable[[Path, Callable[[], None]], None]
    read: Callable[[Path], Any]


def norms(step: int, size: int) -> Any:
    return np.random.default_rng([step, 3]).random(size) * 0.4


def charge(kept: Any, moment: Callable[[], None], size: int, last_by_index: bool) -> None:
    """Some steps of all examples and of some of them."""
    for step in range(5):
        moment()
        if (step % 2 == 0) is last_by_index:
            chosen = np.arange(step % 3, size, 2)
            kept.step(norms(step, chosen.size), indices=chosen)
        else:
            kept.step(norms(step, size))
    kept.close()


def reading_of_ledger(kind: Any, open_it: Callable[[Path], Any]) -> Callable[[Path], Any]:
    def read(path: Path) -> Any:
        kept = open_it(path)
        last = kept.last_step
        mask = None if last is None else (last.step, last.active.tolist())
        try:
            return repr(kept), kept.spent.tobytes(), kept.active_counts().tolist(), mask
        finally:
            kept.close()

    return read


def ledgers(size: int) -> Iterator[tuple[str, Store]]:
    kinds = {
        "gdp filter": (hs.IndividualGDPFilter, {"mu": 0.5}),
        "rdp filter": (hs.individual.IndividualRDPFilter, {"order": 4.0, "rho": 1.0}),
        "odometer": (hs.individual.IndividualGDPOdometer, {"increment": 0.3}),
    }
    for name, (kind, settings) in kinds.items():
        for by_index in (False, True) if name == "gdp filter" else (True,):

            def make(
                path: Path,
                moment: Callable[[], None],
                kind: Any = kind,
                settings: Any = settings,
                by_index: bool = by_index,
            ) -> None:
                charge(kind(size, path=path, **settings), moment, size, by_index)

            label = f"{name}, last step {'by index' if by_index else 'of all'}"
            yield label, Store(make, reading_of_ledger(kind, kind.open))

        def save(path: Path, moment: Callable[[], None], kind: Any = kind, settings: Any = settings) -> None:
            kept = kind(size, **settings)
            charge(kept, moment, size, False)
            kept.save(path)

        yield f"{name}, saved", Store(save, reading_of_ledger(kind, kind.load))


def reading_of_histories(open_it: Callable[[Path], Any]) -> Callable[[Path], Any]:
    def read(path: Path) -> Any:
        kept = open_it(path)
        try:
            found = kept._state
            counts = [
                (q, found.rows(q, slice(None)).astype(np.uint32).tobytes()) for q in found.probabilities
            ]
            decision = None if found.decision is None else [part.tobytes() for part in found.decision]
            return repr(kept), counts, found.active_counts, decision
        finally:
            kept.close()

    return read


def histories(size: int) -> Iterator[tuple[str, Store]]:
    kinds: dict[str, tuple[Any, dict[str, Any]]] = {
        "accountant": (hs.IndividualAccountant, ACCOUNTANT),
        "approximate filter": (hs.individual.ApproximateIndividualFilter, FILTER),
    }
    for name, (kind, settings) in kinds.items():
        for fold in (False, True):

            def make(
                path: Path,
                moment: Callable[[], None],
                kind: Any = kind,
                settings: Any = settings,
                fold: bool = fold,
            ) -> None:
                kept = kind(size, path=path, **settings)
                for step in range(4):
                    moment()
                    kept.step(norms(step, size))
                    if step == 1 or fold:
                        kept._state.fold()
                kept.close()

            yield (
                f"{name}, {'folded' if fold else 'with steps'}",
                Store(make, reading_of_histories(kind.open)),
            )

        def save(path: Path, _: Callable[[], None], kind: Any = kind, settings: Any = settings) -> None:
            kept = kind(size, **settings)
            kept.step(norms(0, size))
            kept.save(path)

        yield f"{name}, saved", Store(save, reading_of_histories(kind.load))


def of_training() -> Iterator[tuple[str, Store]]:
    plan = hs.plan_training(hs.Poisson(8, 0.3), 20, noise_multiplier=0.9, delta=1e-3)

    def make(path: Path, moment: Callable[[], None]) -> None:
        with plan.start(3, clipping_norm=1.0, seed=5, path=path) as run:
            for step in run:
                moment()
                _ = step.indices
                step.add_noise(np.zeros(3))
                if step.number == 5:
                    return

    def read(path: Path) -> Any:
        with plan.resume(path) as run:
            return repr(run), list(run._ledger._hashes), run._noise.seed

    yield "training run", Store(make, read)

    strategy = hs.BandedToeplitz.optimized(8, 2)

    def save_noise(path: Path, _: Callable[[], None]) -> None:
        noise = hs.CorrelatedNoise(strategy, 3, 1.0, clipping_norm=1.0, seed=4)
        noise.next()
        noise.save(path)

    scheme = hs.Poisson(8, 0.3)

    def save_batches(path: Path, _: Callable[[], None]) -> None:
        sampler = scheme.batches(20, 5)
        sampler.next()
        sampler.save(path)

    yield (
        "batches",
        Store(save_batches, lambda path: hs.sampling.BatchSampler.load(path, scheme).state_dict()),
    )
    yield "noise", Store(save_noise, lambda path: repr(hs.CorrelatedNoise.load(path, strategy).state()))
    yield (
        "plan",
        Store(lambda path, _: plan.save(path), lambda path: hs.training.TrainingPlan.load(path).fingerprint),
    )


def of_results() -> Iterator[tuple[str, Store]]:
    process = hs.PoissonSampled(hs.Gaussian(1.0), 0.1) * 10

    def accountant(path: Path, _: Callable[[], None]) -> None:
        kept = hs.Accountant()
        kept.step(process)
        kept.save(path)

    def profile(path: Path, _: Callable[[], None]) -> None:
        answers = hs.account(process)
        answers.epsilon(1e-5)
        answers.save(path)

    def tally(path: Path, _: Callable[[], None]) -> None:
        Tally({"seed": 1}, 1, [(0, 3)], [12345, 678]).save(path)

    yield "accountant of a run", Store(accountant, lambda path: repr(hs.Accountant.load(path)))
    yield "profile", Store(profile, lambda path: hs.PrivacyProfile.load(path).epsilon_bounds(1e-5))
    yield "tally", Store(tally, lambda path: Tally.load(path).__getstate__())


SMALL = [*ledgers(6), *histories(3), *of_training(), *of_results()]
LARGE = [*ledgers(50_000), *histories(2000)]


def files(path: Path) -> dict[str, bytes]:
    if path.is_file():
        return {"": path.read_bytes()}
    return {entry.name: entry.read_bytes() for entry in path.iterdir()}


def write(path: Path, content: bytes) -> None:
    """In place: some file systems wait for the disk where a file is emptied first."""
    with path.open("r+b" if path.exists() else "wb") as file:
        file.write(content)
        file.truncate()


def restore(path: Path, contents: dict[str, bytes]) -> None:
    if "" in contents:
        write(path, contents[""])
        return
    now = files(path)
    for name in now.keys() - contents.keys():
        (path / name).unlink()
    for name, content in contents.items():
        if now.get(name) != content:
            write(path / name, content)


def attempt(store: Store, path: Path, contents: dict[str, bytes], truth: Any, what: str) -> bool:
    """Whether these files are refused; otherwise they must be read as if nothing had happened."""
    restore(path, contents)
    try:
        found = store.read(path)
    except hs.StorageError:
        return True
    assert found == truth, what
    return False


def places(content: bytes) -> list[int]:
    """Every byte but those inside long runs of equal ones, of which some."""
    array = np.frombuffer(content, np.uint8)
    dull = np.ones(array.size, bool)
    for shift in range(1, 9):
        dull[shift:] &= array[shift:] == array[:-shift]
        dull[:shift] = False
    at = np.arange(array.size)
    return [int(i) for i in at[~dull | (at % 97 == 0)]]


def damaged(content: bytes, rng: np.random.Generator) -> Iterator[tuple[str, bytes]]:
    """Bytes changed, numbers overwritten, parts cut off and added."""
    for at in places(content):
        value = content[at] ^ (1 << int(rng.integers(8)))
        if content[at] not in (0, 255) and rng.random() < 0.2:
            value = int(rng.choice([0, 255]))
        yield f"byte {at} = {value}", content[:at] + bytes([value]) + content[at + 1 :]
    # Numbers come after the header, which is text.
    for at in range(4096 if len(content) > 4096 else 0, len(content) - 7, 8):
        if at % 97 and content[at : at + 8] == bytes(8):
            continue
        for number in (
            struct.pack("<d", float("nan")),
            struct.pack("<d", -1e9),
            struct.pack("<q", -1),
            bytes(8),
        ):
            if content[at : at + 8] != number:
                yield f"number at {at}", content[:at] + number + content[at + 8 :]
    for size in sorted({*range(0, len(content), 97), *range(max(0, len(content) - 40), len(content))}):
        yield f"cut to {size}", content[:size]
    for more in (b"\0", bytes(8), bytes(16), bytes(32), bytes(4096), b"\xff" * 40, content):
        yield f"{len(more)} bytes more", content + more
    yield "zeros", bytes(len(content))


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "store"), SMALL, ids=[name for name, _ in SMALL])
def test_every_damaged_byte_is_harmless_or_refused(name: str, store: Store, tmp_path: Path) -> None:
    path = tmp_path / "store"
    store.make(path, lambda: None)
    good, truth, rng = files(path), store.read(path), np.random.default_rng(len(name))
    assert store.read(path) == truth
    refused = 0
    for file, content in good.items():
        for what, bad in damaged(content, rng):
            refused += attempt(store, path, {**good, file: bad}, truth, f"{name}, {file}: {what}")
    assert refused > 100
    restore(path, good)
    assert store.read(path) == truth


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "store"), LARGE, ids=[name for name, _ in LARGE])
def test_damage_of_large_stores_is_found(name: str, store: Store, tmp_path: Path) -> None:
    path = tmp_path / "store"
    store.make(path, lambda: None)
    good, truth, rng = files(path), store.read(path), np.random.default_rng(len(name))
    for file, content in good.items():
        for _ in range(12):
            at, length = int(rng.integers(len(content))), int(2 ** rng.integers(0, 16))
            part = content[at : at + length]
            for what, bad in {
                "flipped": content[:at] + bytes([content[at] ^ 64]) + content[at + 1 :],
                "zeros": content[:at] + bytes(len(part)) + content[at + len(part) :],
                "lost": content[:at] + content[at + len(part) :],
                "cut": content[:at],
            }.items():
                attempt(store, path, {**good, file: bad}, truth, f"{name}, {file}: {what} at {at}, {length}")


STORES = [(name, store) for name, store in SMALL if "saved" not in name and name not in dict(of_results())]


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "store"), STORES, ids=[name for name, _ in STORES])
def test_missing_and_older_files_are_harmless_or_refused(name: str, store: Store, tmp_path: Path) -> None:
    """Each file gone, from each earlier moment, and from another store that did the same."""
    path, other, moments = tmp_path / "store", tmp_path / "other", list[dict[str, bytes]]()
    store.make(path, lambda: moments.append(files(path)))
    if path.is_file():
        return
    store.make(other, lambda: None)
    good, truth = files(path), store.read(path)
    for file in good:
        attempt(
            store, path, {key: good[key] for key in good if key != file}, truth, f"{name}: {file} is missing"
        )
    for moment in [*moments, files(other)]:
        for file in moment:
            attempt(store, path, {**good, file: moment[file]}, truth, f"{name}: {file} of another moment")
    # The other way round one file is newer: no step of that moment is lost.
    readings = []
    for moment in moments:
        restore(path, moment)
        readings.append(store.read(path))
    for at, moment in enumerate(moments):
        for file in good:
            restore(path, {**moment, file: good[file]})
            try:
                found = store.read(path)
            except hs.StorageError:
                continue
            assert found in [*readings[at:], truth], f"{name}: {file} is newer than moment {at}"


def test_a_short_ledger_is_not_filled_up_with_zeros(tmp_path: Path) -> None:
    """990 of 1000 examples forgot what they had spent."""
    path = tmp_path / "ledger"
    filt = hs.IndividualGDPFilter(1000, mu=1.0, path=path)
    filt.step(np.full(1000, 0.5))
    filt.step(np.full(10, 0.1), indices=np.arange(10))
    filt.close()
    with open(path / "state", "r+b") as file:
        file.truncate(4096 + 80)
    with pytest.raises(hs.StorageError, match="its size is not"):
        hs.IndividualGDPFilter.open(path)


@pytest.mark.parametrize("value", [0.0, float("nan"), -1e9])
def test_overwritten_values_are_found(value: float, tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    filt = hs.IndividualGDPFilter(1000, mu=1.0, path=path)
    filt.step(np.full(1000, 0.5))
    filt.step(np.full(10, 0.1), indices=np.arange(10))
    filt.close()
    with open(path / "state", "r+b") as file:
        file.seek(4096 + 8 * 500)
        file.write(struct.pack("<d", value))
    with pytest.raises(hs.StorageError, match=r"state.*checksum"):
        hs.IndividualGDPFilter.open(path)


def test_a_ledger_without_its_journal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    filt = hs.IndividualGDPFilter(10, mu=1.0, path=path)
    filt.step(np.full(10, 0.5))
    filt.close()
    (path / "journal").unlink()
    with pytest.raises(hs.StorageError, match="'journal' is missing"):
        hs.IndividualGDPFilter.open(path)


def test_lost_releases_of_a_run_are_noticed(tmp_path: Path) -> None:
    """Otherwise a step would be released again, with the same noise and another sum."""
    path, store = tmp_path / "run", dict(of_training())["training run"]
    store.make(path, lambda: None)
    with open(path / "ledger", "r+b") as file:
        file.truncate(32 * 3)
    with pytest.raises(hs.StorageError, match=r"there were 6, and 3 are left"):
        store.read(path)


def test_stores_of_the_first_format_are_refused_and_snapshots_are_read(tmp_path: Path) -> None:
    """Version 1 had checksums of another kind, and directories had no note of their steps."""
    filt = hs.IndividualGDPFilter(10, mu=1.0)
    filt.step(np.full(10, 0.5))
    filt.save(tmp_path / "new")
    old = of_version_1(tmp_path / "new")
    (tmp_path / "old").write_bytes(old)
    assert hs.IndividualGDPFilter.load(tmp_path / "old").spent.tobytes() == filt.spent.tobytes()
    (tmp_path / "old").write_bytes(old[:4100] + bytes([old[4100] ^ 1]) + old[4101:])
    with pytest.raises(hs.StorageError, match="cannot load"):
        hs.IndividualGDPFilter.load(tmp_path / "old")
    (tmp_path / "old").write_bytes(old[:-1])
    with pytest.raises(hs.StorageError, match="its size is not"):
        hs.IndividualGDPFilter.load(tmp_path / "old")
    for kind in (hs.IndividualGDPFilter, hs.IndividualAccountant):
        directory = tmp_path / kind.__name__
        directory.mkdir()
        (directory / "state").write_bytes(old)
        with pytest.raises(hs.StorageError, match="'lock' is missing, or it is older"):
            kind.open(directory)
        (directory / "lock").touch()
        with pytest.raises(hs.StorageError, match="or older than this format"):
            kind.open(directory)


def of_version_1(path: Path) -> bytes:
    """The same snapshot as the first format had it."""
    import json
    import zlib

    content = path.read_bytes()
    header = json.loads(content[:4096])
    del header["checksum"]
    header["version"] = 1
    for entry in header["arrays"]:
        size = int(np.prod(entry["shape"])) * np.dtype(entry["dtype"]).itemsize
        entry["checksum"] = zlib.crc32(content[entry["offset"] : entry["offset"] + size])
    text = json.dumps({**header, "checksum": zlib.crc32(json.dumps(header).encode())})
    return text.encode().ljust(4096) + content[4096:]


def test_a_lost_lock_is_refused(tmp_path: Path) -> None:
    StoreLock.create(tmp_path, 7)
    lock = StoreLock(tmp_path)
    lock.check(7)
    lock.note(8)
    with pytest.raises(hs.StorageError, match="there were 8, and 7 are left"):
        lock.check(7)
    lock.close()
    shutil.move(tmp_path / "lock", tmp_path / "elsewhere")
    with pytest.raises(hs.StorageError, match="'lock' is missing"):
        StoreLock(tmp_path)
