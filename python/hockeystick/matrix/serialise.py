"""Schemes and strategies to and from plain dicts and arrays, for the files of plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from .._base.arrays import Array
from .schemes import (
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


def scheme_to_dict(scheme: Scheme) -> dict[str, Any]:
    """A sampling scheme as a dict of JSON values; `scheme_from_dict` is its inverse.

    >>> scheme_to_dict(BallsInBins(100, 10))
    {'type': 'BallsInBins', 'steps': 100, 'bins': 10}
    """
    name = type(scheme).__name__
    if _SCHEMES.get(name) is not type(scheme):
        raise TypeError(f"cannot store a {name}")
    plain = {"type": name, **{entry.name: getattr(scheme, entry.name) for entry in fields(_SCHEMES[name])}}
    if isinstance(scheme, BMinSep) and scheme.examples_per_user == 1:
        # Files and fingerprints of plans for single examples have never had it.
        del plain["examples_per_user"]
    return plain


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
