"""Descriptions: composition is a commutative monoid with counts, and dp_sgd derives what it says."""

import dataclasses
import math
import re

import hockeystick as hs
import numpy as np
import pytest
from hockeystick import _core
from hockeystick.mechanisms.descriptions import Mechanism, Step, set_fields
from hockeystick.mechanisms.steps import from_dict, to_dict
from hypothesis import given
from hypothesis import strategies as st

STEPS: list[Step] = [
    hs.Gaussian(1.0),
    hs.Laplace(2.0),
    hs.DiscreteLaplace(1.5, 2),
    hs.DiscreteGaussian(3.0),
    hs.RandomizedResponse(1.0, 4),
    hs.PureDP(0.3),
    hs.ApproximateDP(0.2, 1e-7),
    hs.PoissonSampled(hs.Gaussian(1.0), 0.1),
    hs.WithoutReplacement(hs.Gaussian(1.0), 3, 10),
    hs.WithReplacement(hs.Laplace(1.0), 3, 10),
]
LEDGERS = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 10**9)), max_size=12)


@given(LEDGERS, st.randoms())
def test_order_is_irrelevant_and_equal_steps_merge(ledger, random) -> None:  # type: ignore[no-untyped-def]
    process = hs.mechanisms.Process(ledger)
    shuffled = list(ledger)
    random.shuffle(shuffled)
    assert hs.mechanisms.Process(shuffled) == process
    assert hash(hs.mechanisms.Process(shuffled)) == hash(process)
    assert sum(step * count for step, count in shuffled) + hs.mechanisms.Process() == process
    assert process.steps == sum(count for _, count in ledger)
    assert len({step for step, _ in process}) == len(process)
    assert all(count > 0 for _, count in process)


@given(LEDGERS, st.integers(0, 1000))
def test_repetition_is_repeated_addition(ledger, times) -> None:  # type: ignore[no-untyped-def]
    process = hs.mechanisms.Process(ledger)
    assert process * times + process == process * (times + 1) == (times + 1) * process


def test_different_parameters_are_different_steps() -> None:
    assert len(sum(STEPS)) == len(STEPS)  # type: ignore[arg-type]
    assert hs.Gaussian(1.0) * 2 != hs.Gaussian(1.0 + 1e-15) * 2
    assert hs.WithoutReplacement(hs.Gaussian(1.0), 3, 10) != hs.WithReplacement(hs.Gaussian(1.0), 3, 10)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: type(step).__name__)
def test_descriptions_are_frozen_and_print_as_code(step: Step) -> None:
    name = dataclasses.fields(step)[0].name  # type: ignore[arg-type]
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(step, name, 1.0)
    assert eval(repr(step), vars(hs)) == step


def test_dp_sgd_derives_what_a_poisson_loader_does() -> None:
    run = hs.dp_sgd(1.1, dataset_size=1000, batch_size=8, epochs=3, gradient_accumulation=2, world_size=4)
    assert run.sampling_probability == 64 / 1000
    assert run.steps == 3 * math.ceil(1000 / 64)
    assert run.as_process() == hs.PoissonSampled(hs.Gaussian(1.1), 64 / 1000) * run.steps
    dropping = dataclasses.replace(run, drop_last=True)
    assert dropping.steps == 3 * (1000 // 64)
    for echoed in ("1000 records", "64", "0.064", str(run.steps), "3 epochs", "Poisson"):
        assert echoed in str(run)


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.floats(0, 1e3))
def test_dp_sgd_never_undercounts(dataset_size, batch_size, epochs) -> None:  # type: ignore[no-untyped-def]
    if batch_size > dataset_size:
        with pytest.raises(hs.ParameterError, match="must be at most dataset_size"):
            hs.dp_sgd(1.0, dataset_size, batch_size, epochs=epochs)
        return
    run = hs.dp_sgd(1.0, dataset_size, batch_size, epochs=epochs)
    seen = run.steps * run.sampling_probability
    assert seen >= epochs * (1 - 1e-12)
    assert run.steps <= epochs * math.ceil(dataset_size / batch_size) * (1 + 1e-12) + 1


def test_dp_sgd_composes() -> None:
    run = hs.dp_sgd(1.0, 100, 10, steps=7)
    assert run * 2 + hs.Laplace(3.0) == hs.mechanisms.Process([*(run.as_process() * 2), (hs.Laplace(3.0), 1)])
    assert np.int64(2) * run == run + run


def test_dp_sgd_refuses_what_it_cannot_prove() -> None:
    with pytest.raises(hs.ParameterError, match="not Poisson samples"):
        hs.dp_sgd(1.0, 100, 10, epochs=1, sampler="shuffle")
    with pytest.raises(hs.ParameterError, match="sampler = 'weighted'"):
        hs.dp_sgd(1.0, 100, 10, epochs=1, sampler="weighted")
    for both_or_none in ({}, {"epochs": 1, "steps": 10}):
        with pytest.raises(hs.ParameterTypeError, match="exactly one"):
            hs.dp_sgd(1.0, 100, 10, **both_or_none)  # type: ignore[arg-type]


@pytest.mark.parametrize("epochs", [1e15, 1e300, 1e308, math.inf])
def test_dp_sgd_names_epochs_that_are_too_many(epochs: float) -> None:
    """Times the updates of an epoch, 1e308 is no double, and no integer."""
    said = f"epochs = {epochs!r}: must be a number in [0, 9.0072e+14]"
    with pytest.raises(hs.ParameterError, match=re.escape(said)):
        hs.dp_sgd(1.0, 100, 10, epochs=epochs)


@dataclasses.dataclass(frozen=True)
class Tripled(Mechanism):
    """A mechanism that no file of the package knows: three Gaussians in one."""

    noise_multiplier: float
    noise_convention = "noise multiplier of each of three"

    def __post_init__(self) -> None:
        set_fields(self, noise_multiplier=float(self.noise_multiplier))

    def symmetric_pair(self, shift: int, group: int) -> _core.Pair:
        return _core.gaussian_pair(math.sqrt(3.0) * shift / self.noise_multiplier)


@pytest.mark.parametrize("adjacency", hs.mechanisms.ADJACENCIES)
def test_a_mechanism_needs_no_more_than_its_own_class(adjacency: str) -> None:
    one, known = Tripled(2.0), hs.Gaussian(2.0 / math.sqrt(3.0))
    if adjacency != "replace_one":  # sampled, a Gaussian has a tighter pair than any mechanism
        for new, old in (
            (hs.PoissonSampled(one, 0.1), hs.PoissonSampled(known, 0.1)),
            (
                hs.Mixture([one, hs.Laplace(3.0)], [0.5, 0.5]),
                hs.Mixture([known, hs.Laplace(3.0)], [0.5, 0.5]),
            ),
        ):
            bounds = hs.account(new * 3, adjacency).delta_bounds(0.5)
            assert bounds == pytest.approx(hs.account(old * 3, adjacency).delta_bounds(0.5), rel=1e-9)
    plain = hs.account(one * 4, adjacency)
    assert plain.delta_bounds(0.5) == pytest.approx(
        hs.account(known * 4, adjacency).delta_bounds(0.5), rel=1e-9
    )
    assert "noise multiplier of each of three" in plain.report(delta=1e-5).statement()
    assert from_dict(to_dict(hs.PoissonSampled(one, 0.1) * 3)) == hs.PoissonSampled(one, 0.1) * 3


def test_who_derives_a_mechanism_is_told_how_to_describe_it() -> None:
    """The error had no words."""

    class Mine(hs.mechanisms.Mechanism):
        pass

    with pytest.raises(NotImplementedError, match=r"^Mine has no symmetric_pair; .*FinitePair"):
        hs.account(Mine()).epsilon(1e-5)


def test_nothing_else_takes_the_name_of_a_mechanism() -> None:
    class Gaussian(hs.Gaussian):
        pass

    with pytest.raises(TypeError, match="cannot store a Gaussian"):
        to_dict(Gaussian(1.0))
    assert type(from_dict(to_dict(hs.Gaussian(1.0)))) is hs.Gaussian
    for base in ("Step", "Mechanism", "Composable"):
        with pytest.raises(ValueError, match="unknown description"):
            from_dict({"type": base})
