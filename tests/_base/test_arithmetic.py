"""Flush-to-zero, rounding modes and traps that a host has set: the same answers, and the host's mode afterwards."""

import decimal
import functools
import inspect
import platform
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hockeystick as hs
import numpy as np
import pytest
from hockeystick import _core
from hockeystick._base import binomial
from hockeystick._base.bounds import round_down, round_up
from hockeystick._base.decimals import in_digits
from hockeystick.mechanisms import skellam

STANDARD = _core.arithmetic_mode()
MODES = (
    # MXCSR: flush results, take operands as 0, both; round down, up, to zero; trap invalid, divisions by zero, overflow.
    {
        "flush": STANDARD | 0x8000,
        "zeros": STANDARD | 0x0040,
        "both": STANDARD | 0x8040,
        "down": STANDARD | 0x2000,
        "up": STANDARD | 0x4000,
        "to zero": STANDARD | 0x6000,
        "traps": STANDARD & ~0x0680,
    }
    if platform.machine() in {"x86_64", "AMD64"}
    else {"flush": 1 << 24, "up": 1 << 22, "down": 2 << 22, "to zero": 3 << 22}
)


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Iterator[int]:
    try:
        yield MODES[request.param]
    finally:
        _core.set_arithmetic_mode(STANDARD)


def under(mode: int, ask: Callable[[], Any]) -> Any:
    """What ``ask`` returns in this mode; the mode must still be set afterwards."""
    _core.set_arithmetic_mode(mode)
    try:
        return ask()
    finally:
        left = _core.arithmetic_mode()
        _core.set_arithmetic_mode(STANDARD)
        assert left & ~0x3F == mode & ~0x3F


def test_the_modes_do_what_they_say() -> None:
    tiny, one, three = 5e-310, 1.0, 3.0
    seen = {}
    for name, mode in MODES.items():
        _core.set_arithmetic_mode(mode)
        lost = not tiny > 0.0 or tiny * 0.5 == 0.0
        thirds = one / three, -one / three
        _core.set_arithmetic_mode(STANDARD)
        seen[name] = lost, thirds
    assert seen["flush"][0]
    assert len({thirds for _, thirds in seen.values()}) >= 3


def delta_of_a_few_subnormals() -> list[tuple[float, float]]:
    profile = hs.account(hs.Gaussian(1.0))
    # delta is about 5e-310 near 37.2.
    return [tuple(profile.delta_bounds(epsilon)) for epsilon in (37.0, 37.8, 37.85, 37.9, 38.0)]


def test_subnormal_deltas_do_not_vanish(mode: int) -> None:
    expected = delta_of_a_few_subnormals()
    assert all(upper > 0.0 for _, upper in expected)
    assert any(0.0 < upper < 2.3e-308 for _, upper in expected)
    assert under(mode, delta_of_a_few_subnormals) == expected


QUESTIONS: dict[str, Callable[[], Any]] = {
    "sampled": lambda: tuple(
        hs.account(hs.PoissonSampled(hs.Gaussian(1.0), 0.01) * 500).epsilon_bounds(1e-5)
    ),
    "tail": lambda: tuple(hs.account(hs.PoissonSampled(hs.Gaussian(1.0), 0.01) * 50).delta_bounds(30.0)),
    "small probability": lambda: tuple(
        hs.account(hs.PoissonSampled(hs.Gaussian(1.0), 5e-310)).delta_bounds(0.0)
    ),
    "approximate": lambda: tuple(hs.account(hs.ApproximateDP(0.1, 5e-310) * 3).delta_bounds(1.0)),
    "discrete": lambda: tuple(hs.account(hs.DiscreteGaussian(3.0) * 2).delta_bounds(11.0)),
    "laplace": lambda: tuple(hs.account(hs.Laplace(2.0) * 7).epsilon_bounds(1e-4)),
    "calibration": lambda: float(hs.calibrate_noise_multiplier(lambda s: hs.Gaussian(s) * 3, 1.0, 1e-5)),
    "strategy": lambda: hs.BandedToeplitz.optimized(40, 4).coefficients,
    "monte carlo": lambda: (
        hs.BandMF(hs.Identity(20), hs.Poisson(20, 0.1), 1.0).sample_losses(500, 1).tolist()
    ),
    "estimate": lambda: repr(
        hs.estimate_delta(
            hs.BandMF(hs.Identity(20), hs.Poisson(20, 0.1), 1.0), 1.0, 4096, seed=1, method="tilted"
        )
    ),
    "noise": lambda: (
        hs.CorrelatedNoise(hs.BandedToeplitz.square_root(9, 3), 7, 1.0, clipping_norm=1.0, seed=1)
        .next()
        .tolist()
    ),
    "filter": lambda: (
        hs.IndividualGDPFilter(4, epsilon=1.0, delta=1e-5).step(np.array([0.1, 5e-310, 9.0, 0.0])).tolist()
    ),
    "mu": lambda: hs.account(hs.Gaussian(2.0)).gdp_mu(),
    "parameters": lambda: repr(hs.PoissonSampled(hs.Gaussian(1.0), 5e-310)),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", QUESTIONS)
def test_answers_do_not_depend_on_the_hosts_mode(name: str, mode: int) -> None:
    assert under(mode, QUESTIONS[name]) == QUESTIONS[name]()


def test_threads_of_the_host(mode: int) -> None:
    # A thread begins in the mode of whoever started it.
    found: list[Any] = []
    _core.set_arithmetic_mode(mode)
    threads = [threading.Thread(target=lambda: found.append(delta_of_a_few_subnormals())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _core.set_arithmetic_mode(STANDARD)
    assert found == [delta_of_a_few_subnormals()] * 3


@functools.cache
def spent() -> hs.IndividualAccountant:
    accountant = hs.IndividualAccountant(
        3, noise_multiplier=2.0, sampling_probability=0.01, clipping_norm=1.0
    )
    accountant.step([0, 5e-324, 1.0], steps=100)
    return accountant


UNDERFLOWING: dict[str, Callable[[], Any]] = {
    "discrete noise": lambda: hs.account(hs.DiscreteGaussian(2.0) * 7).epsilon(1e-5),
    "trade-off of an envelope": lambda: (
        hs.account(hs.RandomAllocation(1.0, 3)).tradeoff([0, 1e-300, 0.05, 1.0]).tolist()
    ),
    "trade-off": lambda: hs.account(hs.Gaussian(1.0)).tradeoff([0, 1e-300, 0.05, 1.0]).tolist(),
    "mu": lambda: hs.account(hs.Gaussian(1e308) * 3).gdp_mu(1e-6),
    "individual": lambda: [spent().epsilon(d).tolist() for d in (1e-6, 1e-300)],
    "individual, not adaptive": lambda: [spent().nonadaptive_epsilon(d).tolist() for d in (1e-6, 1e-300)],
}


@pytest.mark.parametrize("name", QUESTIONS | UNDERFLOWING)
def test_answers_do_not_depend_on_what_numpy_does_about_errors(name: str) -> None:
    ask = (QUESTIONS | UNDERFLOWING)[name]
    expected = ask()
    with np.errstate(all="raise"):
        assert ask() == expected
        assert np.geterr() == dict.fromkeys(["divide", "over", "under", "invalid"], "raise")


CONTEXTS = {
    "two digits": {"prec": 2},
    "six digits, down": {"prec": 6, "rounding": decimal.ROUND_DOWN},
    "no room": {"Emin": -2, "Emax": 2, "clamp": 1},
    "traps": {"traps": list(decimal.getcontext().traps)},
}


@pytest.mark.parametrize("name", CONTEXTS)
def test_answers_do_not_depend_on_the_hosts_decimals(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def answers() -> Any:
        binomial.tail.cache_clear()
        binomial._log_factorial.cache_clear()
        skellam._sums.cache_clear()
        printed = [
            rounded(value, digits)
            for rounded in (round_up, round_down)
            for value in (5.26032288407, 0.95398735, -1.23456789e-300, 9.9999999e205)
            for digits in (2, 6, 8, 17)
        ]
        tails = [binomial.tail(10**6, 0.3, k) for k in (299_000, 301_234)] + [binomial.tail(20, 0.3, 6)]
        noise = hs.mechanisms.Skellam(3.3)
        return printed, tails, hs.account(noise * 2).epsilon(1e-6), hs.account(noise).report(1e-5).statement()

    expected = answers()
    with decimal.localcontext(decimal.Context(**CONTEXTS[name])):
        assert answers() == expected
    # The host may also have changed what contexts are made of.
    for key, value in {"prec": 2, "rounding": decimal.ROUND_UP, "Emin": -2, "Emax": 2}.items():
        monkeypatch.setattr(decimal.DefaultContext, key, value)
    with in_digits(60) as context:
        assert (context.prec, context.rounding) == (60, decimal.ROUND_HALF_EVEN)
    assert answers() == expected


def test_errors_restore_the_mode(mode: int) -> None:
    def ask() -> str:
        with pytest.raises(hs.ParameterError) as caught:
            hs.Gaussian(-1.0)
        return str(caught.value)

    assert "noise_multiplier" in under(mode, ask)


def test_everything_exported_is_protected() -> None:
    operators = {"__init__", "__call__", "__add__", "__mul__", "__rmul__", "__next__", "__eq__", "__repr__"}
    bare = []
    faces = [hs, *(getattr(hs, name) for name in hs.__all__ if inspect.ismodule(getattr(hs, name)))]
    shown = {name: getattr(face, name) for face in faces for name in getattr(face, "__all__", [])}
    assert len(shown) > 100
    for name, value in shown.items():
        if name in ("get_include", "get_cmake_dir"):
            continue  # paths
        if inspect.isfunction(value) and not hasattr(value, "in_standard_arithmetic"):
            bare.append(name)
        if not inspect.isclass(value) or issubclass(value, BaseException):
            continue
        for base in value.__mro__:
            if not base.__module__.startswith("hockeystick."):
                continue
            for key, member in vars(base).items():
                function = getattr(member, "fget", None) or getattr(member, "__func__", None) or member
                public = not key.startswith("_") or key in operators
                if (
                    public
                    and inspect.isfunction(function)
                    and not hasattr(function, "in_standard_arithmetic")
                ):
                    bare.append(f"{base.__name__}.{key}")
    assert bare == []


ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not (ROOT / "cpp").is_dir(), reason="needs the sources")
def test_every_core_file_refuses_fast_math() -> None:
    folders = (ROOT / "cpp" / "include", ROOT / "cpp" / "src")

    def included(path: Path) -> set[str]:
        seen: set[str] = set()
        todo = [path]
        while todo:
            for name in re.findall(r'#include "([^"]+)"', todo.pop().read_text()):
                if name not in seen:
                    seen.add(name)
                    todo += [folder / name for folder in folders if (folder / name).is_file()]
        return seen

    files = [*folders[1].rglob("*.cpp"), *(f for f in folders[0].rglob("*.hpp") if f.name != "ieee.hpp")]
    assert len(files) > 80
    assert [str(f) for f in files if not any(name.endswith("ieee.hpp") for name in included(f))] == []


@pytest.mark.skipif(not (ROOT / "cpp").is_dir(), reason="needs the sources")
def test_every_binding_is_in_standard_arithmetic() -> None:
    for path in (ROOT / "cpp" / "bindings").rglob("*.cpp"):
        text = path.read_text()
        assert "py::class_<" not in text, path
        assert "py::call_guard<" not in text, path
        assert "py::module_& m)" not in text, path
