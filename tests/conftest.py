"""Puts the repository's root on the path: the tests use bench.baselines as an independent oracle.

And the stand-ins for heavy libraries, at its end: an installed library takes precedence.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.append(str(Path(__file__).parent / "stand_ins"))
