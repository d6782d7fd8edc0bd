"""Builds and tests packages of what is committed, on everything that this machine has, and says what it lacks.

    python -m tools.portability                       all of the parts below, and the table of docs/packages.md
    python -m tools.portability wheels reproducible   some of them: sdist, wheels, reproducible, clang, aarch64, metadata
    python -m tools.portability --pythons 3.10 3.13   wheels for these versions alone

Every wheel is built from the source distribution without a network, installed in a new environment, and tested there: what it
carries, the C interface, a C program and an extension module that link with it. The build's requirements, and those of the tests, are
installed with pip. Environment variables reach the compiler: CXX, CMAKE_CXX_COMPILER_LAUNCHER=ccache.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
BUILD = ("scikit-build-core>=0.11", "pybind11>=2.13", "cmake", "ninja")
TEST = ("pytest", "hypothesis", "mpmath")
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""}
SAME = """
import hockeystick as hs, private_release
bounds = hs.account(hs.PoissonSampled(hs.Gaussian(1.0), 0.01) * 1000).epsilon_bounds(1e-5)
assert private_release.epsilon_bounds(1.0, 0.01, 1000, 1e-5) == tuple(bounds), bounds
"""
Row = tuple[str, str]


class Failed(Exception):
    """A command that should have succeeded."""


def run(*command: str | Path, cwd: Path | None = None, **environment: str) -> str:
    """The output of a command."""
    kept = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=kept | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))}\n{done.stdout[-3000:]}")
    return done.stdout


def pythons() -> dict[str, Path]:
    """An interpreter for each version that is here: on the path, or one of pyenv's."""
    found: dict[str, Path] = {}
    installed = sorted(Path("~/.pyenv/versions").expanduser().glob("*/bin/python"))
    for version in VERSIONS:
        candidates = [
            *(path for path in installed if path.parts[-3].startswith(f"{version}.")),
            shutil.which(f"python{version}"),
        ]
        for candidate in filter(None, candidates):
            asked = subprocess.run(
                [candidate, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"],
                capture_output=True,
                text=True,
                check=False,
            )
            if asked.stdout.strip() == version:
                found.setdefault(version, Path(candidate))
    return found


def environment(folder: Path, python: Path, *packages: str) -> Path:
    """The interpreter of a new virtual environment."""
    run(python, "-m", "venv", folder)
    inside = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    run(inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    return inside


def with_tools(python: Path) -> dict[str, str]:
    """The path on which cmake and ninja of an environment come first."""
    return {"PATH": os.pathsep.join([str(python.parent), os.environ["PATH"]])}


class Bench:
    """A folder to work in: what is committed, its source distribution, and wheels by version."""

    def __init__(self, work: Path, wanted: list[str]) -> None:
        self.work = work
        self.found = pythons()
        self.wanted = [version for version in wanted if version in self.found]
        self.missing = [version for version in wanted if version not in self.found]
        self.builders: dict[str, Path] = {}
        self._sdist: Path | None = None

    def builder(self, version: str) -> Path:
        if version not in self.builders:
            self.builders[version] = environment(self.work / f"build{version}", self.found[version], *BUILD)
        return self.builders[version]

    def sdist(self) -> Path:
        """The unpacked source distribution, and beside it the archive."""
        if self._sdist is None:
            tree = self.work / "tree"
            tree.mkdir(exist_ok=True)
            archive = subprocess.run(
                ["git", "archive", "HEAD"], cwd=ROOT, check=True, stdout=subprocess.PIPE
            ).stdout
            subprocess.run(["tar", "x"], cwd=tree, check=True, input=archive)
            builder = self.builder(self.wanted[0])
            make = "import scikit_build_core.build as build; build.build_sdist('../dist')"
            run(builder, "-c", make, cwd=tree, **with_tools(builder))
            (packed,) = (self.work / "dist").glob("*.tar.gz")
            shutil.unpack_archive(packed, self.work / "sdist")
            (self._sdist,) = (self.work / "sdist").iterdir()
        return self._sdist

    def wheel(self, version: str, source: Path, out: Path) -> Path:
        """Built in ``source`` without a network."""
        builder = self.builder(version)
        settings = ("--config-settings", f"build-dir={source / f'build{version}'}")
        command = (
            builder,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-build-isolation",
            "--no-deps",
            "-w",
            out,
            *settings,
            source,
        )
        run(*command, cwd=source, **with_tools(builder), **OFFLINE)
        (made,) = out.glob("*.whl")
        return made


def megabytes(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.2f} MB"


def sdist(bench: Bench) -> Iterator[Row]:
    source = bench.sdist()
    (packed,) = (bench.work / "dist").glob("*.tar.gz")
    headers = list((source / "third_party").rglob("*.h"))
    if not headers:
        raise Failed("the source distribution lacks the FFT headers")
    yield packed.name, f"{megabytes(packed)}, {len(headers)} headers of the FFT in it"


def wheels(bench: Bench) -> Iterator[Row]:
    for version in bench.wanted:
        start = time.monotonic()
        wheel = bench.wheel(version, bench.sdist(), bench.work / f"wheels{version}")
        built = time.monotonic()
        counted = check_wheel(bench, version, wheel)
        yield (
            wheel.name,
            f"{megabytes(wheel)}, built offline in {built - start:.0f} s; {counted} in a clean environment",
        )
    for version in bench.missing:
        yield f"CPython {version}", "NOT CHECKED: no such interpreter here"


def check_wheel(bench: Bench, version: str, wheel: Path) -> str:
    """Installed alone, tested, and linked with by a C program and an extension module."""
    place = bench.work / f"clean{version}"
    python = environment(place, bench.found[version], str(wheel), *TEST)
    tests = ("tests/test_package.py", "tests/test_embedding.py")
    printed = run(
        python,
        "-m",
        "pytest",
        "-q",
        "-o",
        "addopts=",
        "-p",
        "no:cacheprovider",
        *tests,
        cwd=bench.sdist(),
    )
    run(python, "-m", "hockeystick", "doctor", cwd=place)
    examples = bench.sdist() / "examples"
    folder = run(python, "-c", "import hockeystick; print(hockeystick.get_cmake_dir())", cwd=place).strip()
    builder = with_tools(bench.builder(version))
    run(
        "cmake",
        "-S",
        examples / "c",
        "-B",
        place / "c",
        "-G",
        "Ninja",
        f"-Dhockeystick_DIR={folder}",
        **builder,
    )
    run("cmake", "--build", place / "c", **builder)
    expected = run(place / "c" / "dp_sgd_epsilon_c")
    if run(python, examples / "c" / "dp_sgd_epsilon.py", cwd=place) != expected:
        raise Failed("ctypes and C differ")
    run(python, "-m", "pip", "install", "--quiet", *BUILD[:2])
    run(
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-build-isolation",
        "--no-deps",
        examples / "extension",
        **builder,
    )
    run(python, "-c", SAME, cwd=place)
    found = re.search(r"\d+ passed[^\n]*?(?= in )", printed)
    return f"{found[0] if found else printed[-80:]}, C program, ctypes, extension"


def reproducible(bench: Bench) -> Iterator[Row]:
    """Two builds in folders of different names and depths, without a cache, must be the same bytes."""
    version, sums = bench.wanted[-1], []
    for folder in ("one", "two/deeper"):
        source = bench.work / "again" / folder / bench.sdist().name
        shutil.copytree(bench.sdist(), source, ignore=shutil.ignore_patterns("build3.*"))
        os.environ |= {"CCACHE_DISABLE": "1", "SOURCE_DATE_EPOCH": "1767225600"}  # any moment does
        wheel = bench.wheel(version, source, source.parent / "dist")
        del os.environ["CCACHE_DISABLE"], os.environ["SOURCE_DATE_EPOCH"]
        sums.append((wheel, hashlib.sha256(wheel.read_bytes()).hexdigest()))
    (first, one), (second, two) = sums
    if one != two:
        with zipfile.ZipFile(first) as a, zipfile.ZipFile(second) as b:
            raise Failed(f"differ: {[name for name in a.namelist() if a.read(name) != b.read(name)]}")
    yield "two builds of a wheel", f"byte for byte the same, SHA-256 {one[:16]}..."


def native(bench: Bench, name: str, *settings: str) -> Path:
    """The core and the C interface, with ctests that are quick."""
    builder = with_tools(bench.builder(bench.wanted[0]))
    folder = bench.work / name
    ducc0 = f"-DHOCKEYSTICK_DUCC0_DIR={bench.sdist() / 'third_party'}"
    run("cmake", "-S", bench.sdist(), "-B", folder, "-G", "Ninja", ducc0, *settings, **builder)
    tests = ("arithmetic", "c_interface", "inversion", "ledger", "special")
    run("cmake", "--build", folder, "--target", *(f"test_{test}" for test in tests), **builder)
    run("ctest", "--test-dir", folder, "--output-on-failure", "-R", f"^({'|'.join(tests)})$", **builder)
    return folder


def clang(bench: Bench) -> Iterator[Row]:
    compiler = shutil.which("clang++")
    if compiler is None:
        yield "clang++", "NOT CHECKED: not here (Debian: apt-get install clang)"
        return
    native(
        bench,
        "clang",
        f"-DCMAKE_CXX_COMPILER={compiler}",
        "-DCMAKE_BUILD_TYPE=Quick",
        "-DCMAKE_CXX_FLAGS_QUICK=-O1",
    )
    yield run(compiler, "--version").splitlines()[0], "core and C interface built, quick ctests pass"


def aarch64(bench: Bench) -> Iterator[Row]:
    compilers = [shutil.which(f"aarch64-linux-gnu-{name}") for name in ("gcc", "g++")]
    emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if not all(compilers) or emulator is None:
        yield (
            "aarch64",
            "NOT CHECKED: needs a cross compiler and qemu (Debian: apt-get install g++-aarch64-linux-gnu qemu-user)",
        )
        return
    native(
        bench,
        "aarch64",
        "-DCMAKE_SYSTEM_NAME=Linux",
        "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
        f"-DCMAKE_C_COMPILER={compilers[0]}",
        f"-DCMAKE_CXX_COMPILER={compilers[1]}",
        f"-DCMAKE_CROSSCOMPILING_EMULATOR={emulator};-L;/usr/aarch64-linux-gnu",
        "-DHOCKEYSTICK_OPENMP=OFF",
    )
    yield "aarch64 (cross compiler, qemu-user)", "core and C interface built, quick ctests pass"


def metadata(bench: Bench) -> Iterator[Row]:
    """The bill of materials and the metadata of the wheels that were built before."""
    for wheel in sorted(bench.work.glob("wheels3.*/*.whl"))[:1]:
        with zipfile.ZipFile(wheel) as opened:
            names = opened.namelist()
            (bill,) = (name for name in names if ".dist-info/sboms/" in name)
            parts = json.loads(opened.read(bill))["components"]
            (described,) = (name for name in names if name.endswith(".dist-info/METADATA"))
            text = opened.read(described).decode()
        yield f"sboms/{Path(bill).name}", ", ".join(f"{part['name']} {part['version']}" for part in parts)
        wanted = ("License-Expression", "Requires-Python", "Classifier", "Keywords", "Author", "Project-URL")
        lacking = [field for field in wanted if f"\n{field}: " not in text]
        yield "METADATA", f"lacks {', '.join(lacking)}" if lacking else "complete"


PARTS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    part.__name__: part for part in (sdist, wheels, metadata, reproducible, clang, aarch64)
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.portability",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--pythons", nargs="+", default=list(VERSIONS), metavar="3.N")
    parser.add_argument("--work", type=Path, help="keep what is built in this new folder")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        work = (options.work or Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        bench = Bench(work, options.pythons)
        if not bench.wanted:
            parser.error("none of these versions of Python is here")
        print("| what | result |\n|---|---|", flush=True)
        for name in options.parts or PARTS:
            try:
                for what, result in PARTS[name](bench):
                    print(f"| {what} | {result} |", flush=True)
            except (Failed, OSError, ValueError, subprocess.CalledProcessError) as error:
                failed += 1
                print(f"| {name} | FAILED |", flush=True)
                print(error, file=sys.stderr)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
