"""The verifier with planned tests: its error rate, its verdicts on executors and after interruptions."""

import math
import random
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hockeystick as hs
import numpy as np
import pytest
from hockeystick._base import executors
from hockeystick.montecarlo.empirical import Empirical
from hockeystick.montecarlo.runs import ALONE, RunOptions, Samples, run
from hockeystick.montecarlo.tally import EmpiricalTally
from hockeystick.montecarlo.verify import decide

SIZE = 64


@dataclass(frozen=True)
class Draw:
    """beta(1, b) values, and 1 instead with a probability that only the seeds below ``pilots`` do not see."""

    seed: int
    b: float
    surprise: float = 0.0
    pilots: int = 0

    def __call__(self, first: int, count: int) -> tuple[Any, int]:
        found = []
        for block in range(first, first + count):
            rng = np.random.default_rng([self.seed, block])
            values = rng.beta(1.0, self.b, SIZE)
            if self.seed >= self.pilots:
                values[rng.random(SIZE) < self.surprise] = 1.0
            found.append(values)
        return np.array([Empirical.of(np.concatenate(found)).masses], dtype=np.uint64), 0


@dataclass
class Beta(Samples[EmpiricalTally]):
    """beta(1, b) values with a surprise."""

    b: float
    surprise: float = 0.0
    pilots: int = 0
    block_size: int = SIZE

    def mean(self) -> float:
        return self.surprise + (1.0 - self.surprise) / (1.0 + self.b)

    def tally(
        self,
        seed: int,
        first: int,
        last: int,
        options: RunOptions = ALONE,
        stop: Callable[[EmpiricalTally], bool] | None = None,
    ) -> EmpiricalTally:
        key = {"run": 1, "seed": seed, "block_size": SIZE}
        draw = Draw(seed, self.b, self.surprise, self.pilots)
        return run(draw, key, 1, first, last, options, stop, EmpiricalTally)

    def plan(self, tested: float, failure: float = 1e-9) -> hs.montecarlo.MeanTest:
        pilot = self.tally(10**9 if not self.pilots else 0, 0, 128).law()
        return hs.montecarlo.plan_test(tested, failure, pilot=pilot)


def test_violations_are_rarely_accepted() -> None:
    # The pilot does not see the large values that make the mean exceed what is tested by a hair.
    values = Beta(49.0, surprise=0.03, pilots=1)
    test = values.plan(values.mean() * (1.0 - 1e-9), 0.05)
    assert len(test.looks(SIZE)) > 2
    accepted = sum(decide(test, values, seed)[0] for seed in range(1, 1001))
    # Pr[Binomial(1000, .05) > 72] < 1e-3.
    assert accepted <= 72


def test_what_is_good_is_accepted() -> None:
    values = Beta(199.0)
    test = values.plan(1.2 * values.mean())
    planned = -(-test.samples // SIZE) * SIZE
    verdicts = [decide(test, values, seed) for seed in range(10)]
    assert sum(accepted for accepted, _ in verdicts) >= 9
    for accepted, seen in verdicts:
        assert accepted == (test.evidence(seen) >= math.log(1e9))
        assert seen.count <= planned if accepted else seen.count == planned
    # Most need not wait for the end.
    assert np.mean([seen.count / planned for _, seen in verdicts]) < 0.9
    # Nothing to prove, nothing drawn.
    assert decide(hs.montecarlo.MeanTest(1.0, 0.1, 10, ((0.5, 1.0),)), values, 1) == (
        True,
        Empirical.of([]),
    )


def test_what_is_bad_is_rejected_at_the_end() -> None:
    values = Beta(99.0)
    test = Beta(199.0).plan(1.5 / 200.0)
    accepted, seen = decide(test, values, 1)
    assert not accepted
    assert seen.count == test.looks(SIZE)[-1] * SIZE


def test_same_verdict_after_interruptions_and_on_executors(tmp_path: Path) -> None:
    values = Beta(199.0)
    test = values.plan(1.3 * values.mean())
    whole = decide(test, values, 5)
    assert whole[0]
    with ThreadPoolExecutor(3) as pool:
        assert decide(test, values, 5, RunOptions(executor=pool)) == whole

    class Enough(Exception):
        pass

    path = tmp_path / "verify"
    for patience in range(2, 60):
        calls = 0

        def interrupt(done: int, total: int, patience: int = patience) -> None:
            nonlocal calls
            calls += 1
            assert 0 <= done <= total == test.looks(SIZE)[-1] * SIZE
            if calls == patience:
                raise Enough

        try:
            found = decide(test, values, 5, RunOptions(checkpoint=path, progress=interrupt))
            break
        except Enough:
            continue
    assert patience > 3
    assert found == whole
    # With nothing left to do, too.
    assert decide(test, values, 5, RunOptions(checkpoint=path)) == whole
    # A file that holds something else is not a beginning.
    other = RunOptions(checkpoint=tmp_path / "other")
    values.tally(6, 10**4, 10**4 + 2, other)
    with pytest.raises(hs.ParameterError, match="not the first of"):
        decide(test, values, 6, other)


class Disorderly(Executor):
    """Keeps up to eight tasks and answers them in any order."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.waiting: list[tuple[Future[Any], Any]] = []

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, function(*args, **kwargs)))
        while len(self.waiting) >= 8:
            self.answer()
        return future

    def answer(self) -> None:
        future, answer = self.waiting.pop(self.random.randrange(len(self.waiting)))
        future.set_result(answer)


@pytest.mark.parametrize("resume_here", [True, False])
def test_any_interruption_of_an_executor_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resume_here: bool
) -> None:
    # Workers bring blocks of a later look before all of its first: the file has gaps whenever the process ends.
    values = Beta(199.0)
    test = values.plan(1.8 * values.mean(), 1e-4)
    whole = decide(test, values, 5)
    used: list[Disorderly] = []
    waiting = executors.wait

    def delivering(pending: Any, **settings: Any) -> Any:
        for executor in used:
            while executor.waiting and not any(future.done() for future in pending):
                executor.answer()
        return waiting(pending, **settings)

    monkeypatch.setattr(executors, "wait", delivering)
    # One block at a time, so that every block is a boundary; what is done is saved when the run ends.
    monkeypatch.setattr(executors, "_next_chunk", lambda blocks, seconds: 1)

    class Enough(Exception):
        pass

    gaps = 0
    for patience in range(1, 10**6):
        path, calls = tmp_path / f"verify-{patience}", 0

        def interrupt(done: int, total: int, patience: int = patience) -> None:
            nonlocal calls
            calls += 1
            if calls == patience:
                raise Enough

        used[:] = [Disorderly(patience)]
        try:
            assert (
                decide(test, values, 5, RunOptions(checkpoint=path, progress=interrupt, executor=used[0]))
                == whole
            )
            break
        except Enough:
            pass
        held = EmpiricalTally.load(path).ranges if path.exists() else []
        gaps += len(held) > 1
        used[:] = [] if resume_here else [Disorderly(-patience)]
        found = decide(test, values, 5, RunOptions(checkpoint=path, executor=used[0] if used else None))
        assert found == whole, held
    assert patience > whole[1].count // SIZE
    assert gaps > 10
