"""Certificates of estimates: tallies, seed, and the test that they pass (docs/accounting/certificates.md, "Monte Carlo estimates")."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import _core
from .._base.validation import ParameterError
from ..verify.check import verify
from ..verify.document import FORMAT, write

if TYPE_CHECKING:
    from .estimate import DirectionEstimate


def certificate(facts: Mapping[str, Any], directions: Sequence[DirectionEstimate]) -> str:
    """What `DeltaEstimate.certificate` returns: ``facts`` and, for each direction, what was drawn and what it proves."""
    shown = [
        {"direction": d.direction, "case": d.case, **d.evidence} for d in directions if d.evidence is not None
    ]
    if not shown:
        raise ParameterError(
            "estimate: nothing was drawn, or nothing that says more than is known without samples; there is no tally to certify"
        )
    names = {entry["direction"] for entry in shown}
    if len(names) == 1:  # the other one is known without samples, or was not asked about
        facts = {**facts, "adjacency": names.pop()}
    # Another case of a direction that is shown may be known without samples: it counts as well.
    known = [d.upper for d in directions if d.evidence is None and d.direction in names]
    delta = max(known + [entry["delta"] for entry in shown])
    failure = math.nextafter(math.fsum(entry.get("failure_probability", 0.0) for entry in shown), 1.0)
    content = {"format": FORMAT, **facts, "delta": delta, "failure_probability": failure, "directions": shown}
    text = write({**content, "made_by": {"library": "hockeystick", "version": _core.__version__}})
    verdict = verify(text)
    if not verdict.accepted:
        raise ArithmeticError(
            f"the verifier does not accept what the tallies are said to prove: {verdict.reason}"
        )
    return text
