"""Descriptions to and from plain dicts, for JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from .atoms import Array
from .dp_sgd import DPSGD
from .mechanisms import (
    ApproximateDP,
    Composable,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    PoissonSampled,
    Process,
    PureDP,
    RandomizedResponse,
    Step,
    WithoutReplacement,
    WithReplacement,
)
from .mixtures import Mixture, MixtureOfGaussians
from .sampling import (
    BallsInBins,
    BMinSep,
    CyclicPoisson,
    MultiAttributionBMinSep,
    Poisson,
    RMinSep,
    Scheme,
    TruncatedBMinSep,
)
from .strategies import Banded, BandedToeplitz, Identity, InverseBanded, LowerTriangular, Strategy
from .truncated import TruncatedPoissonSampled

_TYPES: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        Gaussian,
        Laplace,
        DiscreteLaplace,
        DiscreteGaussian,
        RandomizedResponse,
        PureDP,
        ApproximateDP,
        PoissonSampled,
        WithoutReplacement,
        WithReplacement,
        Mixture,
        MixtureOfGaussians,
        TruncatedPoissonSampled,
        DPSGD,
    )
}

_SCHEMES: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        Poisson,
        CyclicPoisson,
        BallsInBins,
        BMinSep,
        RMinSep,
        MultiAttributionBMinSep,
        TruncatedBMinSep,
    )
}

# The array that each strategy is made of; the rest follows from it and the number of steps.
_STRATEGIES: dict[str, tuple[type[Any], str | None]] = {
    "Identity": (Identity, None),
    "BandedToeplitz": (BandedToeplitz, "coefficients"),
    "Banded": (Banded, "columns"),
    "LowerTriangular": (LowerTriangular, "entries"),
    "InverseBanded": (InverseBanded, "inverse"),
}


def to_dict(description: Composable) -> dict[str, Any]:
    """A description as nested dicts of JSON values; `from_dict` is its inverse.

    >>> to_dict(Gaussian(2.0))
    {'type': 'Gaussian', 'noise_multiplier': 2.0}
    >>> from_dict(to_dict(Gaussian(2.0) * 3 + PureDP(0.1))) == Gaussian(2.0) * 3 + PureDP(0.1)
    True
    """
    if isinstance(description, Process):
        items = [{"step": to_dict(step), "count": count} for step, count in description]
        return {"type": "Process", "items": items}
    kind = type(description)
    if _TYPES.get(kind.__name__) is not kind:
        raise TypeError(f"cannot store a {kind.__name__}")
    plain: dict[str, Any] = {"type": kind.__name__}
    for entry in fields(description):  # type: ignore[arg-type]
        if entry.init:
            value = getattr(description, entry.name)
            plain[entry.name] = _plain(value)
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    return to_dict(value) if isinstance(value, Composable) else value


def _rebuilt(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_rebuilt(entry) for entry in value)
    return from_dict(value) if isinstance(value, dict) else value


def from_dict(plain: Any) -> Composable:
    """Rebuild a description; every value is validated again. Raises ValueError or TypeError."""
    if not isinstance(plain, dict):
        raise TypeError(f"not a description: {plain!r}")
    name = plain.get("type")
    if name == "Process":
        items: list[tuple[Step, int]] = []
        for item in plain["items"]:
            step = from_dict(item["step"])
            if not isinstance(step, Step):
                raise TypeError(f"not a step: {item!r}")
            items.append((step, item["count"]))
        return Process(items)
    if name not in _TYPES:
        raise ValueError(f"unknown description {name!r}")
    values = {key: _rebuilt(value) for key, value in plain.items() if key != "type"}
    description: Composable = _TYPES[name](**values)
    return description


def scheme_to_dict(scheme: Scheme) -> dict[str, Any]:
    """A sampling scheme as a dict of JSON values; `scheme_from_dict` is its inverse.

    >>> scheme_to_dict(BallsInBins(100, 10))
    {'type': 'BallsInBins', 'steps': 100, 'bins': 10}
    """
    name = type(scheme).__name__
    if _SCHEMES.get(name) is not type(scheme):
        raise TypeError(f"cannot store a {name}")
    return {"type": name, **{entry.name: getattr(scheme, entry.name) for entry in fields(_SCHEMES[name])}}


def scheme_from_dict(plain: Mapping[str, Any]) -> Scheme:
    """Rebuild a scheme; every value is validated again. Raises ValueError or TypeError."""
    if plain["type"] not in _SCHEMES:
        raise ValueError(f"unknown scheme {plain['type']!r}")
    scheme: Scheme = _SCHEMES[plain["type"]](**{key: value for key, value in plain.items() if key != "type"})
    return scheme


def strategy_to_parts(strategy: Strategy) -> tuple[dict[str, Any], dict[str, Array]]:
    """A strategy as a dict of JSON values and the arrays that go with it, every double exactly."""
    name = type(strategy).__name__
    kind, array = _STRATEGIES.get(name, (None, None))
    if kind is not type(strategy):
        raise TypeError(f"cannot store a {name}")
    arrays = {} if array is None else {"strategy": np.array(getattr(strategy, array), dtype=np.float64)}
    return {"type": name, "steps": strategy.steps}, arrays


def strategy_from_parts(plain: Mapping[str, Any], arrays: Mapping[str, Array]) -> Strategy:
    """Rebuild a strategy from what `strategy_to_parts` returned; everything is validated again."""
    name, steps = plain["type"], plain["steps"]
    if name not in _STRATEGIES:
        raise ValueError(f"unknown strategy {name!r}")
    strategy: Strategy
    if name == "Identity":
        strategy = Identity(steps)
    elif name in ("BandedToeplitz", "InverseBanded"):
        strategy = _STRATEGIES[name][0](arrays["strategy"], steps)
    else:
        strategy = _STRATEGIES[name][0](arrays["strategy"])
    if strategy.steps != steps:
        raise ValueError(f"a strategy of {strategy.steps} steps, not {steps}")
    return strategy
