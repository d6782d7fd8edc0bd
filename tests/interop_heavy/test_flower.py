"""Flower's own strategy, asking hockeystick's accountant."""

import inspect
from collections.abc import Iterable
from typing import Any

import flwr
import hockeystick as hs
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import (
    GaussianPrivacyEvent,
    NeighboringRelation,
    PrivacyAccountant,
    PrivacyConfig,
    RdpAccountant,
    SamplingMethod,
)
from flwr.serverapp.exception import PrivacyBudgetExhausted
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.supercore.task_identity import TaskIdentity
from hockeystick.interop.flower import HockeystickAccountant, check_arrays

CLIENTS = 5


@pytest.fixture(autouse=True)
def task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages want to know on whose behalf they are made."""
    for name in ("_run_id", "_task_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def config(max_epsilon: float | None = None) -> PrivacyConfig:
    return PrivacyConfig(
        target_delta=1e-5,
        population_size=CLIENTS,
        neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
        sampling_method=SamplingMethod.NO_AMPLIFICATION,
        max_epsilon=max_epsilon,
    )


class Grid:
    """Every client is there."""

    def get_node_ids(self) -> Iterable[int]:
        return range(1, CLIENTS + 1)


def one_round(strategy: Any, number: int, weights: ArrayRecord) -> ArrayRecord:
    messages = strategy.configure_train(number, weights, ConfigRecord(), Grid())
    replies = []
    for message in messages:
        update = ArrayRecord({"w": Array(weights["w"].numpy() + 1.0)})
        content = RecordDict({"arrays": update, "metrics": MetricRecord({"num-examples": 1})})
        replies.append(Message(content, reply_to=message))
    arrays, _ = strategy.aggregate_train(number, replies)
    return arrays


def strategy(accountant: Any) -> Any:
    return DifferentialPrivacyServerSideFixedClipping(
        FedAvg(fraction_train=1.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS),
        noise_multiplier=5.0,
        clipping_norm=1.0,
        num_sampled_clients=CLIENTS,
        accountant=accountant,
    )


def test_this_is_the_real_one() -> None:
    assert "stand_ins" not in str(flwr.__file__)


def test_the_protocol_is_implemented_to_the_letter() -> None:
    for name, member in vars(PrivacyAccountant).items():
        if name.startswith("_") or not (inspect.isfunction(member) or isinstance(member, property)):
            continue
        ours = inspect.getattr_static(HockeystickAccountant, name)
        if isinstance(member, property):
            assert isinstance(ours, property)
        else:
            expected, found = (inspect.signature(f).parameters.values() for f in (member, ours))
            assert [(p.name, p.default) for p in found] == [(p.name, p.default) for p in expected]


def test_rounds_of_a_strategy_are_accounted_for() -> None:
    accountant = HockeystickAccountant(config())
    private = strategy(accountant)
    weights = ArrayRecord({"w": Array(np.zeros(3))})
    for number in range(1, 5):
        weights = one_round(private, number, weights)
    assert accountant.process == hs.Gaussian(5.0) * 4
    spent = private.privacy_spent()
    assert spent == accountant.get_privacy_spent()
    assert spent.epsilon == hs.account(hs.Gaussian(5.0) * 4).epsilon(1e-5)
    private.summary()
    assert np.std(weights["w"].numpy()) > 0.0  # equal updates, unequal weights: the noise is there


def test_single_numbers_are_not_clipped() -> None:
    """What `check_arrays` refuses; where this fails, Flower clips them, and it need not."""

    def released(shape: tuple[int, ...], move: float) -> float:
        strategy = DifferentialPrivacyServerSideFixedClipping(
            FedAvg(fraction_train=1.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS),
            noise_multiplier=1e-9,
            clipping_norm=1.0,
            num_sampled_clients=CLIENTS,
            accountant=HockeystickAccountant(config()),
        )
        weights = ArrayRecord({"w": Array(np.zeros(3)), "number": Array(np.zeros(shape))})
        replies = []
        for index, message in enumerate(strategy.configure_train(1, weights, ConfigRecord(), Grid())):
            update = {"w": Array(np.full(3, 1e-12)), "number": Array(np.full(shape, 0.0 if index else move))}
            content = {"arrays": ArrayRecord(update), "metrics": MetricRecord({"num-examples": 1})}
            replies.append(Message(RecordDict(content), reply_to=message))
        arrays, _ = strategy.aggregate_train(1, replies)
        return CLIENTS * float(arrays["number"].numpy().sum())

    assert 0.99 < released((1,), 1000.0) < 1.01
    assert released((), 1000.0) > 999.0
    check_arrays(ArrayRecord({"number": Array(np.zeros(1))}))
    with pytest.raises(hs.ParameterError, match=r"arrays\['number'\]: has shape"):
        check_arrays(ArrayRecord({"number": Array(np.zeros(()))}))


def test_a_strategy_stops_at_the_budget() -> None:
    accountant = HockeystickAccountant(config(max_epsilon=2.0))
    private = strategy(accountant)
    weights = ArrayRecord({"w": Array(np.zeros(3))})
    for number in range(1, 1000):
        try:
            weights = one_round(private, number, weights)
        except PrivacyBudgetExhausted:
            break
    else:
        pytest.fail("a thousand rounds within the budget")
    rounds = accountant.num_releases
    assert accountant.get_epsilon(1e-5) <= 2.0
    assert hs.account(hs.Gaussian(5.0) * (rounds + 1)).epsilon_bounds(1e-5).lower > 2.0
    # Flower's accountant stops earlier.
    renyi = RdpAccountant(config(max_epsilon=2.0))
    event = GaussianPrivacyEvent(5.0, CLIENTS, CLIENTS)
    assert renyi.would_exceed(event, count=rounds)


@pytest.mark.parametrize("sampling_method", [SamplingMethod.POISSON, SamplingMethod.NO_AMPLIFICATION])
def test_below_flowers_own_accountant_and_states_are_exchanged(sampling_method: SamplingMethod) -> None:
    settings = PrivacyConfig(1e-5, 1000, NeighboringRelation.ADD_OR_REMOVE_ONE, sampling_method, 8.0)
    theirs, ours = RdpAccountant(settings), HockeystickAccountant(settings)
    for noise_multiplier, count in ((3.0, 10), (2.5, 5)):
        theirs.compose(GaussianPrivacyEvent(noise_multiplier, 50, 1000), count)
    ours.load_state_dict(theirs.state_dict())
    assert ours.num_releases == theirs.num_releases == 15
    assert ours.get_epsilon(1e-5) <= theirs.get_epsilon(1e-5)
    assert ours.get_delta(1.0) <= theirs.get_delta(1.0)
    assert ours.get_privacy_spent().num_releases == 15


def test_flowers_own_accountant_counts_a_replaced_client_as_a_removed_one() -> None:
    """docs/interop/interop.md: why ours may be the larger one for fixed samples."""
    settings = PrivacyConfig(
        1e-5, 10, NeighboringRelation.REPLACE_ONE, SamplingMethod.WITHOUT_REPLACEMENT, None
    )
    theirs, ours = RdpAccountant(settings), HockeystickAccountant(settings)
    for accountant in (theirs, ours):
        accountant.compose(GaussianPrivacyEvent(4.0, 10, 10))
    # All ten clients take part and one of them is replaced: the sum moves by 2 clipping norms.
    truth = hs.account(hs.Gaussian(2.0)).epsilon_bounds(1e-5)
    assert theirs.get_epsilon(1e-5) < 0.8 * truth.lower
    assert truth.lower <= ours.get_epsilon(1e-5) <= truth.upper
