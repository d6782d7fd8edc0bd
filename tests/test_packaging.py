"""The package's metadata, and the command that builds and tests packages."""

from __future__ import annotations

import importlib.metadata
import json
import re
from pathlib import Path

import hockeystick as hs
import pytest

from tools import portability

ROOT = Path(__file__).parents[1]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_versions_of_python_are_the_same_everywhere() -> None:
    classified = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', PROJECT)
    wheels = re.search(r"^build = \[(.*)\]$", PROJECT, re.MULTILINE)
    assert wheels is not None
    built = [f"3.{minor}" for minor in re.findall(r"cp3(\d+)-", wheels[1])]
    assert classified == built == list(portability.VERSIONS)
    assert f'requires-python = ">={classified[0]}"' in PROJECT


def test_the_bill_of_materials_is_of_what_is_fetched() -> None:
    fetched = (ROOT / "cmake" / "Ducc0.cmake").read_text(encoding="utf-8")
    values = dict(re.findall(r"set\((ducc0_version|ducc0_sha256) ([\w.]+)\)", fetched))
    values |= dict.fromkeys(("PROJECT_VERSION", "pybind11_VERSION", "hockeystick_ducc0_origin"), "1.0")
    template = (ROOT / "cmake" / "sbom.cdx.json.in").read_text(encoding="utf-8")
    bill = json.loads(re.sub(r"@([A-Za-z]\w+)@", lambda found: values[found[1]], template))
    notices = (ROOT / "THIRD_PARTY.md").read_text(encoding="utf-8")
    for part in bill["components"]:
        assert f"## {part['name']}" in notices
    assert {part["bom-ref"] for part in bill["components"]} == set(bill["dependencies"][0]["dependsOn"])


def test_wheel_says_what_is_compiled_into_it() -> None:
    files = importlib.metadata.files("hockeystick")
    assert files is not None
    (name,) = (file for file in files if file.match("*.dist-info/sboms/*.cdx.json"))
    bill = json.loads(name.read_text(encoding="utf-8"))
    assert bill["metadata"]["component"]["version"] == hs.__version__
    assert {part["name"] for part in bill["components"]} == {"ducc0", "pybind11"}


def test_what_is_lacking_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portability.shutil, "which", lambda name: None)
    bench = portability.Bench(tmp_path, ["3.99"])
    assert bench.missing == ["3.99"]
    for part in (portability.wheels, portability.clang, portability.aarch64):
        assert all("NOT CHECKED" in result for _, result in part(bench))
    with pytest.raises(portability.Failed, match="nonsense"):
        portability.run(portability.sys.executable, "-c", "import nonsense")
