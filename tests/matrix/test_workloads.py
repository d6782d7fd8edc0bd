"""Workloads against dense algebra: iterates, errors of every strategy, and strategies optimised for them."""

import hockeystick as hs
import numpy as np
import pytest
from hockeystick.matrix import (
    PREFIX_SUMS,
    Banded,
    BandedToeplitz,
    InverseBanded,
    LowerTriangular,
    Strategy,
    Workload,
)

STEPS = 12
RATES = tuple(np.linspace(1.0, 0.1, STEPS) * (1.0 + 0.5 * np.arange(STEPS) % 2))
WORKLOADS = [
    PREFIX_SUMS,
    Workload(momentum=0.9),
    Workload(0.5, weight_decay=0.2),
    Workload(0.7, momentum=0.5, weight_decay=1.0),
    Workload(RATES),
    Workload(RATES, momentum=0.8, weight_decay=0.3),
    Workload((0.0,) * (STEPS - 1) + (1.0,), momentum=1.0),
]


def strategies() -> list[Strategy]:
    rng = np.random.default_rng(3)
    columns = np.where(
        np.arange(STEPS)[:, None] + np.arange(3) < STEPS, rng.uniform(0.1, 1.0, (STEPS, 3)), 0.0
    )
    inverse = np.where(np.arange(STEPS)[:, None] + np.arange(2) < STEPS, [1.0, -0.4], 0.0)
    return [
        hs.Identity(STEPS),
        BandedToeplitz.square_root(STEPS, 4),
        Banded(columns),
        LowerTriangular(np.tril(rng.uniform(0.1, 1.0, (STEPS, STEPS)))),
        InverseBanded([1.0, -0.5, -0.2], STEPS),
        InverseBanded(inverse),
    ]


def dense(workload: Workload, steps: int = STEPS) -> np.ndarray:
    """Row by row from the closed form: x_i = sum_k eta_k prod_{k < l <= i} (1 - eta_l w) sum_{j <= k} b^{k-j} g_j."""
    rates = np.broadcast_to(workload.learning_rates, steps)
    sums = np.zeros((steps, steps))
    for i in range(steps):
        for k in range(i + 1):
            sums[i, k] = rates[k] * np.prod(1.0 - rates[k + 1 : i + 1] * workload.weight_decay)
    momentum = np.array(
        [[workload.momentum ** (k - j) if j <= k else 0.0 for j in range(steps)] for k in range(steps)]
    )
    return sums @ momentum


@pytest.mark.parametrize("workload", WORKLOADS)
def test_iterates_are_those_of_the_closed_form(workload: Workload) -> None:
    a = dense(workload)
    assert workload.matrix(STEPS) == pytest.approx(a, rel=1e-12, abs=1e-15)
    assert workload.response(STEPS) == pytest.approx(a[:, 0], rel=1e-12, abs=1e-15)
    gradients = np.random.default_rng(1).standard_normal((STEPS, 2, 3))
    assert workload.iterates(gradients) == pytest.approx(
        np.tensordot(a, gradients, axes=1), rel=1e-10, abs=1e-12
    )


def test_iterates_are_those_of_torch_sgd_without_decay() -> None:
    """PyTorch's update, with its own momentum buffer; its weight decay is that of v, and agrees where there is no momentum."""
    gradients = np.random.default_rng(2).standard_normal(STEPS)
    for momentum, decay in [(0.9, 0.0), (0.0, 0.3)]:
        place, buffer, expected = 0.0, None, []
        for rate, gradient in zip(RATES, gradients, strict=True):
            gradient = gradient + decay * place
            buffer = gradient if buffer is None else momentum * buffer + gradient
            place -= rate * buffer
            expected.append(place)
        assert -Workload(RATES, momentum, decay).iterates(gradients) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("strategy", strategies(), ids=lambda s: type(s).__name__)
def test_errors_are_those_of_the_dense_matrices(strategy: Strategy, workload: Workload, monkeypatch) -> None:
    monkeypatch.setattr("hockeystick.matrix.strategy._COLUMNS", 5)
    rows = dense(workload) @ np.linalg.inv(strategy.matrix())
    errors = 1.3**2 * (rows**2).sum(axis=1)
    assert strategy.per_step_error(1.3, workload) == pytest.approx(errors, rel=1e-10)
    assert strategy._workload_errors(workload) == pytest.approx(errors / 1.69, rel=1e-10)
    assert strategy.mean_squared_error(1.3, workload) == pytest.approx(errors.mean(), rel=1e-10)
    assert strategy.max_error(1.3, workload) == pytest.approx(errors.max(), rel=1e-10)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_quadratic_form_is_the_sum_of_squares(workload: Workload) -> None:
    response, gram = workload.quadratic_form(STEPS)
    weights = gram if gram.size else np.diag(np.arange(STEPS, 0.0, -1.0))
    for seed in range(3):
        c = np.random.default_rng(seed).uniform(0.1, 1.0, 4)
        strategy = BandedToeplitz(tuple(c), STEPS)
        quotient = np.linalg.solve(strategy.matrix(), response)
        total = ((dense(workload) @ np.linalg.inv(strategy.matrix())) ** 2).sum()
        assert quotient @ weights @ quotient == pytest.approx(total, rel=1e-10)


@pytest.mark.parametrize("workload", WORKLOADS[:-1])
def test_optimised_is_a_minimum_for_its_workload(workload: Workload) -> None:
    a = dense(workload)

    def loss(c: np.ndarray) -> float:
        matrix = BandedToeplitz(tuple(c), STEPS).matrix()
        return float(((a @ np.linalg.inv(matrix)) ** 2).sum() / STEPS * np.sum(matrix[:, 0] ** 2))

    best = BandedToeplitz.optimized(STEPS, 4, workload=workload)
    least = loss(np.array(best.coefficients))
    assert least == pytest.approx(best.mean_squared_error(1.0, workload) * best.sensitivity() ** 2, rel=1e-10)
    assert least <= loss(np.array(BandedToeplitz.square_root(STEPS, 4).coefficients))
    rng = np.random.default_rng(0)
    for scale in (1e-1, 1e-2, 1e-3):
        for _ in range(20):
            moved = np.abs(np.array(best.coefficients) + scale * rng.standard_normal(4))
            assert loss(moved) >= least * (1.0 - 1e-9)


@pytest.mark.parametrize("workload", WORKLOADS[:4])
def test_square_root_is_that_of_the_workload(workload: Workload) -> None:
    root = BandedToeplitz.square_root(STEPS, STEPS, workload).matrix()
    scale = np.broadcast_to(workload.learning_rates, 1)[0]
    assert scale * root @ root == pytest.approx(dense(workload), rel=1e-12, abs=1e-14)


def test_gains_of_optimising_for_the_workload() -> None:
    """The strategy for prefix sums is not the best one for a schedule; the default is the workload of prefix sums."""
    steps = 256
    cooled = Workload(tuple(np.linspace(1.0, 0.05, steps)), momentum=0.9)
    own = BandedToeplitz.optimized(steps, 8, workload=cooled)
    plain = BandedToeplitz.optimized(steps, 8)
    assert own.mean_squared_error(1.0, cooled) < 0.999 * plain.mean_squared_error(1.0, cooled)
    assert plain == BandedToeplitz.optimized(
        steps, 8, workload=Workload(2.0)
    ) or plain.coefficients == pytest.approx(
        BandedToeplitz.optimized(steps, 8, workload=Workload(2.0)).coefficients, rel=1e-6
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Workload(-1.0), "learning_rates = -1"),
        (lambda: Workload((1.0, -0.5)), r"learning_rates\[1\] = -0.5"),
        (lambda: Workload((0.0, 0.0)), "not all 0"),
        (lambda: Workload(momentum=1.5), "momentum = 1.5"),
        (lambda: Workload(momentum=float("nan")), "momentum = nan"),
        (lambda: Workload(weight_decay=-0.1), "weight_decay = -0.1"),
        (lambda: Workload(2.0, weight_decay=0.6), "weight_decay . the largest learning rate = 1.2"),
        (lambda: hs.Identity(4).per_step_error(1.0, Workload((1.0, 1.0))), "one for each of 4 steps"),
        (lambda: BandedToeplitz.square_root(2, 2, Workload((1.0, 0.5))), "must be one number"),
        (lambda: BandedToeplitz.optimized(3, 2, workload=Workload((1.0, 0.5))), "one for each of 3 steps"),
        (lambda: BandedToeplitz.optimized(9000, 2, workload=Workload((1.0,) * 9000)), "at most 8192"),
        (lambda: hs.Identity(20_000).per_step_error(1.0, Workload((1.0,) * 20_000)), "16384"),
    ],
)
def test_refusals(make, message: str) -> None:
    with pytest.raises(hs.ParameterError, match=message):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: BandedToeplitz.square_root(4, 2, 1),
        lambda: BandedToeplitz.optimized(4, 2, workload=1),
        lambda: hs.matrix.BufferedToeplitz.optimized(4, 2, workload=None),
        lambda: hs.Identity(4).per_step_error(1.0, "momentum"),
    ],
)
def test_no_workload_is_refused(make) -> None:
    with pytest.raises(hs.ParameterTypeError, match=r"workload = .*must be a Workload"):
        make()
