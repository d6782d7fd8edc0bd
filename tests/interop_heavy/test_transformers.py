"""examples/interop/transformers_trainer.py with Hugging Face's Trainer itself."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")
SCRIPT = Path(__file__).parents[2] / "examples" / "interop" / "transformers_trainer.py"


def test_the_trainer_spends_the_budget_and_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "steps: 100 accuracy above 0.7: True" in done.stdout
    assert "It satisfies (3, 0.0001)-differential privacy" in done.stdout
    logged = [float(found) for found in re.findall(r"'epsilon': '?([\d.]+)", done.stdout)]
    assert logged == sorted(logged)
    assert logged[-1] == 3.0


def test_without_the_callback_opacus_stops_the_second_step(tmp_path: Path) -> None:
    """The Trainer leaves Opacus's sums where they are."""
    text = SCRIPT.read_text(encoding="utf-8")
    line = '        objects["optimizer"].zero_grad()'
    assert line in text
    broken = tmp_path / "broken.py"
    broken.write_text(text.replace(line, "        pass"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(broken)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "processed" in done.stderr or "cleared" in done.stderr
