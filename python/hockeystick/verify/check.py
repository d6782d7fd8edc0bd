"""Whether a certificate proves what it claims, and what was checked to say so."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from flint import arb, ctx

from .document import Fields, Rejected, read
from .inversion import Line, Part, delta_bound, infinite_loss, largest_loss, normal_delta
from .release import ADJACENCIES, Grid, Release, read_release
from .samples import check_samples

_WORK, _MOST_NODES = 4 * 10**9, 1 << 22
"""speed: most products of a cell and a node that a claim may ask for, some twenty minutes; most nodes, of all steps, some gigabytes."""

_MOST_CLAIMS = 16
"""speed: several times what the library writes."""


@dataclass(frozen=True)
class Verdict:
    """``accepted`` or not, and why: ``checked`` says what was recomputed and how, ``unchecked`` what nobody can recompute."""

    accepted: bool
    reason: str
    checked: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    seconds: float = 0.0

    def __str__(self) -> str:
        lines = [f"{'accepted' if self.accepted else 'REJECTED'} after {self.seconds:.1f} s: {self.reason}"]
        lines += [f"  checked: {line}" for line in self.checked] + [
            f"  not checked: {line}" for line in self.unchecked
        ]
        return "\n".join(lines)


@contextmanager
def own_precision() -> Iterator[None]:
    """The precision of balls is the caller's again afterwards."""
    with ctx.workprec(ctx.prec):
        yield


def verify(text: str | bytes) -> Verdict:
    """The verdict on the text of a certificate; never an exception, whatever the text says."""
    start = time.perf_counter()
    try:
        with own_precision():
            checked = _checked(read(text))
    except Rejected as rejection:
        return Verdict(False, str(rejection), seconds=time.perf_counter() - start)
    except (ArithmeticError, ValueError, MemoryError, RecursionError) as error:
        return Verdict(False, f"cannot be computed: {error!r}", seconds=time.perf_counter() - start)
    return Verdict(True, "what is checked holds", *checked, seconds=time.perf_counter() - start)


def _checked(certificate: Fields) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if certificate.holds("directions"):
        return check_samples(certificate)
    certificate.text("format")
    certificate.any("made_by")
    release, adjacency = certificate.any("release"), certificate.text("adjacency", *ADJACENCIES)
    claims = certificate.objects("claims", 1, _MOST_CLAIMS)
    certificate.finished()
    checked = [line for claim in claims for line in _claim(claim, release, adjacency)]
    return tuple(checked), (
        "that what ran is what is described: its code, its sampler, its noise, its random numbers",
    )


def _claim(claim: Fields, content: Any, adjacency: str) -> list[str]:
    epsilon, delta = claim.real("epsilon", -1e3, 1e6), claim.real("delta", 0.0, 1.0)
    proofs, lines = claim.object("proof"), []
    claim.finished()
    needed: tuple[str, ...] = ("add",) if adjacency == "add" else ("remove",)
    for direction in ("remove", "add"):
        if direction not in needed:
            continue
        proof = proofs.object(direction)
        method, release, bound = proven(proof, content, adjacency, direction, epsilon)
        needed = release.directions
        proof.finished()
        if not bool(bound <= arb(delta)):
            raise Rejected(
                f"({epsilon!r}, {delta!r}) is not proven in direction {direction}: delta is only shown to be at most "
                f"{_no_less(bound, 6)}"
            )
        lines.append(
            f"({epsilon!r}, {delta!r}) in direction {direction}, by {method}: delta <= {_no_less(bound, 12)}"
        )
    proofs.finished()
    return lines


def _no_less(bound: arb, digits: int) -> str:
    """A number of so many digits that is no less than ``bound``: rounding to the nearest takes half a unit at most."""
    return (bound * (1 + arb(10) ** (1 - digits))).upper().str(digits, radius=False)


def read_proof(proof: Fields, content: Any, adjacency: str) -> Release:
    ctx.prec = proof.integer("precision", 64, 1024)
    grid = Grid(proof.integer("cells", 2, 1 << 17), arb(proof.real("reach", 1.0, 1e3)))
    return read_release(content, adjacency, grid)


def proven(
    proof: Fields, content: Any, adjacency: str, direction: str, epsilon: float
) -> tuple[str, Release, Any]:
    """The method of a proof, the release it reads, and at least delta(epsilon) in one direction by its numbers."""
    method = proof.text("method", *_METHODS)
    release = read_proof(proof, content, adjacency)
    return method, release, _METHODS[method](proof, release, direction, arb(epsilon))


def _closed_form(proof: Fields, release: Release, direction: str, epsilon: Any) -> Any:
    """Gaussians alone, or one step alone."""
    parts = release.parts(direction)
    if not parts:
        return normal_delta(release.variance, epsilon)
    if len(parts) > 1 or parts[0].count > 1 or bool(release.variance > 0):
        raise Rejected("several steps have no closed form")
    atoms = ((x, mass) for x, mass in parts[0].atoms)
    finite = sum((mass * (1 - (epsilon - x).exp()).max(arb(0)) for x, mass in atoms), arb(0))
    return parts[0].infinite + finite


def _largest(proof: Fields, release: Release, direction: str, epsilon: Any) -> Any:
    """Nothing beyond the largest loss but what is infinite."""
    parts = release.parts(direction)
    if bool(release.variance > 0) or not bool(largest_loss(parts) <= epsilon):
        raise Rejected("losses above epsilon are possible")
    return infinite_loss(parts)


def _inversion(proof: Fields, release: Release, direction: str, epsilon: Any) -> Any:
    """Any composition."""
    parts: list[Part] = release.parts(direction)
    nodes = proof.integer("nodes", 1, 1 << 24)
    if sum(len(part.atoms) for part in parts) * nodes > _WORK or (1 + len(parts)) * nodes > 2 * _MOST_NODES:
        raise Rejected("more cells and nodes than are computed")
    tilt, period, smoothing = (arb(proof.real(name, 1e-9, 1e9)) for name in ("tilt", "period", "smoothing"))
    return delta_bound(parts, release.variance, epsilon, Line(tilt, period, nodes, smoothing))


_METHODS = {"closed form": _closed_form, "inversion": _inversion, "largest loss": _largest}
