"""What only the curator of a release knows, and the entry of a report in the registry of deployments.

The schema is that of opendp/deployments-registry-data (2026): `REQUIRED` is what an entry says of the data product.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .._base.validation import ParameterError, ParameterTypeError, choice, instance, shown
from ..mechanisms.selection import Repetitions

REQUIRED = (
    "name",
    "data_curators",
    "description",
    "intended_use",
    "data_product_type",
    "data_product_region",
    "publication_date",
)
# Of the words that YAML 1.1 reads as something else none is a name.
_KEY = "(?!(?:yes|no|on|off|true|false|null)$)[a-z][a-z_]+"
_PRODUCTS = (
    "Summary statistics",
    "Machine learning model",
    "Dataset",
    "Synthetic data",
    "Interactive API",
    "SQL queries",
)


@dataclass(frozen=True)
class Deployment:
    """The facts that no accountant can compute, for a report: what is not given says that it was not declared.

    ``unit`` and ``contribution_bound``: whose data one record is, and how many anybody has. ``trust_model``: "Central" (the curator
    sees the data), "Local", "Shuffle" or "Federated". ``release_type``: "One release" or "Many releases", and ``releases``: what
    is published of the run. ``tuning``: how settings were chosen, and whether that was accounted for.
    """

    unit: str = "one record"
    contribution_bound: str = "not declared beyond the unit of privacy"
    trust_model: str = "Central"
    release_type: str = "One release"
    releases: str = (
        "every noisy output, and whatever is computed from them; a last iterate alone is covered by that"
    )
    unprotected: str = (
        'the schema, the hyper-parameters, and under "replace_one" and "zero_out" the number of records'
    )
    tuning: str = (
        "not declared: runs made on the same data to choose settings, if there were any, are not counted"
    )
    floating_point: str = "not declared; the analysis assumes exact real-valued noise"
    seed: str = "not declared; whoever knows the seed of the noise is not bound by any guarantee"
    code: str = "not declared"

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, str):
                raise ParameterError(f"{name} = {shown(value)}: must be a text")
            _check_plain(name, value)
        choice("trust_model", self.trust_model, ("Central", "Local", "Shuffle", "Federated"))
        choice("release_type", self.release_type, ("One release", "Many releases"))

    def rows(self) -> list[tuple[str, str]]:
        """Names and texts."""
        return [(name.replace("_", " "), text) for name, text in asdict(self).items()]


def tuning_words(tuning: Repetitions | str) -> str:
    """What was declared of other runs on the same data: "none", or the law of their number."""
    if isinstance(tuning, Repetitions):
        return (
            f"the best of K runs is what is accounted for, K drawn from {tuning}, independently of the data; every run is as described, "
            "and only the best one is released"
        )
    return "none, as declared; no other run on the same data chose any setting of this one"


def registry_entry(
    report: Mapping[str, Any], deployment: Deployment, basic: Mapping[str, Any], authors: Sequence[str]
) -> dict[str, Any]:
    """The entry as plain values, in the order of the schema; ``report`` is what `Report.to_dict` returns."""
    instance("basic", basic, Mapping, "a mapping of names to values")  # type: ignore[type-abstract]
    missing = [name for name in REQUIRED if name not in basic]
    if missing:
        raise ParameterError(f"basic: must have {', '.join(missing)}")
    _check_plain("basic", basic)
    choice("data_product_type", basic["data_product_type"], _PRODUCTS)
    if (
        not isinstance(authors, (list, tuple))
        or not authors
        or not all(isinstance(name, str) for name in authors)
    ):
        raise ParameterError(f"authors = {authors!r}: must be a list of at least one name")
    _check_plain("authors", authors)
    epsilon, delta = _point(report)
    slug = "".join(letter if letter.isalnum() else "_" for letter in str(basic["name"]).lower())
    return {
        "url_slug": slug,
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": dict(basic),
            "dp_variant": {
                "variant_name": "Pure DP" if delta == 0.0 else "Approximate DP",
                "unprotected_quantities": deployment.unprotected,
            },
            "privacy_loss": {
                "privacy_unit": deployment.unit,
                "privacy_unit_details": f'Adjacency "{report["adjacency"]}": {report["unit"]}. Contribution bound: {deployment.contribution_bound}.',
                "privacy_parameters": {"epsilon": epsilon, "delta": delta},
                "privacy_parameters_details": report["statement"],
            },
            "deployment_model": {
                "model_name": deployment.trust_model,
                "release_type": deployment.release_type,
                "release_type_details": deployment.releases,
            },
            "accounting": {"composition": "; ".join(report["references"]) or "nothing is composed"},
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": deployment.tuning,
                "mechanisms": f"{report['details']}. Floating point: {deployment.floating_point}. Seed: {deployment.seed}. "
                f"Accounted by hockeystick {report['version']}, commit {report['commit']}; code: {deployment.code}.",
            },
            "administrative": {"registry_authors": list(authors)},
        },
    }


def _point(report: Mapping[str, Any]) -> tuple[float, float]:
    """The (epsilon, delta) that is claimed."""
    if report["epsilon"] is not None:
        epsilon, delta = report["epsilon"]["upper"], report["at_delta"]
    else:
        epsilon, delta = report["at_epsilon"], report["delta"]["upper"]
    if not isinstance(epsilon, float) or not 0.0 <= epsilon < math.inf:
        raise ParameterError(f"epsilon = {epsilon!r}: must be finite and at least 0 to be registered")
    return epsilon, delta


def _check_plain(name: str, value: Any) -> None:
    """Refuse what YAML has no way to write, or reads as something else."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            if not isinstance(key, str) or not re.fullmatch(_KEY, key):
                raise ParameterError(
                    f"{name} has the key {shown(key)}: must be a word of lower-case letters and underscores"
                )
            _check_plain(f"{name}[{key!r}]", each)
    elif isinstance(value, (list, tuple)):
        for index, each in enumerate(value):
            if isinstance(each, (Mapping, list, tuple)):
                raise ParameterTypeError(f"{name}[{index}] = {shown(each)}: must be a text or a number")
            _check_plain(f"{name}[{index}]", each)
    elif isinstance(value, str):
        if any(0xD800 <= ord(letter) < 0xE000 for letter in value):
            raise ParameterError(f"{name} = {shown(value)}: must be a text without lone surrogates")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ParameterError(f"{name} = {shown(value)}: must be finite")
    elif value is not None and not isinstance(value, (bool, int, float)):
        raise ParameterTypeError(
            f"{name} = {shown(value)}: must be a text, a number, or a list or mapping of these"
        )


def to_yaml(entry: Mapping[str, Any]) -> str:
    """Nested mappings and lists as YAML; every text is a quoted JSON string, which YAML reads alike."""
    return "\n".join(_lines(entry, "")) + "\n"


def _lines(entry: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name, value in entry.items():
        if value and isinstance(value, Mapping):
            yield f"{indent}{name}:"
            yield from _lines(value, indent + "  ")
        elif value and isinstance(value, (list, tuple)):
            yield f"{indent}{name}:"
            yield from (f"{indent}  - {_scalar(part)}" for part in value)
        else:
            yield f"{indent}{name}: {_scalar(value)}"


def _scalar(value: Any) -> str:
    if isinstance(value, float):
        text = float.__repr__(value)
        # YAML 1.1 takes 1e-05 for a text.
        return text if "e" not in text or "." in text else text.replace("e", ".0e")
    # What JSON leaves as it is, and YAML does not.
    return re.sub(
        "[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]",
        lambda found: f"\\u{ord(found[0]):04x}",
        json.dumps(value, ensure_ascii=False),
    )
