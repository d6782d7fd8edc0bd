"""If only one file is run, this is the one: the package imports, answers, and its answers are ordered."""

import math
import subprocess
import sys
from pathlib import Path

import hockeystick as hs
import pytest
from hockeystick import _core


def test_versions_agree() -> None:
    assert hs.__version__ == _core.__version__ == hs.build_config()["version"]


def test_public_names_exist() -> None:
    assert all(hasattr(hs, name) for name in hs.__all__)


def test_dp_sgd_end_to_end() -> None:
    profile = hs.account(hs.dp_sgd(noise_multiplier=1.0, dataset_size=60_000, batch_size=600, steps=1000))
    lower, upper = profile.epsilon_bounds(delta=1e-5)
    # DESIGN's workload W1, all digits hold.
    assert lower <= 1.82823667 * (1 + 1e-8)
    assert 1.82823667 * (1 - 1e-8) <= upper <= lower * (1 + 2e-3)
    assert profile.epsilon(delta=1e-5) == upper


def test_gaussian_matches_the_closed_form() -> None:
    profile = hs.account(hs.Gaussian(noise_multiplier=100.0) * 420)
    lower, upper = profile.epsilon_bounds(delta=1e-5)
    assert lower <= 0.74513823552116571 * (1 + 1e-12)
    assert upper >= 0.74513823552116571 * (1 - 1e-12)


def test_questions_do_not_change_answers() -> None:
    step = hs.PoissonSampled(hs.Gaussian(1.5), 0.02)
    asked, fresh = hs.account(step * 50), hs.account(step * 50)
    asked.delta(1.0)
    asked.tradeoff([0.1, 0.5])
    asked.epsilon(1e-3)
    assert asked.epsilon_bounds(1e-6) == fresh.epsilon_bounds(1e-6)
    assert asked.report(delta=1e-6) == fresh.report(delta=1e-6)


def test_nothing_costs_nothing() -> None:
    step = hs.PoissonSampled(hs.Gaussian(1.0), 0.01)
    for nothing in (step * 0, hs.PoissonSampled(hs.Gaussian(1.0), 0.0) * 10**9, hs.mechanisms.Process()):
        profile = hs.account(nothing)
        assert profile.epsilon_bounds(0.0) == (0.0, 0.0)
        assert profile.delta_bounds(0.0) == (0.0, 0.0)
        assert profile.gdp_mu() == 0.0
        assert profile.tradeoff(0.25) == 0.75


def test_no_noise_costs_everything() -> None:
    profile = hs.account(hs.Gaussian(0.0))
    assert profile.epsilon(1e-5) == math.inf
    assert profile.delta(10.0) == 1.0
    assert profile.gdp_mu() == math.inf


@pytest.mark.parametrize("mechanism", [hs.Gaussian(1.0), hs.Laplace(2.0), hs.PureDP(1.0)])
def test_certain_sampling_is_no_sampling(mechanism: hs.Gaussian) -> None:
    sampled = hs.account(hs.PoissonSampled(mechanism, 1.0) * 3)
    assert sampled.epsilon_bounds(1e-4) == hs.account(mechanism * 3).epsilon_bounds(1e-4)


def test_delta_one_and_zero() -> None:
    profile = hs.account(hs.PureDP(0.5) * 4)
    assert profile.epsilon_bounds(1.0) == (0.0, 0.0)
    lower, upper = profile.epsilon_bounds(0.0)
    assert lower <= 2.0 <= upper <= lower * (1 + 1e-9)
    assert hs.account(hs.Gaussian(1.0)).epsilon_bounds(0.0) == (math.inf, math.inf)


def test_tradeoff_is_symmetric_in_size_and_below_guessing() -> None:
    profile = hs.account(hs.Gaussian(2.0) * 4)
    alpha = [0.0, 0.05, 0.3, 0.7, 1.0]
    beta = profile.tradeoff(alpha)
    assert all(0.0 <= b <= 1.0 - a for a, b in zip(alpha, beta, strict=True))
    assert list(beta) == sorted(beta, reverse=True)
    assert beta[1] == profile.tradeoff(0.05)


def test_gdp_mu_of_gaussians_and_of_samples() -> None:
    assert 1.0 <= hs.account(hs.Gaussian(2.0) * 4).gdp_mu() <= 1.0 + 1e-6
    profile = hs.account(hs.PoissonSampled(hs.Gaussian(1.0), 0.01) * 100)
    # Strictly, sampling does not help; up to a slack it does, and a larger slack asks for less.
    assert profile.gdp_mu() >= 10.0
    fine, coarse = profile.gdp_mu(slack=1e-9), profile.gdp_mu(slack=1e-4)
    assert 0.0 < coarse < fine < 10.0


@pytest.mark.slow
def test_command_line_is_installed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hockeystick", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["hockeystick", hs.__version__]


def test_headers_come_with_the_package() -> None:
    assert (Path(hs.get_include()) / "hockeystick").is_dir()
