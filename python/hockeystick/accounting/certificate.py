"""Certificates of reports: the numbers that let `hockeystick.verify` prove a claim without the engine that made it.

All numbers here are chosen from estimates; nothing rests on them but whether the verifier accepts, which is asked
before a certificate is handed out (docs/accounting/certificates.md, "Choosing the numbers").
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import logsumexp

from .. import _core
from .._base.validation import ParameterError, real
from ..mechanisms.steps import Process, to_dict
from ..verify.check import own_precision, proven, read_proof
from ..verify.document import FORMAT, Fields, Rejected, write
from ..verify.release import Release

if TYPE_CHECKING:
    from .profile import PrivacyProfile

_SHARE = 0.2
"""Of the room between delta and the claim, for each of four errors (*speed*)."""
_COARSE = 200
"""Cells of the first looks, that say how many are needed (*speed*)."""
_CELLS = (64, 1024, 4096, 16_384, 65_536)  # *speed*: their numbers, tried one after the other
_MOST_WORK = 2e9
"""Products of cells and nodes: some ten minutes (*speed*)."""


def certificate(source: PrivacyProfile, answers: Sequence[tuple[float, float, str]], slack: float) -> str:
    """What `Report.certificate` returns, for answers (point, upper bound, "epsilon" or "delta")."""
    slack, process = real("slack", slack, 1e-9, 1.0), source.description.as_process()
    release, claims = to_dict(Process(process.items)), []  # what is accounted, whatever it stands for
    for point, upper, asked in answers:
        if asked == "epsilon":
            epsilon, delta = upper if point == 0.0 else source.epsilon(point / (1.0 + slack)), point
            if math.isinf(epsilon):  # where a declared budget is spent to its end, less has none
                epsilon, delta = upper, point * (1.0 + slack)
            epsilon = math.nextafter(epsilon + 1e-12 * abs(epsilon), math.inf)
        else:
            epsilon, delta = point, 0.0 if upper == 0.0 else max(upper * (1.0 + slack), 1e-300)
        if not (math.isfinite(epsilon) and delta < 1.0):
            raise ParameterError(f"({epsilon!r}, {delta!r})-differential privacy: there is nothing to prove")
        with own_precision():
            proof = _Claim(release, process.steps, source.adjacency, (epsilon, delta), slack).proof()
        claims.append({"epsilon": epsilon, "delta": delta, "proof": proof})
    made_by = {"library": "hockeystick", "version": _core.__version__, "slack": slack}
    content = {"format": FORMAT, "release": release, "adjacency": source.adjacency, "claims": claims}
    return write({**content, "made_by": made_by})


class _Claim:
    """One (epsilon, delta), and the search for numbers that prove it in each direction."""

    def __init__(
        self, release: dict[str, Any], steps: int, adjacency: str, point: tuple[float, float], slack: float
    ) -> None:
        self.slack = slack
        self.content, self.adjacency, self.epsilon, self.delta = release, adjacency, *point
        depth = math.log(max(2.0, steps)) - math.log(max(self.delta, 1e-300)) + 12.0
        self.start = {"precision": 128, "cells": 64, "reach": round(math.sqrt(2.0 * depth) + 1.0, 2)}

    def proof(self) -> dict[str, Any]:
        try:
            return {direction: self._direction(direction) for direction in self._release(64).directions}
        except Rejected as reason:
            raise ParameterError(f"certificate: {reason}") from None

    def _release(self, cells: int) -> Release:
        return read_proof(Fields({**self.start, "cells": cells}, "proof"), self.content, self.adjacency)

    def _direction(self, direction: str) -> dict[str, Any]:
        release = self._release(64)
        parts = release.parts(direction)
        if not parts or (len(parts) == 1 and parts[0].count == 1 and not release.variance > 0):
            found = iter(
                [{"method": "closed form", "cells": cells} for cells in _CELLS[: None if parts else 1]]
            )
        elif self.delta == 0.0:
            found = iter([{"method": "largest loss"}])
        else:
            found = self._inverted(direction)
        for numbers in found:
            proof = {**self.start, **numbers}
            if self._bound(proof, direction) <= self.delta:
                return proof
        raise ParameterError(
            f"certificate: ({self.epsilon!r}, {self.delta!r}) is closer to the truth than the verifier resolves; "
            "a larger slack may help"
        )

    def _bound(self, numbers: dict[str, Any], direction: str) -> float:
        fields = Fields({**self.start, **numbers}, "proof")
        *_, bound = proven(fields, self.content, self.adjacency, direction, self.epsilon)
        return float(bound.upper())

    def _inverted(self, direction: str) -> Iterator[dict[str, Any]]:
        """Numbers for the inversion, and finer ones where these do not suffice."""
        chernoff = _Chernoff(self._release(_COARSE), direction, self.epsilon)
        blur = math.sqrt(0.02 / (chernoff.saddle * (chernoff.saddle + 1.0)))
        line = chernoff.line(math.log(1e-3 * self.delta))
        coarse, finer_cells, blurred = (
            self._bound(_line(cells, *line, smoothing, 1e-3), direction) / self.delta
            for cells, smoothing in ((_COARSE, blur), (2 * _COARSE, blur), (_COARSE, 2.0 * blur))
        )
        gap = max(0.0, coarse - finer_cells) * _COARSE**2 / 0.75
        curvature = max(1e-4, blurred - coarse) / (3.0 * blur**2)
        truth = coarse - gap / _COARSE**2 - curvature * blur**2
        # The engine's bound is below the claim by the slack, in the worse direction.
        room = min(1.0, max(self.slack / 2.0, 0.98 - truth))
        tilt, period = chernoff.line(math.log(_SHARE * room * self.delta))
        for finer in (1.0, 1.5, 4.0, 16.0, 64.0):
            cells = max(64, 2 * math.ceil(0.5 * min(finer, 4.0) * math.sqrt(gap / (_SHARE * room))))
            numbers = _line(cells, tilt, period, math.sqrt(_SHARE * room / curvature) / finer, _SHARE * room)
            atoms = len(self._release(64).parts(direction)) * cells if gap else 100
            if atoms * numbers["nodes"] > _MOST_WORK:
                return
            yield numbers


def _line(cells: int, tilt: float, period: float, smoothing: float, rest: float) -> dict[str, Any]:
    """With nodes up to where ``smoothing`` leaves no more than a ``rest``."""
    last = math.sqrt(2.0 * (20.0 - math.log(rest))) / smoothing
    line = {"tilt": tilt, "period": period, "smoothing": smoothing, "nodes": math.ceil(last * period / 6.28)}
    return {"method": "inversion", "cells": cells, **line}


class _Chernoff:
    """The logarithms of Chernoff's bounds on delta at many tilts, from coarse cells."""

    def __init__(self, release: Release, direction: str, epsilon: float) -> None:
        self.tilts = 10.0 ** np.arange(-3.0, 5.0, 0.02)
        moments = 0.5 * float(release.variance) * self.tilts * (self.tilts + 1.0)
        for part in release.parts(direction):
            x, mass = np.array([(float(x), float(m)) for x, m in part.atoms if m > 0]).T
            moments += part.count * logsumexp(np.multiply.outer(self.tilts, x) + np.log(mass), axis=1)
        self.logs = moments - self.tilts * epsilon
        self.logs -= np.log1p(self.tilts) + self.tilts * np.log1p(1.0 / self.tilts)  # sup of (1 - e^-x) e^-sx
        self.saddle = float(self.tilts[np.argmin(self.logs)])

    def line(self, budget: float) -> tuple[float, float]:
        """The tilt with the shortest period whose aliases add at most e^budget."""
        turns = np.arange(1.0, 9.0)
        for width in 3.0 * 1.15 ** np.arange(80.0) / self.saddle:
            far = width * turns[:, None]
            below = np.minimum(0.0, (self.logs + self.tilts * far).min(axis=1))[:, None] - far * self.tilts
            above = (self.logs - self.tilts * far).min(axis=1)[:, None] + far * self.tilts
            # Farther than the saddle nodes cancel.
            aliases = np.where(
                self.tilts <= 1.2 * self.saddle, logsumexp(np.concatenate([below, above]), axis=0), np.inf
            )
            best = int(np.argmin(aliases))
            if aliases[best] <= budget:
                return float(self.tilts[best]), float(width)
        raise Rejected("no line of integration was found")
