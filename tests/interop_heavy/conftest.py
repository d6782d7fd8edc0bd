"""These tests need the libraries themselves: pip install '.[interop]' (docs/interop.md)."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent.parent))
