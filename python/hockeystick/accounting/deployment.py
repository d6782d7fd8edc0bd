"""What only the curator of a release knows, and the entry of a report in the registry of deployments.

The schema is that of opendp/deployments-registry-data (2026): `REQUIRED` is what an entry says of the data product.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .._base.validation import ParameterError, choice
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
                raise ParameterError(f"{name} = {value!r}: must be a text")
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
    missing = [name for name in REQUIRED if name not in basic]
    if missing:
        raise ParameterError(f"basic: must have {', '.join(missing)}")
    choice("data_product_type", basic["data_product_type"], _PRODUCTS)
    if not authors or isinstance(authors, str):
        raise ParameterError(f"authors = {authors!r}: must be a list of at least one name")
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
    if not isinstance(epsilon, float) or not math.isfinite(epsilon):
        raise ParameterError(f"epsilon = {epsilon!r}: must be finite to be registered")
    return epsilon, delta


def to_yaml(entry: Mapping[str, Any]) -> str:
    """Nested mappings and lists as YAML; every text is a quoted JSON string, which YAML reads alike."""
    return "\n".join(_lines(entry, "")) + "\n"


def _lines(entry: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name, value in entry.items():
        if isinstance(value, Mapping):
            yield f"{indent}{name}:"
            yield from _lines(value, indent + "  ")
        elif isinstance(value, (list, tuple)):
            yield f"{indent}{name}:"
            yield from (f"{indent}  - {_scalar(part)}" for part in value)
        else:
            yield f"{indent}{name}: {_scalar(value)}"


def _scalar(value: Any) -> str:
    if isinstance(value, float) and "e" in repr(value) and "." not in repr(value):
        return repr(value).replace("e", ".0e")  # YAML 1.1 takes 1e-05 for a text
    return json.dumps(value, ensure_ascii=False)
