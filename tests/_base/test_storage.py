"""Files: what is saved comes back; anything else is refused with a reason; writes are all or nothing."""

import copy
import io
import json
import math
import os
import pickle
import threading
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import hockeystick as hs
import numpy as np
import pytest
from hockeystick._base import files, storage
from hockeystick.accounting import profile as profile_module

STEP = hs.PoissonSampled(hs.Gaussian(1.0), 0.05)
EVERYTHING = sum(
    [
        STEP * 10,
        hs.Laplace(9.0) * 2,
        hs.DiscreteLaplace(5.0, 2),
        hs.DiscreteGaussian(30.0, 3),
        hs.RandomizedResponse(0.2, 3),
        hs.PureDP(0.1),
        hs.ApproximateDP(0.1, 1e-9),
        hs.PoissonSampled(hs.Laplace(3.0), 0.1) * 10**9,
    ]
)
FIXED = hs.WithoutReplacement(hs.Gaussian(2.0), 3, 40) + hs.WithReplacement(
    hs.Gaussian(2.0), 3, 40, pair="koskela2020"
)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "run.hs"
    profile = hs.account(STEP * 100, adjacency="remove", accuracy=1e-2)
    profile.epsilon(1e-5)
    profile.save(path)
    return path


def edit_header(path: Path, **changes: Any) -> None:
    """Change the header of a file, with a valid checksum."""
    data = path.read_bytes()
    header = json.loads(data[:4096])
    assert header.pop("checksum") == zlib.crc32(json.dumps(header).encode())
    header |= changes
    checksum = zlib.crc32(json.dumps(header).encode())
    path.write_bytes(json.dumps({**header, "checksum": checksum}).encode().ljust(4096) + data[4096:])


def archive(path: Path, kind: str, change: Callable[[dict[str, bytes]], None] = lambda _: None) -> None:
    """What this file would have been in version 0.1, with a ``change`` of its members under a valid checksum."""
    content, arrays = storage.read(path, kind)
    header = {"format": "hockeystick", "version": 1, "kind": kind, "library": "0.1.0", "content": content}
    members = {"header.json": json.dumps(header).encode()}
    for name, array in arrays.items():
        buffer = io.BytesIO()
        np.save(buffer, array)
        members[f"{name}.npy"] = buffer.getvalue()
    change(members)
    members["sha256"] = storage.digest(members).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(name, data)


def test_profile_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "profile.hs"
    profile = hs.account(hs.dp_sgd(1.0, 1000, 50, steps=30), accuracy=1e-2)
    asked = [profile.report(delta=delta, epsilon=1.0, risks=False) for delta in (0.0, 1e-9, 1e-5, 1.0)]
    profile.save(path)
    loaded = hs.PrivacyProfile.load(path)
    assert loaded.description == profile.description
    assert (loaded.adjacency, loaded.accuracy) == (profile.adjacency, profile.accuracy)
    # Answers come from the file: nothing may be computed for them.
    loaded.__dict__["_profile"] = None
    assert [loaded.report(delta=r.at_delta, epsilon=1.0, risks=False) for r in asked] == asked
    del loaded.__dict__["_profile"]
    assert np.array_equal(loaded.curve(), profile.curve())


def test_what_another_version_computed_is_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have erred, and a report would call it this version's."""
    path, profile = tmp_path / "profile.hs", hs.account(STEP * 100, adjacency="remove", accuracy=1e-2)
    right = profile.delta_bounds(1.0)
    profile._answers[("delta", 1.0)] = replace(profile._answers[("delta", 1.0)], lower=0.0, upper=0.0)
    profile.save(path)
    assert hs.PrivacyProfile.load(path).delta(1.0) == 0.0  # of one version: as it was
    for other in (["0.1.9", profile_module._COMPUTED_BY[1]], [profile_module._COMPUTED_BY[0], "abc"]):
        with monkeypatch.context() as patched:
            patched.setattr(profile_module, "_COMPUTED_BY", other)
            profile.save(path)
        assert hs.PrivacyProfile.load(path).delta_bounds(1.0) == right
    content, arrays = storage.read(path, "profile")
    del content["computed_by"]  # as files were before
    storage.write(path, "profile", content, arrays)
    assert hs.PrivacyProfile.load(path).delta_bounds(1.0) == right


def test_loaded_profile_answers_new_questions(saved: Path) -> None:
    fresh = hs.account(STEP * 100, adjacency="remove", accuracy=1e-2)
    assert hs.PrivacyProfile.load(saved).delta_bounds(0.123) == fresh.delta_bounds(0.123)


@pytest.mark.parametrize(
    "process", [EVERYTHING, FIXED, hs.mechanisms.Process()], ids=["all", "fixed", "empty"]
)
def test_accountant_round_trip(tmp_path: Path, process: hs.mechanisms.Process) -> None:
    path = tmp_path / "ledger.hs"
    accountant = hs.Accountant(adjacency="replace_one", accuracy=0.01)
    accountant.step(process, steps=2)
    accountant.save(path)
    loaded = hs.Accountant.load(path)
    assert loaded.process == process * 2
    assert loaded.adjacency == "replace_one"
    loaded.step(STEP)
    loaded.save(path)
    assert hs.Accountant.load(path).process == process * 2 + STEP
    assert accountant.process == process * 2


def test_resuming_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.hs"
    whole, first = hs.Accountant(), hs.Accountant()
    whole.step(STEP, 30)
    first.step(STEP, 10)
    first.save(path)
    resumed = hs.Accountant.load(path)
    resumed.step(STEP, 20)
    assert resumed.epsilon_bounds(1e-5) == whole.epsilon_bounds(1e-5)


def test_merge() -> None:
    left, right = hs.Accountant(), hs.Accountant()
    left.step(STEP, 10)
    before = left.profile()
    right.step(STEP, 5)
    right.step(hs.Laplace(3.0))
    left.merge(right)
    assert left.process == STEP * 15 + hs.Laplace(3.0)
    assert before.description == STEP * 10
    left.merge(left)
    assert left.process.steps == 32
    with pytest.raises(hs.ParameterError, match="adjacencies do not compose"):
        left.merge(hs.Accountant(adjacency="remove"))


@pytest.mark.parametrize("old", [False, True])
def test_every_flipped_byte_is_noticed_or_harmless(saved: Path, old: bool) -> None:
    if old:
        archive(saved, "profile")
    data, original = saved.read_bytes(), hs.PrivacyProfile.load(saved)
    refused = 0
    for position in range(0, len(data), 7):
        saved.write_bytes(data[:position] + bytes([data[position] ^ 0x55]) + data[position + 1 :])
        try:
            loaded = hs.PrivacyProfile.load(saved)
        except hs.StorageError:
            refused += 1
        else:  # padding, or a part of the zip that carries no content
            assert loaded.epsilon_bounds(1e-5) == original.epsilon_bounds(1e-5)
            assert loaded.description == original.description
    assert refused > (len(range(0, len(data), 7)) // 2 if old else 200)


@pytest.mark.parametrize("old", [False, True])
def test_every_truncation_is_refused(saved: Path, old: bool) -> None:
    if old:
        archive(saved, "profile")
    data = saved.read_bytes()
    for length in {0, 1, 10, len(data) // 3, len(data) // 2, len(data) - 30, len(data) - 1}:
        saved.write_bytes(data[:length])
        with pytest.raises(hs.StorageError, match="cannot load"):
            hs.PrivacyProfile.load(saved)


@pytest.mark.parametrize("data", [b"", b"hello", pickle.dumps({"epsilon": 0.0}), b"\x93NUMPY" * 10])
def test_foreign_files_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "foreign"
    path.write_bytes(data)
    with pytest.raises(hs.StorageError, match="not a hockeystick file"):
        hs.Accountant.load(path)


def test_foreign_zip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "foreign.npz"
    np.savez(path, epsilon=np.zeros(3))
    with pytest.raises(hs.StorageError, match="not written by hockeystick"):
        hs.PrivacyProfile.load(path)


def test_other_kinds_and_futures_are_refused(saved: Path) -> None:
    with pytest.raises(hs.StorageError, match="holds: profile; wanted: accountant"):
        hs.Accountant.load(saved)
    edit_header(saved, version=99, library="9.9")
    with pytest.raises(hs.StorageError, match=r"version 99 is newer .*9\.9.*upgrade"):
        hs.PrivacyProfile.load(saved)


def test_wrong_checksum_is_refused(saved: Path) -> None:
    whole = saved.read_bytes()
    with open(saved, "r+b") as file:
        file.seek(4096)
        file.write(np.float64(0.0).tobytes())
    assert saved.read_bytes() != whole
    with pytest.raises(hs.StorageError, match=r"array .* is damaged.*checksum"):
        hs.PrivacyProfile.load(saved)
    edit_header(saved, kind="accountant")
    saved.write_bytes(saved.read_bytes().replace(b'"accountant"', b'"profile"   ', 1))
    with pytest.raises(hs.StorageError, match="the header is damaged"):
        hs.PrivacyProfile.load(saved)


def test_headers_of_any_size(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for length in (0, 10, 3500, 3600, 3700, 3800, 3900, 4000, 4096, 5000, 100_000):
        content, arrays = {"text": "x" * length}, {f"a{i}": np.arange(i) for i in range(length % 97)}
        storage.write(path, "long", content, arrays)
        found, read = storage.read(path, "long")
        assert found == content
        assert all(np.array_equal(arrays[name], read[name]) for name in arrays)
        assert set(read) == set(arrays)


def test_archives_of_version_0_1_are_read(saved: Path) -> None:
    before, curve = hs.PrivacyProfile.load(saved), hs.PrivacyProfile.load(saved).curve()
    archive(saved, "profile")
    loaded = hs.PrivacyProfile.load(saved)
    assert (loaded.description, loaded.adjacency) == (before.description, before.adjacency)
    assert loaded.epsilon_bounds(1e-5) == before.epsilon_bounds(1e-5)
    assert np.array_equal(loaded.curve(), curve)
    with pytest.raises(hs.StorageError, match="holds: profile; wanted: accountant"):
        hs.Accountant.load(saved)
    with zipfile.ZipFile(saved) as file:
        members = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(saved, "w") as file:
        for name, data in members.items():
            file.writestr(name, data[:-1] + b"?" if name.endswith(".npy") else data)
    with pytest.raises(hs.StorageError, match="checksum"):
        hs.PrivacyProfile.load(saved)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"adjacency": "swap"},
        {"accuracy": "high"},
        {"memory_limit": None},
        {"description": {"type": "os.system"}},
        {"description": {"type": "Gaussian", "noise_multiplier": -1.0}},
        {"description": {"type": "Gaussian", "sigma": 1.0}},
        {"description": {"type": "Process", "items": [{"step": {"type": "Gaussian"}, "count": 1}]}},
        {"answers": [{}]},
        {"answers": []},
    ],
    ids=repr,
)
def test_nonsense_with_a_valid_checksum_is_refused(saved: Path, content: dict[str, Any]) -> None:
    good, arrays = storage.read(saved, "profile")
    storage.write(saved, "profile", good | content if content else {}, arrays)
    with pytest.raises(hs.StorageError, match="cannot load"):
        hs.PrivacyProfile.load(saved)


def test_pickles_inside_are_never_opened(saved: Path, tmp_path: Path) -> None:
    trap, whole = tmp_path / "trap.npy", saved.read_bytes()
    np.save(trap, np.array([{"a": 1}], dtype=object), allow_pickle=True)

    def change(members: dict[str, bytes]) -> None:
        members["answers.npy"] = trap.read_bytes()

    archive(saved, "profile", change)
    with pytest.raises(hs.StorageError, match="allow_pickle"):
        hs.PrivacyProfile.load(saved)
    saved.write_bytes(whole)
    arrays = json.loads(whole[:4096])["arrays"]
    edit_header(saved, arrays=[{**arrays[0], "dtype": "|O"}, *arrays[1:]])
    with pytest.raises(hs.StorageError, match="is not of numbers"):
        hs.PrivacyProfile.load(saved)


def test_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        hs.PrivacyProfile.load(tmp_path / "none")


def test_a_failed_write_leaves_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("disk full")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as broken:
            broken.setattr(os, name, fail)
            with pytest.raises(OSError, match="disk full"):
                hs.account(STEP).save(saved)
        assert saved.read_bytes() == before
        assert os.listdir(saved.parent) == [saved.name]


def test_equal_content_gives_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        accountant = hs.Accountant()
        accountant.step(STEP, 3)
        accountant.save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_infinite_answers_survive(tmp_path: Path) -> None:
    profile = hs.account(hs.Gaussian(0.0))
    assert profile.epsilon(1e-5) == math.inf
    profile.save(tmp_path / "x")
    assert hs.PrivacyProfile.load(tmp_path / "x").epsilon(1e-5) == math.inf


SAVED: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "Accountant": (hs.Accountant, lambda ledger: ledger.step(STEP)),
    "IndividualGDPFilter": (
        lambda: hs.IndividualGDPFilter(3, epsilon=1.0, delta=1e-5),
        lambda filt: filt.step([0.1, 0.0, 0.2]),
    ),
    "IndividualAccountant": (
        lambda: hs.IndividualAccountant(
            2, noise_multiplier=2.0, sampling_probability=0.01, clipping_norm=1.0
        ),
        lambda accountant: accountant.step([1.0, 0.5]),
    ),
}


@pytest.mark.parametrize("name", SAVED)
def test_a_save_does_not_forget_what_another_one_saved(name: str, tmp_path: Path) -> None:
    make, spend = SAVED[name]
    path = tmp_path / "ledger.hs"
    first = make()
    first.save(path)
    second = type(first).load(path)
    spend(first)
    first.save(path)
    spend(first)
    first.save(os.path.relpath(path))
    kept = path.read_bytes()
    spend(second)
    for late in (second, copy.deepcopy(second)):
        with pytest.raises(hs.StorageError, match="what somebody else has saved would be lost"):
            late.save(path)
    assert path.read_bytes() == kept
    assert os.listdir(tmp_path) == [path.name]
    # What is refused is not lost: it goes elsewhere, or on top of what is there.
    second.save(tmp_path / "elsewhere.hs")
    resumed = type(first).load(path)
    spend(resumed)
    resumed.save(path)
    with pytest.raises(hs.StorageError, match="somebody else"):
        first.save(path)
    path.unlink()
    first.save(path)
    # Nor is what is no ledger at all, or damaged, taken for the one that was there.
    for other in (b"", b"PK\x03\x04", kept[:50], b'{"header": 99999999, '):
        path.write_bytes(other)
        with pytest.raises(hs.StorageError, match="somebody else"):
            first.save(path)
        assert path.read_bytes() == other


def test_archives_of_version_01_are_replaced_by_who_loaded_them(tmp_path: Path) -> None:
    path = tmp_path / "ledger.hs"
    hs.Accountant().save(path)
    archive(path, "accountant")
    first, second = (hs.Accountant.load(path) for _ in range(2))
    first.step(STEP)
    first.save(path)
    with pytest.raises(hs.StorageError, match="somebody else"):
        second.save(path)
    assert hs.Accountant.load(path).process == STEP * 1


def test_of_many_who_save_at_once_one_does(tmp_path: Path) -> None:
    path = tmp_path / "ledger.hs"
    hs.Accountant().save(path)
    for _ in range(20):
        ledgers = [hs.Accountant.load(path) for _ in range(4)]
        start, outcomes = threading.Barrier(len(ledgers)), []

        def save(ledger: hs.Accountant, start: threading.Barrier = start, outcomes: Any = outcomes) -> None:
            ledger.step(STEP)
            # All the same, they would not forget each other: each has a step of its own.
            ledger.step(hs.Laplace(1.0 + id(ledger) % 2**20))
            start.wait()
            try:
                ledger.save(path)
            except hs.StorageError:
                outcomes.append(False)
            else:
                outcomes.append(True)

        threads = [threading.Thread(target=save, args=(ledger,)) for ledger in ledgers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == [False, False, False, True]


@pytest.mark.parametrize("remove_at", ["chmod", "open"])
def test_who_takes_a_new_directory_for_a_leftover_stops_nobody(
    remove_at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[str] = []
    call: Any = getattr(os, remove_at)

    def removing(name: Any, *arguments: Any) -> Any:
        if not removed and str(name).endswith(".part"):
            os.rmdir(name)
            removed.append(name)
        return call(name, *arguments)

    monkeypatch.setattr(os, remove_at, removing)
    with files.new_directory(tmp_path / "store", "") as directory:
        (directory / "part").touch()
    assert os.listdir(tmp_path / "store") == ["part"]
    assert len(removed) == 1


@pytest.mark.parametrize("length", [240, 241, 255])
@pytest.mark.parametrize("letter", ["n", "ε"])
def test_names_may_be_as_long_as_the_file_system_allows(letter: str, length: int, tmp_path: Path) -> None:
    name = letter * (length // len(letter.encode()))
    path = tmp_path / name
    hs.Accountant().save(path)
    path.unlink()
    # What a killed writer left behind is found under such a name, too.
    stale = tmp_path / f"{files._prefix(path)}{'x' * 8}.part"
    stale.touch()
    hs.IndividualGDPFilter(2, epsilon=1.0, delta=1e-5, path=path).close()
    assert os.listdir(tmp_path) == [name]
    hs.IndividualGDPFilter.open(path).close()


def test_what_somebody_else_saved_is_noticed_at_the_end_of_a_long_header(tmp_path: Path) -> None:
    path, seen = tmp_path / "file", storage.Seen()
    content = {"long": "x" * 5000, "last": 1}
    storage.write(path, "kind", content, {})
    storage.read(path, "kind", seen=seen)
    storage.write(path, "kind", content, {}, seen=seen)
    storage.read(path, "kind", seen=seen)
    storage.write(path, "kind", {**content, "last": 2}, {})
    with pytest.raises(hs.StorageError, match="not the one that was loaded or saved last"):
        storage.write(path, "kind", content, {}, seen=seen)
