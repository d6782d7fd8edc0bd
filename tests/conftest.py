"""Puts the repository's root on the path: the tests use bench.baselines as an independent oracle."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
