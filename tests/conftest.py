"""Puts the repository's root on the path: the tests use bench.baselines as an independent oracle.

And the stand-ins for heavy libraries, at its end: an installed library takes precedence.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# One process per core has more threads than there are cores: those that wait would spin on a core that another
# needs, up to a quarter of the tests' processor time. Read when the compiled part is loaded, and inherited.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Waking them takes longer than many of their tasks where all cores are busy. Tests of threads ask for some.
workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // workers)))

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.append(str(Path(__file__).parent / "stand_ins"))


@pytest.fixture(autouse=True)
def own_seeds() -> Iterator[None]:
    """Each test stands for a process of its own, in which no noise has been made yet from its seeds."""
    yield
    noise = sys.modules.get("hockeystick.matrix.noise")
    if noise is not None:
        noise._begun.clear()
