"""Confidence intervals and verifier sizes: against mpmath, exact binomial tails, and the paper's numbers."""

import math
from fractions import Fraction

import hockeystick as hs
import mpmath as mp
import numpy as np
import pytest
from hockeystick.montecarlo.confidence import kl, mean_interval, plan_verification, shared_confidence
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom


def exact_kl(q: float, p: float) -> mp.mpf:
    with mp.workdps(60):
        q_, p_ = mp.mpf(q), mp.mpf(p)
        first = q_ * mp.log(q_ / p_) if q else mp.mpf(0)
        second = (1 - q_) * (mp.log1p(-q_) - mp.log1p(-p_)) if q < 1.0 else mp.mpf(0)
        return first + second


@given(q=st.floats(0.0, 1.0), p=st.floats(1e-300, 1.0, exclude_max=True))
@settings(max_examples=300, deadline=None)
def test_kl_is_accurate(q: float, p: float) -> None:
    truth = float(exact_kl(q, p))
    assert kl(q, p) == pytest.approx(truth, rel=2e-13, abs=1e-320)


@pytest.mark.parametrize("p", [1e-12, 1e-8, 1e-3, 0.3, 0.9])
@pytest.mark.parametrize("near", [1e-1, 0.049, 1e-3, 1e-6, 1e-10])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_kl_does_not_cancel(p: float, near: float, sign: float) -> None:
    q = p * (1.0 + sign * near)
    assert kl(q, p) == pytest.approx(float(exact_kl(q, p)), rel=2e-13)


def test_kl_at_the_ends() -> None:
    assert kl(0.0, 0.5) == pytest.approx(math.log(2.0), rel=1e-15)
    assert kl(1.0, 0.25) == pytest.approx(math.log(4.0), rel=1e-15)
    assert kl(0.5, 0.0) == kl(0.5, 1.0) == math.inf
    assert kl(1.0, 1.0) == kl(0.0, 0.0) == 0.0


@pytest.mark.parametrize(("samples", "confidence"), [(1, 0.9), (20, 0.95), (300, 0.99), (300, 0.5)])
def test_interval_covers_every_bernoulli(samples: int, confidence: float) -> None:
    counts = np.arange(samples + 1)
    ends = [mean_interval(count / samples, samples, confidence) for count in counts]
    for p in [0.0, 1e-6, 1e-3, 0.01, 0.2, 0.5, 0.77, 0.999, 1.0]:
        weights = binom.pmf(counts, samples, p)
        below = sum(w for w, end in zip(weights, ends, strict=True) if p > end.upper)
        above = sum(w for w, end in zip(weights, ends, strict=True) if p < end.lower)
        assert max(below, above) <= (1.0 - confidence) / 2.0


@given(
    mean=st.floats(0.0, 1.0),
    samples=st.integers(1, 10**12),
    confidence=st.floats(0.0, 1.0 - 1e-12),
    bound=st.floats(1e-12, 1.0),
)
@settings(max_examples=200, deadline=None)
def test_interval_ends_where_the_bound_says(
    mean: float, samples: int, confidence: float, bound: float
) -> None:
    lower, upper = mean_interval(mean * bound, samples, confidence, bound)
    assert 0.0 <= lower <= mean * bound <= upper <= bound
    limit = math.log(2.0 / (1.0 - confidence)) / samples
    for end in (lower, upper):
        if 1e-300 < end < bound * (1.0 - 1e-9):
            assert float(exact_kl(mean, end / bound)) >= limit * (1.0 - 1e-9) - 1e-12 * limit


def test_nothing_follows_from_nan() -> None:
    assert mean_interval(math.nan, 10, 0.9, bound=0.25) == (0.0, 0.25)


@pytest.mark.parametrize(
    ("target", "known"), [(1e-3, 75_013), (1e-5, 10_745_967), (1.301e-8, 11_767_467_504)]
)
def test_sample_sizes_of_estimate_verify_release(target: float, known: int) -> None:
    plan = plan_verification(target_delta=target)
    assert plan.threshold == target / 2
    # The smallest number by 60-digit arithmetic; at 1.301e-8 that is 2 below the number in use.
    assert plan.samples == fewest(target)
    assert known - 2 <= plan.samples <= known


def fewest(target: float) -> int:
    with mp.workdps(60):
        t = mp.mpf(target)
        q = mp.mpf(target / 2)

        def needed(share: mp.mpf) -> mp.mpf:
            delta = q + share * (t - q)
            return mp.log((1 - delta) / (t - delta)) / exact_kl(q, delta)

        low, high = mp.mpf("0.5"), 1 - mp.mpf(10) ** -9
        for _ in range(120):
            left, right = low + (high - low) * 0.382, low + (high - low) * 0.618
            low, high = (low, right) if needed(left) < needed(right) else (left, high)
        return int(mp.ceil(needed((low + high) / 2)))


@given(exponent=st.floats(-10.0, -0.01), ratio=st.floats(0.01, 0.95))
@settings(max_examples=25, deadline=None)
def test_any_two_give_the_third(exponent: float, ratio: float) -> None:
    target = 10.0**exponent
    plan = plan_verification(target, threshold=ratio * target)
    by_samples = plan_verification(target, samples=plan.samples)
    by_threshold = plan_verification(threshold=plan.threshold, samples=plan.samples)
    assert by_samples.threshold >= plan.threshold * (1.0 - 1e-9)
    assert by_threshold.target_delta <= target * (1.0 + 1e-9)
    assert by_samples.samples == by_threshold.samples == plan.samples
    for found in (plan, by_samples, by_threshold):
        assert found.threshold < found.tested_delta < found.target_delta
        with mp.workdps(40):
            failure = mp.exp(-found.samples * exact_kl(found.threshold, found.tested_delta))
            assert failure <= found.failure_probability
            assert found.tested_delta + failure * (1 - mp.mpf(found.tested_delta)) <= found.target_delta


@pytest.mark.parametrize(("target", "threshold", "samples"), [(0.2, 0.1, None), (0.05, None, 400)])
def test_verifier_rarely_accepts_what_it_must_reject(
    target: float, threshold: float | None, samples: int | None
) -> None:
    plan = plan_verification(target, threshold, samples)
    most = math.floor(plan.samples * plan.threshold * (1.0 + 1e-12))
    # The worst law for a mean is the Bernoulli one.
    assert binom.cdf(most, plan.samples, plan.tested_delta) <= plan.failure_probability


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target_delta": 0.0}, "target_delta"),
        ({"target_delta": 1.0}, "target_delta"),
        ({"target_delta": math.nan}, "target_delta"),
        ({"target_delta": 1e-3, "threshold": 1e-3}, "must be below"),
        ({"target_delta": 1e-3, "threshold": -1e-9}, "threshold"),
        ({"target_delta": 1e-3, "samples": 100}, "must be at least"),
        ({"target_delta": 1e-3, "samples": 0}, "samples"),
        ({"target_delta": 1e-300}, r"more than 2\^53"),
    ],
)
def test_refusals(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(hs.ParameterError, match=message):
        plan_verification(**arguments)  # type: ignore[arg-type]


def test_two_of_three_must_be_given() -> None:
    for arguments in ({"samples": 10}, {"threshold": 0.1}, {}):
        with pytest.raises(hs.ParameterTypeError, match="two of the three"):
            plan_verification(**arguments)  # type: ignore[arg-type]
    with pytest.raises(hs.ParameterTypeError, match="left out"):
        plan_verification(0.1, 0.05, 100)
    with pytest.raises(hs.ParameterError, match="mean"):
        mean_interval(0.5, 10, 0.9, bound=0.25)


def test_a_mean_may_exceed_its_bound_by_rounding_alone() -> None:
    bound = 0.3
    above = math.nextafter(bound, 1.0)
    assert mean_interval(above, 10, 0.9, bound) == mean_interval(bound, 10, 0.9, bound)
    with pytest.raises(hs.ParameterError, match="mean"):
        mean_interval(bound * (1.0 + 1e-9), 10, 0.9, bound)


def test_a_confidence_leaves_a_failure_that_doubles_tell_from_none() -> None:
    assert mean_interval(0.5, 10, 1.0 - 2.0**-50).upper < 1.0
    with pytest.raises(hs.ParameterError, match="confidence = "):
        mean_interval(0.5, 10, 1.0 - 2.0**-51)


def test_what_a_plan_says_in_words_is_rounded_up() -> None:
    """Two probabilities of which a reader adds up at least the truth."""
    for samples in (80_000, 123_457, 10**6):
        plan = plan_verification(1e-3, samples=samples)
        words = plan.explained().replace(",", "").split()
        tested = float(words[words.index("exceeds") + 1])
        failure = float(words[words.index("probability") + 3])
        assert plan.tested_delta <= tested <= plan.tested_delta * (1.0 + 1e-5)
        assert plan.failure_probability <= failure <= plan.failure_probability * (1.0 + 1e-5)


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 40])
def test_shares_of_a_failure_are_no_more_than_it(parts: int) -> None:
    """Rounding the confidence of each part to the nearest gave away up to a quarter of the failure probability."""
    for confidence in (0.1, 0.5, 0.99, 1 - 2**-40, 1 - 2**-44, 1 - 3 * 2**-46):
        share = shared_confidence(confidence, parts)
        failure = 1 - Fraction(share)
        whole = 1 - Fraction(confidence)
        assert parts * failure <= whole * (1 + Fraction(1, 2**50))
        assert parts * failure >= whole * (1 - Fraction(1, 2**44)) - parts * Fraction(1, 2**52)
    if parts > 1:
        with pytest.raises(hs.ParameterError, match=f"confidence = .* 1 - {parts} "):
            shared_confidence(1 - 2**-50, parts)


def test_targets_are_rounded_up() -> None:
    """tested + failure (1 - tested), exactly."""
    for samples in range(1000, 3000, 10):
        plan = plan_verification(threshold=1e-3, samples=samples)
        tested, failure = Fraction(plan.tested_delta), Fraction(plan.failure_probability)
        assert Fraction(plan.target_delta) >= tested + failure * (1 - tested)
