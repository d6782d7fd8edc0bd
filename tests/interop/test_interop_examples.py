"""examples/interop, as docs/interop/interop.md quotes them: with stand-ins, or with the libraries where installed."""

from pathlib import Path

import pytest

from tests.sampling.test_batches_loops import run

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["opacus_loop", "flower_accountant", "jax_privacy_event"])
def test_examples_do_what_the_documentation_shows(name: str) -> None:
    script = ROOT / "examples" / "interop" / f"{name}.py"
    printed = run(str(script))
    document = (ROOT / "docs" / "interop" / "interop.md").read_text(encoding="utf-8")
    assert f"```python\n{script.read_text(encoding='utf-8')}```" in document
    for line in printed.splitlines():
        # A statement names the version that made it.
        assert line.split("Computed by")[0].strip() in document


def test_the_trainer_is_quoted() -> None:
    """tests/interop_heavy runs it."""
    script = (ROOT / "examples" / "interop" / "transformers_trainer.py").read_text(encoding="utf-8")
    document = (ROOT / "docs" / "interop" / "interop.md").read_text(encoding="utf-8")
    assert f"```python\n{script}```" in document
