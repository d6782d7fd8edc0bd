"""examples/interop, as docs/interop/interop.md quotes them: with stand-ins, or with the libraries where installed."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN = "import runpy, sys; sys.path.append(sys.argv[1]); runpy.run_path(sys.argv[2], run_name='__main__')"


@pytest.mark.parametrize("name", ["opacus_loop", "flower_accountant", "jax_privacy_event"])
def test_examples_do_what_the_documentation_shows(name: str) -> None:
    script = ROOT / "examples" / "interop" / f"{name}.py"
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(ROOT / "tests" / "stand_ins"), str(script)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document = (ROOT / "docs" / "interop" / "interop.md").read_text(encoding="utf-8")
    assert f"```python\n{script.read_text(encoding='utf-8')}```" in document
    for line in done.stdout.splitlines():
        # A statement names the version that made it.
        assert line.split("Computed by")[0].strip() in document


def test_the_trainer_is_quoted() -> None:
    """tests/interop_heavy runs it."""
    script = (ROOT / "examples" / "interop" / "transformers_trainer.py").read_text(encoding="utf-8")
    document = (ROOT / "docs" / "interop" / "interop.md").read_text(encoding="utf-8")
    assert f"```python\n{script}```" in document
