"""What is installed: if only one file is run against a wheel, this is the one."""

import doctest
import importlib
import importlib.metadata
import importlib.util
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import hockeystick as hs
import pytest
from hockeystick import _core

MODULES = ["hockeystick"] + [
    module.name
    for module in pkgutil.walk_packages(hs.__path__, "hockeystick.")
    if module.name not in {"hockeystick.__main__", "hockeystick._core"}
]


def test_one_version() -> None:
    assert hs.__version__ == _core.__version__ == importlib.metadata.version("hockeystick")


def test_build_config() -> None:
    config = _core.build_config()
    print(config)
    assert config["version"] == hs.__version__
    assert config["fft"].startswith("ducc0")
    assert config["openmp"] in (True, False)


def test_wheel_carries_headers_and_types() -> None:
    assert (Path(hs.get_include()) / "hockeystick" / "profile.hpp").is_file()
    assert (Path(hs.__file__).parent / "py.typed").is_file()


def test_threads_are_limited_and_restored() -> None:
    default = _core.max_threads()
    assert default >= 1
    _core.set_threads(1)
    assert _core.max_threads() == 1
    _core.set_threads(0)
    assert _core.max_threads() == default
    for threads in (-1, 1025):
        with pytest.raises(ValueError, match=r"threads must be in \[0, 1024\]"):
            _core.set_threads(threads)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_computes_the_same() -> None:
    # In a fresh interpreter, so that the threads of other libraries do not matter.
    program = """
import os, signal
import hockeystick as hs
from hockeystick import _core
_core.set_threads(4)
def answer():
    step = hs.PoissonSampled(hs.Gaussian(noise_multiplier=0.8), sampling_probability=0.01)
    return hs.account(step * 1000).epsilon(delta=1e-6)
expected = answer()
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(0 if answer() == expected else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_a_subinterpreter_is_refused_at_once() -> None:
    """It would wait for ever for a lock that its own thread holds."""
    program = """
try:
    import _interpreters as interpreters
    other = interpreters.create("legacy")
except ImportError:
    import _xxsubinterpreters as interpreters
    other = interpreters.create(isolated=False)
interpreters.run_string(other, '''
try:
    import hockeystick as hs
    hs.account(hs.Gaussian(1.0)).epsilon(1e-5)
except ImportError as error:
    print(error, flush=True)
''')
interpreters.destroy(other)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    assert "hockeystick works in the main interpreter of a process only" in done.stdout


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        if "pip install 'hockeystick[" not in str(error) and (error.name or "").startswith("hockeystick"):
            raise
        pytest.skip(f"an optional package is not here: {error}")
    wanted = re.findall(r">>> (?:from|import) (\w+)", inspect.getsource(module))
    if missing := {package for package in wanted if importlib.util.find_spec(package) is None}:
        pytest.skip(f"optional packages are not here: {missing}")
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert result.failed == 0
