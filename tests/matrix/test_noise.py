"""Correlated noise: exactness against dense solves, the law of Z, determinism, and stopping and resuming."""

import hashlib
import itertools
import json
import math
import os
import pickle
import stat
from fractions import Fraction

import hockeystick as hs
import numpy as np
import pytest
from hockeystick._base.randomness import derive_key, resolve_seed
from hockeystick.matrix.noise import CorrelatedNoise
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

STEPS = 40


def varied_columns(steps, bands):
    rng = np.random.default_rng(4)
    columns = rng.uniform(0.1, 0.5, (steps, bands)) / np.arange(1, bands + 1)
    columns[:, 0] = rng.uniform(0.8, 1.3, steps)
    for offset in range(1, bands):
        columns[steps - offset :, offset] = 0.0
    return columns


def strategies():
    inverse = -varied_columns(STEPS, 5)
    inverse[:, 0] *= -1.0
    return [
        hs.Identity(STEPS),
        hs.BandedToeplitz.square_root(STEPS, 8),
        hs.BandedToeplitz.square_root(STEPS, STEPS),
        hs.BandedToeplitz.optimized(STEPS, 4),
        hs.matrix.Banded(varied_columns(STEPS, 6)),
        hs.matrix.InverseBanded([1.0, -0.5, -0.125], STEPS),
        hs.matrix.InverseBanded(inverse),
        hs.matrix.LowerTriangular(hs.matrix.Banded(varied_columns(STEPS, STEPS)).matrix()),
        hs.matrix.BufferedToeplitz(((0.1, 0.99), (0.2, 0.9), (0.3, 0.5)), STEPS),
    ]


STRATEGIES = pytest.mark.parametrize("strategy", strategies(), ids=lambda s: f"{type(s).__name__}-{s.bands}")
STATES = pytest.mark.parametrize("state_dtype", ["float64", "float32"])


def make(strategy, dimension=700, **changes):
    arguments = {"noise_multiplier": 1.0, "clipping_norm": 1.0, "seed": 11, "dtype": "float64", **changes}
    return CorrelatedNoise(strategy, dimension, **arguments)


def normals(steps, dimension, seed=11):
    return make(hs.Identity(steps), dimension, seed=seed).rows(steps)


# --- What the rows are ----------------------------------------------------------------------------


@STRATEGIES
def test_rows_agree_with_a_dense_solve(strategy):
    rows, z = make(strategy).rows(STEPS), normals(STEPS, 700)
    solved = np.linalg.solve(strategy.matrix(), z)
    scale = np.abs(solved).max(axis=1, keepdims=True)
    assert (np.abs(rows - solved) <= 1e-13 * scale).all()
    assert (np.abs(rows - strategy.correlated_noise(z)) <= 1e-13 * scale).all()
    rounded = make(strategy, dtype="float32").rows(STEPS)
    assert rounded.dtype == np.float32
    assert np.array_equal(rounded, rows.astype(np.float32))


@STATES
@pytest.mark.parametrize(
    "strategy", [hs.BandedToeplitz.square_root(STEPS, 8), hs.matrix.Banded(varied_columns(STEPS, 6))]
)
def test_every_row_solves_its_equation_as_promised(strategy, state_dtype):
    """In exact arithmetic: |sum_k C w - z| <= (bands + 3) 2^-53 sum of magnitudes (+ 2^-24 C_ii |w_i|)."""
    dimension = 6
    rows = make(strategy, dimension, state_dtype=state_dtype).rows(STEPS)
    z, matrix = normals(STEPS, dimension), strategy.matrix()
    for i in range(STEPS):
        for x in range(dimension):
            lags = range(max(0, i - strategy.bands + 1), i + 1)
            terms = [Fraction(matrix[i, j]) * Fraction(rows[j, x]) for j in lags]
            residual = abs(sum(terms) - Fraction(z[i, x]))
            magnitude = sum(map(abs, terms)) + abs(Fraction(z[i, x]))
            allowed = (strategy.bands + 3) * Fraction(1, 2**53) * magnitude
            if state_dtype == "float32":
                allowed += Fraction(1, 2**24) * abs(terms[-1])
            assert residual <= allowed


def test_float32_state_does_not_drift():
    steps = 3000
    strategy = hs.BandedToeplitz.square_root(steps, 16)
    exact, single = make(strategy, 128), make(strategy, 128, state_dtype="float32")
    error = np.abs(exact.rows(steps) - single.rows(steps)).max(axis=1)
    assert 0.0 < error.max() < 5e-6
    assert error[-500:].max() < 3.0 * error[:500].max()
    assert single.state_bytes < 0.7 * exact.state_bytes


def chacha20(key: bytes, *counter: int) -> np.ndarray:
    """The block function of RFC 8439, Section 2.3, word by word."""
    start = np.concatenate([np.frombuffer(b"expand 32-byte k" + key, "<u4"), np.array(counter, "<u4")])
    x = [int(word) for word in start]
    columns = [(i, i + 4, i + 8, i + 12) for i in range(4)]
    diagonals = [(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4) for i in range(4)]
    for a, b, c, d in 10 * (columns + diagonals):
        for to, by, turned, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[to] = (x[to] + x[by]) % 2**32
            mixed = x[turned] ^ x[to]
            x[turned] = (mixed << bits | mixed >> (32 - bits)) % 2**32
    return (np.array(x, np.uint64) + start).astype(np.uint32)


def test_normals_are_chacha20_and_box_muller():
    """From the seed on, by the documented layout: coordinate 128 t + 32 g + 16 c + q is half c of a pair."""
    key = derive_key(11, "hs noise 1")
    step, dimension = 3, 300
    expected = np.empty(384)
    for t in range(3):
        for q in range(16):
            words = chacha20(key, 16 * t + q, 0, step, 0)
            for g in range(4):
                w = [float(word) for word in words[4 * g : 4 * g + 4]]
                radius = np.sqrt(-2.0 * np.log((w[1] + (w[0] + 0.5) / 2**32) / 2**32))
                turn = ((w[3] + (w[2] // 4 + 0.5) / 2**30) / 2**32 - 0.5) / 4
                pair = [radius * np.cos(2 * np.pi * turn), radius * np.sin(2 * np.pi * turn)]
                pair[0] *= -1.0 if int(w[2]) & 1 else 1.0
                if int(w[2]) & 2:
                    pair.reverse()
                for c in range(2):
                    expected[128 * t + 32 * g + 16 * c + q] = pair[c]
    z = normals(step + 1, dimension)[step]
    assert np.abs(z - expected[:dimension]).max() < 1e-12


def test_block_function_is_that_of_the_rfc():
    # RFC 8439, Section 2.3.2
    block = chacha20(bytes(range(32)), 1, 0x09000000, 0x4A000000, 0)
    assert block.astype("<u4").tobytes().hex() == (
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4ed2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    )


def test_the_stream_is_pinned():
    """A change of these bits would break every run that resumes: it needs a new purpose in derive_key."""
    rows = make(hs.BandedToeplitz.square_root(9, 4), 1000, seed=0).rows(9)
    assert hashlib.sha256(rows.astype("<f8").tobytes()).hexdigest()[:32] == PINNED


PINNED = "46c9f91f0865ab2a47cd490d34ee5e69"


# --- The law of Z (fixed seeds; every threshold is beyond 5 standard deviations) -----------------------


def test_normals_are_standard_normal_and_independent():
    z = normals(8, 2**17, seed=5)
    size = z.size
    assert stats.kstest(z.ravel(), "norm").pvalue > 1e-6
    assert abs(z.mean()) < 6 / np.sqrt(size)
    assert abs(z.var() - 1) < 6 * np.sqrt(2 / size)
    assert abs((z**4).mean() - 3) < 6 * np.sqrt(96 / size)
    for threshold in (3.0, 4.0, 4.5):
        mean = size * 2 * stats.norm.sf(threshold)
        assert abs((np.abs(z) > threshold).sum() - mean) < 6 * np.sqrt(mean)
    for lag in (1, 8, 16, 32, 64, 128, 512):
        assert abs((z[:, lag:] * z[:, :-lag]).mean()) < 6 / np.sqrt(size - 8 * lag)
        assert abs((z[:, lag:] ** 2 * z[:, :-lag] ** 2).mean() - 1) < 6 * np.sqrt(8 / (size - 8 * lag))
    between = np.corrcoef(np.vstack([z, normals(2, 2**17, seed=6)]))
    assert np.abs(between - np.eye(10)).max() < 6 / np.sqrt(2**17)


@pytest.mark.parametrize(
    "strategy", [hs.BandedToeplitz.optimized(12, 4), hs.matrix.InverseBanded([1.0, -0.5], 12)]
)
def test_rows_have_the_covariance_and_the_prefix_errors_of_the_strategy(strategy):
    dimension, sigma = 200_000, 0.6
    rows = make(strategy, dimension, noise_multiplier=1.2, clipping_norm=0.5).rows(12)
    inverse = np.linalg.inv(strategy.matrix())
    covariance = sigma**2 * inverse @ inverse.T
    spread = np.sqrt((np.outer(covariance.diagonal(), covariance.diagonal()) + covariance**2) / dimension)
    assert (np.abs(rows @ rows.T / dimension - covariance) < 6 * spread).all()
    errors = (np.cumsum(rows, axis=0) ** 2).mean(axis=1)
    expected = strategy.per_step_error(1.2) * 0.25
    assert (np.abs(errors / expected - 1) < 6 * np.sqrt(2 / dimension)).all()


# --- Determinism ------------------------------------------------------------------------------------


@STATES
@STRATEGIES
def test_resuming_sharding_and_seeking_give_the_same_bits(strategy, state_dtype, tmp_path):
    make_one = lambda **changes: make(strategy, state_dtype=state_dtype, **changes)
    rows = make_one().rows(STEPS)

    one_by_one = make_one()
    assert all(np.array_equal(row, rows[i]) for i, row in enumerate(one_by_one))
    assert one_by_one.step == STEPS

    half = make_one()
    half.rows(17)
    path = tmp_path / "noise.hs"
    half.save(path)
    resumed = CorrelatedNoise.load(path, strategy)
    replayed_path = tmp_path / "small.hs"
    half.save(replayed_path, history=False)
    replayed = CorrelatedNoise.load(replayed_path, strategy)
    restored = make_one()
    restored.rows(30)
    restored.restore(half.state())
    sought, rewound = make_one(), make_one()
    sought.seek(17)
    rewound.rows(25)
    rewound.seek(17)
    for noise in (half, resumed, replayed, restored, sought, rewound):
        assert noise.step == 17
        assert np.array_equal(noise.rows(STEPS - 17), rows[17:])

    cuts = [0, 1, 127, 300, 513, 700]
    shards = [make_one(coordinates=(a, b)) for a, b in itertools.pairwise(cuts)]
    assert np.array_equal(np.hstack([shard.rows(STEPS) for shard in shards]), rows)


def test_rows_do_not_depend_on_threads_or_on_the_dimension():
    strategy = hs.BandedToeplitz.square_root(6, 3)
    try:
        hs.set_threads(1)
        one = make(strategy, 5000).rows(6)
        hs.set_threads(3)
        three = make(strategy, 5000).rows(6)
    finally:
        hs.set_threads(0)
    assert np.array_equal(one, three)
    assert np.array_equal(make(strategy, 10**12, coordinates=(0, 5000)).rows(6), one)
    far = make(strategy, 2**53, coordinates=(2**53 - 300, 2**53)).rows(6)
    assert abs(np.corrcoef(far.ravel(), one[:, :300].ravel())[0, 1]) < 6 / np.sqrt(1800)


def test_seeds_of_different_kinds_differ():
    seeds = [0, 1, 2**255, bytes(32), b"\1" + bytes(31), bytes(16)]
    rows = [normals(1, 500, seed=seed)[0] for seed in seeds]
    assert np.abs(np.corrcoef(rows) - np.eye(len(seeds))).max() < 6 / np.sqrt(500)
    drawn = [make(hs.Identity(1), 500, seed=None) for _ in range(2)]
    assert drawn[0].seed != drawn[1].seed
    assert not np.array_equal(drawn[0].next(), drawn[1].next())
    assert np.array_equal(
        normals(1, 500, seed=drawn[0].seed)[0], make(hs.Identity(1), 500, seed=drawn[0].seed).next()
    )
    assert derive_key(1, "a") != derive_key(1, "b")
    assert len(resolve_seed(None)) == 32


@given(st.integers(1, 30), st.integers(1, 12), st.integers(1, 400), st.data())
@settings(max_examples=40, deadline=None)
def test_any_order_of_operations_gives_the_same_rows(steps, bands, dimension, data):
    strategy = hs.BandedToeplitz.square_root(steps, min(bands, steps))
    rows = make(strategy, dimension).rows(steps)
    noise, at = make(strategy, dimension), 0
    for _ in range(6):
        action = data.draw(st.sampled_from(["rows", "seek", "restore", "add"]))
        if action == "rows":
            count = data.draw(st.integers(0, steps - at))
            assert np.array_equal(noise.rows(count), rows[at : at + count])
            at += count
        elif action == "seek":
            at = data.draw(st.integers(0, steps))
            noise.seek(at)
        elif action == "restore":
            state, noise = noise.state(), make(strategy, dimension)
            noise.restore(state)
        elif at < steps:
            target = np.full(dimension, 3.0)
            noise.add_to(target)
            assert np.array_equal(target, 3.0 + rows[at])
            at += 1
        assert noise.step == at


# --- Using it -----------------------------------------------------------------------------------------


def test_output_in_place():
    strategy = hs.BandedToeplitz.square_root(4, 2)
    rows = make(strategy, 6, noise_multiplier=2.0, clipping_norm=0.25).rows(4)
    assert np.array_equal(rows, 0.5 * make(strategy, 6).rows(4))
    noise = make(strategy, 6, noise_multiplier=0.5)
    block = np.ones((3, 2, 3))
    assert make(strategy, 6, noise_multiplier=0.5).rows(3, block) is block
    assert np.array_equal(block.reshape(3, 6), rows[:3])
    grid = np.zeros((2, 3), dtype=np.float32)
    assert noise.next(grid) is grid
    assert np.array_equal(grid.ravel(), rows[0].astype(np.float32))
    noise.add_to(grid)
    assert np.array_equal(grid.ravel(), (rows[0].astype(np.float32) + rows[1]).astype(np.float32))
    assert np.array_equal(make(strategy, 6, noise_multiplier=0.0).rows(4), np.zeros((4, 6)))


def test_no_noise_after_the_last_step():
    noise = make(hs.Identity(2), 3)
    assert len(list(noise)) == 2
    target = np.zeros(3)
    with pytest.raises(hs.ParameterError, match="all 2 steps"):
        noise.add_to(target)
    with pytest.raises(hs.ParameterError, match="all 2 steps"):
        noise.next()
    with pytest.raises(hs.ParameterError, match="count = 1"):
        noise.rows(1)
    assert not target.any()


def test_secrets_stay_where_they_are(tmp_path):
    noise = make(hs.Identity(3), 5, seed=0x5EC2E7)
    assert str(0x5EC2E7) not in repr(noise) + str(noise.to_dict())
    assert "given by the caller" in str(noise.to_dict())
    assert "operating system" in str(make(hs.Identity(3), 5, seed=None).to_dict())
    with pytest.raises(TypeError):
        pickle.dumps(noise)
    noise.save(tmp_path / "noise.hs")
    if os.name == "posix":
        assert stat.S_IMODE((tmp_path / "noise.hs").stat().st_mode) == 0o600
    with pytest.raises(hs.ParameterError) as caught:
        make(hs.Identity(3), 5, seed=b"short secret")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("state_dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "strategy",
    [
        hs.BandedToeplitz.square_root(9, 4),
        hs.matrix.InverseBanded([1.0, -0.5, -0.1, -0.02], 9),
        hs.matrix.BufferedToeplitz([(0.3, 0.9), (0.1, 0.5)], 9),
    ],
    ids=lambda strategy: type(strategy).__name__,
)
def test_rows_that_are_not_those_of_their_step_are_refused(strategy, state_dtype):
    """A checkpoint that casts them to single precision, or mixes steps up: the repeated step had other noise, and both had been released."""
    noise = make(strategy, 20, state_dtype=state_dtype)
    noise.rows(5)
    early = noise.state()
    noise.next()
    state, following = noise.state(), noise.next()
    rows = state["history"]
    altered = {
        "single": rows.astype(np.float32),
        "zeros": np.zeros_like(rows),
        "swapped": rows[::-1].copy(),
        "earlier": early["history"],
    }
    if state_dtype == "float32" or np.array_equal(altered["single"], rows):
        del altered["single"]  # nothing is lost
    for history in altered.values():
        with pytest.raises(hs.ParameterError, match="bit by bit"):
            noise.restore({**state, "history": history})
    with pytest.raises(hs.ParameterError, match="bit by bit"):
        noise.restore({**state, "step": state["step"] + 1})
    # As checkpoints may return them, and as earlier versions wrote them.
    kept = {**state, "step": np.int64(state["step"]), "history": np.asfortranarray(rows)}
    for same in (kept, {name: kept[name] for name in ("step", "history", "fingerprint")}):
        noise.restore(same)
        assert np.array_equal(noise.next(), following)


def test_states_without_rows_survive_json():
    """Of independent noise, and before the first step: a list of no rows has no width."""
    for strategy in (hs.Identity(9), hs.BandedToeplitz.square_root(9, 3)):
        noise = make(strategy, 20)
        state = noise.state()
        first = noise.next()
        noise.restore(json.loads(json.dumps({**state, "history": state["history"].tolist()})))
        assert np.array_equal(noise.next(), first)


def test_foreign_states_are_refused(tmp_path, monkeypatch):
    strategy, other = hs.BandedToeplitz.square_root(9, 3), hs.BandedToeplitz.square_root(9, 4)
    noise = make(strategy, 50)
    noise.rows(4)
    state = noise.state()
    for stranger in (
        make(strategy, 50, seed=12),
        make(other, 50),
        make(strategy, 51),
        make(strategy, 50, coordinates=(0, 49)),
        make(strategy, 50, state_dtype="float32"),
        make(hs.matrix.InverseBanded([1.0, -0.5, -0.1], 9), 50),
    ):
        with pytest.raises(hs.ParameterError, match="belongs to another"):
            stranger.restore(state)
    with pytest.raises(hs.ParameterError, match="shape"):
        noise.restore({**state, "history": state["history"][:1]})
    with pytest.raises(hs.ParameterError, match="step"):
        noise.restore({**state, "step": 10})
    for no_state in ({"step": 1}, None, [("step", 1)]):
        with pytest.raises(hs.ParameterTypeError, match="state"):
            noise.restore(no_state)
    spoilt = np.array(state["history"])
    for wrong in (math.nan, math.inf, 1e308):
        spoilt.flat[0] = wrong
        single = make(strategy, 50, state_dtype="float32")
        with pytest.raises(hs.ParameterError, match=r"history.*\[0, 0\] = "):
            single.restore({**single.state(), "step": state["step"], "history": spoilt})
    path = tmp_path / "noise.hs"
    noise.save(path)
    with pytest.raises(hs.ParameterError, match="another one"):
        CorrelatedNoise.load(path, other)
    with pytest.raises(hs.ParameterTypeError, match="strategy"):
        CorrelatedNoise.load(path, None)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(hs.StorageError):
        CorrelatedNoise.load(path, strategy)
    path.unlink()
    monkeypatch.setattr("hockeystick.matrix.noise._MAX_SAVED", 99)
    with pytest.raises(hs.ParameterError, match="history = True: 100 numbers"):
        noise.save(path)
    noise.save(path, history=False)
    assert CorrelatedNoise.load(path, strategy).step == 4


def test_refusals():
    identity = hs.Identity(3)
    for changes, message in [
        ({"dimension": 0}, "dimension = 0"),
        ({"noise_multiplier": -1.0}, "noise_multiplier = -1"),
        ({"noise_multiplier": float("nan")}, "noise_multiplier = nan"),
        ({"noise_multiplier": 1e200, "clipping_norm": 1e200}, "noise_multiplier . clipping_norm = inf"),
        ({"clipping_norm": 0.0}, "clipping_norm = 0"),
        ({"coordinates": (3, 3)}, r"coordinates\[1\] = 3"),
        ({"coordinates": (0, 701)}, r"coordinates\[1\] = 701"),
        ({"dtype": "float16"}, "dtype = float16"),
        ({"dtype": ">f8"}, "dtype"),
        ({"state_dtype": "int32"}, "state_dtype"),
        ({"seed": -1}, "seed = -1"),
        ({"seed": bytes(15)}, "seed: 15 bytes"),
    ]:
        with pytest.raises(hs.ParameterError, match=message):
            make(identity, **changes)
    for changes, message in [
        ({"coordinates": 5}, "coordinates"),
        ({"dtype": "number"}, "dtype"),
        ({"seed": "secret"}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"seed": True}, "seed"),
    ]:
        with pytest.raises(hs.ParameterTypeError, match=message):
            make(identity, **changes)
    with pytest.raises(hs.ParameterTypeError, match="strategy"):
        make(np.eye(3))
    with pytest.raises(hs.ParameterError, match="dimension = 9007199254740992"):
        make(hs.BandedToeplitz.square_root(3, 2), 2**53)
    noise = make(identity)
    for out, error in [
        (np.zeros(699), hs.ParameterError),
        (np.zeros(1400)[::2], hs.ParameterError),
        (np.zeros(700, dtype=int), hs.ParameterTypeError),
        ([0.0] * 700, hs.ParameterTypeError),
        (np.broadcast_to(0.0, 700), hs.ParameterError),
    ]:
        with pytest.raises(error, match="out"):
            noise.next(out)
        with pytest.raises(error, match="out"):
            noise.add_to(out)
    with pytest.raises(hs.ParameterError, match="step = 4"):
        noise.seek(4)
    assert noise.step == 0


def test_noise_for_each_array_has_a_seed_of_its_own_or_its_range():
    """With one seed the noise of a layer and that of its bias began alike: the difference of their sums was without any."""
    strategy, plan = hs.Identity(5), hs.plan_training(hs.Poisson(5, 0.5), 9, noise_multiplier=1.0, delta=1e-3)
    layer, bias = make(strategy, 12, seed=8), make(strategy, 3, seed=8)
    layer.next()
    for use in (bias.next, lambda: bias.add_to(np.zeros(3)), lambda: bias.rows(2), lambda: next(bias)):
        with pytest.raises(
            hs.ParameterError, match=r"dimension = 3: must be 12, as of other noise with this seed"
        ):
            use()
    assert bias.step == 0
    make(strategy, 3, seed=9).next()
    make(strategy, 12, seed=8, coordinates=(9, 12)).next()
    with plan.start(3, clipping_norm=1.0, seed=8) as run:
        step = next(run)
        _ = step.indices
        with pytest.raises(hs.ParameterError, match="other noise with this seed"):
            step.add_noise(np.zeros(3))
        assert run.released == 0
    del layer
    bias.next()
    # Its place is free for others.
    assert np.array_equal(make(strategy, 3, seed=8).next(), normals(1, 3, seed=8)[0])


def test_two_that_go_on_from_one_file_are_told_at_the_second_save(tmp_path):
    """Both would add the same rows to different sums, whose difference has no noise."""
    path = tmp_path / "noise.hs"
    strategy = hs.Identity(4)
    CorrelatedNoise(strategy, 3, noise_multiplier=1.0, clipping_norm=1.0, seed=5).save(path)
    one, other = (CorrelatedNoise.load(path, strategy) for _ in range(2))
    assert np.array_equal(one.next(), other.next())
    one.save(path)
    with pytest.raises(hs.StorageError, match="somebody else"):
        other.save(path)
    one.next()
    one.save(path)
    assert CorrelatedNoise.load(path, strategy).step == 2
