"""Section 7.2 of Dong and Ganesh 2026 on data that fit on a laptop: the tables of docs/training/training.md.

    python -m bench.papers.b_min_sep_training                 # epochs of 128 steps, epsilon 1, 4, 8
    python -m bench.papers.b_min_sep_training --paper         # epochs of 300 steps as in the paper, epsilon 4, 8

Both are examples/training/digits.py, 30 trials for each method; options of that script may follow. Needs scikit-learn.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "training" / "digits.py"
PAPER = "--epoch 300 --steps 1500 --bands 64 150 64 --epsilon 4 8 --rates 0.003 0.01 0.03 0.1 0.3"


def main() -> None:
    options = sys.argv[1:]
    if "--paper" in options:
        options = PAPER.split() + [option for option in options if option != "--paper"]
    sys.argv = [str(EXAMPLE), *options]
    runpy.run_path(str(EXAMPLE), run_name="__main__")


if __name__ == "__main__":
    main()
