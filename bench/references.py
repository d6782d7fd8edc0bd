"""Which engine answers the references of tests/references, and how exactly.

    python -m bench.references

For each engine: how many entries it answers, how many intervals miss the truth (none may), and for how many the
middle of the interval is within 1e-10 of it. Then every entry that the inversion or a closed form does not
answer that exactly, and how many draws the generator skipped.
"""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from pathlib import Path

import hockeystick as hs

TABLE = Path(__file__).parent.parent / "tests" / "references" / "subsampled_gaussian.json"


def main() -> None:
    table = json.loads(TABLE.read_text())
    answered, missed, exact = Counter[str](), Counter[str](), Counter[str]()
    rest = []
    for entry in table["entries"]:
        step = hs.PoissonSampled(hs.Gaussian(float(entry["sigma"])), float(entry["q"]))
        account = hs.account(step * int(entry["steps"]), adjacency=entry["direction"])
        answer = account.report(epsilon=float(entry["epsilon"])).delta
        assert answer is not None  # it was asked for
        truth = Decimal(entry["delta"])
        error = abs((Decimal(answer.lower) + Decimal(answer.upper)) / 2 / truth - 1)
        answered[answer.engine] += 1
        missed[answer.engine] += not Decimal(answer.lower) <= truth <= Decimal(answer.upper)
        exact[answer.engine] += error < Decimal("1e-10")
        if answer.engine == "fft" or error >= Decimal("1e-10"):
            what = " ".join(str(entry[key]) for key in ("direction", "sigma", "q", "steps", "epsilon"))
            rest.append(f"{answer.engine:<12} {error:.1e}  {what}")
    for engine, count in answered.most_common():
        print(f"{engine:<12} {count:>4} answered, {missed[engine]} missed, {exact[engine]} within 1e-10")
    print("\n".join(rest))
    print(f"{len(table['skipped'])} draws without a reference")


if __name__ == "__main__":
    main()
