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


def test_a_trainer_that_resumes_asks_for_its_ledger(tmp_path: Path) -> None:
    """It said epsilon of the second part's 20 steps for all 30."""
    text = SCRIPT.read_text(encoding="utf-8")
    for before, after in (('save_strategy="no"', 'save_strategy="epoch"'), ("epochs=10", "epochs=2")):
        assert before in text
        text = text.replace(before, after)
    tail = text[text.index("    trainer.train()") :]
    ledger = 'torch.load("unused/checkpoint-10/ledger.pt", weights_only=False)'
    resumed = "    trainer.train(resume_from_checkpoint='unused/checkpoint-10')\n    print(len(engine.accountant), trainer.state.global_step)\n"
    whole, alone, knowing = (tmp_path / name for name in ("whole.py", "alone.py", "knowing.py"))
    whole.write_text(text, encoding="utf-8")
    alone.write_text(text.replace(tail, resumed), encoding="utf-8")
    knowing.write_text(
        text.replace(tail, f"    engine.accountant.load_state_dict({ledger})\n{resumed}"), encoding="utf-8"
    )

    def run(script: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
        )

    assert run(whole).returncode == 0
    (tmp_path / "unused" / "checkpoint-10" / "rng_state.pth").unlink()
    assert "0 steps are accounted, not 10" in run(alone).stderr
    done = run(knowing)
    assert done.returncode == 0, done.stderr
    assert "20 20" in done.stdout


def test_without_the_callback_no_batch_is_added_to_the_last_one(tmp_path: Path) -> None:
    """The Trainer leaves Opacus's sums where they are, which stopped the second step; the first part of a batch takes them away."""
    text = SCRIPT.read_text(encoding="utf-8")
    line = '        objects["optimizer"].zero_grad()'
    assert line in text
    broken = tmp_path / "broken.py"
    broken.write_text(text.replace(line, "        pass"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(broken)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "steps: 100 accuracy above 0.7: True" in done.stdout
