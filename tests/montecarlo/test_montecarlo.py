"""Monte Carlo estimates: coverage on exactly known cases, and runs that survive whatever ends them."""

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import hockeystick as hs
import numpy as np
import pytest
from hockeystick.mechanisms.descriptions import composition
from hockeystick.montecarlo import tally as tallies
from hockeystick.montecarlo.beside import curve_beside
from hockeystick.montecarlo.direction import Direction, Sampled, loss_error
from hockeystick.montecarlo.empirical import Empirical
from hockeystick.montecarlo.estimate import DeltaEstimate, estimate_delta, estimate_from_tally, sample_blocks
from hockeystick.montecarlo.runs import RunOptions, run
from hockeystick.montecarlo.tally import EmpiricalTally, Tally

from bench.baselines import bandmf as baseline


def dp_sgd(steps: int = 10, q: float = 0.2, sigma: float = 1.0, block_size: int = 1024) -> baseline.Mechanism:
    columns = hs.Identity(steps)._columns()
    return baseline.Mechanism(columns, baseline.MinSep(steps, 1, q), sigma, block_size)


def truth(direction: str, epsilon: float, steps: int = 10, q: float = 0.2, sigma: float = 1.0) -> hs.Bounds:
    step = hs.PoissonSampled(hs.Gaussian(sigma), q)
    return hs.account(step * steps, direction).delta_bounds(epsilon)


def test_estimate_of_a_known_delta() -> None:
    found = estimate_delta(dp_sgd(), 0.5, samples=50_000, seed=1, confidence=0.999)
    assert [entry.direction for entry in found.directions] == ["remove", "add"]
    for entry in found.directions:
        known = truth(entry.direction, 0.5)
        assert entry.lower <= known.upper
        assert known.lower <= entry.upper
        assert entry.lower < entry.estimate < entry.upper < 1.2 * entry.lower
        assert entry.samples == 50_176  # whole blocks
    assert found.upper == max(entry.upper for entry in found.directions)
    assert "estimate, not a guarantee" in found.statement()
    assert str(found.seed) in found.statement()


@pytest.mark.sweep
@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("core", [False, True])
def test_coverage(direction: str, core: bool) -> None:
    # 1000 repetitions of one block; the interval may fail no more often than it says.
    confidence, epsilon = 0.9, 0.3
    mechanism: Sampled = dp_sgd(steps=2, q=0.4, block_size=512)
    if core:
        mechanism = hs.BandMF(hs.Identity(2), hs.BMinSep(2, 1, 0.4), 1.0)
    known = truth(direction, epsilon, steps=2, q=0.4)
    above = below = 0
    for seed in range(1000):
        entry = estimate_delta(
            mechanism, epsilon, samples=1, seed=seed, adjacency=direction, confidence=confidence
        )
        above += entry.lower > known.upper
        below += entry.upper < known.lower
    # Each side promises at most 50; Pr[Binomial(1000, .05) > 72] < 1e-3.
    assert above <= 72
    assert below <= 72
    # And it is no trivial interval.
    assert entry.upper - entry.lower < 0.08


def test_add_is_skipped_exactly_where_delta_is_zero() -> None:
    mechanism = dp_sgd(steps=3, q=0.5)
    limit = -mechanism.no_participation_log_probability
    assert limit == pytest.approx(3 * math.log(2.0), rel=1e-15)
    for epsilon, sampled in [(limit - 1e-6, True), (limit + 1e-6, False), (limit + 1.0, False)]:
        entry = estimate_delta(mechanism, epsilon, samples=1024, seed=3).directions[1]
        assert entry.direction == "add"
        assert (entry.samples > 0) == sampled
        if not sampled:
            assert (entry.estimate, entry.lower, entry.upper) == (0.0, 0.0, 0.0)
    assert truth("add", limit + 1e-6, steps=3, q=0.5).lower == 0.0


def test_scale_of_the_add_direction_is_used() -> None:
    # Values are at most 1 - e^epsilon p0: just below the limit that alone bounds delta.
    mechanism = dp_sgd(steps=3, q=0.5)
    epsilon = 3 * math.log(2.0) - 1e-3
    found = estimate_delta(mechanism, epsilon, samples=1024, seed=3, adjacency="add")
    assert found.upper <= 1.01e-3
    assert truth("add", epsilon, steps=3, q=0.5).lower <= found.upper


@pytest.mark.sweep
@pytest.mark.parametrize(
    "other", [hs.Gaussian(2.0) * 3, hs.Laplace(2.0), hs.Gaussian(1e4), hs.ApproximateDP(0.5, 1e-3)]
)
def test_composition_with_an_analytic_mechanism(other: hs.mechanisms.Process) -> None:
    found = estimate_delta(dp_sgd(), 0.5, 50_000, seed=2, composed_with=other, confidence=0.999)
    whole = hs.PoissonSampled(hs.Gaussian(1.0), 0.2) * 10 + other
    for entry in found.directions:
        known = hs.account(whole, entry.direction).delta_bounds(0.5)
        assert entry.lower <= known.upper
        assert known.lower <= entry.upper <= 1.25 * known.upper


@pytest.mark.parametrize("other", [hs.Gaussian(1.0), hs.Laplace(1.0), hs.Gaussian(1e3), hs.PureDP(0.3)])
@pytest.mark.parametrize("direction", ["remove", "add"])
def test_curve_encloses_the_profile(other: hs.Gaussian, direction: str) -> None:
    profile, curve = (
        hs.account(other, direction),
        curve_beside(composition(other), direction, "add_or_remove"),
    )
    wide = profile.epsilon(1e-15)
    x = np.concatenate(
        [np.linspace(-1.5 * wide, 1.5 * wide, 500), np.random.default_rng(0).uniform(-40.0, 3.0, 200)]
    )
    lower, upper = curve.between(x)
    for low, high, point in zip(lower, upper, x.tolist(), strict=True):
        known = profile.delta_bounds(point)
        assert low <= known.upper
        assert known.lower <= high
        if known.lower > 1e-9:
            assert high <= 1.02 * known.upper
            assert low >= 0.97 * known.lower - 1e-9


def test_curve_under_zero_out_is_one_sided_where_a_null_is_as_none() -> None:
    """Nested samples are one sample; of a response the worse direction counts for both, and nothing is known from below."""
    flat, nested = hs.PoissonSampled(hs.Gaussian(1.0), 0.125), hs.PoissonSampled(hs.Gaussian(1.0), 0.5)
    one, same = (
        curve_beside(step * 3, "add", "zero_out") for step in (flat, hs.PoissonSampled(nested, 0.25))
    )
    for epsilon in (-0.2, 0.0, 0.3, 1.0):
        assert np.array_equal(one.between(np.array([epsilon])), same.between(np.array([epsilon])))
    response = hs.PoissonSampled(hs.RandomizedResponse(1.0, 3), 0.125) * 3
    lower, upper = curve_beside(response, "add", "zero_out").between(np.array([0.1]))
    assert lower[0] == 0.0 < hs.account(response, "replace_one").delta_bounds(0.1).lower <= upper[0]
    # One step of which this is so is enough, whatever is composed with it.
    more_lower, more_upper = curve_beside(response + hs.Gaussian(20.0) * 1, "add", "zero_out").between(
        np.array([0.1])
    )
    assert more_lower[0] == 0.0 < upper[0] <= more_upper[0]


def same(one: DeltaEstimate, two: DeltaEstimate) -> bool:
    return one == two  # dataclasses of floats: equal bit for bit


def test_resumed_run_is_bit_identical(tmp_path: Path) -> None:
    mechanism = dp_sgd(block_size=64)
    whole = estimate_delta(mechanism, 0.5, 64 * 40, seed=7)

    class Enough(Exception):
        pass

    calls = 0

    def interrupt(done: int, total: int) -> None:
        nonlocal calls
        calls += 1
        assert 0 <= done <= total == 2 * 64 * 40
        if calls % 3 == 2:
            raise Enough

    for _ in range(200):
        try:
            found = estimate_delta(mechanism, 0.5, 64 * 40, seed=7, checkpoint=tmp_path, progress=interrupt)
            break
        except Enough:
            continue
    assert same(found, whole)
    assert calls > 4
    # What is finished is not drawn again.
    again = estimate_delta(mechanism, 0.5, 64 * 40, checkpoint=tmp_path)
    assert same(again, whole)
    with pytest.raises(hs.ParameterError, match="seed = 8: the run in"):
        estimate_delta(mechanism, 0.5, 64 * 40, seed=8, checkpoint=tmp_path)
    with pytest.raises(hs.ParameterError, match="belongs to another run: epsilon"):
        estimate_delta(mechanism, 0.6, 64 * 40, checkpoint=tmp_path)


def test_more_samples_continue_a_run(tmp_path: Path) -> None:
    mechanism = dp_sgd(block_size=64)
    estimate_delta(mechanism, 0.5, 640, seed=7, checkpoint=tmp_path)
    more = estimate_delta(mechanism, 0.5, 1280, seed=7, checkpoint=tmp_path)
    assert same(more, estimate_delta(mechanism, 0.5, 1280, seed=7))


def test_no_more_samples_than_asked_for(tmp_path: Path) -> None:
    # A file holds sums: fewer samples than there are in it cannot be read from it.
    mechanism = dp_sgd(block_size=64)
    tilted = hs.BandMF(hs.BandedToeplitz.square_root(8, 2), hs.BMinSep(8, 2, 0.1), 1.0)
    for method, asked, samples in (("plain", mechanism, 64 * 20), ("tilted", tilted, 2**17)):
        folder = tmp_path / method
        estimate_delta(asked, 0.5, samples, 7, method, checkpoint=folder)
        with pytest.raises(hs.ParameterError, match=r"not only of the \[0, \d+\) asked for"):
            estimate_delta(asked, 0.5, samples // 4, 7, method, checkpoint=folder)
    # A share is of one direction; what it would have been used for was taken without a word.
    with pytest.raises(hs.ParameterError, match="adjacency = 'replace_one'"):
        sample_blocks(mechanism, 0.5, "remove", 7, 0, 2, adjacency="replace_one")
    for name, value in (("others", None), ("treshold", 1.0)):
        with pytest.raises(hs.ParameterTypeError, match=name):
            sample_blocks(mechanism, 0.5, "remove", 7, 0, 2, **{name: value})  # type: ignore[arg-type]
    file = tmp_path / "share"
    sample_blocks(mechanism, 0.5, "remove", 7, 11, 30, checkpoint=file)
    for first, last in [(12, 30), (11, 29), (0, 11), (30, 40)]:
        with pytest.raises(hs.ParameterError, match=r"holds blocks \[\(11, 30\)\]"):
            sample_blocks(mechanism, 0.5, "remove", 7, first, last, checkpoint=file)
    assert sample_blocks(mechanism, 0.5, "remove", 7, 10, 31, checkpoint=file).blocks == 21


def values(first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums of very different sizes: any order of adding doubles would show."""
    found = [
        np.random.default_rng(block).random() * 10.0 ** -(block % 40) for block in range(first, first + count)
    ]
    return np.array([found]), np.square([found])


def test_merging_is_exact_in_any_order(tmp_path: Path) -> None:
    whole = run(values, {"run": 1}, 1, 0, 60)
    parts = [run(values, {"run": 1}, 1, first, last) for first, last in [(40, 60), (0, 7), (7, 40)]]
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        merged = parts[order[0]].merged(parts[order[1]]).merged(parts[order[2]])
        assert merged == whole
    assert whole.sum() == math.fsum(values(0, 60)[0][0])
    assert whole.sum_of_squares() == math.fsum(values(0, 60)[1][0])
    assert whole.mean(60) == pytest.approx(whole.sum() / 60, rel=1e-15)
    parts[0].save(tmp_path / "part")
    assert Tally.load(tmp_path / "part") == parts[0]
    with pytest.raises(hs.ParameterError, match="counted in both"):
        whole.merged(parts[1])
    with pytest.raises(hs.ParameterError, match="different runs: run 1 and 2"):
        whole.merged(run(values, {"run": 2}, 1, 60, 61))
    with pytest.raises(hs.ParameterError, match="in the tally already"):
        whole.add(59, 2, *values(59, 2))
    # Ranges that share some blocks, and not all, are not added either way round.
    overlapping: Tally = run(values, {"run": 1}, 1, 5, 9)
    for one, other in ((parts[1], overlapping), (overlapping, parts[1])):
        with pytest.raises(hs.ParameterError, match="counted in both"):
            one.merged(other)
    with pytest.raises(hs.ParameterError, match="different runs"):
        whole.merged(Tally({"run": 1}, 2))


@pytest.mark.parametrize(
    ("ranges", "totals", "reason"),
    [
        ([(0, 4), (2, 6)], [8, 8], "ranges of blocks overlap"),
        ([(4, 6), (0, 2)], [8, 8], "ranges of blocks overlap"),
        ([(0, 2), (3, 3)], [8, 8], "ranges of blocks overlap"),
        ([(5, 2)], [8, 8], "ranges of blocks overlap"),
        ([(-2, 3)], [8, 8], "sums do not match"),
        ([(0, 2)], [-8, 8], "sums do not match"),
        ([(0, 2)], [8, 8, 8], "sums do not match"),
    ],
)
def test_a_file_of_what_no_run_has_drawn_is_refused(
    ranges: list[tuple[int, int]], totals: list[int], reason: str, tmp_path: Path
) -> None:
    """Its checksum is right: blocks that are counted twice, or sums below zero, would make delta smaller."""
    Tally({"run": 1}, 1, ranges, totals).save(tmp_path / "tally")
    with pytest.raises(hs.StorageError, match=reason):
        Tally.load(tmp_path / "tally")


def test_shares_of_a_run_add_up(tmp_path: Path) -> None:
    mechanism = dp_sgd(block_size=64)
    whole = estimate_delta(mechanism, 0.5, 64 * 30, seed=7, adjacency="remove").directions[0]
    file = tmp_path / "share"
    one = sample_blocks(mechanism, 0.5, "remove", 7, 11, 30, checkpoint=file)
    assert Tally.load(file) == one
    merged = sample_blocks(mechanism, 0.5, "remove", 7, 0, 11).merged(Tally.load(file))
    assert estimate_from_tally(mechanism, 0.5, "remove", merged) == whole
    for epsilon, direction, tally in [(0.6, "remove", one), (0.5, "add", one), (0.5, "remove", Tally({}, 2))]:
        with pytest.raises(hs.ParameterError, match="of another mechanism"):
            estimate_from_tally(mechanism, epsilon, direction, tally)
    with pytest.raises(hs.ParameterError, match="seed 7 and 8"):
        one.merged(sample_blocks(mechanism, 0.5, "remove", 8, 0, 11))


def test_exact_sums_of_extreme_doubles() -> None:
    tally = Tally({}, 1)
    tally.add(0, 4, np.array([[1e300, 5e-324, 1.0, 0.0]]), np.zeros((1, 4)))
    tally.add(4, 2, np.array([[5e-324, 1e-5]]), np.zeros((1, 2)))
    assert tally.totals[0] - tallies._exact(np.array([1e300, 1.0, 1e-5])) == 2
    assert tally.missing(0, 10) == [(6, 10)]
    for bad in (math.nan, math.inf):
        with pytest.raises(ArithmeticError, match="not finite"):
            tally.add(6, 1, np.array([[bad]]), np.zeros((1, 1)))


def test_what_comes_back_incomplete_is_not_counted() -> None:
    """A sum fewer than there are blocks, or values that are missing in one row alone, would be a smaller delta."""
    tally = Tally({}, 2)
    for shape in ((2, 1), (1, 2), (2, 3)):
        with pytest.raises(ArithmeticError, match="came back instead of"):
            tally.add(0, 2, np.ones(shape), np.ones(shape))
    laws = EmpiricalTally({"block_size": 4}, 2)
    whole, fewer = (Empirical.of([0.5] * count).masses for count in (4, 3))
    for rows in ([whole, fewer], [fewer, whole], [whole, Empirical.of([0.5] * 5).masses]):
        with pytest.raises(ArithmeticError, match="values are missing"):
            laws.add(0, 1, np.array(rows), 0)
    with pytest.raises(ArithmeticError, match="1 values are not numbers between 0 and their bound"):
        laws.add(0, 1, np.array([whole, whole]), 1)
    assert tally.blocks == laws.blocks == 0


def test_damaged_checkpoints_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run"
    run(values, {"run": 1}, 1, 0, 20).save(path)
    data = path.read_bytes()
    for at in range(0, len(data), 37):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with contextlib.suppress(hs.StorageError):
            assert Tally.load(path) == run(values, {"run": 1}, 1, 0, 20)  # a byte that means nothing
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(hs.StorageError):
        run(values, {"run": 1}, 1, 0, 20, RunOptions(checkpoint=path))


CHILD = """
import sys, time
sys.path.insert(0, sys.argv[2])
from tests.montecarlo.test_montecarlo import values
from hockeystick.montecarlo.runs import RunOptions, run
def slow(first, count):
    time.sleep(0.002 * count)
    return values(first, count)
print("ready", flush=True)
run(slow, {"run": 1}, 1, 0, 100_000, RunOptions(checkpoint=sys.argv[1]))
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_kill_9_loses_at_most_the_running_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run"
    root = str(Path(__file__).parents[2])
    done = 0
    for seconds in (0.35, 0.5, 0.27):
        command = [
            sys.executable,
            "-c",
            CHILD.replace("run(slow", "import hockeystick._base.executors as t; t.SECONDS = 0.05; run(slow"),
            str(path),
            root,
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            time.sleep(seconds)
            before = Tally.load(path).blocks if path.exists() else 0
            os.kill(child.pid, signal.SIGKILL)
            assert child.wait() == -signal.SIGKILL
        survived = Tally.load(path)
        # Nothing that was on disk is lost, and every range starts at 0: no block is skipped or doubled.
        assert survived.blocks >= before >= done
        assert survived.ranges == [(0, survived.blocks)]
        done = survived.blocks
    assert done > 0
    # What follows after the kills is what one undisturbed run finds.
    last = done + 25
    assert run(values, {"run": 1}, 1, 0, last, RunOptions(checkpoint=path)) == run(
        values, {"run": 1}, 1, 0, last
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epsilon": -0.1}, "epsilon = -0.1"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"samples": 0}, "samples = 0"),
        ({"confidence": 1.0}, "confidence"),
        ({"method": "magic"}, "method"),
        ({"adjacency": "replace_one"}, "adjacency"),
        ({"seed": -1}, "seed"),
    ],
)
def test_refusals(arguments: dict[str, object], message: str) -> None:
    settings: dict[str, object] = {"epsilon": 1.0, "samples": 10, "seed": 1, **arguments}
    with pytest.raises(hs.ParameterError, match=message):
        estimate_delta(dp_sgd(), **settings)  # type: ignore[arg-type]


def test_other_mechanisms_are_refused() -> None:
    with pytest.raises(hs.ParameterTypeError, match="must be a BandMF mechanism, not Gaussian"):
        estimate_delta(hs.Gaussian(1.0), 1.0, 10)  # type: ignore[arg-type]
    with pytest.raises(hs.ParameterTypeError, match="composed_with"):
        estimate_delta(dp_sgd(), 1.0, 10, composed_with=1.0)  # type: ignore[arg-type]


def test_seed_from_the_system_is_recorded() -> None:
    mechanism = dp_sgd(block_size=64)
    one, two = (estimate_delta(mechanism, 0.5, 64) for _ in range(2))
    assert one.seed != two.seed
    assert same(one, estimate_delta(mechanism, 0.5, 64, seed=one.seed))


def test_estimates_lie_in_their_intervals_where_all_values_are_the_largest() -> None:
    # Every output has the largest loss of direction "add"; sums of rounded values exceed what they may be.
    for mechanism, epsilon in [
        (hs.BandMF(hs.Identity(64), hs.matrix.MultiAttributionBMinSep(64, 100, 0.0, 2), 30.0), 0.0),
        (hs.BandMF(hs.BandedToeplitz([1.0, 2.0], 17), hs.BMinSep(17, 100, 0.5, False), 0.01), 1.0),
    ]:
        for seed in range(4):
            found = hs.estimate_delta(mechanism, epsilon, 4096, seed, "plain", adjacency="zero_out")
            for entry in found.directions:
                assert 0.0 <= entry.lower <= entry.estimate <= entry.upper <= 1.0


def test_an_estimate_is_the_largest_of_all_cases() -> None:
    scheme = hs.matrix.MultiAttributionBMinSep(6, 2, 0.1, examples_per_user=3)
    found = hs.estimate_delta(
        hs.BandMF(hs.BandedToeplitz.square_root(6, 2), scheme, 1.0), 0.5, 20_000, seed=1, method="plain"
    )
    assert {entry.case for entry in found.directions} == {0, 1, 2}
    for name in ("estimate", "lower", "upper"):
        assert getattr(found, name) == max(getattr(entry, name) for entry in found.directions)
    assert found.upper > found.directions[0].upper


def test_the_round_off_of_losses_is_on_the_safe_side() -> None:
    mechanism = hs.BandMF(hs.matrix.Identity(4), hs.Poisson(4, 0.1), 1.0)
    values = Direction(mechanism, "remove", 0.5)
    tally = values.tally(3, 0, 2)
    assert tally.sum(0) > tally.sum(1)
    # Exponents are rounded relatively: (2 / sigma)^2 for each step.
    little = hs.BandMF(hs.matrix.Identity(4), hs.Poisson(4, 0.1), 1e-4)
    assert loss_error(little) >= 1e-12 * 4 * (2 / 1e-4) ** 2
