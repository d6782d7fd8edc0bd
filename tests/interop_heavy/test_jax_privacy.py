"""JAX Privacy's events, plans and training accountants."""

import dataclasses
from typing import Any

import dp_accounting
import hockeystick as hs
import jax
import jax.numpy as jnp
import jax_privacy
import numpy as np
import pytest
from hockeystick.interop.dp_accounting import HockeystickAccountant, adjacency, from_event
from hockeystick.interop.jax_privacy import HockeystickAccountantConfig, check_config
from jax_privacy import accounting as training
from jax_privacy import batch_selection
from jax_privacy.experimental import accounting, execution_plan

pytestmark = pytest.mark.filterwarnings("ignore")

ADD_OR_REMOVE = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE_ONE = dp_accounting.NeighboringRelation.REPLACE_ONE
ZERO_OUT = dp_accounting.NeighboringRelation.REPLACE_SPECIAL


def test_this_is_the_real_one() -> None:
    assert "stand_ins" not in str(jax_privacy.__file__)


@pytest.mark.parametrize("relation", [ADD_OR_REMOVE, ZERO_OUT, REPLACE_ONE])
def test_dp_sgd(relation: dp_accounting.NeighboringRelation) -> None:
    event = accounting.dpsgd_event(3.0, 512, sampling_prob=0.1)
    assert from_event(event, relation) == hs.PoissonSampled(hs.Gaussian(3.0), 0.1) * 512
    ours = HockeystickAccountant(relation).compose(event).get_epsilon(1e-6)
    assert ours <= dp_accounting.pld.PLDAccountant(relation).compose(event).get_epsilon(1e-6)
    assert adjacency(relation) in {"add_or_remove", "zero_out", "replace_one"}


@pytest.mark.parametrize("replace", [False, True])
def test_batches_of_fixed_size(replace: bool) -> None:
    event = accounting.fixed_dpsgd_event(3.0, 100, dataset_size=5000, batch_size=50, replace=replace)
    kind = hs.WithReplacement if replace else hs.WithoutReplacement
    assert from_event(event, REPLACE_ONE) == kind(hs.Gaussian(3.0), 50, 5000) * 100
    assert not HockeystickAccountant(ADD_OR_REMOVE).supports(event)
    # JAX Privacy's documentation sends with-replacement sampling to "some accountants".
    assert not dp_accounting.pld.PLDAccountant(REPLACE_ONE).supports(event)
    assert 0.0 < HockeystickAccountant(REPLACE_ONE).compose(event).get_epsilon(1e-6) < 10.0


def test_execution_plans_calibrate_with_it() -> None:
    plans = [
        execution_plan.BandMFExecutionPlanConfig(
            strategy=np.array([1.0, 0.5]),
            iterations=40,
            epsilon=2.0,
            delta=1e-5,
            sampling_prob=0.2,
            accountant=accountant,
        ).plan
        for accountant in (HockeystickAccountant(ZERO_OUT), dp_accounting.pld.PLDAccountant(ZERO_OUT))
    ]
    epsilons = [HockeystickAccountant(ZERO_OUT).compose(p.dp_event).get_epsilon(1e-5) for p in plans]
    assert epsilons[1] * (1 - 1e-4) <= epsilons[0] <= 2.0
    ours, theirs = (p.dp_event.event.event.noise_multiplier for p in plans)
    assert ours <= theirs + 1e-6  # the tolerance of calibrate_dp_mechanism
    independent = execution_plan.BandMFExecutionPlanConfig(
        strategy=np.array([1.0]),
        iterations=10,
        epsilon=2.0,
        delta=1e-5,
        sampling_prob=0.2,
        partition_type=batch_selection.PartitionType.INDEPENDENT,
        accountant=HockeystickAccountant(ADD_OR_REMOVE),
    )
    assert HockeystickAccountant().compose(independent.plan.dp_event).get_epsilon(1e-5) <= 2.0


def planned(strategy: list[float], normalized: bool = False, dtype: Any = np.float32) -> Any:
    return execution_plan.BandMFExecutionPlanConfig(
        strategy=np.array(strategy),
        iterations=8,
        epsilon=None,
        delta=None,
        noise_multiplier=2.0,
        column_normalize=normalized,
        dtype=dtype,
        noise_seed=0,
        accountant=HockeystickAccountant(ZERO_OUT),
    )


def noise_multiplier_of(config: Any, size: int = 200_000) -> float:
    """That of the plan's noise: the largest mu of one group's participations, by the covariance of the noise between steps, and its root."""
    transform, zero, rows = config.plan.noise_addition_transform, jnp.zeros(size), []
    state = transform.init(zero)
    for _ in range(config.iterations):
        noise, state = transform.update(zero, state)
        rows.append(np.asarray(noise, np.float64))
    inverse, bands = np.linalg.inv(np.cov(rows)), len(config.strategy)
    turns = [np.arange(config.iterations) % bands == group for group in range(bands)]
    mu = max(float(np.sqrt(turn @ inverse @ turn)) for turn in turns)
    return float(np.sqrt(max(int(turn.sum()) for turn in turns)) / mu)


@pytest.mark.parametrize(
    ("strategy", "normalized"),
    [([0.1], False), ([0.1, 0.05], False), ([1.0, 0.5], False), ([1.0], True), ([1.0, 0.5], True)],
)
def test_plans_add_the_noise_that_they_say(strategy: list[float], normalized: bool) -> None:
    config = planned(strategy, normalized)
    check_config(config)
    assert noise_multiplier_of(config) >= 0.98 * 2.0


def test_plans_that_normalize_columns_add_less_noise_than_they_say() -> None:
    """By the norm of the strategy; where this fails they do not, and `check_config` need not refuse them."""
    for strategy, norm in (([0.1], 0.1), ([0.1, 0.05], 0.1118)):
        config = planned(strategy, normalized=True)
        assert noise_multiplier_of(config) <= 1.02 * 2.0 * norm
        with pytest.raises(hs.ParameterError, match=rf"strategy: has norm {norm:.1f}"):
            check_config(config)
    for kind in (jnp.bfloat16, jnp.float16):
        with pytest.raises(hs.ParameterError, match=r"dtype = .*float16"):
            check_config(planned([1.0], dtype=kind))


def test_noise_is_of_a_real_type_that_is_known() -> None:
    """Complex noise has half of its variance in each part, integers have none, and the type of the gradients (None) may have 16 bits."""
    for kind in (None, np.complex64, np.complex128, int):
        with pytest.raises(hs.ParameterError, match="dtype = "):
            check_config(dataclasses.replace(planned([1.0]), dtype=kind))


@pytest.mark.parametrize(("clipping_norm", "moved"), [(0.0, 512.0), (1e-19, 512.0), (2e-10, 1.0)])
def test_a_clipping_norm_whose_squares_underflow_is_refused(clipping_norm: float, moved: float) -> None:
    """A gradient of 2^20 numbers whose squares are 0 in 32 bits, but for one: divided by its norm it has norm 512, not 1."""
    config = dataclasses.replace(planned([1.0]), l2_clip_norm=clipping_norm)
    record = np.full((1, 2**20), 1e-19, np.float32)
    record[0, 0] = 2e-19
    clipped = config.plan.clipped_grad(lambda weights, x: jnp.sum(weights * x))
    total = np.asarray(clipped(jnp.zeros(2**20), jnp.asarray(record)), np.float64)
    assert np.linalg.norm(total) <= 1.001 * moved
    if moved == 1.0:
        check_config(config)
        return
    assert np.linalg.norm(total) >= 0.999 * moved
    with pytest.raises(hs.ParameterError, match=r"l2_clip_norm = .*: must be at least 1\.2e-10 with float32"):
        check_config(config)


def test_a_strategy_without_an_inverse_is_refused() -> None:
    with pytest.raises(hs.ParameterError, match="strategy: rows of its inverse"):
        check_config(planned([0.0, 1.0]))


def test_64_bits_are_32_where_jax_has_no_others() -> None:
    config = dataclasses.replace(planned([1.0, 1.2]), iterations=110, dtype=np.float64)
    with pytest.raises(hs.ParameterError, match="rounding to float32 changes Z"):
        check_config(config)
    jax.config.update("jax_enable_x64", True)
    try:
        check_config(config)
    finally:
        jax.config.update("jax_enable_x64", False)


@pytest.mark.parametrize(
    ("strategy", "iterations", "refused"),
    [
        ([1.0, 1.2], 130, True),
        ([1.0, 1.2], 20, False),
        ([1.0, -1.2], 130, True),
        ([1.0, 0.5, 0.375], 10_000, False),
    ],
)
def test_noise_that_is_rounded_away_is_refused(strategy: list[float], iterations: int, refused: bool) -> None:
    """What is new in a row of the plan's noise, beside that of independent noise: where rows have grown, nothing is."""
    config = dataclasses.replace(planned(strategy), iterations=iterations)
    if not refused:
        check_config(config)
    else:
        with pytest.raises(hs.ParameterError, match="rounding to float32 changes Z"):
            check_config(config)
    if iterations > 1000:
        return
    transform, zero = config.plan.noise_addition_transform, jnp.zeros(2000)
    state, rows = transform.init(zero), []
    for _ in range(iterations):
        noise, state = transform.update(zero, state)
        rows.append(np.asarray(noise, np.float64))
    fresh = rows[-1] + strategy[1] / strategy[0] * rows[-2]
    gone = float(np.mean(np.abs(fresh) < 2.0**-22 * np.abs(rows[-1])))
    assert (gone > 0.9) == refused


def test_training_accountants_take_the_configuration() -> None:
    params = training.DpParams(noise_multipliers=1.0, batch_size=600, num_samples=60_000, delta=1e-5)
    ours, theirs = (
        training.DpsgdTrainingAccountant(dp_accountant_config=config).compute_epsilon(
            num_updates=1000, dp_params=params
        )
        for config in (HockeystickAccountantConfig(), training.PldAccountantConfig())
    )
    assert ours <= theirs <= ours * (1 + 1e-4)
    assert ours == pytest.approx(1.82823667, rel=1e-8)
    sigma = training.calibrate_noise_multiplier(
        target_epsilon=1.0,
        accountant=training.DpsgdTrainingAccountant(dp_accountant_config=HockeystickAccountantConfig()),
        batch_sizes=300,
        num_updates=100,
        num_samples=60_000,
        target_delta=1e-6,
    )
    step = hs.PoissonSampled(hs.Gaussian(float(sigma)), 300 / 60_000)
    assert hs.account(step * 100).epsilon(1e-6) <= 1.0
    with pytest.raises(hs.ParameterError, match="accuracy"):
        HockeystickAccountantConfig(accuracy=0.0)


def test_replacing_a_record_gets_twice_the_noise_it_is_accounted_with() -> None:
    """docs/interop/interop.md: JAX Privacy multiplies by 2 C, the event's noise multiplier is relative to C."""

    def stddev(relation: dp_accounting.NeighboringRelation) -> float:
        config = execution_plan.BandMFExecutionPlanConfig(
            strategy=np.array([1.0]),
            iterations=1,
            epsilon=None,
            delta=None,
            noise_multiplier=1.0,
            noise_seed=0,
            accountant=HockeystickAccountant(relation),
        )
        transform = config.plan.noise_addition_transform
        zeros = np.zeros(20_000, np.float32)
        noisy, _ = transform.update(zeros, transform.init(zeros))
        return float(np.std(np.asarray(noisy)))

    assert stddev(REPLACE_ONE) == pytest.approx(2 * stddev(ZERO_OUT), rel=0.03)
