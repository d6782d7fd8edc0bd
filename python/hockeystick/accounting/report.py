"""The answer types: two-sided bounds, and a report that can be pasted into a paper."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .. import _core
from .._base.bounds import Bounds, Reported, exactly, finite, round_down, round_up, table
from .._base.validation import ParameterTypeError
from ..mechanisms.adjacency import COUNTS_DIFFER
from ..mechanisms.descriptions import Composable, PrivateSelection, Process
from ..mechanisms.steps import written
from ..mechanisms.whole import OfCurve
from .deployment import Deployment, registry_entry, to_yaml, tuning_words
from .gaussian_summary import GaussianSummary

if TYPE_CHECKING:
    from .profile import PrivacyProfile

UNITS = {
    "add": "one record is added",
    "remove": "one record is removed",
    "add_or_remove": "one record is added or removed",
    "replace_one": "one record is replaced by another",
    "zero_out": "one record is replaced by a null record that contributes nothing",
}

CAVEAT = (
    "The analysis is of the mathematical mechanism: an ideal sampler and exact real-valued noise "
    "are assumed, and what floating-point noise may leak is not modelled."
)

CONVERSION = (
    "standard deviation of the noise = noise multiplier * clipping norm on the sum of the records (before batch scaling), and that divided by the expected "
    "batch size on their mean (after it): accounting.standard_deviation"
)


@dataclass(frozen=True)
class Answer:
    """One answered query with everything known about it.

    ``terms`` maps the name of each error source to its contribution to ``upper``; ``engine`` names
    the method, ``direction`` is the index of the worst direction, ``step`` and ``size`` are the
    grid's (0 where there was none).
    """

    lower: float
    upper: float
    engine: str = "exact"
    direction: int = 0
    terms: Mapping[str, float] = field(default_factory=dict)
    step: float = 0.0
    size: int = 0

    @classmethod
    def of(cls, found: _core.Answer) -> Answer:
        """What the core found; below zero is nothing but round-off."""
        lower, upper = max(0.0, found.lower), max(0.0, found.upper)
        return cls(lower, upper, found.engine, found.direction, dict(found.terms), found.step, found.size)

    @property
    def bounds(self) -> Bounds:
        """The two sides alone."""
        return Bounds(self.lower, self.upper)

    def to_parts(self, kind: str, at: float) -> tuple[dict[str, Any], list[float]]:
        """The answer to "which ``kind`` ``at`` this delta, or epsilon", for a file."""
        terms = {name: repr(term) for name, term in self.terms.items()}
        named = {"kind": kind, "engine": self.engine, "direction": self.direction, "terms": terms}
        return named, [at, self.lower, self.upper, self.step, float(self.size)]

    @classmethod
    def from_parts(cls, named: Mapping[str, Any], numbers: list[float]) -> tuple[tuple[str, float], Answer]:
        """What was asked, and the answer, from `to_parts`."""
        at, lower, upper, step, size = numbers
        if named["kind"] not in ("epsilon", "delta") or not lower <= upper:
            raise ValueError(f"not an answer: {named!r}")
        terms = {name: float(term) for name, term in named["terms"].items()}
        answer = cls(lower, upper, named["engine"], named["direction"], terms, step, int(size))
        return (named["kind"], at), answer


@dataclass(frozen=True)
class Report(Reported):
    """Everything about one guarantee; made by `PrivacyProfile.report`.

    ``epsilon`` holds the answer to "which epsilon at this delta", ``delta`` the answer to "which
    delta at this epsilon"; the one that was not asked for is None. ``advantage`` bounds the
    membership advantage, TPR - FPR of any attack. ``gdp`` and ``risks`` say what the guarantee means, where that was asked for;
    ``notes`` say what looks like a slip of whoever described the release. ``details``, ``steps`` (noisy sums) and ``samplers`` are of the release
    as it was described, ``composition`` is what it is accounted as, and ``dominated`` says where these differ. ``profile`` may hold epsilon at other delta. ``commit`` is that of the
    library's sources ("unknown" where they were no checkout).
    """

    composition: str
    details: str
    steps: int
    adjacency: str
    unit: str
    samplers: tuple[str, ...]
    noise: tuple[str, ...]
    references: tuple[str, ...]
    accuracy: float
    version: str
    at_delta: float | None
    epsilon: Answer | None
    at_epsilon: float | None
    delta: Answer | None
    advantage: Bounds
    gdp: GaussianSummary | None = None
    risks: tuple[tuple[str, Bounds], ...] = ()
    notes: tuple[str, ...] = ()
    dominated: tuple[str, ...] = ()
    profile: tuple[tuple[float, Bounds], ...] = ()
    commit: str = _core.__commit__
    deployment: Deployment = field(default_factory=Deployment)
    caveat: str = CAVEAT
    source: PrivacyProfile | None = field(default=None, repr=False, compare=False)

    def _shown(self) -> list[tuple[str, Any]]:
        bounds = [
            (f"{name} at {at} = {point!r}", f"[{round_down(answer.lower, 8)}, {round_up(answer.upper, 8)}]")
            for name, answer, at, point in self.answers()
        ]
        advantage = ("membership advantage", f"at most {round_up(self.advantage.upper)}")
        return [
            ("released", self.details),
            *bounds,
            advantage,
            ("adjacency", f"{self.adjacency}: {self.unit}"),
            *((name, f"at most {round_up(bounds.upper)}") for name, bounds in self.risks),
        ]

    def answers(self) -> Iterator[tuple[str, Answer, str, float]]:
        """What was asked for, the answer, and at which value of what."""
        if self.epsilon is not None and self.at_delta is not None:
            yield "epsilon", self.epsilon, "delta", self.at_delta
        if self.delta is not None and self.at_epsilon is not None:
            yield "delta", self.delta, "epsilon", self.at_epsilon

    def statement(self) -> str:
        """A paragraph that says what is guaranteed, for whom, and how it was computed, with every term explained."""
        sentences = [f"The release consists of {self.details}.", *self.dominated, *self._guarantees()]
        sentences.append(
            f'Adjacency: "{self.adjacency}" ({self.unit}): that is how the two datasets differ, and what is hidden.'
        )
        if self.deployment.unit not in self.unit:
            protected = "one user" if "one user" in self.unit else "one record"
            sentences.append(f'As declared, "{protected}" is here: {self.deployment.unit}.')
        if self.samplers:
            sampling = "; ".join(self.samplers)
            poisson = "independent Poisson" in sampling
            meant = " (each record is in each batch by a coin of its own)" if poisson else ""
            sentences.append(f"Sampling: {sampling}{meant}.")
        if self.noise:
            noise = "; ".join(self.noise)
            meant = " (sensitivity: the most by which what is released would change without noise)"
            sentences.append(f"Noise convention: {noise}{meant if 'sensitivity' in noise else ''}.")
        sentences.append(f"Tuning: {self.deployment.tuning}.")
        sentences.append(
            "No membership-inference attack (a guess from the release in which of the two datasets it was made, by somebody who knows both) "
            "has an advantage, true minus false positive rate, "
            f"above {round_up(self.advantage.upper)}."
        )
        if self.gdp is not None:
            sentences.append(self.gdp.statement())
        if self.risks:
            most = "; ".join(f"{name}: {round_up(bounds.upper)}" for name, bounds in self.risks[1:])
            sentences.append(
                "At most, whatever an attacker knows and does, if a member is somebody whose data were used, and the false positive rate the "
                f"share of others who are taken for one: {most}."
            )
        sentences.append(self._method())
        if self.references:
            sentences.append("Based on " + "; ".join(self.references) + ".")
        sentences.append(self.caveat)
        return " ".join(sentences)

    def _guarantees(self) -> list[str]:
        said = []
        for name, answer, _, point in self.answers():
            lower, upper = round_down(answer.lower), round_up(answer.upper)
            pair = f"{upper}, {point!r}" if name == "epsilon" else f"{point!r}, {upper}"
            said.append(
                f"It satisfies ({pair})-differential privacy (certified {name} range [{lower}, {upper}])."
            )
        said.append(
            "That is, (epsilon, delta): whatever outcome one asks about, its probability on one of two neighbouring datasets is at most "
            "e^epsilon times that on the other, plus delta; the least such number for what is accounted lies in the range."
        )
        if self.profile:
            points = ", ".join(
                f"{round_up(bounds.upper)} at {exactly(delta)}" for delta, bounds in self.profile
            )
            said.append(f"The same holds at other delta, with epsilon at most {points}.")
        return said

    def _method(self) -> str:
        engines = sorted({answer.engine for _, answer, *_ in self.answers()})
        budget = ", ".join(f"{name} {value}" for name, value in self._error_terms())
        included = f"; error terms included in the upper bound, as parts of delta: {budget}" if budget else ""
        return (
            f"Computed by hockeystick {self.version}, commit {self.commit} ({', '.join(engines)}){included}."
        )

    def _error_terms(self) -> list[tuple[str, str]]:
        """Each error term that an upper bound includes, rounded up; of two answers each has its own."""
        answers = list(self.answers())
        return [
            (name if len(answers) == 1 else f"{name} (of {quantity})", round_up(value, 2))
            for quantity, answer, *_ in answers
            for name, value in answer.terms.items()
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, lists, numbers and strings; infinities become the string "inf"."""
        plain = asdict(replace(self, source=None))
        del plain["source"]
        plain["profile"] = [{"delta": at, **bounds._asdict()} for at, bounds in self.profile]
        plain["risks"] = dict(self.risks)
        plain["statement"] = self.statement()
        return finite(plain)

    def certificate(self, slack: float = 1e-4) -> str:
        """A JSON text that proves the claim to who does not trust this library: ``hockeystick verify FILE``.

        It claims what the report does, delta or the delta of epsilon relaxed by ``slack``, relatively (1e-9 to 1; less slack takes
        longer), and holds the numbers of a proof in ball arithmetic that shares no code with the core; it is verified before
        it is returned, in seconds to minutes. docs/accounting/certificates.md says which releases it can be made for, and
        proves the method. Needs python-flint (``hockeystick[verify]``). Raises ParameterError for other releases.
        """
        if self.source is None:
            raise ParameterTypeError(
                "report: was not made by PrivacyProfile.report, so that there is nothing to certify"
            )
        from .certificate import certificate

        answers = [(point, answer.upper, asked) for asked, answer, _, point in self.answers()]
        return certificate(self.source, answers, slack)

    def to_html(self) -> str:
        """One page without references to anything outside it."""
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Privacy report</title></head><body>\n'
            + table("Privacy report", [*self._shown(), *self._more()], self.statement())
            + "\n</body></html>\n"
        )

    def to_latex(self) -> str:
        """A tabular of two columns and the statement beneath it, for a paper; needs no package."""
        rows = [
            f"{_latex(name)} & {_latex(str(value))} \\\\" for name, value in [*self._shown(), *self._more()]
        ]
        body = "\n".join(rows)
        return f"\\begin{{tabular}}{{lp{{0.6\\linewidth}}}}\n{body}\n\\end{{tabular}}\n\n{_latex(self.statement())}\n"

    def declare(self, **facts: str) -> Report:
        """The same report with what only the curator knows: the fields of `Deployment`.

        >>> import hockeystick as hs
        >>> report = hs.account(hs.Gaussian(2.0)).report(delta=1e-5).declare(tuning="none: one run")
        >>> report.deployment.tuning
        'none: one run'
        """
        return replace(self, deployment=replace(self.deployment, **facts))

    def to_registry_yaml(self, basic: Mapping[str, Any], authors: Sequence[str]) -> str:
        """A draft for the registry of deployments (opendp/deployments-registry-data), in YAML.

        ``basic`` says of the data product: name, data_curators (a list), description, intended_use, data_product_type,
        data_product_region, publication_date (YYYY-MM-DD), and perhaps data_product_sector; ``authors`` wrote the entry. What else
        it says comes from the report and from what was declared.
        """
        return to_yaml(registry_entry(self.to_dict(), self.deployment, basic, authors))

    def _more(self) -> list[tuple[str, Any]]:
        """What a page says besides what a notebook shows."""
        found: list[tuple[str, Any]] = []
        if self.gdp is not None:
            regret = f"regret at most {round_up(self.gdp.regret.upper, 3)}"
            found.append(("mu of Gaussian DP", f"{round_up(self.gdp.mu)} up to {self.gdp.delta!r}, {regret}"))
        found.append(("variant", self._variant()))
        if any("noise multiplier" in text for text in self.noise):
            found.append(("conversion of noise", CONVERSION))
        parts = {
            "accounted as": (self.composition,),
            "sampling": self.samplers,
            "noise": self.noise,
            "references": self.references,
            "notes": self.notes,
        }
        found += [(name, "; ".join(texts)) for name, texts in parts.items() if texts]
        found += [
            (f"epsilon at delta = {exactly(at)}", f"at most {round_up(bounds.upper)}")
            for at, bounds in self.profile
        ]
        budget = [(f"{name}, part of delta", value) for name, value in self._error_terms()]
        software = f"hockeystick {self.version}, commit {self.commit}"
        return [*found, *self.deployment.rows(), *budget, ("software", software)]

    def _variant(self) -> str:
        """Of the guarantees, the strongest kind; an infinite epsilon guarantees nothing, whatever delta is."""
        points = [
            (answer.upper, point) if name == "epsilon" else (point, answer.upper)
            for name, answer, _, point in self.answers()
        ]
        deltas = [delta for epsilon, delta in points if epsilon < math.inf]
        if not deltas:
            return "none at this delta: epsilon is infinite"
        return "pure differential privacy" if 0.0 in deltas else "approximate differential privacy"


_LATEX = {
    **{letter: "\\" + letter for letter in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


def _latex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)


def unit(process: Composable, adjacency: str) -> str:
    """What is hidden: whose presence or content, and among how many."""
    hidden, owned = UNITS[adjacency], records_covered(process, adjacency)
    if owned > 1:
        user = f"one user with at most {owned} records"
        hidden = hidden.replace("one record", user).replace("by another", "by those of another user")
    return with_sizes(hidden, process, adjacency)


def with_sizes(hidden: str, process: Composable, adjacency: str) -> str:
    """``hidden``, and among how many records, where the guarantee depends on it."""
    words = process.as_process().words(adjacency)
    if adjacency in COUNTS_DIFFER and words.kept:
        hidden += f", {words.kept}"
    sizes = sorted(words.compared_sizes)
    if not sizes or adjacency not in COUNTS_DIFFER:
        return hidden
    records = " and ".join(str(size) for size in sizes)
    return (
        f"{hidden}, the larger one of the two datasets having exactly {records} records: the "
        "guarantee of truncated batches depends on this number, and whatever else is released about "
        "the data must be accounted for in the same sense"
    )


def records_covered(process: Composable, adjacency: str) -> int:
    """How many records of one user every step that releases something is accounted for: the fewest, since fewer are safer."""
    parts = [part for part in process.as_process().alternatives() if part.simplified()]
    return min((part.words(adjacency).examples_per_user for part in parts), default=1)


def declared(process: Process, adjacency: str) -> Deployment:
    """What the description itself says of a deployment."""
    facts: dict[str, str] = {}
    owned = records_covered(process, adjacency)
    if owned > 1:
        facts |= {"unit": "one user", "contribution_bound": f"at most {owned} records of a user"}
    selections = [step for step, _ in process if isinstance(step, PrivateSelection)]
    if selections:
        facts["tuning"] = "; ".join(tuning_words(step.repetitions) for step in selections)
    return Deployment(**facts)


def dominated(process: Process, whole: bool = True) -> Iterator[str]:
    """One sentence for every part of a release that is accounted as something else, which dominates it."""
    for step, count in process.given:
        if step.parts() != ((step, 1),):
            named = "It" if whole and count == len(process.given) == 1 else repr(step)
            yield f"{named} is accounted as {written(step.parts())}, which dominates it."
        for part in step.alternatives():
            if isinstance(part, OfCurve):
                yield from dominated(part._process, whole=False)


def samplers(process: Process, adjacency: str) -> tuple[str, ...]:
    """One phrase for every sampling scheme in the release, with the number of noisy sums."""
    phrases = []
    for step, uses in process.given:
        count = uses * step.releases
        parts = [part.words(adjacency) for part in step.alternatives()]
        drawn = [(part.sampler, part.caveat) for part in parts if part.sampler]
        if len(parts) == 1:
            phrases += [f"{phrase} ({count} steps){caveat}" for phrase, caveat in drawn]
            continue
        schemes = dict.fromkeys(phrase + caveat for phrase, caveat in drawn)
        choice = f"a released random choice between {len(parts)} mechanisms ({count} steps)"
        phrases.append(choice + (", among them " + ", ".join(schemes) if schemes else ""))
    return tuple(phrases)


def noise_conventions(process: Process, adjacency: str) -> tuple[str, ...]:
    """One phrase for every kind of mechanism in the composition."""
    parts = [*process.described(), *process.alternatives()]
    return tuple(dict.fromkeys(part.words(adjacency).noise for part in parts))


def references(process: Process, adjacency: str) -> tuple[str, ...]:
    """The theorems the guarantee rests on."""
    found = ["Zhu, Dong and Wang 2022, Theorem 10 (composition of dominating pairs)"]
    parts = [*process.described(), *process.alternatives()]
    found += [text for part in parts if (text := part.words(adjacency).reference)]
    return tuple(dict.fromkeys(found)) if process.items else ()
