"""Rare hits: what the fast bounds leave wide asks the full engine, of which many histories share the answers."""

import math
from itertools import pairwise

import hockeystick as hs
import numpy as np
import pytest
from hockeystick.individual import cells
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import log_ndtr


def one_step(sigma: float, q: float, delta: float) -> float:
    """The epsilon of a single sampled step under removal, which no number of further steps undercuts."""

    def excess(epsilon: float) -> float:
        t = math.log1p(math.expm1(epsilon) / q) * sigma + 0.5 / sigma  # where the loss is epsilon
        away, here = math.exp(log_ndtr(-t)), math.exp(log_ndtr(1.0 / sigma - t))
        return q * here - (math.expm1(epsilon) + q) * away - delta

    return brentq(excess, 0.0, 50.0, xtol=1e-16, rtol=1e-13) if excess(0.0) > 0.0 else 0.0


@pytest.mark.parametrize("seed", range(20))
def test_an_envelope_is_the_least_history_with_all_tails(seed: int) -> None:
    counts = np.random.default_rng(seed).integers(0, 1 + 5 * seed, (4, 2, 6)).astype(np.uint16)
    found = cells.envelope(counts)
    assert (found >= 0).all()
    for cell in range(6):
        tails = counts[..., cell:].astype(int).sum(axis=-1)
        assert (found[:, cell:].sum(axis=-1) == tails.max(axis=0)).all()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.integers(1, 5))
def test_groups_are_of_neighbours_and_complete(scores: list[float], most: int) -> None:
    values = np.array(scores)
    parts = list(cells.groups(values, most))
    assert len(parts) <= most
    assert sorted(np.concatenate(parts).tolist()) == list(range(values.size))
    for above, below in pairwise(parts):
        assert values[above].min() > values[below].max()


@pytest.mark.parametrize(("q", "steps"), [(1e-5, 1), (1e-5, 1000)])
def test_rare_hits_are_refined_unasked(q: float, steps: int) -> None:
    """The issue's example had an epsilon 6.4 times too large."""
    delta = 1e-6
    accountant = hs.IndividualAccountant(3, noise_multiplier=1.0, sampling_probability=q, clipping_norm=1.0)
    accountant.step([1.0, 0.5, 0.25], steps=steps)
    found = accountant.nonadaptive_epsilon(delta)
    bounds = [accountant.profile(row).epsilon_bounds(delta) for row in range(3)]
    for row, norm in enumerate((1.0, 0.5, 0.25)):
        assert found[row] >= one_step(1.0 / norm, q, delta)
        assert bounds[row].lower <= found[row] <= 1.01 * bounds[row].upper + 1e-12
    assert (found <= accountant.nonadaptive_epsilon(delta, refine=0)).all()


def test_neighbours_share_a_bound_above_each() -> None:
    rng = np.random.default_rng(5)
    accountant = hs.IndividualAccountant(
        12, noise_multiplier=1.0, sampling_probability=1e-4, clipping_norm=1.0
    )
    accountant.step(rng.uniform(0.8, 1.0, 12), steps=100)
    found = accountant.nonadaptive_epsilon(1e-6, refine=2)
    fast = accountant.nonadaptive_epsilon(1e-6, refine=0)
    assert (found <= fast).all()
    assert found.max() < 0.9 * fast.max()
    for row in (0, 5, 11):
        assert accountant.profile(row).epsilon_bounds(1e-6).lower <= found[row]
