"""Invalid input is refused at once, with the parameter, the value and the valid range."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import hockeystick as hs
import numpy as np
import pytest

STEP = hs.PoissonSampled(hs.Gaussian(1.0), 0.1)

REALS: list[tuple[str, Callable[[Any], object], float, float]] = [
    # parameter, how it is passed, a value below its range, a value above it
    ("noise_multiplier", hs.Gaussian, -1.0, math.inf),
    ("scale", hs.Laplace, 0.0, math.inf),
    ("scale", hs.DiscreteLaplace, 0.0, math.inf),
    ("sigma", hs.DiscreteGaussian, -2.0, math.inf),
    ("epsilon", hs.PureDP, -0.1, math.inf),
    ("epsilon", hs.RandomizedResponse, -0.1, math.inf),
    ("delta", lambda x: hs.ApproximateDP(1.0, x), -1e-9, 1.0 + 1e-9),
    ("sampling_probability", lambda x: hs.PoissonSampled(hs.Gaussian(1.0), x), -1e-300, 1.0000001),
    ("accuracy", lambda x: hs.account(STEP, accuracy=x), 0.0, 2.0),
    ("delta", lambda x: hs.account(STEP).epsilon(x), -1e-300, 1.1),
    ("alpha", lambda x: hs.account(STEP).tradeoff(x), -0.1, 1.1),
    ("slack", lambda x: hs.account(STEP).gdp_mu(x), -0.1, 1.1),
    ("epochs", lambda x: hs.dp_sgd(1.0, 100, 10, epochs=x), -1.0, math.inf),
]

INTEGERS: list[tuple[str, Callable[[Any], object], int]] = [
    # parameter, how it is passed, a value below its range
    ("steps", lambda x: STEP * x, -1),
    ("steps", lambda x: hs.Accountant().step(STEP, x), -1),
    ("sensitivity", lambda x: hs.DiscreteLaplace(1.0, x), 0),
    ("sensitivity", lambda x: hs.DiscreteGaussian(1.0, x), 0),
    ("num_categories", lambda x: hs.RandomizedResponse(1.0, x), 1),
    ("batch_size", lambda x: hs.WithoutReplacement(hs.Gaussian(1.0), x, 10), 0),
    ("dataset_size", lambda x: hs.WithReplacement(hs.Gaussian(1.0), 1, x), 0),
    ("steps", lambda x: hs.dp_sgd(1.0, 100, 10, steps=x), -1),
    ("world_size", lambda x: hs.dp_sgd(1.0, 100, 10, steps=1, world_size=x), 0),
    ("gradient_accumulation", lambda x: hs.dp_sgd(1.0, 100, 10, steps=1, gradient_accumulation=x), 0),
    ("memory_limit", lambda x: hs.account(STEP, memory_limit=x), 1),
]


@pytest.mark.parametrize(("name", "use", "below", "above"), REALS)
def test_reals(name: str, use: Callable[[Any], object], below: float, above: float) -> None:
    for bad in (below, above, math.nan):
        with pytest.raises(hs.ParameterError, match=rf"^{name} = .*must be") as caught:
            use(bad)
        assert "[" in str(caught.value) or "(" in str(caught.value)
    for wrong in (True, np.bool_(False), "1", None, 1j, object()):
        if wrong is None and name == "epochs":
            continue
        with pytest.raises(hs.ParameterTypeError, match=rf"^{name} = "):
            use(wrong)


@pytest.mark.parametrize(("name", "use", "below"), INTEGERS)
def test_integers(name: str, use: Callable[[Any], object], below: int) -> None:
    for bad in (below, 2**60):
        with pytest.raises(hs.ParameterError, match=rf"^{name}.* = .*must be"):
            use(bad)
    for wrong in (1.5, 2.0, True, "3", None, math.nan, np.float64(2.0)):
        if wrong is None and name == "steps":
            continue
        with pytest.raises(hs.ParameterTypeError, match=rf"^{name} = .*must be an integer"):
            use(wrong)


def test_numpy_numbers_are_numbers() -> None:
    assert hs.Gaussian(np.float32(0.5)) == hs.Gaussian(0.5)
    assert np.int64(3) * STEP == STEP * np.int32(3) == STEP * 3
    assert isinstance((np.int64(3) * STEP).steps, int)


def test_adjacency() -> None:
    with pytest.raises(hs.ParameterError, match="adjacency = 'swap': must be one of 'add'"):
        hs.account(STEP, adjacency="swap")
    with pytest.raises(hs.ParameterTypeError, match="adjacency = None"):
        hs.account(STEP, adjacency=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("adjacency", ["add", "remove", "add_or_remove", "zero_out"])
@pytest.mark.parametrize("scheme", [hs.WithoutReplacement, hs.WithReplacement])
def test_fixed_batches_need_replace_one(scheme: Callable[..., Any], adjacency: str) -> None:
    step = scheme(hs.Gaussian(1.0), batch_size=2, dataset_size=10)
    with pytest.raises(hs.ParameterError, match="must be 'replace_one'"):
        hs.account(step, adjacency=adjacency)
    accountant = hs.Accountant(adjacency=adjacency)
    with pytest.raises(hs.ParameterError, match="must be 'replace_one'"):
        accountant.step(step)
    assert not accountant.process


@pytest.mark.parametrize("other", [hs.Laplace(1.0), hs.PureDP(1.0)])
def test_the_paper_pair_is_for_gaussians(other: hs.Laplace) -> None:
    with pytest.raises(hs.ParameterError, match="pair = 'koskela2020'"):
        hs.WithoutReplacement(other, 2, 10, pair="koskela2020")


@pytest.mark.parametrize("thing", [STEP * 2, 3.0, None, "Gaussian"])
def test_only_mechanisms_can_be_sampled(thing: object) -> None:
    with pytest.raises(hs.ParameterTypeError, match=r"^mechanism = "):
        hs.PoissonSampled(thing, 0.1)  # type: ignore[arg-type]


@pytest.mark.parametrize("thing", [1.0, None, "Gaussian", [STEP]])
def test_only_compositions_are_accounted(thing: object) -> None:
    with pytest.raises(hs.ParameterTypeError, match=r"^process = "):
        hs.account(thing)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        STEP + thing  # type: ignore[operator]


def test_a_report_needs_a_question() -> None:
    with pytest.raises(hs.ParameterTypeError, match="at least one"):
        hs.account(STEP).report()


def test_what_an_iterable_raises_is_not_hidden() -> None:
    with pytest.raises(hs.ParameterError, match=r"noise_multiplier = -1\.0"):
        hs.mechanisms.Process((hs.Gaussian(sigma), 1) for sigma in (1.0, -1.0))
    with pytest.raises(hs.ParameterTypeError, match=r"items\[1\] = Gaussian.*must be a pair"):
        hs.mechanisms.Process([(STEP, 2), hs.Gaussian(1.0)])  # type: ignore[list-item]


def test_arrays_of_objects_are_numbers_if_each_of_them_is() -> None:
    gradients = np.array([[Fraction(1, 2), 1], [0, 2**70]], dtype=object)
    assert hs.matrix.Workload().iterates(gradients).tolist() == [[0.5, 1.0], [0.5, 1.0 + 2.0**70]]
    with pytest.raises(hs.ParameterTypeError, match="gradients: must be an array of numbers"):
        hs.matrix.Workload().iterates(np.array([object()]))


@pytest.mark.parametrize("odd", [{0.5: 1, 0.25: 2}, {0.5}, "ab", None, 3, {1: 0.5}.values()])
def test_what_is_no_sequence_of_numbers_is_called_that(odd: Any) -> None:
    """A dictionary was said to be no number in [0, 1]."""
    with pytest.raises(hs.ParameterTypeError) as refused:
        hs.FinitePair(odd, [1.0])
    assert str(refused.value) == f"p = {odd!r}: must be a sequence of numbers, not {type(odd).__name__}"


def test_entries_are_named_as_they_were_passed() -> None:
    with pytest.raises(hs.ParameterTypeError, match=r"^p\[0\] = 'a': .*, not str$"):
        hs.FinitePair(["a", 0.5], [0.5, 0.5])


def test_integers_that_python_does_not_write_are_refused_by_name() -> None:
    """Python's own error spoke of a limit of digits."""
    with pytest.raises(
        hs.ParameterError, match=r"^steps = <an integer of about 5001 digits>: must be an int"
    ):
        hs.Gaussian(1.0) * 10**5000
    with pytest.raises(hs.ParameterTypeError, match=r"^sampling_probability = <a list that cannot be shown>"):
        hs.PoissonSampled(hs.Gaussian(1.0), [10**5000])  # type: ignore[arg-type]
