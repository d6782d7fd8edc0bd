"""Any call with extreme parameters ends: with sound, ordered bounds, or an error that names the parameter.

Every call runs in a child that is given up after a while. `python -m tests.accounting.test_extreme_calls SEED CASES` runs more.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import random
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import hockeystick as hs

GUARD = 120.0
"""Seconds until a call counts as endless; calls take a fraction of one."""

WILD = [
    5e-324,
    1e-310,
    1e-308,
    1e-300,
    1e-200,
    1e-100,
    1e-30,
    1e-16,
    1e-3,
    0.5,
    1.0,
    3.0,
    1e3,
    1e6,
    1e16,
    1e100,
    1e308,
]
WHOLE = [0, 1, 2, 3, 7, 100, 1000, 10**6, 10**9, 2**31, 2**50, 2**53, 10**18]
SHARES = [0.0, 5e-324, 1e-310, 1e-300, 1e-100, 1e-60, 1e-3, 0.01, 0.3, 0.999, 1.0 - 2.0**-53, 1.0]


class Case:
    """One random description and one question, from a number alone."""

    def __init__(self, number: int) -> None:
        self.random = random.Random(number)

    def positive(self) -> float:
        value = self.random.choice(WILD)
        return value * self.random.uniform(0.5, 1.0) if self.random.random() < 0.5 else value

    def share(self) -> float:
        return self.random.choice(SHARES)

    def whole(self) -> int:
        return self.random.choice(WHOLE)

    def mechanism(self) -> Any:
        kinds: list[Callable[[], Any]] = [
            lambda: hs.Gaussian(self.positive()),
            lambda: hs.Laplace(self.positive()),
            lambda: hs.DiscreteLaplace(self.positive(), self.whole()),
            lambda: hs.DiscreteGaussian(self.positive(), self.whole()),
            lambda: hs.RandomizedResponse(self.positive(), self.whole(), self.random.random() < 0.3),
            lambda: hs.PureDP(self.positive()),
            lambda: hs.ApproximateDP(self.positive(), self.share()),
            lambda: hs.mechanisms.ExponentialMechanism(self.positive()),
            lambda: hs.mechanisms.Skellam(self.positive(), self.whole()),
            lambda: hs.FinitePair(*(self.masses() for _ in range(2))),
            lambda: hs.PrivacyLoss((-self.positive(), self.positive()), self.masses()[1:]),
            lambda: hs.mechanisms.DeclaredProfile((0.0, self.positive()), sorted(self.masses()[1:])[::-1]),
        ]
        return self.random.choice(kinds)()

    def masses(self) -> tuple[float, float, float]:
        first = self.share()
        second = self.share() * (1.0 - first)
        return first, second, 1.0 - first - second

    def repetitions(self) -> hs.Repetitions:
        mean = self.positive()
        laws = [
            hs.Repetitions.fixed,
            hs.Repetitions.poisson,
            hs.Repetitions.geometric,
            hs.Repetitions.logarithmic,
            lambda mean: hs.Repetitions.negative_binomial(mean, self.positive()),
        ]
        return self.random.choice(laws)(mean if self.random.random() < 0.5 else 1.0 + mean)

    def nested(self) -> Any:
        """What holds whole releases, or steps."""
        kinds: list[Callable[[], Any]] = [
            lambda: hs.PrivateSelection(self.release(), self.repetitions()),
            lambda: hs.mechanisms.Group(self.release(), self.whole()),
            lambda: hs.UserLevel(self.step(), self.whole()),
            lambda: hs.Mixture([self.step(), self.step()], [0.25, 0.75]),
            lambda: hs.PoissonSampled(self.step(), self.share()),
        ]
        return self.random.choice(kinds)()

    def release(self) -> Any:
        return self.step() * self.random.choice([1, 1, 3, self.whole()])

    def step(self) -> Any:
        kinds: list[Callable[[], Any]] = [
            self.mechanism,
            self.nested,
            lambda: hs.ZCDP(self.positive(), self.share()),
            lambda: hs.mechanisms.TruncatedPoissonGroup(
                self.positive(), self.whole(), self.share(), self.whole(), groups=self.whole()
            ),
            lambda: hs.PoissonSampled(self.mechanism(), self.share()),
            lambda: hs.WithoutReplacement(self.mechanism(), self.whole(), self.whole()),
            lambda: hs.WithReplacement(self.mechanism(), self.whole(), self.whole()),
            lambda: hs.TruncatedPoissonSampled(self.positive(), self.whole(), self.share(), self.whole()),
            lambda: hs.Mixture([self.mechanism(), self.mechanism()], [0.25, 0.75]),
            lambda: hs.MixtureOfGaussians(self.positive(), [0.0, self.positive()], [0.5, 0.5]),
        ]
        return self.random.choice(kinds)()

    def process(self) -> Any:
        found = self.step() * self.whole()
        return found + self.step() * self.whole() if self.random.random() < 0.3 else found

    def ask(self) -> None:
        """One call and what must hold for its answer."""
        kinds = [
            self.account,
            self.account,
            self.account,
            self.grid,
            self.calibrate,
            self.estimate,
            self.others,
        ]
        self.random.choice(kinds)()

    def account(self) -> None:
        adjacency = self.random.choice(["add", "remove", "add_or_remove", "replace_one", "zero_out"])
        profile = hs.account(self.process(), adjacency)
        kind = self.random.randrange(4)
        if kind == 0:
            bounds = profile.epsilon_bounds(self.share())
            assert 0.0 <= bounds.lower <= bounds.upper
        elif kind == 1:
            bounds = profile.delta_bounds(self.random.choice([0.0, *WILD]))
            assert 0.0 <= bounds.lower <= bounds.upper <= 1.0
        elif kind == 2:
            bounds = profile.slope_bounds(self.random.choice([0.0, *WILD]))
            assert bounds.lower <= bounds.upper <= 0.0
        else:
            lower, upper = profile.delta_curve([0.0, 1.0, 1e3, math.inf])
            assert (lower <= upper).all()

    def grid(self) -> None:
        found = hs.grid_epsilon(self.positive(), [self.share(), self.share()], self.whole(), self.share())
        assert (found.lower <= found.upper).all()
        found = hs.grid_delta(self.positive(), [self.share(), self.share()], self.whole(), self.positive())
        assert (found.lower <= found.upper).all()

    def calibrate(self) -> None:
        # A search asks a dozen questions; budgets that no noise meets are searched to the end.
        epsilon = self.random.choice([1e-3, 0.5, 3.0, 1e3, 1e308])
        delta, q, steps = (
            self.random.choice([0.0, 1e-40, 1e-5, 0.5, 1.0]),
            self.share(),
            min(10**9, self.whole()),
        )
        found = hs.calibrate_noise_multiplier(
            lambda noise: hs.PoissonSampled(hs.Gaussian(noise), q) * steps, epsilon=epsilon, delta=delta
        )
        assert found >= 0.0

    def estimate(self) -> None:
        steps, separation = self.random.choice([1, 2, 16, 64]), self.random.choice([1, 2, 8])
        mechanism = hs.BandMF(
            hs.BandedToeplitz.square_root(steps, min(steps, separation)),
            hs.BMinSep(steps, separation, self.share()),
            self.positive(),
        )
        samples = self.random.choice([1, 100, 10_000, 10**18])
        confidence = self.random.choice([0.0, 0.5, 0.99, 1.0 - 2.0**-50, 1.0 - 2.0**-53, 1.0])
        found = hs.estimate_delta(mechanism, self.positive(), samples, seed=1, confidence=confidence)
        assert 0.0 <= found.lower <= found.upper <= 1.0

    def others(self) -> None:
        kinds: list[Callable[[], Any]] = [
            lambda: hs.BandedToeplitz.optimized(self.whole(), self.whole()),
            lambda: hs.BandedToeplitz.square_root(self.random.choice([1, 7, 1000]), self.whole()),
            lambda: hs.individual.IndividualRDPFilter(
                num_examples=10, epsilon=self.positive(), delta=self.share()
            ),
            lambda: hs.IndividualGDPFilter(num_examples=10, epsilon=self.positive(), delta=self.share()),
            lambda: hs.dp_sgd(self.positive(), self.whole(), self.whole(), self.whole()),
        ]
        self.random.choice(kinds)()


def work(numbers: Any, answers: Any) -> None:
    hs.set_threads(1)
    warnings.simplefilter("error")
    for number in iter(numbers.recv, None):
        try:
            Case(number).ask()
            answers.send(None)
        except (hs.ParameterError, hs.ParameterTypeError):
            answers.send(None)
        except Exception as error:  # noqa: BLE001 - whatever is wrong is reported
            answers.send(repr(error))


def failures(numbers: range, guard: float = GUARD) -> dict[int, str]:
    """What went wrong, by the number of the case."""
    context = multiprocessing.get_context("spawn")
    found: dict[int, str] = {}
    child = None
    for number in numbers:
        if child is None:
            (out, questions), (answers, back) = context.Pipe(False), context.Pipe(False)
            child = context.Process(target=work, args=(out, back), daemon=True)
            child.start()
            out.close()
            back.close()
        questions.send(number)
        # The first answer includes what a new process imports.
        answer = f"no answer within {guard} s"
        with contextlib.suppress(EOFError):
            answer = answers.recv() if answers.poll(guard) else answer
        if answer is not None:
            found[number] = answer
            child.kill()
            child.join()
            child = None
    if child is not None:
        questions.send(None)
        child.join()
    return found


def test_every_call_ends() -> None:
    assert failures(range(40)) == {}


def test_rare_sampling_has_sound_finite_answers() -> None:
    # Probabilities down to the smallest double are in [0, 1].
    for q in (5e-324, 1e-308, 1e-200, 1e-100, 1e-60):
        for mechanism in (
            hs.Gaussian(1.0),
            hs.Laplace(2.0),
            hs.Mixture([hs.Gaussian(2.0), hs.PureDP(1.0)], [0.5, 0.5]),
        ):
            profile = hs.account(hs.PoissonSampled(mechanism, q) * 1000)
            assert profile.epsilon_bounds(max(1e-300, min(1.0, 2000.0 * q))) == (0.0, 0.0)
            for delta in (1e-300, 1e-150, 1e-40):
                lower, upper = profile.epsilon_bounds(delta)
                assert 0.0 <= lower <= upper < math.inf
            # More steps are less safe, and none of them is worse than to see the record when it is sampled.
            assert 0.0 < profile.delta(0.0) <= 1000.0 * q * (1.0 + 1e-9) + 5e-324
            single = hs.account(hs.PoissonSampled(mechanism, q)).delta_bounds(0.5)
            assert profile.delta(0.5) >= single.lower
            beside = hs.account(hs.PoissonSampled(mechanism, q) * 1000 + hs.Gaussian(1.0) * 2)
            alone = hs.account(hs.Gaussian(1.0) * 2)
            assert (
                alone.epsilon_bounds(1e-6).lower <= beside.epsilon(1e-6) <= alone.epsilon(1e-6) * (1 + 1e-6)
            )


if __name__ == "__main__":
    start, cases = int(sys.argv[1]), int(sys.argv[2])
    begun = time.monotonic()
    bad = failures(range(start, start + cases), 30.0)
    print(f"{cases} cases, {len(bad)} failures, {time.monotonic() - begun:.0f} s")
    for number, why in bad.items():
        print(number, why)
