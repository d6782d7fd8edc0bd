"""The example of filtered training runs, and what it prints is what its filters say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "individual_filtering.py"


def test_example(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    command = [sys.executable, str(EXAMPLE), "--runs", "2", "--steps", "12", "--clips", "5"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "pictures")],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    share = re.search(r"active at the end: (\d+)%", done.stdout)
    assert share is not None
    assert 0 < int(share[1]) < 100
    # No class's mean epsilon is above the budget.
    rows = re.findall(r"^ +\d  (\d\.\d+)   (\d\.\d+)", done.stdout, re.MULTILINE)
    assert len(rows) == 10
    assert all(0.0 < float(start) <= float(end) <= 2.0 for start, end in rows)
    budget = re.search(r"budget of the RDP filter (\d\.\d+)", done.stdout)
    assert budget is not None
    largest = [float(value) for value in re.findall(r"RDP median \d\.\d+, largest (\d\.\d+)", done.stdout)]
    assert len(largest) == 10
    assert max(largest) <= float(budget[1]) + 0.001
    assert len(list((tmp_path / "pictures").glob("*.png"))) == 6
