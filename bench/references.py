"""Which engine answers the references of tests/references, and how exactly.

    python -m bench.references

Of all draws of the generator, those of records that are hardly ever sampled included: for each engine how many it
answers, how many intervals miss the truth (none may), for how many the middle of the interval is within 1e-10 of
it, and for how many within 1e-3. Then every entry that the inversion or a closed form does not answer to 1e-10,
the draws of which no reference is known, and how wide the intervals of epsilon are for all draws of records that are hardly
ever sampled, whether their reference is known or not.
"""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from pathlib import Path

import hockeystick as hs

REFERENCES = Path(__file__).parent.parent / "tests" / "references"


def main() -> None:
    table = json.loads((REFERENCES / "subsampled_gaussian.json").read_text())
    rare = json.loads((REFERENCES / "rare.json").read_text())["entries"]
    known = {entry["draw"] for entry in rare}
    answered, missed = Counter[str](), Counter[str]()
    exact, close = Counter[str](), Counter[str]()
    rest = []
    for entry in table["entries"] + rare:
        step = hs.PoissonSampled(hs.Gaussian(float(entry["sigma"])), float(entry["q"]))
        account = hs.account(step * int(entry["steps"]), adjacency=entry["direction"])
        answer = account.report(epsilon=float(entry["epsilon"]), risks=False).delta
        assert answer is not None  # it was asked for
        truth = Decimal(entry["delta"])
        error = abs((Decimal(answer.lower) + Decimal(answer.upper)) / 2 / truth - 1)
        answered[answer.engine] += 1
        missed[answer.engine] += not Decimal(answer.lower) <= truth <= Decimal(answer.upper)
        exact[answer.engine] += error < Decimal("1e-10")
        close[answer.engine] += error < Decimal("1e-3")
        if answer.engine == "fft" or error >= Decimal("1e-10"):
            what = " ".join(str(entry[key]) for key in ("direction", "sigma", "q", "steps", "epsilon"))
            rest.append(f"{answer.engine:<12} {error:.1e}  {what}")
    for engine, count in answered.most_common():
        print(
            f"{engine:<12} {count:>4} answered, {missed[engine]} missed, "
            f"{exact[engine]} within 1e-10, {close[engine]} within 1e-3"
        )
    print("\n".join(rest))
    unknown = [str(record["draw"]) for record in table["skipped"] if record["draw"] not in known]
    print(f"{len(unknown)} draws without a reference: {' '.join(unknown)}")
    narrow = Counter[str]()
    for record in table["skipped"]:
        step = hs.PoissonSampled(hs.Gaussian(float(record["sigma"])), float(record["q"]))
        account = hs.account(step * int(record["steps"]), adjacency=record["direction"])
        epsilon = account.report(delta=10.0 ** record["target_log10"], risks=False).epsilon
        assert epsilon is not None
        if epsilon.upper <= epsilon.lower * 1.001:
            narrow[epsilon.engine] += 1
    print(f"{len(table['skipped'])} rare draws, epsilon to within 1e-3 for {dict(narrow)}")


if __name__ == "__main__":
    main()
