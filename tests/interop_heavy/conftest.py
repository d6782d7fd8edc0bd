"""These tests need the libraries themselves: pip install '.[test,interop]' (docs/interop/interop.md)."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent.parent))


def pytest_configure(config: pytest.Config) -> None:
    """Warnings inside the libraries are not errors here."""
    config.addinivalue_line("filterwarnings", "default")
