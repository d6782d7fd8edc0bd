"""The report of a training run: JSON for machines, one self-contained page for people."""

from __future__ import annotations

import html
import io
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import _core
from .._base.bounds import Reported
from .._base.files import replacing
from .._base.types import AnyPath
from .._base.validation import ParameterError, integer

if TYPE_CHECKING:
    from .plan import TrainingPlan
from .._base.bounds import Bounds, finite, round_up
from ..accounting.gaussian_summary import GaussianSummary
from ..accounting.profile import account
from ..accounting.report import CAVEAT, Report
from ..matrix.noise import FLOATING_POINT_CAVEAT
from ..mechanisms.adjacency import COUNTS_DIFFER
from ..mechanisms.responses import ApproximateDP
from ..sampling.laws import law_of

FORMAT = "hockeystick-training-report"
VERSION = 1  # *format*
_PROMISED = ("kind", "epsilon", "delta", "adjacency", "unit", "failure_probability")


@dataclass(frozen=True)
class TrainingReport(Reported):
    """What a run released and what protects it; made by `TrainingRun.report`. Nothing secret is in it.

    ``steps`` were released, of ``plan.steps``. The plan's guarantee covers them, however few they are. ``epsilon_spent`` is
    the certified epsilon of these steps alone, at the plan's delta: it holds if their number was fixed without looking at
    the data or at anything released (None: not known without Monte Carlo samples). ``noise`` is what `CorrelatedNoise` says of itself.
    ``accounted`` is what `PrivacyProfile.report` says of the whole plan (None where samples have verified one point of its curve).
    """

    plan: TrainingPlan
    steps: int
    epsilon_spent: float | None
    noise: dict[str, Any]
    accounted: Report | None = field(default=None, repr=False)
    version: str = _core.__version__

    @classmethod
    def _of(cls, plan: TrainingPlan, steps: int, noise: dict[str, Any]) -> TrainingReport:
        made = integer("steps", steps, 0, plan.steps)
        spent, whole = plan.epsilon if made == plan.steps else plan.spent(made), None
        if plan.guarantee.kind == "certified":
            whole = account(plan.released(), plan.adjacency).report(plan.delta)
        # Where the run is in memory says how far it was repeated, not what was released.
        return cls(plan, made, spent, {**noise, "steps_done": made}, whole)

    def _shown(self) -> list[tuple[str, Any]]:
        guarantee = self.plan.guarantee
        return [
            (f"epsilon at delta = {guarantee.delta!r}", round_up(guarantee.epsilon)),
            ("adjacency", guarantee.adjacency),
            ("steps", f"{self.steps} of {self.plan.steps} planned"),
            ("noise multiplier", self.plan.noise_multiplier),
        ]

    @property
    def complete(self) -> bool:
        """Whether all planned steps were made."""
        return self.steps == self.plan.steps

    def caveats(self) -> tuple[str, ...]:
        """What the guarantee takes for granted."""
        plan, seed = self.plan, self.noise["seed"]
        if "system" not in seed:
            seed += ": the guarantee holds if it is secret, cannot be guessed, and serves no other run"
        found = [
            CAVEAT,
            FLOATING_POINT_CAVEAT,
            f"Whoever knows the seed can compute batches and noise, and then no epsilon protects anyone. It was {seed}.",
            "Each example's gradient must have been clipped before the sum; the run can only check the norm of the sum.",
            "Only the noisy sums, and what is computed from them and from public numbers, are covered: neither batches "
            + "and their sizes are, nor losses or accuracies on the training data.",
            "Each example must be what it is whatever the others are: preprocessing fitted to these data (means, scales, a vocabulary, class "
            + "weights) lets one example change all, and is not covered.",
            "The order of the examples must be the same throughout the run.",
            "Any other run on the same data, also of the same plan, spends a budget of its own.",
            "The choice of clipping norm, learning rate and other settings is not covered if it was made by looking at the data.",
        ]
        if plan.adjacency in COUNTS_DIFFER:
            found.append(
                f'Under "{plan.adjacency}" the number of examples is protected too, but plan and report state it: it must be public, or a number '
                "that was fixed without looking at the data."
            )
        if law_of(plan.mechanism).max_batch_size is not None:
            found.append(
                "Batches are cut: if they are padded to a fixed size, which places are padding must stay secret."
            )
        if plan.graph is not None:
            found.append(
                "Users were limited to their number of examples beforehand; the report of the contribution bounding belongs to this one."
            )
        if plan.guarantee.kind == "verified":
            found.append(
                "The guarantee includes the failure probability of one Monte Carlo verification, and is forfeited by repeating the calibration "
                "until it pleases."
            )
        return tuple(found)

    def risks(self) -> tuple[tuple[str, Bounds], ...]:
        """What the guarantee of the whole plan means to who is attacked, as `accounting.Risk` says it.

        From the certified curve; where Monte Carlo samples have verified one point of it, from (epsilon, delta) alone: sound, and
        looser, as more attacks are possible against some mechanism with that guarantee.
        """
        plan = self.plan
        if self.accounted is not None:
            return self.accounted.risks
        return tuple(account(ApproximateDP(plan.epsilon, plan.delta), "add_or_remove").risk.table())

    @property
    def gdp(self) -> GaussianSummary | None:
        """The certified curve of the whole plan in one number; None where there is no curve."""
        return None if self.accounted is None else self.accounted.gdp

    def statement(self) -> str:
        """What is guaranteed, in words."""
        plan, made = self.plan, self.steps
        parts = [plan.guarantee.statement]
        if self.complete:
            parts.append(f"All {made} steps were made.")
        else:
            parts.append(
                f"Of {plan.steps} planned steps, {made} were made: the guarantee of the whole plan holds for them."
            )
            if self.epsilon_spent is not None:
                parts.append(
                    f"If their number was fixed without looking at the data or at anything released, they satisfy "
                    f"({round_up(self.epsilon_spent)}, {plan.delta!r})-differential privacy."
                )
        if self.gdp is not None:
            parts.append(self.gdp.statement())
        return " ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, lists, numbers and strings."""
        plain = {
            "format": FORMAT,
            "version": VERSION,
            "library": self.version,
            "guarantee": {name: getattr(self.plan.guarantee, name) for name in _PROMISED},
            "steps": {
                "planned": self.plan.steps,
                "released": self.steps,
                "complete": self.complete,
                "epsilon_spent_if_fixed_beforehand": self.epsilon_spent,
            },
            "plan": self.plan.to_dict(),
            "noise": self.noise,
            "risks": {name: bounds._asdict() for name, bounds in self.risks()},
            "gdp": None if self.gdp is None else self.gdp.to_dict(),
            "statement": self.statement(),
            "caveats": list(self.caveats()),
        }
        return finite(plain)

    def to_html(self, *, plots: bool = True) -> str:
        """One page without references to anything outside it; without ``plots`` it needs no matplotlib."""
        return _page(self, _pictures(self) if plots else [])

    def write(self, directory: AnyPath) -> tuple[Path, Path]:
        """Write ``report.json`` and ``report.html`` into a directory (made if it is missing); return their paths.

        Without matplotlib the page has no plots.
        """
        target = Path(directory)
        target.mkdir(parents=True, exist_ok=True)
        try:
            page = self.to_html()
        except ImportError:
            page = self.to_html(plots=False)
        paths = target / "report.json", target / "report.html"
        for path, text in zip(paths, (self.to_json() + "\n", page), strict=True):
            with replacing(path) as file:
                file.write(text.encode())
        return paths


def read_report(path: AnyPath) -> dict[str, Any]:
    """Read a JSON report back; ParameterError for files that are none, or from a newer library."""
    with open(path, encoding="utf-8") as file:
        try:
            found = json.load(file)
        except ValueError as error:
            raise ParameterError(f"path = {os.fspath(path)!r}: is not JSON: {error}") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ParameterError(f"path = {os.fspath(path)!r}: is not a training report")
    version = found.get("version")
    if not isinstance(version, int) or not 1 <= version <= VERSION:
        raise ParameterError(
            f"path = {os.fspath(path)!r}: has version {version!r}; this library reads up to {VERSION}"
        )
    return found


_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.guarantee { font-size: 1.3rem; padding: .8rem 1rem; border-left: .3rem solid #2a6f97; background: #eef4f8; }
.early { padding: .6rem 1rem; border-left: .3rem solid #b5651d; background: #fbf3ea; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; vertical-align: top; padding: .3rem .6rem; border-bottom: 1px solid #ddd; }
th { width: 14rem; font-weight: 600; } figure { margin: 1rem 0; } figure svg { max-width: 100%; height: auto; }
figcaption { color: #555; font-size: .9rem; } li { margin: .3rem 0; } code { overflow-wrap: anywhere; }
"""

_KINDS = {
    "certified": "certified: an upper bound computed without sampling, every numerical error included",
    "verified": "verified: the calibration by Monte Carlo samples and the run together satisfy it (estimate, verify, release)",
}


def _page(report: TrainingReport, pictures: list[tuple[str, str]]) -> str:
    plan, guarantee = report.plan, report.plan.guarantee
    text = html.escape
    rows = [
        ("Guarantee", _KINDS.get(guarantee.kind, guarantee.kind)),
        ("Unit", guarantee.unit),
        ("Adjacency", guarantee.adjacency),
        ("Steps", f"{report.steps} of {plan.steps} planned"),
        ("Examples", str(plan.dataset_size)),
        ("Expected batch size", f"{plan.expected_batch_size:.6g}"),
        ("Batches", repr(plan.sampling)),
        ("Strategy matrix", f"{type(plan.strategy).__name__}, {plan.strategy.bands} band(s)"),
        (
            "Noise multiplier",
            f"{plan.noise_multiplier!r} (standard deviation / clipping norm, for C as it is)",
        ),
        ("Clipping norm", repr(report.noise["clipping_norm"])),
        ("Dimension", str(report.noise["dimension"])),
        (
            "Mean squared error of prefix sums",
            f"{plan.mean_squared_error:.6g} squared clipping norms per coordinate",
        ),
        ("Random numbers", f"{report.noise['generator']}; seed {report.noise['seed']}"),
        ("Plan", plan.fingerprint),
        ("Software", f"hockeystick {report.version}"),
    ]
    if guarantee.failure_probability is not None:
        rows.insert(
            1, ("Failure probability", f"{round_up(guarantee.failure_probability)}, included in delta")
        )
    table = "".join(f"<tr><th>{text(name)}</th><td>{text(value)}</td></tr>" for name, value in rows)
    meaning = "".join(
        f"<tr><th>{text(name)}</th><td>{text(round_up(bounds.upper))}</td></tr>"
        for name, bounds in report.risks()
    )
    figures = "".join(
        f"<figure>{svg}<figcaption>{text(caption)}</figcaption></figure>" for caption, svg in pictures
    )
    early = ""
    if not report.complete:
        early = f'<p class="early">The run ended after {report.steps} of {plan.steps} steps. The guarantee above covers them.'
        if report.epsilon_spent is not None:
            early += (
                f" If their number was fixed without looking at the data or at anything released, it is "
                f"ε = {text(round_up(report.epsilon_spent))} at δ = {text(repr(plan.delta))}."
            )
        early += "</p>"
    caveats = "".join(f"<li>{text(entry)}</li>" for entry in report.caveats())
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Privacy report of a training run</title><style>{_STYLE}</style></head><body>\n"
        "<h1>Privacy report of a training run</h1>\n"
        f'<p class="guarantee">(ε, δ) = ({text(round_up(plan.epsilon))}, {text(repr(plan.delta))}), {text(guarantee.kind)}</p>\n'
        f"{early}<p>{text(report.statement())}</p>\n<h2>What was run</h2>\n<table>{table}</table>\n"
        + f"<h2>What this means</h2>\n<p>At most, whatever an attacker knows and does:</p>\n<table>{meaning}</table>\n"
        + (f"<h2>Plots</h2>\n{figures}\n" if figures else "")
        + f"<h2>What this takes for granted</h2>\n<ul>{caveats}</ul>\n</body></html>\n"
    )


def _pictures(report: TrainingReport) -> list[tuple[str, str]]:
    from .pictures import plot_prefix_noise, plot_proof

    return [
        (
            "Noise in the sum of all gradients so far: standard deviation per coordinate, in clipping norms.",
            _svg(plot_prefix_noise(report.plan)),
        ),
        (
            "What the guarantee rests on: the certified privacy profile, or the verifier's verdicts.",
            _svg(plot_proof(report.plan)),
        ),
    ]


def _svg(figure: Any) -> str:
    buffer = io.StringIO()
    # No date, and the same ids each time: equal reports are equal files.
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "hockeystick"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]
