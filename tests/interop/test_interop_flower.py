"""The Flower accountant; against stand-ins, or against Flower where it is installed."""

import copy
import json
import math
from typing import Any

import hockeystick as hs
import numpy as np
import pytest
from flwr.serverapp import GaussianPrivacyEvent, NeighboringRelation, PrivacyConfig, SamplingMethod
from hockeystick.interop.flower import HockeystickAccountant, check_arrays

from tests.anywhere import interrupted_everywhere

MODELS = {
    "poisson": (SamplingMethod.POISSON, NeighboringRelation.ADD_OR_REMOVE_ONE),
    "fixed": (SamplingMethod.WITHOUT_REPLACEMENT, NeighboringRelation.REPLACE_ONE),
    "all": (SamplingMethod.NO_AMPLIFICATION, NeighboringRelation.ADD_OR_REMOVE_ONE),
}


def config(model: str = "all", max_epsilon: float | None = 3.0) -> Any:
    sampling_method, relation = MODELS[model]
    return PrivacyConfig(1e-5, 1000, relation, sampling_method, max_epsilon)


def event(noise_multiplier: float = 5.0, sample_size: int = 50) -> Any:
    return GaussianPrivacyEvent(noise_multiplier, sample_size, 1000)


@pytest.mark.parametrize(
    ("model", "step", "adjacency"),
    [
        ("poisson", hs.PoissonSampled(hs.Gaussian(5.0), 0.05), "add_or_remove"),
        ("fixed", hs.WithoutReplacement(hs.Gaussian(5.0), 50, 1000), "replace_one"),
        ("all", hs.Gaussian(5.0), "zero_out"),
    ],
)
def test_sampling_method_decides_what_an_event_means(model: str, step: Any, adjacency: str) -> None:
    accountant = HockeystickAccountant(config(model))
    accountant.compose(event(), 7)
    accountant.compose(event())
    expected = hs.account(step * 8, adjacency)
    assert accountant.adjacency == adjacency
    assert accountant.process == step * 8
    assert accountant.num_releases == 8
    assert accountant.get_epsilon(1e-6) == expected.epsilon(1e-6)
    assert accountant.epsilon_bounds(1e-6) == expected.epsilon_bounds(1e-6)
    assert accountant.get_delta(0.5) == expected.delta(0.5)
    spent = accountant.get_privacy_spent()
    assert (spent.epsilon, spent.delta, spent.num_releases) == (expected.epsilon(1e-5), 1e-5, 8)
    assert spent.accounting_method == "hockeystick"
    assert spent.optimal_order is None
    assert accountant.get_privacy_spent(1e-3).epsilon == expected.epsilon(1e-3)
    assert f'"{adjacency}"' in accountant.report().statement()


@pytest.mark.parametrize("model", MODELS)
def test_what_would_be_exceeded_is_what_is_spent_then(model: str) -> None:
    accountant, after = HockeystickAccountant(config(model)), HockeystickAccountant(config(model))
    accountant.compose(event(), 7)
    after.compose(event(), 9)
    spent = after.get_epsilon(1e-5)
    assert not accountant.would_exceed(event(), max_epsilon=spent, count=2)
    assert accountant.would_exceed(event(), max_epsilon=float(np.nextafter(spent, 0.0)), count=2)


def test_fixed_samples_move_the_sum_by_two_clipping_norms() -> None:
    # All clients in every round: replacing one is a shift of 2 / 5.
    accountant = HockeystickAccountant(config("fixed"))
    accountant.compose(event(sample_size=1000))
    assert accountant.get_epsilon(1e-5) == hs.account(hs.Gaussian(2.5)).epsilon(1e-5)


def test_budget_is_kept_and_asking_changes_nothing() -> None:
    accountant = HockeystickAccountant(config())
    while not accountant.would_exceed(event()):
        before = accountant.state_dict()
        accountant.would_exceed(event(), count=1000)
        assert accountant.state_dict() == before
        accountant.compose(event())
    rounds = accountant.num_releases
    assert accountant.get_epsilon(1e-5) <= 3.0
    assert hs.account(hs.Gaussian(5.0) * (rounds + 1), "zero_out").epsilon_bounds(1e-5).lower > 3.0
    assert not accountant.would_exceed(event(), max_epsilon=3.5)
    assert accountant.would_exceed(event(), max_epsilon=3.5, count=50)


def test_nothing_spent_nothing_reported() -> None:
    spent = HockeystickAccountant(config()).get_privacy_spent()
    assert (spent.epsilon, spent.num_releases) == (0.0, 0)


def test_state_survives_the_round_trip_through_json() -> None:
    accountant = HockeystickAccountant(config("poisson"))
    accountant.compose(event(), 3)
    accountant.compose(event())
    accountant.compose(event(4.0, 60), 2)
    state = json.loads(json.dumps(accountant.state_dict()))
    assert [entry["count"] for entry in state["compositions"]] == [4, 2]
    for backend in ("hockeystick", "rdp"):  # Flower's RdpAccountant keeps the same ledger
        restored = HockeystickAccountant(config("poisson"))
        restored.load_state_dict({**state, "backend": backend, "orders": [2.0]})
        assert restored.process == accountant.process
        assert restored.num_releases == 6
        assert restored.state_dict() == state


def test_other_states_are_refused_and_change_nothing() -> None:
    accountant = HockeystickAccountant(config("poisson"))
    accountant.compose(event())
    state: dict[str, Any] = accountant.state_dict()
    broken = copy.deepcopy(state)
    broken["compositions"][0]["event"]["sample_size"] = 0
    uncounted = copy.deepcopy(state)
    uncounted["compositions"][0]["count"] = 0
    for wrong, message in (
        ({}, "schema_version"),
        ({**state, "schema_version": 2}, "schema_version"),
        ({**state, "backend": "prv"}, "backend"),
        ({**state, "config": HockeystickAccountant(config("all")).state_dict()["config"]}, "config"),
        ({**state, "compositions": None}, "compositions"),
        ({**state, "compositions": [{"count": 1}]}, "compositions"),
        (broken, "compositions"),
        (uncounted, "compositions"),
    ):
        with pytest.raises(ValueError, match=message):
            accountant.load_state_dict(wrong)
        assert accountant.state_dict() == state
    with pytest.raises(hs.ParameterTypeError, match="state"):
        accountant.load_state_dict("state")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "other", [(1e-6, 1000, 3.0), (1e-5, 2000, 3.0), (1e-5, 1000, 4.0)], ids=["delta", "population", "epsilon"]
)
def test_states_of_a_configuration_that_differs_in_one_number_are_refused(other: Any) -> None:
    delta, population, epsilon = other
    method, relation = MODELS["poisson"]
    accountant = HockeystickAccountant(PrivacyConfig(delta, population, relation, method, epsilon))
    with pytest.raises(hs.ParameterError, match=r"state\['config'\]"):
        accountant.load_state_dict(HockeystickAccountant(config("poisson")).state_dict())


def test_going_back_is_warned_of() -> None:
    accountant = HockeystickAccountant(config("poisson"))
    accountant.compose(event(), 3)
    earlier = accountant.state_dict()
    accountant.compose(event(), 2)
    later = accountant.state_dict()
    with pytest.warns(UserWarning, match="2 of 5 recorded steps are not in the ledger that is loaded"):
        accountant.load_state_dict(earlier)
    accountant.load_state_dict(later)
    assert accountant.num_releases == 5


def test_what_flower_takes_for_its_own_types_is_taken() -> None:
    """Strings for members, numbers of NumPy: sampling was ignored, and states were no JSON."""
    strings = PrivacyConfig(1e-5, 1000, "add-or-remove-one", "poisson", 3.0)  # type: ignore[arg-type]
    accountant = HockeystickAccountant(strings)
    accountant.compose(GaussianPrivacyEvent(np.float32(5.0), 50, 1000), 3)  # type: ignore[arg-type]
    assert accountant.process == hs.PoissonSampled(hs.Gaussian(5.0), 0.05) * 3
    restored = HockeystickAccountant(config("poisson"))
    restored.load_state_dict(json.loads(json.dumps(accountant.state_dict())))
    assert restored.process == accountant.process


def test_arrays_that_flower_does_not_clip_are_refused() -> None:
    weights = {"w": np.zeros((3, 4), np.float32), "b": np.zeros(4)}
    check_arrays(weights)
    check_arrays(list(weights.values()))
    for name, wrong, why in (
        ("num_batches_tracked", np.array(5), "has shape"),
        ("scale", np.array(1.0), "has shape"),
        ("half", np.zeros(3, np.float16), "must be float32 or float64"),
        ("count", np.zeros(3, np.int64), "must be float32 or float64"),
    ):
        with pytest.raises(hs.ParameterError, match=rf"arrays\['{name}'\].*{why}"):
            check_arrays({**weights, name: wrong})


def test_arrays_that_are_rounded_by_as_much_as_a_client_moves_them_are_refused() -> None:
    """Of weights of 40,000 in float32, a clipping norm of 5e-4 was less than a step, and a client moved the sum by 7.8 clipping norms."""
    statistics = {"w": np.zeros(3, np.float32), "running_var": np.full(64, 40000.3, np.float32)}
    check_arrays(statistics)
    check_arrays(statistics, sensitivity=2.1)
    check_arrays({"running_var": statistics["running_var"].astype(np.float64)}, sensitivity=5e-4)
    check_arrays([np.zeros((0, 3), np.float32)], sensitivity=1e-30)
    for number in (math.nan, math.inf, -math.inf):
        with pytest.raises(hs.ParameterError, match=r"arrays\['w'\]: must be finite"):
            check_arrays({"w": np.array([0.0, number])}, sensitivity=1.0)
    for sensitivity in (5e-4, 0.2, 1.0):
        with pytest.raises(
            hs.ParameterError, match=r"sensitivity = .*at least 2, 64 times.*float32.*'running_var'.*40000\.3"
        ):
            check_arrays(statistics, sensitivity=sensitivity)
    for wrong in (-1.0, 0.0, float("nan"), float("inf")):
        with pytest.raises(hs.ParameterError, match=r"sensitivity = "):
            check_arrays(statistics, sensitivity=wrong)


def test_what_counts_is_the_norm_of_all_roundings() -> None:
    """A million weights of .1 moved the sum by 3.8 clipping norms, where each was rounded by 1/64 of the noise."""
    steps = float(np.spacing(np.float32(0.1)))
    for count, layers in ((10**6, 1), (10**4, 100)):
        weights = [np.full(count, 0.1, np.float32)] * layers
        needed = 64 * steps * 1000
        check_arrays(weights, sensitivity=1.001 * needed)
        for sensitivity in (0.999 * needed, 65 * steps):
            with pytest.raises(hs.ParameterError, match="sensitivity = "):
                check_arrays(weights, sensitivity=sensitivity)


def test_wrong_arguments_are_named() -> None:
    accountant = HockeystickAccountant(config(max_epsilon=None))
    with pytest.raises(hs.ParameterTypeError, match="config"):
        HockeystickAccountant({"target_delta": 1e-5})
    with pytest.raises(hs.ParameterTypeError, match="event"):
        accountant.compose(hs.Gaussian(1.0))
    with pytest.raises(hs.ParameterError, match=r"event\.population_size = 999"):
        accountant.compose(GaussianPrivacyEvent(1.0, 10, 999))
    with pytest.raises(hs.ParameterError, match="max_epsilon = None"):
        accountant.would_exceed(event())
    for count in (0, -1):
        with pytest.raises(hs.ParameterError, match="count"):
            accountant.compose(event(), count)
        with pytest.raises(hs.ParameterError, match="count"):
            accountant.would_exceed(event(), 1.0, count)
    with pytest.raises(hs.ParameterTypeError, match="count"):
        accountant.compose(event(), 1.5)  # type: ignore[arg-type]
    with pytest.raises(hs.ParameterError, match="delta"):
        accountant.get_epsilon(1.5)
    assert accountant.num_releases == 0


def test_ctrl_c_takes_no_history_away() -> None:
    def begun() -> HockeystickAccountant:
        accountant = HockeystickAccountant(config("poisson"))
        for _ in range(3):
            accountant.compose(event())
        return accountant

    def work(accountant: HockeystickAccountant) -> None:
        accountant.compose(event())

    for accountant in interrupted_everywhere(("flower.py",), begun, work):
        made = accountant.num_releases
        assert made in (3, 4)
        assert accountant.process.steps == accountant.profile().description.as_process().steps == made
