"""Command line: see `--help`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from .runner import campaign


def main() -> int:
    """Run a campaign; 0 if nothing was violated."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaign",
        description="Certified bounds of random compositions, held against ball arithmetic and enumeration.",
    )
    parser.add_argument("--seed", type=int, default=1, help="every composition and question follows from it")
    parser.add_argument(
        "--checks", type=int, default=10_000, help="end after the composition that reaches this number"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument(
        "--resume", type=Path, metavar="FILE", help="record each composition here, and skip those recorded"
    )
    parser.add_argument(
        "--summary", type=Path, metavar="FILE", help="write counts, violations and gaps as Markdown"
    )
    options = parser.parse_args()
    found = campaign(options.seed, options.checks, options.jobs, options.resume, options.summary)
    if options.summary is None:
        print(found.markdown(), end="")
    return 0 if found.sound else 1


if __name__ == "__main__":
    sys.exit(main())
