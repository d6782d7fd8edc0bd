"""Samplers as objects: resuming, sharding, files, padding, refusals, reports."""

from __future__ import annotations

import dataclasses
import itertools
import json
import stat
import threading
from pathlib import Path
from typing import Any

import hockeystick as hs
import numpy as np
import pytest
from hockeystick.sampling.batches import CONJECTURE
from hockeystick.sampling.laws import Law
from hypothesis import given, settings
from hypothesis import strategies as st

N, STEPS = 60, 12
GAUSSIAN = hs.Gaussian(1.0)
GRAPH = hs.AttributionGraph.from_lists(
    [[e // 3, 100 + e // 3] for e in range(N)]
)  # couples who share three examples
MULTI = hs.matrix.MultiAttributionBMinSep(STEPS, 4, 0.05, 3)

DESCRIPTIONS: dict[str, Any] = {
    "poisson": hs.Poisson(STEPS, 0.1),
    "poisson mechanism": hs.PoissonSampled(GAUSSIAN, 0.1) * STEPS,
    "truncated": hs.TruncatedPoissonSampled(1.0, N, 0.1, 5) * STEPS,
    "without replacement": hs.WithoutReplacement(GAUSSIAN, 7, N) * STEPS,
    "with replacement": hs.WithReplacement(GAUSSIAN, 7, N) * STEPS,
    "dp_sgd": hs.dp_sgd(1.0, N, 6, steps=STEPS),
    "cyclic": hs.CyclicPoisson(STEPS, 5, 0.5),
    "balls in bins": hs.BallsInBins(STEPS, 5),
    "random allocation": hs.RandomAllocation(1.0, 4) * (STEPS // 4),
    "cold": hs.BMinSep(STEPS, 4, 0.1, False),
    "warm": hs.BMinSep(STEPS, 4, 0.1),
    "listed": hs.BMinSep(STEPS, 4, 0.8),
    "r-min-sep": hs.matrix.RMinSep(STEPS, 4, 0.8, False),
    "truncated b-min-sep": hs.matrix.TruncatedBMinSep(STEPS, 4, 0.2, N, 5),
    "bandmf": hs.BandMF(hs.BandedToeplitz.square_root(STEPS, 4), hs.BMinSep(STEPS, 4, 0.2), 1.0),
    "multi-attribution": MULTI,
}


def sampler(
    name: str, seed: Any = 7, shard: tuple[int, int] = (0, 1), **options: Any
) -> hs.sampling.BatchSampler:
    if name == "multi-attribution":
        options.setdefault("graph", GRAPH)
    made = DESCRIPTIONS[name].batches(N, seed, shard, **options)
    assert isinstance(made, hs.sampling.BatchSampler)
    return made


def equal(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_batches_are_sorted_indices(name: str) -> None:
    drawn = sampler(name)
    assert len(drawn) == drawn.steps == STEPS
    assert drawn.dataset_size == N
    assert drawn.step == 0
    for i, batch in enumerate(drawn):
        assert drawn.step == i + 1
        assert batch.dtype == np.int64
        assert batch.ndim == 1
        assert ((batch >= 0) & (batch < N)).all()
        assert (np.diff(batch) > (-1 if name == "with replacement" else 0)).all()
    assert drawn.step == STEPS
    assert list(drawn) == []
    with pytest.raises(hs.ParameterError, match="all 12 steps"):
        drawn.next()


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_the_seed_decides(name: str) -> None:
    assert equal(sampler(name), sampler(name))
    assert not equal(sampler(name), sampler(name, 8))
    assert not equal(sampler(name, None), sampler(name, None))
    secret = bytes(range(32))
    assert equal(sampler(name, secret), sampler(name, secret))


@pytest.mark.sweep
@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_resume_anywhere(name: str, tmp_path: Path) -> None:
    whole = list(sampler(name))
    path = tmp_path / "batches"
    for step in range(STEPS + 1):
        stopped = sampler(name)
        assert equal(itertools.islice(stopped, step), whole[:step])
        state = json.loads(json.dumps(stopped.state_dict()))
        stopped.save(path)
        resumed = sampler(name)
        resumed.load_state_dict(state)
        graph = GRAPH if name == "multi-attribution" else None
        for other in (
            resumed,
            hs.sampling.BatchSampler.load(path, graph=graph),
            hs.sampling.BatchSampler.load(path, DESCRIPTIONS[name], graph=graph),
        ):
            assert other.step == step
            assert equal(other, whole[step:])
    # Back and forth.
    moved = sampler(name)
    for step in (9, 3, 3, 12, 0, 7):
        moved.seek(step)
        assert moved.step == step
        assert equal(itertools.islice(moved, 2), whole[step : step + 2])


@pytest.mark.parametrize("world", [1, 2, 3, 100])
@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_the_union_of_the_shards_is_the_batch(name: str, world: int) -> None:
    shards = [sampler(name, shard=(rank, world)) for rank in range(world)]
    for batch in sampler(name):
        parts = [shard.next() for shard in shards]
        assert np.array_equal(np.sort(np.concatenate(parts)), batch)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
    state = shards[0].state_dict()
    shards[-1].load_state_dict(state)  # one checkpoint serves all workers


@pytest.mark.parametrize("name", ["truncated", "truncated b-min-sep"])
@pytest.mark.parametrize("world", [1, 2])
def test_padding(name: str, world: int) -> None:
    data = np.vstack([np.ones((N, 2)), np.zeros((1, 2))])  # a row of zeros for the padding
    for rank in range(world):
        padded = sampler(name, shard=(rank, world), pad=True)
        for plain, batch in zip(sampler(name, shard=(rank, world)), padded, strict=True):
            assert isinstance(batch, hs.sampling.PaddedBatch)
            assert batch.indices.shape == batch.mask.shape == (-(-5 // world),)
            assert np.array_equal(batch.indices[batch.mask], plain)
            assert (batch.indices[~batch.mask] == N).all()
            assert data[batch.indices].sum() == 2 * len(plain)
            if not batch.mask.all():
                with pytest.raises(IndexError):
                    data[:N][batch.indices]


def test_threads() -> None:
    """The same batches for any number of threads; several threads that ask get different ones."""
    whole = [tuple(batch) for batch in hs.BMinSep(400, 4, 0.1).batches(500, 7)]
    threads = hs.max_threads()
    try:
        for count in (1, 2, 5):
            hs.set_threads(count)
            assert [tuple(batch) for batch in hs.BMinSep(400, 4, 0.1).batches(500, 7)] == whole
    finally:
        hs.set_threads(threads)
    shared = hs.BMinSep(400, 4, 0.1).batches(500, 7)
    taken: list[tuple[int, ...]] = []

    def take() -> None:
        for _ in range(100):
            taken.append(tuple(shared.next()))

    workers = [threading.Thread(target=take) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(taken) == sorted(whole)


def test_batches_and_noise_share_a_seed_but_no_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """One secret for the whole run: what is drawn for one purpose says nothing about the other."""
    from hockeystick._base.randomness import derive_key
    from hockeystick.matrix import noise
    from hockeystick.sampling import batches

    keys: dict[str, set[bytes]] = {"batches": set(), "noise": set()}

    def watched(taken: set[bytes]) -> Any:
        def derive(seed: Any, purpose: str) -> bytes:
            key = derive_key(seed, purpose)
            taken.add(key)
            return key

        return derive

    monkeypatch.setattr(batches, "derive_key", watched(keys["batches"]))
    monkeypatch.setattr(noise, "derive_key", watched(keys["noise"]))
    drawn = hs.Poisson(STEPS, 0.5).batches(N, 7)
    rows = hs.matrix.CorrelatedNoise(hs.Identity(STEPS), 5, 1.0, clipping_norm=1.0, seed=7)
    drawn.next(), rows.next()
    drawn.state_dict(), rows.state()
    assert min(len(taken) for taken in keys.values()) > 1
    assert not keys["batches"] & keys["noise"]


# --- Refusals -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_states_of_another_run(name: str) -> None:
    state = sampler(name).state_dict()
    for other in (
        sampler(name, 8),
        hs.Poisson(STEPS, 0.11).batches(N, 7),
        hs.BMinSep(STEPS, 5, 0.1).batches(N, 7),
    ):
        with pytest.raises(hs.ParameterError, match="another seed"):
            other.load_state_dict(state)
    with pytest.raises(hs.ParameterError, match="version"):
        sampler(name).load_state_dict({**state, "version": 2})
    with pytest.raises(hs.ParameterError, match="step"):
        sampler(name).load_state_dict({**state, "step": STEPS + 1})
    for wrong in (None, {}, {"step": 1}, 3):
        with pytest.raises(hs.ParameterTypeError, match="state"):
            sampler(name).load_state_dict(wrong)


@pytest.mark.parametrize("change", ["size", "steps", "probability", "warm", "graph", "ahead", "algorithm"])
def test_any_difference_is_another_run(change: str) -> None:
    scheme = hs.BMinSep(STEPS, 4, 0.1)
    made = {
        "size": (scheme.batches(N, 7), scheme.batches(N + 1, 7)),
        "steps": (scheme.batches(N, 7), hs.BMinSep(STEPS + 1, 4, 0.1).batches(N, 7)),
        "probability": (scheme.batches(N, 7), hs.BMinSep(STEPS, 4, np.nextafter(0.1, 1)).batches(N, 7)),
        "warm": (scheme.batches(N, 7), hs.BMinSep(STEPS, 4, 0.1, False).batches(N, 7)),
        "graph": (
            MULTI.batches(seed=7, graph=GRAPH),
            MULTI.batches(seed=7, graph=GRAPH.select(np.arange(N)[::-1])),
        ),
        "ahead": (MULTI.batches(seed=7, graph=GRAPH), MULTI.batches(seed=7, graph=GRAPH, run_ahead=1)),
        "algorithm": (MULTI.batches(seed=7, graph=GRAPH), MULTI.conjectured_batches(seed=7, graph=GRAPH)),
    }
    one, other = made[change]
    with pytest.raises(hs.ParameterError, match="another seed"):
        other.load_state_dict(one.state_dict())


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "batches"
    sampler("warm", None).save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "operating system" in hs.sampling.BatchSampler.load(path).report()
    with pytest.raises(hs.ParameterError, match="another one"):
        hs.sampling.BatchSampler.load(path, hs.BMinSep(STEPS, 4, 0.2))
    with pytest.raises(hs.ParameterTypeError, match="scheme"):
        hs.sampling.BatchSampler.load(path, 3)
    rank = hs.sampling.BatchSampler.load(path, shard=(1, 2))
    assert equal(rank, [batch[1::2] for batch in hs.sampling.BatchSampler.load(path)])
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(hs.StorageError):
        hs.sampling.BatchSampler.load(path)
    noise = hs.CorrelatedNoise(hs.Identity(3), 4, 1.0, clipping_norm=1.0, seed=1)
    noise.save(path)
    with pytest.raises(hs.StorageError, match="noise"):
        hs.sampling.BatchSampler.load(path)
    MULTI.batches(seed=7, graph=GRAPH, run_ahead=3).save(path)
    with pytest.raises(hs.ParameterError, match="graph"):
        hs.sampling.BatchSampler.load(path)
    with pytest.raises(hs.ParameterError, match="another seed"):
        hs.sampling.BatchSampler.load(path, MULTI, graph=GRAPH.select(np.arange(N)[::-1]))
    assert hs.sampling.BatchSampler.load(path, MULTI, graph=GRAPH).step == 0


@pytest.mark.parametrize("difference", ["steps", "dataset_size", "max_batch_size"])
def test_files_of_a_law_that_differs_in_one_number(difference: str, tmp_path: Path) -> None:
    scheme = hs.matrix.TruncatedBMinSep(STEPS, 4, 0.2, N, 5)
    scheme.batches(seed=7).save(tmp_path / "batches")
    assert hs.sampling.BatchSampler.load(tmp_path / "batches", scheme).step == 0
    other = dataclasses.replace(scheme, **{difference: getattr(scheme, difference) + 1})
    with pytest.raises(hs.ParameterError, match="another one"):
        hs.sampling.BatchSampler.load(tmp_path / "batches", other)


def test_files_remember_whose_part_they_are(tmp_path: Path) -> None:
    """Two workers with the whole batch would count every example twice."""
    made = sampler("poisson", shard=(1, 2))
    made.save(tmp_path / "batches")
    loaded = hs.sampling.BatchSampler.load(tmp_path / "batches")
    assert loaded.shard == (1, 2)
    assert equal(loaded, made)


def test_files_with_a_parameter_too_many() -> None:
    law = sampler("warm").to_dict()["law"]
    law["parameters"]["batch_size"] = 3
    with pytest.raises(hs.ParameterError, match="not those of b_min_sep"):
        Law.from_dict(law)


def test_graphs_with_the_same_users_in_other_places_are_others() -> None:
    one, other = (hs.AttributionGraph.from_lists(lists) for lists in ([[0], [1, 2]], [[0, 1], [2]]))
    assert np.array_equal(one.users, other.users)
    scheme = hs.matrix.MultiAttributionBMinSep(STEPS, 4, 0.05, 1)
    with pytest.raises(hs.ParameterError, match="another seed"):
        scheme.batches(seed=7, graph=other).load_state_dict(scheme.batches(seed=7, graph=one).state_dict())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hs.Poisson(3, 0.1).batches(), "dataset_size"),
        (lambda: hs.Poisson(3, 0.1).batches(N, graph=GRAPH), "graph: must not be given"),
        (lambda: hs.Poisson(3, 0.1).batches(0), "dataset_size"),
        (lambda: hs.Poisson(3, 0.1).batches(10.0), "dataset_size"),
        (lambda: hs.Poisson(3, 0.1).batches(10, "secret"), "seed"),
        (lambda: hs.Poisson(3, 0.1).batches(10, 1, (2, 2)), r"shard\[0\]"),
        (lambda: hs.Poisson(3, 0.1).batches(10, 1, (0, 0)), r"shard\[1\]"),
        (lambda: hs.Poisson(3, 0.1).batches(10, 1, 2), "shard"),
        (lambda: hs.Poisson(3, 0.1).batches(10, None, (0, 2)), "all workers"),
        (lambda: hs.Poisson(3, 0.1).batches(10, pad=True), "pad"),
        (lambda: hs.Poisson(3, 0.1).batches(10, pad=1), "pad"),
        (lambda: hs.Poisson(3, 1.0).batches(2**53), "sampled per step"),
        (lambda: hs.CyclicPoisson(6, 3, 0.1, group=1).batches(10), "group"),
        (lambda: hs.BallsInBins(3, 3).batches(2**32 + 1), "dataset_size"),
        (lambda: hs.BMinSep(3, 3, 0.1).batches(2**32 + 1), "dataset_size"),
        (lambda: hs.BallsInBins(2**30, 2**30).batches(2), "2\\^27"),
        (lambda: hs.matrix.TruncatedBMinSep(3, 3, 0.1, 10, 2).batches(11), "must be 10"),
        (lambda: (hs.TruncatedPoissonSampled(1.0, 10, 0.1, 2) * 3).batches(9), "must be 10"),
        (lambda: (hs.WithoutReplacement(GAUSSIAN, 2, 10) * 3).batches(9), "must be 10"),
        (lambda: hs.dp_sgd(1.0, 10, 2, steps=3).batches(11), "must be 10"),
        (lambda: hs.dp_sgd(1.0, 10, 2, steps=0).batches(), "one sampled mechanism"),
        (lambda: (GAUSSIAN * 3).batches(10), "no batches"),
        (lambda: (hs.PoissonSampled(GAUSSIAN, 0.1) + GAUSSIAN).batches(10), "one sampled mechanism"),
        (lambda: (hs.PoissonSampled(GAUSSIAN, 0.1) * 2**40).batches(10), "steps"),
        (lambda: MULTI.batches(N), "graph"),
        (lambda: MULTI.batches(graph=3), "graph"),
        (lambda: MULTI.batches(N + 1, graph=GRAPH), "must be 60"),
        (lambda: MULTI.batches(graph=GRAPH, run_ahead=-1), "run_ahead"),
        (lambda: hs.matrix.MultiAttributionBMinSep(3, 4, 0.1, 2).batches(graph=GRAPH), "examples_per_user"),
        (
            lambda: hs.matrix.MultiAttributionBMinSep(3, 4, 0.1, 3, "exact").conjectured_batches(graph=GRAPH),
            "law",
        ),
        (lambda: sampler("warm").seek(STEPS + 1), "step"),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises((hs.ParameterError, hs.ParameterTypeError), match=message):
        call()


# --- Reports --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_reports_keep_the_secret(name: str) -> None:
    secret = bytes(range(32))
    drawn = sampler(name, secret)
    drawn.seek(5)
    facts = drawn.to_dict()
    assert facts["steps_done"] == 5
    assert facts["guarantee"] == "the law that is accounted"
    for text in (repr(drawn), drawn.report(), json.dumps(facts), json.dumps(drawn.state_dict())):
        assert secret.hex() not in text
        assert repr(secret) not in text


def test_the_conjecture_is_called_one(tmp_path: Path) -> None:
    drawn = MULTI.conjectured_batches(seed=7, graph=GRAPH)
    drawn.save(tmp_path / "batches")
    for one in (drawn, hs.sampling.BatchSampler.load(tmp_path / "batches", MULTI, graph=GRAPH)):
        assert one.conjectured
        assert one.to_dict()["guarantee"] == CONJECTURE
        assert "NOT A GUARANTEE" in one.report()
        assert "conjecture" in one.report()
    assert not MULTI.batches(seed=7, graph=GRAPH).conjectured


def test_examples_of_no_user_are_named() -> None:
    graph = hs.AttributionGraph.from_lists([["ann"], [], ["bob"]])
    drawn = hs.matrix.MultiAttributionBMinSep(3, 2, 0.5, 1).batches(graph=graph)
    assert "1 examples belong to no user" in drawn.report()


# --- Any parameters at all --------------------------------------------------------------------------------

probabilities = st.one_of(
    st.floats(0.0, 1.0), st.sampled_from([0.0, 1.0, 5e-324, 1e-300, 1e-17, 0.5, 1.0 - 2.0**-53])
)
counts = st.one_of(st.integers(1, 8), st.sampled_from([63, 64, 65, 2**31, 2**53]))


@settings(max_examples=150, deadline=None)
@given(
    size=st.integers(1, 200),
    steps=st.integers(1, 12),
    period=counts,
    p=probabilities,
    warm=st.booleans(),
    most=st.integers(1, 50),
    kind=st.sampled_from(["poisson", "cyclic", "bins", "min_sep", "truncated"]),
    seed=st.integers(0, 2**256 - 1),
    step=st.integers(0, 11),
)
def test_any_parameters(
    size: int, steps: int, period: int, p: float, warm: bool, most: int, kind: str, seed: int, step: int
) -> None:
    schemes: dict[str, Any] = {
        "poisson": hs.Poisson(steps, p),
        "cyclic": hs.CyclicPoisson(steps, period, p),
        "bins": hs.BallsInBins(steps, period),
        "min_sep": hs.BMinSep(steps, period, p, warm),
        "truncated": hs.matrix.TruncatedBMinSep(steps, period, p, size, most, warm),
    }
    scheme = schemes[kind]
    batches = list(scheme.batches(size, seed))
    assert len(batches) == steps
    last = np.full(size, -(2**60))
    for i, batch in enumerate(batches):
        assert (np.diff(batch) > 0).all()
        assert ((batch >= 0) & (batch < size)).all()
        if kind == "truncated":
            assert len(batch) <= most
        if kind != "poisson":
            assert (i - last[batch] >= period).all()
        if p in (0.0, 5e-324) and kind != "bins":
            assert not len(batch)
        last[batch] = i
    again = scheme.batches(size, seed)
    again.seek(min(step, steps))
    assert equal(again, batches[min(step, steps) :])
