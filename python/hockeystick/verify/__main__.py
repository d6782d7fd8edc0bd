"""``python -m hockeystick.verify FILE``: the verdict on a certificate, without the rest of the package."""

import sys
from pathlib import Path

from .check import verify

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m hockeystick.verify FILE")
    try:
        verdict = verify(Path(sys.argv[1]).read_bytes())
    except OSError as error:
        sys.exit(f"error: {error}")
    print(verdict)
    sys.exit(not verdict.accepted)
