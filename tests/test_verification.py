"""The verifier with planned tests: its error rate, its verdicts on executors and after interruptions."""

import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hockeystick as hs
import numpy as np
import pytest
from hockeystick.empirical import Empirical
from hockeystick.mean_test import scaled_threshold
from hockeystick.tally import EmpiricalTally, run
from hockeystick.verification import verify_values

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
class Beta:
    """Values in [0, e^log_bound], that many times beta(1, b)."""

    b: float
    log_bound: float = -300.0
    surprise: float = 0.0
    pilots: int = 0
    block_size: int = SIZE
    drawn: int = 0

    def delta(self) -> float:
        return math.exp(self.log_bound) * (self.surprise + (1.0 - self.surprise) / (1.0 + self.b))

    def threshold(self, tested: float) -> float:
        return scaled_threshold(tested, self.log_bound)

    def tally(
        self,
        seed: int,
        first: int,
        last: int,
        key: Mapping[str, Any],
        checkpoint: Any = None,
        progress: Any = None,
        stop: Callable[[EmpiricalTally], bool] | None = None,
        executor: Any = None,
    ) -> EmpiricalTally:
        key = {**key, "seed": seed, "block_size": SIZE}
        draw = Draw(seed, self.b, self.surprise, self.pilots)
        self.drawn += last - first
        return run(draw, key, 1, first, last, checkpoint, progress, stop, EmpiricalTally, executor)


def verify(values: Beta, tested: float, seed: int = 1000, failure: float = 1e-9, **settings: Any) -> Any:
    return verify_values(values, tested, failure, seed, seed + 10**6, key={"run": 1}, **settings)


def test_violations_are_rarely_accepted() -> None:
    # The pilot does not see the large values that make delta exceed what is tested by a hair.
    rate = 0.05
    values = Beta(49.0, surprise=0.03, pilots=10**6)
    tested = values.delta() * (1.0 - 1e-9)
    pilot = values.tally(3, 0, 20, {"run": 0}).law()
    verdicts = [verify(values, tested, 10**6 + seed, rate, pilot=pilot) for seed in range(1000)]
    # Pr[Binomial(1000, .05) > 72] < 1e-3.
    assert sum(verdict.accepted for verdict in verdicts) <= 72
    assert {verdict.test for verdict in verdicts} == {verdicts[0].test}
    assert verdicts[0].test.samples > 100


@pytest.mark.parametrize("method", ["auto", "betting", "bernstein", "kl"])
def test_what_is_private_is_accepted(method: str) -> None:
    values = Beta(199.0)
    verdicts = [verify(values, 1.2 * values.delta(), seed, method=method) for seed in range(10)]
    assert sum(verdict.accepted for verdict in verdicts) >= 9
    for verdict in verdicts:
        planned = -(-verdict.test.samples // SIZE) * SIZE
        assert verdict.samples <= planned
        assert verdict.accepted == (verdict.evidence >= math.log(1e9))
    used = np.mean([verdict.samples / verdict.test.samples for verdict in verdicts])
    if method in ("auto", "betting"):
        assert {verdict.test.method for verdict in verdicts} == {"betting"}
        assert used < 0.9  # most are done early
    else:
        assert used >= 1.0


def test_hopeless_or_expensive_candidates_cost_a_pilot_only() -> None:
    values = Beta(199.0)
    for settings in (
        {"tested": 0.99 * values.delta()},
        {"tested": 1.5 * values.delta(), "most_samples": 100},
    ):
        verdict = verify(values, **settings)  # type: ignore[arg-type]
        assert (verdict.accepted, verdict.test, verdict.samples) == (False, None, 0)
    # A bound below what is tested needs no samples, one that is infinitely far above none either.
    drawn = values.drawn
    assert verify(values, 2.0 * math.exp(values.log_bound)).accepted
    assert not verify(Beta(199.0, log_bound=700.0), 1e-300).accepted
    assert values.drawn == drawn
    with pytest.raises(hs.ParameterError, match="pilot_seed = 7"):
        verify_values(values, 0.1, 0.1, 7, 7, key={})


def test_same_verdict_after_interruptions_and_on_executors(tmp_path: Path) -> None:
    values = Beta(199.0)
    tested = 1.3 * values.delta()
    whole = verify(values, tested)
    assert whole.accepted
    assert whole.test is not None
    with ThreadPoolExecutor(3) as pool:
        assert verify(values, tested, executor=pool) == whole

    class Enough(Exception):
        pass

    for patience in range(2, 60):
        calls = 0

        def interrupt(done: int, total: int, patience: int = patience) -> None:
            nonlocal calls
            calls += 1
            assert 0 <= done <= total
            if calls == patience:
                raise Enough

        try:
            found = verify(values, tested, checkpoint=tmp_path / "new", progress=interrupt)
            break
        except Enough:
            continue
    assert patience > 3
    assert found == whole
    # With nothing left to do, too.
    assert verify(values, tested, checkpoint=tmp_path / "new") == whole
