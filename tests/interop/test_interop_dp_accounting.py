"""dp_accounting's events and accountants against hockeystick's."""

import copy
import functools
import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import dp_accounting as dpa
import hockeystick as hs
import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event as ev
from dp_accounting.pld import privacy_loss_distribution as pld
from hockeystick.interop import dp_accounting as bridge
from hockeystick.interop.dp_accounting import HockeystickAccountant, adjacency, from_event, to_event
from hypothesis import given, settings
from hypothesis import strategies as st

ADD_OR_REMOVE = dpa.NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE_ONE = dpa.NeighboringRelation.REPLACE_ONE
ZERO_OUT = dpa.NeighboringRelation.REPLACE_SPECIAL
RELATIONS = (ADD_OR_REMOVE, REPLACE_ONE, ZERO_OUT)

GAUSSIAN = ev.GaussianDpEvent(1.7)
LAPLACE = ev.LaplaceDpEvent(3.1)
DISCRETE = ev.DiscreteLaplaceDpEvent(0.2345678, 2)
RESPONSE = ev.RandomizedResponseDpEvent(0.65, 4)
MIXTURE = ev.MixtureOfGaussiansDpEvent(2.0, [0.0, 1.0, 2.5], [0.7, 0.2, 0.1])
DP_SGD = ev.SelfComposedDpEvent(ev.PoissonSampledDpEvent(0.02, ev.GaussianDpEvent(1.1)), 200)


# Between dp_accounting's bounds


def optimistic(event: Any, relation: Any) -> Any:
    """The lower bounds that dp_accounting can compute, but its accountants do not offer."""
    interval: dict[str, Any] = {"pessimistic_estimate": False, "value_discretization_interval": 1e-4}
    if isinstance(event, ev.ComposedDpEvent):
        return functools.reduce(
            lambda a, b: a.compose(b), [optimistic(part, relation) for part in event.events]
        )
    if isinstance(event, ev.SelfComposedDpEvent):
        return optimistic(event.event, relation).self_compose(event.count)
    q, inner = (
        (event.sampling_probability, event.event)
        if isinstance(event, ev.PoissonSampledDpEvent)
        else (1.0, event)
    )
    if isinstance(inner, ev.GaussianDpEvent):
        return pld.from_gaussian_mechanism(
            inner.noise_multiplier,
            sampling_prob=q,
            neighboring_relation=relation,
            use_connect_dots=False,
            **interval,
        )
    if isinstance(inner, ev.LaplaceDpEvent):
        return pld.from_laplace_mechanism(
            inner.noise_multiplier, sampling_prob=q, use_connect_dots=False, **interval
        )
    if isinstance(inner, ev.DiscreteLaplaceDpEvent):
        return pld.from_discrete_laplace_mechanism(inner.noise_parameter, inner.sensitivity, **interval)
    assert isinstance(inner, ev.RandomizedResponseDpEvent)
    return pld.from_randomized_response(
        inner.noise_parameter, inner.num_buckets, neighboring_relation=relation, **interval
    )


COMPARED = [
    (GAUSSIAN, ADD_OR_REMOVE),
    (GAUSSIAN, REPLACE_ONE),
    (GAUSSIAN, ZERO_OUT),
    (DP_SGD, ADD_OR_REMOVE),
    (DP_SGD, REPLACE_ONE),
    (DP_SGD, ZERO_OUT),
    (ev.SelfComposedDpEvent(LAPLACE, 20), ADD_OR_REMOVE),
    (ev.SelfComposedDpEvent(LAPLACE, 20), ZERO_OUT),
    (ev.SelfComposedDpEvent(DISCRETE, 10), ADD_OR_REMOVE),
    (ev.SelfComposedDpEvent(DISCRETE, 10), ZERO_OUT),
    (ev.SelfComposedDpEvent(ev.PoissonSampledDpEvent(0.1, LAPLACE), 40), ADD_OR_REMOVE),
    (RESPONSE, REPLACE_ONE),
    (RESPONSE, ZERO_OUT),
    (ev.RandomizedResponseDpEvent(0.3, 2), ZERO_OUT),
    (ev.ComposedDpEvent([DP_SGD, ev.SelfComposedDpEvent(GAUSSIAN, 3)]), ADD_OR_REMOVE),
]


@pytest.mark.sweep
@pytest.mark.parametrize(("event", "relation"), COMPARED)
def test_between_dp_accountings_bounds(event: Any, relation: Any) -> None:
    ours = HockeystickAccountant(relation, accuracy=1e-8).compose(event)
    pessimistic = dpa.pld.PLDAccountant(relation).compose(event)
    lower = optimistic(event, relation)
    for delta in (1e-3, 1e-6):
        assert lower.get_epsilon_for_delta(delta) <= ours.get_epsilon(delta)
        assert ours.get_epsilon(delta) <= pessimistic.get_epsilon(delta)
    for epsilon in (0.1, 0.9):
        assert lower.get_delta_for_epsilon(epsilon) <= ours.get_delta(epsilon)
        assert ours.get_delta(epsilon) <= pessimistic.get_delta(epsilon)


@pytest.mark.parametrize("relation", [ADD_OR_REMOVE, ZERO_OUT])
def test_mixtures_of_gaussians_are_below_dp_accounting(relation: Any) -> None:
    ours = HockeystickAccountant(relation).compose(MIXTURE)
    # Minutes at its default interval.
    theirs = dpa.pld.PLDAccountant(relation, value_discretization_interval=0.05).compose(MIXTURE)
    assert theirs.get_epsilon(1e-3) * 0.8 <= ours.get_epsilon(1e-3) <= theirs.get_epsilon(1e-3)
    poisson = ev.MixtureOfGaussiansDpEvent(1.7, [0.0, 1.0], [0.75, 0.25])
    ours = HockeystickAccountant(relation).compose(poisson)
    assert ours.get_epsilon(1e-5) == pytest.approx(
        hs.account(hs.PoissonSampled(hs.Gaussian(1.7), 0.25)).epsilon(1e-5), rel=1e-6
    )


@pytest.mark.parametrize("relation", RELATIONS)
def test_truncated_batches_are_below_dp_accounting(relation: Any) -> None:
    event = ev.TruncatedSubsampledGaussianDpEvent(10_000, 0.01, 115, 1.0)
    many = ev.SelfComposedDpEvent(event, 20)
    ours = HockeystickAccountant(relation).compose(many)
    step = hs.TruncatedPoissonSampled(1.0, 10_000, 0.01, 115)
    assert ours.process == step * 20
    theirs = dpa.pld.PLDAccountant(relation, value_discretization_interval=1e-3).compose(many)
    assert ours.get_epsilon(1e-6) <= theirs.get_epsilon(1e-6)
    # At least that of Poisson batches that are never cut.
    poisson = hs.PoissonSampled(hs.Gaussian(1.0), 0.01) * 20
    assert hs.account(poisson, adjacency(relation)).epsilon_bounds(1e-6).lower < ours.get_epsilon(1e-6)


def test_tree_aggregation_is_one_gaussian() -> None:
    for counts, depth in ((1, 1), (3, 2), (4, 3), ([7, 100, 3], 7), (1023, 10), (1024, 11)):
        event = ev.SingleEpochTreeAggregationDpEvent(4.0, counts)
        ours = HockeystickAccountant(ZERO_OUT).compose(event, 3)
        exact = hs.account(hs.Gaussian(4.0) * (3 * depth), "zero_out").epsilon(1e-6)
        assert exact <= ours.get_epsilon(1e-6) <= exact * (1 + 1e-12)
        renyi = dpa.rdp.RdpAccountant(neighboring_relation=ZERO_OUT).compose(event, 3)
        assert ours.get_epsilon(1e-6) <= renyi.get_epsilon(1e-6)


def test_several_gaussians_on_one_sample() -> None:
    inner = ev.ComposedDpEvent([ev.SelfComposedDpEvent(ev.GaussianDpEvent(2.0), 3), ev.GaussianDpEvent(1.5)])
    event = ev.SelfComposedDpEvent(ev.PoissonSampledDpEvent(0.01, inner), 100)
    ours = HockeystickAccountant().compose(event).get_epsilon(1e-5)
    combined = (3 / 2.0**2 + 1 / 1.5**2) ** -0.5
    exact = hs.account(hs.PoissonSampled(hs.Gaussian(combined), 0.01) * 100).epsilon_bounds(1e-5)
    assert exact.lower <= ours <= exact.upper * (1 + 1e-6)
    assert ours <= dpa.rdp.RdpAccountant().compose(event).get_epsilon(1e-5)


def test_nested_poisson_samples_multiply() -> None:
    nested = ev.PoissonSampledDpEvent(0.2, ev.PoissonSampledDpEvent(0.3, ev.GaussianDpEvent(1.0)))
    (step, count), *rest = from_event(nested, ADD_OR_REMOVE)
    assert not rest
    assert count == 1
    assert 0.2 * 0.3 <= step.sampling_probability <= 0.06 * (1 + 1e-14)


# Conventions


def test_arrays_of_one_number_are_numbers() -> None:
    """As JAX computes a rate that follows a schedule; masked ones hide what they are."""

    def event(q: Any, again: Any, count: Any, sigma: Any) -> Any:
        inner = ev.PoissonSampledDpEvent(again, ev.SelfComposedDpEvent(ev.GaussianDpEvent(sigma), 1))
        return ev.SelfComposedDpEvent(ev.PoissonSampledDpEvent(q, inner), count)

    arrays = event(np.array(0.1), np.float32(0.1), np.array(3), np.array(2.0))
    plain = event(0.1, float(np.float32(0.1)), 3, 2.0)
    assert from_event(arrays, ADD_OR_REMOVE) == from_event(plain, ADD_OR_REMOVE)
    fixed = ev.SampledWithoutReplacementDpEvent(1000, np.array(10), ev.GaussianDpEvent(np.array(2.0)))
    assert from_event(fixed, REPLACE_ONE) == hs.WithoutReplacement(hs.Gaussian(2.0), 10, 1000).as_process()
    for wrong in (np.ma.masked, np.ma.array(0.1, mask=True), np.array([0.1]), np.array("0.1")):
        with pytest.raises(dpa.UnsupportedEventError):
            HockeystickAccountant().compose(ev.PoissonSampledDpEvent(wrong, ev.GaussianDpEvent(1.0)))


def test_default_relation_is_that_of_dp_accounting() -> None:
    assert HockeystickAccountant().neighboring_relation is dpa.pld.PLDAccountant().neighboring_relation
    assert {adjacency(r) for r in RELATIONS} == {"add_or_remove", "replace_one", "zero_out"}
    with pytest.raises(hs.ParameterTypeError, match="neighboring_relation = 'add'"):
        adjacency("add")  # type: ignore[arg-type]


def test_replacing_moves_the_sum_twice_as_far() -> None:
    # PLDAccountant agrees; RdpAccountant reads the same event as if replacing moved the sum by C.
    event, half = ev.GaussianDpEvent(2.0), ev.GaussianDpEvent(1.0)
    replaced = HockeystickAccountant(REPLACE_ONE).compose(event).get_epsilon(1e-5)
    removed = HockeystickAccountant(ADD_OR_REMOVE).compose(half).get_epsilon(1e-5)
    assert replaced == removed
    assert replaced <= dpa.pld.PLDAccountant(REPLACE_ONE).compose(event).get_epsilon(1e-5)
    renyi = dpa.rdp.RdpAccountant(neighboring_relation=REPLACE_ONE)
    assert renyi.compose(event).get_epsilon(1e-5) < 0.6 * replaced


def test_rdp_accountant_under_reports_fixed_batches() -> None:
    """The worst dataset of docs/mechanisms/replacement.md, section 2, with the event's own noise multiplier."""
    event = ev.SampledWithoutReplacementDpEvent(1000, 200, ev.GaussianDpEvent(1.5))
    # Contributions of norm 1: the sum is -200 without the record, and -198 in a fifth of the batches with it.
    attack = hs.account(hs.PoissonSampled(hs.Gaussian(0.75), 0.2), adjacency="remove")
    ours = HockeystickAccountant(REPLACE_ONE).compose(event)
    renyi = dpa.rdp.RdpAccountant(neighboring_relation=REPLACE_ONE).compose(event)
    assert renyi.get_delta(1.0) < 0.1 * attack.delta_bounds(1.0).lower
    assert attack.delta_bounds(1.0).lower <= ours.get_delta(1.0)
    # Read as RdpAccountant reads it, sigma over the sensitivity of replacing, ours is the smaller one.
    doubled = ev.SampledWithoutReplacementDpEvent(1000, 200, ev.GaussianDpEvent(3.0))
    theirs = renyi.get_epsilon(1e-5)
    assert HockeystickAccountant(REPLACE_ONE).compose(doubled).get_epsilon(1e-5) <= theirs * 1.01


def test_pld_accountant_counts_randomized_response_once() -> None:
    """Why the comparison above spells the composition out."""
    many = ev.SelfComposedDpEvent(RESPONSE, 30)
    once, spelled = (
        dpa.pld.PLDAccountant(REPLACE_ONE).compose(e).get_epsilon(1e-3)
        for e in (RESPONSE, ev.ComposedDpEvent([RESPONSE] * 30))
    )
    ours = HockeystickAccountant(REPLACE_ONE).compose(many)
    assert 10 * once < ours.epsilon_bounds(1e-3).lower
    assert ours.get_epsilon(1e-3) <= spelled


@pytest.mark.parametrize(("first", "second"), [(0.3, 0.5), (1.0, 1.0), (2.0, 0.1), (4.0, 3.0)])
def test_one_coordinate_is_the_worst_case_of_laplace_noise(first: float, second: float) -> None:
    """docs/interop/interop.md, section 1: shifts s and t of two coordinates against s + t of one."""
    split = hs.account(hs.Laplace(1 / first) + hs.Laplace(1 / second))
    single = hs.account(hs.Laplace(1 / (first + second)))
    for epsilon in (0.0, 0.3 * (first + second), 0.9 * (first + second)):
        assert split.delta_bounds(epsilon).lower <= single.delta(epsilon)


@pytest.mark.parametrize(("first", "second", "scale"), [(1, 1, 0.7), (2, 1, 3.0), (4, 5, 2.0)])
def test_one_coordinate_is_the_worst_case_of_discrete_laplace_noise(
    first: int, second: int, scale: float
) -> None:
    split = hs.account(hs.DiscreteLaplace(scale, first) + hs.DiscreteLaplace(scale, second))
    single = hs.account(hs.DiscreteLaplace(scale, first + second))
    for epsilon in (0.0, 0.3 * (first + second) / scale, 0.9 * (first + second) / scale):
        assert split.delta_bounds(epsilon).lower <= single.delta(epsilon)


@pytest.mark.parametrize("k", [2, 3, 10])
@pytest.mark.parametrize("p", [0.05, 0.5, 0.999])
def test_randomized_response_against_its_definition(p: float, k: int) -> None:
    answer = [1 - p + p / k] + [p / k] * (k - 1)
    compared = {REPLACE_ONE: [answer[1], answer[0], *answer[2:]], ZERO_OUT: [1 / k] * k}
    for relation, other in compared.items():
        accountant = HockeystickAccountant(relation).compose(ev.RandomizedResponseDpEvent(p, k))
        for epsilon in (0.0, 0.05, 0.7):
            a = math.exp(epsilon)
            exact = max(
                sum(max(x - a * y, 0.0) for x, y in zip(*pair, strict=True))
                for pair in ((answer, other), (other, answer))
            )
            lower, upper = accountant.delta_bounds(epsilon)
            assert lower <= exact * (1 + 1e-9) + 1e-15
            assert exact * (1 - 1e-9) - 1e-15 <= upper <= exact * (1 + 1e-9) + 1e-15


# No privacy, no cost


@pytest.mark.parametrize(
    "event",
    [
        ev.NonPrivateDpEvent(),
        ev.LaplaceDpEvent(0.0),
        ev.DiscreteLaplaceDpEvent(0.0, 1),
        ev.RandomizedResponseDpEvent(0.0, 3),
        ev.RandomizedResponseDpEvent(5e-324, 3),
        ev.ComposedDpEvent([GAUSSIAN, ev.NonPrivateDpEvent()]),
    ],
)
def test_publishing_costs_everything(event: Any) -> None:
    accountant = HockeystickAccountant(REPLACE_ONE).compose(event)
    assert accountant.get_epsilon(1e-5) == math.inf
    assert accountant.get_delta(50.0) == 1.0


def test_a_gaussian_without_noise_costs_everything_its_sample_sees() -> None:
    assert HockeystickAccountant().compose(ev.GaussianDpEvent(0)).get_epsilon(1e-5) == math.inf
    sampled = HockeystickAccountant().compose(ev.PoissonSampledDpEvent(0.25, ev.GaussianDpEvent(0)))
    assert sampled.get_epsilon(0.2) == math.inf
    assert sampled.delta_bounds(5.0) == pytest.approx((0.25, 0.25), rel=1e-12)
    revealed = HockeystickAccountant().compose(ev.PoissonSampledDpEvent(0.25, ev.NonPrivateDpEvent()))
    assert revealed.delta_bounds(5.0) == pytest.approx((0.25, 0.25), rel=1e-12)


@pytest.mark.parametrize(
    "event",
    [
        ev.NoOpDpEvent(),
        ev.ComposedDpEvent([]),
        ev.ComposedDpEvent([ev.SelfComposedDpEvent(GAUSSIAN, 0)]),
        ev.PoissonSampledDpEvent(0.0, GAUSSIAN),
        ev.PoissonSampledDpEvent(0.5, ev.NoOpDpEvent()),
        ev.PoissonSampledDpEvent(0.5, ev.ComposedDpEvent([])),
        ev.SampledWithoutReplacementDpEvent(10, 0, GAUSSIAN),
        ev.TruncatedSubsampledGaussianDpEvent(0, 0.1, 5, 1.0),
        ev.TruncatedSubsampledGaussianDpEvent(10, 0.0, 5, 1.0),
        ev.TruncatedSubsampledGaussianDpEvent(10, 0.1, 0, 1.0),
        ev.RandomizedResponseDpEvent(1.0, 5),
        ev.RandomizedResponseDpEvent(0.2, 1),
    ],
)
def test_what_releases_nothing_costs_nothing(event: Any) -> None:
    accountant = HockeystickAccountant(REPLACE_ONE).compose(event)
    assert accountant.get_epsilon(0.0) == 0.0
    assert accountant.get_delta(0.0) == 0.0


def test_events_with_integers_that_python_does_not_write_are_refused() -> None:
    event = dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(1.0), 10**5000)
    with pytest.raises(
        dpa.UnsupportedEventError, match=r"^<a SelfComposedDpEvent that cannot be shown>: count"
    ):
        from_event(event, dpa.NeighboringRelation.ADD_OR_REMOVE_ONE)


def test_zcdp_composes_with_everything() -> None:
    """Alone as tight as its own accountant, which refuses nothing of this ledger either, and looser in all."""
    for event in (
        ev.ZCDpEvent(0.1, 0.02),
        ev.ComposedDpEvent([ev.ZCDpEvent(0.05), DP_SGD, ev.ZCDpEvent(0.05), GAUSSIAN]),
    ):
        theirs = dpa.rdp.RdpAccountant().compose(event).get_epsilon(1e-6)
        ours = HockeystickAccountant().compose(event)
        assert 0.5 * theirs <= ours.get_epsilon(1e-6) <= 1.001 * theirs
        assert to_event(from_event(event, ADD_OR_REMOVE)) is not None
    assert from_event(ev.ZCDpEvent(0.1, 0.02), ZERO_OUT) == hs.ZCDP(0.1, 0.02) * 1


@pytest.mark.parametrize("shape", [0.0, 1.0, 2.5, math.inf])
def test_selection_is_tighter_than_its_own_accountant_and_composes(shape: float) -> None:
    event = ev.RepeatAndSelectDpEvent(DP_SGD, 8.0, shape)
    theirs = dpa.rdp.RdpAccountant().compose(event).get_epsilon(1e-6)
    ours = HockeystickAccountant().compose(event)
    assert HockeystickAccountant().compose(DP_SGD).get_epsilon(1e-6) < ours.get_epsilon(1e-6) < theirs
    assert ours.compose(GAUSSIAN).get_epsilon(1e-6) > ours.get_epsilon(1e-5)
    assert to_event(from_event(event, ADD_OR_REMOVE)) == event


# Refusals


@pytest.mark.parametrize(
    ("event", "relation", "offender", "reason"),
    [
        (ev.UnsupportedDpEvent(), ADD_OR_REMOVE, ev.UnsupportedDpEvent, "without a description"),
        (RESPONSE, ADD_OR_REMOVE, ev.RandomizedResponseDpEvent, "REPLACE_ONE` or `REPLACE_SPECIAL"),
        (ev.SingleEpochTreeAggregationDpEvent(1.0, 8), ADD_OR_REMOVE, None, "REPLACE_SPECIAL"),
        (ev.SampledWithoutReplacementDpEvent(10, 2, GAUSSIAN), ADD_OR_REMOVE, None, "must be `REPLACE_ONE`"),
        (ev.SampledWithReplacementDpEvent(10, 2, GAUSSIAN), ZERO_OUT, None, "must be `REPLACE_ONE`"),
        (ev.PoissonSampledDpEvent(0.1, LAPLACE), REPLACE_ONE, None, "vector-valued Laplace"),
        (ev.PoissonSampledDpEvent(0.1, RESPONSE), ZERO_OUT, ev.RandomizedResponseDpEvent, "inside a sample"),
        (
            ev.PoissonSampledDpEvent(0.1, ev.ComposedDpEvent([GAUSSIAN, LAPLACE])),
            ADD_OR_REMOVE,
            ev.ComposedDpEvent,
            "for Gaussian noise only",
        ),
        (
            ev.PoissonSampledDpEvent(0.1, ev.SampledWithoutReplacementDpEvent(10, 2, GAUSSIAN)),
            REPLACE_ONE,
            ev.SampledWithoutReplacementDpEvent,
            "only Poisson samples may be nested",
        ),
        (MIXTURE, REPLACE_ONE, ev.MixtureOfGaussiansDpEvent, "without the record"),
        (ev.PoissonSampledDpEvent(0.1, MIXTURE), ADD_OR_REMOVE, type(MIXTURE), "a sample of its own"),
        (
            ev.MixtureOfGaussiansDpEvent(1.0, [-1.0, 1.0], [0.5, 0.5]),
            ZERO_OUT,
            None,
            "sensitivities[0] = -1.0",
        ),
        (ev.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [0.5, 0.4]), ZERO_OUT, None, "must sum to 1"),
        (
            ev.TruncatedSubsampledGaussianDpEvent(10, 0.1, 2.5, 1.0),
            ZERO_OUT,
            None,
            "truncated_batch_size = 2.5",
        ),
        (ev.GaussianDpEvent(-1.0), ADD_OR_REMOVE, ev.GaussianDpEvent, "noise_multiplier = -1.0"),
        (ev.GaussianDpEvent(math.nan), ADD_OR_REMOVE, ev.GaussianDpEvent, "noise_multiplier = nan"),
        (ev.GaussianDpEvent("1"), ADD_OR_REMOVE, ev.GaussianDpEvent, "not str"),
        (ev.PoissonSampledDpEvent(1.5, GAUSSIAN), ADD_OR_REMOVE, None, "sampling_probability = 1.5"),
        (ev.RandomizedResponseDpEvent(1.5, 3), ZERO_OUT, None, "noise_parameter = 1.5"),
        (ev.SelfComposedDpEvent(GAUSSIAN, 2.5), ADD_OR_REMOVE, None, "count = 2.5"),
        (ev.SelfComposedDpEvent(GAUSSIAN, -1), ADD_OR_REMOVE, None, "count = -1"),
        (ev.ComposedDpEvent(iter([GAUSSIAN] * 3)), ADD_OR_REMOVE, None, "events: must be a list"),
        (ev.SampledWithoutReplacementDpEvent(10, 11, GAUSSIAN), REPLACE_ONE, None, "batch_size = 11"),
    ],
)
def test_refusals_name_the_event_and_the_reason(
    event: Any, relation: Any, offender: type | None, reason: str
) -> None:
    nested = ev.ComposedDpEvent([GAUSSIAN, ev.SelfComposedDpEvent(event, 2)])
    accountant = HockeystickAccountant(relation)
    details = accountant._maybe_compose(nested, 1, False)
    assert type(details.invalid_event) is (offender or type(event))
    assert reason in details.error_message
    assert not accountant.supports(nested)
    with pytest.raises(dpa.UnsupportedEventError, match="caused by subevent"):
        accountant.compose(nested)
    assert isinstance(accountant.ledger, ev.NoOpDpEvent)
    assert accountant.process == hs.mechanisms.Process()
    with pytest.raises(dpa.UnsupportedEventError) as refusal:
        from_event(nested, relation)
    assert reason in str(refusal.value)
    assert type(details.invalid_event).__name__ in str(refusal.value)


@pytest.mark.parametrize(
    "step",
    [
        hs.DiscreteGaussian(2.0),
        hs.PureDP(0.5),
        hs.Mixture([hs.Gaussian(1.0), hs.Gaussian(2.0)], [0.5, 0.5]),
        hs.ApproximateDP(0.5, 1e-6),
        hs.RandomizedResponse(1.0),
        hs.PoissonSampled(hs.RandomizedResponse(1.0, uniform_null=True), 0.5),
        hs.PoissonSampled(hs.PureDP(1.0), 0.5),
        hs.WithoutReplacement(hs.Gaussian(1.0), 5, 10, pair="koskela2020"),
    ],
)
def test_what_no_event_describes_is_refused(step: hs.mechanisms.Process) -> None:
    with pytest.raises(hs.ParameterError, match=type(step).__name__):
        to_event(hs.Gaussian(1.0) + step)


# There and back


def test_a_sampled_mixture_of_gaussians_is_one() -> None:
    """It was an event that is not read back."""
    mixture = hs.MixtureOfGaussians(1.0, [0.0, 1.0, 2.0], [0.5, 0.25, 0.25])
    step = hs.PoissonSampled(mixture, 0.5)
    back = from_event(to_event(step), ADD_OR_REMOVE)
    assert hs.account(back).epsilon_bounds(1e-6) == pytest.approx(
        hs.account(step).epsilon_bounds(1e-6), rel=1e-12
    )


STEPS = [
    hs.Gaussian(1.3),
    hs.Gaussian(0.0),
    hs.Laplace(2.5),
    hs.ApproximateDP(0.0, 1.0),
    hs.PoissonSampled(hs.Gaussian(1.3), 0.125),
    hs.PoissonSampled(hs.Laplace(1.3), 0.3),
    hs.PoissonSampled(hs.ApproximateDP(0.0, 1.0), 0.3),
    hs.WithoutReplacement(hs.Gaussian(1.0), 5, 10),
    hs.WithReplacement(hs.Laplace(1.0), 15, 10),
    hs.TruncatedPoissonSampled(1.0, 1000, 0.1, 120),
    hs.MixtureOfGaussians(1.5, [0.0, 1.0], [0.75, 0.25]),
]


@pytest.mark.parametrize("step", STEPS)
def test_processes_survive_the_round_trip(step: hs.Gaussian) -> None:
    relation = REPLACE_ONE if isinstance(step, (hs.WithoutReplacement, hs.WithReplacement)) else ADD_OR_REMOVE
    for process in (step * 1, step * 17, step * 3 + hs.Gaussian(4.0) * 2):
        event = to_event(process)
        assert from_event(event, relation) == process
        assert to_event(from_event(event, relation)) == event
        assert HockeystickAccountant(relation).supports(event)


def test_nothing_survives_the_round_trip() -> None:
    free = hs.PureDP(0.0) * 3 + hs.ApproximateDP(0.0, 0.0) + hs.PoissonSampled(hs.Gaussian(1.0), 0.0)
    for nothing in (hs.mechanisms.Process(), free):
        assert to_event(nothing) == ev.NoOpDpEvent()


def test_runs_become_events() -> None:
    run = hs.dp_sgd(1.0, dataset_size=60_000, batch_size=600, epochs=1)
    assert to_event(run) == ev.SelfComposedDpEvent(
        ev.PoissonSampledDpEvent(0.01, ev.GaussianDpEvent(1.0)), 100
    )


@settings(max_examples=60, deadline=None)
@given(a=st.floats(1e-3, 50.0), k=st.integers(1, 9))
def test_discrete_laplace_rounds_towards_less_privacy(a: float, k: int) -> None:
    event = ev.DiscreteLaplaceDpEvent(a, k)
    back = to_event(from_event(event, ADD_OR_REMOVE))
    assert a <= back.noise_parameter <= a * (1 + 1e-15)
    assert back.sensitivity == k


@settings(max_examples=60, deadline=None)
@given(p=st.floats(1e-6, 1.0, exclude_max=True), k=st.integers(2, 20))
def test_randomized_response_rounds_towards_less_privacy(p: float, k: int) -> None:
    event = ev.RandomizedResponseDpEvent(p, k)
    (step, _), *_ = from_event(event, ZERO_OUT)
    assert step.epsilon >= math.log1p(k * (1 - p) / p)
    back = to_event(step)
    assert p * (1 - 1e-13) <= back.noise_parameter <= p


# In dp_accounting's place


@pytest.mark.parametrize(
    ("make", "bracket", "discrete"),
    [
        (
            lambda s: ev.SelfComposedDpEvent(ev.PoissonSampledDpEvent(0.005, ev.GaussianDpEvent(s)), 10_000),
            None,
            False,
        ),
        (lambda s: ev.ComposedDpEvent([ev.LaplaceDpEvent(2 * s), ev.GaussianDpEvent(s)]), None, False),
        (
            lambda n: ev.SelfComposedDpEvent(ev.PoissonSampledDpEvent(0.01, ev.GaussianDpEvent(2.0)), n),
            dpa.LowerEndpointAndGuess(1, 128),
            True,
        ),
    ],
)
def test_calibration_runs_on_it(make: Callable[[Any], Any], bracket: Any, discrete: bool) -> None:
    found = dpa.calibrate_dp_mechanism(
        HockeystickAccountant,
        make,
        target_epsilon=1.0,
        target_delta=1e-6,
        bracket_interval=bracket,
        discrete=discrete,
    )
    assert HockeystickAccountant().compose(make(found)).get_epsilon(1e-6) <= 1.0
    # A little towards less privacy, the certified lower bound is above the target.
    worse = found + 1 if discrete else found - 1e-5
    assert HockeystickAccountant().compose(make(worse)).epsilon_bounds(1e-6).lower > 1.0


def test_ledger_composition_and_pure_queries() -> None:
    accountant = HockeystickAccountant(ZERO_OUT)
    step = ev.PoissonSampledDpEvent(0.01, ev.GaussianDpEvent(1.0))
    assert accountant.compose(step, 600).compose(GAUSSIAN) is accountant
    first = accountant.get_epsilon(1e-5)
    accountant.get_delta(1.0)
    assert accountant.get_epsilon(1e-5) == first
    accountant.compose(step, 400)
    expected = hs.PoissonSampled(hs.Gaussian(1.0), 0.01) * 1000 + hs.Gaussian(1.7)
    assert accountant.process == expected
    assert accountant.get_epsilon(1e-5) == hs.account(expected, "zero_out", 1e-6).epsilon(1e-5) > first
    assert accountant.ledger == ev.ComposedDpEvent(
        [ev.SelfComposedDpEvent(step, 600), GAUSSIAN, ev.SelfComposedDpEvent(step, 400)]
    )
    statement = accountant.report(1e-5).statement()
    assert '"zero_out"' in statement
    with pytest.raises(TypeError, match="DpEvent"):
        accountant.compose("gaussian")
    with pytest.raises(ValueError, match=r"delta = 2\.0"):
        accountant.get_epsilon(2.0)


def test_accountants_are_copied_and_pickled() -> None:
    accountant = HockeystickAccountant(REPLACE_ONE).compose(DP_SGD)
    epsilon = accountant.get_epsilon(1e-5)  # now it holds a computed profile
    for copied in (copy.deepcopy(accountant), pickle.loads(pickle.dumps(accountant))):
        assert copied.get_epsilon(1e-5) == epsilon
        copied.compose(GAUSSIAN)
        assert copied.get_epsilon(1e-5) > epsilon
    assert accountant.get_epsilon(1e-5) == epsilon


def test_importing_hockeystick_imports_none_of_them() -> None:
    code = (
        "import sys, hockeystick, hockeystick.interop;"
        "print([m for m in ('dp_accounting', 'opacus', 'torch', 'flwr', 'jax_privacy', 'jax') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_missing_package_is_named_with_its_extra() -> None:
    code = """
import importlib, sys
for module, package in [("dp_accounting",) * 2, ("opacus",) * 2, ("torch",) * 2, ("flower", "flwr"), ("jax_privacy",) * 2]:
    sys.modules[package] = None
    try:
        importlib.import_module("hockeystick.interop." + module)
    except ImportError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for line, extra in zip(
        done.stdout.splitlines(), ("dp-accounting", "opacus", "torch", "flower", "jax-privacy"), strict=True
    ):
        assert line.endswith(f"pip install 'hockeystick[{extra}]'")


def test_counts_of_nested_events_multiply() -> None:
    for inner in (ev.GaussianDpEvent(3.0), ev.RepeatAndSelectDpEvent(ev.GaussianDpEvent(3.0), 2.0, 1.0)):
        event = ev.SelfComposedDpEvent(ev.ComposedDpEvent([ev.SelfComposedDpEvent(inner, 3)]), 5)
        assert bridge.from_event(event, ADD_OR_REMOVE).steps == 15


def test_several_gaussians_on_one_sample_are_rounded_down() -> None:
    for i in range(2, 60):
        event = ev.PoissonSampledDpEvent(0.1, ev.SelfComposedDpEvent(ev.GaussianDpEvent(i / 7.0), i))
        ((step, _),) = bridge.from_event(event, ADD_OR_REMOVE)
        assert Fraction(step.mechanism.noise_multiplier) ** 2 * i <= Fraction(i / 7.0) ** 2


def test_randomized_response_of_events_is_rounded_up() -> None:
    with mpmath.workdps(40):
        for i in range(1, 200):
            p, k = i / 200.0, 2 + i % 7
            ((step, _),) = bridge.from_event(
                ev.RandomizedResponseDpEvent(p, k), dpa.NeighboringRelation.REPLACE_ONE
            )
            assert mpmath.mpf(step.epsilon) >= mpmath.log1p(k * (1 - mpmath.mpf(p)) / mpmath.mpf(p))

        # And back.
        for i in range(1, 200):
            epsilon, k = i / 37.0, 2 + i % 7
            event = bridge.to_event(hs.RandomizedResponse(epsilon, k, uniform_null=True))
            assert mpmath.mpf(event.noise_parameter) <= k / (mpmath.exp(mpmath.mpf(epsilon)) + k - 1)
