"""Puts the repository's root on the path: the tests use bench.baselines as an independent oracle.

And the stand-ins for heavy libraries, at its end: an installed library takes precedence.
"""

import datetime
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

# One process per core has more threads than there are cores: those that wait would spin on a core that another
# needs, up to a quarter of the tests' processor time. Read when the compiled part is loaded, and inherited.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# All cases of every sweep take half of the tests' time, and each of them has passed. So a run of all tests takes
# every fourth, others each day; tests that are named, and --all-cases, take all. Inherited, so that all processes agree.
QUARTER = "HOCKEYSTICK_QUARTER"
os.environ.setdefault(QUARTER, str(datetime.date.today().toordinal() % 4))

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.append(str(Path(__file__).parent / "stand_ins"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-cases", action="store_true", help="all cases of tests that are marked as sweeps")


def takes_all(config: pytest.Config) -> bool:
    return config.getoption("--all-cases") or config.args != config.getini("testpaths")


def pytest_report_header(config: pytest.Config) -> str:
    taken = "all cases" if takes_all(config) else f"every fourth case, {QUARTER}={os.environ[QUARTER]}"
    return f"sweeps: {taken}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if takes_all(config):
        return
    cases: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sweep"):
            cases[item.nodeid.partition("[")[0]].append(item)
    quarter = int(os.environ[QUARTER])
    left = {
        item for each in cases.values() if len(each) >= 4 for i, item in enumerate(each) if i % 4 != quarter
    }
    config.hook.pytest_deselected(items=list(left))
    items[:] = [item for item in items if item not in left]


@pytest.fixture(autouse=True)
def own_seeds() -> Iterator[None]:
    """Each test stands for a process of its own, in which no noise has been made yet from its seeds."""
    yield
    noise = sys.modules.get("hockeystick.matrix.noise")
    if noise is not None:
        noise._begun.clear()
