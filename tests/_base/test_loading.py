"""Modules that are first loaded while the host flushes subnormals, or rounds another way, and objects no face was asked for."""

import importlib.util
import marshal
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import hockeystick as hs
import pytest
from hockeystick._base.loading import is_standard

from .test_arithmetic import MODES, STANDARD, under

PACKAGE = Path(hs.__file__).parent


def run(code: str, *words: str, path: Path) -> str:
    """Its output, of a process that finds the package there and writes what it compiles."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPATH": str(path), "PYTHONPYCACHEPREFIX": ""}
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def floats(code: CodeType) -> Iterator[str]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from floats(constant)
        for value in constant if isinstance(constant, tuple) else [constant]:
            if isinstance(value, float):
                yield value.hex()


def compiled(source: Path) -> CodeType | None:
    """What its first import left behind."""
    file = Path(importlib.util.cache_from_source(str(source)))
    return marshal.loads(file.read_bytes()[16:]) if file.exists() else None


def test_the_mode_is_recognised() -> None:
    assert is_standard()
    for name, mode in MODES.items():
        assert under(mode, is_standard) == (name == "traps"), name


LOAD_ALL = """
import importlib, pkgutil, sys
import numpy, scipy.special, scipy.optimize, scipy.stats
import hockeystick
from hockeystick import _core
_core.set_arithmetic_mode(int(sys.argv[1]))
for module in pkgutil.walk_packages(hockeystick.__path__, "hockeystick."):
    if "__main__" not in module.name and ".interop." not in module.name:  # those bring libraries of others
        try:
            importlib.import_module(module.name)
        except ImportError:
            pass
"""


@pytest.mark.sweep
@pytest.mark.parametrize("name", [name for name in MODES if name in {"flush", "both", "down", "up"}])
def test_literals_are_read_alike(name: str, tmp_path: Path) -> None:
    shutil.copytree(
        PACKAGE, tmp_path / "hockeystick", ignore=shutil.ignore_patterns("__pycache__", "lib", "include")
    )
    run(LOAD_ALL, str(MODES[name]), path=tmp_path)
    sources = [source for source in (tmp_path / "hockeystick").rglob("*.py") if compiled(source) is not None]
    assert len(sources) > 100
    for source in sources:
        found = compiled(source)
        assert found is not None
        expected = compile(source.read_bytes(), str(source), "exec", dont_inherit=True)
        assert list(floats(found)) == list(floats(expected)), source


UNPICKLED = """
import pickle, sys
from hockeystick import _core
for mode in map(int, sys.argv[3:]):
    with open(sys.argv[1], "rb") as file:
        profile = pickle.load(file)
    _core.set_arithmetic_mode(mode)
    bounds = profile.delta_bounds(38.0)
    _core.set_arithmetic_mode(int(sys.argv[2]))
    print(bounds[1])
"""


def test_unpickled_objects_keep_subnormals(tmp_path: Path) -> None:
    profile = hs.account(hs.Gaussian(1.0))
    (tmp_path / "profile").write_bytes(pickle.dumps(profile))
    words = [str(tmp_path / "profile"), str(STANDARD), *map(str, MODES.values())]
    found = [float(line) for line in run(UNPICKLED, *words, path=PACKAGE.parent).split()]
    assert found == [profile.delta_bounds(38.0)[1]] * len(MODES)
    assert found[0] > 0.0


LOADED_BY_ANOTHER = """
import sys
import hockeystick
sys.meta_path = [finder for finder in sys.meta_path if getattr(finder, "package", None) != "hockeystick"]
for value in [hockeystick.account, hockeystick.Gaussian.__init__, hockeystick.PrivacyProfile.delta_bounds]:
    assert value.in_standard_arithmetic, value
"""


def test_what_another_finder_loads_is_protected_when_a_face_hands_it_out() -> None:
    run(LOADED_BY_ANOTHER, path=PACKAGE.parent)


ADAPTED = """
import sys
from dp_accounting import NeighboringRelation, dp_event as events
from hockeystick.interop.dp_accounting import HockeystickAccountant, to_event
import hockeystick
from hockeystick import _core
release, standard = events.MixtureOfGaussiansDpEvent(5e-310, [5e-310], [1.0]), int(sys.argv[2])
sampled = hockeystick.PoissonSampled(hockeystick.Gaussian(1.0), 5e-310)
_core.set_arithmetic_mode(int(sys.argv[1]))
accountant = HockeystickAccountant()
accountant.compose(release)
found = accountant.get_delta(0.0), to_event(sampled)
_core.set_arithmetic_mode(standard)
print(found[0], found[1].sampling_probability)
"""


def test_adapters_keep_subnormals(mode: int) -> None:
    pytest.importorskip("dp_accounting")
    found = run(ADAPTED, str(mode), str(STANDARD), path=PACKAGE.parent).split()
    assert 0.3829 < float(found[0]) < 0.38293  # of a shift by one standard deviation
    assert float(found[1]) == 5e-310


@pytest.fixture(params=["flush", "both"])
def mode(request: Any) -> int:
    if request.param not in MODES:
        pytest.skip("this machine has one mode of flushing")
    return MODES[request.param]
