"""Faces: every name that a room shows is there, typed alike, and costs nothing before it is asked for."""

from __future__ import annotations

import ast
import importlib
import pickle
import subprocess
import sys
from pathlib import Path

import hockeystick as hs
import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "hockeystick"
ROOMS = ["accounting", "individual", "matrix", "mechanisms", "montecarlo", "plots", "sampling", "training"]


def stubbed(stub: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.parse(stub.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef):
            found.add(node.name)
    return found


@pytest.mark.parametrize("room", ["", *ROOMS])
def test_a_face_shows_what_its_stub_says(room: str) -> None:
    face = importlib.import_module(f"hockeystick.{room}".rstrip("."))
    assert dir(face) == sorted(face.__all__)
    assert set(dir(face)) == stubbed(PACKAGE / room / "__init__.pyi")
    for name in dir(face):
        assert getattr(face, name) is getattr(face, name)
        assert name == "__version__" or not name.startswith("_")
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = face.nonsense


def test_what_is_shown_twice_is_the_same() -> None:
    for room in ROOMS:
        shown = importlib.import_module(f"hockeystick.{room}")
        for name in set(dir(hs)) & set(dir(shown)):
            assert getattr(hs, name) is getattr(shown, name)


@pytest.mark.parametrize("room", ROOMS)
def test_the_top_says_where_a_name_is(room: str) -> None:
    from hockeystick import _MOVED

    for name in set(dir(importlib.import_module(f"hockeystick.{room}"))) - {
        *dir(hs),
        *" ".join(_MOVED.values()).split(),
    }:
        with pytest.raises(AttributeError, match=rf"there is hockeystick\.{room}\.{name}$"):
            getattr(hs, name)


def test_the_top_is_a_few_dozen_names() -> None:
    assert len(set(dir(hs)) - {*ROOMS, "interop", "__version__"}) <= 58


def test_names_of_0_1_say_where_they_went() -> None:
    from hockeystick import _MOVED

    for room, names in _MOVED.items():
        for name in names.split():
            assert name not in dir(hs)
            with pytest.warns(DeprecationWarning, match=rf"hockeystick\.{room}\.{name}") as caught:
                value = getattr(hs, name)
            assert caught[0].filename == __file__
            assert value is getattr(importlib.import_module(f"hockeystick.{room}"), name)


def loaded_by(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split())


def test_an_import_loads_nothing_else() -> None:
    for code in ("import hockeystick", "import hockeystick as hs; hs.__version__; dir(hs); hs.montecarlo"):
        assert not loaded_by(code) & {"numpy", "scipy", "matplotlib", "hockeystick.accounting.profile"}
    assert "matplotlib" not in loaded_by(
        "import hockeystick as hs; hs.account(hs.Gaussian(1.0)).epsilon(0.1)"
    )


def test_the_version_loads_nothing_else() -> None:
    code = "from hockeystick.cli.commands import main\ntry:\n    main(['--version'])\nexcept SystemExit:\n    pass"
    assert not loaded_by(code) & {"numpy", "scipy", "hockeystick.accounting.profile"}


def test_functions_are_pickled_by_the_place_they_are_defined_in() -> None:
    for value in (hs.account, hs.montecarlo.mean_bounds, hs.Gaussian(1.0), hs.training.TrainingRun):
        assert pickle.loads(pickle.dumps(value)) == value
