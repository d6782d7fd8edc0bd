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

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.append(str(Path(__file__).parent / "stand_ins"))


@pytest.fixture(autouse=True)
def own_seeds() -> Iterator[None]:
    """Each test stands for a process of its own, in which no noise has been made yet from its seeds."""
    yield
    noise = sys.modules.get("hockeystick.matrix.noise")
    if noise is not None:
        noise._begun.clear()
