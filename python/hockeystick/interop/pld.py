"""dp_accounting's privacy loss distributions as steps (docs/mechanisms/pairs.md, "Privacy loss distributions")."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from .._base.validation import ParameterError, instance
from ..mechanisms.given import PrivacyLoss


def from_pld(pld: Any) -> PrivacyLoss:
    """The step whose privacy losses are those of a ``PrivacyLossDistribution``, both directions as they are there.

    A pessimistic one, as dp_accounting makes them by default, is an upper bound of the mechanism's losses: upper bounds are then
    valid for the mechanism, but for what dp_accounting rounded (1e-11 of delta was seen), lower bounds for the distribution only. An optimistic one bounds nothing and is refused, as is one with
    negative probabilities, which FFTs leave in composed distributions: load the one of a single step, and compose it here.
    What makes its probabilities more than 1, or the other distribution's (truncation at the smallest losses does both), is taken from
    the smallest losses, by leaving P-mass out or by raising these losses. Raises ParameterError.

    >>> from hockeystick import account
    >>> from dp_accounting.pld import privacy_loss_distribution
    >>> step = from_pld(privacy_loss_distribution.from_laplace_mechanism(2.0, value_discretization_interval=0.01))
    >>> round(account(step * 4).epsilon(1e-5), 2)
    2.0
    """
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    instance("pld", pld, PrivacyLossDistribution, "a dp_accounting PrivacyLossDistribution")
    remove = _losses(pld._pmf_remove)
    return replace(remove, add=remove if pld._symmetric else _losses(pld._pmf_add))


def _losses(pmf: Any) -> PrivacyLoss:
    """One direction. dp_accounting shows the atoms of no distribution, so these names are its own."""
    if not pmf._pessimistic_estimate:
        raise ParameterError("pld: must be a pessimistic estimate; an optimistic one is no upper bound")
    if not pmf.size:  # which it cannot make dense
        return PrivacyLoss((), (), infinity_mass=1.0)
    dense = pmf.to_dense_pmf()
    p, beyond = np.array(dense._probs, np.float64), min(1.0, float(dense._infinity_mass))
    losses = ((np.arange(dense.size) + dense._lower_loss) * dense._discretization)[p != 0.0]
    p = p[p != 0.0]
    excess, at = math.fsum([*p, beyond, -1.0]), 0
    while excess > 0.0 and at < len(p):
        taken = min(excess, p[at])
        p[at], excess, at = p[at] - taken, excess - taken, at + 1
    losses, p = losses[p > 0.0], p[p > 0.0]
    with np.errstate(over="ignore"):
        q = p * np.exp(-losses)
    room = 1.0 - np.append(np.cumsum(q[::-1])[::-1][1:], 0.0)  # of Q, for this atom and all below
    mass = np.cumsum(p)
    for at in range(len(p) - 1):
        if room[at] >= mass[at] * (q[at] / p[at]):
            break
        least = losses[at + 1]
        if room[at] > 0.0:
            least = min(least, math.log(mass[at] / room[at]) + 1e-12)
        losses[: at + 1] = least
        if least < losses[at + 1]:
            break
    return PrivacyLoss(tuple(losses), tuple(p), beyond)
