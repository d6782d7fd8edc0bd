"""What others link with: the files of the wheel, the C interface through ctypes, and that the headers are named."""

from __future__ import annotations

import ctypes
import math
import re
import subprocess
import sys
import threading
from pathlib import Path

import hockeystick as hs
import pytest

ROOT = Path(__file__).parents[1]
HEADERS = ROOT / "cpp" / "include" / "hockeystick"
NAMES = {"win32": "bin/hockeystick_c.dll", "darwin": "lib/libhockeystick_c.dylib"}
NAME = NAMES.get(sys.platform, "lib/libhockeystick_c.so")
REMOVE, ADD = 1, 2


def find_library() -> Path:
    """In the wheel; where the package runs from its source tree, in the build folder."""
    if Path(hs.get_include()).is_dir():
        return Path(hs.get_include()).parent / NAME
    return ROOT / "build" / Path(NAME).name


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    if not Path(hs.get_include()).is_dir() and not find_library().is_file():
        pytest.skip("the C interface was not built in build/")
    found = ctypes.CDLL(str(find_library()))
    found.hockeystick_last_error.restype = ctypes.c_char_p
    found.hockeystick_version.restype = ctypes.c_char_p
    return found


class CError(Exception):
    pass


class Composition:
    """A handle of the C interface."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library, self.handle = library, ctypes.c_void_p()
        self.call("composition_new", ctypes.byref(self.handle))

    def __del__(self) -> None:
        self.library.hockeystick_composition_free(self.handle)

    def call(self, name: str, *arguments: object) -> None:
        if getattr(self.library, f"hockeystick_{name}")(*arguments):
            raise CError(self.library.hockeystick_last_error().decode())

    def add(self, noise_multiplier: float, sampling_probability: float, steps: int) -> None:
        sigma, count = ctypes.c_double(noise_multiplier), ctypes.c_uint64(steps)
        q = ctypes.c_double(sampling_probability)
        self.call("add_sampled_gaussian", self.handle, sigma, q, count)

    def ask(self, quantity: str, at: float, adjacency: int = 0) -> tuple[float, float]:
        profile, lower, upper = ctypes.c_void_p(), ctypes.c_double(), ctypes.c_double()
        self.call("account", self.handle, adjacency, ctypes.c_double(1e-3), ctypes.byref(profile))
        try:
            self.call(quantity, profile, ctypes.c_double(at), ctypes.byref(lower), ctypes.byref(upper))
        finally:
            self.library.hockeystick_profile_free(profile)
        return lower.value, upper.value


def test_wheel_carries_what_linking_needs() -> None:
    config = Path(hs.get_cmake_dir())
    assert (config / "hockeystickConfig.cmake").is_file()
    assert (config / "hockeystickConfigVersion.cmake").is_file()
    assert "hockeystick::c" in (config / "hockeystickTargets.cmake").read_text(encoding="utf-8")
    package = Path(hs.get_include()).parent
    assert find_library().is_file()
    assert list((package / "lib").glob("*hockeystick.a")) or list((package / "lib").glob("hockeystick.lib"))
    shipped = {path.name for path in (Path(hs.get_include()) / "hockeystick").iterdir()}
    assert shipped == {path.name for path in HEADERS.iterdir()}


def test_the_umbrella_has_every_header() -> None:
    umbrella = (HEADERS / "hockeystick.hpp").read_text(encoding="utf-8")
    named = re.findall(r'#include "hockeystick/(\w+\.hpp)"', umbrella)
    assert named == sorted(path.name for path in HEADERS.glob("*.hpp") if path.name != "hockeystick.hpp")
    assert len(named) <= 20, "what no program of others needs belongs in cpp/src"


def test_every_header_says_what_it_is() -> None:
    for path in HEADERS.iterdir():
        assert path.read_text(encoding="utf-8").startswith("// "), path.name


def test_c_knows_its_version(library: ctypes.CDLL) -> None:
    assert library.hockeystick_version().decode() == hs.__version__
    declared = re.search(
        r"#define HOCKEYSTICK_ABI_VERSION (\d+)", (HEADERS / "hockeystick.h").read_text(encoding="utf-8")
    )
    assert declared is not None
    assert library.hockeystick_abi_version() == int(declared[1])


@pytest.mark.parametrize(
    ("sigma", "q", "steps"), [(1.0, 0.01, 1000), (0.7, 1.0, 3), (20.0, 1e-3, 10**7), (0.5, 0.3, 1)]
)
def test_c_answers_as_python_does(library: ctypes.CDLL, sigma: float, q: float, steps: int) -> None:
    run = Composition(library)
    run.add(sigma, q, steps)
    process = hs.PoissonSampled(hs.Gaussian(sigma), q) * steps
    for name, adjacency in (("add_or_remove", 0), ("remove", REMOVE), ("add", ADD)):
        profile = hs.account(process, adjacency=name)
        assert run.ask("epsilon", 1e-6, adjacency) == pytest.approx(profile.epsilon_bounds(1e-6), rel=1e-13)
        assert run.ask("delta", 0.5, adjacency) == pytest.approx(profile.delta_bounds(0.5), rel=1e-13)


def test_equal_steps_are_counted_together(library: ctypes.CDLL) -> None:
    one, many = Composition(library), Composition(library)
    one.add(1.0, 0.01, 300)
    one.add(2.0, 1.0, 5)
    for _ in range(100):
        many.add(1.0, 0.01, 3)
    many.add(2.0, 1.0, 5)
    assert one.ask("epsilon", 1e-5) == many.ask("epsilon", 1e-5)
    lower, upper = hs.account(
        hs.PoissonSampled(hs.Gaussian(1.0), 0.01) * 300 + hs.Gaussian(2.0) * 5
    ).epsilon_bounds(1e-5)
    got = one.ask("epsilon", 1e-5)
    assert max(lower, got[0]) <= min(upper, got[1])  # two certified intervals of one number


def test_c_covers_the_closed_form(library: ctypes.CDLL) -> None:
    """Against mpmath, with sampling as arithmetic on the profile of one step."""
    mpmath = pytest.importorskip("mpmath")
    for sigma, q, epsilon in ((1.0, 0.25, 0.1), (0.6, 0.01, 0.01), (3.0, 1.0, 0.2)):
        run = Composition(library)
        run.add(sigma, q, 1)
        with mpmath.workdps(40):
            # Direction remove: H(qP + (1-q)Q || Q) = q H_{e^epsilon'}(P || Q), e^epsilon' = 1 + (e^epsilon - 1)/q.
            inner = mpmath.log(1 + mpmath.expm1(epsilon) / mpmath.mpf(q))
            mu = 1 / mpmath.mpf(sigma)
            delta = q * (
                mpmath.ncdf(mu / 2 - inner / mu) - mpmath.exp(inner) * mpmath.ncdf(-mu / 2 - inner / mu)
            )
            lower, upper = run.ask("delta", epsilon, REMOVE)
            assert mpmath.mpf(lower) <= delta <= mpmath.mpf(upper)
            assert upper - lower <= 1e-9 * float(delta)


def test_c_refuses_and_says_why(library: ctypes.CDLL) -> None:
    run = Composition(library)
    for sigma, q, message in ((-1.0, 0.5, "noise_multiplier"), (1.0, math.nan, "sampling_probability")):
        with pytest.raises(CError, match=message):
            run.add(sigma, q, 1)
    with pytest.raises(CError, match="delta must be in"):
        run.ask("epsilon", 2.0)
    # A thread's message is its own.
    seen: list[bytes] = []
    other = threading.Thread(target=lambda: seen.append(library.hockeystick_last_error()))
    other.start()
    other.join()
    assert seen == [b""]
    assert b"delta" in library.hockeystick_last_error()


def test_wheel_runs_the_ctypes_example() -> None:
    script = ROOT / "examples" / "c" / "dp_sgd_epsilon.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    lower, upper = hs.account(hs.PoissonSampled(hs.Gaussian(1.0), 0.01) * 1000).epsilon_bounds(1e-5)
    assert done.stdout == f"{lower:.6f} <= epsilon <= {upper:.6f}\n"
